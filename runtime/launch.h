/* The steps of a launch that launches into a graph share with those on a stream. */
#ifndef ONS_RUNTIME_LAUNCH_H_
#define ONS_RUNTIME_LAUNCH_H_

#include <stdalign.h>

#include "runtime/kernel.h"
#include "runtime/order.h"

/* Room for any kernel's parameters. */
typedef struct ons__large_block {
  void* parameters[ONS__PARAMETERS_MAX];
  alignas(16) unsigned char bytes[ONS__BLOCK_BYTES_MAX];
} ons__large_block;

/* Checks the call itself and finds where it goes. |*launch| is replaced by |local| where
 * the caller's struct is of another version. */
ons_status ons__launch_find(ons_kernel* kernel, const ons_launch** launch,
                            ons_launch* local, const ons_arg* args, size_t arg_count,
                            ons__target* out_target, ons__bound** out_bound,
                            ons_error* error);

/* Binds and checks all but the order, which is the caller's. */
ons_status ons__launch_bind(const ons_kernel* kernel, ons__bound* bound,
                            const ons_launch* launch, const ons_arg* args,
                            size_t arg_count, const ons__target* target,
                            ons__large_block* out_block, ons_error* error);

/* Adds the launch to launch->graph. */
ons_status ons__launch_into_graph(const ons_kernel* kernel, ons__bound* bound,
                                  const ons_launch* launch, const ons_arg* args,
                                  size_t arg_count, const ons__target* target,
                                  ons_error* error);

#endif /* ONS_RUNTIME_LAUNCH_H_ */
