// __nv_fp8_e4m3 and __nv_fp8_e5m2 for host compilers, under the name that CUDA sources
// include. Conversions saturate to the largest finite value, as CUDA's types do.
#ifndef ONSTREAM_CPU_CUDA_FP8_H_
#define ONSTREAM_CPU_CUDA_FP8_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char __nv_fp8_storage_t;

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
}  // namespace ons_cpu

#define ONS_CPU_FP8(name, narrowed, widened)                                        \
  struct name {                                                                     \
    __nv_fp8_storage_t __x;                                                         \
    name() = default;                                                               \
    explicit name(float value) : __x(__nv_fp8_storage_t(narrowed)) {}               \
    explicit name(__half value) : name(float(value)) {}                             \
    explicit name(__nv_bfloat16 value) : name(float(value)) {}                      \
    template <class T_, class = typename ons_cpu::if_number<T_>::type>              \
    explicit name(T_ from) : name(ons_cpu::to_odd(ons_cpu::odd_double(from))) {}    \
    explicit operator float() const { return widened; }                             \
    explicit operator double() const { return float(*this); }                       \
    explicit operator __half() const { return __half(float(*this)); }               \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(float(*this)); } \
    explicit operator bool() const { return (__x & 0x7F) != 0; }                    \
    template <class T_, class = typename ons_cpu::if_integer<T_>::type>             \
    explicit operator T_() const {                                                  \
      return ons_cpu::saturate<T_>(::truncf(float(*this)));                         \
    }                                                                               \
  };
ONS_CPU_FP8(__nv_fp8_e4m3, (ons_cpu::narrow<4, 3, 0x7E, 0x7E, 0x7F>(value)),
            ons_cpu::widen_e4m3(__x))
ONS_CPU_FP8(__nv_fp8_e5m2, (ons_cpu::narrow<5, 2, 0x7B, 0x7B, 0x7E>(value)),
            (ons_cpu::widen<5, 2>(__x)))
#undef ONS_CPU_FP8

#endif  // ONSTREAM_CPU_CUDA_FP8_H_
