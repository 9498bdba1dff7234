// Algorithms that blocks are used for.

// case: n=1024, grid=3, a=ints(-99, 99, 3072), out=zeros(3), blocks=pow2()
__global__ void reduce_tree(const int* a, int* out, int n) {
  __shared__ int s[1024];
  int t = threadIdx.x, sum = 0;
  for (int i = t; i < n; i += blockDim.x) sum += a[blockIdx.x * n + i];
  s[t] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (t < half) s[t] += s[t + half];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = s[0];
}

// case: n=1024, grid=3, a=ints(-99, 99, 3072), out=zeros(3)
__global__ void reduce_any_size(const int* a, int* out, int n) {
  __shared__ int s[1024];
  int t = threadIdx.x, sum = 0;
  for (int i = t; i < n; i += blockDim.x) sum += a[blockIdx.x * n + i];
  s[t] = sum;
  __syncthreads();
  for (int count = blockDim.x; count > 1;) {
    int rest = (count + 1) / 2;
    if (t + rest < count) s[t] += s[t + rest];
    count = rest;
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = s[0];
}

// case: n=2000, grid=2, a=spread(-9, 9), most=zeros(2), at=zeros(2)
__global__ void arg_max(const float* a, float* most, int* at, int n) {
  __shared__ float best[1024];
  __shared__ int where[1024];
  int t = threadIdx.x, half = n / 2, base = blockIdx.x * half;
  float b = -1e30f;
  int w = 0;
  for (int i = t; i < half; i += blockDim.x) {
    if (a[base + i] > b) b = a[base + i], w = i;
  }
  best[t] = b, where[t] = w;
  for (int count = blockDim.x; count > 1;) {
    int rest = (count + 1) / 2;
    __syncthreads();
    if (t + rest < count && best[t + rest] > best[t]) {
      best[t] = best[t + rest];
      where[t] = where[t + rest];
    }
    count = rest;
  }
  if (t == 0) most[blockIdx.x] = best[0], at[blockIdx.x] = where[0];
}

// The order of a float sum is the block's.
// case: a=uniform(-1, 1, 1024), grid=1, out=zeros(1), each=True
__global__ void float_sum(const float* a, float* out) {
  __shared__ float s[1024];
  int t = threadIdx.x;
  s[t] = a[t];
  __syncthreads();
  for (int count = blockDim.x; count > 1;) {
    int rest = (count + 1) / 2;
    if (t + rest < count) s[t] += s[t + rest];
    count = rest;
    __syncthreads();
  }
  if (t == 0) out[0] = s[0];
}

// case: a=ints(-99, 99, 2048), grid=2, out=zeros(grid * block), each=True
__global__ void inclusive_scan(const int* a, int* out) {
  __shared__ int s[1024];
  int t = threadIdx.x, base = blockIdx.x * blockDim.x;
  s[t] = a[base + t];
  for (int step = 1; step < blockDim.x; step *= 2) {
    __syncthreads();
    int before = t >= step ? s[t - step] : 0;
    __syncthreads();
    s[t] += before;
  }
  out[base + t] = s[t];
}

// case: a=ints(-99, 99, 1024), grid=1, out=zeros(block), blocks=pow2(2), each=True
__global__ void exclusive_scan_tree(const int* a, int* out) {
  __shared__ int s[1024];
  int t = threadIdx.x, m = blockDim.x, offset = 1;
  s[t] = a[t];
  for (int d = m >> 1; d > 0; d >>= 1, offset *= 2) {
    __syncthreads();
    if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
  }
  if (t == 0) s[m - 1] = 0;
  for (int d = 1; d < m; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (t < d) {
      int left = offset * (2 * t + 1) - 1, right = offset * (2 * t + 2) - 1;
      int x = s[left];
      s[left] = s[right];
      s[right] += x;
    }
  }
  __syncthreads();
  out[t] = s[t];
}

// case: blocks=[(8, 8), (16, 16)], n=50, a=ints(-99, 99, 50 * 41), out=zeros(50 * 41),
//       grid=(cdiv(41, int(block ** 0.5)), cdiv(50, int(block ** 0.5)))
__global__ void transpose_tiles(const int* a, int* out, int n) {
  __shared__ int tile[16][17];
  const int rows = n, columns = 41, size = blockDim.x;
  int x = blockIdx.x * size + threadIdx.x, y = blockIdx.y * size + threadIdx.y;
  if (x < columns && y < rows) tile[threadIdx.y][threadIdx.x] = a[y * columns + x];
  __syncthreads();
  x = blockIdx.y * size + threadIdx.x, y = blockIdx.x * size + threadIdx.y;
  if (x < rows && y < columns) out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}

// case: n=3000, a=bits(), grid=3, out=zeros(256)
__global__ void histogram(const unsigned char* a, int* out, int n) {
  __shared__ int bins[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(&bins[a[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&out[i], bins[i]);
}

// case: n=512, grid=2, a=ints(-999, 999, 1024), out=zeros(1024)
__global__ void bitonic_sort(const int* a, int* out, int n) {
  __shared__ int s[512];
  int base = blockIdx.x * n;
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = a[base + i];
  for (int k = 2; k <= n; k *= 2) {
    for (int j = k / 2; j > 0; j /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int other = i ^ j;
        if (other > i && (s[i] > s[other]) == ((i & k) == 0)) {
          int x = s[i];
          s[i] = s[other];
          s[other] = x;
        }
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[base + i] = s[i];
}

// case: n=300, a=ints(-99, 99), grid=1, out=zeros(n)
__global__ void odd_even_sort(const int* a, int* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = a[i];
  __syncthreads();
  for (int round = 0; round < n; ++round) {
    for (int i = 2 * threadIdx.x + (round & 1); i + 1 < n; i += 2 * blockDim.x) {
      int x = out[i], y = out[i + 1];
      if (x > y) out[i] = y, out[i + 1] = x;
    }
    __syncthreads();
  }
}

// case: blocks=[(8, 8), (16, 16)], n=35, a=ints(-9, 9, 35 * 20), b=ints(-9, 9, 20 * 27),
//       out=zeros(35 * 27), grid=(cdiv(27, int(block ** 0.5)), cdiv(35, int(block ** 0.5)))
__global__ void matmul_tiles(const float* a, const float* b, float* out, int n) {
  __shared__ float as[16][16], bs[16][16];
  const int rows = n, inner = 20, columns = 27, size = blockDim.x;
  int tx = threadIdx.x, ty = threadIdx.y;
  int x = blockIdx.x * size + tx, y = blockIdx.y * size + ty;
  float sum = 0;
  for (int first = 0; first < inner; first += size) {
    as[ty][tx] = y < rows && first + tx < inner ? a[y * inner + first + tx] : 0.0f;
    bs[ty][tx] = first + ty < inner && x < columns ? b[(first + ty) * columns + x] : 0.0f;
    __syncthreads();
    for (int k = 0; k < size; ++k) sum += as[ty][k] * bs[k][tx];
    __syncthreads();
  }
  if (y < rows && x < columns) out[y * columns + x] = sum;
}

// case: n=1500, a=ints(-99, 99), grid=cdiv(n, block)
__global__ void stencil_1d(const int* a, int* out, int n) {
  __shared__ int s[1024 + 8];
  int t = threadIdx.x, first = blockIdx.x * blockDim.x, i = first + t;
  for (int k = t; k < (int)blockDim.x + 8; k += blockDim.x) {
    int from = first + k - 4;
    s[k] = from >= 0 && from < n ? a[from] : 0;
  }
  __syncthreads();
  if (i >= n) return;
  int sum = 0;
  for (int k = 0; k < 9; ++k) sum += (5 - abs(k - 4)) * s[t + k];
  out[i] = sum;
}

// case: blocks=[(8, 4), (16, 8), (32, 2), (5, 7)], n=40, a=ints(-99, 99, 1600), out=zeros(1600),
//       grid=(20, 20)
__global__ void stencil_2d(const float* a, float* out, int n) {
  __shared__ float s[34 * 18];
  int w = blockDim.x + 2, h = blockDim.y + 2, m = blockDim.x * blockDim.y;
  int x0 = blockIdx.x * blockDim.x, y0 = blockIdx.y * blockDim.y;
  for (int k = threadIdx.y * blockDim.x + threadIdx.x; k < w * h; k += m) {
    int x = min(max(x0 + k % w - 1, 0), n - 1), y = min(max(y0 + k / w - 1, 0), n - 1);
    s[k] = a[y * n + x];
  }
  __syncthreads();
  int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
  if (x >= n || y >= n) return;
  const float* c = &s[(threadIdx.y + 1) * w + threadIdx.x + 1];
  out[y * n + x] = c[-1] + c[1] + c[-w] + c[w] - 4.0f * c[0];
}

// case: n=900, a=ints(0, 3), grid=1, out=zeros(n), count=zeros(1), each=False
__global__ void stable_compaction(const int* a, int* out, int* count, int n) {
  __shared__ int s[1024];
  __shared__ int base;
  int t = threadIdx.x;
  if (t == 0) base = 0;
  for (int first = 0; first < n; first += blockDim.x) {
    int i = first + t, keep = i < n && a[i] != 0;
    s[t] = keep;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
      int before = t >= step ? s[t - step] : 0;
      __syncthreads();
      s[t] += before;
      __syncthreads();
    }
    if (keep) out[base + s[t] - 1] = i;
    __syncthreads();
    if (t == (int)blockDim.x - 1) base += s[t];
    __syncthreads();
  }
  if (t == 0) count[0] = base;
}

// case: n=64, grid=1, a=ints(0, 9, n * n), out=zeros(n)
__global__ void relaxation(const int* a, int* out, int n) {
  __shared__ int distance[64];
  __shared__ int next[64];
  for (int i = threadIdx.x; i < n; i += blockDim.x) distance[i] = i == 0 ? 0 : 100000;
  __syncthreads();
  for (;;) {
    int changed = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      int best = distance[i];
      for (int k = 0; k < n; ++k)
        if (a[k * n + i] > 6) best = min(best, distance[k] + a[k * n + i]);
      changed |= best != distance[i];
      next[i] = best;
    }
    changed = __syncthreads_or(changed);
    for (int i = threadIdx.x; i < n; i += blockDim.x) distance[i] = next[i];
    __syncthreads();
    if (!changed) break;
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = distance[i];
}

// case: n=31, grid=1, out=zeros(31 * 31)
__global__ void pascal(int* out, int n) {
  __shared__ int row[32];
  if (threadIdx.x == 0) row[0] = 1;
  for (int i = 1 + threadIdx.x; i < 32; i += blockDim.x) row[i] = 0;
  __syncthreads();
  for (int y = 0; y < n; ++y) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[y * n + i] = row[i];
    __syncthreads();
    // From the right, as many at a time as there are threads.
    for (int last = n - 1; last > 0; last -= blockDim.x) {
      int i = last - (int)threadIdx.x;
      int sum = i > 0 ? (int)((unsigned)row[i] + (unsigned)row[i - 1]) : 0;
      __syncthreads();
      if (i > 0) row[i] = sum;
      __syncthreads();
    }
  }
}

// A ring that is written ahead of its readers.
// case: n=600, grid=1, a=ints(-9, 9), out=zeros(n), blocks=upto(256)
__global__ void double_buffer(const int* a, int* out, int n) {
  __shared__ int stage[2][256];
  int t = threadIdx.x, m = blockDim.x, phases = (n + m - 1) / m;
  stage[0][t] = t < n ? a[t] : 0;
  for (int p = 0; p < phases; ++p) {
    __syncthreads();
    int ahead = (p + 1) * m + t;
    stage[(p + 1) & 1][t] = ahead < n ? a[ahead] : 0;
    int i = p * m + m - 1 - t;
    if (i < n) out[i] = stage[p & 1][m - 1 - t] * 2 + 1;
  }
}

// case: n=800, a=ints(0, 255), grid=1, out=zeros(n)
__global__ void radix_sort(const unsigned* a, unsigned* out, int n) {
  __shared__ unsigned from[800], to[800];
  __shared__ int zeros;
  for (int i = threadIdx.x; i < n; i += blockDim.x) from[i] = a[i];
  for (int bit = 0; bit < 8; ++bit) {
    if (threadIdx.x == 0) zeros = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      if (!(from[i] >> bit & 1)) atomicAdd(&zeros, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
      int z = 0, o = zeros;
      for (int i = 0; i < n; ++i) to[from[i] >> bit & 1 ? o++ : z++] = from[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) from[i] = to[i];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = from[i];
}
