#include "runtime/base/hash.h"

#include <assert.h>
#include <string.h>

static const uint64_t initial[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

static const unsigned char permutations[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static inline uint64_t rotate_right(uint64_t word, int count) {
  return (word >> count) | (word << (64 - count));
}

static inline uint64_t load_word(const unsigned char* bytes) {
  uint64_t word = 0;
  for (int i = 7; i >= 0; --i) word = (word << 8) | bytes[i];
  return word;
}

static inline void mix(uint64_t* v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
  v[a] += v[b] + x;
  v[d] = rotate_right(v[d] ^ v[a], 32);
  v[c] += v[d];
  v[b] = rotate_right(v[b] ^ v[c], 24);
  v[a] += v[b] + y;
  v[d] = rotate_right(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = rotate_right(v[b] ^ v[c], 63);
}

static void compress(ons__hash* hash, const unsigned char* block, uint64_t is_last) {
  uint64_t message[16];
  uint64_t v[16];
  for (int i = 0; i < 16; ++i) message[i] = load_word(block + 8 * i);
  memcpy(v, hash->state, sizeof(hash->state));
  memcpy(v + 8, initial, sizeof(initial));
  v[12] ^= hash->total_bytes; /* the counter's upper half would begin at 2^64 bytes */
  v[14] ^= 0 - is_last;
  for (int round = 0; round < 12; ++round) {
    const unsigned char* s = permutations[round % 10];
    mix(v, 0, 4, 8, 12, message[s[0]], message[s[1]]);
    mix(v, 1, 5, 9, 13, message[s[2]], message[s[3]]);
    mix(v, 2, 6, 10, 14, message[s[4]], message[s[5]]);
    mix(v, 3, 7, 11, 15, message[s[6]], message[s[7]]);
    mix(v, 0, 5, 10, 15, message[s[8]], message[s[9]]);
    mix(v, 1, 6, 11, 12, message[s[10]], message[s[11]]);
    mix(v, 2, 7, 8, 13, message[s[12]], message[s[13]]);
    mix(v, 3, 4, 9, 14, message[s[14]], message[s[15]]);
  }
  for (int i = 0; i < 8; ++i) hash->state[i] ^= v[i] ^ v[i + 8];
}

void ons__hash_init(ons__hash* hash, size_t digest_bytes) {
  assert(digest_bytes >= 1 && digest_bytes <= ONS__HASH_MAX_BYTES);
  *hash = (ons__hash){.digest_bytes = digest_bytes};
  memcpy(hash->state, initial, sizeof(initial));
  hash->state[0] ^= 0x01010000 ^ digest_bytes;
}

/* A full block stays until more comes: the last one is compressed as such. */
void ons__hash_update(ons__hash* hash, const void* data, size_t data_bytes) {
  const unsigned char* at = data;
  while (data_bytes > 0) {
    if (hash->used_bytes == sizeof(hash->block)) {
      hash->total_bytes += sizeof(hash->block);
      compress(hash, hash->block, 0);
      hash->used_bytes = 0;
    }
    size_t room = sizeof(hash->block) - hash->used_bytes;
    size_t count = data_bytes < room ? data_bytes : room;
    memcpy(hash->block + hash->used_bytes, at, count);
    hash->used_bytes += count;
    at += count;
    data_bytes -= count;
  }
}

void ons__hash_final(ons__hash* hash, unsigned char* out_digest) {
  hash->total_bytes += hash->used_bytes;
  memset(hash->block + hash->used_bytes, 0, sizeof(hash->block) - hash->used_bytes);
  compress(hash, hash->block, 1);
  for (size_t i = 0; i < hash->digest_bytes; ++i) {
    out_digest[i] = (unsigned char)(hash->state[i / 8] >> (8 * (i % 8)));
  }
}

void ons__hash_of(const void* data, size_t data_bytes, unsigned char* out_digest) {
  ons__hash hash;
  ons__hash_init(&hash, ONS__HASH_BYTES);
  ons__hash_update(&hash, data, data_bytes);
  ons__hash_final(&hash, out_digest);
}
