/* Modules: CUDA C++ source, compiled for a device at the first need. */
#ifndef ONSTREAM_MODULE_H_
#define ONSTREAM_MODULE_H_

#include <onstream/dlpack.h>
#include <onstream/export.h>
#include <onstream/runtime.h>
#include <onstream/status.h>
#include <stddef.h>
#include <stdint.h>

ONS_BEGIN_DECLS

typedef struct ons_module ons_module;
typedef struct ons_kernel ons_kernel;

/* A header given in memory: `#include <name>` or "name" finds it before any file. */
typedef struct ons_header {
  const char* name;
  const char* content;
} ons_header;

/* All pointers are borrowed for the call and copied. */
typedef struct ons_module_options {
  uint32_t struct_size; /* sizeof(ons_module_options) */
  uint32_t reserved;    /* 0 */
  const char* name;     /* the file name shown in diagnostics; NULL: "kernel.cu" */
  const char* const*
      options; /* spelt as for NVRTC. -DNAME[=VALUE], -UNAME, -IDIR, -include FILE and
                  -std=c++NN mean the same to every backend. On the CPU what only means
                  something to a device is left out, and every other option goes to the
                  host's C++ compiler as it is; a compiler that rejects an option has it
                  named in the error */
  size_t option_count;
  const ons_header* headers;
  size_t header_count;
} ons_module_options;

#define ONS_MODULE_OPTIONS_INIT \
  { sizeof(ons_module_options), 0, 0, 0, 0, 0, 0 }

/* Creates a module from NUL-terminated CUDA C++ source. Nothing is compiled yet and no
 * driver is touched. `<onstream/kernel.h>` is included ahead of the source, without
 * shifting its line numbers. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
ONS_API ONS_NODISCARD ons_status ons_module_create(ons_runtime* runtime,
                                                   const char* source,
                                                   const ons_module_options* options,
                                                   ons_module** out_module,
                                                   ons_error* error);

/* The same from a file, whose path is the default name and whose folder is searched for
 * quoted includes. Errors: also NOT_FOUND, IO. */
ONS_API ONS_NODISCARD ons_status ons_module_create_from_file(
    ons_runtime* runtime, const char* path, const ons_module_options* options,
    ons_module** out_module, ons_error* error);

/* Reference counting; any thread; NULL is accepted. A kernel keeps its module alive. Code
 * loaded on a GPU stays loaded for the life of the process (some kilobytes a kernel),
 * because a graph that captured a launch may be replayed at any time. */
ONS_API void ons_module_retain(ons_module* module);
ONS_API void ons_module_release(ons_module* module);

/* Compiles and loads every kernel that was found in the source, for one device. Compiles
 * once per architecture, however many threads ask at once. May take seconds; may allocate
 * device memory; legal while any stream is being captured. |out_log| (may be NULL)
 * receives the compiler's log or NULL, on success too; the caller releases it. Errors:
 * COMPILE_FAILED, UNAVAILABLE, UNSUPPORTED, DEVICE, OUT_OF_MEMORY, IO. */
ONS_API ONS_NODISCARD ons_status ons_module_prepare(ons_module* module, DLDevice device,
                                                    ons_blob** out_log, ons_error* error);

/* The kernel names found in the source, without compiling: `index` from 0; NULL past the
 * end. Templates are listed by their bare name. Borrowed; valid as long as the module. */
ONS_API const char* ons_module_kernel_name(const ons_module* module, size_t index);

/* Gets a kernel by its C++ name expression: "axpy", "ns::axpy", "scale<float, 4>". The
 * caller owns |out_kernel|. Nothing is compiled yet. A name that occurs nowhere in the
 * source is refused at once; others are decided by the compiler when the kernel is
 * prepared. Errors: NOT_FOUND (lists the kernels there are), INVALID_ARGUMENT,
 * OUT_OF_MEMORY. */
ONS_API ONS_NODISCARD ons_status ons_module_kernel(ons_module* module, const char* name,
                                                   ons_kernel** out_kernel,
                                                   ons_error* error);

ONS_END_DECLS

#endif /* ONSTREAM_MODULE_H_ */
