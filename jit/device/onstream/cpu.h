// The CUDA dialect for host compilers: ahead of every source that the CPU backend
// compiles, behind cpu_abi.h and kernel.h and before cpu_threads.h. A kernel is an
// ordinary function; its runner calls it for each thread of each block: in loops, or,
// where threads may wait for each other, one by one from the library's fibers. The user's
// macros come behind this header: what its own macros expand to, and the lines for the
// kernels, use names of no other use.
#ifndef ONSTREAM_CPU_H_
#define ONSTREAM_CPU_H_

// libstdc++'s own <math.h> drags in all of <cmath>, a tenth of a second of every compile.
// This makes it pass C's through; the float overloads come from cpu_functions.h.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <assert.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <typeinfo>

#define __global__ \
  __attribute__((__always_inline__))  // into the runner's loop, which vectorises
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __forceinline__ __inline__ __attribute__((__always_inline__))
/* Empty, as C++ libraries write __attribute__((__noinline__)): a hint is not worth them.
 */
#define __noinline__
#define __align__(bytes) __attribute__((__aligned__(bytes)))
#ifndef ONS_WARP_SIZE
#define ONS_WARP_SIZE 32
#endif
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

// A bounds check in the loop over threads is a mask on every store. That costs nothing
// with AVX-512; other processors are several times faster where the check is an exit of
// the loop.
#if defined(__AVX512VL__)
constexpr bool leaves_at_bounds = false;
#else
constexpr bool leaves_at_bounds = true;
#endif

struct position {
  coordinates thread, block, block_size, grid_size;
  flag is_out;    // a thread of the row at hand has failed its bounds check
  flag is_alone;  // its block has no other thread
  const ons_cpu_launch* launch;
};
// Not thread_local: each use would ask whether the source's thread-local objects, of
// which some are found through it, have been initialised.
static __thread position here;

__attribute__((always_inline)) inline void set(coordinates& to, uint32_t x, uint32_t y,
                                               uint32_t z) {
  to.x = static_cast<coordinate>(x);
  to.y = static_cast<coordinate>(y);
  to.z = static_cast<coordinate>(z);
}

// Built in, as a recursion or a fold runs into the compiler's limits.
template <size_t... I_>
struct indices {};
#ifdef __clang__
template <class, size_t... I_>
using indices_of = indices<I_...>;
template <size_t N_>
using make_indices = __make_integer_seq<indices_of, size_t, N_>;
#else
template <size_t N_>
using make_indices = indices<__integer_pack(N_)...>;
#endif

// Walks the blocks of a grid.
struct cursor {
  const uint32_t grid_x, grid_y;
  uint64_t block;
  uint32_t x, y, z;

  cursor(const ons_cpu_launch& launch, uint64_t first)
      : grid_x(launch.grid[0]),
        grid_y(launch.grid[1]),
        block(first),
        x(static_cast<uint32_t>(first % grid_x)),
        y(static_cast<uint32_t>(first / grid_x % grid_y)),
        z(static_cast<uint32_t>(first / grid_x / grid_y)) {}

  // Not past the end of a row.
  __attribute__((always_inline)) void advance(uint32_t length) {
    block += length;
    x += length;
    if (x < grid_x) return;
    x = 0;
    if (++y < grid_y) return;
    y = 0;
    ++z;
  }
};

// ---- parameters ----

// What a launch gives for a parameter of type T_: bytes, at any alignment. A reference,
// or a class without a copy constructor, cannot be made from them.
template <class T_>
struct parameter {
  static constexpr bool is_copyable = __is_constructible(T_, const T_&);
  static constexpr uint32_t size_bytes = sizeof(T_);

  explicit parameter(const void* source) { memcpy(bytes, source, sizeof(bytes)); }
  const T_& value() const { return *reinterpret_cast<const T_*>(bytes); }

  alignas(T_) unsigned char bytes[sizeof(T_)];
};
template <class T_>
struct parameter<T_&> {
  static constexpr bool is_copyable = false;
};
template <class T_>
struct parameter<T_&&> {
  static constexpr bool is_copyable = false;
};

template <class F_>
struct is_callable {
  static constexpr bool value = false;  // returns something, or has an ellipsis
};
template <class... P_>
struct is_callable<void(P_...)> {
  static constexpr bool all() {
    const bool each[] = {parameter<P_>::is_copyable..., true};
    for (bool is_copyable : each) {
      if (!is_copyable) return false;
    }
    return true;
  }
  static constexpr bool value = all();
};

// ---- debuggers ----

}  // namespace ons_cpu

#if defined(ONS_CPU_DEBUG)
// Called ahead of each thread's kernel, so that a breakpoint can choose: docs/cpu.md.
extern "C" __attribute__((__noinline__, __used__, __visibility__("default"))) inline void
ons_thread(unsigned int block_x, unsigned int block_y, unsigned int block_z,
           unsigned int thread_x, unsigned int thread_y, unsigned int thread_z) {
  asm volatile("" ::"r"(block_x), "r"(block_y), "r"(block_z), "r"(thread_x),
               "r"(thread_y), "r"(thread_z));
}
#endif

namespace ons_cpu {

__attribute__((always_inline)) inline void begin_thread() {
#if defined(ONS_CPU_DEBUG)
  // Several blocks may run as one that is longer.
  const uint32_t x = static_cast<uint32_t>(here.thread.x);
  const uint32_t size_x = static_cast<uint32_t>(here.launch->block[0]);
  ons_thread(static_cast<uint32_t>(here.block.x) + x / size_x,
             static_cast<uint32_t>(here.block.y), static_cast<uint32_t>(here.block.z),
             x % size_x, static_cast<uint32_t>(here.thread.y),
             static_cast<uint32_t>(here.thread.z));
#endif
}

// ---- runners ----

// Of a kernel that cannot be called: only its signature is told.
template <class F_, F_* kernel, unsigned int how_, bool is_callable_>
struct runner {
  static constexpr uint32_t parameter_count = 0;
  static constexpr const uint32_t* parameter_bytes = nullptr;
  static constexpr ons_cpu_runner run = nullptr;
};

// Launch and parameters are copies in what runs a kernel: no store of it can change them.
template <class... P_, void (*kernel)(P_...), unsigned int how_>
struct runner<void(P_...), kernel, how_, true> {
  static constexpr uint32_t parameter_count = sizeof...(P_);
  static constexpr uint32_t parameter_bytes[sizeof...(P_) + 1] = {
      parameter<P_>::size_bytes..., 0};

  // ---- as loops ----

  __attribute__((always_inline)) static inline void run_thread(int x, int y, int z,
                                                               P_... values) {
    set(here.thread, static_cast<uint32_t>(x), static_cast<uint32_t>(y),
        static_cast<uint32_t>(z));
    begin_thread();
    kernel(values...);
  }

  // The thread that fails a marked bounds check ends the first loop.
  __attribute__((always_inline)) static inline void run_row(int size_x, int y, int z,
                                                            P_... values) {
    int x = 0;
    here.is_out = flag{0};
    while (leaves_at_bounds && (how_ & ONS_CPU_GUARDED) && x < size_x) {
      run_thread(x++, y, z, values...);
      if (here.is_out != flag{0}) break;
    }
    for (; x < size_x; ++x) run_thread(x, y, z, values...);
  }

  // The counters are signed: GCC does not vectorise over those that may wrap.
  __attribute__((always_inline)) static inline void run_block(
      const ons_cpu_launch& launch, uint32_t length, P_... values) {
    const int size_x = static_cast<int>(launch.block[0] * length);
    const int size_y = static_cast<int>(launch.block[1]);
    const int size_z = static_cast<int>(launch.block[2]);
    for (int z = 0; z < size_z; ++z) {
      for (int y = 0; y < size_y; ++y) run_row(size_x, y, z, values...);
    }
  }

  // How many of the `left` blocks from `x` on run as one that is so much longer. Their
  // indices must not wrap, in whatever the kernel computes them.
  static inline uint32_t joint_length(const ons_cpu_launch& launch, uint32_t x,
                                      uint64_t left) {
    const uint64_t in_row = launch.grid[0] - x;
    const uint64_t length = left < in_row ? left : in_row;
    const bool fits = (x + length) * launch.block[0] <= INT32_MAX;
    return (how_ & ONS_CPU_JOINT) && fits ? static_cast<uint32_t>(length) : 1;
  }

  __attribute__((always_inline)) static inline void run_blocks(
      const ons_cpu_launch launch, uint64_t first, uint64_t last, P_... values) {
    set(here.block_size, launch.block[0], launch.block[1], launch.block[2]);
    cursor at(launch, first);
    while (at.block < last) {
      const uint32_t length = joint_length(launch, at.x, last - at.block);
      set(here.block, at.x, at.y, at.z);
      run_block(launch, length, values...);
      at.advance(length);
    }
  }

  // ---- a thread that is its block ----

  // Nobody is there to wait for: what the barriers ask is known to the compiler, as is
  // the size of the block.
  __attribute__((always_inline)) static inline void run_alone(const ons_cpu_launch launch,
                                                              uint64_t first,
                                                              uint64_t last,
                                                              P_... values) {
    for (cursor at(launch, first); at.block < last; at.advance(1)) {
      here.is_alone = flag{1};
      set(here.block_size, 1, 1, 1);
      set(here.block, at.x, at.y, at.z);
      run_thread(0, 0, 0, values...);
    }
  }

  // ---- threads that may wait ----

  template <size_t... I_>
  static void run_waiting(void* parameters_pointer, uint32_t i, indices<I_...>) {
    void* const* parameters = static_cast<void* const*>(parameters_pointer);
    const uint32_t size_x = static_cast<uint32_t>(here.block_size.x);
    const uint32_t size_y = static_cast<uint32_t>(here.block_size.y);
    const uint32_t row = i / size_x;
    set(here.thread, i % size_x, row % size_y, row / size_y);
    begin_thread();
    kernel(parameter<P_>(parameters[I_]).value()...);
  }
  static void run_ith(void* parameters, uint32_t i) {
    run_waiting(parameters, i, make_indices<sizeof...(P_)>());
  }

  static inline void run_together(const ons_cpu_launch& launch, void* const* parameters,
                                  uint64_t first, uint64_t last) {
    ons_cpu_block block = {
        &launch, {}, launch.block[0], run_ith, const_cast<void**>(parameters)};
    block.thread_count *= launch.block[1] * launch.block[2];
    set(here.block_size, launch.block[0], launch.block[1], launch.block[2]);
    for (cursor at(launch, first); at.block < last; at.advance(1)) {
      set(here.block, at.x, at.y, at.z);
      block.index[0] = at.x;
      block.index[1] = at.y;
      block.index[2] = at.z;
      launch.services->run_block(&block);
    }
  }

  template <size_t... I_>
  __attribute__((always_inline)) static inline void unpack(const ons_cpu_launch& launch,
                                                           void* const* parameters,
                                                           uint64_t first, uint64_t last,
                                                           indices<I_...>) {
    const bool is_one = launch.block[0] * launch.block[1] * launch.block[2] == 1;
    if (!(how_ & ONS_CPU_MAY_WAIT)) {
      run_blocks(launch, first, last, parameter<P_>(parameters[I_]).value()...);
    } else if (is_one) {
      run_alone(launch, first, last, parameter<P_>(parameters[I_]).value()...);
    } else {
      run_together(launch, parameters, first, last);
    }
  }

  static void run(const ons_cpu_launch* launch, void* const* parameters, uint64_t first,
                  uint64_t last) {
    here.launch = launch;
    here.is_alone = flag{0};
    set(here.grid_size, launch->grid[0], launch->grid[1], launch->grid[2]);
    unpack(*launch, parameters, first, last, make_indices<sizeof...(P_)>());
  }
};

// Signatures leave noexcept out.
template <class F_>
struct plain {
  using type = F_;
};
#if defined(__cpp_noexcept_function_type)
template <class R_, class... P_>
struct plain<R_(P_...) noexcept> {
  using type = R_(P_...);
};
#endif

template <class F_>
const char* signature() {
  return typeid(F_).name();
}

}  // namespace ons_cpu

// ---- what the source refers to: outside of the namespace, which its own names may hide
// ---

// `found_`: ONS_CPU_GUARDED and its like. Memory of the block keeps blocks apart.
template <class Kernel_, Kernel_* kernel, unsigned int found_, bool is_joint_>
constexpr ons_cpu_kernel ons_cpu_describe() {
  constexpr unsigned int joint = is_joint_ ? found_ | ONS_CPU_JOINT : found_;
  constexpr unsigned int how = found_ & ONS_CPU_SHARES ? found_ & ~ONS_CPU_JOINT : joint;
  using function = typename ons_cpu::plain<Kernel_>::type;
  using type =
      ons_cpu::runner<function, kernel, how, ons_cpu::is_callable<function>::value>;
  return {ONS_CPU_ABI_VERSION,          type::parameter_count,
          type::parameter_bytes,        type::run,
          ons_cpu::signature<function>, ONS_WARP_SIZE,
          (how & ONS_CPU_MAY_WAIT) != 0};
}

#define ONS_CPU_COORDINATES(type, name, member)                 \
  __attribute__((always_inline)) inline type name() {           \
    return {static_cast<unsigned int>(ons_cpu::here.member.x),  \
            static_cast<unsigned int>(ons_cpu::here.member.y),  \
            static_cast<unsigned int>(ons_cpu::here.member.z)}; \
  }
ONS_CPU_COORDINATES(uint3, ons_cpu_thread_index, thread)
ONS_CPU_COORDINATES(uint3, ons_cpu_block_index, block)
ONS_CPU_COORDINATES(dim3, ons_cpu_block_size, block_size)
ONS_CPU_COORDINATES(dim3, ons_cpu_grid_size, grid_size)
#undef ONS_CPU_COORDINATES
#define ons_cpu_joint_threadIdx (ons_cpu_thread_index())
#define ons_cpu_joint_blockIdx (ons_cpu_block_index())
#define threadIdx ((void)__COUNTER__, ons_cpu_thread_index())
#define blockIdx ((void)__COUNTER__, ons_cpu_block_index())
#define blockDim (ons_cpu_block_size())
#define gridDim (ons_cpu_grid_size())

// `earlier`: how often this has been asked.
enum : int { ons_cpu_first_count = __COUNTER__ };
#define ONS_CPU_IS_JOINT(earlier) (__COUNTER__ == ons_cpu_first_count + 1 + (earlier))

// Around the conditions of bounds checks in the user's source: leaves_at_bounds says why.
__attribute__((always_inline)) inline bool ons_cpu_guard(bool is_in) {
  if (ons_cpu::leaves_at_bounds && !is_in) ons_cpu::here.is_out = ons_cpu::flag{1};
  return is_in;
}
__attribute__((always_inline)) inline bool ons_cpu_guard_return(bool is_out) {
  return !ons_cpu_guard(!is_out);
}

#define ONS_CPU_EXPORT __attribute__((__visibility__("default")))

#endif  // ONSTREAM_CPU_H_
