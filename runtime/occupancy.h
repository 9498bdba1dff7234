/* How many blocks run at a time, and block sizes chosen by that. */
#ifndef ONS_RUNTIME_OCCUPANCY_H_
#define ONS_RUNTIME_OCCUPANCY_H_

#include "runtime/kernel.h"

/* For a launch with ONS_LAUNCH_THREADS: |*launch| is replaced by |local|, which may be it
 * already, with a grid in blocks and a block. */
ons_status ons__launch_divide(const ons_kernel* kernel, ons__bound* bound,
                              const ons_launch** launch, ons_launch* local,
                              ons_error* error);

#endif /* ONS_RUNTIME_OCCUPANCY_H_ */
