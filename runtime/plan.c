#include <assert.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/bind.h"
#include "runtime/tensor.h"

static ons_status plan_error(ons_error* error, const char* kernel_name, size_t index,
                             const ons__parameter* parameter, const char* reason) {
  return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                        "kernel '%s', parameter %zu (%s): %s", kernel_name, index + 1,
                        parameter->type, reason);
}

/* Vector types are aligned as a whole when their size is a power of two, up to 16 bytes.
 */
static uint32_t element_alignment(DLDataType dtype) {
  uint32_t lane = (dtype.bits + 7u) / 8u;
  uint32_t total = (dtype.bits * (uint32_t)dtype.lanes + 7u) / 8u;
  uint32_t alignment = (total & (total - 1)) == 0 ? total : lane;
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) return 1;
  return alignment > 16 ? 16 : alignment;
}

bool ons__step_for_number(DLDataType dtype, ons__step* step) {
  if (dtype.lanes != 1) return false;
  switch (dtype.code) {
    case kDLInt:
      step->kind = ONS__STEP_INT;
      if (dtype.bits > 64) return false;
      step->more.range.low =
          dtype.bits == 64 ? INT64_MIN : -((int64_t)1 << (dtype.bits - 1));
      step->more.range.high = -(step->more.range.low + 1);
      return true;
    case kDLUInt:
      if (dtype.bits > 64) return false;
      step->kind = dtype.bits == 64 ? ONS__STEP_UINT64 : ONS__STEP_INT;
      step->more.range.high = dtype.bits == 64 ? 0 : ((int64_t)1 << dtype.bits) - 1;
      return true;
    case kDLBool:
      step->kind = ONS__STEP_BOOL;
      return true;
    case kDLFloat:
      step->kind = dtype.bits == 64   ? ONS__STEP_FLOAT64
                   : dtype.bits == 32 ? ONS__STEP_FLOAT32
                                      : ONS__STEP_FLOAT16;
      return dtype.bits == 64 || dtype.bits == 32 || dtype.bits == 16;
    case kDLBfloat:
      step->kind = ONS__STEP_BFLOAT16;
      return dtype.bits == 16;
    case kDLFloat8_e4m3fn:
      step->kind = ONS__STEP_FLOAT8_E4M3FN;
      return true;
    case kDLFloat8_e4m3fnuz:
      step->kind = ONS__STEP_FLOAT8_E4M3FNUZ;
      return true;
    case kDLFloat8_e5m2:
      step->kind = ONS__STEP_FLOAT8_E5M2;
      return true;
    case kDLFloat8_e5m2fnuz:
      step->kind = ONS__STEP_FLOAT8_E5M2FNUZ;
      return true;
    default:
      return false;
  }
}

/* float4, or a complex number as its two parts. */
static bool vector_step(DLDataType dtype, ons__step* step) {
  bool is_complex = dtype.code == kDLComplex;
  DLDataType lane = {is_complex ? kDLFloat : dtype.code,
                     is_complex ? (uint8_t)(dtype.bits / 2) : dtype.bits, 1};
  if (!ons__step_for_number(lane, step)) return false;
  step->lane_kind = step->kind;
  step->lane_count = is_complex ? 2 : (uint8_t)dtype.lanes;
  step->kind = ONS__STEP_VECTOR;
  step->dtype = ons__dtype_word(dtype);
  return true;
}

static void tensor_step(const ons__parameter* parameter, ons__step* step) {
  step->dtype = ONS__DTYPE_ANY;
  if (parameter->dtype.bits == 0) return;
  step->dtype = ons__dtype_word(parameter->dtype);
  if (parameter->alternative.bits) {
    step->more.also.alternative = ons__dtype_word(parameter->alternative);
  }
  if (parameter->dtype.lanes > 1 && parameter->kind != ONS_PARAMETER_VIEW) {
    DLDataType lane = {parameter->dtype.code, parameter->dtype.bits, 1};
    step->more.also.lane = ons__dtype_word(lane);
    step->lane_count = (uint8_t)parameter->dtype.lanes;
  }
  step->align_mask = (uint8_t)(element_alignment(parameter->dtype) - 1);
}

/* NULL, or why the parameter cannot be passed. */
static const char* fill_step(const ons__parameter* parameter, ons__step* step) {
  step->is_const = parameter->is_const;
  step->forbidden =
      parameter->is_const ? ONS_ARG_OUTPUT : ONS_ARG_READ_ONLY | ONS_ARG_REQUIRES_GRAD;
  step->ndim = parameter->ndim;
  step->index_bits = parameter->index_bits;
  step->size_bytes = (uint16_t)parameter->size_bytes;
  switch (parameter->kind) {
    case ONS_PARAMETER_POINTER:
      step->kind = ONS__STEP_POINTER;
      tensor_step(parameter, step);
      return NULL;
    case ONS_PARAMETER_VIEW:
      step->kind = ONS__STEP_VIEW;
      tensor_step(parameter, step);
      return NULL;
    case ONS_PARAMETER_POINTERS:
      step->kind = ONS__STEP_POINTERS;
      tensor_step(parameter, step);
      return NULL;
    case ONS_PARAMETER_TENSOR_MAP: /* whether it is written, each argument tells */
      step->kind = ONS__STEP_TENSOR_MAP;
      step->dtype = ONS__DTYPE_ANY;
      return NULL;
    case ONS_PARAMETER_SCALAR:
      if (ons__step_for_number(parameter->dtype, step)) return NULL;
      step->kind = ONS__STEP_BYTES;
      return NULL;
    case ONS_PARAMETER_VECTOR:
      if (vector_step(parameter->dtype, step)) return NULL;
      step->kind = ONS__STEP_BYTES;
      return NULL;
    case ONS_PARAMETER_STRUCT:
      step->kind = ONS__STEP_BYTES;
      return parameter->size_bytes == 0 ? "nothing tells the size of this type" : NULL;
    default:
      return "unknown kind";
  }
}

/* What bind.c takes in line. */
static uint8_t common_kind(uint8_t kind) {
  switch (kind) {
    case ONS__STEP_POINTER:
      return ONS_ARG_TENSOR;
    case ONS__STEP_INT:
      return ONS_ARG_INT;
    case ONS__STEP_FLOAT32:
      return ONS_ARG_FLOAT;
    default:
      return ONS__NOT_COMMON;
  }
}

/* Slots of at least 8 bytes, so that every number is stored with one store; of 16 where a
 * type may be aligned to more than 8. */
static uint64_t place(const ons__parameter* parameter, uint64_t offset) {
  bool is_plain = parameter->align_bytes != 0 && parameter->align_bytes <= 8;
  uint64_t alignment = is_plain ? 8 : 16;
  return (offset + alignment - 1) & ~(alignment - 1);
}

ons_status ons__plan_create(const ons_allocator* allocator, const char* kernel_name,
                            const ons__signature* signature, const uint8_t* is_restrict,
                            ons__plan** out_plan, ons_error* error) {
  assert(signature->count <= ONS__PARAMETERS_MAX);
  ons__plan* plan =
      ons__alloc(allocator, sizeof(*plan) + signature->count * sizeof(plan->steps[0]));
  if (!plan) return ons__error_no_memory(error);
  uint64_t offset = 0;
  uint64_t sum_bytes = 0;
  for (; plan->count < signature->count; ++plan->count) {
    const ons__parameter* parameter = &signature->parameters[plan->count];
    ons__step* step = &plan->steps[plan->count];
    const char* reason = fill_step(parameter, step);
    sum_bytes += parameter->size_bytes;
    offset = place(parameter, offset);
    if (!reason && sum_bytes > ONS__PARAMETER_BYTES_MAX) {
      reason =
          "with it the parameters take more than 4096 bytes; pass large structs in "
          "memory";
    }
    if (reason) {
      ons_status status = plan_error(error, kernel_name, plan->count, parameter, reason);
      ons__free(allocator, plan);
      return status;
    }
    step->common = common_kind(step->kind);
    step->offset = (uint16_t)offset;
    offset += step->size_bytes > 8 ? step->size_bytes : 8;
  }
  assert(offset <= ONS__BLOCK_BYTES_MAX);
  plan->block_bytes = (size_t)offset;
  plan->is_restrict = is_restrict;
  bool is_common =
      !is_restrict && plan->count <= ONS__COMMON_COUNT && offset <= ONS__COMMON_BYTES;
  plan->common_count = is_common ? plan->count : SIZE_MAX;
  *out_plan = plan;
  return ONS_STATUS_OK;
}
