# ruff: noqa: F811
"""Tensors that are kept, on the stand-in driver; run by test_simgpu.py in a process of its own.

Most are the sequences by which the DLPack discussion showed what an exchange of tensors has to get
right. The arrays' library works on a stream that the tests set; what it does there is noted, and
the order of that work and of the kernels is worked out from the driver calls (cases 13, 14, 31, 32).
"""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import producer_fakes as fakes
import pytest
from python_producers import ArrayInterface, DLPackProducer
from simgpu_cases import CUDA, Arrays, Record, Sim, arrays, sim, sim_machine  # noqa: F401
from simgpu_producers import memory  # noqa: F401

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


# ---- the sequences ---------------------------------------------------------------------------


def test_a_kernel_then_in_place_work(
    mod: ons.Module, sim: Sim, arrays: Arrays, order: Order
) -> None:
    x, side = arrays(), sim.stream()
    written = order.work(arrays.stream)
    t = ons.from_dlpack(x, stream=side)
    kernel = order.kernel(mod, t, t)
    t.release()
    added = order.work(arrays.stream)  # x += 2
    assert order.is_before(written, kernel) and order.is_before(kernel, added)
    assert sim.launch().stream == side


def test_in_place_work_before_the_release_is_not_ordered(
    mod: ons.Module, sim: Sim, arrays: Arrays, order: Order
) -> None:
    """What release() is for: the checker sees what is missing."""
    t = ons.from_dlpack(arrays(), stream=sim.stream())
    kernel = order.kernel(mod, t, t)
    assert not order.is_before(kernel, order.work(arrays.stream))
    t.release()


def test_two_arrays_on_two_streams(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, order: Order
) -> None:
    others = Arrays(producer, sim, slot=1)
    before = order.work(arrays.stream), order.work(others.stream)
    t, u = ons.from_dlpack(arrays()), ons.from_dlpack(others())
    assert (t.stream, u.stream) == (arrays.stream, others.stream)
    kernel = order.kernel(mod, t, u)
    t.release()
    u.release()
    after = order.work(arrays.stream), order.work(others.stream)
    assert all(order.is_before(work, kernel) for work in before)
    assert all(order.is_before(kernel, work) for work in after)
    assert deleted(producer) == 2


def test_a_tensor_and_an_array_on_a_third_stream(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, order: Order
) -> None:
    """The home stream stands for a use on another one."""
    others, home, third = Arrays(producer, sim, slot=1), sim.stream(), sim.stream()
    t = ons.from_dlpack(arrays(), stream=home)
    kernel = order.kernel(mod, others(), t, stream=third)
    assert sim.launch().stream == third
    t.release()
    assert order.is_before(kernel, order.work(arrays.stream))


def test_a_view_that_outlives_its_source(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, order: Order
) -> None:
    source, side = arrays(8), sim.stream()
    view = arrays.type(source.data + 16, (4,), device=CUDA, owner=source)
    t = ons.from_dlpack(view, stream=side)
    del source, view
    gc.collect()
    kernel = order.kernel(mod, t, t)
    assert deleted(producer) == 0
    t.release()
    assert deleted(producer) == 1
    assert order.is_before(kernel, order.work(arrays.stream))


def test_nested_stream_blocks_of_two_libraries(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, order: Order
) -> None:
    """with a.stream(a1): with ons.use_stream(s): with b.stream(b1): with a.stream(a2): ..."""
    others = Arrays(producer, sim, slot=1)
    a1, b1, a2, s = (sim.stream() for _ in range(4))
    arrays.use(a1)
    x, x_made = arrays(), order.work(a1)
    with ons.use_stream(s):
        others.use(b1)
        y, y_made = others(), order.work(b1)
        t = ons.from_dlpack(x)
        arrays.use(a2)
        u = ons.from_dlpack(y)
        assert t.stream == u.stream == s
        kernel = order.kernel(mod, t, u)
        t.release()
        u.release()
    assert sim.launch().stream == s
    assert order.is_before(x_made, kernel) and order.is_before(y_made, kernel)
    assert order.is_before(kernel, order.work(a2)), "that library's stream at the release"
    assert order.is_before(kernel, order.work(b1))
    # Memory that was on a1 may be reused in its order, which nobody has joined.
    assert not order.is_before(kernel, order.work(a1)) and deleted(producer) == 1
    finish(sim, a1, b1, s)
    assert deleted(producer) == 2


def test_the_original_is_deleted_after_the_import(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    for make in (arrays, lambda: DLPackProducer(producer, arrays())):
        gone = deleted(producer)
        x = make()
        t = ons.from_dlpack(x, stream=sim.stream())
        del x
        gc.collect()
        mod.scale[1, 1](2.0, t, arrays(), 4)
        assert deleted(producer) == gone
        home = t.stream
        t.release()
        finish(sim, arrays.stream, home)
        assert deleted(producer) == gone + 1


def test_asynchronous_deallocation_and_reuse(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, order: Order
) -> None:
    """del gives the memory back before the kernel has run, and whoever gets it next waits."""
    t = ons.from_dlpack(arrays(), stream=sim.stream())
    kernel = order.kernel(mod, t, t)
    del t
    assert deleted(producer) == 1, "nothing waits for the kernel"
    assert order.is_before(kernel, order.work(arrays.stream))
    assert sim.calls("cuStreamSynchronize") == sim.calls("cuEventSynchronize") == 0


def test_released_on_another_stream_than_imported(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, order: Order
) -> None:
    first, home = arrays.stream, sim.stream()
    t = ons.from_dlpack(arrays(), stream=home)
    kernel = order.kernel(mod, t, t)
    arrays.use(sim.stream())
    t.release()
    assert order.is_before(kernel, order.work(arrays.stream))
    assert deleted(producer) == 0, "the allocator would reuse it in the order of the first"
    finish(sim, first, home)
    assert deleted(producer) == 1


@pytest.mark.parametrize("collector", [False, True])
def test_released_by_another_thread(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, order: Order, collector: bool
) -> None:
    """The current stream of that thread means nothing: the memory is kept instead."""
    home = sim.stream()
    tensors = [ons.from_dlpack(arrays(), stream=home)]
    order.kernel(mod, tensors[0], tensors[0])
    sim.clear()
    if collector:
        cycle: list[Any] = [tensors.pop()]
        cycle.append(cycle)
        del cycle
    queries = producer.counts()["queries"]
    thread = threading.Thread(target=gc.collect if collector else tensors[0].release)
    thread.start()
    thread.join()
    assert sim.enqueued() == [("record", home)]
    assert producer.counts()["queries"] == queries and deleted(producer) == 0
    assert ons.collect() == 1
    finish(sim, arrays.stream, home)
    assert deleted(producer) == 1 and ons.collect() == 0


EXIT = """
import importlib.util, sys
sys.path.insert(0, {here!r})
spec = importlib.util.spec_from_file_location("producer", {producer!r})
producer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(producer)
import onstream as ons
from conftest import SOURCE
from simgpu_cases import Arrays, Sim
sim, mod = Sim(), ons.Module(SOURCE)
mod.scale.prepare("cuda:0")
a = Arrays(producer, sim)
kept, released, dropped = (ons.from_dlpack(a(), stream=sim.stream()) for _ in range(3))
for t in (kept, released, dropped):
    mod.scale[1, 1](2.0, t, t, 4)
a.use(sim.stream())
released.release()
del dropped
cycle = [ons.from_dlpack(a())]
cycle.append(cycle)
{last}
print("the end")
"""


@pytest.mark.parametrize("last", ["", "sim.lib.sim_deinitialize()", "sys.modules.clear()",
                                  "ons.keep = kept"])  # fmt: skip
def test_interpreter_exit_with_work_pending(producer_module: Any, last: str) -> None:
    code = EXIT.format(
        here=str(Path(__file__).parent), producer=producer_module.__file__, last=last
    )
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (0, "the end\n"), result.stderr
    assert "Fatal" not in result.stderr


@pytest.mark.parametrize("versioned", [True, False])
def test_capsules_are_deleted_once(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any, versioned: bool
) -> None:
    x = DLPackProducer(producer, arrays(), versioned=versioned)
    t = ons.from_dlpack(x)
    assert producer.capsule_name(x.capsules[0]).startswith("used_dltensor")
    x.capsules.clear()
    assert deleted(producer) == 0
    t.release()
    t.release()
    ons.collect()
    del t
    assert deleted(producer) == 1
    # Taken, and then refused: it is of no GPU.
    bad = DLPackProducer(producer, arrays.type(8, (4,), device=(8, 0)), versioned=versioned)
    with pytest.raises(ons.Error):
        ons.from_dlpack(bad)
    bad.capsules.clear()
    assert producer.counts()["handed_out"] == deleted(producer)
    # Never taken.
    x.__dlpack__()
    x.capsules.clear()
    assert producer.counts()["handed_out"] == deleted(producer)


@pytest.mark.parametrize("table", [True, False])
def test_another_major_version_is_only_deleted(
    sim: Sim, arrays: Arrays, producer: Any, table: bool
) -> None:
    x = arrays(major=2)
    with pytest.raises(ons.ArgumentTypeError, match="from_dlpack: got a .* version 2"):
        ons.from_dlpack(x if table else DLPackProducer(producer, x))
    assert producer.counts()["handed_out"] == deleted(producer) == 1


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


LOOKED_AT = """
import importlib.util, sys
sys.path.insert(0, {here!r})
spec = importlib.util.spec_from_file_location("producer", {producer!r})
producer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(producer)
import onstream as ons
from conftest import SOURCE
from simgpu_cases import Arrays, Sim
sim, mod = Sim(), ons.Module(SOURCE)
mod.scale.prepare("cuda:0")
a = Arrays(producer, sim)
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


# ---- as arguments --------------------------------------------------------------------------------


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


# ---- capture ---------------------------------------------------------------------------------------


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
