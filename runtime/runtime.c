#include "runtime/runtime.h"

#include <onstream/version.h>
#include <stdio.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/versioned.h"
#include "runtime/join.h"

const char* ons_version(void) { return ONS_VERSION_STRING; }

static bool copy_text(const ons_allocator* allocator, const char* text, char** out_copy) {
  if (!text) return true;
  *out_copy = ons__strdup(allocator, text);
  return *out_copy != NULL;
}

static bool copy_settings(const ons_runtime_options* options, ons__settings* settings) {
  settings->locate = options->locate;
  settings->locate_user_data = options->locate_user_data;
  settings->interrupt = options->interrupt;
  settings->interrupt_user_data = options->interrupt_user_data;
  settings->log_areas = ons__log_areas();
  settings->cpu_thread_count = options->cpu_thread_count;
  const ons_allocator* allocator = settings->allocator;
  return copy_text(allocator, options->cuda_driver_path, &settings->cuda_driver_path) &&
         copy_text(allocator, options->nvrtc_path, &settings->nvrtc_path) &&
         copy_text(allocator, options->cuda_include_path, &settings->cuda_include_path) &&
         copy_text(allocator, options->host_compiler_path, &settings->host_compiler_path);
}

/* Closes every device that nothing uses any more; false when one must stay. */
static bool close_devices(ons_runtime* runtime) {
  bool all_closed = true;
  for (int slot = 0; slot < ONS__SLOT_COUNT; ++slot) {
    ons__device_entry* entry = atomic_load(&runtime->devices[slot]);
    if (!entry) continue;
    if (!ons__retire_destroy(&entry->retire)) {
      all_closed = false;
      continue;
    }
    ons__event_pool_destroy(&entry->captured_events);
    ons__event_pool_destroy(&entry->events);
    entry->device->backend->ops->device_close(entry->device);
    ons__free(runtime->settings.allocator, entry);
  }
  return all_closed;
}

static void destroy(ons_runtime* runtime) {
  if (!runtime) return;
  ons__module_table_destroy(runtime);
  /* A graph or an unfinished launch still points into the runtime: leaking it is the one
     way that neither waits for the device nor frees what it uses. */
  if (!close_devices(runtime)) return;
  if (runtime->cuda) runtime->cuda->ops->destroy(runtime->cuda);
  if (runtime->cpu) runtime->cpu->ops->destroy(runtime->cpu);
  ons__cache_destroy(runtime->cache);
  ons_allocator allocator = runtime->allocator;
  const ons_allocator* used = runtime->settings.allocator ? &allocator : NULL;
  ons__free(used, runtime->settings.cuda_driver_path);
  ons__free(used, runtime->settings.nvrtc_path);
  ons__free(used, runtime->settings.cuda_include_path);
  ons__free(used, runtime->settings.host_compiler_path);
  ons__mutex_destroy(&runtime->mutex);
  ons__free(used, runtime);
}

ons_status ons_runtime_create(const ons_runtime_options* options,
                              ons_runtime** out_runtime, ons_error* error) {
  if (!out_runtime) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "out_runtime is NULL");
  }
  *out_runtime = NULL;
  ons_runtime_options local = ONS_RUNTIME_OPTIONS_INIT;
  if (options) {
    if (options->struct_size < sizeof(options->struct_size)) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                            "ons_runtime_options.struct_size is %u: use "
                            "ONS_RUNTIME_OPTIONS_INIT",
                            (unsigned)options->struct_size);
    }
    ons__versioned_in(&local, sizeof(local), options, options->struct_size);
    if (local.order > ONS_ORDER_TRUST || local.reserved != 0) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                            "ons_runtime_options.order is %u and reserved is %u: set "
                            "order to an ons_order, and reserved to 0",
                            (unsigned)local.order, (unsigned)local.reserved);
    }
  }
  ons_runtime* runtime = ons__alloc(local.allocator, sizeof(*runtime));
  if (!runtime) return ons__error_no_memory(error);
  atomic_init(&runtime->reference_count, 1);
  ons__mutex_init(&runtime->mutex);
  ons__module_table_init(&runtime->modules);
  if (local.allocator) {
    runtime->allocator = *local.allocator;
    runtime->settings.allocator = &runtime->allocator;
  }
  ons_status status = ons_runtime_set_order(runtime, local.order, error);
  if (!copy_settings(&local, &runtime->settings)) status = ons__error_no_memory(error);
  const ons__cache_config cache = {.allocator = runtime->settings.allocator,
                                   .folder = local.cache_path,
                                   .limit_bytes = local.cache_limit_bytes,
                                   .log_areas = runtime->settings.log_areas,
                                   .interrupt = local.interrupt,
                                   .interrupt_user_data = local.interrupt_user_data};
  if (!status) status = ons__cache_create(&cache, &runtime->cache, error);
  if (!status) status = ons__cpu_backend_create(&runtime->settings, &runtime->cpu, error);
  if (!status)
    status = ons__cuda_backend_create(&runtime->settings, &runtime->cuda, error);
  if (status) {
    destroy(runtime);
    return status;
  }
  *out_runtime = runtime;
  return ONS_STATUS_OK;
}

ons_status ons_runtime_set_order(ons_runtime* runtime, uint32_t order, ons_error* error) {
  if (!runtime || order > ONS_ORDER_TRUST) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime is NULL, or order (%u) is no ons_order",
                          (unsigned)order);
  }
  atomic_store_explicit(&runtime->order, order ? order : ONS_ORDER_JOIN,
                        memory_order_relaxed);
  return ONS_STATUS_OK;
}

void ons_runtime_retain(ons_runtime* runtime) {
  if (runtime)
    atomic_fetch_add_explicit(&runtime->reference_count, 1, memory_order_relaxed);
}

void ons_runtime_release(ons_runtime* runtime) {
  if (!runtime) return;
  if (atomic_fetch_sub_explicit(&runtime->reference_count, 1, memory_order_acq_rel) ==
      1) {
    destroy(runtime);
  }
}

/* ---- devices ---------------------------------------------------------------------- */

int ons__device_slot(DLDevice device) {
  switch ((int)device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return 0;
    case kDLCUDA:
    case kDLCUDAManaged:
      if (device.device_id < 0 || device.device_id >= ONS__CUDA_DEVICES_MAX) return -1;
      return 1 + device.device_id;
    default:
      return -1;
  }
}

static ons_status unknown_device(DLDevice device, ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_UNSUPPORTED,
      "no backend for device type %d, id %d (there are kDLCPU and kDLCUDA)",
      (int)device.device_type, (int)device.device_id);
}

static ons_status open_device(ons_runtime* runtime, int slot,
                              ons__device_entry** out_entry, ons_error* error) {
  ons__backend* backend = slot == 0 ? runtime->cpu : runtime->cuda;
  const ons_allocator* allocator = runtime->settings.allocator;
  ons__device_entry* entry = ons__alloc(allocator, sizeof(*entry));
  if (!entry) return ons__error_no_memory(error);
  ons_status status =
      backend->ops->device_open(backend, slot == 0 ? 0 : slot - 1, &entry->device, error);
  if (status) {
    ons__free(allocator, entry);
    return status;
  }
  ons__event_pool_init(&entry->events, entry->device, allocator);
  ons__event_pool_init(&entry->captured_events, entry->device, allocator);
  ons__retire_init(&entry->retire, &entry->events);
  *out_entry = entry;
  return ONS_STATUS_OK;
}

ons_status ons__runtime_device(ons_runtime* runtime, DLDevice device,
                               ons__device_entry** out_entry, ons_error* error) {
  int slot = ons__device_slot(device);
  if (slot < 0) return unknown_device(device, error);
  ons__device_entry* entry =
      atomic_load_explicit(&runtime->devices[slot], memory_order_acquire);
  ons_status status = ONS_STATUS_OK;
  if (!entry) {
    ons__mutex_lock(&runtime->mutex);
    entry = atomic_load_explicit(&runtime->devices[slot], memory_order_relaxed);
    if (!entry) status = open_device(runtime, slot, &entry, error);
    if (!status)
      atomic_store_explicit(&runtime->devices[slot], entry, memory_order_release);
    ons__mutex_unlock(&runtime->mutex);
  }
  *out_entry = entry;
  return status;
}

ons_status ons_runtime_device_count(ons_runtime* runtime, DLDeviceType device_type,
                                    int32_t* out_count, ons_error* error) {
  if (!runtime || !out_count) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime or out_count is NULL");
  }
  *out_count = 0;
  DLDevice device = {device_type, 0};
  int slot = ons__device_slot(device);
  if (slot < 0) return unknown_device(device, error);
  ons__backend* backend = slot == 0 ? runtime->cpu : runtime->cuda;
  return backend->ops->device_count(backend, out_count, error);
}

ons_status ons_runtime_pointer_device(ons_runtime* runtime, DLDeviceType device_type,
                                      const void* pointer, int32_t* out_index,
                                      ons_error* error) {
  if (!runtime || !out_index) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime or out_index is NULL");
  }
  *out_index = -1;
  DLDevice device = {device_type, 0};
  int slot = ons__device_slot(device);
  if (slot < 0) return unknown_device(device, error);
  ons__backend* backend = slot == 0 ? runtime->cpu : runtime->cuda;
  if (!backend->ops->pointer_device) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "memory of the CPU has no device of its own");
  }
  return backend->ops->pointer_device(backend, pointer, out_index, error);
}

ons_status ons_runtime_device_name(ons_runtime* runtime, DLDevice device, char* out_name,
                                   size_t capacity_bytes, ons_error* error) {
  if (!runtime || !out_name || capacity_bytes == 0) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime or out_name is NULL, or there is no room for a name");
  }
  out_name[0] = '\0';
  ons__device_entry* entry = NULL;
  ons_status status = ons__runtime_device(runtime, device, &entry, error);
  if (status) return status;
  snprintf(out_name, capacity_bytes, "%s", entry->device->name);
  return ONS_STATUS_OK;
}

size_t ons_runtime_collect(ons_runtime* runtime) {
  if (!runtime) return 0;
  size_t held_count = 0;
  for (int slot = 0; slot < ONS__SLOT_COUNT; ++slot) {
    ons__device_entry* entry =
        atomic_load_explicit(&runtime->devices[slot], memory_order_acquire);
    if (!entry) continue;
    held_count += ons__retire_collect(&entry->retire);
  }
  return held_count;
}

/* ---- streams ---------------------------------------------------------------------- */

/* A device with streams. */
static ons_status find_stream_device(ons_runtime* runtime, DLDevice device,
                                     ons__device_entry** out_entry, ons_error* error) {
  if (!runtime)
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "runtime is NULL");
  ons_status status = ons__runtime_device(runtime, device, out_entry, error);
  if (status) return status;
  const ons__backend_ops* ops = (*out_entry)->device->backend->ops;
  if (ops->event_wait) return ONS_STATUS_OK;
  return ons__error_set(error, ONS_STATUS_UNSUPPORTED, "%s devices have no streams",
                        ops->name);
}

ons_status ons_stream_wait(ons_runtime* runtime, DLDevice device, void* waiting_stream,
                           void* signalling_stream, ons_error* error) {
  ons__device_entry* entry = NULL;
  ons_status status = find_stream_device(runtime, device, &entry, error);
  if (status) return status;
  return ons__stream_join(entry, waiting_stream, signalling_stream, error);
}

ons_status ons_stream_is_captured(ons_runtime* runtime, DLDevice device, void* stream,
                                  uint32_t* out_is_captured, ons_error* error) {
  if (!out_is_captured)
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "out_is_captured is NULL");
  *out_is_captured = 0;
  ons__device_entry* entry = NULL;
  ons_status status = find_stream_device(runtime, device, &entry, error);
  if (status) return status;
  ons__capture_state state;
  status =
      entry->device->backend->ops->capture_state(entry->device, stream, &state, error);
  *out_is_captured = !status && state != ONS__CAPTURE_NONE;
  return status;
}
