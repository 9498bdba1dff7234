#include "runtime/xla_attributes.h"

#include <onstream/xla.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

/* ---- by type ---------------------------------------------------------------------- */

static bool read_text(int type, const void* value, ons__xla_text* out_text) {
  if (type != ONS__XLA_STRING) return false;
  *out_text = *(const ons__xla_text*)value;
  return true;
}

static bool read_numbers(int type, const void* value, ons__xla_numbers* out_numbers) {
  const ons__xla_array* array = value;
  if (type != ONS__XLA_ARRAY || array->dtype != ONS__XLA_S64) return false;
  *out_numbers = (ons__xla_numbers){array->data, array->size};
  return true;
}

static bool read_number(int type, const void* value, int64_t* out_number) {
  const ons__xla_scalar* scalar = value;
  if (type != ONS__XLA_SCALAR || scalar->dtype != ONS__XLA_S64) return false;
  memcpy(out_number, scalar->value, sizeof(*out_number));
  return true;
}

#define NAME_OF_text "a string"
#define NAME_OF_numbers "an array of i64"
#define NAME_OF_number "an i64"

/* ---- by name ---------------------------------------------------------------------- */

enum {
#define COUNT(name, type, is_required) INDEX_##name,
  ONS__XLA_ATTRIBUTES(COUNT)
#undef COUNT
      ATTRIBUTE_COUNT
};

static const struct {
  const char* text;
  size_t size_bytes;
  bool is_required;
  const char* type_name;
} kNames[ATTRIBUTE_COUNT] = {
#define NAME(name, type, is_required) \
  {#name, sizeof(#name) - 1, is_required, NAME_OF_##type},
    ONS__XLA_ATTRIBUTES(NAME)
#undef NAME
};

static bool is_named(const ons__xla_text* name, size_t index) {
  return name->size_bytes == kNames[index].size_bytes &&
         memcmp(name->data, kNames[index].text, name->size_bytes) == 0;
}

/* Both lists are sorted: what is looked for is most often the next one. */
static size_t find_name(const ons__xla_text* name, size_t next) {
  for (size_t i = 0; i < ATTRIBUTE_COUNT; ++i) {
    size_t index = (next + i) % ATTRIBUTE_COUNT;
    if (is_named(name, index)) return index;
  }
  return ATTRIBUTE_COUNT;
}

static bool read_value(size_t index, int type, const void* value,
                       ons__xla_attributes* attributes) {
  switch (index) {
#define READ(name, type_of, is_required) \
  case INDEX_##name:                     \
    return read_##type_of(type, value, &attributes->name);
    ONS__XLA_ATTRIBUTES(READ)
#undef READ
    default:
      return false;
  }
}

static ONS__COLD ons_status refuse(size_t index, const char* why, ons_error* error) {
  return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                        "attribute '%s' %s: <onstream/xla.h> says what a call of '%s' "
                        "has; give it %s",
                        kNames[index].text, why, ONS_XLA_TARGET, kNames[index].type_name);
}

static ONS__COLD ons_status refuse_version(int64_t version, ons_error* error) {
  return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                        "the call's attributes are of version %lld, this onstream knows "
                        "version %d: compile the program again with this onstream, or "
                        "run it with the one that made it",
                        (long long)version, ONS_XLA_VERSION);
}

static ons_status find_missing(uint32_t found, ons_error* error) {
  for (size_t i = 0; i < ATTRIBUTE_COUNT; ++i) {
    if (kNames[i].is_required && !(found >> i & 1)) {
      return refuse(i, "is missing", error);
    }
  }
  return ONS_STATUS_OK;
}

ons_status ons__xla_attributes_read(const ons__xla_attribute_list* list,
                                    ons__xla_attributes* out_attributes,
                                    ons_error* error) {
  memset(out_attributes, 0, sizeof(*out_attributes));
  uint32_t found = 0;
  size_t next = 0;
  for (int64_t i = 0; i < list->size; ++i) {
    size_t index = find_name(list->names[i], next);
    if (index == ATTRIBUTE_COUNT) continue; /* nobody's, or a newer host's */
    if (!read_value(index, list->types[i], list->values[i], out_attributes)) {
      return refuse(index, "has another type", error);
    }
    found |= 1u << index;
    next = index + 1;
  }
  ons_status status = find_missing(found, error);
  if (status) return status;
  return out_attributes->version == ONS_XLA_VERSION
             ? ONS_STATUS_OK
             : refuse_version(out_attributes->version, error);
}

/* ---- texts ------------------------------------------------------------------------ */

/* The length in front of a text; false where there is none that fits what is left. */
static bool take_length(ons__xla_text* rest, size_t* out_length) {
  size_t length = 0;
  size_t i = 0;
  while (i < rest->size_bytes && rest->data[i] >= '0' && rest->data[i] <= '9') {
    if (length > rest->size_bytes) return false;
    length = length * 10 + (size_t)(rest->data[i++] - '0');
  }
  if (i == 0 || i == rest->size_bytes || rest->data[i] != ':') return false;
  rest->data += i + 1;
  rest->size_bytes -= i + 1;
  *out_length = length;
  return length <= rest->size_bytes;
}

ons_status ons__xla_texts_read(ons__xla_text from, const char* what,
                               ons__xla_texts* out_texts, ons_error* error) {
  /* No text is shorter than "0:". */
  out_texts->texts =
      ons__alloc_array(out_texts->allocator, from.size_bytes / 2 + 1, sizeof(char*));
  if (!out_texts->texts) return ons__error_no_memory(error);
  while (from.size_bytes > 0) {
    size_t length = 0;
    if (!take_length(&from, &length) || memchr(from.data, '\0', length)) {
      return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                            "attribute '%s': text %zu is malformed; each is its length "
                            "in bytes, ':' and the text, without a NUL in it",
                            what, out_texts->count + 1);
    }
    char* copy = ons__strndup(out_texts->allocator, from.data, length);
    if (!copy) return ons__error_no_memory(error);
    out_texts->texts[out_texts->count++] = copy;
    from.data += length;
    from.size_bytes -= length;
  }
  return ONS_STATUS_OK;
}

void ons__xla_texts_clear(ons__xla_texts* texts) {
  for (size_t i = 0; i < texts->count; ++i) {
    ons__free(texts->allocator, texts->texts[i]);
  }
  ons__free(texts->allocator, texts->texts);
  *texts = (ons__xla_texts){.allocator = texts->allocator};
}
