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

inline __half2 __halves2half2(__half a, __half b) { return __half2(a, b); }
inline __half2 make_half2(__half a, __half b) { return __half2(a, b); }
inline __half2 __half2half2(__half a) { return __half2(a, a); }
inline __half2 __float2half2_rn(float a) { return __half2(a, a); }
inline __half2 __floats2half2_rn(float a, float b) { return __half2(a, b); }
inline __half2 __float22half2_rn(float2 a) { return __half2(a.x, a.y); }
inline float2 __half22float2(__half2 a) { return {a.x, a.y}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline float __low2float(__half2 a) { return a.x; }
inline float __high2float(__half2 a) { return a.y; }

#endif  // ONSTREAM_CPU_CUDA_FP16_H_
