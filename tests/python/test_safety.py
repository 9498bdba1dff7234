"""Nothing crashes, nothing leaks, nothing is left behind (cases 43 and 44 too)."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python_producers import DLPackProducer

import onstream as ons

PACKAGE = Path(ons.__file__).parent


def run_python(code: str, *, check: bool = True, **environment: str) -> Any:
    """Runs code in a fresh interpreter that finds the same onstream."""
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment}
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env=env,
    )
    if check:
        assert result.returncode == 0, result.stdout + result.stderr
    return result


# ---- crashes ---------------------------------------------------------------------------------------


class Hostile:
    """Raises, or answers nonsense, whatever it is asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __getattr__(self, name: str) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def __index__(self) -> int:
        return self.answer

    def __float__(self) -> float:
        return self.answer

    def __iter__(self) -> Any:
        return iter(self.answer)

    def __len__(self) -> int:
        return self.answer

    def __dlpack_device__(self) -> Any:
        return self.answer

    def __dlpack__(self, **_: Any) -> Any:
        return self.answer


def recursive() -> list[Any]:
    x: list[Any] = []
    x.append(x)
    return x


def hostile_objects() -> list[Any]:
    plain = [
        None, True, 0, 1, -1, 2**31, 2**63, 2**64, 10**50, -(10**50), 0.5, float("nan"), 1j,
        "", "a", "\ud800", "\0", b"", b"\0\0\0\0", bytearray(8), (), (1,), (1, 2), (1, 2, 3, 4),
        [], [1], {}, {1: 2}, set(), object(), type, int, len, lambda: 1, slice(None), Ellipsis,
        NotImplemented, recursive(), range(3), iter([]), memoryview(b"abc"), Exception("x"),
        np.zeros(3), np.zeros((2, 0)), np.float32(1), np.array("x"), np.zeros(2, object),
        np.datetime64("2020"), np.bool_(True), weakref.ref(Hostile), ons, ons.like(5),
        ons.empty(3, "float32"), ons.like(None), ons.tensor_map(1, (1,)), ons.Error("x"),
    ]  # fmt: skip
    return plain + [Hostile(x) for x in plain] + [Hostile(ValueError("x"))]


def test_random_arguments(mod: ons.Module) -> None:
    pick = random.Random(1)
    objects = hostile_objects()
    mod.scale.prepare("cpu")
    mod.gather.prepare("cpu")
    kernels = [mod.scale, mod.gather, mod.is_null, mod["fill<int>"], mod.nothing]
    refused = 0
    for _ in range(30000):
        kernel = pick.choice(kernels)
        args = [pick.choice(objects) for _ in range(pick.choice((0, 1, 2, 2, 3, 4, 4, 4, 30)))]
        try:
            # A grid of zero: every check is made, and what is accepted by chance does no harm.
            kernel[0, 1](*args)
        except Exception:
            refused += 1
    assert refused > 20000


UNTOUCHED = """
__global__ void pointer(const float* x) {}
__global__ void written(float* x) {}
__global__ void anything(const void* x) {}
__global__ void view(ons::view<const float, 2> x) {}
__global__ void small(ons::view<float, 2, int> x) {}
__global__ void list(ons::ptrs<const float, 2> xs) {}
__global__ void vector(float4 x) {}
__global__ void number(float x) {}
template <class T, int N, class Index> __global__ void any_view(ons::view<const T, N, Index> x) {}
template <class T> __global__ void any_pointer(const T* x) {}
"""


def test_random_tensors(producer: Any) -> None:
    """What no sound producer would say of its memory is refused, or does no harm."""
    pick = random.Random(4)
    memory = np.zeros(1 << 12, np.uint8)
    base = memory.ctypes.data
    sizes = [0, 1, 2, 3, 4, -1]
    huge = [2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63), -(2**31)]
    dtypes = [*[(2, 32, 1)] * 4, (0, 0, 0), (2, 64, 1), (2, 32, 0), (255, 255, 65535), (17, 4, 1)]
    devices = [*[(1, 0)] * 8, (1, -1), (3, 0), (0, 0), (7, 0), (-1, 0), (200, 3)]
    kinds = [
        producer.make_type(i, null=null) for i, null in enumerate(((), ("borrow",), ("take",)))
    ]
    names = "pointer written anything view small list vector number".split()
    untouched = ons.Module(UNTOUCHED)
    calls = [untouched[name][1, 1] for name in names]
    calls += [untouched.generic("any_view")[1, 1], untouched.generic("any_pointer")[1, 1]]
    kept, raised = [], 0

    def extents() -> tuple[int, ...]:
        return tuple(pick.choice(huge if pick.random() < 0.2 else sizes) for _ in range(ndim))

    for _ in range(3000):
        ndim = pick.randrange(5)
        x = pick.choice(kinds)(
            pick.choice([base, base, base, 0, base + 1]), extents(), pick.choice(dtypes),
            pick.choice([None, extents()]), device=pick.choice(devices), owner=memory,
            byte_offset=pick.choice([0, 0, 0, 4, 2**64 - 1]), major=pick.choice([1, 1, 1, 0, 2]),
        )  # fmt: skip
        if pick.random() < 0.4:
            x = DLPackProducer(producer, x, versioned=pick.random() < 0.5)
        try:
            if pick.random() < 0.5:
                call = pick.choice(calls)
                call([x, x] if call is calls[5] else x)
                continue
            kept.append(t := ons.from_dlpack(x))
            for use in (lambda t: t.nbytes, memoryview, np.from_dlpack, np.asarray, len, repr):
                kept.append(use(t))  # type: ignore[no-untyped-call]
        except (ons.Error, BufferError, OverflowError, RuntimeError, TypeError, ValueError):
            raised += 1
    assert raised > 1000 and len(kept) > 100
    del x, kept, t
    gc.collect()
    ons.collect()
    assert producer.counts()["handed_out"] == producer.counts()["deleted"] > 0


def test_random_brackets(mod: ons.Module) -> None:
    pick = random.Random(2)
    objects = hostile_objects()
    for _ in range(20000):
        key = tuple(pick.choice(objects) for _ in range(pick.randrange(6)))
        try:
            launcher = mod.nothing[key]
        except Exception:
            continue
        assert "nothing" in repr(launcher)


@pytest.mark.parametrize("function", [ons.Module, ons.load, ons.empty, ons.like])
def test_random_calls(function: Any) -> None:
    pick = random.Random(3)
    objects = hostile_objects()
    names = ["source", "options", "headers", "name", "path", "shape", "dtype", "x"]
    for _ in range(5000):
        args = [pick.choice(objects) for _ in range(pick.randrange(3))]
        options = {pick.choice(names): pick.choice(objects) for _ in range(pick.randrange(3))}
        try:
            function(*args, **options)
        except Exception:
            pass


def test_random_devices_and_names(mod: ons.Module) -> None:
    raised = 0
    for thing in hostile_objects():
        for call in (
            lambda t=thing: mod[t],
            lambda t=thing: getattr(mod, t),
            lambda t=thing: mod.axpy.launch(t, grid=1, block=1),
            lambda t=thing: mod.axpy.launch([], grid=t, block=t, shared=t, stream=t),
            lambda t=thing: mod.axpy.attributes("cpu" if t is None else t),
        ):
            try:
                call()
            except Exception:
                raised += 1
    assert raised > 400


def test_arguments_that_change_the_cache_while_it_is_filled(mod: ons.Module) -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            if name.startswith("__dlpack") or name.startswith("__cuda"):
                try:
                    mod.scale[0, 1](1.0, type("T", (), {})(), None, 0)
                except ons.Error:
                    pass
            return super().__getattribute__(name)

    for _ in range(50):
        Odd = Meta("Odd", (), {})
        with pytest.raises(ons.ArgumentTypeError):
            mod.scale[0, 1](1.0, Odd(), None, 0)


def test_many_types_do_not_slow_torch_down() -> None:
    """How its tensors are laid out is learnt once, whatever else has been passed."""
    pytest.importorskip("torch")
    run_python(
        """
        import onstream as ons
        import torch
        from torch.overrides import TorchFunctionMode
        mod = ons.Module('__global__ void k(const float* x) {}')
        for i in range(300):
            try:
                mod.k[1, 1](type(f"T{i}", (), {})())
            except ons.ArgumentTypeError:
                pass
        class Count(TorchFunctionMode):
            calls = 0
            def __torch_function__(self, function, types, args=(), kwargs=None):
                Count.calls += 1
                return function(*args, **(kwargs or {}))
        x = torch.zeros(1)
        mod.k[1, 1](x)
        with Count():
            mod.k[1, 1](x)
        assert Count.calls == 0, Count.calls
        """
    )


def test_calls_within_calls(mod: ons.Module) -> None:
    class Nested:
        depth = 0

        def __index__(self) -> int:
            Nested.depth += 1
            if Nested.depth < 20:
                mod["fill<int>"][1, 1](self, np.zeros(1, np.int32))
            return 7

    out = np.zeros(1, np.int32)
    mod["fill<int>"][1, 1](Nested(), out)
    assert out[0] == 7


def test_lists_that_change_while_their_arrays_are_asked() -> None:
    """The one that is asked lets go of the list that it is in, and so of itself."""
    run_python(
        """
        import numpy as np
        import onstream as ons
        mod = ons.Module(r'''
        __global__ void plain(ons::ptrs<const float, 2> xs) {}
        template <class T, int N> __global__ void any(ons::ptrs<const T, N> xs) {}
        ''')
        class Emptied:
            def __init__(self, holder):
                self.holder = holder
            def __dlpack_device__(self):
                self.holder.clear()
                return "nowhere"
            def __dlpack__(self, **options):
                raise AssertionError("it is nowhere")
        refused = 0
        for kernel in (mod.plain, mod.plain, mod.generic("any<T, N>"), mod.generic("any<T, N>")):
            items = []
            items += [Emptied(items), np.zeros(1)]
            try:
                kernel[1, 1](items)
            except ons.Error:
                refused += 1
        assert refused == 4
        """,
        PYTHONMALLOC="debug",
    )


# ---- references --------------------------------------------------------------------------------------


def counted(*objects: Any) -> list[int]:
    return [sys.getrefcount(x) for x in objects]


def test_references_are_exact(mod: ons.Module, producer: Any) -> None:
    torch = pytest.importorskip("torch")
    x = np.ones(4, np.float32)
    t = torch.ones(4)
    p = producer.make_type(0)(x.ctypes.data, (4,), owner=x)
    big, half = 2**40 + 5, 0.1234567
    stream = type("S", (), {"ptr": 5})()
    objects = (x, t, p, big, half, stream, mod, mod.scale, type(t), type(p), np.ndarray, None)

    def everything() -> None:
        mod.scale[1, 4](half, x, x, 4)
        mod.scale[1, 4](half, t, t, 4)
        mod.scale[1, 4](half, p, p, 4)
        mod.scale[1, 4](half, t, ons.like(t), 4)
        mod.scale[1, 4](half, x, ons.empty(4, "float32"), 4)
        mod.scale[1, 4](half, p, ons.like(p), 4)
        mod.scale[1, 4, 0, stream]
        mod.is_null[1, 1](None, np.zeros(1, np.int32))
        for bad in ((big, x, x), (half, x, big, 4), (half, "s", x, 4), (half, x, None, x)):
            try:
                mod.scale[1, 4](*bad)
            except ons.ArgumentError:
                pass

    everything()
    gc.collect()
    before = counted(*objects)
    for _ in range(200):
        everything()
    gc.collect()
    after = counted(*objects)
    assert all(abs(a - b) < 100 for a, b in zip(after, before, strict=True)), (before, after)
    assert producer.counts()["handed_out"] == producer.counts()["deleted"]


def test_memory_does_not_grow(mod: ons.Module) -> None:
    import tracemalloc

    x = np.ones(4, np.float32)

    def everything() -> None:
        for _ in range(300):
            mod.scale[1, 4](2.0, x, x, 4)
            mod.scale[1, 4](2.0, x, ons.like(x), 4)
            try:
                mod.scale[1, 4](2.0, x, "s", 4)
            except ons.ArgumentError:
                pass
            try:
                ons.Module("__global__ void k() {}").missing  # noqa: B018
            except ons.NotFoundError:
                pass

    everything()
    gc.collect()
    tracemalloc.start()
    everything()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(5):
        everything()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20000


def test_modules_and_kernels_are_collected() -> None:
    class Probe:
        pass

    mod = ons.Module("__global__ void k() {}")
    kernel = mod.k
    probe = Probe()
    alive = weakref.ref(probe)

    class Stream:
        ptr = 5

    stream = Stream()
    stream.probe = probe  # type: ignore[attr-defined]
    stream.launcher = kernel[1, 1, 0, stream]  # type: ignore[attr-defined]
    del mod, kernel, stream, probe
    gc.collect()
    assert alive() is None


def test_kernels_outlive_their_module() -> None:
    launcher = ons.Module("__global__ void k(int* y) { y[0] = 7; }").k[1, 1]
    gc.collect()
    y = np.zeros(1, np.int32)
    launcher(y)
    assert y[0] == 7


# ---- threads and processes -----------------------------------------------------------------------------


def test_threads(mod: ons.Module) -> None:
    failures: list[Any] = []
    fresh = ons.Module(mod.source)

    def work(seed: int) -> None:
        try:
            for n in range(1, 200):
                x = np.full(n, seed, np.float32)
                z = fresh.scale[ons.cdiv(n, 32), 32](2.0, x, ons.like(x), n)
                assert (z == 2 * seed).all()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_big_launches_release_the_gil(mod: ons.Module) -> None:
    n = 1 << 24
    x = np.ones(n, np.float32)
    out = np.zeros(n, np.float32)
    mod.scale[1, 1](1.0, x, out, 1)
    ticks = 0
    done = threading.Event()

    def launch() -> None:
        for _ in range(5):
            mod.scale[n // 256, 256](2.0, x, out, n)
        done.set()

    thread = threading.Thread(target=launch)
    thread.start()
    while not done.is_set():
        ticks += 1
    thread.join()
    assert ticks > 10 and (out == 2).all()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_long_launches_of_two_blocks_release_the_gil(library: str) -> None:
    source = """
    __global__ void spin(float* x, long long n) {
      float y = x[threadIdx.x];
      for (long long i = 0; i < n; ++i) y = y * 0.5f + 1.0f;
      x[threadIdx.x] = y;
    }
    """
    spin = ons.Module(source).spin
    x: Any = np.ones(256, np.float32)
    if library == "torch":
        x = pytest.importorskip("torch").from_numpy(x)
    spin[2, 128](x, 1)
    done = threading.Event()

    def launch() -> None:
        spin[2, 128](x, 1_000_000)
        done.set()

    thread = threading.Thread(target=launch)
    ticks = 0
    thread.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork() -> None:
    run_python(
        """
        import os, sys
        import numpy as np
        import onstream as ons
        mod = ons.Module('__global__ void k(float* y, long long n) {'
                         ' long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;'
                         ' if (i < n) y[i] += 1; }')
        n = 1 << 20
        y = np.zeros(n, np.float32)
        mod.k[n // 256, 256](y, n)
        pid = os.fork()
        mod.k[n // 256, 256](y, n)
        fresh = ons.Module('__global__ void j(int* y) { y[0] = 5; }')
        z = np.zeros(1, np.int32)
        fresh.j[1, 1](z)
        ok = (y == 2).all() and z[0] == 5
        if pid == 0:
            os._exit(0 if ok else 9)
        _, status = os.waitpid(pid, 0)
        assert ok and os.waitstatus_to_exitcode(status) == 0, status
        """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork_while_another_thread_compiles(tmp_path: Path) -> None:
    """Of that thread nothing is heard in the child: it compiles by itself."""
    run_python(
        """
        import os, threading, time
        import numpy as np
        import onstream as ons
        source = '#include <regex>\\n__global__ void k(int* y) { y[0] += 1; }'
        mod = ons.Module(source)
        y = np.zeros(1, np.int32)
        thread = threading.Thread(target=mod.k.prepare, args=("cpu",))
        thread.start()
        time.sleep(0.1)
        pid = os.fork()
        mod.k[1, 1](y)
        if pid == 0:
            os._exit(0 if y[0] == 1 else 9)
        _, status = os.waitpid(pid, 0)
        thread.join()
        assert y[0] == 1 and os.waitstatus_to_exitcode(status) == 0, status
        """,
        ONSTREAM_CACHE_DIR=str(tmp_path / "cache"),
    )


def test_exit_with_objects_alive() -> None:
    result = run_python(
        """
        import atexit, sys, threading
        import numpy as np
        import onstream as ons
        mod = ons.Module('__global__ void k(float* y) { y[0] = 1; }')
        x = np.zeros(1, np.float32)
        sys.kept = launcher = mod.k[1, 1]
        launcher(x)
        class Late:
            def __del__(self, launcher=launcher, x=x, ons=ons, mod=mod):
                launcher(x)
                try:
                    mod.k[1, 1](x)
                    mod.k[1, 1](ons.like(x))
                    mod.k[1, 1]("s")
                except Exception:
                    pass
        sys.late = Late()
        cycle = [Late()]
        cycle.append(cycle)
        atexit.register(lambda: launcher(x))
        threading.Thread(target=lambda: [launcher(x) for _ in range(1000)], daemon=True).start()
        """
    )
    assert "Segmentation" not in result.stderr and "Fatal" not in result.stderr


def test_repeated_imports() -> None:
    run_python(
        """
        import gc, importlib, sys
        for _ in range(5):
            import onstream as ons
            mod = ons.Module('__global__ void k() {}')
            mod.k
            for name in [n for n in sys.modules if n.startswith('onstream')]:
                del sys.modules[name]
            del ons, mod
            gc.collect()
        """
    )


def test_subinterpreters_are_refused() -> None:
    """What is retained for a device is released through PyGILState, which knows only one."""
    names = ("_interpreters", "_xxsubinterpreters")
    name = next(name for name in names if importlib.util.find_spec(name))
    run_python(
        f"""
        import sys
        import {name} as interpreters
        import numpy as np
        import onstream as ons
        other = interpreters.create()
        failed = interpreters.run_string(other, chr(10).join([
            "import sys",
            "sys.path[:0] = %r" % sys.path,
            "try:",
            "    import onstream",
            "except ImportError as error:",
            "    assert 'interpreter' in str(error), error",
            "else:",
            "    raise AssertionError('it was imported')",
        ]))
        assert not failed, failed
        interpreters.destroy(other)
        x = np.ones(3, np.float32)
        assert np.from_dlpack(ons.from_dlpack(x)).tolist() == [1, 1, 1]
        """
    )


# ---- import ----------------------------------------------------------------------------------------------


def test_import_brings_no_library() -> None:
    run_python(
        """
        import sys
        import onstream
        for name in ('numpy', 'torch', 'jax', 'cupy', 'ctypes', 'cuda', 'subprocess'):
            assert name not in sys.modules, name
        """
    )


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_import_touches_nothing(tmp_path: Path) -> None:
    """No thread, no process, no file but the package's own (and Python's)."""

    def trace(code: str) -> tuple[set[str], int]:
        log = tmp_path / "log"
        subprocess.run(
            ["strace", "-f", "-e", "trace=openat,open,clone,clone3,execve,mkdir,mkdirat,connect"]
            + ["-o", str(log), sys.executable, "-S", "-c", code],
            check=True,
            env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=PACKAGE.parent,
        )
        lines = log.read_text().splitlines()
        calls = [(match[1], x) for x in lines if (match := re.match(r"\d+ +(\w+)\(", x))]
        opens = [x for name, x in calls if name in ("open", "openat") and "ENOENT" not in x]
        others = [name for name, _ in calls if name not in ("open", "openat", "execve")]
        return {x.split('"')[1] for x in opens}, len(others)

    bare, others = trace("pass")
    assert others == 0
    ours, others = trace(
        "import onstream as ons; ons.Module('__global__ void k() {}').k; ons.cdiv(1, 2)"
    )
    assert others == 0
    stray = {
        path
        for path in ours - bare
        if not path.startswith((str(PACKAGE), str(PACKAGE.parent), sys.base_prefix, sys.prefix))
        and not path.startswith(("/lib/", "/usr/lib", "/etc/ld.so.cache", "/proc/self/"))
    }
    assert any(path.startswith(str(PACKAGE)) for path in ours)
    assert not stray, stray
    assert not {path for path in ours - bare if "cuda" in path or "nvrtc" in path}


def test_bare_environment() -> None:
    """No home, no compiler, no GPU: importing works, and the first need says what is missing."""
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import onstream as ons
                mod = ons.Module('__global__ void k() {}')
                try:
                    mod.k[1, 1]()
                except ons.UnavailableError as error:
                    print(error)
                """
            ),
        ],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PACKAGE.parent), "PATH": "/nonexistent"},
    )
    assert result.returncode == 0, result.stderr
    assert "compiler" in result.stdout


def test_arrays_changed_by_another_argument(mod: ons.Module) -> None:
    """Python code of a later argument may replace the memory of an earlier one."""
    torch = pytest.importorskip("torch")

    class Evil:
        def __init__(self, x: Any, n: int) -> None:
            self.x, self.n = x, n

        def __index__(self) -> int:
            self.x.set_(torch.full((self.n,), 7.0))
            return self.n

    for n in (4, 1 << 18):
        x, out = torch.ones(4), torch.zeros(n)
        mod.scale[ons.cdiv(n, 64), 64](2.0, x, out, Evil(x, n))
        assert (out == 14).all()


def test_a_missing_driver_is_named() -> None:
    code = """
import onstream as ons
k = ons.Module("__global__ void k(int* x) {}").k
try:
    k.prepare("cuda:0")
except ons.UnavailableError as error:
    assert "/nowhere/libcuda.so.1" in str(error), error
else:
    raise SystemExit("no error")
"""
    environment = {**os.environ, "ONSTREAM_CUDA_DRIVER": "/nowhere/libcuda.so.1"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
