#include "jit/cache.h"

#include <pthread.h>
#include <string.h>

#include "jit/cache_entry.h"
#include "jit/cache_folder.h"
#include "jit/inputs.h"
#include "jit/shared_object.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/thread.h"

/* A key that a thread is at; on that thread's stack. */
typedef struct flight {
  struct flight* next;
  const ons__cache_key* key;
} flight;

struct ons__cache {
  const ons_allocator* allocator;
  uint64_t limit_bytes;
  char* folder;     /* NULL: off */
  ons__mutex mutex; /* guards `flights` */
  pthread_cond_t landed;
  flight* flights;
};

ons_status ons__cache_create(const ons__cache_config* config, ons__cache** out_cache,
                             ons_error* error) {
  ons__cache* cache = ons__alloc(config->allocator, sizeof(*cache));
  if (!cache) return ons__error_no_memory(error);
  cache->allocator = config->allocator;
  cache->limit_bytes = config->limit_bytes ? config->limit_bytes : ONS__CACHE_LIMIT_BYTES;
  cache->folder = ons__cache_folder_find(config->allocator, config->folder);
  ons__mutex_init(&cache->mutex);
  pthread_cond_init(&cache->landed, NULL);
  *out_cache = cache;
  return ONS_STATUS_OK;
}

void ons__cache_destroy(ons__cache* cache) {
  if (!cache) return;
  pthread_cond_destroy(&cache->landed);
  ons__mutex_destroy(&cache->mutex);
  ons__free(cache->allocator, cache->folder);
  ons__free(cache->allocator, cache);
}

bool ons__cache_is_on(const ons__cache* cache) { return cache->folder != NULL; }

/* ---- one thread for a key --------------------------------------------------------- */

static bool is_in_flight(const ons__cache* cache, const ons__cache_key* key) {
  for (const flight* at = cache->flights; at; at = at->next) {
    if (memcmp(at->key, key, sizeof(*key)) == 0) return true;
  }
  return false;
}

static void take_off(ons__cache* cache, flight* own) {
  ons__mutex_lock(&cache->mutex);
  while (is_in_flight(cache, own->key)) {
    pthread_cond_wait(&cache->landed, &cache->mutex);
  }
  own->next = cache->flights;
  cache->flights = own;
  ons__mutex_unlock(&cache->mutex);
}

static void land(ons__cache* cache, flight* own) {
  ons__mutex_lock(&cache->mutex);
  flight** link = &cache->flights;
  while (*link != own) link = &(*link)->next;
  *link = own->next;
  pthread_cond_broadcast(&cache->landed);
  ons__mutex_unlock(&cache->mutex);
}

/* ---- the folder ------------------------------------------------------------------- */

/* A library that the code was linked to may be gone since. */
static bool can_load(ons__image* image) {
  return image->kind != ONS__IMAGE_SHARED_OBJECT ||
         !ons__shared_object_open(image->allocator, image->code, image->code_bytes,
                                  &image->object, NULL);
}

static ons__image* find(const ons__cache* cache, const ons__cache_key* key) {
  char* data = NULL;
  size_t data_bytes = 0;
  ons__image* image = NULL;
  ons__inputs inputs;
  if (!ons__cache_folder_read(cache->allocator, cache->folder, key, &data, &data_bytes))
    return NULL;
  if (ons__cache_entry_read(cache->allocator, key, data, data_bytes, &image, &inputs)) {
    if (!ons__inputs_hold(&inputs) || !can_load(image)) {
      ons__image_destroy(image);
      image = NULL;
    }
    ons__inputs_clear(&inputs);
  }
  ons__free(cache->allocator, data);
  return image;
}

static void keep(const ons__cache* cache, const ons__cache_key* key,
                 const ons__image* image, const ons__inputs* inputs) {
  enum { TRIM_ONE_IN = 16 }; /* of those that write */
  if (inputs->is_unknown) return;
  ons__string bytes;
  ons__string_init(&bytes, cache->allocator);
  ons__cache_entry_write(key, image, inputs, &bytes);
  const bool written =
      ons__string_ok(&bytes) &&
      ons__cache_folder_write(cache->folder, key, bytes.data, bytes.length);
  ons__string_clear(&bytes);
  if (written && key->bytes[0] % TRIM_ONE_IN == 0) {
    ons__cache_folder_trim(cache->allocator, cache->folder, cache->limit_bytes);
  }
}

ons_status ons__cache_compile(ons__cache* cache, const ons__cache_key* key,
                              const ons__compile_request* request,
                              ons__cache_compile_fn* compile, void* context,
                              ons__image** out_image, char** out_log, ons_error* error) {
  ons_status status = ONS_STATUS_OK;
  flight own = {.key = key};
  *out_log = NULL;
  take_off(cache, &own);
  *out_image = find(cache, key);
  if (!*out_image) {
    ons__inputs inputs;
    ons__inputs_init(&inputs, cache->allocator);
    ons__compile_request recorded = *request;
    recorded.inputs = &inputs;
    status = compile(context, &recorded, out_image, out_log, error);
    if (!status) keep(cache, key, *out_image, &inputs);
    ons__inputs_clear(&inputs);
  }
  land(cache, &own);
  return status;
}
