/* One kernel through the C API, on the stand-in driver. It is compiled by the real NVRTC;
 * without one the tests are skipped. */
#ifndef ONS_TESTS_UNIT_LAUNCH_FIXTURE_H_
#define ONS_TESTS_UNIT_LAUNCH_FIXTURE_H_

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <onstream/onstream.h>
#include <string.h>

#include "tests/simgpu/sim_record.h"

#define AXPY                                                               \
  "__global__ void axpy(float a, const float* x, float* out, long long n)" \
  "{\n"                                                                    \
  "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"    \
  "  if (i < n) out[i] += a * x[i];\n"                                     \
  "}\n"

static ons_runtime* runtime;
static ons_module* module;
static ons_kernel* axpy;
static ons_error error = ONS_ERROR_INIT;
static float x[8], y[8];
static int64_t count = 8;
static DLTensor tx, ty;
static void *side, *other; /* streams */

static inline DLTensor vector(void* data, DLDeviceType type, int32_t ordinal) {
  return (DLTensor){.data = data,
                    .device = {type, ordinal},
                    .ndim = 1,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = &count};
}

/* `source` has axpy among others. */
static inline void open_axpy(const char* source) {
  sim_set_device_count(2);
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.cuda_driver_path = ONS_TEST_SIMGPU_PATH;
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, &error), 0), "%s",
            error.message);
  cr_assert(eq(int, ons_module_create(runtime, source, NULL, &module, &error), 0));
  cr_assert(eq(int, ons_module_kernel(module, "axpy", &axpy, &error), 0));
  cr_expect(eq(sz, sim_record_count(), 0), "nothing so far may touch the driver");
  tx = vector(x, kDLCUDA, 0);
  ty = vector(y, kDLCUDA, 0);
  side = sim_stream_create(sim_primary_context(0), 1);
  other = sim_stream_create(sim_primary_context(0), 1);
}

static inline void prepare_axpy(void) {
  ons_status status = ons_kernel_prepare(axpy, (DLDevice){kDLCUDA, 0}, NULL, &error);
  if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
  cr_assert(eq(int, status, 0), "%s", error.message);
  sim_clear_records();
}

static inline void close_axpy(void) {
  ons_kernel_release(axpy);
  ons_module_release(module);
  ons_runtime_collect(runtime);
  ons_runtime_release(runtime);
}

static inline ons_arg on_stream(const DLTensor* tensor, void* stream) {
  return (ons_arg){.kind = ONS_ARG_TENSOR,
                   .flags = ONS_ARG_STREAM_KNOWN,
                   .value.tensor = tensor,
                   .stream = stream};
}

static ons_arg args[4];

static inline const ons_arg* axpy_args(ons_arg from, ons_arg to) {
  args[0] = (ons_arg){.kind = ONS_ARG_FLOAT, .value.f = 2.5};
  args[1] = from;
  args[2] = to;
  args[3] = (ons_arg){.kind = ONS_ARG_INT, .value.i = 8};
  return args;
}

static inline const ons_arg* axpy_on(void* stream_x, void* stream_y) {
  return axpy_args(on_stream(&tx, stream_x), on_stream(&ty, stream_y));
}

static inline ons_status launch_with(const ons_launch* launch, const ons_arg* arguments) {
  error = (ons_error)ONS_ERROR_INIT;
  return ons_kernel_launch(axpy, launch, arguments, 4, &error);
}

static inline size_t calls_that_begin_with(const char* prefix) {
  size_t found = 0;
  for (size_t i = 0; i < sim_record_count(); ++i) {
    found += strncmp(sim_record_at(i)->function, prefix, strlen(prefix)) == 0;
  }
  return found;
}

static int released;

static inline void release(void* object) {
  (void)object;
  ++released;
}

static const ons_retained retained = {.release = release};

#endif /* ONS_TESTS_UNIT_LAUNCH_FIXTURE_H_ */
