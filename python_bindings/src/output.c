/* ons.empty and ons.like: arguments that the call allocates and returns. */
#include <string.h>

#include "binding.h"

/* ---- the type --------------------------------------------------------------------- */

static PyObject* output_new(onspy_state* state, PyObject* like, PyObject* shape,
                            PyObject* dtype) {
  PyTypeObject* type = state->output_type;
  if (type == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the interpreter is shutting down");
    return NULL;
  }
  onspy_output* self = (onspy_output*)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  self->like = Py_XNewRef(like);
  self->shape = Py_XNewRef(shape);
  self->dtype = Py_XNewRef(dtype);
  return (PyObject*)self;
}

/* A tuple of non-negative ints that fit int64 (new reference). */
static PyObject* checked_shape(PyObject* shape) {
  bool readable =
      PyIndex_Check(shape) || Py_TYPE(shape)->tp_iter != NULL || PySequence_Check(shape);
  if (!readable) {
    return PyErr_Format(PyExc_TypeError,
                        "shape must be an int or a tuple of ints, not %R", shape);
  }
  PyObject* tuple =
      PyIndex_Check(shape) ? PyTuple_Pack(1, shape) : PySequence_Tuple(shape);
  if (tuple == NULL) return NULL;
  Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  PyObject* checked = PyTuple_New(count);
  for (Py_ssize_t i = 0; checked != NULL && i < count; ++i) {
    PyObject* extent = PyNumber_Index(PyTuple_GET_ITEM(tuple, i));
    if (extent == NULL) {
      Py_CLEAR(checked);
      break;
    }
    PyTuple_SET_ITEM(checked, i, extent);
    long long value = PyLong_AsLongLong(extent);
    if (value < 0) {
      PyErr_Format(PyExc_ValueError, "shape must be of non-negative 64-bit ints, not %R",
                   extent);
      Py_CLEAR(checked);
    }
  }
  Py_DECREF(tuple);
  return checked;
}

PyObject* onspy_output_empty(onspy_state* state, PyObject* shape, PyObject* dtype) {
  PyObject* checked = checked_shape(shape);
  PyObject* name = checked != NULL ? onspy_dtype_name(state, dtype) : NULL;
  PyObject* self = name != NULL ? output_new(state, NULL, checked, name) : NULL;
  Py_XDECREF(name);
  Py_XDECREF(checked);
  return self;
}

PyObject* onspy_output_like(onspy_state* state, PyObject* like) {
  return output_new(state, like, NULL, NULL);
}

/* ---- allocation through an exchange table ----------------------------------------- */

/* Called by the table's allocator, maybe without the GIL. */
static void set_error(void* context, const char* kind, const char* message) {
  (void)context;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyErr_Format(PyExc_RuntimeError, "%.100s: %.500s", kind, message);
  PyGILState_Release(gil);
}

static PyObject* allocate_by_table(onspy_call* call, size_t index,
                                   const DLPackExchangeAPI* exchange,
                                   DLTensor* prototype) {
  DLManagedTensorVersioned* managed = NULL;
  void* object = NULL;
  if (exchange->managed_tensor_allocator == NULL ||
      exchange->managed_tensor_to_py_object_no_sync == NULL) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "an output, but the library of the other arrays offers no allocation; "
        "pass an array");
    return NULL;
  }
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

/* The DLTensor that an output asks for; extents go to memory of the call. */
static bool fill_prototype(onspy_call* call, const onspy_output* output,
                           const onspy_producer* producer, PyObject* model, size_t index,
                           DLTensor* out_prototype) {
  if (output->like != NULL) {
    *out_prototype = (DLTensor){.data = NULL};
    DLDevice device;
    if (!onspy_exchange_device(call, index, model, producer, &device)) return false;
    *out_prototype = call->tensors[index];
    out_prototype->strides = NULL;
    return true;
  }
  Py_ssize_t ndim = PyTuple_GET_SIZE(output->shape);
  int64_t* extents = onspy_call_extents(call, (size_t)ndim);
  if (extents == NULL) return false;
  for (Py_ssize_t i = 0; i < ndim; ++i) {
    extents[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(output->shape, i));
  }
  const char* name = PyUnicode_AsUTF8(output->dtype);
  DLDevice device;
  if (name == NULL || !onspy_exchange_device(call, index, model, producer, &device))
    return false;
  *out_prototype = (DLTensor){.device = device, .ndim = (int32_t)ndim, .shape = extents};
  return onspy_dtype_from_name(name, &out_prototype->dtype);
}

/* ---- allocation by a library's own function --------------------------------------- */

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

static PyObject* allocate_by_helper(onspy_call* call, const onspy_output* output,
                                    PyObject* name, PyObject* model) {
  PyObject* helpers = onspy_helpers(call->state);
  if (helpers == NULL) return NULL;
  if (output->like != NULL) return PyObject_CallMethodOneArg(helpers, name, model);
  return PyObject_CallMethodObjArgs(helpers, name, model, output->shape, output->dtype,
                                    NULL);
}

/* What would have to allocate device memory by other means than the stream's own order.
 */
static bool check_capture(onspy_call* call, size_t index,
                          const onspy_producer* producer) {
  bool safe =
      producer->library == ONSPY_LIBRARY_TORCH || producer->kind == ONSPY_KIND_EXCHANGE;
  if (call->plan.capture_state == 0 || safe) return true;
  onspy_raise_argument(
      call->kernel, index, call->state->error_order,
      "an output to be allocated as a %.200s while the launch stream is being "
      "captured, which could break the capture; pass an array made before",
      producer->type->tp_name);
  return false;
}

/* ---- one output ------------------------------------------------------------------- */

/* The array to take after, borrowed: like's, else the first array among the arguments
 * that is where the launch goes (pinned memory may stand before it), else the first of
 * all. */
static PyObject* find_model(onspy_call* call, size_t index, const onspy_output* output) {
  if (output->like != NULL) return output->like;
  bool host_launch = onspy_on_host(call->plan.device);
  PyObject* first = NULL;
  for (size_t i = 0; i < call->count; ++i) {
    PyObject* model = call->objects[i];
    if (Py_IS_TYPE(model, call->state->output_type)) {
      model = ((onspy_output*)model)->like;
    }
    uint32_t kind = call->args[i].kind;
    /* A Tensor has no library to allocate another. */
    if (model != NULL && Py_IS_TYPE(model, call->state->tensor_type)) continue;
    if (model == NULL || (kind != ONS_ARG_TENSOR && kind != ONS_ARG_PENDING)) continue;
    if (onspy_on_host(call->tensors[i].device) == host_launch) return model;
    if (first == NULL) first = model;
  }
  if (first == NULL) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "ons.empty without any array among the arguments, whose library would "
        "allocate it; pass an array or ons.like(x)");
  }
  return first;
}

/* A fresh array of |producer|'s library (new reference). */
static PyObject* allocate(onspy_call* call, size_t index, const onspy_output* output,
                          const onspy_producer* producer, PyObject* model) {
  PyObject* name = helper_name(call->state, producer->library, output->like != NULL);
  if (name != NULL) return allocate_by_helper(call, output, name, model);
  if (producer->kind != ONSPY_KIND_EXCHANGE) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "an output to be allocated by the library of %.200s, which onstream does "
        "not know how to ask; pass an array",
        Py_TYPE(model)->tp_name);
    return NULL;
  }
  DLTensor prototype;
  if (!fill_prototype(call, output, producer, model, index, &prototype)) return NULL;
  return allocate_by_table(call, index, producer->exchange, &prototype);
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

bool onspy_output_allocate(onspy_call* call, size_t index) {
  const onspy_output* output = (onspy_output*)call->objects[index];
  PyObject* model = find_model(call, index, output);
  if (model == NULL) return false;
  onspy_producer scratch;
  const onspy_producer* producer =
      onspy_producer_find(call->state, Py_TYPE(model), &scratch);
  if (producer == NULL || !check_capture(call, index, producer)) return false;
  PyObject* array = allocate(call, index, output, producer, model);
  if (array == NULL) return false;
  call->outputs[call->output_count++] = array;
  return bind_output(call, index, array);
}

/* JAX on a GPU: an array that was written behind JAX's back is handed back to it as a
 * view that JAX orders after the launch. */
bool onspy_outputs_finish(onspy_call* call) {
  if (!call->finish_outputs) return true;
  PyObject* helpers = onspy_helpers(call->state);
  if (helpers == NULL) return false;
  for (size_t i = 0; i < call->output_count; ++i) {
    PyObject* view = PyObject_CallMethod(
        helpers, "jax_finish", "OiK", call->outputs[i], (int)call->plan.device.device_id,
        (unsigned long long)(uintptr_t)call->plan.stream);
    if (view == NULL) return false;
    Py_SETREF(call->outputs[i], view);
  }
  return true;
}

/* ---- the type's slots ------------------------------------------------------------- */

static PyObject* output_repr(PyObject* object) {
  const onspy_output* self = (onspy_output*)object;
  if (self->like != NULL) {
    return PyUnicode_FromFormat("onstream.like(<%s>)", Py_TYPE(self->like)->tp_name);
  }
  return PyUnicode_FromFormat("onstream.empty(%R, %R)", self->shape, self->dtype);
}

static int output_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((onspy_output*)object)->like);
  return 0;
}

/* No clear: immutable, so that a cycle through `like` has a clearable object elsewhere.
 */
static void output_dealloc(PyObject* object) {
  onspy_output* self = (onspy_output*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->like);
  Py_XDECREF(self->shape);
  Py_XDECREF(self->dtype);
  type->tp_free(object);
  Py_DECREF(type);
}

static PyType_Slot output_slots[] = {
    {Py_tp_doc,
     (void*)"What empty() and like() return: an output of the call it is passed to."},
    {Py_tp_repr, ONSPY_FUNCTION(output_repr)},
    {Py_tp_traverse, ONSPY_FUNCTION(output_traverse)},
    {Py_tp_dealloc, ONSPY_FUNCTION(output_dealloc)},
    {0, NULL}};

PyType_Spec onspy_output_spec = {
    .name = "onstream.Output",
    .basicsize = sizeof(onspy_output),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = output_slots,
};
