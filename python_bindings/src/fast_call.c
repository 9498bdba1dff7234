/* The call that most calls are: Python numbers, and arrays whose types have been seen at
 * their place before and have an exchange table.
 *
 * It runs after a driver call that emptied the caches, so it is short and touches little.
 * It raises nothing: whatever is not plain, a refusal by the library included, is left to
 * the general way (call.c), which begins anew. */
#include "binding.h"

enum { FAST_ARGUMENTS = 12 };

static inline bool gather_int(PyObject* object, ons_arg* arg) {
  arg->kind = ONS_ARG_INT;
  arg->flags = 0;
#if PY_VERSION_HEX >= 0x030C0000
  const PyLongObject* number = (const PyLongObject*)object;
  if (PyUnstable_Long_IsCompact(number)) { /* nearly always; spares a call */
    arg->value.i = PyUnstable_Long_CompactValue(number);
    return true;
  }
#endif
  int overflow = 0;
  arg->value.i = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

/* The stream asked for last: most calls have one producer and one device. */
typedef struct known_stream {
  DLPackCurrentWorkStream query;
  DLDevice device;
  void* stream;
} known_stream;

static inline bool gather_stream(const onspy_producer* producer, DLDevice device,
                                 known_stream* known, ons_arg* arg) {
  if (producer->work_stream != known->query ||
      device.device_id != known->device.device_id ||
      device.device_type != known->device.device_type) {
    if (producer->work_stream == NULL) return false;
    known->query = producer->work_stream;
    known->device = device;
    if (known->query(device.device_type, device.device_id, &known->stream) != 0)
      return false;
  }
  arg->stream = known->stream;
  arg->flags = ONS_ARG_STREAM_KNOWN;
  return true;
}

static inline bool gather_tensor(PyObject* object, const onspy_slot* slot,
                                 known_stream* known, DLTensor* tensor, ons_arg* arg) {
  const onspy_producer* producer = slot->producer;
  if (producer->borrow == NULL || (slot->traits & ONSPY_PARAMETER_VALUE) != 0)
    return false;
  if (producer->library == ONSPY_LIBRARY_TORCH &&
      !onspy_torch_is_plain(&producer->torch, object,
                            (slot->traits & ONSPY_PARAMETER_WRITTEN) != 0)) {
    return false;
  }
  if (producer->borrow(object, tensor) != 0) return false;
  arg->kind = ONS_ARG_TENSOR;
  arg->flags = 0;
  arg->value.tensor = tensor;
  return onspy_on_host(tensor->device) ||
         gather_stream(producer, tensor->device, known, arg);
}

static inline bool gather(PyObject* object, const onspy_slot* slot, known_stream* known,
                          DLTensor* tensor, ons_arg* arg) {
  if (slot->type != Py_TYPE(object)) return false;
  switch (slot->kind) {
    case ONSPY_KIND_EXCHANGE:
      return gather_tensor(object, slot, known, tensor, arg);
    case ONSPY_KIND_INT:
      return gather_int(object, arg);
    case ONSPY_KIND_FLOAT:
      arg->kind = ONS_ARG_FLOAT;
      arg->flags = 0;
      arg->value.f = PyFloat_AS_DOUBLE(object);
      return true;
    default:
      return false;
  }
}

bool onspy_call_fast(const onspy_kernel* kernel, const ons_launch* launch,
                     PyObject* const* objects, size_t count) {
  if (count > FAST_ARGUMENTS || count != kernel->slot_count || !kernel->known)
    return false;
  ons_arg args[FAST_ARGUMENTS];
  DLTensor tensors[FAST_ARGUMENTS];
  known_stream known = {NULL, {(DLDeviceType)0, 0}, NULL};
  for (size_t i = 0; i < count; ++i) {
    if (!gather(objects[i], &kernel->slots[i], &known, &tensors[i], &args[i])) {
      if (PyErr_Occurred()) PyErr_Clear();
      return false;
    }
  }
  if (known.query != NULL || !onspy_launch_is_long(launch)) {
    return ons_kernel_launch(kernel->handle, launch, args, count, NULL) == ONS_STATUS_OK;
  }
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_kernel_launch(kernel->handle, launch, args, count, NULL);
  Py_END_ALLOW_THREADS;
  return status == ONS_STATUS_OK;
}
