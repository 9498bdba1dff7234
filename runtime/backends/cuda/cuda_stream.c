/* Streams under capture, events, graph objects, host pointers. */
#include "runtime/backends/cuda/cuda_backend.h"
#include "runtime/base/error.h"

/* The special handles are looked up in the current context. */
static CUresult stream_enter(const ons__cuda_device* device, const void* stream,
                             ons__cuda_scope* out_scope) {
  out_scope->switched = false;
  if (!ons__cuda_stream_is_special(stream)) return CUDA_SUCCESS;
  return ons__cuda_context_enter(device, out_scope);
}

static ons_status capture_result(const ons__cuda_driver* driver, const char* call,
                                 CUresult result, CUstreamCaptureStatus status,
                                 ons__capture_state* out_state, ons_error* error) {
  *out_state = ONS__CAPTURE_NONE;
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    *out_state = ONS__CAPTURE_ELSEWHERE;
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
  CUresult result = stream_enter(device, stream, &scope);
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
  CUresult result = stream_enter(device, stream, &scope);
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

void* ons__cuda_stream_canonical(ons__device* device, void* stream) {
  (void)device;
  return (uintptr_t)stream == 1 ? NULL : stream;
}

ons_status ons__cuda_event_create(ons__device* base, void** out_event, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  if (ons__cuda_driver_lost(device->driver)) return ons__cuda_error_lost(error);
  CUevent event = NULL;
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (!result) {
    result = device->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    ons__cuda_relaxed_leave(device, &scope);
  }
  if (result) return ons__cuda_error(device->driver, "cuEventCreate", result, error);
  *out_event = event;
  return ONS_STATUS_OK;
}

void ons__cuda_event_destroy(ons__device* base, void* event) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  ons__cuda_scope scope;
  if (!event || ons__cuda_driver_lost(device->driver)) return;
  if (ons__cuda_relaxed_enter(device, &scope)) return;
  device->driver->cuEventDestroy_v2(event);
  ons__cuda_relaxed_leave(device, &scope);
}

ons_status ons__cuda_event_record(ons__device* base, void* event, void* stream,
                                  ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  if (ons__cuda_driver_lost(device->driver)) return ons__cuda_error_lost(error);
  ons__cuda_scope scope;
  CUresult result = stream_enter(device, stream, &scope);
  if (!result) {
    result = device->driver->cuEventRecord(event, stream);
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
  CUresult result = stream_enter(device, stream, &scope);
  if (!result) {
    result = device->driver->cuStreamWaitEvent(stream, event, 0);
    ons__cuda_context_leave(device, &scope);
  }
  return result ? ons__cuda_error(device->driver, "cuStreamWaitEvent", result, error)
                : ONS_STATUS_OK;
}

/* After any error but those of a capture the device runs nothing more in this context (a
 * sticky fault, a destroyed context, a driver that is gone): what was retained is not in
 * use. A query that was refused because of a capture says nothing, and is asked again. */
bool ons__cuda_event_passed(ons__device* base, void* event) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  if (ons__cuda_driver_lost(device->driver)) return true;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUresult result = device->driver->cuThreadExchangeStreamCaptureMode(&mode);
  if (!result) {
    result = device->driver->cuEventQuery(event);
    device->driver->cuThreadExchangeStreamCaptureMode(&mode);
  }
  bool refused = result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                 result <= CUDA_ERROR_CAPTURED_EVENT;
  return result != CUDA_ERROR_NOT_READY && !refused;
}

ons_status ons__cuda_graph_retain(ons__device* base, void* graph, void* object,
                                  void (*release)(void* object), ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  if (!driver->cuUserObjectCreate || !driver->cuGraphRetainUserObject) {
    return ons__error_set(
        error, ONS_STATUS_UNSUPPORTED,
        "launching into a stream capture needs a driver of CUDA 11.3 or "
        "newer");
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
