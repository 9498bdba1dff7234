/* What only a GPU can do: told from an error of the host compiler and the source it is
 * about. */
#ifndef ONS_JIT_HOST_REFUSAL_H_
#define ONS_JIT_HOST_REFUSAL_H_

#include <stddef.h>

typedef struct ons__host_refusal {
  const char* name;   /* as the source spells it; not terminated */
  size_t name_length; /* 0: the error is about anything else */
  const char* reason; /* static */
  long line;
} ons__host_refusal;

/* Is a compiler's error in line `line` of the source about one of these? */
ons__host_refusal ons__host_refusal_find(const char* source, long line);

/* An assembler names no line of the source: the first that it may mean. */
ons__host_refusal ons__host_refusal_find_assembly(const char* source);

#endif /* ONS_JIT_HOST_REFUSAL_H_ */
