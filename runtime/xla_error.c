#include "runtime/xla_error.h"

#include "runtime/base/string.h"

/* The codes of absl::Status. */
enum {
  CANCELLED = 1,
  INVALID_ARGUMENT = 3,
  NOT_FOUND = 5,
  RESOURCE_EXHAUSTED = 8,
  FAILED_PRECONDITION = 9,
  UNIMPLEMENTED = 12,
  INTERNAL = 13
};

static int code_of(ons_status status) {
  switch (status) {
    case ONS_STATUS_INVALID_ARGUMENT:
    case ONS_STATUS_ARGUMENT_TYPE:
    case ONS_STATUS_ARGUMENT_VALUE:
    case ONS_STATUS_COMPILE_FAILED:
      return INVALID_ARGUMENT;
    case ONS_STATUS_NOT_FOUND:
      return NOT_FOUND;
    case ONS_STATUS_UNSUPPORTED:
      return UNIMPLEMENTED;
    case ONS_STATUS_OUT_OF_MEMORY:
      return RESOURCE_EXHAUSTED;
    case ONS_STATUS_INTERRUPTED:
      return CANCELLED;
    /* Not absl's UNAVAILABLE, which has callers try again. */
    case ONS_STATUS_UNAVAILABLE:
    case ONS_STATUS_ORDER:
    case ONS_STATUS_CAPTURE:
    case ONS_STATUS_NOT_READY:
      return FAILED_PRECONDITION;
    default:
      return INTERNAL;
  }
}

ons__xla_error* ons__xla_error_create_of(const ons__xla_api* api, const ons_error* error,
                                         const ons_blob* log) {
  ons__string text;
  ons__string_init(&text, NULL);
  ons__string_appendf(&text, "onstream: %s", error->message);
  if (log) ons__string_appendf(&text, "\n%s", (const char*)ons_blob_data(log));
  ons__xla_error_create args = {
      .struct_size = ONS__XLA_SIZE(ons__xla_error_create, code),
      .message = ons__string_ok(&text) ? ons__string_text(&text) : error->message,
      .code = code_of(error->code)};
  ons__xla_error* made = api->error_create(&args);
  ons__string_clear(&text);
  return made;
}

void ons__xla_error_drop(const ons__xla_api* api, ons__xla_error* error) {
  if (!error) return;
  ons__xla_error_destroy args = {.struct_size = sizeof(args), .error = error};
  api->error_destroy(&args);
}
