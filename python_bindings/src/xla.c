/* The handlers of <onstream/xla.h>, for onstream.jax to register. */
#include <onstream/xla.h>

#include "binding.h"

/* XX(platform, target, stage, function) */
#define HANDLERS(XX)                                                          \
  XX("cpu", ONS_XLA_TARGET, "instantiate", ons_xla_cpu_instantiate)           \
  XX("cpu", ONS_XLA_TARGET, "execute", ons_xla_cpu_execute)                   \
  XX("cpu", ONS_XLA_TARGET_NOGRAPH, "instantiate", ons_xla_cpu_instantiate)   \
  XX("cpu", ONS_XLA_TARGET_NOGRAPH, "execute", ons_xla_cpu_execute)           \
  XX("CUDA", ONS_XLA_TARGET, "instantiate", ons_xla_cuda_instantiate)         \
  XX("CUDA", ONS_XLA_TARGET, "initialize", ons_xla_cuda_initialize)           \
  XX("CUDA", ONS_XLA_TARGET, "execute", ons_xla_cuda_execute)                 \
  XX("CUDA", ONS_XLA_TARGET_NOGRAPH, "instantiate", ons_xla_cuda_instantiate) \
  XX("CUDA", ONS_XLA_TARGET_NOGRAPH, "initialize", ons_xla_cuda_initialize)   \
  XX("CUDA", ONS_XLA_TARGET_NOGRAPH, "execute", ons_xla_cuda_execute_nograph)

typedef struct XLA_FFI_Error* handler_fn(struct XLA_FFI_CallFrame* call_frame);

static const struct {
  const char* platform;
  const char* target;
  const char* stage;
  handler_fn* function;
} kHandlers[] = {
#define HANDLER(platform, target, stage, function) {platform, target, stage, function},
    HANDLERS(HANDLER)
#undef HANDLER
};

/* The dict under a key, made where there is none. Borrowed. */
static PyObject* inner_dict(PyObject* dict, const char* key) {
  PyObject* name = PyUnicode_FromString(key);
  PyObject* empty = name != NULL ? PyDict_New() : NULL;
  PyObject* inner = empty != NULL ? PyDict_SetDefault(dict, name, empty) : NULL;
  Py_XDECREF(empty);
  Py_XDECREF(name);
  return inner;
}

static bool add_handler(PyObject* platforms, size_t index) {
  PyObject* targets = inner_dict(platforms, kHandlers[index].platform);
  PyObject* stages =
      targets != NULL ? inner_dict(targets, kHandlers[index].target) : NULL;
  if (stages == NULL) return false;
  PyObject* capsule =
      PyCapsule_New(ONSPY_FUNCTION(kHandlers[index].function), NULL, NULL);
  const bool is_added =
      capsule != NULL &&
      PyDict_SetItemString(stages, kHandlers[index].stage, capsule) == 0;
  Py_XDECREF(capsule);
  return is_added;
}

PyObject* onspy_xla_handlers(onspy_state* state) {
  ons_runtime* runtime = onspy_runtime(state);
  if (runtime == NULL) return NULL;
  ons_error error = ONS_ERROR_INIT;
  if (ons_xla_runtime_set(runtime, &error) != ONS_STATUS_OK) {
    return onspy_raise(state, &error);
  }
  PyObject* platforms = PyDict_New();
  for (size_t i = 0; platforms != NULL && i < sizeof(kHandlers) / sizeof(*kHandlers);
       ++i) {
    if (!add_handler(platforms, i)) Py_CLEAR(platforms);
  }
  return platforms;
}

PyObject* onspy_xla_register_module(onspy_state* state, PyObject* args) {
  PyObject* module;
  const char* digest;
  if (!PyArg_ParseTuple(args, "O!s:_xla_register_module", state->module_type, &module,
                        &digest)) {
    return NULL;
  }
  ons_error error = ONS_ERROR_INIT;
  if (ons_xla_module_register(((onspy_module*)module)->handle, digest, &error) !=
      ONS_STATUS_OK) {
    return onspy_raise(state, &error);
  }
  Py_RETURN_NONE;
}

PyObject* onspy_xla_describe(onspy_state* state, PyObject* object) {
  if (state->kernel_type == NULL || !Py_IS_TYPE(object, state->kernel_type)) {
    PyErr_Format(PyExc_TypeError, "expected a Kernel, not %.200s",
                 Py_TYPE(object)->tp_name);
    return NULL;
  }
  const onspy_kernel* kernel = (const onspy_kernel*)object;
  const onspy_module* module = kernel->module;
  return Py_BuildValue("{s:O,s:O,s:s,s:O,s:s,s:O,s:O,s:I}", "module", module, "bundle",
                       module->bundle, "source", ons_module_source(module->handle),
                       "name", module->name, "kernel", ons_kernel_name(kernel->handle),
                       "options", module->options, "headers", module->headers, "flags",
                       module->flags);
}
