#include "runtime/occupancy.h"

#include "runtime/base/error.h"
#include "runtime/base/versioned.h"

static ons_status check_shared(const ons_kernel* kernel, const ons__bound* bound,
                               uint32_t shared_bytes, ons_error* error) {
  if (shared_bytes <= bound->limits.shared_bytes) return ONS_STATUS_OK;
  return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                        "kernel '%s': a block has at most %u bytes of dynamic shared "
                        "memory on %s, not %u",
                        kernel->name, bound->limits.shared_bytes, bound->device->name,
                        shared_bytes);
}

static ons_status check_block(const ons_kernel* kernel, const ons__bound* bound,
                              uint32_t threads, ons_error* error) {
  if (threads - 1 < bound->limits.threads_per_block) return ONS_STATUS_OK;
  return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                        "kernel '%s': a block has 1 to %u threads on %s, not %u",
                        kernel->name, bound->limits.threads_per_block,
                        bound->device->name, threads);
}

static ons_status occupancy(const ons_kernel* kernel, const ons__bound* bound,
                            uint32_t block_threads, uint32_t shared_bytes,
                            uint32_t* out_blocks, ons_error* error) {
  if (!bound->ops->resident_blocks) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "kernel '%s': the %s backend has no multiprocessors to occupy: "
                          "ask about a GPU",
                          kernel->name, bound->ops->name);
  }
  ons_status status = check_block(kernel, bound, block_threads, error);
  if (!status) status = check_shared(kernel, bound, shared_bytes, error);
  if (status) return status;
  status = bound->ops->resident_blocks(bound->device, &bound->function, block_threads,
                                       shared_bytes, out_blocks, error);
  if (status) ons__error_prefix(error, "kernel '%s'", kernel->name);
  return status;
}

ons_status ons_kernel_occupancy(ons_kernel* kernel, DLDevice device,
                                uint32_t block_threads, uint32_t shared_bytes,
                                ons_occupancy* out_occupancy, ons_error* error) {
  if (!kernel || !out_occupancy || out_occupancy->struct_size < sizeof(uint32_t)) {
    return ons__error_set(
        error, ONS_STATUS_INVALID_ARGUMENT,
        "kernel or out_occupancy is NULL, or its struct_size is not set");
  }
  ons__bound* bound = NULL;
  uint32_t blocks = 0;
  ons_status status = ons__kernel_prepare(kernel, device, &bound, NULL, error);
  if (!status) {
    status = occupancy(kernel, bound, block_threads, shared_bytes, &blocks, error);
  }
  if (status) return status;
  const ons__device_traits* traits = &bound->device->traits;
  const ons_occupancy result = {
      .struct_size = out_occupancy->struct_size,
      .blocks_per_multiprocessor = blocks,
      .threads_per_multiprocessor = traits->threads_per_multiprocessor,
      .multiprocessor_count = traits->multiprocessor_count,
  };
  ons__versioned_out(out_occupancy, result.struct_size, &result, sizeof(result));
  return ONS_STATUS_OK;
}

static ons_status find_block_size(const ons_kernel* kernel, const ons__bound* bound,
                                  uint32_t shared_bytes, uint32_t limit,
                                  uint32_t* out_grid, uint32_t* out_block,
                                  ons_error* error) {
  ons_status status = check_shared(kernel, bound, shared_bytes, error);
  if (status) return status;
  const uint32_t most = bound->limits.threads_per_block;
  if (limit == 0 || limit > most) limit = most;
  status = bound->ops->block_size(bound->device, &bound->function, shared_bytes, limit,
                                  out_block, out_grid, error);
  if (status) ons__error_prefix(error, "kernel '%s'", kernel->name);
  return status;
}

ons_status ons_kernel_max_potential_block_size(ons_kernel* kernel, DLDevice device,
                                               uint32_t shared_bytes, uint32_t limit,
                                               uint32_t* out_grid_blocks,
                                               uint32_t* out_block_threads,
                                               ons_error* error) {
  if (!kernel || !out_grid_blocks || !out_block_threads) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "kernel, out_grid_blocks or out_block_threads is NULL");
  }
  ons__bound* bound = NULL;
  ons_status status = ons__kernel_prepare(kernel, device, &bound, NULL, error);
  return status ? status
                : find_block_size(kernel, bound, shared_bytes, limit, out_grid_blocks,
                                  out_block_threads, error);
}

/* ---- launches in threads ---------------------------------------------------------- */

/* One answer is remembered: launches of a kernel mostly ask for the same shared memory.
 */
static ons_status choose_block(const ons_kernel* kernel, ons__bound* bound,
                               uint32_t shared_bytes, uint32_t* out_block,
                               ons_error* error) {
  uint64_t known = atomic_load_explicit(&bound->block_size, memory_order_relaxed);
  *out_block = (uint32_t)known;
  if (known && known >> 32 == shared_bytes) return ONS_STATUS_OK;
  uint32_t grid = 0;
  ons_status status =
      find_block_size(kernel, bound, shared_bytes, 0, &grid, out_block, error);
  if (status) return status;
  known = (uint64_t)shared_bytes << 32 | *out_block;
  atomic_store_explicit(&bound->block_size, known, memory_order_relaxed);
  return ONS_STATUS_OK;
}

ons_status ons__launch_divide(const ons_kernel* kernel, ons__bound* bound,
                              const ons_launch** launch, ons_launch* local,
                              ons_error* error) {
  if (*launch != local) *local = **launch;
  *launch = local;
  local->flags &= ~(uint32_t)ONS_LAUNCH_THREADS;
  uint32_t* block = local->block;
  if ((block[0] | block[1] | block[2]) == 0) {
    ons_status status =
        choose_block(kernel, bound, local->shared_bytes, &block[0], error);
    if (status) return status;
    block[1] = block[2] = 1;
  }
  for (int i = 0; i < 3; ++i) {
    /* A block of 0 on one axis is left for the check of the configuration. */
    uint32_t threads = local->grid[i];
    if (block[i]) local->grid[i] = threads / block[i] + (threads % block[i] != 0);
  }
  return ONS_STATUS_OK;
}
