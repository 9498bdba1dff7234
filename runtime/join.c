#include "runtime/join.h"

#include "runtime/base/error.h"

static const ons__backend_ops* ops_of(const ons__device* device) {
  return device->backend->ops;
}

ons_status ons__stream_capture(ons__device* device, void* stream,
                               ons__capture_info* out_info, ons_error* error) {
  *out_info = (ons__capture_info){0};
  ons_status status =
      ops_of(device)->capture_state(device, stream, &out_info->state, error);
  if (status || out_info->state != ONS__CAPTURE_ACTIVE) return status;
  return ops_of(device)->capture_info(device, stream, out_info, error);
}

ons_status ons__join_begin(ons__device_entry* entry, bool captured, ons__join* out_join,
                           ons_error* error) {
  out_join->pool = captured ? &entry->captured_events : &entry->events;
  return ons__event_pool_take(out_join->pool, &out_join->event, error);
}

ons_status ons__join_signal(const ons__join* join, void* stream, ons_error* error) {
  ons__device* device = join->pool->device;
  return ops_of(device)->event_record(device, join->event, stream, error);
}

ons_status ons__join_wait(const ons__join* join, void* stream, ons_error* error) {
  ons__device* device = join->pool->device;
  return ops_of(device)->event_wait(device, join->event, stream, error);
}

void ons__join_end(ons__join* join) {
  if (join->event) ons__event_pool_give(join->pool, join->event);
  join->event = NULL;
}

static ons_status refuse_capture(void* waiting, const ons__capture_info* info,
                                 void* signalling, ons_error* error) {
  bool waiting_captured = info->state != ONS__CAPTURE_NONE;
  return ons__error_set(error, ONS_STATUS_CAPTURE,
                        "stream %p cannot wait for stream %p: stream %p is part of a "
                        "capture that the other is not in; the capture is untouched",
                        waiting, signalling, waiting_captured ? waiting : signalling);
}

ons_status ons__stream_join(ons__device_entry* entry, void* waiting, void* signalling,
                            ons_error* error) {
  ons__device* device = entry->device;
  if (ons__streams_match(waiting, signalling)) {
    return ONS_STATUS_OK;
  }
  ons__capture_info info;
  ons__capture_info other;
  ons_status status = ons__stream_capture(device, waiting, &info, error);
  if (!status) status = ons__stream_capture(device, signalling, &other, error);
  if (status) return status;
  if (!ons__captures_match(&info, &other) && ONS__DOES(REFUSE_JOIN)) {
    return refuse_capture(waiting, &info, signalling, error);
  }
  ons__join join = {0};
  status = ons__join_begin(entry, info.state == ONS__CAPTURE_ACTIVE, &join, error);
  if (!status) status = ons__join_signal(&join, signalling, error);
  if (!status) status = ons__join_wait(&join, waiting, error);
  ons__join_end(&join);
  return status;
}
