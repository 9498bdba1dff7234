// Where threads are, and which elements they take.

// case: a=ints(-1000, 1000)
__global__ void linear(const int* a, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2 * a[i] + i;
}

// case: a=ints(-1000, 1000)
__global__ void early_return(const int* a, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (a[i] < 0) return;
  out[i] = a[i];
}

// case: grid=3, a=ints(-1000, 1000)
__global__ void grid_stride(const int* a, int* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    out[i] = a[i] * a[i];
}

// case: grid=2, a=ints(-1000, 1000)
__global__ void grid_stride_down(const int* a, int* out, int n) {
  int i = n - 1 - (int)(blockIdx.x * blockDim.x + threadIdx.x);
  for (; i >= 0; i -= blockDim.x * gridDim.x) out[i] = a[n - 1 - i];
}

// case: n=37, out=zeros(n * 53), grid=(cdiv(53, block), 37)
__global__ void rows_in_y(int* out, int n) {
  unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column < 53) out[blockIdx.y * 53 + column] = (int)(column * 1000 + blockIdx.y) - n;
}

// case: n=19, blocks=[(1, 1), (2, 3), (8, 4), (4, 8), (16, 16), (32, 32), (1, 32), (32, 1),
//       (7, 11), (5, 1, 3)], grid=(19, 23), out=zeros(19 * 23)
__global__ void matrix_2d(int* out, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < n && y < 23) out[y * n + x] = x * 100 + y;
}

// case: blocks=[(1, 1, 1), (2, 3, 4), (4, 2, 8), (8, 8, 8), (3, 5, 7), (1, 1, 64), (10, 10, 10)],
//       grid=(11, 6, 5), out=zeros(11 * 6 * 5)
__global__ void volume_3d(int* out) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x < 11 && y < 6 && z < 5) out[(z * 6 + y) * 11 + x] = x + 16 * y + 256 * z;
}

// case: blocks=[(1, 1, 1), (2, 3, 4), (5, 1, 7), (16, 4, 2), (32, 32, 1)], each=True,
//       grid=(2, 3, 2), out=zeros(grid * block)
__global__ void where(unsigned* out) {
  unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned code = threadIdx.x | threadIdx.y << 6 | threadIdx.z << 12 | blockIdx.x << 18 |
                  blockIdx.y << 20 | blockIdx.z << 22;
  out[b * blockDim.x * blockDim.y * blockDim.z + t] = code;
}

// case: each=True, grid=(3, 2), out=zeros(12)
__global__ void dimensions(unsigned* out) {
  if (threadIdx.x != blockDim.x - 1 || blockIdx.x != 2 || blockIdx.y != 1) return;
  out[0] = blockDim.x, out[1] = blockDim.y, out[2] = blockDim.z;
  out[3] = gridDim.x, out[4] = gridDim.y, out[5] = gridDim.z;
  out[6] = blockIdx.x, out[7] = blockIdx.y, out[8] = blockIdx.z;
  out[9] = threadIdx.x, out[10] = threadIdx.y, out[11] = threadIdx.z;
}

// case: grid=1, a=ints(-9, 9)
__global__ void block_stride(const int* a, int* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = a[i] + a[(i + 1) % n];
}

// case: at=permutation(), a=ints(-9, 9)
__global__ void gather(const int* at, const int* a, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[at[i]];
}

// case: at=permutation(), a=ints(-9, 9)
__global__ void scatter(const int* at, const int* a, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[at[i]] = a[i];
}

// case: a=ints(0, 300)
__global__ void loop_of_own_length(const int* a, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int sum = 0;
  for (int k = 0; k < a[i]; ++k) {
    if (k % 7 == 3) continue;
    if (sum > 5000) break;
    sum += k ^ i;
  }
  out[i] = sum;
}

// case: a=ints(0, 6)
__global__ void switch_of_paths(const int* a, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int r = i;
  switch (a[i]) {
    case 0: r = -1; break;
    case 1: r += 10;  // falls through
    case 2: r *= 3; break;
    case 4: r = ~r; break;
    case 5: return;
    default: r = 7;
  }
  out[i] = r;
}

// case: a=ints(1, 100000)
__global__ void collatz(const int* a, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long x = a[i];
  int steps = 0;
  while (x != 1) {
    x = x & 1 ? 3 * x + 1 : x / 2;
    ++steps;
  }
  out[i] = steps;
}

// case: n=40, out=zeros(n * n), grid=cdiv(n * n, block)
__global__ void from_flat(int* out, int n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= (long long)n * n) return;
  int row = (int)(i / n), column = (int)(i % n);
  out[i] = row >= column ? row * row - column : 0;
}

// case: blocks=any, grid=4, a=ints(-9, 9)
__global__ void chunks(const int* a, int* out, int n) {
  int threads = gridDim.x * blockDim.x, me = blockIdx.x * blockDim.x + threadIdx.x;
  int size = (n + threads - 1) / threads;
  int first = me * size, last = min(first + size, n);
  for (int i = first; i < last; ++i) out[i] = a[i] - me / threads;
}
