#include "jit/encoding.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"

/* ---- writing ---------------------------------------------------------------------- */

void ons__write_number(ons__string* out, uint64_t number, size_t size_bytes) {
  unsigned char bytes[8];
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = (unsigned char)(number >> (8 * i));
  ons__string_append_bytes(out, bytes, size_bytes);
}

void ons__write_text(ons__string* out, const char* text) {
  const size_t length = strlen(text);
  out->failed |= length > UINT32_MAX;
  ons__write_number(out, length, 4);
  ons__string_append_bytes(out, text, length);
}

void ons__write_image(ons__string* out, const ons__image* image) {
  ons__write_number(out, (uint64_t)image->kind, 4);
  ons__write_number(out, image->kernel_count, 4);
  for (size_t i = 0; i < image->kernel_count; ++i) {
    ons__write_text(out, image->kernels[i].name);
    ons__write_text(out, image->kernels[i].lowered);
    ons__write_text(out, image->kernels[i].signature);
  }
  ons__write_text(out, image->log);
  ons__write_number(out, image->code_bytes, 8);
  ons__string_append_bytes(out, image->code, image->code_bytes);
}

static void write_input(ons__string* out, const ons__input* input) {
  ons__write_number(out, (uint64_t)input->kind, 1);
  ons__write_text(out, input->path);
  ons__write_number(out, input->size_bytes, 8);
  ons__write_number(out, (uint64_t)input->changed_ns, 8);
  ons__string_append_bytes(out, input->digest, sizeof(input->digest));
}

void ons__write_inputs(ons__string* out, const ons__inputs* inputs) {
  ons__write_number(out, inputs->count, 4);
  for (size_t i = 0; i < inputs->count; ++i) write_input(out, &inputs->items[i]);
}

void ons__write_digest(ons__string* out) {
  if (out->failed) return;
  unsigned char digest[ONS__HASH_BYTES];
  ons__hash_of(out->data, out->length, digest);
  ons__string_append_bytes(out, digest, sizeof(digest));
}

/* ---- reading ---------------------------------------------------------------------- */

bool ons__read_digest(ons__reader* in) {
  if (in->left_bytes < ONS__HASH_BYTES) return false;
  in->left_bytes -= ONS__HASH_BYTES;
  unsigned char digest[ONS__HASH_BYTES];
  ons__hash_of(in->at, in->left_bytes, digest);
  return memcmp(digest, in->at + in->left_bytes, sizeof(digest)) == 0;
}

const char* ons__read_bytes(ons__reader* in, uint64_t size_bytes) {
  if (in->failed || size_bytes > in->left_bytes) {
    in->failed = true;
    return NULL;
  }
  const char* bytes = in->at;
  in->at += size_bytes;
  in->left_bytes -= (size_t)size_bytes;
  return bytes;
}

uint64_t ons__read_number(ons__reader* in, size_t size_bytes) {
  const char* bytes = ons__read_bytes(in, size_bytes);
  uint64_t number = 0;
  for (size_t i = size_bytes; bytes && i-- > 0;) {
    number = (number << 8) | (unsigned char)bytes[i];
  }
  return number;
}

/* NULL is a failure. */
static char* read_copy(ons__reader* in, uint64_t size_bytes) {
  const char* bytes = ons__read_bytes(in, size_bytes);
  char* copy = bytes ? ons__strndup(in->allocator, bytes, (size_t)size_bytes) : NULL;
  in->failed |= !copy;
  return copy;
}

char* ons__read_text(ons__reader* in) {
  const uint64_t length = ons__read_number(in, 4);
  char* text = read_copy(in, length);
  if (text && strlen(text) != length) in->failed = true;
  return text;
}

size_t ons__read_count(ons__reader* in, size_t least_bytes) {
  const uint64_t count = ons__read_number(in, 4);
  if (count > in->left_bytes / least_bytes) in->failed = true;
  return in->failed ? 0 : (size_t)count;
}

static void read_kernels(ons__reader* in, ons__image* image) {
  const size_t count = ons__read_count(in, 12);
  if (in->failed) return;
  image->kernels = ons__alloc_array(image->allocator, count + 1, sizeof(*image->kernels));
  in->failed |= !image->kernels;
  while (!in->failed && image->kernel_count < count) {
    ons__image_kernel* kernel = &image->kernels[image->kernel_count++];
    kernel->name = ons__read_text(in);
    kernel->lowered = ons__read_text(in);
    kernel->signature = ons__read_text(in);
  }
}

ons__image* ons__read_image(ons__reader* in) {
  ons__image* image = ons__alloc(in->allocator, sizeof(*image));
  in->failed |= !image;
  if (in->failed) goto fail;
  image->allocator = in->allocator;
  image->kind = (ons__image_kind)ons__read_number(in, 4);
  in->failed |= image->kind < ONS__IMAGE_CUBIN || image->kind > ONS__IMAGE_SHARED_OBJECT;
  read_kernels(in, image);
  image->log = ons__read_text(in);
  const uint64_t code_bytes = ons__read_number(in, 8);
  image->code = read_copy(in, code_bytes);
  image->code_bytes = (size_t)code_bytes;
  if (!in->failed) return image;
fail:
  ons__image_destroy(image);
  return NULL;
}

void ons__read_inputs(ons__reader* in, ons__inputs* inputs) {
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
