"""XLA's handlers as plain functions of the C library, registered without the package."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("jax")

CODE = """
import ctypes, sys
import jax, jax.numpy as jnp, numpy as np

library = ctypes.CDLL(sys.argv[1])
stages = {
    stage: jax.ffi.pycapsule(getattr(library, f"ons_xla_cpu_{stage}")) for stage in sys.argv[2:]
}
jax.ffi.register_ffi_target("onstream.launch", stages, platform="cpu")
attributes = dict(
    version=1,
    digest="twice 1",
    kernel="twice",
    source="__global__ void twice(const float* x, float* out) "
    "{ out[threadIdx.x] = 2 * x[threadIdx.x]; }",
    grid=np.array([1, 1, 1], np.int64),
    block=np.array([4, 1, 1], np.int64),
    plan=np.array([0, 0, 1, 0], np.int64),
)
call = jax.ffi.ffi_call("onstream.launch", jax.ShapeDtypeStruct((4,), jnp.float32))
twice = jax.jit(lambda x: call(x, **attributes))
for _ in range(3):
    assert twice(jnp.arange(4, dtype=jnp.float32)).tolist() == [0, 2, 4, 6]
assert "onstream" not in sys.modules
try:
    jax.jit(lambda x: call(x, **{**attributes, "kernel": "thrice"}))(jnp.zeros(4))
except jax.errors.JaxRuntimeError as error:
    assert "no kernel 'thrice' in kernel.cu; its kernels: twice" in str(error), error
    assert "NOT_FOUND" in str(error), error
else:
    raise AssertionError("not refused")
"""


@pytest.mark.parametrize("stages", [["instantiate", "execute"], ["execute"]])
def test_the_library_alone_serves_jax(stages):
    driver = os.environ.get("ONS_TEST_SIMGPU_PATH")
    library = driver and pathlib.Path(driver).parents[1] / "libonstream.so"
    if not library or not library.exists():
        pytest.skip("ONS_TEST_SIMGPU_PATH does not name a build with the shared library")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", CODE, str(library), *stages]
    subprocess.run(command, check=True, env=environment, timeout=300)
