"""How much is kept for launches, on the stand-in driver; run by test_simgpu.py in a process of its
own, as all that is kept in it counts."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from python_producers import DLPackProducer
from simgpu_machine import CUDA, Arrays, Sim, launch, with_device

import onstream as ons


@pytest.mark.parametrize("kind", ["capsule", "interface"])
def test_large_memory_is_given_back_at_once(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, kind: str
) -> None:
    """One launch looks at all that is kept where that is much memory, else at a little of it."""
    for length, is_large in ((4, False), (1 << 24, True)):  # of 16 bytes and of 64 MiB
        xs = []
        for _ in range(5):
            tensor = arrays.type(0x100000, (length,), device=CUDA)
            xs.append(
                DLPackProducer(producer, tensor)
                if kind == "capsule"
                else with_device(producer, tensor, None, shape=(length,), data=(1 << 20, False))
            )
            launch(mod, xs[-1], arrays())
        gone = [weakref.ref(x) for x in xs]
        before = producer.counts()["deleted"]
        xs.clear()
        sim.complete(arrays.stream)
        launch(mod, arrays(), arrays())
        freed = (
            producer.counts()["deleted"] - before
            if kind == "capsule"
            else sum(x() is None for x in gone)
        )
        assert freed == (5 if is_large else 2)
        ons.collect()
