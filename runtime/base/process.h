/* Running another program to its end. */
#ifndef ONS_RUNTIME_BASE_PROCESS_H_
#define ONS_RUNTIME_BASE_PROCESS_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ons__process_result {
  int exit_code; /* 128 + signal where a signal ended it; -1 where it cannot be known,
                    because the host reaps every child itself (SIGCHLD ignored) */
  bool timed_out;
  bool interrupted;
  char* output; /* standard output and error as they came, NUL-terminated; owned
                   (ons__free) */
  size_t output_bytes;
} ons__process_result;

/* What ends a program early. */
typedef struct ons__process_limits {
  uint32_t timeout_ms;        /* 0: none */
  ons_interrupt_fn interrupt; /* NULL: none */
  void* interrupt_user_data;
} ons__process_limits;

/* Runs `argv` (argv[0] is the program's path, NULL at the end) without a shell and waits
 * for it, not for what it leaves running. Its standard input is `input`, or empty for
 * NULL; its environment is ours with LC_ALL=C, so that messages can be read, and with
 * TMPDIR=`temp_folder` unless that is NULL. Beyond the limits (NULL: none) it is killed.
 * No descriptor of ours leaks into it; blocked signals are unblocked in it. OK whatever
 * its exit code; NOT_FOUND where the program cannot be started, IO, OUT_OF_MEMORY
 * otherwise.
 */
ons_status ons__process_run(const ons_allocator* allocator, const char* const* argv,
                            const char* input, const char* temp_folder,
                            const ons__process_limits* limits,
                            ons__process_result* out_result, ons_error* error);

#endif /* ONS_RUNTIME_BASE_PROCESS_H_ */
