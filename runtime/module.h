/* The module object: a source with its options, and its programs. */
#ifndef ONS_RUNTIME_MODULE_H_
#define ONS_RUNTIME_MODULE_H_

#include <onstream/module.h>
#include <stdatomic.h>

#include "jit/source_scan.h"
#include "jit/variable_scan.h"
#include "runtime/program.h"

struct ons_module {
  atomic_size_t reference_count;
  ons_runtime* runtime; /* retained */
  char* source;
  char* name;
  char* folder; /* NULL unless it came from a file */
  char** options;
  size_t option_count;
  ons_header* headers;
  size_t header_count;
  bool is_checked; /* ONS_MODULE_CHECK */
  ons__source_scan scan;
  ons__variable_scan variables;
  ons__mutex mutex;       /* guards the list of programs */
  ons__program* programs; /* the last one is that of the plain kernels */
  ons__program* plain;
};

/* The program that compiles the kernel `name` by itself, made at the first call. NULL
 * when out of memory. */
ons__program* ons__module_program(ons_module* module, const char* name);

#endif /* ONS_RUNTIME_MODULE_H_ */
