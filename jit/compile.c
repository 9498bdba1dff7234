#include "jit/compile.h"

#include <string.h>

#include "jit/shared_object.h"
#include "runtime/base/alloc.h"

void ons__image_destroy(ons__image* image) {
  if (!image) return;
  const ons_allocator* allocator = image->allocator;
  for (size_t i = 0; image->kernels && i < image->kernel_count; ++i) {
    ons__free(allocator, image->kernels[i].name);
    ons__free(allocator, image->kernels[i].lowered);
    ons__free(allocator, image->kernels[i].signature);
  }
  ons__free(allocator, image->kernels);
  ons__free(allocator, image->code);
  ons__free(allocator, image->log);
  ons__shared_object_release(image->object);
  ons__free(allocator, image);
}

const ons__image_kernel* ons__image_find(const ons__image* image, const char* name) {
  for (size_t i = 0; i < image->kernel_count; ++i) {
    if (strcmp(image->kernels[i].name, name) == 0) return &image->kernels[i];
  }
  return NULL;
}
