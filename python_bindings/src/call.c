/* Any call of a kernel, where the fast one (fast_call.c) does not do: classify the
 * arguments, fill the library's argument array, launch.
 *
 * Numbers, and arrays of producers with an exchange table, are taken in a first pass.
 * Producers that must be told the launch stream before they
 * hand a tensor over are left pending in that pass; the library is then asked where the
 * launch would go, and they after that. */
#include <string.h>

#include "generic.h"

/* What the library gets of the arguments as they are now. */
static inline const ons_arg* library_args(const onspy_call* call, size_t* out_count) {
  if (call->kernel->expansion != NULL) return onspy_expansion_args(call, out_count);
  *out_count = call->count;
  return call->args;
}

/* ---- the first pass --------------------------------------------------------------- */

static const onspy_producer* producer_at(onspy_call* call, size_t index,
                                         PyTypeObject* type, onspy_producer* scratch) {
  onspy_slot* slot =
      index < call->kernel->slot_count ? &call->kernel->slots[index] : NULL;
  if (slot != NULL && slot->type == type) return slot->producer;
  const onspy_producer* producer = onspy_producer_find(call->state, type, scratch);
  if (slot != NULL && producer != NULL && producer != scratch) {
    if (call->kernel->output_index == index) call->kernel->output_index = SIZE_MAX;
    slot->type = type;
    slot->producer = producer;
    slot->kind = producer->kind;
  }
  return producer;
}

bool onspy_call_gather(onspy_call* call, size_t index, PyObject* object) {
  onspy_producer scratch;
  const onspy_producer* producer = producer_at(call, index, Py_TYPE(object), &scratch);
  if (producer == NULL) return false;
  ons_arg* arg = &call->args[index];
  arg->flags = 0;
  switch (producer->kind) {
    case ONSPY_KIND_EXCHANGE:
      return onspy_call_exchange(call, index, object, producer);
    case ONSPY_KIND_INT:
      return onspy_scalar_from_int(call, index, object);
    case ONSPY_KIND_FLOAT:
      arg->kind = ONS_ARG_FLOAT;
      arg->value.f = PyFloat_AS_DOUBLE(object);
      return true;
    case ONSPY_KIND_BOOL:
      arg->kind = ONS_ARG_BOOL;
      arg->value.i = object == Py_True;
      return true;
    case ONSPY_KIND_TENSOR:
      return onspy_call_tensor(call, index, object);
    case ONSPY_KIND_NONE:
      arg->kind = ONS_ARG_NULL;
      return true;
    default:
      call->python_ran |= producer->library != ONSPY_LIBRARY_NUMPY;
      return onspy_call_slow(call, index, object, producer);
  }
}

/* What was borrowed before another argument's Python code ran may have been resized or
 * replaced by it. */
static bool borrow_again(onspy_call* call) {
  if (!ONS__DOES(BORROW_AGAIN)) return true;
  for (size_t i = 0; i < call->count; ++i) {
    if (call->args[i].kind != ONS_ARG_TENSOR) continue;
    onspy_producer scratch;
    PyObject* object = call->objects[i];
    const onspy_producer* producer = producer_at(call, i, Py_TYPE(object), &scratch);
    if (producer == NULL) return false;
    if (producer->kind != ONSPY_KIND_EXCHANGE ||
        producer->exchange->dltensor_from_py_object_no_sync == NULL) {
      continue;
    }
    DLDevice device;
    if (!onspy_exchange_device(call, i, object, producer, &device)) return false;
  }
  return true;
}

/* ---- the second pass -------------------------------------------------------------- */

static bool ask_pending(onspy_call* call, bool (*ask)(onspy_call*, size_t, PyObject*,
                                                      const onspy_producer*)) {
  for (size_t i = 0; i < call->count; ++i) {
    PyObject* object = call->objects[i];
    if (call->args[i].kind != ONS_ARG_PENDING ||
        Py_IS_TYPE(object, call->state->output_type)) {
      continue;
    }
    onspy_producer scratch;
    const onspy_producer* producer = producer_at(call, i, Py_TYPE(object), &scratch);
    if (producer == NULL || !ask(call, i, object, producer)) return false;
  }
  return true;
}

/* No pending argument is of unknown order under capture: ons_launch_resolve has refused
 * that. All are checked before the first is asked, which puts its stream in order. */
static bool finish_pending(onspy_call* call) {
  bool checked = !ONS__DOES(LOOK_FIRST) ||
                 (ask_pending(call, onspy_call_check) && onspy_arrow_check_capture(call));
  if (!checked || !ask_pending(call, onspy_call_ask)) {
    return false;
  }
  for (size_t i = 0; i < call->count; ++i) {
    bool given = call->replaced != NULL && call->replaced[i] != NULL;
    bool asked = Py_IS_TYPE(call->objects[i], call->state->output_type);
    if (given && !onspy_output_given(call, i)) return false;
    if (asked && !onspy_output_allocate(call, i)) return false;
  }
  return true;
}

/* Where the launch goes; on that device the kernel is prepared then. */
static bool resolve(const onspy_call* call, const ons_launch* launch,
                    ons_launch_plan* out_plan) {
  ons_kernel* handle = call->kernel->handle;
  ons_error error = ONS_ERROR_INIT;
  *out_plan = (ons_launch_plan)ONS_LAUNCH_PLAN_INIT;
  size_t count;
  const ons_arg* args = library_args(call, &count);
  ons_status status = ons_launch_resolve(handle, launch, args, count, out_plan, &error);
  if (status == ONS_STATUS_NOT_READY) {
    if (!onspy_kernel_prepare(call->kernel, out_plan->device)) return false;
    status = ons_launch_resolve(handle, launch, args, count, out_plan, &error);
  }
  return status == ONS_STATUS_OK || onspy_raise(call->state, &error) != NULL;
}

/* What is refused is refused before an array of the caller's changes, and before a stream
 * is touched that was not known when the launch was looked at: that of ons.zeros. */
static bool fill_zeros(const onspy_call* call, const ons_launch* launch) {
  if (!onspy_outputs_zeroed(call)) return true;
  ons_launch_plan plan;
  const bool refused = ONS__DOES(ZERO_LOOK) && !resolve(call, launch, &plan);
  return !refused && onspy_outputs_zero(call);
}

static bool second_pass(onspy_call* call, ons_launch* launch) {
  const ons_launch_plan* plan = &call->plan;
  if (!resolve(call, launch, &call->plan) || !finish_pending(call)) return false;
  launch->device = plan->device;
  launch->flags |= ONS_LAUNCH_DEVICE;
  if (!onspy_on_host(plan->device) && launch->graph == NULL) {
    launch->stream = plan->stream;
    launch->flags |= ONS_LAUNCH_STREAM;
  }
  return true;
}

/* ---- the first call --------------------------------------------------------------- */

/* Compiles for the device that the launch will be on, so that the signature is known
 * before the arguments are looked at more closely: the first device array's, else the
 * CPU. */
static bool prepare_for_arguments(onspy_call* call) {
  if (call->launch->flags & ONS_LAUNCH_DEVICE) {
    return onspy_kernel_prepare(call->kernel, call->launch->device);
  }
  DLDevice device = {kDLCPU, 0};
  for (size_t i = 0; i < call->count && onspy_on_host(device); ++i) {
    onspy_producer scratch;
    PyObject* object = Py_NewRef(onspy_first_of(call->state, call->objects[i]));
    const onspy_producer* producer =
        onspy_producer_find(call->state, Py_TYPE(object), &scratch);
    DLDevice found = {(DLDeviceType)0, 0};
    bool told = producer != NULL && onspy_device_of(call, i, object, producer, &found);
    Py_DECREF(object); /* Python code that was asked may have changed its list */
    /* Who does not tell its device raises again when it is looked at more closely, and
       then by the parameter's name. */
    if (!told) {
      if (producer == NULL || !PyErr_ExceptionMatches(PyExc_Exception)) return false;
      PyErr_Clear();
      continue;
    }
    if ((int)found.device_type != 0 && !onspy_on_host(found)) device = found;
  }
  onspy_kept_release(&call->temporary);
  if (device.device_type == kDLCUDAManaged) device.device_type = kDLCUDA;
  return onspy_kernel_prepare(call->kernel, device);
}

/* ---- launching -------------------------------------------------------------------- */

static bool is_long(const onspy_call* call) {
  return !call->device_seen && onspy_launch_is_long(call->launch);
}

static ons_status launch_once(const onspy_call* call, const ons_launch* launch,
                              ons_error* error) {
  ons_kernel* handle = call->kernel->handle;
  size_t count;
  const ons_arg* args = library_args(call, &count);
  if (call->update != NULL) {
    ons_launch updating = *launch;
    updating.graph = NULL;
    updating.retained_count = 0; /* what was handed over goes with the call */
    return ons_kernel_update_node(handle, call->update->exec, call->update->node,
                                  &updating, args, count, error);
  }
  if (!is_long(call)) return ons_kernel_launch(handle, launch, args, count, error);
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_kernel_launch(handle, launch, args, count, error);
  Py_END_ALLOW_THREADS;
  return status;
}

static bool launch_prepared(onspy_call* call, const ons_launch* launch) {
  ons_error error;
  error.struct_size = sizeof error;
  error.launched = 0;
  ons_status status = launch_once(call, launch, &error);
  if (status == ONS_STATUS_NOT_READY) {
    ons_launch_plan plan;
    if (!resolve(call, launch, &plan)) return false;
    status = launch_once(call, launch, &error);
  }
  bool taken = call->update == NULL && (status == ONS_STATUS_OK || error.launched);
  if (taken) call->retained.count = 0;
  return status == ONS_STATUS_OK || onspy_raise(call->state, &error) != NULL;
}

static PyObject* take_outputs(onspy_call* call) {
  if (call->output_count == 0) Py_RETURN_NONE;
  PyObject* result;
  if (call->output_count == 1) {
    result = call->outputs[0];
  } else {
    result = PyTuple_New((Py_ssize_t)call->output_count);
    if (result == NULL) return NULL;
    for (size_t i = 0; i < call->output_count; ++i) {
      PyTuple_SET_ITEM(result, (Py_ssize_t)i, call->outputs[i]);
    }
  }
  call->output_count = 0;
  return result;
}

static bool run(onspy_call* call) {
  for (size_t i = 0; i < call->count; ++i) {
    if (!onspy_call_gather(call, i, call->objects[i])) return false;
  }
  ons_launch placed;
  if (onspy_innermost_stream != NULL && call->launch->graph == NULL) {
    placed = *call->launch;
    if (onspy_use_stream_apply(call, &placed)) call->launch = &placed;
  }
  bool must_look = call->pending_count + call->event_count > 0 || call->replaced != NULL;
  if (!must_look && call->retained.count == 0) {
    if (call->python_ran && !borrow_again(call)) return false;
    return launch_prepared(call, call->launch);
  }
  ons_launch launch = *call->launch;
  if (must_look && !second_pass(call, &launch)) return false;
  if (!borrow_again(call) || (must_look && !fill_zeros(call, &launch))) return false;
  ons_launch_events events = ONS_LAUNCH_EVENTS_INIT;
  if (call->event_count > 0) {
    if (launch.events != NULL) events = *launch.events;
    events.wait = call->events;
    events.wait_count = call->event_count;
    launch.events = &events;
  }
  launch.retained = call->retained.items;
  launch.retained_count = call->retained.count;
  return launch_prepared(call, &launch);
}

static PyObject* refuse_out(const onspy_call* call) {
  return PyErr_Format(
      call->state->error_argument_type,
      "kernel '%s': out= together with a list of tensors; pass the arrays "
      "in the place of the outputs",
      ons_kernel_name(call->kernel->handle));
}

static PyObject* run_and_release(onspy_call* call) {
  if (call->generic != NULL && !onspy_generic_choose(call)) return NULL;
  if (call->launch == NULL) return Py_NewRef((PyObject*)call->kernel);
  bool prepared = call->kernel->known || prepare_for_arguments(call);
  if (prepared && onspy_call_is_expanded(call)) {
    return call->replaced != NULL ? refuse_out(call) : onspy_call_expanded(call);
  }
  PyObject* result =
      prepared && run(call) && onspy_outputs_finish(call) ? take_outputs(call) : NULL;
  onspy_kept_release(&call->temporary);
  onspy_kept_release(&call->retained);
  if (call->output_count == 0) return result;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  for (size_t i = 0; i < call->output_count; ++i) Py_DECREF(call->outputs[i]);
  PyErr_Restore(type, value, traceback);
  return result;
}

static PyObject* call_with_heap(onspy_call* call) {
  size_t per_argument = sizeof(ons_arg) + sizeof(DLTensor) + sizeof(PyObject*);
  char* memory = PyMem_Calloc(call->count, per_argument);
  if (memory == NULL) return PyErr_NoMemory();
  call->args = (ons_arg*)memory;
  call->tensors = (DLTensor*)(call->args + call->count);
  call->outputs = (PyObject**)(call->tensors + call->count);
  PyObject* result = run_and_release(call);
  PyMem_Free(memory);
  return result;
}

static PyObject* call_with_stack(onspy_call* call) {
  /* The arrays are filled as far as they are used; zeroing them would cost more than
   * binding. */
  ons_arg args[ONSPY_STACK_ARGUMENTS];
  DLTensor tensors[ONSPY_STACK_ARGUMENTS];
  ons_retained temporary[ONSPY_STACK_ARGUMENTS];
  ons_retained retained[ONSPY_STACK_ARGUMENTS / 2];
  PyObject* outputs[ONSPY_STACK_ARGUMENTS];
  call->args = args;
  call->tensors = tensors;
  call->temporary = (onspy_kept){.items = temporary, .capacity = ONSPY_STACK_ARGUMENTS};
  call->retained = (onspy_kept){.items = retained, .capacity = ONSPY_STACK_ARGUMENTS / 2};
  call->outputs = outputs;
  return run_and_release(call);
}

static PyObject* make(onspy_call* call) {
  return call->count > ONSPY_STACK_ARGUMENTS ? call_with_heap(call)
                                             : call_with_stack(call);
}

PyObject* onspy_kernel_call(onspy_kernel* kernel, const ons_launch* launch,
                            PyObject* const* objects, size_t count) {
  onspy_call call = {.state = kernel->state,
                     .kernel = kernel,
                     .launch = launch,
                     .objects = objects,
                     .count = count};
  return make(&call);
}

PyObject* onspy_kernel_update(onspy_kernel* kernel, const ons_launch* launch,
                              const onspy_update* update, PyObject* const* objects,
                              size_t count) {
  onspy_call call = {.state = kernel->state,
                     .kernel = kernel,
                     .launch = launch,
                     .update = update,
                     .objects = objects,
                     .count = count};
  return make(&call);
}

/* ---- out= ------------------------------------------------------------------------- */

static bool is_returned(const onspy_state* state, PyObject* object) {
  return Py_IS_TYPE(object, state->output_type) &&
         !(((const onspy_output*)object)->flags & ONSPY_OUTPUT_WORKSPACE);
}

/* Zeros would be written before the launch waits for anything. */
static bool check_zeros(const onspy_call* call, size_t index, PyObject* object) {
  const ons_launch_events* events = call->launch != NULL ? call->launch->events : NULL;
  const bool waits = events != NULL && events->wait_count > 0;
  if (!waits || !(((const onspy_output*)object)->flags & ONSPY_OUTPUT_ZERO)) return true;
  onspy_raise_argument(
      call->kernel, index, call->state->error_order,
      "out= with an array to be filled with zeros, together with wait=: that would be "
      "done before the events are waited for; make its stream wait for them instead, or "
      "fill the array yourself and pass it in the place of the output");
  return false;
}

/* Puts what is given into the places of the outputs, and those into |replaced|. */
static bool replace(const onspy_call* call, PyObject* given, PyObject** objects,
                    PyObject** replaced) {
  Py_ssize_t used = 0;
  for (size_t i = 0; i < call->count; ++i) {
    if (!is_returned(call->state, objects[i])) continue;
    PyObject* array =
        used < PyTuple_GET_SIZE(given) ? PyTuple_GET_ITEM(given, used) : NULL;
    ++used;
    if (array == NULL || array == Py_None) continue;
    if (!check_zeros(call, i, objects[i])) return false;
    replaced[i] = objects[i];
    objects[i] = array;
  }
  if (used == PyTuple_GET_SIZE(given)) return true;
  PyErr_Format(
      call->state->error_argument_type,
      "kernel '%s': out= has %zd arrays, and the arguments %zd outputs (ons.empty, "
      "ons.like and so on): give one for each, or None to have it allocated",
      ons_kernel_name(call->kernel->handle), PyTuple_GET_SIZE(given), used);
  return false;
}

static PyObject* make_with_out(onspy_call* call, PyObject* out) {
  bool several = PyTuple_Check(out) || PyList_Check(out);
  PyObject* given = several ? PySequence_Tuple(out) : PyTuple_Pack(1, out);
  if (given == NULL) return NULL;
  size_t count = call->count;
  PyObject** places = PyMem_Calloc(2 * count + 1, sizeof(PyObject*));
  PyObject* result = places != NULL ? NULL : PyErr_NoMemory();
  if (places != NULL && count > 0) {
    memcpy(places, call->objects, count * sizeof(PyObject*));
  }
  if (places != NULL && replace(call, given, places, places + count)) {
    call->objects = places;
    call->replaced = places + count;
    result = make(call);
  }
  PyMem_Free(places);
  Py_DECREF(given);
  return result;
}

PyObject* onspy_kernel_call_out(onspy_kernel* kernel, const ons_launch* launch,
                                PyObject* const* objects, size_t count, PyObject* out) {
  onspy_call call = {.state = kernel->state,
                     .kernel = kernel,
                     .launch = launch,
                     .objects = objects,
                     .count = count};
  return out == NULL || out == Py_None ? make(&call) : make_with_out(&call, out);
}

PyObject* onspy_generic_call_out(onspy_generic* generic, const ons_launch* launch,
                                 PyObject* const* objects, size_t count, PyObject* out) {
  onspy_call call = {.state = generic->module->state,
                     .kernel = generic->pattern,
                     .generic = generic,
                     .launch = launch,
                     .objects = objects,
                     .count = count};
  return out == NULL || out == Py_None ? make(&call) : make_with_out(&call, out);
}
