/* Stands in for NVRTC: forwards to the real library and adds up the time spent in it,
 * loading included. first_launch.py builds it with REAL_NVRTC and REAL_BUILTINS.
 *
 * The functions of NVRTC that onstream uses take at most six integers or pointers and
 * return one, which 64-bit calling conventions pass alike: one shape forwards all. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

typedef intptr_t (*any_function)(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t,
                                 intptr_t);

static void* real;
static long long spent_ns;

static long long now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

__attribute__((constructor)) static void load(void) {
  const long long start = now_ns();
  real = dlopen(REAL_NVRTC, RTLD_NOW | RTLD_LOCAL);
  if (!real) abort();
  dlopen(REAL_BUILTINS, RTLD_NOW | RTLD_GLOBAL);
  spent_ns = now_ns() - start;
}

EXPORT long long bench_nvrtc_spent_ns(void);
long long bench_nvrtc_spent_ns(void) { return spent_ns; }

#define ONS_NVRTC_SYMBOL(type, name, parameters)                                   \
  EXPORT intptr_t name(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e, \
                       intptr_t f);                                                \
  intptr_t name(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e,        \
                intptr_t f) {                                                      \
    const long long start = now_ns();                                              \
    any_function function = NULL;                                                  \
    *(void**)&function = dlsym(real, #name);                                       \
    const intptr_t result = function(a, b, c, d, e, f);                            \
    spent_ns += now_ns() - start;                                                  \
    return result;                                                                 \
  }
#include "jit/nvrtc_symbols.inc"
