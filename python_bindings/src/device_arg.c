/* device=: "cpu", "cuda", "cuda:1", a torch.device, a DLPack pair. */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

static bool refuse(PyObject* device) {
  PyErr_Format(
      PyExc_ValueError,
      "device must be None, 'cpu', 'cuda', 'cuda:N', a torch.device, (1, 0) or (2, N) as "
      "in DLPack, not %R",
      device);
  return false;
}

/* Tensors may have any index with host memory, for which producers do not agree; whoever
 * names a device means one. */
static bool exists(DLDevice device) {
  return device.device_type == kDLCUDA
             ? device.device_id >= 0
             : device.device_type == kDLCPU && device.device_id == 0;
}

static bool from_text(PyObject* device, const char* text, DLDevice* out_device) {
  const char* colon = strchr(text, ':');
  size_t bytes = colon != NULL ? (size_t)(colon - text) : strlen(text);
  if (bytes == 3 && strncmp(text, "cpu", bytes) == 0) {
    out_device->device_type = kDLCPU;
  } else if (bytes == 4 && strncmp(text, "cuda", bytes) == 0) {
    out_device->device_type = kDLCUDA;
  } else {
    return refuse(device);
  }
  out_device->device_id = 0;
  if (colon == NULL) return true;
  char* end;
  long index = strtol(colon + 1, &end, 10);
  if (end == colon + 1 || *end != '\0' || index < 0 || index > INT32_MAX)
    return refuse(device);
  out_device->device_id = (int32_t)index;
  return exists(*out_device) || refuse(device);
}

/* Not having a driver is one of the answers. */
static bool first_available(onspy_state* state, DLDevice* out_device) {
  ons_runtime* runtime = onspy_runtime(state);
  if (runtime == NULL) return false;
  int32_t count = 0;
  ons_status status;
  Py_BEGIN_ALLOW_THREADS; /* the first time, the driver starts up */
  status = ons_runtime_device_count(runtime, kDLCUDA, &count, NULL);
  Py_END_ALLOW_THREADS;
  bool gpu = status == ONS_STATUS_OK && count > 0;
  *out_device = (DLDevice){gpu ? kDLCUDA : kDLCPU, 0};
  return true;
}

bool onspy_device_parse(onspy_state* state, PyObject* device, DLDevice* out_device) {
  if (device == Py_None) return first_available(state, out_device);
  if (PyTuple_Check(device)) {
    int type, index;
    if (!PyArg_ParseTuple(device, "ii", &type, &index)) {
      PyErr_Clear();
      return refuse(device);
    }
    *out_device = (DLDevice){(DLDeviceType)type, index};
    return exists(*out_device) || refuse(device);
  }
  PyObject* text = PyObject_Str(device);
  const char* utf8 = text != NULL ? onspy_text_of(text, "device") : NULL;
  bool parsed = utf8 != NULL && from_text(device, utf8, out_device);
  Py_XDECREF(text);
  return parsed;
}
