/* Loaded code and its functions. */
#include <string.h>

#include "runtime/backends/cuda/cuda_backend.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

static const ons__cuda_device* device_of(const ons__binary* binary) {
  return (const ons__cuda_device*)binary->device;
}

static bool has_libraries(const ons__cuda_driver* driver) {
  return driver->cuLibraryLoadData && driver->cuLibraryGetKernel &&
         driver->cuLibraryGetGlobal && driver->cuKernelGetFunction;
}

static ons_status load_error(const ons__cuda_device* device, const ons__image* image,
                             const char* call, CUresult result, ons_error* error) {
  const ons__cuda_driver* driver = device->driver;
  if (result != CUDA_ERROR_UNSUPPORTED_PTX_VERSION &&
      result != CUDA_ERROR_NO_BINARY_FOR_GPU && result != CUDA_ERROR_INVALID_IMAGE) {
    return ons__cuda_error(driver, call, result, error);
  }
  ons__cuda_error_as(driver, ONS_STATUS_UNSUPPORTED, call, result, error);
  ons__error_prefix(
      error,
      "the driver (CUDA %d.%d) does not take this %s for %s: it comes from a newer "
      "compiler, or is for another architecture; update the driver, or name an NVRTC of "
      "its version in ONSTREAM_NVRTC",
      driver->version / 1000, driver->version % 1000 / 10,
      image->kind == ONS__IMAGE_CUBIN ? "cubin" : "PTX", device->base.name);
  return ONS_STATUS_UNSUPPORTED;
}

ons_status ons__cuda_load(ons__device* base, const ons__image* image,
                          ons__binary** out_binary, ons_error* error) {
  ons__cuda_device* device = (ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  ons__cuda_binary* binary =
      ons__alloc(base->backend->settings->allocator, sizeof(*binary));
  if (!binary) return ons__error_no_memory(error);
  binary->base.device = base;

  const char* call = "cuCtxSetCurrent";
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (!result) {
    if (has_libraries(driver)) {
      call = "cuLibraryLoadData";
      result = driver->cuLibraryLoadData(&binary->library, image->code, NULL, NULL, 0,
                                         NULL, NULL, 0);
    } else {
      call = "cuModuleLoadData";
      result = driver->cuModuleLoadData(&binary->module, image->code);
    }
    ons__cuda_relaxed_leave(device, &scope);
  }
  if (result) {
    ons__free(base->backend->settings->allocator, binary);
    return load_error(device, image, call, result, error);
  }
  atomic_store_explicit(&device->has_code, true, memory_order_relaxed);
  *out_binary = &binary->base;
  return ONS_STATUS_OK;
}

/* The code stays loaded: a graph that captured a launch holds kernels by address and
 * nothing tells when it is gone, and asking at every launch whether it is captured costs
 * more than the code is worth. */
void ons__cuda_unload(ons__binary* base) {
  if (base) ons__free(base->device->backend->settings->allocator, base);
}

static CUresult find(const ons__cuda_binary* binary, const char* lowered,
                     CUfunction* out_function, CUkernel* out_kernel,
                     const char** out_call) {
  const ons__cuda_driver* driver = device_of(&binary->base)->driver;
  if (!binary->library) {
    *out_call = "cuModuleGetFunction";
    return driver->cuModuleGetFunction(out_function, binary->module, lowered);
  }
  *out_call = "cuLibraryGetKernel";
  CUresult result = driver->cuLibraryGetKernel(out_kernel, binary->library, lowered);
  if (result) return result;
  *out_call = "cuKernelGetFunction";
  return driver->cuKernelGetFunction(out_function, *out_kernel);
}

/* Lets launches ask for all the dynamic shared memory there is, so that no launch has to
 * set it: the setting is shared by all who launch the function. A driver that refuses
 * leaves the 48 KB it had. */
static void allow_shared_memory(const ons__cuda_device* device, CUfunction function,
                                CUkernel kernel, uint32_t static_bytes) {
  const ons__cuda_driver* driver = device->driver;
  uint32_t most = device->base.limits.shared_bytes;
  if (static_bytes > most) return;
  int dynamic_bytes = (int)(most - static_bytes);
  const CUfunction_attribute attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  if (kernel && driver->cuKernelSetAttribute) {
    driver->cuKernelSetAttribute(attribute, dynamic_bytes, kernel, device->handle);
  }
  driver->cuFuncSetAttribute(function, attribute, dynamic_bytes);
}

static CUresult read_attributes(const ons__cuda_driver* driver, CUfunction function,
                                ons_kernel_attributes* attributes) {
  const struct {
    CUfunction_attribute attribute;
    uint32_t* out_value;
  } wanted[] = {
      {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &attributes->max_threads_per_block},
      {CU_FUNC_ATTRIBUTE_NUM_REGS, &attributes->register_count},
      {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &attributes->static_shared_bytes},
      {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &attributes->local_bytes},
      {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &attributes->constant_bytes},
      {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
       &attributes->max_dynamic_shared_bytes},
  };
  for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); ++i) {
    int value = 0;
    CUresult result = driver->cuFuncGetAttribute(&value, wanted[i].attribute, function);
    if (result) return result;
    *wanted[i].out_value = (uint32_t)value;
  }
  return CUDA_SUCCESS;
}

static void read_sizes(const ons__cuda_driver* driver, CUfunction function,
                       uint32_t* parameter_sizes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    size_t offset_bytes = 0;
    size_t size_bytes = 0;
    bool known = driver->cuFuncGetParamInfo &&
                 !driver->cuFuncGetParamInfo(function, i, &offset_bytes, &size_bytes);
    parameter_sizes[i] = known ? (uint32_t)size_bytes : 0;
  }
}

/* Everything that a driver would otherwise put off to the first launch is done here. */
static CUresult prepare(const ons__cuda_device* device, CUfunction function,
                        CUkernel kernel, ons_kernel_attributes* attributes,
                        const char** out_call) {
  const ons__cuda_driver* driver = device->driver;
  *out_call = "cuFuncLoad";
  CUresult result = driver->cuFuncLoad ? driver->cuFuncLoad(function) : CUDA_SUCCESS;
  if (result) return result;
  *out_call = "cuFuncGetAttribute";
  result = read_attributes(driver, function, attributes);
  if (result) return result;
  allow_shared_memory(device, function, kernel, attributes->static_shared_bytes);
  return read_attributes(driver, function, attributes);
}

ons_status ons__cuda_function(ons__binary* base, const char* lowered,
                              ons__function* out_function, uint32_t* parameter_sizes,
                              size_t count, ons_error* error) {
  const ons__cuda_binary* binary = (const ons__cuda_binary*)base;
  const ons__cuda_device* device = device_of(base);
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);

  CUfunction function = NULL;
  CUkernel kernel = NULL;
  ons_kernel_attributes attributes = {.struct_size = sizeof(attributes)};
  const char* call = "cuCtxSetCurrent";
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (!result) {
    result = find(binary, lowered, &function, &kernel, &call);
    if (!result) result = prepare(device, function, kernel, &attributes, &call);
    if (!result) read_sizes(driver, function, parameter_sizes, count);
    ons__cuda_relaxed_leave(device, &scope);
  }
  if (result == CUDA_ERROR_NOT_FOUND) {
    return ons__error_native(
        error, ONS_STATUS_NOT_FOUND, call, (int32_t)result,
        "the compiled code has no kernel \"%s\": is it only declared, "
        "and not defined?",
        lowered);
  }
  if (result) return ons__cuda_error(driver, call, result, error);
  *out_function = (ons__function){function, driver, kernel, attributes};
  return ONS_STATUS_OK;
}

ons_status ons__cuda_variable(ons__binary* base, const char* lowered, void** out_address,
                              size_t* out_size_bytes, ons_error* error) {
  const ons__cuda_binary* binary = (const ons__cuda_binary*)base;
  const ons__cuda_device* device = device_of(base);
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  CUdeviceptr address = 0;
  const char* call = binary->library ? "cuLibraryGetGlobal" : "cuModuleGetGlobal";
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (!result) {
    result = binary->library ? driver->cuLibraryGetGlobal(&address, out_size_bytes,
                                                          binary->library, lowered)
                             : driver->cuModuleGetGlobal_v2(&address, out_size_bytes,
                                                            binary->module, lowered);
    ons__cuda_relaxed_leave(device, &scope);
  }
  *out_address = (void*)(uintptr_t)address;
  return result ? ons__cuda_error(driver, call, result, error) : ONS_STATUS_OK;
}
