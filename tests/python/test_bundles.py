"""Kernels compiled ahead of time."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import onstream as ons

LEVEL = "aarch64" if platform.machine() == "aarch64" else "x86-64"
SOURCE = """
__global__ void axpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
template <typename T> __global__ void twice(T* y) { y[threadIdx.x] *= 2; }
"""


@pytest.fixture(scope="module")
def bundle() -> bytes:
    try:
        return ons.Module(SOURCE, name="k.cu").bundle(LEVEL, "twice<float>")
    except ons.UnavailableError as error:
        pytest.skip(str(error))


def use(module: ons.Module) -> list[float]:
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    module.axpy[1, 4](2.0, x, y, 4)
    module["twice<float>"][1, 4](y)
    return y.tolist()


def test_from_memory(bundle: bytes) -> None:
    module = ons.load_bundle(bundle)
    assert use(module) == [2, 6, 10, 14]
    assert module.source is None and {"axpy", "twice"} <= set(dir(module))
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*float"):
        module.axpy[1, 4](2.0, np.zeros(4), np.zeros(4, np.float32), 4)


def test_from_a_file_in_a_process_without_a_compiler(bundle: bytes, tmp_path: Path) -> None:
    (tmp_path / "k.onsb").write_bytes(bundle)
    code = (
        "import numpy as np, onstream as ons\n"
        "y = np.ones(4, np.float32)\n"
        "module = ons.load('k.onsb')\n"
        "module.axpy[1, 4](2.0, y.copy(), y, 4)\n"
        "print(y.tolist(), module.name)\n"
        "try:\n    ons.Module('__global__ void k() {}').k[1, 1]()\n"
        "except ons.UnavailableError:\n    print('no compiler')\n"
    )
    environment = {**os.environ, "ONSTREAM_HOST_COMPILER": "/nowhere", "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[3.0, 3.0, 3.0, 3.0] k.onsb\nno compiler\n"


def test_with_the_source(tmp_path: Path) -> None:
    module = ons.load_bundle(ons.Module(SOURCE).bundle([LEVEL], source=True))
    assert module.source == SOURCE
    y = np.ones(2, np.int32)
    module["twice<int>"][1, 2](y)
    assert y.tolist() == [2, 2]
    assert use(ons.load_bundle(module.bundle(LEVEL, ["twice<float>"]))) == [2, 6, 10, 14]


def test_what_is_refused(bundle: bytes, tmp_path: Path) -> None:
    module = ons.Module(SOURCE)
    for data in (b"", b"ONSBUNDL", bundle[:-1], bundle + b"x", bundle[:50] + b"\0" + bundle[51:]):
        with pytest.raises(ValueError, match="bundle"):
            ons.load_bundle(data)
    with pytest.raises(TypeError):
        ons.load_bundle(SOURCE)
    with pytest.raises(ons.UnsupportedError, match="'gfx90a': there are sm_NN"):
        module.bundle("gfx90a")
    with pytest.raises(ons.NotFoundError, match="twice"):
        module.bundle(LEVEL, ["thrice<int>"])
    with pytest.raises(ons.CompileError, match="undeclared"):
        ons.Module("__global__ void k(int* y) { *y = undeclared; }").bundle(LEVEL)
    with pytest.raises(ons.NotFoundError, match="'twice<int>' is not in it"):
        ons.load_bundle(bundle)["twice<int>"].prepare("cpu")
    with pytest.raises(ValueError):
        module.bundle([])
    with pytest.raises(TypeError):
        module.bundle(7)  # type: ignore[arg-type]
    path = tmp_path / "k.onsb"
    path.write_bytes(bundle)
    with pytest.raises(TypeError, match="has been compiled"):
        ons.load(path, options=["-DA"])
    path.write_bytes(bundle[:-1])
    with pytest.raises(ValueError, match="k.onsb: .*damaged"):
        ons.load(path)


def test_for_gpus_no_gpu_is_needed() -> None:
    try:
        data = ons.Module(SOURCE).bundle(["sm_80", "compute_90"])
    except ons.UnavailableError as error:
        pytest.skip(str(error))
    with pytest.raises(ons.UnsupportedError, match="it has sm_80, compute_90"):
        ons.load_bundle(data).axpy.prepare("cpu")
    with pytest.raises(ons.UnsupportedError, match="does not compile for sm_20"):
        ons.Module(SOURCE).bundle("sm_20")
