/* Launches around the caller's events, and on streams of other contexts, on the stand-in
 * driver. */
#include "runtime/backends/cuda/cuda_types.h"
#include "tests/unit/launch_fixture.h"

/* What a caller of the driver uses, of the stand-in. */
CUresult cuEventCreate(CUevent* out_event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);

static void setup(void) { open_axpy(AXPY); }

static void prepare(void) {
  prepare_axpy();
  sim_set_current(sim_primary_context(0));
}

static void teardown(void) { close_axpy(); }

TestSuite(launch_events, .init = setup, .fini = teardown);
TestSuite(launch_context, .init = setup, .fini = teardown);

static void* new_event(void* context) {
  void* before = sim_get_current();
  sim_set_current(context);
  CUevent event = NULL;
  cr_assert(eq(int, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0));
  sim_set_current(before);
  sim_clear_records();
  return event;
}

/* The calls so far, less those that only look. */
static void expect_calls(const char* const* names, size_t name_count) {
  size_t found = 0;
  for (size_t i = 0; i < sim_record_count(); ++i) {
    const char* name = sim_record_at(i)->function;
    if (strcmp(name, "cuStreamIsCapturing") == 0 || strncmp(name, "cuCtx", 5) == 0 ||
        strncmp(name, "cuStreamGetCaptureInfo", 22) == 0 ||
        strcmp(name, "cuStreamGetCtx") == 0 ||
        strcmp(name, "cuThreadExchangeStreamCaptureMode") == 0 ||
        strcmp(name, "cuEventCreate") == 0) {
      continue;
    }
    cr_expect(found < name_count && strcmp(name, names[found]) == 0, "call %zu is %s",
              found, name);
    ++found;
  }
  cr_expect(eq(sz, found, name_count));
}
#define EXPECT_CALLS(...)                                   \
  do {                                                      \
    const char* const names_[] = {__VA_ARGS__};             \
    expect_calls(names_, sizeof(names_) / sizeof(*names_)); \
  } while (0)

static ons_launch_events one_of_each(void** wait, void** signal) {
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.wait = wait;
  events.wait_count = 1;
  events.signal = signal;
  events.signal_count = 1;
  return events;
}

Test(launch_events, waits_come_first_and_signals_last) {
  prepare();
  void* wait[] = {new_event(sim_primary_context(0)), new_event(sim_primary_context(0))};
  void* signal[] = {new_event(sim_primary_context(0))};
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.wait = wait;
  events.wait_count = 2;
  events.signal = signal;
  events.signal_count = 1;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  cr_assert(eq(int, launch_with(&launch, axpy_on(side, side)), 0), "%s", error.message);
  EXPECT_CALLS("cuStreamWaitEvent", "cuStreamWaitEvent", "cuLaunchKernelEx",
               "cuEventRecord");
  cr_expect(eq(ptr, sim_last("cuStreamWaitEvent")->handle, wait[1]));
  cr_expect(eq(ptr, sim_last("cuStreamWaitEvent")->stream, side));
  cr_expect(eq(ptr, sim_last("cuEventRecord")->handle, signal[0]));
  cr_expect(eq(ptr, sim_last("cuEventRecord")->stream, side));

  /* Around the joins too. */
  sim_clear_records();
  cr_assert(eq(int, launch_with(&launch, axpy_on(side, other)), 0), "%s", error.message);
  EXPECT_CALLS("cuStreamWaitEvent", "cuStreamWaitEvent", "cuEventRecord",
               "cuStreamWaitEvent", "cuLaunchKernelEx", "cuEventRecord",
               "cuStreamWaitEvent", "cuEventRecord");
  cr_expect(eq(ptr, sim_last("cuEventRecord")->handle, signal[0]));
}

/* The device holds the kernel back, and the signal with it. */
Test(launch_events, the_device_waits) {
  prepare();
  void* event = new_event(sim_primary_context(0));
  void* done = new_event(sim_primary_context(0));
  ons_launch launch = ONS_LAUNCH_INIT;
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.signal = &event;
  events.signal_count = 1;
  launch.events = &events;
  cr_assert(eq(int, launch_with(&launch, axpy_on(other, other)), 0));
  events = one_of_each(&event, &done);
  launch.retained = &retained;
  launch.retained_count = 1;
  cr_assert(eq(int, launch_with(&launch, axpy_on(side, side)), 0), "%s", error.message);
  sim_complete(side);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 1));
  sim_complete(other);
  sim_complete(side);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 0));
  cr_expect(eq(int, released, 1));
}

Test(launch_events, malformed_events_are_refused) {
  prepare();
  void* list[] = {new_event(sim_primary_context(0)), NULL};
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  axpy_on(side, side);
  events.wait = list;
  events.wait_count = 2;
  cr_expect(eq(int, launch_with(&launch, args), ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(strstr(error.message, "wait[1] is NULL") != NULL, "%s", error.message);
  events.wait_count = 1;
  events.signal_count = 1;
  cr_expect(eq(int, launch_with(&launch, args), ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(strstr(error.message, "signal[0] is NULL") != NULL, "%s", error.message);
  events.signal_count = 0;
  events.flags = 4;
  cr_expect(eq(int, launch_with(&launch, args), ONS_STATUS_INVALID_ARGUMENT));
  events.flags = 0;
  events.struct_size = 0;
  cr_expect(eq(int, launch_with(&launch, args), ONS_STATUS_INVALID_ARGUMENT));
  events.struct_size = sizeof(events);
  /* What the arguments are refused for comes before the events too. */
  ty.dtype.bits = 64;
  cr_expect(eq(int, launch_with(&launch, args), ONS_STATUS_ARGUMENT_TYPE));
  ty.dtype.bits = 32;
  cr_expect(eq(sz, calls_that_begin_with("cuStreamWait"), 0));
  cr_expect(eq(sz, calls_that_begin_with("cuLaunch"), 0));
  tx = vector(x, kDLCPU, 0);
  ty = vector(y, kDLCPU, 0);
  ons_status status = launch_with(&launch, axpy_on(side, side));
  if (status == ONS_STATUS_UNAVAILABLE) return; /* no host compiler */
  cr_expect(eq(int, status, ONS_STATUS_UNSUPPORTED), "%s", error.message);
}

Test(launch_events, a_launch_of_nothing_keeps_the_order) {
  prepare();
  void* wait = new_event(sim_primary_context(0));
  void* signal = new_event(sim_primary_context(0));
  const ons_launch_events events = one_of_each(&wait, &signal);
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  launch.grid[0] = 0;
  launch.retained = &retained;
  launch.retained_count = 1;
  cr_assert(eq(int, launch_with(&launch, axpy_on(side, side)), 0), "%s", error.message);
  EXPECT_CALLS("cuStreamWaitEvent", "cuEventRecord");
  cr_expect(eq(int, released, 1));
}

Test(launch_events, failures_say_what_was_done) {
  prepare();
  void* wait = new_event(sim_primary_context(0));
  void* signal[] = {new_event(sim_primary_context(0)), new_event(sim_primary_context(0))};
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.wait = &wait;
  events.wait_count = 1;
  events.signal = signal;
  events.signal_count = 2;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  axpy_on(side, side);
  sim_inject("cuStreamWaitEvent", 1, CUDA_ERROR_INVALID_HANDLE);
  cr_expect(eq(int, launch_with(&launch, args), ONS_STATUS_DEVICE));
  cr_expect(eq(u32, error.launched, 0));
  cr_expect(strstr(error.message, "was not launched") != NULL, "%s", error.message);
  cr_expect(eq(sz, sim_call_count("cuLaunchKernelEx"), 0));

  sim_inject("cuEventRecord", 1, CUDA_ERROR_INVALID_VALUE);
  cr_expect(eq(int, launch_with(&launch, args), ONS_STATUS_DEVICE));
  cr_expect(eq(u32, error.launched, 1));
  cr_expect(eq(str, (char*)error.native_call, "cuEventRecord"));
  cr_expect(strstr(error.message, "was launched, but event 0") != NULL, "%s",
            error.message);
  cr_expect(eq(sz, sim_call_count("cuLaunchKernelEx"), 1));
  cr_expect(eq(ptr, sim_last("cuEventRecord")->handle, signal[1]),
            "the other one is recorded all the same");
}

Test(launch_events, external_ones_are_nodes_of_a_capture) {
  prepare();
  void* event = new_event(sim_primary_context(0));
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.flags = ONS_EVENTS_WAIT_EXTERNAL | ONS_EVENTS_SIGNAL_EXTERNAL;
  events.wait = &event;
  events.wait_count = 1;
  events.signal = &event;
  events.signal_count = 1;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  /* The driver refuses the flags where nothing is captured. */
  cr_assert(eq(int, launch_with(&launch, axpy_on(side, side)), 0), "%s", error.message);
  EXPECT_CALLS("cuStreamWaitEvent", "cuLaunchKernelEx", "cuEventRecord");
  event = new_event(sim_primary_context(0));
  sim_capture_begin(side, SIM_CAPTURE_THREAD_LOCAL);
  cr_assert(eq(int, launch_with(&launch, axpy_on(side, side)), 0), "%s", error.message);
  EXPECT_CALLS("cuStreamWaitEvent", "cuLaunchKernelEx", "cuEventRecordWithFlags");
  cr_expect(eq(int, sim_capture_status(side), 1));
  void* captured = sim_capture_end(side);
  cr_expect(captured != NULL);
  sim_graph_destroy(captured);
}

/* An event of a capture takes the launch stream into it; the launch is then one of the
 * capture in every respect. */
Test(launch_events, one_of_a_capture_takes_the_launch_along) {
  prepare();
  void* fork = new_event(sim_primary_context(0));
  void* join = new_event(sim_primary_context(0));
  const ons_launch_events events = one_of_each(&fork, &join);
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  launch.retained = &retained;
  launch.retained_count = 1;
  sim_capture_begin(side, SIM_CAPTURE_GLOBAL);
  cr_assert(eq(int, cuEventRecord(fork, side), 0));
  /* Also joined to a stream that is in the capture already. */
  cr_assert(eq(int, launch_with(&launch, axpy_on(other, other)), 0), "%s", error.message);
  cr_assert(eq(int, launch_with(&launch, axpy_on(other, side)), 0), "%s", error.message);
  cr_expect(eq(int, sim_capture_status(other), 1));
  cr_assert(eq(int, cuStreamWaitEvent(side, join, 0), 0));
  void* captured = sim_capture_end(side);
  cr_assert(captured != NULL);
  cr_expect(eq(sz, sim_graph_kernel_count(captured), 2));
  ons_runtime_collect(runtime);
  cr_expect(eq(int, released, 0));
  sim_graph_destroy(captured);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, released, 2));
}

/* The driver does not tell beforehand: the error says what has happened. */
Test(launch_events, one_from_outside_breaks_a_capture) {
  prepare();
  void* event = new_event(sim_primary_context(0));
  cr_assert(eq(int, cuEventRecord(event, other), 0));
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.wait = &event;
  events.wait_count = 1;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  sim_capture_begin(side, SIM_CAPTURE_GLOBAL);
  cr_expect(eq(int, launch_with(&launch, axpy_on(side, side)), ONS_STATUS_DEVICE));
  cr_expect(eq(int, error.native_code, CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
  cr_expect(strstr(error.message, "external") != NULL, "%s", error.message);
  cr_expect(eq(ptr, sim_capture_end(side), NULL));
}

Test(launch_events, on_the_default_streams) {
  prepare();
  void* event = new_event(sim_primary_context(0));
  const ons_launch_events events = one_of_each(&event, &event);
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  sim_set_current(NULL);
  for (uintptr_t handle = 0; handle <= 2; ++handle) {
    sim_clear_records();
    void* stream = (void*)handle;
    cr_expect(eq(int, launch_with(&launch, axpy_on(stream, stream)), 0), "%s",
              error.message);
    EXPECT_CALLS("cuStreamWaitEvent", "cuLaunchKernelEx", "cuEventRecord");
    cr_expect(eq(ptr, sim_get_current(), NULL));
  }
  /* The legacy stream may not be touched beside a capture of a blocking one. */
  void* blocking = sim_stream_create(sim_primary_context(0), 0);
  sim_capture_begin(blocking, SIM_CAPTURE_GLOBAL);
  sim_clear_records();
  cr_expect(eq(int, launch_with(&launch, axpy_on(NULL, NULL)), ONS_STATUS_CAPTURE));
  cr_expect(eq(sz, calls_that_begin_with("cuStreamWait"), 0));
  cr_expect(eq(int, sim_capture_status(blocking), 1));
  cr_expect(sim_capture_end(blocking) != NULL);
}

/* Structs from before there were targets. */
Test(launch_events, older_structs_have_none) {
  prepare();
  ons_launch_events events = {0};
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.struct_size = offsetof(ons_launch, graph);
  launch.graph = (ons_launch_graph*)(void*)side;
  launch.events = &events;
  cr_assert(eq(int, launch_with(&launch, axpy_on(side, side)), 0), "%s", error.message);
  EXPECT_CALLS("cuLaunchKernelEx");
}

/* ---- streams of other contexts ---------------------------------------------------- */

/* A stream of a green context is one of a second context of the device. */
Test(launch_context, everything_works_on_a_foreign_stream) {
  prepare();
  void* second = sim_context_create(0);
  void* green = sim_stream_create(second, 1);
  void* event = new_event(second);
  const ons_launch_events events = one_of_each(&event, &event);
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  launch.retained = &retained;
  launch.retained_count = 1;
  sim_set_current(NULL);
  cr_assert(eq(int, launch_with(&launch, axpy_on(green, green)), 0), "%s", error.message);
  cr_expect(eq(ptr, sim_last("cuLaunchKernelEx")->stream_context, second));
  cr_expect(eq(ptr, sim_get_current(), NULL));
  sim_complete(green);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 0));
  cr_expect(eq(int, released, 1));
}

/* Joins between a stream of the primary context and one of another, both ways round, and
 * again with the pooled events that have been moved. */
Test(launch_context, foreign_streams_are_joined) {
  prepare();
  void* green = sim_stream_create(sim_context_create(0), 1);
  ons_launch plain = ONS_LAUNCH_INIT;
  for (int i = 0; i < 3; ++i) {
    cr_expect(eq(int, launch_with(&plain, axpy_on(green, side)), 0), "%s", error.message);
    cr_expect(eq(int, launch_with(&plain, axpy_on(side, green)), 0), "%s", error.message);
  }
  cr_expect(eq(sz, sim_get_live().events, 2), "one for each context");
}

Test(launch_context, a_foreign_stream_is_captured) {
  prepare();
  void* green = sim_stream_create(sim_context_create(0), 1);
  ons_launch launch = ONS_LAUNCH_INIT;
  /* One of the kernel's own context before, between and after. */
  cr_expect(eq(int, launch_with(&launch, axpy_on(side, side)), 0));
  sim_capture_begin(green, SIM_CAPTURE_GLOBAL);
  cr_expect(eq(int, launch_with(&launch, axpy_on(green, green)), 0), "%s", error.message);
  cr_expect(eq(int, launch_with(&launch, axpy_on(side, side)), 0));
  launch.retained = &retained;
  launch.retained_count = 1;
  cr_expect(eq(int, launch_with(&launch, axpy_on(green, green)), 0), "%s", error.message);
  launch.retained_count = 0;
  cr_expect(eq(int, launch_with(&launch, axpy_on(side, side)), 0));
  cr_expect(eq(int, sim_capture_status(green), 1));
  void* captured = sim_capture_end(green);
  cr_assert(captured != NULL);
  cr_expect(eq(sz, sim_graph_kernel_count(captured), 2));
  sim_graph_destroy(captured);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, released, 1));
}

Test(launch_context, an_event_of_another_context_cannot_be_signalled) {
  prepare();
  void* event = new_event(sim_context_create(0));
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.wait = &event; /* this is fine */
  events.wait_count = 1;
  events.signal = &event;
  events.signal_count = 1;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  cr_expect(eq(int, launch_with(&launch, axpy_on(side, side)), ONS_STATUS_DEVICE));
  cr_expect(eq(u32, error.launched, 1));
  cr_expect(strstr(error.message, "of the context of stream") != NULL, "%s",
            error.message);
}
