/* Launches with attributes, and how many blocks run at a time. */
#include "runtime/backends/cuda/cuda_backend.h"
#include "runtime/base/error.h"

enum { ATTRIBUTES_MAX = 5 };

static size_t make_attributes(const ons_launch_attributes* given,
                              CUlaunchAttribute out_attributes[ATTRIBUTES_MAX]) {
  size_t count = 0;
  if (given->cluster[0] != 0) {
    out_attributes[count++] = (CUlaunchAttribute){
        .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        .value.clusterDim = {given->cluster[0], given->cluster[1], given->cluster[2]}};
  }
  if (given->flags & ONS_ATTRIBUTES_COOPERATIVE) {
    out_attributes[count++] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                                  .value.cooperative = 1};
  }
  if (given->flags & ONS_ATTRIBUTES_PROGRAMMATIC) {
    out_attributes[count++] =
        (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                            .value.programmaticStreamSerializationAllowed = 1};
  }
  if (given->flags & ONS_ATTRIBUTES_PRIORITY) {
    out_attributes[count++] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PRIORITY,
                                                  .value.priority = given->priority};
  }
  if (given->flags & ONS_ATTRIBUTES_CARVEOUT) {
    out_attributes[count++] =
        (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                            .value.sharedMemCarveout = given->carveout_percent};
  }
  return count;
}

static CUlaunchConfig make_config(const ons_launch* launch, void* stream,
                                  CUlaunchAttribute attributes[ATTRIBUTES_MAX]) {
  return (CUlaunchConfig){
      .gridDimX = launch->grid[0],
      .gridDimY = launch->grid[1],
      .gridDimZ = launch->grid[2],
      .blockDimX = launch->block[0],
      .blockDimY = launch->block[1],
      .blockDimZ = launch->block[2],
      .sharedMemBytes = launch->shared_bytes,
      .hStream = stream,
      .attrs = attributes,
      .numAttrs = (unsigned int)make_attributes(launch->attributes, attributes),
  };
}

ons_status ons__cuda_launch_with_attributes(ons__device* base,
                                            const ons__function* function,
                                            const ons_launch* launch, void* stream,
                                            void* const* parameters,
                                            size_t parameter_count, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  (void)parameter_count;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  CUlaunchAttribute attributes[ATTRIBUTES_MAX];
  const CUlaunchConfig config = make_config(launch, stream, attributes);
  ons__cuda_scope scope;
  CUresult result = ons__cuda_stream_enter(device, stream, &scope);
  if (!result) {
    result =
        driver->cuLaunchKernelEx(&config, function->handle, (void**)parameters, NULL);
    ons__cuda_context_leave(device, &scope);
  }
  if (ons__cuda_needs_portable(function, stream, result)) {
    ons_status status = ons__cuda_stream_check(base, stream, error);
    if (status) return status;
    result = driver->cuLaunchKernelEx(&config, function->portable_handle,
                                      (void**)parameters, NULL);
  }
  return result ? ons__cuda_error(driver, "cuLaunchKernelEx", result, error)
                : ONS_STATUS_OK;
}

CUresult ons__cuda_node_attributes(const ons__cuda_driver* driver,
                                   const ons_launch_attributes* given, CUgraphNode node) {
  if (!given) return CUDA_SUCCESS;
  CUlaunchAttribute attributes[ATTRIBUTES_MAX];
  size_t count = make_attributes(given, attributes);
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; !result && i < count; ++i) {
    result = driver->cuGraphKernelNodeSetAttribute(node, attributes[i].id,
                                                   &attributes[i].value);
  }
  return result;
}

/* ---- occupancy -------------------------------------------------------------------- */

ons_status ons__cuda_resident_blocks(ons__device* base, const ons__function* function,
                                     uint32_t block_threads, uint32_t shared_bytes,
                                     uint32_t* out_count, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  int count = 0;
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (!result) {
    result = driver->cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &count, function->handle, (int)block_threads, shared_bytes);
    ons__cuda_relaxed_leave(device, &scope);
  }
  if (result) {
    return ons__cuda_error(driver, "cuOccupancyMaxActiveBlocksPerMultiprocessor", result,
                           error);
  }
  *out_count = (uint32_t)count;
  return ONS_STATUS_OK;
}

ons_status ons__cuda_resident_clusters(ons__device* base, const ons__function* function,
                                       const ons_launch* launch, uint32_t* out_count,
                                       ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  CUlaunchAttribute attributes[ATTRIBUTES_MAX];
  const CUlaunchConfig config = make_config(launch, NULL, attributes);
  int count = 0;
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (!result) {
    result = driver->cuOccupancyMaxActiveClusters(&count, function->handle, &config);
    ons__cuda_relaxed_leave(device, &scope);
  }
  if (result == CUDA_ERROR_INVALID_CLUSTER_SIZE) {
    count = 0;
    result = CUDA_SUCCESS;
  }
  if (result) {
    return ons__cuda_error(driver, "cuOccupancyMaxActiveClusters", result, error);
  }
  *out_count = (uint32_t)count;
  return ONS_STATUS_OK;
}

ons_status ons__cuda_block_size(ons__device* base, const ons__function* function,
                                uint32_t shared_bytes, uint32_t limit,
                                uint32_t* out_block, uint32_t* out_grid,
                                ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  int block = 0;
  int grid = 0;
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (!result) {
    result = driver->cuOccupancyMaxPotentialBlockSize(&grid, &block, function->handle,
                                                      NULL, shared_bytes, (int)limit);
    ons__cuda_relaxed_leave(device, &scope);
  }
  if (result) {
    return ons__cuda_error(driver, "cuOccupancyMaxPotentialBlockSize", result, error);
  }
  *out_block = (uint32_t)block;
  *out_grid = (uint32_t)grid;
  return ONS_STATUS_OK;
}
