"""Graphs and events of the caller on the stand-in driver; run by test_simgpu.py in a process of its
own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from producer_fakes import Arrow
from python_producers import DLPackProducer
from simgpu_machine import Arrays, Sim

import onstream as ons


class Driver:
    """What a caller of the driver uses."""

    def __init__(self, sim: Sim) -> None:
        self.lib = sim.lib

    def graph(self) -> int:
        handle = ctypes.c_void_p()
        assert self.lib.cuGraphCreate(ctypes.byref(handle), ctypes.c_uint(0)) == 0
        assert handle.value
        return handle.value

    def destroy(self, graph: int) -> None:
        self.lib.sim_graph_destroy(ctypes.c_void_p(graph))

    def instantiate(self, graph: int) -> int:
        handle = ctypes.c_void_p()
        result = self.lib.cuGraphInstantiateWithFlags(
            ctypes.byref(handle), ctypes.c_void_p(graph), ctypes.c_ulonglong(0)
        )
        assert result == 0 and handle.value
        return handle.value

    def event(self) -> int:
        handle = ctypes.c_void_p()
        assert self.lib.cuEventCreate(ctypes.byref(handle), ctypes.c_uint(2)) == 0
        assert handle.value
        return handle.value

    def dependencies(self, node: int) -> list[int]:
        count = ctypes.c_size_t(8)
        nodes = (ctypes.c_void_p * 8)()
        get = self.lib.cuGraphNodeGetDependencies_v2
        assert get(ctypes.c_void_p(node), nodes, None, ctypes.byref(count)) == 0
        return [n for n in nodes[: count.value] if n is not None]

    def kernels(self, graph: int) -> int:
        count: int = self.lib.sim_graph_kernel_count(ctypes.c_void_p(graph))
        return count


@pytest.fixture
def driver(sim: Sim) -> Driver:
    return Driver(sim)


@pytest.fixture
def graph(driver: Driver, sim: Sim) -> Iterator[int]:
    handle = driver.graph()
    sim.clear()
    yield handle


def add(mod: ons.Module, x: Any, out: Any, graph: Any, **options: Any) -> Any:
    return mod.scale.launch((2.0, x, out, 77), grid=3, block=32, graph=graph, **options)


def calls(sim: Sim) -> list[tuple[str, int | None, int | None]]:
    """(function, handle, stream) of what was done to streams."""
    seen = [sim.lib.sim_record_at(ctypes.c_size_t(i)).contents for i in range(count(sim))]
    wanted = (b"cuLaunchKernel", b"cuEventRecord", b"cuStreamWaitEvent")
    return [
        (r.function.decode().removesuffix("Ex"), r.handle, r.stream)
        for r in seen
        if r.function.startswith(wanted)
    ]


def count(sim: Sim) -> int:
    number: int = sim.lib.sim_record_count()
    return number


# ---- graphs ------------------------------------------------------------------------------------------


def test_a_node_of_a_graph(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, driver: Driver, graph: int
) -> None:
    others = Arrays(producer, sim, slot=1)
    x, out = arrays(4), others(5)
    first = add(mod, x, out, graph)
    assert type(first) is int and first != 0
    assert calls(sim) == [], "no stream has to do with it"
    second = add(mod, x, out, graph, dependencies=[first])
    third = add(mod, x, out, graph, dependencies=(first, second))
    assert add(mod, x, out, graph, dependencies=third) not in (first, second, third)
    assert driver.dependencies(first) == []
    assert driver.dependencies(second) == [first]
    assert sorted(driver.dependencies(third)) == sorted([first, second])
    assert driver.kernels(graph) == 4


def test_the_first_launch_of_a_kernel(
    mod: ons.Module, sim: Sim, arrays: Arrays, driver: Driver, graph: int
) -> None:
    fresh = ons.Module(mod.source + "// not seen before\n")
    stream = sim.stream()
    sim.begin(stream)
    assert add(fresh, arrays(), arrays(), graph) != 0
    assert sim.alive(stream)
    sim.end(stream)
    assert driver.kernels(graph) == 1


def test_a_block_of_use_stream_is_for_streams(
    mod: ons.Module, sim: Sim, arrays: Arrays, graph: int
) -> None:
    with ons.use_stream(sim.stream()):
        assert add(mod, arrays(), arrays(), graph) != 0
    assert calls(sim) == []


class Handle:
    def __init__(self, handle: Any) -> None:
        self.handle = handle


class TorchGraph:
    def __init__(self, handle: int) -> None:
        self.raw = handle

    def raw_cuda_graph(self) -> int:
        return self.raw

    def raw_cuda_graph_exec(self) -> int:
        return self.raw


class CupyGraph:
    def __init__(self, handle: int) -> None:
        self.graph = self.graphExec = handle


class Bindings:
    """As cuda.bindings' objects are."""

    def __init__(self, handle: int) -> None:
        self.value_of = handle

    def __int__(self) -> int:
        return self.value_of


HANDLES = [int, ctypes.c_void_p, Bindings]


@pytest.mark.parametrize(
    "kind", [*HANDLES, Handle, lambda h: Handle(Bindings(h)), TorchGraph, CupyGraph]
)
def test_what_may_be_a_graph(
    mod: ons.Module, sim: Sim, arrays: Arrays, driver: Driver, graph: int, kind: Any
) -> None:
    node = add(mod, arrays(), arrays(), kind(graph))
    assert driver.kernels(graph) == 1
    executable = driver.instantiate(graph)
    mod.scale.update_node(kind(executable), node, (3.0, arrays(), arrays(), 5), grid=1, block=1)
    assert sim.calls("cuGraphExecKernelNodeSetParams_v2") == 1


@pytest.mark.parametrize(
    ("graph", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (2**64, ValueError),
        (TorchGraph(0), ValueError),
        (ctypes.c_void_p(), ValueError),
        (True, TypeError),
        (1.5, TypeError),
        ("1", TypeError),
        (object(), TypeError),
        ((1, 2), TypeError),
        (Handle("1"), TypeError),
    ],
)
def test_what_is_no_graph(
    mod: ons.Module, sim: Sim, arrays: Arrays, graph: Any, error: Any
) -> None:
    args = (2.0, arrays(), arrays(), 4)
    with pytest.raises(error, match="kernel 'scale'.*graph"):
        mod.scale.launch(args, grid=1, block=1, graph=graph)
    with pytest.raises(error, match="kernel 'scale'.*graph_exec"):
        mod.scale.update_node(graph, 16, args, grid=1, block=1)
    assert sim.calls("cuGraphAddKernelNode_v2") == 0


def test_what_raises_inside_passes_through(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    class Broken:
        def raw_cuda_graph(self) -> int:
            raise RuntimeError("keep_graph is False")

    with pytest.raises(RuntimeError, match="keep_graph is False"):
        add(mod, arrays(), arrays(), Broken())


def test_combinations_that_make_no_sense(
    mod: ons.Module, sim: Sim, arrays: Arrays, graph: int
) -> None:
    for name, value in (("stream", arrays.stream), ("order", "join"), ("wait", 16),
                        ("signal", [16])):  # fmt: skip
        with pytest.raises(TypeError, match=f"'scale'.*{name}=.*dependencies="):
            add(mod, arrays(), arrays(), graph, **{name: value})
    with pytest.raises(TypeError, match="'scale'.*dependencies=.*graph="):
        add(mod, arrays(), arrays(), None, dependencies=[16])
    for node in (0, None, "x"):
        with pytest.raises((TypeError, ValueError), match="'scale'.*node"):
            add(mod, arrays(), arrays(), graph, dependencies=[node])
    assert sim.calls("cuGraphAddKernelNode_v2") == 0


def test_outputs_are_the_callers(mod: ons.Module, sim: Sim, arrays: Arrays, graph: int) -> None:
    x = arrays()
    for output in (ons.like(x), ons.empty(4, "float32")):
        with pytest.raises(ons.ArgumentValueError, match=r"argument 3 .*'out'.*output"):
            add(mod, x, output, graph)
        with pytest.raises(ons.ArgumentValueError, match=r"argument 3 .*'out'.*output"):
            mod.scale.update_node(graph, 16, (2.0, x, output, 4), grid=1, block=1)
    assert sim.calls("cuGraphAddKernelNode_v2") == 0


def test_arguments_are_checked(mod: ons.Module, sim: Sim, arrays: Arrays, graph: int) -> None:
    with pytest.raises(ons.ArgumentError, match="'out'.*cuda:1"):
        add(mod, arrays(), arrays(device=(2, 1)), graph)
    with pytest.raises(ons.ArgumentError, match="'a'"):
        mod.scale.launch(("x", arrays(), arrays(), 4), grid=1, block=1, graph=graph)
    with pytest.raises(ons.ArgumentError):
        mod.scale.launch((1.0, arrays()), grid=1, block=1, graph=graph)
    assert sim.calls("cuGraphAddKernelNode_v2") == 0


def test_the_cpu_has_no_graphs(mod: ons.Module, graph: int) -> None:
    import numpy as np

    x = np.zeros(4, np.float32)
    with pytest.raises(ons.UnsupportedError, match="no graphs"):
        add(mod, x, x, graph)


def test_producers_are_asked_for_no_order(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, driver: Driver, graph: int
) -> None:
    """Also written: the order is the caller's. What was handed over, the graph keeps."""
    before = producer.counts()
    p, q = DLPackProducer(producer, arrays()), DLPackProducer(producer, arrays())
    node = add(mod, p, q, graph)
    assert [a["stream"] for a in p.asked + q.asked] == [-1, -1]
    assert calls(sim) == []
    for x in (p, q):
        x.capsules.clear()
    after = producer.counts()
    assert after["handed_out"] - before["handed_out"] == 2
    assert after["deleted"] == before["deleted"]

    executable = driver.instantiate(graph)
    mod.scale.update_node(executable, node, (2.0, p, q, 4), grid=1, block=1)
    for x in (p, q):
        x.capsules.clear()
    assert producer.counts()["handed_out"] - after["handed_out"] == 2
    assert producer.counts()["deleted"] - after["deleted"] == 2, "gone with the call"
    driver.lib.cuGraphExecDestroy(ctypes.c_void_p(executable))
    driver.destroy(graph)
    mod.scale[1, 1](2.0, arrays(), arrays(), 4)
    counts = producer.counts()
    assert counts["deleted"] - before["deleted"] == 4


class ArrayImpl(DLPackProducer):
    """Passes for an array of JAX."""


ArrayImpl.__module__ = "jaxlib._jax"


def test_jax_arrays_need_a_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, graph: int
) -> None:
    x = ArrayImpl(producer, arrays())
    with pytest.raises(ons.OrderError, match="'x'.*JAX.*stream"):
        add(mod, x, arrays(), graph)
    assert x.asked == []


def test_driver_errors(mod: ons.Module, sim: Sim, arrays: Arrays, graph: int) -> None:
    sim.lib.sim_inject(b"cuGraphAddKernelNode_v2", 1, 1)
    with pytest.raises(ons.DeviceError, match="'scale'.*cuGraphAddKernelNode") as caught:
        add(mod, arrays(), arrays(), graph)
    assert caught.value.code == 1


# ---- updates -----------------------------------------------------------------------------------------


def test_updating_a_node(
    mod: ons.Module, sim: Sim, arrays: Arrays, driver: Driver, graph: int
) -> None:
    node = add(mod, arrays(4), arrays(5), graph)
    executable = driver.instantiate(graph)
    sim.clear()
    x = arrays(7)
    done = mod.scale.update_node(executable, node, (4.0, x, arrays(), 99), grid=(2, 5), block=8)
    assert done is None
    record = sim.lib.sim_last(b"cuGraphExecKernelNodeSetParams_v2").contents
    assert record.value(1) == x.data and record.value(3) == 99
    assert calls(sim) == []
    with pytest.raises(ons.ArgumentValueError, match="'scale'.*grid is zero"):
        mod.scale.update_node(executable, node, (4.0, x, x, 9), grid=0, block=8)
    with pytest.raises(ons.ArgumentError, match="'n'"):
        mod.scale.update_node(executable, node, (4.0, x, x, 9.5), grid=1, block=8)
    with pytest.raises(TypeError, match="'scale'.*grid= and block="):
        mod.scale.update_node(executable, node, (4.0, x, x, 9))
    assert sim.calls("cuGraphExecKernelNodeSetParams_v2") == 1


# ---- events ------------------------------------------------------------------------------------------


class TorchEvent:
    def __init__(self, handle: int) -> None:
        self.cuda_event = handle


class CupyEvent:
    def __init__(self, handle: int) -> None:
        self.ptr = handle


EVENTS = [*HANDLES, TorchEvent, CupyEvent, Handle, lambda h: Handle(ctypes.c_void_p(h)),
          lambda h: Handle(Bindings(h))]  # fmt: skip


@pytest.mark.parametrize("kind", EVENTS)
def test_events(mod: ons.Module, sim: Sim, arrays: Arrays, driver: Driver, kind: Any) -> None:
    waited, also, signalled = driver.event(), driver.event(), driver.event()
    stream = arrays.stream
    args = (2.0, arrays(), arrays(), 4)
    sim.clear()
    result = mod.scale.launch(
        args, grid=1, block=1, wait=[kind(waited), also], signal=kind(signalled)
    )
    assert result is None
    names = [(name, s) for name, _, s in calls(sim)]
    assert names == [("cuStreamWaitEvent", stream), ("cuStreamWaitEvent", stream),
                     ("cuLaunchKernel", stream), ("cuEventRecord", stream)]  # fmt: skip
    handles = [handle for name, handle, _ in calls(sim) if name != "cuLaunchKernel"]
    assert handles == [waited, also, signalled]


def test_no_events(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    for nothing in (None, [], ()):
        sim.clear()
        args = (2.0, arrays(), arrays(), 4)
        mod.scale.launch(args, grid=1, block=1, wait=nothing, signal=nothing)
        assert [name for name, _, _ in calls(sim)] == ["cuLaunchKernel"]


def test_events_and_outputs(mod: ons.Module, sim: Sim, arrays: Arrays, driver: Driver) -> None:
    event = driver.event()
    x = arrays()
    sim.clear()
    out = mod.scale.launch((2.0, x, ons.like(x), 4), grid=1, block=1, signal=event)
    assert out is not None
    assert calls(sim)[-1][:2] == ("cuEventRecord", event)


def test_an_arguments_own_event_comes_too(
    mod: ons.Module, sim: Sim, arrays: Arrays, driver: Driver, graph: int
) -> None:
    given, arrow, done = driver.event(), driver.event(), driver.event()
    x = Arrow(0x30000, event=arrow)
    sim.clear()
    mod.scale.launch((2.0, x, arrays(), 4), grid=1, block=1, wait=given, signal=done)
    assert [(name, handle) for name, handle, _ in calls(sim) if name != "cuLaunchKernel"][:2] == [
        ("cuStreamWaitEvent", given), ("cuStreamWaitEvent", arrow),
    ]  # fmt: skip
    assert calls(sim)[-1][:2] == ("cuEventRecord", done)
    with pytest.raises(ons.Error, match="'scale'.*events.*dependencies"):
        add(mod, x, arrays(), graph)


@pytest.mark.parametrize(
    ("event", "error", "text"),
    [
        (0, ValueError, "no handle of an event"),
        (TorchEvent(0), ValueError, "at its first record"),
        (-1, ValueError, "no handle of an event"),
        (True, TypeError, "event must be"),
        ("16", TypeError, "event must be"),
        (object(), TypeError, "event must be"),
        ([[16]], TypeError, "event must be"),
    ],
)
def test_what_is_no_event(
    mod: ons.Module, sim: Sim, arrays: Arrays, event: Any, error: Any, text: str
) -> None:
    args = (2.0, arrays(), arrays(), 4)
    for name in ("wait", "signal"):
        with pytest.raises(error, match=f"kernel 'scale'.*{text}"):
            mod.scale.launch(args, grid=1, block=1, **{name: event})
    assert calls(sim) == []


def test_external_events_in_a_capture(
    mod: ons.Module, sim: Sim, arrays: Arrays, driver: Driver
) -> None:
    event = driver.event()
    args = (2.0, arrays(), arrays(), 4)
    sim.begin(arrays.stream)
    sim.clear()
    mod.scale.launch(args, grid=1, block=1, wait=event, signal=event, external=True)
    assert [name for name, _, _ in calls(sim)] == ["cuStreamWaitEvent", "cuLaunchKernel",
                                                   "cuEventRecordWithFlags"]  # fmt: skip
    assert sim.alive(arrays.stream)
    assert sim.end(arrays.stream) >= 1


def test_the_cpu_has_no_events(mod: ons.Module, driver: Driver) -> None:
    import numpy as np

    x = np.zeros(4, np.float32)
    with pytest.raises(ons.UnsupportedError, match="over when it returns"):
        mod.scale.launch((2.0, x, x, 4), grid=1, block=1, wait=driver.event())
