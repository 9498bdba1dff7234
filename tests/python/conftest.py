from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from simgpu_machine import Arrays, Sim

import onstream as ons

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

os.environ["ONSTREAM_CACHE_DIR"] = "off"  # the user's is no business of tests

SOURCE = r"""
// Kernels of the Python tests.
__global__ void axpy(float a, const float* x, const float* y, float* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}

__global__ void scale(float a, const float* x, float* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i];
}

__global__ void nothing() {}

template <typename T>
__global__ void copy(const T* x, T* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];
}

template <typename T>
__global__ void fill(T value, T* out) { out[0] = value; }

template <typename T, int N>
__global__ void add_constant(const T* x, T* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + T(N);
}

__global__ void gather(ons::view<const float, 2> x, float* out) {
  for (long long i = 0; i < x.shape[0]; ++i)
    for (long long j = 0; j < x.shape[1]; ++j) out[i * x.shape[1] + j] = x(i, j);
}

__global__ void store(ons::view<float, 2> x, float value) {
  for (long long i = 0; i < x.shape[0]; ++i)
    for (long long j = 0; j < x.shape[1]; ++j) x(i, j) = value;
}

__global__ void is_null(const float* x, int* out) { out[0] = x == 0; }

__global__ void where(int* out) {
  long long b = blockIdx.x + gridDim.x * (blockIdx.y + (long long)gridDim.y * blockIdx.z);
  long long t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  long long threads = blockDim.x * blockDim.y * blockDim.z;
  out[b * threads + t] = (int)(b * 1000 + t);
}
"""


@pytest.fixture(scope="session")
def mod() -> ons.Module:
    return ons.Module(SOURCE, name="tests.cu")


@pytest.fixture
def jnp() -> Iterator[Any]:
    """jax.numpy, making arrays on the CPU also where there is a GPU."""
    jax = pytest.importorskip("jax")
    with jax.default_device(jax.devices("cpu")[0]):
        yield jax.numpy


@pytest.fixture(scope="session")
def producer_module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The programmable producer, compiled for this interpreter."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    target = tmp_path_factory.mktemp("producer") / f"producer{suffix}"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run(
        [
            *compiler,
            *("-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-Wall", "-Wextra"),
            f"-I{ROOT / 'include'}",
            f"-isystem{sysconfig.get_paths()['include']}",
            str(HERE / "producer" / "producer.c"),
            "-o",
            str(target),
        ],
        check=True,
    )
    spec = importlib.util.spec_from_file_location("producer", target)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def producer(producer_module: ModuleType) -> ModuleType:
    producer_module.reset()
    return producer_module


# ---- the stand-in driver, for simgpu_*.py -------------------------------------------------------


@pytest.fixture(scope="session")
def sim_machine() -> Sim:
    return Sim()


@pytest.fixture
def sim(sim_machine: Sim, mod: ons.Module) -> Sim:
    mod.scale.prepare("cuda:0")
    sim_machine.clear()
    return sim_machine


@pytest.fixture
def arrays(producer: Any, sim: Sim) -> Arrays:
    return Arrays(producer, sim)
