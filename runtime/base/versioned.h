/* Structs that begin with struct_size: what both sides know is copied, the rest is zero.
 */
#ifndef ONS_RUNTIME_BASE_VERSIONED_H_
#define ONS_RUNTIME_BASE_VERSIONED_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A caller's struct into ours, which starts out zero or with defaults. */
static inline void ons__versioned_in(void* ours, size_t our_bytes, const void* theirs,
                                     uint32_t their_bytes) {
  memcpy(ours, theirs, their_bytes < our_bytes ? their_bytes : our_bytes);
}

/* Our struct into a caller's. */
static inline void ons__versioned_out(void* theirs, uint32_t their_bytes,
                                      const void* ours, size_t our_bytes) {
  memcpy(theirs, ours, their_bytes < our_bytes ? their_bytes : our_bytes);
}

#endif /* ONS_RUNTIME_BASE_VERSIONED_H_ */
