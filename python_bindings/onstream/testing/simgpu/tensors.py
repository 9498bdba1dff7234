"""ons.Tensor: brought in, given back."""

from __future__ import annotations

import onstream as ons
from onstream.testing.simgpu.arrays import Arrays
from onstream.testing.simgpu.driver import Stream
from onstream.testing.simgpu.model import Array, Held
from onstream.testing.simgpu.program import UNKNOWN, Step


class Tensors(Arrays):
    def can_bring(self, array: Array) -> bool:
        if array.abandoned or array.tensors or array.readers:
            return False
        if array.captured is not None or array.is_pinned:
            return False
        if array.is_unknown and not self.is_eager(array.home.stream):
            return False
        return array.kind not in ("failing", "meddler")

    def bring_refusal(self, array: Array, home: Stream) -> str | None:
        producer = array.stream
        if array.kind == "arrow" and not array.obj.event:
            return None  # nothing is left to wait for
        if producer is None:
            if not self.usable(home) or self.capture_of(home) is not None:
                return "unknown stream in a capture"
        elif producer.identity != home.identity and not self.can_join(home, producer):
            return "one is in a capture, the other is not"
        return None

    def home_stream(self, step: Step, array: Array) -> Stream:
        return self.stream(step.stream) or array.stream or self.specials[0, array.device]

    def hold(self, name: str, tensor: object, array: Array, home: Stream) -> None:
        self.held[name] = Held(tensor, array, home, self.capture_of(home))
        array.tensors.add(name)
        self.stray(array.cell, array.home)

    def do_bring(self, step: Step) -> None:
        array = self.arrays.get(step.array)
        if array is None or not self.can_bring(array):
            return
        home = self.home_stream(step, array)
        if home.device != array.device:
            return
        with self.judged(self.bring_refusal(array, home)) as outcome:
            handle = None if step.stream is None else home.handle
            outcome.value = ons.from_dlpack(array.obj, handle)
        if not outcome.refused:
            self.hold(step.tensor, outcome.value, array, home)

    def release_target(self, held: Held) -> Stream | None:
        """The stream that the producer is asked for at release."""
        kind = held.array.kind
        if kind == "interface":
            return held.producer
        return None if kind in UNKNOWN or kind == "own" else held.array.home.stream

    def release_refusal(self, held: Held, worker: bool) -> str | None:
        target = self.release_target(held)
        if worker or target is None or target.identity == held.home.identity:
            return None
        return None if self.can_join(target, held.home) else "one is in a capture"

    def do_release(self, step: Step) -> None:
        held = self.held.get(step.tensor)
        if held is None or held.released:
            return
        if self.capture_of(held.home) is not held.capture:
            return
        why = self.release_refusal(held, step.worker)
        with self.judged(why) as outcome:
            if step.worker:
                self.worker(held.tensor.release)
            else:
                held.tensor.release()
        if not outcome.refused:
            self.returned(step.tensor, held, in_order=not step.worker)

    def do_drop(self, step: Step) -> None:
        """del, in this thread or another: what cannot be ordered is kept longer."""
        held = self.held.get(step.tensor)
        if held is None or held.released:
            return
        same = self.capture_of(held.home) is held.capture
        in_order = same and not step.worker and self.release_refusal(held, False) is None
        if held.array.kind == "telling":
            in_order = False  # its Python code is not run by a finalizer
        with self.judged(None):
            if step.worker:
                self.worker(lambda: setattr(held, "tensor", None))
            else:
                held.tensor = None
        self.returned(step.tensor, held, in_order)

    def returned(self, name: str, held: Held, in_order: bool) -> None:
        held.released = True
        held.tensor = None
        capture = self.capture_of(held.home)
        held.tied = capture.graph if capture is not None else None
        array = held.array
        array.tensors.discard(name)
        if array.obj is not None:
            self.stray(array.cell, array.home)
        if not in_order or self.release_target(held) is None:
            array.abandoned = True
        elif held.capture is not None:
            array.captured = held.capture
        del self.held[name]
