#include <onstream/launch.h>
#include <stdalign.h>
#include <string.h>

#include "runtime/base/attributes.h"
#include "runtime/base/error.h"
#include "runtime/base/steps.h"
#include "runtime/base/versioned.h"
#include "runtime/enqueue.h"
#include "runtime/kernel.h"
#include "runtime/launch.h"
#include "runtime/launch_attributes.h"
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

/* ---- configuration ---------------------------------------------------------------- */

static ons_status refuse_size(const ons_kernel* kernel, const char* what, int axis,
                              uint32_t got, uint32_t limit, const char* advice,
                              ons_error* error) {
  return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                        "kernel '%s': %s.%c is %u, the device's limit is %u; %s",
                        kernel->name, what, 'x' + axis, got, limit, advice);
}

static ons_status refuse_threads(const ons_kernel* kernel, const ons__bound* bound,
                                 uint32_t threads, ons_error* error) {
  uint32_t limit = bound->device->limits.threads_per_block;
  if (threads > limit) {
    return ons__error_set(
        error, ONS_STATUS_ARGUMENT_VALUE,
        "kernel '%s': the number of threads per block is %u, the device's "
        "limit is %u; use smaller blocks, and more of them",
        kernel->name, threads, limit);
  }
  return ons__error_set(
      error, ONS_STATUS_ARGUMENT_VALUE,
      "kernel '%s': the number of threads per block is %u, but this kernel "
      "with its %u registers per thread and its launch bounds runs at most "
      "%u; use smaller blocks",
      kernel->name, threads, bound->function.attributes.register_count,
      bound->limits.threads_per_block);
}

static ons_status refuse_shared(const ons_kernel* kernel, const ons__bound* bound,
                                uint32_t bytes, ons_error* error) {
  if (bound->device->limits.shared_bytes == 0) {
    return ons__error_set(
        error, ONS_STATUS_ARGUMENT_VALUE,
        "kernel '%s': %u bytes of dynamic shared memory per block asked for; "
        "the %s backend has none: ask for 0 bytes, or launch on a GPU",
        kernel->name, bytes, bound->ops->name);
  }
  return ons__error_set(
      error, ONS_STATUS_ARGUMENT_VALUE,
      "kernel '%s': %u bytes of dynamic shared memory per block asked for; "
      "beside the kernel's own %u bytes the device has %u: ask for less, with smaller "
      "tiles or blocks",
      kernel->name, bytes, bound->function.attributes.static_shared_bytes,
      bound->limits.shared_bytes);
}

static ONS__COLD ons_status explain_config(const ons_kernel* kernel,
                                           const ons__bound* bound,
                                           const ons_launch* launch, ons_error* error) {
  const ons__device_limits* limits = &bound->limits;
  for (int i = 0; i < 3; ++i) {
    if (launch->grid[i] > limits->grid[i]) {
      return refuse_size(kernel, "grid", i, launch->grid[i], limits->grid[i],
                         "launch fewer blocks and loop over the rest in the kernel",
                         error);
    }
    if (launch->block[i] == 0) {
      return ons__error_set(
          error, ONS_STATUS_ARGUMENT_VALUE,
          "kernel '%s': block.%c is 0; a block has at least one thread: "
          "for no work at all make the grid 0",
          kernel->name, 'x' + i);
    }
    if (launch->block[i] > limits->block[i]) {
      return refuse_size(kernel, "block", i, launch->block[i], limits->block[i],
                         "use smaller blocks, and more of them", error);
    }
  }
  uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
  return threads > limits->threads_per_block
             ? refuse_threads(kernel, bound, threads, error)
             : refuse_shared(kernel, bound, launch->shared_bytes, error);
}

static bool config_fits(const ons__bound* bound, const ons_launch* launch) {
  const ons__device_limits* limits = &bound->limits;
  const uint32_t* grid = launch->grid;
  const uint32_t* block = launch->block;
  if (grid[0] > limits->grid[0] || grid[1] > limits->grid[1] ||
      grid[2] > limits->grid[2]) {
    return false;
  }
  /* Each factor is bounded before they are multiplied. */
  if (block[0] - 1 >= limits->block[0] || block[1] - 1 >= limits->block[1] ||
      block[2] - 1 >= limits->block[2]) {
    return false;
  }
  return (uint64_t)block[0] * block[1] * block[2] <= limits->threads_per_block &&
         launch->shared_bytes <= limits->shared_bytes;
}

static ONS__NOINLINE bool config_is_full(const ons__bound* bound,
                                         const ons_launch* launch) {
  return !ons__launch_is_empty(launch) && config_fits(bound, launch);
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

static ONS__COLD ons_status not_ready(const ons_kernel* kernel, ons_error* error) {
  return ons__error_set(error, ONS_STATUS_NOT_READY,
                        "kernel '%s' is not prepared on this device: call "
                        "ons_kernel_prepare, or launch without ONS_LAUNCH_NO_COMPILE",
                        kernel->name);
}

/* The slow beginning of a kernel's first launch on a device. */
static ONS__NOINLINE ons_status first_use(ons_kernel* kernel, const ons_launch* launch,
                                          const ons__target* target,
                                          ons__bound** out_bound, ons_error* error) {
  if (launch->flags & ONS_LAUNCH_NO_COMPILE) return not_ready(kernel, error);
  return ons__kernel_bind(kernel, target->device, target->slot, out_bound, NULL, error);
}

/* The handles that name streams by role may stand for one that must not be touched. */
static ONS__NOINLINE ons_status check_special(const ons_kernel* kernel,
                                              const ons__bound* bound,
                                              const ons__target* target,
                                              ons_error* error) {
  ons__capture_info info = {0};
  ons_status status =
      bound->capture_state(bound->device, target->stream, &info.state, error);
  if (status) {
    ons__error_prefix(error, "kernel '%s'", kernel->name);
    return status;
  }
  bool is_mixed;
  return ons__order_check(kernel, bound->device, ONS_ORDER_JOIN, target, &info, NULL, 0,
                          &is_mixed, error);
}

static ONS__NOINLINE ons_status launch_bound(const ons_kernel* kernel, ons__bound* bound,
                                             const ons_launch* launch,
                                             const ons_arg* args, size_t arg_count,
                                             const ons__target* target, ons_error* error);

/* The caller vouches for the order: once more, as if all were on the launch stream. */
static ONS__NOINLINE ons_status launch_trusting(
    const ons_kernel* kernel, ons__bound* bound, const ons_launch* launch,
    const ons_arg* args, size_t arg_count, const ons__target* target, ons_error* error) {
  ons__trusted trusted;
  ons_launch joining = *launch;
  joining.order = ONS__ORDER_TRUSTED;
  ons__order_trust(target, args, arg_count, &trusted);
  return launch_bound(kernel, bound, &joining, trusted.args, arg_count, target, error);
}

/* More than a kernel on a stream: objects to keep, events, a graph, attributes. */
static inline bool has_company(const ons_launch* launch) {
  return (launch->retained_count | (uintptr_t)launch->graph | (uintptr_t)launch->events |
          (uintptr_t)launch->attributes) != 0;
}

/* Whatever is not plain: an argument is refused, is on another stream, or is ordered by
 * other means than its stream; the kernel has company. */
static ONS__NOINLINE ons_status
launch_closely(const ons_kernel* kernel, ons__bound* bound, const ons_launch* launch,
               const ons_arg* args, size_t arg_count, const ons__target* target,
               const ons__block* block, ons__refusal refusal, ons_error* error) {
  if (launch->graph) {
    return ons__launch_into_graph(kernel, bound, launch, args, arg_count, target, error);
  }
  if (ons__order_policy(kernel, launch) == ONS_ORDER_TRUST && bound->capture_state) {
    return launch_trusting(kernel, bound, launch, args, arg_count, target, error);
  }
  if (refusal) {
    return ons__bind_explain(kernel, bound, refusal, args, block->index, error);
  }
  if (!config_fits(bound, launch)) return explain_config(kernel, bound, launch, error);
  ons_status status = ons__attributes_check(kernel, bound, launch, error);
  if (status) return status;
  ons__retire_poll(&bound->entry->retire);
  return ons__enqueue(kernel, bound, launch, args, arg_count, target, block->parameters,
                      error);
}

/* What follows binding, in full. */
static ONS__NOINLINE ons_status
launch_carefully(const ons_kernel* kernel, ons__bound* bound, const ons_launch* launch,
                 const ons_arg* args, size_t arg_count, const ons__target* target,
                 const ons__block* block, ons__refusal refusal, ons_error* error) {
  if (refusal || block->notes || has_company(launch)) {
    return launch_closely(kernel, bound, launch, args, arg_count, target, block, refusal,
                          error);
  }
  if (!config_fits(bound, launch)) return explain_config(kernel, bound, launch, error);
  ons__retire_poll(&bound->entry->retire);
  if (ons__stream_is_special(target->stream) && bound->capture_state) {
    ons_status status = check_special(kernel, bound, target, error);
    if (status) return status;
  }
  if (ons__launch_is_empty(launch)) return ONS_STATUS_OK;
  return driver_launch(kernel, bound, launch, target->stream, block->parameters, error);
}

static ONS__NOINLINE ons_status launch_large(const ons_kernel* kernel, ons__bound* bound,
                                             const ons_launch* launch,
                                             const ons_arg* args, size_t arg_count,
                                             const ons__target* target,
                                             ons_error* error) {
  ons__large_block large;
  ons__block block = {.parameters = large.parameters, .bytes = large.bytes};
  ons__refusal refusal =
      ons__bind(bound->plan, args, bound->device, target->device, target->stream, &block);
  size_t first, second;
  if (!refusal && ons__bind_find_overlap(bound->plan, args, &first, &second)) {
    return ons__bind_explain_overlap(kernel, bound, first, second, error);
  }
  return launch_carefully(kernel, bound, launch, args, arg_count, target, &block, refusal,
                          error);
}

static ONS__NOINLINE ons_status launch_bound(const ons_kernel* kernel, ons__bound* bound,
                                             const ons_launch* launch,
                                             const ons_arg* args, size_t arg_count,
                                             const ons__target* target,
                                             ons_error* error) {
  if (bound->plan->common_count != arg_count) {
    return launch_large(kernel, bound, launch, args, arg_count, target, error);
  }
  void* parameters[ONS__COMMON_COUNT];
  alignas(16) unsigned char bytes[ONS__COMMON_BYTES];
  ons__block block = {.parameters = parameters, .bytes = bytes};
  ons__refusal refusal =
      ons__bind(bound->plan, args, bound->device, target->device, target->stream, &block);
  return launch_carefully(kernel, bound, launch, args, arg_count, target, &block, refusal,
                          error);
}

/* Any call. */
static ONS__NOINLINE ons_status launch_any(ons_kernel* kernel, const ons_launch* launch,
                                           const ons_arg* args, size_t arg_count,
                                           ons_error* error) {
  ons_launch local;
  ons__target target;
  ons__bound* bound;
  ons_status status =
      ons__launch_find(kernel, &launch, &local, args, arg_count, &target, &bound, error);
  return status ? status
                : launch_bound(kernel, bound, launch, args, arg_count, &target, error);
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
  ons__bound* bound =
      atomic_load_explicit(&kernel->bound[target.slot], memory_order_acquire);
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
    return launch_carefully(kernel, bound, launch, args, arg_count, &target, &block,
                            refusal, error);
  }
  return driver_launch(kernel, bound, launch, target.stream, parameters, error);
}

/* ---- for launches into graphs ------------------------------------------------------ */

ons_status ons__launch_find(ons_kernel* kernel, const ons_launch** launch,
                            ons_launch* local, const ons_arg* args, size_t arg_count,
                            ons__target* out_target, ons__bound** out_bound,
                            ons_error* error) {
  if (!is_valid_call(kernel, *launch, args, arg_count)) {
    return refuse_call(kernel, *launch, error);
  }
  if ((*launch)->struct_size != sizeof(**launch)) *launch = upgrade(*launch, local);
  ons_status status =
      ons__order_target(kernel, *launch, args, arg_count, out_target, error);
  if (status) return status;
  *out_bound =
      atomic_load_explicit(&kernel->bound[out_target->slot], memory_order_acquire);
  if (!*out_bound) {
    status = first_use(kernel, *launch, out_target, out_bound, error);
    if (status) return status;
  }
  if ((*launch)->flags & ONS_LAUNCH_THREADS) {
    status = ons__launch_divide(kernel, *out_bound, launch, local, error);
    if (status) return status;
  }
  return arg_count == (*out_bound)->plan->count
             ? ONS_STATUS_OK
             : ons__bind_explain_count(kernel, *out_bound, arg_count, error);
}

ons_status ons__launch_bind(const ons_kernel* kernel, ons__bound* bound,
                            const ons_launch* launch, const ons_arg* args,
                            size_t arg_count, const ons__target* target,
                            ons__large_block* out_block, ons_error* error) {
  ons__trusted trusted;
  ons__block block = {.parameters = out_block->parameters, .bytes = out_block->bytes};
  ons__order_trust(target, args, arg_count, &trusted);
  ons__refusal refusal = ons__bind(bound->plan, trusted.args, bound->device,
                                   target->device, target->stream, &block);
  if (refusal) {
    return ons__bind_explain(kernel, bound, refusal, args, block.index, error);
  }
  size_t first, second;
  if (ons__bind_find_overlap(bound->plan, args, &first, &second)) {
    return ons__bind_explain_overlap(kernel, bound, first, second, error);
  }
  return config_fits(bound, launch) ? ons__attributes_check(kernel, bound, launch, error)
                                    : explain_config(kernel, bound, launch, error);
}

/* What the launch would refuse whatever pending arguments turn out to be. Before the
 * first compile nothing is known of the parameters. */
static ons_status resolve_arguments(const ons_kernel* kernel, const ons_launch* launch,
                                    const ons__target* target, const ons_arg* args,
                                    size_t arg_count, ons_error* error) {
  ons__bound* bound =
      atomic_load_explicit(&kernel->bound[target->slot], memory_order_acquire);
  if (!bound || !ONS__DOES(LOOK_FIRST)) return ONS_STATUS_OK;
  if (arg_count != bound->plan->count) {
    return ons__bind_explain_count(kernel, bound, arg_count, error);
  }
  size_t index = 0;
  ons__refusal refusal = ons__bind_try(bound->plan, args, bound->device, &index);
  if (refusal) return ons__bind_explain(kernel, bound, refusal, args, index, error);
  ons_launch local;
  if (launch->flags & ONS_LAUNCH_THREADS) {
    ons_status status = ons__launch_divide(kernel, bound, &launch, &local, error);
    if (status) return status;
  }
  bool fits = ons__launch_is_empty(launch) || config_fits(bound, launch);
  return fits ? ons__attributes_check(kernel, bound, launch, error)
              : explain_config(kernel, bound, launch, error);
}

static ons_status resolve_capture(const ons_kernel* kernel, ons__device* device,
                                  const ons_launch* launch, const ons__target* target,
                                  const ons_arg* args, size_t arg_count,
                                  ons__capture_info* out_info, ons_error* error) {
  *out_info = (ons__capture_info){0};
  if (!device->backend->ops->capture_state || launch->graph) return ONS_STATUS_OK;
  bool is_mixed;
  ons_status status = ons__stream_capture(device, target->stream, out_info, error);
  return status || !ONS__DOES(LOOK_FIRST)
             ? status
             : ons__order_check(kernel, device, ons__order_policy(kernel, launch), target,
                                out_info, args, arg_count, &is_mixed, error);
}

ons_status ons_launch_resolve(ons_kernel* kernel, const ons_launch* launch,
                              const ons_arg* args, size_t arg_count,
                              ons_launch_plan* out_plan, ons_error* error) {
  if (!is_valid_call(kernel, launch, args, arg_count)) {
    return refuse_call(kernel, launch, error);
  }
  if (!out_plan || out_plan->struct_size < sizeof(out_plan->struct_size)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "out_plan is NULL or its struct_size is not set");
  }
  ons_launch local;
  if (launch->struct_size != sizeof(*launch)) launch = upgrade(launch, &local);
  ons__target target;
  ons_status status = ons__order_target(kernel, launch, args, arg_count, &target, error);
  if (status) return status;
  ons__device_entry* entry = NULL;
  status = ons__runtime_device(kernel->module->runtime, target.device, &entry, error);
  if (status) return status;
  ons__trusted trusted;
  bool trusts = launch->graph || ons__order_policy(kernel, launch) == ONS_ORDER_TRUST;
  if (trusts && arg_count <= ONS__PARAMETERS_MAX) {
    ons__order_trust(&target, args, arg_count, &trusted);
    args = trusted.args;
  }
  ons__capture_info info;
  status = resolve_arguments(kernel, launch, &target, args, arg_count, error);
  if (!status) {
    status = resolve_capture(kernel, entry->device, launch, &target, args, arg_count,
                             &info, error);
  }
  if (status) return status;
  const ons_launch_plan plan = {
      .struct_size = out_plan->struct_size,
      .capture_state = info.state == ONS__CAPTURE_ACTIVE,
      .device = target.device,
      .stream = launch->graph ? NULL : target.stream,
      .order = ons__order_policy(kernel, launch),
  };
  ons__versioned_out(out_plan, plan.struct_size, &plan, sizeof(plan));
  bool is_ready = !(launch->flags & ONS_LAUNCH_NO_COMPILE) ||
                  atomic_load_explicit(&kernel->bound[target.slot], memory_order_acquire);
  return is_ready ? ONS_STATUS_OK : not_ready(kernel, error);
}
