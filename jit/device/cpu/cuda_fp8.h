// CUDA's 8-bit floating types for host compilers, under the name that CUDA sources
// include. Conversions to the types saturate to the largest finite value; the named ones
// are told whether to.
#ifndef ONSTREAM_CPU_CUDA_FP8_H_
#define ONSTREAM_CPU_CUDA_FP8_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short int __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

namespace ons_cpu {

inline float widen_e4m3(unsigned char bits) {
  // All ones in the exponent are ordinary numbers in this format; only 0x7F is NaN.
  const unsigned int magnitude = bits & 0x7Fu;
  const float value =
      magnitude == 0x7F
          ? __builtin_nanf("")
          : ::ldexpf(magnitude < 8 ? float(magnitude) : float(8 + (magnitude & 7)),
                     (magnitude < 8 ? 1 : int(magnitude >> 3)) - 10);
  return bits & 0x80 ? -value : value;
}

inline float widen_fp8(__nv_fp8_storage_t bits, __nv_fp8_interpretation_t format) {
  return format == __NV_E4M3 ? widen_e4m3(bits) : widen<5, 2>(bits);
}
inline __nv_fp8_storage_t narrow_fp8(float x, __nv_saturation_t saturation,
                                     __nv_fp8_interpretation_t format) {
  const bool is_finite = saturation == __NV_SATFINITE;
  if (format == __NV_E4M3) {
    const uint32_t bits =
        is_finite ? narrow<4, 3, 0x7E, 0x7E, 0x7F>(x) : narrow<4, 3, 0x7E, 0x7F, 0x7F>(x);
    return static_cast<__nv_fp8_storage_t>(bits);
  }
  const uint32_t bits =
      is_finite ? narrow<5, 2, 0x7B, 0x7B, 0x7F>(x) : narrow<5, 2, 0x7B, 0x7C, 0x7F>(x);
  return static_cast<__nv_fp8_storage_t>(bits);
}

}  // namespace ons_cpu

// ---- named conversions, of one and of two ----

#define ONS_CPU_FP8_NARROW(name, type, number, name2, type2, x, y)               \
  inline __nv_fp8_storage_t __nv_cvt_##name##_to_fp8(                            \
      type a, __nv_saturation_t saturation, __nv_fp8_interpretation_t format) {  \
    return ons_cpu::narrow_fp8(number(a), saturation, format);                   \
  }                                                                              \
  inline __nv_fp8x2_storage_t __nv_cvt_##name2##_to_fp8x2(                       \
      type2 a, __nv_saturation_t saturation, __nv_fp8_interpretation_t format) { \
    return static_cast<__nv_fp8x2_storage_t>(                                    \
        ons_cpu::narrow_fp8(number(x), saturation, format) |                     \
        ons_cpu::narrow_fp8(number(y), saturation, format) << 8);                \
  }
ONS_CPU_FP8_NARROW(float, float, float, float2, float2, a.x, a.y)
ONS_CPU_FP8_NARROW(double, double, ons_cpu::to_odd, double2, double2, a.x, a.y)
ONS_CPU_FP8_NARROW(halfraw, __half_raw, __half, halfraw2, __half2_raw, __half_raw{a.x},
                   __half_raw{a.y})
ONS_CPU_FP8_NARROW(bfloat16raw, __nv_bfloat16_raw, __nv_bfloat16, bfloat16raw2,
                   __nv_bfloat162_raw, __nv_bfloat16_raw{a.x}, __nv_bfloat16_raw{a.y})
#undef ONS_CPU_FP8_NARROW
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t a,
                                          __nv_fp8_interpretation_t format) {
  return __half(ons_cpu::widen_fp8(a, format));
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t a,
                                              __nv_fp8_interpretation_t format) {
  return {__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(a), format).x,
          __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(a >> 8), format).x};
}

// ---- the types: one, two and four numbers, the first lowest ----

#define ONS_CPU_FP8(name, format)                                                    \
  struct __nv_fp8_##name {                                                           \
    __nv_fp8_storage_t __x;                                                          \
    __nv_fp8_##name() = default;                                                     \
    explicit __nv_fp8_##name(float value)                                            \
        : __x(ons_cpu::narrow_fp8(value, __NV_SATFINITE, format)) {}                 \
    explicit __nv_fp8_##name(__half value) : __nv_fp8_##name(float(value)) {}        \
    explicit __nv_fp8_##name(__nv_bfloat16 value) : __nv_fp8_##name(float(value)) {} \
    template <class T_, class = typename ons_cpu::if_number<T_>::type>               \
    explicit __nv_fp8_##name(T_ from)                                                \
        : __nv_fp8_##name(ons_cpu::to_odd(ons_cpu::odd_double(from))) {}             \
    explicit operator float() const { return ons_cpu::widen_fp8(__x, format); }      \
    explicit operator double() const { return float(*this); }                        \
    explicit operator __half() const { return __half(float(*this)); }                \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(float(*this)); }  \
    explicit operator bool() const { return (__x & 0x7F) != 0; }                     \
    template <class T_, class = typename ons_cpu::if_integer<T_>::type>              \
    explicit operator T_() const {                                                   \
      return ons_cpu::saturate<T_>(::truncf(float(*this)));                          \
    }                                                                                \
  };                                                                                 \
  struct __nv_fp8x2_##name {                                                         \
    __nv_fp8x2_storage_t __x;                                                        \
    __nv_fp8x2_##name() = default;                                                   \
    explicit __nv_fp8x2_##name(float2 from)                                          \
        : __x(__nv_cvt_float2_to_fp8x2(from, __NV_SATFINITE, format)) {}             \
    explicit __nv_fp8x2_##name(double2 from)                                         \
        : __x(__nv_cvt_double2_to_fp8x2(from, __NV_SATFINITE, format)) {}            \
    explicit __nv_fp8x2_##name(__half2 from)                                         \
        : __x(__nv_cvt_halfraw2_to_fp8x2(from, __NV_SATFINITE, format)) {}           \
    explicit __nv_fp8x2_##name(__nv_bfloat162 from)                                  \
        : __x(__nv_cvt_bfloat16raw2_to_fp8x2(from, __NV_SATFINITE, format)) {}       \
    explicit operator __half2() const {                                              \
      return __nv_cvt_fp8x2_to_halfraw2(__x, format);                                \
    }                                                                                \
    explicit operator float2() const { return __half22float2(__half2(*this)); }      \
  };                                                                                 \
  struct __nv_fp8x4_##name {                                                         \
    __nv_fp8x4_storage_t __x;                                                        \
    __nv_fp8x4_##name() = default;                                                   \
    template <class T2_>                                                             \
    __nv_fp8x4_##name(T2_ low, T2_ high, int)                                        \
        : __x(__nv_fp8x2_##name(low).__x |                                           \
              static_cast<unsigned int>(__nv_fp8x2_##name(high).__x) << 16) {}       \
    explicit __nv_fp8x4_##name(float4 from)                                          \
        : __nv_fp8x4_##name(float2{from.x, from.y}, float2{from.z, from.w}, 0) {}    \
    explicit __nv_fp8x4_##name(double4 from)                                         \
        : __nv_fp8x4_##name(double2{from.x, from.y}, double2{from.z, from.w}, 0) {}  \
    explicit __nv_fp8x4_##name(__half2 low, __half2 high)                            \
        : __nv_fp8x4_##name(low, high, 0) {}                                         \
    explicit __nv_fp8x4_##name(__nv_bfloat162 low, __nv_bfloat162 high)              \
        : __nv_fp8x4_##name(low, high, 0) {}                                         \
    explicit operator float4() const {                                               \
      __nv_fp8x2_##name low, high;                                                   \
      low.__x = static_cast<__nv_fp8x2_storage_t>(__x);                              \
      high.__x = static_cast<__nv_fp8x2_storage_t>(__x >> 16);                       \
      const float2 a(low), b(high);                                                  \
      return {a.x, a.y, b.x, b.y};                                                   \
    }                                                                                \
  };
ONS_CPU_FP8(e4m3, __NV_E4M3)
ONS_CPU_FP8(e5m2, __NV_E5M2)
#undef ONS_CPU_FP8

#endif  // ONSTREAM_CPU_CUDA_FP8_H_
