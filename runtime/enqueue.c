#include "runtime/enqueue.h"

#include "runtime/base/error.h"
#include "runtime/base/steps.h"
#include "runtime/launch_events.h"
#include "runtime/order.h"
#include "runtime/retire.h"

ons_status ons__retained_check(const ons__call* call, ons_error* error) {
  const ons_launch* launch = call->launch;
  for (size_t i = 0; i < launch->retained_count; ++i) {
    if (!launch->retained || !launch->retained[i].release) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                            "kernel '%s': ons_launch.retained[%zu] has no release "
                            "function: set one, or leave the entry out",
                            call->kernel->name, i);
    }
  }
  return ONS_STATUS_OK;
}

/* What surrounds one driver call. Everything that it needs is made ready before, so that
 * little can fail after the launch. */
typedef struct enqueuing {
  ons__capture_info capture; /* of the launch stream */
  ons__others* others;       /* the other streams of the arguments */
  ons__join join;            /* event NULL: there are none */
  ons__retired* retired;     /* NULL: nothing is kept */
} enqueuing;

static bool waits_first(const ons_launch* launch) {
  return launch->events && launch->events->wait_count > 0 && ONS__DOES(EVENTS_WAIT);
}

/* Looks; touches nothing. */
static ons_status look(const ons__call* call, enqueuing* around, ons_error* error) {
  const ons__bound* bound = call->bound;
  void* stream = call->target.stream;
  around->others->count = 0;
  around->capture = (ons__capture_info){0};
  if (!bound->capture_state) return ONS_STATUS_OK;
  ons_status status = ons__stream_capture(bound->device, stream, &around->capture, error);
  if (status) {
    ons__error_prefix(error, "kernel '%s'", call->kernel->name);
    return status;
  }
  status = ons__order_check(call, &around->capture, around->others, error);
  if (status || !(call->launch->flags & ONS_LAUNCH_STREAM)) return status;
  if (around->others->count == 0 && !waits_first(call->launch)) return ONS_STATUS_OK;
  /* Before the stream is made to wait: elsewhere the launch itself refuses it. */
  status = bound->ops->stream_check(bound->device, stream, error);
  if (status) ons__error_prefix(error, "kernel '%s'", call->kernel->name);
  return status;
}

/* The caller's events come first. Waiting for one of a capture takes the launch stream
 * into that: then all looks different. */
static ons_status wait_first(const ons__call* call, enqueuing* around, ons_error* error) {
  const ons__capture_info* capture = &around->capture;
  ons_status status = ons__events_wait(call, capture->state, error);
  if (status || capture->state == ONS__CAPTURE_ACTIVE) return status;
  status = look(call, around, error);
  if (status && capture->state == ONS__CAPTURE_ACTIVE) {
    ons__error_prefix(error,
                      "waiting for the events has taken stream %p into a capture, to "
                      "which it has to be joined back; the launch is refused",
                      call->target.stream);
  }
  return status;
}

static ons_status reserve(const ons__call* call, enqueuing* around, ons_error* error) {
  const ons_launch* launch = call->launch;
  ons_status status = ONS_STATUS_OK;
  if (launch->retained_count > 0) {
    status = ons__retire_reserve(&call->entry->retire, launch->retained,
                                 launch->retained_count, &around->retired, error);
  }
  if (!status && around->others->count > 0) {
    bool captured = around->capture.state == ONS__CAPTURE_ACTIVE;
    status = ons__join_begin(call->entry, captured, &around->join, error);
  }
  return status;
}

static ons_status keep(const ons__call* call, const enqueuing* around, ons_error* error) {
  ons__retire_list* list = &call->entry->retire;
  ons_status status =
      around->capture.state == ONS__CAPTURE_ACTIVE
          ? ons__retire_to_graph(list, around->retired, around->capture.graph, error)
          : ons__retire_commit(list, around->retired, call->target.stream, error);
  if (status && error) {
    ons__error_prefix(error,
                      "kernel '%s' was launched, but what it uses is kept for ever",
                      call->kernel->name);
    error->launched = 1;
  }
  return status;
}

static ons_status run(const ons__call* call, void* const* parameters, ons_error* error) {
  const ons__bound* bound = call->bound;
  ons__launch_fn* launch = call->launch->attributes && bound->launch_with_attributes
                               ? bound->launch_with_attributes
                               : bound->launch;
  ons_status status = launch(bound->device, &bound->function, call->launch,
                             call->target.stream, parameters, bound->plan->count, error);
  if (status) ons__error_prefix(error, "kernel '%s'", call->kernel->name);
  return status;
}

/* The first failure is the one that is told; the other steps are done all the same. */
static ons_status after_launch(const ons__call* call, const enqueuing* around,
                               ons_error* error) {
  ons_status status = ONS_STATUS_OK;
  if (around->join.event && ONS__DOES(JOIN_AFTER)) {
    status = ons__order_after(call, &around->join, around->others, error);
  }
  if (around->retired) {
    ons_status kept = keep(call, around, status ? NULL : error);
    if (!status) status = kept;
  }
  if (call->launch->events && ONS__DOES(EVENTS_SIGNAL)) {
    ons_status signalled =
        ons__events_signal(call, around->capture.state, status ? NULL : error);
    if (!status) status = signalled;
  }
  return status;
}

/* All that can be said without asking the driver. */
static ons_status check(const ons__call* call, ons_error* error) {
  ons_status status = ons__retained_check(call, error);
  return status || !call->launch->events ? status : ons__events_check(call, error);
}

ons_status ons__enqueue(const ons__call* call, void* const* parameters,
                        ons_error* error) {
  const ons_launch* launch = call->launch;
  ons__retire_list* list = &call->entry->retire;
  ons__others others;
  enqueuing around = {.others = &others};
  ons_status status = check(call, error);
  if (!status) status = look(call, &around, error);
  if (!status && waits_first(launch)) status = wait_first(call, &around, error);
  if (status) return status;
  if (ons__launch_is_empty(launch)) {
    ons__retire_now(list, launch->retained, launch->retained_count);
    return after_launch(call, &around, error);
  }
  status = reserve(call, &around, error);
  if (!status && around.join.event && ONS__DOES(JOIN_BEFORE)) {
    status = ons__order_before(call, &around.join, &others, error);
  }
  if (!status) status = run(call, parameters, error);
  if (status) {
    ons__retire_cancel(list, around.retired);
  } else {
    status = after_launch(call, &around, error);
  }
  ons__join_end(&around.join);
  return status;
}
