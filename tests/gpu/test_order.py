"""Mixes of producers and streams, many times: every value right, and no host wait.

In each turn the producer's stream is kept busy first, then it writes the array, the kernel
is launched, and the array is overwritten or freed at once. ONS_TEST_TURNS says how many
turns (300); with OUT set the counts go to OUT/order.json.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import synchronisations

import onstream as ons

TURNS = int(os.environ.get("ONS_TEST_TURNS", "300"))
BATCH = 50  # turns between waits of the test's own, so that queues stay short
N = 1 << 14
GRID = ons.cdiv(N, 256)
DELAY = 100_000  # cycles, about 50 us

SOURCE = r"""
__global__ void axpy(float a, const float* x, const float* y, float* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
__global__ void check(const float* x, float expected, int* wrong, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n && x[i] != expected) atomicAdd(wrong, 1);
}
"""

_RESULTS: dict[str, dict[str, Any]] = {}


@pytest.fixture(scope="module")
def kernels() -> ons.Module:
    module = ons.Module(SOURCE, name="order.cu")
    module.prepare("cuda:0")
    return module


@pytest.fixture
def wrong(torch: Any) -> Any:
    return torch.zeros(1, dtype=torch.int32, device="cuda")


@contextmanager
def waits() -> Iterator[synchronisations.Counts]:
    try:
        with synchronisations.counted() as counts:
            yield counts
    except OSError as error:
        pytest.skip(f"waits cannot be counted: {error}")


def run(name: str, torch: Any, wrong: Any, turn: Callable[[int, Any], None]) -> dict[str, int]:
    """Runs the turns; returns all waits of the process that were not the test's own."""
    turn_count = 0
    started = time.monotonic()
    with waits() as counts:
        for _ in range(3):  # what is done once: compiles, first allocations
            turn(0, counts)
        torch.cuda.synchronize()
        while turn_count < TURNS:
            with counts.counting():
                for _ in range(min(BATCH, TURNS - turn_count)):
                    turn_count += 1
                    turn(turn_count % 1000, counts)
            torch.cuda.synchronize()
    _RESULTS[name] = {
        "turns": turn_count,
        "wrong_values": int(wrong.item()),
        "waits_inside_launches": dict(counts.launches),
        "waits_in_all": dict(counts.all),
        "seconds": round(time.monotonic() - started, 2),
    }
    print(f"{name}: {_RESULTS[name]}")
    if os.environ.get("OUT"):
        Path(os.environ["OUT"], "order.json").write_text(json.dumps(_RESULTS, indent=1) + "\n")
    assert int(wrong.item()) == 0
    assert counts.launches == {}
    return dict(counts.all)


def test_torch_side_stream(kernels: ons.Module, torch: Any, wrong: Any) -> None:
    side, other = torch.cuda.Stream(), torch.cuda.Stream()

    def turn(i: int, counts: Any) -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(DELAY)
            x = torch.full((N,), float(i), device="cuda")
            y = torch.ones(N, device="cuda")
            with counts.launching():
                z = kernels.axpy[GRID, 256](2.0, x, y, ons.like(x), N)
                kernels.check[GRID, 256](z, 2.0 * i + 1, wrong, N)
                # Another stream is given: joined with the side stream both ways.
                u = kernels.axpy[GRID, 256, 0, other](3.0, x, y, ons.like(x), N)
            x.fill_(-1)
            y.fill_(-1)
            with counts.launching():
                kernels.check[GRID, 256](u, 3.0 * i + 1, wrong, N)

    assert run("torch, side stream", torch, wrong, turn) == {}


def test_cupy_and_torch_on_two_streams(
    kernels: ons.Module, torch: Any, cupy: Any, wrong: Any
) -> None:
    side, mine = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    mine_for_torch = torch.cuda.ExternalStream(mine.ptr)

    def turn(i: int, counts: Any) -> None:
        with mine, torch.cuda.stream(side):
            torch.cuda._sleep(DELAY)
            t = torch.full((N,), float(i), device="cuda")
            with torch.cuda.stream(mine_for_torch):
                torch.cuda._sleep(DELAY)
            c = cupy.empty(N, cupy.float32)
            c.fill(1)
            with counts.launching():
                z = kernels.axpy[GRID, 256](2.0, t, c, ons.like(t), N)
                d = kernels.axpy[GRID, 256](3.0, c, t, ons.like(c), N)
            c.fill(-1)
            t.fill_(-1)
            with counts.launching():
                kernels.check[GRID, 256](z, 2.0 * i + 1, wrong, N)
                kernels.check[GRID, 256](d, 3.0 + i, wrong, N)

    assert run("CuPy and torch, two streams", torch, wrong, turn) == {}


def test_jax_and_torch(kernels: ons.Module, torch: Any, jax: Any, wrong: Any) -> None:
    """JAX's arrays are dropped right after the launch, and its memory is reused."""
    side = torch.cuda.Stream()
    make = jax.jit(lambda value: jax.numpy.full(N, value, jax.numpy.float32) * 1.0)

    def turn(i: int, counts: Any) -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(DELAY)
            j = make(float(i))
            t = torch.ones(N, device="cuda")
            with counts.launching():
                z = kernels.axpy[GRID, 256](2.0, j, t, ons.like(t), N)
            del j
            t.fill_(-1)
            with counts.launching():
                kernels.check[GRID, 256](z, 2.0 * i + 1, wrong, N)

    waited = run("JAX and torch", torch, wrong, turn)
    print(f"waits of JAX's own: {waited}")


def test_jax_donation(kernels: ons.Module, torch: Any, jax: Any) -> None:
    """A kernel's hold on a JAX array ends with the kernel: then JAX may donate it."""
    donate = jax.jit(lambda x: x - 1.0, donate_argnums=0)
    for i in range(20):
        j = jax.numpy.full(N, float(i), jax.numpy.float32)
        t = torch.zeros(N, device="cuda")
        kernels.axpy[GRID, 256](2.0, j, t, t, N)
        torch.cuda.synchronize()
        ons.collect()
        k = donate(j)
        assert j.is_deleted()
        assert float(k[0]) == i - 1.0 and float(t[0]) == 2.0 * i


def test_captures_with_cupy(kernels: ons.Module, torch: Any, cupy: Any, wrong: Any) -> None:
    """In a capture, a CuPy array on a stream that takes part is joined; one outside is refused."""
    side, second = torch.cuda.Stream(), torch.cuda.Stream()
    part = cupy.cuda.ExternalStream(second.cuda_stream)
    outside = cupy.cuda.Stream(non_blocking=True)
    t = torch.ones(N, device="cuda")
    z = torch.zeros(N, device="cuda")
    c = cupy.ones(N, cupy.float32)
    cupy.cuda.Device().synchronize()
    refused = 0

    def turn(i: int, counts: Any) -> None:
        nonlocal refused
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            graph.capture_begin(capture_error_mode="global")
            second.wait_stream(side)
            with part:
                with counts.launching():
                    kernels.axpy[GRID, 256](2.0, t, c, z, N)
                    kernels.check[GRID, 256](z, 2.0 * i + 1, wrong, N)
            with outside, counts.launching():
                try:
                    kernels.axpy[GRID, 256](2.0, t, c, z, N)
                except ons.OrderError as error:
                    refused += "capture is untouched" in str(error)
            side.wait_stream(second)
            graph.capture_end()
            t.fill_(float(i))
            graph.replay()
            t.fill_(-1)

    run("captures with CuPy", torch, wrong, turn)
    assert refused == TURNS + 3
