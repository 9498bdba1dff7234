/* Streams, kernels and memory on the simulated GPU, and what its checker found. */
#ifndef ONS_TESTS_UNIT_SIMGPU_FIXTURE_H_
#define ONS_TESTS_UNIT_SIMGPU_FIXTURE_H_

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

static inline uint64_t* pointer_at(const sim_kernel_call* call, int index) {
  uint64_t* pointer = NULL;
  memcpy(&pointer, call->parameters + 8 * index, sizeof(pointer));
  return pointer;
}

static inline uint64_t value_at(const sim_kernel_call* call, int index) {
  return (uint64_t)(uintptr_t)pointer_at(call, index);
}

static inline void run_set(void* user_data, const sim_kernel_call* call) {
  (void)user_data;
  *pointer_at(call, 0) = value_at(call, 1);
}

static inline void run_mix(void* user_data, const sim_kernel_call* call) {
  (void)user_data;
  *pointer_at(call, 0) = *pointer_at(call, 1);
}

static inline void run_add(void* user_data, const sim_kernel_call* call) {
  (void)user_data;
  *pointer_at(call, 0) += value_at(call, 1);
}

static inline void launch(CUfunction kernel, CUstream stream, const void* pointer,
                          uint64_t value) {
  void* parameters[] = {&pointer, &value};
  OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static inline CUfunction get(CUmodule module, const char* name) {
  CUfunction kernel = NULL;
  OK(cuModuleGetFunction(&kernel, module, name));
  return kernel;
}

static inline void make_streams(void) {
  OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&blocking, 0));
  sim_name(first, "first");
  sim_name(second, "second");
}

static inline void begin(uint64_t seed) {
  sim_reset();
  sim_schedule_begin(seed);
  make_streams();
  if (!between) OK(cuEventCreate(&between, CU_EVENT_DISABLE_TIMING));
}

static inline void setup(void) {
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

static inline uint64_t* device_memory(void) {
  uint64_t* memory = sim_device_alloc(0, BYTES);
  sim_allocation_keep(memory);
  return memory;
}

static inline CUevent event(void) {
  CUevent made = NULL;
  OK(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
  return made;
}

/* `later` goes on when what `earlier` has now is over. */
static inline void join(CUstream later, CUstream earlier) {
  OK(cuEventRecord(between, earlier));
  OK(cuStreamWaitEvent(later, between, 0));
}

static inline void expect_found(const char* what, size_t count, int kind) {
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

static inline void* synchronise_elsewhere(void* result) {
  *(CUresult*)result = cuStreamSynchronize(second);
  return NULL;
}

static inline CUresult on_thread(void* (*function)(void*)) {
  CUresult result = CUDA_SUCCESS;
  pthread_t thread;
  cr_assert(zero(int, pthread_create(&thread, NULL, function, &result)));
  pthread_join(thread, NULL);
  return result;
}

#endif /* ONS_TESTS_UNIT_SIMGPU_FIXTURE_H_ */
