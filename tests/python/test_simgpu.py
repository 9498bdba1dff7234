"""Runs simgpu_*.py in a process each whose CUDA driver is the stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


# Those with the simulated GPU's programs are for its scheduler, which test_simgpu_programs.py runs.
CASES = sorted(
    path.name
    for path in HERE.glob("simgpu_*.py")
    if "\ndef test_" in path.read_text() and path.name != "simgpu_programs_found.py"
)


@pytest.mark.parametrize("cases", CASES)
def test_cuda_on_the_stand_in_driver(cases: str) -> None:
    driver = os.environ.get("ONS_TEST_SIMGPU_PATH")
    if not driver:
        pytest.skip("ONS_TEST_SIMGPU_PATH does not name the stand-in driver")
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + ["-p", "no:randomly", "--tb=short", str(HERE / cases)],
        env={**os.environ, "ONSTREAM_CUDA_DRIVER": driver, "SIMGPU_DEVICES": "2"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
