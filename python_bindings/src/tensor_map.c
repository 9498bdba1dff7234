/* onstream.TensorMap: an array, and how a kernel's TMA instructions see it. */
#include <string.h>

#include "binding.h"

typedef struct tensor_map {
  PyObject_HEAD PyObject* x;
  ons_tensor_map layout;
} tensor_map;

PyObject* onspy_tensor_map_of(PyObject* object, const ons_tensor_map** out_layout) {
  const tensor_map* self = (const tensor_map*)object;
  if (out_layout != NULL) *out_layout = &self->layout;
  return self->x;
}

/* ---- construction ----------------------------------------------------------------- */

static bool read_extents(PyObject* object, const char* what, uint32_t* out_extents,
                         uint32_t* out_count) {
  PyObject* extents = PySequence_Tuple(object);
  if (extents == NULL) return false;
  Py_ssize_t count = PyTuple_GET_SIZE(extents);
  bool fits = count >= 1 && count <= ONS_TENSOR_MAP_RANK_MAX;
  if (!fits) {
    PyErr_Format(PyExc_ValueError, "tensor_map: %s must have 1 to 5 extents, not %zd",
                 what, count);
  }
  for (Py_ssize_t i = 0; fits && i < count; ++i) {
    unsigned long extent = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(extents, i));
    fits = !PyErr_Occurred() && extent >= 1 && extent <= UINT32_MAX;
    if (!fits && !PyErr_Occurred()) {
      PyErr_Format(PyExc_ValueError, "tensor_map: %s must have positive extents", what);
    }
    out_extents[i] = (uint32_t)extent;
  }
  Py_DECREF(extents);
  *out_count = (uint32_t)count;
  return fits;
}

/* The place among `widths` (in bytes), None being the first. */
static bool read_width(PyObject* object, const char* what, const long* widths,
                       uint32_t count, uint32_t* out_place) {
  long width = object == Py_None ? 0 : PyLong_AsLong(object);
  if (width == -1 && PyErr_Occurred()) return false;
  for (uint32_t i = 0; i < count; ++i) {
    *out_place = i;
    if (widths[i] == width) return true;
  }
  PyErr_Format(PyExc_ValueError,
               "tensor_map: %s must be None, %ld, %ld or %ld bytes, not %R", what,
               widths[1], widths[2], widths[3], object);
  return false;
}

static bool read_fill(const char* fill, uint32_t* flags) {
  if (strcmp(fill, "nan") == 0) {
    *flags |= ONS_TENSOR_MAP_FILL_NAN;
    return true;
  }
  if (strcmp(fill, "zero") == 0) return true;
  PyErr_Format(PyExc_ValueError, "tensor_map: fill must be 'zero' or 'nan', not '%s'",
               fill);
  return false;
}

PyObject* onspy_tensor_map(onspy_state* state, PyObject* args, PyObject* kwargs) {
  static const long kSwizzles[] = {0, 32, 64, 128}, kPromotions[] = {0, 64, 128, 256};
  static char* keywords[] = {"", "box", "swizzle", "steps", "l2", "fill", "write", NULL};
  PyObject *x, *box, *swizzle = Py_None, *steps = Py_None, *l2 = Py_None;
  const char* fill = "zero";
  int write = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$OOOsp:tensor_map", keywords, &x,
                                   &box, &swizzle, &steps, &l2, &fill, &write)) {
    return NULL;
  }
  ons_tensor_map layout = ONS_TENSOR_MAP_INIT;
  uint32_t step_count = 0;
  if (write) layout.flags |= ONS_TENSOR_MAP_WRITE;
  if (!read_extents(box, "box", layout.box, &layout.rank) ||
      !read_width(swizzle, "swizzle", kSwizzles, 4, &layout.swizzle) ||
      !read_width(l2, "l2", kPromotions, 4, &layout.l2) ||
      !read_fill(fill, &layout.flags) ||
      (steps != Py_None && !read_extents(steps, "steps", layout.steps, &step_count))) {
    return NULL;
  }
  if (step_count != 0 && step_count != layout.rank) {
    PyErr_SetString(PyExc_ValueError, "tensor_map: steps must be as many as box has");
    return NULL;
  }
  PyTypeObject* type = state->tensor_map_type;
  if (Py_IS_TYPE(x, type) || Py_IS_TYPE(x, state->output_type)) {
    PyErr_Format(state->error_argument_type,
                 "tensor_map: a map is of an array, which a %.200s is not",
                 Py_TYPE(x)->tp_name);
    return NULL;
  }
  tensor_map* self = type != NULL ? (tensor_map*)type->tp_alloc(type, 0) : NULL;
  if (self == NULL) return NULL;
  self->x = Py_NewRef(x);
  self->layout = layout;
  return (PyObject*)self;
}

/* ---- the type --------------------------------------------------------------------- */

static int tensor_map_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((tensor_map*)object)->x);
  return 0;
}

/* No clear: x cannot be changed, and what refers to its own map breaks the cycle. */
static void tensor_map_dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF(((tensor_map*)object)->x);
  type->tp_free(object);
  Py_DECREF(type);
}

PyDoc_STRVAR(tensor_map_doc,
             "What tensor_map() gives: a kernel argument for ons::tensor_map.");

static PyType_Slot tensor_map_slots[] = {
    {Py_tp_doc, (void*)tensor_map_doc},
    {Py_tp_traverse, ONSPY_FUNCTION(tensor_map_traverse)},
    {Py_tp_dealloc, ONSPY_FUNCTION(tensor_map_dealloc)},
    {0, NULL}};

PyType_Spec onspy_tensor_map_spec = {
    .name = "onstream.TensorMap",
    .basicsize = sizeof(tensor_map),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = tensor_map_slots,
};
