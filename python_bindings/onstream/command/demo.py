"""One kernel source on the arrays of every library that is here."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

import onstream as ons

NAME = "demo"
HELP = "one kernel on the arrays of every library that is here"

SOURCE = """
__global__ void axpy(float a, const float* x, const float* y, float* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
"""
N = 1 << 16


def _arrays() -> list[tuple[str, Any, Any]]:
    """What it is, the numbers from 0 as an array, and how to get at its last element."""
    found: list[tuple[str, Any, Any]] = []

    def add(library: str, make: Any, last: Any = lambda x: float(x[-1])) -> None:
        try:
            found.append((library, make(importlib.import_module(library.split(",")[0])), last))
        except Exception as error:
            print(f"  --  {library}: {str(error).splitlines()[0][:90]}")

    add("numpy", lambda np: np.arange(N, dtype=np.float32))
    add("torch", lambda torch: torch.arange(N, dtype=torch.float32))
    add("torch, cuda", lambda torch: torch.arange(N, dtype=torch.float32, device="cuda"))
    add("cupy", lambda cupy: cupy.arange(N, dtype=cupy.float32))
    add("jax", lambda jax: jax.numpy.arange(N, dtype=jax.numpy.float32))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace) -> int:
    del arguments
    axpy = ons.Module(SOURCE).axpy
    code = 0
    for library, x, last in _arrays():
        try:
            out = axpy[ons.cdiv(N, 256), 256](2.0, x, x, ons.like(x), N)
            right = last(out) == 3 * (N - 1)
        except ons.Error as error:
            print(f"  --  {library}: {str(error).splitlines()[0][:90]}")
            continue
        print(f"  {'ok' if right else 'NO'}  {library}: {type(out).__name__}")
        code |= not right
    return code
