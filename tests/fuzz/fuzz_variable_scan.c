/* Any text is scanned for variables; what is found occurs in it. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jit/source_scan.h"
#include "jit/variable_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void check(const char* source, const ons__variable_scan* scan) {
  for (size_t i = 0; i < scan->count; ++i) {
    const char* name = scan->variables[i].name;
    assert(name && name[0]);
    assert(ons__variable_scan_find(scan, name) == &scan->variables[i]);
    const char* last = strrchr(name, ':');
    last = last ? last + 1 : name;
    /* Looking for every name would make the check quadratic. */
    if (i < 4) assert(ons__source_has_identifier(source, last, strlen(last)));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  char* source = malloc(size + 1);
  if (!source) return 0;
  if (size) memcpy(source, data, size);
  source[size] = '\0';
  ons__variable_scan scan = {0};
  if (ons__variable_scan_run(NULL, source, &scan)) check(source, &scan);
  ons__variable_scan_clear(&scan);
  free(source);
  return 0;
}
