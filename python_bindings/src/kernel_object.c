/* onstream.Kernel: one kernel of a module, and how a launch is configured. */
#include <string.h>

#include "binding.h"

/* ---- construction ----------------------------------------------------------------- */

PyObject* onspy_kernel_new(onspy_module* module, PyObject* name) {
  onspy_state* state = module->state;
  PyTypeObject* type = state->kernel_type;
  const char* text = PyUnicode_AsUTF8(name);
  if (text == NULL) return NULL;
  if (type == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the interpreter is shutting down");
    return NULL;
  }
  ons_kernel* handle = NULL;
  ons_error error = ONS_ERROR_INIT;
  if (ons_module_kernel(module->handle, text, &handle, &error) != ONS_STATUS_OK) {
    return onspy_raise(state, &error);
  }
  onspy_kernel* self = (onspy_kernel*)type->tp_alloc(type, 0);
  if (self == NULL) {
    ons_kernel_release(handle);
    return NULL;
  }
  self->state = state;
  self->module = (onspy_module*)Py_NewRef((PyObject*)module);
  self->handle = handle;
  self->output_index = SIZE_MAX;
  return (PyObject*)self;
}

/* ---- preparation ------------------------------------------------------------------ */

static uint32_t traits_of(const ons_parameter* parameter) {
  bool tensor =
      parameter->kind == ONS_PARAMETER_POINTER || parameter->kind == ONS_PARAMETER_VIEW;
  uint32_t written = parameter->is_const ? 0 : ONSPY_PARAMETER_WRITTEN;
  switch (parameter->kind) {
    case ONS_PARAMETER_STRUCT:
      return ONSPY_PARAMETER_VALUE | ONSPY_PARAMETER_STRUCT;
    case ONS_PARAMETER_VECTOR:
      return ONSPY_PARAMETER_VALUE | ONSPY_PARAMETER_STRUCT | ONSPY_PARAMETER_VECTOR;
    case ONS_PARAMETER_POINTERS:
      return ONSPY_PARAMETER_POINTERS | written;
    case ONS_PARAMETER_TENSOR_MAP:
      return ONSPY_PARAMETER_MAP;
    default:
      return tensor ? written : ONSPY_PARAMETER_VALUE;
  }
}

/* Copies what calls need of the signature. The same for every device. */
static bool learn_signature(onspy_kernel* self) {
  if (self->known) return true;
  ons_error error = ONS_ERROR_INIT;
  size_t count = 0;
  if (ons_kernel_parameter_count(self->handle, &count, &error) != ONS_STATUS_OK) {
    return onspy_raise(self->state, &error) != NULL;
  }
  self->slots = PyMem_Calloc(count + 1, sizeof *self->slots);
  self->parameters = PyMem_Calloc(count + 1, sizeof *self->parameters);
  if (self->slots == NULL || self->parameters == NULL) goto fail;
  for (size_t i = 0; i < count; ++i) {
    ons_parameter* parameter = &self->parameters[i];
    parameter->struct_size = sizeof *parameter;
    if (ons_kernel_parameter(self->handle, i, parameter, &error) != ONS_STATUS_OK) {
      onspy_raise(self->state, &error);
      goto fail;
    }
    uint32_t traits = traits_of(parameter);
    self->slots[i].traits = traits;
    if (traits & (ONSPY_PARAMETER_POINTERS | ONSPY_PARAMETER_MAP)) {
      self->takes_lists = true;
    }
  }
  self->slot_count = count;
  self->known = true;
  return true;

fail:
  PyMem_Free(self->slots);
  PyMem_Free(self->parameters);
  self->slots = NULL;
  self->parameters = NULL;
  if (!PyErr_Occurred()) PyErr_NoMemory();
  return false;
}

bool onspy_kernel_prepare(onspy_kernel* self, DLDevice device) {
  ons_error error = ONS_ERROR_INIT;
  ons_blob* log = NULL;
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_kernel_prepare(self->handle, device, &log, &error);
  Py_END_ALLOW_THREADS;
  bool good = status == ONS_STATUS_OK && onspy_warn_compile(self->module, log);
  if (status != ONS_STATUS_OK) onspy_raise_compile(self->module, &error, log);
  ons_blob_release(log);
  return good && learn_signature(self);
}

/* ---- grid and block --------------------------------------------------------------- */

/* What __index__ raises passes through; its TypeErrors become the cause of ours. */
static bool refuse_extent(const onspy_kernel* kernel, PyObject* object,
                          const char* what) {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) return false;
  PyObject *type, *cause, *traceback;
  PyErr_Fetch(&type, &cause, &traceback);
  if (type != NULL) PyErr_NormalizeException(&type, &cause, &traceback);
  PyErr_Format(PyExc_TypeError,
               "kernel '%s': %s must be an int or a tuple of up to 3 ints, not %.200s",
               ons_kernel_name(kernel->handle), what, Py_TYPE(object)->tp_name);
  if (cause != NULL) {
    PyObject *our_type, *error, *our_traceback;
    if (traceback != NULL) PyException_SetTraceback(cause, traceback);
    PyErr_Fetch(&our_type, &error, &our_traceback);
    PyErr_NormalizeException(&our_type, &error, &our_traceback);
    PyException_SetCause(error, cause);
    PyErr_Restore(our_type, error, our_traceback);
  }
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return false;
}

static bool parse_extent(const onspy_kernel* kernel, PyObject* object, const char* what,
                         uint32_t* out_extent) {
  bool integral = PyIndex_Check(object) && !PyBool_Check(object);
  PyObject* number = integral ? PyNumber_Index(object) : NULL;
  if (number == NULL) return refuse_extent(kernel, object, what);
  int overflow = 0;
  long long extent = PyLong_AsLongLongAndOverflow(number, &overflow);
  bool fits = overflow == 0 && extent >= 0 && extent <= UINT32_MAX;
  if (!fits) {
    PyErr_Format(PyExc_ValueError, "kernel '%s': %s must be in 0 to 2**32-1, not %R",
                 ons_kernel_name(kernel->handle), what, number);
  }
  Py_DECREF(number);
  *out_extent = (uint32_t)extent;
  return fits;
}

bool onspy_extents_parse(const onspy_kernel* kernel, PyObject* object, const char* what,
                         uint32_t out_extents[3]) {
  out_extents[0] = out_extents[1] = out_extents[2] = 1;
  if (!PyTuple_Check(object) && !PyList_Check(object)) {
    return parse_extent(kernel, object, what, &out_extents[0]);
  }
  /* A tuple of our own: __index__ of an element may change a list. */
  PyObject* extents = PySequence_Tuple(object);
  if (extents == NULL) return false;
  Py_ssize_t count = PyTuple_GET_SIZE(extents);
  bool fits = count >= 1 && count <= 3;
  if (!fits) {
    PyErr_Format(PyExc_ValueError, "kernel '%s': %s must have 1 to 3 extents, not %zd",
                 ons_kernel_name(kernel->handle), what, count);
  }
  for (Py_ssize_t i = 0; fits && i < count; ++i) {
    fits = parse_extent(kernel, PyTuple_GET_ITEM(extents, i), what, &out_extents[i]);
  }
  Py_DECREF(extents);
  return fits;
}

/* "auto" leaves the block to the library, which then counts the grid in threads. */
static bool parse_block(const onspy_kernel* kernel, PyObject* block, ons_launch* launch) {
  bool is_auto =
      PyUnicode_Check(block) && PyUnicode_CompareWithASCIIString(block, "auto") == 0;
  if (!is_auto) return onspy_extents_parse(kernel, block, "block", launch->block);
  memset(launch->block, 0, sizeof launch->block);
  launch->flags |= ONS_LAUNCH_THREADS;
  return true;
}

bool onspy_launch_parse(const onspy_kernel* kernel, PyObject* grid, PyObject* block,
                        PyObject* shared, PyObject* stream, ons_launch* out_launch) {
  *out_launch = (ons_launch)ONS_LAUNCH_INIT;
  out_launch->flags = ONS_LAUNCH_NO_COMPILE;
  if (!onspy_extents_parse(kernel, grid, "grid", out_launch->grid) ||
      !parse_block(kernel, block, out_launch)) {
    return false;
  }
  if (shared != NULL &&
      !parse_extent(kernel, shared, "shared (bytes)", &out_launch->shared_bytes)) {
    return false;
  }
  bool given = false;
  if (stream != NULL &&
      !onspy_stream_parse(kernel->state, kernel, stream, &given, &out_launch->stream)) {
    return false;
  }
  if (given) out_launch->flags |= ONS_LAUNCH_STREAM;
  return true;
}

static bool refuse_config(const onspy_kernel* kernel, const char* method,
                          const char* why) {
  PyErr_Format(PyExc_TypeError, "kernel '%s': %s() %s", ons_kernel_name(kernel->handle),
               method, why);
  return false;
}

bool onspy_config_parse(const onspy_kernel* kernel, const char* method,
                        const onspy_config_args* given, ons_launch* out_launch) {
  const bool has_grid = given->grid != NULL && given->grid != Py_None;
  const bool has_threads = given->threads != NULL && given->threads != Py_None;
  if (given->block == NULL || (!has_grid && !has_threads)) {
    return refuse_config(kernel, method,
                         "needs grid= and block=, or threads= and block=");
  }
  if (has_grid && has_threads) {
    return refuse_config(kernel, method,
                         "takes grid=, in blocks, or threads=, not both of them");
  }
  if (has_grid && PyUnicode_Check(given->block)) {
    return refuse_config(kernel, method,
                         "with block='auto' needs threads=, how many threads to launch, "
                         "instead of grid=");
  }
  if (!onspy_launch_parse(kernel, has_threads ? given->threads : given->grid,
                          given->block, given->shared, given->stream, out_launch)) {
    return false;
  }
  if (has_threads) out_launch->flags |= ONS_LAUNCH_THREADS;
  return true;
}

/* ---- methods ---------------------------------------------------------------------- */

static PyObject* kernel_subscript(PyObject* self, PyObject* key) {
  return onspy_launcher_new((onspy_kernel*)self, key);
}

static PyObject* kernel_call(PyObject* self, PyObject* Py_UNUSED(args),
                             PyObject* Py_UNUSED(kwargs)) {
  PyErr_Format(PyExc_TypeError,
               "kernel '%s' needs a grid and a block: kernel[grid, block](...), or "
               "kernel.launch(args, grid=..., block=...)",
               ons_kernel_name(((onspy_kernel*)self)->handle));
  return NULL;
}

/* Python's words for arguments that do not fit launch(), with the kernel's name and what
 * would fit. What the arguments' own code raises has a traceback, and passes through. */
static PyObject* refuse_call(const onspy_kernel* kernel) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (traceback != NULL || !PyErr_GivenExceptionMatches(type, PyExc_TypeError)) {
    PyErr_Restore(type, value, traceback);
    return NULL;
  }
  PyErr_Format(PyExc_TypeError,
               "kernel '%s': %S; call launch(args, grid=, block=, shared=0, stream=None, "
               "order=None, graph=None, dependencies=None, wait=None, signal=None, "
               "external=False, threads=None, cluster=None, cooperative=False, "
               "programmatic=False, priority=None, carveout=None, out=None, device=None)",
               ons_kernel_name(kernel->handle), value);
  Py_XDECREF(type);
  Py_XDECREF(value);
  return NULL;
}

PyDoc_STRVAR(
    launch_doc,
    "launch($self, args, *, grid=None, block, shared=0, stream=None, order=None, "
    "graph=None, dependencies=None, wait=None, signal=None, external=False, "
    "threads=None, cluster=None, cooperative=False, programmatic=False, priority=None, "
    "carveout=None, out=None, device=None)\n"
    "--\n\n"
    "The same as kernel[grid, block, shared, stream](*args).\n\n"
    "threads instead of grid says how many threads to launch (an int, or up to three): "
    "each axis is divided by the block's, rounded up. block may then be 'auto', a size "
    "chosen for the kernel and the device (see max_potential_block_size).\n\n"
    "order says what is done about arrays on other streams than the launch's. "
    "'join' (the default, see set_order): on the device, the launch stream waits "
    "for what each of them holds now, and each of them waits for the launch. "
    "'strict': the launch is refused with OrderError. 'trust': the caller "
    "vouches for the order, before and after, and nothing is joined but the "
    "streams on which outputs are allocated.\n\n"
    "wait and signal are events, one or a list: the stream waits for the former "
    "before anything else and records the latter after everything. An event is "
    "a native handle as int or one of torch (recorded once before, as torch "
    "creates it then), CuPy, Numba or cuda.core. In a capture an event to wait "
    "for must be of the same capture; with external=True they are nodes of the "
    "graph instead, waited for and recorded each time it runs.\n\n"
    "graph makes the launch a node of a CUgraph (a handle as int, a torch "
    "CUDAGraph with keep_graph=True, a CuPy graph), behind the nodes in "
    "dependencies, and the node is returned as an int. Arguments are checked as "
    "ever, but nothing is ordered, and the arrays must outlive the last run of "
    "the graph: both are the caller's. Outputs are refused.\n\n"
    "Launch attributes, refused where the device cannot: cluster, the blocks of a "
    "cluster, of which the grid is a multiple; cooperative, all blocks run at a time and "
    "may wait for each other; programmatic, the kernel may begin before the one ahead of "
    "it in the stream has ended, and waits for it by itself; priority, as of streams, "
    "the lower the sooner; carveout, percent of the L1 cache as shared memory, a hint. "
    "On the CPU the last three have no effect and the first two are refused.\n\n"
    "device is for kernels without array arguments, which launch on the CPU else; see "
    "Module.prepare.\n\n"
    "out gives arrays for the outputs among args (ons.empty, ons.like and so on; not "
    "workspaces): one, or a tuple with one for each in their order, None for those to be "
    "allocated. Their shape and dtype must be the output's; they are returned.");
static PyObject* kernel_launch(PyObject* self, PyObject* args, PyObject* kwargs) {
  onspy_kernel* kernel = (onspy_kernel*)self;
  static char* keywords[] = {"args",         "grid",     "block",        "shared",
                             "stream",       "order",    "graph",        "wait",
                             "signal",       "external", "dependencies", "threads",
                             "cluster",      "priority", "carveout",     "cooperative",
                             "programmatic", "out",      "device",       NULL};
  PyObject *objects, *out = NULL, *device = Py_None;
  onspy_config_args config = {.grid = NULL};
  onspy_target_args given = {.order = Py_None};
  onspy_attribute_args wanted = {.cluster = NULL};
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O|$OOOOOOOOpOOOOOppOO:launch", keywords, &objects, &config.grid,
          &config.block, &config.shared, &config.stream, &given.order, &given.graph,
          &given.wait, &given.signal, &given.external, &given.dependencies,
          &config.threads, &wanted.cluster, &wanted.priority, &wanted.carveout,
          &wanted.cooperative, &wanted.programmatic, &out, &device)) {
    return refuse_call(kernel);
  }
  given.stream = config.stream;
  ons_launch launch;
  ons_launch_attributes attributes;
  if (!onspy_config_parse(kernel, "launch", &config, &launch) ||
      !onspy_order_parse(given.order, &launch.order) ||
      !onspy_attributes_parse(kernel, &wanted, &launch, &attributes)) {
    return NULL;
  }
  if (device != Py_None) {
    if (!onspy_device_parse(kernel->state, device, &launch.device)) return NULL;
    launch.flags |= ONS_LAUNCH_DEVICE;
  }
  PyObject* tuple = PySequence_Tuple(objects);
  if (tuple == NULL) return refuse_call(kernel);
  onspy_target target = {.graph = {.graph = NULL}};
  PyObject* result = onspy_target_parse(kernel, &given, &launch, &target)
                         ? onspy_target_call(kernel, &launch, tuple, out)
                         : NULL;
  onspy_target_clear(&target);
  Py_DECREF(tuple);
  return result;
}

PyDoc_STRVAR(
    update_node_doc,
    "update_node($self, graph_exec, node, args, *, grid=None, block, shared=0, "
    "threads=None)\n--\n\n"
    "Gives a kernel node of an instantiated graph (a CUgraphExec as int, a torch "
    "CUDAGraph, a CuPy graph) other arguments and another configuration, for its runs "
    "from now on. node is what launch(graph=) returned, and keeps its attributes. "
    "Arguments are checked as for a launch; their order and memory are the caller's.");

static bool parse_device(onspy_kernel* self, PyObject* args, PyObject* kwargs,
                         const char* format, DLDevice* out_device) {
  static char* keywords[] = {"device", NULL};
  PyObject* place = Py_None;
  return PyArg_ParseTupleAndKeywords(args, kwargs, format, keywords, &place) &&
         onspy_device_parse(self->state, place, out_device);
}

PyDoc_STRVAR(prepare_doc,
             "prepare($self, device=None)\n--\n\n"
             "Compiles and loads this kernel for one device, as Module.prepare does.");
static PyObject* kernel_prepare(PyObject* object, PyObject* args, PyObject* kwargs) {
  onspy_kernel* self = (onspy_kernel*)object;
  DLDevice device;
  if (!parse_device(self, args, kwargs, "|O:prepare", &device) ||
      !onspy_kernel_prepare(self, device)) {
    return NULL;
  }
  Py_RETURN_NONE;
}

PyDoc_STRVAR(
    attributes_doc,
    "attributes($self, device=None)\n--\n\n"
    "What one block uses on a device, as a dict of int: max_threads_per_block, registers "
    "(per thread), static_shared_bytes, local_bytes (per thread), constant_bytes, "
    "max_dynamic_shared_bytes. 0 is what the device does not say. Prepares the kernel "
    "where needed; device as for Module.prepare.");
static PyObject* kernel_attributes(PyObject* object, PyObject* args, PyObject* kwargs) {
  onspy_kernel* self = (onspy_kernel*)object;
  DLDevice device;
  if (!parse_device(self, args, kwargs, "|O:attributes", &device) ||
      !onspy_kernel_prepare(self, device)) {
    return NULL;
  }
  ons_kernel_attributes attributes = {.struct_size = sizeof attributes};
  ons_error error = ONS_ERROR_INIT;
  if (ons_kernel_get_attributes(self->handle, device, &attributes, &error) !=
      ONS_STATUS_OK) {
    return onspy_raise(self->state, &error);
  }
  return Py_BuildValue(
      "{s:I,s:I,s:I,s:I,s:I,s:I}", "max_threads_per_block",
      attributes.max_threads_per_block, "registers", attributes.register_count,
      "static_shared_bytes", attributes.static_shared_bytes, "local_bytes",
      attributes.local_bytes, "constant_bytes", attributes.constant_bytes,
      "max_dynamic_shared_bytes", attributes.max_dynamic_shared_bytes);
}

PyDoc_STRVAR(
    parameters_doc,
    "parameters($self, device=None)\n--\n\n"
    "The declared parameters, as a tuple of dicts: name (None where it has none), type "
    "(its C++ spelling), kind ('pointer', 'view', 'scalar', 'struct', 'vector', "
    "'pointers', 'tensor map'), dtype (None where there is no such), lanes (of a "
    "vector), const (the kernel "
    "only reads through it), ndim (of a view), count (of pointers), nbytes (0: unknown). "
    "Prepares the kernel where needed; device as for Module.prepare.");
static PyObject* parameter_dict(const ons_parameter* parameter) {
  static const char* const kinds[] = {
      [ONS_PARAMETER_POINTER] = "pointer",      [ONS_PARAMETER_VIEW] = "view",
      [ONS_PARAMETER_SCALAR] = "scalar",        [ONS_PARAMETER_STRUCT] = "struct",
      [ONS_PARAMETER_VECTOR] = "vector",        [ONS_PARAMETER_POINTERS] = "pointers",
      [ONS_PARAMETER_TENSOR_MAP] = "tensor map"};
  const DLDataType lane = {parameter->dtype.code, parameter->dtype.bits, 1};
  PyObject* dtype = lane.bits != 0 ? onspy_dtype_text(lane) : Py_NewRef(Py_None);
  if (dtype == NULL) return NULL;
  return Py_BuildValue("{s:z,s:s,s:s,s:N,s:i,s:N,s:i,s:I,s:I}", "name", parameter->name,
                       "type", parameter->type, "kind", kinds[parameter->kind], "dtype",
                       dtype, "lanes", (int)parameter->dtype.lanes, "const",
                       PyBool_FromLong(parameter->is_const != 0), "ndim", parameter->ndim,
                       "count", parameter->item_count, "nbytes", parameter->size_bytes);
}

static PyObject* kernel_parameters(PyObject* object, PyObject* args, PyObject* kwargs) {
  onspy_kernel* self = (onspy_kernel*)object;
  DLDevice device;
  ons_error error = ONS_ERROR_INIT;
  size_t count = 0;
  if (!parse_device(self, args, kwargs, "|O:parameters", &device) ||
      !onspy_kernel_prepare(self, device)) {
    return NULL;
  }
  if (ons_kernel_parameter_count(self->handle, &count, &error) != ONS_STATUS_OK) {
    return onspy_raise(self->state, &error);
  }
  PyObject* parameters = PyTuple_New((Py_ssize_t)count);
  for (size_t i = 0; parameters != NULL && i < count; ++i) {
    ons_parameter parameter = {.struct_size = sizeof parameter};
    PyObject* dict = NULL;
    if (ons_kernel_parameter(self->handle, i, &parameter, &error) != ONS_STATUS_OK) {
      onspy_raise(self->state, &error);
    } else {
      dict = parameter_dict(&parameter);
    }
    if (dict == NULL) {
      Py_CLEAR(parameters);
    } else {
      PyTuple_SET_ITEM(parameters, (Py_ssize_t)i, dict);
    }
  }
  return parameters;
}

PyDoc_STRVAR(
    occupancy_doc,
    "occupancy($self, block, shared=0, device=None)\n--\n\n"
    "How full blocks of that many threads make a GPU, as a dict: blocks (that run at a "
    "time on a multiprocessor), fraction (of the threads that one can run), "
    "multiprocessors. A cooperative launch has at most blocks * multiprocessors blocks. "
    "Prepares the kernel where needed; device as for Module.prepare. Raises "
    "UnsupportedError for the CPU.");

PyDoc_STRVAR(
    block_size_doc,
    "max_potential_block_size($self, shared=0, limit=0, device=None)\n--\n\n"
    "(grid, block): the block size, up to limit, with which the most threads of the "
    "kernel run at a time, and the fewest such blocks that fill the device. On the CPU a "
    "size that the thread loop runs well with. block='auto' takes this size.");

static PyObject* kernel_get_name(PyObject* self, void* Py_UNUSED(closure)) {
  return PyUnicode_FromString(ons_kernel_name(((onspy_kernel*)self)->handle));
}

static PyObject* kernel_get_signature(PyObject* self, void* Py_UNUSED(closure)) {
  const char* signature = ons_kernel_signature(((onspy_kernel*)self)->handle);
  if (signature == NULL) Py_RETURN_NONE;
  return PyUnicode_FromString(signature);
}

static PyObject* kernel_repr(PyObject* self) {
  ons_kernel* handle = ((onspy_kernel*)self)->handle;
  const char* signature = ons_kernel_signature(handle);
  return PyUnicode_FromFormat("<onstream.Kernel %s>",
                              signature != NULL ? signature : ons_kernel_name(handle));
}

/* ---- the type --------------------------------------------------------------------- */

static int kernel_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((onspy_kernel*)object)->module);
  return 0;
}

/* No clear: its module's dicts, which are cleared, are part of every cycle through a
 * kernel. */
static void kernel_dealloc(PyObject* object) {
  onspy_kernel* self = (onspy_kernel*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  ons_kernel_release(self->handle);
  PyMem_Free(self->slots);
  PyMem_Free(self->parameters);
  Py_XDECREF((PyObject*)self->module);
  type->tp_free(object);
  Py_DECREF(type);
}

static PyMethodDef kernel_methods[] = {
    {"launch", (PyCFunction)(void (*)(void))kernel_launch, METH_VARARGS | METH_KEYWORDS,
     launch_doc},
    {"update_node", (PyCFunction)(void (*)(void))onspy_kernel_update_node,
     METH_VARARGS | METH_KEYWORDS, update_node_doc},
    {"prepare", (PyCFunction)(void (*)(void))kernel_prepare, METH_VARARGS | METH_KEYWORDS,
     prepare_doc},
    {"attributes", (PyCFunction)(void (*)(void))kernel_attributes,
     METH_VARARGS | METH_KEYWORDS, attributes_doc},
    {"parameters", (PyCFunction)(void (*)(void))kernel_parameters,
     METH_VARARGS | METH_KEYWORDS, parameters_doc},
    {"occupancy", (PyCFunction)(void (*)(void))onspy_kernel_occupancy,
     METH_VARARGS | METH_KEYWORDS, occupancy_doc},
    {"max_potential_block_size", (PyCFunction)(void (*)(void))onspy_kernel_block_size,
     METH_VARARGS | METH_KEYWORDS, block_size_doc},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef kernel_getset[] = {
    {"name", kernel_get_name, NULL, "The C++ name it was asked for by.", NULL},
    {"signature", kernel_get_signature, NULL,
     "'axpy(float a, const float* x, long long n)', or None until it has been prepared.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PyDoc_STRVAR(
    kernel_doc,
    "A kernel of a Module.\n\n"
    "kernel[grid, block](*args) launches it; also kernel[grid, block, shared] and "
    "kernel[grid, block, shared, stream]. grid (blocks) and block (threads) are an int "
    "or "
    "up to three ints (x, y, z), shared is dynamic shared memory per block in bytes. "
    "kernel[threads, 'auto'] launches so many threads, in blocks of a size chosen for "
    "the device, so that the kernel checks its range. kernel[...] may be kept and called "
    "often.\n\n"
    "Arguments are checked against the signature that the compiler reported. T* takes a "
    "dense array of exactly that dtype, writable unless const T*, None for a null "
    "pointer; ons::view<T, N> takes any strides, ons::ptrs<T, N> a list of N such "
    "arrays. "
    "int, float and bool, NumPy scalars and "
    "0-dimensional host arrays are converted to the declared type and must fit; vectors "
    "(float4) take a list of numbers, complex types a complex. A struct "
    "takes its bytes: bytes, bytearray, a memoryview of bytes, a ctypes.Structure or a "
    "NumPy record of exactly its size. tensor_map(x, box) makes a tensor map of x. "
    "ons.like(x), ons.empty(shape, dtype), ons.zeros and "
    "ons.zeros_like are allocated by the call and returned, ons.workspace is allocated "
    "for "
    "the call; kernel[...](..., out=x) puts x in the place of an output.\n\n"
    "The arrays decide the device: the launch goes to that of its arrays in GPU memory, "
    "and without any it is on the CPU, where a stream cannot be given. It goes to the "
    "current stream of its arrays, or to stream=: a native handle as int, or an object "
    "of "
    "torch, CuPy or with __cuda_stream__. Nothing is synchronised or copied; on a GPU "
    "the "
    "kernel has been enqueued when the call returns, on the CPU it has run. Arrays are "
    "borrowed for the call; their memory must live, in the order of their own stream, "
    "until the kernel is done, which the array libraries' allocators see to. Any thread "
    "may launch; on the CPU, a launch of a single block keeps the GIL. "
    "Legal while the stream is being captured.\n\n"
    "Automatic differentiation does not see what a kernel writes: no gradient flows "
    "through it, and torch's version counter of a tensor is not increased, so that a "
    "backward pass does not notice that a value it has saved was overwritten.\n\n"
    "Raises ArgumentError, OrderError, CompileError (first launch on a device), "
    "DeviceError, UnavailableError.");

static PyType_Slot kernel_slots[] = {{Py_tp_doc, (void*)kernel_doc},
                                     {Py_tp_call, ONSPY_FUNCTION(kernel_call)},
                                     {Py_tp_repr, ONSPY_FUNCTION(kernel_repr)},
                                     {Py_tp_traverse, ONSPY_FUNCTION(kernel_traverse)},
                                     {Py_tp_dealloc, ONSPY_FUNCTION(kernel_dealloc)},
                                     {Py_tp_methods, ONSPY_FUNCTION(kernel_methods)},
                                     {Py_tp_getset, ONSPY_FUNCTION(kernel_getset)},
                                     {Py_mp_subscript, ONSPY_FUNCTION(kernel_subscript)},
                                     {0, NULL}};

PyType_Spec onspy_kernel_spec = {
    .name = "onstream.Kernel",
    .basicsize = sizeof(onspy_kernel),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = kernel_slots,
};
