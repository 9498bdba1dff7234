"""Random programs, and those with a name, in processes whose CUDA driver is simulated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
PROGRAMS = 5000


@pytest.fixture
def environment(producer_module: ModuleType) -> dict[str, str]:
    driver = os.environ.get("ONS_TEST_SIMGPU_PATH")
    if not driver:
        pytest.skip("ONS_TEST_SIMGPU_PATH does not name the simulated GPU")
    assert producer_module.__file__ is not None
    return {**os.environ, "ONS_TEST_PRODUCER_PATH": producer_module.__file__}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )


def test_random_programs(environment: dict[str, str]) -> None:
    result = run(environment, "onstream.testing.simgpu", "--seeds", str(PROGRAMS), "--jobs", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    counts = [int(n) for n in re.findall(r"(\d+) programs from", result.stdout)]
    assert sum(counts) == PROGRAMS, result.stdout


def test_named_programs(environment: dict[str, str]) -> None:
    result = run(
        environment, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly",
        "--tb=short", str(HERE / "simgpu_programs_found.py"),
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout


def test_one_program_in_words(environment: dict[str, str]) -> None:
    result = run(environment, "onstream.testing.simgpu", "--replay", "7")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "make " in result.stdout and "1 programs from seed 7, 0 failed" in result.stdout


def test_what_is_missing_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    for name, text in (("ONS_TEST_SIMGPU_PATH", "cmake"), ("ONS_TEST_PRODUCER_PATH", "producer.c")):
        result = run({**environment, name: ""}, "onstream.testing.simgpu", "--seeds", "1")
        assert result.returncode != 0 and text in result.stderr, result.stderr
