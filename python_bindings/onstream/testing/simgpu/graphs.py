"""Captures, and graphs of captures and made node by node."""

from __future__ import annotations

from typing import Any

from onstream.testing.simgpu.driver import Stream
from onstream.testing.simgpu.launches import Launches
from onstream.testing.simgpu.model import Array, Capture, Graph, Held, apply
from onstream.testing.simgpu.program import KERNELS, TABLES, Step


class Graphs(Launches):
    def can_be_captured(self, stream: Stream) -> bool:
        return self.capture_of(stream) is None and not stream.is_legacy

    def do_capture(self, step: Step) -> None:
        stream = self.streams[step.stream]
        if step.kind is not None:
            stream = self.home(step.kind, step.device).stream
        if (
            not self.can_be_captured(stream)
            or (step.worker and stream.is_per_thread)
            or len(self.captures) > 1
        ):
            return
        self.on(step.worker, lambda: self.driver.begin_capture(stream, step.mode))
        self.captures.append(Capture(step.name, stream, step.mode, step.worker))

    def do_fork(self, step: Step) -> None:
        capture = next((c for c in self.captures if c.name == step.capture), None)
        stream = self.streams[step.stream]
        if capture is None or not self.can_be_captured(stream):
            return
        if stream.device != capture.members[0].device:
            return
        self.driver.join(stream, capture.members[0])
        capture.members.append(stream)

    def do_end(self, step: Step) -> None:
        capture = next((c for c in self.captures if c.name == step.capture), None)
        if capture is not None:
            self.end(capture)

    def end(self, capture: Capture) -> None:
        origin, *others = capture.members
        for other in others:
            self.driver.join(origin, other)
        self.captures.remove(capture)
        graph = capture.graph
        graph.handle = self.on(capture.worker, lambda: self.driver.end_capture(origin))
        self.graphs[capture.name] = graph
        if not self.captures:
            self.instantiate(graph)

    def instantiate(self, graph: Graph) -> None:
        graph.executable = self.driver.instantiate(graph.handle)
        self.driver.call("cuGraphDestroy", graph.handle)
        graph.handle = 0

    def replay_streams(self, graph: Graph) -> list[Stream] | None:
        """What a replay is joined with; None: it may not be made now."""
        found: list[Stream] = []
        for used in graph.used:
            if isinstance(used, Held):
                if not used.released:
                    found.append(used.home)
                    continue
                if used.tied is not graph or used.array.abandoned:
                    return None
                used = used.array
            if used.tensors or used.abandoned or used.readers:
                return None
            self.stray(used.cell, used.home)
            found.append(used.home.stream)
        return found

    def is_initialised(self, graph: Graph) -> bool:
        written: set[int] = set()
        for kernel, args in graph.effects:
            letters = "w" if kernel == "fill" else KERNELS[kernel]
            pairs = list(zip(letters, args, strict=False))
            for letter, cell in pairs:
                unset = letter in "ru" and cell.value is None and id(cell) not in written
                if unset:
                    return False
            written.update(id(cell) for letter, cell in pairs if letter in "wu")
        return True

    def do_replay(self, step: Step) -> None:
        graph = self.graphs.get(step.graph)
        stream = self.streams[step.stream]
        if graph is None or self.captures:
            return
        if not graph.executable:
            self.instantiate(graph)
        streams = self.replay_streams(graph)
        if streams is None or not self.is_initialised(graph):
            return
        if any(other.device != stream.device for other in streams):
            return
        for other in streams:
            self.driver.join(stream, other)
        self.driver.call_on(stream.context, "cuGraphLaunch", graph.executable, stream.handle)
        for other in streams:
            self.driver.join(other, stream)
        for kernel, args in graph.effects:
            if kernel == "fill":
                args[0].value = args[1]
            else:
                apply(kernel, args)
        for used in graph.used:  # there from now on
            used.captured = None

    def destroy(self, graph: Graph) -> None:
        if graph.executable:
            self.driver.call("cuGraphExecDestroy", graph.executable)
        if graph.handle:
            self.driver.call("cuGraphDestroy", graph.handle)
        graph.executable = graph.handle = 0
        graph.keep.clear()

    def do_destroy(self, step: Step) -> None:
        if not self.captures and step.graph in self.graphs:
            self.destroy(self.graphs.pop(step.graph))

    def do_build(self, step: Step) -> None:
        if self.captures:
            return
        graph = Graph()
        graph.handle = self.driver.create_graph()
        node = None
        for launch in step.launches:
            args = self.gather(launch)
            if args is None or not all(
                isinstance(a, Array) and a.kind in TABLES for letter, a in args if letter != "v"
            ):
                continue
            if any(a.captured for letter, a in args if letter != "v"):
                continue
            values = [getattr(a, "obj", a) for _, a in args]
            options: dict[str, Any] = {"graph": graph.handle}
            if node is not None:
                options["dependencies"] = [node]
            with self.judged(None) as outcome:
                outcome.value = self.kernels[launch.kernel].launch(
                    values, grid=1, block=1, **options
                )
            del values
            node = outcome.value
            cells = tuple(a if letter == "v" else a.cell for letter, a in args)
            graph.effects.append((launch.kernel, cells))
            for letter, a in args:
                if letter != "v":
                    self.use_in_graph(graph, a)
        self.graphs[step.name] = graph
