/* The attributes of an XLA call: found by name, checked for their type, borrowed from the
 * call frame. <onstream/xla.h> says what they mean. */
#ifndef ONS_RUNTIME_XLA_ATTRIBUTES_H_
#define ONS_RUNTIME_XLA_ATTRIBUTES_H_

#include <onstream/module.h>
#include <onstream/status.h>
#include <stdbool.h>

#include "runtime/xla_abi.h"

/* In the order in which XLA sorts them: XX(name, type, is it required?). */
#define ONS__XLA_ATTRIBUTES(XX)   \
  XX(aliases, numbers, false)     \
  XX(block, numbers, true)        \
  XX(bundle, text, false)         \
  XX(digest, text, true)          \
  XX(flags, number, false)        \
  XX(grid, numbers, true)         \
  XX(headers, text, false)        \
  XX(kernel, text, true)          \
  XX(name, text, false)           \
  XX(options, text, false)        \
  XX(plan, numbers, false)        \
  XX(scalars, text, false)        \
  XX(shared_bytes, number, false) \
  XX(source, text, false)         \
  XX(version, number, true)

typedef struct ons__xla_numbers {
  const int64_t* values;
  size_t count;
} ons__xla_numbers;

typedef int64_t ons__xla_number;

/* Zero where left out. */
typedef struct ons__xla_attributes {
#define ONS__XLA_FIELD(name, type, is_required) ons__xla_##type name;
  ONS__XLA_ATTRIBUTES(ONS__XLA_FIELD)
#undef ONS__XLA_FIELD
} ons__xla_attributes;

/* INVALID_ARGUMENT for what is missing or of another type; UNSUPPORTED for a version that
 * is not ONS_XLA_VERSION. */
ons_status ons__xla_attributes_read(const ons__xla_attribute_list* list,
                                    ons__xla_attributes* out_attributes,
                                    ons_error* error);

/* What `options` and `headers` are written as: texts with their lengths. */
typedef struct ons__xla_texts {
  const ons_allocator* allocator;
  char** texts; /* NUL-terminated */
  size_t count;
} ons__xla_texts;

/* The caller clears |out_texts| in any case. |what| is for the error. */
ons_status ons__xla_texts_read(ons__xla_text from, const char* what,
                               ons__xla_texts* out_texts, ons_error* error);
void ons__xla_texts_clear(ons__xla_texts* texts);

#endif /* ONS_RUNTIME_XLA_ATTRIBUTES_H_ */
