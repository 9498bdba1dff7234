# ruff: noqa: F811
"""onstream.Tensor as a producer, on the stand-in driver; run by test_simgpu.py in a process of its
own. Order is read from the driver calls; data and races are in tests/unit/test_tensor_export.c."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from exchange_table import IS_COPIED, READ_ONLY, Versioned, managed, table_of
from producer_fakes import Arrow, ArrowDeviceArray
from python_producers import ArrayInterface, DLPackProducer
from simgpu_machine import CUDA, Arrays, Sim
from simgpu_tensor_order import finish, nothing_is_left  # noqa: F401

import onstream as ons

HOST = 1, 0


@pytest.fixture
def t(sim: Sim, arrays: Arrays) -> Iterator[ons.Tensor]:
    """On a stream of its own, which is its producer's."""
    t = ons.from_dlpack(arrays())
    assert sim.enqueued() == [] and t.stream == arrays.stream
    yield t
    t.release()


def home(t: ons.Tensor) -> int:
    assert t.stream is not None
    return t.stream


def joins(waiting: int, signalling: int) -> list[tuple[str, int]]:
    return [("record", signalling), ("wait", waiting)]


# ---- __dlpack__ --------------------------------------------------------------------------------


def test_the_consumer_waits_and_is_waited_for(sim: Sim, t: ons.Tensor) -> None:
    for given, handle in ((None, 0), (1, 1), (2, 2), (sim.stream(), None)):
        stream = given if handle is None else handle
        assert stream is not None
        sim.clear()
        capsule = t.__dlpack__(stream=given)
        assert sim.enqueued() == joins(stream, home(t))
        del capsule
        assert sim.enqueued() == [*joins(stream, home(t)), *joins(home(t), stream)]
    sim.clear()
    for capsule in (t.__dlpack__(stream=-1), t.__dlpack__(stream=home(t))):
        assert managed(capsule).tensor.data == t.data_ptr
    del capsule
    assert sim.enqueued() == []


def test_streams_that_cannot_be(sim: Sim, t: ons.Tensor) -> None:
    for stream, why in ((0, "0 is ambiguous on CUDA"), (-2, "no stream is negative"),
                        (-(2**70), "no stream is negative"), (2**70, "no handle")):  # fmt: skip
        with pytest.raises(ValueError, match=f"stream={stream}: .*{why}"):
            t.__dlpack__(stream=stream)

    class SyclQueue:
        sycl_queue = 1

    for odd, why in ((SyclQueue(), "another platform"), ("fast", "must be None"), (1.0, "must be"),
                     (True, "must be None")):  # fmt: skip
        with pytest.raises(TypeError, match=why):
            t.__dlpack__(stream=odd)
    assert sim.enqueued() == []


def test_stream_objects(sim: Sim, t: ons.Tensor) -> None:
    class Stream:
        def __init__(self) -> None:
            self.handle = sim.stream()

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self.handle

    s = Stream()
    capsule = t.__dlpack__(stream=s)
    assert sim.enqueued() == joins(s.handle, home(t))
    del capsule


@pytest.mark.parametrize("version", [None, (1, 3)])
def test_what_a_capsule_says(t: ons.Tensor, version: Any) -> None:
    assert t.__dlpack_device__() == CUDA
    m = managed(t.__dlpack__(stream=-1, max_version=version))
    assert m.tensor.described() == (t.data_ptr, CUDA, (4,), (1,))
    assert managed(t.__dlpack__(stream=-1, max_version=version, dl_device=CUDA))
    for device in ((2, 1), (13, 0), (10, 0)):
        with pytest.raises(BufferError, match="not to dl_device"):
            t.__dlpack__(dl_device=device)


def test_a_view_outlives_the_tensor(sim: Sim, t: ons.Tensor, producer: Any) -> None:
    side, stream = sim.stream(), home(t)
    capsule = t.__dlpack__(stream=side)
    t.release()
    sim.clear()
    assert producer.counts()["deleted"] == 0
    del capsule
    assert sim.enqueued() == [*joins(stream, side), ("record", stream)]
    assert producer.counts()["deleted"] == 0, "the consumer may still be at it"
    sim.complete(stream)
    assert ons.collect() == 0 and producer.counts()["deleted"] == 1


def test_released_with_the_view_gone(sim: Sim, t: ons.Tensor, producer: Any) -> None:
    t.__dlpack__(stream=sim.stream())
    t.release()
    assert producer.counts()["deleted"] == 1


# ---- the host ----------------------------------------------------------------------------------


def calls(sim: Sim) -> list[str]:
    names = (b"cuMemcpyAsync", b"cuStreamSynchronize")
    return [r.function.decode() for r in records(sim) if r.function in names]


def records(sim: Sim) -> list[Any]:
    count = sim.lib.sim_record_count()
    return [sim.lib.sim_record_at(ctypes.c_size_t(i)).contents for i in range(count)]


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_device_memory_is_copied_to_the_host(sim: Sim, t: ons.Tensor, version: Any) -> None:
    for options in ({}, {"copy": True}, {"stream": -1}):
        sim.clear()
        m = managed(t.__dlpack__(max_version=version, dl_device=HOST, **options))
        assert m.tensor.described()[1:] == (HOST, (4,), (1,)) and m.tensor.data % 64 == 0
        assert version is None or m.flags == IS_COPIED
        assert calls(sim) == ["cuMemcpyAsync", "cuStreamSynchronize"]
        used = [r for r in records(sim) if r.function in (b"cuMemcpyAsync",)]
        assert used[0].stream == home(t) and used[0].mode == 2
        assert sim.enqueued() == []
    with pytest.raises(BufferError, match="copy=False forbids"):
        t.__dlpack__(dl_device=HOST, copy=False)
    for stream in (1, 2, home(t)):
        with pytest.raises(ValueError, match="the host has no streams"):
            t.__dlpack__(dl_device=HOST, stream=stream)


def test_managed_memory_is_as_it_is(sim: Sim, arrays: Arrays) -> None:
    t = ons.from_dlpack(arrays(device=(13, 0)))
    assert t.__dlpack_device__() == (13, 0)
    m = managed(t.__dlpack__(dl_device=HOST, max_version=(1, 0)))
    assert (m.tensor.data, m.tensor.described()[1], m.flags) == (t.data_ptr, (13, 0), 0)
    assert calls(sim) == ["cuStreamSynchronize"], "the host can read"
    sim.clear()
    assert managed(t.__dlpack__(dl_device=HOST, copy=False, stream=-1)).tensor.data == t.data_ptr
    assert calls(sim) == []
    side = sim.stream()
    capsule = t.__dlpack__(stream=side)
    assert sim.enqueued() == joins(side, home(t))
    del capsule


def test_pinned_memory_is_the_hosts(sim: Sim, arrays: Arrays) -> None:
    t = ons.from_dlpack(arrays(device=(3, 0)))
    assert t.__dlpack_device__() == (3, 0)
    assert managed(t.__dlpack__()).tensor.described()[1] == (3, 0)
    assert managed(t.__dlpack__(dl_device=HOST)).tensor.described()[:2] == (t.data_ptr, HOST)
    with pytest.raises(ValueError, match="the host has no streams"):
        t.__dlpack__(stream=1)


def test_the_driver_fails(sim: Sim, t: ons.Tensor) -> None:
    for call in ("cuMemcpyAsync", "cuStreamSynchronize"):
        sim.lib.sim_inject(call.encode(), 1, 700)
        with pytest.raises(ons.DeviceError, match=call):
            t.__dlpack__(dl_device=HOST)
    sim.lib.sim_inject(b"cuEventRecord", 1, 700)
    with pytest.raises(ons.DeviceError, match="cuEventRecord"):
        t.__dlpack__(stream=1)


# ---- captures ----------------------------------------------------------------------------------


def test_exports_do_not_harm_captures(sim: Sim, t: ons.Tensor) -> None:
    side = sim.stream()
    sim.begin(side)
    with pytest.raises(ons.OrderError, match="capture"):
        t.__dlpack__(stream=side)
    managed(t.__dlpack__(dl_device=HOST))  # of other streams nothing is said
    t.__dlpack__(stream=-1)
    assert sim.alive(side)
    sim.end(side)
    sim.begin(home(t))
    for use in (lambda: t.__dlpack__(dl_device=HOST), lambda: t.__dlpack__(stream=side),
                t.__arrow_c_device_array__):  # fmt: skip
        with pytest.raises(ons.OrderError, match="capture"):
            use()
    capsule = t.__dlpack__(stream=home(t))
    del capsule
    assert sim.alive(home(t))
    sim.end(home(t))


def test_a_view_that_is_dropped_in_a_capture(sim: Sim, t: ons.Tensor, producer: Any) -> None:
    """The home stream cannot wait for the consumer's: the memory is kept by that one."""
    side, stream = sim.stream(), home(t)
    capsule = t.__dlpack__(stream=side)
    sim.begin(home(t))
    sim.clear()
    del capsule
    assert sim.enqueued() == [("record", side)] and sim.alive(home(t))
    sim.end(home(t))
    t.release()
    assert producer.counts()["deleted"] == 0
    finish(sim, stream)
    assert producer.counts()["deleted"] == 0, "only the consumer's stream tells"
    finish(sim, side)
    finish(sim, stream)
    assert producer.counts()["deleted"] == 1


def test_a_view_that_is_dropped_in_the_consumers_capture(
    sim: Sim, t: ons.Tensor, producer: Any
) -> None:
    side, stream = sim.stream(), home(t)
    capsule = t.__dlpack__(stream=side)
    sim.begin(side)
    sim.clear()
    del capsule
    assert sim.enqueued() == [] and sim.alive(side)
    t.release()
    assert producer.counts()["deleted"] == 0, "the graph has it"
    sim.end(side)  # which destroys the graph
    ons.collect()
    finish(sim, stream)
    assert producer.counts()["deleted"] == 1


# ---- the exchange table ------------------------------------------------------------------------


def test_the_stream_of_the_table_is_that_of_use_stream(sim: Sim, t: ons.Tensor) -> None:
    table, s = table_of(ons.Tensor), sim.stream()
    assert table.stream(CUDA) == table.stream((13, 0)) == table.stream(HOST) == 0
    with ons.use_stream(s, device="cuda:0"):
        assert table.stream(CUDA) == table.stream((13, 0)) == s
        assert table.stream((2, 1)) == 0 and table.stream(HOST) == 0 and table.stream((3, 0)) == 0
        with ons.use_stream(None):
            assert table.stream(CUDA) == 0
    assert table.stream(CUDA) == 0


@pytest.mark.parametrize("owned", [True, False])
def test_exports_are_on_the_stream_that_the_table_tells(
    sim: Sim, t: ons.Tensor, owned: bool
) -> None:
    table, first, s = table_of(ons.Tensor), home(t), sim.stream()
    views: list[Versioned] = []

    def export() -> None:
        if owned:
            views.append(table.owned(t))
        else:
            assert table.borrowed(t) == (t.data_ptr, CUDA, (4,), (1,))

    with ons.use_stream(s):
        for _ in range(3):
            export()
            assert sim.enqueued() == joins(s, first) and t.stream == s
        sim.clear()
    export()
    assert sim.enqueued() == joins(0, s) and t.stream == 0
    sim.clear()
    export()
    assert sim.enqueued() == []
    for view in views:
        view.deleter(ctypes.addressof(view))
    # What was done on s by the view's owner since is before what is done here next.
    assert sim.enqueued() == (joins(0, s) * 3 if owned else [])
    sim.clear()
    t.release()
    assert sim.enqueued() == joins(first, 0)


def test_what_the_table_takes_is_on_its_stream(sim: Sim, t: ons.Tensor) -> None:
    table, s = table_of(ons.Tensor), sim.stream()
    with ons.use_stream(s):
        u = table.object(table.owned(t))
        sim.clear()
        assert (u.stream, u.data_ptr, u.device) == (s, t.data_ptr, "cuda:0")
        u.release()
        assert ("wait", s) not in sim.enqueued()


def test_the_tables_in_a_capture(sim: Sim, t: ons.Tensor) -> None:
    table, s = table_of(ons.Tensor), sim.stream()
    sim.begin(s)
    with ons.use_stream(s), pytest.raises(ons.OrderError, match="capture"):
        table.borrowed(t)
    assert sim.alive(s) and t.stream != s and sim.enqueued() == []
    sim.end(s)


def test_read_only(arrays: Arrays, producer: Any, sim: Sim) -> None:
    table = table_of(ons.Tensor)
    library: Any = type(
        "Library", (ArrayInterface,), {"__dlpack__": None, "__dlpack_device__": lambda x: CUDA}
    )
    t = ons.from_dlpack(library(data=(0x8000, True), shape=(3,), stream=sim.stream()))
    assert managed(t.__dlpack__(stream=-1, max_version=(1, 0))).flags == READ_ONLY
    view = table.owned(t)
    assert view.flags == READ_ONLY and table.object(view).read_only
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__(stream=-1)
    assert t.__cuda_array_interface__["data"] == (0x8000, True)


# ---- other protocols ---------------------------------------------------------------------------


def test_the_array_interface(sim: Sim, arrays: Arrays) -> None:
    t = ons.from_dlpack(arrays.type(0x4000, (3, 5), device=CUDA, strides=(7, 2), byte_offset=64))
    assert t.__cuda_array_interface__ == {
        "shape": (3, 5), "typestr": "<f4", "data": (0x4040, False), "strides": (28, 8),
        "version": 3, "stream": home(t),
    }  # fmt: skip
    t = ons.from_dlpack(arrays(), stream=1)
    assert t.__cuda_array_interface__["strides"] is None
    with ons.use_stream(0):
        assert ons.from_dlpack(arrays()).__cuda_array_interface__["stream"] == 1
    with ons.use_stream(2):
        assert ons.from_dlpack(arrays()).__cuda_array_interface__["stream"] == 2
    assert ons.from_dlpack(arrays(device=(13, 0))).__cuda_array_interface__["version"] == 3
    assert not hasattr(ons.from_dlpack(arrays(device=(3, 0))), "__cuda_array_interface__")
    assert not hasattr(ons.from_dlpack(arrays(dtype=(4, 16, 1))), "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="this dtype has no.*use __dlpack__"):
        ons.from_dlpack(arrays(dtype=(4, 16, 1))).__cuda_array_interface__  # noqa: B018


def test_no_buffer_of_a_gpu(t: ons.Tensor) -> None:
    with pytest.raises(BufferError, match=r"GPU's memory has no buffer.*dl_device=\(1, 0\)"):
        memoryview(t)


def test_arrow(sim: Sim, arrays: Arrays, t: ons.Tensor, producer: Any) -> None:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pair = t.__arrow_c_device_array__()
    array = ArrowDeviceArray.from_address(
        pointer(ctypes.py_object(pair[1]), b"arrow_device_array") or 0
    )
    assert (array.device_type, array.device_id, array.array.length) == (2, 0, 4)
    recorded = [r for r in records(sim) if r.function == b"cuEventRecord"]
    assert [r.stream for r in recorded] == [home(t)]
    assert array.sync_event.contents.value == recorded[0].handle
    del pair, array

    class Exported:
        def __arrow_c_device_array__(self) -> Any:
            return t.__arrow_c_device_array__()

    side = sim.stream()
    sim.clear()
    u = ons.from_dlpack(Exported(), stream=side)
    assert sim.enqueued() == joins(side, home(t)) and u.read_only
    assert (u.data_ptr, u.stream, u.device) == (t.data_ptr, side, "cuda:0")
    t.release()
    assert producer.counts()["deleted"] == 0
    u.release()
    finish(sim, side)  # which gives the array back
    finish(sim, arrays.stream)
    assert producer.counts()["deleted"] == 1


def test_arrow_imports_in_a_capture(sim: Sim) -> None:
    event = ctypes.c_void_p()
    sim.lib.cuEventCreate(ctypes.byref(event), 2)
    x, s = Arrow(0x6000, event=event.value), sim.stream()
    sim.begin(s)
    with pytest.raises(ons.OrderError, match="event of the tensor's producer.*capture"):
        ons.from_dlpack(x, stream=s)
    assert sim.alive(s) and x.released == 1
    sim.end(s)
    y = Arrow(0x6000, event=None)
    u = ons.from_dlpack(y)
    assert u.stream == 0 and y.released == 0
    u.release()
    finish(sim, 0)
    assert y.released == 1
    sim.lib.cuEventDestroy_v2(event)


# ---- as an argument ----------------------------------------------------------------------------


def test_a_launch_with_tensors_alone(mod: ons.Module, sim: Sim, arrays: Arrays) -> None:
    """The second and later calls go the fast way, and are the same."""
    x, out = ons.from_dlpack(arrays(4)), ons.from_dlpack(arrays(5))
    launcher = mod.scale[3, 32]
    for _ in range(3):
        sim.clear()
        launcher(2.0, x, out, 77)
        record = sim.launch()
        assert record.stream == arrays.stream and sim.enqueued() == [("launch", arrays.stream)]
        assert record.value(1) == x.data_ptr and record.value(2) == out.data_ptr
    other = ons.from_dlpack(arrays(6), stream=sim.stream())
    for _ in range(2):
        sim.clear()
        launcher(2.0, x, other, 77)
        assert sim.enqueued() == [*joins(arrays.stream, home(other)), ("launch", arrays.stream),
                                  *joins(home(other), arrays.stream)]  # fmt: skip
    sim.clear()
    launcher(2.0, arrays(7), x, 77)
    assert sim.enqueued() == [("launch", arrays.stream)]
    out.release()
    for _ in range(2):
        with pytest.raises(ons.ArgumentValueError, match="'out'.*has been released"):
            launcher(2.0, x, out, 77)


def test_mixed_with_a_producer_that_is_asked(
    mod: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    t = ons.from_dlpack(arrays())
    asked = DLPackProducer(producer, arrays())
    mod.scale[1, 1](2.0, asked, t, 4)
    assert asked.asked[-1]["stream"] == t.stream
    asked.capsules.clear()
