/* Variables of a module as tensors. */
#include <onstream/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/join.h"
#include "runtime/mangling.h"
#include "runtime/module.h"
#include "runtime/signature.h"
#include "runtime/tensor.h"

/* The extents of the variable's array type, and those inside of its elements. */
enum { kMaxRank = 16 };

/* Owns what a tensor of a variable needs: the code that it is part of. Not the module,
 * which would keep the runtime, which may be what deletes the tensor. */
typedef struct holder {
  DLManagedTensorVersioned managed;
  const ons_allocator* allocator; /* the runtime's, which is there when this is deleted */
  ons__loaded* loaded;
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];
} holder;

static void delete (DLManagedTensorVersioned* managed) {
  holder* self = managed->manager_ctx;
  const ons_allocator* allocator = self->allocator;
  ons__loaded_release(self->loaded, allocator);
  ons__free(allocator, self);
}

static ons_status unknown_variable(const ons_module* module, const char* name,
                                   ons_error* error) {
  char list[512] = "none were found";
  size_t used = 0;
  for (size_t i = 0; i < module->variables.count && used < sizeof(list); ++i) {
    int written = snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
                           module->variables.variables[i].name);
    if (written > 0) used += (size_t)written;
  }
  return ons__error_set(error, ONS_STATUS_NOT_FOUND,
                        "no __device__ or __constant__ variable '%.200s' in %.200s; its "
                        "variables: %s",
                        name, module->name, list);
}

/* ---- the type --------------------------------------------------------------------- */

static const ons__type* unqualified(const ons__type* type) {
  while (type->kind == ONS__TYPE_QUALIFIED) type = type->first;
  return type;
}

/* Of `void(T (*)[4][8])`; false where there are too many. */
static bool read_extents(const ons__type* function, DLTensor* tensor) {
  const ons__type* list = function->second;
  if (!list || list->kind != ONS__TYPE_LIST) return false;
  const ons__type* pointer = unqualified(list->first);
  if (pointer->kind != ONS__TYPE_POINTER) return false;
  const ons__type* type = unqualified(pointer->first);
  for (; type->kind == ONS__TYPE_ARRAY; type = unqualified(type->first)) {
    if (tensor->ndim == kMaxRank - 1) return false;
    tensor->shape[tensor->ndim++] = strtoll(type->text, NULL, 10);
  }
  return true;
}

/* Vectors get a dimension of their own, which array libraries can do more with than with
 * lanes. */
static void set_element(const ons__parameter* parameter, DLTensor* tensor) {
  tensor->dtype = parameter->dtype;
  if (tensor->dtype.lanes <= 1) return;
  tensor->shape[tensor->ndim++] = tensor->dtype.lanes;
  tensor->dtype.lanes = 1;
}

/* Elements that DLPack has no type for are bytes, in a last dimension. */
static ons_status set_bytes(DLTensor* tensor, uint64_t size_bytes) {
  uint64_t count = 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) count *= (uint64_t)tensor->shape[i];
  if (count == 0 || size_bytes % count != 0) return ONS_STATUS_INTERNAL;
  tensor->dtype = (DLDataType){kDLUInt, 8, 1};
  tensor->shape[tensor->ndim++] = (int64_t)(size_bytes / count);
  return ONS_STATUS_OK;
}

static void set_strides(DLTensor* tensor) {
  int64_t stride = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    tensor->strides[i] = stride;
    stride *= tensor->shape[i];
  }
}

/* Shape and dtype, and whether the variable is const. */
static ons_status read_type(const ons_allocator* allocator, const char* mangled,
                            uint64_t size_bytes, DLTensor* tensor, bool* out_const,
                            ons_error* error) {
  ons__type_tree tree = {0};
  ons_status status = ons__type_tree_parse(allocator, mangled, &tree, error);
  if (status) return status;
  const bool has_extents = read_extents(tree.function, tensor);
  ons__type_tree_clear(&tree);
  ons__signature* signature = NULL;
  if (has_extents) status = ons__signature_parse(allocator, mangled, &signature, error);
  if (status) return status;
  if (!has_extents || signature->count != 1) {
    ons__signature_destroy(signature);
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "its type, of which the compiler says %s, makes no tensor",
                          mangled);
  }
  const ons__parameter* parameter = &signature->parameters[0];
  *out_const = parameter->is_const;
  if (parameter->is_raw || parameter->dtype.bits < 8) {
    status = set_bytes(tensor, size_bytes);
  } else {
    set_element(parameter, tensor);
  }
  ons__signature_destroy(signature);
  if (status || ons__tensor_size_bytes(tensor) != size_bytes) {
    return ons__error_set(error, ONS_STATUS_INTERNAL,
                          "it has %llu bytes, which is not what its type says",
                          (unsigned long long)size_bytes);
  }
  set_strides(tensor);
  return ONS_STATUS_OK;
}

/* ---- the tensor ------------------------------------------------------------------- */

static ons_status make_holder(const ons_allocator* allocator, ons__device* device,
                              const ons__image_kernel* variable, ons__loaded* loaded,
                              holder** out_holder, ons_error* error) {
  holder* self = ons__alloc(allocator, sizeof(*self));
  if (!self) return ons__error_no_memory(error);
  DLTensor* tensor = &self->managed.dl_tensor;
  self->allocator = allocator;
  self->managed.version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  self->managed.manager_ctx = self;
  self->managed.deleter = delete;
  tensor->device = device->device;
  tensor->shape = self->shape;
  tensor->strides = self->strides;
  size_t size_bytes = 0;
  bool is_const = false;
  ons_status status = device->backend->ops->variable(loaded->binary, variable->lowered,
                                                     &tensor->data, &size_bytes, error);
  if (!status) {
    status =
        read_type(allocator, variable->signature, size_bytes, tensor, &is_const, error);
  }
  if (status) {
    ons__free(allocator, self);
    return status;
  }
  if (is_const) self->managed.flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
  ons__loaded_retain(loaded);
  self->loaded = loaded;
  *out_holder = self;
  return ONS_STATUS_OK;
}

/* What the plain kernels of the module see under the name. */
static ons_status find(ons_module* module, DLDevice device, const char* name,
                       ons__device_entry** out_entry, ons__loaded** out_loaded,
                       const ons__image_kernel** out_variable, ons_error* error) {
  const ons__image* image = NULL;
  ons_status status = ons__runtime_device(module->runtime, device, out_entry, error);
  if (!status) {
    status = ons__program_load(module->plain, *out_entry, ons__device_slot(device),
                               &image, out_loaded, NULL, error);
  }
  if (status) return status;
  *out_variable = ons__image_find(image, name);
  if (*out_variable) return ONS_STATUS_OK;
  return ons__error_set(error, ONS_STATUS_NOT_FOUND,
                        "variable '%.200s' in %.200s: the compiler does not know it; is "
                        "it compiled out, or only declared?",
                        name, module->name);
}

static ons_status hold(ons_module* module, DLDevice device, const char* name,
                       ons__device_entry** out_entry, holder** out_holder,
                       ons_error* error) {
  if (!module || !name) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "module or name is NULL");
  }
  if (strncmp(name, "::", 2) == 0) name += 2;
  const ons__scanned_variable* scanned =
      ons__variable_scan_find(&module->variables, name);
  if (!scanned) return unknown_variable(module, name, error);
  ons__loaded* loaded = NULL;
  const ons__image_kernel* variable = NULL;
  ons_status status = find(module, device, name, out_entry, &loaded, &variable, error);
  if (status) return status;
  status = make_holder(module->runtime->settings.allocator, (*out_entry)->device,
                       variable, loaded, out_holder, error);
  if (status) {
    ons__error_prefix(error, "variable '%.200s' in %.200s", name, module->name);
  } else if (scanned->is_constant) {
    (*out_holder)->managed.flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
  }
  return status;
}

ons_status ons_module_global(ons_module* module, DLDevice device, const char* name,
                             void* stream, ons_tensor** out_tensor, ons_error* error) {
  if (!out_tensor) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "out_tensor is NULL");
  }
  *out_tensor = NULL;
  ons__device_entry* entry = NULL;
  holder* held = NULL;
  ons_status status = hold(module, device, name, &entry, &held, error);
  if (status) return status;
  ons_tensor_options options = ONS_TENSOR_OPTIONS_INIT;
  options.versioned = &held->managed;
  if (entry->device->backend->ops->capture_state) {
    /* What it was loaded with has been there since before any stream's work. */
    options.flags = ONS_TENSOR_STREAM | ONS_TENSOR_ORDERED;
    options.stream = stream;
  }
  status = ons_tensor_create(module->runtime, &options, out_tensor, error);
  if (status) delete (&held->managed);
  return status;
}

/* ---- setting one ------------------------------------------------------------------ */

/* A graph would read the host's memory each time it runs. */
static ons_status check_eager(ons__device* device, void* stream, ons_error* error) {
  ons__capture_info info;
  ons_status status = ons__stream_capture(device, stream, &info, error);
  if (status || info.state == ONS__CAPTURE_NONE) return status;
  return ons__error_set(error, ONS_STATUS_CAPTURE,
                        "stream %p is %s: set the variable before the capture, which is "
                        "untouched",
                        stream,
                        info.state == ONS__CAPTURE_ACTIVE
                            ? "being captured"
                            : "the legacy default stream, and a stream that waits for "
                              "it is being captured");
}

/* Of the caller's memory first one of ours, as pinned memory would be read later. */
static ons_status copy_in(const ons_allocator* allocator, ons__device* device,
                          void* stream, void* target, const void* bytes,
                          size_t size_bytes, ons_error* error) {
  const ons__backend_ops* ops = device->backend->ops;
  if (!ops->copy_from_host) {
    memcpy(target, bytes, size_bytes);
    return ONS_STATUS_OK;
  }
  ons_status status = check_eager(device, stream, error);
  if (status) return status;
  void* pageable = ons__alloc(allocator, size_bytes);
  if (!pageable) return ons__error_no_memory(error);
  memcpy(pageable, bytes, size_bytes);
  unsigned token = 0;
  ops->housekeeping_enter(device, &token);
  status = ops->copy_from_host(device, target, pageable, size_bytes, stream, error);
  ops->housekeeping_leave(device, token);
  ons__free(allocator, pageable);
  return status;
}

ons_status ons_module_set_global(ons_module* module, DLDevice device, const char* name,
                                 void* stream, const void* bytes, size_t size_bytes,
                                 ons_error* error) {
  if (!bytes) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "bytes is NULL");
  }
  ons__device_entry* entry = NULL;
  holder* held = NULL;
  ons_status status = hold(module, device, name, &entry, &held, error);
  if (status) return status;
  const DLTensor* tensor = &held->managed.dl_tensor;
  if (ons__tensor_size_bytes(tensor) != size_bytes) {
    status = ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                            "it has %zu bytes, %zu are given",
                            ons__tensor_size_bytes(tensor), size_bytes);
  } else {
    status = copy_in(held->allocator, entry->device, stream, tensor->data, bytes,
                     size_bytes, error);
  }
  if (status) {
    ons__error_prefix(error, "variable '%.200s' in %.200s", name, module->name);
  }
  delete (&held->managed);
  return status;
}

const char* ons_module_global_name(const ons_module* module, size_t index) {
  if (!module || index >= module->variables.count) return NULL;
  return module->variables.variables[index].name;
}
