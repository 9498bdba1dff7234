"""CUDA's math functions, intrinsics and atomics on the CPU, against exact arithmetic and
scipy."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cpu_dialect import evaluate, evaluate_all

import onstream as ons

RNG = np.random.default_rng(2)
MODES = ("rn", "rz", "ru", "rd")


def random_floats(dtype: Any, count: int = 400) -> Any:
    """Of all exponents, half of them close to 1."""
    word = {np.float32: np.uint32, np.float64: np.uint64}[dtype]
    bits = RNG.integers(0, np.iinfo(word).max, count, word).view(dtype)
    near = (RNG.random(count) * RNG.choice([1.0, -1.0, 3e-5], count)).astype(dtype)
    values = np.where(RNG.random(count) < 0.5, near, bits)
    return np.where(np.isfinite(values), values, dtype(1.5))


def check_rounded(got: Any, exact: Any, mode: str, describe: str) -> None:
    """Is `got` the number of its type that is on the right side, or nearest? Comparing
    squares where `exact` is a pair (square root): Fraction."""
    dtype = got.dtype.type
    largest = Fraction(float(np.finfo(dtype).max))
    for value, goal in zip(got, exact, strict=True):
        if goal is None:
            continue
        with np.errstate(over="ignore"):
            up, down = np.nextafter(value, dtype(np.inf)), np.nextafter(value, dtype(-np.inf))
        wanted = {"rz": "rd" if goal > 0 else "ru"}.get(mode, mode)
        if np.isinf(value):
            step = largest * Fraction(2) ** -np.finfo(dtype).nmant / 4
            assert (
                mode == "rn"
                and abs(goal) >= largest + step
                or (wanted == ("ru" if value > 0 else "rd") and abs(goal) > largest)
            ), (describe, value, float(goal))
            continue
        here = Fraction(float(value))
        if wanted == "ru":
            assert here >= goal and (np.isinf(down) or Fraction(float(down)) < goal), describe
        elif wanted == "rd":
            assert here <= goal and (np.isinf(up) or Fraction(float(up)) > goal), describe
        else:
            distance = abs(here - goal)
            for other in up, down:
                if np.isinf(other):
                    continue
                others = abs(Fraction(float(other)) - goal)
                is_even = int(value.view(f"u{value.itemsize}")) % 2 == 0
                assert distance < others or (distance == others and is_even), describe


def fraction(x: Any) -> Fraction:
    return Fraction(float(x))


@pytest.mark.parametrize(
    "dtype, letter, fma", [(np.float32, "f", "fmaf"), (np.float64, "d", "fma")]
)
def test_directed_arithmetic(dtype: Any, letter: str, fma: str) -> None:
    x, y, z = random_floats(dtype), random_floats(dtype), random_floats(dtype)
    y[y == 0] = 1
    x[:50] = -y[:50] * RNG.choice([1, 1 + 2**-20], 50).astype(dtype)
    cases = {
        f"__{letter}add": ("(a, b)", lambda a, b, c: fraction(a) + fraction(b)),
        f"__{letter}sub": ("(a, b)", lambda a, b, c: fraction(a) - fraction(b)),
        f"__{letter}mul": ("(a, b)", lambda a, b, c: fraction(a) * fraction(b)),
        f"__{letter}div": ("(a, b)", lambda a, b, c: fraction(a) / fraction(b)),
        f"__{letter}rcp": ("(b)", lambda a, b, c: 1 / fraction(b)),
        f"__{fma}": ("(a, b, c)", lambda a, b, c: fraction(a) * fraction(b) + fraction(c)),
    }
    expressions = {
        name + mode: (f"{name}_{mode}{arguments}", dtype)
        for name, (arguments, _) in cases.items() for mode in MODES
    }  # fmt: skip
    got = evaluate_all(expressions, x, y, z)
    for name, (_, exactly) in cases.items():
        exact = [exactly(*values) for values in zip(x, y, z, strict=True)]
        for mode in MODES:
            check_rounded(got[name + mode], exact, mode, f"{name}_{mode}")


@pytest.mark.parametrize("dtype, letter", [(np.float32, "f"), (np.float64, "d")])
def test_directed_square_roots(dtype: Any, letter: str) -> None:
    x = np.abs(random_floats(dtype))
    x[:20] = np.arange(20) ** 2
    got = evaluate_all({m: (f"__{letter}sqrt_{m}(a)", dtype) for m in MODES}, x)
    for value, *roots in zip(x, *got.values(), strict=True):
        square = fraction(value)
        for mode, root in zip(MODES, roots, strict=True):
            here = fraction(root)
            up = fraction(np.nextafter(root, dtype(np.inf)))
            down = fraction(np.nextafter(root, dtype(-np.inf)))
            if mode == "ru":
                assert here**2 >= square and (root == 0 or down**2 < square)
            elif mode == "rn":
                assert ((here + up) / 2) ** 2 > square
                assert root == 0 or ((here + down) / 2) ** 2 < square
            else:
                assert here**2 <= square < up**2


def test_directed_conversions() -> None:
    doubles = np.concatenate(
        [random_floats(np.float64), [1e39, -1e39, 1e-46, 2.0**128 * (1 - 2.0**-26)]]
    )
    got = evaluate_all({m: (f"__double2float_{m}(a)", np.float32) for m in MODES}, doubles)
    for mode in MODES:
        check_rounded(got[mode], [fraction(x) for x in doubles], mode, "__double2float_" + mode)
    bits = RNG.integers(0, 2**64 - 1, 500, np.uint64) >> RNG.integers(0, 63, 500).astype(np.uint64)
    kinds = {"int": ("int", np.int32), "uint": ("unsigned int", np.uint32),
             "ll": ("long long", np.int64), "ull": ("unsigned long long", np.uint64)}  # fmt: skip
    names = [(word, to, mode) for word in kinds for to in ("float", "double") for mode in MODES
             if to == "float" or word in ("ll", "ull")]  # fmt: skip
    got = evaluate_all(
        {w + to + m: (f"__{w}2{to}_{m}(({kinds[w][0]})a)", np.float32 if to == "float" else np.float64)
         for w, to, m in names},
        bits,
    )  # fmt: skip
    for word, to, mode in names:
        exact = [Fraction(int(x)) for x in bits.astype(kinds[word][1])]
        check_rounded(got[word + to + mode], exact, mode, f"__{word}2{to}_{mode}")


@pytest.mark.parametrize("dtype, name", [(np.float32, "float"), (np.float64, "double")])
def test_to_integers(dtype: Any, name: str) -> None:
    halves = (RNG.integers(-50, 50, 200) / 2).astype(dtype)
    edges = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e30, 2**31, 2**32, 2**63, 2**64]
    edges += [-edge for edge in edges]
    x = np.concatenate([halves, random_floats(dtype), np.array(edges, dtype)])
    types = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}
    rounding = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}
    got = evaluate_all({w + m: (f"__{name}2{w}_{m}(a)", types[w]) for w in types for m in MODES}, x)
    for word, integer in types.items():
        limits = np.iinfo(integer)
        for mode in MODES:
            whole = np.nan_to_num(rounding[mode](x), nan=0.0, posinf=1e35, neginf=-1e35)
            expected = [min(max(int(v), limits.min), limits.max) for v in whole]
            np.testing.assert_array_equal(
                got[word + mode], np.array(expected, integer), word + mode
            )


def test_bits() -> None:
    x = RNG.integers(0, 2**32, 2000, np.uint32)
    y = RNG.integers(0, 2**32, 2000, np.uint32)
    x[:40] = [0, 1, 2**31, 2**32 - 1] * 10
    y[::3] &= 31
    wide = x.astype(np.uint64) << np.uint64(32) | y
    got = evaluate_all(
        {
            "popc": ("__popc(a)", np.int32), "clz": ("__clz((int)a)", np.int32),
            "ffs": ("__ffs((int)a)", np.int32), "brev": ("__brev(a)", np.uint32),
            "popcll": ("__popcll(c)", np.int32), "clzll": ("__clzll((long long)c)", np.int32),
            "ffsll": ("__ffsll((long long)c)", np.int32), "brevll": ("__brevll(c)", np.uint64),
            "perm": ("__byte_perm(a, b, (unsigned)(c >> 16))", np.uint32),
            "left": ("__funnelshift_l(a, b, b & 63)", np.uint32),
            "right": ("__funnelshift_r(a, b, b & 63)", np.uint32),
            "left_clamped": ("__funnelshift_lc(a, b, b & 63)", np.uint32),
            "right_clamped": ("__funnelshift_rc(a, b, b & 63)", np.uint32),
            "fns": ("__fns(a, b & 31, (int)(b >> 5) % 40)", np.uint32),
        },
        x, y, wide,
    )  # fmt: skip
    for i, (a, b, c) in enumerate(zip(x.tolist(), y.tolist(), wide.tolist(), strict=True)):
        bits, bits64 = f"{a:032b}", f"{c:064b}"
        picked = 0
        for lane in range(4):
            selector = c >> 16 >> (4 * lane) & 15
            byte = (b << 32 | a) >> (8 * (selector & 7)) & 255
            byte = (255 if byte & 128 else 0) if selector & 8 else byte
            picked |= byte << (8 * lane)
        shift = b & 63
        both = b << 32 | a
        offset = int(np.int32(np.uint32(b >> 5))) % 40
        steps = range(b & 31, 32)
        found = [at for at in steps if a >> at & 1]
        if offset == 0:
            nth = b & 31 if a >> (b & 31) & 1 else 2**32 - 1
        else:
            nth = found[offset - 1] if len(found) >= offset else 2**32 - 1
        expected = {
            "popc": bits.count("1"), "clz": 32 - a.bit_length(), "ffs": (a & -a).bit_length(),
            "brev": int(bits[::-1], 2), "popcll": bits64.count("1"), "clzll": 64 - c.bit_length(),
            "ffsll": (c & -c).bit_length(), "brevll": int(bits64[::-1], 2), "perm": picked,
            "left": (both << (shift & 31)) >> 32 & 0xFFFFFFFF,
            "right": both >> (shift & 31) & 0xFFFFFFFF,
            "left_clamped": (both << min(shift, 32)) >> 32 & 0xFFFFFFFF,
            "right_clamped": both >> min(shift, 32) & 0xFFFFFFFF,
            "fns": nth,
        }  # fmt: skip
        for name, value in expected.items():
            assert int(got[name][i]) == value, (name, a, b, c)


def test_products_and_sums() -> None:
    x = RNG.integers(-(2**31), 2**31, 2000).astype(np.int32)
    y = RNG.integers(-(2**31), 2**31, 2000).astype(np.int32)
    z = RNG.integers(-(2**63), 2**63 - 1, 2000).astype(np.int64)
    got = evaluate_all(
        {
            "mulhi": ("__mulhi(a, b)", np.int32), "umulhi": ("__umulhi(a, b)", np.uint32),
            "mul64hi": ("__mul64hi(c, c ^ a)", np.int64),
            "umul64hi": ("__umul64hi(c, c ^ a)", np.uint64),
            "mul24": ("__mul24(a, b)", np.int32), "umul24": ("__umul24(a, b)", np.uint32),
            "hadd": ("__hadd(a, b)", np.int32), "rhadd": ("__rhadd(a, b)", np.int32),
            "uhadd": ("__uhadd(a, b)", np.uint32), "urhadd": ("__urhadd(a, b)", np.uint32),
            "sad": ("__sad(a, b, 7u)", np.uint32), "usad": ("__usad(a, b, 7u)", np.uint32),
            "dp4a": ("__dp4a(a, b, 5)", np.int32), "udp4a": ("__dp4a((unsigned)a, (unsigned)b, 5u)", np.uint32),
            "dp2a_lo": ("__dp2a_lo(a, b, 5)", np.int32), "dp2a_hi": ("__dp2a_hi(a, b, 5)", np.int32),
        },
        x, y, z,
    )  # fmt: skip

    def parts(value: int, bits: int, signed: bool) -> list[int]:
        raw = [value >> at & ((1 << bits) - 1) for at in range(0, 32, bits)]
        return [v - (1 << bits) if signed and v >> (bits - 1) else v for v in raw]

    def signed(value: int, bits: int) -> int:
        return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))

    for i, (a, b, c) in enumerate(zip(x.tolist(), y.tolist(), z.tolist(), strict=True)):
        ua, ub, other = a % 2**32, b % 2**32, c ^ a
        low24, other24 = signed(a, 24), signed(b, 24)
        bytes_a, bytes_b = parts(a, 8, True), parts(b, 8, True)
        halves = parts(a, 16, True)
        expected = {
            "mulhi": a * b >> 32, "umulhi": ua * ub >> 32, "mul64hi": c * other >> 64,
            "umul64hi": (c % 2**64) * (other % 2**64) >> 64, "mul24": signed(low24 * other24, 32),
            "umul24": (a % 2**24) * (b % 2**24) % 2**32, "hadd": (a + b) >> 1,
            "rhadd": (a + b + 1) >> 1, "uhadd": (ua + ub) >> 1, "urhadd": (ua + ub + 1) >> 1,
            "sad": (abs(a - b) + 7) % 2**32, "usad": (abs(ua - ub) + 7) % 2**32,
            "dp4a": 5 + sum(p * q for p, q in zip(bytes_a, bytes_b, strict=True)),
            "udp4a": 5 + sum(p * q for p, q in zip(parts(a, 8, False), parts(b, 8, False), strict=True)),
            "dp2a_lo": 5 + halves[0] * bytes_b[0] + halves[1] * bytes_b[1],
            "dp2a_hi": 5 + halves[0] * bytes_b[2] + halves[1] * bytes_b[3],
        }  # fmt: skip
        for name, value in expected.items():
            assert int(got[name][i]) == value, (name, a, b, c)


@pytest.mark.parametrize("count, narrow", [(2, np.int16), (4, np.int8)])
def test_halves_and_bytes(count: int, narrow: Any) -> None:
    x = RNG.integers(0, 2**32, 5000, np.uint32)
    y = RNG.integers(0, 2**32, 5000, np.uint32)
    y[::2] = x[::2] ^ RNG.choice([0, 1, 0x100, 0x8000, 0x80808080, 0x80008000], 2500).astype(
        np.uint32
    )
    unsigned = np.dtype(f"u{np.dtype(narrow).itemsize}").type
    s, t = (v.view(narrow).astype(np.int64) for v in (x, y))
    u, v = (w.view(unsigned).astype(np.int64) for w in (x, y))
    low, high = np.iinfo(narrow).min, np.iinfo(narrow).max
    top = np.iinfo(unsigned).max
    references = {
        "abs": np.abs(s), "absss": np.clip(np.abs(s), low, high), "neg": -s,
        "negss": np.clip(-s, low, high), "add": u + v, "addss": np.clip(s + t, low, high),
        "addus": np.clip(u + v, 0, top), "sub": u - v, "subss": np.clip(s - t, low, high),
        "subus": np.clip(u - v, 0, top), "absdiffs": np.abs(s - t), "absdiffu": np.abs(u - v),
        "avgs": (s + t + (s + t >= 0)) >> 1, "avgu": (u + v + 1) >> 1, "haddu": (u + v) >> 1,
        "maxs": np.maximum(s, t), "maxu": np.maximum(u, v), "mins": np.minimum(s, t),
        "minu": np.minimum(u, v),
    }  # fmt: skip
    for word, test in {"eq": s == t, "ne": s != t, "ges": s >= t, "gts": s > t, "les": s <= t,
                       "lts": s < t, "geu": u >= v, "gtu": u > v, "leu": u <= v, "ltu": u < v}.items():  # fmt: skip
        references["cmp" + word] = -test.astype(np.int64)
        references["set" + word] = test.astype(np.int64)
    expressions = {
        name: (f"__v{name}{count}(a)" if name.startswith(("abss", "neg")) or name == "abs"
               else f"__v{name}{count}(a, b)", np.uint32)
        for name in references
    }  # fmt: skip
    expressions["sads"] = f"__vsads{count}(a, b)", np.uint32
    expressions["sadu"] = f"__vsadu{count}(a, b)", np.uint32
    got = evaluate_all(expressions, x, y)
    for name, reference in references.items():
        np.testing.assert_array_equal(
            got[name], reference.astype(unsigned).view(np.uint32), err_msg=name
        )
    np.testing.assert_array_equal(got["sads"], np.abs(s - t).reshape(-1, count).sum(1))
    np.testing.assert_array_equal(got["sadu"], np.abs(u - v).reshape(-1, count).sum(1))


def test_minima_and_maxima_of_sums() -> None:
    x, y, z = (RNG.integers(0, 2**32, 3000, np.uint32) for _ in range(3))
    expressions, references = {}, {}
    for suffix, dtype, wide in (("_s32", np.int32, 1), ("_u32", np.uint32, 1),
                                ("_s16x2", np.int16, 2), ("_u16x2", np.uint16, 2)):  # fmt: skip
        a, b, c = (v.view(dtype) for v in (x, y, z))
        cast = "(int)" if dtype is np.int32 else ""
        for word, pick in ("max", np.maximum), ("min", np.minimum):
            for name, value, count in ((f"__vi{word}3", pick(pick(a, b), c), 3),
                                       (f"__viadd{word}", pick((a + b).astype(dtype), c), 3)):  # fmt: skip
                arguments = ", ".join(cast + letter for letter in "abc"[:count])
                expressions[name + suffix] = f"{name}{suffix}({arguments})", np.uint32
                references[name + suffix] = value
                if np.dtype(dtype).kind == "i":
                    relu = name + suffix + "_relu"
                    expressions[relu] = f"{relu}({arguments})", np.uint32
                    references[relu] = np.maximum(value, dtype(0))
            pointers = "&high, &low" if wide == 2 else "&high"
            first = f"[&] {{ bool high = 0, low = 0; unsigned r = __vib{word}{suffix}({cast}a, {cast}b, {pointers}); "
            expressions[word + suffix] = first + "return r; }()", np.uint32
            expressions[word + suffix + "?"] = first + "return high * 2 + low; }()", np.int32
            references[word + suffix] = pick(a, b)
            is_first = pick(a, b) == a
            references[word + suffix + "?"] = (
                is_first[1::2] * 2 + is_first[::2] if wide == 2 else is_first * 2
            )
    got = evaluate_all(expressions, x, y, z)
    for name, reference in references.items():
        expected = (
            reference if name.endswith("?") else np.ascontiguousarray(reference).view(np.uint32)
        )
        np.testing.assert_array_equal(got[name], expected, err_msg=name)


def test_special_functions() -> None:
    special = pytest.importorskip("scipy.special")
    x = np.concatenate(
        [RNG.uniform(-6, 6, 2000), RNG.uniform(0, 1, 1000), RNG.uniform(-300, 300, 200)]
    )
    extremes = [0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan, 1e-300, 1 - 2.0**-53]
    x = np.concatenate([x, np.array(extremes)])
    with np.errstate(all="ignore"):
        references = {
            "erfinv": special.erfinv(x), "erfcinv": special.erfcinv(x), "erfcx": special.erfcx(x),
            "normcdf": special.ndtr(x), "normcdfinv": special.ndtri(x),
            "cyl_bessel_i0": special.i0(x), "cyl_bessel_i1": special.i1(x),
            "rcbrt": 1 / np.cbrt(x), "rsqrt": 1 / np.sqrt(x), "j0": special.j0(x),
        }  # fmt: skip
    got = evaluate_all({name: (f"{name}(a)", np.float64) for name in references}, x)
    with np.errstate(over="ignore"):
        floats = x.astype(np.float32)
    singles = evaluate_all({name: (f"{name}f(a)", np.float32) for name in references}, floats)
    for name in "cyl_bessel_i0", "cyl_bessel_i1":  # of infinity scipy has none
        assert np.isinf(got[name][np.isinf(x)]).all()
    for name in "cyl_bessel_i0", "cyl_bessel_i1", "j0":
        references[name][np.isinf(x)] = got[name][np.isinf(x)]
    for name, reference in references.items():
        np.testing.assert_allclose(got[name], reference, rtol=3e-13, atol=1e-14, err_msg=name)
        assert (np.isnan(got[name]) == np.isnan(reference)).all(), name
        if name not in ("erfinv", "erfcinv", "normcdfinv"):  # steep: the argument is rounded
            with np.errstate(over="ignore"):
                goal = np.array([reference[i] for i in range(x.size)]).astype(np.float32)
            keep = np.abs(x) < 6
            np.testing.assert_allclose(
                singles[name][keep], goal[keep], rtol=2e-5, atol=1e-6, err_msg=name
            )


def test_pi_functions_and_norms() -> None:
    x = np.concatenate([np.arange(-8, 8.25, 0.25), RNG.uniform(-100, 100, 500)])
    got = evaluate_all(
        {
            "sin": ("sinpi(a)", np.float64), "cos": ("cospi(a)", np.float64),
            "both": ("[&] { double s, c; sincospi(a, &s, &c); return s + 2 * c; }()", np.float64),
            "norm3": ("norm3d(a, 1.0, 2.0)", np.float64),
            "rnorm4": ("rnorm4d(a, 1.0, 2.0, 3.0)", np.float64),
            "large": ("norm3df(3e30f, 4e30f, 0.0f)", np.float32),
            "small": ("norm3d(3e-200, 4e-200, 0.0)", np.float64),
            "rlarge": ("rnorm3d(3e200, 4e200, 0.0)", np.float64),
            "array": ("[&] { double v[] = {3, 4, 12, a * 0}; return norm(4, v); }()", np.float64),
        },
        x,
    )  # fmt: skip
    reduced = np.remainder(x, 2)
    np.testing.assert_allclose(got["sin"], np.sin(np.pi * reduced), atol=2e-15)
    np.testing.assert_allclose(got["cos"], np.cos(np.pi * reduced), atol=2e-15)
    whole = x == np.rint(x)
    assert (got["sin"][whole] == 0).all() and (np.abs(got["cos"][whole]) == 1).all()
    np.testing.assert_allclose(got["both"], got["sin"] + 2 * got["cos"])
    np.testing.assert_allclose(got["norm3"], np.sqrt(x * x + 5))
    np.testing.assert_allclose(got["rnorm4"], 1 / np.sqrt(x * x + 14))
    assert (got["large"] == np.float32(5e30)).all()
    np.testing.assert_allclose(got["small"], 5e-200, rtol=1e-15)
    np.testing.assert_allclose(got["rlarge"], 2e-201, rtol=1e-15)
    assert (got["array"] == 13).all()


def check_all(source: str) -> None:
    """A kernel that sets out[0] to the first failing CHECK's line, or to 0."""
    out = np.full(1, -1, np.int32)
    ons.Module(
        f"""#define CHECK(...) do {{ if (!(__VA_ARGS__)) {{ *out = __LINE__; return; }} }} while (0)
template <class A, class B> struct is {{ static constexpr bool same = false; }};
template <class A> struct is<A, A> {{ static constexpr bool same = true; }};
#define IS(expression, ...) static_assert(is<decltype(expression), __VA_ARGS__>::same, #expression)
{source}""",
        name="dialect.cu",
    ).k[1, 1](out)
    assert out[0] == 0, f"the check in line {out[0]} failed"


def test_types_of_overloads() -> None:
    check_all("""__global__ void k(int* out) {
      float f = 0; double d = 0; int i = 0;
      IS(pow(1.0f, 2), float); IS(pow(1.0, 2), double); IS(frexp(1.0f, &i), float);
      IS(modf(1.0f, &f), float); IS(ilogb(1.0f), int); IS(erfinv(1.0f), float);
      IS(exp10(1.0f), float); IS(sinpi(1.0f), float); IS(cospi(1.0f), float);
      IS(normcdf(1.0f), float); IS(erfcx(1.0f), float); IS(scalbn(1.0f, 1), float);
      IS(scalbln(1.0f, 1l), float); IS(remquo(1.0f, 1.0f, &i), float); IS(rcbrt(1.0f), float);
      IS(j0(1.0f), float); IS(jn(1, 1.0f), float); IS(yn(1, 1.0), double); IS(ldexp(1.0f, 1), float);
      IS(lround(1.0f), long); IS(lrint(1.0f), long); IS(nan(""), double); IS(min(1ull, 2ull), unsigned long long);
      IS(cyl_bessel_i0(1.0f), float); IS(cyl_bessel_i1(1.0), double); IS(abs(1l), long);
      IS(llmin(1, 2), long long); IS(umin(1, 2), unsigned); IS(ullmax(1, 2), unsigned long long);
      IS(nextafter(1.0f, 1.0f), float); IS(max(1, 2u), unsigned); IS(fdividef(1.0f, 2.0f), float);
      CHECK(frexp(8.0f, &i) == 0.5f && i == 4 && modf(2.5f, &f) == 0.5f && f == 2.0f);
      CHECK(pow(3.0f, 2) == 9.0f && remquo(7.0f, 2.0f, &i) == -1.0f && (i & 7) == 4);
      sincos(0.0f, &f, &f); CHECK(f == 1.0f); sincospi(0.5f, &f, &f); sincos(0.0, &d, &d); CHECK(d == 1.0);
      CHECK(norm(1, &d) == 1.0 && normf(0, &f) == 0.0f && llmax(-1, 2) == 2);
      *out = 0;
    }""")


def test_atomics_of_every_kind_and_scope() -> None:
    lines = ["__global__ void k(int* out) {"]
    types = {"int": "i", "unsigned int": "u", "unsigned long long": "w"}
    operations = {"Add": (2, 7), "And": (3, 1), "Or": (2, 7), "Xor": (3, 6), "Exch": (3, 3),
                  "Min": (3, 3), "Max": (3, 5)}  # fmt: skip
    for scope in "", "_block", "_system":
        for c_name, letter in types.items():
            lines.append(f"{{ {c_name} {letter}; ")
            for operation, (value, expected) in operations.items():
                call = f"atomic{operation}{scope}(&{letter}, {value})"
                lines.append(f"{letter} = 5; CHECK({call} == 5 && {letter} == {expected});")
            lines.append(f"CHECK(atomicCAS{scope}(&{letter}, 5, 9) == 5 && {letter} == 9);")
            lines.append(f"CHECK(atomicCAS{scope}(&{letter}, 5, 8) == 9 && {letter} == 9); }}")
        lines.append(f"""{{ int i = 5; unsigned u = 5; long long s = 5; float f = 1; double d = 1; unsigned short h = 5;
          CHECK(atomicSub{scope}(&i, 7) == 5 && i == -2 && atomicSub{scope}(&u, 6u) == 5 && u == ~0u);
          u = 5; CHECK(atomicInc{scope}(&u, 5u) == 5 && u == 0 && atomicInc{scope}(&u, 5u) == 0 && u == 1);
          CHECK(atomicDec{scope}(&u, 5u) == 1 && u == 0 && atomicDec{scope}(&u, 5u) == 0 && u == 5);
          u = 9; CHECK(atomicDec{scope}(&u, 5u) == 9 && u == 5);
          CHECK(atomicMin{scope}(&s, -3ll) == 5 && s == -3 && atomicMax{scope}(&s, 4ll) == -3 && s == 4);
          CHECK(atomicAdd{scope}(&f, 2) == 1.0f && f == 3.0f && atomicAdd{scope}(&d, 0.5) == 1.0 && d == 1.5);
          CHECK(atomicExch{scope}(&f, 4.0f) == 3.0f && f == 4.0f);
          CHECK(atomicCAS(&h, (unsigned short)5, (unsigned short)6) == 5 && h == 6); }}""")
    lines.append("""float2 v = {1, 2}; CHECK(atomicAdd(&v, float2{1, 1}).y == 2 && v.x == 2 && v.y == 3);
      float4 w = {1, 2, 3, 4}; CHECK(atomicAdd(&w, w).w == 4 && w.w == 8);
      struct alignas(16) wide { long long a, b; } pair = {1, 2}, old = atomicExch(&pair, wide{3, 4});
      CHECK(old.b == 2 && pair.a == 3); old = atomicCAS(&pair, wide{3, 4}, wide{5, 6});
      CHECK(old.a == 3 && pair.b == 6);
      *out = 0; }""")
    check_all("\n".join(lines))


def test_a_source_may_have_an_atomic_of_its_own() -> None:
    """The classic for old GPUs, which __CUDA_ARCH__ leaves in here."""
    check_all("""#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 600
      __device__ double atomicAdd(double* at, double value) { *at += value; return -1; }
      #endif
      __global__ void k(int* out) { double d = 1; CHECK(atomicAdd(&d, 1.0) == -1 && d == 2); *out = 0; }""")


def test_complex_and_constants() -> None:
    check_all("""#include <cuComplex.h>
      #include <math_constants.h>
      #include <cuda_runtime.h>
      __global__ void k(int* out) {
        cuFloatComplex a = make_cuFloatComplex(1, 2), b = make_cuComplex(3, -4), c = cuCmulf(a, b);
        CHECK(cuCrealf(c) == 11 && cuCimagf(c) == 2 && cuCabsf(b) == 5 && cuConjf(b).y == 4);
        c = cuCdivf(c, b); CHECK(fabsf(c.x - 1) < 1e-6f && fabsf(c.y - 2) < 1e-6f);
        cuDoubleComplex d = cuComplexFloatToDouble(a); d = cuCfma(d, d, cuCsub(d, cuCadd(d, d)));
        CHECK(cuCreal(d) == -4 && cuCimag(d) == 2 && cuCabs(make_cuDoubleComplex(3e300, 4e300)) == 5e300);
        d = cuCdiv(make_cuDoubleComplex(1e300, 1e300), make_cuDoubleComplex(1e300, 1e300));
        CHECK(fabs(d.x - 1) < 1e-12 && d.y == 0);
        CHECK(CUDART_INF_F > 1e38f && isnan(CUDART_NAN) && fabs(CUDART_PI - 3.14159265358979) < 1e-14);
        CHECK(CUDART_LN2_F == 0.693147181f && CUDART_MAX_NORMAL_F < CUDART_INF_F);
        *out = 0;
      }""")


def test_asynchronous_copies_and_memory() -> None:
    check_all("""#include <cuda_pipeline.h>
      __global__ void k(int* out) {
        int from[4] = {1, 2, 3, 4}, to[4] = {9, 9, 9, 9};
        __pipeline_memcpy_async(to, from, 16, 8); __pipeline_commit(); __pipeline_wait_prior(0);
        CHECK(to[1] == 2 && to[2] == 0 && to[3] == 0);
        __stcs(to, 5); __stcg(to + 1, 6); __stwb(to + 2, 7); __stwt(to + 3, 8);
        CHECK(__ldg(to) + __ldca(to + 1) == 11 && __ldcg(to + 2) + __ldcs(to + 3) == 15);
        CHECK(__ldlu(to) + __ldcv(to + 1) == 11);
        float4 v = __ldcs((const float4*)from); CHECK(__float_as_int(v.w) == 4);
        __threadfence(); __threadfence_block(); __threadfence_system(); __nanosleep(10);
        long long then = clock64(); CHECK(clock64() >= then);
        asm volatile("" ::: "memory");
        *out = 0;
      }""")


def test_a_family_is_there_whoever_mentions_it() -> None:
    """In a header in memory, in an option, pasted together."""
    for source, extra in (
        ('#include "mine.cuh"\n', {"headers": {"mine.cuh": "#define DO(x) __popc(x)"}}),
        ("", {"options": ["-DDO(x)=__popc(x)"]}),
        ("#define PASTE(x, y) x##y\n#define DO(x) PASTE(__po, pc)(x)\n", {}),
    ):
        out = np.zeros(1, np.int32)
        kernel = source + "__global__ void k(int* out) { *out = DO(7); }"
        ons.Module(kernel, **extra).k[1, 1](out)
        assert out[0] == 3
    x = np.array([1.5], np.float32)
    assert evaluate("__fadd_ru(a, 1e-9f)", x, out=np.float32)[0] > 1.5
