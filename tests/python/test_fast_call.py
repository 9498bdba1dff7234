"""A call site's later calls, which take no detour: each test says how a detour would show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstream as ons

SOURCE = """
__global__ void fill(float a, long long n, float* out, const float* x, const float* last) {
  for (long long i = 0; i < n; ++i) out[i] = a * x[i] + last[i];
}
"""


@pytest.fixture(scope="module")
def fill() -> Any:
    return ons.Module(SOURCE, name="fast.cu").fill[1, 1]


class Site:
    """A call site that has seen its types, with a tensor at the end that can be made to fail.

    The fast way gives up at the failing tensor, after which the general way asks it again:
    twice in all. Asked once, it was never reached by the fast way.
    """

    def __init__(self, fill: Any, producer: Any, out: Any, x: Any) -> None:
        self.producer = producer
        self.memory = np.ones(4, np.float32)
        self.last = producer.make_type(1)(self.memory.ctypes.data, (4,), owner=self.memory)
        self.call = lambda: fill(2.0, 4, out, x, self.last)
        for _ in range(2):
            self.call()

    def borrows(self) -> int:
        count: int = self.producer.counts(1)["borrows"]
        return count

    def reaches_the_end(self) -> bool:
        self.last.fail = 1
        before = self.borrows()
        with pytest.raises(TypeError, match="told to fail"):
            self.call()
        self.last.fail = 0
        return self.borrows() - before == 2


def test_a_later_call_asks_each_array_once(fill: Any, producer: Any) -> None:
    memory = np.zeros(8, np.float32)
    array = producer.make_type(0)
    out, x = array(memory.ctypes.data, (4,)), array(memory.ctypes.data + 16, (4,))
    site = Site(fill, producer, out, x)
    before = producer.counts(0)["borrows"]
    site.call()
    assert producer.counts(0)["borrows"] - before == 2
    assert site.reaches_the_end()


def test_torch_tensors(fill: Any, producer: Any) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch has no exchange table")
    out, x = torch.zeros(4), torch.ones(4)
    site = Site(fill, producer, out, x)
    assert out.tolist() == [3] * 4
    assert site.reaches_the_end()


def test_what_torch_must_be_asked_about_is_not_fast(fill: Any, producer: Any) -> None:
    torch = pytest.importorskip("torch")
    site = Site(fill, producer, torch.zeros(4), torch.ones(4, requires_grad=True))
    assert site.reaches_the_end(), "the kernel only reads it"
    lazy = torch.ones(4, dtype=torch.complex64).conj().imag  # has the neg bit
    assert lazy.is_neg()
    before = site.borrows()
    with pytest.raises(ons.ArgumentError, match="resolve_neg"):
        fill(2.0, 4, torch.zeros(4), lazy, site.last)
    assert site.borrows() == before, "refused before the last one is looked at"


def test_torch_is_not_asked_for_its_marks(fill: Any) -> None:
    """They are read in place; were their places not found, torch would be asked by name."""
    torch = pytest.importorskip("torch")

    class Loud(torch.Tensor):
        def is_neg(self) -> bool:
            raise AssertionError("asked")

        is_conj = is_neg

        @property
        def requires_grad(self) -> bool:
            raise AssertionError("asked")

    out, x = torch.zeros(4), torch.ones(4).as_subclass(Loud)
    for _ in range(2):
        fill(2.0, 4, out, x, x)
    assert out.tolist() == [3] * 4
    with pytest.raises(ons.ArgumentError, match="asked"):
        fill(2.0, 4, out, torch._neg_view(x), x)
