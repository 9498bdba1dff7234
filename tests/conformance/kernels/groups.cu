// Cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

// case: grid=2, out=zeros(grid * block), each=True
__global__ void block_group(unsigned* out) {
  __shared__ unsigned s[1024];
  cg::thread_block block = cg::this_thread_block();
  unsigned t = block.thread_rank(), m = block.size();
  s[t] = t * 3 + block.group_index().x;
  block.sync();
  out[blockIdx.x * m + t] = s[m - 1 - t] + block.thread_index().x * 7;
}

// case: blocks=[(1, 1, 1), (2, 3, 4), (16, 4), (8, 8, 4)], grid=(2, 2), out=zeros(grid * block), each=True
__global__ void ranks(unsigned* out) {
  cg::thread_block block = cg::this_thread_block();
  unsigned b = block.group_index().y * gridDim.x + block.group_index().x;
  out[b * block.size() + block.thread_rank()] =
      block.thread_rank() + 1000 * block.dim_threads().y + block.num_threads();
}

// case: blocks=warps, grid=1, out=zeros(3 * block), each=True
__global__ void tiles_of_8(unsigned* out) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  unsigned t = threadIdx.x, m = blockDim.x;
  out[t] = tile.thread_rank() + 10 * tile.meta_group_rank() + 10000 * tile.meta_group_size();
  out[m + t] = tile.shfl(t, 3) + 1000 * tile.shfl_xor(t & 7, 5u);
  out[2 * m + t] = (tile.shfl_up(t, 2) & 31) + 100 * (tile.shfl_down(t, 3) & 31);
}

// case: blocks=warps, grid=1, a=ints(-9, 9, 1024), out=zeros(4 * block), each=True
__global__ void votes_of_tiles(const int* a, unsigned* out) {
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  unsigned t = threadIdx.x, m = blockDim.x;
  out[t] = tile.ballot(a[t] > 0);
  out[m + t] = tile.any(a[t] == 9) != 0;
  out[2 * m + t] = tile.all(a[t] > -9) != 0;
  out[3 * m + t] = tile.match_any(a[t] / 4);
}

// case: blocks=warps, grid=2, a=ints(-99, 99, 2048), out=zeros(grid * block), each=True
__global__ void reduce_tiles(const int* a, int* out) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  int i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i];
  for (unsigned k = tile.size() / 2; k > 0; k /= 2) x += tile.shfl_down(x, k);
  out[i] = tile.shfl(x, 0);
}

// case: blocks=warps, grid=1, a=ints(-99, 99, 1024), out=zeros(4 * block), each=True
__global__ void reduce_functions(const int* a, int* out) {
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  int t = threadIdx.x, m = blockDim.x;
  out[t] = cg::reduce(tile, a[t], cg::plus<int>());
  out[m + t] = cg::reduce(tile, a[t], cg::less<int>());
  out[2 * m + t] = cg::reduce(tile, a[t], cg::greater<int>());
  out[3 * m + t] = cg::reduce(tile, a[t], cg::bit_xor<int>());
}

// case: blocks=warps, grid=1, a=ints(-99, 99, 1024), out=zeros(2 * block), each=True
__global__ void scans(const int* a, int* out) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  int t = threadIdx.x;
  out[2 * t] = cg::inclusive_scan(tile, a[t]);
  out[2 * t + 1] = cg::exclusive_scan(tile, a[t]);
}

// case: blocks=warps, grid=1, out=zeros(block), each=True
__global__ void tiles_of_tiles(unsigned* out) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  auto four = cg::tiled_partition<4>(warp);
  unsigned x = four.shfl(threadIdx.x, 1) + four.meta_group_rank() * 1000;
  four.sync();
  out[threadIdx.x] = x + warp.shfl(x, 9);
}

// case: blocks=warps, grid=1, a=ints(0, 9, 1024), out=zeros(block), each=True
__global__ void coalesced(const int* a, unsigned* out) {
  unsigned t = threadIdx.x;
  if (t % 32 >= 20) return;
  cg::coalesced_group active = cg::coalesced_threads();
  out[t] = active.size() + 100 * active.thread_rank() + 10000 * active.shfl((unsigned)a[t], 2);
}

// case: blocks=warps, grid=1, a=ints(0, 9, 1024), out=zeros(block), each=True
__global__ void binary_parts(const int* a, unsigned* out) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  auto part = cg::binary_partition(warp, a[threadIdx.x] > 4);
  out[threadIdx.x] = part.size() * 100 + part.thread_rank();
}

// case: blocks=warps, grid=1, a=ints(0, 3, 1024), out=zeros(block), each=True
__global__ void labeled_parts(const int* a, int* out) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  auto part = cg::labeled_partition(warp, a[threadIdx.x]);
  out[threadIdx.x] = (int)part.size() * 1000 + cg::reduce(part, (int)threadIdx.x & 31, cg::plus<int>());
}

// case: cooperative=True, grid=4, blocks=upto(256), out=zeros(8), n=600, a=ints(-99, 99)
__global__ void grid_sum(const int* a, int* out, int n) {
  cg::grid_group grid = cg::this_grid();
  for (int i = (int)grid.thread_rank(); i < n; i += (int)grid.size()) atomicAdd(&out[i % 4], a[i]);
  grid.sync();
  if (threadIdx.x == 0) out[4 + blockIdx.x] = out[0] + 2 * out[1] + 3 * out[2] + 4 * out[3];
}

// case: cooperative=True, grid=3, blocks=[1, 7, 32, 64, 100, 256], n=200, a=ints(-9, 9), out=zeros(n), b=zeros(n)
__global__ void grid_rounds(const int* a, int* b, int* out, int n) {
  cg::grid_group grid = cg::this_grid();
  int first = (int)grid.thread_rank(), step = (int)grid.num_threads();
  for (int i = first; i < n; i += step) out[i] = a[i];
  for (int k = 0; k < 5; ++k) {
    grid.sync();
    for (int i = first; i < n; i += step) b[i] = out[(i + 1) % n] - 2 * out[(i + n - 1) % n];
    grid.sync();
    for (int i = first; i < n; i += step) out[i] = b[i];
  }
}

// case: cooperative=True, grid=(2, 2), blocks=[1, 32, 96], out=zeros(4)
__global__ void grid_ranks(unsigned* out) {
  cg::grid_group grid = cg::this_grid();
  grid.sync();
  if (threadIdx.x == blockDim.x - 1)
    out[grid.block_rank()] = (unsigned)grid.num_blocks() * 100 + grid.is_valid() * 10 +
                             (grid.thread_rank() / blockDim.x == grid.block_rank());
}

template <class Group>
__device__ int sum_of(const Group& group, int* s, int x) {
  int t = group.thread_rank();
  s[t] = x;
  group.sync();
  for (int half = (int)group.size() / 2; half > 0; half /= 2) {
    if (t < half) s[t] += s[t + half];
    group.sync();
  }
  int r = s[0];
  group.sync();
  return r;
}

// case: blocks=pow2(32), grid=1, a=ints(-99, 99, 1024), out=zeros(2 * block), each=True
__global__ void group_as_an_argument(const int* a, int* out) {
  __shared__ int s[1024];
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  int t = threadIdx.x;
  out[2 * t] = sum_of(block, s, a[t]);
  out[2 * t + 1] = sum_of(tile, s + t / 8 * 8, a[t]);
}
