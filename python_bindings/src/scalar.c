/* Numbers as kernel arguments. What fits a parameter is for the library to say; here it
 * is only told what came. */
#include "binding.h"

bool onspy_scalar_from_int(onspy_call* call, size_t index, PyObject* object) {
  ons_arg* arg = &call->args[index];
  int overflow = 0;
  arg->kind = ONS_ARG_INT;
  arg->value.i = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow == 0) return true;
  if (overflow > 0) {
    arg->kind = ONS_ARG_UINT;
    arg->value.u = PyLong_AsUnsignedLongLong(object);
    if (!PyErr_Occurred()) return true;
    PyErr_Clear();
  }
  onspy_raise_argument(
      call->kernel, index, call->state->error_argument_value,
      "an int of more than 64 bits; pass a smaller one, or its words one by one");
  return false;
}

static bool from_exact(onspy_call* call, size_t index, PyObject* number) {
  ons_arg* arg = &call->args[index];
  if (PyBool_Check(number)) {
    arg->kind = ONS_ARG_BOOL;
    arg->value.i = number == Py_True;
    return true;
  }
  if (PyLong_Check(number)) return onspy_scalar_from_int(call, index, number);
  if (PyFloat_Check(number)) {
    arg->kind = ONS_ARG_FLOAT;
    arg->value.f = PyFloat_AS_DOUBLE(number);
    return true;
  }
  bool is_vector = onspy_traits(call->kernel, index) & ONSPY_PARAMETER_VECTOR;
  if (is_vector && PyComplex_Check(number)) return onspy_complex(call, index, number);
  onspy_raise_argument(
      call->kernel, index, call->state->error_argument_type,
      "a %.200s, which is not a number that a kernel takes; pass an int, a "
      "float or a bool",
      Py_TYPE(number)->tp_name);
  return false;
}

static bool is_exact(PyObject* object) {
  return PyBool_Check(object) || PyLong_Check(object) || PyFloat_Check(object);
}

/* By __index__ or __float__ (new reference); text is not parsed, as float() would. */
static PyObject* convert(PyObject* object) {
  if (is_exact(object) || PyComplex_Check(object)) return Py_NewRef(object);
  const PyNumberMethods* methods = Py_TYPE(object)->tp_as_number;
  bool text = PyUnicode_Check(object) || PyBytes_Check(object);
  if (!text && PyIndex_Check(object)) return PyNumber_Index(object);
  if (!text && methods != NULL && methods->nb_float != NULL)
    return PyNumber_Float(object);
  return PyErr_Format(PyExc_TypeError, "%.200s is not a number",
                      Py_TYPE(object)->tp_name);
}

/* The Python number in an object (new reference): in what item() gives, as NumPy's
 * scalars, ml_dtypes' and 0-dimensional arrays have it, else in the object itself. */
static PyObject* number_in(onspy_state* state, PyObject* object) {
  if (is_exact(object)) return Py_NewRef(object);
  PyObject* item = PyObject_CallMethodNoArgs(object, state->str_item);
  if (item == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
    PyErr_Clear();
    return convert(object);
  }
  PyObject* number = convert(item);
  Py_DECREF(item);
  return number;
}

bool onspy_scalar_from_number(onspy_call* call, size_t index, PyObject* object) {
  call->python_ran = true;
  PyObject* number = number_in(call->state, object);
  if (number == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "a %.200s that does not convert to a number; pass an int, a float or a "
        "bool",
        Py_TYPE(object)->tp_name);
    return false;
  }
  bool converted = from_exact(call, index, number);
  Py_DECREF(number);
  return converted;
}

bool onspy_scalar_from_tensor(onspy_call* call, size_t index, PyObject* object) {
  const DLTensor* tensor = call->args[index].value.tensor;
  if (tensor->ndim != 0) return true; /* the library refuses it, with its shape */
  if (!onspy_on_host(tensor->device)) {
    onspy_raise_argument(
        call->kernel, index, call->state->error_argument_type,
        "a 0-dimensional %.200s on a device, whose value is only known after a "
        "synchronisation; pass x.item(), or declare a pointer",
        Py_TYPE(object)->tp_name);
    return false;
  }
  call->args[index].flags = 0;
  return onspy_scalar_from_number(call, index, object);
}
