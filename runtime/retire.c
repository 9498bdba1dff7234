#include "runtime/retire.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

void ons__retire_init(ons__retire_list* list, ons__device* device,
                      const ons_allocator* allocator) {
  *list = (ons__retire_list){.device = device, .allocator = allocator};
  ons__mutex_init(&list->mutex);
}

static const ons__backend_ops* ops_of(const ons__retire_list* list) {
  return list->device->backend->ops;
}

static void release_objects(ons__retired* retired) {
  for (size_t i = 0; i < retired->count; ++i) {
    retired->objects[i].release(retired->objects[i].object);
  }
}

/* ---- events ------------------------------------------------------------------------------ */

static void* take_event(ons__retire_list* list, ons_error* error) {
  void* event = NULL;
  ons__mutex_lock(&list->mutex);
  if (list->free_event_count > 0) event = list->free_events[--list->free_event_count];
  ons__mutex_unlock(&list->mutex);
  if (!event && ops_of(list)->event_create(list->device, &event, error)) return NULL;
  return event;
}

/* With the lock held. An event that finds no room in the pool is destroyed. */
static void give_event(ons__retire_list* list, void* event) {
  if (list->free_event_count == list->free_event_capacity) {
    size_t capacity = list->free_event_capacity ? 2 * list->free_event_capacity : 16;
    void** events = ons__alloc_array(list->allocator, capacity, sizeof(*events));
    if (!events) {
      ops_of(list)->event_destroy(list->device, event);
      return;
    }
    if (list->free_event_count > 0) {
      memcpy(events, list->free_events, list->free_event_count * sizeof(*events));
    }
    ons__free(list->allocator, list->free_events);
    list->free_events = events;
    list->free_event_capacity = capacity;
  }
  list->free_events[list->free_event_count++] = event;
}

/* ---- retained objects -------------------------------------------------------------------- */

ons__retired* ons__retire_reserve(ons__retire_list* list, const ons_retained* objects,
                                  size_t count, ons_error* error) {
  ons__retired* retired =
      ons__alloc(list->allocator, sizeof(*retired) + count * sizeof(*objects));
  if (!retired) {
    ons__error_no_memory(error);
    return NULL;
  }
  retired->home = list;
  retired->count = count;
  memcpy(retired->objects, objects, count * sizeof(*objects));
  if (ops_of(list)->event_create) {
    retired->event = take_event(list, error);
    if (!retired->event) {
      ons__free(list->allocator, retired);
      return NULL;
    }
  }
  return retired;
}

void ons__retire_cancel(ons__retire_list* list, ons__retired* retired) {
  if (!retired) return;
  if (retired->event) {
    ons__mutex_lock(&list->mutex);
    give_event(list, retired->event);
    ons__mutex_unlock(&list->mutex);
  }
  ons__free(list->allocator, retired);
}

ons_status ons__retire_commit(ons__retire_list* list, ons__retired* retired, void* stream,
                              ons_error* error) {
  if (!retired->event) { /* a device without streams: the launch is over */
    release_objects(retired);
    ons__free(list->allocator, retired);
    return ONS_STATUS_OK;
  }
  ons_status status =
      ops_of(list)->event_record(list->device, retired->event, stream, error);
  if (status) return status;
  ons__mutex_lock(&list->mutex);
  if (list->last) {
    list->last->next = retired;
  } else {
    list->first = retired;
  }
  list->last = retired;
  atomic_fetch_add_explicit(&list->held_count, retired->count, memory_order_relaxed);
  ons__mutex_unlock(&list->mutex);
  return ONS_STATUS_OK;
}

/* Runs in a driver callback: hands the objects to the list as already passed (no event). */
static void graph_gone(void* object) {
  ons__retired* retired = object;
  ons__retire_list* list = retired->home;
  ons__mutex_lock(&list->mutex);
  retired->next = list->first;
  list->first = retired;
  if (!list->last) list->last = retired;
  atomic_fetch_add_explicit(&list->held_count, retired->count, memory_order_relaxed);
  ons__mutex_unlock(&list->mutex);
  atomic_fetch_sub_explicit(&list->graph_count, 1, memory_order_release);
}

ons_status ons__retire_to_graph(ons__retire_list* list, ons__retired* retired, void* graph,
                                ons_error* error) {
  if (retired->event) {
    ons__mutex_lock(&list->mutex);
    give_event(list, retired->event);
    ons__mutex_unlock(&list->mutex);
    retired->event = NULL;
  }
  atomic_fetch_add_explicit(&list->graph_count, 1, memory_order_relaxed);
  ons_status status =
      ops_of(list)->graph_retain(list->device, graph, retired, graph_gone, error);
  if (status) atomic_fetch_sub_explicit(&list->graph_count, 1, memory_order_relaxed);
  return status;
}

/* Unlinks what the device is past into a chain of its own. With the lock held. */
static ons__retired* unlink_passed(ons__retire_list* list) {
  ons__retired* passed = NULL;
  ons__retired** link = &list->first;
  list->last = NULL;
  while (*link) {
    ons__retired* retired = *link;
    if (!retired->event || ops_of(list)->event_passed(list->device, retired->event)) {
      *link = retired->next;
      if (retired->event) give_event(list, retired->event);
      atomic_fetch_sub_explicit(&list->held_count, retired->count, memory_order_relaxed);
      retired->next = passed;
      passed = retired;
    } else {
      list->last = retired;
      link = &retired->next;
    }
  }
  return passed;
}

size_t ons__retire_collect(ons__retire_list* list) {
  ons__mutex_lock(&list->mutex);
  ons__retired* passed = unlink_passed(list);
  ons__mutex_unlock(&list->mutex);
  /* Outside of the lock: a deleter may run anything, a launch included. */
  while (passed) {
    ons__retired* next = passed->next;
    release_objects(passed);
    ons__free(list->allocator, passed);
    passed = next;
  }
  return atomic_load_explicit(&list->held_count, memory_order_relaxed);
}

/* ---- the end ----------------------------------------------------------------------------- */

bool ons__retire_destroy(ons__retire_list* list) {
  size_t graph_count = atomic_load_explicit(&list->graph_count, memory_order_acquire);
  if (ons__retire_collect(list) > 0 || graph_count > 0) return false;
  for (size_t i = 0; i < list->free_event_count; ++i) {
    ops_of(list)->event_destroy(list->device, list->free_events[i]);
  }
  ons__free(list->allocator, list->free_events);
  ons__mutex_destroy(&list->mutex);
  return true;
}
