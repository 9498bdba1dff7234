"""Launches: the call, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import onstream as ons
from onstream.testing.simgpu.driver import BYTES, Stream
from onstream.testing.simgpu.expectations import Expectations
from onstream.testing.simgpu.model import Arg, Array, Call, Held, Violation
from onstream.testing.simgpu.producers import Cell, Home
from onstream.testing.simgpu.program import Step

WAITS, SIGNAL = (1, 2, 3), 4  # of the driver's events; joins use the first
SHAPE, DTYPE = (BYTES // 4,), "float32"


class Launches(Expectations):
    def do_launch(self, step: Step) -> None:
        args = self.gather(step)
        if args is None:
            return
        for arg in args:
            if isinstance(arg.used, Held):
                away = step.worker and arg.used.home.is_per_thread
                arg.used.told = self.specials[0, arg.used.device] if away else arg.used.home
        device = self.launch_device(step, args)
        if device is None:
            return
        stream = self.launch_stream(step, args, device)
        if stream.device != device:
            return  # a stream is taken from its user as it is
        policy = step.order or self.policy
        call = Call(step, args, device, stream, policy, self.capture_of(stream))
        if not self.is_careful(call):
            return
        why = self.refusal(call)
        if why is not None:
            self.refusals += 1
            self.launch(call, why)
            return
        if not self.order_before(call):
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
        if handle is None or self.stream_of_handle(handle, call.device).identity != (
            call.stream.identity
        ):
            raise Violation("wrong stream", f"{handle}, not {call.stream.name}")
        return outcome.value

    def enter(self, call: Call) -> Any:
        step = call.step
        kernel = self.kernels[step.kernel]
        values = [self.value_of(arg) for arg in call.args]
        given = self.stream(step.stream)
        handle = None if given is None else given.handle
        out: dict[str, Any] = {}
        if any(arg.given for arg in call.args):
            mine = tuple(arg.used.obj if arg.given else None for arg in call.outputs())
            out["out"] = mine if len(mine) > 1 else mine[0]
        options = dict(call.events)
        if step.on is not None:
            options["device"] = f"cuda:{step.on}"
        with ExitStack() as scopes:
            for index in step.scopes:
                scope = None if index is None else self.streams[index].handle
                scopes.enter_context(ons.use_stream(scope))
            if step.order is None and not options:
                return kernel[1, 1, 0, handle](*values, **out)
            return kernel.launch(
                values, grid=1, block=1, stream=handle, order=step.order, **options, **out
            )

    def value_of(self, arg: Arg) -> Any:
        if arg.how is None:
            return arg.used.obj if arg.is_memory else arg.used
        if arg.like is not None:
            return (ons.like if arg.how == "like" else ons.zeros_like)(arg.like.obj)
        make = {"empty": ons.empty, "zeros": ons.zeros, "workspace": ons.workspace}[arg.how]
        return make(SHAPE, DTYPE)

    def after_launch(self, call: Call, made: tuple[Any, ...]) -> None:
        named = zip(call.step.outputs, made, strict=False)
        values = dict(zip(map(id, call.outputs()), named, strict=False))
        cells: list[Any] = []
        for arg in call.args:
            if not arg.is_memory:
                cells.append(arg.used)
                continue
            if arg.given and values[id(arg)][1] is not arg.used.obj:
                raise Violation("another output", f"than was given for {call.step.outputs}")
            if arg.is_made:
                used = self.adopt(*values[id(arg)], arg, call) if id(arg) in values else None
            else:
                used = arg.used
            cells.append(used.cell if used is not None else Cell(0))
            if arg.is_zeroed:
                self.zeroed(cells[-1], call)
            if isinstance(used, Array):
                self.stray(used.cell, used.home)
            if used is not None:
                self.leave(used, call)
        if not self.careless:
            self.order_after(call)
        self.do_effect(call.step.kernel, tuple(cells), call.capture)

    def leave(self, used: Array | Held, call: Call) -> None:
        """What the launch leaves behind with what it used."""
        if call.capture is not None:
            # What the library keeps for the graph is not kept by its user.
            self.use_in_graph(call.capture.graph, used, keep=not used.is_unknown)
        elif isinstance(used, Array) and used.is_unknown and not call.trusts:
            used.readers.append(call.stream)

    def zeroed(self, cell: Cell, call: Call) -> None:
        if call.capture is None:
            cell.value = 0
        else:
            call.capture.graph.effects.append(("fill", (cell, 0)))

    def adopt(self, name: str, obj: Any, arg: Arg, call: Call) -> Array | Held:
        """An output."""
        if arg.is_own:
            return self.adopt_own(name, obj, call)
        home = self.home(arg.used.kind, self.device_of(arg, call.device))
        adopted = Array(arg.used.kind, obj, self.fresh.pop(obj.data), home)
        adopted.captured = call.capture
        self.driver.lib.sim_name(obj.data, name.encode())
        self.arrays[name] = adopted
        return adopted

    def adopt_own(self, name: str, obj: Any, call: Call) -> Held:
        """onstream's memory, on the launch stream from now on."""
        if not isinstance(obj, ons.Tensor):
            raise Violation("not onstream's", repr(obj))
        array = Array("own", None, Cell(obj.data_ptr), Home(self, call.stream))
        self.driver.lib.sim_name(obj.data_ptr, name.encode())
        array.tensors.add(name)
        self.held[name] = Held(obj, array, call.stream, None)
        return self.held[name]

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
        for arg in call.memory(made=False):
            if arg.used.kind == "meddler":
                arg.used.obj.on_ask = self.interference(call)

    def interference(self, call: Call) -> Callable[[], None] | None:
        name = call.step.meddle
        if call.step.worker or call.trusts:
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
        return (
            not used
            and array.place == "device"
            and self.idle(array)
            and self.is_eager(array.home.stream)
        )

    def move(self, array: Array, value: int) -> None:
        memory = self.allocate(array.home, "pool")
        array.obj.data = memory.address
        array.obj.owner = memory
        array.cell = memory.cell
        self.write(array, value)

    # ---- what the user orders, with events of his own or the launch's -----------------------

    def others(self, call: Call) -> list[Stream]:
        """Under trust those of all, else of what is pinned. In a capture all of it: others may
        have used the same memory there."""
        things = [arg for arg in call.memory(made=False) if call.trusts or arg.used.is_pinned]
        members = call.capture.members if call.capture is not None and things else []
        found: list[Stream] = []
        for other in (*members, *(arg.used.order for arg in things)):
            if other.identity not in [s.identity for s in (call.stream, *found)]:
                found.append(other)
        return found

    def is_replays_business(self, call: Call, other: Stream) -> bool:
        """Whoever replays the graph joins."""
        return call.capture is not None and self.capture_of(other) is None

    def order_before(self, call: Call) -> bool:
        """False: it cannot be done."""
        others = [s for s in self.others(call) if not self.is_replays_business(call, s)]
        if not all(self.can_join(call.stream, other) for other in others):
            return False
        few = 0 < len(others) <= len(WAITS)
        # That memory of the caller's is filled with zeros first is refused together with wait=.
        fills = any(arg.given and arg.is_zeroed for arg in call.args)
        with_events = few and call.step.vouch == "events" and not fills
        if call.capture is not None or not with_events:
            for other in others:
                self.driver.join(call.stream, other)
            return True
        call.events["wait"] = [
            self.driver.event(s.context, i) for i, s in zip(WAITS, others, strict=False)
        ]
        call.events["signal"] = [self.driver.event(call.stream.context, SIGNAL)]
        for event, other in zip(call.events["wait"], others, strict=True):
            self.driver.record(event, other)
        return True

    def order_after(self, call: Call) -> None:
        for other in self.others(call):
            if self.is_replays_business(call, other):
                continue
            if call.events:
                self.driver.wait(other, call.events["signal"][0])
            else:
                self.driver.join(other, call.stream)
