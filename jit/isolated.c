#include "jit/isolated.h"

#include <dlfcn.h>
#include <limits.h>
#include <onstream/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit/encoding.h"
#include "jit/inputs.h"
#include "jit/nvrtc_library.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/path.h"

/* Both sides are of one build: the version is the layout. */
static const char magic[] = "onstream-compile " ONS_VERSION_STRING;

/* ---- the request ------------------------------------------------------------------- */

static void write_optional(ons__string* out, const char* text) {
  ons__write_number(out, text != NULL, 1);
  ons__write_text(out, text ? text : "");
}

static char* read_optional(ons__reader* in) {
  const bool is_there = ons__read_number(in, 1) != 0;
  char* text = ons__read_text(in);
  if (is_there) return text;
  ons__free(in->allocator, text);
  return NULL;
}

static void write_request(const char* library_path, const char* include_path,
                          const ons__compile_request* request, ons__string* out) {
  ons__write_text(out, magic);
  write_optional(out, library_path);
  write_optional(out, include_path);
  ons__write_text(out, request->source);
  ons__write_text(out, request->name);
  write_optional(out, request->folder);
  ons__write_text(out, request->arch);
  ons__write_number(out, request->is_exact, 1);
  ons__write_number(out, request->is_checked, 1);
  ons__write_number(out, request->inputs != NULL, 1);
  ons__write_number(out, request->option_count, 4);
  for (size_t i = 0; i < request->option_count; ++i) {
    ons__write_text(out, request->options[i]);
  }
  ons__write_number(out, request->header_count, 4);
  for (size_t i = 0; i < request->header_count; ++i) {
    ons__write_text(out, request->headers[i].name);
    ons__write_text(out, request->headers[i].content);
  }
  ons__write_number(out, request->kernel_count, 4);
  for (size_t i = 0; i < request->kernel_count; ++i) {
    ons__write_text(out, request->kernels[i].name);
    ons__write_number(out, request->kernels[i].required, 1);
    ons__write_number(out, request->kernels[i].is_variable, 1);
  }
}

/* The process ends soon: what is read is not freed. */
static bool read_request(ons__reader* in, ons__nvrtc_config* config,
                         ons__compile_request* request, bool* out_wants_inputs) {
  char* front = ons__read_text(in);
  if (!front || strcmp(front, magic) != 0) return false;
  config->library_path = read_optional(in);
  config->include_path = read_optional(in);
  request->source = ons__read_text(in);
  request->name = ons__read_text(in);
  request->folder = read_optional(in);
  request->arch = ons__read_text(in);
  request->is_exact = ons__read_number(in, 1) != 0;
  request->is_checked = ons__read_number(in, 1) != 0;
  *out_wants_inputs = ons__read_number(in, 1) != 0;
  request->option_count = ons__read_count(in, 4);
  const char** options =
      ons__alloc_array(NULL, request->option_count + 1, sizeof(*options));
  for (size_t i = 0; options && i < request->option_count; ++i) {
    options[i] = ons__read_text(in);
  }
  request->header_count = ons__read_count(in, 8);
  ons_header* headers =
      ons__alloc_array(NULL, request->header_count + 1, sizeof(*headers));
  for (size_t i = 0; headers && i < request->header_count; ++i) {
    headers[i].name = ons__read_text(in);
    headers[i].content = ons__read_text(in);
  }
  request->kernel_count = ons__read_count(in, 6);
  ons__kernel_name* kernels =
      ons__alloc_array(NULL, request->kernel_count + 1, sizeof(*kernels));
  for (size_t i = 0; kernels && i < request->kernel_count; ++i) {
    kernels[i].name = ons__read_text(in);
    kernels[i].required = ons__read_number(in, 1) != 0;
    kernels[i].is_variable = ons__read_number(in, 1) != 0;
  }
  request->options = options;
  request->headers = headers;
  request->kernels = kernels;
  return options && headers && kernels && !in->failed && in->left_bytes == 0;
}

/* ---- the answer -------------------------------------------------------------------- */

bool ons__isolated_serve(const char* request_path, const char* answer_path) {
  char *bytes = NULL, *log = NULL;
  size_t size_bytes = 0;
  ons__nvrtc_config config = {0};
  ons__compile_request request = {0};
  ons_error error = ONS_ERROR_INIT;
  bool wants_inputs = false;
  if (ons__file_read(NULL, request_path, &bytes, &size_bytes, NULL)) return false;
  ons__reader in = {.at = bytes, .left_bytes = size_bytes};
  if (!read_request(&in, &config, &request, &wants_inputs)) return false;
  ons__inputs inputs;
  ons__inputs_init(&inputs, NULL);
  if (wants_inputs) request.inputs = &inputs;
  ons__nvrtc* nvrtc = NULL;
  ons__image* image = NULL;
  ons_status status = ons__nvrtc_create(&config, &nvrtc, &error);
  if (!status) status = ons__nvrtc_compile(nvrtc, &request, &image, &log, &error);

  ons__string out;
  ons__string_init(&out, NULL);
  ons__write_text(&out, magic);
  ons__write_number(&out, (uint64_t)status, 4);
  ons__write_text(&out, error.message);
  write_optional(&out, log);
  ons__write_number(&out, inputs.is_unknown, 1);
  ons__write_inputs(&out, &inputs);
  if (image) ons__write_image(&out, image);
  ons__write_digest(&out);
  return ons__string_ok(&out) &&
         ons__file_write(NULL, answer_path, strlen(answer_path), out.data, out.length,
                         NULL) == ONS_STATUS_OK;
}

/* False where it is no whole answer. */
static bool read_answer(const ons__compile_request* request, const char* path,
                        ons_status* out_status, ons__image** out_image, char** out_log,
                        ons_error* error) {
  char* bytes = NULL;
  size_t size_bytes = 0;
  if (ons__file_read(request->allocator, path, &bytes, &size_bytes, NULL)) return false;
  ons__reader in = {
      .allocator = request->allocator, .at = bytes, .left_bytes = size_bytes};
  ons__inputs inputs = {.allocator = request->allocator};
  bool good = ons__read_digest(&in);
  char* front = good ? ons__read_text(&in) : NULL;
  good = front && strcmp(front, magic) == 0;
  *out_status = (ons_status)ons__read_number(&in, 4);
  char* message = ons__read_text(&in);
  *out_log = read_optional(&in);
  inputs.is_unknown = ons__read_number(&in, 1) != 0;
  ons__read_inputs(&in, &inputs);
  if (good && !*out_status) *out_image = ons__read_image(&in);
  good = good && !in.failed && in.left_bytes == 0;
  if (good && *out_status) ons__error_set(error, *out_status, "%s", message);
  if (good && request->inputs) {
    request->inputs->is_unknown |= inputs.is_unknown;
    for (size_t i = 0; i < inputs.count; ++i) {
      ons__input item = inputs.items[i];
      inputs.items[i].path = NULL; /* goes along */
      if (!ons__inputs_append(request->inputs, &item)) request->inputs->is_unknown = true;
    }
  }
  ons__inputs_clear(&inputs);
  ons__free(request->allocator, front);
  ons__free(request->allocator, message);
  ons__free(request->allocator, bytes);
  return good;
}

/* ---- the program ------------------------------------------------------------------- */

/* Named, or installed with the library: beside it, or in the folder of programs beside
 * its own. */
static bool find_program(char* out_path, size_t capacity_bytes) {
  const char* named = getenv("ONSTREAM_COMPILE_PROGRAM");
  if (named && *named) {
    return snprintf(out_path, capacity_bytes, "%s", named) < (int)capacity_bytes &&
           access(out_path, X_OK) == 0;
  }
  static const char* const places[] = {"", "../bin/", "../../bin/"};
  Dl_info info;
  char folder[PATH_MAX];
  if (!dladdr(magic, &info) || !info.dli_fname || !realpath(info.dli_fname, folder)) {
    return false;
  }
  *strrchr(folder, '/') = '\0';
  for (size_t i = 0; i < sizeof(places) / sizeof(*places); ++i) {
    const int length =
        snprintf(out_path, capacity_bytes, "%s/%sonstream-compile", folder, places[i]);
    if (length < (int)capacity_bytes && access(out_path, X_OK) == 0) return true;
  }
  return false;
}

static ons_status describe_end(const ons__compile_request* request, const char* library,
                               const ons__process_result* result, uint32_t timeout_ms,
                               ons_error* error) {
  const char* with = library ? library : "NVRTC";
  const char* words = result->output && *result->output ? result->output : "nothing";
  if (result->interrupted) {
    return ons__error_set(error, ONS_STATUS_INTERRUPTED,
                          "%s: the compile was interrupted", request->name);
  }
  if (result->timed_out) {
    return ons__error_set(error, ONS_STATUS_COMPILE_FAILED,
                          "%s: the compile for %s did not end within %u ms (%s)",
                          request->name, request->arch, (unsigned)timeout_ms, with);
  }
  if (result->exit_code > 128) {
    return ons__error_set(
        error, ONS_STATUS_COMPILE_FAILED,
        "%s: the compiler crashed (signal %d, %s) while it compiled for %s (%s); this "
        "process is unharmed. It wrote: %.300s",
        request->name, result->exit_code - 128, strsignal(result->exit_code - 128),
        request->arch, with, words);
  }
  return ons__error_set(
      error, ONS_STATUS_COMPILE_FAILED,
      "%s: the compile for %s ended with code %d and no answer (%s). It "
      "wrote: %.300s",
      request->name, request->arch, result->exit_code, with, words);
}

static ons_status run(const ons__compile_request* request, const char* folder,
                      const char* library, const ons__process_limits* limits,
                      ons__image** out_image, char** out_log, ons_error* error) {
  char program[PATH_MAX], asked[PATH_MAX], answer[PATH_MAX];
  if (!find_program(program, sizeof(program))) {
    return ons__error_set(error, ONS_STATUS_UNAVAILABLE,
                          "an isolated compile needs the program onstream-compile, which "
                          "is installed with the library: name it in "
                          "ONSTREAM_COMPILE_PROGRAM");
  }
  snprintf(asked, sizeof(asked), "%s/request", folder);
  snprintf(answer, sizeof(answer), "%s/answer", folder);
  const char* const command[] = {program, asked, answer, NULL};
  ons__process_result result = {0};
  ons_status status =
      ons__process_run(request->allocator, command, NULL, folder, limits, &result, error);
  ons_status answered = ONS_STATUS_OK;
  if (!status && read_answer(request, answer, &answered, out_image, out_log, error)) {
    status = answered;
  } else if (!status) {
    status = describe_end(request, library, &result, limits->timeout_ms, error);
  }
  ons__free(request->allocator, result.output);
  return status;
}

ons_status ons__isolated_compile(const ons__nvrtc_config* config,
                                 const ons__compile_request* request,
                                 const ons__process_limits* limits,
                                 ons__image** out_image, char** out_log,
                                 ons_error* error) {
  *out_image = NULL;
  *out_log = NULL;
  char library[PATH_MAX] = "", path[PATH_MAX], *folder = NULL;
  ons__string includes, bytes;
  ons__string_init(&includes, request->allocator);
  ons__string_init(&bytes, request->allocator);
  /* The host's way to find things stays in the host. */
  ons__nvrtc_find_includes(config, &includes);
  const bool is_located = ons__nvrtc_locate(config, library, sizeof(library));
  const char* library_path = is_located ? library : config->library_path;
  if (!library_path) library_path = getenv("ONSTREAM_NVRTC");
  if (library_path && !*library_path) library_path = NULL;
  write_request(library_path, includes.length ? includes.data : NULL, request, &bytes);
  ons_status status = ons__temp_folder_create(request->allocator, &folder, error);
  if (!status) {
    snprintf(path, sizeof(path), "%s/request", folder);
    status = ons__string_ok(&bytes)
                 ? ons__file_write(request->allocator, path, strlen(path), bytes.data,
                                   bytes.length, error)
                 : ons__error_no_memory(error);
  }
  if (!status) {
    status = run(request, folder, library_path, limits, out_image, out_log, error);
  }
  ons__temp_folder_remove(folder);
  ons__free(request->allocator, folder);
  ons__string_clear(&includes);
  ons__string_clear(&bytes);
  return status;
}
