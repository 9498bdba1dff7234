"""Stand-ins for arrays of libraries that need a GPU, or are not installed.

Each has the real class's name and module, which is what onstream goes by, and its protocols. Where
that was read is said with each.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import Any

from python_producers import DLPackProducer


def passes_for(cls: type, module: str, name: str) -> Any:
    return type(name, (cls,), {"__module__": module})


class WithInterface:
    """__cuda_array_interface__ of four floats at an address."""

    def __init__(self, address: int, stream: Any = None, version: int = 3) -> None:
        self.interface = {
            "shape": (4,), "strides": (4,), "typestr": "<f4", "data": (address, False),
            "version": version,
        }  # fmt: skip
        if version >= 3:
            self.interface["stream"] = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.interface


# numba.cuda.cudadrv.devicearray of numba 0.68.1 and numba-cuda 0.30.4: version 3, and no DLPack;
# 'stream' is None unless the array is bound to a stream that is not the default one.
DeviceNDArrayBase = passes_for(WithInterface, "numba.cuda.cudadrv.devicearray", "DeviceNDArrayBase")
DeviceNDArray = passes_for(DeviceNDArrayBase, "numba.cuda.cudadrv.devicearray", "DeviceNDArray")

# pycuda/gpuarray.py, commit 00a0d1b: version 3, 'stream' always None, and no DLPack; what is
# given no stream runs on the legacy one.
GPUArray = passes_for(WithInterface, "pycuda.gpuarray", "GPUArray")


class _WarpDevice:
    def __init__(self, stream: Any) -> None:
        self.stream = stream


class _Warp(DLPackProducer):
    """warp/_src/types.py of Warp 1.19: the interface has version 2, without a stream; on the CPU
    it raises AttributeError; __dlpack__ takes stream only; array.device.stream is the current
    stream of the device, with __cuda_stream__."""

    def __init__(self, producer: Any, tensor: Any, stream: Any = None) -> None:
        super().__init__(producer, tensor, versioned=False)
        self.device = _WarpDevice(stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.tensor.device_type != 2:
            raise AttributeError("__cuda_array_interface__ is not supported")
        return WithInterface(self.tensor.data, version=2).interface

    def __dlpack__(self, stream: Any = None) -> Any:
        return super().__dlpack__(stream=stream)


WarpArray = passes_for(_Warp, "warp._src.types", "array")


class _Buffer(DLPackProducer):
    """jaxlib/ffi.cc: __dlpack__ looks past the stream, knows max_version and gives no strides; the
    interface has version 2, without a stream."""

    def __init__(self, producer: Any, tensor: Any) -> None:
        super().__init__(producer, tensor)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return WithInterface(self.tensor.data, version=2).interface


# As jax.experimental.buffer_callback of JAX 0.10.2 names it.
JaxBuffer = passes_for(_Buffer, "jax.experimental.buffer_callback", "Buffer")

# jaxlib: an array is immutable; its capsules have no version and cannot say so.
ArrayImpl = passes_for(DLPackProducer, "jaxlib._jax", "ArrayImpl")

# cuda/core/_memory/_buffer.pyx: bytes; looks past the stream that it is asked with.
CoreBuffer = passes_for(DLPackProducer, "cuda.core._memory._buffer", "Buffer")


def strided_memory_view(producer: Any, slot: int = 3) -> Any:
    """cuda/core/_memoryview.pyx: an exchange table whose stream query succeeds and always gives
    0, and a __dlpack__ that looks past the stream."""
    table = producer.make_type(slot)
    producer.set_stream(slot, 0, 0)
    view = passes_for(DLPackProducer, "cuda.core._memoryview", "StridedMemoryView")
    view.__dlpack_c_exchange_api__ = table.__dlpack_c_exchange_api__
    return view


def paddle_tensor(producer: Any, slot: int, names: tuple[str, ...]) -> Any:
    """Paddle 3.3.1 has stop_gradient, and its table under both names; before the attribute got its final name, under
    the older one alone."""
    with_table = producer.make_type(slot)
    without = producer.make_type(slot, capsule=False)
    table = {name: with_table.__dlpack_c_exchange_api__ for name in names}
    own = {"__module__": "paddle", "table_owner": with_table, "stop_gradient": True}
    return type("Tensor", (without,), {**own, **table})


def capsule(address: int, name: bytes) -> Any:
    """A PyCapsule; the name must live as long."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address, name, None)


ENTRY = ctypes.CFUNCTYPE(ctypes.c_ssize_t)


class CuPy:
    """The modules of CuPy 14.2 that are looked at: cupy.cuda.stream has a Cython entry
    for the current stream of the current device, get_current_stream one for any."""

    name = b"intptr_t (void)"

    def __init__(self, monkeypatch: Any, streams: dict[int, int]) -> None:
        self.streams = streams
        self.entry_calls = 0
        self._entry = ENTRY(self._current)
        address = ctypes.cast(self._entry, ctypes.c_void_p).value
        assert address is not None

        cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
        stream, runtime = ModuleType("cupy.cuda.stream"), ModuleType("cupy.cuda.runtime")
        stream.__pyx_capi__ = {  # type: ignore[attr-defined]
            "get_current_stream_ptr": capsule(address, self.name)
        }
        runtime.getDeviceCount = lambda: len(streams)  # type: ignore[attr-defined]
        cuda.get_current_stream = lambda d: ctypes_stream(streams[d])  # type: ignore[attr-defined]
        cuda.stream, cuda.runtime, cupy.cuda = stream, runtime, cuda  # type: ignore[attr-defined]
        for module in (cupy, cuda, stream):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(sys.modules, "cupy_backends.cuda.api.runtime", runtime)

    def _current(self) -> int:
        self.entry_calls += 1
        return self.streams[0]

    def array_type(self) -> Any:
        """Of this moment: what a type is, is found out once."""
        return passes_for(_CuPyArray, "cupy", "ndarray")


def ctypes_stream(handle: int) -> Any:
    class Stream:
        ptr = handle

    return Stream()


class _CuPyArray(DLPackProducer, WithInterface):
    """cupy/_core/core.pyx: both protocols; .device.id."""

    def __init__(self, producer: Any, tensor: Any, stream: int = 0) -> None:
        DLPackProducer.__init__(self, producer, tensor)
        self.interface = WithInterface(tensor.data, stream or 1).interface
        self.device = ModuleType("device")
        self.device.id = tensor.device_id  # type: ignore[attr-defined]


# ---- Arrow's C device interface, by its specification -------------------------------------------


class ArrowSchema(ctypes.Structure):
    pass


class ArrowArray(ctypes.Structure):
    pass


SCHEMA_RELEASE = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowSchema))
ARRAY_RELEASE = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArray))

ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64), ("n_children", ctypes.c_int64), ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p), ("release", SCHEMA_RELEASE), ("private", ctypes.c_void_p),
]  # fmt: skip
ArrowArray._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)), ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p), ("release", ARRAY_RELEASE), ("private", ctypes.c_void_p),
]  # fmt: skip


class ArrowDeviceArray(ctypes.Structure):
    _fields_ = [
        ("array", ArrowArray), ("device_id", ctypes.c_int64), ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.POINTER(ctypes.c_void_p)), ("reserved", ctypes.c_int64 * 3),
    ]  # fmt: skip


class Arrow:
    """An Arrow array, with every field for the setting. `released` counts; the capsules release
    nothing, so that what is not released is seen."""

    schema_name, array_name = b"arrow_schema", b"arrow_device_array"

    def __init__(
        self,
        address: int,
        length: int = 4,
        *,
        format: bytes = b"f",
        offset: int = 0,
        null_count: int = 0,
        validity: int = 0,
        device: tuple[int, int] = (2, 0),
        event: int | None = None,
        n_buffers: int = 2,
        dictionary: int = 0,
    ) -> None:
        self.released = self.asked = 0
        self._buffers = (ctypes.c_void_p * 2)(validity, address)
        self._event = ctypes.c_void_p(event)
        self._schema_release = SCHEMA_RELEASE(lambda _: None)
        self._array_release = ARRAY_RELEASE(self._release)
        self.schema = ArrowSchema(
            format=format, release=self._schema_release, dictionary=dictionary or None
        )
        self.array = ArrowDeviceArray(
            array=ArrowArray(
                length=length, null_count=null_count, offset=offset, n_buffers=n_buffers,
                buffers=ctypes.cast(self._buffers, ctypes.POINTER(ctypes.c_void_p)),
            ),
            device_type=device[0], device_id=device[1],
            sync_event=ctypes.pointer(self._event) if event else None,
        )  # fmt: skip

    def _release(self, array: Any) -> None:
        assert array.contents.length == self.array.array.length
        self.released += 1
        array.contents.release = ARRAY_RELEASE(0)

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        self.asked += 1
        self.array.array.release = self._array_release
        return (
            capsule(ctypes.addressof(self.schema), self.schema_name),
            capsule(ctypes.addressof(self.array), self.array_name),
        )
