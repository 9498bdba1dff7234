/* Numbers and texts as bytes: little-endian, a text is its length (u32) and its bytes. */
#ifndef ONS_JIT_ENCODING_H_
#define ONS_JIT_ENCODING_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jit/compile.h"
#include "jit/inputs.h"
#include "runtime/base/string.h"

void ons__write_number(ons__string* out, uint64_t number, size_t size_bytes);
void ons__write_text(ons__string* out, const char* text);
/* Kind, kernels, log, size and code. */
void ons__write_image(ons__string* out, const ons__image* image);
/* u32 count, each u8 kind, path, u64 size, i64 time, digest. */
void ons__write_inputs(ons__string* out, const ons__inputs* inputs);
/* The digest of all that is there. */
void ons__write_digest(ons__string* out);

/* Any bytes may be read. */
typedef struct ons__reader {
  const ons_allocator* allocator;
  const char* at;
  size_t left_bytes;
  bool failed; /* stays; everything read after it is 0, or NULL */
} ons__reader;

/* Takes the digest off the end. False where it is not that of what is before it. */
bool ons__read_digest(ons__reader* in);
const char* ons__read_bytes(ons__reader* in, uint64_t size_bytes); /* borrowed */
uint64_t ons__read_number(ons__reader* in, size_t size_bytes);
char* ons__read_text(ons__reader* in); /* the caller's (ons__free) */
/* How many follow, of at least `least_bytes` each: never more than there is room for. */
size_t ons__read_count(ons__reader* in, size_t least_bytes);
ons__image* ons__read_image(ons__reader* in);
void ons__read_inputs(ons__reader* in, ons__inputs* inputs);

#endif /* ONS_JIT_ENCODING_H_ */
