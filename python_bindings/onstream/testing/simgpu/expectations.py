"""Launches: what a program may ask for, and what the library has to make of it."""

from __future__ import annotations

from typing import Any

from onstream.testing.simgpu.driver import Stream
from onstream.testing.simgpu.model import Arg, Array, Call, Held, Used
from onstream.testing.simgpu.program import KERNELS, Step
from onstream.testing.simgpu.tensors import Tensors
from onstream.testing.simgpu.world import CANNOT_ALLOCATE, FAILS, LIKE_MANAGED, LIKE_NOTHING


class Expectations(Tensors):
    # ---- what is asked for -----------------------------------------------------------------

    def find(self, name: Any) -> Used | None:
        held = self.held.get(name)
        if held is None:
            return self.arrays.get(name)
        return None if held.released else held

    def gather(self, step: Step) -> list[Arg] | None:
        """The arguments; None where something is not there, or no user would pass it."""
        given = dict(zip(step.outputs, step.out or (), strict=False))
        names = iter(step.outputs)
        args: list[Arg] = []
        for letter, what in zip(KERNELS[step.kernel], step.args, strict=True):
            if letter == "v":
                args.append(Arg(letter, what))
                continue
            how, name = what if isinstance(what, tuple) else (None, what)
            like = self.find(name) if how and name else None
            if how and name and (like is None or like.kind in ("failing", "meddler")):
                return None
            arg = Arg(letter, None, how, like)
            mine = given.get(next(names)) if how not in (None, "workspace") else None
            if how is None or mine is not None:
                arg.used = self.find(name if how is None else mine)
                arg.given = how is not None
                if not self.is_there(arg.used):
                    return None
            args.append(arg)
        for arg in args:
            if arg.is_made:
                arg.used = arg.like or self.library_of(args)
                if not self.can_allocate(arg):
                    return None
        return args

    def is_there(self, used: Used | None) -> bool:
        if used is None or used.abandoned:
            return False
        return isinstance(used, Held) or not used.tensors

    def library_of(self, args: list[Arg]) -> Used | None:
        """Who allocates what is like nothing."""
        models: list[Used | None] = [self.model_of(arg) for arg in args if arg.is_memory]
        arrays: list[Used] = [model for model in models if isinstance(model, Array)]
        there = [model for model in arrays if not model.is_pinned]
        tensors: list[Used] = [model for model in models if isinstance(model, Held)]
        return next(iter((*there, *arrays, *tensors)), None)

    def can_allocate(self, arg: Arg) -> bool:
        used = arg.used
        if used is None or used.kind == "jax":  # which would be imported
            return False
        if arg.like is None:
            return True
        return not used.is_pinned and (arg.is_own or not used.is_managed)

    def launch_device(self, step: Step, args: list[Arg]) -> int | None:
        """That of the first memory of a GPU, else of the first managed; None: the CPU."""
        if step.on is not None:
            return int(step.on)
        models = [self.model_of(arg) for arg in args if arg.is_memory]
        tell = [model for model in models if model is not None and not model.is_pinned]
        fixed = [model for model in tell if not model.is_managed]
        return next((model.device for model in (*fixed, *tell)), None)

    def model_of(self, arg: Arg) -> Used | None:
        """Whose device it has."""
        return arg.like if arg.is_made else arg.used

    def launch_stream(self, step: Step, args: list[Arg], device: int) -> Stream:
        scope = step.scopes[-1] if step.scopes else None
        given = self.stream(step.stream) or self.stream(scope)
        if given is not None:
            return given
        fixed: list[Stream] = []
        managed: list[Stream] = []
        for arg in filter(lambda arg: arg.is_memory, args):
            stream = self.placed(arg, device)
            if stream is None:
                continue
            model = self.model_of(arg)
            if model is None or not model.is_managed:
                fixed.append(stream)
            elif model.device == device:
                managed.append(stream)
        return next(iter((*fixed, *managed)), self.specials[0, device])

    def placed(self, arg: Arg, device: int) -> Stream | None:
        """What is looked at to choose the launch stream: of an output that of its model."""
        if arg.is_made and arg.like is None:
            return None
        if arg.is_own and arg.used.kind not in ("telling", "tensor"):
            return None
        return arg.used.stream if arg.is_own else self.stream_of(arg, device)

    def stream_of(self, arg: Arg, device: int) -> Stream | None:
        """What the library is told; of its own memory None, as that is on the launch stream."""
        if not arg.is_made:
            stream: Stream | None = arg.used.stream
            return stream
        if arg.is_own:
            return None
        return self.home(arg.used.kind, self.device_of(arg, device)).stream

    def device_of(self, arg: Arg, device: int) -> int:
        """The memory's."""
        model = self.model_of(arg)
        return device if model is None else model.device

    # ---- what must come of it --------------------------------------------------------------

    def refusal(self, call: Call) -> str | None:
        """Why the launch must be refused; None: it must not."""
        if not self.usable(call.stream):
            return "legacy beside a capture"
        for arg in call.memory(made=True):
            why = self.access_refusal(call, arg) or self.order_refusal(call, arg)
            if why is not None:
                return why
        return None

    def access_refusal(self, call: Call, arg: Arg) -> str | None:
        used = arg.used
        if arg.is_made:
            if arg.is_own and call.capture is not None:
                return CANNOT_ALLOCATE
            if self.device_of(arg, call.device) == call.device:
                return None
            managed = arg.like is not None and arg.like.is_managed
            return LIKE_MANAGED if managed else "allocated on another device"
        if used.kind == "failing":
            return FAILS
        if not used.is_managed and not used.is_pinned and used.device != call.device:
            return "memory of another device"
        if arg.is_written and used.read_only:
            return "read-only"
        if arg.is_written and used.is_unknown and not call.trusts:
            return "unknown stream of what is written"
        return None

    def order_refusal(self, call: Call, arg: Arg) -> str | None:
        used = arg.used
        if used.is_pinned and not arg.is_made:
            return None
        if call.capture is not None and not arg.is_made:
            if used.kind == "jax" or (used.kind == "arrow" and used.obj.event):
                return "its library would end the capture"
        if call.trusts and not arg.is_made:
            return None
        if not arg.is_made and used.is_unknown:
            if call.capture is not None:
                return "unknown stream in a capture"
            # Its library takes the number for its own default stream.
            away = used.is_managed and used.device != call.device and call.stream.is_special
            return "default stream of another device" if away else None
        why = self.join_refusal(call, arg)
        return LIKE_NOTHING if why and arg.is_made and not arg.like else why

    def join_refusal(self, call: Call, arg: Arg) -> str | None:
        stream = self.placed(arg, call.device) or self.stream_of(arg, call.device) or call.stream
        if stream.is_special and stream.device != call.device:
            return "default stream of another device"
        if stream.identity == call.stream.identity:
            return None
        if call.policy == "strict":
            return "strict"
        joins = self.can_join(call.stream, stream)
        return None if joins else "one is in a capture, the other is not"

    def is_careful(self, call: Call) -> bool:
        """Would a sensible user do this?"""
        things = call.memory(made=False)
        orders = [arg.used.order for arg in call.memory(made=True)]
        if call.step.worker and any(stream.is_per_thread for stream in (call.stream, *orders)):
            return False
        written = [arg.used.cell for arg in things if arg.is_written]
        for arg in things:
            used = arg.used
            if used.captured is not None and used.captured is not call.capture:
                return False
            if call.capture is None:
                unset = used.cell.value is None and not arg.is_zeroed
                if arg.letter in "ru" and unset:
                    return False
                if used.is_unknown and not self.is_eager(used.home.stream):
                    return False
            if arg.is_written:
                # Somebody may read it of whom neither its producer nor the library knows.
                if isinstance(used, Array) and used.readers:
                    return False
                if written.count(used.cell) > 1:
                    return False
        return True
