// Functions that are not rounded exactly: the tolerances are the sum of what CUDA documents for
// the device and of 1 for the host's library.

#define AT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return

// case: a=spread(-20, 7), tolerance=ulp(3)
__global__ void exp_f(const float* a, float* e, float* e2, float* m1, int n) {
  AT;
  e[i] = expf(a[i]);
  e2[i] = exp2f(a[i]);
  m1[i] = expm1f(a[i]);
}

// case: a=spread(-12, 5), tolerance=ulp(3)
__global__ void exp10_f(const float* a, float* out, int n) {
  AT;
  out[i] = exp10f(a[i]);
}

// case: a=sizes(-140, 120), tolerance=ulp(3)
__global__ void log_f(const float* a, float* l, float* l2, float* l10, float* l1p, int n) {
  AT;
  l[i] = logf(a[i]);
  l2[i] = log2f(a[i]);
  l10[i] = log10f(a[i]);
  l1p[i] = log1pf(a[i]);
}

// case: a=spread(-20, 24), tolerance=ulp(3)
__global__ void sin_f(const float* a, float* s, float* c, int n) {
  AT;
  s[i] = sinf(a[i]);
  c[i] = cosf(a[i]);
}

// case: a=spread(-20, 12), tolerance=ulp(5)
__global__ void tan_f(const float* a, float* t, int n) {
  AT;
  t[i] = tanf(a[i]);
}

// case: a=spread(-10, 10), tolerance=ulp(3)
__global__ void sincos_f(const float* a, float* s, float* c, float* sp, float* cp, int n) {
  AT;
  sincosf(a[i], &s[i], &c[i]);
  sincospif(a[i], &sp[i], &cp[i]);
}

// case: a=uniform(-1, 1), b=spread(-8, 8), tolerance=ulp(5)
__global__ void arcs_f(const float* a, const float* b, float* s, float* c, float* t, float* t2,
                       int n) {
  AT;
  s[i] = asinf(a[i]);
  c[i] = acosf(a[i]);
  t[i] = atanf(b[i]);
  t2[i] = atan2f(a[i], b[i]);
}

// case: a=spread(-10, 6), tolerance=ulp(4)
__global__ void hyperbolic_f(const float* a, float* s, float* c, float* t, int n) {
  AT;
  s[i] = sinhf(a[i]);
  c[i] = coshf(a[i]);
  t[i] = tanhf(a[i]);
}

// case: a=spread(-10, 20), tolerance=ulp(5)
__global__ void inverse_hyperbolic_f(const float* a, float* s, float* c, float* t, int n) {
  AT;
  s[i] = asinhf(a[i]);
  c[i] = acoshf(1.0f + fabsf(a[i]));
  t[i] = atanhf(a[i] / (1.0f + fabsf(a[i])) * 0.999f);
}

// case: a=sizes(-10, 10), b=spread(-3, 3), tolerance=ulp(5)
__global__ void pow_f(const float* a, const float* b, float* p, float* q, int n) {
  AT;
  p[i] = powf(a[i], b[i]);
  q[i] = powf(-a[i], (float)(i % 9 - 4));
}

// case: a=spread(-60, 60), b=spread(-60, 60), tolerance=ulp(4)
__global__ void roots_f(const float* a, const float* b, float* cube, float* inverse, float* r,
                        float* h, int n) {
  AT;
  cube[i] = cbrtf(a[i]);
  inverse[i] = rcbrtf(a[i]);
  r[i] = rsqrtf(fabsf(a[i]));
  h[i] = hypotf(a[i], b[i]);
}

// case: a=spread(-10, 2), tolerance=ulp(7)
__global__ void erf_f(const float* a, float* e, float* c, float* x, int n) {
  AT;
  e[i] = erff(a[i]);
  c[i] = erfcf(a[i]);
  x[i] = erfcxf(fabsf(a[i]));
}

// case: a=uniform(0.01, 0.99), tolerance=ulp(9)
__global__ void inverse_erf_f(const float* a, float* e, float* c, float* normal, int n) {
  AT;
  e[i] = erfinvf(a[i]);
  c[i] = erfcinvf(a[i]);
  normal[i] = normcdff(a[i]);
}

// case: a=uniform(0.5, 30), tolerance=ulp(8)
__global__ void gamma_f(const float* a, float* g, float* l, int n) {
  AT;
  g[i] = tgammaf(a[i]);
  l[i] = lgammaf(a[i] + 3.0f);
}

// case: a=spread(-20, 9), tolerance=ulp(3)
__global__ void exp_d(const double* a, double* e, double* e2, double* m1, int n) {
  AT;
  e[i] = exp(a[i]);
  e2[i] = exp2(a[i]);
  m1[i] = expm1(a[i]);
}

// case: a=sizes(-900, 900), tolerance=ulp(3)
__global__ void log_d(const double* a, double* l, double* l2, double* l10, double* l1p, int n) {
  AT;
  l[i] = log(a[i]);
  l2[i] = log2(a[i]);
  l10[i] = log10(a[i]);
  l1p[i] = log1p(a[i]);
}

// case: a=spread(-20, 30), tolerance=ulp(4)
__global__ void sin_d(const double* a, double* s, double* c, double* t, int n) {
  AT;
  s[i] = sin(a[i]);
  c[i] = cos(a[i]);
  t[i] = tan(a[i]);
}

// case: a=uniform(-1, 1), b=spread(-8, 8), tolerance=ulp(4)
__global__ void arcs_d(const double* a, const double* b, double* s, double* c, double* t,
                       double* t2, int n) {
  AT;
  s[i] = asin(a[i]);
  c[i] = acos(a[i]);
  t[i] = atan(b[i]);
  t2[i] = atan2(a[i], b[i]);
}

// case: a=sizes(-10, 10), b=spread(-3, 5), tolerance=ulp(4)
__global__ void pow_d(const double* a, const double* b, double* p, double* cube, double* h,
                      double* r, int n) {
  AT;
  p[i] = pow(a[i], b[i]);
  cube[i] = cbrt(-a[i]);
  h[i] = hypot(a[i], b[i]);
  r[i] = rsqrt(a[i]);
}

// case: a=spread(-10, 3), tolerance=ulp(6)
__global__ void erf_d(const double* a, double* e, double* c, double* t, double* s, int n) {
  AT;
  e[i] = erf(a[i]);
  c[i] = erfc(a[i]);
  t[i] = tanh(a[i]);
  s[i] = sinh(a[i]);
}

// Results at and past the edges of the domains, where nothing is rounded.
// case: blocks=[1, 32, 256], n=12, out=zeros(12 * 8), grid=1,
//       a=values(0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 200.0, -200.0, 1e30, -1e30, 1e-40)
__global__ void edges_of_functions(const float* a, float* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float x = a[i], *o = out + 8 * i;
    o[0] = expf(x) > 1e37f || expf(x) < 1e-37f || isnan(x) ? expf(x) : 7.0f;
    o[1] = x <= 0 || isinf(x) || isnan(x) ? logf(x) : 7.0f;
    o[2] = isinf(x) || isnan(x) || x == 0 ? sinf(x) : 7.0f;
    o[3] = powf(x, 0.0f);
    o[4] = sqrtf(x);
    o[5] = fabsf(x) > 1e20f || isnan(x) || x == 0 ? tanhf(x) : 7.0f;
    o[6] = fabsf(x) > 100 || isnan(x) || x == 0 ? asinf(x) : 7.0f;
    o[7] = fabsf(x) > 100 || isnan(x) ? erff(x) : 7.0f;
  }
}

// case: a=uniform(-8, 8), b=uniform(0.1, 50), tolerance=near(3e-6, 2e-6)
__global__ void fast_ones(const float* a, const float* b, float* e, float* l, float* s, float* c,
                          float* d, int n) {
  AT;
  e[i] = __expf(a[i]);
  l[i] = __logf(b[i]);
  s[i] = __sinf(a[i] * 0.3f);
  c[i] = __cosf(a[i] * 0.3f);
  d[i] = __fdividef(a[i], b[i]);
}

// case: a=uniform(0.5, 4), b=uniform(-3, 3), tolerance=near(1e-5, 1e-6)
__global__ void fast_powers(const float* a, const float* b, float* p, float* l2, float* l10,
                            float* e10, int n) {
  AT;
  p[i] = __powf(a[i], b[i]);
  l2[i] = __log2f(a[i]);
  l10[i] = __log10f(a[i]);
  e10[i] = __exp10f(b[i]);
}

// case: a=spread(-10, 10), b=spread(-10, 10), tolerance=ulp(4)
__global__ void norms(const float* a, const float* b, float* n3, float* n4, float* r3, float* nn,
                      int n) {
  AT;
  float all[] = {a[i], b[i], 1.0f, a[i] - b[i], 0.25f};
  n3[i] = norm3df(a[i], b[i], 1.0f);
  n4[i] = norm4df(a[i], b[i], 1.0f, 2.0f);
  r3[i] = rnorm3df(a[i], b[i], 1.0f);
  nn[i] = normf(5, all);
}

// case: a=uniform(0.1, 7), tolerance=near(3e-6, 3e-6)
__global__ void bessel(const float* a, float* j, float* y, float* i0, int n) {
  AT;
  j[i] = j0f(a[i]) + j1f(a[i]);
  y[i] = y0f(a[i]);
  i0[i] = cyl_bessel_i0f(a[i]);
}

// case: a=spread(-8, 8), tolerance=ulp(4)
__global__ void overloads(const float* a, const double* b, float* f, double* d, int n) {
  AT;
  double y = isfinite(b[i]) ? b[i] : 0.5;
  y = y / (1.0 + fabs(y));
  f[i] = exp(fabs(sin(a[i]))) + sqrt(fabs(a[i]));
  d[i] = exp(fabs(sin(y))) - floor(y);
}
