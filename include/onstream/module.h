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

typedef enum ons_module_flags {
  /* For finding errors, at a cost for each launch: indices of ons::view and ons::ptrs are
     checked in the kernel (ONS_CHECK is defined), and arguments that certainly share
     memory are refused where one is declared __restrict__ and one is written. */
  ONS_MODULE_CHECK = 1u << 0,
  /* The compiler runs in a process of its own, also where it is a library (NVRTC): one
     that crashes is an error, COMPILE_FAILED, and nothing else. Needs the program
     onstream-compile, which is installed with the library (ONSTREAM_COMPILE_PROGRAM). A
     host's compiler always does. */
  ONS_MODULE_ISOLATE = 1u << 1
} ons_module_flags;

/* All pointers are borrowed for the call and copied. */
typedef struct ons_module_options {
  uint32_t struct_size; /* sizeof(ons_module_options) */
  uint32_t flags;       /* ons_module_flags */
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
  uint32_t timeout_ms; /* a compile that takes longer is ended: COMPILE_FAILED. Isolates
                          it. 0: none */
  uint32_t reserved;   /* 0 */
} ons_module_options;

#define ONS_MODULE_OPTIONS_INIT \
  { sizeof(ons_module_options), 0, 0, 0, 0, 0, 0, 0, 0 }

/* Creates a module from NUL-terminated CUDA C++ source. Nothing is compiled yet and no
 * driver is touched. Where there is a module of the same text and options in the runtime,
 * that one is returned, unless the source has variables of its own or includes files of
 * the user's; a few stay for that when nobody holds them any more. `<onstream/kernel.h>`
 * is included ahead of the source, without shifting its line numbers. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
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

/* The source; also that which came from a file. Borrowed; valid as long as the module. */
ONS_API const char* ons_module_source(const ons_module* module);

/* The kernel names found in the source, without compiling: `index` from 0; NULL past the
 * end. Templates are listed by their bare name. Borrowed; valid as long as the module. */
ONS_API const char* ons_module_kernel_name(const ons_module* module, size_t index);

/* ---- variables --------------------------------------------------------------------- */

typedef struct ons_tensor ons_tensor; /* of <onstream/tensor.h> */

/* A __device__ or __constant__ variable of the source ("table", "ns::table") as a tensor
 * on `stream`, its home stream (a native handle; on the CPU it is not looked at).
 * Compiles and loads where needed, as ons_module_prepare does. The caller owns
 * |out_tensor|, which keeps the code on the CPU loaded; on a GPU that stays anyway.
 *
 * The shape is that of the variable's array type; vectors like float4 have a dimension of
 * their own, pointers are uint64, and other classes are bytes in a last dimension.
 * __constant__ and const variables are read-only for kernels. A kernel that uses the
 * variable by its name is not seen to do so: launch it on the home stream, or order it.
 *
 * Each device has a variable of its own, and so has each template instance (they are
 * compiled one by one): this one is what kernels that are no templates use. Errors: as
 * ons_module_prepare; NOT_FOUND (lists the variables there are). */
ONS_API ONS_NODISCARD ons_status ons_module_global(ons_module* module, DLDevice device,
                                                   const char* name, void* stream,
                                                   ons_tensor** out_tensor,
                                                   ons_error* error);

/* Fills the variable with `size_bytes` from host memory, as many as it has: the way to
 * set a __constant__ one. The copy comes after what `stream` holds; the bytes may be
 * reused on return. May block. Errors: as ons_module_global; ARGUMENT_VALUE for another
 * size, CAPTURE with nothing touched. */
ONS_API ONS_NODISCARD ons_status ons_module_set_global(ons_module* module,
                                                       DLDevice device, const char* name,
                                                       void* stream, const void* bytes,
                                                       size_t size_bytes,
                                                       ons_error* error);

/* The names of the variables found in the source: `index` from 0; NULL past the end.
 * Borrowed; valid as long as the module. */
ONS_API const char* ons_module_global_name(const ons_module* module, size_t index);

/* ---- templates --------------------------------------------------------------------- */

/* What the arguments of a call tell of a template's parameters, as the source declares
 * them: for choosing the instance to launch. `const T*` and ons::view<T, N, Index> are
 * looked into, ons::ptrs<T, N> as well. */
typedef enum ons_deduction_kind {
  ONS_DEDUCTION_DTYPE = 1, /* a type: that of the tensor's elements */
  ONS_DEDUCTION_RANK = 2,  /* an integer: its number of dimensions */
  ONS_DEDUCTION_INDEX = 3, /* a type: int where all its offsets fit, else long long */
  ONS_DEDUCTION_COUNT = 4  /* an integer: how many tensors the list has */
} ons_deduction_kind;

typedef struct ons_template_parameter {
  uint32_t struct_size; /* sizeof(ons_template_parameter), set by the caller */
  uint32_t is_type;     /* declared typename or class; else a value */
  uint32_t has_default;
  const char* name; /* NULL where it has none, or is a pack; borrowed from the module */
} ons_template_parameter;

typedef struct ons_deduction {
  uint32_t struct_size; /* sizeof(ons_deduction), set by the caller */
  ons_deduction_kind kind;
  uint32_t template_parameter; /* from 0 */
  uint32_t argument;           /* from 0 */
} ons_deduction;

/* Of the template kernel `name`, "scale": its `index`-th parameter or deduction. 0 past
 * the end, for unknown and for overloaded kernels, else 1. */
ONS_API int ons_module_template_parameter(const ons_module* module, const char* name,
                                          size_t index,
                                          ons_template_parameter* out_parameter);
ONS_API int ons_module_template_deduction(const ons_module* module, const char* name,
                                          size_t index, ons_deduction* out_deduction);

/* The name of a kernel's parameter, as spelt in the source. NULL past the end, and where
 * it has none. Borrowed; valid as long as the module. */
ONS_API const char* ons_module_parameter_name(const ons_module* module, const char* name,
                                              size_t index);

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
