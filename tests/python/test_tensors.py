"""What is in an array, and how it lies there (cases 1 to 12)."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import onstream as ons

torch = pytest.importorskip("torch")


def f32(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def run_scale(mod: ons.Module, x: Any, out: Any, n: int) -> None:
    mod.scale[ons.cdiv(n, 32), 32](2.0, x, out, n)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_values(mod: ons.Module, library: str) -> None:
    n = 1000
    x, y, out = f32(n), f32(n) + 1, np.zeros(n, np.float32)
    arrays = (x, y, out) if library == "numpy" else tuple(map(torch.from_numpy, (x, y, out)))
    assert mod.axpy[ons.cdiv(n, 128), 128](3.0, *arrays, n) is None
    np.testing.assert_array_equal(out, 3 * x + y)


def test_jax_values(mod: ons.Module, jnp: Any) -> None:
    x = jnp.arange(10, dtype=jnp.float32)
    z = mod.scale[1, 32](2.0, x, ons.like(x), 10)
    assert type(z) is type(x)
    np.testing.assert_array_equal(np.asarray(z), 2 * np.asarray(x))


def test_libraries_mix_on_the_cpu(mod: ons.Module) -> None:
    x, y = f32(8), torch.ones(8)
    out = mod.axpy[1, 32](1.0, x, y, ons.like(y), 8)
    assert isinstance(out, torch.Tensor)
    np.testing.assert_array_equal(out.numpy(), x + 1)


def test_storage_offset(mod: ons.Module, producer: Any) -> None:
    x = f32(16)
    out = np.zeros(8, np.float32)
    Tensor = producer.make_type(0)
    shifted = Tensor(x.ctypes.data, (8,), owner=x, byte_offset=32)
    run_scale(mod, shifted, out, 8)
    np.testing.assert_array_equal(out, 2 * x[8:])
    run_scale(mod, torch.from_numpy(x)[8:], out, 8)
    np.testing.assert_array_equal(out, 2 * x[8:])


def test_null_strides_are_row_major(mod: ons.Module, producer: Any) -> None:
    x = f32(2, 3)
    out = np.zeros(6, np.float32)
    tensor = producer.make_type(0)(x.ctypes.data, (2, 3), owner=x, strides=None)
    mod.gather[1, 1](tensor, out)
    np.testing.assert_array_equal(out, x.ravel())
    run_scale(mod, tensor, out, 6)
    np.testing.assert_array_equal(out, 2 * x.ravel())


def test_zero_dimensional_tensor_without_extents(mod: ons.Module, producer: Any) -> None:
    x = np.array(7, np.float32)
    out = np.zeros(1, np.float32)
    tensor = producer.make_type(0)(x.ctypes.data, None, owner=x)
    run_scale(mod, tensor, out, 1)
    assert out[0] == 14


@pytest.mark.parametrize("shape", [(0,), (1, 8, 0, 128)])
def test_empty_tensors(mod: ons.Module, producer: Any, shape: tuple[int, ...]) -> None:
    tensor = producer.make_type(0)(0, shape)
    mod.scale[1, 1](1.0, tensor, tensor, 0)
    mod.scale[0, 32](1.0, torch.empty(shape), torch.empty(shape), 0)
    assert mod.scale[0, 32](1.0, torch.empty(shape), ons.like(torch.empty(shape)), 0).shape == shape


def test_no_memory_is_refused(mod: ons.Module, producer: Any) -> None:
    tensor = producer.make_type(0)(0, (4,))
    with pytest.raises(ons.ArgumentValueError, match="'x'.*without data"):
        run_scale(mod, tensor, np.zeros(4, np.float32), 4)


def test_strides_of_single_elements_do_not_matter(mod: ons.Module, producer: Any) -> None:
    x = f32(77)
    out = np.zeros(77, np.float32)
    tensor = producer.make_type(0)(x.ctypes.data, (1, 77), strides=(5, 1), owner=x)
    run_scale(mod, tensor, out, 77)
    np.testing.assert_array_equal(out, 2 * x)


def test_broadcast_views(mod: ons.Module) -> None:
    x = np.broadcast_to(f32(3), (4, 3))
    out = np.zeros(12, np.float32)
    mod.gather[1, 1](x, out)
    np.testing.assert_array_equal(out.reshape(4, 3), x)
    wide = torch.zeros(1, 3).expand(4, 3)
    with pytest.raises(ons.ArgumentValueError, match="argument 3 .'out'.*stride"):
        run_scale(mod, torch.zeros(12), wide, 12)
    with pytest.raises(ons.ArgumentValueError, match="argument 1 .'x'.*share memory"):
        mod.store[1, 1](wide, 1.0)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_other_orders_need_a_view(mod: ons.Module, library: str) -> None:
    x = f32(3, 4).T
    given = x if library == "numpy" else torch.from_numpy(f32(3, 4)).T
    out = np.zeros(12, np.float32)
    with pytest.raises(ons.ArgumentValueError, match="'x'.*contiguous copy.*ons::view"):
        run_scale(mod, given, out, 12)
    mod.gather[1, 1](given, out)
    np.testing.assert_array_equal(out.reshape(4, 3), x)


def test_negative_strides(mod: ons.Module) -> None:
    x = f32(3, 4)[::-1, ::-2]
    out = np.zeros(6, np.float32)
    mod.gather[1, 1](x, out)
    np.testing.assert_array_equal(out.reshape(3, 2), x)
    with pytest.raises(ons.ArgumentValueError):
        run_scale(mod, x, out, 6)


def test_strides_between_elements_are_refused(mod: ons.Module) -> None:
    packed = np.zeros(4, dtype=[("a", "u1"), ("b", "<f4")])["b"]
    with pytest.raises(ons.ArgumentValueError, match="'x'.*not multiples"):
        run_scale(mod, packed, np.zeros(4, np.float32), 4)


def test_read_only(mod: ons.Module) -> None:
    x = f32(4)
    x.flags.writeable = False
    out = np.zeros(4, np.float32)
    run_scale(mod, x, out, 4)
    np.testing.assert_array_equal(out, 2 * x)
    with pytest.raises(ons.ArgumentValueError, match="argument 3 .'out'.*read-only.*copy"):
        run_scale(mod, out, x, 4)


def test_jax_arrays_are_never_written(mod: ons.Module, jnp: Any) -> None:
    x = jnp.ones(4)
    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        run_scale(mod, np.zeros(4, np.float32), x, 4)
    assert (np.asarray(x) == 1).all()


@pytest.mark.parametrize(
    ("dtype", "kernel"),
    [
        (np.float64, "copy<float>"),
        (np.int32, "copy<long>"),
        (np.int64, "copy<int>"),
        (np.uint32, "copy<int>"),
        (np.float16, "copy<short>"),
        (np.bool_, "copy<unsigned char>"),
        (np.complex64, "copy<double>"),
    ],
)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_wrong_dtypes(mod: ons.Module, dtype: Any, kernel: str, library: str) -> None:
    x: Any = np.zeros(4, dtype)
    if library == "torch":
        x = torch.from_numpy(x)
    with pytest.raises(ons.ArgumentTypeError) as caught:
        mod[kernel][1, 32](x, x, 4)
    message = str(caught.value)
    assert kernel in message and "argument 1" in message and np.dtype(dtype).name in message
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, ons.ArgumentError)


@pytest.mark.parametrize(
    ("dtype", "spelling"),
    [
        (np.int8, "signed char"),
        (np.uint8, "unsigned char"),
        (np.int16, "short"),
        (np.uint16, "unsigned short"),
        (np.int32, "int"),
        (np.uint32, "unsigned"),
        (np.int64, "long long"),
        (np.int64, "long"),
        (np.uint64, "unsigned long long"),
        (np.float32, "float"),
        (np.float64, "double"),
        (np.bool_, "bool"),
    ],
)
def test_dtypes(mod: ons.Module, dtype: Any, spelling: str) -> None:
    x = np.array([0, 1, 1, 0, 1], dtype)
    kernel = mod[f"copy<{spelling}>"]
    out = np.zeros(5, dtype)
    kernel[1, 32](x, out, 5)
    np.testing.assert_array_equal(out, x)
    fresh = kernel[1, 32](torch.from_numpy(x), ons.like(torch.from_numpy(x)), 5)
    np.testing.assert_array_equal(fresh.numpy(), x)


def test_foreign_byte_order_is_refused(mod: ons.Module) -> None:
    x = np.zeros(4, ">f4")
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*>f4.*astype"):
        run_scale(mod, x, np.zeros(4, np.float32), 4)


@pytest.mark.parametrize("dtype", ["O", "M8[ns]", "U3", "S1", "V4", np.longdouble])
def test_dtypes_that_no_kernel_takes(mod: ons.Module, dtype: Any) -> None:
    with pytest.raises(ons.ArgumentTypeError, match="'x'"):
        run_scale(mod, np.zeros(4, dtype), np.zeros(4, np.float32), 4)


def test_masked_arrays_are_refused(mod: ons.Module) -> None:
    x = np.ma.masked_array(f32(4), mask=[0, 1, 0, 0])
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*filled"):
        run_scale(mod, x, np.zeros(4, np.float32), 4)


HALF = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__global__ void copy_bf16(const __nv_bfloat16* x, __nv_bfloat16* out, long long n) {
  for (long long i = 0; i < n; ++i) out[i] = x[i];
}
__global__ void copy_half(const __half* x, __half* out, long long n) {
  for (long long i = 0; i < n; ++i) out[i] = x[i];
}
"""


def test_half_and_bfloat16() -> None:
    mod = ons.Module(HALF)
    for dtype, kernel in ((torch.bfloat16, mod.copy_bf16), (torch.float16, mod.copy_half)):
        x = torch.arange(8).to(dtype)
        assert torch.equal(kernel[1, 1](x, ons.like(x), 8), x)
        with pytest.raises(ons.ArgumentTypeError, match="float32"):
            kernel[1, 1](x.float(), ons.like(x), 8)


def test_bfloat16_of_jax_and_numpy(jnp: Any) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kernel = ons.Module(HALF).copy_bf16
    x = jnp.arange(8, dtype=jnp.bfloat16)
    assert (np.asarray(kernel[1, 1](x, ons.like(x), 8)) == np.asarray(x)).all()
    a = np.arange(8).astype(ml_dtypes.bfloat16)
    out = kernel[1, 1](a, ons.like(a), 8)
    assert out.dtype == a.dtype and (out == a).all()


# ---- torch's own conditions -----------------------------------------------------------------


def test_parameters_may_be_read(mod: ons.Module) -> None:
    p = torch.nn.Parameter(torch.arange(4.0))
    out = torch.zeros(4)
    run_scale(mod, p, out, 4)
    assert torch.equal(out, 2 * p.detach())
    fresh = mod.scale[1, 4](2.0, p, ons.like(p), 4)
    assert type(fresh) is torch.Tensor and not fresh.requires_grad


@pytest.mark.parametrize("kind", ["parameter", "leaf", "result"])
def test_writing_what_requires_grad_is_refused(mod: ons.Module, kind: str) -> None:
    p: Any = torch.nn.Parameter(torch.arange(4.0))
    if kind == "leaf":
        p = torch.arange(4.0, requires_grad=True)
    if kind == "result":
        p = p * 2
    with pytest.raises(ons.ArgumentValueError, match=r"'out'.*grad.*detach\(\)"):
        run_scale(mod, torch.ones(4), p, 4)
    with torch.no_grad(), pytest.raises(ons.ArgumentValueError, match=r"detach\(\)"):
        run_scale(mod, torch.ones(4), p, 4)
    run_scale(mod, torch.ones(4), p.detach(), 4)
    assert torch.equal(p.detach(), torch.full((4,), 2.0))


class Sub(torch.Tensor):
    pass


def plain(x: Any) -> Any:
    return x


def subclass(x: Any) -> Any:
    return x.as_subclass(Sub)


def parameter(x: Any) -> Any:
    return torch.nn.Parameter(x, requires_grad=False)


SECOND = """
__global__ void read(const void* x, float* out) { out[0] = ((const float*)x)[1]; }
__global__ void write(void* x) { ((float*)x)[1] = 7; }
"""


@pytest.mark.parametrize("wrap", [plain, subclass, parameter])
def test_conjugated_views_are_refused(wrap: Any) -> None:
    mod = ons.Module(SECOND)
    x = torch.tensor([1 + 2j, 3 + 4j])
    lazy = wrap(x.conj())
    assert lazy.is_conj() and lazy.is_contiguous()
    out = torch.zeros(1)
    mod.read[1, 1](wrap(x), out)
    assert out[0] == 2
    with pytest.raises(ons.ArgumentValueError, match=r"'x'.*conj.*resolve_conj\(\)"):
        mod.read[1, 1](lazy, out)
    with pytest.raises(ons.ArgumentValueError, match=r"'x'.*conj.*resolve_conj\(\)"):
        mod.write[1, 1](lazy)
    assert out[0] == 2 and x[0] == 1 + 2j
    mod.read[1, 1](lazy.resolve_conj(), out)
    assert out[0] == -2
    mod.write[1, 1](wrap(x))
    assert x[0] == 1 + 7j


@pytest.mark.parametrize("wrap", [plain, subclass, parameter])
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch._neg_view(torch.arange(4.0)),
        lambda: torch._neg_view(torch.arange(4.0))[:4],
        lambda: torch.zeros(4, dtype=torch.complex64).conj().imag.as_strided((4,), (1,)),
    ],
)
def test_dense_negated_views_are_refused(mod: ons.Module, make: Any, wrap: Any) -> None:
    lazy = wrap(make())
    assert lazy.is_neg() and lazy.is_contiguous()
    values = lazy.resolve_neg().clone()
    out = torch.full((4,), 5.0)
    with pytest.raises(ons.ArgumentValueError, match=r"'x'.*neg.*resolve_neg\(\)"):
        run_scale(mod, lazy, out, 4)
    with pytest.raises(ons.ArgumentValueError, match=r"'out'.*neg.*resolve_neg\(\)"):
        run_scale(mod, out, lazy, 4)
    assert (out == 5).all() and torch.equal(lazy.resolve_neg(), values)
    run_scale(mod, wrap(lazy.resolve_neg()), out, 4)
    assert torch.equal(out, 2 * values)
    fresh = mod.scale[1, 4](2.0, out, ons.like(lazy), 4)
    assert not fresh.is_neg() and torch.equal(torch.Tensor(fresh), 4 * values)


@pytest.mark.parametrize(
    "make",
    [
        lambda z: z.conj().imag,
        lambda z: z.conj().imag[:1],
        lambda z: z.conj().imag[2],
        lambda z: z.conj().imag.unsqueeze(0),
        lambda z: z.reshape(2, 2).conj().imag.T,
    ],
)
def test_negated_views_are_refused(mod: ons.Module, make: Any) -> None:
    z = torch.tensor([1 + 2j, 3 + 4j, 5 + 6j, 7 + 8j])
    x = make(z)
    assert x.is_neg()
    out = np.zeros(4, np.float32)
    with pytest.raises(ons.ArgumentValueError, match="'x'"):
        run_scale(mod, x, out, x.numel())
    x2 = x.reshape(1, -1) if x.ndim < 2 else x
    with pytest.raises(ons.ArgumentValueError, match=r"neg.*resolve_neg\(\)"):
        mod.gather[1, 1](x2, out)
    mod.gather[1, 1](x2.resolve_neg(), out)
    np.testing.assert_array_equal(out[: x.numel()], x2.resolve_neg().numpy().ravel())


def test_the_first_call_names_the_parameter_too() -> None:
    """Although nothing is known of the parameters when the devices are asked for."""
    kernel = ons.Module("__global__ void reads(const float* first, const float* x) {}").reads
    y = torch.zeros(4)
    with pytest.raises(ons.ArgumentTypeError, match=r"argument 2 \('x'\).*meta"):
        kernel[1, 1](y, torch.empty(4, device="meta"))


@pytest.mark.parametrize("kind", ["coo", "csr", "meta", "mkldnn", "fake"])
def test_tensors_without_plain_memory_are_refused(mod: ons.Module, kind: str) -> None:
    x = torch.ones(4, 4)
    if kind == "coo":
        x = x.to_sparse()
    elif kind == "csr":
        x = x.to_sparse_csr()
    elif kind == "meta":
        x = torch.empty(4, 4, device="meta")
    elif kind == "mkldnn":
        if not torch.backends.mkldnn.is_available():
            pytest.skip("torch without mkldnn")
        x = x.to_mkldnn()
    else:
        from torch._subclasses.fake_tensor import FakeTensorMode

        x = FakeTensorMode().from_tensor(x)
    advice = {"coo": r"torch.sparse_coo.*to_dense\(\)", "csr": r"torch.sparse_csr.*to_dense\(\)",
              "meta": "meta device.*no memory.*pass", "mkldnn": r"to_dense\(\)"}  # fmt: skip
    with pytest.raises(ons.ArgumentError, match=f"'x'.*{advice.get(kind, '')}"):
        run_scale(mod, x, torch.zeros(16), 16)


def test_torch_without_its_table_gives_the_same_advice(mod: ons.Module) -> None:
    class Old(torch.Tensor):
        __dlpack_c_exchange_api__ = None

    x = torch.empty(4, device="meta").as_subclass(Old)
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*meta device") as caught:
        run_scale(mod, x, torch.zeros(4), 4)
    assert caught.value.__cause__ is not None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_nested_tensors_are_refused(mod: ons.Module, layout: str) -> None:
    parts = [torch.ones(2), torch.ones(3)]
    x = torch.nested.nested_tensor(parts, layout=getattr(torch, layout))
    out = torch.zeros(4)
    for kernel in (mod.scale, ons.Module(mod.source).scale):
        for i, args in enumerate(
            [(x, out, out, 4), (2.0, x, out, 4), (2.0, out, x, 4), (2.0, out, ons.like(x), 4)]
        ):
            with pytest.raises(ons.ArgumentTypeError) as caught:
                kernel[1, 4](*args)
            assert f"kernel 'scale', argument {min(i + 1, 3)}" in str(caught.value)
            assert isinstance(caught.value.__cause__, RuntimeError)


def test_errors_of_torch_attributes_name_the_argument(mod: ons.Module) -> None:
    class Broken(torch.Tensor):
        @property
        def requires_grad(self) -> bool:  # type: ignore[override]
            raise AttributeError("broken")

        def is_neg(self) -> bool:
            raise RuntimeError("broken")

    class BrokenOld(Broken):
        __dlpack_c_exchange_api__ = None

    # With neither bit nor autograd to ask about, a tensor with a table is not asked at all.
    grad = torch.zeros(4, requires_grad=True)
    for kind in (Broken, BrokenOld):
        x = torch.Tensor.as_subclass(grad, kind)
        with pytest.raises(ons.ArgumentTypeError, match=r"'out'.*requires_grad.*broken") as e:
            mod.scale[1, 4](2.0, torch.zeros(4), x, 4)
        assert e.value.__cause__ is not None


@pytest.mark.parametrize("name", ["jit", "vmap", "grad"])
def test_tracers_are_refused(mod: ons.Module, jnp: Any, name: str) -> None:
    import jax

    out = np.zeros(4, np.float32)

    def body(x: Any) -> Any:
        for i, args in enumerate([(x, out, out, 4), (2.0, x, out, 4), (2.0, out, ons.like(x), 4)]):
            with pytest.raises(
                ons.ArgumentTypeError,
                match=rf"argument {i + 1} .*Tracer.*JAX transformation \(jit.*concrete arrays",
            ):
                mod.scale[1, 4](*args)
        return x

    getattr(jax, name)(body)(jnp.ones(4) if name != "grad" else jnp.float32(1))


def test_functorch_wrappers_are_refused(mod: ons.Module) -> None:
    def body(x: Any) -> Any:
        run_scale(mod, x, torch.zeros(4), 4)
        return x

    with pytest.raises(ons.ArgumentError, match="'x'"):
        torch.func.vmap(body)(torch.ones(3, 4))


def test_subclasses_of_torch_tensors(mod: ons.Module) -> None:
    x = torch.arange(4.0).as_subclass(Sub)
    out = torch.zeros(4)
    run_scale(mod, x, out, 4)
    assert torch.equal(out, 2 * torch.arange(4.0))
    with pytest.raises(ons.ArgumentValueError, match="grad"):
        run_scale(mod, out, torch.zeros(4, requires_grad=True).as_subclass(Sub), 4)


def test_torch_without_its_table_is_checked_alike(mod: ons.Module) -> None:
    """The path for torch versions without an exchange table."""

    class Old(torch.Tensor):
        __dlpack_c_exchange_api__ = None

    def old(x: Any) -> Any:
        return x.as_subclass(Old)

    out = torch.zeros(4)
    run_scale(mod, old(torch.arange(4.0)), out, 4)
    assert torch.equal(out, 2 * torch.arange(4.0))
    run_scale(mod, old(torch.nn.Parameter(torch.arange(4.0))), out, 4)
    with pytest.raises(ons.ArgumentValueError, match=r"'out'.*grad.*detach\(\)"):
        run_scale(mod, out, old(torch.zeros(4, requires_grad=True)), 4)
    z = torch.tensor([1 + 2j])
    with pytest.raises(ons.ArgumentValueError, match="resolve_neg"):
        run_scale(mod, old(z.conj().imag), out, 1)


def test_torch_that_is_asked_through_its_descriptors() -> None:
    """The path where the C++ object is not found in the Python one: the tests above, again."""
    code = """
        import sys

        import pytest
        import torch

        asked = []
        torch.Tensor._cdata = property(asked.append)  # answers None
        rc = pytest.main(sys.argv[1:])
        assert asked, "torch's checks are found some other way"
        sys.exit(rc)
        """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), __file__]
        + ["-q", "-p", "no:cacheprovider", "-k", "grad or views or subclasses or parameters"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout


@pytest.mark.parametrize(
    ("name", "dtype"), [("__nv_fp8_e4m3", "float8_e4m3fn"), ("__nv_fp8_e5m2", "float8_e5m2")]
)
def test_float8(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    source = f"""
    #include <cuda_fp8.h>
    __global__ void widen(const {name}* x, float* out) {{
      out[threadIdx.x] = float(x[threadIdx.x]);
    }}
    """
    x = torch.tensor([0.5, -1.75, 16.0, 0.0]).to(getattr(torch, dtype))
    out = torch.zeros(4)
    widen = ons.Module(source).widen
    widen[1, 4](x, out)
    assert (out == x.float()).all()
    other = "float8_e5m2" if dtype == "float8_e4m3fn" else "float8_e4m3fn"
    with pytest.raises(ons.ArgumentTypeError, match=other):
        widen[1, 4](x.float().to(getattr(torch, other)), out)


def test_tensors_without_memory_are_not_imported(producer: Any) -> None:
    kind = producer.make_type(0)
    with pytest.raises(ons.ArgumentValueError, match="has elements but no memory"):
        ons.from_dlpack(kind(0, (3,)))
    with pytest.raises(ons.ArgumentValueError, match="has elements but no memory"):
        ons.from_dlpack(torch._efficientzerotensor((3,)))
    assert ons.from_dlpack(kind(0, (3, 0))).size == 0
