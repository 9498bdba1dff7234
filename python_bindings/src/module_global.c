/* Module.global_ and set_global: variables of a module. */
#include <string.h>

#include "binding.h"

/* The stream that the tensor is to be on: of a CPU none. */
static bool find_stream(const onspy_state* state, DLDevice device, const char* method,
                        PyObject* given, void** out_stream) {
  bool is_given = false;
  *out_stream = NULL;
  if (!onspy_stream_parse(state, NULL, given, &is_given, out_stream)) return false;
  if (is_given && onspy_on_host(device)) {
    PyErr_Format(PyExc_ValueError,
                 "%s: a stream is given for a variable on the CPU, which has none: leave "
                 "it out",
                 method);
    return false;
  }
  const onspy_use_stream* used = is_given ? NULL : onspy_used_stream(device);
  if (used != NULL) *out_stream = used->stream;
  return true;
}

/* Compiles where needed, and raises what the source has wrong. */
static ons_tensor* find_variable(onspy_module* self, const char* name, DLDevice device,
                                 void* stream) {
  ons_tensor* tensor = NULL;
  ons_error error = ONS_ERROR_INIT;
  ons_blob* log = NULL;
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_module_prepare(self->handle, device, &log, &error);
  if (status == ONS_STATUS_OK) {
    status = ons_module_global(self->handle, device, name, stream, &tensor, &error);
  }
  Py_END_ALLOW_THREADS;
  if (status != ONS_STATUS_OK) onspy_raise_compile(self, &error, log);
  ons_blob_release(log);
  return tensor;
}

PyObject* onspy_module_global(PyObject* object, PyObject* args, PyObject* kwargs) {
  onspy_module* self = (onspy_module*)object;
  static char* keywords[] = {"name", "device", "stream", NULL};
  const char* name;
  PyObject *place = Py_None, *given = Py_None;
  DLDevice device;
  void* stream;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|OO:global_", keywords, &name, &place,
                                   &given) ||
      !onspy_device_parse(self->state, place, &device) ||
      !find_stream(self->state, device, "global_", given, &stream)) {
    return NULL;
  }
  ons_tensor* tensor = find_variable(self, name, device, stream);
  return tensor != NULL ? onspy_tensor_wrap(self->state, tensor) : NULL;
}

/* Numbers must be of the variable's type; bytes are taken as they are. */
static bool check_dtype(const char* name, const ons_tensor* tensor,
                        const Py_buffer* view) {
  const DLDataType dtype = ons_tensor_dltensor(tensor)->dtype;
  DLDataType given;
  const bool is_known = onspy_dtype_from_format(view->format, view->itemsize, &given);
  const bool is_bytes = view->itemsize == 1 && is_known && given.code == kDLUInt;
  if (is_bytes || (is_known && memcmp(&given, &dtype, sizeof given) == 0)) return true;
  PyObject* expected = onspy_dtype_text(dtype);
  if (expected == NULL) return false;
  PyErr_Format(
      PyExc_TypeError,
      "set_global: variable '%s' has the dtype %U, the data has the format '%s': "
      "convert it, or pass its bytes",
      name, expected, view->format != NULL ? view->format : "B");
  Py_DECREF(expected);
  return false;
}

static bool set(onspy_module* self, const char* name, DLDevice device, void* stream,
                const Py_buffer* view) {
  ons_error error = ONS_ERROR_INIT;
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_module_set_global(self->handle, device, name, stream, view->buf,
                                 (size_t)view->len, &error);
  Py_END_ALLOW_THREADS;
  return status == ONS_STATUS_OK || onspy_raise(self->state, &error) != NULL;
}

PyObject* onspy_module_set_global(PyObject* object, PyObject* args, PyObject* kwargs) {
  onspy_module* self = (onspy_module*)object;
  static char* keywords[] = {"name", "data", "device", "stream", NULL};
  const char* name;
  PyObject *data, *place = Py_None, *given = Py_None;
  DLDevice device;
  void* stream;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO|OO:set_global", keywords, &name,
                                   &data, &place, &given) ||
      !onspy_device_parse(self->state, place, &device) ||
      !find_stream(self->state, device, "set_global", given, &stream)) {
    return NULL;
  }
  Py_buffer view;
  if (PyObject_GetBuffer(data, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return NULL;
  ons_tensor* tensor = find_variable(self, name, device, stream);
  bool ok = tensor != NULL && check_dtype(name, tensor, &view) &&
            set(self, name, device, stream, &view);
  ons_tensor_release(tensor);
  PyBuffer_Release(&view);
  if (!ok) return NULL;
  Py_RETURN_NONE;
}
