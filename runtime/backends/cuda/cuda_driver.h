/* The CUDA driver: found, resolved and initialised at the first need. */
#ifndef ONS_RUNTIME_BACKENDS_CUDA_CUDA_DRIVER_H_
#define ONS_RUNTIME_BACKENDS_CUDA_CUDA_DRIVER_H_

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/backend.h"
#include "runtime/backends/cuda/cuda_types.h"

typedef struct ons__cuda_driver {
  int version;             /* 13000 for CUDA 13.0 */
  unsigned int fork_count; /* of the process, when the driver was initialised */
#define ONS_CUDA_SYMBOL(kind, symbol, name, version, parameters) \
  CUresult(*symbol) parameters;
#include "runtime/backends/cuda/cuda_symbols.inc"
#undef ONS_CUDA_SYMBOL
} ons__cuda_driver;

/* Loads the library, resolves the list, calls cuInit. UNAVAILABLE says what was tried or
 * why the driver refuses. */
ons_status ons__cuda_driver_load(const ons__settings* settings,
                                 ons__cuda_driver* out_driver, ons_error* error);

/* How often this process's line has been forked since the first driver was loaded. */
extern atomic_uint ons__cuda_fork_count;

/* Is this a child of the process that initialised the driver? Its contexts are of no use
 * here, and the driver must not be called. */
static inline bool ons__cuda_driver_lost(const ons__cuda_driver* driver) {
  return atomic_load_explicit(&ons__cuda_fork_count, memory_order_relaxed) !=
         driver->fork_count;
}
ons_status ons__cuda_error_lost(ons_error* error);

/* A failed call: fills native_call and native_code; the message is "CALL failed: NAME
 * (code): text". OUT_OF_MEMORY, UNAVAILABLE (no device), else DEVICE. */
ons_status ons__cuda_error(const ons__cuda_driver* driver, const char* call,
                           CUresult result, ons_error* error);
ons_status ons__cuda_error_as(const ons__cuda_driver* driver, ons_status status,
                              const char* call, CUresult result, ons_error* error);

#endif /* ONS_RUNTIME_BACKENDS_CUDA_CUDA_DRIVER_H_ */
