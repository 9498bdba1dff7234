#include "jit/cache_entry.h"

#include <string.h>

#include "jit/encoding.h"

static const char magic[8] = "ONSCACHE";

void ons__cache_entry_write(const ons__cache_key* key, const ons__image* image,
                            const ons__inputs* inputs, ons__string* out_bytes) {
  ons__string* out = out_bytes;
  ons__string_append_bytes(out, magic, sizeof(magic));
  ons__write_number(out, ONS__CACHE_SCHEMA, 4);
  ons__string_append_bytes(out, key->bytes, sizeof(key->bytes));
  ons__write_inputs(out, inputs);
  ons__write_image(out, image);
  ons__write_digest(out);
}

/* The front of an entry of the key, and the digest at its end. */
static bool open_entry(ons__reader* in, const ons__cache_key* key) {
  if (!ons__read_digest(in)) return false;
  const char* found = ons__read_bytes(in, sizeof(magic));
  if (!found || memcmp(found, magic, sizeof(magic)) != 0) return false;
  if (ons__read_number(in, 4) != ONS__CACHE_SCHEMA) return false;
  found = ons__read_bytes(in, sizeof(key->bytes));
  return found && memcmp(found, key->bytes, sizeof(key->bytes)) == 0;
}

bool ons__cache_entry_read(const ons_allocator* allocator, const ons__cache_key* key,
                           const char* bytes, size_t size_bytes, ons__image** out_image,
                           ons__inputs* out_inputs) {
  *out_image = NULL;
  *out_inputs = (ons__inputs){.allocator = allocator};
  ons__reader in = {.allocator = allocator, .at = bytes, .left_bytes = size_bytes};
  if (!open_entry(&in, key)) return false;
  ons__read_inputs(&in, out_inputs);
  ons__image* image = ons__read_image(&in);
  if (image && in.left_bytes == 0) {
    *out_image = image;
    return true;
  }
  ons__image_destroy(image);
  ons__inputs_clear(out_inputs);
  return false;
}
