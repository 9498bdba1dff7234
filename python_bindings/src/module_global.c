/* Module.global_: variables of a module as tensors. */
#include "binding.h"

/* The stream that the tensor is to be on: of a CPU none. */
static bool find_stream(const onspy_state* state, DLDevice device, PyObject* given,
                        void** out_stream) {
  bool is_given = false;
  *out_stream = NULL;
  if (!onspy_stream_parse(state, NULL, given, &is_given, out_stream)) return false;
  if (is_given && onspy_on_host(device)) {
    PyErr_SetString(PyExc_ValueError,
                    "global_: a stream is given for a variable on the CPU, which has "
                    "none: leave it out");
    return false;
  }
  const onspy_use_stream* used = is_given ? NULL : onspy_used_stream(device);
  if (used != NULL) *out_stream = used->stream;
  return true;
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
      !find_stream(self->state, device, given, &stream)) {
    return NULL;
  }
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
  return status == ONS_STATUS_OK ? onspy_tensor_wrap(self->state, tensor) : NULL;
}
