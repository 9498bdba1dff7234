"""torch on a GPU: values, streams, capture, checks."""

from __future__ import annotations

from typing import Any

import pytest

import onstream as ons

N = 1 << 20


def grid(n: int) -> int:
    return ons.cdiv(n, 256)


def test_values(mod: ons.Module, torch: Any) -> None:
    x, y = torch.randn(2, N, device="cuda")
    z = mod.axpy[grid(N), 256](2.0, x, y, ons.like(x), N)
    assert type(z) is torch.Tensor and z.device == x.device
    torch.testing.assert_close(z, 2 * x + y)


def test_side_stream_keeps_order_both_ways(mod: ons.Module, torch: Any) -> None:
    """The kernel sees what the stream still writes, and the write after it does not overtake."""
    stream = torch.cuda.Stream()
    for _ in range(20):
        x = torch.zeros(N, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            x.fill_(3)
            z = mod.scale[grid(N), 256](2.0, x, ons.like(x), N)
            x.fill_(-1)
        stream.synchronize()
        assert (z == 6).all()


def test_explicit_streams(mod: ons.Module, torch: Any) -> None:
    x = torch.ones(N, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with pytest.raises(ons.OrderError):
        mod.scale.launch((2.0, x, x, N), grid=grid(N), block=256, stream=stream, order="strict")
    mod.scale[grid(N), 256, 0, stream](2.0, x, x, N)
    with torch.cuda.stream(stream):
        mod.scale[grid(N), 256, 0, stream](2.0, x, x, N)
        mod.scale[grid(N), 256, 0, stream.cuda_stream](2.0, x, x, N)
    with ons.use_stream(stream):
        mod.scale[grid(N), 256](2.0, x, x, N)
    assert (x == 16).all()


def test_no_synchronisation(mod: ons.Module, torch: Any) -> None:
    x = torch.ones(N, device="cuda")
    mod.spin[1, 1](x, 1)
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    mod.spin[1, 1](x, 200_000_000)
    for _ in range(10):
        mod.scale[grid(N), 256](1.0, x, x, N)
    done.record()
    assert not done.query(), "the launches waited for the device"
    done.synchronize()


@pytest.mark.parametrize("fresh", [False, True])
def test_graph(mod: ons.Module, torch: Any, fresh: bool) -> None:
    """Also the first call of a kernel, which compiles and loads inside the capture."""
    if fresh:
        mod = ons.Module(mod.source + "// a module that nothing has loaded yet\n")
    x = torch.ones(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = mod.scale[grid(N), 256](2.0, x, ons.like(x), N)
        z = mod.axpy[grid(N), 256](1.0, x, y, ons.like(x), N)
    del mod
    for value in (1, 5):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert (z == 3 * value).all()


def test_refusals_leave_a_capture_alive(mod: ons.Module, torch: Any) -> None:
    x = torch.ones(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for bad in ((2.0, x, torch.zeros(N), N), (2.0, x, x), (2, x, 5, N)):
            with pytest.raises(ons.ArgumentError):
                mod.scale[grid(N), 256](*bad)
        with pytest.raises(ons.CompileError):
            ons.Module("__global__ void k(float* x) { oops }").k[1, 1](x)
        mod.scale[grid(N), 256](2.0, x, x, N)
    graph.replay()
    torch.cuda.synchronize()
    assert (x == 2).all()


def test_checks(mod: ons.Module, torch: Any) -> None:
    x = torch.ones(8, device="cuda")
    with pytest.raises(ons.ArgumentValueError, match="detach"):
        mod.scale[1, 8](2.0, x, torch.nn.Parameter(x), 8)
    mod.scale[1, 8](2.0, torch.nn.Parameter(x), ons.like(x), 8)
    z = torch.ones(8, dtype=torch.complex64, device="cuda").conj().imag
    with pytest.raises(ons.ArgumentValueError, match="resolve_neg"):
        mod.scale[1, 8](2.0, z, x, 8)
    with pytest.raises(ons.ArgumentTypeError, match="item"):
        mod.scale[1, 8](x[0], x, x, 8)
    with pytest.raises(ons.ArgumentError, match="'x'.*cpu"):
        mod.scale[1, 8](2.0, x.cpu(), x, 8)
    mod.scale[1, 8](torch.tensor(2.0), x, x, 8)
    pinned = torch.ones(8).pin_memory()
    assert (mod.scale[1, 8](2.0, pinned, ons.like(x), 8) == 2).all()


@pytest.mark.parametrize(
    ("dtype", "spelling", "header"),
    [
        ("float16", "__half", "cuda_fp16.h"),
        ("bfloat16", "__nv_bfloat16", "cuda_bf16.h"),
        ("float8_e4m3fn", "__nv_fp8_e4m3", "cuda_fp8.h"),
        ("float8_e5m2", "__nv_fp8_e5m2", "cuda_fp8.h"),
    ],
)
def test_small_floats(torch: Any, dtype: str, spelling: str, header: str) -> None:
    kernel = ons.Module(
        f"#include <{header}>\n__global__ void copy(const {spelling}* x, {spelling}* y)"
        " { y[threadIdx.x] = x[threadIdx.x]; }"
    ).copy
    x = torch.arange(8.0, device="cuda").to(getattr(torch, dtype))
    y = kernel[1, 8](x, ons.like(x))
    assert y.dtype == x.dtype and torch.equal(y.float(), x.float())
    with pytest.raises(ons.ArgumentTypeError):
        kernel[1, 8](x.float(), ons.like(x))


def test_second_device(mod: ons.Module, torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x = torch.ones(N, device="cuda:1")
    z = mod.scale[grid(N), 256](2.0, x, ons.like(x), N)
    assert torch.cuda.current_device() == 0 and z.device.index == 1
    assert (z == 2).all()
    with pytest.raises(ons.ArgumentError, match="cuda:0"):
        mod.scale[grid(N), 256](2.0, x, torch.ones(N, device="cuda:0"), N)


def test_zero_sizes(mod: ons.Module, torch: Any) -> None:
    x = torch.empty(1, 8, 0, 128, device="cuda")
    assert mod.scale[0, 256](2.0, x, ons.like(x), 0).shape == x.shape


def test_torch_is_not_asked_for_its_marks(mod: ons.Module, torch: Any) -> None:
    """They are read in place; were their places not found, torch would be asked by name."""

    class Loud(torch.Tensor):
        def is_neg(self) -> bool:
            raise AssertionError("asked")

        is_conj = is_neg

        @property
        def requires_grad(self) -> bool:
            raise AssertionError("asked")

    out, x = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda").as_subclass(Loud)
    for _ in range(2):
        mod.scale[1, 32](2.0, x, out, 4)
    assert out.tolist() == [2] * 4
    with pytest.raises(ons.ArgumentError, match="asked"):
        mod.scale[1, 32](2.0, torch._neg_view(x), out, 4)
