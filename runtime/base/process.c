#include "runtime/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/path.h"
#include "runtime/base/string.h"

extern char** environ;

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Our environment with the language fixed; the strings stay environ's. */
static char** english_environment(const ons_allocator* allocator) {
  size_t count = 0;
  while (environ && environ[count]) ++count;
  char** result = ons__alloc_array(allocator, count + 2, sizeof(*result));
  if (!result) return NULL;
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    bool language =
        strncmp(environ[i], "LC_", 3) == 0 || strncmp(environ[i], "LANG", 4) == 0;
    if (!language) result[kept++] = environ[i];
  }
  static char english[] = "LC_ALL=C";
  result[kept] = english;
  return result;
}

static int set_attributes(posix_spawnattr_t* attributes) {
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGCHLD);
  int rc = posix_spawnattr_setsigmask(attributes, &none);
  if (rc == 0) rc = posix_spawnattr_setsigdefault(attributes, &defaults);
  if (rc == 0) {
    rc = posix_spawnattr_setflags(attributes,
                                  POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  return rc;
}

/* Starts the child with its standard streams on the two descriptors. Returns 0 or an
 * errno. */
static int spawn(const char* const* argv, char** environment, int input, int output,
                 pid_t* out_pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int rc = posix_spawn_file_actions_init(&actions);
  if (rc != 0) return rc;
  rc = posix_spawnattr_init(&attributes);
  if (rc != 0) {
    posix_spawn_file_actions_destroy(&actions);
    return rc;
  }
  rc = set_attributes(&attributes);
  if (rc == 0) rc = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  if (rc == 0) rc = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  if (rc == 0) rc = posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  /* posix_spawn does not write to argv; its type is older than const. */
  if (rc == 0) {
    rc = posix_spawn(out_pid, argv[0], &actions, &attributes,
                     (char* const*)(uintptr_t)argv, environment);
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return rc;
}

/* Reads until the end of the pipe or the deadline (negative: none); false on the latter.
 */
static bool drain(int fd, int64_t deadline_ms, ons__string* output) {
  char buffer[16384];
  for (;;) {
    int64_t left = deadline_ms < 0 ? -1 : deadline_ms - now_ms();
    if (deadline_ms >= 0 && left <= 0) return false;
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    int ready = poll(&entry, 1, left > 1000000 ? 1000000 : (int)left);
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count > 0) ons__string_append_bytes(output, buffer, (size_t)count);
    if (count == 0 || (count < 0 && errno != EINTR)) return true;
  }
}

/* Waits for the child, which may have closed its output and live on. */
static int wait_for(pid_t pid, int64_t deadline_ms, bool* timed_out) {
  for (;;) {
    int status = 0;
    bool may_kill = deadline_ms >= 0 && !*timed_out;
    pid_t got = waitpid(pid, &status, may_kill ? WNOHANG : 0);
    if (got == pid) {
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    if (got < 0 && errno != EINTR) return -1;
    if (got == 0 && now_ms() >= deadline_ms) {
      *timed_out = true;
      kill(pid, SIGKILL);
    } else if (got == 0) {
      nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
  }
}

/* A host may run with its standard streams closed, so that a new descriptor is one of
 * those that the child's are copied to. */
static int above_standard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return higher;
}

static void close_if_open(int fd) {
  if (fd >= 0) close(fd);
}

ons_status ons__process_run(const ons_allocator* allocator, const char* const* argv,
                            const char* input, uint32_t timeout_ms,
                            ons__process_result* out_result, ons_error* error) {
  ons_status status = ONS_STATUS_OK;
  int ends[2] = {-1, -1}, input_fd = -1;
  ons__string output;
  ons__string_init(&output, allocator);
  *out_result = (ons__process_result){.exit_code = -1};

  char** environment = english_environment(allocator);
  if (!environment) {
    status = ons__error_no_memory(error);
    goto done;
  }
  input_fd = input && *input ? ons__memory_file(input, strlen(input))
                             : open("/dev/null", O_RDONLY | O_CLOEXEC);
  input_fd = above_standard(input_fd);
  bool piped = input_fd >= 0 && pipe2(ends, O_CLOEXEC) == 0;
  ends[0] = above_standard(ends[0]);
  ends[1] = above_standard(ends[1]);
  if (!piped || ends[0] < 0 || ends[1] < 0) {
    status = ons__error_native(error, ONS_STATUS_IO, "pipe2", errno,
                               "cannot start %s: %s", argv[0], strerror(errno));
    goto done;
  }
  pid_t pid = 0;
  int rc = spawn(argv, environment, input_fd, ends[1], &pid);
  close(ends[1]);
  ends[1] = -1;
  if (rc != 0) {
    status = ons__error_native(error, ONS_STATUS_NOT_FOUND, "posix_spawn", rc,
                               "cannot start %s: %s", argv[0], strerror(rc));
    goto done;
  }

  int64_t deadline_ms = timeout_ms ? now_ms() + timeout_ms : -1;
  if (!drain(ends[0], deadline_ms, &output)) {
    out_result->timed_out = true;
    kill(pid, SIGKILL);
  }
  out_result->exit_code = wait_for(pid, deadline_ms, &out_result->timed_out);
  out_result->output_bytes = output.length;
  out_result->output = ons__string_take(&output);
  if (!out_result->output) status = ons__error_no_memory(error);

done:
  close_if_open(ends[0]);
  close_if_open(ends[1]);
  close_if_open(input_fd);
  ons__string_clear(&output);
  ons__free(allocator, environment);
  return status;
}
