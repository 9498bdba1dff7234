"""Programs worth a name, on the simulated GPU: run by test_simgpu_programs.py in a process of
its own. Each runs under many schedules."""

from __future__ import annotations

from typing import Any

import pytest

from onstream.testing.simgpu.machine import Machine, Violation
from onstream.testing.simgpu.program import Program, Step

SIDE, OTHER, BLOCKING, LEGACY, PER_THREAD, FOREIGN = 0, 1, 2, 3, 5, 6  # of program.STREAMS


@pytest.fixture(scope="session")
def machine() -> Machine:
    return Machine()


def make(name: str, kind: str, stream: int | None = None, **what: Any) -> Step:
    how = "host" if kind == "jax" else "pool"
    return Step(
        "make",
        {"name": name, "kind": kind, "device": 0, "stream": stream, "how": how, "value": 7,
         "versioned": True, "slow": False, **what},
    )  # fmt: skip


def launch(kernel: str, *args: Any, **what: Any) -> Step:
    return Step(
        "launch",
        {"kernel": kernel, "args": args, "outputs": (), "device": 0, "stream": None,
         "scopes": (), "order": None, "vouch": "join", "worker": False, "meddle": None,
         "value": 9, **what},
    )  # fmt: skip


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
        make("x", "telling", SIDE),
        make("y", "telling", SIDE),
        write("x"),
        launch("k_copy", "x", "y"),
        write("x"),
        launch("k_axpy", 2.0, "y", "x"),
        write("y"),
    ],
    "tensors of a side stream through from_dlpack": [
        switch("torch", SIDE),
        make("x", "torch"),
        make("y", "torch"),
        bring("t", "x", OTHER),
        bring("u", "y", OTHER),
        launch("k_copy", "t", "u"),
        release("t"),
        release("u"),
        write("x"),
        Step("bump", {"array": "y"}),
    ],
    "two libraries on two streams": [
        switch("torch", OTHER),
        make("x", "telling", SIDE),
        make("y", "torch", value=None),
        write("x"),
        launch("k_copy", "x", "y"),
        write("x"),
        Step("bump", {"array": "y"}),
    ],
}

# What the random programs have found.
FOUND = {
    "a refused write leaves other producers unasked": [
        make("x", "jax", OTHER),
        make("y", "ordered", SIDE),
        launch("k_copy", "x", "y", stream=BLOCKING),
    ],
    "a read-only tensor is refused before producers are asked": [
        make("x", "ordered", SIDE),
        make("y", "jax", OTHER),
        make("z", "torch"),
        bring("t", "y", None),
        launch("k_two", "x", "t", ("like", "z"), outputs=("w",), stream=BLOCKING),
    ],
    "under trust an output outside of the capture is refused before it is made": [
        switch("other", OTHER),
        make("x", "torch"),
        make("y", "other"),
        capture("g", SIDE),
        launch("k_copy", "x", ("like", "y"), outputs=("z",), stream=SIDE, order="trust"),
    ],
}

FOUND["a tensor of the per-thread stream, given back and collected by another thread"] = [
    make("x", "torch"),
    bring("t", "x", PER_THREAD),
    delete("x"),
    launch("k_inc", "t"),
    Step("drop", {"tensor": "t", "worker": True}),
    Step("collect", {"worker": True}),
    Step("collect", {"worker": False}),
]
FOUND["a tensor of the per-thread stream, used by another thread"] = [
    make("x", "torch"),
    bring("t", "x", PER_THREAD),
    launch("k_inc", "t"),
    launch("k_inc", "t", worker=True),
    launch("k_inc", "t"),
    release("t"),
]

# The sequences of the DLPack discussion about streams.
DISCUSSED = {
    "a kernel, then arr += 2": [
        make("x", "telling", SIDE),
        launch("k_inc", "x", stream=OTHER),
        Step("bump", {"array": "x"}),
    ],
    "two arrays on streams X and Y": [
        make("x", "telling", SIDE),
        make("y", "telling", OTHER),
        launch("k_axpy", 2.0, "x", "y"),
        write("x"),
        Step("bump", {"array": "y"}),
    ],
    "a view that outlives its source": [
        switch("torch", SIDE),
        make("x", "torch"),
        bring("t", "x", OTHER),
        delete("x"),
        make("y", "torch"),
        launch("k_copy", "t", "y"),
        release("t"),
        make("z", "torch"),
    ],
    "with stream: blocks nested across libraries": [
        switch("torch", SIDE),
        make("x", "torch"),
        make("y", "telling", OTHER),
        launch("k_axpy", 2.0, "y", "x", scopes=(BLOCKING, FOREIGN)),
        launch("k_copy", "x", "y", scopes=(BLOCKING, None)),
        write("y"),
        Step("bump", {"array": "x"}),
    ],
}

PROGRAMS = {**ORDINARY, **FOUND, **DISCUSSED}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(machine: Machine, name: str) -> None:
    for seed in range(50):
        machine.run(Program(seed, PROGRAMS[name]))
    assert machine.launches > 0 or machine.refusals > 0, "nothing was called"


def test_a_capture_in_another_context(machine: Machine) -> None:
    """The driver refuses a function of the primary context there, before the other way is taken."""
    program = [
        switch("torch", FOREIGN),
        make("x", "torch"),
        capture("g", FOREIGN),
        launch("k_inc", "x"),
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
                        make("x", "telling", SIDE),
                        make("y", "telling", OTHER),
                        launch("k_copy", "x", "y", order="trust"),
                        write("y"),
                    ],
                )
            )
    finally:
        machine.careless = False
