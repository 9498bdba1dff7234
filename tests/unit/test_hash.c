/* BLAKE2b against other people's digests. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/hash.h"

static void to_hex(const unsigned char* digest, size_t bytes, char* out_text) {
  for (size_t i = 0; i < bytes; ++i) snprintf(out_text + 2 * i, 3, "%02x", digest[i]);
}

/* Appendix A of the RFC. */
Test(hash, gives_the_digest_of_the_rfc) {
  ons__hash hash;
  unsigned char digest[ONS__HASH_MAX_BYTES];
  char text[2 * ONS__HASH_MAX_BYTES + 1];
  ons__hash_init(&hash, ONS__HASH_MAX_BYTES);
  ons__hash_update(&hash, "abc", 3);
  ons__hash_final(&hash, digest);
  to_hex(digest, sizeof(digest), text);
  cr_expect_str_eq(text,
                   "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
                   "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
}

/* Python's hashlib.blake2b(bytes(i % 251 for i in range(n)), digest_size=32). */
Test(hash, agrees_with_another_implementation_at_every_length_of_interest) {
  static const struct {
    size_t bytes;
    const char* digest;
  } known[] = {
#include "tests/unit/hash_digests.inc"
  };
  unsigned char data[1000];
  for (size_t i = 0; i < sizeof(data); ++i) data[i] = (unsigned char)(i % 251);
  for (size_t i = 0; i < sizeof(known) / sizeof(*known); ++i) {
    unsigned char digest[ONS__HASH_BYTES];
    char text[2 * ONS__HASH_BYTES + 1];
    ons__hash_of(data, known[i].bytes, digest);
    to_hex(digest, sizeof(digest), text);
    cr_expect_str_eq(text, known[i].digest, "%zu bytes", known[i].bytes);
  }
}

Test(hash, does_not_depend_on_how_the_data_is_cut) {
  unsigned char data[700], whole[ONS__HASH_BYTES], cut[ONS__HASH_BYTES];
  for (size_t i = 0; i < sizeof(data); ++i) data[i] = (unsigned char)(i * 7);
  ons__hash_of(data, sizeof(data), whole);
  for (size_t step = 1; step < 300; ++step) {
    ons__hash hash;
    ons__hash_init(&hash, ONS__HASH_BYTES);
    for (size_t at = 0; at < sizeof(data); at += step) {
      size_t rest = sizeof(data) - at;
      ons__hash_update(&hash, data + at, rest < step ? rest : step);
    }
    ons__hash_final(&hash, cut);
    cr_expect_arr_eq(cut, whole, sizeof(whole), "in steps of %zu", step);
  }
}
