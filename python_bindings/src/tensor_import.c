/* An array of another library as an ons_tensor: the producer is asked as for a kernel's
 * argument, and what would be released after the call is kept as long as the tensor. */
#include <string.h>

#include "binding.h"

/* A call without a kernel and with one argument. */
typedef struct import_call {
  onspy_kernel kernel; /* nameless: errors say from_dlpack */
  ons_launch launch;
  onspy_call call;
  PyObject* object;
  PyObject* stream; /* owns the home stream; owned. NULL: the array's library does */
  ons_arg arg;
  DLTensor tensor;
} import_call;

/* ---- what is kept ----------------------------------------------------------------- */

/* The managed tensor that the library gets, and what it stands for. */
struct onspy_held {
  DLManagedTensorVersioned managed;
  onspy_kept temporary, retained; /* of the call */
};

int onspy_held_traverse(const onspy_held* self, visitproc visit, void* arg) {
  int stop = onspy_kept_traverse(&self->temporary, visit, arg);
  return stop != 0 ? stop : onspy_kept_traverse(&self->retained, visit, arg);
}

/* On any thread, with or without the GIL. */
static void delete_held(DLManagedTensorVersioned* managed) {
  if (!Py_IsInitialized()) return; /* nothing of Python's can be released any more */
  PyGILState_STATE gil = PyGILState_Ensure();
  onspy_held* self = managed->manager_ctx;
  onspy_kept_release(&self->temporary);
  onspy_kept_release(&self->retained);
  PyMem_Free(self);
  PyGILState_Release(gil);
}

/* Moves all that the call has taken into a managed tensor. Interfaces and buffers do not
 * own their memory: the object does. */
static onspy_held* keep(import_call* self, const onspy_producer* producer) {
  onspy_call* call = &self->call;
  bool owns = producer->kind == ONSPY_KIND_EXCHANGE ||
              producer->kind == ONSPY_KIND_DLPACK || producer->kind == ONSPY_KIND_ARROW;
  PyObject* const objects[] = {owns ? NULL : self->object, self->stream};
  for (size_t i = 0; i < 2; ++i) { /* the stream last: the others' release may need it */
    if (objects[i] != NULL &&
        !onspy_kept_add(&call->retained, Py_NewRef(objects[i]), onspy_release_object)) {
      return NULL;
    }
  }
  onspy_held* held = PyMem_Malloc(sizeof *held);
  if (held == NULL) return (onspy_held*)PyErr_NoMemory();
  *held =
      (onspy_held){.managed = {.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                               .manager_ctx = held,
                               .deleter = delete_held,
                               .dl_tensor = self->tensor},
                   .temporary = call->temporary,
                   .retained = call->retained};
  call->temporary = call->retained = (onspy_kept){.items = NULL};
  return held;
}

/* ---- asking ----------------------------------------------------------------------- */

/* For producers that are told the stream. */
static bool look_for_capture(import_call* self) {
  onspy_call* call = &self->call;
  uint32_t captured = 0;
  ons_error error = ONS_ERROR_INIT;
  ons_runtime* runtime = onspy_runtime(call->state);
  if (runtime == NULL) return false;
  if (ons_stream_is_captured(runtime, call->plan.device, call->plan.stream, &captured,
                             &error) != ONS_STATUS_OK) {
    return onspy_raise(call->state, &error) != NULL;
  }
  call->plan.capture_state = captured != 0 && ONS__DOES(TENSOR_LOOK);
  return true;
}

static bool ask(import_call* self, const onspy_producer* producer) {
  onspy_call* call = &self->call;
  switch (producer->kind) {
    case ONSPY_KIND_EXCHANGE:
      return onspy_call_exchange(call, 0, self->object, producer);
    case ONSPY_KIND_DLPACK:
    case ONSPY_KIND_ARRAY_INTERFACE:
    case ONSPY_KIND_BUFFER:
    case ONSPY_KIND_BYTES:
      return onspy_call_slow(call, 0, self->object, producer);
    case ONSPY_KIND_ARROW:
      return onspy_call_arrow(call, 0, self->object);
    default:
      onspy_raise_argument(call->kernel, 0, call->state->error_argument_type,
                           "a %.200s, which is no array; pass one with __dlpack__, "
                           "__cuda_array_interface__ or a buffer",
                           Py_TYPE(self->object)->tp_name);
      return false;
  }
}

/* The home stream: the one given, else ons.use_stream's, else the producer's own; the
 * legacy one where that is unknown. */
static void choose_stream(import_call* self) {
  onspy_call* call = &self->call;
  DLDevice device = self->tensor.device;
  call->plan.device = device;
  call->plan.order = ONS_ORDER_JOIN;
  const onspy_use_stream* scope = onspy_used_stream(device);
  if (self->launch.flags & ONS_LAUNCH_STREAM) {
    call->plan.stream = self->launch.stream;
  } else if (scope != NULL) {
    call->plan.stream = scope->stream;
    self->stream = Py_NewRef(scope->object);
  } else {
    call->plan.stream = self->arg.flags & ONS_ARG_STREAM_KNOWN ? self->arg.stream : NULL;
  }
}

static bool refuse_stream(import_call* self) {
  onspy_raise_argument(self->call.kernel, 0, self->call.state->error_argument_value,
                       "a %.200s in host memory, which has no stream; leave stream out",
                       Py_TYPE(self->object)->tp_name);
  return false;
}

static bool take(import_call* self, const onspy_producer* producer) {
  onspy_call* call = &self->call;
  if (!ask(self, producer)) return false;
  if (onspy_on_host(self->tensor.device)) {
    return !(self->launch.flags & ONS_LAUNCH_STREAM) || refuse_stream(self);
  }
  choose_stream(self);
  if (self->arg.kind != ONS_ARG_PENDING) return true;
  bool known = self->arg.flags & ONS_ARG_STREAM_KNOWN;
  bool is_told = !known || producer->library == ONSPY_LIBRARY_JAX;
  return (!is_told || look_for_capture(self)) &&
         onspy_call_check(call, 0, self->object, producer) &&
         onspy_call_ask(call, 0, self->object, producer);
}

/* ---- the library's tensor --------------------------------------------------------- */

/* Such a producer is on whatever stream it is used on, and has none to be given back to.
 */
static bool has_no_stream(const onspy_producer* producer) {
  return (producer->traits & ONSPY_PRODUCER_ON_CALLERS_STREAM) &&
         producer->stream_of == NULL;
}

static uint32_t flags_of(const import_call* self, const onspy_producer* producer) {
  uint32_t flags = 0;
  if (self->arg.flags & ONS_ARG_READ_ONLY) flags |= ONS_TENSOR_READ_ONLY;
  if (self->arg.flags & ONS_ARG_REQUIRES_GRAD) flags |= ONS_TENSOR_REQUIRES_GRAD;
  if (onspy_on_host(self->tensor.device)) return flags;
  flags |= ONS_TENSOR_STREAM;
  if (self->arg.flags & ONS_ARG_ORDERED) flags |= ONS_TENSOR_ORDERED;
  if (self->arg.flags & ONS_ARG_STREAM_KNOWN) {
    flags |= has_no_stream(producer) ? ONS_TENSOR_ORDERED : ONS_TENSOR_PRODUCER_STREAM;
  } else if (ONS__DOES(REFUSE_WRITE)) {
    flags |= ONS_TENSOR_READ_ONLY; /* nothing keeps the library's later work behind */
  }
  return flags;
}

static ons_tensor* make(import_call* self, const onspy_producer* producer,
                        const onspy_held** out_held) {
  onspy_state* state = self->call.state;
  ons_runtime* runtime = onspy_runtime(state);
  onspy_held* held = runtime != NULL ? keep(self, producer) : NULL;
  if (held == NULL) return NULL;
  ons_tensor_options options = ONS_TENSOR_OPTIONS_INIT;
  options.flags = flags_of(self, producer);
  options.versioned = &held->managed;
  options.stream = self->call.plan.stream;
  options.producer_stream = self->arg.stream;
  options.event = self->call.event_count > 0 ? *self->call.events : NULL;
  ons_tensor* tensor = NULL;
  ons_error error = ONS_ERROR_INIT;
  if (ons_tensor_create(runtime, &options, &tensor, &error) != ONS_STATUS_OK) {
    onspy_raise(state, &error);
    delete_held(&held->managed);
    return NULL;
  }
  *out_held = held;
  return tensor;
}

ons_tensor* onspy_tensor_import(onspy_state* state, PyObject* object,
                                const onspy_producer* producer, PyObject* owner,
                                void* stream, onspy_import* out_import) {
  import_call self;
  memset(&self, 0, sizeof self);
  self.kernel.state = state;
  self.launch = (ons_launch)ONS_LAUNCH_INIT;
  if (owner != NULL) self.launch.flags = ONS_LAUNCH_STREAM;
  self.launch.stream = stream;
  self.object = object;
  self.stream = Py_XNewRef(owner);
  self.call = (onspy_call){.state = state,
                           .kernel = &self.kernel,
                           .launch = &self.launch,
                           .objects = &self.object,
                           .count = 1,
                           .args = &self.arg,
                           .tensors = &self.tensor,
                           .is_import = true};
  const onspy_held* held = NULL;
  ons_tensor* tensor = take(&self, producer) ? make(&self, producer, &held) : NULL;
  onspy_kept_release(&self.call.temporary);
  onspy_kept_release(&self.call.retained);
  Py_XDECREF(self.stream);
  *out_import = (onspy_import){
      .held = held,
      .on_host = onspy_on_host(self.tensor.device),
      .retained = producer->traits & ONSPY_PRODUCER_RETAINED,
      .knows_producer = flags_of(&self, producer) & ONS_TENSOR_PRODUCER_STREAM,
      .producer_stream = self.arg.stream};
  return tensor;
}
