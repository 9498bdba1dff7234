"""Each library's arrays and streams on the stand-in driver, run by test_simgpu.py in a process of its
own (cases 13 to 16 and 27 to 30)."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from types import ModuleType
from typing import Any

import numpy as np
import producer_fakes as fakes
import pytest
from python_producers import DLPackProducer
from simgpu_machine import CUDA, Arrays, Sim, joined, launch

import onstream as ons

READ_ONLY = 1


@pytest.fixture(scope="session")
def reads() -> Any:
    kernel = ons.Module("__global__ void reads(const float* x, const float* y) {}").reads
    kernel.prepare("cuda:0")
    return kernel


@pytest.fixture
def memory(sim: Sim) -> Any:
    """Memory of the stand-in's devices, whose device the driver can tell."""
    sim.lib.sim_device_alloc.restype = ctypes.c_void_p
    taken: list[int] = []

    def take(device: int = 0) -> int:
        pointer: int = sim.lib.sim_device_alloc(device, ctypes.c_size_t(1024))
        taken.append(pointer)
        return pointer

    yield take
    for pointer in taken:
        sim.lib.sim_device_free(ctypes.c_void_p(pointer))


# ---- Numba, PyCUDA: the interface, version 3 ------------------------------------------------------


@pytest.mark.parametrize("kind", [fakes.DeviceNDArray, fakes.GPUArray])
def test_no_stream_is_the_legacy_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, memory: Any, kind: Any
) -> None:
    out = kind(memory())
    launch(mod, kind(memory()), out)
    assert sim.enqueued() == [("launch", 0)]
    assert sim.launch().value(2) == out.interface["data"][0]
    sim.clear()
    launch(mod, arrays(), out)
    assert sim.enqueued() == joined(arrays.stream, 0)


def test_numba_arrays_bound_to_a_stream(mod: ons.Module, sim: Sim, memory: Any) -> None:
    stream = sim.stream()
    launch(mod, fakes.DeviceNDArray(memory(), stream), fakes.DeviceNDArray(memory(), stream))
    assert sim.enqueued() == [("launch", stream)]


@pytest.mark.parametrize("kind", [fakes.DeviceNDArray, fakes.GPUArray])
def test_the_driver_tells_the_device(mod: ons.Module, sim: Sim, memory: Any, kind: Any) -> None:
    before = sim.lib.sim_get_current()
    launch(mod, kind(memory(1)), kind(memory(1)))
    assert sim.launch().stream_context == sim.lib.sim_primary_context(1)
    assert sim.lib.sim_get_current() == before
    with pytest.raises(ons.Error, match="'out'.*cuda:"):
        launch(mod, kind(memory(1)), kind(memory(0)))
    assert len(sim.launches()) == 1


# ---- Warp -------------------------------------------------------------------------------------------


class CudaStream:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def test_warp_arrays_are_on_their_devices_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    stream = sim.stream()
    x, out = (fakes.WarpArray(producer, arrays(), CudaStream(stream)) for _ in range(2))
    launch(mod, x, out)
    assert sim.enqueued() == [("launch", stream)]
    assert x.asked == out.asked == []
    sim.clear()
    launch(mod, arrays(), out)
    assert sim.enqueued() == joined(arrays.stream, stream)
    sim.begin(stream)
    launch(mod, x, out)
    assert sim.end(stream) == 1


# ---- CuPy -------------------------------------------------------------------------------------------


def test_cupys_entry_is_called(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, monkeypatch: Any
) -> None:
    cupy = fakes.CuPy(monkeypatch, {0: sim.stream()})
    Array = cupy.array_type()
    x, out = Array(producer, arrays()), Array(producer, arrays())
    launch(mod, x, out)
    assert sim.enqueued() == [("launch", cupy.streams[0])]
    assert cupy.entry_calls == 2
    assert [a["stream"] for a in x.asked + out.asked] == [-1, -1]
    cupy.streams[0] = sim.stream()
    sim.clear()
    launch(mod, arrays(), out)
    assert sim.enqueued() == joined(arrays.stream, cupy.streams[0])


def test_with_several_devices_the_arrays_device_counts(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, monkeypatch: Any
) -> None:
    cupy = fakes.CuPy(monkeypatch, {0: sim.stream(), 1: sim.stream(device=1)})
    Array = cupy.array_type()
    for device in (1, 0):
        sim.clear()
        x, out = (Array(producer, arrays(device=(2, device))) for _ in range(2))
        launch(mod, x, out)
        assert sim.enqueued() == [("launch", cupy.streams[device])]
        assert sim.launch().stream_context == sim.lib.sim_primary_context(device)
    assert cupy.entry_calls == 0


# ---- Paddle ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ("__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"),
        ("__c_dlpack_exchange_api__",),
    ],
)
def test_paddles_table_has_two_names(
    mod: ons.Module, sim: Sim, producer: Any, names: tuple[str, ...]
) -> None:
    stream = sim.stream()
    Tensor = fakes.paddle_tensor(producer, 1, names)
    producer.set_stream(1, stream, 0)
    x, out = (Tensor(0x5000, (4,), device=CUDA) for _ in range(2))
    launch(mod, x, out)
    assert sim.enqueued() == [("launch", stream)]
    assert producer.counts(1)["borrows"] >= 2
    out.stop_gradient = False
    launch(mod, out, x)
    with pytest.raises(ons.ArgumentValueError, match="'out'.*detach"):
        launch(mod, x, out)


# ---- what is on the caller's stream ---------------------------------------------------------------------


@pytest.fixture(params=["jax", "view", "buffer"])
def homeless(request: Any, producer: Any) -> Any:
    if request.param == "view":
        return fakes.strided_memory_view(producer)
    return fakes.JaxBuffer if request.param == "jax" else fakes.CoreBuffer


@pytest.mark.parametrize("how", ["stream", "use_stream"])
def test_the_callers_stream_is_theirs(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, homeless: Any, how: str
) -> None:
    stream = sim.stream()
    x, out = homeless(producer, arrays()), homeless(producer, arrays())
    if how == "stream":
        launch(mod, x, out, stream=stream)
    else:
        with ons.use_stream(stream):
            launch(mod, x, out)
    assert ("launch", stream) in sim.enqueued()
    assert all(step[1] == stream for step in sim.enqueued())
    assert [a["stream"] for a in x.asked + out.asked] == [-1, -1]
    sim.clear()
    launch(mod, x, arrays(), stream=stream)
    assert sim.enqueued()[: len(joined(stream, arrays.stream))] == joined(stream, arrays.stream)


def test_without_a_stream_they_are_refused(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, homeless: Any
) -> None:
    """Asking them with a stream would order nothing."""
    for args in (
        (homeless(producer, arrays()), arrays()),
        (arrays(), homeless(producer, arrays())),
    ):
        with pytest.raises(ons.OrderError, match=r"stream"):
            launch(mod, *args)
    with pytest.raises(ons.OrderError, match="'x'.*knows no stream.*use_stream"):
        launch(mod, homeless(producer, arrays()), arrays())
    assert sim.enqueued() == []
    mod.scale.launch((2.0, homeless(producer, arrays()), arrays(), 4), grid=1, block=1,
                     order="trust")  # fmt: skip
    assert sim.enqueued()[0] == ("launch", arrays.stream)
    assert all(step[1] == arrays.stream for step in sim.enqueued()), "nothing is joined"


def test_they_are_captured_with_the_callers_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, homeless: Any
) -> None:
    stream = sim.stream()
    sim.begin(stream)
    launch(mod, homeless(producer, arrays()), homeless(producer, arrays()), stream=stream)
    assert sim.end(stream) == 1


def test_inputs_of_a_jax_callback_are_read_only(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    x = fakes.JaxBuffer(producer, arrays.type(0x7000, (4,), device=CUDA, flags=READ_ONLY))
    stream = sim.stream()
    launch(mod, x, arrays(), stream=stream)
    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        launch(mod, arrays(), x, stream=stream)


@pytest.mark.parametrize(("kind", "kept"), [("view", True), ("buffer", True), ("jax", False)])
def test_memory_that_no_stream_frees_is_kept(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, kind: str, kept: bool
) -> None:
    stream = sim.stream(device=1)

    def other() -> Any:
        return arrays(device=(2, 1))

    Type = {
        "view": fakes.strided_memory_view(producer),
        "buffer": fakes.CoreBuffer,
        "jax": fakes.JaxBuffer,
    }[kind]
    arrays.use(stream)
    launch(mod, Type(producer, other()), other(), stream=stream)
    gc.collect()
    assert producer.counts()["deleted"] == (0 if kept else 1)
    sim.complete(stream)
    launch(mod, other(), other())
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


# ---- JAX ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["unknown", "registered"])
def jax_array(request: Any, arrays: Arrays, producer: Any) -> Any:
    """JAX arrays, of a class of their own, and maybe with a stream that the caller tells."""
    ArrayImpl = fakes.passes_for(fakes.ArrayImpl, "jaxlib._jax", "ArrayImpl")
    if request.param == "registered":
        ons.register_producer(ArrayImpl, stream=lambda a: arrays.stream)
    return lambda: ArrayImpl(producer, arrays())


@pytest.mark.parametrize("order", ["join", "strict", "trust"])
def test_jax_is_never_asked_with_minus_one(
    mod: ons.Module, sim: Sim, arrays: Arrays, jax_array: Any, order: str
) -> None:
    x = jax_array()
    mod.scale.launch((2.0, x, arrays(), 4), grid=1, block=1, order=order)
    assert [a["stream"] for a in x.asked] == [arrays.stream]
    gc.collect()
    assert arrays.producer.counts()["deleted"] == 0, "held until the device is past it"
    t = ons.from_dlpack(x, stream=0)
    assert x.asked[1]["stream"] == 1, "DLPack's name for it"
    t.release()


@pytest.mark.parametrize("order", ["join", "strict", "trust"])
def test_jax_in_a_capture_is_not_asked(
    mod: ons.Module, sim: Sim, arrays: Arrays, jax_array: Any, order: str
) -> None:
    """It would make the stream wait for one that is not captured, which ends the capture."""
    x, y = jax_array(), DLPackProducer(arrays.producer, arrays())
    sim.begin(arrays.stream)
    for args in ((2.0, x, arrays(), 4), (2.0, arrays(), ons.like(x), 4)):
        with pytest.raises(ons.OrderError, match=r"'(x|out)'.*captured"):
            mod.scale.launch(args, grid=1, block=1, order=order)
    with pytest.raises(ons.OrderError, match=r"ArrayImpl.*captured.*import it before"):
        ons.from_dlpack(x, stream=arrays.stream)
    assert x.asked == [] and sim.alive(arrays.stream)
    if order == "trust":
        mod.scale.launch((2.0, y, arrays(), 4), grid=1, block=1, order=order)
        assert [a["stream"] for a in y.asked] == [-1]
    assert sim.end(arrays.stream) == (order == "trust")


def test_nobody_is_asked_beside_jax_in_a_capture(
    sim: Sim, arrays: Arrays, jax_array: Any, reads: Any
) -> None:
    first = DLPackProducer(arrays.producer, arrays())
    sim.begin(arrays.stream)
    with pytest.raises(ons.OrderError, match=r"'y'.*ArrayImpl"):
        reads.launch((first, jax_array()), grid=1, block=1, order="trust", stream=arrays.stream)
    assert first.asked == []
    assert sim.end(arrays.stream) == 0


# ---- the interface, version 3, without a stream -----------------------------------------------------------


@pytest.mark.parametrize("order", ["join", "trust"])
def test_interfaces_that_need_no_order_are_held(
    mod: ons.Module, sim: Sim, arrays: Arrays, memory: Any, order: str
) -> None:
    """No stream's order keeps their memory from being used again."""
    for captured in (False, True) if order == "trust" else (False,):
        x = fakes.WithInterface(memory())
        gone = weakref.ref(x)
        sim.clear()
        if captured:
            sim.begin(arrays.stream)
        mod.scale.launch((2.0, x, arrays(), 4), grid=1, block=1, order=order)
        assert sim.enqueued()[0] == ("launch", arrays.stream)
        del x
        gc.collect()
        ons.collect()
        assert gone() is not None
        if captured:
            assert sim.end(arrays.stream) == 1
        sim.complete(arrays.stream)
        ons.collect()
        assert gone() is None
    x = fakes.WithInterface(memory())
    with pytest.raises(ons.ArgumentError):
        launch(mod, x, "refused")
    gone = weakref.ref(x)
    del x
    assert gone() is None


def test_interfaces_on_a_stream_are_not_held(
    mod: ons.Module, sim: Sim, arrays: Arrays, memory: Any
) -> None:
    for make, stream in ((fakes.WithInterface, arrays.stream), (fakes.GPUArray, None)):
        x = make(memory(), stream)
        gone = weakref.ref(x)
        launch(mod, x, arrays())
        del x
        assert gone() is None


# ---- Arrow ---------------------------------------------------------------------------------------------


def event_of(sim: Sim, device: int = 0) -> int:
    event = ctypes.c_void_p()
    current = sim.lib.sim_get_current()
    sim.lib.sim_set_current(ctypes.c_void_p(sim.lib.sim_primary_context(device)))
    assert sim.lib.cuEventCreate(ctypes.byref(event), 2) == 0
    sim.lib.sim_set_current(ctypes.c_void_p(current))
    assert event.value is not None
    return event.value


def record(sim: Sim, event: int, stream: int) -> None:
    assert sim.lib.cuEventRecord(ctypes.c_void_p(event), ctypes.c_void_p(stream)) == 0


def test_arrow_arrays_are_waited_for(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    stream, event = sim.stream(), event_of(sim)
    record(sim, event, stream)
    x = fakes.Arrow(0x7000, offset=2, event=event)
    sim.clear()
    launch(mod, x, arrays())
    steps = sim.enqueued()
    assert steps[:2] == [("wait", arrays.stream), ("launch", arrays.stream)]
    assert sim.launch().value(1) == 0x7008, "the offset is in elements"
    with pytest.raises(ons.ArgumentValueError, match="'out'.*read-only"):
        launch(mod, arrays(), x)
    sim.clear()
    launch(mod, fakes.Arrow(0x7000), arrays())
    assert sim.enqueued()[0] == ("launch", arrays.stream), "no event, nothing to wait for"


def test_two_arrow_arrays_alone(reads: Any, sim: Sim) -> None:
    stream, first, second = sim.stream(), event_of(sim), event_of(sim)
    record(sim, first, stream)
    record(sim, second, stream)
    sim.clear()
    reads[1, 1](fakes.Arrow(0x7000, event=first), fakes.Arrow(0x8000, event=second))
    assert sim.enqueued()[:3] == [("wait", 0), ("wait", 0), ("launch", 0)]


def test_arrow_arrays_are_released_once_the_device_is_past(
    mod: ons.Module, sim: Sim, arrays: Arrays
) -> None:
    arrays.use(sim.stream(device=1))
    x = fakes.Arrow(0x7000, device=(2, 1))
    out = arrays(device=(2, 1))
    launch(mod, x, out)
    launch(mod, out, out)
    assert x.released == 0
    sim.complete(arrays.stream)
    launch(mod, out, out)
    assert x.released == 1
    with pytest.raises(ons.ArgumentTypeError, match="'out'"):
        launch(mod, x, "half a hand-over")
    assert x.released == 2, "refused launches release at once"


def test_arrow_arrays_in_a_capture(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    x = fakes.Arrow(0x7000)
    sim.begin(arrays.stream)
    with pytest.raises(ons.OrderError, match="'x'.*captured"):
        launch(mod, x, arrays())
    assert x.released == x.asked
    assert sim.alive(arrays.stream)
    launch(mod, arrays(), arrays())
    assert sim.end(arrays.stream) == 1


@pytest.mark.parametrize("order", ["join", "strict", "trust"])
@pytest.mark.parametrize("how", ["array", "stream", "use_stream"])
def test_arrow_events_in_a_capture(
    mod: ons.Module, sim: Sim, arrays: Arrays, how: str, order: str
) -> None:
    """Waiting for one would end the capture."""
    event, given = event_of(sim), event_of(sim)
    record(sim, event, sim.stream())
    stream = arrays.stream if how == "array" else sim.stream()
    sim.begin(stream)
    record(sim, given, stream)
    sim.clear()
    with ons.use_stream(stream if how == "use_stream" else None):
        for wait in (None, given):
            x = fakes.Arrow(0x7000, event=event)
            arguments = (2.0, x, x if order == "trust" and how != "array" else arrays(), 4)
            with pytest.raises(ons.Error, match=r"captured|read-only"):
                mod.scale.launch(arguments, grid=1, block=1, wait=wait, order=order,
                                 stream=stream if how == "stream" else None)  # fmt: skip
            assert x.released == x.asked and sim.enqueued() == [] and sim.alive(stream)
        with pytest.raises(ons.OrderError, match=r"captured|capture"):
            ons.from_dlpack(fakes.Arrow(0x7000, event=event), stream=stream)
    assert sim.end(stream) == 0


def test_arrow_events_and_graphs(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    x = fakes.Arrow(0x7000, event=event_of(sim))
    with pytest.raises(ons.Error, match=r"events are given for a node"):
        mod.scale.launch((2.0, x, arrays(), 4), grid=1, block=1, graph=1)
    assert x.released == x.asked and sim.enqueued() == []


# ---- ons.register_producer --------------------------------------------------------------------------------


class Mine(DLPackProducer):
    where: Any = None
    calls = 0

    def current(self) -> Any:
        type(self).calls += 1
        if isinstance(self.where, Exception):
            raise self.where
        return self.where


@pytest.fixture
def mine() -> Any:
    return type("Mine", (Mine,), {})


def test_registering_tells_the_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, mine: Any
) -> None:
    x = mine(producer, arrays())
    with pytest.raises(ons.OrderError, match=r"register_producer"):
        launch(mod, arrays(), x)
    ons.register_producer(mine, stream=lambda a: a.current())
    stream = sim.stream()
    for mine.where in (stream, CudaStream(stream)):
        sim.clear()
        launch(mod, arrays(), x)
        assert sim.enqueued() == joined(arrays.stream, stream)
        sim.clear()
        launch(mod, x, arrays())
        assert sim.enqueued() == joined(stream, arrays.stream)
    assert mine.calls == 4
    assert {a["stream"] for a in x.asked} == {-1}
    sim.begin(stream)
    launch(mod, x, x)
    assert sim.end(stream) == 1
    mine.where = None
    with pytest.raises(ons.OrderError, match="'out'"):
        launch(mod, arrays(), x)
    launch(mod, x, arrays())
    assert x.asked[-1]["stream"] == arrays.stream


@pytest.mark.parametrize("answer", [RuntimeError("no stream today"), "0", -1, True, 1.0])
def test_wrong_answers_are_the_producers(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, mine: Any, answer: Any
) -> None:
    ons.register_producer(mine, stream=lambda a: a.current())
    mine.where = answer
    x = mine(producer, arrays())
    with pytest.raises(ons.ArgumentError, match="'x'.*Mine.*stream") as caught:
        launch(mod, x, arrays())
    if isinstance(answer, Exception):
        assert caught.value.__cause__ is answer
    assert sim.enqueued() == [] and x.asked == []


def test_registering_again_replaces(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, mine: Any
) -> None:
    first, second = sim.stream(), sim.stream()
    ons.register_producer(mine, stream=lambda a: first)
    x = mine(producer, arrays())
    launch(mod, x, x)
    ons.register_producer(mine, stream=lambda a: second)
    gc.collect()
    launch(mod, x, x)
    assert [r.stream for r in sim.launches()] == [first, second]
    ons.register_producer(mine, read_only=True)
    launch(mod, x, arrays())
    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        launch(mod, arrays(), x)


def test_registering_may_happen_inside_the_function(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, mine: Any
) -> None:
    stream = sim.stream()

    def first(a: Any) -> Any:
        ons.register_producer(mine, stream=lambda a: stream)
        gc.collect()
        return stream

    ons.register_producer(mine, stream=first)
    del first
    x = mine(producer, arrays())
    for _ in range(3):
        launch(mod, x, x)
    assert [r.stream for r in sim.launches()] == [stream] * 3


def test_registering_goes_for_subclasses_and_tables(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    """A table's stream gives way, also where the fast path has taken the type before."""
    x = arrays()
    for _ in range(3):
        launch(mod, x, x)
    stream = sim.stream()
    Sub = type("Sub", (arrays.type,), {})
    ons.register_producer(arrays.type, stream=lambda a: stream)
    y = Sub(0x9000, (4,), device=CUDA)
    sim.clear()
    for args in ((x, x), (y, y), (x, y)):
        launch(mod, *args)
    assert [step for step in sim.enqueued()] == [("launch", stream)] * 3
    ons.register_producer(arrays.type, read_only=True)
    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        launch(mod, x, x)
    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        launch(mod, x, y)
    ons.register_producer(arrays.type)
    sim.clear()
    launch(mod, x, y)
    assert sim.enqueued() == [("launch", arrays.stream)]


def test_registering_chooses_the_protocol(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    class Many(DLPackProducer, fakes.WithInterface):
        def __init__(self) -> None:
            DLPackProducer.__init__(self, producer, arrays.type(0xD000, (4,), device=CUDA))
            self.interface = fakes.WithInterface(0xC000, arrays.stream).interface

    x = Many()
    seen = []
    for protocol in ("dlpack", "cuda_array_interface", None):
        ons.register_producer(Many, protocol=protocol, stream=lambda a: arrays.stream)
        sim.clear()
        try:
            launch(mod, x, arrays())
            seen.append(sim.launch().value(1))
        except ons.ArgumentTypeError as error:
            assert "which of several GPUs" in str(error)
            seen.append("device")
    assert seen == [0xD000, "device", 0xC000]


# ---- streams -----------------------------------------------------------------------------------------------


class Stream:
    """torch.Stream, as torch.accelerator.current_stream() gives it."""

    def __init__(self, kind: str, handle: int) -> None:
        self.device = type("device", (), {"type": kind, "index": 0})()
        self.native_handle = handle


def test_generic_streams_of_torch(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    stream = sim.stream()
    launch(mod, arrays(), arrays(), stream=Stream("cuda", stream))
    assert sim.enqueued() == joined(stream, arrays.stream)


def test_numpy_among_device_arrays_says_which(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    with pytest.raises(ons.ArgumentError, match="'x'"):
        launch(mod, np.zeros(4, np.float32), arrays())
    assert sim.enqueued() == []


# ---- torch without a table that can be trusted ---------------------------------------------------------------


@pytest.fixture
def torch(monkeypatch: Any) -> Any:
    """The modules of torch that are looked at; on ROCm torch.version.hip is a text."""
    module, version = ModuleType("torch"), ModuleType("torch.version")
    module._C, module.version = ModuleType("torch._C"), version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "torch.version", version)
    return module


def torch_tensor(base: Any, producer: Any) -> Any:
    """torch/_tensor.py: what is asked of a tensor, with a table or without."""

    class Tensor(base):  # type: ignore[misc]
        requires_grad = False
        asked: list[Any] = []

        @property
        def device(self) -> Any:
            return type("device", (), {"type": "cuda", "index": self.device_id})()

        def is_neg(self) -> bool:
            return False

        is_conj = is_neg

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.device_type, self.device_id

        def __dlpack__(self, **options: Any) -> Any:
            self.asked.append(options["stream"])
            return producer.capsule(self, True)

    return fakes.passes_for(Tensor, "torch", "Tensor")


@pytest.mark.parametrize(
    ("version", "hip", "table", "by_table"),
    [
        ("2.13.0+cu130", None, True, True),
        ("2.11.0+rocm7.1", "7.1", True, False),
        ("2.13.0+rocm7.2", "7.2", True, True),
        ("2.9.1+cu128", None, False, False),
    ],
)
def test_torchs_raw_stream_where_the_table_cannot_tell(
    mod: ons.Module, sim: Sim, producer: Any, torch: Any,
    version: str, hip: Any, table: bool, by_table: bool,
) -> None:  # fmt: skip
    raw, of_table = sim.stream(), sim.stream()
    torch.__version__, torch.version.hip = version, hip
    torch._C._cuda_getCurrentRawStream = {0: raw}.__getitem__
    Tensor = torch_tensor(producer.make_type(2, capsule=table), producer)
    producer.set_stream(2, of_table, 0)
    x, out = (Tensor(0x5000, (4,), device=CUDA) for _ in range(2))
    launch(mod, x, out)
    assert sim.enqueued() == [("launch", of_table if by_table else raw)]
    assert Tensor.asked == ([] if by_table else [-1, -1])
