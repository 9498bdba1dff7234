#include "runtime/enqueue.h"

#include "runtime/base/error.h"
#include "runtime/base/steps.h"
#include "runtime/launch_events.h"
#include "runtime/retire.h"

ons_status ons__retained_check(const ons_kernel* kernel, const ons_launch* launch,
                               ons_error* error) {
  for (size_t i = 0; i < launch->retained_count; ++i) {
    if (!launch->retained || !launch->retained[i].release) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                            "kernel '%s': ons_launch.retained[%zu] has no release "
                            "function: set one, or leave the entry out",
                            kernel->name, i);
    }
  }
  return ONS_STATUS_OK;
}

/* What surrounds one driver call. Everything that it needs is made ready before, so that
 * little can fail after the launch. */
typedef struct enqueuing {
  ons__capture_info capture; /* of the launch stream */
  ons__join join;            /* event NULL: all arguments are on the launch stream */
  bool is_mixed;             /* some arguments are on other streams */
  ons__retired* retired;     /* NULL: nothing is kept */
} enqueuing;

/* Looks; touches nothing. */
static ons_status look(const ons_kernel* kernel, const ons__bound* bound,
                       const ons_launch* launch, const ons_arg* args, size_t arg_count,
                       const ons__target* target, enqueuing* around, ons_error* error) {
  ons_status status = ons__retained_check(kernel, launch, error);
  if (!status) status = ons__events_check(kernel, bound, launch->events, error);
  around->capture = (ons__capture_info){0};
  if (status || !bound->capture_state) return status;
  status = ons__stream_capture(bound->device, target->stream, &around->capture, error);
  if (status) {
    ons__error_prefix(error, "kernel '%s'", kernel->name);
    return status;
  }
  status =
      ons__order_check(kernel, bound->device, ons__order_policy(kernel, launch), target,
                       &around->capture, args, arg_count, &around->is_mixed, error);
  if (!status && around->is_mixed && (launch->flags & ONS_LAUNCH_STREAM)) {
    /* Before a stream is made to wait: elsewhere the launch itself refuses it. */
    status = bound->ops->stream_check(bound->device, target->stream, error);
    if (status) ons__error_prefix(error, "kernel '%s'", kernel->name);
  }
  return status;
}

/* The caller's events come first. Waiting for one of a capture takes the launch stream
 * into that: then all looks different. */
static ons_status wait_first(const ons_kernel* kernel, const ons__bound* bound,
                             const ons_launch* launch, const ons_arg* args,
                             size_t arg_count, const ons__target* target,
                             enqueuing* around, ons_error* error) {
  const ons__capture_info* capture = &around->capture;
  if (!launch->events || launch->events->wait_count == 0 || !ONS__DOES(EVENTS_WAIT)) {
    return ONS_STATUS_OK;
  }
  ons_status status =
      ons__events_wait(kernel, bound, launch->events, target, capture->state, error);
  if (status || capture->state == ONS__CAPTURE_ACTIVE) return status;
  status = look(kernel, bound, launch, args, arg_count, target, around, error);
  if (status && capture->state == ONS__CAPTURE_ACTIVE) {
    ons__error_prefix(error,
                      "waiting for the events has taken stream %p into a capture, to "
                      "which it has to be joined back; the launch is refused",
                      target->stream);
  }
  return status;
}

static ons_status reserve(ons__bound* bound, const ons_launch* launch, enqueuing* around,
                          ons_error* error) {
  ons_status status = ONS_STATUS_OK;
  if (launch->retained_count > 0) {
    status = ons__retire_reserve(&bound->entry->retire, launch->retained,
                                 launch->retained_count, &around->retired, error);
  }
  if (!status && around->is_mixed) {
    bool captured = around->capture.state == ONS__CAPTURE_ACTIVE;
    status = ons__join_begin(bound->entry, captured, &around->join, error);
  }
  return status;
}

static ons_status keep(const ons_kernel* kernel, ons__bound* bound,
                       const ons__target* target, const enqueuing* around,
                       ons_error* error) {
  ons__retire_list* list = &bound->entry->retire;
  ons_status status =
      around->capture.state == ONS__CAPTURE_ACTIVE
          ? ons__retire_to_graph(list, around->retired, around->capture.graph, error)
          : ons__retire_commit(list, around->retired, target->stream, error);
  if (status && error) {
    ons__error_prefix(error,
                      "kernel '%s' was launched, but what it uses is kept for ever",
                      kernel->name);
    error->launched = 1;
  }
  return status;
}

/* The first failure is the one that is told; the other steps are done all the same. */
static ons_status after_launch(const ons_kernel* kernel, ons__bound* bound,
                               const ons_launch* launch, const ons_arg* args,
                               size_t arg_count, const ons__target* target,
                               const enqueuing* around, ons_error* error) {
  ons_status status = ONS_STATUS_OK;
  if (around->join.event && ONS__DOES(JOIN_AFTER)) {
    status = ons__order_after(kernel, &around->join, target, args, arg_count, error);
  }
  if (around->retired) {
    ons_status kept = keep(kernel, bound, target, around, status ? NULL : error);
    if (!status) status = kept;
  }
  if (launch->events && ONS__DOES(EVENTS_SIGNAL)) {
    ons_status signalled =
        ons__events_signal(kernel, bound, launch->events, target, around->capture.state,
                           status ? NULL : error);
    if (!status) status = signalled;
  }
  return status;
}

ons_status ons__enqueue(const ons_kernel* kernel, ons__bound* bound,
                        const ons_launch* launch, const ons_arg* args, size_t arg_count,
                        const ons__target* target, void* const* parameters,
                        ons_error* error) {
  enqueuing around = {0};
  ons_status status =
      look(kernel, bound, launch, args, arg_count, target, &around, error);
  if (!status) {
    status = wait_first(kernel, bound, launch, args, arg_count, target, &around, error);
  }
  if (status) return status;
  if (ons__launch_is_empty(launch)) {
    ons__retained_release(launch->retained, launch->retained_count);
    return after_launch(kernel, bound, launch, args, arg_count, target, &around, error);
  }
  status = reserve(bound, launch, &around, error);
  if (!status && around.join.event && ONS__DOES(JOIN_BEFORE)) {
    status = ons__order_before(kernel, &around.join, target, args, arg_count, error);
  }
  if (!status) {
    ons__launch_fn* run = bound->launch;
    if (launch->attributes && bound->ops->launch_with_attributes) {
      run = bound->ops->launch_with_attributes;
    }
    status = run(bound->device, &bound->function, launch, target->stream, parameters,
                 bound->plan->count, error);
    if (status) ons__error_prefix(error, "kernel '%s'", kernel->name);
  }
  if (status) {
    ons__retire_cancel(&bound->entry->retire, around.retired);
  } else {
    status = after_launch(kernel, bound, launch, args, arg_count, target, &around, error);
  }
  ons__join_end(&around.join);
  return status;
}
