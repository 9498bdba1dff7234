/* Tensors that are kept: their order on the way in and out, and when the producer gets
 * its memory back. On the stand-in driver. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <onstream/onstream.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simgpu/sim_driver.h"

static const char source[] = "__global__ void touch(float* x) { x[0] = 1; }";

static ons_runtime* runtime;
static ons_module* module;
static ons_kernel* touch;
static ons_error error = ONS_ERROR_INIT;
static void *home, *producer, *other;
static int deleted;
static int64_t shape[] = {2, 3};
static float memory[6];

/* Managed tensors that count how often they are deleted. */

static void delete_versioned(DLManagedTensorVersioned* self) {
  ++deleted;
  free(self);
}

static void delete_legacy(DLManagedTensor* self) {
  ++deleted;
  free(self);
}

static DLTensor tensor_on(DLDeviceType type) {
  return (DLTensor){.data = memory,
                    .device = {type, 0},
                    .ndim = 2,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = shape};
}

static DLManagedTensorVersioned* make_versioned(DLDeviceType type) {
  DLManagedTensorVersioned* managed = calloc(1, sizeof(*managed));
  managed->version.major = 1;
  managed->deleter = delete_versioned;
  managed->dl_tensor = tensor_on(type);
  return managed;
}

static DLManagedTensor* make_legacy(DLDeviceType type) {
  DLManagedTensor* managed = calloc(1, sizeof(*managed));
  managed->deleter = delete_legacy;
  managed->dl_tensor = tensor_on(type);
  return managed;
}

static void setup(void) {
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.cuda_driver_path = ONS_TEST_SIMGPU_PATH;
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, &error), 0), "%s",
            error.message);
  home = sim_stream_create(sim_primary_context(0), 1);
  producer = sim_stream_create(sim_primary_context(0), 1);
  other = sim_stream_create(sim_primary_context(0), 1);
}

static void teardown(void) {
  ons_kernel_release(touch);
  ons_module_release(module);
  ons_runtime_collect(runtime);
  ons_runtime_release(runtime);
}

TestSuite(tensor_object, .init = setup, .fini = teardown);

static const ons_tensor_options joined = {
    .struct_size = sizeof(joined),
    .flags = ONS_TENSOR_STREAM | ONS_TENSOR_PRODUCER_STREAM};

static ons_status create(ons_tensor_options options, DLManagedTensorVersioned* managed,
                         ons_tensor** out_tensor) {
  error = (ons_error)ONS_ERROR_INIT;
  options.versioned = managed;
  if (!options.stream) options.stream = home;
  if (!options.producer_stream) options.producer_stream = producer;
  return ons_tensor_create(runtime, &options, out_tensor, &error);
}

/* On the home stream, from the producer's. */
static ons_tensor* import(void) {
  ons_tensor* tensor = NULL;
  cr_assert(eq(int, create(joined, make_versioned(kDLCUDA), &tensor), 0), "%s",
            error.message);
  sim_clear_records();
  return tensor;
}

static void cr_expect_joined(void* waiting, void* signalling) {
  const sim_record* record = sim_last("cuEventRecord");
  const sim_record* wait = sim_last("cuStreamWaitEvent");
  cr_assert(record && wait, "no join");
  cr_expect(eq(ptr, record->stream, signalling));
  cr_expect(eq(ptr, wait->stream, waiting));
  cr_expect(eq(ptr, record->handle, wait->handle));
  cr_expect(record < wait);
}

static void cr_expect_nothing_enqueued(void) {
  cr_expect(eq(sz, sim_call_count("cuEventRecord"), 0));
  cr_expect(eq(sz, sim_call_count("cuStreamWaitEvent"), 0));
}

/* ---- uses ------------------------------------------------------------------------- */

/* For tests in which a stream is busy: what it does is a kernel. */
static void prepare(void) {
  cr_assert(eq(int, ons_module_create(runtime, source, NULL, &module, &error), 0));
  cr_assert(eq(int, ons_module_kernel(module, "touch", &touch, &error), 0));
  ons_status status = ons_kernel_prepare(touch, (DLDevice){kDLCUDA, 0}, NULL, &error);
  if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
  cr_assert(eq(int, status, 0), "%s", error.message);
  sim_clear_records();
}

static void use(const ons_tensor* tensor, void* stream) {
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.flags = ONS_LAUNCH_STREAM;
  launch.stream = stream;
  ons_arg arg;
  ons_tensor_arg(tensor, &arg);
  cr_assert(eq(int, ons_kernel_launch(touch, &launch, &arg, 1, &error), 0), "%s",
            error.message);
}

/* ---- on the way in ---------------------------------------------------------------- */

Test(tensor_object, the_home_stream_waits_for_the_producer) {
  ons_tensor* tensor = NULL;
  cr_assert(eq(int, create(joined, make_versioned(kDLCUDA), &tensor), 0), "%s",
            error.message);
  cr_expect_joined(home, producer);
  cr_expect(eq(sz, sim_call_count("cuEventRecord"), 1));
  cr_expect(eq(sz, sim_call_count("cuStreamWaitEvent"), 1));
  ons_arg arg;
  ons_tensor_arg(tensor, &arg);
  cr_expect(eq(u32, arg.kind, ONS_ARG_TENSOR));
  cr_expect(eq(u32, arg.flags, ONS_ARG_STREAM_KNOWN));
  cr_expect(eq(ptr, arg.stream, home));
  cr_expect(eq(ptr, (void*)arg.value.tensor, (void*)ons_tensor_dltensor(tensor)));
  cr_expect(eq(ptr, ons_tensor_dltensor(tensor)->data, memory));
  ons_tensor_release(tensor);
}

Test(tensor_object, one_stream_needs_no_join) {
  ons_tensor* tensor = NULL;
  ons_tensor_options options = joined;
  options.flags = ONS_TENSOR_PRODUCER_STREAM; /* which is then the home stream */
  cr_assert(eq(int, create(options, make_versioned(kDLCUDA), &tensor), 0));
  cr_expect_nothing_enqueued();
  ons_arg arg;
  ons_tensor_arg(tensor, &arg);
  cr_expect(eq(ptr, arg.stream, producer));
  ons_tensor_release(tensor);
  sim_clear_records();
  options = joined; /* two names of the legacy stream */
  options.versioned = make_versioned(kDLCUDA);
  options.producer_stream = (void*)1;
  cr_assert(eq(int, ons_tensor_create(runtime, &options, &tensor, &error), 0));
  cr_expect_nothing_enqueued();
  ons_tensor_release(tensor);
}

Test(tensor_object, ordered_by_its_producer) {
  ons_tensor* tensor = NULL;
  ons_tensor_options options = joined;
  options.flags = ONS_TENSOR_STREAM | ONS_TENSOR_ORDERED;
  cr_assert(eq(int, create(options, make_versioned(kDLCUDA), &tensor), 0));
  cr_expect_nothing_enqueued();
  ons_tensor_release(tensor);
}

Test(tensor_object, of_unknown_order_is_refused) {
  ons_tensor* tensor = NULL;
  ons_tensor_options options = joined;
  options.flags = ONS_TENSOR_STREAM;
  DLManagedTensorVersioned* managed = make_versioned(kDLCUDA);
  cr_expect(eq(int, create(options, managed, &tensor), ONS_STATUS_ORDER));
  cr_expect(tensor == NULL);
  cr_expect(eq(int, deleted, 0), "it is the caller's still");
  delete_versioned(managed);
}

Test(tensor_object, host_memory_touches_no_driver) {
  const DLDeviceType types[] = {kDLCPU, kDLCUDAHost};
  for (int i = 0; i < 2; ++i) {
    ons_tensor* tensor = NULL;
    ons_tensor_options options = ONS_TENSOR_OPTIONS_INIT;
    options.flags = ONS_TENSOR_READ_ONLY | ONS_TENSOR_REQUIRES_GRAD;
    options.legacy = make_legacy(types[i]);
    cr_assert(eq(int, ons_tensor_create(runtime, &options, &tensor, &error), 0));
    ons_arg arg;
    ons_tensor_arg(tensor, &arg);
    cr_expect(eq(u32, arg.flags, ONS_ARG_READ_ONLY | ONS_ARG_REQUIRES_GRAD));
    cr_assert(eq(int, ons_tensor_release_to(tensor, producer, &error), 0));
    cr_expect(eq(int, deleted, i + 1), "nothing is behind a launch on the CPU");
  }
  cr_expect(eq(sz, sim_record_count(), 0));
}

Test(tensor_object, a_failed_join_leaves_all_as_it_was) {
  const char* const calls[] = {"cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"};
  for (int i = 0; i < 3; ++i) {
    ons_tensor* tensor = NULL;
    DLManagedTensorVersioned* managed = make_versioned(kDLCUDA);
    sim_inject(calls[i], 1, 1);
    cr_expect(eq(int, create(joined, managed, &tensor), ONS_STATUS_DEVICE));
    cr_expect(eq(str, (char*)error.native_call, (char*)calls[i]));
    cr_expect(eq(int, deleted, 0));
    managed->deleter(managed);
    deleted = 0;
  }
}

/* ---- release ---------------------------------------------------------------------- */

Test(tensor_object, deleted_when_the_device_is_past_its_uses) {
  prepare();
  ons_tensor* tensor = import();
  use(tensor, home);
  ons_tensor_release(tensor);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 1));
  cr_expect(eq(int, deleted, 0));
  sim_complete(home);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 0));
  cr_expect(eq(int, deleted, 1));
  cr_expect(eq(sz, sim_call_count("cuStreamSynchronize"), 0));
}

/* The home stream stands for a use elsewhere: launches join it before and after. */
Test(tensor_object, uses_on_other_streams_are_covered) {
  prepare();
  ons_tensor* tensor = import();
  use(tensor, other);
  cr_expect_joined(home, other);
  use(tensor, home);
  ons_tensor_release(tensor);
  sim_complete(home);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 1));
  cr_expect(eq(int, deleted, 0));
  sim_complete(other);
  sim_complete(home);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 0));
  cr_expect(eq(int, deleted, 1));
}

Test(tensor_object, an_ordered_release_gives_the_memory_back_at_once) {
  prepare();
  ons_tensor* tensor = import();
  use(tensor, home);
  cr_assert(eq(int, ons_tensor_release_to(tensor, producer, &error), 0), "%s",
            error.message);
  cr_expect_joined(producer, home);
  cr_expect(eq(int, deleted, 1));
  cr_expect(eq(sz, ons_runtime_collect(runtime), 0));
}

/* An allocator reuses memory in the order of the stream that the memory is of. */
Test(tensor_object, released_to_another_stream_than_it_came_from) {
  prepare();
  ons_tensor* tensor = import();
  use(tensor, home);
  cr_assert(eq(int, ons_tensor_release_to(tensor, other, &error), 0));
  const sim_record* wait = sim_last("cuStreamWaitEvent");
  cr_assert(wait != NULL);
  cr_expect(eq(ptr, wait->stream, other));
  cr_expect(eq(int, deleted, 0));
  sim_complete(home);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, deleted, 1));
}

Test(tensor_object, an_ordered_release_of_one_reference_of_two) {
  prepare();
  ons_tensor* tensor = import();
  ons_tensor_retain(tensor);
  cr_assert(eq(int, ons_tensor_release_to(tensor, producer, &error), 0));
  cr_expect_joined(producer, home);
  use(tensor, home); /* which the producer does not wait for */
  ons_tensor_release(tensor);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, deleted, 0));
  sim_complete(home);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, deleted, 1));
}

Test(tensor_object, a_failed_ordered_release_keeps_the_reference) {
  ons_tensor* tensor = import();
  sim_inject("cuStreamWaitEvent", 1, 1);
  cr_expect(eq(int, ons_tensor_release_to(tensor, producer, &error), ONS_STATUS_DEVICE));
  cr_expect(eq(int, deleted, 0));
  cr_expect(eq(int, ons_tensor_release_to(tensor, producer, &error), 0));
  cr_expect(eq(int, deleted, 1));
}

/* What may still be in use is not freed too early, whatever fails. */
Test(tensor_object, a_release_that_cannot_be_recorded_is_tried_again) {
  prepare();
  ons_tensor* tensor = import();
  use(tensor, home);
  sim_inject("cuEventRecord", 1, 1);
  ons_tensor_release(tensor);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 1));
  cr_expect(eq(int, deleted, 0));
  sim_complete(home);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, deleted, 1));
}

Test(tensor_object, outlives_what_it_was_made_with) {
  ons_tensor* tensor = import();
  ons_runtime_release(runtime);
  ons_tensor_release(tensor);
  cr_expect(eq(int, deleted, 1));
  runtime = NULL;
}

enum { THREADS = 8, ROUNDS = 200 };

static void* retain_and_release(void* argument) {
  ons_tensor* tensor = argument;
  for (int i = 0; i < ROUNDS; ++i) {
    ons_tensor_retain(tensor);
    ons_arg arg;
    ons_tensor_arg(tensor, &arg);
    ons_tensor_release(tensor);
  }
  ons_tensor_release(tensor);
  return NULL;
}

Test(tensor_object, is_shared_by_threads) {
  pthread_t threads[THREADS];
  ons_tensor* tensor = import();
  for (int i = 0; i < THREADS; ++i) {
    ons_tensor_retain(tensor);
    cr_assert(eq(int, pthread_create(&threads[i], NULL, retain_and_release, tensor), 0));
  }
  ons_tensor_release(tensor);
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, deleted, 1));
}

Test(tensor_object, references_are_counted) {
  ons_tensor* tensor = import();
  cr_expect(eq(u64, ons_tensor_reference_count(tensor), 1));
  DLManagedTensorVersioned* view = NULL;
  cr_assert(eq(int, ons_tensor_export(tensor, NULL, 0, &view, &error), ONS_STATUS_OK));
  ons_tensor_retain(tensor);
  cr_expect(eq(u64, ons_tensor_reference_count(tensor), 3));
  view->deleter(view);
  ons_tensor_release(tensor);
  cr_expect(eq(u64, ons_tensor_reference_count(tensor), 1));
  cr_expect(eq(u64, ons_tensor_reference_count(NULL), 0));
  ons_tensor_release(tensor);
}

/* ---- capture ---------------------------------------------------------------------- */

Test(tensor_object, no_import_between_a_capture_and_its_outside) {
  void* const captured[] = {home, producer};
  for (int i = 0; i < 2; ++i) {
    ons_tensor* tensor = NULL;
    DLManagedTensorVersioned* managed = make_versioned(kDLCUDA);
    sim_capture_begin(captured[i], SIM_CAPTURE_GLOBAL);
    sim_clear_records();
    cr_expect(eq(int, create(joined, managed, &tensor), ONS_STATUS_CAPTURE));
    char name[32];
    snprintf(name, sizeof(name), "%p", home);
    cr_expect(strstr(error.message, name) != NULL, "%s", error.message);
    snprintf(name, sizeof(name), "%p", producer);
    cr_expect(strstr(error.message, name) != NULL, "%s", error.message);
    cr_expect_nothing_enqueued();
    cr_expect(eq(int, sim_capture_status(captured[i]), 1));
    cr_expect(eq(int, deleted, 0));
    sim_graph_destroy(sim_capture_end(captured[i]));
    delete_versioned(managed);
    deleted = 0;
  }
}

static ons_tensor* import_on_home(void) {
  ons_tensor* tensor = NULL;
  ons_tensor_options options = joined;
  options.producer_stream = home;
  cr_assert(eq(int, create(options, make_versioned(kDLCUDA), &tensor), 0), "%s",
            error.message);
  return tensor;
}

Test(tensor_object, within_one_capture) {
  for (int ordered = 0; ordered < 2; ++ordered) {
    deleted = 0;
    sim_capture_begin(home, SIM_CAPTURE_GLOBAL);
    ons_tensor* tensor = import_on_home();
    if (ordered) {
      cr_assert(eq(int, ons_tensor_release_to(tensor, home, &error), 0), "%s",
                error.message);
    } else {
      ons_tensor_release(tensor);
    }
    cr_expect(eq(int, sim_capture_status(home), 1));
    ons_runtime_collect(runtime);
    void* graph = sim_capture_end(home);
    cr_assert(graph != NULL);
    ons_runtime_collect(runtime);
    cr_expect(eq(int, deleted, 0), "the graph may run again and again");
    sim_graph_destroy(graph);
    sim_clear_records();
    ons_runtime_collect(runtime);
    cr_expect(eq(int, deleted, 1));
    for (size_t i = 0; i < sim_record_count(); ++i) {
      cr_expect(ne(ptr, sim_record_at(i)->stream, home), "the stream may be gone by now");
    }
  }
}

Test(tensor_object, released_in_a_capture_with_earlier_work_under_way) {
  prepare();
  ons_tensor* tensor = import();
  use(tensor, home);
  sim_capture_begin(home, SIM_CAPTURE_GLOBAL);
  use(tensor, home);
  ons_tensor_release(tensor);
  cr_expect(eq(int, sim_capture_status(home), 1));
  sim_graph_destroy(sim_capture_end(home));
  ons_runtime_collect(runtime);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, deleted, 0), "the first use is still to run");
  sim_complete(home);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, deleted, 1));
}

Test(tensor_object, no_ordered_release_out_of_a_capture) {
  ons_tensor* tensor = import();
  void* const captured[] = {home, producer};
  for (int i = 0; i < 2; ++i) {
    sim_capture_begin(captured[i], SIM_CAPTURE_GLOBAL);
    sim_clear_records();
    cr_expect(
        eq(int, ons_tensor_release_to(tensor, producer, &error), ONS_STATUS_CAPTURE));
    cr_expect_nothing_enqueued();
    cr_expect(eq(int, deleted, 0));
    void* graph = sim_capture_end(captured[i]);
    cr_assert(graph != NULL, "the capture was lost");
    sim_graph_destroy(graph);
  }
  cr_expect(eq(int, ons_tensor_release_to(tensor, producer, &error), 0));
  cr_expect(eq(int, deleted, 1));
}

/* The legacy stream cannot be touched while a stream that synchronises with it is being
 * captured. */
Test(tensor_object, released_while_its_stream_is_untouchable) {
  sim_set_current(sim_primary_context(0));
  void* blocking = sim_stream_create(sim_primary_context(0), 0);
  ons_tensor_options options = joined;
  options.flags = ONS_TENSOR_PRODUCER_STREAM;
  options.versioned = make_versioned(kDLCUDA);
  ons_tensor* tensor = NULL;
  cr_assert(eq(int, ons_tensor_create(runtime, &options, &tensor, &error), 0));
  sim_capture_begin(blocking, SIM_CAPTURE_GLOBAL);
  sim_clear_records();
  ons_tensor_release(tensor);
  cr_expect_nothing_enqueued();
  cr_expect(eq(sz, ons_runtime_collect(runtime), 1));
  cr_expect(eq(int, sim_capture_status(blocking), 1));
  cr_expect(eq(int, deleted, 0));
  sim_graph_destroy(sim_capture_end(blocking));
  ons_runtime_collect(runtime);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, deleted, 1));
}

Test(tensor_object, released_in_a_broken_capture) {
  ons_tensor* tensor = import();
  sim_capture_begin(home, SIM_CAPTURE_GLOBAL);
  sim_set_current(sim_primary_context(0));
  sim_inject("cuStreamIsCapturing", 1, 901);
  ons_tensor_release(tensor);
  cr_expect(eq(sz, ons_runtime_collect(runtime), 0), "tied to the graph by now");
  sim_graph_destroy(sim_capture_end(home));
  ons_runtime_collect(runtime);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, deleted, 1));
}

/* As an allocator may do that has memory left over. */
static void delete_by_driver(DLManagedTensorVersioned* self) {
  CUdeviceptr spare = 0;
  sim_set_current(sim_primary_context(0));
  cr_expect(eq(int, (int)cuMemAlloc_v2(&spare, 64), 0));
  cr_expect(eq(int, (int)cuMemFree_v2(spare), 0));
  delete_versioned(self);
}

static void* whole_life(void* argument) {
  (void)argument;
  for (int ordered = 0; ordered < 2; ++ordered) {
    DLManagedTensorVersioned* managed = make_versioned(kDLCUDA);
    managed->deleter = delete_by_driver;
    ons_tensor* tensor = NULL;
    cr_assert(eq(int, create(joined, managed, &tensor), 0));
    if (ordered) {
      cr_assert(eq(int, ons_tensor_release_to(tensor, producer, &error), 0));
    } else {
      ons_tensor_release(tensor);
    }
  }
  ons_runtime_collect(runtime);
  return NULL;
}

Test(tensor_object, harms_no_capture_of_another_thread) {
  sim_capture_begin(other, SIM_CAPTURE_GLOBAL);
  pthread_t thread;
  cr_assert(eq(int, pthread_create(&thread, NULL, whole_life, NULL), 0));
  pthread_join(thread, NULL);
  cr_expect(eq(int, deleted, 2));
  cr_expect(eq(int, sim_capture_status(other), 1));
  sim_graph_destroy(sim_capture_end(other));
}

Test(tensor_object, streams_under_capture) {
  const DLDevice cuda = {kDLCUDA, 0};
  void* blocking = sim_stream_create(sim_primary_context(0), 0);
  uint32_t captured = 7;
  cr_assert(eq(int, ons_stream_is_captured(runtime, cuda, home, &captured, &error), 0));
  cr_expect(eq(u32, captured, 0));
  sim_capture_begin(blocking, SIM_CAPTURE_GLOBAL);
  void* const streams[] = {home, blocking, NULL};
  const uint32_t expected[] = {0, 1, 1};
  for (int i = 0; i < 3; ++i) {
    cr_assert(
        eq(int, ons_stream_is_captured(runtime, cuda, streams[i], &captured, &error), 0));
    cr_expect(eq(u32, captured, expected[i]), "%d", i);
  }
  cr_expect(eq(int, sim_capture_status(blocking), 1));
  sim_graph_destroy(sim_capture_end(blocking));
  const DLDevice cpu = {kDLCPU, 0};
  cr_expect(eq(int, ons_stream_is_captured(runtime, cpu, home, &captured, &error),
               ONS_STATUS_UNSUPPORTED));
  cr_expect(eq(int, ons_stream_is_captured(NULL, cuda, home, &captured, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(eq(int, ons_stream_is_captured(runtime, cuda, home, NULL, &error),
               ONS_STATUS_INVALID_ARGUMENT));
}

/* ---- what comes in ---------------------------------------------------------------- */

Test(tensor_object, the_deleter_is_called_once) {
  for (int i = 0; i < 4; ++i) {
    bool versioned = i % 2, ordered = i / 2;
    ons_tensor_options options = joined;
    options.stream = home;
    options.producer_stream = producer;
    if (versioned) {
      options.versioned = make_versioned(kDLCUDA);
    } else {
      options.legacy = make_legacy(kDLCUDA);
    }
    ons_tensor* tensor = NULL;
    cr_assert(eq(int, ons_tensor_create(runtime, &options, &tensor, &error), 0));
    if (ordered) {
      cr_assert(eq(int, ons_tensor_release_to(tensor, producer, &error), 0));
    } else {
      ons_tensor_release(tensor);
    }
    ons_runtime_collect(runtime);
    cr_expect(eq(int, deleted, i + 1));
  }
  DLManagedTensorVersioned* managed = make_versioned(kDLCUDA);
  managed->deleter = NULL; /* nothing to be called */
  ons_tensor* tensor = NULL;
  cr_assert(eq(int, create(joined, managed, &tensor), 0));
  ons_tensor_release(tensor);
  ons_runtime_collect(runtime);
  cr_expect(eq(int, deleted, 4));
  free(managed);
}

Test(tensor_object, another_major_version_is_only_deleted) {
  DLManagedTensorVersioned* managed = make_versioned(kDLCUDA);
  managed->version.major = 2;
  managed->dl_tensor.shape = (int64_t*)8;
  managed->dl_tensor.device.device_type = (DLDeviceType)99;
  ons_tensor* tensor = NULL;
  cr_expect(eq(int, create(joined, managed, &tensor), ONS_STATUS_UNSUPPORTED));
  cr_expect(strstr(error.message, "version 2") != NULL, "%s", error.message);
  delete_versioned(managed);
}

Test(tensor_object, tells_what_may_be_written) {
  DLManagedTensorVersioned* managed = make_versioned(kDLCUDA);
  managed->flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  ons_tensor* tensor = NULL;
  ons_arg arg;
  cr_assert(eq(int, create(joined, managed, &tensor), 0));
  ons_tensor_arg(tensor, &arg);
  cr_expect(eq(u32, arg.flags, ONS_ARG_STREAM_KNOWN | ONS_ARG_READ_ONLY));
  ons_tensor_release(tensor);
}

static void cr_expect_refused(const ons_tensor_options* options, ons_status expected) {
  ons_tensor* tensor = NULL;
  error = (ons_error)ONS_ERROR_INIT;
  cr_expect(eq(int, ons_tensor_create(runtime, options, &tensor, &error), expected), "%s",
            error.message);
  cr_expect(ne(chr, error.message[0], 0));
  cr_expect(eq(int, deleted, 0));
}

Test(tensor_object, bad_input) {
  DLManagedTensorVersioned* managed = make_versioned(kDLCUDA);
  DLManagedTensor* legacy = make_legacy(kDLCUDA);
  ons_tensor_options good = joined;
  good.versioned = managed;
  ons_tensor* tensor = NULL;
  cr_expect(eq(int, ons_tensor_create(NULL, &good, &tensor, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(eq(int, ons_tensor_create(runtime, NULL, &tensor, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(eq(int, ons_tensor_create(runtime, &good, NULL, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(
      eq(int, ons_tensor_release_to(NULL, home, &error), ONS_STATUS_INVALID_ARGUMENT));
  ons_tensor_retain(NULL);
  ons_tensor_release(NULL);

  ons_tensor_options bad = good;
  bad.struct_size = 0;
  cr_expect_refused(&bad, ONS_STATUS_INVALID_ARGUMENT);
  bad = good;
  bad.legacy = legacy;
  cr_expect_refused(&bad, ONS_STATUS_INVALID_ARGUMENT);
  bad = good;
  bad.versioned = NULL;
  cr_expect_refused(&bad, ONS_STATUS_INVALID_ARGUMENT);
  bad = good;
  bad.flags |= 1u << 20;
  cr_expect_refused(&bad, ONS_STATUS_INVALID_ARGUMENT);
  bad = good;
  bad.flags = ONS_TENSOR_ORDERED;
  cr_expect_refused(&bad, ONS_STATUS_INVALID_ARGUMENT);

  managed->dl_tensor.ndim = -1;
  cr_expect_refused(&good, ONS_STATUS_ARGUMENT_VALUE);
  managed->dl_tensor = tensor_on(kDLCUDA);
  managed->dl_tensor.shape = NULL;
  cr_expect_refused(&good, ONS_STATUS_ARGUMENT_VALUE);
  int64_t negative[] = {2, -3};
  managed->dl_tensor.shape = negative;
  cr_expect_refused(&good, ONS_STATUS_ARGUMENT_VALUE);
  managed->dl_tensor = tensor_on(kDLCUDA);
  managed->dl_tensor.data = NULL;
  cr_expect_refused(&good, ONS_STATUS_ARGUMENT_VALUE);
  managed->dl_tensor = tensor_on(kDLMetal);
  cr_expect_refused(&good, ONS_STATUS_UNSUPPORTED);
  managed->dl_tensor = tensor_on(kDLCPU);
  cr_expect_refused(&good, ONS_STATUS_ARGUMENT_VALUE); /* it has no stream */
  free(managed);
  free(legacy);
}
