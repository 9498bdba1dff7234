"""Compilers that crash or never end: the simulated GPU, and stand-ins for NVRTC."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onstream as ons

ROOT = Path(__file__).parents[2]
DRIVER = os.environ.get("ONS_TEST_SIMGPU_PATH", "")
SOURCE = "__global__ void scale(float a, float* x) { x[threadIdx.x] *= a; }"
STAND_IN = r"""
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#define EXPORT __attribute__((visibility("default")))
EXPORT int nvrtcVersion(int* major, int* minor) { *major = 13; *minor = 0; return 0; }
EXPORT int nvrtcGetNumSupportedArchs(int* count) { *count = 1; return 0; }
EXPORT int nvrtcGetSupportedArchs(int* archs) { *archs = 90; return 0; }
EXPORT const char* nvrtcGetErrorString(int code) { (void)code; return "none"; }
EXPORT int nvrtcCreateProgram(void** program) { *program = program; return 0; }
EXPORT int nvrtcDestroyProgram(void** program) { (void)program; return 0; }
EXPORT int nvrtcAddNameExpression(void* program) { (void)program; return 0; }
EXPORT int nvrtcCompileProgram(void* program) { (void)program; MISBEHAVE; return 6; }
#define EMPTY(name) EXPORT int name(void* program, size_t* size) { (void)program; *size = 0; return 0; }
EMPTY(nvrtcGetCUBINSize) EMPTY(nvrtcGetPTXSize) EMPTY(nvrtcGetProgramLogSize)
EXPORT int nvrtcGetCUBIN(void) { return 0; }
EXPORT int nvrtcGetPTX(void) { return 0; }
EXPORT int nvrtcGetProgramLog(void) { return 0; }
EXPORT int nvrtcGetLoweredName(void) { return 0; }
"""

needs_driver = pytest.mark.skipif(not DRIVER, reason="ONS_TEST_SIMGPU_PATH names no driver")


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "ONSTREAM_CUDA_DRIVER": DRIVER, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def stand_in(tmp_path: Path) -> Any:
    def build(misbehave: str) -> str:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            pytest.skip("no C compiler here")
        source, library = tmp_path / "stand_in.c", tmp_path / "libnvrtc.so.13"
        source.write_text(STAND_IN)
        define = f"-DMISBEHAVE={misbehave}"
        options = ["-shared", "-fPIC", "-fvisibility=hidden", "-w", define]
        subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True)
        return str(library)

    return build


@needs_driver
@pytest.mark.parametrize(
    ("misbehave", "words"),
    [
        ("abort()", "crashed (signal 6"),
        ("raise(SIGSEGV)", "crashed (signal 11"),
        ("*(volatile int*)0=0", "crashed (signal 11"),
        ("_exit(3)", "ended with code 3 and no answer"),
        ("exit(0)", "ended with code 0 and no answer"),
        ("for(;;)pause()", "did not end within 700 ms"),
        ("for(;;)", "did not end within 700 ms"),
    ],
)
def test_it_takes_nothing_along(stand_in: Any, misbehave: str, words: str) -> None:
    library = stand_in(misbehave)
    done = run(
        f"""
        import onstream as ons
        for _ in range(2):
            try:
                ons.Module({SOURCE!r}, isolate=True, timeout=0.7).scale.prepare("cuda:0")
            except ons.CompileError as error:
                print(error)
        """,
        ONSTREAM_NVRTC=library,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(words) == 2, done.stdout
    assert done.stdout.count("sm_90") == 2 and done.stdout.count(library) == 2


@needs_driver
def test_without_isolation_the_same_ends_the_process(stand_in: Any) -> None:
    code = f"import onstream as ons; ons.Module({SOURCE!r}).scale.prepare('cuda:0')"
    assert run(code, ONSTREAM_NVRTC=stand_in("abort()")).returncode == -signal.SIGABRT


PREPARE = f"""
import onstream as ons
module = ons.Module({SOURCE!r}, **OPTIONS)
try:
    module.scale.prepare("cuda:0")
    print(module.scale.signature, "nvrtc" in open("/proc/self/maps").read())
except ons.Error as error:
    print(type(error).__name__, error)
"""


@needs_driver
def test_a_compile_apart_is_a_compile(tmp_path: Path) -> None:
    cache = {"ONSTREAM_CACHE_DIR": str(tmp_path / "cache")}
    plain = run(PREPARE.replace("OPTIONS", "{}"), ONSTREAM_CACHE_DIR="off").stdout
    if "no NVRTC" in plain:
        pytest.skip("no NVRTC here")
    assert plain == "scale(float a, float* x) True\n"
    apart = run(PREPARE.replace("OPTIONS", "{'isolate': True}"), **cache)
    assert apart.stdout == "scale(float a, float* x) False\n", apart.stderr
    (entry,) = (tmp_path / "cache").iterdir()
    kept = entry.read_bytes()
    entry.unlink()
    run(PREPARE.replace("OPTIONS", "{}"), **cache)
    (entry,) = (tmp_path / "cache").iterdir()
    assert entry.read_bytes() == kept
    error = run(PREPARE.replace("OPTIONS", "{'isolate': True}").replace("*= a", "*= b"))
    assert "kernel.cu:1: " in error.stdout and '"b" is undefined' in error.stdout


@needs_driver
def test_headers_on_disk_are_followed_from_there(tmp_path: Path) -> None:
    (tmp_path / "a header.h").write_text("#define FACTOR 2\n")
    code = PREPARE.replace("{SOURCE", "{SOURCE").replace(
        "OPTIONS", "{'isolate': True, 'options': ['-I" + str(tmp_path) + "']}"
    )
    code = code.replace("__global__", '#include "a header.h"\\n__global__').replace(
        "*= a", "*= FACTOR"
    )
    cache = {"ONSTREAM_CACHE_DIR": str(tmp_path / "cache"), "ONSTREAM_LOG": "cache"}
    first = run(code, **cache)
    if "no NVRTC" in first.stdout:
        pytest.skip("no NVRTC here")
    assert "kept" in first.stderr, first.stdout + first.stderr
    assert "found" in run(code, **cache).stderr
    (tmp_path / "a header.h").write_text("#define FACTOR 33\n")
    assert "kept" in run(code, **cache).stderr


@needs_driver
def test_a_missing_program_is_said() -> None:
    code = PREPARE.replace("OPTIONS", "{'isolate': True}")
    output = run(code, ONSTREAM_COMPILE_PROGRAM="/nowhere/onstream-compile").stdout
    assert output.startswith("UnavailableError") and "ONSTREAM_COMPILE_PROGRAM" in output


@needs_driver
def test_ctrl_c_ends_it(stand_in: Any) -> None:
    library = stand_in("for(;;)pause()")
    code = f"""if True:
        import onstream as ons
        print("ready", flush=True)
        try:
            ons.Module({SOURCE!r}, isolate=True).scale.prepare("cuda:0")
        except KeyboardInterrupt:
            print("interrupted")
        """
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + code,
        ],
        env={**os.environ, "ONSTREAM_CUDA_DRIVER": DRIVER, "ONSTREAM_NVRTC": library},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert output == "interrupted\n" and process.returncode == 0


def test_the_hosts_compiler_has_a_time_limit_too(tmp_path: Path) -> None:
    slow = tmp_path / "compiler"
    real = shutil.which("clang++") or shutil.which("g++")
    if real is None:
        pytest.skip("no C++ compiler here")
    slow.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) exec {real} "$@";; esac\nsleep 60\n')
    slow.chmod(0o755)
    code = (
        "import onstream as ons\n"
        "try:\n    ons.Module('__global__ void k() {}', timeout=0.5).k.prepare('cpu')\n"
        "except ons.CompileError as error:\n    print(error)\n"
    )
    done = run(code, ONSTREAM_HOST_COMPILER=str(slow))
    assert "did not end within 500 ms" in done.stdout, done.stdout + done.stderr


def test_the_options() -> None:
    y = np.ones(1, np.float32)
    ons.Module(SOURCE, isolate=True, timeout=100).scale[1, 1](3.0, y)
    assert y[0] == 3
    for bad, error in ((0, ValueError), (-1, ValueError), (float("nan"), ValueError),
                       (1e9, ValueError), ("x", TypeError)):  # fmt: skip
        with pytest.raises(error):
            ons.Module(SOURCE, timeout=bad)  # type: ignore[arg-type]


def test_the_program_by_itself() -> None:
    program = Path(ons.__file__).parent / "onstream-compile"
    assert program.exists()
    for arguments in ([], ["a"], ["a", "b", "c"]):
        done = subprocess.run([program, *arguments], capture_output=True, text=True)
        assert done.returncode == 2 and "usage" in done.stderr
    assert subprocess.run([program, "/nowhere", "/nowhere/else"]).returncode == 1
