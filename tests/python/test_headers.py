"""Headers of CUDA on the CPU (case 35); simgpu_headers.py has them for GPUs."""

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
        print(str(error).splitlines()[0])
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
def test_missing_headers_say_what_brings_them(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONSTREAM_CUDA_INCLUDE", "/nonexistent")
    std, cores, driver, other = messages(compiler, "cuda/std/array", "mma.h", "cuda.h", "nowhere.h")
    for text in (std, cores, driver, other):
        assert text.startswith("my.cu:1: ")
    assert "nvidia-cuda-cccl" in std and "-I" in std
    assert "no tensor cores" in cores and "GPU" in cores
    assert "leave the include out" in driver
    assert "nowhere.h" in other and ";" not in other


@pytest.mark.parametrize("compiler", COMPILERS)
def test_headers_that_need_no_package(compiler: str) -> None:
    headers = (
        "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuComplex.h", "math_constants.h",
        "cuda_pipeline.h", "cooperative_groups.h", "cooperative_groups/reduce.h",
        "cooperative_groups/scan.h", "cooperative_groups/memcpy_async.h", "cuda_runtime.h",
        "device_launch_parameters.h", "cstdint", "onstream/kernel.h",
    )  # fmt: skip
    assert messages(compiler, *headers) == ["compiled"] * len(headers)


def cccl_folder() -> str:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    folder: Any = pathfinder.find_nvidia_header_directory("cccl")
    if not folder:
        pytest.skip("no CCCL here")
    return str(folder)


@pytest.mark.parametrize("is_named", [True, False])
def test_libcuxx(is_named: bool) -> None:
    """In the folder named in an option, or where NVRTC's headers are found."""
    mod = ons.Module(
        """#include <cuda/std/array>
        __global__ void k(int* x) {
          cuda::std::array<int, 2> a = {3, 4};
          x[0] = a[0] + a[1];
        }""",
        options=[f"-I{cccl_folder()}"] if is_named else [],
    )
    x = np.zeros(1, np.int32)
    mod.k[1, 1](x)
    assert x[0] == 7


def test_more_of_libcuxx() -> None:
    cccl_folder()
    mod = ons.Module(
        """#include <cuda/atomic>
        #include <cuda/std/complex>
        #include <cuda/std/limits>
        #include <cuda_fp16.h>
        __global__ void k(float* x) {
          cuda::std::complex<float> a(1, 2), b = a * a;
          cuda::atomic_ref<float, cuda::thread_scope_device>(x[2]).fetch_add(2.0f);
          x[0] = b.real(); x[1] = b.imag();
          x[3] = cuda::std::numeric_limits<float>::max() > float(__half(65504.0f));
        }"""
    )
    x = np.zeros(4, np.float32)
    mod.k[1, 1](x)
    assert x.tolist() == [-3, 4, 2, 1]


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
