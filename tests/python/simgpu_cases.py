"""The CUDA path on the stand-in driver, run by test_simgpu.py in a process of its own.

Kernels are compiled by the real NVRTC and recorded instead of run (cases 4 and 22 to 31).
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from python_producers import (
    ArrayInterface,
    BrokenProducer,
    DLPackProducer,
    HalfWay,
    OldestProducer,
    OldProducer,
)

import onstream as ons

CUDA = (2, 0)
GLOBAL = 0


class Record(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_char_p),
        ("result", ctypes.c_int),
        ("thread", ctypes.c_uint64),
        ("current_context", ctypes.c_void_p),
        ("mode", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("stream_context", ctypes.c_void_p),
        ("handle", ctypes.c_void_p),
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


@pytest.fixture(scope="session")
def sim_machine() -> Sim:
    return Sim()


@pytest.fixture
def sim(sim_machine: Sim, mod: ons.Module) -> Sim:
    mod.scale.prepare("cuda:0")
    sim_machine.clear()
    return sim_machine


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


@pytest.fixture
def arrays(producer: Any, sim: Sim) -> Arrays:
    return Arrays(producer, sim)


def launch(mod: ons.Module, x: Any, out: Any, *, stream: Any = None) -> Any:
    return mod.scale[3, 32, 0, stream](2.0, x, out, 77)


def joined(stream: int | None, *others: int) -> list[tuple[str, int]]:
    """What a launch on `stream` enqueues when its arrays are on the others, too."""
    own = (stream or 0) if stream != 1 else stream
    before = [step for other in others for step in (("record", other), ("wait", own))]
    after = [("wait", other) for other in others]
    return [*before, ("launch", own), ("record", own), *after]


# ---- where a launch goes -------------------------------------------------------------------------------


def test_the_producers_stream(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    x, out = arrays(4), arrays(5)
    launch(mod, x, out)
    record = sim.launch()
    assert record.stream == arrays.stream
    assert list(record.grid) == [3, 1, 1] and list(record.block) == [32, 1, 1]
    assert record.value(1) == x.data and record.value(2) == out.data and record.value(3) == 77
    assert arrays.producer.counts(0)["queries"] == 1, "one query for both arrays"


def test_the_stream_is_that_of_the_call(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    launcher = mod.scale[1, 1]
    seen = []
    for stream in (sim.stream(), sim.stream(), arrays.stream):
        arrays.use(stream)
        sim.clear()
        launcher(2.0, arrays(), arrays(), 4)
        seen.append(sim.launch().stream == stream)
    assert seen == [True] * 3


def test_nothing_else_is_done(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    launch(mod, arrays(), arrays())
    sim.clear()
    launch(mod, arrays(), arrays())
    for name in ("cuCtxSynchronize", "cuStreamSynchronize", "cuMemAlloc_v2", "cuEventRecord",
                 "cuStreamWaitEvent", "cuEventCreate"):  # fmt: skip
        assert sim.calls(name) == 0, name


def test_views_are_passed_by_value(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    x = arrays.type(0x4000, (3, 5), device=CUDA, strides=(7, 2), byte_offset=64)
    mod.gather[1, 1](x, arrays())
    record = sim.launch()
    raw = record.value(0)
    words = [(raw >> (64 * i)) & (2**64 - 1) for i in range(5)]
    assert words == [0x4040, 3, 5, 7, 2]


def test_the_tensors_device_decides(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    before = sim.lib.sim_get_current()
    arrays.use(sim.stream(device=1))
    launch(mod, arrays(device=(2, 1)), arrays(device=(2, 1)))
    record = sim.launch()
    assert record.stream == arrays.stream
    assert record.stream_context == sim.lib.sim_primary_context(1)
    assert sim.lib.sim_get_current() == before


class Protocol:
    def __init__(self, handle: int) -> None:
        self.pair = (0, handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        return self.pair


class ProtocolAttribute:
    def __init__(self, handle: int) -> None:
        self.__cuda_stream__ = (0, handle)


class TorchStream:
    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


class CupyStream:
    def __init__(self, handle: int) -> None:
        self.ptr = handle


class NumbaStream:
    def __init__(self, handle: int) -> None:
        self.handle = ctypes.c_void_p(handle)


STREAMS = [int, Protocol, ProtocolAttribute, TorchStream, CupyStream, NumbaStream]


@pytest.mark.parametrize("kind", STREAMS)
def test_explicit_streams(mod: ons.Module, sim: Sim, arrays: Arrays, kind: Any) -> None:
    launch(mod, arrays(), arrays(), stream=kind(arrays.stream))
    assert sim.launch().stream == arrays.stream
    for other in (sim.stream(), 0):
        sim.clear()
        launch(mod, arrays(), arrays(), stream=kind(other))
        assert sim.enqueued() == joined(other, arrays.stream)


@pytest.mark.parametrize("kind", STREAMS)
def test_explicit_streams_order_those_who_tell_none(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, kind: Any
) -> None:
    """What comes out of a stream argument is what a producer is asked with."""
    kernel = ons.Module("__global__ void reads(const float* x) {}").reads
    for handle, asked in ((arrays.stream, arrays.stream), (0, 1), (1, 1), (2, 2)):
        sim.clear()
        p = DLPackProducer(producer, arrays())
        kernel[1, 1, 0, kind(handle)](p)
        assert [a["stream"] for a in p.asked] == [asked]
        assert (sim.launch().stream or 0) == handle


def test_no_stream_is_that_of_the_arrays(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    launch(mod, arrays(), arrays(), stream=None)
    assert sim.launch().stream == arrays.stream


def test_default_streams(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    """0 and 1 are one stream, the legacy one; 2 is another, the thread's."""
    for own, same, others in ((0, (0, 1, None), (2,)), (1, (0, 1, None), (2,)),
                              (2, (2, None), (0, 1))):  # fmt: skip
        arrays.use(own)
        sim.clear()
        for stream in same:
            launch(mod, arrays(), arrays(), stream=stream)
        assert len(sim.launches()) == len(same)
        for stream in others:
            sim.clear()
            launch(mod, arrays(), arrays(), stream=stream)
            assert sim.enqueued() == joined(stream, own)


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (-1, ValueError),
        (-(2**70), ValueError),
        (2**64, ValueError),
        (2**70, ValueError),
        (True, TypeError),
        (False, TypeError),
        (1.0, TypeError),
        ("0", TypeError),
        (b"0", TypeError),
        ((0, 5), TypeError),
        (object(), TypeError),
        (Protocol, TypeError),
        (CupyStream(-1), ValueError),
        (Protocol(-1), ValueError),
        (Protocol(2**64), ValueError),
    ],
)
def test_streams_that_are_none(
    mod: ons.Module, sim: Sim, arrays: Arrays, stream: Any, error: Any
) -> None:
    with pytest.raises(error, match="stream"):
        launch(mod, arrays(), arrays(), stream=stream)
    with pytest.raises(error, match="stream"):
        mod.scale.launch((2.0, arrays(), arrays(), 4), grid=1, block=1, stream=stream)
    assert sim.launches() == []


# ---- what is refused -------------------------------------------------------------------------------------


def test_strict_refuses_two_streams(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    others = Arrays(producer, sim, slot=1)

    def strict(x: Any, out: Any, **options: Any) -> None:
        mod.scale.launch((2.0, x, out, 4), grid=1, block=1, order="strict", **options)

    with pytest.raises(ons.OrderError, match=r"argument 3 .'out'.*0x") as caught:
        strict(arrays(), others())
    assert f"{others.stream:#x}" in str(caught.value) and f"{arrays.stream:#x}" in str(caught.value)
    with pytest.raises(ons.OrderError):
        strict(arrays(), arrays(), stream=sim.stream())
    assert sim.enqueued() == []
    others.use(arrays.stream)
    strict(arrays(), others())
    assert sim.enqueued() == [("launch", arrays.stream)]


def test_the_default_order_is_set(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    others = Arrays(producer, sim, slot=1)
    ons.set_order("strict")
    try:
        with pytest.raises(ons.OrderError):
            launch(mod, arrays(), others())
        mod.scale.launch((2.0, arrays(), others(), 4), grid=1, block=1, order="join")
    finally:
        ons.set_order(None)
    sim.clear()
    launch(mod, arrays(), others())
    assert sim.enqueued() == joined(arrays.stream, others.stream)
    for wrong in ("joint", 1, b"join", "JOIN"):
        with pytest.raises(ValueError, match="'join', 'strict' or 'trust'"):
            ons.set_order(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="'join', 'strict' or 'trust'"):
            mod.scale.launch((2.0, None, None, 4), grid=1, block=1, order=wrong)  # type: ignore[arg-type]


def test_host_arrays_among_device_arrays(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    import numpy as np

    host = np.zeros(4, np.float32)
    for x, out, name in ((host, arrays(), "'x'"), (arrays(), host, "'out'")):
        with pytest.raises(ons.ArgumentError, match=f"{name}.*cpu"):
            launch(mod, x, out)
    assert sim.launches() == []


def test_two_devices_are_refused(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    with pytest.raises(ons.ArgumentError, match="'out'.*cuda:1"):
        launch(mod, arrays(), arrays(device=(2, 1)))
    assert sim.launches() == []


def test_device_scalars_are_refused(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    scalar = arrays.type(0x4000, None, device=CUDA)
    with pytest.raises(ons.ArgumentTypeError, match=r"argument 1 \('a'\).*item\(\)"):
        mod.scale[1, 1](scalar, arrays(), arrays(), 4)
    p = DLPackProducer(arrays.producer, scalar)
    with pytest.raises(ons.ArgumentTypeError, match=r"argument 1 \('a'\).*item\(\)"):
        mod.scale[1, 1](p, arrays(), arrays(), 4)
    assert p.asked == []


def test_host_scalars_among_device_arrays(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    import numpy as np

    fresh = ons.Module(mod.source)
    fresh.scale[1, 1](np.array(2.0, np.float32), arrays(), arrays(), 4)
    assert sim.launch().value(0) == int.from_bytes(np.float32(2).tobytes(), "little")


@pytest.mark.parametrize(
    ("fails", "words"), [(1, "no stream today"), (2, "failed without an exception")]
)
def test_failing_stream_queries(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, fails: int, words: str
) -> None:
    stream = arrays.stream
    launch(mod, arrays(), arrays())
    sim.clear()
    arrays.use(0, fails)
    with pytest.raises(ons.ArgumentTypeError, match=f"'scale'.*'x'.*stream query.*{words}") as e:
        launch(mod, arrays(), arrays())
    assert isinstance(e.value.__cause__, RuntimeError)
    with pytest.raises(ons.ArgumentTypeError, match=f"'out'.*{words}"):
        launch(mod, None, arrays())
    with pytest.raises(ons.ArgumentTypeError, match=f"'out'.*{words}"):
        launch(mod, None, ons.like(arrays()))
    assert sim.launches() == [] and producer.counts(0)["allocations"] == 0
    arrays.use(stream)
    launch(mod, arrays(), arrays())
    assert sim.launch().stream == stream


def test_a_table_without_a_stream_slot(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    """Nothing tells the stream of its arrays: they are not launched on any."""
    silent = Arrays(producer, sim, slot=1, null=("stream",))
    with pytest.raises(ons.OrderError, match="'scale'.*'x'.*unknown stream.*__dlpack__"):
        launch(mod, silent(), arrays())
    with pytest.raises(ons.OrderError, match="'scale'.*'out'.*unknown stream"):
        launch(mod, arrays(), silent())
    assert sim.launches() == [] and producer.counts(1)["queries"] == 0


def test_a_table_without_a_stream_slot_gives_way_to_dlpack(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    class Both(producer.make_type(1, null=("stream",))):  # type: ignore[misc]
        asked: list[Any] = []

        def __dlpack_device__(self) -> Any:
            return self.device_type, self.device_id

        def __dlpack__(self, **options: Any) -> Any:
            self.asked.append(options)
            return producer.capsule(self, True)

    x = Both(0x9000, (4,), device=CUDA)
    launch(mod, x, arrays())
    assert x.asked == [{"stream": arrays.stream, "max_version": (1, 3)}]
    assert sim.launch().stream == arrays.stream and sim.launch().value(1) == 0x9000
    assert producer.counts(1)["borrows"] == producer.counts(1)["takes"] == 0


@pytest.mark.parametrize("key", [(2**32 - 1, 1), ((1, 65536), 1), ((1, 1, 65536), 1), (1, 1025),
                                 (1, (1, 1, 65)), (1, 1, 1 << 20)])  # fmt: skip
def test_limits(mod: ons.Module, sim: Sim, arrays: Arrays, key: Any) -> None:
    with pytest.raises(
        ons.ArgumentValueError, match=r"'scale'.*(limit is \d+; |device has \d+: )(use|launch|ask)"
    ):
        mod.scale[key](2.0, arrays(), arrays(), 0)
    assert sim.launches() == []


def test_zero_size(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    empty = arrays.type(0, (0,), device=CUDA)
    mod.scale[0, 32](2.0, empty, empty, 0)
    assert sim.launches() == []


# ---- producers without a known stream -----------------------------------------------------------------------


def test_unknown_producers_are_asked_with_the_launch_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = DLPackProducer(producer, arrays())
    launch(mod, p, arrays())
    assert p.asked == [{"stream": arrays.stream, "max_version": (1, 3)}]
    assert sim.launch().stream == arrays.stream
    old = OldProducer(producer, arrays())
    launch(mod, old, arrays())
    assert old.asked == [{"stream": arrays.stream}]


def test_unknown_producers_alone_are_asked_with_the_legacy_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = DLPackProducer(producer, arrays())
    kernel = ons.Module("__global__ void reads(const float* x) {}").reads
    kernel[1, 1](p)
    assert p.asked == [{"stream": 1, "max_version": (1, 3)}]
    assert not sim.launch().stream


def test_unknown_producers_are_not_written(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = DLPackProducer(producer, arrays())
    with pytest.raises(ons.OrderError, match="'out'.*does not tell.*const") as caught:
        launch(mod, arrays(), p)
    assert "ONS_" not in str(caught.value)
    assert sim.launches() == []
    del p, caught
    assert producer.counts()["handed_out"] == producer.counts()["deleted"]


def test_producers_that_cannot_be_ordered(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = OldestProducer(producer, arrays())
    with pytest.raises(ons.ArgumentError, match="'x'.*stream"):
        launch(mod, p, arrays())
    assert p.asked == [] and sim.launches() == []


@pytest.mark.parametrize("versioned", [True, False])
def test_capsules_live_until_the_kernel_is_done(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, versioned: bool
) -> None:
    # On a device of its own: a launch looks at the oldest few only of what is held there, and
    # the other tests' streams never get done.
    arrays.use(sim.stream(device=1))

    def on_other() -> Any:
        return arrays(device=(2, 1))

    p = DLPackProducer(producer, on_other(), versioned=versioned)
    launch(mod, p, on_other())
    del p
    for _ in range(3):
        launch(mod, on_other(), on_other())
    assert producer.counts()["deleted"] == 0
    sim.complete(arrays.stream)
    launch(mod, on_other(), on_other())
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


@pytest.mark.parametrize("major", [0, 2])
def test_capsules_of_a_foreign_version(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, major: int
) -> None:
    p = DLPackProducer(producer, arrays(major=major))
    with pytest.raises(ons.ArgumentTypeError, match=f"'x'.*version {major};.*update"):
        launch(mod, p, arrays())
    assert sim.launches() == []
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("versioned", [True, False])
def test_capsules_whose_producer_raises(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, versioned: bool, kept: bool
) -> None:
    p = HalfWay(producer, arrays(), versioned=versioned)
    p.kept = kept
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*changed its mind"):
        launch(mod, p, arrays())
    assert sim.launches() == [] and producer.counts()["deleted"] == (0 if kept else 1)
    del p
    gc.collect()
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


def test_errors_inside_a_producer_are_shown(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    for kind in (TypeError, RuntimeError):
        p = BrokenProducer(producer, arrays(), kind("inside"))
        with pytest.raises(ons.ArgumentTypeError, match=f"'x'.*{kind.__name__}: inside"):
            launch(mod, p, arrays())
        assert p.asked == [{"stream": arrays.stream, "max_version": (1, 3)}]
    assert sim.launches() == []


def test_capsules_of_refused_launches(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = DLPackProducer(producer, arrays())
    for args in ((2.0, p, None, "n"), (2.0, p, 5, 4), (2.0, p, arrays(), 2**70)):
        with pytest.raises(ons.ArgumentError):
            mod.scale[1, 1](*args)
    assert producer.counts()["handed_out"] == producer.counts()["deleted"]


# ---- __cuda_array_interface__ ----------------------------------------------------------------------------------


def interface(stream: Any, **entries: Any) -> ArrayInterface:
    return ArrayInterface(shape=(4,), data=(0x8000, False), stream=stream, **entries)


def test_array_interface_needs_to_tell_the_device(mod: ons.Module, sim: Sim) -> None:
    with pytest.raises(ons.ArgumentTypeError, match="which of several GPUs"):
        launch(mod, interface(sim.stream()), interface(sim.stream()))


def test_array_interface_without_any_order(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    for version in (0, 2, None):
        old = ArrayInterface(shape=(4,), data=(0x8000, False), version=version)
        with pytest.raises(ons.OrderError, match="'x'.*version 3.*__dlpack__"):
            launch(mod, old, arrays())
        with pytest.raises(ons.OrderError, match="'out'.*version 3.*__dlpack__"):
            launch(mod, arrays(), old)
    assert sim.launches() == []


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


def test_array_interface_streams(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    x = with_device(producer, arrays(), arrays.stream)
    launch(mod, x, x)
    assert sim.launch().stream == arrays.stream
    assert sim.launch().value(1) == 0x8000
    assert x.asked == []
    stream = sim.stream()
    sim.clear()
    launch(mod, x, with_device(producer, arrays(), stream))
    assert sim.enqueued() == joined(arrays.stream, stream)


def test_array_interface_without_a_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    x = with_device(producer, arrays(), None)
    launch(mod, x, arrays())
    assert sim.launch().value(1) == 0x8000, "version 3: None means that no order is needed"
    with pytest.raises(ons.OrderError, match="'out'"):
        launch(mod, arrays(), x)
    old = with_device(producer, arrays(), None, version=2)
    launch(mod, old, arrays())
    assert [a["stream"] for a in old.asked] == [arrays.stream]


def test_array_interface_details(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    def x(**entries: Any) -> Any:
        return with_device(producer, arrays(), arrays.stream, **entries)

    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        launch(mod, x(), x(data=(0x8000, True)))
    with pytest.raises(ons.ArgumentTypeError, match="float64"):
        launch(mod, x(typestr="<f8"), x())
    with pytest.raises(ons.ArgumentTypeError, match="mask"):
        launch(mod, x(mask=x()), x())
    with pytest.raises(ons.ArgumentError, match="stream"):
        launch(mod, with_device(producer, arrays(), 0), x())
    with pytest.raises(ons.ArgumentValueError, match="contiguous"):
        launch(mod, x(shape=(2, 2), strides=(4, 8)), x())
    launch(mod, x(shape=(2, 2), strides=(8, 4)), x())
    assert len(sim.launches()) == 1


# ---- capture -----------------------------------------------------------------------------------------------------


def test_launches_are_captured(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    sim.begin(arrays.stream)
    launch(mod, arrays(), arrays())
    launch(mod, arrays(), arrays())
    assert sim.end(arrays.stream) == 2


def test_the_first_call_may_be_captured(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    fresh = ons.Module(mod.source + f"// {id(sim)}")
    sim.begin(arrays.stream)
    launch(fresh, arrays(), arrays())
    assert sim.end(arrays.stream) == 1


def test_refusals_leave_the_capture_alive(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    sim.begin(arrays.stream)
    unknown = DLPackProducer(producer, arrays())
    with pytest.raises(ons.OrderError, match="'x'.*captured"):
        launch(mod, unknown, arrays())
    assert unknown.asked == [], "the producer was not touched"
    for bad in ((2.0, arrays(), arrays()), (2.0, "s", arrays(), 4), (2.0, arrays(), None, 2**70)):
        with pytest.raises(ons.ArgumentError):
            mod.scale[1, 1](*bad)
    other = Arrays(producer, sim, slot=1)
    with pytest.raises(ons.OrderError):
        launch(mod, arrays(), other())
    with pytest.raises(ons.CompileError):
        ons.Module("__global__ void k(float* x) { oops }").k[1, 1](arrays())
    assert sim.alive(arrays.stream)
    launch(mod, arrays(), arrays())
    assert sim.end(arrays.stream) == 1


class ArrayImpl(DLPackProducer):
    """Passes for an array of JAX."""


ArrayImpl.__module__ = "jaxlib._jax"


@pytest.mark.parametrize("first", [True, False])
def test_jax_arrays_in_a_capture_of_another_library(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, first: bool
) -> None:
    x = ArrayImpl(producer, arrays())
    pair = ons.Module("__global__ void pair(const float* a, const float* b) {}").pair
    pair.prepare("cuda:0")
    sim.begin(arrays.stream)
    args = (x, arrays()) if first else (arrays(), x)
    name = "argument 1 .'a'" if first else "argument 2 .'b'"
    with pytest.raises(
        ons.OrderError,
        match=f"'pair', {name}.*stream {arrays.stream:#x}, that of argument . .'.'., is being captured",
    ) as caught:
        pair[1, 1](*args)
    assert "unknown" in str(caught.value) and "untouched" in str(caught.value)
    assert x.asked == [], "JAX was not touched"
    assert sim.alive(arrays.stream)
    pair[1, 1](arrays(), arrays())
    assert sim.end(arrays.stream) == 1
    pair[1, 1](*args)
    assert [a["stream"] for a in x.asked] == [arrays.stream]


def test_known_producers_are_borrowed_in_a_capture(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    x = with_device(producer, arrays(), arrays.stream)
    sim.begin(arrays.stream)
    launch(mod, x, x)
    assert sim.end(arrays.stream) == 1


# ---- order ---------------------------------------------------------------------------------------------------------


def test_two_streams_are_joined(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    others = Arrays(producer, sim, slot=1)
    launch(mod, arrays(), others())
    assert sim.enqueued() == joined(arrays.stream, others.stream)
    sim.clear()
    launch(mod, others(), arrays())
    assert sim.enqueued() == joined(others.stream, arrays.stream)
    assert sim.calls("cuEventCreate") == 0, "events are reused"
    sim.clear()
    third = sim.stream()
    launch(mod, arrays(), others(), stream=third)
    assert sim.enqueued() == joined(third, arrays.stream, others.stream)
    for name in ("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"):
        assert sim.calls(name) == 0, name


def test_trust_joins_nothing(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    stream = sim.stream()

    def trust(x: Any, out: Any) -> list[tuple[str, int]]:
        sim.clear()
        mod.scale.launch((2.0, x, out, 4), grid=1, block=1, stream=stream, order="trust")
        return sim.enqueued()

    assert trust(arrays(), arrays()) == [("launch", stream)]
    unknown = DLPackProducer(producer, arrays())
    kept = [("launch", stream), ("record", stream)]
    assert trust(arrays(), unknown) == kept, "the caller vouches for a write, too"
    assert unknown.asked == [{"stream": -1, "max_version": (1, 3)}], "nobody waits"


def test_use_stream(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    outer, inner, given = sim.stream(), sim.stream(), sim.stream()

    def where(**options: Any) -> int:
        sim.clear()
        launch(mod, arrays(), arrays(), **options)
        record = sim.launch()
        assert record.stream is not None
        handle: int = record.stream
        return handle

    with ons.use_stream(TorchStream(outer)) as stream:
        assert stream.cuda_stream == outer
        assert where() == outer
        assert sim.enqueued() == joined(outer, arrays.stream)
        assert where(stream=given) == given
        with ons.use_stream(inner):
            assert where() == inner
            with ons.use_stream(None):
                assert where() == arrays.stream
        assert where() == outer
        unknown = DLPackProducer(producer, arrays())
        launch(mod, unknown, arrays())
        assert [a["stream"] for a in unknown.asked] == [outer]
    assert where() == arrays.stream
    with pytest.raises(ZeroDivisionError), ons.use_stream(inner):
        1 / 0  # noqa: B018
    assert where() == arrays.stream


def test_use_stream_is_of_a_device(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    second = sim.stream(device=1)
    mod.scale.prepare("cuda:1")
    first = sim.stream()
    with ons.use_stream(second, device="cuda:1"), ons.use_stream(first, device="cuda:0"):
        sim.clear()
        launch(mod, arrays(), arrays())
        assert sim.launch().stream == first
        arrays.use(sim.stream(device=1))
        sim.clear()
        launch(mod, arrays(device=(2, 1)), arrays(device=(2, 1)))
        assert sim.launch().stream == second


def test_managed_memory_chooses_no_block(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    """As little as it chooses the device of the launch, where another array is on one."""
    mod.scale.prepare("cuda:0")
    on_first, on_second = sim.stream(), sim.stream(device=1)
    arrays.use(sim.stream(device=1))
    second = arrays(device=(2, 1))
    with ons.use_stream(on_first, device="cuda:0"), ons.use_stream(on_second, device="cuda:1"):
        launch(mod, arrays(device=(13, 0)), second)
        launch(mod, second, arrays(device=(13, 0)))
        with ons.use_stream(None, device="cuda:1"):
            launch(mod, arrays(device=(13, 0)), second)
        assert [r.stream for r in sim.launches()] == [on_second, on_second, arrays.stream]
        arrays.use(sim.stream())
        sim.clear()
        launch(mod, arrays(device=(13, 0)), arrays(device=(13, 0)))
        assert sim.launch().stream == on_first, "alone it does"


def test_use_stream_is_of_a_thread(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    seen: list[int | None] = []

    def work() -> None:
        sim.clear()
        launch(mod, arrays(), arrays())
        seen.append(sim.launch().stream)

    with ons.use_stream(sim.stream()):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [arrays.stream]


def test_use_stream_is_left_in_order(sim: Sim) -> None:
    outer, inner = ons.use_stream(sim.stream()), ons.use_stream(sim.stream())
    outer.__enter__()
    with pytest.raises(RuntimeError, match="entered already"):
        outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="reverse order"):
        outer.__exit__()
    inner.__exit__()
    outer.__exit__()
    with pytest.raises(RuntimeError, match="reverse order"):
        outer.__exit__()
    for wrong in (-1, True, "0", object()):
        with pytest.raises((TypeError, ValueError), match="stream"):
            ons.use_stream(wrong)
    with pytest.raises(ValueError, match="GPU"):
        ons.use_stream(sim.stream(), device="cpu")


def test_use_stream_leaves_the_cpu_alone(mod: ons.Module, sim: Sim) -> None:
    np = pytest.importorskip("numpy")
    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    with ons.use_stream(sim.stream()):
        mod.scale[1, 4](2.0, x, out, 4)
    assert out.tolist() == [2, 2, 2, 2]
    assert sim.enqueued() == []


# ---- outputs -------------------------------------------------------------------------------------------------------


def test_outputs(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    x = arrays()
    z = launch(mod, x, ons.like(x))
    assert type(z) is type(x) and z.ndim == 1 and (z.device_type, z.device_id) == CUDA
    assert sim.launch().value(2) == z.data
    assert producer.counts(0)["allocations"] == 1


@pytest.fixture
def pinned(sim: Sim, arrays: Arrays) -> Any:
    """A tensor that calls its pinned memory plain CPU memory, as torch does."""
    memory = ctypes.create_string_buffer(64)
    address = ctypes.addressof(memory)
    sim.lib.sim_host_register(ctypes.c_void_p(address), ctypes.c_size_t(64))
    aligned = (address + 15) & ~15
    return arrays.type(aligned, (4,), device=(1, 0), owner=memory)


@pytest.mark.parametrize("first", [False, True])
def test_outputs_say_where_a_launch_goes(
    mod: ons.Module, sim: Sim, arrays: Arrays, pinned: Any, first: bool
) -> None:
    """An output counts as a tensor of its model's device and stream, in the first call too."""
    if first:
        mod = ons.Module(mod.source + "// a module of its own")
    z = launch(mod, pinned, ons.like(arrays()))
    record = sim.launch()
    assert (z.device_type, z.device_id) == CUDA
    assert record.stream == arrays.stream
    assert record.value(1) == pinned.data and record.value(2) == z.data


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("device", [0, 1])
def test_outputs_may_be_the_only_arrays(
    mod: ons.Module, sim: Sim, arrays: Arrays, first: bool, device: int
) -> None:
    arrays.use(sim.stream(device=device))
    source = "__global__ void fill(float value, float* out) { out[0] = value; }"
    kernel = ons.Module(source).fill
    if not first:
        kernel.prepare((2, device))
        sim.clear()
    z = kernel[1, 1](2.0, ons.like(arrays(device=(2, device))))
    assert (z.device_type, z.device_id) == (2, device)
    assert sim.launch().stream == arrays.stream
    assert sim.launch().stream_context == sim.lib.sim_primary_context(device)


def test_outputs_are_joined_with_the_stream_they_are_allocated_on(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    others = Arrays(producer, sim, slot=1)
    launch(mod, arrays(), ons.like(others()))
    assert sim.enqueued() == joined(arrays.stream, others.stream)
    kernel = mod["fill<float>"]
    kernel.prepare("cuda:0")
    for order in ("join", "trust"):
        sim.clear()
        kernel.launch((2.0, ons.like(arrays())), grid=1, block=1, stream=others.stream, order=order)
        assert sim.enqueued() == joined(others.stream, arrays.stream)


def test_strict_refuses_outputs_before_they_are_made(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    others = Arrays(producer, sim, slot=1)
    with pytest.raises(ons.OrderError, match="'out'"):
        mod.scale.launch((2.0, arrays(), ons.like(others()), 4), grid=1, block=1, order="strict")
    assert producer.counts(0)["allocations"] == producer.counts(1)["allocations"] == 0
    assert sim.enqueued() == []


def test_outputs_of_another_device_are_refused(
    mod: ons.Module, sim: Sim, arrays: Arrays, pinned: Any
) -> None:
    with pytest.raises(ons.ArgumentError, match="'out'.*cuda:1"):
        launch(mod, arrays(), ons.like(arrays(device=(2, 1))))
    with pytest.raises(ons.ArgumentError, match="'out'.*cpu"):
        launch(mod, arrays(), ons.like(pinned.__class__(0x1000, (4,), device=(1, 0))))
    assert sim.launches() == []


def test_empty_goes_where_the_launch_goes(sim: Sim, arrays: Arrays, pinned: Any) -> None:
    split = ons.Module("__global__ void split(const float* x, float* y, float* z) {}").split
    split.prepare("cuda:0")
    for args in ((pinned, arrays(), ons.empty(4, "float32")),
                 (pinned, ons.empty(4, "float32"), ons.like(arrays()))):  # fmt: skip
        sim.clear()
        z = split[1, 4](*args)
        made = z if not isinstance(z, tuple) else z[0]
        assert (made.device_type, made.device_id) == CUDA
        assert sim.launch().stream == arrays.stream


def test_outputs_are_not_read(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    for output in (ons.like(arrays()), ons.empty(4, "float32")):
        with pytest.raises(ons.ArgumentValueError, match=r"argument 2 \('x'\).*output"):
            launch(mod, output, arrays())
    assert sim.launches() == []


def test_streams_need_an_array_in_gpu_memory(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    host = arrays(device=(1, 0))
    for x, out in ((host, host), (None, None)):
        with pytest.raises(ons.ArgumentError, match="'scale'.*stream.*GPU"):
            launch(mod, x, out, stream=arrays.stream)
    assert sim.launches() == []


def test_a_device_for_kernels_without_arrays(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    kernel = ons.Module("__global__ void alone(int n) {}").alone
    kernel.launch((1,), grid=1, block=1, stream=arrays.stream, device="cuda:0")
    assert sim.launch().stream == arrays.stream
    sim.clear()
    kernel.launch((1,), grid=1, block=1, device="cpu")
    assert sim.launches() == []
    with pytest.raises(ons.ArgumentError, match="'x'.*cuda:0"):
        mod.scale.launch((2.0, arrays(), arrays(), 4), grid=1, block=1, device="cuda:1")


def test_empty_alone_has_no_library(mod: ons.Module, sim: Sim) -> None:
    for kernel in (mod["fill<float>"], ons.Module(mod.source + "// another")["fill<float>"]):
        with pytest.raises(ons.ArgumentTypeError, match="'out'.*ons.empty without any array"):
            kernel[1, 1](2.0, ons.empty(1, "float32"))


def test_outputs_of_libraries_that_cannot_be_asked(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    """They are of onstream's own memory, in the order of the launch stream."""
    p = DLPackProducer(producer, arrays())
    z = launch(mod, arrays(), ons.like(p))
    assert type(z) is ons.Tensor and z.shape == (4,) and z.stream == arrays.stream
    assert p.asked == [] or [a["stream"] for a in p.asked] == [arrays.stream]
    assert sim.calls("cuMemAllocAsync") == 1
    assert sim.launch().value(2) == z.data_ptr
    del z
    assert sim.calls("cuMemFreeAsync") == 1


def test_outputs_in_a_capture(mod: ons.Module, sim: Sim, arrays: Arrays, pinned: Any) -> None:
    sim.begin(arrays.stream)
    launch(mod, pinned, ons.like(arrays()))
    assert sim.end(arrays.stream) == 1


def test_many_outputs_of_a_table_without_borrowing(sim: Sim, producer: Any) -> None:
    """Each is handed over, and released, several times on its way."""
    owning = Arrays(producer, sim, null=("borrow",))
    count = 23
    names = ", ".join(f"float* y{i}" for i in range(count))
    kernel = ons.Module(f"__global__ void k(const float* x, {names}) {{}}").k
    kernel.prepare("cuda:0")
    x = owning()
    for make in (lambda: ons.like(x), lambda: ons.empty(4, "float32")):
        made = kernel[1, 1](x, *(make() for _ in range(count)))
        assert len(made) == count
        del made
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] > 2 * count


# ---- headers ---------------------------------------------------------------------------------------------------------

INCLUDING = {
    "cuda_fp16.h": "__half h = __float2half(1.f); x[0] = (int)__half2float(h);",
    "cuda_bf16.h": "__nv_bfloat16 h = __float2bfloat16(1.f); x[0] = (int)__bfloat162float(h);",
    "cuda_fp8.h": "__nv_fp8_e4m3 h(1.f); x[0] = (int)(float)h;",
    "cstdint": "std::int64_t i = 1; x[0] = (int)i;",
    "cuda/std/array": "cuda::std::array<int, 2> a = {1, 2}; x[0] = a[1];",
    "cuda/std/complex": "cuda::std::complex<float> c(1, 2); x[0] = (int)c.real();",
    "cooperative_groups.h": "x[0] = cooperative_groups::this_thread_block().thread_rank();",
}


@pytest.mark.parametrize("header", list(INCLUDING))
def test_headers_are_found(sim: Sim, header: str) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    if not all(pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl")):
        pytest.skip("neither a toolkit nor the wheels are here")
    ons.Module(
        f"#include <{header}>\n__global__ void k(int* x) {{ {INCLUDING[header]} }}"
    ).k.prepare("cuda:0")


def test_missing_headers_say_what_brings_them(tmp_path: Path) -> None:
    brought = {
        "cuda_fp16.h": "nvidia-cuda-runtime",
        "cuda/std/array": "nvidia-cuda-cccl",
        "cooperative_groups.h": "nvidia-cuda-runtime",
        "curand_kernel.h": "nvidia-curand",
        "vector": "cuda/std",
    }
    code = """if True:
        import sys
        import onstream as ons
        for header in sys.argv[1:]:
            try:
                ons.Module(f"#include <{header}>\\n__global__ void k() {{}}").k.prepare("cuda:0")
                print("compiled")
            except ons.CompileError as error:
                print(error)
        """
    result = subprocess.run(
        [sys.executable, "-c", code, *brought],
        env={**os.environ, "ONSTREAM_CUDA_INCLUDE": str(tmp_path)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for text, (header, package) in zip(result.stdout.splitlines(), brought.items(), strict=True):
        assert text.startswith("kernel.cu:1: ") and f'"{header}"' in text, text
        assert package in text and ("ONSTREAM_CUDA_INCLUDE" in text or header == "vector"), text


# ---- devices --------------------------------------------------------------------------------------------------------


def test_the_first_gpu_is_the_default(mod: ons.Module, sim: Sim) -> None:
    assert mod.scale.attributes()["max_threads_per_block"] == 1024


def test_missing_devices(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    with pytest.raises(ons.UnavailableError, match="no cuda:7.*2 GPUs"):
        launch(mod, arrays(device=(2, 7)), arrays(device=(2, 7)))


def test_driver_errors(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    for name in (b"cuLaunchKernelEx", b"cuLaunchKernel"):
        sim.lib.sim_inject(name, 1, 719)
    with pytest.raises(ons.DeviceError, match="scale.*719") as caught:
        launch(mod, arrays(), arrays())
    assert caught.value.code == 719 and "cuLaunch" in caught.value.name


def test_a_launch_that_the_driver_fails_is_not_tried_again(
    mod: ons.Module, sim: Sim, arrays: Arrays
) -> None:
    launcher, x, out = mod.scale[3, 32], arrays(4), arrays(5)
    for _ in range(2):
        launcher(2.0, x, out, 77)
    for code, error in ((719, ons.DeviceError), (2, MemoryError)):
        sim.clear()
        sim.lib.sim_inject(b"cuLaunchKernelEx", 1, code)
        with pytest.raises(error, match=f"scale.*{code}"):
            launcher(2.0, x, out, 77)
        assert sim.calls("cuLaunchKernelEx") == 1
    before = arrays.producer.counts(0)["borrows"]
    with pytest.raises(ons.ArgumentError, match="argument 4"):
        mod.scale[3, 32](2.0, x, out, 2**63 - 1 + 1)
    with pytest.raises(ons.ArgumentError, match="block.y"):
        mod.scale[3, (32, 2048)](2.0, x, out, 77)
    assert arrays.producer.counts(0)["borrows"] - before == 6, "only the first is done again"


def test_the_first_tensor_need_not_be_at_the_first_pointer(
    mod: ons.Module, sim: Sim, arrays: Arrays
) -> None:
    mod.is_null.prepare("cuda:0")
    out = arrays(dtype=(0, 32, 1))
    for _ in range(3):
        sim.clear()
        mod.is_null[1, 1](None, out)
        record = sim.launch()
        assert record.stream == arrays.stream
        assert record.value(0) == 0 and record.value(1) == out.data
