#!/usr/bin/env python3
"""A fused RMS norm with its backward, from one kernel source: as a JAX function in a small
training loop, beside the same in jax.numpy, and as a torch.autograd.Function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import onstream as ons
import onstream.jax

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
EPSILON = 1e-6
mod = ons.Module((KERNELS / "rms_norm.cu").read_text(), name="rms_norm.cu")


def block_size() -> int:
    """Any power of two is right. On the CPU one thread does a row best."""
    return 1 if jax.default_backend() == "cpu" else 256


# ---- JAX -------------------------------------------------------------------------------------

Shape = jax.ShapeDtypeStruct
OPTIONS: dict[str, Any] = {
    "grid": lambda x, *_: x.size // x.shape[-1],
    "block": lambda *_: block_size(),
    "vmap_method": "broadcast_all",
}
forward = ons.jax.call(
    mod.rms_norm,
    out_shape=lambda x, w: (x, Shape(x.shape[:-1], x.dtype)),
    scalars={"n": "x.shape[-1]", "epsilon": EPSILON},
    **OPTIONS,
)
backward = ons.jax.call(
    mod.rms_norm_backward,
    out_shape=lambda x, w, scales, dy: (x, x),
    scalars={"n": "x.shape[-1]"},
    **OPTIONS,
)


@jax.custom_vjp
def rms_norm(x: Any, w: Any) -> Any:
    """x: float32, of rows; w: float32, as long as a row."""
    return forward(x, w)[0]


def _keep(x: Any, w: Any) -> Any:
    y, scales = forward(x, w)
    return y, (x, w, scales)


def _pull_back(kept: Any, dy: Any) -> Any:
    x, w, scales = kept
    dx, dw_rows = backward(x, w, scales, dy)
    return dx, dw_rows.reshape(-1, w.size).sum(0)


rms_norm.defvjp(_keep, _pull_back)


def rms_norm_of_jnp(x: Any, w: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPSILON) * w


def train(norm: Any, steps: int) -> list[float]:
    """Fits a network of one hidden layer that is normed; the losses."""
    random = np.random.default_rng(0)
    x = jnp.asarray(random.standard_normal((64, 32), np.float32))
    target = jnp.asarray(np.sin(random.standard_normal((64, 4), np.float32)))
    parameters = {
        "first": jnp.asarray(random.standard_normal((32, 48), np.float32) * 0.2),
        "norm": jnp.ones(48, jnp.float32),
        "second": jnp.asarray(random.standard_normal((48, 4), np.float32) * 0.2),
    }

    def loss(p: Any) -> Any:
        return ((norm(x @ p["first"], p["norm"]) @ p["second"] - target) ** 2).mean()

    @jax.jit
    def step(p: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(p)
        return value, jax.tree.map(lambda v, g: v - 0.1 * g, p, gradients)

    losses = []
    for _ in range(steps):
        value, parameters = step(parameters)
        losses.append(float(value))
    return losses


# ---- torch -----------------------------------------------------------------------------------


def torch_rms_norm(x: Any, w: Any) -> Any:
    """The same kernels in torch, on the tensors' device and current stream."""
    import torch

    class RmsNorm(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, w: Any) -> Any:
            rows, n = x.numel() // x.shape[-1], x.shape[-1]
            threads = 256 if x.is_cuda else 1
            scales = ons.empty(x.shape[:-1], "float32")
            y, scales = mod.rms_norm[rows, threads](
                x.detach(), w.detach(), ons.like(x.detach()), scales, n, EPSILON
            )
            context.save_for_backward(x, w, scales)
            return y

        @staticmethod
        def backward(context: Any, dy: Any) -> Any:
            x, w, scales = (tensor.detach() for tensor in context.saved_tensors)
            rows, n = x.numel() // x.shape[-1], x.shape[-1]
            threads = 256 if x.is_cuda else 1
            dx, dw_rows = mod.rms_norm_backward[rows, threads](
                x, w, scales, dy.contiguous(), ons.like(x), ons.like(x), n
            )
            return dx, dw_rows.reshape(-1, n).sum(0)

    return RmsNorm.apply(x, w)


def main() -> None:
    x = jnp.asarray(np.random.default_rng(1).standard_normal((64, 1000), np.float32))
    w = jnp.linspace(0.5, 1.5, 1000, dtype=jnp.float32)
    difference = abs(jax.jit(rms_norm)(x, w) - rms_norm_of_jnp(x, w)).max()
    print(f"on {jax.devices()[0].device_kind}: at most {difference:.1e} from jax.numpy")
    ours, theirs = train(rms_norm, 200), train(rms_norm_of_jnp, 200)
    print(f"training, 200 steps: loss {ours[0]:.4f} to {ours[-1]:.4f}; jax.numpy {theirs[-1]:.4f}")

    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tx = torch.randn(64, 1000, device=device, requires_grad=True)
    tw = torch.linspace(0.5, 1.5, 1000, device=device, requires_grad=True)
    torch_rms_norm(tx, tw).square().sum().backward()
    gradient, tx.grad = tx.grad, None
    torch.nn.functional.rms_norm(tx, (1000,), tw, EPSILON).square().sum().backward()
    print(
        f"torch on {device}: gradient at most {(gradient - tx.grad).abs().max():.1e} from torch's"
    )


if __name__ == "__main__":
    main()
