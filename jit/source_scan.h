/* Finds the kernels that a CUDA C++ source defines, by reading its text.
 *
 * A help, not an authority: the compiler decides. Comments, string and character literals
 * (raw ones too), line continuations and preprocessor directives are skipped. */
#ifndef ONS_JIT_SOURCE_SCAN_H_
#define ONS_JIT_SOURCE_SCAN_H_

#include <onstream/module.h>
#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the arguments of a call tell of a template's parameter: ons_deduction_kind. */
typedef struct ons__scanned_deduction {
  uint8_t kind;
  uint16_t template_parameter;
  uint16_t parameter; /* `const T* x`, `ons::view<T, N> x` */
} ons__scanned_deduction;

typedef struct ons__scanned_template_parameter {
  char* name; /* NULL where it has none */
  bool is_type;
  bool has_default;
} ons__scanned_template_parameter;

typedef struct ons__scanned_kernel {
  char* name; /* qualified by its namespaces (not by inline or unnamed ones), "ns::axpy";
                 without template arguments */
  bool is_template;       /* needs arguments to be named */
  bool is_overloaded;     /* the same name is scanned with another parameter list */
  char** parameter_names; /* one per parameter, NULL entries for unnamed ones */
  uint8_t* parameter_is_restrict; /* ditto: 1 where it is declared __restrict__ */
  size_t parameter_count;
  ons__scanned_template_parameter* template_parameters;
  size_t template_parameter_count;
  ons__scanned_deduction* deductions;
  size_t deduction_count;
} ons__scanned_kernel;

typedef struct ons__source_scan {
  const ons_allocator* allocator;
  ons__scanned_kernel* kernels;
  size_t kernel_count;
} ons__source_scan;

/* False only when out of memory. A declaration and its definition are one kernel; what is
 * only declared, an explicit specialization or instantiation is none. Both branches of an
 * #if are read. Linear in the source, whatever its bytes. */
bool ons__source_scan_run(const ons_allocator* allocator, const char* source,
                          ons__source_scan* out_scan);
void ons__source_scan_clear(ons__source_scan* scan);

/* Does the identifier occur as a token anywhere (inside macros too, not in comments or
 * literals)? */
bool ons__source_has_identifier(const char* source, const char* identifier,
                                size_t length);

#endif /* ONS_JIT_SOURCE_SCAN_H_ */
