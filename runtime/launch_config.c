#include "runtime/launch_config.h"

#include "runtime/base/error.h"
#include "runtime/launch_attributes.h"

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

ons_status ons__config_explain(const ons_kernel* kernel, const ons__bound* bound,
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

bool ons__config_fits(const ons__bound* bound, const ons_launch* launch) {
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

ons_status ons__config_check(const ons__call* call, ons_error* error) {
  return ons__config_fits(call->bound, call->launch)
             ? ons__attributes_check(call, error)
             : ons__config_explain(call->kernel, call->bound, call->launch, error);
}
