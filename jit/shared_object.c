#include "jit/shared_object.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/path.h"
#include "runtime/base/string.h"

/* The loader takes a path that it has seen before for the library it knows by that path,
 * and descriptor numbers come back. So each path is spelt in a way of its own: the bits
 * of a counter, as "./" and ".//". */
static void spell_path(int fd, char* out_path, size_t capacity) {
  static atomic_uint opened;
  size_t length = (size_t)snprintf(out_path, capacity, "/proc/self/fd/");
  for (unsigned bits = atomic_fetch_add(&opened, 1) + 1; bits; bits >>= 1) {
    length +=
        (size_t)snprintf(out_path + length, capacity - length, bits & 1 ? ".//" : "./");
  }
  snprintf(out_path + length, capacity - length, "%d", fd);
}

static void* open_from_memory(const void* code, size_t code_bytes) {
  int fd = ons__memory_file(code, code_bytes);
  if (fd < 0) return NULL;
  char path[160];
  spell_path(fd, path, sizeof(path));
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  close(fd);
  return handle;
}

/* Where /proc is not mounted. */
static void* open_from_folder(const void* code, size_t code_bytes, ons_error* error) {
  char* folder = NULL;
  if (ons__temp_folder_create(NULL, &folder, error) != ONS_STATUS_OK) return NULL;
  ons__string path;
  ons__string_init(&path, NULL);
  ons__string_appendf(&path, "%s/module.so", folder);
  void* handle = NULL;
  if (!ons__string_ok(&path)) {
    (void)ons__error_no_memory(error);
  } else if (ons__file_write(NULL, path.data, path.length, code, code_bytes, error) ==
             ONS_STATUS_OK) {
    handle = dlopen(path.data, RTLD_NOW | RTLD_LOCAL);
    const char* reason = handle ? NULL : dlerror();
    if (!handle) {
      (void)ons__error_native(error, ONS_STATUS_IO, "dlopen", 0,
                              "the compiled kernels cannot be loaded: %s",
                              reason ? reason : "unknown error");
    }
  }
  ons__string_clear(&path);
  ons__temp_folder_remove(folder);
  ons__free(NULL, folder);
  return handle;
}

ons_status ons__shared_object_open(const void* code, size_t code_bytes, void** out_handle,
                                   ons_error* error) {
  *out_handle = open_from_memory(code, code_bytes);
  if (*out_handle) return ONS_STATUS_OK;
  ons_error detail = ONS_ERROR_INIT;
  *out_handle = open_from_folder(code, code_bytes, &detail);
  if (*out_handle) return ONS_STATUS_OK;
  return ons__error_set(error, detail.code, "%s", detail.message);
}
