"""A consumer of DLPack in Python: capsules, and a type's exchange table, by ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

READ_ONLY, IS_COPIED = 1, 2


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int32)]


class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]

    def described(self) -> tuple[Any, ...]:
        """(address, device, shape, strides)"""
        device = self.device.type, self.device.id
        shape = tuple(self.shape[i] for i in range(self.ndim))
        assert self.byte_offset == 0, "many do not look for it"
        return self.data, device, shape, tuple(self.strides[i] for i in range(self.ndim))


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


class Legacy(ctypes.Structure):
    _fields_ = [
        ("tensor", DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype = ctypes.c_char_p
_name.argtypes = [ctypes.py_object]


def managed(capsule: Any) -> Any:
    """What is in an unused capsule, a Versioned or a Legacy."""
    name = _name(capsule)
    kind = {b"dltensor_versioned": Versioned, b"dltensor": Legacy}[name]
    result = kind.from_address(_pointer(capsule, name))
    result.capsule = capsule  # whose it stays
    return result


SET_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)


class Table(ctypes.Structure):
    """The functions raise what the table's own raise."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocator", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(DLTensor),
                                        ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
                                        SET_ERROR)),
        ("from_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object,
                                          ctypes.POINTER(ctypes.c_void_p))),
        ("to_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p,
                                        ctypes.POINTER(ctypes.py_object))),
        ("borrow", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))),
        ("work_stream", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32,
                                          ctypes.POINTER(ctypes.c_void_p))),
    ]  # fmt: skip

    def stream(self, device: tuple[int, int]) -> int:
        out = ctypes.c_void_p(77)
        assert self.work_stream(*device, ctypes.byref(out)) == 0
        return out.value or 0

    def borrowed(self, x: Any) -> tuple[Any, ...]:
        out = DLTensor()
        assert self.borrow(x, ctypes.byref(out)) == 0
        return out.described()

    def owned(self, x: Any) -> Any:
        out = ctypes.c_void_p()
        assert self.from_object(x, ctypes.byref(out)) == 0
        assert out.value
        return Versioned.from_address(out.value)

    def object(self, tensor: Any) -> Any:
        out = ctypes.py_object()
        assert self.to_object(ctypes.addressof(tensor), ctypes.byref(out)) == 0
        result = out.value
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(result))  # `out` took one more
        return result

    def allocated(self, device: tuple[int, int], dtype: tuple[int, int, int], *shape: int) -> Any:
        """The managed tensor, or what the allocator says is wrong."""
        extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        prototype = DLTensor(device=Device(*device), ndim=len(shape), dtype=DType(*dtype),
                             shape=extents)  # fmt: skip
        said: list[tuple[str, str]] = []
        out = ctypes.c_void_p()
        set_error = SET_ERROR(lambda _, kind, text: said.append((kind.decode(), text.decode())))
        status = self.allocator(ctypes.byref(prototype), ctypes.byref(out), None, set_error)
        assert (status == 0) == (not said)
        return said[0] if said else Versioned.from_address(out.value or 0)


def table_of(kind: type[Any]) -> Table:
    capsule = kind.__dlpack_c_exchange_api__
    return Table.from_address(_pointer(capsule, b"dlpack_exchange_api"))
