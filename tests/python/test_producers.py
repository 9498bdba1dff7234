"""The DLPack protocols, as producers get them right and wrong (cases 13 to 16)."""

from __future__ import annotations

import array
import ctypes
import gc
import os
import subprocess
import sys
from typing import Any

import numpy as np
import producer_fakes as fakes
import pytest
from python_producers import (
    ArrayInterface,
    BrokenProducer,
    DLPackProducer,
    HalfWay,
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


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("versioned", [True, False])
def test_a_capsule_whose_producer_raises_is_left_alone(
    mod: ons.Module, producer: Any, x: Any, out: Any, versioned: bool, kept: bool
) -> None:
    p = HalfWay(producer, tensor_of(producer, x), versioned=versioned)
    p.kept = kept
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*HalfWay.*changed its mind") as caught:
        launch(mod, p, out)
    assert isinstance(caught.value.__cause__, BufferError)
    del caught
    unused = "dltensor_versioned" if versioned else "dltensor"
    assert [producer.capsule_name(c) for c in p.capsules] == [unused] * kept
    gc.collect()
    assert producer.counts()["deleted"] == (0 if kept else 1)
    del p
    gc.collect()
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


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
    with pytest.raises(ons.ArgumentTypeError, match=f"'x'.*version {major};.*update"):
        launch(mod, p, out)
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


@pytest.mark.parametrize("null", [(), ("borrow",)])
def test_newer_minor_versions_are_taken(
    mod: ons.Module, producer: Any, x: Any, out: Any, null: Any
) -> None:
    tensor = producer.make_type(0, null=null)(x.ctypes.data, (4,), owner=x)
    tensor.minor = 99
    for given in (tensor, DLPackProducer(producer, tensor)):
        out[:] = 0
        launch(mod, given, out)
        np.testing.assert_array_equal(out, 2 * x)


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


def test_errors_inside_an_old_producer_are_shown(
    mod: ons.Module, producer: Any, x: Any, out: Any
) -> None:
    """It does not know max_version, and raises once it is asked without."""

    class Old(DLPackProducer):
        def __dlpack__(self) -> Any:
            self.asked.append({})
            raise TypeError("inside")

    p = Old(producer, tensor_of(producer, x))
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*Old.*inside"):
        launch(mod, p, out)
    assert len(p.asked) == 1


def test_type_errors_of_c_functions_are_shown(
    mod: ons.Module, producer: Any, x: Any, out: Any
) -> None:
    """They have no traceback, whoever raised them."""

    class Builtin(DLPackProducer):
        __dlpack__ = staticmethod(len)  # type: ignore[assignment]

    with pytest.raises(ons.ArgumentTypeError, match=r"'x'.*Builtin.*len\(\) takes") as caught:
        launch(mod, Builtin(producer, tensor_of(producer, x)), out)
    assert isinstance(caught.value.__cause__, TypeError)


def test_errors_of_a_device_query_are_shown(
    mod: ons.Module, producer: Any, x: Any, out: Any
) -> None:
    class Lost(DLPackProducer):
        def __dlpack_device__(self) -> Any:
            raise TypeError("inside")

    mod.scale.prepare("cpu")
    p = Lost(producer, tensor_of(producer, x))
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*__dlpack_device__ raised.*inside"):
        launch(mod, p, out)
    assert p.asked == []


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


@pytest.mark.parametrize(
    "options", [{"major": 2}, {"major": 0}, {"newer": 40}, {"null": ("borrow", "take")}]
)
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
    for flags in (READ_ONLY, COPIED):
        with pytest.raises(ons.ArgumentValueError, match="read-only"):
            launch(mod, x, Tensor(x.ctypes.data, (4,), owner=x, flags=flags))
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*version 2"):
        launch(mod, Tensor(x.ctypes.data, (4,), owner=x, major=2), out)
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] > 0


@pytest.mark.parametrize("null", [(), ("borrow",)])
def test_failing_slots(mod: ons.Module, producer: Any, x: Any, out: Any, null: Any) -> None:
    tensor = producer.make_type(0, null=null)(x.ctypes.data, (4,), owner=x, fail=True)
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*told to fail") as caught:
        launch(mod, tensor, out)
    assert isinstance(caught.value.__cause__, BufferError)
    tensor.fail = 2
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*failed without an exception"):
        launch(mod, tensor, out)
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


# ---- libraries, the real ones, in host memory --------------------------------------------------------


def test_buffers_of_jax_callbacks(mod: ons.Module) -> None:
    """Inside a callback of XLA's: inputs are read-only, outputs are written."""
    jax = pytest.importorskip("jax")
    callback = pytest.importorskip("jax.experimental.buffer_callback")
    errors: list[str] = []

    def body(ctx: Any, out: Any, x: Any) -> None:
        mod.scale[1, 32](2.0, x, out, 4)
        try:
            mod.scale[1, 32](2.0, out, x, 4)
        except ons.ArgumentValueError as error:
            errors.append(str(error))

    with jax.default_device(jax.devices("cpu")[0]):
        x = jax.numpy.arange(4, dtype=jax.numpy.float32)
        call = callback.buffer_callback(body, jax.ShapeDtypeStruct(x.shape, x.dtype))
        np.testing.assert_array_equal(call(x), 2 * np.arange(4))
    assert len(errors) == 1 and "'out'" in errors[0] and "read-only" in errors[0]


def test_paddle_tensors(mod: ons.Module) -> None:
    paddle = pytest.importorskip("paddle")
    x, out = paddle.arange(4, dtype="float32"), paddle.zeros([4])
    launch(mod, x, out)
    np.testing.assert_array_equal(out.numpy(), [0, 2, 4, 6])
    x.stop_gradient = False
    launch(mod, x, out)
    with pytest.raises(ons.ArgumentValueError, match="'out'.*detach"):
        launch(mod, out, x)
    y = mod.scale[1, 32](2.0, out, ons.like(out), 4)
    assert isinstance(y, paddle.Tensor)
    np.testing.assert_array_equal(y.numpy(), [0, 4, 8, 12])


def test_warp_arrays(mod: ons.Module, x: Any) -> None:
    wp = pytest.importorskip("warp")
    out = wp.zeros(4, dtype=wp.float32, device="cpu")
    launch(mod, wp.array(x, dtype=wp.float32, device="cpu"), out)
    np.testing.assert_array_equal(out.numpy(), 2 * x)


def test_views_of_cuda_core(mod: ons.Module, x: Any, out: Any) -> None:
    utils = pytest.importorskip("cuda.core.utils")
    View = utils.StridedMemoryView.from_any_interface
    launch(mod, View(x, stream_ptr=-1), View(out, stream_ptr=-1))
    np.testing.assert_array_equal(out, 2 * x)
    x.flags.writeable = False
    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        launch(mod, out, View(x, stream_ptr=-1))


def test_what_is_known_of_cupy() -> None:
    """The class's names and the entry for the current stream are where they are looked for."""
    cupy = pytest.importorskip("cupy")
    assert (cupy.ndarray.__module__, cupy.ndarray.__name__) == ("cupy", "ndarray")
    entry = sys.modules["cupy.cuda.stream"].__pyx_capi__["get_current_stream_ptr"]
    assert '"intptr_t (void)"' in repr(entry)
    assert callable(sys.modules["cupy_backends.cuda.api.runtime"].getDeviceCount)


def test_what_is_known_of_numba() -> None:
    pytest.importorskip("numba")
    arrays = pytest.importorskip("numba.cuda.cudadrv.devicearray")
    base = fakes.DeviceNDArrayBase
    names = [(c.__module__, c.__name__) for c in arrays.DeviceNDArray.__mro__]
    assert (base.__module__, base.__name__) in names
    assert not hasattr(arrays.DeviceNDArray, "__dlpack__")
    assert hasattr(arrays.DeviceNDArray, "__cuda_array_interface__")


def test_pyarrow_arrays(mod: ons.Module, out: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    x = pa.array([9, 1, 2, 3, 4, 9], pa.float32())
    launch(mod, x.slice(1, 4), out)
    np.testing.assert_array_equal(out, [2, 4, 6, 8])
    before = pa.total_allocated_bytes()
    for _ in range(10):
        launch(mod, x, out)
        with pytest.raises(ons.ArgumentValueError, match="'out'.*read-only"):
            launch(mod, out, x)
    del x
    gc.collect()
    assert pa.total_allocated_bytes() < before, "everything has been released"
    for kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
                 "float16", "float64"):  # fmt: skip
        y = np.zeros(3, kind)
        c = {"float16": "__half", "float64": "double"}.get(kind, f"{kind}_t")
        copy = ons.Module(
            "#include <cuda_fp16.h>\n#include <stdint.h>\n"
            f"__global__ void copy(const {c}* x, {c}* y) {{ y[threadIdx.x] = x[threadIdx.x]; }}"
        ).copy
        copy[1, 3](pa.array(np.arange(3, dtype=kind)), y)
        np.testing.assert_array_equal(y, np.arange(3))
    for bad, why in (
        (pa.array([1.0, None], pa.float32()), "nulls"),
        (pa.array([True, False]), "type 'b'.*uint8"),
        (pa.array(["a"]), "type 'u'"),
        (pa.array([0], pa.timestamp("s")), "type 'tss:'.*int64"),
        (pa.array([1.0], pa.float32()).dictionary_encode(), "dictionary"),
        (pa.chunked_array([[1.0]]), "no argument for a kernel"),
    ):
        with pytest.raises(ons.ArgumentTypeError, match=f"'x'.*{why}"):
            launch(mod, bad, out)


# ---- Arrow's device arrays ---------------------------------------------------------------------------


def arrow(x: np.ndarray, **fields: Any) -> Any:
    return fakes.Arrow(x.ctypes.data, len(x), device=(1, -1), **fields)


def test_arrow_arrays(mod: ons.Module, x: Any, out: Any) -> None:
    a = arrow(x)
    launch(mod, a, out)
    np.testing.assert_array_equal(out, 2 * x)
    assert a.released == 1
    launch(mod, arrow(x, null_count=-1), out)
    launch(mod, arrow(x, validity=x.ctypes.data), out)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"format": b"b"}, "type 'b'"),
        ({"format": b""}, "type ''"),
        ({"dictionary": 8}, "dictionary"),
        ({"null_count": 1, "validity": 8}, "nulls"),
        ({"null_count": -1, "validity": 8}, "nulls"),
        ({"n_buffers": 1}, "malformed"),
        ({"offset": -1}, "malformed"),
        ({"length": -1}, "malformed"),
        ({"device": (0, 0)}, "device"),
        ({"device": (1 << 20, 0)}, "device"),
        ({"device": (2, -7)}, "device"),
    ],
)
def test_arrow_arrays_that_are_refused(mod: ons.Module, out: Any, fields: Any, why: str) -> None:
    mod.scale.prepare("cpu")
    options: dict[str, Any] = {"length": 4, "device": (1, -1), **fields}
    a = fakes.Arrow(out.ctypes.data, **options)
    with pytest.raises(ons.ArgumentTypeError, match=f"'x'.*{why}"):
        launch(mod, a, out)
    assert a.released == 1


def test_answers_that_are_no_arrow_capsules(mod: ons.Module, x: Any, out: Any) -> None:
    mod.scale.prepare("cpu")
    for names in ((b"arrow_schema", b"used"), (b"used", b"arrow_device_array")):
        a = arrow(x)
        a.schema_name, a.array_name = names
        with pytest.raises(ons.ArgumentTypeError, match="'x'.*pair of unused capsules"):
            launch(mod, a, out)
        assert a.released == 0
    for answer in (None, (), (1, 2), (1, 2, 3)):
        Odd = type("Odd", (), {"__arrow_c_device_array__": lambda self, answer=answer: answer})
        with pytest.raises(ons.ArgumentTypeError, match="'x'.*pair of unused capsules"):
            launch(mod, Odd(), out)
    Broken = type("Broken", (), {"__arrow_c_device_array__": lambda self: 1 / 0})
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*ZeroDivisionError"):
        launch(mod, Broken(), out)


# ---- ons.register_producer ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "options", "error"),
    [
        ((), {}, TypeError),
        ((5,), {}, TypeError),
        ((float,), {}, TypeError),
        ((type(None),), {}, TypeError),
        ((ons.Output,), {}, TypeError),
        ((object, len), {}, TypeError),
        ((BrokenProducer,), {"stream": 5}, TypeError),
        ((BrokenProducer,), {"protocol": "numpy"}, ValueError),
        ((BrokenProducer,), {"protocol": 5}, ValueError),
        ((BrokenProducer,), {"writable": True}, TypeError),
    ],
)
def test_what_cannot_be_registered(args: Any, options: Any, error: Any) -> None:
    with pytest.raises(error):
        ons.register_producer(*args, **options)


def test_registered_read_only(mod: ons.Module, producer: Any, x: Any, out: Any) -> None:
    class Sealed(DLPackProducer):
        pass

    class Array(np.ndarray):
        pass

    p, y = Sealed(producer, tensor_of(producer, x)), out.view(Array)
    launch(mod, x, p)
    launch(mod, x, y)
    for kind in (Sealed, Array):
        ons.register_producer(kind, read_only=True)
    for sealed in (p, y):
        launch(mod, sealed, out)
        with pytest.raises(ons.ArgumentValueError, match="'out'.*read-only"):
            launch(mod, x, sealed)
    launch(mod, x, out)


def test_registered_for_many_types(mod: ons.Module, producer: Any, x: Any, out: Any) -> None:
    """More types than are remembered: what is registered holds for all of them."""

    class Base(DLPackProducer):
        pass

    ons.register_producer(Base, read_only=True)
    for _ in range(300):
        p = type("Derived", (Base,), {})(producer, tensor_of(producer, x))
        launch(mod, p, out)
        with pytest.raises(ons.ArgumentValueError, match="read-only"):
            launch(mod, x, p)
    ons.register_producer(Base)
    launch(mod, x, p)


def test_host_arrays_are_not_asked_for_streams(
    mod: ons.Module, producer: Any, x: Any, out: Any
) -> None:
    class Registered(DLPackProducer):
        pass

    ons.register_producer(Registered, stream=lambda a: 1 / 0)
    launch(mod, Registered(producer, tensor_of(producer, x)), out)
    np.testing.assert_array_equal(out, 2 * x)


def test_nothing_is_imported(tmp_path: Any) -> None:
    """Neither by importing onstream nor by launching on arrays with the names of others."""
    script = """
import sys
import numpy as np
import producer_fakes as fakes
import onstream as ons
mod = ons.Module("__global__ void k(const float* x) {}")
libraries = "torch paddle cupy jax numba cuda.core pycuda warp pyarrow dpctl tvm_ffi".split()
for kind in (fakes.GPUArray, fakes.DeviceNDArray):
    try:
        mod.k[1, 1](kind(8))
    except ons.Error:
        pass
try:
    mod.k[1, 1](fakes.passes_for(fakes.DLPackProducer, "cupy", "ndarray")(None, None))
except (AttributeError, ons.Error):
    pass
mod.k[1, 1](np.zeros(1, np.float32))
found = [name for name in libraries if name in sys.modules]
assert not found, found
"""
    here = os.path.dirname(__file__)
    path = os.pathsep.join([here, *sys.path])
    env = {**os.environ, "PYTHONPATH": path, "ONSTREAM_CUDA_DRIVER": "/nonexistent"}
    subprocess.run([sys.executable, "-c", script], check=True, env=env)
