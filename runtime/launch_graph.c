/* Launches whose target is a graph of the caller's. */
#include "runtime/base/attributes.h"
#include "runtime/base/error.h"
#include "runtime/enqueue.h"
#include "runtime/launch.h"
#include "runtime/retire.h"

static ONS__COLD ons_status refuse(const ons_kernel* kernel, ons_status status,
                                   const char* why, ons_error* error) {
  return ons__error_set(error, status, "kernel '%s': %s", kernel->name, why);
}

/* What a launch into a graph and the update of a node both cannot have. */
static ons_status check_target(const ons__call* call, ons_error* error) {
  const ons_kernel* kernel = call->kernel;
  const ons_launch* launch = call->launch;
  if (launch->flags & ONS_LAUNCH_STREAM) {
    return refuse(kernel, ONS_STATUS_INVALID_ARGUMENT,
                  "a stream and a graph are given; a launch goes to one of them", error);
  }
  if (launch->events) {
    return refuse(kernel, ONS_STATUS_INVALID_ARGUMENT,
                  "events are given for a node of a graph, where dependencies order: add "
                  "event nodes to the graph",
                  error);
  }
  if (!call->bound->ops->graph_add) {
    return refuse(kernel, ONS_STATUS_UNSUPPORTED,
                  "no argument is in GPU memory, so the launch would be on the CPU, "
                  "which has no graphs",
                  error);
  }
  return ONS_STATUS_OK;
}

static ons_status check_graph(const ons_kernel* kernel, const ons_launch_graph* graph,
                              ons_error* error) {
  const char* why = NULL;
  if (graph->struct_size < sizeof(*graph) || graph->reserved) {
    why = "launch->graph is not set up: initialise it with ONS_LAUNCH_GRAPH_INIT";
  } else if (!graph->graph) {
    why = "launch->graph->graph is NULL: set the CUgraph to launch into";
  } else if (graph->dependency_count > 0 && !graph->dependencies) {
    why = "launch->graph->dependencies is NULL although dependency_count is not 0";
  }
  for (size_t i = 0; !why && i < graph->dependency_count; ++i) {
    if (!graph->dependencies[i]) {
      why = "launch->graph->dependencies has a NULL: list the nodes to run after";
    }
  }
  return why ? refuse(kernel, ONS_STATUS_INVALID_ARGUMENT, why, error) : ONS_STATUS_OK;
}

static ons_status tie_retained(const ons__call* call, ons__retired* retired,
                               ons_error* error) {
  ons_status status = ons__retire_to_graph(&call->entry->retire, retired,
                                           call->launch->graph->graph, error);
  if (status && error) {
    ons__error_prefix(
        error, "kernel '%s' was added to the graph, but what it uses is kept for ever",
        call->kernel->name);
    error->launched = 1;
  }
  return status;
}

static ons_status add(const ons__call* call, void* const* parameters, ons_error* error) {
  const ons_launch* launch = call->launch;
  const ons__bound* bound = call->bound;
  ons__retire_list* list = &call->entry->retire;
  ons__retired* retired = NULL;
  ons_status status = ons__retained_check(call, error);
  if (!status && launch->retained_count > 0) {
    status = ons__retire_reserve(list, launch->retained, launch->retained_count, &retired,
                                 error);
  }
  if (status) return status;
  status =
      bound->ops->graph_add(bound->device, &bound->function, launch, parameters, error);
  if (status) {
    ons__error_prefix(error, "kernel '%s'", call->kernel->name);
    ons__retire_cancel(list, retired);
    return status;
  }
  return retired ? tie_retained(call, retired, error) : ONS_STATUS_OK;
}

ons_status ons__launch_into_graph(const ons__call* call, ons_error* error) {
  ons__large_block block;
  ons_status status = check_target(call, error);
  if (!status) status = check_graph(call->kernel, call->launch->graph, error);
  if (!status) status = ons__launch_bind(call, &block, error);
  if (status) return status;
  ons__retire_poll(&call->entry->retire);
  return add(call, block.parameters, error);
}

static ons_status check_update(const ons__call* call, const void* exec, const void* node,
                               ons_error* error) {
  const ons_kernel* kernel = call->kernel;
  const ons_launch* launch = call->launch;
  if (!exec || !node) {
    return refuse(kernel, ONS_STATUS_INVALID_ARGUMENT,
                  "exec or node is NULL: pass the instantiated graph, and the node that "
                  "the launch into the graph gave",
                  error);
  }
  if (launch->attributes) {
    return refuse(kernel, ONS_STATUS_INVALID_ARGUMENT,
                  "attributes are given for the update of a node, which keeps those it "
                  "was made with: leave launch->attributes out",
                  error);
  }
  if (launch->graph || launch->retained_count > 0) {
    return refuse(kernel, ONS_STATUS_INVALID_ARGUMENT,
                  "the update of a node takes no graph and keeps nothing: leave "
                  "launch->graph and retained out, and keep the memory as long as exec "
                  "may run",
                  error);
  }
  if (ons__launch_is_empty(launch)) {
    return refuse(kernel, ONS_STATUS_ARGUMENT_VALUE,
                  "the grid is zero, but a kernel node runs at least one block: disable "
                  "the node (cuGraphNodeSetEnabled), or let the kernel check its range",
                  error);
  }
  return ONS_STATUS_OK;
}

ons_status ons_kernel_update_node(ons_kernel* kernel, void* exec, void* node,
                                  const ons_launch* launch, const ons_arg* args,
                                  size_t arg_count, ons_error* error) {
  ons_launch local;
  ons__call call;
  ons__large_block block;
  ons_status status =
      ons__launch_find(kernel, launch, args, arg_count, &local, &call, error);
  if (!status) status = check_target(&call, error);
  if (!status) status = check_update(&call, exec, node, error);
  if (!status) status = ons__launch_bind(&call, &block, error);
  if (status) return status;
  const ons__bound* bound = call.bound;
  status = bound->ops->graph_update(bound->device, &bound->function, call.launch, exec,
                                    node, block.parameters, error);
  if (status) ons__error_prefix(error, "kernel '%s'", kernel->name);
  return status;
}
