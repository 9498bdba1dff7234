"""Producers in Python, every answer of which can be set."""

from __future__ import annotations

from typing import Any


class DLPackProducer:
    """Speaks __dlpack__ only. `asked` records every call's keywords."""

    def __init__(self, producer: Any, tensor: Any, *, versioned: bool = True) -> None:
        self.producer = producer
        self.tensor = tensor
        self.versioned = versioned
        self.asked: list[dict[str, Any]] = []
        self.capsules: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.device_type, self.tensor.device_id

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        capsule = self.producer.capsule(self.tensor, self.versioned)
        self.capsules.append(capsule)
        return capsule


class OldProducer(DLPackProducer):
    """From before DLPack 1.0: knows no max_version."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return super().__dlpack__(stream=stream)


class OldestProducer(DLPackProducer):
    """Takes no keyword at all."""

    def __dlpack__(self) -> Any:
        return super().__dlpack__()


class BrokenProducer(DLPackProducer):
    """Raises inside."""

    def __init__(self, producer: Any, tensor: Any, error: BaseException) -> None:
        super().__init__(producer, tensor)
        self.error = error

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        raise self.error


class HalfWay(DLPackProducer):
    """Raises when its capsule is made already; `kept` says whether that lives on."""

    kept = True

    def __dlpack__(self, **options: Any) -> Any:
        super().__dlpack__(**options)
        if not self.kept:
            self.capsules.clear()
        raise BufferError("changed its mind")


class WrongAnswer(DLPackProducer):
    """Answers with what is no capsule, or a used one."""

    answer: Any = 5

    def __dlpack__(self, **options: Any) -> Any:
        return self.answer


class ArrayInterface:
    """Speaks __cuda_array_interface__ only."""

    def __init__(self, **entries: Any) -> None:
        self.entries = {"version": 3, "typestr": "<f4", "strides": None, **entries}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.entries
