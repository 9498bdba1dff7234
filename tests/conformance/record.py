"""Runs every case and writes what came out, for the tests to compare with; see record."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import records
import references
import runner
import suite


def about(machine: runner.Host | runner.Gpu) -> dict[str, str]:
    if machine.device == "cpu":
        return {"device": "cpu"}
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "architecture": f"sm_{properties.major}{properties.minor}",
        "cuda": str(torch.version.cuda),
    }


def record(case: suite.Case, machine: Any, writer: records.Writer) -> str:
    """What is wrong with its results."""
    results = {}
    for block in case.all_blocks() if case.each else case.some_blocks():
        inputs = case.inputs(block)
        results[block] = case.canonical(runner.launch(case, inputs, machine))
        if message := references.compare(case, inputs, results[block]):
            writer.add(case, {block: results[block]} if not case.each else results)
            return f"block {block}, the reference says: {message}"
    return writer.add(case, results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    default = Path(os.environ["OUT"]) / "recorded.npz" if "OUT" in os.environ else records.PATH
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    machine = runner.Gpu() if options.device == "cuda" else runner.Host()
    started = time.monotonic()
    failures = runner.prepare(suite.FILES, options.device, os.cpu_count() or 1)
    for path, message in failures.items():
        print(f"{path.name}: {message}", file=sys.stderr)
    print(f"compiled in {time.monotonic() - started:.1f} s")
    writer = records.Writer(about(machine))
    wrong = 0
    for case in suite.cases():
        if case.path in failures:
            continue
        try:
            message = record(case, machine, writer)
        except Exception as error:  # a case that fails must not lose the others
            message = f"{type(error).__name__}: {error}"
        if message:
            wrong += 1
            print(f"{case.id}: {message}", file=sys.stderr)
    writer.write(options.out)
    size = options.out.stat().st_size
    print(
        f"{len(suite.cases())} cases, {wrong} of them questionable, in {time.monotonic() - started:.1f} s"
    )
    print(f"{options.out}: {size / 1e3:.0f} kB")
    return 1 if wrong or failures else 0


if __name__ == "__main__":
    sys.exit(main())
