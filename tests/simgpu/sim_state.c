#include "tests/simgpu/sim_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

sim_machine sim = {
    .mutex = PTHREAD_MUTEX_INITIALIZER, .device_count = -1, .version = 13000};
_Thread_local sim_context* sim_current;
_Thread_local unsigned int sim_thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
_Thread_local bool sim_in_destructor;

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

uint64_t sim_thread(void) { return (uint64_t)pthread_self(); }

void* sim_new(sim_kind kind, size_t size_bytes) {
  sim_object* object = calloc(1, size_bytes);
  if (!object) sim_die("out of memory");
  object->kind = kind;
  object->next = sim.objects;
  sim.objects = object;
  return object;
}

void* sim_check(const void* handle, sim_kind kind) {
  for (sim_object* object = sim.objects; object; object = object->next) {
    if (object != handle) continue;
    if (object->kind != kind)
      sim_die("handle %p is of kind %d, not %d", handle, object->kind, kind);
    if (object->dead) sim_die("handle %p (kind %d) was destroyed", handle, kind);
    return object;
  }
  sim_die("unknown handle %p (kind %d)", handle, kind);
}

size_t sim_count_live(sim_kind kind) {
  size_t count = 0;
  for (const sim_object* object = sim.objects; object; object = object->next) {
    count += object->kind == kind && !object->dead;
  }
  return count;
}

sim_stream* sim_new_stream(sim_context* context, bool blocking) {
  sim_stream* stream = sim_new(SIM_STREAM, sizeof(*stream));
  stream->context = context;
  stream->blocking = blocking;
  return stream;
}

sim_context* sim_new_context(int device) {
  sim_context* context = sim_new(SIM_CONTEXT, sizeof(*context));
  context->device = device;
  context->legacy = sim_new_stream(context, false);
  context->per_thread = sim_new_stream(context, true);
  return context;
}

sim_stream* sim_find_stream(const void* handle) {
  if ((uintptr_t)handle > 2) return sim_check(handle, SIM_STREAM);
  if (!sim_current) return NULL;
  return (uintptr_t)handle == 2 ? sim_current->per_thread : sim_current->legacy;
}

static bool forbids(const sim_stream* stream) {
  if (stream->object.kind != SIM_STREAM || !stream->capture_status) return false;
  if (sim_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (stream->capture_thread == sim_thread()) {
    return stream->capture_mode != SIM_CAPTURE_RELAXED;
  }
  return sim_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         stream->capture_mode == SIM_CAPTURE_GLOBAL;
}

bool sim_unsafe_call_allowed(void) {
  bool allowed = true;
  for (sim_object* object = sim.objects; object; object = object->next) {
    sim_stream* stream = (sim_stream*)(void*)object;
    if (object->kind != SIM_STREAM || !forbids(stream)) continue;
    stream->capture_status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    allowed = false;
  }
  return allowed;
}

sim_stream* sim_implicit_capture(const sim_stream* stream) {
  if (stream != stream->context->legacy) return NULL;
  for (sim_object* object = sim.objects; object; object = object->next) {
    sim_stream* other = (sim_stream*)(void*)object;
    if (object->kind == SIM_STREAM && other->context == stream->context &&
        other->blocking && other->capture_status) {
      return other;
    }
  }
  return NULL;
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
  if (sim_in_destructor)
    sim_die("%s called by the destructor of a user object", function);
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
  pthread_mutex_unlock(&sim.mutex);
  return result;
}

sim_record* sim_current_record(void) { return current_record; }

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
