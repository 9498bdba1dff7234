/* Architectures by name, and which one's code runs where. */
#ifndef ONS_JIT_ARCHITECTURE_H_
#define ONS_JIT_ARCHITECTURE_H_

typedef enum ons__arch_family {
  ONS__ARCH_UNKNOWN = 0,
  ONS__ARCH_CUDA = 1, /* "sm_90a", "compute_80" */
  ONS__ARCH_CPU = 2   /* "x86-64-v3", "aarch64" */
} ons__arch_family;

ons__arch_family ons__arch_family_of(const char* arch);

/* The -march= of a CPU level; NULL where this machine's compilers do not make it. */
const char* ons__arch_march(const char* arch);

/* How well code for `arch` suits a device of `device_arch` ("sm_90"; "native" is this
 * CPU): the more, the better; 0: it does not run there. */
int ons__arch_suits(const char* arch, const char* device_arch);

#endif /* ONS_JIT_ARCHITECTURE_H_ */
