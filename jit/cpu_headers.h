/* The device headers of the CPU backend: what comes ahead of a source, and what lies
 * where the source may include it. */
#ifndef ONS_JIT_CPU_HEADERS_H_
#define ONS_JIT_CPU_HEADERS_H_

#include <stdbool.h>
#include <stddef.h>

#include "jit/compile.h"

typedef struct ons__cpu_part {
  ons_header header;
  const char* words; /* what its names begin with, a space between them; NULL: always */
} ons__cpu_part;

/* In this order. */
extern const ons__cpu_part ons__cpu_prelude[];
extern const size_t ons__cpu_prelude_count;

extern const ons_header ons__cpu_own_headers[];
extern const size_t ons__cpu_own_header_count;

/* May the source need the part? What the compiler reads but we do not see may need all of
 * them: other included files, names that are pasted together. */
bool ons__cpu_part_is_needed(const ons__cpu_part* part,
                             const ons__compile_request* request);

/* May the source include files that are neither in memory nor the standard library's? */
bool ons__cpu_source_reaches_out(const ons__compile_request* request);

#endif /* ONS_JIT_CPU_HEADERS_H_ */
