#include "runtime/backends/cpu/cpu_pool.h"

#include <assert.h>
#include <pthread.h>
#include <unistd.h>

#include "runtime/base/alloc.h"

/* A piece of work in the pool's list, on the stack of the thread that launched. */
typedef struct job {
  ons__cpu_work* work;
  uint32_t helper_count; /* pool threads in it; guarded by the pool's mutex */
  struct job* next;
} job;

struct ons__cpu_pool {
  const ons_allocator* allocator;
  pid_t pid;
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t work_came;
  pthread_cond_t helper_left;
  job* jobs; /* those with blocks that nobody took yet */
  bool stopping;
  uint32_t thread_count;
  pthread_t threads[];
};

/* A job whose blocks are all taken leaves the list; whoever sees it first takes it out.
 */
static void unlink_job(ons__cpu_pool* pool, job* self) {
  for (job** link = &pool->jobs; *link; link = &(*link)->next) {
    if (*link == self) {
      *link = self->next;
      return;
    }
  }
}

static void* work_until_stopped(void* pool_pointer) {
  ons__cpu_pool* pool = pool_pointer;
  pthread_mutex_lock(&pool->mutex);
  while (!pool->stopping) {
    job* current = pool->jobs;
    if (!current) {
      pthread_cond_wait(&pool->work_came, &pool->mutex);
      continue;
    }
    ++current->helper_count;
    pthread_mutex_unlock(&pool->mutex);
    ons__cpu_work_take(current->work);
    pthread_mutex_lock(&pool->mutex);
    unlink_job(pool, current);
    if (--current->helper_count == 0) pthread_cond_broadcast(&pool->helper_left);
  }
  pthread_mutex_unlock(&pool->mutex);
  return NULL;
}

static void start_threads(ons__cpu_pool* pool, uint32_t count) {
  while (pool->thread_count < count &&
         ons__cpu_thread_start(work_until_stopped, pool,
                               &pool->threads[pool->thread_count])) {
    ++pool->thread_count;
  }
}

ons__cpu_pool* ons__cpu_pool_create(const ons_allocator* allocator,
                                    uint32_t thread_count) {
  assert(thread_count > 0);
  ons__cpu_pool* pool = ons__alloc(
      allocator, sizeof(*pool) + (size_t)thread_count * sizeof(*pool->threads));
  if (!pool) return NULL;
  pool->allocator = allocator;
  pool->pid = getpid();
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->work_came, NULL);
  pthread_cond_init(&pool->helper_left, NULL);
  start_threads(pool, thread_count - 1);
  return pool;
}

bool ons__cpu_pool_is_ours(const ons__cpu_pool* pool) { return pool->pid == getpid(); }

void ons__cpu_pool_run(ons__cpu_pool* pool, ons__cpu_work* work) {
  const uint64_t first = atomic_load(&work->next_block);
  assert(work->blocks_at_once > 0 && first <= work->last_block);
  job self = {.work = work};
  const uint64_t pieces = (work->last_block - first) / work->blocks_at_once;

  pthread_mutex_lock(&pool->mutex);
  self.next = pool->jobs;
  pool->jobs = &self;
  if (pieces >= pool->thread_count) {
    pthread_cond_broadcast(&pool->work_came);
  } else {
    for (uint64_t i = 0; i < pieces; ++i) pthread_cond_signal(&pool->work_came);
  }
  pthread_mutex_unlock(&pool->mutex);

  ons__cpu_work_take_own(work);

  pthread_mutex_lock(&pool->mutex);
  unlink_job(pool, &self);
  while (self.helper_count > 0) {
    ons__cpu_work_wait(work, &pool->helper_left, &pool->mutex);
  }
  pthread_mutex_unlock(&pool->mutex);
}

void ons__cpu_pool_destroy(ons__cpu_pool* pool) {
  if (!pool) return;
  if (ons__cpu_pool_is_ours(pool)) {
    pthread_mutex_lock(&pool->mutex);
    assert(!pool->jobs);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work_came);
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < pool->thread_count; ++i)
      pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->helper_left);
    pthread_cond_destroy(&pool->work_came);
    pthread_mutex_destroy(&pool->mutex);
  }
  ons__free(pool->allocator, pool);
}
