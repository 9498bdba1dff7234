"""The stubs agree with the module and with how it is used."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import onstream as ons

HERE = Path(__file__).parent


def run_mypy(cwd: Path, *arguments: str) -> None:
    pytest.importorskip("mypy")
    package = Path(ons.__file__).parent
    result = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest" if arguments[0] == "stubtest" else "mypy"]
        + list(arguments[1:]),
        capture_output=True,
        text=True,
        cwd=cwd,  # where no folder is taken for the package
        env={"PYTHONPATH": str(package.parent), "PATH": "/usr/bin:/bin"},
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_usage_is_strictly_typed(tmp_path: Path) -> None:
    run_mypy(
        tmp_path,
        "mypy",
        "--strict",
        f"--cache-dir={tmp_path}",
        str(HERE / "typing" / "usage.py"),
    )


def test_stubs_name_what_is_there() -> None:
    stub = (Path(ons.__file__).parent / "_core.pyi").read_text()
    for name in dir(ons._core):  # type: ignore[attr-defined]
        if not name.startswith("_"):
            assert f"class {name}" in stub or f"def {name}(" in stub, name
    for kind in (ons.Module, ons.Kernel):
        for name in vars(kind):
            if not name.startswith("_"):
                assert f"def {name}(" in stub, name


@pytest.mark.parametrize(
    "public", [getattr(ons, name) for name in ons.__all__ if name != "__version__"]
)
def test_everything_public_is_documented(public: object) -> None:
    assert inspect.getdoc(public)


def test_methods_are_documented() -> None:
    for kind in (ons.Module, ons.Kernel):
        for name, member in vars(kind).items():
            if not name.startswith("_"):
                assert inspect.getdoc(member), name
    assert "device" in str(inspect.signature(ons.Module.prepare))
