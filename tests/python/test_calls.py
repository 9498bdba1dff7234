"""Modules, kernels, launch configurations, and what they say when misused (cases 22, 30, 34, 41)."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onstream as ons


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(4, dtype=np.float32)


# ---- modules --------------------------------------------------------------------------------------


def test_kernels_are_found(mod: ons.Module) -> None:
    assert mod.axpy is mod.axpy is mod["axpy"]
    assert mod["copy<float>"] is mod["copy<float>"]
    assert mod.axpy.name == "axpy"
    assert {"axpy", "copy", "prepare", "source"} <= set(dir(mod))
    assert mod.name == "tests.cu" and "axpy" in mod.source
    assert "axpy" in repr(mod) and "axpy" in repr(mod.axpy)


def test_unknown_kernels(mod: ons.Module) -> None:
    for find in (lambda: mod.axpi, lambda: mod["axpi"]):
        with pytest.raises(ons.NotFoundError, match=r"'axpi'.*axpy") as caught:
            find()
        assert isinstance(caught.value, AttributeError)
        assert isinstance(caught.value, KeyError)
        assert isinstance(caught.value, ons.Error)
    assert not hasattr(mod, "axpi")
    with pytest.raises(TypeError):
        mod[3]
    with pytest.raises(AttributeError):
        mod.__array_interface__


def test_modules_are_read_only(mod: ons.Module) -> None:
    with pytest.raises(AttributeError):
        mod.axpy = 5
    with pytest.raises(AttributeError):
        del mod.axpy


def test_signature(mod: ons.Module) -> None:
    fresh = ons.Module(mod.source)
    assert fresh.axpy.signature is None
    fresh.axpy.prepare("cpu")
    signature = fresh.axpy.signature
    assert signature is not None
    for part in ("axpy", "float a", "const float", "out", "n"):
        assert part in signature


def test_attributes(mod: ons.Module) -> None:
    attributes = mod.axpy.attributes("cpu")
    assert attributes["max_threads_per_block"] >= 0
    assert set(attributes) >= {"registers", "local_bytes", "static_shared_bytes"}


def test_load(tmp_path: Path, x: Any) -> None:
    folder = tmp_path / "süb folder"
    folder.mkdir()
    (folder / "factor.h").write_text("#define FACTOR 3.0f\n")
    path = folder / "kernel file.cu"
    path.write_text(
        '#include "factor.h"\n__global__ void triple(const float* x, float* y) '
        "{ y[threadIdx.x] = FACTOR * x[threadIdx.x]; }\n"
    )
    for given in (path, str(path)):
        y = ons.load(given).triple[1, 4](x, ons.like(x))
        np.testing.assert_array_equal(y, 3 * x)
    with pytest.raises(ons.NotFoundError, match="nowhere"):
        ons.load(tmp_path / "nowhere.cu")


def test_options_and_headers(x: Any) -> None:
    source = '#include "f.h"\n__global__ void k(float* y) { y[0] = F + G; }\n'
    mod = ons.Module(source, options=["-DG=2.0f"], headers={"f.h": "#define F 40.0f\n"})
    mod.k[1, 1](x)
    assert x[0] == 42


def test_bad_module_arguments() -> None:
    source = "__global__ void k() {}"
    bad: list[tuple[Any, dict[str, Any], type[Exception]]] = [
        (5, {}, TypeError),
        (None, {}, TypeError),
        (b"bytes", {}, TypeError),
        ("nul\0here", {}, ValueError),
        ("\ud800", {}, UnicodeEncodeError),
        (source, {"options": "-DX"}, TypeError),
        (source, {"options": [5]}, TypeError),
        (source, {"options": ["a\0b"]}, ValueError),
        (source, {"options": 5}, TypeError),
        (source, {"headers": []}, TypeError),
        (source, {"headers": {"a": 5}}, TypeError),
        (source, {"headers": {5: "a"}}, TypeError),
        (source, {"headers": {"a\0": "a"}}, ValueError),
        (source, {"name": 5}, TypeError),
        (source, {"name": "a\0b"}, ValueError),
        (source, {"nonsense": 5}, TypeError),
    ]
    for given, options, error in bad:
        with pytest.raises(error):
            ons.Module(given, **options)
    with pytest.raises(TypeError):
        ons.Module()
    with pytest.raises(TypeError):
        ons.Kernel()
    with pytest.raises(TypeError):

        class Sub(ons.Module):  # type: ignore[misc]
            pass


# ---- compile errors -----------------------------------------------------------------------------------


def test_compile_error() -> None:
    source = "// one\n\n__global__ void broken(float* x) {\n  x[0] = no_such_name;\n}\n"
    mod = ons.Module(source, name="my file.cu")
    for _ in range(2):
        with pytest.raises(ons.CompileError, match=r"my file\.cu.*4.*no_such_name") as caught:
            mod.broken[1, 1](np.zeros(1, np.float32))
        assert caught.value.line == 4
        assert caught.value.source == source
        assert "no_such_name" in caught.value.log


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("__global__ void k(int& x) {}", "'k'.*parameter 1 .int&.*declare"),
        ("__global__ int k() { return 1; }", "'k'.*returns int; declare"),
    ],
)
def test_what_cannot_be_done_is_an_error_of_its_own(source: str, words: str) -> None:
    with pytest.raises(ons.UnsupportedError, match=words) as caught:
        ons.Module(source).k.prepare("cpu")
    assert isinstance(caught.value, NotImplementedError)
    assert isinstance(caught.value, ons.Error)
    assert not isinstance(caught.value, ons.UnavailableError)


def test_template_that_does_not_compile(mod: ons.Module) -> None:
    with pytest.raises(ons.Error, match="no_such_type|copy"):
        mod["copy<no_such_type>"][1, 1](1)
    mod.axpy.prepare("cpu")


# ---- calls ------------------------------------------------------------------------------------------------


def test_argument_counts(mod: ons.Module, x: Any) -> None:
    for args in ((), (2.0, x), (2.0, x, x, 4, 5), (2.0, *[x] * 60)):
        with pytest.raises(ons.ArgumentTypeError, match="scale.*takes 4.*const float"):
            mod.scale[1, 1](*args)


def test_keywords_are_refused(mod: ons.Module, x: Any) -> None:
    mod.scale.prepare("cpu")
    with pytest.raises(
        ons.ArgumentTypeError, match=r"'scale'.*keyword 'n'; pass.*by position: scale\(float a"
    ):
        mod.scale[1, 1](2.0, x, x, n=4)
    with pytest.raises(ons.ArgumentTypeError, match=r"'axpy'.*keyword 'stream'; pass"):
        ons.Module(mod.source).axpy[1, 1](2.0, x, stream=3)


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        (((),), {"grid": 1, "block": 1, "blocks": 1}, "blocks"),
        (((),), {"grid": 1}, "launch.. needs"),
        ((), {"grid": 1, "block": 1}, "args"),
        (((), 1, 1), {}, "positional"),
        ((5,), {"grid": 1, "block": 1}, "int.*iterable"),
    ],
)
def test_malformed_calls_of_launch(mod: ons.Module, args: Any, options: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"'scale'.*{words}.*grid=.*block="):
        mod.scale.launch(*args, **options)


class RaisingArguments:
    def __iter__(self) -> Any:
        raise TypeError("inside")


def test_errors_inside_the_arguments_of_launch_are_shown(mod: ons.Module) -> None:
    with pytest.raises(TypeError, match="^inside$"):
        mod.scale.launch(RaisingArguments(), grid=1, block=1)


def test_calls_without_brackets(mod: ons.Module, x: Any) -> None:
    with pytest.raises(TypeError, match=r"scale.*kernel\[grid, block\]"):
        mod.scale(2.0, x, x, 4)


@pytest.mark.parametrize(
    "key", [1, (1,), (), (1, 1, 0, None, 5), "ab", None, slice(1, 2), (1, "a"), (1.0, 1), (True, 1)]
)
def test_malformed_brackets(mod: ons.Module, key: Any) -> None:
    with pytest.raises(TypeError, match="'scale'"):
        mod.scale[key]


class Raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __index__(self) -> int:
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError("x"), MemoryError()])
def test_errors_in_extents_pass_through(mod: ons.Module, error: BaseException) -> None:
    extent = Raising(error)
    for key in ((extent, 1), (1, extent), ((1, extent), 1), (1, [extent]), (1, 1, extent)):
        with pytest.raises(type(error)) as caught:
            mod.scale[key]
        assert caught.value is error


def test_type_errors_in_extents_become_the_cause(mod: ons.Module) -> None:
    error = TypeError("inside")
    for what, key in (("grid", (Raising(error), 1)), ("block", (1, (1, Raising(error))))):
        with pytest.raises(
            TypeError, match=rf"kernel 'scale': {what} must be an int.*Raising"
        ) as e:
            mod.scale[key]
        assert e.value.__cause__ is error


@pytest.mark.parametrize(
    "key",
    [(-1, 1), (2**32, 1), (1, 10**30), ((1, 1, 1, 1), 1), ((), 1), (1, 1, -5), (1, 1, 2**40)],
)
def test_extents_out_of_range(mod: ons.Module, key: Any) -> None:
    with pytest.raises(ValueError, match="'scale'"):
        mod.scale[key]


@pytest.mark.parametrize(
    ("grid", "block"),
    [(3, 4), ((3,), [4]), ((2, 3), (2, 2)), ((2, 1, 3), (1, 2, 3)), (np.int64(3), np.int32(4))],
)
def test_grids_and_blocks(mod: ons.Module, grid: Any, block: Any) -> None:
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    out = np.full(blocks * threads, -1, np.int32)
    mod.where[grid, block](out)
    expected = np.add.outer(np.arange(blocks) * 1000, np.arange(threads)).ravel()
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ((1, 1025), r"block\.x is 1025.*limit is 1024; use smaller blocks"),
        ((1, (1, 1, 65)), r"block\.z is 65.*limit is 64; use smaller blocks"),
        ((1, (32, 32, 2)), "threads per block is 2048.*limit is 1024; use smaller blocks"),
        ((1, 0), r"block\.x is 0.*make the grid 0"),
        (((1, 1 << 20), 1), r"grid\.y is 1048576.*limit is 65535; launch fewer blocks"),
        ((1, 1, 1 << 30), "1073741824 bytes.*: ask for"),
    ],
)
def test_launch_limits(mod: ons.Module, x: Any, key: Any, words: str) -> None:
    with pytest.raises(ons.ArgumentValueError, match=f"'scale'.*{words}"):
        mod.scale[key](2.0, x, x, 0)


def test_zero_grid_is_no_launch_but_checked(mod: ons.Module, x: Any) -> None:
    mod.scale[0, 32](2.0, x, x, 4)
    mod.scale[(4, 0), 32](2.0, x, x, 4)
    np.testing.assert_array_equal(x, np.arange(4))
    with pytest.raises(ons.ArgumentTypeError):
        mod.scale[0, 32](2.0, x, x.astype(np.float64), 4)


def test_launch_method(mod: ons.Module, x: Any) -> None:
    mod.scale.launch([2.0, x, x, 4], grid=1, block=(4, 1), shared=0, stream=None)
    np.testing.assert_array_equal(x, 2 * np.arange(4))
    for options in ({}, {"grid": 1}, {"grid": 1, "block": 1, "nothing": 1}):
        with pytest.raises(TypeError):
            mod.scale.launch([2.0, x, x, 4], **options)
    with pytest.raises(TypeError):
        mod.scale.launch(5, grid=1, block=1)


def test_launchers_are_reusable(mod: ons.Module, x: Any) -> None:
    launcher = mod.scale[1, 4]
    for _ in range(3):
        launcher(2.0, x, x, 4)
    np.testing.assert_array_equal(x, 8 * np.arange(4))
    assert "scale" in repr(launcher)


def test_many_arguments(x: Any) -> None:
    count = 60
    parameters = ", ".join(f"float a{i}" for i in range(count))
    total = " + ".join(f"a{i}" for i in range(count))
    kernel = ons.Module(f"__global__ void k(float* y, {parameters}) {{ y[0] = {total}; }}").k
    kernel[1, 1](x, *range(count))
    assert x[0] == sum(range(count))


def test_cdiv() -> None:
    assert [ons.cdiv(n, 4) for n in (0, 1, 4, 5, 2**70)] == [0, 1, 1, 2, 2**68]


# ---- streams ---------------------------------------------------------------------------------------------


class Protocol:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        return self.answer


class Attribute:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Memory:
    """Buffers have addresses, too."""

    ptr = handle = 5

    def __dlpack__(self, **_: Any) -> None: ...


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, None),
        (0, 0),
        (1, 1),
        (2, 2),
        (12345678, 12345678),
        (2**64 - 1, 2**64 - 1),
        (Protocol((0, 5)), 5),
        (Attribute(__cuda_stream__=(0, 5)), 5),
        (Attribute(cuda_stream=5), 5),
        (Attribute(ptr=5), 5),
        (Attribute(handle=5), 5),
        (Attribute(handle=ctypes.c_void_p(5)), 5),
        (Attribute(handle=ctypes.c_void_p(None)), 0),
        (Attribute(native_handle=5, device=Attribute(type="cuda")), 5),
    ],
)
def test_streams_that_are_taken(mod: ons.Module, stream: Any, handle: Any) -> None:
    mod.scale[1, 1, 0, stream]
    assert ons.use_stream(stream).handle == handle


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (-1, ValueError),
        (-(2**70), ValueError),
        (2**64, ValueError),
        (True, TypeError),
        (1.0, TypeError),
        ("0", TypeError),
        (object(), TypeError),
        (Attribute(ptr="5"), TypeError),
        (Attribute(ptr=-1), ValueError),
        (Protocol(5), TypeError),
        (Protocol((1, 5)), ValueError),
        (Protocol((0,)), TypeError),
        (Protocol((0, -1)), ValueError),
        (Protocol((0, 1.0)), TypeError),
        (Memory(), TypeError),
        (Attribute(native_handle=5), TypeError),
        (Attribute(native_handle=5, device=Attribute(type="xpu")), TypeError),
        (np.zeros(1), TypeError),
        (np.int64(5), TypeError),
    ],
)
def test_streams_that_are_not(mod: ons.Module, stream: Any, error: Any) -> None:
    with pytest.raises(error, match="stream"):
        mod.scale[1, 1, 0, stream]
    with pytest.raises(error, match="stream"):
        mod.scale.launch([], grid=1, block=1, stream=stream)


def sycl_queues() -> Any:
    """dpctl's queue; its capsule, as DLPack for SYCL names it; torch.xpu.Stream (torch 2.13)."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
    )
    yield type("SyclQueue", (), {"__module__": "dpctl._sycl_queue"})()
    yield new(16, b"SyclQueueRef", None)
    yield new(16, b"used_SyclQueueRef", None)
    yield Attribute(sycl_queue=16, device=Attribute(type="xpu"))


@pytest.mark.parametrize("index", range(4))
def test_queues_of_another_platform(mod: ons.Module, index: int) -> None:
    queue = list(sycl_queues())[index]
    with pytest.raises(TypeError, match="'scale': stream is a .*queue of SYCL"):
        mod.scale[1, 1, 0, queue]
    with pytest.raises(TypeError, match="queue of SYCL"):
        ons.use_stream(queue)


@pytest.mark.parametrize("stream", [0, 5, 1 << 40])
def test_streams_need_an_array_in_gpu_memory(mod: ons.Module, x: Any, stream: int) -> None:
    out = np.zeros(4, np.float32)
    for kernel, args in (("scale", (2.0, x, out, 4)), ("nothing", ())):
        with pytest.raises(ons.ArgumentValueError, match=rf"'{kernel}'.*stream.*GPU"):
            mod[kernel][1, 4, 0, stream](*args)
        with pytest.raises(ons.ArgumentValueError, match=rf"'{kernel}'.*stream.*GPU"):
            mod[kernel].launch(args, grid=1, block=4, stream=stream)
    with pytest.raises(ons.ArgumentValueError, match="'fill<int>'.*stream.*GPU"):
        mod["fill<int>"][1, 1, 0, stream](1, None)
    assert not out.any()
    mod.scale[1, 4, 0, None](2.0, x, out, 4)
    assert (out == 2 * x).all()


def test_errors_in_stream_objects_pass_through(mod: ons.Module) -> None:
    class Bad:
        @property
        def ptr(self) -> int:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        mod.scale[1, 1, 0, Bad()]


@pytest.mark.parametrize("device", ["cpu", "cpu:0", (1, 0)])
def test_devices(mod: ons.Module, device: Any) -> None:
    assert isinstance(mod.prepare(device), str)
    mod.axpy.prepare(device)


@pytest.mark.parametrize(
    "device",
    ["gpu", "cuda:", "cuda:-1", "cuda:x", "", 5, (1,), (1, 2, 3), object(), "cuda:99999999999"]
    + ["cpu:1", (1, 1), (1, -1), (2, -1), (3, 0), (3, 2), (0, 0), (13, 0), (2**16 + 1, 0)],
)
def test_bad_devices(mod: ons.Module, device: Any) -> None:
    with pytest.raises(ValueError, match="device must be"):
        mod.prepare(device)
