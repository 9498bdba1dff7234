/* The steps of a launch on a stream that others share: launches into a graph, and the
 * question where one would go. */
#ifndef ONS_RUNTIME_LAUNCH_H_
#define ONS_RUNTIME_LAUNCH_H_

#include <stdalign.h>

#include "runtime/base/attributes.h"
#include "runtime/call.h"

/* Room for any kernel's parameters. */
typedef struct ons__large_block {
  void* parameters[ONS__PARAMETERS_MAX];
  alignas(16) unsigned char bytes[ONS__BLOCK_BYTES_MAX];
} ons__large_block;

/* Checks the call itself. |*launch| is replaced by |local| where the caller's struct is
 * of another version. */
ons_status ons__launch_accept(const ons_kernel* kernel, const ons_launch** launch,
                              const ons_arg* args, size_t arg_count, ons_launch* local,
                              ons_error* error);

/* NOT_READY. */
ONS__COLD ons_status ons__launch_not_ready(const ons_kernel* kernel, ons_error* error);

/* Checks the call itself and finds where it goes, but not its order. |local| is room for
 * the launch where the caller's struct does not serve. */
ons_status ons__launch_find(ons_kernel* kernel, const ons_launch* launch,
                            const ons_arg* args, size_t arg_count, ons_launch* local,
                            ons__call* out_call, ons_error* error);

/* Binds and checks all but the order, which is the caller's. */
ons_status ons__launch_bind(const ons__call* call, ons__large_block* out_block,
                            ons_error* error);

/* Adds the launch to launch->graph. */
ons_status ons__launch_into_graph(const ons__call* call, ons_error* error);

#endif /* ONS_RUNTIME_LAUNCH_H_ */
