"""JAX on a GPU: asked with the launch stream, kept until the device is past the launch."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import onstream as ons

N = 1 << 20
GRID = ons.cdiv(N, 256)


def test_values(mod: ons.Module, jax: Any) -> None:
    x = jax.numpy.arange(N, dtype=jax.numpy.float32)
    for _ in range(20):
        z = mod.scale[GRID, 256](2.0, x + 0, ons.like(x), N)
        gc.collect()
        w = z + 1
        assert type(z) is type(x) and z.devices() == x.devices()
        assert bool((w == 2 * x + 1).all())


def test_chains(mod: ons.Module, jax: Any) -> None:
    x = jax.numpy.ones(N)
    for _ in range(50):
        x = mod.scale[GRID, 256](1.0, x, ons.like(x), N) + 1
    assert bool((x == 51).all())


def test_with_torch(mod: ons.Module, jax: Any, torch: Any) -> None:
    t = torch.zeros(N, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(20):
            x = jax.numpy.full(N, float(i))
            mod.axpy[GRID, 256](1.0, x, t, t, N)
            del x
    stream.synchronize()
    assert (t == sum(range(20))).all()


def test_writing_is_refused(mod: ons.Module, jax: Any) -> None:
    x = jax.numpy.ones(N)
    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        mod.scale[GRID, 256](2.0, x, x, N)


def test_in_a_capture_of_torch(mod: ons.Module, jax: Any, torch: Any) -> None:
    x = jax.numpy.ones(N)
    t = torch.ones(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    x.block_until_ready()
    # JAX's own threads make calls that a capture in global mode dies of.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        with pytest.raises(ons.OrderError, match="'x'.*captured"):
            mod.scale[GRID, 256](2.0, x, t, N)
        mod.scale[GRID, 256](2.0, t, t, N)
    graph.replay()
    torch.cuda.synchronize()
    assert (t == 2).all()


def test_scalar_on_the_device_is_refused(mod: ons.Module, jax: Any) -> None:
    x = jax.numpy.ones(8)
    with pytest.raises(ons.ArgumentTypeError, match="item"):
        mod.scale[1, 8](x[0], x, ons.like(x), 8)


def test_capsules_are_released(mod: ons.Module, jax: Any, torch: Any) -> None:
    """Many times the device's memory passes through: nothing may be held for ever."""
    n = 1 << 26
    stats = jax.devices()[0].memory_stats() or {}
    limit = stats.get("bytes_limit", 1 << 30)
    for _ in range(min(2000, 2 * limit // (4 * n) + 1)):
        x = jax.numpy.ones(n)
        z = mod.scale[ons.cdiv(n, 256), 256](1.0, x, ons.like(x), n)
        z.block_until_ready()
    torch.cuda.synchronize()
    assert ons.collect() == 0, "the device is past everything"
