/* A launch that is more than one driver call: other streams to join, a capture to look
 * at, objects to keep. Plain launches (launch.c) go straight to the driver. */
#ifndef ONS_RUNTIME_ENQUEUE_H_
#define ONS_RUNTIME_ENQUEUE_H_

#include "runtime/call.h"

/* Arguments are bound to `parameters` and the configuration is checked. Refuses before
 * any stream is touched; what fails after the launch says so in `error`. */
ons_status ons__enqueue(const ons__call* call, void* const* parameters, ons_error* error);

/* INVALID_ARGUMENT for what could not be released. */
ons_status ons__retained_check(const ons__call* call, ons_error* error);

#endif /* ONS_RUNTIME_ENQUEUE_H_ */
