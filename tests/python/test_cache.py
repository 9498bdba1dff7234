"""Modules that were compiled by an earlier process."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = """
__global__ void scale(float a, float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = a * x[i];
}
"""
RUN = """
import sys
import numpy as np
import onstream as ons
x = np.ones(8, np.float32)
module = {module}
module.scale[1, 8](2.0, x, 8)
print(float(x.sum()))
"""
WITH_HEADER = '#include "factor.h"\n' + SOURCE.replace("a * x[i]", "a * x[i] * FACTOR")


class Machine:
    """Processes with a cache of their own, and a compiler that counts."""

    def __init__(self, folder: Path):
        real = shutil.which("clang++") or shutil.which("g++")
        if real is None:
            pytest.skip("no clang++ and no g++ here")
        self.folder = folder
        self.cache = folder / "the cäche"
        self.log = folder / "log"
        self.compiler = folder / "cc"
        self.compiler.write_text(
            f'#!/bin/sh\ncase "$*" in *-dM*) ;; *) echo run >> "{self.log}";; esac\n'
            f'exec "{real}" "$@"\n'
        )
        self.compiler.chmod(0o755)
        self.environment = {
            **os.environ,
            "ONSTREAM_HOST_COMPILER": str(self.compiler),
            "ONSTREAM_CACHE_DIR": str(self.cache),
        }

    def start(
        self, module: str = "ons.Module(SOURCE)", source: str = SOURCE, **environment: str
    ) -> subprocess.Popen[str]:
        program = RUN.format(module=module.replace("SOURCE", repr(source)))
        return subprocess.Popen(
            [sys.executable, "-c", program],
            env={**self.environment, **environment},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> float:
        out, error = process.communicate()
        assert process.returncode == 0, error
        assert error == ""
        return float(out)

    def run(self, module: str = "ons.Module(SOURCE)", source: str = SOURCE, **env: str) -> float:
        return self.finish(self.start(module, source, **env))

    def compiles(self) -> int:
        """How often the compiler has run since the last call of this."""
        count = len(self.log.read_text().splitlines()) if self.log.exists() else 0
        self.log.unlink(missing_ok=True)
        return count

    def entries(self) -> list[Path]:
        return sorted(self.cache.glob("*"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def settle() -> None:
    """Past the tick of the file system's clock: what was just written may still change."""
    time.sleep(0.03)


def test_a_second_process_starts_without_the_compiler(machine: Machine) -> None:
    assert machine.run() == 16
    assert machine.compiles() == 1
    assert machine.run() == 16
    assert machine.compiles() == 0
    (entry,) = machine.entries()
    assert stat.S_IMODE(machine.cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "module",
    [
        "ons.Module(SOURCE + ' ')",
        "ons.Module(SOURCE, name='other.cu')",
        "ons.Module(SOURCE, options=['-DX=1'])",
        "ons.Module(SOURCE, headers={'a.h': ''})",
        "ons.Module(SOURCE, check=True)",
    ],
)
def test_whatever_is_given_to_a_module_counts(machine: Machine, module: str) -> None:
    machine.run()
    machine.compiles()
    assert machine.run(module) == 16
    assert machine.compiles() == 1
    assert machine.run(module) == 16
    assert machine.compiles() == 0


def test_a_header_in_memory_counts(machine: Machine) -> None:
    for factor in (1, 3):
        module = f"ons.Module(SOURCE, headers={{'factor.h': '#define FACTOR {factor}'}})"
        for compiles in (1, 0):
            assert machine.run(module, WITH_HEADER) == 16 * factor
            assert machine.compiles() == compiles


def test_a_header_on_disk_counts_by_its_content(machine: Machine) -> None:
    folder = machine.folder / "inc lude é"
    folder.mkdir()
    header = folder / "factor.h"
    module = f"ons.Module(SOURCE, options=['-I{folder}'])"
    for factor in (1, 3):
        header.write_text(f"#define FACTOR {factor}\n")
        settle()
        for compiles in (1, 0):
            assert machine.run(module, WITH_HEADER) == 16 * factor
            assert machine.compiles() == compiles
    os.utime(header)  # touched, and the same
    assert machine.run(module, WITH_HEADER) == 48
    assert machine.compiles() == 0


def test_a_header_that_appears_ahead_of_another_counts(machine: Machine) -> None:
    for name in ("first", "second"):
        (machine.folder / name).mkdir()
    (machine.folder / "second" / "factor.h").write_text("#define FACTOR 1\n")
    settle()
    module = "ons.Module(SOURCE, options=['-Ifirst', '-I', 'second'])"
    assert machine.run(module, WITH_HEADER) == 16
    assert machine.compiles() == 1
    assert machine.run(module, WITH_HEADER) == 16
    assert machine.compiles() == 0
    (machine.folder / "first" / "factor.h").write_text("#define FACTOR 3\n")
    settle()
    assert machine.run(module, WITH_HEADER) == 48
    assert machine.compiles() == 1


def test_the_same_source_in_two_folders_has_two_headers(machine: Machine) -> None:
    for name, factor in (("a", 1), ("b", 3)):
        folder = machine.folder / name
        folder.mkdir()
        (folder / "factor.h").write_text(f"#define FACTOR {factor}\n")
        (folder / "k.cu").write_text(WITH_HEADER)
    settle()
    for _ in range(2):
        assert machine.run("ons.load('a/k.cu', name='k.cu')") == 16
        assert machine.run("ons.load('b/k.cu', name='k.cu')") == 48
    assert machine.compiles() == 2


def test_another_compiler_counts(machine: Machine) -> None:
    machine.run()
    machine.compiles()
    machine.compiler.write_text(machine.compiler.read_text() + "# newer\n")
    machine.run()
    assert machine.compiles() == 1


def test_a_source_that_knows_the_time_is_compiled_each_time(machine: Machine) -> None:
    source = SOURCE + "\n// __TIME__\n"
    for _ in range(2):
        machine.run(source=source)
        assert machine.compiles() == 1
    assert machine.entries() == []


def test_two_modules_of_a_process_compile_once(machine: Machine) -> None:
    machine.run("(ons.Module(SOURCE).scale.prepare('cpu'), ons.Module(SOURCE))[1]")
    assert machine.compiles() == 1


def test_template_instances_are_kept_each(machine: Machine) -> None:
    source = SOURCE.replace("__global__", "template <typename T> __global__").replace("float", "T")
    for compiles in (1, 0):
        program = "type('M', (), {'scale': ons.Module(SOURCE)['scale<float>']})"
        assert machine.run(program, source) == 16
        assert machine.compiles() == compiles


@pytest.mark.parametrize("value", ["", "off"])
def test_it_can_be_turned_off(machine: Machine, value: str) -> None:
    home = machine.folder / "home"
    for _ in range(2):
        assert machine.run(ONSTREAM_CACHE_DIR=value, HOME=str(home)) == 16
        assert machine.compiles() == 1
    assert not home.exists()


@pytest.mark.parametrize(
    ("variable", "below"), [("XDG_CACHE_HOME", "onstream"), ("HOME", ".cache/onstream")]
)
def test_the_user_s_cache_folder_where_none_is_named(
    machine: Machine, variable: str, below: str
) -> None:
    del machine.environment["ONSTREAM_CACHE_DIR"]
    machine.environment.pop("XDG_CACHE_HOME", None)
    place = machine.folder / "user"
    machine.environment[variable] = str(place)
    program = "import onstream as ons; ons.Module('__global__ void k() {}'); ons.cdiv(1, 2)"
    subprocess.run([sys.executable, "-c", program], env=machine.environment, check=True)
    assert not place.exists()
    for compiles in (1, 0):
        assert machine.run() == 16
        assert machine.compiles() == compiles
    (entry,) = (place / below).iterdir()
    assert stat.S_IMODE(entry.parent.stat().st_mode) == 0o700


def test_no_folder_without_a_home(machine: Machine) -> None:
    for variable in ("ONSTREAM_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        machine.environment.pop(variable, None)
    for _ in range(2):
        assert machine.run() == 16
        assert machine.compiles() == 1


def test_a_folder_that_others_may_write_to_is_not_used(machine: Machine) -> None:
    machine.cache.mkdir()
    machine.cache.chmod(0o777)
    for _ in range(2):
        assert machine.run() == 16
        assert machine.compiles() == 1
    assert machine.entries() == []


def test_a_file_in_the_folder_s_place_is_no_error(machine: Machine) -> None:
    machine.cache.write_text("in the way")
    assert machine.run() == 16
    assert machine.compiles() == 1
    assert machine.run(ONSTREAM_CACHE_DIR="/proc/nowhere") == 16


@pytest.mark.parametrize("keep", [0, 10, 0.5, -1])
def test_a_spoilt_entry_is_compiled_anew(machine: Machine, keep: float) -> None:
    machine.run()
    machine.compiles()
    (entry,) = machine.entries()
    content = entry.read_bytes()
    entry.write_bytes(content[: int(keep * len(content)) if keep == 0.5 else int(keep)])
    assert machine.run() == 16
    assert machine.compiles() == 1
    assert machine.run() == 16
    assert machine.compiles() == 0


def test_the_compiler_s_warnings_come_back(machine: Machine) -> None:
    module = "ons.Module(SOURCE)"
    source = SOURCE + '\n#warning "mind the gap"\n'
    logs = []
    for compiles in (1, 0):
        machine.run(module, source, PYTHONWARNINGS="ignore")
        assert machine.compiles() == compiles
        logs.append(machine.entries()[0].read_bytes().count(b"mind the gap"))
    assert logs[0] >= 1 and logs[0] == logs[1]


def test_a_failed_compile_is_not_kept(machine: Machine) -> None:
    for _ in range(2):
        process = machine.start(source="__global__ void scale( {}")
        error = process.communicate()[1]
        assert process.returncode != 0
        assert "CompileError" in error
        assert machine.compiles() >= 1
    assert machine.entries() == []


STRESS = Path(__file__).parents[1] / "stress"


def stress(script: str, *arguments: str, **environment: str) -> str:
    """The output of a program that starts many processes, which must end well."""
    result = subprocess.run(
        [sys.executable, str(STRESS / script), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.skipif(not shutil.which("clang++") and not shutil.which("g++"), reason="no compiler")
def test_64_processes_compile_once() -> None:
    assert "64 processes, 3 key(s): 3 compile(s), 3 entries" in stress("cache_storm.py")


@pytest.mark.skipif(not shutil.which("clang++") and not shutil.which("g++"), reason="no compiler")
def test_processes_that_are_killed_harm_nobody() -> None:
    assert "all of those right" in stress("cache_kill.py", "--kills", "24")


# ---- CUDA -----------------------------------------------------------------------------------

CUDA_RUN = """
import sys
import onstream as ons
module = ons.Module({source!r}, options={options!r})
module.scale.prepare("cuda:0")
print(int("nvrtc" in open("/proc/self/maps").read()))
"""


def nvrtc_is_loaded(machine: Machine, source: str, options: tuple[str, ...] = ()) -> bool:
    driver = os.environ.get("ONS_TEST_SIMGPU_PATH")
    if not driver:
        pytest.skip("ONS_TEST_SIMGPU_PATH does not name the stand-in driver")
    result = subprocess.run(
        [sys.executable, "-c", CUDA_RUN.format(source=source, options=options)],
        env={**machine.environment, "ONSTREAM_CUDA_DRIVER": driver},
        cwd=machine.folder,
        capture_output=True,
        text=True,
    )
    if "no NVRTC to compile" in result.stderr:
        pytest.skip("no NVRTC here")
    assert result.returncode == 0, result.stderr
    return result.stdout == "1\n"


def test_8_processes_load_nvrtc_once(machine: Machine) -> None:
    nvrtc_is_loaded(machine, SOURCE)  # or skips
    driver = os.environ["ONS_TEST_SIMGPU_PATH"]
    output = stress("cache_storm.py", "--cuda", "--processes", "8", ONSTREAM_CUDA_DRIVER=driver)
    assert "8 processes, 1 key(s): 1 compile(s), 1 entries" in output


def test_nvrtc_is_not_loaded_for_what_is_cached(machine: Machine) -> None:
    assert nvrtc_is_loaded(machine, SOURCE)
    assert not nvrtc_is_loaded(machine, SOURCE)
    assert nvrtc_is_loaded(machine, SOURCE + " ")


def test_nvrtc_s_headers_on_disk_count(machine: Machine) -> None:
    for name in ("first", "second"):
        (machine.folder / name).mkdir()
    inner = machine.folder / "second" / "inner.h"
    (machine.folder / "second" / "factor.h").write_text('#pragma once\n#include "inner.h"\n')
    inner.write_text("#define FACTOR 1\n")
    settle()
    options = ("-Ifirst", "-I", "second")
    assert nvrtc_is_loaded(machine, WITH_HEADER, options)
    assert not nvrtc_is_loaded(machine, WITH_HEADER, options)
    inner.write_text("#define FACTOR 2\n")
    settle()
    assert nvrtc_is_loaded(machine, WITH_HEADER, options)
    assert not nvrtc_is_loaded(machine, WITH_HEADER, options)
    (machine.folder / "first" / "factor.h").write_text("#define FACTOR 3\n")
    settle()
    assert nvrtc_is_loaded(machine, WITH_HEADER, options)
    assert not nvrtc_is_loaded(machine, WITH_HEADER, options)


@pytest.mark.parametrize("include", ["<cuda_fp16.h>", "<cuda/std/type_traits>"])
def test_cuda_s_own_headers_are_followed(machine: Machine, include: str) -> None:
    source = f"#include {include}\n{SOURCE}"
    assert nvrtc_is_loaded(machine, source)
    assert not nvrtc_is_loaded(machine, source)


def test_a_header_that_a_macro_names_is_read_each_time(machine: Machine) -> None:
    (machine.folder / "factor.h").write_text("#define FACTOR 1\n")
    settle()
    source = WITH_HEADER.replace('"factor.h"', "NAME")
    for _ in range(2):
        assert nvrtc_is_loaded(machine, source, ('-DNAME="factor.h"', "-I."))
