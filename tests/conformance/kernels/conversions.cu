// Between numbers: each rounding mode, and what does not fit.

#define AT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return

// case: a=edges()
__global__ void float2int(const float* a, int* rn, int* rz, int* ru, int* rd, int n) {
  AT;
  rn[i] = __float2int_rn(a[i]);
  rz[i] = __float2int_rz(a[i]);
  ru[i] = __float2int_ru(a[i]);
  rd[i] = __float2int_rd(a[i]);
}

// case:
__global__ void float2uint(const float* a, unsigned* rn, unsigned* rz, unsigned* ru, unsigned* rd,
                           int n) {
  AT;
  rn[i] = __float2uint_rn(a[i]);
  rz[i] = __float2uint_rz(a[i]);
  ru[i] = __float2uint_ru(a[i]);
  rd[i] = __float2uint_rd(a[i]);
}

// NaN to 64 bits is not the same on all devices.
// case:
__global__ void float2ll(const float* a, long long* rn, long long* rz, unsigned long long* ru,
                         unsigned long long* rd, int n) {
  AT;
  float x = isnan(a[i]) ? 1.5f : a[i];
  rn[i] = __float2ll_rn(x);
  rz[i] = __float2ll_rz(x);
  ru[i] = __float2ull_ru(x);
  rd[i] = __float2ull_rd(x);
}

// case:
__global__ void d_to_int(const double* a, int* rn, int* rz, unsigned* ru, unsigned* rd, int n) {
  AT;
  double x = isnan(a[i]) ? 1.5 : a[i];
  rn[i] = __double2int_rn(x);
  rz[i] = __double2int_rz(x);
  ru[i] = __double2uint_ru(x);
  rd[i] = __double2uint_rd(x);
}

// case:
__global__ void d_to_ll(const double* a, long long* rn, long long* ru, unsigned long long* rz,
                          unsigned long long* rd, int n) {
  AT;
  double x = isnan(a[i]) ? 1.5 : a[i];
  rn[i] = __double2ll_rn(x);
  ru[i] = __double2ll_ru(x);
  rz[i] = __double2ull_rz(x);
  rd[i] = __double2ull_rd(x);
}

// case:
__global__ void double2float(const double* a, float* rn, float* rz, float* ru, float* rd, int n) {
  AT;
  rn[i] = __double2float_rn(a[i]);
  rz[i] = __double2float_rz(a[i]);
  ru[i] = __double2float_ru(a[i]);
  rd[i] = __double2float_rd(a[i]);
}

// case: a=spread(-160, 140)
__global__ void double2float_small(const double* a, float* rn, float* rz, float* ru, float* rd,
                                   int n) {
  AT;
  rn[i] = (float)a[i];
  rz[i] = __double2float_rz(a[i]);
  ru[i] = __double2float_ru(a[i]);
  rd[i] = __double2float_rd(a[i]);
}

// case:
__global__ void int2float(const int* a, float* rn, float* rz, float* ru, float* rd, int n) {
  AT;
  rn[i] = __int2float_rn(a[i]);
  rz[i] = __int2float_rz(a[i]);
  ru[i] = __int2float_ru(a[i]);
  rd[i] = __int2float_rd(a[i]);
}

// case:
__global__ void uint2float(const unsigned* a, float* rn, float* rz, float* ru, float* rd, int n) {
  AT;
  rn[i] = __uint2float_rn(a[i]);
  rz[i] = __uint2float_rz(a[i]);
  ru[i] = __uint2float_ru(a[i]);
  rd[i] = __uint2float_rd(a[i]);
}

// case:
__global__ void ll_to_d(const long long* a, const unsigned long long* b, double* rn, double* rz,
                          double* ru, double* rd, int n) {
  AT;
  rn[i] = __ll2double_rn(a[i]);
  rz[i] = __ll2double_rz(a[i]);
  ru[i] = __ull2double_ru(b[i]);
  rd[i] = __ull2double_rd(b[i]);
}

// case:
__global__ void ll2float(const long long* a, const unsigned long long* b, float* rn, float* rz,
                         float* ru, float* rd, int n) {
  AT;
  rn[i] = __ll2float_rn(a[i]);
  rz[i] = __ll2float_rz(a[i]);
  ru[i] = __ull2float_ru(b[i]);
  rd[i] = __ull2float_rd(b[i]);
}

// case:
__global__ void casts(const int* a, const long long* b, float* f, double* d, short* s,
                      unsigned char* u, int n) {
  AT;
  f[i] = (float)a[i];
  d[i] = (double)b[i];
  s[i] = (short)a[i];
  u[i] = (unsigned char)b[i];
}

// case: a=uniform(-2e9, 2e9), b=uniform(-1e18, 1e18)
__global__ void casts_to_int(const float* a, const double* b, int* c, long long* d, int n) {
  AT;
  c[i] = (int)a[i];
  d[i] = (long long)b[i];
}

// Past the limits a device saturates, NaN is 0.
// case:
__global__ void casts_that_do_not_fit(const float* a, int* c, unsigned* d, int n) {
  AT;
  c[i] = __float2int_rz(a[i]);
  d[i] = __float2uint_rz(a[i]);
}

// case: a=spread(-4, 28)
__global__ void round_to_int(const float* a, const double* b, int* c, long long* d, long long* e,
                             int n) {
  AT;
  c[i] = (int)lrintf(a[i]);
  d[i] = llroundf(a[i]);
  double x = isfinite(b[i]) && fabs(b[i]) < 1e15 ? b[i] : 2.5;
  e[i] = llrint(x);
}
