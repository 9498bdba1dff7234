"""Compiling ahead, and ranks that compile together."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import onstream as ons

EXAMPLE = Path(__file__).parents[2] / "examples" / "python" / "torchrun_step.py"


def modules(count: int) -> list[ons.Module]:
    text = "#define N {}\n__global__ void k(int* y) {{ *y = N; }}\n"
    text += "template <typename T> __global__ void t(T* y) {{ *y = N; }}\n"
    return [ons.Module(text.format(i), name=f"{i}.cu") for i in range(count)]


def test_modules_and_kernels_are_ready() -> None:
    made = modules(5)
    seen: list[tuple[int, int, str]] = []
    ons.prepare([*made, made[0]["t<float>"]], "cpu", workers=3, progress=lambda *a: seen.append(a))
    assert [(done, total) for done, total, _ in seen] == [(i, 6) for i in range(1, 7)]
    assert {name for *_, name in seen} == {*(f"{i}.cu" for i in range(5)), "t<float>"}
    for i, module in enumerate(made):
        assert module.k.signature is None or "int* y" in module.k.signature
        y = np.zeros(1, np.int32)
        module.k[1, 1](y)
        assert y[0] == i
    assert made[0]["t<float>"].signature == "t<float>(float* y)"


def test_one_module_and_several_devices() -> None:
    (module,) = modules(1)
    ons.prepare(module, ["cpu", (1, 0)])
    ons.prepare(module, (1, 0))
    ons.prepare([], "cpu")


def test_errors_are_raised_when_all_were_tried() -> None:
    bad = [ons.Module(f"__global__ void k() {{ undeclared_{i}; }}") for i in range(2)]
    (good,) = modules(1)
    done = []
    with pytest.raises(ons.CompileError, match="undeclared_") as caught:
        ons.prepare([*bad, good], "cpu", progress=lambda *a: done.append(a))
    assert len(done) == 3
    (other,) = caught.value.others  # type: ignore[attr-defined]
    assert {str(e).split("undeclared_")[1][0] for e in (caught.value, other)} == {"0", "1"}
    with pytest.raises(TypeError, match="not str"):
        ons.prepare(["k"], "cpu")  # type: ignore[list-item]
    with pytest.raises(ZeroDivisionError):
        ons.prepare(good, "cpu", progress=lambda *_: 1 // 0)


@pytest.mark.skipif(not shutil.which("clang++") and not shutil.which("g++"), reason="no compiler")
def test_ranks_compile_once(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("torch without distributed")
    real = shutil.which("clang++") or shutil.which("g++")
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *-dM*) ;; *) echo run >> "{tmp_path}/log";; esac\n'
        f'exec "{real}" "$@"\n'
    )
    compiler.chmod(0o755)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", str(EXAMPLE)],
        env={
            **os.environ,
            "ONSTREAM_CACHE_DIR": str(tmp_path / "cache"),
            "ONSTREAM_HOST_COMPILER": str(compiler),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 of 2 on cpu" in done.stdout and "rank 1 of 2 on cpu" in done.stdout
    assert (tmp_path / "log").read_text() == "run\n"
