/* Graphs, user objects and the rules of capture on the simulated GPU. */
#include "tests/unit/simgpu_fixture.h"

TestSuite(simgpu_graph, .init = setup);

/* ---- graphs ---- */

static CUgraph end_capture(CUstream stream) {
  CUgraph graph = NULL;
  OK(cuStreamEndCapture(stream, &graph));
  return graph;
}

static CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = NULL;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

Test(simgpu_graph, a_captured_graph_runs_as_often_as_it_is_launched) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    uint64_t *x = device_memory(), *y = device_memory();
    OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
    launch(set, first, x, 7);
    join(second, first);
    launch(mix, second, y, (uint64_t)(uintptr_t)x);
    join(first, second);
    launch(add, first, x, 1);
    CUgraphExec exec = instantiate(end_capture(first));
    cr_expect(eq(sz, sim_pending_count(), 0));
    for (uint64_t i = 0; i < 3; ++i) OK(cuGraphLaunch(exec, i % 2 ? first : blocking));
    OK(cuStreamSynchronize(blocking));
    cr_expect(eq(u64, *x, 8));
    cr_expect(eq(u64, *y, 7));
    OK(cuGraphExecDestroy(exec));
    cr_expect(eq(sz, sim_schedule_end(), 0));
  }
}

Test(simgpu_graph, branches_of_a_graph_race) {
  uint64_t* x = device_memory();
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  join(second, first);
  launch(set, second, x, 1);
  launch(set, first, x, 2);
  join(first, second);
  CUgraphExec exec = instantiate(end_capture(first));
  CLEAN();
  OK(cuGraphLaunch(exec, first));
  FOUND(1, SIM_RACE);
}

Test(simgpu_graph, a_graph_is_ordered_with_the_stream_it_is_launched_on) {
  uint64_t* x = device_memory();
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  launch(add, first, x, 1);
  CUgraphExec exec = instantiate(end_capture(first));
  launch(set, second, x, 1);
  OK(cuGraphLaunch(exec, second));
  launch(add, second, x, 1);
  CLEAN();
  launch(add, first, x, 1);
  FOUND(1, SIM_RACE); /* with the latest; what is before that is no news */
}

Test(simgpu_graph, memory_freed_before_a_replay) {
  uint64_t* x = sim_device_alloc(0, BYTES);
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  launch(set, first, x, 1);
  CUgraphExec exec = instantiate(end_capture(first));
  OK(cuGraphLaunch(exec, first));
  OK(cuStreamSynchronize(first));
  sim_device_free(x);
  CLEAN();
  OK(cuGraphLaunch(exec, first));
  FOUND(1, SIM_USE_AFTER_FREE);
}

static CUDA_KERNEL_NODE_PARAMS node_params(CUfunction kernel, void** parameters) {
  return (CUDA_KERNEL_NODE_PARAMS){.func = kernel,
                                   .gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .kernelParams = parameters};
}

static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode* after, CUfunction kernel,
                              void* pointer, uint64_t value) {
  void* parameters[] = {&pointer, &value};
  CUDA_KERNEL_NODE_PARAMS params = node_params(kernel, parameters);
  CUgraphNode node = NULL;
  OK(cuGraphAddKernelNode_v2(&node, graph, after, after ? 1 : 0, &params));
  return node;
}

Test(simgpu_graph, an_explicit_graph_runs_by_its_edges) {
  uint64_t* x = device_memory();
  CUgraph graph = NULL;
  OK(cuGraphCreate(&graph, 0));
  CUgraphNode one = add_kernel(graph, NULL, set, x, 5);
  CUgraphNode two = add_kernel(graph, &one, add, x, 1);
  CUgraphExec exec = instantiate(graph);
  OK(cuGraphLaunch(exec, first));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, 6));
  CLEAN();

  uint64_t value = 10;
  void* parameters[] = {&x, &value};
  CUDA_KERNEL_NODE_PARAMS params = node_params(add, parameters);
  OK(cuGraphLaunch(exec, first));
  OK(cuGraphExecKernelNodeSetParams_v2(exec, two, &params));
  OK(cuGraphLaunch(exec, first));
  value = 0; /* the parameters were copied */
  sim_step(4);
  cr_expect(eq(u64, *x, 6), "a launch that is under way keeps its own");
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, 15));
  CUgraphNode loose = add_kernel(graph, NULL, add, x, 1);
  OK(cuGraphAddDependencies_v2(graph, &loose, &one, NULL, 1));
  OK(cuGraphLaunch(instantiate(graph), first));
  CLEAN();
  OK(cuGraphAddDependencies_v2(graph, &two, &loose, NULL, 1));
  IS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 0));
}

Test(simgpu_graph, event_nodes_order_a_graph_with_other_streams) {
  uint64_t* x = device_memory();
  CUevent before = event(), after = event();
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  OK(cuStreamWaitEvent(first, before, CU_EVENT_WAIT_EXTERNAL));
  launch(add, first, x, 1);
  OK(cuEventRecordWithFlags(after, first, CU_EVENT_RECORD_EXTERNAL));
  CUgraphExec exec = instantiate(end_capture(first));
  launch(set, second, x, 1);
  OK(cuEventRecord(before, second));
  OK(cuGraphLaunch(exec, first));
  OK(cuStreamWaitEvent(second, after, 0));
  launch(add, second, x, 1);
  CLEAN();
}

static pthread_t destructor_thread;
static int destroyed;

static void destroy(void* memory) {
  destructor_thread = pthread_self();
  ++destroyed;
  sim_device_free(memory);
}

Test(simgpu_graph, user_objects_live_until_the_last_launch_has_ended) {
  uint64_t* x = sim_device_alloc(0, BYTES);
  CUuserObject object = NULL;
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  launch(set, first, x, 1);
  CUgraph graph = end_capture(first);
  OK(cuUserObjectCreate(&object, x, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraphExec exec = instantiate(graph);
  OK(cuGraphDestroy(graph));
  OK(cuGraphLaunch(exec, first));
  OK(cuGraphExecDestroy(exec));
  cr_expect(zero(int, destroyed));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(int, destroyed, 1));
  cr_expect(zero(int, pthread_equal(destructor_thread, pthread_self())));
  cr_expect(eq(sz, sim_schedule_end(), 0));
  CLEAN();
}

Test(simgpu_graph, memory_of_a_graph_lives_with_each_launch) {
  CUdeviceptr x = 0;
  uint64_t* y = device_memory();
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  OK(cuMemAllocAsync(&x, BYTES, first));
  launch(set, first, (void*)(uintptr_t)x, 4);
  launch(mix, first, y, (uint64_t)x);
  OK(cuMemFreeAsync(x, first));
  CUgraphExec exec = instantiate(end_capture(first));
  OK(cuGraphLaunch(exec, first));
  OK(cuGraphLaunch(exec, first));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *y, 4));
  cr_expect(eq(sz, sim_schedule_end(), 0));
  launch(set, first, (void*)(uintptr_t)x, 4);
  FOUND(1, SIM_USE_AFTER_FREE);
}

/* ---- the rules of capture ---- */

static void capture(CUstream stream) {
  OK(cuStreamBeginCapture_v2(stream, SIM_CAPTURE_GLOBAL));
}

static void expect_lost(CUstream stream) {
  CUgraph graph = NULL;
  IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  cr_expect(zero(ptr, graph));
}

Test(simgpu_graph, capture_refuses_and_dies) {
  uint64_t* x = device_memory();
  CUevent outside = event();
  OK(cuEventRecord(outside, second));
  void* parameters[] = {&x, &x};

  capture(first);
  IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(first, outside, 0));
  IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
     cuLaunchKernel(set, 1, 1, 1, 1, 1, 1, 0, first, parameters, NULL));
  expect_lost(first);

  capture(first);
  IS(CUDA_ERROR_INVALID_VALUE,
     cuLaunchKernel(set, 1, 1, 1, 1025, 1, 1, 0, first, parameters, NULL));
  expect_lost(first);

  capture(first);
  IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(second));
  expect_lost(first);

  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_RELAXED));
  OK(cuStreamSynchronize(second));
  IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(first));
  expect_lost(first);

  capture(blocking);
  CUstreamCaptureStatus status = 0;
  IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
  IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
     cuLaunchKernel(set, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  expect_lost(blocking);

  capture(first);
  OK(cuEventRecord(outside, first));
  CUstreamCaptureMode relaxed = SIM_CAPTURE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&relaxed));
  IS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(outside));
  OK(cuThreadExchangeStreamCaptureMode(&relaxed));
  IS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(second, outside, 0));
  expect_lost(first);
  IS(CUDA_ERROR_INVALID_VALUE, cuEventQuery(outside));
}

Test(simgpu_graph, captures_are_joined_ended_and_begun_by_the_rules) {
  uint64_t* x = device_memory();
  CUgraph graph = NULL;
  IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
     cuStreamBeginCapture_v2(NULL, SIM_CAPTURE_GLOBAL));
  IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(first, &graph));
  capture(first);
  IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  join(second, first);
  IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(second, &graph));
  expect_lost(first);
  capture(first);
  join(second, first);
  OK(cuStreamEndCapture(first, &graph)); /* nothing was put on the second */
  CUstreamCaptureStatus status = 1;
  OK(cuStreamIsCapturing(second, &status));
  cr_expect(zero(u32, status));

  capture(first);
  join(second, first);
  launch(set, second, x, 1);
  IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(first, &graph));
  cr_expect(zero(ptr, graph));

  CUevent of_first = event();
  capture(first);
  capture(second);
  OK(cuEventRecord(of_first, first));
  IS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(second, of_first, 0));
  expect_lost(first);
  expect_lost(second);
}

static void* end_elsewhere(void* result) {
  CUgraph graph = NULL;
  *(CUresult*)result = cuStreamEndCapture(first, &graph);
  return NULL;
}

Test(simgpu_graph, captures_and_threads) {
  capture(first);
  IS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, on_thread(end_elsewhere));
  capture(first); /* that one was ended all the same */
  IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, on_thread(synchronise_elsewhere));
  expect_lost(first);
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_THREAD_LOCAL));
  IS(CUDA_SUCCESS, on_thread(synchronise_elsewhere));
  OK(cuGraphDestroy(end_capture(first)));
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_RELAXED));
  IS(CUDA_SUCCESS, on_thread(end_elsewhere));
}

Test(simgpu_graph, capture_information_tells_and_changes_dependencies) {
  uint64_t* x = device_memory();
  CUstreamCaptureStatus status = 0;
  CUgraph graph = NULL;
  const CUgraphNode* nodes = NULL;
  size_t count = 0;
  capture(first);
  launch(set, first, x, 1);
  OK(cuStreamGetCaptureInfo_v3(first, &status, NULL, &graph, &nodes, NULL, &count));
  cr_assert(eq(sz, count, 1));
  CUgraphNode added = add_kernel(graph, &nodes[0], add, x, 1);
  OK(cuStreamUpdateCaptureDependencies_v2(first, &added, NULL, 1,
                                          CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  launch(add, first, x, 2);
  OK(cuStreamGetCaptureInfo_v3(first, &status, NULL, NULL, &nodes, NULL, &count));
  CUgraphNode last = nodes[0], before = NULL;
  OK(cuGraphNodeGetDependencies_v2(last, &before, NULL, &count));
  cr_expect(eq(ptr, before, added));
  OK(cuGraphLaunch(instantiate(end_capture(first)), first));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, 4));
  CLEAN();
}
