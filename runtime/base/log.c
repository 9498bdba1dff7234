#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
  ons__log_area area;
  const char* name;
} names[] = {
#define ONS__LOG_NAME(identifier, name) {ONS__LOG_##identifier, name},
    ONS__LOG_AREAS(ONS__LOG_NAME)
#undef ONS__LOG_NAME
};

uint32_t ons__log_areas(void) {
  uint32_t areas = 0;
  const char* text = getenv("ONSTREAM_LOG");
  while (text && *text) {
    const size_t length = strcspn(text, ",");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
      const bool is_all = length == 3 && memcmp(text, "all", 3) == 0;
      const bool is_it =
          strlen(names[i].name) == length && memcmp(text, names[i].name, length) == 0;
      if (is_all || is_it) areas |= (uint32_t)names[i].area;
    }
    text += length + (text[length] == ',');
  }
  return areas;
}

void ons__log(uint32_t areas, ons__log_area area, const char* format, ...) {
  if (!(areas & (uint32_t)area)) return;
  char line[1024];
  const char* name = "";
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
    if (names[i].area == area) name = names[i].name;
  }
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  fprintf(stderr, "onstream %s: %s\n", name, line); /* in one piece */
}

uint64_t ons__log_now_ms(void) {
  struct timespec now = {0};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
