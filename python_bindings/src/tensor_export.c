/* onstream.Tensor.__dlpack__. */
#include "tensor_object.h"

/* What a consumer asks for. */
typedef struct request {
  onspy_state* state;
  ons_tensor* tensor; /* one reference */
  DLDevice own;
  bool versioned;
  uint32_t minor; /* the highest that the consumer knows */
  bool to_host;   /* it asks for the host, where the tensor may be or not */
  bool ordered;
  void* stream; /* if ordered */
  int copy;     /* -1: as needed */
} request;

void* onspy_raise_export(onspy_state* state, const ons_error* error) {
  if (error->code != ONS_STATUS_UNSUPPORTED) return onspy_raise(state, error);
  PyErr_SetString(PyExc_BufferError, error->message);
  return NULL;
}

/* ---- what is asked for ------------------------------------------------------------ */

/* Two ints, each cut to what fits. */
static bool read_pair(PyObject* pair, const char* name, long out_values[2]) {
  bool valid = PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2;
  for (Py_ssize_t i = 0; valid && i < 2; ++i) {
    PyObject* item = PyTuple_GET_ITEM(pair, i);
    int overflow = 0;
    valid = PyLong_Check(item);
    if (!valid) break;
    out_values[i] = PyLong_AsLongAndOverflow(item, &overflow);
    if (overflow != 0) out_values[i] = overflow < 0 ? LONG_MIN : LONG_MAX;
  }
  if (!valid)
    PyErr_Format(PyExc_TypeError, "%s must be a tuple of two ints, not %R", name, pair);
  return valid;
}

static bool read_version(request* self, PyObject* max_version) {
  long version[2];
  if (max_version == Py_None) return true;
  if (!read_pair(max_version, "max_version", version)) return false;
  if (version[0] < 0 || version[1] < 0) {
    PyErr_Format(PyExc_ValueError, "max_version must not be negative, as in %R",
                 max_version);
    return false;
  }
  self->versioned = version[0] >= DLPACK_MAJOR_VERSION;
  bool older = version[0] == DLPACK_MAJOR_VERSION && version[1] < DLPACK_MINOR_VERSION;
  self->minor = older ? (uint32_t)version[1] : DLPACK_MINOR_VERSION;
  return true;
}

static bool read_device(request* self, PyObject* device) {
  long wanted[2];
  self->to_host = onspy_on_host(self->own);
  if (device == Py_None) return true;
  if (!read_pair(device, "dl_device", wanted)) return false;
  if (wanted[0] == (long)self->own.device_type && wanted[1] == self->own.device_id)
    return true;
  self->to_host = wanted[0] == kDLCPU && wanted[1] == 0;
  if (self->to_host) {
    if (self->own.device_type == kDLCUDAHost) self->own = (DLDevice){kDLCPU, 0};
    return true;
  }
  PyErr_Format(PyExc_BufferError,
               "a Tensor on device (%d, %d) is exported there or to the host, (1, 0), "
               "not to dl_device=%R",
               (int)self->own.device_type, (int)self->own.device_id, device);
  return false;
}

static bool refuse_stream(PyObject* stream, const char* why) {
  PyErr_Format(PyExc_ValueError, "stream=%R: %s", stream, why);
  return false;
}

static bool read_stream_number(request* self, PyObject* stream) {
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(stream, &overflow);
  bool on_rocm = self->own.device_type == kDLROCM;
  self->ordered = overflow != 0 || number != -1;
  if (!self->ordered) return true;
  if (overflow < 0 || (overflow == 0 && number < 0))
    return refuse_stream(stream, "no stream is negative, and -1 asks for no order");
  if (overflow == 0 && !on_rocm && number == 0) {
    return refuse_stream(stream,
                         "0 is ambiguous on CUDA; 1 names the legacy default stream, 2 "
                         "the per-thread one");
  }
  if (overflow == 0 && on_rocm && (number == 1 || number == 2))
    return refuse_stream(stream, "ROCm has no such default streams; 0 names its own");
  unsigned long long handle = PyLong_AsUnsignedLongLong(stream);
  if (PyErr_Occurred()) return refuse_stream(stream, "that is no handle");
  self->stream = (void*)(uintptr_t)handle;
  return true;
}

static bool read_stream(request* self, PyObject* stream) {
  bool is_number = PyLong_Check(stream) && !PyBool_Check(stream);
  self->ordered = true; /* None: with the legacy default stream, or the host */
  if (stream == Py_None) return true;
  if (!self->to_host && is_number) return read_stream_number(self, stream);
  if (!self->to_host) {
    bool given;
    return onspy_stream_parse(self->state, NULL, stream, &given, &self->stream);
  }
  if (is_number) {
    int overflow = 0;
    if (PyLong_AsLongAndOverflow(stream, &overflow) == -1 && overflow == 0) {
      self->ordered = false;
      return true;
    }
  }
  return refuse_stream(stream, "the host has no streams; give None");
}

static bool read_copy(request* self, PyObject* copy) {
  self->copy = copy == Py_None ? -1 : copy == Py_True;
  if (copy == Py_None || PyBool_Check(copy)) return true;
  PyErr_Format(PyExc_TypeError, "copy must be True, False or None, not %R", copy);
  return false;
}

/* ---- the answer ------------------------------------------------------------------- */

static const char versioned_name[] = "dltensor_versioned";
static const char legacy_name[] = "dltensor";

/* Deleters of other libraries may run Python code, which must not see an exception that
 * is under way. */
static void delete_capsule(PyObject* capsule) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (PyCapsule_IsValid(capsule, versioned_name)) {
    DLManagedTensorVersioned* managed = PyCapsule_GetPointer(capsule, versioned_name);
    managed->deleter(managed);
  } else if (PyCapsule_IsValid(capsule, legacy_name)) {
    DLManagedTensor* managed = PyCapsule_GetPointer(capsule, legacy_name);
    managed->deleter(managed);
  }
  PyErr_Restore(type, value, traceback);
}

static PyObject* versioned_capsule(const request* self, ons_tensor* tensor,
                                   uint32_t flags) {
  DLManagedTensorVersioned* view;
  ons_error error = ONS_ERROR_INIT;
  if (ons_tensor_export(tensor, self->stream, flags, &view, &error) != ONS_STATUS_OK)
    return onspy_raise_export(self->state, &error);
  view->version.minor = self->minor;
  if (tensor == self->tensor) view->dl_tensor.device = self->own;
  PyObject* capsule = PyCapsule_New(view, versioned_name, delete_capsule);
  if (capsule == NULL) view->deleter(view);
  return capsule;
}

static PyObject* legacy_capsule(const request* self, ons_tensor* tensor, uint32_t flags) {
  DLManagedTensor* view;
  ons_error error = ONS_ERROR_INIT;
  if (ons_tensor_export_legacy(tensor, self->stream, flags, &view, &error) !=
      ONS_STATUS_OK) {
    return onspy_raise_export(self->state, &error);
  }
  if (tensor == self->tensor) view->dl_tensor.device = self->own;
  PyObject* capsule = PyCapsule_New(view, legacy_name, delete_capsule);
  if (capsule == NULL) view->deleter(view);
  return capsule;
}

static PyObject* make_capsule(const request* self, ons_tensor* tensor, uint32_t flags) {
  return self->versioned ? versioned_capsule(self, tensor, flags)
                         : legacy_capsule(self, tensor, flags);
}

static PyObject* export_copy(const request* self) {
  static const DLDevice host = {kDLCPU, 0};
  ons_tensor* copy = NULL;
  ons_error error = ONS_ERROR_INIT;
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_tensor_copy(self->tensor, self->to_host ? host : self->own, &copy, &error);
  Py_END_ALLOW_THREADS;
  if (status != ONS_STATUS_OK) return onspy_raise_export(self->state, &error);
  uint32_t flags = ONS_EXPORT_COPIED;
  if (self->ordered) flags |= ONS_EXPORT_ORDERED;
  PyObject* capsule = make_capsule(self, copy, flags);
  ons_tensor_release(copy);
  return capsule;
}

static bool wait_for_device(const request* self) {
  ons_error error = ONS_ERROR_INIT;
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_tensor_wait(self->tensor, &error);
  Py_END_ALLOW_THREADS;
  return status == ONS_STATUS_OK || onspy_raise_export(self->state, &error) != NULL;
}

static PyObject* export(const request* self) {
  bool elsewhere = self->to_host && !onspy_on_host(self->own);
  bool needs_copy = elsewhere && self->own.device_type != kDLCUDAManaged;
  if (needs_copy && self->copy == 0) {
    PyErr_Format(PyExc_BufferError,
                 "a Tensor on device (%d, %d) cannot be read by the host without a copy, "
                 "which copy=False forbids",
                 (int)self->own.device_type, (int)self->own.device_id);
    return NULL;
  }
  if (needs_copy || self->copy == 1) return export_copy(self);
  if (elsewhere) {
    if (self->ordered && !wait_for_device(self)) return NULL;
    return make_capsule(self, self->tensor, 0);
  }
  return make_capsule(self, self->tensor, self->ordered ? ONS_EXPORT_ORDERED : 0);
}

const char onspy_tensor_dlpack_doc[] =
    "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n"
    "--\n\n"
    "A capsule for another library, as the array API standard has it.\n\n"
    "stream: the consumer's, which waits on the device for what the tensor's stream "
    "holds: None or 1 the legacy default, 2 the per-thread default, else a handle or a "
    "stream object; -1 for no order. It must exist until the consumer drops the memory, "
    "as the tensor's stream then waits for it. dl_device: the tensor's own or (1, 0), "
    "the host, to which device memory is copied (managed memory is as it is, once the "
    "device is past what the tensor's stream holds). copy: True always copies, False "
    "refuses to. Raises BufferError for what cannot be exported so.";

PyObject* onspy_tensor_dlpack(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* keywords[] = {"stream", "max_version", "dl_device", "copy", NULL};
  PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", keywords, &stream,
                                   &max_version, &device, &copy)) {
    return NULL;
  }
  request self = {.state = onspy_state_of(object), .tensor = onspy_tensor_handle(object)};
  if (self.tensor == NULL) return NULL;
  ons_tensor_retain(self.tensor); /* Python code may release it meanwhile */
  self.own = ons_tensor_dltensor(self.tensor)->device;
  bool valid = read_version(&self, max_version) && read_device(&self, device) &&
               read_stream(&self, stream) && read_copy(&self, copy);
  PyObject* capsule = valid ? export(&self) : NULL;
  ons_tensor_release(self.tensor);
  return capsule;
}

const char onspy_tensor_dlpack_device_doc[] =
    "__dlpack_device__($self, /)\n--\n\n"
    "DLPack's device type and the index of the device.";

PyObject* onspy_tensor_dlpack_device(PyObject* object, PyObject* Py_UNUSED(unused)) {
  const ons_tensor* tensor = onspy_tensor_handle(object);
  if (tensor == NULL) return NULL;
  DLDevice device = ons_tensor_dltensor(tensor)->device;
  return Py_BuildValue("(ii)", (int)device.device_type, (int)device.device_id);
}
