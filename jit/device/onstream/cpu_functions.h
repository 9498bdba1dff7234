// CUDA's device functions for host compilers, those that most kernels use: math, min and
// max, memory. Follows cpu_threads.h. The families beside it (cpu_atomics.h,
// cpu_integers.h, cpu_rounding.h, cpu_simd.h, cpu_special.h, cpu_warp.h) come behind it
// where the source mentions one of their names: each costs every compile some
// milliseconds.
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
struct same {
  using type = T_;
};
template <class T_>
struct if_float {};
template <>
struct if_float<float> : same<float> {};

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

// Towards To_: out of range becomes the nearest number there, NaN becomes 0.
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

// The C library's write a variable of the process, which the threads of a launch share.
extern "C" __attribute__((__visibility__("hidden"))) inline double lgamma(
    double x) noexcept {
  int sign;
  return ::lgamma_r(x, &sign);
}
extern "C" __attribute__((__visibility__("hidden"))) inline float lgammaf(
    float x) noexcept {
  int sign;
  return ::lgammaf_r(x, &sign);
}

// A namespace of its own, made visible: a source may still define a helper of the same
// name, and <cmath>'s overloads win over the templates here instead of clashing with
// them.
namespace ons_cpu_dialect {
static constexpr int warpSize = ONS_WARP_SIZE;

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

// Templates, as <cmath>'s overloads are to win.
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
inline typename ons_cpu::if_float<T_>::type scalbn(T_ x, int exponent) {
  return ::scalbnf(x, exponent);
}
template <class T_>
inline typename ons_cpu::if_float<T_>::type scalbln(T_ x, long exponent) {
  return ::scalblnf(x, exponent);
}
template <class T_>
inline typename ons_cpu::if_float<T_>::type pow(T_ x, int y) {
  return ::powf(x, static_cast<float>(y));
}
template <class T_>
inline typename ons_cpu::if_float<T_>::type frexp(T_ x, int* exponent) {
  return ::frexpf(x, exponent);
}
template <class T_>
inline typename ons_cpu::if_float<T_>::type modf(T_ x, T_* whole) {
  return ::modff(x, whole);
}
template <class T_>
inline typename ons_cpu::if_float<T_>::type remquo(T_ x, T_ y, int* quotient) {
  return ::remquof(x, y, quotient);
}
template <class T_>
inline void sincos(T_ x, T_* sine, typename ons_cpu::if_float<T_>::type* cosine) {
  *sine = ::sinf(x);
  *cosine = ::cosf(x);
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
inline float rcbrt(float x) { return rcbrtf(x); }
inline float rhypotf(float x, float y) { return 1.0f / ::hypotf(x, y); }
inline double rhypot(double x, double y) { return 1.0 / ::hypot(x, y); }
inline float fdividef(float x, float y) { return x / y; }

// Reduced exactly before pi comes in: sinpi(integer) is 0.
inline double sinpi(double x) {
  double r = ::fabs(::remainder(x, 2.0));
  if (r > 0.5) r = 1.0 - r;
  return ::copysign(1.0, ::remainder(x, 2.0)) * ::sin(3.14159265358979323846 * r);
}
inline double cospi(double x) { return sinpi(0.5 - ::fabs(::remainder(x, 2.0))); }
inline float sinpif(float x) { return static_cast<float>(sinpi(double(x))); }
inline float cospif(float x) { return static_cast<float>(cospi(double(x))); }
inline float sinpi(float x) { return sinpif(x); }
inline float cospi(float x) { return cospif(x); }
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x);
  *cosine = cospif(x);
}
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = sinpi(x);
  *cosine = cospi(x);
}
inline void sincospi(float x, float* sine, float* cosine) { sincospif(x, sine, cosine); }
template <class T_>
inline typename ons_cpu::if_float<T_>::type exp10(T_ x) {
  return ons_cpu_exp10f(x);
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
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

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
#define ONS_CPU_MIN_MAX(prefix, T_)                       \
  inline T_ prefix##min(T_ a, T_ b) { return min(a, b); } \
  inline T_ prefix##max(T_ a, T_ b) { return max(a, b); }
ONS_CPU_MIN_MAX(u, unsigned int)
ONS_CPU_MIN_MAX(ll, long long)
ONS_CPU_MIN_MAX(ull, unsigned long long)
#undef ONS_CPU_MIN_MAX

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
inline void __threadfence_cluster() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
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
[[noreturn]] inline void __trap(const char* file = __builtin_FILE(),
                                unsigned int line = __builtin_LINE()) {
  ons_cpu_trap(file, line);
  __builtin_unreachable();
}
[[noreturn]] inline void __brkpt(const char* file = __builtin_FILE(),
                                 unsigned int line = __builtin_LINE()) {
  __trap(file, line);
}
inline void __prof_trigger(int) {}

}  // namespace ons_cpu_dialect

using namespace ons_cpu_dialect;

#endif  // ONSTREAM_CPU_FUNCTIONS_H_
