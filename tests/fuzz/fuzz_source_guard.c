/* Any text comes back from marking its bounds checks: with the marks taken out again. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jit/source_guard.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/* What the mark at `at` is long; 0: there is none. */
static size_t mark_length(const char* at) {
  static const char* const kMarks[] = {"::ons_cpu_guard(bool(",
                                       "::ons_cpu_guard_return(bool("};
  for (size_t i = 0; i < 2; ++i) {
    size_t length = strlen(kMarks[i]);
    if (strncmp(at, kMarks[i], length) == 0) return length;
  }
  return 0;
}

static void check(const char* source, const char* marked, size_t count) {
  size_t opened = 0;
  size_t closed = 0;
  while (*marked) {
    size_t length = mark_length(marked);
    if (length > 0) {
      marked += length;
      ++opened;
    } else if (*marked == *source) {
      ++marked;
      ++source;
    } else {
      /* Two parentheses more than the source has in this place. */
      assert(marked[0] == ')' && marked[1] == ')' && marked[-1] == ')');
      marked += 2;
      ++closed;
      assert(closed == opened);
    }
  }
  assert(!*source && opened == count && closed == count);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  char* source = malloc(size + 1);
  if (!source) return 0;
  if (size) memcpy(source, data, size);
  source[size] = '\0';
  ons__string text;
  ons__string_init(&text, NULL);
  size_t count = ons__source_guard_append(source, &text);
  if (!strstr(source, "ons_cpu_guard") && ons__string_ok(&text)) {
    check(source, ons__string_text(&text), count);
  }
  ons__string_clear(&text);
  free(source);
  return 0;
}
