"""How a seed becomes a program."""

from __future__ import annotations

from typing import Any

from onstream.testing.simgpu.draw import Named
from onstream.testing.simgpu.program import (
    GENERIC,
    KERNELS,
    OUTPUTS,
    READ_ONLY,
    SINGLES,
    TABLES,
    Program,
    Step,
    launch,
)
from onstream.testing.simgpu.scenarios import Scenarios

ZEROED = ("zeros", "zeros_like")


class Generator(Scenarios):
    # ---- steps -----------------------------------------------------------------------------

    def make(self) -> None:
        rng = self.rng
        kind = rng.choice(TABLES if self.chance(0.6) else SINGLES)
        if kind in ("failing", "meddler") and self.chance(0.5):
            kind = "ordered"
        what: dict[str, Any] = {"place": self.place(kind)}
        if self.chance(0.15) and kind not in READ_ONLY:
            what["value"] = None
        if kind == "arrow" and self.chance(0.3):
            what["how"] = "host"
        slow = kind == "ordered" and self.chance(0.2)
        self.new(kind, self.device(), versioned=self.chance(0.8), slow=slow, **what)

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

    def output(self, letter: str, device: int) -> tuple[str, str | None] | None:
        how = self.rng.choice(("like", "like", *OUTPUTS) if letter == "w" else ZEROED)
        if "like" not in how:
            return how, None
        kinds = TABLES if self.chance(0.7) else ()
        model = self.array(device, kinds)
        if self.tensors and self.chance(0.1):
            model = self.rng.choice(self.tensors[-3:])
        return (how, model) if model is not None else None

    def arguments(self, kernel: str, device: int) -> tuple[list[Any], list[str]]:
        args: list[Any] = []
        outputs: list[str] = []
        for letter in KERNELS[kernel]:
            if letter == "v":
                args.append(float(self.rng.randrange(1, 100)))
                continue
            output = None
            if self.chance({"w": 0.5, "u": 0.1}.get(letter, 0)):
                output = self.output(letter, device)
            if output is not None:
                args.append(output)
                if output[0] != "workspace":
                    outputs.append(self.name("o"))
            elif self.tensors and self.chance(0.3):
                args.append(self.rng.choice(self.tensors[-3:]))
            else:
                kinds = TABLES if letter in "wu" and self.chance(0.8) else ()
                anywhere = None if self.chance(0.05) else device
                args.append(self.array(anywhere, kinds) or self.array(device) or self.array())
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
        out = None
        if outputs and kernel not in GENERIC and self.chance(0.2):
            out = tuple(self.array(device) if self.chance(0.8) else None for _ in outputs)
        what = {
            "outputs": tuple(outputs),
            "out": out,
            "on": device if self.chance(0.1) else None,
            "stream": self.stream(device) if self.chance(0.3) else None,
            "scopes": scopes,
            "order": rng.choice((None, None, None, None, "join", "strict", "trust", "trust")),
            "vouch": rng.choice(("join", "events")),
            "worker": self.chance(0.1),
            "meddle": self.array(device, ("torch", "other")) if self.chance(0.3) else None,
            "value": rng.randrange(1, 1 << 20),
        }
        step = launch(kernel, fixed.pop("args", tuple(args)), **{**what, **fixed})
        self.expect_outputs(step, device)
        return step

    def expect_outputs(self, step: Step, device: int) -> None:
        """They may be arrays of any library, or tensors."""
        models = [arg for arg in step.args if isinstance(arg, tuple) and arg[0] != "workspace"]
        for name, (_, model) in zip(step.outputs, models, strict=False):
            kind = next((known.kind for known in self.arrays if known.name == model), None)
            if kind in TABLES or self.chance(0.5):
                kind = kind if kind in TABLES else "torch"
                self.arrays.append(Named(name, kind, device, "device"))
            else:
                self.tensors.append(name)

    def launch(self) -> None:
        step = self.launch_step()
        self.steps.append(step)
        # What a hasty user does right after.
        for name in step.args:
            if not isinstance(name, str) or not self.chance(0.3):
                continue
            if name in self.tensors:
                self.add(self.rng.choice(("release", "drop")), tensor=name, worker=False)
            elif self.chance(0.5):
                self.add("delete", array=name)
            else:
                self.add("write", array=name, value=self.rng.randrange(1, 1 << 20))

    def bring(self) -> None:
        name = self.array()
        if name is None:
            return
        device = next(known.device for known in self.arrays if known.name == name)
        stream = self.stream(device) if self.chance(0.6) else None
        if self.chance(0.25):
            tensor = self.name("t")
            inner = self.launch_step(kernel=self.rng.choice(("k_inc", "k_look")), args=(tensor,))
            inner.what.update(outputs=(), out=None, worker=False, scopes=())
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
        launches = [self.node() for _ in range(self.rng.choice((1, 2, 3)))]
        self.built[name] = [launch.kernel for launch in launches]
        self.add("build", name=name, device=self.device(), launches=tuple(launches))
        for _ in range(self.rng.choice((1, 2))):
            self.replay()
            if self.chance(0.5):
                self.update()

    def node(self, *kernels: str) -> Step:
        kernel = self.rng.choice(kernels or ("k_copy", "k_axpy", "k_inc"))
        args, _ = self.arguments(kernel, self.device())
        plain = (self.array() if isinstance(arg, tuple) else arg for arg in args)
        return launch(kernel, tuple(plain))

    def update(self) -> None:
        if self.built:
            name = self.rng.choice(tuple(self.built))
            index = self.rng.randrange(len(self.built[name]))
            kernel = self.built[name][index]
            self.add("update", graph=name, index=index, launch=self.node(kernel))
            if self.chance(0.7):
                self.add("replay", graph=name, stream=self.stream(0))

    def replay(self) -> None:
        if self.graphs:
            stream = self.stream(self.device())
            self.add("replay", graph=self.rng.choice(self.graphs), stream=stream)

    def destroy(self) -> None:
        if self.graphs:
            self.add("destroy", graph=self.rng.choice(self.graphs))

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
            (self.build, 3),
            (self.update, 2),
            (self.replay, 4),
            (self.destroy, 2),
            (self.scenario, 15),
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
