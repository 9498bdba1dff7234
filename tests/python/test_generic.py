"""Generic kernels: template parameters from the arguments of a call."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import onstream as ons

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

template <typename T>
__global__ void twice(const T* x, T* out, long long n) {
  for (long long i = 0; i < n; ++i) out[i] = x[i] + x[i];
}
template <typename T>
__global__ void copy(const T* x, T* out, long long n) {
  for (long long i = 0; i < n; ++i) out[i] = x[i];
}
template <class T, int N, class Index>
__global__ void describe(ons::view<const T, N, Index> x, ons::view<T, N, Index> y, int* out) {
  out[0] = sizeof(T); out[1] = N; out[2] = sizeof(Index); out[3] = x.shape[N - 1];
}
template <class T, int N>
__global__ void add_all(ons::ptrs<const T, N> xs, T* out) {
  out[0] = 0;
  for (int i = 0; i < N; ++i) out[0] += xs[i][0];
}
template <class T, int K, bool NEGATE>
__global__ void add(const T* x, T* out) { out[0] = NEGATE ? -(x[0] + T(K)) : x[0] + T(K); }
template <int ROWS, int COLUMNS>
__global__ void sizes(const float* x, int* out) { out[0] = ROWS; out[1] = COLUMNS; }
template <class T, int K = 7>
__global__ void with_default(const T* x, int* out) { out[0] = sizeof(T); out[1] = K; }
template <class T>
__global__ void value(T a, float* out) { out[0] = a; }
template <class A, class B>
__global__ void convert(const A* x, B* out, int n) {
  for (int i = 0; i < n; ++i) out[i] = B(x[i]);
}
__global__ void plain(int* out) { out[0] = 1; }
"""

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64"]  # fmt: skip


@pytest.fixture(scope="module")
def mod() -> ons.Module:
    return ons.Module(SOURCE, name="generic.cu")


def test_dtype_is_deduced(mod: ons.Module) -> None:
    twice = mod.generic("twice<T>")
    for _ in range(2):
        for dtype in ("float32", "int64", "float64", "uint8"):
            x = np.arange(5).astype(dtype)
            out = np.zeros_like(x)
            twice[1, 1](x, out, 5)
            assert out.tolist() == [0, 2, 4, 6, 8]
    assert [kernel.name for kernel in twice.instances] == [
        "twice<float>", "twice<long long>", "twice<double>", "twice<unsigned char>"
    ]  # fmt: skip
    assert twice.instances[0] is mod["twice<float>"]
    assert repr(twice) == "<onstream.GenericKernel twice<T>>"


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(mod: ons.Module, dtype: str) -> None:
    x = np.array([0, 1, 1, 0]).astype(dtype)
    out = mod.generic("copy")[1, 1](x, ons.like(x), 4)
    assert out.dtype == x.dtype
    assert out.tolist() == x.tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_dtypes(mod: ons.Module, dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([0, 1, 0.5, -2]).astype(getattr(ml_dtypes, dtype))
    out = np.zeros_like(x)
    mod.generic("copy")[1, 1](x, out, 4)
    assert out.tolist() == x.tolist()


def test_complex_dtypes(mod: ons.Module) -> None:
    copy = mod.generic("copy")
    for dtype in (np.complex64, np.complex128):
        x = np.array([1 + 2j, 3 - 4j], dtype)
        out = np.zeros_like(x)
        copy[1, 1](x, out, 2)
        assert out.tolist() == x.tolist()


def test_torch_and_jax(mod: ons.Module, jnp: Any) -> None:
    torch = pytest.importorskip("torch")
    twice = mod.generic("twice")
    for _ in range(3):
        for dtype in (torch.float32, torch.int32, torch.float64):
            x = torch.arange(5, dtype=dtype)
            out = twice[1, 1](x, ons.like(x), 5)
            assert out.dtype is dtype
            assert out.tolist() == [0, 2, 4, 6, 8]
            written = torch.zeros(5, dtype=dtype)
            twice[1, 1](x, written, 5)
            assert written.tolist() == [0, 2, 4, 6, 8]
    x = jnp.arange(5.0)
    assert twice[1, 1](x, ons.like(x), 5).tolist() == [0, 2, 4, 6, 8]
    assert len(twice.instances) == 3


def test_rank_and_index(mod: ons.Module) -> None:
    describe = mod.generic("describe<T, N, Index>")
    out = np.zeros(4, np.int32)
    x = np.zeros((2, 3), np.float64)
    describe[1, 1](x, x.copy(), out)
    assert out.tolist() == [8, 2, 4, 3]
    describe[1, 1](x[0], x[1].copy(), out)
    assert out.tolist() == [8, 1, 4, 3]
    huge = np.broadcast_to(np.zeros(1, np.int8), (2**31, 2))
    describe[1, 1](huge, np.zeros((1, 1), np.int8), out)
    assert out.tolist() == [1, 2, 8, 2]
    far = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), (3,), (2**30,))
    describe[1, 1](far, np.zeros(1, np.int8), out)
    assert out.tolist() == [1, 1, 8, 3]
    describe[1, 1](far[:1], np.zeros(1, np.int8), out)
    assert out.tolist() == [1, 1, 4, 1]
    names = [kernel.name for kernel in describe.instances]
    assert names[2] == "describe<signed char,2,long long>"


def test_index_in_the_fast_call(mod: ons.Module) -> None:
    torch = pytest.importorskip("torch")
    call = mod.generic("describe")[1, 1]
    out = torch.zeros(4, dtype=torch.int32)
    small = torch.zeros(4, dtype=torch.int8)
    big = torch.zeros(1, dtype=torch.int8).expand(2**31)
    far = torch.empty(2**31 + 1, dtype=torch.int8)[:: 2**30]  # never touched
    for _ in range(3):
        for x, expected in ((small, 4), (small, 4), (big, 8), (small, 4), (big[:-1], 4)):
            call(x, small, out)
            assert out[:3].tolist() == [1, 1, expected]
        call(far, small, out)
        assert out[2] == 8


def test_count_of_a_list(mod: ons.Module) -> None:
    add_all = mod.generic("add_all")
    for dtype in (np.float32, np.int32):
        for count in (1, 2, 5):
            out = np.zeros(1, dtype)
            add_all[1, 1]([np.full(1, i + 1, dtype) for i in range(count)], out)
            assert out[0] == count * (count + 1) // 2
    assert len(add_all.instances) == 6


def test_values_by_keyword(mod: ons.Module) -> None:
    x, out = np.ones(1, np.float32), np.zeros(1, np.float32)
    mod.generic("add<T, K, NEGATE>", K=4, NEGATE=True)[1, 1](x, out)
    assert out[0] == -5
    mod.generic("add", K=np.int64(-4), NEGATE=False)[1, 1](x, out)
    assert out[0] == -3
    mod.generic("add<T, 5, false>")[1, 1](x, out)
    assert out[0] == 6
    mod.generic("add<float, K, NEGATE>", K="2 + 2", NEGATE="true")[1, 1](x, out)
    assert out[0] == -5
    with pytest.raises(ons.ArgumentTypeError, match="declared const float"):
        mod.generic("add<float, 5, false>")[1, 1](x.astype("f8"), out)


def test_ties_by_keyword(mod: ons.Module) -> None:
    out = np.zeros(2, np.int32)
    sizes = mod.generic("sizes<ROWS, COLUMNS>", ROWS="x.shape[0]", COLUMNS="x.shape[1]")
    for shape in ((3, 4), (5, 1), (3, 4)):
        sizes[1, 1](np.zeros(shape, np.float32), out)
        assert tuple(out) == shape
    assert len(sizes.instances) == 2
    with pytest.raises(ons.ArgumentTypeError, match=r"'x'|argument 1.*no such dimension"):
        sizes[1, 1](np.zeros(3, np.float32), out)
    mod.generic("sizes", ROWS="x.ndim", COLUMNS=9)[1, 1](np.zeros((1, 1, 1), np.float32), out)
    assert out.tolist() == [3, 9]
    one = np.zeros(1, np.float32)
    mod.generic("value<T>", T="out")[1, 1](2.5, one)
    assert one[0] == 2.5
    mod.generic("value<T>", T="int")[1, 1](2, one)
    assert one[0] == 2
    y = np.zeros(2, np.float32)
    mod.generic("convert<A, B>", B="float")[1, 1](np.array([1, 2]), y, 2)
    assert y.tolist() == [1, 2]


def test_ties_in_the_fast_call(mod: ons.Module) -> None:
    torch = pytest.importorskip("torch")
    out = torch.zeros(2, dtype=torch.int32)
    sizes = mod.generic("sizes", ROWS="x.shape[0]", COLUMNS="x.shape[1]")[1, 1]
    for _ in range(2):
        for shape in ((3, 4), (5, 1), (3, 4)):
            sizes(torch.zeros(shape), out)
            assert tuple(out.tolist()) == shape


def test_defaults(mod: ons.Module) -> None:
    out = np.zeros(2, np.int32)
    mod.generic("with_default")[1, 1](np.zeros(1), out)
    assert out.tolist() == [8, 7]
    mod.generic("with_default", K=3)[1, 1](np.zeros(1), out)
    assert out.tolist() == [8, 3]


@pytest.mark.parametrize(
    ("name", "keywords", "error", "words"),
    [
        ("value<T>", {}, ons.ArgumentValueError, "do not tell 'T': give it"),
        ("add", {"K": 1}, ons.ArgumentValueError, "do not tell 'NEGATE'"),
        ("add", {"K": 1, "NEGATE": None}, ons.ArgumentValueError, "None is no value"),
        ("add", {"K": float("inf"), "NEGATE": True}, ons.ArgumentValueError, "inf is no value"),
        ("twice", {"K": 1}, ons.ArgumentValueError, "keyword is none of its"),
        ("twice<T", {}, ons.ArgumentValueError, "no '>'"),
        ("twice", {"T": "x.size"}, ons.ArgumentValueError, "not tied to an argument"),
        ("plain", {}, ons.ArgumentValueError, "no template"),
        ("missing<T>", {}, ons.NotFoundError, "no kernel 'missing<T>'"),
        (3, {}, TypeError, "str"),
    ],
)
def test_refused_names(mod: ons.Module, name: Any, keywords: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        mod.generic(name, **keywords)


def test_arguments_that_disagree(mod: ons.Module) -> None:
    x, y = np.zeros(3, np.float32), np.zeros(3)
    words = "T of the template is float for argument 1, but double for argument 2"
    with pytest.raises(ons.ArgumentTypeError, match=words):
        mod.generic("twice")[1, 1](x, y, 3)
    torch = pytest.importorskip("torch")
    twice = mod.generic("twice")[1, 1]
    a, b = torch.zeros(3), torch.zeros(3, dtype=torch.float64)
    twice(a, a.clone(), 3)
    twice(a, a.clone(), 3)
    with pytest.raises(ons.ArgumentTypeError, match=words):
        twice(a, b, 3)


def test_arguments_that_tell_nothing(mod: ons.Module) -> None:
    twice = mod.generic("twice")
    x = np.zeros(3, np.float32)
    with pytest.raises(ons.ArgumentTypeError, match="no argument tells T"):
        twice[1, 1](None, None, 0)
    with pytest.raises(ons.ArgumentTypeError, match="argument 1: got a int.*does not tell T"):
        twice[1, 1](3, x, 3)
    with pytest.raises(ons.ArgumentTypeError, match="takes more arguments than the 1 given"):
        twice[1, 1](x)
    with pytest.raises(ons.ArgumentTypeError, match="takes 3 arguments, got 2"):
        twice[1, 1](x, x.copy())
    with pytest.raises(ons.ArgumentTypeError, match="unexpected keyword 'n'"):
        twice[1, 1](x, x.copy(), n=3)
    twice[1, 1](x, None, 0)


def test_launch_and_instance(mod: ons.Module) -> None:
    twice = mod.generic("twice<T>")
    x = np.arange(3, dtype=np.int16)
    out = twice.launch((value for value in (x, ons.like(x), 3)), grid=1, block=1)
    assert out.tolist() == [0, 2, 4]
    kernel = twice.instance(x, x, 3)
    assert kernel is mod["twice<short>"]
    assert twice.name == "twice<T>"
    with pytest.raises(TypeError):
        twice.launch((x, x, 3))


def test_dtypes_without_a_type_of_cxx(mod: ons.Module, producer: Any) -> None:
    x = producer.make_type(0)(np.zeros(4).ctypes.data, (4,), (2, 16, 2))
    words = r"kernel 'twice<T>': no C\+\+ type is known for the dtype .* of argument 1"
    for call in (mod.generic("twice")[1, 1], mod.generic("twice").instance):
        with pytest.raises(ons.ArgumentTypeError, match=words):
            call(x, x, 4)


def test_compile_errors_are_those_of_the_instance(mod: ons.Module) -> None:
    x = np.zeros(1, np.complex64)
    with pytest.raises(ons.CompileError):
        mod.generic("twice")[1, 1](x, x.copy(), 1)


def test_lifetime() -> None:
    module = ons.Module(SOURCE)
    call = module.generic("twice")[1, 1]
    x = np.ones(1)
    call(x, x.copy(), 1)
    del module
    gc.collect()
    out = np.zeros(1)
    call(x, out, 1)
    assert out[0] == 2


def test_nothing_is_kept_of_a_call(mod: ons.Module) -> None:
    class Array(np.ndarray[Any, Any]):
        pass

    x = np.ones(3).view(Array)
    seen = weakref.ref(x)
    mod.generic("twice")[1, 1](x, np.zeros(3), 3)
    del x
    gc.collect()
    assert seen() is None


def test_out(mod: ons.Module) -> None:
    twice = mod.generic("twice<T>")
    x, given = np.arange(3.0), np.zeros(3)
    assert twice[1, 1](x, ons.like(x), 3, out=given) is given
    assert given.tolist() == [0, 2, 4]
    assert twice[1, 1](x, ons.like(x), 3, out=(None,)).tolist() == [0, 2, 4]
    assert twice[1, 1](x, ons.like(x), 3, out=None).tolist() == [0, 2, 4]
    assert twice.launch((x, ons.like(x), 3), grid=1, block=1, out=given) is given
    with pytest.raises(ons.ArgumentValueError, match="out= with an array of shape"):
        twice[1, 1](x, ons.like(x), 3, out=np.zeros(4))
    with pytest.raises(ons.ArgumentTypeError, match="out= has 2 arrays"):
        twice[1, 1](x, ons.like(x), 3, out=(given, given))
    with pytest.raises(ons.ArgumentTypeError, match="unexpected keyword"):
        twice[1, 1](x, ons.like(x), 3, into=given)
    with pytest.raises(ons.ArgumentTypeError, match="unexpected keyword"):
        twice[1, 1](x, ons.like(x), 3, out=given, into=given)


def test_what_out_gives_tells_a_parameter(mod: ons.Module) -> None:
    convert = mod.generic("convert<A, B>")
    x, given = np.array([1.5, 2.5, 3.5]), np.zeros(3, np.int32)
    output = ons.empty("n", "int32")
    with pytest.raises(ons.ArgumentTypeError, match="no argument tells B"):
        convert[1, 1](x, output, 3)
    assert convert[1, 1](x, output, 3, out=given) is given
    assert convert.launch((x, output, 3), grid=1, block=1, out=[given]) is given
    assert given.tolist() == [1, 2, 3]
    assert [kernel.name for kernel in convert.instances] == ["convert<double,int>"]
