"""The CUDA path on the stand-in driver, run by test_simgpu.py in a process of its own.

Kernels are compiled by the real NVRTC and recorded instead of run (cases 4 and 22 to 31).
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import pytest
from python_producers import ArrayInterface, DLPackProducer, OldestProducer, OldProducer

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

    def use(self, stream: int, fails: bool = False) -> None:
        self.stream = stream
        self.producer.set_stream(self.slot, stream, fails)

    def __call__(self, n: int = 4, device: tuple[int, int] = CUDA, **options: Any) -> Any:
        return self.type(0x10000 + 0x1000 * n, (n,), device=device, **options)


@pytest.fixture
def arrays(producer: Any, sim: Sim) -> Arrays:
    return Arrays(producer, sim)


def launch(mod: ons.Module, x: Any, out: Any, *, stream: Any = None) -> Any:
    return mod.scale[3, 32, 0, stream](2.0, x, out, 77)


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
    with pytest.raises(ons.OrderError, match=f"{arrays.stream:#x}"):
        launch(mod, arrays(), arrays(), stream=kind(sim.stream()))
    with pytest.raises(ons.OrderError):
        launch(mod, arrays(), arrays(), stream=kind(0))
    assert len(sim.launches()) == 1


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
            with pytest.raises(ons.OrderError):
                launch(mod, arrays(), arrays(), stream=stream)
        assert len(sim.launches()) == len(same)


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


def test_two_streams_are_refused(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    others = Arrays(producer, sim, slot=1)
    with pytest.raises(ons.OrderError, match=r"argument 3 .'out'.*0x") as caught:
        launch(mod, arrays(), others())
    assert f"{others.stream:#x}" in str(caught.value) and f"{arrays.stream:#x}" in str(caught.value)
    with pytest.raises(ons.OrderError):
        launch(mod, arrays(), arrays(), stream=sim.stream())
    assert sim.launches() == []
    others.use(arrays.stream)
    launch(mod, arrays(), others())


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


def test_failing_stream_queries(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    arrays.use(0, fails=True)
    with pytest.raises(ons.ArgumentError, match="no stream today"):
        launch(mod, arrays(), arrays())


@pytest.mark.parametrize("key", [(2**32 - 1, 1), ((1, 65536), 1), ((1, 1, 65536), 1), (1, 1025),
                                 (1, (1, 1, 65)), (1, 1, 1 << 20)])  # fmt: skip
def test_limits(mod: ons.Module, sim: Sim, arrays: Arrays, key: Any) -> None:
    with pytest.raises(ons.ArgumentValueError, match=r"limit is \d+|device has \d+"):
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
    other = with_device(producer, arrays(), sim.stream())
    with pytest.raises(ons.OrderError):
        launch(mod, x, other)


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


def test_known_producers_are_borrowed_in_a_capture(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    x = with_device(producer, arrays(), arrays.stream)
    sim.begin(arrays.stream)
    launch(mod, x, x)
    assert sim.end(arrays.stream) == 1


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


def test_outputs_of_two_streams_are_refused_before_they_are_made(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    others = Arrays(producer, sim, slot=1)
    with pytest.raises(ons.OrderError, match="'out'"):
        launch(mod, arrays(), ons.like(others()))
    with pytest.raises(ons.OrderError, match="'out'"):
        mod["fill<float>"][1, 1, 0, others.stream](2.0, ons.like(arrays()))
    assert producer.counts(0)["allocations"] == producer.counts(1)["allocations"] == 0
    assert sim.launches() == []


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


def test_empty_alone_has_no_library(mod: ons.Module, sim: Sim) -> None:
    for kernel in (mod["fill<float>"], ons.Module(mod.source + "// another")["fill<float>"]):
        with pytest.raises(ons.ArgumentTypeError, match="'out'.*ons.empty without any array"):
            kernel[1, 1](2.0, ons.empty(1, "float32"))


def test_outputs_of_libraries_that_cannot_be_asked(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = DLPackProducer(producer, arrays())
    with pytest.raises(ons.ArgumentTypeError, match="'out'.*does not know how to ask"):
        launch(mod, arrays(), ons.like(p))
    assert p.asked == [] and sim.launches() == []


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


# ---- devices --------------------------------------------------------------------------------------------------------


def test_the_first_gpu_is_the_default(mod: ons.Module, sim: Sim) -> None:
    assert mod.scale.attributes()["max_threads_per_block"] == 1024


def test_driver_errors(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    for name in (b"cuLaunchKernelEx", b"cuLaunchKernel"):
        sim.lib.sim_inject(name, 1, 719)
    with pytest.raises(ons.DeviceError, match="scale.*719") as caught:
        launch(mod, arrays(), arrays())
    assert caught.value.code == 719 and "cuLaunch" in caught.value.name
