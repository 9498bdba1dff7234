/* The state of the stand-in driver. One lock guards all of it; objects live until the
 * process ends, so that a stale handle is recognised. */
#ifndef ONS_TESTS_SIMGPU_SIM_STATE_H_
#define ONS_TESTS_SIMGPU_SIM_STATE_H_

#include <pthread.h>
#include <stdbool.h>

#include "runtime/backends/cuda/cuda_types.h"
#include "tests/simgpu/sim_image.h"
#include "tests/simgpu/sim_record.h"

typedef enum sim_kind {
  SIM_CONTEXT = 1,
  SIM_STREAM,
  SIM_LIBRARY, /* also a module */
  SIM_KERNEL,
  SIM_FUNCTION,
  SIM_EVENT,
  SIM_GRAPH,
  SIM_USER_OBJECT
} sim_kind;

typedef struct sim_object {
  sim_kind kind;
  bool dead;
  struct sim_object* next; /* of all objects */
} sim_object;

typedef struct sim_graph {
  sim_object object;
  size_t kernel_count;
  struct sim_user_object* retained[64];
  size_t retained_count;
} sim_graph;

/* The stream does not go past `position` before `other` has passed `other_position`. */
typedef struct sim_wait {
  uint64_t position;
  const struct sim_stream* other;
  uint64_t other_position;
} sim_wait;

typedef struct sim_stream {
  sim_object object;
  struct sim_context* context;
  bool blocking;
  uint64_t enqueued;
  uint64_t completed;
  sim_wait waits[64];
  size_t wait_count;
  int capture_status; /* as sim_capture_status */
  sim_capture_mode capture_mode;
  uint64_t capture_thread;
  uint64_t capture_id;
  sim_graph* graph;
} sim_stream;

typedef struct sim_context {
  sim_object object;
  int device;
  sim_stream* legacy;
  sim_stream* per_thread;
} sim_context;

typedef struct sim_library {
  sim_object object;
  char* code;
  sim_context* context; /* of a module; NULL: a library */
} sim_library;

typedef struct sim_kernel {
  sim_object object;
  sim_library* library;
  char name[256];
  sim_kernel_info info;
  int max_dynamic_bytes;
} sim_kernel;

typedef struct sim_function {
  sim_object object;
  sim_kernel* kernel;
  sim_context* context;
  int max_dynamic_bytes;
} sim_function;

typedef struct sim_event {
  sim_object object;
  sim_context* context;
  sim_stream* stream; /* of the last record; NULL: never */
  uint64_t position;
  bool captured;
} sim_event;

typedef struct sim_user_object {
  sim_object object;
  void* pointer;
  CUhostFn destroy;
  unsigned int count;
} sim_user_object;

typedef struct sim_device {
  int major;
  int minor;
  sim_context* primary;
  size_t retains;
} sim_device;

typedef struct sim_machine {
  pthread_mutex_t mutex;
  int device_count;
  int version;
  bool initialized;
  bool deinitialized;
  int process;
  uint64_t next_capture_id;
  sim_device devices[SIM_MAX_DEVICES];
  sim_object* objects;
} sim_machine;

extern sim_machine sim;
extern _Thread_local sim_context* sim_current;
extern _Thread_local unsigned int sim_thread_mode;
extern _Thread_local bool sim_in_destructor;

void sim_die(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));
uint64_t sim_thread(void);
void* sim_new(sim_kind kind, size_t size_bytes);
/* The object behind a handle; aborts when it is none, of another kind, or destroyed. */
void* sim_check(const void* handle, sim_kind kind);
size_t sim_count_live(sim_kind kind);
sim_context* sim_new_context(int device);
sim_stream* sim_new_stream(sim_context* context, bool blocking);

/* NULL without a current context (then the call returns 201). */
sim_stream* sim_find_stream(const void* handle);

/* The rule of capture modes: may this thread make a call that capture forbids? If not,
 * the captures that forbid it are invalidated. */
bool sim_unsafe_call_allowed(void);

/* A use of the legacy stream: the blocking stream of its context that is being captured,
 * or NULL. */
sim_stream* sim_implicit_capture(const sim_stream* stream);

bool sim_is_pinned(uintptr_t address);

/* Every driver function: `enter` locks, records and returns an injected or standing
 * error. */
CUresult sim_enter(const char* function, bool needs_init);
CUresult sim_leave(CUresult result);
sim_record* sim_current_record(void); /* scratch when recording is off; never NULL */

#endif /* ONS_TESTS_SIMGPU_SIM_STATE_H_ */
