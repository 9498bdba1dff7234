/* What launch() takes beyond a configuration: graphs and events of the caller; and
 * update_node(). */
#include "binding.h"

/* ---- handles ---------------------------------------------------------------------- */

/* What is being read: for messages, and where an object of a library keeps it. A method
 * is called. */
typedef struct handle_kind {
  const char* what;
  const char* objects;
  const char* names[4];
} handle_kind;

static const handle_kind graph_kind = {
    "graph",
    "a torch.cuda.CUDAGraph(keep_graph=True), or an object with .handle or .graph",
    {"raw_cuda_graph", "handle", "graph", NULL}};
static const handle_kind exec_kind = {
    "graph_exec",
    "a torch.cuda.CUDAGraph, or an object with .handle or .graphExec",
    {"raw_cuda_graph_exec", "handle", "graphExec", NULL}};
static const handle_kind node_kind = {"node",
                                      "what launch(graph=) gave, or an object with "
                                      ".handle",
                                      {"handle", NULL}};
static const handle_kind event_kind = {"event",
                                       "an event of torch, CuPy, Numba or cuda.core",
                                       {"cuda_event", "ptr", "handle", NULL}};

static bool refuse_handle(const onspy_kernel* kernel, const handle_kind* kind,
                          PyObject* object) {
  PyErr_Format(PyExc_TypeError,
               "kernel '%s': %s must be a native handle as int, or %s, not %.200s",
               ons_kernel_name(kernel->handle), kind->what, kind->objects,
               Py_TYPE(object)->tp_name);
  return false;
}

static bool is_plain_int(PyObject* object) {
  return PyLong_Check(object) && !PyBool_Check(object);
}

static bool from_int(const onspy_kernel* kernel, const handle_kind* kind,
                     PyObject* number, void** out_handle) {
  unsigned long long handle = PyLong_AsUnsignedLongLong(number);
  if (handle == (unsigned long long)-1 && PyErr_Occurred()) PyErr_Clear(), handle = 0;
  *out_handle = (void*)(uintptr_t)handle;
  if (handle != 0) return true;
  PyErr_Format(
      PyExc_ValueError,
      "kernel '%s': %R is no handle of %s %s; libraries give 0 for what they have "
      "not created yet: torch creates an event at its first record",
      ons_kernel_name(kernel->handle), number,
      kind == &event_kind || kind == &exec_kind ? "an" : "a", kind->what);
  return false;
}

/* The native handle as an int: of an int, a ctypes pointer, an object of cuda.bindings.
 */
static PyObject* as_int(PyObject* object) {
  if (is_plain_int(object)) return Py_NewRef(object);
  PyObject* value = PyObject_GetAttrString(object, "value");
  if (value == Py_None) {
    Py_DECREF(value);
    return PyLong_FromLong(0);
  }
  if (value != NULL && is_plain_int(value)) return value;
  Py_XDECREF(value);
  PyErr_Clear();
  const PyNumberMethods* methods = Py_TYPE(object)->tp_as_number;
  bool converts = methods != NULL && methods->nb_int != NULL && !PyFloat_Check(object) &&
                  !PyBool_Check(object);
  return converts ? PyNumber_Long(object) : NULL;
}

/* What the library keeps under the first of the names that the object has. NULL without
 * an exception where it has none. */
static PyObject* find_handle(const handle_kind* kind, PyObject* object) {
  for (size_t i = 0; kind->names[i] != NULL; ++i) {
    PyObject* found = PyObject_GetAttrString(object, kind->names[i]);
    if (found == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
    if (found == NULL) {
      PyErr_Clear();
      continue;
    }
    if (!PyCallable_Check(found)) return found;
    PyObject* result = PyObject_CallNoArgs(found);
    Py_DECREF(found);
    return result;
  }
  return NULL;
}

static bool parse_handle(const onspy_kernel* kernel, const handle_kind* kind,
                         PyObject* object, void** out_handle) {
  if (is_plain_int(object)) return from_int(kernel, kind, object, out_handle);
  PyObject* found = find_handle(kind, object);
  if (found == NULL && PyErr_Occurred()) return false;
  PyObject* number = as_int(found != NULL ? found : object);
  Py_XDECREF(found);
  if (number == NULL) {
    return PyErr_Occurred() ? false : refuse_handle(kernel, kind, object);
  }
  bool parsed = from_int(kernel, kind, number, out_handle);
  Py_DECREF(number);
  return parsed;
}

/* ---- lists of handles ------------------------------------------------------------- */

/* One, or a list or tuple of them. */
static bool parse_handles(const onspy_kernel* kernel, const handle_kind* kind,
                          PyObject* objects, onspy_handles* out_handles) {
  if (objects == NULL || objects == Py_None) return true;
  bool several = PyTuple_Check(objects) || PyList_Check(objects);
  /* A tuple of our own, which also keeps what the handles are of. */
  out_handles->owners = several ? PySequence_Tuple(objects) : PyTuple_Pack(1, objects);
  if (out_handles->owners == NULL) return false;
  out_handles->count = (size_t)PyTuple_GET_SIZE(out_handles->owners);
  out_handles->items = PyMem_Calloc(out_handles->count + 1, sizeof(void*));
  if (out_handles->items == NULL) return PyErr_NoMemory() != NULL;
  for (size_t i = 0; i < out_handles->count; ++i) {
    PyObject* object = PyTuple_GET_ITEM(out_handles->owners, (Py_ssize_t)i);
    if (!parse_handle(kernel, kind, object, &out_handles->items[i])) return false;
  }
  return true;
}

static void clear_handles(onspy_handles* handles) {
  PyMem_Free(handles->items);
  Py_XDECREF(handles->owners);
}

/* ---- targets ---------------------------------------------------------------------- */

/* The name of the first that is given, or NULL. */
static const char* first_given(PyObject* const* objects, const char* const* names) {
  for (size_t i = 0; names[i] != NULL; ++i) {
    if (objects[i] != NULL && objects[i] != Py_None) return names[i];
  }
  return NULL;
}

static bool check_combination(const onspy_kernel* kernel,
                              const onspy_target_args* given) {
  bool into_graph = given->graph != NULL && given->graph != Py_None;
  PyObject* const for_streams[] = {given->stream, given->order, given->wait,
                                   given->signal};
  static const char* const stream_names[] = {"stream", "order", "wait", "signal", NULL};
  PyObject* const for_graphs[] = {given->dependencies};
  static const char* const graph_names[] = {"dependencies", NULL};
  const char* name = into_graph ? first_given(for_streams, stream_names)
                                : first_given(for_graphs, graph_names);
  if (name == NULL) return true;
  PyErr_Format(PyExc_TypeError,
               into_graph ? "kernel '%s': %s= is for launches on a stream; a node of a "
                            "graph runs after its dependencies="
                          : "kernel '%s': %s= is for launches into a graph: give graph= "
                            "too",
               ons_kernel_name(kernel->handle), name);
  return false;
}

bool onspy_target_parse(const onspy_kernel* kernel, const onspy_target_args* given,
                        ons_launch* launch, onspy_target* out_target) {
  if (!check_combination(kernel, given)) return false;
  if (given->graph != NULL && given->graph != Py_None) {
    out_target->graph = (ons_launch_graph)ONS_LAUNCH_GRAPH_INIT;
    if (!parse_handle(kernel, &graph_kind, given->graph, &out_target->graph.graph) ||
        !parse_handles(kernel, &node_kind, given->dependencies,
                       &out_target->dependencies)) {
      return false;
    }
    out_target->graph.dependencies = out_target->dependencies.items;
    out_target->graph.dependency_count = out_target->dependencies.count;
    launch->graph = &out_target->graph;
    launch->order = ONS_ORDER_TRUST; /* so that producers are asked for none */
    return true;
  }
  if (!parse_handles(kernel, &event_kind, given->wait, &out_target->wait) ||
      !parse_handles(kernel, &event_kind, given->signal, &out_target->signal)) {
    return false;
  }
  if (out_target->wait.count + out_target->signal.count == 0) return true;
  out_target->events = (ons_launch_events)ONS_LAUNCH_EVENTS_INIT;
  out_target->events.wait = out_target->wait.items;
  out_target->events.wait_count = out_target->wait.count;
  out_target->events.signal = out_target->signal.items;
  out_target->events.signal_count = out_target->signal.count;
  if (given->external) {
    out_target->events.flags = ONS_EVENTS_WAIT_EXTERNAL | ONS_EVENTS_SIGNAL_EXTERNAL;
  }
  launch->events = &out_target->events;
  return true;
}

void onspy_target_clear(onspy_target* target) {
  clear_handles(&target->dependencies);
  clear_handles(&target->wait);
  clear_handles(&target->signal);
}

/* An output would be written when the graph runs, not by this call. */
static bool refuse_outputs(onspy_kernel* kernel, PyObject* objects) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(objects); ++i) {
    if (!Py_IS_TYPE(PyTuple_GET_ITEM(objects, i), kernel->state->output_type)) continue;
    onspy_raise_argument(kernel, (size_t)i, kernel->state->error_argument_value,
                         "an output to be allocated; a graph may run at any time and "
                         "often, so its memory is the caller's to keep: pass an array");
    return false;
  }
  return true;
}

PyObject* onspy_target_call(onspy_kernel* kernel, const ons_launch* launch,
                            PyObject* objects, PyObject* out) {
  size_t count = (size_t)PyTuple_GET_SIZE(objects);
  if (launch->graph == NULL) {
    return onspy_kernel_call_out(kernel, launch, &PyTuple_GET_ITEM(objects, 0), count,
                                 out);
  }
  if (!refuse_outputs(kernel, objects)) return NULL;
  PyObject* nothing =
      onspy_kernel_call(kernel, launch, &PyTuple_GET_ITEM(objects, 0), count);
  if (nothing == NULL) return NULL;
  Py_DECREF(nothing);
  return PyLong_FromVoidPtr(launch->graph->out_node);
}

/* ---- update_node ------------------------------------------------------------------ */

PyObject* onspy_kernel_update_node(PyObject* self, PyObject* args, PyObject* kwargs) {
  onspy_kernel* kernel = (onspy_kernel*)self;
  static char* keywords[] = {"graph_exec", "node",   "args",    "grid",
                             "block",      "shared", "threads", NULL};
  PyObject *exec, *node, *objects;
  onspy_config_args config = {.grid = NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|$OOOO:update_node", keywords, &exec,
                                   &node, &objects, &config.grid, &config.block,
                                   &config.shared, &config.threads)) {
    return NULL;
  }
  ons_launch launch;
  onspy_update update;
  ons_launch_graph graph = ONS_LAUNCH_GRAPH_INIT; /* no stream is looked at */
  if (!onspy_config_parse(kernel, "update_node", &config, &launch) ||
      !parse_handle(kernel, &exec_kind, exec, &update.exec) ||
      !parse_handle(kernel, &node_kind, node, &update.node)) {
    return NULL;
  }
  launch.graph = &graph;
  launch.order = ONS_ORDER_TRUST;
  PyObject* tuple = PySequence_Tuple(objects);
  if (tuple == NULL) return NULL;
  PyObject* result =
      refuse_outputs(kernel, tuple)
          ? onspy_kernel_update(kernel, &launch, &update, &PyTuple_GET_ITEM(tuple, 0),
                                (size_t)PyTuple_GET_SIZE(tuple))
          : NULL;
  Py_DECREF(tuple);
  return result;
}
