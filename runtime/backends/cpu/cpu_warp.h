/* Waits of the threads of a warp for each other. */
#ifndef ONS_RUNTIME_BACKENDS_CPU_CPU_WARP_H_
#define ONS_RUNTIME_BACKENDS_CPU_CPU_WARP_H_

#include "runtime/backends/cpu/cpu_block.h"

/* The services of the ABI, for the OS thread's current block. */
void ons__cpu_warp_wait(uint64_t mask, void (*combine)(void** slots, uint64_t lanes),
                        void* slot, ons_cpu_site site);
uint64_t ons__cpu_warp_active_mask(ons_cpu_site site);

/* A thread has begun to wait for something else, or has ended: what that lets the others
 * of its warp do. */
void ons__cpu_warp_blocked(ons__cpu_block* block, uint32_t thread);
void ons__cpu_warp_ended(ons__cpu_block* block, uint32_t thread);

#endif /* ONS_RUNTIME_BACKENDS_CPU_CPU_WARP_H_ */
