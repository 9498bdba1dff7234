"""Compiles a file of the set as a GPU's compiler does, without a GPU."""

from __future__ import annotations

import ctypes
from pathlib import Path

import suite

_HEADER = "onstream/kernel.h"
_ROOT = suite.HERE.parents[1]


def load() -> ctypes.CDLL | None:
    """None where there is no NVRTC."""
    try:
        from cuda import pathfinder

        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
    except (ImportError, OSError, RuntimeError):
        return None


def include_folders() -> list[str]:
    """Of CUDA's device headers, where there are any."""
    from cuda import pathfinder

    found = [pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    return [folder for folder in found if folder]


def compile(library: ctypes.CDLL, path: Path, folders: list[str]) -> str:
    """The log, if it does not compile."""
    source = f"#include <{_HEADER}>\n#line 1\n{path.read_text()}"
    header = (_ROOT / "jit" / "device" / _HEADER).read_text()
    words = ["-arch=sm_90", "-std=c++17", *suite.OPTIONS, *(f"-I{folder}" for folder in folders)]
    options = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    status = library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), path.name.encode(), 1,
        (ctypes.c_char_p * 1)(header.encode()), (ctypes.c_char_p * 1)(_HEADER.encode()),
    )  # fmt: skip
    assert status == 0
    status = library.nvrtcCompileProgram(program, len(words), options)
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() if status else ""
