/* Where a launch goes, and what it is ordered with.
 *
 * Arguments on the launch stream need nothing. For every other stream of an argument the
 * launch stream waits before the launch, and that stream waits after it: what its
 * producer does next, reuse of the memory included, comes after the kernel. */
#ifndef ONS_RUNTIME_ORDER_H_
#define ONS_RUNTIME_ORDER_H_

#include "runtime/base/attributes.h"
#include "runtime/call.h"
#include "runtime/join.h"

/* Chooses the device (given, else that of the first tensor in a GPU's memory, else that
 * of managed memory, else the CPU) and the launch stream (given, else the first one known
 * on that device, else the legacy default stream). Touches no stream and no driver. */
ons_status ons__order_target(const ons_kernel* kernel, const ons_launch* launch,
                             const ons_arg* args, size_t arg_count,
                             ons__target* out_target, ons_error* error);

/* The caller's policy, or the runtime's, which others may change at any time: it is asked
 * once in a call. */
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

/* The streams of arguments that are not the launch stream, each once. Not initialised:
 * `streams` has room for as many tensors as any kernel takes. */
typedef struct ons__others {
  size_t count;
  void* streams[ONS__POINTERS_MAX];
} ons__others;

/* Looks before any stream is touched. Refuses other streams than the launch stream where
 * the policy or a capture forbids them, and what a capture cannot take at all. |info| is
 * the launch stream's. Arguments may be pending. */
ons_status ons__order_check(const ons__call* call, const ons__capture_info* info,
                            ons__others* out_others, ons_error* error);

/* Any use of the legacy stream would break the capture of another. */
ONS__COLD ons_status ons__order_refuse_legacy(const ons_kernel* kernel,
                                              const void* stream, ons_error* error);

/* The launch stream waits for the others, ... */
ons_status ons__order_before(const ons__call* call, const ons__join* join,
                             const ons__others* others, ons_error* error);
/* ... and, after the launch, each of those waits for it. All are tried. */
ons_status ons__order_after(const ons__call* call, const ons__join* join,
                            const ons__others* others, ons_error* error);

#endif /* ONS_RUNTIME_ORDER_H_ */
