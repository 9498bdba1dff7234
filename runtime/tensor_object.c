#include "runtime/tensor_object.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/steps.h"
#include "runtime/base/versioned.h"
#include "runtime/join.h"
#include "runtime/retire.h"
#include "runtime/tensor.h"
#include "runtime/tensor_memory.h"

uint64_t ons__thread_number(void) {
  static atomic_uint_fast64_t last;
  static _Thread_local uint64_t mine;
  if (mine == 0) mine = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
  return mine;
}

/* ---- creation --------------------------------------------------------------------- */

enum {
  STREAM_FLAGS = ONS_TENSOR_STREAM | ONS_TENSOR_PRODUCER_STREAM | ONS_TENSOR_ORDERED,
  KNOWN_FLAGS = STREAM_FLAGS | ONS_TENSOR_READ_ONLY | ONS_TENSOR_REQUIRES_GRAD
};

static ons_status check_options(const ons_tensor_options* options, ons_error* error) {
  uint32_t flags = options->flags;
  if (!options->versioned == !options->legacy) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "ons_tensor_options: set one of versioned and legacy");
  }
  if (flags & ~(uint32_t)KNOWN_FLAGS) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "ons_tensor_options.flags has bits that this version does not "
                          "know: set ONS_TENSOR_* only");
  }
  if ((flags & ONS_TENSOR_ORDERED) && !(flags & ONS_TENSOR_STREAM)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "ons_tensor_options.flags has ONS_TENSOR_ORDERED without "
                          "ONS_TENSOR_STREAM: set the stream that the producer has "
                          "ordered the tensor onto");
  }
  /* Of another major version nothing but the deleter may be looked at. */
  if (options->versioned && options->versioned->version.major != DLPACK_MAJOR_VERSION) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "the tensor is of DLPack version %u; version %d is understood: "
                          "have the producer export that one, and call the deleter",
                          (unsigned)options->versioned->version.major,
                          DLPACK_MAJOR_VERSION);
  }
  return ONS_STATUS_OK;
}

static ons_status check_tensor(const DLTensor* tensor, ons_error* error) {
  bool is_valid = tensor->ndim == 0 || (tensor->ndim > 0 && tensor->shape);
  for (int32_t i = 0; is_valid && i < tensor->ndim; ++i) is_valid = tensor->shape[i] >= 0;
  if (is_valid && (tensor->data || ons__tensor_is_empty(tensor))) return ONS_STATUS_OK;
  if (is_valid) {
    return ons__error_set(error, ONS_STATUS_ARGUMENT_VALUE,
                          "the tensor has elements but no memory: its producer must "
                          "allocate it first");
  }
  return ons__error_set(
      error, ONS_STATUS_ARGUMENT_VALUE,
      "the tensor has %d dimensions and %s: its producer must give each a size of 0 or "
      "more",
      (int)tensor->ndim,
      tensor->ndim > 0 && tensor->shape ? "a negative size" : "no shape");
}

/* Finds the device of memory that is on one, and checks that its order is told. */
static ons_status find_device(ons_runtime* runtime, const DLTensor* dltensor,
                              uint32_t flags, ons__device_entry** out_entry,
                              ons_error* error) {
  char text[64];
  ons__device_text(dltensor->device, text, sizeof(text));
  *out_entry = NULL;
  if (ons__device_slot(dltensor->device) == 0) {
    if (!(flags & STREAM_FLAGS)) return ONS_STATUS_OK;
    return ons__error_set(
        error, ONS_STATUS_ARGUMENT_VALUE,
        "a stream is given for a tensor in %s, which has none: leave it out", text);
  }
  if (!(flags & (ONS_TENSOR_PRODUCER_STREAM | ONS_TENSOR_ORDERED))) {
    return ons__error_set(
        error, ONS_STATUS_ORDER,
        "nothing tells the stream of a tensor on %s: set the producer's stream, or have "
        "the producer order the tensor onto yours",
        text);
  }
  return ons__runtime_device(runtime, dltensor->device, out_entry, error);
}

/* What the producer's event stands for is outside of every capture. */
static ons_status wait_for_event(const ons_tensor* tensor, void* home, void* event,
                                 const ons__capture_info* info, ons_error* error) {
  ons__device* device = tensor->entry->device;
  if (info->state != ONS__CAPTURE_NONE) {
    return ons__error_set(error, ONS_STATUS_CAPTURE,
                          "stream %p cannot wait for an event of the tensor's producer: "
                          "it is part of a capture, which is untouched; import the "
                          "tensor before",
                          home);
  }
  return device->backend->ops->caller_event_wait(device, event, home, false, error);
}

static ons_status join_on_the_way_in(ons_tensor* tensor, void* event, ons_error* error) {
  ons__capture_info info;
  void* home = ons__tensor_home(tensor);
  ons_status status = ons__stream_capture(tensor->entry->device, home, &info, error);
  if (status) return status;
  tensor->capture_id = info.id;
  if (event) status = wait_for_event(tensor, home, event, &info, error);
  if (status) return status;
  if (tensor->flags & ONS_TENSOR_ORDERED) return ONS_STATUS_OK;
  if (!ONS__DOES(TENSOR_JOIN_IN)) return ONS_STATUS_OK;
  return ons__stream_join(tensor->entry, home, tensor->producer_stream, error);
}

static void describe(ons_tensor* tensor, const DLTensor* given) {
  DLTensor* mine = &tensor->dltensor;
  *mine = *given;
  bool is_nothing = !given->data || ons__tensor_is_empty(given);
  /* As integers: what a broken producer says need not be an address. */
  mine->data =
      is_nothing ? NULL : (void*)((uintptr_t)given->data + (uintptr_t)given->byte_offset);
  mine->byte_offset = 0;
  if (given->ndim == 0) mine->shape = mine->strides = NULL; /* whatever they point at */
  if (given->ndim == 0 || given->strides) return;
  for (int32_t i = 0; i < given->ndim; ++i) {
    tensor->strides[i] = ons__tensor_stride(given, i);
  }
  mine->strides = tensor->strides;
}

ons_status ons_tensor_create(ons_runtime* runtime, const ons_tensor_options* options,
                             ons_tensor** out_tensor, ons_error* error) {
  if (!runtime || !options || !out_tensor ||
      options->struct_size < sizeof(options->struct_size)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "runtime, options or out_tensor is NULL, or options has no "
                          "struct_size: use ONS_TENSOR_OPTIONS_INIT");
  }
  *out_tensor = NULL;
  ons_tensor_options local = ONS_TENSOR_OPTIONS_INIT;
  ons__versioned_in(&local, sizeof(local), options, options->struct_size);
  ons_status status = check_options(&local, error);
  if (status) return status;
  const DLTensor* dltensor =
      local.versioned ? &local.versioned->dl_tensor : &local.legacy->dl_tensor;
  ons__device_entry* entry = NULL;
  status = check_tensor(dltensor, error);
  if (!status) status = find_device(runtime, dltensor, local.flags, &entry, error);
  if (status) return status;

  size_t strides_bytes = dltensor->strides ? 0 : (size_t)dltensor->ndim * sizeof(int64_t);
  ons_tensor* tensor =
      ons__alloc(runtime->settings.allocator, sizeof(*tensor) + strides_bytes);
  if (!tensor) return ons__error_no_memory(error);
  bool is_given = local.flags & ONS_TENSOR_STREAM;
  *tensor = (ons_tensor){.runtime = runtime,
                         .entry = entry,
                         .versioned = local.versioned,
                         .legacy = local.legacy,
                         .producer_stream = local.producer_stream,
                         .flags = local.flags};
  atomic_init(&tensor->reference_count, 1);
  atomic_init(&tensor->stream, is_given ? local.stream : local.producer_stream);
  atomic_init(&tensor->thread, ons__thread_number());
  describe(tensor, dltensor);
  if (local.versioned && (local.versioned->flags & DLPACK_FLAG_BITMASK_READ_ONLY)) {
    tensor->flags |= ONS_TENSOR_READ_ONLY;
  }
  if (entry) {
    ons__retire_poll(&entry->retire);
    status = join_on_the_way_in(tensor, local.event, error);
  }
  if (status) {
    ons__free(runtime->settings.allocator, tensor);
    return status;
  }
  ons_runtime_retain(runtime);
  *out_tensor = tensor;
  return ONS_STATUS_OK;
}

/* ---- what is in it ---------------------------------------------------------------- */

const DLTensor* ons_tensor_dltensor(const ons_tensor* tensor) {
  return &tensor->dltensor;
}

void ons_tensor_arg(const ons_tensor* tensor, ons_arg* out_arg) {
  uint32_t flags = tensor->entry ? ONS_ARG_STREAM_KNOWN : 0;
  if (tensor->flags & ONS_TENSOR_READ_ONLY) flags |= ONS_ARG_READ_ONLY;
  if (tensor->flags & ONS_TENSOR_REQUIRES_GRAD) flags |= ONS_ARG_REQUIRES_GRAD;
  *out_arg = (ons_arg){.kind = ONS_ARG_TENSOR,
                       .flags = flags,
                       .value.tensor = ons_tensor_dltensor(tensor),
                       .stream = ons__tensor_home(tensor)};
}

/* ---- release ---------------------------------------------------------------------- */

void ons_tensor_retain(ons_tensor* tensor) {
  if (tensor)
    atomic_fetch_add_explicit(&tensor->reference_count, 1, memory_order_relaxed);
}

uint64_t ons_tensor_reference_count(const ons_tensor* tensor) {
  return tensor ? atomic_load_explicit(&tensor->reference_count, memory_order_acquire)
                : 0;
}

/* Gives the memory back. The runtime is there, whoever calls this. */
static void destroy(void* object) {
  ons_tensor* tensor = object;
  const ons_allocator* allocator = tensor->runtime->settings.allocator;
  if (tensor->versioned && tensor->versioned->deleter) {
    tensor->versioned->deleter(tensor->versioned);
  } else if (tensor->legacy && tensor->legacy->deleter) {
    tensor->legacy->deleter(tensor->legacy);
  }
  ons__free(allocator, tensor);
}

/* Nobody refers to the tensor any more: the device's list keeps it until all that uses it
 * is through. What cannot be done now (a capture of another stream forbids to touch the
 * home stream, its own is broken, the driver refuses) a later collection tries again. */
static void retire(void* object) {
  ons_tensor* tensor = object;
  ons__device* device = tensor->entry->device;
  ons__retire_list* list = &tensor->entry->retire;
  const ons_retained again = {tensor, retire, ons__tensor_size_bytes(&tensor->dltensor)};
  ons__retired* retired = NULL;
  /* Without memory for that it is kept for ever, as it may still be in use. */
  if (ons__retire_reserve(list, &again, 1, &retired, NULL)) return;
  ons__capture_info info;
  void* home = ons__tensor_home(tensor);
  ons_status status = ons__stream_capture(device, home, &info, NULL);
  if (status || info.state == ONS__CAPTURE_ELSEWHERE) {
    ons__retire_defer(list, retired);
    return;
  }
  /* When a graph is gone, work from before its capture may still be under way. */
  if (info.id == tensor->capture_id || info.state == ONS__CAPTURE_NONE ||
      !ONS__DOES(TENSOR_AGAIN)) {
    retired->objects[0].release = destroy;
  }
  status = info.state == ONS__CAPTURE_NONE
               ? ons__retire_commit(list, retired, home, NULL)
               : ons__retire_to_graph(list, retired, info.graph, NULL);
  if (status) {
    retired->objects[0].release = retire;
    ons__retire_defer(list, retired);
  }
}

static bool drop_reference(ons_tensor* tensor) {
  return atomic_fetch_sub_explicit(&tensor->reference_count, 1, memory_order_acq_rel) ==
         1;
}

/* Memory of our own needs nobody to wait: its pool reuses it in the stream's order. */
static bool goes_back_in_order(const ons_tensor* tensor) {
  return ons__tensor_memory_is_own(tensor->versioned) &&
         ons__tensor_memory_free_in_order(tensor->versioned, ons__tensor_home(tensor));
}

void ons_tensor_release(ons_tensor* tensor) {
  if (!tensor || !drop_reference(tensor)) return;
  ons_runtime* runtime = tensor->runtime;
  if (tensor->entry && !goes_back_in_order(tensor) && ONS__DOES(TENSOR_KEEP)) {
    retire(tensor);
  } else {
    destroy(tensor);
  }
  ons_runtime_release(runtime);
}

/* With the producer's stream behind the home stream: may the memory be reused in the
 * producer's order? */
static bool may_return_now(const ons_tensor* tensor, void* producer_stream,
                           const ons__capture_info* info) {
  if (info->state == ONS__CAPTURE_ACTIVE && ONS__DOES(TENSOR_CAPTURE)) return false;
  if (!ONS__DOES(TENSOR_SAME_STREAM)) return true;
  return (tensor->flags & ONS_TENSOR_PRODUCER_STREAM) &&
         ons__streams_match(producer_stream, tensor->producer_stream);
}

/* The deleter may call the driver, which must not harm a capture of any thread. */
static void destroy_now(ons_tensor* tensor) {
  ons__device* device = tensor->entry->device;
  const ons__backend_ops* ops = device->backend->ops;
  unsigned token = 0;
  ops->housekeeping_enter(device, &token);
  destroy(tensor);
  ops->housekeeping_leave(device, token);
}

ons_status ons_tensor_release_to(ons_tensor* tensor, void* producer_stream,
                                 ons_error* error) {
  if (!tensor) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT, "tensor is NULL");
  }
  if (!tensor->entry) {
    ons_tensor_release(tensor);
    return ONS_STATUS_OK;
  }
  void* home = ons__tensor_home(tensor);
  ons__capture_info info;
  ons_status status = ons__stream_capture(tensor->entry->device, home, &info, error);
  if (status) return status;
  if (ONS__DOES(TENSOR_JOIN_BACK)) {
    status = ons__stream_join(tensor->entry, producer_stream, home, error);
  }
  if (status) return status;
  /* Other owners may put more work on the home stream, behind what was waited for. */
  bool is_alone = ons_tensor_reference_count(tensor) == 1 || !ONS__DOES(TENSOR_ALONE);
  if (!is_alone || !may_return_now(tensor, producer_stream, &info)) {
    ons_tensor_release(tensor);
    return ONS_STATUS_OK;
  }
  ons_runtime* runtime = tensor->runtime;
  destroy_now(tensor);
  ons_runtime_release(runtime);
  return ONS_STATUS_OK;
}
