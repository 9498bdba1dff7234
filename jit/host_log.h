/* Reading what GCC and clang print. */
#ifndef ONS_JIT_HOST_LOG_H_
#define ONS_JIT_HOST_LOG_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>

/* The lines after the user's source, one for each kernel, pretend to be in files of this
 * name with the kernel's position behind it. */
#define ONS__HOST_KERNEL_FILE "onstream-kernel-"

/* Part of a log. */
typedef struct ons__host_diagnostic {
  const char* file; /* not terminated; NULL where the line names none (a linker's) */
  size_t file_length;
  long line;        /* 0 where there is none */
  const char* text; /* without "error: "; up to the end of the line */
  size_t text_length;
} ons__host_diagnostic;

/* The first error that is not in a kernel file; false where there is none. */
bool ons__host_log_first_error(const char* log, ons__host_diagnostic* out_diagnostic);

/* Does the log begin with an assembler's complaint, which names no line of the source?
 * Then its text. */
bool ons__host_log_assembler_error(const char* log, ons__host_diagnostic* out_diagnostic);

/* What to do about a header of CUDA's that the text says is missing: to be put behind the
 * text, static; "" where it is about anything else. */
const char* ons__host_log_header_advice(const ons__host_diagnostic* diagnostic);

/* Stores the first error in each kernel's file (text NULL: none); returns how many have
 * one. */
size_t ons__host_log_blame(const char* log, ons__host_diagnostic* out_errors,
                           size_t kernel_count);

/* Does a linker, or a compiler that had to inline it, miss the definition of the function
 * of this name? */
bool ons__host_log_misses_definition(const char* log, const char* name);

/* The log as its reader should see it: nothing of the kernel files, no notes on our own
 * headers, `user_folder` and `own_folder` (with a slash at the end) taken off paths. The
 * caller owns it (ons__free); NULL when out of memory. */
char* ons__host_log_clean(const ons_allocator* allocator, const char* log,
                          const char* user_folder, const char* own_folder);

#endif /* ONS_JIT_HOST_LOG_H_ */
