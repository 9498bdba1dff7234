"""The other ways to launch the same kernel from Python on a GPU, one function each.

A function returns (statement, names) for measure.python_row, or raises."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

SAXPY = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void axpy(float a, const float* x, const float* y, float* out,
                                long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
"""

Built = tuple[str, dict[str, Any]]


@dataclasses.dataclass
class Case:
    """saxpy of torch tensors x and y, on one stream."""

    x: Any
    y: Any
    n: int
    grid: int
    block: int
    stream: int  # the native handle, which is torch's current stream


def torch_add(case: Case) -> Built:
    return "add(x, alpha=2.0)", {"add": case.y.add_, "x": case.x}


def torch_empty_like(case: Case) -> Built:
    import torch

    return "empty_like(x)", {"empty_like": torch.empty_like, "x": case.x}


def torch_compile_kernel(case: Case) -> Built:
    """Sends floats as double and ints as int, so its kernel is declared that way."""
    import torch

    source = SAXPY.replace("float a", "double a_").replace("long long n", "int n")
    source = source.replace("a *", "(float)a_ *")
    kernel = torch.cuda._compile_kernel(source, "saxpy")
    grid, block = (case.grid, 1, 1), (case.block, 1, 1)
    names = {"k": kernel, "grid": grid, "block": block}
    names |= {"x": case.x, "y": case.y, "n": case.n}
    return "k(grid=grid, block=block, args=(2.0, x, y, n))", names


def set_cupy_stream(case: Case) -> None:
    from cupy.cuda import ExternalStream, Stream

    (ExternalStream(case.stream) if case.stream else Stream.null).use()


def cupy_raw_kernel(case: Case) -> Built:
    import cupy

    set_cupy_stream(case)
    return (
        "k(grid, block, (a, x, y, n))",
        {
            "k": cupy.RawKernel(SAXPY, "saxpy"),
            "grid": (case.grid,),
            "block": (case.block,),
            "a": cupy.float32(2),
            "x": cupy.from_dlpack(case.x),
            "y": cupy.from_dlpack(case.y),
            "n": cupy.int64(case.n),
        },
    )


def cupy_from_torch(case: Case) -> Built:
    import cupy

    _, names = cupy_raw_kernel(case)
    names |= {"x": case.x, "y": case.y, "view": cupy.from_dlpack}
    return "k(grid, block, (a, view(x), view(y), n))", names


def cuda_core(case: Case) -> Built:
    import numpy
    from cuda.core import (
        LEGACY_DEFAULT_STREAM,
        Device,
        LaunchConfig,
        Program,
        ProgramOptions,
        Stream,
        launch,
    )

    device = Device(case.x.device.index)
    device.set_current()
    program = Program(SAXPY, "c++", ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
    stream = Stream.from_handle(case.stream) if case.stream else LEGACY_DEFAULT_STREAM
    return (
        "launch(stream, config, k, a, x, y, n)",
        {
            "launch": launch,
            "stream": stream,
            "config": LaunchConfig(grid=case.grid, block=case.block),
            "k": program.compile("cubin").get_kernel("saxpy"),
            "a": numpy.float32(2),
            "x": case.x.data_ptr(),
            "y": case.y.data_ptr(),
            "n": case.n,  # any int goes as 8 bytes
        },
    )


def triton_jit(case: Case) -> Built:
    global tl  # Triton looks the kernel's names up among the module's
    import triton
    import triton.language as tl

    @triton.jit
    def saxpy(a, x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = i < n
        value = a * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside)
        tl.store(y + i, value, mask=inside)

    return (
        "k[grid](2.0, x, y, n, BLOCK=block)",
        {
            "k": saxpy,
            "grid": (case.grid,),
            "block": case.block,
            "x": case.x,
            "y": case.y,
            "n": case.n,
        },
    )


def tvm_ffi(case: Case) -> Built:
    import tvm_ffi.cpp

    source = (
        SAXPY
        + r"""
void call(double a, tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t n) {
  TVM_FFI_CHECK(x.ndim() == 1 && y.ndim() == 1, ValueError) << "vectors are needed";
  DLDevice device = x.device();
  auto stream = (cudaStream_t)TVMFFIEnvGetStream(device.device_type, device.device_id);
  saxpy<<<GRID, BLOCK, 0, stream>>>((float)a, (const float*)x.data_ptr(),
                                    (float*)y.data_ptr(), n);
}
""".replace("GRID", str(case.grid)).replace("BLOCK", str(case.block))
    )
    module = tvm_ffi.cpp.load_inline("bench", cuda_sources=source, functions=["call"])
    return "f(2.0, x, y, n)", {"f": module.call, "x": case.x, "y": case.y, "n": case.n}


@dataclasses.dataclass
class Peer:
    name: str
    build: Callable[[Case], Built]


TVM_FFI = "tvm-ffi, a C++ function that launches"
EMPTY_LIKE = "torch empty_like alone"


PEERS = [
    Peer("cuda.core launch, everything pre-built", cuda_core),
    Peer("CuPy RawKernel, CuPy arrays", cupy_raw_kernel),
    Peer("CuPy RawKernel, torch by cupy.from_dlpack", cupy_from_torch),
    Peer("torch y.add_(x, alpha=2)", torch_add),
    Peer("torch.cuda._compile_kernel", torch_compile_kernel),
    Peer("Triton", triton_jit),
    Peer(TVM_FFI, tvm_ffi),
    Peer(EMPTY_LIKE, torch_empty_like),
]
