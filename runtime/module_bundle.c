/* Modules into bundles and back. */
#include <onstream/bundle.h>
#include <string.h>

#include "jit/architecture.h"
#include "jit/bundle.h"
#include "runtime/base/alloc.h"
#include "runtime/base/blob.h"
#include "runtime/base/error.h"
#include "runtime/base/path.h"
#include "runtime/base/versioned.h"
#include "runtime/module.h"
#include "runtime/module_table.h"

/* ---- building ---------------------------------------------------------------------- */

static ons_status check_architecture(const char* arch, ons_error* error) {
  const ons__arch_family family = arch ? ons__arch_family_of(arch) : ONS__ARCH_UNKNOWN;
  if (family == ONS__ARCH_UNKNOWN) {
    return ons__error_set(
        error, ONS_STATUS_UNSUPPORTED,
        "no bundles are built for the architecture '%.40s': there are sm_NN, sm_NNa and "
        "compute_NN for GPUs (sm_90), and x86-64, x86-64-v2, -v3, -v4 and aarch64 for "
        "CPUs",
        arch ? arch : "");
  }
  if (family == ONS__ARCH_CPU && !ons__arch_march(arch)) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "the compiler of this machine makes no code for %s: build that "
                          "bundle on such a machine",
                          arch);
  }
  return ONS_STATUS_OK;
}

static ons_status check_options(const ons_bundle_options* options, ons_error* error) {
  if (options->architecture_count == 0 || !options->architectures ||
      (options->kernel_count > 0 && !options->kernels)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "ons_bundle_options has no architecture, or a count without an "
                          "array");
  }
  if (options->flags & ~(uint32_t)ONS_BUNDLE_SOURCE) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "ons_bundle_options.flags has bits that this version does not "
                          "know: set ONS_BUNDLE_* only");
  }
  for (size_t i = 0; i < options->architecture_count; ++i) {
    ons_status status = check_architecture(options->architectures[i], error);
    if (status) return status;
  }
  for (size_t i = 0; i < options->kernel_count; ++i) {
    if (!options->kernels[i]) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "kernels[%zu] is NULL",
                            i);
    }
  }
  return ONS_STATUS_OK;
}

/* Those of the module's plain program, and those asked for, spelt as they will be. */
static ons_status collect_names(ons_module* module, const ons_bundle_options* options,
                                ons__kernel_name** out_names, size_t* out_count,
                                ons_error* error) {
  const ons_allocator* allocator = module->runtime->settings.allocator;
  const ons__program* plain = module->plain;
  const size_t most = plain->name_count + options->kernel_count;
  ons__kernel_name* names = ons__alloc_array(allocator, most + 1, sizeof(*names));
  if (!names) return ons__error_no_memory(error);
  size_t count = 0;
  for (; count < plain->name_count; ++count) names[count] = plain->names[count];
  ons_status status = ONS_STATUS_OK;
  for (size_t i = 0; !status && i < options->kernel_count; ++i) {
    ons_kernel* kernel = NULL;
    status = ons_module_kernel(module, options->kernels[i], &kernel, error);
    if (status) break;
    bool is_there = false;
    for (size_t k = 0; k < count; ++k) {
      is_there |= strcmp(names[k].name, ons_kernel_name(kernel)) == 0;
    }
    char* copy = is_there ? NULL : ons__strdup(allocator, ons_kernel_name(kernel));
    if (!is_there && !copy) status = ons__error_no_memory(error);
    if (copy) names[count++] = (ons__kernel_name){.name = copy, .required = true};
    ons_kernel_release(kernel);
  }
  *out_names = names;
  *out_count = count;
  return status;
}

static void free_names(const ons_module* module, ons__kernel_name* names, size_t count) {
  const ons_allocator* allocator = module->runtime->settings.allocator;
  for (size_t i = module->plain->name_count; names && i < count; ++i) {
    ons__free(allocator, (char*)names[i].name);
  }
  ons__free(allocator, names);
}

static ons_status compile_all(ons_module* module, const ons_bundle_options* options,
                              const ons__kernel_name* names, size_t name_count,
                              ons__bundle_image* images, ons__string* log,
                              ons_error* error) {
  ons_runtime* runtime = module->runtime;
  ons_status status = ONS_STATUS_OK;
  for (size_t i = 0; !status && i < options->architecture_count; ++i) {
    const char* arch = options->architectures[i];
    char* text = NULL;
    const bool is_cpu = ons__arch_family_of(arch) == ONS__ARCH_CPU;
    strncpy(images[i].arch, arch, sizeof(images[i].arch) - 1);
    status = ons__module_compile(module, is_cpu ? runtime->cpu : runtime->cuda, arch,
                                 true, names, name_count, &images[i].image, &text, error);
    const char* wrote = text ? text : images[i].image ? images[i].image->log : NULL;
    if (wrote && *wrote) ons__string_appendf(log, "%s: %s", arch, wrote);
    ons__free(runtime->settings.allocator, text);
  }
  return status;
}

static ons_status build(ons_module* module, const ons_bundle_options* options,
                        ons_blob** out_bundle, ons__string* log, ons_error* error) {
  const ons_allocator* allocator = module->runtime->settings.allocator;
  ons__kernel_name* names = NULL;
  size_t name_count = 0;
  ons__string bytes;
  ons__string_init(&bytes, allocator);
  ons__bundle bundle = {
      .allocator = allocator,
      .name = module->name,
      .source = options->flags & ONS_BUNDLE_SOURCE ? module->source : "",
      .flags = module->flags,
      .options = module->options,
      .option_count = module->option_count,
      .headers = module->headers,
      .header_count = module->header_count,
      .scan = module->scan,
      .variables = module->variables,
      .image_count = options->architecture_count};
  bundle.images =
      ons__alloc_array(allocator, options->architecture_count, sizeof(*bundle.images));
  if (!bundle.images) return ons__error_no_memory(error);
  ons_status status = collect_names(module, options, &names, &name_count, error);
  if (!status) {
    status = compile_all(module, options, names, name_count, bundle.images, log, error);
  }
  if (!status) {
    ons__bundle_write(&bundle, &bytes);
    *out_bundle =
        ons__string_ok(&bytes) ? ons__blob_create(bytes.data, bytes.length) : NULL;
    if (!*out_bundle) status = ons__error_no_memory(error);
  }
  for (size_t i = 0; i < bundle.image_count; ++i) {
    ons__image_destroy(bundle.images[i].image);
  }
  ons__free(allocator, bundle.images);
  free_names(module, names, name_count);
  ons__string_clear(&bytes);
  return status;
}

ons_status ons_module_bundle(ons_module* module, const ons_bundle_options* options,
                             ons_blob** out_bundle, ons_blob** out_log,
                             ons_error* error) {
  if (out_bundle) *out_bundle = NULL;
  if (out_log) *out_log = NULL;
  if (!module || !options || !out_bundle ||
      options->struct_size < sizeof(options->struct_size)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "module, out_bundle or options is NULL, or those are not of "
                          "ONS_BUNDLE_OPTIONS_INIT");
  }
  ons_bundle_options local = ONS_BUNDLE_OPTIONS_INIT;
  ons__versioned_in(&local, sizeof(local), options, options->struct_size);
  ons_status status = check_options(&local, error);
  if (status) return status;
  if (module->bundle && !*module->source) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "%.200s is a bundle without its source: there is nothing to "
                          "compile",
                          module->name);
  }
  ons__string log;
  ons__string_init(&log, module->runtime->settings.allocator);
  status = build(module, &local, out_bundle, &log, error);
  if (out_log && log.length && ons__string_ok(&log)) {
    *out_log = ons__blob_create(log.data, log.length);
  }
  ons__string_clear(&log);
  return status;
}

/* ---- loading ----------------------------------------------------------------------- */

/* Takes what it can use out of its bundle, which keeps the images. */
static bool move_in(ons_module* module, ons__bundle* bundle) {
  const ons_allocator* allocator = bundle->allocator;
  module->bundle = bundle;
  module->name = bundle->name;
  module->source = (char*)bundle->source;
  module->flags = bundle->flags;
  module->options = bundle->options;
  module->option_count = bundle->option_count;
  module->headers = bundle->headers;
  module->header_count = bundle->header_count;
  bundle->name = NULL;
  bundle->source = NULL;
  bundle->options = NULL;
  bundle->headers = NULL;
  bundle->option_count = bundle->header_count = 0;
  ons_module_options options;
  const ons__module_text text = ons__module_text_of(module, &options);
  module->text_hash = ons__module_text_hash(&text);
  module->variables = bundle->variables;
  bundle->variables = (ons__variable_scan){0};
  if (*module->source) {
    return ons__source_scan_run(allocator, module->source, &module->scan);
  }
  module->scan = bundle->scan;
  bundle->scan = (ons__source_scan){0};
  return true;
}

ons_status ons_module_create_from_bundle(ons_runtime* runtime, const void* bytes,
                                         size_t size_bytes, ons_module** out_module,
                                         ons_error* error) {
  if (out_module) *out_module = NULL;
  if (!runtime || !bytes || !out_module) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime, bytes or out_module is NULL");
  }
  const ons_allocator* allocator = runtime->settings.allocator;
  ons__bundle* bundle = NULL;
  ons_status status = ons__bundle_read(allocator, bytes, size_bytes, &bundle, error);
  if (status) return status;
  ons_module* module = ons__alloc(allocator, sizeof(*module));
  if (!module) {
    ons__bundle_destroy(bundle);
    return ons__error_no_memory(error);
  }
  atomic_init(&module->reference_count, 1);
  module->runtime = runtime;
  ons__mutex_init(&module->mutex);
  if (!move_in(module, bundle) || !ons__module_make_plain(module)) {
    ons__module_destroy(module);
    return ons__error_no_memory(error);
  }
  ons_runtime_retain(runtime);
  *out_module = module;
  return ONS_STATUS_OK;
}

ons_status ons_module_create_from_bundle_file(ons_runtime* runtime, const char* path,
                                              ons_module** out_module, ons_error* error) {
  if (out_module) *out_module = NULL;
  if (!runtime || !path || !out_module) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime, path or out_module is NULL");
  }
  const ons_allocator* allocator = runtime->settings.allocator;
  char* bytes = NULL;
  size_t size_bytes = 0;
  ons_status status = ons__file_read(allocator, path, &bytes, &size_bytes, error);
  if (status) return status;
  status = ons_module_create_from_bundle(runtime, bytes, size_bytes, out_module, error);
  if (status) ons__error_prefix(error, "%s", path);
  ons__free(allocator, bytes);
  return status;
}
