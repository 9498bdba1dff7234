"""What the benches share: rows timed in turn, the machine, tables, JSON."""

from __future__ import annotations

import ctypes
import datetime
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
import timeit
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent

PACKAGES = (
    "onstream",
    "numpy",
    "torch",
    "jax",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "cuda-core",
    "cuda-bindings",
    "triton",
    "apache-tvm-ffi",
)


# ---- rows ------------------------------------------------------------------------------


class Row:
    """One line of a table. `batch(count)` makes so many calls and returns ns a call."""

    def __init__(self, name: str, batch: Callable[[int], float] | None, reason: str = ""):
        self.name = name
        self.batch = batch
        self.reason = reason  # why there are no figures
        self.samples: list[float] = []

    @property
    def min(self) -> float | None:
        return min(self.samples) if self.samples else None

    @property
    def median(self) -> float | None:
        return statistics.median(self.samples) if self.samples else None

    def drop(self, reason: str) -> None:
        self.batch, self.samples, self.reason = None, [], reason


def why(error: BaseException) -> str:
    """An exception as the text of a row without figures."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"


def python_row(name: str, statement: str, **names: Any) -> Row:
    """A row whose loop is in Python, as a user's. The names are local variables there; an
    empty statement shows what the loop costs."""
    setup = "; ".join(f"{n} = _names[{n!r}]" for n in names) or "pass"
    timer = timeit.Timer(statement, setup, timer=time.perf_counter_ns, globals={"_names": names})
    return Row(name, lambda count: timer.timeit(count) / count)


def c_row(name: str, call: Callable[[int], float]) -> Row:
    """A row whose loop and clock are in C; a negative result is an error code."""

    def batch(count: int) -> float:
        result = call(count)
        if result < 0:
            raise RuntimeError(f"the launch failed with code {-int(result)}")
        return result

    return Row(name, batch)


def interleave(
    rows: list[Row],
    batches: int,
    calls: int,
    synchronize: Callable[[], None] = lambda: None,
    warm_up: int = 3,
) -> None:
    """Every row once a round: what changes with time changes for all of them. Each round
    begins one row later, so that no row always follows the same one."""
    for round_ in range(-warm_up, batches):
        first = round_ % len(rows)
        for row in rows[first:] + rows[:first]:
            if row.batch is None:
                continue
            try:
                sample = row.batch(calls)
                synchronize()
            except Exception as error:
                row.drop(why(error))
                continue
            if round_ >= 0:
                row.samples.append(sample)


def ratio(row: Row, baseline: Row | None) -> float | None:
    """The median over the rounds of what a row took to what the baseline took."""
    if baseline is None or len(row.samples) != len(baseline.samples) or not row.samples:
        return None
    return statistics.median(a / b for a, b in zip(row.samples, baseline.samples, strict=True))


def above(row: Row, baseline: Row) -> float | None:
    """Ditto, for the difference in ns."""
    if len(row.samples) != len(baseline.samples) or not row.samples:
        return None
    return statistics.median(a - b for a, b in zip(row.samples, baseline.samples, strict=True))


# ---- limits ----------------------------------------------------------------------------


class Limit:
    """A promise about measured values."""

    def __init__(self, what: str, value: float | None, at_most: float, unit: str):
        self.what, self.value, self.at_most, self.unit = what, value, at_most, unit

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.value <= self.at_most

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "value": self.value,
            "at_most": self.at_most,
            "unit": self.unit,
            "met": self.met,
        }


# ---- the machine -----------------------------------------------------------------------


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def _arguments() -> list[str]:
    """The command line, without where the figures go."""
    hidden = sys.argv.index("--json") + 1 if "--json" in sys.argv else -1
    return ["FILE" if i == hidden else word for i, word in enumerate(sys.argv)]


def machine() -> dict[str, Any]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    query = "--query-gpu=name,driver_version"
    gpu = _output("nvidia-smi", query, "--format=csv,noheader")
    compilers = {}
    for compiler in ("clang++", "gcc"):
        version = _output(compiler, "--version")
        if version:
            compilers[compiler] = version.splitlines()[0]
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "gpu": gpu.splitlines() if gpu else [],
        "versions": versions,
        "compilers": compilers,
        "revision": _output("git", "-C", str(ROOT), "rev-parse", "HEAD"),
        "command": shlex.join([pathlib.Path(sys.executable).name, *_arguments()]),
    }


def has_gpu() -> bool:
    try:
        import torch

        return bool(torch.cuda.is_available())
    except ImportError:
        return False


# ---- output ----------------------------------------------------------------------------


def table(header: list[str], lines: list[list[str]]) -> str:
    """A Markdown table whose columns also line up as text."""
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]

    def render(cells: list[str]) -> str:
        rest = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)][1:]
        return "| " + " | ".join([cells[0].ljust(widths[0]), *rest]) + " |"

    rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    return "\n".join([render(header), render(rule), *(render(line) for line in lines)])


def row_table(rows: list[Row], baseline: Row | None) -> str:
    lines, missing = [], []
    for row in rows:
        if row.min is None or row.median is None:
            missing.append(f"* {row.name}: not measured. {row.reason}")
            continue
        over = ratio(row, baseline)
        lines.append(
            [
                row.name,
                f"{row.min:.0f}",
                f"{row.median:.0f}",
                "" if over is None else f"{over:.3f}",
            ]
        )
    text = table(["what", "min ns", "median ns", "ratio"], lines)
    if baseline is not None and baseline.samples:
        text += f"\n\nratio: median over the rounds, to '{baseline.name}'"
    return "\n".join([text, *([""] + missing if missing else [])])


def row_json(row: Row, baseline: Row | None) -> dict[str, Any]:
    return {
        "name": row.name,
        "min_ns": row.min,
        "median_ns": row.median,
        "ratio": ratio(row, baseline),
        "batches": len(row.samples),
        "reason": row.reason or None,
    }


def limit_table(limits: list[Limit]) -> str:
    def text(value: float | None, unit: str) -> str:
        return "not measured" if value is None else f"{value:.2f} {unit}".strip()

    verdict = {True: "yes", False: "NO", None: "-"}
    return table(
        ["limit", "measured", "at most", "met"],
        [[x.what, text(x.value, x.unit), text(x.at_most, x.unit), verdict[x.met]] for x in limits],
    )


def finish(path: str | None, result: dict[str, Any], limits: list[Limit], check: bool) -> int:
    """Prints the limits, writes the JSON; returns 1 for an unmet limit under `check`."""
    print("\n" + limit_table(limits))
    result["limits"] = [limit.as_json() for limit in limits]
    if path:
        pathlib.Path(path).write_text(json.dumps(result, indent=2) + "\n")
    return int(check and any(limit.met is not True for limit in limits))


# ---- compiled parts --------------------------------------------------------------------


def compile_c(source: str, output: pathlib.Path, *options: str) -> pathlib.Path:
    """Compiles a C file beside this one with the machine's own compiler, or raises."""
    compilers = os.environ.get("CC", ""), "cc", "gcc", "clang"
    command = [
        next(filter(shutil.which, compilers), "cc"),
        "-std=c11",
        "-D_GNU_SOURCE",
        "-O2",
        f"-I{ROOT}",
        f"-I{ROOT / 'include'}",
        *options,
        str(HERE / source),
        "-o",
        str(output),
        "-ldl",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise RuntimeError(f"no C compiler: {error}") from error
    if done.returncode:
        raise RuntimeError(f"{source} does not compile: {done.stderr.strip()[:400]}")
    return output


class Native:
    """launch_overhead.c: `.library` for ctypes, `.module` the extension or None."""

    def __init__(self, folder: pathlib.Path):
        path, shared = folder / "bench_native.so", ("-fPIC", "-shared")
        self.module, self.reason = None, ""
        include = sysconfig.get_path("include")
        try:
            compile_c("launch_overhead.c", path, *shared, f"-I{include}")
            spec = importlib.util.spec_from_file_location(
                "bench_native",
                loader=importlib.machinery.ExtensionFileLoader("bench_native", str(path)),
            )
            assert spec and spec.loader
            self.module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self.module)
        except (RuntimeError, ImportError) as error:  # no Python.h
            self.reason = why(error)
            path = folder / "bench_native_without_python.so"
            compile_c("launch_overhead.c", path, *shared, "-DBENCH_WITHOUT_PYTHON")
        self.library = library = ctypes.CDLL(str(path))
        pointer, text, unsigned = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint
        for name in ("bench_launch_kernel", "bench_launch_kernel_ex"):
            function = getattr(library, name)
            function.restype = ctypes.c_double
            function.argtypes = [
                pointer,
                pointer,
                ctypes.POINTER(pointer),
                unsigned,
                unsigned,
                pointer,
                ctypes.c_int,
            ]
        joined = library.bench_launch_joined
        joined.restype = ctypes.c_double
        joined.argtypes = [
            ctypes.POINTER(pointer),
            pointer,
            ctypes.POINTER(pointer),
            unsigned,
            unsigned,
            pointer,
            pointer,
            pointer,
            ctypes.c_int,
        ]
        library.bench_axpy_create.restype = pointer
        library.bench_axpy_create.argtypes = []
        library.bench_axpy_destroy.argtypes = [pointer]
        library.bench_axpy_destroy.restype = None
        library.bench_axpy_open.argtypes = [pointer, text, text, text]
        library.bench_axpy_open.restype = text
        library.bench_axpy_bind.argtypes = [
            pointer,
            ctypes.c_int,
            ctypes.POINTER(pointer),
            ctypes.c_int64,
            unsigned,
            unsigned,
            pointer,
        ]
        library.bench_axpy_bind.restype = text
        library.bench_axpy_launch.argtypes = [pointer, ctypes.c_int]
        library.bench_axpy_launch.restype = ctypes.c_double
        library.bench_empty.argtypes = [
            ctypes.c_float,
            pointer,
            pointer,
            ctypes.c_longlong,
        ]
        library.bench_empty.restype = None
