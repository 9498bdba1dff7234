/* BLAKE2b (RFC 7693), without a key. */
#ifndef ONS_RUNTIME_BASE_HASH_H_
#define ONS_RUNTIME_BASE_HASH_H_

#include <stddef.h>
#include <stdint.h>

enum { ONS__HASH_BYTES = 32, ONS__HASH_MAX_BYTES = 64 };

typedef struct ons__hash {
  uint64_t state[8];
  uint64_t total_bytes; /* of what has been compressed */
  size_t used_bytes;    /* of `block` */
  size_t digest_bytes;
  unsigned char block[128];
} ons__hash;

void ons__hash_init(ons__hash* hash, size_t digest_bytes); /* 1 to ONS__HASH_MAX_BYTES */
void ons__hash_update(ons__hash* hash, const void* data, size_t data_bytes);
void ons__hash_final(ons__hash* hash, unsigned char* out_digest);

/* Of all of the data, to ONS__HASH_BYTES. */
void ons__hash_of(const void* data, size_t data_bytes, unsigned char* out_digest);

#endif /* ONS_RUNTIME_BASE_HASH_H_ */
