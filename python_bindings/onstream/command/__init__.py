"""The command line: `onstream`, also `python -m onstream`.

Each subcommand is a module beside this one with NAME, HELP, add_arguments(parser) and
run(arguments), which returns the exit code."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

import onstream as ons

SUBCOMMANDS = ("doctor", "compile", "build", "cache", "demo")
EPILOG = """exit codes: 0 well, 1 an error or something amiss, 2 wrong usage

examples:
  onstream doctor
  onstream compile kernels.cu --arch sm_90
  onstream build kernels.cu --arch sm_80,sm_90,x86-64-v3 -k 'scale<float>' -o kernels.onsb
  onstream cache info
"""


class UserError(Exception):
    """Shown as one line, without a traceback."""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="onstream",
        description="CUDA C++ kernels on other people's tensors: look around, compile, build.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"onstream {ons.__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in SUBCOMMANDS:
        module = importlib.import_module(f"onstream.command.{name}")
        subparser = subparsers.add_parser(
            module.NAME,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = make_parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
        return code
    except ons.CompileError as error:
        print(error.log or error, file=sys.stderr)
    except (UserError, ons.Error, OSError) as error:
        print(f"onstream: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("onstream: interrupted", file=sys.stderr)
    return 1
