/* Blocks that wait for each other, each on an OS thread of its own. */
#ifndef ONS_RUNTIME_BACKENDS_CPU_CPU_GRID_H_
#define ONS_RUNTIME_BACKENDS_CPU_CPU_GRID_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/backends/cpu/cpu_worker.h"

typedef struct ons__cpu_grid ons__cpu_grid;

/* Waits for the blocks that have not ended. False: the launch has a fault. */
bool ons__cpu_grid_wait(ons__cpu_grid* grid);

/* Runs all of the piece's blocks at a time. UNAVAILABLE where the system refuses so many
 * threads; no block has run then. */
ons_status ons__cpu_grid_run(const ons__cpu_piece* piece, uint32_t block_count,
                             const ons_allocator* allocator, ons_error* error);

#endif /* ONS_RUNTIME_BACKENDS_CPU_CPU_GRID_H_ */
