/* Loading shared libraries by name, with a record of what was tried. Libraries are never
 * closed: threads and exit handlers of theirs may still run. */
#ifndef ONS_RUNTIME_BASE_DYNLIB_H_
#define ONS_RUNTIME_BASE_DYNLIB_H_

#include <stdbool.h>

#include "runtime/base/string.h"

/* dlopen(RTLD_NOW | RTLD_LOCAL). On failure appends "\n  PATH: reason" to `tried` (may be
 * NULL). */
void* ons__dynlib_open(const char* path, ons__string* tried);

/* The copy that is already mapped in this process under that name, or NULL. */
void* ons__dynlib_open_loaded(const char* path);

/* NULL when the library has no such symbol. */
void* ons__dynlib_symbol(void* library, const char* name);

#endif /* ONS_RUNTIME_BASE_DYNLIB_H_ */
