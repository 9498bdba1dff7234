#include "jit/cache_key.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "jit/cache_entry.h"
#include "jit/embedded.h"

/* Every field has its length in front: no two lists of fields are the same bytes. */
static void add_bytes(ons__hash* hash, const void* data, size_t size_bytes) {
  unsigned char length[8];
  for (size_t i = 0; i < sizeof(length); ++i) {
    length[i] = (unsigned char)((uint64_t)size_bytes >> (8 * i));
  }
  ons__hash_update(hash, length, sizeof(length));
  ons__hash_update(hash, data, size_bytes);
}

static void add_text(ons__hash* hash, const char* text) {
  add_bytes(hash, text, strlen(text));
}

static void add_number(ons__hash* hash, uint64_t number) {
  unsigned char bytes[8];
  for (size_t i = 0; i < sizeof(bytes); ++i)
    bytes[i] = (unsigned char)(number >> (8 * i));
  ons__hash_update(hash, bytes, sizeof(bytes));
}

static bool mentions_time(const char* text) {
  return strstr(text, "__TIME") || strstr(text, "__DATE__");
}

static bool may_include(const ons__compile_request* request) {
  bool found =
      strstr(request->source, "include") != NULL || strchr(request->source, '\\');
  for (size_t i = 0; !found && i < request->header_count; ++i) {
    found = strstr(request->headers[i].content, "include") != NULL ||
            strchr(request->headers[i].content, '\\');
  }
  return found || request->option_count > 0;
}

/* Relative names of files are looked for here. */
static bool add_place(ons__hash* hash, const ons__compile_request* request) {
  char here[PATH_MAX];
  if (!getcwd(here, sizeof(here))) return false;
  add_text(hash, here);
  add_number(hash, request->folder != NULL);
  if (request->folder) add_text(hash, request->folder);
  return true;
}

bool ons__cache_key_make(const ons__compile_request* request, const char* backend,
                         const char* identity, ons__cache_key* out_key) {
  if (mentions_time(request->source)) return false;
  ons__hash hash;
  ons__hash_init(&hash, ONS__HASH_BYTES);
  add_number(&hash, ONS__CACHE_SCHEMA);
  add_text(&hash, ons__text_digest);
  add_text(&hash, backend);
  add_text(&hash, identity);
  add_text(&hash, request->arch);
  add_text(&hash, request->name);
  add_text(&hash, request->source);
  add_number(&hash, request->is_checked);
  add_number(&hash, request->option_count);
  for (size_t i = 0; i < request->option_count; ++i) {
    if (mentions_time(request->options[i])) return false;
    add_text(&hash, request->options[i]);
  }
  add_number(&hash, request->header_count);
  for (size_t i = 0; i < request->header_count; ++i) {
    if (mentions_time(request->headers[i].content)) return false;
    add_text(&hash, request->headers[i].name);
    add_text(&hash, request->headers[i].content);
  }
  add_number(&hash, request->kernel_count);
  for (size_t i = 0; i < request->kernel_count; ++i) {
    add_text(&hash, request->kernels[i].name);
    add_number(&hash, request->kernels[i].required);
    add_number(&hash, request->kernels[i].is_variable);
  }
  if (may_include(request) && !add_place(&hash, request)) return false;
  ons__hash_final(&hash, out_key->bytes);
  return true;
}
