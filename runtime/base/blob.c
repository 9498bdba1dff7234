#include "runtime/base/blob.h"

#include <stdlib.h>
#include <string.h>

struct ons_blob {
  size_t size_bytes;
  char data[]; /* NUL-terminated */
};

ons_blob* ons__blob_create(const void* data, size_t size_bytes) {
  ons_blob* blob = malloc(sizeof(*blob) + size_bytes + 1);
  if (!blob) return NULL;
  blob->size_bytes = size_bytes;
  if (size_bytes) memcpy(blob->data, data, size_bytes);
  blob->data[size_bytes] = '\0';
  return blob;
}

const void* ons_blob_data(const ons_blob* blob) { return blob ? blob->data : ""; }

size_t ons_blob_size_bytes(const ons_blob* blob) { return blob ? blob->size_bytes : 0; }

void ons_blob_release(ons_blob* blob) { free(blob); }
