#include "runtime/xla_registry.h"

#include <onstream/bundle.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/module.h"
#include "runtime/module_table.h"

enum { BUCKET_COUNT = 1024, DIGEST_BYTES_MAX = 128 };

typedef struct known_module {
  struct known_module* next;
  ons_module* module; /* retained */
  size_t digest_bytes;
  char digest[];
} known_module;

typedef struct known_kernel {
  struct known_kernel* next;
  ons_kernel* kernel; /* retained */
  size_t digest_bytes;
  size_t name_bytes;
  char text[]; /* the digest, and the name that it was asked for by */
} known_kernel;

/* What is added stays, so that readers of the kernels need no lock. */
static struct {
  ons__mutex mutex; /* guards all changes */
  ons_runtime* runtime;
  known_module* modules;
  _Atomic(known_kernel*) kernels[BUCKET_COUNT];
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- the runtime ------------------------------------------------------------------ */

static ons_status get_runtime(ons_runtime** out_runtime, ons_error* error) {
  ons_status status = ONS_STATUS_OK;
  if (!registry.runtime) status = ons_runtime_create(NULL, &registry.runtime, error);
  *out_runtime = registry.runtime;
  return status;
}

ons_status ons_xla_runtime_set(ons_runtime* runtime, ons_error* error) {
  if (!runtime) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "runtime is NULL");
  }
  ons__mutex_lock(&registry.mutex);
  if (!registry.runtime) {
    ons_runtime_retain(runtime);
    registry.runtime = runtime;
  }
  const bool is_in_use = registry.runtime == runtime;
  ons__mutex_unlock(&registry.mutex);
  if (is_in_use) return ONS_STATUS_OK;
  return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                        "XLA's programs use another runtime already: set it before the "
                        "first of them is compiled, and only one in a process");
}

/* ---- modules ---------------------------------------------------------------------- */

/* Of two bundles the bytes count. A file's module has a folder for its quoted includes,
 * which no attribute names: that is not compared. */
static bool modules_match(const ons_module* a, const ons_module* b) {
  if (a->bundle && b->bundle) {
    return memcmp(a->bundle->digest, b->bundle->digest, ONS__HASH_BYTES) == 0;
  }
  ons_module_options options;
  ons__module_text text = ons__module_text_of(b, &options);
  text.folder = a->folder;
  text.hash = ons__module_text_hash(&text);
  return a == b || ons__module_is_of(a, &text);
}

static ons_module* find_module(ons__xla_text digest) {
  for (const known_module* known = registry.modules; known; known = known->next) {
    if (known->digest_bytes == digest.size_bytes &&
        memcmp(known->digest, digest.data, digest.size_bytes) == 0) {
      return known->module;
    }
  }
  return NULL;
}

/* With a reference of its own. An equal module that is known already stays the one. */
static ons_status add_module(ons_module* module, ons__xla_text digest, ons_error* error) {
  if (digest.size_bytes == 0 || digest.size_bytes > DIGEST_BYTES_MAX) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "the digest of module %.200s has %zu bytes: give it 1 to %d",
                          module->name, digest.size_bytes, DIGEST_BYTES_MAX);
  }
  const ons_module* present = find_module(digest);
  if (present) {
    if (modules_match(present, module)) return ONS_STATUS_OK;
    return ons__error_set(
        error, ONS_STATUS_INVALID_ARGUMENT,
        "modules %.200s and %.200s are different, but have the same digest '%.*s': make "
        "it of the whole module, with its name, options, headers and flags",
        present->name, module->name, (int)digest.size_bytes, digest.data);
  }
  known_module* known = ons__alloc(NULL, sizeof(*known) + digest.size_bytes);
  if (!known) return ons__error_no_memory(error);
  ons_module_retain(module);
  known->module = module;
  known->digest_bytes = digest.size_bytes;
  memcpy(known->digest, digest.data, digest.size_bytes);
  known->next = registry.modules;
  registry.modules = known;
  return ONS_STATUS_OK;
}

ons_status ons_xla_module_register(ons_module* module, const char* digest,
                                   ons_error* error) {
  if (!module || !digest) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "module or digest is NULL");
  }
  ons__mutex_lock(&registry.mutex);
  ons_status status = add_module(module, (ons__xla_text){digest, strlen(digest)}, error);
  ons__mutex_unlock(&registry.mutex);
  return status;
}

/* ---- modules of attributes -------------------------------------------------------- */

/* NUL-terminated copies of what the attributes have. */
typedef struct module_text {
  char* source;
  char* name; /* NULL: the default */
  ons_header* headers;
  ons__xla_texts options;
  ons__xla_texts header_texts;
} module_text;

static void clear_text(module_text* text) {
  ons__free(NULL, text->source);
  ons__free(NULL, text->name);
  ons__free(NULL, text->headers);
  ons__xla_texts_clear(&text->options);
  ons__xla_texts_clear(&text->header_texts);
}

static ons_status read_headers(module_text* text, ons_error* error) {
  const size_t count = text->header_texts.count / 2;
  if (text->header_texts.count % 2 != 0) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "attribute 'headers' has %zu texts: give each header a name "
                          "and a content",
                          text->header_texts.count);
  }
  text->headers = ons__alloc_array(NULL, count, sizeof(*text->headers));
  if (!text->headers) return ons__error_no_memory(error);
  for (size_t i = 0; i < count; ++i) {
    text->headers[i] = (ons_header){text->header_texts.texts[2 * i],
                                    text->header_texts.texts[2 * i + 1]};
  }
  return ONS_STATUS_OK;
}

static ons_status read_text(const ons__xla_attributes* attributes, module_text* text,
                            ons_error* error) {
  if (memchr(attributes->source.data, '\0', attributes->source.size_bytes)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "attribute 'source' has a NUL in it: give it source text");
  }
  if (attributes->flags < 0 || attributes->flags > UINT32_MAX) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "attribute 'flags' is %lld: set ONS_MODULE_* only",
                          (long long)attributes->flags);
  }
  const bool has_name = attributes->name.size_bytes > 0;
  text->source =
      ons__strndup(NULL, attributes->source.data, attributes->source.size_bytes);
  if (has_name) {
    text->name = ons__strndup(NULL, attributes->name.data, attributes->name.size_bytes);
  }
  if (!text->source || (has_name && !text->name)) return ons__error_no_memory(error);
  ons_status status =
      ons__xla_texts_read(attributes->options, "options", &text->options, error);
  if (!status) {
    status =
        ons__xla_texts_read(attributes->headers, "headers", &text->header_texts, error);
  }
  return status ? status : read_headers(text, error);
}

static ons_status make_of_text(ons_runtime* runtime,
                               const ons__xla_attributes* attributes,
                               ons_module** out_module, ons_error* error) {
  module_text text = {0};
  ons_status status = read_text(attributes, &text, error);
  if (!status) {
    const ons_module_options options = {
        .struct_size = sizeof(options),
        .flags = (uint32_t)attributes->flags,
        .name = text.name,
        .options = (const char* const*)text.options.texts,
        .option_count = text.options.count,
        .headers = text.headers,
        .header_count = text.header_texts.count / 2,
    };
    status = ons_module_create(runtime, text.source, &options, out_module, error);
  }
  clear_text(&text);
  return status;
}

static ons_status make_module(const ons__xla_attributes* attributes,
                              ons_module** out_module, ons_error* error) {
  const ons__xla_text bundle = attributes->bundle;
  ons_runtime* runtime = NULL;
  ons_status status = get_runtime(&runtime, error);
  if (status) return status;
  return bundle.size_bytes > 0
             ? ons_module_create_from_bundle(runtime, bundle.data, bundle.size_bytes,
                                             out_module, error)
             : make_of_text(runtime, attributes, out_module, error);
}

static ons_status refuse_unknown(const ons__xla_attributes* attributes,
                                 ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_NOT_READY,
      "kernel '%.*s': the program has only the digest of its module ('%.*s'), and this "
      "process knows no module by it: make the same module here before the program is "
      "compiled or loaded (ons_xla_module_register; in Python, onstream.jax.call with "
      "its kernel), or have the program made with embed=\"source\"",
      (int)attributes->kernel.size_bytes, attributes->kernel.data,
      (int)attributes->digest.size_bytes, attributes->digest.data);
}

/* The module known by the digest, and the one that the attributes have, which are to be
 * equal where there are both. */
static ons_status get_module(const ons__xla_attributes* attributes,
                             ons_module** out_module, ons_error* error) {
  if (attributes->source.size_bytes > 0 || attributes->bundle.size_bytes > 0) {
    ons_module* made = NULL;
    ons_status status = make_module(attributes, &made, error);
    if (!status) status = add_module(made, attributes->digest, error);
    ons_module_release(made);
    if (status) return status;
  }
  *out_module = find_module(attributes->digest);
  return *out_module ? ONS_STATUS_OK : refuse_unknown(attributes, error);
}

/* ---- kernels ---------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, ons__xla_text text) {
  const uint64_t factor = 0x9e3779b97f4a7c15u; /* odd, its bits without a pattern */
  hash = (hash ^ text.size_bytes) * factor;
  for (size_t i = 0; i < text.size_bytes; i += sizeof(uint64_t)) {
    const size_t left = text.size_bytes - i;
    uint64_t word = 0;
    memcpy(&word, text.data + i, left < sizeof(word) ? left : sizeof(word));
    hash = (hash ^ word) * factor;
    hash ^= hash >> 32;
  }
  return hash;
}

static _Atomic(known_kernel*)* bucket_of(const ons__xla_attributes* attributes) {
  const uint64_t hash = mix(mix(0, attributes->digest), attributes->kernel);
  return &registry.kernels[hash % BUCKET_COUNT];
}

static bool is_known_as(const known_kernel* known, ons__xla_text digest,
                        ons__xla_text name) {
  return known->digest_bytes == digest.size_bytes &&
         known->name_bytes == name.size_bytes &&
         memcmp(known->text, digest.data, digest.size_bytes) == 0 &&
         memcmp(known->text + digest.size_bytes, name.data, name.size_bytes) == 0;
}

ons_kernel* ons__xla_kernel_find(const ons__xla_attributes* attributes) {
  const known_kernel* known =
      atomic_load_explicit(bucket_of(attributes), memory_order_acquire);
  while (known && !is_known_as(known, attributes->digest, attributes->kernel)) {
    known = known->next;
  }
  return known ? known->kernel : NULL;
}

static ons_status add_kernel(const ons__xla_attributes* attributes, ons_module* module,
                             ons_error* error) {
  const ons__xla_text digest = attributes->digest, name = attributes->kernel;
  known_kernel* known =
      ons__alloc(NULL, sizeof(*known) + digest.size_bytes + name.size_bytes);
  char* text = ons__strndup(NULL, name.data, name.size_bytes);
  ons_status status = known && text
                          ? ons_module_kernel(module, text, &known->kernel, error)
                          : ons__error_no_memory(error);
  ons__free(NULL, text);
  if (status) {
    ons__free(NULL, known);
    return status;
  }
  known->digest_bytes = digest.size_bytes;
  known->name_bytes = name.size_bytes;
  memcpy(known->text, digest.data, digest.size_bytes);
  memcpy(known->text + digest.size_bytes, name.data, name.size_bytes);
  _Atomic(known_kernel*)* bucket = bucket_of(attributes);
  known->next = atomic_load_explicit(bucket, memory_order_relaxed);
  atomic_store_explicit(bucket, known, memory_order_release);
  return ONS_STATUS_OK;
}

ons_status ons__xla_kernel_get(const ons__xla_attributes* attributes,
                               ons_kernel** out_kernel, ons_error* error) {
  ons_module* module = NULL;
  ons__mutex_lock(&registry.mutex);
  ons_status status = get_module(attributes, &module, error);
  if (!status && !ons__xla_kernel_find(attributes)) {
    status = add_kernel(attributes, module, error);
  }
  ons__mutex_unlock(&registry.mutex);
  if (!status) *out_kernel = ons__xla_kernel_find(attributes);
  return status;
}
