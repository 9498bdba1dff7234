/* Where a launch would go, for callers that must tell a producer. */
#include "runtime/base/error.h"
#include "runtime/base/steps.h"
#include "runtime/base/versioned.h"
#include "runtime/launch.h"
#include "runtime/launch_config.h"
#include "runtime/module.h"
#include "runtime/occupancy.h"
#include "runtime/order.h"

/* What the launch would refuse whatever pending arguments turn out to be. Before the
 * first compile nothing is known of the parameters. */
static ons_status resolve_arguments(const ons__call* call, ons_error* error) {
  const ons_kernel* kernel = call->kernel;
  ons__bound* bound = call->bound;
  if (!bound || !ONS__DOES(LOOK_FIRST)) return ONS_STATUS_OK;
  if (call->arg_count != bound->plan->count) {
    return ons__bind_explain_count(kernel, bound, call->arg_count, error);
  }
  size_t index = 0;
  ons__refusal refusal = ons__bind_try(bound->plan, call->args, bound->device, &index);
  if (refusal) {
    return ons__bind_explain(kernel, bound, refusal, call->args, index, error);
  }
  ons_launch local;
  ons__call divided = *call;
  if (call->launch->flags & ONS_LAUNCH_THREADS) {
    ons_status status = ons__launch_divide(kernel, bound, &divided.launch, &local, error);
    if (status) return status;
  }
  return ons__config_check(&divided, error);
}

/* The streams, as they would be looked at before any of them is touched. */
static ons_status resolve_streams(const ons__call* call, ons__capture_info* out_info,
                                  ons_error* error) {
  ons__device* device = call->entry->device;
  const ons__backend_ops* ops = device->backend->ops;
  void* stream = call->target.stream;
  *out_info = (ons__capture_info){0};
  if (!ops->capture_state || call->launch->graph) return ONS_STATUS_OK;
  ons_status status = ons__stream_capture(device, stream, out_info, error);
  if (status || !ONS__DOES(LOOK_FIRST)) return status;
  ons__others others;
  status = ons__order_check(call, out_info, &others, error);
  if (status || !(call->launch->flags & ONS_LAUNCH_STREAM)) return status;
  status = ops->stream_check(device, stream, error);
  if (status) ons__error_prefix(error, "kernel '%s'", call->kernel->name);
  return status;
}

static ons_status resolve(const ons__call* given, ons_launch_plan* out_plan,
                          ons_error* error) {
  ons__trusted trusted;
  ons__call call = *given;
  bool trusts = call.launch->graph || call.order == ONS_ORDER_TRUST;
  if (trusts && call.arg_count <= ONS__PARAMETERS_MAX) {
    ons__order_trust(&call.target, call.args, call.arg_count, &trusted);
    call.args = trusted.args;
  }
  ons__capture_info info;
  ons_status status = resolve_arguments(&call, error);
  if (!status) status = resolve_streams(&call, &info, error);
  if (status) return status;
  const ons_launch_plan plan = {
      .struct_size = out_plan->struct_size,
      .capture_state = info.state == ONS__CAPTURE_ACTIVE,
      .device = call.target.device,
      .stream = call.launch->graph ? NULL : call.target.stream,
      .order = call.order,
  };
  ons__versioned_out(out_plan, plan.struct_size, &plan, sizeof(plan));
  return call.bound || !(call.launch->flags & ONS_LAUNCH_NO_COMPILE)
             ? ONS_STATUS_OK
             : ons__launch_not_ready(call.kernel, error);
}

ons_status ons_launch_resolve(ons_kernel* kernel, const ons_launch* launch,
                              const ons_arg* args, size_t arg_count,
                              ons_launch_plan* out_plan, ons_error* error) {
  ons_launch local;
  ons_status status = ons__launch_accept(kernel, &launch, args, arg_count, &local, error);
  if (status) return status;
  if (!out_plan || out_plan->struct_size < sizeof(out_plan->struct_size)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "out_plan is NULL or its struct_size is not set");
  }
  ons__call call = {.kernel = kernel,
                    .launch = launch,
                    .args = args,
                    .arg_count = arg_count,
                    .order = ons__order_policy(kernel, launch)};
  status = ons__order_target(kernel, launch, args, arg_count, &call.target, error);
  if (!status) {
    status = ons__runtime_device(kernel->module->runtime, call.target.device, &call.entry,
                                 error);
  }
  if (status) return status;
  call.bound = ons__kernel_bound(kernel, call.target.slot);
  return resolve(&call, out_plan, error);
}
