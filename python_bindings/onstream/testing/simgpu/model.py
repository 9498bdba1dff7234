"""What a program's things are, beside the machine: who knows what, and what memory holds."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from onstream.testing.simgpu.driver import Stream, mix
from onstream.testing.simgpu.producers import Cell, Home
from onstream.testing.simgpu.program import KERNELS, UNKNOWN, Step


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
    def __init__(self, kind: str, obj: Any, cell: Cell, home: Home) -> None:
        self.kind = kind
        self.obj = obj
        self.cell = cell
        self.home = home
        self.tensors: set[str] = set()  # that have it now
        self.abandoned = False  # nobody orders its producer after its last use
        self.readers: list[Stream] = []  # that the producer does not know of
        self.captured: Capture | None = None  # allocated in it: there before a replay only

    @property
    def read_only(self) -> bool:
        return self.kind == "jax"

    @property
    def device(self) -> int:
        return self.home.stream.device

    @property
    def stream(self) -> Stream | None:
        """What the library is told."""
        return None if self.kind in UNKNOWN else self.home.stream


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

    @property
    def device(self) -> int:
        return self.array.device

    @property
    def obj(self) -> Any:
        return self.tensor

    @property
    def stream(self) -> Stream | None:
        return self.told


Effect = tuple[str, tuple[Any, ...]]


class Capture:
    def __init__(self, name: str, origin: Stream, mode: int, worker: bool) -> None:
        self.name = name
        self.mode = mode
        self.worker = worker
        self.members = [origin]
        self.graph = Graph()


class Graph:
    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.keep: list[Any] = []  # what its user keeps for it
        self.used: list[Array | Held] = []
        self.handle = 0
        self.executable = 0


@dataclass
class Call:
    """A launch to be made: the letter and the thing of every argument."""

    step: Step
    args: list[tuple[str, Any]]
    stream: Stream
    policy: str
    capture: Capture | None  # of the stream
    events: dict[str, Any] = field(default_factory=dict)

    @property
    def trust(self) -> bool:
        return self.policy == "trust"

    def is_output(self, index: int) -> bool:
        return isinstance(self.step.args[index], tuple)

    def things(self, outputs: bool) -> list[tuple[str, Any]]:
        """Arguments that are memory."""
        return [
            (letter, used)
            for i, (letter, used) in enumerate(self.args)
            if letter != "v" and (outputs or not self.is_output(i))
        ]


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
