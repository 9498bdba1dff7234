#include "tests/simgpu/sim_queue.h"

#include <stdlib.h>
#include <string.h>

#include "tests/simgpu/sim_graph.h"
#include "tests/simgpu/sim_memory.h"

/* ---- memory of a program ---- */

enum { ARENA_BYTES = 1 << 16 };

typedef struct arena_block {
  struct arena_block* next;
  size_t capacity;
  size_t used;
  _Alignas(16) uint8_t bytes[];
} arena_block;

static arena_block* arena;

void* sim_arena(size_t size_bytes) {
  size_bytes = (size_bytes + 15) & ~(size_t)15;
  if (!arena || arena->capacity - arena->used < size_bytes) {
    size_t capacity = size_bytes > ARENA_BYTES ? size_bytes : ARENA_BYTES;
    arena_block* block = malloc(sizeof(*block) + capacity);
    if (!block) sim_die("out of memory");
    *block = (arena_block){.next = arena, .capacity = capacity};
    arena = block;
  }
  void* memory = arena->bytes + arena->used;
  arena->used += size_bytes;
  memset(memory, 0, size_bytes);
  return memory;
}

/* One block is kept for the next program. */
static void empty_arena(void) {
  while (arena && arena->next) {
    arena_block* next = arena->next;
    free(arena);
    arena = next;
  }
  if (arena) arena->used = 0;
}

/* ---- the program ---- */

typedef struct message {
  struct message* next;
  uint64_t token;
  sim_clock clock;
} message;

static struct {
  uint64_t age; /* which program; threads look whether their chain is of it */
  uint64_t random;
  int eagerness;
  sim_chain* chains; /* the first is none */
  uint32_t chain_count;
  uint32_t chain_capacity;
  uint32_t op_count;
  uint32_t pending_count;
  uint64_t sync_count;
  message* messages;
  sim_list before; /* scratch of sim_enqueue */
  pthread_cond_t progress;
} queue = {.age = 1, .eagerness = -1, .progress = PTHREAD_COND_INITIALIZER};

static _Thread_local struct {
  uint64_t age;
  uint32_t chain;
  uint64_t sync_count;
} host;

uint64_t sim_random(uint64_t bound) {
  queue.random += 0x9e3779b97f4a7c15u;
  uint64_t mixed = queue.random;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return (mixed ^ (mixed >> 31)) % bound;
}

void sim_queue_forget(void) {
  for (uint32_t i = 1; i < queue.chain_count; ++i) {
    sim_chain* chain = &queue.chains[i];
    if (chain->stream) chain->stream->chain = 0;
    chain->stream = NULL;
    chain->thread = 0;
    chain->count = chain->done = 0;
    chain->known.count = 0;
  }
  queue.chain_count = 1;
  queue.op_count = queue.pending_count = 0;
  queue.messages = NULL;
  ++queue.age;
  empty_arena();
}

void sim_queue_begin(uint64_t seed) {
  static const int degrees[] = {0, 100, 600};
  sim_queue_forget();
  queue.random = seed;
  queue.eagerness = degrees[sim_random(3)];
}

uint32_t sim_chain_count(void) { return queue.chain_count; }

const sim_chain* sim_chain_at(uint32_t chain) { return &queue.chains[chain]; }

uint32_t sim_chain_new(sim_stream* stream) {
  if (queue.chain_count + 1 >= queue.chain_capacity) {
    uint32_t capacity = queue.chain_capacity ? 2 * queue.chain_capacity : 64;
    queue.chains = realloc(queue.chains, capacity * sizeof(sim_chain));
    if (!queue.chains) sim_die("out of memory");
    memset(queue.chains + queue.chain_capacity, 0,
           (capacity - queue.chain_capacity) * sizeof(sim_chain));
    queue.chain_capacity = capacity;
    if (!queue.chain_count) queue.chain_count = 1;
  }
  queue.chains[queue.chain_count].stream = stream;
  return queue.chain_count++;
}

/* ---- clocks ---- */

static uint32_t tick_of(const sim_clock* clock, uint32_t chain) {
  return chain < clock->count ? clock->ticks[chain] : 0;
}

bool sim_ordered(const sim_op* first, const sim_op* second) {
  return first->tick <= tick_of(&second->clock, first->chain);
}

static void merge(uint32_t* ticks, const sim_clock* clock) {
  for (uint32_t i = 0; i < clock->count; ++i) {
    if (ticks[i] < clock->ticks[i]) ticks[i] = clock->ticks[i];
  }
}

static void learn(sim_chain* chain, const sim_clock* clock) {
  if (chain->known_capacity < clock->count) {
    uint32_t capacity = clock->count + 16;
    chain->known.ticks = realloc(chain->known.ticks, capacity * sizeof(uint32_t));
    if (!chain->known.ticks) sim_die("out of memory");
    chain->known_capacity = capacity;
  }
  while (chain->known.count < clock->count) chain->known.ticks[chain->known.count++] = 0;
  merge(chain->known.ticks, clock);
}

/* ---- the host ---- */

static sim_chain* host_chain(void) {
  if (host.age != queue.age) {
    host.age = queue.age;
    host.chain = sim_chain_new(NULL);
    sim_chain* chain = &queue.chains[host.chain];
    chain->thread = sim_thread();
    for (uint32_t i = 1; i < host.chain; ++i) {
      if (queue.chains[i].thread) learn(chain, &queue.chains[i].known);
    }
  }
  return &queue.chains[host.chain];
}

void sim_host_learn_clock(const sim_clock* clock) { learn(host_chain(), clock); }

void sim_host_learn(const sim_op* op) { sim_host_learn_clock(&op->clock); }

sim_clock sim_host_knows(void) {
  const sim_clock* known = &host_chain()->known;
  sim_clock copy = {sim_arena(known->count * sizeof(uint32_t)), known->count};
  if (copy.count) memcpy(copy.ticks, known->ticks, copy.count * sizeof(uint32_t));
  return copy;
}

void sim_everyone_learns(const sim_op* op) {
  host_chain();
  for (uint32_t i = 1; i < queue.chain_count; ++i) {
    if (queue.chains[i].thread) learn(&queue.chains[i], &op->clock);
  }
}

void sim_count_sync(void) {
  ++host.sync_count;
  ++queue.sync_count;
}

uint64_t sim_sync_count(int all_threads) {
  pthread_mutex_lock(&sim.mutex);
  uint64_t count = all_threads ? queue.sync_count : host.sync_count;
  pthread_mutex_unlock(&sim.mutex);
  return count;
}

void sim_host_send(uint64_t token) {
  pthread_mutex_lock(&sim.mutex);
  message* sent = sim_arena(sizeof(*sent));
  *sent = (message){queue.messages, token, sim_host_knows()};
  queue.messages = sent;
  pthread_mutex_unlock(&sim.mutex);
}

void sim_host_receive(uint64_t token) {
  pthread_mutex_lock(&sim.mutex);
  for (const message* sent = queue.messages; sent; sent = sent->next) {
    if (sent->token == token) sim_host_learn_clock(&sent->clock);
  }
  pthread_mutex_unlock(&sim.mutex);
}

/* ---- to enqueue ---- */

static void append(sim_chain* chain, sim_op* op) {
  if (chain->count == chain->capacity) {
    chain->capacity = chain->capacity ? 2 * chain->capacity : 32;
    chain->ops = realloc(chain->ops, chain->capacity * sizeof(sim_op*));
    if (!chain->ops) sim_die("out of memory");
  }
  chain->ops[chain->count++] = op;
}

static sim_op* new_op(const sim_place* place, const sim_work* work) {
  const sim_chain* own = host_chain();
  sim_op* op = sim_arena(sizeof(*op));
  op->number = ++queue.op_count;
  op->chain = place->chain;
  op->tick = queue.chains[place->chain].count + 1;
  op->stream = place->stream;
  op->work = *work;
  if (work->kind == SIM_WORK_WAIT && work->event->op) {
    op->awaited = work->event->op->number;
  }
  op->clock.count = queue.chain_count;
  op->clock.ticks = sim_arena(queue.chain_count * sizeof(uint32_t));
  merge(op->clock.ticks, &own->known);
  for (size_t i = 0; i < place->before_count; ++i) {
    merge(op->clock.ticks, &place->before[i]->clock);
  }
  if (op->tick > 1) {
    merge(op->clock.ticks, &queue.chains[place->chain].ops[op->tick - 2]->clock);
  }
  op->clock.ticks[op->chain] = op->tick;
  append(&queue.chains[place->chain], op);
  return op;
}

sim_op* sim_enqueue_at(const sim_place* place, const sim_work* work) {
  sim_op* op = new_op(place, work);
  op->before = sim_arena(place->before_count * sizeof(sim_op*));
  for (size_t i = 0; i < place->before_count; ++i) {
    if (place->before[i]->progress != SIM_DONE) {
      op->before[op->before_count++] = place->before[i];
    }
  }
  ++queue.pending_count;
  sim_memory_check(op);
  return op;
}

sim_op* sim_stream_last(const sim_stream* stream) {
  if (!stream->chain) return NULL;
  const sim_chain* chain = &queue.chains[stream->chain];
  return chain->count ? chain->ops[chain->count - 1] : NULL;
}

/* Blocking streams and the legacy stream of their context wait for one another. */
static void add_implied(sim_stream* stream, sim_list* before) {
  const sim_context* context = stream->context;
  if (stream != context->legacy) {
    sim_op* last = stream->blocking ? sim_stream_last(context->legacy) : NULL;
    if (last) sim_list_add(before, last);
    return;
  }
  for (sim_stream* other = context->streams; other; other = other->next) {
    sim_op* last = other->blocking ? sim_stream_last(other) : NULL;
    if (last) sim_list_add(before, last);
  }
  for (size_t i = 0; i < context->past.count; ++i) {
    sim_op* last = context->past.items[i];
    if (last->stream->blocking) sim_list_add(before, last);
  }
}

sim_op* sim_enqueue(sim_stream* stream, const sim_work* work, sim_op* extra) {
  if (!stream->chain) stream->chain = sim_chain_new(stream);
  sim_list* before = &queue.before;
  before->count = 0;
  add_implied(stream, before);
  if (extra) sim_list_add(before, extra);
  sim_place place = {stream->chain, stream, (sim_op**)before->items, before->count};
  return sim_enqueue_at(&place, work);
}

sim_op* sim_host_op(const sim_work* work) {
  host_chain();
  sim_place place = {.chain = host.chain};
  sim_op* op = new_op(&place, work);
  op->progress = SIM_DONE;
  queue.chains[host.chain].done = op->tick;
  sim_host_learn(op);
  sim_memory_check(op);
  return op;
}

/* ---- to run ---- */

static bool is_ready(const sim_op* op) {
  if (op->progress != SIM_PENDING) return false;
  for (size_t i = 0; i < op->before_count; ++i) {
    if (op->before[i]->progress != SIM_DONE) return false;
  }
  return true;
}

/* One of those that may run, of those that `needed_by` waits for unless it is NULL. */
static sim_op* choose(const sim_op* needed_by) {
  sim_op* chosen = NULL;
  uint64_t count = 0;
  for (uint32_t i = 1; i < queue.chain_count; ++i) {
    const sim_chain* chain = &queue.chains[i];
    if (chain->done == chain->count) continue;
    sim_op* op = chain->ops[chain->done];
    if (!is_ready(op) || (needed_by && !sim_ordered(op, needed_by))) continue;
    if (sim_random(++count) == 0) chosen = op;
  }
  return chosen;
}

static void run(sim_op* op) {
  op->progress = SIM_RUNNING;
  sim_execute(op);
  op->progress = SIM_DONE;
  ++queue.chains[op->chain].done;
  --queue.pending_count;
  pthread_cond_broadcast(&queue.progress);
  if (op->exec) sim_exec_unpin(op->exec, op);
}

static void wait_for_others(void) {
  sim_record* record = sim_current_record();
  pthread_cond_wait(&queue.progress, &sim.mutex);
  sim_set_current_record(record);
}

/* Others run as well now and then, as on a real device. */
void sim_run_until(sim_op* op) {
  uint64_t age = queue.age;
  while (age == queue.age && op->progress != SIM_DONE) {
    sim_op* next = queue.eagerness > 0 && sim_random(4) == 0 ? choose(NULL) : NULL;
    if (!next) next = choose(op);
    if (next) {
      run(next);
    } else {
      wait_for_others();
    }
  }
}

static void run_and_learn(sim_op* last) {
  if (!last) return;
  sim_run_until(last);
  sim_host_learn(last);
}

void sim_run_context(sim_context* context) {
  for (size_t i = 0; i < context->past.count; ++i) run_and_learn(context->past.items[i]);
  for (sim_stream* stream = context->streams; stream; stream = stream->next) {
    run_and_learn(sim_stream_last(stream));
  }
}

size_t sim_run_some(size_t count) {
  size_t ran = 0;
  while (ran < count && queue.pending_count) {
    sim_op* op = choose(NULL);
    if (!op) break; /* another thread is at it */
    run(op);
    ++ran;
  }
  return ran;
}

void sim_queue_nudge(void) {
  if (!queue.pending_count || queue.eagerness <= 0 || sim_in_callback) return;
  if (sim_random(1000) < (uint64_t)queue.eagerness) sim_run_some(1);
}

/* ---- control ---- */

size_t sim_step(size_t count) {
  pthread_mutex_lock(&sim.mutex);
  size_t ran = sim_run_some(count);
  pthread_mutex_unlock(&sim.mutex);
  return ran;
}

size_t sim_run_all(void) {
  pthread_mutex_lock(&sim.mutex);
  size_t ran = 0;
  while (queue.pending_count) {
    size_t more = sim_run_some(SIZE_MAX);
    ran += more;
    if (!more && queue.pending_count) wait_for_others();
  }
  pthread_mutex_unlock(&sim.mutex);
  return ran;
}

size_t sim_run_stream(void* handle) {
  pthread_mutex_lock(&sim.mutex);
  sim_stream* stream = sim_find_stream(handle);
  if (!stream) sim_die("a special stream handle without a current context");
  size_t before = queue.pending_count;
  sim_op* last = sim_stream_last(stream);
  if (last) sim_run_until(last);
  size_t ran = before - queue.pending_count;
  pthread_mutex_unlock(&sim.mutex);
  return ran;
}

size_t sim_pending_count(void) {
  pthread_mutex_lock(&sim.mutex);
  size_t count = queue.pending_count;
  pthread_mutex_unlock(&sim.mutex);
  return count;
}

size_t sim_stream_pending_count(void* handle) {
  pthread_mutex_lock(&sim.mutex);
  const sim_stream* stream = sim_find_stream(handle);
  const sim_chain* chain = stream && stream->chain ? &queue.chains[stream->chain] : NULL;
  size_t count = chain ? chain->count - chain->done : 0;
  pthread_mutex_unlock(&sim.mutex);
  return count;
}

size_t sim_operation_count(void) {
  pthread_mutex_lock(&sim.mutex);
  size_t count = queue.op_count;
  pthread_mutex_unlock(&sim.mutex);
  return count;
}

void sim_set_eagerness(int per_mille) {
  static const int degrees[] = {0, 100, 600};
  pthread_mutex_lock(&sim.mutex);
  queue.eagerness = per_mille < 0 ? degrees[sim_random(3)] : per_mille;
  pthread_mutex_unlock(&sim.mutex);
}
