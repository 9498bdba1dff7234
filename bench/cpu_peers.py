#!/usr/bin/env python3
"""The same work on one CPU thread: a CUDA kernel through onstream, Numba's CUDA simulator,
Warp's CPU device, plain torch. Nanoseconds an element, because the simulator, which runs
a Python thread for each CUDA thread, only gets a small part of the work."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import measure
from cpu_kernels import BLOCK, KERNELS
from measure import Row, python_row, why

COUNT = 1 << 20
FEW = 1 << 11  # for the simulator


# Right for every block size; a block's share of x is 256 elements.
ANY_BLOCK = r"""
__global__ void sums(const float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[256];
  int t = threadIdx.x;
  float sum = 0.0f;
  for (int i = t; i < 256; i += blockDim.x) sum += x[blockIdx.x * 256 + i];
  s[t] = sum;
  __syncthreads();
  for (int k = blockDim.x / 2; k > 0; k /= 2) {
    if (t < k) s[t] += s[t + k];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}
"""


def onstream_rows(x: Any, out: Any, sums: Any) -> list[Row]:
    import onstream as ons

    blocks = ons.cdiv(COUNT, BLOCK)
    polynomial = ons.Module(KERNELS).polynomial[blocks, BLOCK]
    reduce = ons.Module(ANY_BLOCK, options=["-ffast-math"]).sums[blocks, 1]
    return [
        python_row("onstream", "f(x, y, n)", f=polynomial, x=x, y=out, n=COUNT),
        python_row("onstream", "f(x, y)", f=reduce, x=x, y=sums),
    ]


def fiber_rows(x: Any, out: Any, sums: Any) -> list[Row]:
    import onstream as ons

    reduce = ons.Module(ANY_BLOCK).sums[ons.cdiv(COUNT, BLOCK), BLOCK]
    return [
        Row("", None, "the polynomial does not wait"),
        python_row("onstream, 256 threads", "f(x, y)", f=reduce, x=x, y=sums),
    ]


def torch_rows(x: Any, out: Any, sums: Any) -> list[Row]:
    import torch

    torch.set_num_threads(1)
    source, target, totals = map(torch.from_numpy, (x, out, sums))

    def polynomial() -> None:
        target.fill_(1.0)
        for _ in range(32):
            target.mul_(source).add_(0.5)

    def reduce() -> None:
        torch.sum(source.view(-1, BLOCK), dim=1, out=totals)

    return [python_row("torch", "f()", f=polynomial), python_row("torch", "f()", f=reduce)]


def warp_rows(x: Any, out: Any, sums: Any) -> list[Row]:
    import warp

    warp.config.quiet = True
    warp.init()
    size = BLOCK

    @warp.kernel
    def polynomial(x: warp.array(dtype=float), y: warp.array(dtype=float)):
        i = warp.tid()
        v = x[i]
        total = float(1.0)  # noqa: UP018  (a variable to Warp)
        for _ in range(32):
            total = total * v + 0.5
        y[i] = total

    @warp.kernel
    def reduce(x: warp.array(dtype=float), y: warp.array(dtype=float)):
        i = warp.tid()
        warp.tile_store(y, warp.tile_sum(warp.tile_load(x, shape=size, offset=i * size)), offset=i)

    source, target, totals = (warp.from_numpy(a, device="cpu") for a in (x, out, sums))

    def run(kernel: Any, dim: int, result: Any, copy: Any, launch: Any = warp.launch) -> Any:
        def call() -> None:
            launch(kernel, dim=dim, inputs=[source], outputs=[result], device="cpu")

        call()
        copy[:] = result.numpy()
        return call

    def run_tiled(kernel: Any, dim: int, result: Any, copy: Any) -> Any:
        def launch(kernel: Any, **options: Any) -> None:
            warp.launch_tiled(kernel, block_dim=1, **options | {"dim": [dim]})

        return run(kernel, dim, result, copy, launch)

    return [
        python_row("Warp", "f()", f=run(polynomial, COUNT, target, out)),
        python_row("Warp", "f()", f=run_tiled(reduce, COUNT // BLOCK, totals, sums)),
    ]


def numba_rows(x: Any, out: Any, sums: Any) -> list[Row]:
    global cuda  # the simulator puts its own there while a kernel runs
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    from numba import cuda, float32

    size = BLOCK

    @cuda.jit
    def polynomial(x, y):
        i = cuda.grid(1)
        if i < x.size:
            total = float32(1.0)
            for _ in range(32):
                total = total * x[i] + float32(0.5)
            y[i] = total

    @cuda.jit
    def reduce(x, y):
        s = cuda.shared.array(size, float32)
        t = cuda.threadIdx.x
        s[t] = x[cuda.grid(1)]
        cuda.syncthreads()
        k = size // 2
        while k > 0:
            if t < k:
                s[t] += s[t + k]
            cuda.syncthreads()
            k //= 2
        if t == 0:
            y[cuda.blockIdx.x] = s[0]

    blocks = FEW // BLOCK
    return [
        python_row("Numba's simulator", "f(x, y)", f=polynomial[blocks, BLOCK], x=x[:FEW], y=out),
        python_row("Numba's simulator", "f(x, y)", f=reduce[blocks, BLOCK], x=x[:FEW], y=sums),
    ]


PEERS: dict[str, Callable[[Any, Any, Any], list[Row]]] = {
    "onstream": onstream_rows,
    "onstream, 256 threads that wait": fiber_rows,
    "torch": torch_rows,
    "Warp": warp_rows,
    "Numba's simulator": numba_rows,
}


def rows_of(name: str, x: Any, expected: Any, expected_sums: Any) -> list[Row]:
    """The polynomial's and the reduction's, once what they compute has been looked at."""
    import numpy

    out, sums = numpy.zeros_like(expected), numpy.zeros_like(expected_sums)
    try:
        rows = PEERS[name](x, out, sums)
        for row, result, right in zip(rows, (out, sums), (expected, expected_sums), strict=True):
            if row.batch is None:
                continue
            row.batch(1)
            count = FEW if name.startswith("Numba") else COUNT
            seen = count if result is out else count // BLOCK
            if not numpy.allclose(result[:seen], right[:seen], rtol=1e-3, atol=1e-3):
                row.drop("wrong results")
        return rows
    except Exception as error:
        return [Row(name, None, why(error)), Row(name, None, why(error))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--batches", type=int, default=20, help="rounds (20)")
    options = parser.parse_args()

    machine = measure.machine()
    os.environ["ONSTREAM_CPU_THREADS"] = "1"
    import numpy

    x = numpy.random.default_rng(0).uniform(-1, 1, COUNT).astype(numpy.float32)
    expected = numpy.ones_like(x)
    for _ in range(32):
        expected = expected * x + numpy.float32(0.5)
    expected_sums = x.reshape(-1, BLOCK).sum(axis=1)
    rows = {name: rows_of(name, x, expected, expected_sums) for name in PEERS}
    measure.interleave([row for pair in rows.values() for row in pair], options.batches, 1)

    lines = []
    for name, pair in rows.items():
        count = FEW if name.startswith("Numba") else COUNT
        cells = ["-" if row.median is None else f"{row.median / count:.3g}" for row in pair]
        lines.append([name, *cells])
        if all(row.batch is None for row in pair):
            print(f"{name}: not measured. {pair[0].reason}")
    print(f"one thread, ns an element, on {machine['cpu']}\n")
    print(measure.table(["", "degree-32 polynomial", "sums of 256"], lines))
    result = {
        "machine": machine,
        "elements": {name: FEW if name.startswith("Numba") else COUNT for name in PEERS},
        "polynomial": [measure.row_json(pair[0], None) for pair in rows.values()],
        "sums": [measure.row_json(pair[1], None) for pair in rows.values()],
    }
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
