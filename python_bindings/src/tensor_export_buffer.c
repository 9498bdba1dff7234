/* onstream.Tensor to consumers of an address: the buffer protocol for host memory,
 * __cuda_array_interface__ for a GPU's. */
#include <string.h>

#include "tensor_object.h"

/* ---- the buffer protocol ---------------------------------------------------------- */

/* What a buffer points at, with a reference: the Tensor may be released meanwhile. */
typedef struct exported {
  ons_tensor* tensor;
  Py_ssize_t extents[]; /* shape, and strides in bytes */
} exported;

static int refuse(Py_buffer* view, const char* why) {
  view->obj = NULL;
  PyErr_Format(PyExc_BufferError, "a Tensor %s", why);
  return -1;
}

static bool asks(int flags, int wanted) { return (flags & wanted) == wanted; }

/* Of a tensor whose size can be counted. */
static bool is_dense(const DLTensor* tensor, bool by_columns) {
  int64_t expected = 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] == 0) return true;
  }
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    int32_t axis = by_columns ? i : tensor->ndim - 1 - i;
    if (tensor->shape[axis] != 1 && tensor->strides[axis] != expected) return false;
    expected *= tensor->shape[axis];
  }
  return true;
}

/* NULL, or why there is no buffer as it is asked for. */
static const char* check(const ons_arg* arg, int flags) {
  const DLTensor* tensor = arg->value.tensor;
  int64_t bytes;
  if (!onspy_on_host(tensor->device))
    return "in a GPU's memory has no buffer; take it with __dlpack__(dl_device=(1, 0))";
  if (onspy_dtype_format(tensor->dtype) == NULL)
    return "of this dtype has no buffer, as Python has no letter for it; use __dlpack__";
  if (arg->flags & ONS_ARG_REQUIRES_GRAD)
    return "that requires grad has no buffer; import x.detach() instead of x";
  if (tensor->ndim > PyBUF_MAX_NDIM) return "of more than 64 dimensions has no buffer";
  if (!onspy_size_bytes(tensor, &bytes))
    return "of more bytes than can be counted has no buffer";
  if (asks(flags, PyBUF_WRITABLE) && (arg->flags & ONS_ARG_READ_ONLY))
    return "that is read-only has no writable buffer";
  bool rows = is_dense(tensor, false), columns = is_dense(tensor, true);
  bool fits = (rows || asks(flags, PyBUF_STRIDES)) &&
              (rows || !asks(flags, PyBUF_C_CONTIGUOUS)) &&
              (columns || !asks(flags, PyBUF_F_CONTIGUOUS)) &&
              (rows || columns || !asks(flags, PyBUF_ANY_CONTIGUOUS));
  return fits ? NULL : "of these strides has no contiguous buffer";
}

int onspy_tensor_get_buffer(PyObject* object, Py_buffer* view, int flags) {
  ons_tensor* handle = ((onspy_tensor*)object)->handle;
  if (handle == NULL) return refuse(view, "that has been released has no buffer");
  ons_arg arg = onspy_tensor_arg(handle);
  const char* why = check(&arg, flags);
  if (why != NULL) return refuse(view, why);
  const DLTensor* tensor = arg.value.tensor;
  size_t ndim = (size_t)tensor->ndim;
  exported* self = PyMem_Malloc(sizeof *self + 2 * ndim * sizeof *self->extents);
  if (self == NULL) {
    view->obj = NULL;
    PyErr_NoMemory();
    return -1;
  }
  Py_ssize_t item = tensor->dtype.bits / 8;
  int64_t bytes = 0;
  (void)onspy_size_bytes(tensor, &bytes); /* checked */
  for (size_t i = 0; i < ndim; ++i) {
    self->extents[i] = (Py_ssize_t)tensor->shape[i];
    self->extents[ndim + i] = (Py_ssize_t)((size_t)tensor->strides[i] * (size_t)item);
  }
  ons_tensor_retain(handle);
  self->tensor = handle;
  *view = (Py_buffer){
      .buf = tensor->data != NULL ? tensor->data : self, /* of nothing, somewhere */
      .obj = Py_NewRef(object),
      .len = bytes,
      .itemsize = item,
      .readonly = (arg.flags & ONS_ARG_READ_ONLY) != 0,
      .ndim = tensor->ndim,
      .format = asks(flags, PyBUF_FORMAT)
                    ? (char*)(uintptr_t)onspy_dtype_format(tensor->dtype)
                    : NULL,
      .shape = asks(flags, PyBUF_ND) ? self->extents : NULL,
      .strides = asks(flags, PyBUF_STRIDES) ? self->extents + ndim : NULL,
      .internal = self};
  return 0;
}

void onspy_tensor_release_buffer(PyObject* Py_UNUSED(object), Py_buffer* view) {
  exported* self = view->internal;
  ons_tensor_release(self->tensor);
  PyMem_Free(self);
}

/* ---- __cuda_array_interface__ ----------------------------------------------------- */

/* hasattr() says no. */
static PyObject* lack(const char* why) {
  return PyErr_Format(PyExc_AttributeError,
                      "a Tensor %s has no __cuda_array_interface__; use __dlpack__", why);
}

PyObject* onspy_tensor_array_interface(PyObject* object, void* Py_UNUSED(closure)) {
  const ons_tensor* handle = onspy_tensor_handle(object);
  if (handle == NULL) return NULL;
  ons_arg arg = onspy_tensor_arg(handle);
  const DLTensor* tensor = arg.value.tensor;
  char typestr[8];
  bool on_cuda = tensor->device.device_type == kDLCUDA ||
                 tensor->device.device_type == kDLCUDAManaged;
  if (!on_cuda) return lack("outside of a CUDA GPU's memory");
  int64_t bytes;
  if (!onspy_dtype_typestr(tensor->dtype, typestr)) return lack("of this dtype");
  if (!onspy_size_bytes(tensor, &bytes)) return lack("of more bytes than can be counted");
  if (arg.flags & ONS_ARG_REQUIRES_GRAD) return lack("that requires grad");
  PyObject* shape = onspy_extents_tuple(tensor->shape, tensor->ndim, 1);
  PyObject* strides =
      is_dense(tensor, false)
          ? Py_NewRef(Py_None)
          : onspy_extents_tuple(tensor->strides, tensor->ndim, tensor->dtype.bits / 8);
  PyObject* stream = PyLong_FromVoidPtr(arg.stream != NULL ? arg.stream : (void*)1);
  PyObject* interface = NULL;
  if (shape != NULL && strides != NULL && stream != NULL) {
    interface =
        Py_BuildValue("{sO ss s(KO) sO si sO}", "shape", shape, "typestr", typestr,
                      "data", (unsigned long long)(uintptr_t)tensor->data,
                      arg.flags & ONS_ARG_READ_ONLY ? Py_True : Py_False, "strides",
                      strides, "version", 3, "stream", stream);
  }
  Py_XDECREF(stream);
  Py_XDECREF(strides);
  Py_XDECREF(shape);
  return interface;
}
