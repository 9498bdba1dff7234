"""Shuffles, votes, matches, warp reductions and cooperative groups on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstream as ons

FULL = "0xffffffffu"
SIZES = (1, 7, 32, 40, 64, 200)


def run(body: str, threads: int, headers: str = "", width: int = 1, options: Any = ()) -> Any:
    """out[t][...] of one block; `body` has t and writes o[0] to o[width - 1]."""
    source = f"""{headers}
        __global__ void k(long long* out) {{
          const int t = threadIdx.x;
          long long* o = out + t * {width};
          {body}
        }}"""
    out = np.full((threads, width), -99, np.int64)
    ons.Module(source, name="warp.cu", options=options).k[1, threads](out)
    return out


def from_lanes(threads: int, pick: Any) -> Any:
    """pick(lane) in each warp; a lane that is not there gives the thread's own."""
    thread = np.arange(threads)
    lane = thread % 32
    source = thread - lane + np.array([pick(int(at)) for at in lane])
    return np.where(source < threads, source, thread)


@pytest.mark.parametrize("width", [32, 16, 8, 1])
def test_shuffles(width: int) -> None:
    threads, last = 72, width - 1
    got = run(
        f"""o[0] = __shfl_sync({FULL}, t, 5, {width});
        o[1] = __shfl_up_sync({FULL}, t, 3, {width});
        o[2] = __shfl_down_sync({FULL}, t, 3, {width});
        o[3] = __shfl_xor_sync({FULL}, t, 9, {width});
        o[4] = __shfl_sync({FULL}, t, t * 7, {width});
        o[5] = __shfl_sync({FULL}, t, -1, {width});""",
        threads, width=6,
    )  # fmt: skip
    picks = [
        lambda at: at & ~last | 5 & last,
        lambda at: at - 3 if (at & last) >= 3 else at,
        lambda at: at + 3 if (at & last) + 3 <= last else at,
        lambda at: at ^ 9 if (at ^ 9) <= (at | last) else at,
    ]
    for column, pick in enumerate(picks):
        np.testing.assert_array_equal(got[:, column], from_lanes(threads, pick), str(column))
    thread = np.arange(threads)
    source = thread - thread % 32 + (thread % 32 & ~last | thread * 7 & last)
    np.testing.assert_array_equal(got[:, 4], np.where(source < threads, source, thread))
    np.testing.assert_array_equal(got[:, 5], from_lanes(threads, lambda at: at | last))


def test_shuffles_of_every_type() -> None:
    kinds = ["int", "unsigned int", "long", "unsigned long", "long long", "unsigned long long",
             "float", "double", "__half", "__nv_bfloat16"]  # fmt: skip
    body = "".join(
        f"o[{i}] = (long long)(float)__shfl_xor_sync({FULL}, ({kind})t, 1);"
        for i, kind in enumerate(kinds)
    )
    body += f"""const __half2 h = __shfl_down_sync({FULL}, __floats2half2_rn(t, -t), 1);
      const __nv_bfloat162 b = __shfl_up_sync({FULL}, __floats2bfloat162_rn(t, -t), 1);
      o[10] = (long long)(__low2float(h) - __high2float(h));
      o[11] = (long long)(__low2float(b) - __high2float(b));"""
    got = run(body, 32, "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n", 12)
    thread = np.arange(32)
    for column in range(len(kinds)):
        np.testing.assert_array_equal(got[:, column], thread ^ 1, kinds[column])
    np.testing.assert_array_equal(got[:, 10], 2 * np.minimum(thread + 1, 31))
    np.testing.assert_array_equal(got[:, 11], 2 * np.maximum(thread - 1, 0))


@pytest.mark.parametrize("threads", SIZES)
def test_votes_matches_and_reductions(threads: int) -> None:
    got = run(
        f"""o[0] = __ballot_sync({FULL}, t % 3 == 1);
        o[1] = __any_sync({FULL}, t == 33); o[2] = __all_sync({FULL}, t < 33);
        o[3] = __match_any_sync({FULL}, t / 4 % 3); int same;
        o[4] = __match_all_sync({FULL}, t / 32 == 1 ? t : 2.5, &same); o[5] = same;
        o[6] = __reduce_add_sync({FULL}, t - 5); o[7] = __reduce_min_sync({FULL}, 5 - t);
        o[8] = __reduce_max_sync({FULL}, (unsigned)t); o[9] = __reduce_and_sync({FULL}, t | 12u);
        o[10] = __reduce_or_sync({FULL}, 1u << t % 32); o[11] = __reduce_xor_sync({FULL}, 3u * t);
        __syncwarp(); o[12] = __activemask();""",
        threads, width=13,
    )  # fmt: skip
    for first in range(0, threads, 32):
        t = np.arange(first, min(first + 32, threads))
        lanes = 1 << np.arange(t.size)
        rows = got[first : first + t.size]
        everyone = int(lanes.sum())
        same = first != 32 or t.size == 1
        expected = [
            lanes[t % 3 == 1].sum(), (t == 33).any(), (t < 33).all(), None,
            everyone if same else 0, same, (t - 5).sum(), (5 - t).min(), t.max(),
            np.bitwise_and.reduce(t | 12), everyone, np.bitwise_xor.reduce(3 * t), everyone,
        ]  # fmt: skip
        for column, value in enumerate(expected):
            if value is not None:
                assert (rows[:, column] == int(value)).all(), (first, column)
        groups = [lanes[(t // 4 % 3) == at // 4 % 3].sum() for at in t]
        np.testing.assert_array_equal(rows[:, 3], groups)


def test_lanes_that_have_ended_or_are_not_meant() -> None:
    got = run(
        f"""if (t % 4 == 3) return;
        o[0] = __ballot_sync({FULL}, 1);
        o[1] = __shfl_sync({FULL}, t, 3);
        o[2] = __reduce_add_sync({FULL}, 1);
        if (t < 8) {{ o[3] = __shfl_xor_sync(0xffu, t, 1); }}
        else {{ o[3] = __all_sync(0xffffff00u, t >= 8); o[3] += __any_sync(0xffffff00u, t == 8); }}""",
        32, width=4,
    )  # fmt: skip
    thread = np.arange(32)
    rows = got[thread % 4 != 3]
    thread = thread[thread % 4 != 3]
    assert (rows[:, 0] == 0x77777777).all()
    np.testing.assert_array_equal(rows[:, 1], thread)  # lane 3 has gone
    assert (rows[:, 2] == 24).all()
    low = thread < 8
    np.testing.assert_array_equal(
        rows[low, 3], np.where((thread ^ 1) % 4 == 3, thread, thread ^ 1)[low]
    )
    assert (rows[~low, 3] == 2).all()


def test_shuffles_in_a_loop_sum_a_warp() -> None:
    got = run(
        f"""int v = t + 1;
        for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync({FULL}, v, d);
        o[0] = __shfl_sync({FULL}, v, 0);""",
        64,
    )
    assert (got[:32] == 528).all() and (got[32:] == 528 + 1024).all()


def test_warps_of_64() -> None:
    got = run(
        """o[0] = warpSize; o[1] = __shfl_sync(~0ull, t, 50); o[2] = __popcll(__ballot_sync(~0ull, t % 2));
        o[3] = __reduce_add_sync(~0ull, t); o[4] = __shfl_down_sync(~0ull, t, 40);""",
        128, width=5, options=["-DONS_WARP_SIZE=64"],
    )  # fmt: skip
    thread = np.arange(128)
    first = thread // 64 * 64
    assert (got[:, 0] == 64).all() and (got[:, 2] == 32).all()
    np.testing.assert_array_equal(got[:, 1], first + 50)
    np.testing.assert_array_equal(got[:, 3], first * 64 + 63 * 32)
    np.testing.assert_array_equal(got[:, 4], np.where(thread % 64 + 40 < 64, thread + 40, thread))


GROUPS = """#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
"""


@pytest.mark.parametrize("size", [1, 2, 8, 32])
def test_tiles(size: int) -> None:
    threads = 64
    got = run(
        f"""auto block = cg::this_thread_block();
        auto tile = cg::tiled_partition<{size}>(block);
        o[0] = tile.thread_rank() * 1000 + tile.size() + tile.num_threads();
        o[1] = tile.meta_group_rank() * 1000 + tile.meta_group_size();
        o[2] = tile.shfl(t, 1); o[3] = tile.shfl_up(t, 1); o[4] = tile.shfl_down(t, 2);
        o[5] = tile.shfl_xor(t, 1); o[6] = tile.any(t == 3) * 10 + tile.all(t > 0);
        o[7] = tile.ballot(t % 2); o[8] = tile.match_any(t % 4 / 2);
        o[9] = cg::reduce(tile, t, cg::plus<int>()); o[10] = cg::reduce(tile, t, cg::less<int>());
        o[11] = cg::inclusive_scan(tile, t); o[12] = cg::exclusive_scan(tile, 2);
        o[13] = cg::reduce(tile, t, [](int a, int b) {{ return a > b ? a : b; }});
        tile.sync();""",
        threads, GROUPS, 14,
    )  # fmt: skip
    for first in range(0, threads, size):
        t = np.arange(first, first + size)
        rank = np.arange(size)
        bits = 1 << rank
        expected = [
            rank * 1000 + 2 * size, np.full(size, first // size * 1000 + threads // size),
            np.full(size, first + 1 % size), first + np.maximum(rank - 1, 0),
            np.where(rank + 2 < size, t + 2, t), np.where((rank ^ 1) < size, t ^ 1, t),
            np.full(size, int((t == 3).any()) * 10 + int((t > 0).all())),
            np.full(size, bits[t % 2 == 1].sum()),
            [bits[t % 4 // 2 == at % 4 // 2].sum() for at in t],
            np.full(size, t.sum()), np.full(size, first), t.cumsum(), 2 * rank,
            np.full(size, t.max()),
        ]  # fmt: skip
        for column, value in enumerate(expected):
            np.testing.assert_array_equal(got[t, column], value, f"column {column} at {first}")


def test_partitions_and_generic_groups() -> None:
    got = run(
        """cg::thread_block block = cg::this_thread_block();
        auto tile = cg::tiled_partition<16>(block);
        auto quad = cg::tiled_partition<4>(tile);
        o[0] = quad.meta_group_rank() * 100 + quad.meta_group_size();
        cg::coalesced_group odd = cg::binary_partition(tile, t % 2 == 1);
        o[1] = odd.size() * 100 + odd.thread_rank(); o[2] = odd.shfl(t, 2); o[3] = cg::reduce(odd, t, cg::plus<int>());
        cg::coalesced_group third = cg::labeled_partition(tile, t % 3);
        o[4] = third.num_threads() * 100 + third.thread_rank();
        o[5] = rank_and_size(block); o[6] = rank_and_size(cg::tiled_partition(block, 8)); o[7] = rank_and_size(tile);
        cg::coalesced_group part = cg::tiled_partition(odd, 4);
        o[8] = part.meta_group_rank() * 100 + part.size() * 10 + part.thread_rank();
        o[9] = -1;
        if (t % 4 == 0) { auto active = cg::coalesced_threads(); o[9] = active.size() * 100 + active.thread_rank(); }
        o[10] = cg::this_grid().thread_rank() + block.group_index().x + block.dim_threads().x * 1000 + block.thread_index().x * 100000;
        cg::sync(block);""",
        64,
        GROUPS
        + "__device__ int rank_and_size(const cg::thread_group& g) { g.sync(); return g.thread_rank() * 100 + g.size(); }",
        11,
    )
    t = np.arange(64)
    rank, first = t % 16, t // 16 * 16
    odd = t % 2
    sums = [sum(v for v in range(f, f + 16) if v % 2 == o) for f, o in zip(first, odd, strict=True)]
    label = [
        [v for v in range(f, f + 16) if v % 3 == at % 3] for f, at in zip(first, t, strict=True)
    ]
    expected = [
        rank // 4 * 100 + 4, 800 + rank // 2, first + 4 + odd, sums,
        [len(group) * 100 + group.index(at) for group, at in zip(label, t, strict=True)],
        t * 100 + 64, t % 8 * 100 + 8, rank * 100 + 16, rank // 2 // 4 * 100 + 40 + rank // 2 % 4,
        np.where(t % 4 == 0, 800 + t % 32 // 4, -1), t + 64000 + t * 100000,
    ]  # fmt: skip
    for column, value in enumerate(expected):
        np.testing.assert_array_equal(got[:, column], value, f"column {column}")


def test_group_copies() -> None:
    got = run(
        """__shared__ int staged[40];
        auto block = cg::this_thread_block();
        __shared__ int source[40];
        for (int i = t; i < 40; i += blockDim.x) source[i] = 3 * i;
        block.sync();
        cg::memcpy_async(block, staged, source, sizeof(staged));
        cg::wait(block);
        o[0] = staged[39 - t];""",
        24, GROUPS,
    )  # fmt: skip
    np.testing.assert_array_equal(got[:, 0], 3 * (39 - np.arange(24)))


def test_a_grid_that_waits_for_all_of_itself() -> None:
    source = (
        GROUPS
        + """__global__ void k(int* counter, int* out) {
          auto grid = cg::this_grid();
          atomicAdd(counter, 1);
          grid.sync();
          out[grid.thread_rank()] = *(volatile int*)counter * 10 + grid.is_valid();
        }"""
    )
    counter, out = np.zeros(1, np.int32), np.zeros(3 * 8, np.int32)
    ons.Module(source).k.launch((counter, out), grid=3, block=8, cooperative=True)
    assert (out == 241).all()


def test_the_options_macros_do_not_reach_into_the_headers() -> None:
    got = run(
        "o[0] = cg::reduce(cg::tiled_partition<4>(cg::this_thread_block()), t, cg::plus<int>()) + size;",
        4, GROUPS, options=["-Dsize=100", "-Dlanes=bad +", "-Drank=bad +", "-Dvalue=bad +"],
    )  # fmt: skip
    assert (got == 106).all()
