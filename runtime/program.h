/* A program: one compile of a module's source for a set of kernel names, with the images
 * it gave per architecture and the binaries loaded per device.
 *
 * A module has one program for all plain kernels and one more for each template instance
 * that is asked for. */
#ifndef ONS_RUNTIME_PROGRAM_H_
#define ONS_RUNTIME_PROGRAM_H_

#include <onstream/module.h>
#include <stdatomic.h>

#include "jit/compile.h"
#include "runtime/base/long_lock.h"
#include "runtime/runtime.h"

typedef struct ons__program_image {
  struct ons__program_image* next;
  const ons__backend_ops* backend;
  char arch[32];
  ons__image* image;
  bool is_borrowed; /* from the module's bundle */
} ons__program_image;

/* A loaded image, shared by the program and the kernels bound to it. */
typedef struct ons__loaded {
  atomic_size_t reference_count;
  ons__binary* binary;
} ons__loaded;

void ons__loaded_retain(ons__loaded* loaded);
void ons__loaded_release(ons__loaded* loaded, const ons_allocator* allocator);

typedef struct ons__program {
  struct ons__program* next; /* in its module */
  ons_module* module;        /* owns it */
  ons__kernel_name* names;
  size_t name_count;
  ons__long_lock lock; /* held while compiling: one compile, however many ask */
  ons__program_image* images;
  ons__loaded* loaded[ONS__SLOT_COUNT];
} ons__program;

/* Copies the names. NULL when out of memory. */
ons__program* ons__program_create(ons_module* module, const ons__kernel_name* names,
                                  size_t name_count);
void ons__program_destroy(ons__program* program); /* NULL is accepted */

/* Compiles the module's source for an architecture, or finds it in the cache. The caller
 * owns |out_image|, and frees |out_log| with the module's allocator. `is_exact` as in the
 * request. */
ons_status ons__module_compile(const ons_module* module, ons__backend* backend,
                               const char* arch, bool is_exact,
                               const ons__kernel_name* names, size_t name_count,
                               ons__image** out_image, char** out_log, ons_error* error);

/* Compiles (once per architecture) and loads (once per device), but not with a NULL for
 * |out_loaded|. |out_image| and |out_loaded| are borrowed from the program. |out_log|
 * (may be NULL) is the caller's. */
ons_status ons__program_load(ons__program* program, ons__device_entry* entry, int slot,
                             const ons__image** out_image, ons__loaded** out_loaded,
                             ons_blob** out_log, ons_error* error);

#endif /* ONS_RUNTIME_PROGRAM_H_ */
