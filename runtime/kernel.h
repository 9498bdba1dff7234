/* The kernel object: a name in a module, and what it is bound to on each device. */
#ifndef ONS_RUNTIME_KERNEL_H_
#define ONS_RUNTIME_KERNEL_H_

#include <onstream/launch.h>
#include <stdatomic.h>

#include "jit/source_scan.h"
#include "runtime/bind.h"
#include "runtime/program.h"
#include "runtime/signature.h"

/* A kernel on one device. Immutable once published; lives as long as the kernel. What a
 * launch reads comes first and is copied here from wherever it belongs. */
typedef struct ons__bound {
  ons__plan* plan;
  ons__device* device;
  ons__launch_fn* launch;
  ons__device_entry* entry;
  ons__function function;
  ons__device_limits limits; /* the lesser of the device's and the function's */
  ons__capture_state_fn* capture_state; /* NULL on devices without streams */
  const ons__backend_ops* ops;
  ons__launch_fn* launch_with_attributes; /* NULL where the device has none */
  ons__signature* signature;
  char* text;                      /* the signature for people */
  const ons__image* image;         /* of the program that the module keeps */
  ons__loaded* loaded;             /* retained */
  atomic_uint_fast64_t block_size; /* chosen last: shared bytes << 32 | threads */
} ons__bound;

struct ons_kernel {
  /* What a launch reads. The first pointer or view: the tensor given for it says where
     most launches go. Past the end where there is none, or nothing is bound yet. */
  atomic_uint guide;
  _Atomic(ons__bound*) bound[ONS__SLOT_COUNT];

  atomic_size_t reference_count;
  ons_module* module; /* retained */
  char* name;
  const ons__scanned_kernel*
      scanned;         /* borrowed from the module; NULL if the scan missed it */
  ons__long_lock lock; /* guards binding */
  _Atomic(ons__bound*) first_bound; /* what introspection answers from */
};

/* NULL when out of memory. */
ons_kernel* ons__kernel_create(ons_module* module, const char* name,
                               const ons__scanned_kernel* scanned);

/* What the kernel is bound to there; NULL until it has been prepared. Borrowed. */
static inline ons__bound* ons__kernel_bound(const ons_kernel* kernel, int slot) {
  return atomic_load_explicit(&kernel->bound[slot], memory_order_acquire);
}

/* Compiles, loads and binds for the device of `slot`. |out_bound| is borrowed. */
ons_status ons__kernel_bind(ons_kernel* kernel, DLDevice device, int slot,
                            ons__bound** out_bound, ons_blob** out_log, ons_error* error);

/* Compiles only. */
ons_status ons__kernel_compile(ons_kernel* kernel, DLDevice device, ons_blob** out_log,
                               ons_error* error);

/* As ons__kernel_bind, for a device that a caller names. */
ons_status ons__kernel_prepare(ons_kernel* kernel, DLDevice device,
                               ons__bound** out_bound, ons_blob** out_log,
                               ons_error* error);

/* The source's name of a parameter, or NULL. */
const char* ons__kernel_parameter_name(const ons_kernel* kernel, size_t index,
                                       size_t count);

#endif /* ONS_RUNTIME_KERNEL_H_ */
