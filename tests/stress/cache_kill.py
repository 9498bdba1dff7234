#!/usr/bin/env python3
"""Processes that share a cache folder and are killed at random points, while entries are
spoilt and the folder is removed: those that live have right kernels, in finite time.

    tests/stress/cache_kill.py --kills 1000 --seed 1
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROCESS = """
import sys
import numpy as np
import onstream as ons
print("ready", flush=True)
for key in map(int, sys.argv[1:]):
    module = ons.Module(f"#define KEY {key}\\n__global__ void k(int* y) {{ y[0] = KEY; }}")
    y = np.full(1, -1, np.int32)
    module.k[1, 1](y)
    assert y[0] == key, (key, y)
"""
PROCESSES, KEYS = 4, 6
PATIENCE_S = 120  # nothing takes that long, unless it is stuck


def spoil(random: random.Random, folder: Path) -> str:
    """What happens to the folder meanwhile."""
    entries = sorted(folder.glob("*")) if folder.exists() else []
    kind = random.choice(("nothing", "bytes", "cut", "swap", "folder"))
    if kind == "folder":
        shutil.rmtree(folder, ignore_errors=True)
    elif kind != "nothing" and entries:
        entry = random.choice(entries)
        try:
            content = bytearray(entry.read_bytes())
            if kind == "swap":
                entry.write_bytes(random.choice(entries).read_bytes())
            elif kind == "cut":
                entry.write_bytes(content[: random.randrange(len(content) + 1)])
            elif content:
                for _ in range(random.randrange(1, 9)):
                    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
                entry.write_bytes(content)
        except OSError:
            pass  # gone, or removed meanwhile
    return kind


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    killed = lived = rounds = 0
    done: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "cache"
        environment = os.environ | {
            "ONSTREAM_CACHE_DIR": str(folder),
            "ONSTREAM_CPU_THREADS": "1",
            "TMPDIR": name,
        }
        while killed < options.kills:
            rounds += 1
            processes = [
                subprocess.Popen(
                    [sys.executable, "-c", PROCESS, *map(str, chance.sample(range(KEYS), 3))],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for _ in range(PROCESSES)
            ]
            for process in processes:
                assert process.stdout
                process.stdout.readline()
            *doomed, survivor = processes
            for process in doomed:
                time.sleep(chance.expovariate(8))
                kind = spoil(chance, folder)
                done[kind] = done.get(kind, 0) + 1
                process.send_signal(signal.SIGKILL)
            for process in processes:
                error = process.communicate(timeout=PATIENCE_S)[1]
                if process.returncode == -signal.SIGKILL and process is not survivor:
                    killed += 1
                    continue
                lived += 1
                if process.returncode:
                    print(f"seed {options.seed}, round {rounds}: {process.returncode}\n{error}")
                    return 1
    print(f"{killed} killed, {lived} lived, all of those right; meanwhile: {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
