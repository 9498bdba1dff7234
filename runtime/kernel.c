#include "runtime/kernel.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/blob.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/string.h"
#include "runtime/base/versioned.h"
#include "runtime/module.h"

static const ons_allocator* allocator_of(const ons_kernel* kernel) {
  return kernel->module->runtime->settings.allocator;
}

/* ---- life ------------------------------------------------------------------------- */

ons_kernel* ons__kernel_create(ons_module* module, const char* name,
                               const ons__scanned_kernel* scanned) {
  const ons_allocator* allocator = module->runtime->settings.allocator;
  ons_kernel* kernel = ons__alloc(allocator, sizeof(*kernel));
  if (!kernel) return NULL;
  kernel->name = ons__strdup(allocator, name);
  if (!kernel->name) {
    ons__free(allocator, kernel);
    return NULL;
  }
  atomic_init(&kernel->reference_count, 1);
  atomic_init(&kernel->guide, ONS__PARAMETERS_MAX);
  ons__long_lock_init(&kernel->lock);
  ons_module_retain(module);
  kernel->module = module;
  kernel->scanned = scanned;
  return kernel;
}

static void bound_destroy(const ons_allocator* allocator, ons__bound* bound) {
  if (!bound) return;
  ons__loaded_release(bound->loaded, allocator);
  ons__signature_destroy(bound->signature);
  ons__free(allocator, bound->plan);
  ons__free(allocator, bound->text);
  ons__free(allocator, bound);
}

static void destroy(ons_kernel* kernel) {
  ons_module* module = kernel->module;
  const ons_allocator* allocator = allocator_of(kernel);
  for (int slot = 0; slot < ONS__SLOT_COUNT; ++slot) {
    bound_destroy(allocator, atomic_load(&kernel->bound[slot]));
  }
  ons__long_lock_destroy(&kernel->lock);
  ons__free(allocator, kernel->name);
  ons__free(allocator, kernel);
  ons_module_release(module);
}

void ons_kernel_retain(ons_kernel* kernel) {
  if (kernel)
    atomic_fetch_add_explicit(&kernel->reference_count, 1, memory_order_relaxed);
}

void ons_kernel_release(ons_kernel* kernel) {
  if (!kernel) return;
  if (atomic_fetch_sub_explicit(&kernel->reference_count, 1, memory_order_acq_rel) == 1) {
    destroy(kernel);
  }
}

/* ---- binding to a device ---------------------------------------------------------- */

const char* ons__kernel_parameter_name(const ons_kernel* kernel, size_t index,
                                       size_t count) {
  const ons__scanned_kernel* scanned = kernel->scanned;
  if (!scanned || scanned->is_overloaded || scanned->parameter_count != count)
    return NULL;
  return scanned->parameter_names[index];
}

static char* signature_text(const ons_kernel* kernel, const ons__signature* signature) {
  ons__string text;
  ons__string_init(&text, allocator_of(kernel));
  ons__string_appendf(&text, "%s(", kernel->name);
  for (size_t i = 0; i < signature->count; ++i) {
    const char* name = ons__kernel_parameter_name(kernel, i, signature->count);
    ons__string_appendf(&text, "%s%s%s%s", i ? ", " : "", signature->parameters[i].type,
                        name ? " " : "", name ? name : "");
  }
  ons__string_append(&text, ")");
  return ons__string_take(&text);
}

/* The compiler's name for a type and the driver's size of it must agree. */
static ons_status reconcile_sizes(const ons_kernel* kernel, ons__signature* signature,
                                  const uint32_t* sizes, ons_error* error) {
  for (size_t i = 0; i < signature->count; ++i) {
    ons__parameter* parameter = &signature->parameters[i];
    if (parameter->size_bytes == 0) {
      parameter->size_bytes = sizes[i];
    } else if (sizes[i] != 0 && sizes[i] != parameter->size_bytes) {
      return ons__error_set(error, ONS_STATUS_INTERNAL,
                            "kernel '%s': parameter %zu (%s) has %u bytes on the device, "
                            "but its type has %u",
                            kernel->name, i + 1, parameter->type, sizes[i],
                            parameter->size_bytes);
    }
  }
  return ONS_STATUS_OK;
}

/* To what the function itself allows. */
static void narrow_limits(ons__bound* bound) {
  bound->limits = bound->device->limits;
  uint32_t own_limit = bound->function.attributes.max_threads_per_block;
  if (own_limit != 0 && own_limit < bound->limits.threads_per_block) {
    bound->limits.threads_per_block = own_limit;
  }
  bound->limits.shared_bytes = bound->function.attributes.max_dynamic_shared_bytes;
}

#ifdef NDEBUG
enum { CHECKS_RESTRICT = 0 };
#else
enum { CHECKS_RESTRICT = 1 };
#endif

/* Which parameters are declared __restrict__; NULL where that is not to be checked. */
static const uint8_t* find_restrict(const ons_kernel* kernel, size_t count) {
  const ons__scanned_kernel* scanned = kernel->scanned;
  if (!(kernel->module->flags & ONS_MODULE_CHECK) && !CHECKS_RESTRICT) return NULL;
  if (!scanned || scanned->is_overloaded || scanned->parameter_count != count)
    return NULL;
  bool is_any = count > 0 && memchr(scanned->parameter_is_restrict, 1, count);
  return is_any ? scanned->parameter_is_restrict : NULL;
}

static ons_status bind_function(ons_kernel* kernel, const ons__image_kernel* entry,
                                ons__bound* bound, ons_error* error) {
  const ons_allocator* allocator = allocator_of(kernel);
  ons_status status =
      ons__signature_parse(allocator, entry->signature, &bound->signature, error);
  if (status) {
    ons__error_prefix(error, "kernel '%s'", kernel->name);
    return status;
  }
  size_t count = bound->signature->count;
  if (count > ONS__PARAMETERS_MAX) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "kernel '%s' has %zu parameters; at most %d are supported: put "
                          "some into a struct",
                          kernel->name, count, ONS__PARAMETERS_MAX);
  }
  uint32_t sizes[ONS__PARAMETERS_MAX] = {0};
  status = bound->ops->function(bound->loaded->binary, entry->lowered, &bound->function,
                                sizes, count, error);
  if (status) {
    ons__error_prefix(error, "kernel '%s'", kernel->name);
    return status;
  }
  status = reconcile_sizes(kernel, bound->signature, sizes, error);
  if (!status) {
    status = ons__plan_create(allocator, kernel->name, bound->signature,
                              find_restrict(kernel, count), &bound->plan, error);
  }
  if (status) return status;
  narrow_limits(bound);
  bound->text = signature_text(kernel, bound->signature);
  return bound->text ? ONS_STATUS_OK : ons__error_no_memory(error);
}

/* The image that has the kernel: that of all plain kernels, or one of its own. With a
 * NULL for |out_loaded| it is not loaded. */
static ons_status find_program(ons_kernel* kernel, ons__device_entry* entry, int slot,
                               const ons__image** out_image, ons__loaded** out_loaded,
                               ons_blob** out_log, ons_error* error) {
  ons_module* module = kernel->module;
  const ons__scanned_kernel* scanned = kernel->scanned;
  bool is_plain = scanned && !scanned->is_template && !scanned->is_overloaded;
  if (is_plain || module->bundle) { /* whose one image has instances as well */
    ons_status status = ons__program_load(module->plain, entry, slot, out_image,
                                          out_loaded, out_log, error);
    if (status || ons__image_find(*out_image, kernel->name)) return status;
    /* The scan was wrong about it: let the compiler say why. */
  }
  if (out_log) {
    ons_blob_release(*out_log);
    *out_log = NULL;
  }
  ons__program* program = ons__module_program(module, kernel->name);
  if (!program) return ons__error_no_memory(error);
  return ons__program_load(program, entry, slot, out_image, out_loaded, out_log, error);
}

ons_status ons__kernel_compile(ons_kernel* kernel, DLDevice device, ons_blob** out_log,
                               ons_error* error) {
  ons__device_entry* entry = NULL;
  ons_status status = ons__runtime_device(kernel->module->runtime, device, &entry, error);
  if (status) return status;
  const ons__image* image = NULL;
  return find_program(kernel, entry, ons__device_slot(device), &image, NULL, out_log,
                      error);
}

/* In the place of the backend's, where launches are logged: all others pay nothing. */
static ons_status log_launch(ons__device* device, const ons__function* function,
                             const ons_launch* launch, void* stream,
                             void* const* parameters, size_t parameter_count,
                             ons_error* error) {
  const ons__bound* bound =
      (const ons__bound*)((const char*)function - offsetof(ons__bound, function));
  ons__launch_fn* call = launch->attributes && bound->ops->launch_with_attributes
                             ? bound->ops->launch_with_attributes
                             : bound->ops->launch;
  ons_status status =
      call(device, function, launch, stream, parameters, parameter_count, error);
  ons__log(device->backend->settings->log_areas, ONS__LOG_LAUNCH,
           "%s on %s, grid %ux%ux%u, block %ux%ux%u, shared %u, stream %p: %s",
           bound->text, bound->ops->name, launch->grid[0], launch->grid[1],
           launch->grid[2], launch->block[0], launch->block[1], launch->block[2],
           launch->shared_bytes, stream, ons_status_text(status));
  return status;
}

static ons_status bind(ons_kernel* kernel, DLDevice device, int slot,
                       ons__bound** out_bound, ons_blob** out_log, ons_error* error) {
  ons__device_entry* entry = NULL;
  ons_status status = ons__runtime_device(kernel->module->runtime, device, &entry, error);
  if (status) return status;
  const ons__image* image = NULL;
  ons__loaded* loaded = NULL;
  status = find_program(kernel, entry, slot, &image, &loaded, out_log, error);
  if (status) return status;
  const ons__image_kernel* image_kernel = ons__image_find(image, kernel->name);
  if (!image_kernel) {
    return ons__error_set(error, ONS_STATUS_INTERNAL,
                          "the image of %s has no kernel '%s' although it was compiled",
                          kernel->module->name, kernel->name);
  }
  const ons_allocator* allocator = allocator_of(kernel);
  ons__bound* bound = ons__alloc(allocator, sizeof(*bound));
  if (!bound) return ons__error_no_memory(error);
  bound->entry = entry;
  bound->device = entry->device;
  bound->ops = entry->device->backend->ops;
  bound->launch = bound->ops->launch;
  bound->launch_with_attributes = bound->ops->launch_with_attributes;
  if (kernel->module->runtime->settings.log_areas & ONS__LOG_LAUNCH) {
    bound->launch = log_launch;
    if (bound->launch_with_attributes) bound->launch_with_attributes = log_launch;
  }
  bound->capture_state = bound->ops->capture_state;
  bound->image = image;
  bound->loaded = loaded;
  ons__loaded_retain(loaded);
  status = bind_function(kernel, image_kernel, bound, error);
  if (status) {
    bound_destroy(allocator, bound);
    return status;
  }
  *out_bound = bound;
  return ONS_STATUS_OK;
}

static unsigned int find_guide(const ons__signature* signature) {
  for (size_t i = 0; i < signature->count; ++i) {
    ons_parameter_kind kind = signature->parameters[i].kind;
    if (kind == ONS_PARAMETER_POINTER || kind == ONS_PARAMETER_VIEW) return (unsigned)i;
    /* Their tensors come first. */
    if (kind == ONS_PARAMETER_POINTERS || kind == ONS_PARAMETER_TENSOR_MAP) break;
  }
  return ONS__PARAMETERS_MAX;
}

ons_status ons__kernel_bind(ons_kernel* kernel, DLDevice device, int slot,
                            ons__bound** out_bound, ons_blob** out_log,
                            ons_error* error) {
  /* Without the lock first: it is held while another device's code is compiled. */
  ons__bound* bound = ons__kernel_bound(kernel, slot);
  if (bound) {
    *out_bound = bound;
    return ONS_STATUS_OK;
  }
  ons_status status = ONS_STATUS_OK;
  ons__long_lock_take(&kernel->lock);
  bound = atomic_load_explicit(&kernel->bound[slot], memory_order_relaxed);
  if (!bound) {
    status = bind(kernel, device, slot, &bound, out_log, error);
    if (!status) {
      if (!atomic_load_explicit(&kernel->first_bound, memory_order_relaxed)) {
        atomic_store_explicit(&kernel->guide, find_guide(bound->signature),
                              memory_order_relaxed);
        atomic_store_explicit(&kernel->first_bound, bound, memory_order_release);
      }
      atomic_store_explicit(&kernel->bound[slot], bound, memory_order_release);
    }
  }
  ons__long_lock_release(&kernel->lock);
  *out_bound = bound;
  return status;
}

ons_status ons__kernel_prepare(ons_kernel* kernel, DLDevice device,
                               ons__bound** out_bound, ons_blob** out_log,
                               ons_error* error) {
  if (!kernel)
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "kernel is NULL");
  int slot = ons__device_slot(device);
  if (slot < 0) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "kernel '%s': no backend for device type %d, id %d",
                          kernel->name, (int)device.device_type, (int)device.device_id);
  }
  return ons__kernel_bind(kernel, device, slot, out_bound, out_log, error);
}

ons_status ons_kernel_prepare(ons_kernel* kernel, DLDevice device, ons_blob** out_log,
                              ons_error* error) {
  if (out_log) *out_log = NULL;
  ons__bound* bound = NULL;
  ons_status status = ons__kernel_prepare(kernel, device, &bound, out_log, error);
  if (!status && out_log && !*out_log && bound->image->log && bound->image->log[0]) {
    *out_log = ons__blob_create(bound->image->log, strlen(bound->image->log));
  }
  return status;
}

/* ---- introspection ---------------------------------------------------------------- */

const char* ons_kernel_name(const ons_kernel* kernel) {
  return kernel ? kernel->name : "";
}

static const ons__bound* first_bound(const ons_kernel* kernel) {
  return atomic_load_explicit(&kernel->first_bound, memory_order_acquire);
}

static ons_status not_ready(const ons_kernel* kernel, ons_error* error) {
  return ons__error_set(error, ONS_STATUS_NOT_READY,
                        "kernel '%s' has not been prepared on any device yet: call "
                        "ons_kernel_prepare, or launch it",
                        kernel->name);
}

const char* ons_kernel_signature(const ons_kernel* kernel) {
  const ons__bound* bound = kernel ? first_bound(kernel) : NULL;
  return bound ? bound->text : NULL;
}

ons_status ons_kernel_parameter_count(const ons_kernel* kernel, size_t* out_count,
                                      ons_error* error) {
  if (!kernel || !out_count) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "kernel or out_count is NULL");
  }
  const ons__bound* bound = first_bound(kernel);
  *out_count = bound ? bound->signature->count : 0;
  return bound ? ONS_STATUS_OK : not_ready(kernel, error);
}

ons_status ons_kernel_parameter(const ons_kernel* kernel, size_t index,
                                ons_parameter* out_parameter, ons_error* error) {
  if (!kernel || !out_parameter || out_parameter->struct_size < sizeof(uint32_t)) {
    return ons__error_set(
        error, ONS_STATUS_INVALID_ARGUMENT,
        "kernel or out_parameter is NULL, or its struct_size is not set");
  }
  const ons__bound* bound = first_bound(kernel);
  if (!bound) return not_ready(kernel, error);
  size_t count = bound->signature->count;
  if (index >= count) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "kernel '%s' has %zu parameters, there is no index %zu",
                          kernel->name, count, index);
  }
  const ons__parameter* parameter = &bound->signature->parameters[index];
  const ons_parameter result = {
      .struct_size = out_parameter->struct_size,
      .kind = parameter->kind,
      .dtype = parameter->dtype,
      .ndim = parameter->ndim,
      .is_const = parameter->is_const,
      .size_bytes = parameter->size_bytes,
      .index_bits = parameter->index_bits,
      .name = ons__kernel_parameter_name(kernel, index, count),
      .type = parameter->type,
      .item_count = parameter->item_count,
  };
  ons__versioned_out(out_parameter, result.struct_size, &result, sizeof(result));
  return ONS_STATUS_OK;
}

ons_status ons_kernel_get_attributes(ons_kernel* kernel, DLDevice device,
                                     ons_kernel_attributes* out_attributes,
                                     ons_error* error) {
  if (!out_attributes || out_attributes->struct_size < sizeof(uint32_t)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "out_attributes is NULL or its struct_size is not set");
  }
  ons__bound* bound = NULL;
  ons_status status = ons__kernel_prepare(kernel, device, &bound, NULL, error);
  if (status) return status;
  ons_kernel_attributes result = bound->function.attributes;
  result.struct_size = out_attributes->struct_size;
  ons__versioned_out(out_attributes, result.struct_size, &result, sizeof(result));
  return ONS_STATUS_OK;
}
