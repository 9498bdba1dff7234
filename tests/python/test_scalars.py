"""Numbers as arguments (cases 17 to 20)."""

from __future__ import annotations

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
]


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
    import ctypes
    import struct

    class Pair(ctypes.Structure):
        _fields_ = [("a", ctypes.c_float), ("b", ctypes.c_int)]

    take = ons.Module(STRUCT).take
    raw = struct.pack("fi", 2.5, 4)
    record = np.array([(2.5, 4)], dtype=[("a", "<f4"), ("b", "<i4")])
    for value in (raw, bytearray(raw), memoryview(raw), Pair(2.5, 4), record, record[0]):
        out = np.zeros(1, np.float32)
        take[1, 1](value, out)
        assert out[0] == 10
    for value in (raw[:-1], raw + b"x", b"", 5, 2.5, None, memoryview(raw * 2)[::2]):
        with pytest.raises(ons.ArgumentError, match=r"argument 1 \('p'\)"):
            take[1, 1](value, np.zeros(1, np.float32))
