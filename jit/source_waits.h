/* Which kernels may wait for other threads, which use the memory of their block, and
 * which tell blocks apart, by the words of the source.
 *
 * A word is suspect if it is one of the dialect's that wait, or if what it names mentions
 * a suspect word: a function, a macro, a class (with its members), an alias. A kernel is
 * suspected if its name, or a word of its template arguments, is suspect. Scopes,
 * overloads and branches that are compiled out are not told apart: too many kernels may
 * be suspected, never too few, as far as the text goes. Where it includes what is not
 * there to be read, all are. */
#ifndef ONS_JIT_SOURCE_WAITS_H_
#define ONS_JIT_SOURCE_WAITS_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ons__suspects ons__suspects;

typedef enum ons__suspicion {
  ONS__SUSPECT_WAITS,  /* of barriers, shuffles, votes, groups */
  ONS__SUSPECT_SHARED, /* of __shared__ */
  ONS__SUSPECT_INDEX   /* of threadIdx and blockIdx, where they have not been marked */
} ons__suspicion;

/* Reads `texts`, which may mention each other. `is_all`: they include what is none of
 * them. NULL when out of memory. Linear in the texts, whatever their bytes. */
ons__suspects* ons__suspects_create(const ons_allocator* allocator,
                                    ons__suspicion suspicion, const char* const* texts,
                                    size_t text_count, bool is_all);
void ons__suspects_destroy(ons__suspects* suspects); /* NULL is accepted */

/* `name` is a kernel's C++ name expression. */
bool ons__suspects_has(const ons__suspects* suspects, const char* name);

#endif /* ONS_JIT_SOURCE_WAITS_H_ */
