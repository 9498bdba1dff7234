/* Small programs over the driver API, of which the results are the same on every correct
 * driver: what the simulation does is compared with what a real GPU did.
 *
 *   conformance LIBRARY             prints a line of JSON for each program
 *   conformance LIBRARY RECORDED    compares; 77 when there is no such file
 *
 * It stands alone: gcc -D_GNU_SOURCE conformance.c -ldl -lpthread. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the driver ---- */

typedef unsigned long long device_pointer;
typedef void (*host_function)(void* user_data);
typedef struct handle_type* handle;

typedef struct kernel_node {
  handle function;
  unsigned int grid[3];
  unsigned int block[3];
  unsigned int shared_bytes;
  void** parameters;
  void** extra;
  handle kernel;
  handle context;
} kernel_node;

#define FUNCTIONS(XX)                                                                    \
  XX(cuInit, (unsigned int))                                                             \
  XX(cuDevicePrimaryCtxRetain, (handle*, int))                                           \
  XX(cuCtxSetCurrent, (handle))                                                          \
  XX(cuCtxSynchronize, (void))                                                           \
  XX(cuCtxCreate_v2, (handle*, unsigned int, int))                                       \
  XX(cuModuleLoadData, (handle*, const void*))                                           \
  XX(cuModuleGetFunction, (handle*, handle, const char*))                                \
  XX(cuMemAlloc_v2, (device_pointer*, size_t))                                           \
  XX(cuMemFree_v2, (device_pointer))                                                     \
  XX(cuMemAllocAsync, (device_pointer*, size_t, handle))                                 \
  XX(cuMemFreeAsync, (device_pointer, handle))                                           \
  XX(cuMemcpyDtoH_v2, (void*, device_pointer, size_t))                                   \
  XX(cuMemcpyHtoDAsync_v2, (device_pointer, const void*, size_t, handle))                \
  XX(cuMemcpyDtoHAsync_v2, (void*, device_pointer, size_t, handle))                      \
  XX(cuMemcpyDtoDAsync_v2, (device_pointer, device_pointer, size_t, handle))             \
  XX(cuMemsetD8Async, (device_pointer, unsigned char, size_t, handle))                   \
  XX(cuMemsetD32Async, (device_pointer, unsigned int, size_t, handle))                   \
  XX(cuStreamCreate, (handle*, unsigned int))                                            \
  XX(cuStreamDestroy_v2, (handle))                                                       \
  XX(cuStreamSynchronize, (handle))                                                      \
  XX(cuStreamQuery, (handle))                                                            \
  XX(cuStreamWaitEvent, (handle, handle, unsigned int))                                  \
  XX(cuStreamIsCapturing, (handle, int*))                                                \
  XX(cuStreamBeginCapture_v2, (handle, int))                                             \
  XX(cuStreamEndCapture, (handle, handle*))                                              \
  XX(cuStreamGetCaptureInfo_v3,                                                          \
     (handle, int*, uint64_t*, handle*, const handle**, const void**, size_t*))          \
  XX(cuStreamUpdateCaptureDependencies_v2,                                               \
     (handle, handle*, const void*, size_t, unsigned int))                               \
  XX(cuThreadExchangeStreamCaptureMode, (int*))                                          \
  XX(cuEventCreate, (handle*, unsigned int))                                             \
  XX(cuEventDestroy_v2, (handle))                                                        \
  XX(cuEventRecord, (handle, handle))                                                    \
  XX(cuEventRecordWithFlags, (handle, handle, unsigned int))                             \
  XX(cuEventQuery, (handle))                                                             \
  XX(cuEventSynchronize, (handle))                                                       \
  XX(cuLaunchHostFunc, (handle, host_function, void*))                                   \
  XX(cuLaunchKernel, (handle, unsigned int, unsigned int, unsigned int, unsigned int,    \
                      unsigned int, unsigned int, unsigned int, handle, void**, void**)) \
  XX(cuGraphCreate, (handle*, unsigned int))                                             \
  XX(cuGraphDestroy, (handle))                                                           \
  XX(cuGraphAddKernelNode_v2,                                                            \
     (handle*, handle, const handle*, size_t, const kernel_node*))                       \
  XX(cuGraphAddEmptyNode, (handle*, handle, const handle*, size_t))                      \
  XX(cuGraphAddDependencies_v2,                                                          \
     (handle, const handle*, const handle*, const void*, size_t))                        \
  XX(cuGraphGetNodes, (handle, handle*, size_t*))                                        \
  XX(cuGraphNodeGetType, (handle, int*))                                                 \
  XX(cuGraphNodeGetDependencies_v2, (handle, handle*, void*, size_t*))                   \
  XX(cuGraphInstantiateWithFlags, (handle*, handle, unsigned long long))                 \
  XX(cuGraphExecKernelNodeSetParams_v2, (handle, handle, const kernel_node*))            \
  XX(cuGraphLaunch, (handle, handle))                                                    \
  XX(cuGraphExecDestroy, (handle))                                                       \
  XX(cuUserObjectCreate, (handle*, void*, host_function, unsigned int, unsigned int))    \
  XX(cuUserObjectRelease, (handle, unsigned int))                                        \
  XX(cuGraphRetainUserObject, (handle, handle, unsigned int, unsigned int))

#define DECLARE(name, parameters) static int(*name) parameters;
FUNCTIONS(DECLARE)

static void load_driver(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
#define LOAD(name, parameters)                      \
  *(void**)(void*)&name = dlsym(library, #name);    \
  if (!name) {                                      \
    fprintf(stderr, "%s has no %s\n", path, #name); \
    exit(1);                                        \
  }
  FUNCTIONS(LOAD)
}

/* ---- what a program tells ---- */

static char line[4096];
static size_t line_length;

__attribute__((format(printf, 1, 2))) static void tell(const char* format, ...) {
  va_list args;
  va_start(args, format);
  int length = vsnprintf(line + line_length, sizeof(line) - line_length, format, args);
  va_end(args);
  line_length += (size_t)length;
  if (line_length >= sizeof(line)) abort();
}

static void tell_value(const char* what, long long value) {
  tell("%s\"%s %lld\"", line[line_length - 1] == '[' ? "" : ", ", what, value);
}

static void fail(int line_number, const char* call, int result) {
  if (!line_length) {
    fprintf(stderr, "line %d: %s: %d\n", line_number, call, result);
    exit(1);
  }
  tell_value(call, result);
}

/* A call whose result is told, and one that should succeed. */
#define TELL(call) tell_value(#call, (call))
#define MUST(call)                               \
  do {                                           \
    int result_ = (call);                        \
    if (result_) fail(__LINE__, #call, result_); \
  } while (0)

/* ---- what programs use ---- */

enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { BYTES = 64, WAIT_NS = 3000000 };

/* set: *p = v. add: *p += v. copy: *p = *(uint64_t*)v. stall: for v nanoseconds. */
static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry conf_set(.param .u64 set_p, .param .u64 set_v) {\n"
    ".reg .b64 %rd<4>;\n"
    "ld.param.u64 %rd1, [set_p];\nld.param.u64 %rd2, [set_v];\n"
    "st.global.u64 [%rd1], %rd2;\nret;\n}\n"
    ".visible .entry conf_add(.param .u64 add_p, .param .u64 add_v) {\n"
    ".reg .b64 %rd<4>;\n"
    "ld.param.u64 %rd1, [add_p];\nld.param.u64 %rd2, [add_v];\n"
    "ld.volatile.global.u64 %rd3, [%rd1];\nadd.u64 %rd3, %rd3, %rd2;\n"
    "st.global.u64 [%rd1], %rd3;\nret;\n}\n"
    ".visible .entry conf_copy(.param .u64 copy_p, .param .u64 copy_v) {\n"
    ".reg .b64 %rd<4>;\n"
    "ld.param.u64 %rd1, [copy_p];\nld.param.u64 %rd2, [copy_v];\n"
    "ld.volatile.global.u64 %rd3, [%rd2];\n"
    "st.global.u64 [%rd1], %rd3;\nret;\n}\n"
    ".visible .entry conf_stall(.param .u64 stall_p, .param .u64 stall_v) {\n"
    ".reg .b64 %rd<5>;\n.reg .pred %p<2>;\n"
    "ld.param.u64 %rd1, [stall_v];\nmov.u64 %rd2, %globaltimer;\n"
    "LOOP:\nmov.u64 %rd3, %globaltimer;\nsub.u64 %rd4, %rd3, %rd2;\n"
    "setp.lt.u64 %p1, %rd4, %rd1;\n@%p1 bra LOOP;\nret;\n}\n";

static handle primary;
static handle set, add, copy, stall;
/* Two non-blocking streams and a blocking one, fresh for each program. */
static handle a, b, blocking;
static handle event, other_event;
static device_pointer x, y;

static int launch_shape(handle kernel, handle stream, device_pointer pointer,
                        uint64_t value, unsigned grid, unsigned block) {
  void* parameters[] = {&pointer, &value};
  return cuLaunchKernel(kernel, grid, 1, 1, block, 1, 1, 0, stream, parameters, NULL);
}

static int launch(handle kernel, handle stream, device_pointer pointer, uint64_t value) {
  return launch_shape(kernel, stream, pointer, value, 1, 1);
}

static void slow_set(handle stream, device_pointer pointer, uint64_t value) {
  MUST(launch(stall, stream, 0, WAIT_NS));
  MUST(launch(set, stream, pointer, value));
}

static void join(handle later, handle earlier) {
  MUST(cuEventRecord(event, earlier));
  MUST(cuStreamWaitEvent(later, event, 0));
}

static long long value_of(device_pointer pointer) {
  uint64_t value = 0;
  MUST(cuCtxSynchronize());
  MUST(cuMemcpyDtoH_v2(&value, pointer, sizeof(value)));
  return (long long)value;
}

static int begin_capture(handle stream, int mode) {
  return cuStreamBeginCapture_v2(stream, mode);
}

static int end_capture(handle stream) {
  handle graph = NULL;
  int result = cuStreamEndCapture(stream, &graph);
  if (graph) MUST(cuGraphDestroy(graph));
  return result;
}

static handle captured(handle stream) {
  handle graph = NULL, exec = NULL;
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  return exec;
}

static int capture_state(handle stream) {
  int state = 0;
  int result = cuStreamIsCapturing(stream, &state);
  return result ? result : state;
}

/* ---- order ---- */

static void stream_order(void) {
  slow_set(a, x, 1);
  MUST(launch(add, a, x, 1));
  MUST(cuMemsetD32Async(y, 5, 1, a));
  MUST(cuMemcpyDtoDAsync_v2(y + 8, x, 8, a));
  tell_value("x", value_of(x));
  tell_value("y", value_of(y) & 0xffffffff);
  tell_value("y+8", value_of(y + 8));
}

static void event_order(void) {
  slow_set(a, x, 1);
  join(b, a);
  MUST(launch(copy, b, y, x));
  join(a, b);
  MUST(launch(set, a, x, 2));
  tell_value("x", value_of(x));
  tell_value("y", value_of(y));
}

static void legacy_waits_for_blocking(void) {
  slow_set(blocking, x, 1);
  MUST(launch(add, NULL, x, 1));
  tell_value("x", value_of(x));
}

static void blocking_waits_for_legacy(void) {
  slow_set(NULL, x, 1);
  MUST(launch(add, blocking, x, 1));
  tell_value("x", value_of(x));
}

static void legacy_and_per_thread(void) {
  slow_set((handle)1, x, 1);
  MUST(launch(add, (handle)2, x, 1));
  MUST(launch(add, NULL, x, 1));
  tell_value("x", value_of(x));
}

static void wait_binds_the_record(void) {
  MUST(cuStreamWaitEvent(b, event, 0));
  slow_set(a, x, 1);
  MUST(cuEventRecord(event, a));
  MUST(cuStreamWaitEvent(b, event, 0));
  MUST(launch(stall, a, 0, WAIT_NS));
  MUST(cuEventRecord(event, a));
  MUST(launch(copy, b, y, x));
  MUST(cuStreamSynchronize(b));
  TELL(cuEventQuery(event)); /* the second record has not passed */
  tell_value("y", value_of(y));
}

static void questions(void) {
  TELL(cuEventQuery(event));
  TELL(cuEventSynchronize(event));
  TELL(cuStreamQuery(a));
  MUST(launch(stall, a, 0, 10 * WAIT_NS));
  MUST(cuEventRecord(event, a));
  TELL(cuEventQuery(event));
  TELL(cuStreamQuery(a));
  TELL(cuStreamQuery(b));
  TELL(cuEventSynchronize(event));
  TELL(cuEventQuery(event));
  TELL(cuStreamQuery(a));
}

static void legacy_question(void) {
  MUST(launch(stall, blocking, 0, 10 * WAIT_NS));
  MUST(cuStreamSynchronize(NULL));
  TELL(cuStreamQuery(blocking));
}

static void increment(void* user_data) { atomic_fetch_add((atomic_int*)user_data, 1); }

static void host_functions(void) {
  atomic_int count = 0;
  MUST(launch(stall, a, 0, WAIT_NS));
  MUST(cuLaunchHostFunc(a, increment, &count));
  tell_value("before", count);
  MUST(cuStreamSynchronize(a));
  tell_value("after", count);
}

static void pageable_copies(void) {
  uint64_t value = 7, back = 0;
  MUST(launch(stall, a, 0, WAIT_NS));
  MUST(cuMemcpyHtoDAsync_v2(x, &value, 8, a));
  value = 8;
  MUST(launch(add, a, x, 1));
  MUST(cuMemcpyDtoHAsync_v2(&back, x, 8, a));
  tell_value("back", (long long)back);
}

static void destroyed_stream(void) {
  handle stream = NULL;
  MUST(cuStreamCreate(&stream, 1));
  slow_set(stream, x, 3);
  TELL(cuStreamDestroy_v2(stream));
  tell_value("x", value_of(x));
}

static void bad_arguments(void) {
  handle stream = NULL;
  TELL(cuStreamCreate(&stream, 8));
  TELL(cuStreamWaitEvent(a, event, 4));
  TELL(cuEventRecordWithFlags(event, a, 4));
  TELL(launch_shape(set, a, x, 1, 0, 1));
  TELL(launch_shape(set, a, x, 1, 1, 1025));
  TELL(begin_capture(a, 3));
  TELL(launch(set, a, x, 9));
  tell_value("x", value_of(x));
}

static void* without_context(void* argument) {
  (void)argument;
  handle made = NULL;
  int state = 0;
  TELL(launch(set, a, x, 4));
  TELL(launch(set, NULL, x, 5));
  TELL(launch(set, (handle)2, x, 5));
  TELL(cuEventCreate(&made, 2));
  TELL(cuStreamIsCapturing(NULL, &state));
  TELL(cuEventRecord(event, a));
  TELL(cuStreamWaitEvent(b, event, 0));
  return NULL;
}

static void on_thread(void* (*function)(void*), void* argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, function, argument)) abort();
  pthread_join(thread, NULL);
}

static void no_context(void) {
  on_thread(without_context, NULL);
  tell_value("x", value_of(x));
}

/* ---- capture ---- */

static void capture_and_replay(void) {
  MUST(begin_capture(a, GLOBAL));
  slow_set(a, x, 7);
  join(b, a);
  MUST(launch(copy, b, y, x));
  join(a, b);
  MUST(launch(add, a, x, 1));
  tell_value("state of b", capture_state(b));
  handle exec = captured(a);
  tell_value("state of b", capture_state(b));
  MUST(cuGraphLaunch(exec, a));
  MUST(cuGraphLaunch(exec, b));
  TELL(cuGraphExecDestroy(exec));
  tell_value("x", value_of(x));
  tell_value("y", value_of(y));
}

static void capture_begin_and_end(void) {
  TELL(begin_capture(NULL, GLOBAL));
  TELL(end_capture(a));
  TELL(begin_capture(a, GLOBAL));
  TELL(begin_capture(a, GLOBAL));
  TELL(end_capture(a));
  TELL(begin_capture((handle)2, GLOBAL));
  TELL(end_capture((handle)2));
}

static void capture_isolation(void) {
  MUST(cuEventRecord(event, b));
  MUST(begin_capture(a, GLOBAL));
  TELL(cuStreamWaitEvent(a, event, 0));
  TELL(capture_state(a));
  TELL(launch(set, a, x, 1));
  TELL(cuEventRecord(event, a));
  TELL(end_capture(a));
  TELL(capture_state(a));
}

static void capture_unjoined(void) {
  MUST(begin_capture(a, GLOBAL));
  join(b, a);
  TELL(end_capture(a));
  MUST(begin_capture(a, GLOBAL));
  join(b, a);
  MUST(launch(set, b, x, 1));
  TELL(end_capture(a));
  TELL(capture_state(b));
}

static void capture_unmatched(void) {
  MUST(begin_capture(a, GLOBAL));
  join(b, a);
  TELL(end_capture(b));
  TELL(capture_state(a));
  TELL(end_capture(a));
}

static void capture_merge(void) {
  MUST(begin_capture(a, GLOBAL));
  MUST(begin_capture(b, GLOBAL));
  MUST(cuEventRecord(event, a));
  TELL(cuStreamWaitEvent(b, event, 0));
  TELL(capture_state(a));
  TELL(capture_state(b));
  TELL(end_capture(a));
  TELL(end_capture(b));
}

static void* end_here(void* result) {
  *(int*)result = end_capture(a);
  return NULL;
}

static void capture_other_thread_ends(void) {
  for (int mode = GLOBAL; mode <= RELAXED; ++mode) {
    int result = 0;
    MUST(begin_capture(a, mode));
    on_thread(end_here, &result);
    tell_value("there", result);
    TELL(capture_state(a));
    TELL(end_capture(a));
  }
}

/* Calls that a capture forbids, in each mode; each in a capture of its own. */
static void capture_forbids(void) {
  device_pointer memory = 0;
  MUST(cuEventRecord(event, b));
  for (int mode = GLOBAL; mode <= RELAXED; ++mode) {
    MUST(begin_capture(a, mode));
    TELL(cuStreamSynchronize(b));
    TELL(end_capture(a));
    MUST(begin_capture(a, mode));
    TELL(cuStreamQuery(b));
    TELL(end_capture(a));
    MUST(begin_capture(a, mode));
    TELL(cuEventQuery(event));
    TELL(end_capture(a));
    MUST(begin_capture(a, mode));
    TELL(cuEventSynchronize(event));
    TELL(end_capture(a));
    MUST(begin_capture(a, mode));
    memory = 0;
    TELL(cuMemAlloc_v2(&memory, BYTES));
    TELL(end_capture(a));
    if (memory) MUST(cuMemFree_v2(memory));
  }
}

static void* synchronise(void* result) {
  *(int*)result = cuStreamSynchronize(b);
  return NULL;
}

static void* synchronise_relaxed(void* result) {
  int mode = RELAXED;
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  *(int*)result = cuStreamSynchronize(b);
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  return NULL;
}

static void capture_forbids_other_threads(void) {
  for (int mode = GLOBAL; mode <= RELAXED; ++mode) {
    int result = 0;
    MUST(begin_capture(a, mode));
    on_thread(synchronise, &result);
    tell_value("there", result);
    TELL(end_capture(a));
    MUST(begin_capture(a, mode));
    on_thread(synchronise_relaxed, &result);
    tell_value("there, relaxed", result);
    TELL(end_capture(a));
  }
}

static void capture_relaxed_exchange(void) {
  MUST(cuEventRecord(other_event, b));
  MUST(begin_capture(a, GLOBAL));
  int mode = RELAXED;
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  tell_value("mode", mode);
  TELL(cuStreamSynchronize(b));
  TELL(cuEventQuery(other_event));
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  tell_value("mode", mode);
  TELL(end_capture(a));
}

static void capture_itself_is_asked(void) {
  MUST(begin_capture(a, RELAXED));
  TELL(cuStreamQuery(a));
  TELL(end_capture(a));
  MUST(begin_capture(a, RELAXED));
  TELL(cuStreamSynchronize(a));
  TELL(end_capture(a));
}

static void capture_and_legacy(void) {
  MUST(begin_capture(blocking, GLOBAL));
  TELL(capture_state(NULL));
  TELL(capture_state(blocking));
  TELL(launch(set, NULL, x, 1));
  TELL(capture_state(blocking));
  TELL(end_capture(blocking));
  MUST(begin_capture(blocking, GLOBAL));
  TELL(cuEventRecord(event, NULL));
  TELL(end_capture(blocking));
  MUST(begin_capture(a, GLOBAL));
  TELL(capture_state(NULL));
  TELL(launch(set, NULL, x, 1));
  TELL(end_capture(a));
}

static void captured_events(void) {
  MUST(begin_capture(a, RELAXED));
  MUST(cuEventRecord(event, a));
  TELL(cuEventQuery(event));
  TELL(capture_state(a));
  TELL(cuEventSynchronize(event));
  TELL(end_capture(a));
  TELL(cuEventQuery(event));
  TELL(cuStreamWaitEvent(b, event, 0));
  MUST(cuEventRecord(event, b));
  MUST(cuEventSynchronize(event));
  TELL(cuEventQuery(event));
}

static void events_of_a_capture_that_ended(void) {
  MUST(begin_capture(a, GLOBAL));
  MUST(cuEventRecord(event, a));
  MUST(cuEventRecord(other_event, a));
  TELL(cuEventSynchronize(event));
  TELL(cuStreamWaitEvent(b, event, 0)); /* of a broken capture */
  TELL(end_capture(a));
  MUST(begin_capture(a, GLOBAL));
  MUST(cuEventRecord(event, a));
  TELL(end_capture(a));
  TELL(cuEventQuery(event));
  TELL(cuEventSynchronize(event));
  TELL(cuStreamWaitEvent(b, event, 0));
  TELL(capture_state(b));
}

static void capture_rejected_launch(void) {
  MUST(begin_capture(a, GLOBAL));
  TELL(launch_shape(set, a, x, 1, 1, 1025));
  TELL(capture_state(a));
  TELL(end_capture(a));
}

/* What is of another context than the stream is refused, and the capture goes on. */
static void capture_in_another_context(void) {
  handle context = NULL, stream = NULL, own_event = NULL;
  MUST(cuCtxCreate_v2(&context, 0, 0));
  MUST(cuStreamCreate(&stream, 1));
  MUST(cuEventCreate(&own_event, 2));
  MUST(cuCtxSetCurrent(primary));
  TELL(launch(set, stream, x, 1));
  TELL(cuEventRecord(event, stream));
  for (int mode = GLOBAL; mode <= RELAXED; ++mode) {
    MUST(begin_capture(stream, mode));
    TELL(launch(set, stream, x, 1));
    TELL(cuEventRecord(event, stream));
    TELL(capture_state(stream));
    TELL(cuEventRecord(own_event, stream));
    TELL(end_capture(stream));
  }
}

static void capture_information(void) {
  int state = 0;
  handle graph = NULL, node = NULL;
  const handle* nodes = NULL;
  size_t count = 9;
  MUST(begin_capture(a, GLOBAL));
  MUST(launch(set, a, x, 1));
  MUST(cuStreamGetCaptureInfo_v3(a, &state, NULL, &graph, &nodes, NULL, &count));
  tell_value("state", state);
  tell_value("dependencies", (long long)count);
  MUST(cuGraphAddEmptyNode(&node, graph, nodes, count));
  TELL(cuStreamUpdateCaptureDependencies_v2(a, &node, NULL, 1, 0));
  MUST(cuStreamGetCaptureInfo_v3(a, &state, NULL, &graph, &nodes, NULL, &count));
  tell_value("dependencies", (long long)count);
  TELL(cuStreamUpdateCaptureDependencies_v2(a, &node, NULL, 1, 1));
  MUST(launch(add, a, x, 1));
  MUST(cuStreamGetCaptureInfo_v3(a, &state, NULL, &graph, &nodes, NULL, &count));
  tell_value("dependencies", (long long)count);
  node = nodes[0];
  TELL(cuGraphNodeGetDependencies_v2(node, NULL, NULL, &count));
  tell_value("of the node", (long long)count);
  handle exec = captured(a);
  MUST(cuGraphLaunch(exec, a));
  tell_value("x", value_of(x));
  MUST(cuGraphExecDestroy(exec));
  TELL(cuStreamUpdateCaptureDependencies_v2(a, NULL, NULL, 0, 1));
}

static void capture_memory(void) {
  device_pointer memory = 0;
  MUST(begin_capture(a, GLOBAL));
  TELL(cuMemAllocAsync(&memory, BYTES, a));
  MUST(launch(set, a, memory, 6));
  MUST(launch(copy, a, y, memory));
  TELL(cuMemFreeAsync(memory, a));
  handle exec = captured(a);
  TELL(cuGraphLaunch(exec, a));
  TELL(cuGraphLaunch(exec, b));
  tell_value("y", value_of(y));
  MUST(cuGraphExecDestroy(exec));
}

static void external_events(void) {
  MUST(begin_capture(a, GLOBAL));
  TELL(cuStreamWaitEvent(a, event, 1));
  MUST(launch(copy, a, y, x));
  TELL(cuEventRecordWithFlags(other_event, a, 1));
  handle exec = captured(a);
  slow_set(b, x, 5);
  MUST(cuEventRecord(event, b));
  MUST(cuGraphLaunch(exec, a));
  MUST(cuStreamWaitEvent(b, other_event, 0));
  MUST(launch(set, b, x, 6));
  tell_value("y", value_of(y));
  tell_value("x", value_of(x));
  MUST(cuGraphExecDestroy(exec));
}

/* ---- graphs ---- */

static kernel_node node_of(handle kernel, void** parameters) {
  return (kernel_node){.function = kernel,
                       .grid = {1, 1, 1},
                       .block = {1, 1, 1},
                       .parameters = parameters};
}

static handle add_node(handle graph, const handle* after, handle kernel, uint64_t value) {
  void* parameters[] = {&x, &value};
  kernel_node params = node_of(kernel, parameters);
  handle node = NULL;
  MUST(cuGraphAddKernelNode_v2(&node, graph, after, after ? 1 : 0, &params));
  return node;
}

static void explicit_graph(void) {
  handle graph = NULL, exec = NULL;
  size_t count = 0;
  int type = -1;
  MUST(cuGraphCreate(&graph, 0));
  handle one = add_node(graph, NULL, set, 5);
  handle two = add_node(graph, &one, add, 1);
  MUST(cuGraphGetNodes(graph, NULL, &count));
  tell_value("nodes", (long long)count);
  MUST(cuGraphNodeGetType(two, &type));
  tell_value("type", type);
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, a));
  tell_value("x", value_of(x));
  uint64_t value = 10;
  void* parameters[] = {&x, &value};
  kernel_node params = node_of(add, parameters);
  MUST(launch(stall, a, 0, WAIT_NS));
  MUST(cuGraphLaunch(exec, a));
  TELL(cuGraphExecKernelNodeSetParams_v2(exec, two, &params));
  MUST(cuStreamSynchronize(a));
  tell_value("x", value_of(x));
  MUST(cuGraphLaunch(exec, a));
  tell_value("x", value_of(x));
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
}

static void graph_refusals(void) {
  handle graph = NULL, other = NULL, exec = NULL, node = NULL;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphCreate(&other, 0));
  handle one = add_node(graph, NULL, set, 5);
  TELL(cuGraphAddEmptyNode(&node, other, &one, 1));
  TELL(cuGraphCreate(&node, 1));
  MUST(cuGraphAddEmptyNode(&node, graph, &one, 1));
  MUST(cuGraphInstantiateWithFlags(&exec, other, 0));
  uint64_t value = 1;
  void* parameters[] = {&x, &value};
  kernel_node params = node_of(add, parameters);
  TELL(cuGraphExecKernelNodeSetParams_v2(exec, one, &params));
  TELL(cuGraphLaunch(exec, a)); /* of nothing */
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
  MUST(cuGraphDestroy(other));
}

static void graph_of_a_circle(void) {
  handle graph = NULL, exec = NULL;
  MUST(cuGraphCreate(&graph, 0));
  handle one = add_node(graph, NULL, set, 5);
  handle two = add_node(graph, &one, add, 1);
  MUST(cuGraphAddDependencies_v2(graph, &two, &one, NULL, 1));
  TELL(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
}

/* A destructor runs some time after the last reference has gone. */
static int reaches(const atomic_int* count, int target) {
  const struct timespec pause = {.tv_nsec = 1000000};
  for (int i = 0; i < 2000 && atomic_load(count) < target; ++i) nanosleep(&pause, NULL);
  return atomic_load(count);
}

static void user_objects(void) {
  atomic_int count = 0;
  handle graph = NULL, object = NULL;
  MUST(begin_capture(a, GLOBAL));
  MUST(launch(stall, a, 0, 10 * WAIT_NS));
  MUST(cuStreamEndCapture(a, &graph));
  TELL(cuUserObjectCreate(&object, &count, increment, 1, 1));
  TELL(cuGraphRetainUserObject(graph, object, 1, 1));
  handle exec = NULL;
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  tell_value("after the graph", count);
  MUST(cuGraphLaunch(exec, a));
  MUST(cuGraphExecDestroy(exec));
  tell_value("during the launch", count);
  MUST(cuStreamSynchronize(a));
  tell_value("after the launch", reaches(&count, 1));
  MUST(cuUserObjectCreate(&object, &count, increment, 1, 1));
  MUST(cuUserObjectRelease(object, 1));
  tell_value("released", reaches(&count, 2));
}

static void pool_reuse(void) {
  device_pointer one = 0, two = 0;
  MUST(cuMemAllocAsync(&one, BYTES, a));
  MUST(launch(set, a, one, 3));
  MUST(launch(copy, a, y, one));
  MUST(cuMemFreeAsync(one, a));
  MUST(cuMemAllocAsync(&two, BYTES, a));
  tell_value("the same", one == two);
  MUST(launch(set, a, two, 4));
  MUST(cuMemFreeAsync(two, a));
  tell_value("y", value_of(y));
}

/* ---- all of them ---- */

typedef struct program {
  const char* name;
  void (*run)(void);
} program;

#define ENTRY(name) \
  { #name, name }
static const program programs[] = {ENTRY(stream_order),
                                   ENTRY(event_order),
                                   ENTRY(legacy_waits_for_blocking),
                                   ENTRY(blocking_waits_for_legacy),
                                   ENTRY(legacy_and_per_thread),
                                   ENTRY(wait_binds_the_record),
                                   ENTRY(questions),
                                   ENTRY(legacy_question),
                                   ENTRY(host_functions),
                                   ENTRY(pageable_copies),
                                   ENTRY(destroyed_stream),
                                   ENTRY(bad_arguments),
                                   ENTRY(no_context),
                                   ENTRY(capture_and_replay),
                                   ENTRY(capture_begin_and_end),
                                   ENTRY(capture_isolation),
                                   ENTRY(capture_unjoined),
                                   ENTRY(capture_unmatched),
                                   ENTRY(capture_merge),
                                   ENTRY(capture_other_thread_ends),
                                   ENTRY(capture_forbids),
                                   ENTRY(capture_forbids_other_threads),
                                   ENTRY(capture_relaxed_exchange),
                                   ENTRY(capture_itself_is_asked),
                                   ENTRY(capture_and_legacy),
                                   ENTRY(captured_events),
                                   ENTRY(events_of_a_capture_that_ended),
                                   ENTRY(capture_rejected_launch),
                                   ENTRY(capture_in_another_context),
                                   ENTRY(capture_information),
                                   ENTRY(capture_memory),
                                   ENTRY(external_events),
                                   ENTRY(explicit_graph),
                                   ENTRY(graph_refusals),
                                   ENTRY(graph_of_a_circle),
                                   ENTRY(user_objects),
                                   ENTRY(pool_reuse)};

static void run_program(const program* one) {
  line_length = 0;
  tell("{\"program\": \"%s\", \"results\": [", one->name);
  MUST(cuStreamCreate(&a, 1));
  MUST(cuStreamCreate(&b, 1));
  MUST(cuStreamCreate(&blocking, 0));
  MUST(cuEventCreate(&event, 2));
  MUST(cuEventCreate(&other_event, 2));
  MUST(cuMemsetD8Async(x, 0, BYTES, NULL));
  MUST(cuMemsetD8Async(y, 0, BYTES, NULL));
  MUST(cuCtxSynchronize());
  one->run();
  const handle streams[] = {a, b, blocking};
  for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); ++i) {
    if (capture_state(streams[i])) end_capture(streams[i]); /* of a program gone wrong */
    MUST(cuStreamDestroy_v2(streams[i]));
  }
  MUST(cuCtxSynchronize());
  MUST(cuEventDestroy_v2(event));
  MUST(cuEventDestroy_v2(other_event));
  tell("]}");
}

/* ---- the simulation: its kernels, and its order the laziest ---- */

typedef struct kernel_call {
  const char* kernel;
  void* stream;
  void* context;
  int device;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  uint32_t parameter_count;
  const uint32_t* parameter_sizes;
  const uint32_t* parameter_offsets;
  const uint8_t* parameters;
} kernel_call;

static void run_kernel(void* user_data, const kernel_call* call) {
  const char* kind = user_data;
  uint64_t* pointer = NULL;
  uint64_t value = 0;
  memcpy(&pointer, call->parameters, 8);
  memcpy(&value, call->parameters + 8, 8);
  if (strcmp(kind, "set") == 0) *pointer = value;
  if (strcmp(kind, "add") == 0) *pointer += value;
  if (strcmp(kind, "copy") == 0) *pointer = *(const uint64_t*)(uintptr_t)value;
}

static void prepare_simulation(const char* path) {
  void (*begin)(uint64_t) = NULL;
  void (*eagerness)(int) = NULL;
  void (*declare)(const char*, const char*) = NULL;
  void (*define)(const char*, void (*)(void*, const kernel_call*), void*) = NULL;
  void* library = dlopen(path, RTLD_NOW);
  *(void**)(void*)&begin = dlsym(library, "sim_schedule_begin");
  *(void**)(void*)&eagerness = dlsym(library, "sim_set_eagerness");
  *(void**)(void*)&declare = dlsym(library, "sim_declare_kernel");
  *(void**)(void*)&define = dlsym(library, "sim_register_kernel");
  if (!begin || !eagerness || !declare || !define) return;
  begin(1);
  eagerness(0);
  static char* const kinds[] = {"set", "add", "copy", "stall"};
  static const char* const access[] = {"wv", "uv", "wr", "-v"};
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
    char name[32];
    snprintf(name, sizeof(name), "conf_%s", kinds[i]);
    declare(name, access[i]);
    define(name, run_kernel, kinds[i]);
  }
}

static void prepare(void) {
  handle module = NULL;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&primary, 0));
  MUST(cuCtxSetCurrent(primary));
  MUST(cuModuleLoadData(&module, ptx));
  MUST(cuModuleGetFunction(&set, module, "conf_set"));
  MUST(cuModuleGetFunction(&add, module, "conf_add"));
  MUST(cuModuleGetFunction(&copy, module, "conf_copy"));
  MUST(cuModuleGetFunction(&stall, module, "conf_stall"));
  MUST(cuMemAlloc_v2(&x, BYTES));
  MUST(cuMemAlloc_v2(&y, BYTES));
}

/* Programs that the recording does not know yet are not compared. */
static int differs(FILE* recorded) {
  static char known[sizeof(line) + 2];
  size_t name_length = strcspn(line, "[");
  rewind(recorded);
  while (fgets(known, sizeof(known), recorded)) {
    known[strcspn(known, "\n")] = '\0';
    if (strncmp(known, line, name_length) != 0) continue;
    if (strcmp(known, line) == 0) return 0;
    printf("recorded: %s\nnow:      %s\n", known, line);
    return 1;
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: %s LIBRARY [RECORDED]\n", argv[0]);
    return 2;
  }
  FILE* recorded = argc == 3 ? fopen(argv[2], "r") : NULL;
  if (argc == 3 && !recorded) {
    printf(
        "skipped: %s is not there; it is the output of this program with the real "
        "libcuda.so.1\n",
        argv[2]);
    return 77;
  }
  load_driver(argv[1]);
  prepare_simulation(argv[1]);
  prepare();
  int failures = 0;
  for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); ++i) {
    run_program(&programs[i]);
    if (recorded) {
      failures += differs(recorded);
    } else {
      printf("%s\n", line);
      fflush(stdout);
    }
  }
  if (recorded) fclose(recorded);
  return failures != 0;
}
