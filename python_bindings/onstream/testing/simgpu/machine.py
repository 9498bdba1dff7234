"""Runs programs with the real library on the simulated GPU, and judges every step.

Beside the machine runs a model: plain values in the order of the calls, and what the rules of
order allow. The user of a program is careful where the rules ask for it: joins by hand under
"trust", around replays, and where a producer cannot know of a reader."""

from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import onstream as ons
from onstream.testing.simgpu import producers as lib
from onstream.testing.simgpu.driver import BYTES, FULL, Driver, DriverError, Stream, mix
from onstream.testing.simgpu.producers import Cell, Freed, Home, Memory
from onstream.testing.simgpu.program import KERNELS, SOURCE, STREAMS, TABLES, Program, Step

MAX_EVENTS = 200
REFUSALS = (ons.Error, BufferError)


class Violation(Exception):
    """Something that must not happen. `kind` is short, `details` may be long."""

    def __init__(self, kind: str, details: str = "") -> None:
        super().__init__(f"{kind}: {details}" if details else kind)
        self.kind = kind
        self.details = details


class Array:
    def __init__(self, kind: str, obj: Any, cell: Cell, home: Home) -> None:
        self.kind = kind
        self.obj = obj
        self.cell = cell
        self.home = home
        self.tensors: set[str] = set()  # that have it now
        self.abandoned = False  # nobody orders its producer after its last use
        self.readers: list[Stream] = []  # that the producer does not know of
        self.captured: Capture | None = None  # allocated in it: there before a replay only

    @property
    def read_only(self) -> bool:
        return self.kind == "jax"

    @property
    def stream(self) -> Stream | None:
        """What the library is told."""
        return None if self.kind in lib_unknown else self.home.stream


class Held:
    """A Tensor, and what is known of it."""

    def __init__(self, tensor: Any, array: Array, home: Stream, capture: Capture | None) -> None:
        self.tensor = tensor
        self.array = array
        self.cell = array.cell
        self.home = home
        self.capture = capture
        self.producer = array.stream  # on the way in
        self.released = False
        self.tied: Graph | None = None  # that keeps the memory after the release

    read_only = property(lambda self: self.array.read_only)
    kind = "tensor"
    abandoned = False
    captured = None

    @property
    def obj(self) -> Any:
        return self.tensor

    @property
    def stream(self) -> Stream | None:
        return self.home


lib_unknown = ("ordered", "jax", "failing", "meddler")
Effect = tuple[str, tuple[Any, ...]]


class Capture:
    def __init__(self, name: str, origin: Stream, mode: int, worker: bool) -> None:
        self.name = name
        self.mode = mode
        self.worker = worker
        self.members = [origin]
        self.graph = Graph()


class Graph:
    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.keep: list[Any] = []  # what its user keeps for it
        self.used: list[Array | Held] = []
        self.handle = 0
        self.executable = 0


def apply(kernel: str, args: tuple[Any, ...]) -> None:
    """What the simulation's kernels do, to cells."""
    state = 0
    access = KERNELS[kernel]
    for letter, arg in zip(access, args, strict=True):
        if letter == "v":
            state = mix(state, struct.unpack("<I", struct.pack("<f", arg))[0])
        elif letter in "ru":
            state = mix(state, arg.value)
    for i, (letter, arg) in enumerate(zip(access, args, strict=True)):
        if letter in "wu":
            arg.value = mix(state, i)


class Machine:
    """One for the process: the library, its kernels and the driver stay."""

    def __init__(self) -> None:
        self.driver = driver = Driver.load()
        self.producer = lib.load()
        self.main = threading.get_ident()
        self.types = {
            "torch": self.producer.make_type(0),
            "other": self.producer.make_type(1),
            "owning": self.producer.make_type(2, null=("borrow",)),
            "plain": self.producer.make_type(3, capsule=False),
        }
        self.singles = {
            "ordered": lib.Ordered,
            "jax": lib.Immutable,
            "failing": lib.Failing,
            "meddler": lib.Meddler,
            "telling": lib.Telling,
            "interface": lib.Interface,
        }
        ons.register_producer(lib.Telling, stream=lambda x: x.stream.handle)
        ons.register_producer(lib.Immutable, read_only=True)
        self.contexts: dict[int, int] = {}
        self.reset_program()
        driver.call("cuInit", 0)
        module = ons.Module(SOURCE, name="programs.cu")
        self.kernels = {name: getattr(module, name) for name in KERNELS}
        for name, kernel in self.kernels.items():
            driver.lib.sim_declare_kernel(name.encode(), KERNELS[name].encode())
            for device in range(driver.DEVICES):
                kernel.prepare(f"cuda:{device}")
        driver.make_events()
        self.worker = lib.Worker(driver)
        self._learn_handles()

    def _learn_handles(self) -> None:
        """A launch on a stream of a second context uses a handle that is good for any."""
        handle = self.driver.lib.sim_stream_create(self.driver.second, 1)
        home = Home(self, Stream("", handle, 0, self.driver.second, False))
        self.driver.lib.sim_schedule_begin(0)
        for slot in range(3):
            self.producer.set_stream(slot, handle)
        memory = Memory(home, "host")
        x = lib.make_tensor(self.types["torch"], memory, 0)
        for name in ("k_inc", "k_look"):
            self.kernels[name][1, 1](x)
            record = self.driver.lib.sim_last(b"cuLaunchKernelEx")
            self.driver.kernels[name] = record.contents.handle
        memory.alive = False
        self.driver.lib.sim_reset()

    def reset_program(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.held: dict[str, Held] = {}
        self.graphs: dict[str, Graph] = {}
        self.captures: list[Capture] = []
        self.homes: dict[tuple[str, int], Home] = {}
        self.all_homes: list[Home] = []
        self.deferred: list[Freed] = []
        self.allocated_on: dict[int, tuple[int, int]] = {}
        self.fresh: dict[int, Cell] = {}  # of outputs
        self.private: list[int] = []
        self.live_memory = 0
        self.own_syncs = 0
        self.asked = 0  # how often producers were, for order or for memory
        self.policy = "join"
        self.running = False
        self.current: int | None = None
        self.trace: list[str] = []

    # ---- memory ----------------------------------------------------------------------------

    def freed(self, freed: Freed) -> None:
        """Nobody refers to it any more. Called from wherever that happens."""
        if not self.running:
            return
        self.live_memory -= 1
        if freed.how == "host":
            self.driver.lib.sim_device_free(freed.address)
        elif freed.how == "private":
            self.private.append(freed.address)
        else:
            self.deferred.append(freed)
            self.give_back_deferred()

    def give_back_deferred(self) -> None:
        """What was used on other current streams than its own is put behind those."""
        on_main = threading.get_ident() == self.main
        kept = []
        for freed in self.deferred:
            streams = (freed.stream, freed.home.stream)
            eager = all(self.is_eager(stream) for stream in streams)
            if not eager or not (on_main or not any(s.is_per_thread for s in streams)):
                kept.append(freed)
                continue
            if freed.strayed:
                self.driver.join(*streams)
            self.give_back(freed)
        self.deferred = kept

    def give_back(self, freed: Freed) -> None:
        stream = freed.stream
        if freed.how == "pool":
            self.driver.call_on(stream.context, "cuMemFreeAsync", freed.address, stream.handle)
        else:
            freed.home.cache.setdefault(stream.identity, []).append(freed.address)

    def stray(self, cell: Cell, home: Home) -> None:
        """It is used on its library's current stream."""
        if self.allocated_on.get(cell.address) != home.stream.identity:
            cell.strayed = True

    def allocate(self, home: Home, how: str) -> Memory:
        if self.capture_of(home.stream) is not None or not self.usable(home.stream):
            how = "private"  # as torch does for a graph
        memory = Memory(home, how)
        self.allocated_on[memory.address] = home.stream.identity
        return memory

    def allocate_output(self, kind: str, device: int) -> tuple[int, Memory]:
        self.asked += 1
        home = self.home(kind, device)
        memory = self.allocate(home, "pool" if kind == "other" else "cached")
        self.fresh[memory.address] = memory.cell
        return memory.address, memory

    def home(self, kind: str, device: int) -> Home:
        return self.homes[kind, device]

    # ---- streams ---------------------------------------------------------------------------

    def new_stream(self, context: int, blocking: bool) -> int:
        """A handle means one context for the life of the process: the library remembers, by
        handle, which streams its functions can be launched on."""
        while True:
            handle: int = self.driver.lib.sim_stream_create(context, int(not blocking))
            if self.contexts.setdefault(handle, context) == context:
                return handle

    def make_streams(self) -> None:
        driver = self.driver
        self.streams: list[Stream] = []
        for index, (device, kind) in enumerate(STREAMS):
            context = driver.second if kind == "second context" else driver.primary[device]
            special = {"legacy 0": 0, "legacy 1": 1, "per-thread": 2}
            blocking = kind == "blocking" or kind in special
            handle = special.get(kind)
            if handle is None:
                handle = self.new_stream(context, blocking)
                driver.lib.sim_name(handle, f"stream {index}".encode())
            self.streams.append(Stream(f"stream {index}", handle, device, context, blocking))
        self.by_handle = {s.handle: s for s in self.streams if s.handle > 2}
        self.specials = {
            (handle, device): Stream(f"handle {handle}", handle, device, context, True)
            for device, context in enumerate(driver.primary)
            for handle in (0, 1, 2)
        }

    def stream_of_handle(self, handle: int, device: int) -> Stream:
        if handle <= 2:
            return self.specials[handle, device]
        return self.by_handle[handle]

    def stream(self, index: int | None) -> Stream | None:
        return None if index is None else self.streams[index]

    def capture_of(self, stream: Stream) -> Capture | None:
        for capture in self.captures:
            if any(member.identity == stream.identity for member in capture.members):
                return capture
        return None

    def usable(self, stream: Stream) -> bool:
        """Would work for it touch a capture that it is not part of?"""
        if not stream.is_legacy:
            return True
        return not any(
            member.blocking and member.context == stream.context
            for capture in self.captures
            for member in capture.members
        )

    def is_eager(self, stream: Stream) -> bool:
        return self.usable(stream) and self.capture_of(stream) is None

    def can_join(self, one: Stream, other: Stream) -> bool:
        return (
            self.usable(one)
            and self.usable(other)
            and self.capture_of(one) is self.capture_of(other)
        )

    # ---- the life of a program -------------------------------------------------------------

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
        except Violation:
            raise
        except DriverError as error:
            # The program is right, so that its calls work unless the library broke something.
            raise Violation("broken state", str(error)) from None
        finally:
            self.clean_up()

    def _allocator(self, kind: str) -> Callable[[int, int], tuple[int, Memory]]:
        def allocate(device: int, size: int) -> tuple[int, Memory]:
            assert size == BYTES
            return self.allocate_output(kind, device)

        return allocate

    def step(self, step: Step) -> None:
        self.give_back_deferred()
        getattr(self, "do_" + step.op.replace("import", "bring"))(step)
        self.check()

    def check(self) -> None:
        report = self.driver.report()
        if report:
            raise Violation(*report)
        for capture in self.captures:
            if not self.driver.is_capture_alive(capture.members[0]):
                raise Violation("lost capture", f"of {capture.members[0].name}")

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
        self.driver.lib.sim_reset()
        ons.collect()

    # ---- the model of values ---------------------------------------------------------------

    def compare(self, name: str, cell: Cell) -> None:
        if cell.value is None:
            return
        import ctypes

        got = ctypes.c_uint64.from_address(cell.address).value
        if got != cell.value:
            raise Violation("wrong value", f"{name} is {got:#x}, not {cell.value:#x}")

    def do_effect(self, kernel: str, args: tuple[Any, ...], capture: Capture | None) -> None:
        if capture is not None:
            capture.graph.effects.append((kernel, args))
        else:
            apply(kernel, args)

    # ---- arrays ----------------------------------------------------------------------------

    def do_make(self, step: Step) -> None:
        kind = step.kind
        if kind in TABLES:
            home = self.home(kind, step.device)
        else:
            home = Home(self, self.streams[step.stream])
        how = step.how
        if kind == "jax" and self.captures:
            how = "pool"
        if self.capture_of(home.stream) is not None or not self.usable(home.stream):
            return
        memory = self.allocate(home, how)
        cell = memory.cell
        if kind in TABLES:
            obj = lib.make_tensor(self.types[kind], memory, step.device)
        else:
            tensor = lib.make_tensor(self.types["plain"], memory, step.device)
            obj = self.singles[kind](
                self, tensor, home.stream, versioned=step.versioned, slow=step.slow
            )
        self.driver.lib.sim_name(memory.address, step.name.encode())
        self.arrays[step.name] = Array(kind, obj, cell, home)
        if step.value is not None:
            self.write(self.arrays[step.name], step.value)
            if how == "host":
                self.driver.synchronise(home.stream)

    def idle(self, array: Array | None) -> bool:
        """May its producer work on it now?"""
        if array is None or array.tensors or array.abandoned or array.kind == "jax":
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

    def use_in_graph(self, graph: Graph, used: Array | Held, keep: bool = True) -> None:
        if used not in graph.used:
            graph.used.append(used)
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

    # ---- what is expected of a launch ------------------------------------------------------

    def find(self, name: Any) -> Array | Held | None:
        if name in self.held:
            held = self.held[name]
            return None if held.released else held
        return self.arrays.get(name)

    def launch_stream(
        self, step: Step, args: list[tuple[str, Any]], device: int
    ) -> tuple[Stream, bool]:
        """And whether it was given."""
        given = self.stream(step.stream)
        if given is not None:
            return given, True
        for index in reversed(step.scopes):
            if index is None:
                break
            return self.streams[index], True
        for _, arg in args:
            if isinstance(arg, (Array, Held)) and arg.stream is not None:
                return arg.stream, False
        return self.specials[0, device], False

    def refusal(
        self, args: list[tuple[str, Any]], outputs: set[int], stream: Stream, policy: str
    ) -> str | None:
        """Why the launch must be refused; None: it must not."""
        if not self.usable(stream):
            return "legacy beside a capture"
        capture = self.capture_of(stream)
        trust = policy == "trust"
        for i, (letter, arg) in enumerate(args):
            if letter == "v":
                continue
            if arg.kind == "failing":
                return "its producer fails"
            if letter in "wu" and i not in outputs:
                if arg.read_only:
                    return "read-only"
                if arg.stream is None and not trust:
                    return "unknown stream of what is written"
            if trust and i not in outputs:
                continue
            if arg.stream is None:
                if capture is not None:
                    return "unknown stream in a capture"
                continue
            if arg.stream.identity == stream.identity:
                continue
            if policy == "strict":
                return "strict"
            if not self.can_join(stream, arg.stream):
                return "one is in a capture, the other is not"
        return None

    # ---- launches --------------------------------------------------------------------------

    def gather(self, step: Step) -> list[tuple[str, Any]] | None:
        """(letter, value, Array, Held) of every argument; None where there is no launch to
        be made."""
        args: list[tuple[str, Any]] = []
        device = None
        for letter, name in zip(KERNELS[step.kernel], step.args, strict=True):
            if letter == "v":
                args.append((letter, name))
                continue
            used = self.find(name[1] if isinstance(name, tuple) else name)
            if used is None or used.abandoned:
                return None
            if isinstance(used, Array) and used.tensors and not isinstance(name, tuple):
                return None
            home = used.array.home if isinstance(used, Held) else used.home
            if device not in (None, home.stream.device):
                return None
            device = home.stream.device
            args.append((letter, used))
        return args

    def is_careful(
        self, step: Step, args: list[tuple[str, Any]], stream: Stream, trust: bool
    ) -> bool:
        """Would a sensible user do this?"""
        capture = self.capture_of(stream)
        for i, (letter, used) in enumerate(args):
            if letter == "v" or isinstance(step.args[i], tuple):
                continue
            if used.captured is not None and used.captured is not capture:
                return False
            if letter in "ru" and used.cell.value is None and capture is None:
                return False
            if used.stream is None and capture is None and not self.is_eager(used.home.stream):
                return False
            if letter in "wu" and isinstance(used, Array) and used.readers:
                # Somebody reads it, and neither its producer nor the library knows.
                return False
            writers = [u for (other, u) in args if other in "wu"]
            if letter in "wu" and sum(u.cell is used.cell for u in writers) > 1:
                return False
        return True

    def do_launch(self, step: Step) -> None:
        args = self.gather(step)
        if args is None:
            return
        known = [a for letter, a in args if letter != "v"]
        first = known[0].array.home if isinstance(known[0], Held) else known[0].home
        device = first.stream.device
        stream, _ = self.launch_stream(step, args, device)
        if stream.device != device:
            return
        policy = step.order or self.policy
        outputs = {i for i, name in enumerate(step.args) if isinstance(name, tuple)}
        involved = [stream, *(a.stream or a.home.stream for a in known)]
        if step.worker and any(s.is_per_thread for s in involved):
            return
        if not self.is_careful(step, args, stream, policy == "trust"):
            return
        why = self.refusal(args, outputs, stream, policy)
        events: dict[str, Any] = {}
        if policy == "trust" and why is None:
            ready = self.vouch_before(step, args, outputs, stream, events)
            if not ready:
                return
        values = self.launch(step, args, stream, why, events)
        if values is None:
            return
        self.after_launch(step, args, outputs, stream, policy == "trust", values, events)

    # Under trust the user orders, with events of his own or the launch's.

    def others(
        self, args: list[tuple[str, Any]], outputs: set[int], stream: Stream
    ) -> list[Stream]:
        found: list[Stream] = []
        for i, (letter, used) in enumerate(args):
            if letter == "v" or i in outputs:
                continue
            other = used.stream or used.home.stream
            if other.identity not in [s.identity for s in (stream, *found)]:
                found.append(other)
        return found

    def vouch_before(
        self,
        step: Step,
        args: list[tuple[str, Any]],
        outputs: set[int],
        stream: Stream,
        events: dict[str, Any],
    ) -> bool:
        capture = self.capture_of(stream)
        others = self.others(args, outputs, stream)
        for other in others:
            in_graph = capture is not None and self.capture_of(other) is None
            if not in_graph and not self.can_join(stream, other):
                return False
        use_events = step.vouch == "events" and capture is None
        wait = []
        for i, other in enumerate(others):
            if capture is not None and self.capture_of(other) is None:
                continue  # whoever replays joins
            if use_events:
                event = self.driver.event(other.context, i)
                self.driver.record(event, other)
                wait.append(event)
            else:
                self.driver.join(stream, other)
        if use_events:
            events["wait"] = wait
            events["signal"] = [self.driver.event(stream.context, 3)]
        return True

    def vouch_after(
        self,
        args: list[tuple[str, Any]],
        outputs: set[int],
        stream: Stream,
        events: dict[str, Any],
    ) -> None:
        for other in self.others(args, outputs, stream):
            if self.capture_of(other) is not self.capture_of(stream):
                continue
            if events:
                self.driver.wait(other, events["signal"][0])
            else:
                self.driver.join(other, stream)

    def launch(
        self,
        step: Step,
        args: list[tuple[str, Any]],
        stream: Stream,
        why: str | None,
        events: dict[str, Any],
    ) -> Any:
        """The call, its answer judged. None: refused, as it had to be."""
        driver = self.driver
        given = self.stream(step.stream)
        options = {"order": step.order, **events} if step.order or events else None
        kernel = self.kernels[step.kernel]

        def call() -> Any:
            values = [
                ons.like(a.obj) if isinstance(name, tuple) else getattr(a, "obj", a)
                for name, (_, a) in zip(step.args, args, strict=True)
            ]
            handle = None if given is None else given.handle
            with ExitStack() as scopes:
                for index in step.scopes:
                    scope = None if index is None else self.streams[index].handle
                    scopes.enter_context(ons.use_stream(scope))
                if options is None:
                    return kernel[1, 1, 0, handle](*values)
                return kernel.launch(values, grid=1, block=1, stream=handle, **options)

        self.prepare_meddlers(step, args)
        with self.judged(args, why) as outcome:
            outcome.value = self.worker(call) if step.worker else call()
        if outcome.refused:
            return None
        launched = driver.launched_on()
        if launched is None or self.stream_of_handle(launched, stream.device).identity != (
            stream.identity
        ):
            raise Violation("wrong stream", f"{launched}, not {stream.name}")
        return (outcome.value,)

    def prepare_meddlers(self, step: Step, args: list[tuple[str, Any]]) -> None:
        """A meddler moves another array's memory when it is asked."""
        victim = self.arrays.get(step.meddle)
        held = self.held.get(step.meddle)
        if step.worker or (step.order or self.policy) == "trust":
            victim = held = None
        for i, (letter, used) in enumerate(args):
            if letter == "v" or isinstance(used, Held) or used.kind != "meddler":
                continue
            used.obj.on_ask = None
            if isinstance(step.args[i], tuple):
                continue
            if held is not None and self.may_release_within(held):
                used.obj.on_ask = lambda: self.release_within(step.meddle, held)
            if victim is None or not self.idle(victim):
                continue
            if self.capture_of(victim.home.stream) is not None:
                continue
            used.obj.on_ask = lambda: self.move(victim, step.value)

    def may_release_within(self, held: Held) -> bool:
        gone = held.array.obj is None and not held.released and held.capture is None
        return gone and self.is_eager(held.home) and self.release_refusal(held, False) is None

    def release_within(self, name: str, held: Held) -> None:
        """In the middle of a call that uses it."""
        held.tensor.release()
        self.returned(name, held, in_order=False)

    def move(self, array: Array, value: int) -> None:
        graphs = [*self.graphs.values(), *(capture.graph for capture in self.captures)]
        if array.readers or any(array in graph.used for graph in graphs):
            return
        memory = self.allocate(array.home, "pool")
        array.obj.data = memory.address
        array.obj.owner = memory
        array.cell = memory.cell
        self.write(array, value)

    @contextmanager
    def judged(self, args: list[tuple[str, Any]], why: str | None) -> Iterator[Outcome]:
        """A call of the library that must be refused (`why` not None) or must not."""
        driver = self.driver
        outcome = Outcome()
        context = driver.lib.sim_get_current()
        syncs = driver.lib.sim_sync_count(1)
        own = self.own_syncs
        driver.lib.sim_clear_records()
        asked = self.asked
        try:
            yield outcome
        except REFUSALS as error:
            if isinstance(error, ons.DeviceError):
                words = f"{error}\nThe driver calls:\n{driver.record_words()}"
                raise Violation("driver error", words) from None
            outcome.refused = str(error)
        except DriverError as error:
            raise Violation("driver error in a producer", str(error)) from None
        if driver.lib.sim_get_current() != context:
            raise Violation("current context", "is another one than before the call")
        if driver.lib.sim_sync_count(1) - syncs != self.own_syncs - own:
            raise Violation("host synchronisation", "by the library")
        if outcome.refused and why is None:
            raise Violation("refused", outcome.refused)
        if why is not None and not outcome.refused:
            raise Violation("accepted", f"although {why}")
        if outcome.refused and driver.calls(b"cuLaunchKernelEx"):
            raise Violation("refused, but launched", outcome.refused)
        if outcome.refused and not self.may_have_asked(args, why):
            # What is over may be given back at any launch; that records and frees, at most.
            if driver.calls(b"cuStreamWaitEvent") or self.asked != asked:
                raise Violation("refused, but not at once", outcome.refused)

    def may_have_asked(self, args: list[tuple[str, Any]], why: str | None) -> bool:
        """Producers are asked before others fail."""
        return why == "its producer fails"

    def after_launch(
        self,
        step: Step,
        args: list[tuple[str, Any]],
        outputs: set[int],
        stream: Stream,
        trust: bool,
        values: Any,
        events: dict[str, Any],
    ) -> None:
        (value,) = values
        made = iter(value if isinstance(value, tuple) else (value,))
        capture = self.capture_of(stream)
        cells: list[Any] = []
        names = iter(step.outputs)
        for i, (letter, used) in enumerate(args):
            if letter == "v":
                cells.append(used)
                continue
            if i in outputs:
                used = self.adopt(next(names, None), next(made), used, capture)
            cells.append(used.cell)
            if isinstance(used, Array):
                self.stray(used.cell, used.home)
            unknown = isinstance(used, Array) and used.stream is None
            if capture is not None:
                # What the library keeps for the graph is not kept by its user.
                self.use_in_graph(capture.graph, used, keep=not unknown)
            elif unknown and not trust:
                used.readers.append(stream)
        if trust:
            self.vouch_after(args, outputs, stream, events)
        self.do_effect(step.kernel, tuple(cells), capture)

    def adopt(self, name: str | None, obj: Any, model: Any, capture: Capture | None) -> Array:
        array = model.array if isinstance(model, Held) else model
        adopted = Array(array.kind, obj, self.fresh.pop(obj.data), array.home)
        adopted.captured = capture
        if name is not None:
            self.driver.lib.sim_name(obj.data, name.encode())
            self.arrays[name] = adopted
        return adopted

    # ---- tensors ---------------------------------------------------------------------------

    def can_bring(self, array: Array | None) -> bool:
        if array is None or array.abandoned or array.tensors or array.readers:
            return False
        if array.captured is not None:
            return False
        if array.stream is None and not self.is_eager(array.home.stream):
            return False
        return array.kind not in ("failing", "meddler")

    def bring_refusal(self, array: Array, home: Stream) -> str | None:
        producer = array.stream
        if producer is None:
            if not self.usable(home) or self.capture_of(home) is not None:
                return "unknown stream in a capture"
        elif producer.identity != home.identity and not self.can_join(home, producer):
            return "one is in a capture, the other is not"
        return None

    def bring(self, step: Step) -> bool:
        array = self.arrays.get(step.array)
        if not self.can_bring(array):
            return False
        assert array is not None
        device = array.home.stream.device
        home = self.stream(step.stream) or array.stream or self.specials[0, device]
        if home.device != device:
            return False
        why = self.bring_refusal(array, home)
        handle = None if step.stream is None else home.handle
        with self.judged([], why) as outcome:
            outcome.value = ons.from_dlpack(array.obj, handle)
        if outcome.refused:
            return False
        self.held[step.tensor] = Held(outcome.value, array, home, self.capture_of(home))
        array.tensors.add(step.tensor)
        self.stray(array.cell, array.home)
        return True

    def do_bring(self, step: Step) -> None:
        self.bring(step)

    def release_target(self, held: Held) -> Stream | None:
        """The stream that the producer is asked for at release."""
        kind = held.array.kind
        if kind == "interface":
            return held.producer
        return None if kind in lib_unknown else held.array.home.stream

    def release_refusal(self, held: Held, worker: bool) -> str | None:
        target = self.release_target(held)
        if worker or target is None or target.identity == held.home.identity:
            return None
        return None if self.can_join(target, held.home) else "one is in a capture"

    def do_release(self, step: Step) -> None:
        held = self.held.get(step.tensor)
        if held is None or held.released:
            return
        if self.capture_of(held.home) is not held.capture:
            return
        involved = (held.home, held.array.home.stream)
        if step.worker and any(s.is_per_thread for s in involved):
            return
        why = self.release_refusal(held, step.worker)
        with self.judged([], why) as outcome:
            if step.worker:
                self.worker(held.tensor.release)
            else:
                held.tensor.release()
        if not outcome.refused:
            self.returned(step.tensor, held, in_order=not step.worker)

    def do_drop(self, step: Step) -> None:
        """del, in this thread or another: what cannot be ordered is kept longer."""
        held = self.held.get(step.tensor)
        if held is None or held.released:
            return
        involved = (held.home, held.array.home.stream)
        if step.worker and any(s.is_per_thread for s in involved):
            return
        same = self.capture_of(held.home) is held.capture
        in_order = same and not step.worker and self.release_refusal(held, False) is None
        if held.array.kind == "telling":
            in_order = False  # its Python code is not run by a finalizer
        with self.judged([], None):
            if step.worker:
                self.worker(lambda: setattr(held, "tensor", None))
            else:
                held.tensor = None
        self.returned(step.tensor, held, in_order)

    def returned(self, name: str, held: Held, in_order: bool) -> None:
        held.released = True
        held.tensor = None
        capture = self.capture_of(held.home)
        held.tied = capture.graph if capture is not None else None
        array = held.array
        array.tensors.discard(name)
        if array.obj is not None:
            self.stray(array.cell, array.home)
        if not in_order or self.release_target(held) is None:
            array.abandoned = True
        elif held.capture is not None:
            array.captured = held.capture
        del self.held[name]

    def do_borrow(self, step: Step) -> None:
        array = self.arrays.get(step.array)
        if not self.can_bring(array):
            return
        assert array is not None
        device = array.home.stream.device
        home = self.stream(step.stream) or array.stream or self.specials[0, device]
        if home.device != device or self.bring_refusal(array, home) is not None:
            return
        handle = None if step.stream is None else home.handle
        with ons.borrow(array.obj, handle) as tensor:
            held = Held(tensor, array, home, self.capture_of(home))
            self.held[step.tensor] = held
            array.tensors.add(step.tensor)
            self.stray(array.cell, array.home)
            del tensor
            self.do_launch(step.launch)
        self.returned(step.tensor, held, in_order=True)

    # ---- captures and graphs ---------------------------------------------------------------

    def on(self, worker: bool, work: Callable[[], Any]) -> Any:
        return self.worker(work) if worker else work()

    def do_capture(self, step: Step) -> None:
        stream = self.streams[step.stream]
        if step.kind is not None:
            stream = self.home(step.kind, step.device).stream
        taken = self.capture_of(stream) is not None or stream.is_legacy
        if taken or (step.worker and stream.is_per_thread) or len(self.captures) > 1:
            return
        self.on(step.worker, lambda: self.driver.begin_capture(stream, step.mode))
        self.captures.append(Capture(step.name, stream, step.mode, step.worker))

    def do_fork(self, step: Step) -> None:
        capture = next((c for c in self.captures if c.name == step.capture), None)
        stream = self.streams[step.stream]
        if capture is None or stream.is_legacy or self.capture_of(stream) is not None:
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
        for other in others:  # eager order again: nothing of the capture has run
            pass
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
        self.driver.call_on(
            stream.context, "cuGraphLaunch", graph.executable, stream.handle
        )
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
            options = {"graph": graph.handle}
            if node is not None:
                options["dependencies"] = [node]
            with self.judged([], None) as outcome:
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

    # ---- the rest --------------------------------------------------------------------------

    def do_collect(self, step: Step) -> None:
        with self.judged([], None):
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


class Outcome:
    def __init__(self) -> None:
        self.value: Any = None
        self.refused: str | None = None


def freeze() -> None:
    """Programs make no cycles: the collector need not look."""
    gc.collect()
    gc.freeze()
    gc.disable()


__all__ = ["FULL", "Machine", "Violation", "freeze"]
