#include "runtime/order.h"

#include <stdio.h>

#include "runtime/base/error.h"
#include "runtime/base/steps.h"
#include "runtime/kernel.h"
#include "runtime/module.h"
#include "runtime/tensor.h"

static bool is_tensor(const ons_arg* arg) {
  return (arg->kind == ONS_ARG_TENSOR || arg->kind == ONS_ARG_PENDING ||
          arg->kind == ONS_ARG_TENSOR_MAP) &&
         arg->value.tensor;
}

static bool is_managed(const ons_arg* arg) {
  return arg->value.tensor->device.device_type == kDLCUDAManaged;
}

/* A walk over the tensors of a launch, those in lists among them. */
typedef struct walk {
  const ons_arg* args;
  size_t arg_count;
  size_t index; /* of the argument at hand, or that it is in */
  size_t item;  /* the next one of its list */
} walk;

static const ons_arg* next_argument(walk* at) {
  while (at->index < at->arg_count) {
    const ons_arg* arg = &at->args[at->index];
    if (arg->kind != ONS_ARG_LIST) {
      if (at->item++ == 0) return arg;
    } else if (arg->value.items && at->item < arg->item_count) {
      return &arg->value.items[at->item++];
    }
    at->item = 0;
    ++at->index;
  }
  return NULL;
}

static const ons_arg* next_tensor(walk* at) {
  const ons_arg* arg = next_argument(at);
  while (arg && !is_tensor(arg)) arg = next_argument(at);
  return arg;
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
  walk at = {.args = args, .arg_count = arg_count};
  const ons_arg* arg;
  while ((arg = next_tensor(&at))) {
    DLDevice device = arg->value.tensor->device;
    int type = (int)device.device_type;
    if (type == kDLCPU || type == kDLCUDAHost) continue;
    if (type != kDLCUDAManaged) return device;
    found = (DLDevice){kDLCUDA, device.device_id};
  }
  return found;
}

/* That of the first tensor which tells one; managed memory, which may be of another
 * device, only where no other does. */
static void* first_stream(const ons_arg* args, size_t arg_count) {
  void* found = NULL;
  bool is_found = false;
  walk at = {.args = args, .arg_count = arg_count};
  const ons_arg* arg;
  while ((arg = next_tensor(&at))) {
    if (!(arg->flags & ONS_ARG_STREAM_KNOWN)) continue;
    if (!is_managed(arg)) return arg->stream;
    if (!is_found) found = arg->stream;
    is_found = true;
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
  target.stream = first_stream(args, arg_count);
  *out_target = target;
  return ONS_STATUS_OK;
}

ons_order ons__order_policy(const ons_kernel* kernel, const ons_launch* launch) {
  if (launch->order) return (ons_order)launch->order;
  return (ons_order)atomic_load_explicit(&kernel->module->runtime->order,
                                         memory_order_relaxed);
}

/* ---- the streams of the arguments ---------------------------------------------------
 */

static bool is_on_host(const ons_arg* arg) {
  int type = (int)arg->value.tensor->device.device_type;
  return type == kDLCPU || type == kDLCUDAHost;
}

static bool has_stream(const ons_arg* arg) {
  return (arg->flags & ONS_ARG_STREAM_KNOWN) && !is_on_host(arg);
}

/* The next tensor on a stream that is neither the launch stream nor that of a tensor
 * before; NULL when there is none. Launches have few. */
static const ons_arg* next_foreign(const ons__target* target, walk* at) {
  const ons_arg* arg;
  while ((arg = next_tensor(at))) {
    if (!has_stream(arg) || ons__streams_match(arg->stream, target->stream)) continue;
    walk before = {.args = at->args, .arg_count = at->arg_count};
    const ons_arg* other = next_tensor(&before);
    while (other != arg &&
           !(has_stream(other) && ons__streams_match(other->stream, arg->stream))) {
      other = next_tensor(&before);
    }
    if (other == arg) return arg;
  }
  return NULL;
}

static void trust(const ons__target* target, ons_arg* arg) {
  if (!is_tensor(arg) || is_on_host(arg)) return;
  bool is_output = has_stream(arg) && (arg->flags & ONS_ARG_OUTPUT);
  if (is_output && ONS__DOES(JOIN_OUTPUT)) return;
  arg->flags |= ONS_ARG_STREAM_KNOWN;
  arg->stream = target->stream;
}

void ons__order_trust(const ons__target* target, const ons_arg* args, size_t arg_count,
                      ons__trusted* out_trusted) {
  size_t used = 0;
  for (size_t i = 0; i < arg_count; ++i) {
    ons_arg* arg = &out_trusted->args[i];
    *arg = args[i];
    trust(target, arg);
    if (arg->kind != ONS_ARG_LIST || !arg->value.items ||
        arg->item_count > ONS__POINTERS_MAX - used) {
      continue;
    }
    ons_arg* items = &out_trusted->items[used];
    used += arg->item_count;
    for (size_t j = 0; j < arg->item_count; ++j) {
      items[j] = arg->value.items[j];
      trust(target, &items[j]);
    }
    arg->value.items = items;
  }
}

/* ---- what is refused ----------------------------------------------------------------
 */

static const char* name_of(const ons_kernel* kernel, const walk* at) {
  const char* name = ons__kernel_parameter_name(kernel, at->index, at->arg_count);
  return name ? name : "unnamed";
}

static ONS__COLD ons_status refuse_elsewhere(const ons_kernel* kernel, const void* stream,
                                             ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_CAPTURE,
      "kernel '%s': the launch would use the legacy default stream %p while another "
      "stream that synchronises with it is being captured; the capture is untouched. "
      "Launch on the capturing stream, or on a non-blocking one",
      kernel->name, stream);
}

static ONS__COLD ons_status refuse_mixed(const ons_kernel* kernel,
                                         const ons__target* target, const ons_arg* arg,
                                         const walk* at, ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_ORDER,
      "kernel '%s', argument %zu ('%s') is on stream %p, but the launch is on stream %p, "
      "and its order is strict: make that stream current in the argument's library, or "
      "launch with order join, which lets the streams wait for each other",
      kernel->name, at->index + 1, name_of(kernel, at), arg->stream, target->stream);
}

static ONS__COLD ons_status refuse_capture(const ons_kernel* kernel,
                                           const ons__target* target,
                                           const ons__capture_info* info,
                                           const ons_arg* arg, const walk* at,
                                           ons_error* error) {
  bool launch_captured = info->state == ONS__CAPTURE_ACTIVE;
  return ons__error_set(
      error, ONS_STATUS_CAPTURE,
      "kernel '%s', argument %zu ('%s') is on stream %p, %s; the launch is on stream %p, "
      "%s. One cannot wait for the other, and the capture is untouched: make %p current "
      "in the argument's library, or bring both streams into one capture",
      kernel->name, at->index + 1, name_of(kernel, at), arg->stream,
      launch_captured ? "which is not part of that capture" : "which is being captured",
      target->stream, launch_captured ? "which is being captured" : "which is not",
      target->stream);
}

/* Whose stream the launch is on: "argument 3 ('out')". */
static void owner_text(const ons_kernel* kernel, const ons__target* target,
                       const ons_arg* args, size_t arg_count, char* out_text,
                       size_t capacity) {
  walk at = {.args = args, .arg_count = arg_count};
  const ons_arg* arg;
  snprintf(out_text, capacity, "the one given");
  while ((arg = next_tensor(&at))) {
    if (!has_stream(arg) || !ons__streams_match(arg->stream, target->stream)) continue;
    snprintf(out_text, capacity, "that of argument %zu ('%s')", at.index + 1,
             name_of(kernel, &at));
    return;
  }
}

static ONS__COLD ons_status refuse_unknown(const ons_kernel* kernel,
                                           const ons__target* target, const walk* at,
                                           ons_error* error) {
  char owner[96];
  owner_text(kernel, target, at->args, at->arg_count, owner, sizeof(owner));
  return ons__error_set(
      error, ONS_STATUS_CAPTURE,
      "kernel '%s', argument %zu ('%s'): the launch stream %p, %s, is being captured, "
      "and the "
      "stream of this argument is unknown, so its work cannot be part of the capture; "
      "the capture is untouched. Pass an array of a library that tells its stream, or "
      "launch outside of the capture",
      kernel->name, at->index + 1, name_of(kernel, at), target->stream, owner);
}

/* The default streams are of a device each, and managed memory may be of another. */
static bool is_elsewhere(const ons__target* target, const ons_arg* arg) {
  return has_stream(arg) && is_managed(arg) && ons__stream_is_special(arg->stream) &&
         arg->value.tensor->device.device_id != target->device.device_id;
}

static ONS__COLD ons_status refuse_device(const ons_kernel* kernel,
                                          const ons__target* target, const ons_arg* arg,
                                          const walk* at, ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_ORDER,
      "kernel '%s', argument %zu ('%s') is managed memory on default stream %p of "
      "cuda:%d, "
      "and the launch is on cuda:%d, whose default stream is another: use it on a stream "
      "that was created, or launch with order trust",
      kernel->name, at->index + 1, name_of(kernel, at), arg->stream,
      (int)arg->value.tensor->device.device_id, (int)target->device.device_id);
}

static ons_status check_foreign(const ons_kernel* kernel, ons__device* device,
                                const ons__target* target, const ons__capture_info* info,
                                const ons_arg* arg, const walk* at, ons_error* error) {
  ons__capture_info other;
  ons_status status = ons__stream_capture(device, arg->stream, &other, error);
  if (status) {
    ons__error_prefix(error, "kernel '%s', argument %zu ('%s')", kernel->name,
                      at->index + 1, name_of(kernel, at));
    return status;
  }
  if (other.state == ONS__CAPTURE_ELSEWHERE) {
    return refuse_elsewhere(kernel, arg->stream, error);
  }
  return ons__captures_match(info, &other) || !ONS__DOES(REFUSE_CAPTURE)
             ? ONS_STATUS_OK
             : refuse_capture(kernel, target, info, arg, at, error);
}

ons_status ons__order_check(const ons_kernel* kernel, ons__device* device,
                            ons_order policy, const ons__target* target,
                            const ons__capture_info* info, const ons_arg* args,
                            size_t arg_count, bool* out_mixed, ons_error* error) {
  *out_mixed = false;
  if (info->state == ONS__CAPTURE_ELSEWHERE) {
    return refuse_elsewhere(kernel, target->stream, error);
  }
  bool asks = info->state == ONS__CAPTURE_ACTIVE && ONS__DOES(REFUSE_UNKNOWN);
  walk all = {.args = args, .arg_count = arg_count};
  const ons_arg* arg;
  while ((arg = next_tensor(&all))) {
    if (asks && !is_on_host(arg) && !has_stream(arg)) {
      return refuse_unknown(kernel, target, &all, error);
    }
    if (policy < ONS_ORDER_TRUST && is_elsewhere(target, arg)) {
      return refuse_device(kernel, target, arg, &all, error);
    }
  }
  walk at = {.args = args, .arg_count = arg_count};
  while ((arg = next_foreign(target, &at))) {
    *out_mixed = true;
    if (policy == ONS_ORDER_STRICT && ONS__DOES(REFUSE_STRICT)) {
      return refuse_mixed(kernel, target, arg, &at, error);
    }
    ons_status status = check_foreign(kernel, device, target, info, arg, &at, error);
    if (status) return status;
  }
  return ONS_STATUS_OK;
}

/* ---- joins ------------------------------------------------------------------------- */

ons_status ons__order_before(const ons_kernel* kernel, const ons__join* join,
                             const ons__target* target, const ons_arg* args,
                             size_t arg_count, ons_error* error) {
  walk at = {.args = args, .arg_count = arg_count};
  const ons_arg* arg;
  while ((arg = next_foreign(target, &at))) {
    ons_status status = ons__join_signal(join, arg->stream, error);
    if (!status) status = ons__join_wait(join, target->stream, error);
    if (status) {
      ons__error_prefix(error,
                        "kernel '%s' was not launched: stream %p cannot wait for stream "
                        "%p of argument %zu ('%s')",
                        kernel->name, target->stream, arg->stream, at.index + 1,
                        name_of(kernel, &at));
      return status;
    }
  }
  return ONS_STATUS_OK;
}

ons_status ons__order_after(const ons_kernel* kernel, const ons__join* join,
                            const ons__target* target, const ons_arg* args,
                            size_t arg_count, ons_error* error) {
  ons_status status = ons__join_signal(join, target->stream, error);
  bool is_recorded = !status;
  walk at = {.args = args, .arg_count = arg_count};
  const ons_arg* arg;
  while (is_recorded && (arg = next_foreign(target, &at))) {
    ons_status waited = ons__join_wait(join, arg->stream, status ? NULL : error);
    if (!status) status = waited;
  }
  if (status && error) {
    ons__error_prefix(error,
                      "kernel '%s' was launched, but other streams of its arguments do "
                      "not wait for it: synchronise stream %p before they are used",
                      kernel->name, target->stream);
    error->launched = 1;
  }
  return status;
}
