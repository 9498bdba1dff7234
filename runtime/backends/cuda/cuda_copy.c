/* Copies, and what the host waits for. */
#include "runtime/backends/cuda/cuda_backend.h"
#include "runtime/base/error.h"

/* Addresses tell the driver where they are. */
ons_status ons__cuda_memory_copy(ons__device* base, void* target, const void* source,
                                 size_t size_bytes, void* stream, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  if (ons__cuda_driver_lost(device->driver)) return ons__cuda_error_lost(error);
  ons__cuda_scope scope;
  CUresult result = ons__cuda_context_enter(device, &scope);
  if (!result) {
    result =
        device->driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)target,
                                      (CUdeviceptr)(uintptr_t)source, size_bytes, stream);
    ons__cuda_context_leave(device, &scope);
  }
  return result ? ons__cuda_error(device->driver, "cuMemcpyAsync", result, error)
                : ONS_STATUS_OK;
}

ons_status ons__cuda_copy_from_host(ons__device* base, void* target, const void* source,
                                    size_t size_bytes, void* stream, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  ons__cuda_scope scope;
  CUresult result = ons__cuda_context_enter(device, &scope);
  if (!result) {
    result = driver->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)target, source,
                                          size_bytes, stream);
    ons__cuda_context_leave(device, &scope);
  }
  return result ? ons__cuda_error(driver, "cuMemcpyHtoDAsync", result, error)
                : ONS_STATUS_OK;
}

ons_status ons__cuda_stream_wait(ons__device* base, void* stream, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  if (ons__cuda_driver_lost(device->driver)) return ons__cuda_error_lost(error);
  ons__cuda_scope scope;
  CUresult result = ons__cuda_stream_enter(device, stream, &scope);
  if (!result) {
    result = device->driver->cuStreamSynchronize(stream);
    ons__cuda_context_leave(device, &scope);
  }
  return result ? ons__cuda_error(device->driver, "cuStreamSynchronize", result, error)
                : ONS_STATUS_OK;
}
