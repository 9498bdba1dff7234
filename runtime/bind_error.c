/* The words for a refused argument. Never on the path of a launch that goes through. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/backend.h"
#include "runtime/base/error.h"
#include "runtime/bind.h"
#include "runtime/kernel.h"
#include "runtime/tensor.h"
#include "runtime/tensor_map.h"

static void describe_tensor(const DLTensor* tensor, char* out_text,
                            size_t capacity_bytes) {
  char dtype[48], device[64], shape[128];
  ons__dtype_text(tensor->dtype, dtype, sizeof(dtype));
  ons__device_text(tensor->device, device, sizeof(device));
  if (tensor->ndim > 0 && tensor->shape) {
    ons__shape_text(tensor->shape, tensor->ndim, shape, sizeof(shape));
  } else {
    snprintf(shape, sizeof(shape), "()");
  }
  snprintf(out_text, capacity_bytes, "a %s tensor of shape %s on %s", dtype, shape,
           device);
}

/* Always told from an integer: "3.0". */
static void describe_float(double value, char* out_text, size_t capacity_bytes) {
  int length = snprintf(out_text, capacity_bytes, "the float %.17g", value);
  bool is_short = length > 0 && (size_t)length + 3 < capacity_bytes;
  if (is_short && !strpbrk(out_text + 10, ".en")) strcat(out_text, ".0");
}

static void describe_pending(const DLTensor* tensor, char* out_text,
                             size_t capacity_bytes) {
  char device[64];
  ons__device_text(tensor->device, device, sizeof(device));
  snprintf(out_text, capacity_bytes, "an array on %s", device);
}

static void describe_arg(const ons_arg* arg, char* out_text, size_t capacity_bytes) {
  switch (arg->kind) {
    case ONS_ARG_NULL:
      snprintf(out_text, capacity_bytes, "a null pointer");
      return;
    case ONS_ARG_PENDING:
      describe_pending(arg->value.tensor, out_text, capacity_bytes);
      return;
    case ONS_ARG_TENSOR:
    case ONS_ARG_TENSOR_MAP:
      if (arg->value.tensor) {
        describe_tensor(arg->value.tensor, out_text, capacity_bytes);
      } else {
        snprintf(out_text, capacity_bytes, "a tensor argument without a DLTensor");
      }
      return;
    case ONS_ARG_INT:
      snprintf(out_text, capacity_bytes, "the integer %" PRId64, arg->value.i);
      return;
    case ONS_ARG_UINT:
      snprintf(out_text, capacity_bytes, "the integer %" PRIu64, arg->value.u);
      return;
    case ONS_ARG_FLOAT:
      describe_float(arg->value.f, out_text, capacity_bytes);
      return;
    case ONS_ARG_BOOL:
      snprintf(out_text, capacity_bytes, "the bool %s", arg->value.i ? "true" : "false");
      return;
    case ONS_ARG_BYTES:
      snprintf(out_text, capacity_bytes, "%zu bytes", arg->size_bytes);
      return;
    case ONS_ARG_LIST:
      snprintf(out_text, capacity_bytes, "a list of %zu", arg->item_count);
      return;
    default:
      snprintf(out_text, capacity_bytes, "an argument of unknown kind %u", arg->kind);
  }
}

static void append_strides(const DLTensor* tensor, char* text, size_t capacity_bytes) {
  char strides[128];
  if (!tensor->strides) return;
  ons__shape_text(tensor->strides, tensor->ndim, strides, sizeof(strides));
  size_t used = strlen(text);
  snprintf(text + used, capacity_bytes - used, " with strides %s", strides);
}

static const char* dtype_advice(const ons__parameter* parameter, const DLTensor* tensor) {
  bool is_byte = parameter->dtype.code == kDLUInt && parameter->dtype.bits == 8;
  if (tensor->dtype.code == kDLBool && is_byte) {
    return "declare the parameter bool*, or pass the tensor viewed as uint8";
  }
  if (parameter->is_raw) {
    return "no dtype stands for this type: pass its bytes as a uint8 tensor";
  }
  if (parameter->dtype.lanes > 1 && tensor->dtype.code == parameter->dtype.code &&
      tensor->dtype.bits == parameter->dtype.bits) {
    return "the number of elements must be a multiple of the vector's";
  }
  return "convert the tensor to the declared dtype, or declare the kernel for this one";
}

static const char* device_advice(const DLTensor* tensor, const ons__device* device) {
  bool is_host = tensor->device.device_type == kDLCPU;
  if (is_host && device->device.device_type != kDLCPU) {
    return "move it to the GPU that the other arguments are on, or pin its memory";
  }
  if (device->device.device_type == kDLCPU) {
    return "the launch is on the CPU: pass CPU tensors only, or GPU tensors only";
  }
  return "all tensors of a launch must be on one device: move it there";
}

static const struct {
  ons_status status;
  const char* suffix;
  const char* advice;
} refusals[] = {[ONS__ACCEPTED] = {ONS_STATUS_INTERNAL, "", "this is a bug in onstream"},
#define REFUSAL(name, status, suffix, advice) \
  [ONS__REFUSED_##name] = {ONS_STATUS_##status, suffix, advice},
                ONS__REFUSALS(REFUSAL)
#undef REFUSAL
};

static const char* map_advice(const ons_arg* arg, const ons__bound* bound) {
  unsigned char bytes[ONS_TENSOR_MAP_BYTES];
  const char* problem =
      ons__tensor_map_encode(arg->tensor_map, arg->value.tensor, bound->device, bytes);
  return problem ? problem : "it was changed meanwhile";
}

static const char* advice_for(ons__refusal refusal, const ons_arg* arg,
                              const ons__bound* bound, size_t index) {
  switch (refusal) {
    case ONS__REFUSED_MAP:
      return map_advice(arg, bound);
    case ONS__REFUSED_COUNT:
      return bound->plan->steps[index].kind == ONS__STEP_VECTOR
                 ? "the list must be as long as the vector (a complex number has 2 parts)"
                 : "the list must be as long as the kernel declares";
    case ONS__REFUSED_DTYPE:
      return dtype_advice(&bound->signature->parameters[index], arg->value.tensor);
    case ONS__REFUSED_DEVICE:
      return device_advice(arg->value.tensor, bound->device);
    default:
      return refusals[refusal].advice;
  }
}

static bool concerns_strides(ons__refusal refusal) {
  return refusal == ONS__REFUSED_LAYOUT || refusal == ONS__REFUSED_OVERLAP ||
         refusal == ONS__REFUSED_INDEX || refusal == ONS__REFUSED_MAP;
}

/* Of a list, when one of its items is to blame, that; ", item 3 of 4" tells which. */
static const ons_arg* find_blamed(const ons__bound* bound, const ons_arg* args,
                                  size_t index, char* out_text, size_t capacity_bytes) {
  const ons_arg* arg = &args[index];
  const ons__step* step = &bound->plan->steps[index];
  bool is_list = arg->kind == ONS_ARG_LIST &&
                 (step->kind == ONS__STEP_VECTOR || step->kind == ONS__STEP_POINTERS);
  out_text[0] = '\0';
  if (!is_list || !arg->value.items) return arg;
  size_t item = ons__bind_refused_item(step, arg, bound->device);
  if (item == arg->item_count) return arg;
  snprintf(out_text, capacity_bytes, ", item %zu of %zu", item + 1, arg->item_count);
  return &arg->value.items[item];
}

/* "kernel 'axpy', argument 2 ('x'): declared const float*, got ...: advice". A struct
 * says its size. */
ons_status ons__bind_explain(const ons_kernel* kernel, const ons__bound* bound,
                             ons__refusal refusal, const ons_arg* args, size_t index,
                             ons_error* error) {
  char got[384], item[48] = "";
  bool is_counted = refusal == ONS__REFUSED_COUNT;
  const ons_arg* arg =
      is_counted ? &args[index] : find_blamed(bound, args, index, item, sizeof(item));
  describe_arg(arg, got, sizeof(got));
  if (concerns_strides(refusal)) append_strides(arg->value.tensor, got, sizeof(got));
  const ons__parameter* parameter = &bound->signature->parameters[index];
  const char* name = ons__kernel_parameter_name(kernel, index, bound->signature->count);
  char size[32] = "";
  if (parameter->kind == ONS_PARAMETER_STRUCT) {
    snprintf(size, sizeof(size), " (%u bytes)", parameter->size_bytes);
  }
  return ons__error_set(error, refusals[refusal].status,
                        "kernel '%s', argument %zu%s%s%s%s: declared %s%s, got %s%s; %s",
                        kernel->name, index + 1, name ? " ('" : "", name ? name : "",
                        name ? "')" : "", item, parameter->type, size, got,
                        refusals[refusal].suffix, advice_for(refusal, arg, bound, index));
}

ons_status ons__bind_explain_count(const ons_kernel* kernel, const ons__bound* bound,
                                   size_t arg_count, ons_error* error) {
  size_t expected = bound->plan->count;
  return ons__error_set(error, ONS_STATUS_ARGUMENT_TYPE,
                        "kernel '%s' takes %zu argument%s, got %zu: %s", kernel->name,
                        expected, expected == 1 ? "" : "s", arg_count, bound->text);
}

static void quote_name(const ons_kernel* kernel, size_t index, size_t count,
                       char* out_text, size_t capacity_bytes) {
  const char* name = ons__kernel_parameter_name(kernel, index, count);
  snprintf(out_text, capacity_bytes, "%zu%s%.60s%s", index + 1, name ? " ('" : "",
           name ? name : "", name ? "')" : "");
}

ons_status ons__bind_explain_overlap(const ons_kernel* kernel, const ons__bound* bound,
                                     size_t first, size_t second, ons_error* error) {
  char names[2][96];
  size_t count = bound->plan->count;
  quote_name(kernel, first, count, names[0], sizeof(names[0]));
  quote_name(kernel, second, count, names[1], sizeof(names[1]));
  const uint8_t* is_restrict = bound->plan->is_restrict;
  return ons__error_set(
      error, ONS_STATUS_ARGUMENT_VALUE,
      "kernel '%s': arguments %s and %s share memory, but %s declared __restrict__ and "
      "the kernel writes: pass a copy of one, or declare them without __restrict__",
      kernel->name, names[0], names[1],
      is_restrict[first] && is_restrict[second] ? "both are" : "one is");
}
