#include "runtime/backends/cpu/cpu_warp.h"

#include <assert.h>

static uint32_t first_thread(const ons__cpu_block* block, uint32_t thread) {
  return thread >> block->warp_shift << block->warp_shift;
}

/* Lets the threads of some lanes go on, in their order; one may run already. */
static void make_ready(ons__cpu_block* block, uint32_t first, uint64_t lanes) {
  for (; lanes; lanes &= lanes - 1) {
    const uint32_t thread = first + (uint32_t)__builtin_ctzll(lanes);
    if (block->waiters[thread]) ons__cpu_block_make_ready(block, thread);
  }
}

/* ---- masks ------------------------------------------------------------------------ */

/* The gathering is complete: the slots are where its threads left them. */
static void complete(ons__cpu_block* block, uint32_t first, uint32_t index) {
  ons__cpu_warp* warp = ons__cpu_block_warp(block, first);
  ons__cpu_gathering* gatherings = &block->gatherings[first];
  const ons__cpu_gathering done = gatherings[index];
  gatherings[index] = gatherings[--warp->gathering_count];
  done.combine(&block->slots[first], done.arrived);
  make_ready(block, first, done.arrived);
}

static ons__cpu_gathering* find_or_add(ons__cpu_block* block, uint32_t first,
                                       uint64_t mask,
                                       void (*combine)(void** slots, uint64_t lanes)) {
  ons__cpu_warp* warp = ons__cpu_block_warp(block, first);
  ons__cpu_gathering* gatherings = &block->gatherings[first];
  for (uint32_t i = 0; i < warp->gathering_count; ++i) {
    if (gatherings[i].mask != mask) continue;
    if (gatherings[i].combine != combine) {
      ons__cpu_block_fail(block,
                          "the threads of one mask, 0x%llx, call different functions of "
                          "their warp",
                          (unsigned long long)mask);
    }
    return &gatherings[i];
  }
  ons__cpu_gathering* added = &gatherings[warp->gathering_count++];
  *added = (ons__cpu_gathering){.mask = mask, .combine = combine};
  return added;
}

void ons__cpu_warp_wait(uint64_t mask, void (*combine)(void** slots, uint64_t lanes),
                        void* slot, ons_cpu_site site) {
  ons__cpu_block* block = ons__cpu_block_current();
  const uint32_t thread = block->running->thread;
  const uint32_t first = first_thread(block, thread);
  const ons__cpu_warp* warp = ons__cpu_block_warp(block, thread);
  const uint64_t lane = ons__cpu_block_lane_bit(block, thread);
  if (!(mask & lane)) {
    ons__cpu_block_fail(block,
                        "line %lu: the mask 0x%llx is without the calling thread, which "
                        "is lane %u",
                        (unsigned long)(uintptr_t)site, (unsigned long long)mask,
                        thread - first);
  }
  block->slots[thread] = slot;
  ons__cpu_gathering* gathering = find_or_add(block, first, mask, combine);
  gathering->arrived |= lane;
  if (gathering->arrived == (mask & warp->alive)) {
    complete(block, first, (uint32_t)(gathering - &block->gatherings[first]));
  } else {
    ons__cpu_block_suspend(block, ONS__CPU_WAIT_WARP, site);
  }
}

/* ---- who is active ---------------------------------------------------------------- */

/* No thread of the warp can go on: those that ask at the site of the first of them are
 * what is active there. */
static void answer(ons__cpu_block* block, uint32_t first) {
  ons__cpu_warp* warp = ons__cpu_block_warp(block, first);
  ons__cpu_strand* const* waiters = &block->waiters[first];
  const ons_cpu_site site = waiters[__builtin_ctzll(warp->asking)]->site;
  uint64_t active = 0;
  for (uint64_t lanes = warp->asking; lanes; lanes &= lanes - 1) {
    const int lane = __builtin_ctzll(lanes);
    if (waiters[lane]->site == site) active |= (uint64_t)1 << lane;
  }
  warp->asking &= ~active;
  for (uint64_t lanes = active; lanes; lanes &= lanes - 1) {
    const uint32_t thread = first + (uint32_t)__builtin_ctzll(lanes);
    block->waiters[thread]->result = active;
    ons__cpu_block_make_ready(block, thread);
  }
}

static void answer_if_stuck(ons__cpu_block* block, uint32_t first) {
  const ons__cpu_warp* warp = ons__cpu_block_warp(block, first);
  if (warp->asking && warp->blocked == warp->alive) answer(block, first);
}

void ons__cpu_warp_blocked(ons__cpu_block* block, uint32_t thread) {
  ons__cpu_block_warp(block, thread)->blocked |= ons__cpu_block_lane_bit(block, thread);
  answer_if_stuck(block, first_thread(block, thread));
}

void ons__cpu_warp_ended(ons__cpu_block* block, uint32_t thread) {
  ons__cpu_warp* warp = ons__cpu_block_warp(block, thread);
  const uint32_t first = first_thread(block, thread);
  warp->alive &= ~ons__cpu_block_lane_bit(block, thread);
  for (uint32_t i = warp->gathering_count; i-- > 0;) {
    const ons__cpu_gathering* gathering = &block->gatherings[first + i];
    if (gathering->arrived == (gathering->mask & warp->alive)) complete(block, first, i);
  }
  answer_if_stuck(block, first);
}

uint64_t ons__cpu_warp_active_mask(ons_cpu_site site) {
  ons__cpu_block* block = ons__cpu_block_current();
  ons__cpu_strand* strand = block->running;
  ons__cpu_block_warp(block, strand->thread)->asking |=
      ons__cpu_block_lane_bit(block, strand->thread);
  ons__cpu_block_suspend(block, ONS__CPU_WAIT_ACTIVE, site);
  return strand->result;
}
