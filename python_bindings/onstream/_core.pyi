from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, final

from typing_extensions import Self

__version__: str

class Error(Exception): ...

class CompileError(Error):
    log: str
    source: str
    line: int | None

class ArgumentError(Error): ...
class ArgumentTypeError(ArgumentError, TypeError): ...
class ArgumentValueError(ArgumentError, ValueError): ...
class OrderError(Error): ...

class DeviceError(Error):
    code: int
    name: str | None

class UnavailableError(Error): ...
class NotFoundError(Error, AttributeError, KeyError): ...

_Extents = int | tuple[int] | tuple[int, int] | tuple[int, int, int] | list[int]
# A native handle, or an object of torch, CuPy, Numba or with __cuda_stream__.
_Stream = Any
# "cpu", "cuda", "cuda:N", a torch.device, a DLPack pair; None: the first GPU, else the CPU.
_Device = Any
_Key = (
    tuple[_Extents, _Extents]
    | tuple[_Extents, _Extents, int]
    | tuple[_Extents, _Extents, int, _Stream]
)

@final
class Module:
    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str | None: ...
    def __new__(
        cls,
        source: str,
        *,
        options: Iterable[str] = ...,
        headers: Mapping[str, str] = ...,
        name: str | None = ...,
    ) -> Self: ...
    def __getattr__(self, name: str) -> Kernel: ...
    def __getitem__(self, name: str, /) -> Kernel: ...
    def __dir__(self) -> list[str]: ...
    def prepare(self, device: _Device = ...) -> str: ...

@final
class Kernel:
    @property
    def name(self) -> str: ...
    @property
    def signature(self) -> str | None: ...
    def __getitem__(self, key: _Key, /) -> Launcher: ...
    def launch(
        self,
        args: Iterable[Any],
        *,
        grid: _Extents,
        block: _Extents,
        shared: int = ...,
        stream: _Stream = ...,
    ) -> Any: ...
    def prepare(self, device: _Device = ...) -> None: ...
    def attributes(self, device: _Device = ...) -> dict[str, int]: ...

@final
class Launcher:
    # None, the output, or a tuple of outputs, of the argument libraries' own types.
    def __call__(self, *args: Any) -> Any: ...

@final
class Output: ...

def load(
    path: str | bytes | PathLike[str] | PathLike[bytes],
    *,
    options: Iterable[str] = ...,
    headers: Mapping[str, str] = ...,
    name: str | None = ...,
) -> Module: ...
def empty(shape: int | Iterable[int], dtype: Any) -> Output: ...
def like(x: Any, /) -> Output: ...
def _stream_wait(device_type: int, device_id: int, waiting: int, signalling: int, /) -> None: ...
