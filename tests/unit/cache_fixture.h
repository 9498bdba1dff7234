/* A folder for a cache, and an image to keep in it. */
#ifndef ONS_TESTS_UNIT_CACHE_FIXTURE_H_
#define ONS_TESTS_UNIT_CACHE_FIXTURE_H_

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jit/cache_entry.h"
#include "runtime/base/alloc.h"
#include "runtime/base/path.h"

static char* scratch;    /* a temporary folder */
static char folder[512]; /* in it, not made yet */

static inline void open_scratch(void) {
  cr_assert(eq(int, ons__temp_folder_create(NULL, &scratch, NULL), 0));
  snprintf(folder, sizeof(folder), "%s/a cache \xc3\xa9", scratch);
}

static inline void close_scratch(void) {
  ons__temp_folder_remove(scratch);
  ons__free(NULL, scratch);
}

static inline void write_file(const char* path, const char* text) {
  cr_assert(eq(int, ons__file_write(NULL, path, 1, text, strlen(text), NULL), 0));
}

/* Long enough for the file system's clock to go on. */
static inline void wait_a_tick(void) {
  const struct timespec tick = {.tv_nsec = 30000000};
  nanosleep(&tick, NULL);
}

static inline ons__image* make_image(const char* code) {
  ons__image* image = ons__alloc(NULL, sizeof(*image));
  image->kind = ONS__IMAGE_CUBIN;
  image->code_bytes = strlen(code);
  image->code = ons__strdup(NULL, code);
  image->log = ons__strdup(NULL, "a warning\n");
  image->kernel_count = 2;
  image->kernels = ons__alloc_array(NULL, 2, sizeof(*image->kernels));
  for (int i = 0; i < 2; ++i) {
    image->kernels[i].name = ons__strdup(NULL, i ? "axpy<float>" : "scale");
    image->kernels[i].lowered = ons__strdup(NULL, i ? "_Z4axpy" : "_Z5scale");
    image->kernels[i].signature = ons__strdup(NULL, i ? "FvfPKfE" : "");
  }
  return image;
}

#endif /* ONS_TESTS_UNIT_CACHE_FIXTURE_H_ */
