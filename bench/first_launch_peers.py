#!/usr/bin/env python3
"""The first launch in a new process, cold and with the library's own cache warm: onstream, Triton,
CuPy, Numba, tvm-ffi, torch's C++ extensions. torch, its CUDA context and the library are there
before the clock starts; it stops when the kernel has run."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import measure
from measure import why
from peers import SAXPY

N = 1024
Launch = Callable[[Any, Any], None]


def with_onstream() -> Callable[[], Launch]:
    import onstream as ons

    def make() -> Launch:
        saxpy = ons.Module(SAXPY).saxpy
        return lambda x, y: saxpy[4, 256](2.0, x, y, N)

    return make


def with_cupy() -> Callable[[], Launch]:
    import cupy

    def make() -> Launch:
        kernel = cupy.RawKernel(SAXPY, "saxpy")

        def launch(x: Any, y: Any) -> None:
            arrays = cupy.from_dlpack(x), cupy.from_dlpack(y)
            kernel((4,), (256,), (cupy.float32(2.0), *arrays, cupy.int64(N)))

        return launch

    return make


def with_triton() -> Callable[[], Launch]:
    import triton
    import triton.language as tl

    def make() -> Launch:
        @triton.jit
        def saxpy(x, y, n, block: tl.constexpr):
            i = tl.program_id(0) * block + tl.arange(0, block)
            mask = i < n
            tl.store(y + i, 2.0 * tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)

        return lambda x, y: saxpy[(4,)](x, y, N, block=256)

    return make


def with_numba() -> Callable[[], Launch]:
    from numba import cuda

    def make() -> Launch:
        @cuda.jit("void(float32[:], float32[:], int64)", cache=True)
        def saxpy(x, y, n):
            i = cuda.grid(1)
            if i < n:
                y[i] = 2.0 * x[i] + y[i]

        return lambda x, y: saxpy[4, 256](cuda.as_cuda_array(x), cuda.as_cuda_array(y), N)

    return make


TVM_FFI = """
void launch(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  DLDevice device = x.device();
  auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  saxpy<<<4, 256, 0, stream>>>(2.0f, static_cast<const float*>(x.data_ptr()),
                               static_cast<float*>(y.data_ptr()), x.size(0));
}
"""


def with_tvm_ffi() -> Callable[[], Launch]:
    import tvm_ffi.cpp

    def make() -> Launch:
        module = tvm_ffi.cpp.load_inline(
            name="saxpy", cuda_sources=SAXPY + TVM_FFI, functions=["launch"]
        )
        return module.launch

    return make


TORCH_EXTENSION = """
void launch(torch::Tensor x, torch::Tensor y) {
  saxpy<<<4, 256, 0, at::cuda::getCurrentCUDAStream()>>>(2.0f, x.data_ptr<float>(),
                                                         y.data_ptr<float>(), x.numel());
}
"""


def with_torch_extension() -> Callable[[], Launch]:
    from torch.utils.cpp_extension import load_inline

    def make() -> Launch:
        module = load_inline(
            name="bench_saxpy",
            cpp_sources="void launch(torch::Tensor x, torch::Tensor y);",
            cuda_sources="#include <ATen/cuda/CUDAContext.h>\n" + SAXPY + TORCH_EXTENSION,
            functions=["launch"],
        )
        return module.launch

    return make


PEERS = {
    "onstream": with_onstream,
    "Triton": with_triton,
    "CuPy RawKernel": with_cupy,
    "Numba": with_numba,
    "tvm-ffi load_inline": with_tvm_ffi,
    "torch cpp_extension": with_torch_extension,
}
NVCC = ("tvm-ffi load_inline", "torch cpp_extension")


def child(name: str) -> None:
    import torch

    x = torch.randn(N, device="cuda")
    y = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    try:
        make = PEERS[name]()
        start = time.perf_counter_ns()
        make()(x, y)
        torch.cuda.synchronize()
        took = time.perf_counter_ns() - start
        good = bool((y == 2 * x).all())
        print(json.dumps({"ms": took / 1e6} if good else {"reason": "wrong results"}))
    except Exception as error:
        print(json.dumps({"reason": why(error)}))


def run(name: str, folder: pathlib.Path) -> dict[str, Any]:
    """One process, whose library keeps what it compiles below the folder."""
    home = {
        variable: str(folder / variable)
        for variable in (
            "ONSTREAM_CACHE_DIR",
            "TRITON_CACHE_DIR",
            "CUPY_CACHE_DIR",
            "NUMBA_CACHE_DIR",
            "TVM_FFI_CACHE_DIR",
            "TORCH_EXTENSIONS_DIR",
            "CUDA_CACHE_PATH",
        )
    }
    done = subprocess.run(
        [sys.executable, __file__, "--child", name],
        env={**os.environ, **home},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    if not lines:
        return {"reason": (done.stderr.splitlines() or ["it died"])[-1][:160]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--runs", type=int, default=3, help="cold, and warm (3)")
    parser.add_argument("--no-nvcc", action="store_true", help="not those that take a minute")
    parser.add_argument("--child", choices=list(PEERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0

    machine = measure.machine()
    rows, lines = [], []
    for name in PEERS:
        if options.no_nvcc and name in NVCC:
            continue
        cold: list[dict[str, Any]] = []
        warm: list[dict[str, Any]] = []
        for _ in range(1 if name in NVCC else options.runs):
            with tempfile.TemporaryDirectory() as folder:
                cold.append(run(name, pathlib.Path(folder)))
                if "ms" not in cold[-1]:
                    break
                warm.append(run(name, pathlib.Path(folder)))
        reason = next((r["reason"] for r in [*cold, *warm] if "reason" in r), None)
        row: dict[str, Any] = {"name": name, "reason": reason}
        if reason is None:
            row["cold_ms"] = statistics.median(r["ms"] for r in cold)
            row["warm_ms"] = statistics.median(r["ms"] for r in warm)
            lines.append([name, f"{row['cold_ms']:.1f}", f"{row['warm_ms']:.2f}"])
        else:
            print(f"* {name}: not measured. {reason}")
        rows.append(row)
    print(f"first launch in a new process, on {', '.join(machine['gpu']) or 'no GPU'}\n")
    print(measure.table(["", "cold, ms", "warm, ms"], lines or [["-", "-", "-"]]))
    if options.json:
        result = {"machine": machine, "runs": options.runs, "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
