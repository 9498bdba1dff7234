#include "runtime/backends/cpu/cpu_block.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/backends/cpu/cpu_grid.h"
#include "runtime/backends/cpu/cpu_warp.h"

/* ---- queues ----------------------------------------------------------------------- */

static inline void push(ons__cpu_queue* queue, ons__cpu_strand* strand) {
  strand->next = NULL;
  *(queue->first ? &queue->last->next : &queue->first) = strand;
  queue->last = strand;
}

static inline ons__cpu_strand* pop(ons__cpu_queue* queue) {
  ons__cpu_strand* first = queue->first;
  if (first) queue->first = first->next;
  return first;
}

/* ---- stacks ----------------------------------------------------------------------- */

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* So that the tops of all stacks are not in the same set of a cache, where the threads of
 * a block would throw out each other's. */
static size_t colour_bytes(uint32_t index) { return (size_t)(index % 64) * 64; }

static void run_threads(void* strand);

static void start_fiber(ons__cpu_block* self, uint32_t index) {
  ons__cpu_strand* strand = &self->strands[index];
  char* low = (char*)(uintptr_t)strand->fiber.stack_low;
  ons__cpu_fiber_init(low, ONS__CPU_STACK_BYTES - colour_bytes(index), run_threads,
                      strand, &strand->fiber);
  strand->next = self->idle;
  self->idle = strand;
}

/* A stack more. The guard page is left out where the system has no more mappings: those
 * of many workers are many. */
static bool add_strand(ons__cpu_block* self) {
  if (self->strand_count == ONS__CPU_BLOCK_THREADS) return false;
  const size_t guard = page_bytes();
  char* memory = mmap(NULL, guard + ONS__CPU_STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  madvise(memory, guard + ONS__CPU_STACK_BYTES, MADV_NOHUGEPAGE);
  (void)!mprotect(memory, guard, PROT_NONE);
  ons__cpu_strand* strand = &self->strands[self->strand_count];
  strand->block = self;
  strand->fiber.stack_low = memory + guard;
  start_fiber(self, self->strand_count++);
  return true;
}

static ons__cpu_strand* take_idle(ons__cpu_block* self) {
  if (!self->idle && !add_strand(self)) return NULL;
  ons__cpu_strand* strand = self->idle;
  self->idle = strand->next;
  return strand;
}

const ons__cpu_strand* ons__cpu_block_overflown(const ons__cpu_block* self,
                                                const void* address) {
  const ons__cpu_strand* strand = self->running;
  if (!strand) return NULL;
  const uintptr_t low = (uintptr_t)strand->fiber.stack_low;
  const uintptr_t at = (uintptr_t)address;
  return at < low && at >= low - page_bytes() ? strand : NULL;
}

/* ---- faults ----------------------------------------------------------------------- */

_Noreturn void ons__cpu_block_leave(ons__cpu_block* self) {
  ons__cpu_strand* strand = self->running;
  assert(strand);
  self->is_over = true;
  self->running = NULL;
  ons__cpu_fiber_switch(&strand->fiber, &self->host);
  __builtin_unreachable();
}

static void coordinates_of(const ons__cpu_block* self, uint32_t thread,
                           uint32_t out_coordinates[3]) {
  const uint32_t* block = self->work->launch->block;
  out_coordinates[0] = thread % block[0];
  out_coordinates[1] = thread / block[0] % block[1];
  out_coordinates[2] = thread / block[0] / block[1];
}

_Noreturn void ons__cpu_block_fail(ons__cpu_block* self, const char* format, ...) {
  char place[96], text[512];
  uint32_t thread[3];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  coordinates_of(self, self->running->thread, thread);
  ons__cpu_fault_place(self->work->index, thread, place, sizeof(place));
  ons__cpu_fault_set(self->worker->fault, ONS_STATUS_DEVICE, "%s: %s", place, text);
  ons__cpu_block_leave(self);
}

static bool waits_alike(const ons__cpu_strand* a, const ons__cpu_strand* b) {
  return a && b && a->kind == b->kind && a->site == b->site;
}

/* "(0, 0, 0) to (15, 0, 0), (32, 0, 0)": the threads that wait as `first` does. */
static void append_alike(const ons__cpu_block* self, const ons__cpu_strand* first,
                         char* text, size_t capacity) {
  const uint32_t count = self->work->thread_count;
  for (uint32_t i = first->thread, ranges = 0; i < count; ++i) {
    if (!waits_alike(first, self->waiters[i])) continue;
    uint32_t end = i, at[3], last[3];
    while (end + 1 < count && waits_alike(first, self->waiters[end + 1])) ++end;
    coordinates_of(self, i, at);
    coordinates_of(self, end, last);
    const size_t length = strlen(text);
    if (ranges++ == 4) {
      snprintf(text + length, capacity - length, ", ...");
      return;
    }
    snprintf(text + length, capacity - length,
             end > i ? "%s(%u, %u, %u) to (%u, %u, %u)" : "%s(%u, %u, %u)",
             ranges > 1 ? ", " : "", at[0], at[1], at[2], last[0], last[1], last[2]);
    i = end;
  }
}

/* Nobody can go on. */
static _Noreturn void fail_divergent(ons__cpu_block* self) {
  static const char* const what[] = {"__syncthreads", "a barrier of the grid",
                                     "a function of their warp", "__activemask"};
  char text[640] = "";
  for (uint32_t i = 0, groups = 0; i < self->work->thread_count && groups < 4; ++i) {
    const ons__cpu_strand* strand = self->waiters[i];
    bool is_first = strand != NULL;
    for (uint32_t j = 0; j < i && is_first; ++j) {
      is_first = !waits_alike(strand, self->waiters[j]);
    }
    if (!is_first) continue;
    size_t length = strlen(text);
    snprintf(text + length, sizeof(text) - length, "%s", groups++ ? "; " : "");
    append_alike(self, strand, text, sizeof(text));
    length = strlen(text);
    snprintf(text + length, sizeof(text) - length, " in line %lu, at %s",
             (unsigned long)(uintptr_t)strand->site, what[strand->kind]);
  }
  const uint32_t* index = self->work->index;
  ons__cpu_fault_set(
      self->worker->fault, ONS_STATUS_DEVICE,
      "block (%u, %u, %u): a barrier in divergent code: these threads wait "
      "for ones that never come: %s",
      index[0], index[1], index[2], text);
  ons__cpu_block_leave(self);
}

/* ---- who runs --------------------------------------------------------------------- */

ons__cpu_block* ons__cpu_block_current(void) {
  ons__cpu_worker* worker = ons__cpu_worker_current();
  assert(worker && worker->fault);
  if (worker->block && worker->block->running) return worker->block;
  ons__cpu_fault_set(
      worker->fault, ONS_STATUS_INTERNAL,
      "the kernel waits for other threads, which was not to be seen in its "
      "source: put the barrier's name into the kernel's own source");
  ons__cpu_worker_leave(worker);
}

/* Somebody who can go on, other than the caller. */
static ons__cpu_strand* choose(ons__cpu_block* self) {
  ons__cpu_strand* next = pop(&self->ready);
  if (next || self->next_thread == self->work->thread_count) return next;
  next = take_idle(self);
  if (next) return next;
  ons__cpu_fault_set(self->worker->fault, ONS_STATUS_OUT_OF_MEMORY,
                     "no memory for the stacks of %u threads, %d KiB each",
                     self->work->thread_count, ONS__CPU_STACK_BYTES / 1024);
  ons__cpu_block_leave(self);
}

void ons__cpu_block_suspend(ons__cpu_block* self, ons__cpu_wait_kind kind,
                            ons_cpu_site site) {
  ons__cpu_strand* strand = self->running;
  strand->kind = kind;
  strand->site = site;
  self->waiters[strand->thread] = strand;
  ons__cpu_warp_blocked(self, strand->thread);
  ons__cpu_strand* next = choose(self);
  if (!next) fail_divergent(self);
  if (next == strand) return; /* it was made ready at once */
  self->running = next;
  ons__cpu_fiber_switch(&strand->fiber, &next->fiber);
}

void ons__cpu_block_make_ready(ons__cpu_block* self, uint32_t thread) {
  ons__cpu_block_warp(self, thread)->blocked &= ~ons__cpu_block_lane_bit(self, thread);
  push(&self->ready, self->waiters[thread]);
  self->waiters[thread] = NULL;
}

/* ---- barriers --------------------------------------------------------------------- */

static void complete(ons__cpu_block* self, ons__cpu_wait_kind kind) {
  ons__cpu_barrier* barrier = &self->barriers[kind];
  if (kind == ONS__CPU_WAIT_GRID && !ons__cpu_grid_wait(self->worker->grid)) {
    ons__cpu_block_leave(self);
  }
  self->arrived_count = barrier->arrived_count;
  self->passed_count = barrier->passed_count;
  ++self->round;
  for (ons__cpu_strand *strand = barrier->waiting.first, *next; strand; strand = next) {
    next = strand->next;
    ons__cpu_block_make_ready(self, strand->thread);
  }
  *barrier = (ons__cpu_barrier){0};
}

/* A warp's threads come to a barrier together; those of others may have come to it in
 * another place. */
static void check_site(ons__cpu_block* self, ons_cpu_site site) {
  ons__cpu_warp* warp = ons__cpu_block_warp(self, self->running->thread);
  if (warp->round != self->round) {
    warp->round = self->round;
    warp->barrier_site = site;
  } else if (warp->barrier_site != site) {
    ons__cpu_block_fail(self,
                        "a barrier in divergent code: the thread is at that of line %lu, "
                        "others of its warp at that of line %lu",
                        (unsigned long)(uintptr_t)site,
                        (unsigned long)(uintptr_t)warp->barrier_site);
  }
}

static void arrive(ons__cpu_block* self, ons__cpu_wait_kind kind, bool passes,
                   ons_cpu_site site) {
  ons__cpu_barrier* barrier = &self->barriers[kind];
  check_site(self, site);
  barrier->passed_count += passes;
  if (++barrier->arrived_count == self->live_count) {
    complete(self, kind);
  } else {
    push(&barrier->waiting, self->running);
    ons__cpu_block_suspend(self, kind, site);
  }
}

uint32_t ons__cpu_block_wait(uint32_t predicate, uint32_t* out_arrived,
                             ons_cpu_site site) {
  ons__cpu_block* self = ons__cpu_block_current();
  arrive(self, ONS__CPU_WAIT_BLOCK, predicate != 0, site);
  *out_arrived = self->arrived_count;
  return self->passed_count;
}

void ons__cpu_block_wait_grid(ons_cpu_site site) {
  ons__cpu_worker* worker = ons__cpu_worker_current();
  assert(worker && worker->fault);
  if (!worker->grid) {
    ons__cpu_fault_set(worker->fault, ONS_STATUS_DEVICE,
                       "a barrier of the grid in line %lu, but the launch is not "
                       "cooperative",
                       (unsigned long)(uintptr_t)site);
    if (worker->block && worker->block->running) ons__cpu_block_leave(worker->block);
    ons__cpu_worker_leave(worker);
  }
  if (worker->block && worker->block->running) {
    arrive(worker->block, ONS__CPU_WAIT_GRID, false, site);
  } else if (!ons__cpu_grid_wait(worker->grid)) { /* a block of one thread */
    ons__cpu_worker_leave(worker);
  }
}

/* ---- threads ---------------------------------------------------------------------- */

static void end_thread(ons__cpu_block* self, uint32_t thread) {
  --self->live_count;
  ons__cpu_warp_ended(self, thread);
  for (int kind = 0; kind < ONS__CPU_BARRIERS && self->live_count > 0; ++kind) {
    if (self->barriers[kind].arrived_count == self->live_count) {
      complete(self, (ons__cpu_wait_kind)kind);
    }
  }
}

/* What a fiber does: threads that have not begun, while there are any. */
static void run_threads(void* strand_pointer) {
  ons__cpu_strand* strand = strand_pointer;
  ons__cpu_block* self = strand->block;
  for (;;) {
    const ons_cpu_block* work = self->work;
    while (self->next_thread < work->thread_count) {
      strand->thread = self->next_thread++;
      work->thread(work->closure, strand->thread);
      end_thread(self, strand->thread);
    }
    ons__cpu_strand* next = pop(&self->ready);
    if (!next && self->live_count > 0) fail_divergent(self);
    strand->next = self->idle;
    self->idle = strand;
    self->running = next;
    ons__cpu_fiber_switch(&strand->fiber, next ? &next->fiber : &self->host);
  }
}

/* ---- blocks ----------------------------------------------------------------------- */

static void begin_block(ons__cpu_block* self, const ons_cpu_block* work) {
  const uint32_t lanes = work->launch->warp_size;
  self->work = work;
  self->next_thread = 0;
  self->live_count = work->thread_count;
  self->warp_shift = lanes == 64 ? 6 : 5;
  self->round = 1;
  for (uint32_t first = 0; first < work->thread_count; first += lanes) {
    const uint32_t count = work->thread_count - first;
    const uint64_t all = lanes == 64 ? UINT64_MAX : UINT32_MAX;
    *ons__cpu_block_warp(self, first) =
        (ons__cpu_warp){.alive = count < lanes ? ((uint64_t)1 << count) - 1 : all};
  }
}

/* After a fault: the stacks as new. */
static void clear(ons__cpu_block* self) {
  self->is_over = false;
  self->idle = NULL;
  self->ready = (ons__cpu_queue){0};
  memset(self->barriers, 0, sizeof(self->barriers));
  memset(self->waiters, 0, sizeof(self->waiters));
  for (uint32_t i = 0; i < self->strand_count; ++i) {
    ons__cpu_fiber_destroy(&self->strands[i].fiber);
    start_fiber(self, i);
  }
}

void ons__cpu_block_run(const ons_cpu_block* work) {
  ons__cpu_worker* worker = ons__cpu_worker_current();
  assert(worker && work->thread_count <= ONS__CPU_BLOCK_THREADS);
  if (!worker->block) worker->block = ons__cpu_block_create(worker);
  ons__cpu_block* self = worker->block;
  ons__cpu_strand* first = self ? take_idle(self) : NULL;
  if (!first) {
    ons__cpu_fault_set(worker->fault, ONS_STATUS_OUT_OF_MEMORY,
                       "no memory for the stacks of %u threads", work->thread_count);
    ons__cpu_worker_leave(worker);
  }
  begin_block(self, work);
  self->running = first;
  ons__cpu_fiber_switch(&self->host, &first->fiber);
  self->running = NULL;
  if (!self->is_over) return;
  clear(self);
  ons__cpu_worker_leave(worker);
}

ons__cpu_block* ons__cpu_block_create(ons__cpu_worker* worker) {
  ons__cpu_block* self = mmap(NULL, sizeof(*self), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (self == MAP_FAILED) return NULL;
  self->worker = worker;
  ons__cpu_fiber_adopt(&self->host);
  ons__cpu_fault_watch_stacks();
  return self;
}

void ons__cpu_block_destroy(ons__cpu_block* self) {
  if (!self) return;
  assert(!self->running);
  for (uint32_t i = 0; i < self->strand_count; ++i) {
    ons__cpu_fiber* fiber = &self->strands[i].fiber;
    ons__cpu_fiber_destroy(fiber);
    munmap((char*)(uintptr_t)fiber->stack_low - page_bytes(),
           page_bytes() + ONS__CPU_STACK_BYTES);
  }
  munmap(self, sizeof(*self));
}
