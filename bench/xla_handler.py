#!/usr/bin/env python3
"""What a handler of onstream's adds to an XLA program: execute and initialize, called by a
stand-in for XLA, beside the launch that they come to.

The kernel does nothing. On the CPU, and on a GPU where there is one."""

from __future__ import annotations

import argparse
import ctypes
import functools
import pathlib
import sys
import tempfile

import measure
from measure import Limit, Row, c_row

OPERANDS = (2, 20)


class Calls:
    """xla_handler.c: one call site, with so many operands and a result."""

    def __init__(self, native: ctypes.CDLL, library: str, device: int, operands: int):
        self.native, self.handle = native, ctypes.c_void_p(native.bench_xla_create())
        stream = address = None
        if device >= 0:
            import torch

            self.memory = torch.zeros(2048, device=device)
            self.stream = torch.cuda.Stream(device)
            torch.cuda.synchronize(device)
            stream, address = self.stream.cuda_stream, self.memory.data_ptr()
        else:
            self.memory = (ctypes.c_float * 2048)()
            address = ctypes.addressof(self.memory)
        reason = native.bench_xla_open(
            self.handle, library.encode(), device, stream, address, operands
        )
        if reason:
            raise RuntimeError(reason.decode())

    def row(self, what: str, name: str) -> Row:
        function = getattr(self.native, f"bench_xla_{what}")
        return c_row(name, lambda count: function(self.handle, count))


def compile_native(folder: pathlib.Path) -> ctypes.CDLL:
    path = measure.compile_c("xla_handler.c", folder / "xla_handler.so", "-fPIC", "-shared")
    native = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    native.bench_xla_create.restype = pointer
    native.bench_xla_create.argtypes = []
    native.bench_xla_open.restype = ctypes.c_char_p
    native.bench_xla_open.argtypes = [
        pointer,
        ctypes.c_char_p,
        ctypes.c_int,
        pointer,
        pointer,
        ctypes.c_int,
    ]
    for what in ("execute", "initialize", "launch"):
        function = getattr(native, f"bench_xla_{what}")
        function.restype = ctypes.c_double
        function.argtypes = [pointer, ctypes.c_int]
    return native


def missing(reason: str, what: str, name: str) -> Row:
    return Row(name, None, reason)


def rows_of(native: ctypes.CDLL, library: str, device: int) -> tuple[list[Row], list[Row]]:
    """The launches, and the calls that come to them."""
    place = "cpu" if device < 0 else f"cuda:{device}"
    launches, calls = [], []
    for operands in OPERANDS:
        about = f"{place}, {operands} operands and a result"
        try:
            row = Calls(native, library, device, operands).row
        except RuntimeError as error:
            row = functools.partial(missing, measure.why(error))
        launches.append(row("launch", f"ons_kernel_launch, {about}"))
        calls.append(row("execute", f"execute, {about}"))
        if device >= 0:
            launches.append(launches[-1])
            calls.append(row("initialize", f"initialize, {about}"))
    return launches, calls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", required=True, help="libonstream.so")
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--batches", type=int, default=200, help="rounds (200)")
    parser.add_argument("--calls", type=int, default=200, help="calls a batch (200)")
    parser.add_argument("--check", action="store_true", help="fail if a limit is not met")
    options = parser.parse_args()

    library = str(pathlib.Path(options.lib).resolve())
    has_gpu = measure.has_gpu()
    synchronize = None
    if has_gpu:
        import torch

        synchronize = torch.cuda.synchronize
    rows: list[Row] = []
    limits = []
    with tempfile.TemporaryDirectory() as folder:
        native = compile_native(pathlib.Path(folder))
        for device in (-1, 0) if has_gpu else (-1,):
            launches, calls = rows_of(native, library, device)
            distinct = list(dict.fromkeys([*launches, *calls]))
            measure.interleave(
                distinct, options.batches, options.calls, synchronize or (lambda: None)
            )
            rows += distinct
            for launch, call in zip(launches, calls, strict=True):
                if call.name.startswith("execute"):
                    what = f"{call.name}: above the launch"
                    limits.append(Limit(what, measure.above(call, launch), 1000, "ns"))
    print(f"{options.batches} batches of {options.calls}\n")
    print(measure.row_table(rows, None))
    result = {
        "machine": measure.machine(),
        "batches": options.batches,
        "calls": options.calls,
        "rows": [measure.row_json(r, None) for r in rows],
    }
    return measure.finish(options.json, result, limits, options.check)


if __name__ == "__main__":
    sys.exit(main())
