#!/usr/bin/env python3
"""Processes that start at once on an empty cache folder: is each key compiled once, and how
long after the compile does the last of them have its kernel?

    tests/stress/cache_storm.py                        64 processes, the CPU's compiler
    tests/stress/cache_storm.py --cuda --processes 8   NVRTC, for the device that is there or
                                                       the driver in ONSTREAM_CUDA_DRIVER
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROCESS = """
import sys, time
import numpy as np
import onstream as ons
device, keys = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for key in range(keys):
    module = ons.Module(f"#define KEY {key}\\n__global__ void k(int* y) {{ y[0] = KEY; }}")
    module.k.prepare(device)
    print(time.time_ns(), flush=True)
    if device == "cpu":
        y = np.full(1, -1, np.int32)
        module.k[1, 1](y)
        assert y[0] == key, y
time.sleep(1)  # the end of one process is not to disturb another
print(int("nvrtc" in open("/proc/self/maps").read()))
"""
COMPILER = """#!/bin/sh
case "$*" in *-dM*) exec {real} "$@" ;; esac
{real} "$@"
status=$?
date +%s%N >> {log}
exit $status
"""


def counting_compiler(folder: Path) -> tuple[Path, Path]:
    real = shutil.which("clang++") or shutil.which("g++")
    if real is None:
        sys.exit("no clang++ and no g++ here")
    script, log = folder / "compiler", folder / "log"
    script.write_text(COMPILER.format(real=shlex.quote(real), log=shlex.quote(str(log))))
    script.chmod(0o755)
    return script, log


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--keys", type=int, default=3, help="modules, one after another (3)")
    parser.add_argument("--cuda", action="store_true", help="with NVRTC, one key")
    options = parser.parse_args()
    keys = 1 if options.cuda else options.keys
    device = "cuda:0" if options.cuda else "cpu"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compiler, log = counting_compiler(folder)
        cache = folder / "cache"
        environment = {
            "ONSTREAM_CACHE_DIR": str(cache),
            "ONSTREAM_HOST_COMPILER": str(compiler),
            "ONSTREAM_CPU_THREADS": "1",
        }
        pipe = subprocess.PIPE
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROCESS, device, str(keys)],
                env=os.environ | environment,
                stdin=pipe,
                stdout=pipe,
                text=True,
            )
            for _ in range(options.processes)
        ]
        for process in processes:
            assert process.stdout and process.stdout.readline() == "ready\n"
        start = time.time_ns()
        for process in processes:
            assert process.stdin
            process.stdin.close()
        outputs = []
        for process in processes:
            assert process.stdout
            outputs.append([int(line) for line in process.stdout.read().split()])
            assert process.wait() == 0, "a process failed"
        compiled = [int(line) for line in log.read_text().split()] if log.exists() else []
        left = sorted(path.name for path in cache.iterdir() if path.suffix != ".ons")
        entries = len(list(cache.glob("*.ons")))

    count = sum(output[-1] for output in outputs) if options.cuda else len(compiled)
    print(f"{options.processes} processes, {keys} key(s): {count} compile(s), {entries} entries")
    for key in range(keys):
        ready = [output[key] for output in outputs]
        begun = compiled[key - 1] if key else start
        end = min(ready) if options.cuda else compiled[key]
        print(
            f"key {key}: compiled after {(end - begun) / 1e6:.0f} ms, "
            f"the last process ready {(max(ready) - end) / 1e6:.0f} ms later"
        )
    if left:
        print("left in the folder:", *left)
    return 0 if count == keys == entries and not left else 1


if __name__ == "__main__":
    sys.exit(main())
