/* Any text comes back from marking its global indices: with the marks taken out again. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jit/source_joint.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void check(const char* source, const char* marked, size_t count) {
  static const char mark[] = "ons_cpu_joint_";
  size_t found = 0;
  while (*marked) {
    if (strncmp(marked, mark, sizeof(mark) - 1) == 0) {
      marked += sizeof(mark) - 1;
      assert(*marked == 't' || *marked == 'b' || *marked == '\\');
      ++found;
    }
    assert(*marked == *source);
    ++marked;
    ++source;
  }
  assert(!*source && found == 2 * count);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  char* source = malloc(size + 1);
  if (!source) return 0;
  if (size) memcpy(source, data, size);
  source[size] = '\0';
  ons__string text;
  ons__string_init(&text, NULL);
  size_t count = ons__source_joint_append(source, &text);
  if (!strstr(source, "ons_cpu_joint_") && ons__string_ok(&text)) {
    check(source, ons__string_text(&text), count);
  }
  ons__string_clear(&text);
  free(source);
  return 0;
}
