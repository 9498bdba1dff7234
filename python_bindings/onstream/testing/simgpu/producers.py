"""Array libraries of the programs: what they tell of streams, who allocates, who frees."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from onstream.testing.simgpu.driver import BYTES, Driver, Stream

HOW_TO_BUILD = """\
The programmable producer is tests/python/producer/producer.c in the source tree: compile it
(cc -shared -fPIC -Iinclude -I$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
tests/python/producer/producer.c -o DIR/producer.so) and put DIR into PYTHONPATH, or name the file in
ONS_TEST_PRODUCER_PATH."""

# What DLPack calls the memory that the GPU of a number can use.
_DEVICES = {"device": 2, "managed": 13, "pinned": 3, "pinned as cpu": 1}


def load() -> Any:
    """The extension module `producer`."""
    path = os.environ.get("ONS_TEST_PRODUCER_PATH")
    if path:
        spec = importlib.util.spec_from_file_location("producer", path)
    else:
        spec = importlib.util.find_spec("producer")
    if spec is None or spec.loader is None:
        raise SystemExit(HOW_TO_BUILD)
    module = importlib.util.module_from_spec(spec)
    sys.modules["producer"] = module
    spec.loader.exec_module(module)
    if not hasattr(module, "set_allocator"):
        raise SystemExit(f"{module.__file__} is another producer.\n{HOW_TO_BUILD}")
    return module


class Cell:
    """What an allocation holds in the plain, sequential model: its first 8 bytes, or None for
    garbage."""

    __slots__ = ("value", "address", "strayed")

    def __init__(self, address: int) -> None:
        self.address = address
        self.value: int | None = None
        self.strayed = False  # used on a current stream other than it was allocated on


class Home:
    """A library on a device: its current stream, and per stream and place the blocks to be had
    there."""

    def __init__(self, machine: Any, stream: Stream) -> None:
        self.machine = machine
        self.stream = stream
        self.cache: dict[Any, list[int]] = {}
        machine.all_homes.append(self)


class Memory:
    """An allocation; whoever refers to it keeps it. It goes back to the stream it came from."""

    __slots__ = ("home", "how", "place", "stream", "cell", "alive")

    def __init__(self, home: Home, how: str, place: str = "device") -> None:
        self.alive = False
        self.home = home
        self.how = how
        self.place = place
        self.stream = home.stream
        driver: Driver = home.machine.driver
        cached = home.cache.get((home.stream.identity, place))
        if how == "pool":
            address = driver.allocate(home.stream)
        elif how == "cached" and cached:
            address = cached.pop()
        elif place == "device":
            address = driver.lib.sim_device_alloc(home.stream.device, BYTES)
        else:
            address = driver.lib.sim_pinned_alloc(BYTES)
        self.cell = Cell(address)
        self.alive = True
        home.machine.live_memory += 1

    @property
    def address(self) -> int:
        return self.cell.address

    def __del__(self) -> None:
        if self.alive:
            self.home.machine.freed(
                Freed(
                    self.home,
                    self.how,
                    self.place,
                    self.stream,
                    self.cell.address,
                    self.cell.strayed,
                )  # fmt: skip
            )


class Freed(NamedTuple):
    home: Home
    how: str
    place: str
    stream: Stream
    address: int
    strayed: bool


class Described:
    """What generic kernels go by."""

    shape = (BYTES // 4,)
    dtype = "float32"


class Ordered(Described):
    """__dlpack__ only, and no word about streams: it orders itself with events onto the stream
    that it is asked with, as CuPy and JAX do."""

    def __init__(self, machine: Any, tensor: Any, stream: Stream, **how: Any) -> None:
        self.machine = machine
        self.tensor = tensor
        self.stream = stream
        self.versioned = how.get("versioned", True)
        self.slow = how.get("slow", False)

        self.place = how.get("place", "device")

    def __dlpack_device__(self) -> tuple[int, int]:
        return device_pair(self.place.removesuffix(" as cpu"), self.stream.device)

    def order(self, stream: int | None) -> None:
        """What is asked for is a stream of the same device; -1: no order."""
        if stream is None or stream == -1:
            return
        machine = self.machine
        machine.asked += 1
        waiting = machine.stream_of_handle(stream, self.stream.device)
        if self.slow and not machine.captures:
            machine.own_syncs += 1
            machine.driver.synchronise(self.stream)
        else:
            machine.driver.join(waiting, self.stream)

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None, **_: Any) -> Any:
        self.order(stream)
        return self.machine.producer.capsule(self.tensor, self.versioned)


class Failing(Ordered):
    """Changes its mind when its capsule is made, and its stream ordered, already."""

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        super().__dlpack__(stream=None, **options)
        raise BufferError("changed its mind")


class Meddler(Ordered):
    """Calls back before it answers: whatever its owner does meanwhile to other arrays."""

    on_ask: Callable[[], None] | None = None

    def __dlpack__(self, **options: Any) -> Any:
        if self.on_ask is not None:
            self.on_ask()
        return super().__dlpack__(**options)


class Immutable(Ordered):
    """Registered as read-only: its capsule need not say so."""


class ArrayImpl(Ordered):
    """JAX's, by its name: immutable, and asked with a stream always."""

    __module__ = "jaxlib._jax"

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        if stream is None or stream < 1:
            raise ValueError(f"JAX knows no stream {stream}")
        return super().__dlpack__(stream=stream)


class Arrow(Described):
    """Arrow's C device interface: an event behind what its producer did, or all of that is over."""

    def __init__(self, machine: Any, tensor: Any, stream: Stream, **_: Any) -> None:
        self.producer = machine.producer
        self.tensor = tensor
        self.event = 0

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self.producer.arrow(self.tensor, self.event)


class Telling(Ordered):
    """The same where the user registers how to find the stream."""


class Interface(Ordered):
    """__cuda_array_interface__ with its stream; __dlpack__ tells the device."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        handle = self.stream.handle
        return {
            "version": 3,
            "shape": (BYTES // 4,),
            "typestr": "<f4",
            "strides": None,
            "data": (self.tensor.data, False),
            "stream": handle if handle else 1,
        }


def device_pair(place: str, device: int) -> tuple[int, int]:
    return _DEVICES[place], 0 if place.startswith("pinned") else device


def make_tensor(kind: Any, memory: Memory, device: int, place: str = "device") -> Any:
    """An instance of the extension's type over the memory, which it keeps."""
    pair = device_pair(place, device)
    return kind(memory.address, (BYTES // 4,), device=pair, owner=memory)


class Worker:
    """A second host thread. What was done before a hand-over is known after it."""

    def __init__(self, driver: Driver) -> None:
        self.lib = driver.lib
        self.token = 0
        self.wanted = threading.Semaphore(0)
        self.done = threading.Semaphore(0)
        self.work: Callable[[], Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        while True:
            self.wanted.acquire()
            self.lib.sim_host_receive(self.token)
            try:
                assert self.work is not None
                self.result = self.work()
            except BaseException as error:  # noqa: BLE001
                self.error = error.with_traceback(None)
            self.work = None
            self.lib.sim_host_send(self.token + 1)
            self.done.release()

    def __call__(self, work: Callable[[], Any]) -> Any:
        self.token += 2
        self.work = work
        self.lib.sim_host_send(self.token)
        self.wanted.release()
        self.done.acquire()
        self.lib.sim_host_receive(self.token + 1)
        result, error = self.result, self.error
        self.result = self.error = None
        if error is None:
            return result
        try:
            raise error
        finally:
            del error  # no cycle with its traceback
