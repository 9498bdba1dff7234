"""Producers that tell no stream, and __cuda_array_interface__, on the stand-in driver; run by
test_simgpu.py in a process of its own.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
from python_producers import (
    ArrayInterface,
    BrokenProducer,
    DLPackProducer,
    HalfWay,
    OldestProducer,
    OldProducer,
)
from simgpu_machine import Arrays, Sim, joined, launch, with_device

import onstream as ons

# ---- producers without a known stream -------------------------------------------------------


def test_unknown_producers_are_asked_with_the_launch_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = DLPackProducer(producer, arrays())
    launch(mod, p, arrays())
    assert p.asked == [{"stream": arrays.stream, "max_version": (1, 3)}]
    assert sim.launch().stream == arrays.stream
    old = OldProducer(producer, arrays())
    launch(mod, old, arrays())
    assert old.asked == [{"stream": arrays.stream}]


def test_unknown_producers_alone_are_asked_with_the_legacy_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = DLPackProducer(producer, arrays())
    kernel = ons.Module("__global__ void reads(const float* x) {}").reads
    kernel[1, 1](p)
    assert p.asked == [{"stream": 1, "max_version": (1, 3)}]
    assert not sim.launch().stream


def test_unknown_producers_are_not_written(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = DLPackProducer(producer, arrays())
    with pytest.raises(ons.OrderError, match="'out'.*does not tell.*const") as caught:
        launch(mod, arrays(), p)
    assert "ONS_" not in str(caught.value)
    assert sim.launches() == []
    del p, caught
    assert producer.counts()["handed_out"] == producer.counts()["deleted"]


def test_producers_that_cannot_be_ordered(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = OldestProducer(producer, arrays())
    with pytest.raises(ons.ArgumentError, match="'x'.*stream"):
        launch(mod, p, arrays())
    assert p.asked == [] and sim.launches() == []


@pytest.mark.parametrize("versioned", [True, False])
def test_capsules_live_until_the_kernel_is_done(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, versioned: bool
) -> None:
    # On a device of its own: a launch looks at the oldest few only of what is held there, and
    # the other tests' streams never get done.
    arrays.use(sim.stream(device=1))

    def on_other() -> Any:
        return arrays(device=(2, 1))

    p = DLPackProducer(producer, on_other(), versioned=versioned)
    launch(mod, p, on_other())
    del p
    for _ in range(3):
        launch(mod, on_other(), on_other())
    assert producer.counts()["deleted"] == 0
    sim.complete(arrays.stream)
    launch(mod, on_other(), on_other())
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


@pytest.mark.parametrize("major", [0, 2])
def test_capsules_of_a_foreign_version(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, major: int
) -> None:
    p = DLPackProducer(producer, arrays(major=major))
    with pytest.raises(ons.ArgumentTypeError, match=f"'x'.*version {major};.*update"):
        launch(mod, p, arrays())
    assert sim.launches() == []
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("versioned", [True, False])
def test_capsules_whose_producer_raises(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, versioned: bool, kept: bool
) -> None:
    p = HalfWay(producer, arrays(), versioned=versioned)
    p.kept = kept
    with pytest.raises(ons.ArgumentTypeError, match="'x'.*changed its mind"):
        launch(mod, p, arrays())
    assert sim.launches() == [] and producer.counts()["deleted"] == (0 if kept else 1)
    del p
    gc.collect()
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] == 1


def test_errors_inside_a_producer_are_shown(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    for kind in (TypeError, RuntimeError):
        p = BrokenProducer(producer, arrays(), kind("inside"))
        with pytest.raises(ons.ArgumentTypeError, match=f"'x'.*{kind.__name__}: inside"):
            launch(mod, p, arrays())
        assert p.asked == [{"stream": arrays.stream, "max_version": (1, 3)}]
    assert sim.launches() == []


def test_capsules_of_refused_launches(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    p = DLPackProducer(producer, arrays())
    for args in ((2.0, p, None, "n"), (2.0, p, 5, 4), (2.0, p, arrays(), 2**70)):
        with pytest.raises(ons.ArgumentError):
            mod.scale[1, 1](*args)
    assert producer.counts()["handed_out"] == producer.counts()["deleted"]


# ---- __cuda_array_interface__ ---------------------------------------------------------------


def interface(stream: Any, **entries: Any) -> ArrayInterface:
    return ArrayInterface(shape=(4,), data=(0x8000, False), stream=stream, **entries)


def test_array_interface_needs_to_tell_the_device(mod: ons.Module, sim: Sim) -> None:
    with pytest.raises(ons.ArgumentTypeError, match="which of several GPUs"):
        launch(mod, interface(sim.stream()), interface(sim.stream()))


def test_array_interface_without_any_order(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    for version in (0, 2, None):
        old = ArrayInterface(shape=(4,), data=(0x8000, False), version=version)
        with pytest.raises(ons.OrderError, match="'x'.*version 3.*__dlpack__"):
            launch(mod, old, arrays())
        with pytest.raises(ons.OrderError, match="'out'.*version 3.*__dlpack__"):
            launch(mod, arrays(), old)
    assert sim.launches() == []


def test_array_interface_streams(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    x = with_device(producer, arrays(), arrays.stream)
    launch(mod, x, x)
    assert sim.launch().stream == arrays.stream
    assert sim.launch().value(1) == 0x8000
    assert x.asked == []
    stream = sim.stream()
    sim.clear()
    launch(mod, x, with_device(producer, arrays(), stream))
    assert sim.enqueued() == joined(arrays.stream, stream)


def test_array_interface_without_a_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    x = with_device(producer, arrays(), None)
    launch(mod, x, arrays())
    assert sim.launch().value(1) == 0x8000, "version 3: None means that no order is needed"
    with pytest.raises(ons.OrderError, match="'out'"):
        launch(mod, arrays(), x)
    old = with_device(producer, arrays(), None, version=2)
    launch(mod, old, arrays())
    assert [a["stream"] for a in old.asked] == [arrays.stream]


def test_array_interface_details(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    def x(**entries: Any) -> Any:
        return with_device(producer, arrays(), arrays.stream, **entries)

    with pytest.raises(ons.ArgumentValueError, match="read-only"):
        launch(mod, x(), x(data=(0x8000, True)))
    with pytest.raises(ons.ArgumentTypeError, match="float64"):
        launch(mod, x(typestr="<f8"), x())
    with pytest.raises(ons.ArgumentTypeError, match="mask"):
        launch(mod, x(mask=x()), x())
    with pytest.raises(ons.ArgumentError, match="stream"):
        launch(mod, with_device(producer, arrays(), 0), x())
    with pytest.raises(ons.ArgumentValueError, match="contiguous"):
        launch(mod, x(shape=(2, 2), strides=(4, 8)), x())
    launch(mod, x(shape=(2, 2), strides=(8, 4)), x())
    assert len(sim.launches()) == 1
