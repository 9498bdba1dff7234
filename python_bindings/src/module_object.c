/* onstream.Module: source, and the kernels in it. */
#include <onstream/bundle.h>
#include <stdio.h>
#include <string.h>

#include "generic.h"

/* ---- construction ----------------------------------------------------------------- */

const char* onspy_text_of(PyObject* object, const char* what) {
  if (!PyUnicode_Check(object)) {
    PyErr_Format(PyExc_TypeError, "%s must be str, not %.200s", what,
                 Py_TYPE(object)->tp_name);
    return NULL;
  }
  Py_ssize_t bytes;
  const char* text = PyUnicode_AsUTF8AndSize(object, &bytes);
  if (text != NULL && strlen(text) != (size_t)bytes) {
    PyErr_Format(PyExc_ValueError, "%s must not contain a null character", what);
    return NULL;
  }
  return text;
}

/* What ons_module_options points at, and the Python objects that own the text. */
typedef struct option_set {
  PyObject* options; /* a tuple */
  PyObject* headers; /* a list of (name, content) */
  const char** option_texts;
  ons_header* header_texts;
  ons_module_options c;
} option_set;

static void option_set_clear(option_set* set) {
  Py_CLEAR(set->options);
  Py_CLEAR(set->headers);
  PyMem_Free(set->option_texts);
  PyMem_Free(set->header_texts);
}

static bool read_options(option_set* set, PyObject* options) {
  if (PyUnicode_Check(options)) {
    PyErr_SetString(PyExc_TypeError, "options must be a sequence of str, not one str");
    return false;
  }
  set->options = PySequence_Tuple(options);
  if (set->options == NULL) return false;
  Py_ssize_t count = PyTuple_GET_SIZE(set->options);
  set->option_texts = PyMem_New(const char*, (size_t)count + 1);
  if (set->option_texts == NULL) return PyErr_NoMemory() != NULL;
  for (Py_ssize_t i = 0; i < count; ++i) {
    set->option_texts[i] = onspy_text_of(PyTuple_GET_ITEM(set->options, i), "an option");
    if (set->option_texts[i] == NULL) return false;
  }
  set->c.options = set->option_texts;
  set->c.option_count = (size_t)count;
  return true;
}

static bool read_headers(option_set* set, PyObject* headers) {
  set->headers = PyMapping_Items(headers);
  if (set->headers == NULL) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
      PyErr_SetString(PyExc_TypeError, "headers must map names to their text");
    }
    return false;
  }
  Py_ssize_t count = PyList_GET_SIZE(set->headers);
  set->header_texts = PyMem_New(ons_header, (size_t)count + 1);
  if (set->header_texts == NULL) return PyErr_NoMemory() != NULL;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyList_GET_ITEM(set->headers, i);
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) {
      PyErr_SetString(PyExc_TypeError, "headers must map names to their text");
      return false;
    }
    ons_header* header = &set->header_texts[i];
    header->name = onspy_text_of(PyTuple_GET_ITEM(item, 0), "a header's name");
    if (header->name == NULL) return false;
    header->content = onspy_text_of(PyTuple_GET_ITEM(item, 1), "a header's text");
    if (header->content == NULL) return false;
  }
  set->c.headers = set->header_texts;
  set->c.header_count = (size_t)count;
  return true;
}

static bool read_option_set(option_set* set, PyObject* options, PyObject* headers,
                            PyObject* name) {
  *set = (option_set){.c = ONS_MODULE_OPTIONS_INIT};
  if (options != NULL && !read_options(set, options)) return false;
  if (headers != NULL && !read_headers(set, headers)) return false;
  if (name == NULL || name == Py_None) return true;
  set->c.name = onspy_text_of(name, "name");
  return set->c.name != NULL;
}

/* timeout: seconds, or None. */
static bool read_limits(option_set* set, bool isolate, PyObject* timeout) {
  if (isolate) set->c.flags |= ONS_MODULE_ISOLATE;
  if (timeout == Py_None) return true;
  const double seconds = PyFloat_AsDouble(timeout);
  if (seconds == -1 && PyErr_Occurred()) return false;
  if (!(seconds > 0 && seconds < 4e6)) {
    PyErr_Format(PyExc_ValueError, "timeout is %R: give seconds above 0, or None",
                 timeout);
    return false;
  }
  const double milliseconds = seconds * 1000;
  set->c.timeout_ms = milliseconds < 1 ? 1 : (uint32_t)milliseconds;
  return true;
}

/* Takes over |handle|. */
static PyObject* wrap(onspy_state* state, PyTypeObject* type, ons_module* handle,
                      const option_set* set, PyObject* name, PyObject* source) {
  onspy_module* self = (onspy_module*)type->tp_alloc(type, 0);
  if (self == NULL) {
    ons_module_release(handle);
    return NULL;
  }
  self->state = state;
  self->handle = handle;
  self->name = Py_NewRef(name);
  self->source = Py_NewRef(source);
  self->options = set->options != NULL ? Py_NewRef(set->options) : PyTuple_New(0);
  self->headers = set->headers != NULL ? Py_NewRef(set->headers) : PyList_New(0);
  self->flags = set->c.flags;
  self->warned = PySet_New(NULL);
  self->bundle = Py_NewRef(Py_None);
  self->kernels = PyDict_New();
  self->attributes = PyDict_New();
  if (self->options == NULL || self->headers == NULL || self->warned == NULL ||
      self->kernels == NULL || self->attributes == NULL) {
    Py_CLEAR(self);
  }
  return (PyObject*)self;
}

static PyObject* module_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* keywords[] = {"source", "options", "headers", "name",
                             "check",  "isolate", "timeout", NULL};
  PyObject *source, *options = NULL, *headers = NULL, *name = NULL;
  PyObject* timeout = Py_None;
  int check = 0, isolate = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOppO:Module", keywords, &source,
                                   &options, &headers, &name, &check, &isolate,
                                   &timeout)) {
    return NULL;
  }
  onspy_state* state = (onspy_state*)PyType_GetModuleState(type);
  ons_runtime* runtime = onspy_runtime(state);
  if (runtime == NULL) return NULL;
  const char* text = onspy_text_of(source, "source");
  if (text == NULL) return NULL;
  PyObject* self = NULL;
  option_set set;
  if (read_option_set(&set, options, headers, name) &&
      read_limits(&set, isolate, timeout)) {
    if (check) set.c.flags |= ONS_MODULE_CHECK;
    ons_module* handle = NULL;
    ons_error error = ONS_ERROR_INIT;
    if (ons_module_create(runtime, text, &set.c, &handle, &error) != ONS_STATUS_OK) {
      onspy_raise(state, &error);
    } else {
      PyObject* shown =
          set.c.name != NULL ? Py_NewRef(name) : PyUnicode_FromString("kernel.cu");
      if (shown != NULL) self = wrap(state, type, handle, &set, shown, source);
      Py_XDECREF(shown);
    }
  }
  option_set_clear(&set);
  return self;
}

/* ---- bundles ---------------------------------------------------------------------- */

/* Takes over |handle|, the module of a bundle, and |bytes|, which may be NULL with an
 * exception set. */
static PyObject* wrap_bundle(onspy_state* state, ons_module* handle, PyObject* name,
                             PyObject* bytes) {
  const option_set none = {.c = ONS_MODULE_OPTIONS_INIT};
  const char* text = ons_module_source(handle);
  PyObject* source = *text ? PyUnicode_FromString(text) : Py_NewRef(Py_None);
  if (source == NULL || bytes == NULL || state->module_type == NULL) {
    Py_XDECREF(source);
    Py_XDECREF(bytes);
    ons_module_release(handle);
    return NULL;
  }
  PyObject* self = wrap(state, state->module_type, handle, &none, name, source);
  Py_DECREF(source);
  if (self != NULL) {
    Py_SETREF(((onspy_module*)self)->bundle, bytes);
  } else {
    Py_DECREF(bytes);
  }
  return self;
}

static PyObject* read_file(PyObject* path) {
  PyObject* pathlib = PyImport_ImportModule("pathlib");
  PyObject* file =
      pathlib != NULL ? PyObject_CallMethod(pathlib, "Path", "O", path) : NULL;
  PyObject* bytes = file != NULL ? PyObject_CallMethod(file, "read_bytes", NULL) : NULL;
  Py_XDECREF(file);
  Py_XDECREF(pathlib);
  return bytes;
}

PyObject* onspy_module_from_bundle(onspy_state* state, PyObject* data) {
  ons_runtime* runtime = onspy_runtime(state);
  Py_buffer view;
  if (runtime == NULL || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return NULL;
  ons_module* handle = NULL;
  ons_error error = ONS_ERROR_INIT;
  ons_status status =
      ons_module_create_from_bundle(runtime, view.buf, (size_t)view.len, &handle, &error);
  PyBuffer_Release(&view);
  if (status != ONS_STATUS_OK) return onspy_raise(state, &error);
  PyObject* name = PyUnicode_FromString("bundle");
  PyObject* self =
      name != NULL ? wrap_bundle(state, handle, name, PyBytes_FromObject(data)) : NULL;
  if (name == NULL) ons_module_release(handle);
  Py_XDECREF(name);
  return self;
}

/* Does the file begin as a bundle does? What cannot be read is not one here. */
static bool is_bundle_file(const char* path) {
  char front[8] = {0};
  FILE* file = fopen(path, "rbe");
  if (file == NULL) return false;
  const bool is_bundle = fread(front, 1, sizeof front, file) == sizeof front &&
                         memcmp(front, "ONSBUNDL", sizeof front) == 0;
  fclose(file);
  return is_bundle;
}

/* What bundle() takes: str, or an iterable of them, as an array that borrows from
 * |out_tuple|. NULL with an exception. */
static const char** read_texts(PyObject* given, const char* what, PyObject** out_tuple) {
  PyObject* tuple =
      PyUnicode_Check(given) ? PyTuple_Pack(1, given) : PySequence_Tuple(given);
  *out_tuple = tuple;
  if (tuple == NULL) return NULL;
  const size_t count = (size_t)PyTuple_GET_SIZE(tuple);
  const char** texts = PyMem_New(const char*, count + 1);
  if (texts == NULL) PyErr_NoMemory();
  for (size_t i = 0; texts != NULL && i < count; ++i) {
    texts[i] = onspy_text_of(PyTuple_GET_ITEM(tuple, (Py_ssize_t)i), what);
    if (texts[i] == NULL) {
      PyMem_Free(texts);
      return NULL;
    }
  }
  return texts;
}

PyDoc_STRVAR(
    bundle_doc,
    "bundle($self, architectures, kernels=(), *, source=False)\n--\n\n"
    "The kernels compiled for several architectures, as bytes that ons.load (from a "
    "file) "
    "and ons.load_bundle take where there is no compiler.\n\n"
    "architectures: 'sm_80' (GPUs of capability 8.0 and later 8.x), 'compute_80' (PTX, "
    "for those and all later ones), 'x86-64', 'x86-64-v2', '-v3', '-v4', 'aarch64'. "
    "kernels: instances of templates on top of the plain kernels, 'scale<float, 4>'. "
    "source: put the source in, to compile what is missing. No device is needed; may "
    "take seconds, during which other Python threads run. Raises CompileError, "
    "UnavailableError, UnsupportedError, NotFoundError.");
static PyObject* build_bundle(onspy_module* self, PyObject* args, PyObject* kwargs,
                              bool wants_log) {
  static char* keywords[] = {"architectures", "kernels", "source", NULL};
  PyObject *archs, *kernels = NULL, *arch_tuple = NULL, *kernel_tuple = NULL;
  PyObject* result = NULL;
  int source = 0;
  const char **arch_texts = NULL, **kernel_texts = NULL;
  ons_bundle_options options = ONS_BUNDLE_OPTIONS_INIT;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O$p:bundle", keywords, &archs,
                                   &kernels, &source)) {
    return NULL;
  }
  arch_texts = read_texts(archs, "an architecture", &arch_tuple);
  if (arch_texts == NULL) goto done;
  options.architectures = arch_texts;
  options.architecture_count = (size_t)PyTuple_GET_SIZE(arch_tuple);
  if (kernels != NULL) {
    kernel_texts = read_texts(kernels, "a kernel's name", &kernel_tuple);
    if (kernel_texts == NULL) goto done;
    options.kernels = kernel_texts;
    options.kernel_count = (size_t)PyTuple_GET_SIZE(kernel_tuple);
  }
  if (source) options.flags |= ONS_BUNDLE_SOURCE;
  ons_error error = ONS_ERROR_INIT;
  ons_blob *bundle = NULL, *log = NULL;
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_module_bundle(self->handle, &options, &bundle, &log, &error);
  Py_END_ALLOW_THREADS;
  if (status != ONS_STATUS_OK) {
    onspy_raise_compile(self, &error, log);
  } else if (wants_log) {
    result = PyUnicode_DecodeUTF8(log != NULL ? ons_blob_data(log) : "",
                                  log != NULL ? (Py_ssize_t)ons_blob_size_bytes(log) : 0,
                                  "replace");
  } else {
    result = PyBytes_FromStringAndSize(ons_blob_data(bundle),
                                       (Py_ssize_t)ons_blob_size_bytes(bundle));
  }
  ons_blob_release(bundle);
  ons_blob_release(log);
done:
  PyMem_Free(arch_texts);
  PyMem_Free(kernel_texts);
  Py_XDECREF(arch_tuple);
  Py_XDECREF(kernel_tuple);
  return result;
}

static PyObject* module_bundle(PyObject* self, PyObject* args, PyObject* kwargs) {
  return build_bundle((onspy_module*)self, args, kwargs, false);
}

/* What the compilers wrote, for the command line. */
static PyObject* module_bundle_log(PyObject* self, PyObject* args, PyObject* kwargs) {
  return build_bundle((onspy_module*)self, args, kwargs, true);
}

static PyObject* load_bundle_file(onspy_state* state, PyObject* path, bool is_plain,
                                  PyObject* name) {
  if (!is_plain) {
    PyErr_SetString(PyExc_TypeError,
                    "a bundle has been compiled: options, headers, check, isolate and "
                    "timeout are for sources");
    return NULL;
  }
  ons_module* handle = NULL;
  ons_error error = ONS_ERROR_INIT;
  PyObject* bytes = PyUnicode_EncodeFSDefault(path);
  if (bytes == NULL) return NULL;
  ons_status status = ons_module_create_from_bundle_file(
      onspy_runtime(state), PyBytes_AS_STRING(bytes), &handle, &error);
  Py_DECREF(bytes);
  if (status != ONS_STATUS_OK) return onspy_raise(state, &error);
  return wrap_bundle(state, handle, name, read_file(path));
}

PyObject* onspy_module_from_file(onspy_state* state, PyObject* args, PyObject* kwargs) {
  static char* keywords[] = {"path",  "options", "headers", "name",
                             "check", "isolate", "timeout", NULL};
  PyObject *bytes = NULL, *options = NULL, *headers = NULL, *name = NULL;
  PyObject* timeout = Py_None;
  int check = 0, isolate = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|$OOOppO:load", keywords,
                                   PyUnicode_FSConverter, &bytes, &options, &headers,
                                   &name, &check, &isolate, &timeout)) {
    return NULL;
  }
  PyObject *self = NULL, *path = NULL;
  option_set set = {.c = ONS_MODULE_OPTIONS_INIT};
  ons_runtime* runtime = onspy_runtime(state);
  if (runtime == NULL || state->module_type == NULL) goto done;
  if (!read_option_set(&set, options, headers, name) ||
      !read_limits(&set, isolate, timeout)) {
    goto done;
  }
  if (check) set.c.flags |= ONS_MODULE_CHECK;
  path = PyUnicode_DecodeFSDefault(PyBytes_AS_STRING(bytes));
  if (path == NULL) goto done;
  ons_module* handle = NULL;
  ons_error error = ONS_ERROR_INIT;
  if (is_bundle_file(PyBytes_AS_STRING(bytes))) {
    bool is_plain =
        options == NULL && headers == NULL && !check && !isolate && timeout == Py_None;
    self = load_bundle_file(state, path, is_plain, set.c.name != NULL ? name : path);
    goto done;
  }
  if (ons_module_create_from_file(runtime, PyBytes_AS_STRING(bytes), &set.c, &handle,
                                  &error) != ONS_STATUS_OK) {
    onspy_raise(state, &error);
    goto done;
  }
  self = wrap(state, state->module_type, handle, &set, set.c.name != NULL ? name : path,
              Py_None);
done:
  option_set_clear(&set);
  Py_XDECREF(path);
  Py_DECREF(bytes);
  return self;
}

/* ---- kernels ---------------------------------------------------------------------- */

/* The kernel of that name (new reference), made at the first need. */
static PyObject* kernel_of(onspy_module* self, PyObject* name) {
  PyObject* kernel = PyDict_GetItemWithError(self->kernels, name);
  if (kernel != NULL) return Py_NewRef(kernel);
  if (PyErr_Occurred()) return NULL;
  if (onspy_text_of(name, "a kernel's name") == NULL) return NULL;
  kernel = onspy_kernel_new(self, name);
  if (kernel != NULL && PyDict_SetItem(self->kernels, name, kernel) < 0) Py_CLEAR(kernel);
  return kernel;
}

static PyObject* module_subscript(PyObject* self, PyObject* name) {
  if (!PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "a kernel's name must be str, not %.200s",
                 Py_TYPE(name)->tp_name);
    return NULL;
  }
  return kernel_of((onspy_module*)self, name);
}

/* Methods first, then kernels. Kernels found this way go into the instance's dict, where
 * the next access finds them without getting here. */
static PyObject* module_getattro(PyObject* object, PyObject* name) {
  onspy_module* self = (onspy_module*)object;
  PyObject* found = PyObject_GenericGetAttr(object, name);
  if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  /* Protocol look-ups (copy, pickle, array interfaces) are not about kernels. */
  if (PyUnicode_GET_LENGTH(name) > 1 && PyUnicode_READ_CHAR(name, 0) == '_' &&
      PyUnicode_READ_CHAR(name, 1) == '_') {
    return NULL;
  }
  PyErr_Clear();
  PyObject* kernel = kernel_of(self, name);
  if (kernel != NULL && PyDict_SetItem(self->attributes, name, kernel) < 0)
    Py_CLEAR(kernel);
  return kernel;
}

static int module_setattro(PyObject* self, PyObject* name, PyObject* Py_UNUSED(value)) {
  (void)self;
  PyErr_Format(PyExc_AttributeError, "onstream.Module is read-only: cannot set %R", name);
  return -1;
}

static PyObject* module_dir(PyObject* object, PyObject* Py_UNUSED(ignored)) {
  onspy_module* self = (onspy_module*)object;
  PyObject* names =
      PyObject_CallMethod((PyObject*)&PyBaseObject_Type, "__dir__", "O", object);
  if (names == NULL) return NULL;
  const char* name;
  for (size_t i = 0; (name = ons_module_kernel_name(self->handle, i)) != NULL; ++i) {
    PyObject* text = PyUnicode_FromString(name);
    if (text == NULL || PyList_Append(names, text) < 0) {
      Py_XDECREF(text);
      Py_DECREF(names);
      return NULL;
    }
    Py_DECREF(text);
  }
  return names;
}

PyDoc_STRVAR(
    prepare_doc,
    "prepare($self, device=None)\n--\n\n"
    "Compiles and loads every kernel of the source for one device; returns the "
    "compiler's log, '' if it wrote none.\n\n"
    "device: 'cpu', 'cuda', 'cuda:1', (1, 0) or (2, N) as in DLPack, or a torch.device; "
    "None is the first GPU, or the CPU where there is none. Without it a kernel is "
    "compiled by its first launch. May take seconds, during which other Python threads "
    "run; may be called from any thread, and while a stream is being captured. Raises "
    "CompileError, UnavailableError, DeviceError.");
static PyObject* module_prepare(PyObject* object, PyObject* args, PyObject* kwargs) {
  onspy_module* self = (onspy_module*)object;
  static char* keywords[] = {"device", NULL};
  PyObject* place = Py_None;
  DLDevice device;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:prepare", keywords, &place) ||
      !onspy_device_parse(self->state, place, &device)) {
    return NULL;
  }
  ons_error error = ONS_ERROR_INIT;
  ons_blob* log = NULL;
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_module_prepare(self->handle, device, &log, &error);
  Py_END_ALLOW_THREADS;
  PyObject* result;
  if (status != ONS_STATUS_OK) {
    result = onspy_raise_compile(self, &error, log);
  } else if (!onspy_warn_compile(self, log)) {
    result = NULL;
  } else if (log == NULL) {
    result = PyUnicode_FromString("");
  } else {
    result = PyUnicode_DecodeUTF8(ons_blob_data(log),
                                  (Py_ssize_t)ons_blob_size_bytes(log), "replace");
  }
  ons_blob_release(log);
  return result;
}

PyDoc_STRVAR(
    generic_doc,
    "generic($self, name, /, **parameters)\n--\n\n"
    "A template kernel whose parameters are found from the arguments of each call.\n\n"
    "name: 'scale<T, N>', the parameters as the source calls them, or values; 'scale' "
    "stands for all that are deduced. From a parameter declared `const T*` or "
    "`ons::view<T, N, Index>` T is deduced from the array's dtype, N from its number of "
    "dimensions, and Index is int where all offsets fit 32 bits, else long long; in "
    "`ons::ptrs<T, N>` N is the length of the list. Keywords say the others: an int, a "
    "bool, a float, C++ text ('float'), or the argument that decides: T='x', N='x.ndim', "
    "N='x.shape[1]'. Types are spelt float, signed char, long long, __half, "
    "__nv_bfloat16, __nv_fp8_e4m3, float2 for complex64, and so on; the source includes "
    "the headers they need. Each instance is compiled once, when it is first launched. "
    "Raises ArgumentValueError where nothing tells a parameter.");

/* ---- the type --------------------------------------------------------------------- */

static PyObject* module_repr(PyObject* object) {
  onspy_module* self = (onspy_module*)object;
  PyObject* names = PyList_New(0);
  PyObject* comma = PyUnicode_FromString(", ");
  PyObject *joined = NULL, *repr = NULL;
  const char* name;
  for (size_t i = 0; names != NULL; ++i) {
    name = ons_module_kernel_name(self->handle, i);
    if (name == NULL) break;
    PyObject* text = PyUnicode_FromString(name);
    if (text == NULL || PyList_Append(names, text) < 0) Py_CLEAR(names);
    Py_XDECREF(text);
  }
  if (names != NULL && comma != NULL) joined = PyUnicode_Join(comma, names);
  if (joined != NULL)
    repr = PyUnicode_FromFormat("<onstream.Module %R: %U>", self->name, joined);
  Py_XDECREF(joined);
  Py_XDECREF(comma);
  Py_XDECREF(names);
  return repr;
}

static int module_traverse(PyObject* object, visitproc visit, void* arg) {
  onspy_module* self = (onspy_module*)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->name);
  Py_VISIT(self->source);
  Py_VISIT(self->options);
  Py_VISIT(self->headers);
  Py_VISIT(self->kernels);
  Py_VISIT(self->attributes);
  return 0;
}

static int module_clear(PyObject* object) {
  onspy_module* self = (onspy_module*)object;
  /* Not to NULL: a finalizer in the same cycle may still look for kernels. */
  if (self->kernels != NULL) PyDict_Clear(self->kernels);
  if (self->attributes != NULL) PyDict_Clear(self->attributes);
  return 0;
}

static void module_dealloc(PyObject* object) {
  onspy_module* self = (onspy_module*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->name);
  Py_XDECREF(self->source);
  Py_XDECREF(self->options);
  Py_XDECREF(self->headers);
  Py_XDECREF(self->warned);
  Py_XDECREF(self->bundle);
  Py_XDECREF(self->kernels);
  Py_XDECREF(self->attributes);
  ons_module_release(self->handle);
  type->tp_free(object);
  Py_DECREF(type);
}

static PyMethodDef module_methods[] = {
    {"prepare", (PyCFunction)(void (*)(void))module_prepare, METH_VARARGS | METH_KEYWORDS,
     prepare_doc},
    {"global_", (PyCFunction)(void (*)(void))onspy_module_global,
     METH_VARARGS | METH_KEYWORDS,
     "global_($self, name, device=None, stream=None)\n--\n\n"
     "A __device__ or __constant__ variable of the source ('table', 'ns::table') as a "
     "Tensor on a stream: stream=, else that of use_stream, else the default stream. Its "
     "shape and dtype are those of the variable's type; __constant__ and const variables "
     "are read-only. Kernels that use the variable by its name are not ordered with the "
     "Tensor unless they run on its stream. Each device has a variable of its own, and "
     "so "
     "has each template instance; this one is what plain kernels use. Raises "
     "NotFoundError, with the variables there are; else as prepare, and device as "
     "there."},
    {"set_global", (PyCFunction)(void (*)(void))onspy_module_set_global,
     METH_VARARGS | METH_KEYWORDS,
     "set_global($self, name, data, device=None, stream=None)\n--\n\n"
     "Fills a variable from host memory: the way to set a __constant__ one. data: a "
     "NumPy "
     "array or whatever exports a contiguous buffer, of the variable's dtype and size, "
     "or "
     "its bytes. Comes after what the stream holds (stream and device as for global_); "
     "data may be reused at once. May block; refused while the stream is captured."},
    {"bundle", (PyCFunction)(void (*)(void))module_bundle, METH_VARARGS | METH_KEYWORDS,
     bundle_doc},
    {"_bundle_log", (PyCFunction)(void (*)(void))module_bundle_log,
     METH_VARARGS | METH_KEYWORDS, "As bundle; returns what the compilers wrote."},
    {"generic", (PyCFunction)(void (*)(void))onspy_generic_new,
     METH_VARARGS | METH_KEYWORDS, generic_doc},
    {"__dir__", module_dir, METH_NOARGS, "The attributes and the kernels."},
    {NULL, NULL, 0, NULL}};

#define FIELD(name) ((Py_ssize_t)offsetof(onspy_module, name))
static PyMemberDef module_members[] = {
    {"name", T_OBJECT_EX, FIELD(name), READONLY, "The file name shown in diagnostics."},
    {"source", T_OBJECT, FIELD(source), READONLY, "The source; None if it is a file."},
    {"__dictoffset__", T_PYSSIZET, FIELD(attributes), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

PyDoc_STRVAR(
    module_doc,
    "Module(source, *, options=(), headers={}, name=None, check=False, isolate=False, "
    "timeout=None)\n--\n\n"
    "CUDA C++ source, compiled for a device at the first launch there.\n\n"
    "source: str; options: compiler options (-DNAME[=VALUE], -UNAME, -IDIR, -std=...); "
    "headers: names to texts that #include finds before any file; name: the file name "
    "shown in diagnostics; check: for finding errors, at a cost for each launch: indices "
    "of ons::view and ons::ptrs are checked in the kernel, and arrays that share memory "
    "are refused where the kernel writes and has declared one __restrict__; isolate: a "
    "compiler that is a library (NVRTC) runs in a process of its own, so that its crash "
    "is "
    "a CompileError; timeout: seconds after which a compile is ended, in such a process."
    "\n\n"
    "A kernel is an attribute, mod.axpy, or an item by its C++ name, "
    "mod['scale<float, 4>']; kernels whose name is that of an attribute of Module are "
    "found as items. dir() lists what the source declares. A kernel keeps its module "
    "alive. Nothing is compiled and no driver is touched here. Raises NotFoundError "
    "(an AttributeError and a KeyError) for unknown kernels.");

static PyType_Slot module_slots[] = {{Py_tp_doc, (void*)module_doc},
                                     {Py_tp_new, ONSPY_FUNCTION(module_new)},
                                     {Py_tp_repr, ONSPY_FUNCTION(module_repr)},
                                     {Py_tp_getattro, ONSPY_FUNCTION(module_getattro)},
                                     {Py_tp_setattro, ONSPY_FUNCTION(module_setattro)},
                                     {Py_tp_traverse, ONSPY_FUNCTION(module_traverse)},
                                     {Py_tp_clear, ONSPY_FUNCTION(module_clear)},
                                     {Py_tp_dealloc, ONSPY_FUNCTION(module_dealloc)},
                                     {Py_tp_methods, ONSPY_FUNCTION(module_methods)},
                                     {Py_tp_members, ONSPY_FUNCTION(module_members)},
                                     {Py_mp_subscript, ONSPY_FUNCTION(module_subscript)},
                                     {0, NULL}};

PyType_Spec onspy_module_spec = {
    .name = "onstream.Module",
    .basicsize = sizeof(onspy_module),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = module_slots,
};
