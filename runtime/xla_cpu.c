/* The handlers of XLA's platform "cpu". */
#include <onstream/xla.h>

#include "runtime/base/interrupt.h"
#include "runtime/xla_call.h"
#include "runtime/xla_error.h"

/* ---- instantiate ------------------------------------------------------------------ */

/* Loads too: XLA has no stage between this one and the first run on the CPU. */
static ons_status instantiate(const ons__xla_frame* frame, ons_blob** out_log,
                              ons_error* error) {
  ons_kernel* kernel = NULL;
  ons_status status = ons__xla_frame_instantiate(frame, &kernel, error);
  return status ? status
                : ons_kernel_prepare(kernel, (DLDevice){kDLCPU, 0}, out_log, error);
}

struct XLA_FFI_Error* ons_xla_cpu_instantiate(struct XLA_FFI_CallFrame* call_frame) {
  const ons__xla_frame* frame = (const ons__xla_frame*)call_frame;
  if (ons__xla_answer(frame, 0)) return NULL;
  ons_error error = ONS_ERROR_INIT;
  ons_blob* log = NULL;
  ons__interrupt_hold();
  ons_status status = instantiate(frame, &log, &error);
  ons__interrupt_release();
  return ons__xla_error_of(frame->api, status, &error, log);
}

/* ---- execute ---------------------------------------------------------------------- */

/* A task that XLA does not take is run here: it has to be called once. */
static void schedule(void* frame_pointer, void (*task)(void* data), void* data) {
  const ons__xla_frame* frame = frame_pointer;
  ons__xla_schedule args = {
      .struct_size = sizeof(args), .context = frame->context, .task = task, .data = data};
  ons__xla_error* error = frame->api->thread_schedule(&args);
  if (!error) return;
  ons__xla_error_drop(frame->api, error);
  task(data);
}

static uint32_t count_threads(const ons__xla_frame* frame) {
  int64_t count = 0;
  ons__xla_thread_count args = {
      .struct_size = sizeof(args), .context = frame->context, .count = &count};
  ons__xla_error* error = frame->api->thread_count(&args);
  ons__xla_error_drop(frame->api, error);
  return error || count < 1 ? 1 : (uint32_t)count;
}

/* On XLA's threads, where its version tells how many there are. */
static ons_status execute(const ons__xla_frame* frame, ons_error* error) {
  ons__xla_attributes attributes;
  ons_kernel* kernel = NULL;
  ons_status status =
      ons__xla_frame_find(frame, ONS__XLA_EXECUTE, &attributes, &kernel, error);
  if (status) return status;
  ons_executor executor = {.schedule = schedule, .user_data = (void*)frame};
  ons__xla_target target = {.device = {kDLCPU, 0}};
  if (frame->api->struct_size >= ONS__XLA_API_WHOLE_BYTES) {
    executor.thread_count = count_threads(frame);
    target.executor = &executor;
  }
  return ons__xla_launch(frame, &attributes, kernel, &target, error);
}

struct XLA_FFI_Error* ons_xla_cpu_execute(struct XLA_FFI_CallFrame* call_frame) {
  const ons__xla_frame* frame = (const ons__xla_frame*)call_frame;
  if (ons__xla_answer(frame, ONS__XLA_TRAIT_COMMAND_BUFFER)) return NULL;
  ons_error error;
  error.struct_size = sizeof(error);
  ons__interrupt_hold();
  ons_status status = execute(frame, &error);
  ons__interrupt_release();
  return ons__xla_error_of(frame->api, status, &error, NULL);
}
