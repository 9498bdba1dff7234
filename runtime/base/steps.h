/* The steps that order and lifetime consist of, for the tests of those tests: a build
 * with ONS_TEST_STEPS can leave out each of them, and something must be seen to go wrong.
 * In any other build a step is the constant 1, and there is nothing of this. */
#ifndef ONS_RUNTIME_BASE_STEPS_H_
#define ONS_RUNTIME_BASE_STEPS_H_

/* XX(NAME, what is done) */
#define ONS__STEPS(XX)                                                                   \
  XX(JOIN_BEFORE, "the launch stream waits for the other streams of the arguments")      \
  XX(JOIN_AFTER, "those wait for the launch")                                            \
  XX(JOIN_OUTPUT, "the stream of an output is joined under trust, too")                  \
  XX(CANONICAL_STREAM, "0 and 1 are one stream")                                         \
  XX(REFUSE_STRICT, "strict refuses two streams")                                        \
  XX(REFUSE_CAPTURE, "streams in and out of a capture are refused")                      \
  XX(REFUSE_UNKNOWN, "an unknown stream is refused in a capture")                        \
  XX(REFUSE_LEGACY, "the legacy stream is refused while a blocking one is captured")     \
  XX(REFUSE_MANAGED, "managed memory is refused on default streams of two devices")      \
  XX(REFUSE_WRITE, "a write is refused where the producer's stream is unknown")          \
  XX(LOOK_FIRST, "what is refused is refused before a producer is asked")                \
  XX(ASK_WITH_STREAM, "an unknown producer is asked to order itself")                    \
  XX(ASK_JAX, "JAX is told the stream under trust, too")                                 \
  XX(ARROW_WAIT, "the event of an Arrow array is waited for")                            \
  XX(ARROW_CAPTURE, "in a capture an Arrow array with an event is refused")              \
  XX(LOOK_AT_DEVICE, "what is of another device is refused before it is asked")          \
  XX(OWN_CAPTURE, "onstream's own memory does not go back into a capture")               \
  XX(ZERO_LOOK, "what is refused is refused before it is filled with zeros")             \
  XX(BORROW_AGAIN, "what was borrowed before Python code ran is borrowed again")         \
  XX(USE_STREAM, "use_stream decides where a launch goes")                               \
  XX(EVENTS_WAIT, "the caller's events are waited for")                                  \
  XX(EVENTS_SIGNAL, "the caller's events are recorded")                                  \
  XX(RETAIN_CAPSULE, "a capsule outlives the call")                                      \
  XX(RETIRE, "what is kept is kept until the device is past it")                         \
  XX(RETIRE_QUERY, "whether the device is past it is asked")                             \
  XX(RETIRE_EVENT, "an event that is waited for is used for nothing else")               \
  XX(RETIRE_GRAPH, "under capture the graph keeps it")                                   \
  XX(POLL, "launches give back what the device is past")                                 \
  XX(RELAX_HOUSEKEEPING, "housekeeping harms no capture")                                \
  XX(RELAX_CREATION, "creating an event harms no capture")                               \
  XX(SPECIAL_CONTEXT, "events and questions use the device's own default stream")        \
  XX(LAUNCH_CONTEXT, "launches use the device's own default stream")                     \
  XX(RESTORE_CONTEXT, "the current context is put back")                                 \
  XX(MOVE_EVENT, "an event follows its stream into another context")                     \
  XX(REFUSE_JOIN, "a tensor's streams in and out of a capture are refused")              \
  XX(TENSOR_JOIN_IN, "a tensor's home stream waits for its producer's")                  \
  XX(TENSOR_JOIN_BACK, "at its release the producer's waits for the home stream")        \
  XX(TENSOR_KEEP, "a tensor released without order is kept until the device is past it") \
  XX(TENSOR_SAME_STREAM, "memory goes back at once only to the stream it came from")     \
  XX(TENSOR_CAPTURE, "memory does not go back at once into a capture")                   \
  XX(TENSOR_ALONE, "memory does not go back at once while others refer to it")           \
  XX(TENSOR_AGAIN, "after its graph, a tensor from before the capture is kept again")    \
  XX(TENSOR_THREAD,                                                                      \
     "the per-thread stream of another thread is not taken for this one's")              \
  XX(TENSOR_LOOK, "a tensor of an unknown stream is refused in a capture")

#ifdef ONS_TEST_STEPS

#include <stdbool.h>

typedef enum ons__step_name {
#define ONS__STEP_NAME(name, words) ONS__DOES_##name,
  ONS__STEPS(ONS__STEP_NAME)
#undef ONS__STEP_NAME
} ons__step_name;

extern bool ons__steps_left_out[];

/* Is the step done? */
#define ONS__DOES(name) (!ons__steps_left_out[ONS__DOES_##name])

#else

#define ONS__DOES(name) 1

#endif

#endif /* ONS_RUNTIME_BASE_STEPS_H_ */
