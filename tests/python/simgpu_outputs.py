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
from simgpu_machine import CUDA, Arrays, Sim, joined, launch

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


@pytest.fixture
def pinned(sim: Sim, arrays: Arrays) -> Any:
    """A tensor that calls its pinned memory plain CPU memory, as torch does."""
    memory = ctypes.create_string_buffer(64)
    address = ctypes.addressof(memory)
    sim.lib.sim_host_register(ctypes.c_void_p(address), ctypes.c_size_t(64))
    aligned = (address + 15) & ~15
    return arrays.type(aligned, (4,), device=(1, 0), owner=memory)


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


def test_zeros_of_the_callers_array_wait_for_nothing(
    mod: ons.Module, sim: Sim, arrays: Arrays
) -> None:
    made, x, out = ctypes.c_void_p(), arrays(), arrays()
    assert sim.lib.cuEventCreate(ctypes.byref(made), 2) == 0
    event = made.value
    options = {"grid": 1, "block": 1}
    zeros, like = (2.0, x, ons.zeros_like(x), 4), (2.0, x, ons.like(x), 4)
    sim.clear()
    with pytest.raises(ons.OrderError, match="argument 3.*zeros, together with wait="):
        mod.scale.launch(zeros, out=out, wait=event, **options)
    assert sim.calls("cuMemsetD8Async") == 0 and sim.enqueued() == []
    assert mod.scale.launch(like, out=out, wait=event, **options) is out
    assert mod.scale.launch(zeros, out=out, signal=event, **options) is out
    assert mod.scale.launch(zeros, wait=event, **options) is not None
    assert sim.calls("cuMemsetD8Async") == 2


def test_zeros_of_pinned_memory_are_filled_by_the_launch_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, pinned: Any
) -> None:
    """The GPU may be using it still."""
    ctypes.memset(pinned.data, 1, 16)
    assert mod.scale[1, 1](2.0, arrays(), ons.zeros(4, "float32"), 4, out=pinned) is pinned
    assert stream_of(sim, "cuMemsetD8Async") == arrays.stream
    assert sim.enqueued() == [("launch", arrays.stream)]


def test_zeros_beside_a_list_of_tensors(sim: Sim, arrays: Arrays) -> None:
    source = "__global__ void listed(ons::ptrs<const float, 2> xs, float* y, int n) {}"
    kernel = ons.Module(source, name="listed.cu").listed
    x = arrays()
    for zeros in (ons.zeros(4, "float32"), ons.zeros_like(x)):
        sim.clear()
        assert kernel[1, 1]([x, arrays()], zeros, 4) is not None
        assert sim.calls("cuMemsetD8Async") == 1 and sim.launch()
        sim.clear()
        with pytest.raises(ons.ArgumentValueError):
            kernel[1, 5000]([x, arrays()], zeros, 4)
        assert sim.calls("cuMemsetD8Async") == 0


def test_zeros_are_refused_before_a_capture_is_lost(
    mod: ons.Module, sim: Sim, producer: Any
) -> None:
    """Whose library allocates on the legacy stream."""
    legacy, captured = Arrays(producer, sim), sim.stream(non_blocking=False)
    legacy.use(0)
    x = legacy()
    sim.begin(captured)
    sim.clear()
    with pytest.raises(ons.OrderError, match="capture"):
        mod.scale.launch((2.0, x, ons.zeros(4, "float32"), 4), grid=1, block=1, stream=captured,
                         order="trust")  # fmt: skip
    assert sim.calls("cuMemsetD8Async") == 0
    assert sim.end(captured) == 0


def test_a_model_of_an_unknown_stream_in_a_capture(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    model = DLPackProducer(producer, arrays())
    sim.begin(arrays.stream)
    z = mod.scale[1, 1](2.0, arrays(), ons.empty("x.shape", "x.dtype"), 4)
    with pytest.raises(ons.OrderError, match="captured"):
        launch(mod, arrays(), ons.like(model))
    assert z is not None and not model.asked
    assert sim.end(arrays.stream) == 1


def test_a_model_is_not_waited_for_or_kept(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    event = ctypes.c_void_p()
    assert sim.lib.cuEventCreate(ctypes.byref(event), 2) == 0
    model = fakes.Arrow(0x7000, event=event.value)
    launch(mod, arrays(), arrays())
    sim.clear()
    z = launch(mod, arrays(), ons.like(model))
    assert z.shape == (4,) and sim.enqueued() == [("launch", arrays.stream)]
    assert model.released == 1, "though the launch has not run yet"


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


# ---- where they are -------------------------------------------------------------------------


def test_outputs(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    x = arrays()
    z = launch(mod, x, ons.like(x))
    assert type(z) is type(x) and z.ndim == 1 and (z.device_type, z.device_id) == CUDA
    assert sim.launch().value(2) == z.data
    assert producer.counts(0)["allocations"] == 1


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
    assert [a["stream"] for a in p.asked] == [-1], "it is looked at, and put in no order"
    assert sim.enqueued() == [("launch", arrays.stream)]
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
