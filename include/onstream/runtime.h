/* The runtime: where libraries are found, which devices exist, who allocates host memory.
 *
 * Everything hangs off an ons_runtime; creating one loads no driver, starts no thread,
 * opens no file. Several runtimes may exist side by side. */
#ifndef ONSTREAM_RUNTIME_H_
#define ONSTREAM_RUNTIME_H_

#include <onstream/dlpack.h>
#include <onstream/export.h>
#include <onstream/status.h>
#include <stddef.h>
#include <stdint.h>

ONS_BEGIN_DECLS

typedef struct ons_runtime ons_runtime;

/* Immutable bytes made by the library and owned by the caller: a compile log. Any thread.
 */
typedef struct ons_blob ons_blob;
ONS_API const void* ons_blob_data(
    const ons_blob* blob); /* NUL-terminated after the last byte */
ONS_API size_t ons_blob_size_bytes(const ons_blob* blob);
ONS_API void ons_blob_release(ons_blob* blob); /* NULL is accepted */

/* Host memory for the library's own objects. Both functions must be thread-safe;
 * `allocate` returns memory aligned for any standard type, or NULL; `free` accepts NULL.
 */
typedef struct ons_allocator {
  void* user_data;
  void* (*allocate)(void* user_data, size_t size_bytes);
  void (*free)(void* user_data, void* pointer);
} ons_allocator;

/* What ons_locate_fn is asked for. */
typedef enum ons_locate_what {
  ONS_LOCATE_NVRTC = 1, /* the file of the NVRTC library */
  ONS_LOCATE_CUDA_INCLUDE =
      2, /* the folders of CUDA's device headers, ':' between them */
  ONS_LOCATE_HOST_COMPILER =
      3 /* the command of a C++ compiler; words separated by '\n' */
} ons_locate_what;

/* A host's own way to find things (a package manager, say), asked at the first need,
 * before the usual places and after explicit options and the environment. Writes a
 * NUL-terminated path and returns 1, or returns 0 where it knows none. Called while a
 * kernel is being prepared: it must not use that module, and where it takes a lock of the
 * host's (Python's, say), no thread may hold that lock while it prepares a kernel. */
typedef int (*ons_locate_fn)(void* user_data, ons_locate_what what, char* out_path,
                             size_t capacity_bytes);

/* Should a long call end? Other than 0: yes, and it returns INTERRUPTED. Asked some 20
 * times a second by the thread that called, during launches on the CPU and while a
 * compiler runs. It must not use the runtime. */
typedef int (*ons_interrupt_fn)(void* user_data);

/* All pointers are borrowed for the call of ons_runtime_create and copied, except that
 * the callbacks with their user_data must stay valid until the runtime is gone. */
typedef struct ons_runtime_options {
  uint32_t struct_size;      /* sizeof(ons_runtime_options) */
  uint32_t cpu_thread_count; /* threads of a CPU launch; 0: ONSTREAM_CPU_THREADS, else the
                                processors this process may use */
  const ons_allocator* allocator; /* NULL: malloc and free */
  ons_locate_fn locate;           /* NULL: none */
  void* locate_user_data;
  const char* cuda_driver_path; /* libcuda; NULL: ONSTREAM_CUDA_DRIVER, then the loaded
                                   one, then libcuda.so.1 */
  const char* nvrtc_path; /* NULL: ONSTREAM_NVRTC, then `locate`, then the toolkit, then
                             the loader's path */
  const char* cuda_include_path; /* ':'-separated; NULL: ONSTREAM_CUDA_INCLUDE, `locate`,
                                    the toolkit */
  const char*
      host_compiler_path; /* NULL: ONSTREAM_HOST_COMPILER, CXX, clang++, g++, `locate` */
  uint32_t order;         /* ons_order of launches that do not say; 0: ONS_ORDER_JOIN */
  uint32_t reserved;      /* 0 */
  ons_interrupt_fn interrupt; /* NULL: none */
  void* interrupt_user_data;
  const char* cache_path; /* the folder of compiled modules, made at the first need; "" or
                             "off": none; NULL: ONSTREAM_CACHE_DIR, else onstream in
                             XDG_CACHE_HOME or in .cache of HOME */
  uint64_t cache_limit_bytes; /* what is in it at most, about; 0: 1 GiB */
} ons_runtime_options;

#define ONS_RUNTIME_OPTIONS_INIT \
  { sizeof(ons_runtime_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Creates a runtime; `options` may be NULL. The caller owns |out_runtime| (one
 * reference). Touches no driver and cannot block. Errors: INVALID_ARGUMENT,
 * OUT_OF_MEMORY. */
ONS_API ONS_NODISCARD ons_status ons_runtime_create(const ons_runtime_options* options,
                                                    ons_runtime** out_runtime,
                                                    ons_error* error);

/* Reference counting; any thread; NULL is accepted. Modules, kernels hold a reference.
 * The last release frees what the device is past and never waits for it: while a launch
 * or a graph still uses something, the runtime stays. */
ONS_API void ons_runtime_retain(ons_runtime* runtime);
ONS_API void ons_runtime_release(ons_runtime* runtime);

/* How many devices of a type there are: kDLCPU gives 1, kDLCUDA asks the driver (and
 * loads it). Errors: UNAVAILABLE with what was tried, UNSUPPORTED for types without a
 * backend. */
ONS_API ONS_NODISCARD ons_status ons_runtime_device_count(ons_runtime* runtime,
                                                          DLDeviceType device_type,
                                                          int32_t* out_count,
                                                          ons_error* error);

/* Which device's memory `pointer` is in, where its owner does not say; `device_type` is
 * the kind of the memory. The index is -1 where the driver does not know the memory.
 * Loads the backend. Legal in capture. Errors: UNAVAILABLE, UNSUPPORTED on devices whose
 * memory is not told apart, INVALID_ARGUMENT. */
ONS_API ONS_NODISCARD ons_status ons_runtime_pointer_device(ons_runtime* runtime,
                                                            DLDeviceType device_type,
                                                            const void* pointer,
                                                            int32_t* out_index,
                                                            ons_error* error);

/* A one-line description of a device ("NVIDIA H200, sm_90" or the CPU's compiler and
 * threads), cut to `capacity_bytes`. Loads the backend. Errors: UNAVAILABLE,
 * INVALID_ARGUMENT. */
ONS_API ONS_NODISCARD ons_status ons_runtime_device_name(ons_runtime* runtime,
                                                         DLDevice device, char* out_name,
                                                         size_t capacity_bytes,
                                                         ons_error* error);

/* Where the thing is that compiles, for people: the file of NVRTC with its version,
 * CUDA's header folders, the command of the host's compiler. Loads NVRTC, or runs the
 * compiler. The caller releases |out_text|. Errors: UNAVAILABLE with what was tried,
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
ONS_API ONS_NODISCARD ons_status ons_runtime_find(ons_runtime* runtime,
                                                  ons_locate_what what,
                                                  ons_blob** out_text, ons_error* error);

/* The folder of compiled modules, which need not exist; NULL: there is no cache. Borrowed
 * from the runtime. */
ONS_API const char* ons_runtime_cache_path(const ons_runtime* runtime);

/* The ons_order (launch.h) of launches that do not say, from now on; 0 is
 * ONS_ORDER_JOIN. Any thread. Errors: INVALID_ARGUMENT. */
ONS_API ONS_NODISCARD ons_status ons_runtime_set_order(ons_runtime* runtime,
                                                       uint32_t order, ons_error* error);

/* Releases everything retained for launches that the device is past. Also done, a little
 * at a time, by later launches. Never waits; legal in capture, in any thread. Returns
 * what is still held. */
ONS_API size_t ons_runtime_collect(ons_runtime* runtime);

/* Later work on `waiting_stream` waits, on the device, for all that `signalling_stream`
 * holds now. The host does not wait. Both streams are part of one capture, or neither of
 * any. Errors: UNAVAILABLE, UNSUPPORTED on devices without streams, CAPTURE with nothing
 * touched, DEVICE. */
ONS_API ONS_NODISCARD ons_status ons_stream_wait(ons_runtime* runtime, DLDevice device,
                                                 void* waiting_stream,
                                                 void* signalling_stream,
                                                 ons_error* error);

/* Is `stream` part of a capture? |out_is_captured| is 1 also for a legacy stream that any
 * use of would break the capture of another. Disturbs nothing. Errors: UNAVAILABLE,
 * UNSUPPORTED on devices without streams, CAPTURE when its capture was broken before,
 * DEVICE. */
ONS_API ONS_NODISCARD ons_status ons_stream_is_captured(ons_runtime* runtime,
                                                        DLDevice device, void* stream,
                                                        uint32_t* out_is_captured,
                                                        ons_error* error);

ONS_END_DECLS

#endif /* ONSTREAM_RUNTIME_H_ */
