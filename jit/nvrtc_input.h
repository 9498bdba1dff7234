/* What NVRTC is given for a compile request: the text with its prelude, headers in
 * memory, options. */
#ifndef ONS_JIT_NVRTC_INPUT_H_
#define ONS_JIT_NVRTC_INPUT_H_

#include "jit/nvrtc_library.h"

typedef struct ons__nvrtc_input {
  const ons__nvrtc_library* library;   /* borrowed */
  const ons__compile_request* request; /* borrowed */
  char* text;
  char** options;
  size_t option_count;
  const char** header_names;
  const char** header_contents;
  size_t header_count;
} ons__nvrtc_input;

/* Folders cost a search and compile time: only sources that may include get them. */
bool ons__nvrtc_may_include(const ons__compile_request* request);

/* `folders` has ':' between them. UNSUPPORTED for an architecture, OUT_OF_MEMORY; the
 * caller clears |input| in any case. */
ons_status ons__nvrtc_input_make(ons__nvrtc_input* input,
                                 const ons__nvrtc_library* library,
                                 const ons__compile_request* request, const char* folders,
                                 ons_error* error);
void ons__nvrtc_input_clear(ons__nvrtc_input* input); /* a zeroed one, too */

#endif /* ONS_JIT_NVRTC_INPUT_H_ */
