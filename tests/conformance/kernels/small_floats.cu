// half, bfloat16 and the 8-bit formats, as bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#define AT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return

__device__ __half h(unsigned short bits) { return __ushort_as_half(bits); }
__device__ unsigned short u(__half x) { return __half_as_ushort(x); }
__device__ __nv_bfloat16 b16(unsigned short bits) { return __ushort_as_bfloat16(bits); }
__device__ unsigned short u(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }

// case: n=65536, a=all(), blocks=[1, 96, 256, 1000]
__global__ void half_to_float(const unsigned short* a, float* out, int n) {
  AT;
  out[i] = __half2float(h(a[i]));
}

// case: n=4000, a=spread(-27, 17), results_as="half", blocks=[1, 96, 256, 1000]
__global__ void float_to_half(const float* a, unsigned short* rn, unsigned short* rz,
                              unsigned short* ru, unsigned short* rd, int n) {
  AT;
  rn[i] = u(__float2half_rn(a[i]));
  rz[i] = u(__float2half_rz(a[i]));
  ru[i] = u(__float2half_ru(a[i]));
  rd[i] = u(__float2half_rd(a[i]));
}

// case: results_as="half"
__global__ void edges_to_half(const float* a, const double* b, unsigned short* f,
                              unsigned short* d, int n) {
  AT;
  f[i] = u(__float2half(a[i]));
  d[i] = u(__double2half(b[i]));
}

// case: n=3000, a=bits(), b=bits(), results_as="half"
__global__ void half_arithmetic(const unsigned short* a, const unsigned short* b,
                                unsigned short* add, unsigned short* sub, unsigned short* mul,
                                unsigned short* div, int n) {
  AT;
  add[i] = u(__hadd(h(a[i]), h(b[i])));
  sub[i] = u(__hsub(h(a[i]), h(b[i])));
  mul[i] = u(__hmul(h(a[i]), h(b[i])));
  div[i] = u(__hdiv(h(a[i]), h(b[i])));
}

// case: n=3000, a=bits(), b=bits(), c=bits(), results_as="half"
__global__ void half_fma(const unsigned short* a, const unsigned short* b, const unsigned short* c,
                         unsigned short* fma, unsigned short* sat, unsigned short* neg, int n) {
  AT;
  fma[i] = u(__hfma(h(a[i]), h(b[i]), h(c[i])));
  sat[i] = u(__hadd_sat(h(a[i]), h(b[i])));
  neg[i] = u(__hneg(__habs(h(a[i]))));
}

// case: n=3000, a=bits(), b=bits()
__global__ void half_compare(const unsigned short* a, const unsigned short* b, int* out, int n) {
  AT;
  __half x = h(a[i]), y = i % 3 ? h(b[i]) : h(a[i]);
  out[i] = __heq(x, y) | __hne(x, y) << 1 | __hlt(x, y) << 2 | __hle(x, y) << 3 |
           __hgt(x, y) << 4 | __hge(x, y) << 5 | __hisnan(x) << 6 | (__hisinf(y) != 0) << 7;
}

// case: n=2000, a=bits(), results_as="half"
__global__ void half_rounding(const unsigned short* a, unsigned short* down, unsigned short* up,
                              unsigned short* cut, unsigned short* even, int n) {
  AT;
  down[i] = u(hfloor(h(a[i])));
  up[i] = u(hceil(h(a[i])));
  cut[i] = u(htrunc(h(a[i])));
  even[i] = u(hrint(h(a[i])));
}

// case: n=65536, a=all(), blocks=[1, 96, 256, 1000]
__global__ void half_to_int(const unsigned short* a, short* rn, int* rz, unsigned* ru,
                            int n) {
  AT;
  __half x = __hisnan(h(a[i])) ? h(0) : h(a[i]);
  rn[i] = __half2short_rn(x);
  rz[i] = __half2int_rz(x);
  ru[i] = __half2uint_ru(x);
}

// case: results_as="half"
__global__ void int_to_half(const int* a, const short* b, unsigned short* rn, unsigned short* rz,
                            unsigned short* s, int n) {
  AT;
  rn[i] = u(__int2half_rn(a[i] % 70000));
  rz[i] = u(__int2half_rz(a[i] % 70000));
  s[i] = u(__short2half_rn(b[i]));
}

// case: a=bits(), b=bits(), results_as="half"
__global__ void half2_arithmetic(const unsigned short* a, const unsigned short* b,
                                 unsigned short* lo, unsigned short* hi, unsigned short* top,
                                 int n) {
  AT;
  __half2 x = __halves2half2(h(a[i]), h(b[i])), y = __half2half2(h(a[(i + 1) % n]));
  __half2 r = __hfma2(x, y, __hmul2(y, __float2half2_rn(0.5f)));
  lo[i] = u(__low2half(r));
  hi[i] = u(__high2half(__lowhigh2highlow(r)));
  top[i] = u(__hmax(h(a[i]), __hmin(h(b[i]), h(a[i]))));
}

// case: a=uniform(-100, 100), b=uniform(1, 100), results_as="half"
__global__ void half_operators(const float* a, const float* b, unsigned short* out,
                               unsigned short* two, int n) {
  AT;
  __half x = __float2half(a[i]), y = __float2half(b[i]);
  __half r = x + y;
  r = r * y;
  r -= x;
  r = r / y;
  if (r > x || !(r == r)) r = -r;
  out[i] = u(r);
  __half2 p = __floats2half2_rn(a[i], b[i]);
  p = p + p;
  p = p - __half2(__float2half(1.0f), __float2half(2.0f));
  two[i] = u(__hadd(p.x, p.y));
}

// Halves are spaced so that the device's error of 2 in a float's last place is rarely seen.
// case: a=uniform(0.1, 9), tolerance=near(2e-3, 2e-3)
__global__ void half_functions(const float* a, float* e, float* l, float* s, float* r, int n) {
  AT;
  __half x = __float2half(a[i]);
  e[i] = __half2float(hexp(x));
  l[i] = __half2float(hlog(x));
  s[i] = __half2float(hsin(x));
  r[i] = __half2float(hrsqrt(x));
}

// case: n=3000, a=bits(), results_as="half"
__global__ void half_sqrt(const unsigned short* a, unsigned short* root, unsigned short* inverse,
                          int n) {
  AT;
  root[i] = u(hsqrt(h(a[i] & 0x7FFF)));
  inverse[i] = u(hrcp(h((a[i] & 0x83FF) | 0x4000)));
}

// case: n=65536, a=all(), blocks=[1, 96, 256, 1000]
__global__ void bf16_to_float(const unsigned short* a, float* out, int n) {
  AT;
  out[i] = __bfloat162float(b16(a[i]));
}

// case: n=4000, results_as="bfloat16", blocks=[1, 96, 256, 1000]
__global__ void float_to_bf16(const float* a, unsigned short* rn, unsigned short* rz,
                              unsigned short* ru, unsigned short* rd, int n) {
  AT;
  rn[i] = u(__float2bfloat16_rn(a[i]));
  rz[i] = u(__float2bfloat16_rz(a[i]));
  ru[i] = u(__float2bfloat16_ru(a[i]));
  rd[i] = u(__float2bfloat16_rd(a[i]));
}

// case: n=3000, a=bits(), b=bits(), c=bits(), results_as="bfloat16"
__global__ void bf16_arithmetic(const unsigned short* a, const unsigned short* b,
                                const unsigned short* c, unsigned short* add, unsigned short* mul,
                                unsigned short* div, unsigned short* fma, int n) {
  AT;
  add[i] = u(__hadd(b16(a[i]), b16(b[i])));
  mul[i] = u(__hmul(b16(a[i]), b16(b[i])));
  div[i] = u(__hdiv(b16(a[i]), b16(b[i])));
  fma[i] = u(__hfma(b16(a[i]), b16(b[i]), b16(c[i])));
}

// case: n=3000, a=bits(), b=bits()
__global__ void bf16_compare(const unsigned short* a, const unsigned short* b, int* out,
                             float* most, int n) {
  AT;
  __nv_bfloat16 x = b16(a[i]), y = i % 3 ? b16(b[i]) : b16(a[i]);
  out[i] = __heq(x, y) | __hne(x, y) << 1 | __hlt(x, y) << 2 | __hle(x, y) << 3 |
           __hgt(x, y) << 4 | __hge(x, y) << 5 | __hisnan(x) << 6;
  most[i] = __bfloat162float(__hmax(x, y));
}

// case: a=uniform(-100, 100), b=uniform(1, 100), results_as="bfloat16"
__global__ void bf16_pairs(const float* a, const float* b, unsigned short* lo, unsigned short* hi,
                           int n) {
  AT;
  __nv_bfloat162 x = __floats2bfloat162_rn(a[i], b[i]), y = __bfloat162bfloat162(b16(0x3FC0));
  __nv_bfloat162 r = __hadd2(__hmul2(x, y), x);
  lo[i] = u(__low2bfloat16(r));
  hi[i] = u(__high2bfloat16(r));
}

// case: n=256, a=all()
__global__ void fp8_to_half(const unsigned char* a, float* e4m3, float* e5m2, int n) {
  AT;
  e4m3[i] = __half2float(__half(__nv_cvt_fp8_to_halfraw(a[i], __NV_E4M3)));
  e5m2[i] = __half2float(__half(__nv_cvt_fp8_to_halfraw(a[i], __NV_E5M2)));
}

// case: n=3000, a=spread(-12, 12), results_as="e4m3"
__global__ void float_to_e4m3(const float* a, unsigned char* limited, unsigned char* other,
                              int n) {
  AT;
  limited[i] = __nv_cvt_float_to_fp8(a[i], __NV_SATFINITE, __NV_E4M3);
  other[i] = __nv_cvt_float_to_fp8(a[i], __NV_NOSAT, __NV_E4M3);
}

// case: n=3000, a=spread(-20, 18), results_as="e5m2"
__global__ void float_to_e5m2(const float* a, unsigned char* limited, unsigned char* other,
                              int n) {
  AT;
  limited[i] = __nv_cvt_float_to_fp8(a[i], __NV_SATFINITE, __NV_E5M2);
  other[i] = __nv_cvt_float_to_fp8(a[i], __NV_NOSAT, __NV_E5M2);
}

// case: results_as="e4m3"
__global__ void edges_to_fp8(const float* a, unsigned char* limited, unsigned char* type, int n) {
  AT;
  limited[i] = __nv_cvt_float_to_fp8(a[i], __NV_SATFINITE, __NV_E4M3);
  type[i] = __nv_fp8_e4m3(a[i]).__x;
}
