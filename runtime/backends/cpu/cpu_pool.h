/* Threads that share the blocks of a launch. */
#ifndef ONS_RUNTIME_BACKENDS_CPU_CPU_POOL_H_
#define ONS_RUNTIME_BACKENDS_CPU_CPU_POOL_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/backends/cpu/cpu_work.h"

typedef struct ons__cpu_pool ons__cpu_pool;

/* Starts `thread_count` - 1 threads: a launch's own thread works as well. Fewer where the
 * system refuses some. NULL when out of memory. */
ons__cpu_pool* ons__cpu_pool_create(const ons_allocator* allocator,
                                    uint32_t thread_count);

/* Was the pool made by this process? After fork() a child has the object but not the
 * threads. */
bool ons__cpu_pool_is_ours(const ons__cpu_pool* pool);

/* Runs the work to its end, on the calling thread as well. Any number of threads at once.
 */
void ons__cpu_pool_run(ons__cpu_pool* pool, ons__cpu_work* work);

/* Joins the threads, unless the pool is another process's. No work may be running. NULL
 * is accepted. */
void ons__cpu_pool_destroy(ons__cpu_pool* pool);

#endif /* ONS_RUNTIME_BACKENDS_CPU_CPU_POOL_H_ */
