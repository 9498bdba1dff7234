/* Errors on their way to XLA, and from it. */
#ifndef ONS_RUNTIME_XLA_ERROR_H_
#define ONS_RUNTIME_XLA_ERROR_H_

#include <onstream/runtime.h>
#include <onstream/status.h>

#include "runtime/base/attributes.h"
#include "runtime/xla_abi.h"

ONS__COLD ons__xla_error* ons__xla_error_create_of(const ons__xla_api* api,
                                                   const ons_error* error,
                                                   const ons_blob* log);

/* What a handler returns: NULL for OK, else an error with the message and the compiler's
 * log, which XLA destroys. The log is taken over; NULL where there is none. */
static inline ons__xla_error* ons__xla_error_of(const ons__xla_api* api,
                                                ons_status status, const ons_error* error,
                                                ons_blob* log) {
  ons__xla_error* made = status ? ons__xla_error_create_of(api, error, log) : NULL;
  ons_blob_release(log);
  return made;
}

/* For errors that XLA gave and nobody is told of. NULL is accepted. */
ONS__COLD void ons__xla_error_drop(const ons__xla_api* api, ons__xla_error* error);

#endif /* ONS_RUNTIME_XLA_ERROR_H_ */
