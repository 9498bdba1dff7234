// Integer arithmetic and intrinsics.

#define AT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return

// case:
__global__ void wrap_add(const unsigned* a, const unsigned* b, unsigned* out, int n) {
  AT;
  out[i] = a[i] + b[i] * 3u - (a[i] ^ b[i]);
}

// case:
__global__ void wrap_64(const unsigned long long* a, const unsigned long long* b,
                        unsigned long long* out, int n) {
  AT;
  out[i] = a[i] * b[i] + (a[i] << (b[i] & 63)) - (b[i] >> (a[i] & 63));
}

// case:
__global__ void small_types(const signed char* a, const unsigned short* b, signed char* c,
                            unsigned short* d, int n) {
  AT;
  c[i] = (signed char)(a[i] * 3 + b[i]);
  d[i] = (unsigned short)(b[i] * b[i] - a[i]);
}

// case: s=ints(0, 31)
__global__ void shifts(const int* a, const int* s, int* left, int* right, unsigned* logical,
                       int n) {
  AT;
  left[i] = (int)((unsigned)a[i] << s[i]);
  right[i] = a[i] >> s[i];
  logical[i] = (unsigned)a[i] >> s[i];
}

// case: b=ints(1, 1000)
__global__ void divide_int(const int* a, const int* b, int* q, int* r, int n) {
  AT;
  int d = i & 1 ? b[i] : -b[i];
  if (a[i] == -2147483647 - 1 && d == -1) d = 1;
  q[i] = a[i] / d;
  r[i] = a[i] % d;
}

// case: b=ints(1, 1 << 40)
__global__ void divide_64(const long long* a, const long long* b, long long* q, long long* r,
                          unsigned long long* u, int n) {
  AT;
  q[i] = a[i] / b[i];
  r[i] = a[i] % b[i];
  u[i] = (unsigned long long)a[i] / (unsigned long long)b[i];
}

// case:
__global__ void mulhi(const int* a, const int* b, int* s, unsigned* u, int n) {
  AT;
  s[i] = __mulhi(a[i], b[i]);
  u[i] = __umulhi((unsigned)a[i], (unsigned)b[i]);
}

// case:
__global__ void mulhi_64(const long long* a, const long long* b, long long* s,
                         unsigned long long* u, int n) {
  AT;
  s[i] = __mul64hi(a[i], b[i]);
  u[i] = __umul64hi((unsigned long long)a[i], (unsigned long long)b[i]);
}

// case:
__global__ void mul24(const int* a, const int* b, int* s, unsigned* u, int n) {
  AT;
  s[i] = __mul24(a[i], b[i]);
  u[i] = __umul24((unsigned)a[i], (unsigned)b[i]);
}

// case:
__global__ void clz(const int* a, const long long* b, int* c, int* d, int n) {
  AT;
  c[i] = __clz(a[i] >> (i & 31));
  d[i] = __clzll(b[i] >> (i & 63));
}

// case:
__global__ void popc(const unsigned* a, const unsigned long long* b, int* c, int* d, int n) {
  AT;
  c[i] = __popc(a[i]);
  d[i] = __popcll(b[i]);
}

// case:
__global__ void brev(const unsigned* a, const unsigned long long* b, unsigned* c,
                     unsigned long long* d, int n) {
  AT;
  c[i] = __brev(a[i]);
  d[i] = __brevll(b[i]);
}

// case:
__global__ void find_first_set(const int* a, const long long* b, int* c, int* d, int n) {
  AT;
  c[i] = __ffs(a[i] & -(1 << (i & 31)));
  d[i] = __ffsll(b[i] & -(1ll << (i & 63)));
}

// case:
__global__ void byte_perm(const unsigned* a, const unsigned* b, const unsigned* s, unsigned* out,
                          int n) {
  AT;
  out[i] = __byte_perm(a[i], b[i], s[i] & 0x7777);
}

// case: s=ints(0, 70)
__global__ void funnel_shift(const unsigned* a, const unsigned* b, const unsigned* s, unsigned* l,
                             unsigned* r, unsigned* lc, unsigned* rc, int n) {
  AT;
  l[i] = __funnelshift_l(a[i], b[i], s[i]);
  r[i] = __funnelshift_r(a[i], b[i], s[i]);
  lc[i] = __funnelshift_lc(a[i], b[i], s[i]);
  rc[i] = __funnelshift_rc(a[i], b[i], s[i]);
}

// case:
__global__ void dp4a(const int* a, const int* b, const int* c, int* s, unsigned* u, int n) {
  AT;
  s[i] = __dp4a(a[i], b[i], c[i]);
  u[i] = __dp4a((unsigned)a[i], (unsigned)b[i], (unsigned)c[i]);
}

// case:
__global__ void dp2a(const int* a, const int* b, const int* c, int* lo, int* hi, unsigned* u,
                     int n) {
  AT;
  lo[i] = __dp2a_lo(a[i], b[i], c[i]);
  hi[i] = __dp2a_hi(a[i], b[i], c[i]);
  u[i] = __dp2a_lo((unsigned)a[i], (unsigned)b[i], (unsigned)c[i]);
}

// case:
__global__ void sad(const int* a, const int* b, const unsigned* c, unsigned* s, unsigned* u,
                    int n) {
  AT;
  s[i] = __sad(a[i], b[i], c[i]);
  u[i] = __usad((unsigned)a[i], (unsigned)b[i], c[i]);
}

// case:
__global__ void averages(const int* a, const int* b, int* h, int* rh, unsigned* uh, unsigned* urh,
                         int n) {
  AT;
  h[i] = __hadd(a[i], b[i]);
  rh[i] = __rhadd(a[i], b[i]);
  uh[i] = __uhadd((unsigned)a[i], (unsigned)b[i]);
  urh[i] = __urhadd((unsigned)a[i], (unsigned)b[i]);
}

// case:
__global__ void min_max(const int* a, const int* b, const long long* c, int* least, int* most,
                        unsigned* mixed, long long* wide, int n) {
  AT;
  least[i] = min(a[i], b[i]);
  most[i] = max(a[i], b[i]);
  mixed[i] = max((unsigned)a[i], b[i]);
  wide[i] = min(c[i], (long long)a[i]);
}

// case:
__global__ void absolutes(const int* a, const long long* b, int* c, long long* d, int n) {
  AT;
  c[i] = abs(a[i] == -2147483647 - 1 ? 0 : a[i]);
  d[i] = llabs(b[i] == -9223372036854775807ll - 1 ? 0 : b[i]);
}

// case: mask=bits(), base=ints(0, 31), offset=ints(-8, 8)
__global__ void fns(const unsigned* mask, const unsigned* base, const int* offset, unsigned* out,
                    int n) {
  AT;
  out[i] = __fns(mask[i], base[i], offset[i]);
}

// case:
__global__ void simd_add_sub(const unsigned* a, const unsigned* b, unsigned* add4, unsigned* sub2,
                             unsigned* adds4, unsigned* subus2, int n) {
  AT;
  add4[i] = __vadd4(a[i], b[i]);
  sub2[i] = __vsub2(a[i], b[i]);
  adds4[i] = __vaddss4(a[i], b[i]);
  subus2[i] = __vsubus2(a[i], b[i]);
}

// case:
__global__ void simd_compare(const unsigned* a, const unsigned* b, unsigned* eq, unsigned* gt,
                             unsigned* lo, unsigned* hi, int n) {
  AT;
  eq[i] = __vcmpeq4(a[i] & 0x03030303, b[i] & 0x03030303);
  gt[i] = __vcmpgtu4(a[i], b[i]);
  lo[i] = __vmins2(a[i], b[i]);
  hi[i] = __vmaxu4(a[i], b[i]);
}

// case:
__global__ void simd_differences(const unsigned* a, const unsigned* b, unsigned* diff,
                                 unsigned* sum, unsigned* average, unsigned* negative, int n) {
  AT;
  diff[i] = __vabsdiffu4(a[i], b[i]);
  sum[i] = __vsadu4(a[i], b[i]);
  average[i] = __vavgu4(a[i], b[i]);
  negative[i] = __vnegss4(a[i]);
}

// case:
__global__ void hash(const unsigned* a, unsigned* out, int n) {
  AT;
  unsigned h = a[i];
  for (int k = 0; k < 4; ++k) {
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h = (h << 5 | h >> 27) + k;
  }
  out[i] = h;
}

// case: a=ints(0, 1 << 30)
__global__ void square_root(const unsigned* a, unsigned* out, int n) {
  AT;
  unsigned x = a[i], root = 0;
  for (unsigned bit = 1u << 30; bit; bit >>= 2) {
    if (x >= root + bit) {
      x -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  out[i] = root;
}

// case:
__global__ void bit_fields(const unsigned* a, unsigned* out, int n) {
  AT;
  struct { unsigned low : 5, middle : 13; int high : 14; } f;
  f.low = a[i], f.middle = a[i] >> 5, f.high = (int)(a[i] >> 18);
  f.middle += 1, f.high -= 1;
  out[i] = f.low * 7u + f.middle * 31u + (unsigned)f.high;
}
