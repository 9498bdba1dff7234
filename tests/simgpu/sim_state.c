#include "tests/simgpu/sim_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/simgpu/sim_queue.h"

sim_machine sim = {
    .mutex = PTHREAD_MUTEX_INITIALIZER, .device_count = -1, .version = 13000};
_Thread_local sim_context* sim_current;
_Thread_local unsigned int sim_thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
_Thread_local const char* sim_in_callback;

typedef struct injection {
  char function[64];
  int nth;
  int code;
} injection;

/* Records are kept in blocks that never move. */
enum { BLOCK_RECORDS = 256, MAX_BLOCKS = 4096, MAX_INJECTIONS = 16 };
static sim_record* blocks[MAX_BLOCKS];
static size_t record_count;
static bool recording = true;
static sim_record scratch;
static sim_record* current_record = &scratch;
static injection injections[MAX_INJECTIONS];

void sim_die(const char* format, ...) {
  va_list args;
  va_start(args, format);
  fputs("simgpu: ", stderr);
  vfprintf(stderr, format, args);
  fputs("\n", stderr);
  va_end(args);
  abort();
}

void* sim_allocate(size_t size_bytes) {
  void* memory = calloc(1, size_bytes);
  if (!memory) sim_die("out of memory");
  return memory;
}

void sim_list_add(sim_list* list, void* item) {
  if (list->count == list->capacity) {
    list->capacity = list->capacity ? 2 * list->capacity : 4;
    list->items = realloc(list->items, list->capacity * sizeof(void*));
    if (!list->items) sim_die("out of memory");
  }
  list->items[list->count++] = item;
}

static bool list_has(const sim_list* list, const void* item) {
  for (size_t i = 0; i < list->count; ++i) {
    if (list->items[i] == item) return true;
  }
  return false;
}

void sim_list_append(sim_list* list, const sim_list* items) {
  for (size_t i = 0; i < items->count; ++i) {
    if (!list_has(list, items->items[i])) sim_list_add(list, items->items[i]);
  }
}

void sim_list_free(sim_list* list) {
  free(list->items);
  *list = (sim_list){0};
}

uint64_t sim_thread(void) { return (uint64_t)pthread_self(); }

/* ---- handles: a table by address, with room to spare ---- */

static struct {
  sim_object** slots;
  size_t capacity; /* a power of two */
  size_t count;
} handles;

static size_t slot_of(const void* handle) {
  uint64_t mixed = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;
  return (size_t)(mixed >> 20) & (handles.capacity - 1);
}

static void place(sim_object* object) {
  size_t slot = slot_of(object);
  while (handles.slots[slot]) slot = (slot + 1) & (handles.capacity - 1);
  handles.slots[slot] = object;
}

static void rebuild(size_t capacity) {
  free(handles.slots);
  handles.slots = sim_allocate(capacity * sizeof(sim_object*));
  handles.capacity = capacity;
  handles.count = 0;
  for (sim_object* object = sim.objects; object; object = object->next) {
    place(object);
    ++handles.count;
  }
}

static sim_object* look_up(const void* handle) {
  if (!handles.capacity) return NULL;
  size_t slot = slot_of(handle);
  while (handles.slots[slot] && handles.slots[slot] != handle) {
    slot = (slot + 1) & (handles.capacity - 1);
  }
  return handles.slots[slot];
}

void* sim_new(sim_kind kind, size_t size_bytes) {
  sim_object* object = sim_allocate(size_bytes);
  object->kind = kind;
  object->next = sim.objects;
  sim.objects = object;
  if (2 * (handles.count + 1) > handles.capacity) {
    rebuild(handles.capacity ? 2 * handles.capacity : 1024);
  } else {
    place(object);
    ++handles.count;
  }
  return object;
}

void* sim_check(const void* handle, sim_kind kind) {
  sim_object* object = look_up(handle);
  if (!object) sim_die("unknown handle %p (kind %d)", handle, kind);
  if (object->kind != kind)
    sim_die("handle %p is of kind %d, not %d", handle, object->kind, kind);
  if (object->dead) sim_die("handle %p (kind %d) was destroyed", handle, kind);
  return object;
}

sim_kind sim_kind_of(const void* handle) {
  const sim_object* object = look_up(handle);
  return object && !object->dead ? object->kind : 0;
}

size_t sim_count_live(sim_kind kind) {
  size_t count = 0;
  for (const sim_object* object = sim.objects; object; object = object->next) {
    count += object->kind == kind && !object->dead;
  }
  return count;
}

void sim_forget_objects(bool (*forget)(sim_object* object)) {
  sim_object** link = &sim.objects;
  while (*link) {
    sim_object* object = *link;
    if (!forget(object)) {
      link = &object->next;
      continue;
    }
    *link = object->next;
    free(object);
  }
  rebuild(handles.capacity ? handles.capacity : 1024);
}

/* ---- streams ---- */

sim_stream* sim_new_stream(sim_context* context, bool blocking) {
  sim_stream* stream = sim_new(SIM_STREAM, sizeof(*stream));
  stream->context = context;
  stream->blocking = blocking;
  stream->id = ++sim.next_id;
  stream->next = context->streams;
  context->streams = stream;
  return stream;
}

sim_stream* sim_dead_stream(sim_context* context, bool blocking) {
  sim_stream* stream = context->streams;
  while (stream && !(stream->object.dead && stream->blocking == blocking)) {
    stream = stream->next;
  }
  return stream;
}

sim_context* sim_new_context(int device) {
  sim_context* context = sim_new(SIM_CONTEXT, sizeof(*context));
  context->device = device;
  context->legacy = sim_new_stream(context, false);
  context->legacy->is_default = true;
  return context;
}

static sim_stream* per_thread_stream(sim_context* context) {
  for (sim_stream* stream = context->streams; stream; stream = stream->next) {
    if (stream->thread == sim_thread()) return stream;
  }
  sim_stream* stream = sim_new_stream(context, true);
  stream->is_default = true;
  stream->thread = sim_thread();
  return stream;
}

sim_stream* sim_find_stream(const void* handle) {
  if ((uintptr_t)handle > 2) return sim_check(handle, SIM_STREAM);
  if (!sim_current) return NULL;
  return (uintptr_t)handle == 2 ? per_thread_stream(sim_current) : sim_current->legacy;
}

/* ---- the rules of capture ---- */

static bool forbids(const sim_capture* capture) {
  if (sim_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture->thread == sim_thread()) return capture->mode != SIM_CAPTURE_RELAXED;
  return sim_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         capture->mode == SIM_CAPTURE_GLOBAL;
}

bool sim_unsafe_call_allowed(void) {
  bool allowed = true;
  for (sim_capture* capture = sim.captures; capture; capture = capture->next) {
    if (!forbids(capture)) continue;
    capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    allowed = false;
  }
  return allowed;
}

sim_capture* sim_implicit_capture(const sim_stream* stream) {
  if (!sim.captures || stream != stream->context->legacy) return NULL;
  for (sim_stream* other = stream->context->streams; other; other = other->next) {
    if (other->blocking && other->capture) return other->capture;
  }
  return NULL;
}

CUresult sim_stream_usable(sim_stream* stream) {
  sim_capture* captured = sim_implicit_capture(stream);
  if (captured) {
    captured->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  bool invalid =
      stream->capture && stream->capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

/* ---- records ---- */

static sim_record* new_record(const char* function) {
  if (!recording) {
    memset(&scratch, 0, sizeof(scratch));
    return &scratch;
  }
  size_t block = record_count / BLOCK_RECORDS;
  if (block >= MAX_BLOCKS) sim_die("too many calls to record");
  if (!blocks[block]) blocks[block] = calloc(BLOCK_RECORDS, sizeof(sim_record));
  if (!blocks[block]) sim_die("out of memory");
  sim_record* record = &blocks[block][record_count++ % BLOCK_RECORDS];
  memset(record, 0, sizeof(*record));
  record->function = function;
  record->thread = sim_thread();
  record->current_context = sim_current;
  record->mode = sim_thread_mode;
  return record;
}

static CUresult injected(const char* function) {
  for (size_t i = 0; i < MAX_INJECTIONS; ++i) {
    if (injections[i].nth <= 0 || strcmp(injections[i].function, function)) continue;
    if (--injections[i].nth == 0) return (CUresult)injections[i].code;
  }
  return CUDA_SUCCESS;
}

CUresult sim_enter(const char* function, bool needs_init) {
  if (sim_in_callback) sim_die("%s called by %s", function, sim_in_callback);
  pthread_mutex_lock(&sim.mutex);
  if (sim.initialized && needs_init && sim.process != (int)getpid()) {
    sim_die("%s called in a forked child", function);
  }
  current_record = new_record(function);
  CUresult result = injected(function);
  if (result) return result;
  if (sim.deinitialized) return CUDA_ERROR_DEINITIALIZED;
  return needs_init && !sim.initialized ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

CUresult sim_leave(CUresult result) {
  current_record->result = (int)result;
  if (sim.simulating) sim_queue_nudge();
  pthread_mutex_unlock(&sim.mutex);
  return result;
}

sim_record* sim_current_record(void) { return current_record; }

void sim_set_current_record(sim_record* record) { current_record = record; }

size_t sim_record_count(void) { return record_count; }

const sim_record* sim_record_at(size_t index) {
  if (index >= record_count) sim_die("there is no record %zu", index);
  return &blocks[index / BLOCK_RECORDS][index % BLOCK_RECORDS];
}

const sim_record* sim_last(const char* function) {
  for (size_t i = record_count; i-- > 0;) {
    if (strcmp(sim_record_at(i)->function, function) == 0) return sim_record_at(i);
  }
  return NULL;
}

size_t sim_call_count(const char* function) {
  size_t count = 0;
  for (size_t i = 0; i < record_count; ++i) {
    count += strcmp(sim_record_at(i)->function, function) == 0;
  }
  return count;
}

void sim_clear_records(void) { record_count = 0; }

void sim_set_recording(int on) { recording = on != 0; }

void sim_inject(const char* function, int nth, int code) {
  for (size_t i = 0; i < MAX_INJECTIONS; ++i) {
    if (injections[i].nth > 0) continue;
    snprintf(injections[i].function, sizeof(injections[i].function), "%s", function);
    injections[i].nth = nth;
    injections[i].code = code;
    return;
  }
  sim_die("too many injected errors");
}
