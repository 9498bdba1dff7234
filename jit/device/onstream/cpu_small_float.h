// Floating types of 16 and 8 bits for host compilers: conversions between bits and float,
// and what __half and __nv_bfloat16 have in common. Branch-free where it can be: these
// sit in inner loops. Included behind cpu.h.
#ifndef ONSTREAM_CPU_SMALL_FLOAT_H_
#define ONSTREAM_CPU_SMALL_FLOAT_H_

namespace ons_cpu {

// The bits of a float rounded to nearest even: 1 sign bit, E of exponent, M of mantissa.
// What is above `largest` becomes `overflow`; a NaN becomes `nan`.
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
  result = magnitude > 0x7F800000u ? nan : result;
  return result | (bits >> 31) << (E_ + M_);
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
  struct if_integer<T_> {   \
    using type = T_;        \
  };
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
struct if_number<float> {
  using type = float;
};
template <>
struct if_number<double> {
  using type = double;
};

// True for __half and __nv_bfloat16: the functions below are theirs.
template <class T_>
struct if_small {};
template <class T_>
struct same {
  using type = T_;
};

// Pairs: T2 has members x and y.
template <class T2_>
struct if_small2 {};

}  // namespace ons_cpu

namespace ons_cpu_dialect {

// float holds more than twice the bits, so that rounding its result again changes
// nothing.
#define ONS_CPU_SMALL_OPERATOR(op, name)                                \
  template <class T_>                                                   \
  inline typename ons_cpu::if_small<T_>::type operator op(T_ a, T_ b) { \
    return T_(float(a) op float(b));                                    \
  }                                                                     \
  template <class T_>                                                   \
  inline typename ons_cpu::if_small<T_>::type& operator op##=(          \
      T_& a, typename ons_cpu::same<T_>::type b) {                      \
    return a = T_(float(a) op float(b));                                \
  }                                                                     \
  template <class T_>                                                   \
  inline typename ons_cpu::if_small<T_>::type name(T_ a, T_ b) {        \
    return T_(float(a) op float(b));                                    \
  }
ONS_CPU_SMALL_OPERATOR(+, __hadd)
ONS_CPU_SMALL_OPERATOR(-, __hsub)
ONS_CPU_SMALL_OPERATOR(*, __hmul)
ONS_CPU_SMALL_OPERATOR(/, __hdiv)
#undef ONS_CPU_SMALL_OPERATOR

#define ONS_CPU_SMALL_COMPARISON(op, name)                          \
  template <class T_, class = typename ons_cpu::if_small<T_>::type> \
  inline bool operator op(T_ a, T_ b) {                             \
    return float(a) op float(b);                                    \
  }                                                                 \
  template <class T_, class = typename ons_cpu::if_small<T_>::type> \
  inline bool name(T_ a, T_ b) {                                    \
    return float(a) op float(b);                                    \
  }
ONS_CPU_SMALL_COMPARISON(==, __heq)
ONS_CPU_SMALL_COMPARISON(!=, __hne)
ONS_CPU_SMALL_COMPARISON(<, __hlt)
ONS_CPU_SMALL_COMPARISON(<=, __hle)
ONS_CPU_SMALL_COMPARISON(>, __hgt)
ONS_CPU_SMALL_COMPARISON(>=, __hge)
#undef ONS_CPU_SMALL_COMPARISON

#define ONS_CPU_SMALL_FUNCTION(name, expression)           \
  template <class T_>                                      \
  inline typename ons_cpu::if_small<T_>::type name(T_ a) { \
    const float x = a;                                     \
    return T_(expression);                                 \
  }
ONS_CPU_SMALL_FUNCTION(operator-, -x)
ONS_CPU_SMALL_FUNCTION(operator+, x)
ONS_CPU_SMALL_FUNCTION(__hneg, -x)
ONS_CPU_SMALL_FUNCTION(__habs, ::fabsf(x))
ONS_CPU_SMALL_FUNCTION(hceil, ::ceilf(x))
ONS_CPU_SMALL_FUNCTION(hcos, ::cosf(x))
ONS_CPU_SMALL_FUNCTION(hexp, ::expf(x))
ONS_CPU_SMALL_FUNCTION(hexp2, ::exp2f(x))
ONS_CPU_SMALL_FUNCTION(hfloor, ::floorf(x))
ONS_CPU_SMALL_FUNCTION(hlog, ::logf(x))
ONS_CPU_SMALL_FUNCTION(hlog10, ::log10f(x))
ONS_CPU_SMALL_FUNCTION(hlog2, ::log2f(x))
ONS_CPU_SMALL_FUNCTION(hrcp, 1.0f / x)
ONS_CPU_SMALL_FUNCTION(hrint, ::rintf(x))
ONS_CPU_SMALL_FUNCTION(hrsqrt, 1.0f / ::sqrtf(x))
ONS_CPU_SMALL_FUNCTION(hsin, ::sinf(x))
ONS_CPU_SMALL_FUNCTION(hsqrt, ::sqrtf(x))
ONS_CPU_SMALL_FUNCTION(htanh, ::tanhf(x))
ONS_CPU_SMALL_FUNCTION(htrunc, ::truncf(x))
#undef ONS_CPU_SMALL_FUNCTION

template <class T_>
inline typename ons_cpu::if_small<T_>::type __hfma(T_ a, T_ b, T_ c) {
  return T_(ons_cpu::multiply_add_to_odd(a, b, c));
}
// NaN loses against a number; -0 is less than +0.
template <class T_>
inline typename ons_cpu::if_small<T_>::type __hmax(T_ a, T_ b) {
  return T_(::fmaxf(a, b));
}
template <class T_>
inline typename ons_cpu::if_small<T_>::type __hmin(T_ a, T_ b) {
  return T_(::fminf(a, b));
}
template <class T_, class = typename ons_cpu::if_small<T_>::type>
inline bool __hisnan(T_ a) {
  return __builtin_isnan(float(a));
}
template <class T_>
inline typename ons_cpu::if_small<T_>::type atomicAdd(
    T_* at, typename ons_cpu::same<T_>::type v) {
  return ons_cpu::atomic_update<uint16_t>(at, [v](T_ old) { return old + v; });
}

// Pairs.
#define ONS_CPU_SMALL_PAIR(op, name)                                        \
  template <class T2_>                                                      \
  inline typename ons_cpu::if_small2<T2_>::type operator op(T2_ a, T2_ b) { \
    return T2_(a.x op b.x, a.y op b.y);                                     \
  }                                                                         \
  template <class T2_>                                                      \
  inline typename ons_cpu::if_small2<T2_>::type name(T2_ a, T2_ b) {        \
    return T2_(a.x op b.x, a.y op b.y);                                     \
  }
ONS_CPU_SMALL_PAIR(+, __hadd2)
ONS_CPU_SMALL_PAIR(-, __hsub2)
ONS_CPU_SMALL_PAIR(*, __hmul2)
ONS_CPU_SMALL_PAIR(/, __h2div)
#undef ONS_CPU_SMALL_PAIR
template <class T2_>
inline typename ons_cpu::if_small2<T2_>::type __hfma2(T2_ a, T2_ b, T2_ c) {
  return T2_(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}

}  // namespace ons_cpu_dialect

// The body of a 16-bit type: E bits of exponent, M of mantissa.
#define ONS_CPU_SMALL_FLOAT(name, E_, M_)                                     \
  struct name {                                                               \
    static constexpr unsigned int infinity = ((1u << E_) - 1) << M_;          \
    unsigned short __x;                                                       \
    name() = default;                                                         \
    name(float value)                                                         \
        : __x(static_cast<unsigned short>(                                    \
              ons_cpu::narrow<E_, M_, infinity, infinity, 0x7FFF>(value))) {} \
    template <class T_, class = typename ons_cpu::if_number<T_>::type>        \
    name(T_ value) : name(ons_cpu::to_odd(ons_cpu::odd_double(value))) {}     \
    operator float() const { return ons_cpu::widen<E_, M_>(__x); }            \
    explicit operator bool() const { return (__x & 0x7FFF) != 0; }            \
    template <class T_, class = typename ons_cpu::if_integer<T_>::type>       \
    operator T_() const {                                                     \
      return ons_cpu::saturate<T_>(::truncf(float(*this)));                   \
    }                                                                         \
    static name from_bits(unsigned short bits) {                              \
      name result;                                                            \
      result.__x = bits;                                                      \
      return result;                                                          \
    }                                                                         \
  };                                                                          \
  struct alignas(4) name##2 {                                                 \
    name x, y;                                                                \
    name##2() = default;                                                      \
    name##2(name x_, name y_) : x(x_), y(y_) {}                               \
  };                                                                          \
  namespace ons_cpu {                                                         \
  template <>                                                                 \
  struct if_small<name> {                                                     \
    using type = name;                                                        \
  };                                                                          \
  template <>                                                                 \
  struct if_small2<name##2> {                                                 \
    using type = name##2;                                                     \
  };                                                                          \
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
  inline name __##to##2##part##_rn(type a) { return name(a); }
#define ONS_CPU_SMALL_CONVERSIONS(name, part)                                     \
  inline float __##part##2float(name a) { return a; }                             \
  inline name __float2##part(float a) { return name(a); }                         \
  inline name __float2##part##_rn(float a) { return name(a); }                    \
  inline name __double2##part(double a) { return name(a); }                       \
  inline name __ushort_as_##part(unsigned short a) { return name::from_bits(a); } \
  inline name __short_as_##part(short a) {                                        \
    return name::from_bits(static_cast<unsigned short>(a));                       \
  }                                                                               \
  inline unsigned short __##part##_as_ushort(name a) { return a.__x; }            \
  inline short __##part##_as_short(name a) { return static_cast<short>(a.__x); }  \
  ONS_CPU_SMALL_CONVERSION(name, part, short, short)                              \
  ONS_CPU_SMALL_CONVERSION(name, part, ushort, unsigned short)                    \
  ONS_CPU_SMALL_CONVERSION(name, part, int, int)                                  \
  ONS_CPU_SMALL_CONVERSION(name, part, uint, unsigned int)                        \
  ONS_CPU_SMALL_CONVERSION(name, part, ll, long long)                             \
  ONS_CPU_SMALL_CONVERSION(name, part, ull, unsigned long long)

#endif  // ONSTREAM_CPU_SMALL_FLOAT_H_
