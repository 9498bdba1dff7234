"""onstream.Tensor as a producer, on the CPU: the real libraries, and a consumer of our own. The GPU
side is in simgpu_tensor_export.py."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from exchange_table import IS_COPIED, READ_ONLY, Legacy, Versioned, managed, table_of

import onstream as ons

CPU = 1, 0


def tensor(*shape: int, dtype: Any = np.float32) -> tuple[Any, ons.Tensor]:
    x = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    return x, ons.from_dlpack(x)


def read_only(x: Any) -> Any:
    x.flags.writeable = False
    return x


# ---- the real libraries ----------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, {"copy": False}])
def test_numpy_takes_it_without_a_copy(options: dict[str, Any]) -> None:
    x, t = tensor(2, 3)
    y = np.from_dlpack(t, **options)
    assert y.ctypes.data == x.ctypes.data == t.data_ptr and y.flags.writeable
    assert np.array_equal(x, y)
    back = ons.from_dlpack(y)
    assert back.data_ptr == t.data_ptr and not back.read_only


@pytest.mark.parametrize("view", ["x.T", "x[::-1]", "x[:, 1:]", "x[:, ::2]", "x[:0]", "x[1, 2]",
                                  "np.broadcast_to(x, (2, 4, 6))"])  # fmt: skip
def test_any_strides(view: str) -> None:
    x = np.arange(24.0).reshape(4, 6)
    v: Any = np.asarray(eval(view))
    t = ons.from_dlpack(v)
    y = np.from_dlpack(t)
    assert np.array_equal(y, v) and y.shape == t.shape
    assert y.strides == v.strides or v.size == 0
    assert y.flags.writeable == v.flags.writeable
    copy = np.from_dlpack(t, copy=True)
    assert np.array_equal(copy, v) and copy.flags.c_contiguous and copy.flags.writeable
    assert not np.shares_memory(copy, x)


def test_numpy_copies() -> None:
    x, t = tensor(3, 4)
    y = np.from_dlpack(t, copy=True)
    assert y.ctypes.data % 64 == 0
    x[0, 0] = 99
    assert y[0, 0] == 0
    t = ons.from_dlpack(read_only(np.ones(3)))
    assert not np.from_dlpack(t).flags.writeable
    assert np.from_dlpack(t, copy=True).flags.writeable


def test_torch_takes_it_without_a_copy() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    t = ons.from_dlpack(x)
    y = torch.from_dlpack(t)
    assert y.data_ptr() == x.data_ptr() and torch.equal(x, y)
    assert torch.utils.dlpack.from_dlpack(t.__dlpack__()).data_ptr() == x.data_ptr()
    back = ons.from_dlpack(y)
    assert (back.data_ptr, back.shape, back.dtype) == (x.data_ptr(), (2, 3), "float32")
    assert torch.from_dlpack(ons.from_dlpack(x.T[1:])).stride() == (1, 3)
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool, torch.uint16):
        z = torch.zeros(3, dtype=dtype)
        assert torch.from_dlpack(ons.from_dlpack(z)).dtype == dtype
    assert torch.from_dlpack(ons.from_dlpack(torch.zeros(0, 3))).shape == (0, 3)
    assert torch.from_dlpack(ons.from_dlpack(torch.tensor(3.0))).item() == 3


def test_jax_takes_it_without_a_copy(jnp: Any) -> None:
    import jax

    memory = bytearray(4096)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % 64
    x = np.frombuffer(memory, np.float32, 12, begin).reshape(3, 4)  # XLA wants it aligned
    t = ons.from_dlpack(x)
    y = jax.dlpack.from_dlpack(t)
    assert y.unsafe_buffer_pointer() == x.ctypes.data and y.shape == (3, 4)
    assert ons.from_dlpack(y).data_ptr == t.data_ptr
    assert jax.dlpack.from_dlpack(ons.from_dlpack(x.T)).shape == (4, 3)
    # The only capsule that JAX takes cannot say that memory is read-only.
    with pytest.raises(BufferError, match="read-only.*ask for version 1.0, or for a copy"):
        jax.dlpack.from_dlpack(ons.from_dlpack(y))


def test_the_memory_outlives_the_tensor() -> None:
    torch = pytest.importorskip("torch")
    for take in (np.from_dlpack, torch.from_dlpack, np.asarray, memoryview):
        x = np.ones(3, np.float32)
        gone = weakref.ref(x)
        t = ons.from_dlpack(x)
        y = take(t)
        t.release()
        del x, t
        gc.collect()
        assert gone() is not None and float(y[2]) == 1
        del y
        assert gone() is None


# ---- __dlpack__ --------------------------------------------------------------------------------


def test_the_versions() -> None:
    _, t = tensor(3)
    for version in (None, (0, 8), (0, 0)):
        assert isinstance(managed(t.__dlpack__(max_version=version)), Legacy)
    assert isinstance(managed(t.__dlpack__()), Legacy)
    for asked, given in (((1, 0), 0), ((1, 3), 3), ((1, 9), 3), ((2, 0), 3), ((2**70, 0), 3)):
        v = managed(t.__dlpack__(max_version=asked))
        assert isinstance(v, Versioned) and (v.major, v.minor) == (1, given)
    for odd in (1, "1.0", (1,), (1, 0, 0), ("1", "0"), (1.0, 0), [1, 0]):
        with pytest.raises(TypeError, match="max_version must be a tuple of two ints"):
            t.__dlpack__(max_version=odd)
    for odd in ((-1, 0), (1, -1)):
        with pytest.raises(ValueError, match="max_version must not be negative"):
            t.__dlpack__(max_version=odd)


def test_the_flags_are_true() -> None:
    _, t = tensor(3)
    r = ons.from_dlpack(read_only(np.ones(3)))

    def flags(t: ons.Tensor, **options: Any) -> int:
        number: int = managed(t.__dlpack__(max_version=(1, 0), **options)).flags
        return number

    assert flags(t) == flags(t, copy=False) == flags(t, dl_device=CPU) == 0
    assert flags(r) == READ_ONLY
    assert flags(t, copy=True) == flags(r, copy=True) == IS_COPIED
    # A copy that somebody else made is not one that was made here.
    assert flags(ons.from_dlpack(np.from_dlpack(t, copy=True))) == 0
    with pytest.raises(BufferError, match="read-only"):
        r.__dlpack__()
    assert isinstance(managed(r.__dlpack__(copy=True)), Legacy)


def test_what_a_capsule_says() -> None:
    x = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    for v in (x, x[:, 1:, ::-2], x.T):
        t = ons.from_dlpack(v)
        for version in (None, (1, 0)):
            capsule = t.__dlpack__(max_version=version)
            m = managed(capsule)
            strides = tuple(s // 2 for s in v.strides)
            assert m.tensor.described() == (v.ctypes.data, CPU, v.shape, strides)
            assert (m.tensor.dtype.code, m.tensor.dtype.bits, m.tensor.dtype.lanes) == (0, 16, 1)
    m = managed(ons.from_dlpack(np.zeros((2, 0))).__dlpack__())
    assert m.tensor.data is None and m.tensor.described()[2] == (2, 0)
    m = managed(ons.from_dlpack(np.array(3.0)).__dlpack__())
    assert m.tensor.ndim == 0 and not m.tensor.shape and not m.tensor.strides


def test_devices() -> None:
    x, t = tensor(3)
    assert t.__dlpack_device__() == CPU
    assert managed(t.__dlpack__(dl_device=CPU)).tensor.data == x.ctypes.data
    torch = pytest.importorskip("torch")
    assert managed(t.__dlpack__(dl_device=(torch.utils.dlpack.DLDeviceType.kDLCPU, 0)))
    for device in ((2, 0), (1, 1), (13, 0), (99, -1), (2**80, 0)):
        with pytest.raises(BufferError, match="not to dl_device="):
            t.__dlpack__(dl_device=device)
    for odd in (1, "cpu", (1,), (1, 0, 0), ("1", 0)):
        with pytest.raises(TypeError, match="dl_device must be a tuple of two ints"):
            t.__dlpack__(dl_device=odd)


def test_the_host_has_no_streams() -> None:
    _, t = tensor(3)
    for fine in (None, -1):
        t.__dlpack__(stream=fine)
    for stream in (0, 1, 2, 12345, -2, 2**70, "fast", object(), True):
        with pytest.raises(ValueError, match="the host has no streams; give None"):
            t.__dlpack__(stream=stream)


def test_odd_calls() -> None:
    _, t = tensor(3)
    for copy in (1, 0, "no"):
        with pytest.raises(TypeError, match="copy must be True, False or None"):
            t.__dlpack__(copy=copy)
    with pytest.raises(TypeError):
        t.__dlpack__(None)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        t.__dlpack__(device=CPU)  # type: ignore[call-arg]
    t.release()
    uses = [t.__dlpack__, t.__dlpack_device__, t.__arrow_c_device_array__, lambda: len(t),
            lambda: t.ndim, lambda: t.size]  # fmt: skip
    for use in uses:
        with pytest.raises(ValueError, match="has been released"):
            use()
    with pytest.raises(BufferError, match="has been released"):
        memoryview(t)
    with pytest.raises(ValueError, match="has been released"):
        table_of(ons.Tensor).borrowed(t)


def test_a_tensor_of_autograd_stays_in_its_library() -> None:
    torch = pytest.importorskip("torch")
    t = ons.from_dlpack(torch.ones(3, requires_grad=True))
    table = table_of(ons.Tensor)
    uses = [t.__dlpack__, lambda: t.__dlpack__(copy=True), lambda: t.__dlpack__(max_version=(1, 0)),
            lambda: table.borrowed(t), lambda: table.owned(t), t.__arrow_c_device_array__,
            lambda: memoryview(t), lambda: torch.from_dlpack(t)]  # fmt: skip
    for use in uses:
        with pytest.raises(BufferError, match="requires grad"):
            use()


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_every_capsule_is_deleted_once(producer: Any, version: Any) -> None:
    torch = pytest.importorskip("torch")
    memory = np.ones(4, np.float32)
    host = producer.make_type(0)(memory.ctypes.data, (4,))
    t = ons.from_dlpack(host)
    capsules = [t.__dlpack__(max_version=version) for _ in range(3)]
    arrays = [
        torch.utils.dlpack.from_dlpack(capsules[0]),
        torch.utils.dlpack.from_dlpack(capsules[1]),
    ]
    with pytest.raises(RuntimeError, match="consumed only once"):
        torch.utils.dlpack.from_dlpack(capsules[0])
    t.release()
    capsules.clear()
    arrays.pop()
    assert producer.counts()["deleted"] == 0
    arrays.clear()
    assert producer.counts()["deleted"] == producer.counts()["handed_out"] == 1


def test_a_view_is_deleted_without_the_gil_in_any_thread(producer: Any) -> None:
    t = ons.from_dlpack(producer.make_type(0)(0x1000, (4,)))
    view = table_of(ons.Tensor).owned(t)
    del t
    assert producer.counts()["deleted"] == 0
    delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(  # which gives the GIL up
        ctypes.cast(view.deleter, ctypes.c_void_p).value or 0
    )
    thread = threading.Thread(target=delete, args=(ctypes.addressof(view),))
    thread.start()
    thread.join()
    assert producer.counts()["deleted"] == 1


# ---- the exchange table ------------------------------------------------------------------------


def test_the_table_is_on_the_type() -> None:
    table = table_of(ons.Tensor)
    assert (table.major, table.minor, table.previous) == (1, 3, None)
    assert all((table.allocator, table.from_object, table.to_object, table.borrow,
                table.work_stream))  # fmt: skip
    assert ons.Tensor.__dlpack_c_exchange_api__ is ons.Tensor.__dlpack_c_exchange_api__


def test_the_table_lends_and_gives() -> None:
    table = table_of(ons.Tensor)
    x = np.arange(12.0).reshape(3, 4)[:, 1:]
    t = ons.from_dlpack(x)
    assert table.borrowed(t) == (x.ctypes.data, CPU, (3, 3), (4, 1))
    assert table.stream(CPU) == 0
    before = sys.getrefcount(t)
    view = table.owned(t)
    assert view.tensor.described() == table.borrowed(t) and view.flags == 0
    u = table.object(view)
    assert isinstance(u, ons.Tensor) and u.data_ptr == t.data_ptr and sys.getrefcount(u) == 2
    assert sys.getrefcount(t) == before
    gone = weakref.ref(x.base)
    del x
    t.release()
    gc.collect()
    assert np.asarray(u).tolist() == [[1, 2, 3], [5, 6, 7], [9, 10, 11]] and gone() is not None
    u.release()
    assert gone() is None
    assert table.owned(ons.from_dlpack(read_only(np.ones(3)))).flags == READ_ONLY


def test_the_table_refuses_what_it_cannot_take(producer: Any) -> None:
    table = table_of(ons.Tensor)
    view = table.owned(ons.from_dlpack(producer.make_type(0)(0x1000, (4,))))
    view.major = 2
    with pytest.raises(ons.UnsupportedError, match="version 2"):
        table.object(view)
    view.major = 1
    assert producer.counts()["deleted"] == 0, "it is its caller's still"
    view.deleter(ctypes.addressof(view))
    assert producer.counts()["deleted"] == 1


def test_the_table_allocates() -> None:
    table = table_of(ons.Tensor)
    for shape in ((3, 4), (), (0, 5), (7,)):
        view = table.allocated(CPU, (2, 32, 1), *shape)
        assert view.tensor.described()[1:3] == (CPU, shape) and view.flags == 0
        assert (view.tensor.data or 0) % 64 == 0 and bool(view.tensor.data) == (0 not in shape)
        t = table.object(view)
        np.from_dlpack(t)[...] = 3
        assert (np.asarray(t) == 3).all() and not t.read_only
    for device, dtype, shape, kind in (
        (CPU, (2, 32, 1), (-1,), "ValueError"), (CPU, (2, 32, 1), (2**62, 2**62), "ValueError"),
        ((8, 0), (2, 32, 1), (3,), "BufferError"), (CPU, (2, 32, 1), (2**57,), "MemoryError"),
    ):  # fmt: skip
        said = table.allocated(device, dtype, *shape)
        assert said[0] == kind and said[1], said


# ---- buffers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4",
                                   "f8", "c8", "c16"])  # fmt: skip
def test_buffers(dtype: str) -> None:
    for x in (np.ones((2, 3), dtype), np.ones((4, 6), dtype)[::-2, ::3], np.ones((), dtype),
              np.ones((2, 0), dtype)):  # fmt: skip
        t = ons.from_dlpack(x)
        y = np.asarray(t)
        assert (y.dtype, y.shape) == (x.dtype, x.shape)
        assert y.strides == x.strides or x.size == 0
        assert np.array_equal(x, y) and np.shares_memory(x, y) == (x.size > 0)
        view = memoryview(t)
        assert (view.nbytes, view.itemsize, view.readonly) == (t.nbytes, x.itemsize, False)
        assert view.c_contiguous == x.flags.c_contiguous


def test_what_a_buffer_is_asked_for() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    t: Any = ons.from_dlpack(x)
    assert bytes(t) == x.tobytes() and (ctypes.c_float * 6).from_buffer(t)[5] == 5
    r = ons.from_dlpack(read_only(x.copy()))
    assert memoryview(r).readonly
    simple, writable, shape, strides = 0, 1, 8, 0x18
    rows, columns, either = 0x20 | strides, 0x40 | strides, 0x80 | strides
    gaps, turned = ons.from_dlpack(x[:, :2]), ons.from_dlpack(x.T)
    for y, fine, refused in (
        (t, (simple, writable, shape, strides, rows, either), (columns,)),
        (r, (simple, shape, strides, rows), (writable, writable | strides, columns)),
        (gaps, (strides,), (simple, shape, rows, columns, either)),
        (turned, (strides, columns, either), (simple, shape, rows)),
    ):
        for flags in (*fine, *refused):
            assert buffer_is_given(y, flags) == (flags in fine), (y, flags)


def buffer_is_given(x: Any, flags: int) -> bool:
    view = (ctypes.c_char * 96)()
    try:
        if ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(x), view, flags):
            raise AssertionError
    except BufferError as error:
        assert "read-only has no writable" in str(error) or "no contiguous" in str(error)
        return False
    ctypes.pythonapi.PyBuffer_Release(view)
    return True


def test_elements_without_a_letter() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float8_e5m2):
        with pytest.raises(BufferError, match="this dtype has no buffer"):
            memoryview(ons.from_dlpack(torch.ones(3, dtype=dtype)))


def test_no_interface_for_a_gpu() -> None:
    t = tensor(3)[1]
    assert not hasattr(t, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="outside of a CUDA GPU's memory.*__dlpack__"):
        t.__cuda_array_interface__  # noqa: B018


# ---- Arrow -------------------------------------------------------------------------------------


class ArrowArray:
    """What a Tensor hands over, as an Arrow array of some library."""

    def __init__(self, t: ons.Tensor) -> None:
        self.t = t

    def __arrow_c_device_array__(self) -> Any:
        return self.t.__arrow_c_device_array__()


@pytest.mark.parametrize(
    "dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
)
def test_arrow_there_and_back(dtype: str, mod: ons.Module) -> None:
    x = np.arange(5, dtype=dtype)
    gone = weakref.ref(x)
    t = ons.from_dlpack(x)
    back = ons.from_dlpack(ArrowArray(t))
    assert (back.data_ptr, back.shape, back.dtype) == (t.data_ptr, (5,), t.dtype)
    assert back.read_only and back.device == "cpu"
    if dtype == "f4":
        out = np.zeros(5, np.float32)
        mod.scale[1, 5](2.0, ArrowArray(t), out, 5)
        assert out.tolist() == [0, 2, 4, 6, 8]
    t.release()
    del x
    assert gone() is not None
    back.release()
    assert gone() is None


def test_arrow_arrays_that_nobody_takes() -> None:
    x = np.ones(3)
    gone = weakref.ref(x)
    pair = ons.from_dlpack(x).__arrow_c_device_array__()
    del x
    assert gone() is not None
    del pair
    assert gone() is None
    _, t = tensor(3)
    assert t.__arrow_c_device_array__(None) and t.__arrow_c_device_array__(requested_schema=None)
    assert t.__arrow_c_device_array__(later=None)
    with pytest.raises(NotImplementedError, match="'later' is not known"):
        t.__arrow_c_device_array__(later=1)


def test_what_arrow_has_not() -> None:
    for x, why in ((np.ones((2, 3)), "one-dim"), (np.ones(()), "one-dim"), (np.ones(6)[::2], "gaps"),
                   (np.ones(3, "?"), "dtype"), (np.ones(3, "c8"), "dtype")):  # fmt: skip
        with pytest.raises(BufferError, match=why):
            ons.from_dlpack(x).__arrow_c_device_array__()
    assert ons.from_dlpack(np.ones(2)[::2]).__arrow_c_device_array__()


# ---- as a container -----------------------------------------------------------------------------


def test_more_bytes_than_can_be_counted() -> None:
    torch = pytest.importorskip("torch")
    for shape in ((2**61,), (2**31, 2**31)):
        t = ons.from_dlpack(torch.zeros(()).expand(shape))
        assert t.size == 2 ** (61 if len(shape) == 1 else 62)
        with pytest.raises(OverflowError):
            t.nbytes
        with pytest.raises(BufferError, match="more bytes than can be counted"):
            memoryview(t)
    t = ons.from_dlpack(torch.zeros(()).expand(2**31, 0, 2**31, 2**31))
    assert t.size == t.nbytes == memoryview(t).nbytes == 0


def test_what_it_tells() -> None:
    _, t = tensor(2, 3)
    assert (len(t), t.ndim, t.size, t.nbytes) == (2, 2, 6, 24)
    t = ons.from_dlpack(np.array(1.0))
    assert (t.ndim, t.size) == (0, 1)
    with pytest.raises(TypeError, match="no len"):
        len(t)
    assert len(ons.from_dlpack(np.ones((0, 3)))) == 0


def test_nothing_leaks() -> None:
    x, t = tensor(4)
    table = table_of(ons.Tensor)
    before = sys.getrefcount(x), sys.getrefcount(t)
    for _ in range(100):
        np.from_dlpack(t)
        np.from_dlpack(t, copy=True)
        np.asarray(t)
        t.__dlpack__()
        t.__arrow_c_device_array__()
        table.borrowed(t)
        table.object(table.owned(t))
        with pytest.raises(BufferError):
            t.__dlpack__(dl_device=(2, 0))
    assert (sys.getrefcount(x), sys.getrefcount(t)) == before
    t.release()
    del t
    assert sys.getrefcount(x) == 2


def test_threads() -> None:
    """Exports while the tensor is released: an error, or the memory."""
    for _ in range(50):
        x, t = tensor(64)
        seen: list[float] = []

        def use(t: ons.Tensor = t, seen: list[float] = seen) -> None:
            for _ in range(20):
                try:
                    seen.append(float(np.from_dlpack(t, copy=True)[5]))
                except (ValueError, BufferError):
                    return

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        t.release()
        for thread in threads:
            thread.join()
        assert set(seen) <= {5.0}
