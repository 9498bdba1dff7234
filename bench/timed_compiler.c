/* Stands in for a compiler: runs the real one and adds a line to a log, "BEGIN END" in
 * monotonic nanoseconds and, after tabs, the arguments. first_launch.py builds it with
 * REAL_COMPILER and LOG_PATH. */
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

extern char** environ;

static long long now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char** argv) {
  const long long start = now_ns();
  pid_t child = 0;
  int status = 0;
  argv[0] = (char[]){REAL_COMPILER};
  if (posix_spawn(&child, REAL_COMPILER, NULL, NULL, argv, environ)) return 127;
  if (waitpid(child, &status, 0) != child) return 127;
  FILE* log = fopen(LOG_PATH, "a");
  if (!log) return 127;
  fprintf(log, "%lld %lld", start, now_ns());
  for (int i = 1; i < argc; ++i) fprintf(log, "\t%s", argv[i]);
  fprintf(log, "\n");
  fclose(log);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}
