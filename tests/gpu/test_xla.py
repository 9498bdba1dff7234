"""Kernels inside XLA's programs on a GPU: on its stream, in its command buffers.

The last file to run: a program of JAX that is freed during a capture of another test ends that."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onstream as ons

pytest.importorskip("jax")
import onstream.jax  # noqa: E402

N = 1 << 20


@pytest.fixture
def calls(mod: ons.Module, jax: Any) -> Any:

    def call(kernel: str, out_shape: str, **options: Any) -> Any:
        return ons.jax.call(
            mod[kernel],
            out_shape=out_shape,
            grid=lambda x, *_: ons.cdiv(x.size, 256),
            block=256,
            scalars={"a": 2.0, "n": "x.size"},
            **options,
        )

    return call


@pytest.mark.parametrize("graph", [True, False])
def test_values(calls: Any, jax: Any, graph: bool) -> None:
    axpy = jax.jit(calls("axpy", "x", graph=graph))
    x = jax.numpy.arange(N, dtype=jax.numpy.float32)
    for i in range(20):
        assert bool((axpy(x + i, x) == 2 * (x + i) + x).all())


def test_scan(calls: Any, jax: Any) -> None:
    scale = calls("scale", "x")
    x = jax.numpy.ones(1000)
    total, _ = jax.jit(
        lambda x: jax.lax.scan(lambda c, _: (scale(c) - 1, None), x, None, length=100)
    )(x)
    assert bool((total == 1).all())


def test_order_with_xlas_own_work(calls: Any, jax: Any) -> None:
    """Between two products that take long: a kernel on another stream would read too early."""
    axpy = calls("axpy", "x")

    def program(m: Any) -> Any:
        p = m @ m
        return axpy(p, p) @ m

    def expected(m: Any) -> Any:
        return (3 * (m @ m)) @ m

    m = jax.numpy.asarray(np.random.default_rng(0).standard_normal((2048, 2048), np.float32))
    for _ in range(10):
        got, want = jax.jit(program)(m), jax.jit(expected)(m)
        assert bool(jax.numpy.allclose(got, want, rtol=1e-3, atol=1e-2 * float(abs(want).max())))


def test_two_programs_from_eight_threads(calls: Any, jax: Any) -> None:
    axpy = calls("axpy", "x")
    programs = [jax.jit(axpy), jax.jit(lambda x, y: axpy(y, x))]
    x = jax.numpy.arange(N, dtype=jax.numpy.float32)
    y = x * 3 + 1
    expected = [np.asarray(f(x, y)) for f in programs]
    wrong = []

    def run(which: int) -> None:
        for _ in range(200):
            if not (np.asarray(programs[which](x, y)) == expected[which]).all():
                wrong.append(which)

    threads = [threading.Thread(target=run, args=(i % 2,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_launch_s_error_is_xlas(mod: ons.Module, jax: Any) -> None:

    f = ons.jax.call(
        mod.scale, out_shape="x", grid=1, block=2048, scalars={"a": 1.0, "n": "x.size"}
    )
    with pytest.raises(Exception, match="2048"):
        jax.block_until_ready(jax.jit(f)(jax.numpy.ones(8)))


def test_against_buffer_callback(mod: ons.Module, calls: Any, jax: Any) -> None:
    """The same kernel launched by Python inside of XLA's program, on the callback's stream."""
    from jax.experimental import buffer_callback

    launcher = mod.axpy

    def launch(context: Any, out: Any, x: Any, y: Any) -> None:
        launcher[ons.cdiv(N, 256), 256, 0, context.stream](2.0, x, y, out, N)

    x = jax.numpy.arange(N, dtype=jax.numpy.float32)
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)
    ons.register_producer(type_of_buffer(jax), stream=None, read_only=False)
    f = jax.jit(buffer_callback.buffer_callback(launch, result))
    assert bool((f(x + 1, x) == jax.jit(calls("axpy", "x"))(x + 1, x)).all())


def type_of_buffer(jax: Any) -> Any:
    import jax.ffi

    return getattr(jax.ffi, "Buffer", None) or jax._src.lib._jax.ffi.Buffer


# ---- other processes -------------------------------------------------------------------------

PRELUDE = """
import ctypes, os, sys
import numpy as np
import jax, jax.numpy as jnp
import onstream as ons
import onstream.jax
module = ons.Module('''
__global__ void axpy(float a, const float* x, const float* y, float* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}''')
axpy = ons.jax.call(module.axpy, out_shape="x", grid=4, block=256,
                    scalars={"a": 2.0, "n": "x.size"}, graph=GRAPH)
x = jnp.arange(1000, dtype=jnp.float32)
"""


def run(code: str, folder: Path, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **environment},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


# The handler with a count around it, under a name of its own.
COUNTED = """
executes = 0
handlers = ons._core._xla_handlers()["CUDA"]["onstream.launch" if GRAPH else "onstream.launch_nograph"]
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
real = kind(pointer(handlers["execute"], None))
def count(frame):
    global executes
    executes += 1
    return real(frame)
counting = kind(count)
make = ctypes.pythonapi.PyCapsule_New
make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
stages = dict(handlers, execute=make(ctypes.cast(counting, ctypes.c_void_p), None, None))
jax.ffi.register_ffi_target("counted", stages, platform="CUDA")
ffi_call = jax.ffi.ffi_call
jax.ffi.ffi_call = lambda target, *args, **options: ffi_call("counted", *args, **options)
def program(x):
    for _ in range(8):
        x = axpy(x, x) / 3
    return x
f = jax.jit(program)
for _ in range(50):
    y = f(x)
assert bool(jnp.allclose(y, x)), y
print(executes)
"""


@pytest.mark.parametrize("graph", [True, False])
def test_command_buffers(jax: Any, tmp_path: Path, graph: bool) -> None:
    """A recorded call is executed while it is recorded, and not in the runs of the graph."""
    code = PRELUDE.replace("GRAPH", str(graph)) + COUNTED.replace("GRAPH", str(graph))
    flags = "--xla_gpu_graph_min_graph_size=1"
    count = int(run(code, tmp_path, XLA_FLAGS=flags))
    if graph:
        assert 8 <= count < 200, count
    else:
        assert count >= 400, count


def test_the_persistent_cache_in_a_second_process(jax: Any, tmp_path: Path) -> None:
    code = PRELUDE.replace("GRAPH", "True") + (
        "jax.config.update('jax_compilation_cache_dir', os.getcwd() + '/xla')\n"
        "jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)\n"
        "import jax._src.monitoring as monitoring\n"
        "hits = []\n"
        "monitoring.register_event_listener(lambda name, **_: hits.append(name))\n"
        "z = jax.jit(axpy)(x, x)\n"
        "print(float(z[10]), '/jax/compilation_cache/cache_hits' in hits)\n"
    )
    cache = {"ONSTREAM_CACHE_DIR": str(tmp_path / "kernels")}
    assert run(code, tmp_path, **cache) == "30.0 False\n"
    assert run(code, tmp_path, **cache) == "30.0 True\n"


def test_two_gpus(jax: Any, tmp_path: Path) -> None:
    if len(jax.devices()) < 2:
        pytest.skip("one GPU")
    code = PRELUDE.replace("GRAPH", "True") + (
        "from jax.sharding import Mesh, PartitionSpec as P, NamedSharding\n"
        "mesh = Mesh(np.array(jax.devices()[:2]), ('d',))\n"
        "sharded = jax.device_put(x, NamedSharding(mesh, P('d')))\n"
        "f = jax.jit(jax.shard_map(axpy, mesh=mesh, in_specs=(P('d'), P('d')),"
        " out_specs=P('d'), check_vma=False))\n"
        "z = f(sharded, sharded)\n"
        "assert len(z.sharding.device_set) == 2\n"
        "print(bool((z == 3 * x).all()))\n"
    )
    assert run(code, tmp_path) == "True\n"
