#include "runtime/bind.h"

#include <math.h>
#include <stdalign.h>
#include <string.h>

#include "runtime/backend.h"
#include "runtime/base/steps.h"
#include "runtime/tensor.h"
#include "runtime/tensor_map.h"

/* ---- tensors ---------------------------------------------------------------------- */

/* Memory that is not the device's own but that its kernels may use. */
static bool is_usable(const DLTensor* tensor, ons__device* device) {
  int type = (int)tensor->device.device_type;
  if (device->device.device_type == kDLCPU) {
    return type == kDLCUDAHost ||
           type == kDLCPU; /* whatever index its producer gives it */
  }
  if (type == kDLCUDAManaged || type == kDLCUDAHost) return true;
  /* Some producers call their pinned memory plain CPU memory. */
  const ons__backend_ops* ops = device->backend->ops;
  return type == kDLCPU && ops->host_pointer_usable && tensor->data &&
         ops->host_pointer_usable(device, tensor->data);
}

static ons__refusal check_order(const ons_arg* arg, const ons__step* step,
                                const ons__device* device) {
  if (device->device.device_type == kDLCPU) return ONS__ACCEPTED;
  int type = (int)arg->value.tensor->device.device_type;
  if (type != kDLCUDA && type != kDLCUDAManaged) return ONS__ACCEPTED;
  if (arg->flags & (ONS_ARG_STREAM_KNOWN | ONS_ARG_OUTPUT)) return ONS__ACCEPTED;
  if (!(arg->flags & ONS_ARG_ORDERED)) return ONS__REFUSED_BEFORE;
  return step->is_const || !ONS__DOES(REFUSE_WRITE) ? ONS__ACCEPTED : ONS__REFUSED_AFTER;
}

static ons__refusal check_access(const ons_arg* arg, const ons__step* step) {
  if (step->is_const) {
    return arg->flags & ONS_ARG_OUTPUT ? ONS__REFUSED_OUTPUT : ONS__ACCEPTED;
  }
  if ((arg->flags & (ONS_ARG_READ_ONLY | ONS_ARG_OUTPUT)) == ONS_ARG_READ_ONLY) {
    return ONS__REFUSED_READ_ONLY;
  }
  return arg->flags & ONS_ARG_REQUIRES_GRAD ? ONS__REFUSED_GRAD : ONS__ACCEPTED;
}

static bool takes_dtype(const ons__step* step, const DLTensor* tensor) {
  uint32_t dtype = ons__dtype_word(tensor->dtype);
  if (step->dtype == ONS__DTYPE_ANY || dtype == step->dtype) return true;
  if (dtype == step->more.also.alternative) return true;
  return dtype == step->more.also.lane &&
         ons__tensor_count(tensor) % step->lane_count == 0;
}

/* Is it a tensor at all? In particular no dtype of zeros, which stands for "none" in a
 * step. */
static bool is_well_formed(const DLTensor* tensor) {
  if (!tensor || tensor->ndim < 0 || (tensor->ndim > 0 && !tensor->shape)) return false;
  if (tensor->dtype.bits == 0 || tensor->dtype.lanes == 0) return false;
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] < 0) return false;
    if (__builtin_mul_overflow(count, tensor->shape[i], &count)) count = INT64_MAX;
  }
  return count < INT64_MAX || ons__tensor_is_empty(tensor);
}

/* What pointers and views have in common; gives the address of element 0, left alone
 * where there is none. */
static ons__refusal check_tensor(const ons_arg* arg, const ons__step* step,
                                 ons__device* device, char** out_data) {
  if (arg->kind != ONS_ARG_TENSOR) return ONS__REFUSED_NEEDS_TENSOR;
  const DLTensor* tensor = arg->value.tensor;
  if (!is_well_formed(tensor)) return ONS__REFUSED_MALFORMED;
  if (!takes_dtype(step, tensor)) return ONS__REFUSED_DTYPE;
  if ((tensor->device.device_type != device->device.device_type ||
       tensor->device.device_id != device->device.device_id) &&
      !is_usable(tensor, device)) {
    return ONS__REFUSED_DEVICE;
  }
  ons__refusal refusal = check_access(arg, step);
  if (!refusal) refusal = check_order(arg, step, device);
  if (refusal) return refusal;
  bool is_empty = ons__tensor_is_empty(tensor);
  if (!tensor->data) return is_empty ? ONS__ACCEPTED : ONS__REFUSED_NO_DATA;
  char* data = (char*)tensor->data + tensor->byte_offset;
  if (((uintptr_t)data & step->align_mask) != 0 && !is_empty)
    return ONS__REFUSED_ALIGNMENT;
  *out_data = data;
  return ONS__ACCEPTED;
}

static ons__refusal bind_pointer(const ons_arg* arg, const ons__step* step,
                                 ons__device* device, unsigned char* slot) {
  char* data = NULL;
  if (arg->kind != ONS_ARG_NULL) {
    ons__refusal refusal = check_tensor(arg, step, device, &data);
    if (refusal) return refusal;
    if (!ons__tensor_is_dense(arg->value.tensor)) return ONS__REFUSED_LAYOUT;
  }
  memcpy(slot, &data, sizeof(data));
  return ONS__ACCEPTED;
}

/* With 32-bit indices every offset that the kernel can compute must fit. */
static bool fits_index32(const DLTensor* tensor) {
  if (ons__tensor_is_empty(tensor)) {
    for (int32_t i = 0; i < tensor->ndim; ++i) {
      if (tensor->shape[i] > INT32_MAX || tensor->shape[i] < 0) return false;
    }
    return true;
  }
  uint64_t reach = 0;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    int64_t size = tensor->shape[i];
    int64_t stride = size == 1 ? 0 : ons__tensor_stride(tensor, i);
    if (size < 0 || size > INT32_MAX || stride > INT32_MAX || stride < -INT32_MAX) {
      return false;
    }
    reach += (uint64_t)(size - 1) * (uint64_t)(stride < 0 ? -stride : stride);
    if (reach > INT32_MAX) return false;
  }
  return true;
}

/* The layout of ons::view: data, then all sizes, then all strides. */
static ons__refusal bind_view(const ons_arg* arg, const ons__step* step,
                              ons__device* device, unsigned char* slot) {
  char* data = NULL;
  ons__refusal refusal = check_tensor(arg, step, device, &data);
  if (refusal) return refusal;
  const DLTensor* tensor = arg->value.tensor;
  if (tensor->ndim != step->ndim) return ONS__REFUSED_RANK;
  if (!step->is_const && ons__tensor_overlaps(tensor)) return ONS__REFUSED_OVERLAP;
  if (step->index_bits == 32 && !fits_index32(tensor)) return ONS__REFUSED_INDEX;
  memcpy(slot, &data, sizeof(data));
  slot += sizeof(data);
  for (int32_t i = 0; i < 2 * tensor->ndim; ++i) {
    int64_t value = i < tensor->ndim ? tensor->shape[i]
                                     : ons__tensor_stride(tensor, i - tensor->ndim);
    if (step->index_bits == 32) {
      /* A dimension of size 1 may have any stride, which is then of no use. */
      int32_t narrow = value == (int32_t)value ? (int32_t)value : 0;
      memcpy(slot, &narrow, sizeof(narrow));
      slot += sizeof(narrow);
    } else {
      memcpy(slot, &value, sizeof(value));
      slot += sizeof(value);
    }
  }
  return ONS__ACCEPTED;
}

/* ---- numbers ---------------------------------------------------------------------- */

static ons__refusal bind_int(const ons_arg* arg, const ons__step* step,
                             unsigned char* slot) {
  switch (arg->kind) {
    case ONS_ARG_INT:
    case ONS_ARG_BOOL:
      if (arg->value.i < step->more.range.low || arg->value.i > step->more.range.high)
        return ONS__REFUSED_RANGE;
      memcpy(slot, &arg->value.i,
             sizeof(int64_t)); /* little-endian: the low bytes are first */
      return ONS__ACCEPTED;
    case ONS_ARG_UINT:
      return ONS__REFUSED_RANGE;
    case ONS_ARG_FLOAT:
      return ONS__REFUSED_FRACTION;
    default:
      return ONS__REFUSED_NEEDS_NUMBER;
  }
}

static ons__refusal bind_uint64(const ons_arg* arg, unsigned char* slot) {
  switch (arg->kind) {
    case ONS_ARG_INT:
    case ONS_ARG_BOOL:
      if (arg->value.i < 0) return ONS__REFUSED_RANGE;
      memcpy(slot, &arg->value.i, sizeof(int64_t));
      return ONS__ACCEPTED;
    case ONS_ARG_UINT:
      memcpy(slot, &arg->value.u, sizeof(uint64_t));
      return ONS__ACCEPTED;
    case ONS_ARG_FLOAT:
      return ONS__REFUSED_FRACTION;
    default:
      return ONS__REFUSED_NEEDS_NUMBER;
  }
}

static ons__refusal bind_bool(const ons_arg* arg, unsigned char* slot) {
  if (arg->kind != ONS_ARG_BOOL && arg->kind != ONS_ARG_INT) {
    return arg->kind == ONS_ARG_FLOAT || arg->kind == ONS_ARG_UINT
               ? ONS__REFUSED_BOOL
               : ONS__REFUSED_NEEDS_NUMBER;
  }
  if (arg->value.i != 0 && arg->value.i != 1) return ONS__REFUSED_BOOL;
  slot[0] = (unsigned char)arg->value.i;
  return ONS__ACCEPTED;
}

/* A format of 16 or 8 bits: sign, exponent, mantissa. */
typedef struct small_float {
  uint8_t bits;
  uint8_t mantissa_bits;
  int8_t exponent_min; /* of normal numbers */
  bool has_negative_zero;
  uint16_t infinity; /* 0: has none */
  uint16_t nan;
  uint16_t largest; /* finite */
} small_float;

static const small_float kSmallFloats[] = {
    [ONS__STEP_FLOAT16] = {16, 10, -14, true, 0x7c00, 0x7e00, 0x7bff},
    [ONS__STEP_BFLOAT16] = {16, 7, -126, true, 0x7f80, 0x7fc0, 0x7f7f},
    [ONS__STEP_FLOAT8_E4M3FN] = {8, 3, -6, true, 0, 0x7f, 0x7e},
    [ONS__STEP_FLOAT8_E4M3FNUZ] = {8, 3, -7, false, 0, 0x80, 0x7f},
    [ONS__STEP_FLOAT8_E5M2] = {8, 2, -14, true, 0x7c, 0x7e, 0x7b},
    [ONS__STEP_FLOAT8_E5M2FNUZ] = {8, 2, -15, false, 0, 0x80, 0x7f},
};

/* Of a small number that is not negative, whatever the thread's rounding mode. */
static uint32_t round_to_even(double value) {
  uint32_t below = (uint32_t)value;
  double rest = value - below;
  return below + (rest > 0.5 || (rest == 0.5 && below % 2 != 0));
}

/* Rounds to nearest, ties to even. False for what the format has no number for. */
static bool encode_small_float(const small_float* format, double value,
                               uint16_t* out_bits) {
  uint16_t sign = (uint16_t)(signbit(value) ? 1u << (format->bits - 1) : 0u);
  if (isnan(value)) {
    if (!format->has_negative_zero) sign = 0;
    *out_bits = (uint16_t)(sign | format->nan);
    return true;
  }
  if (isinf(value)) {
    *out_bits = (uint16_t)(sign | format->infinity);
    return format->infinity != 0;
  }
  int exponent = 0;
  (void)frexp(value, &exponent); /* of a mantissa below 1 */
  exponent = value != 0 && exponent - 1 > format->exponent_min ? exponent - 1
                                                               : format->exponent_min;
  /* The implicit bit of a normal number adds one to the exponent's field. */
  uint32_t magnitude =
      round_to_even(ldexp(fabs(value), format->mantissa_bits - exponent)) +
      ((uint32_t)(exponent - format->exponent_min) << format->mantissa_bits);
  if (magnitude > format->largest) return false;
  *out_bits = (uint16_t)magnitude;
  if (*out_bits != 0 || format->has_negative_zero)
    *out_bits = (uint16_t)(*out_bits | sign);
  return true;
}

static bool number_value(const ons_arg* arg, double* out_value) {
  switch (arg->kind) {
    case ONS_ARG_FLOAT:
      *out_value = arg->value.f;
      return true;
    case ONS_ARG_INT:
    case ONS_ARG_BOOL:
      *out_value = (double)arg->value.i;
      return true;
    case ONS_ARG_UINT:
      *out_value = (double)arg->value.u;
      return true;
    default:
      return false;
  }
}

/* A finite number that would become infinite does not fit. */
static ons__refusal bind_float(const ons_arg* arg, const ons__step* step,
                               unsigned char* slot) {
  double value;
  if (!number_value(arg, &value)) return ONS__REFUSED_NEEDS_NUMBER;
  float narrow;
  uint16_t bits;
  switch (step->kind) {
    case ONS__STEP_FLOAT64:
      memcpy(slot, &value, sizeof(value));
      return ONS__ACCEPTED;
    case ONS__STEP_FLOAT32:
      narrow = (float)value;
      if (isinf(narrow) && !isinf(value)) return ONS__REFUSED_RANGE;
      memcpy(slot, &narrow, sizeof(narrow));
      return ONS__ACCEPTED;
    default:
      if (!encode_small_float(&kSmallFloats[step->kind], value, &bits)) {
        return ONS__REFUSED_RANGE;
      }
      memcpy(slot, &bits, sizeof(bits)); /* little-endian: one byte is the first */
      return ONS__ACCEPTED;
  }
}

static ons__refusal bind_bytes(const ons_arg* arg, const ons__step* step,
                               unsigned char* slot) {
  if (arg->kind != ONS_ARG_BYTES) return ONS__REFUSED_NEEDS_BYTES;
  if (arg->size_bytes != step->size_bytes) return ONS__REFUSED_SIZE;
  if (!arg->value.bytes) return ONS__REFUSED_MALFORMED;
  memcpy(slot, arg->value.bytes, arg->size_bytes);
  return ONS__ACCEPTED;
}

static ons__refusal bind_number(const ons_arg* arg, const ons__step* step,
                                unsigned char* slot) {
  switch (step->kind) {
    case ONS__STEP_BOOL:
      return bind_bool(arg, slot);
    case ONS__STEP_INT:
      return bind_int(arg, step, slot);
    case ONS__STEP_UINT64:
      return bind_uint64(arg, slot);
    default:
      return bind_float(arg, step, slot);
  }
}

/* ---- lists ------------------------------------------------------------------------ */

static ons__refusal bind_lane(const ons_arg* item, const ons__step* step,
                              unsigned char* slot) {
  ons__step lane = *step;
  lane.kind = step->lane_kind;
  unsigned char bytes[8]; /* what numbers are stored with, whatever their size */
  ons__refusal refusal = bind_number(item, &lane, bytes);
  if (!refusal) memcpy(slot, bytes, step->size_bytes / step->lane_count);
  return refusal;
}

static bool is_complex(const ons__step* step) {
  DLDataType dtype;
  memcpy(&dtype, &step->dtype, sizeof(dtype));
  return dtype.code == kDLComplex;
}

static ons__refusal bind_vector(const ons_arg* arg, const ons__step* step,
                                unsigned char* slot) {
  double value;
  if (is_complex(step) && number_value(arg, &value)) {
    memset(slot, 0, step->size_bytes);
    return bind_lane(arg, step, slot);
  }
  if (arg->kind != ONS_ARG_LIST) return ONS__REFUSED_NEEDS_NUMBERS;
  if (!arg->value.items && arg->item_count > 0) return ONS__REFUSED_MALFORMED;
  if (arg->item_count != step->lane_count) return ONS__REFUSED_COUNT;
  ons__refusal refusal = ONS__ACCEPTED;
  for (size_t i = 0; i < arg->item_count && !refusal; ++i) {
    refusal = bind_lane(&arg->value.items[i], step,
                        slot + i * (step->size_bytes / step->lane_count));
  }
  return refusal;
}

static ons__refusal bind_pointers(const ons_arg* arg, const ons__step* step,
                                  ons__device* device, unsigned char* slot) {
  if (arg->kind != ONS_ARG_LIST) return ONS__REFUSED_NEEDS_TENSORS;
  if (!arg->value.items && arg->item_count > 0) return ONS__REFUSED_MALFORMED;
  if (arg->item_count != step->size_bytes / sizeof(void*)) return ONS__REFUSED_COUNT;
  ons__refusal refusal = ONS__ACCEPTED;
  for (size_t i = 0; i < arg->item_count && !refusal; ++i) {
    refusal = bind_pointer(&arg->value.items[i], step, device, slot + i * sizeof(void*));
  }
  return refusal;
}

/* Of what is pending the device is known, and no more. */
static ons__refusal try_pending(const ons_arg* arg, const ons__device* device) {
  if (!arg->value.tensor || !ONS__DOES(LOOK_AT_DEVICE)) return ONS__ACCEPTED;
  DLDevice where = arg->value.tensor->device;
  int type = (int)where.device_type;
  bool is_anywhere = type == kDLCPU || type == kDLCUDAHost || type == kDLCUDAManaged;
  bool is_there = where.device_type == device->device.device_type &&
                  where.device_id == device->device.device_id;
  return is_anywhere || is_there ? ONS__ACCEPTED : ONS__REFUSED_DEVICE;
}

static ons__refusal try_pointers(const ons_arg* arg, const ons__step* step,
                                 ons__device* device) {
  unsigned char slot[sizeof(void*)];
  if (!arg->value.items && arg->item_count > 0) return ONS__REFUSED_MALFORMED;
  if (arg->item_count != step->size_bytes / sizeof(void*)) return ONS__REFUSED_COUNT;
  ons__refusal refusal = ONS__ACCEPTED;
  for (size_t i = 0; i < arg->item_count && !refusal; ++i) {
    const ons_arg* item = &arg->value.items[i];
    refusal = item->kind == ONS_ARG_PENDING ? try_pending(item, device)
                                            : bind_pointer(item, step, device, slot);
  }
  return refusal;
}

size_t ons__bind_refused_item(const ons__step* step, const ons_arg* list,
                              ons__device* device) {
  unsigned char slot[16];
  size_t i = 0;
  for (; i < list->item_count; ++i) {
    const ons_arg* item = &list->value.items[i];
    ons__refusal refusal = item->kind == ONS_ARG_PENDING ? try_pending(item, device)
                           : step->kind == ONS__STEP_VECTOR
                               ? bind_lane(item, step, slot)
                               : bind_pointer(item, step, device, slot);
    if (refusal) break;
  }
  return i;
}

/* ---- tensor maps ------------------------------------------------------------------ */

static ons__refusal bind_tensor_map(const ons_arg* arg, const ons__step* step,
                                    ons__device* device, unsigned char* slot) {
  if (arg->kind != ONS_ARG_TENSOR_MAP) return ONS__REFUSED_NEEDS_MAP;
  if (!arg->tensor_map) return ONS__REFUSED_MALFORMED;
  ons__step as_tensor = *step;
  as_tensor.is_const = !(arg->tensor_map->flags & ONS_TENSOR_MAP_WRITE);
  ons_arg tensor = *arg;
  tensor.kind = ONS_ARG_TENSOR;
  char* data = NULL;
  ons__refusal refusal = check_tensor(&tensor, &as_tensor, device, &data);
  if (refusal) return refusal;
  return ons__tensor_map_encode(arg->tensor_map, arg->value.tensor, device, slot)
             ? ONS__REFUSED_MAP
             : ONS__ACCEPTED;
}

/* ---- any argument ----------------------------------------------------------------- */

static ons__refusal bind_by_kind(const ons_arg* arg, const ons__step* step,
                                 ons__device* device, unsigned char* slot) {
  switch (step->kind) {
    case ONS__STEP_POINTER:
      return bind_pointer(arg, step, device, slot);
    case ONS__STEP_VIEW:
      return bind_view(arg, step, device, slot);
    case ONS__STEP_BYTES:
      return bind_bytes(arg, step, slot);
    case ONS__STEP_POINTERS:
      return bind_pointers(arg, step, device, slot);
    case ONS__STEP_TENSOR_MAP:
      return arg->kind == ONS_ARG_BYTES ? bind_bytes(arg, step, slot)
                                        : bind_tensor_map(arg, step, device, slot);
    case ONS__STEP_BOOL:
      return bind_bool(arg, slot);
    default:
      break;
  }
  if (arg->kind == ONS_ARG_BYTES) return bind_bytes(arg, step, slot);
  return step->kind == ONS__STEP_VECTOR ? bind_vector(arg, step, slot)
                                        : bind_number(arg, step, slot);
}

static uint32_t notes_of(const ons_arg* arg, const void* stream) {
  if (arg->kind == ONS_ARG_LIST) {
    uint32_t notes = 0;
    for (size_t i = 0; i < arg->item_count; ++i) {
      notes |= notes_of(&arg->value.items[i], stream);
    }
    return notes;
  }
  if (arg->kind != ONS_ARG_TENSOR && arg->kind != ONS_ARG_TENSOR_MAP) return 0;
  int type = (int)arg->value.tensor->device.device_type;
  if (type == kDLCPU || type == kDLCUDAHost) return 0;
  if (!(arg->flags & ONS_ARG_STREAM_KNOWN)) return ONS__NOTE_ORDERED;
  /* The same handle may name another device's default stream. */
  return arg->stream != stream || type == kDLCUDAManaged ? ONS__NOTE_MIXED : 0;
}

static ONS__NOINLINE ons__refusal bind_any(const ons_arg* arg, const ons__step* step,
                                           ons__device* device, const void* stream,
                                           unsigned char* slot, uint32_t* notes) {
  ons__refusal refusal = bind_by_kind(arg, step, device, slot);
  if (!refusal) *notes |= notes_of(arg, stream);
  return refusal;
}

/* ---- all of them ---- */

/* What tensors are compared with, gathered once for all. */
typedef struct expected {
  uint64_t device;
  uint32_t flags;
  uintptr_t stream;
  uintptr_t stream_mask; /* 0 where streams do not matter: on the CPU */
} expected;

static inline uint64_t device_word(DLDevice device) {
  uint64_t word;
  memcpy(&word, &device, sizeof(word));
  return word;
}

static inline expected expect(DLDevice where, const void* stream) {
  bool has_streams = where.device_type != kDLCPU;
  return (expected){.device = device_word(where),
                    .flags = has_streams ? ONS_ARG_STREAM_KNOWN : 0,
                    .stream = (uintptr_t)stream,
                    .stream_mask = has_streams ? UINTPTR_MAX : 0};
}

/* ons__tensor_is_dense with the innermost dimension in line, for what is well-formed and
 * not empty. */
static inline bool is_dense(const DLTensor* tensor) {
  int32_t last = tensor->ndim - 1;
  if (ONS__UNLIKELY(last < 0)) return last == -1;
  if (!tensor->shape) return false;
  static const int64_t one = 1;
  const int64_t* stride = tensor->strides ? &tensor->strides[last] : &one;
  int64_t size = tensor->shape[last];
  if (ONS__UNLIKELY((size < 0) | ((*stride != 1) & (size != 1)))) return false;
  return ONS__LIKELY(last == 0) || ons__tensor_is_dense(tensor);
}

/* A dense tensor of the declared dtype in the device's own memory and on the launch
 * stream. One branch for most of it: each costs more than its comparison when nothing has
 * been predicted yet. */
static inline bool bind_common_tensor(const ons_arg* arg, const ons__step* step,
                                      const expected* wanted, unsigned char* slot) {
  const DLTensor* tensor = arg->value.tensor;
  if (!tensor) return false;
  uint64_t data = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
  uint64_t differs = device_word(tensor->device) ^ wanted->device;
  differs |= ons__dtype_word(tensor->dtype) ^ step->dtype;
  differs |= (arg->flags & (step->forbidden | wanted->flags)) ^ wanted->flags;
  differs |= ((uintptr_t)arg->stream ^ wanted->stream) & wanted->stream_mask;
  differs |= data & step->align_mask;
  if (ONS__UNLIKELY(differs || !tensor->data) || !is_dense(tensor)) return false;
  memcpy(slot, &data, sizeof(data));
  return true;
}

/* What a launch mostly consists of: such tensors, integers in range, floats. False leaves
 * all else, refusals included, to bind_any. */
static inline bool bind_common(const ons_arg* arg, const ons__step* step,
                               const expected* wanted, unsigned char* slot) {
  if (ONS__UNLIKELY(arg->kind != step->common)) return false;
  if (ONS__LIKELY(arg->kind == ONS_ARG_TENSOR)) {
    return ONS__LIKELY(bind_common_tensor(arg, step, wanted, slot));
  }
  if (arg->kind == ONS_ARG_INT) {
    int64_t value = arg->value.i;
    memcpy(slot, &value, sizeof(value)); /* little-endian: the low bytes are first */
    return (value >= step->more.range.low) & (value <= step->more.range.high);
  }
  float narrow = (float)arg->value.f;
  uint32_t bits;
  memcpy(slot, &narrow, sizeof(narrow));
  memcpy(&bits, &narrow, sizeof(bits));
  return (bits & 0x7f800000u) != 0x7f800000u; /* finite */
}

ons__refusal ons__bind(const ons__plan* plan, const ons_arg* args, ons__device* device,
                       DLDevice where, const void* stream, ons__block* block) {
  const expected wanted = expect(where, stream);
  void** parameters = block->parameters;
  unsigned char* bytes = block->bytes;
  size_t count = plan->count;
  block->notes = 0;
  for (size_t i = 0; i < count; ++i) {
    const ons__step* step = &plan->steps[i];
    unsigned char* slot = bytes + step->offset;
    parameters[i] = slot;
    if (ONS__LIKELY(bind_common(&args[i], step, &wanted, slot))) continue;
    ons__refusal refusal = bind_any(&args[i], step, device, stream, slot, &block->notes);
    if (refusal) {
      block->index = (uint32_t)i;
      return refusal;
    }
  }
  return ONS__ACCEPTED;
}

ons__refusal ons__bind_try(const ons__plan* plan, const ons_arg* args,
                           ons__device* device, size_t* out_index) {
  alignas(16) unsigned char slot[ONS__PARAMETER_BYTES_MAX];
  for (size_t i = 0; i < plan->count; ++i) {
    const ons__step* step = &plan->steps[i];
    bool is_table = args[i].kind == ONS_ARG_LIST && step->kind == ONS__STEP_POINTERS;
    ons__refusal refusal = args[i].kind == ONS_ARG_PENDING ? try_pending(&args[i], device)
                           : is_table ? try_pointers(&args[i], step, device)
                                      : bind_by_kind(&args[i], step, device, slot);
    if (refusal) {
      *out_index = i;
      return refusal;
    }
  }
  return ONS__ACCEPTED;
}

/* ---- __restrict__ ----------------------------------------------------------------- */

/* The bytes from the lowest to the highest element. */
typedef struct span {
  uintptr_t begin, end;
  uintptr_t first; /* the address of element 0 */
  bool is_dense;
} span;

/* False where there is no memory. */
static bool span_of(const ons_arg* arg, span* out_span) {
  if (arg->kind != ONS_ARG_TENSOR && arg->kind != ONS_ARG_TENSOR_MAP) return false;
  const DLTensor* tensor = arg->value.tensor;
  if (!tensor->data || ons__tensor_is_empty(tensor)) return false;
  uint64_t item_bytes = (tensor->dtype.bits * (uint64_t)tensor->dtype.lanes + 7) / 8;
  uintptr_t first = (uintptr_t)tensor->data + tensor->byte_offset;
  *out_span = (span){.begin = first, .end = first + item_bytes, .first = first};
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    int64_t stride = ons__tensor_stride(tensor, i);
    uint64_t reach = (uint64_t)(tensor->shape[i] - 1) * (uint64_t)stride * item_bytes;
    if (stride < 0) {
      out_span->begin += reach;
    } else {
      out_span->end += reach;
    }
  }
  out_span->is_dense = ons__tensor_is_dense(tensor);
  return true;
}

static bool holds(const span* dense, const span* other) {
  return dense->is_dense && other->first >= dense->begin && other->first < dense->end;
}

/* Strided tensors may lie in each other's gaps. */
static bool certainly_meet(const span* a, const span* b) {
  if (a->is_dense && b->is_dense) return a->begin < b->end && b->begin < a->end;
  return a->first == b->first || holds(a, b) || holds(b, a);
}

static bool args_meet(const ons_arg* a, const ons_arg* b) {
  span left, right;
  if (a->kind == ONS_ARG_LIST) {
    for (size_t i = 0; i < a->item_count; ++i) {
      if (args_meet(&a->value.items[i], b)) return true;
    }
    return false;
  }
  if (b->kind == ONS_ARG_LIST) return args_meet(b, a);
  return span_of(a, &left) && span_of(b, &right) && certainly_meet(&left, &right);
}

static bool is_written(const ons__step* step, const ons_arg* arg) {
  switch (step->kind) {
    case ONS__STEP_POINTER:
    case ONS__STEP_VIEW:
    case ONS__STEP_POINTERS:
      return !step->is_const;
    case ONS__STEP_TENSOR_MAP:
      return arg->kind == ONS_ARG_TENSOR_MAP &&
             (arg->tensor_map->flags & ONS_TENSOR_MAP_WRITE);
    default:
      return false;
  }
}

bool ons__bind_find_overlap(const ons__plan* plan, const ons_arg* args, size_t* out_first,
                            size_t* out_second) {
  if (!plan->is_restrict) return false;
  for (size_t i = 0; i < plan->count; ++i) {
    for (size_t j = i + 1; j < plan->count; ++j) {
      bool is_promised = plan->is_restrict[i] || plan->is_restrict[j];
      bool matters = is_promised && (is_written(&plan->steps[i], &args[i]) ||
                                     is_written(&plan->steps[j], &args[j]));
      if (!matters || !args_meet(&args[i], &args[j])) continue;
      *out_first = i;
      *out_second = j;
      return true;
    }
  }
  return false;
}
