/* The inputs of a compile by the host compiler: from the list of files that it writes. */
#ifndef ONS_JIT_HOST_INPUTS_H_
#define ONS_JIT_HOST_INPUTS_H_

#include "jit/compile.h"
#include "jit/host_search.h"
#include "jit/inputs.h"

typedef struct ons__host_inputs {
  const ons__compile_request* request;
  const ons__host_command* command;
  const ons__words* options; /* the user's, as the compiler gets them */
  const char* own_folder;    /* with the compile's own files, which are no inputs */
  const char* depends_path;  /* what -MF named */
  const char* system_folder; /* searched ahead of the compiler's own; "": none */
} ons__host_inputs;

/* Adds them to request->inputs. */
void ons__host_inputs_collect(const ons__host_inputs* compile);

#endif /* ONS_JIT_HOST_INPUTS_H_ */
