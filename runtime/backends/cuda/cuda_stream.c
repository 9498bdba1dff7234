/* Streams under capture, events, graph objects, host pointers. */
#include "runtime/backends/cuda/cuda_backend.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/steps.h"

/* ---- streams ----------------------------------------------------------------------- */

static ons_status capture_result(const ons__cuda_driver* driver, const char* call,
                                 CUresult result, CUstreamCaptureStatus status,
                                 ons__capture_state* out_state, ons_error* error) {
  *out_state = ONS__CAPTURE_NONE;
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    if (ONS__DOES(REFUSE_LEGACY)) *out_state = ONS__CAPTURE_ELSEWHERE;
    return ONS_STATUS_OK;
  }
  if (result) return ons__cuda_error(driver, call, result, error);
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return ons__error_set(
        error, ONS_STATUS_CAPTURE,
        "the capture of this stream was broken by an earlier call; end it "
        "and begin again");
  }
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) *out_state = ONS__CAPTURE_ACTIVE;
  return ONS_STATUS_OK;
}

static ons_status capture_unsupported(ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_UNSUPPORTED,
      "launching into a stream capture needs a driver of CUDA 11.3 or newer");
}

ons_status ons__cuda_capture_state(ons__device* base, void* stream,
                                   ons__capture_state* out_state, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ons__cuda_scope scope;
  CUresult result = ons__cuda_stream_enter(device, stream, &scope);
  if (!result) {
    result = driver->cuStreamIsCapturing(stream, &status);
    ons__cuda_context_leave(device, &scope);
  }
  return capture_result(driver, "cuStreamIsCapturing", result, status, out_state, error);
}

ons_status ons__cuda_capture_info(ons__device* base, void* stream,
                                  ons__capture_info* out_info, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  if (!driver->cuStreamGetCaptureInfo_v3 && !driver->cuStreamGetCaptureInfo_v2) {
    return capture_unsupported(error);
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t id = 0;
  CUgraph graph = NULL;
  ons__cuda_scope scope;
  CUresult result = ons__cuda_stream_enter(device, stream, &scope);
  if (!result) {
    result =
        driver->cuStreamGetCaptureInfo_v3
            ? driver->cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, NULL, NULL,
                                                NULL)
            : driver->cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, NULL, NULL);
    ons__cuda_context_leave(device, &scope);
  }
  *out_info = (ons__capture_info){.id = id, .graph = graph};
  return capture_result(driver, "cuStreamGetCaptureInfo", result, status,
                        &out_info->state, error);
}

/* A context's device is told of the current context only. */
static CUresult device_of_context(const ons__cuda_driver* driver, CUcontext context,
                                  CUdevice* out_device) {
  CUcontext before = NULL;
  CUresult result = driver->cuCtxGetCurrent(&before);
  if (!result) result = driver->cuCtxSetCurrent(context);
  if (result) return result;
  result = driver->cuCtxGetDevice(out_device);
  driver->cuCtxSetCurrent(before);
  return result;
}

/* What the driver cannot say of a stream is left to the call that uses it. */
ons_status ons__cuda_stream_check(ons__device* base, void* stream, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  CUcontext context = NULL;
  CUdevice other = 0;
  if (ons__stream_is_special(stream) || ons__cuda_driver_lost(device->driver) ||
      device->driver->cuStreamGetCtx(stream, &context) || context == device->primary ||
      device_of_context(device->driver, context, &other) || other == device->handle) {
    return ONS_STATUS_OK;
  }
  return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                        "stream %p is of cuda:%d, and the arrays are on cuda:%d: pass a "
                        "stream of their device",
                        stream, (int)other, (int)base->device.device_id);
}

/* Mostly of a device that has been opened, and of its primary context. */
static const ons__cuda_device* find_opened(const ons__cuda_backend* backend,
                                           CUcontext context) {
  const ons__cuda_device* device =
      atomic_load_explicit(&backend->devices, memory_order_acquire);
  while (device && device->primary != context) device = device->next;
  return device;
}

ons_status ons__cuda_stream_device(ons__backend* base, void* stream, int32_t* out_ordinal,
                                   ons_error* error) {
  ons__cuda_backend* backend = (ons__cuda_backend*)base;
  const ons__cuda_driver* driver = &backend->driver;
  if (!atomic_load_explicit(&backend->devices, memory_order_acquire)) {
    ons_status status = ons__cuda_start(backend, error);
    if (status) return status;
  }
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  CUcontext context = NULL;
  CUresult result = ons__stream_is_special(stream)
                        ? driver->cuCtxGetCurrent(&context)
                        : driver->cuStreamGetCtx(stream, &context);
  if (result) return ons__cuda_error(driver, "cuStreamGetCtx", result, error);
  const ons__cuda_device* device = find_opened(backend, context);
  if (device) {
    *out_ordinal = device->base.device.device_id;
    return ONS_STATUS_OK;
  }
  CUdevice ordinal = 0; /* what a CUdevice is */
  result = device_of_context(driver, context, &ordinal);
  if (result) return ons__cuda_error(driver, "cuCtxGetDevice", result, error);
  *out_ordinal = ordinal;
  return ONS_STATUS_OK;
}

/* ---- events ----------------------------------------------------------------------- */

/* An event is of one context, as a stream is, and only records the streams of it. A join
 * with a stream of another context goes back and forth between two. */
typedef struct cuda_event {
  CUevent handle; /* recorded last; at first of the primary context */
  CUevent other;  /* of another context, or NULL */
} cuda_event;

ons_status ons__cuda_event_create(ons__device* base, void** out_event, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  if (ons__cuda_driver_lost(device->driver)) return ons__cuda_error_lost(error);
  cuda_event* event = ons__alloc(base->backend->settings->allocator, sizeof(*event));
  if (!event) return ons__error_no_memory(error);
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (!result) {
    result = device->driver->cuEventCreate(&event->handle, CU_EVENT_DISABLE_TIMING);
    ons__cuda_relaxed_leave(device, &scope);
  }
  if (result) {
    ons__free(base->backend->settings->allocator, event);
    return ons__cuda_error(device->driver, "cuEventCreate", result, error);
  }
  *out_event = event;
  return ONS_STATUS_OK;
}

void ons__cuda_event_destroy(ons__device* base, void* event_) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  cuda_event* event = event_;
  ons__cuda_scope scope;
  if (!event) return;
  if (!ons__cuda_driver_lost(device->driver) &&
      !ons__cuda_relaxed_enter(device, &scope)) {
    device->driver->cuEventDestroy_v2(event->handle);
    if (event->other) device->driver->cuEventDestroy_v2(event->other);
    ons__cuda_relaxed_leave(device, &scope);
  }
  ons__free(base->backend->settings->allocator, event);
}

/* Takes a handle of the stream's context into use. */
static CUresult move_event(const ons__cuda_device* device, cuda_event* event,
                           CUstream stream) {
  const ons__cuda_driver* driver = device->driver;
  CUcontext context = device->primary;
  CUevent moved = NULL;
  ons__cuda_scope scope;
  CUresult result = CUDA_SUCCESS;
  if (!ons__stream_is_special(stream)) {
    result = driver->cuStreamGetCtx(stream, &context);
  }
  if (!result) result = ons__cuda_relaxed_enter(device, &scope);
  if (result) return result;
  scope.switched = true;
  result = driver->cuCtxSetCurrent(context);
  if (!result) result = driver->cuEventCreate(&moved, CU_EVENT_DISABLE_TIMING);
  if (!result) {
    if (event->other) driver->cuEventDestroy_v2(event->other);
    event->other = event->handle;
    event->handle = moved;
  }
  ons__cuda_relaxed_leave(device, &scope);
  return result;
}

/* Does the code say that the event's context is not the stream's, or is no more? */
static bool is_foreign_event(CUresult result) {
  return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT ||
         result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* The driver refuses an event of another context without harm, to a capture too. */
static CUresult record(const ons__cuda_device* device, cuda_event* event,
                       CUstream stream) {
  CUresult result = device->driver->cuEventRecord(event->handle, stream);
  if (!ONS__DOES(MOVE_EVENT)) return result;
  if (is_foreign_event(result) && event->other) {
    CUevent handle = event->other;
    event->other = event->handle;
    event->handle = handle;
    result = device->driver->cuEventRecord(handle, stream);
  }
  if (is_foreign_event(result) && !move_event(device, event, stream)) {
    result = device->driver->cuEventRecord(event->handle, stream);
  }
  return result;
}

ons_status ons__cuda_event_record(ons__device* base, void* event_, void* stream,
                                  ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  cuda_event* event = event_;
  if (ons__cuda_driver_lost(device->driver)) return ons__cuda_error_lost(error);
  ons__cuda_scope scope;
  CUresult result = ons__cuda_stream_enter(device, stream, &scope);
  if (!result) {
    result = record(device, event, stream);
    ons__cuda_context_leave(device, &scope);
  }
  return result ? ons__cuda_error(device->driver, "cuEventRecord", result, error)
                : ONS_STATUS_OK;
}

ons_status ons__cuda_event_wait(ons__device* base, void* event, void* stream,
                                ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  if (ons__cuda_driver_lost(device->driver)) return ons__cuda_error_lost(error);
  ons__cuda_scope scope;
  CUresult result = ons__cuda_stream_enter(device, stream, &scope);
  if (!result) {
    CUevent handle = ((const cuda_event*)event)->handle;
    result = device->driver->cuStreamWaitEvent(stream, handle, 0);
    ons__cuda_context_leave(device, &scope);
  }
  return result ? ons__cuda_error(device->driver, "cuStreamWaitEvent", result, error)
                : ONS_STATUS_OK;
}

/* Does the code say that nothing runs any more in the event's context: a fault that
 * stays, or a context or driver that is gone? */
static bool is_final(CUresult result) {
  switch ((int)result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT: /* destroyed, and others were made since */
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

/* What was retained is released on a definite answer only. After a fault that stays there
 * is no other to come; every other error (the query was refused because of a capture,
 * say) tells nothing, and the next query is asked. In the child of a fork nobody knows,
 * and the threads that foreign deleters count on are not there: it keeps what it
 * inherited. */
bool ons__cuda_event_passed(ons__device* base, void* event) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  if (ons__cuda_driver_lost(device->driver)) return false;
  CUresult result = device->driver->cuEventQuery(((const cuda_event*)event)->handle);
  return result == CUDA_SUCCESS || is_final(result);
}

void* ons__cuda_event_handle(const void* event) {
  return ((const cuda_event*)event)->handle;
}

/* ---- housekeeping ------------------------------------------------------------------ */

enum { NOT_ENTERED = CU_STREAM_CAPTURE_MODE_RELAXED + 1 };

/* Only a driver that is gone refuses this, and with it went the captures. */
void ons__cuda_housekeeping_enter(ons__device* base, unsigned* out_token) {
  const ons__cuda_driver* driver = ((const ons__cuda_device*)base)->driver;
  CUstreamCaptureMode mode = ONS__DOES(RELAX_HOUSEKEEPING)
                                 ? CU_STREAM_CAPTURE_MODE_RELAXED
                                 : CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool entered =
      !ons__cuda_driver_lost(driver) && !driver->cuThreadExchangeStreamCaptureMode(&mode);
  *out_token = entered ? mode : NOT_ENTERED;
}

void ons__cuda_housekeeping_leave(ons__device* base, unsigned token) {
  const ons__cuda_driver* driver = ((const ons__cuda_device*)base)->driver;
  CUstreamCaptureMode mode = token;
  if (token == NOT_ENTERED || ons__cuda_driver_lost(driver)) return;
  driver->cuThreadExchangeStreamCaptureMode(&mode);
}

/* ---- graphs and pointers ------------------------------------------------------------
 */

ons_status ons__cuda_graph_retain(ons__device* base, void* graph, void* object,
                                  void (*release)(void* object), ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  if (!driver->cuUserObjectCreate || !driver->cuGraphRetainUserObject) {
    return capture_unsupported(error);
  }
  const char* call = "cuUserObjectCreate";
  CUuserObject holder = NULL;
  CUresult result = driver->cuUserObjectCreate(&holder, object, release, 1,
                                               CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  if (!result) {
    /* When this fails the holder stays behind, a few bytes: releasing it would call
       `release`, and the object is the caller's again. */
    call = "cuGraphRetainUserObject";
    result = driver->cuGraphRetainUserObject(graph, holder, 1, CU_GRAPH_USER_OBJECT_MOVE);
  }
  return result ? ons__cuda_error(driver, call, result, error) : ONS_STATUS_OK;
}

/* Kernels get the host's address, so the device must know the memory by that one. */
bool ons__cuda_host_pointer_usable(ons__device* base, const void* pointer) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  ons__cuda_scope scope;
  if (ons__cuda_driver_lost(device->driver)) return false;
  if (ons__cuda_context_enter(device, &scope)) return false;
  CUdeviceptr address = 0;
  CUresult result = device->driver->cuPointerGetAttribute(
      &address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (CUdeviceptr)(uintptr_t)pointer);
  ons__cuda_context_leave(device, &scope);
  return !result && address == (CUdeviceptr)(uintptr_t)pointer;
}
