"""Launch CUDA C++ kernels on other people's tensors, on the stream those tensors are already on.

import onstream as ons
mod = ons.Module(source)
z = mod.axpy[ons.cdiv(n, 256), 256](2.0, x, y, ons.like(x), n)
"""

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
    UnavailableError,
    __version__,
    empty,
    like,
    load,
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
    "UnavailableError",
    "__version__",
    "cdiv",
    "empty",
    "like",
    "load",
]


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up: how many blocks of b threads cover a elements."""
    return -(-a // b)
