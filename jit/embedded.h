/* The device headers as text, generated from jit/device at build time. */
#ifndef ONS_JIT_EMBEDDED_H_
#define ONS_JIT_EMBEDDED_H_

/* Of all of these and of what makes compiles of them: in hexadecimal digits. */
extern const char ons__text_digest[];

/* NUL-terminated. */
extern const char ons__text_kernel_h[];
extern const char ons__text_cpu_h[];
extern const char ons__text_cpu_abi_h[];
extern const char ons__text_cpu_atomics_h[];
extern const char ons__text_cpu_functions_h[];
extern const char ons__text_cpu_integers_h[];
extern const char ons__text_cpu_rounding_h[];
extern const char ons__text_cpu_simd_h[];
extern const char ons__text_cpu_small_float_h[];
extern const char ons__text_cpu_special_h[];
extern const char ons__text_cpu_threads_h[];
extern const char ons__text_cpu_warp_h[];
extern const char ons__text_cooperative_groups_h[];
extern const char ons__text_cuComplex_h[];
extern const char ons__text_cuda_pipeline_h[];
extern const char ons__text_math_constants_h[];
extern const char ons__text_memcpy_async_h[];
extern const char ons__text_reduce_h[];
extern const char ons__text_scan_h[];
extern const char ons__text_cuda_fp16_h[];
extern const char ons__text_cuda_bf16_h[];
extern const char ons__text_cuda_fp8_h[];

#endif /* ONS_JIT_EMBEDDED_H_ */
