"""Tensors that are kept: arrays of the real libraries on the CPU. The GPU side is in
simgpu_tensors.py."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from python_producers import BrokenProducer, DLPackProducer, OldestProducer, WrongAnswer

import onstream as ons


def test_numpy(mod: ons.Module) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = ons.from_dlpack(x)
    assert (t.shape, t.strides, t.dtype, t.device) == ((2, 3), (3, 1), "float32", "cpu")
    assert (t.stream, t.data_ptr, t.nbytes, t.read_only) == (None, x.ctypes.data, 24, False)
    assert ons.from_dlpack(x.T).strides == (1, 3)
    assert ons.from_dlpack(x[::-1]).strides == (-3, 1)
    assert ons.from_dlpack(x[:, 1:]).data_ptr == x.ctypes.data + 4
    mod.scale[1, 6](2.0, t, t, 6)
    assert x.tolist() == [[0, 2, 4], [6, 8, 10]]
    for odd, dtype in ((np.array(3.0), "float64"), (np.zeros((3, 0), "?"), "bool")):
        t = ons.from_dlpack(odd)
        assert (t.shape, t.dtype, t.nbytes) == (odd.shape, dtype, odd.nbytes)


def test_torch(mod: ons.Module) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    t = ons.from_dlpack(x[:, 1:])
    assert (t.shape, t.strides, t.data_ptr) == ((2, 2), (3, 1), x.data_ptr() + 4)
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int8):
        assert ons.from_dlpack(torch.empty(3, dtype=dtype)).dtype == str(dtype)[6:]
    with ons.borrow(x) as t:
        mod.scale[1, 6](2.0, t, t, 6)
    assert x.flatten().tolist() == [0, 2, 4, 6, 8, 10]


def test_torch_tensors_of_autograd(mod: ons.Module) -> None:
    torch = pytest.importorskip("torch")
    t, out = ons.from_dlpack(torch.ones(3, requires_grad=True)), np.zeros(3, np.float32)
    mod.scale[1, 3](2.0, t, out, 3)
    assert out.tolist() == [2, 2, 2]
    with pytest.raises(ons.ArgumentError, match="'out'.*requires grad.*detach"):
        mod.scale[1, 3](2.0, out, t, 3)


def test_torch_views_that_hold_other_values() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(3, dtype=torch.complex64)
    for lazy, word in ((x.conj(), "conj"), (x.conj().imag, "neg")):
        with pytest.raises(ons.ArgumentValueError, match=f"from_dlpack: .*lazy {word} view"):
            ons.from_dlpack(lazy)
    with pytest.raises(ons.ArgumentTypeError, match="from_dlpack: .*to_dense"):
        ons.from_dlpack(torch.eye(3).to_sparse())


def test_jax(mod: ons.Module, jnp: Any) -> None:
    x, out = jnp.ones((2, 3)), np.zeros(6, np.float32)
    t = ons.from_dlpack(x)
    assert t.shape == (2, 3) and t.read_only
    del x
    gc.collect()
    mod.scale[1, 6](2.0, t, out, 6)
    assert out.tolist() == [2] * 6
    with pytest.raises(ons.ArgumentError, match="'out'.*read-only"):
        mod.scale[1, 6](2.0, out, t, 6)


def test_read_only_numpy() -> None:
    x = np.zeros(3, np.float32)
    x.flags.writeable = False
    assert ons.from_dlpack(x).read_only


def test_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert ons.from_dlpack(np.zeros(3, ml_dtypes.bfloat16)).dtype == "bfloat16"


def test_buffers_are_kept() -> None:
    x = bytearray(16)
    t = ons.from_dlpack(memoryview(x)[4:])
    assert (t.shape, t.dtype) == ((12,), "uint8")
    with pytest.raises(BufferError):
        x.append(0)  # its memory is in use
    t.release()
    x.append(0)


def test_the_memory_outlives_the_array(mod: ons.Module) -> None:
    x = np.ones(4, np.float32)
    gone = weakref.ref(x)
    t = ons.from_dlpack(x)
    del x
    gc.collect()
    assert gone() is not None
    mod.scale[1, 4](2.0, t, t, 4)
    t.release()
    assert gone() is None
    t.release()


def test_a_cycle_through_a_tensor_is_collected() -> None:
    class Array(np.ndarray[Any, Any]):
        pass

    x: Any = np.ones(4).view(Array)
    gone = weakref.ref(x)
    t = ons.from_dlpack(np.ones(4))
    x.t, cell = t, [x]
    cell.append(cell)
    del x, t, cell
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("versioned", [True, False])
def test_capsules_are_deleted_once(producer: Any, versioned: bool) -> None:
    host = producer.make_type(0)(0x1000, (4,))
    x = DLPackProducer(producer, host, versioned=versioned)
    t = ons.from_dlpack(x)
    assert x.asked == [{"max_version": (1, 3)}]
    x.capsules.clear()
    assert producer.counts()["deleted"] == 0
    t.release()
    del t
    assert producer.counts()["deleted"] == 1
    t = ons.from_dlpack(OldestProducer(producer, host, versioned=versioned))
    del t
    assert producer.counts()["deleted"] == 2


def test_what_is_refused(producer: Any) -> None:
    for thing in (5, 2.5, None, "x", object(), ons.empty(3, "float32"), [1.0], np.float32(1)):
        with pytest.raises(ons.ArgumentTypeError, match="from_dlpack: got a .*no array; pass"):
            ons.from_dlpack(thing)
    x = np.zeros(3)
    for stream in (0, 1, 5):
        with pytest.raises(ons.ArgumentValueError, match="host memory.*no stream; leave"):
            ons.from_dlpack(x, stream=stream)
    host = producer.make_type(0)(0x1000, (4,))
    broken = BrokenProducer(producer, host, TypeError("inside"))
    with pytest.raises(ons.ArgumentTypeError, match=r"from_dlpack: .*TypeError: inside"):
        ons.from_dlpack(broken)
    with pytest.raises(ons.ArgumentTypeError, match="from_dlpack: .*not an unused DLPack capsule"):
        ons.from_dlpack(WrongAnswer(producer, host))
    with pytest.raises(TypeError):
        ons.from_dlpack()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        ons.Tensor()


def test_references(producer: Any) -> None:
    x = np.zeros(3)
    before = sys.getrefcount(x)
    for _ in range(100):
        t = ons.from_dlpack(x)
        repr(t)
        with pytest.raises(ValueError):
            ons.from_dlpack(x, stream=3)
    del t
    assert sys.getrefcount(x) == before


def test_threads(mod: ons.Module) -> None:
    """One tensor used by some while others import and release it."""
    x = np.zeros(1 << 12, np.float32)
    shared = ons.from_dlpack(x)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                with ons.borrow(x) as t:
                    mod.scale[16, 256](1.0, t, shared, x.size)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and ons.collect() == 0


def test_an_array_that_refers_to_its_tensor_is_collected(producer: Any) -> None:
    class Array(np.ndarray[Any, Any]):
        pass

    x = np.zeros(3, np.float32)
    lending = producer.make_type(0, null=("take",))

    class Lent(lending):  # type: ignore[misc, valid-type]
        pass

    for make in (lambda: x.view(Array), lambda: Lent(x.ctypes.data, (3,), owner=x)):
        array: Any = make()
        array.tensor = ons.from_dlpack(array)
        gone = weakref.ref(array)
        del array
        gc.collect()
        assert gone() is None
