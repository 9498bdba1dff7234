#include "runtime/base/dynlib.h"

#include <dlfcn.h>

void* ons__dynlib_open(const char* path, ons__string* tried) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library && tried) {
    const char* reason = dlerror();
    ons__string_appendf(tried, "\n  %s: %s", path, reason ? reason : "unknown error");
  }
  return library;
}

void* ons__dynlib_open_loaded(const char* path) {
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

void* ons__dynlib_symbol(void* library, const char* name) { return dlsym(library, name); }
