/* The module object: a source with its options, and its programs. */
#ifndef ONS_RUNTIME_MODULE_H_
#define ONS_RUNTIME_MODULE_H_

#include <onstream/module.h>
#include <stdatomic.h>

#include "jit/bundle.h"
#include "jit/source_scan.h"
#include "jit/variable_scan.h"
#include "runtime/program.h"

struct ons_module {
  atomic_size_t reference_count;
  ons_runtime* runtime; /* retained, unless nobody holds the module */
  char* source;
  char* name;
  char* folder; /* NULL unless it came from a file */
  char** options;
  size_t option_count;
  ons_header* headers;
  size_t header_count;
  uint32_t flags;      /* ons_module_flags */
  uint32_t timeout_ms; /* of compiles; 0: none */
  bool is_shared;      /* in the runtime's table; these three are guarded by that: */
  uint64_t text_hash;
  ons_module* next_in_bucket;
  ons__bundle* bundle; /* it came from; NULL: from a source */
  ons__source_scan scan;
  ons__variable_scan variables;
  ons__mutex mutex;       /* guards the list of programs */
  ons__program* programs; /* the last one is that of the plain kernels */
  ons__program* plain;
};

/* One program for all kernels that their bare name denotes, and the variables: `plain`.
 * False when out of memory. */
bool ons__module_make_plain(ons_module* module);

/* Of a module that nobody holds and that is in no table. Accepts half-built ones. The
 * runtime stays as it is. */
void ons__module_destroy(ons_module* module);

/* The program that compiles the kernel `name` by itself, made at the first call. NULL
 * when out of memory. */
ons__program* ons__module_program(ons_module* module, const char* name);

#endif /* ONS_RUNTIME_MODULE_H_ */
