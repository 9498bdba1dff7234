// __half for host compilers, under the name that CUDA sources include.
#ifndef ONSTREAM_CPU_CUDA_FP16_H_
#define ONSTREAM_CPU_CUDA_FP16_H_

#include <onstream/cpu_small_float.h>

ONS_CPU_SMALL_FLOAT(__half, 5, 10)
ONS_CPU_SMALL_CONVERSIONS(__half, half)

typedef __half half;
typedef __half __nv_half;
typedef __half nv_half;
typedef __half2 half2;
typedef __half2 __nv_half2;
typedef __half2 nv_half2;
typedef __half_raw __nv_half_raw;
typedef __half_raw nv_half_raw;
typedef __half2_raw __nv_half2_raw;
typedef __half2_raw nv_half2_raw;

inline __half2 make_half2(__half a, __half b) { return {a, b}; }

#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7C00U)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7FFFU)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001U)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7BFFU)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000U)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000U)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3C00U)

#endif  // ONSTREAM_CPU_CUDA_FP16_H_
