#!/usr/bin/env python3
"""What a second thread gains on the CPU, beside what the machine itself gives: two
processes that run the same kernel on one thread each, at the same time.

The number of threads is fixed when a process starts, so each row is a process that waits
for its turn."""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import time

import measure
from cpu_kernels import BLOCK, COUNT, KERNELS, SIDE
from measure import Limit, Row

LAUNCHES = ("polynomial", "mandelbrot", "reduce_256")


def serve(name: str) -> None:
    """Launches once for every line that comes, and answers with the ns it took."""
    import numpy

    import onstream as ons

    x = numpy.random.default_rng(0).standard_normal(COUNT, dtype=numpy.float32)
    y = numpy.zeros_like(x)
    counts = numpy.zeros(SIDE * SIDE, numpy.int32)
    module = ons.Module(KERNELS)
    grid = (ons.cdiv(SIDE, BLOCK), SIDE) if name == "mandelbrot" else ons.cdiv(COUNT, BLOCK)
    args = (counts, SIDE) if name == "mandelbrot" else (x, y, COUNT)
    f = module[name][grid, BLOCK]
    f(*args)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter_ns()
        f(*args)
        print(time.perf_counter_ns() - start, flush=True)


class Server:
    def __init__(self, kernel: str, threads: int):
        environment = os.environ | {"ONSTREAM_CPU_THREADS": str(threads)}
        command = [sys.executable, str(pathlib.Path(__file__)), "--serve", kernel]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )
        if self._answer() != "ready":
            raise RuntimeError(f"{kernel} did not start")

    def _answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def begin(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> float:
        return float(self._answer())

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def row_of(name: str, *servers: Server) -> Row:
    """All at the same time, each a whole launch; the slowest counts."""

    def batch(calls: int) -> float:
        took = 0.0
        for _ in range(calls):
            for server in servers:
                server.begin()
            took += max(server.end() for server in servers)
        return took / calls

    return Row(name, batch)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--batches", type=int, default=60, help="rounds (60)")
    parser.add_argument("--check", action="store_true", help="fail if a limit is not met")
    parser.add_argument("--serve", metavar="KERNEL", choices=LAUNCHES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0

    machine = measure.machine()
    rows: list[Row] = []
    servers: list[Server] = []
    lines, limits = [], []
    for kernel in LAUNCHES:
        one, other, two = Server(kernel, 1), Server(kernel, 1), Server(kernel, 2)
        servers += one, other, two
        alone = row_of(f"{kernel}, one thread", one)
        pair = row_of(f"{kernel}, two processes of one thread", one, other)
        ours = row_of(f"{kernel}, two threads", two)
        measure.interleave([alone, pair, ours], options.batches, 1)
        rows += alone, pair, ours
        gain, ceiling = measure.ratio(alone, ours), measure.ratio(alone, pair)
        assert gain and ceiling
        lines.append([kernel, f"{gain:.2f} x", f"{2 * ceiling:.2f} x"])
        limits.append(Limit(f"{kernel}, time of two threads over one", 1 / gain, 1 / 1.8, "x"))
    for server in servers:
        server.close()
    print(f"on {machine['cpu']}\n")
    print(measure.row_table(rows, rows[0]), end="\n\n")
    print(measure.table(["kernel", "two threads", "what the machine gives"], lines))
    result = {"machine": machine, "rows": [measure.row_json(row, rows[0]) for row in rows]}
    return measure.finish(options.json, result, limits, options.check)


if __name__ == "__main__":
    sys.exit(main())
