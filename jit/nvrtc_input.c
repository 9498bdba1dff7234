#include "jit/nvrtc_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/nvrtc_headers.h"
#include "jit/source_options.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

/* `ons_sig` must be a kernel itself: NVRTC lowers no other function's name. */
static bool make_text(ons__nvrtc_input* input) {
  ons__string text;
  ons__string_init(&text, input->request->allocator);
  if (input->request->is_checked) ons__string_append(&text, "#define ONS_CHECK\n");
  ons__string_append(&text,
                     "#include <onstream/kernel.h>\n"
                     "template <typename ons_type_> __global__ void ons_sig() {}\n");
  ons__source_options_append(input->request->options, input->request->option_count,
                             &text);
  ons__string_append(&text, "#line 1 ");
  ons__string_append_quoted(&text, input->request->name);
  ons__string_append(&text, "\n");
  ons__string_append(&text, input->request->source);
  input->text = ons__string_take(&text);
  return input->text != NULL;
}

static bool has_option(const ons__nvrtc_input* input, const char* name) {
  size_t length = strlen(name);
  for (size_t i = 0; i < input->request->option_count; ++i) {
    const char* option = input->request->options[i];
    if (!strncmp(option, name, length) && (!option[length] || option[length] == '=')) {
      return true;
    }
  }
  return false;
}

static bool add_option(ons__nvrtc_input* input, const char* front, const char* text,
                       size_t length) {
  ons__string option;
  ons__string_init(&option, input->request->allocator);
  ons__string_append(&option, front);
  ons__string_append_bytes(&option, text, length);
  char* taken = ons__string_take(&option);
  if (taken) input->options[input->option_count++] = taken;
  return taken != NULL;
}

/* The newest architecture known to NVRTC that is not newer than `wanted`; 0: none. */
static int nearest_architecture(const ons__nvrtc_library* library, int wanted,
                                char* out_list, size_t capacity_bytes) {
  enum { MAX_ARCHITECTURES = 256 };
  int known[MAX_ARCHITECTURES];
  int count = 0;
  out_list[0] = '\0';
  if (library->nvrtcGetNumSupportedArchs(&count) || count > MAX_ARCHITECTURES ||
      library->nvrtcGetSupportedArchs(known)) {
    return wanted;
  }
  int nearest = 0;
  for (int i = 0; i < count; ++i) {
    if (known[i] <= wanted && known[i] > nearest) nearest = known[i];
    size_t used = strlen(out_list);
    snprintf(out_list + used, capacity_bytes - used, " %d", known[i]);
  }
  return nearest;
}

/* A cubin of an older architecture need not run on the device, PTX does. */
static ons_status add_architecture(ons__nvrtc_input* input, ons_error* error) {
  if (has_option(input, "-arch") || has_option(input, "--gpu-architecture"))
    return ONS_STATUS_OK;
  const char* arch = input->request->arch;
  const bool is_ptx = strncmp(arch, "compute_", 8) == 0;
  int wanted = is_ptx                         ? atoi(arch + 8)
               : strncmp(arch, "sm_", 3) == 0 ? atoi(arch + 3)
                                              : 0;
  char list[256];
  int nearest = nearest_architecture(input->library, wanted, list, sizeof(list));
  const bool must_match = is_ptx || input->request->is_exact;
  if (nearest <= 0 || (must_match && nearest != wanted)) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "NVRTC %d.%d does not compile for %s; it knows sm%s",
                          input->library->major, input->library->minor, arch, list);
  }
  char number[32];
  snprintf(number, sizeof(number), "%d", nearest);
  bool ok = nearest == wanted
                ? add_option(input, "-arch=", arch, strlen(arch))
                : add_option(input, "-arch=compute_", number, strlen(number));
  return ok ? ONS_STATUS_OK : ons__error_no_memory(error);
}

bool ons__nvrtc_may_include(const ons__compile_request* request) {
  if (strstr(request->source, "include")) return true;
  for (size_t i = 0; i < request->option_count; ++i) {
    if (strstr(request->options[i], "include")) return true;
  }
  for (size_t i = 0; i < request->header_count; ++i) {
    if (strstr(request->headers[i].content, "include")) return true;
  }
  return false;
}

static size_t count_entries(const char* list) {
  size_t count = 1;
  for (; *list; ++list) count += *list == ':';
  return count;
}

static ons_status make_options(ons__nvrtc_input* input, const char* folders,
                               ons_error* error) {
  enum { OWN_OPTIONS = 4 };
  const ons__compile_request* request = input->request;
  size_t capacity = request->option_count + OWN_OPTIONS + count_entries(folders);
  input->options =
      ons__alloc_array(request->allocator, capacity, sizeof(*input->options));
  bool ok = input->options != NULL;
  for (size_t i = 0; ok && i < request->option_count; ++i) {
    if (ons__source_options_skip(request->options, request->option_count, &i)) continue;
    ok = add_option(input, "", request->options[i], strlen(request->options[i]));
  }
  if (ok && !has_option(input, "-std") && !has_option(input, "--std")) {
    ok = add_option(input, "-std=c++17", "", 0);
  }
  /* Else NVRTC changes the stack limit of the whole process while it compiles. */
  if (ok && input->library->major >= 12 && !has_option(input, "-modify-stack-limit") &&
      !has_option(input, "--modify-stack-limit")) {
    ok = add_option(input, "-modify-stack-limit=false", "", 0);
  }
  if (ok && request->folder) {
    ok = add_option(input, "-I", request->folder, strlen(request->folder));
  }
  while (ok && *folders) {
    size_t length = strcspn(folders, ":");
    if (length) ok = add_option(input, "-I", folders, length);
    folders += length + (folders[length] == ':');
  }
  return ok ? add_architecture(input, error) : ons__error_no_memory(error);
}

static bool has_header(const ons__compile_request* request, const char* name) {
  for (size_t i = 0; i < request->header_count; ++i) {
    if (strcmp(request->headers[i].name, name) == 0) return true;
  }
  return false;
}

static void add_header(ons__nvrtc_input* input, const ons_header* header) {
  input->header_names[input->header_count] = header->name;
  input->header_contents[input->header_count++] = header->content;
}

static bool make_headers(ons__nvrtc_input* input) {
  const ons__compile_request* request = input->request;
  size_t capacity = request->header_count + ons__nvrtc_header_count;
  input->header_names = ons__alloc_array(request->allocator, capacity, sizeof(char*));
  input->header_contents = ons__alloc_array(request->allocator, capacity, sizeof(char*));
  if (!input->header_names || !input->header_contents) return false;
  for (size_t i = 0; i < request->header_count; ++i)
    add_header(input, &request->headers[i]);
  for (size_t i = 0; i < ons__nvrtc_header_count; ++i) {
    if (!has_header(request, ons__nvrtc_headers[i].name)) {
      add_header(input, &ons__nvrtc_headers[i]);
    }
  }
  return true;
}

ons_status ons__nvrtc_input_make(ons__nvrtc_input* input,
                                 const ons__nvrtc_library* library,
                                 const ons__compile_request* request, const char* folders,
                                 ons_error* error) {
  *input = (ons__nvrtc_input){.library = library, .request = request};
  if (!make_text(input) || !make_headers(input)) return ons__error_no_memory(error);
  return make_options(input, folders, error);
}

void ons__nvrtc_input_clear(ons__nvrtc_input* input) {
  if (!input->request) return;
  const ons_allocator* allocator = input->request->allocator;
  for (size_t i = 0; i < input->option_count; ++i)
    ons__free(allocator, input->options[i]);
  ons__free(allocator, input->options);
  ons__free(allocator, input->header_names);
  ons__free(allocator, input->header_contents);
  ons__free(allocator, input->text);
}
