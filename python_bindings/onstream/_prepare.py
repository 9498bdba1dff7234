"""What ons.prepare does, apart because importing onstream is to be quick."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from onstream import _core


def _devices(devices: Any) -> list[Any]:
    if devices is None or isinstance(devices, str):
        return [devices]
    if isinstance(devices, tuple) and len(devices) == 2 and isinstance(devices[0], int):
        return [devices]  # a DLPack pair
    return list(devices) if isinstance(devices, Iterable) else [devices]


def prepare(
    modules: _core.Module | _core.Kernel | Iterable[_core.Module | _core.Kernel],
    devices: Any = None,
    *,
    workers: int | None = None,
    progress: Callable[[int, int, str], object] | None = None,
) -> None:
    objects = [modules] if isinstance(modules, _core.Module | _core.Kernel) else list(modules)
    for item in objects:
        if not isinstance(item, _core.Module | _core.Kernel):
            raise TypeError(f"prepare takes Modules and Kernels, not {type(item).__name__}")
    jobs = [(item, device) for item in objects for device in _devices(devices)]
    count = workers or len(os.sched_getaffinity(0))
    errors: list[Exception] = []
    with ThreadPoolExecutor(max(1, min(count, len(jobs) or 1))) as pool:
        names = {pool.submit(item.prepare, device): item.name for item, device in jobs}
        try:
            for done, future in enumerate(as_completed(names), 1):
                error = future.exception()
                if isinstance(error, Exception):
                    errors.append(error)
                elif error is not None:
                    raise error
                if progress is not None:
                    progress(done, len(jobs), names[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if errors:
        first, *others = errors
        first.others = others  # type: ignore[attr-defined]
        if hasattr(first, "add_note"):
            for other in others:
                first.add_note(f"also: {other}")
        raise first
