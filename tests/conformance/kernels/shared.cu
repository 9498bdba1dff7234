// Static and dynamic shared memory, and barriers.

// case: grid=2, a=ints(-99, 99, 2048), out=zeros(2 * block), each=True
__global__ void reversed(const int* a, int* out) {
  __shared__ int s[1024];
  int t = threadIdx.x, base = blockIdx.x * blockDim.x;
  s[t] = a[base + t];
  __syncthreads();
  out[base + t] = s[blockDim.x - 1 - t];
}

// case: grid=3, a=ints(-99, 99, 3072), out=zeros(3 * block), shared=4 * block, each=True
__global__ void dynamic_reversed(const int* a, int* out) {
  extern __shared__ int dynamic_ints[];
  int t = threadIdx.x, base = blockIdx.x * blockDim.x;
  dynamic_ints[t] = a[base + t];
  __syncthreads();
  out[base + t] = dynamic_ints[blockDim.x - 1 - t] + t;
}

extern __shared__ float at_file_scope[];

// case: a=ints(-99, 99, 1024), out=zeros(block), grid=1, shared=4 * block, each=True
__global__ void dynamic_of_the_file(const float* a, float* out) {
  int t = threadIdx.x;
  at_file_scope[t] = a[t];
  __syncthreads();
  out[t] = at_file_scope[(t + 1) % blockDim.x] * 0.5f;
}

// case: a=ints(-99, 99, 1024), out=zeros(block), grid=1, shared=12 * block + 16, each=True
__global__ void dynamic_parts(const float* a, double* out) {
  extern __shared__ __align__(16) unsigned char raw[];
  double* d = reinterpret_cast<double*>(raw);
  float* f = reinterpret_cast<float*>(d + blockDim.x);
  int t = threadIdx.x, m = blockDim.x;
  d[t] = a[t] * 0.25;
  f[m - 1 - t] = a[t];
  __syncthreads();
  out[t] = d[(t + 3) % m] + f[(t + 5) % m];
}

template <class T>
__device__ void swap_through(T* x, int t, int m) {
  extern __shared__ __align__(8) unsigned char bytes[];
  T* s = reinterpret_cast<T*>(bytes);
  s[t] = x[t];
  __syncthreads();
  x[t] = s[m - 1 - t];
  __syncthreads();
}

// case: a=ints(-9, 9, 1024)[:block], b=ints(-9, 9, 1024)[:block], grid=1, shared=8 * block,
//       each=True
__global__ void dynamic_in_template(double* a, short* b) {
  swap_through(a, threadIdx.x, blockDim.x);
  swap_through(b, threadIdx.x, blockDim.x);
}

// case: grid=1, out=zeros(block), each=True
__global__ void two_arrays(int* out) {
  __shared__ int left[1024];
  __shared__ short right[1024];
  int t = threadIdx.x;
  left[t] = t * 3;
  right[blockDim.x - 1 - t] = (short)t;
  __syncthreads();
  out[t] = left[(t + 7) % blockDim.x] - right[t];
}

// case: grid=5, out=zeros(5)
__global__ void scalar_of_the_block(int* out) {
  __shared__ int value;
  if (threadIdx.x == blockDim.x - 1) value = blockIdx.x * 11;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = value;
}

struct Cell {
  float weight;
  int key[2];
};

// case: grid=2, out=zeros(2 * block), each=True
__global__ void structs(float* out) {
  __shared__ Cell cells[1024];
  int t = threadIdx.x, m = blockDim.x;
  cells[t].weight = t * 0.5f;
  cells[t].key[0] = m - 1 - t;
  cells[t].key[1] = blockIdx.x;
  __syncthreads();
  Cell c = cells[cells[t].key[0]];
  out[blockIdx.x * m + t] = c.weight + c.key[1];
}

// case: grid=1, out=zeros(32 * 33), blocks=[(32, 32), (32, 8), (32, 1)]
__global__ void matrix_with_padding(int* out) {
  __shared__ int tile[32][33];
  for (int y = threadIdx.y; y < 32; y += blockDim.y) tile[y][threadIdx.x] = y * 100 + threadIdx.x;
  __syncthreads();
  for (int y = threadIdx.y; y < 32; y += blockDim.y) out[y * 33 + threadIdx.x] = tile[threadIdx.x][y];
}

// case: grid=2, a=ints(0, 99, 1024), out=zeros(grid * block), each=True
__global__ void barriers_in_a_loop(const int* a, int* out) {
  __shared__ int s[2][1024];
  int t = threadIdx.x, m = blockDim.x;
  s[0][t] = a[t] + blockIdx.x;
  __syncthreads();
  for (int k = 0; k < 9; ++k) {
    s[(k + 1) & 1][t] = s[k & 1][t] + 3 * s[k & 1][(t + k) % m];
    __syncthreads();
  }
  out[blockIdx.x * m + t] = s[1][t];
}

// case: a=ints(-9, 9, 1024), grid=1, out=zeros(3), each=True
__global__ void counts(const int* a, int* out) {
  int t = threadIdx.x;
  int count = __syncthreads_count(a[t] > 0);
  int all = __syncthreads_and(a[t] > -9);
  int some = __syncthreads_or(a[t] == 9);
  if (t == blockDim.x - 1) out[0] = count, out[1] = all != 0, out[2] = some != 0;
}

// case: a=ints(-3, 3, 1024), grid=1, out=zeros(block), each=True
__global__ void count_until_stable(const int* a, int* out) {
  int t = threadIdx.x, x = a[t], rounds = 0;
  while (__syncthreads_or(x != 0)) {
    if (x > 0) --x;
    if (x < 0) ++x;
    ++rounds;
  }
  out[t] = rounds;
}

// Threads that have ended do not count.
// case: grid=1, out=zeros(block), each=True
__global__ void exit_before_the_barrier(int* out) {
  __shared__ int s[1024];
  int t = threadIdx.x, half = (blockDim.x + 1) / 2;
  s[t] = t;
  if (t >= half) return;
  __syncthreads();
  out[t] = s[half - 1 - t] + 1;
}

// case: n=700, a=ints(-9, 9), grid=cdiv(n, block), out=zeros(grid), each=True
__global__ void guard_before_the_barrier(const int* a, int* out, int n) {
  __shared__ int s[1024];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  s[threadIdx.x] = a[i];
  __syncthreads();
  if (threadIdx.x != 0) return;
  int sum = 0, last = min((int)blockDim.x, n - (int)(blockIdx.x * blockDim.x));
  for (int k = 0; k < last; ++k) sum += s[k];
  out[blockIdx.x] = sum;
}

__device__ __forceinline__ void publish(int* s, int t, int value) {
  s[t] = value;
  __syncthreads();
}

// case: grid=1, out=zeros(block), each=True
__global__ void barrier_in_a_function(int* out) {
  __shared__ int s[1024];
  int t = threadIdx.x;
  publish(s, t, t * t);
  out[t] = s[blockDim.x - 1 - t];
}

#define MEET() __syncthreads()
#define PUBLISH(s, t, value) \
  do {                       \
    (s)[t] = (value);        \
    MEET();                  \
  } while (0)

// case: grid=1, out=zeros(block), each=True
__global__ void barrier_in_a_macro(int* out) {
  __shared__ int s[1024];
  int t = threadIdx.x;
  PUBLISH(s, t, 5 * t);
  int x = s[(t + 1) % blockDim.x];
  MEET();
  PUBLISH(s, t, x + 1);
  out[t] = s[(t + 1) % blockDim.x];
}

__device__ __noinline__ int sum_of_block(int value) {
  __shared__ int total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  atomicAdd(&total, value);
  __syncthreads();
  int result = total;
  __syncthreads();
  return result;
}

// case: grid=3, out=zeros(grid * block), each=True
__global__ void shared_in_a_function(int* out) {
  int first = sum_of_block(threadIdx.x + blockIdx.x);
  int second = sum_of_block(first - (int)threadIdx.x);
  out[blockIdx.x * blockDim.x + threadIdx.x] = first + 2 * second;
}

// A block's condition: all of its threads take the same way.
// case: grid=4, out=zeros(grid * block), each=True
__global__ void barrier_where_all_agree(int* out) {
  __shared__ int s[1024];
  int t = threadIdx.x, m = blockDim.x;
  s[t] = t;
  if (blockIdx.x & 1) {
    __syncthreads();
    s[t] = s[t] + 1;
  }
  __syncthreads();
  out[blockIdx.x * m + t] = s[m - 1 - t];
}

// case: blocks=[(1, 1, 1), (2, 3, 4), (4, 4, 4), (7, 1, 9), (16, 8, 8)], grid=2, each=True,
//       out=zeros(2 * block)
__global__ void three_dimensions(int* out) {
  __shared__ int s[1024];
  int m = blockDim.x * blockDim.y * blockDim.z;
  int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  s[t] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z;
  __syncthreads();
  out[blockIdx.x * m + t] = s[m - 1 - t] + 1000 * threadIdx.z;
}

// case: grid=2, out=zeros(grid * 64), most=zeros(grid * 64), blocks=[1, 7, 32, 64, 100, 1024]
__global__ void shared_atomics(int* out, int* most) {
  __shared__ int s[64], m[64];
  for (int i = threadIdx.x; i < 64; i += blockDim.x) s[i] = m[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < 5000; i += blockDim.x) {
    atomicAdd(&s[i % 64], i);
    atomicMax(&m[(i * 7 + 1) % 64], (i * 31) % 1009);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) {
    out[blockIdx.x * 64 + i] = s[i];
    most[blockIdx.x * 64 + i] = m[i];
  }
}

// The largest static size there is: 48 KiB.
// case: grid=2, out=zeros(grid * 12), blocks=[1, 33, 128, 1024]
__global__ void all_of_48_kib(int* out) {
  __shared__ int s[12288];
  for (int i = threadIdx.x; i < 12288; i += blockDim.x) s[i] = i ^ (int)blockIdx.x;
  __syncthreads();
  for (int i = threadIdx.x; i < 12; i += blockDim.x) {
    int sum = 0;
    for (int k = 0; k < 1024; ++k) sum += s[i * 1024 + (k * 37) % 1024] * (k & 3);
    out[blockIdx.x * 12 + i] = sum;
  }
}

// Past 48 KiB by request.
// case: grid=1, out=zeros(16), blocks=[1, 64, 1000], shared=100000
__global__ void much_dynamic(int* out) {
  extern __shared__ int much[];
  for (int i = threadIdx.x; i < 25000; i += blockDim.x) much[i] = i * 3;
  __syncthreads();
  for (int i = threadIdx.x; i < 16; i += blockDim.x) out[i] = much[24999 - i * 1500];
}

// case: grid=1, out=zeros(block), each=True
__global__ void lambda_with_a_barrier(int* out) {
  __shared__ int s[1024];
  int t = threadIdx.x;
  auto turn = [&](int value) {
    s[t] = value;
    __syncthreads();
    int r = s[(t + 1) % blockDim.x];
    __syncthreads();
    return r;
  };
  out[t] = turn(turn(t));
}
