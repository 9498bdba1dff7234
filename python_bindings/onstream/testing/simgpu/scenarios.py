"""What takes several steps to meet."""

from __future__ import annotations

from onstream.testing.simgpu.draw import Draw
from onstream.testing.simgpu.program import (
    BLOCKING,
    FAR_LEGACY,
    LEGACY_0,
    LEGACY_1,
    MANAGED_KINDS,
    PER_THREAD,
    PINNED_KINDS,
    PLACES,
    SINGLES,
    TABLES,
    launch,
)


class Scenarios(Draw):
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
                self.memory_of_two_devices,
                self.managed_memory_elsewhere,
                self.own_memory_and_a_capture,
                self.zeros_beside_a_capture,
                self.arrow_in_a_capture,
                self.pinned_in_use,
                self.one_node_for_another,
            )
        )()

    def busy_streams(self, *counts: int) -> None:
        """Several things are kept; one stream is done, the others are not."""
        streams = [self.stream(0) for _ in range(self.rng.choice(counts or (2, 3, 3, 8)))]
        for stream in streams:
            name = self.new(self.rng.choice(("jax", "immutable", "arrow", "ordered")), 0)
            self.call("k_look", name, stream=stream)
            self.add("delete", array=name)
        self.add("sync", stream=self.rng.choice(streams))
        self.pause()
        self.add("collect", worker=self.chance(0.3))

    def busy_beside_a_capture(self) -> None:
        graph = self.begin(stream=self.stream(0), worker=self.chance(0.3))
        self.busy_streams(3, 8, 20)
        self.add("end", capture=graph, keep=False)

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
        """Refused, unless all that it would wait for is over."""
        stream = self.stream(0)
        kind = self.rng.choice((*SINGLES[:3], "ordered", "jax", "immutable", "arrow"))
        x = self.new(kind, 0, **({"how": "host"} if kind == "arrow" else {}))
        graph = self.begin(stream=stream)
        tensor = self.tensor(x, stream)
        if self.chance(0.5):
            self.add("delete", array=x)
            self.call("k_look", tensor)
        if self.chance(0.5):
            self.add(self.rng.choice(("release", "drop")), tensor=tensor, worker=False)
        self.add("end", capture=graph, keep=False)
        self.pause()
        self.add("replay", graph=graph, stream=stream)

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
        zeros = self.rng.choice((("zeros", None), ("zeros_like", y)))
        self.call("k_copy", meddler, zeros, outputs=(self.name("o"),), out=(x,), meddle=x)

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

    def memory_of_two_devices(self) -> None:
        """The second is of another device than the launch."""
        kinds = (*TABLES, "ordered", "telling", "jax", "immutable")
        x = self.new(self.rng.choice(kinds), self.rng.choice((0, 1)))
        y = self.new(self.rng.choice(kinds), 1)
        self.call("k_add", x, y, self.new(self.rng.choice(TABLES), 0))

    def managed_memory_elsewhere(self) -> None:
        kind = self.rng.choice(MANAGED_KINDS)
        far = self.rng.choice((self.stream(1), FAR_LEGACY))
        if kind in TABLES:
            self.add("switch", kind=kind, device=1, stream=far)
        x = self.new(kind, 1, place="managed", stream=None if kind in TABLES else far)
        y = self.new(self.rng.choice(TABLES), 0)
        order = self.rng.choice((None, None, "trust"))
        for args in ((x, y), (y, x)):
            self.call("k_copy", *args, stream=self.rng.choice((None, self.stream(0))), order=order)
        self.add("delete", array=self.rng.choice((x, y)))
        if self.chance(0.5):
            z = self.new(self.rng.choice(MANAGED_KINDS), 0, place="managed")
            self.call("k_copy", *self.rng.sample((x, z), 2), scopes=self.rng.choice(((), (0,))))

    def own_memory_and_a_capture(self) -> None:
        stream = self.stream(0)
        x = self.new(self.rng.choice(("ordered", "immutable", "arrow")), 0)
        name = self.name("o")
        self.tensors.append(name)
        how = self.rng.choice((("like", x), ("zeros_like", x), ("empty", None), ("zeros", None)))
        self.call("k_copy", x, how, outputs=(name,), stream=stream)
        self.call("k_inc", name, stream=self.rng.choice((None, self.stream(0))))
        graph = self.begin(stream=stream)
        if self.chance(0.5):
            self.call("k_inc", name)
        self.add("drop", tensor=name, worker=self.chance(0.2))
        self.add("end", capture=graph, keep=False)
        self.pause()
        self.add("collect", worker=False)

    def zeros_beside_a_capture(self) -> None:
        """Where they are allocated is not known before."""
        stream, kind = self.rng.choice((self.stream(0), BLOCKING)), self.rng.choice(TABLES)
        if self.chance(0.5):
            self.add("switch", kind=kind, device=0, stream=LEGACY_0)
        x = self.new(kind, 0)
        graph = self.begin(stream=stream)
        how = self.rng.choice((("zeros", None), ("zeros_like", x), ("empty", None)))
        order = self.rng.choice((None, "strict", "trust"))
        self.call("k_copy", x, how, outputs=(self.name("o"),), stream=stream, order=order)
        self.add("end", capture=graph, keep=False)
        self.add("replay", graph=graph, stream=self.stream(0))

    def arrow_in_a_capture(self) -> None:
        stream = self.stream(0)
        x = self.new("arrow", 0, how=self.rng.choice(("host", "pool", "pool")))
        y = self.new(self.rng.choice(TABLES), 0)
        graph = self.begin(stream=stream)
        order = self.rng.choice((None, "trust", "trust", "trust"))
        self.call(self.rng.choice(("k_copy", "k_copy", "g_copy")), x, y, stream=stream, order=order)
        self.add("delete", array=x)
        self.add("end", capture=graph, keep=False)
        self.add("replay", graph=graph, stream=self.stream(0))

    def pinned_in_use(self) -> None:
        """A stream has yet to fill it; it is dropped, or filled anew, in flight."""
        x = self.new(self.rng.choice(PINNED_KINDS), 0, place=self.rng.choice(PLACES[2:]))
        y = self.new(self.rng.choice(TABLES), 0)
        vouch, out = self.rng.choice(("join", "events")), ("zeros_like", y)
        self.call("k_copy", x, y, stream=self.stream(0), vouch=vouch)
        self.call("k_copy", y, out, outputs=(self.name("o"),), out=(x,), vouch=vouch)
        self.add(self.rng.choice(("delete", "bump", "read")), array=x)

    def one_node_for_another(self) -> None:
        """What a graph uses is changed between two runs, and dropped."""
        x, y, z = (self.new(self.rng.choice(TABLES), 0) for _ in range(3))
        if self.chance(0.5):
            z = self.new(self.rng.choice(("ordered", "telling", "jax", "immutable")), 0)
        name = self.name("g")
        self.graphs.append(name)
        self.add("build", name=name, device=0, launches=(launch("k_copy", (x, y)),))
        self.add("replay", graph=name, stream=self.stream(0))
        swapped = self.rng.choice(((z, y), (y, x), (x, z)))
        self.add("update", graph=name, index=0, launch=launch("k_copy", swapped))
        self.add("delete", array=self.rng.choice((x, y, z)))
        self.add("replay", graph=name, stream=self.stream(0))
        self.add("destroy", graph=name)
