"""The command line, as processes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

LEVEL = "aarch64" if platform.machine() == "aarch64" else "x86-64"
SOURCE = """
__global__ void axpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i] + OFFSET;
}
template <typename T> __global__ void twice(T* y) { *y *= 2; }
"""


class Shell:
    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "k é.cu").write_text(SOURCE)
        self.environment = {**os.environ, "ONSTREAM_CACHE_DIR": str(folder / "cache")}

    def run(self, *arguments: str, code: int = 0, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "onstream", *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def compiling(shell: Shell) -> Shell:
    if "missing" in json.loads(shell.run("doctor", "--json", code=0))["host compiler"]:
        pytest.skip("no C++ compiler here")
    return shell


def test_help_and_version(shell: Shell) -> None:
    assert shell.run("--version").startswith("onstream 0.")
    text = shell.run("--help")
    for name in ("doctor", "compile", "build", "cache", "demo", "exit codes"):
        assert name in text
    assert "sm_NN" in shell.run("build", "--help")
    for wrong in (
        (),
        ("nonsense",),
        ("build", "k é.cu"),
        ("cache",),
        ("cache", "prune", "--bytes", "x"),
    ):
        assert "usage: onstream" in shell.run(*wrong, code=2)


def test_doctor(compiling: Shell) -> None:
    report = json.loads(compiling.run("doctor", "--json"))
    assert report["cpu kernels"] == {"found": "compiles and loads"}
    assert report["environment"]["ONSTREAM_CACHE_DIR"].endswith("cache")
    assert report["cache"]["entries"] == 1
    assert "ok  host compiler: /" in compiling.run("doctor")


def test_doctor_where_nothing_is(shell: Shell) -> None:
    nothing = {
        "ONSTREAM_HOST_COMPILER": "/nowhere/c++",
        "ONSTREAM_CUDA_DRIVER": "/nowhere/libcuda.so",
        "ONSTREAM_NVRTC": "/nowhere/libnvrtc.so",
        "ONSTREAM_CACHE_DIR": "off",
    }
    report = json.loads(shell.run("doctor", "--json", code=1, **nothing))
    assert "/nowhere/c++" in report["host compiler"]["missing"]
    assert "/nowhere/libcuda.so" in report["gpus"]["missing"]
    assert "/nowhere/libnvrtc.so" in report["nvrtc"]["missing"]
    assert report["cache"] == {"folder": None}
    assert "--  host compiler: " in shell.run("doctor", code=1, **nothing)


def test_compile(compiling: Shell) -> None:
    cpu = {"ONSTREAM_CUDA_DRIVER": "/nowhere"}
    text = compiling.run("compile", "k é.cu", "-DOFFSET=1", "-k", "twice<int>", **cpu)
    assert "axpy(float a, const float* x, float* y, int n)" in text
    assert "twice<int>(int* y)" in text
    result = json.loads(compiling.run("compile", "k é.cu", "-DOFFSET=1", "--json", **cpu))
    assert result["for"] == "cpu" and len(result["kernels"]) == 1
    error = compiling.run("compile", "k é.cu", code=1, **cpu)
    assert "OFFSET" in error and "k é.cu:4" in error


def test_compile_for_a_gpu_without_one(shell: Shell) -> None:
    if "missing" in json.loads(shell.run("doctor", "--json"))["nvrtc"]:
        pytest.skip("no NVRTC here")
    result = json.loads(shell.run("compile", "k é.cu", "-DOFFSET=1", "--arch", "sm_90", "--json"))
    (kernel,) = result["kernels"]
    assert "axpy" in kernel["signature"] and kernel["registers"] > 0
    assert "knows the" in shell.run("compile", "k é.cu", "--arch", "sm_20", code=1).replace(
        "it knows", "knows the"
    )


def test_build_and_load(compiling: Shell) -> None:
    compiling.run("build", "k é.cu", "--arch", LEVEL, "-D", "OFFSET=1", "-k", "twice<float>")
    code = (
        "import numpy as np, onstream as ons\n"
        "y = np.ones(1, np.float32)\n"
        "mod = ons.load('k é.onsb')\n"
        "mod.axpy[1, 1](2.0, y.copy(), y, 1)\n"
        "mod['twice<float>'][1, 1](y)\n"
        "print(y[0])\n"
    )
    bare = {**compiling.environment, "ONSTREAM_HOST_COMPILER": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=compiling.folder,
        env=bare,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "8.0\n", done.stderr
    assert "is a bundle" in compiling.run("compile", "k é.onsb", "-DA", code=1)


def test_a_bar_for_who_watches(compiling: Shell) -> None:
    import pty

    parent, child = pty.openpty()
    arguments = ["build", "k é.cu", "-DOFFSET=1", "--arch", f"{LEVEL},{LEVEL}"]
    done = subprocess.run(
        [sys.executable, "-m", "onstream", *arguments],
        cwd=compiling.folder,
        env=compiling.environment,
        stdout=subprocess.PIPE,
        stderr=child,
        text=True,
    )
    os.close(child)
    shown = os.read(parent, 4096).decode()
    os.close(parent)
    assert done.returncode == 0, shown
    assert "2/2 architectures" in shown
    assert "architectures" not in compiling.run(*arguments).replace("\r", "")


def test_what_cannot_be_built(compiling: Shell) -> None:
    run = compiling.run
    assert "No such file" in run("build", "none.cu", "--arch", LEVEL, code=1)
    assert "is a folder" in run("build", ".", "--arch", LEVEL, code=1)
    assert "there are sm_NN" in run("build", "k é.cu", "--arch", "gfx90a", code=1)
    assert "OFFSET" in run("build", "k é.cu", "--arch", LEVEL, code=1)
    (compiling.folder / "bytes.cu").write_bytes(bytes(range(256)))
    run("build", "bytes.cu", "--arch", LEVEL, code=1)
    good = ("build", "k é.cu", "-DOFFSET=1", "--arch", LEVEL)
    assert "thrice" in run(*good, "-k", "thrice<int>", code=1)
    assert "No such file" in run(*good, "-o", "no/folder/k.onsb", code=1)
    assert list(compiling.folder.glob("*onsb*")) == []


def test_cache(compiling: Shell) -> None:
    run = compiling.run
    run("cache", "clear")
    assert json.loads(run("cache", "info", "--json"))["entries"] == 0
    cpu = {"ONSTREAM_CUDA_DRIVER": "/nowhere"}
    run("compile", "k é.cu", "-DOFFSET=1", **cpu)
    run("compile", "k é.cu", "-DOFFSET=2", **cpu)
    entries = json.loads(run("cache", "list", "--json"))
    assert [entry["kernels"] for entry in entries] == [["axpy"], ["axpy"]]
    assert "shared object: axpy" in run("cache", "list")
    assert run("cache", "verify") == "2 entries, 0 bad\n"
    run("cache", "export", "e.tar")
    assert "2 entries removed" in run("cache", "clear")
    assert "2 entries into" in run("cache", "import", "e.tar")
    spoilt = compiling.folder / "cache" / f"{entries[0]['key']}.ons"
    spoilt.write_bytes(spoilt.read_bytes()[:-1])
    assert "its digest" in run("cache", "verify", code=1)
    assert "unreadable" in run("cache", "list")
    assert "1 entries removed" in run("cache", "verify", "--remove")
    assert "0 entries removed" in run("cache", "prune", "--bytes", "1G")
    assert "0 entries removed" in run("cache", "prune", "--days", "1")
    assert "1 entries removed" in run("cache", "prune", "--bytes", "1")
    (compiling.folder / "no.tar").write_text("no archive")
    assert "no.tar" in run("cache", "import", "no.tar", code=1)
    assert "No such file" in run("cache", "import", "none.tar", code=1)
    assert "there is no cache" in run("cache", "info", code=1, ONSTREAM_CACHE_DIR="off")


def test_an_archive_that_reaches_out_of_the_folder_is_refused(shell: Shell) -> None:
    import io
    import tarfile

    with tarfile.open(shell.folder / "evil.tar", "w") as archive:
        for name in ("../escaped.ons", "/tmp/escaped.ons", "a" * 64 + ".ons"):
            item = tarfile.TarInfo(name)
            item.size = 4
            archive.addfile(item, io.BytesIO(b"evil"))
    assert "0 entries into" in shell.run("cache", "import", "evil.tar", code=1)
    assert not (shell.folder / "escaped.ons").exists()


def test_demo(compiling: Shell) -> None:
    assert "ok  numpy: ndarray" in compiling.run("demo")
