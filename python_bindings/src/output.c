/* ons.empty, ons.like and so on: arguments that the call allocates and returns. */
#include "binding.h"

/* ---- the type --------------------------------------------------------------------- */

static PyObject* output_new(onspy_state* state, PyObject* like, PyObject* shape,
                            PyObject* dtype, uint32_t flags) {
  PyTypeObject* type = state->output_type;
  if (type == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the interpreter is shutting down");
    return NULL;
  }
  if (like != NULL && Py_IS_TYPE(like, type)) {
    PyErr_Format(
        state->error_argument_type,
        "%R is no array yet; take after what it takes after, or give a shape and "
        "a dtype by name ('x.shape')",
        like);
    return NULL;
  }
  onspy_output* self = (onspy_output*)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  self->like = Py_XNewRef(like);
  self->shape = Py_XNewRef(shape);
  self->dtype = Py_XNewRef(dtype);
  self->flags = flags;
  return (PyObject*)self;
}

static bool is_given(const PyObject* object) {
  return object != NULL && object != Py_None;
}

/* |shape| and |dtype| may only be left out where there is |like|. */
static PyObject* make(onspy_state* state, PyObject* like, PyObject* shape,
                      PyObject* dtype, uint32_t flags) {
  PyObject* checked_shape = NULL;
  PyObject* checked_dtype = NULL;
  PyObject* self = NULL;
  if (like == NULL || is_given(shape)) {
    checked_shape = onspy_shape_check(shape);
    if (checked_shape == NULL) goto done;
  }
  if (like == NULL || is_given(dtype)) {
    checked_dtype = onspy_dtype_check(state, dtype);
    if (checked_dtype == NULL) goto done;
  }
  self = output_new(state, like, checked_shape, checked_dtype, flags);
done:
  Py_XDECREF(checked_shape);
  Py_XDECREF(checked_dtype);
  return self;
}

PyObject* onspy_output_empty(onspy_state* state, PyObject* args, PyObject* kwargs,
                             const char* format, uint32_t flags) {
  static char* keywords[] = {"shape", "dtype", NULL};
  PyObject* shape;
  PyObject* dtype = flags & ONSPY_OUTPUT_WORKSPACE ? state->str_uint8 : NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, keywords, &shape, &dtype)) {
    return NULL;
  }
  return make(state, NULL, shape, dtype, flags);
}

PyObject* onspy_output_like(onspy_state* state, PyObject* args, PyObject* kwargs,
                            const char* format, uint32_t flags) {
  static char* keywords[] = {"", "shape", "dtype", NULL};
  PyObject *like, *shape = NULL, *dtype = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, keywords, &like, &shape,
                                   &dtype)) {
    return NULL;
  }
  return make(state, like, shape, dtype, flags);
}

PyObject* onspy_output_just_like(onspy_state* state, PyObject* like) {
  return output_new(state, like, NULL, NULL, 0);
}

/* ---- the type's slots ------------------------------------------------------------- */

static PyObject* output_repr(PyObject* object) {
  const onspy_output* self = (onspy_output*)object;
  bool zero = self->flags & ONSPY_OUTPUT_ZERO;
  if (self->like != NULL) {
    return PyUnicode_FromFormat("onstream.%s(<%s>)", zero ? "zeros_like" : "like",
                                Py_TYPE(self->like)->tp_name);
  }
  const char* name = self->flags & ONSPY_OUTPUT_WORKSPACE ? "workspace"
                     : zero                               ? "zeros"
                                                          : "empty";
  return PyUnicode_FromFormat("onstream.%s(%R, %R)", name, self->shape, self->dtype);
}

static int output_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((onspy_output*)object)->like);
  Py_VISIT(((onspy_output*)object)->shape); /* may be a function */
  return 0;
}

/* No clear: immutable, so that a cycle through it has a clearable object elsewhere.
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
    {Py_tp_doc, (void*)"What empty(), like() and so on return: an output of the call "
                       "that it is passed to."},
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
