/* How a generic kernel is asked for: "scale<T, N>", and what its parameters are tied to.
 *
 * A parameter that is written as in the source's template is deduced from the kernel's
 * declaration; keywords tie it to something else or say its value. */
#include <ctype.h>
#include <string.h>

#include "generic.h"

typedef struct reader {
  onspy_generic* generic;
  ons_module* module;
  const char* base;
  PyObject* kwargs; /* or NULL */
  Py_ssize_t kwargs_used;
} reader;

static bool refuse(const reader* self, const char* format, PyObject* what) {
  PyObject* why = PyUnicode_FromFormat(format, what);
  if (why != NULL) {
    PyErr_Format(self->generic->module->state->error_argument_value,
                 "generic kernel '%s': %U", self->base, why);
    Py_DECREF(why);
  }
  return false;
}

static bool add_rule(onspy_template_parameter* parameter, onspy_rule_kind kind,
                     size_t argument, size_t dimension) {
  size_t bytes = (parameter->rule_count + 1) * sizeof(onspy_rule);
  onspy_rule* rules = PyMem_Realloc(parameter->rules, bytes);
  if (rules == NULL) return PyErr_NoMemory() != NULL;
  parameter->rules = rules;
  rules[parameter->rule_count++] = (onspy_rule){
      .kind = kind, .argument = (uint16_t)argument, .dimension = (uint16_t)dimension};
  parameter->first = rules[0];
  return true;
}

/* ---- keywords --------------------------------------------------------------------- */

/* The index of the kernel's parameter of that name, or -1. */
static Py_ssize_t find_argument(const reader* self, const char* name, size_t length) {
  const char* known;
  for (size_t i = 0; i < 256; ++i) {
    known = ons_module_parameter_name(self->module, self->base, i);
    if (known != NULL && strlen(known) == length && memcmp(known, name, length) == 0) {
      return (Py_ssize_t)i;
    }
  }
  return -1;
}

/* "x", "x.dtype", "x.ndim", "x.shape[1]"; other text is C++. */
static bool read_tie(reader* self, onspy_template_parameter* parameter, PyObject* value) {
  const char* text = PyUnicode_AsUTF8(value);
  if (text == NULL) return false;
  size_t length = strcspn(text, ".");
  Py_ssize_t argument = find_argument(self, text, length);
  const char* what = text + length;
  unsigned dimension;
  int end = 0;
  if (argument < 0) {
    parameter->fixed = Py_NewRef(value);
    return true;
  }
  if (*what == '\0' || strcmp(what, ".dtype") == 0) {
    return add_rule(parameter, ONSPY_RULE_DTYPE, (size_t)argument, 0);
  }
  if (strcmp(what, ".ndim") == 0) {
    return add_rule(parameter, ONSPY_RULE_RANK, (size_t)argument, 0);
  }
  if (sscanf(what, ".shape[%u]%n", &dimension, &end) == 1 && end > 0 &&
      what[end] == '\0' && dimension < 64) {
    return add_rule(parameter, ONSPY_RULE_SHAPE, (size_t)argument, dimension);
  }
  return refuse(self,
                "%R is not tied to an argument: write x, x.dtype, x.ndim or "
                "x.shape[0]",
                value);
}

static bool read_value(reader* self, onspy_template_parameter* parameter,
                       PyObject* value) {
  if (PyUnicode_Check(value)) return read_tie(self, parameter, value);
  if (PyBool_Check(value)) {
    parameter->fixed = PyUnicode_FromString(value == Py_True ? "true" : "false");
  } else if (PyIndex_Check(value)) {
    PyObject* number = PyNumber_Index(value);
    parameter->fixed = number != NULL ? PyObject_Str(number) : NULL;
    Py_XDECREF(number);
  } else if (PyFloat_Check(value) && Py_IS_FINITE(PyFloat_AS_DOUBLE(value))) {
    parameter->fixed = PyObject_Repr(value);
  } else {
    return refuse(self,
                  "%R is no value of a template parameter: pass an int, a bool, a "
                  "float, C++ text or what it is tied to",
                  value);
  }
  return parameter->fixed != NULL;
}

/* ---- the source's declaration ----------------------------------------------------- */

static bool deduce(reader* self, onspy_template_parameter* parameter, size_t position) {
  ons_deduction deduction = {.struct_size = sizeof deduction};
  for (size_t i = 0;
       ons_module_template_deduction(self->module, self->base, i, &deduction); ++i) {
    if (deduction.template_parameter != position) continue;
    if (!add_rule(parameter, (onspy_rule_kind)deduction.kind, deduction.argument, 0)) {
      return false;
    }
  }
  return true;
}

/* Is the text how the source calls its template's parameter there? */
static bool is_declared(const reader* self, size_t position, PyObject* text) {
  ons_template_parameter declared = {.struct_size = sizeof declared};
  return ons_module_template_parameter(self->module, self->base, position, &declared) &&
         declared.name != NULL &&
         PyUnicode_CompareWithASCIIString(text, declared.name) == 0;
}

/* Takes over |text|. */
static bool add_parameter(reader* self, PyObject* text) {
  size_t position = self->generic->parameter_count;
  if (position == ONSPY_TEMPLATE_PARAMETERS) {
    Py_DECREF(text);
    return refuse(self, "more than 16 template parameters%.0R", Py_None);
  }
  onspy_template_parameter* parameter = &self->generic->parameters[position];
  ++self->generic->parameter_count;
  parameter->text = text;
  PyObject* value =
      self->kwargs != NULL ? PyDict_GetItemWithError(self->kwargs, text) : NULL;
  if (value != NULL) {
    ++self->kwargs_used;
    return read_value(self, parameter, value);
  }
  if (PyErr_Occurred()) return false;
  if (!is_declared(self, position, text)) {
    parameter->fixed = Py_NewRef(text); /* "float" */
    return true;
  }
  if (!deduce(self, parameter, position)) return false;
  if (parameter->rule_count > 0) return true;
  return refuse(self,
                "the kernel's parameters do not tell %R: give it, as a value or as "
                "what it is tied to (\"x\", \"x.ndim\", \"x.shape[0]\")",
                text);
}

/* All that the source declares, up to the first that has a default and is not told. */
static bool add_declared(reader* self) {
  ons_template_parameter declared = {.struct_size = sizeof declared};
  for (size_t i = 0;
       ons_module_template_parameter(self->module, self->base, i, &declared); ++i) {
    PyObject* text = PyUnicode_FromString(declared.name != NULL ? declared.name : "?");
    if (text == NULL) return false;
    int given = self->kwargs != NULL ? PyDict_Contains(self->kwargs, text) : 0;
    onspy_template_parameter probe = {.rules = NULL};
    bool probed = given >= 0 && deduce(self, &probe, i);
    PyMem_Free(probe.rules);
    if (!probed) {
      Py_DECREF(text);
      return false;
    }
    if (!given && probe.rule_count == 0 && declared.has_default) {
      Py_DECREF(text);
      return true;
    }
    if (!add_parameter(self, text)) return false;
  }
  return true;
}

/* ---- the text --------------------------------------------------------------------- */

static PyObject* stripped(const char* begin, const char* end) {
  while (begin < end && isspace((unsigned char)*begin)) ++begin;
  while (end > begin && isspace((unsigned char)end[-1])) --end;
  return PyUnicode_FromStringAndSize(begin, end - begin);
}

/* "T, vec<int, 2>, 4>" up to its last '>'. */
static bool add_written(reader* self, const char* at, const char* end) {
  int depth = 0;
  const char* begin = at;
  for (; at <= end; ++at) {
    if (at == end || (*at == ',' && depth == 0)) {
      PyObject* text = stripped(begin, at);
      if (text == NULL || !add_parameter(self, text)) return false;
      begin = at + 1;
      continue;
    }
    depth += *at == '<' || *at == '(';
    depth -= *at == '>' || *at == ')';
  }
  return true;
}

bool onspy_generic_parse(onspy_generic* generic, PyObject* name, PyObject* kwargs) {
  const char* text = onspy_text_of(name, "a kernel's name");
  if (text == NULL) return false;
  const char* open = strchr(text, '<');
  const char* close = strrchr(text, '>');
  generic->base = stripped(text, open != NULL ? open : text + strlen(text));
  if (generic->base == NULL) return false;
  reader self = {.generic = generic,
                 .module = generic->module->handle,
                 .base = PyUnicode_AsUTF8(generic->base),
                 .kwargs = kwargs};
  if (self.base == NULL) return false;
  if (open != NULL && (close == NULL || close < open)) {
    return refuse(&self, "%R has no '>'", name);
  }
  bool added = open != NULL ? add_written(&self, open + 1, close) : add_declared(&self);
  if (!added) return false;
  if (generic->parameter_count == 0) {
    return refuse(&self,
                  "it is no template, or none that was found in the source, or "
                  "overloaded: %R",
                  name);
  }
  if (kwargs != NULL && self.kwargs_used != PyDict_GET_SIZE(kwargs)) {
    return refuse(&self, "a keyword is none of its template parameters: %R", kwargs);
  }
  return true;
}
