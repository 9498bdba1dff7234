#include "jit/cache.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "jit/cache_entry.h"
#include "jit/cache_folder.h"
#include "jit/cache_lease.h"
#include "jit/inputs.h"
#include "jit/shared_object.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"

/* A key that a thread is at; on that thread's stack. In the child of a fork those of the
 * parent's threads are still there, and count for nothing. */
typedef struct flight {
  struct flight* next;
  const ons__cache_key* key;
  pid_t pid;
} flight;

struct ons__cache {
  ons__cache_config config; /* its folder is `folder` */
  char* folder;             /* NULL: off */
  ons__mutex mutex;         /* guards `flights` */
  pthread_cond_t landed;
  flight* flights;
  pid_t pid;
};

ons_status ons__cache_create(const ons__cache_config* config, ons__cache** out_cache,
                             ons_error* error) {
  ons__cache* cache = ons__alloc(config->allocator, sizeof(*cache));
  if (!cache) return ons__error_no_memory(error);
  cache->config = *config;
  if (!config->limit_bytes) cache->config.limit_bytes = ONS__CACHE_LIMIT_BYTES;
  if (!config->wait_ms) cache->config.wait_ms = ONS__CACHE_WAIT_MS;
  cache->folder = ons__cache_folder_find(config->allocator, config->folder);
  cache->config.folder = cache->folder;
  cache->pid = getpid();
  ons__mutex_init(&cache->mutex);
  pthread_cond_init(&cache->landed, NULL);
  *out_cache = cache;
  return ONS_STATUS_OK;
}

void ons__cache_destroy(ons__cache* cache) {
  if (!cache) return;
  const ons_allocator* allocator = cache->config.allocator;
  if (cache->pid == getpid()) { /* or it waits for the parent's threads */
    pthread_cond_destroy(&cache->landed);
    ons__mutex_destroy(&cache->mutex);
  }
  ons__free(allocator, cache->folder);
  ons__free(allocator, cache);
}

const char* ons__cache_path(const ons__cache* cache) { return cache->folder; }

/* ---- one thread for a key --------------------------------------------------------- */

static bool is_in_flight(const ons__cache* cache, const flight* own) {
  for (const flight* at = cache->flights; at; at = at->next) {
    if (at->pid == own->pid && memcmp(at->key, own->key, sizeof(*own->key)) == 0) {
      return true;
    }
  }
  return false;
}

static void take_off(ons__cache* cache, flight* own) {
  ons__mutex_lock(&cache->mutex);
  while (is_in_flight(cache, own)) {
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
  if (!ons__cache_folder_read(cache->config.allocator, cache->folder, key, &data,
                              &data_bytes))
    return NULL;
  if (ons__cache_entry_read(cache->config.allocator, key, data, data_bytes, &image,
                            &inputs)) {
    if (!ons__inputs_hold(&inputs) || !can_load(image)) {
      ons__image_destroy(image);
      image = NULL;
    }
    ons__inputs_clear(&inputs);
  }
  ons__free(cache->config.allocator, data);
  return image;
}

/* Is there an entry for others now? */
static bool keep(const ons__cache* cache, const ons__cache_key* key,
                 const ons__image* image, const ons__inputs* inputs) {
  enum { TRIM_ONE_IN = 16 }; /* of those that write */
  if (inputs->is_unknown) return false;
  ons__string bytes;
  ons__string_init(&bytes, cache->config.allocator);
  ons__cache_entry_write(key, image, inputs, &bytes);
  const bool written =
      ons__string_ok(&bytes) &&
      ons__cache_folder_write(cache->folder, key, bytes.data, bytes.length);
  ons__string_clear(&bytes);
  if (written && key->bytes[0] % TRIM_ONE_IN == 0) {
    ons__cache_folder_trim(cache->config.allocator, cache->folder,
                           cache->config.limit_bytes);
  }
  return written;
}

/* ---- one process for a key -------------------------------------------------------- */

static void sleep_ms(long time_ms) {
  const struct timespec time = {.tv_sec = time_ms / 1000,
                                .tv_nsec = time_ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* Ends with the lease, with the entry that somebody else has made, or when it has taken
 * too long: then the two compile. */
static ons_status await(const ons__cache* cache, const ons__cache_key* key,
                        ons__lease* lease, ons__image** out_image, ons_error* error) {
  enum { PAUSE_MS = 4, ASK_EVERY_MS = 48 };
  uint64_t seen = 0;
  for (uint32_t waited_ms = 0;; waited_ms += PAUSE_MS) {
    const ons__lease_state state = ons__lease_try(lease, cache->folder, key);
    if (lease->folder_fd < 0) return ONS_STATUS_OK;
    /* The one that was there before is looked at too: it may be newer than the miss. */
    const uint64_t stamp = ons__cache_folder_stamp(lease->folder_fd, key);
    if (stamp != seen) *out_image = find(cache, key);
    if (*out_image || state != ONS__LEASE_TAKEN) return ONS_STATUS_OK;
    seen = stamp;
    if (waited_ms >= cache->config.wait_ms) return ONS_STATUS_OK;
    if (cache->config.interrupt && waited_ms % ASK_EVERY_MS == ASK_EVERY_MS - PAUSE_MS &&
        ons__interrupt_ask(cache->config.interrupt, cache->config.interrupt_user_data)) {
      return ons__error_set(error, ONS_STATUS_INTERRUPTED,
                            "interrupted while another process compiles the module");
    }
    sleep_ms(PAUSE_MS);
  }
}

static ons_status compile_and_keep(const ons__cache* cache, const ons__cache_key* key,
                                   const ons__compile_request* request,
                                   ons__cache_compile_fn* compile, void* context,
                                   ons__image** out_image, char** out_log,
                                   bool* out_has_kept, ons_error* error) {
  ons__inputs inputs;
  ons__inputs_init(&inputs, cache->config.allocator);
  ons__compile_request recorded = *request;
  recorded.inputs = &inputs;
  ons_status status = compile(context, &recorded, out_image, out_log, error);
  *out_has_kept = !status && keep(cache, key, *out_image, &inputs);
  ons__inputs_clear(&inputs);
  return status;
}

static void log_about(const ons__cache* cache, const ons__cache_key* key,
                      const ons__compile_request* request, const char* what) {
  ons__log(cache->config.log_areas, ONS__LOG_CACHE, "%02x%02x%02x %s for %s: %s",
           key->bytes[0], key->bytes[1], key->bytes[2], request->name, request->arch,
           what);
}

ons_status ons__cache_compile(ons__cache* cache, const ons__cache_key* key,
                              const ons__compile_request* request,
                              ons__cache_compile_fn* compile, void* context,
                              ons__image** out_image, char** out_log, ons_error* error) {
  ons_status status = ONS_STATUS_OK;
  flight own = {.key = key, .pid = getpid()};
  *out_log = NULL;
  take_off(cache, &own);
  *out_image = find(cache, key);
  if (*out_image) log_about(cache, key, request, "found");
  if (!*out_image) {
    ons__lease lease = ONS__LEASE_INIT;
    bool has_kept = true;
    status = await(cache, key, &lease, out_image, error);
    if (*out_image) {
      log_about(cache, key, request, "found, made by another process meanwhile");
    } else if (!status) {
      status = compile_and_keep(cache, key, request, compile, context, out_image, out_log,
                                &has_kept, error);
      log_about(cache, key, request, has_kept ? "kept" : "not kept");
    }
    ons__lease_release(&lease, has_kept);
  }
  land(cache, &own);
  return status;
}
