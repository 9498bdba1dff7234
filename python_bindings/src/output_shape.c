/* Shapes and dtypes of outputs: as they are, by the name of an argument ("x.shape",
 * "x.shape[0]", "n", "x.dtype"), or by a function of the arguments. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

/* ---- references to arguments ------------------------------------------------------ */

typedef enum reference_kind { OF_VALUE, OF_SHAPE, OF_EXTENT, OF_DTYPE } reference_kind;

typedef struct reference {
  const char* name; /* not terminated */
  size_t length;
  reference_kind kind;
  long axis; /* OF_EXTENT; negative ones count from the end */
} reference;

static size_t name_length(const char* text) {
  if (!isalpha((unsigned char)*text) && *text != '_') return 0;
  size_t length = 1;
  while (isalnum((unsigned char)text[length]) || text[length] == '_') ++length;
  return length;
}

static bool parse_reference(PyObject* object, reference* out_reference) {
  const char* text = onspy_text_of(object, "the name of an argument");
  if (text == NULL) return false;
  reference* found = out_reference;
  *found = (reference){.name = text, .length = name_length(text)};
  const char* rest = text + found->length;
  static const char of_extent[] = ".shape[";
  bool parsed = found->length > 0;
  if (strcmp(rest, ".shape") == 0) {
    found->kind = OF_SHAPE;
  } else if (strcmp(rest, ".dtype") == 0) {
    found->kind = OF_DTYPE;
  } else if (strncmp(rest, of_extent, sizeof of_extent - 1) == 0) {
    char* end;
    found->kind = OF_EXTENT;
    found->axis = strtol(rest + sizeof of_extent - 1, &end, 10);
    parsed &= end > rest + sizeof of_extent - 1 && strcmp(end, "]") == 0;
  } else {
    parsed &= *rest == '\0';
  }
  return parsed;
}

/* ---- what is given ---------------------------------------------------------------- */

static PyObject* check_name(PyObject* text) {
  reference found;
  if (parse_reference(text, &found) && found.kind != OF_DTYPE) return Py_NewRef(text);
  if (PyErr_Occurred()) return NULL;
  return PyErr_Format(PyExc_ValueError,
                      "shape: %R is not the name of an argument ('n'), nor its 'x.shape' "
                      "or 'x.shape[0]'; for anything else pass a function of the "
                      "arguments",
                      text);
}

static PyObject* check_extent(PyObject* object, bool names) {
  if (names && PyUnicode_Check(object)) return check_name(object);
  PyObject* extent = PyNumber_Index(object);
  if (extent == NULL) return NULL;
  if (PyLong_AsLongLong(extent) >= 0) return extent;
  PyErr_Format(PyExc_ValueError, "shape must be of non-negative 64-bit ints, not %R",
               extent);
  Py_DECREF(extent);
  return NULL;
}

/* A tuple of extents and, with |names|, of references. */
static PyObject* check_shape(PyObject* shape, bool names) {
  bool is_one = PyIndex_Check(shape) || (names && PyUnicode_Check(shape));
  bool readable =
      is_one || (!PyUnicode_Check(shape) &&
                 (Py_TYPE(shape)->tp_iter != NULL || PySequence_Check(shape)));
  if (!readable) {
    return PyErr_Format(PyExc_TypeError,
                        "shape must be an int or a tuple of ints, not %R", shape);
  }
  PyObject* tuple = is_one ? PyTuple_Pack(1, shape) : PySequence_Tuple(shape);
  if (tuple == NULL) return NULL;
  Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  PyObject* checked = PyTuple_New(count);
  for (Py_ssize_t i = 0; checked != NULL && i < count; ++i) {
    PyObject* extent = check_extent(PyTuple_GET_ITEM(tuple, i), names);
    if (extent == NULL) {
      Py_CLEAR(checked);
    } else {
      PyTuple_SET_ITEM(checked, i, extent);
    }
  }
  Py_DECREF(tuple);
  return checked;
}

PyObject* onspy_shape_check(PyObject* shape) {
  bool is_sequence = PyIndex_Check(shape) || Py_TYPE(shape)->tp_iter != NULL;
  if (PyCallable_Check(shape) && !is_sequence) return Py_NewRef(shape);
  return check_shape(shape, true);
}

PyObject* onspy_extents_tuple(const int64_t* values, int32_t count, int64_t unit) {
  PyObject* tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple != NULL && i < count; ++i) {
    PyObject* number =
        PyLong_FromLongLong((int64_t)((uint64_t)values[i] * (uint64_t)unit));
    if (number == NULL) {
      Py_CLEAR(tuple);
    } else {
      PyTuple_SET_ITEM(tuple, i, number);
    }
  }
  return tuple;
}

PyObject* onspy_dtype_check(onspy_state* state, PyObject* dtype) {
  reference found;
  if (PyUnicode_Check(dtype) && parse_reference(dtype, &found) && found.kind == OF_DTYPE)
    return Py_NewRef(dtype);
  return PyErr_Occurred() ? NULL : onspy_dtype_name(state, dtype);
}

/* ---- what it comes to ------------------------------------------------------------- */

static bool refuse(onspy_call* call, size_t index, PyObject* text, const char* why) {
  const char* signature = ons_kernel_signature(call->kernel->handle);
  onspy_raise_argument(call->kernel, index, call->state->error_argument_value,
                       "an output described by %R, %s: %s", text, why,
                       signature != NULL ? signature : "");
  return false;
}

static bool find_argument(onspy_call* call, size_t index, PyObject* text,
                          const reference* wanted, size_t* out_argument) {
  for (size_t i = 0; i < call->count && i < call->kernel->slot_count; ++i) {
    size_t parameter = i, item;
    if (call->kernel->expansion != NULL) {
      onspy_expansion_locate(call->kernel->expansion, i, &parameter, &item);
    }
    const char* name = call->kernel->parameters[parameter].name;
    if (name != NULL && strlen(name) == wanted->length &&
        memcmp(name, wanted->name, wanted->length) == 0) {
      *out_argument = i;
      return true;
    }
  }
  return refuse(call, index, text, "which names none of the kernel's parameters");
}

static const DLTensor* find_tensor(onspy_call* call, size_t index, PyObject* text,
                                   const reference* wanted) {
  size_t i = 0;
  if (!find_argument(call, index, text, wanted, &i)) return NULL;
  if (call->args[i].kind == ONS_ARG_TENSOR) return call->args[i].value.tensor;
  bool is_later = Py_IS_TYPE(call->objects[i], call->state->output_type);
  refuse(call, index, text,
         is_later ? "which is an output not allocated before this one"
                  : "whose argument is no array");
  return NULL;
}

static bool append(PyObject* extents, int64_t value) {
  PyObject* extent = PyLong_FromLongLong(value);
  bool appended = extent != NULL && PyList_Append(extents, extent) == 0;
  Py_XDECREF(extent);
  return appended;
}

static bool append_value(onspy_call* call, size_t index, PyObject* text,
                         const reference* wanted, PyObject* extents) {
  size_t i = 0;
  if (!find_argument(call, index, text, wanted, &i)) return false;
  const ons_arg* arg = &call->args[i];
  if (arg->kind != ONS_ARG_INT || arg->value.i < 0) {
    return refuse(call, index, text, "whose argument is no non-negative int");
  }
  return append(extents, arg->value.i);
}

static bool append_reference(onspy_call* call, size_t index, PyObject* text,
                             PyObject* extents) {
  reference wanted;
  if (!parse_reference(text, &wanted)) return false;
  if (wanted.kind == OF_VALUE) return append_value(call, index, text, &wanted, extents);
  const DLTensor* tensor = find_tensor(call, index, text, &wanted);
  if (tensor == NULL) return false;
  if (wanted.kind == OF_SHAPE) {
    for (int32_t i = 0; i < tensor->ndim; ++i) {
      if (!append(extents, tensor->shape[i])) return false;
    }
    return true;
  }
  long axis = wanted.axis < 0 ? wanted.axis + tensor->ndim : wanted.axis;
  if (axis < 0 || axis >= tensor->ndim) {
    return refuse(call, index, text, "an axis that the array does not have");
  }
  return append(extents, tensor->shape[axis]);
}

static PyObject* resolve_names(onspy_call* call, size_t index, PyObject* shape) {
  PyObject* extents = PyList_New(0);
  for (Py_ssize_t i = 0; extents != NULL && i < PyTuple_GET_SIZE(shape); ++i) {
    PyObject* extent = PyTuple_GET_ITEM(shape, i);
    bool appended = PyUnicode_Check(extent)
                        ? append_reference(call, index, extent, extents)
                        : PyList_Append(extents, extent) == 0;
    if (!appended) Py_CLEAR(extents);
  }
  PyObject* tuple = extents != NULL ? PyList_AsTuple(extents) : NULL;
  Py_XDECREF(extents);
  return tuple;
}

static PyObject* resolve_function(onspy_call* call, size_t index, PyObject* function) {
  PyObject* shape = PyObject_Vectorcall(function, call->objects, call->count, NULL);
  PyObject* checked = shape != NULL ? check_shape(shape, false) : NULL;
  Py_XDECREF(shape);
  if (checked == NULL) {
    onspy_raise_failed(call->kernel, index, call->state->error_argument_value,
                       "an output whose shape function");
  }
  return checked;
}

PyObject* onspy_shape_resolve(onspy_call* call, size_t index, PyObject* shape) {
  return PyTuple_Check(shape) ? resolve_names(call, index, shape)
                              : resolve_function(call, index, shape);
}

PyObject* onspy_dtype_resolve(onspy_call* call, size_t index, PyObject* dtype) {
  const char* text = PyUnicode_AsUTF8(dtype);
  reference wanted;
  if (text == NULL || strchr(text, '.') == NULL || !parse_reference(dtype, &wanted))
    return text != NULL ? Py_NewRef(dtype) : NULL;
  const DLTensor* tensor = find_tensor(call, index, dtype, &wanted);
  return tensor != NULL ? onspy_dtype_text(tensor->dtype) : NULL;
}
