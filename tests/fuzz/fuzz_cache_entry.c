/* Any bytes are read within their bounds, and what is an entry is no longer when it is
 * written again. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jit/cache_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

enum { KEY_AT = 12 };

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ons__cache_key key = {{0}};
  ons__image* image = NULL;
  ons__inputs inputs;
  char* bytes = malloc(size + 1);
  if (!bytes) return 0;
  if (size) memcpy(bytes, data, size);
  /* No search finds a checksum. */
  if (size >= KEY_AT + sizeof(key) + ONS__HASH_BYTES) {
    memcpy(&key, bytes + KEY_AT, sizeof(key));
    ons__hash_of(bytes, size - ONS__HASH_BYTES,
                 (unsigned char*)bytes + size - ONS__HASH_BYTES);
  }
  if (ons__cache_entry_read(NULL, &key, bytes, size, &image, &inputs)) {
    ons__string again;
    ons__string_init(&again, NULL);
    ons__cache_entry_write(&key, image, &inputs, &again);
    assert(!ons__string_ok(&again) || again.length <= size);
    ons__string_clear(&again);
    ons__inputs_clear(&inputs);
    ons__image_destroy(image);
  }
  free(bytes);
  return 0;
}
