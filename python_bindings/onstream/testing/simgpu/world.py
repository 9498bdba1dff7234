"""The library and the simulated GPU, for the life of the process; the memory and the streams of
one program."""

from __future__ import annotations

import ctypes
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import onstream as ons
from onstream.testing.simgpu import producers as lib
from onstream.testing.simgpu.driver import BYTES, Driver, DriverError, Stream
from onstream.testing.simgpu.model import Array, Capture, Graph, Held, Outcome, Violation
from onstream.testing.simgpu.producers import Cell, Freed, Home, Memory
from onstream.testing.simgpu.program import GENERIC, KERNELS, SOURCE, STREAMS

REFUSALS = (ons.Error, BufferError)
# Why a call is refused when others have been asked already.
FAILS = "its producer fails"
LIKE_NOTHING = "an output that is like nothing, on another stream"
LIKE_MANAGED = "an output that is like managed memory of another device"
CANNOT_ALLOCATE = "cannot allocate in a capture"
LATE = (FAILS, LIKE_NOTHING, LIKE_MANAGED, CANNOT_ALLOCATE)


class World:
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
            "jax": lib.ArrayImpl,
            "immutable": lib.Immutable,
            "arrow": lib.Arrow,
            "failing": lib.Failing,
            "meddler": lib.Meddler,
            "telling": lib.Telling,
            "interface": lib.Interface,
        }
        ons.register_producer(lib.Telling, stream=lambda x: x.stream.handle)
        ons.register_producer(lib.Immutable, read_only=True)
        self.launches = self.refusals = 0
        self.careless = False  # the user leaves out joins: for tests of this
        self.reset_program()
        driver.call("cuInit", 0)
        module = ons.Module(SOURCE, name="programs.cu")
        self.kernels: dict[str, Any] = {
            name: module.generic(name) if name in GENERIC else module[name] for name in KERNELS
        }
        for name, access in KERNELS.items():
            driver.lib.sim_declare_kernel(name.encode(), access.encode())
            kernel = module[f"{name}<float>" if name in GENERIC else name]
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
        self.driver.take_events_back()
        self.private: list[int] = []
        self.live_memory = 0
        self.own_syncs = 0
        self.asked = 0  # how often producers were, for order or for memory
        self.policy = "join"
        self.running = False

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
            if freed.how == "pinned" and self.captures:
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
        elif freed.how == "pinned":
            self.own_syncs += 1
            self.driver.synchronise(stream)
            self.driver.lib.sim_device_free(freed.address)
        else:
            freed.home.cache.setdefault((stream.identity, freed.place), []).append(freed.address)

    def stray(self, cell: Cell, home: Home) -> None:
        """It is used on its library's current stream."""
        if self.allocated_on.get(cell.address) != home.stream.identity:
            cell.strayed = True

    def allocate(self, home: Home, how: str, place: str = "device") -> Memory:
        if self.capture_of(home.stream) is not None or not self.usable(home.stream):
            how = "private"  # as torch does for a graph
        memory = Memory(home, how, place)
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

    def _allocator(self, kind: str) -> Callable[[int, int], tuple[int, Memory]]:
        def allocate(device: int, size: int) -> tuple[int, Memory]:
            assert size == BYTES
            return self.allocate_output(kind, device)

        return allocate

    # ---- streams ---------------------------------------------------------------------------

    def make_streams(self) -> None:
        driver = self.driver
        self.streams: list[Stream] = []
        for index, (device, kind) in enumerate(STREAMS):
            context = driver.second if kind == "second context" else driver.primary[device]
            special = {"legacy 0": 0, "legacy 1": 1, "per-thread": 2}
            blocking = kind == "blocking" or kind in special
            handle = special.get(kind)
            if handle is None:
                handle = driver.lib.sim_stream_create(context, int(not blocking))
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

    def on(self, worker: bool, work: Callable[[], Any]) -> Any:
        return self.worker(work) if worker else work()

    # ---- judgement -------------------------------------------------------------------------

    @contextmanager
    def judged(self, why: str | None) -> Iterator[Outcome]:
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
            # Its frames hold the arrays, and from Python 3.12 on are part of a cycle.
            traceback.clear_frames(error.__traceback__)
            error.__traceback__ = None
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
        if outcome.refused and why not in LATE:
            # What is over may be given back at any launch; that records and frees, at most.
            if driver.calls(b"cuStreamWaitEvent") or self.asked != asked:
                raise Violation("refused, but not at once", outcome.refused)

    def compare(self, name: str, cell: Cell) -> None:
        if cell.value is None:
            return

        got = ctypes.c_uint64.from_address(cell.address).value
        if got != cell.value:
            raise Violation("wrong value", f"{name} is {got:#x}, not {cell.value:#x}")

    def check(self) -> None:
        report = self.driver.report()
        if report:
            raise Violation(*report)
        for capture in self.captures:
            if not self.driver.is_capture_alive(capture.members[0]):
                raise Violation("lost capture", f"of {capture.members[0].name}")
