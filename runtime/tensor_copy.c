/* What the host reads: waits for the device, and copies. */
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/join.h"
#include "runtime/tensor.h"
#include "runtime/tensor_object.h"

ons_status ons__tensor_check_eager(const ons_tensor* tensor, void* home,
                                   ons_error* error) {
  ons__capture_info info;
  ons_status status = ons__stream_capture(tensor->entry->device, home, &info, error);
  if (status || info.state == ONS__CAPTURE_NONE) return status;
  return ons__error_set(
      error, ONS_STATUS_CAPTURE,
      info.state == ONS__CAPTURE_ACTIVE
          ? "the tensor's stream %p is being captured: nobody outside can wait for what "
            "is on it; the capture is untouched"
          : "the tensor's stream %p is the legacy default stream, and a stream that waits "
            "for it is being captured; the capture is untouched",
      home);
}

ons_status ons_tensor_wait(ons_tensor* tensor, ons_error* error) {
  if (!tensor) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "tensor is NULL");
  }
  if (!tensor->entry) return ONS_STATUS_OK;
  ons__device* device = tensor->entry->device;
  void* home = ons__tensor_home(tensor);
  ons_status status = ons__tensor_check_eager(tensor, home, error);
  if (status) return status;
  unsigned token = 0;
  device->backend->ops->housekeeping_enter(device, &token);
  status = device->backend->ops->stream_wait(device, home, error);
  device->backend->ops->housekeeping_leave(device, token);
  return status;
}

/* ---- host memory -------------------------------------------------------------------- */

enum { ALIGNMENT = 64 };

/* A row-major tensor; its extents and its elements follow in the same block. */
typedef struct host_copy {
  DLManagedTensorVersioned managed;
  const ons_allocator* allocator; /* of the runtime, which is there longer */
  int64_t shape[];
} host_copy;

static void delete_copy(DLManagedTensorVersioned* managed) {
  host_copy* copy = managed->manager_ctx;
  ons__free(copy->allocator, copy);
}

static uint64_t bits_of(const DLTensor* tensor) {
  return (uint64_t)tensor->dtype.bits * tensor->dtype.lanes;
}

static uint64_t padding_flag(const ons_tensor* tensor) {
  return tensor->versioned
             ? tensor->versioned->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
             : 0;
}

static ons_status make_copy(const ons_tensor* tensor, size_t size_bytes,
                            host_copy** out_copy, ons_error* error) {
  const DLTensor* dltensor = &tensor->dltensor;
  const ons_allocator* allocator = tensor->runtime->settings.allocator;
  size_t shape_bytes = (size_t)dltensor->ndim * sizeof(int64_t);
  size_t head_bytes = sizeof(host_copy) + shape_bytes + ALIGNMENT;
  host_copy* copy = size_bytes <= SIZE_MAX - head_bytes
                        ? ons__alloc(allocator, head_bytes + size_bytes)
                        : NULL;
  if (!copy) return ons__error_no_memory(error);
  if (shape_bytes > 0) memcpy(copy->shape, dltensor->shape, shape_bytes);
  uintptr_t end = (uintptr_t)(copy->shape + dltensor->ndim);
  copy->allocator = allocator;
  copy->managed = (DLManagedTensorVersioned){
      .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
      .manager_ctx = copy,
      .deleter = delete_copy,
      .flags = padding_flag(tensor),
      .dl_tensor = {.data = (void*)((end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT),
                    .device = {kDLCPU, 0},
                    .ndim = dltensor->ndim,
                    .dtype = dltensor->dtype,
                    .shape = copy->shape}};
  *out_copy = copy;
  return ONS_STATUS_OK;
}

/* The elements one after another, which in `source` are where the strides say. The
 * innermost dimension is a loop of its own. */
static void gather(const DLTensor* tensor, const char* source, char* target) {
  size_t item = bits_of(tensor) / 8;
  int32_t last = tensor->ndim - 1;
  if (last < 0) {
    memcpy(target, source, item);
    return;
  }
  uint64_t rows = ons__tensor_count(tensor) / (uint64_t)tensor->shape[last];
  int64_t count = tensor->shape[last];
  int64_t step = tensor->strides[last] * (int64_t)item;
  for (uint64_t row = 0; row < rows; ++row) {
    int64_t offset = 0;
    uint64_t rest = row;
    for (int32_t i = last - 1; i >= 0; --i) {
      offset += (int64_t)(rest % (uint64_t)tensor->shape[i]) * tensor->strides[i];
      rest /= (uint64_t)tensor->shape[i];
    }
    const char* from = source + offset * (int64_t)item;
    for (int64_t i = 0; i < count; ++i, from += step, target += item) {
      memcpy(target, from, item);
    }
  }
}

/* ---- from the device ---------------------------------------------------------------- */

/* The elements from the lowest address to the highest, by their strides. */
static void find_span(const DLTensor* tensor, int64_t* out_lowest, size_t* out_count) {
  int64_t lowest = 0;
  int64_t highest = 0;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    int64_t reach = (tensor->shape[i] - 1) * tensor->strides[i];
    *(reach < 0 ? &lowest : &highest) += reach;
  }
  *out_lowest = lowest;
  *out_count = (size_t)(highest - lowest) + 1;
}

static ons_status fetch(const ons_tensor* tensor, void* home, void* target,
                        const void* source, size_t size_bytes, ons_error* error) {
  ons__device* device = tensor->entry->device;
  const ons__backend_ops* ops = device->backend->ops;
  unsigned token = 0;
  ops->housekeeping_enter(device, &token);
  ons_status status = ops->copy_to_host(device, home, target, source, size_bytes, error);
  if (!status) status = ops->stream_wait(device, home, error);
  ops->housekeeping_leave(device, token);
  return status;
}

/* By way of all that lies between the elements: the device needs no kernel for that. */
static ons_status fetch_strided(const ons_tensor* tensor, void* home, void* target,
                                ons_error* error) {
  const DLTensor* dltensor = &tensor->dltensor;
  size_t item = bits_of(dltensor) / 8;
  int64_t lowest;
  size_t count;
  find_span(dltensor, &lowest, &count);
  const ons_allocator* allocator = tensor->runtime->settings.allocator;
  char* span = ons__alloc_array(allocator, count, item);
  if (!span) return ons__error_no_memory(error);
  const char* source = (const char*)dltensor->data + lowest * (int64_t)item;
  ons_status status = fetch(tensor, home, span, source, count * item, error);
  if (!status) gather(dltensor, span - lowest * (int64_t)item, target);
  ons__free(allocator, span);
  return status;
}

static ons_status fill_copy(const ons_tensor* tensor, void* target, size_t size_bytes,
                            ons_error* error) {
  const DLTensor* dltensor = &tensor->dltensor;
  bool is_dense = ons__tensor_is_dense(dltensor);
  if (!is_dense && bits_of(dltensor) % 8 != 0) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "elements of %llu bits are only copied where they are dense",
                          (unsigned long long)bits_of(dltensor));
  }
  if (!tensor->entry) {
    if (size_bytes == 0) return ONS_STATUS_OK;
    if (is_dense) {
      memcpy(target, dltensor->data, size_bytes);
    } else {
      gather(dltensor, dltensor->data, target);
    }
    return ONS_STATUS_OK;
  }
  void* home = ons__tensor_home(tensor);
  ons_status status = ons__tensor_check_eager(tensor, home, error);
  if (status || size_bytes == 0) return status;
  return is_dense ? fetch(tensor, home, target, dltensor->data, size_bytes, error)
                  : fetch_strided(tensor, home, target, error);
}

static ons_status count_bytes(const ons_tensor* tensor, size_t* out_bytes,
                              ons_error* error) {
  uint64_t bits = bits_of(&tensor->dltensor);
  if (padding_flag(tensor)) bits = (bits + 7) / 8 * 8;
  uint64_t count = ons__tensor_count(&tensor->dltensor);
  if (__builtin_mul_overflow(count, bits, &bits) || bits > SIZE_MAX - 7) {
    return ons__error_no_memory(error);
  }
  *out_bytes = (size_t)(bits + 7) / 8;
  return ONS_STATUS_OK;
}

ons_status ons_tensor_copy_to_host(ons_tensor* tensor, ons_tensor** out_copy,
                                   ons_error* error) {
  if (!tensor || !out_copy) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "tensor or out_copy is NULL");
  }
  *out_copy = NULL;
  size_t size_bytes = 0;
  host_copy* copy = NULL;
  ons_status status = count_bytes(tensor, &size_bytes, error);
  if (!status) status = make_copy(tensor, size_bytes, &copy, error);
  if (status) return status;
  status = fill_copy(tensor, copy->managed.dl_tensor.data, size_bytes, error);
  if (!status) {
    ons_tensor_options options = ONS_TENSOR_OPTIONS_INIT;
    options.versioned = &copy->managed;
    if (tensor->flags & ONS_TENSOR_REQUIRES_GRAD) options.flags |= ONS_TENSOR_REQUIRES_GRAD;
    status = ons_tensor_create(tensor->runtime, &options, out_copy, error);
  }
  if (status) delete_copy(&copy->managed);
  return status;
}
