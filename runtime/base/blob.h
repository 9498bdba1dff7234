/* ons_blob: immutable bytes handed to callers, who release them. */
#ifndef ONS_RUNTIME_BASE_BLOB_H_
#define ONS_RUNTIME_BASE_BLOB_H_

#include <onstream/runtime.h>

/* Copies the bytes; NULL when out of memory. Blobs use malloc: they may outlive the
 * runtime. */
ons_blob* ons__blob_create(const void* data, size_t size_bytes);

#endif /* ONS_RUNTIME_BASE_BLOB_H_ */
