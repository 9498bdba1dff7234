"""What a seed draws: names, streams, arrays, and the steps that most programs need."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from onstream.testing.simgpu.program import (
    MANAGED_KINDS,
    PINNED_KINDS,
    STREAMS,
    TABLES,
    Step,
    launch,
    make,
)


class Named(NamedTuple):
    name: str
    kind: str
    device: int
    place: str


class Draw:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.devices = (0, 0, 0, 1) if self.rng.random() < 0.2 else (0,)
        few = self.rng.random() < 0.5  # streams: then what happens meets
        self.streams = {
            device: [i for i, (d, _) in enumerate(STREAMS) if d == device] for device in (0, 1)
        }
        if few:
            self.streams[0] = self.rng.sample(self.streams[0], 3)
        self.count = 0
        self.arrays: list[Named] = []
        self.tensors: list[str] = []
        self.graphs: list[str] = []
        self.built: dict[str, list[str]] = {}  # the kernels of graphs made node by node
        self.captures: list[str] = []
        self.steps: list[Step] = []

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def add(self, op: str, **what: Any) -> None:
        self.steps.append(Step(op, what))

    def device(self) -> int:
        return self.rng.choice(self.devices)

    def stream(self, device: int) -> int:
        return self.rng.choice(self.streams[device])

    def array(
        self, device: int | None = None, kinds: tuple[str, ...] = (), places: tuple[str, ...] = ()
    ) -> str | None:
        """What is not of a device's own memory is of all devices."""
        found = [
            known.name
            for known in self.arrays
            if (device is None or known.device == device or known.place != "device")
            and (not kinds or known.kind in kinds)
            and (not places or known.place in places)
        ]
        # Mostly the latest: older ones may be gone.
        return self.rng.choice(found[-5:]) if found else None

    def place(self, kind: str) -> str:
        if kind in MANAGED_KINDS and self.chance(0.08):
            return "managed"
        if kind in PINNED_KINDS and self.chance(0.15):
            return self.rng.choice(("pinned", "pinned as cpu"))
        return "device"

    def new(self, kind: str, device: int = 0, **what: Any) -> str:
        name = self.name("a")
        place = what.setdefault("place", "device")
        self.arrays.append(Named(name, kind, device, place))
        if kind not in TABLES or place.startswith("pinned"):
            what.setdefault("stream", self.stream(device))
        if kind not in ("jax", "immutable"):
            what.setdefault("how", self.rng.choice(("pool", "cached")))
        if place == "managed":
            what["how"] = "cached"
        what.setdefault("value", self.rng.randrange(1, 1 << 20))
        self.steps.append(make(name, kind, device=device, **what))
        return name

    def call(self, kernel: str, *args: Any, **what: Any) -> None:
        what.setdefault("value", self.rng.randrange(1, 1 << 20))
        self.steps.append(launch(kernel, args, **what))

    def tensor(self, array: str, stream: int | None) -> str:
        name = self.name("t")
        self.tensors.append(name)
        self.add("import", tensor=name, array=array, stream=stream)
        return name

    def begin(self, **what: Any) -> str:
        name = self.name("g")
        self.graphs.append(name)
        step = {"kind": None, "device": 0, "mode": self.rng.choice((0, 1, 2)), "worker": False}
        self.add("capture", name=name, **{**step, **what})
        return name

    def rest(self) -> None:
        """Small things."""
        choice = self.rng.randrange(6)
        if choice == 0:
            self.add("collect", worker=self.chance(0.3))
        elif choice == 1:
            self.add("sync", stream=self.stream(self.device()))
        elif choice == 2:
            self.add("context", which=self.rng.choice(("none", "0", "1", "second")))
        elif choice == 3:
            self.add("policy", order=self.rng.choice((None, "join", "strict")))
        elif choice == 4:
            self.add("drain")
        else:
            self.add("run", count=self.rng.randrange(1, 10))

    def pause(self) -> None:
        if self.chance(0.3):
            self.rest()
