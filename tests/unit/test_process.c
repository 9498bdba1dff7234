/* Child processes and files. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/base/path.h"
#include "runtime/base/process.h"

static ons__process_result result;
static ons_error error;

static ons_status shell(const char* script, const char* input, uint32_t timeout_ms) {
  const char* argv[] = {"/bin/sh", "-c", script, NULL};
  error = (ons_error)ONS_ERROR_INIT;
  ons__free(NULL, result.output);
  const ons__process_limits limits = {.timeout_ms = timeout_ms};
  return ons__process_run(NULL, argv, input, NULL, &limits, &result, &error);
}

static void release(void) {
  ons__free(NULL, result.output);
  result.output = NULL;
}

TestSuite(process, .fini = release);

Test(process, both_streams_and_the_exit_code) {
  cr_assert(eq(int, shell("echo out; echo err >&2; exit 3", NULL, 0), 0));
  cr_assert(eq(str, result.output, "out\nerr\n"));
  cr_assert(eq(sz, result.output_bytes, 8));
  cr_assert(eq(int, result.exit_code, 3));
  cr_assert(not(result.timed_out));
}

Test(process, input_larger_than_a_pipe) {
  size_t size = 1 << 20;
  char* text = malloc(size + 1);
  memset(text, 'x', size);
  text[size] = '\0';
  cr_assert(eq(int, shell("cat", text, 0), 0));
  cr_assert(eq(sz, result.output_bytes, size));
  cr_assert(eq(int, memcmp(result.output, text, size), 0));
  /* A child that does not read its input must not kill us. */
  cr_assert(eq(int, shell("exit 0", text, 0), 0));
  cr_assert(eq(int, result.exit_code, 0));
  free(text);
}

Test(process, no_input_is_empty_input) {
  cr_assert(eq(int, shell("cat; echo end", NULL, 0), 0));
  cr_assert(eq(str, result.output, "end\n"));
}

Test(process, speaks_english_and_keeps_the_environment) {
  setenv("LANG", "de_DE.UTF-8", 1);
  setenv("LC_MESSAGES", "de_DE.UTF-8", 1);
  setenv("ONS_TEST_KEPT", "kept", 1);
  cr_assert(eq(int, shell("echo $LC_ALL,$LANG,$LC_MESSAGES,$ONS_TEST_KEPT", NULL, 0), 0));
  cr_assert(eq(str, result.output, "C,,,kept\n"));
}

Test(process, a_signal_is_told) {
  cr_assert(eq(int, shell("kill -9 $$", NULL, 0), 0));
  cr_assert(eq(int, result.exit_code, 128 + SIGKILL));
}

Test(process, timeout_kills, .timeout = 20) {
  cr_assert(eq(int, shell("echo begun; exec sleep 1000", NULL, 200), 0));
  cr_assert(result.timed_out);
  cr_assert(eq(int, result.exit_code, 128 + SIGKILL));
  cr_assert(eq(str, result.output, "begun\n"));
  /* Also when the child has let go of its output. */
  cr_assert(eq(int, shell("exec sleep 1000 >/dev/null 2>&1", NULL, 200), 0));
  cr_assert(result.timed_out);
}

Test(process, what_the_child_leaves_running_is_not_waited_for, .timeout = 20) {
  cr_assert(eq(int, shell("sleep 1000 & echo $!; exit 3", NULL, 0), 0));
  cr_expect(eq(int, result.exit_code, 3));
  int pid = atoi(result.output);
  cr_assert(gt(int, pid, 1));
  cr_expect(eq(int, kill(pid, SIGKILL), 0), "it is there and holds the pipe");
  /* One that writes on must not keep us reading; what came before it is all read. */
  cr_assert(eq(
      int,
      shell("echo $$; head -c 300000 /dev/zero; (exec yes) & echo $! >&2", NULL, 10000),
      0));
  cr_expect(not(result.timed_out));
  cr_expect(ge(sz, result.output_bytes, 300000));
  const char* tail = result.output + strlen(result.output);
  while (tail < result.output + result.output_bytes && !*tail) ++tail;
  while (*tail && (*tail < '0' || *tail > '9')) ++tail;
  pid = atoi(tail);
  cr_assert(gt(int, pid, 1));
  kill(pid, SIGKILL);
}

Test(process, a_folder_for_temporary_files) {
  setenv("TMPDIR", "/nowhere", 1);
  const char* argv[] = {"/bin/sh", "-c", "echo $TMPDIR; env | grep -c ^TMPDIR=", NULL};
  error = (ons_error)ONS_ERROR_INIT;
  cr_assert(
      eq(int, ons__process_run(NULL, argv, NULL, "/tmp", NULL, &result, &error), 0));
  cr_expect(eq(str, result.output, "/tmp\n1\n"));
}

Test(process, missing_program) {
  const char* argv[] = {"/nowhere/compiler", NULL};
  error = (ons_error)ONS_ERROR_INIT;
  cr_assert(eq(int, ons__process_run(NULL, argv, NULL, NULL, NULL, &result, &error),
               ONS_STATUS_NOT_FOUND));
  cr_assert(ne(ptr, strstr(error.message, "/nowhere/compiler"), NULL));
}

Test(process, no_descriptor_leaks) {
  int leaked = open("/dev/null", O_RDONLY);
  int flags = fcntl(leaked, F_GETFD);
  fcntl(leaked, F_SETFD, flags | FD_CLOEXEC);
  cr_assert(eq(int, shell("ls /proc/self/fd | wc -l", "x", 0), 0));
  int with = atoi(result.output);
  close(leaked);
  cr_assert(eq(int, shell("ls /proc/self/fd | wc -l", NULL, 0), 0));
  cr_assert(eq(int, with, atoi(result.output)));
}

Test(process, signals_of_the_host) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  cr_assert(eq(int, shell("grep SigBlk /proc/self/status", NULL, 0), 0));
  cr_assert(ne(ptr, strstr(result.output, "0000000000000000"), NULL), "%s",
            result.output);
}

Test(process, a_host_that_reaps_every_child) {
  signal(SIGCHLD, SIG_IGN);
  cr_assert(eq(int, shell("echo done; exit 3", NULL, 0), 0));
  cr_assert(eq(int, result.exit_code, -1));
  cr_assert(eq(str, result.output, "done\n"));
}

Test(process, closed_standard_streams) {
  pid_t pid = fork();
  if (pid == 0) {
    close(0);
    close(1);
    close(2);
    bool good = shell("cat; echo err >&2", "in ", 0) == ONS_STATUS_OK &&
                strcmp(result.output, "in err\n") == 0;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  cr_assert(eq(int, status, 0));
}

Test(path, programs) {
  char* shell_path = ons__path_find_program(NULL, "sh");
  cr_assert(ne(ptr, shell_path, NULL));
  cr_assert(eq(int, shell_path[0], '/'));
  char* same = ons__path_find_program(NULL, shell_path);
  cr_assert(eq(str, same, shell_path));
  ons__free(NULL, same);
  ons__free(NULL, shell_path);
  cr_assert(eq(ptr, ons__path_find_program(NULL, "no-such-program"), NULL));
  cr_assert(eq(ptr, ons__path_find_program(NULL, "/etc/passwd"), NULL));
  cr_assert(eq(ptr, ons__path_find_program(NULL, "/usr"), NULL));
  cr_assert(eq(ptr, ons__path_find_program(NULL, ""), NULL));
  unsetenv("PATH");
  shell_path = ons__path_find_program(NULL, "sh");
  cr_assert(ne(ptr, shell_path, NULL));
  ons__free(NULL, shell_path);
}

Test(path, names_that_stay_inside) {
  const char* inside[] = {"a", "a/b.h", "a/..b", "..a", "a..", "./a"};
  const char* outside[] = {"", "/a", "..", "../a", "a/../b", "a/..", "a/"};
  for (size_t i = 0; i < sizeof(inside) / sizeof(*inside); ++i) {
    cr_expect(ons__path_is_inside(inside[i]), "%s", inside[i]);
  }
  for (size_t i = 0; i < sizeof(outside) / sizeof(*outside); ++i) {
    cr_expect(not(ons__path_is_inside(outside[i])), "%s", outside[i]);
  }
}

Test(path, temporary_folder) {
  setenv("TMPDIR", "/nowhere", 1); /* falls back */
  char* folder = NULL;
  error = (ons_error)ONS_ERROR_INIT;
  cr_assert(eq(int, ons__temp_folder_create(NULL, &folder, &error), 0));
  struct stat info;
  cr_assert(eq(int, stat(folder, &info), 0));
  cr_assert(eq(int, (int)(info.st_mode & 0777), 0700));

  char path[512], link_path[512], kept[] = "/tmp/onstream-test-kept-XXXXXX";
  int kept_fd = mkstemp(kept);
  close(kept_fd);
  snprintf(path, sizeof(path), "%s/a/b/c.txt", folder);
  cr_assert(eq(int, ons__file_write(NULL, path, strlen(folder), "text", 4, &error), 0),
            "%s", error.message);
  snprintf(link_path, sizeof(link_path), "%s/a/link", folder);
  cr_assert(eq(int, symlink("/tmp", link_path), 0));

  char* data = NULL;
  size_t bytes = 0;
  cr_assert(eq(int, ons__file_read(NULL, path, &data, &bytes, &error), 0));
  cr_assert(eq(str, data, "text"));
  cr_assert(eq(sz, bytes, 4));
  ons__free(NULL, data);

  ons__temp_folder_remove(folder);
  cr_assert(ne(int, stat(folder, &info), 0));
  cr_assert(eq(int, stat(kept, &info), 0), "a link was followed");
  unlink(kept);
  ons__free(NULL, folder);
  ons__temp_folder_remove(NULL);
}

Test(path, missing_file) {
  char* data = NULL;
  size_t bytes = 0;
  error = (ons_error)ONS_ERROR_INIT;
  cr_assert(eq(int, ons__file_read(NULL, "/nowhere/file", &data, &bytes, &error),
               ONS_STATUS_NOT_FOUND));
  cr_assert(ne(ptr, strstr(error.message, "/nowhere/file"), NULL));
  cr_assert(eq(ptr, data, NULL));
  cr_assert(eq(int, ons__file_write(NULL, "/nowhere/file", 13, "x", 1, &error),
               ONS_STATUS_NOT_FOUND));
}

/* The hook is asked while the program runs, and its answer ends that. */
static int times_asked;
static int stop_at_third(void* user_data) {
  cr_expect(eq(ptr, user_data, &times_asked));
  return ++times_asked == 3;
}

Test(process, interrupted) {
  const char* const argv[] = {"/bin/sleep", "60", NULL};
  const ons__process_limits limits = {.interrupt = stop_at_third,
                                      .interrupt_user_data = &times_asked};
  ons__process_result slept = {0};
  cr_assert(
      eq(int, ons__process_run(NULL, argv, NULL, NULL, &limits, &slept, &error), 0));
  cr_expect(slept.interrupted && !slept.timed_out);
  cr_expect(eq(int, times_asked, 3));
  ons__free(NULL, slept.output);
}
