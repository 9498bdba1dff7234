/* Events of one device that are used over and over. Eager streams and streams under
 * capture have a pool each: an event of a capture can be neither queried nor waited for
 * outside of it. */
#ifndef ONS_RUNTIME_EVENT_POOL_H_
#define ONS_RUNTIME_EVENT_POOL_H_

#include <stdatomic.h>

#include "runtime/backend.h"
#include "runtime/base/thread.h"

typedef struct ons__event_pool {
  ons__device* device;
  const ons_allocator* allocator;
  _Atomic(void*)
      spare;        /* the one given back last, without the lock: most need no other */
  ons__mutex mutex; /* guards what follows */
  void** events;
  size_t count;
  size_t capacity;
} ons__event_pool;

void ons__event_pool_init(ons__event_pool* pool, ons__device* device,
                          const ons_allocator* allocator);

/* Destroys what was given back. */
void ons__event_pool_destroy(ons__event_pool* pool);

/* Creates an event only while there is none to be had. Legal in any capture. */
ons_status ons__event_pool_take(ons__event_pool* pool, void** out_event,
                                ons_error* error);

/* The event may still be waited for on the device: a wait knows what it waits for from
 * the moment it was enqueued. */
void ons__event_pool_give(ons__event_pool* pool, void* event);

#endif /* ONS_RUNTIME_EVENT_POOL_H_ */
