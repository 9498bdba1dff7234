/* What the host reads, and copies. */
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
          : "the tensor's stream %p is the legacy default stream, and a stream that "
            "waits "
            "for it is being captured; the capture is untouched",
      home);
}

/* Of a stream that is not being captured, while others may be. */
static ons_status wait_for_stream(const ons_tensor* tensor, void* home,
                                  ons_error* error) {
  ons__device* device = tensor->entry->device;
  const ons__backend_ops* ops = device->backend->ops;
  unsigned token = 0;
  ops->housekeeping_enter(device, &token);
  ons_status status = ops->stream_wait(device, home, error);
  ops->housekeeping_leave(device, token);
  return status;
}

ons_status ons_tensor_wait(ons_tensor* tensor, ons_error* error) {
  if (!tensor) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "tensor is NULL");
  }
  if (!tensor->entry) return ONS_STATUS_OK;
  void* home = ons__tensor_home(tensor);
  ons_status status = ons__tensor_check_eager(tensor, home, error);
  return status ? status : wait_for_stream(tensor, home, error);
}

/* ---- elements --------------------------------------------------------------------- */

static size_t bits_of(const DLTensor* tensor) {
  return (size_t)tensor->dtype.bits * tensor->dtype.lanes;
}

/* The elements one after another, which in `source` are where the strides say. The
 * innermost dimension is a loop of its own. */
static void gather(const DLTensor* tensor, const char* source, char* target) {
  size_t item_bytes = bits_of(tensor) / 8;
  int32_t last = tensor->ndim - 1;
  int64_t count = tensor->shape[last];
  int64_t step_bytes = tensor->strides[last] * (int64_t)item_bytes;
  uint64_t rows = ons__tensor_count(tensor) / (uint64_t)count;
  for (uint64_t row = 0; row < rows; ++row) {
    int64_t offset = 0;
    uint64_t rest = row;
    for (int32_t i = last - 1; i >= 0; --i) {
      offset += (int64_t)(rest % (uint64_t)tensor->shape[i]) * tensor->strides[i];
      rest /= (uint64_t)tensor->shape[i];
    }
    const char* from = source + offset * (int64_t)item_bytes;
    for (int64_t i = 0; i < count; ++i, from += step_bytes, target += item_bytes) {
      memcpy(target, from, item_bytes);
    }
  }
}

/* From the lowest address to the highest, in elements. */
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

/* ---- copies ----------------------------------------------------------------------- */

static ons_status copy_on_stream(const ons_tensor* tensor, void* home, void* target,
                                 const void* source, size_t size_bytes,
                                 ons_error* error) {
  ons__device* device = tensor->entry->device;
  const ons__backend_ops* ops = device->backend->ops;
  unsigned token = 0;
  ops->housekeeping_enter(device, &token);
  ons_status status = ops->memory_copy(device, target, source, size_bytes, home, error);
  ops->housekeeping_leave(device, token);
  return status;
}

/* By way of all that lies between the elements: the device needs no kernel for that. */
static ons_status fetch_strided(const ons_tensor* tensor, void* home, void* target,
                                ons_error* error) {
  const DLTensor* dltensor = &tensor->dltensor;
  const ons_allocator* allocator = tensor->runtime->settings.allocator;
  size_t item_bytes = bits_of(dltensor) / 8;
  int64_t lowest;
  size_t count;
  find_span(dltensor, &lowest, &count);
  char* span = ons__alloc_array(allocator, count, item_bytes);
  if (!span) return ons__error_no_memory(error);
  int64_t first_bytes = -lowest * (int64_t)item_bytes;
  const char* source = (const char*)dltensor->data - first_bytes;
  ons_status status =
      copy_on_stream(tensor, home, span, source, count * item_bytes, error);
  if (!status) status = wait_for_stream(tensor, home, error);
  if (!status) gather(dltensor, span + first_bytes, target);
  ons__free(allocator, span);
  return status;
}

static ons_status fill_from_device(const ons_tensor* tensor, void* home,
                                   const ons_tensor* copy, bool is_dense,
                                   size_t size_bytes, ons_error* error) {
  void* target = copy->dltensor.data;
  if (!is_dense) return fetch_strided(tensor, home, target, error);
  ons_status status =
      copy_on_stream(tensor, home, target, tensor->dltensor.data, size_bytes, error);
  if (status || copy->entry) return status;
  return wait_for_stream(tensor, home, error);
}

static ons_status fill(const ons_tensor* tensor, void* home, const ons_tensor* copy,
                       bool is_dense, ons_error* error) {
  const DLTensor* dltensor = &tensor->dltensor;
  size_t size_bytes = ons__tensor_size_bytes(dltensor);
  if (size_bytes == 0) return ONS_STATUS_OK;
  if (tensor->entry) {
    return fill_from_device(tensor, home, copy, is_dense, size_bytes, error);
  }
  if (is_dense) {
    memcpy(copy->dltensor.data, dltensor->data, size_bytes);
  } else {
    gather(dltensor, dltensor->data, copy->dltensor.data);
  }
  return ONS_STATUS_OK;
}

static ons_status check(const ons_tensor* tensor, bool to_host, bool is_dense,
                        ons_error* error) {
  bool is_padded = tensor->versioned && (tensor->versioned->flags &
                                         DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
  if (is_padded || (!is_dense && bits_of(&tensor->dltensor) % 8 != 0)) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "elements of %zu bits are copied only where they are packed",
                          bits_of(&tensor->dltensor));
  }
  if (is_dense || to_host) return ONS_STATUS_OK;
  return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                        "a tensor that is not dense is copied to the host only: copy it "
                        "with the library that takes it");
}

ons_status ons_tensor_copy(ons_tensor* tensor, DLDevice device, ons_tensor** out_copy,
                           ons_error* error) {
  if (!tensor || !out_copy) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "tensor or out_copy is NULL");
  }
  *out_copy = NULL;
  const DLTensor* dltensor = &tensor->dltensor;
  bool to_host = device.device_type == kDLCPU;
  bool is_dense = ons__tensor_is_dense(dltensor);
  if (!to_host && (device.device_type != dltensor->device.device_type ||
                   device.device_id != dltensor->device.device_id)) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "a tensor is copied to the host, or on its own device");
  }
  void* home = tensor->entry ? ons__tensor_home(tensor) : NULL;
  ons_status status = check(tensor, to_host, is_dense, error);
  if (!status && tensor->entry) status = ons__tensor_check_eager(tensor, home, error);
  ons_allocation allocation = ONS_ALLOCATION_INIT;
  allocation.device = device;
  allocation.dtype = dltensor->dtype;
  allocation.ndim = dltensor->ndim;
  allocation.shape = dltensor->shape;
  allocation.stream = home;
  ons_tensor* copy = NULL;
  if (!status) status = ons_tensor_allocate(tensor->runtime, &allocation, &copy, error);
  if (!status) status = fill(tensor, home, copy, is_dense, error);
  if (status) {
    ons_tensor_release(copy);
    return status;
  }
  copy->flags |= tensor->flags & ONS_TENSOR_REQUIRES_GRAD;
  *out_copy = copy;
  return ONS_STATUS_OK;
}
