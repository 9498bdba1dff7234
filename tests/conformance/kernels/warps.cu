// What the threads of a warp do together. A warp is full, or its block's last.

__device__ unsigned lane() { return threadIdx.x & 31; }
// The lanes that there are.
__device__ unsigned everyone() {
  unsigned left = blockDim.x - (threadIdx.x & ~31u);
  return left >= 32 ? ~0u : (1u << left) - 1;
}

// case: blocks=warps, grid=2, a=bits(2048), out=zeros(grid * block), each=True
__global__ void shuffle(const int* a, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int r = __shfl_sync(~0u, a[i], 5);
  r ^= __shfl_sync(~0u, a[i], (lane() * 7 + 3) & 31);
  out[i] = r ^ __shfl_sync(~0u, a[i], 31 - (int)lane());
}

// case: blocks=warps, grid=1, out=zeros(4 * block), each=True
__global__ void shuffle_past_the_ends(int* out) {
  int t = threadIdx.x, m = blockDim.x;
  out[t] = __shfl_up_sync(~0u, t, 3);
  out[m + t] = __shfl_down_sync(~0u, t, 5);
  out[2 * m + t] = __shfl_xor_sync(~0u, t, 17);
  out[3 * m + t] = __shfl_sync(~0u, t, 40);
}

// case: blocks=warps, grid=1, out=zeros(5 * block), each=True
__global__ void shuffle_widths(int* out) {
  int t = threadIdx.x, m = blockDim.x;
  int r[5] = {};
  for (int k = 0; k < 5; ++k) {
    int width = 2 << k;
    r[k] = __shfl_sync(~0u, t, k + 3, width);
    r[k] = r[k] * 64 + (__shfl_up_sync(~0u, t, k + 1, width) & 31);
    r[k] = r[k] * 64 + (__shfl_down_sync(~0u, t, k + 1, width) & 31);
    r[k] = r[k] * 64 + (__shfl_xor_sync(~0u, t, k + 1, width) & 31);
  }
  for (int k = 0; k < 5; ++k) out[k * m + t] = r[k];
}

// case: grid=1, out=zeros(2 * block), each=True
__global__ void shuffle_in_partial_warps(int* out) {
  int t = threadIdx.x;
  unsigned mask = everyone();
  int count = __popc(mask);
  out[2 * t] = __shfl_sync(mask, t * 3, (lane() + 1) % count);
  out[2 * t + 1] = __shfl_up_sync(mask, t, 1);
}

// case: blocks=warps, grid=1, a=bits(1024), b=uniform(-9, 9, 1024), c=uniform(-9, 9, 1024),
//       wide=zeros(block), f=zeros(block), d=zeros(block), u=zeros(block), each=True
__global__ void shuffle_types(const long long* a, const float* b, const double* c, long long* wide,
                              float* f, double* d, unsigned* u) {
  int t = threadIdx.x;
  wide[t] = __shfl_xor_sync(~0u, a[t], 9);
  f[t] = __shfl_down_sync(~0u, b[t], 2);
  d[t] = __shfl_up_sync(~0u, c[t], 7);
  u[t] = __shfl_sync(~0u, (unsigned)a[t], 30) + (unsigned)__shfl_sync(~0u, (unsigned long long)a[t], 1);
}

// case: blocks=warps, grid=2, a=ints(-99, 99, 2048), out=zeros(grid * block), each=True
__global__ void reduce_by_xor(const int* a, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i];
  for (int k = 16; k > 0; k /= 2) x += __shfl_xor_sync(~0u, x, k);
  out[i] = x;
}

// case: blocks=warps, grid=1, a=uniform(-1, 1, 1024), out=zeros(block // 32), each=True
__global__ void float_reduce_by_down(const float* a, float* out) {
  float x = a[threadIdx.x];
  for (int k = 16; k > 0; k /= 2) x += __shfl_down_sync(~0u, x, k);
  if (lane() == 0) out[threadIdx.x / 32] = x;
}

// case: blocks=warps, grid=1, a=ints(-99, 99, 1024), out=zeros(block), each=True
__global__ void scan_by_up(const int* a, int* out) {
  int x = a[threadIdx.x];
  for (int k = 1; k < 32; k *= 2) {
    int before = __shfl_up_sync(~0u, x, k);
    if (lane() >= k) x += before;
  }
  out[threadIdx.x] = x;
}

// case: grid=1, a=ints(-9, 9, 1024), out=zeros(4 * block), each=True
__global__ void votes(const int* a, int* out) {
  int t = threadIdx.x, m = blockDim.x;
  unsigned mask = everyone();
  out[t] = __any_sync(mask, a[t] == 9) != 0;
  out[m + t] = __all_sync(mask, a[t] > -9) != 0;
  out[2 * m + t] = __all_sync(mask, a[t & ~31] > 0) != 0;
  out[3 * m + t] = __uni_sync(mask, a[t] > -9) != 0;
}

// case: grid=1, a=ints(-9, 9, 1024), out=zeros(2 * block), each=True
__global__ void ballots(const int* a, unsigned* out) {
  int t = threadIdx.x;
  unsigned ballot = __ballot_sync(everyone(), a[t] > 0);
  out[2 * t] = ballot;
  out[2 * t + 1] = __popc(ballot & ((1u << lane()) - 1));
}

// case: grid=1, a=ints(0, 5, 1024), b=ints(0, 2, 1024), out=zeros(2 * block), each=True
__global__ void match_any(const int* a, const long long* b, unsigned* out) {
  int t = threadIdx.x;
  unsigned mask = everyone();
  out[2 * t] = __match_any_sync(mask, a[t]);
  out[2 * t + 1] = __match_any_sync(mask, (unsigned long long)b[t] << 33);
}

// case: grid=1, a=ints(0, 15, 1024), out=zeros(3 * block), each=True
__global__ void match_all(const int* a, unsigned* out) {
  int t = threadIdx.x, m = blockDim.x, same = 7;
  unsigned mask = everyone();
  out[t] = __match_all_sync(mask, a[t & ~31], &same);
  out[m + t] = same != 0;
  out[2 * m + t] = __match_all_sync(mask, a[t], &same) | (same != 0);
}

// case: grid=1, a=ints(-999, 999, 1024), s=zeros(3 * block), u=zeros(3 * block), each=True
__global__ void reduce(const int* a, int* s, unsigned* u) {
  int t = threadIdx.x;
  unsigned mask = everyone();
  s[3 * t] = __reduce_add_sync(mask, a[t]);
  s[3 * t + 1] = __reduce_min_sync(mask, a[t]);
  s[3 * t + 2] = __reduce_max_sync(mask, a[t]);
  u[3 * t] = __reduce_and_sync(mask, (unsigned)a[t] | 0xFF00u);
  u[3 * t + 1] = __reduce_or_sync(mask, (unsigned)a[t]);
  u[3 * t + 2] = __reduce_xor_sync(mask, (unsigned)a[t]) + __reduce_max_sync(mask, (unsigned)a[t]);
}

// case: blocks=warps, grid=1, a=ints(-99, 99, 1024), out=zeros(block), each=True
__global__ void halves_of_a_warp(const int* a, int* out) {
  int t = threadIdx.x, x = a[t];
  if (lane() < 16) {
    x += __shfl_xor_sync(0x0000FFFFu, x, 8);
  } else {
    x -= __shfl_xor_sync(0xFFFF0000u, x, 4);
  }
  __syncwarp();
  out[t] = x + __shfl_sync(~0u, x, 16);
}

// case: blocks=warps, grid=1, out=zeros(block), each=True
__global__ void odd_lanes(unsigned* out) {
  int t = threadIdx.x;
  unsigned r = 0;
  if (t & 1) {
    r = __ballot_sync(0xAAAAAAAAu, t % 3 == 0);
    r += __shfl_sync(0xAAAAAAAAu, t, 3);
  }
  out[t] = r;
}

// Lanes that have ended do not take part.
// case: blocks=warps, grid=1, out=zeros(block), each=True
__global__ void exited_lanes(unsigned* out) {
  int t = threadIdx.x;
  if (lane() % 4 == 3) return;
  unsigned mask = 0x77777777u;
  out[t] = __ballot_sync(mask, lane() % 4 == 1) + __reduce_add_sync(mask, (unsigned)t);
}

// case: blocks=warps, grid=1, out=zeros(block), each=True
__global__ void loop_with_leavers(unsigned* out) {
  int t = threadIdx.x;
  unsigned mask = ~0u, r = 0;
  for (unsigned k = 0; k < 32; k += 3) {
    mask = __ballot_sync(mask, lane() >= k);
    if (lane() < k) break;
    r = r * 5 + __popc(mask) + __shfl_sync(mask, t, 31);
  }
  out[t] = r;
}

// case: grid=1, out=zeros(block), each=True
__global__ void active_mask_of_all(unsigned* out) { out[threadIdx.x] = __activemask(); }

// case: blocks=warps, grid=1, a=ints(0, 99, 1024), s=zeros(block // 32), each=True
__global__ void shared_by_a_warp(const int* a, int* s) {
  __shared__ int cells[1024];
  int t = threadIdx.x;
  cells[t] = a[t];
  __syncwarp();
  for (int k = 16; k > 0; k /= 2) {
    int x = lane() < k ? cells[t + k] : 0;
    __syncwarp();
    if (lane() < k) cells[t] += x;
    __syncwarp();
  }
  if (lane() == 0) s[t / 32] = cells[t];
}

// case: blocks=warps, grid=3, a=ints(-99, 99, 3072), out=zeros(3), each=True
__global__ void block_sum_by_warps(const int* a, int* out) {
  __shared__ int sums[32];
  int t = threadIdx.x, x = a[blockIdx.x * blockDim.x + t];
  for (int k = 16; k > 0; k /= 2) x += __shfl_down_sync(~0u, x, k);
  if (lane() == 0) sums[t / 32] = x;
  __syncthreads();
  if (t >= 32) return;
  x = t < blockDim.x / 32 ? sums[t] : 0;
  for (int k = 16; k > 0; k /= 2) x += __shfl_xor_sync(~0u, x, k);
  if (t == 0) out[blockIdx.x] = x;
}

// case: blocks=warps, n=1500, a=ints(-9, 9), grid=cdiv(n, block), out=zeros(n), count=zeros(1)
__global__ void aggregated_count(const int* a, int* out, int* count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  bool keep = i < n && a[i] > 2;
  unsigned ballot = __ballot_sync(~0u, keep);
  int base = 0;
  if (lane() == 0) base = atomicAdd(&count[0], __popc(ballot));
  base = __shfl_sync(~0u, base, 0);
  if (keep) out[i] = base >= 0;
}

// case: blocks=[(8, 4), (4, 4, 4), (16, 6), (32, 1, 3), (2, 16)], grid=1, out=zeros(block), each=True
__global__ void warps_of_3d_blocks(unsigned* out) {
  unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned r = __ballot_sync(~0u, threadIdx.x & 1);
  out[t] = r + __shfl_sync(~0u, t, 6);
}

// case: blocks=warps, grid=1, out=zeros(block), each=True
__global__ void warp_size(int* out) {
  int t = threadIdx.x;
  out[t] = warpSize * 100 + t / warpSize + (t % warpSize) * 3;
}

__device__ int sum_of_warp(int x, unsigned mask = 0xFFFFFFFFu) {
#pragma unroll
  for (int k = 16; k > 0; k >>= 1) x += __shfl_xor_sync(mask, x, k);
  return x;
}

// case: blocks=warps, grid=1, out=zeros(block), each=True
__global__ void shuffle_in_functions(int* out) {
  int t = threadIdx.x;
  out[t] = sum_of_warp(t) - sum_of_warp(sum_of_warp(t & 3));
}

// case: blocks=warps, grid=1, a=ints(-999, 999, 1024), out=zeros(block), each=True
__global__ void bitonic_in_a_warp(const int* a, int* out) {
  int x = a[threadIdx.x], l = lane();
  for (int k = 2; k <= 32; k *= 2) {
    for (int j = k / 2; j > 0; j /= 2) {
      int other = __shfl_xor_sync(~0u, x, j);
      bool up = (l & k) == 0, low = (l & j) == 0;
      x = up == low ? min(x, other) : max(x, other);
    }
  }
  out[threadIdx.x] = x;
}
