/* CUDA C++ to cubin or PTX with NVRTC, which is loaded at the first compile. */
#ifndef ONS_JIT_NVRTC_H_
#define ONS_JIT_NVRTC_H_

#include "jit/compile.h"
#include "runtime/base/string.h"

typedef struct ons__nvrtc ons__nvrtc;

/* Where things are looked for; everything is borrowed and outlives the service. */
typedef struct ons__nvrtc_config {
  const ons_allocator* allocator;
  ons_locate_fn locate; /* NULL: none */
  void* locate_user_data;
  const char* library_path; /* NULL: searched */
  const char* include_path; /* ':'-separated; NULL: searched */
} ons__nvrtc_config;

/* Loads nothing. OUT_OF_MEMORY. */
ons_status ons__nvrtc_create(const ons__nvrtc_config* config, ons__nvrtc** out_nvrtc,
                             ons_error* error);
void ons__nvrtc_destroy(ons__nvrtc* nvrtc); /* NULL is accepted */

/* Appends what, beside the request, decides what it compiles to: the library that would
 * be loaded, and where headers are looked for. Loads nothing. False where that cannot be
 * told. */
bool ons__nvrtc_identify(const ons__nvrtc* nvrtc, const ons__compile_request* request,
                         ons__string* out_text);

/* Compiles for request->arch ("sm_90"): to a cubin, or to PTX where this NVRTC is older
 * than the architecture. Any thread. |out_log| (request's allocator; never NULL unless
 * out of memory or nothing was compiled) is set on failure as well. Errors: UNAVAILABLE
 * with what was tried, COMPILE_FAILED with the first diagnostic, NOT_FOUND for a required
 * kernel that the source does not have, UNSUPPORTED for an architecture or an image kind,
 * OUT_OF_MEMORY. */
ons_status ons__nvrtc_compile(ons__nvrtc* nvrtc, const ons__compile_request* request,
                              ons__image** out_image, char** out_log, ons_error* error);

#endif /* ONS_JIT_NVRTC_H_ */
