# ruff: noqa: F811
"""The streams of Tensors on the stand-in driver; run by test_simgpu.py in a process of its own."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from python_producers import ArrayInterface, DLPackProducer
from simgpu_machine import BEGINNING, CUDA, Arrays, Sim
from simgpu_producers import memory  # noqa: F401
from simgpu_tensor_order import Order, deleted, finish, nothing_is_left, order  # noqa: F401

import onstream as ons

# ---- streams -----------------------------------------------------------------------------------


def test_the_home_stream(sim: Sim, arrays: Arrays) -> None:
    given, used = sim.stream(), sim.stream()
    assert ons.from_dlpack(arrays()).stream == arrays.stream
    assert sim.enqueued() == [], "nothing needs to be joined"
    with ons.use_stream(used):
        assert ons.from_dlpack(arrays()).stream == used
        assert ons.from_dlpack(arrays(), stream=given).stream == given
        assert ons.from_dlpack(arrays(), given).stream == given
        with ons.use_stream(None):
            assert ons.from_dlpack(arrays()).stream == arrays.stream
    with pytest.raises(TypeError, match="stream"):
        ons.from_dlpack(arrays(), stream="fast")
    with pytest.raises(ValueError, match="stream"):
        ons.from_dlpack(arrays(), stream=-1)


def test_a_tensor_of_a_tensor(sim: Sim, arrays: Arrays) -> None:
    t = ons.from_dlpack(arrays())
    assert ons.from_dlpack(t) is t and ons.from_dlpack(t, stream=t.stream) is t
    with pytest.raises(ValueError, match="stays on its stream"):
        ons.from_dlpack(t, stream=sim.stream())


def test_producers_without_a_stream_are_asked_for_order(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    home = sim.stream()
    x = DLPackProducer(producer, arrays())
    t = ons.from_dlpack(x, stream=home)
    assert x.asked == [{"stream": home, "max_version": (1, 3)}] and sim.enqueued() == []
    mod.scale[1, 1](2.0, t, arrays(), 4)
    t.release()
    assert deleted(producer) == 0
    finish(sim, arrays.stream, home)
    assert deleted(producer) == 1
    assert ons.from_dlpack(x).stream == 0 and x.asked[-1]["stream"] == 1


def test_array_interfaces(mod: ons.Module, sim: Sim, order: Order) -> None:
    stream, home = sim.stream(), sim.stream()

    class Library(ArrayInterface):
        alive = 0

        def __init__(self) -> None:
            super().__init__(data=(0x8000, False), shape=(2, 3), strides=(4, 8), stream=stream)
            Library.alive += 1

        def __dlpack_device__(self) -> tuple[int, int]:
            return CUDA

        def __dlpack__(self, **options: Any) -> Any:
            raise AssertionError("the interface says all")

        def __del__(self) -> None:
            Library.alive -= 1

    t = ons.from_dlpack(Library(), stream=home)
    assert (t.shape, t.strides, t.data_ptr, t.nbytes) == ((2, 3), (1, 2), 0x8000, 24)
    assert Library.alive == 1, "the interface lends: the array is kept"
    t.release()
    assert sim.enqueued()[-2:] == [("record", home), ("wait", stream)]
    assert Library.alive == 0


def test_registered_producers_are_asked_for_their_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, order: Order
) -> None:
    class Mine(DLPackProducer):
        stream = sim.stream()

    ons.register_producer(Mine, stream=lambda x: x.stream)
    home = sim.stream()
    x = Mine(producer, arrays())
    written = order.work(Mine.stream)
    t = ons.from_dlpack(x, stream=home)
    assert x.asked == [{"stream": -1, "max_version": (1, 3)}]
    kernel = order.kernel(mod, t, t)
    assert order.is_before(written, kernel)
    Mine.stream = sim.stream()
    t.release()
    assert order.is_before(kernel, order.work(Mine.stream))
    # del runs no Python code of the library's: it only keeps the memory.
    t = ons.from_dlpack(x, stream=home)
    sim.clear()
    del t
    assert sim.enqueued() == [("record", home)]


def test_memory_that_is_freed_in_no_order(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    """cuda.core's buffers have no stream, and may be freed at any time."""
    buffer: Any = type("Buffer", (DLPackProducer,), {"__module__": "cuda.core._memory"})
    home = sim.stream()
    t = ons.from_dlpack(buffer(producer, arrays()), stream=home)
    mod.scale[1, 1](2.0, t, t, 4)
    sim.clear()
    t.release()
    assert sim.enqueued() == [("record", home)] and deleted(producer) == 0
    finish(sim, home)
    assert deleted(producer) == 1
    # With a stream that somebody tells it is joined as well.
    ons.register_producer(buffer, stream=lambda x: arrays.stream)
    sim.clear()
    t = ons.from_dlpack(buffer(producer, arrays()), stream=home)
    assert sim.enqueued() == [("record", arrays.stream), ("wait", home)]
    mod.scale[1, 1](2.0, t, t, 4)
    sim.clear()
    t.release()
    assert ("wait", arrays.stream) in sim.enqueued() and deleted(producer) == 1
    finish(sim, arrays.stream, home)
    assert deleted(producer) == 2


def test_borrow(mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, order: Order) -> None:
    with ons.borrow(arrays(), stream=sim.stream()) as t:
        kernel = order.kernel(mod, t, t)
        assert deleted(producer) == 0
    assert order.is_before(kernel, order.work(arrays.stream)) and deleted(producer) == 1
    with pytest.raises(ons.ArgumentValueError, match="'scale'.*'x'.*Tensor that has been released"):
        mod.scale[1, 1](2.0, t, t, 4)
    with pytest.raises(ValueError, match="has been released"):
        t.shape  # noqa: B018
    with pytest.raises(ZeroDivisionError), ons.borrow(arrays()) as t:
        raise ZeroDivisionError
    assert deleted(producer) == 2 and repr(t) == "<onstream.Tensor, released>"


def test_failing_stream_queries(sim: Sim, arrays: Arrays, producer: Any) -> None:
    t = ons.from_dlpack(arrays())
    arrays.use(arrays.stream, fails=1)
    with pytest.raises(ons.ArgumentTypeError, match="from_dlpack: got .*no stream today"):
        ons.from_dlpack(arrays())
    with pytest.raises(RuntimeError, match="no stream today"):
        t.release()
    arrays.use(arrays.stream, fails=2)
    with pytest.raises(RuntimeError, match="does not tell its current stream"):
        t.release()
    assert t.shape == (4,), "it is as it was"
    before = deleted(producer)
    del t  # raises nothing
    finish(sim, arrays.stream)
    assert deleted(producer) == before + 1


def test_registered_after_the_import(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    """The array has not been kept and cannot be asked: what its library said before counts."""

    class Unknown(DLPackProducer):
        pass

    known = Arrays(producer, sim, slot=1)
    first, home, elsewhere = known.stream, sim.stream(), sim.stream()
    tensors = [ons.from_dlpack(x, stream=home)
               for x in (Unknown(producer, arrays()), Unknown(producer, arrays()),
                         known(), known())]  # fmt: skip
    ons.register_producer(Unknown, stream=lambda a: elsewhere)
    ons.register_producer(known.type, stream=lambda a: elsewhere)
    sim.clear()
    tensors.pop().release()
    assert sim.enqueued() == [("record", home), ("wait", first)]
    tensors.pop()
    assert sim.enqueued()[2:] == [("record", home), ("wait", first)]
    assert deleted(producer) == 2, "given back in the order of the first"
    sim.clear()
    tensors.pop().release()
    del tensors
    assert [step for step, _ in sim.enqueued()] == ["record"] * 2, "nobody waits"
    ons.register_producer(known.type)


LOOKED_AT = (
    BEGINNING
    + """\
for i in range(200):  # more types than are remembered
    try:
        mod.scale[1, 1](2.0, type(f"T{{i}}", (), {{}})(), a(), 4)
    except ons.ArgumentTypeError:
        pass
from python_producers import DLPackProducer
tensors = []
class Meta(type):
    def __getattribute__(cls, name):
        if name == "__dlpack__" and tensors:
            tensors.pop().release()
        return super().__getattribute__(name)
class Sly(DLPackProducer, metaclass=Meta):
    pass
t = ons.from_dlpack(Sly(producer, a()))
tensors.append(t)
t.release()
assert not tensors and "released" in repr(t)
print("the end")
"""
)


def test_released_while_the_type_is_looked_at(producer_module: Any) -> None:
    code = LOOKED_AT.format(here=str(Path(__file__).parent), producer=producer_module.__file__)
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (0, "the end\n"), result.stderr


def test_released_by_the_stream_function(sim: Sim, arrays: Arrays, producer: Any) -> None:
    """The array that is asked stays until it has answered."""
    seen = []

    class Mine(DLPackProducer):
        pass

    def stream(array: Any) -> int:
        if tensors:
            tensors.pop().release()
            gc.collect()
            seen.append(array.asked)
        return arrays.stream

    ons.register_producer(Mine, stream=stream)
    tensors: list[Any] = []
    t = ons.from_dlpack(Mine(producer, arrays()))
    tensors.append(t)
    t.release()
    t.release()
    assert repr(t) == "<onstream.Tensor, released>" and len(seen) == 1
    assert deleted(producer) == 1


class Owner:
    """A stream that is gone with its last reference, as CuPy's is."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@pytest.mark.parametrize("how", ["stream", "use_stream", "borrow"])
def test_the_stream_is_kept(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, how: str
) -> None:
    owner = Owner(sim.stream())
    home, gone = owner.handle, weakref.ref(owner)
    borrowed = None
    if how == "use_stream":
        with ons.use_stream(owner):
            t = ons.from_dlpack(arrays())
    elif how == "borrow":
        borrowed = ons.borrow(arrays(), stream=owner)
        t = borrowed.__enter__()
    else:
        t = ons.from_dlpack(arrays(), stream=owner)
    del owner
    gc.collect()
    mod.scale[1, 1](2.0, t, t, 4)
    assert gone() is not None and t.stream == home
    sim.clear()
    if borrowed is None:
        t.release()
    else:
        borrowed.__exit__()
    assert sim.enqueued() == [("record", home), ("wait", arrays.stream)]
    assert gone() is None, "the memory is given back, and nothing needs the stream"


def test_the_stream_is_kept_for_who_still_needs_it(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    owner = Owner(sim.stream())
    home, gone = owner.handle, weakref.ref(owner)
    t, u = ons.from_dlpack(arrays(), stream=owner), ons.from_dlpack(arrays(), stream=owner)
    with pytest.raises(ons.Error):
        ons.from_dlpack(object(), stream=owner)
    del owner
    capsule = t.__dlpack__(stream=sim.stream(), max_version=(1, 3))
    t.release()
    sim.begin(home)
    del u  # the graph has it now
    assert gone() is not None
    del capsule
    finish(sim, arrays.stream)
    assert gone() is not None, "the graph's"
    assert sim.end(home) == 0
    finish(sim, home)
    assert ons.collect() == 0 and gone() is None


@pytest.mark.parametrize("how", ["stream", "use_stream", "registered", "kept by a view"])
def test_a_stream_that_refers_to_its_tensor_is_collected(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, how: str
) -> None:
    owner = Owner(sim.stream())
    home, gone = owner.handle, weakref.ref(owner)
    array = arrays()
    if how == "registered":

        class Mine(DLPackProducer):
            owner: Any = None

        array = Mine(producer, array)
        array.owner = owner
        ons.register_producer(Mine, stream=lambda array: array.owner)
        owner.array = array  # type: ignore[attr-defined]
        t = ons.from_dlpack(array)
    elif how == "use_stream":
        with ons.use_stream(owner):
            t = ons.from_dlpack(array)
    else:
        t = ons.from_dlpack(array, stream=owner)
    owner.tensor = t  # type: ignore[attr-defined]
    view = t.__dlpack__(stream=-1, max_version=(1, 3)) if how == "kept by a view" else None
    mod.scale[1, 1](2.0, t, t, 4)
    sim.clear()
    del owner, t, array
    gc.collect()
    if view is not None:
        assert gone() is not None and sim.enqueued() == []
        del view
        gc.collect()
    assert sim.enqueued()[0] == ("record", home), "released while the stream was there"
    finish(sim, home, arrays.stream)
    gc.collect()
    assert gone() is None and deleted(producer) == 1


class Destroying(Owner):
    """... and is destroyed by a finalizer, which the collector runs before anything else."""

    log: list[str] = []

    def __del__(self) -> None:
        self.log.append("destroyed")


def test_a_stream_is_not_destroyed_under_its_tensor(sim: Sim, arrays: Arrays) -> None:
    owner = Destroying(sim.stream())
    gone = weakref.ref(owner)
    t = owner.tensor = ons.from_dlpack(arrays(), stream=owner)  # type: ignore[attr-defined]
    del owner, t
    gc.collect()
    assert gone() is not None and Destroying.log == []
    gone().tensor.release()  # type: ignore[union-attr]
    gc.collect()
    assert gone() is None and Destroying.log == ["destroyed"]


def test_a_stream_that_a_producer_told_is_kept(sim: Sim, arrays: Arrays, producer: Any) -> None:
    class Mine(DLPackProducer):
        pass

    streams: list[Any] = [sim.stream(), sim.stream()]
    told: list[Any] = []

    def stream(array: Any) -> Owner:
        owner = Owner(streams[len(told)])
        told.append(weakref.ref(owner))
        return owner

    ons.register_producer(Mine, stream=stream)
    t = ons.from_dlpack(Mine(producer, arrays()))
    assert t.stream == streams[0] and told[0]() is not None
    sim.clear()
    view = t.__dlpack__(stream=arrays.stream, max_version=(1, 3))
    del t
    gc.collect()
    assert told[0]() is not None, "the view comes back to it"
    del view
    finish(sim, *streams, arrays.stream)
    assert told[0]() is None and len(told) == 1


def test_an_import_that_fails_keeps_no_stream(sim: Sim, arrays: Arrays) -> None:
    owner = Owner(sim.stream())
    gone = weakref.ref(owner)
    arrays.use(arrays.stream, fails=1)
    for stream in (owner, None):
        with ons.use_stream(owner), pytest.raises(ons.ArgumentTypeError):
            ons.from_dlpack(arrays(), stream=stream)
    del owner, stream
    assert gone() is None


def test_a_stream_of_which_there_are_two_names(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    for own in (0, 1):
        t = ons.from_dlpack(arrays(), stream=own)
        assert ons.from_dlpack(t, stream=0) is ons.from_dlpack(t, stream=1) is t
        with pytest.raises(ValueError, match="stays on its stream.* is given"):
            ons.from_dlpack(t, stream=2)
        t.release()
        with pytest.raises(ValueError, match="released"):
            ons.from_dlpack(t, stream=0)
    pinned = ons.from_dlpack(arrays(device=(3, 0)))
    assert ons.from_dlpack(pinned) is pinned
    for stream in (0, 1, sim.stream()):
        with pytest.raises(ValueError, match="host memory.*leave stream out"):
            ons.from_dlpack(pinned, stream=stream)
