/* The call that most calls are: Python numbers, and arrays whose types have been seen at
 * their place before and have an exchange table.
 *
 * It runs after a driver call that emptied the caches, so it is short and touches little.
 * Whatever is not plain is left to the general way (call.c), which begins anew. Outputs
 * that are like a tensor of torch have a way of their own beside it. */
#include <string.h>

#include "gather.h"

/* The library has refused or failed. Whatever it says is final, for the general way would
 * pass it the same arguments; only a kernel that is not ready is for that to prepare. */
static ONSPY_COLD PyObject* give_up(onspy_launcher* self, PyObject* const* objects,
                                    size_t count, ons_status status,
                                    const ons_error* error) {
  if (status != ONS_STATUS_NOT_READY) return onspy_raise(self->kernel->state, error);
  return onspy_kernel_call(self->kernel, &self->launch, objects, count);
}

ONSPY_NOINLINE ons_status onspy_launch_without_gil(ons_kernel* kernel,
                                                   const ons_launch* launch,
                                                   const ons_arg* args, size_t count,
                                                   ons_error* error) {
  ons_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ons_kernel_launch(kernel, launch, args, count, error);
  Py_END_ALLOW_THREADS;
  return status;
}

static inline ons_status launch(const onspy_launcher* self, bool on_host,
                                const ons_arg* args, size_t count, ons_error* error) {
  ons_kernel* handle = self->kernel->handle;
  return on_host && onspy_launch_is_long(&self->launch)
             ? onspy_launch_without_gil(handle, &self->launch, args, count, error)
             : ons_kernel_launch(handle, &self->launch, args, count, error);
}

/* ---- with outputs ----------------------------------------------------------------- */

/* What torch itself makes of like(x): plain, dense and of x's own class. NULL, maybe with
 * an exception, where the general way has to see to it. Called first, as it may run
 * Python code, after which nothing that was borrowed would be good. */
static PyObject* allocate_like(onspy_state* state, const onspy_output* output,
                               onspy_producer* scratch,
                               const onspy_producer** out_producer) {
  PyObject* model = output->like;
  if (model == NULL || output->shape != NULL || output->dtype != NULL ||
      output->flags != 0 || state->torch_empty_like == NULL) {
    return NULL;
  }
  const onspy_producer* producer = onspy_producer_find(state, Py_TYPE(model), scratch);
  if (producer == NULL || producer->library != ONSPY_LIBRARY_TORCH ||
      producer->borrow == NULL) {
    return NULL;
  }
  PyObject* array = PyObject_CallOneArg(state->torch_empty_like, model);
  if (array != NULL && Py_IS_TYPE(array, producer->type)) {
    *out_producer = producer;
    return array;
  }
  Py_XDECREF(array);
  return NULL;
}

/* torch keeps the order of the model's strides. */
static bool is_dense(const DLTensor* tensor) {
  uint64_t expected = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] != 1 && (uint64_t)tensor->strides[i] != expected) return false;
    expected *= (uint64_t)tensor->shape[i];
  }
  return true;
}

typedef struct fast_outputs {
  PyObject* arrays[FAST_ARGUMENTS]; /* NULL: no output */
  const onspy_producer* producers[FAST_ARGUMENTS];
  size_t count;
} fast_outputs;

static bool allocate_outputs(onspy_launcher* self, PyObject* const* objects, size_t count,
                             onspy_producer* scratch, fast_outputs* outputs) {
  onspy_state* state = self->kernel->state;
  for (size_t i = 0; i < count; ++i) {
    outputs->arrays[i] = NULL;
    if (!Py_IS_TYPE(objects[i], state->output_type)) continue;
    outputs->arrays[i] = allocate_like(state, (const onspy_output*)objects[i], scratch,
                                       &outputs->producers[i]);
    if (outputs->arrays[i] == NULL || outputs->producers[i] == scratch) return false;
    ++outputs->count;
  }
  return true;
}

static bool gather_output(PyObject* array, const onspy_producer* producer,
                          uint32_t traits, known_stream* known, DLTensor* tensor,
                          ons_arg* arg) {
  const onspy_slot slot = {producer->type, producer, producer->kind, traits};
  bool gathered = gather_tensor(array, &slot, known, tensor, arg) && is_dense(tensor);
  arg->flags |= ONS_ARG_OUTPUT;
  return gathered;
}

static PyObject* take_outputs(fast_outputs* outputs, size_t count) {
  PyObject* result = NULL;
  if (outputs->count > 1) result = PyTuple_New((Py_ssize_t)outputs->count);
  if (outputs->count > 1 && result == NULL) return NULL;
  Py_ssize_t used = 0;
  for (size_t i = 0; i < count; ++i) {
    PyObject* array = outputs->arrays[i];
    if (array == NULL) continue;
    outputs->arrays[i] = NULL;
    if (outputs->count == 1) return array;
    PyTuple_SET_ITEM(result, used++, array);
  }
  return result;
}

static void drop_outputs(fast_outputs* outputs, size_t allocated) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  for (size_t i = 0; i < allocated; ++i) Py_XDECREF(outputs->arrays[i]);
  PyErr_Restore(type, value, traceback);
}

static ONSPY_NOINLINE PyObject* call_allocating(onspy_launcher* self,
                                                PyObject* const* objects, size_t count) {
  onspy_producer scratch;
  fast_outputs outputs;
  ons_arg args[FAST_ARGUMENTS];
  DLTensor tensors[FAST_ARGUMENTS];
  known_stream known = {NULL, {(DLDeviceType)0, 0}, NULL, false};
  memset(outputs.arrays, 0, count * sizeof *outputs.arrays);
  outputs.count = 0;
  bool gathered = allocate_outputs(self, objects, count, &scratch, &outputs);
  const onspy_slot* slots = self->kernel->slots;
  for (size_t i = 0; gathered && i < count; ++i) {
    gathered = outputs.arrays[i] != NULL
                   ? gather_output(outputs.arrays[i], outputs.producers[i],
                                   slots[i].traits, &known, &tensors[i], &args[i])
                   : gather(objects[i], &slots[i], &known, &tensors[i], &args[i]);
  }
  if (!gathered) {
    drop_outputs(&outputs, count);
    bool is_final = PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception);
    return is_final ? NULL : onspy_launcher_call_general(self, objects, count, NULL);
  }
  ons_error error;
  error.struct_size = sizeof error;
  error.launched = 0;
  ons_status status = launch(self, !known.device_seen, args, count, &error);
  PyObject* result = status == ONS_STATUS_OK ? take_outputs(&outputs, count) : NULL;
  drop_outputs(&outputs, count);
  return status == ONS_STATUS_OK ? result : give_up(self, objects, count, status, &error);
}

/* ---- any -------------------------------------------------------------------------- */

static ONSPY_NOINLINE PyObject* call_other(onspy_launcher* self, PyObject* const* objects,
                                           size_t count, PyObject* kwnames) {
  const onspy_kernel* kernel = self->kernel;
  bool allocates = kwnames == NULL && onspy_innermost_stream == NULL &&
                   count <= FAST_ARGUMENTS && count == kernel->slot_count &&
                   kernel->output_index < count &&
                   Py_IS_TYPE(objects[kernel->output_index], kernel->state->output_type);
  return allocates ? call_allocating(self, objects, count)
                   : onspy_launcher_call_general(self, objects, count, kwnames);
}

PyObject* onspy_launcher_call(PyObject* object, PyObject* const* objects, size_t nargsf,
                              PyObject* kwnames) {
  onspy_launcher* self = (onspy_launcher*)object;
  const onspy_kernel* kernel = self->kernel;
  size_t count = (size_t)PyVectorcall_NARGS(nargsf);
  ons_arg args[FAST_ARGUMENTS];
  DLTensor tensors[FAST_ARGUMENTS];
  if (!ONSPY_LIKELY(kwnames == NULL && onspy_innermost_stream == NULL &&
                    count <= FAST_ARGUMENTS && count == kernel->slot_count &&
                    kernel->output_index >= count)) {
    return call_other(self, objects, count, kwnames);
  }
  ons_kernel* handle = kernel->handle;
  const onspy_slot* slots = kernel->slots;
  __builtin_prefetch(handle);
  known_stream known = {NULL, {(DLDeviceType)0, 0}, NULL, false};
  for (size_t i = 0; i < count; ++i) {
    if (!ONSPY_LIKELY(gather(objects[i], &slots[i], &known, &tensors[i], &args[i]))) {
      return onspy_launcher_call_general(self, objects, count, kwnames);
    }
  }
  ons_error error; /* zeroing it would cost more than binding */
  error.struct_size = sizeof error;
  error.launched = 0;
  ons_status status = launch(self, !known.device_seen, args, count, &error);
  if (status != ONS_STATUS_OK) return give_up(self, objects, count, status, &error);
  Py_RETURN_NONE;
}
