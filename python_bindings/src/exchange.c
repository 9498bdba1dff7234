/* Arguments whose type has a DLPack exchange table: borrowed in C, without a Python call.
 */
#include "binding.h"

/* torch marks lazily negated and conjugated views with a bit that the exchange table does
 * not look at: the memory holds other values than the tensor has. */
static bool refuse_lazy_view(onspy_call* call, size_t index, int marks) {
  const char* bit = marks & ONSPY_TORCH_NEG ? "neg" : "conj";
  onspy_raise_argument(
      call->kernel, index, call->state->error_argument_value,
      "a tensor that is a lazy %s view, whose memory holds other values; pass "
      "x.resolve_%s()",
      bit, bit);
  return false;
}

bool onspy_exchange_stream(onspy_call* call, size_t index,
                           const onspy_producer* producer) {
  const DLPackExchangeAPI* exchange = producer->exchange;
  DLDevice device = call->tensors[index].device;
  call->device_seen = true;
  if (exchange != call->stream_api || device.device_id != call->stream_device.device_id ||
      device.device_type != call->stream_device.device_type) {
    if (exchange->current_work_stream == NULL) return true;
    if (exchange->current_work_stream(device.device_type, device.device_id,
                                      &call->stream) != 0) {
      return onspy_raise_from_producer(call->kernel, index, (PyObject*)producer->type,
                                       "stream query");
    }
    call->stream_api = exchange;
    call->stream_device = device;
  }
  call->args[index].stream = call->stream;
  call->args[index].flags |= ONS_ARG_STREAM_KNOWN;
  return true;
}

static void release_managed(void* object) {
  DLManagedTensorVersioned* managed = object;
  if (managed->deleter != NULL) managed->deleter(managed);
}

/* Through the owning slot of the table, which alone tells of read-only memory. */
static bool take_managed(onspy_call* call, size_t index, PyObject* object,
                         const onspy_producer* producer) {
  DLManagedTensorVersioned* managed = NULL;
  if (producer->exchange->managed_tensor_from_py_object_no_sync(object, &managed) != 0 ||
      managed == NULL) {
    return false;
  }
  call->temporary[call->temporary_count++] = (ons_retained){managed, release_managed};
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "a %.200s that hands over DLPack version %u, which is not understood",
        Py_TYPE(object)->tp_name, (unsigned)managed->version.major);
    return false;
  }
  call->tensors[index] = managed->dl_tensor;
  if (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) {
    call->args[index].flags |= ONS_ARG_READ_ONLY;
  }
  return true;
}

static bool take_tensor(onspy_call* call, size_t index, PyObject* object,
                        const onspy_producer* producer) {
  const DLPackExchangeAPI* exchange = producer->exchange;
  bool taken =
      exchange->dltensor_from_py_object_no_sync != NULL
          ? exchange->dltensor_from_py_object_no_sync(object, &call->tensors[index]) == 0
          : take_managed(call, index, object, producer);
  if (taken || PyErr_ExceptionMatches(call->state->error_base)) return taken;
  return onspy_raise_from_producer(call->kernel, index, object, "exchange function");
}

bool onspy_call_exchange(onspy_call* call, size_t index, PyObject* object,
                         const onspy_producer* producer) {
  DLTensor* tensor = &call->tensors[index];
  ons_arg* arg = &call->args[index];
  arg->kind = ONS_ARG_TENSOR;
  arg->value.tensor = tensor;
  if (!take_tensor(call, index, object, producer)) return false;
  if (!onspy_on_host(tensor->device) && !onspy_exchange_stream(call, index, producer)) {
    return false;
  }
  uint32_t traits = onspy_traits(call->kernel, index);
  if (producer->library == ONSPY_LIBRARY_TORCH &&
      !onspy_torch_is_plain(&producer->torch, object, traits & ONSPY_PARAMETER_WRITTEN)) {
    int marks = onspy_torch_ask(object);
    if (marks < 0) {
      return onspy_raise_from_producer(call->kernel, index, object,
                                       "requires_grad, is_neg() or is_conj()");
    }
    if (marks & ONSPY_TORCH_REQUIRES_GRAD) arg->flags |= ONS_ARG_REQUIRES_GRAD;
    if (marks & ~ONSPY_TORCH_REQUIRES_GRAD) return refuse_lazy_view(call, index, marks);
  }
  if (traits & ONSPY_PARAMETER_VALUE)
    return onspy_scalar_from_tensor(call, index, object);
  return true;
}

bool onspy_exchange_device(onspy_call* call, size_t index, PyObject* object,
                           const onspy_producer* producer, DLDevice* out_device) {
  if (!take_tensor(call, index, object, producer)) return false;
  *out_device = call->tensors[index].device;
  return true;
}
