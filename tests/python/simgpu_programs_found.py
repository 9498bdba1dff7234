"""Programs worth a name, on the simulated GPU: run by test_simgpu_programs.py in a process of
its own. Each runs under many schedules."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from onstream.testing.simgpu.generate import generate
from onstream.testing.simgpu.machine import Machine, Violation
from onstream.testing.simgpu.model import Call
from onstream.testing.simgpu.program import (
    GENERIC,
    MANAGED_KINDS,
    OUTPUTS,
    SINGLES,
    TABLES,
    Program,
    Step,
    launch,
    make,
)

# Of program.STREAMS.
SIDE, OTHER, BLOCKING, LEGACY, LEGACY_1, PER_THREAD, FOREIGN = range(7)
FAR, FAR_LEGACY = 7, 9  # of the second device


@pytest.fixture(scope="session")
def machine() -> Machine:
    return Machine()


def switch(kind: str, stream: int) -> Step:
    return Step("switch", {"kind": kind, "device": 0, "stream": stream})


def write(array: str) -> Step:
    return Step("write", {"array": array, "value": 1234})


def bring(tensor: str, array: str, stream: int | None) -> Step:
    return Step("import", {"tensor": tensor, "array": array, "stream": stream})


def delete(array: str) -> Step:
    return Step("delete", {"array": array})


def release(tensor: str) -> Step:
    return Step("release", {"tensor": tensor, "worker": False})


def capture(name: str, stream: int, mode: int = 0) -> Step:
    return Step(
        "capture",
        {"name": name, "stream": stream, "kind": None, "device": 0, "mode": mode,
         "worker": False},
    )  # fmt: skip


# The mixes in which others gave wrong results in 49, 38 and 50 of 50 tries: a producer still
# writes when the kernel is launched, and writes in place right after.
ORDINARY = {
    "one library, on a stream of its own": [
        make("x", "telling", stream=SIDE),
        make("y", "telling", stream=SIDE),
        write("x"),
        launch("k_copy", ("x", "y")),
        write("x"),
        launch("k_axpy", (2.0, "y", "x")),
        write("y"),
    ],
    "tensors of a side stream through from_dlpack": [
        switch("torch", SIDE),
        make("x", "torch"),
        make("y", "torch"),
        bring("t", "x", OTHER),
        bring("u", "y", OTHER),
        launch("k_copy", ("t", "u")),
        release("t"),
        release("u"),
        write("x"),
        Step("bump", {"array": "y"}),
    ],
    "two libraries on two streams": [
        switch("torch", OTHER),
        make("x", "telling", stream=SIDE),
        make("y", "torch", value=None),
        write("x"),
        launch("k_copy", ("x", "y")),
        write("x"),
        Step("bump", {"array": "y"}),
    ],
}

# What the random programs have found.
FOUND = {
    "a refused write leaves other producers unasked": [
        make("x", "jax", stream=OTHER),
        make("y", "ordered", stream=SIDE),
        launch("k_copy", ("x", "y"), stream=BLOCKING),
    ],
    "a read-only tensor is refused before producers are asked": [
        make("x", "ordered", stream=SIDE),
        make("y", "jax", stream=OTHER),
        make("z", "torch"),
        bring("t", "y", None),
        launch("k_two", ("x", "t", ("like", "z")), outputs=("w",), stream=BLOCKING),
    ],
    "under trust an output outside of the capture is refused before it is made": [
        switch("other", OTHER),
        make("x", "torch"),
        make("y", "other"),
        capture("g", SIDE),
        launch("k_copy", ("x", ("like", "y")), outputs=("z",), stream=SIDE, order="trust"),
    ],
}

FOUND["a tensor of the per-thread stream, given back and collected by another thread"] = [
    make("x", "torch"),
    bring("t", "x", PER_THREAD),
    delete("x"),
    launch("k_inc", ("t",)),
    Step("drop", {"tensor": "t", "worker": True}),
    Step("collect", {"worker": True}),
    Step("collect", {"worker": False}),
]
FOUND["a tensor of the per-thread stream, used by another thread"] = [
    make("x", "torch"),
    bring("t", "x", PER_THREAD),
    launch("k_inc", ("t",)),
    launch("k_inc", ("t",), worker=True),
    launch("k_inc", ("t",)),
    release("t"),
]

FAR_MANAGED: dict[str, Any] = {"device": 1, "place": "managed", "how": "cached"}
FOUND["of managed memory of two devices the first decides where the launch goes"] = [
    make("x", "telling", stream=SIDE, place="managed", how="cached"),
    make("y", "telling", stream=FAR, **FAR_MANAGED),
    launch("k_copy", ("x", "y")),
    launch("k_copy", ("y", "x")),
]
FOUND["managed memory of another device does not tell the launch stream"] = [
    make("x", "jax", stream=SIDE),
    make("y", "telling", stream=FAR, **FAR_MANAGED),
    launch("k_copy", ("x", "y")),
]
FOUND["a library is not asked for order on another device's default stream"] = [
    make("x", "torch"),
    make("y", "ordered", stream=FAR_LEGACY, **FAR_MANAGED),
    launch("k_copy", ("y", "x"), stream=LEGACY),
    launch("k_copy", ("y", "x"), stream=SIDE),
]
FOUND["a library is not asked for what is of another device than the launch"] = [
    make("x", "torch"),
    make("y", "ordered", stream=FAR, device=1),
    launch("k_copy", ("y", "x"), stream=SIDE),
    launch("k_add", ("x", "y", "x")),
]
FOUND["nothing is allocated on another device than the launch's"] = [
    make("x", "torch"),
    make("y", "torch", device=1),
    launch("k_copy", ("x", ("zeros_like", "y")), outputs=("z",)),
]

FOUND |= {
    "choosing an instance of a generic kernel by an Arrow array with an event": [
        make("x", "arrow", stream=SIDE),
        make("y", "torch"),
        launch("g_copy", ("x", "y"), order="join"),
    ],
    "use_stream where the device is given and memory is pinned": [
        make("x", "torch", stream=SIDE, place="pinned"),
        launch("k_inc", ("x",), on=0, scopes=(OTHER,)),
    ],
    "zeros, to be refused, on the legacy stream beside a capture": [
        switch("torch", LEGACY),
        make("x", "torch"),
        capture("g", BLOCKING),
        launch("k_axpy", (2.0, "x", ("zeros", None)), outputs=("y",), stream=BLOCKING,
               order="trust"),
    ],
    "like(x) puts x, which is on a captured stream, in order": [
        make("x", "torch"),
        make("y", "ordered", stream=BLOCKING),
        capture("g", BLOCKING),
        launch("k_copy", ("x", ("like", "y")), outputs=("z",), stream=SIDE),
    ],
    "zeros into pinned memory that a stream is still writing": [
        make("x", "torch"),
        make("y", "torch", stream=SIDE, place="pinned"),
        launch("k_axpy", (2.0, "x", ("zeros_like", "x")), outputs=("z",), out=("y",)),
    ],
    "zeros into memory that is vouched for": [
        make("x", "torch"),
        make("y", "ordered", stream=OTHER),
        launch("k_copy", ("x", ("zeros_like", "x")), outputs=("z",), out=("y",), order="trust"),
    ],
    "zeros into memory that another argument's library moves": [
        make("x", "meddler", stream=SIDE),
        make("y", "torch", how="pool"),
        launch("k_axpy", (2.0, "x", ("zeros", None)), outputs=("z",), out=("y",), stream=SIDE,
               meddle="y", value=1),
    ],
}  # fmt: skip

# The sequences of the DLPack discussion about streams.
DISCUSSED = {
    "a kernel, then arr += 2": [
        make("x", "telling", stream=SIDE),
        launch("k_inc", ("x",), stream=OTHER),
        Step("bump", {"array": "x"}),
    ],
    "two arrays on streams X and Y": [
        make("x", "telling", stream=SIDE),
        make("y", "telling", stream=OTHER),
        launch("k_axpy", (2.0, "x", "y")),
        write("x"),
        Step("bump", {"array": "y"}),
    ],
    "a view that outlives its source": [
        switch("torch", SIDE),
        make("x", "torch"),
        bring("t", "x", OTHER),
        delete("x"),
        make("y", "torch"),
        launch("k_copy", ("t", "y")),
        release("t"),
        make("z", "torch"),
    ],
    "with stream: blocks nested across libraries": [
        switch("torch", SIDE),
        make("x", "torch"),
        make("y", "telling", stream=OTHER),
        launch("k_axpy", (2.0, "y", "x"), scopes=(BLOCKING, FOREIGN)),
        launch("k_copy", ("x", "y"), scopes=(BLOCKING, None)),
        write("y"),
        Step("bump", {"array": "x"}),
    ],
}

PROGRAMS = {**ORDINARY, **FOUND, **DISCUSSED}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(machine: Machine, name: str) -> None:
    before = machine.launches + machine.refusals
    for seed in range(50):
        machine.run(Program(seed, PROGRAMS[name]))
    assert machine.launches + machine.refusals > before, "nothing was called"


def test_everything_is_drawn(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And launched, not only refused."""
    seen: Counter[str] = Counter()

    def look(call: Call, why: str | None, launch: Any = machine.launch) -> Any:
        seen["refused" if why is not None else call.step.kernel] += 1
        for arg in call.args if why is None else ():
            if arg.how is not None:
                seen[f"{arg.how}, given" if arg.given else arg.how] += 1
                seen["onstream's own"] += arg.is_own
            elif arg.is_memory:
                where = "pinned " if arg.used.is_pinned else "managed " * arg.used.is_managed
                seen[where + arg.used.kind] += 1
        return launch(call, why)

    monkeypatch.setattr(machine, "launch", look)
    for seed in range(1000):
        machine.run(generate(seed))
    expected = {"refused", "tensor", "pinned torch", "pinned ordered", "onstream's own"}
    expected |= {*TABLES, *SINGLES, *GENERIC, *OUTPUTS, "zeros_like, given", "like, given"}
    expected |= {f"managed {kind}" for kind in MANAGED_KINDS}
    assert {what for what in expected if not seen[what]} == {"failing"}


def test_a_capture_in_another_context(machine: Machine) -> None:
    """The driver refuses a function of the primary context there, before the other way is taken."""
    program = [
        switch("torch", FOREIGN),
        make("x", "torch"),
        capture("g", FOREIGN),
        launch("k_inc", ("x",)),
    ]
    machine.run(Program(1, program))


def test_a_wrong_program_is_seen(machine: Machine) -> None:
    """The judge judges: joins that the user leaves out under trust."""
    machine.careless = True
    try:
        with pytest.raises(Violation, match="race"):
            machine.run(
                Program(
                    1,
                    [
                        make("x", "telling", stream=SIDE),
                        make("y", "telling", stream=OTHER),
                        launch("k_copy", ("x", "y"), order="trust"),
                        write("y"),
                    ],
                )
            )
    finally:
        machine.careless = False
