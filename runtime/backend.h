/* What a backend is to the rest of the runtime: one table of functions.
 *
 * A backend (CUDA, HIP, CPU) belongs to one runtime and hands out devices; a device loads
 * images and launches functions. Objects that backends extend begin with the structs
 * below. Slots marked optional may be NULL. Unless said otherwise functions may be called
 * from any thread, do not synchronise, and leave the thread's current context as it was.
 */
#ifndef ONS_RUNTIME_BACKEND_H_
#define ONS_RUNTIME_BACKEND_H_

#include <onstream/dlpack.h>
#include <onstream/launch.h>
#include <onstream/runtime.h>
#include <onstream/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jit/compile.h"
#include "runtime/base/string.h"

typedef struct ons__backend ons__backend;
typedef struct ons__device ons__device;
typedef struct ons__binary ons__binary;

/* A runtime's settings as a backend sees them; owned by the runtime, immutable. */
typedef struct ons__settings {
  const ons_allocator* allocator; /* NULL: default */
  ons_locate_fn locate;           /* NULL: none */
  void* locate_user_data;
  ons_interrupt_fn interrupt; /* NULL: none */
  void* interrupt_user_data;
  uint32_t log_areas;        /* ons__log_area */
  uint32_t cpu_thread_count; /* 0: default */
  char* cuda_driver_path;    /* these: NULL when not given */
  char* nvrtc_path;
  char* cuda_include_path;
  char* host_compiler_path;
} ons__settings;

typedef struct ons__device_limits {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t threads_per_block;
  uint32_t shared_bytes; /* dynamic shared memory that a block may opt in to */
} ons__device_limits;

/* What launches with attributes and questions of occupancy have to know. */
typedef struct ons__device_traits {
  uint32_t multiprocessor_count;
  uint32_t threads_per_multiprocessor;
  int32_t lowest_priority; /* of launches; in CUDA lower numbers come first */
  int32_t highest_priority;
  bool has_attributes; /* the driver knows launch attributes at all; then: */
  bool has_cooperative;
  bool has_clusters;
  bool has_carveout;
} ons__device_traits;

/* A kernel as loaded on one device. Filled by ops->function; immutable after. */
typedef struct ons__function {
  void* handle;          /* what launch uses first (a CUfunction; a runner) */
  const void* driver;    /* the backend's own, beside the handle that it launches */
  void* portable_handle; /* for other contexts of the device (a CUkernel), or NULL */
  ons_kernel_attributes attributes;
} ons__function;

/* 0, 1 and 2 name streams by role, on CUDA as on HIP: the legacy and the per-thread
 * default of the current context. Using them may touch others. */
static inline bool ons__stream_is_special(const void* stream) {
  return (uintptr_t)stream <= 2;
}

typedef enum ons__capture_state {
  ONS__CAPTURE_NONE = 0,
  ONS__CAPTURE_ACTIVE = 1,
  ONS__CAPTURE_ELSEWHERE = 2 /* the legacy stream, while a blocking stream captures: any
                                use of it would break that capture */
} ons__capture_state;

typedef struct ons__capture_info {
  ons__capture_state state;
  uint64_t id; /* of the capture, unlike any other's; 0 unless active */
  void* graph; /* borrowed, when active */
} ons__capture_info;

typedef ons_status ons__launch_fn(ons__device* device, const ons__function* function,
                                  const ons_launch* launch, void* stream,
                                  void* const* parameters, size_t parameter_count,
                                  ons_error* error);
typedef ons_status ons__capture_state_fn(ons__device* device, void* stream,
                                         ons__capture_state* out_state, ons_error* error);

typedef struct ons__backend_ops {
  const char* name; /* "cuda", "cpu" */

  void (*destroy)(ons__backend* backend);

  /* Loads the driver at the first call. UNAVAILABLE says what was tried. */
  ons_status (*device_count)(ons__backend* backend, int32_t* out_count, ons_error* error);
  ons_status (*device_open)(ons__backend* backend, int32_t ordinal,
                            ons__device** out_device, ons_error* error);
  void (*device_close)(ons__device* device);

  /* Compiles for the request's `arch`: that of a device, or of a bundle. The caller owns
     |out_image|; |out_log| is set on failure as well as success (the caller frees it with
     the request's allocator; may come back NULL). Legal in capture. */
  ons_status (*compile)(ons__backend* backend, const ons__compile_request* request,
                        ons__image** out_image, char** out_log, ons_error* error);

  /* Appends what decides what `compile` makes of the request, beside the request itself:
     which compiler it is, and what it goes by. Runs and loads nothing. False where that
     cannot be told. */
  bool (*identify)(ons__backend* backend, const ons__compile_request* request,
                   ons__string* out_text);

  /* Loads an image; it may be destroyed afterwards. Legal in any capture. */
  ons_status (*load)(ons__device* device, const ons__image* image,
                     ons__binary** out_binary, ons_error* error);
  /* Gives a binary up. Where a captured graph may still hold its code, or the device be
     running it, the code itself stays loaded for the life of the process. */
  void (*unload)(ons__binary* binary);
  /* Resolves a kernel by its lowered name; `parameter_sizes` receives what the driver
     knows of the parameters' sizes (0: unknown), `count` of them. Opts in to the dynamic
     shared memory the device has. */
  ons_status (*function)(ons__binary* binary, const char* lowered,
                         ons__function* out_function, uint32_t* parameter_sizes,
                         size_t count, ons_error* error);

  /* The address and size of a variable, by its lowered name. */
  ons_status (*variable)(ons__binary* binary, const char* lowered, void** out_address,
                         size_t* out_size_bytes, ons_error* error);

  /* Enqueues. `parameters[i]` points at the i-th parameter's bytes, copied before it
     returns. The configuration has been checked against the limits. */
  ons__launch_fn* launch;

  /* The block size with which the most threads are resident, and how many such blocks
     fill the device. */
  ons_status (*block_size)(ons__device* device, const ons__function* function,
                           uint32_t shared_bytes, uint32_t limit, uint32_t* out_block,
                           uint32_t* out_grid, ons_error* error);

  /* Optional from here on: NULL on devices without streams. */

  /* As `launch`, for what has launch->attributes. These have been checked. */
  ons__launch_fn* launch_with_attributes;

  /* How many blocks a multiprocessor runs at a time; how many of launch's clusters the
     device does, 0 where their shape is beyond it. */
  ons_status (*resident_blocks)(ons__device* device, const ons__function* function,
                                uint32_t block_threads, uint32_t shared_bytes,
                                uint32_t* out_count, ons_error* error);
  ons_status (*resident_clusters)(ons__device* device, const ons__function* function,
                                  const ons_launch* launch, uint32_t* out_count,
                                  ons_error* error);

  /* Is the stream being captured? Never disturbs a capture. */
  ons__capture_state_fn* capture_state;
  /* Ditto, with the graph. */
  ons_status (*capture_info)(ons__device* device, void* stream,
                             ons__capture_info* out_info, ons_error* error);

  /* Refuses (ARGUMENT_VALUE) a stream of another device of the kind. Touches nothing. */
  ons_status (*stream_check)(ons__device* device, void* stream, ons_error* error);
  /* The ordinal of the device that a stream is of; for 0, 1 and 2 that of the thread's
     current context. Touches nothing. */
  ons_status (*stream_device)(ons__backend* backend, void* stream, int32_t* out_ordinal,
                              ons_error* error);
  /* Has the process, through whichever library, made the device's primary context? Makes
     none. */
  bool (*device_in_use)(ons__backend* backend, int32_t ordinal);

  /* Between these two the thread's driver calls harm no capture, of whichever thread.
     They nest. */
  void (*housekeeping_enter)(ons__device* device, unsigned* out_token);
  void (*housekeeping_leave)(ons__device* device, unsigned token);

  /* Events without timing. One is of eager streams or of captures, as it was first used.
     The query, which says true when the device is past it, is for the former and during
     housekeeping. */
  ons_status (*event_create)(ons__device* device, void** out_event, ons_error* error);
  void (*event_destroy)(ons__device* device, void* event);
  ons_status (*event_record)(ons__device* device, void* event, void* stream,
                             ons_error* error);
  bool (*event_passed)(ons__device* device, void* event);
  /* Later work on `stream` waits for the event, on the device. */
  ons_status (*event_wait)(ons__device* device, void* event, void* stream,
                           ons_error* error);
  /* The platform's own; good until the event is recorded again. */
  void* (*event_handle)(const void* event);

  /* Blocks until the device is past what the eager stream holds. During housekeeping. */
  ons_status (*stream_wait)(ons__device* device, void* stream, ons_error* error);
  /* Enqueues a copy between the device and itself or the host; may block. */
  ons_status (*memory_copy)(ons__device* device, void* target, const void* source,
                            size_t size_bytes, void* stream, ons_error* error);
  /* Enqueues a copy out of pageable host memory, which may be reused on return: the other
     one does not promise that. May block. */
  ons_status (*copy_from_host)(ons__device* device, void* target, const void* source,
                               size_t size_bytes, void* stream, ons_error* error);

  /* Calls `release(object)` once the graph and everything instantiated from it are gone.
     It is called from a driver thread and must call nothing of the driver. */
  ons_status (*graph_retain)(ons__device* device, void* graph, void* object,
                             void (*release)(void* object), ons_error* error);

  /* Events and graphs of the caller, by their native handles. An `external` event is a
     node of the stream's capture. */
  ons_status (*caller_event_wait)(ons__device* device, void* event, void* stream,
                                  bool external, ons_error* error);
  ons_status (*caller_event_record)(ons__device* device, void* event, void* stream,
                                    bool external, ons_error* error);
  /* Adds the launch to launch->graph and sets its out_node. */
  ons_status (*graph_add)(ons__device* device, const ons__function* function,
                          const ons_launch* launch, void* const* parameters,
                          ons_error* error);
  ons_status (*graph_update)(ons__device* device, const ons__function* function,
                             const ons_launch* launch, void* exec, void* node,
                             void* const* parameters, ons_error* error);

  /* Encodes ONS_TENSOR_MAP_BYTES of what has been checked; `strides` are the tensor's,
     also where it has none. NULL, or why it cannot be. */
  const char* (*tensor_map)(ons__device* device, const ons_tensor_map* map,
                            const DLTensor* tensor, const int64_t* strides,
                            unsigned char* out_bytes);
  /* Memory in the order of a stream that is not part of a capture. Where the free fails,
     and for whoever knows that the device is past every use, there is the third. */
  ons_status (*memory_allocate)(ons__device* device, size_t size_bytes, void* stream,
                                void** out_pointer, ons_error* error);
  bool (*memory_free_in_order)(ons__device* device, void* pointer, void* stream);
  void (*memory_free)(ons__device* device, void* pointer);
  /* Zero bytes, in the order of a stream; legal in its capture. */
  ons_status (*memory_zero)(ons__device* device, void* pointer, size_t size_bytes,
                            void* stream, ons_error* error);

  /* Can kernels on the device use this host pointer (pinned or managed memory)? */
  bool (*host_pointer_usable)(ons__device* device, const void* pointer);
  /* The index of the device that the memory is on; -1 where the driver does not tell. */
  ons_status (*pointer_device)(ons__backend* backend, const void* pointer,
                               int32_t* out_index, ons_error* error);
} ons__backend_ops;

struct ons__backend {
  const ons__backend_ops* ops;
  const ons__settings* settings; /* of the runtime, which outlives the backend */
};

struct ons__device {
  ons__backend* backend;
  DLDevice device;
  ons__device_limits limits;
  ons__device_traits traits;
  char arch[32];  /* what images are compiled for: "sm_90" */
  char name[128]; /* for people */
};

struct ons__binary {
  ons__device* device;
};

/* The backends there are. Creation touches no driver and no file. */
ons_status ons__cuda_backend_create(const ons__settings* settings,
                                    ons__backend** out_backend, ons_error* error);
ons_status ons__cpu_backend_create(const ons__settings* settings,
                                   ons__backend** out_backend, ons_error* error);

#endif /* ONS_RUNTIME_BACKEND_H_ */
