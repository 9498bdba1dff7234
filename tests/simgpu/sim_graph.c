#include "tests/simgpu/sim_graph.h"

#include <stdlib.h>
#include <string.h>

size_t sim_parameter_bytes(const sim_kernel* kernel) {
  size_t size_bytes = 0;
  for (uint32_t i = 0; i < kernel->info.parameter_count; ++i) {
    size_t end = kernel->info.offsets[i] + kernel->info.sizes[i];
    if (end > size_bytes) size_bytes = end;
  }
  return size_bytes < SIM_MAX_PARAMETER_BYTES ? size_bytes : SIM_MAX_PARAMETER_BYTES;
}

/* ---- user objects ---- */

static void* run_destructors(void* argument) {
  const sim_list* released = argument;
  sim_in_callback = "the destructor of a user object";
  for (size_t i = 0; i < released->count; ++i) {
    const sim_user_object* object = released->items[i];
    object->destroy(object->pointer);
  }
  return NULL;
}

/* Ends what nobody refers to any more. */
static void destroy_all(sim_list* released) {
  if (released->count) {
    sim_record* record = sim_current_record();
    pthread_t thread;
    pthread_mutex_unlock(&sim.mutex);
    if (pthread_create(&thread, NULL, run_destructors, released)) sim_die("no thread");
    pthread_join(thread, NULL);
    pthread_mutex_lock(&sim.mutex);
    sim_set_current_record(record);
  }
  sim_list_free(released);
}

static void give_up(sim_user_object* object, unsigned int count, sim_list* released) {
  if (object->count < count) sim_die("a user object released too often");
  object->count -= count;
  if (object->count) return;
  object->object.dead = true;
  sim_list_add(released, object);
}

static void release_all(sim_list* retained) {
  sim_list released = {0};
  for (size_t i = 0; i < retained->count; ++i) give_up(retained->items[i], 1, &released);
  sim_list_free(retained);
  destroy_all(&released);
}

void sim_release(sim_user_object* object, unsigned int count) {
  sim_list released = {0};
  give_up(object, count, &released);
  destroy_all(&released);
}

void sim_retain(sim_list* retained, sim_user_object* object, unsigned int count) {
  for (unsigned int i = 0; i < count; ++i) sim_list_add(retained, object);
}

/* ---- graphs ---- */

sim_graph* sim_graph_new(void) { return sim_new(SIM_GRAPH, sizeof(sim_graph)); }

sim_node* sim_graph_add(sim_graph* graph, const sim_list* before, const sim_work* work) {
  bool is_kernel = work->kind == SIM_WORK_KERNEL;
  size_t size_bytes = is_kernel ? sim_parameter_bytes(work->kernel) : 0;
  sim_node* node = sim_new(SIM_NODE, sizeof(*node) + SIM_MAX_PARAMETER_BYTES);
  node->graph = graph;
  node->work = *work;
  node->work.parameters = node->parameters;
  if (size_bytes) memcpy(node->parameters, work->parameters, size_bytes);
  sim_list_append(&node->before, before);
  sim_list_add(&graph->nodes, node);
  graph->kernel_count += is_kernel;
  return node;
}

void sim_graph_drop(sim_graph* graph) {
  graph->object.dead = true;
  for (size_t i = 0; i < graph->nodes.count; ++i) {
    ((sim_node*)graph->nodes.items[i])->object.dead = true;
  }
  release_all(&graph->retained);
}

/* ---- executable graphs ---- */

void sim_exec_set_work(sim_exec_node* node, const sim_work* work) {
  size_t size_bytes =
      work->kind == SIM_WORK_KERNEL ? sim_parameter_bytes(work->kernel) : 0;
  free(node->parameters);
  node->parameters = sim_allocate(size_bytes + 1);
  if (size_bytes) memcpy(node->parameters, work->parameters, size_bytes);
  node->work = *work;
  node->work.parameters = node->parameters;
}

static void copy_node(sim_exec* exec, sim_node* node) {
  node->index = exec->count++;
  sim_exec_node* copy = &exec->nodes[node->index];
  copy->origin = node;
  copy->is_last = true;
  sim_exec_set_work(copy, &node->work);
  copy->before = sim_allocate((node->before.count + 1) * sizeof(size_t));
  for (size_t i = 0; i < node->before.count; ++i) {
    size_t index = ((sim_node*)node->before.items[i])->index;
    copy->before[copy->before_count++] = index;
    exec->nodes[index].is_last = false;
  }
}

enum { NOT_PLACED = -1 };

static bool is_next(const sim_node* node) {
  if (node->index != (size_t)NOT_PLACED) return false;
  for (size_t i = 0; i < node->before.count; ++i) {
    if (((sim_node*)node->before.items[i])->index == (size_t)NOT_PLACED) return false;
  }
  return true;
}

static void drop_exec_nodes(sim_exec* exec) {
  for (size_t i = 0; i < exec->count; ++i) {
    free(exec->nodes[i].parameters);
    free(exec->nodes[i].before);
  }
  free(exec->nodes);
  exec->nodes = NULL;
  exec->count = 0;
}

/* In an order that respects the edges; a circle is refused. */
CUresult sim_exec_new(const sim_graph* graph, sim_exec** out_exec) {
  sim_exec* exec = sim_new(SIM_EXEC, sizeof(*exec));
  exec->nodes = sim_allocate((graph->nodes.count + 1) * sizeof(sim_exec_node));
  for (size_t i = 0; i < graph->nodes.count; ++i) {
    ((sim_node*)graph->nodes.items[i])->index = (size_t)NOT_PLACED;
  }
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < graph->nodes.count; ++i) {
      if (!is_next(graph->nodes.items[i])) continue;
      copy_node(exec, graph->nodes.items[i]);
      more = true;
    }
  }
  if (exec->count < graph->nodes.count) {
    exec->object.dead = true;
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < graph->retained.count; ++i) {
    sim_user_object* object = graph->retained.items[i];
    ++object->count;
    sim_list_add(&exec->retained, object);
  }
  *out_exec = exec;
  return CUDA_SUCCESS;
}

/* What a record or a wait does to its event happens when it is enqueued. */
static sim_op* launch_node(const sim_exec* exec, sim_exec_node* node, sim_op* begin) {
  sim_op** before = sim_arena((node->before_count + 2) * sizeof(sim_op*));
  size_t count = 0;
  for (size_t i = 0; i < node->before_count; ++i) {
    before[count++] = exec->nodes[node->before[i]].op;
  }
  if (!count) before[count++] = begin;
  sim_work work = node->work;
  if (work.kind == SIM_WORK_KERNEL) {
    size_t size_bytes = sim_parameter_bytes(work.kernel);
    work.parameters = sim_arena(size_bytes);
    if (size_bytes) memcpy(work.parameters, node->parameters, size_bytes);
  }
  if (work.kind == SIM_WORK_WAIT && work.event->op) before[count++] = work.event->op;
  if (!node->chain) node->chain = sim_chain_new(NULL);
  sim_place place = {node->chain, begin->stream, before, count};
  sim_op* op = sim_enqueue_at(&place, &work);
  if (work.kind == SIM_WORK_RECORD) work.event->op = op;
  return op;
}

CUresult sim_exec_launch(sim_exec* exec, sim_stream* stream) {
  CUresult result = sim_stream_usable(stream);
  if (result) return result;
  if (stream->capture) sim_die("a graph launched into a capture is not known here");
  if (!sim.simulating) {
    ++stream->enqueued;
    return CUDA_SUCCESS;
  }
  sim_op* begin =
      sim_enqueue(stream, &(sim_work){.kind = SIM_WORK_GRAPH_BEGIN}, exec->last);
  sim_op** ends = sim_arena((exec->count + 1) * sizeof(sim_op*));
  size_t end_count = 0;
  for (size_t i = 0; i < exec->count; ++i) {
    exec->nodes[i].op = launch_node(exec, &exec->nodes[i], begin);
    if (exec->nodes[i].is_last) ends[end_count++] = exec->nodes[i].op;
  }
  sim_place place = {stream->chain, stream, ends, end_count};
  exec->last = sim_enqueue_at(&place, &(sim_work){.kind = SIM_WORK_GRAPH_END});
  exec->last->exec = exec;
  ++exec->pins;
  return CUDA_SUCCESS;
}

void sim_exec_drop(sim_exec* exec) {
  exec->object.dead = true;
  if (exec->pins) return;
  if (exec->last) sim_everyone_learns(exec->last);
  release_all(&exec->retained);
}

/* Whoever sees the effect of a destructor knows that the launches have ended. */
void sim_exec_unpin(sim_exec* exec, const sim_op* end) {
  --exec->pins;
  if (exec->pins || !exec->object.dead) return;
  sim_everyone_learns(end);
  release_all(&exec->retained);
}

void sim_graphs_drop(void) {
  for (bool more = true; more;) { /* destructors may make objects */
    more = false;
    for (sim_object* object = sim.objects; object && !more; object = object->next) {
      if (object->kind == SIM_GRAPH && ((sim_graph*)(void*)object)->retained.count) {
        sim_graph_drop((sim_graph*)(void*)object);
        more = true;
      } else if (object->kind == SIM_EXEC && ((sim_exec*)(void*)object)->retained.count) {
        ((sim_exec*)(void*)object)->pins = 0;
        sim_exec_drop((sim_exec*)(void*)object);
        more = true;
      }
    }
  }
}

void sim_object_free_inside(sim_object* object) {
  void* itself = object;
  switch ((int)object->kind) {
    case SIM_STREAM:
      sim_list_free(&((sim_stream*)itself)->capture_nodes);
      break;
    case SIM_EVENT:
      sim_list_free(&((sim_event*)itself)->nodes);
      break;
    case SIM_NODE:
      sim_list_free(&((sim_node*)itself)->before);
      break;
    case SIM_GRAPH:
      sim_list_free(&((sim_graph*)itself)->nodes);
      break;
    case SIM_EXEC:
      drop_exec_nodes(itself);
      break;
    default:
      break;
  }
}

/* ---- captures ---- */

CUresult sim_capture_start(sim_stream* stream, sim_capture_mode mode) {
  if (stream == stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return (CUresult)CUDA_ERROR_ILLEGAL_STATE;
  sim_capture* capture = sim_allocate(sizeof(*capture));
  *capture = (sim_capture){.next = sim.captures,
                           .status = CU_STREAM_CAPTURE_STATUS_ACTIVE,
                           .mode = mode,
                           .thread = sim_thread(),
                           .id = ++sim.next_id,
                           .origin = stream,
                           .graph = sim_graph_new()};
  sim.captures = capture;
  stream->capture = capture;
  stream->capture_nodes.count = 0;
  return CUDA_SUCCESS;
}

sim_capture* sim_capture_find(uint64_t id) {
  sim_capture* capture = sim.captures;
  while (capture && capture->id != id) capture = capture->next;
  return capture;
}

static void mark_reached(const sim_list* nodes) {
  for (size_t i = 0; i < nodes->count; ++i) {
    sim_node* node = nodes->items[i];
    if (node->index) continue;
    node->index = 1;
    mark_reached(&node->before);
  }
}

/* Whether the stream's last nodes are reached from those of the origin. */
static bool is_joined(sim_stream* stream) {
  for (size_t i = 0; i < stream->capture_nodes.count; ++i) {
    if (!((const sim_node*)stream->capture_nodes.items[i])->index) return false;
  }
  return true;
}

/* Calls `visit` for every stream of the capture; false when one of them said so. */
static bool for_streams(const sim_capture* capture, bool (*visit)(sim_stream*)) {
  bool all = true;
  for (sim_object* object = sim.objects; object; object = object->next) {
    sim_stream* stream = (sim_stream*)(void*)object;
    if (object->kind != SIM_STREAM || stream->capture != capture) continue;
    all = visit(stream) && all;
  }
  return all;
}

static bool detach(sim_stream* stream) {
  stream->capture = NULL;
  stream->capture_nodes.count = 0;
  return true;
}

static void end_capture(sim_capture* capture) {
  for_streams(capture, detach);
  sim_capture** link = &sim.captures;
  while (*link != capture) link = &(*link)->next;
  *link = capture->next;
  free(capture);
}

static bool all_joined(const sim_capture* capture) {
  for (size_t i = 0; i < capture->graph->nodes.count; ++i) {
    ((sim_node*)capture->graph->nodes.items[i])->index = 0;
  }
  mark_reached(&capture->origin->capture_nodes);
  return for_streams(capture, is_joined);
}

static CUresult result_of(const sim_capture* capture, const sim_stream* stream) {
  if (capture->mode != SIM_CAPTURE_RELAXED && capture->thread != sim_thread()) {
    return (CUresult)CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  if (capture->origin != stream) return (CUresult)CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return all_joined(capture) ? CUDA_SUCCESS
                             : (CUresult)CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

/* All but one failure end the capture, too. */
CUresult sim_capture_finish(sim_stream* stream, sim_graph** out_graph) {
  *out_graph = NULL;
  sim_capture* capture = stream->capture;
  if (!capture) return (CUresult)CUDA_ERROR_ILLEGAL_STATE;
  CUresult result = result_of(capture, stream);
  if ((int)result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED) {
    capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return result;
  }
  sim_graph* graph = capture->graph;
  end_capture(capture);
  if (result) {
    sim_graph_drop(graph);
  } else {
    *out_graph = graph;
  }
  return result;
}

/* A stream that goes away takes the capture it began along. */
void sim_capture_leave(sim_stream* stream) {
  sim_capture* capture = stream->capture;
  if (!capture) return;
  capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (capture->origin != stream) {
    detach(stream);
    return;
  }
  sim_graph* graph = capture->graph;
  end_capture(capture);
  sim_graph_drop(graph);
}

CUresult sim_submit(sim_stream* stream, const sim_work* work) {
  CUresult result = sim_stream_usable(stream);
  if (result) return result;
  if (stream->capture) {
    sim_node* node = sim_graph_add(stream->capture->graph, &stream->capture_nodes, work);
    stream->capture_nodes.count = 0;
    sim_list_add(&stream->capture_nodes, node);
  } else if (sim.simulating) {
    sim_work copy = *work;
    size_t size_bytes =
        work->kind == SIM_WORK_KERNEL ? sim_parameter_bytes(work->kernel) : 0;
    copy.parameters = sim_arena(size_bytes);
    if (size_bytes) memcpy(copy.parameters, work->parameters, size_bytes);
    sim_enqueue(stream, &copy, NULL);
  } else {
    ++stream->enqueued;
  }
  return CUDA_SUCCESS;
}
