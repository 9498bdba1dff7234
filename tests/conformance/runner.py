"""Runs cases of the set, on the CPU or a GPU."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import suite
from suite import Case, Extents, Inputs

import onstream as ons

Array = Any

# Of one sanitizer: address, undefined or thread. tests/conformance/sanitize sets it.
SANITIZER = os.environ.get("ONS_TEST_SANITIZER", "")
_SANITIZED = ("-g1", f"-fsanitize={SANITIZER}", "-fno-omit-frame-pointer", "-O1")
# Shifts and conversions of what does not fit are defined on devices; so is overflow: -fwrapv.
_UNDEFINED = ("-fno-sanitize-recover=undefined", "-fno-sanitize=shift,vptr,float-cast-overflow")


# ThreadSanitizer takes a thousand times longer to switch between threads.
_FEW = {1, 2, 31, 32, 33, 64, 100, 256}


def usual_blocks(case: Case) -> list[Extents]:
    blocks = case.some_blocks()
    if SANITIZER != "thread" or len(case.blocks) <= 16:
        return blocks
    return [block for block in blocks if block[0] in _FEW] or blocks[:4]


def options() -> tuple[str, ...]:
    if not SANITIZER:
        return suite.OPTIONS
    return (*suite.OPTIONS, *_SANITIZED, *(_UNDEFINED if SANITIZER == "undefined" else ()))


@functools.cache
def module(path: Path) -> ons.Module:
    return ons.Module(path.read_text(), name=f"{path.name}", options=options())


def prepare(paths: list[Path], device: str, jobs: int) -> dict[Path, str]:
    """Compiles the files. What did not compile, and why."""

    def attempt(path: Path) -> str:
        try:
            module(path).prepare(device)
        except ons.Error as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(jobs) as pool:
        messages = dict(zip(paths, pool.map(attempt, paths), strict=True))
    return {path: message for path, message in messages.items() if message}


class Host:
    device = "cpu"

    @staticmethod
    def upload(array: Array) -> Array:
        return array.copy() if array.flags.c_contiguous else array

    @staticmethod
    def download(array: Array) -> Array:
        return array


class Gpu:
    device = "cuda"

    def __init__(self) -> None:
        import torch

        torch.cuda.init()
        self._torch = torch

    def upload(self, array: Array) -> Any:
        """With the strides that it has."""
        base = array
        while base.base is not None and base.base.dtype == base.dtype:
            base = base.base
        offset = (array.ctypes.data - base.ctypes.data) // array.itemsize
        flat = self._torch.from_numpy(base.reshape(-1).copy()).cuda()
        strides = [stride // array.itemsize for stride in array.strides]
        return self._torch.as_strided(flat, array.shape, strides, offset)

    @staticmethod
    def download(tensor: Any) -> Array:
        return tensor.cpu().numpy()


def launch(case: Case, inputs: Inputs, machine: Host | Gpu) -> dict[str, Array]:
    """The results, as they are."""

    def move(value: Any) -> Any:
        if isinstance(value, list):
            return [machine.upload(item) for item in value]
        return machine.upload(value) if hasattr(value, "ctypes") and value.ndim else value

    arguments = {name: move(value) for name, value in inputs.arguments.items()}
    code = module(case.path)
    for name, value in inputs.symbols.items():
        code.set_global(name, value, machine.device)
    code[case.instance].launch(
        list(arguments.values()),
        grid=inputs.grid,
        block=inputs.block,
        shared=inputs.shared,
        cooperative=case.cooperative,
        device=machine.device,
    )
    return {name: machine.download(arguments[name]) for name in inputs.results}
