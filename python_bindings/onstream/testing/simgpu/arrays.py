"""Arrays, and what their libraries do with them."""

from __future__ import annotations

from typing import Any

from onstream.testing.simgpu import producers as lib
from onstream.testing.simgpu.driver import BYTES
from onstream.testing.simgpu.model import Array, Capture, Graph, Used, apply
from onstream.testing.simgpu.producers import Home
from onstream.testing.simgpu.program import TABLES, Step
from onstream.testing.simgpu.world import World


class Arrays(World):
    def do_effect(self, kernel: str, args: tuple[Any, ...], capture: Capture | None) -> None:
        if capture is not None:
            capture.graph.effects.append((kernel, args))
        else:
            apply(kernel, args)

    def do_make(self, step: Step) -> None:
        kind, place = step.kind, step.place
        pinned = place.startswith("pinned")
        if kind in TABLES and not pinned:
            home = self.home(kind, step.device)
        else:
            home = Home(self, self.streams[step.stream])
        if not self.is_eager(home.stream):
            return
        how = "pinned" if pinned else step.how
        if how == "host" and self.captures:
            how = "pool"
        memory = self.allocate(home, how, place)
        if kind in TABLES:
            obj = lib.make_tensor(self.types[kind], memory, step.device, place)
        else:
            tensor = lib.make_tensor(self.types["plain"], memory, step.device, place)
            obj = self.singles[kind](
                self, tensor, home.stream, versioned=step.versioned, slow=step.slow, place=place
            )
        self.driver.lib.sim_name(memory.address, step.name.encode())
        array = Array(kind, obj, memory.cell, home, place)
        if step.value is not None:
            self.write(array, step.value)
        if kind == "arrow" and how != "host":
            obj.event = self.driver.lend_event(home.stream.context)
        if kind == "arrow" and obj.event:
            self.driver.record(obj.event, home.stream)
        elif kind == "arrow" and self.captures:
            return
        elif kind == "arrow" or how == "host":
            self.driver.synchronise(home.stream)
        self.arrays[step.name] = array

    def idle(self, array: Array | None) -> bool:
        """May its producer work on it now?"""
        if array is None or array.tensors or array.abandoned or array.read_only:
            return False
        if not self.usable(array.home.stream):
            return False
        capture = self.capture_of(array.home.stream)
        if array.captured is not None and array.captured is not capture:
            return False
        if capture is not None and array.readers:
            return False
        for reader in array.readers:
            if not self.can_join(array.home.stream, reader):
                return False
        return True

    def learn_of_readers(self, array: Array) -> None:
        for reader in array.readers:
            self.driver.join(array.home.stream, reader)
        array.readers = []

    def write(self, array: Array, value: int) -> None:
        stream = array.home.stream
        self.stray(array.cell, array.home)
        self.driver.fill(array.cell.address, value, stream)
        capture = self.capture_of(stream)
        cell, filled = array.cell, value | value << 32
        if capture is None:
            cell.value = filled
        else:
            capture.graph.effects.append(("fill", (cell, filled)))
            self.use_in_graph(capture.graph, array)

    def use_in_graph(self, graph: Graph, used: Used, keep: bool = True) -> None:
        graph.use(used)
        if keep and isinstance(used, Array):
            graph.keep.append(used.obj)

    def do_write(self, step: Step) -> None:
        array = self.arrays.get(step.array)
        if array is not None and self.idle(array):
            self.learn_of_readers(array)
            self.write(array, step.value)

    def do_bump(self, step: Step) -> None:
        self.producer_launch("k_inc", step.array)

    def do_look(self, step: Step) -> None:
        self.producer_launch("k_look", step.array)

    def producer_launch(self, kernel: str, name: str) -> None:
        array = self.arrays.get(name)
        if array is None or not self.idle(array):
            return
        capture = self.capture_of(array.home.stream)
        if array.cell.value is None and capture is None:
            return
        self.learn_of_readers(array)
        self.stray(array.cell, array.home)
        self.driver.launch(kernel, array.cell.address, array.home.stream)
        self.do_effect(kernel, (array.cell,), capture)
        if capture is not None:
            self.use_in_graph(capture.graph, array)

    def do_read(self, step: Step) -> None:
        """On the host, after its producer's stream."""
        array = self.arrays.get(step.array)
        if array is None or self.captures or not self.idle(array) or array.cell.value is None:
            return
        self.learn_of_readers(array)
        self.driver.synchronise(array.home.stream)
        self.driver.lib.sim_host_access(array.cell.address, BYTES, 0)
        self.compare(step.array, array.cell)

    def do_delete(self, step: Step) -> None:
        array = self.arrays.pop(step.array, None)
        if array is not None:
            array.obj = None

    def do_switch(self, step: Step) -> None:
        home = self.home(step.kind, step.device)
        new = self.streams[step.stream]
        if new.device != step.device:
            return
        if self.capture_of(new) or self.capture_of(home.stream):
            return
        if not self.can_join(new, home.stream):
            return
        self.driver.join(new, home.stream)
        home.stream = new
        self.producer.set_stream(TABLES.index(step.kind), new.handle, 0, step.device)
