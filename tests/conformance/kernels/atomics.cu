// Atomics whose results do not depend on the order.

#define AT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return

// case: a=ints(-99, 99), b=ints(0, 999), out=zeros(10), u=zeros(10)
__global__ void add_int(const int* a, const unsigned* b, int* out, unsigned* u, int n) {
  AT;
  atomicAdd(&out[i % 10], a[i]);
  atomicAdd(&u[i % 7], b[i]);
}

// case: out=zeros(5)
__global__ void add_64(const unsigned long long* a, unsigned long long* out, int n) {
  AT;
  atomicAdd(&out[i % 5], a[i]);
}

// Sums of small integers are exact in any order.
// case: a=ints(-99, 99), b=ints(-99, 99), out=zeros(6), wide=zeros(6)
__global__ void add_float(const float* a, const double* b, float* out, double* wide, int n) {
  AT;
  atomicAdd(&out[i % 6], a[i]);
  atomicAdd(&wide[i % 6], b[i]);
}

// case: a=ints(-99, 99), out=full(1000, 4)
__global__ void sub(const int* a, int* out, int n) {
  AT;
  atomicSub(&out[i & 3], a[i]);
}

// case: out=full(2 ** 31 - 1, 8), most=full(-(2 ** 31), 8)
__global__ void min_max_int(const int* a, int* out, int* most, int n) {
  AT;
  atomicMin(&out[i & 7], a[i]);
  atomicMax(&most[i & 7], a[i] >> 1);
}

// case: out=full(2 ** 32 - 1, 8), most=zeros(8)
__global__ void min_max_unsigned(const unsigned* a, unsigned* out, unsigned* most, int n) {
  AT;
  atomicMin(&out[i & 7], a[i]);
  atomicMax(&most[i & 7], a[i] >> 1);
}

// case: out=full(2 ** 62, 8), most=full(0, 8)
__global__ void min_max_64(const long long* a, const unsigned long long* b, long long* out,
                           unsigned long long* most, int n) {
  AT;
  atomicMin(&out[i & 7], a[i]);
  atomicMax(&most[i & 7], b[i] >> 2);
}

// case: ands=full(2 ** 32 - 1, 9), ors=zeros(9), xors=zeros(9)
__global__ void bitwise(const unsigned* a, unsigned* ands, unsigned* ors, unsigned* xors, int n) {
  AT;
  atomicAnd(&ands[i % 9], a[i] | 0x0F0F0000u | (1u << (i & 31)));
  atomicOr(&ors[i % 9], a[i] & 0x11111111u & (1u << (i & 31)));
  atomicXor(&xors[i % 9], a[i]);
}

// case: ands=full(2 ** 64 - 1, 9), ors=zeros(9), xors=zeros(9)
__global__ void bitwise_64(const unsigned long long* a, unsigned long long* ands,
                           unsigned long long* ors, unsigned long long* xors, int n) {
  AT;
  atomicAnd(&ands[i % 9], a[i] | 1ull << (i & 63));
  atomicOr(&ors[i % 9], a[i] & 1ull << (i & 63));
  atomicXor(&xors[i % 9], a[i]);
}

// Who meets whom is open; all that was put in comes out once.
// case: out=zeros(1), sum=zeros(1), count=zeros(1)
__global__ void exchange(int* out, unsigned long long* sum, int* count, int n) {
  AT;
  atomicAdd(&sum[0], (unsigned long long)atomicExch(&out[0], i + 1));
  __threadfence();
  if (atomicAdd(&count[0], 1) != n - 1) return;
  atomicAdd(&sum[0], (unsigned long long)atomicExch(&out[0], 0));
}

// case: out=zeros(1), seen=zeros(101)
__global__ void increment(unsigned* out, int* seen, int n) {
  AT;
  atomicAdd(&seen[atomicInc(&out[0], 100)], 1);
}

// case: out=full(7, 1), seen=zeros(101)
__global__ void decrement(unsigned* out, int* seen, int n) {
  AT;
  atomicAdd(&seen[atomicDec(&out[0], 100)], 1);
}

// case: a=ints(1, 9), out=full(1, 4)
__global__ void multiply_by_cas(const int* a, unsigned* out, int n) {
  AT;
  unsigned old = out[i & 3], assumed;
  do {
    assumed = old;
    old = atomicCAS(&out[i & 3], assumed, assumed * (2u * (unsigned)a[i] + 1u));
  } while (old != assumed);
}

// case: a=spread(-8, 8), out=zeros(4)
__global__ void float_max_by_cas(const float* a, float* out, int n) {
  AT;
  int* at = reinterpret_cast<int*>(&out[i & 3]);
  int old = *at, assumed;
  do {
    assumed = old;
    old = atomicCAS(at, assumed, __float_as_int(fmaxf(__int_as_float(assumed), a[i])));
  } while (old != assumed);
}

// case: out=full(-1, 1), wide=zeros(1), small=zeros(1)
__global__ void cas_widths(int* out, unsigned long long* wide, unsigned short* small, int n) {
  AT;
  atomicCAS(&out[0], -1, 77);
  atomicCAS(&wide[0], 0ull, 1ull << 40);
  atomicCAS(&small[0], (unsigned short)0, (unsigned short)555);
}

// case: a=ints(0, 15), out=zeros(16), sys=zeros(16)
__global__ void scopes(const int* a, int* out, int* sys, int n) {
  AT;
  atomicAdd_system(&sys[a[i]], i);
  atomicMax_system(&out[a[i]], i);
  atomicOr_system(&out[a[i]], 0);
}

// case: a=ints(0, 15), out=zeros(16 * grid), grid=4
__global__ void block_scope(const int* a, int* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    atomicAdd_block(&out[16 * blockIdx.x + a[i]], 1 + (int)blockIdx.x);
}

// Slots are taken in any order; each is taken once.
// case: a=ints(0, 1), taken=zeros(n + 1), count=zeros(1)
__global__ void compaction(const int* a, int* taken, int* count, int n) {
  AT;
  if (a[i]) atomicAdd(&taken[atomicAdd(&count[0], 1)], 1);
}

// case: out=zeros(2), grid=7, last=zeros(1)
__global__ void last_block(unsigned* out, int* last) {
  if (threadIdx.x != 0) return;
  atomicAdd(&out[1], blockIdx.x);
  __threadfence();
  if (atomicAdd(&out[0], 1u) == gridDim.x - 1) last[0] = (int)atomicAdd(&out[1], 0u);
}

// case: n=256, out=zeros(1), grid=1, blocks=[1, 7, 64, 256]
__global__ void spin_lock_by_one(int* out, unsigned* lock, int n) {
  if (threadIdx.x != 0) return;
  while (atomicCAS(&lock[0], 0u, 1u) != 0u) {}
  out[0] += n;
  __threadfence();
  atomicExch(&lock[0], 0u);
}

// case: a=ints(-9, 9), out=zeros(2)
__global__ void add_float2(const float* a, float* out, int n) {
  AT;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float2*>(out), make_float2(a[i], 1.0f));
#endif
}
