/* What a compile's result depends on, as a digest; the files that it reads come on top
 * (inputs.h). */
#ifndef ONS_JIT_CACHE_KEY_H_
#define ONS_JIT_CACHE_KEY_H_

#include "jit/compile.h"
#include "runtime/base/hash.h"

typedef struct ons__cache_key {
  unsigned char bytes[ONS__HASH_BYTES];
} ons__cache_key;

/* `backend` is its name, `identity` tells its compiler from others. False where the
 * result is not to be kept: it may depend on the time, or on what cannot be told here. */
bool ons__cache_key_make(const ons__compile_request* request, const char* backend,
                         const char* identity, ons__cache_key* out_key);

#endif /* ONS_JIT_CACHE_KEY_H_ */
