"""What a GPU computed: written by tests/conformance/record, read by the tests.

The results of a case that are few, or need a tolerance, are kept as they are; of others a digest
and their beginnings. A case whose results depend on the size of the block has a digest for
each size, and the results themselves for some small ones.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import suite
from suite import EXACT, Case, Extents

Array = Any
Results = dict[str, Array]

PATH = suite.HERE / "recorded.npz"
FULL_BYTES = 4096
HEAD = 16  # elements
SHOWN_THREADS = (2, 33, 64)


def inputs_digest(case: Case) -> str:
    """Of what the first launch is given."""
    inputs = case.inputs(case.some_blocks()[0])
    arrays = {}
    for name, value in (*inputs.arguments.items(), *inputs.symbols.items()):
        for index, item in enumerate(value if isinstance(value, list) else [value]):
            arrays[f"{name}.{index}"] = (
                np.frombuffer(item, np.uint8) if isinstance(item, bytes) else np.asarray(item)
            )
    return f"{int(suite.digest(arrays)):016x}"


def is_kept_whole(case: Case, results: Results) -> bool:
    return case.tolerance != EXACT or sum(array.nbytes for array in results.values()) <= FULL_BYTES


class Writer:
    def __init__(self, about: dict[str, str]):
        self._about = about
        self._cases: dict[str, str] = {}
        self._arrays: Results = {}

    def _keep(self, key: str, results: Results, count: int | None = None) -> None:
        for name, array in results.items():
            self._arrays[f"{key}/{name}"] = np.ravel(array)[:count]

    def add(self, case: Case, results: dict[Extents, Results]) -> str:
        """Canonical results of every size of the block that was run; what is wrong with them."""
        first = next(iter(results.values()))
        self._cases[case.id] = inputs_digest(case)
        if case.each:
            assert case.tolerance == EXACT, case.id
            digests = [suite.digest(each) for each in results.values()]
            self._arrays[f"{case.id}/#digests"] = np.array(digests, np.uint64)
            for block, each in results.items():
                if math.prod(block) in SHOWN_THREADS and is_kept_whole(case, each):
                    self._keep(f"{case.id}/{block}", each)
            return ""
        if is_kept_whole(case, first):
            self._keep(case.id, first)
        else:
            self._arrays[f"{case.id}/#digests"] = np.array([suite.digest(first)], np.uint64)
            self._keep(f"{case.id}/#head", first, HEAD)
        for block, each in results.items():
            if message := case.compare(each, first):
                return f"block {block}: {message}"
        return ""

    def write(self, path: Path) -> None:
        about = self._about | {
            "cases": self._cases,
            "code": {file.name: suite.code_digest(file) for file in suite.FILES},
        }
        text = np.frombuffer(json.dumps(about, sort_keys=True).encode(), np.uint8)
        with path.open("wb") as file:
            np.savez_compressed(file, about=text, **self._arrays)


class Records:
    def __init__(self, path: Path):
        with np.load(path) as data:
            self._arrays = {name: data[name] for name in data.files}
        self.about: dict[str, Any] = json.loads(self._arrays.pop("about").tobytes())
        self._groups: dict[str, Results] = {}
        for key, array in self._arrays.items():
            group, _, name = key.rpartition("/")
            self._groups.setdefault(group, {})[name] = array

    def why_not(self, case: Case) -> str:
        """Why there is no record of it, '' if there is one."""
        if case.id not in self.about["cases"]:
            return "not recorded"
        if self.about["code"].get(case.path.name) != suite.code_digest(case.path):
            return f"{case.path.name} is not what was recorded"
        if self.about["cases"][case.id] != inputs_digest(case):
            return "the inputs are not what was recorded"
        return ""

    def compare(self, case: Case, block: Extents, results: Results) -> str:
        """What differs, '' if nothing does. `results` are canonical."""
        digests = self._groups.get(case.id, {}).get("#digests")
        if digests is None:
            return case.compare(results, self._groups[case.id])
        index = case.all_blocks().index(block) if case.each else 0
        if suite.digest(results) == digests[index]:
            return ""
        shown = self._groups.get(f"{case.id}/{block}") or self._groups.get(f"{case.id}/#head")
        for name, array in (shown or {}).items():
            size = len(array)
            if message := case.compare({name: np.ravel(results[name])[:size]}, {name: array}):
                return message
        return "the results differ from those whose digest was recorded"


@functools.cache
def recorded() -> Records | None:
    return Records(PATH) if PATH.exists() else None
