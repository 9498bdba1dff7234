"""Runs programs with the real library on the simulated GPU, and judges every step.

Beside the machine runs a model: plain values in the order of the calls, and what the rules of
order allow. The user of a program is careful where the rules ask for it: joins by hand under
"trust", around replays, and where a producer cannot know of a reader."""

from __future__ import annotations

import gc
import traceback

import onstream as ons
from onstream.testing.simgpu import producers as lib
from onstream.testing.simgpu.driver import DriverError
from onstream.testing.simgpu.graphs import Graphs
from onstream.testing.simgpu.model import Violation
from onstream.testing.simgpu.producers import Home, Memory
from onstream.testing.simgpu.program import TABLES, Program, Step

MAX_EVENTS = 200


class Machine(Graphs):
    """One for the process: the library, its kernels and the driver stay."""

    def run(self, program: Program) -> None:
        """Raises Violation."""
        self.reset_program()
        self.driver.lib.sim_schedule_begin(program.seed)
        self.driver.lib.sim_clear_records()
        self.running = True
        self.producer.reset()
        try:
            self.make_streams()
            for slot, kind in enumerate(TABLES):
                for device in range(self.driver.DEVICES):
                    first = self.streams[0 if device == 0 else 7]
                    self.homes[kind, device] = Home(self, first)
                    self.producer.set_stream(slot, first.handle, 0, device)
                self.producer.set_allocator(slot, self._allocator(kind))
            self.driver.lib.sim_set_current(None)
            for step in program.steps:
                self.step(step)
            self.finish()
        except Violation as violation:
            traceback.clear_frames(violation.__traceback__)  # they hold what is to go first
            raise
        except DriverError as error:
            # The program is right, so that its calls work unless the library broke something.
            raise Violation("broken state", str(error)) from None
        finally:
            self.clean_up()

    def step(self, step: Step) -> None:
        self.give_back_deferred()
        getattr(self, "do_" + step.op.replace("import", "bring"))(step)
        self.check()

    def finish(self) -> None:
        while self.captures:
            self.end(self.captures[-1])
        self.check()
        self.driver.synchronise_all()
        for name, array in self.arrays.items():
            self.compare(name, array.cell)
        for held in self.held.values():
            self.compare("a tensor", held.cell)
        for graph in self.graphs.values():
            self.destroy(graph)
        for held in self.held.values():
            held.tensor = None
        for memory in self.arrays.values():
            memory.obj = None
        self.held.clear()
        self.graphs.clear()
        self.arrays.clear()
        self.driver.synchronise_all()
        self.collect_all()
        self.give_back_deferred()
        for home in self.all_homes:
            for addresses in home.cache.values():
                self.private += addresses
            home.cache.clear()
        self.check()
        self.driver.synchronise_all()
        for address in self.private:
            self.driver.lib.sim_device_free(address)
        self.private = []
        counts = self.producer.counts()
        if counts["handed_out"] != counts["deleted"]:
            raise Violation(
                "deleters", f"{counts['handed_out']} handed out, {counts['deleted']} deleted"
            )
        if self.live_memory:
            raise Violation("leak", f"{self.live_memory} allocations that somebody keeps")
        self.driver.lib.sim_schedule_end()
        self.check()
        events = self.driver.lib.sim_get_live().events
        if events > MAX_EVENTS:
            raise Violation("events", f"{events} are alive")

    def collect_all(self) -> None:
        """What was released during a capture is put into eager order first."""
        for _ in range(3):
            left = ons.collect()
            self.give_back_deferred()
            self.driver.synchronise_all()
        if left:
            raise Violation("kept", f"{left} objects after all was done")

    def clean_up(self) -> None:
        """Also after a violation: the next program starts with nothing."""
        self.running = False
        ons.set_order(None)
        for held in self.held.values():
            held.tensor = None
        self.arrays.clear()
        self.held.clear()
        self.graphs.clear()
        self.homes.clear()
        self.captures.clear()
        for slot in range(len(TABLES)):
            self.producer.set_allocator(slot, None)
        self.driver.lib.sim_set_current(None)
        ons.collect()  # what can be, as the streams are still there
        self.driver.lib.sim_reset()
        ons.collect()

    # ---- small steps -----------------------------------------------------------------------

    def do_collect(self, step: Step) -> None:
        with self.judged(None):
            self.on(step.worker, ons.collect)

    def do_sync(self, step: Step) -> None:
        stream = self.streams[step.stream]
        if not self.captures:
            self.driver.synchronise(stream)

    def do_context(self, step: Step) -> None:
        driver = self.driver
        which = {"none": None, "second": driver.second}
        driver.lib.sim_set_current(
            which[step.which] if step.which in which else driver.primary[int(step.which)]
        )

    def do_policy(self, step: Step) -> None:
        ons.set_order(step.order)
        self.policy = step.order or "join"

    def do_run(self, step: Step) -> None:
        for _ in range(step.count):
            self.driver.lib.sim_step(1)

    def do_drain(self, step: Step) -> None:
        """Launches alone give back what the device is past. What was released during a capture
        is put into eager order first."""
        if self.captures or self.graphs or self.held:
            return
        count = self.kept_by_library() + 1
        for device in (*range(self.driver.DEVICES), *range(self.driver.DEVICES)):
            home = self.home("torch", device)
            self.driver.synchronise_all()
            memory = self.allocate(home, "pool")
            x = lib.make_tensor(self.types["torch"], memory, device)
            self.driver.fill(memory.address, 1, home.stream)
            for _ in range(count):
                self.kernels["k_look"][1, 1](x)
            del x, memory
        kept = self.kept_by_library()
        if kept:
            raise Violation("not drained", f"{kept} objects after {count} launches")

    def kept_by_library(self) -> int:
        counts = self.producer.counts()
        kept: int = counts["handed_out"] - counts["deleted"] - self.outputs_alive()
        return kept

    def outputs_alive(self) -> int:
        """Arrays made by a table's allocator keep a managed tensor each."""
        return sum(type(a.obj).__name__ == "Tensor" and not isinstance(a.obj.owner, Memory)
                   for a in self.arrays.values())  # fmt: skip


def freeze() -> None:
    """Programs make no cycles: the collector need not look."""
    gc.collect()
    gc.freeze()
    gc.disable()


__all__ = ["Machine", "Violation", "freeze"]
