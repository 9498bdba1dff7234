/* Locks, over POSIX threads. */
#ifndef ONS_RUNTIME_BASE_THREAD_H_
#define ONS_RUNTIME_BASE_THREAD_H_

#include <pthread.h>

typedef pthread_mutex_t ons__mutex;

static inline void ons__mutex_init(ons__mutex* mutex) { pthread_mutex_init(mutex, NULL); }
static inline void ons__mutex_lock(ons__mutex* mutex) { pthread_mutex_lock(mutex); }
static inline void ons__mutex_unlock(ons__mutex* mutex) { pthread_mutex_unlock(mutex); }
static inline void ons__mutex_destroy(ons__mutex* mutex) { pthread_mutex_destroy(mutex); }

#endif /* ONS_RUNTIME_BASE_THREAD_H_ */
