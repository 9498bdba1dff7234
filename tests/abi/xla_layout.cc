// Our declarations of XLA's interface against the header that jaxlib ships, which also
// takes the handlers as they are.
#include <cstdio>

#ifdef ONS_TEST_XLA
#include <onstream/xla.h>
#include <xla/ffi/api/c_api.h>

#include <cstddef>
#include <type_traits>

#define _Static_assert static_assert
#include "runtime/xla_abi.h"

// A host registers them without a cast.
static XLA_FFI_Handler* const handlers[] = {
#define HANDLER(platform, stage) ons_xla_##platform##_##stage,
    ONS_XLA_HANDLERS(HANDLER)
#undef HANDLER
};

using Extension = std::remove_pointer<decltype(XLA_FFI_CallFrame::extension_start)>::type;

// XX(ours, field, XLA's, field)
#define FIELDS(XX)                                                                   \
  XX(ons__xla_extension, struct_size, Extension, struct_size)                        \
  XX(ons__xla_extension, type, Extension, type)                                      \
  XX(ons__xla_extension, next, Extension, next)                                      \
  XX(ons__xla_version, extensions, XLA_FFI_Api_Version, extension_start)             \
  XX(ons__xla_version, major, XLA_FFI_Api_Version, major_version)                    \
  XX(ons__xla_version, minor, XLA_FFI_Api_Version, minor_version)                    \
  XX(ons__xla_metadata, version, XLA_FFI_Metadata, api_version)                      \
  XX(ons__xla_metadata, traits, XLA_FFI_Metadata, traits)                            \
  XX(ons__xla_metadata_query, extension, XLA_FFI_Metadata_Extension, extension_base) \
  XX(ons__xla_metadata_query, metadata, XLA_FFI_Metadata_Extension, metadata)        \
  XX(ons__xla_buffer, dtype, XLA_FFI_Buffer, dtype)                                  \
  XX(ons__xla_buffer, data, XLA_FFI_Buffer, data)                                    \
  XX(ons__xla_buffer, rank, XLA_FFI_Buffer, rank)                                    \
  XX(ons__xla_buffer, dims, XLA_FFI_Buffer, dims)                                    \
  XX(ons__xla_buffers, size, XLA_FFI_Args, size)                                     \
  XX(ons__xla_buffers, types, XLA_FFI_Args, types)                                   \
  XX(ons__xla_buffers, values, XLA_FFI_Args, args)                                   \
  XX(ons__xla_buffers, size, XLA_FFI_Rets, size)                                     \
  XX(ons__xla_buffers, types, XLA_FFI_Rets, types)                                   \
  XX(ons__xla_buffers, values, XLA_FFI_Rets, rets)                                   \
  XX(ons__xla_text, data, XLA_FFI_ByteSpan, ptr)                                     \
  XX(ons__xla_text, size_bytes, XLA_FFI_ByteSpan, len)                               \
  XX(ons__xla_scalar, dtype, XLA_FFI_Scalar, dtype)                                  \
  XX(ons__xla_scalar, value, XLA_FFI_Scalar, value)                                  \
  XX(ons__xla_array, dtype, XLA_FFI_Array, dtype)                                    \
  XX(ons__xla_array, size, XLA_FFI_Array, size)                                      \
  XX(ons__xla_array, data, XLA_FFI_Array, data)                                      \
  XX(ons__xla_attribute_list, size, XLA_FFI_Attrs, size)                             \
  XX(ons__xla_attribute_list, types, XLA_FFI_Attrs, types)                           \
  XX(ons__xla_attribute_list, names, XLA_FFI_Attrs, names)                           \
  XX(ons__xla_attribute_list, values, XLA_FFI_Attrs, attrs)                          \
  XX(ons__xla_frame, struct_size, XLA_FFI_CallFrame, struct_size)                    \
  XX(ons__xla_frame, extensions, XLA_FFI_CallFrame, extension_start)                 \
  XX(ons__xla_frame, api, XLA_FFI_CallFrame, api)                                    \
  XX(ons__xla_frame, context, XLA_FFI_CallFrame, ctx)                                \
  XX(ons__xla_frame, stage, XLA_FFI_CallFrame, stage)                                \
  XX(ons__xla_frame, operands, XLA_FFI_CallFrame, args)                              \
  XX(ons__xla_frame, results, XLA_FFI_CallFrame, rets)                               \
  XX(ons__xla_frame, attributes, XLA_FFI_CallFrame, attrs)                           \
  XX(ons__xla_frame, future, XLA_FFI_CallFrame, future)                              \
  XX(ons__xla_error_create, message, XLA_FFI_Error_Create_Args, message)             \
  XX(ons__xla_error_create, code, XLA_FFI_Error_Create_Args, errc)                   \
  XX(ons__xla_error_destroy, error, XLA_FFI_Error_Destroy_Args, error)               \
  XX(ons__xla_stream_get, context, XLA_FFI_Stream_Get_Args, ctx)                     \
  XX(ons__xla_stream_get, stream, XLA_FFI_Stream_Get_Args, stream)                   \
  XX(ons__xla_schedule, context, XLA_FFI_ThreadPool_Schedule_Args, ctx)              \
  XX(ons__xla_schedule, task, XLA_FFI_ThreadPool_Schedule_Args, task)                \
  XX(ons__xla_schedule, data, XLA_FFI_ThreadPool_Schedule_Args, data)                \
  XX(ons__xla_thread_count, context, XLA_FFI_ThreadPool_NumThreads_Args, ctx)        \
  XX(ons__xla_thread_count, count, XLA_FFI_ThreadPool_NumThreads_Args, num_threads)  \
  XX(ons__xla_api, struct_size, XLA_FFI_Api, struct_size)                            \
  XX(ons__xla_api, version, XLA_FFI_Api, api_version)                                \
  XX(ons__xla_api, error_create, XLA_FFI_Api, XLA_FFI_Error_Create)                  \
  XX(ons__xla_api, error_destroy, XLA_FFI_Api, XLA_FFI_Error_Destroy)                \
  XX(ons__xla_api, stream_get, XLA_FFI_Api, XLA_FFI_Stream_Get)                      \
  XX(ons__xla_api, thread_schedule, XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule)        \
  XX(ons__xla_api, thread_count, XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads)

// XX(ours, XLA's)
#define VALUES(XX)                                                                      \
  XX(ONS__XLA_FRAME_BYTES, XLA_FFI_CallFrame_STRUCT_SIZE)                               \
  XX(ONS__XLA_EXTENSION_METADATA, XLA_FFI_Extension_Metadata)                           \
  XX(ONS__XLA_TRAIT_COMMAND_BUFFER, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE)   \
  XX(ONS__XLA_TOKEN, XLA_FFI_DataType_TOKEN)                                            \
  XX(ONS__XLA_BUFFER, XLA_FFI_ArgType_BUFFER)                                           \
  XX(ONS__XLA_BUFFER, XLA_FFI_RetType_BUFFER)                                           \
  XX(ONS__XLA_ARRAY, XLA_FFI_AttrType_ARRAY)                                            \
  XX(ONS__XLA_DICTIONARY, XLA_FFI_AttrType_DICTIONARY)                                  \
  XX(ONS__XLA_SCALAR, XLA_FFI_AttrType_SCALAR)                                          \
  XX(ONS__XLA_STRING, XLA_FFI_AttrType_STRING)                                          \
  XX(ONS__XLA_INSTANTIATE, XLA_FFI_ExecutionStage_INSTANTIATE)                          \
  XX(ONS__XLA_INITIALIZE, XLA_FFI_ExecutionStage_INITIALIZE)                            \
  XX(ONS__XLA_EXECUTE, XLA_FFI_ExecutionStage_EXECUTE)                                  \
  XX(ONS__XLA_SIZE(ons__xla_error_create, code), XLA_FFI_Error_Create_Args_STRUCT_SIZE) \
  XX(sizeof(ons__xla_error_destroy), XLA_FFI_Error_Destroy_Args_STRUCT_SIZE)            \
  XX(sizeof(ons__xla_stream_get), XLA_FFI_Stream_Get_Args_STRUCT_SIZE)                  \
  XX(sizeof(ons__xla_schedule), XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE)           \
  XX(sizeof(ons__xla_thread_count), XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE)     \
  XX(sizeof(ons__xla_buffer), XLA_FFI_Buffer_STRUCT_SIZE)

static int differences = 0;

static void compare(const char* ours, long long our_value, const char* theirs,
                    long long their_value) {
  if (our_value == their_value) return;
  ++differences;
  std::printf("%s is %lld, %s is %lld\n", ours, our_value, theirs, their_value);
}

int main() {
#define COMPARE_FIELD(our_type, our_field, type, field)                                  \
  compare(#our_type "." #our_field, offsetof(our_type, our_field), #type "." #field,     \
          offsetof(type, field));                                                        \
  compare("sizeof " #our_type "." #our_field, sizeof(our_type::our_field), "of " #field, \
          sizeof(type::field));
  FIELDS(COMPARE_FIELD)
#define COMPARE_VALUE(ours, theirs) \
  compare(#ours, static_cast<long long>(ours), #theirs, static_cast<long long>(theirs));
  VALUES(COMPARE_VALUE)
#define COMPARE_DTYPE(name, value, code, bits) \
  COMPARE_VALUE(ONS__XLA_##name, XLA_FFI_DataType_##name)
  ONS__XLA_DTYPES(COMPARE_DTYPE)
  for (XLA_FFI_Handler* handler : handlers) differences += handler == nullptr;
  std::printf("XLA's interface of version %d.%d: %d differences\n", XLA_FFI_API_MAJOR,
              XLA_FFI_API_MINOR, differences);
  return differences != 0;
}
#else
int main() {
  std::puts("skipped: no jaxlib with xla/ffi/api/c_api.h is installed for this Python");
  return 77;
}
#endif
