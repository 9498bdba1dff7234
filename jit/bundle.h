/* A bundle: a module's images for several architectures, as bytes. */
#ifndef ONS_JIT_BUNDLE_H_
#define ONS_JIT_BUNDLE_H_

#include "jit/compile.h"
#include "jit/source_scan.h"
#include "jit/variable_scan.h"
#include "runtime/base/hash.h"
#include "runtime/base/string.h"

/* Of the layout below: bundles of another are refused. */
enum { ONS__BUNDLE_SCHEMA = 1 };

typedef struct ons__bundle_image {
  char arch[32];
  ons__image* image;
} ons__bundle_image;

typedef struct ons__bundle {
  const ons_allocator* allocator;
  char* name;         /* the module's */
  const char* source; /* "" where it was left out */
  uint32_t flags;     /* ons_module_flags */
  char** options;
  size_t option_count;
  ons_header* headers;
  size_t header_count;
  ons__source_scan scan; /* kernels and their parameters' names; no templates' */
  ons__variable_scan variables;
  ons__bundle_image* images;
  size_t image_count;
  unsigned char digest[ONS__HASH_BYTES]; /* of the bytes that it was read from */
} ons__bundle;

/* As in encoding.h:
 *   "ONSBUNDL", u32 schema, name, source, u32 flags
 *   u32 count of options, each a text; u32 count of headers, each name, content
 *   u32 count of kernels, each name, u8 is a template, u8 is overloaded, u32 count of
 *     parameters, each name, u8 has a name, u8 is restrict
 *   u32 count of variables, each name, u8 is constant
 *   u32 count of images, each its architecture and the image
 *   BLAKE2b-256 of all that
 * Appends them; `out_bytes` fails when out of memory. */
void ons__bundle_write(const ons__bundle* bundle, ons__string* out_bytes);

/* Any bytes may be given. INVALID_ARGUMENT, OUT_OF_MEMORY. */
ons_status ons__bundle_read(const ons_allocator* allocator, const void* bytes,
                            size_t size_bytes, ons__bundle** out_bundle,
                            ons_error* error);
void ons__bundle_destroy(ons__bundle* bundle); /* NULL is accepted */

/* The best image for a device of `arch` ("sm_90", "native"); NULL where none runs there.
 */
const ons__bundle_image* ons__bundle_find(const ons__bundle* bundle, const char* arch);

/* Appends the architectures there are, ", " between them. */
void ons__bundle_list(const ons__bundle* bundle, ons__string* out_text);

#endif /* ONS_JIT_BUNDLE_H_ */
