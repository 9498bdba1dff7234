/* One stream after another, on the device: the host never waits. */
#ifndef ONS_RUNTIME_JOIN_H_
#define ONS_RUNTIME_JOIN_H_

#include "runtime/backend.h"
#include "runtime/base/steps.h"
#include "runtime/runtime.h"

/* One stream has one canonical handle: 1 names the legacy default stream as 0 does. */
static inline const void* ons__stream_canonical(const void* stream) {
  return (uintptr_t)stream == 1 && ONS__DOES(CANONICAL_STREAM) ? NULL : stream;
}

static inline bool ons__streams_match(const void* stream, const void* other) {
  return ons__stream_canonical(stream) == ons__stream_canonical(other);
}

/* Whether, and into which graph, a stream is being captured. Touches nothing. */
ons_status ons__stream_capture(ons__device* device, void* stream,
                               ons__capture_info* out_info, ons_error* error);

/* Streams can wait for each other when neither is being captured, or both into the same
 * graph. */
static inline bool ons__captures_match(const ons__capture_info* one,
                                       const ons__capture_info* other) {
  return one->state == other->state && one->state != ONS__CAPTURE_ELSEWHERE &&
         one->graph == other->graph;
}

/* An event in use between two streams. */
typedef struct ons__join {
  ons__event_pool* pool;
  void* event;
} ons__join;

/* `captured`: both streams are. Ended by ons__join_end, which accepts what is all zero.
 */
ons_status ons__join_begin(ons__device_entry* entry, bool captured, ons__join* out_join,
                           ons_error* error);
/* What `stream` holds now ... */
ons_status ons__join_signal(const ons__join* join, void* stream, ons_error* error);
/* ... is what later work on `stream` waits for. */
ons_status ons__join_wait(const ons__join* join, void* stream, ons_error* error);
void ons__join_end(ons__join* join);

/* All of it for two streams: later work on `waiting` waits for all that `signalling`
 * holds now. CAPTURE, with nothing touched, where only one of them is being captured. */
ons_status ons__stream_join(ons__device_entry* entry, void* waiting, void* signalling,
                            ons_error* error);

#endif /* ONS_RUNTIME_JOIN_H_ */
