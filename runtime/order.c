#include "runtime/order.h"

#include "runtime/base/error.h"
#include "runtime/kernel.h"
#include "runtime/tensor.h"

static bool is_tensor(const ons_arg* arg) {
  return (arg->kind == ONS_ARG_TENSOR || arg->kind == ONS_ARG_PENDING) &&
         arg->value.tensor;
}

static ONS__COLD ons_status unsupported_device(const ons_kernel* kernel, DLDevice device,
                                               ons_error* error) {
  char text[64];
  ons__device_text(device, text, sizeof(text));
  return ons__error_set(
      error, ONS_STATUS_UNSUPPORTED,
      "kernel '%s': the launch would be on %s, for which there is no backend; "
      "pass tensors in CPU or CUDA memory",
      kernel->name, text);
}

/* Managed memory names no device of its own: it follows the other tensors. */
static DLDevice device_of(const ons_arg* args, size_t arg_count) {
  DLDevice found = {kDLCPU, 0};
  for (size_t i = 0; i < arg_count; ++i) {
    if (!is_tensor(&args[i])) continue;
    DLDevice device = args[i].value.tensor->device;
    int type = (int)device.device_type;
    if (type == kDLCPU || type == kDLCUDAHost) continue;
    if (type != kDLCUDAManaged) return device;
    found = (DLDevice){kDLCUDA, device.device_id};
  }
  return found;
}

ons_status ons__order_target(const ons_kernel* kernel, const ons_launch* launch,
                             const ons_arg* args, size_t arg_count,
                             ons__target* out_target, ons_error* error) {
  ons__target target = {.stream = launch->stream};
  target.device =
      launch->flags & ONS_LAUNCH_DEVICE ? launch->device : device_of(args, arg_count);
  if (target.device.device_type == kDLCUDAManaged) target.device.device_type = kDLCUDA;
  if (target.device.device_type == kDLCUDAHost) target.device = (DLDevice){kDLCPU, 0};
  target.slot = ons__device_slot(target.device);
  if (target.slot < 0) return unsupported_device(kernel, target.device, error);
  if ((launch->flags & ONS_LAUNCH_STREAM) && target.slot == 0) {
    return ons__error_set(
        error, ONS_STATUS_ARGUMENT_VALUE,
        "kernel '%s': a stream is given, but no argument is in GPU memory; the "
        "arrays decide the device, and a launch on the CPU has no stream",
        kernel->name);
  }
  if (launch->flags & ONS_LAUNCH_STREAM) {
    *out_target = target;
    return ONS_STATUS_OK;
  }
  target.stream = NULL;
  for (size_t i = 0; i < arg_count; ++i) {
    if (is_tensor(&args[i]) && (args[i].flags & ONS_ARG_STREAM_KNOWN)) {
      target.stream = args[i].stream;
      break;
    }
  }
  *out_target = target;
  return ONS_STATUS_OK;
}

static const char* name_of(const ons_kernel* kernel, size_t index, size_t count) {
  const char* name = ons__kernel_parameter_name(kernel, index, count);
  return name ? name : "unnamed";
}

ons_status ons__order_check(const ons_kernel* kernel, ons__device* device,
                            const ons__target* target, const ons_arg* args,
                            size_t arg_count, ons_error* error) {
  const ons__backend_ops* ops = device->backend->ops;
  for (size_t i = 0; i < arg_count; ++i) {
    const ons_arg* arg = &args[i];
    if (!(arg->flags & ONS_ARG_STREAM_KNOWN) || arg->stream == target->stream ||
        !is_tensor(arg)) {
      continue;
    }
    if (ops->stream_canonical(device, arg->stream) ==
        ops->stream_canonical(device, target->stream)) {
      continue;
    }
    return ons__error_set(error, ONS_STATUS_ORDER,
                          "kernel '%s', argument %zu ('%s') is on stream %p, but the "
                          "launch is on stream %p; this "
                          "version launches on one stream: make that stream current in "
                          "the argument's library, "
                          "or have its work joined there first",
                          kernel->name, i + 1, name_of(kernel, i, arg_count), arg->stream,
                          target->stream);
  }
  return ONS_STATUS_OK;
}

ons_status ons__order_check_capture(const ons_kernel* kernel, ons__capture_state state,
                                    const ons__target* target, const ons_arg* args,
                                    size_t arg_count, ons_error* error) {
  if (state == ONS__CAPTURE_ELSEWHERE) {
    return ons__error_set(
        error, ONS_STATUS_CAPTURE,
        "kernel '%s': the launch would go to the legacy default stream %p "
        "while another stream that synchronises with it is being captured; "
        "the capture is untouched. Launch on the capturing stream, or on a "
        "non-blocking one",
        kernel->name, target->stream);
  }
  for (size_t i = 0; i < arg_count; ++i) {
    const ons_arg* arg = &args[i];
    if (!is_tensor(arg) || (arg->flags & ONS_ARG_STREAM_KNOWN)) continue;
    int type = (int)arg->value.tensor->device.device_type;
    if (type == kDLCPU || type == kDLCUDAHost) continue;
    return ons__error_set(
        error, ONS_STATUS_CAPTURE,
        "kernel '%s', argument %zu ('%s'): the launch stream %p is being captured, and "
        "the "
        "stream of this argument is unknown, so its work cannot be part of the capture; "
        "the "
        "capture is untouched. Pass an array of a library that tells its stream",
        kernel->name, i + 1, name_of(kernel, i, arg_count), target->stream);
  }
  return ONS_STATUS_OK;
}
