#include "runtime/retire.h"

#include <stdint.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/steps.h"

void ons__retire_init(ons__retire_list* list, ons__event_pool* events) {
  *list = (ons__retire_list){
      .device = events->device, .allocator = events->allocator, .events = events};
  atomic_init(&list->many, ONS__RETIRE_MANY);
  atomic_init(&list->many_bytes, ONS__RETIRE_MANY_BYTES);
  ons__mutex_init(&list->mutex);
}

static const ons__backend_ops* ops_of(const ons__retire_list* list) {
  return list->device->backend->ops;
}

/* Driver calls of our own and the deleters of others must not harm a capture that this
 * thread or another has under way. */
static unsigned housekeeping_enter(const ons__retire_list* list) {
  unsigned token = 0;
  if (ops_of(list)->housekeeping_enter) {
    ops_of(list)->housekeeping_enter(list->device, &token);
  }
  return token;
}

static void housekeeping_leave(const ons__retire_list* list, unsigned token) {
  if (ops_of(list)->housekeeping_leave) {
    ops_of(list)->housekeeping_leave(list->device, token);
  }
}

/* ---- retained objects ------------------------------------------------------------- */

static ons_status reserve(ons__retire_list* list, const ons_retained* objects,
                          size_t count, ons__retired** out_retired, ons_error* error) {
  *out_retired = NULL;
  ons__retired* retired =
      ons__alloc(list->allocator, sizeof(*retired) + count * sizeof(*objects));
  if (!retired) return ons__error_no_memory(error);
  retired->home = list;
  retired->count = count;
  memcpy(retired->objects, objects, count * sizeof(*objects));
  for (size_t i = 0; i < count; ++i) retired->device_bytes += objects[i].device_bytes;
  if (ops_of(list)->event_create) {
    ons_status status = ons__event_pool_take(list->events, &retired->event, error);
    if (status) {
      ons__free(list->allocator, retired);
      return status;
    }
  }
  *out_retired = retired;
  return ONS_STATUS_OK;
}

/* What is held may be what is missing. */
ons_status ons__retire_reserve(ons__retire_list* list, const ons_retained* objects,
                               size_t count, ons__retired** out_retired,
                               ons_error* error) {
  ons_status status = reserve(list, objects, count, out_retired, NULL);
  if (!status) return ONS_STATUS_OK;
  ons__retire_collect(list);
  return reserve(list, objects, count, out_retired, error);
}

static void drop_event(ons__retire_list* list, ons__retired* retired) {
  if (retired->event) ons__event_pool_give(list->events, retired->event);
  retired->event = NULL;
}

static void free_retired(ons__retire_list* list, ons__retired* retired) {
  drop_event(list, retired);
  ons__free(list->allocator, retired);
}

void ons__retire_cancel(ons__retire_list* list, ons__retired* retired) {
  if (retired) free_retired(list, retired);
}

static void release_all(const ons_retained* objects, size_t count) {
  for (size_t i = 0; i < count; ++i) objects[i].release(objects[i].object);
}

void ons__retire_now(const ons__retire_list* list, const ons_retained* objects,
                     size_t count) {
  if (count == 0) return;
  unsigned token = housekeeping_enter(list);
  release_all(objects, count);
  housekeeping_leave(list, token);
}

static void hold(ons__retire_list* list, const ons__retired* retired) {
  atomic_fetch_add_explicit(&list->held_count, retired->count, memory_order_relaxed);
  atomic_fetch_add_explicit(&list->held_bytes, retired->device_bytes,
                            memory_order_relaxed);
}

static void let_go(ons__retire_list* list, const ons__retired* retired) {
  atomic_fetch_sub_explicit(&list->held_count, retired->count, memory_order_relaxed);
  atomic_fetch_sub_explicit(&list->held_bytes, retired->device_bytes,
                            memory_order_relaxed);
}

/* At the end, so that what waits for a slow stream does not hide the rest. */
static void attach(ons__retire_list* list, ons__retired* first, ons__retired* last) {
  if (!first) return;
  ons__mutex_lock(&list->mutex);
  if (list->last) {
    list->last->next = first;
  } else {
    list->first = first;
  }
  list->last = last;
  ons__mutex_unlock(&list->mutex);
}

ons_status ons__retire_commit(ons__retire_list* list, ons__retired* retired, void* stream,
                              ons_error* error) {
  /* On a device without streams the launch is over. */
  if (!retired->event || !ONS__DOES(RETIRE)) {
    ons__retire_now(list, retired->objects, retired->count);
    free_retired(list, retired);
    return ONS_STATUS_OK;
  }
  ons_status status =
      ops_of(list)->event_record(list->device, retired->event, stream, error);
  if (status) return status;
  if (!ONS__DOES(RETIRE_EVENT)) ons__event_pool_give(list->events, retired->event);
  hold(list, retired);
  attach(list, retired, retired);
  return ONS_STATUS_OK;
}

/* Takes no lock. */
static void hand_back(ons__retire_list* list, ons__retired* retired) {
  hold(list, retired);
  ons__retired* head = atomic_load_explicit(&list->returned, memory_order_relaxed);
  do {
    retired->next = head;
  } while (!atomic_compare_exchange_weak_explicit(
      &list->returned, &head, retired, memory_order_release, memory_order_relaxed));
}

/* Runs in a driver callback. */
static void graph_gone(void* object) {
  ons__retired* retired = object;
  ons__retire_list* list = retired->home;
  hand_back(list, retired);
  atomic_fetch_sub_explicit(&list->graph_count, 1, memory_order_release);
}

ons_status ons__retire_to_graph(ons__retire_list* list, ons__retired* retired,
                                void* graph, ons_error* error) {
  drop_event(list, retired);
  if (!ONS__DOES(RETIRE_GRAPH)) {
    hand_back(list, retired);
    return ONS_STATUS_OK;
  }
  atomic_fetch_add_explicit(&list->graph_count, 1, memory_order_relaxed);
  ons_status status =
      ops_of(list)->graph_retain(list->device, graph, retired, graph_gone, error);
  if (status) atomic_fetch_sub_explicit(&list->graph_count, 1, memory_order_relaxed);
  return status;
}

void ons__retire_defer(ons__retire_list* list, ons__retired* retired) {
  drop_event(list, retired);
  hand_back(list, retired);
}

/* ---- collection ------------------------------------------------------------------- */

/* Takes up to `limit` of the oldest out of the list, so that they can be asked without
 * the lock. */
static ons__retired* detach(ons__retire_list* list, size_t limit) {
  ons__mutex_lock(&list->mutex);
  ons__retired* chain = list->first;
  ons__retired* end = chain;
  for (size_t i = 1; i < limit && end && end->next; ++i) end = end->next;
  if (end) {
    list->first = end->next;
    if (!list->first) list->last = NULL;
    end->next = NULL;
  }
  ons__mutex_unlock(&list->mutex);
  return chain;
}

static void release_chain(ons__retire_list* list, ons__retired* chain) {
  while (chain) {
    ons__retired* next = chain->next;
    release_all(chain->objects, chain->count);
    let_go(list, chain);
    free_retired(list, chain);
    chain = next;
  }
}

static void collect(ons__retire_list* list, size_t limit) {
  unsigned token = housekeeping_enter(list);
  ons__retired* passed =
      atomic_exchange_explicit(&list->returned, NULL, memory_order_acquire);
  ons__retired* waiting = NULL;
  ons__retired* last_waiting = NULL;
  ons__retired* retired = detach(list, limit);
  while (retired) {
    ons__retired* next = retired->next;
    if (!ONS__DOES(RETIRE_QUERY) ||
        ops_of(list)->event_passed(list->device, retired->event)) {
      retired->next = passed;
      passed = retired;
    } else {
      retired->next = NULL;
      if (last_waiting) last_waiting->next = retired;
      if (!waiting) waiting = retired;
      last_waiting = retired;
    }
    retired = next;
  }
  attach(list, waiting, last_waiting);
  release_chain(list, passed);
  housekeeping_leave(list, token);
}

static size_t load(const atomic_size_t* value) {
  return atomic_load_explicit(value, memory_order_relaxed);
}

size_t ons__retire_collect(ons__retire_list* list) {
  if (load(&list->held_count) != 0) collect(list, SIZE_MAX);
  return load(&list->held_count);
}

static void raise_limit(atomic_size_t* limit, size_t least, const atomic_size_t* held) {
  size_t twice = 2 * load(held);
  atomic_store_explicit(limit, twice > least ? twice : least, memory_order_relaxed);
}

/* A launch adds one entry: looking at two keeps up. Where much is held all the same, as
 * one slow stream makes the rest look slow, all of it is looked at; and when the device
 * is not past that, not again before there is twice as much, so that launches do not ask
 * about the same events over and over. */
void ons__retire_collect_some(ons__retire_list* list) {
  enum { FEW = 2 };
  bool is_much = load(&list->held_count) > load(&list->many) ||
                 load(&list->held_bytes) > load(&list->many_bytes);
  collect(list, is_much ? SIZE_MAX : FEW);
  if (!is_much) return;
  raise_limit(&list->many, ONS__RETIRE_MANY, &list->held_count);
  raise_limit(&list->many_bytes, ONS__RETIRE_MANY_BYTES, &list->held_bytes);
}

/* ---- the end ---------------------------------------------------------------------- */

bool ons__retire_destroy(ons__retire_list* list) {
  size_t graph_count = atomic_load_explicit(&list->graph_count, memory_order_acquire);
  if (ons__retire_collect(list) > 0 || graph_count > 0) return false;
  ons__mutex_destroy(&list->mutex);
  return true;
}
