/* Arguments whose type has a DLPack exchange table: borrowed in C, without a Python call.
 */
#include <string.h>

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

bool onspy_exchange_stream(onspy_call* call, size_t index, PyObject* object,
                           const onspy_producer* producer) {
  const DLPackExchangeAPI* exchange = producer->exchange;
  DLDevice device = call->tensors[index].device;
  call->device_seen = true;
  if (producer->stream_of != NULL) {
    return onspy_call_stream(call, index, object, producer, device);
  }
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

/* Through the owning slot of the table, which alone tells of read-only memory. */
static bool take_managed(onspy_call* call, size_t index, PyObject* object,
                         const onspy_producer* producer) {
  DLManagedTensorVersioned* managed = NULL;
  return producer->exchange->managed_tensor_from_py_object_no_sync(object, &managed) ==
             0 &&
         managed != NULL && onspy_take_managed(call, index, object, managed, false);
}

/* Tables that only lend: the object is kept, and the extents, which may change later. */
static bool borrow_and_keep(onspy_call* call, size_t index, PyObject* object,
                            const onspy_producer* producer) {
  DLTensor* tensor = &call->tensors[index];
  if (producer->exchange->dltensor_from_py_object_no_sync(object, tensor) != 0)
    return false;
  size_t ndim = (size_t)tensor->ndim;
  int64_t* extents = onspy_call_extents(call, 2 * ndim);
  if (extents == NULL) return false;
  if (ndim > 0) memcpy(extents, tensor->shape, ndim * sizeof *extents);
  if (ndim > 0 && tensor->strides != NULL) {
    memcpy(extents + ndim, tensor->strides, ndim * sizeof *extents);
    tensor->strides = extents + ndim;
  }
  tensor->shape = extents;
  return onspy_kept_add(&call->retained, Py_NewRef(object), onspy_release_object);
}

/* |own|: for longer than the call. */
static bool take_tensor(onspy_call* call, size_t index, PyObject* object,
                        const onspy_producer* producer, bool own) {
  const DLPackExchangeAPI* exchange = producer->exchange;
  bool lends = exchange->dltensor_from_py_object_no_sync != NULL;
  bool gives = exchange->managed_tensor_from_py_object_no_sync != NULL;
  bool taken;
  if (lends && !own) {
    taken = exchange->dltensor_from_py_object_no_sync(object, &call->tensors[index]) == 0;
  } else if (gives) {
    taken = take_managed(call, index, object, producer);
  } else {
    taken = borrow_and_keep(call, index, object, producer);
  }
  if (taken || PyErr_ExceptionMatches(call->state->error_base)) return taken;
  return onspy_raise_from_producer(call->kernel, index, object, "exchange function");
}

/* Paddle's way to say that autograd follows a tensor. */
static bool ask_gradient(onspy_call* call, size_t index, PyObject* object) {
  PyObject* stopped = PyObject_GetAttrString(object, "stop_gradient");
  int is_stopped = stopped != NULL ? PyObject_IsTrue(stopped) : -1;
  Py_XDECREF(stopped);
  if (is_stopped < 0)
    return onspy_raise_from_producer(call->kernel, index, object, "stop_gradient");
  if (!is_stopped) call->args[index].flags |= ONS_ARG_REQUIRES_GRAD;
  return true;
}

bool onspy_call_exchange(onspy_call* call, size_t index, PyObject* object,
                         const onspy_producer* producer) {
  bool own = call->is_import;
  DLTensor* tensor = &call->tensors[index];
  ons_arg* arg = &call->args[index];
  arg->kind = ONS_ARG_TENSOR;
  arg->value.tensor = tensor;
  if (!take_tensor(call, index, object, producer, own)) return false;
  if (producer->traits & ONSPY_PRODUCER_READ_ONLY) arg->flags |= ONS_ARG_READ_ONLY;
  if (!onspy_on_host(tensor->device) &&
      !onspy_exchange_stream(call, index, object, producer)) {
    return false;
  }
  uint32_t traits = onspy_traits(call->kernel, index);
  if (producer->library == ONSPY_LIBRARY_TORCH &&
      !onspy_torch_is_plain(&producer->torch, object,
                            own || (traits & ONSPY_PARAMETER_WRITTEN) != 0)) {
    int marks = onspy_torch_ask(object);
    if (marks < 0) {
      return onspy_raise_from_producer(call->kernel, index, object,
                                       "requires_grad, is_neg() or is_conj()");
    }
    if (marks & ONSPY_TORCH_REQUIRES_GRAD) arg->flags |= ONS_ARG_REQUIRES_GRAD;
    if (marks & ~ONSPY_TORCH_REQUIRES_GRAD) return refuse_lazy_view(call, index, marks);
  }
  if ((producer->traits & ONSPY_PRODUCER_STOP_GRADIENT) &&
      (own || (traits & ONSPY_PARAMETER_WRITTEN) != 0) &&
      !ask_gradient(call, index, object)) {
    return false;
  }
  if (traits & ONSPY_PARAMETER_VALUE)
    return onspy_scalar_from_tensor(call, index, object);
  return true;
}

bool onspy_exchange_device(onspy_call* call, size_t index, PyObject* object,
                           const onspy_producer* producer, DLDevice* out_device) {
  if (!take_tensor(call, index, object, producer, false)) return false;
  *out_device = call->tensors[index].device;
  return true;
}
