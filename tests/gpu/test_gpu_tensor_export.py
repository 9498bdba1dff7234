"""onstream.Tensor as a producer, on a GPU: shared memory, and order in both directions."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import onstream as ons

N = 1 << 20
GRID = ons.cdiv(N, 256)
DELAY = 20_000_000


@pytest.fixture
def home(torch: Any) -> Any:
    return torch.cuda.Stream()


def busy(mod: ons.Module, torch: Any, stream: Any) -> None:
    mod.spin[1, 1, 0, stream](torch.zeros(1, device="cuda"), DELAY)


def test_torch_there_and_back(mod: ons.Module, torch: Any, home: Any) -> None:
    for _ in range(20):
        x = torch.ones(N, device="cuda")
        t = ons.from_dlpack(x, stream=home)
        busy(mod, torch, home)
        mod.scale[GRID, 256](2.0, t, t, N)
        y = torch.from_dlpack(t)
        assert y.data_ptr() == x.data_ptr() == ons.from_dlpack(y).data_ptr
        y += 1  # after the kernel on the other stream
        assert (x == 3).all()
        del y
        mod.scale[GRID, 256](2.0, t, t, N)
        t.release()
        assert (x == 6).all()


def test_the_home_stream_waits_for_the_consumer(mod: ons.Module, torch: Any, home: Any) -> None:
    side = torch.cuda.Stream()
    for _ in range(20):
        x = torch.zeros(N, device="cuda")
        t = ons.from_dlpack(x, stream=home)
        with torch.cuda.stream(side):
            y = torch.from_dlpack(t)
            torch.cuda._sleep(DELAY)
            y += 3
            del y
        mod.scale[GRID, 256](2.0, t, t, N)  # on home
        t.release()
        assert (x == 6).all()


def test_every_stream_value(torch: Any, home: Any) -> None:
    t = ons.from_dlpack(torch.ones(N, device="cuda"), stream=home)
    for stream in (None, 1, 2, -1, home.cuda_stream, home):
        for version in (None, (1, 0)):
            capsule = t.__dlpack__(stream=stream, max_version=version)
            assert torch.utils.dlpack.from_dlpack(capsule).data_ptr() == t.data_ptr
    with pytest.raises(ValueError, match="0 is ambiguous"):
        t.__dlpack__(stream=0)


def test_the_host_reads_what_the_kernel_wrote(mod: ons.Module, torch: Any, home: Any) -> None:
    x = torch.ones(4, N // 4, device="cuda")
    for view, shape in ((x, x.shape), (x.T, x.T.shape), (x[:, ::2], (4, N // 8))):
        t = ons.from_dlpack(view, stream=home)
        busy(mod, torch, home)
        whole = ons.from_dlpack(x, stream=home)
        mod.scale[GRID, 256](2.0, whole, whole, N)
        y = np.from_dlpack(t, device="cpu")
        assert y.shape == tuple(shape) and (y == y.flat[0]).all() and y.flat[0] in (2, 4, 8)
        whole.release()
        with pytest.raises(BufferError, match="copy=False"):
            np.from_dlpack(t, device="cpu", copy=False)
    assert (torch.from_dlpack(ons.from_dlpack(x)) == 8).all()


def test_copies_on_the_device(torch: Any, home: Any) -> None:
    x = torch.arange(N, device="cuda")
    t = ons.from_dlpack(x, stream=home)
    for _ in range(20):
        y = torch.utils.dlpack.from_dlpack(t.__dlpack__(copy=True))
        assert y.data_ptr() != x.data_ptr() and (y == x).all()
        y += 1
    assert (x == torch.arange(N, device="cuda")).all()


def test_captured(mod: ons.Module, torch: Any, home: Any) -> None:
    x = torch.ones(N, device="cuda")
    outside = ons.from_dlpack(x, stream=home)
    mod.scale[GRID, 256](1.0, x, x, N)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(ons.OrderError):
            torch.from_dlpack(outside)
        with ons.borrow(x) as t:
            y = torch.from_dlpack(t)
            y += 1
            del y
            mod.scale[GRID, 256](2.0, t, t, N)
            with pytest.raises(ons.OrderError):
                t.__dlpack__(dl_device=(1, 0))
    graph.replay()
    torch.cuda.synchronize()
    assert (x == 4).all()
    del outside, graph
    gc.collect()
    torch.cuda.synchronize()
    ons.collect()
    assert ons.collect() == 0


def test_jax(mod: ons.Module, torch: Any, jax: Any, home: Any) -> None:
    for _ in range(20):
        x = torch.ones(N, device="cuda")
        t = ons.from_dlpack(x, stream=home)
        busy(mod, torch, home)
        mod.scale[GRID, 256](2.0, t, t, N)
        y = jax.dlpack.from_dlpack(t)
        assert y.unsafe_buffer_pointer() == x.data_ptr()
        assert bool((y + 1 == 3).all())
        del y
        t.release()


def test_cupy(mod: ons.Module, torch: Any, cupy: Any, home: Any) -> None:
    x = torch.ones(N, device="cuda")
    t = ons.from_dlpack(x, stream=home)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(20):
            busy(mod, torch, home)
            mod.scale[GRID, 256](2.0, t, t, N)
            y = cupy.from_dlpack(t)
            assert y.data.ptr == x.data_ptr()
            y *= 0.5
            del y
        assert (torch.from_dlpack(t) == 1).all()
        z = cupy.asarray(t)  # by the array interface, whose stream CuPy waits for
        assert z.data.ptr == x.data_ptr()
        stream.synchronize()
        del z


def test_managed_memory(mod: ons.Module, torch: Any, cupy: Any, home: Any) -> None:
    memory = cupy.cuda.malloc_managed(4 * N)
    x = cupy.ndarray((N,), cupy.float32, memory)
    x.fill(1)
    t = ons.from_dlpack(x, stream=home)
    busy(mod, torch, home)
    mod.scale[GRID, 256](2.0, t, t, N)
    y = np.from_dlpack(t, device="cpu")
    assert y.ctypes.data == x.data.ptr and (y == 2).all()


def test_tvm_ffi(mod: ons.Module, torch: Any, home: Any) -> None:
    """By the exchange table, onto the stream that use_stream names."""
    tvm_ffi = pytest.importorskip("tvm_ffi")
    t = ons.from_dlpack(torch.ones(N, device="cuda"), stream=home)
    data_ptr = tvm_ffi.convert(lambda x: x.data_ptr() if hasattr(x, "data_ptr") else 0)
    work = torch.cuda.Stream()
    with ons.use_stream(work):
        data_ptr(t)
        assert t.stream == work.cuda_stream
    u = tvm_ffi.from_dlpack(t)
    assert torch.from_dlpack(u).data_ptr() == t.data_ptr


def test_numba(torch: Any, home: Any) -> None:
    cuda = pytest.importorskip("numba.cuda")
    t = ons.from_dlpack(torch.arange(N, device="cuda"), stream=home)
    y = cuda.as_cuda_array(t)
    assert y.device_ctypes_pointer.value == t.data_ptr and y.copy_to_host()[5] == 5
