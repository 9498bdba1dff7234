/* The compiled part of xla_handler.py: XLA's calls, and the launches that they come to,
 * timed in C around frames and arguments that were built before. */
#include <dlfcn.h>
#include <time.h>

#include "tests/fake_xla/fake_xla.h"

#define BENCH_API __attribute__((visibility("default")))

enum { OPERANDS_MAX = 20, N = 1024 };

/* Of the library named on the command line. */
#define LIBRARY_FUNCTIONS(XX)  \
  XX(ons_runtime_create)       \
  XX(ons_xla_runtime_set)      \
  XX(ons_module_create)        \
  XX(ons_module_kernel)        \
  XX(ons_kernel_launch)        \
  XX(ons_xla_cpu_instantiate)  \
  XX(ons_xla_cpu_execute)      \
  XX(ons_xla_cuda_instantiate) \
  XX(ons_xla_cuda_initialize)  \
  XX(ons_xla_cuda_execute)

typedef struct bench_xla {
#define MEMBER(name) __typeof__(&name) name;
  LIBRARY_FUNCTIONS(MEMBER)
#undef MEMBER
  bool is_gpu;
  char source[4096];
  char digest[65];
  char text[1024]; /* what went wrong */
  xla_call* call;
  ons__xla_frame initialize_frame, execute_frame;
  int64_t plan[2 * (OPERANDS_MAX + 1)];
  int64_t shape[1];
  ons_kernel* kernel;
  ons_launch launch;
  DLTensor tensors[OPERANDS_MAX + 1];
  ons_arg args[OPERANDS_MAX + 1];
} bench_xla;

/* A kernel that does nothing, of so many operands and a result. |device| -1: on the CPU.
 * NULL, or why it failed (valid as long as |self|). */
BENCH_API bench_xla* bench_xla_create(void);
BENCH_API const char* bench_xla_open(bench_xla* self, const char* library_path,
                                     int device, void* stream, void* memory,
                                     int operand_count);
/* Nanoseconds for each of |count|; negative where one failed. */
BENCH_API double bench_xla_execute(bench_xla* self, int count);
BENCH_API double bench_xla_initialize(bench_xla* self, int count);
BENCH_API double bench_xla_launch(bench_xla* self, int count);

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

bench_xla* bench_xla_create(void) { return calloc(1, sizeof(bench_xla)); }

static const char* load(bench_xla* self, const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
#define LOAD(name)                              \
  *(void**)&self->name = dlsym(library, #name); \
  if (!self->name) return "the library has no " #name;
  LIBRARY_FUNCTIONS(LOAD)
#undef LOAD
  return NULL;
}

static void write_source(bench_xla* self, int operand_count) {
  char* at = self->source;
  at += sprintf(at, "__global__ void nothing(");
  for (int i = 0; i < operand_count; ++i) at += sprintf(at, "const float* x%d, ", i);
  sprintf(at, "float* out) {}\n");
}

static void build_call(bench_xla* self, void* stream, void* memory, int operand_count) {
  /* As long as digests are in practice. */
  snprintf(self->digest, sizeof(self->digest), "%064d", operand_count);
  self->shape[0] = N;
  self->call = xla_call_create(self->source, "nothing", 1, 128);
  xla_text(self->call, "digest", self->digest);
  for (int i = 0; i <= operand_count; ++i) {
    const bool is_result = i == operand_count;
    float* data = (float*)memory + (is_result ? N : 0);
    self->plan[2 * i] = is_result ? ONS_XLA_RESULT : ONS_XLA_OPERAND;
    self->plan[2 * i + 1] = is_result ? 0 : i;
    if (is_result) {
      xla_result(self->call, ONS__XLA_F32, data, 1, self->shape);
    } else {
      xla_operand(self->call, ONS__XLA_F32, data, 1, self->shape);
    }
  }
  xla_numbers(self->call, "plan", self->plan, 2 * ((size_t)operand_count + 1));
  self->call->context.has_stream = self->is_gpu;
  self->call->context.stream = stream;
}

static void build_launch(bench_xla* self, int device, void* stream, void* memory,
                         int operand_count) {
  self->launch = (ons_launch)ONS_LAUNCH_INIT;
  self->launch.block[0] = 128;
  for (int i = 0; i <= operand_count; ++i) {
    self->tensors[i] =
        (DLTensor){.data = (float*)memory + (i == operand_count ? N : 0),
                   .device = {self->is_gpu ? kDLCUDA : kDLCPU, self->is_gpu ? device : 0},
                   .ndim = 1,
                   .dtype = {kDLFloat, 32, 1},
                   .shape = self->shape};
    self->args[i] = (ons_arg){.kind = ONS_ARG_TENSOR,
                              .flags = self->is_gpu ? ONS_ARG_STREAM_KNOWN : 0,
                              .value.tensor = &self->tensors[i],
                              .stream = stream};
  }
}

static const char* failure(bench_xla* self, ons__xla_error* error) {
  if (!error) return NULL;
  snprintf(self->text, sizeof(self->text), "%s", error->message);
  return self->text;
}

static const char* open_kernel(bench_xla* self) {
  static ons_runtime* runtime; /* XLA's programs have one a process */
  ons_module* module = NULL;
  ons_error error = ONS_ERROR_INIT;
  if ((!runtime && self->ons_runtime_create(NULL, &runtime, &error)) ||
      self->ons_xla_runtime_set(runtime, &error) ||
      self->ons_module_create(runtime, self->source, NULL, &module, &error) ||
      self->ons_module_kernel(module, "nothing", &self->kernel, &error)) {
    snprintf(self->text, sizeof(self->text), "%s", error.message);
    return self->text;
  }
  return NULL;
}

const char* bench_xla_open(bench_xla* self, const char* library_path, int device,
                           void* stream, void* memory, int operand_count) {
  self->is_gpu = device >= 0;
  write_source(self, operand_count);
  const char* text = load(self, library_path);
  if (!text) text = open_kernel(self);
  if (text) return text;
  build_call(self, stream, memory, operand_count);
  build_launch(self, device, stream, memory, operand_count);
  text = failure(self, xla_run(self->call,
                               self->is_gpu ? self->ons_xla_cuda_instantiate
                                            : self->ons_xla_cpu_instantiate,
                               ONS__XLA_INSTANTIATE));
  self->initialize_frame = xla_frame(self->call, ONS__XLA_INITIALIZE);
  self->execute_frame = xla_frame(self->call, ONS__XLA_EXECUTE);
  return text;
}

static double repeat(bench_xla* self, xla_handler* handler, ons__xla_frame* frame,
                     int count) {
  ons__xla_error* error = NULL;
  const double start = now_ns();
  for (int i = 0; i < count && !error; ++i) {
    error = handler((struct XLA_FFI_CallFrame*)frame);
  }
  const double end = now_ns();
  if (!error) return (end - start) / count;
  (void)failure(self, error);
  return -error->code;
}

double bench_xla_execute(bench_xla* self, int count) {
  return repeat(self,
                self->is_gpu ? self->ons_xla_cuda_execute : self->ons_xla_cpu_execute,
                &self->execute_frame, count);
}

double bench_xla_initialize(bench_xla* self, int count) {
  return repeat(self, self->ons_xla_cuda_initialize, &self->initialize_frame, count);
}

double bench_xla_launch(bench_xla* self, int count) {
  const size_t arg_count = (size_t)self->execute_frame.operands.size + 1;
  ons_status status = ONS_STATUS_OK;
  const double start = now_ns();
  for (int i = 0; i < count && !status; ++i) {
    status =
        self->ons_kernel_launch(self->kernel, &self->launch, self->args, arg_count, NULL);
  }
  const double end = now_ns();
  return status ? -(double)status : (end - start) / count;
}
