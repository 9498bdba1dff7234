/* Source to image: what a compile service is asked for and what it returns.
 *
 * The services (nvrtc.c, host_compiler.c) know nothing of devices or launches. */
#ifndef ONS_JIT_COMPILE_H_
#define ONS_JIT_COMPILE_H_

#include <onstream/module.h>
#include <onstream/runtime.h>
#include <onstream/status.h>
#include <stdbool.h>
#include <stddef.h>

/* One kernel to be found in the source, by C++ name expression. */
typedef struct ons__kernel_name {
  const char* name;
  bool required;    /* false: found by a scan; dropped when it spoils the compile (an
                       overload, a template, a name in a branch that is compiled out). true:
                       asked for by the user; ONS_STATUS_NOT_FOUND when the compiler does not
                       know it */
  bool is_variable; /* in device memory, instead of a kernel */
} ons__kernel_name;

typedef struct ons__compile_request {
  const ons_allocator* allocator;
  const char* source; /* the user's, NUL-terminated, without the kernel header */
  const char* name;   /* file name for diagnostics */
  const char* folder; /* of the source file, searched for quoted includes; NULL: none */
  const char* const* options;
  size_t option_count;
  const ons_header* headers;
  size_t header_count;
  const ons__kernel_name* kernels;
  size_t kernel_count;
  const char* arch; /* "sm_90", "compute_80", "native", "x86-64-v3" */
  bool is_exact;    /* code for it is wanted, not for an older one that runs there too */
  bool is_isolated; /* in a process of its own, where the compiler is a library */
  uint32_t timeout_ms; /* the compiler is ended after that; 0: never */
  bool is_checked;     /* ONS_CHECK is defined ahead of everything */
  struct ons__inputs*
      inputs; /* gets the files that the compile reads; NULL: not wanted */
} ons__compile_request;

typedef enum ons__image_kind {
  ONS__IMAGE_CUBIN = 1,
  ONS__IMAGE_PTX = 2,
  ONS__IMAGE_SHARED_OBJECT = 3
} ons__image_kind;

typedef struct ons__image_kernel {
  char* name;      /* as requested */
  char* lowered;   /* symbol of the kernel (of its runner, in a shared object) */
  char* signature; /* for ons__signature_parse: the whole symbol of ons_sig<type>, uncut,
                      or typeid's bare "FvfPKfPflE"; of a variable that of a function
                      which takes its address */
} ons__image_kernel;

/* Compiled code. Owned by whoever compiled or loaded it; immutable after that. */
typedef struct ons__image {
  const ons_allocator* allocator;
  ons__image_kind kind;
  char* code;
  size_t code_bytes;
  ons__image_kernel* kernels;
  size_t kernel_count;               /* dropped names are not in it */
  char* log;                         /* never NULL after a compile */
  struct ons__shared_object* object; /* a SHARED_OBJECT that is loaded; else NULL */
} ons__image;

/* NULL is accepted; works on a half-built image. */
void ons__image_destroy(ons__image* image);

/* NULL when there is none. */
const ons__image_kernel* ons__image_find(const ons__image* image, const char* name);

#endif /* ONS_JIT_COMPILE_H_ */
