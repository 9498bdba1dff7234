#include "jit/nvrtc_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit/build_id.h"
#include "jit/compiler_identity.h"
#include "runtime/base/dynlib.h"
#include "runtime/base/error.h"

#define FILE_NAMES "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"
static const char* const file_names[] = {FILE_NAMES};
enum { FILE_NAME_COUNT = sizeof(file_names) / sizeof(file_names[0]) };

/* The toolkits there may be, in the order in which they are asked. */
static const char* toolkit(size_t index, bool* out_end) {
  *out_end = false;
  switch (index) {
    case 0:
      return getenv("CUDA_HOME");
    case 1:
      return getenv("CUDA_PATH");
    case 2:
      return "/usr/local/cuda";
    default:
      *out_end = true;
      return NULL;
  }
}

static const char* environment(const char* name) {
  const char* value = getenv(name);
  return value && value[0] ? value : NULL;
}

static bool locate(const ons__nvrtc_config* config, ons_locate_what what, char* out_path,
                   size_t capacity_bytes) {
  return config->locate &&
         config->locate(config->locate_user_data, what, out_path, capacity_bytes);
}

bool ons__nvrtc_locate(const ons__nvrtc_config* config, char* out_path,
                       size_t capacity_bytes) {
  return !config->library_path && !environment("ONSTREAM_NVRTC") &&
         locate(config, ONS_LOCATE_NVRTC, out_path, capacity_bytes);
}

static const char* const toolkit_folders[] = {"lib64", "lib"};
enum { TOOLKIT_FOLDER_COUNT = sizeof(toolkit_folders) / sizeof(toolkit_folders[0]) };

static void* open_in_toolkit(const char* root, ons__string* tried) {
  for (size_t i = 0; i < TOOLKIT_FOLDER_COUNT; ++i) {
    for (size_t j = 0; j < FILE_NAME_COUNT; ++j) {
      char path[PATH_MAX];
      int length = snprintf(path, sizeof(path), "%s/%s/%s", root, toolkit_folders[i],
                            file_names[j]);
      if (length < 0 || (size_t)length >= sizeof(path) || access(path, R_OK)) continue;
      void* library = ons__dynlib_open(path, tried);
      if (library) return library;
    }
  }
  ons__string_appendf(tried, "\n  %s: no usable libnvrtc.so.* in lib64 or lib", root);
  return NULL;
}

/* A copy that happens to be in the process is no candidate: what a source compiles to
 * must not depend on what was imported before. */
static void* open_any(const ons__nvrtc_config* config, ons__string* tried) {
  if (config->library_path) return ons__dynlib_open(config->library_path, tried);
  const char* named = environment("ONSTREAM_NVRTC");
  if (named) return ons__dynlib_open(named, tried);

  void* library = NULL;
  char path[PATH_MAX];
  if (locate(config, ONS_LOCATE_NVRTC, path, sizeof(path))) {
    library = ons__dynlib_open(path, tried);
  }
  bool end = false;
  for (size_t i = 0; !library && !end; ++i) {
    const char* root = toolkit(i, &end);
    if (root && root[0]) library = open_in_toolkit(root, tried);
  }
  for (size_t i = 0; !library && i < FILE_NAME_COUNT; ++i) {
    library = ons__dynlib_open(file_names[i], tried);
  }
  return library;
}

/* NVRTC opens its builtins by bare name, which the loader does not find beside a library
 * that was itself opened by path; once mapped, the name is known. Where this fails
 * NVRTC's own attempt reports it. */
static void open_builtins(const ons__nvrtc_library* library) {
  Dl_info info;
  void* symbol = NULL;
  memcpy(&symbol, &library->nvrtcVersion, sizeof(symbol));
  if (!dladdr(symbol, &info) || !info.dli_fname) return;
  const char* slash = strrchr(info.dli_fname, '/');
  if (!slash) return;
  char path[PATH_MAX];
  int length = snprintf(path, sizeof(path), "%.*s/libnvrtc-builtins.so.%d.%d",
                        (int)(slash - info.dli_fname), info.dli_fname, library->major,
                        library->minor);
  if (length > 0 && (size_t)length < sizeof(path)) ons__dynlib_open(path, NULL);
}

static const char* resolve(void* handle, ons__nvrtc_library* library) {
  void* symbol = NULL;
#define ONS_NVRTC_SYMBOL(type, name, parameters) \
  symbol = ons__dynlib_symbol(handle, #name);    \
  if (!symbol) return #name;                     \
  memcpy(&library->name, &symbol, sizeof(symbol));
#include "jit/nvrtc_symbols.inc"
#undef ONS_NVRTC_SYMBOL
  return NULL;
}

ons_status ons__nvrtc_library_load(const ons__nvrtc_config* config,
                                   ons__nvrtc_library* out_library, ons_error* error) {
  ons__string tried;
  ons__string_init(&tried, config->allocator);
  ons_status status = ONS_STATUS_OK;
  void* handle = open_any(config, &tried);
  const char* missing = handle ? resolve(handle, out_library) : NULL;
  if (!handle) {
    status = ons__error_set(
        error, ONS_STATUS_UNAVAILABLE,
        "no NVRTC to compile CUDA source with: install a CUDA toolkit or the pip package "
        "nvidia-cuda-nvrtc, or name the library in ONSTREAM_NVRTC. Tried:%s",
        ons__string_text(&tried));
  } else if (missing) {
    status = ons__error_set(error, ONS_STATUS_UNAVAILABLE,
                            "the NVRTC found has no %s: version 11.2 or newer is needed",
                            missing);
  } else if (out_library->nvrtcVersion(&out_library->major, &out_library->minor)) {
    status = ons__error_set(error, ONS_STATUS_UNAVAILABLE, "nvrtcVersion failed");
  } else {
    open_builtins(out_library);
  }
  ons__string_clear(&tried);
  return status;
}

/* ---- which it would be ------------------------------------------------------------- */

static bool identify_in_folder(const char* folder, size_t length, ons__string* out_text) {
  for (size_t i = 0; i < FILE_NAME_COUNT; ++i) {
    char path[PATH_MAX];
    int written =
        snprintf(path, sizeof(path), "%.*s/%s", (int)length, folder, file_names[i]);
    if (written > 0 && (size_t)written < sizeof(path) &&
        ons__build_id_append(path, out_text)) {
      return true;
    }
  }
  return false;
}

/* The loader's own folders, as far as they can be known without its cache. */
static bool identify_by_name(ons__string* out_text) {
  static const char usual[] =
      "/usr/local/lib:/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:"
      "/lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu:/lib64:/usr/lib64:/lib:/usr/lib";
  const char* lists[] = {environment("LD_LIBRARY_PATH"), usual};
  for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); ++i) {
    for (const char* at = lists[i]; at && *at;) {
      const size_t length = strcspn(at, ":");
      if (length && identify_in_folder(at, length, out_text)) return true;
      at += length + (at[length] == ':');
    }
  }
  return false;
}

static bool identify_in_toolkit(const char* root, ons__string* out_text) {
  char path[PATH_MAX];
  for (size_t i = 0; i < TOOLKIT_FOLDER_COUNT; ++i) {
    int written = snprintf(path, sizeof(path), "%s/%s", root, toolkit_folders[i]);
    if (written > 0 && (size_t)written < sizeof(path) &&
        identify_in_folder(path, (size_t)written, out_text)) {
      return true;
    }
  }
  return false;
}

bool ons__nvrtc_library_identify(const ons__nvrtc_config* config, ons__string* out_text) {
  const char* named =
      config->library_path ? config->library_path : environment("ONSTREAM_NVRTC");
  if (named) return strchr(named, '/') && ons__build_id_append(named, out_text);
  char path[PATH_MAX];
  if (locate(config, ONS_LOCATE_NVRTC, path, sizeof(path)) &&
      ons__build_id_append(path, out_text)) {
    return true;
  }
  bool end = false;
  for (size_t i = 0; !end; ++i) {
    const char* root = toolkit(i, &end);
    if (root && root[0] && identify_in_toolkit(root, out_text)) return true;
  }
  return identify_by_name(out_text);
}

/* ---- headers ------------------------------------------------------------------------
 */

/* CUDA's own headers are in `folder`, since 13.0 those of CCCL in a folder below. */
static void append_folder(ons__string* folders, const char* folder, size_t length) {
  static const char* const below[] = {"", "/cccl"};
  for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); ++i) {
    char path[PATH_MAX];
    int written = snprintf(path, sizeof(path), "%.*s%s", (int)length, folder, below[i]);
    if (written <= 0 || (size_t)written >= sizeof(path) || access(path, X_OK)) continue;
    if (folders->length) ons__string_append(folders, ":");
    ons__string_append(folders, path);
  }
}

static void append_list(ons__string* folders, const char* list) {
  while (*list) {
    size_t length = strcspn(list, ":");
    if (length) append_folder(folders, list, length);
    list += length + (list[length] == ':');
  }
}

void ons__nvrtc_find_includes(const ons__nvrtc_config* config, ons__string* out_folders) {
  const char* named =
      config->include_path ? config->include_path : environment("ONSTREAM_CUDA_INCLUDE");
  char path[PATH_MAX];
  if (!named && locate(config, ONS_LOCATE_CUDA_INCLUDE, path, sizeof(path))) named = path;
  if (named) append_list(out_folders, named);
  bool end = named && named != path;
  for (size_t i = 0; !out_folders->length && !end; ++i) {
    const char* root = toolkit(i, &end);
    if (!root || !root[0]) continue;
    int length = snprintf(path, sizeof(path), "%s/include", root);
    if (length > 0 && (size_t)length < sizeof(path)) {
      append_folder(out_folders, path, (size_t)length);
    }
  }
}
