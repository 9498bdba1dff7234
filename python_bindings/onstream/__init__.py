"""Launch CUDA C++ kernels on other people's tensors, on the stream those tensors are already on.

import onstream as ons
mod = ons.Module(source)
z = mod.axpy[ons.cdiv(n, 256), 256](2.0, x, y, ons.like(x), n)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onstream._core import (
    ArgumentError,
    ArgumentTypeError,
    ArgumentValueError,
    CompileError,
    DeviceError,
    Error,
    Kernel,
    Launcher,
    Module,
    NotFoundError,
    OrderError,
    Output,
    Tensor,
    UnavailableError,
    UnsupportedError,
    __version__,
    collect,
    empty,
    from_dlpack,
    like,
    load,
    register_producer,
    set_order,
    use_stream,
)

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "CompileError",
    "DeviceError",
    "Error",
    "Kernel",
    "Launcher",
    "Module",
    "NotFoundError",
    "OrderError",
    "Output",
    "Tensor",
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
    "register_producer",
    "set_order",
    "use_stream",
]


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up: how many blocks of b threads cover a elements."""
    return -(-a // b)


@contextmanager
def borrow(x: Any, stream: Any = None) -> Iterator[Tensor]:
    """with borrow(x) as t: a Tensor over the memory of x, for a while.

    As t = from_dlpack(x, stream), with t.release() at the end of the block.
    """
    tensor = from_dlpack(x, stream)
    try:
        yield tensor
    finally:
        tensor.release()
