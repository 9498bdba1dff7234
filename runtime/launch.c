#include <onstream/launch.h>
#include <stdalign.h>
#include <string.h>

#include "runtime/base/attributes.h"
#include "runtime/base/error.h"
#include "runtime/base/steps.h"
#include "runtime/base/versioned.h"
#include "runtime/enqueue.h"
#include "runtime/launch.h"
#include "runtime/launch_config.h"
#include "runtime/module.h"
#include "runtime/occupancy.h"
#include "runtime/order.h"
#include "runtime/retire.h"

/* ---- the caller's structs --------------------------------------------------------- */

/* A launch of another version of the struct: what both know of it, the rest zero. */
static ONS__NOINLINE const ons_launch* upgrade(const ons_launch* launch,
                                               ons_launch* local) {
  memset(local, 0, sizeof(*local));
  ons__versioned_in(local, sizeof(*local), launch, launch->struct_size);
  local->struct_size = sizeof(*local);
  return local;
}

enum {
  KNOWN_FLAGS =
      ONS_LAUNCH_STREAM | ONS_LAUNCH_DEVICE | ONS_LAUNCH_NO_COMPILE | ONS_LAUNCH_THREADS
};

static inline bool is_valid_call(const ons_kernel* kernel, const ons_launch* launch,
                                 const ons_arg* args, size_t arg_count) {
  return kernel && launch && (args || arg_count == 0) &&
         launch->struct_size >= offsetof(ons_launch, stream) &&
         (launch->flags & ~(uint32_t)KNOWN_FLAGS) == 0 &&
         launch->order <= ONS_ORDER_TRUST;
}

static ONS__COLD ons_status refuse_call(const ons_kernel* kernel,
                                        const ons_launch* launch, ons_error* error) {
  if (!kernel) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "kernel is NULL: pass one that ons_module_kernel gave");
  }
  const char* why = "args is NULL although arg_count is not 0: pass the arguments";
  if (!launch) {
    why = "launch is NULL: pass an ons_launch with grid and block";
  } else if (launch->struct_size < offsetof(ons_launch, stream)) {
    why = "launch has no struct_size: initialise it with ONS_LAUNCH_INIT";
  } else if (launch->flags & ~(uint32_t)KNOWN_FLAGS) {
    why = "launch->flags has bits that this version does not know: set ONS_LAUNCH_* only";
  } else if (launch->order > ONS_ORDER_TRUST) {
    why = "launch->order is no ons_order: initialise launch with ONS_LAUNCH_INIT";
  }
  return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "kernel '%s': %s",
                        kernel->name, why);
}

ons_status ons__launch_accept(const ons_kernel* kernel, const ons_launch** launch,
                              const ons_arg* args, size_t arg_count, ons_launch* local,
                              ons_error* error) {
  if (!is_valid_call(kernel, *launch, args, arg_count)) {
    return refuse_call(kernel, *launch, error);
  }
  if ((*launch)->struct_size != sizeof(**launch)) *launch = upgrade(*launch, local);
  return ONS_STATUS_OK;
}

/* ---- launch ----------------------------------------------------------------------- */

static ONS__COLD ons_status explain_launch(const ons_kernel* kernel, ons_status status,
                                           ons_error* error) {
  ons__error_prefix(error, "kernel '%s'", kernel->name);
  return status;
}

static inline ons_status driver_launch(const ons_kernel* kernel, ons__bound* bound,
                                       const ons_launch* launch, void* stream,
                                       void* const* parameters, ons_error* error) {
  ons_status status = bound->launch(bound->device, &bound->function, launch, stream,
                                    parameters, bound->plan->count, error);
  return ONS__UNLIKELY(status) ? explain_launch(kernel, status, error) : ONS_STATUS_OK;
}

ons_status ons__launch_not_ready(const ons_kernel* kernel, ons_error* error) {
  return ons__error_set(error, ONS_STATUS_NOT_READY,
                        "kernel '%s' is not prepared on this device: call "
                        "ons_kernel_prepare, or launch without ONS_LAUNCH_NO_COMPILE",
                        kernel->name);
}

/* The kernel on the device, which at its first launch there is slow. */
static ons_status find_bound(ons_kernel* kernel, const ons_launch* launch,
                             const ons__target* target, ons__bound** out_bound,
                             ons_error* error) {
  *out_bound = ons__kernel_bound(kernel, target->slot);
  if (*out_bound) return ONS_STATUS_OK;
  if (launch->flags & ONS_LAUNCH_NO_COMPILE) return ons__launch_not_ready(kernel, error);
  return ons__kernel_bind(kernel, target->device, target->slot, out_bound, NULL, error);
}

/* The handles that name streams by role may stand for one that must not be touched. */
static ONS__NOINLINE ons_status check_special(const ons__call* call, ons_error* error) {
  const ons__bound* bound = call->bound;
  ons__capture_state state;
  ons_status status =
      bound->capture_state(bound->device, call->target.stream, &state, error);
  if (status) return explain_launch(call->kernel, status, error);
  return state == ONS__CAPTURE_ELSEWHERE
             ? ons__order_refuse_legacy(call->kernel, call->target.stream, error)
             : ONS_STATUS_OK;
}

static ONS__NOINLINE ons_status launch_bound(ons__call* call, ons_error* error);

/* The caller vouches for the order: once more, as if all were on the launch stream. */
static ONS__NOINLINE ons_status launch_trusting(const ons__call* call, ons_error* error) {
  ons__trusted trusted;
  ons__order_trust(&call->target, call->args, call->arg_count, &trusted);
  ons__call joining = *call;
  joining.args = trusted.args;
  joining.order = ONS__ORDER_TRUSTED;
  return launch_bound(&joining, error);
}

static inline ons__call make_call(const ons_kernel* kernel, ons__bound* bound,
                                  const ons_launch* launch, const ons_arg* args,
                                  size_t arg_count, const ons__target* target) {
  return (ons__call){.kernel = kernel,
                     .launch = launch,
                     .args = args,
                     .arg_count = arg_count,
                     .target = *target,
                     .entry = bound->entry,
                     .bound = bound,
                     .order = launch->order};
}

/* More than a kernel on a stream: objects to keep, events, a graph, attributes. */
static inline bool has_company(const ons_launch* launch) {
  return (launch->retained_count | (uintptr_t)launch->graph | (uintptr_t)launch->events |
          (uintptr_t)launch->attributes) != 0;
}

/* Whatever is not plain: an argument is refused, is on another stream, or is ordered by
 * other means than its stream; the kernel has company. */
static ONS__NOINLINE ons_status launch_closely(ons__call* call, const ons__block* block,
                                               ons__refusal refusal, ons_error* error) {
  const ons_kernel* kernel = call->kernel;
  ons__bound* bound = call->bound;
  if (call->launch->graph) return ons__launch_into_graph(call, error);
  if (!call->order) call->order = ons__order_policy(kernel, call->launch);
  if (call->order == ONS_ORDER_TRUST && bound->capture_state) {
    return launch_trusting(call, error);
  }
  if (refusal) {
    return ons__bind_explain(kernel, bound, refusal, call->args, block->index, error);
  }
  ons_status status = ons__config_check(call, error);
  if (status) return status;
  ons__retire_poll(&call->entry->retire);
  return ons__enqueue(call, block->parameters, error);
}

/* What follows binding, in full. */
static ONS__NOINLINE ons_status launch_carefully(ons__call* call, const ons__block* block,
                                                 ons__refusal refusal, ons_error* error) {
  const ons_launch* launch = call->launch;
  ons__bound* bound = call->bound;
  if (refusal || block->notes || has_company(launch)) {
    return launch_closely(call, block, refusal, error);
  }
  if (!ons__config_fits(bound, launch)) {
    return ons__config_explain(call->kernel, bound, launch, error);
  }
  ons__retire_poll(&call->entry->retire);
  if (ons__stream_is_special(call->target.stream) && bound->capture_state) {
    ons_status status = check_special(call, error);
    if (status) return status;
  }
  if (ons__launch_is_empty(launch)) return ONS_STATUS_OK;
  return driver_launch(call->kernel, bound, launch, call->target.stream,
                       block->parameters, error);
}

static ons__refusal bind(const ons__call* call, ons__block* block) {
  return ons__bind(call->bound->plan, call->args, call->bound->device,
                   call->target.device, call->target.stream, block);
}

static ONS__NOINLINE ons_status launch_large(ons__call* call, ons_error* error) {
  ons__large_block large;
  ons__block block = {.parameters = large.parameters, .bytes = large.bytes};
  ons__refusal refusal = bind(call, &block);
  size_t first, second;
  if (!refusal &&
      ons__bind_find_overlap(call->bound->plan, call->args, &first, &second)) {
    return ons__bind_explain_overlap(call->kernel, call->bound, first, second, error);
  }
  return launch_carefully(call, &block, refusal, error);
}

static ONS__NOINLINE ons_status launch_bound(ons__call* call, ons_error* error) {
  if (call->bound->plan->common_count != call->arg_count) {
    return launch_large(call, error);
  }
  void* parameters[ONS__COMMON_COUNT];
  alignas(16) unsigned char bytes[ONS__COMMON_BYTES];
  ons__block block = {.parameters = parameters, .bytes = bytes};
  ons__refusal refusal = bind(call, &block);
  return launch_carefully(call, &block, refusal, error);
}

/* Any call. */
static ONS__NOINLINE ons_status launch_any(ons_kernel* kernel, const ons_launch* launch,
                                           const ons_arg* args, size_t arg_count,
                                           ons_error* error) {
  ons_launch local;
  ons__call call;
  ons_status status =
      ons__launch_find(kernel, launch, args, arg_count, &local, &call, error);
  return status ? status : launch_bound(&call, error);
}

/* ---- the launch that most are ------------------------------------------------------ */

/* The argument that decides where: a tensor in a GPU's memory, on a known stream, at the
 * kernel's first pointer or view. With no tensor before it and no device given, it is
 * what ons__order_target goes by. NULL: ask that. */
static inline const ons_arg* find_guide(const ons_kernel* kernel,
                                        const ons_launch* launch, const ons_arg* args,
                                        size_t arg_count) {
  if (!kernel || !launch || !args || launch->struct_size != sizeof(*launch) ||
      (launch->flags & ~(uint32_t)(ONS_LAUNCH_NO_COMPILE | ONS_LAUNCH_STREAM)) != 0 ||
      launch->order > ONS_ORDER_TRUST) {
    return NULL;
  }
  size_t index = atomic_load_explicit(&kernel->guide, memory_order_relaxed);
  if (index >= arg_count) return NULL;
  const ons_arg* guide = &args[index];
  if (guide->kind != ONS_ARG_TENSOR || !guide->value.tensor ||
      !(guide->flags & ONS_ARG_STREAM_KNOWN)) {
    return NULL;
  }
  DLDevice device = guide->value.tensor->device;
  bool has_slot =
      device.device_type == kDLCUDA && (uint32_t)device.device_id < ONS__CUDA_DEVICES_MAX;
  return has_slot ? guide : NULL;
}

static ONS__NOINLINE bool config_is_full(const ons__bound* bound,
                                         const ons_launch* launch) {
  return !ons__launch_is_empty(launch) && ons__config_fits(bound, launch);
}

/* One-dimensional, neither refused nor empty. */
static inline bool config_is_flat(const ons__bound* bound, const ons_launch* launch) {
  static const uint32_t ones[2] = {1, 1};
  const ons__device_limits* limits = &bound->limits;
  return !memcmp(&launch->grid[1], ones, sizeof(ones)) &&
         !memcmp(&launch->block[1], ones, sizeof(ones)) &&
         launch->grid[0] - 1 < limits->grid[0] &&
         launch->block[0] - 1 < limits->block[0] &&
         launch->block[0] <= limits->threads_per_block &&
         launch->shared_bytes <= limits->shared_bytes;
}

/* Apart from who calls it: an ons__call there would make its frame larger. */
static ONS__NOINLINE ons_status
launch_otherwise(const ons_kernel* kernel, ons__bound* bound, const ons_launch* launch,
                 const ons_arg* args, size_t arg_count, const ons__target* target,
                 const ons__block* block, ons__refusal refusal, ons_error* error) {
  ons__call call = make_call(kernel, bound, launch, args, arg_count, target);
  return launch_carefully(&call, block, refusal, error);
}

/* A call comes after a driver call that has emptied the caches and the branch predictors,
 * so that its cost is cache lines and taken branches: what most launches need is here, in
 * ons__bind and in the backend's launch, one run of code each. */
ONS__HOT ons_status ons_kernel_launch(ons_kernel* kernel, const ons_launch* launch,
                                      const ons_arg* args, size_t arg_count,
                                      ons_error* error) {
  const ons_arg* guide = find_guide(kernel, launch, args, arg_count);
  if (!guide) return launch_any(kernel, launch, args, arg_count, error);
  const ons__target target = {
      guide->value.tensor->device, 1 + guide->value.tensor->device.device_id,
      launch->flags & ONS_LAUNCH_STREAM ? launch->stream : guide->stream};
  ons__bound* bound = ons__kernel_bound(kernel, target.slot);
  if (!bound || bound->plan->common_count != arg_count) {
    return launch_any(kernel, launch, args, arg_count, error);
  }
  __builtin_prefetch(bound->function.driver);
  void* parameters[ONS__COMMON_COUNT];
  alignas(16) unsigned char bytes[ONS__COMMON_BYTES];
  ons__block block = {.parameters = parameters, .bytes = bytes};
  ons__refusal refusal =
      ons__bind(bound->plan, args, bound->device, target.device, target.stream, &block);
  if (refusal || block.notes || has_company(launch) ||
      ons__stream_is_special(target.stream) ||
      !(ONS__LIKELY(config_is_flat(bound, launch)) || config_is_full(bound, launch)) ||
      ons__retire_holds(&bound->entry->retire)) {
    return launch_otherwise(kernel, bound, launch, args, arg_count, &target, &block,
                            refusal, error);
  }
  return driver_launch(kernel, bound, launch, target.stream, parameters, error);
}

/* ---- for launches into graphs ------------------------------------------------------ */

ons_status ons__launch_find(ons_kernel* kernel, const ons_launch* launch,
                            const ons_arg* args, size_t arg_count, ons_launch* local,
                            ons__call* out_call, ons_error* error) {
  ons__target target;
  ons__bound* bound = NULL;
  ons_status status = ons__launch_accept(kernel, &launch, args, arg_count, local, error);
  if (!status) {
    status = ons__order_target(kernel, launch, args, arg_count, &target, error);
  }
  if (!status) status = find_bound(kernel, launch, &target, &bound, error);
  if (!status && (launch->flags & ONS_LAUNCH_THREADS)) {
    status = ons__launch_divide(kernel, bound, &launch, local, error);
  }
  if (status) return status;
  *out_call = make_call(kernel, bound, launch, args, arg_count, &target);
  return arg_count == bound->plan->count
             ? ONS_STATUS_OK
             : ons__bind_explain_count(kernel, bound, arg_count, error);
}

ons_status ons__launch_bind(const ons__call* call, ons__large_block* out_block,
                            ons_error* error) {
  ons__trusted trusted;
  ons__order_trust(&call->target, call->args, call->arg_count, &trusted);
  ons__call trusting = *call;
  trusting.args = trusted.args;
  ons__block block = {.parameters = out_block->parameters, .bytes = out_block->bytes};
  ons__refusal refusal = bind(&trusting, &block);
  if (refusal) {
    return ons__bind_explain(call->kernel, call->bound, refusal, call->args, block.index,
                             error);
  }
  size_t first, second;
  if (ons__bind_find_overlap(call->bound->plan, call->args, &first, &second)) {
    return ons__bind_explain_overlap(call->kernel, call->bound, first, second, error);
  }
  return ons__config_check(call, error);
}
