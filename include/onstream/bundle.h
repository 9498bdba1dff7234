/* Bundles: kernels compiled ahead of time, for several architectures, in one piece of
 * memory or one file. A program that loads one needs no compiler.
 *
 * What is in it is described in docs/bundles.md. */
#ifndef ONSTREAM_BUNDLE_H_
#define ONSTREAM_BUNDLE_H_

#include <onstream/export.h>
#include <onstream/module.h>
#include <onstream/runtime.h>
#include <onstream/status.h>
#include <stddef.h>
#include <stdint.h>

ONS_BEGIN_DECLS

typedef enum ons_bundle_flags {
  /* The source is put in: an architecture that is not there is compiled, where there is a
     compiler, and so are further instances of templates. */
  ONS_BUNDLE_SOURCE = 1u << 0
} ons_bundle_flags;

/* All pointers are borrowed for the call. */
typedef struct ons_bundle_options {
  uint32_t struct_size; /* sizeof(ons_bundle_options) */
  uint32_t flags;       /* ons_bundle_flags */
  /* "sm_80": machine code for GPUs of compute capability 8.0 and later 8.x; "compute_80":
     PTX, which the driver compiles for those and all later ones; "x86-64", "x86-64-v2",
     "x86-64-v3", "x86-64-v4", "aarch64": for CPUs of that level, built by a compiler on
     such a machine. At least one. */
  const char* const* architectures;
  size_t architecture_count;
  /* Instances of templates and overloads, "scale<float, 4>", on top of the kernels that
     are named plainly, which are always there. */
  const char* const* kernels;
  size_t kernel_count;
} ons_bundle_options;

#define ONS_BUNDLE_OPTIONS_INIT \
  { sizeof(ons_bundle_options), 0, 0, 0, 0, 0 }

/* Compiles a module for the architectures. No device is needed. May take seconds. The
 * caller releases |out_bundle|, and |out_log| (may be NULL), which holds what the
 * compilers wrote, on failure too. Any thread. Errors: INVALID_ARGUMENT, UNAVAILABLE (no
 * compiler), UNSUPPORTED for an architecture that is unknown, here or to the compiler;
 * COMPILE_FAILED, NOT_FOUND for a kernel that is not in the source, OUT_OF_MEMORY, IO. */
ONS_API ONS_NODISCARD ons_status ons_module_bundle(ons_module* module,
                                                   const ons_bundle_options* options,
                                                   ons_blob** out_bundle,
                                                   ons_blob** out_log, ons_error* error);

/* A module of a bundle's kernels; `bytes` are copied. They are launched, prepared and
 * introspected as those of a source, and take the best code for the device: of a GPU's
 * own capability before an earlier one of the same major number before PTX, of a CPU the
 * highest level that it has. Nothing is loaded yet. UNSUPPORTED, when a kernel is
 * prepared, says what the bundle has where nothing fits. Errors: INVALID_ARGUMENT for
 * what is no bundle, is damaged, or is of another version; OUT_OF_MEMORY.
 *
 * The digest in a bundle shows damage, not who made it: code is run from it. */
ONS_API ONS_NODISCARD ons_status ons_module_create_from_bundle(ons_runtime* runtime,
                                                               const void* bytes,
                                                               size_t size_bytes,
                                                               ons_module** out_module,
                                                               ons_error* error);

/* The same from a file. Errors: also NOT_FOUND, IO. */
ONS_API ONS_NODISCARD ons_status ons_module_create_from_bundle_file(
    ons_runtime* runtime, const char* path, ons_module** out_module, ons_error* error);

ONS_END_DECLS

#endif /* ONSTREAM_BUNDLE_H_ */
