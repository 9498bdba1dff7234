"""One CUDA C++ source on the arrays of every library that is here.

Prints a row for each, fails if any result is wrong, then shows two errors as users see them.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import onstream as ons

SOURCE = r"""
__global__ void axpy(float a, const float* x, const float* y, float* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
"""
N = 1 << 16
A = 2.0
CALLS = 200


class Case(NamedTuple):
    library: str
    device: str
    stream: str
    make: Callable[[], Any]  # the values 0, 1, ... N-1 as an array of the library
    host: Callable[[Any], Any]  # back as something NumPy takes
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    sync: Callable[[], Any] = lambda: None


def library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:  # a broken installation is reported like a missing one
        print(f"{name:<8} not here: {str(error).splitlines()[0][:90]}")
        return None


def host_cases() -> Iterator[Case]:
    if numpy := library("numpy"):
        yield Case("numpy", "cpu", "-", lambda: numpy.arange(N, dtype="f4"), lambda x: x)
    if torch := library("torch"):
        yield Case("torch", "cpu", "-", lambda: torch.arange(N, dtype=torch.float32), list)
    if jax := library("jax"):
        cpu = jax.devices("cpu")[0]
        make = lambda: jax.device_put(jax.numpy.arange(N, dtype="float32"), cpu)  # noqa: E731
        yield Case("jax", "cpu", "-", make, list)


def torch_cases(torch: Any) -> Iterator[Case]:
    make = lambda: torch.arange(N, dtype=torch.float32, device="cuda")  # noqa: E731
    host = lambda x: x.cpu()  # noqa: E731
    sync = torch.cuda.synchronize
    yield Case("torch", "cuda:0", "default", make, host, sync=sync)
    side = torch.cuda.Stream()
    yield Case("torch", "cuda:0", "side", make, host, lambda: torch.cuda.stream(side), sync)


def gpu_cases() -> Iterator[Case]:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        yield from torch_cases(torch)
    if cupy := library("cupy"):
        make = lambda: cupy.arange(N, dtype="f4")  # noqa: E731
        sync = cupy.cuda.Device().synchronize
        yield Case("cupy", "cuda:0", "default", make, cupy.asnumpy, sync=sync)
        with cupy.cuda.Device(0):  # not everybody leaves the current device alone
            own = cupy.cuda.Stream(non_blocking=True)
        yield Case("cupy", "cuda:0", "non-blocking", make, cupy.asnumpy, lambda: own, sync)
    jax = sys.modules.get("jax")
    if jax is not None and jax.default_backend() == "gpu":
        make = lambda: jax.numpy.arange(N, dtype="float32")  # noqa: E731
        yield Case("jax", "cuda:0", "any", make, list)


def largest_error(case: Case, result: Any) -> float:
    values = case.host(result)
    return max(abs(float(values[i]) - (A + 1) * i) for i in range(0, N, 97))


def row(name: str, case: Case, dtype: Any, error: float, nanoseconds: float) -> None:
    version = getattr(sys.modules[case.library], "__version__", "?")
    print(
        f"{name:<8} {version:<14} {case.device:<8} {case.stream:<22} {str(dtype):<15} "
        f"{error:<10.3g} {nanoseconds / 1000:>10.2f}"
    )


def run(case: Case, kernel: ons.Kernel) -> bool:
    with case.around():
        x = case.make()
        launch = kernel[ons.cdiv(N, 256), 256]
        z = launch(A, x, x, ons.like(x), N)
        case.sync()
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            z = launch(A, x, x, ons.like(x), N)
        took = (time.perf_counter_ns() - start) / CALLS
        case.sync()
    error = largest_error(case, z)
    row(case.library, case, x.dtype, error, took)
    return error == 0 and type(z) is type(x)


def run_captured(case: Case, kernel: ons.Kernel, torch: Any) -> bool:
    x = case.make()
    graph = torch.cuda.CUDAGraph()
    launch = kernel[ons.cdiv(N, 256), 256]
    with torch.cuda.graph(graph):
        start = time.perf_counter_ns()
        z = launch(A, x, x, ons.like(x), N)
        took = time.perf_counter_ns() - start
    graph.replay()
    case.sync()
    error = largest_error(case, z)
    row("torch", case._replace(stream="side, captured, first"), x.dtype, error, took)
    return error == 0 and type(z) is type(x)


def show_errors() -> None:
    print("\nAn argument error:")
    numpy = importlib.import_module("numpy")
    kernel = ons.Module(SOURCE).axpy
    x = numpy.zeros(N)
    try:
        kernel[1, 256](A, x, x, x, N)
    except ons.ArgumentError as error:
        print(f"  {type(error).__name__}: {error}")
    print("\nA compile error:")
    try:
        ons.Module(SOURCE.replace("x[i] +", "z[i] +"), name="axpy.cu").axpy[1, 256](A, x, x, x, N)
    except ons.CompileError as error:
        print(f"  {type(error).__name__}, line {error.line}: {error}")


def main() -> int:
    mod = ons.Module(SOURCE, name="axpy.cu")
    head = f"{'library':<8} {'version':<14} {'device':<8} {'stream':<22} {'dtype':<15} "
    good = True
    cases = [*host_cases(), *gpu_cases()]
    print(head + f"{'error':<10} {'us / call':>10}")
    for case in cases:
        good &= run(case, mod.axpy)
        if case.library == "torch" and case.stream == "side":
            fresh = ons.Module(SOURCE + "// not loaded yet\n")
            good &= run_captured(case, fresh.axpy, sys.modules["torch"])
    show_errors()
    print("\nall right" if good else "\nWRONG RESULTS")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
