#!/usr/bin/env python3
"""Host time of one launch: onstream, the bare driver and other libraries, in one process.

On a GPU: saxpy of 1024 floats, on a side stream and on the default stream. Without one: a
kernel that does nothing, on CPU tensors. See README.md beside this file."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import glob
import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import measure
from measure import Limit, Row, c_row, python_row, why
from peers import EMPTY_LIKE, PEERS, SAXPY, TVM_FFI, Case, Peer, set_cupy_stream

COUNT, BLOCK = 1024, 256
GRID = COUNT // BLOCK
CPU, CUDA = 1, 2  # DLPack's device types

EMPTY = r"""
__global__ void empty(float a, const float* x, float* y, long long n) {}
__global__ void empty3(float a, const float* x, const float* y, float* out,
                       long long n) {}
"""

LOOP = "the loop itself, in Python"
EXTENSION = "empty C extension call (METH_FASTCALL)"
LEAST = "f(2.0, x, y, n) in C: exchange table and cuLaunchKernel, no checks"
DRIVER = "cuLaunchKernel, C loop"
DRIVER_EX = "cuLaunchKernelEx, C loop"
DRIVER_EX3 = "cuLaunchKernelEx, C loop, three pointers"
HOISTED = "onstream f(2.0, x, y, n), f = k[g, b]"
OUT = "onstream f(2.0, x, y, out, n), f = k[g, b]"
LIKE = "onstream f(2.0, x, y, like(x), n), f = k[g, b]"
GENERIC = "onstream f(2.0, x, y, n), f = generic[g, b]"
DRIVER_JOINED = "cuLaunchKernelEx and a join with another stream, C loop"
JOINED = "onstream f(2.0, x, y, n), f = k[g, b, 0, another stream]: joined"
C_API = "onstream C API, three tensors, C loop"


# On a GPU every other row leaves 2 * x + y in y.
UNCHECKED = {LOOP, EXTENSION, DRIVER_EX3, DRIVER_JOINED, C_API, OUT, LIKE, EMPTY_LIKE}


def attempt(name: str, build: Callable[[], Row]) -> Row:
    try:
        return build()
    except Exception as error:
        return Row(name, None, why(error))


# ---- rows of both kinds of machine -----------------------------------------------------


def base_rows(native: measure.Native, x: Any, y: Any) -> list[Row]:
    rows = [python_row(LOOP, "pass")]
    if native.module is None:
        return [*rows, Row(EXTENSION, None, native.reason)]
    f = native.module.empty
    return [*rows, python_row(EXTENSION, "f(2.0, x, y, n)", f=f, x=x, y=y, n=COUNT)]


def generic_row(source: str, kernel: str, names: dict[str, Any]) -> Row:
    """The same kernel as a template, whose instance each call finds."""
    import onstream as ons

    text = source[source.index(f"__global__ void {kernel}(") :].split("__global__")[1]
    text = text[: text.rindex("}") + 1].replace("float*", "T*")
    template = "template <typename T> __global__" + text
    f = ons.Module(template).generic(f"{kernel}<T>")[names["g"], BLOCK]
    return python_row(GENERIC, "f(2.0, x, y, n)", **{**names, "f": f})


def onstream_rows(
    source: str, two: str, three: str, grid: int, tensors: dict[str, Any]
) -> list[Row]:
    """The kernel `two` on two tensors and `three` on three."""
    import onstream as ons

    module = ons.Module(source)
    k, k3 = module[two], module[three]
    names = {"k": k, "g": grid, "b": BLOCK, "n": COUNT, **tensors}
    hoisted = {**names, "f": k[grid, BLOCK]}
    hoisted3 = {**names, "f": k3[grid, BLOCK], "like": ons.like}
    return [
        python_row(HOISTED, "f(2.0, x, y, n)", **hoisted),
        generic_row(source, two, names),
        python_row("onstream k[g, b](2.0, x, y, n)", "k[g, b](2.0, x, y, n)", **names),
        python_row(
            "onstream k.launch((2.0, x, y, n), grid=g, block=b)",
            "k.launch((2.0, x, y, n), grid=g, block=b)",
            **names,
        ),
        python_row(OUT, "f(2.0, x, y, out, n)", **hoisted3),
        python_row(
            LIKE,
            "f(2.0, x, y, like(x), n)",
            **hoisted3,
        ),
    ]


def onstream_array_row(library: str, source: str, two: str, grid: int, x: Any, y: Any) -> Row:
    import onstream as ons

    name = f"onstream f(2.0, x, y, n), {library} arrays"
    f = ons.Module(source)[two][grid, BLOCK]
    return python_row(name, "f(2.0, x, y, n)", f=f, x=x, y=y, n=COUNT)


class CApi:
    """The onstream library at `path`, called from C."""

    def __init__(self, native: measure.Native, path: str | None, source: str, kernel: str):
        if path is None:
            raise RuntimeError("not given; name the shared library with --lib")
        self._library = native.library
        self._axpy = self._library.bench_axpy_create()
        self._raise(
            self._library.bench_axpy_open(
                self._axpy, os.fsencode(path), source.encode(), kernel.encode()
            )
        )

    def _raise(self, message: bytes | None) -> None:
        if message is not None:
            raise RuntimeError(message.decode(errors="replace"))

    def row(self, device_type: int, tensors: list[Any], grid: int, stream: int) -> Row:
        pointers = (ctypes.c_void_p * 3)(*[t.data_ptr() for t in tensors])
        self._raise(
            self._library.bench_axpy_bind(
                self._axpy, device_type, pointers, COUNT, grid, BLOCK, stream
            )
        )
        return c_row(C_API, lambda n: self._library.bench_axpy_launch(self._axpy, n))

    def __del__(self) -> None:
        if getattr(self, "_axpy", None):
            self._library.bench_axpy_destroy(self._axpy)


# ---- the bare driver -------------------------------------------------------------------


def nvrtc() -> ctypes.CDLL:
    """Any NVRTC: the kernels are compiled before anything is timed."""
    folders = [os.path.dirname(os.environ.get("ONSTREAM_NVRTC", ""))]
    with contextlib.suppress(Exception):
        from cuda.pathfinder import load_nvidia_dynamic_lib

        folders.append(os.path.dirname(load_nvidia_dynamic_lib("nvrtc").abs_path))
    for entry in sys.path:
        folders += glob.glob(os.path.join(entry, "nvidia", "*", "lib"))
    folders += ["/usr/local/cuda/lib64"]
    for folder in filter(None, folders):
        for builtins in glob.glob(os.path.join(folder, "libnvrtc-builtins.so*")):
            with contextlib.suppress(OSError):
                ctypes.CDLL(builtins, ctypes.RTLD_GLOBAL)
        for path in sorted(glob.glob(os.path.join(folder, "libnvrtc.so.[0-9]*"))):
            with contextlib.suppress(OSError):
                return ctypes.CDLL(path)
    return ctypes.CDLL("libnvrtc.so")


def cubin(source: str, architecture: str) -> bytes:
    library = nvrtc()

    def call(function: str, *args: Any) -> None:
        code = getattr(library, function)(*args)
        if code:
            raise RuntimeError(f"{function} returned {code}")

    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    call(
        "nvrtcCreateProgram",
        ctypes.byref(program),
        source.encode(),
        b"b.cu",
        0,
        None,
        None,
    )
    call("nvrtcCompileProgram", program, 1, options)
    call("nvrtcGetCUBINSize", program, ctypes.byref(size))
    image = ctypes.create_string_buffer(size.value)
    call("nvrtcGetCUBIN", program, image)
    return image.raw


class Driver:
    """Kernels loaded into the current (torch's) context through the driver alone."""

    def __init__(self, native: measure.Native, source: str, architecture: str):
        self._native = native.library
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._module = ctypes.c_void_p()
        self._check(
            self._cuda.cuModuleLoadData(ctypes.byref(self._module), cubin(source, architecture)),
            "cuModuleLoadData",
        )

    def _check(self, code: int, what: str) -> None:
        if code:
            raise RuntimeError(f"{what} returned {code}")

    def function(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._check(
            self._cuda.cuModuleGetFunction(ctypes.byref(function), self._module, name.encode()),
            "cuModuleGetFunction",
        )
        return function

    def joined_row(self, tensors: list[Any], stream: int) -> Row:
        """The driver's own price of a join: two queries, records and waits."""
        other, event = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._cuda.cuStreamCreate(ctypes.byref(other), 1), "cuStreamCreate")
        self._check(self._cuda.cuEventCreate(ctypes.byref(event), 2), "cuEventCreate")
        names = ("cuLaunchKernelEx", "cuStreamIsCapturing", "cuEventRecord", "cuStreamWaitEvent")
        addresses = [ctypes.cast(getattr(self._cuda, n), ctypes.c_void_p).value for n in names]
        entries = (ctypes.c_void_p * len(names))(*addresses)
        values = [
            ctypes.c_float(2),
            *[ctypes.c_void_p(t.data_ptr()) for t in tensors],
            ctypes.c_longlong(COUNT),
        ]
        parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        function, loop = self.function("saxpy"), self._native.bench_launch_joined

        def call(count: int, _alive: Any = values) -> float:
            return loop(entries, function, parameters, GRID, BLOCK, stream, other, event, count)

        return c_row(DRIVER_JOINED, call)

    def row(self, name: str, kernel: str, tensors: list[Any], stream: int) -> Row:
        """`name` begins with the driver's function."""
        entry = name.split(",")[0]
        loops = {
            "cuLaunchKernel": self._native.bench_launch_kernel,
            "cuLaunchKernelEx": self._native.bench_launch_kernel_ex,
        }
        values = [
            ctypes.c_float(2),
            *[ctypes.c_void_p(t.data_ptr()) for t in tensors],
            ctypes.c_longlong(COUNT),
        ]
        parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        address = ctypes.cast(getattr(self._cuda, entry), ctypes.c_void_p)
        function, loop = self.function(kernel), loops[entry]

        def call(count: int, _alive: Any = values) -> float:
            return loop(address, function, parameters, GRID, BLOCK, stream, count)

        return c_row(name, call)


# ---- sections --------------------------------------------------------------------------


class Section:
    def __init__(self, name: str, baseline: str):
        self.name, self.rows = name, []  # type: str, list[Row]
        self._baseline = baseline

    @property
    def baseline(self) -> Row | None:
        return self.row(self._baseline)

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)

    def over(self, name: str, base: str) -> tuple[float | None, float | None]:
        """(ratio, difference in ns) of two rows, each the median over the rounds."""
        row, other = self.row(name), self.row(base)
        if row is None or other is None:
            return None, None
        return measure.ratio(row, other), measure.above(row, other)

    def as_json(self) -> dict[str, Any]:
        baseline = self.baseline
        return {
            "name": self.name,
            "baseline": self._baseline,
            "rows": [measure.row_json(row, baseline) for row in self.rows],
        }


def cpu_section(native: measure.Native, lib: str | None, batches: int, calls: int) -> Section:
    section = Section("CPU, a kernel that does nothing, one block", EXTENSION)
    try:
        import torch

        x, y, out = (torch.randn(COUNT) for _ in range(3))
    except ImportError as error:
        section.rows.append(Row("torch", None, why(error)))
        return section
    rows = section.rows
    rows += base_rows(native, x, y)
    pointers = x.data_ptr(), y.data_ptr()
    rows.append(
        python_row(
            "empty C function by ctypes, pointers taken before",
            "f(2.0, x, y, n)",
            f=native.library.bench_empty,
            x=pointers[0],
            y=pointers[1],
            n=COUNT,
        )
    )
    rows.append(python_row("torch y.add_(x, alpha=2)", "f(x, alpha=2.0)", f=y.add_, x=x))
    rows.append(python_row(EMPTY_LIKE, "f(x)", f=torch.empty_like, x=x))
    tensors = {"x": x, "y": y, "out": out}
    try:
        rows += onstream_rows(EMPTY, "empty", "empty3", 1, tensors)
    except Exception as error:
        rows.append(Row(HOISTED, None, why(error)))
    rows.append(
        attempt(
            "onstream f(2.0, x, y, n), NumPy arrays",
            lambda: onstream_array_row("NumPy", EMPTY, "empty", 1, x.numpy(), y.numpy()),
        )
    )
    rows.append(
        attempt(
            C_API,
            lambda: CApi(native, lib, EMPTY, "empty3").row(CPU, [x, y, out], 1, 0),
        )
    )
    measure.interleave(rows, batches, calls)
    return section


def check(row: Row, case: Case, synchronize: Callable[[], None]) -> None:
    """One call whose result is compared; a row that computes something else goes."""
    if row.batch is None or row.name in UNCHECKED:
        return
    try:
        case.y.zero_()
        synchronize()
        row.batch(1)
        synchronize()
        if not bool((case.y == 2 * case.x).all()):
            row.drop("computes something else than 2 * x + y")
    except Exception as error:
        row.drop(why(error))


def driver_rows(native: measure.Native, case: Case, out: Any, architecture: str) -> list[Row]:
    try:
        driver = Driver(native, SAXPY, architecture)
    except Exception as error:
        names = (DRIVER, DRIVER_EX, LEAST, DRIVER_EX3, DRIVER_JOINED)
        return [Row(name, None, why(error)) for name in names]
    two, three = [case.x, case.y], [case.x, case.y, out]

    def least() -> Row:
        if native.module is None:
            return Row(LEAST, None, native.reason)
        entry = ctypes.cast(driver._cuda.cuLaunchKernel, ctypes.c_void_p).value
        function = driver.function("saxpy").value
        table = type(case.x).__dlpack_c_exchange_api__
        native.module.least_set(entry, function, GRID, BLOCK, table)
        f = native.module.least
        return python_row(LEAST, "f(2.0, x, y, n)", f=f, x=case.x, y=case.y, n=COUNT)

    return [
        attempt(DRIVER, lambda: driver.row(DRIVER, "saxpy", two, case.stream)),
        attempt(DRIVER_EX, lambda: driver.row(DRIVER_EX, "saxpy", two, case.stream)),
        attempt(LEAST, least),
        attempt(DRIVER_JOINED, lambda: driver.joined_row(two, case.stream)),
        attempt(DRIVER_EX3, lambda: driver.row(DRIVER_EX3, "axpy", three, case.stream)),
    ]


def joined_row(case: Case, torch: Any) -> Row:
    """The arrays' stream and the launch's wait for each other, on the device."""
    import onstream as ons

    other = torch.cuda.Stream()
    f = ons.Module(SAXPY)["saxpy"][GRID, BLOCK, 0, other]
    return python_row(JOINED, "f(2.0, x, y, n)", f=f, x=case.x, y=case.y, n=COUNT)


def cupy_arrays_row(case: Case) -> Row:
    import cupy

    set_cupy_stream(case)
    x, y = cupy.from_dlpack(case.x), cupy.from_dlpack(case.y)
    return onstream_array_row("CuPy", SAXPY, "saxpy", GRID, x, y)


def peer_row(peer: Peer, case: Case) -> Row:
    statement, names = peer.build(case)
    return python_row(peer.name, statement, **names)


def gpu_section(
    native: measure.Native,
    lib: str | None,
    side: bool,
    batches: int,
    calls: int,
    peers: list[Peer],
) -> Section:
    import torch

    section = Section("side stream" if side else "default stream", DRIVER)
    rows = section.rows
    major, minor = torch.cuda.get_device_capability()
    stream = torch.cuda.Stream() if side else torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        x, y, out = (torch.randn(COUNT, device="cuda") for _ in range(3))
        case = Case(x, y, COUNT, GRID, BLOCK, stream.cuda_stream)
        rows += base_rows(native, x, y)
        rows += driver_rows(native, case, out, f"sm_{major}{minor}")
        rows.append(
            attempt(
                C_API,
                lambda: CApi(native, lib, SAXPY, "axpy").row(CUDA, [x, y, out], GRID, case.stream),
            )
        )
        try:
            tensors = {"x": x, "y": y, "out": out}
            rows += onstream_rows(SAXPY, "saxpy", "axpy", GRID, tensors)
        except Exception as error:
            rows.append(Row(HOISTED, None, why(error)))
        rows.append(attempt(JOINED, lambda: joined_row(case, torch)))
        rows.append(attempt("onstream f(2.0, x, y, n), CuPy arrays", lambda: cupy_arrays_row(case)))
        for peer in peers:
            rows.append(attempt(peer.name, lambda peer=peer: peer_row(peer, case)))
        for row in rows:
            check(row, case, torch.cuda.synchronize)
        measure.interleave(rows, batches, calls, torch.cuda.synchronize)
        with contextlib.suppress(Exception):
            sys.modules["cupy"].cuda.Stream.null.use()
    return section


def output_limit(section: Section) -> Limit:
    """An output against what a user would write without: torch's empty_like, and a launch."""
    rows = [row for row in map(section.row, (LIKE, OUT, EMPTY_LIKE)) if row is not None]
    rounds = zip(*[row.samples for row in rows], strict=True) if len(rows) == 3 else []
    ratios = [like / (out + empty) for like, out, empty in rounds]
    ratio = statistics.median(ratios) if ratios else None
    return Limit("Python, like(x), over empty_like and a launch", ratio, 1.15, "x")


def gpu_limits(side: Section) -> list[Limit]:
    ratio, _ = side.over(HOISTED, DRIVER)
    _, over_ex = side.over(HOISTED, DRIVER_EX)
    _, c_over_ex = side.over(C_API, DRIVER_EX3)
    _, join = side.over(JOINED, HOISTED)
    _, generic = side.over(GENERIC, HOISTED)
    return [
        Limit("Python, side stream, over the cuLaunchKernel loop", ratio, 1.08, "x"),
        Limit("Python, side stream, above the cuLaunchKernelEx loop", over_ex, 350, "ns"),
        Limit("C API, side stream, above the cuLaunchKernelEx loop", c_over_ex, 100, "ns"),
        Limit("Python, a second stream joined, above one stream", join, 1200, "ns"),
        Limit("Python, a generic kernel, above a plain one", generic, 20, "ns"),
        output_limit(side),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--lib", metavar="FILE", help="libonstream.so, for the C API row")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--batches", type=int, default=200, help="rounds (200)")
    parser.add_argument("--calls", type=int, default=200, help="calls a batch (200)")
    parser.add_argument("--no-tvm-ffi", action="store_true", help="needs nvcc and seconds")
    parser.add_argument("--check", action="store_true", help="fail if a limit is not met")
    options = parser.parse_args()
    device = options.device
    if device == "auto":
        device = "cuda" if measure.has_gpu() else "cpu"

    machine = measure.machine()
    with tempfile.TemporaryDirectory() as folder:
        native = measure.Native(pathlib.Path(folder))
        counts = options.batches, options.calls
        if device == "cuda":
            peers = [p for p in PEERS if not (options.no_tvm_ffi and p.name == TVM_FFI)]
            sections = [
                gpu_section(native, options.lib, side, *counts, peers) for side in (True, False)
            ]
            limits = gpu_limits(sections[0])
        else:
            sections = [cpu_section(native, options.lib, *counts)]
            _, over = sections[0].over(HOISTED, EXTENSION)
            _, generic = sections[0].over(GENERIC, HOISTED)
            limits = [
                Limit("Python, above an empty C extension call", over, 300, "ns"),
                Limit("Python, a generic kernel, above a plain one", generic, 20, "ns"),
            ]

    print(
        f"Host time of a call, {options.batches} batches of {options.calls}, on "
        f"{', '.join(machine['gpu'] if device == 'cuda' else [machine['cpu']])}"
    )
    for section in sections:
        print(f"\n## {section.name}\n")
        print(measure.row_table(section.rows, section.baseline))
    result = {
        "machine": machine,
        "batches": options.batches,
        "calls": options.calls,
        "sections": [section.as_json() for section in sections],
    }
    return measure.finish(options.json, result, limits, options.check)


if __name__ == "__main__":
    sys.exit(main())
