#!/usr/bin/env python3
"""A data-parallel step whose ranks share their kernels' compiles:

    torchrun --nproc-per-node 2 examples/python/torchrun_step.py

All ranks ask for the same kernels at once; one of them compiles each, the others take it from the
cache. Then each rank runs a fused update on its part of the data beside an all-reduce: with gloo on
the CPU, with NCCL and as a CUDA graph where there are GPUs."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

import onstream as ons

SOURCE = r"""
// Gradient of the mean square error of y = w x, summed by a block; and the update.
__global__ void gradient(const float* x, const float* y, const float* w, float* g, int n) {
  __shared__ float parts[256];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += 2 * (*w * x[i] - y[i]) * x[i] / n;
  parts[threadIdx.x] = sum;
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
  }
  if (threadIdx.x == 0) *g = parts[0];
}
__global__ void update(float* w, const float* g, float rate) { *w -= rate * *g; }
"""
N, STEPS, SLOPE = 4096, 60, 3.0


def main() -> None:
    has_gpu = torch.cuda.is_available() and torch.cuda.device_count() > 0
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = f"cuda:{rank % torch.cuda.device_count()}" if has_gpu else "cpu"
    if has_gpu:
        torch.cuda.set_device(device)

    start = time.perf_counter()
    mod = ons.Module(SOURCE, name="torchrun_step.cu")
    ons.prepare(mod, device)
    prepared = time.perf_counter() - start

    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(N, generator=generator).to(device)
    y = SLOPE * x
    w, g = torch.zeros(1, device=device), torch.zeros(1, device=device)

    def step() -> None:
        mod.gradient[1, 256](x, y, w, g, N)
        dist.all_reduce(g)
        mod.update[1, 1](w, g, 0.1 / ranks)

    if has_gpu:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # NCCL makes its connections
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for _ in range(STEPS):
            graph.replay()
    else:
        for _ in range(STEPS):
            step()
    error = abs(float(w) - SLOPE)
    print(
        f"rank {rank} of {ranks} on {device}: prepared in {prepared * 1e3:.0f} ms, w - 3 = {error:.1e}"
    )
    dist.destroy_process_group()
    if error > 1e-2:
        raise SystemExit(f"rank {rank}: w is {float(w)}, not {SLOPE}")


if __name__ == "__main__":
    main()
