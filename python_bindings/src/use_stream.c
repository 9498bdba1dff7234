/* with onstream.use_stream(s): the launch stream of this thread for a while. */
#include "binding.h"

_Thread_local onspy_use_stream* onspy_innermost_stream
    __attribute__((tls_model("initial-exec")));

const onspy_use_stream* onspy_used_stream(DLDevice device) {
  for (const onspy_use_stream* scope = onspy_innermost_stream; scope != NULL;
       scope = scope->outer) {
    if (scope->device_id < 0 || scope->device_id == device.device_id)
      return scope->given ? scope : NULL;
  }
  return NULL;
}

/* The device of the launch: the one given, else the first array in a GPU's memory
 * decides, and managed memory only where there is no other. NULL: the CPU. */
static const DLDevice* launch_device(const onspy_call* call) {
  if (call->launch->flags & ONS_LAUNCH_DEVICE) {
    return onspy_on_host(call->launch->device) ? NULL : &call->launch->device;
  }
  const DLDevice* managed = NULL;
  for (size_t i = 0; i < call->count; ++i) {
    const ons_arg* arg = &call->args[i];
    if (arg->kind != ONS_ARG_TENSOR && arg->kind != ONS_ARG_PENDING) continue;
    const DLDevice* device = &arg->value.tensor->device;
    if (onspy_on_host(*device)) continue;
    if (device->device_type != kDLCUDAManaged) return device;
    if (managed == NULL) managed = device;
  }
  return managed;
}

bool onspy_use_stream_apply(const onspy_call* call, ons_launch* launch) {
  if ((launch->flags & ONS_LAUNCH_STREAM) || !ONS__DOES(USE_STREAM)) return false;
  const DLDevice* device = launch_device(call);
  const onspy_use_stream* scope = device != NULL ? onspy_used_stream(*device) : NULL;
  if (scope == NULL) return false;
  launch->stream = scope->stream;
  launch->flags |= ONS_LAUNCH_STREAM;
  return true;
}

/* ---- the device a stream is of ------------------------------------------------------
 */

/* A device object, or an index; -1 where it does not say. Raises nothing. */
static int32_t index_of(onspy_state* state, PyObject* device) {
  DLDevice parsed;
  long index = -1;
  if (PyLong_Check(device)) {
    index = PyLong_AsLong(device);
  } else if (onspy_device_parse(state, device, &parsed)) {
    index = parsed.device_type == kDLCUDA ? parsed.device_id : -1;
  }
  PyErr_Clear();
  return index >= 0 && index <= INT32_MAX ? (int32_t)index : -1;
}

/* torch, Numba and others have .device, CuPy and cuda.core's devices .device_id. */
static int32_t device_of(onspy_state* state, PyObject* stream) {
  int32_t index = -1;
  PyObject* device = PyObject_GetAttrString(stream, "device");
  PyObject* holder = device != NULL && device != Py_None ? device : stream;
  PyErr_Clear();
  PyObject* id = PyObject_GetAttrString(holder, "device_id");
  PyErr_Clear();
  if (id != NULL) {
    index = index_of(state, id);
  } else if (device != NULL && device != Py_None) {
    index = index_of(state, device);
  }
  Py_XDECREF(id);
  Py_XDECREF(device);
  return index;
}

/* ---- the type -----------------------------------------------------------------------
 */

static PyObject* use_stream_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* keywords[] = {"stream", "device", NULL};
  onspy_state* state = PyType_GetModuleState(type);
  PyObject *stream, *device = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:use_stream", keywords, &stream,
                                   &device)) {
    return NULL;
  }
  void* handle = NULL;
  bool given;
  DLDevice place = {(DLDeviceType)0, -1};
  if (!onspy_stream_parse(state, NULL, stream, &given, &handle)) return NULL;
  if (device != Py_None) {
    if (!onspy_device_parse(state, device, &place)) return NULL;
    if (place.device_type != kDLCUDA) {
      PyErr_Format(PyExc_ValueError, "use_stream: device must be a GPU, not %R", device);
      return NULL;
    }
  } else if (given) {
    place.device_id = device_of(state, stream);
  }
  onspy_use_stream* self = (onspy_use_stream*)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  self->object = Py_NewRef(stream);
  self->given = given;
  self->stream = handle;
  self->device_id = place.device_id;
  return (PyObject*)self;
}

static PyObject* use_stream_enter(PyObject* object, PyObject* Py_UNUSED(args)) {
  onspy_use_stream* self = (onspy_use_stream*)object;
  if (self->entered) {
    PyErr_SetString(PyExc_RuntimeError,
                    "use_stream: this one is entered already; make another");
    return NULL;
  }
  self->entered = true;
  self->outer = onspy_innermost_stream;
  onspy_innermost_stream = (onspy_use_stream*)Py_NewRef(object);
  return Py_NewRef(self->object);
}

static PyObject* use_stream_exit(PyObject* object, PyObject* Py_UNUSED(args)) {
  onspy_use_stream* self = (onspy_use_stream*)object;
  if (onspy_innermost_stream != self) {
    PyErr_SetString(PyExc_RuntimeError,
                    "use_stream: blocks must be left in the thread and in the reverse "
                    "order in which they were entered");
    return NULL;
  }
  onspy_innermost_stream = self->outer;
  self->outer = NULL;
  self->entered = false;
  Py_DECREF(object);
  Py_RETURN_NONE;
}

static PyObject* use_stream_get_stream(PyObject* object, void* Py_UNUSED(closure)) {
  const onspy_use_stream* self = (onspy_use_stream*)object;
  if (!self->given) Py_RETURN_NONE;
  return PyLong_FromVoidPtr(self->stream);
}

static int use_stream_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((onspy_use_stream*)object)->object);
  return 0;
}

static int use_stream_clear(PyObject* object) {
  Py_CLEAR(((onspy_use_stream*)object)->object);
  return 0;
}

/* Never while entered: the thread has a reference then. */
static void use_stream_dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  use_stream_clear(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyDoc_STRVAR(
    use_stream_doc,
    "use_stream(stream, device=None)\n--\n\n"
    "A context manager: launches of this thread inside the block that give no stream go "
    "to this one, instead of the current stream of their arrays, whose work is ordered "
    "before and after as with stream=.\n\n"
    "stream: as in kernel[grid, block, shared, stream]; None lets the arrays decide "
    "again. device: the GPU that it is for; else the stream object's own, and a handle "
    "without one is for all GPUs. The innermost block for a launch's device counts, "
    "whatever the current stream of an array library is. Launches on the CPU take no "
    "notice. The stream must live until the block is left. Returns the stream.");

static PyMethodDef use_stream_methods[] = {
    {"__enter__", use_stream_enter, METH_NOARGS, NULL},
    {"__exit__", use_stream_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef use_stream_getset[] = {
    {"handle", use_stream_get_stream, NULL, "The native handle as int, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot use_stream_slots[] = {
    {Py_tp_doc, (void*)use_stream_doc},
    {Py_tp_new, ONSPY_FUNCTION(use_stream_new)},
    {Py_tp_methods, ONSPY_FUNCTION(use_stream_methods)},
    {Py_tp_getset, ONSPY_FUNCTION(use_stream_getset)},
    {Py_tp_traverse, ONSPY_FUNCTION(use_stream_traverse)},
    {Py_tp_clear, ONSPY_FUNCTION(use_stream_clear)},
    {Py_tp_dealloc, ONSPY_FUNCTION(use_stream_dealloc)},
    {0, NULL}};

PyType_Spec onspy_use_stream_spec = {
    .name = "onstream.use_stream",
    .basicsize = sizeof(onspy_use_stream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = use_stream_slots,
};
