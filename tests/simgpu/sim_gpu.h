/* Control of the simulation: the stand-in driver of sim_record.h made to run work, late
 * and in any order that the real one would allow, and to judge whether the order asked
 * for is enough.
 *
 * A program is what happens between sim_schedule_begin and sim_schedule_end. Every stream
 * is a queue of operations; one runs when the scheduler picks it. Nothing is picked
 * before somebody waits (cuStreamSynchronize, cuEventSynchronize, a copy to pageable
 * memory, ...), a control call asks for it, or the seed says so; among what may run the
 * seed chooses.
 *
 * The checker does not look at the interleaving that happened. It gives every operation,
 * when it is enqueued, a vector clock: what it is ordered after by its stream, the events
 * waited for, the rules of the legacy stream, graph edges, and what its host thread had
 * learnt by synchronising or by asking an event or a stream that was done. Memory is
 * judged by allocation: a tensor is read or written as a whole. Two host threads are
 * ordered by sim_host_send and sim_host_receive; a thread begins with what the others
 * knew when it was first seen.
 *
 * A handle that cuStreamDestroy gave up may come back from cuStreamCreate.
 *
 * Every structure is plain, for ctypes. All functions may be called from any thread, save
 * sim_schedule_begin, sim_schedule_end and sim_reset: only when no other thread is in the
 * driver. */
#ifndef ONS_TESTS_SIMGPU_SIM_GPU_H_
#define ONS_TESTS_SIMGPU_SIM_GPU_H_

#include "tests/simgpu/sim_record.h"

/* ---- a program ---- */

/* Starts to simulate. What was enqueued before is forgotten. */
SIM_API void sim_schedule_begin(uint64_t seed);
/* Runs what is left, reports what was allocated in the program and is not free, and
 * returns the number of reports. Simulation goes on until sim_reset. */
SIM_API size_t sim_schedule_end(void);
/* Back to the recording stand-in. Forgets operations, reports, memory, names and records;
 * streams, graphs and executable graphs are destroyed (first the destructors of user
 * objects run, and may free memory). Events stay, as if never recorded; contexts,
 * libraries, kernels and what was declared of kernels stay too. */
SIM_API void sim_reset(void);

/* ---- what kernels do ---- */

typedef struct sim_kernel_call {
  const char* kernel; /* its lowered name */
  void* stream;       /* that it was enqueued on; of a graph: launched on */
  void* context;
  int device;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  uint32_t parameter_count;
  const uint32_t* parameter_sizes;
  const uint32_t* parameter_offsets;
  const uint8_t* parameters; /* laid out as the kernel sees them */
} sim_kernel_call;

/* Called when the kernel runs, on whichever thread makes the scheduler run, without the
 * driver's lock. It must not call the driver; sim_host_access is not for it either. */
typedef void (*sim_kernel_fn)(void* user_data, const sim_kernel_call* call);

/* For kernels whose name contains the text; of several, the latest registered. Without
 * one a declared kernel mixes (see sim_mix) and any other does nothing. */
SIM_API void sim_register_kernel(const char* name_part, sim_kernel_fn function,
                                 void* user_data);
/* What a kernel does with its parameters, one letter each; what is missing is '-'.
 *   r  pointer, read              w  pointer, written as a whole without being read
 *   u  pointer, read and written  v  value           -  not looked at
 * A pointer is the first 8 bytes of its parameter (a view begins with it); NULL is
 * skipped. Of a kernel never declared, every 8-byte parameter that points into known
 * memory counts as read and written, but not as reading what nobody wrote. */
SIM_API void sim_declare_kernel(const char* name_part, const char* access);
/* The effect of a declared kernel that has no function: state = 0; for each r and u in
 * order, state = sim_mix(state, first 8 bytes at the pointer); for each v,
 * state = sim_mix(state, its bytes as a little-endian number, the first 8). Then each w
 * and u, the i-th parameter, gets sim_mix(state, i) as its first 8 bytes. */
SIM_API uint64_t sim_mix(uint64_t state, uint64_t value);

/* ---- memory ---- */

/* As an allocator of a framework would: host-ordered, and what was freed last is handed
 * out first. Contents are garbage; freed memory is overwritten. Nothing waits: a free,
 * by cuMemFree too, must be ordered after every use. Memory of cuMemAllocAsync is handed
 * on as soon as stream order allows it or the free was seen to be over. */
SIM_API void* sim_device_alloc(int device, size_t size_bytes);
SIM_API void sim_device_free(void* pointer);
/* Pinned host memory: asynchronous for copies, usable on every device. What is called
 * managed memory can be had here as well. */
SIM_API void* sim_pinned_alloc(size_t size_bytes);
SIM_API void sim_pinned_free(void* pointer);
/* Says that this thread reads or writes the allocation now. Inside a host function of a
 * stream it is the stream's access. */
SIM_API void sim_host_access(const void* pointer, size_t size_bytes, int write);
/* The number of the allocation that the pointer is in, from 1; 0: none, or freed. */
SIM_API uint32_t sim_allocation_id(const void* pointer);
/* Not a leak from now on: it outlives the program on purpose. */
SIM_API void sim_allocation_keep(const void* pointer);

/* ---- host threads ---- */

/* What is sent with a token is known to every thread that receives it afterwards: a lock,
 * a queue, a join. */
SIM_API void sim_host_send(uint64_t token);
SIM_API void sim_host_receive(uint64_t token);
/* Calls that made the host wait, of this thread or of all: cu*Synchronize, synchronous
 * copies. Never reset; take differences. */
SIM_API uint64_t sim_sync_count(int all_threads);

/* ---- scheduling by hand; nothing here orders anything ---- */

SIM_API size_t sim_step(size_t count);       /* runs at most so many; how many ran */
SIM_API size_t sim_run_stream(void* stream); /* and all that it waits for */
SIM_API size_t sim_run_all(void);            /* whatever is enqueued */
SIM_API size_t sim_pending_count(void);      /* operations not yet run */
SIM_API size_t sim_stream_pending_count(void* stream);
/* How many in 1000 driver calls let one operation run as they return; the default, -1,
 * draws 0 (nothing runs unasked), 100 or 600 from the seed. sim_schedule_begin draws. */
SIM_API void sim_set_eagerness(int per_mille);

/* ---- findings ---- */

typedef enum sim_report_kind {
  SIM_RACE = 1,               /* two accesses, one a write, neither ordered first */
  SIM_USE_AFTER_FREE = 2,     /* an access after the free, in the order of calls */
  SIM_UNORDERED_FREE = 3,     /* a free that may overtake an earlier access */
  SIM_UNINITIALISED_READ = 4, /* no write is ordered before the read */
  SIM_DOUBLE_FREE = 5,        /* also of what was never allocated */
  SIM_LEAK = 6,
  SIM_UNKNOWN_MEMORY = 7, /* a declared pointer into no allocation */
  SIM_WRONG_DEVICE = 8    /* memory of another device */
} sim_report_kind;

typedef struct sim_report {
  int32_t kind;
  uint32_t allocation; /* its number; 0: none */
  void* pointer;       /* as given to the second operation */
  uint32_t first;      /* numbers of operations, in the order of calls; 0: none */
  uint32_t second;
  void* first_stream; /* NULL: the host */
  void* second_stream;
  int32_t first_is_write;
  int32_t second_is_write;
} sim_report;

SIM_API size_t sim_report_count(void);
SIM_API const sim_report* sim_report_at(size_t index); /* valid until sim_reset */
/* In words: the two operations, what each was ordered after, and the shortest history of
 * the two streams. Returns the length, as snprintf does. */
SIM_API size_t sim_report_text(size_t index, char* buffer, size_t capacity);
SIM_API const char* sim_report_kind_name(int kind);
/* Forgets the reports so far. */
SIM_API void sim_clear_reports(void);
/* What reports call a stream, an event, a graph or an allocation. */
SIM_API void sim_name(const void* handle_or_pointer, const char* name);
/* Operations enqueued in this program; host accesses count. */
SIM_API size_t sim_operation_count(void);

#endif /* ONS_TESTS_SIMGPU_SIM_GPU_H_ */
