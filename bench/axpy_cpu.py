#!/usr/bin/env python3
"""axpy of 4M floats on one thread: a CUDA kernel on the CPU, and a flat C loop.

The loop is built by the same compiler with the flags of the command that onstream ran."""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import measure
from first_launch import HostCompiler
from measure import Limit, Row, python_row, why

COUNT = 1 << 22
FLAT = "flat C loop"

KERNEL = r"""
__global__ void axpy(float a, const float* x, float* y, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""
# Tells blocks apart, so that each is a loop of its own.
APART = KERNEL.replace(" + threadIdx.x;", ";\n  i += threadIdx.x;")
LOOP = r"""
extern "C" __attribute__((visibility("default")))
void axpy(float a, const float* x, float* y, long long n) {
  for (long long i = 0; i < n; ++i) y[i] = a * x[i] + y[i];
}
"""


def flags_of(arguments: list[str]) -> list[str]:
    """Those that decide what code comes out."""
    return [a for a in arguments if a.startswith(("-O", "-m", "-f", "-std="))]


def flat_row(compiler: str, flags: list[str], folder: pathlib.Path, x, y) -> Row:
    source, library = folder / "flat.cc", folder / "flat.so"
    source.write_text(LOOP)
    command = [compiler, *flags, "-fPIC", "-shared", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    f = ctypes.CDLL(str(library)).axpy
    f.argtypes = [ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_longlong]
    f.restype = None
    pointers = {"x": x.ctypes.data, "y": y.ctypes.data}
    return python_row(FLAT, "f(1e-6, x, y, n)", f=f, n=COUNT, **pointers)


def torch_row(x, y) -> Row:
    import torch

    torch.set_num_threads(1)
    tensors = {"x": torch.from_numpy(x), "f": torch.from_numpy(y).add_}
    return python_row("torch y.add_(x, alpha), one thread", "f(x, alpha=1e-6)", **tensors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--batches", type=int, default=100, help="rounds (100)")
    parser.add_argument("--calls", type=int, default=2, help="calls a batch (2)")
    parser.add_argument("--check", action="store_true", help="fail if the limit is not met")
    options = parser.parse_args()

    machine = measure.machine()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        stand_in = HostCompiler(folder)
        # Before the library reads them.
        os.environ |= {"ONSTREAM_CPU_THREADS": "1", **stand_in.environment}
        import numpy

        import onstream as ons

        x = numpy.random.default_rng(0).standard_normal(COUNT, dtype=numpy.float32)
        y = numpy.zeros_like(x)
        axpy = ons.Module(KERNEL).axpy
        axpy[ons.cdiv(COUNT, 256), 256](2.0, x, y, COUNT)
        assert (y == 2 * x).all()
        arguments = stand_in.take()[-1][2]
        flags = flags_of(arguments)
        rows = [flat_row(stand_in.real, flags, folder, x, y)]
        apart = ons.Module(APART).axpy
        for kernel, block, what in (
            (axpy, 256, ""),
            (axpy, 1, ""),
            (axpy, 32, ""),
            (axpy, 1024, ""),
            (apart, 256, ", told apart"),
        ):
            f = kernel[ons.cdiv(COUNT, block), block]
            name = f"onstream, blocks of {block}{what}"
            rows.append(python_row(name, "f(1e-6, x, y, n)", f=f, x=x, y=y, n=COUNT))
        try:
            rows.append(torch_row(x, y))
        except ImportError as error:
            rows.append(Row("torch", None, why(error)))
        measure.interleave(rows, options.batches, options.calls)

    flat, blocks = rows[:2]
    compiler = pathlib.Path(stand_in.real).name
    print(f"axpy of {COUNT} floats, one thread, {compiler} {' '.join(flags)}")
    print(f"{options.batches} batches of {options.calls}, on {machine['cpu']}\n")
    print(measure.row_table(rows, flat))
    limits = [
        Limit(
            f"{blocks.name}, over the flat loop",
            measure.ratio(blocks, flat),
            1.15,
            "x",
        )
    ]
    result = {
        "machine": machine,
        "compiler": compiler,
        "flags": flags,
        "rows": [measure.row_json(row, flat) for row in rows],
    }
    return measure.finish(options.json, result, limits, options.check)


if __name__ == "__main__":
    sys.exit(main())
