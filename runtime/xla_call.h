/* What the handlers of all platforms and stages have in common. */
#ifndef ONS_RUNTIME_XLA_CALL_H_
#define ONS_RUNTIME_XLA_CALL_H_

#include <onstream/launch.h>

#include "runtime/base/attributes.h"
#include "runtime/xla_attributes.h"

/* The question that XLA asks when a handler is registered, with an otherwise empty frame.
 * Every handler begins with it; after true it returns NULL. */
bool ons__xla_answer(const ons__xla_frame* frame, uint32_t traits);

/* Checks the frame and reads its attributes. Errors: UNSUPPORTED for a version of XLA's
 * interface that is not known, those of ons__xla_attributes_read. */
ons_status ons__xla_frame_read(const ons__xla_frame* frame, ons__xla_stage stage,
                               ons__xla_attributes* out_attributes, ons_error* error);

/* For a call that is instantiated: the kernel, once all that can be is checked. It is not
 * compiled yet. */
ons_status ons__xla_frame_instantiate(const ons__xla_frame* frame,
                                      ons_kernel** out_kernel, ons_error* error);

/* For the stages after that: the kernel, found without looking at its source. */
ons_status ons__xla_frame_find(const ons__xla_frame* frame, ons__xla_stage stage,
                               ons__xla_attributes* out_attributes,
                               ons_kernel** out_kernel, ons_error* error);

/* Where a call runs. */
typedef struct ons__xla_target {
  DLDevice device;
  void* stream;                 /* on a GPU */
  const ons_executor* executor; /* on the CPU */
} ons__xla_target;

ons_status ons__xla_launch(const ons__xla_frame* frame,
                           const ons__xla_attributes* attributes, ons_kernel* kernel,
                           const ons__xla_target* target, ons_error* error);

#endif /* ONS_RUNTIME_XLA_CALL_H_ */
