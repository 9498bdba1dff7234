"""Launches: what is expected of one, the call, what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import onstream as ons
from onstream.testing.simgpu.driver import Stream
from onstream.testing.simgpu.model import Array, Call, Held, Violation
from onstream.testing.simgpu.program import KERNELS, Step
from onstream.testing.simgpu.tensors import Tensors


class Launches(Tensors):
    # ---- what is expected ------------------------------------------------------------------

    def gather(self, step: Step) -> list[tuple[str, Any]] | None:
        """The letter and the value, Array or Held of every argument; None where something is
        not there, or no user would pass it."""
        args: list[tuple[str, Any]] = []
        devices = set()
        for letter, name in zip(KERNELS[step.kernel], step.args, strict=True):
            if letter == "v":
                args.append((letter, name))
                continue
            is_output = isinstance(name, tuple)
            used = self.find(name[1] if is_output else name)
            if used is None or used.abandoned:
                return None
            if isinstance(used, Array) and used.tensors and not is_output:
                return None
            devices.add(used.device)
            args.append((letter, used))
        return args if len(devices) == 1 else None

    def find(self, name: Any) -> Array | Held | None:
        held = self.held.get(name)
        if held is None:
            return self.arrays.get(name)
        return None if held.released else held

    def launch_stream(self, step: Step, args: list[tuple[str, Any]]) -> Stream:
        things: list[Array | Held] = [used for letter, used in args if letter != "v"]
        scope = step.scopes[-1] if step.scopes else None
        given = self.stream(step.stream) or self.stream(scope)
        if given is not None:
            return given
        known: list[Stream] = [used.stream for used in things if used.stream is not None]
        return known[0] if known else self.specials[0, things[0].device]

    def refusal(self, call: Call) -> str | None:
        """Why the launch must be refused; None: it must not."""
        if not self.usable(call.stream):
            return "legacy beside a capture"
        for i, (letter, used) in enumerate(call.args):
            if letter == "v":
                continue
            why = self.argument_refusal(call, letter, used, call.is_output(i))
            if why is not None:
                return why
        return None

    def argument_refusal(
        self, call: Call, letter: str, used: Array | Held, is_output: bool
    ) -> str | None:
        if used.kind == "failing":
            return "its producer fails"
        if letter in "wu" and not is_output:
            if used.read_only:
                return "read-only"
            if used.stream is None and not call.trust:
                return "unknown stream of what is written"
        if call.trust and not is_output:
            return None
        if used.stream is None:
            return "unknown stream in a capture" if call.capture is not None else None
        if used.stream.identity == call.stream.identity:
            return None
        if call.policy == "strict":
            return "strict"
        joins = self.can_join(call.stream, used.stream)
        return None if joins else "one is in a capture, the other is not"

    def is_careful(self, call: Call) -> bool:
        """Would a sensible user do this?"""
        things = call.things(outputs=False)
        everything = call.things(outputs=True)
        streams = [call.stream, *(used.stream or used.home.stream for _, used in everything)]
        if call.step.worker and any(stream.is_per_thread for stream in streams):
            return False
        written = [used.cell for letter, used in things if letter in "wu"]
        for letter, used in things:
            if used.captured is not None and used.captured is not call.capture:
                return False
            if call.capture is None:
                if letter in "ru" and used.cell.value is None:
                    return False
                if used.stream is None and not self.is_eager(used.home.stream):
                    return False
            if letter in "wu":
                # Somebody may read it of whom neither its producer nor the library knows.
                if isinstance(used, Array) and used.readers:
                    return False
                if written.count(used.cell) > 1:
                    return False
        return True

    # ---- the call --------------------------------------------------------------------------

    def do_launch(self, step: Step) -> None:
        args = self.gather(step)
        if args is None:
            return
        for _, used in args:
            if isinstance(used, Held):
                away = step.worker and used.home.is_per_thread
                used.told = self.specials[0, used.device] if away else used.home
        stream = self.launch_stream(step, args)
        if stream.device != next(used.device for letter, used in args if letter != "v"):
            return
        policy = step.order or self.policy
        call = Call(step, args, stream, policy, self.capture_of(stream))
        if not self.is_careful(call):
            return
        why = self.refusal(call)
        if call.trust and why is None and not self.vouch_before(call):
            return
        if why is not None:
            self.refusals += 1
            self.launch(call, why)
            return
        self.launches += 1
        value = self.launch(call, why)
        self.after_launch(call, value if isinstance(value, tuple) else (value,))

    def launch(self, call: Call, why: str | None) -> Any:
        """The call, its answer judged."""
        step = call.step
        self.prepare_meddlers(call)
        with self.judged(why) as outcome:
            outcome.value = self.on(step.worker, lambda: self.enter(call))
        if outcome.refused:
            return None
        handle = self.driver.launched_on()
        if handle is None or self.stream_of_handle(handle, call.stream.device).identity != (
            call.stream.identity
        ):
            raise Violation("wrong stream", f"{handle}, not {call.stream.name}")
        return outcome.value

    def enter(self, call: Call) -> Any:
        step = call.step
        kernel = self.kernels[step.kernel]
        values = [
            ons.like(used.obj) if call.is_output(i) else used if letter == "v" else used.obj
            for i, (letter, used) in enumerate(call.args)
        ]
        given = self.stream(step.stream)
        handle = None if given is None else given.handle
        with ExitStack() as scopes:
            for index in step.scopes:
                scope = None if index is None else self.streams[index].handle
                scopes.enter_context(ons.use_stream(scope))
            if step.order is None and not call.events:
                return kernel[1, 1, 0, handle](*values)
            return kernel.launch(
                values, grid=1, block=1, stream=handle, order=step.order, **call.events
            )

    def after_launch(self, call: Call, made: tuple[Any, ...]) -> None:
        cells: list[Any] = []
        outputs = zip(call.step.outputs, made, strict=False)
        for i, (letter, used) in enumerate(call.args):
            if letter == "v":
                cells.append(used)
                continue
            if call.is_output(i):
                used = self.adopt(*next(outputs), used, call)
            cells.append(used.cell)
            if isinstance(used, Array):
                self.stray(used.cell, used.home)
            if call.capture is not None:
                # What the library keeps for the graph is not kept by its user.
                self.use_in_graph(call.capture.graph, used, keep=used.stream is not None)
            elif used.stream is None and not call.trust:
                used.readers.append(call.stream)
        if call.trust and not self.careless:
            self.vouch_after(call)
        self.do_effect(call.step.kernel, tuple(cells), call.capture)

    def adopt(self, name: str, obj: Any, model: Array | Held, call: Call) -> Array:
        """An output."""
        array = model.array if isinstance(model, Held) else model
        adopted = Array(array.kind, obj, self.fresh.pop(obj.data), array.home)
        adopted.captured = call.capture
        self.driver.lib.sim_name(obj.data, name.encode())
        self.arrays[name] = adopted
        return adopted

    def do_borrow(self, step: Step) -> None:
        array = self.arrays.get(step.array)
        if array is None or not self.can_bring(array):
            return
        home = self.home_stream(step, array)
        if home.device != array.device or self.bring_refusal(array, home) is not None:
            return
        handle = None if step.stream is None else home.handle
        with ons.borrow(array.obj, handle) as tensor:
            self.hold(step.tensor, tensor, array, home)
            del tensor
            self.do_launch(step.launch)
        self.returned(step.tensor, self.held[step.tensor], in_order=True)

    # ---- meddlers: what a producer does in the middle of a call ----------------------------

    def prepare_meddlers(self, call: Call) -> None:
        """It moves another array's memory, or releases a tensor, when it is asked."""
        meddlers = [used.obj for _, used in call.things(outputs=False) if used.kind == "meddler"]
        for meddler in meddlers:
            meddler.on_ask = self.interference(call)

    def interference(self, call: Call) -> Callable[[], None] | None:
        name = call.step.meddle
        if call.step.worker or call.trust:
            return None
        if name in self.held and self.may_release_within(self.held[name]):
            return lambda: self.release_within(name)
        if name in self.arrays and self.may_move(self.arrays[name]):
            return lambda: self.move(self.arrays[name], call.step.value)
        return None

    def may_release_within(self, held: Held) -> bool:
        gone = held.array.obj is None and not held.released and held.capture is None
        return gone and self.is_eager(held.home) and self.release_refusal(held, False) is None

    def release_within(self, name: str) -> None:
        held = self.held.get(name)
        if held is not None:
            held.tensor.release()
            self.returned(name, held, in_order=False)

    def may_move(self, array: Array) -> bool:
        graphs = [*self.graphs.values(), *(capture.graph for capture in self.captures)]
        used = array.readers or any(array in graph.used for graph in graphs)
        return not used and self.idle(array) and self.is_eager(array.home.stream)

    def move(self, array: Array, value: int) -> None:
        memory = self.allocate(array.home, "pool")
        array.obj.data = memory.address
        array.obj.owner = memory
        array.cell = memory.cell
        self.write(array, value)

    # ---- under trust the user orders, with events of his own or the launch's ---------------

    def others(self, call: Call) -> list[Stream]:
        """In a capture all of it: others may have used the same memory there."""
        found: list[Stream] = []
        members = call.capture.members if call.capture is not None else []
        things = call.things(outputs=False)
        for other in (*members, *(used.stream or used.home.stream for _, used in things)):
            if other.identity not in [s.identity for s in (call.stream, *found)]:
                found.append(other)
        return found

    def is_replays_business(self, call: Call, other: Stream) -> bool:
        """Whoever replays the graph joins."""
        return call.capture is not None and self.capture_of(other) is None

    def vouch_before(self, call: Call) -> bool:
        others = [s for s in self.others(call) if not self.is_replays_business(call, s)]
        if not all(self.can_join(call.stream, other) for other in others):
            return False
        if call.step.vouch == "join" or call.capture is not None:
            for other in others:
                self.driver.join(call.stream, other)
            return True
        call.events["wait"] = [self.driver.event(s.context, i) for i, s in enumerate(others)]
        call.events["signal"] = [self.driver.event(call.stream.context, 3)]
        for event, other in zip(call.events["wait"], others, strict=True):
            self.driver.record(event, other)
        return True

    def vouch_after(self, call: Call) -> None:
        for other in self.others(call):
            if self.is_replays_business(call, other):
                continue
            if call.events:
                self.driver.wait(other, call.events["signal"][0])
            else:
                self.driver.join(other, call.stream)
