"""Captures, and graphs of captures and made node by node."""

from __future__ import annotations

from typing import Any

from onstream.testing.simgpu.driver import Stream
from onstream.testing.simgpu.launches import Launches
from onstream.testing.simgpu.model import Arg, Capture, Graph, Held, Node, apply
from onstream.testing.simgpu.program import KERNELS, TABLES, Step

NODE_KINDS = (*TABLES, "ordered", "telling", "interface", "immutable", "jax")


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
        if not graph.nodes:  # else they are named by updates
            self.driver.call("cuGraphDestroy", graph.handle)
            graph.handle = 0

    def replay_streams(self, graph: Graph) -> list[Stream] | None:
        """What a replay is joined with; None: it may not be made now."""
        found: list[Stream] = []
        for used in graph.used:
            if isinstance(used, Held) and used.array.kind == "own" and used.released:
                return None
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
        if stream.device != graph.device:
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
        if self.captures or step.graph not in self.graphs:
            return
        graph = self.graphs.pop(step.graph)
        if graph.is_waited_for:
            self.driver.synchronise_all()
        self.destroy(graph)

    # ---- made node by node: the order of what it uses is the user's ------------------------

    def node_args(self, step: Step, graph: Graph) -> list[Arg] | None:
        args = self.gather(step)
        if args is None or self.launch_device(step, args) != graph.device:
            return None
        for arg in args:
            if arg.is_memory and (arg.how or arg.used.kind not in NODE_KINDS):
                return None
            if arg.is_memory and (arg.used.captured or arg.used.readers):
                return None
        return args

    def node_refusal(self, args: list[Arg], graph: Graph) -> str | None:
        for arg in filter(lambda arg: arg.is_memory, args):
            fixed = not arg.used.is_managed and not arg.used.is_pinned
            if fixed and arg.used.device != graph.device:
                return "memory of another device"
            if arg.used.kind == "jax":
                return "a graph has no stream to ask with"
            if arg.is_written and arg.used.read_only:
                return "read-only"
        return None

    def do_build(self, step: Step) -> None:
        if self.captures:
            return
        graph = Graph(step.device)
        graph.handle = self.driver.create_graph()
        for launch in step.launches:
            args = self.node_args(launch, graph)
            if args is None:
                continue
            options: dict[str, Any] = {"graph": graph.handle}
            if graph.nodes:
                options["dependencies"] = [graph.nodes[-1].handle]
            why = self.node_refusal(args, graph)
            with self.judged(why) as outcome:
                outcome.value = self.kernels[launch.kernel].launch(
                    [self.value_of(arg) for arg in args], grid=1, block=1, **options
                )
            if not outcome.refused:
                graph.nodes.append(Node(launch.kernel, outcome.value, []))
                graph.effects.append((launch.kernel, ()))
                self.set_node(graph, len(graph.nodes) - 1, args)
                # What it was handed, the graph keeps itself.
                known = (arg.used for arg in args if arg.is_memory and not arg.used.is_unknown)
                graph.keep += [used.obj for used in known]
        self.graphs[step.name] = graph

    def set_node(self, graph: Graph, index: int, args: list[Arg]) -> None:
        node = graph.nodes[index]
        cells = tuple(arg.used.cell if arg.is_memory else arg.used for arg in args)
        graph.effects[index] = (node.kernel, cells)
        node.used = [arg.used for arg in args if arg.is_memory]
        graph.used = []
        for used in (used for node in graph.nodes for used in node.used):
            graph.use(used)

    def do_update(self, step: Step) -> None:
        graph = self.graphs.get(step.graph)
        if self.captures or graph is None or not graph.executable:
            return
        if step.index >= len(graph.nodes):
            return
        node = graph.nodes[step.index]
        args = self.node_args(step.launch, graph) if step.launch.kernel == node.kernel else None
        if args is None:
            return
        with self.judged(self.node_refusal(args, graph)) as outcome:
            self.kernels[node.kernel].update_node(
                graph.executable, node.handle, [self.value_of(arg) for arg in args],
                grid=1, block=1,
            )  # fmt: skip
        if not outcome.refused:
            self.set_node(graph, step.index, args)
            things = [arg.used for arg in args if arg.is_memory]
            graph.keep += [used.obj for used in things]
            graph.is_waited_for |= any(used.is_unknown for used in things)
