/* What tells one compiler from another without running or loading it. */
#ifndef ONS_JIT_COMPILER_IDENTITY_H_
#define ONS_JIT_COMPILER_IDENTITY_H_

#include "jit/host_search.h"
#include "runtime/base/string.h"

/* Appends the environment variables of the list (NULL at its end) that are set. */
void ons__identity_append_variables(const char* const* names, ons__string* out_text);

/* Those by which CUDA's headers are found. */
extern const char* const ons__identity_cuda_variables[];

/* Appends what, beside the request, decides what a host compiler makes of a source: its
 * command, the variables it reads, and this processor, which "native" means. Runs
 * nothing. False where that cannot be told. */
bool ons__host_identify(const ons__host_search_options* options, const char* arch,
                        ons__string* out_text);

#endif /* ONS_JIT_COMPILER_IDENTITY_H_ */
