from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict, final

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
class UnsupportedError(Error, NotImplementedError): ...
class NotFoundError(Error, AttributeError, KeyError): ...

_Extents = int | tuple[int] | tuple[int, int] | tuple[int, int, int] | list[int]
# A native handle, or an object of torch, CuPy, Numba or with __cuda_stream__.
_Stream = Any
# "cpu", "cuda", "cuda:N", a torch.device, a DLPack pair; None: the first GPU, else the CPU.
_Device = Any
# A native handle (of an event, a graph, a node), or a library's object that has one.
_Handle = Any
_Order = Literal["join", "strict", "trust"]
_Block = _Extents | Literal["auto"]
_Key = (
    tuple[_Extents, _Block]
    | tuple[_Extents, _Block, int]
    | tuple[_Extents, _Block, int, _Stream]
)

class _Occupancy(TypedDict):
    blocks: int
    fraction: float
    multiprocessors: int

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
    def global_(self, name: str, device: _Device = ..., stream: _Stream = ...) -> Tensor: ...
    # data: whatever exports a contiguous buffer.
    def set_global(
        self, name: str, data: Any, device: _Device = ..., stream: _Stream = ...
    ) -> None: ...

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
        grid: _Extents | None = ...,
        block: _Block,
        shared: int = ...,
        stream: _Stream = ...,
        order: _Order | None = ...,
        graph: _Handle | None = ...,
        dependencies: _Handle | Sequence[_Handle] | None = ...,
        wait: _Handle | Sequence[_Handle] | None = ...,
        signal: _Handle | Sequence[_Handle] | None = ...,
        external: bool = ...,
        threads: _Extents | None = ...,
        cluster: _Extents | None = ...,
        cooperative: bool = ...,
        programmatic: bool = ...,
        priority: int | None = ...,
        carveout: int | None = ...,
    ) -> Any: ...
    def update_node(
        self,
        graph_exec: _Handle,
        node: _Handle,
        args: Iterable[Any],
        *,
        grid: _Extents | None = ...,
        block: _Block,
        shared: int = ...,
        threads: _Extents | None = ...,
    ) -> None: ...
    def prepare(self, device: _Device = ...) -> None: ...
    def attributes(self, device: _Device = ...) -> dict[str, int]: ...
    def occupancy(
        self, block: _Extents, shared: int = ..., device: _Device = ...
    ) -> _Occupancy: ...
    def max_potential_block_size(
        self, shared: int = ..., limit: int = ..., device: _Device = ...
    ) -> tuple[int, int]: ...

@final
class Launcher:
    # None, the output, or a tuple of outputs, of the argument libraries' own types.
    def __call__(self, *args: Any) -> Any: ...

@final
class Output: ...

@final
class Tensor:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def stream(self) -> int | None: ...
    @property
    def data_ptr(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def read_only(self) -> bool: ...
    def release(self) -> None: ...

@final
class use_stream:
    @property
    def handle(self) -> int | None: ...
    def __new__(cls, stream: _Stream, device: _Device = ...) -> Self: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *exc_info: object) -> None: ...

def load(
    path: str | bytes | PathLike[str] | PathLike[bytes],
    *,
    options: Iterable[str] = ...,
    headers: Mapping[str, str] = ...,
    name: str | None = ...,
) -> Module: ...
def empty(shape: int | Iterable[int], dtype: Any) -> Output: ...
def like(x: Any, /) -> Output: ...
def from_dlpack(x: Any, /, stream: _Stream = ...) -> Tensor: ...
def collect() -> int: ...
def register_producer(
    type: type[Any],
    /,
    *,
    stream: Callable[[Any], _Stream] | None = ...,
    read_only: bool = ...,
    protocol: Literal["exchange", "dlpack", "cuda_array_interface", "arrow"] | None = ...,
) -> None: ...
def set_order(order: _Order | None, /) -> None: ...
def _stream_wait(device_type: int, device_id: int, waiting: int, signalling: int, /) -> None: ...
