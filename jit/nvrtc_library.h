/* The NVRTC library itself: own declarations, the search for it and for CUDA's device
 * headers. */
#ifndef ONS_JIT_NVRTC_LIBRARY_H_
#define ONS_JIT_NVRTC_LIBRARY_H_

#include "jit/nvrtc.h"
#include "runtime/base/string.h"

typedef struct ons__nvrtc_program* nvrtcProgram;

typedef enum nvrtcResult {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_OUT_OF_MEMORY = 1,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6
} nvrtcResult;

typedef struct ons__nvrtc_library {
#define ONS_NVRTC_SYMBOL(type, name, parameters) type(*name) parameters;
#include "jit/nvrtc_symbols.inc"
#undef ONS_NVRTC_SYMBOL
  int major;
  int minor;
} ons__nvrtc_library;

/* Searches and loads. UNAVAILABLE lists what was tried. */
ons_status ons__nvrtc_library_load(const ons__nvrtc_config* config,
                                   ons__nvrtc_library* out_library, ons_error* error);

/* The library that the host names, where neither the settings nor the environment do. */
bool ons__nvrtc_locate(const ons__nvrtc_config* config, char* out_path,
                       size_t capacity_bytes);

/* Appends what tells the library that a load would find first from others. Loads nothing.
 * False where that cannot be told. */
bool ons__nvrtc_library_identify(const ons__nvrtc_config* config, ons__string* out_text);

/* Appends the folders of CUDA's headers, ':' between them; nothing where none are found.
 */
void ons__nvrtc_find_includes(const ons__nvrtc_config* config, ons__string* out_folders);

#endif /* ONS_JIT_NVRTC_LIBRARY_H_ */
