/* Operations, in which order they were asked for, and the scheduler that runs them. All
 * of it is under the machine's lock. */
#ifndef ONS_TESTS_SIMGPU_SIM_QUEUE_H_
#define ONS_TESTS_SIMGPU_SIM_QUEUE_H_

#include "tests/simgpu/sim_state.h"

typedef enum sim_work_kind {
  SIM_WORK_EMPTY, /* also the begin and the end of a graph's launch */
  SIM_WORK_KERNEL,
  SIM_WORK_FILL,
  SIM_WORK_COPY,
  SIM_WORK_HOST, /* a host function */
  SIM_WORK_RECORD,
  SIM_WORK_WAIT,
  SIM_WORK_ALLOC,
  SIM_WORK_FREE,
  SIM_WORK_ACCESS, /* by the host: done when it is asked for */
  SIM_WORK_GRAPH_BEGIN,
  SIM_WORK_GRAPH_END
} sim_work_kind;

/* What an operation, or a node of a graph, does. What does not apply is zero. */
typedef struct sim_work {
  sim_work_kind kind;
  sim_kernel* kernel;
  CUfunction handle;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  uint8_t* parameters; /* in the arena */
  void* target;        /* of a fill or copy; the memory allocated, freed or accessed */
  const void* source;
  size_t size_bytes;
  uint32_t value;
  uint32_t value_bytes;
  bool writes; /* an access */
  CUhostFn function;
  void* user_data;
  sim_event* event;
} sim_work;

typedef enum sim_progress { SIM_PENDING, SIM_RUNNING, SIM_DONE } sim_progress;

/* Clocks tell by chain how many of its operations are known to be over before this one
 * begins (of its own chain: itself included); what lies beyond `count` is 0. */
typedef struct sim_clock {
  uint32_t* ticks;
  uint32_t count;
} sim_clock;

typedef struct sim_op {
  uint32_t number; /* from 1, in the order of calls */
  uint32_t chain;
  uint32_t tick;
  sim_progress progress;
  sim_work work;
  sim_stream* stream; /* NULL: of the host */
  sim_clock clock;
  struct sim_op** before; /* it waits for these besides its chain */
  size_t before_count;
  uint32_t awaited;      /* of a wait: the number of the record */
  struct sim_exec* exec; /* of the end of a graph's launch: kept until it ran */
  struct sim_touch* touched;
} sim_op;

/* Operations in strict order: a stream, a host thread, or a node over the launches of its
 * executable graph. */
typedef struct sim_chain {
  sim_op** ops; /* by tick - 1 */
  uint32_t count;
  uint32_t capacity;
  uint32_t done; /* the first of these have run */
  sim_stream* stream;
  uint64_t thread; /* of a host thread, else 0 */
  sim_clock known; /* by the host thread */
  uint32_t known_capacity;
} sim_chain;

void* sim_arena(size_t size_bytes); /* zeroed; lives until the program is forgotten */

/* ---- the program ---- */

void sim_queue_begin(uint64_t seed);
void sim_queue_forget(void);
uint64_t sim_random(uint64_t bound); /* 0 <= result < bound */
uint32_t sim_chain_new(sim_stream* stream);
uint32_t sim_chain_count(void);
const sim_chain* sim_chain_at(uint32_t chain);

/* Ordered before: decided by clocks, whatever ran first. */
bool sim_ordered(const sim_op* first, const sim_op* second);

/* ---- to enqueue ---- */

/* Where an operation goes and what it is after. */
typedef struct sim_place {
  uint32_t chain;
  sim_stream* stream;
  sim_op** before; /* copied */
  size_t before_count;
} sim_place;

sim_op* sim_enqueue_at(const sim_place* place, const sim_work* work);
/* On a stream, after what the rules of streams say, and `extra` unless NULL. */
sim_op* sim_enqueue(sim_stream* stream, const sim_work* work, sim_op* extra);
/* The host does it, now. */
sim_op* sim_host_op(const sim_work* work);
/* The last operation of the stream, or NULL. */
sim_op* sim_stream_last(const sim_stream* stream);

/* ---- the host ---- */

void sim_host_learn(const sim_op* op); /* of its end; and of all before it */
void sim_host_learn_clock(const sim_clock* clock);
sim_clock sim_host_knows(void); /* a copy, in the arena */
void sim_everyone_learns(const sim_op* op);
void sim_count_sync(void);

/* ---- to run ---- */

void sim_run_until(sim_op* op);
/* The same for all of the context's streams. */
void sim_run_context(sim_context* context);
size_t sim_run_some(size_t count);
/* A little, when the seed says so. */
void sim_queue_nudge(void);

/* Carries the work out; may give up the lock meanwhile. */
void sim_execute(sim_op* op);
/* The running host function of this thread, or NULL. */
extern _Thread_local sim_op* sim_running_host;

#endif /* ONS_TESTS_SIMGPU_SIM_QUEUE_H_ */
