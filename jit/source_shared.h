/* Rewrites declarations of shared memory that no macro can make a host compiler
 * understand.
 *
 * `extern __shared__ T s[];` names the block's dynamic memory. In a function it becomes
 * `T (&s)[] = ons_cpu_dynamic_memory;`, at namespace scope a thread-local reference of
 * the kind, which finds the OS thread's memory at its first use; an alignment it gives
 * goes, as the memory has more. `__shared__ alignas(N) T s`, which only CUDA takes in
 * that order, gets an attribute. onstream/cpu_threads.h has what they become. */
#ifndef ONS_JIT_SOURCE_SHARED_H_
#define ONS_JIT_SOURCE_SHARED_H_

#include <stddef.h>

#include "runtime/base/string.h"

/* Appends `source`, rewritten, macros' bodies too, to `text`; returns the number of
 * changed declarations. Lines stay where they are. Linear in the source, whatever its
 * bytes. */
size_t ons__source_shared_append(const char* source, ons__string* text);

#endif /* ONS_JIT_SOURCE_SHARED_H_ */
