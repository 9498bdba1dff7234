/* Any bytes are read within their bounds, and what is a bundle is no longer when it is
 * written again. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jit/bundle.h"
#include "runtime/base/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ons__bundle* bundle = NULL;
  char* bytes = malloc(size + 1);
  if (!bytes) return 0;
  if (size) memcpy(bytes, data, size);
  if (size >= ONS__HASH_BYTES) { /* no search finds a checksum */
    ons__hash_of(bytes, size - ONS__HASH_BYTES,
                 (unsigned char*)bytes + size - ONS__HASH_BYTES);
  }
  if (!ons__bundle_read(NULL, bytes, size, &bundle, NULL)) {
    ons__string again;
    ons__string_init(&again, NULL);
    ons__bundle_write(bundle, &again);
    assert(!ons__string_ok(&again) || again.length <= size);
    ons__string_clear(&again);
    (void)ons__bundle_find(bundle, "sm_90");
    (void)ons__bundle_find(bundle, "native");
    ons__bundle_destroy(bundle);
  }
  free(bytes);
  return 0;
}
