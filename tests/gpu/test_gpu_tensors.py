"""Tensors that are kept, on a GPU: order on the way in and out, reuse of the memory, capture."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import onstream as ons

N = 1 << 20
DELAY = 20_000_000


def double(mod: ons.Module, t: Any, *, stream: Any = None) -> None:
    mod.scale[ons.cdiv(N, 256), 256, 0, stream](2.0, t, t, N)


@pytest.fixture
def home(torch: Any) -> Any:
    return torch.cuda.Stream()


def test_a_kernel_then_in_place_work(mod: ons.Module, torch: Any, home: Any) -> None:
    for _ in range(20):
        x = torch.zeros(N, device="cuda")
        torch.cuda._sleep(DELAY)
        x += 3
        with ons.borrow(x, stream=home) as t:
            mod.spin[1, 1, 0, home](torch.zeros(1, device="cuda"), DELAY)
            double(mod, t)
        x += 2
        assert (x == 8).all()


def test_released_and_reused_at_once(mod: ons.Module, torch: Any, home: Any) -> None:
    """The allocator hands the memory out again while the kernel is still to run."""
    n = 4 * N  # large enough that the allocator neither splits nor merges blocks
    for _ in range(20):
        gc.collect()
        torch.cuda.empty_cache()
        x = torch.ones(n, device="cuda")
        address = x.data_ptr()
        out = torch.zeros(n, device="cuda")
        t = ons.from_dlpack(x, stream=home)
        del x
        mod.spin[1, 1, 0, home](torch.zeros(1, device="cuda"), DELAY)
        mod.scale[ons.cdiv(n, 256), 256, 0, home](2.0, t, out, n)
        del t
        again = torch.full((n,), 9.0, device="cuda")
        assert again.data_ptr() == address, "nothing was freed"
        assert (out == 2).all() and (again == 9).all()
        del out, again


def test_released_on_another_stream(mod: ons.Module, torch: Any, home: Any) -> None:
    """The memory is of the stream it came from; it is not reused before the kernel has run."""
    other = torch.cuda.Stream()
    for _ in range(20):
        x = torch.ones(N, device="cuda")
        out = torch.zeros(N, device="cuda")
        t = ons.from_dlpack(x, stream=home)
        del x
        mod.spin[1, 1, 0, home](torch.zeros(1, device="cuda"), DELAY)
        mod.scale[ons.cdiv(N, 256), 256, 0, home](2.0, t, out, N)
        with torch.cuda.stream(other):
            t.release()
        torch.full((N,), 9.0, device="cuda")
        torch.cuda.synchronize()
        assert (out == 2).all()
    ons.collect()
    assert ons.collect() == 0


def test_captured(mod: ons.Module, torch: Any) -> None:
    x = torch.ones(N, device="cuda")
    double(mod, x)
    outside = ons.from_dlpack(x)
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.graph(graph):
        with ons.borrow(x) as t:
            double(mod, t)
        with pytest.raises(ons.OrderError):
            ons.from_dlpack(x, stream=side)
        with pytest.raises(ons.OrderError):
            outside.release()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert (x == 16).all()
    outside.release()
    del graph
    gc.collect()
    torch.cuda.synchronize()
    assert ons.collect() == 0


def test_cupy_and_torch(mod: ons.Module, torch: Any, cupy: Any, home: Any) -> None:
    with cupy.cuda.Stream(non_blocking=True):
        x = cupy.full(N, 3, cupy.float32)
        t = ons.from_dlpack(x, stream=home)
        double(mod, t)
        t.release()
        x += 2
        assert (x == 8).all()


def test_jax(mod: ons.Module, torch: Any, jax: Any, home: Any) -> None:
    x = jax.numpy.arange(N, dtype=jax.numpy.float32) + 1
    out = torch.zeros(N, device="cuda")
    t = ons.from_dlpack(x, stream=home)
    assert t.read_only
    mod.scale[ons.cdiv(N, 256), 256](2.0, t, out, N)
    t.release()
    torch.testing.assert_close(out, 2 * (torch.arange(N, device="cuda") + 1).float())
