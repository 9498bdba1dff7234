// Conversions and arithmetic of CUDA with a rounding mode in their name, for host
// compilers. Follows cpu_functions.h.
#ifndef ONSTREAM_CPU_ROUNDING_H_
#define ONSTREAM_CPU_ROUNDING_H_

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <fenv.h>
#endif

namespace ons_cpu {

// ---- the processor's rounding mode ----

// The values are the processor's.
#if defined(__x86_64__)
enum class rounding : uint32_t { rn = 0x0000, rd = 0x2000, ru = 0x4000, rz = 0x6000 };
inline uint32_t exchange_rounding(rounding mode) {
  uint32_t before, after;
  __asm__ volatile("stmxcsr %0" : "=m"(before));
  after = (before & ~uint32_t(0x6000)) | uint32_t(mode);
  __asm__ volatile("ldmxcsr %0" : : "m"(after));
  return before;
}
inline void restore_rounding(uint32_t before) {
  __asm__ volatile("ldmxcsr %0" : : "m"(before));
}
#define ONS_CPU_IN_REGISTER "x"
#elif defined(__aarch64__)
enum class rounding : uint64_t { rn = 0, ru = 1 << 22, rd = 2 << 22, rz = 3 << 22 };
inline uint64_t exchange_rounding(rounding mode) {
  uint64_t before, after;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  after = (before & ~uint64_t(3 << 22)) | uint64_t(mode);
  __asm__ volatile("msr fpcr, %0" : : "r"(after));
  return before;
}
inline void restore_rounding(uint64_t before) {
  __asm__ volatile("msr fpcr, %0" : : "r"(before));
}
#define ONS_CPU_IN_REGISTER "w"
#else
enum class rounding : int {
  rn = FE_TONEAREST,
  rd = FE_DOWNWARD,
  ru = FE_UPWARD,
  rz = FE_TOWARDZERO
};
inline int exchange_rounding(rounding mode) {
  const int before = fegetround();
  fesetround(int(mode));
  return before;
}
inline void restore_rounding(int before) { fesetround(before); }
#define ONS_CPU_IN_REGISTER "m"
#endif

// No compiler moves these, one against another, or looks into them: an operation whose
// operands and result pass through them stays between the changes of the mode, on its
// own.
inline void pin(float& x) { __asm__ volatile("" : "+" ONS_CPU_IN_REGISTER(x)); }
inline void pin(double& x) { __asm__ volatile("" : "+" ONS_CPU_IN_REGISTER(x)); }
template <class Integer_>
inline void pin(Integer_& x) {
  __asm__ volatile("" : "+r"(x));
}
#undef ONS_CPU_IN_REGISTER

}  // namespace ons_cpu

namespace ons_cpu_dialect {

// ---- to integers: out of range saturates, NaN gives 0 ----

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

// ---- to floating types ----

// Macros: a template would be instantiated for every function here, used or not.
#define ONS_CPU_DIRECTED1(name, to, parameters, pins, expression, mode)      \
  inline to name##_##mode parameters {                                       \
    const auto before = ons_cpu::exchange_rounding(ons_cpu::rounding::mode); \
    pins;                                                                    \
    to result = static_cast<to>(expression);                                 \
    ons_cpu::pin(result);                                                    \
    ons_cpu::restore_rounding(before);                                       \
    return result;                                                           \
  }
#define ONS_CPU_DIRECTED(name, to, parameters, pins, expression) \
  ONS_CPU_DIRECTED1(name, to, parameters, pins, expression, rz)  \
  ONS_CPU_DIRECTED1(name, to, parameters, pins, expression, ru)  \
  ONS_CPU_DIRECTED1(name, to, parameters, pins, expression, rd)
#define ONS_CPU_CONVERSION(name, from, to)      \
  inline to name##_rn(from x) { return to(x); } \
  ONS_CPU_DIRECTED(name, to, (from x), ons_cpu::pin(x), x)
ONS_CPU_CONVERSION(__double2float, double, float)
ONS_CPU_CONVERSION(__int2float, int, float)
ONS_CPU_CONVERSION(__uint2float, unsigned int, float)
ONS_CPU_CONVERSION(__ll2float, long long, float)
ONS_CPU_CONVERSION(__ll2double, long long, double)
#undef ONS_CPU_CONVERSION
// In halves, which are exact: where the processor has no such conversion, compilers
// subtract what they added, and 0 rounded down becomes -0.
#define ONS_CPU_CONVERSION(name, to)                                              \
  inline to name##_rn(unsigned long long x) { return to(x); }                     \
  ONS_CPU_DIRECTED(name, to, (unsigned long long x), ons_cpu::pin(x),             \
                   static_cast<double>(static_cast<uint32_t>(x >> 32)) * 0x1p32 + \
                       static_cast<double>(static_cast<uint32_t>(x)))
ONS_CPU_CONVERSION(__ull2float, float)
ONS_CPU_CONVERSION(__ull2double, double)
#undef ONS_CPU_CONVERSION
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned int x) { return x; }

// ---- arithmetic ----

// The _rn forms promise that no multiply-add is formed, which host compilers form across
// inline calls.
#ifdef __clang__
#define ONS_CPU_UNFUSED _Pragma("clang fp contract(off)")
#define ONS_CPU_UNFUSED_ATTRIBUTE
#else
#define ONS_CPU_UNFUSED
#define ONS_CPU_UNFUSED_ATTRIBUTE __attribute__((optimize("fp-contract=off"), noinline))
#endif
#define ONS_CPU_OPERATION(name, type, op)                                            \
  ONS_CPU_UNFUSED_ATTRIBUTE inline type name##_rn(type x, type y) {                  \
    ONS_CPU_UNFUSED                                                                  \
    return x op y;                                                                   \
  }                                                                                  \
  ONS_CPU_DIRECTED(name, type, (type x, type y), (ons_cpu::pin(x), ons_cpu::pin(y)), \
                   x op y)
ONS_CPU_OPERATION(__fadd, float, +)
ONS_CPU_OPERATION(__fsub, float, -)
ONS_CPU_OPERATION(__fmul, float, *)
ONS_CPU_OPERATION(__fdiv, float, /)
ONS_CPU_OPERATION(__dadd, double, +)
ONS_CPU_OPERATION(__dsub, double, -)
ONS_CPU_OPERATION(__dmul, double, *)
ONS_CPU_OPERATION(__ddiv, double, /)
#undef ONS_CPU_OPERATION
#undef ONS_CPU_UNFUSED_ATTRIBUTE
#undef ONS_CPU_UNFUSED

#define ONS_CPU_FUNCTION(name, type, expression)       \
  inline type name##_rn(type x) { return expression; } \
  ONS_CPU_DIRECTED(name, type, (type x), ons_cpu::pin(x), expression)
ONS_CPU_FUNCTION(__frcp, float, 1.0f / x)
ONS_CPU_FUNCTION(__drcp, double, 1.0 / x)
ONS_CPU_FUNCTION(__fsqrt, float, ::sqrtf(x))
ONS_CPU_FUNCTION(__dsqrt, double, ::sqrt(x))
#undef ONS_CPU_FUNCTION

#define ONS_CPU_FMA(name, type, function)                                     \
  inline type name##_rn(type x, type y, type z) { return function(x, y, z); } \
  ONS_CPU_DIRECTED(name, type, (type x, type y, type z),                      \
                   (ons_cpu::pin(x), ons_cpu::pin(y), ons_cpu::pin(z)),       \
                   function(x, y, z))
ONS_CPU_FMA(__fmaf, float, ::fmaf)
ONS_CPU_FMA(__fmaf_ieee, float, ::fmaf)
ONS_CPU_FMA(__fma, double, ::fma)
#undef ONS_CPU_FMA
#undef ONS_CPU_DIRECTED1
#undef ONS_CPU_DIRECTED

inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / ::sqrt(double(x))); }

}  // namespace ons_cpu_dialect

#endif  // ONSTREAM_CPU_ROUNDING_H_
