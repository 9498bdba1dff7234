#include "jit/bundle.h"

#include <stdio.h>
#include <string.h>

#include "jit/architecture.h"
#include "jit/encoding.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

static const char magic[8] = "ONSBUNDL";

void ons__bundle_destroy(ons__bundle* bundle) {
  if (!bundle) return;
  const ons_allocator* allocator = bundle->allocator;
  for (size_t i = 0; i < bundle->option_count; ++i) {
    ons__free(allocator, bundle->options[i]);
  }
  for (size_t i = 0; i < bundle->header_count; ++i) {
    ons__free(allocator, (char*)bundle->headers[i].name);
    ons__free(allocator, (char*)bundle->headers[i].content);
  }
  for (size_t i = 0; i < bundle->image_count; ++i) {
    ons__image_destroy(bundle->images[i].image);
  }
  ons__source_scan_clear(&bundle->scan);
  ons__variable_scan_clear(&bundle->variables);
  ons__free(allocator, bundle->options);
  ons__free(allocator, bundle->headers);
  ons__free(allocator, bundle->images);
  ons__free(allocator, bundle->name);
  ons__free(allocator, (char*)bundle->source);
  ons__free(allocator, bundle);
}

void ons__bundle_list(const ons__bundle* bundle, ons__string* out_text) {
  for (size_t i = 0; i < bundle->image_count; ++i) {
    ons__string_appendf(out_text, "%s%s", i ? ", " : "", bundle->images[i].arch);
  }
}

const ons__bundle_image* ons__bundle_find(const ons__bundle* bundle, const char* arch) {
  const ons__bundle_image* best = NULL;
  int best_suit = 0;
  for (size_t i = 0; i < bundle->image_count; ++i) {
    const int suit = ons__arch_suits(bundle->images[i].arch, arch);
    if (suit <= best_suit) continue;
    best = &bundle->images[i];
    best_suit = suit;
  }
  return best;
}

/* ---- writing ----------------------------------------------------------------------- */

static void write_kernel(ons__string* out, const ons__scanned_kernel* kernel) {
  ons__write_text(out, kernel->name);
  ons__write_number(out, kernel->is_template, 1);
  ons__write_number(out, kernel->is_overloaded, 1);
  ons__write_number(out, kernel->parameter_count, 4);
  for (size_t i = 0; i < kernel->parameter_count; ++i) {
    const char* name = kernel->parameter_names[i];
    ons__write_text(out, name ? name : "");
    ons__write_number(out, name != NULL, 1);
    ons__write_number(out, kernel->parameter_is_restrict[i], 1);
  }
}

void ons__bundle_write(const ons__bundle* bundle, ons__string* out_bytes) {
  ons__string* out = out_bytes;
  ons__string_append_bytes(out, magic, sizeof(magic));
  ons__write_number(out, ONS__BUNDLE_SCHEMA, 4);
  ons__write_text(out, bundle->name);
  ons__write_text(out, bundle->source);
  ons__write_number(out, bundle->flags, 4);
  ons__write_number(out, bundle->option_count, 4);
  for (size_t i = 0; i < bundle->option_count; ++i) {
    ons__write_text(out, bundle->options[i]);
  }
  ons__write_number(out, bundle->header_count, 4);
  for (size_t i = 0; i < bundle->header_count; ++i) {
    ons__write_text(out, bundle->headers[i].name);
    ons__write_text(out, bundle->headers[i].content);
  }
  ons__write_number(out, bundle->scan.kernel_count, 4);
  for (size_t i = 0; i < bundle->scan.kernel_count; ++i) {
    write_kernel(out, &bundle->scan.kernels[i]);
  }
  ons__write_number(out, bundle->variables.count, 4);
  for (size_t i = 0; i < bundle->variables.count; ++i) {
    ons__write_text(out, bundle->variables.variables[i].name);
    ons__write_number(out, bundle->variables.variables[i].is_constant, 1);
  }
  ons__write_number(out, bundle->image_count, 4);
  for (size_t i = 0; i < bundle->image_count; ++i) {
    ons__write_text(out, bundle->images[i].arch);
    ons__write_image(out, bundle->images[i].image);
  }
  ons__write_digest(out);
}

/* ---- reading ----------------------------------------------------------------------- */

/* Room for `count` items; NULL, and failed, when out of memory. */
static void* make_items(ons__reader* in, size_t count, size_t item_bytes) {
  void* items =
      in->failed ? NULL : ons__alloc_array(in->allocator, count + 1, item_bytes);
  in->failed |= !items;
  return items;
}

static void read_options(ons__reader* in, ons__bundle* bundle) {
  const size_t option_count = ons__read_count(in, 4);
  bundle->options = make_items(in, option_count, sizeof(*bundle->options));
  while (!in->failed && bundle->option_count < option_count) {
    bundle->options[bundle->option_count++] = ons__read_text(in);
  }
  const size_t header_count = ons__read_count(in, 8);
  bundle->headers = make_items(in, header_count, sizeof(*bundle->headers));
  while (!in->failed && bundle->header_count < header_count) {
    ons_header* header = &bundle->headers[bundle->header_count++];
    header->name = ons__read_text(in);
    header->content = ons__read_text(in);
  }
}

static void read_kernel(ons__reader* in, ons__scanned_kernel* kernel) {
  kernel->name = ons__read_text(in);
  kernel->is_template = ons__read_number(in, 1) != 0;
  kernel->is_overloaded = ons__read_number(in, 1) != 0;
  const size_t count = ons__read_count(in, 6);
  kernel->parameter_names = make_items(in, count, sizeof(*kernel->parameter_names));
  kernel->parameter_is_restrict = make_items(in, count, 1);
  while (!in->failed && kernel->parameter_count < count) {
    const size_t i = kernel->parameter_count++;
    kernel->parameter_names[i] = ons__read_text(in);
    if (ons__read_number(in, 1) == 0) {
      ons__free(in->allocator, kernel->parameter_names[i]);
      kernel->parameter_names[i] = NULL;
    }
    kernel->parameter_is_restrict[i] = ons__read_number(in, 1) != 0;
  }
}

static void read_names(ons__reader* in, ons__bundle* bundle) {
  ons__source_scan* scan = &bundle->scan;
  const size_t kernel_count = ons__read_count(in, 10);
  scan->allocator = bundle->variables.allocator = in->allocator;
  scan->kernels = make_items(in, kernel_count, sizeof(*scan->kernels));
  while (!in->failed && scan->kernel_count < kernel_count) {
    read_kernel(in, &scan->kernels[scan->kernel_count++]);
  }
  ons__variable_scan* variables = &bundle->variables;
  const size_t count = ons__read_count(in, 5);
  variables->variables = make_items(in, count, sizeof(*variables->variables));
  while (!in->failed && variables->count < count) {
    ons__scanned_variable* variable = &variables->variables[variables->count++];
    variable->name = ons__read_text(in);
    variable->is_constant = ons__read_number(in, 1) != 0;
  }
}

static void read_images(ons__reader* in, ons__bundle* bundle) {
  const size_t count = ons__read_count(in, 24);
  bundle->images = make_items(in, count, sizeof(*bundle->images));
  while (!in->failed && bundle->image_count < count) {
    ons__bundle_image* image = &bundle->images[bundle->image_count++];
    char* arch = ons__read_text(in);
    in->failed |= !arch || strlen(arch) >= sizeof(image->arch);
    if (!in->failed) memcpy(image->arch, arch, strlen(arch) + 1);
    ons__free(in->allocator, arch);
    image->image = ons__read_image(in);
  }
}

ons_status ons__bundle_read(const ons_allocator* allocator, const void* bytes,
                            size_t size_bytes, ons__bundle** out_bundle,
                            ons_error* error) {
  ons__reader in = {.allocator = allocator, .at = bytes, .left_bytes = size_bytes};
  *out_bundle = NULL;
  if (size_bytes < sizeof(magic) || memcmp(bytes, magic, sizeof(magic)) != 0) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "this is no bundle: it does not begin with %.8s", magic);
  }
  if (!ons__read_digest(&in)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "the bundle is cut off or damaged: its digest is not that of "
                          "its %zu bytes",
                          size_bytes);
  }
  ons__read_bytes(&in, sizeof(magic));
  const unsigned schema = (unsigned)ons__read_number(&in, 4);
  if (schema != ONS__BUNDLE_SCHEMA) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "the bundle is of version %u, and this library reads %d: build "
                          "it again",
                          schema, ONS__BUNDLE_SCHEMA);
  }
  ons__bundle* bundle = ons__alloc(allocator, sizeof(*bundle));
  if (!bundle) return ons__error_no_memory(error);
  bundle->allocator = allocator;
  bundle->name = ons__read_text(&in);
  bundle->source = ons__read_text(&in);
  bundle->flags = (uint32_t)ons__read_number(&in, 4);
  read_options(&in, bundle);
  read_names(&in, bundle);
  read_images(&in, bundle);
  if (!in.failed && in.left_bytes == 0) {
    memcpy(bundle->digest, (const char*)bytes + size_bytes - ONS__HASH_BYTES,
           ONS__HASH_BYTES);
    *out_bundle = bundle;
    return ONS_STATUS_OK;
  }
  ons__bundle_destroy(bundle);
  return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                        "the bundle does not hold together, or memory ran out");
}
