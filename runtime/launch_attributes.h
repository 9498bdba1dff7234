/* The check of what a launch asks for beyond its configuration. */
#ifndef ONS_RUNTIME_LAUNCH_ATTRIBUTES_H_
#define ONS_RUNTIME_LAUNCH_ATTRIBUTES_H_

#include "runtime/call.h"

/* Refuses what the device cannot do, with the numbers; the configuration fits already.
 * Touches no stream. */
ons_status ons__attributes_check(const ons__call* call, ons_error* error);

#endif /* ONS_RUNTIME_LAUNCH_ATTRIBUTES_H_ */
