#include "runtime/backends/cpu/cpu_grid.h"

#include <pthread.h>

#include "runtime/backends/cpu/cpu_work.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

/* One block. */
typedef struct member {
  ons__cpu_grid* grid;
  uint32_t block;
  pthread_t thread;
} member;

struct ons__cpu_grid {
  ons__cpu_piece piece;
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t changed;
  uint32_t live_count;    /* blocks that have not ended */
  uint32_t arrived_count; /* at the barrier */
  uint64_t round;         /* counts completed barriers */
  enum { HELD, RUNNING, CALLED_OFF } state;
};

/* With the mutex locked. */
static void complete_if_all_are_there(ons__cpu_grid* self) {
  if (self->arrived_count < self->live_count) return;
  self->arrived_count = 0;
  ++self->round;
  pthread_cond_broadcast(&self->changed);
}

bool ons__cpu_grid_wait(ons__cpu_grid* self) {
  pthread_mutex_lock(&self->mutex);
  const uint64_t round = self->round;
  ++self->arrived_count;
  complete_if_all_are_there(self);
  while (self->round == round && !ons__cpu_fault_is_set(self->piece.fault)) {
    pthread_cond_wait(&self->changed, &self->mutex);
  }
  const bool is_whole = self->round != round;
  pthread_mutex_unlock(&self->mutex);
  return is_whole;
}

static void end_block(ons__cpu_grid* self, bool is_whole) {
  pthread_mutex_lock(&self->mutex);
  --self->live_count;
  if (is_whole) {
    complete_if_all_are_there(self);
  } else {
    pthread_cond_broadcast(&self->changed); /* for whoever waits to see the fault */
  }
  pthread_mutex_unlock(&self->mutex);
}

static void* run_block(void* member_pointer) {
  const member* self = member_pointer;
  ons__cpu_grid* grid = self->grid;
  pthread_mutex_lock(&grid->mutex);
  while (grid->state == HELD) pthread_cond_wait(&grid->changed, &grid->mutex);
  const bool runs = grid->state == RUNNING;
  pthread_mutex_unlock(&grid->mutex);
  if (!runs) return NULL;
  end_block(grid, ons__cpu_worker_run(&grid->piece, self->block, self->block + 1));
  return NULL;
}

/* All at a time or none. */
static void release(ons__cpu_grid* self, bool are_complete) {
  pthread_mutex_lock(&self->mutex);
  self->state = are_complete ? RUNNING : CALLED_OFF;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

ons_status ons__cpu_grid_run(const ons__cpu_piece* piece, uint32_t block_count,
                             const ons_allocator* allocator, ons_error* error) {
  ons__cpu_grid self = {.piece = *piece, .live_count = block_count};
  member* members = ons__alloc_array(allocator, block_count, sizeof(*members));
  if (!members) return ons__error_no_memory(error);
  self.piece.grid = &self;
  pthread_mutex_init(&self.mutex, NULL);
  pthread_cond_init(&self.changed, NULL);
  uint32_t count = 0;
  while (count < block_count) {
    members[count] = (member){.grid = &self, .block = count};
    if (!ons__cpu_thread_start(run_block, &members[count], &members[count].thread)) break;
    ++count;
  }
  release(&self, count == block_count);
  for (uint32_t i = 0; i < count; ++i) pthread_join(members[i].thread, NULL);
  pthread_cond_destroy(&self.changed);
  pthread_mutex_destroy(&self.mutex);
  ons__free(allocator, members);
  if (count == block_count) return ONS_STATUS_OK;
  return ons__error_set(error, ONS_STATUS_UNAVAILABLE,
                        "a cooperative grid of %u blocks, but the system gives no more "
                        "than %u threads, and each block needs one: launch fewer",
                        block_count, count);
}
