// The CUDA dialect for host compilers: included ahead of every source that the CPU
// backend compiles. A kernel is an ordinary function; its runner calls it for each thread
// of each block. Barriers, shuffles, votes and shared memory are declared so that their
// use is an error that names them. Template parameters end in an underscore, out of the
// way of the user's -D options.
#ifndef ONSTREAM_CPU_H_
#define ONSTREAM_CPU_H_

// libstdc++'s own <math.h> drags in all of <cmath>, a tenth of a second of every compile.
// This makes it pass C's through; the float overloads come from cpu_functions.h.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <assert.h>
#include <limits.h>
#include <onstream/cpu_abi.h>
#include <onstream/kernel.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <typeinfo>

#define __global__ \
  __attribute__((always_inline))  // into the runner's loop, which vectorises
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ ons_cpu_no_shared_memory
#ifndef __clang__
#define __builtin_assume(condition) ((condition) ? (void)0 : __builtin_unreachable())
#endif

// ---- vector types, with CUDA's alignments ----

#define ONS_CPU_VECTORS(scalar, name, align2, align4)                               \
  struct name##1 {                                                                  \
    scalar x;                                                                       \
  };                                                                                \
  struct alignas(align2) name##2 {                                                  \
    scalar x, y;                                                                    \
  };                                                                                \
  struct name##3 {                                                                  \
    scalar x, y, z;                                                                 \
  };                                                                                \
  struct alignas(align4) name##4 {                                                  \
    scalar x, y, z, w;                                                              \
  };                                                                                \
  inline name##1 make_##name##1(scalar x) { return {x}; }                           \
  inline name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }              \
  inline name##3 make_##name##3(scalar x, scalar y, scalar z) { return {x, y, z}; } \
  inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) {           \
    return {x, y, z, w};                                                            \
  }

ONS_CPU_VECTORS(signed char, char, 2, 4)
ONS_CPU_VECTORS(unsigned char, uchar, 2, 4)
ONS_CPU_VECTORS(short, short, 4, 8)
ONS_CPU_VECTORS(unsigned short, ushort, 4, 8)
ONS_CPU_VECTORS(int, int, 8, 16)
ONS_CPU_VECTORS(unsigned int, uint, 8, 16)
ONS_CPU_VECTORS(long, long, 16, 16)
ONS_CPU_VECTORS(unsigned long, ulong, 16, 16)
ONS_CPU_VECTORS(long long, longlong, 16, 16)
ONS_CPU_VECTORS(unsigned long long, ulonglong, 16, 16)
ONS_CPU_VECTORS(float, float, 8, 16)
ONS_CPU_VECTORS(double, double, 16, 16)
#undef ONS_CPU_VECTORS

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1)
      : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// ---- where a thread is ----

namespace ons_cpu {

// A type of its own, so that no store through a kernel's pointers (int* least of all) can
// alias the indices: the loop over threads would not vectorise. Read and written field by
// field for the same reason: a copy of the whole struct loses the type.
enum class coordinate : unsigned int {};
struct coordinates {
  coordinate x, y, z;
};
enum class flag : unsigned int {};
struct position {
  coordinates thread, block, block_size, grid_size;
  flag is_out;  // a thread of the row at hand has failed its bounds check
};
static thread_local position here;

#define ONS_CPU_COORDINATES(type, member)                    \
  (type{static_cast<unsigned int>(::ons_cpu::here.member.x), \
        static_cast<unsigned int>(::ons_cpu::here.member.y), \
        static_cast<unsigned int>(::ons_cpu::here.member.z)})
#define threadIdx ONS_CPU_COORDINATES(uint3, thread)
#define blockIdx ONS_CPU_COORDINATES(uint3, block)
#define blockDim ONS_CPU_COORDINATES(dim3, block_size)
#define gridDim ONS_CPU_COORDINATES(dim3, grid_size)

__attribute__((always_inline)) inline void set(coordinates& to, uint32_t x, uint32_t y,
                                               uint32_t z) {
  to.x = static_cast<coordinate>(x);
  to.y = static_cast<coordinate>(y);
  to.z = static_cast<coordinate>(z);
}

template <size_t... I_>
struct indices {};
template <size_t N_, size_t... I_>
struct make_indices : make_indices<N_ - 1, N_ - 1, I_...> {};
template <size_t... I_>
struct make_indices<0, I_...> {
  using type = indices<I_...>;
};

// ---- the guard ----
//
// Nearly every kernel begins with `if (i < n)`, i being the thread's place in x and n one
// of its parameters. Left in the loop, the guard makes every store a masked one, which is
// several times slower on processors without AVX-512. So there a block that lies wholly
// below the value of an integer parameter runs in a copy of the loop in which clang may
// assume that fact, in each spelling that a kernel may test: if the parameter is the
// bound, the guard goes; if not, nothing is lost. (GCC draws no conclusion from it.) A
// copy costs compile time, so only the first and the last integer parameter have one.

struct no_bound {
  template <class T_>
  explicit no_bound(const T_&) {}
};

template <class T_>
struct bound_of {
  static constexpr bool exists = false;
};
#if defined(__clang__) && !defined(__AVX512VL__)
#define ONS_CPU_BOUND(T_)                \
  template <>                            \
  struct bound_of<T_> {                  \
    static constexpr bool exists = true; \
  };
ONS_CPU_BOUND(int)
ONS_CPU_BOUND(unsigned int)
ONS_CPU_BOUND(long)
ONS_CPU_BOUND(unsigned long)
ONS_CPU_BOUND(long long)
ONS_CPU_BOUND(unsigned long long)
#undef ONS_CPU_BOUND
#endif

template <bool is_bound, class T_>
struct bound_if {
  using type = no_bound;
};
template <class T_>
struct bound_if<true, T_> {
  using type = T_;
};

// Is parameter `index` the first or the last that may be a bound?
template <class... P_>
constexpr bool is_candidate(size_t index) {
  constexpr bool may_be[] = {bound_of<P_>::exists..., false};
  bool before = false, after = false;
  for (size_t i = 0; i < index; ++i) before = before || may_be[i];
  for (size_t i = index + 1; i < sizeof...(P_); ++i) after = after || may_be[i];
  return may_be[index] && !(before && after);
}

// Does a block that ends before `end` lie below the bound, and both below 2^31?
template <class T_>
inline bool is_below(uint64_t end, T_ bound) {
  return bound <= T_(INT32_MAX) && bound > 0 && end <= static_cast<uint64_t>(bound);
}

__attribute__((always_inline)) inline void assume_below(no_bound) {}

template <class T_>
__attribute__((always_inline)) inline void assume_below(T_ bound) {
  const unsigned int narrow = blockIdx.x * blockDim.x + threadIdx.x;
  const int64_t wide = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t wide_bound = static_cast<int64_t>(bound);
  if (sizeof(T_) == 4) {
    __builtin_assume(static_cast<int>(narrow) < static_cast<int>(bound));
    __builtin_assume(narrow < static_cast<unsigned int>(bound));
    __builtin_assume(wide < wide_bound);
  } else {
    __builtin_assume(static_cast<int64_t>(static_cast<int>(narrow)) < wide_bound);
    __builtin_assume(static_cast<int64_t>(narrow) < wide_bound);
    __builtin_assume(wide < wide_bound);
    __builtin_assume(static_cast<uint64_t>(wide) < static_cast<uint64_t>(wide_bound));
  }
}

// ---- runners ----

template <class F_, F_* kernel, bool is_guarded_>
struct runner;

template <class... P_, void (*kernel)(P_...), bool is_guarded_>
struct runner<void(P_...), kernel, is_guarded_> {
  static constexpr uint32_t parameter_count = sizeof...(P_);
  static constexpr uint32_t parameter_bytes[sizeof...(P_) + 1] = {sizeof(P_)..., 0};

  static const char* signature() { return typeid(void(P_...)).name(); }

  template <class B_>
  __attribute__((always_inline)) static inline void run_thread(int x, int y, int z,
                                                               B_ bound, P_... values) {
    set(here.thread, static_cast<uint32_t>(x), static_cast<uint32_t>(y),
        static_cast<uint32_t>(z));
    assume_below(bound);
    kernel(values...);
  }

  // The thread that fails a marked bounds check ends the first loop, which so needs no
  // masked stores. Unlike assume_below() this serves any bound, and GCC.
  template <class B_>
  __attribute__((always_inline)) static inline void run_row(int size_x, int y, int z,
                                                            B_ bound, P_... values) {
    int x = 0;
    here.is_out = flag{0};
    while (is_guarded_ && x < size_x) {
      run_thread(x++, y, z, bound, values...);
      if (here.is_out != flag{0}) break;
    }
    for (; x < size_x; ++x) run_thread(x, y, z, bound, values...);
  }

  // The counters are signed: GCC does not vectorise over those that may wrap.
  template <class B_>
  __attribute__((always_inline)) static inline void run_threads(
      const ons_cpu_launch& launch, B_ bound, P_... values) {
    const int size_x = static_cast<int>(launch.block[0]);
    const int size_y = static_cast<int>(launch.block[1]);
    const int size_z = static_cast<int>(launch.block[2]);
    for (int z = 0; z < size_z; ++z) {
      for (int y = 0; y < size_y; ++y) run_row(size_x, y, z, bound, values...);
    }
  }

  // Runs the block if it lies below the bound.
  template <class B_>
  __attribute__((always_inline)) static inline bool run_below(
      const ons_cpu_launch& launch, uint64_t end, B_ bound, P_... values) {
    if (!is_below(end, bound)) return false;
    run_threads(launch, bound, values...);
    return true;
  }
  __attribute__((always_inline)) static inline bool run_below(const ons_cpu_launch&,
                                                              uint64_t, no_bound, P_...) {
    return false;
  }

  template <size_t... I_>
  __attribute__((always_inline)) static inline void run_block(
      const ons_cpu_launch& launch, uint64_t end, indices<I_...>, P_... values) {
    const bool done =
        !is_guarded_ &&
        (false || ... ||
         run_below(
             launch, end,
             static_cast<typename bound_if<is_candidate<P_...>(I_), P_>::type>(values),
             values...));
    if (!done) run_threads(launch, no_bound(0), values...);
  }

  // Launch and parameters are copies: no store of the kernel can change them.
  template <size_t... I_>
  __attribute__((always_inline)) static inline void run_blocks(
      const ons_cpu_launch launch, uint64_t first, uint64_t last, indices<I_...> all,
      P_... values) {
    const uint32_t grid_x = launch.grid[0], grid_y = launch.grid[1];
    set(here.grid_size, grid_x, grid_y, launch.grid[2]);
    set(here.block_size, launch.block[0], launch.block[1], launch.block[2]);
    uint32_t x = static_cast<uint32_t>(first % grid_x);
    uint32_t y = static_cast<uint32_t>(first / grid_x % grid_y);
    uint32_t z = static_cast<uint32_t>(first / grid_x / grid_y);
    for (uint64_t block = first; block < last; ++block) {
      set(here.block, x, y, z);
      run_block(launch, (uint64_t(x) + 1) * launch.block[0], all, values...);
      if (++x < grid_x) continue;
      x = 0;
      if (++y < grid_y) continue;
      y = 0;
      ++z;
    }
  }

  template <size_t... I_>
  __attribute__((always_inline)) static inline void unpack(const ons_cpu_launch& launch,
                                                           void* const* parameters,
                                                           uint64_t first, uint64_t last,
                                                           indices<I_...> all) {
    run_blocks(launch, first, last, all, *static_cast<P_*>(parameters[I_])...);
  }

  static void run(const ons_cpu_launch* launch, void* const* parameters, uint64_t first,
                  uint64_t last) {
    unpack(*launch, parameters, first, last,
           typename make_indices<sizeof...(P_)>::type());
  }
};

// Have bounds checks of the source been marked?
template <class F_, F_* kernel, bool is_guarded_>
constexpr ons_cpu_kernel describe() {
  using type = runner<F_, kernel, is_guarded_>;
  return {ONS_CPU_ABI_VERSION, type::parameter_count, type::parameter_bytes, type::run,
          type::signature};
}

}  // namespace ons_cpu

// Around the conditions of bounds checks in the user's source: run_row() says why. Not in
// the namespace, whose names the user's macros may hide.
__attribute__((always_inline)) inline bool ons_cpu_guard(bool is_in) {
  if (!is_in) ons_cpu::here.is_out = ons_cpu::flag{1};
  return is_in;
}
__attribute__((always_inline)) inline bool ons_cpu_guard_return(bool is_out) {
  return !ons_cpu_guard(!is_out);
}

#define ONS_CPU_EXPORT __attribute__((visibility("default")))

#include <onstream/cpu_functions.h>

#endif  // ONSTREAM_CPU_H_
