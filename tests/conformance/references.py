"""The same as the kernels, in NumPy, where that is simple: a second opinion on what is recorded,
and the only one on a CPU that has no record.

A reference takes what it needs of its kernel's arguments (by name), of `block` and `grid` (their
numbers of threads and blocks) and of `initial` (what the results began with); it gives the results
in their order, or some of them by name.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from suite import Case, Inputs

Array = Any
i32, u32, i64, u64 = np.int32, np.uint32, np.int64, np.uint64
f32, f64 = np.float32, np.float64


# ---- helpers ------------------------------------------------------------------------------------


def _loop(function: Callable[..., Any], *arrays: Array) -> Array:
    """Element by element, with Python's integers."""
    return np.array([function(*map(int, items)) for items in zip(*arrays, strict=True)], object)


def _wrapped(values: Array, bits: int = 32) -> Array:
    """Of Python's integers, the low bits."""
    return np.array([int(value) & ((1 << bits) - 1) for value in values], f"u{bits // 8}")


def _bytes(words: Array) -> Array:
    return words.view(np.uint8).reshape(-1, 4)


def _signed_bytes(words: Array) -> Array:
    return words.view(np.int8).reshape(-1, 4)


def _sums_by(keys: Array, values: Array, count: int) -> Array:
    sums = np.zeros(count, values.dtype)
    np.add.at(sums, keys, values)
    return sums


def _at_by(function: Any, keys: Array, values: Array, initial: Array) -> Array:
    result = initial.copy()
    function.at(result, keys, values)
    return result


def _lane_warps(values: Array, block: int) -> list[Array]:
    """The warps of blocks in a row, one after the other."""
    return [
        part[at : at + 32]
        for part in np.split(values, len(values) // block)
        for at in range(0, block, 32)
    ]


def _each_warp(function: Callable[[Array], Any], values: Array, block: int) -> Array:
    """What it gives (for each lane or for all) at each thread."""
    warps = _lane_warps(values, block)
    return np.concatenate([np.broadcast_to(function(warp), warp.shape) for warp in warps])


def _mask(flags: Array) -> int:
    return sum(1 << int(lane) for lane in np.nonzero(flags)[0])


def _tree_sum(values: Array) -> Array:
    values = values.copy()
    count = len(values)
    while count > 1:
        rest = (count + 1) // 2
        values[: count - rest] += values[rest:count]
        count = rest
    return values[:1]


def _fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def _collatz(x: int) -> int:
    steps = 0
    while x != 1:
        x = 3 * x + 1 if x & 1 else x // 2
        steps += 1
    return steps


def _own_length(a: Array, n: int) -> Array:
    out = np.zeros(n, i32)
    for i in range(n):
        total = 0
        for k in range(a[i]):
            if k % 7 == 3:
                continue
            if total > 5000:
                break
            total += k ^ i
        out[i] = total
    return out


def _byte_perm(a: int, b: int, s: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    return int.from_bytes(bytes(source[s >> 4 * i & 7] for i in range(4)), "little")


def _brev(x: int, bits: int) -> int:
    return int(f"{x:0{bits}b}"[::-1], 2)


def _fns(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    places = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [place for place in places if mask >> place & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF


def _hash(a: Array) -> Array:
    h = a.astype(u64)
    for k in range(4):
        h ^= h >> u64(16)
        h = h * u64(0x85EBCA6B) & u64(0xFFFFFFFF)
        h ^= h >> u64(13)
        h = ((h << u64(5) | h >> u64(27)) + u64(k)) & u64(0xFFFFFFFF)
    return h.astype(u32)


def _trunc_divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _divide_int(a: Array, b: Array, n: int) -> Any:
    divisors = [int(b[i]) if i & 1 else -int(b[i]) for i in range(n)]
    divisors = [1 if a[i] == -(2**31) and divisors[i] == -1 else divisors[i] for i in range(n)]
    q = [_trunc_divide(int(x), d) for x, d in zip(a, divisors, strict=True)]
    return np.array(q, i32), np.array(
        [int(x) - y * d for x, y, d in zip(a, q, divisors, strict=True)], i32
    )


def _divide_64(a: Array, b: Array) -> Any:
    q = [_trunc_divide(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    r = [int(x) - int(y) * z for x, y, z in zip(a, b, q, strict=True)]
    return np.array(q, i64), np.array(r, i64), a.view(u64) // b.view(u64)


def _funnel(a: Array, b: Array, s: Array) -> Any:
    wide = [(int(high) << 32 | int(low), int(by)) for low, high, by in zip(a, b, s, strict=True)]
    left = _wrapped([(x << (by & 31)) >> 32 for x, by in wide])
    right = _wrapped([x >> (by & 31) for x, by in wide])
    clamped_left = _wrapped([(x << min(by, 32)) >> 32 for x, by in wide])
    clamped_right = _wrapped([x >> min(by, 32) for x, by in wide])
    return left, right, clamped_left, clamped_right


def _to_int(values: Array, low: int, high: int, dtype: Any) -> Array:
    """Rounded already; saturating, NaN is 0."""
    listed = [
        0 if math.isnan(x) else low if x < low else high if x > high else int(x)
        for x in values.tolist()
    ]
    return np.array(listed, dtype)


def _converted(values: Array, low: int, high: int, dtype: Any, modes: Array) -> Any:
    return tuple(_to_int(mode(values), low, high, dtype) for mode in modes)


_INT, _UINT = (-(2**31), 2**31 - 1, i32), (0, 2**32 - 1, u32)
_MODES = (np.rint, np.trunc, np.ceil, np.floor)


def _scaled_ints(a: Array, e: Array) -> Any:
    exact = np.ldexp(a.astype(f64), e)
    other = np.ldexp(a.astype(f64), (np.abs(e) // 3) * np.sign(e))
    return {"scaled": exact.astype(f32), "other": other.astype(f32)}


def _fma(a: Array, b: Array, c: Array) -> Array:
    """Of floats: the product is exact in double; the sum is rounded to odd, then to float."""
    x, y = a.astype(f64) * b.astype(f64), c.astype(f64)
    total = x + y
    back = total - x
    error = (x - (total - back)) + (y - back)
    bits = total.view(i64).copy()
    wants = np.isfinite(total) & np.isfinite(error) & (error != 0) & (bits & 1 == 0)
    outward = (error > 0) == (total > 0)
    bits[wants & outward] += 1
    bits[wants & ~outward] -= 1
    return bits.view(f64).astype(f32)


def _half(bits: Array) -> Array:
    return bits.view(np.float16)


def _half_op(function: Callable[..., Array], *arrays: Array) -> Array:
    """In double, which holds sums and products of halves, then rounded once."""
    wide = [_half(array).astype(f64) for array in arrays]
    return function(*wide).astype(np.float16).view(np.uint16)


def _bf16_values(bits: Array) -> Array:
    return (bits.astype(u32) << u32(16)).view(f32)


def _bf16(values: Array) -> Array:
    """Bits, of floats, rounded to nearest even."""
    word = values.view(u32).astype(u64)
    rounded = ((word + u64(0x7FFF) + (word >> u64(16) & u64(1))) >> u64(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def _compaction(a: Array, n: int) -> Any:
    kept = np.nonzero(a)[0]
    return np.concatenate([kept, np.zeros(n - len(kept))]).astype(i32), np.array([len(kept)], i32)


def _chain(a: Array, block: int, grid: int) -> Array:
    out = []
    t = np.arange(block)
    for b in range(grid):
        s = a[:block].astype(i64) + b
        for k in range(9):
            s = (s + 3 * s[(t + k) % block]) & 0xFFFFFFFF
        out.append(s)
    return np.concatenate(out).astype(u32).view(i32)


def _pascal(n: int) -> Array:
    rows = [[math.comb(y, x) & 0xFFFFFFFF for x in range(n)] for y in range(n)]
    return np.array(rows, u32).view(i32).ravel()


def _relaxation(a: Array, n: int) -> Array:
    cost = a.reshape(n, n)
    distance = np.where(np.arange(n) == 0, 0, 100000)
    for _ in range(n):
        reached = np.where(cost > 6, distance[:, None] + cost, 10**6).min(axis=0)
        distance = np.minimum(distance, reached)
    return distance.astype(i32)


def _stencil(a: Array, n: int) -> Array:
    padded = np.pad(a, 4)
    return sum((5 - abs(k - 4)) * padded[k : k + n] for k in range(9)).astype(i32)


def _laplace(a: Array, n: int) -> Array:
    p = np.pad(a.reshape(n, n), 1, "edge")
    c = p[1:-1, 1:-1]
    return (p[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1] + p[2:, 1:-1] - 4 * c).ravel()


def _leavers(block: int) -> Array:
    out = np.zeros(block, u64)
    for lane in range(32):
        r = 0
        for k in range(0, lane + 1, 3):
            # Those that are there are the lanes from k on; the 31st of its warp is added below.
            r = (r * 5 + (32 - k)) & 0xFFFFFFFF
            out[lane::32] = r
    rounds = np.arange(block) % 32 // 3 + 1
    last = np.arange(block) // 32 * 32 + 31
    extra = np.array(
        [sum(5**j for j in range(r)) * int(x) for r, x in zip(rounds, last, strict=True)], object
    )
    return _wrapped(out.astype(object) + extra)


def _widths(block: int) -> Array:
    t = np.arange(block)
    rows = []
    for k in range(5):
        width = 2 << k
        at, base = t % width, t - t % width
        r = base + (k + 3) % width
        r = r * 64 + (np.where(at >= k + 1, t - (k + 1), t) & 31)
        r = r * 64 + (np.where(at + k + 1 < width, t + k + 1, t) & 31)
        rows.append(r * 64 + ((t ^ (k + 1)) & 31))
    return np.concatenate(rows).astype(i32)


def _grid_rounds(a: Array) -> Array:
    x = a.astype(i64)
    for _ in range(5):
        x = np.roll(x, -1) - 2 * np.roll(x, 1)
    return x.astype(i32)


def _grid_sum(a: Array, grid: int) -> Array:
    sums = [int(a[k::4].sum()) for k in range(4)]
    return np.array([*sums, *[sums[0] + 2 * sums[1] + 3 * sums[2] + 4 * sums[3]] * grid], i32)


def _mandelbrot(n: int) -> Array:
    i = np.arange(n * n)
    cx = (i % n).astype(f32) / f32(n) * f32(3) - f32(2)
    cy = (i // n).astype(f32) / f32(n) * f32(2) - f32(1)
    x, y, out = np.zeros(n * n, f32), np.zeros(n * n, f32), np.zeros(n * n, i32)
    inside = np.ones(n * n, bool)
    for _ in range(60):
        inside &= x * x + y * y <= f32(4)
        out += inside
        x, y = np.where(inside, x * x - y * y + cx, x), np.where(inside, f32(2) * x * y + cy, y)
    return out


def _walk(seed: int, n: int) -> Array:
    state = u32(seed) ^ (np.arange(n, dtype=u32) * u32(2654435761))
    total = np.zeros(n, u32)
    for k in range(16):
        state ^= state << u32(13)
        state ^= state >> u32(17)
        state ^= state << u32(5)
        total += state >> u32(k & 7)
    return total


def _votes(a: Array, block: int) -> Array:
    a = a[:block]
    return np.concatenate([
        _each_warp(lambda w: (w == 9).any(), a, block),
        _each_warp(lambda w: (w > -9).all(), a, block), _each_warp(lambda w: w[0] > 0, a, block),
        _each_warp(lambda w: (w > -9).all() or not (w > -9).any(), a, block),
    ]).astype(i32)  # fmt: skip


def _ballots(a: Array, block: int) -> Array:
    masks = _each_warp(lambda w: _mask(w > 0), a[:block], block)
    t = np.arange(block)
    below = _loop(lambda mask, lane: (mask & ((1 << lane) - 1)).bit_count(), masks, t % 32)
    return np.stack([masks, below], 1).ravel().astype(u32)


def _matches(warp: Array) -> Array:
    return np.array([_mask(warp == value) for value in warp], u32)


def _reduced(a: Array, block: int) -> Any:
    a = a[:block]
    word = a.view(u32)

    def warp(function: Callable[[Array], Any], values: Array) -> Array:
        return _each_warp(function, values, block)

    s = [warp(np.sum, a), warp(np.min, a), warp(np.max, a)]
    xors = warp(np.bitwise_xor.reduce, word) + warp(np.max, word)
    u = [warp(np.bitwise_and.reduce, word | u32(0xFF00)), warp(np.bitwise_or.reduce, word), xors]
    return np.stack(s, 1).ravel().astype(i32), np.stack(u, 1).ravel().astype(u32)


def _in_tiles(function: Any, values: Array, size: int) -> Array:
    """Of a ufunc, the reduction of each tile at each thread."""
    return np.repeat(function.reduce(values.reshape(-1, size), axis=1), size)


def _scans(a: Array, block: int) -> Array:
    rows = a[:block].reshape(-1, 32)
    sums = np.cumsum(rows, axis=1)
    return np.stack([sums, sums - rows], 2).ravel().astype(i32)


def _stride_sum(a: Array) -> Array:
    return np.array([sum_in_order(a[k::8] * a[::-1][k::8]) for k in range(8)])


def sum_in_order(values: Array) -> Any:
    total = values.dtype.type(0)
    for value in values:
        total = total + value
    return total


# ---- the references -----------------------------------------------------------------------------

REFERENCES: dict[str, Callable[..., Any]] = {
    # indexing
    "linear": lambda a, n: 2 * a + np.arange(n),
    "early_return": lambda a: np.where(a < 0, 0, a),
    "grid_stride": lambda a: a * a,
    "grid_stride_down": lambda a: a[::-1],
    "rows_in_y": lambda n: (np.arange(53) * 1000 + np.arange(n)[:, None] - n).ravel(),
    "matrix_2d": lambda n: (np.arange(n) * 100 + np.arange(23)[:, None]).ravel(),
    "volume_3d": lambda: sum(
        np.meshgrid(256 * np.arange(5), 16 * np.arange(6), np.arange(11), indexing="ij")
    ).ravel(),
    "dimensions": lambda block: np.array([block, 1, 1, 3, 2, 1, 2, 1, 0, block - 1, 0, 0]),
    "block_stride": lambda a: a + np.roll(a, -1),
    "gather": lambda at, a: a[at],
    "scatter": lambda at, a: a[np.argsort(at)],
    "loop_of_own_length": _own_length,
    "switch_of_paths": lambda a, n: np.select(
        [a == 0, a == 1, a == 2, a == 4, a == 5],
        [-1, (np.arange(n) + 10) * 3, np.arange(n) * 3, ~np.arange(n), 0], 7,
    ),
    "collatz": lambda a: _loop(_collatz, a),
    "from_flat": lambda n: np.fromfunction(lambda r, c: np.where(r >= c, r * r - c, 0), (n, n)).ravel(),
    "chunks": lambda a: a,
    # integers
    "wrap_add": lambda a, b: a + b * u32(3) - (a ^ b),
    "wrap_64": lambda a, b: a * b + (a << (b & u64(63))) - (b >> (a & u64(63))),
    "small_types": lambda a, b: (
        (a.astype(i64) * 3 + b).astype(np.int8), (b.astype(i64) * b - a).astype(np.uint16),
    ),
    "shifts": lambda a, s: ((a.view(u32) << s.view(u32)).view(i32), a >> s, a.view(u32) >> s.view(u32)),
    "divide_int": _divide_int,
    "divide_64": _divide_64,
    "mulhi": lambda a, b: (
        (a.astype(i64) * b >> 32).astype(i32),
        (a.view(u32).astype(u64) * b.view(u32) >> u64(32)).astype(u32),
    ),
    "mulhi_64": lambda a, b: (
        _loop(lambda x, y: x * y >> 64, a, b).astype(i64),
        _loop(lambda x, y: x * y >> 64, a.view(u64), b.view(u64)).astype(u64),
    ),
    "mul24": lambda a, b: (
        (((a << 8) >> 8).astype(i64) * ((b << 8) >> 8)).astype(i32),
        ((a.view(u32) & u32(0xFFFFFF)).astype(u64) * (b.view(u32) & u32(0xFFFFFF))).astype(u32),
    ),
    "clz": lambda a, b, n: (
        [32 - (int(x >> (i & 31)) & 0xFFFFFFFF).bit_length() for i, x in enumerate(a)],
        [64 - (int(x >> (i & 63)) & (2**64 - 1)).bit_length() for i, x in enumerate(b)],
    ),
    "popc": lambda a, b: (_loop(int.bit_count, a), _loop(int.bit_count, b)),
    "brev": lambda a, b: (_loop(lambda x: _brev(x, 32), a), _loop(lambda x: _brev(x, 64), b)),
    "byte_perm": lambda a, b, s: _loop(_byte_perm, a, b, s),
    "funnel_shift": _funnel,
    "dp4a": lambda a, b, c: (
        _wrapped((_signed_bytes(a).astype(i64) * _signed_bytes(b)).sum(1) + c).view(i32),
        _wrapped((_bytes(a).astype(i64) * _bytes(b)).sum(1) + c),
    ),
    "dp2a": lambda a, b, c: (
        _wrapped((a.view(np.int16).reshape(-1, 2).astype(i64) * _signed_bytes(b)[:, :2]).sum(1) + c).view(i32),
        _wrapped((a.view(np.int16).reshape(-1, 2).astype(i64) * _signed_bytes(b)[:, 2:]).sum(1) + c).view(i32),
        _wrapped((a.view(np.uint16).reshape(-1, 2).astype(i64) * _bytes(b)[:, :2]).sum(1) + c),
    ),
    "sad": lambda a, b, c: (
        _wrapped(np.abs(a.astype(i64) - b) + c),
        _wrapped(np.abs(a.view(u32).astype(i64) - b.view(u32)) + c),
    ),
    "averages": lambda a, b: (
        (a.astype(i64) + b) >> 1, (a.astype(i64) + b + 1) >> 1,
        (a.view(u32).astype(u64) + b.view(u32)) >> u64(1),
        (a.view(u32).astype(u64) + b.view(u32) + u64(1)) >> u64(1),
    ),
    "min_max": lambda a, b, c: (
        np.minimum(a, b), np.maximum(a, b), np.maximum(a.view(u32), b.view(u32)), np.minimum(c, a),
    ),
    "fns": lambda mask, base, offset: _loop(_fns, mask, base, offset),
    "simd_add_sub": lambda a, b: {
        "add4": (_bytes(a) + _bytes(b)).view(u32).ravel(),
        "sub2": (a.view(np.uint16) - b.view(np.uint16)).view(u32),
        "adds4": np.clip(_signed_bytes(a).astype(i32) + _signed_bytes(b), -128, 127).astype(np.int8).view(u32).ravel(),
        "subus2": np.maximum(a.view(np.uint16).astype(i32) - b.view(np.uint16), 0).astype(np.uint16).view(u32),
    },
    "simd_compare": lambda a, b: (
        np.where(_bytes(a & u32(0x03030303)) == _bytes(b & u32(0x03030303)), np.uint8(255), np.uint8(0)).view(u32).ravel(),
        np.where(_bytes(a) > _bytes(b), np.uint8(255), np.uint8(0)).view(u32).ravel(),
        np.minimum(a.view(np.int16), b.view(np.int16)).view(u32),
        np.maximum(_bytes(a), _bytes(b)).view(u32).ravel(),
    ),
    "simd_differences": lambda a, b: (
        np.abs(_bytes(a).astype(i32) - _bytes(b)).astype(np.uint8).view(u32).ravel(),
        np.abs(_bytes(a).astype(i32) - _bytes(b)).sum(1),
        ((_bytes(a).astype(i32) + _bytes(b) + 1) >> 1).astype(np.uint8).view(u32).ravel(),
        np.clip(-_signed_bytes(a).astype(i32), -128, 127).astype(np.int8).view(u32).ravel(),
    ),
    "hash": _hash,
    "square_root": lambda a: _loop(math.isqrt, a),
    # floats
    "add_f": lambda a, b: (a + b, a - b),
    "mul_f": lambda a, b: (a * b, a / b),
    "add_d": lambda a, b: (a + b, a * b),
    "div_d": lambda a, b: (a / b, np.sqrt(b)),
    "fma_f": _fma,
    "fma_modes": lambda a, b, c: {"rn": _fma(a, b, c)},
    "sqrt_f": lambda a: (np.sqrt(a), f32(1) / a),
    "unfused": lambda a, b, c: a * b + c * a - b * c,
    "add_modes": lambda a, b: {"rn": a + b},
    "mul_modes": lambda a, b: {"rn": a * b},
    "div_modes": lambda a, b: {"rn": a / b},
    "rounding_f": lambda a: {"down": np.floor(a), "up": np.ceil(a), "cut": np.trunc(a), "even": np.rint(a)},
    "rounding_d": lambda a: {"down": np.floor(a), "up": np.ceil(a), "cut": np.trunc(a), "even": np.rint(a)},
    "parts_f": lambda a, b: {"whole": np.trunc(a), "mantissa": np.frexp(a)[0], "sign": np.copysign(a, b)},
    "scaling_f": _scaled_ints,
    "remainders_f": lambda a, b: {"mod": np.fmod(a, b)},
    "remainders_d": lambda a, b: {"mod": np.fmod(a, b)},
    "neighbours": lambda a, b: (np.nextafter(a, b), np.nextafter(a.astype(f64), b.astype(f64))),
    "denormals": lambda a: (
        a * f32(1e-38) * f32(0.5), a * f32(1e-38) * f32(1e20), a * f32(1e-25) * f32(1e-20),
    ),
    "in_order_sum": _stride_sum,
    # conversions
    "float2int": lambda a: _converted(a, *_INT, _MODES),
    "float2uint": lambda a: _converted(a, *_UINT, _MODES),
    "d_to_int": lambda a: (
        *_converted(np.where(np.isnan(a), 1.5, a), *_INT, _MODES[:2]),
        *_converted(np.where(np.isnan(a), 1.5, a), *_UINT, _MODES[2:]),
    ),
    "double2float": lambda a: {"rn": a.astype(f32)},
    "double2float_small": lambda a: {"rn": a.astype(f32)},
    "int2float": lambda a: {"rn": a.astype(f32)},
    "uint2float": lambda a: {"rn": a.astype(f32)},
    "ll_to_d": lambda a: {"rn": a.astype(f64)},
    "ll2float": lambda a: {"rn": a.astype(f32)},
    "casts": lambda a, b: (a.astype(f32), b.astype(f64), a.astype(np.int16), b.astype(np.uint8)),
    "casts_to_int": lambda a, b: (a.astype(i32), b.astype(i64)),
    # functions: the tolerance is the kernel's
    "exp_f": lambda a: (np.exp(a.astype(f64)), np.exp2(a.astype(f64)), np.expm1(a.astype(f64))),
    "exp10_f": lambda a: 10.0 ** a.astype(f64),
    "log_f": lambda a: tuple(f(a.astype(f64)) for f in (np.log, np.log2, np.log10, np.log1p)),
    "sin_f": lambda a: (np.sin(a.astype(f64)), np.cos(a.astype(f64))),
    "tan_f": lambda a: np.tan(a.astype(f64)),
    "arcs_f": lambda a, b: (
        np.arcsin(a.astype(f64)), np.arccos(a.astype(f64)), np.arctan(b.astype(f64)),
        np.arctan2(a.astype(f64), b.astype(f64)),
    ),
    "hyperbolic_f": lambda a: tuple(f(a.astype(f64)) for f in (np.sinh, np.cosh, np.tanh)),
    "pow_f": lambda a, b, n: (
        a.astype(f64) ** b.astype(f64), (-a.astype(f64)) ** (np.arange(n) % 9 - 4.0),
    ),
    "roots_f": lambda a, b: (
        np.cbrt(a.astype(f64)), 1 / np.cbrt(a.astype(f64)), 1 / np.sqrt(np.abs(a.astype(f64))),
        np.hypot(a.astype(f64), b.astype(f64)),
    ),
    "exp_d": lambda a: (np.exp(a), np.exp2(a), np.expm1(a)),
    "log_d": lambda a: (np.log(a), np.log2(a), np.log10(a), np.log1p(a)),
    "sin_d": lambda a: (np.sin(a), np.cos(a), np.tan(a)),
    "arcs_d": lambda a, b: (np.arcsin(a), np.arccos(a), np.arctan(b), np.arctan2(a, b)),
    "pow_d": lambda a, b: (a**b, np.cbrt(-a), np.hypot(a, b), 1 / np.sqrt(a)),
    "fast_ones": lambda a, b: (
        np.exp(a.astype(f64)), np.log(b.astype(f64)), np.sin((a * f32(0.3)).astype(f64)),
        np.cos((a * f32(0.3)).astype(f64)), a.astype(f64) / b,
    ),
    "fast_powers": lambda a, b: (
        a.astype(f64) ** b, np.log2(a.astype(f64)), np.log10(a.astype(f64)), 10.0 ** b.astype(f64),
    ),
    # small floats
    "half_to_float": lambda a: _half(a).astype(f32),
    "float_to_half": lambda a: {"rn": a.astype(np.float16).view(np.uint16)},
    "edges_to_half": lambda a, b: (
        a.astype(np.float16).view(np.uint16), b.astype(np.float16).view(np.uint16),
    ),
    "half_arithmetic": lambda a, b: (
        _half_op(np.add, a, b), _half_op(np.subtract, a, b), _half_op(np.multiply, a, b),
        _half_op(np.divide, a, b),
    ),
    "half_rounding": lambda a: tuple(f(_half(a)).view(np.uint16) for f in (np.floor, np.ceil, np.trunc, np.rint)),
    "half_sqrt": lambda a: (
        _half_op(np.sqrt, a & np.uint16(0x7FFF)),
        _half_op(lambda x: 1 / x, a & np.uint16(0x83FF) | np.uint16(0x4000)),
    ),
    "bf16_to_float": lambda a: _bf16_values(a),
    "float_to_bf16": lambda a: {"rn": _bf16(a), "rz": np.where(np.isnan(a), 0x7FFF, a.view(u32) >> 16).astype(np.uint16)},
    "bf16_arithmetic": lambda a, b: {
        "add": _bf16((_bf16_values(a).astype(f64) + _bf16_values(b)).astype(f32)),
        "mul": _bf16(_bf16_values(a) * _bf16_values(b)),
    },
    # vectors
    "sum_of_list": lambda xs: (xs[0] * 3 + xs[1]) * 3 + xs[2],
    "transposed_view": lambda x: 2 * x,
    "strided_view": lambda x, n: x + f32(n) + f32(200),
    "view_int_index": lambda x: x.ravel() + 60,
    "vector_by_value": lambda a, n: a * f32(1.5) - f32(2) + np.where(np.arange(n) % 2, f32(0.25), f32(8)),
    "operators": lambda a, b: (a + b) * 1000 + (b - a) * 3,
    "int3_packed": lambda a: np.stack(
        [a[2::3], a[0::3] + a[1::3], a[1::3]], 1).ravel(),
    "double2_load_store": lambda a: np.stack([a[1::2], a[0::2] - a[1::2]], 1).ravel(),
    # atomics
    "add_int": lambda a, b, n: (_sums_by(np.arange(n) % 10, a, 10), _sums_by(np.arange(n) % 7, b, 10)),
    "add_64": lambda a, n: _sums_by(np.arange(n) % 5, a, 5),
    "add_float": lambda a, b, n: (_sums_by(np.arange(n) % 6, a, 6), _sums_by(np.arange(n) % 6, b, 6)),
    "sub": lambda a, n: 1000 - _sums_by(np.arange(n) % 4, a, 4),
    "min_max_int": lambda a, n, initial: (
        _at_by(np.minimum, np.arange(n) % 8, a, initial["out"]),
        _at_by(np.maximum, np.arange(n) % 8, a >> 1, initial["most"]),
    ),
    "min_max_unsigned": lambda a, n, initial: (
        _at_by(np.minimum, np.arange(n) % 8, a, initial["out"]),
        _at_by(np.maximum, np.arange(n) % 8, a >> 1, initial["most"]),
    ),
    "min_max_64": lambda a, b, n, initial: (
        _at_by(np.minimum, np.arange(n) % 8, a, initial["out"]),
        _at_by(np.maximum, np.arange(n) % 8, b >> u64(2), initial["most"]),
    ),
    "bitwise": lambda a, n: {"xors": _at_by(np.bitwise_xor, np.arange(n) % 9, a, np.zeros(9, u32))},
    "bitwise_64": lambda a, n: {"xors": _at_by(np.bitwise_xor, np.arange(n) % 9, a, np.zeros(9, u64))},
    "exchange": lambda n: (np.array([0]), np.array([n * (n + 1) // 2]), np.array([n])),
    "increment": lambda n: (np.array([n % 101]), np.bincount(np.arange(n) % 101, minlength=101)),
    "multiply_by_cas": lambda a, n: _wrapped([math.prod(2 * int(x) + 1 for x in a[k::4]) for k in range(4)]),
    "float_max_by_cas": lambda a: np.maximum(0, [a[k::4].max() for k in range(4)]).astype(f32),
    "compaction": lambda a, n: (np.arange(n + 1) < np.count_nonzero(a), np.array([np.count_nonzero(a)])),
    "last_block": lambda grid: (np.array([grid, grid * (grid - 1) // 2]), np.array([grid * (grid - 1) // 2])),
    "add_float2": lambda a, n: np.array([a.sum(), n], f32),
    # shared
    "reversed": lambda a, block: a[: 2 * block].reshape(2, block)[:, ::-1].ravel(),
    "dynamic_reversed": lambda a, block: (
        a[: 3 * block].reshape(3, block)[:, ::-1] + np.arange(block)).ravel(),
    "dynamic_of_the_file": lambda a, block: np.roll(a[:block], -1) * f32(0.5),
    "dynamic_parts": lambda a, block: np.roll(a[:block] * 0.25, -3) + np.roll(a[:block][::-1], -5),
    "dynamic_in_template": lambda initial: (initial["a"][::-1], initial["b"][::-1]),
    "two_arrays": lambda block: (np.arange(block) + 7) % block * 3 - np.arange(block)[::-1],
    "scalar_of_the_block": lambda: np.arange(5) * 11,
    "structs": lambda block: np.concatenate([np.arange(block)[::-1] * 0.5 + b for b in range(2)]).astype(f32),
    "barriers_in_a_loop": _chain,
    "counts": lambda a, block: np.array(
        [(a[:block] > 0).sum(), (a[:block] > -9).all(), (a[:block] == 9).any()]),
    "count_until_stable": lambda a, block: np.full(block, np.abs(a[:block]).max()),
    "exit_before_the_barrier": lambda block: np.concatenate(
        [np.arange((block + 1) // 2)[::-1] + 1, np.zeros(block // 2)]),
    "guard_before_the_barrier": lambda a, n, block: np.array(
        [a[at : at + block].sum() for at in range(0, n, block)]),
    "barrier_in_a_function": lambda block: np.arange(block)[::-1] ** 2,
    "barrier_in_a_macro": lambda block: np.roll(np.arange(block) * 5, -2) + 1,
    "shared_atomics": lambda: (
        np.tile(_sums_by(np.arange(5000) % 64, np.arange(5000), 64), 2),
        np.tile(_at_by(np.maximum, (np.arange(5000) * 7 + 1) % 64, np.arange(5000) * 31 % 1009, np.zeros(64, i64)), 2),
    ),
    "much_dynamic": lambda: (24999 - np.arange(16) * 1500) * 3,
    "lambda_with_a_barrier": lambda block: np.roll(np.arange(block), -2),
    # blocks
    "reduce_tree": lambda a, n: a.reshape(3, n).sum(1),
    "reduce_any_size": lambda a, n: a.reshape(3, n).sum(1),
    "arg_max": lambda a, n: (a.reshape(2, -1).max(1), a.reshape(2, -1).argmax(1)),
    "float_sum": lambda a, block: _tree_sum(a[:block]),
    "inclusive_scan": lambda a, block: a[: 2 * block].reshape(2, block).cumsum(1).ravel(),
    "exclusive_scan_tree": lambda a, block: a[:block].cumsum() - a[:block],
    "transpose_tiles": lambda a, n: a.reshape(n, 41).T.ravel(),
    "histogram": lambda a: np.bincount(a, minlength=256),
    "bitonic_sort": lambda a, n: np.sort(a.reshape(2, n), axis=1).ravel(),
    "odd_even_sort": lambda a: np.sort(a),
    "matmul_tiles": lambda a, b, n: (a.reshape(n, 20) @ b.reshape(20, 27)).ravel(),
    "stencil_1d": _stencil,
    "stencil_2d": _laplace,
    "stable_compaction": _compaction,
    "relaxation": _relaxation,
    "pascal": _pascal,
    "double_buffer": lambda a: 2 * a + 1,
    "radix_sort": lambda a: np.sort(a),
    # warps
    "shuffle_widths": _widths,
    "reduce_by_xor": lambda a, block: _in_tiles(np.add, a[: 2 * block], 32),
    "scan_by_up": lambda a, block: a[:block].reshape(-1, 32).cumsum(1).ravel(),
    "votes": _votes,
    "ballots": _ballots,
    "match_any": lambda a, b, block: np.stack(
        [_each_warp(_matches, a[:block], block), _each_warp(_matches, b[:block], block)], 1).ravel(),
    "reduce": _reduced,
    "exited_lanes": lambda block: np.where(
        np.arange(block) % 4 == 3, 0,
        0x22222222 + _each_warp(lambda w: w[w % 4 != 3].sum(), np.arange(block), block)),
    "loop_with_leavers": _leavers,
    "active_mask_of_all": lambda block: _each_warp(
        lambda w: (1 << len(w)) - 1, np.arange(block), block),
    "shared_by_a_warp": lambda a, block: a[:block].reshape(-1, 32).sum(1),
    "block_sum_by_warps": lambda a, block: a[: 3 * block].reshape(3, block).sum(1),
    "aggregated_count": lambda a: (a > 2, np.array([(a > 2).sum()])),
    "bitonic_in_a_warp": lambda a, block: np.sort(a[:block].reshape(-1, 32), axis=1).ravel(),
    # groups
    "reduce_tiles": lambda a, block: _in_tiles(np.add, a[: 2 * block], 32),
    "reduce_functions": lambda a, block: np.concatenate(
        [_in_tiles(f, a[:block], 16) for f in (np.add, np.minimum, np.maximum, np.bitwise_xor)]),
    "scans": _scans,
    "grid_sum": _grid_sum,
    "grid_rounds": lambda a: {"out": _grid_rounds(a)},
    "grid_ranks": lambda: np.full(4, 411),
    # programs
    "constant_with_a_value": lambda a: a * 32 >> 1,
    "device_variable": lambda a, n: (np.array([10 + a.sum()]), np.array([n])),
    "constant_table": lambda a: (
        lambda p: p[a] * p[(a + 3) & 7])(np.array([2, 3, 5, 7, 11, 13, 17, 19])),
    "device_templates": lambda a: 3 * a * a + 1,
    "recursion": lambda a: _loop(_fibonacci, a),
    "mutual_recursion": lambda a: np.where(a % 2 == 0, 3, 0),
    "function_pointers": lambda a, which, n: np.choose(
        which, [a + np.arange(n), a - np.arange(n), a * np.arange(n)]),
    "virtual_functions": lambda a, n: np.where(np.arange(n) % 2, a * a, a * np.arange(n)),
    "lambdas": lambda a: 9 * a - 3,
    "local_arrays": lambda a: (lambda s: s[:, 3] * 1000 + s[:, 7] - s[:, 0])(np.sort(a.reshape(-1, 8), axis=1)),
    "constexpr_functions": lambda a, n: a * 243 + 2 ** (np.arange(n) & 7),
    "namespaces_and_enums": lambda a: (a + 7) * np.where(a > 0, 3, 9),
    "random_walk": _walk,
    "mandelbrot": _mandelbrot,
    "c_linkage": lambda a: a + a[::-1],
    "cached_stores": lambda a: 2 * a + 1,
    "assertions_that_hold": lambda: np.array([120]),
}  # fmt: skip


def compare(case: Case, inputs: Inputs, results: dict[str, Array]) -> str:
    """What differs from the reference, '' if nothing does or there is none."""
    reference = REFERENCES.get(case.kernel)
    if reference is None:
        return ""
    known = {
        **inputs.arguments,
        "block": math.prod(inputs.block),
        "grid": math.prod(inputs.grid),
        "initial": {name: inputs.arguments[name] for name in inputs.results},
    }
    names = inspect.signature(reference).parameters
    with np.errstate(all="ignore"):
        wanted = reference(**{name: known[name] for name in names})
        if not isinstance(wanted, dict):
            listed = wanted if isinstance(wanted, tuple) else (wanted,)
            wanted = dict(zip(inputs.results, listed, strict=True))
        shaped = {
            name: np.ravel(np.asarray(value)).astype(results[name].dtype)
            for name, value in wanted.items()
        }
    for name, value in shaped.items():
        if value.size != results[name].size:
            return f"{name}: the reference has {value.size} elements, not {results[name].size}"
    return case.compare(results, case.canonical(shaped))
