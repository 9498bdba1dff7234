// Float and double arithmetic that is rounded exactly.

#define AT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return

// case:
__global__ void add_f(const float* a, const float* b, float* sum, float* difference, int n) {
  AT;
  sum[i] = a[i] + b[i];
  difference[i] = a[i] - b[i];
}

// case:
__global__ void mul_f(const float* a, const float* b, float* product, float* quotient, int n) {
  AT;
  product[i] = a[i] * b[i];
  quotient[i] = a[i] / b[i];
}

// case:
__global__ void add_d(const double* a, const double* b, double* sum, double* product, int n) {
  AT;
  sum[i] = a[i] + b[i];
  product[i] = a[i] * b[i];
}

// case:
__global__ void div_d(const double* a, const double* b, double* quotient, double* root, int n) {
  AT;
  quotient[i] = a[i] / b[i];
  root[i] = sqrt(b[i]);
}

// case:
__global__ void fma_f(const float* a, const float* b, const float* c, float* out, int n) {
  AT;
  out[i] = fmaf(a[i], b[i], c[i]);
}

// case:
__global__ void fma_d(const double* a, const double* b, const double* c, double* out, int n) {
  AT;
  out[i] = fma(a[i], b[i], c[i]);
}

// case:
__global__ void sqrt_f(const float* a, float* root, float* reciprocal, int n) {
  AT;
  root[i] = sqrtf(a[i]);
  reciprocal[i] = __frcp_rn(a[i]);
}

// Two roundings, as the set is compiled with --fmad=false.
// case: a=uniform(-2, 2), b=uniform(-2, 2), c=uniform(-2, 2)
__global__ void unfused(const float* a, const float* b, const float* c, float* out, int n) {
  AT;
  float product = a[i] * b[i];
  out[i] = product + c[i] * a[i] - b[i] * c[i];
}

// case:
__global__ void add_modes(const float* a, const float* b, float* rn, float* rz, float* ru,
                          float* rd, int n) {
  AT;
  rn[i] = __fadd_rn(a[i], b[i]);
  rz[i] = __fadd_rz(a[i], b[i]);
  ru[i] = __fadd_ru(a[i], b[i]);
  rd[i] = __fadd_rd(a[i], b[i]);
}

// case:
__global__ void mul_modes(const float* a, const float* b, float* rn, float* rz, float* ru,
                          float* rd, int n) {
  AT;
  rn[i] = __fmul_rn(a[i], b[i]);
  rz[i] = __fmul_rz(a[i], b[i]);
  ru[i] = __fmul_ru(a[i], b[i]);
  rd[i] = __fmul_rd(a[i], b[i]);
}

// case:
__global__ void div_modes(const float* a, const float* b, float* rn, float* rz, float* ru,
                          float* rd, int n) {
  AT;
  rn[i] = __fdiv_rn(a[i], b[i]);
  rz[i] = __fdiv_rz(a[i], b[i]);
  ru[i] = __fdiv_ru(a[i], b[i]);
  rd[i] = __fdiv_rd(a[i], b[i]);
}

// case:
__global__ void fma_modes(const float* a, const float* b, const float* c, float* rn, float* rz,
                          float* ru, float* rd, int n) {
  AT;
  rn[i] = __fmaf_rn(a[i], b[i], c[i]);
  rz[i] = __fmaf_rz(a[i], b[i], c[i]);
  ru[i] = __fmaf_ru(a[i], b[i], c[i]);
  rd[i] = __fmaf_rd(a[i], b[i], c[i]);
}

// case:
__global__ void sqrt_modes(const float* a, float* rz, float* ru, float* rd, float* inverse, int n) {
  AT;
  rz[i] = __fsqrt_rz(a[i]);
  ru[i] = __fsqrt_ru(a[i]);
  rd[i] = __fsqrt_rd(a[i]);
  inverse[i] = __frsqrt_rn(a[i]);
}

// case:
__global__ void double_modes(const double* a, const double* b, double* add, double* mul,
                             double* div, double* root, int n) {
  AT;
  add[i] = __dadd_ru(a[i], b[i]);
  mul[i] = __dmul_rz(a[i], b[i]);
  div[i] = __ddiv_rd(a[i], b[i]);
  root[i] = __dsqrt_ru(a[i]);
}

// case:
__global__ void rounding_f(const float* a, float* down, float* up, float* cut, float* even,
                           float* away, int n) {
  AT;
  down[i] = floorf(a[i]);
  up[i] = ceilf(a[i]);
  cut[i] = truncf(a[i]);
  even[i] = rintf(a[i]);
  away[i] = roundf(a[i]);
}

// case:
__global__ void rounding_d(const double* a, double* down, double* up, double* cut, double* even,
                           double* away, int n) {
  AT;
  down[i] = floor(a[i]);
  up[i] = ceil(a[i]);
  cut[i] = trunc(a[i]);
  even[i] = nearbyint(a[i]);
  away[i] = round(a[i]);
}

// Which zero comes out of a tie of the two is open: none is among these.
// case: a=spread(-3, 3), b=spread(-3, 3)
__global__ void min_max_f(const float* a, const float* b, float* least, float* most, float* past,
                          int n) {
  AT;
  float x = i % 10 == 3 ? nanf("") : a[i], y = i % 15 == 8 ? nanf("") : b[i];
  least[i] = fminf(x, y);
  most[i] = fmaxf(x, y);
  past[i] = fdimf(x, y);
}

// case:
__global__ void parts_f(const float* a, const float* b, float* fraction, float* whole,
                        float* mantissa, int* exponent, float* sign, int n) {
  AT;
  fraction[i] = modff(a[i], &whole[i]);
  int e = 0;
  mantissa[i] = frexpf(a[i], &e);
  exponent[i] = isfinite(a[i]) ? e : 0;
  sign[i] = copysignf(a[i], b[i]);
}

// case: e=ints(-200, 200)
__global__ void scaling_f(const float* a, const int* e, float* scaled, float* other, int* log,
                          int n) {
  AT;
  scaled[i] = ldexpf(a[i], e[i]);
  other[i] = scalbnf(a[i], e[i] / 3);
  log[i] = isfinite(a[i]) && a[i] != 0 ? ilogbf(a[i]) : 0;
}

// case:
__global__ void remainders_f(const float* a, const float* b, float* mod, float* rest, int n) {
  AT;
  mod[i] = fmodf(a[i], b[i]);
  rest[i] = remainderf(a[i], b[i]);
}

// case:
__global__ void remainders_d(const double* a, const double* b, double* mod, double* rest, int n) {
  AT;
  mod[i] = fmod(a[i], b[i]);
  rest[i] = remainder(a[i], b[i]);
}

// case:
__global__ void neighbours(const float* a, const float* b, float* out, double* wide, int n) {
  AT;
  out[i] = nextafterf(a[i], b[i]);
  wide[i] = nextafter((double)a[i], (double)b[i]);
}

// case:
__global__ void classes(const float* a, const double* b, int* out, int n) {
  AT;
  int c = 0;
  if (isnan(a[i])) c |= 1;
  if (isinf(a[i])) c |= 2;
  if (isfinite(a[i])) c |= 4;
  if (signbit(a[i]) && !isnan(a[i])) c |= 8;
  if (isnan(b[i])) c |= 16;
  if (isinf(b[i])) c |= 32;
  if (isfinite(b[i])) c |= 64;
  if (signbit(b[i]) && !isnan(b[i])) c |= 128;
  out[i] = c;
}

// case: a=ints(-3, 3), b=ints(-3, 3)
__global__ void comparisons(const float* a, const float* b, int* out, int n) {
  AT;
  float x = i % 7 == 2 ? nanf("") : a[i], y = i % 11 == 5 ? nanf("") : b[i];
  out[i] = (x < y) | (x <= y) << 1 | (x > y) << 2 | (x >= y) << 3 | (x == y) << 4 | (x != y) << 5 |
           (!(x < y)) << 6;
}

// case:
__global__ void denormals(const float* a, float* halved, float* back, float* product, int n) {
  AT;
  float small = a[i] * 1e-38f;
  halved[i] = small * 0.5f;
  back[i] = small * 1e20f;
  product[i] = (a[i] * 1e-25f) * 1e-20f;
}

// case:
__global__ void saturate(const float* a, float* out, int n) {
  AT;
  out[i] = __saturatef(a[i]);
}

// case: a=uniform(-1, 1)
__global__ void horner(const float* a, float* out, int n) {
  AT;
  float x = a[i], r = 0.3f;
  for (int k = 0; k < 20; ++k) r = fmaf(r, x, 1.0f / (float)(k + 3));
  out[i] = r;
}

// case: a=uniform(-1, 1, 256), grid=2, out=zeros(8)
__global__ void in_order_sum(const double* a, double* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (; i < 8; i += gridDim.x * blockDim.x) {
    double sum = 0;
    for (int k = i; k < 256; k += 8) sum += a[k] * a[255 - k];
    out[i] = sum;
  }
}

// case:
__global__ void float_bits(const float* a, const double* b, unsigned* u, long long* v, float* back,
                           int* low, int* high, int n) {
  AT;
  u[i] = isnan(a[i]) ? 1u : __float_as_uint(a[i]);
  v[i] = isnan(b[i]) ? 1 : __double_as_longlong(b[i]);
  back[i] = __uint_as_float(u[i] ^ 0x80000000u);
  low[i] = isnan(b[i]) ? 1 : __double2loint(b[i]);
  high[i] = isnan(b[i]) ? 1 : __double2hiint(b[i]);
}
