/* What an OS thread needs to run blocks: a place to leave to, the memory that the threads
 * of a block share, and their stacks. */
#ifndef ONS_RUNTIME_BACKENDS_CPU_CPU_WORKER_H_
#define ONS_RUNTIME_BACKENDS_CPU_CPU_WORKER_H_

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "jit/device/onstream/cpu_abi.h"
#include "runtime/backends/cpu/cpu_fault.h"

enum {
  ONS__CPU_SHARED_BYTES = 227 * 1024, /* dynamic; what a current GPU gives on request */
  ONS__CPU_BLOCK_THREADS = 1024,
  ONS__CPU_STACK_BYTES = 256 * 1024 /* of a thread that may wait */
};

struct ons__cpu_block;
struct ons__cpu_grid;

/* One for each OS thread that runs blocks, from its first to the thread's end. */
typedef struct ons__cpu_worker {
  struct ons__cpu_block* block; /* NULL until threads wait */
  char* memory;                 /* the shared memory, then a stack */
  void* rescue_stack;           /* the top of it: for a thread whose own is full */
  /* Of the blocks at hand. */
  ons__cpu_fault* fault;      /* NULL: none are */
  struct ons__cpu_grid* grid; /* of a cooperative launch */
  jmp_buf out;                /* where a fault leaves to */
} ons__cpu_worker;

/* What blocks are run, and for whom. */
typedef struct ons__cpu_piece {
  ons_cpu_runner run;
  const ons_cpu_launch* launch; /* without what is the worker's */
  void* const* parameters;
  ons__cpu_fault* fault;
  struct ons__cpu_grid* grid; /* NULL: they do not wait for other blocks */
} ons__cpu_piece;

/* The calling OS thread's, NULL where it has none. */
ons__cpu_worker* ons__cpu_worker_current(void);

/* Runs the blocks [first, last) on the calling OS thread. False: the launch has a fault,
 * and some may not have run. */
bool ons__cpu_worker_run(const ons__cpu_piece* piece, uint64_t first, uint64_t last);

/* Leaves the blocks at hand, whose launch has a fault; on the OS thread's own stack. */
_Noreturn void ons__cpu_worker_leave(ons__cpu_worker* self);

#endif /* ONS_RUNTIME_BACKENDS_CPU_CPU_WORKER_H_ */
