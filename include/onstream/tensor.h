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
 * The per-thread default stream (2) as home stream is that of the thread that creates the
 * tensor; other threads use the legacy default stream, which it waits for, in its place.
 *
 * Nothing here owns the home stream: it must exist for as long as the tensor. Where the
 * tensor is released while a capture of that stream is under way that began after the
 * tensor was made, the stream must outlive the captured graph too. */
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
  void* event; /* of the device's platform, or NULL: the home stream waits for it; with
                  ONS_TENSOR_ORDERED */
} ons_tensor_options;

#define ONS_TENSOR_OPTIONS_INIT \
  { sizeof(ons_tensor_options), 0, 0, 0, 0, 0, 0 }

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

/* ---- memory of onstream's own ------------------------------------------------------ */

typedef enum ons_allocation_flags {
  ONS_ALLOCATION_ZERO = 1u << 0 /* filled with zeros, in the order of `stream` */
} ons_allocation_flags;

typedef struct ons_allocation {
  uint32_t struct_size; /* sizeof(ons_allocation) */
  uint32_t flags;       /* ons_allocation_flags */
  DLDevice device;      /* kDLCUDA or kDLCPU */
  DLDataType dtype;
  int32_t ndim;
  const int64_t* shape;
  void* stream; /* the home stream; of memory on a device */
} ons_allocation;

#define ONS_ALLOCATION_INIT \
  { sizeof(ons_allocation), 0, {kDLCPU, 0}, {0, 0, 0}, 0, 0, 0 }

/* A new tensor, dense in row-major order. On a GPU it is of the driver's pool
 * (cuMemAllocAsync): it may be used in the order of the home stream, and its last release
 * gives it back in that order, at once. On the CPU it is aligned to 64 bytes, and zero. A
 * tensor of no elements has no memory. When the device has none left, what is kept for
 * launches that are over is released, and it is tried once more. Not for a home stream
 * that is being captured, as its graph could not own the memory. Errors:
 * INVALID_ARGUMENT, ARGUMENT_VALUE (a negative or overflowing shape), CAPTURE with
 * nothing touched, OUT_OF_MEMORY, UNSUPPORTED (the device; a driver before CUDA 11.2),
 * UNAVAILABLE, DEVICE. */
ONS_API ONS_NODISCARD ons_status ons_tensor_allocate(ons_runtime* runtime,
                                                     const ons_allocation* allocation,
                                                     ons_tensor** out_tensor,
                                                     ons_error* error);

/* Fills the memory of a dense tensor with zero bytes: on a device in the order of
 * `stream`, which may be part of a capture, on the host at once. Errors:
 * INVALID_ARGUMENT, ARGUMENT_VALUE (not dense), UNSUPPORTED, UNAVAILABLE, DEVICE. */
ONS_API ONS_NODISCARD ons_status ons_memory_zero(ons_runtime* runtime,
                                                 const DLTensor* tensor, void* stream,
                                                 ons_error* error);

/* ---- references ------------------------------------------------------------------- */

/* Reference counting; any thread; NULL is accepted. The last release has the deleter
 * called once: for host memory at once, else when the device is past all that the home
 * stream holds now, by a later launch or ons_runtime_collect, in whichever thread calls
 * those. Under capture of the home stream the graph keeps the memory first. Never waits,
 * harms no capture. The producer's own later work is not made to wait: it must not write
 * the memory by other references. */
ONS_API void ons_tensor_retain(ons_tensor* tensor);

/* How many references there are; others may drop theirs at any time. For the garbage
 * collector of a host's language: whoever has the only one also owns what the managed
 * tensor's deleter releases. 0 for NULL. */
ONS_API uint64_t ons_tensor_reference_count(const ons_tensor* tensor);
ONS_API void ons_tensor_release(ons_tensor* tensor);

/* An ordered release: `producer_stream`, on which the producer goes on to work, waits for
 * all that the home stream holds now. The deleter of the last reference is then called at
 * once, except where the device may reuse the memory in another order: the tensor did
 * not come from `producer_stream`, or the home stream is being captured. Then,
 * and when there are other references, it is a release as above. For host memory
 * `producer_stream` is not looked at. When this fails the reference is the caller's
 * still. Errors: CAPTURE with nothing touched where only one of the streams is part of a
 * capture, or they are parts of two; DEVICE, INVALID_ARGUMENT. */
ONS_API ONS_NODISCARD ons_status ons_tensor_release_to(ons_tensor* tensor,
                                                       void* producer_stream,
                                                       ons_error* error);

/* The tensor; borrowed, valid as long as `tensor`. Strides are filled in, and the offset
 * is part of the address, which is NULL where there are no elements. */
ONS_API const DLTensor* ons_tensor_dltensor(const ons_tensor* tensor);

/* The tensor as an argument of launches, on its home stream. Borrowed likewise. */
ONS_API void ons_tensor_arg(const ons_tensor* tensor, ons_arg* out_arg);

/* Makes `stream` the home stream: it waits for all that the old one holds. For host
 * memory nothing is done. Not while another thread uses the tensor. Errors: CAPTURE with
 * nothing touched, as for a creation; DEVICE. */
ONS_API ONS_NODISCARD ons_status ons_tensor_move(ons_tensor* tensor, void* stream,
                                                 ons_error* error);

/* ---- handing a tensor on ---------------------------------------------------------- */

typedef enum ons_export_flags {
  /* The consumer works on `consumer_stream`: it waits for all that the home stream holds
     now, and the home stream will wait for what it holds when the consumer deletes the
     view. Without the flag both are left to the consumer. */
  ONS_EXPORT_ORDERED = 1u << 0,
  /* The view is of a copy that was made for this consumer. */
  ONS_EXPORT_COPIED = 1u << 1
} ons_export_flags;

/* A view of the tensor for another library, with a reference to it. The view is of this
 * header's version of DLPack, and says truthfully whether it is read-only or copied; its
 * owner may lower the minor version, or name the device as the consumer knows it. Its
 * deleter may be called in any thread; with ONS_EXPORT_ORDERED `consumer_stream` must
 * exist until then. Where a capture keeps the home stream from waiting for it, the
 * memory is kept instead until `consumer_stream`, or the graph that it is captured into,
 * is done with it.
 *
 * The stream is not looked at for host memory. Legal in capture as a creation is. Errors:
 * UNSUPPORTED for tensors that require grad, which only their own library follows;
 * CAPTURE with nothing touched; INVALID_ARGUMENT, DEVICE, OUT_OF_MEMORY. */
ONS_API ONS_NODISCARD ons_status ons_tensor_export(ons_tensor* tensor,
                                                   void* consumer_stream, uint32_t flags,
                                                   DLManagedTensorVersioned** out_view,
                                                   ons_error* error);

/* The same for consumers of DLPack before version 1.0, whose views have no flags:
 * read-only tensors are UNSUPPORTED. */
ONS_API ONS_NODISCARD ons_status ons_tensor_export_legacy(ons_tensor* tensor,
                                                          void* consumer_stream,
                                                          uint32_t flags,
                                                          DLManagedTensor** out_view,
                                                          ons_error* error);

/* Blocks until the device is past all that the home stream holds: the host may then read
 * managed memory. Harms no capture; CAPTURE where the home stream is part of one. Returns
 * at once for plain and pinned host memory, whose users say themselves when it is ready.
 */
ONS_API ONS_NODISCARD ons_status ons_tensor_wait(ons_tensor* tensor, ons_error* error);

/* A copy with memory of onstream's own, dense, in plain host memory or on the tensor's
 * own device. What is on a device is copied in the order of the home stream, which is
 * also the copy's; for a copy to the host this blocks until it is there. Errors: those of
 * ons_tensor_wait and of ons_tensor_allocate; UNSUPPORTED for another device, for what is
 * not dense and to be copied on the device, and for elements of less than a byte that are
 * not packed. */
ONS_API ONS_NODISCARD ons_status ons_tensor_copy(ons_tensor* tensor, DLDevice device,
                                                 ons_tensor** out_copy, ons_error* error);

/* For protocols that hand over an event (Arrow's): one of the device's platform, behind
 * all that the home stream holds now. `*out_event` is its native handle; `*out_token`
 * is given back with ons_tensor_event_give when nobody waits for it any more, in any
 * thread, before the reference to the tensor. Host memory has no events: both are NULL.
 * CAPTURE where the home stream is being captured. */
ONS_API ONS_NODISCARD ons_status ons_tensor_event_take(ons_tensor* tensor,
                                                       void** out_event, void** out_token,
                                                       ons_error* error);
ONS_API void ons_tensor_event_give(ons_tensor* tensor, void* token);

ONS_END_DECLS

#endif /* ONSTREAM_TENSOR_H_ */
