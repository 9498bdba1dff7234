/* Arguments through __cuda_array_interface__, versions 0 to 3. */
#include "binding.h"

static bool refuse(onspy_call* call, size_t index, PyObject* object, const char* why) {
  onspy_raise_argument(call->kernel, index, call->state->error_argument_type,
                       "a %.200s whose __cuda_array_interface__ %s",
                       Py_TYPE(object)->tp_name, why);
  return false;
}

/* Borrowed, NULL for what is absent or None. */
static PyObject* entry_of(PyObject* interface, PyObject* key) {
  PyObject* value = PyDict_GetItemWithError(interface, key);
  return value != Py_None ? value : NULL;
}

int64_t* onspy_call_extents(onspy_call* call, size_t count) {
  int64_t* extents = PyMem_New(int64_t, count + 1);
  if (extents == NULL) return (int64_t*)PyErr_NoMemory();
  return onspy_kept_add(&call->temporary, extents, PyMem_Free) ? extents : NULL;
}

/* Reads a tuple of ints, dividing by |unit| without remainder. */
static bool read_tuple(PyObject* tuple, Py_ssize_t count, int64_t unit,
                       int64_t* out_values) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* number = PyNumber_Index(PyTuple_GET_ITEM(tuple, i));
    long long value = number != NULL ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    if (PyErr_Occurred() || value % unit != 0) return false;
    out_values[i] = value / unit;
  }
  return true;
}

static bool read_layout(onspy_call* call, PyObject* interface, DLTensor* tensor) {
  onspy_state* state = call->state;
  PyObject* shape = entry_of(interface, state->str_shape);
  PyObject* strides = entry_of(interface, state->str_strides);
  if (shape == NULL || !PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) > 64)
    return false;
  Py_ssize_t ndim = PyTuple_GET_SIZE(shape);
  int64_t* extents = onspy_call_extents(call, 2 * (size_t)ndim);
  if (extents == NULL || !read_tuple(shape, ndim, 1, extents)) return false;
  for (Py_ssize_t i = 0; i < ndim; ++i) {
    if (extents[i] < 0) return false;
  }
  tensor->ndim = (int32_t)ndim;
  tensor->shape = extents;
  if (strides == NULL) return true;
  tensor->strides = extents + ndim;
  return read_tuple(strides, ndim, (tensor->dtype.bits + 7) / 8, tensor->strides);
}

static bool read_data(onspy_call* call, size_t index, PyObject* interface,
                      DLTensor* tensor) {
  PyObject* data = entry_of(interface, call->state->str_data);
  if (data == NULL || !PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2 ||
      !PyLong_Check(PyTuple_GET_ITEM(data, 0))) {
    return false;
  }
  tensor->data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
  int read_only = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1));
  if (PyErr_Occurred() || read_only < 0) return false;
  if (read_only) call->args[index].flags |= ONS_ARG_READ_ONLY;
  return true;
}

/* The interface does not say which GPU; with one there is no question, else the driver
 * knows the memory, unless there is none. */
static bool find_device(onspy_call* call, size_t index, PyObject* object,
                        const onspy_producer* producer, DLDevice* out_device) {
  if (producer->has_dlpack) return onspy_dlpack_device(call, index, object, out_device);
  ons_runtime* runtime = onspy_runtime(call->state);
  int32_t count = 0;
  ons_error error = ONS_ERROR_INIT;
  if (runtime == NULL) return false;
  if (ons_runtime_device_count(runtime, kDLCUDA, &count, &error) != ONS_STATUS_OK) {
    return onspy_raise(call->state, &error) != NULL;
  }
  int32_t device = 0;
  const void* data = call->tensors[index].data;
  if (count > 1 && ons_runtime_pointer_device(runtime, kDLCUDA, data, &device, &error) !=
                       ONS_STATUS_OK) {
    return onspy_raise(call->state, &error) != NULL;
  }
  *out_device = (DLDevice){kDLCUDA, device};
  return device >= 0 ||
         refuse(call, index, object,
                "does not tell which of several GPUs it is on; pass an array with "
                "__dlpack__");
}

static bool refuse_order(onspy_call* call, size_t index, PyObject* object) {
  onspy_raise_argument(
      call->kernel, index, call->state->error_order,
      "a %.200s whose __cuda_array_interface__ is older than version 3, "
      "which first told the stream, and which has no __dlpack__ to be asked "
      "for order; pass an array with either",
      Py_TYPE(object)->tp_name);
  return false;
}

/* The stream that the producer says it works on, or the statement that no order is
 * needed. */
static bool read_stream(onspy_call* call, size_t index, PyObject* object,
                        const onspy_producer* producer, PyObject* interface) {
  ons_arg* arg = &call->args[index];
  const DLDevice device = {kDLCUDA, 0}; /* not known yet, and not asked with */
  if (!onspy_call_stream(call, index, object, producer, device)) return false;
  if (arg->flags & ONS_ARG_STREAM_KNOWN) return true;
  PyObject* version = entry_of(interface, call->state->str_version);
  if (version == NULL || !PyLong_Check(version) || PyLong_AsLong(version) < 3) {
    PyErr_Clear();
    return producer->has_dlpack || refuse_order(call, index, object);
  }
  PyObject* stream = entry_of(interface, call->state->str_stream);
  if (stream == NULL) {
    /* Numba and PyCUDA write None for their default, the legacy stream. */
    bool legacy = producer->traits & ONSPY_PRODUCER_NONE_IS_LEGACY;
    arg->flags |= legacy ? ONS_ARG_STREAM_KNOWN : ONS_ARG_ORDERED;
    arg->stream = NULL;
    return true;
  }
  bool given;
  if (!PyLong_Check(stream) ||
      !onspy_stream_parse(call->state, call->kernel, stream, &given, &arg->stream) ||
      arg->stream == NULL) {
    PyErr_Clear();
    return refuse(
        call, index, object,
        "has a stream that is no handle; that is for its library to mend: it gives "
        "1 or 2 for the default streams, else the stream's address");
  }
  arg->flags |= ONS_ARG_STREAM_KNOWN;
  return true;
}

static bool read_interface(onspy_call* call, size_t index, PyObject* object,
                           const onspy_producer* producer, PyObject* interface) {
  onspy_state* state = call->state;
  DLTensor* tensor = &call->tensors[index];
  *tensor = (DLTensor){.data = NULL};
  if (entry_of(interface, state->str_mask) != NULL) {
    return refuse(
        call, index, object,
        "has a mask, which a kernel would not see; pass the values and the mask "
        "as two arrays");
  }
  PyObject* typestr = entry_of(interface, state->str_typestr);
  const char* text =
      typestr != NULL && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8(typestr) : NULL;
  if (text == NULL || !onspy_dtype_from_typestr(text, &tensor->dtype)) {
    return refuse(
        call, index, object,
        "has a typestr that no kernel takes; convert it to numbers in native byte "
        "order");
  }
  if (!read_data(call, index, interface, tensor) ||
      !read_layout(call, interface, tensor)) {
    return refuse(
        call, index, object,
        "has malformed data, shape or strides; that is for its library to mend: "
        "pass another array");
  }
  return read_stream(call, index, object, producer, interface) &&
         find_device(call, index, object, producer, &tensor->device);
}

bool onspy_call_array_interface(onspy_call* call, size_t index, PyObject* object,
                                const onspy_producer* producer) {
  PyObject* interface = PyObject_GetAttr(object, call->state->str_array_interface);
  if (interface == NULL) {
    if (!producer->has_dlpack || !PyErr_ExceptionMatches(PyExc_Exception)) {
      return onspy_raise_from_producer(call->kernel, index, object,
                                       "__cuda_array_interface__");
    }
    PyErr_Clear();
    return onspy_call_dlpack(call, index, object, producer);
  }
  ons_arg* arg = &call->args[index];
  bool read = PyDict_Check(interface)
                  ? read_interface(call, index, object, producer, interface)
                  : refuse(call, index, object, "is no dict; pass another array");
  Py_DECREF(interface);
  if (!read) return false;
  /* No stream's order keeps the memory until the launch has run: the object does. */
  if (arg->flags & ONS_ARG_ORDERED) {
    if (!onspy_kept_add(&call->retained, Py_NewRef(object), onspy_release_object))
      return false;
    onspy_kept_measure(&call->retained, &call->tensors[index]);
  }
  arg->kind = ONS_ARG_TENSOR;
  arg->value.tensor = &call->tensors[index];
  call->device_seen = true;
  if (onspy_traits(call->kernel, index) & ONSPY_PARAMETER_VALUE) {
    return onspy_scalar_from_tensor(call, index, object);
  }
  /* Where the interface gives no order, __dlpack__ does. */
  bool ordered = arg->flags & (ONS_ARG_STREAM_KNOWN | ONS_ARG_ORDERED);
  if (ordered || !producer->has_dlpack) return true;
  arg->flags = 0;
  return onspy_call_dlpack(call, index, object, producer);
}
