"""Numbers as arguments (cases 17 to 20)."""

from __future__ import annotations

import array
import ctypes
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import onstream as ons


def store(mod: ons.Module, spelling: str, value: Any, dtype: Any) -> Any:
    out = np.zeros(1, dtype)
    mod[f"fill<{spelling}>"][1, 1](value, out)
    return out[0]


FITTING = [
    ("float", 1.5, np.float32),
    ("float", 3, np.float32),
    ("float", 1e-40, np.float32),
    ("double", 0.1, np.float64),
    ("int", -(2**31), np.int32),
    ("int", 2**31 - 1, np.int32),
    ("unsigned", 2**32 - 1, np.uint32),
    ("long long", -(2**63), np.int64),
    ("unsigned long long", 2**64 - 1, np.uint64),
    ("unsigned long long", 2**63, np.uint64),
    ("signed char", -128, np.int8),
    ("unsigned char", 255, np.uint8),
    ("short", -32768, np.int16),
    ("unsigned short", 65535, np.uint16),
    ("bool", True, np.bool_),
    ("int", True, np.int32),
    ("float", np.float32(2.5), np.float32),
    ("float", np.float64(2.5), np.float32),
    ("float", np.float16(2.5), np.float32),
    ("int", np.int64(7), np.int32),
    ("int", np.uint8(7), np.int32),
    ("bool", np.bool_(True), np.bool_),
    ("int", np.array(7), np.int32),
    ("float", np.array(2.5, np.float32), np.float32),
    ("float", np.array(7), np.float32),
    ("double", np.array(2.0, ">f8"), np.float64),
    ("float", np.array(2.0, ">f8"), np.float32),
    ("int", np.array(3, ">i4"), np.int32),
    ("long long", np.array(7, object), np.int64),
    ("double", np.array(Fraction(5, 2), object), np.float64),
    ("double", Decimal("2.5"), np.float64),
    ("double", np.array(2.5, np.longdouble), np.float64),
    ("double", np.longdouble(2.5), np.float64),
    ("bool", np.array(True), np.bool_),
]


@pytest.mark.parametrize(("spelling", "value", "dtype"), FITTING)
def test_converted(mod: ons.Module, spelling: str, value: Any, dtype: Any) -> None:
    assert store(mod, spelling, value, dtype) == dtype(value)


UNFITTING = [
    ("int", 2**31, ons.ArgumentValueError),
    ("int", -(2**31) - 1, ons.ArgumentValueError),
    ("unsigned", -1, ons.ArgumentValueError),
    ("unsigned", 2**32, ons.ArgumentValueError),
    ("long long", 2**63, ons.ArgumentValueError),
    ("unsigned long long", -1, ons.ArgumentValueError),
    ("unsigned long long", 2**64, ons.ArgumentValueError),
    ("long long", 10**100, ons.ArgumentValueError),
    ("long long", -(10**100), ons.ArgumentValueError),
    ("unsigned char", 256, ons.ArgumentValueError),
    ("float", 1e300, ons.ArgumentValueError),
    ("int", 3.0, ons.ArgumentTypeError),
    ("int", np.float64(3), ons.ArgumentTypeError),
    ("int", np.array(3.0), ons.ArgumentTypeError),
    ("int", None, ons.ArgumentTypeError),
    ("int", "3", ons.ArgumentTypeError),
    ("float", 1j, ons.ArgumentTypeError),
    ("float", np.complex64(1), ons.ArgumentTypeError),
    ("int", [3], ons.ArgumentTypeError),
    ("int", np.array([3]), ons.ArgumentTypeError),
    ("int", object(), ons.ArgumentTypeError),
    ("float", 1j + np.array(1), ons.ArgumentTypeError),
    ("int", np.array(2**31, ">i8"), ons.ArgumentValueError),
    ("int", np.array([3], ">i4"), ons.ArgumentTypeError),
]


class TextThatFloats(str):
    def __float__(self) -> float:
        return 3.0


class BytesThatIndex(bytes):
    def __index__(self) -> int:
        return 3


# Of the parameter's size, each of them, for one parameter or another.
NO_NUMBERS = [
    b"abcd",
    b"abcdefgh",
    bytearray(4),
    memoryview(b"abcd"),
    memoryview(np.array([3], np.int32)),
    memoryview(np.array(3, np.int32)),
    array.array("i", [3]),
    array.array("f", [3]),
    array.array("d", [3]),
    ctypes.c_int(3),
    ctypes.c_float(3),
    ctypes.c_double(3),
    (ctypes.c_int * 1)(3),
    np.array("a"),
    np.array("3"),
    np.array("3", object),
    np.array(b"3"),
    np.array(b"abcd"),
    np.array(None, object),
    np.zeros((), [("a", "i4")]),
    np.zeros((), [("a", "f8")])[()],
    np.zeros((), "V4"),
    np.void(b"abcd"),
    np.void(b"abcdefgh"),
    np.str_("3"),
    np.bytes_(b"3"),
    np.datetime64(3, "ns"),
    np.timedelta64(3, "ns"),
    np.array(3, "M8[ns]"),
    np.array(3, "m8[ns]"),
    "3",
    TextThatFloats("3"),
    BytesThatIndex(b"3"),
]


DTYPES = {"float": "f4", "double": "f8", "int": "i4", "long long": "i8", "bool": "?"}


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("spelling", DTYPES)
def test_bytes_and_text_are_no_numbers(mod: ons.Module, spelling: str, value: Any) -> None:
    out = np.zeros(1, DTYPES[spelling])
    with pytest.raises(ons.ArgumentTypeError, match=r"argument 1 \('value'\): declared"):
        mod[f"fill<{spelling}>"][1, 1](value, out)
    assert out[0] == 0


def test_bytes_are_no_numbers_in_a_first_call(mod: ons.Module) -> None:
    out = np.zeros(1, np.float64)
    with pytest.raises(ons.ArgumentTypeError, match=r"argument 1 \('value'\): declared double"):
        ons.Module(mod.source)["fill<double>"][1, 1](b"abcdefgh", out)
    assert out[0] == 0


@pytest.mark.parametrize(("spelling", "value", "error"), UNFITTING)
def test_refused(mod: ons.Module, spelling: str, value: Any, error: Any) -> None:
    with pytest.raises(error, match=r"argument 1 \('value'\)"):
        store(mod, spelling, value, np.float64 if spelling == "double" else np.int64)


def test_special_floats(mod: ons.Module) -> None:
    assert np.isnan(store(mod, "float", float("nan"), np.float32))
    assert store(mod, "float", float("-inf"), np.float32) == -np.inf


def test_torch_scalars(mod: ons.Module) -> None:
    torch = pytest.importorskip("torch")
    assert store(mod, "int", torch.tensor(7), np.int32) == 7
    assert store(mod, "float", torch.tensor(2.5, dtype=torch.bfloat16), np.float32) == 2.5
    assert store(mod, "float", torch.tensor(2.5, requires_grad=True), np.float32) == 2.5
    with pytest.raises(ons.ArgumentTypeError, match=r"'value'.*shape \(1,\)"):
        store(mod, "int", torch.tensor([7]), np.int32)


def test_jax_scalars(mod: ons.Module, jnp: Any) -> None:
    assert store(mod, "int", jnp.array(7), np.int32) == 7
    assert store(mod, "float", jnp.float32(2.5), np.float32) == 2.5


class Indexed:
    def __index__(self) -> int:
        return 7


class Floated:
    def __float__(self) -> float:
        return 2.5


class Failing:
    def __index__(self) -> int:
        raise ZeroDivisionError("inside")


def test_number_protocols(mod: ons.Module) -> None:
    assert store(mod, "int", Indexed(), np.int32) == 7
    assert store(mod, "float", Floated(), np.float32) == 2.5
    with pytest.raises(ons.ArgumentTypeError) as caught:
        store(mod, "int", Failing(), np.int32)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_subclasses_of_numbers(mod: ons.Module) -> None:
    class MyInt(int):
        pass

    class MyFloat(float):
        pass

    assert store(mod, "int", MyInt(7), np.int32) == 7
    assert store(mod, "float", MyFloat(2.5), np.float32) == 2.5


def test_null_pointers(mod: ons.Module) -> None:
    out = np.zeros(1, np.int32)
    mod.is_null[1, 1](None, out)
    assert out[0] == 1
    mod.is_null[1, 1](np.zeros(1, np.float32), out)
    assert out[0] == 0


def test_numbers_for_pointers_are_refused(mod: ons.Module) -> None:
    for value in (0, 1.0, True):
        with pytest.raises(ons.ArgumentTypeError, match=r"argument 1 \('x'\)"):
            mod.is_null[1, 1](value, np.zeros(1, np.int32))


STRUCT = r"""
struct pair { float a; int b; };
__global__ void take(pair p, float* out) { out[0] = p.a * p.b; }
"""


def test_structs_from_bytes() -> None:
    import struct

    class Pair(ctypes.Structure):
        _fields_ = [("a", ctypes.c_float), ("b", ctypes.c_int)]

    take = ons.Module(STRUCT).take
    raw = struct.pack("fi", 2.5, 4)
    record = np.array([(2.5, 4)], dtype=[("a", "<f4"), ("b", "<i4")])
    chars = ctypes.create_string_buffer(raw, len(raw))
    views = (memoryview(raw), memoryview(raw).cast("c"))
    for value in (raw, bytearray(raw), *views, chars, Pair(2.5, 4), record, record[0]):
        out = np.zeros(1, np.float32)
        take[1, 1](value, out)
        assert out[0] == 10
    for value in (raw[:-1], raw + b"x", b"", 5, 2.5, None, memoryview(raw * 2)[::2]):
        with pytest.raises(ons.ArgumentError, match=r"argument 1 \('p'\)"):
            take[1, 1](value, np.zeros(1, np.float32))


def test_structs_from_what_is_no_bytes() -> None:
    class Swapped(ctypes.BigEndianStructure):
        _fields_ = [("a", ctypes.c_float), ("b", ctypes.c_int)]

    take = ons.Module(STRUCT).take
    for value in (
        array.array("i", [3, 4]),
        array.array("d", [3]),
        memoryview(np.array([3.0])),
        memoryview(np.array([3, 4], np.int32)),
        ctypes.c_double(3),
        np.array(3.0),
        np.array(3.0, ">f8"),
        np.array([3.0]),
        np.array([3.0], ">f8"),
        np.array(7, object),
        np.array(b"abcdefgh"),
        np.array(1j, np.complex64),
        np.zeros((), [("a", object)]),
        np.zeros((), [("O", "<i4"), ("b", ">i4")]),
        np.zeros(2, [("a", "<f4"), ("b", "<i4")]),
        np.frombuffer(b"abcdefgh", np.uint8),
        np.bytes_(b"abcdefgh"),
        Swapped(2.5, 4),
    ):
        with pytest.raises(ons.ArgumentError, match=r"argument 1 \('p'\)"):
            take[1, 1](value, np.zeros(1, np.float32))
    out = np.zeros(1, np.float32)
    named = np.array((2.5, 4), [("O", "<f4"), (">x", "<i4")])
    for value in (named, named[()], np.void(named.tobytes()), memoryview(named)):
        take[1, 1](value, out)
        assert out[0] == 10
