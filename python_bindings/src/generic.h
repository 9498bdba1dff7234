/* onstream.GenericKernel, for the files that ask for one and call it. */
#ifndef ONSPY_GENERIC_H_
#define ONSPY_GENERIC_H_

#include "binding.h"

enum { ONSPY_TEMPLATE_PARAMETERS = 16 };

/* Where the value of a template parameter comes from. */
typedef enum onspy_rule_kind {
  ONSPY_RULE_DTYPE = ONS_DEDUCTION_DTYPE,
  ONSPY_RULE_RANK = ONS_DEDUCTION_RANK,
  ONSPY_RULE_INDEX = ONS_DEDUCTION_INDEX,
  ONSPY_RULE_COUNT = ONS_DEDUCTION_COUNT,
  ONSPY_RULE_SHAPE
} onspy_rule_kind;

typedef struct onspy_rule {
  onspy_rule_kind kind;
  uint16_t argument;
  uint16_t dimension; /* of a shape */
} onspy_rule;

/* A call reads the first fields of each of these three: they are in few cache lines. */
typedef struct onspy_template_parameter {
  onspy_rule first; /* a copy of rules[0] */
  uint32_t rule_count;
  onspy_rule* rules;
  PyObject* text;  /* as in the name: "T"; owned */
  PyObject* fixed; /* C++, where no argument decides: "4"; owned, or NULL: the rules do */
} onspy_template_parameter;

/* An instance and what it is for: one value for each template parameter. */
typedef struct onspy_instance {
  onspy_kernel* kernel;
  int64_t key[ONSPY_TEMPLATE_PARAMETERS];
} onspy_instance;

typedef struct onspy_generic {
  PyObject_HEAD onspy_instance* instances;
  uint32_t instance_count;
  uint32_t last; /* the instance used last */
  size_t parameter_count;
  onspy_template_parameter parameters[ONSPY_TEMPLATE_PARAMETERS];
  onspy_module* module;
  onspy_kernel* pattern; /* "scale<T, N>": never compiled, for messages */
  PyObject* base;        /* "scale" */
} onspy_generic;

/* Module.generic. */
PyObject* onspy_generic_new(PyObject* module, PyObject* args, PyObject* kwargs);
/* Reads the name and the keywords into |generic|. */
bool onspy_generic_parse(onspy_generic* generic, PyObject* name, PyObject* kwargs);
PyObject* onspy_generic_call(PyObject* launcher, PyObject* const* objects, size_t nargsf,
                             PyObject* kwnames);
/* Puts the instance for the arguments into call->kernel. */
bool onspy_generic_choose(onspy_call* call);
/* As onspy_kernel_call_out, of the instance for the arguments. Without |launch| nothing
 * is called and the kernel is returned. */
PyObject* onspy_generic_call_out(onspy_generic* generic, const ons_launch* launch,
                                 PyObject* const* objects, size_t count, PyObject* out);

#endif /* ONSPY_GENERIC_H_ */
