/* stream=: what may be given, and the native handle in it. */
#include "binding.h"

static bool refuse(const onspy_kernel* kernel, PyObject* stream) {
  PyErr_Format(
      PyExc_TypeError,
      "kernel '%s': stream must be None, a native handle as int, or a stream object of "
      "torch, CuPy, Numba or with __cuda_stream__, not %.200s",
      ons_kernel_name(kernel->handle), Py_TYPE(stream)->tp_name);
  return false;
}

static bool from_int(const onspy_kernel* kernel, PyObject* number, void** out_stream) {
  if (PyObject_RichCompareBool(number, Py_False, Py_LT) == 1) {
    PyErr_Format(
        PyExc_ValueError,
        "kernel '%s': stream must not be negative: %R is no stream (leave stream out to "
        "launch on the arguments' own)",
        ons_kernel_name(kernel->handle), number);
    return false;
  }
  if (PyErr_Occurred()) return false;
  unsigned long long handle = PyLong_AsUnsignedLongLong(number);
  if (handle == (unsigned long long)-1 && PyErr_Occurred()) {
    PyErr_Format(PyExc_ValueError, "kernel '%s': stream is not a handle: %R",
                 ons_kernel_name(kernel->handle), number);
    return false;
  }
  *out_stream = (void*)(uintptr_t)handle;
  return true;
}

/* The attribute, NULL without an exception where there is none. */
static PyObject* optional(PyObject* object, PyObject* name) {
  PyObject* found = PyObject_GetAttr(object, name);
  if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return found;
}

/* (0, handle), from a method or, in its first version, an attribute. Takes over
 * |protocol|. */
static bool from_protocol(const onspy_kernel* kernel, PyObject* stream,
                          PyObject* protocol, void** out_stream) {
  PyObject* pair =
      PyCallable_Check(protocol) ? PyObject_CallNoArgs(protocol) : Py_NewRef(protocol);
  Py_DECREF(protocol);
  if (pair == NULL) return false;
  bool parsed = false;
  if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 ||
      !PyLong_Check(PyTuple_GET_ITEM(pair, 0)) ||
      !PyLong_Check(PyTuple_GET_ITEM(pair, 1))) {
    PyErr_Format(PyExc_TypeError,
                 "kernel '%s': %.200s.__cuda_stream__ must give (0, handle), not %R",
                 ons_kernel_name(kernel->handle), Py_TYPE(stream)->tp_name, pair);
  } else if (PyObject_IsTrue(PyTuple_GET_ITEM(pair, 0))) {
    PyErr_Format(PyExc_ValueError,
                 "kernel '%s': %.200s.__cuda_stream__ has version %S; 0 is understood",
                 ons_kernel_name(kernel->handle), Py_TYPE(stream)->tp_name,
                 PyTuple_GET_ITEM(pair, 0));
  } else {
    parsed = from_int(kernel, PyTuple_GET_ITEM(pair, 1), out_stream);
  }
  Py_DECREF(pair);
  return parsed;
}

/* An int, or a ctypes pointer, whose value is None for 0. Takes over |handle|. */
static bool from_handle(const onspy_kernel* kernel, PyObject* stream, PyObject* handle,
                        void** out_stream) {
  if (!PyLong_Check(handle)) {
    PyObject* value = PyObject_GetAttrString(handle, "value");
    Py_DECREF(handle);
    if (value == Py_None) {
      Py_DECREF(value);
      *out_stream = NULL;
      return true;
    }
    if (value == NULL || !PyLong_Check(value)) {
      Py_XDECREF(value);
      PyErr_Clear();
      return refuse(kernel, stream);
    }
    handle = value;
  }
  bool parsed = from_int(kernel, handle, out_stream);
  Py_DECREF(handle);
  return parsed;
}

bool onspy_stream_parse(const onspy_kernel* kernel, PyObject* stream, bool* out_given,
                        void** out_stream) {
  *out_given = stream != Py_None;
  if (stream == Py_None) return true;
  const onspy_state* state = kernel->state;
  if (PyBool_Check(stream)) return refuse(kernel, stream);
  if (PyLong_Check(stream)) return from_int(kernel, stream, out_stream);
  PyObject* protocol = optional(stream, state->str_cuda_stream_protocol);
  if (protocol != NULL) return from_protocol(kernel, stream, protocol, out_stream);
  PyObject* const names[] = {state->str_cuda_stream, state->str_ptr, state->str_handle};
  for (size_t i = 0; i < sizeof names / sizeof *names && !PyErr_Occurred(); ++i) {
    PyObject* handle = optional(stream, names[i]);
    if (handle != NULL) return from_handle(kernel, stream, handle, out_stream);
  }
  return PyErr_Occurred() ? false : refuse(kernel, stream);
}
