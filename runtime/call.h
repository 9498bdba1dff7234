/* A launch under way. */
#ifndef ONS_RUNTIME_CALL_H_
#define ONS_RUNTIME_CALL_H_

#include "runtime/kernel.h"

/* Where it goes. */
typedef struct ons__target {
  DLDevice device;
  int slot;
  void* stream;
} ons__target;

/* What the caller gave and what was found for it. A plain launch, which goes straight to
 * the driver, has none. */
typedef struct ons__call {
  const ons_kernel* kernel;
  const ons_launch* launch; /* of this version */
  const ons_arg* args;
  size_t arg_count;
  ons__target target;
  ons__device_entry* entry; /* of the target's device */
  ons__bound* bound;        /* NULL where the kernel is not prepared there */
  uint32_t order;           /* ons_order; DEFAULT: not asked for yet */
} ons__call;

/* Beside the ons_order: what is trusted has been replaced (ons__order_trust), and the
 * rest is joined. */
enum { ONS__ORDER_TRUSTED = ONS_ORDER_TRUST + 1 };

static inline bool ons__launch_is_empty(const ons_launch* launch) {
  return launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0;
}

#endif /* ONS_RUNTIME_CALL_H_ */
