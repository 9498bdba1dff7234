/* Loading compiled code that is in memory. */
#ifndef ONS_JIT_SHARED_OBJECT_H_
#define ONS_JIT_SHARED_OBJECT_H_

#include <onstream/runtime.h>
#include <stddef.h>

/* Maps an ELF shared object; each call gives a copy of its own. The caller closes
 * |out_handle| with dlclose. Errors: IO with the loader's words. */
ons_status ons__shared_object_open(const void* code, size_t code_bytes, void** out_handle,
                                   ons_error* error);

#endif /* ONS_JIT_SHARED_OBJECT_H_ */
