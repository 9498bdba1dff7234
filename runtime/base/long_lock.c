#include "runtime/base/long_lock.h"

void ons__long_lock_init(ons__long_lock* lock) {
  pthread_mutex_init(&lock->mutex, NULL);
  pthread_cond_init(&lock->released, NULL);
  lock->creator = getpid();
  lock->holder = 0;
}

void ons__long_lock_destroy(ons__long_lock* lock) {
  /* A parent's threads that wait are still counted in its child's copy. */
  if (lock->creator != getpid()) return;
  pthread_cond_destroy(&lock->released);
  pthread_mutex_destroy(&lock->mutex);
}

void ons__long_lock_take(ons__long_lock* lock) {
  const pid_t self = getpid();
  pthread_mutex_lock(&lock->mutex);
  while (lock->holder == self) pthread_cond_wait(&lock->released, &lock->mutex);
  lock->holder = self;
  pthread_mutex_unlock(&lock->mutex);
}

void ons__long_lock_release(ons__long_lock* lock) {
  pthread_mutex_lock(&lock->mutex);
  lock->holder = 0;
  pthread_cond_signal(&lock->released);
  pthread_mutex_unlock(&lock->mutex);
}
