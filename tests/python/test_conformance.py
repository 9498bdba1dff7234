"""The conformance set on the CPU: results next to those that a GPU computed and to plain NumPy."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

import nvrtc
import records
import references
import runner
import suite

ALL_BLOCKS = os.environ.get("ONS_TEST_ALL_BLOCKS") == "1"


@pytest.fixture(scope="module")
def failures() -> dict[Path, str]:
    return runner.prepare(suite.FILES, "cpu", os.cpu_count() or 1)


@pytest.mark.parametrize("case", suite.cases(), ids=lambda case: case.id)
def test_case(case: suite.Case, failures: dict[Path, str]) -> None:
    assert case.path not in failures, failures[case.path]
    known = records.recorded()
    first: Any = None
    for block in case.all_blocks() if ALL_BLOCKS else runner.usual_blocks(case):
        inputs = case.inputs(block)
        results = case.canonical(runner.launch(case, inputs, runner.Host()))
        if first is not None and not case.each:
            assert not (message := case.compare(results, first)), f"block {block}: {message}"
            continue
        first = results
        message = references.compare(case, inputs, results)
        assert not message, f"block {block}, the reference says: {message}"
        if known is not None and not known.why_not(case):
            message = known.compare(case, block, results)
            assert not message, f"block {block}, the GPU's results: {message}"


def test_all_is_recorded() -> None:
    known = records.recorded()
    if known is None:
        pytest.skip("nothing is recorded: tests/conformance/record, on a machine with a GPU")
    assert known.about["device"] != "cpu"
    missing = {case.id: reason for case in suite.cases() if (reason := known.why_not(case))}
    assert not missing, "tests/conformance/record has to run again"


@pytest.mark.skipif(bool(runner.SANITIZER), reason="NVRTC is not what is looked at")
@pytest.mark.parametrize("path", suite.FILES, ids=lambda path: path.stem)
def test_is_what_a_gpu_compiles(path: Path) -> None:
    library = nvrtc.load()
    if library is None:
        pytest.skip("no NVRTC: it comes with onstream[cuda13]")
    folders = nvrtc.include_folders()
    if not any((Path(folder) / "cuda_fp16.h").exists() for folder in folders):
        pytest.skip("NVRTC without CUDA's headers")
    assert not (log := nvrtc.compile(library, path, folders)), log


def test_every_declaration_is_read() -> None:
    declared = sum(path.read_text().count("// case:") for path in suite.FILES)
    assert len(suite.cases()) == declared >= 170
    names = {case.kernel for case in suite.cases()} | {case.id for case in suite.cases()}
    assert not set(references.REFERENCES) - names


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_units_in_the_last_place_are_counted(dtype: type) -> None:
    least = np.finfo(dtype).smallest_subnormal
    for value in (0.0, least, -least, 1.0, -1.5, 1400.4724965736966, np.finfo(dtype).max / 4):
        one = np.array([value], dtype)
        other = one.copy()
        for count in range(1, 5):
            other = np.nextafter(other, dtype(np.inf))
            off = [
                suite.differences(other, one, suite.Tolerance(ulp=n)).size
                for n in (count, count - 1)
            ]
            assert off == [0, 1], (value, count)
    apart = np.array([np.finfo(dtype).max], dtype)
    assert suite.differences(apart, -apart, suite.Tolerance(ulp=1000)).size == 1
    one = np.array([1.0], dtype)
    near = np.nextafter(one, dtype(2))
    for ulp, off in ((0, 1), (1, 0)):
        assert suite.differences(near, one, suite.Tolerance(ulp=ulp)).size == off
