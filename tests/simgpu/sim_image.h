/* Reads from a cubin or PTX what the driver would know of its kernels. */
#ifndef ONS_TESTS_SIMGPU_SIM_IMAGE_H_
#define ONS_TESTS_SIMGPU_SIM_IMAGE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/simgpu/sim_record.h"

typedef struct sim_kernel_info {
  uint32_t parameter_count;
  uint32_t offsets[SIM_MAX_PARAMETERS];
  uint32_t sizes[SIM_MAX_PARAMETERS];
  uint32_t static_shared_bytes;
} sim_kernel_info;

/* 0 when it is neither a cubin nor PTX. */
size_t sim_image_size(const void* code);
/* A variable: its bytes, NULL for zeros, and how many; false where there is none. */
bool sim_image_find_variable(const void* code, const char* name, const void** out_bytes,
                             size_t* out_size_bytes);
bool sim_image_find_kernel(const void* code, const char* name, sim_kernel_info* out_info);

#endif /* ONS_TESTS_SIMGPU_SIM_IMAGE_H_ */
