/* Launches over several streams, on the stand-in driver: which stream waits for which,
 * when, and what is refused before any is touched. Without NVRTC the tests are skipped.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <onstream/onstream.h>
#include <stdio.h>
#include <string.h>

#include "runtime/backends/cuda/cuda_types.h"
#include "tests/simgpu/sim_record.h"

/* The driver, as another user of it. */
SIM_API CUresult cuEventCreate(CUevent* out_event, unsigned int flags);
SIM_API CUresult cuEventRecord(CUevent event, CUstream stream);
SIM_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);

static const char source[] =
    "__global__ void add(const float* x, const float* y, float* out, int n) {}\n"
    "__global__ void read(const float* x) {}\n"
    "__global__ void write(float* x) {}\n";

enum { ADD_ARGS = 4 };

static ons_runtime* runtime;
static ons_module* module;
static ons_kernel *add, *reader, *writer;
static ons_error error = ONS_ERROR_INIT;
static float memory[3][8];
static int64_t count = 8;
static DLTensor tensors[3];
static void *first, *second, *third;
static size_t users_events;

static void create_runtime(uint32_t order) {
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.cuda_driver_path = ONS_TEST_SIMGPU_PATH;
  options.order = order;
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, &error), 0));
  cr_assert(eq(int, ons_module_create(runtime, source, NULL, &module, &error), 0));
  ons_kernel** const kernels[] = {&add, &reader, &writer};
  const char* const names[] = {"add", "read", "write"};
  for (int i = 0; i < 3; ++i) {
    cr_assert(eq(int, ons_module_kernel(module, names[i], kernels[i], &error), 0));
    ons_status status =
        ons_kernel_prepare(*kernels[i], (DLDevice){kDLCUDA, 0}, NULL, &error);
    if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
    cr_assert(eq(int, status, 0), "%s", error.message);
  }
}

static void release_runtime(void) {
  ons_kernel_release(add);
  ons_kernel_release(reader);
  ons_kernel_release(writer);
  ons_module_release(module);
  ons_runtime_collect(runtime);
  ons_runtime_release(runtime);
}

static void setup(void) {
  sim_set_device_count(2);
  void* context = sim_primary_context(0);
  sim_set_current(context);
  first = sim_stream_create(context, 1);
  second = sim_stream_create(context, 1);
  third = sim_stream_create(context, 1);
  for (int i = 0; i < 3; ++i) {
    tensors[i] = (DLTensor){.data = memory[i],
                            .device = {kDLCUDA, 0},
                            .ndim = 1,
                            .dtype = {kDLFloat, 32, 1},
                            .shape = &count};
  }
  create_runtime(0);
  sim_clear_records();
}

static void teardown(void) {
  release_runtime();
  cr_expect(eq(sz, sim_get_live().events, users_events));
}

TestSuite(order, .init = setup, .fini = teardown);

static ons_arg known(int index, void* stream) {
  return (ons_arg){.kind = ONS_ARG_TENSOR,
                   .flags = ONS_ARG_STREAM_KNOWN,
                   .value.tensor = &tensors[index],
                   .stream = stream};
}

static ons_arg unknown(int index, uint32_t flags) {
  return (ons_arg){
      .kind = ONS_ARG_TENSOR, .flags = flags, .value.tensor = &tensors[index]};
}

static ons_launch launch_on(void* stream, uint32_t order) {
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.flags = ONS_LAUNCH_STREAM;
  launch.stream = stream;
  launch.order = order;
  return launch;
}

static ons_status launch_add(void* x, void* y, void* out, const ons_launch* launch) {
  ons_arg args[ADD_ARGS] = {
      known(0, x), known(1, y), known(2, out), {.kind = ONS_ARG_INT, .value.i = 8}};
  error = (ons_error)ONS_ERROR_INIT;
  return ons_kernel_launch(add, launch, args, ADD_ARGS, &error);
}

/* What was enqueued, as "record first; wait second; launch second". */
static const char* enqueued(void) {
  static char text[512];
  text[0] = '\0';
  for (size_t i = 0; i < sim_record_count(); ++i) {
    const sim_record* record = sim_record_at(i);
    const char* verb = !strcmp(record->function, "cuEventRecord")       ? "record"
                       : !strcmp(record->function, "cuStreamWaitEvent") ? "wait"
                       : !strncmp(record->function, "cuLaunch", 8)      ? "launch"
                                                                        : NULL;
    if (!verb || record->result) continue;
    const char* name = record->stream == first    ? "first"
                       : record->stream == second ? "second"
                       : record->stream == third  ? "third"
                                                  : "legacy";
    size_t length = strlen(text);
    snprintf(text + length, sizeof(text) - length, "%s%s %s", length ? "; " : "", verb,
             name);
  }
  sim_clear_records();
  return text;
}

#define EXPECT_ENQUEUED(expected) cr_expect(eq(str, (char*)enqueued(), expected))
#define EXPECT_REFUSED(call, expected_status, part)                      \
  do {                                                                   \
    cr_expect(eq(int, call, expected_status), "%s", error.message);      \
    cr_expect(strstr(error.message, part) != NULL, "%s", error.message); \
    EXPECT_ENQUEUED("");                                                 \
  } while (0)

static const ons_launch plain = ONS_LAUNCH_INIT;

/* ---- joins ------------------------------------------------------------------------ */

Test(order, one_stream_needs_nothing) {
  cr_assert(eq(int, launch_add(first, first, first, &plain), 0), "%s", error.message);
  EXPECT_ENQUEUED("launch first");
}

Test(order, the_other_stream_is_waited_for_and_waits) {
  cr_assert(eq(int, launch_add(first, second, first, &plain), 0), "%s", error.message);
  EXPECT_ENQUEUED("record second; wait first; launch first; record first; wait second");
}

Test(order, each_other_stream_is_joined_once) {
  cr_assert(eq(int, launch_add(first, NULL, (void*)1, &plain), 0), "%s", error.message);
  EXPECT_ENQUEUED("record legacy; wait first; launch first; record first; wait legacy");
  cr_assert(eq(int, launch_add(first, second, second, &plain), 0), "%s", error.message);
  EXPECT_ENQUEUED("record second; wait first; launch first; record first; wait second");
  cr_assert(eq(int, launch_add(first, second, third, &plain), 0), "%s", error.message);
  EXPECT_ENQUEUED(
      "record second; wait first; record third; wait first; launch first; "
      "record first; wait second; wait third");
}

Test(order, an_explicit_stream_is_joined_with_the_arguments) {
  ons_launch launch = launch_on(third, ONS_ORDER_DEFAULT);
  cr_assert(eq(int, launch_add(first, first, first, &launch), 0), "%s", error.message);
  EXPECT_ENQUEUED("record first; wait third; launch third; record third; wait first");
}

Test(order, the_legacy_stream_is_joined_like_any_other) {
  cr_assert(eq(int, launch_add(NULL, first, (void*)1, &plain), 0), "%s", error.message);
  EXPECT_ENQUEUED("record first; wait legacy; launch legacy; record legacy; wait first");
}

Test(order, events_are_reused) {
  for (int i = 0; i < 100; ++i) {
    cr_assert(eq(int, launch_add(first, second, third, &plain), 0), "%s", error.message);
    void* const streams[] = {first, second, third, first, second, third};
    for (int j = 0; j < 6; ++j) sim_complete(streams[j]);
  }
  cr_expect(eq(sz, sim_call_count("cuEventCreate"), 1));
  cr_expect(eq(sz, sim_call_count("cuStreamSynchronize"), 0));
}

Test(order, events_are_reused_for_a_stream_of_another_context) {
  void* foreign = sim_stream_create(sim_context_create(0), 1);
  for (int i = 0; i < 10; ++i) {
    cr_assert(eq(int, launch_add(first, foreign, first, &plain), 0), "%s", error.message);
    for (int j = 0; j < 2; ++j) {
      sim_complete(first);
      sim_complete(foreign);
    }
  }
  cr_expect(eq(sz, sim_call_count("cuEventCreate"), 2), "one for each context");
  cr_expect(eq(ptr, sim_get_current(), sim_primary_context(0)));
}

Test(order, an_empty_launch_joins_nothing) {
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.grid[1] = 0;
  cr_assert(eq(int, launch_add(first, second, third, &launch), 0), "%s", error.message);
  EXPECT_ENQUEUED("");
}

Test(order, streams_join_by_themselves) {
  DLDevice device = {kDLCUDA, 0};
  cr_expect(eq(int, ons_stream_wait(runtime, device, first, second, &error), 0));
  EXPECT_ENQUEUED("record second; wait first");
  cr_expect(eq(int, ons_stream_wait(runtime, device, NULL, (void*)1, &error), 0));
  EXPECT_ENQUEUED("");
}

/* ---- devices ---------------------------------------------------------------------- */

Test(order, a_stream_of_another_device_is_refused) {
  void* far = sim_stream_create(sim_primary_context(1), 1);
  ons_launch launch = launch_on(far, ONS_ORDER_DEFAULT);
  EXPECT_REFUSED(launch_add(first, first, first, &launch), ONS_STATUS_ARGUMENT_VALUE,
                 "is of cuda:1, and the arrays are on cuda:0");
  launch.order = ONS_ORDER_TRUST;
  cr_expect(eq(int, launch_add(first, first, first, &launch), ONS_STATUS_ARGUMENT_VALUE));
  cr_expect(strstr(error.message, "is of cuda:1") != NULL, "%s", error.message);
  cr_expect(eq(ptr, sim_get_current(), sim_primary_context(0)));
}

/* Nothing but the stream itself says that it is of another device. */
static ons_status launch_far(const ons_launch* launch) {
  ons_arg arg = unknown(0, ONS_ARG_ORDERED);
  error = (ons_error)ONS_ERROR_INIT;
  return ons_kernel_launch(reader, launch, &arg, 1, &error);
}

Test(order, a_stream_of_another_device_without_other_streams) {
  ons_launch launch = launch_on(sim_stream_create(sim_primary_context(1), 1), 0);
  EXPECT_REFUSED(launch_far(&launch), ONS_STATUS_ARGUMENT_VALUE, "is of cuda:1");
  ons_launch_attributes attributes = ONS_LAUNCH_ATTRIBUTES_INIT;
  attributes.flags = ONS_ATTRIBUTES_PRIORITY;
  launch.attributes = &attributes;
  EXPECT_REFUSED(launch_far(&launch), ONS_STATUS_ARGUMENT_VALUE, "is of cuda:1");
  cr_expect(eq(ptr, sim_get_current(), sim_primary_context(0)));
}

Test(order, a_stream_of_another_device_waits_for_no_event) {
  ons_launch launch = launch_on(sim_stream_create(sim_primary_context(1), 1), 0);
  CUevent event = NULL;
  cr_assert(eq(int, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0));
  cr_assert(eq(int, cuEventRecord(event, first), 0));
  ++users_events;
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.wait = (void* const*)&event;
  events.wait_count = 1;
  launch.events = &events;
  sim_clear_records();
  EXPECT_REFUSED(launch_far(&launch), ONS_STATUS_ARGUMENT_VALUE, "is of cuda:1");
}

Test(order, no_producer_is_asked_for_a_stream_of_another_device) {
  ons_launch launch = launch_on(sim_stream_create(sim_primary_context(1), 1), 0);
  ons_arg arg = {.kind = ONS_ARG_PENDING, .value.tensor = &tensors[0]};
  ons_launch_plan plan = ONS_LAUNCH_PLAN_INIT;
  EXPECT_REFUSED((int)ons_launch_resolve(reader, &launch, &arg, 1, &plan, &error),
                 ONS_STATUS_ARGUMENT_VALUE, "is of cuda:1");
  launch.order = ONS_ORDER_TRUST;
  EXPECT_REFUSED((int)ons_launch_resolve(reader, &launch, &arg, 1, &plan, &error),
                 ONS_STATUS_ARGUMENT_VALUE, "is of cuda:1");
}

Test(order, no_producer_is_asked_for_blocks_that_are_refused) {
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.grid[0] = 0;
  launch.block[0] = 2000;
  ons_arg arg = {.kind = ONS_ARG_PENDING, .value.tensor = &tensors[0]};
  ons_launch_plan plan = ONS_LAUNCH_PLAN_INIT;
  EXPECT_REFUSED((int)ons_launch_resolve(reader, &launch, &arg, 1, &plan, &error),
                 ONS_STATUS_ARGUMENT_VALUE, "block.x is 2000");
}

static ons_arg managed(int index, int32_t device, void* stream) {
  tensors[index].device = (DLDevice){kDLCUDAManaged, device};
  return known(index, stream);
}

static ons_status launch_managed(int32_t device, void* stream, void* others,
                                 const ons_launch* launch) {
  ons_arg args[ADD_ARGS] = {managed(0, device, stream),
                            known(1, others),
                            known(2, others),
                            {.kind = ONS_ARG_INT, .value.i = 8}};
  error = (ons_error)ONS_ERROR_INIT;
  return ons_kernel_launch(add, launch, args, ADD_ARGS, &error);
}

Test(order, managed_memory_does_not_choose_the_stream) {
  void* far = sim_stream_create(sim_primary_context(1), 1);
  cr_expect(eq(int, launch_managed(1, far, first, &plain), 0), "%s", error.message);
  const sim_record* record = sim_last("cuLaunchKernelEx");
  cr_assert(record != NULL);
  cr_expect(eq(ptr, record->stream, first));
  cr_expect(eq(sz, sim_call_count("cuStreamWaitEvent"), 2), "the far stream is joined");
}

Test(order, managed_memory_on_another_devices_default_stream_is_refused) {
  for (uintptr_t handle = 0; handle <= 2; ++handle) {
    EXPECT_REFUSED(launch_managed(1, (void*)handle, NULL, &plain), ONS_STATUS_ORDER,
                   "argument 1 ('x') is managed memory on default stream");
    EXPECT_REFUSED(launch_managed(1, (void*)handle, first, &plain), ONS_STATUS_ORDER,
                   "of cuda:1, and the launch is on cuda:0");
  }
  ons_launch launch = launch_on(NULL, ONS_ORDER_TRUST);
  cr_expect(eq(int, launch_managed(1, NULL, NULL, &launch), 0), "%s", error.message);
  EXPECT_ENQUEUED("launch legacy");
  cr_expect(eq(int, launch_managed(0, NULL, NULL, &plain), 0), "%s", error.message);
}

/* ---- policies --------------------------------------------------------------------- */

Test(order, strict_refuses_and_touches_nothing) {
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.order = ONS_ORDER_STRICT;
  EXPECT_REFUSED(launch_add(first, first, second, &launch), ONS_STATUS_ORDER,
                 "argument 3 ('out') is on stream");
  launch = launch_on(second, ONS_ORDER_STRICT);
  EXPECT_REFUSED(launch_add(first, first, first, &launch), ONS_STATUS_ORDER,
                 "argument 1 ('x') is on stream");
  cr_expect(eq(int, launch_add(second, second, second, &launch), 0));
}

Test(order, trust_joins_nothing_but_outputs) {
  ons_launch launch = launch_on(third, ONS_ORDER_TRUST);
  cr_assert(eq(int, launch_add(first, second, first, &launch), 0), "%s", error.message);
  EXPECT_ENQUEUED("launch third");
  ons_arg args[ADD_ARGS] = {known(0, first),
                            known(1, second),
                            known(2, second),
                            {.kind = ONS_ARG_INT, .value.i = 8}};
  args[2].flags |= ONS_ARG_OUTPUT;
  cr_assert(eq(int, ons_kernel_launch(add, &launch, args, ADD_ARGS, &error), 0));
  EXPECT_ENQUEUED("record second; wait third; launch third; record third; wait second");
}

Test(order, trust_takes_tensors_on_unknown_streams) {
  ons_arg arg = unknown(0, 0);
  ons_launch launch = launch_on(second, ONS_ORDER_JOIN);
  EXPECT_REFUSED(ons_kernel_launch(writer, &launch, &arg, 1, &error), ONS_STATUS_ORDER,
                 "'x'");
  launch.order = ONS_ORDER_TRUST;
  cr_expect(eq(int, ons_kernel_launch(writer, &launch, &arg, 1, &error), 0), "%s",
            error.message);
  EXPECT_ENQUEUED("launch second");
  arg.flags = ONS_ARG_READ_ONLY; /* which is no matter of order */
  EXPECT_REFUSED(ons_kernel_launch(writer, &launch, &arg, 1, &error),
                 ONS_STATUS_ARGUMENT_VALUE, "read-only");
}

Test(order, the_runtimes_policy_is_the_default) {
  release_runtime();
  create_runtime(ONS_ORDER_STRICT);
  sim_clear_records();
  EXPECT_REFUSED(launch_add(first, second, first, &plain), ONS_STATUS_ORDER, "'y'");
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.order = ONS_ORDER_JOIN;
  cr_expect(eq(int, launch_add(first, second, first, &launch), 0), "%s", error.message);
}

Test(order, policies_that_there_are_not) {
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.order = ONS_ORDER_TRUST + 1;
  EXPECT_REFUSED(launch_add(first, first, first, &launch), ONS_STATUS_INVALID_ARGUMENT,
                 "ons_order");
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.order = ONS_ORDER_TRUST + 1;
  ons_runtime* none = NULL;
  cr_expect(
      eq(int, ons_runtime_create(&options, &none, &error), ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(eq(ptr, none, NULL));
}

/* ---- capture ---------------------------------------------------------------------- */

/* Begins a capture and pulls another stream into it as its user does: by an event. */
static void capture_two(void* origin, void* pulled) {
  CUevent event = NULL; /* of the test: it stays */
  cr_assert(eq(int, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0));
  ++users_events;
  sim_capture_begin(origin, SIM_CAPTURE_GLOBAL);
  cr_assert(eq(int, cuEventRecord(event, origin), 0));
  cr_assert(eq(int, cuStreamWaitEvent(pulled, event, 0), 0));
}

Test(order, streams_of_one_capture_are_joined_in_it) {
  capture_two(first, second);
  sim_clear_records();
  cr_assert(eq(int, launch_add(first, second, first, &plain), 0), "%s", error.message);
  EXPECT_ENQUEUED("record second; wait first; launch first; record first; wait second");
  DLDevice device = {kDLCUDA, 0};
  cr_expect(eq(int, ons_stream_wait(runtime, device, first, second, &error), 0), "%s",
            error.message);
  cr_expect(eq(int, sim_capture_status(first), 1));
  void* graph = sim_capture_end(first);
  cr_assert(graph != NULL);
  sim_graph_destroy(graph);
  /* Events of the capture are not used outside of it. */
  sim_clear_records();
  cr_expect(eq(int, launch_add(first, second, first, &plain), 0), "%s", error.message);
  cr_expect(eq(sz, sim_call_count("cuEventCreate"), 1));
}

Test(order, a_capture_is_not_joined_with_what_is_outside) {
  sim_capture_begin(first, SIM_CAPTURE_GLOBAL);
  EXPECT_REFUSED(launch_add(first, second, first, &plain), ONS_STATUS_CAPTURE,
                 "argument 2 ('y') is on stream");
  EXPECT_REFUSED(launch_add(second, first, second, &plain), ONS_STATUS_CAPTURE,
                 "which is being captured");
  EXPECT_REFUSED(
      (int)ons_stream_wait(runtime, (DLDevice){kDLCUDA, 0}, second, first, &error),
      ONS_STATUS_CAPTURE, "capture is untouched");
  cr_expect(eq(int, sim_capture_status(first), 1));
  cr_expect(sim_capture_end(first) != NULL);
}

Test(order, two_captures_are_not_joined) {
  sim_capture_begin(first, SIM_CAPTURE_RELAXED);
  sim_capture_begin(second, SIM_CAPTURE_RELAXED);
  EXPECT_REFUSED(launch_add(first, second, first, &plain), ONS_STATUS_CAPTURE, "'y'");
  cr_expect(eq(int, sim_capture_status(first), 1));
  cr_expect(eq(int, sim_capture_status(second), 1));
  cr_expect(sim_capture_end(first) != NULL);
  cr_expect(sim_capture_end(second) != NULL);
}

Test(order, the_legacy_stream_as_an_argument_beside_a_capturing_blocking_stream) {
  void* blocking = sim_stream_create(sim_primary_context(0), 0);
  sim_capture_begin(blocking, SIM_CAPTURE_GLOBAL);
  EXPECT_REFUSED(launch_add(first, NULL, first, &plain), ONS_STATUS_CAPTURE,
                 "legacy default stream");
  cr_expect(eq(int, sim_capture_status(blocking), 1));
  cr_expect(sim_capture_end(blocking) != NULL);
}

Test(order, trust_in_a_capture) {
  sim_capture_begin(first, SIM_CAPTURE_GLOBAL);
  ons_launch launch = launch_on(first, ONS_ORDER_TRUST);
  cr_expect(eq(int, launch_add(second, third, second, &launch), 0), "%s", error.message);
  EXPECT_ENQUEUED("launch first");
  ons_arg arg = unknown(0, 0);
  ons_launch_plan plan = ONS_LAUNCH_PLAN_INIT;
  cr_expect(eq(int, ons_launch_resolve(reader, &launch, &arg, 1, &plan, &error), 0));
  cr_expect(eq(int, ons_kernel_launch(reader, &launch, &arg, 1, &error), 0), "%s",
            error.message);
  cr_expect(sim_capture_end(first) != NULL);
}

/* ---- what fails ------------------------------------------------------------------- */

Test(order, a_join_that_fails_before_launches_nothing) {
  sim_inject("cuStreamWaitEvent", 1, 999);
  cr_expect(eq(int, launch_add(first, second, first, &plain), ONS_STATUS_DEVICE));
  cr_expect(strstr(error.message, "was not launched") != NULL, "%s", error.message);
  cr_expect(eq(u32, error.launched, 0));
  cr_expect(eq(sz, sim_call_count("cuLaunchKernelEx"), 0));
}

Test(order, a_join_that_fails_after_says_that_the_kernel_was_launched) {
  sim_inject("cuStreamWaitEvent", 2, 999);
  cr_expect(eq(int, launch_add(first, second, first, &plain), ONS_STATUS_DEVICE));
  cr_expect(strstr(error.message, "was launched") != NULL, "%s", error.message);
  cr_expect(eq(u32, error.launched, 1));
  cr_expect(eq(sz, sim_call_count("cuLaunchKernelEx"), 1));
}

Test(order, the_other_joins_are_made_although_one_fails) {
  sim_inject("cuStreamWaitEvent", 3, 999);
  cr_expect(eq(int, launch_add(first, second, third, &plain), ONS_STATUS_DEVICE));
  cr_expect(eq(u32, error.launched, 1));
  cr_expect(eq(sz, sim_call_count("cuStreamWaitEvent"), 4));
  const sim_record* last = sim_last("cuStreamWaitEvent");
  cr_expect(eq(ptr, last->stream, third));
  cr_expect(eq(int, last->result, 0));
}

static void create_event(void* object) {
  (void)object;
  CUevent event = NULL; /* it stays */
  cr_expect(eq(int, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0));
  ++users_events;
}

/* What is let go of may call the driver. */
Test(order, what_an_empty_launch_keeps_harms_no_capture) {
  ons_retained retained = {.release = create_event};
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.grid[0] = 0;
  launch.retained = &retained;
  launch.retained_count = 1;
  sim_capture_begin(first, SIM_CAPTURE_GLOBAL);
  cr_expect(eq(int, launch_add(second, second, second, &launch), 0), "%s", error.message);
  cr_expect(eq(sz, users_events, 1));
  cr_expect(eq(int, sim_capture_status(first), 1));
  cr_expect(sim_capture_end(first) != NULL);
}

static void count_release(void* object) { ++*(int*)object; }

Test(order, what_is_kept_is_kept_past_the_joins) {
  int released = 0;
  ons_retained retained = {.object = &released, .release = count_release};
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.retained = &retained;
  launch.retained_count = 1;
  cr_assert(eq(int, launch_add(first, second, first, &launch), 0), "%s", error.message);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, released, 0));
  sim_complete(second);
  sim_complete(first);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 0));
  cr_expect(eq(int, released, 1));
}
