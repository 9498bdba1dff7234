"""Programs: what they are made of, how they read in words.

A program is a list of steps over things with names. A step whose things are not there, or that
no sensible user would take at that moment, does nothing; so any subset of a program is one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# What kernels do with their parameters: sim_declare_kernel's letters.
KERNELS = {
    "k_copy": "rw",
    "k_axpy": "vru",
    "k_inc": "u",
    "k_add": "rrw",
    "k_look": "r",
    "k_two": "rww",
    "g_copy": "rw",
    "g_axpy": "vru",
}
GENERIC = ("g_copy", "g_axpy")
SOURCE = """
extern "C" __global__ void k_copy(const float* x, float* out) { out[0] = x[0]; }
extern "C" __global__ void k_axpy(float a, const float* x, float* y) { y[0] += a * x[0]; }
extern "C" __global__ void k_inc(float* x) { x[0] += 1; }
extern "C" __global__ void k_add(const float* x, const float* y, float* out) {
  out[0] = x[0] + y[0];
}
extern "C" __global__ void k_look(const float* x) {}
extern "C" __global__ void k_two(const float* x, float* y, float* z) { y[0] = z[0] = x[0]; }
template <typename T> __global__ void g_copy(const T* x, T* out) { out[0] = x[0]; }
template <typename T> __global__ void g_axpy(T a, const T* x, T* y) { y[0] += a * x[0]; }
"""

# Libraries whose arrays are on a current stream of the device, told by an exchange table; and
# those whose arrays have a stream each. The first two can be borrowed from.
TABLES = ("torch", "other", "owning")
SINGLES = (
    "ordered", "telling", "interface", "jax", "immutable", "arrow", "failing", "meddler",
)  # fmt: skip
UNKNOWN = ("ordered", "jax", "immutable", "arrow", "failing", "meddler")
READ_ONLY = ("jax", "immutable", "arrow")

# Where an array's memory is. Managed memory is of a device and usable on all; of pinned memory
# some libraries say that it is the CPU's. No library orders what is pinned: its user does, by a
# stream of its own.
PLACES = ("device", "managed", "pinned", "pinned as cpu")
MANAGED_KINDS = (*TABLES, "ordered", "telling", "interface")
PINNED_KINDS = ("torch", "ordered")

# Arguments that the call allocates: (how, the array that like() is given).
OUTPUTS = ("like", "zeros_like", "empty", "zeros", "workspace")

# What a program's streams are, by index: device, kind.
STREAMS = (
    (0, "non-blocking"),
    (0, "non-blocking"),
    (0, "blocking"),
    (0, "legacy 0"),
    (0, "legacy 1"),
    (0, "per-thread"),
    (0, "second context"),
    (1, "non-blocking"),
    (1, "blocking"),
    (1, "legacy 0"),
    (0, "non-blocking"),
)

BLOCKING, LEGACY_0, LEGACY_1, PER_THREAD, FAR_LEGACY = 2, 3, 4, 5, 9


def said(value: Any) -> bool:
    """Is it worth a word?"""
    return value is not None and value is not False and value != ()


@dataclass(frozen=True, repr=False)
class Step:
    op: str
    what: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.what[name]
        except KeyError:
            raise AttributeError(name) from None

    def words(self) -> str:
        parts = [f"{key}={value}" for key, value in self.what.items() if said(value)]
        return f"{self.op:<8} {' '.join(parts)}"

    __repr__ = words


def make(name: str, kind: str, **what: Any) -> Step:
    """An array. How its memory is allocated: "pool" and "cached" by a stream's order, "host" by
    the host's."""
    how = "host" if kind in ("jax", "immutable") else "pool"
    usual = {"device": 0, "place": "device", "stream": None, "how": how, "value": 7,
             "versioned": True, "slow": False}  # fmt: skip
    return Step("make", {"name": name, "kind": kind, **usual, **what})


def launch(kernel: str, args: tuple[Any, ...], **what: Any) -> Step:
    """`on` is the device that is given, `outputs` the names of what is returned, `out` what the
    caller gives in their place."""
    usual = {"outputs": (), "out": None, "on": None, "stream": None, "scopes": (), "order": None,
             "vouch": "join", "worker": False, "meddle": None, "value": 9}  # fmt: skip
    return Step("launch", {"kernel": kernel, "args": args, **usual, **what})


@dataclass
class Program:
    seed: int
    steps: list[Step]

    def words(self) -> str:
        used = {
            index
            for step in self.steps
            for key, value in step.what.items()
            if key in ("stream", "scopes")
            for index in (value if isinstance(value, tuple) else (value,))
            if index is not None
        }
        lines = [f"stream {i}: cuda:{STREAMS[i][0]}, {STREAMS[i][1]}" for i in sorted(used)]
        return "\n".join([*lines, *(step.words() for step in self.steps)])
