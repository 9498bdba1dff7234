"""The simulated GPU, as a program sees it that is not onstream: a framework, or its user."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
BYTES = 16  # of every array
FULL = (1 << 64) - 1
OWN_EVENTS, LENT_EVENTS = 5, 8  # of each context: used again at once; an array's in this program

HOW_TO_BUILD = """\
The simulated GPU is part of the source tree: cmake --preset dev && cmake --build --preset dev.
ONS_TEST_SIMGPU_PATH then names it, build/dev/tests/libsimgpu.so."""


class DriverError(Exception):
    """A call of the program's own failed: the program is wrong, or its capture was lost."""


class _Report(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("allocation", ctypes.c_uint32),
        ("pointer", ctypes.c_void_p),
        ("first", ctypes.c_uint32),
        ("second", ctypes.c_uint32),
        ("first_stream", ctypes.c_void_p),
        ("second_stream", ctypes.c_void_p),
        ("first_is_write", ctypes.c_int32),
        ("second_is_write", ctypes.c_int32),
    ]


class RecordHead(ctypes.Structure):
    """How a sim_record begins."""

    _fields_ = [
        ("function", ctypes.c_char_p),
        ("result", ctypes.c_int),
        ("thread", ctypes.c_uint64),
        ("current_context", ctypes.c_void_p),
        ("mode", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("stream_context", ctypes.c_void_p),
        ("handle", ctypes.c_void_p),
    ]


class _Live(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("primary_retains", "libraries", "modules", "events", "user_objects")
    ]


def mix(state: int, value: int) -> int:
    """sim_mix."""
    mixed = ((state ^ value) + 0x9E3779B97F4A7C15 + (state << 6)) & FULL
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & FULL
    return mixed ^ (mixed >> 27)


@dataclass(frozen=True)
class Stream:
    """A stream by the handle that libraries tell; 0 and 1 are the same one."""

    name: str
    handle: int
    device: int
    context: int
    blocking: bool

    @property
    def identity(self) -> tuple[int, int]:
        return self.context, 0 if self.handle == 1 else self.handle

    @property
    def is_legacy(self) -> bool:
        return self.handle <= 1

    @property
    def is_special(self) -> bool:
        return self.handle <= 2

    @property
    def is_per_thread(self) -> bool:
        return self.handle == 2


# name -> (restype, argtypes)
_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_UINT, _U64, _TEXT = ctypes.c_uint, ctypes.c_uint64, ctypes.c_char_p
_CONTROLS = {
    "sim_schedule_begin": (None, [_U64]),
    "sim_schedule_end": (_SIZE, []),
    "sim_reset": (None, []),
    "sim_declare_kernel": (None, [_TEXT, _TEXT]),
    "sim_device_alloc": (_POINTER, [_INT, _SIZE]),
    "sim_device_free": (None, [_POINTER]),
    "sim_pinned_alloc": (_POINTER, [_SIZE]),
    "sim_host_access": (None, [_POINTER, _SIZE, _INT]),
    "sim_host_send": (None, [_U64]),
    "sim_host_receive": (None, [_U64]),
    "sim_sync_count": (_U64, [_INT]),
    "sim_report_count": (_SIZE, []),
    "sim_report_at": (ctypes.POINTER(_Report), [_SIZE]),
    "sim_report_text": (_SIZE, [_SIZE, _TEXT, _SIZE]),
    "sim_report_kind_name": (_TEXT, [_INT]),
    "sim_name": (None, [_POINTER, _TEXT]),
    "sim_operation_count": (_SIZE, []),
    "sim_run_all": (_SIZE, []),
    "sim_step": (_SIZE, [_SIZE]),
    "sim_set_device_count": (None, [_INT]),
    "sim_last": (ctypes.POINTER(RecordHead), [_TEXT]),
    "sim_record_count": (_SIZE, []),
    "sim_record_at": (ctypes.POINTER(RecordHead), [_SIZE]),
    "sim_call_count": (_SIZE, [_TEXT]),
    "sim_clear_records": (None, []),
    "sim_get_live": (_Live, []),
    "sim_primary_context": (_POINTER, [_INT]),
    "sim_context_create": (_POINTER, [_INT]),
    "sim_set_current": (None, [_POINTER]),
    "sim_get_current": (_POINTER, []),
    "sim_stream_create": (_POINTER, [_POINTER, _INT]),
    "sim_capture_status": (_INT, [_POINTER]),
}
_CALLS = {
    "cuInit": [_UINT],
    "cuMemsetD32Async": [_POINTER, _UINT, _SIZE, _POINTER],
    "cuMemAllocAsync": [_POINTER, _SIZE, _POINTER],
    "cuMemFreeAsync": [_POINTER, _POINTER],
    "cuEventCreate": [_POINTER, _UINT],
    "cuEventRecord": [_POINTER, _POINTER],
    "cuStreamWaitEvent": [_POINTER, _POINTER, _UINT],
    "cuStreamSynchronize": [_POINTER],
    "cuCtxSynchronize": [],
    "cuLaunchKernel": [_POINTER, *[_UINT] * 7, _POINTER, _POINTER, _POINTER],
    "cuStreamBeginCapture_v2": [_POINTER, _INT],
    "cuStreamEndCapture": [_POINTER, _POINTER],
    "cuGraphCreate": [_POINTER, _UINT],
    "cuGraphDestroy": [_POINTER],
    "cuGraphInstantiateWithFlags": [_POINTER, _POINTER, ctypes.c_ulonglong],
    "cuGraphLaunch": [_POINTER, _POINTER],
    "cuGraphExecDestroy": [_POINTER],
}


class Driver:
    """Controls and driver calls. Calls on streams make the stream's context current, as every
    library does for itself, and put back what was."""

    DEVICES = 2

    def __init__(self, path: str) -> None:
        lib = ctypes.CDLL(path)
        for name, (result, arguments) in _CONTROLS.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        for name, arguments in _CALLS.items():
            getattr(lib, name).argtypes = arguments
        self.lib = lib
        self.primary: list[int] = [lib.sim_primary_context(i) for i in range(self.DEVICES)]
        self.second: int = lib.sim_context_create(0)
        self.kernels: dict[str, int] = {}  # handles that work in every context
        self._events: dict[int, list[int]] = {}
        self._lent = 0  # of the program's events, to arrays that keep theirs

    @classmethod
    def load(cls) -> Driver:
        path = os.environ.get("ONS_TEST_SIMGPU_PATH")
        if not path or not Path(path).exists():
            raise SystemExit(f"ONS_TEST_SIMGPU_PATH names no simulated GPU.\n{HOW_TO_BUILD}")
        os.environ["ONSTREAM_CUDA_DRIVER"] = path
        os.environ["SIMGPU_DEVICES"] = str(cls.DEVICES)
        return cls(path)

    # ---- calls -----------------------------------------------------------------------------

    def call(self, name: str, *args: object) -> None:
        code = getattr(self.lib, name)(*args)
        if code:
            raise DriverError(f"{name} returned {code}")

    def call_on(self, context: int, name: str, *args: object) -> None:
        lib = self.lib
        before = lib.sim_get_current()
        lib.sim_set_current(context)
        code = getattr(lib, name)(*args)
        lib.sim_set_current(before)
        if code:
            raise DriverError(f"{name} returned {code}")

    def make_events(self) -> None:
        """A few for each context, made while nothing forbids that."""
        for context in (*self.primary, self.second):
            events = self._events.setdefault(context, [])
            for _ in range(OWN_EVENTS + LENT_EVENTS):
                event = ctypes.c_void_p()
                self.call_on(context, "cuEventCreate", ctypes.byref(event), 2)
                events.append(event.value or 0)

    def event(self, context: int, index: int = 0) -> int:
        return self._events[context][index]

    def lend_event(self, context: int) -> int:
        """For the rest of the program; 0: there is none left."""
        if self._lent == LENT_EVENTS:
            return 0
        self._lent += 1
        return self._events[context][OWN_EVENTS + self._lent - 1]

    def take_events_back(self) -> None:
        self._lent = 0

    def record(self, event: int, stream: Stream) -> None:
        self.call_on(stream.context, "cuEventRecord", event, stream.handle)

    def wait(self, stream: Stream, event: int) -> None:
        self.call_on(stream.context, "cuStreamWaitEvent", stream.handle, event, 0)

    def join(self, waiting: Stream, signalling: Stream) -> None:
        """Later work on one stream waits for what the other holds now."""
        if waiting.identity == signalling.identity:
            return
        event = self.event(signalling.context)
        self.record(event, signalling)
        self.wait(waiting, event)

    def fill(self, pointer: int, value: int, stream: Stream) -> None:
        self.call_on(stream.context, "cuMemsetD32Async", pointer, value, BYTES // 4, stream.handle)

    def launch(self, kernel: str, pointer: int, stream: Stream) -> None:
        """A kernel of one pointer, by a library that is not onstream."""
        value = ctypes.c_uint64(pointer)
        values = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        self.call_on(
            stream.context, "cuLaunchKernel", self.kernels[kernel], 1, 1, 1, 1, 1, 1, 0,
            stream.handle, values, None,
        )  # fmt: skip

    def allocate(self, stream: Stream) -> int:
        pointer = ctypes.c_uint64()
        self.call_on(stream.context, "cuMemAllocAsync", ctypes.byref(pointer), BYTES, stream.handle)
        return pointer.value

    def synchronise(self, stream: Stream) -> None:
        self.call_on(stream.context, "cuStreamSynchronize", stream.handle)

    def synchronise_all(self) -> None:
        for context in (*self.primary, self.second):
            self.call_on(context, "cuCtxSynchronize")

    def begin_capture(self, stream: Stream, mode: int) -> None:
        self.call_on(stream.context, "cuStreamBeginCapture_v2", stream.handle, mode)

    def is_capture_alive(self, stream: Stream) -> bool:
        lib = self.lib
        before = lib.sim_get_current()
        lib.sim_set_current(stream.context)
        status = lib.sim_capture_status(stream.handle)
        lib.sim_set_current(before)
        return bool(status == 1)

    def end_capture(self, stream: Stream) -> int:
        graph = ctypes.c_void_p()
        self.call_on(stream.context, "cuStreamEndCapture", stream.handle, ctypes.byref(graph))
        return graph.value or 0

    def instantiate(self, graph: int) -> int:
        executable = ctypes.c_void_p()
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        return executable.value or 0

    def create_graph(self) -> int:
        graph = ctypes.c_void_p()
        self.call("cuGraphCreate", ctypes.byref(graph), 0)
        return graph.value or 0

    # ---- what happened ---------------------------------------------------------------------

    def calls(self, name: bytes) -> int:
        return int(self.lib.sim_call_count(name))

    def record_words(self) -> str:
        """The driver calls since the records were cleared."""
        records = [self.lib.sim_record_at(i).contents for i in range(self.lib.sim_record_count())]
        return "\n".join(
            f"  {r.function.decode()}({r.stream or 0:#x}) -> {r.result}, mode {r.mode}"
            for r in records
        )

    def launched_on(self) -> int | None:
        """The stream of the latest launch on the record."""
        record = self.lib.sim_last(b"cuLaunchKernelEx")
        return record.contents.stream or 0 if record else None

    def report(self) -> tuple[str, str] | None:
        """The kind of the first report, and its words."""
        lib = self.lib
        if not lib.sim_report_count():
            return None
        length = lib.sim_report_text(0, None, 0)
        buffer = ctypes.create_string_buffer(length + 1)
        lib.sim_report_text(0, buffer, length + 1)
        kind = lib.sim_report_kind_name(lib.sim_report_at(0).contents.kind)
        return kind.decode(), buffer.value.decode()
