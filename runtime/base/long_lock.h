/* A lock that is held while a compiler runs. In the child of a fork it is free where a
 * thread of the parent held it, so that what it guards has to be in order at all times.
 */
#ifndef ONS_RUNTIME_BASE_LONG_LOCK_H_
#define ONS_RUNTIME_BASE_LONG_LOCK_H_

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct ons__long_lock {
  pthread_mutex_t mutex; /* held for moments */
  pthread_cond_t released;
  pid_t creator;
  pid_t holder; /* the process whose thread holds it; 0: none */
} ons__long_lock;

void ons__long_lock_init(ons__long_lock* lock);
void ons__long_lock_destroy(ons__long_lock* lock);
void ons__long_lock_take(ons__long_lock* lock);
void ons__long_lock_release(ons__long_lock* lock);

#endif /* ONS_RUNTIME_BASE_LONG_LOCK_H_ */
