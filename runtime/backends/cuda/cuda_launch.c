/* The launch: nothing here may lock, allocate or format unless it fails. */
#include "runtime/backends/cuda/cuda_backend.h"
#include "runtime/base/error.h"
#include "runtime/base/steps.h"

static inline CUresult enqueue_ex(const ons__cuda_driver* driver, CUfunction function,
                                  const ons_launch* launch, void* stream,
                                  void* const* parameters) {
  const CUlaunchConfig config = {
      .gridDimX = launch->grid[0],
      .gridDimY = launch->grid[1],
      .gridDimZ = launch->grid[2],
      .blockDimX = launch->block[0],
      .blockDimY = launch->block[1],
      .blockDimZ = launch->block[2],
      .sharedMemBytes = launch->shared_bytes,
      .hStream = stream,
  };
  /* The driver only reads the parameters; its prototype does not say so. */
  return driver->cuLaunchKernelEx(&config, function, (void**)parameters, NULL);
}

static ONS__NOINLINE CUresult enqueue(const ons__cuda_driver* driver, CUfunction function,
                                      const ons_launch* launch, void* stream,
                                      void* const* parameters) {
  if (driver->cuLaunchKernelEx) {
    return enqueue_ex(driver, function, launch, stream, parameters);
  }
  return driver->cuLaunchKernel(function, launch->grid[0], launch->grid[1],
                                launch->grid[2], launch->block[0], launch->block[1],
                                launch->block[2], launch->shared_bytes, stream,
                                (void**)parameters, NULL);
}

static CUresult enqueue_special(const ons__cuda_device* device, CUfunction function,
                                const ons_launch* launch, void* stream,
                                void* const* parameters) {
  ons__cuda_scope scope;
  CUresult result = ons__cuda_context_enter(device, &scope);
  if (result) return result;
  result = enqueue(device->driver, function, launch, stream, parameters);
  ons__cuda_context_leave(device, &scope);
  return result;
}

/* A CUfunction belongs to the primary context and is the fastest; a stream of another
 * context (a green one, say) needs the CUkernel, which the driver maps to it. The driver
 * says so before it enqueues anything. */
bool ons__cuda_needs_portable(const ons__function* function, const void* stream,
                              CUresult result) {
  bool is_foreign =
      result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE;
  return is_foreign && function->portable_handle && !ons__stream_is_special(stream);
}

static ONS__COLD ons_status launch_slow(const ons__cuda_device* device,
                                        const ons__function* function,
                                        const ons_launch* launch, void* stream,
                                        void* const* parameters, CUresult result,
                                        ons_error* error) {
  if (ons__cuda_needs_portable(function, stream, result)) {
    ons_status status = ons__cuda_stream_check((ons__device*)device, stream, error);
    if (status) return status;
    result =
        enqueue(device->driver, function->portable_handle, launch, stream, parameters);
    if (!result) return ONS_STATUS_OK;
  }
  const char* call =
      device->driver->cuLaunchKernelEx ? "cuLaunchKernelEx" : "cuLaunchKernel";
  return ons__cuda_error(device->driver, call, result, error);
}

static ONS__NOINLINE ons_status launch_any(const ons__cuda_device* device,
                                           const ons__function* function,
                                           const ons_launch* launch, void* stream,
                                           void* const* parameters, ons_error* error) {
  if (ons__cuda_driver_lost(device->driver)) return ons__cuda_error_lost(error);
  CUresult result =
      ons__stream_is_special(stream) && ONS__DOES(LAUNCH_CONTEXT)
          ? enqueue_special(device, function->handle, launch, stream, parameters)
          : enqueue(device->driver, function->handle, launch, stream, parameters);
  if (!result) return ONS_STATUS_OK;
  return launch_slow(device, function, launch, stream, parameters, result, error);
}

/* In line what most launches need. */
ons_status ons__cuda_launch(ons__device* base, const ons__function* function,
                            const ons_launch* launch, void* stream,
                            void* const* parameters, size_t parameter_count,
                            ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = function->driver; /* spares a cache line */
  (void)parameter_count;
  if (ONS__UNLIKELY(ons__stream_is_special(stream) || ons__cuda_driver_lost(driver) ||
                    !driver->cuLaunchKernelEx)) {
    return launch_any(device, function, launch, stream, parameters, error);
  }
  CUresult result = enqueue_ex(driver, function->handle, launch, stream, parameters);
  if (!result) return ONS_STATUS_OK;
  return launch_slow(device, function, launch, stream, parameters, result, error);
}
