/* The layout of the driver's structs that are passed, once by our declarations and once
 * by the vendor's (two translation units, since the names are the same). */
#ifndef ONS_TESTS_ABI_CUDA_LAYOUT_H_
#define ONS_TESTS_ABI_CUDA_LAYOUT_H_

#include <stddef.h>

#define CUDA_LAUNCH_CONFIG_FIELDS(XX) \
  XX(gridDimX)                        \
  XX(gridDimY)                        \
  XX(gridDimZ)                        \
  XX(blockDimX)                       \
  XX(blockDimY) XX(blockDimZ) XX(sharedMemBytes) XX(hStream) XX(attrs) XX(numAttrs)

#define CUDA_NODE_FIELDS(XX) \
  XX(func)                   \
  XX(gridDimX)               \
  XX(gridDimY)               \
  XX(gridDimZ)               \
  XX(blockDimX)              \
  XX(blockDimY)              \
  XX(blockDimZ)              \
  XX(sharedMemBytes) XX(kernelParams) XX(extra) XX(kern) XX(ctx)

typedef struct cuda_layout {
  const char* name;
  size_t offset_bytes;
  size_t size_bytes;
} cuda_layout;

#define CUDA_FIELD_LAYOUT(field) \
  {#field, offsetof(CUlaunchConfig, field), sizeof(((CUlaunchConfig*)0)->field)},
#define CUDA_NODE_LAYOUT(field)                      \
  {#field, offsetof(CUDA_KERNEL_NODE_PARAMS, field), \
   sizeof(((CUDA_KERNEL_NODE_PARAMS*)0)->field)},
#define CUDA_SIZE_LAYOUT(type) \
  { #type, 0, sizeof(type) }
#define CUDA_LAYOUTS                                                                    \
  {                                                                                     \
    CUDA_LAUNCH_CONFIG_FIELDS(CUDA_FIELD_LAYOUT)                                        \
    CUDA_NODE_FIELDS(CUDA_NODE_LAYOUT)                                                  \
    CUDA_SIZE_LAYOUT(CUDA_KERNEL_NODE_PARAMS), CUDA_SIZE_LAYOUT(CUlaunchConfig),        \
        CUDA_SIZE_LAYOUT(CUresult), CUDA_SIZE_LAYOUT(CUdevice),                         \
        CUDA_SIZE_LAYOUT(CUdeviceptr), CUDA_SIZE_LAYOUT(CUdevice_attribute),            \
        CUDA_SIZE_LAYOUT(CUfunction_attribute), CUDA_SIZE_LAYOUT(CUpointer_attribute),  \
        CUDA_SIZE_LAYOUT(CUstreamCaptureStatus), CUDA_SIZE_LAYOUT(CUstreamCaptureMode), \
        CUDA_SIZE_LAYOUT(CUjit_option), CUDA_SIZE_LAYOUT(CUlibraryOption),              \
        CUDA_SIZE_LAYOUT(CUdriverProcAddressQueryResult), CUDA_SIZE_LAYOUT(CUhostFn),   \
        CUDA_SIZE_LAYOUT(CUstream)                                                      \
  }

extern const cuda_layout cuda_our_layouts[];
extern const size_t cuda_our_layout_count;

#endif /* ONS_TESTS_ABI_CUDA_LAYOUT_H_ */
