/* A compile with NVRTC in a process of its own: one that crashes or never ends takes
 * nothing along. The process runs the program onstream-compile, which is installed with
 * the library. */
#ifndef ONS_JIT_ISOLATED_H_
#define ONS_JIT_ISOLATED_H_

#include "jit/nvrtc.h"
#include "runtime/base/process.h"

/* As ons__nvrtc_compile, with the libraries that `config` finds here, and its errors;
 * COMPILE_FAILED says also how the process ended. UNAVAILABLE where the program is not
 * there, INTERRUPTED. */
ons_status ons__isolated_compile(const ons__nvrtc_config* config,
                                 const ons__compile_request* request,
                                 const ons__process_limits* limits,
                                 ons__image** out_image, char** out_log,
                                 ons_error* error);

/* The other side: does what the file `request_path` asks for and writes the answer. False
 * where it cannot. */
bool ons__isolated_serve(const char* request_path, const char* answer_path);

#endif /* ONS_JIT_ISOLATED_H_ */
