"""Launch attributes, occupancy, block='auto' and variables on a real GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import onstream as ons

SOURCE = r"""
__device__ int counts[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ unsigned arrived;
__constant__ float weights[4] = {1, 2, 3, 4};

__global__ void fill(float* out, long long n, float value) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}

// Each block waits for all others: only a grid that is resident as a whole ends.
__global__ void meet(int* out) {
  if (threadIdx.x == 0) {
    atomicAdd(&arrived, 1u);
    while (atomicAdd(&arrived, 0u) < gridDim.x) {}
    out[blockIdx.x] = 1;
  }
}

// The rank of the block in its cluster, and the number of its blocks.
__global__ void ranks(int* out) {
#if __CUDA_ARCH__ >= 900
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) {
    out[2 * blockIdx.x] = rank;
    out[2 * blockIdx.x + 1] = size;
  }
#endif
}

// In front: lets the next kernel begin, and writes late.
__global__ void early(int* out, long long cycles) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  long long start = clock64();
  while (clock64() - start < cycles) {}
  if (threadIdx.x == 0) out[0] = 42;
}

__global__ void late(const int* in, int* out) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (threadIdx.x == 0) out[0] = *(volatile const int*)in;
}

__global__ void weigh(float* out) { out[threadIdx.x] = weights[threadIdx.x]; }
__global__ void count(int by) { (&counts[0][0])[threadIdx.x] += by; }
"""


@pytest.fixture(scope="module")
def mod() -> ons.Module:
    return ons.Module(SOURCE, name="attributes.cu")


def need_sm_90(torch: Any) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs sm_90")


def reset(mod: ons.Module, torch: Any) -> None:
    stream = torch.cuda.current_stream()
    mod.set_global("arrived", bytes(4), "cuda", stream)


def test_clusters(torch: Any, mod: ons.Module) -> None:
    need_sm_90(torch)
    for cluster in (1, 2, 4, 8):
        out = torch.full((16,), -1, dtype=torch.int32, device="cuda")
        mod.ranks.launch((out,), grid=8, block=32, cluster=cluster)
        expected = [value for b in range(8) for value in (b % cluster, cluster)]
        assert out.tolist() == expected
    with pytest.raises(ons.ArgumentError, match="no multiple of"):
        mod.ranks.launch((out,), grid=7, block=32, cluster=2)
    with pytest.raises(ons.ArgumentError, match="do not fit"):
        mod.ranks.launch((out,), grid=64, block=32, cluster=64)


def test_clusters_on_an_older_device(torch: Any, mod: ons.Module) -> None:
    if torch.cuda.get_device_capability() >= (9, 0):
        pytest.skip("has clusters")
    out = torch.zeros(16, dtype=torch.int32, device="cuda")
    with pytest.raises(ons.UnsupportedError, match="need sm_90"):
        mod.ranks.launch((out,), grid=8, block=32, cluster=2)


def test_cooperative_grids(torch: Any, mod: ons.Module) -> None:
    found = mod.meet.occupancy(256)
    most = found["blocks"] * found["multiprocessors"]
    out = torch.zeros(most + 1, dtype=torch.int32, device="cuda")
    reset(mod, torch)
    mod.meet.launch((out,), grid=most, block=256, cooperative=True)
    assert int(out.sum()) == most
    with pytest.raises(ons.ArgumentError, match=rf"{most + 1} blocks .* at most {most} "):
        mod.meet.launch((out,), grid=most + 1, block=256, cooperative=True)


def test_cooperative_in_a_capture(torch: Any, mod: ons.Module) -> None:
    out = torch.zeros(64, dtype=torch.int32, device="cuda")
    mod.meet.launch((out,), grid=0, block=32, cooperative=True)
    reset(mod, torch)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(ons.ArgumentError):
            mod.meet.launch((out,), grid=1 << 20, block=32, cooperative=True)
        mod.meet.launch((out,), grid=64, block=32, cooperative=True)
    graph.replay()
    assert int(out.sum()) == 64


def test_programmatic_launches(torch: Any, mod: ons.Module) -> None:
    need_sm_90(torch)
    first, second = torch.zeros(2, 1, dtype=torch.int32, device="cuda")
    for _ in range(20):
        first.zero_()
        mod.early[1, 32](first, 1_000_000)
        mod.late.launch((first, second), grid=1, block=32, programmatic=True)
        assert int(second) == 42


def test_hints(torch: Any, mod: ons.Module) -> None:
    x = torch.zeros(1000, device="cuda")
    mod.fill.launch((x, 1000, 1.0), grid=4, block=256, priority=0)
    mod.fill.launch((x, 1000, 2.0), grid=4, block=256, priority=-1)
    with pytest.raises(ons.ArgumentError, match="priority is -100"):
        mod.fill.launch((x, 1000, 3.0), grid=4, block=256, priority=-100)
    try:
        mod.fill.launch((x, 1000, 4.0), grid=4, block=256, carveout=50)
    except ons.UnsupportedError as error:
        assert "12.5" in str(error)  # noqa: PT017
        mod.fill[4, 256](x, 1000, 4.0)
    assert (x == 4.0).all()


def test_nodes_of_a_graph(torch: Any, mod: ons.Module) -> None:
    lib = ctypes.CDLL("libcuda.so.1")
    torch.cuda.synchronize()
    out = torch.full((8,), -1, dtype=torch.int32, device="cuda")
    mod.ranks.prepare("cuda")
    graph, instance = ctypes.c_void_p(), ctypes.c_void_p()
    assert lib.cuGraphCreate(ctypes.byref(graph), 0) == 0
    clusters = {"cluster": 2} if torch.cuda.get_device_capability() >= (9, 0) else {}
    mod.ranks.launch((out,), grid=4, block=32, graph=graph.value, priority=-1, cooperative=True,
                     **clusters)  # fmt: skip
    result = lib.cuGraphInstantiateWithFlags(ctypes.byref(instance), graph, ctypes.c_ulonglong(0))
    assert result == 0
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert lib.cuGraphLaunch(instance, stream) == 0
    torch.cuda.synchronize()
    if clusters:
        assert out.tolist() == [0, 2, 1, 2, 0, 2, 1, 2]
    lib.cuGraphExecDestroy(instance)
    lib.cuGraphDestroy(graph)


def test_occupancy_is_the_drivers(torch: Any, mod: ons.Module) -> None:
    properties = torch.cuda.get_device_properties(0)
    found = mod.fill.occupancy(256)
    assert found["multiprocessors"] == properties.multi_processor_count
    per_processor = properties.max_threads_per_multi_processor
    assert 1 <= found["blocks"] <= per_processor // 256
    assert found["fraction"] == pytest.approx(found["blocks"] * 256 / per_processor)
    assert mod.fill.occupancy(256, 100_000)["blocks"] < found["blocks"]
    grid, block = mod.fill.max_potential_block_size()
    assert block % 32 == 0
    assert grid == mod.fill.occupancy(block)["blocks"] * properties.multi_processor_count
    assert mod.fill.max_potential_block_size(limit=64)[1] <= 64


def test_auto_blocks(torch: Any, mod: ons.Module) -> None:
    for n in (1, 31, 1024, 1025, 1_000_003):
        x = torch.zeros(n + 64, device="cuda")
        mod.fill[n, "auto"](x, n, 1.0)
        assert int((x == 1.0).sum()) == n
        mod.fill.launch((x, n, 2.0), threads=n, block="auto")
        assert int((x == 2.0).sum()) == n
        assert bool((x[n:] == 0).all())


def test_variables(torch: Any, mod: ons.Module) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        counts = mod.global_("counts", "cuda", stream)
        view = torch.from_dlpack(counts)
        assert view.tolist() == [[1, 2, 3], [4, 5, 6]]
        assert view.data_ptr() == counts.data_ptr
        mod.count.launch((10,), grid=1, block=6, stream=stream, device="cuda")
        assert view.tolist() == [[11, 12, 13], [14, 15, 16]]
        view.zero_()
        mod.count.launch((1,), grid=1, block=6, stream=stream, device="cuda")
        assert view.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_constants(torch: Any, mod: ons.Module) -> None:
    stream = torch.cuda.current_stream()
    out = torch.zeros(4, device="cuda")
    mod.weigh[1, 4](out)
    assert out.tolist() == [1, 2, 3, 4]
    mod.set_global("weights", (ctypes.c_float * 4)(5, 6, 7, 8), "cuda", stream)
    mod.weigh[1, 4](out)
    assert out.tolist() == [5, 6, 7, 8]
    weights = mod.global_("weights", "cuda", stream)
    assert weights.read_only
    with pytest.raises(ons.ArgumentError, match="read-only"):
        mod.fill[1, 4](weights, 4, 1.0)
    mod.set_global("weights", (ctypes.c_float * 4)(1, 2, 3, 4), "cuda", stream)
