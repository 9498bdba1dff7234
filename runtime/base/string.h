/* A growing NUL-terminated string. A failed allocation is remembered and reported once,
 * by ons__string_take or ons__string_ok, so that callers can append without checking. */
#ifndef ONS_RUNTIME_BASE_STRING_H_
#define ONS_RUNTIME_BASE_STRING_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ons__string {
  const ons_allocator* allocator;
  char* data; /* NULL while empty */
  size_t length;
  size_t capacity;
  bool failed;
} ons__string;

void ons__string_init(ons__string* string, const ons_allocator* allocator);
void ons__string_append(ons__string* string, const char* text);
void ons__string_append_bytes(ons__string* string, const void* bytes, size_t length);
/* As a string literal of C; newlines become blanks. */
void ons__string_append_quoted(ons__string* string, const char* text);
void ons__string_appendf(ons__string* string, const char* format, ...) ONS_PRINTF(2, 3);
bool ons__string_ok(const ons__string* string);
const char* ons__string_text(const ons__string* string); /* "" while empty; borrowed */
char* ons__string_take(
    ons__string* string); /* caller owns (ons__free); NULL if it failed */
void ons__string_clear(ons__string* string); /* frees */

#endif /* ONS_RUNTIME_BASE_STRING_H_ */
