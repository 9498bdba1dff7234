/* A compiled image with what it depends on, as the bytes of one file. */
#ifndef ONS_JIT_CACHE_ENTRY_H_
#define ONS_JIT_CACHE_ENTRY_H_

#include "jit/cache_key.h"
#include "jit/compile.h"
#include "jit/inputs.h"
#include "runtime/base/string.h"

/* Of the layout below and of what goes into a key: entries of another are not found. */
enum { ONS__CACHE_SCHEMA = 2 };

/* As in encoding.h:
 *   "ONSCACHE", u32 schema, the key
 *   u32 count of inputs, each u8 kind, path, u64 size, i64 time, digest
 *   u32 image kind; u32 count of kernels, each name, lowered, signature; log
 *   u64 size of the code, the code
 *   BLAKE2b-256 of all that
 * Appends them; `out_bytes` fails when out of memory. */
void ons__cache_entry_write(const ons__cache_key* key, const ons__image* image,
                            const ons__inputs* inputs, ons__string* out_bytes);

/* Any bytes may be given. False unless they are an entry of this key, whole and
 * unchanged; then the caller owns |out_image| and clears |out_inputs|. */
bool ons__cache_entry_read(const ons_allocator* allocator, const ons__cache_key* key,
                           const char* bytes, size_t size_bytes, ons__image** out_image,
                           ons__inputs* out_inputs);

#endif /* ONS_JIT_CACHE_ENTRY_H_ */
