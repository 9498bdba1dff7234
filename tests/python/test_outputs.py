"""ons.like and ons.empty: allocated by the call, in the producer's own type."""

from __future__ import annotations

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
    with pytest.raises(ons.ArgumentTypeError, match="'out'.*no allocation"):
        mod.scale[1, 4](2.0, missing, ons.like(missing), 4)


def test_bad_outputs(mod: ons.Module) -> None:
    x = array_of("numpy")
    with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
        mod.scale[1, 8](2.0, None, ons.empty(8, "float32"), 8)
    with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
        mod.scale[1, 8](2.0, x, ons.empty(8, "float64"), 8)
    for model in (5, "x", None, object(), ons.like(x)):
        with pytest.raises(ons.ArgumentTypeError, match="argument 3"):
            mod.scale[1, 8](2.0, x, ons.like(model), 8)
    with pytest.raises(ons.ArgumentTypeError, match="argument 4"):
        mod.scale[1, 8](2.0, x, x, ons.like(x))
    for shape, error in ((-1, ValueError), (2**70, ValueError), ("a", TypeError), (1.0, TypeError)):
        with pytest.raises(error):
            ons.empty(shape, "float32")
    for dtype in ("float31", 5, None, int, float, object()):
        with pytest.raises(TypeError, match="dtype"):
            ons.empty(3, dtype)
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
