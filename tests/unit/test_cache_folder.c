/* The cache's folder: made when needed, refused when others may write, kept small. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jit/cache_folder.h"
#include "tests/unit/cache_fixture.h"

TestSuite(cache_folder, .init = open_scratch, .fini = close_scratch);

static const ons__cache_key key = {{0xab, 1}};

static bool has(const ons__cache_key* of, const char* expected) {
  char* data = NULL;
  size_t bytes = 0;
  const bool found = ons__cache_folder_read(NULL, folder, of, &data, &bytes);
  if (found && expected) {
    cr_expect(eq(sz, bytes, strlen(expected)));
    cr_expect(memcmp(data, expected, bytes) == 0);
  }
  ons__free(NULL, data);
  return found;
}

static void set(const char* name, const char* value) {
  if (value) {
    setenv(name, value, 1);
  } else {
    unsetenv(name);
  }
}

static char* find(const char* option, const char* ours) {
  static char text[600];
  set("ONSTREAM_CACHE_DIR", ours);
  char* found = ons__cache_folder_find(NULL, option);
  snprintf(text, sizeof(text), "%s", found ? found : "none");
  ons__free(NULL, found);
  return text;
}

Test(cache_folder, is_where_one_says) {
  cr_expect_str_eq(find("/o", "/e"), "/o");
  cr_expect_str_eq(find(NULL, "/e"), "/e");
}

static char* find_users(const char* caches, const char* home) {
  set("XDG_CACHE_HOME", caches);
  set("HOME", home);
  return find(NULL, NULL);
}

Test(cache_folder, is_in_the_users_cache_folder) {
  cr_expect_str_eq(find_users("/x", "/h"), "/x/onstream");
  cr_expect_str_eq(find_users("relative", "/h"), "/h/.cache/onstream");
  cr_expect_str_eq(find_users("", "/h"), "/h/.cache/onstream");
  cr_expect_str_eq(find_users(NULL, "/h"), "/h/.cache/onstream");
  cr_expect_str_eq(find_users(NULL, "h"), "none");
  cr_expect_str_eq(find_users(NULL, NULL), "none");
}

Test(cache_folder, is_none_where_one_says_so) {
  cr_expect_str_eq(find("", "/e"), "none");
  cr_expect_str_eq(find("off", "/e"), "none");
  cr_expect_str_eq(find(NULL, ""), "none");
  cr_expect_str_eq(find(NULL, "off"), "none");
}

Test(cache_folder, is_made_by_the_first_write_for_its_owner_alone) {
  struct stat info;
  char deep[600];
  cr_expect(not(has(&key, NULL)));
  cr_expect(ne(int, stat(folder, &info), 0), "a read makes nothing");
  cr_assert(ons__cache_folder_write(folder, &key, "hello", 5));
  cr_assert(eq(int, stat(folder, &info), 0));
  cr_expect(eq(int, info.st_mode & 0777, 0700));
  cr_expect(has(&key, "hello"));
  snprintf(deep, sizeof(deep), "%s/a/b/c", scratch);
  cr_expect(ons__cache_folder_write(deep, &key, "hello", 5));
}

Test(cache_folder, holds_the_latest_of_a_key_and_no_temporary_file) {
  cr_assert(ons__cache_folder_write(folder, &key, "first", 5));
  cr_assert(ons__cache_folder_write(folder, &key, "second", 6));
  cr_expect(has(&key, "second"));
  char command[700];
  snprintf(command, sizeof(command), "test $(ls -A '%s' | wc -l) = 1", folder);
  cr_expect(eq(int, system(command), 0));
}

Test(cache_folder, is_refused_where_others_may_write) {
  cr_assert(ons__cache_folder_write(folder, &key, "hello", 5));
  const mode_t modes[] = {0770, 0707, 01777};
  for (size_t i = 0; i < 3; ++i) {
    cr_assert(eq(int, chmod(folder, modes[i]), 0));
    cr_expect(not(has(&key, NULL)), "mode %o", (unsigned)modes[i]);
    cr_expect(not(ons__cache_folder_write(folder, &key, "hello", 5)));
  }
  cr_assert(eq(int, chmod(folder, 0755), 0));
  cr_expect(has(&key, "hello"));
}

Test(cache_folder, is_refused_where_it_belongs_to_somebody_else) {
  if (geteuid() != 0) cr_skip_test("only root can give a folder away");
  cr_assert(ons__cache_folder_write(folder, &key, "hello", 5));
  cr_assert(eq(int, chown(folder, 1234, 1234), 0));
  cr_expect(not(has(&key, NULL)));
  cr_expect(not(ons__cache_folder_write(folder, &key, "hello", 5)));
}

Test(cache_folder, does_not_follow_links_or_open_pipes) {
  cr_assert(ons__cache_folder_write(folder, &key, "hello", 5));
  char path[800], other[800];
  snprintf(path, sizeof(path), "%s/ab01%060d.ons", folder, 0);
  snprintf(other, sizeof(other), "%s/other", scratch);
  cr_assert(eq(int, rename(path, other), 0));
  cr_assert(eq(int, symlink(other, path), 0));
  cr_expect(not(has(&key, NULL)));
  cr_assert(eq(int, unlink(path), 0));
  cr_assert(eq(int, mkfifo(path, 0600), 0));
  cr_expect(not(has(&key, NULL)));
}

Test(cache_folder, writes_nothing_where_it_cannot) {
  char file[600];
  snprintf(file, sizeof(file), "%s/file", scratch);
  write_file(file, "in the way");
  cr_expect(not(ons__cache_folder_write(file, &key, "hello", 5)));
  strcat(file, "/below");
  cr_expect(not(ons__cache_folder_write(file, &key, "hello", 5)));
  cr_expect(not(ons__cache_folder_write("/proc/nowhere", &key, "hello", 5)));
}

/* As on a full disk: a part of the file fits. */
Test(cache_folder, leaves_nothing_behind_where_the_disk_is_full) {
  cr_assert(ons__cache_folder_write(folder, &key, "hello", 5));
  const ons__cache_key other = {{0xcd}};
  char big[10000] = "";
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit was, limit;
  getrlimit(RLIMIT_FSIZE, &was);
  limit = was;
  limit.rlim_cur = 4096;
  cr_assert(eq(int, setrlimit(RLIMIT_FSIZE, &limit), 0));
  const bool written = ons__cache_folder_write(folder, &other, big, sizeof(big));
  setrlimit(RLIMIT_FSIZE, &was);
  cr_expect(not(written));
  cr_expect(not(has(&other, NULL)));
  cr_expect(has(&key, "hello"));
  char command[700];
  snprintf(command, sizeof(command), "test $(ls -A '%s' | wc -l) = 1", folder);
  cr_expect(eq(int, system(command), 0));
}

static void set_age(const char* name, time_t age) {
  char path[800];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  const struct timespec times[2] = {{.tv_sec = time(NULL) - age},
                                    {.tv_sec = time(NULL) - age}};
  cr_assert(eq(int, utimensat(AT_FDCWD, path, times, 0), 0), "%s", path);
}

Test(cache_folder, is_trimmed_of_what_was_used_longest_ago) {
  char big[1000] = "";
  for (int i = 0; i < 10; ++i) {
    const ons__cache_key one = {{(unsigned char)i}};
    char name[80];
    cr_assert(ons__cache_folder_write(folder, &one, big, sizeof(big)));
    snprintf(name, sizeof(name), "%02x%062d.ons", i, 0);
    set_age(name, 10000 - i);
  }
  const ons__cache_key oldest = {{0}}, next = {{1}}, latest = {{9}};
  cr_expect(has(&oldest, NULL), "which makes it the latest used");
  ons__cache_folder_trim(NULL, folder, 1000000);
  cr_expect(has(&next, NULL), "all of it fits");
  set_age("0100000000000000000000000000000000000000000000000000000000000000.ons", 9999);
  ons__cache_folder_trim(NULL, folder, 5000);
  cr_expect(has(&oldest, NULL));
  cr_expect(has(&latest, NULL));
  cr_expect(not(has(&next, NULL)));
  char command[700];
  snprintf(command, sizeof(command), "test $(ls -A '%s' | wc -l) = 5", folder);
  cr_expect(eq(int, system(command), 0));
}

Test(cache_folder, trims_what_dead_writers_left_and_no_file_of_others) {
  cr_assert(ons__cache_folder_write(folder, &key, "hello", 5));
  char path[800];
  const char* const names[] = {"writing-1-0-1", "writing-2-0-1", "notes.txt"};
  for (int i = 0; i < 3; ++i) {
    snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
    write_file(path, "x");
  }
  set_age("writing-1-0-1", 100000);
  set_age("notes.txt", 100000);
  ons__cache_folder_trim(NULL, folder, 0);
  const bool expected[] = {false, true, true};
  for (int i = 0; i < 3; ++i) {
    snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
    cr_expect(eq(int, access(path, F_OK) == 0, expected[i]), "%s", names[i]);
  }
  cr_expect(not(has(&key, NULL)));
}
