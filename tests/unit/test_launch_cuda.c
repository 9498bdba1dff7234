/* The public API on the stand-in driver: which stream, in which order, what is kept how
 * long. The code is compiled by the real NVRTC; without one the tests are skipped. */
#include <pthread.h>

#include "tests/unit/launch_fixture.h"

static const char source[] = AXPY
    "__global__ void read(const float* x) {}\n"
    "__global__ void half_view(ons::view<const float, 2> x, ons::view<float, 1, int> y) "
    "{}\n";

static ons_kernel* reader;

static void setup(void) {
  open_axpy(source);
  cr_assert(eq(int, ons_module_kernel(module, "read", &reader, &error), 0));
}

static void prepare(void) {
  prepare_axpy();
  cr_assert(eq(int, ons_kernel_prepare(reader, (DLDevice){kDLCUDA, 0}, NULL, &error), 0));
  sim_clear_records();
}

static void teardown(void) {
  ons_kernel_release(reader);
  close_axpy();
}

TestSuite(launch_cuda, .init = setup, .fini = teardown);

static ons_status launch_axpy(void* stream_x, void* stream_y, const ons_launch* launch) {
  return launch_with(launch, axpy_on(stream_x, stream_y));
}

static const ons_launch plain = ONS_LAUNCH_INIT;

Test(launch_cuda, goes_to_the_tensors_stream_and_does_nothing_else) {
  prepare();
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.grid[0] = 3;
  launch.block[1] = 4;
  launch.shared_bytes = 512;
  cr_assert(eq(int, launch_axpy(side, side, &launch), 0), "%s", error.message);
  const sim_record* record = sim_last("cuLaunchKernelEx");
  cr_assert(record != NULL);
  cr_expect(eq(ptr, record->stream, side));
  cr_expect(eq(str, (char*)record->kernel, "_Z4axpyfPKfPfx"));
  cr_expect(eq(u32, record->grid[0], 3));
  cr_expect(eq(u32, record->block[1], 4));
  cr_expect(eq(u32, record->shared_bytes, 512));
  cr_assert(eq(u32, record->parameter_count, 4));
  float a = 2.5f;
  const float* pointer = x;
  int64_t n = 8;
  cr_expect(eq(int, memcmp(record->parameters, &a, 4), 0));
  cr_expect(
      eq(int, memcmp(record->parameters + record->parameter_offsets[1], &pointer, 8), 0));
  cr_expect(eq(int, memcmp(record->parameters + record->parameter_offsets[3], &n, 8), 0));
  /* Nothing else is asked of the driver. */
  cr_expect(eq(sz, sim_record_count(), 1));
}

Test(launch_cuda, null_and_legacy_are_one_stream) {
  prepare();
  sim_set_current(sim_primary_context(0));
  cr_expect(eq(int, launch_axpy(NULL, (void*)1, &plain), 0), "%s", error.message);
  cr_expect(eq(int, launch_axpy((void*)1, NULL, &plain), 0), "%s", error.message);
  cr_expect(eq(sz, sim_call_count("cuEventRecord"), 0));
  cr_expect(eq(int, launch_axpy(NULL, (void*)2, &plain), 0), "%s", error.message);
  cr_expect(eq(sz, sim_call_count("cuEventRecord"), 2));
}

Test(launch_cuda, the_current_context_is_left_as_it_was) {
  sim_set_current(NULL);
  prepare();
  cr_expect(eq(ptr, sim_get_current(), NULL));
  cr_expect(eq(int, launch_axpy(NULL, NULL, &plain), 0), "%s", error.message);
  cr_expect(eq(ptr, sim_get_current(), NULL));
  cr_expect(
      eq(ptr, sim_last("cuLaunchKernelEx")->current_context, sim_primary_context(0)));
  void* second = sim_context_create(0);
  sim_set_current(second);
  cr_expect(eq(int, launch_axpy((void*)2, (void*)2, &plain), 0), "%s", error.message);
  cr_expect(eq(ptr, sim_get_current(), second));
  cr_expect(
      eq(ptr, sim_last("cuLaunchKernelEx")->current_context, sim_primary_context(0)));
}

Test(launch_cuda, the_tensors_device_decides) {
  void* far = sim_stream_create(sim_primary_context(1), 1);
  sim_set_current(sim_primary_context(0));
  prepare();
  DLTensor fx = vector(x, kDLCUDA, 1), fy = vector(y, kDLCUDA, 1);
  axpy_args(on_stream(&fx, far), on_stream(&fy, far));
  cr_assert(eq(int, launch_with(&plain, args), 0), "%s", error.message);
  cr_expect(
      eq(ptr, sim_last("cuLaunchKernelEx")->stream_context, sim_primary_context(1)));
  cr_expect(eq(ptr, sim_get_current(), sim_primary_context(0)));
  args[2] = on_stream(&ty, side);
  cr_expect(eq(int, launch_with(&plain, args), ONS_STATUS_ARGUMENT_VALUE));
  cr_expect(strstr(error.message, "argument 3 ('out')") != NULL, "%s", error.message);
}

/* DLPack gives managed memory no device of its own. */
Test(launch_cuda, managed_memory_follows_the_other_tensors) {
  void* far = sim_stream_create(sim_primary_context(1), 1);
  sim_set_current(sim_primary_context(0));
  prepare();
  DLTensor managed = vector(x, kDLCUDAManaged, 0), fy = vector(y, kDLCUDA, 1);
  axpy_args(on_stream(&managed, far), on_stream(&fy, far));
  cr_assert(eq(int, launch_with(&plain, args), 0), "%s", error.message);
  cr_expect(
      eq(ptr, sim_last("cuLaunchKernelEx")->stream_context, sim_primary_context(1)));
}

Test(launch_cuda, streams_of_other_contexts_work) {
  prepare();
  void* foreign = sim_stream_create(sim_context_create(0), 1);
  cr_expect(eq(int, launch_axpy(foreign, foreign, &plain), 0), "%s", error.message);
}

/* ---- capture ---------------------------------------------------------------------- */

Test(launch_cuda, first_launch_in_a_capture) {
  for (int mode = SIM_CAPTURE_GLOBAL; mode <= SIM_CAPTURE_RELAXED; ++mode) {
    ons_module* fresh = NULL;
    ons_kernel* kernel = NULL;
    cr_assert(eq(int, ons_module_create(runtime, source, NULL, &fresh, &error), 0));
    cr_assert(eq(int, ons_module_kernel(fresh, "axpy", &kernel, &error), 0));
    sim_capture_begin(side, (sim_capture_mode)mode);
    axpy_args(on_stream(&tx, side), on_stream(&ty, side));
    ons_status status = ons_kernel_launch(kernel, &plain, args, 4, &error);
    if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
    cr_expect(eq(int, status, 0), "%s", error.message);
    cr_expect(eq(int, ons_kernel_launch(kernel, &plain, args, 4, &error), 0));
    /* The module goes, the code stays: the graph may be replayed at any time. */
    size_t libraries = sim_get_live().libraries;
    ons_kernel_release(kernel);
    ons_module_release(fresh);
    ons_runtime_collect(runtime);
    cr_expect(eq(sz, sim_get_live().libraries, libraries));
    cr_expect(eq(int, sim_capture_status(side), 1));
    void* graph = sim_capture_end(side);
    cr_assert(graph != NULL, "mode %d", mode);
    cr_expect(eq(sz, sim_graph_kernel_count(graph), 2));
    sim_graph_destroy(graph);
  }
}

Test(launch_cuda, what_cannot_be_captured_is_refused_and_the_capture_lives) {
  prepare();
  sim_capture_begin(side, SIM_CAPTURE_GLOBAL);
  /* Ordered by its producer, but not part of the capture. */
  ons_arg ordered = {
      .kind = ONS_ARG_TENSOR, .flags = ONS_ARG_ORDERED, .value.tensor = &tx};
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.flags = ONS_LAUNCH_STREAM;
  launch.stream = side;
  cr_expect(eq(int, ons_kernel_launch(reader, &launch, &ordered, 1, &error),
               ONS_STATUS_CAPTURE));
  ordered.kind = ONS_ARG_PENDING;
  ons_launch_plan plan = ONS_LAUNCH_PLAN_INIT;
  cr_expect(eq(int, ons_launch_resolve(reader, &launch, &ordered, 1, &plan, &error),
               ONS_STATUS_CAPTURE));
  /* A launch that the driver would reject kills a capture: it must not get that far. */
  launch.block[0] = 2048;
  cr_expect(eq(int, launch_axpy(side, side, &launch), ONS_STATUS_ARGUMENT_VALUE));
  launch.block[0] = 1;
  launch.shared_bytes = 1u << 30;
  cr_expect(eq(int, launch_axpy(side, side, &launch), ONS_STATUS_ARGUMENT_VALUE));
  cr_expect(eq(int, launch_axpy(side, other, &plain), ONS_STATUS_CAPTURE));
  cr_expect(eq(int, launch_axpy(other, side, &plain), ONS_STATUS_CAPTURE));
  cr_expect(eq(int, sim_capture_status(side), 1));
  cr_expect(sim_capture_end(side) != NULL);
}

Test(launch_cuda, the_legacy_stream_beside_a_capturing_blocking_stream) {
  prepare();
  sim_set_current(sim_primary_context(0));
  void* blocking = sim_stream_create(sim_primary_context(0), 0);
  sim_capture_begin(blocking, SIM_CAPTURE_GLOBAL);
  cr_expect(eq(int, launch_axpy(NULL, NULL, &plain), ONS_STATUS_CAPTURE));
  cr_expect(strstr(error.message, "legacy default stream") != NULL, "%s", error.message);
  cr_expect(eq(int, launch_axpy(side, side, &plain), 0), "%s", error.message);
  cr_expect(eq(int, sim_capture_status(blocking), 1));
  cr_expect(sim_capture_end(blocking) != NULL);
}

/* ---- what is retained ------------------------------------------------------------- */

static ons_status launch_retaining(const ons_launch* launch) {
  ons_launch keeping = *launch;
  keeping.retained = &retained;
  keeping.retained_count = 1;
  return launch_axpy(side, side, &keeping);
}

Test(launch_cuda, retained_until_the_device_is_past) {
  prepare();
  ons_launch nothing = ONS_LAUNCH_INIT;
  nothing.retained_count = 1;
  cr_expect(eq(int, launch_axpy(side, side, &nothing), ONS_STATUS_INVALID_ARGUMENT));
  /* What is held may be what is missing: it is tried twice. */
  sim_inject("cuEventCreate", 1, 2);
  sim_inject("cuEventCreate", 1, 2);
  cr_expect(eq(int, launch_retaining(&plain), ONS_STATUS_OUT_OF_MEMORY));
  cr_expect(eq(int, error.code, ONS_STATUS_OUT_OF_MEMORY));
  cr_expect(eq(sz, sim_call_count("cuLaunchKernelEx"), 0));
  cr_assert(eq(int, launch_retaining(&plain), 0), "%s", error.message);
  cr_assert(eq(int, launch_axpy(side, side, &plain), 0));
  cr_expect(eq(int, released, 0));
  cr_expect(eq(sz, ons_runtime_collect(runtime), 1));
  sim_complete(side);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 0));
  cr_expect(eq(int, released, 1));
}

static void* launch_elsewhere(void* unused) {
  (void)unused;
  cr_expect(eq(int, launch_axpy(side, side, &plain), 0), "%s", error.message);
  return NULL;
}

/* Polling must not harm the global capture of another thread. */
Test(launch_cuda, retired_beside_a_global_capture) {
  prepare();
  cr_assert(eq(int, launch_retaining(&plain), 0), "%s", error.message);
  sim_complete(side);
  sim_capture_begin(other, SIM_CAPTURE_GLOBAL);
  pthread_t thread;
  cr_assert(eq(int, pthread_create(&thread, NULL, launch_elsewhere, NULL), 0));
  pthread_join(thread, NULL);
  cr_expect(eq(int, released, 1));
  cr_expect(eq(int, sim_capture_status(other), 1));
  cr_expect(sim_capture_end(other) != NULL);
}

Test(launch_cuda, retained_by_the_graph) {
  prepare();
  sim_capture_begin(side, SIM_CAPTURE_THREAD_LOCAL);
  cr_assert(eq(int, launch_retaining(&plain), 0), "%s", error.message);
  void* graph = sim_capture_end(side);
  cr_assert(graph != NULL);
  sim_complete(side);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 0));
  cr_expect(eq(int, released, 0));
  sim_graph_destroy(graph);
  cr_expect(eq(int, released, 0));
  ons_runtime_collect(runtime);
  cr_expect(eq(int, released, 1));
}

Test(launch_cuda, a_failure_after_the_launch_says_so) {
  prepare();
  cr_assert(eq(int, launch_retaining(&plain), 0), "%s", error.message);
  sim_inject("cuEventRecord", 1, 1);
  cr_expect(eq(int, launch_retaining(&plain), ONS_STATUS_DEVICE));
  cr_expect(eq(u32, error.launched, 1));
  cr_expect(strstr(error.message, "was launched") != NULL, "%s", error.message);
  sim_inject("cuLaunchKernelEx", 1, 719);
  cr_expect(eq(int, launch_retaining(&plain), ONS_STATUS_DEVICE));
  cr_expect(eq(u32, error.launched, 0));
  cr_expect(eq(int, error.native_code, 719));
  cr_expect(eq(str, (char*)error.native_call, "cuLaunchKernelEx"));
  cr_expect(strstr(error.message, "kernel 'axpy'") != NULL, "%s", error.message);
  sim_complete(side);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, released, 1), "the one whose launch and record went through");
}

/* ---- joining for exporters -------------------------------------------------------- */

Test(launch_cuda, stream_wait) {
  prepare();
  DLDevice device = {kDLCUDA, 0};
  cr_expect(eq(int, ons_stream_wait(runtime, device, side, side, &error), 0));
  cr_expect(eq(sz, sim_record_count(), 0));
  cr_expect(eq(int, ons_stream_wait(runtime, device, side, other, &error), 0), "%s",
            error.message);
  cr_expect(eq(ptr, sim_last("cuEventRecord")->stream, other));
  cr_expect(eq(ptr, sim_last("cuStreamWaitEvent")->stream, side));
  sim_capture_begin(side, SIM_CAPTURE_GLOBAL);
  cr_expect(
      eq(int, ons_stream_wait(runtime, device, side, other, &error), ONS_STATUS_CAPTURE));
  cr_expect(sim_capture_end(side) != NULL);
}

Test(launch_cuda, views_are_passed_by_value) {
  prepare();
  ons_kernel* kernel = NULL;
  cr_assert(eq(int, ons_module_kernel(module, "half_view", &kernel, &error), 0));
  int64_t shape[] = {2, 3}, strides[] = {1, -4};
  DLTensor matrix = vector(x + 7, kDLCUDA, 0);
  matrix.ndim = 2;
  matrix.shape = shape;
  matrix.strides = strides;
  const ons_arg views[] = {on_stream(&matrix, side), on_stream(&ty, side)};
  cr_assert(eq(int, ons_kernel_launch(kernel, &plain, views, 2, &error), 0), "%s",
            error.message);
  const sim_record* record = sim_last("cuLaunchKernelEx");
  cr_expect(eq(u32, record->parameter_sizes[0], 40));
  cr_expect(eq(u32, record->parameter_sizes[1], 16));
  int64_t expected[] = {(int64_t)(uintptr_t)(x + 7), 2, 3, 1, -4};
  cr_expect(eq(int, memcmp(record->parameters, expected, sizeof(expected)), 0));
  int32_t narrow[] = {8, 1};
  cr_expect(eq(int,
               memcmp(record->parameters + record->parameter_offsets[1] + 8, narrow,
                      sizeof(narrow)),
               0));
  ons_kernel_release(kernel);
}
