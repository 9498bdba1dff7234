#include "runtime/base/string.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/alloc.h"

void ons__string_init(ons__string* string, const ons_allocator* allocator) {
  *string = (ons__string){.allocator = allocator};
}

/* Makes room for `extra` more bytes and the terminator. */
static bool reserve(ons__string* string, size_t extra) {
  if (string->failed) return false;
  if (extra >= SIZE_MAX / 2 - string->length) {
    string->failed = true;
    return false;
  }
  size_t needed = string->length + extra + 1;
  if (needed <= string->capacity) return true;
  size_t capacity = string->capacity * 2 > needed ? string->capacity * 2 : needed + 63;
  char* data = ons__alloc(string->allocator, capacity);
  if (!data) {
    string->failed = true;
    return false;
  }
  if (string->data) memcpy(data, string->data, string->length);
  ons__free(string->allocator, string->data);
  string->data = data;
  string->capacity = capacity;
  return true;
}

void ons__string_append_bytes(ons__string* string, const void* bytes, size_t length) {
  if (!reserve(string, length)) return;
  if (length) memcpy(string->data + string->length, bytes, length);
  string->length += length;
  string->data[string->length] = '\0';
}

void ons__string_append(ons__string* string, const char* text) {
  ons__string_append_bytes(string, text, strlen(text));
}

void ons__string_append_quoted(ons__string* string, const char* text) {
  ons__string_append(string, "\"");
  for (; *text; ++text) {
    if (*text == '"' || *text == '\\') ons__string_append(string, "\\");
    ons__string_append_bytes(string, *text == '\n' ? " " : text, 1);
  }
  ons__string_append(string, "\"");
}

void ons__string_appendf(ons__string* string, const char* format, ...) {
  va_list args;
  va_start(args, format);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (length < 0) {
    string->failed = true;
    return;
  }
  if (!reserve(string, (size_t)length)) return;
  va_start(args, format);
  vsnprintf(string->data + string->length, (size_t)length + 1, format, args);
  va_end(args);
  string->length += (size_t)length;
}

bool ons__string_ok(const ons__string* string) { return !string->failed; }

const char* ons__string_text(const ons__string* string) {
  return string->data ? string->data : "";
}

char* ons__string_take(ons__string* string) {
  if (!string->failed && !string->data) ons__string_append(string, "");
  char* data = string->failed ? NULL : string->data;
  if (string->failed) ons__free(string->allocator, string->data);
  ons__string_init(string, string->allocator);
  return data;
}

void ons__string_clear(ons__string* string) {
  ons__free(string->allocator, string->data);
  ons__string_init(string, string->allocator);
}
