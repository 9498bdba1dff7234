#include "runtime/backends/cpu/cpu_worker.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>

#include "runtime/backends/cpu/cpu_block.h"
#include "runtime/backends/cpu/cpu_warp.h"

enum {
  RESCUE_BYTES = 32 * 1024,
  SIGNAL_BYTES = 32 * 1024,
  MEMORY_BYTES = 228 * 1024 + RESCUE_BYTES + SIGNAL_BYTES /* whole pages */
};

/* ---- one for each OS thread ------------------------------------------------------- */

/* Waits ask for it each time, so it is to be found without a call where that is possible;
 * elsewhere libraries that are loaded late may not. */
#if defined(__GLIBC__)
static _Thread_local ons__cpu_worker* current __attribute__((tls_model("initial-exec")));
#else
static _Thread_local ons__cpu_worker* current;
#endif
static pthread_key_t at_thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

ons__cpu_worker* ons__cpu_worker_current(void) { return current; }

/* The signal handler of a stack that is full needs another one. */
static void provide_signal_stack(ons__cpu_worker* self) {
  const stack_t ours = {.ss_sp = self->memory + MEMORY_BYTES - SIGNAL_BYTES,
                        .ss_size = SIGNAL_BYTES};
  stack_t old;
  if (sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE))
    sigaltstack(&ours, NULL);
}

static void take_signal_stack_back(const ons__cpu_worker* self) {
  const stack_t none = {.ss_flags = SS_DISABLE};
  stack_t old;
  if (sigaltstack(NULL, &old) != 0 || (char*)old.ss_sp < self->memory ||
      (char*)old.ss_sp >= self->memory + MEMORY_BYTES) {
    return;
  }
  sigaltstack(&none, NULL);
}

static void destroy(void* pointer) {
  ons__cpu_worker* self = pointer;
  ons__cpu_block_destroy(self->block);
  take_signal_stack_back(self);
  munmap(self->memory, MEMORY_BYTES);
  munmap(self, sizeof(*self));
  current = NULL;
}

static void make_key(void) {
  /* Without the key workers outlive their threads. */
  (void)pthread_key_create(&at_thread_end, destroy);
}

static void* map(size_t size_bytes) {
  void* memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

/* NULL when out of memory. Not of a runtime's allocator: it outlives every runtime. Kept
 * out of who calls setjmp. */
__attribute__((noinline)) static ons__cpu_worker* get(void) {
  if (current) return current;
  pthread_once(&once, make_key);
  ons__cpu_worker* self = map(sizeof(*self));
  char* memory = map(MEMORY_BYTES);
  if (!self || !memory || pthread_setspecific(at_thread_end, self) != 0) {
    if (self) munmap(self, sizeof(*self));
    if (memory) munmap(memory, MEMORY_BYTES);
    return NULL;
  }
  self->memory = memory;
  self->rescue_stack = memory + MEMORY_BYTES - SIGNAL_BYTES;
  provide_signal_stack(self);
  current = self;
  return self;
}

/* ---- faults ----------------------------------------------------------------------- */

_Noreturn void ons__cpu_worker_leave(ons__cpu_worker* self) { longjmp(self->out, 1); }

static void fail(int fault, const char* text, const char* file, uint32_t line,
                 const uint32_t block[3], const uint32_t thread[3]) {
  ons__cpu_worker* self = current;
  assert(self && self->fault);
  char place[96];
  ons__cpu_fault_place(block, thread, place, sizeof(place));
  if (!file) file = "";
  const char* colon = *file ? ": " : "";
  char where[300] = "";
  if (*file) snprintf(where, sizeof(where), "%s:%u", file, line);
  switch (fault) {
    case ONS_CPU_FAULT_ASSERT:
      ons__cpu_fault_set(self->fault, ONS_STATUS_DEVICE, "%s%s%s: assertion failed: %s",
                         where, colon, place, text);
      break;
    case ONS_CPU_FAULT_TRAP:
      ons__cpu_fault_set(self->fault, ONS_STATUS_DEVICE, "%s%s%s: the kernel trapped",
                         where, colon, place);
      break;
    default:
      ons__cpu_fault_set(self->fault, ONS_STATUS_DEVICE, "%s%s%s: %s", where, colon,
                         place, text);
  }
  if (self->block && self->block->running) ons__cpu_block_leave(self->block);
  ons__cpu_worker_leave(self);
}

static uint32_t is_cooperative(void) { return current && current->grid; }

/* ---- blocks ----------------------------------------------------------------------- */

static const ons_cpu_services services = {
    .run_block = ons__cpu_block_run,
    .wait_block = ons__cpu_block_wait,
    .wait_warp = ons__cpu_warp_wait,
    .active_mask = ons__cpu_warp_active_mask,
    .wait_grid = ons__cpu_block_wait_grid,
    .is_cooperative = is_cooperative,
    .fail = fail,
};

bool ons__cpu_worker_run(const ons__cpu_piece* piece, uint64_t first, uint64_t last) {
  ons__cpu_worker* self = get();
  if (!self) {
    ons__cpu_fault_set(piece->fault, ONS_STATUS_OUT_OF_MEMORY,
                       "no memory for the blocks of a thread");
    return false;
  }
  assert(!self->fault);
  ons_cpu_launch launch = *piece->launch;
  launch.shared = self->memory;
  launch.services = &services;
  self->grid = piece->grid;
  self->fault = piece->fault;
  const bool is_whole = _setjmp(self->out) == 0;
  if (is_whole) piece->run(&launch, piece->parameters, first, last);
  self->fault = NULL;
  return is_whole;
}
