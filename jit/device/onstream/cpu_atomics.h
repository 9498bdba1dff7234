// CUDA's atomics for host compilers: relaxed, as CUDA's, and atomic across all threads of
// all launches, whatever their scope. Follows cpu_functions.h.
#ifndef ONSTREAM_CPU_ATOMICS_H_
#define ONSTREAM_CPU_ATOMICS_H_

namespace ons_cpu {

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

template <class T_>
struct if_atomic {};  // the types of integer atomics
template <>
struct if_atomic<int> : same<int> {};
template <>
struct if_atomic<unsigned int> : same<unsigned int> {};
template <>
struct if_atomic<long> : same<long> {};
template <>
struct if_atomic<unsigned long> : same<unsigned long> {};
template <>
struct if_atomic<long long> : same<long long> {};
template <>
struct if_atomic<unsigned long long> : same<unsigned long long> {};

template <class T_>
struct if_atomic_floating {};
template <>
struct if_atomic_floating<float> : same<float> {
  using word = uint32_t;
};
template <>
struct if_atomic_floating<double> : same<double> {
  using word = uint64_t;
};

// What can be exchanged as bits, as the templates of CUDA do: of 16 bytes too.
template <int bytes_>
struct word_of {};
template <>
struct word_of<2> : same<uint16_t> {};
template <>
struct word_of<4> : same<uint32_t> {};
template <>
struct word_of<8> : same<uint64_t> {};
template <class T_>
struct if_atomic_bits : word_of<sizeof(T_)> {};

template <class Word_>
inline Word_ exchange(Word_* at, Word_ desired) {
  return __atomic_exchange_n(at, desired, __ATOMIC_RELAXED);
}
template <class Word_>
inline Word_ compare_exchange(Word_* at, Word_ expected, Word_ desired) {
  __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return expected;
}
#if defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16)
// Of the 16-byte atomics only this one needs no library everywhere.
template <>
struct word_of<16> : same<unsigned __int128> {};
inline unsigned __int128 compare_exchange(unsigned __int128* at,
                                          unsigned __int128 expected,
                                          unsigned __int128 desired) {
  return __sync_val_compare_and_swap(at, expected, desired);
}
inline unsigned __int128 exchange(unsigned __int128* at, unsigned __int128 desired) {
  unsigned __int128 old = 0, seen;
  while ((seen = compare_exchange(at, old, desired)) != old) old = seen;
  return old;
}
#endif

}  // namespace ons_cpu

namespace ons_cpu_dialect {

// Templates, so that a source's own function of the same name wins.
#define ONS_CPU_ATOMIC_INTEGER(name, expression)     \
  template <class T_>                                \
  inline typename ons_cpu::if_atomic<T_>::type name( \
      T_* at, typename ons_cpu::same<T_>::type v) {  \
    return expression;                               \
  }
#define ONS_CPU_ATOMIC_FLOATING(name)                                                    \
  template <class T_>                                                                    \
  inline typename ons_cpu::if_atomic_floating<T_>::type name(                            \
      T_* at, typename ons_cpu::same<T_>::type v) {                                      \
    using word = typename ons_cpu::if_atomic_floating<T_>::word;                         \
    return ons_cpu::atomic_update<word>(at, [v](T_ old) { return old + v; });            \
  }                                                                                      \
  inline float2 name(float2* at, float2 v) {                                             \
    return {name(&at->x, v.x), name(&at->y, v.y)};                                       \
  }                                                                                      \
  inline float4 name(float4* at, float4 v) {                                             \
    return {name(&at->x, v.x), name(&at->y, v.y), name(&at->z, v.z), name(&at->w, v.w)}; \
  }
#define ONS_CPU_ATOMIC_EXCHANGE(name)                                                   \
  template <class T_>                                                                   \
  inline T_ name(T_* at, typename ons_cpu::same<T_>::type v) {                          \
    typedef typename ons_cpu::if_atomic_bits<T_>::type __attribute__((may_alias)) word; \
    return ons_cpu::bits_as<T_>(                                                        \
        ons_cpu::exchange(reinterpret_cast<word*>(at), ons_cpu::bits_as<word>(v)));     \
  }
#define ONS_CPU_ATOMIC_COMPARE(name)                                                    \
  template <class T_>                                                                   \
  inline T_ name(T_* at, typename ons_cpu::same<T_>::type expected,                     \
                 typename ons_cpu::same<T_>::type desired) {                            \
    typedef typename ons_cpu::if_atomic_bits<T_>::type __attribute__((may_alias)) word; \
    return ons_cpu::bits_as<T_>(ons_cpu::compare_exchange(                              \
        reinterpret_cast<word*>(at), ons_cpu::bits_as<word>(expected),                  \
        ons_cpu::bits_as<word>(desired)));                                              \
  }
#define ONS_CPU_ATOMIC_WRAPPED(name, expression)                               \
  inline unsigned int name(unsigned int* at, unsigned int limit) {             \
    return ons_cpu::atomic_update<unsigned int>(                               \
        at, [limit](unsigned int old) -> unsigned int { return expression; }); \
  }
#define ONS_CPU_ATOMICS(scope)                                                          \
  ONS_CPU_ATOMIC_INTEGER(atomicAdd##scope, __atomic_fetch_add(at, v, __ATOMIC_RELAXED)) \
  ONS_CPU_ATOMIC_INTEGER(atomicSub##scope, __atomic_fetch_sub(at, v, __ATOMIC_RELAXED)) \
  ONS_CPU_ATOMIC_INTEGER(atomicAnd##scope, __atomic_fetch_and(at, v, __ATOMIC_RELAXED)) \
  ONS_CPU_ATOMIC_INTEGER(atomicOr##scope, __atomic_fetch_or(at, v, __ATOMIC_RELAXED))   \
  ONS_CPU_ATOMIC_INTEGER(atomicXor##scope, __atomic_fetch_xor(at, v, __ATOMIC_RELAXED)) \
  ONS_CPU_ATOMIC_INTEGER(                                                               \
      atomicMin##scope,                                                                 \
      (ons_cpu::atomic_update<T_>(at, [v](T_ old) { return v < old ? v : old; })))      \
  ONS_CPU_ATOMIC_INTEGER(                                                               \
      atomicMax##scope,                                                                 \
      (ons_cpu::atomic_update<T_>(at, [v](T_ old) { return old < v ? v : old; })))      \
  ONS_CPU_ATOMIC_FLOATING(atomicAdd##scope)                                             \
  ONS_CPU_ATOMIC_EXCHANGE(atomicExch##scope)                                            \
  ONS_CPU_ATOMIC_COMPARE(atomicCAS##scope)                                              \
  ONS_CPU_ATOMIC_WRAPPED(atomicInc##scope, old >= limit ? 0 : old + 1)                  \
  ONS_CPU_ATOMIC_WRAPPED(atomicDec##scope, old == 0 || old > limit ? limit : old - 1)
ONS_CPU_ATOMICS()
ONS_CPU_ATOMICS(_block)
ONS_CPU_ATOMICS(_system)
#undef ONS_CPU_ATOMIC_INTEGER
#undef ONS_CPU_ATOMIC_FLOATING
#undef ONS_CPU_ATOMIC_EXCHANGE
#undef ONS_CPU_ATOMIC_COMPARE
#undef ONS_CPU_ATOMIC_WRAPPED
#undef ONS_CPU_ATOMICS

}  // namespace ons_cpu_dialect

#endif  // ONSTREAM_CPU_ATOMICS_H_
