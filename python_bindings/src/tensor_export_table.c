/* onstream.Tensor's DLPack exchange table, for consumers in C.
 *
 * A tensor that is exported here is moved to the stream that the table tells, so that a
 * consumer that works on that stream without any synchronisation is in order. */
#include "tensor_object.h"

/* Of the interpreter's module: two of the functions are given no object. */
static onspy_state* exporter;

static int current_work_stream(DLDeviceType type, int32_t id, void** out_stream) {
  const DLDevice device = {type, id};
  *out_stream = NULL;
  if (onspy_innermost_stream == NULL || onspy_on_host(device)) return 0;
  const onspy_use_stream* scope = onspy_used_stream(device);
  if (scope != NULL) *out_stream = scope->stream;
  return 0;
}

static ONSPY_COLD int refuse_gradient(void) {
  PyErr_SetString(
      PyExc_BufferError,
      "the Tensor requires grad, and another library would not follow what is "
      "done with it; import x.detach() instead of x");
  return -1;
}

static ONSPY_COLD int move(PyObject* object, ons_tensor* handle, void* stream) {
  ons_error error = ONS_ERROR_INIT;
  if (ons_tensor_move(handle, stream, &error) == ONS_STATUS_OK) return 0;
  onspy_raise(onspy_state_of(object), &error);
  return -1;
}

/* The tensor, on the current work stream; NULL with an exception. */
static inline ons_tensor* ordered(PyObject* object, void** out_stream) {
  ons_tensor* handle = ((onspy_tensor*)object)->handle;
  *out_stream = NULL;
  if (!ONSPY_LIKELY(handle != NULL)) return onspy_tensor_handle(object);
  ons_arg arg = onspy_tensor_arg(handle);
  if (arg.flags & ONS_ARG_REQUIRES_GRAD && refuse_gradient()) return NULL;
  if (!(arg.flags & ONS_ARG_STREAM_KNOWN)) return handle;
  DLDevice device = arg.value.tensor->device;
  current_work_stream(device.device_type, device.device_id, out_stream);
  bool there = onspy_streams_match(arg.stream, *out_stream);
  return there || move(object, handle, *out_stream) == 0 ? handle : NULL;
}

static int borrow(void* object, DLTensor* out) {
  void* stream;
  const ons_tensor* handle = ordered(object, &stream);
  if (handle == NULL) return -1;
  *out = *ons_tensor_dltensor(handle);
  return 0;
}

static int from_object(void* object, DLManagedTensorVersioned** out) {
  void* stream;
  ons_tensor* handle = ordered(object, &stream);
  if (handle == NULL) return -1;
  ons_error error = ONS_ERROR_INIT;
  if (ons_tensor_export(handle, stream, ONS_EXPORT_ORDERED, out, &error) == ONS_STATUS_OK)
    return 0;
  onspy_raise_export(onspy_state_of(object), &error);
  return -1;
}

/* When it fails the managed tensor is its caller's still. */
static int to_object(DLManagedTensorVersioned* managed, void** out_object) {
  onspy_state* state = exporter;
  ons_runtime* runtime = state != NULL ? onspy_runtime(state) : NULL;
  if (runtime == NULL) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_RuntimeError, "the interpreter is shutting down");
    return -1;
  }
  ons_tensor_options options = ONS_TENSOR_OPTIONS_INIT;
  options.versioned = managed;
  /* Of another major version nothing can be read, as the library says. */
  if (managed->version.major == DLPACK_MAJOR_VERSION) {
    DLDevice device = managed->dl_tensor.device;
    current_work_stream(device.device_type, device.device_id, &options.stream);
    if (!onspy_on_host(device)) options.flags = ONS_TENSOR_STREAM | ONS_TENSOR_ORDERED;
  }
  ons_tensor* tensor = NULL;
  ons_error error = ONS_ERROR_INIT;
  if (ons_tensor_create(runtime, &options, &tensor, &error) != ONS_STATUS_OK) {
    onspy_raise(state, &error);
    return -1;
  }
  *out_object = onspy_tensor_wrap(state, tensor);
  return *out_object != NULL ? 0 : -1;
}

static const char* kind_of(ons_status status) {
  switch (status) {
    case ONS_STATUS_OUT_OF_MEMORY:
      return "MemoryError";
    case ONS_STATUS_ARGUMENT_VALUE:
    case ONS_STATUS_INVALID_ARGUMENT:
      return "ValueError";
    case ONS_STATUS_UNSUPPORTED:
      return "BufferError";
    default:
      return "RuntimeError";
  }
}

/* Python code that finds libraries may run, for the first tensor. */
static ons_runtime* runtime_with_gil(void) {
  PyGILState_STATE gil = PyGILState_Ensure();
  ons_runtime* runtime = exporter != NULL ? onspy_runtime(exporter) : NULL;
  PyErr_Clear();
  PyGILState_Release(gil);
  return runtime;
}

static int allocate(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
                    void (*set_error)(void* context, const char* kind,
                                      const char* message)) {
  ons_runtime* runtime = runtime_with_gil();
  if (runtime == NULL) {
    set_error(context, "RuntimeError", "the interpreter is shutting down");
    return -1;
  }
  ons_allocation allocation = ONS_ALLOCATION_INIT;
  allocation.device = prototype->device;
  allocation.dtype = prototype->dtype;
  allocation.ndim = prototype->ndim;
  allocation.shape = prototype->shape;
  current_work_stream(allocation.device.device_type, allocation.device.device_id,
                      &allocation.stream);
  ons_tensor* tensor = NULL;
  ons_error error = ONS_ERROR_INIT;
  ons_status status = ons_tensor_allocate(runtime, &allocation, &tensor, &error);
  if (status == ONS_STATUS_OK) {
    status =
        ons_tensor_export(tensor, allocation.stream, ONS_EXPORT_ORDERED, out, &error);
    ons_tensor_release(tensor);
  }
  if (status == ONS_STATUS_OK) return 0;
  set_error(context, kind_of(status), error.message);
  return -1;
}

static DLPackExchangeAPI table = {
    .header = {.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}},
    .managed_tensor_allocator = allocate,
    .managed_tensor_from_py_object_no_sync = from_object,
    .managed_tensor_to_py_object_no_sync = to_object,
    .dltensor_from_py_object_no_sync = borrow,
    .current_work_stream = current_work_stream,
};

bool onspy_tensor_table_add(onspy_state* state) {
  PyObject* capsule = PyCapsule_New(&table, "dlpack_exchange_api", NULL);
  bool added = capsule != NULL && PyDict_SetItem(state->tensor_type->tp_dict,
                                                 state->str_exchange_api, capsule) == 0;
  Py_XDECREF(capsule);
  if (!added) return false;
  PyType_Modified(state->tensor_type);
  exporter = state;
  return true;
}

void onspy_tensor_table_remove(const onspy_state* state) {
  if (exporter == state) exporter = NULL;
}
