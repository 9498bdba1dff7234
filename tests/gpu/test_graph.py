"""Graphs that are built node by node, events around a launch, streams of a green context."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import POINTER, byref, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

import pytest

import onstream as ons

N = 1 << 16
GRID = ons.cdiv(N, 256)
LONG = 200_000_000  # cycles: some 0.1 s

THREAD_LOCAL = 1
NON_BLOCKING = 1
DISABLE_TIMING = 2

# What is used of the driver, by the names that its library exports.
SIGNATURES: dict[str, list[Any]] = {
    "cuGraphCreate": [POINTER(c_void_p), c_uint],
    "cuGraphDestroy": [c_void_p],
    "cuGraphInstantiateWithFlags": [POINTER(c_void_p), c_void_p, c_ulonglong],
    "cuGraphExecDestroy": [c_void_p],
    "cuGraphLaunch": [c_void_p, c_void_p],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventDestroy_v2": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "cuStreamSynchronize": [c_void_p],
    "cuStreamDestroy_v2": [c_void_p],
    "cuStreamBeginCapture_v2": [c_void_p, c_int],
    "cuStreamEndCapture": [c_void_p, POINTER(c_void_p)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetDevResource": [c_int, c_void_p, c_int],
    "cuDevSmResourceSplitByCount": [c_void_p, POINTER(c_uint), c_void_p, c_void_p, c_uint, c_uint],
    "cuDevResourceGenerateDesc": [POINTER(c_void_p), c_void_p, c_uint],
    "cuGreenCtxCreate": [POINTER(c_void_p), c_void_p, c_int, c_uint],
    "cuGreenCtxDestroy": [c_void_p],
    "cuGreenCtxStreamCreate": [POINTER(c_void_p), c_void_p, c_uint, c_int],
}


class Driver:
    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")

    def has(self, name: str) -> bool:
        return hasattr(self.lib, name)

    def result(self, name: str, *args: Any) -> int:
        function = getattr(self.lib, name)
        function.restype = c_int
        function.argtypes = SIGNATURES[name]
        result: int = function(*args)
        return result

    def call(self, name: str, *args: Any) -> None:
        result = self.result(name, *args)
        assert result == 0, f"{name} gave {result}"

    def make(self, name: str, *args: Any) -> int:
        """Of a function whose first argument receives a handle."""
        handle = c_void_p()
        self.call(name, byref(handle), *args)
        assert handle.value
        return handle.value

    def instantiate(self, graph: int) -> int:
        return self.make("cuGraphInstantiateWithFlags", graph, 0)


@pytest.fixture
def driver(torch: Any) -> Driver:
    torch.cuda.synchronize()  # the primary context is current from here on
    return Driver()


@pytest.fixture
def graph(driver: Driver) -> Iterator[int]:
    handle = driver.make("cuGraphCreate", 0)
    yield handle
    driver.call("cuGraphDestroy", handle)


@pytest.fixture
def event(driver: Driver) -> Iterator[int]:
    handle = driver.make("cuEventCreate", DISABLE_TIMING)
    yield handle
    driver.call("cuEventDestroy_v2", handle)


def scale(mod: ons.Module, a: float, x: Any, out: Any, n: int = N, **options: Any) -> Any:
    return mod.scale.launch((a, x, out, n), grid=GRID, block=256, **options)


# ---- graphs ------------------------------------------------------------------------------------------


def test_nodes_and_updates(mod: ons.Module, torch: Any, driver: Driver, graph: int) -> None:
    x = torch.ones(N, device="cuda")
    y, z = torch.zeros(2, N, device="cuda")
    first = scale(mod, 2.0, x, y, graph=graph)
    second = scale(mod, 3.0, y, z, graph=graph, dependencies=[first])
    executable = driver.instantiate(graph)
    stream = torch.cuda.Stream()

    def run() -> None:
        torch.cuda.synchronize()
        driver.call("cuGraphLaunch", executable, stream.cuda_stream)
        torch.cuda.synchronize()

    assert (y == 0).all(), "nothing has run yet"
    run()
    assert (y == 2).all() and (z == 6).all()
    w = torch.zeros(N, device="cuda")
    mod.scale.update_node(executable, second, (5.0, y, w, N // 2), grid=GRID, block=256)
    z.fill_(-1)
    run()
    assert (z == -1).all(), "the node writes elsewhere now"
    assert (w[: N // 2] == 10).all() and (w[N // 2 :] == 0).all()
    with pytest.raises(ons.ArgumentError, match="'out'"):
        mod.scale.update_node(executable, second, (5.0, y, w.double(), N), grid=GRID, block=256)
    run()
    driver.call("cuGraphExecDestroy", executable)


def test_a_zero_grid_still_orders(mod: ons.Module, torch: Any, driver: Driver, graph: int) -> None:
    x = torch.ones(N, device="cuda")
    y, z = torch.zeros(2, N, device="cuda")
    spin = mod.spin.launch((x, LONG), grid=1, block=1, graph=graph)
    first = scale(mod, 2.0, x, y, graph=graph, dependencies=spin)
    nothing = mod.scale.launch((2.0, x, y, 0), grid=0, block=256, graph=graph, dependencies=first)
    scale(mod, 3.0, y, z, graph=graph, dependencies=nothing)
    executable = driver.instantiate(graph)
    torch.cuda.synchronize()
    driver.call("cuGraphLaunch", executable, torch.cuda.Stream().cuda_stream)
    torch.cuda.synchronize()
    assert (z[1:] == 6).all()
    driver.call("cuGraphExecDestroy", executable)


def test_the_code_outlives_its_module(torch: Any, driver: Driver, graph: int) -> None:
    mod = ons.Module("__global__ void put(float* out) { out[threadIdx.x] = 7; }")
    x = torch.zeros(32, device="cuda")
    mod.put.launch((x,), grid=1, block=32, graph=graph)
    executable = driver.instantiate(graph)
    del mod
    torch.cuda.synchronize()
    driver.call("cuGraphLaunch", executable, torch.cuda.Stream().cuda_stream)
    torch.cuda.synchronize()
    assert (x == 7).all()
    driver.call("cuGraphExecDestroy", executable)


def test_torchs_graph(mod: ons.Module, torch: Any, driver: Driver) -> None:
    """A node added to what torch has captured, and one of torch's instance updated."""
    try:
        captured = torch.cuda.CUDAGraph(keep_graph=True)
    except TypeError:
        pytest.skip("this torch keeps no graph")
    x = torch.ones(N, device="cuda")
    y, z = torch.zeros(2, N, device="cuda")
    with torch.cuda.graph(captured):
        y.add_(1)
    node = scale(mod, 2.0, x, z, graph=captured)
    captured.instantiate()
    captured.replay()
    torch.cuda.synchronize()
    assert (y == 1).all() and (z == 2).all()
    mod.scale.update_node(captured, node, (4.0, x, z, N), grid=GRID, block=256)
    captured.replay()
    torch.cuda.synchronize()
    assert (y == 2).all() and (z == 4).all()


def test_adding_beside_a_capture(mod: ons.Module, torch: Any, driver: Driver, graph: int) -> None:
    """Also of a kernel that is compiled and loaded for it."""
    fresh = ons.Module(mod.source + "// not loaded yet, for a graph\n")
    x, y = torch.ones(2, N, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        x.add_(1)
        scale(fresh, 2.0, x, y, graph=graph)
    captured.replay()
    executable = driver.instantiate(graph)
    torch.cuda.synchronize()
    driver.call("cuGraphLaunch", executable, torch.cuda.Stream().cuda_stream)
    torch.cuda.synchronize()
    assert (y == 4).all()
    driver.call("cuGraphExecDestroy", executable)


# ---- events ------------------------------------------------------------------------------------------


def test_events_order_the_launch(mod: ons.Module, torch: Any) -> None:
    before, at, after = (torch.cuda.Stream() for _ in range(3))
    written, done = torch.cuda.Event(), torch.cuda.Event()
    x, y, z = torch.zeros(3, N, device="cuda")
    with pytest.raises(ValueError, match="at its first record"):
        scale(mod, 2.0, x, y, signal=done)
    done.record(before)
    torch.cuda.synchronize()
    with torch.cuda.stream(before):
        mod.spin[1, 1](x, LONG)
        x.fill_(3)
    written.record(before)
    scale(mod, 2.0, x, y, stream=at, order="trust", wait=written, signal=[done])
    after.wait_event(done)
    with torch.cuda.stream(after):
        z.copy_(y)
    torch.cuda.synchronize()
    assert (z == 6).all()


def test_external_events_of_a_graph(
    mod: ons.Module, torch: Any, driver: Driver, event: int
) -> None:
    """The graph waits each time it runs for what the event was last recorded after, and records
    another."""
    done = driver.make("cuEventCreate", DISABLE_TIMING)
    x, y, z = torch.zeros(3, N, device="cuda")
    before, at, after = (torch.cuda.Stream() for _ in range(3))
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        scale(mod, 2.0, x, y, order="trust", stream=torch.cuda.current_stream(), wait=event,
              signal=done, external=True)  # fmt: skip
    torch.cuda.synchronize()
    for value in (3, 5):
        with torch.cuda.stream(before):
            mod.spin[1, 1](x, LONG)
            x.fill_(value)
        driver.call("cuEventRecord", event, before.cuda_stream)
        with torch.cuda.stream(at):
            captured.replay()
        driver.call("cuStreamWaitEvent", after.cuda_stream, done, 0)
        with torch.cuda.stream(after):
            z.copy_(y)
        torch.cuda.synchronize()
        assert (z == 2 * value).all()
    driver.call("cuEventDestroy_v2", done)


def test_an_event_of_a_capture_takes_the_launch_along(
    mod: ons.Module, torch: Any, driver: Driver, event: int
) -> None:
    join = driver.make("cuEventCreate", DISABLE_TIMING)
    x, y = torch.ones(2, N, device="cuda")
    origin, side = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    driver.call("cuStreamBeginCapture_v2", origin.cuda_stream, THREAD_LOCAL)
    driver.call("cuEventRecord", event, origin.cuda_stream)
    scale(mod, 4.0, x, y, stream=side, order="trust", wait=event, signal=join)
    driver.call("cuStreamWaitEvent", origin.cuda_stream, join, 0)
    graph = c_void_p()
    driver.call("cuStreamEndCapture", origin.cuda_stream, byref(graph))
    assert graph.value
    assert (y == 1).all(), "nothing has run yet"
    executable = driver.instantiate(graph.value)
    driver.call("cuGraphLaunch", executable, origin.cuda_stream)
    torch.cuda.synchronize()
    assert (y == 4).all()
    driver.call("cuGraphExecDestroy", executable)
    driver.call("cuGraphDestroy", graph)
    driver.call("cuEventDestroy_v2", join)


def test_an_event_from_outside_breaks_a_capture(
    mod: ons.Module, torch: Any, driver: Driver, event: int
) -> None:
    x, y = torch.ones(2, N, device="cuda")
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    scale(mod, 2.0, x, y)
    torch.cuda.synchronize()
    driver.call("cuEventRecord", event, other.cuda_stream)
    driver.call("cuStreamBeginCapture_v2", stream.cuda_stream, THREAD_LOCAL)
    with pytest.raises(ons.DeviceError, match="external") as caught:
        scale(mod, 2.0, x, y, stream=stream, order="trust", wait=event)
    assert caught.value.code == 905
    graph = c_void_p()
    assert driver.result("cuStreamEndCapture", stream.cuda_stream, byref(graph)) != 0
    torch.cuda.synchronize()


# ---- streams of other kinds --------------------------------------------------------------------------


def test_the_threads_default_stream(mod: ons.Module, torch: Any, event: int) -> None:
    x, y = torch.ones(2, N, device="cuda")
    torch.cuda.synchronize()
    scale(mod, 2.0, x, y, stream=2, signal=event)
    torch.cuda.synchronize()
    assert (y == 2).all()


@pytest.fixture
def green(driver: Driver) -> Iterator[int]:
    """A stream of a green context with some of the device's multiprocessors."""
    if not driver.has("cuGreenCtxStreamCreate"):
        pytest.skip("this driver has no streams of green contexts")
    multiprocessors, default_stream, fewest = 1, 1, 8
    device, groups = c_int(), c_uint(1)
    # A CUdevResource has 144 bytes in CUDA 12 and 13.
    whole, part, rest = (ctypes.create_string_buffer(1024) for _ in range(3))
    driver.call("cuDeviceGet", byref(device), 0)
    driver.call("cuDeviceGetDevResource", device, whole, multiprocessors)
    split = "cuDevSmResourceSplitByCount"
    if driver.result(split, part, byref(groups), whole, rest, 0, fewest) != 0:
        pytest.skip("this device cannot be split")
    description = driver.make("cuDevResourceGenerateDesc", part, 1)
    context = driver.make("cuGreenCtxCreate", description, device, default_stream)
    stream = driver.make("cuGreenCtxStreamCreate", context, NON_BLOCKING, 0)
    yield stream
    driver.call("cuStreamSynchronize", stream)
    driver.call("cuStreamDestroy_v2", stream)
    driver.call("cuGreenCtxDestroy", context)


def test_a_green_contexts_stream(mod: ons.Module, torch: Any, driver: Driver, green: int) -> None:
    x, y = torch.ones(2, N, device="cuda")
    torch.cuda.synchronize()
    scale(mod, 2.0, x, y, stream=green, order="trust")
    driver.call("cuStreamSynchronize", green)
    assert (y == 2).all()


def test_a_green_contexts_stream_is_joined(
    mod: ons.Module, torch: Any, driver: Driver, green: int
) -> None:
    """Both ways, with the current stream of the arrays."""
    x, y = torch.zeros(2, N, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for value in (3, 5):
            mod.spin[1, 1](x, LONG)
            x.fill_(value)
            scale(mod, 2.0, x, y, stream=green)
            x.fill_(-1)
            z = y.clone()
    stream.synchronize()
    assert (z == 10).all()


def test_a_green_contexts_stream_is_captured(
    mod: ons.Module, torch: Any, driver: Driver, green: int
) -> None:
    x, y = torch.ones(2, N, device="cuda")
    scale(mod, 1.0, x, y)
    torch.cuda.synchronize()
    driver.call("cuStreamBeginCapture_v2", green, THREAD_LOCAL)
    scale(mod, 4.0, x, y, stream=green, order="trust")
    graph = c_void_p()
    driver.call("cuStreamEndCapture", green, byref(graph))
    executable = driver.instantiate(graph.value or 0)
    driver.call("cuGraphLaunch", executable, green)
    driver.call("cuStreamSynchronize", green)
    assert (y == 4).all()
    driver.call("cuGraphExecDestroy", executable)
    driver.call("cuGraphDestroy", graph)
