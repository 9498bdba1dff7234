/* Grid, block and shared memory against what the device and the kernel have. */
#ifndef ONS_RUNTIME_LAUNCH_CONFIG_H_
#define ONS_RUNTIME_LAUNCH_CONFIG_H_

#include "runtime/base/attributes.h"
#include "runtime/call.h"

/* A grid of nothing fits. */
bool ons__config_fits(const ons__bound* bound, const ons_launch* launch);

/* Refuses one that does not, with the numbers. */
ONS__COLD ons_status ons__config_explain(const ons_kernel* kernel,
                                         const ons__bound* bound,
                                         const ons_launch* launch, ons_error* error);

/* Refuses what does not fit, the attributes included. */
ons_status ons__config_check(const ons__call* call, ons_error* error);

#endif /* ONS_RUNTIME_LAUNCH_CONFIG_H_ */
