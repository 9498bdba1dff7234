/* Tensors that are kept, on the simulated GPU: work runs late and in any order that the
 * real one allows, and every access and free that is not ordered after the one before is
 * reported. The kernel is compiled by the real NVRTC; without one the tests are skipped.
 */
#include <stdlib.h>

#include "tests/unit/program_fixture.h"

enum { SIZE_BYTES = 64 };

static const char source[] = "__global__ void touch(float* x) { x[0] += 1; }";

static ons_module* module;
static ons_kernel* touch;
static int64_t shape[] = {SIZE_BYTES / 4};
static void* producer;

static void setup(void) {
  open_runtime();
  OK(ons_module_create(runtime, source, NULL, &module, &error));
  OK(ons_module_kernel(module, "touch", &touch, &error));
  ons_status status = ons_kernel_prepare(touch, (DLDevice){kDLCUDA, 0}, NULL, &error);
  if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
  OK(status);
  sim_set_current(sim_primary_context(0));
  sim_declare_kernel("touch", "u");
  sim_set_recording(0);
}

static void teardown(void) {
  ons_kernel_release(touch);
  ons_module_release(module);
  ons_runtime_release(runtime);
}

TestSuite(tensor_order, .init = setup, .fini = teardown);

static void begin(uint64_t seed) {
  begin_program(seed);
  producer = named_stream("producer");
}

/* ---- the producer ----------------------------------------------------------------- */

/* Memory in the order of a stream, as frameworks' allocators have it. */
typedef struct array {
  DLManagedTensorVersioned managed;
  CUdeviceptr memory;
  void* stream;
} array;

static void free_in_order(DLManagedTensorVersioned* self) {
  array* owner = self->manager_ctx;
  OK(cuMemFreeAsync(owner->memory, owner->stream));
  free(owner);
}

/* Freed for everybody at once: nothing may use it any more. */
static void free_at_once(DLManagedTensorVersioned* self) {
  array* owner = self->manager_ctx;
  sim_device_free((void*)owner->memory);
  free(owner);
}

static void write_to(CUdeviceptr memory, void* stream) {
  OK(cuMemsetD32Async(memory, 7, SIZE_BYTES / 4, stream));
}

/* Written on the producer's stream a moment ago. */
static array* make_array(void (*deleter)(DLManagedTensorVersioned*)) {
  array* self = calloc(1, sizeof(*self));
  self->stream = producer;
  if (deleter == free_in_order) {
    OK(cuMemAllocAsync(&self->memory, SIZE_BYTES, producer));
  } else {
    self->memory = (CUdeviceptr)sim_device_alloc(0, SIZE_BYTES);
  }
  write_to(self->memory, producer);
  self->managed.version.major = 1;
  self->managed.deleter = deleter;
  self->managed.manager_ctx = self;
  self->managed.dl_tensor = (DLTensor){.data = (void*)self->memory,
                                       .device = {kDLCUDA, 0},
                                       .ndim = 1,
                                       .dtype = {kDLFloat, 32, 1},
                                       .shape = shape};
  return self;
}

static ons_tensor* import(array* source_array) {
  ons_tensor_options options = ONS_TENSOR_OPTIONS_INIT;
  options.flags = ONS_TENSOR_STREAM | ONS_TENSOR_PRODUCER_STREAM;
  options.versioned = &source_array->managed;
  options.stream = home;
  options.producer_stream = producer;
  ons_tensor* tensor = NULL;
  OK(ons_tensor_create(runtime, &options, &tensor, &error));
  return tensor;
}

static void use(const ons_tensor* tensor, void* stream) {
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.flags = ONS_LAUNCH_STREAM;
  launch.stream = stream;
  ons_arg arg;
  ons_tensor_arg(tensor, &arg);
  OK(ons_kernel_launch(touch, &launch, &arg, 1, &error));
}

/* Until the device is past all that was released. */
static void collect_all(void) {
  for (int i = 0; i < 1000 && ons_runtime_collect(runtime) > 0; ++i) sim_step(1);
  cr_assert(eq(sz, ons_runtime_collect(runtime), 0));
}

/* ---- what must be in order -------------------------------------------------------- */

/* Kernel, then in-place work of the producer, which keeps the memory. */
static size_t in_place(uint64_t seed, bool in_order) {
  begin(seed);
  array* x = make_array(free_in_order);
  DLManagedTensorVersioned lent = x->managed;
  lent.deleter = NULL;
  ons_tensor_options options = ONS_TENSOR_OPTIONS_INIT;
  options.flags = ONS_TENSOR_STREAM | ONS_TENSOR_PRODUCER_STREAM;
  options.versioned = &lent;
  options.stream = home;
  options.producer_stream = producer;
  ons_tensor* tensor = NULL;
  OK(ons_tensor_create(runtime, &options, &tensor, &error));
  use(tensor, home);
  use(tensor, third);
  if (in_order) {
    OK(ons_tensor_release_to(tensor, producer, &error));
  } else {
    ons_tensor_release(tensor);
  }
  write_to(x->memory, producer);
  free_in_order(&x->managed);
  size_t reports = end(in_order);
  collect_all();
  return reports;
}

Test(tensor_order, a_kernel_then_in_place_work) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    cr_expect(eq(sz, in_place(seed, true), 0), "seed %d", (int)seed);
  }
}

/* A release that names no stream orders nothing; and the checker sees it. */
Test(tensor_order, without_an_ordered_release_the_producer_is_not_behind) {
  cr_expect(gt(sz, in_place(1, false), 0));
}

Test(tensor_order, memory_goes_back_to_its_allocator) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    ons_tensor* tensor = import(make_array(free_in_order));
    use(tensor, third);
    use(tensor, home);
    OK(ons_tensor_release_to(tensor, producer, &error));
    CUdeviceptr next; /* the same memory, as a rule */
    OK(cuMemAllocAsync(&next, SIZE_BYTES, producer));
    write_to(next, producer);
    OK(cuMemFreeAsync(next, producer));
    cr_expect(eq(sz, end(true), 0), "seed %d", (int)seed);
  }
}

/* Freed in the order of the producer's stream, though it is another that was joined. */
Test(tensor_order, released_to_another_stream) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    array* x = make_array(free_in_order);
    ons_tensor* tensor = import(x);
    use(tensor, home);
    OK(ons_tensor_release_to(tensor, third, &error));
    collect_all();
    cr_expect(eq(sz, end(true), 0), "seed %d", (int)seed);
  }
}

Test(tensor_order, deferred_until_the_device_is_past) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    ons_tensor* tensor = import(make_array(free_at_once));
    use(tensor, home);
    use(tensor, third);
    ons_tensor_retain(tensor);
    ons_tensor_release(tensor);
    use(tensor, third);
    ons_tensor_release(tensor);
    collect_all();
    cr_expect(eq(sz, end(true), 0), "seed %d", (int)seed);
  }
}

/* ---- capture ---------------------------------------------------------------------- */

static void join_by_hand(void* waiting, void* signalling) {
  CUevent event;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cuEventRecord(event, signalling));
  OK(cuStreamWaitEvent(waiting, event, 0));
  OK(cuEventDestroy_v2(event));
}

/* Two streams of one capture are joined in it, and the graph keeps the memory. */
Test(tensor_order, within_one_capture) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    array* x = make_array(free_at_once);
    OK(cuStreamBeginCapture_v2(producer, CU_STREAM_CAPTURE_MODE_RELAXED));
    join_by_hand(home, producer);
    write_to(x->memory, producer);
    ons_tensor* tensor = import(x);
    use(tensor, home);
    OK(ons_tensor_release_to(tensor, producer, &error));
    write_to(x->memory, producer);
    CUgraph graph;
    OK(cuStreamEndCapture(producer, &graph));
    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 3; ++i) OK(cuGraphLaunch(exec, producer));
    OK(cuStreamSynchronize(producer));
    OK(cuGraphExecDestroy(exec));
    collect_all();
    cr_expect(eq(sz, end(true), 0), "seed %d", (int)seed);
  }
}

/* The graph is gone without having run, and the stream still busy with earlier work. */
Test(tensor_order, released_in_a_capture_with_earlier_work_under_way) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    ons_tensor* tensor = import(make_array(free_at_once));
    use(tensor, home);
    OK(cuStreamBeginCapture_v2(home, CU_STREAM_CAPTURE_MODE_GLOBAL));
    use(tensor, home);
    ons_tensor_release(tensor);
    CUgraph graph;
    OK(cuStreamEndCapture(home, &graph));
    OK(cuGraphDestroy(graph));
    collect_all();
    cr_expect(eq(sz, end(true), 0), "seed %d", (int)seed);
  }
}
