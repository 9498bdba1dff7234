#include "runtime/event_pool.h"

#include <string.h>

#include "runtime/base/alloc.h"

void ons__event_pool_init(ons__event_pool* pool, ons__device* device,
                          const ons_allocator* allocator) {
  *pool = (ons__event_pool){.device = device, .allocator = allocator};
  ons__mutex_init(&pool->mutex);
}

void ons__event_pool_destroy(ons__event_pool* pool) {
  void* spare = atomic_load_explicit(&pool->spare, memory_order_acquire);
  if (spare) pool->device->backend->ops->event_destroy(pool->device, spare);
  for (size_t i = 0; i < pool->count; ++i) {
    pool->device->backend->ops->event_destroy(pool->device, pool->events[i]);
  }
  ons__free(pool->allocator, pool->events);
  ons__mutex_destroy(&pool->mutex);
}

ons_status ons__event_pool_take(ons__event_pool* pool, void** out_event,
                                ons_error* error) {
  *out_event = atomic_exchange_explicit(&pool->spare, NULL, memory_order_acquire);
  if (*out_event) return ONS_STATUS_OK;
  ons__mutex_lock(&pool->mutex);
  if (pool->count > 0) *out_event = pool->events[--pool->count];
  ons__mutex_unlock(&pool->mutex);
  return *out_event
             ? ONS_STATUS_OK
             : pool->device->backend->ops->event_create(pool->device, out_event, error);
}

static void grow(ons__event_pool* pool) {
  size_t capacity = pool->capacity ? 2 * pool->capacity : 16;
  void** events = ons__alloc_array(pool->allocator, capacity, sizeof(*events));
  if (!events) return;
  if (pool->count > 0) memcpy(events, pool->events, pool->count * sizeof(*events));
  ons__free(pool->allocator, pool->events);
  pool->events = events;
  pool->capacity = capacity;
}

/* An event that finds no room is destroyed. */
void ons__event_pool_give(ons__event_pool* pool, void* event) {
  event = atomic_exchange_explicit(&pool->spare, event, memory_order_acq_rel);
  if (!event) return;
  ons__mutex_lock(&pool->mutex);
  if (pool->count == pool->capacity) grow(pool);
  bool is_kept = pool->count < pool->capacity;
  if (is_kept) pool->events[pool->count++] = event;
  ons__mutex_unlock(&pool->mutex);
  if (!is_kept) pool->device->backend->ops->event_destroy(pool->device, event);
}
