/* The simulated GPU itself: what it runs and when, what its checker finds, and what it
 * must not find. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simgpu/sim_driver.h"
#include "tests/simgpu/sim_gpu.h"

enum { BYTES = 64, SEEDS = 50 };

/* clang-format off */
static const char image[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry set(.param .u64 set_param_0, .param .u64 set_param_1) {}\n"
    ".visible .entry mix(.param .u64 mix_param_0, .param .u64 mix_param_1) {}\n"
    ".visible .entry add(.param .u64 add_param_0, .param .u64 add_param_1) {}\n"
    ".visible .entry unknown(.param .u64 unknown_param_0) {}\n";
/* clang-format on */

static CUfunction set, mix, add, unknown; /* *p = v; *p = *q; *p += v; of nobody knows */
static CUstream first, second, blocking;
static CUevent between; /* of join: some drivers make no events during a capture */

#define OK(call) cr_assert(eq(int, (call), CUDA_SUCCESS), #call)
#define IS(code, call) cr_expect(eq(int, (call), (code)), #call)

static uint64_t* pointer_at(const sim_kernel_call* call, int index) {
  uint64_t* pointer = NULL;
  memcpy(&pointer, call->parameters + 8 * index, sizeof(pointer));
  return pointer;
}

static uint64_t value_at(const sim_kernel_call* call, int index) {
  return (uint64_t)(uintptr_t)pointer_at(call, index);
}

static void run_set(void* user_data, const sim_kernel_call* call) {
  (void)user_data;
  *pointer_at(call, 0) = value_at(call, 1);
}

static void run_mix(void* user_data, const sim_kernel_call* call) {
  (void)user_data;
  *pointer_at(call, 0) = *pointer_at(call, 1);
}

static void run_add(void* user_data, const sim_kernel_call* call) {
  (void)user_data;
  *pointer_at(call, 0) += value_at(call, 1);
}

static void launch(CUfunction kernel, CUstream stream, const void* pointer,
                   uint64_t value) {
  void* parameters[] = {&pointer, &value};
  OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static CUfunction get(CUmodule module, const char* name) {
  CUfunction kernel = NULL;
  OK(cuModuleGetFunction(&kernel, module, name));
  return kernel;
}

static void make_streams(void) {
  OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&blocking, 0));
  sim_name(first, "first");
  sim_name(second, "second");
}

static void begin(uint64_t seed) {
  sim_reset();
  sim_schedule_begin(seed);
  make_streams();
  if (!between) OK(cuEventCreate(&between, CU_EVENT_DISABLE_TIMING));
}

static void setup(void) {
  sim_set_device_count(2);
  OK(cuInit(0));
  sim_set_current(sim_primary_context(0));
  CUmodule module = NULL;
  OK(cuModuleLoadData(&module, image));
  set = get(module, "set");
  mix = get(module, "mix");
  add = get(module, "add");
  unknown = get(module, "unknown");
  sim_declare_kernel("set", "wv");
  sim_declare_kernel("mix", "wr");
  sim_declare_kernel("add", "uv");
  sim_register_kernel("set", run_set, NULL);
  sim_register_kernel("mix", run_mix, NULL);
  sim_register_kernel("add", run_add, NULL);
  begin(1);
  sim_set_eagerness(0);
}

TestSuite(simgpu, .init = setup);

static uint64_t* device_memory(void) {
  uint64_t* memory = sim_device_alloc(0, BYTES);
  sim_allocation_keep(memory);
  return memory;
}

static CUevent event(void) {
  CUevent made = NULL;
  OK(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
  return made;
}

/* `later` goes on when what `earlier` has now is over. */
static void join(CUstream later, CUstream earlier) {
  OK(cuEventRecord(between, earlier));
  OK(cuStreamWaitEvent(later, between, 0));
}

static void expect_found(const char* what, size_t count, int kind) {
  char text[2048];
  for (size_t i = 0; i < sim_report_count(); ++i) {
    sim_report_text(i, text, sizeof(text));
    cr_expect(eq(int, sim_report_at(i)->kind, kind), "%s: %s", what, text);
  }
  cr_expect(eq(sz, sim_report_count(), count), "%s", what);
  sim_clear_reports();
}

#define FOUND(count, kind) expect_found(__func__, count, kind)
#define CLEAN() expect_found(__func__, 0, 0)

/* ---- order of execution ---- */

Test(simgpu, nothing_runs_before_somebody_waits) {
  uint64_t* x = device_memory();
  uint64_t before = *x;
  launch(set, first, x, 7);
  launch(add, first, x, 1);
  cr_expect(eq(u64, *x, before));
  cr_expect(eq(sz, sim_pending_count(), 2));
  IS(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
  OK(cuStreamSynchronize(second));
  cr_expect(eq(u64, *x, before));
  cr_expect(eq(sz, sim_step(1), 1));
  cr_expect(eq(u64, *x, 7));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, 8));
  OK(cuStreamQuery(first));
  CLEAN();
}

Test(simgpu, any_legal_order_happens) {
  int seen[2] = {0};
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    uint64_t* x = device_memory();
    launch(set, first, x, 1);
    launch(set, second, x, 2);
    sim_schedule_end();
    ++seen[*x - 1];
    FOUND(1, SIM_RACE);
  }
  cr_expect(gt(int, seen[0], 0));
  cr_expect(gt(int, seen[1], 0));
}

Test(simgpu, the_same_seed_gives_the_same_order) {
  uint64_t results[2];
  for (int i = 0; i < 2; ++i) {
    begin(99);
    uint64_t* x = device_memory();
    launch(set, first, x, 0);
    for (uint64_t j = 0; j < 20; ++j) {
      launch(add, j % 2 ? first : second, x, j);
      launch(set, j % 2 ? second : first, x, 3 * j);
    }
    sim_schedule_end();
    results[i] = *x;
  }
  cr_expect(eq(u64, results[0], results[1]));
}

Test(simgpu, values_are_right_in_every_order_when_joined) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    uint64_t *x = device_memory(), *y = device_memory();
    launch(set, first, x, 7);
    join(second, first);
    launch(mix, second, y, (uint64_t)(uintptr_t)x);
    join(first, second);
    launch(set, first, x, 8);
    cr_expect(eq(sz, sim_schedule_end(), 0));
    cr_expect(eq(u64, *y, 7));
    cr_expect(eq(u64, *x, 8));
  }
}

Test(simgpu, waiting_runs_only_what_is_needed) {
  uint64_t *x = device_memory(), *y = device_memory();
  launch(set, first, x, 1);
  CUevent done = event();
  OK(cuEventRecord(done, first));
  launch(set, first, x, 2);
  launch(set, second, y, 3);
  OK(cuEventSynchronize(done));
  cr_expect(eq(u64, *x, 1));
  cr_expect(eq(sz, sim_pending_count(), 2));
  OK(cuCtxSynchronize());
  cr_expect(eq(sz, sim_pending_count(), 0));
}

static void note(void* user_data) { ++*(int*)user_data; }

Test(simgpu, host_functions_copies_and_fills_run_in_order) {
  uint64_t* x = device_memory();
  int notes = 0;
  uint64_t value = 5, back = 0;
  OK(cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)x, &value, 8, first));
  value = 6; /* pageable memory was read already */
  launch(add, first, x, 1);
  OK(cuLaunchHostFunc(first, note, &notes));
  OK(cuMemcpyDtoHAsync_v2(&back, (CUdeviceptr)(uintptr_t)x, 8, first));
  cr_expect(eq(u64, back, 6), "a copy to pageable memory waits");
  cr_expect(eq(int, notes, 1));
  OK(cuMemsetD8Async((CUdeviceptr)(uintptr_t)x, 0xff, 8, first));
  OK(cuMemsetD32Async((CUdeviceptr)(uintptr_t)x, 1, 1, first));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, 0xffffffff00000001u));
  CLEAN();
}

Test(simgpu, declared_kernels_mix_what_they_read) {
  sim_declare_kernel("unknown", "u");
  uint64_t* x = device_memory();
  launch(set, first, x, 3);
  launch(unknown, first, x, 0);
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, sim_mix(sim_mix(0, 3), 0)));
}

/* ---- races ---- */

Test(simgpu, a_read_that_is_not_ordered_after_the_write) {
  uint64_t *x = device_memory(), *y = device_memory();
  launch(set, first, x, 7);
  launch(mix, second, y, (uint64_t)(uintptr_t)x);
  cr_expect(eq(sz, sim_report_count(), 1));
  const sim_report* report = sim_report_at(0);
  cr_expect(eq(u32, report->allocation, sim_allocation_id(x)));
  cr_expect(eq(ptr, report->first_stream, (void*)first));
  cr_expect(eq(ptr, report->second_stream, (void*)second));
  cr_expect(eq(int, report->first_is_write, 1));
  cr_expect(eq(int, report->second_is_write, 0));
  FOUND(1, SIM_RACE);
}

/* The device happened to be fast; nobody had asked. */
Test(simgpu, a_race_is_found_though_the_order_was_right_this_time) {
  uint64_t *x = device_memory(), *y = device_memory();
  launch(set, first, x, 7);
  sim_run_all();
  launch(mix, second, y, (uint64_t)(uintptr_t)x);
  FOUND(1, SIM_RACE);
}

Test(simgpu, a_write_that_may_overtake_a_read) {
  uint64_t *x = device_memory(), *y = device_memory();
  launch(set, first, x, 7);
  join(second, first);
  launch(mix, second, y, (uint64_t)(uintptr_t)x);
  CLEAN();
  launch(add, first, x, 1);
  FOUND(1, SIM_RACE);
}

Test(simgpu, two_reads_need_no_order) {
  uint64_t *x = device_memory(), *y = device_memory(), *z = device_memory();
  launch(set, first, x, 7);
  join(second, first);
  launch(mix, second, y, (uint64_t)(uintptr_t)x);
  launch(mix, first, z, (uint64_t)(uintptr_t)x);
  CLEAN();
}

Test(simgpu, what_nobody_declared_counts_as_written) {
  uint64_t* x = device_memory();
  launch(unknown, first, x, 0);
  launch(unknown, second, x, 0);
  FOUND(1, SIM_RACE);
}

Test(simgpu, the_legacy_stream_waits_for_blocking_streams_only) {
  uint64_t* x = device_memory();
  launch(set, NULL, x, 1);
  launch(add, blocking, x, 1);
  launch(add, NULL, x, 1);
  launch(add, (CUstream)1, x, 1);
  launch(add, (CUstream)2, x, 1); /* the per-thread default stream blocks */
  launch(add, blocking, x, 1);    /* but not against another blocking one */
  FOUND(1, SIM_RACE);
  launch(add, NULL, x, 1);
  CLEAN();
  launch(add, first, x, 1);
  FOUND(1, SIM_RACE);
}

Test(simgpu, a_wait_is_for_the_record_of_its_time) {
  uint64_t *x = device_memory(), *y = device_memory();
  CUevent recorded = event();
  OK(cuStreamWaitEvent(second, recorded, 0)); /* never recorded: no wait */
  launch(set, first, x, 1);
  OK(cuEventRecord(recorded, first));
  OK(cuStreamWaitEvent(second, recorded, 0));
  launch(set, first, y, 1);
  OK(cuEventRecord(recorded, first));
  launch(add, second, x, 1);
  CLEAN();
  launch(add, second, y, 1);
  FOUND(1, SIM_RACE);
  OK(cuStreamWaitEvent(second, recorded, 0));
  launch(add, second, y, 1);
  CLEAN();
}

Test(simgpu, order_goes_through_a_third_stream) {
  uint64_t* x = device_memory();
  launch(set, first, x, 1);
  join(blocking, first);
  join(second, blocking);
  launch(add, second, x, 1);
  CLEAN();
}

/* ---- the host ---- */

Test(simgpu, the_host_must_wait_for_what_it_reads) {
  uint64_t* x = device_memory();
  sim_host_access(x, BYTES, 1);
  launch(add, first, x, 1);
  CLEAN();
  sim_host_access(x, BYTES, 0);
  FOUND(1, SIM_RACE);
  OK(cuStreamSynchronize(second));
  sim_host_access(x, BYTES, 0);
  FOUND(1, SIM_RACE);
  OK(cuStreamSynchronize(first));
  sim_host_access(x, BYTES, 0);
  CLEAN();
}

Test(simgpu, asking_an_event_tells_the_host) {
  uint64_t* x = device_memory();
  launch(set, first, x, 1);
  CUevent done = event();
  OK(cuEventRecord(done, first));
  IS(CUDA_ERROR_NOT_READY, cuEventQuery(done));
  sim_run_all();
  sim_host_access(x, BYTES, 0);
  FOUND(1, SIM_RACE);
  OK(cuEventQuery(done));
  sim_host_access(x, BYTES, 0);
  CLEAN();
}

static void* read_elsewhere(void* memory) {
  sim_host_receive(5);
  sim_host_access(memory, BYTES, 0);
  sim_host_send(6);
  return NULL;
}

static void read_on_thread(void* memory) {
  pthread_t thread;
  cr_assert(zero(int, pthread_create(&thread, NULL, read_elsewhere, memory)));
  pthread_join(thread, NULL);
}

Test(simgpu, threads_know_what_they_were_told) {
  uint64_t* x = device_memory();
  launch(set, first, x, 1);
  OK(cuStreamSynchronize(first));
  read_on_thread(x); /* a new thread knows what the others know */
  CLEAN();
  launch(add, first, x, 1);
  FOUND(1, SIM_RACE); /* that the thread has read is not known yet */
  sim_host_receive(6);
  launch(add, first, x, 1);
  CLEAN();
  read_on_thread(x);
  FOUND(1, SIM_RACE);
}

typedef struct relay {
  uint64_t* memory;
  pthread_barrier_t barrier;
  bool told;
} relay;

static void* wait_and_read(void* argument) {
  relay* shared = argument;
  sim_host_access(shared->memory, BYTES, 0); /* seen, before the other waits */
  pthread_barrier_wait(&shared->barrier);
  pthread_barrier_wait(&shared->barrier);
  if (shared->told) sim_host_receive(1);
  sim_host_access(shared->memory, BYTES, 0);
  return NULL;
}

Test(simgpu, what_one_thread_waited_for_another_must_be_told) {
  for (int told = 0; told < 2; ++told) {
    begin(1);
    relay shared = {.memory = device_memory(), .told = told};
    sim_host_access(shared.memory, BYTES, 1);
    pthread_barrier_init(&shared.barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_and_read, &shared);
    pthread_barrier_wait(&shared.barrier);
    sim_clear_reports();
    launch(set, first, shared.memory, 1);
    OK(cuStreamSynchronize(first));
    sim_host_send(1);
    sim_clear_reports(); /* of the write after the other thread's read */
    pthread_barrier_wait(&shared.barrier);
    pthread_join(thread, NULL);
    expect_found(told ? "told" : "not told", told ? 0 : 1, SIM_RACE);
  }
}

Test(simgpu, waiting_is_counted) {
  uint64_t before = sim_sync_count(0);
  OK(cuStreamSynchronize(first));
  OK(cuCtxSynchronize());
  OK(cuEventSynchronize(event()));
  IS(CUDA_SUCCESS, cuStreamQuery(first));
  cr_expect(eq(u64, sim_sync_count(0) - before, 3));
  cr_expect(ge(u64, sim_sync_count(1), 3));
}

static void access_memory(void* memory) { sim_host_access(memory, BYTES, 0); }

Test(simgpu, a_host_function_is_part_of_its_stream) {
  uint64_t* x = device_memory();
  launch(set, first, x, 1);
  OK(cuLaunchHostFunc(first, access_memory, x));
  launch(add, first, x, 1);
  sim_run_all();
  CLEAN();
  launch(add, second, x, 1);
  FOUND(2, SIM_RACE); /* with the first stream's write, and with the function */
}

/* ---- lifetime ---- */

Test(simgpu, memory_that_is_freed_and_then_used) {
  uint64_t *x = sim_device_alloc(0, BYTES), *y = device_memory();
  launch(set, first, x, 1);
  OK(cuStreamSynchronize(first));
  sim_device_free(x);
  CLEAN();
  launch(mix, first, y, (uint64_t)(uintptr_t)x);
  FOUND(1, SIM_USE_AFTER_FREE);
}

Test(simgpu, memory_that_is_freed_under_a_kernel) {
  uint64_t *x = sim_device_alloc(0, BYTES), *y = device_memory();
  launch(set, first, x, 1);
  OK(cuStreamSynchronize(first));
  launch(mix, first, y, (uint64_t)(uintptr_t)x);
  sim_device_free(x);
  FOUND(1, SIM_UNORDERED_FREE);
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *y, 0xdddddddddddddddd), "the kernel sees what became of it");
}

Test(simgpu, freed_memory_is_handed_out_at_once) {
  uint64_t* x = sim_device_alloc(0, BYTES);
  launch(set, first, x, 1);
  OK(cuStreamSynchronize(first));
  sim_device_free(x);
  uint64_t* y = sim_device_alloc(0, BYTES);
  cr_expect(eq(ptr, x, y));
  cr_expect(eq(u64, *y, 0xcdcdcdcdcdcdcdcd));
  launch(add, first, y, 1);
  FOUND(1, SIM_UNINITIALISED_READ);
  cr_expect(eq(sz, sim_schedule_end(), 1));
  FOUND(1, SIM_LEAK);
}

Test(simgpu, streams_reuse_memory_in_their_order) {
  CUdeviceptr x = 0, y = 0, z = 0;
  OK(cuMemAllocAsync(&x, BYTES, first));
  launch(set, first, (void*)(uintptr_t)x, 1);
  OK(cuMemFreeAsync(x, first));
  OK(cuMemAllocAsync(&y, BYTES, second));
  cr_expect(ne(u64, x, y), "the free has not run, and nothing orders the streams");
  OK(cuMemFreeAsync(y, second));
  join(second, first);
  OK(cuMemAllocAsync(&z, BYTES, second));
  cr_expect(any(eq(u64, z, x), eq(u64, z, y)));
  launch(set, second, (void*)(uintptr_t)z, 1);
  OK(cuMemFreeAsync(z, second));
  cr_expect(eq(sz, sim_schedule_end(), 0));
  CLEAN();
}

Test(simgpu, memory_of_a_stream_is_not_there_for_others_at_once) {
  CUdeviceptr x = 0;
  OK(cuMemAllocAsync(&x, BYTES, first));
  launch(set, second, (void*)(uintptr_t)x, 1);
  FOUND(1, SIM_RACE);
  OK(cuMemFreeAsync(x, first));
  FOUND(1, SIM_UNORDERED_FREE);
}

/* What torch's and CuPy's allocators do: the next owner gets it in the stream's order. */
Test(simgpu, reuse_by_the_producer_needs_the_join_after) {
  for (int joined = 0; joined < 2; ++joined) {
    begin(3);
    CUdeviceptr x = 0;
    uint64_t* y = device_memory();
    OK(cuMemAllocAsync(&x, BYTES, first));
    launch(set, first, (void*)(uintptr_t)x, 1);
    join(second, first);
    launch(mix, second, y, (uint64_t)x);
    if (joined) join(first, second);
    OK(cuMemFreeAsync(x, first));
    expect_found(joined ? "joined" : "not joined", joined ? 0 : 1, SIM_UNORDERED_FREE);
  }
}

Test(simgpu, what_nobody_wrote_is_not_read) {
  uint64_t *x = device_memory(), *y = device_memory();
  launch(mix, first, y, (uint64_t)(uintptr_t)x);
  FOUND(1, SIM_UNINITIALISED_READ);
  launch(add, first, y, 1);
  CLEAN();
}

Test(simgpu, memory_is_freed_once) {
  uint64_t* x = sim_device_alloc(0, BYTES);
  sim_device_free(x);
  CLEAN();
  sim_device_free(x);
  FOUND(1, SIM_DOUBLE_FREE);
  sim_device_free(&x);
  FOUND(1, SIM_DOUBLE_FREE);
}

Test(simgpu, what_is_left_is_a_leak_unless_it_is_kept) {
  uint64_t* x = sim_device_alloc(0, BYTES);
  device_memory();
  cr_expect(eq(sz, sim_schedule_end(), 1));
  cr_expect(eq(u32, sim_report_at(0)->allocation, sim_allocation_id(x)));
  FOUND(1, SIM_LEAK);
}

Test(simgpu, memory_of_another_device_or_of_nobody) {
  uint64_t* x = sim_device_alloc(1, BYTES);
  sim_allocation_keep(x);
  launch(set, first, x, 1);
  FOUND(1, SIM_WRONG_DEVICE);
  uint64_t local = 0;
  launch(set, first, &local, 1);
  FOUND(1, SIM_UNKNOWN_MEMORY);
  launch(set, first, sim_pinned_alloc(BYTES), 1);
  CLEAN();
}

/* ---- graphs ---- */

static CUgraph end_capture(CUstream stream) {
  CUgraph graph = NULL;
  OK(cuStreamEndCapture(stream, &graph));
  return graph;
}

static CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = NULL;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

Test(simgpu, a_captured_graph_runs_as_often_as_it_is_launched) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    uint64_t *x = device_memory(), *y = device_memory();
    OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
    launch(set, first, x, 7);
    join(second, first);
    launch(mix, second, y, (uint64_t)(uintptr_t)x);
    join(first, second);
    launch(add, first, x, 1);
    CUgraphExec exec = instantiate(end_capture(first));
    cr_expect(eq(sz, sim_pending_count(), 0));
    for (uint64_t i = 0; i < 3; ++i) OK(cuGraphLaunch(exec, i % 2 ? first : blocking));
    OK(cuStreamSynchronize(blocking));
    cr_expect(eq(u64, *x, 8));
    cr_expect(eq(u64, *y, 7));
    OK(cuGraphExecDestroy(exec));
    cr_expect(eq(sz, sim_schedule_end(), 0));
  }
}

Test(simgpu, branches_of_a_graph_race) {
  uint64_t* x = device_memory();
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  join(second, first);
  launch(set, second, x, 1);
  launch(set, first, x, 2);
  join(first, second);
  CUgraphExec exec = instantiate(end_capture(first));
  CLEAN();
  OK(cuGraphLaunch(exec, first));
  FOUND(1, SIM_RACE);
}

Test(simgpu, a_graph_is_ordered_with_the_stream_it_is_launched_on) {
  uint64_t* x = device_memory();
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  launch(add, first, x, 1);
  CUgraphExec exec = instantiate(end_capture(first));
  launch(set, second, x, 1);
  OK(cuGraphLaunch(exec, second));
  launch(add, second, x, 1);
  CLEAN();
  launch(add, first, x, 1);
  FOUND(1, SIM_RACE); /* with the latest; what is before that is no news */
}

Test(simgpu, memory_freed_before_a_replay) {
  uint64_t* x = sim_device_alloc(0, BYTES);
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  launch(set, first, x, 1);
  CUgraphExec exec = instantiate(end_capture(first));
  OK(cuGraphLaunch(exec, first));
  OK(cuStreamSynchronize(first));
  sim_device_free(x);
  CLEAN();
  OK(cuGraphLaunch(exec, first));
  FOUND(1, SIM_USE_AFTER_FREE);
}

static CUDA_KERNEL_NODE_PARAMS node_params(CUfunction kernel, void** parameters) {
  return (CUDA_KERNEL_NODE_PARAMS){.func = kernel,
                                   .gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .kernelParams = parameters};
}

static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode* after, CUfunction kernel,
                              void* pointer, uint64_t value) {
  void* parameters[] = {&pointer, &value};
  CUDA_KERNEL_NODE_PARAMS params = node_params(kernel, parameters);
  CUgraphNode node = NULL;
  OK(cuGraphAddKernelNode_v2(&node, graph, after, after ? 1 : 0, &params));
  return node;
}

Test(simgpu, an_explicit_graph_runs_by_its_edges) {
  uint64_t* x = device_memory();
  CUgraph graph = NULL;
  OK(cuGraphCreate(&graph, 0));
  CUgraphNode one = add_kernel(graph, NULL, set, x, 5);
  CUgraphNode two = add_kernel(graph, &one, add, x, 1);
  CUgraphExec exec = instantiate(graph);
  OK(cuGraphLaunch(exec, first));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, 6));
  CLEAN();

  uint64_t value = 10;
  void* parameters[] = {&x, &value};
  CUDA_KERNEL_NODE_PARAMS params = node_params(add, parameters);
  OK(cuGraphLaunch(exec, first));
  OK(cuGraphExecKernelNodeSetParams_v2(exec, two, &params));
  OK(cuGraphLaunch(exec, first));
  value = 0; /* the parameters were copied */
  sim_step(4);
  cr_expect(eq(u64, *x, 6), "a launch that is under way keeps its own");
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, 15));
  CUgraphNode loose = add_kernel(graph, NULL, add, x, 1);
  OK(cuGraphAddDependencies_v2(graph, &loose, &one, NULL, 1));
  OK(cuGraphLaunch(instantiate(graph), first));
  CLEAN();
  OK(cuGraphAddDependencies_v2(graph, &two, &loose, NULL, 1));
  IS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 0));
}

Test(simgpu, event_nodes_order_a_graph_with_other_streams) {
  uint64_t* x = device_memory();
  CUevent before = event(), after = event();
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  OK(cuStreamWaitEvent(first, before, CU_EVENT_WAIT_EXTERNAL));
  launch(add, first, x, 1);
  OK(cuEventRecordWithFlags(after, first, CU_EVENT_RECORD_EXTERNAL));
  CUgraphExec exec = instantiate(end_capture(first));
  launch(set, second, x, 1);
  OK(cuEventRecord(before, second));
  OK(cuGraphLaunch(exec, first));
  OK(cuStreamWaitEvent(second, after, 0));
  launch(add, second, x, 1);
  CLEAN();
}

static pthread_t destructor_thread;
static int destroyed;

static void destroy(void* memory) {
  destructor_thread = pthread_self();
  ++destroyed;
  sim_device_free(memory);
}

Test(simgpu, user_objects_live_until_the_last_launch_has_ended) {
  uint64_t* x = sim_device_alloc(0, BYTES);
  CUuserObject object = NULL;
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  launch(set, first, x, 1);
  CUgraph graph = end_capture(first);
  OK(cuUserObjectCreate(&object, x, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraphExec exec = instantiate(graph);
  OK(cuGraphDestroy(graph));
  OK(cuGraphLaunch(exec, first));
  OK(cuGraphExecDestroy(exec));
  cr_expect(zero(int, destroyed));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(int, destroyed, 1));
  cr_expect(not(pthread_equal(destructor_thread, pthread_self())));
  cr_expect(eq(sz, sim_schedule_end(), 0));
  CLEAN();
}

Test(simgpu, memory_of_a_graph_lives_with_each_launch) {
  CUdeviceptr x = 0;
  uint64_t* y = device_memory();
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  OK(cuMemAllocAsync(&x, BYTES, first));
  launch(set, first, (void*)(uintptr_t)x, 4);
  launch(mix, first, y, (uint64_t)x);
  OK(cuMemFreeAsync(x, first));
  CUgraphExec exec = instantiate(end_capture(first));
  OK(cuGraphLaunch(exec, first));
  OK(cuGraphLaunch(exec, first));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *y, 4));
  cr_expect(eq(sz, sim_schedule_end(), 0));
  launch(set, first, (void*)(uintptr_t)x, 4);
  FOUND(1, SIM_USE_AFTER_FREE);
}

/* ---- the rules of capture ---- */

static void capture(CUstream stream) {
  OK(cuStreamBeginCapture_v2(stream, SIM_CAPTURE_GLOBAL));
}

static void expect_lost(CUstream stream) {
  CUgraph graph = NULL;
  IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  cr_expect(zero(ptr, graph));
}

Test(simgpu, capture_refuses_and_dies) {
  uint64_t* x = device_memory();
  CUevent outside = event();
  OK(cuEventRecord(outside, second));
  void* parameters[] = {&x, &x};

  capture(first);
  IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(first, outside, 0));
  IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
     cuLaunchKernel(set, 1, 1, 1, 1, 1, 1, 0, first, parameters, NULL));
  expect_lost(first);

  capture(first);
  IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(second));
  expect_lost(first);

  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_RELAXED));
  OK(cuStreamSynchronize(second));
  IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(first));
  expect_lost(first);

  capture(blocking);
  CUstreamCaptureStatus status = 0;
  IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
  IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
     cuLaunchKernel(set, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  expect_lost(blocking);

  capture(first);
  OK(cuEventRecord(outside, first));
  CUstreamCaptureMode relaxed = SIM_CAPTURE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&relaxed));
  IS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(outside));
  OK(cuThreadExchangeStreamCaptureMode(&relaxed));
  end_capture(first);
}

Test(simgpu, captures_are_joined_ended_and_begun_by_the_rules) {
  uint64_t* x = device_memory();
  CUgraph graph = NULL;
  IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
     cuStreamBeginCapture_v2(NULL, SIM_CAPTURE_GLOBAL));
  IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(first, &graph));
  capture(first);
  IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(first, SIM_CAPTURE_GLOBAL));
  join(second, first);
  IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(second, &graph));
  OK(cuStreamEndCapture(first, &graph)); /* nothing was put on the second */
  CUstreamCaptureStatus status = 1;
  OK(cuStreamIsCapturing(second, &status));
  cr_expect(zero(u32, status));

  capture(first);
  join(second, first);
  launch(set, second, x, 1);
  IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(first, &graph));
  cr_expect(zero(ptr, graph));

  CUevent of_first = event();
  capture(first);
  capture(second);
  OK(cuEventRecord(of_first, first));
  IS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(second, of_first, 0));
  expect_lost(first);
  expect_lost(second);
}

static void* end_elsewhere(void* result) {
  CUgraph graph = NULL;
  *(CUresult*)result = cuStreamEndCapture(first, &graph);
  return NULL;
}

static void* synchronise_elsewhere(void* result) {
  *(CUresult*)result = cuStreamSynchronize(second);
  return NULL;
}

static CUresult on_thread(void* (*function)(void*)) {
  CUresult result = CUDA_SUCCESS;
  pthread_t thread;
  cr_assert(zero(int, pthread_create(&thread, NULL, function, &result)));
  pthread_join(thread, NULL);
  return result;
}

Test(simgpu, captures_and_threads) {
  capture(first);
  IS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, on_thread(end_elsewhere));
  IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, on_thread(synchronise_elsewhere));
  expect_lost(first);
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_THREAD_LOCAL));
  IS(CUDA_SUCCESS, on_thread(synchronise_elsewhere));
  OK(cuGraphDestroy(end_capture(first)));
  OK(cuStreamBeginCapture_v2(first, SIM_CAPTURE_RELAXED));
  IS(CUDA_SUCCESS, on_thread(end_elsewhere));
}

Test(simgpu, capture_information_tells_and_changes_dependencies) {
  uint64_t* x = device_memory();
  CUstreamCaptureStatus status = 0;
  CUgraph graph = NULL;
  const CUgraphNode* nodes = NULL;
  size_t count = 0;
  capture(first);
  launch(set, first, x, 1);
  OK(cuStreamGetCaptureInfo_v3(first, &status, NULL, &graph, &nodes, NULL, &count));
  cr_assert(eq(sz, count, 1));
  CUgraphNode added = add_kernel(graph, &nodes[0], add, x, 1);
  OK(cuStreamUpdateCaptureDependencies_v2(first, &added, NULL, 1,
                                          CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  launch(add, first, x, 2);
  OK(cuStreamGetCaptureInfo_v3(first, &status, NULL, NULL, &nodes, NULL, &count));
  CUgraphNode last = nodes[0], before = NULL;
  OK(cuGraphNodeGetDependencies_v2(last, &before, NULL, &count));
  cr_expect(eq(ptr, before, added));
  OK(cuGraphLaunch(instantiate(end_capture(first)), first));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, 4));
  CLEAN();
}

/* ---- words, and the end of a program ---- */

Test(simgpu, a_report_tells_what_happened) {
  uint64_t *x = device_memory(), *y = device_memory();
  sim_name(x, "weights");
  launch(set, first, y, 7);
  join(second, first);
  launch(set, first, x, 7);
  launch(mix, second, y, (uint64_t)(uintptr_t)x);
  char text[4096], small[8];
  size_t length = sim_report_text(0, text, sizeof(text));
  cr_expect(eq(sz, length, strlen(text)));
  cr_expect(eq(sz, sim_report_text(0, small, sizeof(small)), length));
  static const char* const words[] = {
      "race of allocation",  "\"weights\"",       "kernel set",
      "kernel mix",          "stream \"first\"",  "stream \"second\"",
      "nothing orders them", "is ordered after:", "history:",
      "wait of event"};
  for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
    cr_expect(strstr(text, words[i]) != NULL, "%s in:\n%s", words[i], text);
  }
}

Test(simgpu, a_reset_gives_the_recording_stand_in_back) {
  uint64_t* x = device_memory();
  CUevent kept = event();
  launch(set, first, x, 1);
  OK(cuEventRecord(kept, first));
  sim_reset();
  cr_expect(zero(sz, sim_pending_count()));
  cr_expect(zero(sz, sim_record_count()));
  OK(cuEventQuery(kept));
  CUstream stream = sim_stream_create(sim_primary_context(0), 1);
  launch(set, stream, NULL, 1);
  OK(cuEventRecord(kept, stream));
  IS(CUDA_ERROR_NOT_READY, cuEventQuery(kept));
  sim_complete((void*)stream);
  OK(cuEventQuery(kept));
  OK(cuEventDestroy_v2(kept));
}
