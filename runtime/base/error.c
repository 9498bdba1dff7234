#include "runtime/base/error.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char* ons_status_name(ons_status status) {
  switch (status) {
#define NAME(name, value, text) \
  case ONS_STATUS_##name:       \
    return #name;
    ONS_STATUS_MAP(NAME)
#undef NAME
    default:
      return "UNKNOWN";
  }
}

const char* ons_status_text(ons_status status) {
  switch (status) {
#define TEXT(name, value, text) \
  case ONS_STATUS_##name:       \
    return text;
    ONS_STATUS_MAP(TEXT)
#undef TEXT
    default:
      return "unknown status";
  }
}

/* A caller built against a smaller struct gets as much of the message as it has room for.
 */
static size_t message_capacity(const ons_error* error) {
  size_t head = offsetof(ons_error, message);
  size_t size =
      error->struct_size < sizeof(ons_error) ? error->struct_size : sizeof(ons_error);
  return size > head ? size - head : 0;
}

/* Cuts a message that did not fit at a character boundary of UTF-8. */
static void trim_utf8(char* text, size_t capacity) {
  size_t length = strnlen(text, capacity);
  if (length + 1 < capacity) return;
  while (length > 0 && ((unsigned char)text[length - 1] & 0xC0) == 0x80) --length;
  if (length > 0 && ((unsigned char)text[length - 1] & 0xC0) == 0xC0) --length;
  text[length] = '\0';
}

static void fill(ons_error* error, ons_status status, const char* native_call,
                 int32_t native_code, const char* format, va_list args) {
  size_t capacity = message_capacity(error);
  if (capacity == 0) return;
  error->code = status;
  error->native_code = native_code;
  error->native_call = native_call;
  error->launched = 0;
  int written = vsnprintf(error->message, capacity, format, args);
  if (written >= 0 && (size_t)written >= capacity) trim_utf8(error->message, capacity);
}

ons_status ons__error_set(ons_error* error, ons_status status, const char* format, ...) {
  if (!error) return status;
  va_list args;
  va_start(args, format);
  fill(error, status, NULL, 0, format, args);
  va_end(args);
  return status;
}

ons_status ons__error_native(ons_error* error, ons_status status, const char* native_call,
                             int32_t native_code, const char* format, ...) {
  if (!error) return status;
  va_list args;
  va_start(args, format);
  fill(error, status, native_call, native_code, format, args);
  va_end(args);
  return status;
}

ons_status ons__error_no_memory(ons_error* error) {
  return ons__error_set(error, ONS_STATUS_OUT_OF_MEMORY, "out of host memory");
}

void ons__error_prefix(ons_error* error, const char* format, ...) {
  if (!error) return;
  size_t capacity = message_capacity(error);
  if (capacity == 0) return;
  char old[ONS_ERROR_MESSAGE_BYTES];
  snprintf(old, sizeof(old), "%s", error->message);
  va_list args;
  va_start(args, format);
  int front = vsnprintf(error->message, capacity, format, args);
  va_end(args);
  if (front >= 0 && (size_t)front < capacity) {
    int rest = snprintf(error->message + front, capacity - (size_t)front, ": %s", old);
    if (rest < 0 || (size_t)rest < capacity - (size_t)front) return;
  }
  trim_utf8(error->message, capacity);
}
