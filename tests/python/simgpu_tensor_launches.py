# ruff: noqa: F811
"""Tensors as arguments and in captures, on the stand-in driver; run by test_simgpu.py in a process
of its own."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import producer_fakes as fakes
import pytest
from python_producers import DLPackProducer
from simgpu_machine import CUDA, Arrays, Sim
from simgpu_producers import memory  # noqa: F401
from simgpu_tensor_order import Order, deleted, finish, nothing_is_left, order  # noqa: F401

import onstream as ons

# ---- as arguments ---------------------------------------------------------------------------


def test_what_a_tensor_tells(sim: Sim, arrays: Arrays, producer: Any) -> None:
    t = ons.from_dlpack(arrays.type(0x4000, (3, 5), device=CUDA, strides=(7, 2), byte_offset=64))
    assert (t.shape, t.strides, t.dtype, t.device) == ((3, 5), (7, 2), "float32", "cuda:0")
    assert (t.data_ptr, t.nbytes, t.read_only) == (0x4040, 60, False)
    assert repr(t) == "<onstream.Tensor (3, 5) of float32 on cuda:0>"
    assert ons.from_dlpack(arrays(device=(13, 1))).device == "cuda_managed:1"
    assert ons.from_dlpack(arrays(device=(3, 0))).device == "cuda_host"
    with pytest.raises(TypeError):
        ons.Tensor()


def test_read_only_tensors(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    t = ons.from_dlpack(arrays(flags=1))
    assert t.read_only
    with pytest.raises(ons.ArgumentError, match="'out'.*read-only"):
        mod.scale[1, 1](2.0, t, t, 4)
    mod.scale[1, 1](2.0, t, arrays(), 4)


def test_tensors_of_an_unknown_order_are_read_only(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, memory: Any
) -> None:
    """Nothing keeps their library's later work behind a write, as for a launch."""
    for x in (DLPackProducer(producer, arrays()), fakes.WithInterface(memory())):
        for home in (None, sim.stream()):
            t = ons.from_dlpack(x, stream=home)
            assert t.read_only
            with pytest.raises(ons.ArgumentValueError, match="'out'.*read-only"):
                mod.scale[1, 1](2.0, arrays(), t, 4)
            mod.scale[1, 1](2.0, t, arrays(), 4)
    assert not ons.from_dlpack(fakes.WithInterface(memory(), arrays.stream)).read_only
    buffer = ons.from_dlpack(fakes.CoreBuffer(producer, arrays()), stream=arrays.stream)
    assert not buffer.read_only, "it lives on the stream that the caller names"
    mod.scale[1, 1](2.0, buffer, buffer, 4)


def test_tables_that_only_lend(mod: ons.Module, sim: Sim, producer: Any) -> None:
    class Memory:
        pass

    lending = Arrays(producer, sim, slot=1, null=("take",))
    memory = Memory()
    gone = weakref.ref(memory)
    t = ons.from_dlpack(
        lending.type(0x4000, (3, 5), device=CUDA, strides=(5, 1), owner=memory), sim.stream()
    )
    home = t.stream
    del memory
    gc.collect()
    assert (t.shape, t.strides) == ((3, 5), (5, 1)) and gone() is not None
    t.release()
    assert sim.enqueued()[-2:] == [("record", home), ("wait", lending.stream)] and gone() is None


def test_released_by_another_argument(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, order: Order
) -> None:
    t = ons.from_dlpack(arrays())

    class Sly(DLPackProducer):
        def __dlpack__(self, **options: Any) -> Any:
            t.release()
            assert deleted(producer) == 0, "the call has it"
            return super().__dlpack__(**options)

    mod.scale[1, 1](2.0, Sly(producer, arrays()), t, 4)
    assert sim.launch().value(2) == arrays().data
    finish(sim, arrays.stream)
    assert deleted(producer) == producer.counts()["handed_out"] == 2


def test_outputs_beside_tensors(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    """A Tensor has no library: its outputs are Tensors, on the launch stream."""
    t = ons.from_dlpack(arrays())
    for output in (ons.empty(4, "float32"), ons.like(t)):
        z = mod.scale[1, 1](2.0, t, output, 4)
        assert type(z) is ons.Tensor and z.stream == arrays.stream
    assert type(mod.scale[1, 1](2.0, t, ons.like(arrays()), 4)) is arrays.type


# ---- capture --------------------------------------------------------------------------------


@pytest.mark.parametrize("captured", ["home", "producer"])
def test_no_import_across_a_capture(sim: Sim, arrays: Arrays, producer: Any, captured: str) -> None:
    home = sim.stream()
    stream = home if captured == "home" else arrays.stream
    sim.begin(stream)
    with pytest.raises(ons.OrderError, match=f"{home:#x}.*") as caught:
        ons.from_dlpack(arrays(), stream=home)
    assert f"{arrays.stream:#x}" in str(caught.value)
    assert sim.alive(stream) and sim.enqueued() == []
    assert producer.counts()["handed_out"] == deleted(producer)
    sim.end(stream)


def test_producers_of_unknown_order_are_not_asked_in_a_capture(
    sim: Sim, arrays: Arrays, producer: Any
) -> None:
    home = sim.stream()
    sim.begin(home)
    x = DLPackProducer(producer, arrays())
    with pytest.raises(ons.OrderError, match=f"from_dlpack: got a DLPackProducer.*{home:#x}"):
        ons.from_dlpack(x, stream=home)
    assert x.asked == [] and sim.alive(home)
    sim.end(home)


def test_a_life_within_one_capture(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    sim.begin(arrays.stream)
    with ons.borrow(arrays()) as t:
        mod.scale[1, 1](2.0, t, t, 4)
    t = ons.from_dlpack(arrays())
    mod.scale[1, 1](2.0, t, t, 4)
    del t
    assert deleted(producer) == 0, "the graph may run again"
    assert sim.alive(arrays.stream)
    assert sim.end(arrays.stream) == 2  # destroys the graph
    ons.collect()
    assert deleted(producer) == 2


def test_releases_out_of_a_capture(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    home = sim.stream()
    t, u = ons.from_dlpack(arrays(), stream=home), ons.from_dlpack(arrays(), stream=home)
    sim.begin(home)
    with pytest.raises(ons.OrderError, match="capture"):
        t.release()
    assert t.shape == (4,) and sim.alive(home)
    del u  # cannot refuse: the graph gets it
    ons.collect()
    assert deleted(producer) == 0 and sim.alive(home)
    assert sim.end(home) == 0
    t.release()
    finish(sim, home)
    ons.collect()
    assert deleted(producer) == 2
