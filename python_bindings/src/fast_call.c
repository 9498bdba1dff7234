/* The call that most calls are: Python numbers, and arrays whose types have been seen at
 * their place before and have an exchange table.
 *
 * It runs after a driver call that emptied the caches, so it is short and touches little.
 * Whatever is not plain is left to the general way (call.c), which begins anew. */
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

static inline bool gather(PyObject* object, const onspy_slot* slot, known_stream* known,
                          DLTensor* tensor, ons_arg* arg) {
  if (!ONSPY_LIKELY(slot->type == Py_TYPE(object))) return false;
  if (ONSPY_LIKELY(slot->kind == ONSPY_KIND_EXCHANGE)) {
    return gather_tensor(object, slot, known, tensor, arg);
  }
  if (slot->kind == ONSPY_KIND_INT) return gather_int(object, arg);
  arg->kind = ONS_ARG_FLOAT;
  arg->flags = 0;
  if (slot->kind != ONSPY_KIND_FLOAT) return false;
  arg->value.f = PyFloat_AS_DOUBLE(object);
  return true;
}

/* The library has refused or failed. Whatever it says is final, for the general way would
 * pass it the same arguments; only a kernel that is not ready is for that to prepare. */
static ONSPY_COLD PyObject* give_up(onspy_launcher* self, PyObject* const* objects,
                                    size_t count, ons_status status,
                                    const ons_error* error) {
  if (status != ONS_STATUS_NOT_READY) return onspy_raise(self->kernel->state, error);
  return onspy_kernel_call(self->kernel, &self->launch, objects, count);
}

static ONSPY_COLD PyObject* refuse_keywords(const onspy_kernel* kernel,
                                            PyObject* kwnames) {
  const char* signature = ons_kernel_signature(kernel->handle);
  PyErr_Format(kernel->state->error_argument_type,
               "kernel '%s': unexpected keyword %R; pass the arguments by position%s%s",
               ons_kernel_name(kernel->handle), PyTuple_GET_ITEM(kwnames, 0),
               signature != NULL ? ": " : "", signature != NULL ? signature : "");
  return NULL;
}

static ONSPY_NOINLINE PyObject* call_general(onspy_launcher* self,
                                             PyObject* const* objects, size_t count,
                                             PyObject* kwnames) {
  if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
    return refuse_keywords(self->kernel, kwnames);
  }
  if (PyErr_Occurred()) PyErr_Clear(); /* a producer's: asked again, it raises again */
  return onspy_kernel_call(self->kernel, &self->launch, objects, count);
}

static ONSPY_NOINLINE ons_status launch_without_gil(ons_kernel* kernel,
                                                    const ons_launch* launch,
                                                    const ons_arg* args, size_t count,
                                                    ons_error* error) {
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_kernel_launch(kernel, launch, args, count, error);
  Py_END_ALLOW_THREADS;
  return status;
}

PyObject* onspy_launcher_call(PyObject* object, PyObject* const* objects, size_t nargsf,
                              PyObject* kwnames) {
  onspy_launcher* self = (onspy_launcher*)object;
  const onspy_kernel* kernel = self->kernel;
  size_t count = (size_t)PyVectorcall_NARGS(nargsf);
  ons_arg args[FAST_ARGUMENTS];
  DLTensor tensors[FAST_ARGUMENTS];
  if (!ONSPY_LIKELY(kwnames == NULL && onspy_innermost_stream == NULL &&
                    count <= FAST_ARGUMENTS && count == kernel->slot_count)) {
    return call_general(self, objects, count, kwnames);
  }
  ons_kernel* handle = kernel->handle;
  const onspy_slot* slots = kernel->slots;
  __builtin_prefetch(handle);
  known_stream known = {NULL, {(DLDeviceType)0, 0}, NULL};
  for (size_t i = 0; i < count; ++i) {
    if (!ONSPY_LIKELY(gather(objects[i], &slots[i], &known, &tensors[i], &args[i]))) {
      return call_general(self, objects, count, kwnames);
    }
  }
  ons_error error; /* zeroing it would cost more than binding */
  error.struct_size = sizeof error;
  error.launched = 0;
  ons_status status = known.query == NULL && onspy_launch_is_long(&self->launch)
                          ? launch_without_gil(handle, &self->launch, args, count, &error)
                          : ons_kernel_launch(handle, &self->launch, args, count, &error);
  if (status != ONS_STATUS_OK) return give_up(self, objects, count, status, &error);
  Py_RETURN_NONE;
}
