"""What a program's things are, beside the machine: who knows what, and what memory holds."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from onstream.testing.simgpu.driver import Stream, mix
from onstream.testing.simgpu.producers import Cell, Home
from onstream.testing.simgpu.program import KERNELS, READ_ONLY, TABLES, UNKNOWN, Step


class Violation(Exception):
    """Something that must not happen. `kind` is short, `details` may be long."""

    def __init__(self, kind: str, details: str = "") -> None:
        super().__init__(f"{kind}: {details}" if details else kind)
        self.kind = kind
        self.details = details


class Outcome:
    """Of a call of the library."""

    def __init__(self) -> None:
        self.value: Any = None
        self.refused: str | None = None


class Array:
    def __init__(self, kind: str, obj: Any, cell: Cell, home: Home, place: str = "device") -> None:
        self.kind = kind
        self.place = place
        self.obj = obj
        self.cell = cell
        self.home = home
        self.tensors: set[str] = set()  # that have it now
        self.abandoned = False  # nobody orders its producer after its last use
        self.readers: list[Stream] = []  # that the producer does not know of
        self.captured: Capture | None = None  # allocated in it: there before a replay only

    @property
    def read_only(self) -> bool:
        return self.kind in READ_ONLY

    @property
    def device(self) -> int:
        return self.home.stream.device

    @property
    def is_managed(self) -> bool:
        return self.place == "managed"

    @property
    def is_pinned(self) -> bool:
        return self.place.startswith("pinned")

    @property
    def stream(self) -> Stream | None:
        """What the library is told."""
        return None if self.kind in UNKNOWN or self.is_pinned else self.home.stream

    @property
    def is_unknown(self) -> bool:
        """Its producer orders it when it is asked, and learns of no reader."""
        return self.kind in UNKNOWN and not self.is_pinned

    @property
    def order(self) -> Stream:
        """What its user orders by."""
        return self.home.stream


class Held:
    """A Tensor, and what is known of it."""

    def __init__(self, tensor: Any, array: Array, home: Stream, capture: Capture | None) -> None:
        self.tensor = tensor
        self.array = array
        self.cell = array.cell
        self.home = home
        self.capture = capture
        self.producer = array.stream  # on the way in
        self.told = home  # by the name that it has in the thread of a call
        self.released = False
        self.tied: Graph | None = None  # that keeps the memory after the release

    @property
    def read_only(self) -> bool:
        """Also where nothing keeps its library's later work behind a write."""
        return self.array.read_only or self.producer is None

    kind = "tensor"
    abandoned = False
    captured = None
    is_pinned = False
    is_unknown = False

    @property
    def device(self) -> int:
        return self.array.device

    @property
    def is_managed(self) -> bool:
        return self.array.is_managed

    @property
    def obj(self) -> Any:
        return self.tensor

    @property
    def stream(self) -> Stream | None:
        return self.told

    @property
    def order(self) -> Stream:
        return self.told


Used = Array | Held
Effect = tuple[str, tuple[Any, ...]]


class Capture:
    def __init__(self, name: str, origin: Stream, mode: int, worker: bool) -> None:
        self.name = name
        self.mode = mode
        self.worker = worker
        self.members = [origin]
        self.graph = Graph(origin.device)


@dataclass
class Node:
    """Of a graph made node by node."""

    kernel: str
    handle: int
    used: list[Used]


class Graph:
    def __init__(self, device: int) -> None:
        self.device = device
        self.effects: list[Effect] = []
        self.nodes: list[Node] = []
        self.keep: list[Any] = []  # what its user keeps for it
        self.is_waited_for = False  # before that is dropped, as nothing else orders it
        self.used: list[Used] = []
        self.handle = 0
        self.executable = 0

    def use(self, used: Used) -> None:
        if used not in self.used:
            self.used.append(used)


@dataclass
class Arg:
    """Of a launch: a number, or memory."""

    letter: str
    used: Any  # a number; memory; of an output, whose library allocates it
    how: str | None = None  # of an output
    like: Used | None = None
    given: bool = False  # the caller's own, by out=

    @property
    def is_memory(self) -> bool:
        return self.letter != "v"

    @property
    def is_made(self) -> bool:
        return self.how is not None and not self.given

    @property
    def is_zeroed(self) -> bool:
        return self.how in ("zeros", "zeros_like")

    @property
    def is_own(self) -> bool:
        """Allocated by onstream."""
        return self.is_made and (isinstance(self.used, Held) or self.used.kind not in TABLES)

    @property
    def is_written(self) -> bool:
        return self.letter in "wu"


@dataclass
class Call:
    """A launch to be made."""

    step: Step
    args: list[Arg]
    device: int
    stream: Stream
    policy: str
    capture: Capture | None  # of the stream
    events: dict[str, Any] = field(default_factory=dict)

    @property
    def trusts(self) -> bool:
        return self.policy == "trust"

    def memory(self, made: bool) -> list[Arg]:
        """With what the call allocates, or without."""
        return [arg for arg in self.args if arg.is_memory and (made or not arg.is_made)]

    def outputs(self) -> list[Arg]:
        """What is returned."""
        return [arg for arg in self.args if arg.how not in (None, "workspace")]


def apply(kernel: str, args: tuple[Any, ...]) -> None:
    """What the simulation's kernels do, to cells."""
    state = 0
    access = KERNELS[kernel]
    for letter, arg in zip(access, args, strict=True):
        if letter == "v":
            state = mix(state, struct.unpack("<I", struct.pack("<f", arg))[0])
        elif letter in "ru":
            state = mix(state, arg.value)
    for i, (letter, arg) in enumerate(zip(access, args, strict=True)):
        if letter in "wu":
            arg.value = mix(state, i)
