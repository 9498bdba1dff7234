/* The handlers of XLA's platforms for GPUs. */
#include <onstream/xla.h>

#include "runtime/base/error.h"
#include "runtime/base/interrupt.h"
#include "runtime/kernel.h"
#include "runtime/module.h"
#include "runtime/xla_call.h"
#include "runtime/xla_error.h"

static ons__backend* backend_of(const ons_kernel* kernel) {
  return kernel->module->runtime->cuda;
}

/* XLA's own error is for XLA as it is: then |out_error| is set. */
static bool get_stream(const ons__xla_frame* frame, void** out_stream,
                       ons__xla_error** out_error) {
  ons__xla_stream_get args = {.struct_size = sizeof(args), .context = frame->context};
  *out_error = frame->api->stream_get(&args);
  *out_stream = args.stream;
  return *out_error == NULL;
}

/* XLA names the device in some versions only, and its stream in all of them. */
static ons_status find_target(const ons_kernel* kernel, void* stream,
                              ons__xla_target* out_target, ons_error* error) {
  ons__backend* backend = backend_of(kernel);
  *out_target = (ons__xla_target){.device = {kDLCUDA, 0}, .stream = stream};
  ons_status status =
      backend->ops->stream_device(backend, stream, &out_target->device.device_id, error);
  if (status) ons__error_prefix(error, "kernel '%s', XLA's stream", kernel->name);
  return status;
}

/* ---- instantiate ------------------------------------------------------------------ */

/* No device is named yet. Those that XLA runs on it has made contexts for by now; others
 * are left alone, and where there is none the first run compiles. */
static ons_status instantiate(const ons__xla_frame* frame, ons_blob** out_log,
                              ons_error* error) {
  ons_kernel* kernel = NULL;
  ons_status status = ons__xla_frame_instantiate(frame, &kernel, error);
  if (status) return status;
  ons__backend* backend = backend_of(kernel);
  int32_t count = 0;
  status = backend->ops->device_count(backend, &count, error);
  for (int32_t i = 0; i < count && !status; ++i) {
    if (!backend->ops->device_in_use(backend, i)) continue;
    ons_blob_release(*out_log);
    *out_log = NULL;
    status = ons__kernel_compile(kernel, (DLDevice){kDLCUDA, i}, out_log, error);
  }
  return status;
}

struct XLA_FFI_Error* ons_xla_cuda_instantiate(struct XLA_FFI_CallFrame* call_frame) {
  const ons__xla_frame* frame = (const ons__xla_frame*)call_frame;
  if (ons__xla_answer(frame, 0)) return NULL;
  ons_error error = ONS_ERROR_INIT;
  ons_blob* log = NULL;
  ons__interrupt_hold();
  ons_status status = instantiate(frame, &log, &error);
  ons__interrupt_release();
  return ons__xla_error_of(frame->api, status, &error, log);
}

/* ---- initialize ------------------------------------------------------------------- */

static ons_status load(ons_kernel* kernel, void* stream, ons_blob** out_log,
                       ons_error* error) {
  ons__xla_target target;
  ons_status status = find_target(kernel, stream, &target, error);
  if (status) return status;
  const int slot = ons__device_slot(target.device);
  if (slot >= 0 && ons__kernel_bound(kernel, slot)) return ONS_STATUS_OK;
  return ons_kernel_prepare(kernel, target.device, out_log, error);
}

/* Before every run, so that mostly there is nothing left to do. */
static ons__xla_error* initialize(const ons__xla_frame* frame) {
  ons_error error;
  error.struct_size = sizeof(error);
  ons__xla_attributes attributes;
  ons_kernel* kernel = NULL;
  void* stream = NULL;
  ons__xla_error* theirs = NULL;
  ons_blob* log = NULL;
  ons_status status =
      ons__xla_frame_find(frame, ONS__XLA_INITIALIZE, &attributes, &kernel, &error);
  if (!status && !get_stream(frame, &stream, &theirs)) return theirs;
  if (!status) status = load(kernel, stream, &log, &error);
  return ons__xla_error_of(frame->api, status, &error, log);
}

struct XLA_FFI_Error* ons_xla_cuda_initialize(struct XLA_FFI_CallFrame* call_frame) {
  const ons__xla_frame* frame = (const ons__xla_frame*)call_frame;
  if (ons__xla_answer(frame, 0)) return NULL;
  ons__interrupt_hold();
  ons__xla_error* made = initialize(frame);
  ons__interrupt_release();
  return made;
}

/* ---- execute ---------------------------------------------------------------------- */

static ons__xla_error* execute(const ons__xla_frame* frame) {
  ons_error error;
  error.struct_size = sizeof(error);
  ons__xla_attributes attributes;
  ons__xla_target target;
  ons_kernel* kernel = NULL;
  void* stream = NULL;
  ons__xla_error* theirs = NULL;
  ons_status status =
      ons__xla_frame_find(frame, ONS__XLA_EXECUTE, &attributes, &kernel, &error);
  if (!status && !get_stream(frame, &stream, &theirs)) return theirs;
  if (!status) status = find_target(kernel, stream, &target, &error);
  if (!status) status = ons__xla_launch(frame, &attributes, kernel, &target, &error);
  return ons__xla_error_of(frame->api, status, &error, NULL);
}

/* The first run may still have to compile. */
static ons__xla_error* answer_or_execute(const ons__xla_frame* frame, uint32_t traits) {
  if (ons__xla_answer(frame, traits)) return NULL;
  ons__interrupt_hold();
  ons__xla_error* made = execute(frame);
  ons__interrupt_release();
  return made;
}

struct XLA_FFI_Error* ons_xla_cuda_execute(struct XLA_FFI_CallFrame* call_frame) {
  return answer_or_execute((const ons__xla_frame*)call_frame,
                           ONS__XLA_TRAIT_COMMAND_BUFFER);
}

struct XLA_FFI_Error* ons_xla_cuda_execute_nograph(struct XLA_FFI_CallFrame* call_frame) {
  return answer_or_execute((const ons__xla_frame*)call_frame, 0);
}
