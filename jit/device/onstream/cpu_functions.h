// CUDA's device functions for host compilers: math, conversions, bits, atomics. Follows
// cpu.h.
#ifndef ONSTREAM_CPU_FUNCTIONS_H_
#define ONSTREAM_CPU_FUNCTIONS_H_

namespace ons_cpu {

template <class To_, class From_>
inline To_ bits_as(From_ from) {
  static_assert(sizeof(To_) == sizeof(From_), "the same size");
  To_ to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

template <class T_>
struct if_float {};
template <>
struct if_float<float> {
  using type = float;
};

template <class T_>
struct if_floating {};  // bool, for tests
template <>
struct if_floating<float> {
  using type = bool;
};
template <>
struct if_floating<double> {
  using type = bool;
};

template <class T_>
struct if_signed {};
#define ONS_CPU_SIGNED(T_) \
  template <>              \
  struct if_signed<T_> {   \
    using type = T_;       \
  };
ONS_CPU_SIGNED(int)
ONS_CPU_SIGNED(long)
ONS_CPU_SIGNED(long long)
ONS_CPU_SIGNED(float)
ONS_CPU_SIGNED(double)
#undef ONS_CPU_SIGNED
template <class To_, class From_>
inline To_ saturate(From_ x) {
  constexpr bool is_signed = To_(-1) < To_(0);
  // Powers of two, exact in both floating types.
  const From_ above = From_(1ull << (8 * sizeof(To_) - 1 - is_signed)) * 2;
  const From_ below = is_signed ? -above : From_(0);
  constexpr To_ lowest = is_signed ? To_(1ull << (8 * sizeof(To_) - 1)) : To_(0);
  if (!(x >= below)) return x == x ? lowest : To_(0);
  return x < above ? To_(x) : To_(~lowest);
}

// Replaces *at by update(*at); returns what was there. Compares bits: -0.0 and NaN are
// values too.
template <class Word_, class T_, class F_>
inline T_ atomic_update(T_* at, F_ update) {
  typedef Word_ __attribute__((may_alias)) aliased;
  aliased* word = reinterpret_cast<aliased*>(at);
  Word_ old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old,
                                      bits_as<Word_>(T_(update(bits_as<T_>(old)))), true,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return bits_as<T_>(old);
}

}  // namespace ons_cpu

// What the macros for intrinsics below expand to: "#define expf __expf" may follow.
inline float ons_cpu_expf(float x) { return ::expf(x); }
inline float ons_cpu_logf(float x) { return ::logf(x); }
inline float ons_cpu_log2f(float x) { return ::log2f(x); }
inline float ons_cpu_log10f(float x) { return ::log10f(x); }
inline float ons_cpu_sinf(float x) { return ::sinf(x); }
inline float ons_cpu_cosf(float x) { return ::cosf(x); }
inline float ons_cpu_tanf(float x) { return ::tanf(x); }
inline float ons_cpu_tanhf(float x) { return ::tanhf(x); }
inline float ons_cpu_exp10f(float x) { return static_cast<float>(::pow(10.0, x)); }
inline float ons_cpu_powf(float x, float y) { return ::powf(x, y); }
inline void ons_cpu_sincosf(float x, float* sine, float* cosine) {
  *sine = ::sinf(x);
  *cosine = ::cosf(x);
}

// A namespace of its own, made visible: a source may still define a helper of the same
// name, and <cmath>'s overloads win over the templates here instead of clashing with
// them.
namespace ons_cpu_dialect {
static constexpr int warpSize = 32;

// ---- what a kernel may not use here ----

#define ONS_CPU_MISSING(name) \
  template <class... A_>      \
  int name(A_...) = delete;
ONS_CPU_MISSING(__syncthreads)
ONS_CPU_MISSING(__syncthreads_count)
ONS_CPU_MISSING(__syncthreads_and)
ONS_CPU_MISSING(__syncthreads_or)
ONS_CPU_MISSING(__syncwarp)
ONS_CPU_MISSING(__shfl_sync)
ONS_CPU_MISSING(__shfl_up_sync)
ONS_CPU_MISSING(__shfl_down_sync)
ONS_CPU_MISSING(__shfl_xor_sync)
ONS_CPU_MISSING(__any_sync)
ONS_CPU_MISSING(__all_sync)
ONS_CPU_MISSING(__ballot_sync)
ONS_CPU_MISSING(__activemask)
ONS_CPU_MISSING(__match_any_sync)
ONS_CPU_MISSING(__match_all_sync)
ONS_CPU_MISSING(__reduce_add_sync)
ONS_CPU_MISSING(__reduce_min_sync)
ONS_CPU_MISSING(__reduce_max_sync)
ONS_CPU_MISSING(__reduce_and_sync)
ONS_CPU_MISSING(__reduce_or_sync)
ONS_CPU_MISSING(__reduce_xor_sync)
#undef ONS_CPU_MISSING

// ---- reinterpretation ----

inline int __float_as_int(float x) { return ons_cpu::bits_as<int>(x); }
inline unsigned int __float_as_uint(float x) { return ons_cpu::bits_as<unsigned int>(x); }
inline float __int_as_float(int x) { return ons_cpu::bits_as<float>(x); }
inline float __uint_as_float(unsigned int x) { return ons_cpu::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return ons_cpu::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return ons_cpu::bits_as<double>(x); }
inline int __double2hiint(double x) {
  return static_cast<int>(ons_cpu::bits_as<uint64_t>(x) >> 32);
}
inline int __double2loint(double x) {
  return static_cast<int>(ons_cpu::bits_as<uint64_t>(x));
}
inline double __hiloint2double(int high, int low) {
  return ons_cpu::bits_as<double>(static_cast<uint64_t>(static_cast<uint32_t>(high))
                                      << 32 |
                                  static_cast<uint32_t>(low));
}

// ---- float overloads of the C functions ----

#define ONS_CPU_MATH1(name)                                \
  template <class T_>                                      \
  inline typename ons_cpu::if_float<T_>::type name(T_ x) { \
    return ::name##f(x);                                   \
  }
#define ONS_CPU_MATH2(name)                                      \
  template <class T_>                                            \
  inline typename ons_cpu::if_float<T_>::type name(T_ x, T_ y) { \
    return ::name##f(x, y);                                      \
  }
ONS_CPU_MATH1(acos)
ONS_CPU_MATH1(acosh)
ONS_CPU_MATH1(asin)
ONS_CPU_MATH1(asinh)
ONS_CPU_MATH1(atan)
ONS_CPU_MATH1(atanh)
ONS_CPU_MATH1(cbrt)
ONS_CPU_MATH1(ceil)
ONS_CPU_MATH1(cos)
ONS_CPU_MATH1(cosh)
ONS_CPU_MATH1(erf)
ONS_CPU_MATH1(erfc)
ONS_CPU_MATH1(exp)
ONS_CPU_MATH1(exp2)
ONS_CPU_MATH1(expm1)
ONS_CPU_MATH1(fabs)
ONS_CPU_MATH1(floor)
ONS_CPU_MATH1(lgamma)
ONS_CPU_MATH1(log)
ONS_CPU_MATH1(log10)
ONS_CPU_MATH1(log1p)
ONS_CPU_MATH1(log2)
ONS_CPU_MATH1(logb)
ONS_CPU_MATH1(nearbyint)
ONS_CPU_MATH1(rint)
ONS_CPU_MATH1(round)
ONS_CPU_MATH1(sin)
ONS_CPU_MATH1(sinh)
ONS_CPU_MATH1(sqrt)
ONS_CPU_MATH1(tan)
ONS_CPU_MATH1(tanh)
ONS_CPU_MATH1(tgamma)
ONS_CPU_MATH1(trunc)
ONS_CPU_MATH2(atan2)
ONS_CPU_MATH2(copysign)
ONS_CPU_MATH2(fdim)
ONS_CPU_MATH2(fmax)
ONS_CPU_MATH2(fmin)
ONS_CPU_MATH2(fmod)
ONS_CPU_MATH2(hypot)
ONS_CPU_MATH2(nextafter)
ONS_CPU_MATH2(pow)
ONS_CPU_MATH2(remainder)
#undef ONS_CPU_MATH1
#undef ONS_CPU_MATH2

// C's are macros, which <cmath> takes away.
#undef isnan
#undef isinf
#undef isfinite
#undef signbit
#define ONS_CPU_TEST(name)                                    \
  template <class T_>                                         \
  inline typename ons_cpu::if_floating<T_>::type name(T_ x) { \
    return __builtin_##name(x);                               \
  }
ONS_CPU_TEST(isnan)
ONS_CPU_TEST(isinf)
ONS_CPU_TEST(isfinite)
ONS_CPU_TEST(signbit)
#undef ONS_CPU_TEST

template <class T_>
inline typename ons_cpu::if_float<T_>::type fma(T_ x, T_ y, T_ z) {
  return ::fmaf(x, y, z);
}
template <class T_>
inline typename ons_cpu::if_float<T_>::type ldexp(T_ x, int exponent) {
  return ::ldexpf(x, exponent);
}

template <class T_>
inline typename ons_cpu::if_signed<T_>::type abs(T_ x) {
  return x < 0 ? -x : x + T_(0);  // + 0: -0.0 becomes 0.0
}
template <class T_>
inline typename ons_cpu::if_signed<T_>::type labs(T_ x) {
  return abs(x);
}
template <class T_>
inline typename ons_cpu::if_signed<T_>::type llabs(T_ x) {
  return abs(x);
}

// ---- functions that C has not ----

inline float rsqrtf(float x) { return 1.0f / ::sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float rsqrt(float x) { return 1.0f / ::sqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / ::cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / ::cbrt(x); }
inline float rhypotf(float x, float y) { return 1.0f / ::hypotf(x, y); }
inline double rhypot(double x, double y) { return 1.0 / ::hypot(x, y); }
inline float norm3df(float x, float y, float z) { return ::sqrtf(x * x + y * y + z * z); }
inline double norm3d(double x, double y, double z) {
  return ::sqrt(x * x + y * y + z * z);
}
inline float fdividef(float x, float y) { return x / y; }
inline float normcdff(float x) { return 0.5f * ::erfcf(x * -0.707106781186547524f); }
inline double normcdf(double x) { return 0.5 * ::erfc(x * -0.707106781186547524); }

// Reduced exactly before pi comes in: sinpi(integer) is 0.
inline double sinpi(double x) {
  double r = ::fabs(::remainder(x, 2.0));
  if (r > 0.5) r = 1.0 - r;
  return ::copysign(1.0, ::remainder(x, 2.0)) * ::sin(3.14159265358979323846 * r);
}
inline double cospi(double x) { return sinpi(0.5 - ::fabs(::remainder(x, 2.0))); }
inline float sinpif(float x) { return static_cast<float>(sinpi(x)); }
inline float cospif(float x) { return static_cast<float>(cospi(x)); }
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x);
  *cosine = cospif(x);
}
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = sinpi(x);
  *cosine = cospi(x);
}
#ifndef _GNU_SOURCE
inline float exp10f(float x) { return static_cast<float>(::pow(10.0, x)); }
inline double exp10(double x) { return ::pow(10.0, x); }
inline void sincosf(float x, float* sine, float* cosine) {
  *sine = ::sinf(x);
  *cosine = ::cosf(x);
}
inline void sincos(double x, double* sine, double* cosine) {
  *sine = ::sin(x);
  *cosine = ::cos(x);
}
#endif

// Intrinsics. Macros where glibc declares a private function of that name.
#define __expf(x) ::ons_cpu_expf(x)
#define __exp10f(x) ::ons_cpu_exp10f(x)
#define __logf(x) ::ons_cpu_logf(x)
#define __log2f(x) ::ons_cpu_log2f(x)
#define __log10f(x) ::ons_cpu_log10f(x)
#define __powf(x, y) ::ons_cpu_powf(x, y)
#define __sinf(x) ::ons_cpu_sinf(x)
#define __cosf(x) ::ons_cpu_cosf(x)
#define __tanf(x) ::ons_cpu_tanf(x)
#define __tanhf(x) ::ons_cpu_tanhf(x)
#define __sincosf(x, sine, cosine) ::ons_cpu_sincosf(x, sine, cosine)
inline float __fdividef(float x, float y) { return x / y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return ::sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / ::sqrt(double(x))); }
inline float __fmaf_rn(float x, float y, float z) { return ::fmaf(x, y, z); }
inline double __fma_rn(double x, double y, double z) { return ::fma(x, y, z); }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return ::sqrt(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// These promise that no multiply-add is formed, which host compilers form across inline
// calls.
#ifdef __clang__
#define ONS_CPU_UNFUSED _Pragma("clang fp contract(off)")
#define ONS_CPU_UNFUSED_ATTRIBUTE
#else
#define ONS_CPU_UNFUSED
#define ONS_CPU_UNFUSED_ATTRIBUTE __attribute__((optimize("fp-contract=off"), noinline))
#endif
#define ONS_CPU_UNFUSED_OP(name, type, op)                     \
  ONS_CPU_UNFUSED_ATTRIBUTE inline type name(type x, type y) { \
    ONS_CPU_UNFUSED                                            \
    return x op y;                                             \
  }
ONS_CPU_UNFUSED_OP(__fadd_rn, float, +)
ONS_CPU_UNFUSED_OP(__fsub_rn, float, -)
ONS_CPU_UNFUSED_OP(__fmul_rn, float, *)
ONS_CPU_UNFUSED_OP(__dadd_rn, double, +)
ONS_CPU_UNFUSED_OP(__dsub_rn, double, -)
ONS_CPU_UNFUSED_OP(__dmul_rn, double, *)
#undef ONS_CPU_UNFUSED_OP
#undef ONS_CPU_UNFUSED_ATTRIBUTE
#undef ONS_CPU_UNFUSED

// ---- min and max: plain overloads, so that std::min does not compete ----

#define ONS_CPU_MIN_MAX(result, A_, B_)                                \
  inline result min(A_ a, B_ b) {                                      \
    const auto x = static_cast<result>(a), y = static_cast<result>(b); \
    return y < x ? y : x;                                              \
  }                                                                    \
  inline result max(A_ a, B_ b) {                                      \
    const auto x = static_cast<result>(a), y = static_cast<result>(b); \
    return x < y ? y : x;                                              \
  }
ONS_CPU_MIN_MAX(int, int, int)
ONS_CPU_MIN_MAX(unsigned int, unsigned int, unsigned int)
ONS_CPU_MIN_MAX(unsigned int, int, unsigned int)
ONS_CPU_MIN_MAX(unsigned int, unsigned int, int)
ONS_CPU_MIN_MAX(long, long, long)
ONS_CPU_MIN_MAX(unsigned long, unsigned long, unsigned long)
ONS_CPU_MIN_MAX(unsigned long, long, unsigned long)
ONS_CPU_MIN_MAX(unsigned long, unsigned long, long)
ONS_CPU_MIN_MAX(long long, long long, long long)
ONS_CPU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
ONS_CPU_MIN_MAX(unsigned long long, long long, unsigned long long)
ONS_CPU_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef ONS_CPU_MIN_MAX
#define ONS_CPU_MIN_MAX(result, A_, B_, suffix)                  \
  inline result min(A_ a, B_ b) { return ::fmin##suffix(a, b); } \
  inline result max(A_ a, B_ b) { return ::fmax##suffix(a, b); }
ONS_CPU_MIN_MAX(float, float, float, f)
ONS_CPU_MIN_MAX(double, double, double, )
ONS_CPU_MIN_MAX(double, float, double, )
ONS_CPU_MIN_MAX(double, double, float, )
#undef ONS_CPU_MIN_MAX
inline unsigned int umin(unsigned int a, unsigned int b) { return min(a, b); }
inline unsigned int umax(unsigned int a, unsigned int b) { return max(a, b); }

// ---- numeric conversions: out of range saturates, NaN gives 0 ----

#define ONS_CPU_CONVERSIONS(from, suffix, to, type)     \
  inline type __##from##2##to##_rn(from x) {            \
    return ons_cpu::saturate<type>(::rint##suffix(x));  \
  }                                                     \
  inline type __##from##2##to##_rz(from x) {            \
    return ons_cpu::saturate<type>(::trunc##suffix(x)); \
  }                                                     \
  inline type __##from##2##to##_ru(from x) {            \
    return ons_cpu::saturate<type>(::ceil##suffix(x));  \
  }                                                     \
  inline type __##from##2##to##_rd(from x) {            \
    return ons_cpu::saturate<type>(::floor##suffix(x)); \
  }
ONS_CPU_CONVERSIONS(float, f, int, int)
ONS_CPU_CONVERSIONS(float, f, uint, unsigned int)
ONS_CPU_CONVERSIONS(float, f, ll, long long)
ONS_CPU_CONVERSIONS(float, f, ull, unsigned long long)
ONS_CPU_CONVERSIONS(double, , int, int)
ONS_CPU_CONVERSIONS(double, , uint, unsigned int)
ONS_CPU_CONVERSIONS(double, , ll, long long)
ONS_CPU_CONVERSIONS(double, , ull, unsigned long long)
#undef ONS_CPU_CONVERSIONS
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned int x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __ull2float_rn(unsigned long long x) { return float(x); }
inline double __int2double_rn(int x) { return double(x); }
inline double __uint2double_rn(unsigned int x) { return double(x); }
inline double __ll2double_rn(long long x) { return double(x); }
inline double __ull2double_rn(unsigned long long x) { return double(x); }
inline float __double2float_rn(double x) { return float(x); }

// ---- integers and bits ----

inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned int>(x)) : 32; }
inline int __clzll(long long x) {
  return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned int __brev(unsigned int x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0F0F0F0Fu) | (x & 0x0F0F0F0Fu) << 4;
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned int>(x))) << 32 |
         __brev(static_cast<unsigned int>(x >> 32));
}
// Each of the selector's four low nibbles picks a byte of y:x; its top bit replicates the
// sign.
inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned int result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned int nibble = selector >> (4 * i) & 0xF;
    unsigned int byte = static_cast<unsigned int>(bytes >> (8 * (nibble & 7))) & 0xFF;
    if (nibble & 8) byte = byte & 0x80 ? 0xFF : 0;
    result |= byte << (8 * i);
  }
  return result;
}
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high,
                                    unsigned int shift) {
  return static_cast<unsigned int>(
      ((static_cast<uint64_t>(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high,
                                    unsigned int shift) {
  return static_cast<unsigned int>((static_cast<uint64_t>(high) << 32 | low) >>
                                   (shift & 31));
}
inline unsigned int __funnelshift_lc(unsigned int low, unsigned int high,
                                     unsigned int shift) {
  return shift < 32 ? __funnelshift_l(low, high, shift) : low;
}
inline unsigned int __funnelshift_rc(unsigned int low, unsigned int high,
                                     unsigned int shift) {
  return shift < 32 ? __funnelshift_r(low, high, shift) : high;
}
inline int __hadd(int x, int y) { return static_cast<int>((int64_t(x) + y) >> 1); }
inline int __rhadd(int x, int y) { return static_cast<int>((int64_t(x) + y + 1) >> 1); }
inline unsigned int __uhadd(unsigned int x, unsigned int y) {
  return static_cast<unsigned int>((uint64_t(x) + y) >> 1);
}
inline unsigned int __urhadd(unsigned int x, unsigned int y) {
  return static_cast<unsigned int>((uint64_t(x) + y + 1) >> 1);
}
// The sum of the products of four bytes, or of two halves of x and two bytes of y.
#define ONS_CPU_DOT(A_, byte, half)                                                \
  inline A_ __dp4a(A_ x, A_ y, A_ sum) {                                           \
    for (int i = 0; i < 32; i += 8) sum += A_{byte(x >> i)} * A_{byte(y >> i)};    \
    return sum;                                                                    \
  }                                                                                \
  inline A_ __dp2a_lo(A_ x, A_ y, A_ sum) {                                        \
    return sum + A_{half(x)} * A_{byte(y)} + A_{half(x >> 16)} * A_{byte(y >> 8)}; \
  }                                                                                \
  inline A_ __dp2a_hi(A_ x, A_ y, A_ sum) { return __dp2a_lo(x, y >> 16, sum); }
ONS_CPU_DOT(int, int8_t, int16_t)
ONS_CPU_DOT(uint32_t, uint8_t, uint16_t)
#undef ONS_CPU_DOT
inline int __mulhi(int x, int y) { return static_cast<int>((int64_t(x) * y) >> 32); }
inline unsigned int __umulhi(unsigned int x, unsigned int y) {
  return static_cast<unsigned int>((uint64_t(x) * y) >> 32);
}
inline long long __mul64hi(long long x, long long y) {
  return static_cast<long long>((static_cast<__int128>(x) * y) >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(x) * y) >> 64);
}
inline int __mul24(int x, int y) {
  return (int(unsigned(x) << 8) >> 8) * (int(unsigned(y) << 8) >> 8);
}
inline unsigned int __umul24(unsigned int x, unsigned int y) {
  return (x & 0xFFFFFFu) * (y & 0xFFFFFFu);
}
inline unsigned int __sad(int x, int y, unsigned int z) {
  return z + (x > y ? unsigned(x) - unsigned(y) : unsigned(y) - unsigned(x));
}
inline unsigned int __usad(unsigned int x, unsigned int y, unsigned int z) {
  return z + (x > y ? x - y : y - x);
}

// ---- memory ----

#define ONS_CPU_LOAD(name)         \
  template <class T_>              \
  inline T_ name(const T_* from) { \
    return *from;                  \
  }
ONS_CPU_LOAD(__ldg)
ONS_CPU_LOAD(__ldca)
ONS_CPU_LOAD(__ldcg)
ONS_CPU_LOAD(__ldcs)
ONS_CPU_LOAD(__ldlu)
ONS_CPU_LOAD(__ldcv)
#undef ONS_CPU_LOAD
#define ONS_CPU_STORE(name)                           \
  template <class T_>                                 \
  inline void name(T_* to, decltype(T_(*to)) value) { \
    *to = value;                                      \
  }
ONS_CPU_STORE(__stwb)
ONS_CPU_STORE(__stcg)
ONS_CPU_STORE(__stcs)
ONS_CPU_STORE(__stwt)
#undef ONS_CPU_STORE
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __nanosleep(unsigned int) {}
// The processor's time stamp.
inline long long clock64() {
#if defined(__x86_64__) || defined(__i386__)
  return static_cast<long long>(__builtin_ia32_rdtsc());
#else
  long long ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
}
template <class T_ = long>  // so that <time.h>'s wins instead of clashing
inline T_ clock() {
  return static_cast<T_>(clock64());
}
inline void __trap() { __builtin_trap(); }

// ---- atomics: relaxed, as CUDA's, and atomic across the threads of a launch ----

#define ONS_CPU_ATOMIC_INTEGER(T_)                                                    \
  inline T_ atomicAdd(T_* at, T_ v) {                                                 \
    return __atomic_fetch_add(at, v, __ATOMIC_RELAXED);                               \
  }                                                                                   \
  inline T_ atomicSub(T_* at, T_ v) {                                                 \
    return __atomic_fetch_sub(at, v, __ATOMIC_RELAXED);                               \
  }                                                                                   \
  inline T_ atomicAnd(T_* at, T_ v) {                                                 \
    return __atomic_fetch_and(at, v, __ATOMIC_RELAXED);                               \
  }                                                                                   \
  inline T_ atomicOr(T_* at, T_ v) {                                                  \
    return __atomic_fetch_or(at, v, __ATOMIC_RELAXED);                                \
  }                                                                                   \
  inline T_ atomicXor(T_* at, T_ v) {                                                 \
    return __atomic_fetch_xor(at, v, __ATOMIC_RELAXED);                               \
  }                                                                                   \
  inline T_ atomicExch(T_* at, T_ v) {                                                \
    return __atomic_exchange_n(at, v, __ATOMIC_RELAXED);                              \
  }                                                                                   \
  inline T_ atomicMin(T_* at, T_ v) {                                                 \
    return ons_cpu::atomic_update<T_>(at, [v](T_ old) { return v < old ? v : old; }); \
  }                                                                                   \
  inline T_ atomicMax(T_* at, T_ v) {                                                 \
    return ons_cpu::atomic_update<T_>(at, [v](T_ old) { return old < v ? v : old; }); \
  }                                                                                   \
  inline T_ atomicCAS(T_* at, T_ expected, T_ desired) {                              \
    __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_RELAXED,      \
                                __ATOMIC_RELAXED);                                    \
    return expected;                                                                  \
  }
ONS_CPU_ATOMIC_INTEGER(int)
ONS_CPU_ATOMIC_INTEGER(unsigned int)
ONS_CPU_ATOMIC_INTEGER(long)
ONS_CPU_ATOMIC_INTEGER(unsigned long)
ONS_CPU_ATOMIC_INTEGER(long long)
ONS_CPU_ATOMIC_INTEGER(unsigned long long)
#undef ONS_CPU_ATOMIC_INTEGER
inline unsigned short atomicCAS(unsigned short* at, unsigned short expected,
                                unsigned short desired) {
  __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return expected;
}
inline unsigned int atomicInc(unsigned int* at, unsigned int limit) {
  return ons_cpu::atomic_update<unsigned int>(
      at, [limit](unsigned int old) { return old >= limit ? 0u : old + 1; });
}
inline unsigned int atomicDec(unsigned int* at, unsigned int limit) {
  return ons_cpu::atomic_update<unsigned int>(at, [limit](unsigned int old) {
    return old == 0 || old > limit ? limit : old - 1;
  });
}
inline float atomicAdd(float* at, float v) {
  return ons_cpu::atomic_update<uint32_t>(at, [v](float old) { return old + v; });
}
inline double atomicAdd(double* at, double v) {
  return ons_cpu::atomic_update<uint64_t>(at, [v](double old) { return old + v; });
}
inline float atomicExch(float* at, float v) {
  return ons_cpu::atomic_update<uint32_t>(at, [v](float) { return v; });
}
#define atomicAdd_block atomicAdd
#define atomicAdd_system atomicAdd
#define atomicCAS_block atomicCAS
#define atomicCAS_system atomicCAS

}  // namespace ons_cpu_dialect

using namespace ons_cpu_dialect;

#endif  // ONSTREAM_CPU_FUNCTIONS_H_
