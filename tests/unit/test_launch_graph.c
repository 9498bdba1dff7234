/* Launches into graphs, around events, and on streams of other contexts, on the stand-in
 * driver. The code is compiled by the real NVRTC; without one the tests are skipped. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <onstream/onstream.h>
#include <string.h>

#include "runtime/backends/cuda/cuda_types.h"
#include "tests/simgpu/sim_gpu.h"
#include "tests/simgpu/sim_record.h"

/* What a caller of the driver uses, of the stand-in. */
CUresult cuGraphCreate(CUgraph* out_graph, unsigned int flags);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec* out_exec, CUgraph graph,
                                     unsigned long long flags);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphNodeGetType(CUgraphNode node, unsigned int* out_type);
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out_nodes,
                                       CUgraphEdgeData* out_edges, size_t* count);
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out);
CUresult cuEventCreate(CUevent* out_event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);

static const char source[] =
    "__global__ void axpy(float a, const float* x, float* out, long long n) {\n"
    "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "  if (i < n) out[i] += a * x[i];\n"
    "}\n";

static ons_runtime* runtime;
static ons_module* module;
static ons_kernel* axpy;
static ons_error error = ONS_ERROR_INIT;
static float x[8], y[8], z[8];
static int64_t count = 8;
static DLTensor tx, ty, tz;
static void *side, *other;
static CUgraph graph;

static DLTensor vector(void* data, DLDeviceType type, int32_t ordinal) {
  return (DLTensor){.data = data,
                    .device = {type, ordinal},
                    .ndim = 1,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = &count};
}

static void setup(void) {
  sim_set_device_count(2);
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.cuda_driver_path = ONS_TEST_SIMGPU_PATH;
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, &error), 0), "%s",
            error.message);
  cr_assert(eq(int, ons_module_create(runtime, source, NULL, &module, &error), 0));
  cr_assert(eq(int, ons_module_kernel(module, "axpy", &axpy, &error), 0));
  tx = vector(x, kDLCUDA, 0);
  ty = vector(y, kDLCUDA, 0);
  tz = vector(z, kDLCUDA, 0);
  side = sim_stream_create(sim_primary_context(0), 1);
  other = sim_stream_create(sim_primary_context(0), 1);
}

static void prepare(void) {
  ons_status status = ons_kernel_prepare(axpy, (DLDevice){kDLCUDA, 0}, NULL, &error);
  if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
  cr_assert(eq(int, status, 0), "%s", error.message);
  sim_set_current(sim_primary_context(0));
  cr_assert(eq(int, cuGraphCreate(&graph, 0), 0));
  sim_clear_records();
}

static void teardown(void) {
  ons_kernel_release(axpy);
  ons_module_release(module);
  ons_runtime_collect(runtime);
  ons_runtime_release(runtime);
}

TestSuite(launch_graph, .init = setup, .fini = teardown);
TestSuite(launch_events, .init = setup, .fini = teardown);
TestSuite(launch_context, .init = setup, .fini = teardown);

/* x on no stream that anybody knows, y on one of its own: fine for a graph. */
static ons_arg args[4];
static const ons_arg* disordered(void) {
  args[0] = (ons_arg){.kind = ONS_ARG_FLOAT, .value.f = 2.5};
  args[1] = (ons_arg){.kind = ONS_ARG_TENSOR, .value.tensor = &tx};
  args[2] = (ons_arg){.kind = ONS_ARG_TENSOR,
                      .flags = ONS_ARG_STREAM_KNOWN,
                      .value.tensor = &ty,
                      .stream = other};
  args[3] = (ons_arg){.kind = ONS_ARG_INT, .value.i = 8};
  return args;
}

static const ons_arg* on_streams(void* stream_x, void* stream_y) {
  disordered();
  args[1].flags = ONS_ARG_STREAM_KNOWN;
  args[1].stream = stream_x;
  args[2].stream = stream_y;
  return args;
}

static ons_status launch_with(const ons_launch* launch, const ons_arg* arguments) {
  error = (ons_error)ONS_ERROR_INIT;
  return ons_kernel_launch(axpy, launch, arguments, 4, &error);
}

static size_t calls_that_begin_with(const char* prefix) {
  size_t found = 0;
  for (size_t i = 0; i < sim_record_count(); ++i) {
    found += strncmp(sim_record_at(i)->function, prefix, strlen(prefix)) == 0;
  }
  return found;
}

static int released;
static void release(void* object) {
  (void)object;
  ++released;
}
static const ons_retained retained = {NULL, release};

/* ---- graphs ----------------------------------------------------------------------- */

/* What a kernel of a graph that was run has seen. */
typedef struct run {
  uint32_t grid;
  float a;
  const float* x;
  const float* out;
  int64_t n;
} run;
static run runs[4];
static size_t run_count;

static void note_run(void* user_data, const sim_kernel_call* call) {
  (void)user_data;
  cr_assert(run_count < 4);
  run* seen = &runs[run_count++];
  const uint32_t* offsets = call->parameter_offsets;
  seen->grid = call->grid[0];
  memcpy(&seen->a, call->parameters + offsets[0], sizeof(seen->a));
  memcpy(&seen->x, call->parameters + offsets[1], sizeof(seen->x));
  memcpy(&seen->out, call->parameters + offsets[2], sizeof(seen->out));
  memcpy(&seen->n, call->parameters + offsets[3], sizeof(seen->n));
}

static CUgraphExec instantiate(void) {
  CUgraphExec exec = NULL;
  cr_assert(eq(int, cuGraphInstantiateWithFlags(&exec, graph, 0), 0));
  return exec;
}

static void run_graph(CUgraphExec exec) {
  run_count = 0;
  sim_schedule_begin(1);
  sim_register_kernel("axpy", note_run, NULL);
  cr_assert(eq(int, cuGraphLaunch(exec, side), 0));
  sim_run_all();
}

Test(launch_graph, a_node_is_the_launch) {
  prepare();
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = graph;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.grid[0] = 3;
  launch.block[1] = 4;
  launch.shared_bytes = 512;
  launch.graph = &into;
  sim_set_current(NULL);
  cr_assert(eq(int, launch_with(&launch, disordered()), 0), "%s", error.message);
  cr_expect(eq(ptr, sim_get_current(), NULL));
  void* first = into.out_node;
  cr_assert(first != NULL);
  CUDA_KERNEL_NODE_PARAMS node = {0};
  cr_assert(eq(int, cuGraphKernelNodeGetParams_v2(first, &node), 0));
  cr_expect(eq(u32, node.gridDimX, 3));
  cr_expect(eq(u32, node.blockDimY, 4));
  cr_expect(eq(u32, node.sharedMemBytes, 512));
  /* No stream and no event has anything to do with it. */
  cr_expect(eq(sz, calls_that_begin_with("cuStream"), 0));
  cr_expect(eq(sz, calls_that_begin_with("cuEvent"), 0));
  cr_expect(eq(sz, calls_that_begin_with("cuLaunch"), 0));

  into.dependencies = &first;
  into.dependency_count = 1;
  disordered();
  args[1].value.tensor = &ty;
  args[2].value.tensor = &tz;
  cr_assert(eq(int, launch_with(&launch, args), 0), "%s", error.message);
  cr_expect(into.out_node != first);
  CUgraphNode before[4] = {NULL};
  size_t before_count = 4;
  cr_assert(eq(
      int, cuGraphNodeGetDependencies_v2(into.out_node, before, NULL, &before_count), 0));
  cr_assert(eq(sz, before_count, 1));
  cr_expect(eq(ptr, before[0], first));

  run_graph(instantiate());
  cr_assert(eq(sz, run_count, 2));
  cr_expect(eq(u32, runs[0].grid, 3));
  cr_expect(eq(flt, runs[0].a, 2.5f));
  cr_expect(eq(ptr, (void*)runs[0].x, x));
  cr_expect(eq(ptr, (void*)runs[0].out, y));
  cr_expect(eq(i64, runs[0].n, 8));
  cr_expect(eq(ptr, (void*)runs[1].x, y));
  cr_expect(eq(ptr, (void*)runs[1].out, z));
  sim_reset();
}

Test(launch_graph, the_order_policy_does_not_matter) {
  prepare();
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = graph;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  for (uint32_t order = ONS_ORDER_DEFAULT; order <= ONS_ORDER_TRUST; ++order) {
    launch.order = order;
    cr_expect(eq(int, launch_with(&launch, disordered()), 0), "%s", error.message);
    cr_expect(eq(int, launch_with(&launch, on_streams(NULL, side)), 0), "%s",
              error.message);
  }
  cr_expect(eq(sz, sim_graph_kernel_count(graph), 8));
  cr_expect(eq(sz, calls_that_begin_with("cuStream"), 0));
}

Test(launch_graph, arguments_are_checked_as_ever) {
  prepare();
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = graph;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  disordered();
  args[2].flags |= ONS_ARG_READ_ONLY;
  cr_expect(eq(int, launch_with(&launch, args), ONS_STATUS_ARGUMENT_VALUE));
  cr_expect(strstr(error.message, "argument 3 ('out')") != NULL, "%s", error.message);
  tx.dtype.bits = 64;
  cr_expect(eq(int, launch_with(&launch, disordered()), ONS_STATUS_ARGUMENT_TYPE));
  tx.dtype.bits = 32;
  ty.device.device_id = 1;
  cr_expect(eq(int, launch_with(&launch, disordered()), ONS_STATUS_ARGUMENT_VALUE));
  ty.device.device_id = 0;
  launch.block[0] = 2048;
  cr_expect(eq(int, launch_with(&launch, disordered()), ONS_STATUS_ARGUMENT_VALUE));
  cr_expect(eq(int, ons_kernel_launch(axpy, &launch, args, 3, &error),
               ONS_STATUS_ARGUMENT_TYPE));
  cr_expect(eq(sz, sim_record_count(), 0));
  cr_expect(eq(ptr, into.out_node, NULL));
}

static void expect_refused(const ons_launch* launch, ons_status status,
                           const char* text) {
  cr_expect(eq(int, launch_with(launch, disordered()), status), "%s", error.message);
  cr_expect(strstr(error.message, text) != NULL, "%s", error.message);
}

Test(launch_graph, malformed_targets_are_refused) {
  prepare();
  void* nothing = NULL;
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  expect_refused(&launch, ONS_STATUS_INVALID_ARGUMENT, "graph is NULL");
  into.graph = graph;
  into.dependency_count = 1;
  expect_refused(&launch, ONS_STATUS_INVALID_ARGUMENT, "dependencies is NULL");
  into.dependencies = &nothing;
  expect_refused(&launch, ONS_STATUS_INVALID_ARGUMENT, "has a NULL");
  into.dependency_count = 0;
  into.struct_size = 0;
  expect_refused(&launch, ONS_STATUS_INVALID_ARGUMENT, "ONS_LAUNCH_GRAPH_INIT");
  into.struct_size = sizeof(into);
  launch.events = &events;
  expect_refused(&launch, ONS_STATUS_INVALID_ARGUMENT, "events are given");
  launch.events = NULL;
  launch.flags = ONS_LAUNCH_STREAM;
  expect_refused(&launch, ONS_STATUS_INVALID_ARGUMENT, "a stream and a graph");
  launch.flags = 0;
  launch.retained_count = 1;
  expect_refused(&launch, ONS_STATUS_INVALID_ARGUMENT, "retained[0]");
  cr_expect(eq(sz, sim_record_count(), 0));
}

Test(launch_graph, there_are_no_graphs_on_the_cpu) {
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = &into;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  tx = vector(x, kDLCPU, 0);
  ty = vector(y, kDLCPU, 0);
  ons_status status = launch_with(&launch, disordered());
  if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
  cr_expect(eq(int, status, ONS_STATUS_UNSUPPORTED));
  cr_expect(strstr(error.message, "no graphs") != NULL, "%s", error.message);
}

Test(launch_graph, a_zero_grid_is_an_empty_node) {
  prepare();
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = graph;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  cr_assert(eq(int, launch_with(&launch, disordered()), 0), "%s", error.message);
  void* first = into.out_node;
  into.dependencies = &first;
  into.dependency_count = 1;
  launch.grid[1] = 0;
  cr_assert(eq(int, launch_with(&launch, disordered()), 0), "%s", error.message);
  enum { EMPTY = 5 };
  unsigned int type = 0;
  size_t before_count = 0;
  cr_assert(eq(int, cuGraphNodeGetType(into.out_node, &type), 0));
  cr_expect(eq(u32, type, EMPTY));
  cr_assert(eq(
      int, cuGraphNodeGetDependencies_v2(into.out_node, NULL, NULL, &before_count), 0));
  cr_expect(eq(sz, before_count, 1));
  cr_expect(eq(sz, sim_graph_kernel_count(graph), 1));
}

Test(launch_graph, the_graph_keeps_what_is_retained) {
  prepare();
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = graph;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  launch.retained = &retained;
  launch.retained_count = 1;
  sim_inject("cuGraphAddKernelNode_v2", 1, CUDA_ERROR_INVALID_VALUE);
  cr_expect(eq(int, launch_with(&launch, disordered()), ONS_STATUS_DEVICE));
  cr_expect(eq(u32, error.launched, 0));
  cr_expect(eq(str, (char*)error.native_call, "cuGraphAddKernelNode"));
  cr_expect(eq(int, error.native_code, 1));
  cr_assert(eq(int, launch_with(&launch, disordered()), 0), "%s", error.message);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, released, 0));
  sim_graph_destroy(graph);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, released, 1));
}

Test(launch_graph, a_failure_to_keep_says_that_the_node_is_there) {
  prepare();
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = graph;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  launch.retained = &retained;
  launch.retained_count = 1;
  sim_inject("cuGraphRetainUserObject", 1, CUDA_ERROR_INVALID_VALUE);
  cr_expect(eq(int, launch_with(&launch, disordered()), ONS_STATUS_DEVICE));
  cr_expect(eq(u32, error.launched, 1));
  cr_expect(strstr(error.message, "was added to the graph") != NULL, "%s", error.message);
  cr_expect(into.out_node != NULL);
}

Test(launch_graph, needs_a_driver_of_cuda_12) {
  sim_set_version(11080);
  ons_status status = ons_kernel_prepare(axpy, (DLDevice){kDLCUDA, 0}, NULL, &error);
  if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
  cr_assert(eq(int, status, 0), "%s", error.message);
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = &into;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  expect_refused(&launch, ONS_STATUS_UNSUPPORTED, "CUDA 12.0");
  launch.graph = NULL;
  cr_expect(eq(int, ons_kernel_update_node(axpy, side, side, &launch, args, 4, &error),
               ONS_STATUS_UNSUPPORTED));
}

/* Adding to a graph is no business of any stream: also the legacy one's argument is fine
 * beside a capture, which lives on, and so does the first use of a kernel. */
Test(launch_graph, captures_are_not_disturbed) {
  sim_set_current(sim_primary_context(0));
  void* blocking = sim_stream_create(sim_primary_context(0), 0);
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  ons_status status = ons_kernel_prepare(axpy, (DLDevice){kDLCUDA, 1}, NULL, &error);
  if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
  cr_assert(eq(int, cuGraphCreate(&graph, 0), 0));
  into.graph = graph;
  sim_capture_begin(blocking, SIM_CAPTURE_GLOBAL);
  cr_expect(eq(int, launch_with(&launch, on_streams(NULL, NULL)), 0), "%s",
            error.message);
  cr_expect(eq(int, launch_with(&launch, on_streams(blocking, NULL)), 0), "%s",
            error.message);
  cr_expect(eq(int, sim_capture_status(blocking), 1));
  cr_expect(sim_capture_end(blocking) != NULL);
}

Test(launch_graph, resolve_looks_at_no_stream) {
  prepare();
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = graph;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  disordered();
  args[2].kind = ONS_ARG_PENDING;
  ons_launch_plan plan = ONS_LAUNCH_PLAN_INIT;
  cr_assert(eq(int, ons_launch_resolve(axpy, &launch, args, 4, &plan, &error), 0), "%s",
            error.message);
  cr_expect(eq(int, (int)plan.device.device_type, kDLCUDA));
  cr_expect(eq(ptr, plan.stream, NULL));
  cr_expect(eq(u32, plan.capture_state, 0));
  cr_expect(eq(sz, sim_record_count(), 0));
}

/* ---- updates ---------------------------------------------------------------------- */

static ons_status update(void* exec, void* node, const ons_launch* launch) {
  error = (ons_error)ONS_ERROR_INIT;
  return ons_kernel_update_node(axpy, exec, node, launch, args, 4, &error);
}

Test(launch_graph, a_node_gets_other_arguments) {
  prepare();
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = graph;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = &into;
  cr_assert(eq(int, launch_with(&launch, disordered()), 0), "%s", error.message);
  CUgraphExec exec = instantiate();
  launch.graph = NULL;
  launch.grid[0] = 7;
  args[1].value.tensor = &tz;
  sim_clear_records();
  cr_assert(eq(int, update(exec, into.out_node, &launch), 0), "%s", error.message);
  cr_expect(eq(sz, calls_that_begin_with("cuStream"), 0));
  run_graph(exec);
  cr_assert(eq(sz, run_count, 1));
  cr_expect(eq(u32, runs[0].grid, 7));
  cr_expect(eq(ptr, (void*)runs[0].x, z));
  cr_expect(eq(ptr, (void*)runs[0].out, y));
  /* What is instantiated from the graph later is as it was. */
  run_graph(instantiate());
  cr_assert(eq(sz, run_count, 1));
  cr_expect(eq(u32, runs[0].grid, 1));
  cr_expect(eq(ptr, (void*)runs[0].x, x));

  sim_inject("cuGraphExecKernelNodeSetParams_v2", 1, CUDA_ERROR_INVALID_VALUE);
  cr_expect(eq(int, update(exec, into.out_node, &launch), ONS_STATUS_DEVICE));
  cr_expect(eq(str, (char*)error.native_call, "cuGraphExecKernelNodeSetParams"));
  cuGraphExecDestroy(exec);
  sim_reset();
}

Test(launch_graph, updates_are_checked_as_launches_are) {
  prepare();
  ons_launch_graph into = ONS_LAUNCH_GRAPH_INIT;
  into.graph = graph;
  ons_launch launch = ONS_LAUNCH_INIT;
  disordered();
  cr_expect(eq(int, update(NULL, side, &launch), ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(eq(int, update(side, NULL, &launch), ONS_STATUS_INVALID_ARGUMENT));
  launch.graph = &into;
  cr_expect(eq(int, update(side, side, &launch), ONS_STATUS_INVALID_ARGUMENT));
  launch.graph = NULL;
  launch.retained = &retained;
  launch.retained_count = 1;
  cr_expect(eq(int, update(side, side, &launch), ONS_STATUS_INVALID_ARGUMENT));
  launch.retained_count = 0;
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  launch.events = &events;
  cr_expect(eq(int, update(side, side, &launch), ONS_STATUS_INVALID_ARGUMENT));
  launch.events = NULL;
  launch.flags = ONS_LAUNCH_STREAM;
  cr_expect(eq(int, update(side, side, &launch), ONS_STATUS_INVALID_ARGUMENT));
  launch.flags = 0;
  launch.grid[2] = 0;
  cr_expect(eq(int, update(side, side, &launch), ONS_STATUS_ARGUMENT_VALUE));
  cr_expect(strstr(error.message, "cuGraphNodeSetEnabled") != NULL, "%s", error.message);
  launch.grid[2] = 1;
  tx.dtype.bits = 64;
  cr_expect(eq(int, update(side, side, &launch), ONS_STATUS_ARGUMENT_TYPE));
  cr_expect(eq(int, ons_kernel_update_node(axpy, side, side, &launch, args, 3, &error),
               ONS_STATUS_ARGUMENT_TYPE));
  cr_expect(eq(int, ons_kernel_update_node(NULL, side, side, &launch, args, 4, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(eq(sz, sim_record_count(), 0));
}

/* ---- events ----------------------------------------------------------------------- */

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
  cr_assert(eq(int, launch_with(&launch, on_streams(side, side)), 0), "%s",
            error.message);
  EXPECT_CALLS("cuStreamWaitEvent", "cuStreamWaitEvent", "cuLaunchKernelEx",
               "cuEventRecord");
  cr_expect(eq(ptr, sim_last("cuStreamWaitEvent")->handle, wait[1]));
  cr_expect(eq(ptr, sim_last("cuStreamWaitEvent")->stream, side));
  cr_expect(eq(ptr, sim_last("cuEventRecord")->handle, signal[0]));
  cr_expect(eq(ptr, sim_last("cuEventRecord")->stream, side));

  /* Around the joins too. */
  sim_clear_records();
  cr_assert(eq(int, launch_with(&launch, on_streams(side, other)), 0), "%s",
            error.message);
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
  cr_assert(eq(int, launch_with(&launch, on_streams(other, other)), 0));
  events = (ons_launch_events)ONS_LAUNCH_EVENTS_INIT;
  events.wait = &event;
  events.wait_count = 1;
  events.signal = &done;
  events.signal_count = 1;
  launch.retained = &retained;
  launch.retained_count = 1;
  cr_assert(eq(int, launch_with(&launch, on_streams(side, side)), 0), "%s",
            error.message);
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
  on_streams(side, side);
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
  ons_status status = launch_with(&launch, disordered());
  if (status == ONS_STATUS_UNAVAILABLE) return; /* no host compiler */
  cr_expect(eq(int, status, ONS_STATUS_UNSUPPORTED), "%s", error.message);
}

Test(launch_events, a_launch_of_nothing_keeps_the_order) {
  prepare();
  void* wait = new_event(sim_primary_context(0));
  void* signal = new_event(sim_primary_context(0));
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.wait = &wait;
  events.wait_count = 1;
  events.signal = &signal;
  events.signal_count = 1;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  launch.grid[0] = 0;
  launch.retained = &retained;
  launch.retained_count = 1;
  cr_assert(eq(int, launch_with(&launch, on_streams(side, side)), 0), "%s",
            error.message);
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
  on_streams(side, side);
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
  cr_assert(eq(int, launch_with(&launch, on_streams(side, side)), 0), "%s",
            error.message);
  EXPECT_CALLS("cuStreamWaitEvent", "cuLaunchKernelEx", "cuEventRecord");
  event = new_event(sim_primary_context(0));
  sim_capture_begin(side, SIM_CAPTURE_THREAD_LOCAL);
  cr_assert(eq(int, launch_with(&launch, on_streams(side, side)), 0), "%s",
            error.message);
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
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.wait = &fork;
  events.wait_count = 1;
  events.signal = &join;
  events.signal_count = 1;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  launch.retained = &retained;
  launch.retained_count = 1;
  sim_capture_begin(side, SIM_CAPTURE_GLOBAL);
  cr_assert(eq(int, cuEventRecord(fork, side), 0));
  /* Also joined to a stream that is in the capture already. */
  cr_assert(eq(int, launch_with(&launch, on_streams(other, other)), 0), "%s",
            error.message);
  cr_assert(eq(int, launch_with(&launch, on_streams(other, side)), 0), "%s",
            error.message);
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
  cr_expect(eq(int, launch_with(&launch, on_streams(side, side)), ONS_STATUS_DEVICE));
  cr_expect(eq(int, error.native_code, CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
  cr_expect(strstr(error.message, "external") != NULL, "%s", error.message);
  cr_expect(eq(ptr, sim_capture_end(side), NULL));
}

Test(launch_events, on_the_default_streams) {
  prepare();
  void* event = new_event(sim_primary_context(0));
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.wait = &event;
  events.wait_count = 1;
  events.signal = &event;
  events.signal_count = 1;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  sim_set_current(NULL);
  for (uintptr_t handle = 0; handle <= 2; ++handle) {
    sim_clear_records();
    void* stream = (void*)handle;
    cr_expect(eq(int, launch_with(&launch, on_streams(stream, stream)), 0), "%s",
              error.message);
    EXPECT_CALLS("cuStreamWaitEvent", "cuLaunchKernelEx", "cuEventRecord");
    cr_expect(eq(ptr, sim_get_current(), NULL));
  }
  /* The legacy stream may not be touched beside a capture of a blocking one. */
  void* blocking = sim_stream_create(sim_primary_context(0), 0);
  sim_capture_begin(blocking, SIM_CAPTURE_GLOBAL);
  sim_clear_records();
  cr_expect(eq(int, launch_with(&launch, on_streams(NULL, NULL)), ONS_STATUS_CAPTURE));
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
  cr_assert(eq(int, launch_with(&launch, on_streams(side, side)), 0), "%s",
            error.message);
  EXPECT_CALLS("cuLaunchKernelEx");
}

/* ---- streams of other contexts ---------------------------------------------------- */

/* A stream of a green context is one of a second context of the device. */
Test(launch_context, everything_works_on_a_foreign_stream) {
  prepare();
  void* second = sim_context_create(0);
  void* green = sim_stream_create(second, 1);
  void* event = new_event(second);
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  events.wait = &event;
  events.wait_count = 1;
  events.signal = &event;
  events.signal_count = 1;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.events = &events;
  launch.retained = &retained;
  launch.retained_count = 1;
  sim_set_current(NULL);
  cr_assert(eq(int, launch_with(&launch, on_streams(green, green)), 0), "%s",
            error.message);
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
    cr_expect(eq(int, launch_with(&plain, on_streams(green, side)), 0), "%s",
              error.message);
    cr_expect(eq(int, launch_with(&plain, on_streams(side, green)), 0), "%s",
              error.message);
  }
  cr_expect(eq(sz, sim_get_live().events, 2), "one for each context");
}

Test(launch_context, a_foreign_stream_is_captured) {
  prepare();
  void* green = sim_stream_create(sim_context_create(0), 1);
  ons_launch launch = ONS_LAUNCH_INIT;
  /* One of the kernel's own context before, between and after. */
  cr_expect(eq(int, launch_with(&launch, on_streams(side, side)), 0));
  sim_capture_begin(green, SIM_CAPTURE_GLOBAL);
  cr_expect(eq(int, launch_with(&launch, on_streams(green, green)), 0), "%s",
            error.message);
  cr_expect(eq(int, launch_with(&launch, on_streams(side, side)), 0));
  launch.retained = &retained;
  launch.retained_count = 1;
  cr_expect(eq(int, launch_with(&launch, on_streams(green, green)), 0), "%s",
            error.message);
  launch.retained_count = 0;
  cr_expect(eq(int, launch_with(&launch, on_streams(side, side)), 0));
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
  cr_expect(eq(int, launch_with(&launch, on_streams(side, side)), ONS_STATUS_DEVICE));
  cr_expect(eq(u32, error.launched, 1));
  cr_expect(strstr(error.message, "of the context of stream") != NULL, "%s",
            error.message);
}
