/* Compiles CUDA-dialect source for the CPU with the machine's own C++ compiler.
 *
 * The image is a shared object that exports, for each kernel, a data symbol of type
 * ons_cpu_kernel; `lowered` is its name. */
#ifndef ONS_JIT_HOST_COMPILER_H_
#define ONS_JIT_HOST_COMPILER_H_

#include <onstream/runtime.h>

#include "jit/compile.h"
#include "jit/device/onstream/cpu_abi.h"
#include "jit/host_search.h"

typedef struct ons__host_compiler ons__host_compiler;

/* Looks for nothing yet. The options' pointers stay the caller's and must outlive the
 * object. The caller owns |out_compiler|. */
ons_status ons__host_compiler_create(const ons__host_search_options* options,
                                     ons__host_compiler** out_compiler, ons_error* error);
void ons__host_compiler_destroy(ons__host_compiler* compiler); /* NULL is accepted */

/* The compiler that is used, found at the first call and kept; borrowed. Any thread.
 * Errors: UNAVAILABLE with what was tried (and the next call tries again). */
ons_status ons__host_compiler_command(ons__host_compiler* compiler,
                                      const ons__host_command** out_command,
                                      ons_error* error);

/* Any thread; blocks while the compiler runs. The caller owns |out_image| and |out_log|
 * (the request's allocator), the latter set on failure too and NULL where nothing was
 * compiled. Errors: COMPILE_FAILED ("NAME:LINE: first error"), UNSUPPORTED for barriers,
 * shuffles and shared memory, NOT_FOUND for a required kernel that the compiler does not
 * know, INVALID_ARGUMENT for header names that lead out of a folder, UNAVAILABLE, IO,
 * OUT_OF_MEMORY. */
ons_status ons__host_compiler_compile(ons__host_compiler* compiler,
                                      const ons__compile_request* request,
                                      ons__image** out_image, char** out_log,
                                      ons_error* error);

#endif /* ONS_JIT_HOST_COMPILER_H_ */
