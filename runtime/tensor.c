#include "runtime/tensor.h"

#include <stdio.h>

bool ons__tensor_is_empty(const DLTensor* tensor) {
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] == 0) return true;
  }
  return false;
}

uint64_t ons__tensor_count(const DLTensor* tensor) {
  uint64_t count = 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) count *= (uint64_t)tensor->shape[i];
  return count;
}

size_t ons__tensor_size_bytes(const DLTensor* tensor) {
  uint64_t bits = (uint64_t)tensor->dtype.bits * tensor->dtype.lanes;
  return (size_t)((ons__tensor_count(tensor) * bits + 7) / 8);
}

static bool are_one_step(int64_t a, int64_t b) {
  return a == b || (uint64_t)a + (uint64_t)b == 0;
}

bool ons__tensor_overlaps(const DLTensor* tensor) {
  if (!tensor->strides || ons__tensor_is_empty(tensor)) return false;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] == 1) continue;
    if (tensor->strides[i] == 0) return true;
    for (int32_t j = 0; j < i; ++j) {
      if (tensor->shape[j] > 1 && are_one_step(tensor->strides[i], tensor->strides[j])) {
        return true;
      }
    }
  }
  return false;
}

int64_t ons__tensor_stride(const DLTensor* tensor, int32_t dimension) {
  if (tensor->strides) return tensor->strides[dimension];
  uint64_t stride = 1;
  for (int32_t i = tensor->ndim - 1; i > dimension; --i) {
    stride *= (uint64_t)tensor->shape[i];
  }
  return (int64_t)stride;
}

void ons__shape_text(const int64_t* values, int32_t count, char* out_text,
                     size_t capacity_bytes) {
  size_t used = 0;
  int written = snprintf(out_text, capacity_bytes, "(");
  for (int32_t i = 0; i < count && written >= 0; ++i) {
    used += (size_t)written;
    if (used + 28 > capacity_bytes) { /* room for one more number and the rest */
      written = snprintf(out_text + used, capacity_bytes - used, "...");
      break;
    }
    written = snprintf(out_text + used, capacity_bytes - used, "%s%lld%s", i ? ", " : "",
                       (long long)values[i], count == 1 ? "," : "");
  }
  if (written >= 0) used += (size_t)written;
  if (used < capacity_bytes) snprintf(out_text + used, capacity_bytes - used, ")");
}

void ons__device_text(DLDevice device, char* out_text, size_t capacity_bytes) {
  switch ((int)device.device_type) {
    case kDLCPU:
      snprintf(out_text, capacity_bytes, "cpu");
      return;
    case kDLCUDA:
      snprintf(out_text, capacity_bytes, "cuda:%d", (int)device.device_id);
      return;
    case kDLCUDAHost:
      snprintf(out_text, capacity_bytes, "pinned memory");
      return;
    case kDLCUDAManaged:
      snprintf(out_text, capacity_bytes, "managed memory");
      return;
    default:
      snprintf(out_text, capacity_bytes, "device type %d, id %d", (int)device.device_type,
               (int)device.device_id);
  }
}
