// CUDA's integer intrinsics for host compilers: bits, sums and products. Follows
// cpu_functions.h.
#ifndef ONSTREAM_CPU_INTEGERS_H_
#define ONSTREAM_CPU_INTEGERS_H_

namespace ons_cpu_dialect {

// ---- bits ----

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
// The position of the offset-th set bit of the mask, counted from `base` on upwards, or
// downwards where the offset is negative; ~0 where there is none. 0 asks for `base`
// itself.
inline unsigned int __fns(unsigned int mask, unsigned int base, int offset) {
  const int step = offset < 0 ? -1 : 1;
  int left = offset == 0 ? 1 : step * offset;
  for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step) {
    if ((mask >> at & 1) && --left == 0) return static_cast<unsigned int>(at);
    if (offset == 0) break;
  }
  return ~0u;
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
// ---- sums and products ----

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

}  // namespace ons_cpu_dialect

#endif  // ONSTREAM_CPU_INTEGERS_H_
