"""One thread of one block in gdb, as docs/cpu.md has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """__global__ void scale(float a, float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float old = x[i];
  if (i < n) x[i] = a * old;
}
"""
PROGRAM = """
import numpy as np
import onstream as ons
mod = ons.load("kernels.cu", options=["-G"])
x = np.arange(64, dtype=np.float32)
mod.scale[4, 16](2.0, x, 64)
print("sum", x.sum())
"""
COMMANDS = (
    "set breakpoint pending on",
    "set pagination off",
    "break ons_thread if block_x == 2 && thread_x == 5",
    "run",
    "tbreak kernels.cu:4",
    "continue",
    "print i",
    "print old",
    "delete",
    "continue",
)


@pytest.mark.parametrize("compiler", ["clang++", "g++"])
def test_a_breakpoint_in_one_thread(tmp_path: Path, compiler: str) -> None:
    if not shutil.which("gdb") or not shutil.which(compiler):
        pytest.skip(f"no gdb or no {compiler} here")
    (tmp_path / "kernels.cu").write_text(SOURCE)
    (tmp_path / "step.py").write_text(PROGRAM)
    command = ["gdb", "-q", "-nx", "-batch"]
    for line in COMMANDS:
        command += ["-ex", line]
    done = subprocess.run(
        [*command, "--args", sys.executable, "step.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "ONSTREAM_CPU_THREADS": "1",
            "ONSTREAM_HOST_COMPILER": compiler,
            "DEBUGINFOD_URLS": "",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    output = done.stdout + done.stderr
    if "ptrace" in output:
        pytest.skip("no debugging here")
    assert "block_x=2, block_y=0, block_z=0, thread_x=5" in output, output
    assert "kernels.cu:4" in output and "if (i < n) x[i] = a * old;" in output, output
    assert "$1 = 37" in output and "$2 = 37" in output, output
    assert "sum 4032.0" in output, output
