/* Any text is scanned for kernels; what is found occurs in it. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jit/source_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void check(const char* source, const ons__source_scan* scan) {
  if (scan->kernel_count > 0) {
    assert(ons__source_has_identifier(source, "__global__", strlen("__global__")));
  }
  for (size_t i = 0; i < scan->kernel_count; ++i) {
    const ons__scanned_kernel* kernel = &scan->kernels[i];
    assert(kernel->name && kernel->name[0]);
    const char* last = strrchr(kernel->name, ':');
    last = last ? last + 1 : kernel->name;
    /* Looking for every name would make the check quadratic. */
    if (i < 4) assert(ons__source_has_identifier(source, last, strlen(last)));
    for (size_t j = 0; j < kernel->parameter_count; ++j) {
      assert(!kernel->parameter_names[j] || kernel->parameter_names[j][0]);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  char* source = malloc(size + 1);
  if (!source) return 0;
  if (size) memcpy(source, data, size);
  source[size] = '\0';
  ons__source_scan scan = {0};
  if (ons__source_scan_run(NULL, source, &scan)) check(source, &scan);
  ons__source_scan_clear(&scan);
  free(source);
  return 0;
}
