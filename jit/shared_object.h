/* Loading compiled code that is in memory. */
#ifndef ONS_JIT_SHARED_OBJECT_H_
#define ONS_JIT_SHARED_OBJECT_H_

#include <onstream/runtime.h>
#include <stddef.h>

/* Reference-counted: whoever compiled it has loaded it in order to read it, and its
 * constructors are not to run again for whoever launches. */
typedef struct ons__shared_object ons__shared_object;

/* Maps an ELF shared object; each call gives a copy of its own. The caller releases
 * |out_object|. Errors: IO with the loader's words, OUT_OF_MEMORY. */
ons_status ons__shared_object_open(const ons_allocator* allocator, const void* code,
                                   size_t code_bytes, ons__shared_object** out_object,
                                   ons_error* error);

/* A reference for the first who asks; NULL for all others, who want a copy with variables
 * of its own, and for NULL. */
ons__shared_object* ons__shared_object_claim(ons__shared_object* object);
void ons__shared_object_release(ons__shared_object* object); /* NULL is accepted */

/* The address of an exported symbol; NULL where there is none. */
void* ons__shared_object_find(const ons__shared_object* object, const char* name);

#endif /* ONS_JIT_SHARED_OBJECT_H_ */
