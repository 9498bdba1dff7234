/* What must outlive launches: objects kept until the device is past them. One list per
 * device. */
#ifndef ONS_RUNTIME_RETIRE_H_
#define ONS_RUNTIME_RETIRE_H_

#include <onstream/launch.h>
#include <stdatomic.h>

#include "runtime/backend.h"
#include "runtime/base/steps.h"
#include "runtime/base/thread.h"
#include "runtime/event_pool.h"

typedef struct ons__retired {
  struct ons__retired* next;
  struct ons__retire_list* home;
  void* event; /* NULL: the device is past it already */
  size_t device_bytes;
  size_t count;
  ons_retained objects[];
} ons__retired;

/* Beyond one of these a launch looks at all that is held, and not at a few. */
enum { ONS__RETIRE_MANY = 1024, ONS__RETIRE_MANY_BYTES = 256 << 20 };

typedef struct ons__retire_list {
  ons__device* device;
  const ons_allocator* allocator;
  ons__event_pool* events; /* of eager streams; borrowed */
  /* Objects in the list and in `returned`; read without the lock. */
  atomic_size_t held_count;
  atomic_size_t held_bytes;
  atomic_size_t many; /* the limits; raised while so much is in use */
  atomic_size_t many_bytes;
  atomic_size_t graph_count;       /* what graphs hold and will hand back */
  _Atomic(ons__retired*) returned; /* by graphs that are gone; pushed from driver
                                      callbacks, which may wait for no lock */
  ons__mutex mutex;                /* guards what follows */
  ons__retired* first;             /* what was not done when asked goes to the end */
  ons__retired* last;
} ons__retire_list;

void ons__retire_init(ons__retire_list* list, ons__event_pool* events);

/* Releases what the device is past. False, with the list still usable, when something is
 * still held: its owner then leaks the list rather than wait or free too early. */
bool ons__retire_destroy(ons__retire_list* list);

/* Reserves all that ons__retire_commit needs, before the launch, so that nothing can fail
 * after it but the record. */
ons_status ons__retire_reserve(ons__retire_list* list, const ons_retained* objects,
                               size_t count, ons__retired** out_retired,
                               ons_error* error);
void ons__retire_cancel(ons__retire_list* list, ons__retired* retired);

/* Records the end of the launch on `stream`; the objects are released once the device is
 * past it. On failure they are kept for ever, because the launch may still use them. */
ons_status ons__retire_commit(ons__retire_list* list, ons__retired* retired, void* stream,
                              ons_error* error);

/* Under capture: the objects live as long as the graph. Reserve and commit as above. */
ons_status ons__retire_to_graph(ons__retire_list* list, ons__retired* retired,
                                void* graph, ons_error* error);

/* Releases what no launch will use. */
void ons__retire_now(const ons__retire_list* list, const ons_retained* objects,
                     size_t count);

/* For a moment at which nothing can be recorded: the objects are released by the next
 * collection. */
void ons__retire_defer(ons__retire_list* list, ons__retired* retired);

/* Releases what the device is past; returns what is still held. Never waits; harms no
 * capture, nor do the releases, which run in relaxed capture mode. */
size_t ons__retire_collect(ons__retire_list* list);

/* The same for a few at the front, as each call looks further; for all where there is
 * much. */
void ons__retire_collect_some(ons__retire_list* list);

static inline bool ons__retire_holds(const ons__retire_list* list) {
  return atomic_load_explicit(&list->held_count, memory_order_relaxed) != 0;
}

/* Cheap enough for every launch: something is looked at only when something is held. */
static inline void ons__retire_poll(ons__retire_list* list) {
  if (ons__retire_holds(list) && ONS__DOES(POLL)) ons__retire_collect_some(list);
}

#endif /* ONS_RUNTIME_RETIRE_H_ */
