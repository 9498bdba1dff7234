#include "jit/cache_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/base/string.h"

enum {
  NAME_BYTES = 2 * ONS__HASH_BYTES + sizeof(".ons"),
  LATEST_SECONDS = 60,     /* what was used since then need not be marked again */
  ABANDONED_SECONDS = 3600 /* what passes and is that old has no process any more */
};
#define TEMP_PREFIX "writing-"
#define MOST_ENTRY_BYTES ((off_t)1 << 30)

/* ---- where it is ------------------------------------------------------------------ */

static char* join(const ons_allocator* allocator, const char* above, const char* below) {
  ons__string path;
  ons__string_init(&path, allocator);
  ons__string_appendf(&path, "%s/%s", above, below);
  return ons__string_take(&path);
}

/* Relative ones are to be ignored: XDG Base Directory Specification 0.8. */
static char* user_folder(const ons_allocator* allocator) {
  const char* caches = getenv("XDG_CACHE_HOME");
  if (caches && *caches == '/') return join(allocator, caches, "onstream");
  const char* home = getenv("HOME");
  return home && *home == '/' ? join(allocator, home, ".cache/onstream") : NULL;
}

char* ons__cache_folder_find(const ons_allocator* allocator, const char* option) {
  const char* named = option ? option : getenv("ONSTREAM_CACHE_DIR");
  if (!named) return user_folder(allocator);
  const bool is_off = !*named || strcmp(named, "off") == 0;
  return is_off ? NULL : ons__strdup(allocator, named);
}

/* Code is loaded from it: nobody else may write there. */
static int open_folder(const char* folder) {
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat info;
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
      !(info.st_mode & (S_IWGRP | S_IWOTH))) {
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

/* With the folders above it. */
static void make_folder(const char* folder) {
  char* path = strdup(folder);
  if (!path) return;
  for (char* slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(path, 0700);
    *slash = '/';
  }
  mkdir(path, 0700);
  free(path);
}

int ons__cache_folder_open(const char* folder, bool make) {
  int fd = open_folder(folder);
  if (fd < 0 && make && errno == ENOENT) {
    make_folder(folder);
    fd = open_folder(folder);
  }
  return fd;
}

void ons__cache_folder_name(const ons__cache_key* key, const char* suffix,
                            char* out_name) {
  for (size_t i = 0; i < sizeof(key->bytes); ++i) {
    snprintf(out_name + 2 * i, 3, "%02x", key->bytes[i]);
  }
  strcpy(out_name + 2 * sizeof(key->bytes), suffix);
}

/* ---- one entry -------------------------------------------------------------------- */

static bool read_all(int fd, char* data, size_t size_bytes) {
  while (size_bytes > 0) {
    ssize_t count = read(fd, data, size_bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count;
    size_bytes -= (size_t)count;
  }
  return true;
}

static bool write_all(int fd, const char* data, size_t size_bytes) {
  while (size_bytes > 0) {
    ssize_t count = write(fd, data, size_bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count;
    size_bytes -= (size_t)count;
  }
  return true;
}

uint64_t ons__cache_folder_stamp(int folder_fd, const ons__cache_key* key) {
  char name[NAME_BYTES];
  struct stat info;
  ons__cache_folder_name(key, ".ons", name);
  if (fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  return (uint64_t)info.st_ino * 0x9e3779b97f4a7c15u + (uint64_t)info.st_ctim.tv_nsec + 1;
}

static void mark_used(int fd, const struct stat* info) {
  if (info->st_mtime > time(NULL) - LATEST_SECONDS) return;
  const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
  (void)!futimens(fd, now);
}

bool ons__cache_folder_read(const ons_allocator* allocator, const char* folder,
                            const ons__cache_key* key, char** out_data,
                            size_t* out_bytes) {
  *out_data = NULL;
  int folder_fd = open_folder(folder);
  if (folder_fd < 0) return false;
  char name[NAME_BYTES];
  ons__cache_folder_name(key, ".ons", name);
  /* Not blocking, should it be a pipe. */
  int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  close(folder_fd);
  if (fd < 0) return false;
  struct stat info;
  bool ok = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
            info.st_size <= MOST_ENTRY_BYTES;
  if (ok) *out_data = ons__alloc(allocator, (size_t)info.st_size + 1);
  ok = ok && *out_data && read_all(fd, *out_data, (size_t)info.st_size);
  if (ok) {
    *out_bytes = (size_t)info.st_size;
    mark_used(fd, &info);
  } else {
    ons__free(allocator, *out_data);
    *out_data = NULL;
  }
  close(fd);
  return ok;
}

/* A file that exists under its final name is complete, and stays as it is. */
static bool publish(int folder_fd, const char* name, const void* data,
                    size_t data_bytes) {
  static atomic_uint counter;
  char temp[64];
  struct timespec now = {0};
  clock_gettime(CLOCK_MONOTONIC, &now);
  snprintf(temp, sizeof(temp), TEMP_PREFIX "%ld-%u-%ld", (long)getpid(),
           atomic_fetch_add(&counter, 1), now.tv_nsec);
  int fd = openat(folder_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  bool ok = write_all(fd, data, data_bytes) && fsync(fd) == 0;
  ok = close(fd) == 0 && ok;
  ok = ok && renameat(folder_fd, temp, folder_fd, name) == 0;
  if (!ok) unlinkat(folder_fd, temp, 0);
  return ok;
}

bool ons__cache_folder_write(const char* folder, const ons__cache_key* key,
                             const void* data, size_t data_bytes) {
  int folder_fd = ons__cache_folder_open(folder, true);
  if (folder_fd < 0) return false;
  char name[NAME_BYTES];
  ons__cache_folder_name(key, ".ons", name);
  const bool ok = publish(folder_fd, name, data, data_bytes);
  close(folder_fd);
  return ok;
}

/* ---- its size --------------------------------------------------------------------- */

typedef struct used {
  char name[NAME_BYTES];
  off_t size_bytes;
  struct timespec at;
} used;

typedef struct listing {
  const ons_allocator* allocator;
  used* items;
  size_t count, capacity;
  uint64_t total_bytes;
} listing;

static bool append(listing* list, const char* name, const struct stat* info) {
  if (list->count == list->capacity) {
    const size_t capacity = list->capacity ? 2 * list->capacity : 256;
    used* items = ons__alloc_array(list->allocator, capacity, sizeof(*items));
    if (!items) return false;
    if (list->count) memcpy(items, list->items, list->count * sizeof(*items));
    ons__free(list->allocator, list->items);
    list->items = items;
    list->capacity = capacity;
  }
  used* item = &list->items[list->count++];
  memcpy(item->name, name, NAME_BYTES);
  item->size_bytes = info->st_size;
  item->at = info->st_mtim;
  list->total_bytes += (uint64_t)info->st_size;
  return true;
}

static bool has_suffix(const char* name, const char* suffix) {
  return strspn(name, "0123456789abcdef") == 2 * ONS__HASH_BYTES &&
         strcmp(name + 2 * ONS__HASH_BYTES, suffix) == 0;
}

/* What processes that were killed have left: half a file, a lease. */
static bool is_passing(const char* name) {
  return strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)) == 0 ||
         has_suffix(name, ".lock") || has_suffix(name, ".held");
}

static bool list_folder(DIR* folder, listing* out_list) {
  const struct dirent* file;
  while ((file = readdir(folder)) != NULL) {
    const bool passes = is_passing(file->d_name);
    struct stat info;
    if ((!passes && !has_suffix(file->d_name, ".ons")) ||
        fstatat(dirfd(folder), file->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (!passes) {
      if (!append(out_list, file->d_name, &info)) return false;
    } else if (info.st_mtime < time(NULL) - ABANDONED_SECONDS) {
      unlinkat(dirfd(folder), file->d_name, 0);
    }
  }
  return true;
}

static int compare_use(const void* left, const void* right) {
  const used *a = left, *b = right;
  if (a->at.tv_sec != b->at.tv_sec) return a->at.tv_sec < b->at.tv_sec ? -1 : 1;
  if (a->at.tv_nsec != b->at.tv_nsec) return a->at.tv_nsec < b->at.tv_nsec ? -1 : 1;
  return 0;
}

void ons__cache_folder_trim(const ons_allocator* allocator, const char* folder,
                            uint64_t limit_bytes) {
  int fd = open_folder(folder);
  DIR* opened = fd >= 0 ? fdopendir(fd) : NULL;
  if (!opened) {
    if (fd >= 0) close(fd);
    return;
  }
  listing list = {.allocator = allocator};
  if (list_folder(opened, &list) && list.total_bytes > limit_bytes) {
    qsort(list.items, list.count, sizeof(*list.items), compare_use);
    for (size_t i = 0; i < list.count && list.total_bytes > limit_bytes; ++i) {
      unlinkat(dirfd(opened), list.items[i].name, 0);
      list.total_bytes -= (uint64_t)list.items[i].size_bytes;
    }
  }
  ons__free(allocator, list.items);
  closedir(opened);
}
