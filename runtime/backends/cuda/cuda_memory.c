/* Memory in the order of streams. */
#include "runtime/backends/cuda/cuda_backend.h"
#include "runtime/base/error.h"

static bool has_pools(const ons__cuda_driver* driver) {
  return driver->cuMemAllocAsync && driver->cuMemFreeAsync;
}

ons_status ons__cuda_memory_allocate(ons__device* base, size_t size_bytes, void* stream,
                                     void** out_pointer, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  if (!has_pools(driver)) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "memory in the order of a stream needs a driver of CUDA 11.2 "
                          "or newer: pass an array that was made before");
  }
  CUdeviceptr pointer = 0;
  ons__cuda_scope scope;
  CUresult result = ons__cuda_stream_enter(device, stream, &scope);
  if (!result) {
    result = driver->cuMemAllocAsync(&pointer, size_bytes, stream);
    ons__cuda_context_leave(device, &scope);
  }
  *out_pointer = (void*)(uintptr_t)pointer;
  return result ? ons__cuda_error(driver, "cuMemAllocAsync", result, error)
                : ONS_STATUS_OK;
}

bool ons__cuda_memory_free_in_order(ons__device* base, void* pointer, void* stream) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  ons__cuda_scope scope;
  if (ons__cuda_driver_lost(driver)) return false;
  if (ons__cuda_stream_enter(device, stream, &scope)) return false;
  CUresult result = driver->cuMemFreeAsync((CUdeviceptr)(uintptr_t)pointer, stream);
  ons__cuda_context_leave(device, &scope);
  return !result;
}

/* For memory of a pool the driver waits for nothing here. */
void ons__cuda_memory_free(ons__device* base, void* pointer) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  ons__cuda_scope scope;
  if (ons__cuda_driver_lost(device->driver)) return;
  if (ons__cuda_relaxed_enter(device, &scope)) return;
  device->driver->cuMemFree_v2((CUdeviceptr)(uintptr_t)pointer);
  ons__cuda_relaxed_leave(device, &scope);
}

ons_status ons__cuda_memory_zero(ons__device* base, void* pointer, size_t size_bytes,
                                 void* stream, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  ons__cuda_scope scope;
  CUresult result = ons__cuda_stream_enter(device, stream, &scope);
  if (!result) {
    result =
        driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)pointer, 0, size_bytes, stream);
    ons__cuda_context_leave(device, &scope);
  }
  return result ? ons__cuda_error(driver, "cuMemsetD8Async", result, error)
                : ONS_STATUS_OK;
}
