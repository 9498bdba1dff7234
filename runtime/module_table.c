#include "runtime/module_table.h"

#include <stdatomic.h>
#include <string.h>

#include "jit/include_scan.h"
#include "runtime/base/alloc.h"
#include "runtime/module.h"

void ons__module_table_init(ons__module_table* table) { ons__mutex_init(&table->mutex); }

void ons__module_table_destroy(ons_runtime* runtime) {
  ons__module_table* table = &runtime->modules;
  for (size_t i = 0; i < table->unused_count; ++i) {
    ons__module_destroy(table->unused[i]);
  }
  ons__free(runtime->settings.allocator, table->buckets);
  ons__mutex_destroy(&table->mutex);
}

/* ---- texts ------------------------------------------------------------------------- */

static const uint64_t kOdd = 0x9e3779b97f4a7c15u;

static inline uint64_t step(uint64_t hash, const char* bytes, size_t count) {
  uint64_t word = 0;
  memcpy(&word, bytes, count);
  hash = (hash ^ word) * kOdd;
  return hash ^ hash >> 32;
}

/* Sources are long and a creation is to be quick: four words at a time, each on its own.
 */
static uint64_t mix(uint64_t hash, const char* text) {
  size_t length = text ? strlen(text) : 0;
  uint64_t lanes[4] = {hash ^ (text ? length : UINT64_MAX), 1, 2, 3};
  for (; length >= 32; length -= 32, text += 32) {
    for (size_t i = 0; i < 4; ++i) lanes[i] = step(lanes[i], text + 8 * i, 8);
  }
  for (; length >= 8; length -= 8, text += 8) lanes[0] = step(lanes[0], text, 8);
  if (length) lanes[0] = step(lanes[0], text, length);
  for (size_t i = 1; i < 4; ++i) lanes[0] = step(lanes[0], (const char*)&lanes[i], 8);
  return lanes[0];
}

uint64_t ons__module_text_hash(const ons__module_text* text) {
  const ons_module_options* options = text->options;
  uint64_t hash = mix(mix(mix(options->flags, text->source), text->name), text->folder);
  for (size_t i = 0; i < options->option_count; ++i)
    hash = mix(hash, options->options[i]);
  for (size_t i = 0; i < options->header_count; ++i) {
    hash = mix(mix(hash, options->headers[i].name), options->headers[i].content);
  }
  return hash;
}

ons__module_text ons__module_text_of(const ons_module* module,
                                     ons_module_options* out_options) {
  *out_options = (ons_module_options){
      .struct_size = sizeof(*out_options),
      .flags = module->flags,
      .options = (const char* const*)module->options,
      .option_count = module->option_count,
      .headers = module->headers,
      .header_count = module->header_count,
  };
  return (ons__module_text){
      .source = module->source, .name = module->name, .options = out_options};
}

static bool same(const char* left, const char* right) {
  return left == right || (left && right && strcmp(left, right) == 0);
}

bool ons__module_is_of(const ons_module* module, const ons__module_text* text) {
  const ons_module_options* options = text->options;
  if (module->text_hash != text->hash || module->flags != options->flags ||
      module->timeout_ms != options->timeout_ms ||
      module->option_count != options->option_count ||
      module->header_count != options->header_count || !same(module->name, text->name) ||
      !same(module->folder, text->folder) || !same(module->source, text->source)) {
    return false;
  }
  for (size_t i = 0; i < module->option_count; ++i) {
    if (!same(module->options[i], options->options[i])) return false;
  }
  for (size_t i = 0; i < module->header_count; ++i) {
    if (!same(module->headers[i].name, options->headers[i].name) ||
        !same(module->headers[i].content, options->headers[i].content)) {
      return false;
    }
  }
  return true;
}

/* ---- which may be shared ----------------------------------------------------------- */

typedef struct reach {
  const ons_module* module;
  bool has_files; /* of the user's, which may change */
} reach;

static void look_at_include(void* context, const ons__include* include) {
  reach* self = context;
  const ons_module* module = self->module;
  for (size_t i = 0; include->name && i < module->header_count; ++i) {
    if (strcmp(include->name, module->headers[i].name) == 0) return;
  }
  /* The compiler's and CUDA's own headers stay as they are, and no option leads away from
     them. */
  if (!include->name || include->is_quoted || module->option_count > 0) {
    self->has_files = true;
  }
}

static bool names_a_file(const char* option) {
  return strncmp(option, "-include", 8) == 0 ||
         strncmp(option, "--pre-include", 13) == 0 || *option == '@';
}

/* Variables make modules that have the same text two things. */
static bool may_be_shared(const ons_module* module) {
  const ons_allocator* allocator = module->runtime->settings.allocator;
  reach self = {.module = module};
  if (module->variables.count > 0 ||
      ons__source_has_identifier(module->source, "static", 6) ||
      !ons__include_scan(allocator, module->source, look_at_include, &self)) {
    return false;
  }
  for (size_t i = 0; i < module->header_count; ++i) {
    if (ons__source_has_identifier(module->headers[i].content, "static", 6) ||
        ons__source_has_identifier(module->headers[i].content, "__device__", 10) ||
        !ons__include_scan(allocator, module->headers[i].content, look_at_include,
                           &self)) {
      return false;
    }
  }
  for (size_t i = 0; i < module->option_count; ++i) {
    if (names_a_file(module->options[i])) return false;
  }
  return !self.has_files;
}

/* ---- the table --------------------------------------------------------------------- */

static ons_module** bucket_of(const ons__module_table* table, uint64_t hash) {
  return &table->buckets[hash & (table->bucket_count - 1)];
}

static bool grow(const ons_allocator* allocator, ons__module_table* table) {
  if (table->count < table->bucket_count) return true;
  ons__module_table larger = {.bucket_count =
                                  table->bucket_count ? 2 * table->bucket_count : 64};
  larger.buckets =
      ons__alloc_array(allocator, larger.bucket_count, sizeof(*larger.buckets));
  if (!larger.buckets) return false;
  for (size_t i = 0; i < table->bucket_count; ++i) {
    while (table->buckets[i]) {
      ons_module* module = table->buckets[i];
      table->buckets[i] = module->next_in_bucket;
      module->next_in_bucket = *bucket_of(&larger, module->text_hash);
      *bucket_of(&larger, module->text_hash) = module;
    }
  }
  ons__free(allocator, table->buckets);
  table->buckets = larger.buckets;
  table->bucket_count = larger.bucket_count;
  return true;
}

static void take_out(ons__module_table* table, ons_module* module) {
  ons_module** link = bucket_of(table, module->text_hash);
  while (*link != module) link = &(*link)->next_in_bucket;
  *link = module->next_in_bucket;
  --table->count;
}

static void use_again(ons__module_table* table, ons_module* module) {
  size_t place = 0;
  while (table->unused[place] != module) ++place;
  memmove(&table->unused[place], &table->unused[place + 1],
          (--table->unused_count - place) * sizeof(*table->unused));
  ons_runtime_retain(module->runtime);
}

/* With the lock. */
static ons_module* find(ons__module_table* table, const ons__module_text* text) {
  if (table->bucket_count == 0) return NULL;
  ons_module* module = *bucket_of(table, text->hash);
  while (module && !ons__module_is_of(module, text)) module = module->next_in_bucket;
  if (module && atomic_fetch_add(&module->reference_count, 1) == 0) {
    use_again(table, module);
  }
  return module;
}

ons_module* ons__module_table_find(ons_runtime* runtime, const ons__module_text* text) {
  ons__mutex_lock(&runtime->modules.mutex);
  ons_module* module = find(&runtime->modules, text);
  ons__mutex_unlock(&runtime->modules.mutex);
  return module;
}

ons_module* ons__module_table_add(ons_module* module, const ons__module_text* text) {
  ons__module_table* table = &module->runtime->modules;
  if (!may_be_shared(module)) return NULL;
  ons__mutex_lock(&table->mutex);
  ons_module* other = find(table, text);
  if (!other && grow(module->runtime->settings.allocator, table)) {
    module->is_shared = true;
    module->next_in_bucket = *bucket_of(table, text->hash);
    *bucket_of(table, text->hash) = module;
    ++table->count;
  }
  ons__mutex_unlock(&table->mutex);
  return other;
}

bool ons__module_table_drop(ons_module* module, ons_module** out_victim) {
  ons__module_table* table = &module->runtime->modules;
  *out_victim = NULL;
  ons__mutex_lock(&table->mutex);
  const bool is_last = atomic_fetch_sub(&module->reference_count, 1) == 1;
  if (is_last) {
    if (table->unused_count == ONS__MODULES_UNUSED) {
      *out_victim = table->unused[--table->unused_count];
      take_out(table, *out_victim);
    }
    memmove(&table->unused[1], &table->unused[0],
            table->unused_count++ * sizeof(*table->unused));
    table->unused[0] = module;
  }
  ons__mutex_unlock(&table->mutex);
  return is_last;
}
