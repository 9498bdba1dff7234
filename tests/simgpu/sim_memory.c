#include "tests/simgpu/sim_memory.h"

#include <stdlib.h>
#include <string.h>

enum { GRANULE_BYTES = 256, MAX_SPOILT_BYTES = 4096 };

typedef struct block {
  uint8_t* begin;
  size_t capacity;
  sim_allocation* latest; /* NULL: reserved by a graph */
  sim_memory_kind kind;
  int device;
} block;

/* By address. */
static block* blocks;
static size_t block_count, block_capacity;
static uint32_t allocation_count;

/* The number of blocks that begin at or before the address. */
static size_t blocks_up_to(const void* pointer) {
  size_t low = 0, high = block_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if ((uintptr_t)blocks[middle].begin <= (uintptr_t)pointer) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static block* find_block(const void* pointer) {
  size_t index = blocks_up_to(pointer);
  if (!index) return NULL;
  block* found = &blocks[index - 1];
  return (uintptr_t)pointer - (uintptr_t)found->begin < found->capacity ? found : NULL;
}

static block* add_block(sim_memory_kind kind, int device, size_t size_bytes) {
  size_t capacity = (size_bytes + GRANULE_BYTES) / GRANULE_BYTES * GRANULE_BYTES;
  uint8_t* begin = aligned_alloc(GRANULE_BYTES, capacity);
  if (!begin) sim_die("out of memory");
  if (block_count == block_capacity) {
    block_capacity = block_capacity ? 2 * block_capacity : 64;
    blocks = realloc(blocks, block_capacity * sizeof(block));
    if (!blocks) sim_die("out of memory");
  }
  size_t index = blocks_up_to(begin);
  memmove(blocks + index + 1, blocks + index, (block_count - index) * sizeof(block));
  ++block_count;
  blocks[index] = (block){begin, capacity, NULL, kind, device};
  return &blocks[index];
}

sim_allocation* sim_find_allocation(const void* pointer) {
  const block* found = find_block(pointer);
  sim_allocation* latest = found ? found->latest : NULL;
  if (!latest) return NULL;
  size_t offset = (size_t)((const uint8_t*)pointer - latest->pointer);
  bool inside = offset < latest->size_bytes || offset == 0;
  return inside ? latest : NULL;
}

size_t sim_mapped_bytes(const void* pointer) {
  const block* found = find_block(pointer);
  if (!found) return 0;
  return found->capacity - (size_t)((const uint8_t*)pointer - found->begin);
}

void sim_spoil(void* pointer, size_t size_bytes, int value) {
  memset(pointer, value, size_bytes < MAX_SPOILT_BYTES ? size_bytes : MAX_SPOILT_BYTES);
}

/* ---- allocation ---- */

static sim_allocation* begin_life(block* home, size_t size_bytes, sim_op* born) {
  sim_allocation* allocation = sim_arena(sizeof(*allocation));
  *allocation = (sim_allocation){.id = ++allocation_count,
                                 .pointer = home->begin,
                                 .size_bytes = size_bytes,
                                 .kind = home->kind,
                                 .device = home->device,
                                 .born = born};
  home->latest = allocation;
  return allocation;
}

/* May an operation enqueued now on the stream, or the host, have the block? Either it is
 * ordered after the free, or the driver saw that the free is over. */
static bool may_take(const block* candidate, const sim_op* probe) {
  const sim_op* freed = candidate->latest ? candidate->latest->freed : NULL;
  if (!freed) return false;
  if (!probe) return true;
  return sim_ordered(freed, probe) || (freed->progress == SIM_DONE && sim_random(2));
}

/* What was freed last is taken first: the most dangerous. */
static block* take_free(sim_memory_kind kind, int device, size_t size_bytes,
                        const sim_op* probe) {
  block* best = NULL;
  for (size_t i = 0; i < block_count; ++i) {
    block* candidate = &blocks[i];
    if (candidate->kind != kind || candidate->device != device ||
        candidate->capacity < size_bytes || candidate->capacity > 2 * size_bytes + 512 ||
        !may_take(candidate, probe)) {
      continue;
    }
    if (!best || best->latest->freed->number < candidate->latest->freed->number) {
      best = candidate;
    }
  }
  return best;
}

void* sim_allocate_memory(sim_memory_kind kind, int device, size_t size_bytes,
                          sim_stream* stream) {
  sim_work work = {.kind = SIM_WORK_ALLOC, .size_bytes = size_bytes};
  sim_op* op = stream ? sim_enqueue(stream, &work, NULL) : sim_host_op(&work);
  block* home = take_free(kind, device, size_bytes, stream ? op : NULL);
  if (!home) home = add_block(kind, device, size_bytes);
  op->work.target = begin_life(home, size_bytes, op)->pointer;
  if (!stream) sim_spoil(op->work.target, size_bytes, 0xcd);
  return op->work.target;
}

void* sim_reserve_memory(int device, size_t size_bytes) {
  return add_block(SIM_MEMORY_POOL, device, size_bytes)->begin;
}

void sim_memory_born(sim_op* op) {
  block* home = find_block(op->work.target);
  if (home->latest && !home->latest->freed) return; /* the same graph once more */
  begin_life(home, op->work.size_bytes, op);
}

void sim_memory_report_leaks(void) {
  for (size_t i = 0; i < block_count; ++i) {
    const sim_allocation* latest = blocks[i].latest;
    if (!latest || latest->freed || latest->keep) continue;
    sim_access born = {latest->born, true};
    sim_report_add(SIM_LEAK, latest, latest->pointer, &born, NULL);
  }
}

void sim_memory_forget(void) {
  for (size_t i = 0; i < block_count; ++i) free(blocks[i].begin);
  block_count = 0;
  allocation_count = 0;
}

/* ---- control ---- */

void* sim_device_alloc(int device, size_t size_bytes) {
  pthread_mutex_lock(&sim.mutex);
  void* pointer = sim_allocate_memory(SIM_MEMORY_DEVICE, device, size_bytes, NULL);
  pthread_mutex_unlock(&sim.mutex);
  return pointer;
}

void* sim_pinned_alloc(size_t size_bytes) {
  pthread_mutex_lock(&sim.mutex);
  void* pointer = sim_allocate_memory(SIM_MEMORY_PINNED, -1, size_bytes, NULL);
  pthread_mutex_unlock(&sim.mutex);
  return pointer;
}

/* After the program, what still comes back is of no interest. */
void sim_device_free(void* pointer) {
  if (!pointer) return;
  pthread_mutex_lock(&sim.mutex);
  if (sim.simulating) {
    sim_host_op(&(sim_work){.kind = SIM_WORK_FREE, .target = pointer});
    const sim_allocation* allocation = sim_find_allocation(pointer);
    if (allocation) sim_spoil(allocation->pointer, allocation->size_bytes, 0xdd);
  }
  pthread_mutex_unlock(&sim.mutex);
}

void sim_pinned_free(void* pointer) { sim_device_free(pointer); }

void sim_host_access(const void* pointer, size_t size_bytes, int write) {
  pthread_mutex_lock(&sim.mutex);
  if (sim.simulating && sim_running_host) {
    sim_memory_check_access(sim_running_host, pointer, !write, write != 0);
  } else if (sim.simulating) {
    sim_host_op(&(sim_work){.kind = SIM_WORK_ACCESS,
                            .target = (void*)(uintptr_t)pointer,
                            .size_bytes = size_bytes,
                            .writes = write != 0});
  }
  pthread_mutex_unlock(&sim.mutex);
}

uint32_t sim_allocation_id(const void* pointer) {
  pthread_mutex_lock(&sim.mutex);
  const sim_allocation* allocation = sim_find_allocation(pointer);
  uint32_t id = allocation && !allocation->freed ? allocation->id : 0;
  pthread_mutex_unlock(&sim.mutex);
  return id;
}

void sim_allocation_keep(const void* pointer) {
  pthread_mutex_lock(&sim.mutex);
  sim_allocation* allocation = sim_find_allocation(pointer);
  if (allocation) allocation->keep = true;
  pthread_mutex_unlock(&sim.mutex);
}
