/* Outputs are allocated by the library of the arrays around them, in the order of that
 * library's current stream; by onstream, on the launch stream, where the library has
 * nothing to ask for that. */
#include <string.h>

#include "binding.h"

/* ---- through an exchange table ---------------------------------------------------- */

/* Called by the table's allocator, maybe without the GIL. */
static void set_error(void* context, const char* kind, const char* message) {
  (void)context;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyErr_Format(PyExc_RuntimeError, "%.100s: %.500s", kind, message);
  PyGILState_Release(gil);
}

static bool has_allocator(const onspy_producer* producer) {
  return producer->kind == ONSPY_KIND_EXCHANGE &&
         producer->exchange->managed_tensor_allocator != NULL &&
         producer->exchange->managed_tensor_to_py_object_no_sync != NULL;
}

static PyObject* allocate_by_table(onspy_call* call, size_t index,
                                   const DLPackExchangeAPI* exchange,
                                   DLTensor* prototype) {
  DLManagedTensorVersioned* managed = NULL;
  void* object = NULL;
  if (exchange->managed_tensor_allocator(prototype, &managed, NULL, set_error) != 0 ||
      managed == NULL ||
      exchange->managed_tensor_to_py_object_no_sync(managed, &object) != 0) {
    if (!PyErr_Occurred()) {
      onspy_raise_argument(
          call->kernel, index, PyExc_MemoryError,
          "an output, which its library did not allocate; free memory, or pass an array");
    }
    return NULL;
  }
  return object;
}

/* ---- by a library's own function --------------------------------------------------- */

/* The helpers' name for allocating like an array, or by shape and dtype (borrowed); NULL
 * where the library has none. */
static PyObject* helper_name(const onspy_state* state, onspy_library library, bool like) {
  switch (library) {
    case ONSPY_LIBRARY_TORCH:
      return like ? state->str_torch_like : state->str_torch_empty;
    case ONSPY_LIBRARY_NUMPY:
      return like ? state->str_numpy_like : state->str_numpy_empty;
    case ONSPY_LIBRARY_CUPY:
      return like ? state->str_cupy_like : state->str_cupy_empty;
    case ONSPY_LIBRARY_JAX:
      return like ? state->str_jax_like : state->str_jax_empty;
    default:
      return NULL;
  }
}

/* ---- what is asked for ------------------------------------------------------------ */

/* An output with all that it refers to looked up. Of one that is like an array in all,
 * `shape` and `dtype` are NULL. */
typedef struct request {
  PyObject* model; /* borrowed */
  PyObject* shape; /* tuple of int */
  PyObject* dtype; /* str */
} request;

static void clear_request(request* wanted) {
  Py_CLEAR(wanted->shape);
  Py_CLEAR(wanted->dtype);
}

/* The model's own shape or dtype, from the protocol that it speaks: what the attributes
 * of those names are differs between libraries. tensors[index] is the output's, and free.
 * The model is no argument: nothing waits for it, and it is kept for the call only. */
static bool look_at_model(onspy_call* call, size_t index, const onspy_producer* producer,
                          PyObject* model) {
  const ons_arg saved = call->args[index];
  void** const events = call->events;
  const size_t event_count = call->event_count;
  const size_t retained_count = call->retained.count;
  bool looked;
  if (producer->kind == ONSPY_KIND_EXCHANGE) {
    DLDevice device;
    looked = onspy_exchange_device(call, index, model, producer, &device);
  } else if (producer->kind == ONSPY_KIND_TENSOR) {
    looked = onspy_call_tensor(call, index, model);
  } else {
    looked = onspy_call_slow(call, index, model, producer);
    if (looked && call->args[index].kind == ONS_ARG_PENDING) {
      call->args[index].flags |= ONS_ARG_STREAM_KNOWN; /* so that it is asked with -1 */
      looked = onspy_call_ask(call, index, model, producer);
    }
  }
  call->args[index] = saved;
  call->events = events;
  call->event_count = event_count;
  while (call->retained.count > retained_count) {
    const ons_retained* last = &call->retained.items[--call->retained.count];
    looked &= onspy_kept_add(&call->temporary, last->object, last->release);
  }
  return looked;
}

/* Completes what is asked for with what the model is. */
static bool complete_from_model(onspy_call* call, size_t index,
                                const onspy_producer* producer, request* wanted) {
  PyObject* model = wanted->model;
  if (producer->library != ONSPY_LIBRARY_OTHER) { /* these have attributes of one kind */
    if (wanted->shape == NULL) {
      PyObject* shape = PyObject_GetAttr(model, call->state->str_shape);
      wanted->shape = shape != NULL ? PySequence_Tuple(shape) : NULL;
      Py_XDECREF(shape);
    }
    if (wanted->shape != NULL && wanted->dtype == NULL) {
      PyObject* dtype = PyObject_GetAttr(model, call->state->str_dtype);
      wanted->dtype = dtype != NULL ? onspy_dtype_name(call->state, dtype) : NULL;
      Py_XDECREF(dtype);
    }
  } else if (look_at_model(call, index, producer, model)) {
    const DLTensor* tensor = &call->tensors[index];
    if (wanted->shape == NULL)
      wanted->shape = onspy_extents_tuple(tensor->shape, tensor->ndim, 1);
    if (wanted->dtype == NULL) wanted->dtype = onspy_dtype_text(tensor->dtype);
  }
  return wanted->shape != NULL && wanted->dtype != NULL;
}

static bool look_up(onspy_call* call, size_t index, const onspy_output* output,
                    request* out_wanted) {
  if (output->shape != NULL) {
    out_wanted->shape = onspy_shape_resolve(call, index, output->shape);
    if (out_wanted->shape == NULL) return false;
  }
  if (output->dtype == NULL) return true;
  out_wanted->dtype = onspy_dtype_resolve(call, index, output->dtype);
  return out_wanted->dtype != NULL;
}

/* Not every library survives to be asked for more bytes than can be counted. */
static bool check_size(onspy_call* call, size_t index, const request* wanted) {
  DLDataType dtype;
  const char* name = PyUnicode_AsUTF8(wanted->dtype);
  if (name == NULL) return false;
  int64_t bytes = onspy_dtype_from_name(name, &dtype) ? (dtype.bits + 7) / 8 : 1;
  bool overflows = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(wanted->shape); ++i) {
    int64_t size = PyLong_AsLongLong(PyTuple_GET_ITEM(wanted->shape, i));
    if (size == 0) return true;
    if (size < 0 && PyErr_Occurred()) return false;
    overflows |= __builtin_mul_overflow(bytes, size, &bytes);
  }
  if (!overflows) return true;
  onspy_raise_argument(call->kernel, index, call->state->error_argument_value,
                       "an output of shape %R and dtype %S, too large for any memory",
                       wanted->shape, wanted->dtype);
  return false;
}

/* The DLTensor that a complete request is for; extents go to memory of the call. */
static bool fill_prototype(onspy_call* call, size_t index, const request* wanted,
                           DLDevice device, DLTensor* out_prototype) {
  Py_ssize_t ndim = PyTuple_GET_SIZE(wanted->shape);
  int64_t* extents = onspy_call_extents(call, (size_t)ndim);
  const char* name = PyUnicode_AsUTF8(wanted->dtype);
  if (extents == NULL || name == NULL) return false;
  *out_prototype = (DLTensor){.device = device, .ndim = (int32_t)ndim, .shape = extents};
  for (Py_ssize_t i = 0; i < ndim; ++i) {
    extents[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(wanted->shape, i));
    if (extents[i] == -1 && PyErr_Occurred()) return false;
  }
  if (onspy_dtype_from_name(name, &out_prototype->dtype)) return true;
  onspy_raise_argument(
      call->kernel, index, call->state->error_argument_type,
      "an output of dtype %R, which has no name here; give dtype=", wanted->dtype);
  return false;
}

/* ---- memory of onstream's own ----------------------------------------------------- */

static DLDevice own_device(DLDevice device) {
  if (onspy_on_host(device)) return (DLDevice){kDLCPU, 0};
  if (device.device_type == kDLCUDAManaged) device.device_type = kDLCUDA;
  return device;
}

static void* raise_own(onspy_call* call, size_t index, const ons_error* error) {
  PyObject* kind;
  switch (error->code) {
    case ONS_STATUS_OUT_OF_MEMORY:
      kind = PyExc_MemoryError;
      break;
    case ONS_STATUS_ARGUMENT_VALUE:
      kind = call->state->error_argument_value;
      break;
    case ONS_STATUS_CAPTURE:
      kind = call->state->error_order;
      break;
    default:
      return onspy_raise(call->state, error);
  }
  return onspy_raise_argument(call->kernel, index, kind,
                              "an output that cannot be allocated: %s", error->message);
}

static PyObject* allocate_own(onspy_call* call, size_t index, const request* wanted,
                              DLDevice device) {
  DLTensor prototype;
  ons_runtime* runtime = onspy_runtime(call->state);
  if (runtime == NULL ||
      !fill_prototype(call, index, wanted, own_device(device), &prototype)) {
    return NULL;
  }
  ons_allocation allocation = ONS_ALLOCATION_INIT;
  allocation.device = prototype.device;
  allocation.dtype = prototype.dtype;
  allocation.ndim = prototype.ndim;
  allocation.shape = prototype.shape;
  allocation.stream = call->plan.stream;
  ons_tensor* tensor = NULL;
  ons_error error = ONS_ERROR_INIT;
  if (ons_tensor_allocate(runtime, &allocation, &tensor, &error) != ONS_STATUS_OK) {
    return raise_own(call, index, &error);
  }
  return onspy_tensor_wrap(call->state, tensor);
}

/* ---- one output ------------------------------------------------------------------- */

/* The array to take after, borrowed: like's, else the first array among the arguments
 * that is where the launch goes (pinned memory may stand before it), else the first of
 * all; an onstream.Tensor, which has no library, only where there is no other. */
static PyObject* find_model(onspy_call* call, size_t index, const onspy_output* output) {
  if (output->like != NULL) return output->like;
  bool host_launch = onspy_on_host(call->plan.device);
  PyObject* first = NULL;
  PyObject* tensor = NULL;
  for (size_t i = 0; i < call->count; ++i) {
    PyObject* model = call->objects[i];
    if (Py_IS_TYPE(model, call->state->output_type)) {
      model = ((onspy_output*)model)->like;
    }
    uint32_t kind = call->args[i].kind;
    if (model == NULL || (kind != ONS_ARG_TENSOR && kind != ONS_ARG_PENDING)) continue;
    if (Py_IS_TYPE(model, call->state->tensor_type)) {
      if (tensor == NULL) tensor = model;
      continue;
    }
    if (onspy_on_host(call->tensors[i].device) == host_launch) return model;
    if (first == NULL) first = model;
  }
  if (first == NULL) first = tensor;
  if (first == NULL) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "ons.empty without any array among the arguments, whose library would "
        "allocate it; pass an array or ons.like(x)");
  }
  return first;
}

/* What would have to allocate device memory by other means than the stream's own order.
 */
static bool check_capture(onspy_call* call, size_t index,
                          const onspy_producer* producer) {
  bool safe = producer->library == ONSPY_LIBRARY_TORCH || has_allocator(producer);
  if (call->plan.capture_state == 0 || safe) return true;
  onspy_raise_argument(
      call->kernel, index, call->state->error_order,
      "an output to be allocated as a %.200s while the launch stream is being "
      "captured, which could break the capture; pass an array made before",
      producer->type->tp_name);
  return false;
}

static DLDevice device_of_model(onspy_call* call, size_t index,
                                const onspy_producer* producer, PyObject* model,
                                bool is_like) {
  DLDevice device = {(DLDeviceType)0, 0};
  if (!is_like) return call->plan.device;
  return onspy_device_of(call, index, model, producer, &device)
             ? device
             : (DLDevice){(DLDeviceType)0, 0};
}

/* For the fast way (fast_call.c). */
static void keep_empty_like(onspy_state* state) {
  if (state->torch_empty_like != NULL) return;
  PyObject* torch = PyImport_ImportModule("torch");
  if (torch != NULL)
    state->torch_empty_like = PyObject_GetAttrString(torch, "empty_like");
  Py_XDECREF(torch);
  PyErr_Clear();
}

static PyObject* allocate_once(onspy_call* call, size_t index,
                               const onspy_producer* producer, bool is_like,
                               request* wanted) {
  bool is_copy = wanted->shape == NULL && wanted->dtype == NULL;
  PyObject* name = helper_name(call->state, producer->library, is_copy);
  PyObject* helpers = name != NULL ? onspy_helpers(call->state) : NULL;
  if (name != NULL && helpers == NULL) return NULL;
  if (name != NULL && is_copy) {
    if (producer->library == ONSPY_LIBRARY_TORCH) keep_empty_like(call->state);
    return PyObject_CallMethodOneArg(helpers, name, wanted->model);
  }
  if (!(wanted->shape && wanted->dtype) &&
      !complete_from_model(call, index, producer, wanted)) {
    return NULL;
  }
  if (!check_size(call, index, wanted)) return NULL;
  if (name != NULL) {
    return PyObject_CallMethodObjArgs(helpers, name, wanted->model, wanted->shape,
                                      wanted->dtype, NULL);
  }
  DLDevice device = device_of_model(call, index, producer, wanted->model, is_like);
  if ((int)device.device_type == 0) return NULL;
  if (!has_allocator(producer)) return allocate_own(call, index, wanted, device);
  DLTensor prototype;
  return fill_prototype(call, index, wanted, device, &prototype)
             ? allocate_by_table(call, index, producer->exchange, &prototype)
             : NULL;
}

/* The class to raise for what a library says of a request that it cannot fulfil; NULL for
 * what stays as it is: that it is out of memory, interrupts, our own errors. */
static PyObject* class_of_refusal(const onspy_state* state) {
  if (PyErr_ExceptionMatches(state->error_base)) return NULL;
  if (PyErr_ExceptionMatches(PyExc_TypeError) ||
      PyErr_ExceptionMatches(PyExc_AttributeError) ||
      PyErr_ExceptionMatches(PyExc_ImportError)) {
    return state->error_argument_type;
  }
  bool is_value = PyErr_ExceptionMatches(PyExc_ValueError) ||
                  PyErr_ExceptionMatches(PyExc_OverflowError);
  return is_value ? state->error_argument_value : NULL;
}

/* Memory of onstream's own has been tried twice then. */
static bool may_be_out_of_memory(const onspy_state* state,
                                 const onspy_producer* producer) {
  if (helper_name(state, producer->library, true) == NULL && !has_allocator(producer))
    return false;
  return PyErr_ExceptionMatches(PyExc_MemoryError) ||
         PyErr_ExceptionMatches(PyExc_RuntimeError);
}

/* A fresh array (new reference). What is kept for launches that are over may be what
 * fills the memory: it is given back, and the library asked once more. */
static PyObject* allocate(onspy_call* call, size_t index, const onspy_producer* producer,
                          bool is_like, request* wanted) {
  PyObject* array = allocate_once(call, index, producer, is_like, wanted);
  if (array == NULL && may_be_out_of_memory(call->state, producer)) {
    PyErr_Clear();
    ons_runtime_collect(call->state->runtime);
    array = allocate_once(call, index, producer, is_like, wanted);
  }
  if (array != NULL) return array;
  PyObject* refusal = class_of_refusal(call->state);
  if (refusal == NULL) return NULL;
  onspy_raise_failed(call->kernel, index, refusal,
                     "an output that its library cannot allocate: it");
  return NULL;
}

/* Puts the fresh array into args[index]. */
static bool bind_output(onspy_call* call, size_t index, PyObject* array) {
  onspy_producer scratch;
  const onspy_producer* producer =
      onspy_producer_find(call->state, Py_TYPE(array), &scratch);
  if (producer == NULL) return false;
  ons_arg* arg = &call->args[index];
  arg->flags = 0;
  bool bound;
  if (producer->kind == ONSPY_KIND_EXCHANGE) {
    bound = onspy_call_exchange(call, index, array, producer);
  } else if (producer->kind == ONSPY_KIND_TENSOR) {
    bound = onspy_call_tensor(call, index, array);
  } else if (producer->library == ONSPY_LIBRARY_JAX) {
    bound = onspy_call_ask_output(call, index, array);
    call->finish_outputs |= bound && !onspy_on_host(call->plan.device);
  } else {
    bound = onspy_call_slow(call, index, array, producer);
    if (bound && arg->kind == ONS_ARG_PENDING) {
      bound = onspy_call_ask(call, index, array, producer);
    }
  }
  if (bound) arg->flags |= ONS_ARG_OUTPUT;
  return bound;
}

/* Takes the array over: for the caller, or for as long as the call. */
static bool keep(onspy_call* call, const onspy_output* output, PyObject* array) {
  if (output->flags & ONSPY_OUTPUT_WORKSPACE)
    return onspy_kept_add(&call->temporary, array, onspy_release_object);
  call->outputs[call->output_count++] = array;
  return true;
}

bool onspy_output_allocate(onspy_call* call, size_t index) {
  const onspy_output* output = (onspy_output*)call->objects[index];
  request wanted = {.model = find_model(call, index, output)};
  if (wanted.model == NULL) return false;
  onspy_producer scratch;
  const onspy_producer* producer =
      onspy_producer_find(call->state, Py_TYPE(wanted.model), &scratch);
  PyObject* array = NULL;
  if (producer != NULL && check_capture(call, index, producer) &&
      look_up(call, index, output, &wanted)) {
    array = allocate(call, index, producer, output->like != NULL, &wanted);
  }
  clear_request(&wanted);
  return array != NULL && keep(call, output, array) && bind_output(call, index, array);
}

/* ---- arrays given for outputs ----------------------------------------------------- */

static bool shape_is(PyObject* shape, const DLTensor* tensor) {
  bool same = PyTuple_GET_SIZE(shape) == tensor->ndim;
  for (int32_t i = 0; same && i < tensor->ndim; ++i) {
    same = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i)) == tensor->shape[i];
  }
  return same && !PyErr_Occurred();
}

static bool refuse_given(onspy_call* call, size_t index, const request* wanted) {
  const DLTensor* tensor = call->args[index].value.tensor;
  PyObject* shape = onspy_extents_tuple(tensor->shape, tensor->ndim, 1);
  PyObject* dtype = onspy_dtype_text(tensor->dtype);
  if (shape != NULL && dtype != NULL) {
    onspy_raise_argument(call->kernel, index, call->state->error_argument_value,
                         "out= with an array of shape %R and dtype %S, for an output of "
                         "shape %R and dtype %S",
                         shape, dtype, wanted->shape, wanted->dtype);
  }
  Py_XDECREF(dtype);
  Py_XDECREF(shape);
  return false;
}

/* The shape and dtype of an array that is given in the place of an output. */
static bool check_given(onspy_call* call, size_t index, const onspy_output* output,
                        request* wanted) {
  if (call->args[index].kind != ONS_ARG_TENSOR) {
    onspy_raise_argument(call->kernel, index, call->state->error_argument_type,
                         "out= with a %.200s; pass an array, or None to have one "
                         "allocated",
                         Py_TYPE(call->objects[index])->tp_name);
    return false;
  }
  if (!(onspy_traits(call->kernel, index) & ONSPY_PARAMETER_WRITTEN)) {
    onspy_raise_argument(call->kernel, index, call->state->error_argument_value,
                         "out= for a parameter that the kernel only reads");
    return false;
  }
  if (!look_up(call, index, output, wanted)) return false;
  if (output->like != NULL && !(wanted->shape && wanted->dtype)) {
    onspy_producer scratch;
    const onspy_producer* producer =
        onspy_producer_find(call->state, Py_TYPE(output->like), &scratch);
    DLTensor given = call->tensors[index];
    wanted->model = output->like;
    bool complete =
        producer != NULL && complete_from_model(call, index, producer, wanted);
    call->tensors[index] = given;
    if (!complete) return false;
  }
  const DLTensor* tensor = call->args[index].value.tensor;
  DLDataType dtype;
  const char* name = PyUnicode_AsUTF8(wanted->dtype);
  bool same = name != NULL && onspy_dtype_from_name(name, &dtype) &&
              memcmp(&dtype, &tensor->dtype, sizeof dtype) == 0 &&
              shape_is(wanted->shape, tensor);
  return same || (!PyErr_Occurred() && refuse_given(call, index, wanted));
}

bool onspy_output_given(onspy_call* call, size_t index) {
  const onspy_output* output = (onspy_output*)call->replaced[index];
  request wanted = {.model = NULL};
  bool fits = check_given(call, index, output, &wanted);
  clear_request(&wanted);
  return fits && keep(call, output, Py_NewRef(call->objects[index]));
}

/* ---- zeros ------------------------------------------------------------------------ */

/* The placeholder at an argument, or NULL. */
static const onspy_output* output_at(const onspy_call* call, size_t index,
                                     bool* out_given) {
  *out_given = call->replaced != NULL && call->replaced[index] != NULL;
  PyObject* object = *out_given ? call->replaced[index] : call->objects[index];
  return Py_IS_TYPE(object, call->state->output_type) ? (onspy_output*)object : NULL;
}

/* On the stream whose order the launch will be in: the array's own, which is joined, but
 * for an array of the caller's under trust, of which nothing is. */
static bool fill_zero(const onspy_call* call, size_t index, bool given) {
  const ons_arg* arg = &call->args[index];
  bool own = (arg->flags & ONS_ARG_STREAM_KNOWN) &&
             !(given && call->plan.order == ONS_ORDER_TRUST);
  ons_error error = ONS_ERROR_INIT;
  DLTensor tensor = *arg->value.tensor;
  if (!own) tensor.device = call->plan.device; /* pinned memory of the caller's, too */
  ons_status status = ons_memory_zero(onspy_runtime(call->state), &tensor,
                                      own ? arg->stream : call->plan.stream, &error);
  return status == ONS_STATUS_OK || onspy_raise(call->state, &error) != NULL;
}

bool onspy_outputs_zeroed(const onspy_call* call) {
  bool given;
  for (size_t i = 0; i < call->count; ++i) {
    const onspy_output* output = output_at(call, i, &given);
    if (output != NULL && (output->flags & ONSPY_OUTPUT_ZERO)) return true;
  }
  return false;
}

bool onspy_outputs_zero(const onspy_call* call) {
  for (size_t i = 0; i < call->count; ++i) {
    bool given;
    const onspy_output* output = output_at(call, i, &given);
    if (output == NULL || !(output->flags & ONSPY_OUTPUT_ZERO)) continue;
    if (!fill_zero(call, i, given)) return false;
  }
  return true;
}

/* ---- after the launch -------------------------------------------------------------- */

/* JAX on a GPU: an array that was written behind JAX's back is handed back to it as a
 * view that JAX orders after the launch. */
bool onspy_outputs_finish(onspy_call* call) {
  if (!call->finish_outputs) return true;
  PyObject* helpers = onspy_helpers(call->state);
  if (helpers == NULL) return false;
  for (size_t i = 0; i < call->output_count; ++i) {
    onspy_producer scratch;
    const onspy_producer* producer =
        onspy_producer_find(call->state, Py_TYPE(call->outputs[i]), &scratch);
    if (producer == NULL) return false;
    if (producer->library != ONSPY_LIBRARY_JAX) continue;
    PyObject* view = PyObject_CallMethod(
        helpers, "jax_finish", "OiK", call->outputs[i], (int)call->plan.device.device_id,
        (unsigned long long)(uintptr_t)call->plan.stream);
    if (view == NULL) return false;
    Py_SETREF(call->outputs[i], view);
  }
  return true;
}
