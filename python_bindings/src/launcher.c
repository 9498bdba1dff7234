/* kernel[grid, block]: a kernel with a launch configuration, ready to be called. */
#include "generic.h"

/* ---- construction ----------------------------------------------------------------- */

/* From the free list where possible: kernel[g, b](...) makes one for every call. */
static onspy_launcher* launcher_alloc(onspy_state* state) {
  PyTypeObject* type = state->launcher_type;
  if (type == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the interpreter is shutting down");
    return NULL;
  }
  if (state->free_launcher_count == 0) return PyObject_GC_New(onspy_launcher, type);
  onspy_launcher* self = state->free_launchers[--state->free_launcher_count];
  return (onspy_launcher*)PyObject_Init((PyObject*)self, type);
}

PyObject* onspy_launcher_new(onspy_kernel* kernel, PyObject* key) {
  Py_ssize_t parts = PyTuple_CheckExact(key) ? PyTuple_GET_SIZE(key) : 0;
  if (parts < 2 || parts > 4) {
    PyErr_Format(
        PyExc_TypeError,
        "kernel '%s' takes [grid, block], [grid, block, shared_bytes] or [grid, block, "
        "shared_bytes, stream]",
        ons_kernel_name(kernel->handle));
    return NULL;
  }
  ons_launch launch;
  PyObject* stream =
      parts > 3 && PyTuple_GET_ITEM(key, 3) != Py_None ? PyTuple_GET_ITEM(key, 3) : NULL;
  if (!onspy_launch_parse(kernel, PyTuple_GET_ITEM(key, 0), PyTuple_GET_ITEM(key, 1),
                          parts > 2 ? PyTuple_GET_ITEM(key, 2) : NULL, stream, &launch)) {
    return NULL;
  }
  onspy_launcher* self = launcher_alloc(kernel->state);
  if (self == NULL) return NULL;
  self->vectorcall = onspy_launcher_call;
  self->kernel = (onspy_kernel*)Py_NewRef((PyObject*)kernel);
  self->stream = Py_XNewRef(stream);
  self->launch = launch;
  self->generic = NULL;
  /* Kernels never refer to launchers, so only a stream object can close a cycle. */
  if (stream != NULL) PyObject_GC_Track(self);
  return (PyObject*)self;
}

/* ---- calls ------------------------------------------------------------------------ */

static ONSPY_COLD PyObject* refuse_keywords(const onspy_kernel* kernel,
                                            PyObject* kwnames) {
  const char* signature = ons_kernel_signature(kernel->handle);
  PyErr_Format(kernel->state->error_argument_type,
               "kernel '%s': unexpected keyword %R; pass the arguments by position%s%s",
               ons_kernel_name(kernel->handle), PyTuple_GET_ITEM(kwnames, 0),
               signature != NULL ? ": " : "", signature != NULL ? signature : "");
  return NULL;
}

PyObject* onspy_launcher_call_general(onspy_launcher* self, PyObject* const* objects,
                                      size_t count, PyObject* kwnames) {
  PyObject* out = NULL;
  if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, 0);
    bool is_out = PyTuple_GET_SIZE(kwnames) == 1 &&
                  PyUnicode_CompareWithASCIIString(name, "out") == 0;
    if (!is_out) return refuse_keywords(self->kernel, kwnames);
    out = objects[count];
  }
  if (PyErr_Occurred()) PyErr_Clear(); /* a producer's: asked again, it raises again */
  const ons_launch* launch = &self->launch;
  return self->generic != NULL
             ? onspy_generic_call_out(self->generic, launch, objects, count, out)
             : onspy_kernel_call_out(self->kernel, launch, objects, count, out);
}

/* ---- the type --------------------------------------------------------------------- */

static PyObject* launcher_repr(PyObject* object) {
  const onspy_launcher* self = (onspy_launcher*)object;
  const ons_launch* launch = &self->launch;
  if (launch->flags & ONS_LAUNCH_THREADS) {
    return PyUnicode_FromFormat("<onstream.Launcher %s[(%u, %u, %u), 'auto', %u]>",
                                ons_kernel_name(self->kernel->handle), launch->grid[0],
                                launch->grid[1], launch->grid[2], launch->shared_bytes);
  }
  return PyUnicode_FromFormat("<onstream.Launcher %s[(%u, %u, %u), (%u, %u, %u), %u]>",
                              ons_kernel_name(self->kernel->handle), launch->grid[0],
                              launch->grid[1], launch->grid[2], launch->block[0],
                              launch->block[1], launch->block[2], launch->shared_bytes);
}

static int launcher_traverse(PyObject* object, visitproc visit, void* arg) {
  onspy_launcher* self = (onspy_launcher*)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject*)self->kernel);
  Py_VISIT(self->stream);
  Py_VISIT((PyObject*)self->generic);
  return 0;
}

static int launcher_clear(PyObject* object) {
  /* A call of a cleared launcher, from a finalizer, still has its kernel. The stream's
     handle may be stale then, as for any stream that its owner closed. */
  Py_CLEAR(((onspy_launcher*)object)->stream);
  return 0;
}

static void launcher_dealloc(PyObject* object) {
  onspy_launcher* self = (onspy_launcher*)object;
  PyTypeObject* type = Py_TYPE(object);
  onspy_state* state = self->kernel->state;
  if (PyObject_GC_IsTracked(object)) PyObject_GC_UnTrack(object);
  Py_CLEAR(self->stream);
  PyObject* kernel = (PyObject*)self->kernel;
  PyObject* generic = (PyObject*)self->generic;
  if (state->launcher_type != NULL && state->free_launcher_count < ONSPY_FREE_LAUNCHERS) {
    state->free_launchers[state->free_launcher_count++] = self;
  } else {
    PyObject_GC_Del(self);
  }
  /* Last, as they may take the module, and with it the state, along. */
  Py_XDECREF(generic);
  Py_DECREF(kernel);
  Py_DECREF(type);
}

static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, (Py_ssize_t)offsetof(onspy_launcher, vectorcall),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

PyDoc_STRVAR(
    launcher_doc,
    "kernel[grid, block]: call it with the kernel's arguments to launch it; see Kernel.");

static PyType_Slot launcher_slots[] = {
    {Py_tp_doc, (void*)launcher_doc},
    {Py_tp_call, ONSPY_FUNCTION(PyVectorcall_Call)},
    {Py_tp_repr, ONSPY_FUNCTION(launcher_repr)},
    {Py_tp_traverse, ONSPY_FUNCTION(launcher_traverse)},
    {Py_tp_clear, ONSPY_FUNCTION(launcher_clear)},
    {Py_tp_dealloc, ONSPY_FUNCTION(launcher_dealloc)},
    {Py_tp_members, ONSPY_FUNCTION(launcher_members)},
    {0, NULL}};

PyType_Spec onspy_launcher_spec = {
    .name = "onstream.Launcher",
    .basicsize = sizeof(onspy_launcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = launcher_slots,
};
