#include "runtime/program.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/blob.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/module.h"

void ons__loaded_retain(ons__loaded* loaded) {
  atomic_fetch_add_explicit(&loaded->reference_count, 1, memory_order_relaxed);
}

void ons__loaded_release(ons__loaded* loaded, const ons_allocator* allocator) {
  if (!loaded) return;
  if (atomic_fetch_sub_explicit(&loaded->reference_count, 1, memory_order_acq_rel) != 1)
    return;
  loaded->binary->device->backend->ops->unload(loaded->binary);
  ons__free(allocator, loaded);
}

ons__program* ons__program_create(ons_module* module, const ons__kernel_name* names,
                                  size_t name_count) {
  const ons_allocator* allocator = module->runtime->settings.allocator;
  ons__program* program = ons__alloc(allocator, sizeof(*program));
  if (!program) return NULL;
  program->module = module;
  ons__long_lock_init(&program->lock);
  program->names = ons__alloc_array(allocator, name_count, sizeof(*names));
  if (!program->names) goto fail;
  for (; program->name_count < name_count; ++program->name_count) {
    const ons__kernel_name* name = &names[program->name_count];
    char* copy = ons__strdup(allocator, name->name);
    if (!copy) goto fail;
    program->names[program->name_count] =
        (ons__kernel_name){copy, name->required, name->is_variable};
  }
  return program;
fail:
  ons__program_destroy(program);
  return NULL;
}

void ons__program_destroy(ons__program* program) {
  if (!program) return;
  const ons_allocator* allocator = program->module->runtime->settings.allocator;
  for (int slot = 0; slot < ONS__SLOT_COUNT; ++slot) {
    ons__loaded_release(program->loaded[slot], allocator);
  }
  while (program->images) {
    ons__program_image* next = program->images->next;
    if (!program->images->is_borrowed) ons__image_destroy(program->images->image);
    ons__free(allocator, program->images);
    program->images = next;
  }
  for (size_t i = 0; i < program->name_count; ++i) {
    ons__free(allocator, (char*)program->names[i].name);
  }
  ons__free(allocator, program->names);
  ons__long_lock_destroy(&program->lock);
  ons__free(allocator, program);
}

static ons__program_image* find_image(const ons__program* program,
                                      const ons__device* device) {
  for (ons__program_image* image = program->images; image; image = image->next) {
    if (image->backend == device->backend->ops &&
        strcmp(image->arch, device->arch) == 0) {
      return image;
    }
  }
  return NULL;
}

static ons_status compile_new(void* backend_, const ons__compile_request* request,
                              ons__image** out_image, char** out_log, ons_error* error) {
  ons__backend* backend = backend_;
  const uint64_t begun_ms = ons__log_now_ms();
  ons_status status = backend->ops->compile(backend, request, out_image, out_log, error);
  ons__log(backend->settings->log_areas, ONS__LOG_COMPILE,
           "%s for %s: %s, %zu name(s), %llu ms", request->name, request->arch,
           ons_status_text(status), request->kernel_count,
           (unsigned long long)(ons__log_now_ms() - begun_ms));
  return status;
}

static bool make_key(ons__backend* backend, const ons__compile_request* request,
                     ons__cache_key* out_key) {
  ons__string identity;
  ons__string_init(&identity, request->allocator);
  const ons__backend_ops* ops = backend->ops;
  const bool ok =
      ops->identify(backend, request, &identity) && ons__string_ok(&identity) &&
      ons__cache_key_make(request, ops->name, ons__string_text(&identity), out_key);
  ons__string_clear(&identity);
  return ok;
}

ons_status ons__module_compile(const ons_module* module, ons__backend* backend,
                               const char* arch, bool is_exact,
                               const ons__kernel_name* names, size_t name_count,
                               ons__image** out_image, char** out_log, ons_error* error) {
  const ons__compile_request request = {
      .allocator = module->runtime->settings.allocator,
      .source = module->source,
      .name = module->name,
      .folder = module->folder,
      .options = (const char* const*)module->options,
      .option_count = module->option_count,
      .headers = module->headers,
      .header_count = module->header_count,
      .kernels = names,
      .kernel_count = name_count,
      .arch = arch,
      .is_exact = is_exact,
      .is_isolated = module->flags & ONS_MODULE_ISOLATE,
      .timeout_ms = module->timeout_ms,
      .is_checked = module->flags & ONS_MODULE_CHECK,
  };
  ons__cache* cache = module->runtime->cache;
  ons__cache_key key;
  if (!ons__cache_path(cache) || !make_key(backend, &request, &key)) {
    return compile_new(backend, &request, out_image, out_log, error);
  }
  return ons__cache_compile(cache, &key, &request, compile_new, backend, out_image,
                            out_log, error);
}

static ons_status lacks_code(const ons__program* program, const ons__device* device,
                             ons_error* error) {
  const ons_module* module = program->module;
  if (program != module->plain) {
    return ons__error_set(error, ONS_STATUS_NOT_FOUND,
                          "%.200s is a bundle without its source, and '%.200s' is not in "
                          "it: build it with that kernel named",
                          module->name, program->names[0].name);
  }
  ons__string list;
  ons__string_init(&list, module->runtime->settings.allocator);
  ons__bundle_list(module->bundle, &list);
  ons_status status = ons__error_set(
      error, ONS_STATUS_UNSUPPORTED,
      "the bundle of %.200s has no code that runs on %s (%s), and no source to compile; "
      "it has %s",
      module->name, device->name, device->arch, ons__string_text(&list));
  ons__string_clear(&list);
  return status;
}

/* Out of the module's bundle, or compiled. */
static ons_status get_image(ons__program* program, ons__device* device,
                            ons__program_image* entry, char** out_log, ons_error* error) {
  const ons_module* module = program->module;
  if (module->bundle && program == module->plain) {
    const ons__bundle_image* found = ons__bundle_find(module->bundle, device->arch);
    entry->image = found ? found->image : NULL;
    entry->is_borrowed = found != NULL;
    if (found) return ONS_STATUS_OK;
  }
  if (module->bundle && !*module->source) return lacks_code(program, device, error);
  return ons__module_compile(module, device->backend, device->arch, false, program->names,
                             program->name_count, &entry->image, out_log, error);
}

static ons_status add_image(ons__program* program, ons__device* device,
                            ons__program_image** out_image, char** out_log,
                            ons_error* error) {
  const ons_allocator* allocator = program->module->runtime->settings.allocator;
  ons__program_image* entry = ons__alloc(allocator, sizeof(*entry));
  if (!entry) return ons__error_no_memory(error);
  ons_status status = get_image(program, device, entry, out_log, error);
  if (status) {
    ons__free(allocator, entry);
    return status;
  }
  entry->backend = device->backend->ops;
  memcpy(entry->arch, device->arch, sizeof(entry->arch));
  entry->next = program->images;
  program->images = entry;
  *out_image = entry;
  return ONS_STATUS_OK;
}

static ons_status load(ons__program* program, ons__device* device, int slot,
                       const ons__image* image, ons_error* error) {
  const ons_allocator* allocator = program->module->runtime->settings.allocator;
  ons__loaded* loaded = ons__alloc(allocator, sizeof(*loaded));
  if (!loaded) return ons__error_no_memory(error);
  atomic_init(&loaded->reference_count, 1);
  ons_status status = device->backend->ops->load(device, image, &loaded->binary, error);
  if (status) {
    ons__free(allocator, loaded);
    return status;
  }
  program->loaded[slot] = loaded;
  return ONS_STATUS_OK;
}

ons_status ons__program_load(ons__program* program, ons__device_entry* entry, int slot,
                             const ons__image** out_image, ons__loaded** out_loaded,
                             ons_blob** out_log, ons_error* error) {
  const ons_allocator* allocator = program->module->runtime->settings.allocator;
  char* log = NULL;
  ons_status status = ONS_STATUS_OK;
  ons__long_lock_take(&program->lock);
  ons__program_image* image = find_image(program, entry->device);
  if (!image) {
    status = add_image(program, entry->device, &image, &log, error);
  }
  if (!status && out_loaded && !program->loaded[slot]) {
    status = load(program, entry->device, slot, image->image, error);
  }
  if (!status) {
    *out_image = image->image;
    if (out_loaded) *out_loaded = program->loaded[slot];
  }
  if (out_log) {
    const char* text = log ? log : image ? image->image->log : NULL;
    if (text && text[0]) *out_log = ons__blob_create(text, strlen(text));
  }
  ons__long_lock_release(&program->lock);
  ons__free(allocator, log);
  return status;
}
