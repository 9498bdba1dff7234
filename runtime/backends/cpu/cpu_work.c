#include "runtime/backends/cpu/cpu_work.h"

#include <signal.h>

#include "runtime/base/alloc.h"
#include "runtime/base/interrupt.h"

enum { POLL_NS = 50 * 1000 * 1000 };

/* ---- taking blocks ---------------------------------------------------------------- */

static bool take_some(ons__cpu_work* work) {
  if (ons__cpu_fault_is_set(work->piece.fault)) return false;
  const uint64_t first = atomic_fetch_add_explicit(
      &work->next_block, work->blocks_at_once, memory_order_relaxed);
  if (first >= work->last_block) return false;
  const uint64_t left = work->last_block - first;
  const uint64_t count = left < work->blocks_at_once ? left : work->blocks_at_once;
  return ons__cpu_worker_run(&work->piece, first, first + count);
}

void ons__cpu_work_take(ons__cpu_work* work) {
  while (take_some(work)) continue;
}

static void poll(ons__cpu_work* work) {
  if (!work->interrupt || ons__cpu_fault_is_set(work->piece.fault)) return;
  const uint64_t now = ons__cpu_now_ns();
  if (!work->next_poll_ns) work->next_poll_ns = now + POLL_NS;
  if (now < work->next_poll_ns) return;
  work->next_poll_ns = now + POLL_NS;
  if (ons__interrupt_ask(work->interrupt, work->interrupt_user_data)) {
    ons__cpu_fault_set(work->piece.fault, ONS_STATUS_INTERRUPTED,
                       "interrupted: not all of the blocks have run");
  }
}

void ons__cpu_work_take_own(ons__cpu_work* work) {
  do poll(work);
  while (take_some(work));
}

void ons__cpu_work_wait(ons__cpu_work* work, pthread_cond_t* condition,
                        pthread_mutex_t* mutex) {
  if (!work->interrupt) {
    pthread_cond_wait(condition, mutex);
    return;
  }
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += POLL_NS;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_cond_timedwait(condition, mutex, &until);
  pthread_mutex_unlock(mutex); /* the hook is the host's code */
  poll(work);
  pthread_mutex_lock(mutex);
}

/* ---- executors -------------------------------------------------------------------- */

/* What the executor's tasks share with the launch, which does not wait for tasks that
 * begin when all blocks are taken. */
typedef struct shared {
  const ons_allocator* allocator;
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t left;
  ons__cpu_work* work;   /* NULL: the launch is over */
  uint32_t inside_count; /* tasks that take blocks */
  uint32_t reference_count;
} shared;

static void release(shared* self) {
  pthread_mutex_lock(&self->mutex);
  const bool is_last = --self->reference_count == 0;
  pthread_mutex_unlock(&self->mutex);
  if (!is_last) return;
  pthread_cond_destroy(&self->left);
  pthread_mutex_destroy(&self->mutex);
  ons__free(self->allocator, self);
}

static void run_task(void* shared_pointer) {
  shared* self = shared_pointer;
  pthread_mutex_lock(&self->mutex);
  ons__cpu_work* work = self->work;
  self->inside_count += work != NULL;
  pthread_mutex_unlock(&self->mutex);
  if (work) {
    ons__cpu_work_take(work);
    pthread_mutex_lock(&self->mutex);
    if (--self->inside_count == 0) pthread_cond_signal(&self->left);
    pthread_mutex_unlock(&self->mutex);
  }
  release(self);
}

void ons__cpu_work_execute(ons__cpu_work* work, const ons_executor* executor,
                           const ons_allocator* allocator) {
  const uint64_t blocks = work->last_block - atomic_load(&work->next_block);
  const uint64_t pieces = (blocks - 1) / work->blocks_at_once;
  uint32_t task_count = executor->thread_count ? executor->thread_count - 1 : 0;
  if (task_count > pieces) task_count = (uint32_t)pieces;
  shared* self = task_count ? ons__alloc(allocator, sizeof(*self)) : NULL;
  if (!self) {
    ons__cpu_work_take_own(work);
    return;
  }
  self->allocator = allocator;
  self->work = work;
  self->reference_count = 1 + task_count;
  pthread_mutex_init(&self->mutex, NULL);
  pthread_cond_init(&self->left, NULL);
  for (uint32_t i = 0; i < task_count; ++i) {
    executor->schedule(executor->user_data, run_task, self);
  }
  ons__cpu_work_take_own(work);
  pthread_mutex_lock(&self->mutex);
  self->work = NULL;
  while (self->inside_count > 0) ons__cpu_work_wait(work, &self->left, &self->mutex);
  pthread_mutex_unlock(&self->mutex);
  release(self);
}

/* ---- threads ---------------------------------------------------------------------- */

/* A fault is the business of the thread that made it: blocked, it would kill the process
 * past the host's handler. */
bool ons__cpu_thread_start(void* (*run)(void* argument), void* argument,
                           pthread_t* out_thread) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); ++i) {
    sigdelset(&blocked, faults[i]);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const bool is_started = pthread_create(out_thread, NULL, run, argument) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (is_started) pthread_setname_np(*out_thread, "onstream-cpu");
  return is_started;
}
