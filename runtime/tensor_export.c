/* Tensors handed on: views with a reference, and the order between the two streams. */
#include <stddef.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/join.h"
#include "runtime/retire.h"
#include "runtime/tensor.h"
#include "runtime/tensor_object.h"

typedef struct tensor_view {
  union {
    DLManagedTensorVersioned versioned;
    DLManagedTensor legacy;
  } managed;          /* first: consumers have its address */
  ons_tensor* tensor; /* one reference */
  void* stream;       /* the consumer's, if ordered */
  uint64_t thread;    /* that the stream was given in */
  bool ordered;
  int64_t extents[];
} tensor_view;

/* ---- the end of a view ------------------------------------------------------------ */

static void drop_reference(void* tensor) { ons_tensor_release(tensor); }

/* Where a capture forbids to join: the consumer's stream, or its graph, keeps the
 * reference. What cannot be done now a later collection does by then. */
static void keep_for_consumer(ons_tensor* tensor, void* stream) {
  ons__device* device = tensor->entry->device;
  ons__retire_list* list = &tensor->entry->retire;
  const ons_retained reference = {tensor, drop_reference,
                                  ons__tensor_size_bytes(&tensor->dltensor)};
  ons__retired* retired = NULL;
  /* Without memory for that it is kept for ever, as it may still be in use. */
  if (ons__retire_reserve(list, &reference, 1, &retired, NULL)) return;
  ons__capture_info info;
  ons_status status = ons__stream_capture(device, stream, &info, NULL);
  if (status || info.state == ONS__CAPTURE_ELSEWHERE) {
    ons__retire_defer(list, retired);
  } else if (info.state == ONS__CAPTURE_ACTIVE) {
    if (ons__retire_to_graph(list, retired, info.graph, NULL)) {
      ons__retire_defer(list, retired);
    }
  } else {
    (void)ons__retire_commit(list, retired, stream, NULL);
  }
}

static void end_view(tensor_view* view) {
  ons_tensor* tensor = view->tensor;
  void* stream = ons__stream_here(view->stream, view->thread);
  bool ordered = view->ordered;
  ons__free(tensor->runtime->settings.allocator, view);
  if (ordered &&
      ons__stream_join(tensor->entry, ons__tensor_home(tensor), stream, NULL)) {
    keep_for_consumer(tensor, stream);
    return;
  }
  ons_tensor_release(tensor);
}

static void delete_versioned(DLManagedTensorVersioned* managed) {
  if (managed) end_view(managed->manager_ctx);
}

static void delete_legacy(DLManagedTensor* managed) {
  if (managed) end_view(managed->manager_ctx);
}

/* ---- views ------------------------------------------------------------------------ */

static ons_status check(const ons_tensor* tensor, uint32_t flags, const void* out_view,
                        ons_error* error) {
  if (!tensor || !out_view ||
      (flags & ~(uint32_t)(ONS_EXPORT_ORDERED | ONS_EXPORT_COPIED))) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "tensor or out_view is NULL, or flags has other bits than "
                          "ONS_EXPORT_*");
  }
  if (!(tensor->flags & ONS_TENSOR_REQUIRES_GRAD)) return ONS_STATUS_OK;
  return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                        "the tensor requires grad, and another library would not follow "
                        "what is done with it: import x.detach() instead of x");
}

/* With a tensor of the view's own extents in `out_dltensor`. */
static ons_status make_view(ons_tensor* tensor, void* stream, uint32_t flags,
                            DLTensor* out_dltensor, tensor_view** out_view,
                            ons_error* error) {
  size_t ndim = (size_t)tensor->dltensor.ndim;
  const ons_allocator* allocator = tensor->runtime->settings.allocator;
  tensor_view* view =
      ons__alloc(allocator, sizeof(*view) + 2 * ndim * sizeof(*view->extents));
  if (!view) return ons__error_no_memory(error);
  view->tensor = tensor;
  view->stream = stream;
  view->thread = ons__thread_number();
  view->ordered = (flags & ONS_EXPORT_ORDERED) && tensor->entry;
  if (view->ordered) {
    void* home = ons__tensor_home(tensor);
    ons_status status = ons__stream_join(tensor->entry, stream, home, error);
    if (status) {
      ons__free(allocator, view);
      return status;
    }
  }
  ons_tensor_retain(tensor);
  *out_dltensor = tensor->dltensor;
  if (ndim > 0) {
    size_t bytes = ndim * sizeof(*view->extents);
    out_dltensor->shape = memcpy(view->extents, tensor->dltensor.shape, bytes);
    out_dltensor->strides = memcpy(view->extents + ndim, tensor->dltensor.strides, bytes);
  }
  *out_view = view;
  return ONS_STATUS_OK;
}

static uint64_t dlpack_flags(const ons_tensor* tensor, uint32_t flags) {
  uint64_t result = 0;
  if (tensor->flags & ONS_TENSOR_READ_ONLY) result |= DLPACK_FLAG_BITMASK_READ_ONLY;
  if (flags & ONS_EXPORT_COPIED) result |= DLPACK_FLAG_BITMASK_IS_COPIED;
  if (tensor->versioned) {
    result |= tensor->versioned->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
  }
  return result;
}

ons_status ons_tensor_export(ons_tensor* tensor, void* consumer_stream, uint32_t flags,
                             DLManagedTensorVersioned** out_view, ons_error* error) {
  ons_status status = check(tensor, flags, out_view, error);
  if (status) return status;
  DLTensor dltensor;
  tensor_view* view;
  status = make_view(tensor, consumer_stream, flags, &dltensor, &view, error);
  if (status) return status;
  view->managed.versioned =
      (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                 .manager_ctx = view,
                                 .deleter = delete_versioned,
                                 .flags = dlpack_flags(tensor, flags),
                                 .dl_tensor = dltensor};
  *out_view = &view->managed.versioned;
  return ONS_STATUS_OK;
}

ons_status ons_tensor_export_legacy(ons_tensor* tensor, void* consumer_stream,
                                    uint32_t flags, DLManagedTensor** out_view,
                                    ons_error* error) {
  ons_status status = check(tensor, flags, out_view, error);
  if (status) return status;
  if (tensor->flags & ONS_TENSOR_READ_ONLY) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "the tensor is read-only, which DLPack before version 1.0 "
                          "cannot say: ask for version 1.0, or for a copy");
  }
  DLTensor dltensor;
  tensor_view* view;
  status = make_view(tensor, consumer_stream, flags, &dltensor, &view, error);
  if (status) return status;
  view->managed.legacy = (DLManagedTensor){
      .dl_tensor = dltensor, .manager_ctx = view, .deleter = delete_legacy};
  *out_view = &view->managed.legacy;
  return ONS_STATUS_OK;
}

/* ---- streams and events ----------------------------------------------------------- */

ons_status ons_tensor_move(ons_tensor* tensor, void* stream, ons_error* error) {
  if (!tensor) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "tensor is NULL");
  }
  if (!tensor->entry) return ONS_STATUS_OK;
  ons_status status =
      ons__stream_join(tensor->entry, stream, ons__tensor_home(tensor), error);
  if (status) return status;
  atomic_store_explicit(&tensor->thread, ons__thread_number(), memory_order_relaxed);
  atomic_store_explicit(&tensor->stream, stream, memory_order_release);
  return ONS_STATUS_OK;
}

ons_status ons_tensor_event_take(ons_tensor* tensor, void** out_event, void** out_token,
                                 ons_error* error) {
  if (!tensor || !out_event || !out_token) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "tensor, out_event or out_token is NULL");
  }
  *out_event = *out_token = NULL;
  if (!tensor->entry) return ONS_STATUS_OK;
  ons__device* device = tensor->entry->device;
  void* home = ons__tensor_home(tensor);
  ons_status status = ons__tensor_check_eager(tensor, home, error);
  ons__join join = {0};
  if (!status) status = ons__join_begin(tensor->entry, false, &join, error);
  if (!status) status = ons__join_signal(&join, home, error);
  if (status) {
    ons__join_end(&join);
    return status;
  }
  *out_event = device->backend->ops->event_handle(join.event);
  *out_token = join.event;
  return ONS_STATUS_OK;
}

void ons_tensor_event_give(ons_tensor* tensor, void* token) {
  if (tensor && token) ons__event_pool_give(&tensor->entry->events, token);
}
