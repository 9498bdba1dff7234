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

struct ons__shared_object {
  const ons_allocator* allocator;
  atomic_uint reference_count;
  atomic_flag is_claimed;
  void* handle;
  char* folder; /* of the file that a debugger reads; NULL: none */
};

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

/* A debugger looks for it under the name that it was loaded by, in a process of its own:
 * what has debug information is loaded from a file. */
static bool is_for_debuggers(const void* code, size_t code_bytes) {
  static const char section[] = ".debug_info";
  return memmem(code, code_bytes, section, sizeof(section) - 1) != NULL;
}

/* For debuggers, and where /proc is not mounted. */
static void* open_from_folder(const ons_allocator* allocator, const void* code,
                              size_t code_bytes, char** out_folder, ons_error* error) {
  char* folder = NULL;
  *out_folder = NULL;
  if (ons__temp_folder_create(allocator, &folder, error) != ONS_STATUS_OK) return NULL;
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
  if (handle) {
    *out_folder = folder;
  } else {
    ons__temp_folder_remove(folder);
    ons__free(allocator, folder);
  }
  return handle;
}

ons_status ons__shared_object_open(const ons_allocator* allocator, const void* code,
                                   size_t code_bytes, ons__shared_object** out_object,
                                   ons_error* error) {
  *out_object = NULL;
  ons__shared_object* self = ons__alloc(allocator, sizeof(*self));
  if (!self) return ons__error_no_memory(error);
  self->allocator = allocator;
  atomic_init(&self->reference_count, 1);
  atomic_flag_clear(&self->is_claimed);
  ons_error detail = ONS_ERROR_INIT;
  if (!is_for_debuggers(code, code_bytes)) {
    self->handle = open_from_memory(code, code_bytes);
  }
  if (!self->handle) {
    self->handle = open_from_folder(allocator, code, code_bytes, &self->folder, &detail);
  }
  if (!self->handle) {
    ons__free(allocator, self);
    return ons__error_set(error, detail.code, "%s", detail.message);
  }
  *out_object = self;
  return ONS_STATUS_OK;
}

ons__shared_object* ons__shared_object_claim(ons__shared_object* object) {
  if (!object || atomic_flag_test_and_set(&object->is_claimed)) return NULL;
  atomic_fetch_add_explicit(&object->reference_count, 1, memory_order_relaxed);
  return object;
}

void ons__shared_object_release(ons__shared_object* object) {
  if (!object) return;
  if (atomic_fetch_sub_explicit(&object->reference_count, 1, memory_order_acq_rel) > 1) {
    return;
  }
  dlclose(object->handle);
  ons__temp_folder_remove(object->folder);
  ons__free(object->allocator, object->folder);
  ons__free(object->allocator, object);
}

void* ons__shared_object_find(const ons__shared_object* object, const char* name) {
  return dlsym(object->handle, name);
}
