#include "jit/cccl.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "jit/nvrtc_library.h"

static bool has_library(const char* folder, size_t length) {
  char path[PATH_MAX];
  const int written = snprintf(path, sizeof(path), "%.*s/cuda/std", (int)length, folder);
  return written > 0 && (size_t)written < sizeof(path) && access(path, X_OK) == 0;
}

void ons__cccl_find(const ons__host_search_options* options, ons__string* out_folder) {
  const ons__nvrtc_config config = {.allocator = options->allocator,
                                    .locate = options->locate,
                                    .locate_user_data = options->locate_user_data};
  ons__string folders;
  ons__string_init(&folders, options->allocator);
  ons__nvrtc_find_includes(&config, &folders);
  for (const char* at = ons__string_text(&folders); *at;) {
    const size_t length = strcspn(at, ":");
    if (has_library(at, length)) {
      ons__string_append_bytes(out_folder, at, length);
      break;
    }
    at += length + (at[length] == ':');
  }
  ons__string_clear(&folders);
}
