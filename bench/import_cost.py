#!/usr/bin/env python3
"""What `import onstream` adds to a bare Python: fresh processes, one of each in turn."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import measure
from measure import Limit

INSIDE = """
import time
start = time.perf_counter_ns()
import onstream
print(time.perf_counter_ns() - start)
"""


def run(code: str) -> tuple[float, str]:
    """(wall time in ms, standard output) of a new interpreter."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return (time.perf_counter() - start) * 1e3, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--runs", type=int, default=21, help="of each kind (21)")
    parser.add_argument("--check", action="store_true", help="fail if the limit is not met")
    options = parser.parse_args()

    machine = measure.machine()
    bare: list[float] = []
    imported: list[float] = []
    inside: list[float] = []
    for round_ in range(-2, options.runs):
        bare_ms, _ = run("pass")
        imported_ms, _ = run("import onstream")
        _, inside_ns = run(INSIDE)
        if round_ >= 0:
            bare.append(bare_ms)
            imported.append(imported_ms)
            inside.append(int(inside_ns) / 1e6)

    rows = [
        ("python -c pass", bare),
        ("python -c 'import onstream'", imported),
        ("the import statement itself", inside),
    ]
    lines = [[n, f"{min(v):.2f}", f"{statistics.median(v):.2f}"] for n, v in rows]
    print(f"{options.runs} processes of each kind, on {machine['cpu']}\n")
    print(measure.table(["what", "min ms", "median ms"], lines))
    added = statistics.median(imported) - statistics.median(bare)
    limits = [Limit("import onstream, over bare Python, medians", added, 30, "ms")]
    result = {
        "machine": machine,
        "runs": options.runs,
        "rows": [{"name": n, "min_ms": min(v), "median_ms": statistics.median(v)} for n, v in rows],
    }
    return measure.finish(options.json, result, limits, options.check)


if __name__ == "__main__":
    sys.exit(main())
