/* Memory of onstream's own: on the CPU, and in the order of streams on the stand-in
 * driver, which checks every use. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <onstream/onstream.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simgpu/sim_driver.h"
#include "tests/simgpu/sim_gpu.h"

enum { NO_MEMORY = 2 };

static ons_runtime* runtime;
static ons_error error = ONS_ERROR_INIT;
static void *home, *other;
static const DLDataType float32 = {kDLFloat, 32, 1};

static void setup(void) {
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.cuda_driver_path = ONS_TEST_SIMGPU_PATH;
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, &error), 0), "%s",
            error.message);
  home = sim_stream_create(sim_primary_context(0), 1);
  other = sim_stream_create(sim_primary_context(0), 1);
  sim_set_current(sim_primary_context(0));
  sim_schedule_begin(1);
}

static void teardown(void) {
  sim_run_all();
  ons_runtime_collect(runtime);
  char text[1024];
  size_t count = sim_schedule_end();
  for (size_t i = 0; i < count; ++i) {
    sim_report_text(i, text, sizeof(text));
    cr_expect(zero(1), "%s", text);
  }
  ons_runtime_release(runtime);
}

TestSuite(tensor_memory, .init = setup, .fini = teardown);

static ons_allocation allocation_of(DLDevice device, int32_t ndim, const int64_t* shape) {
  ons_allocation allocation = ONS_ALLOCATION_INIT;
  allocation.device = device;
  allocation.dtype = float32;
  allocation.ndim = ndim;
  allocation.shape = shape;
  allocation.stream = home;
  return allocation;
}

static ons_allocation on_gpu(void) {
  static const int64_t shape[] = {2, 3};
  return allocation_of((DLDevice){kDLCUDA, 0}, 2, shape);
}

static ons_status allocate(const ons_allocation* allocation, ons_tensor** out_tensor) {
  error = (ons_error)ONS_ERROR_INIT;
  return ons_tensor_allocate(runtime, allocation, out_tensor, &error);
}

static ons_tensor* make(const ons_allocation* allocation) {
  ons_tensor* tensor = NULL;
  cr_assert(eq(int, allocate(allocation, &tensor), 0), "%s", error.message);
  return tensor;
}

static void expect_refused(const ons_allocation* allocation, ons_status status) {
  ons_tensor* tensor = (ons_tensor*)runtime;
  cr_expect(eq(int, allocate(allocation, &tensor), (int)status), "%s", error.message);
  cr_expect(zero(ptr, tensor));
}

/* ---- the CPU ---------------------------------------------------------------------- */

Test(tensor_memory, of_the_host_is_aligned_dense_and_zero) {
  const int64_t shape[] = {5, 1, 7};
  for (int64_t size = 0; size < 5; ++size) {
    int64_t extents[] = {size, shape[1], shape[2]};
    ons_allocation allocation = allocation_of((DLDevice){kDLCPU, 0}, 3, extents);
    ons_tensor* tensor = make(&allocation);
    const DLTensor* made = ons_tensor_dltensor(tensor);
    cr_expect(eq(int, made->ndim, 3));
    cr_expect(eq(i64, made->shape[0], size));
    cr_expect(eq(i64, made->strides[0], 7));
    cr_expect(eq(i64, made->strides[2], 1));
    cr_expect(zero(u64, (uintptr_t)made->data % 64));
    cr_expect(eq(int, made->data == NULL, size == 0));
    const float* values = made->data;
    for (int64_t i = 0; i < size * 7; ++i) cr_expect(zero(flt, values[i]));
    if (size > 0) memset(made->data, 0xff, (size_t)size * 7 * sizeof(float));
    ons_tensor_release(tensor);
  }
}

Test(tensor_memory, of_rank_0_is_one_element) {
  ons_allocation allocation = allocation_of((DLDevice){kDLCPU, 0}, 0, NULL);
  ons_tensor* tensor = make(&allocation);
  *(float*)ons_tensor_dltensor(tensor)->data = 3;
  ons_tensor_release(tensor);
}

Test(tensor_memory, what_cannot_be_is_refused) {
  const int64_t negative[] = {2, -1};
  const int64_t large[] = {INT64_C(1) << 40, INT64_C(1) << 40};
  const int64_t most[] = {INT64_MAX / 4 / 8};
  for (int type = kDLCPU; type <= kDLCUDA; ++type) {
    DLDevice device = {(DLDeviceType)type, 0};
    ons_allocation allocation = allocation_of(device, 2, negative);
    expect_refused(&allocation, ONS_STATUS_ARGUMENT_VALUE);
    cr_expect(strstr(error.message, "(2, -1)") != NULL, "%s", error.message);
    allocation = allocation_of(device, 2, large);
    expect_refused(&allocation, ONS_STATUS_ARGUMENT_VALUE);
    allocation = allocation_of(device, 2, NULL);
    expect_refused(&allocation, ONS_STATUS_ARGUMENT_VALUE);
    allocation = allocation_of(device, -1, large);
    expect_refused(&allocation, ONS_STATUS_ARGUMENT_VALUE);
    allocation = allocation_of(device, 0, NULL);
    allocation.dtype.bits = 0;
    expect_refused(&allocation, ONS_STATUS_ARGUMENT_VALUE);
    allocation = allocation_of(device, 0, NULL);
    allocation.flags = 1u << 31;
    expect_refused(&allocation, ONS_STATUS_INVALID_ARGUMENT);
  }
  ons_allocation allocation = allocation_of((DLDevice){kDLCPU, 0}, 1, most);
  expect_refused(&allocation, ONS_STATUS_OUT_OF_MEMORY);
  allocation = allocation_of((DLDevice){kDLCUDAHost, 0}, 0, NULL);
  expect_refused(&allocation, ONS_STATUS_UNSUPPORTED);
  allocation.struct_size = 0;
  ons_tensor* tensor = NULL;
  cr_expect(eq(int, allocate(&allocation, &tensor), ONS_STATUS_INVALID_ARGUMENT));
}

/* ---- the GPU ---------------------------------------------------------------------- */

Test(tensor_memory, is_taken_and_given_back_in_the_order_of_the_home_stream) {
  ons_allocation allocation = on_gpu();
  allocation.flags = ONS_ALLOCATION_ZERO;
  sim_clear_records();
  ons_tensor* tensor = make(&allocation);
  cr_expect(eq(ptr, sim_last("cuMemAllocAsync")->stream, home));
  cr_expect(eq(ptr, sim_last("cuMemsetD8Async")->stream, home));
  ons_arg arg;
  ons_tensor_arg(tensor, &arg);
  cr_expect(eq(ptr, arg.stream, home));
  cr_expect(eq(u32, arg.flags, ONS_ARG_STREAM_KNOWN));
  ons_tensor_retain(tensor);
  ons_tensor_release(tensor);
  cr_expect(eq(sz, sim_call_count("cuMemFreeAsync"), 0));
  ons_tensor_release(tensor);
  cr_expect(eq(ptr, sim_last("cuMemFreeAsync")->stream, home));
  cr_expect(eq(sz, sim_call_count("cuEventRecord"), 0));
  cr_expect(zero(sz, ons_runtime_collect(runtime)));
}

Test(tensor_memory, of_no_elements_needs_no_driver) {
  const int64_t shape[] = {4, 0};
  ons_allocation allocation = allocation_of((DLDevice){kDLCUDA, 0}, 2, shape);
  allocation.flags = ONS_ALLOCATION_ZERO;
  ons_tensor_release(make(&allocation));
  cr_expect(eq(sz, sim_call_count("cuMemAllocAsync"), 0));
  cr_expect(eq(sz, sim_call_count("cuMemFreeAsync"), 0));
}

/* Whoever releases to another stream has that wait; the pool goes by the home stream. */
Test(tensor_memory, released_to_another_stream_is_still_freed_on_its_own) {
  ons_allocation allocation = on_gpu();
  ons_tensor* tensor = make(&allocation);
  sim_clear_records();
  cr_assert(eq(int, ons_tensor_release_to(tensor, other, &error), 0));
  cr_expect(eq(ptr, sim_last("cuStreamWaitEvent")->stream, other));
  cr_expect(eq(ptr, sim_last("cuMemFreeAsync")->stream, home));
  cr_expect(eq(sz, sim_call_count("cuMemFree_v2"), 0));
}

Test(tensor_memory, is_not_allocated_in_a_capture) {
  sim_capture_begin(home, SIM_CAPTURE_GLOBAL);
  sim_clear_records();
  ons_allocation allocation = on_gpu();
  expect_refused(&allocation, ONS_STATUS_CAPTURE);
  cr_expect(eq(sz, sim_call_count("cuMemAllocAsync"), 0));
  cr_expect(eq(int, sim_capture_status(home), 1));
  sim_graph_destroy(sim_capture_end(home));
}

/* What still runs from before the capture may use it, and the graph does not free it. */
Test(tensor_memory, released_in_a_capture_outlives_the_graph) {
  ons_allocation allocation = on_gpu();
  ons_tensor* tensor = make(&allocation);
  sim_capture_begin(home, SIM_CAPTURE_GLOBAL);
  sim_clear_records();
  ons_tensor_release(tensor);
  cr_expect(eq(sz, sim_call_count("cuMemFreeAsync"), 0));
  cr_expect(eq(int, sim_capture_status(home), 1));
  sim_graph_destroy(sim_capture_end(home));
  for (int i = 0; i < 3; ++i) {
    sim_run_all();
    ons_runtime_collect(runtime);
  }
  cr_expect(eq(sz, sim_call_count("cuMemFree_v2"), 1));
}

Test(tensor_memory, when_there_is_none_it_is_tried_once_more) {
  ons_allocation allocation = on_gpu();
  ons_tensor_release(make(&allocation));
  sim_clear_records();
  sim_inject("cuMemAllocAsync", 1, NO_MEMORY);
  ons_tensor_release(make(&allocation));
  cr_expect(eq(sz, sim_call_count("cuMemAllocAsync"), 2));
  sim_inject("cuMemAllocAsync", 1, NO_MEMORY);
  sim_inject("cuMemAllocAsync", 1, NO_MEMORY);
  expect_refused(&allocation, ONS_STATUS_OUT_OF_MEMORY);
  cr_expect(strstr(error.message, "24 bytes") != NULL, "%s", error.message);
}

Test(tensor_memory, a_failed_fill_gives_it_back) {
  ons_allocation allocation = on_gpu();
  allocation.flags = ONS_ALLOCATION_ZERO;
  sim_inject("cuMemsetD8Async", 1, 1);
  expect_refused(&allocation, ONS_STATUS_DEVICE);
  cr_expect(eq(sz, sim_call_count("cuMemFreeAsync"), 1));
}

Test(tensor_memory, a_failed_free_is_made_up_for) {
  ons_allocation allocation = on_gpu();
  ons_tensor* tensor = make(&allocation);
  sim_inject("cuMemFreeAsync", 1, 1);
  ons_tensor_release(tensor);
  sim_run_all();
  ons_runtime_collect(runtime);
  cr_expect(eq(sz, sim_call_count("cuMemFree_v2"), 1));
}

Test(tensor_memory, ten_thousand_leave_nothing) {
  ons_allocation allocation = on_gpu();
  sim_set_recording(0);
  for (int i = 0; i < 10000; ++i) {
    ons_tensor_release(make(&allocation));
    if (i % 100 == 0) sim_run_all();
  }
  sim_set_recording(1);
  cr_expect(zero(sz, ons_runtime_collect(runtime)));
}

/* ---- zeros ------------------------------------------------------------------------ */

Test(tensor_memory, zeros_are_of_dense_tensors) {
  float values[8];
  memset(values, 0xff, sizeof(values));
  int64_t shape[] = {2, 2};
  int64_t strides[] = {4, 1};
  DLTensor tensor = {.data = values,
                     .device = {kDLCPU, 0},
                     .ndim = 2,
                     .dtype = float32,
                     .shape = shape,
                     .strides = strides,
                     .byte_offset = 8};
  cr_expect(eq(int, ons_memory_zero(runtime, &tensor, NULL, &error),
               ONS_STATUS_ARGUMENT_VALUE));
  tensor.strides = NULL;
  cr_expect(eq(int, ons_memory_zero(runtime, &tensor, NULL, &error), 0));
  for (int i = 2; i < 6; ++i) cr_expect(zero(flt, values[i]));
  cr_expect(values[1] != 0 && values[6] != 0, "beyond the tensor");
  cr_expect(
      eq(int, ons_memory_zero(runtime, NULL, NULL, &error), ONS_STATUS_INVALID_ARGUMENT));
}
