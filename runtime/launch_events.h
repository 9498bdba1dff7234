/* The caller's events around a launch. */
#ifndef ONS_RUNTIME_LAUNCH_EVENTS_H_
#define ONS_RUNTIME_LAUNCH_EVENTS_H_

#include "runtime/kernel.h"
#include "runtime/order.h"

/* Touches nothing. `events` may be NULL. */
ons_status ons__events_check(const ons_kernel* kernel, const ons__bound* bound,
                             const ons_launch_events* events, ons_error* error);

/* `capture` is the stream's. */
ons_status ons__events_wait(const ons_kernel* kernel, const ons__bound* bound,
                            const ons_launch_events* events, const ons__target* target,
                            ons__capture_state capture, ons_error* error);

/* All are tried; the first failure is the one that is told, as one after the launch. */
ons_status ons__events_signal(const ons_kernel* kernel, const ons__bound* bound,
                              const ons_launch_events* events, const ons__target* target,
                              ons__capture_state capture, ons_error* error);

#endif /* ONS_RUNTIME_LAUNCH_EVENTS_H_ */
