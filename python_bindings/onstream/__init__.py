"""Launch CUDA C++ kernels on other people's tensors, on the stream those tensors are already on.

import onstream as ons
mod = ons.Module(source)
z = mod.axpy[ons.cdiv(n, 256), 256](2.0, x, y, ons.like(x), n)
"""

from __future__ import annotations

from onstream._core import (
    ArgumentError,
    ArgumentTypeError,
    ArgumentValueError,
    CompileError,
    CompileWarning,
    DeviceError,
    Error,
    GenericKernel,
    Kernel,
    Launcher,
    Module,
    NotFoundError,
    OrderError,
    Output,
    Tensor,
    TensorMap,
    UnavailableError,
    UnsupportedError,
    __version__,
    collect,
    empty,
    from_dlpack,
    like,
    load,
    load_bundle,
    register_producer,
    set_order,
    tensor_map,
    use_stream,
    workspace,
    zeros,
    zeros_like,
)

# Importing is quick: neither typing nor contextlib are needed for what is here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "CompileError",
    "CompileWarning",
    "DeviceError",
    "Error",
    "GenericKernel",
    "Kernel",
    "Launcher",
    "Module",
    "NotFoundError",
    "OrderError",
    "Output",
    "Tensor",
    "TensorMap",
    "UnavailableError",
    "UnsupportedError",
    "__version__",
    "borrow",
    "cdiv",
    "collect",
    "empty",
    "from_dlpack",
    "like",
    "load",
    "load_bundle",
    "prepare",
    "register_producer",
    "set_order",
    "tensor_map",
    "use_stream",
    "workspace",
    "zeros",
    "zeros_like",
]


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up: how many blocks of b threads cover a elements."""
    return -(-a // b)


class borrow:  # noqa: N801 - used as a function is
    """with borrow(x) as t: a Tensor over the memory of x, for a while.

    As t = from_dlpack(x, stream), with t.release() at the end of the block.
    """

    __slots__ = ("_stream", "_tensor", "_x")

    def __init__(self, x: Any, stream: Any = None) -> None:
        self._x, self._stream = x, stream
        self._tensor: Tensor | None = None

    def __enter__(self) -> Tensor:
        if self._tensor is not None:
            raise RuntimeError("borrow: this one is entered already; make another")
        self._tensor = from_dlpack(self._x, self._stream)
        self._x = self._stream = None
        return self._tensor

    def __exit__(self, *exc_info: object) -> None:
        if self._tensor is not None:
            self._tensor.release()


def prepare(
    modules: Module | Kernel | Iterable[Module | Kernel],
    devices: Any = None,
    *,
    workers: int | None = None,
    progress: Callable[[int, int, str], object] | None = None,
) -> None:
    """Compiles and loads modules (all their plain kernels) and kernels (instances of templates)
    for devices, so that no first launch has to.

    devices: one, or several; as for Module.prepare. workers: how many compile at a time; None: as
    many as there are processors. The host's compilers run beside each other; NVRTC's front end
    takes one source after another within a process, so that there it saves less. Ranks of a job
    share the work through the cache. progress: called in this thread after each as
    progress(done, total, name), as tqdm's update wants it: lambda *_: bar.update().

    All are tried. Then the first error is raised, with what else failed in its __notes__ (from
    Python 3.11 on) and in its `others`, a list."""
    from onstream._prepare import prepare as run

    run(modules, devices, workers=workers, progress=progress)
