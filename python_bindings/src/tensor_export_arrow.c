/* onstream.Tensor.__arrow_c_device_array__: one-dimensional tensors of the types that
 * Arrow has without conversion. */
#include <stdlib.h>
#include <string.h>

#include "arrow_abi.h"
#include "tensor_object.h"

/* What an exported array holds on to. */
typedef struct exported {
  ons_tensor* tensor; /* one reference */
  void* event;        /* native; the array has its address */
  void* token;
  const void* buffers[2]; /* no nulls, the elements */
} exported;

/* In any thread, with or without the GIL. */
static void release_exported(arrow_array* array) {
  exported* self = array->private_data;
  array->release = NULL;
  ons_tensor_event_give(self->tensor, self->token);
  ons_tensor_release(self->tensor);
  free(self);
}

/* All of it is static. */
static void release_schema(arrow_schema* schema) { schema->release = NULL; }

static const char* format_of(DLDataType dtype) {
#define COMPARE(text, dtype_code, dtype_bits)                                       \
  if (dtype.code == (dtype_code) && dtype.bits == (dtype_bits) && dtype.lanes == 1) \
    return text;
  ARROW_TYPES(COMPARE)
#undef COMPARE
  return NULL;
}

/* ---- capsules --------------------------------------------------------------------- */

static void delete_schema(PyObject* capsule) {
  arrow_schema* schema = PyCapsule_GetPointer(capsule, "arrow_schema");
  if (schema->release != NULL) schema->release(schema);
  free(schema);
}

static void delete_array(PyObject* capsule) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  arrow_device_array* array = PyCapsule_GetPointer(capsule, "arrow_device_array");
  if (array->array.release != NULL) array->array.release(&array->array);
  free(array);
  PyErr_Restore(type, value, traceback);
}

static PyObject* schema_capsule(const char* format) {
  arrow_schema* schema = calloc(1, sizeof *schema);
  if (schema == NULL) return PyErr_NoMemory();
  schema->format = format;
  schema->name = "";
  schema->release = release_schema;
  PyObject* capsule = PyCapsule_New(schema, "arrow_schema", delete_schema);
  if (capsule == NULL) free(schema);
  return capsule;
}

static void fill(arrow_device_array* array, ons_tensor* tensor, exported* self) {
  const DLTensor* dltensor = ons_tensor_dltensor(tensor);
  ons_tensor_retain(tensor);
  self->tensor = tensor;
  self->buffers[1] = dltensor->data;
  array->array = (arrow_array){.length = dltensor->shape[0],
                               .n_buffers = 2,
                               .buffers = self->buffers,
                               .release = release_exported,
                               .private_data = self};
  bool plain = dltensor->device.device_type == kDLCPU;
  array->device_id = plain ? -1 : dltensor->device.device_id;
  array->device_type = (int32_t)dltensor->device.device_type;
  array->sync_event = self->token != NULL ? &self->event : NULL;
}

static PyObject* array_capsule(onspy_state* state, ons_tensor* tensor) {
  arrow_device_array* array = calloc(1, sizeof *array);
  exported* self = calloc(1, sizeof *self);
  ons_error error = ONS_ERROR_INIT;
  if (array == NULL || self == NULL) {
    PyErr_NoMemory();
  } else if (ons_tensor_event_take(tensor, &self->event, &self->token, &error) !=
             ONS_STATUS_OK) {
    onspy_raise(state, &error);
  } else {
    fill(array, tensor, self);
    PyObject* capsule = PyCapsule_New(array, "arrow_device_array", delete_array);
    if (capsule != NULL) return capsule;
    release_exported(&array->array);
    self = NULL;
  }
  free(self);
  free(array);
  return NULL;
}

/* ---- asking ----------------------------------------------------------------------- */

static PyObject* refuse(const char* why) {
  PyErr_Format(PyExc_BufferError, "a Tensor %s; Arrow has no such arrays", why);
  return NULL;
}

/* Arrow's way to add to the protocol: None is what there is today. */
static bool check_keywords(PyObject* kwargs) {
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (kwargs != NULL && PyDict_Next(kwargs, &position, &key, &value)) {
    if (value == Py_None ||
        PyUnicode_CompareWithASCIIString(key, "requested_schema") == 0)
      continue;
    PyErr_Format(PyExc_NotImplementedError, "__arrow_c_device_array__: %R is not known",
                 key);
    return false;
  }
  return true;
}

const char onspy_tensor_arrow_doc[] =
    "__arrow_c_device_array__($self, requested_schema=None, **kwargs)\n--\n\n"
    "The capsules of an Arrow device array, for a dense one-dimensional tensor of "
    "integers "
    "or floats. Nobody may write the memory while it is in use as such; on a device the "
    "array's event stands for what the tensor's stream holds now. The type is never "
    "converted to requested_schema. Raises BufferError for other tensors.";

PyObject* onspy_tensor_arrow(PyObject* object, PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args) > 1) {
    return PyErr_Format(PyExc_TypeError,
                        "__arrow_c_device_array__ takes one positional argument");
  }
  ons_tensor* tensor = onspy_tensor_handle(object);
  if (tensor == NULL || !check_keywords(kwargs)) return NULL;
  const DLTensor* dltensor = ons_tensor_dltensor(tensor);
  const char* format = format_of(dltensor->dtype);
  if (format == NULL) return refuse("of this dtype");
  if (dltensor->ndim != 1) return refuse("that is not one-dimensional");
  if (dltensor->shape[0] > 1 && dltensor->strides[0] != 1)
    return refuse("with gaps between its elements");
  if (onspy_tensor_arg(tensor).flags & ONS_ARG_REQUIRES_GRAD)
    return refuse("that requires grad");
  PyObject* schema = schema_capsule(format);
  PyObject* array = schema != NULL ? array_capsule(onspy_state_of(object), tensor) : NULL;
  PyObject* pair = array != NULL ? PyTuple_Pack(2, schema, array) : NULL;
  Py_XDECREF(array);
  Py_XDECREF(schema);
  return pair;
}
