# ruff: noqa: F811
"""Outputs on the stand-in driver; run by test_simgpu.py in a process of its own.

By a library with an exchange table, whose allocator and streams the tests set; by onstream, in the
driver's pool, for arrays of libraries that cannot be asked.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import producer_fakes as fakes
import pytest
from python_producers import DLPackProducer
from simgpu_cases import Arrays, Sim, arrays, sim, sim_machine  # noqa: F401

import onstream as ons

GRID = (1, 1)


@pytest.fixture
def simulated(sim: Sim) -> Iterator[Sim]:
    """With memory that is checked: races, uses after free, leaks."""
    lib = sim.lib
    lib.sim_device_alloc.restype = ctypes.c_void_p
    lib.sim_schedule_end.restype = ctypes.c_size_t
    lib.sim_schedule_begin(ctypes.c_uint64(1))
    lib.sim_declare_kernel(b"scale", b"vrwv")
    yield sim
    gc.collect()
    lib.sim_run_all()
    ons.collect()
    found = lib.sim_schedule_end()
    text = ctypes.create_string_buffer(2000)
    reports = []
    for i in range(found):
        lib.sim_report_text(ctypes.c_size_t(i), text, ctypes.c_size_t(2000))
        reports.append(text.value.decode())
    lib.sim_reset()
    assert not reports


@pytest.fixture
def memory(simulated: Sim) -> Iterator[Any]:
    taken: list[int] = []

    def take() -> int:
        pointer: int = simulated.lib.sim_device_alloc(0, ctypes.c_size_t(1024))
        simulated.lib.sim_host_access(ctypes.c_void_p(pointer), ctypes.c_size_t(1024), 1)
        taken.append(pointer)
        return pointer

    yield take
    gc.collect()
    simulated.lib.sim_run_all()
    ons.collect()
    simulated.lib.cuCtxSynchronize()
    for pointer in taken:
        simulated.lib.sim_device_free(ctypes.c_void_p(pointer))


def on_stream(array: Any, stream: int) -> Any:
    array.interface["stream"] = stream
    return array


def stream_of(sim: Sim, function: str) -> int:
    record = sim.lib.sim_last(function.encode())
    assert record, function
    stream: int = record.contents.stream or 0
    return stream


# ---- of a library's allocator -----------------------------------------------------------------


def test_an_output_is_joined_with_the_stream_it_was_allocated_on(
    mod: ons.Module, sim: Sim, arrays: Arrays
) -> None:
    side = sim.stream()
    for order, expected in (
        (None, [("record", arrays.stream), ("wait", side), ("launch", side), ("record", side),
                ("wait", arrays.stream)]),
        ("trust", [("record", arrays.stream), ("wait", side), ("launch", side), ("record", side),
                   ("wait", arrays.stream)]),
    ):  # fmt: skip
        x = arrays()
        sim.clear()
        mod.scale.launch((2.0, x, ons.like(x), 4), grid=1, block=1, stream=side, order=order)
        assert sim.enqueued() == expected


def test_zeros_are_filled_in_the_order_of_the_allocation(
    mod: ons.Module, sim: Sim, arrays: Arrays
) -> None:
    side, x = sim.stream(), arrays()
    sim.clear()
    mod.scale[1, 1, 0, side](2.0, x, ons.zeros_like(x), 4)
    assert sim.calls("cuMemsetD8Async") == 1
    assert stream_of(sim, "cuMemsetD8Async") == arrays.stream
    assert sim.launch().stream == side


def test_zeros_of_the_callers_array(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    side, x, out = sim.stream(), arrays(), arrays()
    for order, stream in ((None, arrays.stream), ("trust", side)):
        sim.clear()
        z = mod.scale.launch(
            (2.0, x, ons.zeros_like(x), 4), grid=1, block=1, stream=side, order=order, out=out
        )
        assert z is out and stream_of(sim, "cuMemsetD8Async") == stream
    sim.clear()
    with pytest.raises(ons.OrderError):
        mod.scale.launch((2.0, x, ons.zeros_like(x), 4), grid=1, block=1, stream=side,
                         order="strict", out=out)  # fmt: skip
    with pytest.raises(ons.ArgumentValueError):
        mod.scale[1, 5000](2.0, x, ons.zeros_like(x), 4, out=out)
    assert sim.calls("cuMemsetD8Async") == 0 and sim.enqueued() == []


def test_what_only_a_capsule_tells_is_refused_before_the_fill(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    class Registered(DLPackProducer):
        pass

    ons.register_producer(Registered, stream=lambda x: arrays.stream)
    out = Registered(producer, arrays(flags=1))
    sim.clear()
    with pytest.raises(ons.ArgumentValueError, match="argument 3.*read-only"):
        mod.scale[1, 1](2.0, arrays(), ons.zeros_like(arrays()), 4, out=out)
    assert out.asked and sim.calls("cuMemsetD8Async") == 0
    fine = Registered(producer, arrays())
    assert mod.scale[1, 1](2.0, arrays(), ons.zeros_like(arrays()), 4, out=fine) is fine
    assert sim.calls("cuMemsetD8Async") == 1


def test_zeros_in_a_capture(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    x = arrays()
    sim.begin(arrays.stream)
    z = mod.scale[1, 1](2.0, x, ons.zeros_like(x), 4)
    assert type(z) is type(x) and sim.alive(arrays.stream)
    assert sim.end(arrays.stream) == 1


# ---- memory of onstream's own -----------------------------------------------------------------


def test_own_outputs_are_on_the_launch_stream(mod: ons.Module, simulated: Sim, memory: Any) -> None:
    sim, side = simulated, simulated.stream()
    x = on_stream(fakes.DeviceNDArray(memory()), side)
    sim.clear()
    z = mod.scale[GRID](2.0, x, ons.like(x), 4)
    assert type(z) is ons.Tensor and z.shape == (4,) and z.device == "cuda:0"
    assert stream_of(sim, "cuMemAllocAsync") == side == sim.launch().stream
    assert sim.calls("cuEventRecord") == 0
    sim.clear()
    del z
    assert stream_of(sim, "cuMemFreeAsync") == side and sim.calls("cuEventRecord") == 0


@pytest.mark.parametrize("output", ["like", "empty", "zeros", "workspace"])
def test_ten_thousand_own_outputs_leave_nothing(
    mod: ons.Module, simulated: Sim, memory: Any, output: str
) -> None:
    sim, side = simulated, simulated.stream()
    x = on_stream(fakes.DeviceNDArray(memory()), side)
    made = {
        "like": lambda: ons.like(x),
        "empty": lambda: ons.empty("x.shape", "x.dtype"),
        "zeros": lambda: ons.zeros(4, "float32"),
        "workspace": lambda: ons.workspace(4, "float32"),
    }[output]
    sim.lib.sim_set_recording(0)
    try:
        for i in range(10_000 if output == "like" else 200):
            mod.scale[GRID](2.0, x, made(), 4)
            if i % 100 == 0:
                sim.lib.sim_run_all()
    finally:
        sim.lib.sim_set_recording(1)
    sim.lib.sim_run_all()
    assert ons.collect() == 0


def test_own_memory_on_other_streams(mod: ons.Module, simulated: Sim, memory: Any) -> None:
    """Used on a second stream, freed behind that use; and written anew at once."""
    side, other = simulated.stream(), simulated.stream()
    x = on_stream(fakes.DeviceNDArray(memory()), side)
    for _ in range(20):
        z = mod.scale[GRID](2.0, x, ons.like(x), 4)
        y = mod.scale[1, 1, 0, other](2.0, z, ons.zeros_like(z), 4)
        del z
        z = mod.scale[GRID](2.0, x, ons.like(x), 4)
        del y, z


def test_a_capture_is_refused_and_lives(mod: ons.Module, sim: Sim, memory: Any) -> None:
    side = sim.stream()
    x = on_stream(fakes.DeviceNDArray(memory()), side)
    sim.begin(side)
    sim.clear()
    with pytest.raises(ons.OrderError, match="argument 3.*captured"):
        mod.scale[GRID](2.0, x, ons.like(x), 4)
    assert sim.alive(side) and sim.calls("cuMemAllocAsync") == 0
    assert sim.end(side) == 0


def test_own_memory_that_is_dropped_in_a_capture(
    mod: ons.Module, simulated: Sim, memory: Any
) -> None:
    sim, side = simulated, simulated.stream()
    x = on_stream(fakes.DeviceNDArray(memory()), side)
    z = mod.scale[GRID](2.0, x, ons.like(x), 4)
    sim.begin(side)
    sim.clear()
    del z
    assert sim.calls("cuMemFreeAsync") == 0 and sim.alive(side)
    sim.end(side)
    sim.lib.sim_run_all()
    for _ in range(3):
        ons.collect()
    sim.lib.sim_run_all()
    ons.collect()
    assert sim.calls("cuMemFree_v2") + sim.calls("cuMemFreeAsync") == 1


def test_no_memory_is_tried_twice(mod: ons.Module, simulated: Sim, memory: Any) -> None:
    sim, side = simulated, simulated.stream()
    x = on_stream(fakes.DeviceNDArray(memory()), side)
    sim.lib.sim_inject(b"cuMemAllocAsync", 1, 2)
    sim.clear()
    z = mod.scale[GRID](2.0, x, ons.like(x), 4)
    assert type(z) is ons.Tensor and sim.calls("cuMemAllocAsync") == 2
    sim.clear()
    for _ in range(2):
        sim.lib.sim_inject(b"cuMemAllocAsync", 1, 2)
    with pytest.raises(MemoryError, match="argument 3.*OUT_OF_MEMORY"):
        mod.scale[GRID](2.0, x, ons.like(x), 4)
    assert sim.launches() == [] and sim.enqueued() == []
    assert sim.calls("cuMemAllocAsync") == 2
