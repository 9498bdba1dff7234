"""Which work on the stand-in driver comes before which, and that no Tensor is left."""

from __future__ import annotations

import ctypes
import gc
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from simgpu_machine import Record, Sim

import onstream as ons


class Order:
    """Which work comes before which: streams in their order, joined by events."""

    def __init__(self, sim: Sim) -> None:
        sim.clear()
        self.sim = sim
        self.notes: list[tuple[int, int]] = []

    def work(self, stream: int) -> int:
        """The library of an array puts work on a stream now."""
        self.notes.append((self.sim.lib.sim_record_count(), stream))
        return len(self.notes) - 1

    def kernel(self, mod: ons.Module, *args: Any, stream: Any = None) -> int:
        mod.scale[1, 1, 0, stream](2.0, *args, 4)
        launch = self.sim.launches()[-1]
        last = max(i for i, r in enumerate(self._records()) if r.function.startswith(b"cuLaunch"))
        self.notes.append((last, launch.stream or 0))
        return len(self.notes) - 1

    def _records(self) -> list[Record]:
        count = self.sim.lib.sim_record_count()
        return [self.sim.lib.sim_record_at(ctypes.c_size_t(i)).contents for i in range(count)]

    def _clocks(self) -> list[tuple[int, Counter[int]]]:
        clocks: dict[int, Counter[int]] = defaultdict(Counter)
        events: dict[int, Counter[int]] = {}
        seen: dict[int, tuple[int, Counter[int]]] = {}
        for position, record in enumerate([*self._records(), None]):
            for index, (at, stream) in enumerate(self.notes):
                if at == position:
                    clocks[stream][stream] += 1
                    seen[index] = stream, Counter(clocks[stream])
            if record is None or record.result != 0:
                continue
            if record.function == b"cuEventRecord":
                events[record.handle] = Counter(clocks[record.stream or 0])
            if record.function == b"cuStreamWaitEvent":
                clocks[record.stream or 0] |= events[record.handle]
        return [seen[index] for index in range(len(self.notes))]

    def is_before(self, first: int, second: int) -> bool:
        clocks = self._clocks()
        stream, own = clocks[first]
        return clocks[second][1][stream] >= own[stream]


@pytest.fixture
def order(sim: Sim) -> Order:
    return Order(sim)


def deleted(producer: Any) -> int:
    counts = producer.counts()
    assert counts["deleted"] <= counts["handed_out"]
    number: int = counts["deleted"]
    return number


def finish(sim: Sim, *streams: int) -> None:
    """Everything on the streams is done, whichever waits for which."""
    for stream in streams * 2:
        sim.complete(stream)
    ons.collect()


@pytest.fixture(autouse=True)
def nothing_is_left(sim: Sim, producer: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    streams: list[int] = []

    def stream(**options: Any) -> int:
        streams.append(Sim.stream(sim, **options))
        return streams[-1]

    monkeypatch.setattr(sim, "stream", stream)
    yield
    gc.collect()
    finish(sim, 0, *streams)
    assert ons.collect() == 0
    assert producer.counts()["handed_out"] == deleted(producer)
