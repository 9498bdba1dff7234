from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import onstream as ons

os.environ["ONSTREAM_CACHE_DIR"] = "off"  # the user's is no business of tests

SOURCE = r"""
__global__ void axpy(float a, const float* x, const float* y, float* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
__global__ void scale(float a, const float* x, float* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i];
}
__global__ void spin(float* x, long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
  if (threadIdx.x == 0 && blockIdx.x == 0) x[0] += 1;
}
"""

_REASON: list[str] = []


def _why_not() -> str:
    """Why there is no GPU to test on; '' if there is one. Asked in another process, as that must
    not keep a context here."""
    if not _REASON:
        code = "import onstream as ons; ons.Module('__global__ void k() {}').k.prepare('cuda')"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        lines = result.stderr.strip().splitlines()
        _REASON.append(lines[-1][:200] if result.returncode else "")
    return _REASON[0]


def pytest_collection_modifyitems(items: list[Any]) -> None:
    ours = [item for item in items if "/gpu/" in str(item.path)]
    if ours and _why_not():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {_why_not()}"))


@pytest.fixture(scope="session")
def mod() -> ons.Module:
    return ons.Module(SOURCE, name="gpu.cu")


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch without CUDA")
    torch.cuda.set_device(0)
    return torch


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


@pytest.fixture
def jax() -> Any:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax without a GPU")
    return jax
