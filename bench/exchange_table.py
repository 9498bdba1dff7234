#!/usr/bin/env python3
"""What a consumer in C waits for one tensor through its type's DLPack exchange table.

onstream.Tensor beside torch.Tensor, over the same memory, on a GPU where there is one."""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from typing import Any

import measure
from measure import Limit, Row, c_row

BORROWED = "onstream.Tensor, borrowed"


def row(native: Any, name: str, x: Any, owned: bool) -> Row:
    table = getattr(type(x), "__dlpack_c_exchange_api__", None)
    if table is None:
        return Row(name, None, "its type has no table")
    return c_row(name, lambda count: native.lend(table, x, owned, count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--batches", type=int, default=200, help="rounds (200)")
    parser.add_argument("--calls", type=int, default=1000, help="tensors a batch (1000)")
    parser.add_argument("--check", action="store_true", help="fail if the limit is not met")
    options = parser.parse_args()

    import torch

    import onstream as ons

    device = "cuda" if measure.has_gpu() else "cpu"
    x = torch.zeros(3, 4, device=device)
    t = ons.from_dlpack(x)
    machine = measure.machine()
    with tempfile.TemporaryDirectory() as folder:
        native = measure.Native(pathlib.Path(folder))
        if native.module is None:
            raise SystemExit(f"the compiled part is missing: {native.reason}")
        rows = [
            row(native.module, BORROWED, t, False),
            row(native.module, "torch.Tensor, borrowed", x, False),
            row(native.module, "onstream.Tensor, owned and deleted", t, True),
            row(native.module, "torch.Tensor, owned and deleted", x, True),
        ]
        measure.interleave(rows, options.batches, options.calls)
    print(f"One tensor on {device}, {options.batches} batches of {options.calls}\n")
    print(measure.row_table(rows, None))
    limits = [Limit(f"{BORROWED}, median", rows[0].median, 30, "ns")]
    result = {
        "machine": machine,
        "device": device,
        "batches": options.batches,
        "calls": options.calls,
        "rows": [measure.row_json(r, None) for r in rows],
    }
    return measure.finish(options.json, result, limits, options.check)


if __name__ == "__main__":
    sys.exit(main())
