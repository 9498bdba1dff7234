"""python -m onstream.testing.simgpu"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable

from onstream.testing.simgpu import mutations
from onstream.testing.simgpu.generate import generate
from onstream.testing.simgpu.machine import Machine, Violation, freeze
from onstream.testing.simgpu.program import Program


def failure(machine: Machine, program: Program) -> Violation | None:
    try:
        machine.run(program)
    except Violation as violation:
        return violation.with_traceback(None)
    return None


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Drops steps while it still fails."""
    steps = program.steps
    size = len(steps)
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if fails(Program(program.seed, fewer)):
                steps = fewer
            else:
                at += size
        size //= 2
    return Program(program.seed, steps)


def explain(machine: Machine, program: Program, violation: Violation) -> str:
    kind = violation.kind

    def fails(smaller: Program) -> bool:
        found = failure(machine, smaller)
        return found is not None and found.kind == kind

    shortest = shrink(program, fails)
    last = failure(machine, shortest) or f"(only in this process: {violation})"
    return (
        f"seed {program.seed}: {violation}\n\n{program.words()}\n\n"
        f"The shortest that fails alike:\n\n{shortest.words()}\n\n{last}\n"
    )


def run(first: int, count: int, verbose: bool, stop_at: int) -> int:
    machine = Machine()
    freeze()
    failed = 0
    started = time.monotonic()
    for seed in range(first, first + count):
        program = generate(seed)
        if verbose:
            print(f"seed {seed}\n{program.words()}\n", flush=True)
        violation = failure(machine, program)
        if violation is None:
            continue
        failed += 1
        print(explain(machine, program, violation), flush=True)
        if failed >= stop_at:
            break
    seconds = time.monotonic() - started
    done = seed - first + 1
    print(
        f"{done} programs from seed {first}, {failed} failed, "
        f"{1000 * seconds / max(done, 1):.2f} ms each"
    )
    return failed


def finish(failed: int) -> int:
    """After a failure what is left of the library is not worth an orderly end."""
    sys.stdout.flush()
    if failed:
        os._exit(1)
    return 0


def spread(first: int, count: int, jobs: int, stop_at: int) -> int:
    share = -(-count // jobs)
    commands = [
        [sys.executable, "-m", "onstream.testing.simgpu", "--from", str(first + i * share)]
        + ["--seeds", str(min(share, count - i * share)), "--stop-at", str(stop_at)]
        for i in range(jobs)
        if count > i * share
    ]
    running = [subprocess.Popen(command) for command in commands]
    return sum(process.wait() != 0 for process in running)


def main() -> int:
    parser = argparse.ArgumentParser("python -m onstream.testing.simgpu", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many programs")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--replay", type=int, metavar="SEED", help="one program, in words")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--stop-at", type=int, default=1, help="failures")
    parser.add_argument("-v", "--verbose", action="store_true", help="all programs in words")
    parser.add_argument("--mutations", action="store_true", help="leave out steps: all are seen?")
    parser.add_argument("--without", metavar="STEP", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.mutations:
        return bool(mutations.table(args.first, args.seeds, args.jobs))
    if args.without:
        return mutations.run_without(args.without, args.first, args.seeds)
    if args.replay is not None:
        return finish(run(args.replay, 1, True, 1))
    if args.jobs > 1:
        return bool(spread(args.first, args.seeds, args.jobs, args.stop_at))
    return finish(run(args.first, args.seeds, args.verbose, args.stop_at))
