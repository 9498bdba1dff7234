/* Switching between stacks. Built a second time with ucontext
 * (tests/unit/CMakeLists.txt).
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/backends/cpu/cpu_fiber.h"

enum { kStackBytes = 64 * 1024, kFibers = 100 };

typedef struct ring {
  ons__cpu_fiber host;
  ons__cpu_fiber fibers[kFibers];
  char* stacks[kFibers];
  int order[kFibers * 3];
  int count;
} ring;

typedef struct place {
  ring* all;
  int index;
} place;

/* Keeps values in registers of both kinds, and in memory, over its switches. */
static void run(void* pointer) {
  const place self = *(place*)pointer;
  ring* all = self.all;
  volatile double seed = self.index;
  double a = seed / 7, b = seed * 3, c = seed + 0.5;
  uint64_t u = (uint64_t)seed * 0x9e3779b97f4a7c15u, v = ~u;
  for (int round = 0; round < 3; ++round) {
    all->order[all->count++] = self.index;
    cr_assert(eq(u64, (uintptr_t)__builtin_frame_address(0) & 15, 0));
    ons__cpu_fiber* next =
        self.index + 1 < kFibers ? &all->fibers[self.index + 1] : &all->host;
    ons__cpu_fiber_switch(&all->fibers[self.index], next);
    cr_assert(eq(dbl, a, seed / 7));
    cr_assert(eq(dbl, b + c, seed * 4 + 0.5));
    cr_assert(eq(u64, u, ~v));
  }
  ons__cpu_fiber_switch(&all->fibers[self.index], &all->host);
  abort();
}

static void go_round(void) {
  ring* all = calloc(1, sizeof(*all));
  static _Thread_local place places[kFibers];
  ons__cpu_fiber_adopt(&all->host);
  for (int again = 0; again < 2; ++again) { /* also on stacks that were left */
    all->count = 0;
    for (int i = 0; i < kFibers; ++i) {
      if (!all->stacks[i]) all->stacks[i] = malloc(kStackBytes);
      places[i] = (place){all, i};
      ons__cpu_fiber_init(all->stacks[i], kStackBytes - (size_t)i * 8, run, &places[i],
                          &all->fibers[i]);
    }
    for (int round = 0; round < 3; ++round) {
      ons__cpu_fiber_switch(&all->host, &all->fibers[0]);
    }
    cr_assert(eq(int, all->count, kFibers * 3));
    for (int i = 0; i < kFibers * 3; ++i) cr_assert(eq(int, all->order[i], i % kFibers));
    for (int i = 0; i < kFibers; ++i) ons__cpu_fiber_destroy(&all->fibers[i]);
  }
  for (int i = 0; i < kFibers; ++i) free(all->stacks[i]);
  free(all);
}

Test(fiber, each_in_its_turn) { go_round(); }

static void* go(void* unused) {
  go_round();
  return unused;
}

Test(fiber, on_several_threads) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, go, NULL);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
}
