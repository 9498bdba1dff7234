#include "runtime/tensor_memory.h"

#include <assert.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/steps.h"
#include "runtime/base/versioned.h"
#include "runtime/join.h"
#include "runtime/retire.h"
#include "runtime/runtime.h"
#include "runtime/tensor.h"

enum { ALIGNMENT_BYTES = 64, NDIM_MAX = 64 };

/* A tensor of our own; host memory is part of the block. */
typedef struct own_memory {
  DLManagedTensorVersioned managed; /* first: the deleter gets this */
  const ons_allocator* allocator;
  ons__device* device; /* NULL: host memory */
  int64_t extents[];   /* shape, strides */
} own_memory;

static const ons__backend_ops* ops_of(const own_memory* memory) {
  return memory->device->backend->ops;
}

/* ---- release ---------------------------------------------------------------------- */

static void delete_memory(DLManagedTensorVersioned* managed) {
  own_memory* memory = (own_memory*)managed;
  void* pointer = managed->dl_tensor.data;
  if (memory->device && pointer) ops_of(memory)->memory_free(memory->device, pointer);
  ons__free(memory->allocator, memory);
}

bool ons__tensor_memory_is_own(const DLManagedTensorVersioned* managed) {
  return managed && managed->deleter == delete_memory;
}

bool ons__tensor_memory_free_in_order(DLManagedTensorVersioned* managed, void* stream) {
  assert(ons__tensor_memory_is_own(managed));
  const own_memory* memory = (const own_memory*)managed;
  void* pointer = managed->dl_tensor.data;
  if (!memory->device || !pointer) return true;
  ons__capture_info info;
  if (ons__stream_capture(memory->device, stream, &info, NULL) ||
      (info.state != ONS__CAPTURE_NONE && ONS__DOES(OWN_CAPTURE)) ||
      !ops_of(memory)->memory_free_in_order(memory->device, pointer, stream)) {
    return false;
  }
  managed->dl_tensor.data = NULL;
  return true;
}

/* ---- what is asked for ------------------------------------------------------------ */

static ons_status refuse_shape(const ons_allocation* allocation, const char* why,
                               ons_error* error) {
  char text[128];
  ons__shape_text(allocation->shape, allocation->ndim, text, sizeof(text));
  return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE, "shape %s %s", text, why);
}

/* Also counts the bytes. */
static ons_status check(const ons_allocation* allocation, size_t* out_bytes,
                        ons_error* error) {
  const DLDataType dtype = allocation->dtype;
  if (allocation->flags & ~(uint32_t)ONS_ALLOCATION_ZERO) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "ons_allocation.flags has bits that this version does not "
                          "know: set ONS_ALLOCATION_* only");
  }
  bool has_shape = allocation->ndim == 0 || allocation->shape;
  if (allocation->ndim < 0 || allocation->ndim > NDIM_MAX || !has_shape ||
      dtype.bits == 0 || dtype.lanes == 0) {
    return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                          "an allocation needs 0 to %d dimensions, their sizes, and a "
                          "dtype with bits and lanes",
                          (int)NDIM_MAX);
  }
  int64_t count = 1;
  bool is_empty = false;
  bool overflows = false;
  for (int32_t i = 0; i < allocation->ndim; ++i) {
    int64_t size = allocation->shape[i];
    if (size < 0) return refuse_shape(allocation, "has a negative size", error);
    is_empty |= size == 0;
    overflows |= size != 0 && __builtin_mul_overflow(count, size, &count);
  }
  int64_t bits = (int64_t)dtype.bits * dtype.lanes;
  overflows |= __builtin_mul_overflow(count, bits, &count) ||
               __builtin_add_overflow(count, 7, &count);
  if (overflows) return refuse_shape(allocation, "is too large for any memory", error);
  *out_bytes = is_empty ? 0 : (size_t)(count / 8);
  return ONS_STATUS_OK;
}

static void fill(own_memory* memory, const ons_allocation* allocation) {
  size_t ndim = (size_t)allocation->ndim;
  int64_t* strides = memory->extents + ndim;
  int64_t stride = 1;
  if (ndim > 0) memcpy(memory->extents, allocation->shape, ndim * sizeof(int64_t));
  for (size_t i = ndim; i-- > 0;) {
    strides[i] = stride;
    stride *= allocation->shape[i] > 0 ? allocation->shape[i] : 1;
  }
  memory->managed =
      (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                 .deleter = delete_memory,
                                 .dl_tensor = {.device = allocation->device,
                                               .ndim = allocation->ndim,
                                               .dtype = allocation->dtype,
                                               .shape = memory->extents,
                                               .strides = strides}};
}

/* ---- allocation ------------------------------------------------------------------- */

static ons_status refuse_capture(const void* stream, ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_CAPTURE,
      "stream %p is being captured, and a graph could not own memory of onstream's; the "
      "capture is untouched: pass an array that was made before, or have one allocated "
      "by a library that keeps memory for captures",
      stream);
}

/* What is kept for launches that are over may be what fills the device. */
static ons_status allocate_on_device(ons__device_entry* entry, size_t size_bytes,
                                     void* stream, void** out_pointer, ons_error* error) {
  ons__device* device = entry->device;
  const ons__backend_ops* ops = device->backend->ops;
  ons__capture_info info;
  ons_status status = ons__stream_capture(device, stream, &info, error);
  if (status) return status;
  if (info.state != ONS__CAPTURE_NONE) return refuse_capture(stream, error);
  status = ops->memory_allocate(device, size_bytes, stream, out_pointer, error);
  if (status != ONS_STATUS_OUT_OF_MEMORY) return status;
  ons__retire_collect(&entry->retire);
  status = ops->memory_allocate(device, size_bytes, stream, out_pointer, error);
  if (status) ons__error_prefix(error, "%zu bytes on %s", size_bytes, device->name);
  return status;
}

static ons_status make(ons_runtime* runtime, const ons_allocation* allocation,
                       own_memory** out_memory, ons_error* error) {
  size_t size_bytes = 0;
  ons_status status = check(allocation, &size_bytes, error);
  if (status) return status;
  bool on_host = allocation->device.device_type == kDLCPU;
  size_t header_bytes =
      sizeof(own_memory) + 2 * (size_t)allocation->ndim * sizeof(int64_t);
  size_t block_bytes = header_bytes;
  if (on_host &&
      __builtin_add_overflow(size_bytes, header_bytes + ALIGNMENT_BYTES, &block_bytes)) {
    return refuse_shape(allocation, "is too large for any memory", error);
  }
  ons__device_entry* entry = NULL;
  if (!on_host) status = ons__runtime_device(runtime, allocation->device, &entry, error);
  if (status) return status;
  const ons_allocator* allocator = runtime->settings.allocator;
  own_memory* memory = ons__alloc(allocator, block_bytes); /* zeroed */
  if (!memory) return ons__error_no_memory(error);
  fill(memory, allocation);
  memory->allocator = allocator;
  memory->device = entry ? entry->device : NULL;
  *out_memory = memory;
  void** data = &memory->managed.dl_tensor.data;
  if (size_bytes == 0) return ONS_STATUS_OK;
  if (on_host) {
    uintptr_t end = (uintptr_t)memory + header_bytes;
    *data = (char*)memory + header_bytes + (-end & (ALIGNMENT_BYTES - 1));
    return ONS_STATUS_OK;
  }
  return allocate_on_device(entry, size_bytes, allocation->stream, data, error);
}

ons_status ons_tensor_allocate(ons_runtime* runtime, const ons_allocation* allocation,
                               ons_tensor** out_tensor, ons_error* error) {
  if (!runtime || !allocation || !out_tensor ||
      allocation->struct_size < sizeof(allocation->struct_size)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime, allocation or out_tensor is NULL, or "
                          "allocation->struct_size is not set");
  }
  *out_tensor = NULL;
  ons_allocation local = ONS_ALLOCATION_INIT;
  ons__versioned_in(&local, sizeof(local), allocation, allocation->struct_size);
  if (local.device.device_type != kDLCPU && local.device.device_type != kDLCUDA) {
    char text[64];
    ons__device_text(local.device, text, sizeof(text));
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "there is no memory of onstream's own on %s: allocate on a GPU "
                          "or the CPU",
                          text);
  }
  own_memory* memory = NULL;
  ons_status status = make(runtime, &local, &memory, error);
  ons_tensor_options options = ONS_TENSOR_OPTIONS_INIT;
  options.versioned = memory ? &memory->managed : NULL;
  if (memory && memory->device) {
    options.flags = ONS_TENSOR_STREAM | ONS_TENSOR_ORDERED;
    options.stream = local.stream;
  }
  if (!status && (local.flags & ONS_ALLOCATION_ZERO)) {
    status = ons_memory_zero(runtime, &memory->managed.dl_tensor, local.stream, error);
  }
  if (!status) status = ons_tensor_create(runtime, &options, out_tensor, error);
  if (status && memory) {
    ons__tensor_memory_free_in_order(&memory->managed, local.stream);
    delete_memory(&memory->managed);
  }
  return status;
}

/* ---- zeros ------------------------------------------------------------------------ */

ons_status ons_memory_zero(ons_runtime* runtime, const DLTensor* tensor, void* stream,
                           ons_error* error) {
  if (!runtime || !tensor) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime or tensor is NULL");
  }
  if (!ons__tensor_is_dense(tensor)) {
    return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                          "the tensor to be filled with zeros is not dense in row-major "
                          "order: pass a contiguous one");
  }
  size_t size_bytes = ons__tensor_size_bytes(tensor);
  char* data = (char*)tensor->data + tensor->byte_offset;
  if (ons__tensor_is_empty(tensor)) return ONS_STATUS_OK;
  if (ons__device_slot(tensor->device) == 0) {
    memset(data, 0, size_bytes);
    return ONS_STATUS_OK;
  }
  ons__device_entry* entry = NULL;
  ons_status status = ons__runtime_device(runtime, tensor->device, &entry, error);
  if (status) return status;
  ons__device* device = entry->device;
  return device->backend->ops->memory_zero(device, data, size_bytes, stream, error);
}
