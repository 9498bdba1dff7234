/* The libraries of CUDA C++ that a host compiler can read (libcu++: <cuda/std/...>). */
#ifndef ONS_JIT_CCCL_H_
#define ONS_JIT_CCCL_H_

#include <stdbool.h>

#include "jit/host_search.h"
#include "runtime/base/string.h"

/* Sets |out_folder| to the folder with cuda/std in it; empty where there is none. Looked
 * for where NVRTC's headers are. */
void ons__cccl_find(const ons__host_search_options* options, ons__string* out_folder);

#endif /* ONS_JIT_CCCL_H_ */
