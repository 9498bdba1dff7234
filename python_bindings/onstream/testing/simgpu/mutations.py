"""Can the programs fail? The library leaves out one step at a time, and they must notice."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from onstream import _core
from onstream.testing.simgpu.generate import generate
from onstream.testing.simgpu.machine import Machine, Violation, freeze

HOW_TO_BUILD = """\
This build of onstream cannot leave out steps. Configure one with -DONS_TEST_STEPS=ON (and
-DONS_BUILD_PYTHON=ON), and put the folder that it is installed to into PYTHONPATH."""


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(_core.__file__)
    if not hasattr(library, "ons_test_step_set"):
        raise SystemExit(HOW_TO_BUILD)
    for name in ("ons_test_step_name", "ons_test_step_words"):
        function = getattr(library, name)
        function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_size_t]
    return library


def steps() -> list[tuple[str, str]]:
    """Name, and what is done."""
    library = _library()
    found: list[tuple[str, str]] = []
    while library.ons_test_step_name(len(found)):
        index = len(found)
        words = library.ons_test_step_words(index).decode()
        found.append((library.ons_test_step_name(index).decode(), words))
    return found


def run_without(step: str, first: int, count: int) -> int:
    """In a process of its own: prints the first seed that notices, and what."""
    machine = Machine()
    freeze()
    if not _library().ons_test_step_set(step.encode(), 0):
        raise SystemExit(f"{step} is no step")
    progress = os.environ.get("ONS_TEST_PROGRESS")
    file = os.open(progress, os.O_WRONLY) if progress else -1
    for seed in range(first, first + count):
        if file >= 0:
            os.pwrite(file, f"{seed:10}".encode(), 0)
        try:
            machine.run(generate(seed))
        except Violation as violation:
            print(f"{seed} {violation.kind}", flush=True)
            os._exit(1)  # what is left of the library is broken
    return 0


@dataclass
class Outcome:
    step: str
    words: str
    seed: int | None
    kind: str


def try_step(step: str, words: str, first: int, count: int) -> Outcome:
    with tempfile.NamedTemporaryFile("w+") as progress:
        command = [sys.executable, "-m", "onstream.testing.simgpu", "--without", step]
        command += ["--from", str(first), "--seeds", str(count)]
        environment = {**os.environ, "ONS_TEST_PROGRESS": progress.name}
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
        if result.returncode == 0:
            return Outcome(step, words, None, "NOT SEEN")
        if result.returncode == 1 and result.stdout:
            seed, _, kind = result.stdout.strip().partition(" ")
            return Outcome(step, words, int(seed), kind)
        seed = progress.read().strip()
        last = result.stderr.strip().splitlines()
        kind = f"died: {last[-1][:60]}" if last else f"died: {result.returncode}"
        return Outcome(step, words, int(seed) if seed else None, kind)


def table(first: int, count: int, jobs: int) -> int:
    """Prints it; how many steps went unseen."""
    unseen = 0
    with ThreadPoolExecutor(jobs) as pool:
        pending = [pool.submit(try_step, name, words, first, count) for name, words in steps()]
        print(f"{'left out':20} {'programs':>8}  {'seen as':32} what the step does")
        for future in pending:
            outcome = future.result()
            unseen += outcome.seed is None
            after = "-" if outcome.seed is None else str(outcome.seed - first + 1)
            print(f"{outcome.step:20} {after:>8}  {outcome.kind:32} {outcome.words}", flush=True)
    print(f"{len(pending)} steps, {unseen} unseen in {count} programs")
    return unseen
