"""Launch attributes and occupancy on the stand-in driver, run by test_simgpu.py in a process of
its own. It is a device of 132 multiprocessors with 2048 threads each."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from simgpu_machine import Arrays, Record, Sim

import onstream as ons

MULTIPROCESSORS = 132
COOPERATIVE, CLUSTER, PROGRAMMATIC, PRIORITY, CARVEOUT = 2, 4, 6, 8, 14


class Attributes(ctypes.Structure):
    """What a record has behind Record's fields."""

    _fields_ = [
        ("count", ctypes.c_uint32),
        ("ids", ctypes.c_uint32 * 8),
        ("values", (ctypes.c_int32 * 3) * 8),
    ]


def attributes_of(record: Record) -> dict[int, tuple[int, ...]]:
    address = ctypes.addressof(record) + Record.parameters.offset + Record.parameters.size
    seen = Attributes.from_address(address)
    return {seen.ids[i]: tuple(seen.values[i]) for i in range(seen.count)}


def calls(sim: Sim, name: str) -> list[Record]:
    count = sim.lib.sim_record_count()
    records = [sim.lib.sim_record_at(ctypes.c_size_t(i)).contents for i in range(count)]
    return [r for r in records if r.function == name.encode()]


@pytest.fixture
def x(producer: Any, sim: Sim) -> Any:
    return Arrays(producer, sim)(4)


def launch(mod: ons.Module, x: Any, **options: Any) -> Any:
    return mod.scale.launch((2.0, x, x, 4), **options)


def test_attributes_reach_the_driver(sim: Sim, mod: ons.Module, x: Any) -> None:
    launch(mod, x, grid=(4, 2), block=64, cluster=(2, 1), cooperative=True, programmatic=True,
           priority=-3, carveout=50)  # fmt: skip
    seen = attributes_of(sim.launch())
    assert seen[CLUSTER] == (2, 1, 1)
    assert {i: seen[i][0] for i in seen if i != CLUSTER} == {
        COOPERATIVE: 1, PROGRAMMATIC: 1, PRIORITY: -3, CARVEOUT: 50,
    }  # fmt: skip


def test_none_are_set_unasked(sim: Sim, mod: ons.Module, x: Any) -> None:
    launch(mod, x, grid=4, block=64, cluster=None, cooperative=False, priority=None)
    assert attributes_of(sim.launch()) == {}
    assert sim.calls("cuOccupancyMaxActiveBlocksPerMultiprocessor") == 0


def test_each_alone(sim: Sim, mod: ons.Module, x: Any) -> None:
    for options, attribute in [({"cluster": 2}, CLUSTER), ({"cooperative": True}, COOPERATIVE),
                               ({"programmatic": True}, PROGRAMMATIC), ({"priority": 0}, PRIORITY),
                               ({"carveout": 0}, CARVEOUT)]:  # fmt: skip
        sim.clear()
        launch(mod, x, grid=4, block=64, **options)
        assert list(attributes_of(sim.launch())) == [attribute]


def test_a_cooperative_grid_that_is_too_large_is_refused(sim: Sim, mod: ons.Module, x: Any) -> None:
    most = MULTIPROCESSORS * 2  # blocks of 1024 threads
    launch(mod, x, grid=most, block=1024, cooperative=True)
    sim.clear()
    with pytest.raises(ons.ArgumentError, match=rf"{most + 1} blocks of 1024 .* at most {most} "):
        launch(mod, x, grid=most + 1, block=1024, cooperative=True)
    with pytest.raises(ons.ArgumentError, match=rf"at most {MULTIPROCESSORS} "):
        launch(mod, x, grid=most, block=1024, shared=150_000, cooperative=True)
    assert sim.launches() == []
    launch(mod, x, grid=most + 1, block=1024)


def test_clusters_are_checked(sim: Sim, mod: ons.Module, x: Any) -> None:
    with pytest.raises(ons.ArgumentError, match=r"grid\.x is 5, .* no multiple of cluster\.x, 2"):
        launch(mod, x, grid=5, block=64, cluster=2)
    with pytest.raises(ons.ArgumentError, match=r"grid\.y is 1, .*cluster\.y, 2"):
        launch(mod, x, grid=4, block=64, cluster=(2, 2))
    with pytest.raises(
        ons.ArgumentError, match=r"16 x 1 x 1 blocks of 64 threads .*8 are portable"
    ):
        launch(mod, x, grid=32, block=64, cluster=16)
    with pytest.raises(ValueError, match="at least one block on each axis"):
        launch(mod, x, grid=4, block=64, cluster=(2, 0))
    assert sim.launches() == []


def test_an_older_device_has_no_clusters(sim: Sim, mod: ons.Module, producer: Any) -> None:
    sim.lib.sim_set_capability(1, 8, 0)
    arrays = Arrays(producer, sim, slot=1)
    arrays.use(sim.stream(device=1))
    y = arrays(4, device=(2, 1))
    with pytest.raises(ons.UnsupportedError, match=r"2 x 1 x 1 blocks; .*sm_80 .*need sm_90"):
        launch(mod, y, grid=4, block=64, cluster=2)
    launch(mod, y, grid=4, block=64, cooperative=True)


def test_numbers_out_of_range(sim: Sim, mod: ons.Module, x: Any) -> None:
    with pytest.raises(ons.ArgumentError, match=r"priority is -6; .* -5 \(first\) to 0 \(last\)"):
        launch(mod, x, grid=4, block=64, priority=-6)
    with pytest.raises(ons.ArgumentError, match="priority is 1;"):
        launch(mod, x, grid=4, block=64, priority=1)
    with pytest.raises(ValueError, match=r"carveout \(percent\) must be in 0 to 100, not 101"):
        launch(mod, x, grid=4, block=64, carveout=101)
    with pytest.raises(TypeError, match="priority must be an int, not str"):
        launch(mod, x, grid=4, block=64, priority="high")
    assert sim.launches() == []


def test_a_refusal_joins_nothing(sim: Sim, mod: ons.Module, producer: Any) -> None:
    arrays, others = Arrays(producer, sim, slot=0), Arrays(producer, sim, slot=2)
    x, y = arrays(4), others(4)
    sim.clear()
    with pytest.raises(ons.ArgumentError, match="cooperative grid of 9999 blocks"):
        mod.scale.launch((2.0, x, y, 4), grid=9999, block=64, cooperative=True)
    assert sim.enqueued() == []
    mod.scale.launch((2.0, x, y, 4), grid=2, block=64, cooperative=True)
    assert [verb for verb, _ in sim.enqueued()] == ["record", "wait", "launch", "record", "wait"]


def test_in_a_capture(sim: Sim, mod: ons.Module, producer: Any) -> None:
    arrays = Arrays(producer, sim)
    x = arrays(4)
    sim.begin(arrays.stream)
    with pytest.raises(ons.ArgumentError):
        launch(mod, x, grid=9999, block=64, cooperative=True)
    launch(mod, x, grid=4, block=64, cooperative=True, cluster=2)
    assert sim.alive(arrays.stream)
    assert sim.end(arrays.stream) == 1


def test_nodes_of_graphs(sim: Sim, mod: ons.Module, x: Any) -> None:
    graph = ctypes.c_void_p()
    sim.lib.cuGraphCreate(ctypes.byref(graph), 0)
    handle = graph.value
    assert handle
    options: dict[str, Any] = {"grid": 4, "block": 64, "graph": handle}
    node = launch(mod, x, cluster=2, priority=-1, cooperative=True, **options)
    seen: dict[int, int] = {}
    for record in calls(sim, "cuGraphKernelNodeSetAttribute"):
        assert record.handle == node
        seen |= {i: values[0] for i, values in attributes_of(record).items()}
    assert seen == {CLUSTER: 2, PRIORITY: -1, COOPERATIVE: 1}
    with pytest.raises(ons.UnsupportedError, match="programmatic dependence .* node of a graph"):
        launch(mod, x, programmatic=True, **options)
    # What the driver refuses leaves no node behind.
    sim.lib.sim_inject(b"cuGraphKernelNodeSetAttribute", 1, 1)
    with pytest.raises(ons.DeviceError, match="cuGraphKernelNodeSetAttribute"):
        launch(mod, x, priority=-1, **options)
    assert sim.lib.sim_graph_kernel_count(graph) == 1
    sim.lib.cuGraphDestroy(graph)


def test_the_legacy_stream_gets_its_context(sim: Sim, mod: ons.Module, x: Any) -> None:
    before = sim.lib.sim_get_current()
    sim.lib.sim_set_current(None)
    try:
        launch(mod, x, grid=4, block=64, cooperative=True, stream=1, order="trust")
        assert sim.launch().current_context == sim.context
        assert sim.lib.sim_get_current() is None
    finally:
        sim.lib.sim_set_current(ctypes.c_void_p(before))


# ---- occupancy, block="auto" ----


def test_occupancy(sim: Sim, mod: ons.Module) -> None:
    assert mod.scale.occupancy(256, device="cuda:0") == {
        "blocks": 8, "fraction": 1.0, "multiprocessors": MULTIPROCESSORS,
    }  # fmt: skip
    assert mod.scale.occupancy((32, 2), 100_000, "cuda:0")["blocks"] == 2
    assert mod.scale.occupancy(40, device="cuda:0")["fraction"] == 1.0  # 32 blocks of 2 warps
    assert mod.scale.occupancy(32, device="cuda:0")["fraction"] == 0.5
    for block in (0, 1025, (1024, 1024, 1024)):
        with pytest.raises(ons.ArgumentError, match="a block has 1 to 1024 threads"):
            mod.scale.occupancy(block, device="cuda:0")
    with pytest.raises(ons.ArgumentError, match="at most 232448 bytes"):
        mod.scale.occupancy(32, 300_000, "cuda:0")


def test_max_potential_block_size(sim: Sim, mod: ons.Module) -> None:
    assert mod.scale.max_potential_block_size(device="cuda:0") == (2 * MULTIPROCESSORS, 1024)
    assert mod.scale.max_potential_block_size(limit=256, device="cuda:0") == (
        8 * MULTIPROCESSORS,
        256,
    )
    assert mod.scale.max_potential_block_size(0, 5000, "cuda:0")[1] == 1024


def test_auto_blocks(sim: Sim, mod: ons.Module, x: Any) -> None:
    for n, blocks in ((1, 1), (1024, 1), (1025, 2), (2**32 - 1, 2**22)):
        sim.clear()
        mod.scale[n, "auto"](2.0, x, x, 4)
        launch(mod, x, threads=n, block="auto")
        assert len(sim.launches()) == 2
        for record in sim.launches():
            assert (list(record.grid), list(record.block)) == ([blocks, 1, 1], [1024, 1, 1])
    # The size is found once.
    assert sim.calls("cuOccupancyMaxPotentialBlockSize") == 0
    sim.clear()
    mod.scale[0, "auto"](2.0, x, x, 4)
    assert sim.launches() == []


def test_threads(sim: Sim, mod: ons.Module, x: Any) -> None:
    launch(mod, x, threads=(100, 7), block=(32, 4))
    assert list(sim.launch().grid) == [4, 2, 1]
    sim.clear()
    launch(mod, x, threads=(2048, 3), block="auto", cluster=2)
    assert (list(sim.launch().grid), list(sim.launch().block)) == ([2, 3, 1], [1024, 1, 1])
    sim.clear()
    launch(mod, x, threads=4096, block="auto", shared=200_000)
    assert sim.launch().shared_bytes == 200_000
    with pytest.raises(ons.ArgumentError, match=r"block\.y is 0"):
        launch(mod, x, threads=64, block=(32, 0))


def test_auto_blocks_in_graphs(sim: Sim, mod: ons.Module, x: Any) -> None:
    graph, instance = ctypes.c_void_p(), ctypes.c_void_p()
    sim.lib.cuGraphCreate(ctypes.byref(graph), 0)
    node = launch(mod, x, threads=3000, block="auto", graph=graph.value)
    record = calls(sim, "cuGraphAddKernelNode_v2")[-1]
    assert (list(record.grid), list(record.block)) == ([3, 1, 1], [1024, 1, 1])
    sim.lib.cuGraphInstantiateWithFlags(ctypes.byref(instance), graph, ctypes.c_ulonglong(0))
    assert instance.value
    mod.scale.update_node(instance.value, node, (2.0, x, x, 4), threads=5000, block="auto")
    assert list(calls(sim, "cuGraphExecKernelNodeSetParams_v2")[-1].grid) == [5, 1, 1]
    sim.lib.cuGraphExecDestroy(instance)
    sim.lib.cuGraphDestroy(graph)


# ---- variables ----

VARIABLES = """
__device__ int table[2][3] = {{1, 2, 3}, {4, 5, 6}};
__constant__ float constants[4];
__global__ void scale(float a, const float* x, float* out, long long n) {
  if (n) out[0] = a * x[0] + constants[0] + table[0][0];
}
"""


@pytest.fixture
def variables(sim: Sim) -> ons.Module:
    module = ons.Module(VARIABLES)
    module.prepare("cuda:0")
    sim.clear()
    return module


def test_variables_are_on_a_stream(sim: Sim, variables: ons.Module) -> None:
    stream = sim.stream()
    table = variables.global_("table", "cuda:0", stream)
    assert (table.shape, table.dtype, table.device) == ((2, 3), "int32", "cuda:0")
    assert (table.stream, table.read_only) == (stream, False)
    assert list((ctypes.c_int * 6).from_address(table.data_ptr)) == [1, 2, 3, 4, 5, 6]
    with ons.use_stream(stream):
        constants = variables.global_("constants", "cuda:0")
    assert (constants.stream, constants.read_only) == (stream, True)
    variables.scale[1, 1](2.0, constants, None, 0)
    assert sim.launch().stream == stream
    with pytest.raises(ons.ArgumentError, match="read-only"):
        variables.scale[1, 1](2.0, constants, constants, 0)
    assert variables.global_("table", "cuda:1").data_ptr != table.data_ptr
    assert variables.global_("table", "cuda:0").stream in (0, None)


def test_constants_are_set(sim: Sim, variables: ons.Module) -> None:
    stream = sim.stream()
    data = (ctypes.c_float * 4)(1, 2, 3, 4)
    variables.set_global("constants", data, "cuda:0", stream)
    copy = calls(sim, "cuMemcpyHtoDAsync_v2")[-1]
    assert (copy.stream, copy.result) == (stream, 0)
    with pytest.raises(ons.ArgumentError, match="16 bytes, 12 are given"):
        variables.set_global("constants", bytes(12), "cuda:0", stream)


def test_constants_are_not_set_in_a_capture(sim: Sim, variables: ons.Module) -> None:
    stream = sim.stream()
    sim.begin(stream)
    with pytest.raises(ons.OrderError, match=r"is being captured: set .* before the capture"):
        variables.set_global("constants", bytes(16), "cuda:0", stream)
    assert sim.calls("cuMemcpyHtoDAsync_v2") == 0
    assert sim.alive(stream)
    assert sim.end(stream) == 0
