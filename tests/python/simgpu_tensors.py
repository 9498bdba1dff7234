# ruff: noqa: F811
# ruff: noqa: F811
"""Tensors that are kept, on the stand-in driver; run by test_simgpu.py in a process of its own.

Most are the sequences by which the DLPack discussion showed what an exchange of tensors has to get
right. The arrays' library works on a stream that the tests set; what it does there is noted, and
the order of that work and of the kernels is worked out from the driver calls (cases 13, 14, 31, 32).
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from python_producers import DLPackProducer
from simgpu_machine import BEGINNING, CUDA, Arrays, Sim
from simgpu_producers import memory  # noqa: F401
from simgpu_tensor_order import Order, deleted, finish, nothing_is_left, order  # noqa: F401

import onstream as ons

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


EXIT = (
    BEGINNING
    + """\
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
)


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
