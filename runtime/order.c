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

static bool is_on_host(const ons_arg* arg) {
  int type = (int)arg->value.tensor->device.device_type;
  return type == kDLCPU || type == kDLCUDAHost;
}

static bool has_stream(const ons_arg* arg) {
  return (arg->flags & ONS_ARG_STREAM_KNOWN) && !is_on_host(arg);
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

/* Managed memory decides only where no other does. */
static DLDevice device_of(const ons_arg* args, size_t arg_count) {
  DLDevice found = {kDLCPU, 0};
  walk at = {.args = args, .arg_count = arg_count};
  const ons_arg* arg;
  while ((arg = next_tensor(&at))) {
    if (is_on_host(arg)) continue;
    DLDevice device = arg->value.tensor->device;
    if (!is_managed(arg)) return device;
    if (found.device_type == kDLCPU) found = (DLDevice){kDLCUDA, device.device_id};
  }
  return found;
}

/* That of the first tensor which tells one; managed memory only where no other does, and
 * not that of another device. */
static void* first_stream(const ons_arg* args, size_t arg_count, DLDevice device) {
  void* found = NULL;
  bool is_found = false;
  walk at = {.args = args, .arg_count = arg_count};
  const ons_arg* arg;
  while ((arg = next_tensor(&at))) {
    if (!has_stream(arg)) continue;
    if (!is_managed(arg)) return arg->stream;
    if (is_found || arg->value.tensor->device.device_id != device.device_id) continue;
    found = arg->stream;
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
  if (!(launch->flags & ONS_LAUNCH_STREAM)) {
    target.stream = first_stream(args, arg_count, target.device);
  }
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

/* The tensor's stream, where it is neither the launch stream nor among those found
 * before. Launches have few. */
static bool is_new(const ons__others* others, const ons__target* target,
                   const ons_arg* arg) {
  if (!has_stream(arg) || ons__streams_match(arg->stream, target->stream)) return false;
  for (size_t i = 0; i < others->count; ++i) {
    if (ons__streams_match(others->streams[i], arg->stream)) return false;
  }
  return true;
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

static const char* name_of(const ons__call* call, size_t index) {
  const char* name = ons__kernel_parameter_name(call->kernel, index, call->arg_count);
  return name ? name : "unnamed";
}

ons_status ons__order_refuse_legacy(const ons_kernel* kernel, const void* stream,
                                    ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_CAPTURE,
      "kernel '%s': the launch would use the legacy default stream %p while another "
      "stream that synchronises with it is being captured; the capture is untouched. "
      "Launch on the capturing stream, or on a non-blocking one",
      kernel->name, stream);
}

static ONS__COLD ons_status refuse_mixed(const ons__call* call, const walk* at,
                                         const ons_arg* arg, ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_ORDER,
      "kernel '%s', argument %zu ('%s') is on stream %p, but the launch is on stream %p, "
      "and its order is strict: make that stream current in the argument's library, or "
      "launch with order join, which lets the streams wait for each other",
      call->kernel->name, at->index + 1, name_of(call, at->index), arg->stream,
      call->target.stream);
}

static ONS__COLD ons_status refuse_capture(const ons__call* call,
                                           const ons__capture_info* info, const walk* at,
                                           const ons_arg* arg, ons_error* error) {
  bool launch_captured = info->state == ONS__CAPTURE_ACTIVE;
  return ons__error_set(
      error, ONS_STATUS_CAPTURE,
      "kernel '%s', argument %zu ('%s') is on stream %p, %s; the launch is on stream %p, "
      "%s. One cannot wait for the other, and the capture is untouched: make %p current "
      "in the argument's library, or bring both streams into one capture",
      call->kernel->name, at->index + 1, name_of(call, at->index), arg->stream,
      launch_captured ? "which is not part of that capture" : "which is being captured",
      call->target.stream, launch_captured ? "which is being captured" : "which is not",
      call->target.stream);
}

/* The first argument on the stream; NULL where none is. */
static const ons_arg* find_on(const ons__call* call, const void* stream,
                              size_t* out_index) {
  walk at = {.args = call->args, .arg_count = call->arg_count};
  const ons_arg* arg = next_tensor(&at);
  while (arg && !(has_stream(arg) && ons__streams_match(arg->stream, stream))) {
    arg = next_tensor(&at);
  }
  *out_index = at.index;
  return arg;
}

/* Whose stream the launch is on: "that of argument 3 ('out')". */
static void owner_text(const ons__call* call, char* out_text, size_t capacity_bytes) {
  size_t index;
  if (find_on(call, call->target.stream, &index)) {
    snprintf(out_text, capacity_bytes, "that of argument %zu ('%s')", index + 1,
             name_of(call, index));
  } else {
    snprintf(out_text, capacity_bytes, "the one given");
  }
}

static ONS__COLD ons_status refuse_unknown(const ons__call* call, const walk* at,
                                           ons_error* error) {
  char owner[96];
  owner_text(call, owner, sizeof(owner));
  return ons__error_set(
      error, ONS_STATUS_CAPTURE,
      "kernel '%s', argument %zu ('%s'): the launch stream %p, %s, is being captured, "
      "and the stream of this argument is unknown, so its work cannot be part of the "
      "capture; the capture is untouched. Pass an array of a library that tells its "
      "stream, or launch outside of the capture",
      call->kernel->name, at->index + 1, name_of(call, at->index), call->target.stream,
      owner);
}

/* The default streams are of a device each, and managed memory may be of another: its
 * library would take the launch stream's number for one of its own. */
static bool is_elsewhere(const ons__target* target, const ons_arg* arg) {
  bool is_away = arg->value.tensor->device.device_id != target->device.device_id;
  if (!is_managed(arg) || !is_away || !ONS__DOES(REFUSE_MANAGED)) return false;
  if (has_stream(arg)) return ons__stream_is_special(arg->stream);
  bool is_asked = arg->kind == ONS_ARG_PENDING && !(arg->flags & ONS_ARG_OUTPUT);
  return is_asked && ons__stream_is_special(target->stream);
}

static ONS__COLD ons_status refuse_device(const ons__call* call, const walk* at,
                                          const ons_arg* arg, ons_error* error) {
  bool is_there = has_stream(arg);
  return ons__error_set(
      error, ONS_STATUS_ORDER,
      "kernel '%s', argument %zu ('%s') is managed memory %s default stream %p of "
      "cuda:%d, and the launch is on cuda:%d, whose default stream is another: use it on "
      "a stream that was created, or launch with order trust",
      call->kernel->name, at->index + 1, name_of(call, at->index),
      is_there ? "on" : "that its library would put in order on",
      is_there ? arg->stream : call->target.stream,
      (int)arg->value.tensor->device.device_id, (int)call->target.device.device_id);
}

/* Can the launch stream wait for the argument's, and the other way round? */
static ons_status check_other(const ons__call* call, const ons__capture_info* info,
                              const walk* at, const ons_arg* arg, ons_error* error) {
  if (call->order == ONS_ORDER_STRICT && ONS__DOES(REFUSE_STRICT)) {
    return refuse_mixed(call, at, arg, error);
  }
  ons__capture_info other;
  ons_status status =
      ons__stream_capture(call->entry->device, arg->stream, &other, error);
  if (status) {
    ons__error_prefix(error, "kernel '%s', argument %zu ('%s')", call->kernel->name,
                      at->index + 1, name_of(call, at->index));
    return status;
  }
  if (other.state == ONS__CAPTURE_ELSEWHERE) {
    return ons__order_refuse_legacy(call->kernel, arg->stream, error);
  }
  return ons__captures_match(info, &other) || !ONS__DOES(REFUSE_CAPTURE)
             ? ONS_STATUS_OK
             : refuse_capture(call, info, at, arg, error);
}

ons_status ons__order_check(const ons__call* call, const ons__capture_info* info,
                            ons__others* out_others, ons_error* error) {
  const ons__target* target = &call->target;
  out_others->count = 0;
  if (info->state == ONS__CAPTURE_ELSEWHERE) {
    return ons__order_refuse_legacy(call->kernel, target->stream, error);
  }
  bool asks = info->state == ONS__CAPTURE_ACTIVE && ONS__DOES(REFUSE_UNKNOWN);
  walk at = {.args = call->args, .arg_count = call->arg_count};
  const ons_arg* arg;
  while ((arg = next_tensor(&at))) {
    if (asks && !is_on_host(arg) && !has_stream(arg)) {
      return refuse_unknown(call, &at, error);
    }
    if (call->order < ONS_ORDER_TRUST && is_elsewhere(target, arg)) {
      return refuse_device(call, &at, arg, error);
    }
    if (!is_new(out_others, target, arg)) continue;
    ons_status status = check_other(call, info, &at, arg, error);
    if (status) return status;
    /* There is no room only in a call that is refused for its number of tensors. */
    if (out_others->count < ONS__POINTERS_MAX) {
      out_others->streams[out_others->count++] = arg->stream;
    }
  }
  return ONS_STATUS_OK;
}

/* ---- joins ------------------------------------------------------------------------- */

static ONS__COLD void explain_before(const ons__call* call, const void* stream,
                                     ons_error* error) {
  size_t index;
  find_on(call, stream, &index);
  ons__error_prefix(error,
                    "kernel '%s' was not launched: stream %p cannot wait for stream %p "
                    "of argument %zu ('%s')",
                    call->kernel->name, call->target.stream, stream, index + 1,
                    name_of(call, index));
}

ons_status ons__order_before(const ons__call* call, const ons__join* join,
                             const ons__others* others, ons_error* error) {
  for (size_t i = 0; i < others->count; ++i) {
    ons_status status = ons__join_signal(join, others->streams[i], error);
    if (!status) status = ons__join_wait(join, call->target.stream, error);
    if (status) {
      explain_before(call, others->streams[i], error);
      return status;
    }
  }
  return ONS_STATUS_OK;
}

static ONS__COLD void explain_after(const ons__call* call, ons_error* error) {
  if (!error) return;
  ons__error_prefix(error,
                    "kernel '%s' was launched, but other streams of its arguments do "
                    "not wait for it: synchronise stream %p before they are used",
                    call->kernel->name, call->target.stream);
  error->launched = 1;
}

ons_status ons__order_after(const ons__call* call, const ons__join* join,
                            const ons__others* others, ons_error* error) {
  ons_status status = ons__join_signal(join, call->target.stream, error);
  size_t count = status ? 0 : others->count;
  for (size_t i = 0; i < count; ++i) {
    ons_status waited = ons__join_wait(join, others->streams[i], status ? NULL : error);
    if (!status) status = waited;
  }
  if (status) explain_after(call, error);
  return status;
}
