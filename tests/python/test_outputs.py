"""ons.like and ons.empty: allocated by the call, in the producer's own type."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

import onstream as ons


def array_of(library: str) -> Any:
    if library == "numpy":
        return np.arange(8, dtype=np.float32)
    if library == "torch":
        return pytest.importorskip("torch").arange(8.0)
    jax = pytest.importorskip("jax")
    return jax.device_put(np.arange(8, dtype=np.float32), jax.devices("cpu")[0])


LIBRARIES = ["numpy", "torch", "jax"]


def values(mod: ons.Module, x: Any) -> Any:
    """What is in a dense float32 array, whatever its type."""
    copied = np.zeros(int(np.prod(x.shape)), np.float32)
    mod.scale[1, copied.size](1.0, x, copied, copied.size)
    return copied


SUM = r"""
__global__ void sum(const float* x, float* out, float* partial, long long n) {
  if (threadIdx.x) return;
  partial[0] = 0;
  for (long long i = 0; i < n; ++i) partial[0] += x[i];
  out[0] += partial[0];
}
__global__ void two(const float* x, float* y, float* z, long long n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x], z[threadIdx.x] = 2 * x[threadIdx.x];
}
__global__ void any(const void* x, void* out, long long n) {}
"""


@pytest.fixture(scope="module")
def outs() -> ons.Module:
    return ons.Module(SUM, name="outs.cu")


@pytest.mark.parametrize("library", LIBRARIES)
def test_like(mod: ons.Module, library: str) -> None:
    x = array_of(library)
    z = mod.scale[1, 8](2.0, x, ons.like(x), 8)
    assert type(z) is type(x) and z.shape == x.shape and z.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(z), 2 * np.arange(8))
    np.testing.assert_array_equal(np.asarray(x), np.arange(8))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("f4"), "torch", "jax"])
def test_empty(mod: ons.Module, library: str, dtype: Any) -> None:
    if dtype == "torch":
        dtype = pytest.importorskip("torch").float32
    elif dtype == "jax":
        dtype = pytest.importorskip("jax.numpy").float32
    x = array_of(library)
    z = mod.scale[1, 8](2.0, x, ons.empty((2, 4), dtype), 8)
    assert type(z) is type(x) and tuple(z.shape) == (2, 4)
    np.testing.assert_array_equal(np.asarray(z).ravel(), 2 * np.arange(8))


def test_bfloat16_outputs() -> None:
    source = "__global__ void k(const float* x, void* y) {}"
    kernel = ons.Module(source).k
    for library in LIBRARIES:
        x = array_of(library)
        z = kernel[1, 1](x, ons.empty(3, "bfloat16"))
        assert type(z) is type(x) and "bfloat16" in str(z.dtype)


def test_outputs_are_dense_whatever_the_model(mod: ons.Module) -> None:
    torch = pytest.importorskip("torch")
    for x in (np.arange(12, dtype=np.float32).reshape(3, 4).T, torch.arange(12.0).reshape(3, 4).T):
        z = mod.scale[1, 12](0.0, np.zeros(12, np.float32), ons.like(x), 12)
        assert type(z) is type(x) and z.shape == (4, 3)
        assert np.asarray(z).flags.c_contiguous


def test_several_outputs() -> None:
    source = "__global__ void k(const float* x, float* y, float* z) { y[0] = 1; z[0] = 2; }"
    kernel = ons.Module(source).k
    x = array_of("numpy")
    result = kernel[1, 1](x, ons.like(x), ons.empty(1, "float32"))
    assert isinstance(result, tuple) and len(result) == 2
    assert result[0][0] == 1 and result[1][0] == 2
    assert kernel[1, 1](x, x, x) is None


@pytest.mark.parametrize("library", LIBRARIES)
def test_empty_outputs(mod: ons.Module, library: str) -> None:
    x = array_of(library)
    z = mod.scale[0, 8](2.0, x, ons.empty((3, 0, 2), "float32"), 0)
    assert type(z) is type(x) and tuple(z.shape) == (3, 0, 2)


def test_exchange_tables_allocate(mod: ons.Module, producer: Any) -> None:
    x = np.arange(4, dtype=np.float32)
    Tensor = producer.make_type(0)
    tensor = Tensor(x.ctypes.data, (4,), owner=x)
    for output in (ons.like(tensor), ons.empty(4, "float32")):
        z = mod.scale[1, 4](2.0, tensor, output, 4)
        assert type(z) is Tensor
        copied = np.zeros(4, np.float32)
        mod.scale[1, 4](1.0, z, copied, 4)
        np.testing.assert_array_equal(copied, 2 * x)
        before = producer.counts()["deleted"]
        del z
        assert producer.counts()["deleted"] == before + 1
    missing = producer.make_type(1, null=("allocate",))(x.ctypes.data, (4,), owner=x)
    for output in (ons.like(missing), ons.empty(4, "float32")):
        own = mod.scale[1, 4](2.0, missing, output, 4)
        assert type(own) is ons.Tensor and values(mod, own).tolist() == [0, 2, 4, 6]


def test_bad_outputs(mod: ons.Module) -> None:
    x = array_of("numpy")
    with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
        mod.scale[1, 8](2.0, None, ons.empty(8, "float32"), 8)
    with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
        mod.scale[1, 8](2.0, x, ons.empty(8, "float64"), 8)
    for model in (5, "x", None, object(), True, 1.5, b"12345678", memoryview(x), bytearray(8),
                  np.float32(1), np.int64(1), [x], ons.tensor_map(x, (8,))):  # fmt: skip
        with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
            mod.scale[1, 8](2.0, x, ons.like(model), 8)
        with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
            mod.scale[1, 8](2.0, x, ons.like(model, shape=8, dtype="float32"), 8)
    for make in (ons.like, ons.zeros_like):
        with pytest.raises(ons.ArgumentTypeError, match="no array yet"):
            make(ons.like(x))
    with pytest.raises(ons.ArgumentTypeError, match="argument 4"):
        mod.scale[1, 8](2.0, x, x, ons.like(x))
    for shape, error in (
        (-1, ValueError),
        (2**70, ValueError),
        ("a b", ValueError),
        ((2, "x.size"), ValueError),
        ("x.dtype", ValueError),
        ("x.shape[1.5]", ValueError),
        ("", ValueError),
        ("x.shape\0", ValueError),
        ("n\0", ValueError),
        ((2, None), TypeError),
        (1.0, TypeError),
    ):
        with pytest.raises(error):
            ons.empty(shape, "float32")
    for dtype in ("float31", 5, None, int, float, object()):
        with pytest.raises(TypeError, match="dtype"):
            ons.empty(3, dtype)
    for dtype in ("float32\0", "x.dtype\0"):
        with pytest.raises(ValueError, match="null character"):
            ons.empty(3, dtype)
    with pytest.raises(ValueError, match="null character"):
        mod.prepare("cpu\0")
    assert "float32" in repr(ons.empty(3, "float32")) and "ndarray" in repr(ons.like(x))


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_outputs_are_not_read(mod: ons.Module, library: str) -> None:
    x = array_of(library)
    out = np.zeros(x.size if library != "torch" else x.numel(), np.float32)
    for output in (ons.like(x), ons.empty(4, "float32")):
        args = (2.0, output, x if library != "jax" else out, 4)
        with pytest.raises(ons.ArgumentError, match=r"argument 2 \('x'\).*const float\*.*output"):
            mod.scale[1, 4](*args)


def test_refused_calls_make_no_outputs(mod: ons.Module, producer: Any) -> None:
    x = np.arange(4, dtype=np.float32)
    tensor = producer.make_type(0)(x.ctypes.data, (4,), owner=x)
    with pytest.raises(ons.ArgumentTypeError, match="argument 1"):
        mod.scale[1, 4]("no number", tensor, ons.like(tensor), 4)
    with pytest.raises(ons.ArgumentValueError):
        mod.scale[1, 5000](2.0, tensor, ons.like(tensor), 4)
    assert producer.counts(0)["allocations"] == 0
    assert producer.counts()["handed_out"] == producer.counts()["deleted"]
    mod.scale[1, 4](2.0, tensor, ons.like(tensor), 4)
    assert producer.counts(0)["allocations"] == 1


# ---- shapes and dtypes -----------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("x.shape", (2, 4)),
        ("x.shape[0]", (2,)),
        ("x.shape[-1]", (4,)),
        (("x.shape[1]", 3), (4, 3)),
        ((2, "x.shape"), (2, 2, 4)),
        ("n", (8,)),
        (("n", "x.shape[0]"), (8, 2)),
        ((), ()),
        (lambda x, out, n: (n, x.shape[0]), (8, 2)),
        (lambda x, out, n: np.int64(n), (8,)),
        (lambda *args: [len(args)], (3,)),
    ],
)
def test_shapes_of_arguments(outs: ons.Module, library: str, shape: Any, expected: Any) -> None:
    x = array_of(library).reshape(2, 4)
    z = outs.any[1, 1](x, ons.empty(shape, "x.dtype"), 8)
    assert type(z) is type(x) and tuple(z.shape) == expected and z.dtype == x.dtype
    z = outs.any[1, 1](x, ons.like(x, shape=shape), 8)
    assert type(z) is type(x) and tuple(z.shape) == expected and z.dtype == x.dtype
    z = outs.any[1, 1](x, ons.zeros_like(x, shape=shape, dtype="int16"), 8)
    assert tuple(z.shape) == expected and "int16" in str(z.dtype) and not np.asarray(z).any()


def test_shape_of_an_earlier_output(outs: ons.Module) -> None:
    x = array_of("numpy")
    y, z = outs.two[1, 8](x, ons.like(x), ons.empty("y.shape", "y.dtype"), 8)
    assert z.shape == y.shape and z.dtype == y.dtype and (z == 2 * y).all()
    with pytest.raises(ons.ArgumentValueError, match=r"argument 2 \('y'\).*'z.shape'.*before"):
        outs.two[1, 8](x, ons.empty("z.shape", "float32"), ons.like(x), 8)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("y.shape", "'y.shape'.*none of the kernel's parameters: any\\(const void\\* x"),
        ("x", "'x'.*no non-negative int"),
        ("n.shape", "'n.shape'.*no array"),
        ("x.shape[1]", "does not have"),
        ("x.shape[-2]", "does not have"),
        (lambda x, out, n: -1, "shape function failed with ValueError.*non-negative"),
        (lambda x, out, n: 2.5, "shape function failed with TypeError"),
        (lambda x, out, n: "n", "shape function failed with TypeError"),
        (lambda x: 1, "shape function failed with TypeError"),
        (lambda x, out, n: 1 // 0, "shape function failed with ZeroDivisionError"),
    ],
)
def test_shapes_that_fail(outs: ons.Module, shape: Any, message: str) -> None:
    with pytest.raises(ons.ArgumentValueError, match=rf"argument 2 \('out'\).*{message}") as caught:
        outs.any[1, 1](array_of("numpy"), ons.empty(shape, "float32"), 8)
    assert callable(shape) == (caught.value.__cause__ is not None)


def test_calls_within_calls_end_as_recursion_does(outs: ons.Module) -> None:
    """Before the C stack does."""
    depth = []

    def shape(x: Any, *others: Any) -> Any:
        depth.append(1)
        return outs.two[1, 8](x, ons.empty(shape, "float32"), ons.like(x), 8)[0].shape

    with pytest.raises(ons.ArgumentValueError, match="shape function failed"):
        shape(array_of("numpy"))
    assert len(depth) > 100


def test_interrupts_of_a_shape_function_stay(outs: ons.Module) -> None:
    def interrupt(*args: Any) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outs.any[1, 1](array_of("numpy"), ons.empty(interrupt, "float32"), 8)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("shape", [(2**62, 2**62), (2**40, 2**30)])
def test_shapes_too_large(outs: ons.Module, library: str, shape: Any) -> None:
    x = array_of(library)
    for output in (ons.empty(shape, "float32"), ons.like(x, shape=shape)):
        with pytest.raises(ons.ArgumentValueError, match=r"argument 2 \('out'\).*too large"):
            outs.any[1, 1](x, output, 8)


def test_own_shapes_too_large(outs: ons.Module, producer: Any) -> None:
    x = np.zeros(4, np.float32)
    tensor = producer.make_type(0, null=("allocate",))(x.ctypes.data, (4,), owner=x)
    for shape in ((2**62, 2**62), (2**62, 4), 2**61):
        with pytest.raises(ons.ArgumentValueError, match="argument 2.*too large"):
            outs.any[1, 1](tensor, ons.empty(shape, "float32"), 8)
    with pytest.raises(MemoryError, match="argument 2"):
        outs.any[1, 1](tensor, ons.empty(2**48, "float32"), 8)


# ---- zeros, workspaces -----------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_zeros(mod: ons.Module, outs: ons.Module, library: str) -> None:
    x = array_of(library)
    for output in (
        ons.zeros(1, "float32"),
        ons.zeros_like(x, shape=1),
        ons.zeros("x.shape", "x.dtype"),
    ):
        for _ in range(3):  # of memory that was written before
            z, partial = outs.sum[1, 1](x, output, ons.empty(1, "float32"), 8)
            assert type(z) is type(x) and np.asarray(z)[0] == 28 and np.asarray(partial)[0] == 28
            assert not np.asarray(z)[1:].any()


@pytest.mark.parametrize("library", LIBRARIES)
def test_workspaces_are_not_returned(outs: ons.Module, library: str) -> None:
    x = array_of(library)
    z = outs.sum[1, 1](x, ons.zeros(1, "float32"), ons.workspace("x.shape", "float32"), 8)
    assert type(z) is type(x) and np.asarray(z)[0] == 28
    assert outs.two[1, 1](x, *2 * [ons.workspace(8, "float32")], 8) is None
    assert "workspace" in repr(ons.workspace(3)) and "uint8" in repr(ons.workspace(3))
    with pytest.raises(ons.ArgumentTypeError, match="uint8"):
        outs.sum[1, 1](x, ons.zeros(1, "float32"), ons.workspace(4), 8)


def test_a_workspace_goes_with_the_call(outs: ons.Module, producer: Any) -> None:
    x = np.arange(8, dtype=np.float32)
    tensor = producer.make_type(0)(x.ctypes.data, (8,), owner=x)
    before = producer.counts()["deleted"]
    outs.sum[1, 1](tensor, ons.zeros(1, "float32"), ons.workspace(1, "float32"), 8)
    assert producer.counts(0)["allocations"] == 2 and producer.counts()["deleted"] == before + 2


# ---- out= ------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_out(outs: ons.Module, library: str) -> None:
    x, y, z = (array_of(library) for _ in range(3))
    launch = outs.two[1, 8]
    for out in ((y, z), [y, z]):
        result = launch(x, ons.like(x), ons.empty("x.shape", "x.dtype"), 8, out=out)
        assert result[0] is y and result[1] is z and np.asarray(z)[3] == 6
    result = launch(x, ons.like(x), ons.like(x), 8, out=(None, z))
    assert result[0] is not y and type(result[0]) is type(x) and result[1] is z
    assert launch(x, y, ons.like(x), 8, out=z) is z
    assert launch(x, y, ons.like(x), 8, out=None) is not z
    assert outs.two.launch((x, y, ons.like(x), 8), grid=1, block=8, out=z) is z
    total = array_of(library)[:1]
    args = (x, ons.zeros(1, "float32"), ons.workspace(4, "float32"), 8)
    for _ in range(2):
        assert outs.sum[1, 1](*args, out=total) is total and np.asarray(total)[0] == 28


def test_out_that_does_not_fit(outs: ons.Module, mod: ons.Module) -> None:
    x = array_of("numpy")
    y = np.full(8, 7, np.float32)
    k = outs.two[1, 8]
    for out, message in (
        (np.zeros(4, np.float32), r"shape \(4,\) and dtype float32.*shape \(8,\)"),
        (np.zeros((8, 1), np.float32), r"shape \(8, 1\)"),
        (np.zeros(8, np.float64), "float64"),
        (3, "3"),
        (ons.like(x), "Output"),
    ):
        with pytest.raises(ons.ArgumentError, match=rf"argument 3 \('z'\).*{message}"):
            k(x, y, ons.like(x), 8, out=out)
    for out in ((), (y, y), [y, y, y]):
        with pytest.raises(ons.ArgumentTypeError, match="out= has . arrays, and the arguments 1"):
            k(x, y, ons.like(x), 8, out=out)
    with pytest.raises(ons.ArgumentError, match="argument 1.*only reads"):
        k(ons.like(x), y, y, 8, out=x)
    with pytest.raises(ons.ArgumentTypeError, match="keyword 'outs'"):
        k(x, y, ons.like(x), 8, outs=y)
    frozen = np.zeros(8, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ons.ArgumentValueError, match="argument 3.*read-only"):
        k(x, y, ons.zeros_like(x), 8, out=frozen)
    strided = np.full(16, 7, np.float32)[::2]
    with pytest.raises(ons.ArgumentValueError, match="argument 3"):
        k(x, y, ons.zeros_like(x), 8, out=strided)
    assert (strided == 7).all()
    with pytest.raises(ons.ArgumentValueError, match="block.x is 5000"):
        mod.scale[1, 5000](2.0, x, ons.zeros_like(x), 8, out=y)
    assert (y == 7).all(), "a refused launch must not fill"


def test_out_of_jax_is_refused(outs: ons.Module) -> None:
    x = array_of("jax")
    with pytest.raises(ons.ArgumentValueError, match="argument 3"):
        outs.two[1, 8](x, ons.like(x), ons.like(x), 8, out=(None, x))


# ---- who allocates ---------------------------------------------------------------------------


def test_a_tensor_allocates_tensors(mod: ons.Module) -> None:
    t = ons.from_dlpack(np.arange(8, dtype=np.float32))
    for output in (ons.like(t), ons.empty("x.shape", "x.dtype"), ons.zeros_like(t)):
        z = mod.scale[1, 8](2.0, t, output, 8)
        assert type(z) is ons.Tensor and z.shape == (8,) and z.dtype == "float32"
        assert values(mod, z).tolist() == (2 * np.arange(8)).tolist()
    # A library goes before, wherever it stands.
    z = mod.axpy[1, 8](2.0, t, np.zeros(8, np.float32), ons.empty(8, "float32"), 8)
    assert type(z) is np.ndarray
    released = ons.from_dlpack(np.zeros(8, np.float32))
    released.release()
    with pytest.raises(ons.ArgumentValueError, match="argument 3.*released"):
        mod.scale[1, 8](2.0, t, ons.like(released), 8)


def test_buffers_allocate_tensors(mod: ons.Module) -> None:
    import array

    x = array.array("f", range(8))
    z = mod.scale[1, 8](2.0, x, ons.like(x), 8)
    assert type(z) is ons.Tensor and z.shape == (8,) and values(mod, z)[7] == 14


def test_own_memory_is_aligned_and_dense(outs: ons.Module, producer: Any) -> None:
    x = np.zeros(4, np.float32)
    tensor = producer.make_type(0, null=("allocate",))(x.ctypes.data, (4,), owner=x)
    address = ons.Module(
        "__global__ void k(const float* x, char* memory, unsigned long long* out) {"
        "*out = (unsigned long long)memory; }"
    ).k
    kept = []
    for size in (1, 3, 64, 1000, 100_000):
        where = np.zeros(1, np.uint64)
        kept.append(address[1, 1](tensor, ons.empty((size, 3), "int8"), where))
        assert where[0] and int(where[0]) % 64 == 0
        assert kept[-1].shape == (size, 3) and kept[-1].strides == (3, 1)
    empty = outs.any[1, 1](tensor, ons.empty((2, 0, 3), "float32"), 0)
    assert empty.shape == (2, 0, 3)


def test_mixed_libraries(outs: ons.Module) -> None:
    torch = pytest.importorskip("torch")
    x, y = array_of("numpy"), array_of("torch")
    assert type(outs.two[1, 8](x, y, ons.empty(8, "float32"), 8)) is np.ndarray
    assert type(outs.two[1, 8](y, x, ons.empty(8, "float32"), 8)) is torch.Tensor
    made = outs.two[1, 8](x, ons.like(y), ons.like(x), 8)
    assert [type(m) for m in made] == [torch.Tensor, np.ndarray]


def test_outputs_of_subclasses_are_plain(mod: ons.Module) -> None:
    torch = pytest.importorskip("torch")

    class Mine(np.ndarray):
        pass

    x = np.arange(8, dtype=np.float32).view(Mine)
    assert type(mod.scale[1, 8](2.0, x, ons.like(x), 8)) is np.ndarray
    parameter = torch.nn.Parameter(torch.arange(8.0))
    for _ in range(3):
        z = mod.scale[1, 8](2.0, parameter, ons.like(parameter), 8)
        assert type(z) is torch.Tensor and not z.requires_grad and z[7] == 14
    watched = torch.arange(8.0, requires_grad=True)
    for _ in range(3):
        z = mod.scale[1, 8](2.0, watched, ons.like(watched), 8)
        assert type(z) is torch.Tensor and not z.requires_grad and z.is_leaf and z[7] == 14


def test_torch_outputs_by_all_ways(mod: ons.Module) -> None:
    """The fast way and the general one alternate."""
    torch = pytest.importorskip("torch")
    k = mod.scale[1, 12]
    x = torch.arange(12.0)
    wide = torch.arange(12.0).reshape(3, 4).T  # not dense: the general way
    out = torch.empty(12)
    for _ in range(4):
        z = k(2.0, x, ons.like(x), 12)
        assert z[11] == 22 and z.is_contiguous()
        z = k(2.0, x, ons.like(wide), 12)
        assert z.shape == (4, 3) and z.is_contiguous() and z[3, 2] == 22
        assert k(3.0, x, out, 12) is None and out[11] == 33
        z = k(2.0, x, ons.like(torch.zeros(3, 0)), 0)
        assert z.shape == (3, 0)
        with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
            k(2.0, x, ons.like(x.double()), 12)
        with pytest.raises(ons.ArgumentError, match="argument 2.*output"):
            k(2.0, ons.like(x), out, 12)
        with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
            k(2.0, x, ons.like(x.to_sparse()), 12)
        with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
            k(2.0, x, ons.like(x.to("meta")), 12)


def test_python_code_of_an_allocation_changes_an_argument(mod: ons.Module) -> None:
    torch = pytest.importorskip("torch")
    from torch.overrides import TorchFunctionMode

    x = torch.zeros(8)

    class Resize(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            with torch._C.DisableTorchFunction():
                x.resize_(100_000).fill_(3)
                return func(*args, **(kwargs or {}))

    model = torch.zeros(8)
    for _ in range(3):
        x.resize_(8)
        mod.scale[1, 8](2.0, x, ons.like(model), 8)
        with Resize():
            z = mod.scale[1, 8](2.0, x, ons.like(model), 8)
        assert (z == 6).all()


def test_interrupts_of_an_allocation_stay(mod: ons.Module) -> None:
    torch = pytest.importorskip("torch")
    from torch.overrides import TorchFunctionMode

    class Interrupt(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            count.append(1)
            raise KeyboardInterrupt

    count: list[int] = []
    x = torch.zeros(8)
    for _ in range(3):
        with Interrupt(), pytest.raises(KeyboardInterrupt):
            mod.scale[1, 8](2.0, x, ons.like(x), 8)
        mod.scale[1, 8](2.0, x, ons.like(x), 8)
    assert len(count) == 3


# ---- failures --------------------------------------------------------------------------------


def test_a_failing_allocator(mod: ons.Module, producer: Any) -> None:
    x = np.arange(4, dtype=np.float32)
    Tensor = producer.make_type(2)
    tensor = Tensor(x.ctypes.data, (4,), owner=x)
    before = producer.counts()
    tries: list[int] = []
    errors: list[BaseException] = []

    def fail(device: int, size: int) -> Any:
        tries.append(size)
        raise errors[0]

    producer.set_allocator(2, fail)
    try:
        for error, expected in (
            (MemoryError("full"), MemoryError),
            (RuntimeError("out of memory"), RuntimeError),
            (ValueError("no"), ons.ArgumentValueError),
            (KeyboardInterrupt(), KeyboardInterrupt),
        ):
            errors[:] = [error]
            with pytest.raises(expected):
                mod.scale[1, 4](2.0, tensor, ons.like(tensor), 4)
        assert len(tries) == 2 + 2 + 1 + 1
        producer.set_allocator(2, lambda device, size: ("no address", None))
        with pytest.raises(ons.ArgumentTypeError, match="argument 3.*cannot allocate"):
            mod.scale[1, 4](2.0, tensor, ons.like(tensor), 4)
    finally:
        producer.set_allocator(2, None)
    after = producer.counts()
    assert after["handed_out"] - after["deleted"] == before["handed_out"] - before["deleted"]


def test_out_of_memory_is_tried_twice(outs: ons.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    from onstream import _helpers

    tries: list[int] = []

    def full(x: Any, shape: Any, dtype: Any) -> Any:
        tries.append(1)
        if len(tries) % 2:
            raise MemoryError("first")
        if len(tries) == 4:
            raise MemoryError("second")
        return np.zeros(shape, dtype)

    monkeypatch.setattr(_helpers, "numpy_empty", full)
    x = array_of("numpy")
    assert outs.any[1, 1](x, ons.empty(3, "float32"), 8).shape == (3,)
    first = np.zeros(2, np.float32)
    with pytest.raises(MemoryError, match="second"):
        outs.two[1, 8](x, first, ons.empty(3, "float32"), 8)
    assert len(tries) == 4 and not first.any(), "nothing ran"


def test_an_output_that_fails_takes_the_others_along(
    outs: ons.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onstream import _helpers

    class Kept(np.ndarray):
        pass

    made: list[Any] = []

    def first(x: Any) -> Any:
        array = np.zeros(8, np.float32).view(Kept)
        made.append(weakref.ref(array))
        return array

    monkeypatch.setattr(_helpers, "numpy_like", first)
    x = array_of("numpy")
    with pytest.raises(ons.ArgumentError, match="argument 3"):
        outs.two[1, 8](x, ons.like(x), ons.empty("q.shape", "float32"), 8)
    assert len(made) == 1 and made[0]() is None


def test_a_dtype_the_library_cannot_hold() -> None:
    code = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, onstream as ons
k = ons.Module("__global__ void k(const float* x, void* y) {}").k
try:
    k[1, 1](np.zeros(3, np.float32), ons.empty(3, "bfloat16"))
except ons.ArgumentTypeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "argument 2 ('y')" in done.stdout and "ml_dtypes" in done.stdout


# ---- memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [*LIBRARIES, "own"])
def test_outputs_do_not_leak(
    mod: ons.Module, outs: ons.Module, library: str, producer: Any
) -> None:
    if library == "own":
        x = ons.from_dlpack(np.arange(8, dtype=np.float32))
    else:
        x = array_of(library)
    scale, add = mod.scale[1, 8], outs.sum[1, 1]

    def run(count: int) -> None:
        for _ in range(count):
            scale(2.0, x, ons.like(x), 8)
            add(x, ons.zeros(("n",), "x.dtype"), ons.workspace(64, "float32"), 8)
            with pytest.raises(ons.ArgumentError):
                add(x, ons.empty("q", "float32"), ons.workspace(64, "float32"), 8)

    rounds = 1000 if library == "jax" else 5000
    run(200)
    gc.collect()
    tracemalloc.start()
    try:
        run(200)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        objects = len(gc.get_objects())
        run(rounds)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        assert grown < 50_000, f"{grown} bytes"
        assert len(gc.get_objects()) - objects < 200
    finally:
        tracemalloc.stop()
