"""The cases of the conformance set, as the comments ahead of the kernels in kernels/*.cu declare
them.

    // case: a=ints(-9, 9), blocks=any
    __global__ void twice(const int* a, int* out, int n) {

A case is a kernel and what follows "case": NAME=VALUE, in Python. What a parameter's name is given
is its argument; without, `n` is the number of elements (1000), `const T*` n values of all kinds,
and `T*` n zeros. Whatever is not const is a result. The other names:

    name       of an instance of a template ("copy<float>"), whose case this is
    blocks     any (of 1 to 1024 threads), warps (multiples of 32), pow2(first, last),
               upto(last), or a list of sizes; sizes may be (x, y, z)
    grid       the number of blocks; without, as many as cover n
    shared     bytes of dynamic shared memory
    each       the results depend on the size of the block: a record for each
    tolerance  exact, ulp(count), near(relative, absolute): of floating results
    results_as "half", "bfloat16", "e4m3", "e5m2": what the bits of integer results are
    cooperative
    X          of a __device__ or __constant__ variable: its values before each launch

Values may use n, block (the number of its threads), grid, and the functions of Values.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

Array = Any
Extents = tuple[int, int, int]

HERE = Path(__file__).parent
FILES = sorted((HERE / "kernels").glob("*.cu"))
# --fmad: a product and a sum are two roundings, as host compilers are asked for as well.
OPTIONS = ("--fmad=false",)

DTYPES = {
    "char": "int8", "signed char": "int8", "int8_t": "int8", "unsigned char": "uint8",
    "uint8_t": "uint8", "short": "int16", "int16_t": "int16", "unsigned short": "uint16",
    "uint16_t": "uint16", "int": "int32", "int32_t": "int32", "unsigned": "uint32",
    "unsigned int": "uint32", "uint32_t": "uint32", "long long": "int64", "int64_t": "int64",
    "unsigned long long": "uint64", "uint64_t": "uint64", "float": "float32",
    "double": "float64",
}  # fmt: skip

ANY = tuple(range(1, 1025))
WARPS = tuple(range(32, 1025, 32))
# What stands for any size unless ONS_TEST_ALL_BLOCKS is set.
SAMPLE = {
    1, 2, 3, 5, 7, 8, 16, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 129, 255, 256, 257, 511,
    512, 513, 1000, 1023, 1024,
}  # fmt: skip


# ---- values -------------------------------------------------------------------------------------


class Values:
    """Makes an argument of `dtype` from a seed, the same with every version of NumPy."""

    def __init__(self, dtype: str, count: int, seed: str):
        self.dtype, self.count = np.dtype(dtype), count
        digest = hashlib.sha256(seed.encode()).digest()
        self._source = np.random.PCG64(int.from_bytes(digest[:8], "little"))

    def raw(self, count: int) -> Array:
        return self._source.random_raw(count).astype(np.uint64)

    def unit(self, count: int) -> Array:
        return (self.raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def bits(self, count: int | None = None) -> Array:
        """Any bits that there are."""
        count = self.count if count is None else count
        word = np.dtype(f"u{self.dtype.itemsize}")
        shift = np.uint64(64 - 8 * word.itemsize)
        return (self.raw(count) >> shift).astype(word).view(self.dtype)

    def ints(self, low: int, high: int, count: int | None = None) -> Array:
        """From low to high, both included."""
        count = self.count if count is None else count
        span = np.uint64(high - low + 1)
        return (self.raw(count) % span).astype(np.int64).__add__(low).astype(self.dtype)

    def uniform(self, low: float, high: float, count: int | None = None) -> Array:
        count = self.count if count is None else count
        return (low + (high - low) * self.unit(count)).astype(self.dtype)

    def spread(self, low: float, high: float, count: int | None = None) -> Array:
        """Of both signs, of exponents (to 2) from low to high."""
        count = self.count if count is None else count
        size = np.ldexp(1.0 + self.unit(count), self.ints_as(low, high, count))
        return (size * (1 - 2.0 * (self.raw(count) & np.uint64(1)))).astype(self.dtype)

    def ints_as(self, low: float, high: float, count: int) -> Array:
        return np.floor(low + (high - low) * self.unit(count)).astype(np.int64)

    def sizes(self, low: float, high: float, count: int | None = None) -> Array:
        return np.abs(self.spread(low, high, count))

    def edges(self, count: int | None = None) -> Array:
        """All kinds: the type's limits, values around 0 and 1, infinities, NaN, and any bits."""
        count = self.count if count is None else count
        values = self.bits(count)
        if self.dtype.kind == "f":
            values[1::2] = self.spread(-8, 8, len(values[1::2]))
            info = np.finfo(self.dtype)
            some = [
                0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, math.inf, -math.inf, math.nan,
                info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal, info.eps,
                info.tiny * 0.75, 1 + info.eps, 1 - info.epsneg, 127.5, 128.0, 255.5, 32767.5,
                65504.0, 65520.0, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64,
                2147483520.0, 4294967040.0, 16777216.0, 8388607.5, 4194304.5,
            ]  # fmt: skip
        else:
            info = np.iinfo(self.dtype)
            some = [
                0,
                1,
                2,
                3,
                7,
                31,
                32,
                33,
                63,
                64,
                info.max,
                info.max - 1,
                info.min,
                info.max // 2,
            ]
            some += [-1, -2, -31, -32, info.min + 1] if info.min else []
            some = [value for value in some if info.min <= value <= info.max]
        with np.errstate(over="ignore"):
            special = np.array(some, self.dtype)
        # A place and a partner of their own in every array, so that all pairs get a chance.
        at = (self.raw(len(special) * 4) % np.uint64(count)).astype(np.int64)
        values[at] = np.tile(special, 4)
        return values

    def zeros(self, count: int | None = None) -> Array:
        return np.zeros(self.count if count is None else count, self.dtype)

    def full(self, value: float, count: int | None = None) -> Array:
        return np.full(self.count if count is None else count, value, self.dtype)

    def arange(self, count: int | None = None) -> Array:
        return np.arange(self.count if count is None else count).astype(self.dtype)

    def permutation(self, count: int | None = None) -> Array:
        count = self.count if count is None else count
        return np.argsort(self.raw(count), kind="stable").astype(self.dtype)

    def all(self) -> Array:
        """Every value of a type of one or two bytes."""
        return (
            np.arange(2 ** (8 * self.dtype.itemsize), dtype=np.uint32)
            .astype(f"u{self.dtype.itemsize}")
            .view(self.dtype)
        )

    def values(self, *values: float) -> Array:
        return np.array(values, self.dtype)

    def names(self) -> dict[str, Any]:
        public = ("bits", "ints", "uniform", "spread", "sizes", "edges", "zeros", "full", "arange",
                  "permutation", "all", "values")  # fmt: skip
        return {name: getattr(self, name) for name in public}


# ---- comparing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tolerance:
    ulp: int = 0
    relative: float = 0
    absolute: float = 0


# Positive infinity, and whether all that follows is NaN, or only the last.
FORMATS = {"half": 0x7C00, "bfloat16": 0x7F80, "e5m2": 0x7C, "e4m3": 0x7E}


def canonical(array: Array, results_as: str | None) -> Array:
    """The same with one NaN for all: their bits are nobody's promise."""
    if array.dtype.kind == "f":
        array = array.copy()
        array[np.isnan(array)] = np.nan
    elif results_as and array.dtype.itemsize <= 2:
        sign = 1 << (8 * array.dtype.itemsize - 1)
        array = array.copy()
        array[(array & (sign - 1)) > FORMATS[results_as]] = sign - 1
    return array


def ordered(array: Array) -> Array:
    """Numbers that follow each other as the floating values do."""
    bits = array.view(f"i{array.dtype.itemsize}")
    lowest = np.iinfo(bits.dtype).min
    return np.where(bits < 0, lowest - bits, bits)


def distance(one: Array, other: Array) -> Array:
    """Units in the last place between them; a double has more of them than it can count."""
    a, b = ordered(one), ordered(other)
    with np.errstate(over="ignore"):
        return np.where(a > b, a - b, b - a).view(f"u{a.dtype.itemsize}")


def differences(got: Array, wanted: Array, tolerance: Tolerance) -> Array:
    """Indices of what is too far off. Both canonical."""
    got, wanted = np.ravel(got), np.ravel(wanted)
    words = [array.view(f"u{array.dtype.itemsize}") for array in (got, wanted)]
    off = words[0] != words[1]
    if tolerance != Tolerance() and got.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
            limit = tolerance.absolute + tolerance.relative * np.abs(wanted.astype(np.float64))
            close = (distance(got, wanted) <= tolerance.ulp) | (apart <= limit)
        off &= ~close | np.isnan(got) | np.isnan(wanted)
    return np.nonzero(off)[0]


def digest(arrays: dict[str, Array]) -> np.uint64:
    """Of canonical arrays."""
    text = hashlib.sha256()
    for name, array in arrays.items():
        text.update(f"{name} {array.dtype.str} {array.shape};".encode())
        text.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(text.digest()[:8], np.uint64)[0]


# ---- cases --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variable:
    """A parameter, or a __device__ or __constant__ variable."""

    name: str
    dtype: str | None
    is_result: bool = False


@dataclass(frozen=True)
class Inputs:
    """What one launch is given."""

    grid: Extents
    block: Extents
    shared: int
    arguments: dict[str, Any]
    symbols: dict[str, Array]
    results: tuple[str, ...]  # those of `arguments`


@dataclass(frozen=True, eq=False)
class Case:
    path: Path
    line: int
    kernel: str
    parameters: tuple[Variable, ...]
    symbols: tuple[Variable, ...]
    settings: dict[str, CodeType]

    def __getattr__(self, name: str) -> Any:
        if name not in FIXED:
            raise AttributeError(name)
        return self._value(name, WORDS, FIXED[name])

    def _value(self, name: str, scope: dict[str, Any], default: Any) -> Any:
        if name not in self.settings:
            return default() if callable(default) else default
        return eval(self.settings[name], dict(scope))

    @property
    def instance(self) -> str:
        return self.name or self.kernel

    @property
    def id(self) -> str:
        return f"{self.path.stem}.{self.instance}".replace(" ", "")

    def all_blocks(self) -> list[Extents]:
        return [extents(size) for size in self.blocks]

    def some_blocks(self) -> list[Extents]:
        sizes = self.blocks
        return [extents(size) for size in sizes if len(sizes) <= 16 or size in SAMPLE]

    def inputs(self, block: Extents) -> Inputs:
        threads = math.prod(block)
        scope = WORDS | {"block": threads}
        count = scope["n"] = self._value("n", scope, 1000)
        grid = extents(self._value("grid", scope, -(-count // threads)))
        scope["grid"] = math.prod(grid)
        shared = self._value("shared", scope, 0)

        def value_of(variable: Variable) -> Any:
            if variable.name == "n":
                return count
            values = Values(variable.dtype or "uint8", count, f"{self.id}({variable.name})")
            default = values.zeros if variable.is_result else values.edges
            return self._value(variable.name, scope | values.names(), default)

        arguments = {parameter.name: value_of(parameter) for parameter in self.parameters}
        symbols = {variable.name: value_of(variable) for variable in self.symbols}
        results = tuple(parameter.name for parameter in self.parameters if parameter.is_result)
        return Inputs(grid, block, shared, arguments, symbols, results)

    def canonical(self, results: dict[str, Array]) -> dict[str, Array]:
        return {name: canonical(array, self.results_as) for name, array in results.items()}

    def compare(self, got: dict[str, Array], wanted: dict[str, Array]) -> str:
        """What is too far off, in words; '' if nothing is. Both canonical."""
        lines = []
        for name, array in wanted.items():
            off = differences(got[name], array, self.tolerance)
            for index in off[:4]:
                here, there = np.ravel(got[name])[index], np.ravel(array)[index]
                lines.append(f"{name}[{index}]: {_shown(here)}, not {_shown(there)}")
            if len(off) > 4:
                lines.append(f"{name}: {len(off)} of {array.size} differ")
        return "\n".join(lines)


def _shown(value: Any) -> str:
    word = value.view(f"u{value.dtype.itemsize}")
    return f"{value!r} (0x{int(word):0{2 * value.dtype.itemsize}x})"


def extents(value: int | tuple[int, ...]) -> Extents:
    """As x, y, z."""
    listed = (value,) if isinstance(value, int) else tuple(value)
    x, y, z = (*listed, 1, 1)[:3]
    return (x, y, z)


EXACT = Tolerance()
# What settings may use, besides n, block, grid and the functions of Values.
WORDS: dict[str, Any] = {
    "any": ANY, "warps": WARPS,
    "pow2": lambda first=1, last=1024: tuple(2**i for i in range(11) if first <= 2**i <= last),
    "upto": lambda last: tuple(range(1, last + 1)),
    "exact": EXACT, "ulp": lambda count: Tolerance(ulp=count),
    "near": lambda relative, absolute=0.0: Tolerance(relative=relative, absolute=absolute),
    "np": np, "math": math, "cdiv": lambda a, b: -(-a // b),
}  # fmt: skip
# Settings that are the same for all launches of a case; and those that are not.
FIXED: dict[str, Any] = {
    "name": "", "blocks": ANY, "tolerance": EXACT, "each": False, "results_as": None,
    "cooperative": False,
}  # fmt: skip
VARIED = ("n", "grid", "shared")


# ---- reading the sources ------------------------------------------------------------------------

_CASE = re.compile(
    r"^// case:(?P<settings>.*(?:\n//  .*)*)\n(?P<others>(?:// case:.*\n(?://  .*\n)*)*)"
    r"(?:template\s*<(?P<template>[^>]*)>\s*)?(?:extern \"C\" )?__global__ void"
    r"(?: __launch_bounds__\([^)]*\))? (?P<kernel>\w+)\((?P<parameters>[^)]*)\)",
    re.MULTILINE,
)
_SYMBOL = re.compile(
    r"^__(?:device|constant|managed)__ (?P<type>[\w ]+?) (?P<name>\w+)(?:\[.*?\])*(?: =.*)?;", re.M
)


def _variable(text: str, types: dict[str, str]) -> Variable:
    match = re.fullmatch(r"(.*?)\s*(?:__restrict__ )?(\w+)", " ".join(text.split()))
    assert match, text
    kind, name = match.groups()
    element = re.search(r"(?:view|ptrs)<([^,]*),", kind)
    is_pointer = "*" in kind or element is not None
    base = (element.group(1) if element else kind).replace("*", "").strip()
    is_const = base.startswith("const ")
    base = base.removeprefix("const ").removeprefix("volatile ").strip()
    base = types.get(base, base)
    return Variable(name, DTYPES.get(base), is_pointer and not is_const)


def _settings(text: str) -> dict[str, CodeType]:
    call = ast.parse(f"f({text})".replace("\n//", "\n"), mode="eval").body
    assert isinstance(call, ast.Call) and not call.args, text
    return {
        str(word.arg): compile(ast.Expression(word.value), "<case>", "eval")
        for word in call.keywords
    }


def _cases_of(path: Path) -> Iterator[Case]:
    source = path.read_text()
    symbols = {match["name"]: match["type"] for match in _SYMBOL.finditer(source)}
    at = 0
    while match := _CASE.search(source, at):
        at = match.start("others") if match["others"] else match.end()
        settings = _settings(match["settings"])
        line = source.count("\n", 0, match.start()) + 1
        types = {}
        if match["template"]:
            names = [word.split()[-1] for word in match["template"].split(",")]
            instance = eval(settings["name"]) if "name" in settings else ""
            values = instance[instance.index("<") + 1 : -1].split(",")
            types = dict(zip(names, (value.strip() for value in values), strict=True))
        texts = [text for text in re.split(r",(?![^<]*>)", match["parameters"]) if text.strip()]
        parameters = tuple(_variable(text, types) for text in texts)
        known = {*FIXED, *VARIED, *(parameter.name for parameter in parameters)}
        used = tuple(
            Variable(name, DTYPES.get(symbols[name]))
            for name in settings
            if name in symbols and name not in known
        )
        unknown = set(settings) - known - set(symbols)
        assert not unknown, f"{path.name}:{line}: {unknown}"
        yield Case(path, line, match["kernel"], parameters, used, settings)


@functools.cache
def cases() -> tuple[Case, ...]:
    found = tuple(case for path in FILES for case in _cases_of(path))
    assert len({case.id for case in found}) == len(found)
    return found


def code_digest(path: Path) -> str:
    """Of a file without comments and layout: what a record has been made of."""
    code = re.sub(r"//.*|/\*.*?\*/", " ", path.read_text())
    return hashlib.sha256(" ".join(code.split()).encode()).hexdigest()[:16]
