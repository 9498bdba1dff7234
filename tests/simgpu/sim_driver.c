/* The stand-in's driver functions: those of cuda_symbols.inc and cuGetProcAddress. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/simgpu/sim_state.h"

#define ONS_CUDA_SYMBOL(kind, symbol, name, abi_version, parameters) \
  SIM_API CUresult symbol parameters;
#include "runtime/backends/cuda/cuda_symbols.inc"
#undef ONS_CUDA_SYMBOL
SIM_API CUresult cuGetProcAddress_v2(const char* name, void** out_function, int version,
                                     uint64_t flags, unsigned int* out_found);

#define ENTER()                                    \
  do {                                             \
    CUresult entered_ = sim_enter(__func__, true); \
    if (entered_) return sim_leave(entered_);      \
  } while (0)

/* For calls that some driver refuses while a stream is being captured. */
#define ENTER_UNSAFE()                                         \
  do {                                                         \
    ENTER();                                                   \
    if (!sim_unsafe_call_allowed()) {                          \
      return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); \
    }                                                          \
  } while (0)

#define ENTER_CONTEXT()                                             \
  do {                                                              \
    if (!sim_current) return sim_leave(CUDA_ERROR_INVALID_CONTEXT); \
  } while (0)

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

/* The kernel to run on the stream, of a CUfunction or a CUkernel; what is of another
 * context than the stream is refused. */
static CUresult resolve_kernel(CUfunction handle, const sim_stream* stream,
                               const sim_kernel** out_kernel, int* out_max_dynamic) {
  const sim_object* object = (const sim_object*)(const void*)handle;
  if (object && object->kind == SIM_KERNEL) {
    const sim_kernel* kernel = sim_check(handle, SIM_KERNEL);
    *out_kernel = kernel;
    *out_max_dynamic = kernel->max_dynamic_bytes;
    return CUDA_SUCCESS;
  }
  const sim_function* function = sim_check(handle, SIM_FUNCTION);
  *out_kernel = function->kernel;
  *out_max_dynamic = function->max_dynamic_bytes;
  return function->context == stream->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
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

static CUresult enqueue(sim_stream* stream) {
  sim_stream* captured = sim_implicit_capture(stream);
  if (captured) {
    captured->capture_status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream->capture_status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (stream->capture_status) {
    ++stream->graph->kernel_count;
  } else {
    ++stream->enqueued;
  }
  return CUDA_SUCCESS;
}

static CUresult launch(CUfunction handle, void* stream_handle, void* const* parameters) {
  sim_record* record = sim_current_record();
  record->handle = handle;
  record->stream = stream_handle;
  sim_stream* stream = sim_find_stream(stream_handle);
  if (!stream) return CUDA_ERROR_INVALID_CONTEXT;
  record->stream_context = stream->context;
  const sim_kernel* kernel = NULL;
  int max_dynamic = 0;
  CUresult result = resolve_kernel(handle, stream, &kernel, &max_dynamic);
  if (result) return result;
  snprintf(record->kernel, sizeof(record->kernel), "%s", kernel->name);
  result = check_shape(record, max_dynamic);
  if (result) return result;
  record_parameters(kernel, parameters);
  return enqueue(stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                          void** parameters, void** extra) {
  ENTER();
  if (extra || config->numAttrs) sim_die("extra and attributes are not known here");
  sim_record* record = sim_current_record();
  const uint32_t shape[6] = {config->gridDimX,  config->gridDimY,  config->gridDimZ,
                             config->blockDimX, config->blockDimY, config->blockDimZ};
  memcpy(record->grid, shape, sizeof(record->grid));
  memcpy(record->block, shape + 3, sizeof(record->block));
  record->shared_bytes = config->sharedMemBytes;
  return sim_leave(launch(function, config->hStream, parameters));
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

/* ---- capture ---- */

static CUresult capture_info(const void* handle, CUstreamCaptureStatus* out_status,
                             uint64_t* out_id, CUgraph* out_graph) {
  sim_current_record()->stream = (void*)(uintptr_t)handle;
  const sim_stream* stream = sim_find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_CONTEXT;
  if (sim_implicit_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *out_status = (CUstreamCaptureStatus)stream->capture_status;
  if (stream->capture_status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (out_id) *out_id = stream->capture_id;
  if (out_graph) *out_graph = (CUgraph)(void*)stream->graph;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* out_status) {
  ENTER();
  return sim_leave(capture_info(stream, out_status, NULL, NULL));
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* out_status,
                                   uint64_t* out_id, CUgraph* out_graph,
                                   const CUgraphNode** out_dependencies,
                                   size_t* out_count) {
  ENTER();
  if (out_dependencies || out_count) sim_die("dependencies are not known here");
  return sim_leave(capture_info(stream, out_status, out_id, out_graph));
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* out_status,
                                   uint64_t* out_id, CUgraph* out_graph,
                                   const CUgraphNode** out_dependencies,
                                   const CUgraphEdgeData** out_edges, size_t* out_count) {
  ENTER();
  if (out_dependencies || out_edges || out_count)
    sim_die("dependencies are not known here");
  return sim_leave(capture_info(stream, out_status, out_id, out_graph));
}

CUresult cuUserObjectCreate(CUuserObject* out_object, void* pointer, CUhostFn destroy,
                            unsigned int count, unsigned int flags) {
  ENTER();
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC || !destroy || !count) {
    return sim_leave(CUDA_ERROR_INVALID_VALUE);
  }
  sim_user_object* object = sim_new(SIM_USER_OBJECT, sizeof(*object));
  object->pointer = pointer;
  object->destroy = destroy;
  object->count = count;
  *out_object = (CUuserObject)(void*)object;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject object_handle,
                                 unsigned int count, unsigned int flags) {
  ENTER();
  sim_graph* graph = sim_check(graph_handle, SIM_GRAPH);
  sim_user_object* object = sim_check(object_handle, SIM_USER_OBJECT);
  if (count != 1 || flags > CU_GRAPH_USER_OBJECT_MOVE) {
    return sim_leave(CUDA_ERROR_INVALID_VALUE);
  }
  if (graph->retained_count == sizeof(graph->retained) / sizeof(graph->retained[0])) {
    sim_die("too many user objects");
  }
  if (!flags) ++object->count;
  graph->retained[graph->retained_count++] = object;
  return sim_leave(CUDA_SUCCESS);
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent* out_event, unsigned int flags) {
  ENTER_UNSAFE();
  ENTER_CONTEXT();
  if (flags != CU_EVENT_DISABLE_TIMING) sim_die("an event with timing");
  sim_event* event = sim_new(SIM_EVENT, sizeof(*event));
  event->context = sim_current;
  *out_event = (CUevent)(void*)event;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy_v2(CUevent handle) {
  ENTER_UNSAFE();
  ((sim_event*)sim_check(handle, SIM_EVENT))->object.dead = true;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  ENTER();
  sim_event* event = sim_check(handle, SIM_EVENT);
  sim_record* record = sim_current_record();
  record->handle = handle;
  record->stream = stream_handle;
  sim_stream* stream = sim_find_stream(stream_handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  if (stream->context != event->context) return sim_leave(CUDA_ERROR_INVALID_HANDLE);
  sim_stream* captured = sim_implicit_capture(stream);
  if (captured) {
    captured->capture_status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return sim_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  event->stream = stream;
  event->captured = stream->capture_status != 0;
  event->position = stream->enqueued;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags) {
  ENTER();
  const sim_event* event = sim_check(handle, SIM_EVENT);
  sim_record* record = sim_current_record();
  record->handle = handle;
  record->stream = stream_handle;
  if (flags) sim_die("flags of a wait are not known here");
  sim_stream* stream = sim_find_stream(stream_handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  record->stream_context = stream->context;
  if (event->captured) sim_die("a wait that would join a capture is not known here");
  if (stream->capture_status) {
    stream->capture_status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return sim_leave(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  sim_stream* captured = sim_implicit_capture(stream);
  if (captured) {
    captured->capture_status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return sim_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  if (!event->stream) return sim_leave(CUDA_SUCCESS);
  if (stream->wait_count == sizeof(stream->waits) / sizeof(stream->waits[0])) {
    sim_die("too many waits on a stream");
  }
  stream->waits[stream->wait_count++] =
      (sim_wait){stream->enqueued, event->stream, event->position};
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuEventQuery(CUevent handle) {
  ENTER_UNSAFE();
  const sim_event* event = sim_check(handle, SIM_EVENT);
  sim_current_record()->handle = handle;
  if (event->captured) return sim_leave(CUDA_ERROR_CAPTURED_EVENT);
  bool done = !event->stream || event->position <= event->stream->completed;
  return sim_leave(done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult cuStreamGetCtx(CUstream stream_handle, CUcontext* out_context) {
  ENTER();
  const sim_stream* stream = sim_find_stream(stream_handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  *out_context = (CUcontext)(void*)stream->context;
  return sim_leave(CUDA_SUCCESS);
}

/* ---- memory ---- */

CUresult cuPointerGetAttribute(void* out_value, CUpointer_attribute attribute,
                               CUdeviceptr pointer) {
  ENTER();
  ENTER_CONTEXT();
  if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
      !sim_is_pinned((uintptr_t)pointer)) {
    return sim_leave(CUDA_ERROR_INVALID_VALUE);
  }
  memcpy(out_value, &pointer, sizeof(pointer));
  return sim_leave(CUDA_SUCCESS);
}
