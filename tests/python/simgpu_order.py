"""Captures, joins and use_stream on the stand-in driver; run by test_simgpu.py in a process of
its own (cases 22 to 31).
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from python_producers import DLPackProducer
from simgpu_machine import Arrays, Sim, TorchStream, joined, launch, with_device

import onstream as ons

# ---- capture --------------------------------------------------------------------------------


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


# ---- order ----------------------------------------------------------------------------------


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


def test_use_stream_where_the_device_is_given(mod: ons.Module, sim: Sim, producer: Any) -> None:
    memory = ctypes.create_string_buffer(64)
    address = (ctypes.addressof(memory) + 15) & ~15
    sim.lib.sim_host_register(ctypes.c_void_p(address), ctypes.c_size_t(32))
    pinned = Arrays(producer, sim).type(address, (4,), device=(1, 0), owner=memory)
    first, second = sim.stream(), sim.stream(device=1)
    mod.scale.prepare("cuda:1")
    args = (2.0, pinned, pinned, 4)
    with ons.use_stream(first, device="cuda:0"), ons.use_stream(second, device="cuda:1"):
        for device, stream in (("cuda:0", first), ("cuda:1", second)):
            sim.clear()
            mod.scale.launch(args, grid=1, block=1, device=device)
            assert sim.launch().stream == stream
        sim.clear()
        mod.scale.launch(args, grid=1, block=1, device="cpu")
        assert sim.launches() == []


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
