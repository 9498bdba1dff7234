/* The command line of a host compiler. */
#ifndef ONS_JIT_HOST_OPTIONS_H_
#define ONS_JIT_HOST_OPTIONS_H_

#include "jit/host_search.h"
#include "jit/words.h"

/* What every compile gets. A later option wins over these. `march`: "native", or what
 * -march= takes. */
void ons__host_options_append_defaults(ons__words* words, ons__host_family family,
                                       const char* march);

/* The user's, which are spelt for NVRTC: what it and nvcc document is translated, or left
 * out where it only means something to a device or has become source (source_options.h);
 * all else is passed on. COMPILE_FAILED for one that would keep the compiler from writing
 * a module. */
ons_status ons__host_options_append_user(ons__words* words, const char* const* options,
                                         size_t option_count, ons_error* error);

#endif /* ONS_JIT_HOST_OPTIONS_H_ */
