#include "runtime/base/steps.h"

#ifdef ONS_TEST_STEPS

#include <onstream/export.h>
#include <stddef.h>
#include <string.h>

static const struct {
  const char* name;
  const char* words;
} steps[] = {
#define STEP(name, words) {#name, words},
    ONS__STEPS(STEP)
#undef STEP
};

enum { STEP_COUNT = sizeof(steps) / sizeof(steps[0]) };

bool ons__steps_left_out[STEP_COUNT];

/* For the tests' dlsym, and so in no header. */
ONS_API const char* ons_test_step_name(size_t index);
ONS_API const char* ons_test_step_words(size_t index);
ONS_API int ons_test_step_set(const char* name, int on);

/* NULL past the last one. */
const char* ons_test_step_name(size_t index) {
  return index < STEP_COUNT ? steps[index].name : NULL;
}

const char* ons_test_step_words(size_t index) {
  return index < STEP_COUNT ? steps[index].words : NULL;
}

/* 0: there is no such step. */
int ons_test_step_set(const char* name, int on) {
  for (size_t i = 0; i < STEP_COUNT; ++i) {
    if (strcmp(steps[i].name, name)) continue;
    ons__steps_left_out[i] = !on;
    return 1;
  }
  return 0;
}

#else

typedef int ons__no_steps; /* a translation unit declares something */

#endif
