#!/usr/bin/env python3
"""Kernels on the CPU against flat C loops that do the same, built by the same compiler
with the flags of the command that onstream ran: a polynomial, Mandelbrot, reductions with
barriers, and what a second thread gains."""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import measure
from axpy_cpu import flags_of
from first_launch import HostCompiler
from measure import Limit, python_row

COUNT = 1 << 20
SIDE = 1024
BLOCK = 256

KERNELS = r"""
__global__ void polynomial(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i], sum = 1.0f;
  for (int k = 0; k < 32; ++k) sum = sum * v + 0.5f;
  y[i] = sum;
}
// The loop over the steps is unrolled, so that the one around it is vectorised.
__global__ void mandelbrot(int* y, int side) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
  if (i >= side) return;
  float cr = -2.0f + 3.0f * i / side, ci = -1.5f + 3.0f * j / side;
  float r = 0.0f, s = 0.0f;
  int count = 0;
  for (int k = 0; k < 24; ++k) {
    float rr = r * r, ss = s * s;
    float t = rr - ss + cr;
    s = 2.0f * r * s + ci;
    r = t;
    count += rr + ss < 4.0f;
  }
  y[j * side + i] = count;
}
// A block of 256 threads: log2(256) + 1 barriers.
__global__ void reduce_256(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (int k = blockDim.x / 2; k > 0; k /= 2) {
    if (t < k) s[t] += s[t + k];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}
// Right for every block size.
__global__ void reduce_any(const int* __restrict__ x, int* __restrict__ y, int n) {
  __shared__ int s[1024];
  int t = threadIdx.x, sum = 0;
  int begin = blockIdx.x * (long long)n / gridDim.x;
  int end = (blockIdx.x + 1) * (long long)n / gridDim.x;
  for (int i = begin + t; i < end; i += blockDim.x) sum += x[i];
  s[t] = sum;
  __syncthreads();
  for (int k = blockDim.x; k > 1;) {
    int half = (k + 1) / 2;
    if (t + half < k) s[t] += s[t + half];
    k = half;
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}
"""
LOOPS = r"""
#define FLAT extern "C" __attribute__((visibility("default"))) void
FLAT polynomial(const float* x, float* y, int n) {
  for (int i = 0; i < n; ++i) {
    float v = x[i], sum = 1.0f;
    for (int k = 0; k < 32; ++k) sum = sum * v + 0.5f;
    y[i] = sum;
  }
}
FLAT mandelbrot(int* y, int side) {
  for (int j = 0; j < side; ++j) {
    for (int i = 0; i < side; ++i) {
      float cr = -2.0f + 3.0f * i / side, ci = -1.5f + 3.0f * j / side;
      float r = 0.0f, s = 0.0f;
      int count = 0;
      for (int k = 0; k < 24; ++k) {
        float rr = r * r, ss = s * s;
        float t = rr - ss + cr;
        s = 2.0f * r * s + ci;
        r = t;
        count += rr + ss < 4.0f;
      }
      y[j * side + i] = count;
    }
  }
}
FLAT reduce_any(const int* __restrict__ x, int* __restrict__ y, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i];
  y[0] = sum;
}
"""


def build(compiler: str, flags: list[str], folder: pathlib.Path) -> ctypes.CDLL:
    source, library = folder / "flat.cc", folder / "flat.so"
    source.write_text(LOOPS)
    command = [compiler, *flags, "-fPIC", "-shared", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--batches", type=int, default=60, help="rounds (60)")
    parser.add_argument("--threads", type=int, default=1, help="of each launch (1)")
    parser.add_argument("--check", action="store_true", help="fail if a limit is not met")
    options = parser.parse_args()

    machine = measure.machine()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        stand_in = HostCompiler(folder)
        threads = str(options.threads)
        os.environ |= {"ONSTREAM_CPU_THREADS": threads, **stand_in.environment}
        import numpy

        import onstream as ons

        module = ons.Module(KERNELS)
        x = numpy.random.default_rng(0).standard_normal(COUNT, dtype=numpy.float32)
        whole = numpy.arange(COUNT, dtype=numpy.int32) % 1000
        y = numpy.zeros_like(x)
        counts = numpy.zeros(SIDE * SIDE, numpy.int32)
        total = numpy.zeros(1, numpy.int32)
        blocks = ons.cdiv(COUNT, BLOCK)
        calls = {
            "polynomial": (module.polynomial[blocks, BLOCK], (x, y, COUNT)),
            "mandelbrot": (
                module.mandelbrot[(ons.cdiv(SIDE, BLOCK), SIDE), BLOCK],
                (counts, SIDE),
            ),
            "reduce_any": (module.reduce_any[1, 1], (whole, total, COUNT)),
        }
        reduce = module.reduce_256[blocks, BLOCK]
        reduce(x, y, COUNT)
        assert abs(y[:blocks].sum() - x.sum()) < 1e-3 * COUNT**0.5
        flags = flags_of(stand_in.take()[-1][2])
        flat = build(stand_in.real, flags, folder)
        rows, pairs = [], []
        for kernel, (f, args) in calls.items():
            raw = [a.ctypes.data if hasattr(a, "ctypes") else a for a in args]
            g = getattr(flat, kernel)
            g.argtypes = [ctypes.c_void_p if hasattr(a, "ctypes") else ctypes.c_int for a in args]
            g.restype = None
            out = args[0] if kernel == "mandelbrot" else args[1]
            f(*args)
            ours = out.copy()
            g(*raw)
            assert numpy.allclose(ours, out, rtol=1e-4, atol=1e-4), kernel
            pair = (
                python_row(f"{kernel}, flat C loop", "g(*raw)", g=g, raw=raw),
                python_row(f"{kernel}, onstream", "f(*args)", f=f, args=args),
            )
            pairs.append((kernel, *pair))
            rows += pair
        barrier = python_row("reduce_256, onstream", "f(x, y, n)", f=reduce, x=x, y=y, n=COUNT)
        rows.append(barrier)
        measure.interleave(rows, options.batches, 1)

    print(f"{threads} thread(s), {' '.join(flags)}, on {machine['cpu']}\n")
    print(measure.row_table(rows, rows[0]))
    most = {"polynomial": 1.2, "mandelbrot": 1.2, "reduce_any": 1.3}
    limits = [
        Limit(f"{kernel}, over the flat loop", measure.ratio(ours, loop), most[kernel], "x")
        for kernel, loop, ours in pairs
    ]
    per_wait = barrier.median / COUNT / 9
    limits.append(Limit("reduce_256, a thread and barrier", per_wait, 60, "ns"))
    result = {
        "machine": machine,
        "flags": flags,
        "threads": options.threads,
        "rows": [measure.row_json(row, rows[0]) for row in rows],
    }
    return measure.finish(options.json, result, limits, options.check)


if __name__ == "__main__":
    sys.exit(main())
