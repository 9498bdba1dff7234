/* What tests do to the machine, and what the other users of a device would do. */
#include <pthread.h>

#include "tests/simgpu/sim_state.h"

enum { MAX_RANGES = 64 };

static struct {
  uintptr_t begin;
  uintptr_t end;
} pinned[MAX_RANGES];
static size_t pinned_count;

bool sim_is_pinned(uintptr_t address) {
  for (size_t i = 0; i < pinned_count; ++i) {
    if (address >= pinned[i].begin && address < pinned[i].end) return true;
  }
  return false;
}

void sim_host_register(const void* pointer, size_t size_bytes) {
  if (pinned_count == MAX_RANGES) sim_die("too much pinned memory");
  pinned[pinned_count].begin = (uintptr_t)pointer;
  pinned[pinned_count++].end = (uintptr_t)pointer + size_bytes;
}

void sim_set_device_count(int count) {
  if (count > SIM_MAX_DEVICES) sim_die("at most %d devices", SIM_MAX_DEVICES);
  sim.device_count = count;
}

void sim_set_version(int version) { sim.version = version; }

void sim_set_capability(int device, int major, int minor) {
  sim.devices[device].major = major;
  sim.devices[device].minor = minor;
}

void sim_deinitialize(void) { sim.deinitialized = true; }

sim_live sim_get_live(void) {
  sim_live live = {0};
  for (int i = 0; i < SIM_MAX_DEVICES; ++i)
    live.primary_retains += sim.devices[i].retains;
  live.events = sim_count_live(SIM_EVENT);
  live.user_objects = sim_count_live(SIM_USER_OBJECT);
  for (const sim_object* object = sim.objects; object; object = object->next) {
    if (object->kind != SIM_LIBRARY || object->dead) continue;
    ++*(((const sim_library*)(const void*)object)->context ? &live.modules
                                                           : &live.libraries);
  }
  return live;
}

void* sim_primary_context(int device) {
  pthread_mutex_lock(&sim.mutex);
  if (!sim.devices[device].primary) sim.devices[device].primary = sim_new_context(device);
  pthread_mutex_unlock(&sim.mutex);
  return sim.devices[device].primary;
}

void* sim_context_create(int device) {
  pthread_mutex_lock(&sim.mutex);
  void* context = sim_new_context(device);
  pthread_mutex_unlock(&sim.mutex);
  return context;
}

void sim_set_current(void* context) {
  sim_current = context ? sim_check(context, SIM_CONTEXT) : NULL;
}

void* sim_get_current(void) { return sim_current; }

void* sim_stream_create(void* context, int non_blocking) {
  pthread_mutex_lock(&sim.mutex);
  void* stream = sim_new_stream(sim_check(context, SIM_CONTEXT), !non_blocking);
  pthread_mutex_unlock(&sim.mutex);
  return stream;
}

static sim_stream* find(void* handle) {
  sim_stream* stream = sim_find_stream(handle);
  if (!stream) sim_die("a special stream handle without a current context");
  return stream;
}

void sim_complete(void* handle) {
  pthread_mutex_lock(&sim.mutex);
  sim_stream* stream = find(handle);
  uint64_t reached = stream->enqueued;
  for (size_t i = 0; i < stream->wait_count; ++i) {
    const sim_wait* wait = &stream->waits[i];
    bool satisfied = wait->other->completed >= wait->other_position;
    if (!satisfied && wait->position < reached) reached = wait->position;
  }
  if (stream->completed < reached) stream->completed = reached;
  pthread_mutex_unlock(&sim.mutex);
}

void sim_capture_begin(void* handle, sim_capture_mode mode) {
  pthread_mutex_lock(&sim.mutex);
  sim_stream* stream = find(handle);
  if (stream == stream->context->legacy) sim_die("the legacy stream cannot be captured");
  if (stream->capture_status) sim_die("the stream is being captured already");
  stream->capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  stream->capture_mode = mode;
  stream->capture_thread = sim_thread();
  stream->capture_id = ++sim.next_capture_id;
  stream->graph = sim_new(SIM_GRAPH, sizeof(sim_graph));
  pthread_mutex_unlock(&sim.mutex);
}

int sim_capture_status(void* handle) { return find(handle)->capture_status; }

void* sim_capture_end(void* handle) {
  pthread_mutex_lock(&sim.mutex);
  sim_stream* stream = find(handle);
  if (!stream->capture_status) sim_die("the stream is not being captured");
  if (stream->capture_thread != sim_thread() &&
      stream->capture_mode != SIM_CAPTURE_RELAXED) {
    sim_die("a capture ends on the thread it began on");
  }
  bool valid = stream->capture_status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  sim_graph* graph = stream->graph;
  stream->capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
  stream->graph = NULL;
  pthread_mutex_unlock(&sim.mutex);
  if (valid) return graph;
  sim_graph_destroy(graph);
  return NULL;
}

size_t sim_graph_kernel_count(void* graph) {
  return ((sim_graph*)sim_check(graph, SIM_GRAPH))->kernel_count;
}

static void* run_destructors(void* argument) {
  sim_graph* graph = argument;
  sim_in_destructor = true;
  for (size_t i = 0; i < graph->retained_count; ++i) {
    sim_user_object* object = graph->retained[i];
    if (--object->count) continue;
    object->object.dead = true;
    object->destroy(object->pointer);
  }
  return NULL;
}

void sim_graph_destroy(void* handle) {
  sim_graph* graph = sim_check(handle, SIM_GRAPH);
  graph->object.dead = true;
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_destructors, graph)) sim_die("no thread");
  pthread_join(thread, NULL);
}
