/* Arguments of the call that most calls are, taken in line: Python numbers, and arrays
 * whose types have been seen at their place before and have an exchange table. */
#ifndef ONSPY_GATHER_H_
#define ONSPY_GATHER_H_

#include "tensor_object.h"

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
  bool device_seen; /* some tensor is in a GPU's memory */
} known_stream;

static inline bool is_known(const known_stream* known, const onspy_producer* producer,
                            DLDevice device) {
  return (known->query == producer->work_stream) &
         (known->device.device_id == device.device_id) &
         (known->device.device_type == device.device_type);
}

static inline bool gather_stream(const onspy_producer* producer, DLDevice device,
                                 known_stream* known, ons_arg* arg) {
  if (!is_known(known, producer, device)) {
    if (producer->work_stream == NULL) return false;
    known->query = producer->work_stream;
    known->device = device;
    known->device_seen = true;
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
  arg->value.tensor = tensor;
  if (!ONSPY_LIKELY(!onspy_on_host(tensor->device))) {
    arg->flags = 0;
    return true;
  }
  return gather_stream(producer, tensor->device, known, arg);
}

/* The library's own, which stays while the GIL is held; a launch on host memory may give
 * the GIL up. */
static inline bool gather_own(PyObject* object, const onspy_slot* slot,
                              known_stream* known, ons_arg* arg) {
  const ons_tensor* handle = ((const onspy_tensor*)object)->handle;
  if (handle == NULL || (slot->traits & ONSPY_PARAMETER_VALUE) != 0) return false;
  ons_tensor_arg(handle, arg);
  known->device_seen = true;
  return (arg->flags & ONS_ARG_STREAM_KNOWN) != 0;
}

static inline bool gather(PyObject* object, const onspy_slot* slot, known_stream* known,
                          DLTensor* tensor, ons_arg* arg) {
  if (!ONSPY_LIKELY(slot->type == Py_TYPE(object))) return false;
  if (ONSPY_LIKELY(slot->kind == ONSPY_KIND_EXCHANGE)) {
    return gather_tensor(object, slot, known, tensor, arg);
  }
  if (slot->kind == ONSPY_KIND_INT) return gather_int(object, arg);
  if (slot->kind == ONSPY_KIND_TENSOR) return gather_own(object, slot, known, arg);
  arg->kind = ONS_ARG_FLOAT;
  arg->flags = 0;
  if (slot->kind != ONSPY_KIND_FLOAT) return false;
  arg->value.f = PyFloat_AS_DOUBLE(object);
  return true;
}

#endif /* ONSPY_GATHER_H_ */
