// Floating types of 16 and 8 bits for host compilers: conversions between bits and float,
// and what __half and __nv_bfloat16 have in common. Branch-free where it can be: these
// sit in inner loops. Included behind cpu.h.
#ifndef ONSTREAM_CPU_SMALL_FLOAT_H_
#define ONSTREAM_CPU_SMALL_FLOAT_H_

namespace ons_cpu {

// The bits of a float rounded to nearest even: 1 sign bit, E of exponent, M of mantissa.
// What is above `largest` becomes `overflow`; a NaN becomes `nan`, without its sign.
template <int E_, int M_, uint32_t largest, uint32_t overflow, uint32_t nan>
inline uint32_t narrow(float value) {
  constexpr int bias = (1 << (E_ - 1)) - 1;
  constexpr uint32_t smallest_normal = static_cast<uint32_t>(128 - bias) << 23;
  // Adding this to a subnormal leaves its rounded mantissa in the low bits of the sum.
  constexpr uint32_t magic = static_cast<uint32_t>(128 - bias + 23 - M_) << 23;
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t odd = magnitude >> (23 - M_) & 1;
  const uint32_t normal = ((magnitude + (1u << (22 - M_)) - 1 + odd) >> (23 - M_)) -
                          (static_cast<uint32_t>(127 - bias) << M_);
  const uint32_t subnormal =
      bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(magic)) - magic;
  uint32_t result = magnitude < smallest_normal ? subnormal : normal;
  result = magnitude >= 0x7F800000u || result > largest ? overflow : result;
  const uint32_t sign = (bits >> 31) << (E_ + M_);
  return magnitude > 0x7F800000u ? nan : result | sign;
}

// Exact. The exponent of all ones means infinity and NaN, as in IEEE.
template <int E_, int M_>
inline float widen(uint32_t bits) {
  if (E_ == 8) return bits_as<float>(bits << (23 - M_));  // the top half of a float
  constexpr int bias = (1 << (E_ - 1)) - 1;
  const uint32_t magnitude = bits & ((1u << (E_ + M_)) - 1);
  const uint32_t normal =
      (magnitude << (23 - M_)) + (static_cast<uint32_t>(127 - bias) << 23);
  constexpr uint32_t ulp = static_cast<uint32_t>(128 - bias - M_) << 23;  // of subnormals
  const uint32_t subnormal = bits_as<uint32_t>(
      static_cast<float>(static_cast<int>(magnitude)) * bits_as<float>(ulp));
  uint32_t result = magnitude >> M_ == 0 ? subnormal : normal;
  result =
      magnitude >> M_ == (1u << E_) - 1 ? 0x7F800000u | magnitude << (23 - M_) : result;
  return bits_as<float>(result | (bits >> (E_ + M_)) << 31);
}

// Rounds to odd, so that a second rounding to fewer bits gives what one rounding would
// have.
inline float to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const uint32_t bits = bits_as<uint32_t>(nearest);
  if (double(nearest) == value || nearest != nearest || (bits & 1)) return nearest;
  // Even and inexact: the neighbour on the other side of the value is odd.
  return bits_as<float>(::fabs(double(nearest)) < ::fabs(value) ? bits + 1 : bits - 1);
}

// x * y + z rounded to odd; x and y have so few bits that their product is exact.
inline float multiply_add_to_odd(float x, float y, float z) {
  const double product = double(x) * y, sum = product + z;
  const double part = sum - product;
  const double lost = (product - (sum - part)) + (z - part);
  if (!(lost != 0) || sum - sum != 0 || (bits_as<uint64_t>(sum) & 1)) return to_odd(sum);
  const bool grow = (lost > 0) == (sum > 0);
  return to_odd(bits_as<double>(bits_as<uint64_t>(sum) + (grow ? 1 : ~uint64_t(0))));
}

// An integer as a double, rounded to odd where it has more than 53 bits.
template <class T_>
inline double odd_double(T_ value) {
  if (sizeof(T_) < 8) return static_cast<double>(value);
  const bool negative = value < T_(0);
  uint64_t magnitude = static_cast<uint64_t>(value);
  if (negative) magnitude = 0 - magnitude;
  if (magnitude >> 53)
    magnitude = (magnitude & ~uint64_t(0x7FF)) | uint64_t((magnitude & 0x7FF) != 0) << 11;
  const double result = static_cast<double>(magnitude);
  return negative ? -result : result;
}
inline double odd_double(float value) { return value; }
inline double odd_double(double value) { return value; }

// What a small float converts to besides float: CUDA has no conversion to double of its
// own.
template <class T_>
struct if_integer {};
#define ONS_CPU_INTEGER(T_) \
  template <>               \
  struct if_integer<T_> : same<T_> {};
ONS_CPU_INTEGER(char)
ONS_CPU_INTEGER(signed char)
ONS_CPU_INTEGER(unsigned char)
ONS_CPU_INTEGER(short)
ONS_CPU_INTEGER(unsigned short)
ONS_CPU_INTEGER(int)
ONS_CPU_INTEGER(unsigned int)
ONS_CPU_INTEGER(long)
ONS_CPU_INTEGER(unsigned long)
ONS_CPU_INTEGER(long long)
ONS_CPU_INTEGER(unsigned long long)
#undef ONS_CPU_INTEGER
template <class T_>
struct if_number : if_integer<T_> {};
template <>
struct if_number<float> : same<float> {};
template <>
struct if_number<double> : same<double> {};

// Defined for __half and __nv_bfloat16, and for their pairs with members x and y: the
// functions below are theirs.
template <class T_>
struct if_small {};
template <class T2_>
struct if_small2 {};

// The number next to the nearest one where that lies on the wrong side of the value:
// `wanted` is -1 down, 1 up, 0 towards zero.
template <class T_>
inline T_ directed(double value, int wanted) {
  const T_ nearest(value);
  const double distance = double(float(nearest)) - value;
  const int side = distance > 0 ? 1 : distance < 0 ? -1 : 0;
  const bool is_negative = nearest.__x >> 15;
  const int outward = is_negative ? -1 : 1;
  const bool is_wrong = wanted ? side == -wanted : side == outward;
  if (!is_wrong) return nearest;
  const int step = (wanted ? wanted : -outward) == outward ? 1 : -1;
  return T_::from_bits(static_cast<unsigned short>(nearest.__x + step));
}

// 0 to 1; NaN gives 0.
template <class T_>
inline T_ unit_range(T_ a) {
  const float x = a;
  return T_(x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f);
}
// NaN stays.
template <class T_>
inline T_ not_negative(T_ a) {
  return float(a) < 0.0f ? T_(0.0f) : a;
}

template <class T_>
inline bool is_nan(T_ a) {
  return (a.__x & 0x7FFF) > T_::infinity;
}
template <class T_>
inline T_ pick_nan(T_ a, T_ b, T_ otherwise) {
  return is_nan(a) || is_nan(b) ? T_::from_bits(0x7FFF) : otherwise;
}

}  // namespace ons_cpu

// ---- operators ----

// Beside the types, where a namespace of the source's own does not hide them.
#define ONS_CPU_SMALL \
  template <class T_> \
  inline typename ons_cpu::if_small<T_>::type
#define ONS_CPU_SMALL_BOOL \
  template <class T_>      \
  inline typename ons_cpu::if_small<T_>::test
#define ONS_CPU_PAIR   \
  template <class T2_> \
  inline typename ons_cpu::if_small2<T2_>::type
#define ONS_CPU_PAIR_BOOL \
  template <class T2_>    \
  inline typename ons_cpu::if_small2<T2_>::test

// float holds more than twice the bits, so that rounding its result again changes
// nothing.
#define ONS_CPU_SMALL_OPERATOR(op)                                            \
  ONS_CPU_SMALL operator op(T_ a, T_ b) { return T_(float(a) op float(b)); }  \
  ONS_CPU_SMALL& operator op##=(T_& a, typename ons_cpu::same<T_>::type b) {  \
    return a = T_(float(a) op float(b));                                      \
  }                                                                           \
  ONS_CPU_PAIR operator op(T2_ a, T2_ b) { return {a.x op b.x, a.y op b.y}; } \
  ONS_CPU_PAIR& operator op##=(T2_& a, typename ons_cpu::same<T2_>::type b) { \
    return a = a op b;                                                        \
  }
ONS_CPU_SMALL_OPERATOR(+)
ONS_CPU_SMALL_OPERATOR(-)
ONS_CPU_SMALL_OPERATOR(*)
ONS_CPU_SMALL_OPERATOR(/)
#undef ONS_CPU_SMALL_OPERATOR

#define ONS_CPU_SMALL_STEP(op)                                                \
  ONS_CPU_SMALL& operator op##op(T_& a) { return a = a op T_(1.0f); }         \
  ONS_CPU_PAIR& operator op##op(T2_& a) { return op##op a.x, op##op a.y, a; } \
  ONS_CPU_SMALL operator op##op(T_& a, int) {                                 \
    const T_ before = a;                                                      \
    op##op a;                                                                 \
    return before;                                                            \
  }                                                                           \
  ONS_CPU_PAIR operator op##op(T2_& a, int) {                                 \
    const T2_ before = a;                                                     \
    op##op a;                                                                 \
    return before;                                                            \
  }
ONS_CPU_SMALL_STEP(+)
ONS_CPU_SMALL_STEP(-)
#undef ONS_CPU_SMALL_STEP

ONS_CPU_SMALL operator+(T_ a) { return a; }
ONS_CPU_PAIR operator+(T2_ a) { return a; }
ONS_CPU_SMALL operator-(T_ a) {
  return T_::from_bits(static_cast<unsigned short>(a.__x ^ 0x8000));
}
ONS_CPU_PAIR operator-(T2_ a) { return {-a.x, -a.y}; }

#define ONS_CPU_SMALL_COMPARISON(op)                                          \
  ONS_CPU_SMALL_BOOL operator op(T_ a, T_ b) { return float(a) op float(b); } \
  ONS_CPU_PAIR_BOOL operator op(T2_ a, T2_ b) { return a.x op b.x && a.y op b.y; }
ONS_CPU_SMALL_COMPARISON(==)
ONS_CPU_SMALL_COMPARISON(!=)
ONS_CPU_SMALL_COMPARISON(<)
ONS_CPU_SMALL_COMPARISON(<=)
ONS_CPU_SMALL_COMPARISON(>)
ONS_CPU_SMALL_COMPARISON(>=)
#undef ONS_CPU_SMALL_COMPARISON

namespace ons_cpu_dialect {

// ---- arithmetic ----

#define ONS_CPU_SMALL_NAMES(name, op)                                          \
  ONS_CPU_SMALL name(T_ a, T_ b) { return a op b; }                            \
  ONS_CPU_SMALL name##_rn(T_ a, T_ b) { return a op b; }                       \
  ONS_CPU_SMALL name##_sat(T_ a, T_ b) { return ons_cpu::unit_range(a op b); } \
  ONS_CPU_PAIR name##2(T2_ a, T2_ b) { return a op b; }                        \
  ONS_CPU_PAIR name##2_rn(T2_ a, T2_ b) { return a op b; }                     \
  ONS_CPU_PAIR name##2_sat(T2_ a, T2_ b) {                                     \
    return {ons_cpu::unit_range(a.x op b.x), ons_cpu::unit_range(a.y op b.y)}; \
  }
ONS_CPU_SMALL_NAMES(__hadd, +)
ONS_CPU_SMALL_NAMES(__hsub, -)
ONS_CPU_SMALL_NAMES(__hmul, *)
#undef ONS_CPU_SMALL_NAMES
ONS_CPU_SMALL __hdiv(T_ a, T_ b) { return a / b; }
ONS_CPU_PAIR __h2div(T2_ a, T2_ b) { return a / b; }

ONS_CPU_SMALL __hfma(T_ a, T_ b, T_ c) {
  return T_(ons_cpu::multiply_add_to_odd(a, b, c));
}
ONS_CPU_SMALL __hfma_sat(T_ a, T_ b, T_ c) {
  return ons_cpu::unit_range(__hfma(a, b, c));
}
ONS_CPU_SMALL __hfma_relu(T_ a, T_ b, T_ c) {
  return ons_cpu::not_negative(__hfma(a, b, c));
}
#define ONS_CPU_PAIR_FMA(suffix)                                           \
  ONS_CPU_PAIR __hfma2##suffix(T2_ a, T2_ b, T2_ c) {                      \
    return {__hfma##suffix(a.x, b.x, c.x), __hfma##suffix(a.y, b.y, c.y)}; \
  }
ONS_CPU_PAIR_FMA()
ONS_CPU_PAIR_FMA(_sat)
ONS_CPU_PAIR_FMA(_relu)
#undef ONS_CPU_PAIR_FMA
// Pairs as complex numbers.
ONS_CPU_PAIR __hcmadd(T2_ a, T2_ b, T2_ c) {
  return {__hfma(-a.y, b.y, __hfma(a.x, b.x, c.x)),
          __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};
}

// ---- comparisons: with NaN all are false, those of the names with a u true ----

#define ONS_CPU_SMALL_COMPARISON(op, name, unordered)                          \
  ONS_CPU_SMALL_BOOL __h##name(T_ a, T_ b) {                                   \
    return !ons_cpu::is_nan(a) && !ons_cpu::is_nan(b) && float(a) op float(b); \
  }                                                                            \
  ONS_CPU_SMALL_BOOL __h##unordered(T_ a, T_ b) {                              \
    return ons_cpu::is_nan(a) || ons_cpu::is_nan(b) || float(a) op float(b);   \
  }                                                                            \
  ONS_CPU_SMALL_COMPARISON2(name)                                              \
  ONS_CPU_SMALL_COMPARISON2(unordered)
#define ONS_CPU_SMALL_COMPARISON2(name)                                \
  ONS_CPU_PAIR __h##name##2(T2_ a, T2_ b) {                            \
    return {float(__h##name(a.x, b.x)), float(__h##name(a.y, b.y))};   \
  }                                                                    \
  ONS_CPU_PAIR_BOOL __hb##name##2(T2_ a, T2_ b) {                      \
    return __h##name(a.x, b.x) && __h##name(a.y, b.y);                 \
  }                                                                    \
  template <class T2_, class = typename ons_cpu::if_small2<T2_>::type> \
  inline unsigned int __h##name##2_mask(T2_ a, T2_ b) {                \
    return (__h##name(a.x, b.x) ? 0xFFFFu : 0u) |                      \
           (__h##name(a.y, b.y) ? 0xFFFF0000u : 0u);                   \
  }
ONS_CPU_SMALL_COMPARISON(==, eq, equ)
ONS_CPU_SMALL_COMPARISON(!=, ne, neu)
ONS_CPU_SMALL_COMPARISON(<, lt, ltu)
ONS_CPU_SMALL_COMPARISON(<=, le, leu)
ONS_CPU_SMALL_COMPARISON(>, gt, gtu)
ONS_CPU_SMALL_COMPARISON(>=, ge, geu)
#undef ONS_CPU_SMALL_COMPARISON
#undef ONS_CPU_SMALL_COMPARISON2

ONS_CPU_SMALL_BOOL __hisnan(T_ a) { return ons_cpu::is_nan(a); }
template <class T_, class = typename ons_cpu::if_small<T_>::type>
inline int __hisinf(T_ a) {
  return (a.__x & 0x7FFF) == T_::infinity ? (a.__x >> 15 ? -1 : 1) : 0;
}
ONS_CPU_PAIR __hisnan2(T2_ a) { return {float(__hisnan(a.x)), float(__hisnan(a.y))}; }

// NaN loses against a number; -0 is less than +0.
#define ONS_CPU_SMALL_EXTREME(name, is_negative_first)                                 \
  ONS_CPU_SMALL name(T_ a, T_ b) {                                                     \
    const float x = a, y = b;                                                          \
    const T_ picked = (x < y || (x == y && a.__x >> 15)) == is_negative_first ? a : b; \
    if (ons_cpu::is_nan(a)) return ons_cpu::is_nan(b) ? T_::from_bits(0x7FFF) : b;     \
    return ons_cpu::is_nan(b) ? a : picked;                                            \
  }                                                                                    \
  ONS_CPU_SMALL name##_nan(T_ a, T_ b) { return ons_cpu::pick_nan(a, b, name(a, b)); } \
  ONS_CPU_PAIR name##2(T2_ a, T2_ b) { return {name(a.x, b.x), name(a.y, b.y)}; }      \
  ONS_CPU_PAIR name##2_nan(T2_ a, T2_ b) {                                             \
    return {name##_nan(a.x, b.x), name##_nan(a.y, b.y)};                               \
  }
ONS_CPU_SMALL_EXTREME(__hmin, true)
ONS_CPU_SMALL_EXTREME(__hmax, false)
#undef ONS_CPU_SMALL_EXTREME

// ---- functions of one number ----

ONS_CPU_SMALL __hneg(T_ a) { return -a; }
ONS_CPU_PAIR __hneg2(T2_ a) { return -a; }
ONS_CPU_SMALL __habs(T_ a) {
  return T_::from_bits(static_cast<unsigned short>(a.__x & 0x7FFF));
}
ONS_CPU_PAIR __habs2(T2_ a) { return {__habs(a.x), __habs(a.y)}; }

#define ONS_CPU_SMALL_FUNCTION(name, expression) \
  ONS_CPU_SMALL h##name(T_ a) {                  \
    const float x = a;                           \
    return T_(expression);                       \
  }                                              \
  ONS_CPU_PAIR h2##name(T2_ a) { return {h##name(a.x), h##name(a.y)}; }
ONS_CPU_SMALL_FUNCTION(ceil, ::ceilf(x))
ONS_CPU_SMALL_FUNCTION(cos, ::cosf(x))
ONS_CPU_SMALL_FUNCTION(exp, ::expf(x))
ONS_CPU_SMALL_FUNCTION(exp10, ons_cpu_exp10f(x))
ONS_CPU_SMALL_FUNCTION(exp2, ::exp2f(x))
ONS_CPU_SMALL_FUNCTION(floor, ::floorf(x))
ONS_CPU_SMALL_FUNCTION(log, ::logf(x))
ONS_CPU_SMALL_FUNCTION(log10, ::log10f(x))
ONS_CPU_SMALL_FUNCTION(log2, ::log2f(x))
ONS_CPU_SMALL_FUNCTION(rcp, 1.0f / x)
ONS_CPU_SMALL_FUNCTION(rint, ::rintf(x))
ONS_CPU_SMALL_FUNCTION(rsqrt, 1.0 / ::sqrt(double(x)))
ONS_CPU_SMALL_FUNCTION(sin, ::sinf(x))
ONS_CPU_SMALL_FUNCTION(sqrt, ::sqrtf(x))
ONS_CPU_SMALL_FUNCTION(tanh, ::tanhf(x))
ONS_CPU_SMALL_FUNCTION(tanh_approx, ::tanhf(x))
ONS_CPU_SMALL_FUNCTION(trunc, ::truncf(x))
#undef ONS_CPU_SMALL_FUNCTION

// ---- pairs ----

ONS_CPU_PAIR __lowhigh2highlow(T2_ a) { return {a.y, a.x}; }
template <class T2_, class = typename ons_cpu::if_small2<T2_>::type>
inline float __low2float(T2_ a) {
  return a.x;
}
template <class T2_, class = typename ons_cpu::if_small2<T2_>::type>
inline float __high2float(T2_ a) {
  return a.y;
}

// ---- atomics: there where cpu_atomics.h is ----

#ifdef ONSTREAM_CPU_ATOMICS_H_
#define ONS_CPU_SMALL_ATOMIC(name)                                                 \
  ONS_CPU_SMALL name(T_* at, typename ons_cpu::same<T_>::type v) {                 \
    return ons_cpu::atomic_update<uint16_t>(at, [v](T_ old) { return old + v; });  \
  }                                                                                \
  ONS_CPU_PAIR name(T2_* at, typename ons_cpu::same<T2_>::type v) {                \
    return ons_cpu::atomic_update<uint32_t>(at, [v](T2_ old) { return old + v; }); \
  }
ONS_CPU_SMALL_ATOMIC(atomicAdd)
ONS_CPU_SMALL_ATOMIC(atomicAdd_block)
ONS_CPU_SMALL_ATOMIC(atomicAdd_system)
#undef ONS_CPU_SMALL_ATOMIC
#endif

#undef ONS_CPU_SMALL
#undef ONS_CPU_SMALL_BOOL
#undef ONS_CPU_PAIR
#undef ONS_CPU_PAIR_BOOL

}  // namespace ons_cpu_dialect

// A 16-bit type of E bits of exponent and M of mantissa, and its pair.
#define ONS_CPU_SMALL_FLOAT(name, E_, M_)                                              \
  struct name##_raw {                                                                  \
    unsigned short x;                                                                  \
  };                                                                                   \
  struct name {                                                                        \
    static constexpr unsigned int infinity = ((1u << E_) - 1) << M_;                   \
    unsigned short __x;                                                                \
    name() = default;                                                                  \
    name(float value)                                                                  \
        : __x(static_cast<unsigned short>(                                             \
              ons_cpu::narrow<E_, M_, infinity, infinity, 0x7FFF>(value))) {}          \
    template <class T_, class = typename ons_cpu::if_number<T_>::type>                 \
    name(T_ value) : name(ons_cpu::to_odd(ons_cpu::odd_double(value))) {}              \
    name(name##_raw raw) : __x(raw.x) {}                                               \
    operator float() const { return ons_cpu::widen<E_, M_>(__x); }                     \
    operator name##_raw() const { return {__x}; }                                      \
    explicit operator bool() const { return (__x & 0x7FFF) != 0; }                     \
    template <class T_, class = typename ons_cpu::if_integer<T_>::type>                \
    operator T_() const {                                                              \
      return ons_cpu::saturate<T_>(::truncf(float(*this)));                            \
    }                                                                                  \
    static name from_bits(unsigned short bits) {                                       \
      name result;                                                                     \
      result.__x = bits;                                                               \
      return result;                                                                   \
    }                                                                                  \
  };                                                                                   \
  struct alignas(4) name##2_raw {                                                      \
    unsigned short x, y;                                                               \
  };                                                                                   \
  struct alignas(4) name##2 {                                                          \
    name x, y;                                                                         \
    name##2() = default;                                                               \
    name##2(name x_, name y_) : x(x_), y(y_) {}                                        \
    name##2(name##2_raw raw) : x(name::from_bits(raw.x)), y(name::from_bits(raw.y)) {} \
    operator name##2_raw() const { return {x.__x, y.__x}; }                            \
  };                                                                                   \
  namespace ons_cpu {                                                                  \
  template <>                                                                          \
  struct if_small<name> : same<name> {                                                 \
    using test = bool;                                                                 \
  };                                                                                   \
  template <>                                                                          \
  struct if_small2<name##2> : same<name##2> {                                          \
    using test = bool;                                                                 \
  };                                                                                   \
  }

// Named conversions; `part` is the word CUDA uses for the type in them.
#define ONS_CPU_SMALL_CONVERSION(name, part, to, type) \
  inline type __##part##2##to##_rn(name a) {           \
    return ons_cpu::saturate<type>(::rintf(a));        \
  }                                                    \
  inline type __##part##2##to##_rz(name a) {           \
    return ons_cpu::saturate<type>(::truncf(a));       \
  }                                                    \
  inline type __##part##2##to##_ru(name a) {           \
    return ons_cpu::saturate<type>(::ceilf(a));        \
  }                                                    \
  inline type __##part##2##to##_rd(name a) {           \
    return ons_cpu::saturate<type>(::floorf(a));       \
  }                                                    \
  ONS_CPU_SMALL_ROUNDED(name, part, to, type)
#define ONS_CPU_SMALL_ROUNDED(name, part, from, type)            \
  inline name __##from##2##part##_rn(type a) { return name(a); } \
  inline name __##from##2##part##_rz(type a) {                   \
    return ons_cpu::directed<name>(ons_cpu::odd_double(a), 0);   \
  }                                                              \
  inline name __##from##2##part##_ru(type a) {                   \
    return ons_cpu::directed<name>(ons_cpu::odd_double(a), 1);   \
  }                                                              \
  inline name __##from##2##part##_rd(type a) {                   \
    return ons_cpu::directed<name>(ons_cpu::odd_double(a), -1);  \
  }
#define ONS_CPU_SMALL_CONVERSIONS(name, part)                                     \
  inline float __##part##2float(name a) { return a; }                             \
  inline name __float2##part(float a) { return name(a); }                         \
  inline name __double2##part(double a) { return name(a); }                       \
  inline name __ushort_as_##part(unsigned short a) { return name::from_bits(a); } \
  inline name __short_as_##part(short a) {                                        \
    return name::from_bits(static_cast<unsigned short>(a));                       \
  }                                                                               \
  inline unsigned short __##part##_as_ushort(name a) { return a.__x; }            \
  inline short __##part##_as_short(name a) { return static_cast<short>(a.__x); }  \
  inline signed char __##part##2char_rz(name a) {                                 \
    return ons_cpu::saturate<signed char>(::truncf(a));                           \
  }                                                                               \
  inline unsigned char __##part##2uchar_rz(name a) {                              \
    return ons_cpu::saturate<unsigned char>(::truncf(a));                         \
  }                                                                               \
  ONS_CPU_SMALL_ROUNDED(name, part, float, float)                                 \
  ONS_CPU_SMALL_CONVERSION(name, part, short, short)                              \
  ONS_CPU_SMALL_CONVERSION(name, part, ushort, unsigned short)                    \
  ONS_CPU_SMALL_CONVERSION(name, part, int, int)                                  \
  ONS_CPU_SMALL_CONVERSION(name, part, uint, unsigned int)                        \
  ONS_CPU_SMALL_CONVERSION(name, part, ll, long long)                             \
  ONS_CPU_SMALL_CONVERSION(name, part, ull, unsigned long long)                   \
  inline name##2 __##part##2##part##2(name a) { return {a, a}; }                  \
  inline name##2 __float2##part##2_rn(float a) { return {a, a}; }                 \
  inline name##2 __floats2##part##2_rn(float a, float b) { return {a, b}; }       \
  inline name##2 __float22##part##2_rn(float2 a) { return {a.x, a.y}; }           \
  inline float2 __##part##22float2(name##2 a) { return {a.x, a.y}; }              \
  inline name##2 __halves2##part##2(name a, name b) { return {a, b}; }            \
  inline name __low2##part(name##2 a) { return a.x; }                             \
  inline name __high2##part(name##2 a) { return a.y; }                            \
  inline name##2 __low2##part##2(name##2 a) { return {a.x, a.x}; }                \
  inline name##2 __high2##part##2(name##2 a) { return {a.y, a.y}; }               \
  inline name##2 __lows2##part##2(name##2 a, name##2 b) { return {a.x, b.x}; }    \
  inline name##2 __highs2##part##2(name##2 a, name##2 b) { return {a.y, b.y}; }

#endif  // ONSTREAM_CPU_SMALL_FLOAT_H_
