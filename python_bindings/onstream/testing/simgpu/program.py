"""Programs: what they are made of, how a seed becomes one, how they read in words.

A program is a list of steps over things with names. A step whose things are not there, or that
no sensible user would take at that moment, does nothing; so any subset of a program is one."""

from __future__ import annotations

import random
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
}
SOURCE = """
extern "C" __global__ void k_copy(const float* x, float* out) { out[0] = x[0]; }
extern "C" __global__ void k_axpy(float a, const float* x, float* y) { y[0] += a * x[0]; }
extern "C" __global__ void k_inc(float* x) { x[0] += 1; }
extern "C" __global__ void k_add(const float* x, const float* y, float* out) {
  out[0] = x[0] + y[0];
}
extern "C" __global__ void k_look(const float* x) {}
extern "C" __global__ void k_two(const float* x, float* y, float* z) { y[0] = z[0] = x[0]; }
"""

# Libraries whose arrays are on a current stream of the device, told by an exchange table; and
# those whose arrays have a stream each. The first two can be borrowed from.
TABLES = ("torch", "other", "owning")
SINGLES = ("ordered", "telling", "interface", "jax", "failing", "meddler")
UNKNOWN = ("ordered", "jax", "failing", "meddler")

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

LEGACY_0, LEGACY_1, PER_THREAD = 3, 4, 5


@dataclass(frozen=True)
class Step:
    op: str
    what: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.what[name]
        except KeyError:
            raise AttributeError(name) from None

    def words(self) -> str:
        parts = [f"{key}={value}" for key, value in self.what.items() if value is not None]
        return f"{self.op:<8} {' '.join(parts)}"


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


class Generator:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.devices = (0, 0, 0, 1) if self.rng.random() < 0.2 else (0,)
        few = self.rng.random() < 0.5  # streams: then what happens meets
        self.streams = {
            device: [i for i, (d, _) in enumerate(STREAMS) if d == device] for device in (0, 1)
        }
        if few:
            self.streams[0] = self.rng.sample(self.streams[0], 3)
        self.count = 0
        self.arrays: list[tuple[str, str, int]] = []
        self.tensors: list[str] = []
        self.graphs: list[str] = []
        self.captures: list[str] = []
        self.steps: list[Step] = []

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def add(self, op: str, **what: Any) -> None:
        self.steps.append(Step(op, what))

    def device(self) -> int:
        return self.rng.choice(self.devices)

    def stream(self, device: int) -> int:
        return self.rng.choice(self.streams[device])

    def array(self, device: int | None = None, kinds: tuple[str, ...] = ()) -> str | None:
        found = [
            name
            for name, kind, d in self.arrays
            if (device is None or d == device) and (not kinds or kind in kinds)
        ]
        # Mostly the latest: older ones may be gone.
        return self.rng.choice(found[-5:]) if found else None

    # ---- steps -----------------------------------------------------------------------------

    def make(self) -> None:
        rng = self.rng
        device = self.device()
        kind = rng.choice(TABLES if self.chance(0.6) else SINGLES)
        if kind in ("failing", "meddler") and self.chance(0.5):
            kind = "ordered"
        name = self.name("a")
        self.arrays.append((name, kind, device))
        self.add(
            "make",
            name=name,
            kind=kind,
            device=device,
            stream=None if kind in TABLES else self.stream(device),
            how=rng.choice(("pool", "cached")) if kind != "jax" else "host",
            value=rng.randrange(1, 1 << 20) if self.chance(0.85) or kind == "jax" else None,
            versioned=self.chance(0.8),
            slow=kind == "ordered" and self.chance(0.2),
        )

    def produce(self) -> None:
        """The producer's own work on an array, on its own stream."""
        name = self.array()
        op = self.rng.choice(("write", "write", "bump", "look", "read"))
        if name is None:
            return
        if op == "write":
            self.add("write", array=name, value=self.rng.randrange(1, 1 << 20))
        else:
            self.add(op, array=name)

    def delete(self) -> None:
        name = self.array()
        if name is not None:
            self.add("delete", array=name)

    def switch(self) -> None:
        device = self.device()
        self.add("switch", kind=self.rng.choice(TABLES), device=device, stream=self.stream(device))

    def arguments(self, kernel: str, device: int) -> tuple[list[Any], list[str]]:
        args: list[Any] = []
        outputs: list[str] = []
        for letter in KERNELS[kernel]:
            if letter == "v":
                args.append(float(self.rng.randrange(1, 100)))
                continue
            if letter == "w" and self.chance(0.5):
                model = self.array(device, TABLES)
                if model is not None:
                    args.append(("like", model))
                    outputs.append(self.name("a"))
                    kind = next(k for n, k, _ in self.arrays if n == model)
                    self.arrays.append((outputs[-1], kind, device))
                    continue
            if self.tensors and self.chance(0.3):
                args.append(self.rng.choice(self.tensors[-3:]))
                continue
            kinds = TABLES if letter in "wu" and self.chance(0.8) else ()
            args.append(self.array(device, kinds) or self.array(device) or self.array())
        return args, outputs

    def launch_step(self, **fixed: Any) -> Step:
        rng = self.rng
        device = self.device()
        kernel = fixed.pop("kernel", None) or rng.choice(tuple(KERNELS))
        args, outputs = self.arguments(kernel, device)
        scopes = tuple(
            self.stream(device) if self.chance(0.8) else None
            for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2)))
        )
        return Step(
            "launch",
            {
                "kernel": kernel,
                "args": tuple(args),
                "outputs": tuple(outputs),
                "device": device,
                "stream": self.stream(device) if self.chance(0.3) else None,
                "scopes": scopes,
                "order": rng.choice((None, None, None, None, "join", "strict", "trust", "trust")),
                "vouch": rng.choice(("join", "events")),
                "worker": self.chance(0.1),
                "meddle": self.array(device, ("torch", "other")) if self.chance(0.3) else None,
                "value": rng.randrange(1, 1 << 20),
                **fixed,
            },
        )

    def launch(self) -> None:
        step = self.launch_step()
        self.steps.append(step)
        # What a hasty user does right after.
        for name in step.args:
            if not isinstance(name, str) or not self.chance(0.3):
                continue
            if name.startswith("t"):
                self.add(self.rng.choice(("release", "drop")), tensor=name, worker=False)
            elif self.chance(0.5):
                self.add("delete", array=name)
            else:
                self.add("write", array=name, value=self.rng.randrange(1, 1 << 20))

    def bring(self) -> None:
        name = self.array()
        if name is None:
            return
        device = next(d for n, _, d in self.arrays if n == name)
        stream = self.stream(device) if self.chance(0.6) else None
        if self.chance(0.25):
            tensor = self.name("t")
            inner = self.launch_step(kernel=self.rng.choice(("k_inc", "k_look")), args=(tensor,))
            inner.what.update(outputs=(), worker=False, scopes=())
            self.add("borrow", tensor=tensor, array=name, stream=stream, launch=inner)
            return
        self.tensors.append(self.name("t"))
        self.add("import", tensor=self.tensors[-1], array=name, stream=stream)
        if self.chance(0.5):
            self.add("delete", array=name)
        if self.chance(0.5):
            self.launch()

    def give_back(self) -> None:
        if self.tensors:
            self.add(
                self.rng.choice(("release", "drop")),
                tensor=self.rng.choice(self.tensors),
                worker=self.chance(0.2),
            )

    def capture(self) -> None:
        device = self.device()
        name = self.name("g")
        self.captures.append(name)
        self.add(
            "capture",
            name=name,
            stream=self.stream(device),
            kind=self.rng.choice((*TABLES, None)),  # whose current stream it is to be
            device=device,
            mode=self.rng.choice((0, 0, 1, 2)),
            worker=self.chance(0.25),
        )
        for _ in range(self.rng.choice((0, 1))):
            self.add("fork", capture=name, stream=self.stream(device))
        for _ in range(self.rng.choice((1, 2, 3))):
            self.launch()
        if self.chance(0.8):
            self.end_capture()

    def end_capture(self) -> None:
        if not self.captures:
            return
        name = self.captures.pop()
        self.graphs.append(name)
        self.add("end", capture=name, keep=self.chance(0.5))
        if self.chance(0.8):
            self.replay()

    def build(self) -> None:
        """A graph made node by node."""
        name = self.name("g")
        self.graphs.append(name)
        launches = []
        for _ in range(self.rng.choice((1, 2))):
            step = self.launch_step(kernel=self.rng.choice(("k_copy", "k_axpy", "k_inc")))
            step.what.update(outputs=(), worker=False, scopes=(), stream=None)
            if not any(isinstance(arg, tuple) for arg in step.args):
                launches.append(step)
        self.add("build", name=name, launches=tuple(launches))
        for _ in range(self.rng.choice((1, 2))):
            self.replay()

    def replay(self) -> None:
        if self.graphs:
            self.add("replay", graph=self.rng.choice(self.graphs), stream=self.stream(0))

    def destroy(self) -> None:
        if self.graphs:
            self.add("destroy", graph=self.rng.choice(self.graphs))

    # ---- what takes several steps to meet ----------------------------------------------------

    def new(self, kind: str, device: int) -> str:
        name = self.name("a")
        self.arrays.append((name, kind, device))
        value = self.rng.randrange(1, 1 << 20)
        stream = None if kind in TABLES else self.stream(device)
        how = "host" if kind == "jax" else self.rng.choice(("pool", "cached"))
        self.add(
            "make", name=name, kind=kind, device=device, stream=stream, how=how, value=value,
            versioned=True, slow=False,
        )  # fmt: skip
        return name

    def call(self, kernel: str, *args: Any, device: int = 0, **what: Any) -> None:
        step = {
            "kernel": kernel, "args": args, "outputs": (), "device": device, "stream": None,
            "scopes": (), "order": None, "vouch": "join", "worker": False, "meddle": None,
            "value": self.rng.randrange(1, 1 << 20), **what,
        }  # fmt: skip
        self.steps.append(Step("launch", step))

    def tensor(self, array: str, stream: int | None) -> str:
        name = self.name("t")
        self.tensors.append(name)
        self.add("import", tensor=name, array=array, stream=stream)
        return name

    def pause(self) -> None:
        if self.chance(0.3):
            self.rest()

    def scenario(self) -> None:
        self.rng.choice(
            (
                self.busy_streams,
                self.busy_beside_a_capture,
                self.unknown_in_a_graph,
                self.tensor_changes_streams,
                self.tensor_within_a_capture,
                self.tensor_across_a_capture,
                self.import_into_a_capture,
                self.release_within_a_call,
                self.tensor_of_a_thread,
                self.move_within_a_call,
                self.one_stream_of_two_names,
            )
        )()

    def busy_streams(self) -> None:
        """Several things are kept; one stream is done, the others are not."""
        streams = [self.stream(0) for _ in range(self.rng.choice((2, 3, 3, 8)))]
        for stream in streams:
            name = self.new(self.rng.choice(("jax", "ordered")), 0)
            self.call("k_look", name, stream=stream)
            self.add("delete", array=name)
        self.add("sync", stream=self.rng.choice(streams))
        self.pause()
        self.add("collect", worker=self.chance(0.3))

    def busy_beside_a_capture(self) -> None:
        graph = self.begin(stream=self.stream(0), worker=self.chance(0.3))
        self.busy_streams()
        self.add("end", capture=graph, keep=False)

    def begin(self, **what: Any) -> str:
        name = self.name("g")
        self.graphs.append(name)
        step = {"kind": None, "device": 0, "mode": self.rng.choice((0, 1, 2)), "worker": False}
        self.add("capture", name=name, **{**step, **what})
        return name

    def unknown_in_a_graph(self) -> None:
        stream = self.stream(0)
        x = self.new("ordered", 0)
        graph = self.begin(stream=stream)
        self.call("k_look", x, stream=stream, order="trust")
        self.add("delete", array=x)
        self.add("end", capture=graph, keep=False)
        self.pause()
        self.add("collect", worker=False)
        self.add("replay", graph=graph, stream=self.stream(0))

    def tensor_changes_streams(self) -> None:
        kind = self.rng.choice(TABLES)
        self.add("switch", kind=kind, device=0, stream=self.stream(0))
        x = self.new(kind, 0)
        tensor = self.tensor(x, self.stream(0))
        self.add("delete", array=x)
        self.call("k_inc", tensor)
        self.add("switch", kind=kind, device=0, stream=self.stream(0))
        self.add(self.rng.choice(("release", "drop")), tensor=tensor, worker=False)
        self.pause()

    def tensor_within_a_capture(self) -> None:
        kind, stream = self.rng.choice(TABLES), self.stream(0)
        self.add("switch", kind=kind, device=0, stream=stream)
        x = self.new(kind, 0)
        graph = self.begin(stream=stream)
        other = self.stream(0)
        self.add("fork", capture=graph, stream=other)
        tensor = self.tensor(x, self.rng.choice((None, other)))
        self.add("delete", array=x)
        self.call("k_inc", tensor)
        self.add(self.rng.choice(("release", "drop")), tensor=tensor, worker=False)
        self.add("end", capture=graph, keep=False)
        self.pause()
        self.add("replay", graph=graph, stream=self.stream(0))

    def tensor_across_a_capture(self) -> None:
        stream = self.stream(0)
        x = self.new(self.rng.choice((*TABLES, "interface")), 0)
        tensor = self.tensor(x, stream)
        self.add("delete", array=x)
        self.call("k_inc", tensor)
        graph = self.begin(stream=stream)
        self.add("drop", tensor=tensor, worker=self.chance(0.3))
        self.add("end", capture=graph, keep=False)
        self.add("destroy", graph=graph)
        self.pause()
        self.add("collect", worker=False)

    def import_into_a_capture(self) -> None:
        stream = self.stream(0)
        x = self.new(self.rng.choice(("ordered", "jax", *SINGLES[:3])), 0)
        graph = self.begin(stream=stream)
        self.tensor(x, stream)
        self.add("end", capture=graph, keep=False)

    def tensor_of_a_thread(self) -> None:
        """2 names another stream in another thread."""
        x = self.new(self.rng.choice((*TABLES, "interface")), 0)
        tensor = self.tensor(x, PER_THREAD)
        self.add("delete", array=x)
        for _ in range(self.rng.choice((1, 2))):
            self.call("k_inc", tensor, worker=self.chance(0.5))
        self.add(self.rng.choice(("release", "drop")), tensor=tensor, worker=self.chance(0.8))
        self.add("collect", worker=self.chance(0.5))

    def move_within_a_call(self) -> None:
        x = self.new(self.rng.choice(("torch", "other")), 0)
        meddler = self.new("meddler", 0)
        y = self.new(self.rng.choice(TABLES), 0)
        self.call("k_add", *self.rng.sample((x, meddler), 2), y, meddle=x)

    def one_stream_of_two_names(self) -> None:
        names = self.rng.sample((LEGACY_0, LEGACY_1), 2)
        for kind, stream in zip(self.rng.sample(TABLES, 2), names, strict=True):
            self.add("switch", kind=kind, device=0, stream=stream)
        x, y = (self.new(kind, 0) for kind in self.rng.sample(TABLES, 2))
        self.call("k_copy", x, y, order="strict", stream=self.rng.choice((None, *names)))

    def release_within_a_call(self) -> None:
        x = self.new(self.rng.choice(TABLES), 0)
        tensor = self.tensor(x, self.stream(0))
        self.add("delete", array=x)
        meddler = self.new("meddler", 0)
        y = self.new(self.rng.choice(TABLES), 0)
        self.call("k_add", tensor, meddler, y, meddle=tensor)
        self.pause()

    def rest(self) -> None:
        """Small things."""
        choice = self.rng.randrange(6)
        if choice == 0:
            self.add("collect", worker=self.chance(0.3))
        elif choice == 1:
            self.add("sync", stream=self.stream(self.device()))
        elif choice == 2:
            self.add("context", which=self.rng.choice(("none", "0", "1", "second")))
        elif choice == 3:
            self.add("policy", order=self.rng.choice((None, "join", "strict")))
        elif choice == 4:
            self.add("drain")
        else:
            self.add("run", count=self.rng.randrange(1, 10))

    def program(self, seed: int) -> Program:
        weighted = (
            (self.make, 10),
            (self.produce, 10),
            (self.delete, 4),
            (self.switch, 5),
            (self.launch, 30),
            (self.bring, 8),
            (self.give_back, 6),
            (self.capture, 5),
            (self.end_capture, 3),
            (self.build, 2),
            (self.replay, 4),
            (self.destroy, 2),
            (self.scenario, 10),
            (self.rest, 9),
        )
        actions = [action for action, _ in weighted]
        weights = [weight for _, weight in weighted]
        for kind in self.rng.sample(TABLES, self.rng.choice((1, 2, 3))):
            self.add("switch", kind=kind, device=0, stream=self.stream(0))
        for _ in range(self.rng.randrange(3, 6)):
            self.make()
        for _ in range(self.rng.randrange(3, 16)):
            self.rng.choices(actions, weights)[0]()
        return Program(seed, self.steps)


def generate(seed: int) -> Program:
    return Generator(seed).program(seed)
