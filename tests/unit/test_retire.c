/* What outlives a launch: objects, until the device is past it or the graph is gone. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "runtime/backend.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/retire.h"

/* A device whose events pass when the test says so. */
typedef struct fake_event {
  bool recorded;
  bool passed;
} fake_event;

static int live_events, released, expect_bracket = 1;
static bool fail_create, fail_record;
static fake_event* last_recorded;
static struct {
  void* object;
  void (*release)(void*);
} graph;

static ons_status event_create(ons__device* device, void** out_event, ons_error* error) {
  (void)device;
  if (fail_create) return ons__error_set(error, ONS_STATUS_DEVICE, "no event");
  *out_event = ons__alloc(NULL, sizeof(fake_event));
  ++live_events;
  return ONS_STATUS_OK;
}

static void event_destroy(ons__device* device, void* event) {
  (void)device;
  --live_events;
  ons__free(NULL, event);
}

static ons_status event_record(ons__device* device, void* event, void* stream,
                               ons_error* error) {
  (void)device, (void)stream;
  if (fail_record) return ons__error_set(error, ONS_STATUS_DEVICE, "no record");
  last_recorded = event;
  *last_recorded = (fake_event){.recorded = true};
  return ONS_STATUS_OK;
}

static int inside, queries;

static void housekeeping_enter(ons__device* device, unsigned* out_token) {
  (void)device;
  *out_token = 7;
  ++inside;
}

static void housekeeping_leave(ons__device* device, unsigned token) {
  (void)device;
  cr_assert(eq(u32, token, 7));
  --inside;
}

static bool event_passed(ons__device* device, void* event) {
  (void)device;
  cr_assert(eq(int, inside, 1), "only where it harms no capture");
  ++queries;
  fake_event* fake = event;
  cr_assert(fake->recorded, "an event is only asked after it was recorded");
  return fake->passed;
}

static ons_status graph_retain(ons__device* device, void* target, void* object,
                               void (*release)(void*), ons_error* error) {
  (void)device, (void)error;
  cr_assert(eq(ptr, target, &graph));
  graph.object = object;
  graph.release = release;
  return ONS_STATUS_OK;
}

static const ons__backend_ops ops = {.event_create = event_create,
                                     .event_destroy = event_destroy,
                                     .event_record = event_record,
                                     .event_passed = event_passed,
                                     .housekeeping_enter = housekeeping_enter,
                                     .housekeeping_leave = housekeeping_leave,
                                     .graph_retain = graph_retain};
static ons__backend backend = {.ops = &ops};
static ons__device device = {.backend = &backend};
static ons__event_pool pool;
static ons__retire_list list;

static void release(void* object) {
  (void)object;
  cr_assert(eq(int, inside, expect_bracket), "a deleter may call the driver");
  ++released;
}

static const ons_retained two_objects[] = {{.release = release}, {.release = release}};

static fake_event* retire_objects(const ons_retained* objects, size_t count) {
  ons_error error = ONS_ERROR_INIT;
  ons__retired* retired = NULL;
  cr_assert(eq(int, ons__retire_reserve(&list, objects, count, &retired, &error), 0));
  cr_assert(eq(int, ons__retire_commit(&list, retired, NULL, &error), 0));
  return last_recorded;
}

static fake_event* retire_two(void) { return retire_objects(two_objects, 2); }

static fake_event* retire_bytes(size_t device_bytes) {
  const ons_retained object = {.release = release, .device_bytes = device_bytes};
  return retire_objects(&object, 1);
}

static void setup(void) {
  ons__event_pool_init(&pool, &device, NULL);
  ons__retire_init(&list, &pool);
}

TestSuite(retire, .init = setup);

Test(retire, released_when_the_device_is_past) {
  fake_event* first = retire_two();
  fake_event* second = retire_two();
  cr_expect(eq(sz, ons__retire_collect(&list), 4));
  cr_expect(eq(int, released, 0));
  second->passed = true; /* another stream may be faster */
  cr_expect(eq(sz, ons__retire_collect(&list), 2));
  cr_expect(eq(int, released, 2));
  first->passed = true;
  ons__retire_poll(&list);
  cr_expect(eq(int, released, 4));
  cr_assert(ons__retire_destroy(&list));
  ons__event_pool_destroy(&pool);
  cr_expect(eq(int, live_events, 0));
}

Test(retire, events_are_reused) {
  for (int i = 0; i < 100; ++i) {
    retire_two()->passed = true;
    ons__retire_poll(&list);
  }
  cr_expect(eq(int, released, 200));
  cr_expect(eq(int, live_events, 1));
  cr_assert(ons__retire_destroy(&list));
}

Test(retire, deferred_to_the_next_collection) {
  ons_error error = ONS_ERROR_INIT;
  ons__retired* retired = NULL;
  cr_assert(eq(int, ons__retire_reserve(&list, two_objects, 2, &retired, &error), 0));
  ons__retire_defer(&list, retired);
  cr_expect(eq(int, released, 0));
  cr_expect(eq(sz, ons__retire_collect(&list), 0));
  cr_expect(eq(int, released, 2));
  cr_expect(eq(int, queries, 0), "there is no event to ask");
  cr_assert(ons__retire_destroy(&list));
}

/* A launch looks at the oldest few only. */
Test(retire, polling_is_bounded) {
  fake_event* events[50];
  for (int i = 0; i < 50; ++i) events[i] = retire_two();
  queries = 0;
  ons__retire_poll(&list);
  cr_expect(eq(int, queries, 2));
  for (int i = 0; i < 50; ++i) events[i]->passed = true;
  for (int i = 0; i < 25; ++i) ons__retire_poll(&list);
  cr_expect(eq(int, released, 100));
  queries = 0;
  ons__retire_poll(&list);
  cr_expect(eq(int, queries, 0));
  cr_assert(ons__retire_destroy(&list));
}

/* However much is held, as soon as the device is past it a launch lets it all go. */
Test(retire, much_is_looked_at_in_one_go) {
  enum { MANY = 600 };
  for (int i = 0; i < MANY; ++i) retire_two()->passed = true;
  released = 0;
  ons__retire_poll(&list);
  cr_expect(eq(int, released, 2 * MANY));
  cr_assert(ons__retire_destroy(&list));
}

Test(retire, many_bytes_are_looked_at_in_one_go) {
  enum { COUNT = 10, PART = ONS__RETIRE_MANY_BYTES / COUNT + 1 };
  for (int i = 0; i < COUNT - 1; ++i) retire_bytes(PART)->passed = true;
  ons__retire_poll(&list);
  cr_expect(eq(int, released, 2), "so far it is not much");
  for (int i = 0; i < 3; ++i) retire_bytes(PART)->passed = true;
  ons__retire_poll(&list);
  cr_expect(eq(int, released, COUNT + 2));
  retire_bytes(PART)->passed = true;
  cr_expect(eq(sz, ons__retire_collect(&list), 0));
  cr_expect(eq(sz, atomic_load(&list.held_bytes), 0));
  cr_assert(ons__retire_destroy(&list));
}

/* What graphs hand back counts as well. */
Test(retire, bytes_of_a_graph_are_counted_once_it_is_gone) {
  const ons_retained objects[] = {{.release = release, .device_bytes = 60},
                                  {.release = release, .device_bytes = 40}};
  ons_error error = ONS_ERROR_INIT;
  ons__retired* retired = NULL;
  cr_assert(eq(int, ons__retire_reserve(&list, objects, 2, &retired, &error), 0));
  cr_assert(eq(int, ons__retire_to_graph(&list, retired, &graph, &error), 0));
  cr_expect(eq(sz, atomic_load(&list.held_bytes), 0));
  graph.release(graph.object);
  cr_expect(eq(sz, atomic_load(&list.held_bytes), 100));
  ons__retire_poll(&list);
  cr_expect(eq(sz, atomic_load(&list.held_bytes), 0));
  cr_assert(ons__retire_destroy(&list));
}

/* The device is not past it: launches do not ask about all of it again and again. */
Test(retire, much_that_is_in_use_is_not_asked_about_by_every_launch) {
  enum { MUCH = ONS__RETIRE_MANY };
  static fake_event* events[2 * MUCH];
  for (int i = 0; i < MUCH; ++i) events[i] = retire_two();
  queries = 0;
  ons__retire_poll(&list);
  cr_expect(eq(int, queries, MUCH));
  for (int i = MUCH; i < 2 * MUCH; ++i) {
    events[i] = retire_two();
    queries = 0;
    ons__retire_poll(&list);
    cr_expect(eq(int, queries, 2));
  }
  for (int i = 0; i < 2 * MUCH; ++i) events[i]->passed = true;
  retire_two()->passed = true;
  ons__retire_poll(&list);
  cr_expect(eq(int, released, 4 * MUCH + 2), "there is twice as much");
  for (int i = 0; i < MUCH / 2; ++i) retire_two();
  queries = 0;
  ons__retire_poll(&list);
  cr_expect(eq(int, queries, 2), "the limit is the first one again, and not less");
  retire_two();
  queries = 0;
  ons__retire_poll(&list);
  cr_expect(eq(int, queries, MUCH / 2 + 1), "nor more");
}

/* What waits for a slow stream does not hide what is done. */
Test(retire, polling_goes_on_behind_what_waits) {
  fake_event* slow[] = {retire_two(), retire_two(), retire_two()};
  retire_two()->passed = true;
  for (int i = 0; i < 2; ++i) ons__retire_poll(&list);
  cr_expect(eq(int, released, 2));
  for (int i = 0; i < 3; ++i) slow[i]->passed = true;
  cr_expect(eq(sz, ons__retire_collect(&list), 0));
  cr_assert(ons__retire_destroy(&list));
}

Test(retire, many_at_once) {
  fake_event* events[100];
  for (int i = 0; i < 100; ++i) events[i] = retire_two();
  for (int i = 0; i < 100; ++i) events[i]->passed = true;
  cr_expect(eq(sz, ons__retire_collect(&list), 0));
  cr_expect(eq(int, released, 200));
  cr_assert(ons__retire_destroy(&list));
  ons__event_pool_destroy(&pool);
  cr_expect(eq(int, live_events, 0));
}

Test(retire, nothing_is_freed_early_at_the_end) {
  fake_event* event = retire_two();
  cr_expect(not(ons__retire_destroy(&list)));
  cr_expect(eq(int, released, 0));
  event->passed = true;
  cr_expect(ons__retire_destroy(&list));
  cr_expect(eq(int, released, 2));
}

Test(retire, a_failed_reservation_takes_nothing) {
  ons_error error = ONS_ERROR_INIT;
  fail_create = true;
  ons__retired* retired = NULL;
  cr_expect(eq(int, ons__retire_reserve(&list, two_objects, 2, &retired, &error),
               ONS_STATUS_DEVICE));
  cr_expect(eq(int, error.code, ONS_STATUS_DEVICE));
  cr_expect(eq(ptr, retired, NULL));
  fail_create = false;
  cr_assert(eq(int, ons__retire_reserve(&list, two_objects, 2, &retired, &error), 0));
  ons__retire_cancel(&list, retired);
  cr_expect(eq(int, released, 0));
  cr_assert(ons__retire_destroy(&list));
  ons__event_pool_destroy(&pool);
  cr_expect(eq(int, live_events, 0));
}

Test(retire, a_failed_record_never_frees) {
  ons_error error = ONS_ERROR_INIT;
  ons__retired* retired = NULL;
  cr_assert(eq(int, ons__retire_reserve(&list, two_objects, 2, &retired, &error), 0));
  fail_record = true;
  cr_expect(eq(int, ons__retire_commit(&list, retired, NULL, &error), ONS_STATUS_DEVICE));
  cr_expect(eq(sz, ons__retire_collect(&list), 0));
  cr_expect(eq(int, released, 0));
}

Test(retire, under_capture_objects_live_as_long_as_the_graph) {
  ons_error error = ONS_ERROR_INIT;
  ons__retired* retired = NULL;
  cr_assert(eq(int, ons__retire_reserve(&list, two_objects, 2, &retired, &error), 0));
  cr_assert(eq(int, ons__retire_to_graph(&list, retired, &graph, &error), 0));
  cr_expect(eq(sz, ons__retire_collect(&list), 0));
  cr_expect(eq(int, released, 0));
  cr_expect(not(ons__retire_destroy(&list)), "the graph still points here");
  graph.release(graph.object);
  cr_expect(eq(int, released, 0), "not inside of the driver's callback");
  ons__retire_poll(&list);
  cr_expect(eq(int, released, 2));
  cr_assert(ons__retire_destroy(&list));
}
