#include "jit/cache_entry.h"

#include <string.h>

#include "runtime/base/alloc.h"

static const char magic[8] = "ONSCACHE";

/* ---- writing ---------------------------------------------------------------------- */

static void write_number(ons__string* out, uint64_t number, size_t size_bytes) {
  unsigned char bytes[8];
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = (unsigned char)(number >> (8 * i));
  ons__string_append_bytes(out, bytes, size_bytes);
}

static void write_text(ons__string* out, const char* text) {
  const size_t length = strlen(text);
  out->failed |= length > UINT32_MAX;
  write_number(out, length, 4);
  ons__string_append_bytes(out, text, length);
}

static void write_input(ons__string* out, const ons__input* input) {
  write_number(out, (uint64_t)input->kind, 1);
  write_text(out, input->path);
  write_number(out, input->size_bytes, 8);
  write_number(out, (uint64_t)input->changed_ns, 8);
  ons__string_append_bytes(out, input->digest, sizeof(input->digest));
}

void ons__cache_entry_write(const ons__cache_key* key, const ons__image* image,
                            const ons__inputs* inputs, ons__string* out_bytes) {
  ons__string* out = out_bytes;
  ons__string_append_bytes(out, magic, sizeof(magic));
  write_number(out, ONS__CACHE_SCHEMA, 4);
  ons__string_append_bytes(out, key->bytes, sizeof(key->bytes));
  write_number(out, (uint64_t)image->kind, 4);
  write_number(out, image->kernel_count, 4);
  for (size_t i = 0; i < image->kernel_count; ++i) {
    write_text(out, image->kernels[i].name);
    write_text(out, image->kernels[i].lowered);
    write_text(out, image->kernels[i].signature);
  }
  write_text(out, image->log);
  write_number(out, inputs->count, 4);
  for (size_t i = 0; i < inputs->count; ++i) write_input(out, &inputs->items[i]);
  write_number(out, image->code_bytes, 8);
  ons__string_append_bytes(out, image->code, image->code_bytes);
  if (out->failed) return;
  unsigned char digest[ONS__HASH_BYTES];
  ons__hash_of(out->data, out->length, digest);
  ons__string_append_bytes(out, digest, sizeof(digest));
}

/* ---- reading ---------------------------------------------------------------------- */

typedef struct reader {
  const ons_allocator* allocator;
  const char* at;
  size_t left_bytes;
  bool failed; /* stays; everything read after it is 0, or NULL */
} reader;

static const char* take(reader* in, uint64_t size_bytes) {
  if (in->failed || size_bytes > in->left_bytes) {
    in->failed = true;
    return NULL;
  }
  const char* bytes = in->at;
  in->at += size_bytes;
  in->left_bytes -= (size_t)size_bytes;
  return bytes;
}

static uint64_t read_number(reader* in, size_t size_bytes) {
  const char* bytes = take(in, size_bytes);
  uint64_t number = 0;
  for (size_t i = size_bytes; bytes && i-- > 0;) {
    number = (number << 8) | (unsigned char)bytes[i];
  }
  return number;
}

/* A copy of the caller's; NULL is a failure. */
static char* read_copy(reader* in, uint64_t size_bytes) {
  const char* bytes = take(in, size_bytes);
  char* copy = bytes ? ons__strndup(in->allocator, bytes, (size_t)size_bytes) : NULL;
  in->failed |= !copy;
  return copy;
}

static char* read_text(reader* in) {
  const uint64_t length = read_number(in, 4);
  char* text = read_copy(in, length);
  if (text && strlen(text) != length) in->failed = true;
  return text;
}

static void read_kernels(reader* in, ons__image* image) {
  enum { LEAST_BYTES = 12 };
  const uint64_t count = read_number(in, 4);
  if (count > in->left_bytes / LEAST_BYTES) in->failed = true;
  if (in->failed) return;
  image->kernels =
      ons__alloc_array(image->allocator, (size_t)count + 1, sizeof(*image->kernels));
  in->failed |= !image->kernels;
  while (!in->failed && image->kernel_count < count) {
    ons__image_kernel* kernel = &image->kernels[image->kernel_count++];
    kernel->name = read_text(in);
    kernel->lowered = read_text(in);
    kernel->signature = read_text(in);
  }
}

static void read_inputs(reader* in, ons__inputs* inputs) {
  const uint64_t count = read_number(in, 4);
  for (uint64_t i = 0; !in->failed && i < count; ++i) {
    ons__input input = {.kind = (ons__input_kind)read_number(in, 1)};
    input.path = read_text(in);
    input.size_bytes = read_number(in, 8);
    input.changed_ns = (int64_t)read_number(in, 8);
    const char* digest = take(in, sizeof(input.digest));
    if (digest) memcpy(input.digest, digest, sizeof(input.digest));
    in->failed |= input.kind < ONS__INPUT_FILE || input.kind > ONS__INPUT_TOOL;
    if (!in->failed) {
      in->failed |= !ons__inputs_append(inputs, &input);
    } else {
      ons__free(in->allocator, input.path);
    }
  }
}

static void read_image(reader* in, ons__image* image, ons__inputs* inputs) {
  image->kind = (ons__image_kind)read_number(in, 4);
  in->failed |= image->kind < ONS__IMAGE_CUBIN || image->kind > ONS__IMAGE_SHARED_OBJECT;
  read_kernels(in, image);
  image->log = read_text(in);
  read_inputs(in, inputs);
  const uint64_t code_bytes = read_number(in, 8);
  image->code = read_copy(in, code_bytes);
  image->code_bytes = (size_t)code_bytes;
}

/* The front of an entry of the key, and the digest at its end. */
static bool open_entry(reader* in, const ons__cache_key* key) {
  const char* found = take(in, sizeof(magic));
  if (!found || memcmp(found, magic, sizeof(magic)) != 0) return false;
  if (read_number(in, 4) != ONS__CACHE_SCHEMA) return false;
  found = take(in, sizeof(key->bytes));
  if (!found || memcmp(found, key->bytes, sizeof(key->bytes)) != 0) return false;
  if (in->left_bytes < ONS__HASH_BYTES) return false;
  in->left_bytes -= ONS__HASH_BYTES;
  return true;
}

bool ons__cache_entry_read(const ons_allocator* allocator, const ons__cache_key* key,
                           const char* bytes, size_t size_bytes, ons__image** out_image,
                           ons__inputs* out_inputs) {
  *out_image = NULL;
  *out_inputs = (ons__inputs){.allocator = allocator};
  reader in = {.allocator = allocator, .at = bytes, .left_bytes = size_bytes};
  if (!open_entry(&in, key)) return false;
  unsigned char digest[ONS__HASH_BYTES];
  ons__hash_of(bytes, size_bytes - ONS__HASH_BYTES, digest);
  if (memcmp(digest, bytes + size_bytes - ONS__HASH_BYTES, sizeof(digest)) != 0)
    return false;

  ons__image* image = ons__alloc(allocator, sizeof(*image));
  if (!image) return false;
  image->allocator = allocator;
  read_image(&in, image, out_inputs);
  if (in.failed || in.left_bytes > 0) {
    ons__image_destroy(image);
    ons__inputs_clear(out_inputs);
    return false;
  }
  *out_image = image;
  return true;
}
