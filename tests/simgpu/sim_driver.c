/* The driver functions of start, devices, code and launches, and cuGetProcAddress. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/simgpu/sim_driver.h"
#include "tests/simgpu/sim_graph.h"
#include "tests/simgpu/sim_memory.h"

/* ---- start ---- */

CUresult cuGetProcAddress_v2(const char* name, void** out_function, int version,
                             uint64_t flags, unsigned int* out_found) {
  const struct {
    const char* name;
    int version;
    uintptr_t function;
  } table[] = {
#define ONS_CUDA_SYMBOL(kind, symbol, base_name, abi_version, parameters) \
  {#base_name, abi_version, (uintptr_t)symbol},
#include "runtime/backends/cuda/cuda_symbols.inc"
#include "tests/simgpu/sim_symbols.inc"
#undef ONS_CUDA_SYMBOL
  };
  if (flags != CU_GET_PROC_ADDRESS_LEGACY_STREAM)
    sim_die("%s asked for with flags", name);
  *out_function = NULL;
  *out_found = 1;
  if (version > sim.version) return CUDA_ERROR_INVALID_VALUE;
  int best = -1;
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
    if (strcmp(table[i].name, name) || table[i].version > version) continue;
    if (best >= 0 && table[best].version > table[i].version) continue;
    best = (int)i;
  }
  if (best < 0) return CUDA_ERROR_NOT_FOUND;
  *out_function = (void*)table[best].function;
  *out_found = 0;
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags) {
  CUresult result = sim_enter(__func__, false);
  if (result) return sim_leave(result);
  if (flags) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  if (sim.initialized) {
    return sim_leave(sim.process == (int)getpid() ? CUDA_SUCCESS
                                                  : CUDA_ERROR_NOT_INITIALIZED);
  }
  const char* devices = getenv("SIMGPU_DEVICES");
  if (sim.device_count < 0) sim.device_count = devices ? atoi(devices) : 1;
  for (int i = 0; i < SIM_MAX_DEVICES; ++i) {
    if (!sim.devices[i].major) sim.devices[i].major = 9;
  }
  if (sim.device_count == 0) return sim_leave(CUDA_ERROR_NO_DEVICE);
  sim.initialized = true;
  sim.process = (int)getpid();
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuDriverGetVersion(int* out_version) {
  CUresult result = sim_enter(__func__, false);
  if (!result) *out_version = sim.version;
  return sim_leave(result);
}

CUresult cuGetErrorName(CUresult error, const char** out_name) {
#define CASE(name, value) \
  case value:             \
    *out_name = #name;    \
    return CUDA_SUCCESS;
  switch ((int)error) { ONS_CU_RESULT_MAP(CASE) }
#undef CASE
  *out_name = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** out_text) {
  CUresult result = cuGetErrorName(error, out_text);
  if (!result) *out_text = "text of the error";
  return result;
}

/* ---- devices and contexts ---- */

CUresult cuDeviceGetCount(int* out_count) {
  ENTER();
  *out_count = sim.device_count;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice* out_device, int ordinal) {
  ENTER();
  if (ordinal < 0 || ordinal >= sim.device_count)
    return sim_leave(CUDA_ERROR_INVALID_DEVICE);
  *out_device = ordinal;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char* out_name, int capacity, CUdevice device) {
  ENTER();
  snprintf(out_name, (size_t)capacity, "Simulated GPU %d", device);
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int* out_value, CUdevice_attribute attribute,
                              CUdevice device) {
  ENTER();
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      *out_value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      *out_value = 64;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *out_value = 0x7fffffff;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *out_value = 65535;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *out_value = 49152;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *out_value = 232448;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *out_value = SIM_MULTIPROCESSORS;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *out_value = SIM_RESIDENT_THREADS;
      break;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      *out_value = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
      *out_value = sim.devices[device].major >= 9;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *out_value = sim.devices[device].major;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *out_value = sim.devices[device].minor;
      break;
    default:
      return sim_leave(CUDA_ERROR_INVALID_VALUE);
  }
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* out_context, CUdevice device) {
  ENTER_UNSAFE();
  sim_device* entry = &sim.devices[device];
  if (!entry->primary) entry->primary = sim_new_context(device);
  ++entry->retains;
  *out_context = (CUcontext)(void*)entry->primary;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* out_flags,
                                    int* out_active) {
  ENTER();
  if (device < 0 || device >= sim.device_count)
    return sim_leave(CUDA_ERROR_INVALID_DEVICE);
  *out_flags = 0;
  *out_active = sim.devices[device].primary != NULL; /* which is never given up here */
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER();
  if (!sim.devices[device].retains) sim_die("primary context released too often");
  --sim.devices[device].retains;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext* out_context) {
  ENTER();
  *out_context = (CUcontext)(void*)sim_current;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER();
  sim_current = context ? sim_check(context, SIM_CONTEXT) : NULL;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  ENTER();
  if (*mode > CU_STREAM_CAPTURE_MODE_RELAXED) sim_die("capture mode %u", *mode);
  unsigned int previous = sim_thread_mode;
  sim_thread_mode = *mode;
  *mode = previous;
  return sim_leave(CUDA_SUCCESS);
}

/* ---- code ---- */

static CUresult load(const void* image, sim_context* context, sim_library** out_library) {
  size_t size_bytes = sim_image_size(image);
  if (!size_bytes) return CUDA_ERROR_INVALID_IMAGE;
  sim_library* library = sim_new(SIM_LIBRARY, sizeof(*library));
  library->code = malloc(size_bytes);
  if (!library->code) sim_die("out of memory");
  memcpy(library->code, image, size_bytes);
  library->context = context;
  *out_library = library;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* out_library, const void* code,
                           CUjit_option* options, void** option_values,
                           unsigned int option_count, CUlibraryOption* library_options,
                           void** library_values, unsigned int library_option_count) {
  ENTER_UNSAFE();
  (void)options, (void)option_values, (void)library_options, (void)library_values;
  if (option_count || library_option_count) sim_die("no options are known here");
  sim_library* library = NULL;
  CUresult result = load(code, NULL, &library);
  *out_library = (CUlibrary)(void*)library;
  return sim_leave(result);
}

CUresult cuModuleLoadData(CUmodule* out_module, const void* code) {
  ENTER_UNSAFE();
  ENTER_CONTEXT();
  sim_library* library = NULL;
  CUresult result = load(code, sim_current, &library);
  *out_module = (CUmodule)(void*)library;
  return sim_leave(result);
}

static CUresult get_kernel(const void* handle, const char* name,
                           sim_kernel** out_kernel) {
  enum { DEFAULT_DYNAMIC_BYTES = 49152 };
  sim_library* library = sim_check(handle, SIM_LIBRARY);
  sim_kernel_info info;
  if (!sim_image_find_kernel(library->code, name, &info)) return CUDA_ERROR_NOT_FOUND;
  sim_kernel* kernel = sim_new(SIM_KERNEL, sizeof(*kernel));
  kernel->library = library;
  kernel->info = info;
  kernel->max_dynamic_bytes = DEFAULT_DYNAMIC_BYTES - (int)info.static_shared_bytes;
  snprintf(kernel->name, sizeof(kernel->name), "%s", name);
  *out_kernel = kernel;
  return CUDA_SUCCESS;
}

static sim_function* new_function(sim_kernel* kernel) {
  sim_function* function = sim_new(SIM_FUNCTION, sizeof(*function));
  function->kernel = kernel;
  function->context = sim_current;
  function->max_dynamic_bytes = kernel->max_dynamic_bytes;
  return function;
}

CUresult cuLibraryGetKernel(CUkernel* out_kernel, CUlibrary library, const char* name) {
  ENTER_UNSAFE();
  sim_kernel* kernel = NULL;
  CUresult result = get_kernel(library, name, &kernel);
  *out_kernel = (CUkernel)(void*)kernel;
  return sim_leave(result);
}

CUresult cuKernelGetFunction(CUfunction* out_function, CUkernel kernel) {
  ENTER_UNSAFE();
  ENTER_CONTEXT();
  *out_function = (CUfunction)(void*)new_function(sim_check(kernel, SIM_KERNEL));
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetFunction(CUfunction* out_function, CUmodule module,
                             const char* name) {
  ENTER_UNSAFE();
  ENTER_CONTEXT();
  sim_kernel* kernel = NULL;
  CUresult result = get_kernel(module, name, &kernel);
  *out_function = result ? NULL : (CUfunction)(void*)new_function(kernel);
  return sim_leave(result);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                              CUdevice device) {
  ENTER_UNSAFE();
  (void)device;
  sim_kernel* kernel = sim_check(handle, SIM_KERNEL);
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    return sim_leave(CUDA_ERROR_INVALID_VALUE);
  }
  kernel->max_dynamic_bytes = value;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute,
                            int value) {
  ENTER_UNSAFE();
  sim_function* function = sim_check(handle, SIM_FUNCTION);
  sim_current_record()->handle = handle;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      value + (int)function->kernel->info.static_shared_bytes > 232448) {
    return sim_leave(CUDA_ERROR_INVALID_VALUE);
  }
  function->max_dynamic_bytes = value;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetAttribute(int* out_value, CUfunction_attribute attribute,
                            CUfunction handle) {
  ENTER();
  const sim_function* function = sim_check(handle, SIM_FUNCTION);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *out_value = 1024;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *out_value = (int)function->kernel->info.static_shared_bytes;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *out_value = 16;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *out_value = function->max_dynamic_bytes;
      break;
    default:
      *out_value = 0;
  }
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* out_offset_bytes,
                            size_t* out_size_bytes) {
  ENTER();
  const sim_kernel_info* info =
      &((sim_function*)sim_check(handle, SIM_FUNCTION))->kernel->info;
  if (index >= info->parameter_count) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  *out_offset_bytes = info->offsets[index];
  *out_size_bytes = info->sizes[index];
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuFuncLoad(CUfunction handle) {
  ENTER_UNSAFE();
  sim_check(handle, SIM_FUNCTION);
  return sim_leave(CUDA_SUCCESS);
}

/* ---- launch ---- */

/* The kernel to run, of a CUfunction or a CUkernel; what is of another context is
 * refused. */
static CUresult resolve_kernel(CUfunction handle, const sim_context* context,
                               sim_kernel** out_kernel, int* out_max_dynamic) {
  if (sim_kind_of(handle) == SIM_KERNEL) {
    sim_kernel* kernel = sim_check(handle, SIM_KERNEL);
    *out_kernel = kernel;
    *out_max_dynamic = kernel->max_dynamic_bytes;
    return CUDA_SUCCESS;
  }
  const sim_function* function = sim_check(handle, SIM_FUNCTION);
  *out_kernel = function->kernel;
  *out_max_dynamic = function->max_dynamic_bytes;
  return function->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static void record_parameters(const sim_kernel* kernel, void* const* parameters) {
  sim_record* record = sim_current_record();
  const sim_kernel_info* info = &kernel->info;
  record->parameter_count = info->parameter_count;
  for (uint32_t i = 0; i < info->parameter_count; ++i) {
    uint32_t offset = info->offsets[i];
    uint32_t size = info->sizes[i];
    record->parameter_sizes[i] = size;
    record->parameter_offsets[i] = offset;
    if (offset + size > SIM_MAX_PARAMETER_BYTES) continue;
    if (!parameters || !parameters[i])
      sim_die("%s: parameter %u is NULL", kernel->name, i);
    memcpy(record->parameters + offset, parameters[i], size);
  }
}

static CUresult check_shape(const sim_record* record, int max_dynamic) {
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (!record->grid[i] || !record->block[i]) return CUDA_ERROR_INVALID_VALUE;
    threads *= record->block[i];
  }
  if (record->grid[1] > 65535 || record->grid[2] > 65535 || threads > 1024) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool fits = max_dynamic >= 0 && record->shared_bytes <= (uint32_t)max_dynamic;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_make_launch(CUfunction handle, const sim_context* context,
                         void* const* parameters, sim_work* out_work) {
  sim_record* record = sim_current_record();
  record->handle = handle;
  sim_kernel* kernel = NULL;
  int max_dynamic = 0;
  CUresult result = resolve_kernel(handle, context, &kernel, &max_dynamic);
  if (result) return result;
  snprintf(record->kernel, sizeof(record->kernel), "%s", kernel->name);
  result = check_shape(record, max_dynamic);
  if (result) return result;
  record_parameters(kernel, parameters);
  *out_work = (sim_work){.kind = SIM_WORK_KERNEL,
                         .kernel = kernel,
                         .handle = handle,
                         .shared_bytes = record->shared_bytes,
                         .parameters = record->parameters};
  memcpy(out_work->grid, record->grid, sizeof(out_work->grid));
  memcpy(out_work->block, record->block, sizeof(out_work->block));
  return CUDA_SUCCESS;
}

static CUresult launch(CUfunction handle, void* stream_handle, void* const* parameters) {
  sim_record* record = sim_current_record();
  record->handle = handle;
  record->stream = stream_handle;
  sim_stream* stream = sim_find_stream(stream_handle);
  if (!stream) return CUDA_ERROR_INVALID_CONTEXT;
  record->stream_context = stream->context;
  sim_work work;
  CUresult result = sim_make_launch(handle, stream->context, parameters, &work);
  if (!result) return sim_submit(stream, &work);
  /* A function of another context is refused before the capture is looked at. */
  if (stream->capture && result != CUDA_ERROR_INVALID_HANDLE) {
    stream->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  }
  return result;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                          void** parameters, void** extra) {
  ENTER();
  if (extra) sim_die("extra is not known here");
  sim_record* record = sim_current_record();
  const uint32_t shape[6] = {config->gridDimX,  config->gridDimY,  config->gridDimZ,
                             config->blockDimX, config->blockDimY, config->blockDimZ};
  memcpy(record->grid, shape, sizeof(record->grid));
  memcpy(record->block, shape + 3, sizeof(record->block));
  record->shared_bytes = config->sharedMemBytes;
  CUresult result = sim_read_attributes(function, config);
  return sim_leave(result ? result : launch(function, config->hStream, parameters));
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** parameters, void** extra) {
  ENTER();
  if (extra) sim_die("extra is not known here");
  sim_record* record = sim_current_record();
  const uint32_t shape[6] = {grid_x, grid_y, grid_z, block_x, block_y, block_z};
  memcpy(record->grid, shape, sizeof(record->grid));
  memcpy(record->block, shape + 3, sizeof(record->block));
  record->shared_bytes = shared_bytes;
  return sim_leave(launch(function, stream, parameters));
}

CUresult cuPointerGetAttribute(void* out_value, CUpointer_attribute attribute,
                               CUdeviceptr pointer) {
  ENTER();
  ENTER_CONTEXT();
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    const sim_allocation* allocation = sim_find_allocation((const void*)pointer);
    if (!allocation || allocation->device < 0) return sim_leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(out_value, &allocation->device, sizeof(allocation->device));
    return sim_leave(CUDA_SUCCESS);
  }
  if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
      !sim_is_pinned((uintptr_t)pointer)) {
    return sim_leave(CUDA_ERROR_INVALID_VALUE);
  }
  memcpy(out_value, &pointer, sizeof(pointer));
  return sim_leave(CUDA_SUCCESS);
}

/* ---- tensor maps ---- */

/* The rules of the driver; the encoding is our own: address, sizes, strides, box, the
 * rest. */
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, uint32_t rank,
                                void* address, const uint64_t* sizes,
                                const uint64_t* stride_bytes, const uint32_t* box,
                                const uint32_t* steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
                                CUtensorMapFloatOOBfill fill) {
  CUresult result = sim_enter(__func__, false);
  if (result) return sim_leave(result);
  bool is_valid = (uintptr_t)map % 64 == 0 && (uintptr_t)address % 16 == 0 && rank >= 1 &&
                  rank <= 5 && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;
  for (uint32_t i = 0; is_valid && i < rank; ++i) {
    is_valid = sizes[i] >= 1 && sizes[i] <= UINT64_C(1) << 32 && box[i] >= 1 &&
               box[i] <= 256 && steps[i] >= 1 && steps[i] <= 8 &&
               (i == 0 || (stride_bytes[i - 1] % 16 == 0 &&
                           stride_bytes[i - 1] < UINT64_C(1) << 40));
  }
  if (!is_valid) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  memset(map, 0, sizeof(*map));
  map->opaque[0] = (uint64_t)(uintptr_t)address;
  for (uint32_t i = 0; i < rank; ++i) {
    map->opaque[1 + i] = sizes[i];
    if (i > 0) map->opaque[6 + i - 1] = stride_bytes[i - 1];
    map->opaque[10 + i / 2] |= (uint64_t)(box[i] | steps[i] << 16) << 32 * (i % 2);
  }
  map->opaque[13] = type | rank << 8 | swizzle << 16 | l2 << 24;
  map->opaque[14] = fill;
  return sim_leave(CUDA_SUCCESS);
}
