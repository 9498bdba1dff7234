"""Compiles one source for one architecture and shows what its kernels are and use.

examples:
  onstream compile kernels.cu                      for the GPU that is here, else the CPU
  onstream compile kernels.cu --arch sm_90         without a GPU
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any

import onstream as ons
from onstream import _core
from onstream.command import UserError, source

NAME = "compile"
HELP = "compile one file: its kernels' signatures, registers and the log"

_CUDA = 2  # kDLCUDA
_ENTRY = re.compile(r"Compiling entry function '(\S+)'")
_USAGE = {
    "registers": re.compile(r"Used (\d+) registers"),
    "static_shared_bytes": re.compile(r"(\d+) bytes smem"),
    "local_bytes": re.compile(r"(\d+) bytes stack frame"),
}
_VERBOSE = re.compile(r"^(?:\S+: )?ptxas .*\n?", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source.add_arguments(parser)
    parser.add_argument("--arch", metavar="ARCH", help="sm_NN, compute_NN or a CPU's level")
    parser.add_argument(
        "-k",
        dest="kernels",
        metavar="NAME",
        action="append",
        default=[],
        help="an instance of a template, on top of the plain kernels",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def _has_gpu() -> bool:
    try:
        return bool(_core._devices(_CUDA))
    except ons.Error:
        return False


def _plain_kernels(module: ons.Module) -> list[str]:
    names = []
    for name in sorted(set(dir(module)) - set(dir(ons.Module))):
        try:
            module[name]
        except ons.NotFoundError:
            continue  # a template
        names.append(name)
    return names


def _for_device(arguments: argparse.Namespace) -> dict[str, Any]:
    module = source.load(arguments)
    device = "cuda" if _has_gpu() else "cpu"
    log = module.prepare(device)
    kernels = []
    for name in [*_plain_kernels(module), *arguments.kernels]:
        kernel = module[name]
        kernel.prepare(device)
        kernels.append({"signature": kernel.signature, **kernel.attributes(device)})
    return {"for": device, "kernels": kernels, "log": log}


def _for_architecture(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.arch.startswith("sm_"):
        arguments.options.append("--ptxas-options=-v")
    log = source.load(arguments)._bundle_log(arguments.arch, arguments.kernels)
    kernels = []
    for part in re.split(r"(?=Compiling entry function)", log)[1:]:
        entry = _ENTRY.match(part)
        assert entry
        numbers = {key: pattern.search(part) for key, pattern in _USAGE.items()}
        usage = {key: int(found[1]) if found else 0 for key, found in numbers.items()}
        if "ons_sig" not in entry[1]:  # the one that carries a signature
            kernels.append({"signature": entry[1], **usage})
    return {"for": arguments.arch, "kernels": kernels, "log": _VERBOSE.sub("", log)}


def run(arguments: argparse.Namespace) -> int:
    result = _for_architecture(arguments) if arguments.arch else _for_device(arguments)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return 0
    if result["log"]:
        print(result["log"].rstrip(), file=sys.stderr)
    print(f"{arguments.source} for {result['for']}")
    for kernel in result["kernels"]:
        print(f"  {kernel['signature']}")
        used = {key: value for key, value in kernel.items() if key != "signature" and value}
        print("    " + (", ".join(f"{key} {value}" for key, value in used.items()) or "-"))
    if not result["kernels"] and not arguments.arch:
        raise UserError("no kernels were found: is one declared __global__?")
    return 0
