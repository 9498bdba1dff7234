"""Headers of CUDA on the CPU (case 35); simgpu_cases.py has them for GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onstream as ons

COMPILERS = [name for name in ("clang++", "g++") if shutil.which(name)]

CHILD = """
import sys
import onstream as ons
for header in sys.argv[1:]:
    try:
        ons.Module(f"#include <{header}>\\n__global__ void k() {{}}", name="my.cu").k.prepare("cpu")
        print("compiled")
    except ons.CompileError as error:
        assert error.line == 1, error.line
        print(error)
"""


def messages(compiler: str, *headers: str) -> list[str]:
    """What a fresh process says of a source that includes each header."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(ons.__file__).parents[1]),
        "ONSTREAM_HOST_COMPILER": compiler,
    }
    result = subprocess.run(
        [sys.executable, "-c", CHILD, *headers],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("compiler", COMPILERS)
def test_missing_headers_say_what_brings_them(compiler: str) -> None:
    std, groups, runtime, other = messages(
        compiler, "cuda/std/array", "cooperative_groups.h", "cuda_runtime.h", "nowhere.h"
    )
    for text in (std, groups, runtime, other):
        assert text.startswith("my.cu:1: ")
    assert "nvidia-cuda-cccl" in std and "-I" in std
    assert "no cooperative groups" in groups and "GPU" in groups
    assert "leave the include out" in runtime
    assert "nowhere.h" in other and ";" not in other


@pytest.mark.parametrize("compiler", COMPILERS)
def test_headers_that_need_no_package(compiler: str) -> None:
    headers = ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cstdint", "onstream/kernel.h")
    assert messages(compiler, *headers) == ["compiled"] * len(headers)


def cccl_folder() -> str:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    folder: Any = pathfinder.find_nvidia_header_directory("cccl")
    if not folder:
        pytest.skip("no CCCL here")
    return str(folder)


def test_the_advised_folder_helps() -> None:
    mod = ons.Module(
        """#include <cuda/std/array>
        __global__ void k(int* x) {
          cuda::std::array<int, 2> a = {3, 4};
          x[0] = a[0] + a[1];
        }""",
        options=[f"-I{cccl_folder()}"],
    )
    x = np.zeros(1, np.int32)
    mod.k[1, 1](x)
    assert x[0] == 7


def test_attributes_as_the_standard_library_spells_them() -> None:
    """Some of its headers say __noinline__ inside of an attribute; CUDA says it bare."""
    mod = ons.Module(
        """__attribute__((__noinline__, __cold__)) static float twice(float x) { return 2 * x; }
        __device__ __noinline__ float thrice(float x) { return 3 * x; }
        __global__ void k(float* x) { x[0] = twice(x[0]) + thrice(x[0]); }"""
    )
    x = np.ones(1, np.float32)
    mod.k[1, 1](x)
    assert x[0] == 5
