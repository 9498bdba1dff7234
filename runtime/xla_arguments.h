/* The arguments of an XLA call: its buffers as tensors, and its plan carried out. */
#ifndef ONS_RUNTIME_XLA_ARGUMENTS_H_
#define ONS_RUNTIME_XLA_ARGUMENTS_H_

#include <onstream/launch.h>

#include "runtime/base/attributes.h"
#include "runtime/xla_attributes.h"

/* What one entry of a plan has room for: a buffer as a tensor, and where it ends. */
typedef struct ons__xla_place {
  DLTensor tensor;
  uintptr_t end;
} ons__xla_place;

/* Room for the arguments of one call: `capacity` of each, the caller's. */
typedef struct ons__xla_arguments {
  size_t capacity;
  ons__xla_place* places; /* of the plan's entries; only of operands and results */
  ons_arg* args;          /* and at their end the items of lists */
  size_t arg_count;
  bool has_tensor;
} ons__xla_arguments;

/* How many entries the plan has. */
static inline size_t ons__xla_plan_count(const ons__xla_attributes* attributes) {
  return attributes->plan.count / 2;
}

/* Fills `args` for a launch on `device` and `stream`; the plan has at most `capacity`
 * entries. All that is filled in borrows from the frame, the attributes, and the room.
 * Errors: INVALID_ARGUMENT, ARGUMENT_VALUE, UNSUPPORTED (elements that DLPack has not).
 */
ons_status ons__xla_arguments_fill(const ons__xla_frame* frame,
                                   const ons__xla_attributes* attributes, DLDevice device,
                                   void* stream, ons__xla_arguments* arguments,
                                   ons_error* error);

#endif /* ONS_RUNTIME_XLA_ARGUMENTS_H_ */
