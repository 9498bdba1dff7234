/* The files that a text may include, whatever its conditions say: both branches of an
 * #if, comments and strings too. */
#ifndef ONS_JIT_INCLUDE_SCAN_H_
#define ONS_JIT_INCLUDE_SCAN_H_

#include <onstream/runtime.h>
#include <stdbool.h>

typedef struct ons__include {
  const char* name; /* NULL: it cannot be read here, because a macro spells it */
  bool is_quoted;
  bool is_next; /* #include_next */
} ons__include;

typedef void ons__include_fn(void* context, const ons__include* include);

/* Calls `found` for each #include and __has_include, other than one that asks for what a
 * macro spells: whoever asks for a file also includes it, by its name. False when out of
 * memory. */
bool ons__include_scan(const ons_allocator* allocator, const char* text,
                       ons__include_fn* found, void* context);

#endif /* ONS_JIT_INCLUDE_SCAN_H_ */
