/* The exception tree, and how the library's errors become exceptions. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

/* ---- the tree --------------------------------------------------------------------- */

static PyObject* error_class(PyObject* module, const char* name, PyObject* bases,
                             const char* doc, PyObject* dict) {
  char qualified[64];
  PyOS_snprintf(qualified, sizeof qualified, "onstream.%s", name);
  PyObject* error = PyErr_NewExceptionWithDoc(qualified, doc, bases, dict);
  if (error != NULL && PyModule_AddObjectRef(module, name, error) < 0) Py_CLEAR(error);
  return error;
}

/* A subclass of one of ours and of up to two built-in classes. */
static PyObject* mixed_class(PyObject* module, const char* name, PyObject* ours,
                             PyObject* builtin, PyObject* builtin2, const char* doc,
                             PyObject* dict) {
  PyObject* bases = builtin2 != NULL ? PyTuple_Pack(3, ours, builtin, builtin2)
                                     : PyTuple_Pack(2, ours, builtin);
  PyObject* error = bases != NULL ? error_class(module, name, bases, doc, dict) : NULL;
  Py_XDECREF(bases);
  return error;
}

static bool create_plain(onspy_state* state, PyObject* module) {
  state->error_base = error_class(
      module, "Error", PyExc_Exception,
      "Base class of everything that onstream raises on its own account.", NULL);
  if (state->error_base == NULL) return false;
  PyObject* base = state->error_base;
  state->error_argument = error_class(
      module, "ArgumentError", base,
      "A kernel argument that the kernel cannot take. Nothing was launched. Raised "
      "as ArgumentTypeError or ArgumentValueError.",
      NULL);
  state->error_order = error_class(
      module, "OrderError", base,
      "The streams of the arguments cannot be put in order, or the call is not possible "
      "while "
      "a stream is being captured. Nothing was launched and the capture is alive.",
      NULL);
  state->error_unavailable = error_class(module, "UnavailableError", base,
                                         "A driver, compiler or device is not on this "
                                         "machine; the message says what was tried.",
                                         NULL);
  return state->error_argument != NULL && state->error_order != NULL &&
         state->error_unavailable != NULL;
}

static bool create_with_attributes(onspy_state* state, PyObject* module) {
  PyObject* dict =
      Py_BuildValue("{s:s,s:s,s:O}", "log", "", "source", "", "line", Py_None);
  if (dict == NULL) return false;
  state->error_compile = error_class(
      module, "CompileError", state->error_base,
      "The compiler rejected the source.\n\nlog: what the compiler wrote; source: the "
      "source it "
      "was given ('' for a file); line: the line of the first error in it, or None.",
      dict);
  Py_DECREF(dict);
  state->error_compile_warning =
      error_class(module, "CompileWarning", PyExc_UserWarning,
                  "What a compiler has written of a source that it accepted.", NULL);
  if (state->error_compile_warning == NULL) return false;
  dict = Py_BuildValue("{s:i,s:O}", "code", 0, "name", Py_None);
  if (dict == NULL) return false;
  state->error_device = error_class(
      module, "DeviceError", state->error_base,
      "A driver call failed.\n\ncode: the driver's error code; name: the call.", dict);
  Py_DECREF(dict);
  return state->error_compile != NULL && state->error_device != NULL;
}

static bool create_mixed(onspy_state* state, PyObject* module) {
  state->error_argument_type = mixed_class(
      module, "ArgumentTypeError", state->error_argument, PyExc_TypeError, NULL,
      "An argument of the wrong type: dtype, device, a float for an int.", NULL);
  state->error_argument_value = mixed_class(
      module, "ArgumentValueError", state->error_argument, PyExc_ValueError, NULL,
      "An argument of the right type with an unusable value: range, layout.", NULL);
  state->error_unsupported = mixed_class(
      module, "UnsupportedError", state->error_base, PyExc_NotImplementedError, NULL,
      "Understood, but not something that this backend, driver or version can do: a "
      "barrier on the CPU, a reference as a kernel's parameter.",
      NULL);
  /* KeyError would print its message in quotes. */
  PyObject* str = PyObject_GetAttrString(PyExc_Exception, "__str__");
  PyObject* dict = str != NULL ? Py_BuildValue("{s:N}", "__str__", str) : NULL;
  if (dict == NULL) return false;
  state->error_not_found = mixed_class(
      module, "NotFoundError", state->error_base, PyExc_AttributeError, PyExc_KeyError,
      "No kernel or file of that name; the message lists the kernels there are.", dict);
  Py_DECREF(dict);
  return state->error_argument_type != NULL && state->error_argument_value != NULL &&
         state->error_unsupported != NULL && state->error_not_found != NULL;
}

bool onspy_errors_create(onspy_state* state, PyObject* module) {
  return create_plain(state, module) && create_with_attributes(state, module) &&
         create_mixed(state, module);
}

/* ---- raising ---------------------------------------------------------------------- */

static PyObject* class_of(const onspy_state* state, ons_status status) {
  switch (status) {
    case ONS_STATUS_ARGUMENT_TYPE:
      return state->error_argument_type;
    case ONS_STATUS_ARGUMENT_VALUE:
    case ONS_STATUS_INVALID_ARGUMENT:
      return state->error_argument_value;
    case ONS_STATUS_ORDER:
    case ONS_STATUS_CAPTURE:
      return state->error_order;
    case ONS_STATUS_UNAVAILABLE:
      return state->error_unavailable;
    case ONS_STATUS_UNSUPPORTED:
      return state->error_unsupported;
    case ONS_STATUS_NOT_FOUND:
      return state->error_not_found;
    case ONS_STATUS_COMPILE_FAILED:
      return state->error_compile;
    case ONS_STATUS_DEVICE:
      return state->error_device;
    case ONS_STATUS_OUT_OF_MEMORY:
      return PyExc_MemoryError;
    default:
      return state->error_base;
  }
}

static PyObject* message_of(const ons_error* error) {
  const char* text =
      error->message[0] != '\0' ? error->message : ons_status_text(error->code);
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* The exception for |error|, without raising it. */
static PyObject* make(const onspy_state* state, const ons_error* error) {
  PyObject* message = message_of(error);
  if (message == NULL) return NULL;
  PyObject* exception = PyObject_CallOneArg(class_of(state, error->code), message);
  Py_DECREF(message);
  return exception;
}

static void raise_and_drop(PyObject* exception) {
  PyErr_SetObject((PyObject*)Py_TYPE(exception), exception);
  Py_DECREF(exception);
}

static bool set_attribute(PyObject* exception, PyObject* name, PyObject* value) {
  if (value == NULL) return false;
  int rc = PyObject_SetAttr(exception, name, value);
  Py_DECREF(value);
  return rc == 0;
}

void* onspy_raise(onspy_state* state, const ons_error* error) {
  /* A callback of the library (the locator) may have left its own, better exception. */
  if (PyErr_Occurred()) return NULL;
  PyObject* exception = make(state, error);
  if (exception == NULL) return NULL;
  if (error->code == ONS_STATUS_DEVICE) {
    const char* call = error->native_call;
    if (!set_attribute(exception, state->str_code, PyLong_FromLong(error->native_code)) ||
        (call != NULL &&
         !set_attribute(exception, state->str_name, PyUnicode_FromString(call)))) {
      Py_DECREF(exception);
      return NULL;
    }
  }
  raise_and_drop(exception);
  return NULL;
}

/* The line of the first error that |log| reports in the file |name|: "name(7): error"
 * from NVRTC, "name:7:3: error" from host compilers; 0 if there is none. |out_column|
 * from 1; 0 where it is not told. */
static long first_error_line(const char* log, const char* name, long* out_column) {
  *out_column = 0;
  size_t name_bytes = strlen(name);
  while (log != NULL && *log != '\0') {
    const char* end = strchr(log, '\n');
    const char* error = strstr(log, "error");
    const char* at = strstr(log, name);
    if (error == NULL || at == NULL) return 0;
    bool this_line = (end == NULL || error < end) && at < error;
    char mark = at[name_bytes];
    if (this_line && (mark == '(' || mark == ':') &&
        isdigit((unsigned char)at[name_bytes + 1])) {
      char* rest;
      long line_number = strtol(at + name_bytes + 1, &rest, 10);
      if (*rest == ':' && isdigit((unsigned char)rest[1]))
        *out_column = strtol(rest + 1, NULL, 10);
      return line_number;
    }
    log = end != NULL ? end + 1 : NULL;
  }
  return 0;
}

static const char* line_end(const char* line) {
  const char* end = strchr(line, '\n');
  return end != NULL ? end : line + strlen(line);
}

/* "       ^~~", after a column of numbers or bars where the compiler draws one. */
static bool is_caret_line(const char* line, const char* end) {
  const size_t length = (size_t)(end - line);
  return strspn(line, " \t|~^0123456789") >= length && memchr(line, '^', length) != NULL;
}

/* The source line and the caret that a compiler writes below the first error; "" where
 * it writes none. */
static PyObject* first_caret(const char* log) {
  const char* error = strstr(log, "error");
  for (const char* line = error; line != NULL && *line != '\0';) {
    const char* shown = line_end(line);
    if (*shown == '\0') break;
    ++shown;
    const char* shown_end = line_end(shown);
    const char* caret = *shown_end != '\0' ? shown_end + 1 : shown_end;
    const char* end = line_end(caret);
    if (is_caret_line(caret, end)) {
      return PyUnicode_DecodeUTF8(shown - 1, (Py_ssize_t)(end - shown + 1), "replace");
    }
    line = shown;
  }
  return NULL;
}

/* The same from the source: GCC finds no line of a file that is in memory. */
static PyObject* own_caret(const char* source, long line, long column) {
  for (; line > 1 && source != NULL; --line) {
    source = strchr(source, '\n');
    if (source != NULL) ++source;
  }
  char text[512];
  if (source == NULL || line < 1 || column < 1 || column > line_end(source) - source ||
      line_end(source) - source + column + 3 > (long)sizeof text) {
    return PyUnicode_FromString("");
  }
  int count = snprintf(text, sizeof text, "\n%.*s\n%*s", (int)(line_end(source) - source),
                       source, (int)column, "^");
  return PyUnicode_DecodeUTF8(text, count, "replace");
}

static bool fill_compile_error(PyObject* exception, onspy_module* module, const char* log,
                               size_t log_bytes) {
  onspy_state* state = module->state;
  const char* name = PyUnicode_AsUTF8(module->name);
  if (name == NULL) return false;
  long column;
  long line = first_error_line(log, name, &column);
  PyObject* source =
      module->source != Py_None ? Py_NewRef(module->source) : PyUnicode_FromString("");
  return set_attribute(exception, state->str_source, source) &&
         set_attribute(exception, state->str_log,
                       PyUnicode_DecodeUTF8(log, (Py_ssize_t)log_bytes, "replace")) &&
         set_attribute(exception, state->str_line,
                       line > 0 ? PyLong_FromLong(line) : Py_NewRef(Py_None));
}

void* onspy_raise_compile(onspy_module* module, const ons_error* error,
                          const ons_blob* log) {
  if (error->code != ONS_STATUS_COMPILE_FAILED) return onspy_raise(module->state, error);
  if (PyErr_Occurred()) return NULL;
  const char* text = log != NULL ? (const char*)ons_blob_data(log) : "";
  size_t text_bytes = log != NULL ? ons_blob_size_bytes(log) : 0;
  PyObject* message = message_of(error);
  const char* name = PyUnicode_AsUTF8(module->name);
  PyObject* caret = message != NULL && name != NULL ? first_caret(text) : NULL;
  if (caret == NULL && name != NULL && !PyErr_Occurred()) {
    long column;
    long line = first_error_line(text, name, &column);
    caret = own_caret(ons_module_source(module->handle), line, column);
  }
  PyObject* whole =
      message != NULL && caret != NULL ? PyUnicode_Concat(message, caret) : NULL;
  PyObject* exception =
      whole != NULL ? PyObject_CallOneArg(module->state->error_compile, whole) : NULL;
  Py_XDECREF(message);
  Py_XDECREF(caret);
  Py_XDECREF(whole);
  if (exception == NULL) return NULL;
  if (!fill_compile_error(exception, module, text, text_bytes)) {
    Py_DECREF(exception);
    return NULL;
  }
  raise_and_drop(exception);
  return NULL;
}

bool onspy_warn_compile(onspy_module* module, const ons_blob* log) {
  const char* text = log != NULL ? ons_blob_data(log) : "";
  if (strstr(text, "warning") == NULL) return true;
  PyObject* message =
      PyUnicode_DecodeUTF8(text, (Py_ssize_t)ons_blob_size_bytes(log), "replace");
  if (message == NULL) return false;
  const int is_known = PySet_Contains(module->warned, message);
  bool good = is_known >= 0;
  if (is_known == 0) {
    good = PySet_Add(module->warned, message) == 0 &&
           PyErr_WarnFormat(module->state->error_compile_warning, 1, "%U", message) == 0;
  }
  Py_DECREF(message);
  return good;
}

/* "kernel 'scale', argument 2 ('x'): declared float*, got ", as far as it is known: the
 * form of the library's own messages. */
static PyObject* argument_prefix(const onspy_kernel* kernel, size_t index) {
  if (kernel->handle == NULL) return PyUnicode_FromString("from_dlpack: got ");
  const char* kernel_name = ons_kernel_name(kernel->handle);
  if (index >= kernel->slot_count) {
    return PyUnicode_FromFormat("kernel '%s', argument %zu: got ", kernel_name,
                                index + 1);
  }
  const ons_parameter* parameter = &kernel->parameters[index];
  const char* name = parameter->name;
  char item_text[48] = "";
  if (kernel->expansion != NULL) {
    size_t item;
    onspy_expansion_locate(kernel->expansion, index, &index, &item);
    if (item != SIZE_MAX) snprintf(item_text, sizeof item_text, ", item %zu", item + 1);
  }
  return PyUnicode_FromFormat("kernel '%s', argument %zu%s%s%s%s: declared %s, got ",
                              kernel_name, index + 1, name != NULL ? " ('" : "",
                              name != NULL ? name : "", name != NULL ? "')" : "",
                              item_text, parameter->type);
}

void* onspy_raise_argument(onspy_kernel* kernel, size_t index, PyObject* kind,
                           const char* format, ...) {
  PyObject *cause_type, *cause, *traceback;
  PyErr_Fetch(&cause_type, &cause, &traceback);
  if (cause_type != NULL) PyErr_NormalizeException(&cause_type, &cause, &traceback);
  if (cause != NULL && traceback != NULL) PyException_SetTraceback(cause, traceback);
  Py_XDECREF(cause_type);
  Py_XDECREF(traceback);

  PyObject* prefix = argument_prefix(kernel, index);
  va_list list;
  va_start(list, format);
  PyObject* detail = PyUnicode_FromFormatV(format, list);
  va_end(list);
  PyObject* message =
      prefix != NULL && detail != NULL ? PyUnicode_Concat(prefix, detail) : NULL;
  Py_XDECREF(prefix);
  Py_XDECREF(detail);
  PyObject* exception = message != NULL ? PyObject_CallOneArg(kind, message) : NULL;
  Py_XDECREF(message);
  if (exception == NULL) {
    Py_XDECREF(cause);
    return NULL;
  }
  if (cause != NULL) PyException_SetCause(exception, cause);
  raise_and_drop(exception);
  return NULL;
}

/* The first line of an exception's text (new reference); never NULL. torch's has a C++
 * traceback below it. */
static PyObject* first_line(PyObject* exception) {
  PyObject* text = PyObject_Str(exception);
  const char* utf8 = text != NULL ? PyUnicode_AsUTF8(text) : NULL;
  size_t bytes = utf8 != NULL ? strcspn(utf8, "\n") : 0;
  if (bytes > 0 && utf8[bytes - 1] == '.') --bytes; /* more follows it */
  PyObject* line =
      utf8 != NULL ? PyUnicode_FromStringAndSize(utf8, (Py_ssize_t)bytes) : NULL;
  Py_XDECREF(text);
  if (line == NULL) {
    PyErr_Clear();
    line = Py_NewRef(Py_None);
  }
  return line;
}

/* What to do with an object that its library does not hand over (new reference); never
 * NULL. */
static PyObject* advice_on(onspy_state* state, PyObject* object) {
  PyObject* helpers = onspy_helpers(state);
  PyObject* advice =
      helpers != NULL ? PyObject_CallMethod(helpers, "advice_on", "O", object) : NULL;
  if (advice == NULL) {
    PyErr_Clear();
    advice = PyUnicode_FromString("pass an array that its library hands over");
  }
  return advice;
}

bool onspy_raise_from_producer(onspy_kernel* kernel, size_t index, PyObject* object,
                               const char* what) {
  PyObject *type, *value, *traceback;
  if (!PyErr_Occurred())
    PyErr_SetString(PyExc_RuntimeError, "it failed without an exception");
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject* line = first_line(value);
  const char* name = Py_TYPE(value)->tp_name;
  PyObject* advice = advice_on(kernel->state, object);
  PyErr_Restore(type, value, traceback);
  const char* object_name =
      PyType_Check(object) ? ((PyTypeObject*)object)->tp_name : Py_TYPE(object)->tp_name;
  onspy_raise_argument(kernel, index, kernel->state->error_argument_type,
                       "a %.200s whose %s raised %.100s: %S; %S", object_name, what, name,
                       line, advice);
  Py_XDECREF(advice);
  Py_DECREF(line);
  return false;
}

void* onspy_raise_failed(onspy_kernel* kernel, size_t index, PyObject* kind,
                         const char* what) {
  PyObject *type, *value, *traceback;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject* line = first_line(value);
  const char* name = Py_TYPE(value)->tp_name;
  PyErr_Restore(type, value, traceback);
  onspy_raise_argument(kernel, index, kind, "%s failed with %.100s: %S", what, name,
                       line);
  Py_DECREF(line);
  return NULL;
}
