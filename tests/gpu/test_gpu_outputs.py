"""Outputs on a GPU: who allocates them, in which order, and what is left."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import onstream as ons

N = 1 << 20
GRID = ons.cdiv(N, 256)


def test_shapes_and_dtypes(mod: ons.Module, torch: Any) -> None:
    x = torch.arange(float(N), device="cuda").reshape(1024, -1)
    for output in (
        ons.empty("x.shape", "x.dtype"),
        ons.empty(("x.shape[0]", N // 1024), "float32"),
        ons.like(x, dtype=torch.float32),
        ons.empty(lambda a, x, out, n: x.shape, torch.float32),
    ):
        z = mod.scale[GRID, 256](2.0, x, output, N)
        assert type(z) is torch.Tensor and z.device == x.device and z.shape == x.shape
        torch.testing.assert_close(z, 2 * x)


def test_zeros_are_zero_when_the_kernel_runs(mod: ons.Module, torch: Any) -> None:
    """Of memory that was something else a moment ago, on one stream and on two."""
    stream = torch.cuda.Stream()
    for where in (None, stream):
        for _ in range(20):
            used = torch.full((1,), 7.0, device="cuda")
            del used
            x = torch.ones(1, device="cuda")
            args = (1.0, x, x, ons.zeros(4, "float32"), 1)
            z = mod.axpy.launch(args, grid=1, block=1, stream=where)
            assert z.tolist() == [2, 0, 0, 0]


def test_out(mod: ons.Module, torch: Any) -> None:
    x, out = torch.ones(N, device="cuda"), torch.empty(N, device="cuda")
    k = mod.scale[GRID, 256]
    assert k(2.0, x, ons.like(x), N, out=out) is out and bool((out == 2).all())
    assert k(2.0, x, ons.zeros_like(x), 1, out=out) is out and float(out.sum()) == 2
    with pytest.raises(ons.ArgumentValueError):
        k(2.0, x, ons.like(x), N, out=out[:-1])


def test_outputs_in_a_capture(mod: ons.Module, torch: Any) -> None:
    x = torch.ones(N, device="cuda")
    k = mod.scale[GRID, 256]
    k(2.0, x, ons.like(x), N)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = k(2.0, k(2.0, x, ons.like(x), N), ons.zeros_like(x), N)
    for value in (1.0, 3.0):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert bool((z == 4 * value).all())


def test_another_device_than_the_current_one(mod: ons.Module, torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x = torch.ones(N, device="cuda:1")
    for _ in range(3):
        z = mod.scale[GRID, 256](2.0, x, ons.like(x), N)
        assert z.device == x.device and bool((z == 2).all()) and torch.cuda.current_device() == 0


def test_out_of_memory(mod: ons.Module, torch: Any) -> None:
    x = torch.ones(4, device="cuda")
    for output in (ons.empty(1 << 44, "float32"), ons.like(x, shape=(1 << 22, 1 << 22))):
        with pytest.raises(torch.OutOfMemoryError):
            mod.scale[1, 4](2.0, x, output, 4)
    assert mod.scale[1, 4](2.0, x, ons.like(x), 4).tolist() == [2, 2, 2, 2]


def test_own_memory(mod: ons.Module, torch: Any) -> None:
    """Of an array whose library cannot be asked: a Tensor, in the pool of the launch stream."""
    source = torch.ones(N, device="cuda")
    x = ons.from_dlpack(source)
    k = mod.scale[GRID, 256]
    for _ in range(50):
        y = k(3.0, k(2.0, x, ons.like(x), N), ons.zeros_like(x), N)
        assert type(y) is ons.Tensor and y.shape == (N,)
        z = torch.empty(N, device="cuda")
        k(1.0, y, z, N)
        del y
        assert bool((z == 6).all())
    with pytest.raises(MemoryError, match="argument 3"):
        k(2.0, x, ons.empty(1 << 44, "float32"), N)
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        t = ons.from_dlpack(source)
        with pytest.raises(ons.OrderError, match="argument 3"):
            k(2.0, t, ons.like(t), N)
        t.release()
        source.add_(0)
        graph.capture_end()


@pytest.mark.parametrize("library", ["torch", "cupy", "jax", "own"])
def test_ten_thousand_launches_leave_nothing(
    mod: ons.Module, torch: Any, library: str, request: pytest.FixtureRequest
) -> None:
    count = 1000 if library == "jax" else 10_000
    n = 1 << 16
    if library == "torch":
        x = torch.ones(n, device="cuda")
    elif library == "own":
        x = ons.from_dlpack(torch.ones(n, device="cuda"))
    elif library == "cupy":
        x = request.getfixturevalue("cupy").ones(n, dtype="float32")
    else:
        x = request.getfixturevalue("jax").numpy.ones(n, dtype="float32")
    k = mod.axpy[ons.cdiv(n, 256), 256]

    def run(times: int) -> int:
        for _ in range(times):
            k(2.0, x, x, ons.like(x), n)
            k(2.0, x, x, ons.zeros("x.shape", "x.dtype"), n)
        torch.cuda.synchronize()
        gc.collect()
        ons.collect()
        torch.cuda.synchronize()
        return int(torch.cuda.mem_get_info()[0])

    run(200)
    before = run(200)
    objects = len(gc.get_objects())
    after = run(count)
    assert before - after < 64 << 20, f"{before - after} bytes of the device"
    assert len(gc.get_objects()) - objects < 500
    assert ons.collect() == 0
