/* The caller's events around a launch. */
#ifndef ONS_RUNTIME_LAUNCH_EVENTS_H_
#define ONS_RUNTIME_LAUNCH_EVENTS_H_

#include "runtime/call.h"

/* These are for calls that have events. Touches nothing. */
ons_status ons__events_check(const ons__call* call, ons_error* error);

/* `capture` is the launch stream's. */
ons_status ons__events_wait(const ons__call* call, ons__capture_state capture,
                            ons_error* error);

/* All are tried; the first failure is the one that is told, as one after the launch. */
ons_status ons__events_signal(const ons__call* call, ons__capture_state capture,
                              ons_error* error);

#endif /* ONS_RUNTIME_LAUNCH_EVENTS_H_ */
