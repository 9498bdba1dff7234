/* Compiled once: images are kept in a folder for other processes, and a key is compiled
 * by one thread of one process at a time. */
#ifndef ONS_JIT_CACHE_H_
#define ONS_JIT_CACHE_H_

#include "jit/cache_key.h"
#include "jit/compile.h"

typedef struct ons__cache ons__cache;

typedef struct ons__cache_config {
  const ons_allocator* allocator;
  const char* folder;         /* see ons__cache_folder_find; copied */
  uint64_t limit_bytes;       /* 0: ONS__CACHE_LIMIT_BYTES */
  uint32_t log_areas;         /* ons__log_area */
  uint32_t wait_ms;           /* for another process's compile; 0: ONS__CACHE_WAIT_MS */
  ons_interrupt_fn interrupt; /* of that wait; NULL: none */
  void* interrupt_user_data;
} ons__cache_config;

#define ONS__CACHE_LIMIT_BYTES ((uint64_t)1 << 30)
enum { ONS__CACHE_WAIT_MS = 600000 };

/* Touches no file. OUT_OF_MEMORY. */
ons_status ons__cache_create(const ons__cache_config* config, ons__cache** out_cache,
                             ons_error* error);
void ons__cache_destroy(ons__cache* cache); /* NULL is accepted */

/* NULL: there is none, and no use for a key. Borrowed. */
const char* ons__cache_path(const ons__cache* cache);

typedef ons_status ons__cache_compile_fn(void* context,
                                         const ons__compile_request* request,
                                         ons__image** out_image, char** out_log,
                                         ons_error* error);

/* The image of the key, else what `compile` makes of the request, which is then kept
 * where its inputs are known. Waits while another thread or process compiles it, the
 * latter for a time. As ons__backend_ops.compile otherwise, and INTERRUPTED; |out_log|
 * stays NULL for an image that was there. */
ons_status ons__cache_compile(ons__cache* cache, const ons__cache_key* key,
                              const ons__compile_request* request,
                              ons__cache_compile_fn* compile, void* context,
                              ons__image** out_image, char** out_log, ons_error* error);

#endif /* ONS_JIT_CACHE_H_ */
