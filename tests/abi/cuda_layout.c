#include "tests/abi/cuda_layout.h"

#include "runtime/backends/cuda/cuda_types.h"

const cuda_layout cuda_our_layouts[] = CUDA_LAYOUTS;
const size_t cuda_our_layout_count =
    sizeof(cuda_our_layouts) / sizeof(cuda_our_layouts[0]);
