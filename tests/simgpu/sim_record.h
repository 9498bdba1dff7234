/* Control of the stand-in CUDA driver, which runs nothing and records everything (until
 * sim_gpu.h makes it simulate). It is loaded by path and must not be named libcuda.so.1,
 * the name under which NVRTC and others look for the real one.
 *
 * It follows the driver's rules about contexts, streams and capture, with its error
 * codes; where drivers differ it is the strictest of them. What no driver would survive
 * (an unknown handle, a call from a user object's destructor or from a forked child)
 * aborts with a message. */
#ifndef ONS_TESTS_SIMGPU_SIM_RECORD_H_
#define ONS_TESTS_SIMGPU_SIM_RECORD_H_

#include <stddef.h>
#include <stdint.h>

#define SIM_API __attribute__((visibility("default")))

enum {
  SIM_MAX_PARAMETERS = 32,
  SIM_MAX_PARAMETER_BYTES = 1024,
  SIM_MAX_DEVICES = 8,
  SIM_MAX_ATTRIBUTES = 8,
  SIM_MULTIPROCESSORS = 132,
  SIM_RESIDENT_THREADS = 2048 /* of a multiprocessor */
};

/* One call of a driver function. What does not apply is zero. */
typedef struct sim_record {
  const char* function; /* "cuLaunchKernelEx" */
  int result;
  uint64_t thread;
  void* current_context; /* of the thread, when called */
  unsigned int mode;     /* the thread's capture mode, when called */
  void* stream;          /* as given */
  void* stream_context;  /* that it belongs to */
  void* handle;          /* the function, kernel, event or graph given */
  char kernel[256];      /* its lowered name */
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  uint32_t parameter_count;
  uint32_t parameter_sizes[SIM_MAX_PARAMETERS];
  uint32_t parameter_offsets[SIM_MAX_PARAMETERS];
  uint8_t parameters[SIM_MAX_PARAMETER_BYTES]; /* laid out as the kernel sees them */
  uint32_t attribute_count;                    /* of a launch; 1 of a node's attribute */
  uint32_t attribute_ids[SIM_MAX_ATTRIBUTES];
  int32_t attribute_values[SIM_MAX_ATTRIBUTES][3]; /* the first three words */
} sim_record;

typedef enum sim_capture_mode {
  SIM_CAPTURE_GLOBAL = 0,
  SIM_CAPTURE_THREAD_LOCAL = 1,
  SIM_CAPTURE_RELAXED = 2
} sim_capture_mode;

/* What has been created and not destroyed. */
typedef struct sim_live {
  size_t primary_retains; /* over all devices */
  size_t libraries;
  size_t modules;
  size_t events;
  size_t user_objects;
} sim_live;

/* ---- the machine: before the first use of the driver ---- */
SIM_API void sim_set_device_count(int count); /* default: SIMGPU_DEVICES, else 1 */
SIM_API void sim_set_version(int version);    /* 13000; newer functions are not there */
SIM_API void sim_set_capability(int device, int major, int minor); /* 9, 0 */
SIM_API void sim_deinitialize(
    void); /* as at process exit: everything answers 4 from now on */

/* ---- records ---- */
SIM_API size_t sim_record_count(void);
SIM_API const sim_record* sim_record_at(size_t index);    /* valid until cleared */
SIM_API const sim_record* sim_last(const char* function); /* the latest call, or NULL */
SIM_API size_t sim_call_count(const char* function);
SIM_API void sim_clear_records(void);
SIM_API void sim_set_recording(int on); /* off: for measurements */
SIM_API sim_live sim_get_live(void);

/* The `nth` call (1: the next) of the function returns `code` and does nothing. */
SIM_API void sim_inject(const char* function, int nth, int code);

/* ---- the other user of the device ---- */
SIM_API void* sim_primary_context(
    int device);                              /* retained for good, as a framework does */
SIM_API void* sim_context_create(int device); /* a second context of the device */
SIM_API void sim_set_current(void* context);
SIM_API void* sim_get_current(void);
SIM_API void* sim_stream_create(void* context, int non_blocking);
/* Everything enqueued on the stream so far is done, up to a wait for an event that has
 * not passed; 0 and 1 mean the legacy stream of the current context. */
SIM_API void sim_complete(void* stream);
SIM_API void sim_host_register(const void* pointer,
                               size_t size_bytes); /* pinned memory */

SIM_API void sim_capture_begin(void* stream, sim_capture_mode mode);
/* 0: not capturing, 1: active, 2: invalidated. */
SIM_API int sim_capture_status(void* stream);
/* The graph, or NULL when the capture was invalidated. Only from the thread that began
 * it. */
SIM_API void* sim_capture_end(void* stream);
SIM_API size_t sim_graph_kernel_count(void* graph);
SIM_API void sim_graph_destroy(
    void* graph); /* releases its user objects, on another thread */

#endif /* ONS_TESTS_SIMGPU_SIM_RECORD_H_ */
