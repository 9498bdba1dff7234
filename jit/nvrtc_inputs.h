/* The inputs of a compile by NVRTC, which does not tell them: every file that the source
 * may include, by the search that NVRTC makes. */
#ifndef ONS_JIT_NVRTC_INPUTS_H_
#define ONS_JIT_NVRTC_INPUTS_H_

#include "jit/inputs.h"
#include "jit/nvrtc_input.h"

/* Adds them to the request's inputs, after the compile. */
void ons__nvrtc_inputs_collect(const ons__nvrtc_input* input);

#endif /* ONS_JIT_NVRTC_INPUTS_H_ */
