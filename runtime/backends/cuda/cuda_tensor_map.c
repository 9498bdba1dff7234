/* Tensor maps, in tiled mode. */
#include <stdlib.h>
#include <string.h>

#include "runtime/backends/cuda/cuda_backend.h"

/* Only where floats are filled in out of bounds does the type matter beyond its size. */
static CUtensorMapDataType data_type(DLDataType dtype) {
  bool is_signed = dtype.code == kDLInt;
  switch (dtype.code) {
    case kDLFloat:
      return dtype.bits == 64   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT64
             : dtype.bits == 32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case kDLBfloat:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    default:
      break;
  }
  switch (dtype.bits) {
    case 64:
      return is_signed ? CU_TENSOR_MAP_DATA_TYPE_INT64 : CU_TENSOR_MAP_DATA_TYPE_UINT64;
    case 32:
      return is_signed ? CU_TENSOR_MAP_DATA_TYPE_INT32 : CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case 16:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

/* The driver counts dimensions from the innermost, and knows its stride. */
const char* ons__cuda_tensor_map(ons__device* base, const ons_tensor_map* map,
                                 const DLTensor* tensor, const int64_t* strides,
                                 unsigned char* out_bytes) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  if (!device->driver->cuTensorMapEncodeTiled || atoi(base->arch + strlen("sm_")) < 90) {
    return "tensor maps need a GPU of compute capability 9.0 and a driver of CUDA 12.0";
  }
  uint64_t sizes[ONS_TENSOR_MAP_RANK_MAX], stride_bytes[ONS_TENSOR_MAP_RANK_MAX];
  uint32_t box[ONS_TENSOR_MAP_RANK_MAX], steps[ONS_TENSOR_MAP_RANK_MAX];
  for (uint32_t i = 0; i < map->rank; ++i) {
    uint32_t from = map->rank - 1 - i;
    sizes[i] = (uint64_t)tensor->shape[from];
    box[i] = map->box[from];
    steps[i] = map->steps[from] ? map->steps[from] : 1;
    if (i == 0) continue;
    stride_bytes[i - 1] = (uint64_t)strides[from] * (tensor->dtype.bits / 8u);
  }
  CUtensorMap encoded;
  CUresult result = device->driver->cuTensorMapEncodeTiled(
      &encoded, data_type(tensor->dtype), map->rank,
      (char*)tensor->data + tensor->byte_offset, sizes, stride_bytes, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, map->swizzle, map->l2,
      map->flags & ONS_TENSOR_MAP_FILL_NAN
          ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
          : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result) return "the driver refuses this tensor map (cuTensorMapEncodeTiled)";
  memcpy(out_bytes, &encoded, sizeof(encoded));
  return NULL;
}
