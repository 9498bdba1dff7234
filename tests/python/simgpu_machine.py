"""The stand-in CUDA driver's controls, and arrays on it."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from python_producers import ArrayInterface, DLPackProducer

import onstream as ons
from onstream.testing.simgpu.driver import RecordHead

CUDA = (2, 0)
GLOBAL = 0

# How a program for another process begins: {here} is the tests' folder, {producer} the file of
# the producers' module.
BEGINNING = """
import importlib.util, sys
sys.path.insert(0, {here!r})
spec = importlib.util.spec_from_file_location("producer", {producer!r})
producer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(producer)
import onstream as ons
from conftest import SOURCE
from simgpu_machine import Arrays, Sim
sim, mod = Sim(), ons.Module(SOURCE)
mod.scale.prepare("cuda:0")
a = Arrays(producer, sim)
"""


class Record(RecordHead):
    _fields_ = [
        ("kernel", ctypes.c_char * 256),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("parameter_count", ctypes.c_uint32),
        ("parameter_sizes", ctypes.c_uint32 * 32),
        ("parameter_offsets", ctypes.c_uint32 * 32),
        ("parameters", ctypes.c_uint8 * 1024),
    ]

    def value(self, index: int) -> int:
        begin = self.parameter_offsets[index]
        raw = bytes(self.parameters[begin : begin + self.parameter_sizes[index]])
        return int.from_bytes(raw, "little")


class Sim:
    """The stand-in's controls."""

    def __init__(self) -> None:
        lib = ctypes.CDLL(os.environ["ONSTREAM_CUDA_DRIVER"])
        for name in ("primary_context", "stream_create", "capture_end", "get_current", "last"):
            getattr(lib, f"sim_{name}").restype = ctypes.c_void_p
        lib.sim_last.restype = ctypes.POINTER(Record)
        lib.sim_record_at.restype = ctypes.POINTER(Record)
        for name in ("record_count", "call_count", "graph_kernel_count"):
            getattr(lib, f"sim_{name}").restype = ctypes.c_size_t
        self.lib = lib
        self.context = lib.sim_primary_context(0)
        lib.sim_set_current(ctypes.c_void_p(self.context))

    def stream(self, non_blocking: bool = True, device: int = 0) -> int:
        context = ctypes.c_void_p(self.lib.sim_primary_context(device))
        handle: int = self.lib.sim_stream_create(context, int(non_blocking))
        return handle

    def launches(self) -> list[Record]:
        count = self.lib.sim_record_count()
        records = [self.lib.sim_record_at(ctypes.c_size_t(i)).contents for i in range(count)]
        return [r for r in records if r.function.startswith(b"cuLaunch")]

    def enqueued(self) -> list[tuple[str, int]]:
        """What was put on streams, in order: ("record" | "wait" | "launch", stream)."""
        verbs = {b"cuEventRecord": "record", b"cuStreamWaitEvent": "wait",
                 b"cuLaunchKernelEx": "launch"}  # fmt: skip
        count = self.lib.sim_record_count()
        records = [self.lib.sim_record_at(ctypes.c_size_t(i)).contents for i in range(count)]
        return [(verbs[r.function], r.stream or 0) for r in records if r.function in verbs]

    def launch(self) -> Record:
        launches = self.launches()
        assert len(launches) == 1, [r.function for r in launches]
        return launches[0]

    def clear(self) -> None:
        self.lib.sim_clear_records()

    def calls(self, name: str) -> int:
        count: int = self.lib.sim_call_count(name.encode())
        return count

    def begin(self, stream: int, mode: int = GLOBAL) -> None:
        self.lib.sim_capture_begin(ctypes.c_void_p(stream), mode)

    def alive(self, stream: int) -> bool:
        status: int = self.lib.sim_capture_status(ctypes.c_void_p(stream))
        return status == 1

    def end(self, stream: int) -> int:
        """Ends the capture; how many kernels are in its graph."""
        graph = self.lib.sim_capture_end(ctypes.c_void_p(stream))
        assert graph, "the capture was lost"
        count: int = self.lib.sim_graph_kernel_count(ctypes.c_void_p(graph))
        self.lib.sim_graph_destroy(ctypes.c_void_p(graph))
        return count

    def complete(self, stream: int) -> None:
        self.lib.sim_complete(ctypes.c_void_p(stream))


class Arrays:
    """Device tensors of the programmable producer, at made-up addresses."""

    def __init__(self, producer: Any, sim: Sim, slot: int = 0, **options: Any) -> None:
        self.producer = producer
        self.slot = slot
        self.stream = sim.stream()
        self.type = producer.make_type(slot, **options)
        self.use(self.stream)

    def use(self, stream: int, fails: int = 0) -> None:
        self.stream = stream
        self.producer.set_stream(self.slot, stream, fails)

    def __call__(self, n: int = 4, device: tuple[int, int] = CUDA, **options: Any) -> Any:
        return self.type(0x10000 + 0x1000 * n, (n,), device=device, **options)


def launch(mod: ons.Module, x: Any, out: Any, *, stream: Any = None) -> Any:
    return mod.scale[3, 32, 0, stream](2.0, x, out, 77)


def joined(stream: int | None, *others: int) -> list[tuple[str, int]]:
    """What a launch on `stream` enqueues when its arrays are on the others, too."""
    own = (stream or 0) if stream != 1 else stream
    before = [step for other in others for step in (("record", other), ("wait", own))]
    after = [("wait", other) for other in others]
    return [*before, ("launch", own), ("record", own), *after]


class TorchStream:
    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


def with_device(producer: Any, tensor: Any, stream: Any, **entries: Any) -> Any:
    """An array interface that also has DLPack's way of naming the device."""

    class Both(ArrayInterface, DLPackProducer):
        def __init__(self) -> None:
            DLPackProducer.__init__(self, producer, tensor)
            self.entries = {
                "version": 3, "typestr": "<f4", "strides": None, "shape": (4,),
                "data": (0x8000, False), "stream": stream, **entries,
            }  # fmt: skip

    return Both()
