#include "jit/cache_lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jit/cache_folder.h"

static void close_file(ons__lease* lease) {
  if (lease->fd >= 0) close(lease->fd); /* gives the lock up as well */
  lease->fd = -1;
}

static bool open_file(ons__lease* lease, const char* folder, const ons__cache_key* key) {
  if (lease->folder_fd < 0) {
    lease->folder_fd = ons__cache_folder_open(folder, true);
    ons__cache_folder_name(key, ".lock", lease->name);
  }
  if (lease->fd < 0 && lease->folder_fd >= 0) {
    lease->fd = openat(lease->folder_fd, lease->name,
                       O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  }
  return lease->fd >= 0;
}

/* ---- by the system's lock --------------------------------------------------------- */

/* An owner that is through removes the file before it lets go of the lock: a lock on what
 * is still there is from nobody, or from one that died. What stands in a removed file
 * says that there is no entry to look for. */
static ons__lease_state try_lock(ons__lease* lease) {
  struct stat info;
  if (flock(lease->fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK || errno == EINTR) return ONS__LEASE_TAKEN;
    lease->kind = ONS__LEASE_BY_AGE;
    return ONS__LEASE_TAKEN;
  }
  if (fstat(lease->fd, &info) != 0) return ONS__LEASE_NONE;
  if (info.st_nlink > 0) return ONS__LEASE_OWNED;
  close_file(lease);
  return info.st_size > 0 ? ONS__LEASE_NONE : ONS__LEASE_TAKEN;
}

/* ---- by age ----------------------------------------------------------------------- */

static void name_lease(const ons__lease* lease, char* out_name) {
  memcpy(out_name, lease->name, sizeof(lease->name));
  memcpy(out_name + 2 * ONS__HASH_BYTES, ".held", sizeof(".held"));
}

/* Both times are the file system's, whose clock need not be this machine's. */
static bool is_expired(const ons__lease* lease, const char* name) {
  struct stat now, held;
  return futimens(lease->fd, NULL) == 0 && fstat(lease->fd, &now) == 0 &&
         fstatat(lease->folder_fd, name, &held, AT_SYMLINK_NOFOLLOW) == 0 &&
         now.st_mtime - held.st_mtime > ONS__LEASE_SECONDS;
}

static ons__lease_state try_file(ons__lease* lease) {
  char name[sizeof(lease->name)];
  name_lease(lease, name);
  bool has_expired = is_expired(lease, name);
  if (has_expired) unlinkat(lease->folder_fd, name, 0);
  int fd = openat(lease->folder_fd, name,
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return errno == EEXIST ? ONS__LEASE_TAKEN : ONS__LEASE_NONE;
  close(fd);
  if (!lease->has_waited || has_expired) return ONS__LEASE_OWNED;
  unlinkat(lease->folder_fd, name, 0); /* its owner came to an end without an entry */
  return ONS__LEASE_NONE;
}

/* ---- either ----------------------------------------------------------------------- */

ons__lease_state ons__lease_try(ons__lease* lease, const char* folder,
                                const ons__cache_key* key) {
  lease->state = ONS__LEASE_NONE;
  if (!open_file(lease, folder, key)) return ONS__LEASE_NONE;
  if (lease->kind == ONS__LEASE_BY_LOCK) lease->state = try_lock(lease);
  if (lease->kind == ONS__LEASE_BY_AGE) lease->state = try_file(lease);
  lease->has_waited = lease->state == ONS__LEASE_TAKEN;
  return lease->state;
}

void ons__lease_release(ons__lease* lease, bool has_kept) {
  if (lease->state == ONS__LEASE_OWNED) {
    char name[sizeof(lease->name)];
    name_lease(lease, name);
    unlinkat(lease->folder_fd, lease->name, 0);
    if (!has_kept && lease->kind == ONS__LEASE_BY_LOCK) (void)!write(lease->fd, "-", 1);
    if (lease->kind == ONS__LEASE_BY_AGE) unlinkat(lease->folder_fd, name, 0);
  }
  close_file(lease);
  if (lease->folder_fd >= 0) close(lease->folder_fd);
  *lease = (ons__lease)ONS__LEASE_INIT;
}
