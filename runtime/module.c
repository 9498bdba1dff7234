#include "runtime/module.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/path.h"
#include "runtime/base/versioned.h"
#include "runtime/kernel.h"
#include "runtime/module_table.h"

/* ---- creation --------------------------------------------------------------------- */

void ons__module_destroy(ons_module* module) {
  if (!module) return;
  const ons_allocator* allocator = module->runtime->settings.allocator;
  while (module->programs) {
    ons__program* next = module->programs->next;
    ons__program_destroy(module->programs);
    module->programs = next;
  }
  for (size_t i = 0; module->options && i < module->option_count; ++i) {
    ons__free(allocator, module->options[i]);
  }
  for (size_t i = 0; module->headers && i < module->header_count; ++i) {
    ons__free(allocator, (char*)module->headers[i].name);
    ons__free(allocator, (char*)module->headers[i].content);
  }
  ons__free(allocator, module->options);
  ons__free(allocator, module->headers);
  ons__bundle_destroy(module->bundle);
  ons__source_scan_clear(&module->scan);
  ons__variable_scan_clear(&module->variables);
  ons__free(allocator, module->source);
  ons__free(allocator, module->name);
  ons__free(allocator, module->folder);
  ons__mutex_destroy(&module->mutex);
  ons__free(allocator, module);
}

static bool copy_options(ons_module* module, const ons_module_options* options) {
  const ons_allocator* allocator = module->runtime->settings.allocator;
  module->options = ons__alloc_array(allocator, options->option_count, sizeof(char*));
  module->headers =
      ons__alloc_array(allocator, options->header_count, sizeof(ons_header));
  if (!module->options || !module->headers) return false;
  module->flags = options->flags;
  module->timeout_ms = options->timeout_ms;
  for (; module->option_count < options->option_count; ++module->option_count) {
    char* copy = ons__strdup(allocator, options->options[module->option_count]);
    if (!copy) return false;
    module->options[module->option_count] = copy;
  }
  for (; module->header_count < options->header_count; ++module->header_count) {
    const ons_header* header = &options->headers[module->header_count];
    char* name = ons__strdup(allocator, header->name);
    char* content = ons__strdup(allocator, header->content);
    module->headers[module->header_count] = (ons_header){name, content};
    if (!name || !content) {
      ++module->header_count; /* so that destroy frees the half that is there */
      return false;
    }
  }
  return true;
}

static ons_status check_options(const ons_module_options* options, ons_error* error) {
  if ((options->option_count > 0 && !options->options) ||
      (options->header_count > 0 && !options->headers)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "ons_module_options has a count without an array");
  }
  if (options->flags & ~(uint32_t)(ONS_MODULE_CHECK | ONS_MODULE_ISOLATE)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "ons_module_options.flags has bits that this version does not "
                          "know: set ONS_MODULE_* only");
  }
  for (size_t i = 0; i < options->option_count; ++i) {
    if (!options->options[i]) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "options[%zu] is NULL",
                            i);
    }
  }
  for (size_t i = 0; i < options->header_count; ++i) {
    if (!options->headers[i].name || !options->headers[i].content) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                            "headers[%zu] has no name or no content", i);
    }
  }
  return ONS_STATUS_OK;
}

bool ons__module_make_plain(ons_module* module) {
  const ons_allocator* allocator = module->runtime->settings.allocator;
  ons__kernel_name* names = ons__alloc_array(
      allocator, module->scan.kernel_count + module->variables.count, sizeof(*names));
  if (!names) return false;
  size_t count = 0;
  for (size_t i = 0; i < module->scan.kernel_count; ++i) {
    const ons__scanned_kernel* kernel = &module->scan.kernels[i];
    if (kernel->is_template || kernel->is_overloaded) continue;
    names[count++] = (ons__kernel_name){.name = kernel->name};
  }
  for (size_t i = 0; i < module->variables.count; ++i) {
    names[count++] = (ons__kernel_name){.name = module->variables.variables[i].name,
                                        .is_variable = true};
  }
  module->plain = ons__program_create(module, names, count);
  module->programs = module->plain;
  ons__free(allocator, names);
  return module->plain != NULL;
}

static ons_status create_new(ons_runtime* runtime, const ons__module_text* text,
                             ons_module** out_module, ons_error* error) {
  const ons_allocator* allocator = runtime->settings.allocator;
  ons_module* module = ons__alloc(allocator, sizeof(*module));
  if (!module) return ons__error_no_memory(error);
  atomic_init(&module->reference_count, 1);
  module->runtime = runtime;
  module->text_hash = text->hash;
  ons__mutex_init(&module->mutex);
  module->source = ons__strdup(allocator, text->source);
  module->name = ons__strdup(allocator, text->name);
  if (text->folder) module->folder = ons__strdup(allocator, text->folder);
  if (!module->source || !module->name || (text->folder && !module->folder)) goto fail;
  if (!copy_options(module, text->options)) goto fail;
  if (!ons__source_scan_run(allocator, module->source, &module->scan)) goto fail;
  if (!ons__variable_scan_run(allocator, module->source, &module->variables)) goto fail;
  if (!ons__module_make_plain(module)) goto fail;
  ons_runtime_retain(runtime);
  *out_module = module;
  return ONS_STATUS_OK;
fail:
  ons__module_destroy(module);
  return ons__error_no_memory(error);
}

static ons_status create(ons_runtime* runtime, const char* source,
                         const ons_module_options* options, const char* default_name,
                         const char* folder, ons_module** out_module, ons_error* error) {
  ons_module_options local = ONS_MODULE_OPTIONS_INIT;
  if (options) {
    if (options->struct_size < sizeof(options->struct_size)) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                            "ons_module_options.struct_size is %u: use "
                            "ONS_MODULE_OPTIONS_INIT",
                            (unsigned)options->struct_size);
    }
    ons__versioned_in(&local, sizeof(local), options, options->struct_size);
  }
  ons_status status = check_options(&local, error);
  if (status) return status;
  ons__module_text text = {.source = source,
                           .name = local.name ? local.name : default_name,
                           .folder = folder,
                           .options = &local};
  text.hash = ons__module_text_hash(&text);
  *out_module = ons__module_table_find(runtime, &text);
  if (*out_module) return ONS_STATUS_OK;
  status = create_new(runtime, &text, out_module, error);
  if (status) return status;
  ons_module* other = ons__module_table_add(*out_module, &text);
  if (other) {
    ons_module_release(*out_module);
    *out_module = other;
  }
  return ONS_STATUS_OK;
}

ons_status ons_module_create(ons_runtime* runtime, const char* source,
                             const ons_module_options* options, ons_module** out_module,
                             ons_error* error) {
  if (out_module) *out_module = NULL;
  if (!runtime || !source || !out_module) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime, source or out_module is NULL");
  }
  return create(runtime, source, options, "kernel.cu", NULL, out_module, error);
}

static ons_status read_source(const ons_allocator* allocator, const char* path,
                              char** out_text, ons_error* error) {
  size_t length = 0;
  ons_status status = ons__file_read(allocator, path, out_text, &length, error);
  if (status) return status;
  if (!memchr(*out_text, '\0', length)) return ONS_STATUS_OK;
  ons__free(allocator, *out_text);
  *out_text = NULL;
  return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                        "'%s' contains a NUL byte: it is not source text", path);
}

ons_status ons_module_create_from_file(ons_runtime* runtime, const char* path,
                                       const ons_module_options* options,
                                       ons_module** out_module, ons_error* error) {
  if (out_module) *out_module = NULL;
  if (!runtime || !path || !out_module) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime, path or out_module is NULL");
  }
  const ons_allocator* allocator = runtime->settings.allocator;
  char* source = NULL;
  ons_status status = read_source(allocator, path, &source, error);
  if (status) return status;
  const char* slash = strrchr(path, '/');
  size_t length = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
  char* folder =
      slash ? ons__strndup(allocator, path, length) : ons__strdup(allocator, ".");
  if (folder) {
    status = create(runtime, source, options, path, folder, out_module, error);
  } else {
    status = ons__error_no_memory(error);
  }
  ons__free(allocator, folder);
  ons__free(allocator, source);
  return status;
}

void ons_module_retain(ons_module* module) {
  if (module)
    atomic_fetch_add_explicit(&module->reference_count, 1, memory_order_relaxed);
}

/* Shared ones are only given up with the table's lock: it may hand them out again. */
static bool is_not_last(ons_module* module) {
  size_t count = atomic_load_explicit(&module->reference_count, memory_order_acquire);
  while (count > 1) {
    if (atomic_compare_exchange_weak_explicit(&module->reference_count, &count, count - 1,
                                              memory_order_acq_rel,
                                              memory_order_acquire)) {
      return true;
    }
  }
  return false;
}

void ons_module_release(ons_module* module) {
  if (!module || is_not_last(module)) return;
  ons_runtime* runtime = module->runtime;
  ons_module* victim = module;
  if (module->is_shared && !ons__module_table_drop(module, &victim)) return;
  ons__module_destroy(victim);
  ons_runtime_release(runtime);
}

/* ---- programs and kernels --------------------------------------------------------- */

ons__program* ons__module_program(ons_module* module, const char* name) {
  ons__mutex_lock(&module->mutex);
  ons__program* program = module->programs;
  while (program &&
         (program == module->plain || strcmp(program->names[0].name, name) != 0)) {
    program = program->next;
  }
  if (!program) {
    const ons__kernel_name required = {.name = name, .required = true};
    program = ons__program_create(module, &required, 1);
    if (program) {
      program->next = module->programs;
      module->programs = program;
    }
  }
  ons__mutex_unlock(&module->mutex);
  return program;
}

ons_status ons_module_prepare(ons_module* module, DLDevice device, ons_blob** out_log,
                              ons_error* error) {
  if (out_log) *out_log = NULL;
  if (!module)
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "module is NULL");
  ons__device_entry* entry = NULL;
  ons_status status = ons__runtime_device(module->runtime, device, &entry, error);
  if (status) return status;
  const ons__image* image = NULL;
  ons__loaded* loaded = NULL;
  return ons__program_load(module->plain, entry, ons__device_slot(device), &image,
                           &loaded, out_log, error);
}

const char* ons_module_source(const ons_module* module) {
  return module ? module->source : NULL;
}

const char* ons_module_kernel_name(const ons_module* module, size_t index) {
  if (!module || index >= module->scan.kernel_count) return NULL;
  return module->scan.kernels[index].name;
}

/* What the scan knows of a kernel, template arguments left aside; NULL if nothing. */
static const ons__scanned_kernel* find_scanned(const ons_module* module,
                                               const char* name) {
  size_t length = strcspn(name, "<");
  while (length > 0 && name[length - 1] == ' ') --length;
  for (size_t i = 0; i < module->scan.kernel_count; ++i) {
    const ons__scanned_kernel* kernel = &module->scan.kernels[i];
    if (strncmp(kernel->name, name, length) == 0 && kernel->name[length] == '\0') {
      return kernel;
    }
  }
  return NULL;
}

int ons_module_template_parameter(const ons_module* module, const char* name,
                                  size_t index, ons_template_parameter* out_parameter) {
  if (!module || !name || !out_parameter) return 0;
  const ons__scanned_kernel* scanned = find_scanned(module, name);
  if (!scanned || scanned->is_overloaded || index >= scanned->template_parameter_count) {
    return 0;
  }
  const ons__scanned_template_parameter* found = &scanned->template_parameters[index];
  const ons_template_parameter result = {.struct_size = out_parameter->struct_size,
                                         .is_type = found->is_type,
                                         .has_default = found->has_default,
                                         .name = found->name};
  ons__versioned_out(out_parameter, result.struct_size, &result, sizeof(result));
  return 1;
}

int ons_module_template_deduction(const ons_module* module, const char* name,
                                  size_t index, ons_deduction* out_deduction) {
  if (!module || !name || !out_deduction) return 0;
  const ons__scanned_kernel* scanned = find_scanned(module, name);
  if (!scanned || scanned->is_overloaded || index >= scanned->deduction_count) return 0;
  const ons__scanned_deduction* found = &scanned->deductions[index];
  const ons_deduction result = {.struct_size = out_deduction->struct_size,
                                .kind = (ons_deduction_kind)found->kind,
                                .template_parameter = found->template_parameter,
                                .argument = found->parameter};
  ons__versioned_out(out_deduction, result.struct_size, &result, sizeof(result));
  return 1;
}

const char* ons_module_parameter_name(const ons_module* module, const char* name,
                                      size_t index) {
  const ons__scanned_kernel* scanned = module && name ? find_scanned(module, name) : NULL;
  bool is_known = scanned && !scanned->is_overloaded && index < scanned->parameter_count;
  return is_known ? scanned->parameter_names[index] : NULL;
}

/* The last component of the qualified name, without template arguments. */
static bool name_occurs(const ons_module* module, const char* name) {
  size_t end = strcspn(name, "<");
  while (end > 0 && name[end - 1] == ' ') --end;
  size_t begin = end;
  while (begin > 0 && name[begin - 1] != ':' && name[begin - 1] != ' ') --begin;
  return end > begin &&
         ons__source_has_identifier(module->source, name + begin, end - begin);
}

static ons_status unknown_kernel(const ons_module* module, const char* name,
                                 ons_error* error) {
  char list[512];
  size_t used = 0;
  list[0] = '\0';
  for (size_t i = 0; i < module->scan.kernel_count && used < sizeof(list); ++i) {
    const ons__scanned_kernel* kernel = &module->scan.kernels[i];
    int written = snprintf(list + used, sizeof(list) - used, "%s%s%s", i ? ", " : "",
                           kernel->name, kernel->is_template ? "<...>" : "");
    if (written > 0) used += (size_t)written;
  }
  return ons__error_set(
      error, ONS_STATUS_NOT_FOUND, "no kernel '%.200s' in %.200s; its kernels: %s", name,
      module->name, module->scan.kernel_count ? list : "none were found");
}

/* One spelling for each name: blanks stay only between words. */
static void normalize(char* name) {
  char* end = name;
  for (const char* c = name; *c; ++c) {
    bool separates = *c == ' ' && end > name && isalnum((unsigned char)end[-1]) &&
                     (isalnum((unsigned char)c[1]) || c[1] == '_');
    if (*c != ' ' || separates) *end++ = *c;
  }
  *end = '\0';
}

ons_status ons_module_kernel(ons_module* module, const char* name,
                             ons_kernel** out_kernel, ons_error* error) {
  if (out_kernel) *out_kernel = NULL;
  if (!module || !name || !out_kernel) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "module, name or out_kernel is NULL");
  }
  if (name[0] == '\0' || strpbrk(name, "\n\r\"'\\;{}#")) {
    return ons__error_set(error, ONS_STATUS_NOT_FOUND,
                          "'%.200s' is not a C++ name expression such as \"axpy\", "
                          "\"ns::axpy\" or \"scale<float, 4>\"",
                          name);
  }
  const ons__scanned_kernel* scanned = find_scanned(module, name);
  bool has_arguments = strchr(name, '<') != NULL;
  if (!scanned && !name_occurs(module, name)) return unknown_kernel(module, name, error);
  if (scanned && scanned->is_template && !has_arguments) {
    return ons__error_set(error, ONS_STATUS_NOT_FOUND,
                          "'%.200s' in %.200s is a template: ask for an instance, "
                          "\"%.200s<...>\"",
                          name, module->name, name);
  }
  *out_kernel = ons__kernel_create(module, name, scanned);
  if (!*out_kernel) return ons__error_no_memory(error);
  normalize((*out_kernel)->name);
  return ONS_STATUS_OK;
}
