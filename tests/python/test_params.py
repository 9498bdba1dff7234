"""By value: structs, vectors, complex and small numbers, lists of tensors; views; __restrict__.

Cases 6, 7, 17 to 22.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import onstream as ons

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <complex>

struct Inner { char tag; double weight; };
struct alignas(32) Outer { short id; Inner inner[2]; float4 color; unsigned char last; };
static_assert(sizeof(Outer) == 96, "as ctypes and NumPy below");

__global__ void take_outer(char before, Outer s, int after, double* out) {
  out[0] = before; out[1] = s.id; out[2] = s.inner[0].tag; out[3] = s.inner[0].weight;
  out[4] = s.inner[1].tag; out[5] = s.inner[1].weight; out[6] = s.color.w;
  out[7] = s.last; out[8] = after;
}
__global__ void take_float4(float4 v, float* out) {
  out[0] = v.x; out[1] = v.y; out[2] = v.z; out[3] = v.w;
}
__global__ void take_int3(char before, int3 v, char after, int* out) {
  out[0] = before; out[1] = v.x; out[2] = v.y; out[3] = v.z; out[4] = after;
}
__global__ void take_longs(ulonglong2 v, unsigned long long* out) { out[0] = v.x; out[1] = v.y; }
__global__ void take_complex(std::complex<float> a, std::complex<double> b, double* out) {
  out[0] = a.real(); out[1] = a.imag(); out[2] = b.real(); out[3] = b.imag();
}
__global__ void take_float2(float2 a, double* out) { out[0] = a.x; out[1] = a.y; }
__global__ void take_half(__half a, __half* out) { out[0] = a; }
__global__ void take_bfloat16(__nv_bfloat16 a, __nv_bfloat16* out) { out[0] = a; }
__global__ void take_e4m3(__nv_fp8_e4m3 a, __nv_fp8_e4m3* out) { out[0] = a; }
__global__ void take_e5m2(__nv_fp8_e5m2 a, __nv_fp8_e5m2* out) { out[0] = a; }
__global__ void sum(ons::ptrs<const float, 3> xs, float scale, float* out, long long n) {
  for (long long i = 0; i < n; ++i) out[i] = scale * (xs[0][i] + xs[1][i] + xs[2][i]);
}
__global__ void split(const float* x, ons::ptrs<float, 2> outs, long long n) {
  for (long long i = 0; i < n; ++i) outs[i % 2][i / 2] = x[i];
}
__global__ void are_null(ons::ptrs<float, 2> xs, int* out) {
  out[0] = xs[0] == nullptr; out[1] = xs[1] == nullptr;
}
__global__ void map(const __grid_constant__ ons::tensor_map map, int* out) { out[0] = 1; }
__global__ void gather3(ons::view<const float, 3> x, float* out) {
  long long n = 0;
  for (long long i = 0; i < x.shape[0]; ++i)
    for (long long j = 0; j < x.shape[1]; ++j)
      for (long long k = 0; k < x.shape[2]; ++k) out[n++] = x(i, j, k);
}
__global__ void small_index(ons::view<const unsigned char, 1, int> x, int* out) {
  out[0] = x.shape[0];
}
"""


@pytest.fixture(scope="module")
def params() -> ons.Module:
    return ons.Module(SOURCE, name="params.cu")


# ---- structs --------------------------------------------------------------------------------


class Inner(ctypes.Structure):
    _fields_ = [("tag", ctypes.c_char), ("weight", ctypes.c_double)]


class Outer(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_short),
        ("inner", Inner * 2),
        ("pad", ctypes.c_char * 8),  # color is aligned to 16
        ("color", ctypes.c_float * 4),
        ("last", ctypes.c_ubyte),
        ("end", ctypes.c_char * 15),
    ]


def records() -> list[Any]:
    made = Outer(7, (Inner(b"a", 0.5), Inner(b"b", -2.5)), b"", (0, 0, 0, 9), 255, b"")
    inner = np.dtype([("tag", "i1"), ("weight", "f8")], align=True)
    names = ["id", "inner", "color", "last"]
    formats: list[Any] = ["i2", (inner, (2,)), ("f4", (4,)), "u1"]
    layout = {"names": names, "formats": formats, "offsets": [0, 8, 48, 64], "itemsize": 96}
    record = np.zeros((), np.dtype(layout))  # type: ignore[call-overload]
    record["id"], record["last"], record["color"][3] = 7, 255, 9
    record["inner"]["tag"], record["inner"]["weight"] = (97, 98), (0.5, -2.5)
    padded = bytearray(bytes(made).ljust(96, b"\0"))
    return [padded, bytes(padded), memoryview(padded), record, record[()]]


@pytest.mark.parametrize("value", records(), ids=lambda value: type(value).__name__)
def test_struct_is_laid_out_as_the_compiler_does(params: ons.Module, value: Any) -> None:
    out = np.zeros(9)
    params.take_outer[1, 1](-3, value, 123456, out)
    assert out.tolist() == [-3, 7, 97, 0.5, 98, -2.5, 9, 255, 123456]


def test_struct_of_another_size(params: ons.Module) -> None:
    with pytest.raises(ons.ArgumentValueError, match=r"'s'\): declared Outer \(96 bytes\), got"):
        params.take_outer[1, 1](0, bytes(95), 0, np.zeros(9))
    with pytest.raises(ons.ArgumentTypeError, match="'s'"):
        params.take_outer[1, 1](0, [1, 2, 3], 0, np.zeros(9))


# ---- vectors and complex numbers ------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        (1, 2.5, -3, True),
        [1, 2.5, np.float32(-3), np.array(1)],
        np.array([1, 2.5, -3, 1], "f4").tobytes(),
        np.array([1, 2.5, -3, 1], "f4").view("V16")[0],
    ],
)
def test_float4(params: ons.Module, value: Any) -> None:
    out = np.zeros(4, np.float32)
    params.take_float4[1, 1](value, out)
    assert out.tolist() == [1, 2.5, -3, 1]


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ((1, 2, 3), ons.ArgumentValueError, "a list of 3; the list must be as long"),
        ((), ons.ArgumentValueError, "a list of 0"),
        ((1, 2, 1e300, 4), ons.ArgumentValueError, "item 3 of 4"),
        ((1, 2, None, 4), ons.ArgumentTypeError, "NoneType that does not convert to a number"),
        ((1, 2, (3,), 4), ons.ArgumentTypeError, "tuple that does not convert to a number"),
        ((1, 2, 3j, 4), ons.ArgumentTypeError, "item 3 of 4"),
        (3.0, ons.ArgumentTypeError, "a list of its numbers"),
        (3j, ons.ArgumentValueError, "a list of 2"),
        (b"abc", ons.ArgumentValueError, "3 bytes"),
        (np.zeros(4, np.float32), ons.ArgumentTypeError, "a list of its numbers"),
    ],
)
def test_no_float4(params: ons.Module, value: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=rf"argument 1 \('v'\).*{words}"):
        params.take_float4[1, 1](value, np.zeros(4, np.float32))


def test_vectors_of_integers(params: ons.Module) -> None:
    out = np.zeros(5, np.int32)
    params.take_int3[1, 1](-1, (2**31 - 1, -(2**31), 5), 7, out)
    assert out.tolist() == [-1, 2**31 - 1, -(2**31), 5, 7]
    with pytest.raises(ons.ArgumentValueError, match="item 2 of 3.*the integer 2147483648"):
        params.take_int3[1, 1](-1, (0, 2**31, 5), 7, out)
    with pytest.raises(ons.ArgumentTypeError, match="item 1 of 3.*the float 1.0"):
        params.take_int3[1, 1](-1, (1.0, 0, 5), 7, out)
    longs = np.zeros(2, np.uint64)
    params.take_longs[1, 1]((2**64 - 1, 3), longs)
    assert longs.tolist() == [2**64 - 1, 3]


class Changing:
    """Changes the list that it is in."""

    def __init__(self, home: list[Any]) -> None:
        self.home = home

    def __index__(self) -> int:
        self.home.clear()
        return 5


@pytest.mark.parametrize("number", [1j, np.complex64(1j), True, np.float32(1), [1.0], 10**30])
@pytest.mark.parametrize("count", [4, 200, 10_000])
def test_long_lists_for_a_vector(params: ons.Module, number: Any, count: int) -> None:
    """Whatever is made for each of its numbers has room."""
    out = np.zeros(4, np.float32)
    if count == 4 and np.isreal(number) and number == 1:
        params.take_float4[1, 1]([number] * count, out)
        assert out.tolist() == [1, 1, 1, 1]
        return
    with pytest.raises(ons.Error, match=r"argument 1 \('v'\)"):
        params.take_float4[1, 1]([number] * count, out)


def test_list_that_changes_meanwhile(params: ons.Module) -> None:
    numbers: list[Any] = [1, 2, 3, 4]
    numbers[1] = Changing(numbers)
    out = np.zeros(4, np.float32)
    params.take_float4[1, 1](numbers, out)
    assert out.tolist() == [1, 5, 3, 4]
    assert not numbers


COMPLEX = [
    (1.5 - 2j, 1.5 - 2j),
    (np.complex64(1.5 - 2j), 1.5 - 2j),
    (np.complex128(1.5 - 2j), 1.5 - 2j),
    (np.array(1.5 - 2j, np.complex64), 1.5 - 2j),
    ((1.5, -2), 1.5 - 2j),
    (3, 3),
    (2.5, 2.5),
    (np.float32(2.5), 2.5),
]


@pytest.mark.parametrize(("value", "expected"), COMPLEX, ids=repr)
def test_complex(params: ons.Module, value: Any, expected: complex) -> None:
    out = np.zeros(4)
    params.take_complex[1, 1](value, value, out)
    assert out.view(np.complex128).tolist() == [expected, expected]


def test_torch_complex(params: ons.Module) -> None:
    torch = pytest.importorskip("torch")
    out = torch.zeros(4, dtype=torch.float64)
    params.take_complex[1, 1](torch.tensor(1 - 2j), 1j, out)
    assert out.tolist() == [1, -2, 0, 1]


def test_no_complex(params: ons.Module) -> None:
    out = np.zeros(4)
    with pytest.raises(ons.ArgumentValueError, match="'a'.*item 2 of 2"):
        params.take_complex[1, 1](1e300j, 0, out)
    with pytest.raises(ons.ArgumentTypeError, match="'a'"):
        params.take_complex[1, 1]("1j", 0, out)
    params.take_float2[1, 1](1 + 2j, out)
    assert out[:2].tolist() == [1, 2]
    with pytest.raises(ons.ArgumentTypeError, match="'a'.*list of its numbers"):
        params.take_float2[1, 1](1.0, out)


# ---- small floats ---------------------------------------------------------------------------

SMALL = {
    "half": ("float16", [0.1, 65504, -1e-7, 2049], [65520, "nan"]),
    "bfloat16": ("bfloat16", [0.1, 3.3e38, -1e-40, 257], [3.4e38]),
    "e4m3": ("float8_e4m3fn", [0.1, 448, -0.001, 463], [465, float("inf")]),
    "e5m2": ("float8_e5m2", [0.1, 57344, -1e-5, float("-inf")], [1e5]),
}


@pytest.mark.parametrize("kind", SMALL)
def test_small_floats_round_as_ml_dtypes(params: ons.Module, kind: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    name, fitting, unfitting = SMALL[kind]
    dtype = np.dtype(name) if kind == "half" else np.dtype(getattr(ml_dtypes, name))
    rng = np.random.default_rng(1)
    values = [*fitting, *rng.normal(0, 50, 200), *rng.normal(0, 1e-3, 200), float("nan")]
    for value in values:
        out = np.zeros(1, dtype)
        params[f"take_{kind}"][1, 1](value, out)
        expected = np.array(value, np.float64).astype(dtype)
        assert out.tobytes()[-1:] == expected.tobytes()[-1:] or np.isnan(value), value
        assert np.isnan(value) or float(out[0]) == float(expected), value
    for value in unfitting:
        with pytest.raises(ons.ArgumentError, match="'a'"):
            params[f"take_{kind}"][1, 1](value, np.zeros(1, dtype))
    params[f"take_{kind}"][1, 1](dtype.type(0.5), out)
    assert float(out[0]) == 0.5


# ---- lists of tensors -----------------------------------------------------------------------


def numpy_arrays(*rows: list[float]) -> list[Any]:
    return [np.array(row, np.float32) for row in rows]


def torch_arrays(*rows: list[float]) -> list[Any]:
    torch = pytest.importorskip("torch")
    return [torch.tensor(row) for row in rows]


def jax_arrays(*rows: list[float]) -> list[Any]:
    jax = pytest.importorskip("jax")
    with jax.default_device(jax.devices("cpu")[0]):
        return [jax.numpy.array(row) for row in rows]


@pytest.mark.parametrize("arrays", [numpy_arrays, torch_arrays, jax_arrays])
@pytest.mark.parametrize("container", [list, tuple])
def test_list_of_tensors(params: ons.Module, arrays: Any, container: Any) -> None:
    xs = container(arrays([1.0, 2], [10.0, 20], [100.0, 200]))
    out = np.zeros(2, np.float32)
    for _ in range(2):
        params.sum[1, 1](xs, 2.0, out, 2)
        assert out.tolist() == [222, 444]
        out[:] = 0
    made = params.sum[1, 1](xs, 2.0, ons.like(xs[0]), 2)
    assert type(made) is type(xs[0])
    assert np.asarray(made).tolist() == [222, 444]


def test_list_of_outputs(params: ons.Module) -> None:
    x = np.arange(6, dtype=np.float32)
    out = params.split[1, 1](x, [np.zeros(3, np.float32), np.zeros(3, np.float32)], 6)
    assert out is None
    halves = params.split[1, 1](x, [ons.empty(3, "float32"), ons.empty(3, "float32")], 6)
    assert [half.tolist() for half in halves] == [[0, 2, 4], [1, 3, 5]]


def test_nulls_in_a_list(params: ons.Module) -> None:
    out = np.zeros(2, np.int32)
    params.are_null[1, 1]([None, np.zeros(1, np.float32)], out)
    assert out.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda xs: xs[:2], ons.ArgumentValueError, "got a list of 2; the list must be as long"),
        (lambda xs: [*xs, xs[0]], ons.ArgumentValueError, "got a list of 4"),
        (lambda xs: [], ons.ArgumentValueError, "got a list of 0"),
        (lambda xs: xs[0], ons.ArgumentTypeError, "pass a list of tensors"),
        (lambda xs: 3, ons.ArgumentTypeError, "pass a list of tensors"),
        (lambda xs: [xs[0], 3, xs[1]], ons.ArgumentTypeError, "item 2 of 3.*the integer 3"),
        (lambda xs: [xs[0], xs[1], "no"], ons.ArgumentTypeError, "item 3.*a str"),
        (lambda xs: [xs[0], xs, xs[1]], ons.ArgumentTypeError, "item 2.*a list"),
        (
            lambda xs: [xs[0], xs[1], xs[2].astype("f8")],
            ons.ArgumentTypeError,
            "item 3 of 3.*a float64 tensor",
        ),
        (lambda xs: [xs[0], xs[1], np.zeros(4, "f4")[::2]], ons.ArgumentValueError, "item 3 of 3"),
    ],
)
def test_no_list_of_tensors(params: ons.Module, change: Any, error: Any, words: str) -> None:
    xs = numpy_arrays([1.0, 2], [10.0, 20], [100.0, 200])
    out = np.zeros(2, np.float32)
    with pytest.raises(error, match=rf"argument 1 \('xs'\).*{words}"):
        params.sum[1, 1](change(xs), 2.0, out, 2)
    assert not out.any()


def test_read_only_in_a_written_list(params: ons.Module) -> None:
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    x = np.zeros(6, np.float32)
    with pytest.raises(ons.ArgumentValueError, match="'outs'.*item 2 of 2.*read-only"):
        params.split[1, 1](x, [np.zeros(3, np.float32), frozen], 6)


def test_list_for_a_pointer(params: ons.Module) -> None:
    with pytest.raises(ons.ArgumentTypeError, match="'out'.*a list, which is no argument"):
        params.sum[1, 1](numpy_arrays([1.0], [1.0], [1.0]), 2.0, [np.zeros(1, "f4")], 1)


def test_first_call_with_a_list() -> None:
    module = ons.Module(SOURCE)
    out = np.zeros(2, np.float32)
    module.sum[1, 1](numpy_arrays([1.0, 2], [10.0, 20], [100.0, 200]), 1.0, out, 2)
    assert out.tolist() == [111, 222]


# ---- tensor maps ----------------------------------------------------------------------------


def test_tensor_map_on_the_cpu(params: ons.Module) -> None:
    x = np.zeros((8, 8), np.float32)
    with pytest.raises(ons.ArgumentValueError, match=r"'map'.*compute capability 9\.0"):
        params.map[1, 1](ons.tensor_map(x, (4, 8)), np.zeros(1, np.int32))
    with pytest.raises(ons.ArgumentTypeError, match="'map'.*layout of its tensor map"):
        params.map[1, 1](x, np.zeros(1, np.int32))
    with pytest.raises(ons.ArgumentTypeError, match="'out'.*TensorMap"):
        params.map[1, 1](ons.tensor_map(x, (4, 8)), ons.tensor_map(x, (4, 8)))


@pytest.mark.parametrize(
    "options",
    [
        {"box": ()},
        {"box": (1,) * 6},
        {"box": (0, 4)},
        {"box": (4, 4), "steps": (1,)},
        {"box": (4, 4), "swizzle": 16},
        {"box": (4, 4), "l2": 32},
        {"box": (4, 4), "fill": "one"},
    ],
)
def test_no_tensor_map(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="tensor_map: "):
        ons.tensor_map(np.zeros((8, 8)), **options)


# ---- views ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [ons.tensor_map(np.zeros(8, np.float32), (8,)), ons.empty(3, "float32")],
    ids=["map", "output"],
)
def test_tensor_map_of_no_array(x: Any) -> None:
    with pytest.raises(ons.ArgumentTypeError, match="is of an array"):
        ons.tensor_map(x, (8,))


def strided() -> list[Any]:
    base = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    return [
        base,
        base[::-1],
        base[:, ::-2, ::3],
        base.T,
        base.transpose(1, 0, 2)[::2],
        np.broadcast_to(base[:, :1], (3, 6, 5)),
        np.broadcast_to(np.float32(7), (2, 3, 4)),
        np.asfortranarray(base),
        base[:, :0],
        base[1:2, 1:2, 1:2],
    ]


@pytest.mark.parametrize("x", strided(), ids=lambda x: f"{x.shape}{x.strides}")
def test_const_view_takes_any_strides(params: ons.Module, x: Any) -> None:
    out = np.full(max(x.size, 1), -1, np.float32)
    params.gather3[1, 1](x, out)
    assert out[: x.size].tolist() == x.ravel().tolist()


def test_small_index_never_overflows(params: ons.Module) -> None:
    out = np.zeros(1, np.int32)
    byte = np.zeros(1, np.uint8)
    params.small_index[1, 1](np.broadcast_to(byte, (2**31 - 1,)), out)
    assert out[0] == 2**31 - 1
    with pytest.raises(ons.ArgumentValueError, match="do not fit 32 bits"):
        params.small_index[1, 1](np.broadcast_to(byte, (2**31,)), out)
    far = np.lib.stride_tricks.as_strided(byte, (3,), (2**30,))
    with pytest.raises(ons.ArgumentValueError, match="do not fit 32 bits"):
        params.small_index[1, 1](far, out)


CHECKED = """
import numpy as np, onstream as ons
module = ons.Module('''
__global__ void read(ons::view<const float, 2> x, long long i, int j, float* out) {
  out[0] = x(i, j);
}
__global__ void pick(ons::ptrs<const float, 2> xs, int i, float* out) { out[0] = xs[i][0]; }
''', check=%s)
x, out = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(1, np.float32)
module.read[1, 1](x, 1, 2, out)
assert out[0] == 5
module.pick[1, 1]([x, x], 1, out)
%s
"""


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("module.read[1, 1](x, 2, 0, out)", b"index 2 is outside of dimension 0, of size 2"),
        ("module.read[1, 1](x, 0, -1, out)", b"index -1 is outside of dimension 1, of size 3"),
        ("module.pick[1, 1]([x, x], 2, out)", b"index 2 is outside of dimension 0, of size 2"),
    ],
)
def test_checked_indices(statement: str, words: bytes) -> None:
    checked = subprocess.run(
        [sys.executable, "-c", CHECKED % (True, statement)], capture_output=True, check=False
    )
    assert checked.returncode != 0
    assert words in checked.stdout + checked.stderr
    clean = subprocess.run(
        [sys.executable, "-c", CHECKED % (True, "")], capture_output=True, check=False
    )
    assert clean.returncode == 0, clean.stderr


# ---- __restrict__ ---------------------------------------------------------------------------

RESTRICT = r"""
__global__ void shift(const float* __restrict__ x, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = x[i] + 1;
}
__global__ void plain(const float* x, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = x[i] + 1;
}
__global__ void both(const float* __restrict__ x, const float* __restrict__ y, float* out) {
  out[0] = x[0] + y[0];
}
template <class T>
__global__ void generic(ons::ptrs<const T, 2> xs, T* __restrict__ y) { y[0] = xs[0][0]; }
"""


def test_overlap_check() -> None:
    checked = ons.Module(RESTRICT, check=True)
    unchecked = ons.Module(RESTRICT)
    x = np.zeros(8, np.float32)
    message = r"arguments 1 \('x'\) and 2 \('y'\) share memory, but one is declared __restrict__"
    with pytest.raises(ons.ArgumentValueError, match=message):
        checked.shift[1, 1](x, x, 8)
    with pytest.raises(ons.ArgumentValueError, match=message):
        checked.shift[1, 1](x[1:5], x[4:], 4)
    checked.shift[1, 1](x[:4], x[4:], 4)
    checked.plain[1, 1](x, x, 8)
    checked.both[1, 1](x, x, np.zeros(1, np.float32))
    with pytest.raises(ons.ArgumentValueError, match=r"1 \('x'\) and 3 \('out'\) share memory"):
        checked.both[1, 1](x, x[1:], x[:1])
    with pytest.raises(ons.ArgumentValueError, match=r"1 \('xs'\) and 2 \('y'\) share memory"):
        checked["generic<float>"][1, 1]([x[4:], x[:4]], x[2:])
    unchecked.shift[1, 1](x, x, 8)
    assert x[0] == 2  # by plain and by this one
