/* Host memory of the library's own objects, through the runtime's allocator. */
#ifndef ONS_RUNTIME_BASE_ALLOC_H_
#define ONS_RUNTIME_BASE_ALLOC_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>

/* Every function takes NULL for the default allocator (malloc and free). */

/* Zeroed memory, or NULL. */
void* ons__alloc(const ons_allocator* allocator, size_t size_bytes);

/* `count` zeroed elements; NULL also when the size overflows. */
void* ons__alloc_array(const ons_allocator* allocator, size_t count,
                       size_t element_bytes);

/* A copy of `length` bytes with a NUL after them. */
char* ons__strndup(const ons_allocator* allocator, const char* text, size_t length);
char* ons__strdup(const ons_allocator* allocator, const char* text);

/* NULL is accepted. */
void ons__free(const ons_allocator* allocator, void* pointer);

#endif /* ONS_RUNTIME_BASE_ALLOC_H_ */
