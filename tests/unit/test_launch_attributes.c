/* Launch attributes, launches in threads, and occupancy, through the C API on the
 * stand-in driver. The code is compiled by the real NVRTC; without one they are skipped.
 */
#include "runtime/backends/cuda/cuda_types.h"
#include "tests/unit/launch_fixture.h"

static const char source[] =
    "__device__ int table[2][3] = {{1, 2, 3}, {4, 5, 6}};\n"
    "__constant__ double limits[2];\n" AXPY;

static const DLDevice gpu = {kDLCUDA, 0};

static void setup(void) { open_axpy(source); }
static void prepare(void) { prepare_axpy(); }
static void teardown(void) { close_axpy(); }

TestSuite(launch_attributes, .init = setup, .fini = teardown);
TestSuite(occupancy, .init = setup, .fini = teardown);
TestSuite(module_global, .init = setup, .fini = teardown);

static const ons_arg* arguments(void) { return axpy_on(side, side); }

static ons_status run(const ons_launch* launch) {
  return launch_with(launch, arguments());
}

static ons_status run_with(uint32_t flags) {
  ons_launch launch = ONS_LAUNCH_INIT;
  ons_launch_attributes attributes = ONS_LAUNCH_ATTRIBUTES_INIT;
  attributes.flags = flags;
  launch.attributes = &attributes;
  return run(&launch);
}

#define REFUSED(status, text)                                                      \
  do {                                                                             \
    cr_expect(eq(int, (status), error.code), "%s", error.message);                 \
    cr_expect(strstr(error.message, (text)) != NULL, "%s", error.message);         \
    cr_expect(eq(sz, sim_call_count("cuLaunchKernelEx"), 0), "%s", error.message); \
  } while (0)

/* ---- attributes ------------------------------------------------------------------- */

Test(launch_attributes, structs_that_are_not_set_up_are_refused) {
  prepare();
  ons_launch launch = ONS_LAUNCH_INIT;
  ons_launch_attributes attributes = {0};
  launch.attributes = &attributes;
  cr_expect(ne(int, run(&launch), 0));
  REFUSED(ONS_STATUS_INVALID_ARGUMENT, "ONS_LAUNCH_ATTRIBUTES_INIT");
  cr_expect(ne(int, run_with(1u << 9), 0));
  REFUSED(ONS_STATUS_INVALID_ARGUMENT, "flags that this version does not know");
}

/* A caller that was compiled before there were attributes. */
Test(launch_attributes, an_older_launch_has_none) {
  prepare();
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.struct_size = offsetof(ons_launch, attributes);
  memset(&launch.attributes, 0xee, sizeof(launch.attributes));
  cr_expect(eq(int, run(&launch), 0), "%s", error.message);
  cr_expect(eq(u32, sim_last("cuLaunchKernelEx")->attribute_count, 0));
}

Test(launch_attributes, empty_ones_change_nothing) {
  prepare();
  cr_expect(eq(int, run_with(0), 0), "%s", error.message);
  cr_expect(eq(u32, sim_last("cuLaunchKernelEx")->attribute_count, 0));
}

Test(launch_attributes, resolve_refuses_what_the_launch_would) {
  prepare();
  ons_launch launch = ONS_LAUNCH_INIT;
  ons_launch_attributes attributes = ONS_LAUNCH_ATTRIBUTES_INIT;
  ons_launch_plan plan = ONS_LAUNCH_PLAN_INIT;
  attributes.flags = ONS_ATTRIBUTES_COOPERATIVE;
  launch.attributes = &attributes;
  launch.grid[0] = 1u << 20;
  ons_status status = ons_launch_resolve(axpy, &launch, arguments(), 4, &plan, &error);
  cr_expect(eq(int, status, ONS_STATUS_ARGUMENT_VALUE));
  REFUSED(ONS_STATUS_ARGUMENT_VALUE, "a cooperative grid of 1048576 blocks");
  launch.grid[0] = 1;
  cr_expect(zero(int, ons_launch_resolve(axpy, &launch, arguments(), 4, &plan, &error)));
}

Test(launch_attributes, a_driver_without_them_is_told) {
  sim_set_version(11050);
  prepare();
  cr_expect(ne(int, run_with(ONS_ATTRIBUTES_COOPERATIVE), 0));
  REFUSED(ONS_STATUS_UNSUPPORTED, "CUDA 11.6 or newer");
  cr_expect(eq(sz, sim_call_count("cuLaunchKernel"), 0));
}

Test(launch_attributes, carveouts_need_their_driver) {
  sim_set_version(12040);
  prepare();
  cr_expect(ne(int, run_with(ONS_ATTRIBUTES_CARVEOUT), 0));
  REFUSED(ONS_STATUS_UNSUPPORTED, "CUDA 12.5 or newer");
  cr_expect(eq(int, run_with(ONS_ATTRIBUTES_PROGRAMMATIC), 0), "%s", error.message);
}

Test(launch_attributes, carveouts_are_percent) {
  prepare();
  ons_launch launch = ONS_LAUNCH_INIT;
  ons_launch_attributes attributes = ONS_LAUNCH_ATTRIBUTES_INIT;
  attributes.flags = ONS_ATTRIBUTES_CARVEOUT;
  attributes.carveout_percent = 101;
  launch.attributes = &attributes;
  cr_expect(ne(int, run(&launch), 0));
  REFUSED(ONS_STATUS_ARGUMENT_VALUE, "101 percent");
}

Test(launch_attributes, a_cluster_has_all_its_axes) {
  prepare();
  ons_launch launch = ONS_LAUNCH_INIT;
  ons_launch_attributes attributes = ONS_LAUNCH_ATTRIBUTES_INIT;
  attributes.cluster[1] = 2;
  launch.attributes = &attributes;
  cr_expect(ne(int, run(&launch), 0));
  REFUSED(ONS_STATUS_ARGUMENT_VALUE, "cluster.x is 0");
}

/* A CUfunction is of the primary context; the kernel is not. */
Test(launch_attributes, a_stream_of_another_context) {
  prepare();
  void* context = sim_context_create(0);
  side = sim_stream_create(context, 1);
  cr_expect(eq(int, run_with(ONS_ATTRIBUTES_COOPERATIVE), 0), "%s", error.message);
  cr_expect(eq(ptr, sim_last("cuLaunchKernelEx")->stream_context, context));
  cr_expect(eq(u32, sim_last("cuLaunchKernelEx")->attribute_count, 1));
}

Test(launch_attributes, a_node_keeps_those_it_was_made_with) {
  prepare();
  ons_launch launch = ONS_LAUNCH_INIT;
  ons_launch_attributes attributes = ONS_LAUNCH_ATTRIBUTES_INIT;
  launch.attributes = &attributes;
  int object = 0;
  ons_status status =
      ons_kernel_update_node(axpy, &object, &object, &launch, arguments(), 4, &error);
  cr_expect(eq(int, status, ONS_STATUS_INVALID_ARGUMENT));
  REFUSED(ONS_STATUS_INVALID_ARGUMENT, "keeps those it was made with");
}

/* ---- launches in threads ---------------------------------------------------------- */

Test(occupancy, launches_in_threads) {
  prepare();
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.flags = ONS_LAUNCH_THREADS;
  launch.grid[0] = 2049;
  launch.grid[1] = 5;
  memset(launch.block, 0, sizeof(launch.block));
  cr_expect(eq(int, run(&launch), 0), "%s", error.message);
  const sim_record* record = sim_last("cuLaunchKernelEx");
  cr_expect(eq(u32, record->block[0], 1024));
  cr_expect(eq(u32, record->grid[0], 3));
  cr_expect(eq(u32, record->grid[1], 5));
  launch.block[0] = 100;
  launch.block[1] = 2;
  launch.block[2] = 1;
  cr_expect(eq(int, run(&launch), 0), "%s", error.message);
  record = sim_last("cuLaunchKernelEx");
  cr_expect(eq(u32, record->grid[0], 21));
  cr_expect(eq(u32, record->grid[1], 3));
  cr_expect(eq(u32, launch.grid[0], 2049)); /* the caller's struct is as it was */
}

/* The answer depends on the shared memory, and is not mixed up. */
Test(occupancy, one_block_size_is_remembered) {
  prepare();
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.flags = ONS_LAUNCH_THREADS;
  launch.grid[0] = 8;
  memset(launch.block, 0, sizeof(launch.block));
  for (int i = 0; i < 3; ++i) cr_expect(eq(int, run(&launch), 0), "%s", error.message);
  cr_expect(eq(sz, sim_call_count("cuOccupancyMaxPotentialBlockSize"), 1));
  launch.shared_bytes = 1024;
  for (int i = 0; i < 3; ++i) cr_expect(eq(int, run(&launch), 0), "%s", error.message);
  cr_expect(eq(sz, sim_call_count("cuOccupancyMaxPotentialBlockSize"), 2));
  launch.shared_bytes = 1u << 30;
  cr_expect(eq(int, run(&launch), ONS_STATUS_ARGUMENT_VALUE), "%s", error.message);
}

Test(occupancy, questions) {
  prepare();
  ons_occupancy occupancy = {.struct_size = sizeof(occupancy)};
  cr_expect(eq(int, ons_kernel_occupancy(axpy, gpu, 512, 0, &occupancy, &error), 0));
  cr_expect(eq(u32, occupancy.blocks_per_multiprocessor, 4));
  cr_expect(eq(u32, occupancy.threads_per_multiprocessor, SIM_RESIDENT_THREADS));
  cr_expect(eq(u32, occupancy.multiprocessor_count, SIM_MULTIPROCESSORS));
  uint32_t grid = 0, block = 0;
  cr_expect(zero(
      int, ons_kernel_max_potential_block_size(axpy, gpu, 0, 64, &grid, &block, &error)));
  cr_expect(eq(u32, block, 64));
  cr_expect(eq(u32, grid, 32 * SIM_MULTIPROCESSORS));
  const DLDevice cpu = {kDLCPU, 0};
  ons_status status = ons_kernel_occupancy(axpy, cpu, 64, 0, &occupancy, &error);
  cr_expect(eq(int, status, 0), "%s", error.message);
  cr_expect(eq(u32, occupancy.blocks_per_multiprocessor, 32));
  status = ons_kernel_occupancy(axpy, (DLDevice){kDLROCM, 0}, 64, 0, &occupancy, &error);
  cr_expect(eq(int, status, ONS_STATUS_UNSUPPORTED), "%s", error.message);
  status = ons_kernel_occupancy(axpy, gpu, 64, 0, NULL, &error);
  cr_expect(eq(int, status, ONS_STATUS_INVALID_ARGUMENT), "%s", error.message);
}

/* A question does not harm a capture of any thread. */
Test(occupancy, questions_during_a_capture) {
  prepare();
  sim_capture_begin(side, SIM_CAPTURE_GLOBAL);
  ons_occupancy occupancy = {.struct_size = sizeof(occupancy)};
  cr_expect(eq(int, ons_kernel_occupancy(axpy, gpu, 512, 0, &occupancy, &error), 0));
  ons_tensor* table = NULL;
  cr_expect(eq(int, ons_module_global(module, gpu, "table", NULL, &table, &error),
               ONS_STATUS_OK),
            "%s", error.message);
  ons_tensor_release(table);
  cr_expect(eq(int, sim_capture_status(side), 1));
}

/* ---- variables -------------------------------------------------------------------- */

static ons_tensor* variable(const char* name, DLDevice device) {
  ons_tensor* tensor = NULL;
  ons_status status = ons_module_global(module, device, name, side, &tensor, &error);
  cr_assert(eq(int, status, 0), "%s", error.message);
  return tensor;
}

Test(module_global, a_variable_on_its_stream) {
  prepare();
  ons_tensor* table = variable("table", gpu);
  const DLTensor* tensor = ons_tensor_dltensor(table);
  cr_expect(eq(int, tensor->ndim, 2));
  cr_expect(eq(i64, tensor->shape[0], 2));
  cr_expect(eq(i64, tensor->shape[1], 3));
  cr_expect(eq(int, tensor->dtype.code, kDLInt));
  cr_expect(
      eq(int, ((const int*)tensor->data)[5], 6)); /* the stand-in's is host memory */
  ons_arg arg;
  ons_tensor_arg(table, &arg);
  cr_expect(eq(ptr, arg.stream, side));
  cr_expect(eq(u32, arg.flags, ONS_ARG_STREAM_KNOWN));
  ons_tensor* again = variable("::table", gpu);
  cr_expect(eq(ptr, ons_tensor_dltensor(again)->data, tensor->data));
  ons_tensor_release(again);
  ons_tensor_release(table);

  ons_tensor* limits = variable("limits", gpu);
  ons_tensor_arg(limits, &arg);
  cr_expect(eq(u32, arg.flags, ONS_ARG_STREAM_KNOWN | ONS_ARG_READ_ONLY));
  ons_tensor_release(limits);
}

/* Before there were libraries. */
Test(module_global, an_older_driver) {
  sim_set_version(11050);
  prepare();
  ons_tensor* table = variable("table", gpu);
  cr_expect(eq(sz, sim_call_count("cuModuleGetGlobal_v2"), 1));
  ons_tensor_release(table);
}

/* The tensor keeps the code that it is part of. */
Test(module_global, outlives_its_module) {
  const DLDevice cpu = {kDLCPU, 0};
  ons_tensor* table = variable("table", cpu);
  ons_kernel_release(axpy);
  axpy = NULL;
  ons_module_release(module);
  module = NULL;
  cr_expect(eq(int, ((const int*)ons_tensor_dltensor(table)->data)[4], 5));
  ons_tensor_release(table);
}

Test(module_global, unknown_names_list_the_others) {
  ons_tensor* tensor = NULL;
  ons_status status = ons_module_global(module, gpu, "tables", NULL, &tensor, &error);
  cr_expect(eq(int, status, ONS_STATUS_NOT_FOUND));
  cr_expect(strstr(error.message, "its variables: table, limits") != NULL, "%s",
            error.message);
  cr_expect(eq(str, (char*)ons_module_global_name(module, 1), "limits"));
  cr_expect(eq(ptr, (void*)ons_module_global_name(module, 2), NULL));
}
