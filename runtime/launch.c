#include <onstream/launch.h>
#include <stdalign.h>
#include <string.h>

#include "runtime/base/attributes.h"
#include "runtime/base/error.h"
#include "runtime/base/versioned.h"
#include "runtime/kernel.h"
#include "runtime/module.h"
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

static inline bool is_valid_call(const ons_kernel* kernel, const ons_launch* launch,
                                 const ons_arg* args, size_t arg_count) {
  enum { KNOWN = ONS_LAUNCH_STREAM | ONS_LAUNCH_DEVICE | ONS_LAUNCH_NO_COMPILE };
  return kernel && launch && (args || arg_count == 0) &&
         launch->struct_size >= offsetof(ons_launch, stream) &&
         ((launch->flags & ~(uint32_t)KNOWN) | launch->reserved) == 0;
}

static ONS__COLD ons_status refuse_call(const ons_kernel* kernel,
                                        const ons_launch* launch, ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_INVALID_ARGUMENT, "%s",
      !kernel   ? "kernel is NULL"
      : !launch ? "launch is NULL"
      : launch->struct_size < offsetof(ons_launch, stream)
          ? "launch is not initialised with ONS_LAUNCH_INIT"
      : (launch->flags | launch->reserved)
          ? "launch has flags that this version does not know, or args is NULL"
          : "args is NULL although arg_count is not 0");
}

static ons_status check_retained(const ons_launch* launch, ons_error* error) {
  for (size_t i = 0; i < launch->retained_count; ++i) {
    if (!launch->retained || !launch->retained[i].release) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                            "ons_launch.retained[%zu] has no release function", i);
    }
  }
  return ONS_STATUS_OK;
}

/* ---- configuration ---------------------------------------------------------------- */

static ons_status refuse_size(const ons_kernel* kernel, const char* what, int axis,
                              uint32_t got, uint32_t limit, ons_error* error) {
  return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                        "kernel '%s': %s.%c is %u, the device's limit is %u",
                        kernel->name, what, 'x' + axis, got, limit);
}

static ons_status refuse_threads(const ons_kernel* kernel, const ons__bound* bound,
                                 uint32_t threads, ons_error* error) {
  uint32_t limit = bound->device->limits.threads_per_block;
  if (threads > limit) {
    return ons__error_set(
        error, ONS_STATUS_ARGUMENT_VALUE,
        "kernel '%s': the number of threads per block is %u, the device's "
        "limit is %u",
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
        "the %s backend has none",
        kernel->name, bytes, bound->ops->name);
  }
  return ons__error_set(
      error, ONS_STATUS_ARGUMENT_VALUE,
      "kernel '%s': %u bytes of dynamic shared memory per block asked for; "
      "beside the kernel's own %u bytes the device has %u",
      kernel->name, bytes, bound->function.attributes.static_shared_bytes,
      bound->limits.shared_bytes);
}

static ONS__COLD ons_status explain_config(const ons_kernel* kernel,
                                           const ons__bound* bound,
                                           const ons_launch* launch, ons_error* error) {
  const ons__device_limits* limits = &bound->limits;
  for (int i = 0; i < 3; ++i) {
    if (launch->grid[i] > limits->grid[i]) {
      return refuse_size(kernel, "grid", i, launch->grid[i], limits->grid[i], error);
    }
    if (launch->block[i] == 0) {
      return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                            "kernel '%s': block.%c is 0; a block has at least one thread",
                            kernel->name, 'x' + i);
    }
    if (launch->block[i] > limits->block[i]) {
      return refuse_size(kernel, "block", i, launch->block[i], limits->block[i], error);
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

/* ---- what lives on after the launch ----------------------------------------------- */

/* Whatever has to be kept alive, made ready before the launch so that little can fail
 * after it. */
typedef struct keeping {
  ons__capture_info capture;
  ons__retired* retired;
} keeping;

static ons_status keep_prepare(ons__bound* bound, const ons_launch* launch,
                               const ons__target* target, ons__capture_state state,
                               keeping* out_keeping, ons_error* error) {
  *out_keeping = (keeping){0};
  if (state == ONS__CAPTURE_ACTIVE) {
    ons_status status = bound->ops->capture_info(bound->device, target->stream,
                                                 &out_keeping->capture, error);
    if (status) return status;
  }
  return ons__retire_reserve(&bound->entry->retire, launch->retained,
                             launch->retained_count, &out_keeping->retired, error);
}

static ons_status keep_commit(const ons_kernel* kernel, ons__bound* bound,
                              const ons__target* target, const keeping* kept,
                              ons_error* error) {
  ons__retire_list* list = &bound->entry->retire;
  ons_status status;
  if (kept->capture.state == ONS__CAPTURE_ACTIVE) {
    status = ons__retire_to_graph(list, kept->retired, kept->capture.graph, error);
  } else {
    status = ons__retire_commit(list, kept->retired, target->stream, error);
  }
  if (status && error) {
    ons__error_prefix(error,
                      "kernel '%s' was launched, but what it uses is kept for ever",
                      kernel->name);
    error->launched = 1;
  }
  return status;
}

static void release_retained(const ons_launch* launch) {
  for (size_t i = 0; i < launch->retained_count; ++i) {
    launch->retained[i].release(launch->retained[i].object);
  }
}

/* ---- launch ----------------------------------------------------------------------- */

static ons_status driver_launch(const ons_kernel* kernel, ons__bound* bound,
                                const ons_launch* launch, const ons__target* target,
                                void* const* parameters, ons_error* error) {
  ons_status status =
      bound->launch(bound->device, &bound->function, launch, target->stream, parameters,
                    bound->plan->count, error);
  if (status) ons__error_prefix(error, "kernel '%s'", kernel->name);
  return status;
}

/* A launch whose arguments must be kept alive, by the graph or until the device is past
 * it. */
static ONS__NOINLINE ons_status
launch_keeping(const ons_kernel* kernel, ons__bound* bound, const ons_launch* launch,
               const ons__target* target, ons__capture_state state,
               void* const* parameters, ons_error* error) {
  keeping kept;
  ons_status status = check_retained(launch, error);
  if (status) return status;
  if (launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0) {
    release_retained(launch);
    return ONS_STATUS_OK;
  }
  status = keep_prepare(bound, launch, target, state, &kept, error);
  if (status) return status;
  status = driver_launch(kernel, bound, launch, target, parameters, error);
  if (status) {
    ons__retire_cancel(&bound->entry->retire, kept.retired);
    return status;
  }
  return keep_commit(kernel, bound, target, &kept, error);
}

/* Order and capture, where they are not plain. A named stream with every tensor on it is:
 * a launch into its capture, if there is one, is recorded like any other. */
static ons_status look_closer(const ons_kernel* kernel, const ons__bound* bound,
                              const ons__target* target, const ons_arg* args,
                              size_t arg_count, uint32_t notes,
                              ons__capture_state* out_state, ons_error* error) {
  ons_status status = ONS_STATUS_OK;
  if (notes & ONS__NOTE_MIXED) {
    status = ons__order_check(kernel, bound->device, target, args, arg_count, error);
  }
  if (!status) {
    status = bound->capture_state(bound->device, target->stream, out_state, error);
    if (status) ons__error_prefix(error, "kernel '%s'", kernel->name);
  }
  if (!status && *out_state != ONS__CAPTURE_NONE) {
    status = ons__order_check_capture(kernel, *out_state, target, args, arg_count, error);
  }
  return status;
}

/* The slow beginning of a kernel's first launch on a device. */
static ONS__NOINLINE ons_status first_use(ons_kernel* kernel, const ons_launch* launch,
                                          const ons__target* target,
                                          ons__bound** out_bound, ons_error* error) {
  if (launch->flags & ONS_LAUNCH_NO_COMPILE) {
    return ons__error_set(error, ONS_STATUS_NOT_READY,
                          "kernel '%s' is not prepared on this device: call "
                          "ons_kernel_prepare, or launch without ONS_LAUNCH_NO_COMPILE",
                          kernel->name);
  }
  return ons__kernel_bind(kernel, target->device, target->slot, out_bound, NULL, error);
}

/* Binds, checks, enqueues. `block` has the room that the plan asks for. Inline in its two
 * callers: the one for ordinary kernels is then a single run of code. */
static inline __attribute__((always_inline)) ons_status launch_bound(
    const ons_kernel* kernel, ons__bound* bound, const ons_launch* launch,
    const ons_arg* args, size_t arg_count, const ons__target* target, ons__block block,
    ons_error* error) {
  size_t index = 0;
  uint32_t notes = 0;
  ons__refusal refusal = ons__bind(bound->plan, args, bound->device, target->device,
                                   target->stream, block, &index, &notes);
  if (refusal) return ons__bind_explain(kernel, bound, refusal, args, index, error);
  if (!config_fits(bound, launch)) return explain_config(kernel, bound, launch, error);

  ons__capture_state state = ONS__CAPTURE_NONE;
  if (bound->capture_state &&
      (notes || launch->retained_count > 0 || ons__stream_is_special(target->stream))) {
    ons_status status =
        look_closer(kernel, bound, target, args, arg_count, notes, &state, error);
    if (status) return status;
  }
  ons__retire_poll(&bound->entry->retire);
  if (launch->retained_count > 0) {
    return launch_keeping(kernel, bound, launch, target, state, block.parameters, error);
  }
  if (launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0) {
    return ONS_STATUS_OK;
  }
  return driver_launch(kernel, bound, launch, target, block.parameters, error);
}

/* For more parameters than most kernels have. */
static ONS__NOINLINE ons_status launch_large(const ons_kernel* kernel, ons__bound* bound,
                                             const ons_launch* launch,
                                             const ons_arg* args, size_t arg_count,
                                             const ons__target* target,
                                             ons_error* error) {
  void* parameters[ONS__PARAMETERS_MAX];
  alignas(16) unsigned char bytes[ONS__BLOCK_BYTES_MAX];
  ons__block block = {parameters, bytes};
  return launch_bound(kernel, bound, launch, args, arg_count, target, block, error);
}

ONS__HOT ons_status ons_kernel_launch(ons_kernel* kernel, const ons_launch* launch,
                                      const ons_arg* args, size_t arg_count,
                                      ons_error* error) {
  enum { SMALL_COUNT = 16, SMALL_BYTES = 256 };
  ons_launch local;
  if (!is_valid_call(kernel, launch, args, arg_count)) {
    return refuse_call(kernel, launch, error);
  }
  if (launch->struct_size != sizeof(*launch)) launch = upgrade(launch, &local);
  ons__target target;
  if (!ons__order_common(launch, args, arg_count, &target)) {
    ons_status status =
        ons__order_target(kernel, launch, args, arg_count, &target, error);
    if (status) return status;
  }
  ons__bound* bound =
      atomic_load_explicit(&kernel->bound[target.slot], memory_order_acquire);
  if (!bound) {
    ons_status status = first_use(kernel, launch, &target, &bound, error);
    if (status) return status;
  }
  const ons__plan* plan = bound->plan;
  if (arg_count != plan->count) {
    return ons__bind_explain_count(kernel, bound, arg_count, error);
  }
  if (arg_count > SMALL_COUNT || plan->block_bytes > SMALL_BYTES) {
    return launch_large(kernel, bound, launch, args, arg_count, &target, error);
  }
  void* parameters[SMALL_COUNT];
  alignas(16) unsigned char bytes[SMALL_BYTES];
  ons__block block = {parameters, bytes};
  return launch_bound(kernel, bound, launch, args, arg_count, &target, block, error);
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
  ons__device* device = entry->device;
  const ons__backend_ops* ops = device->backend->ops;
  ons__capture_state state = ONS__CAPTURE_NONE;
  if (ops->capture_state) {
    status = ons__order_check(kernel, device, &target, args, arg_count, error);
    if (!status) status = ops->capture_state(device, target.stream, &state, error);
    if (!status && state != ONS__CAPTURE_NONE) {
      status = ons__order_check_capture(kernel, state, &target, args, arg_count, error);
    }
    if (status) return status;
  }
  const ons_launch_plan plan = {
      .struct_size = out_plan->struct_size,
      .capture_state = state == ONS__CAPTURE_ACTIVE,
      .device = target.device,
      .stream = target.stream,
  };
  ons__versioned_out(out_plan, plan.struct_size, &plan, sizeof(plan));
  return ONS_STATUS_OK;
}
