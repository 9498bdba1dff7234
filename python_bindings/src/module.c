/* The module onstream._core: its state, its types, its functions. */
#include <string.h>

#include "binding.h"

/* ---- the runtime ------------------------------------------------------------------ */

PyObject* onspy_helpers(onspy_state* state) {
  if (state->helpers == NULL) state->helpers = PyImport_ImportModule("onstream._helpers");
  return state->helpers;
}

/* Whatever goes wrong while looking is no reason to fail: the library goes on to its own
 * places and says in the end what was tried. */
static int locate_with_gil(onspy_state* state, int what, char* out_path,
                           size_t capacity) {
  PyObject* helpers = onspy_helpers(state);
  PyObject* found =
      helpers != NULL ? PyObject_CallMethod(helpers, "locate", "i", what) : NULL;
  const char* path = found != NULL && found != Py_None ? PyUnicode_AsUTF8(found) : NULL;
  int known = path != NULL && strlen(path) < capacity;
  if (known) memcpy(out_path, path, strlen(path) + 1);
  Py_XDECREF(found);
  PyErr_Clear();
  return known;
}

static int locate(void* user_data, ons_locate_what what, char* out_path,
                  size_t capacity_bytes) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  int known = locate_with_gil(user_data, (int)what, out_path, capacity_bytes);
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(gil);
  return known;
}

/* Ctrl-C ends what the library is at: the exception is left for whoever called it. */
static int is_interrupted(void* user_data) {
  (void)user_data;
  const PyGILState_STATE held = PyGILState_Ensure();
  const bool is_raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(held);
  return is_raised;
}

ons_runtime* onspy_runtime(onspy_state* state) {
  if (state->runtime != NULL) return state->runtime;
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.locate = locate;
  options.locate_user_data = state;
  options.interrupt = is_interrupted;
  ons_error error = ONS_ERROR_INIT;
  if (ons_runtime_create(&options, &state->runtime, &error) != ONS_STATUS_OK) {
    return onspy_raise(state, &error);
  }
  return state->runtime;
}

/* ---- functions -------------------------------------------------------------------- */

PyDoc_STRVAR(
    load_doc,
    "load(path, *, options=(), headers={}, name=None, check=False, isolate=False, "
    "timeout=None)\n--\n\n"
    "A Module from a file of CUDA C++ source, or from a bundle (Module.bundle).\n\n"
    "The file's folder is searched for quoted includes; name (default: the path) is "
    "shown in diagnostics. A bundle has been compiled: it takes a name only. Otherwise "
    "as "
    "Module. Raises NotFoundError if there is no "
    "such file.");
static PyObject* load(PyObject* module, PyObject* args, PyObject* kwargs) {
  return onspy_module_from_file(PyModule_GetState(module), args, kwargs);
}

PyDoc_STRVAR(find_doc,
             "_find(what, /)\n--\n\n"
             "Where 1 NVRTC, 2 CUDA's headers, 3 the host's compiler is. Raises "
             "UnavailableError with what was tried.");
static PyObject* find(PyObject* module, PyObject* what) {
  onspy_state* state = PyModule_GetState(module);
  ons_runtime* runtime = onspy_runtime(state);
  const long number = PyLong_AsLong(what);
  if (runtime == NULL || (number == -1 && PyErr_Occurred())) return NULL;
  ons_blob* text = NULL;
  ons_error error = ONS_ERROR_INIT;
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_runtime_find(runtime, (ons_locate_what)number, &text, &error);
  Py_END_ALLOW_THREADS;
  if (status != ONS_STATUS_OK) return onspy_raise(state, &error);
  PyObject* result = PyUnicode_DecodeFSDefault(ons_blob_data(text));
  ons_blob_release(text);
  return result;
}

PyDoc_STRVAR(devices_doc,
             "_devices(type, /)\n--\n\n"
             "What the devices of a DLPack type are called. Raises UnavailableError with "
             "what was tried.");
static PyObject* devices(PyObject* module, PyObject* type) {
  onspy_state* state = PyModule_GetState(module);
  ons_runtime* runtime = onspy_runtime(state);
  const long number = PyLong_AsLong(type);
  if (runtime == NULL || (number == -1 && PyErr_Occurred())) return NULL;
  ons_error error = ONS_ERROR_INIT;
  int32_t count = 0;
  if (ons_runtime_device_count(runtime, (DLDeviceType)number, &count, &error) !=
      ONS_STATUS_OK) {
    return onspy_raise(state, &error);
  }
  PyObject* names = PyList_New(0);
  for (int32_t i = 0; names != NULL && i < count; ++i) {
    char text[256];
    if (ons_runtime_device_name(runtime, (DLDevice){(DLDeviceType)number, i}, text,
                                sizeof text, &error) != ONS_STATUS_OK) {
      Py_DECREF(names);
      return onspy_raise(state, &error);
    }
    PyObject* name = PyUnicode_FromString(text);
    if (name == NULL || PyList_Append(names, name) < 0) Py_CLEAR(names);
    Py_XDECREF(name);
  }
  return names;
}

PyDoc_STRVAR(cache_path_doc,
             "_cache_path()\n--\n\n"
             "The folder of compiled modules, which need not exist; None: no cache.");
static PyObject* cache_path(PyObject* module, PyObject* Py_UNUSED(ignored)) {
  ons_runtime* runtime = onspy_runtime(PyModule_GetState(module));
  if (runtime == NULL) return NULL;
  const char* path = ons_runtime_cache_path(runtime);
  if (path == NULL) Py_RETURN_NONE;
  return PyUnicode_DecodeFSDefault(path);
}

PyDoc_STRVAR(load_bundle_doc,
             "load_bundle(data, /)\n--\n\n"
             "A Module from the bytes of a bundle (Module.bundle), which are copied. "
             "Raises ValueError for what is none, or damaged. Code is run from it.");
static PyObject* load_bundle(PyObject* module, PyObject* data) {
  return onspy_module_from_bundle(PyModule_GetState(module), data);
}

PyDoc_STRVAR(
    empty_doc,
    "empty(shape, dtype)\n--\n\n"
    "A kernel argument that is allocated by the call and returned by it.\n\n"
    "shape: an int or a tuple of int, in elements; in their place also the name of an "
    "argument that is an int ('n'), or of an array, 'x.shape' or 'x.shape[0]'; or a "
    "function that is called with the arguments and gives ints. dtype: a name "
    "('float32'), a dtype object of NumPy, torch or JAX, or 'x.dtype'. Names are those "
    "of "
    "the kernel's parameters.\n\n"
    "The call allocates a dense array with uninitialised "
    "contents on the device of the launch, by the library of the first array argument "
    "there, in that library's current stream order, and returns it as that library's own "
    "type. A library that cannot be asked (Numba, PyCUDA, Warp, cuda.core) gets a "
    "Tensor, "
    "allocated on the launch stream. Without any array among the arguments, or like(x), "
    "it raises ArgumentTypeError. "
    "Several outputs come back as a tuple, in the order of the arguments. Arrays of the "
    "caller's are passed in the place of outputs as any argument, or by out=.\n\n"
    "Memory that has run out is the library's own exception, or MemoryError; nothing has "
    "been enqueued then.");
static PyObject* empty(PyObject* module, PyObject* args, PyObject* kwargs) {
  return onspy_output_empty(PyModule_GetState(module), args, kwargs, "OO:empty", 0);
}

PyDoc_STRVAR(
    zeros_doc,
    "zeros(shape, dtype)\n--\n\n"
    "As empty(), filled with zeros before the kernel runs, in its order. An array "
    "that is given by out= is filled too.");
static PyObject* zeros(PyObject* module, PyObject* args, PyObject* kwargs) {
  return onspy_output_empty(PyModule_GetState(module), args, kwargs, "OO:zeros",
                            ONSPY_OUTPUT_ZERO);
}

PyDoc_STRVAR(workspace_doc,
             "workspace(shape, dtype='uint8')\n--\n\n"
             "As empty(), for the kernel alone: it is not returned, and its memory is "
             "reused in the order of the stream. workspace(n) is n bytes.");
static PyObject* workspace(PyObject* module, PyObject* args, PyObject* kwargs) {
  return onspy_output_empty(PyModule_GetState(module), args, kwargs, "O|O:workspace",
                            ONSPY_OUTPUT_WORKSPACE);
}

PyDoc_STRVAR(
    like_doc,
    "like(x, /, *, shape=None, dtype=None)\n--\n\n"
    "A kernel argument that is allocated by the call and returned by it.\n\n"
    "It has the shape, dtype, device and library of the array x, but for what is given, "
    "and is dense in C order "
    "whatever x's strides are. A launch goes where it would go with x itself for an "
    "argument. See empty().");
static PyObject* like(PyObject* module, PyObject* args, PyObject* kwargs) {
  onspy_state* state = PyModule_GetState(module);
  if (kwargs == NULL && PyTuple_GET_SIZE(args) == 1) {
    return onspy_output_just_like(state, PyTuple_GET_ITEM(args, 0));
  }
  return onspy_output_like(state, args, kwargs, "O|$OO:like", 0);
}

PyDoc_STRVAR(zeros_like_doc,
             "zeros_like(x, /, *, shape=None, dtype=None)\n--\n\n"
             "As like(), filled with zeros as by zeros().");
static PyObject* zeros_like(PyObject* module, PyObject* args, PyObject* kwargs) {
  return onspy_output_like(PyModule_GetState(module), args, kwargs, "O|$OO:zeros_like",
                           ONSPY_OUTPUT_ZERO);
}

PyDoc_STRVAR(
    register_producer_doc,
    "register_producer(type, /, *, stream=None, read_only=False, protocol=None)\n--\n\n"
    "Tells what is not known of a library's arrays: of a class and its subclasses.\n\n"
    "stream: a function that is called with an array, for each launch, and gives the "
    "stream that the library works on now: whatever stream= takes, or None where it is "
    "not known. The stream must outlive the launch. With it arrays can be written, "
    "joined, and used in a capture, though their protocol tells no stream; it wins over "
    "what the protocol tells. read_only: kernels may only read the arrays. protocol: "
    "the only one to be asked by, 'exchange', 'dlpack', 'cuda_array_interface' or "
    "'arrow'; None: the first of these that the class has.\n\n"
    "Takes effect on later calls, and replaces what was registered for the class before. "
    "The class is kept alive. What the function raises is shown as raised by the "
    "array.");
static PyObject* register_producer(PyObject* module, PyObject* args, PyObject* kwargs) {
  return onspy_register(PyModule_GetState(module), args, kwargs);
}

PyDoc_STRVAR(
    set_order_doc,
    "set_order(order, /)\n--\n\n"
    "The order of launches that do not say, from now on and in all threads: 'join' (the "
    "default), 'strict' or 'trust', as for Kernel.launch; None sets 'join' again.");
static PyObject* set_order(PyObject* module, PyObject* object) {
  onspy_state* state = PyModule_GetState(module);
  uint32_t order;
  if (!onspy_order_parse(object, &order)) return NULL;
  ons_runtime* runtime = onspy_runtime(state);
  if (runtime == NULL) return NULL;
  ons_error error = ONS_ERROR_INIT;
  if (ons_runtime_set_order(runtime, order, &error) != ONS_STATUS_OK) {
    return onspy_raise(state, &error);
  }
  Py_RETURN_NONE;
}

PyDoc_STRVAR(
    from_dlpack_doc,
    "from_dlpack(x, /, stream=None)\n--\n\n"
    "A Tensor over the memory of the array x, without a copy.\n\n"
    "x may be dropped; its memory is kept until the Tensor is released. The Tensor is "
    "used "
    "on one stream: the one given (as in kernel[grid, block, shared, stream]), else that "
    "of use_stream, else the stream that x's library works on. That stream waits, on the "
    "device, for what x's library has put on its own. An array of a library that tells "
    "no "
    "stream (JAX) is ordered by it onto the Tensor's. Host memory has no stream. Raises "
    "OrderError, with captures untouched, where one of the streams is part of a capture "
    "and the other is not. A Tensor is returned as it is.");
static PyObject* from_dlpack(PyObject* module, PyObject* args, PyObject* kwargs) {
  static char* keywords[] = {"", "stream", NULL};
  PyObject *x, *stream = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:from_dlpack", keywords, &x,
                                   &stream)) {
    return NULL;
  }
  return onspy_from_dlpack(PyModule_GetState(module), x, stream);
}

PyDoc_STRVAR(
    tensor_map_doc,
    "tensor_map(x, /, box, *, swizzle=None, steps=None, l2=None, fill='zero', "
    "write=False)\n--\n\n"
    "A kernel argument for const __grid_constant__ ons::tensor_map (or CUtensorMap): the "
    "array x as TMA sees it.\n\n"
    "box: the elements that one copy moves, one extent (1 to 256) for each dimension of "
    "x, "
    "in its order; the last is a multiple of 16 bytes. swizzle: None, 32, 64 or 128 "
    "bytes; "
    "steps: between the elements that are copied, 1 to 8; l2: None, 64, 128 or 256 bytes "
    "to promote loads to; fill: what elements outside of x read as, 'zero' or 'nan'. "
    "write: the kernel writes through it. x is a plain argument in all else: it is "
    "checked, "
    "ordered and borrowed by each launch, which encodes the map from the memory that x "
    "has "
    "then. x is aligned to 16 bytes, contiguous in its last dimension, and its other "
    "strides are multiples of 16 bytes. Needs a GPU of compute capability 9.0.");
static PyObject* make_tensor_map(PyObject* module, PyObject* args, PyObject* kwargs) {
  return onspy_tensor_map(PyModule_GetState(module), args, kwargs);
}

PyDoc_STRVAR(
    collect_doc,
    "collect()\n--\n\n"
    "Releases what was kept for launches and released tensors that the device is "
    "past; returns how much is still held.\n\n"
    "Also done, a little at a time, by later launches. Never waits, and is legal "
    "during captures.");
static PyObject* collect(PyObject* module, PyObject* Py_UNUSED(ignored)) {
  const onspy_state* state = PyModule_GetState(module);
  return PyLong_FromSize_t(ons_runtime_collect(state->runtime));
}

PyDoc_STRVAR(stream_wait_doc,
             "_stream_wait(device_type, device_id, waiting, signalling, /)\n--\n\n"
             "Makes one native stream wait for what is on another. Internal.");
static PyObject* stream_wait(PyObject* module, PyObject* args) {
  onspy_state* state = PyModule_GetState(module);
  int type, id;
  unsigned long long waiting, signalling;
  if (!PyArg_ParseTuple(args, "iiKK", &type, &id, &waiting, &signalling)) return NULL;
  ons_runtime* runtime = onspy_runtime(state);
  if (runtime == NULL) return NULL;
  DLDevice device = {(DLDeviceType)type, id};
  ons_error error = ONS_ERROR_INIT;
  if (ons_stream_wait(runtime, device, (void*)(uintptr_t)waiting,
                      (void*)(uintptr_t)signalling, &error) != ONS_STATUS_OK) {
    return onspy_raise(state, &error);
  }
  Py_RETURN_NONE;
}

PyDoc_STRVAR(xla_handlers_doc,
             "_xla_handlers()\n--\n\n"
             "{platform: {target: {stage: capsule}}} of the functions that XLA calls, "
             "which use this package's runtime from then on. Internal.");
static PyObject* xla_handlers(PyObject* module, PyObject* Py_UNUSED(ignored)) {
  return onspy_xla_handlers(PyModule_GetState(module));
}

PyDoc_STRVAR(xla_describe_doc,
             "_xla_describe(kernel, /)\n--\n\n"
             "A dict of what makes a kernel: module, bundle, source, name, options, "
             "headers, flags, kernel. Of a bundle, its bytes do. Internal.");
static PyObject* xla_describe(PyObject* module, PyObject* kernel) {
  return onspy_xla_describe(PyModule_GetState(module), kernel);
}

PyDoc_STRVAR(xla_register_module_doc,
             "_xla_register_module(module, digest, /)\n--\n\n"
             "Makes a Module known to XLA's programs, for the life of the process. "
             "Internal.");
static PyObject* xla_register_module(PyObject* module, PyObject* args) {
  return onspy_xla_register_module(PyModule_GetState(module), args);
}

static PyMethodDef methods[] = {
    {"load", (PyCFunction)(void (*)(void))load, METH_VARARGS | METH_KEYWORDS, load_doc},
    {"load_bundle", load_bundle, METH_O, load_bundle_doc},
    {"empty", (PyCFunction)(void (*)(void))empty, METH_VARARGS | METH_KEYWORDS,
     empty_doc},
    {"zeros", (PyCFunction)(void (*)(void))zeros, METH_VARARGS | METH_KEYWORDS,
     zeros_doc},
    {"workspace", (PyCFunction)(void (*)(void))workspace, METH_VARARGS | METH_KEYWORDS,
     workspace_doc},
    {"like", (PyCFunction)(void (*)(void))like, METH_VARARGS | METH_KEYWORDS, like_doc},
    {"zeros_like", (PyCFunction)(void (*)(void))zeros_like, METH_VARARGS | METH_KEYWORDS,
     zeros_like_doc},
    {"register_producer", (PyCFunction)(void (*)(void))register_producer,
     METH_VARARGS | METH_KEYWORDS, register_producer_doc},
    {"set_order", set_order, METH_O, set_order_doc},
    {"from_dlpack", (PyCFunction)(void (*)(void))from_dlpack,
     METH_VARARGS | METH_KEYWORDS, from_dlpack_doc},
    {"tensor_map", (PyCFunction)(void (*)(void))make_tensor_map,
     METH_VARARGS | METH_KEYWORDS, tensor_map_doc},
    {"collect", collect, METH_NOARGS, collect_doc},
    {"_stream_wait", stream_wait, METH_VARARGS, stream_wait_doc},
    {"_find", find, METH_O, find_doc},
    {"_devices", devices, METH_O, devices_doc},
    {"_cache_path", cache_path, METH_NOARGS, cache_path_doc},
    {"_xla_handlers", xla_handlers, METH_NOARGS, xla_handlers_doc},
    {"_xla_describe", xla_describe, METH_O, xla_describe_doc},
    {"_xla_register_module", xla_register_module, METH_VARARGS, xla_register_module_doc},
    {NULL, NULL, 0, NULL}};

/* ---- set-up ----------------------------------------------------------------------- */

static bool intern_names(onspy_state* state) {
#define INTERN(id, text)                              \
  state->str_##id = PyUnicode_InternFromString(text); \
  if (state->str_##id == NULL) return false;
  ONSPY_NAMES(INTERN)
#undef INTERN
  state->max_version = Py_BuildValue("(ii)", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
  state->ask_stream_version = PyTuple_Pack(2, state->str_stream, state->str_max_version);
  state->ask_stream = PyTuple_Pack(1, state->str_stream);
  state->ask_version = PyTuple_Pack(1, state->str_max_version);
  return state->max_version != NULL && state->ask_stream_version != NULL &&
         state->ask_stream != NULL && state->ask_version != NULL;
}

/* Adds a type to the module if it has a name to be found by. */
static PyTypeObject* add_type(PyObject* module, PyType_Spec* spec, bool is_public) {
  PyTypeObject* type = (PyTypeObject*)PyType_FromModuleAndSpec(module, spec, NULL);
  if (type != NULL && is_public && PyModule_AddType(module, type) < 0) Py_CLEAR(type);
  return type;
}

static int module_exec(PyObject* module) {
  onspy_state* state = PyModule_GetState(module);
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError,
                    "onstream supports no subinterpreters: import it in the main one");
    return -1;
  }
  if (!intern_names(state) || !onspy_errors_create(state, module)) return -1;
  state->module_type = add_type(module, &onspy_module_spec, true);
  state->kernel_type = add_type(module, &onspy_kernel_spec, true);
  state->launcher_type = add_type(module, &onspy_launcher_spec, true);
  state->output_type = add_type(module, &onspy_output_spec, true);
  state->tensor_type = add_type(module, &onspy_tensor_spec, true);
  state->generic_type = add_type(module, &onspy_generic_spec, true);
  state->tensor_map_type = add_type(module, &onspy_tensor_map_spec, true);
  PyTypeObject* use_stream = add_type(module, &onspy_use_stream_spec, true);
  Py_XDECREF(use_stream); /* the module has it */
  if (state->module_type == NULL || state->kernel_type == NULL ||
      state->launcher_type == NULL || state->output_type == NULL ||
      state->tensor_type == NULL || state->tensor_map_type == NULL ||
      state->generic_type == NULL || use_stream == NULL ||
      !onspy_tensor_table_add(state)) {
    return -1;
  }
  return PyModule_AddStringConstant(module, "__version__", ons_version());
}

static int module_traverse(PyObject* module, visitproc visit, void* arg) {
  onspy_state* state = PyModule_GetState(module);
#define VISIT(id, text) Py_VISIT(state->error_##id);
  ONSPY_ERRORS(VISIT)
#undef VISIT
  Py_VISIT(state->module_type);
  Py_VISIT(state->kernel_type);
  Py_VISIT(state->launcher_type);
  Py_VISIT(state->output_type);
  Py_VISIT(state->tensor_type);
  Py_VISIT(state->tensor_map_type);
  Py_VISIT(state->generic_type);
  Py_VISIT(state->helpers);
  Py_VISIT(state->torch_empty_like);
  Py_VISIT(state->registered);
  Py_VISIT(state->kept);
  return onspy_producer_traverse(state, visit, arg);
}

/* Only what can be part of a reference cycle: objects that outlive this, at exit, still
 * find their names and exception classes. */
static int module_clear(PyObject* module) {
  onspy_state* state = PyModule_GetState(module);
  /* While their type, which says how to free them, still lives. */
  while (state->free_launcher_count > 0) {
    PyObject_GC_Del(state->free_launchers[--state->free_launcher_count]);
  }
  Py_CLEAR(state->module_type);
  Py_CLEAR(state->kernel_type);
  Py_CLEAR(state->launcher_type);
  Py_CLEAR(state->output_type);
  Py_CLEAR(state->tensor_type);
  Py_CLEAR(state->tensor_map_type);
  Py_CLEAR(state->generic_type);
  Py_CLEAR(state->helpers);
  Py_CLEAR(state->torch_empty_like);
  return 0;
}

static void module_free(void* module) {
  onspy_state* state = PyModule_GetState(module);
  if (state == NULL) return;
  onspy_tensor_table_remove(state);
  module_clear(module);
  onspy_producer_clear(state);
  Py_CLEAR(state->registered);
  Py_CLEAR(state->kept);
  ons_runtime_release(state->runtime);
  state->runtime = NULL;
#define CLEAR(id, text) Py_CLEAR(state->error_##id);
  ONSPY_ERRORS(CLEAR)
#undef CLEAR
#define CLEAR(id, text) Py_CLEAR(state->str_##id);
  ONSPY_NAMES(CLEAR)
#undef CLEAR
  Py_CLEAR(state->max_version);
  Py_CLEAR(state->ask_stream_version);
  Py_CLEAR(state->ask_stream);
  Py_CLEAR(state->ask_version);
}

/* Nothing is declared for free-threaded interpreters: call sites' caches count on the
 * GIL. Nor for other interpreters, as what is retained for a device is released through
 * PyGILState, which knows only one; before 3.12 module_exec says so. */
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, ONSPY_FUNCTION(module_exec)},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "onstream._core",
    .m_doc = "The C part of onstream; use the package onstream.",
    .m_size = sizeof(onspy_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
