/* The state of the stand-in driver. One lock guards all of it; objects live until the
 * process ends or sim_reset, so that a stale handle is recognised. */
#ifndef ONS_TESTS_SIMGPU_SIM_STATE_H_
#define ONS_TESTS_SIMGPU_SIM_STATE_H_

#include <pthread.h>
#include <stdbool.h>

#include "tests/simgpu/sim_gpu.h"
#include "tests/simgpu/sim_image.h"
#include "tests/simgpu/sim_record.h"
#include "tests/simgpu/sim_types.h"

typedef enum sim_kind {
  SIM_CONTEXT = 1,
  SIM_STREAM,
  SIM_LIBRARY, /* also a module */
  SIM_KERNEL,
  SIM_FUNCTION,
  SIM_EVENT,
  SIM_GRAPH,
  SIM_NODE,
  SIM_EXEC,
  SIM_USER_OBJECT
} sim_kind;

typedef struct sim_object {
  sim_kind kind;
  bool dead;
  struct sim_object* next; /* of all objects */
} sim_object;

/* Pointers, in order. */
typedef struct sim_list {
  void** items;
  size_t count;
  size_t capacity;
} sim_list;

/* Shared by the streams that take part. */
typedef struct sim_capture {
  struct sim_capture* next; /* of those that have not ended */
  int status;               /* as sim_capture_status */
  sim_capture_mode mode;
  uint64_t thread;
  uint64_t id;
  struct sim_stream* origin;
  struct sim_graph* graph;
} sim_capture;

/* The stream does not go past `position` before `other` has passed `other_position`. */
typedef struct sim_wait {
  uint64_t position;
  const struct sim_stream* other;
  uint64_t other_position;
} sim_wait;

typedef struct sim_stream {
  sim_object object;
  struct sim_context* context;
  struct sim_stream* next; /* of the context */
  bool blocking;
  bool is_default; /* the legacy stream, or one per thread: lives with its context */
  uint64_t thread; /* of a per-thread default stream */
  uint64_t id;
  uint32_t chain; /* when simulating, 0: none yet */
  /* when only recording */
  uint64_t enqueued;
  uint64_t completed;
  sim_wait waits[64];
  size_t wait_count;
  sim_capture* capture;   /* NULL: not capturing */
  sim_list capture_nodes; /* that its next one depends on */
} sim_stream;

typedef struct sim_context {
  sim_object object;
  int device;
  sim_stream* streams;
  sim_stream* legacy;
  sim_list past; /* the last operations of streams whose handle has a new life */
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
  const struct sim_behaviour* declared; /* these two as of `behaviour_age` */
  const struct sim_behaviour* registered;
  uint64_t behaviour_age;
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
  sim_stream* stream; /* of the last record, when only recording; NULL: never */
  uint64_t position;
  struct sim_op* op;   /* the last record, when simulating; NULL: never */
  uint64_t capture_id; /* that the last record was part of; 0: none */
  sim_list nodes;
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
  bool simulating;
  uint64_t next_id; /* of captures and streams */
  sim_device devices[SIM_MAX_DEVICES];
  sim_object* objects;
  sim_capture* captures;
} sim_machine;

extern sim_machine sim;
extern _Thread_local sim_context* sim_current;
extern _Thread_local unsigned int sim_thread_mode;
/* Inside what may not call the driver: its name, or NULL. */
extern _Thread_local const char* sim_in_callback;

void sim_die(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));
void* sim_allocate(size_t size_bytes); /* zeroed; never NULL */
void sim_list_add(sim_list* list, void* item);
void sim_list_append(sim_list* list, const sim_list* items); /* what is not in it yet */
void sim_list_free(sim_list* list);
uint64_t sim_thread(void);
void* sim_new(sim_kind kind, size_t size_bytes);
/* The object behind a handle; aborts when it is none, of another kind, or destroyed. */
void* sim_check(const void* handle, sim_kind kind);
/* The kind of a handle; 0 when it is none or destroyed. */
sim_kind sim_kind_of(const void* handle);
size_t sim_count_live(sim_kind kind);
/* Frees the objects for which `forget` says so. */
void sim_forget_objects(bool (*forget)(sim_object* object));
sim_context* sim_new_context(int device);
sim_stream* sim_new_stream(sim_context* context, bool blocking);
sim_stream* sim_dead_stream(sim_context* context, bool blocking); /* one, or NULL */

/* NULL without a current context (then the call returns 201). */
sim_stream* sim_find_stream(const void* handle);

/* The rule of capture modes: may this thread make a call that capture forbids? If not,
 * the captures that forbid it are invalidated. */
bool sim_unsafe_call_allowed(void);

/* A use of the legacy stream: the capture of a blocking stream of its context, or NULL.
 */
sim_capture* sim_implicit_capture(const sim_stream* stream);

/* May work go to the stream? If not, what it would have broken is broken. */
CUresult sim_stream_usable(sim_stream* stream);

bool sim_is_pinned(uintptr_t address);

/* Every driver function: `enter` locks, records and returns an injected or standing
 * error. */
CUresult sim_enter(const char* function, bool needs_init);
CUresult sim_leave(CUresult result);
sim_record* sim_current_record(void); /* scratch when recording is off; never NULL */
/* After the lock was given up in the middle of a call. */
void sim_set_current_record(sim_record* record);

#define ENTER()                                    \
  do {                                             \
    CUresult entered_ = sim_enter(__func__, true); \
    if (entered_) return sim_leave(entered_);      \
  } while (0)

/* For calls that some driver refuses while a stream is being captured. */
#define ENTER_UNSAFE()                                         \
  do {                                                         \
    ENTER();                                                   \
    if (!sim_unsafe_call_allowed()) {                          \
      return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); \
    }                                                          \
  } while (0)

#define ENTER_CONTEXT()                                             \
  do {                                                              \
    if (!sim_current) return sim_leave(CUDA_ERROR_INVALID_CONTEXT); \
  } while (0)

#endif /* ONS_TESTS_SIMGPU_SIM_STATE_H_ */
