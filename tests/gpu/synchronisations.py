"""Counts the host's waits for the GPU, of the whole process, by CUPTI's callbacks.

Function numbers and the layout of the callback data are those of CUPTI's headers
(cupti_driver_cbid.h, cupti_callbacks.h).
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import site
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_DRIVER_API = 1
_ENTER = 0
_WAITS = {
    17: "cuCtxSynchronize",
    800: "cuCtxSynchronize_v2",
    121: "cuEventSynchronize",
    126: "cuStreamSynchronize",
    440: "cuStreamSynchronize_ptsz",
    276: "cuMemcpyHtoD",
    278: "cuMemcpyDtoH",
    245: "cuMemFree",
}


class _CallbackData(ctypes.Structure):
    _fields_ = [("site", ctypes.c_int), ("function", ctypes.c_char_p)]


_CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_CallbackData)
)


def _library() -> ctypes.CDLL:
    folders = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    patterns = ["nvidia/*/lib/libcupti.so*", "nvidia/cu*/lib/libcupti.so*"]
    found = [
        p for f in folders for pattern in patterns for p in glob.glob(os.path.join(f, pattern))
    ]
    found += ["libcupti.so", *glob.glob("/usr/local/cuda*/**/libcupti.so*", recursive=True)]
    for path in found:
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise OSError("no libcupti: it comes with the toolkit and with torch's wheels")


class Counts:
    """All waits, and those inside of `launching` blocks of any thread."""

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.launches: Counter[str] = Counter()
        self._inside = False
        self._on = False

    @contextmanager
    def counting(self) -> Iterator[None]:
        self._on = True
        try:
            yield
        finally:
            self._on = False

    @contextmanager
    def launching(self) -> Iterator[None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def seen(self, function: int) -> None:
        if not self._on:
            return
        self.all[_WAITS[function]] += 1
        if self._inside:
            self.launches[_WAITS[function]] += 1


# One subscription for the life of the process: a thread may be on its way into the callback
# at any time.
_current: Counts | None = None


def _callback(_user: int | None, _domain: int, function: int, data: Any) -> None:
    if _current is not None and data.contents.site == _ENTER:
        _current.seen(function)


_entry = _CALLBACK(_callback)


@functools.cache
def _subscribe() -> None:
    cupti = _library()
    subscriber = ctypes.c_void_p()
    if status := cupti.cuptiSubscribe(ctypes.byref(subscriber), _entry, None):
        raise OSError(f"cuptiSubscribe returned {status}")
    for function in _WAITS:
        if status := cupti.cuptiEnableCallback(1, subscriber, _DRIVER_API, function):
            raise OSError(f"cuptiEnableCallback({function}) returned {status}")


@contextmanager
def counted() -> Iterator[Counts]:
    """Raises OSError where CUPTI is missing or not allowed."""
    global _current
    _subscribe()
    _current = Counts()
    try:
        yield _current
    finally:
        _current = None
