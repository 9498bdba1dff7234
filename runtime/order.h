/* Where a launch goes, and what it is ordered with.
 *
 * This version borrows: every argument with a known stream must be on the launch stream.
 * Joining other streams belongs here. */
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

/* 0, 1 and 2 name streams by role, on CUDA as on HIP: the legacy and the per-thread
 * default. Using them may touch others. */
static inline bool ons__stream_is_special(const void* stream) {
  return (uintptr_t)stream <= 2;
}

/* Chooses the device (given, else that of the first tensor in a GPU's memory, else that
 * of managed memory, else the CPU) and the launch stream (given, else the first one known
 * on that device, else the legacy default stream). Touches no stream and no driver. */
ons_status ons__order_target(const ons_kernel* kernel, const ons_launch* launch,
                             const ons_arg* args, size_t arg_count,
                             ons__target* out_target, ons_error* error);

/* The same where nothing is given and the first tensor decides. False: ask
 * ons__order_target. */
static inline bool ons__order_common(const ons_launch* launch, const ons_arg* args,
                                     size_t arg_count, ons__target* out_target) {
  if ((launch->flags & (ONS_LAUNCH_DEVICE | ONS_LAUNCH_STREAM)) != 0) return false;
  for (size_t i = 0; i < arg_count; ++i) {
    if (args[i].kind != ONS_ARG_TENSOR || !args[i].value.tensor) continue;
    DLDevice device = args[i].value.tensor->device;
    if (device.device_type != kDLCUDA ||
        (uint32_t)device.device_id >= ONS__CUDA_DEVICES_MAX ||
        !(args[i].flags & ONS_ARG_STREAM_KNOWN)) {
      return false;
    }
    *out_target = (ons__target){device, 1 + device.device_id, args[i].stream};
    return true;
  }
  return false;
}

/* Refuses two known streams in one launch. */
ons_status ons__order_check(const ons_kernel* kernel, ons__device* device,
                            const ons__target* target, const ons_arg* args,
                            size_t arg_count, ons_error* error);

/* Refuses what a capture cannot take: a stream that may not be touched at all, arguments
 * that are ordered by other means than the stream itself. Called when the state is not
 * NONE. */
ONS__COLD ons_status ons__order_check_capture(const ons_kernel* kernel,
                                              ons__capture_state state,
                                              const ons__target* target,
                                              const ons_arg* args, size_t arg_count,
                                              ons_error* error);

#endif /* ONS_RUNTIME_ORDER_H_ */
