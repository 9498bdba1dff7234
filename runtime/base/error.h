/* Filling an ons_error. Every function accepts NULL and returns the status, so that a
 * failing path reads `return ons__error_set(error, ONS_STATUS_X, "...", ...)`. */
#ifndef ONS_RUNTIME_BASE_ERROR_H_
#define ONS_RUNTIME_BASE_ERROR_H_

#include <onstream/status.h>

#include "runtime/base/attributes.h"

/* Sets code and message (printf format); native_code 0, native_call NULL, launched 0. */
ONS__COLD ons_status ons__error_set(ons_error* error, ons_status status,
                                    const char* format, ...) ONS_PRINTF(3, 4);

/* A failed foreign call: also stores its static name and its own code. */
ONS__COLD ons_status ons__error_native(ons_error* error, ons_status status,
                                       const char* native_call, int32_t native_code,
                                       const char* format, ...) ONS_PRINTF(5, 6);

/* OUT_OF_MEMORY for host memory. */
ONS__COLD ons_status ons__error_no_memory(ons_error* error);

/* Puts text in front of the message that is there, "front: message". */
ONS__COLD void ons__error_prefix(ons_error* error, const char* format, ...)
    ONS_PRINTF(2, 3);

#endif /* ONS_RUNTIME_BASE_ERROR_H_ */
