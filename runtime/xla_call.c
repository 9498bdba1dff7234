#include "runtime/xla_call.h"

#include <onstream/xla.h>

#include "runtime/base/error.h"
#include "runtime/xla_arguments.h"
#include "runtime/xla_registry.h"

/* ---- frames ----------------------------------------------------------------------- */

/* The version is the oldest, which all accept: what is newer is used by the sizes of
 * structs. */
bool ons__xla_answer(const ons__xla_frame* frame, uint32_t traits) {
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

static ONS__COLD ons_status refuse_frame(const ons__xla_frame* frame,
                                         ons__xla_stage stage, ons_error* error) {
  if (frame->struct_size >= ONS__XLA_FRAME_BYTES && frame->api->version.major == 0 &&
      frame->api->struct_size >= ONS__XLA_API_BYTES) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "the handler for stage %d of XLA's calls was called for stage "
                          "%d: register each one for the stage in its name",
                          (int)stage, frame->stage);
  }
  return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                        "XLA's interface for custom calls is of version %d.%d, with a "
                        "frame of %zu bytes and a table of %zu: versions from 0.1 on are "
                        "known; update XLA or onstream",
                        frame->api->version.major, frame->api->version.minor,
                        frame->struct_size, frame->api->struct_size);
}

ons_status ons__xla_frame_read(const ons__xla_frame* frame, ons__xla_stage stage,
                               ons__xla_attributes* out_attributes, ons_error* error) {
  if (frame->struct_size < ONS__XLA_FRAME_BYTES || frame->api->version.major != 0 ||
      frame->api->struct_size < ONS__XLA_API_BYTES || frame->stage != (int)stage) {
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

/* ---- kernels ---------------------------------------------------------------------- */

ons_status ons__xla_frame_instantiate(const ons__xla_frame* frame,
                                      ons_kernel** out_kernel, ons_error* error) {
  ons__xla_attributes attributes;
  ons_launch launch;
  ons_status status =
      ons__xla_frame_read(frame, ONS__XLA_INSTANTIATE, &attributes, error);
  if (!status) status = read_launch(&attributes, &launch, error);
  return status ? status : ons__xla_kernel_get(&attributes, out_kernel, error);
}

ons_status ons__xla_frame_find(const ons__xla_frame* frame, ons__xla_stage stage,
                               ons__xla_attributes* out_attributes,
                               ons_kernel** out_kernel, ons_error* error) {
  ons_status status = ons__xla_frame_read(frame, stage, out_attributes, error);
  if (status) return status;
  *out_kernel = ons__xla_kernel_find(out_attributes);
  return *out_kernel ? ONS_STATUS_OK
                     : ons__xla_kernel_get(out_attributes, out_kernel, error);
}

/* ---- launch ----------------------------------------------------------------------- */

static ons_status launch_with(const ons__xla_frame* frame,
                              const ons__xla_attributes* attributes, ons_kernel* kernel,
                              const ons__xla_target* target,
                              ons__xla_arguments* arguments, ons_error* error) {
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.device = target->device;
  launch.stream = target->stream;
  launch.executor = target->executor;
  ons_status status = read_launch(attributes, &launch, error);
  if (status) return status;
  status = ons__xla_arguments_fill(frame, attributes, target->device, target->stream,
                                   arguments, error);
  if (status) {
    ons__error_prefix(error, "kernel '%s'", kernel->name);
    return status;
  }
  /* On a GPU the launch that most are goes by where the tensors say they are. */
  const bool is_gpu = target->device.device_type != kDLCPU;
  if (is_gpu) launch.flags |= ONS_LAUNCH_STREAM;
  if (!is_gpu || !arguments->has_tensor) launch.flags |= ONS_LAUNCH_DEVICE;
  return ons_kernel_launch(kernel, &launch, arguments->args, arguments->arg_count, error);
}

/* As many as a kernel can have parameters, and the lists that they may be. */
enum { PLAN_MAX = 2 * ONS__PARAMETERS_MAX };

static ONS__NOINLINE ons_status launch_large(const ons__xla_frame* frame,
                                             const ons__xla_attributes* attributes,
                                             ons_kernel* kernel,
                                             const ons__xla_target* target,
                                             ons_error* error) {
  ons__xla_place places[PLAN_MAX];
  ons_arg args[PLAN_MAX];
  ons__xla_arguments arguments = {PLAN_MAX, places, args, 0, false};
  return launch_with(frame, attributes, kernel, target, &arguments, error);
}

ons_status ons__xla_launch(const ons__xla_frame* frame,
                           const ons__xla_attributes* attributes, ons_kernel* kernel,
                           const ons__xla_target* target, ons_error* error) {
  const size_t count = ons__xla_plan_count(attributes);
  if (count > PLAN_MAX) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "kernel '%s': the plan has %zu entries, at most %d are "
                          "supported: pass fewer arguments",
                          kernel->name, count, PLAN_MAX);
  }
  if (count > ONS__COMMON_COUNT) {
    return launch_large(frame, attributes, kernel, target, error);
  }
  ons__xla_place places[ONS__COMMON_COUNT];
  ons_arg args[ONS__COMMON_COUNT];
  ons__xla_arguments arguments = {ONS__COMMON_COUNT, places, args, 0, false};
  return launch_with(frame, attributes, kernel, target, &arguments, error);
}
