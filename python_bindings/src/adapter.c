/* What is known of each array library. Types are recognised by the names of their classes
 * and modules; no library is imported. */
#include <string.h>

#include "binding.h"

/* ---- who made the type ------------------------------------------------------------ */

/* Is |base| the class |name| of the package |package|? */
static bool is_class(const onspy_state* state, PyTypeObject* base, const char* package,
                     const char* name) {
  const char* dot = strrchr(base->tp_name, '.');
  if (strcmp(dot != NULL ? dot + 1 : base->tp_name, name) != 0) return false;
  PyObject* module = PyObject_GetAttr((PyObject*)base, state->str_module);
  const char* text =
      module != NULL && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
  size_t bytes = strlen(package);
  bool found = text != NULL && strncmp(text, package, bytes) == 0 &&
               (text[bytes] == '\0' || text[bytes] == '.');
  Py_XDECREF(module);
  PyErr_Clear();
  return found;
}

PyTypeObject* onspy_find_base(const onspy_state* state, PyTypeObject* type,
                              const char* package, const char* name) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); ++i) {
    PyTypeObject* base = (PyTypeObject*)PyTuple_GET_ITEM(mro, i);
    if (is_class(state, base, package, name)) return base;
  }
  return NULL;
}

enum {
  TABLE = ONSPY_PROTOCOL_EXCHANGE,
  DLPACK = ONSPY_PROTOCOL_DLPACK,
  INTERFACE = ONSPY_PROTOCOL_ARRAY_INTERFACE,
  ARROW = ONSPY_PROTOCOL_ARROW
};

/* cuda.core's views have an exchange table as well; it answers every question for the
 * stream with 0, and cannot say that memory is read-only. */
static const onspy_adapter adapters[] = {
    {"torch", "Tensor", ONSPY_LIBRARY_TORCH, TABLE | DLPACK, 0, "torch_stream"},
    {"numpy", "ndarray", ONSPY_LIBRARY_NUMPY, 0, 0, NULL},
    {"cupy", "ndarray", ONSPY_LIBRARY_CUPY, DLPACK, 0, "cupy_stream"},
    {"jaxlib", "ArrayImpl", ONSPY_LIBRARY_JAX, DLPACK, ONSPY_PRODUCER_READ_ONLY, NULL},
    {"jax", "ArrayImpl", ONSPY_LIBRARY_JAX, DLPACK, ONSPY_PRODUCER_READ_ONLY, NULL},
    {"jax", "Buffer", ONSPY_LIBRARY_OTHER, DLPACK, ONSPY_PRODUCER_ON_CALLERS_STREAM,
     NULL},
    {"jaxlib", "Buffer", ONSPY_LIBRARY_OTHER, DLPACK, ONSPY_PRODUCER_ON_CALLERS_STREAM,
     NULL},
    {"paddle", "Tensor", ONSPY_LIBRARY_OTHER, TABLE | DLPACK,
     ONSPY_PRODUCER_STOP_GRADIENT, "paddle_stream"},
    {"numba", "DeviceNDArrayBase", ONSPY_LIBRARY_OTHER, INTERFACE | DLPACK,
     ONSPY_PRODUCER_NONE_IS_LEGACY, NULL},
    {"pycuda", "GPUArray", ONSPY_LIBRARY_OTHER, INTERFACE | DLPACK,
     ONSPY_PRODUCER_NONE_IS_LEGACY, NULL},
    {"warp", "array", ONSPY_LIBRARY_OTHER, INTERFACE | DLPACK, 0, "warp_stream"},
    {"cuda", "StridedMemoryView", ONSPY_LIBRARY_OTHER, DLPACK,
     ONSPY_PRODUCER_ON_CALLERS_STREAM | ONSPY_PRODUCER_RETAINED, NULL},
    {"cuda", "Buffer", ONSPY_LIBRARY_OTHER, DLPACK,
     ONSPY_PRODUCER_ON_CALLERS_STREAM | ONSPY_PRODUCER_RETAINED, NULL},
    {"pyarrow", "Array", ONSPY_LIBRARY_OTHER, ARROW, 0, NULL},
};

const onspy_adapter* onspy_adapter_find(const onspy_state* state, PyTypeObject* type) {
  static const onspy_adapter other = {.protocols = TABLE | INTERFACE | DLPACK | ARROW};
  for (size_t i = 0; i < sizeof adapters / sizeof *adapters; ++i) {
    if (onspy_find_base(state, type, adapters[i].package, adapters[i].name) != NULL)
      return &adapters[i];
  }
  return &other;
}

/* ---- what must be asked of a library that is loaded ------------------------------- */

/* An attribute of a module that has been imported (new reference), or NULL. */
static PyObject* loaded(const char* module_name, const char* name) {
  PyObject* key = PyUnicode_FromString(module_name);
  PyObject* module = key != NULL ? PyImport_GetModule(key) : NULL;
  PyObject* found = module != NULL ? PyObject_GetAttrString(module, name) : NULL;
  Py_XDECREF(module);
  Py_XDECREF(key);
  PyErr_Clear();
  return found;
}

/* CuPy's Cython-level entry; its stream is that of CuPy's current device, so that it is
 * of use where there is but one. */
onspy_raw_stream onspy_cupy_entry(void) {
  onspy_raw_stream entry = NULL;
  PyObject* table = loaded("cupy.cuda.stream", "__pyx_capi__");
  PyObject* capsule =
      table != NULL ? PyMapping_GetItemString(table, "get_current_stream_ptr") : NULL;
  PyObject* count_devices = loaded("cupy.cuda.runtime", "getDeviceCount");
  if (count_devices == NULL) {
    count_devices = loaded("cupy_backends.cuda.api.runtime", "getDeviceCount");
  }
  PyErr_Clear();
  PyObject* count = count_devices != NULL ? PyObject_CallNoArgs(count_devices) : NULL;
  if (count != NULL && PyLong_AsLong(count) == 1 && capsule != NULL &&
      PyCapsule_IsValid(capsule, "intptr_t (void)")) {
    void* pointer = PyCapsule_GetPointer(capsule, "intptr_t (void)");
    memcpy(&entry, &pointer, sizeof entry);
  }
  Py_XDECREF(count);
  Py_XDECREF(count_devices);
  Py_XDECREF(capsule);
  Py_XDECREF(table);
  PyErr_Clear();
  return entry;
}

/* torch 2.10 to 2.12 for ROCm answer with the stream of another runtime. */
bool onspy_torch_table_is_wrong(onspy_state* state) {
  PyObject* hip = loaded("torch.version", "hip");
  bool wrong = false;
  if (hip != NULL && hip != Py_None) {
    PyObject* helpers = onspy_helpers(state);
    PyObject* answer = helpers != NULL
                           ? PyObject_CallMethod(helpers, "torch_table_is_wrong", NULL)
                           : NULL;
    wrong = answer != Py_False;
    Py_XDECREF(answer);
  }
  Py_XDECREF(hip);
  PyErr_Clear();
  return wrong;
}

/* ---- streams ---------------------------------------------------------------------- */

bool onspy_stream_of(onspy_state* state, const onspy_producer* producer, PyObject* object,
                     DLDevice device, bool* out_known, void** out_stream,
                     PyObject** out_owner) {
  *out_known = true;
  if (out_owner != NULL) *out_owner = NULL;
  if (producer->stream_of != NULL) {
    PyObject* stream = PyObject_CallOneArg(producer->stream_of, object);
    bool parsed =
        stream != NULL && onspy_stream_parse(state, NULL, stream, out_known, out_stream);
    if (parsed && out_owner != NULL) *out_owner = Py_NewRef(stream);
    Py_XDECREF(stream);
    return parsed;
  }
  if (producer->cupy_stream != NULL) {
    *out_stream = (void*)producer->cupy_stream();
    return true;
  }
  const DLPackExchangeAPI* exchange = producer->exchange;
  if (exchange != NULL && exchange->current_work_stream != NULL) {
    return exchange->current_work_stream(device.device_type, device.device_id,
                                         out_stream) == 0;
  }
  *out_known = false;
  return true;
}

/* The stream that the caller gives for this launch, by stream= or ons.use_stream. */
static bool callers_stream(const onspy_call* call, DLDevice device, void** out_stream) {
  if (call->launch->flags & ONS_LAUNCH_STREAM) {
    *out_stream = call->launch->stream;
    return true;
  }
  const onspy_use_stream* scope = onspy_used_stream(device);
  if (scope != NULL) *out_stream = scope->stream;
  return scope != NULL;
}

bool onspy_call_stream(onspy_call* call, size_t index, PyObject* object,
                       const onspy_producer* producer, DLDevice device) {
  ons_arg* arg = &call->args[index];
  void* stream = NULL;
  PyObject* owner = NULL; /* of whom the stream is, for as long as a Tensor is on it */
  bool known;
  if (!onspy_stream_of(call->state, producer, object, device, &known, &stream,
                       call->is_import ? &owner : NULL)) {
    return onspy_raise_from_producer(call->kernel, index, object, "stream query");
  }
  if (owner != NULL && !onspy_kept_add(&call->retained, owner, onspy_release_object)) {
    return false;
  }
  if (!known && (producer->traits & ONSPY_PRODUCER_ON_CALLERS_STREAM)) {
    known = callers_stream(call, device, &stream);
  }
  if (!known) return true;
  arg->stream = stream;
  arg->flags |= ONS_ARG_STREAM_KNOWN;
  return true;
}
