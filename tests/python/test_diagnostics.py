"""What is said of compiles and launches: errors with their place, warnings, the trace."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import onstream as ons

CPU = pytest.mark.parametrize("compiler", ["clang++", "g++"])


def run(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if "UnavailableError" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    return done


@CPU
def test_an_error_shows_the_line_and_the_caret(compiler: str, tmp_path: Path) -> None:
    code = (
        "import onstream as ons\n"
        "source = '__global__ void k(int* y) {\\n  *y = no_such_thing;\\n}\\n'\n"
        "try:\n    ons.Module(source, name='my k.cu').k.prepare('cpu')\n"
        "except ons.CompileError as error:\n"
        "    print(error)\n    assert error.line == 2 and 'error' in error.log\n"
    )
    done = run(code, tmp_path, ONSTREAM_HOST_COMPILER=compiler)
    assert done.returncode == 0, done.stderr
    first, line, caret = done.stdout.splitlines()
    assert first.startswith("my k.cu:2: ") and "no_such_thing" in first
    assert "*y = no_such_thing;" in line
    assert caret.strip(" |~") == "^"
    assert caret.index("^") == line.index("no_such_thing")


def test_an_error_of_nvrtc_shows_them_too() -> None:
    source = "__global__ void k(int* y) {\n  *y = no_such_thing;\n}\n"
    try:
        ons.Module(source).bundle("sm_90")
    except ons.UnavailableError as error:
        pytest.skip(str(error))
    except ons.CompileError as error:
        first, line, caret = str(error).splitlines()
        assert first.startswith("kernel.cu:2: ") and "no_such_thing" in line
        assert caret.index("^") == line.index("no_such_thing")
    else:
        pytest.fail("it compiled")


def test_warnings_come_once() -> None:
    source = '#warning "mind the gap"\n__global__ void k(int* y) { *y = 1; }\n'
    module = ons.Module(source, name="warns.cu")
    y = np.zeros(1, np.int32)
    with pytest.warns(ons.CompileWarning, match=r"warns\.cu:1.*mind the gap") as caught:
        module.k[1, 1](y)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.k[1, 1](y)
        module.k.prepare("cpu")
        module.prepare("cpu")
        ons.Module("__global__ void quiet(int* y) { *y = 1; }").quiet[1, 1](y)


def test_warnings_that_are_errors_keep_the_kernel_from_running() -> None:
    module = ons.Module('#warning "stop"\n__global__ void k(int* y) { *y = 7; }\n')
    y = np.zeros(1, np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ons.CompileWarning)
        with pytest.raises(ons.CompileWarning, match="stop"):
            module.k[1, 1](y)
    assert y[0] == 0


LOGGED = """
import numpy as np, onstream as ons
y = np.zeros(1, np.int32)
for _ in range(2):
    ons.Module('__global__ void k(int* y) { *y = 1; }', name='k.cu').k[3, 2](y)
"""


def test_the_trace(tmp_path: Path) -> None:
    cache = {"ONSTREAM_CACHE_DIR": str(tmp_path / "cache")}
    lines = run(LOGGED, tmp_path, ONSTREAM_LOG="all", **cache).stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "onstream compile",
        "onstream cache",
        "onstream launch",
        "onstream launch",
    ]
    assert "k.cu for native" in lines[0] and " ms" in lines[0]
    assert lines[1].endswith("k.cu for native: kept")
    assert "k(int* y) on cpu, grid 3x1x1, block 2x1x1" in lines[2]
    again = run(LOGGED, tmp_path, ONSTREAM_LOG="cache,compile", **cache).stderr
    assert again.count("\n") == 1 and again.endswith("found\n")


@pytest.mark.parametrize("value", ["", "nonsense", "launc", ",,", "COMPILE"])
def test_no_trace(tmp_path: Path, value: str) -> None:
    assert run(LOGGED, tmp_path, ONSTREAM_LOG=value).stderr == ""
