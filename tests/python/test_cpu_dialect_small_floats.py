"""cuda_fp16.h, cuda_bf16.h and cuda_fp8.h on the CPU, against numbers looked up in a table
of all that the format has."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cpu_dialect import BFLOAT16, E4M3, E5M2, HALF, Format, evaluate, evaluate_all

HEADERS = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n"
SMALL = [
    pytest.param(HALF, "__half", "half", id="half"),
    pytest.param(BFLOAT16, "__nv_bfloat16", "bfloat16", id="bfloat16"),
]
RNG = np.random.default_rng(1)


def run(expression: str, *arrays: Any, out: Any) -> Any:
    return evaluate(expression, *arrays, out=out, headers=HEADERS)


def run_all(expressions: dict[str, tuple[str, Any]], *arrays: Any) -> dict[str, Any]:
    return evaluate_all(expressions, *arrays, headers=HEADERS)


def operands(fmt: Format, count: int = 200_000) -> tuple[Any, Any]:
    """Bits: of any kind, and those that are close to each other."""
    a = RNG.integers(0, 2 * fmt.sign, count).astype(fmt.word)
    b = RNG.integers(0, 2 * fmt.sign, count).astype(fmt.word)
    close = RNG.random(count) < 0.5
    b[close] = a[close] + RNG.integers(-40, 40, close.sum()).astype(fmt.word)
    zeros = np.array([0, fmt.sign], fmt.word)
    a[:4], b[:4] = np.tile(zeros, 2), np.repeat(zeros, 2)
    return a, b


def numbers_between(fmt: Format, count: int = 100_000) -> Any:
    """float64: numbers of the format, the middles between them, and close to both."""
    low = RNG.integers(0, fmt.table.size - 1, count)
    at = RNG.choice([0.0, 0.25, 0.5, 0.75, 0.5 - 2.0**-9, 0.5 + 2.0**-9], count)
    values = fmt.table[low] + at * (fmt.table[low + 1] - fmt.table[low])
    extremes = [0.0, -0.0, np.inf, -np.inf, fmt.table[-1], 4 * fmt.table[-1], fmt.table[1] / 8]
    return np.concatenate([values * RNG.choice([-1.0, 1.0], count), extremes])


def check_bits(fmt: Format, got: Any, expected: Any, is_nan: Any) -> None:
    """Where is_nan any NaN without a sign, else these bits."""
    assert (np.isnan(fmt.values(got)) == is_nan).all()
    assert (got[is_nan] == fmt.sign - 1).all(), "NaN is all ones, without a sign"
    wrong = np.flatnonzero((got != expected) & ~is_nan)
    assert wrong.size == 0, (wrong[:5], got[wrong[:5]], expected[wrong[:5]])


@pytest.mark.parametrize("fmt, name, part", SMALL)
def test_to_float_and_back(fmt: Format, name: str, part: str) -> None:
    floats = run(f"__{part}2float(__ushort_as_{part}(a))", fmt.all, out=np.float32)
    with np.errstate(invalid="ignore"):
        expected = fmt.values(fmt.all).astype(np.float32)
    np.testing.assert_array_equal(floats, expected)
    assert (np.signbit(floats) == np.signbit(expected))[~np.isnan(expected)].all()
    back = run(f"__{part}_as_ushort(__float2{part}(a))", floats, out=np.uint16)
    check_bits(fmt, back, fmt.all, np.isnan(expected))


ROUNDINGS = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}


@pytest.mark.parametrize("fmt, name, part", SMALL)
def test_from_floats(fmt: Format, name: str, part: str) -> None:
    doubles = numbers_between(fmt)
    no_nan = np.zeros(doubles.shape, bool)
    with np.errstate(over="ignore"):
        floats = doubles.astype(np.float32)
    got = run_all(
        {m: (f"__{part}_as_ushort(__float2{part}_{m}(a))", np.uint16) for m in ROUNDINGS}, floats
    )
    for mode in ROUNDINGS:
        check_bits(fmt, got[mode], fmt.round(floats.astype(np.float64), mode), no_nan)
    with np.errstate(over="ignore"):
        doubles *= 1 + RNG.choice([0, 2.0**-50, -(2.0**-50)], doubles.size)
    got_rn = run(f"__{part}_as_ushort(__double2{part}(a))", doubles, out=np.uint16)
    check_bits(fmt, got_rn, fmt.round(doubles), no_nan)


INTEGERS = {"short": np.int16, "ushort": np.uint16, "int": np.int32,
            "uint": np.uint32, "ll": np.int64, "ull": np.uint64}  # fmt: skip
WORDS = [(word, mode) for word in INTEGERS for mode in ROUNDINGS]


@pytest.mark.parametrize("fmt, name, part", SMALL)
def test_to_integers(fmt: Format, name: str, part: str) -> None:
    got = run_all(
        {w + m: (f"__{part}2{w}_{m}(__ushort_as_{part}(a))", INTEGERS[w]) for w, m in WORDS},
        fmt.all,
    )
    floats = np.nan_to_num(fmt.values(fmt.all), nan=0.0, posinf=1e300, neginf=-1e300)
    for word, mode in WORDS:
        limits = np.iinfo(INTEGERS[word])
        whole = ROUNDINGS[mode](floats)
        expected = [min(max(int(x), limits.min), limits.max) for x in whole]
        np.testing.assert_array_equal(got[word + mode], np.array(expected, INTEGERS[word]), word)


@pytest.mark.parametrize("fmt, name, part", SMALL)
def test_from_integers(fmt: Format, name: str, part: str) -> None:
    bits = RNG.integers(0, 2**63, 20_000, np.uint64) * 2
    bits >>= RNG.integers(0, 64, bits.size).astype(np.uint64)
    bits[bits >= 2**53] &= ~np.uint64(0x7FF)  # exact in float64
    types = {"short": "short", "ushort": "unsigned short", "int": "int", "uint": "unsigned int",
             "ll": "long long", "ull": "unsigned long long"}  # fmt: skip
    got = run_all(
        {
            w + m: (f"__{part}_as_ushort(__{w}2{part}_{m}(({types[w]})a))", np.uint16)
            for w, m in WORDS
        },
        bits,
    )
    for word, mode in WORDS:
        values = bits.astype(INTEGERS[word]).astype(np.float64)
        check_bits(fmt, got[word + mode], fmt.round(values, mode), np.zeros(bits.shape, bool))


@pytest.mark.parametrize("operation", ["+", "-", "*", "/"])
@pytest.mark.parametrize("fmt, name, part", SMALL)
def test_arithmetic(fmt: Format, name: str, part: str, operation: str) -> None:
    a, b = operands(fmt)
    x, y = fmt.values(a), fmt.values(b)
    if fmt is BFLOAT16:  # so that sums are exact in float64
        keep = (np.abs(np.frexp(x)[1] - np.frexp(y)[1]) < 40) & (np.abs(x) < 1e30)
        a, b, x, y = a[keep], b[keep], x[keep], y[keep]
    with np.errstate(all="ignore"):
        exact = {"+": x + y, "-": x - y, "*": x * y, "/": x / y}[operation]
    is_nan = np.isnan(exact)
    expected = fmt.round(np.where(is_nan, 0, exact))
    function = {"+": "__hadd", "-": "__hsub", "*": "__hmul", "/": "__hdiv"}[operation]
    call = f"(__ushort_as_{part}(a), __ushort_as_{part}(b))"
    assign = f"[&] {{ {name} x = __ushort_as_{part}(a); return x {operation}= __ushort_as_{part}(b); }}()"
    expressions = {
        "function": (f"__{part}_as_ushort({function}{call})", np.uint16),
        "assignment": (f"__{part}_as_ushort({assign})", np.uint16),
    }
    if operation != "/":
        expressions["saturating"] = (f"float({function}_sat{call})", np.float32)
    got = run_all(expressions, a, b)
    check_bits(fmt, got["function"], expected, is_nan)
    check_bits(fmt, got["assignment"], expected, is_nan)
    if operation != "/":
        rounded = np.where(is_nan, 0.0, fmt.values(expected))
        np.testing.assert_array_equal(got["saturating"], np.clip(rounded, 0, 1))


@pytest.mark.parametrize("fmt, name, part", SMALL)
def test_multiply_add(fmt: Format, name: str, part: str) -> None:
    count = 3000
    a, b = operands(fmt, count)
    c = operands(fmt, count)[0]
    x, y = fmt.values(a), fmt.values(b)
    # Close to the product's negative, so that what is left is small; and to its half.
    with np.errstate(all="ignore"):
        product = x * y
        near = fmt.round(np.nan_to_num(-product * RNG.choice([1, 0.5], count)))
    c = np.where(RNG.random(count) < 0.6, near, c).astype(np.uint16)
    z = fmt.values(c)
    keep = np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & (np.abs(product) < 1e30)
    a, b, c, x, y, z = (v[keep] for v in (a, b, c, x, y, z))
    got = run(
        f"__{part}_as_ushort(__hfma(__ushort_as_{part}(a), __ushort_as_{part}(b), "
        f"__ushort_as_{part}(c)))",
        a, b, c, out=np.uint16,
    )  # fmt: skip
    for bits, xi, yi, zi in zip(got, x, y, z, strict=True):
        exact = Fraction(xi) * Fraction(yi) + Fraction(zi)
        magnitude = int(bits) & (fmt.sign - 1)
        if exact:
            assert (int(bits) >= fmt.sign) == (exact < 0)
        size = abs(exact)
        low = fmt.table[max(magnitude - 1, 0)]
        here = fmt.table[min(magnitude, fmt.finite_count)]
        high = fmt.table[min(magnitude + 1, fmt.finite_count)]
        below, above = (Fraction(low) + Fraction(here)) / 2, (Fraction(here) + Fraction(high)) / 2
        is_even = magnitude % 2 == 0
        assert size >= below if is_even or magnitude == 0 else size > below
        if magnitude < fmt.finite_count:
            assert size <= above if is_even else size < above


@pytest.mark.parametrize("fmt, name, part", SMALL)
def test_comparisons(fmt: Format, name: str, part: str) -> None:
    a, b = operands(fmt)
    b[::7] = a[::7]
    x, y = fmt.values(a), fmt.values(b)
    unordered = np.isnan(x) | np.isnan(y)
    x_bits, y_bits = f"__ushort_as_{part}(a)", f"__ushort_as_{part}(b)"
    references = {"eq": x == y, "ne": (x != y) & ~unordered, "lt": x < y, "le": x <= y,
                  "gt": x > y, "ge": x >= y}  # fmt: skip
    expressions: dict[str, tuple[str, Any]] = {"!=": (f"{x_bits} != {y_bits}", np.bool_)}
    for word in references:
        for suffix in "", "u":
            expressions[word + suffix] = f"__h{word}{suffix}({x_bits}, {y_bits})", np.bool_
        pairs = f"({name}2({x_bits}, {y_bits}), {name}2({y_bits}, {y_bits}))"
        expressions[word + "mask"] = f"__h{word}2_mask{pairs}", np.uint32
    for function in "min", "max", "min_nan", "max_nan":
        value = f"__{part}_as_ushort(__h{function}({x_bits}, {y_bits}))"
        expressions[function] = value, np.uint16
    got = run_all(expressions, a, b)
    np.testing.assert_array_equal(got["!="], x != y)
    for word, ordered in references.items():
        np.testing.assert_array_equal(got[word], ordered, err_msg=word)
        np.testing.assert_array_equal(got[word + "u"], ordered | unordered, err_msg=word)
        mask = got[word + "mask"] & 0xFFFF
        np.testing.assert_array_equal(mask, np.where(ordered, 0xFFFF, 0), err_msg=word)
    # -0 is less than +0, and NaN loses.
    order, other = (np.where(v >= fmt.sign, fmt.sign - 1 - v.astype(int), v) for v in (a, b))
    for function, pick_a in {"min": order < other, "max": order > other}.items():
        expected = np.where(np.isnan(y) | (pick_a & ~np.isnan(x)), a, b)
        check_bits(fmt, got[function], expected, np.isnan(x) & np.isnan(y))
        check_bits(fmt, got[function + "_nan"], expected, unordered)


@pytest.mark.parametrize("fmt, name, part", SMALL)
def test_functions(fmt: Format, name: str, part: str) -> None:
    x = fmt.values(fmt.all)
    with np.errstate(all="ignore"):
        references = {
            "hceil": np.ceil(x), "hcos": np.cos(x), "hexp": np.exp(x), "hexp10": 10.0**x,
            "hexp2": np.exp2(x), "hfloor": np.floor(x), "hlog": np.log(x), "hlog10": np.log10(x),
            "hlog2": np.log2(x), "hrcp": 1 / x, "hrint": np.rint(x), "hrsqrt": 1 / np.sqrt(x),
            "hsin": np.sin(x), "hsqrt": np.sqrt(x), "htanh": np.tanh(x), "htrunc": np.trunc(x),
            "__habs": np.abs(x), "__hneg": -x,
        }  # fmt: skip
    exact = {"hceil", "hfloor", "hrcp", "hrint", "hsqrt", "htrunc", "__habs", "__hneg"}
    expressions = {
        name: (f"__{part}_as_ushort({name}(__ushort_as_{part}(a)))", np.uint16)
        for name in references
    }
    results = run_all(expressions, fmt.all)
    for function, reference in references.items():
        got = results[function]
        is_nan = np.isnan(reference)
        expected = fmt.round(np.where(is_nan, 0, reference))
        assert (np.isnan(fmt.values(got)) == is_nan).all(), function
        distance = np.abs(got.astype(int) - expected.astype(int))[~is_nan]
        assert distance.max() <= (0 if function in exact else 1), function


def test_pairs() -> None:
    source = """[&] {
      %(p)s2 p = %(p)s2(1.0f, -2.0f), q = __floats2%(w)s2_rn(0.5f, 4.0f), r = p;
      r += q; r *= __%(w)s2%(w)s2(2.0f); r -= p; r /= q; ++r; --r; r++; r--;
      const %(p)s2 fused = __hfma2(p, q, r), lows = __lows2%(w)s2(p, q);
      const float2 f = __%(w)s22float2(__lowhigh2highlow(p)), g = __%(w)s22float2(__hcmadd(p, q, r));
      const %(p)s2 relu = __hfma2_relu(p, q, __float2%(w)s2_rn(0.0f));
      const bool good[] = {
          __low2float(r) == 4.0f, __high2float(r) == 1.5f, f.x == -2.0f && f.y == 1.0f,
          float(fused.x) == 4.5f && float(fused.y) == -6.5f, p == p && p != q,
          !(p < q) && __hbeq2(p, p) && !__hblt2(p, q), __hltu2_mask(p, q) == 0xFFFF0000u,
          float(lows.x) == 1.0f && float(lows.y) == 0.5f,
          float(__high2%(w)s(-p)) == 2.0f && float(__low2%(w)s(__habs2(p))) == 1.0f,
          g.x == 0.5f + 8.0f + 4.0f && g.y == 4.0f - 1.0f + 1.5f,
          float(relu.x) == 0.5f && float(relu.y) == 0.0f,
          __hisinf(%(p)s(1.0f) / %(p)s(0.0f)) == 1 && __hisinf(%(p)s(-1.0f) / %(p)s(0.0f)) == -1,
          float(h2exp2(p).y) == 0.25f, float(__hmax2(p, q).y) == 4.0f,
          sizeof(p) == 4 && alignof(%(p)s2) == 4,
          static_cast<%(p)s2_raw>(p).x == __%(w)s_as_ushort(p.x),
      };
      for (int j = 0; j < int(sizeof(good)); ++j) if (!good[j]) return j + 1;
      return 0;
    }()"""
    for pair, word in ("__half", "half"), ("__nv_bfloat16", "bfloat16"):
        got = run(source % {"p": pair, "w": word}, np.zeros(1, np.int32), out=np.int32)
        assert got[0] == 0, f"check {got[0]} of {pair} failed"


def test_atomics_of_small_floats() -> None:
    for word, kind in ("half", "__half"), ("bfloat16", "__nv_bfloat16"):
        source = f"""[&] {{
          __shared__or_local {kind} one; __shared__or_local {kind}2 two;
          one = 1.0f; two = {kind}2(1.0f, 2.0f);
          {kind} before = atomicAdd(&one, {kind}(2.0f));
          {kind}2 both = atomicAdd(&two, {kind}2(0.5f, 0.25f));
          return float(before) * 1000 + float(one) * 100 + float(both.y) * 10 + float(two.y);
        }}()""".replace("__shared__or_local ", "")
        got = run(source, np.zeros(1, np.int32), out=np.float32)
        assert got[0] == 1000 + 300 + 20 + 2.25, word


@pytest.mark.parametrize("fmt, name", [pytest.param(E4M3, "e4m3", id="e4m3"),
                                       pytest.param(E5M2, "e5m2", id="e5m2")])  # fmt: skip
def test_fp8(fmt: Format, name: str) -> None:
    make = f"[&] {{ __nv_fp8_{name} x; x.__x = a; return x; }}()"
    expected = fmt.values(fmt.all)
    for kind in "float", "double", "__half", "__nv_bfloat16":
        got = run(f"float({kind}({make}))", fmt.all, out=np.float32)
        np.testing.assert_array_equal(got, expected)
    doubles = numbers_between(fmt, 20_000)
    nearest = fmt.round(doubles)
    is_over = (nearest & (fmt.sign - 1)) >= fmt.finite_count
    saturated = np.where(is_over, fmt.sign * np.signbit(doubles) + fmt.finite_count - 1, nearest)
    got = run(f"__nv_fp8_{name}(a).__x", doubles, out=np.uint8)
    np.testing.assert_array_equal(got, saturated)
    got = run(f"__nv_cvt_double_to_fp8(a, __NV_NOSAT, __NV_{name.upper()})", doubles, out=np.uint8)
    lost = 0x7F if fmt is E4M3 else 0x7C
    unsaturated = np.where(is_over, 0x80 * np.signbit(doubles) + lost, nearest)
    signless = np.where(is_over & (fmt is E4M3), 0x7F, 0xFF)  # NaN
    np.testing.assert_array_equal(got & signless, unsaturated & signless)
    nan = run(f"__nv_fp8_{name}(a).__x", np.array([np.nan, -np.nan], np.float32), out=np.uint8)
    assert (nan == 0x7F).all()


def test_fp8_in_twos_and_fours() -> None:
    got = run(
        """[&] {
          const __nv_fp8x4_e4m3 four(make_float4(1.0f, -2.0f, 448.0f, 1000.0f));
          const float4 f = float4(four);
          const __nv_fp8x2_e5m2 two(__floats2half2_rn(0.5f, 3.0f));
          const float2 g = float2(two);
          const __half2 h = __nv_cvt_fp8x2_to_halfraw2(two.__x, __NV_E5M2);
          const __nv_fp8x4_e5m2 both(h, h);
          return f.x == 1 && f.y == -2 && f.z == 448 && f.w == 448 && g.x == 0.5f && g.y == 3 &&
                 float(h.y) == 3.0f && both.__x >> 16 == two.__x && sizeof(four) == 4;
        }()""",
        np.zeros(1, np.int32),
        out=np.bool_,
    )
    assert got[0]


def test_ml_dtypes_agrees_with_the_table() -> None:
    """The reference itself, where another rounds the same way."""
    floats = numbers_between(HALF).astype(np.float32)
    floats = floats[np.abs(floats) < 65000]
    np.testing.assert_array_equal(
        HALF.round(floats.astype(np.float64)), floats.astype(np.float16).view(np.uint16)
    )
    doubles = numbers_between(BFLOAT16)
    floats = doubles[np.abs(doubles) < 3e38].astype(np.float32)
    np.testing.assert_array_equal(
        BFLOAT16.round(floats.astype(np.float64)), floats.astype(ml_dtypes.bfloat16).view(np.uint16)
    )
