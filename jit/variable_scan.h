/* Finds the variables in device memory that a CUDA C++ source defines, by reading its
 * text: `__device__` and `__constant__` at namespace scope. As for kernels, a help, not
 * an authority. */
#ifndef ONS_JIT_VARIABLE_SCAN_H_
#define ONS_JIT_VARIABLE_SCAN_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ons__scanned_variable {
  char* name; /* qualified by its namespaces, "ns::table" */
  bool is_constant;
} ons__scanned_variable;

typedef struct ons__variable_scan {
  const ons_allocator* allocator;
  ons__scanned_variable* variables; /* each name once */
  size_t count;
} ons__variable_scan;

/* False only when out of memory. Templates and what is only declared are left out; both
 * branches of an #if are read. */
bool ons__variable_scan_run(const ons_allocator* allocator, const char* source,
                            ons__variable_scan* out_scan);
void ons__variable_scan_clear(ons__variable_scan* scan);

/* NULL when there is none. */
const ons__scanned_variable* ons__variable_scan_find(const ons__variable_scan* scan,
                                                     const char* name);

#endif /* ONS_JIT_VARIABLE_SCAN_H_ */
