/* A trace of what the library does, on the error output: ONSTREAM_LOG. */
#ifndef ONS_RUNTIME_BASE_LOG_H_
#define ONS_RUNTIME_BASE_LOG_H_

#include <onstream/export.h>
#include <stdint.h>

/* XX(identifier, name in ONSTREAM_LOG) */
#define ONS__LOG_AREAS(XX) \
  XX(COMPILE, "compile")   \
  XX(CACHE, "cache")       \
  XX(LAUNCH, "launch")

enum {
#define ONS__LOG_INDEX(identifier, name) ONS__LOG_INDEX_##identifier,
  ONS__LOG_AREAS(ONS__LOG_INDEX)
#undef ONS__LOG_INDEX
};

typedef enum ons__log_area {
#define ONS__LOG_AREA(identifier, name) \
  ONS__LOG_##identifier = 1 << ONS__LOG_INDEX_##identifier,
  ONS__LOG_AREAS(ONS__LOG_AREA)
#undef ONS__LOG_AREA
} ons__log_area;

/* The areas that ONSTREAM_LOG names, ',' between them; "all" is all. */
uint32_t ons__log_areas(void);

/* One line, when the area is among `areas`. */
void ons__log(uint32_t areas, ons__log_area area, const char* format, ...)
    ONS_PRINTF(3, 4);

/* For how long things take. */
uint64_t ons__log_now_ms(void);

#endif /* ONS_RUNTIME_BASE_LOG_H_ */
