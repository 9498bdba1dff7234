/* Marks the bounds checks of kernels for the CPU backend's loop over the threads of a
 * block.
 *
 * A loop around `if (i < n) out[i] = ...` only vectorises with masked stores. Where the
 * thread that fails the check ends the loop instead (the others follow in a second one),
 * it is as fast as one without a check. So `i < n` becomes `::ons_cpu_guard(bool(i <
 * n))`, and `i >= n` in front of a return `::ons_cpu_guard_return(bool(i >= n))`:
 * onstream/cpu.h has them. Both return what they are given, so marking any condition is
 * right; only bounds checks gain from it. */
#ifndef ONS_JIT_SOURCE_GUARD_H_
#define ONS_JIT_SOURCE_GUARD_H_

#include <stddef.h>

#include "runtime/base/string.h"

/* Appends `source`, with marks, to `text`; returns their number. Lines stay where they
 * are. Marked are conditions that compare a thread's index, at the top level of a
 * kernel's body, of an `if` without `else` that guards a return or is the body's last
 * statement. Whatever might be more than one plain expression is left alone. Linear in
 * the source, whatever its bytes. */
size_t ons__source_guard_append(const char* source, ons__string* text);

#endif /* ONS_JIT_SOURCE_GUARD_H_ */
