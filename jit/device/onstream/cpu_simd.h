// CUDA's video and dynamic-programming instructions for host compilers: arithmetic on the
// two halves or four bytes of a word, and minima and maxima of sums. Follows
// cpu_functions.h.
#ifndef ONSTREAM_CPU_SIMD_H_
#define ONSTREAM_CPU_SIMD_H_

namespace ons_cpu {

// The nearest number of the lane's type.
template <class Lane_>
inline int saturate_lane(int x) {
  constexpr bool is_signed = Lane_(-1) < Lane_(0);
  constexpr int highest = (1 << (8 * sizeof(Lane_) - is_signed)) - 1;
  constexpr int lowest = is_signed ? -highest - 1 : 0;
  return x < lowest ? lowest : x > highest ? highest : x;
}

template <class T_>
inline T_ least(T_ a, T_ b) {
  return b < a ? b : a;
}
template <class T_>
inline T_ most(T_ a, T_ b) {
  return a < b ? b : a;
}

}  // namespace ons_cpu

namespace ons_cpu_dialect {

// ---- halves and bytes ----

// Evaluates an expression of the lanes a, b and c for each lane of the words x, y and z:
// the lanes are widened to int, the value is cut. Macros: a template would be
// instantiated for every function here, used or not.
#define ONS_CPU_LANEWISE(lane, expression)                                          \
  unsigned int result = 0;                                                          \
  for (int at = 0; at < 32; at += 8 * int(sizeof(lane))) {                          \
    const int a = static_cast<lane>(x >> at), b = static_cast<lane>(y >> at);       \
    const int c = static_cast<lane>(z >> at), value = expression;                   \
    (void)b, (void)c;                                                               \
    result |= (static_cast<unsigned int>(value) & (~0u >> (32 - 8 * sizeof(lane)))) \
              << at;                                                                \
  }                                                                                 \
  return result;
#define ONS_CPU_LANES1(name, lane, expression) \
  inline unsigned int name(unsigned int x) {   \
    const unsigned int y = 0, z = 0;           \
    ONS_CPU_LANEWISE(lane, expression)         \
  }
#define ONS_CPU_LANES2(name, lane, expression)               \
  inline unsigned int name(unsigned int x, unsigned int y) { \
    const unsigned int z = 0;                                \
    ONS_CPU_LANEWISE(lane, expression)                       \
  }
#define ONS_CPU_LANES3(name, lane, expression)                               \
  inline unsigned int name(unsigned int x, unsigned int y, unsigned int z) { \
    ONS_CPU_LANEWISE(lane, expression)                                       \
  }
// A comparison gives all ones, or 1.
#define ONS_CPU_LANES_COMPARE(name, count, lane, op)   \
  ONS_CPU_LANES2(__vcmp##name##count, lane, -(a op b)) \
  ONS_CPU_LANES2(__vset##name##count, lane, int(a op b))
#define ONS_CPU_LANES_SUM(name, lane)                                           \
  inline unsigned int name(unsigned int x, unsigned int y) {                    \
    int sum = 0;                                                                \
    for (int at = 0; at < 32; at += 8 * int(sizeof(lane))) {                    \
      const int a = static_cast<lane>(x >> at), b = static_cast<lane>(y >> at); \
      sum += a < b ? b - a : a - b;                                             \
    }                                                                           \
    return static_cast<unsigned int>(sum);                                      \
  }
#define ONS_CPU_LANES(count, s, u)                                              \
  ONS_CPU_LANES1(__vabs##count, s, a < 0 ? -a : a)                              \
  ONS_CPU_LANES1(__vabsss##count, s, ons_cpu::saturate_lane<s>(a < 0 ? -a : a)) \
  ONS_CPU_LANES1(__vneg##count, s, -a)                                          \
  ONS_CPU_LANES1(__vnegss##count, s, ons_cpu::saturate_lane<s>(-a))             \
  ONS_CPU_LANES2(__vadd##count, u, a + b)                                       \
  ONS_CPU_LANES2(__vaddss##count, s, ons_cpu::saturate_lane<s>(a + b))          \
  ONS_CPU_LANES2(__vaddus##count, u, ons_cpu::saturate_lane<u>(a + b))          \
  ONS_CPU_LANES2(__vsub##count, u, a - b)                                       \
  ONS_CPU_LANES2(__vsubss##count, s, ons_cpu::saturate_lane<s>(a - b))          \
  ONS_CPU_LANES2(__vsubus##count, u, ons_cpu::saturate_lane<u>(a - b))          \
  ONS_CPU_LANES2(__vabsdiffs##count, s, a < b ? b - a : a - b)                  \
  ONS_CPU_LANES2(__vabsdiffu##count, u, a < b ? b - a : a - b)                  \
  /* Signed averages round away from zero, unsigned ones up. */                 \
  ONS_CPU_LANES2(__vavgs##count, s, (a + b + (a + b >= 0)) >> 1)                \
  ONS_CPU_LANES2(__vavgu##count, u, (a + b + 1) >> 1)                           \
  ONS_CPU_LANES2(__vhaddu##count, u, (a + b) >> 1)                              \
  ONS_CPU_LANES2(__vmaxs##count, s, ons_cpu::most(a, b))                        \
  ONS_CPU_LANES2(__vmaxu##count, u, ons_cpu::most(a, b))                        \
  ONS_CPU_LANES2(__vmins##count, s, ons_cpu::least(a, b))                       \
  ONS_CPU_LANES2(__vminu##count, u, ons_cpu::least(a, b))                       \
  ONS_CPU_LANES_COMPARE(eq, count, u, ==)                                       \
  ONS_CPU_LANES_COMPARE(ne, count, u, !=)                                       \
  ONS_CPU_LANES_COMPARE(ges, count, s, >=)                                      \
  ONS_CPU_LANES_COMPARE(gts, count, s, >)                                       \
  ONS_CPU_LANES_COMPARE(les, count, s, <=)                                      \
  ONS_CPU_LANES_COMPARE(lts, count, s, <)                                       \
  ONS_CPU_LANES_COMPARE(geu, count, u, >=)                                      \
  ONS_CPU_LANES_COMPARE(gtu, count, u, >)                                       \
  ONS_CPU_LANES_COMPARE(leu, count, u, <=)                                      \
  ONS_CPU_LANES_COMPARE(ltu, count, u, <)                                       \
  ONS_CPU_LANES_SUM(__vsads##count, s)                                          \
  ONS_CPU_LANES_SUM(__vsadu##count, u)
ONS_CPU_LANES(2, int16_t, uint16_t)
ONS_CPU_LANES(4, int8_t, uint8_t)
#undef ONS_CPU_LANES
#undef ONS_CPU_LANES_COMPARE
#undef ONS_CPU_LANES_SUM

// ---- minima and maxima, of sums and of three; _relu: not below 0 ----

// On one word of the type T_, or on its two halves.
#define ONS_CPU_WORD3(name, T_, expression) \
  inline T_ name(T_ a, T_ b, T_ c) { return expression; }
#define ONS_CPU_WORD2(name, T_, expression) \
  inline T_ name(T_ a, T_ b) { return expression; }
#define ONS_CPU_EXTREMES(extreme, pick, suffix, define2, define3, T_, sum_type) \
  define3(__vi##extreme##3##suffix, T_, pick(pick(a, b), c))                    \
      define3(__viadd##extreme##suffix, T_,                                     \
              pick(static_cast<sum_type>(a + b), static_cast<sum_type>(c)))
#define ONS_CPU_EXTREMES_RELU(extreme, pick, suffix, define2, define3, T_, sum_type) \
  define2(__vi##extreme##suffix##_relu, T_, ons_cpu::most(pick(a, b), 0)) define3(   \
      __vi##extreme##3##suffix##_relu, T_, ons_cpu::most(pick(pick(a, b), c), 0))    \
      define3(__viadd##extreme##suffix##_relu, T_,                                   \
              ons_cpu::most(                                                         \
                  int(pick(static_cast<sum_type>(a + b), static_cast<sum_type>(c))), 0))
#define ONS_CPU_DYNAMIC(define, suffix, define2, define3, T_, sum_type) \
  define(max, ons_cpu::most, suffix, define2, define3, T_, sum_type)    \
      define(min, ons_cpu::least, suffix, define2, define3, T_, sum_type)
ONS_CPU_DYNAMIC(ONS_CPU_EXTREMES, _s32, ONS_CPU_WORD2, ONS_CPU_WORD3, int, int)
ONS_CPU_DYNAMIC(ONS_CPU_EXTREMES, _u32, ONS_CPU_WORD2, ONS_CPU_WORD3, unsigned int,
                unsigned int)
ONS_CPU_DYNAMIC(ONS_CPU_EXTREMES, _s16x2, ONS_CPU_LANES2, ONS_CPU_LANES3, int16_t,
                int16_t)
ONS_CPU_DYNAMIC(ONS_CPU_EXTREMES, _u16x2, ONS_CPU_LANES2, ONS_CPU_LANES3, uint16_t,
                uint16_t)
ONS_CPU_DYNAMIC(ONS_CPU_EXTREMES_RELU, _s32, ONS_CPU_WORD2, ONS_CPU_WORD3, int, int)
ONS_CPU_DYNAMIC(ONS_CPU_EXTREMES_RELU, _s16x2, ONS_CPU_LANES2, ONS_CPU_LANES3, int16_t,
                int16_t)
#undef ONS_CPU_DYNAMIC
#undef ONS_CPU_EXTREMES
#undef ONS_CPU_EXTREMES_RELU
#undef ONS_CPU_WORD2
#undef ONS_CPU_WORD3
#undef ONS_CPU_LANES1
#undef ONS_CPU_LANES2
#undef ONS_CPU_LANES3
#undef ONS_CPU_LANEWISE

// These tell too which operand it was: true for the first, also where both are equal.
#define ONS_CPU_CHOICE(name, T_, op)           \
  inline T_ name(T_ a, T_ b, bool* is_first) { \
    *is_first = a op b;                        \
    return *is_first ? a : b;                  \
  }
#define ONS_CPU_CHOICES(name, lane, op)                                                  \
  inline unsigned int name(unsigned int x, unsigned int y, bool* is_first_high,          \
                           bool* is_first_low) {                                         \
    const lane high_x = static_cast<lane>(x >> 16), high_y = static_cast<lane>(y >> 16); \
    const lane low_x = static_cast<lane>(x), low_y = static_cast<lane>(y);               \
    *is_first_high = high_x op high_y;                                                   \
    *is_first_low = low_x op low_y;                                                      \
    const lane high = *is_first_high ? high_x : high_y;                                  \
    const lane low = *is_first_low ? low_x : low_y;                                      \
    return static_cast<unsigned int>(static_cast<uint16_t>(high)) << 16 |                \
           static_cast<uint16_t>(low);                                                   \
  }
ONS_CPU_CHOICE(__vibmax_s32, int, >=)
ONS_CPU_CHOICE(__vibmax_u32, unsigned int, >=)
ONS_CPU_CHOICE(__vibmin_s32, int, <=)
ONS_CPU_CHOICE(__vibmin_u32, unsigned int, <=)
ONS_CPU_CHOICES(__vibmax_s16x2, int16_t, >=)
ONS_CPU_CHOICES(__vibmax_u16x2, uint16_t, >=)
ONS_CPU_CHOICES(__vibmin_s16x2, int16_t, <=)
ONS_CPU_CHOICES(__vibmin_u16x2, uint16_t, <=)
#undef ONS_CPU_CHOICE
#undef ONS_CPU_CHOICES

}  // namespace ons_cpu_dialect

#endif  // ONSTREAM_CPU_SIMD_H_
