"""Every dtype x array library x backend; docs/support.md is made of the same table."""

from __future__ import annotations

from typing import Any

import matrix
import pytest

pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")


@pytest.fixture(scope="module")
def modules() -> Any:
    return matrix.modules()


@pytest.mark.parametrize("dtype", matrix.DTYPES)
@pytest.mark.parametrize("producer", matrix.PRODUCERS)
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_support(modules: Any, backend: str, producer: str, dtype: str) -> None:
    if not matrix.is_there(producer, backend):
        pytest.skip(f"no arrays of {producer} on {backend}")
    found = matrix.row(modules, producer, backend, dtype)
    if found[0] == "-":
        pytest.skip(f"{producer} has no {dtype}")
    written = "refused" if producer in matrix.READ_ONLY else "yes"
    assert found == ("yes", written, "yes")
