/* The modules and kernels of XLA programs: one table of each for the process, found by
 * content, never emptied. */
#ifndef ONS_RUNTIME_XLA_REGISTRY_H_
#define ONS_RUNTIME_XLA_REGISTRY_H_

#include <onstream/xla.h>

#include "runtime/kernel.h"
#include "runtime/xla_attributes.h"

/* The kernel of a call that has been seen before; NULL for others. Takes no lock. */
ons_kernel* ons__xla_kernel_find(const ons__xla_attributes* attributes);

/* The kernel of any call, which is compiled nowhere yet where it is new. With a source
 * the attributes' module is compared with what is known by their digest. Errors:
 * INVALID_ARGUMENT, NOT_FOUND, NOT_READY (a digest that nothing is known by),
 * OUT_OF_MEMORY. */
ons_status ons__xla_kernel_get(const ons__xla_attributes* attributes,
                               ons_kernel** out_kernel, ons_error* error);

#endif /* ONS_RUNTIME_XLA_REGISTRY_H_ */
