/* The device headers as text, generated from jit/device at build time. */
#ifndef ONS_JIT_EMBEDDED_H_
#define ONS_JIT_EMBEDDED_H_

/* NUL-terminated. */
extern const char ons__text_kernel_h[];
extern const char ons__text_cpu_h[];
extern const char ons__text_cpu_abi_h[];
extern const char ons__text_cpu_functions_h[];
extern const char ons__text_cpu_small_float_h[];
extern const char ons__text_cuda_fp16_h[];
extern const char ons__text_cuda_bf16_h[];
extern const char ons__text_cuda_fp8_h[];

#endif /* ONS_JIT_EMBEDDED_H_ */
