"""Kernels inside XLA's programs with the real JAX, on the device that it takes by itself."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import onstream as ons  # noqa: E402
import onstream.jax  # noqa: E402

SOURCE = r"""
__global__ void axpy(float a, const float* x, const float* y, float* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
__global__ void scaled(const float* a, const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = *a * x[i];
}
__global__ void increment(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += 1;
}
__global__ void split(const int* x, int* low, int* high, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { low[i] = x[i] & 15; high[i] = x[i] >> 4; }
}
__global__ void rows(const float* x, float* sums, int row_count, int n) {
  int row = blockIdx.x;
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[row * (long long)n + i];
  if (row < row_count) sums[row] = sum;
}
__global__ void sines(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = sinf(x[i]);
}
__global__ void cosines(const float* x, const float* ct, float* g, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) g[i] = ct[i] * cosf(x[i]);
}
template <typename T> __global__ void copy(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
struct pair { int first; float second; };
__global__ void values(float4 v, pair p, bool b, unsigned long long u, const int* nothing,
                       float* out) {
  out[0] = v.x + v.w; out[1] = p.first; out[2] = p.second; out[3] = b;
  out[4] = (float)(u >> 60); out[5] = nothing == nullptr;
}
__global__ void sum_lists(ons::ptrs<const float, 3> xs, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = xs[0][i] + xs[1][i] + xs[2][i];
}
__global__ void transpose(ons::view<const float, 2> x, ons::view<float, 2> y) {
  int i = blockIdx.x, j = threadIdx.x;
  y(j, i) = x(i, j);
}
__global__ void many(const float* a, const float* b, const float* c, const float* d,
                     const float* e, const float* f, const float* g, const float* h,
                     const float* i, const float* j, const float* k, const float* l,
                     const float* m, const float* n, const float* o, const float* p,
                     const float* q, const float* r, float* out) {
  *out = *a + *b + *c + *d + *e + *f + *g + *h + *i + *j + *k + *l + *m + *n + *o + *p + *q +
         *r;
}
"""
module = ons.Module(SOURCE)


def blocks(*operands: Any) -> int:
    return ons.cdiv(operands[0].size, 256)


AXPY: dict[str, Any] = {
    "out_shape": "x",
    "grid": blocks,
    "block": 256,
    "scalars": {"a": 2.0, "n": "x.size"},
}
axpy = ons.jax.call(module.axpy, **AXPY)
increment = ons.jax.call(
    module.increment, in_out="y", grid=blocks, block=256, scalars={"n": "y.size"}
)
sines = ons.jax.call(module.sines, out_shape="x", grid=blocks, block=256, scalars={"n": "x.size"})
cosines = ons.jax.call(
    module.cosines, out_shape="x", grid=blocks, block=256, scalars={"n": "x.size"}
)


def numbers(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(7).standard_normal(shape, dtype=np.float32))


@pytest.mark.parametrize("wrap", [jax.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("embed", ["source", "hash"])
@pytest.mark.parametrize("graph", [True, False])
def test_a_call(wrap: Any, embed: str, graph: bool) -> None:
    x, y = numbers(1000), numbers(1000) + 1
    f = wrap(ons.jax.call(module.axpy, embed=embed, graph=graph, **AXPY))
    np.testing.assert_allclose(f(x, y), 2 * x + y, rtol=1e-6)


def test_several_results_come_in_the_parameters_order() -> None:
    x = jnp.arange(1000, dtype=jnp.int32)
    f = ons.jax.call(
        module.split,
        out_shape=(jax.ShapeDtypeStruct((1000,), jnp.int32), "x"),
        grid=4,
        block=256,
        scalars={"n": 1000},
    )
    low, high = jax.jit(f)(x)
    assert (low == x & 15).all() and (high == x >> 4).all()


def test_traced_scalars_are_operands() -> None:
    f = ons.jax.call(module.scaled, out_shape="x", grid=4, block=256, scalars={"n": "x.size"})
    x = numbers(1000)
    for a in (2.0, 3.0):
        np.testing.assert_allclose(jax.jit(f)(jnp.float32(a), x), a * x)


@pytest.mark.parametrize("donate", [(), (0,)])
def test_in_place(donate: tuple[int, ...]) -> None:
    f = jax.jit(lambda y: increment(y) * 2, donate_argnums=donate)
    y = numbers(1000)
    expected = (np.asarray(y) + 1) * 2
    kept = np.array(y)
    np.testing.assert_allclose(f(y), expected)
    if not donate:
        np.testing.assert_array_equal(y, kept)  # a copy was written


def test_scan_and_cond_and_loops() -> None:
    y = jnp.zeros(100, jnp.float32)
    total, _ = jax.lax.scan(lambda c, _: (increment(c), None), y, None, length=10)
    assert (total == 10).all()
    assert (jax.lax.fori_loop(0, 5, lambda _, c: increment(c), y) == 5).all()
    f = jax.jit(lambda p, v: jax.lax.cond(p, increment, lambda c: c - 1, v))
    assert (f(True, y) == 1).all() and (f(False, y) == -1).all()


def test_vmap_launches_once_for_each_element() -> None:
    x, y = numbers(5, 100), numbers(100)
    f = jax.jit(jax.vmap(axpy, in_axes=(0, None)))
    np.testing.assert_allclose(f(x, y), 2 * x + y, rtol=1e-6)


def test_vmap_with_a_leading_dimension() -> None:
    shapes = []

    def grid(x: Any) -> int:
        shapes.append(x.shape)
        return int(np.prod(x.shape[:-1]))

    f = ons.jax.call(
        module.rows,
        out_shape=lambda x: jax.ShapeDtypeStruct(x.shape[:-1], x.dtype),
        grid=grid,
        block=1,
        scalars={"row_count": lambda x: int(np.prod(x.shape[:-1])), "n": "x.shape[-1]"},
        vmap_method="broadcast_all",
    )
    x = numbers(3, 4, 50)
    np.testing.assert_allclose(jax.jit(f)(x), x.sum(-1), rtol=1e-4, atol=1e-5)
    shapes.clear()
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(x), x.sum(-1), rtol=1e-4, atol=1e-5)
    assert (3, 4, 50) in shapes, "one launch for the whole batch"
    np.testing.assert_allclose(jax.vmap(jax.vmap(f))(x), x.sum(-1), rtol=1e-4, atol=1e-5)


def test_gradients() -> None:
    f = ons.jax.with_gradient(sines, lambda x, y, ct: cosines(x, ct))
    x = numbers(100)
    np.testing.assert_allclose(
        jax.jit(jax.grad(lambda v: f(v).sum()))(x), jnp.cos(x), rtol=1e-5, atol=1e-6
    )
    check_grads(f, (x,), order=1, modes=["rev"], rtol=2e-2, atol=2e-2)


def test_no_gradient_without_a_rule() -> None:
    with pytest.raises(ons.UnsupportedError, match="'sines' has no derivative.*with_gradient"):
        jax.grad(lambda v: sines(v).sum())(numbers(10))


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn", "int8", "uint16", "bool"]
)
def test_dtypes(dtype: str) -> None:
    names = {
        "float16": "__half",
        "bfloat16": "__nv_bfloat16",
        "float32": "float",
        "float8_e4m3fn": "__nv_fp8_e4m3",
        "int8": "signed char",
        "uint16": "unsigned short",
        "bool": "bool",
    }
    headers = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n"
    kernel = ons.Module(headers + SOURCE)[f"copy<{names[dtype]}>"]
    f = ons.jax.call(kernel, out_shape="x", grid=1, block=64, scalars={"n": 33})
    x = jnp.arange(33).astype(dtype)
    assert (jax.jit(f)(x) == x).all()


def test_values_that_are_no_single_numbers() -> None:
    class Pair(ctypes.Structure):
        _fields_ = [("first", ctypes.c_int), ("second", ctypes.c_float)]

    f = ons.jax.call(
        module["values"],
        out_shape=jax.ShapeDtypeStruct((6,), jnp.float32),
        grid=1,
        block=1,
        scalars={
            "v": [1, 2, 3, 4.5],
            "p": Pair(7, 8.5),
            "b": True,
            "u": 2**63 + 5,
            "nothing": None,
        },
    )
    assert list(jax.jit(f)()) == [5.5, 7, 8.5, 1, 8, 1]


@pytest.mark.parametrize("a", [np.float16(1.5), np.float32(1.5), np.array(1.5), np.int8(2), 2])
def test_numpy_scalars(a: Any) -> None:
    x, y = numbers(10), numbers(10)
    f = ons.jax.call(module.axpy, **{**AXPY, "scalars": {"a": a, "n": np.int32(10)}})
    np.testing.assert_allclose(jax.jit(f)(x, y), float(a) * x + y, rtol=1e-6)


def test_lists_and_views_and_many_operands() -> None:
    xs = [numbers(10) + i for i in range(3)]
    f = ons.jax.call(
        module.sum_lists,
        out_shape=lambda xs: xs[0],
        grid=1,
        block=32,
        scalars={"n": 10},
    )
    np.testing.assert_allclose(jax.jit(f)(xs), sum(xs), rtol=1e-6)
    g = ons.jax.call(
        module.transpose,
        out_shape=lambda x: jax.ShapeDtypeStruct(x.shape[::-1], x.dtype),
        grid="x.shape[0]",
        block="x.shape[1]",
    )
    x = numbers(3, 5)
    assert (jax.jit(g)(x) == x.T).all()
    one = jax.ShapeDtypeStruct((), jnp.float32)
    h = ons.jax.call(module.many, out_shape=one, grid=1, block=1)
    assert jax.jit(h)(*[jnp.float32(i) for i in range(18)]) == sum(range(18))


def test_nothing_to_do() -> None:
    assert axpy(jnp.zeros(0, jnp.float32), jnp.zeros(0, jnp.float32)).shape == (0,)


def test_against_buffer_callback() -> None:
    """The same kernel by a call from Python inside of XLA's program."""
    if jax.default_backend() != "cpu":
        pytest.skip("tests/gpu has this for GPUs")
    from jax.experimental import buffer_callback

    launcher = module.axpy[4, 256]

    def launch(context: Any, out: Any, x: Any, y: Any) -> None:
        launcher(2.0, np.asarray(x), np.asarray(y), np.asarray(out), 1000)

    x, y = numbers(1000), numbers(1000)
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)
    f = jax.jit(buffer_callback.buffer_callback(launch, result))
    np.testing.assert_array_equal(f(x, y), jax.jit(axpy)(x, y))


def test_two_programs_at_once_from_many_threads() -> None:
    x, y = numbers(1000), numbers(1000)
    programs = [jax.jit(axpy), jax.jit(lambda x, y: axpy(y, x))]
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


def load_example() -> Any:
    path = Path(__file__).parents[2] / "examples" / "python" / "rms_norm.py"
    spec = importlib.util.spec_from_file_location("rms_norm", path)
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def test_the_rms_norm_of_the_example() -> None:
    example = load_example()
    x, w = numbers(6, 300), numbers(300) + 2
    np.testing.assert_allclose(
        jax.jit(example.rms_norm)(x, w), example.rms_norm_of_jnp(x, w), rtol=1e-5, atol=1e-5
    )
    for argument in (0, 1):
        ours, theirs = (
            jax.grad(lambda *a, norm=norm: (norm(*a) ** 2).sum(), argument)(x, w)
            for norm in (example.rms_norm, example.rms_norm_of_jnp)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)
    check_grads(example.rms_norm, (x[:2, :20], w[:20]), order=1, modes=["rev"], rtol=2e-2)
    many = numbers(3, 4, 20)
    np.testing.assert_allclose(
        jax.vmap(example.rms_norm, (0, None))(many, w[:20]),
        example.rms_norm_of_jnp(many, w[:20]),
        rtol=1e-5,
        atol=1e-5,
    )
    ours, theirs = example.train(example.rms_norm, 30), example.train(example.rms_norm_of_jnp, 30)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)


def test_the_rms_norm_of_the_example_in_torch() -> None:
    torch = pytest.importorskip("torch")
    example = load_example()
    x = torch.randn(5, 100, requires_grad=True)
    w = torch.rand(100, requires_grad=True)
    example.torch_rms_norm(x, w).square().sum().backward()
    ours = [x.grad, w.grad]
    x.grad = w.grad = None
    torch.nn.functional.rms_norm(x, (100,), w, 1e-6).square().sum().backward()
    for one, other in zip(ours, (x.grad, w.grad), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


# ---- what is refused -------------------------------------------------------------------------


def refused(kernel: Any, message: str, *operands: Any, **options: Any) -> None:
    with pytest.raises(ons.ArgumentError, match=message):
        jax.jit(ons.jax.call(kernel, **{**AXPY, **options}))(*operands)


def test_refusals_name_the_kernel_and_the_parameter() -> None:
    x, y = numbers(8), numbers(8)
    refused(module.axpy, r"kernel 'axpy': takes 2 operands \(x, y\), not 1", x)
    refused(module.axpy, "x is declared const float.*, but the operand is int32", x.astype(int), y)
    refused(module.axpy, "n has no value", x, y, scalars={"a": 1.0})
    refused(module.axpy, "no parameter 'm'", x, y, scalars={"a": 1.0, "n": 1, "m": 2})
    refused(module.axpy, "no parameter 'z'", x, y, in_out=("z",))
    refused(module.axpy, "out_shape has nothing for out", x, y, out_shape=())
    refused(module.axpy, "out_shape has more than", x, y, out_shape=("x", "y"))
    refused(
        module.axpy,
        "out is declared float.*float16",
        x,
        y,
        out_shape=jax.ShapeDtypeStruct((8,), jnp.float16),
    )
    refused(module.axpy, "out_shape has 8: give a jax.ShapeDtypeStruct", x, y, out_shape=8)
    refused(module.axpy, "grid is .*nothing would be written", x, y, grid=0)
    refused(module.axpy, "grid is 'z.size': write a number", x, y, grid="z.size")
    refused(module.axpy, "x has 1 dims", x, y, grid="x.shape[1]")
    refused(module.axpy, "takes one to three sizes", x, y, grid=(1, 1, 1, 1))
    refused(module.axpy, "takes one to three sizes", x, y, block=-1)
    refused(module.axpy, "x is an array", y, scalars={"a": 1.0, "n": 8, "x": x}, out_shape="y")
    refused(module.axpy, "a is declared float, not 'x.y'|a is 'x.y'", x, y, scalars={"a": "x.y"})
    refused(module.transpose, "has 1 dimensions", x, scalars={}, out_shape="x")
    refused(module.sum_lists, "takes a list of 3", [x, x], scalars={"n": 8}, out_shape="xs")


def test_a_traced_scalar_is_refused_with_the_way_out() -> None:
    def f(a: Any, x: Any, y: Any) -> Any:
        return ons.jax.call(module.axpy, **{**AXPY, "scalars": {"a": a, "n": 8}})(x, y)

    with pytest.raises(ons.ArgumentError, match="a is traced: declare it `const float"):
        jax.jit(f)(2.0, numbers(8), numbers(8))


def test_options_that_are_none() -> None:
    with pytest.raises(ons.ArgumentError, match="embed is 'file'"):
        ons.jax.call(module.axpy, **AXPY, embed="file")  # type: ignore[arg-type]
    with pytest.raises(ons.ArgumentError, match="vmap_method is 'x'"):
        ons.jax.call(module.axpy, **AXPY, vmap_method="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not an onstream.Kernel"):
        ons.jax.call(len, **AXPY)  # type: ignore[arg-type]


def test_the_compilers_log_is_in_the_error() -> None:
    broken = ons.Module("__global__ void k(float* y) { y[0] = undeclared_name; }")
    with pytest.raises(ons.CompileError, match="undeclared_name"):
        jax.jit(ons.jax.call(broken.k, in_out="y", grid=1, block=1))(numbers(1))


def test_what_only_the_launch_can_tell_is_in_xlas_error() -> None:
    f = ons.jax.call(module.axpy, **{**AXPY, "block": 2048})
    with pytest.raises(Exception, match="2048"):
        jax.block_until_ready(jax.jit(f)(numbers(8), numbers(8)))
    f = ons.jax.call(module.axpy, **{**AXPY, "scalars": {"a": 1.0, "n": 2**70 // 2**70 + 0.5}})
    with pytest.raises(Exception, match="n"):
        jax.block_until_ready(jax.jit(f)(numbers(8), numbers(8)))


# ---- other processes -------------------------------------------------------------------------

PRELUDE = f"""
import sys
import numpy as np
import jax, jax.numpy as jnp
import onstream as ons
import onstream.jax
module = ons.Module({SOURCE!r})
axpy = ons.jax.call(module.axpy, out_shape="x", grid=4, block=256,
                    scalars={{"a": 2.0, "n": "x.size"}})
x = jnp.arange(1000, dtype=jnp.float32)
"""


def run(code: str, folder: Path, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_importing_onstream_imports_no_jax(tmp_path: Path) -> None:
    code = "import sys, onstream; print('jax' in sys.modules, 'onstream.jax' in sys.modules)"
    assert run(code, tmp_path) == "False False\n"


def test_a_program_from_a_file_needs_no_kernel_object(tmp_path: Path) -> None:
    export = PRELUDE + (
        "from jax import export\n"
        "allowed = [export.DisabledSafetyCheck.custom_call(n)\n"
        "           for n in ('onstream.launch', 'onstream.launch_nograph')]\n"
        "f = export.export(jax.jit(axpy), disabled_checks=allowed)(x, x)\n"
        "open('program', 'wb').write(f.serialize())\n"
    )
    run(export, tmp_path)
    use = (
        "import jax, jax.numpy as jnp, onstream.jax\n"
        "from jax import export\n"
        "onstream.jax.register()\n"
        "f = export.deserialize(open('program', 'rb').read())\n"
        "x = jnp.arange(1000, dtype=jnp.float32)\n"
        "print(float(jax.jit(f.call)(x, x)[10]))\n"
    )
    assert run(use, tmp_path) == "30.0\n"


@pytest.mark.parametrize("source", [False, True])
def test_a_program_with_a_bundle_needs_no_compiler(tmp_path: Path, source: bool) -> None:
    level = "aarch64" if platform.machine() == "aarch64" else "x86-64"
    load = f"""
open("k.onsb", "wb").write(module.bundle({level!r}, source={source}))
module = ons.load_bundle(open("k.onsb", "rb").read())
again = ons.load("k.onsb")
for m in module, again:
    axpy = ons.jax.call(m.axpy, out_shape="x", grid=4, block=256,
                        scalars={{"a": 2.0, "n": "x.size"}})
    print(float(jax.jit(axpy)(x, x)[10]))
"""
    export = (
        PRELUDE
        + textwrap.dedent(load)
        + (
            "from jax import export\n"
            "allowed = [export.DisabledSafetyCheck.custom_call('onstream.launch')]\n"
            "f = export.export(jax.jit(axpy), disabled_checks=allowed)(x, x)\n"
            "open('program', 'wb').write(f.serialize())\n"
        )
    )
    assert run(export, tmp_path) == "30.0\n30.0\n"
    use = (
        "import jax, jax.numpy as jnp, onstream.jax\n"
        "from jax import export\n"
        "onstream.jax.register()\n"
        "f = export.deserialize(open('program', 'rb').read())\n"
        "x = jnp.arange(1000, dtype=jnp.float32)\n"
        "print(float(jax.jit(f.call)(x, x)[10]))\n"
    )
    nothing = {"ONSTREAM_HOST_COMPILER": "/nowhere", "ONSTREAM_CACHE_DIR": "off"}
    assert run(use, tmp_path, **nothing) == "30.0\n"


def test_a_program_with_a_digest_only_says_what_it_needs(tmp_path: Path) -> None:
    export = PRELUDE.replace("grid=4,", "grid=4, embed='hash',") + (
        "from jax import export\n"
        "allowed = [export.DisabledSafetyCheck.custom_call('onstream.launch')]\n"
        "f = export.export(jax.jit(axpy), disabled_checks=allowed)(x, x)\n"
        "open('program', 'wb').write(f.serialize())\n"
    )
    run(export, tmp_path)
    use = (
        "import jax, jax.numpy as jnp, onstream.jax\n"
        "from jax import export\n"
        "onstream.jax.register()\n"
        "f = export.deserialize(open('program', 'rb').read())\n"
        "x = jnp.arange(1000, dtype=jnp.float32)\n"
        "try:\n    jax.jit(f.call)(x, x)\n"
        "except Exception as error:\n    print(error)\n"
    )
    assert "digest" in run(use, tmp_path)


def test_the_persistent_cache_in_a_second_process(tmp_path: Path) -> None:
    code = PRELUDE + (
        "import os\n"
        "jax.config.update('jax_compilation_cache_dir', os.getcwd() + '/xla')\n"
        "jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)\n"
        "hits = []\n"
        "import jax._src.monitoring as monitoring\n"
        "monitoring.register_event_listener(lambda name, **_: hits.append(name))\n"
        "z = jax.jit(axpy)(x, x)\n"
        "print(float(z[10]), '/jax/compilation_cache/cache_hits' in hits)\n"
    )
    real = shutil.which("clang++") or shutil.which("g++") or ""
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho run >> "{tmp_path}/log"\nexec "{real}" "$@"\n')
    compiler.chmod(0o755)
    cache = {
        "ONSTREAM_CACHE_DIR": str(tmp_path / "kernels"),
        "ONSTREAM_HOST_COMPILER": str(compiler),
    }
    assert run(code, tmp_path, **cache) == "30.0 False\n"
    compiles = (tmp_path / "log").read_text()
    assert compiles
    assert run(code, tmp_path, **cache) == "30.0 True\n"
    assert (tmp_path / "log").read_text() == compiles


def test_two_devices(tmp_path: Path) -> None:
    """Each device its part of a sharded array, under shard_map and pmap."""
    code = PRELUDE + (
        "from jax.sharding import Mesh, PartitionSpec as P, NamedSharding\n"
        "mesh = Mesh(np.array(jax.devices()), ('d',))\n"
        "sharded = jax.device_put(x, NamedSharding(mesh, P('d')))\n"
        "f = jax.jit(jax.shard_map(axpy, mesh=mesh, in_specs=(P('d'), P('d')),"
        " out_specs=P('d'), check_vma=False))\n"
        "z = f(sharded, sharded)\n"
        "assert len(z.sharding.device_set) == 2\n"
        "print(bool((z == 3 * x).all()))\n"
        "print(bool((jax.pmap(axpy)(x.reshape(2, 500), x.reshape(2, 500)).ravel() == 3 * x)"
        ".all()))\n"
    )
    flags = "--xla_force_host_platform_device_count=2"
    assert run(code, tmp_path, XLA_FLAGS=flags) == "True\nTrue\n"
