/* The driver functions that the stand-in exports. */
#ifndef ONS_TESTS_SIMGPU_SIM_DRIVER_H_
#define ONS_TESTS_SIMGPU_SIM_DRIVER_H_

#include "tests/simgpu/sim_record.h"
#include "tests/simgpu/sim_types.h"

#define ONS_CUDA_SYMBOL(kind, symbol, name, abi_version, parameters) \
  SIM_API CUresult symbol parameters;
#include "runtime/backends/cuda/cuda_symbols.inc"
#include "tests/simgpu/sim_symbols.inc"
#undef ONS_CUDA_SYMBOL
SIM_API CUresult cuGetProcAddress_v2(const char* name, void** out_function, int version,
                                     uint64_t flags, unsigned int* out_found);

#endif /* ONS_TESTS_SIMGPU_SIM_DRIVER_H_ */
