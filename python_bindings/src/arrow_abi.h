/* Arrow's C device interface, by its specification. */
#ifndef ONSPY_ARROW_ABI_H_
#define ONSPY_ARROW_ABI_H_

#include <onstream/dlpack.h>
#include <stdint.h>

typedef struct arrow_schema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct arrow_schema** children;
  struct arrow_schema* dictionary;
  void (*release)(struct arrow_schema*);
  void* private_data;
} arrow_schema;

typedef struct arrow_array {
  int64_t length;
  int64_t null_count; /* -1: not counted */
  int64_t offset;     /* in elements */
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct arrow_array** children;
  struct arrow_array* dictionary;
  void (*release)(struct arrow_array*);
  void* private_data;
} arrow_array;

typedef struct arrow_device_array {
  arrow_array array;
  int64_t device_id;
  int32_t device_type; /* as DLPack's */
  void* sync_event;    /* the address of an event of the device's platform, or NULL */
  int64_t reserved[3];
} arrow_device_array;

/* XX(format, DLPack's code, bits): the types that DLPack has as well. */
#define ARROW_TYPES(XX) \
  XX("c", kDLInt, 8)    \
  XX("C", kDLUInt, 8)   \
  XX("s", kDLInt, 16)   \
  XX("S", kDLUInt, 16)  \
  XX("i", kDLInt, 32)   \
  XX("I", kDLUInt, 32)  \
  XX("l", kDLInt, 64)   \
  XX("L", kDLUInt, 64)  \
  XX("e", kDLFloat, 16) \
  XX("f", kDLFloat, 32) \
  XX("g", kDLFloat, 64)

#endif /* ONSPY_ARROW_ABI_H_ */
