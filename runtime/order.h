/* Where a launch goes, and what it is ordered with.
 *
 * This version borrows: every argument with a known stream must be on the launch stream. Joining
 * other streams belongs here. */
#ifndef ONS_RUNTIME_ORDER_H_
#define ONS_RUNTIME_ORDER_H_

#include <onstream/launch.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend.h"
#include "runtime/base/attributes.h"
#include "runtime/runtime.h"

typedef struct ons__target {
  DLDevice device;
  int slot;
  void* stream;
} ons__target;

/* 0, 1 and 2 name streams by role, on CUDA as on HIP: the legacy and the per-thread default. Using
 * them may touch others. */
static inline bool ons__stream_is_special(const void* stream) { return (uintptr_t)stream <= 2; }

/* Chooses the device (given, else that of the first tensor in GPU memory, else the CPU) and the
 * launch stream (given, else the first one known, else the legacy default stream). Touches no
 * stream and no driver. */
ONS__HOT ons_status ons__order_target(const ons_kernel* kernel, const ons_launch* launch,
                             const ons_arg* args, size_t arg_count, ons__target* out_target,
                             ons_error* error);

/* Refuses two known streams in one launch. */
ons_status ons__order_check(const ons_kernel* kernel, ons__device* device,
                            const ons__target* target, const ons_arg* args, size_t arg_count,
                            ons_error* error);

/* Refuses what a capture cannot take: a stream that may not be touched at all, arguments that are
 * ordered by other means than the stream itself. Called when the state is not NONE. */
ONS__COLD ons_status ons__order_check_capture(const ons_kernel* kernel,
                                              ons__capture_state state,
                                              const ons__target* target, const ons_arg* args,
                                              size_t arg_count, ons_error* error);

#endif /* ONS_RUNTIME_ORDER_H_ */
