/* The happens-before checker: each access against those before it in the order of calls,
 * by clocks. */
#include <stdlib.h>
#include <string.h>

#include "tests/simgpu/sim_memory.h"

static bool either_way(const sim_op* one, const sim_op* other) {
  return sim_ordered(one, other) || sim_ordered(other, one);
}

static void check_birth(const sim_allocation* allocation, const sim_access* access,
                        const void* pointer) {
  if (allocation->kind != SIM_MEMORY_POOL || sim_ordered(allocation->born, access->op)) {
    return;
  }
  sim_access born = {allocation->born, true};
  sim_report_add(SIM_RACE, allocation, pointer, &born, access);
}

static bool check_accesses(const sim_allocation* allocation, const sim_access* access,
                           const void* pointer) {
  bool written = false;
  for (size_t i = 0; i < allocation->access_count; ++i) {
    const sim_access* earlier = &allocation->accesses[i];
    written |= earlier->write;
    if ((earlier->write || access->write) && !either_way(earlier->op, access->op)) {
      sim_report_add(SIM_RACE, allocation, pointer, earlier, access);
    }
  }
  return written;
}

static void remember(sim_allocation* allocation, sim_access access) {
  size_t kept = 0;
  for (size_t i = 0; i < allocation->access_count; ++i) {
    sim_access earlier = allocation->accesses[i];
    bool covered = sim_ordered(earlier.op, access.op) && (access.write || !earlier.write);
    if (!covered) allocation->accesses[kept++] = earlier;
  }
  allocation->access_count = kept;
  if (kept == allocation->access_capacity) {
    size_t capacity = kept ? 2 * kept : 8;
    sim_access* grown = sim_arena(capacity * sizeof(*grown));
    if (kept) memcpy(grown, allocation->accesses, kept * sizeof(*grown));
    allocation->accesses = grown;
    allocation->access_capacity = capacity;
  }
  allocation->accesses[allocation->access_count++] = access;
}

static void touch(sim_op* op, const sim_allocation* allocation, bool write) {
  sim_touch* touched = sim_arena(sizeof(*touched));
  *touched = (sim_touch){op->touched, allocation, write};
  op->touched = touched;
}

static void check_device(const sim_allocation* allocation, const sim_access* access,
                         const void* pointer) {
  const sim_stream* stream = access->op->stream;
  if (!stream || allocation->device < 0) return;
  if (stream->context->device == allocation->device) return;
  sim_report_add(SIM_WRONG_DEVICE, allocation, pointer, NULL, access);
}

void sim_memory_check_access(sim_op* op, const void* pointer, bool read, bool write) {
  sim_allocation* allocation = sim_find_allocation(pointer);
  sim_access access = {op, write};
  if (!allocation) {
    if (sim_is_pinned((uintptr_t)pointer)) return;
    sim_report_add(SIM_UNKNOWN_MEMORY, NULL, pointer, NULL, &access);
    return;
  }
  touch(op, allocation, write);
  if (allocation->freed && !sim_ordered(op, allocation->freed)) {
    sim_access freed = {allocation->freed, true};
    sim_report_add(SIM_USE_AFTER_FREE, allocation, pointer, &freed, &access);
    return;
  }
  check_device(allocation, &access, pointer);
  check_birth(allocation, &access, pointer);
  bool written = check_accesses(allocation, &access, pointer);
  if (read && !written && !allocation->unwritten_reported) {
    allocation->unwritten_reported = true;
    sim_report_add(SIM_UNINITIALISED_READ, allocation, pointer, NULL, &access);
  }
  remember(allocation, access);
}

static void check_free(sim_op* op) {
  sim_allocation* allocation = sim_find_allocation(op->work.target);
  sim_access access = {op, true};
  if (!allocation || allocation->freed || allocation->pointer != op->work.target) {
    sim_access freed = {allocation ? allocation->freed : NULL, true};
    sim_report_add(SIM_DOUBLE_FREE, allocation, op->work.target, freed.op ? &freed : NULL,
                   &access);
    return;
  }
  touch(op, allocation, true);
  allocation->freed = op;
  if (allocation->kind == SIM_MEMORY_POOL && !sim_ordered(allocation->born, op)) {
    sim_access born = {allocation->born, true};
    sim_report_add(SIM_UNORDERED_FREE, allocation, op->work.target, &born, &access);
  }
  for (size_t i = 0; i < allocation->access_count; ++i) {
    if (sim_ordered(allocation->accesses[i].op, op)) continue;
    sim_report_add(SIM_UNORDERED_FREE, allocation, op->work.target,
                   &allocation->accesses[i], &access);
  }
}

/* ---- by kind of work ---- */

static const void* pointer_parameter(const sim_work* work, uint32_t index) {
  const sim_kernel_info* info = &work->kernel->info;
  const void* pointer = NULL;
  if (info->sizes[index] < sizeof(pointer)) return NULL;
  memcpy(&pointer, work->parameters + info->offsets[index], sizeof(pointer));
  return pointer;
}

static void check_undeclared(sim_op* op) {
  const sim_kernel_info* info = &op->work.kernel->info;
  for (uint32_t i = 0; i < info->parameter_count; ++i) {
    const void* pointer = info->sizes[i] == 8 ? pointer_parameter(&op->work, i) : NULL;
    if (pointer && sim_find_allocation(pointer)) {
      sim_memory_check_access(op, pointer, false, true);
    }
  }
}

/* Reads before writes: a kernel does not initialise what it reads. */
static void check_kernel(sim_op* op) {
  const char* access = sim_kernel_access(op->work.kernel);
  if (!access) {
    check_undeclared(op);
    return;
  }
  for (int writing = 0; writing < 2; ++writing) {
    for (uint32_t i = 0; i < op->work.kernel->info.parameter_count && access[i]; ++i) {
      bool applies = writing ? access[i] == 'w' || access[i] == 'u'
                             : access[i] == 'r' || access[i] == 'u';
      const void* pointer = applies ? pointer_parameter(&op->work, i) : NULL;
      if (pointer) sim_memory_check_access(op, pointer, !writing, writing);
    }
  }
}

static bool fits(const void* pointer, size_t size_bytes) {
  const sim_allocation* allocation = sim_find_allocation(pointer);
  if (!allocation) return false;
  size_t offset = (size_t)((const uint8_t*)pointer - allocation->pointer);
  return size_bytes <= allocation->size_bytes - offset;
}

/* A copy's end in pageable memory is the host's own affair; so is a range too long. */
static void check_copy(sim_op* op) {
  const sim_work* work = &op->work;
  size_t size_bytes = work->size_bytes;
  const void* const ends[] = {work->source, work->target};
  for (int i = 0; i < 2; ++i) {
    if (!sim_mapped_bytes(ends[i])) continue;
    if (!fits(ends[i], size_bytes)) {
      sim_access access = {op, i == 1};
      sim_report_add(SIM_UNKNOWN_MEMORY, NULL, ends[i], NULL, &access);
      op->work.size_bytes = 0;
    } else if (size_bytes) {
      sim_memory_check_access(op, ends[i], i == 0, i == 1);
    }
  }
}

static void check_fill(sim_op* op) {
  if (!op->work.size_bytes) return;
  if (fits(op->work.target, op->work.size_bytes)) {
    sim_memory_check_access(op, op->work.target, false, true);
    return;
  }
  sim_access access = {op, true};
  sim_report_add(SIM_UNKNOWN_MEMORY, NULL, op->work.target, NULL, &access);
  op->work.size_bytes = 0;
}

void sim_memory_check(sim_op* op) {
  switch (op->work.kind) {
    case SIM_WORK_KERNEL:
      check_kernel(op);
      break;
    case SIM_WORK_FILL:
      check_fill(op);
      break;
    case SIM_WORK_COPY:
      check_copy(op);
      break;
    case SIM_WORK_ALLOC: /* with an address: of a graph */
      if (op->work.target) sim_memory_born(op);
      break;
    case SIM_WORK_FREE:
      check_free(op);
      break;
    case SIM_WORK_ACCESS:
      sim_memory_check_access(op, op->work.target, !op->work.writes, op->work.writes);
      break;
    default:
      break;
  }
}
