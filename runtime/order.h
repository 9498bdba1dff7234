/* Where a launch goes, and what it is ordered with.
 *
 * Arguments on the launch stream need nothing. For every other stream of an argument the
 * launch stream waits before the launch, and that stream waits after it: what its
 * producer does next, reuse of the memory included, comes after the kernel. */
#ifndef ONS_RUNTIME_ORDER_H_
#define ONS_RUNTIME_ORDER_H_

#include <onstream/launch.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend.h"
#include "runtime/base/attributes.h"
#include "runtime/bind.h"
#include "runtime/join.h"
#include "runtime/runtime.h"

typedef struct ons__target {
  DLDevice device;
  int slot;
  void* stream;
} ons__target;

/* Beside the ons_order: what is trusted has been replaced (ons__order_trust), and the
 * rest is joined. */
enum { ONS__ORDER_TRUSTED = ONS_ORDER_TRUST + 1 };

/* Chooses the device (given, else that of the first tensor in a GPU's memory, else that
 * of managed memory, else the CPU) and the launch stream (given, else the first one known
 * on that device, else the legacy default stream). Touches no stream and no driver. */
ons_status ons__order_target(const ons_kernel* kernel, const ons_launch* launch,
                             const ons_arg* args, size_t arg_count,
                             ons__target* out_target, ons_error* error);

/* The caller's policy, or the runtime's. */
ons_order ons__order_policy(const ons_kernel* kernel, const ons_launch* launch);

typedef struct ons__trusted {
  ons_arg args[ONS__PARAMETERS_MAX];
  ons_arg items[ONS__POINTERS_MAX]; /* of all lists */
} ons__trusted;

/* Under ONS_ORDER_TRUST: the arguments as if every tensor in device memory were on the
 * launch stream, except that outputs stay on the stream they were allocated on. Lists
 * longer than any kernel takes are left as they are. */
void ons__order_trust(const ons__target* target, const ons_arg* args, size_t arg_count,
                      ons__trusted* out_trusted);

/* Looks before any stream is touched. Refuses other streams than the launch stream where
 * the policy or a capture forbids them, and what a capture cannot take at all. |info| is
 * the launch stream's. Arguments may be pending.
 * |out_mixed|: is there another stream than the launch stream among them? */
ons_status ons__order_check(const ons_kernel* kernel, ons__device* device,
                            ons_order policy, const ons__target* target,
                            const ons__capture_info* info, const ons_arg* args,
                            size_t arg_count, bool* out_mixed, ons_error* error);

/* The launch stream waits for every other stream of the arguments, ... */
ons_status ons__order_before(const ons_kernel* kernel, const ons__join* join,
                             const ons__target* target, const ons_arg* args,
                             size_t arg_count, ons_error* error);
/* ... and, after the launch, each of those waits for it. All are tried. */
ons_status ons__order_after(const ons_kernel* kernel, const ons__join* join,
                            const ons__target* target, const ons_arg* args,
                            size_t arg_count, ons_error* error);

#endif /* ONS_RUNTIME_ORDER_H_ */
