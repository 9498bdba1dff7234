/* Errors on their way to XLA, and from it. */
#ifndef ONS_RUNTIME_XLA_ERROR_H_
#define ONS_RUNTIME_XLA_ERROR_H_

#include <onstream/runtime.h>
#include <onstream/status.h>

#include "runtime/base/attributes.h"
#include "runtime/xla_abi.h"

/* An error with the message and, where there is one, the compiler's log. XLA's to
 * destroy, once it has been returned. */
ONS__COLD ons__xla_error* ons__xla_error_create_from(const ons__xla_api* api,
                                                     const ons_error* error,
                                                     const ons_blob* log);

/* For errors that XLA gave and nobody is told of. NULL is accepted. */
ONS__COLD void ons__xla_error_drop(const ons__xla_api* api, ons__xla_error* error);

#endif /* ONS_RUNTIME_XLA_ERROR_H_ */
