// Vector types, structs by value, complex numbers, views and lists of tensors.
#include <cuComplex.h>

#define AT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return

// case: n=300, a=ints(-9, 9, 4 * n), out=zeros(4 * n)
__global__ void float4_load_store(const float* a, float* out, int n) {
  AT;
  float4 v = reinterpret_cast<const float4*>(a)[i];
  v.x += v.w, v.y *= 2.0f, v.z = -v.z;
  reinterpret_cast<float4*>(out)[i] = v;
}

// case: n=300, a=ints(-9, 9, 2 * n), out=zeros(2 * n)
__global__ void double2_load_store(const double* a, double* out, int n) {
  AT;
  double2 v = reinterpret_cast<const double2*>(a)[i];
  reinterpret_cast<double2*>(out)[i] = make_double2(v.y, v.x - v.y);
}

// case: n=300, a=bits(4 * n), out=zeros(4 * n)
__global__ void uchar4_load_store(const unsigned char* a, unsigned char* out, int n) {
  AT;
  uchar4 v = reinterpret_cast<const uchar4*>(a)[i];
  reinterpret_cast<uchar4*>(out)[i] = make_uchar4(v.w, v.z, v.y + 1, v.x ^ v.y);
}

// case: n=300, a=ints(-9, 9, 3 * n), out=zeros(3 * n)
__global__ void int3_packed(const int* a, int* out, int n) {
  AT;
  int3 v = reinterpret_cast<const int3*>(a)[i];
  reinterpret_cast<int3*>(out)[i] = make_int3(v.z, v.x + v.y, v.y);
}

// case: n=30, out=zeros(40), grid=1
__global__ void sizes(int* out, int n) {
  if (threadIdx.x != 0) return;
  int k = 0;
  out[k++] = sizeof(char3), out[k++] = alignof(char4), out[k++] = sizeof(short3);
  out[k++] = alignof(short4), out[k++] = sizeof(int2), out[k++] = alignof(int2);
  out[k++] = sizeof(int3), out[k++] = alignof(int3), out[k++] = alignof(int4);
  out[k++] = sizeof(float3), out[k++] = alignof(float4), out[k++] = alignof(float2);
  out[k++] = sizeof(double3), out[k++] = alignof(double2), out[k++] = sizeof(longlong3);
  out[k++] = alignof(longlong2), out[k++] = sizeof(uchar2), out[k++] = alignof(ushort2);
  out[k++] = sizeof(dim3), out[k++] = sizeof(uint4), out[k++] = sizeof(char1) + n;
}

struct __align__(16) Padded {
  float value;
  int tag;
  double wide;
  unsigned char last;
};

// case: out=zeros(16), grid=1
__global__ void struct_layout(int* out) {
  if (threadIdx.x != 0) return;
  Padded p;
  char* base = reinterpret_cast<char*>(&p);
  out[0] = sizeof(Padded), out[1] = alignof(Padded);
  out[2] = (int)(reinterpret_cast<char*>(&p.tag) - base);
  out[3] = (int)(reinterpret_cast<char*>(&p.wide) - base);
  out[4] = (int)(reinterpret_cast<char*>(&p.last) - base);
}

struct Settings {
  float scale;
  int offset;
  double bias;
  short steps[3];
};

// case: s=np.array([(2.5, -3, 0.125, (1, 2, 3))],
//       np.dtype("f4,i4,f8,3i2", align=True)).tobytes(), a=ints(-9, 9)
__global__ void struct_by_value(Settings s, const int* a, double* out, int n) {
  AT;
  out[i] = a[i] * s.scale + s.offset + s.bias * s.steps[i % 3];
}

// case: a=ints(-9, 9)
__global__ void struct_copied(const int* a, int* out, int n) {
  AT;
  Settings s = {};
  for (int k = 0; k < 3; ++k) s.steps[k] = (short)(a[(i + k) % n] * k);
  Settings t = s;
  t.steps[1] = 100;
  out[i] = s.steps[1] + t.steps[1] + t.steps[2] + (int)t.scale;
}

struct Pair {
  int first, second;
  __device__ Pair operator+(const Pair& other) const {
    return {first + other.first, second - other.second};
  }
  __device__ int& operator[](int k) { return k ? second : first; }
};

// case: a=ints(-99, 99), b=ints(-99, 99)
__global__ void operators(const int* a, const int* b, int* out, int n) {
  AT;
  Pair p = Pair{a[i], b[i]} + Pair{b[i], a[i]};
  p[1] *= 3;
  out[i] = p[0] * 1000 + p[1];
}

// case: n=200, a=ints(-9, 9, 2 * n), b=ints(1, 9, 2 * n), out=zeros(2 * n), size=zeros(n)
__global__ void complex_float(const float* a, const float* b, float* out, float* size, int n) {
  AT;
  cuFloatComplex x = make_cuFloatComplex(a[2 * i], a[2 * i + 1]);
  cuFloatComplex y = make_cuFloatComplex(b[2 * i], b[2 * i + 1]);
  cuFloatComplex r = cuCaddf(cuCmulf(x, y), cuConjf(y));
  r = cuCsubf(r, x);
  out[2 * i] = cuCrealf(r);
  out[2 * i + 1] = cuCimagf(r);
  size[i] = cuCrealf(cuCmulf(r, cuConjf(r)));
}

// case: n=200, a=uniform(-9, 9, 2 * n), b=uniform(1, 9, 2 * n), out=zeros(2 * n), size=zeros(n),
//       tolerance=ulp(4)
__global__ void complex_double(const double* a, const double* b, double* out, double* size,
                               int n) {
  AT;
  cuDoubleComplex x = make_cuDoubleComplex(a[2 * i], a[2 * i + 1]);
  cuDoubleComplex y = make_cuDoubleComplex(b[2 * i], b[2 * i + 1]);
  cuDoubleComplex r = cuCdiv(x, y);
  out[2 * i] = cuCreal(r);
  out[2 * i + 1] = cuCimag(r);
  size[i] = cuCabs(x);
}

// case: n=40, x=ints(-9, 9, 40 * 25).reshape(25, 40).T, out=zeros(n * 25).reshape(n, 25)
__global__ void transposed_view(ons::view<const int, 2> x, ons::view<int, 2> out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (; i < n * 25; i += gridDim.x * blockDim.x) out(i / 25, i % 25) = x(i / 25, i % 25) * 2;
}

// case: n=100, x=ints(-9, 9, 200)[1::2]
__global__ void strided_view(ons::view<const float, 1> x, float* out, int n) {
  AT;
  out[i] = x(i) + (float)x.shape[0] + (float)x.strides[0] * 100.0f;
}

// case: n=60, x=ints(-9, 9, 60).reshape(3, 4, 5)
__global__ void view_int_index(ons::view<const short, 3, int> x, int* out, int n) {
  AT;
  out[i] = x(i / 20, i / 5 % 4, i % 5) + x.size();
}

// case: n=100, xs=[ints(-9, 9), ints(-9, 9), ints(-9, 9)]
__global__ void sum_of_list(ons::ptrs<const int, 3> xs, int* out, int n) {
  AT;
  int sum = 0;
  for (int k = 0; k < xs.count; ++k) sum = sum * 3 + xs[k][i];
  out[i] = sum;
}

// case: v=(1.5, -2.0, 0.25, 8.0), a=ints(-9, 9)
__global__ void vector_by_value(float4 v, const float* a, float* out, int n) {
  AT;
  out[i] = a[i] * v.x + v.y + (i & 1 ? v.z : v.w);
}

// case: b=True, c=-5, d=200, e=-30000, f=1 << 40, g=0.1, h=0.1
__global__ void scalars(bool b, signed char c, unsigned char d, short e, long long f, float g,
                        double h, double* out, int n) {
  AT;
  out[i] = b + c * 2.0 + d * 3.0 + e * 5.0 + f * 7.0 + g * 11.0 + h * 13.0 + i;
}
