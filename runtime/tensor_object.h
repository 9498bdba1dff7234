/* What an ons_tensor is, for the files that make, release, export and copy it. */
#ifndef ONS_RUNTIME_TENSOR_OBJECT_H_
#define ONS_RUNTIME_TENSOR_OBJECT_H_

#include <onstream/tensor.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/base/steps.h"
#include "runtime/runtime.h"

struct ons_tensor {
  atomic_size_t reference_count;
  ons_runtime* runtime;                /* retained up to the last release */
  ons__device_entry* entry;            /* NULL: host memory */
  DLManagedTensorVersioned* versioned; /* one of these two */
  DLManagedTensor* legacy;
  /* As the one that came in; with strides, and without an offset, for those who do not
     look for it. */
  DLTensor dltensor;
  _Atomic(void*) stream;    /* the home stream: ons__tensor_home() */
  _Atomic(uint64_t) thread; /* that made it the home stream */
  void* producer_stream;    /* with ONS_TENSOR_PRODUCER_STREAM */
  uint64_t capture_id;      /* that the tensor was made in; 0: none */
  uint32_t flags;
  int64_t strides[]; /* where none came in */
};

/* Unlike the system's, never given to another thread. */
uint64_t ons__thread_number(void);

/* A stream by a name that is good in this thread. The per-thread default stream of
 * another thread has none; the legacy default stream, which waits for it and makes it
 * wait, stands for it. */
static inline void* ons__stream_here(void* stream, uint64_t thread) {
  enum { PER_THREAD = 2 };
  bool is_here = (uintptr_t)stream != PER_THREAD || thread == ons__thread_number() ||
                 !ONS__DOES(TENSOR_THREAD);
  return is_here ? stream : NULL;
}

static inline void* ons__tensor_home(const ons_tensor* tensor) {
  void* stream = atomic_load_explicit(&tensor->stream, memory_order_acquire);
  return ons__stream_here(stream,
                          atomic_load_explicit(&tensor->thread, memory_order_relaxed));
}

/* CAPTURE, with nothing touched, where the host or an event cannot stand behind the home
 * stream. */
ons_status ons__tensor_check_eager(const ons_tensor* tensor, void* home,
                                   ons_error* error);

#endif /* ONS_RUNTIME_TENSOR_OBJECT_H_ */
