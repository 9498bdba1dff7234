#!/usr/bin/env python3
"""onstream's own share of a first launch in a new process: wall time less the compiler's.

On the CPU the compiler is a child process: a stand-in for it notes when it began and
ended, and counts as part of it. On CUDA it is NVRTC: a stand-in forwards to it and adds
up the time, loading included. torch and its CUDA context are there before the clock
starts. The first row has no cache; the warm row is a process that finds the module in one."""

from __future__ import annotations

import argparse
import ctypes
import glob
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import measure
from measure import Limit

COUNT = 1024
SOURCE = r"""
__global__ void saxpy(float a, const float* x, float* y, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


def child(device: str) -> None:
    """One first launch; prints what it took as JSON."""
    import torch

    import onstream as ons

    x = torch.randn(COUNT, device=device)
    y = torch.zeros(COUNT, device=device)
    if device == "cuda":
        torch.cuda.synchronize()
    begin, begin_cpu = time.perf_counter_ns(), time.process_time_ns()
    ons.Module(SOURCE).saxpy[COUNT // 256, 256](2.0, x, y, COUNT)
    end, end_cpu = time.perf_counter_ns(), time.process_time_ns()
    if not bool((y == 2 * x).all()):
        raise SystemExit("the launch computed something else than 2 * x")
    compiler_ns = 0
    if device == "cuda" and not os.environ.get("ONSTREAM_CACHE_DIR"):
        shim = ctypes.CDLL(os.environ["ONSTREAM_NVRTC"])
        shim.bench_nvrtc_spent_ns.restype = ctypes.c_longlong
        compiler_ns = shim.bench_nvrtc_spent_ns()
    reported = {"begin": begin, "end": end, "compiler_ns": compiler_ns}
    print(json.dumps({**reported, "cpu_ns": end_cpu - begin_cpu}))


class HostCompiler:
    """Stands in for clang++ (or g++) under the name of the real one."""

    def __init__(self, folder: pathlib.Path):
        names = os.environ.get("ONSTREAM_HOST_COMPILER"), "clang++", "g++"
        real = next((path for name in names if name and (path := shutil.which(name))), None)
        if real is None:
            raise RuntimeError("no clang++ and no g++ here")
        self.real = real
        self.log = folder / "compiler.log"
        self.path = measure.compile_c(
            "timed_compiler.c",
            folder / pathlib.Path(real).name,
            "-static",  # starts faster
            f'-DREAL_COMPILER="{real}"',
            f'-DLOG_PATH="{self.log}"',
        )
        self.environment = {"ONSTREAM_HOST_COMPILER": str(self.path)}

    def take(self) -> list[tuple[int, int, list[str]]]:
        """(begin, end, arguments) of every run since the last call of this."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        runs = []
        for line in lines:
            times, *arguments = line.split("\t")
            begin, end = map(int, times.split())
            runs.append((begin, end, arguments))
        return runs

    def own_cost_ns(self) -> float:
        """What the stand-in adds outside of what it notes: its own start and exit."""
        quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        costs = []
        for _ in range(15):
            command = [str(self.path), "--version"]
            start = time.perf_counter_ns()
            child = os.posix_spawn(self.path, command, os.environ, file_actions=quiet)
            os.waitpid(child, 0)
            total = time.perf_counter_ns() - start
            begin, end, _ = self.take()[0]
            costs.append(total - (end - begin))
        return min(costs)  # what more it took by chance is not taken off

    def spent_ns(self, reported: dict[str, int]) -> float:
        runs = self.take()
        cost_ns = self.own_cost_ns()
        return sum(end - begin + cost_ns for begin, end, _ in runs)


class Nvrtc:
    """Stands in for libnvrtc."""

    def __init__(self, folder: pathlib.Path):
        real = pathlib.Path(self._find())
        builtins = sorted(real.parent.glob("libnvrtc-builtins.so*"))
        for path in builtins:  # they are looked for beside the library
            (folder / path.name).symlink_to(path)
        shim = measure.compile_c(
            "timed_nvrtc.c",
            folder / real.name,
            "-fPIC",
            "-shared",
            f'-DREAL_NVRTC="{real}"',
            f'-DREAL_BUILTINS="{builtins[0] if builtins else ""}"',
        )
        self.environment = {"ONSTREAM_NVRTC": str(shim)}

    @staticmethod
    def _find() -> str:
        if named := os.environ.get("ONSTREAM_NVRTC"):
            return named
        folders = [os.path.join(entry, "nvidia", "*", "lib") for entry in sys.path]
        for folder in [*folders, "/usr/local/cuda/lib64"]:
            found = sorted(glob.glob(os.path.join(folder, "libnvrtc.so.[0-9]*")))
            if found:
                return found[0]
        raise RuntimeError("no libnvrtc in the wheels' folders or the toolkit's")

    def spent_ns(self, reported: dict[str, int]) -> float:
        return reported["compiler_ns"]


def warm_ms(
    device: str, runs: int, environment: dict[str, str], folder: pathlib.Path
) -> list[float]:
    """First launches of processes that find the module in the cache."""
    environment = {**os.environ, **environment, "ONSTREAM_CACHE_DIR": str(folder)}
    command = [sys.executable, __file__, "--child", device]
    wall: list[float] = []
    for _ in range(runs + 1):
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        reported = json.loads(done.stdout.splitlines()[-1])
        wall.append((reported["end"] - reported["begin"]) / 1e6)
    return wall[1:]  # the first one filled it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--runs", type=int, default=7, help="processes (7)")
    parser.add_argument("--check", action="store_true", help="fail if the limit is not met")
    parser.add_argument("--child", choices=("cpu", "cuda"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    device = options.device
    if device == "auto":
        device = "cuda" if measure.has_gpu() else "cpu"

    machine = measure.machine()
    wall: list[float] = []
    compiler: list[float] = []
    processor: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        stand_in = Nvrtc(folder) if device == "cuda" else HostCompiler(folder)
        for _ in range(options.runs):
            done = subprocess.run(
                [sys.executable, __file__, "--child", device],
                env={**os.environ, **stand_in.environment, "ONSTREAM_CACHE_DIR": ""},
                stdout=subprocess.PIPE,
                text=True,
            )
            if done.returncode:
                return done.returncode
            reported = json.loads(done.stdout.splitlines()[-1])
            wall.append((reported["end"] - reported["begin"]) / 1e6)
            compiler.append(stand_in.spent_ns(reported) / 1e6)
            processor.append(reported["cpu_ns"] / 1e6)
            if compiler[-1] == 0:
                raise RuntimeError("the compiler's stand-in was not used")
        warm = warm_ms(device, options.runs, stand_in.environment, folder / "cache")
        if device == "cpu" and len(stand_in.take()) > 2:  # a look at it, and a compile
            raise RuntimeError("the compiler ran although its result was kept")

    own = [w - c for w, c in zip(wall, compiler, strict=True)]
    rows = [
        ("first launch", wall),
        ("inside the compiler", compiler),
        ("onstream's own share", own),
        ("first launch, warm cache", warm),
    ]
    if device == "cpu":  # on CUDA the compiler runs in this process
        rows.append(("processor time of its process", processor))
    lines = [[n, f"{min(v):.2f}", f"{statistics.median(v):.2f}"] for n, v in rows]
    where = machine["gpu"] if device == "cuda" else [machine["cpu"]]
    print(f"{options.runs} processes, {device}, on {', '.join(where)}\n")
    print(measure.table(["what", "min ms", "median ms"], lines))
    limits = [
        Limit("own share of a first launch, median", statistics.median(own), 2, "ms"),
        Limit("first launch with a warm cache, median", statistics.median(warm), 1, "ms"),
    ]
    result = {
        "machine": machine,
        "device": device,
        "runs": options.runs,
        "rows": [{"name": n, "min_ms": min(v), "median_ms": statistics.median(v)} for n, v in rows],
    }
    return measure.finish(options.json, result, limits, options.check)


if __name__ == "__main__":
    sys.exit(main())
