"""What only a GPU can do is refused on the CPU with its name, its line and the way out."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import onstream as ons

COMPILERS = [name for name in ("clang++", "g++") if shutil.which(name)]

CASES = {
    "register": (
        'int l;\n asm volatile("mov.u32 %0, %%laneid;"\n : "=r"(l)); x[0] = l;', 2, "asm", "PTX"),
    "block": ('unsigned a;\n asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }"'
              ' : "=r"(a) : "l"(x));\n x[0] = a;', 2, "asm", "PTX"),
    "constraint": ('unsigned short h;\n asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(1.0f));\n'
                   " x[0] = h;", 2, "asm", "PTX"),
    "barrier": ('x[0] = 1;\n\n __asm__ volatile("bar.sync 0;");', 3, "__asm__", "PTX"),
    "launch": ("\n other<<<1, 1>>>(x);", 2, "<<<", "launches from within a kernel"),
    "texture": ("\n\n x[0] = tex2D<float>(7ull, 0.5f, 0.5f);", 3, "tex2D", "textures"),
    "object": ("cudaTextureObject_t t;", 1, "cudaTextureObject_t", "textures"),
    "surface": ("\n surf2Dread(x, 7ull, 0, 0);", 2, "surf2Dread", "surfaces"),
    "fragment": ("\n nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> f;",
                 2, "nvcuda", "tensor cores"),
    "runtime": ("\n cudaDeviceSynchronize();", 2, "cudaDeviceSynchronize", "CUDA runtime"),
}  # fmt: skip

CHILD = """
import sys
import onstream as ons
sys.path.insert(0, sys.argv[1])
import test_cpu_dialect_refused as tests
for name in tests.CASES:
    try:
        tests.module(name).k.prepare("cpu")
    except ons.Error as error:
        print(name, type(error).__name__, error)
"""


def module(case: str) -> ons.Module:
    return ons.Module(
        "__global__ void other(int* x) {}\n__global__ void k(int* x) { " + CASES[case][0] + "\n}",
        name="gpu.cu",
    )


@pytest.mark.parametrize("compiler", COMPILERS)
def test_what_only_a_gpu_can_do(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONSTREAM_HOST_COMPILER", compiler)
    monkeypatch.setenv("PYTHONPATH", str(Path(ons.__file__).parents[1]))
    result = subprocess.run(
        [sys.executable, "-c", CHILD, str(Path(__file__).parent)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    told = {}
    for line in result.stdout.splitlines():
        name, kind, message = line.split(" ", 2)
        assert kind == "UnsupportedError", line
        told[name] = message
    assert told.keys() == CASES.keys()
    for name, (_, line_number, word, reason) in CASES.items():
        start = f"gpu.cu:{line_number + 1}: uses {word}: the CPU backend has no "
        assert told[name].startswith(start), told[name]
        assert reason in told[name] and "launch on a GPU" in told[name]


def test_words_in_comments_and_strings_are_nobodys_fault() -> None:
    with pytest.raises(ons.CompileError, match=r"gpu\.cu:2: .*nowhere"):
        ons.Module(
            '__device__ const char* text = "asm"; // asm\n'
            "__global__ void k(int* x) { /* tex2D <<< */ x[0] = nowhere; }",
            name="gpu.cu",
        ).k.prepare("cpu")
    with pytest.raises(ons.CompileError, match=r"gpu\.cu:2: .*nowhere"):
        ons.Module(
            '__global__ void k(int* x) { asm volatile("" ::: "memory");\n x[0] = nowhere; }',
            name="gpu.cu",
        ).k.prepare("cpu")


def test_the_same_word_in_code_that_compiles() -> None:
    x = np.zeros(1, np.int32)
    ons.Module(
        '__global__ void k(int* x) { asm volatile("" ::: "memory"); int tex2D = 4; x[0] = tex2D; }'
    ).k[1, 1](x)
    assert x[0] == 4
