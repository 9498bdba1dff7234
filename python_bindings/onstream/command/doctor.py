"""What is here of drivers, devices, compilers and headers, and where it was found; of what is
missing, what was tried.

exit code: 0 when kernels can be compiled and run on some device, else 1
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import onstream as ons
from onstream import _core
from onstream.command import cache

NAME = "doctor"
HELP = "drivers, devices, compilers, headers, cache: what was found and where"

_CPU, _CUDA = 1, 2  # DLDeviceType
_NVRTC, _HEADERS, _HOST_COMPILER = 1, 2, 3  # ons_locate_what
_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CXX")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def _ask(what: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"found": what()}
    except ons.Error as error:
        return {"missing": str(error)}


def _host_compiler() -> str:
    command = _core._find(_HOST_COMPILER)
    done = subprocess.run(
        [*command.split(" "), "--version"], capture_output=True, text=True, timeout=30
    )
    first = (done.stdout.splitlines() or [""])[0]
    return f"{command} ({first})" if first else command


def _try_compiling(device: str) -> str:
    """A launch would need an array of the device; that it is compiled and loaded is enough."""
    ons.Module("__global__ void doctor(int* y) { *y = 1; }", name="doctor.cu").prepare(device)
    return "compiles and loads"


def examine() -> dict[str, Any]:
    environment = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("ONSTREAM_") or name in _VARIABLES
    }
    report: dict[str, Any] = {
        "onstream": ons.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "environment": environment,
        "cpu": _ask(lambda: _core._devices(_CPU)),
        "host compiler": _ask(_host_compiler),
        "cpu kernels": _ask(lambda: _try_compiling("cpu")),
        "gpus": _ask(lambda: _core._devices(_CUDA)),
        "nvrtc": _ask(lambda: _core._find(_NVRTC)),
        "cuda headers": _ask(lambda: _core._find(_HEADERS)),
        "cache": cache.state(),
    }
    if report["gpus"].get("found"):
        report["gpu kernels"] = _ask(lambda: _try_compiling("cuda"))
    return report


def _show(name: str, value: Any) -> None:
    if isinstance(value, dict) and "missing" in value:
        first, *rest = str(value["missing"]).splitlines()
        print(f"  --  {name}: {first}")
        for line in rest:
            print(f"        {line.strip()}")
    elif isinstance(value, dict) and "found" in value:
        found = value["found"]
        print(f"  ok  {name}: {', '.join(found) if isinstance(found, list) else found}")
    elif isinstance(value, dict):
        print(f"      {name}: {', '.join(f'{k}={v}' for k, v in value.items()) or '-'}")
    else:
        print(f"      {name}: {value}")


def run(arguments: argparse.Namespace) -> int:
    report = examine()
    if arguments.json:
        json.dump(report, sys.stdout, indent=2)
        print()
    else:
        for name, value in report.items():
            _show(name, value)
    works = any("found" in report.get(name, {}) for name in ("cpu kernels", "gpu kernels"))
    return 0 if works else 1
