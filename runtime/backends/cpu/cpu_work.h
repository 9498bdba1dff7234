/* The blocks of a launch, from which OS threads take some at a time. */
#ifndef ONS_RUNTIME_BACKENDS_CPU_CPU_WORK_H_
#define ONS_RUNTIME_BACKENDS_CPU_CPU_WORK_H_

#include <onstream/launch.h>
#include <onstream/runtime.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "runtime/backends/cpu/cpu_worker.h"

typedef struct ons__cpu_work {
  ons__cpu_piece piece;
  atomic_uint_fast64_t next_block;
  uint64_t last_block; /* one past */
  uint64_t blocks_at_once;
  ons_interrupt_fn interrupt; /* for the thread that launched; NULL: none */
  void* interrupt_user_data;
  uint64_t next_poll_ns; /* of it */
} ons__cpu_work;

static inline uint64_t ons__cpu_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Runs blocks until there are none left that nobody took, or the launch has a fault. */
void ons__cpu_work_take(ons__cpu_work* work);

/* Ditto, for the thread that launched, which asks now and then whether to stop. */
void ons__cpu_work_take_own(ons__cpu_work* work);

/* Waits for the condition, as the thread that launched. May wake for nothing. */
void ons__cpu_work_wait(ons__cpu_work* work, pthread_cond_t* condition,
                        pthread_mutex_t* mutex);

/* Runs the work to its end on the caller's executor and the calling thread. */
void ons__cpu_work_execute(ons__cpu_work* work, const ons_executor* executor,
                           const ons_allocator* allocator);

/* A thread for blocks, which leaves the host's signals to the host's threads. False where
 * the system refuses. */
bool ons__cpu_thread_start(void* (*run)(void* argument), void* argument,
                           pthread_t* out_thread);

#endif /* ONS_RUNTIME_BACKENDS_CPU_CPU_WORK_H_ */
