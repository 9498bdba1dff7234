/* What tests do to the machine, and what the other users of a device would do. */
#include <pthread.h>

#include "tests/simgpu/sim_graph.h"
#include "tests/simgpu/sim_memory.h"

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
  const sim_allocation* allocation = sim_find_allocation((const void*)address);
  return allocation && allocation->kind == SIM_MEMORY_PINNED;
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
  size_t left = 0;
  for (size_t i = 0; i < stream->wait_count; ++i) {
    const sim_wait wait = stream->waits[i];
    if (wait.other->completed >= wait.other_position) continue;
    if (wait.position < reached) reached = wait.position;
    stream->waits[left++] = wait;
  }
  stream->wait_count = left;
  if (stream->completed < reached) stream->completed = reached;
  pthread_mutex_unlock(&sim.mutex);
}

void sim_capture_begin(void* handle, sim_capture_mode mode) {
  pthread_mutex_lock(&sim.mutex);
  CUresult result = sim_capture_start(find(handle), mode);
  if (result) sim_die("a capture cannot begin: %d", (int)result);
  pthread_mutex_unlock(&sim.mutex);
}

int sim_capture_status(void* handle) {
  const sim_capture* capture = find(handle)->capture;
  return capture ? capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
}

void* sim_capture_end(void* handle) {
  pthread_mutex_lock(&sim.mutex);
  sim_graph* graph = NULL;
  CUresult result = sim_capture_finish(find(handle), &graph);
  if (result && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
    sim_die("a capture cannot end: %d", (int)result);
  }
  pthread_mutex_unlock(&sim.mutex);
  return graph;
}

size_t sim_graph_kernel_count(void* graph) {
  return ((sim_graph*)sim_check(graph, SIM_GRAPH))->kernel_count;
}

void sim_graph_destroy(void* handle) {
  pthread_mutex_lock(&sim.mutex);
  sim_graph_drop(sim_check(handle, SIM_GRAPH));
  pthread_mutex_unlock(&sim.mutex);
}

/* ---- programs ---- */

static void forget_work_of(sim_object* object) {
  void* itself = object;
  if (object->kind == SIM_CONTEXT) {
    ((sim_context*)itself)->past.count = 0;
  } else if (object->kind == SIM_STREAM) {
    sim_stream* stream = itself;
    stream->chain = 0;
    stream->enqueued = stream->completed = 0;
    stream->wait_count = 0;
  } else if (object->kind == SIM_EVENT) {
    sim_event* event = itself;
    event->stream = NULL;
    event->op = NULL;
    event->capture_id = 0;
    event->nodes.count = 0;
  } else if (object->kind == SIM_EXEC) {
    sim_exec* exec = itself;
    exec->last = NULL;
    exec->pins = 0;
    for (size_t i = 0; i < exec->count; ++i) exec->nodes[i].chain = 0;
  }
}

static void forget_work(void) {
  for (sim_object* object = sim.objects; object; object = object->next) {
    forget_work_of(object);
  }
  sim_reports_forget();
  sim_memory_forget();
}

void sim_schedule_begin(uint64_t seed) {
  pthread_mutex_lock(&sim.mutex);
  forget_work();
  sim_queue_begin(seed);
  sim.simulating = true;
  pthread_mutex_unlock(&sim.mutex);
}

size_t sim_schedule_end(void) {
  sim_run_all();
  pthread_mutex_lock(&sim.mutex);
  sim_memory_report_leaks();
  pthread_mutex_unlock(&sim.mutex);
  return sim_report_count();
}

static bool ends_with_program(sim_object* object) {
  switch (object->kind) {
    case SIM_STREAM:
      return !((sim_stream*)(void*)object)->is_default;
    case SIM_GRAPH:
    case SIM_NODE:
    case SIM_EXEC:
      return true;
    case SIM_EVENT:
    case SIM_USER_OBJECT:
      return object->dead;
    default:
      return false;
  }
}

static bool forget(sim_object* object) {
  if (!ends_with_program(object)) return false;
  if (object->kind == SIM_STREAM) {
    sim_stream* stream = (sim_stream*)(void*)object;
    sim_stream** link = &stream->context->streams;
    while (*link != stream) link = &(*link)->next;
    *link = stream->next;
  }
  sim_object_free_inside(object);
  return true;
}

void sim_reset(void) {
  pthread_mutex_lock(&sim.mutex);
  while (sim.captures) sim_capture_leave(sim.captures->origin);
  sim_graphs_drop();
  forget_work();
  sim_queue_forget();
  sim.simulating = false;
  sim_forget_objects(forget);
  pthread_mutex_unlock(&sim.mutex);
  sim_clear_records();
}
