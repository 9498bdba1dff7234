"""Headers of CUDA for a GPU, on the stand-in driver; run by test_simgpu.py in a process of its
own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simgpu_machine import Sim

import onstream as ons

# ---- headers --------------------------------------------------------------------------------

INCLUDING = {
    "cuda_fp16.h": "__half h = __float2half(1.f); x[0] = (int)__half2float(h);",
    "cuda_bf16.h": "__nv_bfloat16 h = __float2bfloat16(1.f); x[0] = (int)__bfloat162float(h);",
    "cuda_fp8.h": "__nv_fp8_e4m3 h(1.f); x[0] = (int)(float)h;",
    "cstdint": "std::int64_t i = 1; x[0] = (int)i;",
    "cuda/std/array": "cuda::std::array<int, 2> a = {1, 2}; x[0] = a[1];",
    "cuda/std/complex": "cuda::std::complex<float> c(1, 2); x[0] = (int)c.real();",
    "cooperative_groups.h": "x[0] = cooperative_groups::this_thread_block().thread_rank();",
}


@pytest.mark.parametrize("header", list(INCLUDING))
def test_headers_are_found(sim: Sim, header: str) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    if not all(pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl")):
        pytest.skip("neither a toolkit nor the wheels are here")
    ons.Module(
        f"#include <{header}>\n__global__ void k(int* x) {{ {INCLUDING[header]} }}"
    ).k.prepare("cuda:0")


def test_missing_headers_say_what_brings_them(tmp_path: Path) -> None:
    brought = {
        "cuda_fp16.h": "nvidia-cuda-runtime",
        "cuda/std/array": "nvidia-cuda-cccl",
        "cooperative_groups.h": "nvidia-cuda-runtime",
        "curand_kernel.h": "nvidia-curand",
        "vector": "cuda/std",
    }
    code = """if True:
        import sys
        import onstream as ons
        for header in sys.argv[1:]:
            try:
                ons.Module(f"#include <{header}>\\n__global__ void k() {{}}").k.prepare("cuda:0")
                print("compiled")
            except ons.CompileError as error:
                print(str(error).splitlines()[0])
        """
    result = subprocess.run(
        [sys.executable, "-c", code, *brought],
        env={**os.environ, "ONSTREAM_CUDA_INCLUDE": str(tmp_path)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for text, (header, package) in zip(result.stdout.splitlines(), brought.items(), strict=True):
        assert text.startswith("kernel.cu:1: ") and f'"{header}"' in text, text
        assert package in text and ("ONSTREAM_CUDA_INCLUDE" in text or header == "vector"), text
