/* The driver functions of streams, events and memory. */
#include <string.h>

#include "tests/simgpu/sim_driver.h"
#include "tests/simgpu/sim_graph.h"
#include "tests/simgpu/sim_memory.h"

static void* pointer_of(CUdeviceptr pointer) { return (void*)(uintptr_t)pointer; }

/* The stream behind a handle, noted in the record. */
static sim_stream* find_stream(CUstream handle) {
  sim_record* record = sim_current_record();
  record->stream = handle;
  sim_stream* stream = sim_find_stream(handle);
  if (stream) record->stream_context = stream->context;
  return stream;
}

static CUresult submit(CUstream handle, const sim_work* work) {
  sim_stream* stream = find_stream(handle);
  return stream ? sim_submit(stream, work) : CUDA_ERROR_INVALID_CONTEXT;
}

/* ---- streams ---- */

/* A handle that was destroyed may come back, as a stream that knows nothing of its past.
 */
static sim_stream* make_stream(sim_context* context, bool blocking) {
  sim_stream* stream = sim.simulating ? sim_dead_stream(context, blocking) : NULL;
  if (!stream || sim_random(2)) return sim_new_stream(context, blocking);
  sim_op* last = sim_stream_last(stream);
  if (last) sim_list_add(&context->past, last);
  stream->object.dead = false;
  stream->chain = 0;
  stream->id = ++sim.next_id;
  return stream;
}

CUresult cuStreamCreate(CUstream* out_stream, unsigned int flags) {
  ENTER();
  ENTER_CONTEXT();
  if (flags > CU_STREAM_NON_BLOCKING) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  *out_stream = (CUstream)(void*)make_stream(sim_current, !flags);
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamCreateWithPriority(CUstream* out_stream, unsigned int flags,
                                    int priority) {
  (void)priority;
  return cuStreamCreate(out_stream, flags);
}

/* What it was asked to do is still done. */
CUresult cuStreamDestroy_v2(CUstream handle) {
  ENTER();
  if ((uintptr_t)handle <= 2) return sim_leave(CUDA_ERROR_INVALID_HANDLE);
  sim_stream* stream = sim_check(handle, SIM_STREAM);
  sim_capture_leave(stream);
  stream->object.dead = true;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* out_context) {
  ENTER();
  const sim_stream* stream = sim_find_stream(handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  *out_context = (CUcontext)(void*)stream->context;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* out_device) {
  ENTER();
  const sim_stream* stream = sim_find_stream(handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  *out_device = stream->context->device;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* out_id) {
  ENTER();
  const sim_stream* stream = sim_find_stream(handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  *out_id = stream->id;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxCreate_v2(CUcontext* out_context, unsigned int flags, CUdevice device) {
  ENTER();
  (void)flags;
  sim_current = sim_new_context(device);
  *out_context = (CUcontext)(void*)sim_current;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice* out_device) {
  ENTER();
  ENTER_CONTEXT();
  *out_device = sim_current->device;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user_data) {
  ENTER();
  return sim_leave(submit(
      handle,
      &(sim_work){.kind = SIM_WORK_HOST, .function = function, .user_data = user_data}));
}

/* ---- to wait ---- */

static bool stream_is_done(const sim_stream* stream) {
  if (!sim.simulating) return stream->completed >= stream->enqueued;
  const sim_op* last = sim_stream_last(stream);
  return !last || last->progress == SIM_DONE;
}

/* The legacy stream's own end is after what blocking streams have so far. */
static sim_op* end_of(sim_stream* stream) {
  if (!sim.simulating) return NULL;
  bool is_legacy = stream == stream->context->legacy;
  return is_legacy ? sim_enqueue(stream, &(sim_work){.kind = SIM_WORK_EMPTY}, NULL)
                   : sim_stream_last(stream);
}

static void wait_for(sim_op* op) {
  if (!op) return;
  sim_run_until(op);
  sim_host_learn(op);
}

/* A question about a stream that is being captured, or could be by implication, breaks
 * the capture. */
static CUresult ask_stream(CUstream handle, sim_stream** out_stream) {
  sim_stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult result = sim_stream_usable(stream);
  if (result) return result;
  if (stream->capture) {
    stream->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  *out_stream = stream;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  ENTER_UNSAFE();
  sim_count_sync();
  sim_stream* stream = NULL;
  CUresult result = ask_stream(handle, &stream);
  if (!result) wait_for(end_of(stream));
  return sim_leave(result);
}

CUresult cuStreamQuery(CUstream handle) {
  ENTER_UNSAFE();
  sim_stream* stream = NULL;
  CUresult result = ask_stream(handle, &stream);
  if (result) return sim_leave(result);
  if (!stream_is_done(stream)) return sim_leave(CUDA_ERROR_NOT_READY);
  const sim_op* last = sim.simulating ? sim_stream_last(stream) : NULL;
  if (last) sim_host_learn(last);
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void) {
  ENTER_UNSAFE();
  ENTER_CONTEXT();
  sim_count_sync();
  if (sim.simulating) sim_run_context(sim_current);
  return sim_leave(CUDA_SUCCESS);
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent* out_event, unsigned int flags) {
  ENTER_UNSAFE();
  ENTER_CONTEXT();
  if (flags != CU_EVENT_DISABLE_TIMING && !sim.simulating)
    sim_die("an event with timing");
  sim_event* event = sim_new(SIM_EVENT, sizeof(*event));
  event->context = sim_current;
  *out_event = (CUevent)(void*)event;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy_v2(CUevent handle) {
  ENTER_UNSAFE();
  ((sim_event*)sim_check(handle, SIM_EVENT))->object.dead = true;
  return sim_leave(CUDA_SUCCESS);
}

static void record_into_capture(sim_event* event, const sim_stream* stream) {
  event->stream = NULL;
  event->op = NULL;
  event->capture_id = stream->capture->id;
  event->nodes.count = 0;
  sim_list_append(&event->nodes, &stream->capture_nodes);
}

static CUresult record(CUevent handle, CUstream stream_handle, unsigned int flags) {
  sim_event* event = sim_check(handle, SIM_EVENT);
  sim_current_record()->handle = handle;
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  sim_stream* stream = find_stream(stream_handle);
  if (!stream) return CUDA_ERROR_INVALID_CONTEXT;
  if (stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = sim_stream_usable(stream);
  if (result) return result;
  sim_work work = {.kind = SIM_WORK_RECORD, .event = event};
  if (stream->capture && flags) return sim_submit(stream, &work);
  if (stream->capture) {
    record_into_capture(event, stream);
    return CUDA_SUCCESS;
  }
  event->capture_id = 0;
  event->stream = stream;
  event->position = stream->enqueued;
  if (sim.simulating) event->op = sim_enqueue(stream, &work, NULL);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
  ENTER();
  return sim_leave(record(handle, stream, 0));
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags) {
  ENTER();
  return sim_leave(record(handle, stream, flags));
}

/* The stream becomes part of the event's capture, or is and depends on more. */
static CUresult join_capture(sim_stream* stream, const sim_event* event) {
  sim_capture* capture = sim_capture_find(event->capture_id);
  if (!capture || capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream == stream->context->legacy) {
    capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream->capture && stream->capture != capture) {
    capture->status = stream->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return (CUresult)CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  stream->capture = capture;
  sim_list_append(&stream->capture_nodes, &event->nodes);
  return CUDA_SUCCESS;
}

static void wait_in_order(sim_stream* stream, sim_event* event) {
  if (sim.simulating) {
    if (!event->op) return;
    sim_enqueue(stream, &(sim_work){.kind = SIM_WORK_WAIT, .event = event}, event->op);
    return;
  }
  if (!event->stream) return;
  if (stream->wait_count == sizeof(stream->waits) / sizeof(stream->waits[0])) {
    sim_die("too many waits on a stream");
  }
  stream->waits[stream->wait_count++] =
      (sim_wait){stream->enqueued, event->stream, event->position};
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags) {
  ENTER();
  sim_event* event = sim_check(handle, SIM_EVENT);
  sim_current_record()->handle = handle;
  if (flags > CU_EVENT_WAIT_EXTERNAL) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  sim_stream* stream = find_stream(stream_handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  CUresult result = sim_stream_usable(stream);
  if (result) return sim_leave(result);
  if (event->capture_id) return sim_leave(join_capture(stream, event));
  if (stream->capture && flags) {
    sim_work work = {.kind = SIM_WORK_WAIT, .event = event};
    return sim_leave(sim_submit(stream, &work));
  }
  if (stream->capture) {
    stream->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return sim_leave(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  wait_in_order(stream, event);
  return sim_leave(CUDA_SUCCESS);
}

/* The question breaks the capture, in every mode; afterwards the event stands for
 * nothing.
 */
static CUresult ask_captured(const sim_event* event) {
  sim_capture* capture = sim_capture_find(event->capture_id);
  if (!capture || capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult cuEventQuery(CUevent handle) {
  ENTER_UNSAFE();
  const sim_event* event = sim_check(handle, SIM_EVENT);
  sim_current_record()->handle = handle;
  if (event->capture_id) return sim_leave(ask_captured(event));
  bool done = sim.simulating
                  ? !event->op || event->op->progress == SIM_DONE
                  : !event->stream || event->position <= event->stream->completed;
  if (done && event->op) sim_host_learn(event->op);
  return sim_leave(done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

/* What is captured is found first. */
CUresult cuEventSynchronize(CUevent handle) {
  ENTER();
  sim_count_sync();
  const sim_event* event = sim_check(handle, SIM_EVENT);
  sim_current_record()->handle = handle;
  if (event->capture_id) return sim_leave(ask_captured(event));
  if (!sim_unsafe_call_allowed()) {
    return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  wait_for(event->op);
  return sim_leave(CUDA_SUCCESS);
}

/* ---- memory ---- */

CUresult cuMemAlloc_v2(CUdeviceptr* out_pointer, size_t size_bytes) {
  ENTER_UNSAFE();
  ENTER_CONTEXT();
  if (!size_bytes) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  void* pointer =
      sim_allocate_memory(SIM_MEMORY_DEVICE, sim_current->device, size_bytes, NULL);
  *out_pointer = (CUdeviceptr)(uintptr_t)pointer;
  return sim_leave(CUDA_SUCCESS);
}

/* A real driver may wait for the device here; nobody may count on it. */
CUresult cuMemFree_v2(CUdeviceptr pointer) {
  ENTER_UNSAFE();
  ENTER_CONTEXT();
  if (pointer) {
    sim_host_op(&(sim_work){.kind = SIM_WORK_FREE, .target = pointer_of(pointer)});
  }
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemAllocAsync(CUdeviceptr* out_pointer, size_t size_bytes, CUstream handle) {
  ENTER();
  sim_stream* stream = find_stream(handle);
  if (!stream) return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
  if (!size_bytes) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  CUresult result = sim_stream_usable(stream);
  if (result) return sim_leave(result);
  int device = stream->context->device;
  void* pointer = NULL;
  if (stream->capture) {
    pointer = sim_reserve_memory(device, size_bytes);
    sim_submit(
        stream,
        &(sim_work){.kind = SIM_WORK_ALLOC, .target = pointer, .size_bytes = size_bytes});
  } else {
    /* Without simulation there are no pools to hand memory out again. */
    sim_memory_kind kind = sim.simulating ? SIM_MEMORY_POOL : SIM_MEMORY_DEVICE;
    pointer =
        sim_allocate_memory(kind, device, size_bytes, sim.simulating ? stream : NULL);
  }
  *out_pointer = (CUdeviceptr)(uintptr_t)pointer;
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  ENTER();
  return sim_leave(
      submit(handle, &(sim_work){.kind = SIM_WORK_FREE, .target = pointer_of(pointer)}));
}

static CUresult fill(CUdeviceptr target, uint32_t value, uint32_t value_bytes,
                     size_t count, CUstream handle) {
  return submit(handle, &(sim_work){.kind = SIM_WORK_FILL,
                                    .target = pointer_of(target),
                                    .size_bytes = count * value_bytes,
                                    .value = value,
                                    .value_bytes = value_bytes});
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count,
                         CUstream stream) {
  ENTER();
  return sim_leave(fill(target, value, 1, count, stream));
}

CUresult cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count,
                          CUstream stream) {
  ENTER();
  return sim_leave(fill(target, value, 4, count, stream));
}

static CUresult copy(void* target, const void* source, size_t size_bytes,
                     CUstream stream) {
  return submit(stream, &(sim_work){.kind = SIM_WORK_COPY,
                                    .target = target,
                                    .source = source,
                                    .size_bytes = size_bytes});
}

/* Pageable memory is read before the call returns. */
static CUresult copy_in(void* target, const void* source, size_t size_bytes,
                        CUstream handle) {
  sim_stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_CONTEXT;
  if (sim.simulating && !stream->capture && !sim_mapped_bytes(source)) {
    void* staged = sim_arena(size_bytes);
    if (size_bytes) memcpy(staged, source, size_bytes);
    source = staged;
  }
  return copy(target, source, size_bytes, handle);
}

/* Pageable memory is written before the call returns. */
static CUresult copy_out(void* target, const void* source, size_t size_bytes,
                         CUstream handle) {
  CUresult result = copy(target, source, size_bytes, handle);
  sim_stream* stream = sim_find_stream(handle);
  if (result || !sim.simulating || stream->capture || sim_mapped_bytes(target)) {
    return result;
  }
  sim_count_sync();
  wait_for(sim_stream_last(stream));
  return result;
}

CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t size_bytes,
                       CUstream stream) {
  ENTER();
  return sim_leave(copy(pointer_of(target), pointer_of(source), size_bytes, stream));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size_bytes,
                              CUstream stream) {
  ENTER();
  return sim_leave(copy(pointer_of(target), pointer_of(source), size_bytes, stream));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void* source, size_t size_bytes,
                              CUstream stream) {
  ENTER();
  return sim_leave(copy_in(pointer_of(target), source, size_bytes, stream));
}

CUresult cuMemcpyDtoHAsync_v2(void* target, CUdeviceptr source, size_t size_bytes,
                              CUstream stream) {
  ENTER();
  return sim_leave(copy_out(target, pointer_of(source), size_bytes, stream));
}

static CUresult copy_and_wait(void* target, const void* source, size_t size_bytes) {
  CUresult result = copy(target, source, size_bytes, NULL);
  sim_count_sync();
  if (!result && sim.simulating) wait_for(sim_stream_last(sim_current->legacy));
  return result;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void* source, size_t size_bytes) {
  ENTER_UNSAFE();
  return sim_leave(copy_and_wait(pointer_of(target), source, size_bytes));
}

CUresult cuMemcpyDtoH_v2(void* target, CUdeviceptr source, size_t size_bytes) {
  ENTER_UNSAFE();
  return sim_leave(copy_and_wait(target, pointer_of(source), size_bytes));
}
