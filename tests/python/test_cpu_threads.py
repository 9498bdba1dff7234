"""Kernels whose threads wait for each other, on the CPU."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import onstream as ons

SOURCE = r"""
__device__ float sum_of_block(float value, float* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int width = 1; width < blockDim.x; width *= 2) {
    float other = threadIdx.x + width < blockDim.x ? shared[threadIdx.x + width] : 0.0f;
    __syncthreads();
    shared[threadIdx.x] += other;
    __syncthreads();
  }
  return shared[0];
}
__global__ void sum_static(const float* x, float* out, int n) {
  __shared__ float shared[1024];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = sum_of_block(i < n ? x[i] : 0.0f, shared);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
__global__ void sum_dynamic(const float* x, float* out, int n) {
  extern __shared__ __align__(16) unsigned char bytes[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = sum_of_block(i < n ? x[i] : 0.0f, reinterpret_cast<float*>(bytes));
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
__global__ void counts(int* out) {
  int odd = __syncthreads_count(threadIdx.x & 1);
  int all = __syncthreads_and(threadIdx.x < blockDim.x);
  int any = __syncthreads_or(threadIdx.x > blockDim.x);
  if (threadIdx.x == 0) { out[0] = odd; out[1] = all; out[2] = any; }
}
__global__ void ends_early(int* out) {
  if (threadIdx.x % 3 == 0) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__device__ int deep(int n) { volatile char room[512]; room[0] = n; return n ? deep(n - 1) + room[0] : 0; }
__global__ void recursion(int* out, int n) {
  __syncthreads();
  out[threadIdx.x] = deep(n);
}
__global__ void never_ends(volatile int* out) {
  if (blockIdx.x < 1000000000) { __syncthreads(); out[0] += 1; }
}
"""


@pytest.fixture(scope="module")
def mod() -> ons.Module:
    return ons.Module(SOURCE, name="threads.cu")


@pytest.mark.parametrize("block", [1, 2, 3, 31, 32, 33, 64, 100, 256, 1000, 1024])
def test_block_sums(mod: ons.Module, block: int) -> None:
    rng = np.random.default_rng(block)
    x = rng.integers(0, 100, 5 * block + 1).astype(np.float32)
    expected = [x[i : i + block].sum() for i in range(0, x.size, block)]
    out = np.zeros(6, np.float32)
    mod.sum_static[6, block](x, out, x.size)
    assert out.tolist() == expected
    out[:] = 0
    mod.sum_dynamic[6, block, 4 * block](x, out, x.size)
    assert out.tolist() == expected


def test_predicates(mod: ons.Module) -> None:
    out = np.zeros(3, np.int32)
    mod.counts[1, 77](out)
    assert out.tolist() == [38, 1, 0]


def test_threads_that_have_ended_are_not_waited_for(mod: ons.Module) -> None:
    out = np.zeros(50, np.int32)
    mod.ends_early[1, 50](out)
    assert out.tolist() == [int(i % 3 != 0) for i in range(50)]


def test_a_divergent_barrier_is_reported() -> None:
    source = """__global__ void pair(int* out) {
      if (threadIdx.x % 2) __syncwarp(3u); else __syncthreads();
      out[threadIdx.x] = 1;
    }"""
    with pytest.raises(ons.DeviceError, match="pair.*wait"):
        ons.Module(source, name="pair.cu").pair[1, 2](np.zeros(2, np.int32))


def test_too_deep_a_recursion_is_an_error(mod: ons.Module) -> None:
    out = np.zeros(4, np.int32)
    mod.recursion[1, 4](out, 3)
    with pytest.raises(ons.DeviceError, match="stack"):
        mod.recursion[1, 4](out, 100_000_000)
    mod.recursion[1, 4](out, 3)


def test_too_much_shared_memory_is_refused(mod: ons.Module) -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(ons.ArgumentError, match=r"\d{6}"):
        mod.sum_dynamic[1, 4, 1 << 20](x, x.copy(), 4)


def test_an_interrupt_ends_a_launch(mod: ons.Module) -> None:
    # A process that was started in the background ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    out = np.zeros(1, np.int32)
    mod.never_ends.prepare("cpu")
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            mod.never_ends[2**31 - 1, 2](out)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert out[0] > 0
    assert time.monotonic() - began > 0.2, "it was the timer's interrupt"


def test_many_threads_launch_at_once(mod: ons.Module) -> None:
    x = np.arange(4096, dtype=np.float32)
    expected = x.reshape(16, 256).sum(axis=1).tolist()
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            out = np.zeros(16, np.float32)
            mod.sum_static[16, 256](x, out, x.size)
            if out.tolist() != expected:
                wrong.append(out)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
