/* What tells the content of a program or library from others, without reading all of it.
 */
#ifndef ONS_JIT_BUILD_ID_H_
#define ONS_JIT_BUILD_ID_H_

#include "runtime/base/string.h"

/* Appends the build id that the linker has put into an ELF file; of a small file (a
 * script) the digest of its content; else its size and the time of its last change. False
 * where the file cannot be read. */
bool ons__build_id_append(const char* path, ons__string* out_text);

#endif /* ONS_JIT_BUILD_ID_H_ */
