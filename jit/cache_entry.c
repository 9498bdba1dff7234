#include "jit/cache_entry.h"

#include <string.h>

#include "jit/encoding.h"
#include "runtime/base/alloc.h"

static const char magic[8] = "ONSCACHE";

static void write_input(ons__string* out, const ons__input* input) {
  ons__write_number(out, (uint64_t)input->kind, 1);
  ons__write_text(out, input->path);
  ons__write_number(out, input->size_bytes, 8);
  ons__write_number(out, (uint64_t)input->changed_ns, 8);
  ons__string_append_bytes(out, input->digest, sizeof(input->digest));
}

void ons__cache_entry_write(const ons__cache_key* key, const ons__image* image,
                            const ons__inputs* inputs, ons__string* out_bytes) {
  ons__string* out = out_bytes;
  ons__string_append_bytes(out, magic, sizeof(magic));
  ons__write_number(out, ONS__CACHE_SCHEMA, 4);
  ons__string_append_bytes(out, key->bytes, sizeof(key->bytes));
  ons__write_number(out, inputs->count, 4);
  for (size_t i = 0; i < inputs->count; ++i) write_input(out, &inputs->items[i]);
  ons__write_image(out, image);
  ons__write_digest(out);
}

static void read_inputs(ons__reader* in, ons__inputs* inputs) {
  enum { LEAST_BYTES = 21 + ONS__HASH_BYTES };
  const size_t count = ons__read_count(in, LEAST_BYTES);
  for (size_t i = 0; !in->failed && i < count; ++i) {
    ons__input input = {.kind = (ons__input_kind)ons__read_number(in, 1)};
    input.path = ons__read_text(in);
    input.size_bytes = ons__read_number(in, 8);
    input.changed_ns = (int64_t)ons__read_number(in, 8);
    const char* digest = ons__read_bytes(in, sizeof(input.digest));
    if (digest) memcpy(input.digest, digest, sizeof(input.digest));
    in->failed |= input.kind < ONS__INPUT_FILE || input.kind > ONS__INPUT_TOOL;
    if (!in->failed) {
      in->failed |= !ons__inputs_append(inputs, &input);
    } else {
      ons__free(in->allocator, input.path);
    }
  }
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
  read_inputs(&in, out_inputs);
  ons__image* image = ons__read_image(&in);
  if (image && in.left_bytes == 0) {
    *out_image = image;
    return true;
  }
  ons__image_destroy(image);
  ons__inputs_clear(out_inputs);
  return false;
}
