// What programs are made of: variables of the device, templates, functions, recursion, several
// kernels that share code.

#define AT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return

__constant__ float coefficients[8];
__constant__ int shift_of_all = 5;
__device__ int counter;
__device__ int table[16] = {1, 2, 4, 8, 16, 32};
static __device__ const int primes[] = {2, 3, 5, 7, 11, 13, 17, 19};

// case: coefficients=ints(-3, 3, 8), a=ints(-4, 4)
__global__ void constant_array(const float* a, float* out, int n) {
  AT;
  float r = 0;
  for (int k = 7; k >= 0; --k) r = r * a[i] + coefficients[k];
  out[i] = r;
}

// case: a=ints(-9, 9)
__global__ void constant_with_a_value(const int* a, int* out, int n) {
  AT;
  out[i] = a[i] * 32 >> (shift_of_all & 3);
}

// case: counter=full(10, 1), a=ints(0, 9), out=zeros(1), done=zeros(1)
__global__ void device_variable(const int* a, int* out, int* done, int n) {
  AT;
  atomicAdd(&counter, a[i]);
  __threadfence();
  if (atomicAdd(&done[0], 1) == n - 1) out[0] = atomicAdd(&counter, 0);
}

// case: table=ints(-99, 99, 16), a=ints(0, 15)
__global__ void device_array(const int* a, int* out, int n) {
  AT;
  out[i] = table[a[i]] * 2 + table[15 - a[i]];
}

// case: a=ints(0, 7)
__global__ void constant_table(const int* a, int* out, int n) {
  AT;
  out[i] = primes[a[i]] * primes[(a[i] + 3) & 7];
}

template <class T>
__device__ T square(T x) {
  return x * x;
}
template <>
__device__ int square<int>(int x) {
  return x * x + 1;
}

// case: a=ints(-9, 9)
__global__ void device_templates(const int* a, int* out, int n) {
  AT;
  out[i] = square(a[i]) + (int)square((float)a[i]) + (int)square<short>((short)a[i]);
}

// case: name="template_kernel<int, 3>", a=ints(-9, 9)
// case: name="template_kernel<double, 5>", a=ints(-9, 9)
template <class T, int N>
__global__ void template_kernel(const T* a, T* out, int n) {
  AT;
  T sum = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) sum = sum * 2 + a[(i + k) % n];
  out[i] = sum;
}

__device__ int fibonacci(int x) { return x < 2 ? x : fibonacci(x - 1) + fibonacci(x - 2); }

// case: a=ints(0, 12), n=300
__global__ void recursion(const int* a, int* out, int n) {
  AT;
  out[i] = fibonacci(a[i]);
}

__device__ int is_odd(int x);
__device__ int is_even(int x) { return x == 0 ? 1 : is_odd(x - 1); }
__device__ int is_odd(int x) { return x == 0 ? 0 : is_even(x - 1); }

// case: a=ints(0, 40)
__global__ void mutual_recursion(const int* a, int* out, int n) {
  AT;
  out[i] = is_even(a[i]) * 2 + is_odd(a[i] + 3);
}

typedef int (*operation)(int, int);
__device__ int add(int a, int b) { return a + b; }
__device__ int subtract(int a, int b) { return a - b; }
__device__ int multiply(int a, int b) { return a * b; }

// case: a=ints(-99, 99), which=ints(0, 2)
__global__ void function_pointers(const int* a, const int* which, int* out, int n) {
  AT;
  operation all[] = {add, subtract, multiply};
  out[i] = all[which[i]](a[i], i);
}

struct Shape {
  __device__ virtual int area() const = 0;
};
struct Square : Shape {
  int side;
  __device__ explicit Square(int s) : side(s) {}
  __device__ int area() const override { return side * side; }
};
struct Box : Shape {
  int w, h;
  __device__ Box(int w_, int h_) : w(w_), h(h_) {}
  __device__ int area() const override { return w * h; }
};

// case: a=ints(-9, 9)
__global__ void virtual_functions(const int* a, int* out, int n) {
  AT;
  Square s(a[i]);
  Box b(a[i], i);
  const Shape* shape = i & 1 ? static_cast<const Shape*>(&s) : &b;
  out[i] = shape->area();
}

// case: a=ints(-9, 9)
__global__ void lambdas(const int* a, int* out, int n) {
  AT;
  int k = 3;
  auto scaled = [k](int x) { return x * k; };
  auto twice = [&](int x) { return scaled(scaled(x)); };
  out[i] = twice(a[i]) - k;
}

// case: a=ints(-999, 999, 8 * n), n=150
__global__ void local_arrays(const int* a, int* out, int n) {
  AT;
  int s[8];
  for (int k = 0; k < 8; ++k) s[k] = a[8 * i + k];
  for (int k = 1; k < 8; ++k)
    for (int j = k; j > 0 && s[j - 1] > s[j]; --j) {
      int x = s[j];
      s[j] = s[j - 1];
      s[j - 1] = x;
    }
  out[i] = s[3] * 1000 + s[7] - s[0];
}

__host__ __device__ constexpr int power(int base, int exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

// case: a=ints(-9, 9)
__global__ void constexpr_functions(const int* a, int* out, int n) {
  AT;
  constexpr int k = power(3, 5);
  static_assert(k == 243, "");
  out[i] = a[i] * k + power(2, i & 7);
}

namespace inner {
namespace {
__device__ int offset(int x) { return x + 7; }
}  // namespace
enum class Kind : unsigned char { first = 3, second = 9 };
}  // namespace inner

// case: a=ints(-9, 9)
__global__ void namespaces_and_enums(const int* a, int* out, int n) {
  AT;
  inner::Kind kind = a[i] > 0 ? inner::Kind::first : inner::Kind::second;
  out[i] = inner::offset(a[i]) * static_cast<int>(kind);
}

__device__ unsigned next(unsigned& state) {
  state ^= state << 13;
  state ^= state >> 17;
  return state ^= state << 5;
}

// case: n=500, seed=2463534242, out=zeros(n)
__global__ void random_walk(unsigned* out, unsigned seed, int n) {
  AT;
  unsigned state = seed ^ (unsigned)i * 2654435761u, sum = 0;
  for (int k = 0; k < 16; ++k) sum += next(state) >> (k & 7);
  out[i] = sum;
}

// case: n=500, seed=99, out=zeros(n)
__global__ void share_of_a_circle(int* out, unsigned seed, int n) {
  AT;
  unsigned state = seed + 77777u * (unsigned)(i + 1);
  int hits = 0;
  for (int k = 0; k < 50; ++k) {
    float x = (float)(next(state) >> 8) * 0x1p-24f, y = (float)(next(state) >> 8) * 0x1p-24f;
    hits += x * x + y * y < 1.0f;
  }
  out[i] = hits;
}

// case: n=24, out=zeros(n * n), grid=cdiv(n * n, block)
__global__ void mandelbrot(int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n * n) return;
  float cx = (float)(i % n) / (float)n * 3.0f - 2.0f, cy = (float)(i / n) / (float)n * 2.0f - 1.0f;
  float x = 0, y = 0;
  int k = 0;
  for (; k < 60 && x * x + y * y <= 4.0f; ++k) {
    float t = x * x - y * y + cx;
    y = 2.0f * x * y + cy;
    x = t;
  }
  out[i] = k;
}

// case: a=ints(-9, 9)
extern "C" __global__ void __launch_bounds__(1024) c_linkage(const int* __restrict__ a, int* __restrict__ out, int n) {
  AT;
  out[i] = __ldg(&a[i]) + __ldcg(&a[n - 1 - i]);
}

// case: a=ints(-9, 9), out=zeros(n)
__global__ void cached_stores(const float* a, float* out, int n) {
  AT;
  __stcs(&out[i], __ldcs(&a[i]) * 2.0f);
  __stcg(&out[i], __ldca(&out[i]) + 1.0f);
}

// case: a=ints(-9, 9)
__global__ void goto_and_do(const int* a, int* out, int n) {
  AT;
  int x = a[i], k = 0;
again:
  do {
    x += 3;
    ++k;
  } while (x < 10);
  if (x & 1) {
    x -= 11;
    goto again;
  }
  out[i] = x * 100 + k;
}

// case: n=10, out=zeros(1), grid=(3, 2, 2)
__global__ void assertions_that_hold(int* out, int n) {
  assert(n == 10);
  if (threadIdx.x == 0) atomicAdd(&out[0], n);
  if (n == 11) __trap();
}
