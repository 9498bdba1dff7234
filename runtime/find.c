/* Where what compiles is, for people. */
#include <dlfcn.h>
#include <string.h>

#include "jit/host_search.h"
#include "jit/nvrtc_library.h"
#include "runtime/base/blob.h"
#include "runtime/base/error.h"
#include "runtime/runtime.h"

static ons_status find_nvrtc(const ons__nvrtc_config* config, ons__string* out_text,
                             ons_error* error) {
  ons__nvrtc_library library = {0};
  ons_status status = ons__nvrtc_library_load(config, &library, error);
  if (status) return status;
  Dl_info info = {0};
  void* address = NULL;
  memcpy(&address, &library.nvrtcVersion, sizeof(address));
  dladdr(address, &info);
  ons__string_appendf(out_text, "NVRTC %d.%d: %s", library.major, library.minor,
                      info.dli_fname ? info.dli_fname : "unknown");
  return ONS_STATUS_OK;
}

static ons_status find_host_compiler(const ons__settings* settings, ons__string* out_text,
                                     ons_error* error) {
  const ons__host_search_options options = {
      .allocator = settings->allocator,
      .explicit_command = settings->host_compiler_path,
      .locate = settings->locate,
      .locate_user_data = settings->locate_user_data,
      .interrupt = settings->interrupt,
      .interrupt_user_data = settings->interrupt_user_data};
  ons__host_command command = {0};
  ons_status status = ons__host_search(&options, &command, error);
  for (size_t i = 0; !status && i < command.words.count; ++i) {
    ons__string_appendf(out_text, "%s%s", i ? " " : "", command.words.items[i]);
  }
  ons__words_clear(&command.words);
  return status;
}

static ons_status find(const ons__settings* settings, ons_locate_what what,
                       ons__string* out_text, ons_error* error) {
  const ons__nvrtc_config config = {.allocator = settings->allocator,
                                    .locate = settings->locate,
                                    .locate_user_data = settings->locate_user_data,
                                    .library_path = settings->nvrtc_path,
                                    .include_path = settings->cuda_include_path};
  switch (what) {
    case ONS_LOCATE_NVRTC:
      return find_nvrtc(&config, out_text, error);
    case ONS_LOCATE_HOST_COMPILER:
      return find_host_compiler(settings, out_text, error);
    case ONS_LOCATE_CUDA_INCLUDE:
      ons__nvrtc_find_includes(&config, out_text);
      if (out_text->length || out_text->failed) return ONS_STATUS_OK;
      return ons__error_set(error, ONS_STATUS_UNAVAILABLE,
                            "CUDA's headers were not found: name their folders in "
                            "ONSTREAM_CUDA_INCLUDE, install a CUDA toolkit, or the pip "
                            "packages nvidia-cuda-runtime and nvidia-cuda-cccl");
  }
  return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "nothing is called %d",
                        (int)what);
}

ons_status ons_runtime_find(ons_runtime* runtime, ons_locate_what what,
                            ons_blob** out_text, ons_error* error) {
  if (out_text) *out_text = NULL;
  if (!runtime || !out_text) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime or out_text is NULL");
  }
  ons__string text;
  ons__string_init(&text, runtime->settings.allocator);
  ons_status status = find(&runtime->settings, what, &text, error);
  if (!status) {
    *out_text = ons__string_ok(&text)
                    ? ons__blob_create(ons__string_text(&text), text.length)
                    : NULL;
    if (!*out_text) status = ons__error_no_memory(error);
  }
  ons__string_clear(&text);
  return status;
}

const char* ons_runtime_cache_path(const ons_runtime* runtime) {
  return runtime ? ons__cache_path(runtime->cache) : NULL;
}
