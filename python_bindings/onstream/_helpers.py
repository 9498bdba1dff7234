"""What the extension module leaves to Python: rare things, done by other libraries.

Nothing here is imported before it is needed, and no array library is imported at all: functions
are called with arrays whose library is loaded already.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from onstream import _core

# ons_locate_what
_NVRTC = 1
_CUDA_INCLUDE = 2
_HOST_COMPILER = 3

_CUDA = 2  # kDLCUDA


def _nvrtc_wheel() -> str | None:
    """NVRTC's file in the wheels. The finder would load it, which a cached module has no use for."""
    import glob

    try:
        import nvidia  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    found = [
        path for root in nvidia.__path__ for path in glob.glob(f"{root}/*/lib/libnvrtc.so.[0-9]*")
    ]
    return max(found, default=None)


def locate(what: int) -> str | None:
    """Where the packages of this environment have a file or command, None if they have none."""
    if what == _HOST_COMPILER:
        import ziglang  # type: ignore[import-not-found, unused-ignore]

        return f"{os.path.join(os.path.dirname(ziglang.__file__), 'zig')}\nc++"
    if what == _NVRTC and (wheel := _nvrtc_wheel()):
        return wheel
    from cuda import pathfinder  # type: ignore[import-not-found, unused-ignore]

    if what == _NVRTC:
        path: str = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
        return path
    if what == _CUDA_INCLUDE:
        found = [pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
        return ":".join(folder for folder in found if folder) or None
    return None


# ---- torch ----------------------------------------------------------------------------------


def advice_on(x: Any) -> str:
    """What to do about an array that its library does not hand over."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return "pass an array that its library hands over"
    if x.is_meta:
        return "it is on the meta device and has no memory: pass a tensor on the CPU or a GPU"
    if x.is_quantized:
        return "it is quantized: pass x.int_repr() or x.dequantize()"
    if x.is_nested:
        return "it is nested: pass its parts, or x.to_padded_tensor(0)"
    if x.layout is not torch.strided:
        return f"its layout is {x.layout}: pass x.to_dense(), or its parts"
    return "pass x.detach().clone()"


def torch_table_is_wrong() -> bool:
    """On ROCm: does the exchange table ask another runtime for the stream?"""
    version = sys.modules["torch"].__version__.split(".")
    return (int(version[0]), int(version[1])) < (2, 13)


def torch_stream(x: Any) -> int | None:
    """torch's current stream of the device of x."""
    if x.device.type != "cuda":
        return None
    stream: int = sys.modules["torch"]._C._cuda_getCurrentRawStream(x.device.index)
    return stream


def torch_plain(x: Any) -> tuple[Any, bool, str | None]:
    """What to ask for the memory of x, whether x requires grad, its lazy bit."""
    grad = x.requires_grad
    lazy = "neg" if x.is_neg() else "conj" if x.is_conj() else None
    return (x.detach() if grad else x), grad, lazy


def torch_like(x: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.empty_like(x, memory_format=torch.contiguous_format, requires_grad=False)


def torch_empty(x: Any, shape: tuple[int, ...], dtype: str) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, dtype), device=x.device)


# ---- NumPy and CuPy -------------------------------------------------------------------------


def _numpy_dtype(name: str) -> Any:
    numpy: Any = sys.modules["numpy"]
    try:
        return numpy.dtype(name)
    except TypeError:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]

        return numpy.dtype(getattr(ml_dtypes, name))


def numpy_bits(x: Any) -> tuple[Any, str]:
    """x as unsigned integers, and the name of its dtype."""
    return x.view(f"u{x.dtype.itemsize}"), x.dtype.name


def numpy_like(x: Any) -> Any:
    return sys.modules["numpy"].empty_like(x, order="C", subok=False)


def numpy_empty(x: Any, shape: tuple[int, ...], dtype: str) -> Any:
    return sys.modules["numpy"].empty(shape, _numpy_dtype(dtype))


def cupy_stream(x: Any) -> int:
    """CuPy's current stream of the device of x."""
    stream: int = sys.modules["cupy"].cuda.get_current_stream(x.device.id).ptr
    return stream


def cupy_like(x: Any) -> Any:
    with x.device:
        return sys.modules["cupy"].empty(x.shape, x.dtype)


def cupy_empty(x: Any, shape: tuple[int, ...], dtype: str) -> Any:
    with x.device:
        return sys.modules["cupy"].empty(shape, _numpy_dtype(dtype))


# ---- others ---------------------------------------------------------------------------------


def paddle_stream(x: Any) -> int:
    """Paddle's current stream, for versions without an exchange table."""
    device = x.place.gpu_device_id()
    stream: int = sys.modules["paddle"].device.cuda.current_stream(device).cuda_stream
    return stream


def warp_stream(x: Any) -> Any:
    """Warp's current stream of the device of x, which owns it."""
    return x.device.stream


# ---- JAX ------------------------------------------------------------------------------------


def _jax_device(x: Any) -> Any:
    (device,) = x.devices()
    return device


def jax_like(x: Any) -> Any:
    return sys.modules["jax"].numpy.empty(x.shape, x.dtype, device=_jax_device(x))


def jax_empty(x: Any, shape: tuple[int, ...], dtype: str) -> Any:
    return sys.modules["jax"].numpy.empty(shape, dtype, device=_jax_device(x))


class _Written:
    """A JAX array on a GPU and the stream that a kernel writes it on, for jax.dlpack."""

    def __init__(self, array: Any, device: int, stream: int) -> None:
        self._array = array
        self._device = device
        self._stream = stream

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._array.__dlpack_device__()
        return device

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        reader = 1 if stream is None else stream
        _core._stream_wait(_CUDA, self._device, reader, self._stream)
        return self._array.__dlpack__(stream=reader, **options)


def jax_finish(array: Any, device: int, stream: int) -> Any:
    """An array of JAX over the same memory, ordered after what is on the stream."""
    return sys.modules["jax"].dlpack.from_dlpack(_Written(array, device, stream))
