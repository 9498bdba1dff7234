#include "runtime/launch_events.h"

#include "runtime/base/error.h"

static ons_status check_list(const ons_kernel* kernel, const char* name,
                             void* const* events, size_t count, ons_error* error) {
  for (size_t i = 0; i < count; ++i) {
    if (!events || !events[i]) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                            "kernel '%s': launch->events->%s[%zu] is NULL, which is no "
                            "event: create it, or leave it out",
                            kernel->name, name, i);
    }
  }
  return ONS_STATUS_OK;
}

ons_status ons__events_check(const ons__call* call, ons_error* error) {
  enum { KNOWN = ONS_EVENTS_WAIT_EXTERNAL | ONS_EVENTS_SIGNAL_EXTERNAL };
  const ons_kernel* kernel = call->kernel;
  const ons_launch_events* events = call->launch->events;
  if (events->struct_size < sizeof(*events) || (events->flags & ~(uint32_t)KNOWN) != 0) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "kernel '%s': launch->events has no struct_size, or flags that "
                          "this version does not know: initialise it with "
                          "ONS_LAUNCH_EVENTS_INIT",
                          kernel->name);
  }
  ons_status status = check_list(kernel, "wait", events->wait, events->wait_count, error);
  if (!status) {
    status = check_list(kernel, "signal", events->signal, events->signal_count, error);
  }
  if (status || call->bound->ops->caller_event_wait) return status;
  return ons__error_set(
      error, ONS_STATUS_UNSUPPORTED,
      "kernel '%s': events are given, but no argument is in GPU memory, "
      "and a launch on the CPU is over when it returns",
      kernel->name);
}

/* The driver knows external events in captures only. */
static bool is_external(const ons_launch_events* events, uint32_t flag,
                        ons__capture_state capture) {
  return (events->flags & flag) && capture == ONS__CAPTURE_ACTIVE;
}

ons_status ons__events_wait(const ons__call* call, ons__capture_state capture,
                            ons_error* error) {
  const ons__bound* bound = call->bound;
  const ons_launch_events* events = call->launch->events;
  bool external = is_external(events, ONS_EVENTS_WAIT_EXTERNAL, capture);
  for (size_t i = 0; i < events->wait_count; ++i) {
    ons_status status = bound->ops->caller_event_wait(
        bound->device, events->wait[i], call->target.stream, external, error);
    if (status) {
      ons__error_prefix(
          error, "kernel '%s' was not launched: stream %p cannot wait for event %zu (%p)",
          call->kernel->name, call->target.stream, i, events->wait[i]);
      return status;
    }
  }
  return ONS_STATUS_OK;
}

ons_status ons__events_signal(const ons__call* call, ons__capture_state capture,
                              ons_error* error) {
  const ons__bound* bound = call->bound;
  const ons_launch_events* events = call->launch->events;
  bool external = is_external(events, ONS_EVENTS_SIGNAL_EXTERNAL, capture);
  ons_status first = ONS_STATUS_OK;
  for (size_t i = 0; i < events->signal_count; ++i) {
    ons_status status = bound->ops->caller_event_record(bound->device, events->signal[i],
                                                        call->target.stream, external,
                                                        first ? NULL : error);
    if (!status || first) continue;
    first = status;
    if (!error) continue;
    ons__error_prefix(
        error,
        "kernel '%s' was launched, but event %zu (%p) is not recorded: what "
        "waits for it is not ordered after the kernel",
        call->kernel->name, i, events->signal[i]);
    error->launched = 1;
  }
  return first;
}
