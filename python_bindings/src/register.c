/* onstream.register_producer: what a caller knows of an array library. */
#include "binding.h"

bool onspy_keep(onspy_state* state, PyObject* object) {
  if (state->kept == NULL) state->kept = PyList_New(0);
  if (state->kept == NULL) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(state->kept); ++i) {
    if (PyList_GET_ITEM(state->kept, i) == object) return true;
  }
  return PyList_Append(state->kept, object) == 0;
}

/* An entry is (stream or None, read_only, protocol or None). */
void onspy_register_look_up(const onspy_state* state, const PyTypeObject* type,
                            onspy_producer* producer, uint32_t* protocols) {
  PyObject* entry = NULL;
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; state->registered != NULL && mro != NULL && entry == NULL &&
                         i < PyTuple_GET_SIZE(mro);
       ++i) {
    entry = PyDict_GetItemWithError(state->registered, PyTuple_GET_ITEM(mro, i));
    PyErr_Clear();
  }
  if (entry == NULL) return;
  PyObject* stream = PyTuple_GET_ITEM(entry, 0);
  PyObject* protocol = PyTuple_GET_ITEM(entry, 2);
  if (stream != Py_None) producer->stream_of = stream;
  if (PyTuple_GET_ITEM(entry, 1) == Py_True) producer->traits |= ONSPY_PRODUCER_READ_ONLY;
  if (protocol != Py_None) *protocols = (uint32_t)PyLong_AsUnsignedLong(protocol);
}

/* None, or the number of the protocol (new reference). */
static PyObject* parse_protocol(PyObject* protocol) {
  static const struct {
    const char* name;
    unsigned long bit;
  } known[] = {
      {"exchange", ONSPY_PROTOCOL_EXCHANGE},
      {"dlpack", ONSPY_PROTOCOL_DLPACK},
      {"cuda_array_interface", ONSPY_PROTOCOL_ARRAY_INTERFACE},
      {"arrow", ONSPY_PROTOCOL_ARROW},
  };
  if (protocol == Py_None) Py_RETURN_NONE;
  for (size_t i = 0; PyUnicode_Check(protocol) && i < sizeof known / sizeof *known; ++i) {
    if (PyUnicode_CompareWithASCIIString(protocol, known[i].name) == 0)
      return PyLong_FromUnsignedLong(known[i].bit);
  }
  PyErr_Format(PyExc_ValueError,
               "register_producer: protocol must be 'exchange', 'dlpack', "
               "'cuda_array_interface', 'arrow' or None, not %R",
               protocol);
  return NULL;
}

static bool check(onspy_state* state, PyObject* type, PyObject* stream) {
  if (!PyType_Check(type)) {
    PyErr_Format(PyExc_TypeError,
                 "register_producer: the producer must be a class, not %R", type);
    return false;
  }
  if (onspy_type_is_builtin(state, (PyTypeObject*)type)) {
    PyErr_Format(PyExc_TypeError, "register_producer: %R is no class of arrays", type);
    return false;
  }
  if (stream != Py_None && !PyCallable_Check(stream)) {
    PyErr_Format(PyExc_TypeError,
                 "register_producer: stream must be a function of an array, or None, not "
                 "%.200s",
                 Py_TYPE(stream)->tp_name);
    return false;
  }
  return true;
}

PyObject* onspy_register(onspy_state* state, PyObject* args, PyObject* kwargs) {
  static char* keywords[] = {"", "stream", "read_only", "protocol", NULL};
  PyObject *type, *stream = Py_None, *protocol = Py_None;
  int read_only = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OpO:register_producer", keywords,
                                   &type, &stream, &read_only, &protocol) ||
      !check(state, type, stream)) {
    return NULL;
  }
  if (state->registered == NULL) state->registered = PyDict_New();
  PyObject* number = parse_protocol(protocol);
  PyObject* entry = number != NULL
                        ? PyTuple_Pack(3, stream, read_only ? Py_True : Py_False, number)
                        : NULL;
  Py_XDECREF(number);
  /* Producers that calls are using now point at the function of an earlier entry. */
  bool stored = entry != NULL && state->registered != NULL && onspy_keep(state, stream) &&
                PyDict_SetItem(state->registered, type, entry) == 0;
  Py_XDECREF(entry);
  if (!stored) return NULL;
  onspy_producer_forget(state, (PyTypeObject*)type);
  Py_RETURN_NONE;
}
