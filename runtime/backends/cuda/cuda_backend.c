#include "runtime/backends/cuda/cuda_backend.h"

#include "jit/isolated.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

static void destroy(ons__backend* base) {
  ons__cuda_backend* backend = (ons__cuda_backend*)base;
  if (!backend) return;
  ons__nvrtc_destroy(backend->nvrtc);
  ons__mutex_destroy(&backend->mutex);
  ons__free(base->settings->allocator, backend);
}

/* A failed start is tried again by the next call. */
ons_status ons__cuda_start(ons__cuda_backend* backend, ons_error* error) {
  ons_status status = ONS_STATUS_OK;
  ons__mutex_lock(&backend->mutex);
  if (!backend->ready) {
    status = ons__cuda_driver_load(backend->base.settings, &backend->driver, error);
    backend->ready = status == ONS_STATUS_OK;
  } else if (ons__cuda_driver_lost(&backend->driver)) {
    status = ons__cuda_error_lost(error);
  }
  ons__mutex_unlock(&backend->mutex);
  return status;
}

static ons_status device_count(ons__backend* base, int32_t* out_count, ons_error* error) {
  ons__cuda_backend* backend = (ons__cuda_backend*)base;
  ons_status status = ons__cuda_start(backend, error);
  if (status) return status;
  int count = 0;
  CUresult result = backend->driver.cuDeviceGetCount(&count);
  if (result) return ons__cuda_error(&backend->driver, "cuDeviceGetCount", result, error);
  *out_count = count;
  return ONS_STATUS_OK;
}

/* No context is made for the question: what knows the memory has made one. */
static ons_status pointer_device(ons__backend* base, const void* pointer,
                                 int32_t* out_index, ons_error* error) {
  ons__cuda_backend* backend = (ons__cuda_backend*)base;
  ons_status status = ons__cuda_start(backend, error);
  if (status) return status;
  int ordinal = -1;
  CUresult result = backend->driver.cuPointerGetAttribute(
      &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)(uintptr_t)pointer);
  *out_index = result ? -1 : ordinal;
  return ONS_STATUS_OK;
}

static bool device_in_use(ons__backend* base, int32_t ordinal) {
  ons__cuda_backend* backend = (ons__cuda_backend*)base;
  CUdevice device = 0;
  unsigned int flags = 0;
  int is_active = 0;
  return ons__cuda_start(backend, NULL) == ONS_STATUS_OK &&
         backend->driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
         backend->driver.cuDevicePrimaryCtxGetState(device, &flags, &is_active) ==
             CUDA_SUCCESS &&
         is_active;
}

static ons_status device_open(ons__backend* base, int32_t ordinal,
                              ons__device** out_device, ons_error* error) {
  ons_status status = ons__cuda_start((ons__cuda_backend*)base, error);
  return status ? status : ons__cuda_device_open(base, ordinal, out_device, error);
}

static ons__nvrtc_config nvrtc_config(const ons__settings* settings) {
  return (ons__nvrtc_config){.allocator = settings->allocator,
                             .locate = settings->locate,
                             .locate_user_data = settings->locate_user_data,
                             .library_path = settings->nvrtc_path,
                             .include_path = settings->cuda_include_path};
}

static ons_status compile(ons__backend* base, const ons__compile_request* request,
                          ons__image** out_image, char** out_log, ons_error* error) {
  const ons__cuda_backend* backend = (const ons__cuda_backend*)base;
  if (request->is_isolated || request->timeout_ms) {
    const ons__nvrtc_config config = nvrtc_config(base->settings);
    const ons__process_limits limits = {
        .timeout_ms = request->timeout_ms,
        .interrupt = base->settings->interrupt,
        .interrupt_user_data = base->settings->interrupt_user_data};
    return ons__isolated_compile(&config, request, &limits, out_image, out_log, error);
  }
  return ons__nvrtc_compile(backend->nvrtc, request, out_image, out_log, error);
}

static bool identify(ons__backend* base, const ons__compile_request* request,
                     ons__string* out_text) {
  const ons__cuda_backend* backend = (const ons__cuda_backend*)base;
  return ons__nvrtc_identify(backend->nvrtc, request, out_text);
}

static const ons__backend_ops ops = {
    .name = "cuda",
    .destroy = destroy,
    .device_count = device_count,
    .device_open = device_open,
    .device_close = ons__cuda_device_close,
    .compile = compile,
    .identify = identify,
    .load = ons__cuda_load,
    .unload = ons__cuda_unload,
    .function = ons__cuda_function,
    .variable = ons__cuda_variable,
    .launch = ons__cuda_launch,
    .block_size = ons__cuda_block_size,
    .launch_with_attributes = ons__cuda_launch_with_attributes,
    .resident_blocks = ons__cuda_resident_blocks,
    .resident_clusters = ons__cuda_resident_clusters,
    .capture_state = ons__cuda_capture_state,
    .capture_info = ons__cuda_capture_info,
    .stream_check = ons__cuda_stream_check,
    .stream_device = ons__cuda_stream_device,
    .device_in_use = device_in_use,
    .housekeeping_enter = ons__cuda_housekeeping_enter,
    .housekeeping_leave = ons__cuda_housekeeping_leave,
    .event_create = ons__cuda_event_create,
    .event_destroy = ons__cuda_event_destroy,
    .event_record = ons__cuda_event_record,
    .event_wait = ons__cuda_event_wait,
    .event_passed = ons__cuda_event_passed,
    .event_handle = ons__cuda_event_handle,
    .stream_wait = ons__cuda_stream_wait,
    .memory_copy = ons__cuda_memory_copy,
    .copy_from_host = ons__cuda_copy_from_host,
    .graph_retain = ons__cuda_graph_retain,
    .caller_event_wait = ons__cuda_caller_event_wait,
    .caller_event_record = ons__cuda_caller_event_record,
    .graph_add = ons__cuda_graph_add,
    .graph_update = ons__cuda_graph_update,
    .tensor_map = ons__cuda_tensor_map,
    .memory_allocate = ons__cuda_memory_allocate,
    .memory_free_in_order = ons__cuda_memory_free_in_order,
    .memory_free = ons__cuda_memory_free,
    .memory_zero = ons__cuda_memory_zero,
    .host_pointer_usable = ons__cuda_host_pointer_usable,
    .pointer_device = pointer_device,
};

ons_status ons__cuda_backend_create(const ons__settings* settings,
                                    ons__backend** out_backend, ons_error* error) {
  ons__cuda_backend* backend = ons__alloc(settings->allocator, sizeof(*backend));
  if (!backend) return ons__error_no_memory(error);
  backend->base = (ons__backend){&ops, settings};
  ons__mutex_init(&backend->mutex);
  const ons__nvrtc_config config = nvrtc_config(settings);
  ons_status status = ons__nvrtc_create(&config, &backend->nvrtc, error);
  if (status) {
    destroy(&backend->base);
    return status;
  }
  *out_backend = &backend->base;
  return ONS_STATUS_OK;
}
