/* The part of XLA's foreign function interface that the handlers use, declared here so
 * that nothing of XLA is needed to build. Layouts are those of the versions 0.1 and
 * newer; a test compares them with the header that jaxlib ships.
 *
 * Structs grow at their end, and begin with what the other side knows of them in bytes.
 */
#ifndef ONS_RUNTIME_XLA_ABI_H_
#define ONS_RUNTIME_XLA_ABI_H_

#include <stddef.h>
#include <stdint.h>

struct XLA_FFI_Error;
typedef struct XLA_FFI_Error ons__xla_error;

typedef struct ons__xla_extension {
  size_t struct_size;
  int type; /* ons__xla_extension_type */
  struct ons__xla_extension* next;
} ons__xla_extension;

typedef enum ons__xla_extension_type {
  ONS__XLA_EXTENSION_METADATA = 1
} ons__xla_extension_type;

typedef struct ons__xla_version {
  size_t struct_size;
  ons__xla_extension* extensions;
  int major;
  int minor;
} ons__xla_version;

enum { ONS__XLA_TRAIT_COMMAND_BUFFER = 1 };

typedef struct ons__xla_metadata {
  size_t struct_size;
  ons__xla_version version;
  uint32_t traits;
  /* From 0.2 on there is more, which XLA presets; the size does not tell. */
} ons__xla_metadata;

typedef struct ons__xla_metadata_query {
  ons__xla_extension extension;
  ons__xla_metadata* metadata; /* to be filled */
} ons__xla_metadata_query;

/* XX(NAME, value, code, bits): of elements that DLPack has, too. */
#define ONS__XLA_DTYPES(XX)                       \
  XX(PRED, 1, kDLBool, 8)                         \
  XX(S8, 2, kDLInt, 8)                            \
  XX(S16, 3, kDLInt, 16)                          \
  XX(S32, 4, kDLInt, 32)                          \
  XX(S64, 5, kDLInt, 64)                          \
  XX(U8, 6, kDLUInt, 8)                           \
  XX(U16, 7, kDLUInt, 16)                         \
  XX(U32, 8, kDLUInt, 32)                         \
  XX(U64, 9, kDLUInt, 64)                         \
  XX(F16, 10, kDLFloat, 16)                       \
  XX(F32, 11, kDLFloat, 32)                       \
  XX(F64, 12, kDLFloat, 64)                       \
  XX(C64, 15, kDLComplex, 64)                     \
  XX(BF16, 16, kDLBfloat, 16)                     \
  XX(C128, 18, kDLComplex, 128)                   \
  XX(F8E5M2, 19, kDLFloat8_e5m2, 8)               \
  XX(F8E4M3FN, 20, kDLFloat8_e4m3fn, 8)           \
  XX(S4, 21, kDLInt, 4)                           \
  XX(U4, 22, kDLUInt, 4)                          \
  XX(F8E4M3B11FNUZ, 23, kDLFloat8_e4m3b11fnuz, 8) \
  XX(F8E5M2FNUZ, 24, kDLFloat8_e5m2fnuz, 8)       \
  XX(F8E4M3FNUZ, 25, kDLFloat8_e4m3fnuz, 8)       \
  XX(S2, 26, kDLInt, 2)                           \
  XX(U2, 27, kDLUInt, 2)                          \
  XX(F8E4M3, 28, kDLFloat8_e4m3, 8)               \
  XX(F8E3M4, 29, kDLFloat8_e3m4, 8)               \
  XX(S1, 30, kDLInt, 1)                           \
  XX(U1, 31, kDLUInt, 1)                          \
  XX(F4E2M1FN, 32, kDLFloat4_e2m1fn, 4)           \
  XX(F8E8M0FNU, 33, kDLFloat8_e8m0fnu, 8)

typedef enum ons__xla_dtype {
#define ONS__XLA_DTYPE(name, value, code, bits) ONS__XLA_##name = value,
  ONS__XLA_DTYPES(ONS__XLA_DTYPE)
#undef ONS__XLA_DTYPE
      ONS__XLA_TOKEN = 17
} ons__xla_dtype;

/* Dense; in the layout that the program asked for. */
typedef struct ons__xla_buffer {
  size_t struct_size;
  ons__xla_extension* extensions;
  int dtype; /* ons__xla_dtype */
  void* data;
  int64_t rank;
  int64_t* dims;
} ons__xla_buffer;

enum { ONS__XLA_BUFFER = 1 }; /* the type of operands and results */

/* Operands, and as well results. */
typedef struct ons__xla_buffers {
  size_t struct_size;
  ons__xla_extension* extensions;
  int64_t size;
  int* types;
  void** values; /* ons__xla_buffer* */
} ons__xla_buffers;

typedef enum ons__xla_attribute_type {
  ONS__XLA_ARRAY = 1,
  ONS__XLA_DICTIONARY = 2,
  ONS__XLA_SCALAR = 3,
  ONS__XLA_STRING = 4
} ons__xla_attribute_type;

typedef struct ons__xla_text { /* without a NUL at its end */
  const char* data;
  size_t size_bytes;
} ons__xla_text;

typedef struct ons__xla_scalar {
  int dtype;
  void* value;
} ons__xla_scalar;

typedef struct ons__xla_array {
  int dtype;
  size_t size;
  void* data;
} ons__xla_array;

typedef struct ons__xla_attribute_list { /* sorted by name */
  size_t struct_size;
  ons__xla_extension* extensions;
  int64_t size;
  int* types; /* ons__xla_attribute_type */
  ons__xla_text** names;
  void** values;
} ons__xla_attribute_list;

typedef enum ons__xla_stage {
  ONS__XLA_INSTANTIATE = 0,
  ONS__XLA_INITIALIZE = 2,
  ONS__XLA_EXECUTE = 3
} ons__xla_stage;

typedef struct ons__xla_frame {
  size_t struct_size;
  ons__xla_extension* extensions;
  const struct ons__xla_api* api; /* may be NULL in a query of metadata */
  void* context;
  int stage; /* ons__xla_stage */
  ons__xla_buffers operands;
  ons__xla_buffers results;
  ons__xla_attribute_list attributes;
  void* future; /* for calls that end later; not part of struct_size */
} ons__xla_frame;

enum { ONS__XLA_FRAME_BYTES = offsetof(ons__xla_frame, future) };

/* What the calls of the table take. */
typedef struct ons__xla_error_create {
  size_t struct_size;
  ons__xla_extension* extensions;
  const char* message;
  int code; /* of absl::Status */
} ons__xla_error_create;

typedef struct ons__xla_error_destroy {
  size_t struct_size;
  ons__xla_extension* extensions;
  ons__xla_error* error;
} ons__xla_error_destroy;

typedef struct ons__xla_stream_get {
  size_t struct_size;
  ons__xla_extension* extensions;
  void* context;
  void* stream; /* out */
} ons__xla_stream_get;

typedef struct ons__xla_schedule {
  size_t struct_size;
  ons__xla_extension* extensions;
  void* context;
  void (*task)(void* data);
  void* data;
} ons__xla_schedule;

typedef struct ons__xla_thread_count {
  size_t struct_size;
  ons__xla_extension* extensions;
  void* context;
  int64_t* count; /* out */
} ons__xla_thread_count;

/* struct_size as XLA counts it: without what pads the end. */
#define ONS__XLA_SIZE(type, last) (offsetof(type, last) + sizeof(((type*)0)->last))

/* Slots of no interest are untyped. The ones up to `thread_schedule` are where they are
 * in every version; those after it where the table has ONS__XLA_API_WHOLE_BYTES, for in
 * 0.1 they came in two orders, and struct_size told neither. */
typedef struct ons__xla_api {
  size_t struct_size;
  ons__xla_extension* extensions;
  ons__xla_version version;
  const void* internal;
  ons__xla_error* (*error_create)(ons__xla_error_create* args);
  void (*error_message)(void* args);
  void (*error_destroy)(ons__xla_error_destroy* args);
  ons__xla_error* (*handler_register)(void* args);
  ons__xla_error* (*stream_get)(ons__xla_stream_get* args);
  ons__xla_error* (*type_register)(void* args);
  ons__xla_error* (*context_get)(void* args);
  ons__xla_error* (*state_set)(void* args);
  ons__xla_error* (*state_get)(void* args);
  ons__xla_error* (*memory_allocate)(void* args);
  ons__xla_error* (*memory_free)(void* args);
  ons__xla_error* (*thread_schedule)(ons__xla_schedule* args);
  ons__xla_error* (*thread_count)(ons__xla_thread_count* args);
} ons__xla_api;

enum {
  ONS__XLA_API_BYTES = ONS__XLA_SIZE(ons__xla_api, stream_get), /* what 0.1 says */
  ONS__XLA_API_WHOLE_BYTES = 192
};

_Static_assert(sizeof(void*) != 8 || ONS__XLA_FRAME_BYTES == 168, "");
_Static_assert(sizeof(void*) != 8 || offsetof(ons__xla_frame, attributes) == 120, "");
_Static_assert(sizeof(void*) != 8 || sizeof(ons__xla_buffer) == 48, "");
_Static_assert(sizeof(void*) != 8 || ONS__XLA_SIZE(ons__xla_metadata, traits) == 36, "");
_Static_assert(sizeof(void*) != 8 || ONS__XLA_API_BYTES == 88, "");
_Static_assert(sizeof(void*) != 8 || offsetof(ons__xla_api, thread_count) == 144, "");

#endif /* ONS_RUNTIME_XLA_ABI_H_ */
