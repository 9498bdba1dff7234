#include "runtime/base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/string.h"

static bool is_executable_file(const char* path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

char* ons__path_find_program(const ons_allocator* allocator, const char* name) {
  if (!*name) return NULL;
  if (strchr(name, '/'))
    return is_executable_file(name) ? ons__strdup(allocator, name) : NULL;
  const char* folders = getenv("PATH");
  if (!folders) folders = "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    size_t length = strcspn(folders, ":");
    char path[PATH_MAX];
    int written =
        length == 0 ? snprintf(path, sizeof(path), "./%s", name)
                    : snprintf(path, sizeof(path), "%.*s/%s", (int)length, folders, name);
    if (written > 0 && (size_t)written < sizeof(path) && is_executable_file(path)) {
      return ons__strdup(allocator, path);
    }
    if (!folders[length]) return NULL;
    folders += length + 1;
  }
}

bool ons__path_is_inside(const char* name) {
  if (!*name || *name == '/') return false;
  for (const char* part = name; part; part = strchr(part, '/')) {
    if (*part == '/') ++part;
    if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || !part[2])) return false;
  }
  return name[strlen(name) - 1] != '/';
}

ons_status ons__temp_folder_create(const ons_allocator* allocator, char** out_path,
                                   ons_error* error) {
  const char* parents[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"};
  *out_path = NULL;
  ons__string path;
  ons__string_init(&path, allocator);
  int failure = ENOENT;
  for (size_t i = 0; i < sizeof(parents) / sizeof(*parents); ++i) {
    if (!parents[i] || !*parents[i]) continue;
    ons__string_clear(&path);
    ons__string_appendf(&path, "%s/onstream-XXXXXX", parents[i]);
    if (!ons__string_ok(&path)) break;
    if (mkdtemp(path.data)) {
      *out_path = ons__string_take(&path);
      return ONS_STATUS_OK;
    }
    failure = errno;
  }
  bool no_memory = !ons__string_ok(&path);
  ons__string_clear(&path);
  if (no_memory) return ons__error_no_memory(error);
  return ons__error_native(error, ONS_STATUS_IO, "mkdtemp", failure,
                           "no temporary folder can be made in TMPDIR, /tmp, /var/tmp or "
                           "/dev/shm: %s; set TMPDIR to a writable folder",
                           strerror(failure));
}

/* Empties the folder that `fd` is open on; closes it. */
static void remove_content(int fd) {
  DIR* folder = fdopendir(fd);
  if (!folder) {
    close(fd);
    return;
  }
  const struct dirent* entry;
  while ((entry = readdir(folder)) != NULL) {
    const char* name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    if (unlinkat(fd, name, 0) == 0) continue;
    int inner = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner < 0) continue;
    remove_content(inner);
    unlinkat(fd, name, AT_REMOVEDIR);
  }
  closedir(folder);
}

void ons__temp_folder_remove(const char* path) {
  if (!path) return;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  remove_content(fd);
  rmdir(path);
}

static ons_status io_error(ons_error* error, const char* call, const char* path) {
  int code = errno;
  ons_status status = code == ENOENT ? ONS_STATUS_NOT_FOUND : ONS_STATUS_IO;
  return ons__error_native(error, status, call, code, "%s: %s", path, strerror(code));
}

ons_status ons__file_read(const ons_allocator* allocator, const char* path,
                          char** out_data, size_t* out_bytes, ons_error* error) {
  *out_data = NULL;
  *out_bytes = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return io_error(error, "open", path);
  ons__string content;
  ons__string_init(&content, allocator);
  ons_status status = ONS_STATUS_OK;
  char buffer[65536];
  ssize_t count;
  while ((count = read(fd, buffer, sizeof(buffer))) != 0) {
    if (count > 0) {
      ons__string_append_bytes(&content, buffer, (size_t)count);
    } else if (errno != EINTR) {
      status = io_error(error, "read", path);
      break;
    }
  }
  close(fd);
  if (status == ONS_STATUS_OK) {
    *out_bytes = content.length;
    *out_data = ons__string_take(&content);
    if (!*out_data) status = ons__error_no_memory(error);
  }
  ons__string_clear(&content);
  return status;
}

static bool write_all(int fd, const void* data, size_t data_bytes) {
  const char* at = data;
  while (data_bytes > 0) {
    ssize_t count = write(fd, at, data_bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    at += count;
    data_bytes -= (size_t)count;
  }
  return true;
}

/* Makes the folders of `path` after its first `root_length` bytes. */
static void make_folders(char* path, size_t root_length) {
  for (char* slash = strchr(path + root_length, '/'); slash;
       slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(path, 0700); /* a failure shows when the file is opened */
    *slash = '/';
  }
}

ons_status ons__file_write(const ons_allocator* allocator, const char* path,
                           size_t root_length, const void* data, size_t data_bytes,
                           ons_error* error) {
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  int fd = open(path, flags, 0600);
  if (fd < 0 && errno == ENOENT) {
    char* copy = ons__strdup(allocator, path);
    if (!copy) return ons__error_no_memory(error);
    make_folders(copy, root_length);
    ons__free(allocator, copy);
    fd = open(path, flags, 0600);
  }
  if (fd < 0) return io_error(error, "open", path);
  bool written = write_all(fd, data, data_bytes);
  ons_status status = written ? ONS_STATUS_OK : io_error(error, "write", path);
  if (close(fd) != 0 && written) status = io_error(error, "close", path);
  return status;
}

/* For kernels without memfd_create. */
static int unlinked_file(void) {
  char* folder = NULL;
  if (ons__temp_folder_create(NULL, &folder, NULL) != ONS_STATUS_OK) return -1;
  char path[PATH_MAX];
  int written = snprintf(path, sizeof(path), "%s/file", folder);
  int fd = -1;
  if (written > 0 && (size_t)written < sizeof(path)) {
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
  }
  int failure = errno;
  ons__temp_folder_remove(folder);
  ons__free(NULL, folder);
  errno = failure;
  return fd;
}

int ons__memory_file(const void* data, size_t data_bytes) {
  int fd = memfd_create("onstream", MFD_CLOEXEC);
  if (fd < 0) fd = unlinked_file();
  if (fd < 0) return -1;
  if (write_all(fd, data, data_bytes) && lseek(fd, 0, SEEK_SET) == 0) return fd;
  int failure = errno;
  close(fd);
  errno = failure;
  return -1;
}
