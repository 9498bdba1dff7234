/* The options that change the source itself: -D, -U and -include, in NVRTC's spellings
 * and the host compilers'. They become lines of it, behind our own headers, which the
 * user's macros must not reach.
 *
 * Macros of reserved names and NDEBUG stay options, for the system's headers, some of
 * which ours include, and ONS_WARP_SIZE for ours. */
#ifndef ONS_JIT_SOURCE_OPTIONS_H_
#define ONS_JIT_SOURCE_OPTIONS_H_

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/string.h"

/* What diagnostics call the lines. */
#define ONS__OPTIONS_FILE "<options>"

/* The lines, behind a #line directive; nothing where there are none. */
void ons__source_options_append(const char* const* options, size_t option_count,
                                ons__string* text);

/* Is options[*index] such an option? Moves *index to its last word. */
bool ons__source_options_skip(const char* const* options, size_t option_count,
                              size_t* index);

#endif /* ONS_JIT_SOURCE_OPTIONS_H_ */
