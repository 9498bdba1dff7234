/* Devices, and the thread state that calls into them need. */
#include <stdio.h>

#include "runtime/backends/cuda/cuda_backend.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/steps.h"

CUresult ons__cuda_context_enter(const ons__cuda_device* device,
                                 ons__cuda_scope* out_scope) {
  const ons__cuda_driver* driver = device->driver;
  out_scope->switched = false;
  CUresult result = driver->cuCtxGetCurrent(&out_scope->context);
  if (result || out_scope->context == device->primary) return result;
  result = driver->cuCtxSetCurrent(device->primary);
  out_scope->switched = result == CUDA_SUCCESS;
  return result;
}

void ons__cuda_context_leave(const ons__cuda_device* device,
                             const ons__cuda_scope* scope) {
  if (scope->switched && ONS__DOES(RESTORE_CONTEXT)) {
    device->driver->cuCtxSetCurrent(scope->context);
  }
}

CUresult ons__cuda_relaxed_enter(const ons__cuda_device* device,
                                 ons__cuda_scope* out_scope) {
  out_scope->mode = ONS__DOES(RELAX_CREATION) ? CU_STREAM_CAPTURE_MODE_RELAXED
                                              : CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUresult result = device->driver->cuThreadExchangeStreamCaptureMode(&out_scope->mode);
  if (result) return result;
  result = ons__cuda_context_enter(device, out_scope);
  if (result) device->driver->cuThreadExchangeStreamCaptureMode(&out_scope->mode);
  return result;
}

void ons__cuda_relaxed_leave(const ons__cuda_device* device,
                             const ons__cuda_scope* scope) {
  CUstreamCaptureMode mode = scope->mode;
  ons__cuda_context_leave(device, scope);
  device->driver->cuThreadExchangeStreamCaptureMode(&mode);
}

static CUresult read_attributes(ons__cuda_device* device) {
  ons__device_limits* limits = &device->base.limits;
  int major = 0, minor = 0;
  uint32_t shared_bytes = 0;
  const struct {
    CUdevice_attribute attribute;
    void* out_value;
  } wanted[] = {
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &limits->grid[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &limits->grid[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &limits->grid[2]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &limits->block[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &limits->block[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &limits->block[2]},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &limits->threads_per_block},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &shared_bytes},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &limits->shared_bytes},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
  };
  for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); ++i) {
    CUresult result = device->driver->cuDeviceGetAttribute(
        (int*)wanted[i].out_value, wanted[i].attribute, device->handle);
    if (result) return result;
  }
  if (limits->shared_bytes < shared_bytes) limits->shared_bytes = shared_bytes;
  snprintf(device->base.arch, sizeof(device->base.arch), "sm_%d%d", major, minor);
  return CUDA_SUCCESS;
}

/* What older drivers do not know, their devices do not have. */
static uint32_t read_optional(const ons__cuda_device* device,
                              CUdevice_attribute attribute) {
  int value = 0;
  CUresult result =
      device->driver->cuDeviceGetAttribute(&value, attribute, device->handle);
  return result || value < 0 ? 0 : (uint32_t)value;
}

static void read_traits(ons__cuda_device* device) {
  const ons__cuda_driver* driver = device->driver;
  device->base.traits = (ons__device_traits){
      .multiprocessor_count =
          read_optional(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
      .threads_per_multiprocessor =
          read_optional(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
      .has_attributes = driver->cuLaunchKernelEx != NULL,
      .has_cooperative = read_optional(device, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
      .has_clusters = driver->cuOccupancyMaxActiveClusters &&
                      read_optional(device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH),
      .has_carveout = driver->version >= 12050,
  };
}

static CUresult read_priorities(ons__cuda_device* device) {
  ons__device_traits* traits = &device->base.traits;
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (result) return result;
  result = device->driver->cuCtxGetStreamPriorityRange(&traits->lowest_priority,
                                                       &traits->highest_priority);
  ons__cuda_relaxed_leave(device, &scope);
  return result;
}

static ons_status no_device(const ons__cuda_driver* driver, int32_t ordinal,
                            ons_error* error) {
  int count = 0;
  driver->cuDeviceGetCount(&count);
  return ons__error_native(error, ONS_STATUS_UNAVAILABLE, "cuDeviceGet",
                           CUDA_ERROR_INVALID_DEVICE,
                           "there is no cuda:%d, the driver shows %d GPUs: the first is "
                           "cuda:0, and CUDA_VISIBLE_DEVICES may hide some",
                           (int)ordinal, count);
}

static ons_status describe(ons__cuda_device* device, int32_t ordinal, ons_error* error) {
  const ons__cuda_driver* driver = device->driver;
  char name[96] = "";
  CUresult result = driver->cuDeviceGet(&device->handle, ordinal);
  if (result == CUDA_ERROR_INVALID_DEVICE) return no_device(driver, ordinal, error);
  if (result) return ons__cuda_error(driver, "cuDeviceGet", result, error);
  result = driver->cuDeviceGetName(name, (int)sizeof(name), device->handle);
  if (result) return ons__cuda_error(driver, "cuDeviceGetName", result, error);
  result = read_attributes(device);
  if (result) return ons__cuda_error(driver, "cuDeviceGetAttribute", result, error);
  read_traits(device);
  snprintf(device->base.name, sizeof(device->base.name), "%.80s, %s", name,
           device->base.arch);
  return ONS_STATUS_OK;
}

/* Making a context allocates, which a capture in progress would forbid. */
static CUresult retain_primary(ons__cuda_device* device) {
  const ons__cuda_driver* driver = device->driver;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUresult result = driver->cuThreadExchangeStreamCaptureMode(&mode);
  if (result) return result;
  result = driver->cuDevicePrimaryCtxRetain(&device->primary, device->handle);
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  return result;
}

ons_status ons__cuda_device_open(ons__backend* backend, int32_t ordinal,
                                 ons__device** out_device, ons_error* error) {
  ons__cuda_device* device = ons__alloc(backend->settings->allocator, sizeof(*device));
  if (!device) return ons__error_no_memory(error);
  device->base.backend = backend;
  device->base.device = (DLDevice){kDLCUDA, ordinal};
  device->driver = &((const ons__cuda_backend*)backend)->driver;
  ons_status status = describe(device, ordinal, error);
  if (status) goto fail;
  CUresult result = retain_primary(device);
  if (result) {
    status = ons__cuda_error(device->driver, "cuDevicePrimaryCtxRetain", result, error);
    goto fail;
  }
  result = read_priorities(device);
  if (result) {
    status =
        ons__cuda_error(device->driver, "cuCtxGetStreamPriorityRange", result, error);
    goto fail;
  }
  ons__cuda_backend* owner = (ons__cuda_backend*)backend;
  device->next = atomic_load(&owner->devices);
  while (!atomic_compare_exchange_weak(&owner->devices, &device->next, device)) continue;
  *out_device = &device->base;
  return ONS_STATUS_OK;
fail:
  ons__cuda_device_close(&device->base);
  return status;
}

/* The last reference takes the context along, and with it the code that graphs may still
 * replay (see ons__cuda_unload). So the reference of a device that has loaded code is
 * never given back: one a device and runtime, which keeps nothing that the code does not
 * keep anyway. */
static bool may_release(const ons__cuda_device* device) {
  return device->primary && !ons__cuda_driver_lost(device->driver) &&
         !atomic_load_explicit(&device->has_code, memory_order_relaxed);
}

/* The result is of no interest: at process exit the driver may be gone already. */
void ons__cuda_device_close(ons__device* base) {
  ons__cuda_device* device = (ons__cuda_device*)base;
  if (!device) return;
  if (may_release(device)) {
    device->driver->cuDevicePrimaryCtxRelease_v2(device->handle);
  }
  ons__free(base->backend->settings->allocator, device);
}
