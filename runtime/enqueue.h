/* A launch that is more than one driver call: other streams to join, a capture to look
 * at, objects to keep. Plain launches (launch.c) go straight to the driver. */
#ifndef ONS_RUNTIME_ENQUEUE_H_
#define ONS_RUNTIME_ENQUEUE_H_

#include "runtime/kernel.h"
#include "runtime/order.h"

/* Arguments are bound to `parameters` and the configuration is checked. Refuses before
 * any stream is touched; what fails after the launch says so in `error`. */
ons_status ons__enqueue(const ons_kernel* kernel, ons__bound* bound,
                        const ons_launch* launch, const ons_arg* args, size_t arg_count,
                        const ons__target* target, void* const* parameters,
                        ons_error* error);

/* INVALID_ARGUMENT for what could not be released. */
ons_status ons__retained_check(const ons_kernel* kernel, const ons_launch* launch,
                               ons_error* error);

static inline bool ons__launch_is_empty(const ons_launch* launch) {
  return launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0;
}

#endif /* ONS_RUNTIME_ENQUEUE_H_ */
