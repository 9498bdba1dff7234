/* stream=: what may be given, and the native handle in it. */
#include <stdarg.h>
#include <string.h>

#include "binding.h"

/* What is being read, and for whom. */
typedef struct stream_input {
  const onspy_state* state;
  const onspy_kernel* kernel; /* that the errors name, or NULL */
  PyObject* stream;
} stream_input;

static bool refuse(const stream_input* input, PyObject* kind, const char* format, ...) {
  va_list list;
  va_start(list, format);
  PyObject* message = PyUnicode_FromFormatV(format, list);
  va_end(list);
  if (message != NULL && input->kernel != NULL) {
    PyErr_Format(kind, "kernel '%s': %U", ons_kernel_name(input->kernel->handle),
                 message);
  } else if (message != NULL) {
    PyErr_SetObject(kind, message);
  }
  Py_XDECREF(message);
  return false;
}

static bool from_int(const stream_input* input, PyObject* number, void** out_stream) {
  if (PyObject_RichCompareBool(number, Py_False, Py_LT) == 1) {
    return refuse(input, PyExc_ValueError,
                  "stream must not be negative: %R is no stream (leave stream out to "
                  "launch on the arguments' own)",
                  number);
  }
  if (PyErr_Occurred()) return false;
  unsigned long long handle = PyLong_AsUnsignedLongLong(number);
  if (handle == (unsigned long long)-1 && PyErr_Occurred()) {
    return refuse(input, PyExc_ValueError, "stream is not a handle: %R", number);
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

static bool has(PyObject* object, const char* name) {
  PyObject* found = PyObject_GetAttrString(object, name);
  PyErr_Clear();
  Py_XDECREF(found);
  return found != NULL;
}

/* ---- what is no stream ------------------------------------------------------------ */

static bool is_sycl(const stream_input* input) {
  PyObject* stream = input->stream;
  const char* name = strrchr(Py_TYPE(stream)->tp_name, '.');
  name = name != NULL ? name + 1 : Py_TYPE(stream)->tp_name;
  return strcmp(name, "SyclQueue") == 0 || PyCapsule_IsValid(stream, "SyclQueueRef") ||
         PyCapsule_IsValid(stream, "used_SyclQueueRef") || has(stream, "sycl_queue");
}

static bool refuse_type(const stream_input* input) {
  const char* name = Py_TYPE(input->stream)->tp_name;
  if (is_sycl(input)) {
    return refuse(
        input, PyExc_TypeError,
        "stream is a %.200s, a queue of SYCL: another platform than the one "
        "that kernels are launched on",
        PyCapsule_CheckExact(input->stream) ? PyCapsule_GetName(input->stream) : name);
  }
  return refuse(input, PyExc_TypeError,
                "stream must be None, a native handle as int, or a stream object of "
                "torch, CuPy, Numba, PyCUDA, Warp or with __cuda_stream__, not %.200s",
                name);
}

/* Arrays and buffers have `ptr` and `handle` as well, of memory. */
static bool is_array(const stream_input* input) {
  PyObject* type = (PyObject*)Py_TYPE(input->stream);
  return PyObject_HasAttr(type, input->state->str_dlpack) ||
         PyObject_HasAttr(type, input->state->str_array_interface);
}

/* ---- handles ---------------------------------------------------------------------- */

/* (0, handle), from a method or, in its first version, an attribute. Takes over
 * |protocol|. */
static bool from_protocol(const stream_input* input, PyObject* protocol,
                          void** out_stream) {
  PyObject* pair =
      PyCallable_Check(protocol) ? PyObject_CallNoArgs(protocol) : Py_NewRef(protocol);
  Py_DECREF(protocol);
  if (pair == NULL) return false;
  const char* name = Py_TYPE(input->stream)->tp_name;
  bool parsed = false;
  if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 ||
      !PyLong_Check(PyTuple_GET_ITEM(pair, 0)) ||
      !PyLong_Check(PyTuple_GET_ITEM(pair, 1))) {
    refuse(input, PyExc_TypeError, "%.200s.__cuda_stream__ must give (0, handle), not %R",
           name, pair);
  } else if (PyObject_IsTrue(PyTuple_GET_ITEM(pair, 0))) {
    refuse(input, PyExc_ValueError,
           "%.200s.__cuda_stream__ has version %S; 0 is understood", name,
           PyTuple_GET_ITEM(pair, 0));
  } else {
    parsed = from_int(input, PyTuple_GET_ITEM(pair, 1), out_stream);
  }
  Py_DECREF(pair);
  return parsed;
}

/* An int, or a ctypes pointer, whose value is None for 0. Takes over |handle|. */
static bool from_handle(const stream_input* input, PyObject* handle, void** out_stream) {
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
      return refuse_type(input);
    }
    handle = value;
  }
  bool parsed = from_int(input, handle, out_stream);
  Py_DECREF(handle);
  return parsed;
}

/* torch.Stream, which torch.accelerator gives, is of any platform. */
static bool is_generic_stream_on_cuda(const stream_input* input) {
  PyObject* device = PyObject_GetAttrString(input->stream, "device");
  PyObject* type = device != NULL ? PyObject_GetAttrString(device, "type") : NULL;
  bool found = type != NULL && PyUnicode_Check(type) &&
               PyUnicode_CompareWithASCIIString(type, "cuda") == 0;
  Py_XDECREF(type);
  Py_XDECREF(device);
  PyErr_Clear();
  return found;
}

static bool from_object(const stream_input* input, void** out_stream) {
  const onspy_state* state = input->state;
  PyObject* protocol = optional(input->stream, state->str_cuda_stream_protocol);
  if (protocol != NULL) return from_protocol(input, protocol, out_stream);
  PyObject* const names[] = {state->str_cuda_stream, state->str_ptr, state->str_handle};
  for (size_t i = 0; i < sizeof names / sizeof *names && !PyErr_Occurred(); ++i) {
    PyObject* handle = optional(input->stream, names[i]);
    if (handle == NULL) continue;
    if (!is_array(input)) return from_handle(input, handle, out_stream);
    Py_DECREF(handle);
  }
  if (PyErr_Occurred()) return false;
  if (is_generic_stream_on_cuda(input)) {
    PyObject* handle = optional(input->stream, state->str_native_handle);
    if (handle != NULL) return from_handle(input, handle, out_stream);
    if (PyErr_Occurred()) return false;
  }
  return refuse_type(input);
}

bool onspy_stream_parse(const onspy_state* state, const onspy_kernel* kernel,
                        PyObject* stream, bool* out_given, void** out_stream) {
  *out_given = stream != Py_None;
  if (stream == Py_None) return true;
  const stream_input input = {state, kernel, stream};
  if (PyBool_Check(stream)) return refuse_type(&input);
  if (PyLong_Check(stream)) return from_int(&input, stream, out_stream);
  return from_object(&input, out_stream);
}

bool onspy_order_parse(PyObject* order, uint32_t* out_order) {
  static const char* const names[] = {"join", "strict", "trust"};
  *out_order = ONS_ORDER_DEFAULT;
  if (order == Py_None) return true;
  const char* text = PyUnicode_Check(order) ? PyUnicode_AsUTF8(order) : NULL;
  for (uint32_t i = 0; text != NULL && i < 3; ++i) {
    if (strcmp(text, names[i]) != 0) continue;
    *out_order = ONS_ORDER_JOIN + i;
    return true;
  }
  PyErr_Format(PyExc_ValueError, "order must be 'join', 'strict' or 'trust', not %R",
               order);
  return false;
}
