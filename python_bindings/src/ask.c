/* Arguments that are not bound by the exchange table or as plain numbers, above all those
 * of producers that are asked for a capsule by __dlpack__. */
#include <limits.h>
#include <string.h>

#include "binding.h"

static const char versioned_name[] = "dltensor_versioned";
static const char used_versioned_name[] = "used_dltensor_versioned";
static const char legacy_name[] = "dltensor";
static const char used_legacy_name[] = "used_dltensor";

/* ---- capsules --------------------------------------------------------------------- */

static void release_versioned(void* object) {
  DLManagedTensorVersioned* managed = object;
  if (managed->deleter != NULL) managed->deleter(managed);
}

static void release_legacy(void* object) {
  DLManagedTensor* managed = object;
  if (managed->deleter != NULL) managed->deleter(managed);
}

/* From the renaming on the tensor is ours to delete, once, whatever happens next. */
static bool hold(onspy_call* call, bool retain, void* managed, void (*release)(void*)) {
  bool longer = retain && ONS__DOES(RETAIN_CAPSULE);
  return onspy_kept_add(longer ? &call->retained : &call->temporary, managed, release);
}

bool onspy_take_managed(onspy_call* call, size_t index, PyObject* object,
                        DLManagedTensorVersioned* managed, bool retain) {
  if (!hold(call, retain, managed, release_versioned)) return false;
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "a %.200s that hands over DLPack version %u; this onstream understands version "
        "%d: update onstream, or the library down to that version",
        Py_TYPE(object)->tp_name, (unsigned)managed->version.major, DLPACK_MAJOR_VERSION);
    return false;
  }
  call->tensors[index] = managed->dl_tensor;
  /* What is written into a copy is lost. */
  const uint64_t closed = DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED;
  if (managed->flags & closed) call->args[index].flags |= ONS_ARG_READ_ONLY;
  return true;
}

static bool take_versioned(onspy_call* call, size_t index, PyObject* object,
                           PyObject* capsule, bool retain) {
  DLManagedTensorVersioned* managed = PyCapsule_GetPointer(capsule, versioned_name);
  return managed != NULL && PyCapsule_SetName(capsule, used_versioned_name) == 0 &&
         onspy_take_managed(call, index, object, managed, retain);
}

static bool take_legacy(onspy_call* call, size_t index, PyObject* capsule, bool retain) {
  DLManagedTensor* managed = PyCapsule_GetPointer(capsule, legacy_name);
  if (managed == NULL || PyCapsule_SetName(capsule, used_legacy_name) < 0 ||
      !hold(call, retain, managed, release_legacy)) {
    return false;
  }
  call->tensors[index] = managed->dl_tensor;
  return true;
}

static bool take_capsule(onspy_call* call, size_t index, PyObject* object,
                         PyObject* capsule, bool retain) {
  bool taken;
  if (PyCapsule_IsValid(capsule, versioned_name)) {
    taken = take_versioned(call, index, object, capsule, retain);
  } else if (PyCapsule_IsValid(capsule, legacy_name)) {
    taken = take_legacy(call, index, capsule, retain);
  } else {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "a %.200s whose __dlpack__ gave %R, which is not an unused DLPack capsule; it "
        "must make a new one at each call",
        Py_TYPE(object)->tp_name, capsule);
    return false;
  }
  if (!taken) return false;
  ons_arg* arg = &call->args[index];
  arg->kind = ONS_ARG_TENSOR;
  arg->value.tensor = &call->tensors[index];
  return true;
}

/* ---- __dlpack__ ------------------------------------------------------------------- */

/* Was the exception raised by the call itself, the callee not knowing a keyword? One
 * raised inside a Python function has that function's frame in its traceback. */
static bool is_unknown_keyword(void) {
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  bool outside = traceback == NULL;
  PyErr_Restore(type, value, traceback);
  return outside;
}

/* |stream| is NULL for host memory. Producers from before DLPack 1.0 do not know
 * max_version; on devices none is asked without stream, as nothing would then order it.
 */
static PyObject* ask_capsule(onspy_state* state, PyObject* object, PyObject* stream) {
  PyObject* args[4] = {object, stream, state->max_version, NULL};
  PyObject* capsule;
  if (stream != NULL) {
    capsule =
        PyObject_VectorcallMethod(state->str_dlpack, args, 1, state->ask_stream_version);
  } else {
    args[1] = state->max_version;
    capsule = PyObject_VectorcallMethod(state->str_dlpack, args, 1, state->ask_version);
  }
  if (capsule != NULL || !is_unknown_keyword()) return capsule;
  PyErr_Clear();
  if (stream == NULL) return PyObject_CallMethodNoArgs(object, state->str_dlpack);
  args[1] = stream;
  return PyObject_VectorcallMethod(state->str_dlpack, args, 1, state->ask_stream);
}

static bool take_dlpack(onspy_call* call, size_t index, PyObject* object,
                        PyObject* stream, bool retain) {
  PyObject* capsule = ask_capsule(call->state, object, stream);
  if (capsule == NULL) {
    return onspy_raise_from_producer(call->kernel, index, object, "__dlpack__");
  }
  bool taken = take_capsule(call, index, object, capsule, retain);
  Py_DECREF(capsule);
  return taken;
}

bool onspy_dlpack_device(onspy_call* call, size_t index, PyObject* object,
                         DLDevice* out_device) {
  PyObject* pair = PyObject_CallMethodNoArgs(object, call->state->str_dlpack_device);
  if (pair == NULL) {
    return onspy_raise_from_producer(call->kernel, index, object, "__dlpack_device__");
  }
  PyObject* type = NULL;
  PyObject* id = NULL;
  if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2) {
    type = PyNumber_Index(PyTuple_GET_ITEM(pair, 0));
    id = type != NULL ? PyNumber_Index(PyTuple_GET_ITEM(pair, 1)) : NULL;
  }
  Py_DECREF(pair);
  long type_value = type != NULL ? PyLong_AsLong(type) : 0;
  long id_value = id != NULL ? PyLong_AsLong(id) : LONG_MIN;
  Py_XDECREF(type);
  Py_XDECREF(id);
  PyErr_Clear();
  bool host = type_value == kDLCPU && id_value == -1; /* as some producers have it */
  if (type_value <= 0 || type_value > INT16_MAX || (id_value < 0 && !host) ||
      id_value > INT32_MAX) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "a %.200s whose __dlpack_device__ is no (type, index) pair; it must give "
        "two ints, such as (1, 0) for the CPU",
        Py_TYPE(object)->tp_name);
    return false;
  }
  *out_device = (DLDevice){(DLDeviceType)type_value, (int32_t)id_value};
  return true;
}

/* Where the exchange table is missing: torch's __dlpack__ refuses what requires grad,
 * also for reading, and looks past the neg bit. A new reference to what is to be asked in
 * its place. */
static PyObject* torch_stand_in(onspy_call* call, size_t index, PyObject* object) {
  PyObject* helpers = onspy_helpers(call->state);
  PyObject* triple =
      helpers != NULL ? PyObject_CallMethod(helpers, "torch_plain", "O", object) : NULL;
  PyObject* plain;
  const char* lazy;
  int grad;
  if (triple == NULL || !PyArg_ParseTuple(triple, "Opz", &plain, &grad, &lazy)) {
    Py_XDECREF(triple);
    onspy_raise_from_producer(call->kernel, index, object,
                              "requires_grad, is_neg() or is_conj()");
    return NULL;
  }
  if (grad) call->args[index].flags |= ONS_ARG_REQUIRES_GRAD;
  if (lazy != NULL) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_value,
        "a tensor that is a lazy %s view, whose memory holds other values; pass "
        "x.resolve_%s()",
        lazy, lazy);
    plain = NULL;
  }
  Py_XINCREF(plain);
  Py_DECREF(triple);
  return plain;
}

static bool take_from(onspy_call* call, size_t index, PyObject* object,
                      const onspy_producer* producer, PyObject* stream, bool retain) {
  if (producer->library == ONSPY_LIBRARY_TORCH) {
    PyObject* plain = torch_stand_in(call, index, object);
    bool taken = plain != NULL && take_dlpack(call, index, plain, stream, retain);
    Py_XDECREF(plain);
    return taken;
  }
  return take_dlpack(call, index, object, stream, retain);
}

bool onspy_call_dlpack(onspy_call* call, size_t index, PyObject* object,
                       const onspy_producer* producer) {
  DLTensor* tensor = &call->tensors[index];
  *tensor = (DLTensor){.data = NULL};
  if (!onspy_dlpack_device(call, index, object, &tensor->device)) return false;
  bool value = onspy_traits(call->kernel, index) & ONSPY_PARAMETER_VALUE;
  if (onspy_on_host(tensor->device)) {
    return take_from(call, index, object, producer, NULL, false) &&
           (!value || onspy_scalar_from_tensor(call, index, object));
  }
  ons_arg* arg = &call->args[index];
  arg->kind = ONS_ARG_PENDING;
  arg->value.tensor = tensor;
  call->device_seen = true;
  if (value) return onspy_scalar_from_tensor(call, index, object);
  ++call->pending_count;
  return onspy_call_stream(call, index, object, producer, tensor->device);
}

/* A known stream is joined by the library; a trusted one by nobody. */
static bool is_borrowed(const onspy_call* call, size_t index) {
  return call->args[index].flags & ONS_ARG_STREAM_KNOWN;
}

/* Is the producer told the stream, and puts its own work before? JAX always does, as it
 * knows no -1. */
static bool is_told_stream(const onspy_call* call, size_t index,
                           const onspy_producer* producer) {
  bool unordered = is_borrowed(call, index) || call->plan.order == ONS_ORDER_TRUST;
  return (producer->library == ONSPY_LIBRARY_JAX && ONS__DOES(ASK_JAX)) || !unordered;
}

/* A producer that is told a stream makes it wait for another, which is in no capture. */
static bool refuse_capture(onspy_call* call, size_t index, PyObject* object) {
  onspy_raise_argument(
      call->kernel, index, call->state->error_order,
      "a %.200s, whose library would make stream %p wait for work of its own, but that "
      "stream is being captured, which the work cannot join, and the capture is "
      "untouched: %s before the capture begins, or pass an array of a library that tells "
      "its stream",
      Py_TYPE(object)->tp_name, call->plan.stream,
      call->kernel->handle != NULL ? "pass ons.from_dlpack(x), made" : "import it");
  return false;
}

/* Of an argument whose stream nobody knows: does __dlpack__(stream=...) give the order
 * that the launch needs? */
static bool check_order(onspy_call* call, size_t index, PyObject* object,
                        const onspy_producer* producer) {
  const char* name = Py_TYPE(object)->tp_name;
  if (producer->traits & ONSPY_PRODUCER_ON_CALLERS_STREAM) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_order,
        "a %.200s, which knows no stream of its own: pass stream= or use "
        "ons.use_stream, with the stream that its memory is used on (in a callback of "
        "JAX, its context's)",
        name);
    return false;
  }
  bool written = onspy_traits(call->kernel, index) & ONSPY_PARAMETER_WRITTEN;
  if (!written || !ONS__DOES(REFUSE_WRITE)) return true;
  onspy_raise_argument(
      call->kernel, index, call->state->error_order,
      "a %.200s, whose library does not tell on which stream it works, so nothing could "
      "keep that work behind this write: declare the parameter const if it only reads, "
      "tell the stream with ons.register_producer, or vouch for the order with stream= "
      "and order='trust'",
      name);
  return false;
}

bool onspy_call_check(onspy_call* call, size_t index, PyObject* object,
                      const onspy_producer* producer) {
  const char* name = Py_TYPE(object)->tp_name;
  if (call->launch->graph != NULL && producer->library == ONSPY_LIBRARY_JAX) {
    onspy_raise_argument(call->kernel, index, call->state->error_order,
                         "a %.200s, which JAX hands over in the order of a stream only, "
                         "and a node of a graph has none; launch on a stream that is "
                         "being captured, or pass another library's array",
                         name);
    return false;
  }
  bool written = onspy_traits(call->kernel, index) & ONSPY_PARAMETER_WRITTEN;
  if (written && (call->args[index].flags & ONS_ARG_READ_ONLY)) {
    onspy_raise_argument(call->kernel, index, call->state->error_argument_value,
                         "a %.200s, which is read-only: declare the parameter const, or "
                         "pass a writable copy or an output",
                         name);
    return false;
  }
  if (!is_told_stream(call, index, producer)) return true;
  if (call->plan.capture_state != 0 && ONS__DOES(REFUSE_UNKNOWN)) {
    return refuse_capture(call, index, object);
  }
  return is_borrowed(call, index) || check_order(call, index, object, producer);
}

bool onspy_call_ask(onspy_call* call, size_t index, PyObject* object,
                    const onspy_producer* producer) {
  ons_arg* arg = &call->args[index];
  bool borrowed = is_borrowed(call, index);
  bool told = is_told_stream(call, index, producer);
  bool retain = told || !borrowed || (producer->traits & ONSPY_PRODUCER_RETAINED) != 0;
  PyObject* stream;
  if (!told || !ONS__DOES(ASK_WITH_STREAM)) {
    stream = PyLong_FromLong(-1);
  } else {
    /* DLPack's name for the legacy stream is 1. */
    stream = PyLong_FromVoidPtr(call->plan.stream != NULL ? call->plan.stream : (void*)1);
  }
  if (stream == NULL) return false;
  bool taken = take_from(call, index, object, producer, stream, retain);
  Py_DECREF(stream);
  if (taken && retain) onspy_kept_measure(&call->retained, &call->tensors[index]);
  if (taken && !borrowed) arg->flags |= ONS_ARG_ORDERED;
  return taken;
}

bool onspy_call_ask_output(onspy_call* call, size_t index, PyObject* object) {
  bool on_host = onspy_on_host(call->plan.device);
  PyObject* stream = NULL;
  if (!on_host) {
    stream = PyLong_FromVoidPtr(call->plan.stream != NULL ? call->plan.stream : (void*)1);
    if (stream == NULL) return false;
  }
  bool taken = take_dlpack(call, index, object, stream, !on_host);
  Py_XDECREF(stream);
  if (taken && !on_host) onspy_kept_measure(&call->retained, &call->tensors[index]);
  if (taken) call->args[index].flags = on_host ? 0 : ONS_ARG_ORDERED;
  return taken;
}

/* ---- by kind ---------------------------------------------------------------------- */

static bool refuse_unknown(onspy_call* call, size_t index, PyObject* object) {
  const char* name = Py_TYPE(object)->tp_name;
  const char* advice =
      "pass an array with __dlpack__, __cuda_array_interface__ or a buffer, or a "
      "number";
  if (strstr(name, "Masked") != NULL) advice = "pass x.filled() or x.data";
  if (strstr(name, "Tracer") != NULL) {
    advice =
        "it is an abstract value under a JAX transformation (jit, vmap, grad), "
        "and kernels take concrete arrays";
  }
  onspy_raise_argument(call->kernel, index, call->state->error_argument_type,
                       "a %.200s, which is no argument for a kernel; %s", name, advice);
  return false;
}

static bool refuse_like(onspy_call* call, size_t index, PyObject* like) {
  onspy_raise_argument(call->kernel, index, call->state->error_argument_type,
                       "an output like a %.200s, which is no array; pass an array to "
                       "take after, or ons.empty(shape, dtype)",
                       Py_TYPE(like)->tp_name);
  return false;
}

/* An output counts as a tensor where the array that it takes after is, on the stream that
 * it will be allocated on, when the launch's device and stream are chosen. ons.empty goes
 * where the other arguments are. */
static bool place_output(onspy_call* call, size_t index, PyObject* like) {
  ons_arg* arg = &call->args[index];
  DLTensor* tensor = &call->tensors[index];
  *tensor = (DLTensor){.data = NULL};
  arg->kind = ONS_ARG_NULL;
  call->kernel->output_index = index;
  if (like == NULL) return true;
  if (Py_IS_TYPE(like, call->state->tensor_type)) {
    bool placed = onspy_call_tensor(call, index, like);
    arg->kind = ONS_ARG_PENDING;
    arg->flags = (arg->flags & ONS_ARG_STREAM_KNOWN) | ONS_ARG_OUTPUT;
    return placed;
  }
  onspy_producer scratch;
  const onspy_producer* producer =
      onspy_producer_find(call->state, Py_TYPE(like), &scratch);
  DLDevice device = {(DLDeviceType)0, 0};
  if (producer == NULL) return false;
  if (producer->kind == ONSPY_KIND_UNKNOWN) return refuse_unknown(call, index, like);
  if (!onspy_device_of(call, index, like, producer, &device)) return false;
  if ((int)device.device_type == 0) return refuse_like(call, index, like);
  *tensor = (DLTensor){.device = device};
  arg->kind = ONS_ARG_PENDING;
  arg->value.tensor = tensor;
  if (onspy_on_host(device)) return true;
  call->device_seen = true;
  arg->flags |= ONS_ARG_OUTPUT;
  return producer->kind == ONSPY_KIND_EXCHANGE
             ? onspy_exchange_stream(call, index, like, producer)
             : onspy_call_stream(call, index, like, producer, device);
}

/* The numbers of a vector. */
static bool take_several(onspy_call* call, size_t index, PyObject* object) {
  bool is_vector = onspy_traits(call->kernel, index) & ONSPY_PARAMETER_VECTOR;
  if (is_vector && (PyList_Check(object) || PyTuple_Check(object))) {
    return onspy_vector(call, index, object);
  }
  if (PyComplex_Check(object)) return onspy_scalar_from_number(call, index, object);
  return refuse_unknown(call, index, object);
}

static bool take_by_kind(onspy_call* call, size_t index, PyObject* object,
                         const onspy_producer* producer) {
  switch (producer->kind) {
    case ONSPY_KIND_NUMBER:
      return onspy_scalar_from_number(call, index, object);
    case ONSPY_KIND_BYTES:
    case ONSPY_KIND_BUFFER:
      return onspy_call_buffer(call, index, object, producer);
    case ONSPY_KIND_ARRAY_INTERFACE:
      return onspy_call_array_interface(call, index, object, producer);
    case ONSPY_KIND_DLPACK:
      return onspy_call_dlpack(call, index, object, producer);
    case ONSPY_KIND_ARROW:
      return onspy_call_arrow(call, index, object);
    case ONSPY_KIND_OUTPUT:
      ++call->pending_count;
      return place_output(call, index, ((onspy_output*)object)->like);
    default:
      return take_several(call, index, object);
  }
}

bool onspy_call_slow(onspy_call* call, size_t index, PyObject* object,
                     const onspy_producer* producer) {
  bool taken = take_by_kind(call, index, object, producer);
  if (producer->traits & ONSPY_PRODUCER_READ_ONLY) {
    call->args[index].flags |= ONS_ARG_READ_ONLY;
  }
  return taken;
}

bool onspy_device_of(onspy_call* call, size_t index, PyObject* object,
                     const onspy_producer* producer, DLDevice* out_device) {
  switch (producer->kind) {
    case ONSPY_KIND_EXCHANGE:
      return onspy_exchange_device(call, index, object, producer, out_device);
    case ONSPY_KIND_DLPACK:
      return onspy_dlpack_device(call, index, object, out_device);
    case ONSPY_KIND_ARROW:
      return onspy_arrow_device(call, index, object, out_device);
    case ONSPY_KIND_ARRAY_INTERFACE:
      *out_device = (DLDevice){kDLCUDA, 0};
      return !producer->has_dlpack ||
             onspy_dlpack_device(call, index, object, out_device);
    case ONSPY_KIND_BUFFER:
      *out_device = (DLDevice){kDLCPU, 0};
      return true;
    case ONSPY_KIND_TENSOR:
      *out_device = onspy_tensor_device(object);
      return true;
    case ONSPY_KIND_OUTPUT: {
      PyObject* like = ((onspy_output*)object)->like; /* never an output itself */
      if (like == NULL) return true;
      onspy_producer scratch;
      const onspy_producer* inner =
          onspy_producer_find(call->state, Py_TYPE(like), &scratch);
      return inner != NULL && onspy_device_of(call, index, like, inner, out_device);
    }
    default:
      return true;
  }
}
