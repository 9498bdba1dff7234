"""What the tests of the CPU's dialect share: kernels made of one expression, and rounding
to small formats by looking numbers up."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

import onstream as ons

Array = Any

C_TYPES = {
    "int8": "signed char", "uint8": "unsigned char", "int16": "short",
    "uint16": "unsigned short", "int32": "int", "uint32": "unsigned int",
    "int64": "long long", "uint64": "unsigned long long", "float32": "float",
    "float64": "double", "bool": "bool",
}  # fmt: skip


def c_type(array: Array) -> str:
    return C_TYPES[array.dtype.name]


def evaluate_all(
    expressions: dict[str, tuple[str, Any]], *arrays: Array, headers: str = ""
) -> dict[str, Array]:
    """Each expression, of the type beside it, of a, b, c (an element of each array) and i,
    for every index. One compile for all of them."""
    names = "abcd"[: len(arrays)]
    parameters, body, results = [], [], {}
    for name, array in zip(names, arrays, strict=True):
        parameters.append(f"const {c_type(array)}* in_{name}")
        body.append(f"auto {name} = in_{name}[i]; (void){name};")
    for index, (label, (expression, dtype)) in enumerate(expressions.items()):
        results[label] = np.empty(arrays[0].shape, dtype)
        parameters.append(f"{c_type(results[label])}* out{index}")
        body.append(f"out{index}[i] = {expression};")
    source = f"""{headers}
        __global__ void k({", ".join(parameters)}, int n) {{
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i >= n) return;
          {" ".join(body)}
        }}"""
    count = arrays[0].size
    kernel = ons.Module(source, name="dialect.cu").k
    kernel[ons.cdiv(count, 256), 256](*arrays, *results.values(), count)
    return results


def evaluate(expression: str, *arrays: Array, out: Any, headers: str = "") -> Array:
    return evaluate_all({"": (expression, out)}, *arrays, headers=headers)[""]


class Format:
    """A floating type of 8 or 16 bits: all its numbers, and rounding to them."""

    def __init__(self, dtype: Any, word: Any, mantissa_bits: int):
        self.dtype, self.word = np.dtype(dtype), np.dtype(word)
        self.sign = 1 << (8 * self.word.itemsize - 1)
        magnitudes = self.values(np.arange(self.sign, dtype=self.word))
        finite = magnitudes[np.isfinite(magnitudes)]
        assert (np.diff(finite) > 0).all()
        # Behind the largest, where the next number would be.
        step = 2.0 ** (np.floor(np.log2(finite[-1])) - mantissa_bits)
        self.finite_count = finite.size
        self.table = np.append(finite, finite[-1] + step)

    @functools.cached_property
    def all(self) -> Array:
        return np.arange(2 * self.sign, dtype=np.uint32).astype(self.word)

    def values(self, bits: Array) -> Array:
        with np.errstate(invalid="ignore"):  # signalling NaN
            return bits.view(self.dtype).astype(np.float64)

    def round(self, values: Array, mode: str = "rn") -> Array:
        """Bits; of numbers that are exact in float64 and not NaN. Past the largest number
        the bits go on counting."""
        size = np.minimum(np.abs(values), self.table[-1])
        low = np.searchsorted(self.table, size, side="right") - 1
        high = np.minimum(low + 1, self.finite_count)
        is_exact = self.table[low] == size
        middle = (self.table[low] + self.table[high]) / 2
        outward = (mode == "ru") & (values > 0) | (mode == "rd") & (values < 0)
        if mode == "rn":
            outward = (size > middle) | ((size == middle) & (low % 2 == 1))
        picked = np.where(is_exact | ~outward, low, high)
        if mode != "rn":  # infinity stays, and others only get there when rounded outward
            largest = np.where(outward | np.isinf(values), self.finite_count, self.finite_count - 1)
            picked = np.minimum(picked, largest)
        return (picked + self.sign * np.signbit(values)).astype(self.word)


HALF = Format(np.float16, np.uint16, 10)
BFLOAT16 = Format(ml_dtypes.bfloat16, np.uint16, 7)
E4M3 = Format(ml_dtypes.float8_e4m3fn, np.uint8, 3)
E5M2 = Format(ml_dtypes.float8_e5m2, np.uint8, 2)
