"""What `compile` and `build` have in common: a source file and its options."""

from __future__ import annotations

import argparse
from pathlib import Path

import onstream as ons
from onstream.command import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FILE", help="CUDA C++ source")
    parser.add_argument(
        "-D", dest="defines", metavar="NAME[=VALUE]", action="append", default=[], help="a macro"
    )
    parser.add_argument(
        "-I", dest="includes", metavar="DIR", action="append", default=[], help="of headers"
    )
    parser.add_argument(
        "-O",
        "--option",
        dest="options",
        metavar="OPTION",
        action="append",
        default=[],
        help="any other option of the compiler, --option=--use_fast_math",
    )


def load(arguments: argparse.Namespace) -> ons.Module:
    path = Path(arguments.source)
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a source file")
    options = [f"-D{define}" for define in arguments.defines]
    options += [f"-I{folder}" for folder in arguments.includes]
    try:
        return ons.load(path, options=options + arguments.options)
    except TypeError:
        raise UserError(f"{path} is a bundle, not a source file") from None


def architectures(text: str) -> list[str]:
    return [arch.strip() for arch in text.split(",") if arch.strip()]
