/* XLA's calls on the stand-in driver: what is done at which stage, on which stream. */
#include "tests/simgpu/sim_gpu.h"
#include "tests/unit/xla_fixture.h"

#define COPY                                                          \
  "extern \"C\" __global__ void copy(const float* x, float* out) {\n" \
  "  out[threadIdx.x] = x[threadIdx.x];\n"                            \
  "}\n"                                                               \
  "extern \"C\" __global__ void nothing(int n) {}\n"

enum { N = 8 };

static ons_runtime* runtime;
static int64_t n = N;
static float *x, *y;
static void* stream;

static void open_driver(void) {
  sim_set_device_count(2);
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.cuda_driver_path = ONS_TEST_SIMGPU_PATH;
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, NULL), 0));
  cr_assert(eq(int, ons_xla_runtime_set(runtime, NULL), 0));
  cr_expect(eq(sz, sim_record_count(), 0), "nothing so far may touch the driver");
}

static void close_driver(void) { ons_runtime_release(runtime); }

/* As XLA has it when it compiles: each of its devices has a context. */
static void use_device(int device) {
  stream = sim_stream_create(sim_primary_context(device), 1);
  x = sim_device_alloc(device, N * sizeof(float));
  y = sim_device_alloc(device, N * sizeof(float));
}

static xla_call* new_copy(void) {
  xla_call* call = xla_call_create(COPY, "copy", 1, N);
  XLA_NUMBERS(call, "plan", ONS_XLA_OPERAND, 0, ONS_XLA_RESULT, 0);
  xla_operand(call, ONS__XLA_F32, x, 1, &n);
  xla_result(call, ONS__XLA_F32, y, 1, &n);
  call->context.has_stream = true;
  call->context.stream = stream;
  return call;
}

static ons__xla_error* instantiate(xla_call* call) {
  return xla_run(call, ons_xla_cuda_instantiate, ONS__XLA_INSTANTIATE);
}

static ons__xla_error* initialize(xla_call* call) {
  return xla_run(call, ons_xla_cuda_initialize, ONS__XLA_INITIALIZE);
}

static ons__xla_error* execute(xla_call* call) {
  return xla_run(call, ons_xla_cuda_execute, ONS__XLA_EXECUTE);
}

/* Skips the test where there is no NVRTC. */
static void prepare(xla_call* call) {
  ons__xla_error* error = instantiate(call);
  if (error && strstr(error->message, "NVRTC")) cr_skip_test("%s", error->message);
  xla_expect_ok(error);
  xla_expect_ok(initialize(call));
  sim_clear_records();
}

static size_t load_count(void) {
  return sim_call_count("cuLibraryLoadData") + sim_call_count("cuModuleLoadData");
}

static size_t launch_count(void) {
  return sim_call_count("cuLaunchKernelEx") + sim_call_count("cuLaunchKernel");
}

static void expect_one_launch(const void* on) {
  cr_assert(eq(sz, launch_count(), 1));
  cr_expect(eq(ptr, sim_last("cuLaunchKernelEx")->stream, (void*)on));
}

TestSuite(xla_gpu, .init = open_driver, .fini = close_driver);

/* ---- stages ----------------------------------------------------------------------- */

Test(xla_gpu, loads_at_initialize_and_only_launches_after) {
  use_device(0);
  xla_call* call = new_copy();
  ons__xla_error* error = instantiate(call);
  if (error) cr_skip_test("%s", error->message);
  cr_expect(eq(sz, load_count(), 0), "not before the device is known");
  xla_expect_ok(initialize(call));
  cr_expect(eq(sz, load_count(), 1));
  cr_expect(eq(sz, launch_count(), 0));
  sim_clear_records();
  xla_expect_ok(initialize(call));
  xla_expect_ok(execute(call));
  expect_one_launch(stream);
  /* Both stages ask for the stream's context. */
  cr_expect(eq(sz, sim_call_count("cuStreamGetCtx"), 2));
  cr_expect(eq(sz, sim_record_count(), 3));
  cr_expect(eq(int, atomic_load(&xla_made_errors), 0));
  xla_finish(call);
}

Test(xla_gpu, compiles_at_instantiate_for_the_devices_in_use) {
  xla_call* call = new_copy();
  xla_text(call, "source", "extern \"C\" __global__ void copy() { undeclared(); }\n");
  xla_expect_ok(instantiate(call));
  cr_expect(eq(sz, sim_call_count("cuDevicePrimaryCtxRetain"), 0), "no context is made");
  use_device(1);
  ons__xla_error* error = instantiate(call);
  cr_assert(ne(ptr, error, NULL));
  if (strstr(error->message, "NVRTC")) cr_skip_test("%s", error->message);
  xla_expect_error(error, INVALID_ARGUMENT, "undeclared");
  cr_expect(eq(sz, sim_call_count("cuDevicePrimaryCtxRetain"), 1));
  xla_finish(call);
}

Test(xla_gpu, the_log_reaches_the_error_of_initialize_too) {
  xla_call* call = new_copy();
  xla_text(call, "source", "extern \"C\" __global__ void copy() {\n  undeclared();\n}\n");
  xla_expect_ok(instantiate(call));
  call->context.stream = sim_stream_create(sim_primary_context(0), 1);
  ons__xla_error* error = initialize(call);
  cr_assert(ne(ptr, error, NULL));
  if (strstr(error->message, "NVRTC")) cr_skip_test("%s", error->message);
  xla_expect_error(error, INVALID_ARGUMENT, "kernel.cu(2)");
  xla_finish(call);
}

Test(xla_gpu, runs_without_the_earlier_stages) {
  use_device(0);
  xla_call* call = new_copy();
  ons__xla_error* error = execute(call);
  if (error) cr_skip_test("%s", error->message);
  expect_one_launch(stream);
  xla_finish(call);
}

/* ---- streams and devices ---------------------------------------------------------- */

Test(xla_gpu, the_stream_decides_the_device) {
  use_device(0);
  xla_call* call = new_copy();
  prepare(call);
  use_device(1);
  call->context.stream = stream;
  xla_expect_ok(initialize(call));
  cr_expect(eq(sz, load_count(), 1), "once on each device");
  sim_clear_records();
  void* const before = sim_get_current();
  xla_expect_ok(execute(call));
  expect_one_launch(stream);
  cr_expect(
      eq(ptr, sim_last("cuLaunchKernelEx")->stream_context, sim_primary_context(1)));
  cr_expect(eq(ptr, sim_get_current(), before));
  xla_finish(call);
}

Test(xla_gpu, a_kernel_without_buffers_goes_to_the_stream_as_well) {
  static const struct {
    uint32_t kind, size_bytes;
    int64_t value;
  } scalar = {ONS_ARG_INT, 8, 5};
  use_device(1);
  xla_call* call = xla_call_create(COPY, "nothing", 1, 1);
  XLA_NUMBERS(call, "plan", ONS_XLA_SCALAR, 0);
  xla_bytes(call, "scalars", &scalar, sizeof(scalar));
  call->context.has_stream = true;
  call->context.stream = stream;
  prepare(call);
  xla_expect_ok(execute(call));
  expect_one_launch(stream);
  xla_finish(call);
}

Test(xla_gpu, a_context_of_its_own_is_found) {
  use_device(0);
  xla_call* call = new_copy();
  prepare(call);
  void* context = sim_context_create(0);
  call->context.stream = sim_stream_create(context, 1);
  xla_expect_ok(initialize(call));
  xla_expect_ok(execute(call));
  cr_expect(eq(ptr, sim_last("cuLaunchKernelEx")->stream_context, context));
  xla_finish(call);
}

Test(xla_gpu, an_error_of_xlas_is_handed_on) {
  use_device(0);
  xla_call* call = new_copy();
  prepare(call);
  call->context.has_stream = false;
  xla_expect_error(initialize(call), UNIMPLEMENTED, "GPU stream is not available");
  xla_expect_error(execute(call), UNIMPLEMENTED, "GPU stream is not available");
  cr_expect(eq(int, atomic_load(&xla_made_errors), 2), "and no other is made");
  xla_finish(call);
}

Test(xla_gpu, the_drivers_errors_are_told) {
  use_device(0);
  xla_call* call = new_copy();
  prepare(call);
  sim_inject("cuLaunchKernelEx", 1, 1);
  xla_expect_error(execute(call), INTERNAL, "kernel 'copy'");
  sim_inject("cuStreamGetCtx", 1, 1);
  xla_expect_error(execute(call), INTERNAL, "cuStreamGetCtx");
  xla_finish(call);
}

/* ---- capture ---------------------------------------------------------------------- */

Test(xla_gpu, launches_are_captured) {
  use_device(0);
  xla_call* call = new_copy();
  prepare(call);
  sim_capture_begin(stream, SIM_CAPTURE_THREAD_LOCAL);
  xla_expect_ok(execute(call));
  xla_expect_ok(execute(call));
  void* graph = sim_capture_end(stream);
  cr_assert(ne(ptr, graph, NULL), "the capture was broken");
  cr_expect(eq(sz, sim_graph_kernel_count(graph), 2));
  sim_graph_destroy(graph);
  xla_finish(call);
}

Test(xla_gpu, not_even_a_late_load_breaks_a_capture) {
  use_device(0);
  xla_call* call = new_copy();
  sim_capture_begin(stream, SIM_CAPTURE_GLOBAL);
  ons__xla_error* error = execute(call);
  if (error) cr_skip_test("%s", error->message);
  void* graph = sim_capture_end(stream);
  cr_assert(ne(ptr, graph, NULL), "the capture was broken");
  cr_expect(eq(sz, sim_graph_kernel_count(graph), 1));
  sim_graph_destroy(graph);
  xla_finish(call);
}

/* ---- the work itself -------------------------------------------------------------- */

static void run_copy(void* user_data, const sim_kernel_call* call) {
  (void)user_data;
  float *from, *to;
  memcpy(&from, call->parameters + call->parameter_offsets[0], sizeof(from));
  memcpy(&to, call->parameters + call->parameter_offsets[1], sizeof(to));
  memcpy(to, from, N * sizeof(float));
}

Test(xla_gpu, a_chain_of_calls_runs_in_the_order_of_the_stream) {
  enum { CHAIN = 4 };
  use_device(0);
  xla_call* call = new_copy();
  prepare(call);
  sim_declare_kernel("copy", "rw");
  sim_register_kernel("copy", run_copy, NULL);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    sim_schedule_begin(seed);
    use_device(0);
    call->context.stream = stream;
    float* links[CHAIN];
    for (int i = 0; i < CHAIN; ++i) {
      links[i] = sim_device_alloc(0, N * sizeof(float));
      sim_allocation_keep(links[i]);
    }
    sim_allocation_keep(x);
    sim_allocation_keep(y);
    sim_host_access(links[0], N * sizeof(float), 1);
    links[0][3] = (float)seed;
    for (int i = 0; i + 1 < CHAIN; ++i) {
      call->operands[0].data = links[i];
      call->results[0].data = links[i + 1];
      xla_expect_ok(execute(call));
    }
    sim_run_all();
    cr_expect(eq(flt, links[CHAIN - 1][3], (float)seed));
    cr_expect(eq(sz, sim_schedule_end(), 0), "the checker has found something");
    sim_reset();
  }
  xla_finish(call);
}
