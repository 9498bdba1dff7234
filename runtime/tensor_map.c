#include "runtime/tensor_map.h"

#include <stdbool.h>

#include "runtime/tensor.h"

/* The rules of cuTensorMapEncodeTiled without interleave, which itself only says that
 * something is wrong. */
enum { BOX_MAX = 256, STEP_MAX = 8, ADDRESS_BYTES = 16 };

static const char* check_map(const ons_tensor_map* map, const DLTensor* tensor) {
  static const uint32_t kKnown = ONS_TENSOR_MAP_WRITE | ONS_TENSOR_MAP_FILL_NAN;
  if (map->flags & ~kKnown || map->swizzle > ONS_SWIZZLE_128B ||
      map->l2 > ONS_L2_PROMOTION_256B) {
    return "the tensor map's flags, swizzle or l2 have no known value";
  }
  if (map->rank < 1 || map->rank > ONS_TENSOR_MAP_RANK_MAX) {
    return "a tensor map has 1 to 5 dimensions";
  }
  if ((int64_t)map->rank != tensor->ndim) {
    return "the tensor map's box needs as many dimensions as the tensor has";
  }
  for (uint32_t i = 0; i < map->rank; ++i) {
    if (map->box[i] < 1 || map->box[i] > BOX_MAX) {
      return "each extent of a tensor map's box is 1 to 256";
    }
    if (map->steps[i] > STEP_MAX) return "each step of a tensor map is 1 to 8";
  }
  return NULL;
}

static const char* check_inner(const ons_tensor_map* map, uint64_t item_bytes) {
  static const uint32_t kSpans[] = {0, 32, 64, 128};
  uint64_t inner_bytes = map->box[map->rank - 1] * item_bytes;
  if (inner_bytes % ADDRESS_BYTES != 0) {
    return "the innermost extent of a tensor map's box must be a multiple of 16 bytes";
  }
  if (map->swizzle && inner_bytes > kSpans[map->swizzle]) {
    return "the innermost extent of a tensor map's box must fit the swizzle's span";
  }
  return NULL;
}

static const char* check_tensor(const DLTensor* tensor, uint64_t item_bytes) {
  uintptr_t address = (uintptr_t)tensor->data + tensor->byte_offset;
  if (ons__tensor_is_empty(tensor)) return "a tensor map needs a tensor of some elements";
  if (address % ADDRESS_BYTES != 0) {
    return "a tensor map needs memory at a multiple of 16 bytes: pass an aligned copy";
  }
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    int64_t stride = ons__tensor_stride(tensor, i);
    if (tensor->shape[i] > UINT32_MAX) return "a tensor map's extents are below 2**32";
    if (i == tensor->ndim - 1) {
      if (stride != 1 && tensor->shape[i] != 1) {
        return "a tensor map needs the innermost dimension to be contiguous: pass a "
               "contiguous copy";
      }
    } else if (stride <= 0 || (uint64_t)stride * item_bytes % ADDRESS_BYTES != 0) {
      return "a tensor map needs strides of positive multiples of 16 bytes: pad the rows";
    } else if ((uint64_t)stride >= (UINT64_C(1) << 40) / item_bytes) {
      return "a tensor map's strides are below 2**40 bytes";
    }
  }
  return NULL;
}

const char* ons__tensor_map_encode(const ons_tensor_map* map, const DLTensor* tensor,
                                   ons__device* device, unsigned char* out_bytes) {
  if (map->struct_size < sizeof(*map)) {
    return "the tensor map has no struct_size: initialise it with ONS_TENSOR_MAP_INIT";
  }
  if (!device->backend->ops->tensor_map) {
    return "this device has no tensor maps: they need a GPU of compute capability 9.0";
  }
  uint64_t item_bytes = tensor->dtype.bits / 8u;
  if (item_bytes == 0 || item_bytes > 8 || tensor->dtype.lanes != 1 ||
      tensor->dtype.code == kDLComplex) {
    return "a tensor map has elements of 1, 2, 4 or 8 bytes: view the tensor as another "
           "dtype";
  }
  const char* problem = check_map(map, tensor);
  if (!problem) problem = check_inner(map, item_bytes);
  if (!problem) problem = check_tensor(tensor, item_bytes);
  if (problem) return problem;
  int64_t strides[ONS_TENSOR_MAP_RANK_MAX];
  for (int32_t i = 0; i < tensor->ndim; ++i) strides[i] = ons__tensor_stride(tensor, i);
  return device->backend->ops->tensor_map(device, map, tensor, strides, out_bytes);
}
