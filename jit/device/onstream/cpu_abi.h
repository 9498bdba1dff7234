/* What a compiled CPU module exports for each kernel, and what the library does for the
 * kernels while they run. Read as C by the library and as C++ by the modules it compiles.
 */
#ifndef ONSTREAM_CPU_ABI_H_
#define ONSTREAM_CPU_ABI_H_

#include <stdint.h>

/* Changes with every struct below. */
#define ONS_CPU_ABI_VERSION 2

/* What the library has found in a kernel's source; given to ons_cpu_describe. */
enum {
  ONS_CPU_GUARDED = 1,  /* bounds checks of the source have been marked */
  ONS_CPU_SHARES = 2,   /* it may use the memory of its block */
  ONS_CPU_MAY_WAIT = 4, /* its threads may wait for each other */
  ONS_CPU_JOINT = 8     /* it uses no index but in marked sums */
};

/* What ends a launch with an error. */
enum {
  ONS_CPU_FAULT_ASSERT = 1, /* the text is the condition */
  ONS_CPU_FAULT_TRAP = 2,   /* no text */
  ONS_CPU_FAULT_MISUSE = 3, /* the text says of what */
};

typedef struct ons_cpu_services ons_cpu_services;

typedef struct ons_cpu_launch {
  uint32_t grid[3];      /* in blocks */
  uint32_t block[3];     /* in threads */
  uint32_t shared_bytes; /* dynamic shared memory of a block */
  uint32_t warp_size;    /* the kernel's own */
  void* shared;          /* that memory, the calling OS thread's for as long as it lives;
                            128-byte aligned */
  const ons_cpu_services* services;
} ons_cpu_launch;

/* A block whose threads may wait for each other. */
typedef struct ons_cpu_block {
  const ons_cpu_launch* launch;
  uint32_t index[3];
  uint32_t thread_count;
  void (*thread)(void* closure, uint32_t i); /* runs the i-th, x innermost */
  void* closure;
} ons_cpu_block;

/* The place where threads wait: anything that tells one from another. */
typedef const void* ons_cpu_site;

/* To be called by a kernel that runs, on its own OS thread. A wait may return after other
 * threads of the block have run on the same OS thread. */
struct ons_cpu_services {
  /* Runs all threads of the block, as threads that may wait for each other. */
  void (*run_block)(const ons_cpu_block* block);
  /* Waits for all threads of the block that have not ended. Returns how many of them
     passed a predicate other than 0; |out_arrived| is how many they were. */
  uint32_t (*wait_block)(uint32_t predicate, uint32_t* out_arrived, ons_cpu_site site);
  /* Waits for the threads of `mask` in the caller's warp that have not ended. The last to
     come calls combine(slots, lanes) once, slots[lane] being what each of `lanes` passed;
     then all go on. */
  void (*wait_warp)(uint64_t mask, void (*combine)(void** slots, uint64_t lanes),
                    void* slot, ons_cpu_site site);
  /* Waits until no thread of the warp can go on otherwise. Returns the lanes that are at
     this site then. */
  uint64_t (*active_mask)(ons_cpu_site site);
  /* Waits for all threads of all blocks of a cooperative launch. */
  void (*wait_grid)(ons_cpu_site site);
  /* Is it one? */
  uint32_t (*is_cooperative)(void);
  /* Ends the launch with an error. Does not return. `block` and `thread` are where it was
     called; `file` may be NULL. */
  void (*fail)(int fault, const char* text, const char* file, uint32_t line,
               const uint32_t block[3], const uint32_t thread[3]);
};

/* Runs the blocks [first_block, last_block) of the flattened grid, x innermost.
 * `parameters[i]` points at the i-th parameter's bytes. */
typedef void (*ons_cpu_runner)(const ons_cpu_launch* launch, void* const* parameters,
                               uint64_t first_block, uint64_t last_block);

/* The data symbol "ons_cpu_kernel_<i>", i being the position among the kernels asked for.
 */
typedef struct ons_cpu_kernel {
  uint32_t abi_version;
  uint32_t parameter_count;
  const uint32_t* parameter_bytes; /* parameter_count of them */
  ons_cpu_runner run; /* NULL where bytes cannot call it: see ons_cpu::parameter */
  const char* (*signature)(void); /* the mangled function type */
  uint32_t warp_size;
  uint32_t may_wait; /* it calls run_block for blocks of several threads */
} ons_cpu_kernel;

/* The data symbol "ons_cpu_variable_<i>" likewise, for a variable. */
typedef struct ons_cpu_variable {
  uint32_t abi_version;
  uint64_t size_bytes;
  const volatile void* address;
  const char* (*signature)(void); /* of a function that takes its address */
} ons_cpu_variable;

#endif /* ONSTREAM_CPU_ABI_H_ */
