/* onstream.GenericKernel: a template kernel whose instance the arguments choose.
 *
 * A call gathers its arguments as for any kernel, and compares them with what the
 * instance that was used last is for. */
#include <stdio.h>
#include <string.h>

#include "gather.h"
#include "generic.h"

/* ---- values ----------------------------------------------------------------------- */

static inline int64_t dtype_value(DLDataType dtype) {
  uint32_t word;
  memcpy(&word, &dtype, sizeof word);
  return word;
}

/* Does every offset that a kernel can compute fit 32 bits? */
static inline bool fits_index32(const DLTensor* tensor) {
  uint64_t reach = 0, dense = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    uint64_t size = (uint64_t)tensor->shape[i];
    if (size == 0) return dense <= INT32_MAX;
    int64_t stride = tensor->strides != NULL ? tensor->strides[i] : (int64_t)dense;
    uint64_t step = stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
    if (size == 1) step = 0;
    if (size > INT32_MAX || step > INT32_MAX) return false;
    reach += (size - 1) * step;
    dense *= size;
    if (reach > INT32_MAX || dense > INT32_MAX) return reach <= INT32_MAX && step == 0;
  }
  return true;
}

/* -1: the tensor has no such dimension. */
static inline int64_t value_of(const onspy_rule* rule, const DLTensor* tensor) {
  switch (rule->kind) {
    case ONSPY_RULE_DTYPE:
      return dtype_value(tensor->dtype);
    case ONSPY_RULE_RANK:
      return tensor->ndim;
    case ONSPY_RULE_SHAPE:
      return rule->dimension < tensor->ndim ? tensor->shape[rule->dimension] : -1;
    case ONSPY_RULE_INDEX:
      return fits_index32(tensor) ? 32 : 64;
    default:
      return -1; /* of lists */
  }
}

/* ---- the call that most are ------------------------------------------------------- */

/* Of several arguments one that does not fit 32 bits is enough. */
static bool needs_index64(const onspy_template_parameter* parameter, const ons_arg* args,
                          size_t count) {
  for (size_t i = 0; i < parameter->rule_count; ++i) {
    const size_t index = parameter->rules[i].argument;
    if (index >= count || args[index].kind != ONS_ARG_TENSOR) return false;
    if (!fits_index32(args[index].value.tensor)) return true;
  }
  return false;
}

/* Only the first argument that tells a parameter is looked at: the library refuses others
 * that differ, and what does not fit 32 bits. */
static inline bool is_for(const onspy_generic* generic, const onspy_instance* instance,
                          const ons_arg* args, size_t count) {
  for (size_t i = 0; i < generic->parameter_count; ++i) {
    const onspy_template_parameter* parameter = &generic->parameters[i];
    if (parameter->rule_count == 0) continue;
    const onspy_rule* first = &parameter->first;
    if (ONSPY_LIKELY(first->kind != ONSPY_RULE_INDEX)) {
      if (first->argument >= count || args[first->argument].kind != ONS_ARG_TENSOR ||
          value_of(first, args[first->argument].value.tensor) != instance->key[i]) {
        return false;
      }
    } else if (instance->key[i] != 32 && !needs_index64(parameter, args, count)) {
      return false;
    }
  }
  return true;
}

/* The instance for the arguments, that used last before the others; NULL: none yet. */
static inline const onspy_instance* find_instance(onspy_generic* generic,
                                                  const ons_arg* args, size_t count) {
  const onspy_instance* last = &generic->instances[generic->last];
  if (ONSPY_LIKELY(is_for(generic, last, args, count))) return last;
  for (size_t i = 0; i < generic->instance_count; ++i) {
    if (!is_for(generic, &generic->instances[i], args, count)) continue;
    generic->last = (uint32_t)i;
    return &generic->instances[i];
  }
  return NULL;
}

/* What is refused may be for another instance: the arguments are looked at closely. */
static ONSPY_COLD PyObject* try_again(onspy_launcher* self, PyObject* const* objects,
                                      size_t count, ons_status status,
                                      const ons_error* error) {
  bool is_refused = status == ONS_STATUS_NOT_READY ||
                    status == ONS_STATUS_ARGUMENT_TYPE ||
                    status == ONS_STATUS_ARGUMENT_VALUE;
  if (!is_refused || error->launched) return onspy_raise(self->kernel->state, error);
  return onspy_launcher_call_general(self, objects, count, NULL);
}

ONSPY_HOT PyObject* onspy_generic_call(PyObject* object, PyObject* const* objects,
                                       size_t nargsf, PyObject* kwnames) {
  onspy_launcher* self = (onspy_launcher*)object;
  onspy_generic* generic = self->generic;
  size_t count = (size_t)PyVectorcall_NARGS(nargsf);
  ons_arg args[FAST_ARGUMENTS];
  DLTensor tensors[FAST_ARGUMENTS];
  if (!ONSPY_LIKELY(generic->instance_count > 0 && kwnames == NULL &&
                    onspy_innermost_stream == NULL && count <= FAST_ARGUMENTS)) {
    return onspy_launcher_call_general(self, objects, count, kwnames);
  }
  const onspy_kernel* kernel = generic->instances[generic->last].kernel;
  if (!ONSPY_LIKELY(count == kernel->slot_count)) {
    return onspy_launcher_call_general(self, objects, count, NULL);
  }
  __builtin_prefetch(kernel->handle);
  known_stream known = {NULL, {(DLDeviceType)0, 0}, NULL, false};
  args[0].kind = ONS_ARG_NULL; /* where there are none */
  for (size_t i = 0; i < count; ++i) {
    if (!ONSPY_LIKELY(
            gather(objects[i], &kernel->slots[i], &known, &tensors[i], &args[i]))) {
      return onspy_launcher_call_general(self, objects, count, NULL);
    }
  }
  const onspy_instance* instance = find_instance(generic, args, count);
  if (!ONSPY_LIKELY(instance != NULL))
    return onspy_launcher_call_general(self, objects, count, NULL);
  ons_kernel* handle = instance->kernel->handle;
  ons_error error; /* zeroing it would cost more than binding */
  error.struct_size = sizeof error;
  error.launched = 0;
  bool is_long = !known.device_seen && onspy_launch_is_long(&self->launch);
  ons_status status =
      is_long ? onspy_launch_without_gil(handle, &self->launch, args, count, &error)
              : ons_kernel_launch(handle, &self->launch, args, count, &error);
  if (ONSPY_LIKELY(status == ONS_STATUS_OK)) Py_RETURN_NONE;
  return try_again(self, objects, count, status, &error);
}

/* ---- choosing --------------------------------------------------------------------- */

/* One array, as far as rules ask. */
typedef struct look {
  onspy_call* call;
  const onspy_template_parameter* parameter;
  const onspy_rule* rule;
  PyObject* object; /* the array; an item where lists are given */
} look;

static void* refuse_look(const look* self, const char* why) {
  return onspy_raise_argument(self->call->kernel, self->rule->argument,
                              self->call->state->error_argument_type,
                              "a %.200s, which does not tell %U of the template: %s",
                              Py_TYPE(self->object)->tp_name, self->parameter->text, why);
}

/* What its library has not handed over yet is asked for its attributes. */
static bool look_at_attributes(const look* self, int64_t* out_value) {
  onspy_state* state = self->call->state;
  int64_t shape[64];
  DLTensor tensor = {.shape = shape};
  PyObject* dtype = PyObject_GetAttr(self->object, state->str_dtype);
  PyObject* name = dtype != NULL ? onspy_dtype_name(state, dtype) : NULL;
  const char* text = name != NULL ? PyUnicode_AsUTF8(name) : NULL;
  bool known = text != NULL && onspy_dtype_from_name(text, &tensor.dtype);
  PyObject* extents = known ? PyObject_GetAttr(self->object, state->str_shape) : NULL;
  PyObject* tuple = extents != NULL ? PySequence_Tuple(extents) : NULL;
  known = tuple != NULL && PyTuple_GET_SIZE(tuple) <= 64;
  for (Py_ssize_t i = 0; known && i < PyTuple_GET_SIZE(tuple); ++i) {
    shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    known = !PyErr_Occurred();
  }
  if (known) {
    tensor.ndim = (int32_t)PyTuple_GET_SIZE(tuple);
    *out_value = value_of(self->rule, &tensor);
  }
  Py_XDECREF(dtype);
  Py_XDECREF(name);
  Py_XDECREF(extents);
  Py_XDECREF(tuple);
  return known || refuse_look(self, "pass an array with dtype and shape") != NULL;
}

static void forget(onspy_call* call) {
  onspy_kept_release(&call->temporary);
  onspy_kept_release(&call->retained);
  call->pending_count = call->event_count = 0;
  call->events = NULL;
  call->python_ran = call->device_seen = false;
}

/* Leaves `*out_known` false for what tells nothing: nulls and outputs. */
static bool look_at(const look* self, bool* out_known, int64_t* out_value) {
  onspy_call* call = self->call;
  size_t index = self->rule->argument;
  *out_known = false;
  if (self->object == Py_None || Py_IS_TYPE(self->object, call->state->output_type)) {
    return true;
  }
  if (!onspy_call_gather(call, index, self->object)) return false;
  *out_known = true;
  const ons_arg* arg = &call->args[index];
  if (arg->kind == ONS_ARG_TENSOR) {
    *out_value = value_of(self->rule, arg->value.tensor);
  } else if (arg->kind == ONS_ARG_PENDING) {
    return look_at_attributes(self, out_value);
  } else {
    return refuse_look(self, "pass an array, or give it as a keyword of generic()") !=
           NULL;
  }
  return *out_value >= 0 || refuse_look(self, "it has no such dimension") != NULL;
}

static bool apply(onspy_call* call, const onspy_template_parameter* parameter,
                  const onspy_rule* rule, bool* out_known, int64_t* out_value) {
  if (rule->argument >= call->count) {
    PyErr_Format(call->state->error_argument_type,
                 "kernel '%s' takes more arguments than the %zu given: argument %u tells "
                 "%U of the template",
                 ons_kernel_name(call->kernel->handle), call->count, rule->argument + 1u,
                 parameter->text);
    return false;
  }
  PyObject* object = call->objects[rule->argument];
  if (rule->kind == ONSPY_RULE_COUNT) {
    *out_known = PyList_Check(object) || PyTuple_Check(object);
    if (*out_known) *out_value = PySequence_Size(object);
    return true;
  }
  look self = {call, parameter, rule, onspy_first_of(call->state, object)};
  Py_INCREF(self.object);
  bool looked = look_at(&self, out_known, out_value);
  Py_DECREF(self.object);
  forget(call);
  return looked;
}

static PyObject* spell(const onspy_generic* generic, const onspy_rule* rule,
                       int64_t value);

static bool refuse_two(const onspy_call* call, const onspy_template_parameter* parameter,
                       const onspy_rule* first, int64_t first_value,
                       const onspy_rule* second, int64_t second_value) {
  PyObject* one = spell(call->generic, first, first_value);
  PyObject* other = spell(call->generic, second, second_value);
  if (one != NULL && other != NULL) {
    PyErr_Format(call->state->error_argument_type,
                 "kernel '%s': %U of the template is %U for argument %u, but %U for "
                 "argument %u; pass arrays that agree",
                 ons_kernel_name(call->kernel->handle), parameter->text, one,
                 first->argument + 1u, other, second->argument + 1u);
  }
  Py_XDECREF(one);
  Py_XDECREF(other);
  return false;
}

static bool find_value(onspy_call* call, const onspy_template_parameter* parameter,
                       int64_t* out_value) {
  const onspy_rule* first = NULL;
  for (size_t i = 0; i < parameter->rule_count; ++i) {
    const onspy_rule* rule = &parameter->rules[i];
    int64_t value = 0;
    bool known = false;
    if (!apply(call, parameter, rule, &known, &value)) return false;
    if (!known) continue;
    if (first == NULL) {
      first = rule;
      *out_value = value;
    } else if (rule->kind == ONSPY_RULE_INDEX) {
      if (value > *out_value) *out_value = value;
    } else if (value != *out_value) {
      return refuse_two(call, parameter, first, *out_value, rule, value);
    }
  }
  if (first != NULL || parameter->rule_count == 0) return true;
  PyErr_Format(call->state->error_argument_type,
               "kernel '%s': no argument tells %U of the template: outputs and None do "
               "not; give it as a keyword of generic()",
               ons_kernel_name(call->kernel->handle), parameter->text);
  return false;
}

/* ---- instances -------------------------------------------------------------------- */

/* Half and bfloat16 types are those of the vendors' headers, which the source includes.
 */
static const char* type_name(DLDataType dtype) {
  static const struct {
    DLDataType dtype;
    const char* name;
  } kTypes[] = {
      {{kDLBool, 8, 1}, "bool"},
      {{kDLInt, 8, 1}, "signed char"},
      {{kDLInt, 16, 1}, "short"},
      {{kDLInt, 32, 1}, "int"},
      {{kDLInt, 64, 1}, "long long"},
      {{kDLUInt, 8, 1}, "unsigned char"},
      {{kDLUInt, 16, 1}, "unsigned short"},
      {{kDLUInt, 32, 1}, "unsigned int"},
      {{kDLUInt, 64, 1}, "unsigned long long"},
      {{kDLFloat, 16, 1}, "__half"},
      {{kDLFloat, 32, 1}, "float"},
      {{kDLFloat, 64, 1}, "double"},
      {{kDLBfloat, 16, 1}, "__nv_bfloat16"},
      {{kDLFloat8_e4m3fn, 8, 1}, "__nv_fp8_e4m3"},
      {{kDLFloat8_e5m2, 8, 1}, "__nv_fp8_e5m2"},
      {{kDLFloat8_e8m0fnu, 8, 1}, "__nv_fp8_e8m0"},
      {{kDLComplex, 64, 1}, "float2"},
      {{kDLComplex, 128, 1}, "double2"},
  };
  for (size_t i = 0; i < sizeof kTypes / sizeof *kTypes; ++i) {
    if (dtype_value(dtype) == dtype_value(kTypes[i].dtype)) return kTypes[i].name;
  }
  return NULL;
}

static PyObject* spell(const onspy_generic* generic, const onspy_rule* rule,
                       int64_t value) {
  if (rule->kind == ONSPY_RULE_INDEX) {
    return PyUnicode_FromString(value == 32 ? "int" : "long long");
  }
  if (rule->kind != ONSPY_RULE_DTYPE)
    return PyUnicode_FromFormat("%lld", (long long)value);
  uint32_t word = (uint32_t)value;
  DLDataType dtype;
  memcpy(&dtype, &word, sizeof dtype);
  const char* name = type_name(dtype);
  if (name != NULL) return PyUnicode_FromString(name);
  PyObject* text = onspy_dtype_text(dtype);
  if (text != NULL) {
    PyErr_Format(
        generic->module->state->error_argument_type,
        "kernel '%s': no C++ type is known for the dtype %U of argument %u; give "
        "the template's parameter as a keyword of generic()",
        ons_kernel_name(generic->pattern->handle), text, rule->argument + 1u);
    Py_DECREF(text);
  }
  return NULL;
}

static PyObject* instance_name(const onspy_generic* generic, const int64_t* key) {
  PyObject* name = PyUnicode_FromFormat("%U<", generic->base);
  for (size_t i = 0; name != NULL && i < generic->parameter_count; ++i) {
    const onspy_template_parameter* parameter = &generic->parameters[i];
    PyObject* text = parameter->fixed != NULL
                         ? Py_NewRef(parameter->fixed)
                         : spell(generic, &parameter->rules[0], key[i]);
    PyObject* longer = text != NULL
                           ? PyUnicode_FromFormat("%U%s%U", name, i > 0 ? ", " : "", text)
                           : NULL;
    Py_XDECREF(text);
    Py_SETREF(name, longer);
  }
  if (name != NULL) Py_SETREF(name, PyUnicode_FromFormat("%U>", name));
  return name;
}

/* Its place; SIZE_MAX with an exception. */
static size_t add_instance(onspy_generic* generic, const int64_t* key) {
  PyObject* name = instance_name(generic, key);
  PyObject* kernel =
      name != NULL ? PyObject_GetItem((PyObject*)generic->module, name) : NULL;
  Py_XDECREF(name);
  if (kernel == NULL) return SIZE_MAX;
  onspy_instance* instances = PyMem_Realloc(
      generic->instances, (generic->instance_count + 1) * sizeof *instances);
  if (instances == NULL) {
    Py_DECREF(kernel);
    PyErr_NoMemory();
    return SIZE_MAX;
  }
  generic->instances = instances;
  onspy_instance* added = &instances[generic->instance_count++];
  memcpy(added->key, key, sizeof added->key);
  added->kernel = (onspy_kernel*)kernel;
  return generic->instance_count - 1;
}

bool onspy_generic_choose(onspy_call* call) {
  onspy_generic* generic = call->generic;
  int64_t key[ONSPY_TEMPLATE_PARAMETERS] = {0};
  for (size_t i = 0; i < generic->parameter_count; ++i) {
    if (!find_value(call, &generic->parameters[i], &key[i])) return false;
  }
  size_t place = 0;
  while (place < generic->instance_count &&
         memcmp(generic->instances[place].key, key, sizeof key) != 0) {
    ++place;
  }
  if (place == generic->instance_count) place = add_instance(generic, key);
  if (place == SIZE_MAX) return false;
  generic->last = (uint32_t)place;
  call->kernel = generic->instances[place].kernel;
  return true;
}

/* ---- methods ---------------------------------------------------------------------- */

PyObject* onspy_generic_new(PyObject* module, PyObject* args, PyObject* kwargs) {
  onspy_module* owner = (onspy_module*)module;
  PyTypeObject* type = owner->state->generic_type;
  PyObject* name;
  if (!PyArg_ParseTuple(args, "U:generic", &name)) return NULL;
  onspy_generic* self = type != NULL ? (onspy_generic*)type->tp_alloc(type, 0) : NULL;
  if (self == NULL) return NULL;
  self->module = (onspy_module*)Py_NewRef(module);
  if (!onspy_generic_parse(self, name, kwargs)) goto fail;
  PyObject* pattern = PyUnicode_FromFormat("%U<", self->base);
  for (size_t i = 0; pattern != NULL && i < self->parameter_count; ++i) {
    Py_SETREF(pattern, PyUnicode_FromFormat("%U%s%U", pattern, i > 0 ? ", " : "",
                                            self->parameters[i].text));
  }
  if (pattern != NULL) Py_SETREF(pattern, PyUnicode_FromFormat("%U>", pattern));
  if (pattern == NULL) goto fail;
  self->pattern = (onspy_kernel*)onspy_kernel_new(owner, pattern);
  Py_DECREF(pattern);
  if (self->pattern == NULL) goto fail;
  return (PyObject*)self;

fail:
  Py_DECREF(self);
  return NULL;
}

static PyObject* generic_subscript(PyObject* object, PyObject* key) {
  onspy_generic* self = (onspy_generic*)object;
  PyObject* launcher = onspy_launcher_new(self->pattern, key);
  if (launcher == NULL) return NULL;
  ((onspy_launcher*)launcher)->vectorcall = onspy_generic_call;
  ((onspy_launcher*)launcher)->generic = (onspy_generic*)Py_NewRef(object);
  return launcher;
}

PyDoc_STRVAR(instance_doc,
             "instance($self, /, *args)\n--\n\n"
             "The Kernel that a call with these arguments launches. Nothing is launched "
             "or compiled; prepare() of the Kernel compiles it.");
static PyObject* generic_instance(PyObject* object, PyObject* const* args,
                                  Py_ssize_t count) {
  return onspy_generic_call_out((onspy_generic*)object, NULL, args, (size_t)count, NULL);
}

PyDoc_STRVAR(launch_doc,
             "launch($self, args, **options)\n--\n\n"
             "As Kernel.launch, of the instance that the arguments choose.");
static PyObject* generic_launch(PyObject* object, PyObject* args, PyObject* kwargs) {
  PyObject* given;
  if (!PyArg_ParseTuple(args, "O:launch", &given)) return NULL;
  PyObject *result = NULL, *kernel = NULL, *launch = NULL, *one = NULL;
  PyObject* tuple = PySequence_Tuple(given);
  if (tuple == NULL) return NULL;
  PyObject* out = kwargs != NULL ? PyDict_GetItemString(kwargs, "out") : NULL;
  kernel =
      onspy_generic_call_out((onspy_generic*)object, NULL, &PyTuple_GET_ITEM(tuple, 0),
                             (size_t)PyTuple_GET_SIZE(tuple), out);
  if (kernel != NULL) launch = PyObject_GetAttrString(kernel, "launch");
  if (launch != NULL) one = PyTuple_Pack(1, tuple);
  if (one != NULL) result = PyObject_Call(launch, one, kwargs);
  Py_XDECREF(one);
  Py_XDECREF(launch);
  Py_XDECREF(kernel);
  Py_DECREF(tuple);
  return result;
}

static PyObject* generic_get_name(PyObject* object, void* Py_UNUSED(closure)) {
  return PyUnicode_FromString(ons_kernel_name(((onspy_generic*)object)->pattern->handle));
}

static PyObject* generic_get_instances(PyObject* object, void* Py_UNUSED(closure)) {
  const onspy_generic* self = (const onspy_generic*)object;
  PyObject* kernels = PyTuple_New((Py_ssize_t)self->instance_count);
  for (size_t i = 0; kernels != NULL && i < self->instance_count; ++i) {
    PyTuple_SET_ITEM(kernels, (Py_ssize_t)i,
                     Py_NewRef((PyObject*)self->instances[i].kernel));
  }
  return kernels;
}

static PyObject* generic_repr(PyObject* object) {
  const onspy_generic* self = (const onspy_generic*)object;
  return PyUnicode_FromFormat("<onstream.GenericKernel %s>",
                              ons_kernel_name(self->pattern->handle));
}

/* ---- the type --------------------------------------------------------------------- */

static int generic_traverse(PyObject* object, visitproc visit, void* arg) {
  const onspy_generic* self = (const onspy_generic*)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject*)self->module);
  Py_VISIT((PyObject*)self->pattern);
  for (size_t i = 0; i < self->instance_count; ++i) {
    Py_VISIT((PyObject*)self->instances[i].kernel);
  }
  return 0;
}

/* No clear: nothing that it refers to refers back. */
static void generic_dealloc(PyObject* object) {
  onspy_generic* self = (onspy_generic*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  for (size_t i = 0; i < self->parameter_count; ++i) {
    Py_XDECREF(self->parameters[i].text);
    Py_XDECREF(self->parameters[i].fixed);
    PyMem_Free(self->parameters[i].rules);
  }
  for (size_t i = 0; i < self->instance_count; ++i) {
    Py_DECREF((PyObject*)self->instances[i].kernel);
  }
  PyMem_Free(self->instances);
  Py_XDECREF(self->base);
  Py_XDECREF((PyObject*)self->pattern);
  Py_XDECREF((PyObject*)self->module);
  type->tp_free(object);
  Py_DECREF(type);
}

static PyMethodDef generic_methods[] = {
    {"launch", (PyCFunction)(void (*)(void))generic_launch, METH_VARARGS | METH_KEYWORDS,
     launch_doc},
    {"instance", (PyCFunction)(void (*)(void))generic_instance, METH_FASTCALL,
     instance_doc},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef generic_getset[] = {
    {"name", generic_get_name, NULL, "The name with the template's parameters.", NULL},
    {"instances", generic_get_instances, NULL, "The kernels chosen so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PyDoc_STRVAR(generic_doc,
             "A template kernel whose instance the arguments of each call choose; see "
             "Module.generic. Used as a Kernel: generic[grid, block](*args).");

static PyType_Slot generic_slots[] = {
    {Py_tp_doc, (void*)generic_doc},
    {Py_tp_repr, ONSPY_FUNCTION(generic_repr)},
    {Py_tp_traverse, ONSPY_FUNCTION(generic_traverse)},
    {Py_tp_dealloc, ONSPY_FUNCTION(generic_dealloc)},
    {Py_tp_methods, ONSPY_FUNCTION(generic_methods)},
    {Py_tp_getset, ONSPY_FUNCTION(generic_getset)},
    {Py_mp_subscript, ONSPY_FUNCTION(generic_subscript)},
    {0, NULL}};

PyType_Spec onspy_generic_spec = {
    .name = "onstream.GenericKernel",
    .basicsize = sizeof(onspy_generic),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = generic_slots,
};
