/* The headers that NVRTC gets in memory, beside the caller's own. */
#ifndef ONS_JIT_NVRTC_HEADERS_H_
#define ONS_JIT_NVRTC_HEADERS_H_

#include <onstream/module.h>
#include <stddef.h>

/* <onstream/kernel.h>, and the few of C and C++ that sources include out of habit and
 * NVRTC has not: <cstdint>, <climits>, <cstddef> and their C forms. */
extern const ons_header ons__nvrtc_headers[];
extern const size_t ons__nvrtc_header_count;

#endif /* ONS_JIT_NVRTC_HEADERS_H_ */
