/* What the caller brings along: events around a launch, and graphs to launch into. */
#include "runtime/backends/cuda/cuda_backend.h"
#include "runtime/base/error.h"

/* ---- events ------------------------------------------------------------------------ */

static ONS__COLD ons_status wait_error(const ons__cuda_driver* driver, CUresult result,
                                       ons_error* error) {
  ons_status status = ons__cuda_error(driver, "cuStreamWaitEvent", result, error);
  if (result == CUDA_ERROR_STREAM_CAPTURE_ISOLATION ||
      result == CUDA_ERROR_STREAM_CAPTURE_MERGE) {
    ons__error_prefix(error,
                      "the event is not of this capture, which is broken now: record it "
                      "in the capture, or wait for it as an external one");
  }
  return status;
}

ons_status ons__cuda_caller_event_wait(ons__device* base, void* event, void* stream,
                                       bool external, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  ons__cuda_scope scope;
  CUresult result = ons__cuda_stream_enter(device, stream, &scope);
  if (!result) {
    unsigned int flags = external ? CU_EVENT_WAIT_EXTERNAL : 0;
    result = driver->cuStreamWaitEvent(stream, event, flags);
    ons__cuda_context_leave(device, &scope);
  }
  return result ? wait_error(driver, result, error) : ONS_STATUS_OK;
}

ons_status ons__cuda_caller_event_record(ons__device* base, void* event, void* stream,
                                         bool external, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  const char* call = "cuEventRecord";
  ons__cuda_scope scope;
  CUresult result = ons__cuda_stream_enter(device, stream, &scope);
  if (result) return ons__cuda_error(driver, call, result, error);
  if (external && driver->cuEventRecordWithFlags) {
    call = "cuEventRecordWithFlags";
    result = driver->cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL);
  } else {
    result = driver->cuEventRecord(event, stream);
  }
  ons__cuda_context_leave(device, &scope);
  if (!result) return ONS_STATUS_OK;
  ons_status status = ons__cuda_error(driver, call, result, error);
  if (result == CUDA_ERROR_INVALID_HANDLE) {
    ons__error_prefix(error, "the event must be of the context of stream %p", stream);
  }
  return status;
}

/* ---- graphs ------------------------------------------------------------------------ */

static CUDA_KERNEL_NODE_PARAMS describe(const ons__function* function,
                                        const ons_launch* launch,
                                        void* const* parameters) {
  return (CUDA_KERNEL_NODE_PARAMS){
      .func = function->handle, /* and with it the primary context */
      .gridDimX = launch->grid[0],
      .gridDimY = launch->grid[1],
      .gridDimZ = launch->grid[2],
      .blockDimX = launch->block[0],
      .blockDimY = launch->block[1],
      .blockDimZ = launch->block[2],
      .sharedMemBytes = launch->shared_bytes,
      /* The driver only reads the parameters; its prototype does not say so. */
      .kernelParams = (void**)parameters,
  };
}

static ons_status check_driver(const ons__cuda_driver* driver, ons_error* error) {
  if (ons__cuda_driver_lost(driver)) return ons__cuda_error_lost(error);
  if (driver->cuGraphAddKernelNode_v2 && driver->cuGraphAddEmptyNode &&
      driver->cuGraphExecKernelNodeSetParams_v2 && driver->cuGraphDestroyNode &&
      driver->cuGraphKernelNodeSetAttribute) {
    return ONS_STATUS_OK;
  }
  return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                        "launching into a graph needs a driver of CUDA 12.0 or newer");
}

ons_status ons__cuda_graph_add(ons__device* base, const ons__function* function,
                               const ons_launch* launch, void* const* parameters,
                               ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  ons_launch_graph* into = launch->graph;
  const CUgraphNode* dependencies = (const CUgraphNode*)into->dependencies;
  ons_status status = check_driver(driver, error);
  if (status) return status;
  const char* call = "cuGraphAddKernelNode";
  CUgraphNode node = NULL;
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (result) return ons__cuda_error(driver, call, result, error);
  if (launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0) {
    call = "cuGraphAddEmptyNode";
    result = driver->cuGraphAddEmptyNode(&node, into->graph, dependencies,
                                         into->dependency_count);
  } else {
    const CUDA_KERNEL_NODE_PARAMS description = describe(function, launch, parameters);
    result = driver->cuGraphAddKernelNode_v2(&node, into->graph, dependencies,
                                             into->dependency_count, &description);
    if (!result) {
      call = "cuGraphKernelNodeSetAttribute";
      result = ons__cuda_node_attributes(driver, launch->attributes, node);
      if (result) driver->cuGraphDestroyNode(node);
    }
  }
  ons__cuda_relaxed_leave(device, &scope);
  if (result) return ons__cuda_error(driver, call, result, error);
  into->out_node = node;
  return ONS_STATUS_OK;
}

ons_status ons__cuda_graph_update(ons__device* base, const ons__function* function,
                                  const ons_launch* launch, void* exec, void* node,
                                  void* const* parameters, ons_error* error) {
  const ons__cuda_device* device = (const ons__cuda_device*)base;
  const ons__cuda_driver* driver = device->driver;
  ons_status status = check_driver(driver, error);
  if (status) return status;
  const CUDA_KERNEL_NODE_PARAMS description = describe(function, launch, parameters);
  ons__cuda_scope scope;
  CUresult result = ons__cuda_relaxed_enter(device, &scope);
  if (!result) {
    result = driver->cuGraphExecKernelNodeSetParams_v2(exec, node, &description);
    ons__cuda_relaxed_leave(device, &scope);
  }
  return result ? ons__cuda_error(driver, "cuGraphExecKernelNodeSetParams", result, error)
                : ONS_STATUS_OK;
}
