/* What ends a launch on the CPU before its last block. */
#ifndef ONS_RUNTIME_BACKENDS_CPU_CPU_FAULT_H_
#define ONS_RUNTIME_BACKENDS_CPU_CPU_FAULT_H_

#include <onstream/status.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Of one launch: the first of its faults. */
typedef struct ons__cpu_fault {
  atomic_int status;   /* ons_status; OK: none. The text is there once it is set. */
  atomic_bool claimed; /* somebody writes the text */
  char text[ONS_ERROR_MESSAGE_BYTES];
} ons__cpu_fault;

static inline bool ons__cpu_fault_is_set(ons__cpu_fault* fault) {
  return atomic_load_explicit(&fault->status, memory_order_acquire) != ONS_STATUS_OK;
}

/* Sets the fault unless there is one. */
__attribute__((format(printf, 3, 4))) void ons__cpu_fault_set(ons__cpu_fault* fault,
                                                              ons_status status,
                                                              const char* format, ...);

/* Where a text about a thread begins: "block (0, 0, 0), thread (31, 0, 0)". */
void ons__cpu_fault_place(const uint32_t block[3], const uint32_t thread[3],
                          char* out_text, size_t capacity);

/* A stack's guard page was hit: to be answered by the thread that did. Installed once,
 * for the life of the process; other faults go on to whoever had the signal before. */
void ons__cpu_fault_watch_stacks(void);

#endif /* ONS_RUNTIME_BACKENDS_CPU_CPU_FAULT_H_ */
