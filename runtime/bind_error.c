/* The words for a refused argument. Never on the path of a launch that goes through. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/backend.h"
#include "runtime/base/error.h"
#include "runtime/bind.h"
#include "runtime/kernel.h"
#include "runtime/tensor.h"

typedef struct explanation {
  ons_status status;
  char got[384];
  const char* advice;
} explanation;

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

static void describe_arg(const ons_arg* arg, char* out_text, size_t capacity_bytes) {
  switch (arg->kind) {
    case ONS_ARG_NULL:
      snprintf(out_text, capacity_bytes, "a null pointer");
      return;
    case ONS_ARG_TENSOR:
    case ONS_ARG_PENDING:
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
      snprintf(out_text, capacity_bytes, "the float %.17g", arg->value.f);
      return;
    case ONS_ARG_BOOL:
      snprintf(out_text, capacity_bytes, "a bool");
      return;
    case ONS_ARG_BYTES:
      snprintf(out_text, capacity_bytes, "%zu bytes", arg->size_bytes);
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

/* Status and advice; adds to `got` where the bare description does not show the reason.
 */
static void explain(ons__refusal refusal, const ons_arg* arg, const ons__bound* bound,
                    size_t index, explanation* out) {
  const ons__parameter* parameter = &bound->signature->parameters[index];
  const DLTensor* tensor = arg->value.tensor; /* valid for the refusals of tensors */
  out->status = ONS_STATUS_ARGUMENT_VALUE;
  switch (refusal) {
    case ONS__REFUSED_NEEDS_TENSOR:
      out->status = ONS_STATUS_ARGUMENT_TYPE;
      out->advice = "pass a tensor (any DLPack producer)";
      return;
    case ONS__REFUSED_NEEDS_NUMBER:
      out->status = ONS_STATUS_ARGUMENT_TYPE;
      out->advice = "pass a number";
      return;
    case ONS__REFUSED_NEEDS_BYTES:
      out->status = ONS_STATUS_ARGUMENT_TYPE;
      out->advice = "pass the value's bytes, as the compiler lays the type out";
      return;
    case ONS__REFUSED_DTYPE:
      out->status = ONS_STATUS_ARGUMENT_TYPE;
      out->advice = dtype_advice(parameter, tensor);
      return;
    case ONS__REFUSED_DEVICE:
      out->advice = device_advice(tensor, bound->device);
      return;
    case ONS__REFUSED_READ_ONLY:
      strncat(out->got, ", which is read-only", sizeof(out->got) - strlen(out->got) - 1);
      out->advice = "declare the parameter const, or pass a writable copy";
      return;
    case ONS__REFUSED_GRAD:
      strncat(out->got, " that requires grad", sizeof(out->got) - strlen(out->got) - 1);
      out->advice = "autograd would not see the write: pass x.detach()";
      return;
    case ONS__REFUSED_LAYOUT:
      append_strides(tensor, out->got, sizeof(out->got));
      out->advice =
          "a raw pointer needs a dense row-major tensor: pass a contiguous copy, or "
          "declare "
          "the parameter ons::view<T, N>";
      return;
    case ONS__REFUSED_BROADCAST:
      append_strides(tensor, out->got, sizeof(out->got));
      out->advice =
          "its elements share memory: pass a contiguous copy, or declare the view const";
      return;
    case ONS__REFUSED_RANK:
      out->advice = "pass a tensor of the view's rank";
      return;
    case ONS__REFUSED_INDEX:
      append_strides(tensor, out->got, sizeof(out->got));
      out->advice =
          "its offsets do not fit 32 bits: declare the view with a 64-bit index";
      return;
    case ONS__REFUSED_ALIGNMENT:
      strncat(out->got,
              " at an address that is not a multiple of the element's alignment",
              sizeof(out->got) - strlen(out->got) - 1);
      out->advice = "pass an aligned copy";
      return;
    case ONS__REFUSED_NO_DATA:
      strncat(out->got, " without data", sizeof(out->got) - strlen(out->got) - 1);
      out->advice = "a tensor that is not empty needs memory";
      return;
    case ONS__REFUSED_MALFORMED:
      out->advice =
          "its producer handed over something malformed: a negative rank, no shape, "
          "or no bytes";
      return;
    case ONS__REFUSED_RANGE:
      out->advice = "it does not fit the declared type";
      return;
    case ONS__REFUSED_FRACTION:
      out->status = ONS_STATUS_ARGUMENT_TYPE;
      out->advice = "convert it with int(...) where that is meant";
      return;
    case ONS__REFUSED_BOOL:
      out->status = ONS_STATUS_ARGUMENT_TYPE;
      out->advice = "pass True or False (0 or 1)";
      return;
    case ONS__REFUSED_SIZE:
      out->advice = "the size must be exactly that of the declared type";
      return;
    case ONS__REFUSED_BEFORE:
      out->status = ONS_STATUS_ORDER;
      strncat(out->got, " on an unknown stream", sizeof(out->got) - strlen(out->got) - 1);
      out->advice =
          "neither its library nor the caller says which stream that is: pass an array "
          "whose library tells its stream, or that can be asked through __dlpack__";
      return;
    case ONS__REFUSED_AFTER:
      out->status = ONS_STATUS_ORDER;
      strncat(out->got, " on an unknown stream", sizeof(out->got) - strlen(out->got) - 1);
      out->advice =
          "its library does not tell on which stream it works, so nothing could keep "
          "that work behind this write: declare the parameter const if it only "
          "reads, or pass an array whose library tells its stream";
      return;
    default:
      out->status = ONS_STATUS_INTERNAL;
      out->advice = "this is a bug in onstream";
  }
}

/* "kernel 'axpy', argument 2 ('x'): declared const float*, got ...: advice". A struct
 * says its size. */
ons_status ons__bind_explain(const ons_kernel* kernel, const ons__bound* bound,
                             ons__refusal refusal, const ons_arg* args, size_t index,
                             ons_error* error) {
  explanation text = {0};
  describe_arg(&args[index], text.got, sizeof(text.got));
  explain(refusal, &args[index], bound, index, &text);
  const ons__parameter* parameter = &bound->signature->parameters[index];
  const char* name = ons__kernel_parameter_name(kernel, index, bound->signature->count);
  char size[32] = "";
  if (parameter->kind == ONS_PARAMETER_STRUCT) {
    snprintf(size, sizeof(size), " (%u bytes)", parameter->size_bytes);
  }
  return ons__error_set(error, text.status,
                        "kernel '%s', argument %zu%s%s%s: declared %s%s, got %s; %s",
                        kernel->name, index + 1, name ? " ('" : "", name ? name : "",
                        name ? "')" : "", parameter->type, size, text.got, text.advice);
}

ons_status ons__bind_explain_count(const ons_kernel* kernel, const ons__bound* bound,
                                   size_t arg_count, ons_error* error) {
  size_t expected = bound->plan->count;
  return ons__error_set(error, ONS_STATUS_ARGUMENT_TYPE,
                        "kernel '%s' takes %zu argument%s, got %zu: %s", kernel->name,
                        expected, expected == 1 ? "" : "s", arg_count, bound->text);
}
