/* Arguments through Arrow's C device interface: one-dimensional arrays of numbers.
 *
 * The array is moved out of its capsule and released once the device is past the launch.
 * Nobody may write it, and its producer's work ends with an event that the launch waits
 * for. */
#include <stdlib.h>
#include <string.h>

#include "arrow_abi.h"
#include "binding.h"

static void release_array(void* object) {
  arrow_device_array* moved = object;
  if (moved->array.release != NULL) moved->array.release(&moved->array);
  free(moved);
}

/* ---- what it says ----------------------------------------------------------------- */

static bool refuse(onspy_call* call, size_t index, PyObject* object, const char* why) {
  onspy_raise_argument(call->kernel, index, call->state->error_argument_type,
                       "a %.200s %s", Py_TYPE(object)->tp_name, why);
  return false;
}

static bool dtype_of(const char* format, DLDataType* out_dtype) {
#define COMPARE(text, dtype_code, dtype_bits)                 \
  if (format != NULL && strcmp(format, text) == 0) {          \
    *out_dtype = (DLDataType){(dtype_code), (dtype_bits), 1}; \
    return true;                                              \
  }
  ARROW_TYPES(COMPARE)
#undef COMPARE
  return false;
}

static bool read_type(onspy_call* call, size_t index, PyObject* object,
                      const arrow_schema* schema, DLDataType* out_dtype) {
  if (schema->dictionary == NULL && dtype_of(schema->format, out_dtype)) return true;
  onspy_raise_argument(call->kernel, index, call->state->error_argument_type,
                       "a %.200s of Arrow type '%.100s'%s; kernels take arrays of "
                       "integers and floats: cast it, booleans to uint8 and times to "
                       "int64",
                       Py_TYPE(object)->tp_name,
                       schema->format != NULL ? schema->format : "",
                       schema->dictionary != NULL ? ", dictionary-encoded" : "");
  return false;
}

static bool read_array(onspy_call* call, size_t index, PyObject* object,
                       const arrow_device_array* moved) {
  const arrow_array* array = &moved->array;
  DLTensor* tensor = &call->tensors[index];
  if (array->n_buffers != 2 || array->n_children != 0 || array->buffers == NULL ||
      array->length < 0 || array->offset < 0) {
    return refuse(call, index, object,
                  "whose Arrow array is malformed; that is for its library to mend: pass "
                  "another array");
  }
  if (array->null_count != 0 && array->buffers[0] != NULL) {
    return refuse(call, index, object,
                  "that has nulls, or has not counted them; a kernel would not see them: "
                  "pass it with the nulls filled or dropped");
  }
  int64_t* extents = onspy_call_extents(call, 1);
  if (extents == NULL) return false;
  extents[0] = array->length;
  tensor->ndim = 1;
  tensor->shape = extents;
  tensor->data = (void*)(uintptr_t)array->buffers[1];
  tensor->byte_offset = (uint64_t)array->offset * (tensor->dtype.bits / 8);
  return true;
}

static bool read_device(onspy_call* call, size_t index, PyObject* object,
                        const arrow_device_array* moved, DLDevice* out_device) {
  bool on_cpu = moved->device_type == kDLCPU;
  if (moved->device_type <= 0 || moved->device_type > INT16_MAX ||
      (!on_cpu && moved->device_id < -1) || moved->device_id > INT32_MAX) {
    return refuse(call, index, object,
                  "whose Arrow device is none; that is for its library to mend: pass "
                  "another array");
  }
  int32_t id = moved->device_id < 0 ? 0 : (int32_t)moved->device_id;
  *out_device = (DLDevice){(DLDeviceType)moved->device_type, id};
  return true;
}

/* ---- asking ----------------------------------------------------------------------- */

/* The pair of capsules (new reference), looked at but not moved out of. */
static PyObject* ask(onspy_call* call, size_t index, PyObject* object,
                     arrow_schema** out_schema, arrow_device_array** out_array) {
  PyObject* pair = PyObject_CallMethodNoArgs(object, call->state->str_arrow_device_array);
  if (pair == NULL) {
    onspy_raise_from_producer(call->kernel, index, object, "__arrow_c_device_array__");
    return NULL;
  }
  if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2) {
    PyObject* schema = PyTuple_GET_ITEM(pair, 0);
    PyObject* array = PyTuple_GET_ITEM(pair, 1);
    if (PyCapsule_IsValid(schema, "arrow_schema") &&
        PyCapsule_IsValid(array, "arrow_device_array")) {
      *out_schema = PyCapsule_GetPointer(schema, "arrow_schema");
      *out_array = PyCapsule_GetPointer(array, "arrow_device_array");
      if ((*out_schema)->release != NULL && (*out_array)->array.release != NULL)
        return pair;
    }
  }
  Py_DECREF(pair);
  refuse(call, index, object,
         "whose __arrow_c_device_array__ is no pair of unused capsules; it must make new "
         "ones at each call");
  return NULL;
}

/* The launch waits for the event, as for those that the caller gives; there is at most
 * one for each argument. */
static bool wait_for(onspy_call* call, size_t index, const arrow_device_array* moved) {
  if (moved->sync_event == NULL || !ONS__DOES(ARROW_WAIT)) return true;
  if (call->events == NULL) {
    call->event_argument = index;
    const ons_launch_events* given = call->launch != NULL ? call->launch->events : NULL;
    size_t given_count = given != NULL ? given->wait_count : 0;
    void** events = PyMem_New(void*, given_count + call->count);
    if (events == NULL) return PyErr_NoMemory() != NULL;
    if (!onspy_kept_add(&call->temporary, events, PyMem_Free)) return false;
    if (given_count > 0) memcpy(events, given->wait, given_count * sizeof *events);
    call->events = events;
    call->event_count = given_count;
  }
  memcpy(&call->events[call->event_count++], moved->sync_event, sizeof(void*));
  return true;
}

/* Kept until the launch has run; plain host memory, which only launches on the CPU use,
 * for the call. */
static bool move_out(onspy_call* call, arrow_device_array* array,
                     arrow_device_array** out_moved) {
  arrow_device_array* moved = malloc(sizeof *moved);
  if (moved == NULL) return PyErr_NoMemory() != NULL;
  *moved = *array;
  array->array.release = NULL;
  *out_moved = moved;
  bool on_cpu = moved->device_type == kDLCPU;
  return onspy_kept_add(on_cpu ? &call->temporary : &call->retained, moved,
                        release_array);
}

bool onspy_call_arrow(onspy_call* call, size_t index, PyObject* object) {
  arrow_schema* schema;
  arrow_device_array* array;
  PyObject* pair = ask(call, index, object, &schema, &array);
  if (pair == NULL) return false;
  DLTensor* tensor = &call->tensors[index];
  *tensor = (DLTensor){.data = NULL};
  arrow_device_array* moved = NULL;
  bool taken = move_out(call, array, &moved) &&
               read_type(call, index, object, schema, &tensor->dtype) &&
               read_device(call, index, object, moved, &tensor->device) &&
               read_array(call, index, object, moved);
  Py_DECREF(pair);
  if (!taken) return false;
  ons_arg* arg = &call->args[index];
  arg->kind = ONS_ARG_TENSOR;
  arg->value.tensor = tensor;
  arg->flags = ONS_ARG_READ_ONLY;
  if (onspy_traits(call->kernel, index) & ONSPY_PARAMETER_VALUE)
    return onspy_scalar_from_tensor(call, index, object);
  if (onspy_on_host(tensor->device)) return true;
  call->device_seen = true;
  onspy_kept_measure(&call->retained, tensor);
  arg->flags |= ONS_ARG_ORDERED;
  return wait_for(call, index, moved);
}

bool onspy_arrow_check_capture(onspy_call* call) {
  bool captured = call->plan.capture_state != 0 && ONS__DOES(ARROW_CAPTURE);
  if (call->event_count == 0 || !captured) return true;
  size_t index = call->event_argument;
  onspy_raise_argument(
      call->kernel, index, call->state->error_order,
      "a %.200s with an event to wait for, which is of no capture, while stream %p is "
      "being captured; the capture is untouched: launch outside of it, or pass an array "
      "of a library that tells its stream",
      Py_TYPE(call->objects[index])->tp_name, call->plan.stream);
  return false;
}

bool onspy_arrow_device(onspy_call* call, size_t index, PyObject* object,
                        DLDevice* out_device) {
  arrow_schema* schema;
  arrow_device_array* array;
  PyObject* pair = ask(call, index, object, &schema, &array);
  if (pair == NULL) return false;
  bool read = read_device(call, index, object, array, out_device);
  Py_DECREF(pair);
  return read;
}
