/* Tensors that are kept: the owner of what a DLPack producer handed over.
 *
 * Arguments of a launch are borrowed for the call. An ons_tensor keeps a producer's
 * memory beyond it, and has a home stream, the one on which onstream uses the memory:
 * later work there comes after what the producer's stream held on the way in, and the
 * producer gets its memory back after what the home stream holds when the tensor is
 * released. The host never waits.
 *
 * The home stream stands for every use. A launch on another stream takes the tensor as an
 * argument of the home stream and so is joined with it, before and after, under
 * ONS_ORDER_JOIN. Whoever uses the memory by other means, or under ONS_ORDER_TRUST, makes
 * the home stream wait for that use (ons_stream_wait) before the release.
 *
 * The home stream must exist for as long as the tensor. Where the tensor is released
 * while a capture of that stream is under way that began after the tensor was made, the
 * stream must outlive the captured graph too. */
#ifndef ONSTREAM_TENSOR_H_
#define ONSTREAM_TENSOR_H_

#include <onstream/dlpack.h>
#include <onstream/export.h>
#include <onstream/launch.h>
#include <onstream/runtime.h>
#include <onstream/status.h>
#include <stddef.h>
#include <stdint.h>

ONS_BEGIN_DECLS

typedef struct ons_tensor ons_tensor;

/* Memory on a device needs ONS_TENSOR_PRODUCER_STREAM or ONS_TENSOR_ORDERED. Host memory,
 * pinned memory too, has no stream: these three are refused for it. It is given back by
 * the last release, so that whoever passes pinned memory to a launch on a GPU keeps a
 * reference until the device is past it, in ons_launch.retained for example. */
typedef enum ons_tensor_flags {
  /* `stream` is the home stream; else it is `producer_stream`. */
  ONS_TENSOR_STREAM = 1u << 0,
  /* The producer works on the tensor on `producer_stream`. */
  ONS_TENSOR_PRODUCER_STREAM = 1u << 1,
  /* The producer has ordered the tensor onto `stream` already, as its
     __dlpack__(stream=...) does; nothing is joined on the way in. Needs
     ONS_TENSOR_STREAM. */
  ONS_TENSOR_ORDERED = 1u << 2,
  /* These two as ons_arg_flags has them. A versioned tensor's own read-only flag counts
     too. */
  ONS_TENSOR_READ_ONLY = 1u << 3,
  ONS_TENSOR_REQUIRES_GRAD = 1u << 4
} ons_tensor_flags;

typedef struct ons_tensor_options {
  uint32_t struct_size;                /* sizeof(ons_tensor_options) */
  uint32_t flags;                      /* ons_tensor_flags */
  DLManagedTensorVersioned* versioned; /* one of these two is not NULL */
  DLManagedTensor* legacy;
  void* stream; /* native handles; on CUDA 0 and 1 are the legacy stream */
  void* producer_stream;
} ons_tensor_options;

#define ONS_TENSOR_OPTIONS_INIT \
  { sizeof(ons_tensor_options), 0, 0, 0, 0, 0 }

/* Takes the managed tensor over, which is the caller's still when this fails. The home
 * stream waits for the producer's where they differ. Legal in capture: both streams must
 * be part of the same one, or neither of any. Errors: CAPTURE with nothing touched, ORDER
 * where the producer's order is not told, ARGUMENT_VALUE, UNSUPPORTED (the device;
 * another major version of DLPack, of which only the deleter may be used),
 * INVALID_ARGUMENT, UNAVAILABLE, DEVICE, OUT_OF_MEMORY. */
ONS_API ONS_NODISCARD ons_status ons_tensor_create(ons_runtime* runtime,
                                                   const ons_tensor_options* options,
                                                   ons_tensor** out_tensor,
                                                   ons_error* error);

/* Reference counting; any thread; NULL is accepted. The last release has the deleter
 * called once: for host memory at once, else when the device is past all that the home
 * stream holds now, by a later launch or ons_runtime_collect, in whichever thread calls
 * those. Under capture of the home stream the graph keeps the memory first. Never waits,
 * harms no capture. The producer's own later work is not made to wait: it must not write
 * the memory by other references. */
ONS_API void ons_tensor_retain(ons_tensor* tensor);
ONS_API void ons_tensor_release(ons_tensor* tensor);

/* An ordered release: `producer_stream`, on which the producer goes on to work, waits for
 * all that the home stream holds now. The deleter of the last reference is then called at
 * once, except where the device may reuse the memory in another order: the tensor came
 * from another stream than `producer_stream`, or the home stream is being captured. Then,
 * and when there are other references, it is a release as above. For host memory
 * `producer_stream` is not looked at. When this fails the reference is the caller's
 * still. Errors: CAPTURE with nothing touched where only one of the streams is part of a
 * capture, or they are parts of two; DEVICE, INVALID_ARGUMENT. */
ONS_API ONS_NODISCARD ons_status ons_tensor_release_to(ons_tensor* tensor,
                                                       void* producer_stream,
                                                       ons_error* error);

/* The tensor; borrowed, valid as long as `tensor`. */
ONS_API const DLTensor* ons_tensor_dltensor(const ons_tensor* tensor);

/* The tensor as an argument of launches, on its home stream. Borrowed likewise. */
ONS_API void ons_tensor_arg(const ons_tensor* tensor, ons_arg* out_arg);

ONS_END_DECLS

#endif /* ONSTREAM_TENSOR_H_ */
