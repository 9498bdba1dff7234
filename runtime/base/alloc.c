#include "runtime/base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void* ons__alloc(const ons_allocator* allocator, size_t size_bytes) {
  if (size_bytes == 0) size_bytes = 1;
  if (!allocator) return calloc(1, size_bytes);
  void* pointer = allocator->allocate(allocator->user_data, size_bytes);
  if (pointer) memset(pointer, 0, size_bytes);
  return pointer;
}

void* ons__alloc_array(const ons_allocator* allocator, size_t count,
                       size_t element_bytes) {
  if (element_bytes != 0 && count > SIZE_MAX / element_bytes) return NULL;
  return ons__alloc(allocator, count * element_bytes);
}

char* ons__strndup(const ons_allocator* allocator, const char* text, size_t length) {
  if (length == SIZE_MAX) return NULL;
  char* copy = ons__alloc(allocator, length + 1);
  if (copy) memcpy(copy, text, length);
  return copy;
}

char* ons__strdup(const ons_allocator* allocator, const char* text) {
  return ons__strndup(allocator, text, strlen(text));
}

void ons__free(const ons_allocator* allocator, void* pointer) {
  if (!pointer) return;
  if (allocator) {
    allocator->free(allocator->user_data, pointer);
  } else {
    free(pointer);
  }
}
