"""Kernels as JAX functions, under jit, vmap, shard_map, scan and cond:

    import onstream as ons
    import onstream.jax

    axpy = ons.jax.call(
        mod.axpy, out_shape="x", grid=lambda x, y: ons.cdiv(x.size, 256), block=256,
        scalars={"a": 2.0, "n": "x.size"})
    z = jax.jit(axpy)(x, y)

Not imported by `import onstream`. docs/xla.md has the rules.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn

import jax
import numpy as np

import onstream as ons
from onstream import _core

__all__ = ["call", "register", "with_gradient"]

# What a call's plan is made of: ons_xla_plan and ons_arg_kind.
_OPERAND, _RESULT, _SCALAR, _NULL, _LIST = 0, 1, 2, 3, 4
_INT, _UINT, _FLOAT, _BOOL, _BYTES = 2, 3, 4, 5, 6

_shape: Any = jax.ShapeDtypeStruct
_NAME = re.compile(r"(\w+)(?:\.(size|ndim|nbytes|shape\[(-?\d+)\]))?")


# ---- registration ----------------------------------------------------------------------------

_lock = threading.Lock()
_registered = False


def register() -> None:
    """Makes the handlers known to JAX: `call` does it, and a process that only runs programs
    out of files has to. Any thread, as often as one likes."""
    global _registered
    with _lock:
        if _registered:
            return
        for platform, targets in _core._xla_handlers().items():
            for target, stages in targets.items():
                jax.ffi.register_ffi_target(target, stages, platform=platform)
        _registered = True


def _texts(texts: Iterable[str]) -> str:
    return "".join(f"{len(text.encode())}:{text}" for text in texts)


def _module_attributes(kernel: ons.Kernel, embed: str) -> dict[str, Any]:
    """What names the kernel in another process, too."""
    parts = _core._xla_describe(kernel)
    module = parts.pop("module")
    name = parts.pop("kernel")
    bundle = parts.pop("bundle")
    content = bundle or json.dumps(parts, sort_keys=True).encode()
    digest = hashlib.blake2b(content, digest_size=32).hexdigest()
    _core._xla_register_module(module, digest)
    attributes = {"version": 1, "digest": digest, "kernel": name}
    if embed == "source" and bundle:
        attributes["bundle"] = bundle
    elif embed == "source":
        attributes |= {"source": parts["source"], "name": parts["name"], "flags": parts["flags"]}
        attributes["options"] = _texts(parts["options"])
        attributes["headers"] = _texts(text for pair in parts["headers"] for text in pair)
    return {key: value for key, value in attributes.items() if value != ""}


# ---- expressions -----------------------------------------------------------------------------


class _Call:
    """One trace of a call: its operands, by the kernel's parameters."""

    def __init__(self, kernel: ons.Kernel, parameters: Sequence[Any], operands: Sequence[Any]):
        self.kernel = kernel
        self.parameters = parameters
        self.operands = operands  # a shape and dtype for each argument, a list for a list
        self.named: dict[str, Any] = {}

    def refuse(self, text: str, kind: type[ons.ArgumentError] = ons.ArgumentValueError) -> NoReturn:
        raise kind(f"kernel '{self.kernel.name}': {text}; it is {self.kernel.signature}")

    def value(self, given: Any, what: str) -> Any:
        """A number, or what a name or a function of the operands says."""
        if callable(given):
            return given(*self.operands)
        if not isinstance(given, str):
            return given
        match = _NAME.fullmatch(given)
        operand = self.named.get(match[1]) if match else None
        if operand is None or match is None:
            known = ", ".join(self.named) or "none"
            self.refuse(
                f"{what} is {given!r}: write a number, a function of the operands, or "
                f"'NAME.size', 'NAME.ndim', 'NAME.shape[0]' of an operand ({known})"
            )
        if match[2] is None:
            return operand
        if match[3] is not None:
            try:
                return operand.shape[int(match[3])]
            except IndexError:
                self.refuse(f"{what} is {given!r}, but {match[1]} has {operand.ndim} dims")
        return int(getattr(operand, match[2]))

    def extents(self, given: Any, what: str) -> list[int]:
        given = self.value(given, what)
        values = list(given) if isinstance(given, tuple | list) else [given]
        sizes = [self.value(value, what) for value in values]
        if not 1 <= len(sizes) <= 3 or not all(
            isinstance(size, int | np.integer) and 0 <= size < 2**32 for size in sizes
        ):
            self.refuse(f"{what} is {given!r}: it takes one to three sizes", ons.ArgumentTypeError)
        return [int(size) for size in sizes] + [1] * (3 - len(sizes))

    def shapes(self, given: Any) -> list[Any]:
        given = self.value(given, "out_shape")
        several = list(given) if isinstance(given, tuple | list) else [given]
        shapes = [self.value(one, "out_shape") for one in several]
        for shape in shapes:
            if not hasattr(shape, "shape") or not hasattr(shape, "dtype"):
                self.refuse(
                    f"out_shape has {shape!r}: give a jax.ShapeDtypeStruct, or the name of an "
                    "operand that the result is like",
                    ons.ArgumentTypeError,
                )
        return [_shape(shape.shape, shape.dtype) for shape in shapes]


# ---- scalars ---------------------------------------------------------------------------------


def _raw(call: _Call, parameter: Any, value: Any) -> bytes:
    """By-value parameters that are no single number, as their bytes."""
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if parameter["kind"] == "vector" and not hasattr(value, "_fields_"):
        return np.asarray(value, jax.numpy.dtype(parameter["dtype"])).tobytes()
    try:
        return bytes(memoryview(value).cast("B"))
    except TypeError:
        call.refuse(
            f"{parameter['name']} is declared {parameter['type']}, and {value!r} has no bytes",
            ons.ArgumentTypeError,
        )


def _record(call: _Call, parameter: Any, value: Any) -> bytes:
    if isinstance(value, jax.core.Tracer):
        call.refuse(
            f"{parameter['name']} is traced: declare it `const {parameter['type']}*` and pass "
            "the value as an operand without dimensions",
            ons.ArgumentTypeError,
        )
    if parameter["kind"] in ("struct", "vector"):
        raw = _raw(call, parameter, value)
        return struct.pack("=II", _BYTES, len(raw)) + raw
    if getattr(value, "shape", None) == ():  # NumPy scalars, arrays without dimensions
        value = np.asarray(value).item() if np.asarray(value).dtype.kind != "V" else float(value)
    if isinstance(value, bool):
        return struct.pack("=IIq", _BOOL, 8, value)
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        is_large = value >= 2**63
        return struct.pack("=IIQ" if is_large else "=IIq", _UINT if is_large else _INT, 8, value)
    if isinstance(value, float):
        return struct.pack("=IId", _FLOAT, 8, value)
    call.refuse(
        f"{parameter['name']} is declared {parameter['type']}, not {value!r}",
        ons.ArgumentTypeError,
    )


# ---- the plan --------------------------------------------------------------------------------


class _Plan:
    """Where each parameter of the kernel gets its value from."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.scalars = b""
        self.results: list[Any] = []
        self.aliases: dict[int, int] = {}
        self.operand_count = 0

    def operand(self) -> None:
        self.rows += _OPERAND, self.operand_count
        self.operand_count += 1

    def result(self, shape: Any) -> None:
        self.rows += _RESULT, len(self.results)
        self.results.append(shape)

    def in_place(self, shape: Any) -> None:
        self.aliases[self.operand_count] = len(self.results)
        self.operand_count += 1
        self.result(shape)

    def scalar(self, record: bytes) -> None:
        self.rows += _SCALAR, len(self.scalars)
        self.scalars += record


def _is_operand(parameter: Any, scalars: Mapping[str, Any], in_out: Sequence[str]) -> bool:
    is_array = parameter["kind"] in ("pointer", "view", "pointers")
    reads = parameter["const"] or parameter["name"] in in_out
    return is_array and reads and parameter["name"] not in scalars


def _check_operand(call: _Call, parameter: Any, operand: Any) -> None:
    if not hasattr(operand, "shape") or not hasattr(operand, "dtype"):
        call.refuse(f"{parameter['name']} takes an array, not {operand!r}", ons.ArgumentTypeError)
    if parameter["dtype"] not in (None, str(operand.dtype)):
        call.refuse(
            f"{parameter['name']} is declared {parameter['type']}, but the operand is "
            f"{operand.dtype}",
            ons.ArgumentTypeError,
        )
    if parameter["kind"] == "view" and operand.ndim != parameter["ndim"]:
        call.refuse(
            f"{parameter['name']} is declared {parameter['type']}, but the operand has "
            f"{operand.ndim} dimensions",
            ons.ArgumentTypeError,
        )


def _bind(call: _Call, scalars: Mapping[str, Any], in_out: Sequence[str]) -> None:
    """Gives the operands the names of their parameters."""
    readers = [p for p in call.parameters if _is_operand(p, scalars, in_out)]
    if len(readers) != len(call.operands):
        names = ", ".join(str(p["name"]) for p in readers)
        call.refuse(
            f"takes {len(readers)} operands ({names}), not {len(call.operands)}",
            ons.ArgumentTypeError,
        )
    for parameter, operand in zip(readers, call.operands, strict=True):
        if parameter["name"]:
            call.named[parameter["name"]] = operand
        if parameter["kind"] != "pointers":
            _check_operand(call, parameter, operand)
            continue
        if not isinstance(operand, list) or len(operand) != parameter["count"]:
            call.refuse(f"{parameter['name']} takes a list of {parameter['count']} arrays")
        for item in operand:
            _check_operand(call, parameter, item)
    declared = {p["name"] for p in call.parameters}
    unknown = [name for name in [*scalars, *in_out] if name not in declared]
    if unknown:
        call.refuse(f"it has no parameter {unknown[0]!r}", ons.ArgumentTypeError)


def _make_plan(
    call: _Call, scalars: Mapping[str, Any], in_out: Sequence[str], out_shape: Any
) -> _Plan:
    _bind(call, scalars, in_out)
    plan = _Plan()
    shapes = iter(call.shapes(out_shape))
    operands = iter(call.operands)
    for parameter in call.parameters:
        name, kind = parameter["name"], parameter["kind"]
        if kind == "tensor map":
            raise ons.UnsupportedError(
                f"kernel '{call.kernel.name}': tensor maps hold addresses, which XLA chooses anew "
                "for every run; give the kernel the array itself"
            )
        if name in scalars:
            value = call.value(scalars[name], name)
            if kind in ("pointer", "view", "pointers") and value is None:
                plan.rows += _NULL, 0
            elif kind in ("pointer", "view", "pointers"):
                call.refuse(f"{name} is an array: pass it as an operand", ons.ArgumentTypeError)
            else:
                plan.scalar(_record(call, parameter, value))
        elif kind not in ("pointer", "view", "pointers"):
            call.refuse(f"{name} has no value: give it in scalars", ons.ArgumentTypeError)
        elif kind == "pointers" and parameter["const"]:
            items = next(operands)
            plan.rows += _LIST, len(items)
            for _ in items:
                plan.operand()
        elif kind == "pointers":
            raise ons.UnsupportedError(
                f"kernel '{call.kernel.name}': {name} is a list of arrays that are written; "
                "declare a parameter for each result"
            )
        elif parameter["const"]:
            next(operands)
            plan.operand()
        elif name in in_out:
            operand = next(operands)
            plan.in_place(_shape(operand.shape, operand.dtype))
        else:
            shape = next(shapes, None)
            if shape is None:
                call.refuse(f"out_shape has nothing for {name}")
            _check_operand(call, parameter, shape)
            plan.result(shape)
    if next(shapes, None) is not None:
        call.refuse("out_shape has more than the kernel writes")
    return plan


# ---- calls -----------------------------------------------------------------------------------


def _parameters(kernel: ons.Kernel) -> tuple[Any, ...]:
    """By the backend that JAX uses; they are the same on all of them."""
    if jax.default_backend() == "cpu":
        return kernel.parameters("cpu")
    try:
        return kernel.parameters("cuda")
    except ons.UnavailableError:
        return kernel.parameters("cpu")


def _abstract(argument: Any) -> Any:
    if isinstance(argument, list | tuple):
        return [_abstract(item) for item in argument]
    return _shape(np.shape(argument), jax.dtypes.result_type(argument))


def _flat(arguments: Iterable[Any]) -> list[Any]:
    flat: list[Any] = []
    for argument in arguments:
        flat += argument if isinstance(argument, list | tuple) else [argument]
    return flat


def _without_derivative(kernel: ons.Kernel, function: Callable[..., Any]) -> Callable[..., Any]:
    """Says what to do about it, under grad."""
    function = jax.custom_jvp(function)

    @function.defjvp
    def _(*_: Any) -> Any:
        raise ons.UnsupportedError(
            f"kernel '{kernel.name}' has no derivative of its own: give its call one with "
            "ons.jax.with_gradient(forward, backward), or jax.custom_vjp"
        )

    return function


def call(
    kernel: ons.Kernel,
    *,
    grid: Any,
    block: Any,
    out_shape: Any = (),
    shared: Any = 0,
    scalars: Mapping[str, Any] | None = None,
    in_out: str | Sequence[str] = (),
    graph: bool = True,
    embed: Literal["source", "hash"] = "source",
    vmap_method: Literal["sequential", "broadcast_all"] = "sequential",
) -> Callable[..., Any]:
    """A function of JAX arrays that launches the kernel.

    Its operands are for the parameters that are only read (`const T*`), in their order, and
    for those in `in_out`; a list for `ons::ptrs<const T, N>`. Its results are what the
    others of `T*` get: one array, or a tuple in the order of the parameters.

    out_shape: a jax.ShapeDtypeStruct for each result that is not in `in_out`, or the name
    of an operand that it is like. grid, block: one to three sizes. shared: bytes. scalars:
    the values of the parameters that are passed by value, by name; None for a null pointer.
    in_out: names of parameters that are read and written: the result takes the operand's
    place where JAX can spare it, else its copy's. All but the names may be functions of the
    operands (jax.ShapeDtypeStruct each), and numbers also 'x.size', 'x.ndim', 'x.shape[0]';
    they are evaluated when the call is traced.

    graph: may be recorded into a command buffer (a CUDA graph). embed: 'source' puts the
    source into the program, or the bundle that the kernel is of, so that it runs in a
    process that does not have the kernel; 'hash' only a digest. vmap_method: 'sequential'
    launches once for each element of the batch; for 'broadcast_all' all arrays get a
    leading dimension, and grid, scalars and the rest are evaluated for those.

    Raises ArgumentError and CompileError when the call is traced; what is only known when
    it runs is JAX's own error, with onstream's message."""
    if embed not in ("source", "hash"):
        raise ons.ArgumentValueError(f"embed is {embed!r}: it is 'source' or 'hash'")
    if vmap_method not in ("sequential", "broadcast_all"):
        raise ons.ArgumentValueError(
            f"vmap_method is {vmap_method!r}: it is 'sequential' or 'broadcast_all'"
        )
    if not isinstance(kernel, ons.Kernel):
        raise TypeError(f"kernel is a {type(kernel).__name__}, not an onstream.Kernel")
    values = dict(scalars or {})
    names = (in_out,) if isinstance(in_out, str) else tuple(in_out)
    target = "onstream.launch" if graph else "onstream.launch_nograph"

    def launch(*arguments: Any) -> Any:
        register()
        traced = _Call(kernel, _parameters(kernel), [_abstract(a) for a in arguments])
        plan = _make_plan(traced, values, names, out_shape)
        if not plan.results:
            traced.refuse("it writes nothing, and XLA drops what has no results")
        attributes = _module_attributes(kernel, embed)
        sizes = traced.extents(grid, "grid")
        if 0 in sizes and any(result.size for result in plan.results):
            traced.refuse(f"grid is {sizes}: nothing would be written to the results")
        attributes["grid"] = np.array(sizes, np.int64)
        attributes["block"] = np.array(traced.extents(block, "block"), np.int64)
        attributes["shared_bytes"] = int(traced.value(shared, "shared"))
        attributes["scalars"] = plan.scalars
        if plan.rows:
            attributes["plan"] = np.array(plan.rows, np.int64)
        if plan.aliases:
            attributes["aliases"] = np.array(list(plan.aliases.items()), np.int64).ravel()
        ffi_call = jax.ffi.ffi_call(
            target,
            plan.results,
            vmap_method="sequential",
            input_output_aliases=plan.aliases or None,
        )
        results = ffi_call(*_flat(arguments), **attributes)
        return results[0] if len(results) == 1 else tuple(results)

    function = _without_derivative(kernel, launch)
    if vmap_method == "sequential":
        return function
    batched = jax.custom_batching.custom_vmap(function)

    @batched.def_vmap
    def _(size: int, is_batched: Sequence[Any], *arguments: Any) -> Any:
        def broadcast(argument: Any, has_batch: bool) -> Any:
            return (
                argument if has_batch else jax.numpy.broadcast_to(argument, (size, *argument.shape))
            )

        results = batched(*jax.tree.map(broadcast, list(arguments), list(is_batched)))
        return results, jax.tree.map(lambda _: True, results)

    return batched


def with_gradient(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` as a function with a reverse-mode derivative.

    backward(*operands, result, cotangent) returns the gradient of each operand, one alone
    for one operand, None for those that have none."""
    function = jax.custom_vjp(forward)

    def keep(*operands: Any) -> Any:
        result = forward(*operands)
        return result, (operands, result)

    def pull_back(kept: Any, cotangent: Any) -> tuple[Any, ...]:
        operands, result = kept
        gradients = backward(*operands, result, cotangent)
        return tuple(gradients) if isinstance(gradients, tuple | list) else (gradients,)

    function.defvjp(keep, pull_back)
    return function
