/* Marks the global indices in kernels for the CPU backend.
 *
 * Where a kernel reads threadIdx and blockIdx for nothing but `blockIdx.x * blockDim.x +
 * threadIdx.x`, blocks are not told apart, and consecutive ones can run as one long
 * block: one loop over all their threads instead of a short one each; the y and z of the
 * two stay what they are. So `threadIdx` and `blockIdx` in such a sum, or in front of .y
 * and .z, get the prefix `ons_cpu_joint_`; the two plain names, wherever they come from,
 * are macros that count their uses (onstream/cpu.h). */
#ifndef ONS_JIT_SOURCE_JOINT_H_
#define ONS_JIT_SOURCE_JOINT_H_

#include <stddef.h>

#include "runtime/base/string.h"

/* Appends `source`, with marks, to `text`; returns the number of marked sums. These are
 * sums that are all there is between a '=' and a ';' or ',', with parentheses around the
 * product and casts to integers of 32 bits or more; none where a directive mentions one
 * of the names. Linear in the source, whatever its bytes. */
size_t ons__source_joint_append(const char* source, ons__string* text);

#endif /* ONS_JIT_SOURCE_JOINT_H_ */
