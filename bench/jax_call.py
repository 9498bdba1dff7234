#!/usr/bin/env python3
"""Host time of a call inside jax.jit: a trivial kernel through onstream.jax, XLA's own
smallest fusion of the same shape, and other libraries' ways to call a kernel."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

import measure
from measure import Limit, Row, python_row, why

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
SIZE = 1024
CHAIN = 16
KERNEL = r"""
__global__ void add_one(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}
"""


def onstream_call(graph: bool) -> Callable[[Any], Any]:
    import onstream as ons
    import onstream.jax

    return ons.jax.call(
        ons.Module(KERNEL).add_one,
        out_shape="x",
        grid=ons.cdiv(SIZE, 256),
        block=256,
        scalars={"n": SIZE},
        graph=graph,
    )


def triton_call() -> Callable[[Any], Any]:
    import jax
    import jax_triton
    import triton
    import triton.language as tl

    @triton.jit
    def add_one(x, y, n: tl.constexpr):
        i = tl.program_id(0) * 256 + tl.arange(0, 256)
        tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

    def call(x: Any) -> Any:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax_triton.triton_call(x, kernel=add_one, out_shape=shape, grid=SIZE // 256, n=SIZE)

    return call


def warp_call() -> Callable[[Any], Any]:
    import warp
    from warp.jax_experimental import jax_kernel

    @warp.kernel
    def add_one(x: warp.array(dtype=float), y: warp.array(dtype=float)):
        i = warp.tid()
        y[i] = x[i] + 1.0

    function = jax_kernel(add_one)
    return lambda x: function(x)[0]


def tvm_ffi_call() -> Callable[[Any], Any]:
    import jax
    import jax_tvm_ffi
    import tvm_ffi.cpp

    module = tvm_ffi.cpp.load_inline(
        name="add_one",
        cuda_sources=KERNEL
        + r"""
void call(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  DLDevice device = x.device();
  auto stream = static_cast<cudaStream_t>(
      TVMFFIEnvGetStream(device.device_type, device.device_id));
  int n = x.size(0);
  add_one<<<(n + 255) / 256, 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()), n);
}
""",
        functions=["call"],
    )
    jax_tvm_ffi.register_ffi_target("bench.add_one", module.call, platform="gpu")

    def call(x: Any) -> Any:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.ffi.ffi_call("bench.add_one", shape)(x)

    return call


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--batches", type=int, default=100, help="rounds (100)")
    parser.add_argument("--calls", type=int, default=100, help="calls a batch (100)")
    parser.add_argument("--no-tvm-ffi", action="store_true", help="which needs nvcc and seconds")
    parser.add_argument("--check", action="store_true", help="fail if a limit is not met")
    options = parser.parse_args()

    import jax
    import jax.numpy as jnp

    machine = measure.machine()
    x = jnp.zeros(SIZE, jnp.float32)

    def chained(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for _ in range(CHAIN):
                x = jax.lax.optimization_barrier(call(x))
            return x

        return run

    calls: dict[str, Callable[[], Callable[[Any], Any]]] = {
        "XLA's fusion": lambda: lambda x: x + 1,
        "onstream": lambda: onstream_call(True),
        "onstream, graph=False": lambda: onstream_call(False),
        "jax-triton": triton_call,
        "Warp": warp_call,
    }
    if not options.no_tvm_ffi:
        calls["jax-tvm-ffi"] = tvm_ffi_call
    rows: list[Row] = []
    last: list[Any] = [x]
    for name, make in calls.items():
        # XLA fuses a chain of its own into one kernel.
        chains = () if name == "XLA's fusion" else ((f", {CHAIN} in a row", CHAIN),)
        call = None
        for suffix, times in (("", 1), *chains):
            try:
                call = call or make()
                f = jax.jit(call if times == 1 else chained(call))
                result = f(x)
                assert (result == times).all(), "wrong results"
                last.append(result)
                rows.append(python_row(name + suffix, "f(x)", f=f, x=x))
            except Exception as error:
                rows.append(Row(name + suffix, None, why(error)))

    def synchronize() -> None:
        (x + 1).block_until_ready()

    measure.interleave(rows, options.batches, options.calls, synchronize)
    by_name = {row.name: row for row in rows}
    fusion, ours = by_name["XLA's fusion"], by_name["onstream"]
    print(f"jit(f)(x) of {SIZE} floats on {jax.devices()[0].device_kind}, JAX {jax.__version__}\n")
    print(measure.row_table(rows, fusion))
    limits = [Limit("a call, over XLA's fusion", measure.ratio(ours, fusion), 1.05, "x")]
    result = {
        "machine": machine,
        "device": jax.devices()[0].device_kind,
        "rows": [measure.row_json(row, fusion) for row in rows],
    }
    return measure.finish(options.json, result, limits, options.check)


if __name__ == "__main__":
    sys.exit(main())
