/* The handlers that XLA calls. */
#include <onstream/xla.h>

#include "runtime/base/error.h"
#include "runtime/xla_arguments.h"
#include "runtime/xla_error.h"
#include "runtime/xla_registry.h"

/* ---- what every handler begins with ------------------------------------------------ */

/* XLA asks for the version and the traits when a handler is registered, with an otherwise
 * empty frame. The version is the oldest, which all accept: what is newer is used by the
 * sizes of structs. */
static bool answer_query(const ons__xla_frame* frame, uint32_t traits) {
  for (ons__xla_extension* extension = frame->extensions; extension;
       extension = extension->next) {
    if (extension->type != ONS__XLA_EXTENSION_METADATA) continue;
    ons__xla_metadata* metadata = ((ons__xla_metadata_query*)extension)->metadata;
    metadata->version.major = 0;
    metadata->version.minor = 1;
    metadata->traits = traits;
    return true;
  }
  return false;
}

static ONS__COLD ons_status refuse_frame(const ons__xla_frame* frame, int stage,
                                         ons_error* error) {
  if (frame->struct_size >= ONS__XLA_FRAME_BYTES && frame->api->version.major == 0 &&
      frame->api->struct_size >= ONS__XLA_API_BYTES) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "the handler for stage %d of XLA's calls was called for stage "
                          "%d: register each one for the stage in its name",
                          stage, frame->stage);
  }
  return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                        "XLA's interface for custom calls is of version %d.%d, with a "
                        "frame of %zu bytes and a table of %zu: versions from 0.1 on are "
                        "known; update XLA or onstream",
                        frame->api->version.major, frame->api->version.minor,
                        frame->struct_size, frame->api->struct_size);
}

static ons_status read_frame(const ons__xla_frame* frame, int stage,
                             ons__xla_attributes* out_attributes, ons_error* error) {
  if (frame->struct_size < ONS__XLA_FRAME_BYTES || frame->api->version.major != 0 ||
      frame->api->struct_size < ONS__XLA_API_BYTES || frame->stage != stage) {
    return refuse_frame(frame, stage, error);
  }
  return ons__xla_attributes_read(&frame->attributes, out_attributes, error);
}

/* ---- configuration ---------------------------------------------------------------- */

static bool fits_uint32(int64_t value) { return value >= 0 && value <= UINT32_MAX; }

static bool read_extents(const ons__xla_numbers* from, uint32_t* out_extents) {
  if (from->count != 3) return false;
  for (size_t i = 0; i < 3; ++i) {
    if (!fits_uint32(from->values[i])) return false;
    out_extents[i] = (uint32_t)from->values[i];
  }
  return true;
}

static ons_status read_launch(const ons__xla_attributes* attributes,
                              ons_launch* out_launch, ons_error* error) {
  if (read_extents(&attributes->grid, out_launch->grid) &&
      read_extents(&attributes->block, out_launch->block) &&
      fits_uint32(attributes->shared_bytes) && attributes->plan.count % 2 == 0) {
    out_launch->shared_bytes = (uint32_t)attributes->shared_bytes;
    return ONS_STATUS_OK;
  }
  return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                        "kernel '%.*s': 'grid' and 'block' are 3 numbers from 0 to "
                        "4294967295, 'shared_bytes' is one such number, and 'plan' has 2 "
                        "for each entry",
                        (int)attributes->kernel.size_bytes, attributes->kernel.data);
}

/* ---- launch ----------------------------------------------------------------------- */

/* Where a call runs. */
typedef struct place {
  DLDevice device;
  void* stream;
  const ons_executor* executor; /* on the CPU */
} place;

static ons_status launch(const ons__xla_frame* frame,
                         const ons__xla_attributes* attributes, ons_kernel* kernel,
                         const place* where, ons__xla_arguments* arguments,
                         ons_error* error) {
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.flags = ONS_LAUNCH_DEVICE;
  launch.device = where->device;
  launch.executor = where->executor;
  ons_status status = read_launch(attributes, &launch, error);
  if (status) return status;
  status = ons__xla_arguments_fill(frame, attributes, where->device, where->stream,
                                   arguments, error);
  if (status) {
    ons__error_prefix(error, "kernel '%s'", kernel->name);
    return status;
  }
  return ons_kernel_launch(kernel, &launch, arguments->args, arguments->arg_count, error);
}

/* As many as a kernel can have parameters, and the lists that they may be. */
enum { PLAN_MAX = 2 * ONS__PARAMETERS_MAX };

static ONS__NOINLINE ons_status launch_large(const ons__xla_frame* frame,
                                             const ons__xla_attributes* attributes,
                                             ons_kernel* kernel, const place* where,
                                             ons_error* error) {
  ons__xla_place places[PLAN_MAX];
  ons_arg args[PLAN_MAX], items[PLAN_MAX];
  ons__xla_arguments arguments = {PLAN_MAX, places, args, items, 0};
  return launch(frame, attributes, kernel, where, &arguments, error);
}

static ons_status launch_any(const ons__xla_frame* frame,
                             const ons__xla_attributes* attributes, ons_kernel* kernel,
                             const place* where, ons_error* error) {
  const size_t count = ons__xla_plan_count(attributes);
  if (count > PLAN_MAX) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "kernel '%s': the plan has %zu entries, at most %d are "
                          "supported: pass fewer arguments",
                          kernel->name, count, PLAN_MAX);
  }
  if (count > ONS__COMMON_COUNT) {
    return launch_large(frame, attributes, kernel, where, error);
  }
  ons__xla_place places[ONS__COMMON_COUNT];
  ons_arg args[ONS__COMMON_COUNT], items[ONS__COMMON_COUNT];
  ons__xla_arguments arguments = {ONS__COMMON_COUNT, places, args, items, 0};
  return launch(frame, attributes, kernel, where, &arguments, error);
}

/* A call that was instantiated finds its kernel without looking at the source. */
static ons_status find_kernel(const ons__xla_attributes* attributes,
                              ons_kernel** out_kernel, ons_error* error) {
  *out_kernel = ons__xla_kernel_find(attributes);
  return *out_kernel ? ONS_STATUS_OK : ons__xla_kernel_get(attributes, out_kernel, error);
}

/* ---- CPU -------------------------------------------------------------------------- */

/* XLA has no stage between this one and the first run on the CPU. */
static ons_status instantiate_cpu(const ons__xla_frame* frame, ons_blob** out_log,
                                  ons_error* error) {
  ons__xla_attributes attributes;
  ons_launch launch;
  ons_kernel* kernel = NULL;
  ons_status status = read_frame(frame, ONS__XLA_INSTANTIATE, &attributes, error);
  if (!status) status = read_launch(&attributes, &launch, error);
  if (!status) status = ons__xla_kernel_get(&attributes, &kernel, error);
  if (status) return status;
  return ons_kernel_prepare(kernel, (DLDevice){kDLCPU, 0}, out_log, error);
}

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
static ons_status execute_cpu(const ons__xla_frame* frame, ons_error* error) {
  ons__xla_attributes attributes;
  ons_kernel* kernel = NULL;
  ons_status status = read_frame(frame, ONS__XLA_EXECUTE, &attributes, error);
  if (!status) status = find_kernel(&attributes, &kernel, error);
  if (status) return status;
  ons_executor executor = {.schedule = schedule, .user_data = (void*)frame};
  place where = {.device = {kDLCPU, 0}};
  if (frame->api->struct_size >= ONS__XLA_API_WHOLE_BYTES) {
    executor.thread_count = count_threads(frame);
    where.executor = &executor;
  }
  return launch_any(frame, &attributes, kernel, &where, error);
}

struct XLA_FFI_Error* ons_xla_cpu_instantiate(struct XLA_FFI_CallFrame* call_frame) {
  const ons__xla_frame* frame = (const ons__xla_frame*)call_frame;
  if (answer_query(frame, 0)) return NULL;
  ons_error error = ONS_ERROR_INIT;
  ons_blob* log = NULL;
  ons_status status = instantiate_cpu(frame, &log, &error);
  ons__xla_error* made =
      status ? ons__xla_error_create_from(frame->api, &error, log) : NULL;
  ons_blob_release(log);
  return made;
}

struct XLA_FFI_Error* ons_xla_cpu_execute(struct XLA_FFI_CallFrame* call_frame) {
  const ons__xla_frame* frame = (const ons__xla_frame*)call_frame;
  if (answer_query(frame, ONS__XLA_TRAIT_COMMAND_BUFFER)) return NULL;
  ons_error error;
  error.struct_size = sizeof(error);
  ons_status status = execute_cpu(frame, &error);
  return status ? ons__xla_error_create_from(frame->api, &error, NULL) : NULL;
}
