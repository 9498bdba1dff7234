"""Checked by mypy, never run: what users write must type-check."""

from typing import Any

import onstream as ons


def use(x: Any) -> Any:
    mod = ons.Module("source", options=["-DX=1"], headers={"a.h": ""}, name="k.cu")
    other: ons.Module = ons.load("k.cu")
    kernel: ons.Kernel = mod.axpy
    launcher: ons.Launcher = kernel[ons.cdiv(10, 4), (4, 1)]
    launcher(1.0, x, ons.like(x), ons.empty((2, 3), "float32"))
    launcher(1.0, x, ons.zeros(("x.shape[0]", 4), "x.dtype"), ons.workspace(64), out=x)
    launcher(x, ons.like(x, shape=lambda *args: 3), ons.zeros_like(x, dtype="int32"), out=(x, None))
    kernel.launch([x, ons.empty("n", "float32")], grid=1, block=1, out=[x])
    kernel[1, 1, 0, None](x)
    other["scale<float, 4>"].launch([x], grid=1, block=(1, 2, 3), shared=4, stream=x)
    ons.register_producer(type(x), stream=lambda array: array.stream, read_only=True)
    ons.register_producer(int, protocol="dlpack")
    node = kernel.launch([x], grid=1, block=1, graph=x, dependencies=[1, x])
    kernel.update_node(x, node, [x], grid=1, block=(1, 2), shared=4)
    kernel.launch([x], grid=1, block=1, wait=x, signal=[x, 1], external=True)
    tensor: ons.Tensor = ons.from_dlpack(x, stream=x)
    kernel[1, 1](tensor, tensor.shape[0], tensor.data_ptr + ons.collect())
    tensor.release()
    with ons.borrow(x) as borrowed:
        kernel[1, 1](borrowed)
    generic = mod.generic("scale<T, N>", N="x.ndim", K=3, B=True)
    generic[1, 1](x, [x, None], (1.0, 2), ons.tensor_map(x, (64, 16), swizzle=128, write=True))
    generic.launch([x], grid=1, block=1)
    instances: tuple[ons.Kernel, ...] = (*generic.instances, generic.instance(x))
    instances[0].prepare()
    text: str | None = kernel.signature
    registers: int = kernel.attributes("cuda:0")["registers"]
    try:
        log: str = mod.prepare("cpu")
    except ons.CompileError as error:
        log = error.log + error.source + str(error.line)
    except ons.DeviceError as error:
        log = f"{error.code} {error.name}"
    except (
        TypeError,
        ons.ArgumentValueError,
        ons.OrderError,
        ons.UnavailableError,
        ons.UnsupportedError,
    ):
        raise
    return log, text, registers
