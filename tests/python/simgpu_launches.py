"""Where a launch goes and what is refused, on the stand-in driver; run by test_simgpu.py in a
process of its own.

Kernels are compiled by the real NVRTC and recorded instead of run.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from python_producers import DLPackProducer
from simgpu_machine import CUDA, Arrays, Sim, TorchStream, joined, launch

import onstream as ons

# ---- where a launch goes --------------------------------------------------------------------


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


# ---- what is refused ------------------------------------------------------------------------


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


# ---- devices --------------------------------------------------------------------------------


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
