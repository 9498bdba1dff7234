/* Arguments through the buffer protocol: NumPy arrays, and whatever else exports host
 * memory. */
#include <string.h>

#include "binding.h"

/* An export and the strides of its tensor; kept until the call is over. Never moved:
 * exporters may let the view point into itself. */
typedef struct export {
  Py_buffer view;
  int64_t strides[PyBUF_MAX_NDIM];
}
export;

void onspy_release_export(void* object) {
  export* held = object;
  PyBuffer_Release(&held->view);
  PyMem_Free(held);
}

PyObject* onspy_export_owner(const void* object) {
  return ((const export*)object)->view.obj;
}

/* Exports |object|; the call holds the export. PyBUF_RECORDS_RO: strides, format, maybe
 * read-only; exporters that need suboffsets refuse it. */
static export* take_export(onspy_call* call, PyObject* object) {
  export* held = PyMem_Malloc(sizeof *held);
  if (held == NULL) return (export*)PyErr_NoMemory();
  if (PyObject_GetBuffer(object, &held->view, PyBUF_RECORDS_RO) < 0) {
    PyMem_Free(held);
    return NULL;
  }
  return onspy_kept_add(&call->temporary, held, onspy_release_export) ? held : NULL;
}

/* ctypes gives no strides for its arrays, though it was asked for them. */
static bool convert_strides(export* held) {
  const Py_buffer* view = &held->view;
  if (view->strides == NULL) return view->shape != NULL || view->ndim == 0;
  for (int i = 0; i < view->ndim; ++i) {
    if (view->itemsize == 0 || view->strides[i] % view->itemsize != 0) return false;
    held->strides[i] = view->strides[i] / view->itemsize;
  }
  return true;
}

static bool pass_tensor(onspy_call* call, size_t index, PyObject* object, export* held,
                        DLDataType dtype) {
  const Py_buffer* view = &held->view;
  if (!convert_strides(held)) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_value,
        "a %.200s whose strides are not multiples of its elements' size; pass a "
        "contiguous copy",
        Py_TYPE(object)->tp_name);
    return false;
  }
  call->tensors[index] =
      (DLTensor){.data = view->buf,
                 .device = {kDLCPU, 0},
                 .ndim = view->ndim,
                 .dtype = dtype,
                 .shape = (int64_t*)view->shape,
                 .strides = view->strides != NULL ? held->strides : NULL};
  ons_arg* arg = &call->args[index];
  arg->kind = ONS_ARG_TENSOR;
  arg->value.tensor = &call->tensors[index];
  if (view->readonly) arg->flags |= ONS_ARG_READ_ONLY;
  return true;
}

/* Bytes without a type, or a record whose bytes mean the same to a kernel: no Python
 * objects, no foreign byte order. Of "T{<i:x:<f:y:}", the fields' names are skipped. */
static bool is_raw(const Py_buffer* view) {
  const char* format = view->format != NULL ? view->format : "B";
  if (*format == '<') ++format; /* as ctypes has it; bytes have no order */
  if (strcmp(format, "B") == 0 || strcmp(format, "c") == 0) return true;
  bool padding = format[strspn(format, "0123456789")] == 'x'; /* of an untyped np.void */
  if (!padding && strncmp(format, "T{", 2) != 0) return false;
  for (bool in_name = false; *format != '\0'; ++format) {
    if (*format == ':') in_name = !in_name;
    if (!in_name && strchr("O>!", *format) != NULL) return false;
  }
  return true;
}

static bool refuse_value(onspy_call* call, size_t index, PyObject* object) {
  bool is_struct = onspy_traits(call->kernel, index) & ONSPY_PARAMETER_STRUCT;
  onspy_raise_argument(
      call->kernel, index, call->state->error_argument_type, "a %.200s; pass %s",
      Py_TYPE(object)->tp_name,
      is_struct ? "the struct's bytes (bytes, a ctypes.Structure, a NumPy record)"
                : "a number: bytes are only taken for structs");
  return false;
}

static bool pass_bytes(onspy_call* call, size_t index, PyObject* object,
                       const export* held) {
  if (!is_raw(&held->view)) return refuse_value(call, index, object);
  if (!PyBuffer_IsContiguous(&held->view, 'C')) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_value,
        "a %.200s whose bytes are not contiguous; pass a contiguous copy",
        Py_TYPE(object)->tp_name);
    return false;
  }
  ons_arg* arg = &call->args[index];
  arg->kind = ONS_ARG_BYTES;
  arg->value.bytes = held->view.buf;
  arg->size_bytes = (size_t)held->view.len;
  return true;
}

/* NumPy exports no buffers of dtypes that Python has no letter for (bfloat16, float8):
 * those are exported as integers of the same size, under their own name. */
static export* take_renamed(onspy_call* call, PyObject* object, DLDataType* out_dtype) {
  PyErr_Clear();
  PyObject* helpers = onspy_helpers(call->state);
  PyObject* pair =
      helpers != NULL ? PyObject_CallMethod(helpers, "numpy_bits", "O", object) : NULL;
  export* held = NULL;
  PyObject* bits;
  const char* name;
  if (pair != NULL && PyArg_ParseTuple(pair, "Os", &bits, &name) &&
      onspy_dtype_from_name(name, out_dtype)) {
    held = take_export(call, bits); /* which keeps |bits| */
  }
  Py_XDECREF(pair);
  return held;
}

static bool refuse_elements(onspy_call* call, size_t index, PyObject* object) {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyObject* dtype = PyObject_GetAttr(object, call->state->str_dtype);
  if (dtype != NULL) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "a %.200s of dtype %R, which no kernel takes (not native, or not a number); "
        "convert it, as with x.astype(\"float32\")",
        Py_TYPE(object)->tp_name, dtype);
    Py_DECREF(dtype);
    return false;
  }
  PyErr_Clear();
  onspy_raise_argument(
      call->kernel, index, call->state->error_argument_type,
      "a %.200s whose buffer no kernel takes; pass a NumPy array of numbers",
      Py_TYPE(object)->tp_name);
  return false;
}

bool onspy_call_buffer(onspy_call* call, size_t index, PyObject* object,
                       const onspy_producer* producer) {
  DLDataType dtype = {0};
  uint32_t traits = onspy_traits(call->kernel, index);
  bool numpy = producer->library == ONSPY_LIBRARY_NUMPY;
  export* held = take_export(call, object);
  bool named = held != NULL &&
               onspy_dtype_from_format(held->view.format, held->view.itemsize, &dtype);
  if (held == NULL && numpy) {
    held = take_renamed(call, object, &dtype);
    named = held != NULL;
  }
  if (held == NULL) return refuse_elements(call, index, object);
  bool number =
      (traits & ONSPY_PARAMETER_VECTOR) && numpy && named && held->view.ndim == 0;
  if ((traits & ONSPY_PARAMETER_STRUCT) && !number) {
    return numpy && named ? pass_tensor(call, index, object, held, dtype)
                          : pass_bytes(call, index, object, held);
  }
  if (traits & ONSPY_PARAMETER_VALUE) {
    if (!numpy) return refuse_value(call, index, object);
    if (held->view.ndim == 0) return onspy_scalar_from_number(call, index, object);
  }
  return named ? pass_tensor(call, index, object, held, dtype)
               : refuse_elements(call, index, object);
}
