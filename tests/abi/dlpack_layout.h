// Sizes, offsets and values of a dlpack.h that was included before this one.
#ifndef ONS_TESTS_ABI_DLPACK_LAYOUT_H_
#define ONS_TESTS_ABI_DLPACK_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

struct Fact {
  const char* what;
  long long value;
};

extern const Fact dlpack_ours[];
extern const Fact dlpack_torch[];
extern const size_t dlpack_fact_count;

// XX(expression): every number that two copies of the header have to agree on.
#define DLPACK_FACTS(XX)                                                 \
  XX(DLPACK_MAJOR_VERSION)                                               \
  XX(DLPACK_FLAG_BITMASK_READ_ONLY)                                      \
  XX(DLPACK_FLAG_BITMASK_IS_COPIED)                                      \
  XX(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)                         \
  XX(kDLCPU)                                                             \
  XX(kDLCUDA)                                                            \
  XX(kDLCUDAHost)                                                        \
  XX(kDLOpenCL)                                                          \
  XX(kDLVulkan)                                                          \
  XX(kDLMetal)                                                           \
  XX(kDLVPI)                                                             \
  XX(kDLROCM)                                                            \
  XX(kDLROCMHost)                                                        \
  XX(kDLExtDev)                                                          \
  XX(kDLCUDAManaged)                                                     \
  XX(kDLOneAPI)                                                          \
  XX(kDLWebGPU)                                                          \
  XX(kDLHexagon)                                                         \
  XX(kDLMAIA)                                                            \
  XX(kDLTrn)                                                             \
  XX(kDLInt)                                                             \
  XX(kDLUInt)                                                            \
  XX(kDLFloat)                                                           \
  XX(kDLOpaqueHandle)                                                    \
  XX(kDLBfloat)                                                          \
  XX(kDLComplex)                                                         \
  XX(kDLBool)                                                            \
  XX(kDLFloat8_e3m4)                                                     \
  XX(kDLFloat8_e4m3)                                                     \
  XX(kDLFloat8_e4m3b11fnuz)                                              \
  XX(kDLFloat8_e4m3fn)                                                   \
  XX(kDLFloat8_e4m3fnuz)                                                 \
  XX(kDLFloat8_e5m2)                                                     \
  XX(kDLFloat8_e5m2fnuz)                                                 \
  XX(kDLFloat8_e8m0fnu)                                                  \
  XX(kDLFloat6_e2m3fn)                                                   \
  XX(kDLFloat6_e3m2fn)                                                   \
  XX(kDLFloat4_e2m1fn)                                                   \
  XX(sizeof(DLPackVersion))                                              \
  XX(offsetof(DLPackVersion, minor))                                     \
  XX(sizeof(DLDeviceType))                                               \
  XX(sizeof(DLDevice))                                                   \
  XX(offsetof(DLDevice, device_id))                                      \
  XX(sizeof(DLDataType))                                                 \
  XX(offsetof(DLDataType, bits))                                         \
  XX(offsetof(DLDataType, lanes))                                        \
  XX(sizeof(DLTensor))                                                   \
  XX(offsetof(DLTensor, data))                                           \
  XX(offsetof(DLTensor, device))                                         \
  XX(offsetof(DLTensor, ndim))                                           \
  XX(offsetof(DLTensor, dtype))                                          \
  XX(offsetof(DLTensor, shape))                                          \
  XX(offsetof(DLTensor, strides))                                        \
  XX(offsetof(DLTensor, byte_offset))                                    \
  XX(sizeof(DLManagedTensor))                                            \
  XX(offsetof(DLManagedTensor, dl_tensor))                               \
  XX(offsetof(DLManagedTensor, manager_ctx))                             \
  XX(offsetof(DLManagedTensor, deleter))                                 \
  XX(sizeof(DLManagedTensorVersioned))                                   \
  XX(offsetof(DLManagedTensorVersioned, version))                        \
  XX(offsetof(DLManagedTensorVersioned, manager_ctx))                    \
  XX(offsetof(DLManagedTensorVersioned, deleter))                        \
  XX(offsetof(DLManagedTensorVersioned, flags))                          \
  XX(offsetof(DLManagedTensorVersioned, dl_tensor))                      \
  XX(sizeof(DLPackExchangeAPIHeader))                                    \
  XX(offsetof(DLPackExchangeAPIHeader, version))                         \
  XX(offsetof(DLPackExchangeAPIHeader, prev_api))                        \
  XX(sizeof(DLPackExchangeAPI))                                          \
  XX(offsetof(DLPackExchangeAPI, header))                                \
  XX(offsetof(DLPackExchangeAPI, managed_tensor_allocator))              \
  XX(offsetof(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync)) \
  XX(offsetof(DLPackExchangeAPI, managed_tensor_to_py_object_no_sync))   \
  XX(offsetof(DLPackExchangeAPI, dltensor_from_py_object_no_sync))       \
  XX(offsetof(DLPackExchangeAPI, current_work_stream))

#define DLPACK_FACT(expression) {#expression, static_cast<long long>(expression)},

#ifdef DLPACK_DLPACK_H_
template <class Declared, class Expected>
struct SameType {
  static_assert(std::is_same<Declared, Expected>::value, "a function type differs");
};
template struct SameType<DLPackCurrentWorkStream, int (*)(DLDeviceType, int32_t, void**)>;
template struct SameType<DLPackDLTensorFromPyObjectNoSync, int (*)(void*, DLTensor*)>;
template struct SameType<DLPackManagedTensorFromPyObjectNoSync,
                         int (*)(void*, DLManagedTensorVersioned**)>;
template struct SameType<DLPackManagedTensorToPyObjectNoSync,
                         int (*)(DLManagedTensorVersioned*, void**)>;
template struct SameType<DLPackManagedTensorAllocator,
                         int (*)(DLTensor*, DLManagedTensorVersioned**, void*,
                                 void (*)(void*, const char*, const char*))>;
#endif

#endif  // ONS_TESTS_ABI_DLPACK_LAYOUT_H_
