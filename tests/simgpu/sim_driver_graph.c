/* The driver functions of captures, graphs and user objects. */
#include <string.h>

#include "tests/simgpu/sim_driver.h"
#include "tests/simgpu/sim_graph.h"

/* ---- captures ---- */

typedef struct capture_details {
  uint64_t* id;
  CUgraph* graph;
  const CUgraphNode** dependencies;
  size_t* count;
} capture_details;

static CUresult capture_info(CUstream handle, CUstreamCaptureStatus* out_status,
                             const capture_details* out) {
  sim_current_record()->stream = handle;
  const sim_stream* stream = sim_find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_CONTEXT;
  if (sim_implicit_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const sim_capture* capture = stream->capture;
  *out_status = capture ? (CUstreamCaptureStatus)capture->status
                        : (CUstreamCaptureStatus)CU_STREAM_CAPTURE_STATUS_NONE;
  if (*out_status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (out->id) *out->id = capture->id;
  if (out->graph) *out->graph = (CUgraph)(void*)capture->graph;
  if (out->dependencies) {
    *out->dependencies = (const CUgraphNode*)(void*)stream->capture_nodes.items;
  }
  if (out->count) *out->count = stream->capture_nodes.count;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* out_status) {
  ENTER();
  return sim_leave(capture_info(stream, out_status, &(capture_details){0}));
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* out_status,
                                   uint64_t* out_id, CUgraph* out_graph,
                                   const CUgraphNode** out_dependencies,
                                   size_t* out_count) {
  ENTER();
  const capture_details out = {out_id, out_graph, out_dependencies, out_count};
  return sim_leave(capture_info(stream, out_status, &out));
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* out_status,
                                   uint64_t* out_id, CUgraph* out_graph,
                                   const CUgraphNode** out_dependencies,
                                   const CUgraphEdgeData** out_edges, size_t* out_count) {
  ENTER();
  if (out_edges) *out_edges = NULL;
  const capture_details out = {out_id, out_graph, out_dependencies, out_count};
  return sim_leave(capture_info(stream, out_status, &out));
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  ENTER();
  sim_stream* stream = sim_find_stream(handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  return sim_leave(sim_capture_start(stream, (sim_capture_mode)mode));
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* out_graph) {
  ENTER();
  *out_graph = NULL;
  sim_stream* stream = sim_find_stream(handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  sim_graph* graph = NULL;
  CUresult result = sim_capture_finish(stream, &graph);
  *out_graph = (CUgraph)(void*)graph;
  return sim_leave(result);
}

/* The nodes must be of the graph. */
static CUresult read_nodes(const sim_graph* graph, const CUgraphNode* handles,
                           size_t count, sim_list* out_nodes) {
  for (size_t i = 0; i < count; ++i) {
    sim_node* node = sim_check(handles[i], SIM_NODE);
    if (node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    sim_list_append(out_nodes, &(sim_list){.items = (void*[]){node}, .count = 1});
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* edges, size_t count,
                                              unsigned int flags) {
  ENTER();
  if (edges) sim_die("edge data is not known here");
  sim_stream* stream = sim_find_stream(handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  if (!stream->capture) return sim_leave((CUresult)CUDA_ERROR_ILLEGAL_STATE);
  CUresult result = sim_stream_usable(stream);
  sim_list nodes = {0};
  if (!result) result = read_nodes(stream->capture->graph, dependencies, count, &nodes);
  if (!result) {
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_nodes.count = 0;
    sim_list_append(&stream->capture_nodes, &nodes);
  }
  sim_list_free(&nodes);
  return sim_leave(result);
}

/* ---- user objects ---- */

CUresult cuUserObjectCreate(CUuserObject* out_object, void* pointer, CUhostFn destroy,
                            unsigned int count, unsigned int flags) {
  ENTER();
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC || !destroy || !count) {
    return sim_leave(CUDA_ERROR_INVALID_VALUE);
  }
  sim_user_object* object = sim_new(SIM_USER_OBJECT, sizeof(*object));
  object->pointer = pointer;
  object->destroy = destroy;
  object->count = count;
  *out_object = (CUuserObject)(void*)object;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  ENTER();
  if (!count) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  ((sim_user_object*)sim_check(handle, SIM_USER_OBJECT))->count += count;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  ENTER();
  if (!count) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  sim_release(sim_check(handle, SIM_USER_OBJECT), count);
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject object_handle,
                                 unsigned int count, unsigned int flags) {
  ENTER();
  sim_graph* graph = sim_check(graph_handle, SIM_GRAPH);
  sim_user_object* object = sim_check(object_handle, SIM_USER_OBJECT);
  if (!count || flags > CU_GRAPH_USER_OBJECT_MOVE) {
    return sim_leave(CUDA_ERROR_INVALID_VALUE);
  }
  if (!flags) object->count += count;
  sim_retain(&graph->retained, object, count);
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject object_handle,
                                  unsigned int count) {
  ENTER();
  sim_graph* graph = sim_check(graph_handle, SIM_GRAPH);
  sim_user_object* object = sim_check(object_handle, SIM_USER_OBJECT);
  unsigned int released = 0;
  for (size_t i = graph->retained.count; i-- > 0 && released < count;) {
    if (graph->retained.items[i] != object) continue;
    graph->retained.items[i] = graph->retained.items[--graph->retained.count];
    ++released;
  }
  if (released < count) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  sim_release(object, count);
  return sim_leave(CUDA_SUCCESS);
}

/* ---- graphs ---- */

CUresult cuGraphCreate(CUgraph* out_graph, unsigned int flags) {
  ENTER();
  if (flags) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  *out_graph = (CUgraph)(void*)sim_graph_new();
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph handle) {
  ENTER();
  sim_graph_drop(sim_check(handle, SIM_GRAPH));
  return sim_leave(CUDA_SUCCESS);
}

static CUresult add_node(CUgraphNode* out_node, CUgraph handle,
                         const CUgraphNode* dependencies, size_t count,
                         const sim_work* work) {
  sim_graph* graph = sim_check(handle, SIM_GRAPH);
  sim_list before = {0};
  CUresult result = read_nodes(graph, dependencies, count, &before);
  if (!result) *out_node = (CUgraphNode)(void*)sim_graph_add(graph, &before, work);
  sim_list_free(&before);
  return result;
}

/* The context is the function's, or for a CUkernel the one given, or the current one. */
static CUresult make_kernel_work(const CUDA_KERNEL_NODE_PARAMS* params,
                                 sim_work* out_work) {
  if (params->extra) sim_die("extra is not known here");
  CUfunction handle = params->func ? params->func : (CUfunction)(void*)params->kern;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  const sim_context* context = sim_current;
  if (sim_kind_of(handle) == SIM_FUNCTION) {
    context = ((const sim_function*)(void*)handle)->context;
  } else if (params->ctx) {
    context = sim_check(params->ctx, SIM_CONTEXT);
  }
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  sim_record* record = sim_current_record();
  const uint32_t shape[6] = {params->gridDimX,  params->gridDimY,  params->gridDimZ,
                             params->blockDimX, params->blockDimY, params->blockDimZ};
  memcpy(record->grid, shape, sizeof(record->grid));
  memcpy(record->block, shape + 3, sizeof(record->block));
  record->shared_bytes = params->sharedMemBytes;
  return sim_make_launch(handle, context, params->kernelParams, out_work);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* out_node, CUgraph graph,
                                 const CUgraphNode* dependencies, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* params) {
  ENTER();
  sim_work work;
  CUresult result = make_kernel_work(params, &work);
  if (!result) result = add_node(out_node, graph, dependencies, count, &work);
  return sim_leave(result);
}

CUresult cuGraphAddEmptyNode(CUgraphNode* out_node, CUgraph graph,
                             const CUgraphNode* dependencies, size_t count) {
  ENTER();
  const sim_work work = {.kind = SIM_WORK_EMPTY};
  return sim_leave(add_node(out_node, graph, dependencies, count, &work));
}

static CUresult add_event_node(CUgraphNode* out_node, CUgraph graph,
                               const CUgraphNode* dependencies, size_t count,
                               sim_work_kind kind, CUevent event) {
  const sim_work work = {.kind = kind, .event = sim_check(event, SIM_EVENT)};
  return add_node(out_node, graph, dependencies, count, &work);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* out_node, CUgraph graph,
                                   const CUgraphNode* dependencies, size_t count,
                                   CUevent event) {
  ENTER();
  return sim_leave(
      add_event_node(out_node, graph, dependencies, count, SIM_WORK_RECORD, event));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* out_node, CUgraph graph,
                                 const CUgraphNode* dependencies, size_t count,
                                 CUevent event) {
  ENTER();
  return sim_leave(
      add_event_node(out_node, graph, dependencies, count, SIM_WORK_WAIT, event));
}

CUresult cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode* from,
                                   const CUgraphNode* to, const CUgraphEdgeData* edges,
                                   size_t count) {
  ENTER();
  if (edges) sim_die("edge data is not known here");
  const sim_graph* graph = sim_check(handle, SIM_GRAPH);
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && !result; ++i) {
    sim_node* node = sim_check(to[i], SIM_NODE);
    result = node->graph == graph ? read_nodes(graph, &from[i], 1, &node->before)
                                  : CUDA_ERROR_INVALID_VALUE;
  }
  return sim_leave(result);
}

/* The driver's way to hand out a list: the count alone, or as many as there is room. */
static void hand_out(const sim_list* nodes, CUgraphNode* out_nodes,
                     size_t* in_out_count) {
  for (size_t i = 0; out_nodes && i < *in_out_count; ++i) {
    out_nodes[i] = i < nodes->count ? (CUgraphNode)nodes->items[i] : NULL;
  }
  if (!out_nodes || *in_out_count > nodes->count) *in_out_count = nodes->count;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* out_nodes, size_t* in_out_count) {
  ENTER();
  const sim_graph* graph = sim_check(handle, SIM_GRAPH);
  hand_out(&graph->nodes, out_nodes, in_out_count);
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* out_nodes,
                                       CUgraphEdgeData* out_edges, size_t* in_out_count) {
  ENTER();
  if (out_edges) sim_die("edge data is not known here");
  const sim_node* node = sim_check(handle, SIM_NODE);
  hand_out(&node->before, out_nodes, in_out_count);
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* out_type) {
  static const CUgraphNodeType types[] = {
      [SIM_WORK_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,
      [SIM_WORK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
      [SIM_WORK_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
      [SIM_WORK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
      [SIM_WORK_HOST] = CU_GRAPH_NODE_TYPE_HOST,
      [SIM_WORK_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
      [SIM_WORK_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
      [SIM_WORK_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
      [SIM_WORK_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE};
  ENTER();
  *out_type = types[((const sim_node*)sim_check(handle, SIM_NODE))->work.kind];
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle,
                                       CUDA_KERNEL_NODE_PARAMS* out_params) {
  ENTER();
  const sim_work* work = &((const sim_node*)sim_check(handle, SIM_NODE))->work;
  if (work->kind != SIM_WORK_KERNEL) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  *out_params = (CUDA_KERNEL_NODE_PARAMS){.func = work->handle,
                                          .gridDimX = work->grid[0],
                                          .gridDimY = work->grid[1],
                                          .gridDimZ = work->grid[2],
                                          .blockDimX = work->block[0],
                                          .blockDimY = work->block[1],
                                          .blockDimZ = work->block[2],
                                          .sharedMemBytes = work->shared_bytes};
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode handle,
                                       const CUDA_KERNEL_NODE_PARAMS* params) {
  ENTER();
  sim_node* node = sim_check(handle, SIM_NODE);
  if (node->work.kind != SIM_WORK_KERNEL) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  sim_work work;
  CUresult result = make_kernel_work(params, &work);
  if (result) return sim_leave(result);
  memcpy(node->parameters, work.parameters, sim_parameter_bytes(work.kernel));
  work.parameters = node->parameters;
  node->work = work;
  return sim_leave(CUDA_SUCCESS);
}

/* ---- executable graphs ---- */

CUresult cuGraphInstantiateWithFlags(CUgraphExec* out_exec, CUgraph handle,
                                     unsigned long long flags) {
  ENTER();
  if (flags) sim_die("flags of an instantiation are not known here");
  sim_exec* exec = NULL;
  CUresult result = sim_exec_new(sim_check(handle, SIM_GRAPH), &exec);
  *out_exec = (CUgraphExec)(void*)exec;
  return sim_leave(result);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node_handle,
                                           const CUDA_KERNEL_NODE_PARAMS* params) {
  ENTER();
  sim_exec* exec = sim_check(handle, SIM_EXEC);
  const sim_node* origin = sim_check(node_handle, SIM_NODE);
  for (size_t i = 0; i < exec->count; ++i) {
    sim_exec_node* node = &exec->nodes[i];
    if (node->origin != origin || node->work.kind != SIM_WORK_KERNEL) continue;
    sim_work work;
    CUresult result = make_kernel_work(params, &work);
    if (!result) sim_exec_set_work(node, &work);
    return sim_leave(result);
  }
  return sim_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  ENTER();
  sim_exec* exec = sim_check(handle, SIM_EXEC);
  sim_record* record = sim_current_record();
  record->handle = handle;
  record->stream = stream_handle;
  sim_stream* stream = sim_find_stream(stream_handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  record->stream_context = stream->context;
  return sim_leave(sim_exec_launch(exec, stream));
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  ENTER();
  sim_exec_drop(sim_check(handle, SIM_EXEC));
  return sim_leave(CUDA_SUCCESS);
}
