"""CuPy: its current stream, also a non-blocking one."""

from __future__ import annotations

from typing import Any

import pytest

import onstream as ons

N = 1 << 20
GRID = ons.cdiv(N, 256)


def test_values(mod: ons.Module, cupy: Any) -> None:
    x = cupy.arange(N, dtype=cupy.float32)
    z = mod.scale[GRID, 256](2.0, x, ons.like(x), N)
    assert type(z) is cupy.ndarray
    assert (z == 2 * x).all()
    z = mod.scale[GRID, 256](2.0, x, ons.empty((2, N // 2), "float32"), N)
    assert z.shape == (2, N // 2) and (z.ravel() == 2 * x).all()


def test_non_blocking_stream_keeps_order_both_ways(mod: ons.Module, cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    for _ in range(20):
        x = cupy.zeros(N, cupy.float32)
        cupy.cuda.Device().synchronize()
        with stream:
            mod.spin[1, 1](x, 5_000_000)
            x.fill(3)
            z = mod.scale[GRID, 256](2.0, x, ons.like(x), N)
            x.fill(-1)
        stream.synchronize()
        assert (z == 6).all()


def test_streams(mod: ons.Module, cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.ones(N, cupy.float32)
    cupy.cuda.Device().synchronize()
    with pytest.raises(ons.OrderError):
        mod.scale.launch((2.0, x, x, N), grid=GRID, block=256, stream=stream, order="strict")
    mod.scale[GRID, 256, 0, stream](2.0, x, x, N)
    with stream:
        mod.scale[GRID, 256, 0, stream](2.0, x, x, N)
    stream.synchronize()
    assert (x == 4).all()


def test_with_torch(mod: ons.Module, cupy: Any, torch: Any) -> None:
    x = cupy.ones(N, cupy.float32)
    t = torch.ones(N, device="cuda")
    z = mod.axpy[GRID, 256](2.0, x, t, ons.like(t), N)
    assert isinstance(z, torch.Tensor) and (z == 3).all()
    with torch.cuda.stream(torch.cuda.Stream()):
        mod.axpy[GRID, 256](2.0, x, t, t, N)
        assert (t == 3).all()


def test_in_a_capture_of_its_stream(mod: ons.Module, cupy: Any) -> None:
    x = cupy.ones(N, cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        mod.scale[GRID, 256](2.0, x, x, N)
        with pytest.raises(ons.OrderError, match="'out'.*captur"):
            mod.scale[GRID, 256](2.0, x, ons.like(x), N)
        graph = stream.end_capture()
        graph.launch(stream)
    stream.synchronize()
    assert (x == 2).all()


def test_checks(mod: ons.Module, cupy: Any) -> None:
    x = cupy.ones(8, cupy.float32)
    with pytest.raises(ons.ArgumentTypeError, match="float64"):
        mod.scale[1, 8](2.0, x.astype(cupy.float64), x, 8)
    with pytest.raises(ons.ArgumentValueError, match="contiguous"):
        mod.scale[1, 8](2.0, x[::2], x, 4)
    with pytest.raises(ons.ArgumentTypeError, match="item"):
        mod.scale[1, 8](x[0], x, x, 8)
