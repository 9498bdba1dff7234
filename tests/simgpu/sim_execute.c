/* What operations do when they run. */
#include <stdlib.h>
#include <string.h>

#include "tests/simgpu/sim_memory.h"

/* ---- what is known of kernels ---- */

typedef struct sim_behaviour {
  struct sim_behaviour* next; /* the one before it */
  char* name_part;
  char* access; /* NULL: a function */
  sim_kernel_fn function;
  void* user_data;
} sim_behaviour;

static sim_behaviour* behaviours;
static uint64_t behaviour_age;

static char* copy_text(const char* text) {
  char* copy = strdup(text);
  if (!copy) sim_die("out of memory");
  return copy;
}

static void add_behaviour(const sim_behaviour* behaviour) {
  pthread_mutex_lock(&sim.mutex);
  sim_behaviour* added = sim_allocate(sizeof(*added));
  *added = *behaviour;
  added->next = behaviours;
  behaviours = added;
  ++behaviour_age;
  pthread_mutex_unlock(&sim.mutex);
}

void sim_register_kernel(const char* name_part, sim_kernel_fn function, void* user_data) {
  add_behaviour(&(sim_behaviour){
      .name_part = copy_text(name_part), .function = function, .user_data = user_data});
}

void sim_declare_kernel(const char* name_part, const char* access) {
  add_behaviour(
      &(sim_behaviour){.name_part = copy_text(name_part), .access = copy_text(access)});
}

static void look_up_behaviour(sim_kernel* kernel) {
  if (kernel->behaviour_age == behaviour_age) return;
  kernel->behaviour_age = behaviour_age;
  kernel->declared = kernel->registered = NULL;
  for (const sim_behaviour* one = behaviours; one; one = one->next) {
    if (!strstr(kernel->name, one->name_part)) continue;
    const sim_behaviour** slot = one->access ? &kernel->declared : &kernel->registered;
    if (!*slot) *slot = one;
  }
}

const char* sim_kernel_access(sim_kernel* kernel) {
  look_up_behaviour(kernel);
  return kernel->declared ? kernel->declared->access : NULL;
}

/* ---- the effect of a kernel that is only declared ---- */

uint64_t sim_mix(uint64_t state, uint64_t value) {
  uint64_t mixed = (state ^ value) + 0x9e3779b97f4a7c15u + (state << 6);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  return mixed ^ (mixed >> 27);
}

static size_t first_bytes(size_t size_bytes) { return size_bytes < 8 ? size_bytes : 8; }

static void mix(const sim_work* work, const char* access) {
  const sim_kernel_info* info = &work->kernel->info;
  uint64_t state = 0;
  for (int writing = 0; writing < 2; ++writing) {
    for (uint32_t i = 0; i < info->parameter_count && access[i]; ++i) {
      uint64_t value = 0;
      memcpy(&value, work->parameters + info->offsets[i], first_bytes(info->sizes[i]));
      char letter = access[i];
      if (letter == 'v' && !writing) state = sim_mix(state, value);
      if (letter == 'v' || letter == '-') continue;
      void* pointer = (void*)(uintptr_t)value;
      size_t size_bytes = first_bytes(sim_mapped_bytes(pointer));
      uint64_t content = 0;
      if (writing && letter != 'r') {
        content = sim_mix(state, i);
        memcpy(pointer, &content, size_bytes);
      } else if (!writing && letter != 'w') {
        memcpy(&content, pointer, size_bytes);
        state = sim_mix(state, content);
      }
    }
  }
}

/* ---- to run ---- */

_Thread_local sim_op* sim_running_host;

static void call_kernel(const sim_op* op, const sim_behaviour* behaviour) {
  const sim_work* work = &op->work;
  sim_kernel_call call = {.kernel = work->kernel->name,
                          .stream = op->stream,
                          .context = op->stream->context,
                          .device = op->stream->context->device,
                          .shared_bytes = work->shared_bytes,
                          .parameter_count = work->kernel->info.parameter_count,
                          .parameter_sizes = work->kernel->info.sizes,
                          .parameter_offsets = work->kernel->info.offsets,
                          .parameters = work->parameters};
  memcpy(call.grid, work->grid, sizeof(call.grid));
  memcpy(call.block, work->block, sizeof(call.block));
  behaviour->function(behaviour->user_data, &call);
}

/* Code of tests runs without the lock: it may take one that a caller of the driver holds
 * (Python's, say). */
static void call_outside(sim_op* op, const sim_behaviour* behaviour) {
  sim_record* record = sim_current_record();
  const char* outer = sim_in_callback;
  sim_in_callback = behaviour ? "a kernel" : "a host function";
  if (!behaviour) sim_running_host = op;
  pthread_mutex_unlock(&sim.mutex);
  if (behaviour) {
    call_kernel(op, behaviour);
  } else {
    op->work.function(op->work.user_data);
  }
  pthread_mutex_lock(&sim.mutex);
  sim_running_host = NULL;
  sim_in_callback = outer;
  sim_set_current_record(record);
}

static void fill(const sim_work* work) {
  uint8_t* target = work->target;
  for (size_t i = 0; i < work->size_bytes; i += work->value_bytes) {
    memcpy(target + i, &work->value, work->value_bytes);
  }
}

void sim_execute(sim_op* op) {
  const sim_work* work = &op->work;
  switch (work->kind) {
    case SIM_WORK_KERNEL:
      look_up_behaviour(work->kernel);
      if (work->kernel->registered) {
        call_outside(op, work->kernel->registered);
      } else if (work->kernel->declared) {
        mix(work, work->kernel->declared->access);
      }
      break;
    case SIM_WORK_FILL:
      fill(work);
      break;
    case SIM_WORK_COPY:
      if (work->size_bytes) memmove(work->target, work->source, work->size_bytes);
      break;
    case SIM_WORK_HOST:
      call_outside(op, NULL);
      break;
    case SIM_WORK_ALLOC:
      sim_spoil(work->target, work->size_bytes, 0xcd);
      break;
    case SIM_WORK_FREE: {
      size_t size_bytes = sim_mapped_bytes(work->target);
      if (size_bytes) sim_spoil(work->target, size_bytes, 0xdd);
      break;
    }
    default:
      break;
  }
}
