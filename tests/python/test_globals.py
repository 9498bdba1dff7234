"""Module.global_ and set_global on the CPU."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import onstream as ons

SOURCE = """
struct Pair { float a; int b; };
namespace ns { __device__ int counts[2][3] = {{1, 2, 3}, {4, 5, 6}}; }
__device__ float table[4];
__constant__ double coefficients[3] = {1, 2, 3};
__device__ const short shorts[2] = {7, 8}, one = 9;
__device__ Pair pairs[5];
__device__ float4 vectors[2];
__device__ float* where;
static __device__ unsigned long long counter = 5;
__device__ bool flag;
#ifdef NEVER
__device__ int never;
#endif
__global__ void add(float v) { table[threadIdx.x] += v; }
__global__ void read(double* out) { out[threadIdx.x] = coefficients[threadIdx.x]; }
__global__ void scale(float* x) { x[threadIdx.x] *= 2; }
template <class T> __global__ void generic(T* out) { out[0] = ++counter; }
"""


@pytest.fixture
def mod() -> ons.Module:
    return ons.Module(SOURCE)


def content(tensor: ons.Tensor, kind: Any = ctypes.c_float) -> list[Any]:
    count = tensor.nbytes // ctypes.sizeof(kind)
    return list((kind * count).from_address(tensor.data_ptr))


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "read_only"),
    [
        ("ns::counts", (2, 3), "int32", False),
        ("::ns::counts", (2, 3), "int32", False),
        ("table", (4,), "float32", False),
        ("coefficients", (3,), "float64", True),
        ("shorts", (2,), "int16", True),
        ("one", (), "int16", True),
        ("pairs", (5, 8), "uint8", False),
        ("vectors", (2, 4), "float32", False),
        ("where", (), "uint64", False),
        ("counter", (), "uint64", False),
        ("flag", (), "bool", False),
    ],
)
def test_types(
    mod: ons.Module, name: str, shape: tuple[int, ...], dtype: str, read_only: bool
) -> None:
    tensor = mod.global_(name, "cpu")
    assert (tensor.shape, tensor.dtype, tensor.read_only) == (shape, dtype, read_only)
    assert (tensor.device, tensor.stream) == ("cpu", None)


def test_kernels_and_the_tensor_share_the_variable(mod: ons.Module) -> None:
    table = mod.global_("table", device="cpu")
    assert content(mod.global_("ns::counts", "cpu"), ctypes.c_int) == [1, 2, 3, 4, 5, 6]
    mod.add[1, 4](1.5)
    assert content(table) == [1.5] * 4
    mod.scale[1, 4](table)
    assert content(mod.global_("table", "cpu")) == [3.0] * 4
    mod.add[1, 4](1.0)
    assert content(table) == [4.0] * 4


def test_constants_are_not_for_writing(mod: ons.Module) -> None:
    with pytest.raises(ons.ArgumentError, match="read-only"):
        mod.read[1, 3](mod.global_("coefficients", "cpu"))


def test_set_global(mod: ons.Module) -> None:
    out = np.zeros(3)
    mod.read[1, 3](out)
    assert out.tolist() == [1, 2, 3]
    mod.set_global("coefficients", np.array([4.0, 5.0, 6.0]), "cpu")
    mod.read[1, 3](out)
    assert out.tolist() == [4, 5, 6]
    mod.set_global("coefficients", np.array([7.0, 8.0, 9.0]).tobytes(), device="cpu")
    mod.read[1, 3](out)
    assert out.tolist() == [7, 8, 9]
    mod.set_global("pairs", bytes(40), "cpu")


def test_set_global_checks_the_data(mod: ons.Module) -> None:
    with pytest.raises(ons.ArgumentError, match=r"coefficients.* 24 bytes, 16 are given"):
        mod.set_global("coefficients", np.zeros(2), "cpu")
    with pytest.raises(TypeError, match="dtype float64, the data has the format 'l'"):
        mod.set_global("coefficients", np.zeros(3, np.int64), "cpu")
    with pytest.raises((TypeError, BufferError, ValueError)):
        mod.set_global("coefficients", np.zeros(6)[::2], "cpu")
    with pytest.raises(TypeError):
        mod.set_global("coefficients", 3.0, "cpu")
    with pytest.raises(ons.NotFoundError):
        mod.set_global("nope", b"", "cpu")


def test_unknown_variables(mod: ons.Module) -> None:
    with pytest.raises(ons.NotFoundError, match=r"'tables'.* its variables: ns::counts, table, "):
        mod.global_("tables", "cpu")
    with pytest.raises(ons.NotFoundError, match="'never' .*compiled out"):
        mod.global_("never", "cpu")
    with pytest.raises(ons.NotFoundError, match="none were found"):
        ons.Module("__global__ void k() {}").global_("x", "cpu")
    with pytest.raises(ValueError, match="which has none"):
        mod.global_("table", "cpu", stream=1)


def test_the_source_has_its_own_errors(mod: ons.Module) -> None:
    broken = ons.Module("__device__ int a;\n__global__ void k() { nonsense }", name="broken.cu")
    with pytest.raises(ons.CompileError, match="broken.cu:2"):
        broken.global_("a", "cpu")


def test_the_tensor_outlives_its_module(mod: ons.Module) -> None:
    tensor = ons.Module("__device__ int a[2] = {3, 4};").global_("a", "cpu")
    assert content(tensor, ctypes.c_int) == [3, 4]


def test_a_template_instance_has_variables_of_its_own(mod: ons.Module) -> None:
    out = np.zeros(1, np.int64)
    mod["generic<long long>"][1, 1](out)
    assert out[0] == 6
    assert content(mod.global_("counter", "cpu"), ctypes.c_uint64) == [5]
