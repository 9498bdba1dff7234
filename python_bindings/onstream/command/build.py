"""Compiles a source for several architectures into a bundle, which runs without a compiler.

example:
  onstream build kernels.cu --arch sm_80,sm_90,compute_90,x86-64-v3 -k 'scale<float>' -o k.onsb
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TextIO

import onstream as ons
from onstream import _core
from onstream.command import source

NAME = "build"
HELP = "compile ahead of time, into a bundle"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source.add_arguments(parser)
    parser.add_argument(
        "--arch",
        required=True,
        type=source.architectures,
        metavar="ARCH,...",
        help="sm_NN, compute_NN (PTX), x86-64, x86-64-v2, x86-64-v3, x86-64-v4, aarch64",
    )
    parser.add_argument(
        "-k",
        dest="kernels",
        metavar="NAME",
        action="append",
        default=[],
        help="an instance of a template, on top of the plain kernels",
    )
    parser.add_argument(
        "--source", dest="with_source", action="store_true", help="put the source in as well"
    )
    parser.add_argument("-o", dest="output", metavar="FILE", help="FILE.onsb beside the source")


def write(path: Path, data: bytes) -> None:
    """As a whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o666 & ~os.umask(os.umask(0o077)))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def compile_beside_each_other(
    module: ons.Module, arguments: argparse.Namespace, stream: TextIO
) -> None:
    """One architecture for each processor at a time, into the cache, out of which the bundle is then
    put together. A bar for who watches. Errors come up again there, in order."""
    total, done = len(arguments.arch), 0
    with ThreadPoolExecutor(min(total, len(os.sched_getaffinity(0)))) as pool:
        jobs = [
            pool.submit(module._bundle_log, [arch], arguments.kernels) for arch in arguments.arch
        ]
        for job in as_completed(jobs):
            job.exception()
            done += 1
            if stream.isatty():
                bar = "#" * (20 * done // total)
                stream.write(f"\r[{bar:20}] {done}/{total} architectures")
    if stream.isatty():
        stream.write("\n")


def run(arguments: argparse.Namespace) -> int:
    module = source.load(arguments)
    if len(arguments.arch) > 1 and _core._cache_path() is not None:
        compile_beside_each_other(module, arguments, sys.stderr)
    data = module.bundle(arguments.arch, arguments.kernels, source=arguments.with_source)
    output = Path(arguments.output or Path(arguments.source).with_suffix(".onsb"))
    write(output, data)
    print(f"{output}: {len(data)} bytes for {', '.join(arguments.arch)}")
    return 0
