/* The objects of the CUDA backend and the functions of its table. */
#ifndef ONS_RUNTIME_BACKENDS_CUDA_CUDA_BACKEND_H_
#define ONS_RUNTIME_BACKENDS_CUDA_CUDA_BACKEND_H_

#include <stdatomic.h>

#include "jit/nvrtc.h"
#include "runtime/backend.h"
#include "runtime/backends/cuda/cuda_driver.h"
#include "runtime/base/attributes.h"
#include "runtime/base/steps.h"
#include "runtime/base/thread.h"

typedef struct ons__cuda_backend {
  ons__backend base;
  ons__mutex mutex; /* of `ready` and the loading of the driver */
  bool ready;
  ons__cuda_driver driver; /* immutable once ready */
  ons__nvrtc* nvrtc;
  _Atomic(struct ons__cuda_device*) devices; /* that have been opened */
} ons__cuda_backend;

typedef struct ons__cuda_device {
  ons__device base;
  const ons__cuda_driver* driver; /* the backend's */
  CUdevice handle;
  CUcontext primary;             /* the context that every framework uses; retained */
  atomic_bool has_code;          /* loaded into it, and so there for good */
  struct ons__cuda_device* next; /* of the backend's */
} ons__cuda_device;

typedef struct ons__cuda_binary {
  ons__binary base;
  CUlibrary library; /* NULL on drivers before 12.0, then: */
  CUmodule module;
} ons__cuda_binary;

/* The thread's context and capture mode, put aside. */
typedef struct ons__cuda_scope {
  CUcontext context;
  CUstreamCaptureMode mode;
  bool switched;
} ons__cuda_scope;

/* Makes the primary context current; leave restores what was, none included. */
CUresult ons__cuda_context_enter(const ons__cuda_device* device,
                                 ons__cuda_scope* out_scope);
void ons__cuda_context_leave(const ons__cuda_device* device,
                             const ons__cuda_scope* scope);

/* Also allows, for this thread, calls that a capture in progress (in any thread) would
 * forbid and die of. Only for calls that touch no stream. */
CUresult ons__cuda_relaxed_enter(const ons__cuda_device* device,
                                 ons__cuda_scope* out_scope);
void ons__cuda_relaxed_leave(const ons__cuda_device* device,
                             const ons__cuda_scope* scope);

/* For calls on a stream: makes the primary context current where the handle is special.
 */
static inline CUresult ons__cuda_stream_enter(const ons__cuda_device* device,
                                              const void* stream,
                                              ons__cuda_scope* out_scope) {
  out_scope->switched = false;
  if (!ons__stream_is_special(stream) || !ONS__DOES(SPECIAL_CONTEXT)) {
    return CUDA_SUCCESS;
  }
  return ons__cuda_context_enter(device, out_scope);
}

ons_status ons__cuda_device_open(ons__backend* backend, int32_t ordinal,
                                 ons__device** out_device, ons_error* error);
void ons__cuda_device_close(ons__device* device);
/* Loads the driver at the first call. */
ons_status ons__cuda_start(ons__cuda_backend* backend, ons_error* error);

ons_status ons__cuda_load(ons__device* device, const ons__image* image,
                          ons__binary** out_binary, ons_error* error);
void ons__cuda_unload(ons__binary* binary);
ons_status ons__cuda_function(ons__binary* binary, const char* lowered,
                              ons__function* out_function, uint32_t* parameter_sizes,
                              size_t count, ons_error* error);
ons_status ons__cuda_variable(ons__binary* binary, const char* lowered,
                              void** out_address, size_t* out_size_bytes,
                              ons_error* error);

ONS__HOT ons_status ons__cuda_launch(ons__device* device, const ons__function* function,
                                     const ons_launch* launch, void* stream,
                                     void* const* parameters, size_t parameter_count,
                                     ons_error* error);

/* After a launch with function->handle that failed: is the portable handle to be tried?
 * It would run on the stream's device, whichever that is: ons__cuda_stream_check first.
 */
bool ons__cuda_needs_portable(const ons__function* function, const void* stream,
                              CUresult result);

ons_status ons__cuda_launch_with_attributes(ons__device* device,
                                            const ons__function* function,
                                            const ons_launch* launch, void* stream,
                                            void* const* parameters,
                                            size_t parameter_count, ons_error* error);
/* Of a new node; those of launch->attributes, which may be NULL. */
CUresult ons__cuda_node_attributes(const ons__cuda_driver* driver,
                                   const ons_launch_attributes* attributes,
                                   CUgraphNode node);
ons_status ons__cuda_resident_blocks(ons__device* device, const ons__function* function,
                                     uint32_t block_threads, uint32_t shared_bytes,
                                     uint32_t* out_count, ons_error* error);
ons_status ons__cuda_resident_clusters(ons__device* device, const ons__function* function,
                                       const ons_launch* launch, uint32_t* out_count,
                                       ons_error* error);
ons_status ons__cuda_block_size(ons__device* device, const ons__function* function,
                                uint32_t shared_bytes, uint32_t limit,
                                uint32_t* out_block, uint32_t* out_grid,
                                ons_error* error);

ONS__HOT ons_status ons__cuda_capture_state(ons__device* device, void* stream,
                                            ons__capture_state* out_state,
                                            ons_error* error);
ons_status ons__cuda_capture_info(ons__device* device, void* stream,
                                  ons__capture_info* out_info, ons_error* error);
ons_status ons__cuda_stream_check(ons__device* device, void* stream, ons_error* error);
ons_status ons__cuda_stream_device(ons__backend* backend, void* stream,
                                   int32_t* out_ordinal, ons_error* error);
ons_status ons__cuda_event_create(ons__device* device, void** out_event,
                                  ons_error* error);
void ons__cuda_event_destroy(ons__device* device, void* event);
ons_status ons__cuda_event_record(ons__device* device, void* event, void* stream,
                                  ons_error* error);
ons_status ons__cuda_event_wait(ons__device* device, void* event, void* stream,
                                ons_error* error);
bool ons__cuda_event_passed(ons__device* device, void* event);
void* ons__cuda_event_handle(const void* event);
ons_status ons__cuda_stream_wait(ons__device* device, void* stream, ons_error* error);
ons_status ons__cuda_memory_copy(ons__device* device, void* target, const void* source,
                                 size_t size_bytes, void* stream, ons_error* error);
ons_status ons__cuda_copy_from_host(ons__device* device, void* target, const void* source,
                                    size_t size_bytes, void* stream, ons_error* error);
void ons__cuda_housekeeping_enter(ons__device* device, unsigned* out_token);
void ons__cuda_housekeeping_leave(ons__device* device, unsigned token);
ons_status ons__cuda_graph_retain(ons__device* device, void* graph, void* object,
                                  void (*release)(void* object), ons_error* error);
ons_status ons__cuda_caller_event_wait(ons__device* device, void* event, void* stream,
                                       bool external, ons_error* error);
ons_status ons__cuda_caller_event_record(ons__device* device, void* event, void* stream,
                                         bool external, ons_error* error);
ons_status ons__cuda_graph_add(ons__device* device, const ons__function* function,
                               const ons_launch* launch, void* const* parameters,
                               ons_error* error);
ons_status ons__cuda_graph_update(ons__device* device, const ons__function* function,
                                  const ons_launch* launch, void* exec, void* node,
                                  void* const* parameters, ons_error* error);
const char* ons__cuda_tensor_map(ons__device* device, const ons_tensor_map* map,
                                 const DLTensor* tensor, const int64_t* strides,
                                 unsigned char* out_bytes);
ons_status ons__cuda_memory_allocate(ons__device* device, size_t size_bytes, void* stream,
                                     void** out_pointer, ons_error* error);
bool ons__cuda_memory_free_in_order(ons__device* device, void* pointer, void* stream);
void ons__cuda_memory_free(ons__device* device, void* pointer);
ons_status ons__cuda_memory_zero(ons__device* device, void* pointer, size_t size_bytes,
                                 void* stream, ons_error* error);
bool ons__cuda_host_pointer_usable(ons__device* device, const void* pointer);

#endif /* ONS_RUNTIME_BACKENDS_CUDA_CUDA_BACKEND_H_ */
