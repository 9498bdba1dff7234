/* Our declarations of the CUDA driver and of NVRTC against the vendor's headers, where
 * they are installed. Prototypes and values are compared by the compiler, so building
 * this is the test. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "runtime/backends/cuda/cuda_values.h"
#include "tests/abi/cuda_layout.h"

#if defined(__has_include)
#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#if CUDA_VERSION >= 12040
#include <cudaTypedefs.h>
#define HAVE_CUDA 1
#endif
#endif
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#define HAVE_NVRTC 1
#endif
#endif

#ifdef HAVE_CUDA
/* The vendor has a type for each ABI of each function, named by the version that
 * cuGetProcAddress is asked for. */
#define ONS_CUDA_SYMBOL(kind, symbol, name, version, parameters)                     \
  _Static_assert(                                                                    \
      __builtin_types_compatible_p(PFN_##name##_v##version, CUresult(*) parameters), \
      #symbol);
#include "runtime/backends/cuda/cuda_symbols.inc"
#undef ONS_CUDA_SYMBOL

#define CHECK_VALUE(name, value) _Static_assert((int)name == (value), #name);
ONS_CU_RESULT_MAP(CHECK_VALUE)
ONS_CU_DEVICE_ATTRIBUTE_MAP(CHECK_VALUE)
ONS_CU_FUNCTION_ATTRIBUTE_MAP(CHECK_VALUE)
ONS_CU_OTHER_MAP(CHECK_VALUE)

static const cuda_layout vendor_layouts[] = CUDA_LAYOUTS;
#endif

#ifdef HAVE_NVRTC
#define ONS_NVRTC_SYMBOL(type, name, parameters)                                      \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), type(*) parameters), \
                 #name);
#include "jit/nvrtc_symbols.inc"
#undef ONS_NVRTC_SYMBOL
_Static_assert(NVRTC_SUCCESS == 0 && NVRTC_ERROR_OUT_OF_MEMORY == 1 &&
                   NVRTC_ERROR_INVALID_OPTION == 5 && NVRTC_ERROR_COMPILATION == 6,
               "nvrtcResult");
#endif

Test(abi, cuda_driver) {
#ifdef HAVE_CUDA
  cr_assert_eq(cuda_our_layout_count, sizeof(vendor_layouts) / sizeof(vendor_layouts[0]));
  for (size_t i = 0; i < cuda_our_layout_count; ++i) {
    cr_expect_eq(cuda_our_layouts[i].offset_bytes, vendor_layouts[i].offset_bytes, "%s",
                 vendor_layouts[i].name);
    cr_expect_eq(cuda_our_layouts[i].size_bytes, vendor_layouts[i].size_bytes, "%s",
                 vendor_layouts[i].name);
  }
#else
  cr_skip_test("<cuda.h> of CUDA 12.4 or newer is not installed");
#endif
}

Test(abi, nvrtc) {
#ifdef HAVE_NVRTC
  cr_expect_eq(sizeof(nvrtcResult), sizeof(int));
#else
  cr_skip_test("<nvrtc.h> is not installed");
#endif
}
