"""The DLPack protocols, as producers get them right and wrong (cases 13 to 16)."""

from __future__ import annotations

import array
import ctypes
import gc
from typing import Any

import numpy as np
import pytest
from python_producers import (
    ArrayInterface,
    BrokenProducer,
    DLPackProducer,
    OldestProducer,
    OldProducer,
    WrongAnswer,
)

import onstream as ons

READ_ONLY, COPIED = 1, 2


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(4, dtype=np.float32)


@pytest.fixture
def out() -> np.ndarray:
    return np.zeros(4, np.float32)


def launch(mod: ons.Module, x: Any, out: Any, n: int = 4) -> None:
    mod.scale[1, 32](2.0, x, out, n)


def tensor_of(producer: Any, x: np.ndarray, **options: Any) -> Any:
    return producer.make_type(0)(x.ctypes.data, x.shape, owner=x, **options)


# ---- capsules ---------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("kind", [DLPackProducer, OldProducer, OldestProducer])
def test_deleter_runs_once(
    mod: ons.Module, producer: Any, x: Any, out: Any, versioned: bool, kind: Any
) -> None:
    p = kind(producer, tensor_of(producer, x), versioned=versioned)
    launch(mod, p, out)
    np.testing.assert_array_equal(out, 2 * x)
    expected = "used_dltensor_versioned" if versioned else "used_dltensor"
    assert [producer.capsule_name(c) for c in p.capsules] == [expected]
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1
    p.capsules.clear()
    gc.collect()
    assert producer.counts()["deleted"] == 1


@pytest.mark.parametrize("versioned", [True, False])
def test_deleter_runs_once_when_the_launch_is_refused(
    mod: ons.Module, producer: Any, x: Any, versioned: bool
) -> None:
    p = DLPackProducer(producer, tensor_of(producer, x), versioned=versioned)
    with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
        launch(mod, p, x.astype(np.float64))
    with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
        launch(mod, p, "half a hand-over")
    del p
    gc.collect()
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 2


@pytest.mark.parametrize("versioned", [True, False])
def test_unused_capsules_delete_themselves(producer: Any, x: Any, versioned: bool) -> None:
    del x
    tensor = producer.make_type(0)(0, (0,))
    producer.capsule(tensor, versioned)
    gc.collect()
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


@pytest.mark.parametrize("versioned", [True, False])
def test_deleters_may_be_null(
    mod: ons.Module, producer: Any, x: Any, out: Any, versioned: bool
) -> None:
    tensor = tensor_of(producer, x, null_deleter=True)
    launch(mod, DLPackProducer(producer, tensor, versioned=versioned), out)
    np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.parametrize("versioned", [True, False])
def test_a_capsule_is_not_consumed_twice(
    mod: ons.Module, producer: Any, x: Any, out: Any, versioned: bool
) -> None:
    p = WrongAnswer(producer, tensor_of(producer, x))
    p.answer = producer.capsule(p.tensor, versioned)
    launch(mod, p, out)
    with pytest.raises(ons.ArgumentTypeError, match="not an unused DLPack capsule"):
        launch(mod, p, out)
    assert producer.counts()["deleted"] == 1


@pytest.mark.parametrize("answer", [5, None, "dltensor", object(), ()])
def test_answers_that_are_no_capsules(
    mod: ons.Module, producer: Any, x: Any, out: Any, answer: Any
) -> None:
    p = WrongAnswer(producer, tensor_of(producer, x))
    p.answer = answer
    with pytest.raises(ons.ArgumentTypeError, match=r"'x'.*not an unused DLPack capsule"):
        launch(mod, p, out)


@pytest.mark.parametrize("major", [0, 2, 7])
def test_a_foreign_major_version_is_deleted_and_not_read(
    mod: ons.Module, producer: Any, x: Any, out: Any, major: int
) -> None:
    p = DLPackProducer(producer, tensor_of(producer, x, major=major))
    with pytest.raises(ons.ArgumentTypeError, match=f"version {major}"):
        launch(mod, p, out)
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


@pytest.mark.parametrize("flags", [READ_ONLY, COPIED])
def test_flags_are_heeded(mod: ons.Module, producer: Any, x: Any, out: Any, flags: int) -> None:
    p = DLPackProducer(producer, tensor_of(producer, x, flags=flags))
    launch(mod, p, out)
    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        launch(mod, out, p)
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 2


@pytest.mark.parametrize("device", [None, 5, (1,), ("cpu", 0), (2, -1), (1 << 40, 0), (0, 0)])
def test_malformed_devices(mod: ons.Module, producer: Any, x: Any, out: Any, device: Any) -> None:
    class Lost(DLPackProducer):
        def __dlpack_device__(self) -> Any:
            return device

    with pytest.raises(ons.ArgumentTypeError, match="__dlpack_device__"):
        launch(mod, Lost(producer, tensor_of(producer, x)), out)


@pytest.mark.parametrize("index", [-1, 1, 7])
def test_host_memory_may_have_any_index(
    mod: ons.Module, producer: Any, x: Any, out: Any, index: int
) -> None:
    tensor = tensor_of(producer, x, device=(1, index))
    for given in (tensor, DLPackProducer(producer, tensor)):
        launch(mod, given, out)
        np.testing.assert_array_equal(out, 2 * x)
        out[:] = 0


# ---- what is asked ------------------------------------------------------------------------------


def test_host_arrays_are_asked_without_a_stream(
    mod: ons.Module, producer: Any, x: Any, out: Any
) -> None:
    p = DLPackProducer(producer, tensor_of(producer, x))
    launch(mod, p, out)
    assert p.asked == [{"max_version": (1, 3)}]


@pytest.mark.parametrize(
    "error", [TypeError("inside"), ValueError("inside"), BufferError("inside")]
)
def test_errors_inside_a_producer_are_shown(
    mod: ons.Module, producer: Any, x: Any, out: Any, error: Exception
) -> None:
    p = BrokenProducer(producer, tensor_of(producer, x), error)
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*BrokenProducer.*inside") as caught:
        launch(mod, p, out)
    assert caught.value.__cause__ is error
    assert len(p.asked) == 1, "a TypeError from inside is not an unknown keyword"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_interrupts_pass_through(
    mod: ons.Module, producer: Any, x: Any, out: Any, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        launch(mod, BrokenProducer(producer, tensor_of(producer, x), error), out)


# ---- exchange tables ------------------------------------------------------------------------------


def test_the_table_is_used(mod: ons.Module, producer: Any, x: Any, out: Any) -> None:
    tensor = tensor_of(producer, x)
    for _ in range(3):
        launch(mod, tensor, out)
    np.testing.assert_array_equal(out, 2 * x)
    counts = producer.counts(0)
    assert counts["borrows"] >= 3 and counts["takes"] == 0
    assert counts["queries"] == 0, "no stream for host memory"


def test_newer_tables_are_walked_past(mod: ons.Module, producer: Any, x: Any, out: Any) -> None:
    Tensor = producer.make_type(0, newer=3)
    launch(mod, Tensor(x.ctypes.data, (4,), owner=x), out)
    np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.parametrize("options", [{"major": 2}, {"major": 0}, {"null": ("borrow", "take")}])
def test_unusable_tables_lead_to_the_next_rung(
    mod: ons.Module, producer: Any, x: Any, out: Any, options: Any
) -> None:
    Base = producer.make_type(0, **options)

    class Both(Base):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: Any) -> Any:
            return producer.capsule(self, True)

    launch(mod, Both(x.ctypes.data, (4,), owner=x), out)
    np.testing.assert_array_equal(out, 2 * x)
    assert producer.counts()["deleted"] == 1
    with pytest.raises(ons.ArgumentTypeError, match="no argument for a kernel"):
        launch(mod, Base(x.ctypes.data, (4,), owner=x), out)


def test_without_a_borrowing_slot_the_owning_one_is_used(
    mod: ons.Module, producer: Any, x: Any, out: Any
) -> None:
    Tensor = producer.make_type(0, null=("borrow",))
    launch(mod, Tensor(x.ctypes.data, (4,), owner=x), out)
    np.testing.assert_array_equal(out, 2 * x)
    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        launch(mod, x, Tensor(x.ctypes.data, (4,), owner=x, flags=READ_ONLY))
    with pytest.raises(ons.ArgumentTypeError, match="version 2"):
        launch(mod, Tensor(x.ctypes.data, (4,), owner=x, major=2), out)
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] > 0


@pytest.mark.parametrize("null", [(), ("borrow",)])
def test_failing_slots(mod: ons.Module, producer: Any, x: Any, out: Any, null: Any) -> None:
    tensor = producer.make_type(0, null=null)(x.ctypes.data, (4,), owner=x, fail=True)
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*told to fail") as caught:
        launch(mod, tensor, out)
    assert isinstance(caught.value.__cause__, BufferError)
    tensor.fail = 0
    launch(mod, tensor, out)


def test_types_come_and_go(mod: ons.Module, producer: Any, x: Any, out: Any) -> None:
    """A type's address may be that of an earlier one with another table, or with none."""
    for i in range(600):
        Tensor = producer.make_type(0, null=("borrow",) if i % 2 else ())
        if i % 3 == 2:
            Tensor = producer.make_type(0, capsule=False)
        tensor = Tensor(x.ctypes.data, (4,), owner=x)
        before = producer.counts(0)
        if i % 3 == 2:
            with pytest.raises(ons.ArgumentTypeError):
                launch(mod, tensor, out)
            assert producer.counts(0) == before
        else:
            launch(mod, tensor, out)
            grown = "takes" if i % 2 else "borrows"
            assert producer.counts(0)[grown] == before[grown] + 1
        del tensor, Tensor
        if i % 50 == 0:
            gc.collect()


@pytest.mark.parametrize("table", [None, 5, "capsule"])
def test_attributes_that_are_no_tables(mod: ons.Module, out: Any, table: Any) -> None:
    class Odd:
        __dlpack_c_exchange_api__ = table

    with pytest.raises(ons.ArgumentTypeError, match="no argument for a kernel"):
        launch(mod, Odd(), out)


# ---- buffers, CUDA arrays --------------------------------------------------------------------------


def test_buffers(mod: ons.Module) -> None:
    x = array.array("f", [1, 2, 3, 4])
    out = (ctypes.c_float * 4)()
    launch(mod, x, out)
    assert list(out) == [2, 4, 6, 8]
    launch(mod, memoryview(x), memoryview(out))
    with pytest.raises(ons.ArgumentTypeError):
        launch(mod, array.array("d", [1]), out)
    with pytest.raises(ons.ArgumentTypeError, match="uint8"):
        launch(mod, b"abcd", out)


def test_buffers_are_given_back(mod: ons.Module, out: Any) -> None:
    x = bytearray(16)
    launch(mod, memoryview(x).cast("f"), out)
    x.extend(b"resizable again")
    with pytest.raises(ons.ArgumentTypeError):
        launch(mod, x, out)
    x.extend(b"after a refusal too")


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"shape": (4,), "data": (0, False), "mask": object()},
        {"shape": (4,), "data": None},
        {"shape": None, "data": (16, False)},
        {"shape": (-4,), "data": (16, False)},
        {"shape": (4,), "data": (16, False), "typestr": "<U4"},
        {"shape": (4,), "data": (16, False), "typestr": ">f4"},
        {"shape": (4,), "data": (16, False), "typestr": ""},
        {"shape": (4,), "data": (16, False), "typestr": 4},
        {"shape": (4,), "data": (16, False), "strides": (3,)},
        {"shape": (4,), "data": (16, False), "strides": 4},
        {"shape": ("4",), "data": ("16", False)},
        {"shape": (1,) * 100, "data": (16, False)},
    ],
)
def test_malformed_array_interfaces(mod: ons.Module, out: Any, entries: Any) -> None:
    mod.scale.prepare("cpu")
    with pytest.raises(ons.Error):
        launch(mod, ArrayInterface(**entries), out)
