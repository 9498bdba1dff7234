/* onstream.Tensor: memory that is kept, and used on a home stream. */
#include "tensor_object.h"

/* ---- release ---------------------------------------------------------------------- */

static bool is_finalizing(void) {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

/* The stream that the producer works on now, else the one that it told on the way in.
 * Without one `*out_known` is false. */
static bool find_producer_stream(onspy_state* state, const onspy_tensor* self,
                                 const onspy_producer* producer, bool* out_known,
                                 void** out_stream) {
  /* The array was not kept where its type has been registered since. */
  bool may_ask = producer->stream_of == NULL || self->array != NULL;
  *out_known = false;
  *out_stream = NULL;
  if (may_ask) {
    DLDevice device = ons_tensor_dltensor(self->handle)->device;
    PyObject* array = Py_XNewRef(self->array); /* the answer may release the tensor */
    bool told =
        onspy_stream_of(state, producer, array, device, out_known, out_stream, NULL);
    Py_XDECREF(array);
    if (!told) {
      if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the array's library does not tell its current stream");
      }
      return false;
    }
  }
  if (!*out_known) {
    *out_known = self->import.knows_producer;
    *out_stream = self->import.producer_stream;
  }
  return true;
}

/* False, with an exception and the tensor as it was. */
static bool release_in_order(onspy_state* state, onspy_tensor* self) {
  onspy_producer scratch;
  const onspy_producer* producer = onspy_producer_find(state, self->type, &scratch);
  bool known;
  void* stream;
  if (producer == NULL) return false;
  if (self->handle == NULL) return true; /* Python code of the type was faster */
  if (!find_producer_stream(state, self, producer, &known, &stream)) return false;
  ons_tensor* handle = self->handle;
  if (handle == NULL) return true; /* ... or that of the query */
  self->handle = NULL;
  if (!known) {
    ons_tensor_release(handle);
    return true;
  }
  /* Memory that is freed in no stream's order stays until the device is past it: with a
     reference left, nothing is freed here. */
  ons_error error = ONS_ERROR_INIT;
  if (self->import.retained) ons_tensor_retain(handle);
  ons_status status = ons_tensor_release_to(handle, stream, &error);
  if (self->import.retained) ons_tensor_release(handle);
  if (status == ONS_STATUS_OK) return true;
  self->handle = handle;
  return onspy_raise(state, &error) != NULL;
}

static bool is_ordered_release(const onspy_tensor* self) {
  return self->type != NULL && !self->import.on_host &&
         PyThread_get_thread_ident() == self->thread && !is_finalizing();
}

static bool release(onspy_state* state, onspy_tensor* self) {
  if (self->handle == NULL) return true;
  if (is_ordered_release(self)) {
    if (!release_in_order(state, self)) return false;
  } else {
    ons_tensor* handle = self->handle;
    self->handle = NULL;
    ons_tensor_release(handle);
  }
  Py_CLEAR(self->array);
  return true;
}

/* Raises nothing, and runs no Python code of the producer's: who has to be asked by that
 * gets the memory later. */
static void release_finally(onspy_tensor* self) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  bool in_order = self->array == NULL && is_ordered_release(self);
  if (!in_order || !release_in_order(onspy_state_of((PyObject*)self), self)) {
    PyErr_Clear();
    ons_tensor_release(self->handle);
    self->handle = NULL;
  }
  PyErr_Restore(type, value, traceback);
}

/* ---- making ----------------------------------------------------------------------- */

/* A Tensor has its stream already, unless it is in host memory. */
static PyObject* same_tensor(PyObject* object, bool given, const void* stream) {
  if (!given) return Py_NewRef(object);
  const ons_tensor* handle = onspy_tensor_handle(object);
  if (handle == NULL) return NULL;
  ons_arg arg = onspy_tensor_arg(handle);
  if (!(arg.flags & ONS_ARG_STREAM_KNOWN)) {
    return PyErr_Format(PyExc_ValueError,
                        "from_dlpack: got a Tensor in host memory, which has no stream; "
                        "leave stream out");
  }
  if (!onspy_streams_match(arg.stream, stream)) {
    return PyErr_Format(PyExc_ValueError,
                        "from_dlpack: a Tensor stays on its stream, %p, and %p is given; "
                        "import its array again",
                        arg.stream, stream);
  }
  return Py_NewRef(object);
}

PyObject* onspy_tensor_wrap(onspy_state* state, ons_tensor* tensor) {
  PyTypeObject* type = state->tensor_type; /* NULL: the interpreter is shutting down */
  onspy_tensor* self = type != NULL ? (onspy_tensor*)type->tp_alloc(type, 0) : NULL;
  if (self == NULL) {
    ons_tensor_release(tensor);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  }
  self->handle = tensor;
  self->thread = PyThread_get_thread_ident();
  return (PyObject*)self;
}

PyObject* onspy_from_dlpack(onspy_state* state, PyObject* object, PyObject* stream) {
  bool given;
  void* handle = NULL;
  if (!onspy_stream_parse(state, NULL, stream, &given, &handle)) return NULL;
  if (Py_IS_TYPE(object, state->tensor_type)) return same_tensor(object, given, handle);
  onspy_producer scratch;
  const onspy_producer* producer = onspy_producer_find(state, Py_TYPE(object), &scratch);
  if (producer == NULL) return NULL;
  onspy_import import = {0};
  ons_tensor* tensor = onspy_tensor_import(state, object, producer, given ? stream : NULL,
                                           handle, &import);
  if (tensor == NULL) return NULL;
  onspy_tensor* self = (onspy_tensor*)onspy_tensor_wrap(state, tensor);
  if (self == NULL) return NULL;
  self->type = (PyTypeObject*)Py_NewRef(Py_TYPE(object));
  self->array = producer->stream_of != NULL ? Py_NewRef(object) : NULL;
  self->import = import;
  return (PyObject*)self;
}

/* ---- as an argument --------------------------------------------------------------- */

static void drop_reference(void* tensor) { ons_tensor_release(tensor); }

bool onspy_call_tensor(onspy_call* call, size_t index, PyObject* object) {
  ons_tensor* handle = ((onspy_tensor*)object)->handle;
  if (handle == NULL) {
    onspy_raise_argument(call->kernel, index, call->state->error_argument_value,
                         "a Tensor that has been released; import the array again");
    return false;
  }
  /* Python code of another argument, or another thread, may release it meanwhile. */
  ons_tensor_retain(handle);
  if (!onspy_kept_add(&call->temporary, handle, drop_reference)) return false;
  ons_tensor_arg(handle, &call->args[index]);
  call->tensors[index] = *ons_tensor_dltensor(handle);
  call->device_seen |= !onspy_on_host(call->tensors[index].device);
  return !(onspy_traits(call->kernel, index) & ONSPY_PARAMETER_VALUE) ||
         onspy_scalar_from_tensor(call, index, object);
}

DLDevice onspy_tensor_device(PyObject* object) {
  const ons_tensor* handle = ((onspy_tensor*)object)->handle;
  return handle != NULL ? ons_tensor_dltensor(handle)->device
                        : (DLDevice){(DLDeviceType)0, 0};
}

/* ---- what it tells ---------------------------------------------------------------- */

ons_tensor* onspy_tensor_handle(PyObject* object) {
  ons_tensor* handle = ((onspy_tensor*)object)->handle;
  if (handle == NULL) PyErr_SetString(PyExc_ValueError, "the Tensor has been released");
  return handle;
}

static const DLTensor* tensor_of(PyObject* object) {
  const ons_tensor* handle = onspy_tensor_handle(object);
  return handle != NULL ? ons_tensor_dltensor(handle) : NULL;
}

static PyObject* get_shape(PyObject* self, void* Py_UNUSED(closure)) {
  const DLTensor* tensor = tensor_of(self);
  return tensor != NULL ? onspy_extents_tuple(tensor->shape, tensor->ndim, 1) : NULL;
}

static PyObject* get_strides(PyObject* self, void* Py_UNUSED(closure)) {
  const DLTensor* tensor = tensor_of(self);
  return tensor != NULL ? onspy_extents_tuple(tensor->strides, tensor->ndim, 1) : NULL;
}

static PyObject* get_ndim(PyObject* self, void* Py_UNUSED(closure)) {
  const DLTensor* tensor = tensor_of(self);
  return tensor != NULL ? PyLong_FromLong(tensor->ndim) : NULL;
}

/* Of a broadcast view, more than 64 bits may be needed. */
static bool count_times(const DLTensor* tensor, int64_t unit, int64_t* out_product) {
  *out_product = unit;
  bool overflows = false;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] == 0) {
      *out_product = 0;
      return true;
    }
    overflows |= __builtin_mul_overflow(*out_product, tensor->shape[i], out_product);
  }
  return !overflows;
}

bool onspy_size_bytes(const DLTensor* tensor, int64_t* out_bytes) {
  bool fits = count_times(tensor, tensor->dtype.bits * tensor->dtype.lanes, out_bytes);
  *out_bytes = (*out_bytes + 7) / 8;
  return fits;
}

static PyObject* size_or_overflow(bool fits, int64_t size) {
  if (fits) return PyLong_FromLongLong(size);
  PyErr_SetString(PyExc_OverflowError,
                  "the Tensor has more elements than can be counted");
  return NULL;
}

static PyObject* get_size(PyObject* self, void* Py_UNUSED(closure)) {
  const DLTensor* tensor = tensor_of(self);
  if (tensor == NULL) return NULL;
  int64_t count;
  bool fits = count_times(tensor, 1, &count);
  return size_or_overflow(fits, count);
}

static Py_ssize_t tensor_length(PyObject* self) {
  const DLTensor* tensor = tensor_of(self);
  if (tensor == NULL) return -1;
  if (tensor->ndim > 0) return (Py_ssize_t)tensor->shape[0];
  PyErr_SetString(PyExc_TypeError, "a Tensor without dimensions has no len()");
  return -1;
}

static PyObject* get_dtype(PyObject* self, void* Py_UNUSED(closure)) {
  const DLTensor* tensor = tensor_of(self);
  return tensor != NULL ? onspy_dtype_text(tensor->dtype) : NULL;
}

static PyObject* get_device(PyObject* self, void* Py_UNUSED(closure)) {
  const DLTensor* tensor = tensor_of(self);
  if (tensor == NULL) return NULL;
  switch ((int)tensor->device.device_type) {
    case kDLCPU:
      return PyUnicode_FromString("cpu");
    case kDLCUDA:
      return PyUnicode_FromFormat("cuda:%d", (int)tensor->device.device_id);
    case kDLCUDAHost:
      return PyUnicode_FromString("cuda_host");
    default: /* ons_tensor takes no other */
      return PyUnicode_FromFormat("cuda_managed:%d", (int)tensor->device.device_id);
  }
}

static PyObject* get_stream(PyObject* self, void* Py_UNUSED(closure)) {
  if (tensor_of(self) == NULL) return NULL;
  ons_arg arg;
  ons_tensor_arg(((onspy_tensor*)self)->handle, &arg);
  if (!(arg.flags & ONS_ARG_STREAM_KNOWN)) Py_RETURN_NONE;
  return PyLong_FromVoidPtr(arg.stream);
}

static PyObject* get_data_ptr(PyObject* self, void* Py_UNUSED(closure)) {
  const DLTensor* tensor = tensor_of(self);
  if (tensor == NULL) return NULL;
  return PyLong_FromUnsignedLongLong((uintptr_t)tensor->data + tensor->byte_offset);
}

static PyObject* get_nbytes(PyObject* self, void* Py_UNUSED(closure)) {
  const DLTensor* tensor = tensor_of(self);
  if (tensor == NULL) return NULL;
  int64_t bytes;
  bool fits = onspy_size_bytes(tensor, &bytes);
  return size_or_overflow(fits, bytes);
}

static PyObject* get_read_only(PyObject* self, void* Py_UNUSED(closure)) {
  if (tensor_of(self) == NULL) return NULL;
  ons_arg arg;
  ons_tensor_arg(((onspy_tensor*)self)->handle, &arg);
  return PyBool_FromLong(arg.flags & ONS_ARG_READ_ONLY);
}

static PyObject* tensor_repr(PyObject* self) {
  if (((onspy_tensor*)self)->handle == NULL) {
    return PyUnicode_FromString("<onstream.Tensor, released>");
  }
  PyObject* shape = get_shape(self, NULL);
  PyObject* dtype = shape != NULL ? get_dtype(self, NULL) : NULL;
  PyObject* device = dtype != NULL ? get_device(self, NULL) : NULL;
  PyObject* text =
      device != NULL
          ? PyUnicode_FromFormat("<onstream.Tensor %R of %U on %U>", shape, dtype, device)
          : NULL;
  Py_XDECREF(device);
  Py_XDECREF(dtype);
  Py_XDECREF(shape);
  return text;
}

/* ---- the type --------------------------------------------------------------------- */

PyDoc_STRVAR(
    release_doc,
    "release($self)\n--\n\n"
    "Gives the memory back to its library, now and without waiting.\n\n"
    "The library's current stream is made to wait, on the device, for what the tensor's "
    "stream holds, so that later work of the library comes after it. del does the same, "
    "when it drops the last reference. Called in another thread than the one that "
    "imported the tensor, or found by the garbage collector there, only the memory is "
    "kept until the device is past its uses. The tensor cannot be used afterwards; "
    "releasing it again does nothing. Raises OrderError, and leaves the tensor as it is, "
    "where one of the two streams is part of a capture and the other is not.");

static PyObject* tensor_release(PyObject* self, PyObject* Py_UNUSED(args)) {
  if (!release(onspy_state_of(self), (onspy_tensor*)self)) return NULL;
  Py_RETURN_NONE;
}

static int tensor_traverse(PyObject* object, visitproc visit, void* arg) {
  const onspy_tensor* self = (const onspy_tensor*)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject*)self->type);
  Py_VISIT(self->array);
  bool owns = self->handle != NULL && self->import.held != NULL &&
              ons_tensor_reference_count(self->handle) == 1;
  return owns ? onspy_held_traverse(self->import.held, visit, arg) : 0;
}

/* Before the collector clears anything that the memory or its stream may need. */
static void tensor_finalize(PyObject* object) {
  onspy_tensor* self = (onspy_tensor*)object;
  if (self->handle != NULL) release_finally(self);
}

static int tensor_clear(PyObject* object) {
  Py_CLEAR(((onspy_tensor*)object)->array);
  return 0;
}

static void tensor_dealloc(PyObject* object) {
  onspy_tensor* self = (onspy_tensor*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self->handle != NULL) release_finally(self);
  Py_XDECREF(self->array);
  Py_XDECREF((PyObject*)self->type);
  type->tp_free(object);
  Py_DECREF(type);
}

PyDoc_STRVAR(tensor_doc,
             "What from_dlpack() returns: an array's memory, kept until it is released, "
             "and used on one stream. An argument for kernels, and an array for the "
             "from_dlpack() of other libraries.");

static PyMethodDef tensor_methods[] = {
    {"release", tensor_release, METH_NOARGS, release_doc},
    {"__dlpack__", (PyCFunction)(void (*)(void))onspy_tensor_dlpack,
     METH_VARARGS | METH_KEYWORDS, onspy_tensor_dlpack_doc},
    {"__dlpack_device__", onspy_tensor_dlpack_device, METH_NOARGS,
     onspy_tensor_dlpack_device_doc},
    {"__arrow_c_device_array__", (PyCFunction)(void (*)(void))onspy_tensor_arrow,
     METH_VARARGS | METH_KEYWORDS, onspy_tensor_arrow_doc},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef tensor_getset[] = {
    {"shape", get_shape, NULL, "Extents, a tuple of int.", NULL},
    {"strides", get_strides, NULL, "In elements, a tuple of int.", NULL},
    {"ndim", get_ndim, NULL, "The number of dimensions.", NULL},
    {"size", get_size, NULL, "The number of elements.", NULL},
    {"dtype", get_dtype, NULL, "The name of the element type, such as 'float32'.", NULL},
    {"device", get_device, NULL,
     "'cpu', 'cuda:N', 'cuda_host' (pinned memory) or 'cuda_managed:N'.", NULL},
    {"stream", get_stream, NULL,
     "The native handle of the stream that it is used on; None for host memory.", NULL},
    {"data_ptr", get_data_ptr, NULL, "The address of the first element.", NULL},
    {"nbytes", get_nbytes, NULL, "The size of all elements, in bytes.", NULL},
    {"read_only", get_read_only, NULL, "True where kernels may only read it.", NULL},
    {"__cuda_array_interface__", onspy_tensor_array_interface, NULL,
     "Version 3, with the tensor's stream; only in a CUDA GPU's memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot tensor_slots[] = {
    {Py_tp_doc, (void*)tensor_doc},
    {Py_tp_repr, ONSPY_FUNCTION(tensor_repr)},
    {Py_tp_methods, ONSPY_FUNCTION(tensor_methods)},
    {Py_tp_getset, ONSPY_FUNCTION(tensor_getset)},
    {Py_sq_length, ONSPY_FUNCTION(tensor_length)},
    {Py_bf_getbuffer, ONSPY_FUNCTION(onspy_tensor_get_buffer)},
    {Py_bf_releasebuffer, ONSPY_FUNCTION(onspy_tensor_release_buffer)},
    {Py_tp_traverse, ONSPY_FUNCTION(tensor_traverse)},
    {Py_tp_clear, ONSPY_FUNCTION(tensor_clear)},
    {Py_tp_finalize, ONSPY_FUNCTION(tensor_finalize)},
    {Py_tp_dealloc, ONSPY_FUNCTION(tensor_dealloc)},
    {0, NULL}};

PyType_Spec onspy_tensor_spec = {
    .name = "onstream.Tensor",
    .basicsize = sizeof(onspy_tensor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = tensor_slots,
};
