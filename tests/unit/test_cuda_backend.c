/* The CUDA backend on the stand-in driver, through its table of functions. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/backend.h"
#include "runtime/base/alloc.h"
#include "tests/simgpu/sim_gpu.h"
#include "tests/simgpu/sim_record.h"

#ifndef ONS_TEST_SIMGPU_PATH
#error "ONS_TEST_SIMGPU_PATH names the stand-in driver"
#endif

static const char ptx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry axpy(\n"
    "  .param .f32 axpy_param_0,\n"
    "  .param .u64 axpy_param_1,\n"
    "  .param .align 4 .b8 axpy_param_2[12],\n"
    "  .param .u64 axpy_param_3\n"
    ")\n{ ret; }\n"
    ".visible .entry empty()\n{ ret; }\n";

typedef struct fixture {
  ons__settings settings;
  ons__backend* backend;
  const ons__backend_ops* ops;
  ons__device* device;
  ons__binary* binary;
  ons__function axpy;
  uint32_t sizes[4];
  ons_error error;
} fixture;

static void open_backend(fixture* f) {
  *f = (fixture){.error = ONS_ERROR_INIT};
  f->settings.cuda_driver_path = (char*)ONS_TEST_SIMGPU_PATH;
  cr_assert_eq(ons__cuda_backend_create(&f->settings, &f->backend, NULL), ONS_STATUS_OK);
  f->ops = f->backend->ops;
}

static void open_device(fixture* f, int ordinal) {
  open_backend(f);
  int32_t count = 0;
  cr_assert_eq(f->ops->device_count(f->backend, &count, &f->error), ONS_STATUS_OK, "%s",
               f->error.message);
  cr_assert_eq(f->ops->device_open(f->backend, ordinal, &f->device, &f->error),
               ONS_STATUS_OK, "%s", f->error.message);
}

static ons_status load(fixture* f) {
  const ons__image image = {
      .kind = ONS__IMAGE_PTX, .code = (char*)ptx, .code_bytes = sizeof(ptx)};
  ons_status status = f->ops->load(f->device, &image, &f->binary, &f->error);
  if (status) return status;
  return f->ops->function(f->binary, "axpy", &f->axpy, f->sizes, 4, &f->error);
}

static void setup(fixture* f) {
  open_device(f, 0);
  cr_assert_eq(load(f), ONS_STATUS_OK, "%s", f->error.message);
}

static void teardown(fixture* f) {
  if (f->binary) f->ops->unload(f->binary);
  if (f->device) f->ops->device_close(f->device);
  f->ops->destroy(f->backend);
}

typedef struct triple {
  float x, y, z;
} triple;

static ons_status launch(fixture* f, void* stream) {
  float a = 1.5f;
  uint64_t pointer = 0x1122334455667788u;
  triple s = {1, 2, 3};
  int64_t n = -7;
  void* const parameters[] = {&a, &pointer, &s, &n};
  ons_launch configuration = ONS_LAUNCH_INIT;
  configuration.grid[0] = 5;
  configuration.grid[2] = 2;
  configuration.block[0] = 64;
  configuration.block[1] = 4;
  configuration.shared_bytes = 1000;
  f->error = (ons_error)ONS_ERROR_INIT;
  return f->ops->launch(f->device, &f->axpy, &configuration, stream, parameters, 4,
                        &f->error);
}

#define ASSERT_OK(f, call) cr_assert_eq((call), ONS_STATUS_OK, "%s", (f).error.message)

/* ---- start ------------------------------------------------------------------------- */

Test(cuda_backend, creation_touches_no_driver) {
  fixture f;
  open_backend(&f);
  cr_expect_eq(sim_record_count(), 0);
  teardown(&f);
  cr_expect_eq(sim_record_count(), 0);
}

Test(cuda_backend, missing_driver_says_what_was_tried) {
  fixture f;
  open_backend(&f);
  f.settings.cuda_driver_path = (char*)"/nonexistent/libcuda.so.1";
  int32_t count = -1;
  cr_expect_eq(f.ops->device_count(f.backend, &count, &f.error), ONS_STATUS_UNAVAILABLE);
  cr_expect_not_null(strstr(f.error.message, "/nonexistent/libcuda.so.1: "));
  cr_expect_eq(f.ops->device_open(f.backend, 0, &f.device, &f.error),
               ONS_STATUS_UNAVAILABLE);
  f.settings.cuda_driver_path = (char*)ONS_TEST_SIMGPU_PATH;
  cr_expect_eq(f.ops->device_count(f.backend, &count, &f.error), ONS_STATUS_OK);
  cr_expect_eq(count, 1);
  teardown(&f);
}

Test(cuda_backend, environment_names_the_driver) {
  fixture f;
  open_backend(&f);
  f.settings.cuda_driver_path = NULL;
  setenv("ONSTREAM_CUDA_DRIVER", "/nonexistent/other.so", 1);
  int32_t count = 0;
  cr_expect_eq(f.ops->device_count(f.backend, &count, &f.error), ONS_STATUS_UNAVAILABLE);
  cr_expect_not_null(strstr(f.error.message, "/nonexistent/other.so"));
  teardown(&f);
}

Test(cuda_backend, no_device) {
  sim_set_device_count(0);
  fixture f;
  open_backend(&f);
  int32_t count = 0;
  cr_expect_eq(f.ops->device_count(f.backend, &count, &f.error), ONS_STATUS_UNAVAILABLE);
  cr_expect_eq(f.error.native_code, 100);
  cr_expect_str_eq(f.error.native_call, "cuInit");
  cr_expect_not_null(strstr(f.error.message, "CUDA_ERROR_NO_DEVICE (100)"));
  teardown(&f);
}

Test(cuda_backend, device_is_described) {
  sim_set_device_count(2);
  sim_set_capability(1, 10, 3);
  fixture f;
  open_device(&f, 1);
  cr_expect_str_eq(f.device->arch, "sm_103");
  cr_expect_str_eq(f.device->name, "Simulated GPU 1, sm_103");
  cr_expect_eq(f.device->device.device_id, 1);
  cr_expect_eq(f.device->limits.grid[0], 0x7fffffffu);
  cr_expect_eq(f.device->limits.grid[1], 65535);
  cr_expect_eq(f.device->limits.block[2], 64);
  cr_expect_eq(f.device->limits.threads_per_block, 1024);
  cr_expect_eq(f.device->limits.shared_bytes, 232448);
  cr_expect_eq(sim_get_live().primary_retains, 1);
  f.ops->device_close(f.device);
  cr_expect_eq(sim_get_live().primary_retains, 0);
  cr_expect_eq(f.ops->device_open(f.backend, 2, &f.device, &f.error),
               ONS_STATUS_UNAVAILABLE);
  cr_expect_str_eq(f.error.native_call, "cuDeviceGet");
  cr_expect_not_null(strstr(f.error.message, "no cuda:2, the driver shows 2 GPUs"));
  f.device = NULL;
  teardown(&f);
}

/* ---- loading ----------------------------------------------------------------------- */

Test(cuda_backend, loaded_code_keeps_its_context) {
  fixture f;
  setup(&f);
  void* stream = sim_stream_create(sim_primary_context(0), 1);
  sim_capture_begin(stream, SIM_CAPTURE_GLOBAL);
  ASSERT_OK(f, launch(&f, stream));
  void* graph = sim_capture_end(stream);
  teardown(&f);
  cr_expect_eq(sim_get_live().primary_retains, 1); /* nobody else has one */
  cr_expect_eq(sim_get_live().libraries, 1);
  sim_graph_destroy(graph);
}

Test(cuda_backend, failed_loads_keep_no_context) {
  fixture f;
  open_device(&f, 0);
  sim_inject("cuLibraryLoadData", 1, 2);
  cr_expect_eq(load(&f), ONS_STATUS_OUT_OF_MEMORY);
  teardown(&f);
  cr_expect_eq(sim_get_live().primary_retains, 0);
}

Test(cuda_backend, function_has_sizes_and_attributes) {
  fixture f;
  setup(&f);
  cr_expect_eq(f.sizes[0], 4);
  cr_expect_eq(f.sizes[1], 8);
  cr_expect_eq(f.sizes[2], 12);
  cr_expect_eq(f.sizes[3], 8);
  cr_expect_eq(f.axpy.attributes.max_threads_per_block, 1024);
  cr_expect_eq(f.axpy.attributes.register_count, 16);
  cr_expect_eq(f.axpy.attributes.max_dynamic_shared_bytes, 232448);
  cr_expect_not_null(f.axpy.portable_handle);
  cr_expect_eq(sim_get_live().libraries, 1);
  ons__function none;
  cr_expect_eq(f.ops->function(f.binary, "nowhere", &none, NULL, 0, &f.error),
               ONS_STATUS_NOT_FOUND);
  cr_expect_not_null(strstr(f.error.message, "\"nowhere\""));
  f.ops->unload(f.binary);
  f.binary = NULL;
  cr_expect_eq(sim_get_live().libraries, 1); /* a graph may still replay the code */
  teardown(&f);
}

Test(cuda_backend, drivers_before_12_use_modules) {
  static const int versions[] = {11080, 11040, 11000};
  static const char* const calls[] = {"cuLaunchKernelEx", "cuLaunchKernel",
                                      "cuLaunchKernel"};
  for (size_t i = 0; i < 3; ++i) {
    sim_set_version(versions[i]);
    fixture f;
    setup(&f);
    cr_expect_null(f.axpy.portable_handle);
    cr_expect_eq(f.sizes[0], 0);
    cr_expect_eq(sim_get_live().modules, i + 1);
    void* stream = sim_stream_create(sim_primary_context(0), 1);
    sim_clear_records();
    ASSERT_OK(f, launch(&f, stream));
    cr_expect_eq(sim_call_count(calls[i]), 1);
    cr_expect_eq(sim_last(calls[i])->grid[2], 2);
    ons__capture_info info;
    cr_expect_eq(f.ops->capture_info(f.device, stream, &info, &f.error),
                 versions[i] < 11030 ? ONS_STATUS_UNSUPPORTED : ONS_STATUS_OK);
    teardown(&f);
  }
}

Test(cuda_backend, loading_leaves_the_context_as_it_was) {
  fixture f;
  open_device(&f, 0);
  void* const contexts[] = {NULL, sim_context_create(0), sim_primary_context(0)};
  for (size_t i = 0; i < 3; ++i) {
    sim_set_current(contexts[i]);
    ASSERT_OK(f, load(&f));
    cr_expect_eq(sim_get_current(), contexts[i]);
    f.ops->unload(f.binary);
    f.binary = NULL;
    cr_expect_eq(sim_get_current(), contexts[i]);
  }
  teardown(&f);
}

static void* load_on_a_thread(void* argument) {
  load(argument); /* a failure is in its error */
  return NULL;
}

/* Opening, loading, events and unloading, while this or another thread captures in each
 * mode. */
Test(cuda_backend, nothing_disturbs_a_capture) {
  for (int mode = SIM_CAPTURE_GLOBAL; mode <= SIM_CAPTURE_RELAXED; ++mode) {
    for (int elsewhere = 0; elsewhere < 2; ++elsewhere) {
      fixture f;
      open_backend(&f);
      int32_t count = 0;
      ASSERT_OK(f, f.ops->device_count(f.backend, &count, &f.error));
      void* captured = sim_stream_create(sim_primary_context(0), 1);
      void* eager = sim_stream_create(sim_primary_context(0), 1);
      sim_capture_begin(captured, (sim_capture_mode)mode);
      ASSERT_OK(f, f.ops->device_open(f.backend, 0, &f.device, &f.error));
      if (elsewhere) {
        pthread_t thread;
        pthread_create(&thread, NULL, load_on_a_thread, &f);
        pthread_join(thread, NULL);
      } else {
        load(&f);
      }
      cr_assert_not_null(f.axpy.handle, "%s", f.error.message);
      void* event = NULL;
      ASSERT_OK(f, f.ops->event_create(f.device, &event, &f.error));
      ASSERT_OK(f, f.ops->event_record(f.device, event, eager, &f.error));
      unsigned token = 0;
      f.ops->housekeeping_enter(f.device, &token);
      cr_expect(f.ops->event_passed(f.device, event));
      f.ops->housekeeping_leave(f.device, token);
      f.ops->event_destroy(f.device, event);
      ons__capture_state state;
      ASSERT_OK(f, f.ops->capture_state(f.device, captured, &state, &f.error));
      cr_expect_eq(state, ONS__CAPTURE_ACTIVE);
      ASSERT_OK(f, launch(&f, captured));
      ASSERT_OK(f, launch(&f, eager));
      teardown(&f);
      cr_expect_eq(sim_capture_status(captured), 1);
      void* graph = sim_capture_end(captured);
      cr_assert_not_null(graph);
      cr_expect_eq(sim_graph_kernel_count(graph), 1);
    }
  }
}

Test(cuda_backend, rejected_image_names_driver_and_device) {
  fixture f;
  open_device(&f, 0);
  sim_inject("cuLibraryLoadData", 1, 222);
  cr_expect_eq(load(&f), ONS_STATUS_UNSUPPORTED);
  cr_expect_eq(f.error.code, ONS_STATUS_UNSUPPORTED);
  cr_expect_eq(f.error.native_code, 222);
  cr_expect_not_null(strstr(f.error.message, "CUDA 13.0"));
  cr_expect_not_null(strstr(f.error.message, "Simulated GPU 0, sm_90"));
  cr_expect_null(f.binary);
  teardown(&f);
}

/* Every call of loading fails once: an error, the thread as it was, nothing left. */
Test(cuda_backend, failures_while_loading) {
  static const char* const calls[] = {"cuThreadExchangeStreamCaptureMode",
                                      "cuCtxGetCurrent",
                                      "cuCtxSetCurrent",
                                      "cuLibraryLoadData",
                                      "cuLibraryGetKernel",
                                      "cuKernelGetFunction",
                                      "cuFuncLoad",
                                      "cuFuncGetAttribute"};
  fixture f;
  open_device(&f, 0);
  for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i) {
    sim_inject(calls[i], 1, 999);
    f.error = (ons_error)ONS_ERROR_INIT;
    cr_expect_eq(load(&f), ONS_STATUS_DEVICE, "%s", calls[i]);
    cr_expect_eq(f.error.native_code, 999);
    cr_expect_null(sim_get_current());
    if (f.binary) f.ops->unload(f.binary);
    f.binary = NULL;
    ASSERT_OK(f, load(&f));
    cr_expect_eq(sim_last("cuLibraryLoadData")->mode, SIM_CAPTURE_RELAXED);
    f.ops->unload(f.binary);
    f.binary = NULL;
    int32_t count = 0;
    ASSERT_OK(f, f.ops->device_count(f.backend, &count, &f.error));
    cr_expect_eq(sim_last("cuDeviceGetCount")->mode, SIM_CAPTURE_GLOBAL, "%s", calls[i]);
  }
  teardown(&f);
}

Test(cuda_backend, failure_to_open_gives_everything_back) {
  static const char* const calls[] = {
      "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
      "cuThreadExchangeStreamCaptureMode", "cuDevicePrimaryCtxRetain"};
  fixture f;
  open_device(&f, 0);
  for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i) {
    ons__device* device = NULL;
    sim_inject(calls[i], 1, 2);
    cr_expect_eq(f.ops->device_open(f.backend, 0, &device, &f.error),
                 ONS_STATUS_OUT_OF_MEMORY);
    cr_expect_eq(f.error.native_code, 2);
    cr_expect_null(device);
    cr_expect_eq(sim_get_live().primary_retains, 1);
  }
  teardown(&f);
}

/* ---- launching --------------------------------------------------------------------- */

Test(cuda_backend, launch_passes_everything) {
  fixture f;
  setup(&f);
  void* stream = sim_stream_create(sim_primary_context(0), 1);
  ASSERT_OK(f, launch(&f, stream)); /* the first also asks of which context it is */
  sim_clear_records();
  ASSERT_OK(f, launch(&f, stream));
  cr_expect_eq(sim_record_count(), 1,
               "a launch on a stream of one's own is one driver call");
  const sim_record* record = sim_last("cuLaunchKernelEx");
  cr_assert_not_null(record);
  cr_expect_str_eq(record->kernel, "axpy");
  cr_expect_eq(record->stream, stream);
  cr_expect_eq(record->handle, f.axpy.handle);
  const uint32_t shape[6] = {5, 1, 2, 64, 4, 1};
  cr_expect_arr_eq(record->grid, shape, sizeof(record->grid));
  cr_expect_arr_eq(record->block, shape + 3, sizeof(record->block));
  cr_expect_eq(record->shared_bytes, 1000);
  cr_expect_eq(record->parameter_count, 4);
  float a = 0;
  uint64_t pointer = 0;
  triple s = {0};
  int64_t n = 0;
  memcpy(&a, record->parameters + record->parameter_offsets[0], sizeof(a));
  memcpy(&pointer, record->parameters + record->parameter_offsets[1], sizeof(pointer));
  memcpy(&s, record->parameters + record->parameter_offsets[2], sizeof(s));
  memcpy(&n, record->parameters + record->parameter_offsets[3], sizeof(n));
  cr_expect_eq(a, 1.5f);
  cr_expect_eq(pointer, 0x1122334455667788u);
  cr_expect(s.x == 1 && s.y == 2 && s.z == 3);
  cr_expect_eq(n, -7);
  teardown(&f);
}

Test(cuda_backend, special_streams_are_those_of_the_primary_context) {
  sim_set_device_count(2);
  fixture f;
  open_device(&f, 1);
  ASSERT_OK(f, load(&f));
  void* primary = sim_primary_context(1);
  void* const contexts[] = {NULL, primary, sim_context_create(1), sim_primary_context(0)};
  for (size_t i = 0; i < 4; ++i) {
    for (uintptr_t stream = 0; stream <= 2; ++stream) {
      sim_set_current(contexts[i]);
      ASSERT_OK(f, launch(&f, (void*)stream));
      const sim_record* record = sim_last("cuLaunchKernelEx");
      cr_expect_eq(record->stream, (void*)stream);
      cr_expect_eq(record->stream_context, primary);
      cr_expect_eq(sim_get_current(), contexts[i]);
      ons__capture_state state = ONS__CAPTURE_ACTIVE;
      ASSERT_OK(f, f.ops->capture_state(f.device, (void*)stream, &state, &f.error));
      cr_expect_eq(state, ONS__CAPTURE_NONE);
      cr_expect_eq(sim_get_current(), contexts[i]);
    }
  }
  teardown(&f);
}

Test(cuda_backend, own_stream_needs_no_context) {
  fixture f;
  setup(&f);
  sim_set_current(NULL);
  ASSERT_OK(f, launch(&f, sim_stream_create(sim_primary_context(0), 0)));
  cr_expect_null(sim_get_current());
  teardown(&f);
}

Test(cuda_backend, stream_of_another_context) {
  fixture f;
  setup(&f);
  void* context = sim_context_create(0);
  ASSERT_OK(f, launch(&f, sim_stream_create(context, 1)));
  cr_expect_eq(sim_last("cuLaunchKernelEx")->stream_context, context);
  cr_expect_eq(sim_last("cuLaunchKernelEx")->handle, f.axpy.portable_handle);
  teardown(&f);
}

Test(cuda_backend, launch_error_says_what_the_driver_said) {
  fixture f;
  setup(&f);
  void* stream = sim_stream_create(sim_primary_context(0), 1);
  sim_inject("cuLaunchKernelEx", 1, 1);
  cr_expect_eq(launch(&f, stream), ONS_STATUS_DEVICE);
  cr_expect_eq(f.error.native_code, 1);
  cr_expect_str_eq(f.error.native_call, "cuLaunchKernelEx");
  cr_expect_str_eq(
      f.error.message,
      "cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE (1): text of the error");
  sim_inject("cuLaunchKernelEx", 1, 77777);
  cr_expect_eq(launch(&f, stream), ONS_STATUS_DEVICE);
  cr_expect_not_null(strstr(f.error.message, "unknown error (77777)"));
  cr_expect_eq(sim_call_count("cuLaunchKernelEx"), 2, "no second attempt");
  teardown(&f);
}

/* ---- capture ----------------------------------------------------------------------- */

Test(cuda_backend, capture_elsewhere_is_seen_and_survives) {
  fixture f;
  setup(&f);
  void* blocking = sim_stream_create(sim_primary_context(0), 0);
  sim_capture_begin(blocking, SIM_CAPTURE_GLOBAL);
  for (uintptr_t stream = 0; stream <= 1; ++stream) {
    ons__capture_state state;
    ons__capture_info info;
    ASSERT_OK(f, f.ops->capture_state(f.device, (void*)stream, &state, &f.error));
    cr_expect_eq(state, ONS__CAPTURE_ELSEWHERE);
    ASSERT_OK(f, f.ops->capture_info(f.device, (void*)stream, &info, &f.error));
    cr_expect_eq(info.state, ONS__CAPTURE_ELSEWHERE);
    cr_expect_null(info.graph);
  }
  cr_expect_eq(sim_capture_status(blocking), 1);
  /* The stand-in is as strict as the driver: */
  cr_expect_eq(launch(&f, NULL), ONS_STATUS_DEVICE);
  cr_expect_eq(f.error.native_code, 906);
  cr_expect_eq(sim_capture_status(blocking), 2);
  teardown(&f);
}

static int releases;
static void count_release(void* object) { releases += *(int*)object; }

Test(cuda_backend, graph_keeps_an_object) {
  static const int versions[] = {13000, 12020};
  for (int i = 0; i < 2; ++i) {
    sim_set_version(versions[i]);
    releases = 0;
    fixture f;
    setup(&f);
    void* stream = sim_stream_create(sim_primary_context(0), 1);
    ons__capture_info info;
    ASSERT_OK(f, f.ops->capture_info(f.device, stream, &info, &f.error));
    cr_expect_eq(info.state, ONS__CAPTURE_NONE);
    sim_capture_begin(stream, SIM_CAPTURE_GLOBAL);
    ASSERT_OK(f, f.ops->capture_info(f.device, stream, &info, &f.error));
    cr_expect_eq(info.state, ONS__CAPTURE_ACTIVE);
    cr_expect_neq(info.id, 0);
    cr_assert_not_null(info.graph);
    int weight = 10;
    ASSERT_OK(
        f, f.ops->graph_retain(f.device, info.graph, &weight, count_release, &f.error));
    void* graph = sim_capture_end(stream);
    cr_assert_eq(graph, info.graph);
    cr_expect_eq(releases, 0);
    sim_graph_destroy(graph);
    cr_expect_eq(releases, 10);
    cr_expect_eq(sim_get_live().user_objects, 0);
    teardown(&f);
  }
}

Test(cuda_backend, object_stays_with_the_caller_when_the_graph_refuses) {
  fixture f;
  setup(&f);
  void* stream = sim_stream_create(sim_primary_context(0), 1);
  sim_capture_begin(stream, SIM_CAPTURE_GLOBAL);
  ons__capture_info info;
  ASSERT_OK(f, f.ops->capture_info(f.device, stream, &info, &f.error));
  int weight = 1;
  sim_inject("cuGraphRetainUserObject", 1, 999);
  cr_expect_eq(
      f.ops->graph_retain(f.device, info.graph, &weight, count_release, &f.error),
      ONS_STATUS_DEVICE);
  cr_expect_str_eq(f.error.native_call, "cuGraphRetainUserObject");
  sim_graph_destroy(sim_capture_end(stream));
  cr_expect_eq(releases, 0);
  teardown(&f);
}

Test(cuda_backend, broken_capture_is_reported) {
  fixture f;
  setup(&f);
  void* stream = sim_stream_create(sim_primary_context(0), 0);
  sim_capture_begin(stream, SIM_CAPTURE_GLOBAL);
  cr_expect_eq(launch(&f, NULL), ONS_STATUS_DEVICE);
  ons__capture_state state;
  ons__capture_info info;
  cr_expect_eq(f.ops->capture_state(f.device, stream, &state, &f.error),
               ONS_STATUS_CAPTURE);
  cr_expect_eq(f.ops->capture_info(f.device, stream, &info, &f.error),
               ONS_STATUS_CAPTURE);
  cr_expect_eq(info.state, ONS__CAPTURE_NONE);
  teardown(&f);
}

/* ---- events, streams, pointers ----------------------------------------------------- */

Test(cuda_backend, event_passes_when_the_stream_has) {
  fixture f;
  setup(&f);
  void* stream = sim_stream_create(sim_primary_context(0), 1);
  void* event = NULL;
  ASSERT_OK(f, launch(&f, stream));
  ASSERT_OK(f, f.ops->event_create(f.device, &event, &f.error));
  ASSERT_OK(f, f.ops->event_record(f.device, event, stream, &f.error));
  ASSERT_OK(f, launch(&f, stream));
  cr_expect_not(f.ops->event_passed(f.device, event));
  sim_complete(stream);
  cr_expect(f.ops->event_passed(f.device, event));
  ASSERT_OK(f, f.ops->event_record(f.device, event, (void*)0, &f.error));
  cr_expect_null(sim_get_current());
  f.ops->event_destroy(f.device, event);
  cr_expect_eq(sim_get_live().events, 0);
  teardown(&f);
}

Test(cuda_backend, stream_waits_for_an_event) {
  fixture f;
  setup(&f);
  void* first = sim_stream_create(sim_primary_context(0), 1);
  void* second = sim_stream_create(sim_primary_context(0), 1);
  void* events[2] = {NULL};
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(f, f.ops->event_create(f.device, &events[i], &f.error));
  }
  ASSERT_OK(f, launch(&f, first));
  ASSERT_OK(f, f.ops->event_record(f.device, events[0], first, &f.error));
  ASSERT_OK(f, f.ops->event_wait(f.device, events[0], second, &f.error));
  ASSERT_OK(f, launch(&f, second));
  ASSERT_OK(f, f.ops->event_record(f.device, events[1], second, &f.error));
  sim_complete(second);
  cr_expect_not(f.ops->event_passed(f.device, events[1]));
  sim_complete(first);
  sim_complete(second);
  cr_expect(f.ops->event_passed(f.device, events[1]));
  for (uintptr_t special = 0; special <= 2; ++special) {
    ASSERT_OK(f, f.ops->event_wait(f.device, events[1], (void*)special, &f.error));
    cr_expect_eq(sim_last("cuStreamWaitEvent")->stream_context, sim_primary_context(0));
    cr_expect_null(sim_get_current());
  }
  sim_capture_begin(second, SIM_CAPTURE_GLOBAL);
  cr_expect_eq(f.ops->event_wait(f.device, events[0], second, &f.error),
               ONS_STATUS_DEVICE);
  cr_expect_eq(f.error.native_code, 905);
  for (int i = 0; i < 2; ++i) f.ops->event_destroy(f.device, events[i]);
  teardown(&f);
}

/* Only what says that nothing runs any more releases what the launch uses. */
Test(cuda_backend, event_after_errors) {
  static const struct {
    int code;
    bool passed;
  } cases[] = {{600, false}, {700, true},  {719, true},  {709, true},   {201, true},
               {4, true},    {900, false}, {901, false}, {906, false},  {907, false},
               {1, false},   {400, false}, {999, false}, {77777, false}};
  fixture f;
  setup(&f);
  void* event = NULL;
  ASSERT_OK(f, f.ops->event_create(f.device, &event, &f.error));
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    sim_inject("cuEventQuery", 1, cases[i].code);
    cr_expect_eq(f.ops->event_passed(f.device, event), cases[i].passed, "%d",
                 cases[i].code);
  }
  f.ops->event_destroy(f.device, event);
  teardown(&f);
}

/* As many times as the pool of events is used. */
Test(cuda_backend, event_follows_the_stream_into_its_context) {
  fixture f;
  setup(&f);
  void* primary = sim_primary_context(0);
  void* own = sim_context_create(0);
  void* streams[] = {sim_stream_create(own, 1), sim_stream_create(primary, 1),
                     sim_stream_create(own, 0), NULL};
  void* event = NULL;
  ASSERT_OK(f, f.ops->event_create(f.device, &event, &f.error));
  for (int i = 0; i < 4; ++i) {
    void* current = i % 3 ? NULL : primary;
    sim_set_current(current);
    ASSERT_OK(f, launch(&f, streams[i]));
    ASSERT_OK(f, f.ops->event_record(f.device, event, streams[i], &f.error));
    cr_expect_eq(sim_get_current(), current);
    cr_expect_not(f.ops->event_passed(f.device, event));
    sim_set_current(primary);
    sim_complete(streams[i]);
    cr_expect(f.ops->event_passed(f.device, event), "stream %d", i);
    ASSERT_OK(f, f.ops->event_wait(f.device, event, streams[(i + 1) % 4], &f.error));
  }
  cr_expect_eq(sim_get_live().events, 2); /* one for each context */
  f.ops->event_destroy(f.device, event);
  cr_expect_eq(sim_get_live().events, 0);
  teardown(&f);
}

Test(cuda_backend, event_that_cannot_follow) {
  fixture f;
  setup(&f);
  void* stream = sim_stream_create(sim_context_create(0), 1);
  void* event = NULL;
  ASSERT_OK(f, f.ops->event_create(f.device, &event, &f.error));
  sim_inject("cuEventCreate", 1, 2);
  cr_expect_eq(f.ops->event_record(f.device, event, stream, &f.error), ONS_STATUS_DEVICE);
  cr_expect_eq(f.error.native_code, 400);
  cr_expect_null(sim_get_current());
  ASSERT_OK(f, f.ops->event_record(f.device, event, stream, &f.error));
  f.ops->event_destroy(f.device, event);
  cr_expect_eq(sim_get_live().events, 0);
  teardown(&f);
}

Test(cuda_backend, housekeeping_harms_no_capture) {
  fixture f;
  setup(&f);
  void* stream = sim_stream_create(sim_primary_context(0), 1);
  void* event = NULL;
  ASSERT_OK(f, f.ops->event_create(f.device, &event, &f.error));
  sim_capture_begin(stream, SIM_CAPTURE_GLOBAL);
  unsigned outer = 0, inner = 0;
  f.ops->housekeeping_enter(f.device, &outer);
  f.ops->housekeeping_enter(f.device, &inner);
  cr_expect(f.ops->event_passed(f.device, event));
  f.ops->housekeeping_leave(f.device, inner);
  cr_expect(f.ops->event_passed(f.device, event), "they nest");
  f.ops->event_destroy(f.device, event);
  f.ops->housekeeping_leave(f.device, outer);
  cr_expect_eq(sim_capture_status(stream), 1);
  ASSERT_OK(f, launch(&f, stream));
  cr_expect_eq(sim_last("cuLaunchKernelEx")->mode, SIM_CAPTURE_GLOBAL);
  sim_graph_destroy(sim_capture_end(stream));
  teardown(&f);
}

Test(cuda_backend, housekeeping_that_fails_leaves_nothing_changed) {
  fixture f;
  setup(&f);
  unsigned token = 0;
  sim_inject("cuThreadExchangeStreamCaptureMode", 1, 999);
  f.ops->housekeeping_enter(f.device, &token);
  f.ops->housekeeping_leave(f.device, token);
  ASSERT_OK(f, launch(&f, sim_stream_create(sim_primary_context(0), 1)));
  cr_expect_eq(sim_last("cuLaunchKernelEx")->mode, SIM_CAPTURE_GLOBAL);
  teardown(&f);
}

Test(cuda_backend, pinned_memory_is_usable) {
  static char pinned[64];
  static char plain[64];
  sim_host_register(pinned, sizeof(pinned));
  fixture f;
  open_device(&f, 0);
  cr_expect(f.ops->host_pointer_usable(f.device, pinned + 8));
  cr_expect_not(f.ops->host_pointer_usable(f.device, plain));
  cr_expect_null(sim_get_current());
  teardown(&f);
}

Test(cuda_backend, memory_tells_its_device) {
  sim_set_device_count(2);
  fixture f;
  open_device(&f, 1);
  void* memory = sim_device_alloc(1, 64);
  int32_t index = -2;
  sim_set_current(sim_primary_context(0));
  ASSERT_OK(f, f.ops->pointer_device(f.backend, (char*)memory + 8, &index, &f.error));
  cr_expect_eq(index, 1);
  ASSERT_OK(f, f.ops->pointer_device(f.backend, &f, &index, &f.error));
  cr_expect_eq(index, -1);
  /* The question makes no context. */
  sim_set_current(NULL);
  ASSERT_OK(f, f.ops->pointer_device(f.backend, memory, &index, &f.error));
  cr_expect_null(sim_get_current());
  sim_device_free(memory);
  teardown(&f);
}

/* ---- the process ------------------------------------------------------------------- */

/* The stand-in aborts when it is called in the child. */
static int in_the_child(fixture* f, void* stream, void* event) {
  int32_t count = 0;
  ons__device* device = NULL;
  ons__capture_state state;
  if (launch(f, stream) != ONS_STATUS_DEVICE) return 1;
  if (!strstr(f->error.message, "fork")) return 2;
  if (launch(f, NULL) != ONS_STATUS_DEVICE) return 3;
  if (f->ops->device_count(f->backend, &count, &f->error) != ONS_STATUS_DEVICE) return 4;
  if (f->ops->device_open(f->backend, 0, &device, &f->error) != ONS_STATUS_DEVICE)
    return 5;
  if (f->ops->capture_state(f->device, stream, &state, &f->error) != ONS_STATUS_DEVICE)
    return 6;
  if (f->ops->event_record(f->device, event, stream, &f->error) != ONS_STATUS_DEVICE)
    return 7;
  unsigned token = 0;
  f->ops->housekeeping_enter(f->device, &token);
  if (f->ops->event_passed(f->device, event)) return 8; /* a foreign deleter would run */
  f->ops->housekeeping_leave(f->device, token);
  if (f->ops->host_pointer_usable(f->device, f)) return 9;
  if (f->ops->event_wait(f->device, event, stream, &f->error) != ONS_STATUS_DEVICE)
    return 10;
  f->ops->event_destroy(f->device, event);
  teardown(f);
  return 0;
}

static int exit_code_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Test(cuda_backend, child_of_a_fork) {
  fixture f;
  setup(&f);
  void* stream = sim_stream_create(sim_primary_context(0), 1);
  void* event = NULL;
  ASSERT_OK(f, f.ops->event_create(f.device, &event, &f.error));
  pid_t child = fork();
  if (child == 0) _exit(in_the_child(&f, stream, event));
  cr_expect_eq(exit_code_of(child), 0);
  ASSERT_OK(f, launch(&f, stream));
  f.ops->event_destroy(f.device, event);
  teardown(&f);
}

Test(cuda_backend, fork_before_the_first_use_is_fine) {
  fixture f;
  open_backend(&f);
  pid_t child = fork();
  if (child == 0) {
    int32_t count = 0;
    _exit(f.ops->device_count(f.backend, &count, &f.error) != ONS_STATUS_OK ||
          count != 1);
  }
  cr_expect_eq(exit_code_of(child), 0);
  teardown(&f);
}

Test(cuda_backend, first_use_in_a_child_of_a_cuda_process) {
  fixture user;
  open_device(&user, 0);
  pid_t child = fork();
  if (child == 0) {
    fixture f;
    open_backend(&f);
    int32_t count = 0;
    if (f.ops->device_count(f.backend, &count, &f.error) != ONS_STATUS_UNAVAILABLE)
      _exit(1);
    _exit(strstr(f.error.message, "forked") ? 0 : 2);
  }
  cr_expect_eq(exit_code_of(child), 0);
  teardown(&user);
}

Test(cuda_backend, teardown_after_the_driver) {
  fixture f;
  setup(&f);
  void* event = NULL;
  ASSERT_OK(f, f.ops->event_create(f.device, &event, &f.error));
  sim_deinitialize();
  cr_expect(f.ops->event_passed(f.device, event));
  f.ops->event_destroy(f.device, event);
  cr_expect_eq(launch(&f, NULL), ONS_STATUS_DEVICE);
  cr_expect_eq(f.error.native_code, 4);
  teardown(&f);
}

static void* launch_often(void* argument) {
  fixture* f = argument;
  void* stream = sim_stream_create(sim_primary_context(f->device->device.device_id), 1);
  for (int i = 0; i < 50; ++i) {
    ons_error error = ONS_ERROR_INIT;
    const ons_launch configuration = ONS_LAUNCH_INIT;
    float a = 0;
    uint64_t pointer = 0;
    triple s = {0};
    int64_t n = i;
    void* const parameters[] = {&a, &pointer, &s, &n};
    void* target = i % 2 ? stream : NULL;
    ons_status status = f->ops->launch(f->device, &f->axpy, &configuration, target,
                                       parameters, 4, &error);
    cr_expect_eq(status, ONS_STATUS_OK, "%s", error.message);
    cr_expect_null(sim_get_current());
  }
  return NULL;
}

Test(cuda_backend, threads_on_two_devices) {
  enum { THREADS = 10 };
  sim_set_device_count(2);
  fixture f[2];
  pthread_t threads[THREADS];
  for (int i = 0; i < 2; ++i) {
    open_device(&f[i], i);
    ASSERT_OK(f[i], load(&f[i]));
  }
  sim_clear_records();
  for (int i = 0; i < THREADS; ++i) {
    pthread_create(&threads[i], NULL, launch_often, &f[i % 2]);
  }
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  size_t launches[2] = {0};
  for (size_t i = 0; i < sim_record_count(); ++i) {
    const sim_record* record = sim_record_at(i);
    if (strcmp(record->function, "cuLaunchKernelEx")) continue;
    int device = record->handle == f[1].axpy.handle;
    cr_expect_eq(record->stream_context, sim_primary_context(device));
    ++launches[device];
  }
  cr_expect_eq(launches[0], THREADS * 25);
  cr_expect_eq(launches[1], THREADS * 25);
  teardown(&f[0]);
  teardown(&f[1]);
}

/* ---- with the real compiler -------------------------------------------------------- */

Test(cuda_backend, what_nvrtc_makes_loads_and_launches) {
  fixture f;
  open_device(&f, 0);
  const ons__kernel_name names[] = {{.name = "axpy", .required = true}};
  const ons__compile_request request = {
      .source =
          "struct triple { float x, y, z; };\n"
          "extern \"C\" __global__ void axpy(float a, double* p, triple s, long long n) "
          "{\n"
          "  __shared__ float t[100];\n"
          "  t[threadIdx.x] = s.x * a;\n  __syncthreads();\n"
          "  p[n] = t[99 - threadIdx.x];\n}\n",
      .name = "kernel.cu",
      .kernels = names,
      .kernel_count = 1,
      .arch = f.device->arch,
  };
  ons__image* image = NULL;
  char* log = NULL;
  ons_status status = f.ops->compile(f.device->backend, &request, &image, &log, &f.error);
  ons__free(NULL, log);
  if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", f.error.message);
  cr_assert_eq(status, ONS_STATUS_OK, "%s", f.error.message);
  ASSERT_OK(f, f.ops->load(f.device, image, &f.binary, &f.error));
  const char* lowered = ons__image_find(image, "axpy")->lowered;
  ASSERT_OK(f, f.ops->function(f.binary, lowered, &f.axpy, f.sizes, 4, &f.error));
  cr_expect_eq(f.sizes[0], 4);
  cr_expect_eq(f.sizes[1], 8);
  cr_expect_eq(f.sizes[2], 12);
  cr_expect_eq(f.sizes[3], 8);
  cr_expect_eq(f.axpy.attributes.static_shared_bytes, 400);
  cr_expect_eq(f.axpy.attributes.max_dynamic_shared_bytes, 232448 - 400);
  ons__image_destroy(image);
  ASSERT_OK(f, launch(&f, NULL));
  const sim_record* record = sim_last("cuLaunchKernelEx");
  int64_t n = 0;
  memcpy(&n, record->parameters + record->parameter_offsets[3], sizeof(n));
  cr_expect_eq(n, -7);
  teardown(&f);
}
