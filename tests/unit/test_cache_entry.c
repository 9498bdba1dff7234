/* Entries: what is written comes back, and nothing else does. */
#include "tests/unit/cache_fixture.h"

static const ons__cache_key key = {{1, 2, 3}};

static void add_input(ons__inputs* inputs, ons__input_kind kind, const char* path) {
  ons__input input = {.kind = kind,
                      .path = ons__strdup(NULL, path),
                      .size_bytes = 12,
                      .changed_ns = -5,
                      .digest = {9}};
  cr_assert(ons__inputs_append(inputs, &input));
}

static ons__string make_entry(void) {
  ons__image* image = make_image("some code");
  ons__inputs inputs;
  ons__inputs_init(&inputs, NULL);
  add_input(&inputs, ONS__INPUT_FILE, "/usr/include/math.h");
  add_input(&inputs, ONS__INPUT_ABSENT, "/home/a b/math.h");
  ons__string bytes;
  ons__string_init(&bytes, NULL);
  ons__cache_entry_write(&key, image, &inputs, &bytes);
  cr_assert(ons__string_ok(&bytes));
  ons__inputs_clear(&inputs);
  ons__image_destroy(image);
  return bytes;
}

/* As its own allocation, so that a sanitizer sees a byte too many. */
static bool reads(const ons__cache_key* of, const char* bytes, size_t size) {
  char* copy = malloc(size ? size : 1);
  if (size) memcpy(copy, bytes, size);
  ons__image* image = NULL;
  ons__inputs inputs;
  const bool ok = ons__cache_entry_read(NULL, of, copy, size, &image, &inputs);
  cr_expect(eq(int, ok, image != NULL));
  ons__image_destroy(image);
  ons__inputs_clear(&inputs);
  free(copy);
  return ok;
}

Test(cache_entry, comes_back_as_it_was) {
  ons__string bytes = make_entry();
  ons__image* image = NULL;
  ons__inputs inputs;
  cr_assert(ons__cache_entry_read(NULL, &key, bytes.data, bytes.length, &image, &inputs));
  cr_expect(eq(int, image->kind, ONS__IMAGE_CUBIN));
  cr_expect(eq(sz, image->code_bytes, 9));
  cr_expect_str_eq(image->code, "some code");
  cr_expect_str_eq(image->log, "a warning\n");
  cr_assert(eq(sz, image->kernel_count, 2));
  cr_expect_str_eq(image->kernels[1].name, "axpy<float>");
  cr_expect_str_eq(image->kernels[1].lowered, "_Z4axpy");
  cr_expect_str_eq(image->kernels[1].signature, "FvfPKfE");
  cr_expect_str_eq(image->kernels[0].signature, "");
  cr_assert(eq(sz, inputs.count, 2));
  cr_expect(eq(int, inputs.items[1].kind, ONS__INPUT_ABSENT));
  cr_expect_str_eq(inputs.items[0].path, "/usr/include/math.h");
  cr_expect(eq(u64, inputs.items[0].size_bytes, 12));
  cr_expect(eq(i64, inputs.items[0].changed_ns, -5));
  cr_expect(eq(int, inputs.items[0].digest[0], 9));
  ons__image_destroy(image);
  ons__inputs_clear(&inputs);
  ons__string_clear(&bytes);
}

Test(cache_entry, is_not_that_of_another_key) {
  ons__string bytes = make_entry();
  const ons__cache_key other = {{1, 2, 4}};
  cr_expect(reads(&key, bytes.data, bytes.length));
  cr_expect(not(reads(&other, bytes.data, bytes.length)));
  ons__string_clear(&bytes);
}

Test(cache_entry, is_nothing_when_cut_off_anywhere) {
  ons__string bytes = make_entry();
  for (size_t size = 0; size < bytes.length; ++size) {
    cr_expect(not(reads(&key, bytes.data, size)), "%zu bytes", size);
  }
  ons__string_append(&bytes, "x");
  cr_expect(not(reads(&key, bytes.data, bytes.length)), "a byte too many");
  ons__string_clear(&bytes);
}

Test(cache_entry, is_nothing_when_a_bit_is_wrong_anywhere) {
  ons__string bytes = make_entry();
  for (size_t bit = 0; bit < 8 * bytes.length; ++bit) {
    bytes.data[bit / 8] = (char)(bytes.data[bit / 8] ^ (1 << bit % 8));
    cr_expect(not(reads(&key, bytes.data, bytes.length)), "bit %zu", bit);
    bytes.data[bit / 8] = (char)(bytes.data[bit / 8] ^ (1 << bit % 8));
  }
  cr_expect(reads(&key, bytes.data, bytes.length));
  ons__string_clear(&bytes);
}

/* The checksum does not vouch for the writer: every field is checked by itself. */
Test(cache_entry, is_read_within_its_bounds_whatever_the_checksum_says) {
  ons__string bytes = make_entry();
  char* end = bytes.data + bytes.length - ONS__HASH_BYTES;
  for (char* at = bytes.data; at < end; ++at) {
    for (int value = 0; value < 256; value += 51) {
      const char was = *at;
      *at = (char)value;
      unsigned char digest[ONS__HASH_BYTES];
      ons__hash_of(bytes.data, (size_t)(end - bytes.data), digest);
      memcpy(end, digest, sizeof(digest));
      (void)reads(&key, bytes.data, bytes.length);
      *at = was;
    }
  }
  ons__string_clear(&bytes);
}

/* Written by a version with another layout. */
Test(cache_entry, of_another_schema_is_nothing) {
  ons__string bytes = make_entry();
  bytes.data[8] = (char)(ONS__CACHE_SCHEMA + 1);
  char* end = bytes.data + bytes.length - ONS__HASH_BYTES;
  unsigned char digest[ONS__HASH_BYTES];
  ons__hash_of(bytes.data, (size_t)(end - bytes.data), digest);
  memcpy(end, digest, sizeof(digest));
  cr_expect(not(reads(&key, bytes.data, bytes.length)));
  ons__string_clear(&bytes);
}

/* Though the checksum fits. */
Test(cache_entry, with_more_in_it_than_it_tells_is_nothing) {
  ons__string bytes = make_entry();
  unsigned char digest[ONS__HASH_BYTES];
  bytes.data[bytes.length - ONS__HASH_BYTES] = 'x';
  bytes.length -= ONS__HASH_BYTES - 1;
  ons__hash_of(bytes.data, bytes.length, digest);
  ons__string_append_bytes(&bytes, digest, sizeof(digest));
  cr_expect(not(reads(&key, bytes.data, bytes.length)));
  ons__string_clear(&bytes);
}
