"""Lists of tensors, tensor maps, vectors and generic kernels on the stand-in driver, with NVRTC's code.

Run by test_simgpu.py in a process of its own.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
from producer_fakes import Arrow
from python_producers import DLPackProducer
from simgpu_machine import CUDA, Arrays, Sim, joined, with_device

import onstream as ons

SOURCE = r"""
__global__ void sum(ons::ptrs<const float, 3> xs, float* out, int n) {}
__global__ void split(const float* x, ons::ptrs<float, 2> outs) {}
__global__ void load(const __grid_constant__ ons::tensor_map map, float* out) {}
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };
__global__ void load_named(const __grid_constant__ CUtensorMap map, float* out) {}
__global__ void vectors(float4 a, double2 b, uchar3 c, float* out) {}
template <class T, int N, class Index>
__global__ void view(ons::view<const T, N, Index> x, ons::view<T, N, Index> y) {}
template <class T> __global__ void pointer(const T* x, T* y) {}
template <class T, int N> __global__ void total(ons::ptrs<const T, N> xs, T* out) {}
"""


@pytest.fixture(scope="session")
def params() -> ons.Module:
    module = ons.Module(SOURCE, name="params.cu")
    module.prepare("cuda:0")
    return module


def words(record: Any, index: int) -> list[int]:
    begin, size = record.parameter_offsets[index], record.parameter_sizes[index]
    raw = bytes(record.parameters[begin : begin + size])
    return list(struct.unpack(f"{size // 8}Q", raw))


# ---- lists of tensors -----------------------------------------------------------------------


def test_pointers_go_by_value(params: ons.Module, sim: Sim, arrays: Arrays) -> None:
    xs = [arrays(1), arrays(2), arrays(3)]
    params.sum[1, 1](xs, arrays(4), 7)
    assert words(sim.launch(), 0) == [x.data for x in xs]
    assert sim.enqueued() == [("launch", arrays.stream)]


def test_each_tensor_of_a_list_takes_part_in_the_order(
    params: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    other, third = Arrays(producer, sim, 1), Arrays(producer, sim, 2)
    params.sum[1, 1]([arrays(1), other(2), third(3)], arrays(4), 7)
    assert sim.enqueued() == joined(arrays.stream, other.stream, third.stream)
    sim.clear()
    params.sum[1, 1]([other(1), other(2), other(3)], arrays(4), 7)
    assert sim.enqueued() == joined(other.stream, arrays.stream)
    sim.clear()
    params.sum[1, 1, 0, third.stream]([arrays(1), other(2), None], arrays(4), 7)
    assert sim.enqueued() == joined(third.stream, arrays.stream, other.stream)
    sim.clear()
    with pytest.raises(
        ons.OrderError, match=rf"argument 1 \('xs'\) is on stream {other.stream:#x}"
    ):
        params.sum.launch(
            ([arrays(1), other(2), arrays(3)], arrays(4), 7), grid=1, block=1, order="strict"
        )
    assert sim.enqueued() == []
    params.sum.launch(
        ([arrays(1), other(2), arrays(3)], arrays(4), 7), grid=1, block=1, order="trust"
    )
    assert sim.enqueued() == [("launch", arrays.stream)]


def test_a_list_decides_the_device(params: ons.Module, sim: Sim, arrays: Arrays) -> None:
    arrays.use(sim.stream(device=1))
    one = (2, 1)
    params.sum[1, 1]([arrays(i, device=one) for i in (1, 2, 3)], arrays(4, device=one), 7)
    assert sim.launch().stream_context == sim.lib.sim_primary_context(1)
    with pytest.raises(ons.ArgumentValueError, match=r"'xs'\), item 2 of 3.*on cuda:0"):
        params.sum[1, 1](
            [arrays(1, device=one), arrays(2), arrays(3, device=one)], arrays(4, device=one), 7
        )


def test_unknown_streams_in_a_list(
    params: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    unknown = DLPackProducer(producer, arrays(2))
    params.sum[1, 1]([arrays(1), unknown, arrays(3)], arrays(4), 7)
    assert [asked["stream"] for asked in unknown.asked] == [arrays.stream]
    assert words(sim.launch(), 0)[1] == unknown.tensor.data
    with pytest.raises(ons.OrderError, match=r"argument 2 \('outs'\), item 2: declared"):
        params.split[1, 1](arrays(1), [arrays(2), unknown])
    asked = len(unknown.asked)
    with pytest.raises(ons.ArgumentValueError, match="a list of 2"):
        params.sum[1, 1]([unknown, arrays(3)], arrays(4), 7)
    with pytest.raises(ons.ArgumentTypeError, match="item 3 of 3.*the integer 3"):
        params.sum[1, 1]([unknown, arrays(3), 3], arrays(4), 7)
    assert len(unknown.asked) == asked, "refused before its producer was asked"


def test_lists_in_a_capture(params: ons.Module, sim: Sim, arrays: Arrays, producer: Any) -> None:
    other = Arrays(producer, sim, 1)
    sim.begin(arrays.stream)
    with pytest.raises(ons.OrderError, match=r"argument 1 \('xs'\)"):
        params.sum[1, 1]([arrays(1), other(2), arrays(3)], arrays(4), 7)
    assert sim.alive(arrays.stream)
    params.sum[1, 1]([arrays(1), arrays(2), arrays(3)], arrays(4), 7)
    assert sim.end(arrays.stream) == 1


# ---- tensor maps ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["load", "load_named"])
def test_tensor_map(params: ons.Module, sim: Sim, arrays: Arrays, name: str) -> None:
    x = arrays.type(0x4000, (10, 64), device=CUDA, strides=(72, 1), byte_offset=64)
    box = ons.tensor_map(x, (4, 16), swizzle=64, steps=(2, 1), l2=128, fill="nan")
    params[name][1, 1](box, arrays())
    record = sim.launch()
    assert record.parameter_sizes[0] == 128
    got = words(record, 0)
    assert got[:3] == [0x4040, 64, 10], "innermost first"
    assert got[6] == 72 * 4
    assert got[10] == (16 | 1 << 16) | (4 | 2 << 16) << 32
    assert got[13] == 7 | 2 << 8 | 2 << 16 | 2 << 24
    assert got[14] == 1


def test_tensor_map_takes_part_in_the_order(
    params: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    other = Arrays(producer, sim, 1)
    x = other.type(0x4000, (8, 16), device=CUDA)
    params.load[1, 1](ons.tensor_map(x, (8, 16)), arrays())
    assert sim.enqueued() == joined(other.stream, arrays.stream)
    unknown = DLPackProducer(producer, arrays.type(0x8000, (8, 16), device=CUDA))
    sim.clear()
    params.load[1, 1](ons.tensor_map(unknown, (8, 16)), arrays())
    assert [asked["stream"] for asked in unknown.asked] == [arrays.stream]
    assert words(sim.launch(), 0)[0] == 0x8000
    with pytest.raises(ons.OrderError, match="'map'"):
        params.load[1, 1](ons.tensor_map(unknown, (8, 16), write=True), arrays())


@pytest.mark.parametrize(
    ("tensor", "box", "words"),
    [
        ({"data": 0x4004, "shape": (8, 16)}, (8, 16), "multiple of 16 bytes"),
        ({"data": 0x4000, "shape": (8, 15)}, (8, 8), "strides of positive multiples"),
        ({"data": 0x4000, "shape": (8, 16)}, (16,), "as many dimensions"),
        ({"data": 0x4000, "shape": (8, 16), "strides": (32, 2)}, (8, 8), "innermost"),
        ({"data": 0x4000, "shape": (8, 16)}, (8, 3), "multiple of 16 bytes"),
        ({"data": 0x4000, "shape": (8, 16)}, (257, 16), "1 to 256"),
    ],
)
def test_tensor_maps_that_do_not_fit(
    params: ons.Module, sim: Sim, arrays: Arrays, tensor: Any, box: Any, words: str
) -> None:
    x = arrays.type(device=CUDA, **tensor)
    with pytest.raises(ons.ArgumentValueError, match=rf"'map'.*{words}"):
        params.load[1, 1](ons.tensor_map(x, box), arrays())
    assert sim.enqueued() == []


# ---- vectors --------------------------------------------------------------------------------


def test_vectors(params: ons.Module, sim: Sim, arrays: Arrays) -> None:
    params.vectors[1, 1]((1, 2.5, -3, 4), 1 - 2j, (1, 2, 255), arrays())
    record = sim.launch()
    begin, sizes = record.parameter_offsets, record.parameter_sizes
    raw = [bytes(record.parameters[begin[i] : begin[i] + sizes[i]]) for i in range(3)]
    assert raw[0] == struct.pack("4f", 1, 2.5, -3, 4)
    assert raw[1] == struct.pack("2d", 1, -2)
    assert raw[2] == bytes([1, 2, 255])


# ---- generic kernels ------------------------------------------------------------------------


def test_generic(params: ons.Module, sim: Sim, arrays: Arrays) -> None:
    view = params.generic("view<T, N, Index>")
    call = view[1, 1]
    double = {"dtype": (2, 64, 1), "device": CUDA}
    for _ in range(3):
        x = arrays.type(0x4000, (3, 5), **double)
        call(x, x)
        y = arrays.type(0x4000, (2**31,), device=CUDA)
        call(y, y)
        z = arrays.type(0x4000, (7,), device=CUDA)
        call(z, z)
    assert [kernel.name for kernel in view.instances] == [
        "view<double,2,int>", "view<float,1,long long>", "view<float,1,int>"
    ]  # fmt: skip
    kernels = [record.kernel for record in sim.launches()]
    assert len(kernels) == 9
    assert kernels[:3] * 3 == kernels
    assert len(set(kernels)) == 3


def test_generic_with_unknown_streams(
    params: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    class Shaped(DLPackProducer):
        dtype, shape = "int32", (4,)

    x = Shaped(producer, arrays.type(0x4000, (4,), (0, 32, 1), device=CUDA))
    pointer = params.generic("pointer")
    y = arrays.type(0x8000, (4,), (0, 32, 1), device=CUDA)
    pointer[1, 1](x, y)
    assert len(x.asked) == 1, "for the launch only"
    assert pointer.instances[0].name == "pointer<int>"
    nameless = DLPackProducer(producer, x.tensor)
    with pytest.raises(ons.ArgumentTypeError, match="does not tell T of the template"):
        pointer[1, 1](nameless, y)


def test_generic_with_a_list_of_interfaces(
    params: ons.Module, sim: Sim, arrays: Arrays, producer: Any
) -> None:
    """The first of the list is looked at, not the list."""

    xs = [with_device(producer, arrays(i), arrays.stream, data=(i << 12, False)) for i in (1, 2, 3)]
    total = params.generic("total<T, N>")
    total[1, 1](xs, arrays(4))
    assert [kernel.name for kernel in total.instances] == ["total<float,3>"]
    assert words(sim.launch(), 0) == [1 << 12, 2 << 12, 3 << 12]
    assert sim.enqueued() == [("launch", arrays.stream)]
    assert not any(x.asked for x in xs)


def test_generic_with_an_arrow_event(params: ons.Module, sim: Sim, arrays: Arrays) -> None:
    event = ctypes.c_void_p()
    assert sim.lib.cuEventCreate(ctypes.byref(event), 2) == 0
    x, y = Arrow(0x7000, event=event.value), arrays()
    pointer = params.generic("pointer<T>")
    assert pointer.instance(x, y).name == "pointer<float>"
    assert sim.calls("cuStreamWaitEvent") == 0
    for call in (pointer[1, 1], lambda *args: pointer.launch(args, grid=1, block=1)):
        sim.clear()
        call(x, y)
        assert sim.enqueued() == [("wait", arrays.stream), ("launch", arrays.stream),
                                  ("record", arrays.stream)]  # fmt: skip
    assert x.asked > 2


def test_out_of_a_generic_kernel(params: ons.Module, sim: Sim, arrays: Arrays) -> None:
    given = arrays(5)
    pointer = params.generic("pointer<T>")
    assert pointer[1, 1](arrays(4), ons.like(given), out=given) is given
    assert sim.launch().value(1) == given.data
    sim.clear()
    with pytest.raises(ons.ArgumentValueError, match="out= with an array of shape"):
        pointer[1, 1](arrays(4), ons.like(arrays(4)), out=given)
    assert sim.launches() == []
