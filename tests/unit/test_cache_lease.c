/* Leases, by two of them in one process: a lock is of an open file, so that they are as
 * much apart as in two. */
#include "jit/cache_lease.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/cache_fixture.h"

TestSuite(lease, .init = open_scratch, .fini = close_scratch);

static const ons__cache_key key = {{5}};

static int try(ons__lease* lease) { return (int)ons__lease_try(lease, folder, &key); }

static int file_count(void) {
  int count = 0;
  DIR* files = opendir(folder);
  cr_assert(ne(ptr, files, NULL));
  for (struct dirent* file; (file = readdir(files));) count += file->d_name[0] != '.';
  closedir(files);
  return count;
}

static ons__lease of_kind(ons__lease_kind kind) {
  ons__lease lease = ONS__LEASE_INIT;
  lease.kind = kind;
  return lease;
}

Test(lease, has_one_owner) {
  for (int kind = ONS__LEASE_BY_LOCK; kind <= ONS__LEASE_BY_AGE; ++kind) {
    ons__lease one = of_kind((ons__lease_kind)kind), other = one;
    const ons__cache_key unlike = {{6}};
    ons__lease third = one;
    cr_expect(eq(int, try(&one), ONS__LEASE_OWNED));
    cr_expect(eq(int, (int)one.kind, kind));
    cr_expect(eq(int, try(&other), ONS__LEASE_TAKEN));
    cr_expect(eq(int, try(&other), ONS__LEASE_TAKEN));
    cr_expect(eq(int, (int)ons__lease_try(&third, folder, &unlike), ONS__LEASE_OWNED));
    ons__lease_release(&third, true);
    ons__lease_release(&other, true);
    ons__lease_release(&one, true);
    cr_expect(eq(int, file_count(), 0), "kind %d", kind);
  }
}

Test(lease, goes_to_whoever_comes_after_an_owner_that_kept_something) {
  ons__lease one = ONS__LEASE_INIT, other = ONS__LEASE_INIT;
  cr_assert(eq(int, try(&one), ONS__LEASE_OWNED));
  cr_assert(eq(int, try(&other), ONS__LEASE_TAKEN));
  ons__lease_release(&one, true);
  cr_expect(eq(int, try(&other), ONS__LEASE_TAKEN), "the entry is to be looked for");
  cr_expect(eq(int, try(&other), ONS__LEASE_OWNED), "it is gone again");
  ons__lease_release(&other, true);
  cr_expect(eq(int, file_count(), 0));
}

/* Or as many as wait would compile what fails one after another. */
Test(lease, is_none_after_an_owner_that_kept_nothing) {
  for (int kind = ONS__LEASE_BY_LOCK; kind <= ONS__LEASE_BY_AGE; ++kind) {
    ons__lease one = of_kind((ons__lease_kind)kind), two = one, three = one, late = one;
    cr_assert(eq(int, try(&one), ONS__LEASE_OWNED));
    cr_assert(eq(int, try(&two), ONS__LEASE_TAKEN));
    cr_assert(eq(int, try(&three), ONS__LEASE_TAKEN));
    ons__lease_release(&one, false);
    cr_expect(eq(int, try(&two), ONS__LEASE_NONE));
    cr_expect(eq(int, try(&three), ONS__LEASE_NONE));
    cr_expect(eq(int, try(&late), ONS__LEASE_OWNED));
    ons__lease_release(&two, false);
    ons__lease_release(&three, false);
    ons__lease_release(&late, true);
    cr_expect(eq(int, file_count(), 0), "kind %d", kind);
  }
}

Test(lease, is_not_held_by_the_dead) {
  int ready[2];
  cr_assert(eq(int, pipe(ready), 0));
  pid_t pid = fork();
  if (pid == 0) {
    ons__lease own = ONS__LEASE_INIT;
    char state = (char)try(&own);
    cr_assert(eq(int, (int)write(ready[1], &state, 1), 1));
    pause();
  }
  char state = 0;
  cr_assert(eq(int, (int)read(ready[0], &state, 1), 1));
  cr_assert(eq(int, state, ONS__LEASE_OWNED));
  ons__lease lease = ONS__LEASE_INIT;
  cr_expect(eq(int, try(&lease), ONS__LEASE_TAKEN));
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  cr_expect(eq(int, try(&lease), ONS__LEASE_OWNED));
  ons__lease_release(&lease, true);
  cr_expect(eq(int, file_count(), 0));
}

Test(lease, by_age_ends_some_time_after_its_owner) {
  ons__lease dead = of_kind(ONS__LEASE_BY_AGE), lease = dead;
  cr_assert(eq(int, try(&dead), ONS__LEASE_OWNED));
  cr_expect(eq(int, try(&lease), ONS__LEASE_TAKEN));
  char path[700];
  snprintf(path, sizeof(path), "%s/05%062d.held", folder, 0);
  struct stat info;
  cr_assert(eq(int, stat(path, &info), 0), "%s", path);
  struct timespec times[2] = {info.st_mtim, info.st_mtim};
  times[1].tv_sec -= ONS__LEASE_SECONDS - 10;
  cr_assert(eq(int, utimensat(AT_FDCWD, path, times, 0), 0));
  cr_expect(eq(int, try(&lease), ONS__LEASE_TAKEN));
  times[1].tv_sec -= 20;
  cr_assert(eq(int, utimensat(AT_FDCWD, path, times, 0), 0));
  cr_expect(eq(int, try(&lease), ONS__LEASE_OWNED));
  ons__lease_release(&lease, true);
  ons__lease_release(&dead, true); /* closes */
}

Test(lease, is_none_without_a_folder) {
  ons__lease lease = ONS__LEASE_INIT;
  write_file(folder, "a file");
  cr_expect(eq(int, try(&lease), ONS__LEASE_NONE));
  ons__lease_release(&lease, true);
  unlink(folder);
  cr_assert(eq(int, mkdir(folder, 0777), 0));
  cr_assert(eq(int, chmod(folder, 0777), 0));
  cr_expect(eq(int, try(&lease), ONS__LEASE_NONE), "others may write there");
  ons__lease_release(&lease, true);
}
