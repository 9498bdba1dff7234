/* The part of the CUDA driver's ABI that is used, declared here: no vendor header is
 * needed to build. tests/abi compares it with <cuda.h>. */
#ifndef ONS_RUNTIME_BACKENDS_CUDA_CUDA_TYPES_H_
#define ONS_RUNTIME_BACKENDS_CUDA_CUDA_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#include "runtime/backends/cuda/cuda_values.h"

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct ons__CUcontext* CUcontext;
typedef struct ons__CUmodule* CUmodule;
typedef struct ons__CUlibrary* CUlibrary;
typedef struct ons__CUkernel* CUkernel;
typedef struct ons__CUfunction* CUfunction;
typedef struct ons__CUstream* CUstream;
typedef struct ons__CUevent* CUevent;
typedef struct ons__CUgraph* CUgraph;
typedef struct ons__CUgraphNode* CUgraphNode;
typedef struct ons__CUgraphExec* CUgraphExec;
typedef struct ons__CUuserObject* CUuserObject;
typedef struct ons__CUgraphEdgeData CUgraphEdgeData; /* only pointers to it */
typedef void (*CUhostFn)(void* user_data);
typedef size_t (*CUoccupancyB2DSize)(int block_threads);

#define ONS_CU_ENUM(name, value) name = value,
typedef enum CUresult { ONS_CU_RESULT_MAP(ONS_CU_ENUM) } CUresult;
typedef enum CUdevice_attribute {
  ONS_CU_DEVICE_ATTRIBUTE_MAP(ONS_CU_ENUM)
} CUdevice_attribute;
typedef enum CUfunction_attribute {
  ONS_CU_FUNCTION_ATTRIBUTE_MAP(ONS_CU_ENUM)
} CUfunction_attribute;
enum { ONS_CU_OTHER_MAP(ONS_CU_ENUM) };
#undef ONS_CU_ENUM

/* These enumerations have the driver's type, of which only the size matters. */
typedef unsigned int CUpointer_attribute;
typedef unsigned int CUstreamCaptureStatus;
typedef unsigned int CUstreamCaptureMode;
typedef unsigned int CUjit_option;
typedef unsigned int CUlibraryOption;
typedef unsigned int CUdriverProcAddressQueryResult;
typedef unsigned int CUlaunchAttributeID;

/* Of its members those that are used. */
typedef union CUlaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned int x;
    unsigned int y;
    unsigned int z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
  int priority;
  unsigned int sharedMemCarveout;
} CUlaunchAttributeValue;

typedef struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[8 - sizeof(CUlaunchAttributeID)];
  CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef unsigned int CUtensorMapDataType;
typedef unsigned int CUtensorMapInterleave;
typedef unsigned int CUtensorMapSwizzle;
typedef unsigned int CUtensorMapL2promotion;
typedef unsigned int CUtensorMapFloatOOBfill;

typedef struct CUtensorMap {
  _Alignas(128) uint64_t opaque[16];
} CUtensorMap;

typedef struct CUlaunchConfig {
  unsigned int gridDimX;
  unsigned int gridDimY;
  unsigned int gridDimZ;
  unsigned int blockDimX;
  unsigned int blockDimY;
  unsigned int blockDimZ;
  unsigned int sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned int numAttrs;
} CUlaunchConfig;

/* As of CUDA 12.0; the vendor's suffix for it is _v2. */
typedef struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction func;
  unsigned int gridDimX;
  unsigned int gridDimY;
  unsigned int gridDimZ;
  unsigned int blockDimX;
  unsigned int blockDimY;
  unsigned int blockDimZ;
  unsigned int sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern; /* these two where func is NULL */
  CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

#endif /* ONS_RUNTIME_BACKENDS_CUDA_CUDA_TYPES_H_ */
