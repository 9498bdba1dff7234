#include "runtime/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/path.h"
#include "runtime/base/string.h"

extern char** environ;

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool is_of_language(const char* variable) {
  return strncmp(variable, "LC_", 3) == 0 || strncmp(variable, "LANG", 4) == 0;
}

/* Our environment with the language fixed, and TMPDIR where `temp` ("TMPDIR=...") is
 * given; the strings stay their owners'. */
static char** make_environment(const ons_allocator* allocator, char* temp) {
  size_t count = 0;
  while (environ && environ[count]) ++count;
  char** result = ons__alloc_array(allocator, count + 3, sizeof(*result));
  if (!result) return NULL;
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    bool replaced = temp && strncmp(environ[i], "TMPDIR=", 7) == 0;
    if (!replaced && !is_of_language(environ[i])) result[kept++] = environ[i];
  }
  static char english[] = "LC_ALL=C";
  result[kept++] = english;
  result[kept] = temp;
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

/* A child on its way, and the end of the pipe that its output comes from. */
typedef struct child {
  pid_t pid;
  int pidfd; /* readable once it has ended; -1 where the system has none */
  int output;
  const ons__process_limits* limits;
  int64_t deadline_ms; /* negative: none */
  int64_t poll_ms;     /* when the hook is asked next */
  bool ended;
  int exit_code; /* -1 until it is known */
  bool timed_out;
  bool interrupted;
} child;

static int open_pidfd(pid_t pid) {
#ifdef SYS_pidfd_open
  return (int)syscall(SYS_pidfd_open, pid, 0);
#else
  (void)pid;
  return -1;
#endif
}

/* Notices its end; waits for that where `may_block`. */
static void reap(child* self, bool may_block) {
  int status = 0;
  pid_t got;
  do {
    got = waitpid(self->pid, &status, may_block ? 0 : WNOHANG);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return;
  self->ended = true;
  if (got < 0) return; /* someone else has reaped it */
  self->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Reads once, at most `most_bytes`; false at the end of the pipe. */
static bool read_some(child* self, size_t most_bytes, ons__string* output) {
  char buffer[16384];
  size_t wanted = most_bytes < sizeof(buffer) ? most_bytes : sizeof(buffer);
  ssize_t count = read(self->output, buffer, wanted);
  if (count > 0) ons__string_append_bytes(output, buffer, (size_t)count);
  return count > 0 || (count < 0 && errno == EINTR);
}

/* Asks the host's hook, now and then; once more where the interrupt has ended the child.
 */
static bool is_interrupted(child* self) {
  enum { POLL_MS = 50 };
  if (!self->limits->interrupt) return false;
  const int64_t now = now_ms();
  const bool is_time = now >= self->poll_ms;
  if (!is_time && !(self->ended && self->exit_code == 128 + SIGINT)) return false;
  self->poll_ms = now + POLL_MS;
  return ons__interrupt_ask(self->limits->interrupt, self->limits->interrupt_user_data);
}

static void stop(child* self) {
  if (self->ended) return;
  kill(self->pid, SIGKILL);
  reap(self, true);
}

/* Reads until the child has ended. Its own children may hold the pipe open for good (a
 * compiler cache's server) or even write on, and it may close the pipe and live on:
 * neither end tells the other. */
static void follow(child* self, ons__string* output) {
  enum { OPEN_MS = 20, CLOSED_MS = 2 };
  while (!self->ended) {
    struct pollfd entries[] = {{.fd = self->output, .events = POLLIN},
                               {.fd = self->pidfd, .events = POLLIN}};
    bool is_ready = poll(entries, 2, self->output < 0 ? CLOSED_MS : OPEN_MS) > 0;
    bool is_closed = is_ready && entries[0].revents && !read_some(self, SIZE_MAX, output);
    if (is_closed) self->output = -1; /* poll passes over it */
    reap(self, is_closed && self->deadline_ms < 0 && !self->limits->interrupt);
    self->interrupted = is_interrupted(self);
    self->timed_out =
        !self->ended && self->deadline_ms >= 0 && now_ms() >= self->deadline_ms;
    if (self->interrupted || self->timed_out) stop(self);
  }
  size_t before = output->length;
  int left = 0;
  if (self->output < 0 || ioctl(self->output, FIONREAD, &left) != 0) return;
  size_t end = before + (size_t)left;
  while (output->length < end && read_some(self, end - output->length, output)) {
    if (!ons__string_ok(output)) return;
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

/* The child's input, and the pipe for its output. False: errno says why. */
static bool open_streams(const char* input, int* out_input, int out_ends[2]) {
  *out_input = input && *input ? ons__memory_file(input, strlen(input))
                               : open("/dev/null", O_RDONLY | O_CLOEXEC);
  *out_input = above_standard(*out_input);
  if (*out_input < 0 || pipe2(out_ends, O_CLOEXEC) != 0) return false;
  out_ends[0] = above_standard(out_ends[0]);
  out_ends[1] = above_standard(out_ends[1]);
  return out_ends[0] >= 0 && out_ends[1] >= 0;
}

ons_status ons__process_run(const ons_allocator* allocator, const char* const* argv,
                            const char* input, const char* temp_folder,
                            const ons__process_limits* limits,
                            ons__process_result* out_result, ons_error* error) {
  static const ons__process_limits none = {0};
  if (!limits) limits = &none;
  ons_status status = ONS_STATUS_OK;
  int ends[2] = {-1, -1}, input_fd = -1;
  child self = {.pidfd = -1,
                .exit_code = -1,
                .limits = limits,
                .deadline_ms = limits->timeout_ms ? now_ms() + limits->timeout_ms : -1};
  ons__string output, temp;
  ons__string_init(&output, allocator);
  ons__string_init(&temp, allocator);
  *out_result = (ons__process_result){.exit_code = -1};

  if (temp_folder) ons__string_appendf(&temp, "TMPDIR=%s", temp_folder);
  char** environment = make_environment(allocator, temp_folder ? temp.data : NULL);
  if (!environment || !ons__string_ok(&temp)) {
    status = ons__error_no_memory(error);
  } else if (!open_streams(input, &input_fd, ends)) {
    status = ons__error_native(error, ONS_STATUS_IO, "pipe2", errno,
                               "cannot start %s: %s", argv[0], strerror(errno));
  } else {
    int rc = spawn(argv, environment, input_fd, ends[1], &self.pid);
    if (rc != 0) {
      status = ons__error_native(error, ONS_STATUS_NOT_FOUND, "posix_spawn", rc,
                                 "cannot start %s: %s", argv[0], strerror(rc));
    }
  }
  if (status == ONS_STATUS_OK) {
    close(ends[1]);
    ends[1] = -1;
    self.output = ends[0];
    self.pidfd = open_pidfd(self.pid);
    follow(&self, &output);
    out_result->exit_code = self.exit_code;
    out_result->timed_out = self.timed_out;
    out_result->interrupted = self.interrupted;
    out_result->output_bytes = output.length;
    out_result->output = ons__string_take(&output);
    if (!out_result->output) status = ons__error_no_memory(error);
  }
  close_if_open(self.pidfd);
  close_if_open(ends[0]);
  close_if_open(ends[1]);
  close_if_open(input_fd);
  ons__string_clear(&output);
  ons__string_clear(&temp);
  ons__free(allocator, environment);
  return status;
}
