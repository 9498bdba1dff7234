#include "jit/inputs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/base/path.h"
#include "runtime/base/string.h"

static int64_t nanoseconds(struct timespec time) {
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* The coarse clock is the one that file systems take their times from. */
void ons__inputs_init(ons__inputs* inputs, const ons_allocator* allocator) {
  struct timespec now = {0};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  *inputs = (ons__inputs){.allocator = allocator, .begun_ns = nanoseconds(now)};
}

void ons__inputs_clear(ons__inputs* inputs) {
  for (size_t i = 0; i < inputs->count; ++i) {
    ons__free(inputs->allocator, inputs->items[i].path);
  }
  ons__free(inputs->allocator, inputs->items);
  ons__free(inputs->allocator, inputs->slots);
  *inputs = (ons__inputs){.allocator = inputs->allocator};
}

/* ---- by path ---------------------------------------------------------------------- */

/* The slot with the path, or the free one for it. */
static uint32_t* find_slot(const ons__inputs* inputs, const char* path) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char* at = path; *at; ++at) {
    hash = (hash ^ (unsigned char)*at) * 0x100000001b3;
  }
  for (size_t i = (size_t)hash;; ++i) {
    uint32_t* slot = &inputs->slots[i & (inputs->slot_count - 1)];
    if (!*slot || strcmp(inputs->items[*slot - 1].path, path) == 0) return slot;
  }
}

bool ons__inputs_has(const ons__inputs* inputs, const char* path) {
  return inputs->count > 0 && *find_slot(inputs, path);
}

/* Twice as many items, and at least two slots for each. */
static bool grow(ons__inputs* inputs) {
  const size_t capacity = inputs->capacity ? 2 * inputs->capacity : 16;
  ons__input* items = ons__alloc_array(inputs->allocator, capacity, sizeof(*items));
  uint32_t* slots = ons__alloc_array(inputs->allocator, 2 * capacity, sizeof(*slots));
  if (!items || !slots) {
    ons__free(inputs->allocator, items);
    ons__free(inputs->allocator, slots);
    return false;
  }
  if (inputs->count) memcpy(items, inputs->items, inputs->count * sizeof(*items));
  ons__free(inputs->allocator, inputs->items);
  ons__free(inputs->allocator, inputs->slots);
  inputs->items = items;
  inputs->slots = slots;
  inputs->capacity = capacity;
  inputs->slot_count = 2 * capacity;
  for (size_t i = 0; i < inputs->count; ++i) {
    *find_slot(inputs, items[i].path) = (uint32_t)(i + 1);
  }
  return true;
}

bool ons__inputs_append(ons__inputs* inputs, const ons__input* item) {
  bool ok = inputs->count < inputs->capacity || grow(inputs);
  uint32_t* slot = ok ? find_slot(inputs, item->path) : NULL;
  if (!ok || *slot) {
    ons__free(inputs->allocator, item->path);
    inputs->is_unknown |= !ok;
    return ok;
  }
  inputs->items[inputs->count++] = *item;
  *slot = (uint32_t)inputs->count;
  return true;
}

/* ---- as it is now ----------------------------------------------------------------- */

/* A folder is no file: compilers pass over one that has a header's name. */
static bool read_state(const char* path, struct stat* out_info) {
  return stat(path, out_info) == 0 && S_ISREG(out_info->st_mode);
}

static char* make_absolute(const ons_allocator* allocator, const char* path) {
  if (*path == '/') return ons__strdup(allocator, path);
  char* here = getcwd(NULL, 0);
  if (!here) return NULL;
  ons__string absolute;
  ons__string_init(&absolute, allocator);
  ons__string_appendf(&absolute, "%s/%s", here, path);
  free(here);
  return ons__string_take(&absolute);
}

static bool add(ons__inputs* inputs, ons__input_kind kind, const char* path) {
  char* absolute = make_absolute(inputs->allocator, path);
  if (!absolute) {
    inputs->is_unknown = true;
    return false;
  }
  if (ons__inputs_has(inputs, absolute)) {
    const ons__input* item = &inputs->items[*find_slot(inputs, absolute) - 1];
    ons__free(inputs->allocator, absolute);
    return item->kind != ONS__INPUT_ABSENT;
  }
  ons__input item = {.kind = kind, .path = absolute};
  struct stat info;
  const bool exists = read_state(absolute, &info);
  if (exists) {
    item.size_bytes = (uint64_t)info.st_size;
    item.changed_ns = nanoseconds(info.st_mtim);
    /* The compiler may have read what it was before. Unlike the time of modification this
       one cannot be set. */
    if (nanoseconds(info.st_ctim) >= inputs->begun_ns) inputs->is_unknown = true;
  } else {
    inputs->is_unknown |= kind == ONS__INPUT_TOOL;
    item.kind = ONS__INPUT_ABSENT;
  }
  return ons__inputs_append(inputs, &item) && exists;
}

bool ons__inputs_add(ons__inputs* inputs, const char* path) {
  return add(inputs, ONS__INPUT_FILE, path);
}

void ons__inputs_add_tool(ons__inputs* inputs, const char* path) {
  (void)add(inputs, ONS__INPUT_TOOL, path);
}

char* ons__inputs_read(ons__inputs* inputs, size_t index, size_t* out_bytes) {
  ons__input* item = &inputs->items[index];
  char* content = NULL;
  if (ons__file_read(inputs->allocator, item->path, &content, out_bytes, NULL) ||
      *out_bytes != item->size_bytes) {
    ons__free(inputs->allocator, content);
    inputs->is_unknown = true;
    return NULL;
  }
  ons__hash_of(content, *out_bytes, item->digest);
  return content;
}

static bool has_content(const ons__inputs* inputs, const ons__input* item) {
  char* content = NULL;
  size_t bytes = 0;
  if (ons__file_read(inputs->allocator, item->path, &content, &bytes, NULL)) return false;
  unsigned char digest[ONS__HASH_BYTES];
  ons__hash_of(content, bytes, digest);
  ons__free(inputs->allocator, content);
  return memcmp(digest, item->digest, sizeof(digest)) == 0;
}

static bool holds(const ons__inputs* inputs, const ons__input* item) {
  struct stat info;
  const bool exists = read_state(item->path, &info);
  if (exists == (item->kind == ONS__INPUT_ABSENT)) return false;
  if (!exists) return true;
  if ((uint64_t)info.st_size != item->size_bytes) return false;
  if (nanoseconds(info.st_mtim) == item->changed_ns) return true;
  return item->kind == ONS__INPUT_FILE && has_content(inputs, item);
}

bool ons__inputs_hold(const ons__inputs* inputs) {
  for (size_t i = 0; i < inputs->count; ++i) {
    if (!holds(inputs, &inputs->items[i])) return false;
  }
  return true;
}
