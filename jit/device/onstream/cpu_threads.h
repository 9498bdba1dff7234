// What the threads of a block do together: barriers, shared memory, and the ways in which
// a kernel ends with an error. Follows cpu.h.
//
// Threads that wait share an OS thread, and so `here`: whoever calls the library's waits
// keeps a copy of what is its own (ons_cpu::resting).
#ifndef ONSTREAM_CPU_THREADS_H_
#define ONSTREAM_CPU_THREADS_H_

namespace ons_cpu {

// Around a call of the library that other threads may run in.
struct resting {
  coordinates thread = here.thread;

  ~resting() { here.thread = thread; }
};

inline ons_cpu_site site_of(unsigned int line) {
  return reinterpret_cast<ons_cpu_site>(static_cast<uintptr_t>(line));
}

// Of the thread, counted through its block.
inline uint32_t thread_rank() {
  return static_cast<uint32_t>(here.thread.x) +
         static_cast<uint32_t>(here.block_size.x) *
             (static_cast<uint32_t>(here.thread.y) +
              static_cast<uint32_t>(here.block_size.y) *
                  static_cast<uint32_t>(here.thread.z));
}
inline uint32_t thread_count() {
  return static_cast<uint32_t>(here.block_size.x) *
         static_cast<uint32_t>(here.block_size.y) *
         static_cast<uint32_t>(here.block_size.z);
}
inline uint32_t lane() { return thread_rank() % ONS_WARP_SIZE; }

inline bool is_alone() { return here.is_alone != flag{0}; }

// The count of the threads is what all of them come to where nobody else is there.
__attribute__((always_inline)) inline uint32_t wait_block(uint32_t predicate,
                                                          uint32_t* out_arrived,
                                                          unsigned int line) {
  *out_arrived = 1;
  if (is_alone()) return predicate != 0;
  resting here_again;
  return here.launch->services->wait_block(predicate, out_arrived, site_of(line));
}

inline void wait_warp(uint64_t mask, void (*combine)(void** slots, uint64_t lanes),
                      void* slot, unsigned int line) {
  if (is_alone()) {
    combine(&slot, 1);
    return;
  }
  resting here_again;
  here.launch->services->wait_warp(mask, combine, slot, site_of(line));
}

inline uint64_t active_mask(unsigned int line) {
  if (is_alone()) return 1;
  resting here_again;
  return here.launch->services->active_mask(site_of(line));
}

inline void wait_grid(unsigned int line) {
  resting here_again;
  here.launch->services->wait_grid(site_of(line));
}

[[noreturn]] __attribute__((noinline, cold)) static void fail(int fault, const char* text,
                                                              const char* file,
                                                              unsigned int line) {
  // Several blocks may run as one.
  const uint32_t x = static_cast<uint32_t>(here.thread.x);
  const uint32_t size_x = static_cast<uint32_t>(here.block_size.x);
  const uint32_t block[] = {static_cast<uint32_t>(here.block.x) + x / size_x,
                            static_cast<uint32_t>(here.block.y),
                            static_cast<uint32_t>(here.block.z)};
  const uint32_t thread[] = {x % size_x, static_cast<uint32_t>(here.thread.y),
                             static_cast<uint32_t>(here.thread.z)};
  here.launch->services->fail(fault, text, file, line, block, thread);
  __builtin_unreachable();
}

}  // namespace ons_cpu

// What the source's own declarations become: jit/source_shared.h.
#define __shared__ thread_local
#define ons_cpu_alignas(...) __attribute__((__aligned__(__VA_ARGS__)))

// The block's dynamic shared memory, as whatever it is declared to be.
static constexpr struct ons_cpu_dynamic {
  template <class T_>
  operator T_&() const {
    return *static_cast<T_*>(ons_cpu::here.launch->shared);
  }
} ons_cpu_dynamic_memory = {};

extern "C" inline void ons_cpu_trap(const char* file, unsigned int line) {
  ons_cpu::fail(ONS_CPU_FAULT_TRAP, nullptr, file, line);
}
// The system's assert() calls it, from wherever it is included.
extern "C" __attribute__((__visibility__("hidden"), __used__)) void __assert_fail(
    const char* condition, const char* file, unsigned int line, const char*) noexcept {
  ons_cpu::fail(ONS_CPU_FAULT_ASSERT, condition, file, line);
}

namespace ons_cpu_dialect {

// Where they are called is their site: the compiler may copy calls and merge them.
#define ONS_CPU_LINE unsigned int line_ = __builtin_LINE()

__attribute__((always_inline)) inline void __syncthreads(ONS_CPU_LINE) {
  uint32_t arrived;
  ons_cpu::wait_block(0, &arrived, line_);
}
__attribute__((always_inline)) inline int __syncthreads_count(int predicate,
                                                              ONS_CPU_LINE) {
  uint32_t arrived;
  return static_cast<int>(ons_cpu::wait_block(predicate != 0, &arrived, line_));
}
__attribute__((always_inline)) inline int __syncthreads_and(int predicate, ONS_CPU_LINE) {
  uint32_t arrived;
  return ons_cpu::wait_block(predicate != 0, &arrived, line_) == arrived;
}
__attribute__((always_inline)) inline int __syncthreads_or(int predicate, ONS_CPU_LINE) {
  uint32_t arrived;
  return ons_cpu::wait_block(predicate != 0, &arrived, line_) != 0;
}

}  // namespace ons_cpu_dialect

#endif  // ONSTREAM_CPU_THREADS_H_
