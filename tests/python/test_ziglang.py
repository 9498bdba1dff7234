"""The compiler of the ziglang wheel, in an environment that has nothing else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import onstream as ons

CODE = """
import numpy as np
import onstream as ons
from onstream import _core
assert _core._find(3).endswith("zig c++"), _core._find(3)
mod = ons.Module('''#include <cuda_fp16.h>
__global__ void k(const float* x, float* y, int n) {
  __shared__ float s[64];
  int i = threadIdx.x;
  s[i] = x[i];
  __syncthreads();
  if (i < n) y[i] = __half2float(__float2half(s[63 - i])) + expf(0.0f);
}''')
x = np.arange(64, dtype=np.float32)
y = np.zeros_like(x)
mod.k[1, 64](x, y, 64)
assert (y == 64 - x).all(), y
"""


@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="no ziglang (100 MB) here")
def test_nothing_else_is_needed(tmp_path: Path) -> None:
    path = [str(Path(ons.__file__).parents[1]), *(p for p in sys.path if p)]
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={"PATH": "/nowhere", "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
