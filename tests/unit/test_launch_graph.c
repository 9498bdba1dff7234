/* Launches into graphs of the caller's, on the stand-in driver. */
#include "runtime/backends/cuda/cuda_types.h"
#include "tests/simgpu/sim_gpu.h"
#include "tests/unit/launch_fixture.h"

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

static float z[8];
static DLTensor tz;
static CUgraph graph;

static void setup(void) {
  open_axpy(AXPY);
  tz = vector(z, kDLCUDA, 0);
}

static void prepare(void) {
  prepare_axpy();
  sim_set_current(sim_primary_context(0));
  cr_assert(eq(int, cuGraphCreate(&graph, 0), 0));
  sim_clear_records();
}

static void teardown(void) { close_axpy(); }

TestSuite(launch_graph, .init = setup, .fini = teardown);

/* x on no stream that anybody knows, y on one of its own: fine for a graph. */
static const ons_arg* disordered(void) {
  const ons_arg unordered = {.kind = ONS_ARG_TENSOR, .value.tensor = &tx};
  return axpy_args(unordered, on_stream(&ty, other));
}

static ons_launch launch_into(ons_launch_graph* into) {
  *into = (ons_launch_graph)ONS_LAUNCH_GRAPH_INIT;
  into->graph = graph;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.graph = into;
  return launch;
}

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
  ons_launch_graph into;
  ons_launch launch = launch_into(&into);
  for (uint32_t order = ONS_ORDER_DEFAULT; order <= ONS_ORDER_TRUST; ++order) {
    launch.order = order;
    cr_expect(eq(int, launch_with(&launch, disordered()), 0), "%s", error.message);
    cr_expect(eq(int, launch_with(&launch, axpy_on(NULL, side)), 0), "%s", error.message);
  }
  cr_expect(eq(sz, sim_graph_kernel_count(graph), 8));
  cr_expect(eq(sz, calls_that_begin_with("cuStream"), 0));
}

Test(launch_graph, arguments_are_checked_as_ever) {
  prepare();
  ons_launch_graph into;
  ons_launch launch = launch_into(&into);
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
  ons_launch_graph into;
  ons_launch launch = launch_into(&into);
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
  ons_launch_graph into;
  ons_launch launch = launch_into(&into);
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
  ons_launch_graph into;
  ons_launch launch = launch_into(&into);
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
  cr_expect(eq(int, launch_with(&launch, axpy_on(NULL, NULL)), 0), "%s", error.message);
  cr_expect(eq(int, launch_with(&launch, axpy_on(blocking, NULL)), 0), "%s",
            error.message);
  cr_expect(eq(int, sim_capture_status(blocking), 1));
  cr_expect(sim_capture_end(blocking) != NULL);
}

Test(launch_graph, resolve_looks_at_no_stream) {
  prepare();
  ons_launch_graph into;
  ons_launch launch = launch_into(&into);
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
  ons_launch_graph into;
  ons_launch launch = launch_into(&into);
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
