#include "runtime/launch_attributes.h"

#include "runtime/base/error.h"

static bool has_cluster(const ons_launch_attributes* attributes) {
  return (attributes->cluster[0] | attributes->cluster[1] | attributes->cluster[2]) != 0;
}

static uint64_t volume(const uint32_t extents[3]) {
  return (uint64_t)extents[0] * extents[1] * extents[2];
}

static ons_status refuse(const ons_kernel* kernel, ons_status status, const char* why,
                         ons_error* error) {
  return ons__error_set(error, status, "kernel '%s': %s", kernel->name, why);
}

static ons_status check_struct(const ons_kernel* kernel,
                               const ons_launch_attributes* attributes,
                               ons_error* error) {
  enum {
    KNOWN = ONS_ATTRIBUTES_COOPERATIVE | ONS_ATTRIBUTES_PROGRAMMATIC |
            ONS_ATTRIBUTES_PRIORITY | ONS_ATTRIBUTES_CARVEOUT
  };
  if (attributes->struct_size < sizeof(*attributes) ||
      (attributes->flags & ~(uint32_t)KNOWN) != 0) {
    return refuse(kernel, ONS_STATUS_INVALID_ARGUMENT,
                  "launch->attributes has no struct_size, or flags that this version "
                  "does not know: initialise it with ONS_LAUNCH_ATTRIBUTES_INIT",
                  error);
  }
  if ((attributes->flags & ONS_ATTRIBUTES_CARVEOUT) &&
      attributes->carveout_percent > 100) {
    return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                          "kernel '%s': the shared-memory carve-out is %u percent; give "
                          "0 (all for the L1 cache) to 100",
                          kernel->name, attributes->carveout_percent);
  }
  return ONS_STATUS_OK;
}

static ons_status refuse_cpu_clusters(const ons_kernel* kernel, ons_error* error) {
  return refuse(kernel, ONS_STATUS_UNSUPPORTED,
                "a launch in clusters, but no argument is in GPU memory, and the CPU has "
                "none",
                error);
}

static ons_status check_priority(const ons_kernel* kernel, const ons__device* device,
                                 int32_t priority, ons_error* error) {
  const ons__device_traits* traits = &device->traits;
  if (priority >= traits->highest_priority && priority <= traits->lowest_priority) {
    return ONS_STATUS_OK;
  }
  return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                        "kernel '%s': the priority is %d; %s has %d (first) to %d (last)",
                        kernel->name, (int)priority, device->name,
                        (int)traits->highest_priority, (int)traits->lowest_priority);
}

/* The driver's own limit depends on the kernel and on the shape of the device. */
static ons_status check_cluster(const ons_kernel* kernel, const ons__bound* bound,
                                const ons_launch* launch, ons_error* error) {
  const uint32_t* cluster = launch->attributes->cluster;
  if (!bound->device->traits.has_clusters) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "kernel '%s': a launch in clusters of %u x %u x %u blocks; %s "
                          "has none: they need sm_90 or newer",
                          kernel->name, cluster[0], cluster[1], cluster[2],
                          bound->device->name);
  }
  for (int i = 0; i < 3; ++i) {
    if (cluster[i] == 0) {
      return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                            "kernel '%s': cluster.%c is 0; a cluster has at least one "
                            "block on each axis",
                            kernel->name, 'x' + i);
    }
    if (launch->grid[i] % cluster[i] != 0) {
      return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                            "kernel '%s': grid.%c is %u, which is no multiple of "
                            "cluster.%c, %u: round the grid up, or use smaller clusters",
                            kernel->name, 'x' + i, launch->grid[i], 'x' + i, cluster[i]);
    }
  }
  return ONS_STATUS_OK;
}

/* How many blocks run at a time; for clusters of a shape that cannot run at all, 0. */
static ons_status count_resident(const ons_kernel* kernel, const ons__bound* bound,
                                 const ons_launch* launch, uint64_t* out_count,
                                 ons_error* error) {
  uint32_t count = 0;
  ons_status status;
  if (has_cluster(launch->attributes)) {
    status = bound->ops->resident_clusters(bound->device, &bound->function, launch,
                                           &count, error);
    *out_count = count * volume(launch->attributes->cluster);
  } else {
    status = bound->ops->resident_blocks(bound->device, &bound->function,
                                         (uint32_t)volume(launch->block),
                                         launch->shared_bytes, &count, error);
    *out_count = (uint64_t)count * bound->device->traits.multiprocessor_count;
  }
  if (status) ons__error_prefix(error, "kernel '%s'", kernel->name);
  return status;
}

static ons_status check_resident(const ons_kernel* kernel, const ons__bound* bound,
                                 const ons_launch* launch, ons_error* error) {
  const uint32_t* cluster = launch->attributes->cluster;
  const bool is_cooperative = launch->attributes->flags & ONS_ATTRIBUTES_COOPERATIVE;
  uint64_t resident = 0;
  ons_status status = count_resident(kernel, bound, launch, &resident, error);
  if (status) return status;
  if (has_cluster(launch->attributes) && resident == 0) {
    return ons__error_set(
        error, ONS_STATUS_ARGUMENT_VALUE,
        "kernel '%s': clusters of %u x %u x %u blocks of %u threads and %u bytes of "
        "dynamic shared memory do not fit on %s: use fewer blocks in a cluster (8 are "
        "portable), or smaller ones",
        kernel->name, cluster[0], cluster[1], cluster[2], (uint32_t)volume(launch->block),
        launch->shared_bytes, bound->device->name);
  }
  const uint64_t blocks = volume(launch->grid);
  if (!is_cooperative || blocks <= resident) return ONS_STATUS_OK;
  return ons__error_set(
      error, ONS_STATUS_ARGUMENT_VALUE,
      "kernel '%s': a cooperative grid of %llu blocks of %u threads and %u bytes of "
      "dynamic shared memory; %s with its %u multiprocessors runs at most %llu of them "
      "at a time: launch so many, and loop over the rest in the kernel",
      kernel->name, (unsigned long long)blocks, (uint32_t)volume(launch->block),
      launch->shared_bytes, bound->device->name,
      bound->device->traits.multiprocessor_count, (unsigned long long)resident);
}

static ons_status check_traits(const ons_kernel* kernel, const ons__device* device,
                               const ons_launch_attributes* attributes,
                               ons_error* error) {
  const ons__device_traits* traits = &device->traits;
  const char* lacks = NULL;
  if (!traits->has_attributes) {
    lacks = "launch attributes need a driver of CUDA 11.6 or newer";
  } else if ((attributes->flags & ONS_ATTRIBUTES_COOPERATIVE) &&
             !traits->has_cooperative) {
    lacks = "the device has no cooperative launches";
  } else if ((attributes->flags & ONS_ATTRIBUTES_CARVEOUT) && !traits->has_carveout) {
    lacks = "a shared-memory carve-out of a launch needs a driver of CUDA 12.5 or newer";
  }
  if (lacks) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED, "kernel '%s' on %s: %s",
                          kernel->name, device->name, lacks);
  }
  return attributes->flags & ONS_ATTRIBUTES_PRIORITY
             ? check_priority(kernel, device, attributes->priority, error)
             : ONS_STATUS_OK;
}

ons_status ons__attributes_check(const ons__call* call, ons_error* error) {
  const ons_launch* launch = call->launch;
  const ons_launch_attributes* attributes = launch->attributes;
  if (!attributes) return ONS_STATUS_OK;
  const ons_kernel* kernel = call->kernel;
  const ons__bound* bound = call->bound;
  ons_status status = check_struct(kernel, attributes, error);
  if (status) return status;
  if (launch->graph && (attributes->flags & ONS_ATTRIBUTES_PROGRAMMATIC)) {
    return refuse(kernel, ONS_STATUS_UNSUPPORTED,
                  "programmatic dependence is given for a node of a graph, where edges "
                  "say it: capture the launch, or leave it out",
                  error);
  }
  const bool is_clustered = has_cluster(attributes);
  if (bound->ops->launch_with_attributes) {
    status = check_traits(kernel, bound->device, attributes, error);
  } else if (is_clustered) {
    return refuse_cpu_clusters(kernel, error);
  }
  if (!status && is_clustered) status = check_cluster(kernel, bound, launch, error);
  const bool counts =
      is_clustered || (attributes->flags & ONS_ATTRIBUTES_COOPERATIVE) != 0;
  if (status || !counts || volume(launch->grid) == 0) return status;
  return check_resident(kernel, bound, launch, error);
}
