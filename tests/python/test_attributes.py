"""Launch attributes, occupancy and block='auto' on the CPU (cases 41 and 43 of the GPU are in
simgpu_attributes.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstream as ons

SOURCE = """
__global__ void fill(float* out, long long n, float value) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}
__global__ void shape(unsigned* out) {
  if (threadIdx.x + threadIdx.y + blockIdx.x + blockIdx.y) return;
  out[0] = gridDim.x; out[1] = gridDim.y; out[2] = blockDim.x; out[3] = blockDim.y;
}
"""


@pytest.fixture(scope="module")
def mod() -> ons.Module:
    return ons.Module(SOURCE)


def shape_of(mod: ons.Module, **options: Any) -> list[int]:
    out = np.zeros(4, np.uint32)
    mod.shape.launch((out,), **options)
    return [int(v) for v in out]


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 100_000])
def test_auto_block_covers_every_element(mod: ons.Module, n: int) -> None:
    for run in (
        lambda out: mod.fill[n, "auto"](out, n, 3.0),
        lambda out: mod.fill.launch((out, n, 3.0), threads=n, block="auto"),
        lambda out: mod.fill.launch((out, n, 3.0), threads=n, block=33),
    ):
        out = np.zeros(n + 8, np.float32)
        run(out)
        assert (out[:n] == 3.0).all()
        assert (out[n:] == 0.0).all()


def test_threads_are_divided_rounding_up(mod: ons.Module) -> None:
    assert shape_of(mod, threads=(65, 3), block=(32, 2)) == [3, 2, 32, 2]
    assert shape_of(mod, threads=64, block=(32, 2)) == [2, 1, 32, 2]
    grid, block = mod.shape.max_potential_block_size(device="cpu")
    assert grid >= 1
    assert shape_of(mod, threads=(block + 1, 5), block="auto") == [2, 5, block, 1]
    assert mod.shape.max_potential_block_size(limit=7, device="cpu")[1] == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": 4, "block": "auto"}, "needs threads="),
        ({"grid": 4, "threads": 4, "block": 4}, "not both"),
        ({"block": 4}, "needs grid= and block="),
        ({"threads": 4}, "needs grid= and block="),
        ({"threads": "all", "block": 4}, "must be an int"),
    ],
)
def test_configurations_that_make_no_sense(
    mod: ons.Module, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        mod.shape.launch((np.zeros(4, np.uint32),), **options)


def test_block_is_no_other_text(mod: ons.Module) -> None:
    with pytest.raises(TypeError, match="must be an int or a tuple .* not str"):
        mod.shape[4, "best"]
    with pytest.raises(ValueError, match=r"2\*\*32-1"):
        mod.shape[2**32, "auto"]
    assert repr(mod.shape[4, "auto"]) == "<onstream.Launcher shape[(4, 1, 1), 'auto', 0]>"


def test_the_cpu_has_cooperative_launches_and_no_clusters(mod: ons.Module) -> None:
    assert shape_of(mod, grid=2, block=3, cooperative=True)[0] == 2
    with pytest.raises(ons.ArgumentError, match=r"cooperative grid of \d+ blocks"):
        shape_of(mod, grid=1 << 20, block=2, cooperative=True)
    with pytest.raises(ons.UnsupportedError, match="clusters, .* CPU"):
        shape_of(mod, grid=2, block=2, cluster=2)
    # Hints without effect there.
    assert shape_of(mod, grid=2, block=2, priority=-1, carveout=50, programmatic=True) == [
        2, 1, 2, 1,
    ]  # fmt: skip
    assert mod.shape.occupancy(32, device="cpu")["blocks"] >= 1


def test_attributes_of_the_wrong_type(mod: ons.Module) -> None:
    for options in ({"cluster": "2"}, {"priority": 1.5}, {"carveout": "max"}, {"priority": True}):
        with pytest.raises(TypeError, match="must be an int"):
            shape_of(mod, grid=1, block=1, **options)


def test_a_kernel_with_barriers_gets_blocks_of_one_thread() -> None:
    """Who leaves the size open is right for any; then nobody has to wait."""
    source = """
    __global__ void sums(const int* x, int* y, int* sizes, int n) {
      __shared__ int s[1024];
      int t = threadIdx.x, sum = 0;
      for (int i = t; i < n; i += blockDim.x) sum += x[i];
      s[t] = sum;
      for (int k = blockDim.x / 2; k > 0; k /= 2) {
        __syncthreads();
        if (t < k) s[t] += s[t + k];
      }
      if (t == 0 && blockIdx.x == 0) { *y = s[0]; *sizes = blockDim.x; }
    }"""
    sums = ons.Module(source).sums
    x, y, size = np.arange(1000, dtype=np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    sums[1, "auto"](x, y, size, 1000)
    assert y[0] == x.sum() and size[0] == 1
    assert sums.max_potential_block_size(device="cpu")[1] == 1
