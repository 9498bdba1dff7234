#include "jit/nvrtc.h"

#include <stdio.h>
#include <string.h>

#include "jit/compiler_identity.h"
#include "jit/nvrtc_input.h"
#include "jit/nvrtc_inputs.h"
#include "jit/nvrtc_log.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/thread.h"

struct ons__nvrtc {
  ons__nvrtc_config config;
  ons__mutex mutex; /* guards what is below until it is set; never held during a search */
  bool loaded;
  ons__nvrtc_library library;
  char* include_folders; /* NULL: none found yet */
};

/* One compile, and what came back of its latest try. */
typedef struct compile_job {
  const ons__nvrtc_library* library;
  const ons__compile_request* request;
  ons__nvrtc_input input;
  bool* dropped; /* by kernel */
  nvrtcProgram program;
  char* log;
  char* first_log;       /* of the try that cost the first required kernel */
  const char* lost_name; /* that kernel */
  char lost_reason[200];
} compile_job;

ons_status ons__nvrtc_create(const ons__nvrtc_config* config, ons__nvrtc** out_nvrtc,
                             ons_error* error) {
  ons__nvrtc* nvrtc = ons__alloc(config->allocator, sizeof(*nvrtc));
  if (!nvrtc) return ons__error_no_memory(error);
  nvrtc->config = *config;
  ons__mutex_init(&nvrtc->mutex);
  *out_nvrtc = nvrtc;
  return ONS_STATUS_OK;
}

void ons__nvrtc_destroy(ons__nvrtc* nvrtc) {
  if (!nvrtc) return;
  const ons_allocator* allocator = nvrtc->config.allocator;
  ons__mutex_destroy(&nvrtc->mutex);
  ons__free(allocator, nvrtc->include_folders);
  ons__free(allocator, nvrtc);
}

/* A search may call back into the host (which may hold locks of its own), so two threads
 * may search at once; the first result stays. A failed search is repeated by the next
 * compile. */
static ons_status get_library(ons__nvrtc* nvrtc, ons_error* error) {
  ons__mutex_lock(&nvrtc->mutex);
  bool loaded = nvrtc->loaded;
  ons__mutex_unlock(&nvrtc->mutex);
  if (loaded) return ONS_STATUS_OK;

  ons__nvrtc_library library = {0};
  ons_status status = ons__nvrtc_library_load(&nvrtc->config, &library, error);
  if (status) return status;
  ons__mutex_lock(&nvrtc->mutex);
  if (!nvrtc->loaded) nvrtc->library = library;
  nvrtc->loaded = true;
  ons__mutex_unlock(&nvrtc->mutex);
  return ONS_STATUS_OK;
}

/* A search that finds nothing is repeated as well: a toolkit may be installed meanwhile.
 */
static const char* get_include_folders(ons__nvrtc* nvrtc) {
  ons__mutex_lock(&nvrtc->mutex);
  const char* known = nvrtc->include_folders;
  ons__mutex_unlock(&nvrtc->mutex);
  if (known) return known;

  ons__string folders;
  ons__string_init(&folders, nvrtc->config.allocator);
  ons__nvrtc_find_includes(&nvrtc->config, &folders);
  char* found = ons__string_take(&folders);
  ons__mutex_lock(&nvrtc->mutex);
  if (!nvrtc->include_folders && found && found[0]) {
    nvrtc->include_folders = found;
    found = NULL;
  }
  known = nvrtc->include_folders;
  ons__mutex_unlock(&nvrtc->mutex);
  ons__free(nvrtc->config.allocator, found);
  return known ? known : "";
}

/* ---- compiling --------------------------------------------------------------------- */

static void signature_expression(const ons__kernel_name* name, ons__string* out_text) {
  const char* format =
      name->is_variable ? "ons_sig<void(decltype(%s)*)>" : "ons_sig<decltype(%s)>";
  ons__string_appendf(out_text, format, name->name);
}

static void symbol_expression(const ons__kernel_name* name, ons__string* out_text) {
  ons__string_appendf(out_text, "%s%s", name->is_variable ? "&" : "", name->name);
}

static void drop(compile_job* job, size_t kernel, const char* reason) {
  job->dropped[kernel] = true;
  const ons__kernel_name* name = &job->request->kernels[kernel];
  if (!name->required || job->lost_name) return;
  job->lost_name = name->name;
  snprintf(job->lost_reason, sizeof(job->lost_reason), "%s", reason);
}

static ons_status add_names(compile_job* job, ons_error* error) {
  for (size_t i = 0; i < job->request->kernel_count; ++i) {
    const char* name = job->request->kernels[i].name;
    /* The expression becomes one line of source. */
    if (!job->dropped[i] && (!name[0] || strpbrk(name, "\r\n\\")))
      drop(job, i, "not a name");
    if (job->dropped[i]) continue;
    ons__string signature, symbol;
    ons__string_init(&signature, job->request->allocator);
    ons__string_init(&symbol, job->request->allocator);
    signature_expression(&job->request->kernels[i], &signature);
    symbol_expression(&job->request->kernels[i], &symbol);
    bool ok = ons__string_ok(&signature) && ons__string_ok(&symbol);
    if (ok && (job->library->nvrtcAddNameExpression(job->program, symbol.data) ||
               job->library->nvrtcAddNameExpression(job->program, signature.data))) {
      drop(job, i, "NVRTC does not take the name");
    }
    ons__string_clear(&symbol);
    ons__string_clear(&signature);
    if (!ok) return ons__error_no_memory(error);
  }
  return ONS_STATUS_OK;
}

static ons_status read_log(compile_job* job, ons_error* error) {
  size_t size_bytes = 0;
  ons__free(job->request->allocator, job->log);
  job->log = NULL;
  if (job->library->nvrtcGetProgramLogSize(job->program, &size_bytes)) size_bytes = 0;
  job->log = ons__alloc(job->request->allocator, size_bytes + 1);
  if (!job->log) return ons__error_no_memory(error);
  if (size_bytes) job->library->nvrtcGetProgramLog(job->program, job->log);
  return ONS_STATUS_OK;
}

static void destroy_program(compile_job* job) {
  if (job->program) job->library->nvrtcDestroyProgram(&job->program);
  job->program = NULL;
}

static ons_status try_once(compile_job* job, nvrtcResult* out_result, ons_error* error) {
  const ons__nvrtc_library* library = job->library;
  destroy_program(job);
  nvrtcResult result = library->nvrtcCreateProgram(
      &job->program, job->input.text, job->request->name, (int)job->input.header_count,
      job->input.header_contents, job->input.header_names);
  if (result) {
    return ons__error_native(error, ONS_STATUS_INTERNAL, "nvrtcCreateProgram",
                             (int32_t)result, "nvrtcCreateProgram failed: %s",
                             library->nvrtcGetErrorString(result));
  }
  ons_status status = add_names(job, error);
  if (status) return status;
  *out_result = library->nvrtcCompileProgram(job->program, (int)job->input.option_count,
                                             (const char* const*)job->input.options);
  return read_log(job, error);
}

/* One wrong name expression fails the whole compile. Drops the kernels that the log
 * blames, or, where it cannot be read, those that a scan guessed, or all. False when
 * nothing was left. */
static bool drop_blamed(compile_job* job) {
  const ons__compile_request* request = job->request;
  bool any = false;
  char reason[sizeof(job->lost_reason)];
  for (size_t i = 0; i < request->kernel_count; ++i) {
    if (job->dropped[i] || !ons__nvrtc_log_blames(job->log, request->kernels[i].name,
                                                  reason, sizeof(reason))) {
      continue;
    }
    drop(job, i, reason);
    any = true;
  }
  for (int required = 0; !any && required < 2; ++required) {
    for (size_t i = 0; i < request->kernel_count; ++i) {
      if (job->dropped[i] || request->kernels[i].required != (required == 1)) continue;
      drop(job, i, "NVRTC does not know the name");
      any = true;
    }
  }
  return any;
}

static ons_status report_failure(const compile_job* job, const char* log,
                                 nvrtcResult result, ons_error* error) {
  char text[600];
  ons__nvrtc_log_first_error(log, text, sizeof(text));
  if (result == NVRTC_ERROR_OUT_OF_MEMORY) return ons__error_no_memory(error);
  if (result == NVRTC_ERROR_COMPILATION || result == NVRTC_ERROR_INVALID_OPTION) {
    return ons__error_native(error, ONS_STATUS_COMPILE_FAILED, "nvrtcCompileProgram",
                             (int32_t)result, "%s", text);
  }
  return ons__error_native(
      error, ONS_STATUS_UNAVAILABLE, "nvrtcCompileProgram", (int32_t)result,
      "NVRTC %d.%d cannot compile: %s%s%s", job->library->major, job->library->minor,
      job->library->nvrtcGetErrorString(result), text[0] ? ": " : "", text);
}

/* Errors of the source must not hide behind those of the names, nor the other way round:
 * the names are dropped first, the required ones too; what then fails is the source. What
 * then compiles has lost a required kernel, either because there is none of that name or
 * because instantiating it is what fails (the first log has that error). */
static ons_status compile(compile_job* job, ons_error* error) {
  nvrtcResult result = NVRTC_SUCCESS;
  for (;;) {
    ons_status status = try_once(job, &result, error);
    if (status) return status;
    if (result != NVRTC_ERROR_COMPILATION || !ons__nvrtc_log_has_blame(job->log)) break;
    bool had_lost = job->lost_name != NULL;
    if (!drop_blamed(job)) break;
    if (!had_lost && job->lost_name) {
      ons__free(job->request->allocator, job->first_log);
      job->first_log = job->log;
      job->log = NULL;
    }
  }
  if (result) return report_failure(job, job->log, result, error);
  if (!job->lost_name) return ONS_STATUS_OK;

  char text[8];
  if (job->first_log && ons__nvrtc_log_first_error(job->first_log, text, sizeof(text))) {
    ons__free(job->request->allocator, job->log);
    job->log = job->first_log;
    job->first_log = NULL;
    return report_failure(job, job->log, NVRTC_ERROR_COMPILATION, error);
  }
  return ons__error_set(error, ONS_STATUS_NOT_FOUND, "no kernel \"%s\" in %s: %s",
                        job->lost_name, job->request->name, job->lost_reason);
}

/* ---- the image --------------------------------------------------------------------- */

static ons_status read_code(const compile_job* job, ons__image* image, ons_error* error) {
  const ons__nvrtc_library* library = job->library;
  size_t size_bytes = 0;
  image->kind = ONS__IMAGE_CUBIN;
  if (library->nvrtcGetCUBINSize(job->program, &size_bytes) || size_bytes == 0) {
    image->kind = ONS__IMAGE_PTX;
    if (library->nvrtcGetPTXSize(job->program, &size_bytes)) size_bytes = 0;
  }
  if (size_bytes <= 1) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "the options given make NVRTC produce neither a cubin nor PTX");
  }
  image->code = ons__alloc(image->allocator, size_bytes);
  if (!image->code) return ons__error_no_memory(error);
  image->code_bytes = size_bytes;
  nvrtcResult result = image->kind == ONS__IMAGE_CUBIN
                           ? library->nvrtcGetCUBIN(job->program, image->code)
                           : library->nvrtcGetPTX(job->program, image->code);
  if (!result) return ONS_STATUS_OK;
  return ons__error_native(error, ONS_STATUS_INTERNAL, "nvrtcGetCUBIN", (int32_t)result,
                           "reading NVRTC's output failed: %s",
                           library->nvrtcGetErrorString(result));
}

/* The symbol that NVRTC made of an expression: borrowed from the program. */
static ons_status read_symbol(const compile_job* job,
                              void (*expression)(const ons__kernel_name*, ons__string*),
                              const ons__kernel_name* name, const char** out_symbol,
                              ons_error* error) {
  ons__string text;
  ons__string_init(&text, job->request->allocator);
  expression(name, &text);
  if (!ons__string_ok(&text)) return ons__error_no_memory(error);
  nvrtcResult result =
      job->library->nvrtcGetLoweredName(job->program, text.data, out_symbol);
  ons__string_clear(&text);
  if (!result) return ONS_STATUS_OK;
  return ons__error_native(error, ONS_STATUS_INTERNAL, "nvrtcGetLoweredName",
                           (int32_t)result, "NVRTC gives no symbol for \"%s\": %s",
                           name->name, job->library->nvrtcGetErrorString(result));
}

static ons_status read_kernel(const compile_job* job, const ons__kernel_name* name,
                              ons__image* image, ons_error* error) {
  ons__image_kernel* kernel = &image->kernels[image->kernel_count];
  const char* lowered = NULL;
  const char* signature = NULL;
  ons_status status = read_symbol(job, symbol_expression, name, &lowered, error);
  if (!status) status = read_symbol(job, signature_expression, name, &signature, error);
  if (status) return status;
  ++image->kernel_count; /* a half-filled one is destroyed with the image */
  kernel->name = ons__strdup(image->allocator, name->name);
  kernel->lowered = ons__strdup(image->allocator, lowered);
  /* The whole symbol: substitutions in it count from its start. */
  kernel->signature = ons__strdup(image->allocator, signature);
  bool ok = kernel->name && kernel->lowered && kernel->signature;
  return ok ? ONS_STATUS_OK : ons__error_no_memory(error);
}

static ons_status make_image(compile_job* job, ons__image** out_image, ons_error* error) {
  const ons__compile_request* request = job->request;
  ons_status status = ONS_STATUS_OK;
  ons__image* image = ons__alloc(request->allocator, sizeof(*image));
  if (!image) return ons__error_no_memory(error);
  image->allocator = request->allocator;
  image->kernels = ons__alloc_array(request->allocator, request->kernel_count + 1,
                                    sizeof(*image->kernels));
  image->log = ons__strdup(request->allocator, job->log);
  if (!image->kernels || !image->log) {
    status = ons__error_no_memory(error);
    goto fail;
  }
  status = read_code(job, image, error);
  for (size_t i = 0; !status && i < request->kernel_count; ++i) {
    if (!job->dropped[i]) status = read_kernel(job, &request->kernels[i], image, error);
  }
  if (status) goto fail;
  *out_image = image;
  return ONS_STATUS_OK;
fail:
  ons__image_destroy(image);
  return status;
}

static void clear_job(compile_job* job) {
  const ons_allocator* allocator = job->request->allocator;
  destroy_program(job);
  ons__nvrtc_input_clear(&job->input);
  ons__free(allocator, job->dropped);
  ons__free(allocator, job->first_log);
  ons__free(allocator, job->log);
}

ons_status ons__nvrtc_compile(ons__nvrtc* nvrtc, const ons__compile_request* request,
                              ons__image** out_image, char** out_log, ons_error* error) {
  *out_image = NULL;
  *out_log = NULL;
  ons_status status = get_library(nvrtc, error);
  if (status) return status;
  compile_job job = {.library = &nvrtc->library, .request = request};
  job.dropped =
      ons__alloc_array(request->allocator, request->kernel_count + 1, sizeof(bool));
  if (!job.dropped) status = ons__error_no_memory(error);
  if (!status) {
    const char* folders =
        ons__nvrtc_may_include(request) ? get_include_folders(nvrtc) : "";
    status = ons__nvrtc_input_make(&job.input, job.library, request, folders, error);
  }
  if (!status) status = compile(&job, error);
  if (!status) status = make_image(&job, out_image, error);
  if (!status && request->inputs) ons__nvrtc_inputs_collect(&job.input);
  *out_log = job.log;
  job.log = NULL;
  clear_job(&job);
  return status;
}

bool ons__nvrtc_identify(const ons__nvrtc* nvrtc, const ons__compile_request* request,
                         ons__string* out_text) {
  if (ons__nvrtc_may_include(request)) {
    const char* folders = nvrtc->config.include_path;
    ons__string_appendf(out_text, "include:%s\n", folders ? folders : "");
    ons__identity_append_variables(ons__identity_cuda_variables, out_text);
  }
  return ons__nvrtc_library_identify(&nvrtc->config, out_text);
}
