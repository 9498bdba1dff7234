/* The threads of a block, where they may wait for each other: each on a fiber of one OS
 * thread.
 *
 * A fiber runs thread after thread. Only when one waits is the next begun on another
 * fiber, so that a block in which nobody waits takes one. Whoever comes last to a wait
 * goes on; the others follow in the order in which they came. */
#ifndef ONS_RUNTIME_BACKENDS_CPU_CPU_BLOCK_H_
#define ONS_RUNTIME_BACKENDS_CPU_CPU_BLOCK_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/backends/cpu/cpu_fiber.h"
#include "runtime/backends/cpu/cpu_worker.h"

enum { ONS__CPU_WARPS = ONS__CPU_BLOCK_THREADS / 32 };

/* What a thread may wait for. */
typedef enum ons__cpu_wait_kind {
  ONS__CPU_WAIT_BLOCK = 0,
  ONS__CPU_WAIT_GRID = 1,
  ONS__CPU_BARRIERS = 2, /* the two above */
  ONS__CPU_WAIT_WARP = 2,
  ONS__CPU_WAIT_ACTIVE = 3
} ons__cpu_wait_kind;

/* A stack, and the thread that runs on it. */
typedef struct ons__cpu_strand {
  ons__cpu_fiber fiber;
  struct ons__cpu_block* block;
  struct ons__cpu_strand* next; /* in the one queue that it is in */
  uint32_t thread;
  ons__cpu_wait_kind kind; /* of its wait; likewise: */
  ons_cpu_site site;
  uint64_t result;
} ons__cpu_strand;

/* First in, first out. */
typedef struct ons__cpu_queue {
  ons__cpu_strand* first;
  ons__cpu_strand* last;
} ons__cpu_queue;

/* The threads of a warp that wait under the same mask. */
typedef struct ons__cpu_gathering {
  uint64_t mask;
  uint64_t arrived;
  void (*combine)(void** slots, uint64_t lanes);
} ons__cpu_gathering;

typedef struct ons__cpu_warp {
  uint64_t alive;   /* lanes whose threads have not ended */
  uint64_t blocked; /* those that wait, for whatever */
  uint64_t asking;  /* those that do in active_mask */
  uint32_t gathering_count;
  uint32_t round; /* the block's, when this was set: */
  ons_cpu_site barrier_site;
} ons__cpu_warp;

typedef struct ons__cpu_barrier {
  ons__cpu_queue waiting;
  uint32_t arrived_count;
  uint32_t passed_count; /* with a predicate */
} ons__cpu_barrier;

typedef struct ons__cpu_block {
  ons__cpu_worker* worker;
  const ons_cpu_block* work;
  ons__cpu_fiber host; /* who called run_block */
  ons__cpu_strand* running;
  ons__cpu_strand* idle; /* a stack of them */
  ons__cpu_queue ready;
  uint32_t next_thread;                 /* not begun */
  uint32_t live_count;                  /* not ended */
  uint32_t warp_shift;                  /* 1 << warp_shift lanes a warp */
  uint32_t round;                       /* counts completed barriers */
  uint32_t arrived_count, passed_count; /* of the last of them */
  uint32_t strand_count;                /* that have a stack */
  bool is_over;                         /* by a fault */
  ons__cpu_barrier barriers[ONS__CPU_BARRIERS];
  ons__cpu_warp warps[ONS__CPU_WARPS];
  /* By thread; of a warp's gatherings the first are in use. */
  ons__cpu_strand* waiters[ONS__CPU_BLOCK_THREADS]; /* NULL: it does not wait */
  ons__cpu_gathering gatherings[ONS__CPU_BLOCK_THREADS];
  void* slots[ONS__CPU_BLOCK_THREADS];
  ons__cpu_strand strands[ONS__CPU_BLOCK_THREADS];
} ons__cpu_block;

/* NULL when out of memory. */
ons__cpu_block* ons__cpu_block_create(ons__cpu_worker* worker);
void ons__cpu_block_destroy(ons__cpu_block* self); /* NULL is accepted */

/* The services of the ABI, for the OS thread's current block. */
void ons__cpu_block_run(const ons_cpu_block* work);
uint32_t ons__cpu_block_wait(uint32_t predicate, uint32_t* out_arrived,
                             ons_cpu_site site);
void ons__cpu_block_wait_grid(ons_cpu_site site);

/* The stack that the address is in the guard page of; NULL: of none. Async-signal-safe.
 */
const ons__cpu_strand* ons__cpu_block_overflown(const ons__cpu_block* self,
                                                const void* address);

/* ---- for who waits otherwise (cpu_warp.c) ----------------------------------------- */

/* The block whose thread calls a service. Ends the launch where there is none, as in a
 * kernel of which nothing told that it may wait. */
ons__cpu_block* ons__cpu_block_current(void);

/* Lets others go on, until somebody makes the running thread ready. */
void ons__cpu_block_suspend(ons__cpu_block* self, ons__cpu_wait_kind kind,
                            ons_cpu_site site);
void ons__cpu_block_make_ready(ons__cpu_block* self, uint32_t thread);

/* Ends the launch with a text about the running thread. */
__attribute__((format(printf, 2, 3))) _Noreturn void ons__cpu_block_fail(
    ons__cpu_block* self, const char* format, ...);

/* Leaves the block, whose launch has a fault. */
_Noreturn void ons__cpu_block_leave(ons__cpu_block* self);

static inline ons__cpu_warp* ons__cpu_block_warp(ons__cpu_block* self, uint32_t thread) {
  return &self->warps[thread >> self->warp_shift];
}
static inline uint64_t ons__cpu_block_lane_bit(const ons__cpu_block* self,
                                               uint32_t thread) {
  return (uint64_t)1 << (thread & ((1u << self->warp_shift) - 1));
}

#endif /* ONS_RUNTIME_BACKENDS_CPU_CPU_BLOCK_H_ */
