/* What a compiled CPU module exports for each kernel. Read as C by the library and as C++
 * by the modules it compiles. */
#ifndef ONSTREAM_CPU_ABI_H_
#define ONSTREAM_CPU_ABI_H_

#include <stdint.h>

/* Changes with every struct below. */
#define ONS_CPU_ABI_VERSION 1

typedef struct ons_cpu_launch {
  uint32_t grid[3];  /* in blocks */
  uint32_t block[3]; /* in threads */
} ons_cpu_launch;

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
} ons_cpu_kernel;

/* The data symbol "ons_cpu_variable_<i>" likewise, for a variable. */
typedef struct ons_cpu_variable {
  uint32_t abi_version;
  uint64_t size_bytes;
  const volatile void* address;
  const char* (*signature)(void); /* of a function that takes its address */
} ons_cpu_variable;

#endif /* ONSTREAM_CPU_ABI_H_ */
