/* A host program that owns its memory and its stream, and launches a kernel from source
 * on both.
 *
 *   axpy_host          on the CPU
 *   axpy_host --cuda   on the first GPU, on a CUstream made here through the CUDA driver
 */
#include <dlfcn.h>
#include <onstream/onstream.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char source[] =
    "__global__ void axpy(float a, const float* x, const float* y, float* out, long long "
    "n) {\n"
    "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "  if (i < n) out[i] = a * x[i] + y[i];\n"
    "}\n";

enum { COUNT = 1 << 20, BLOCK = 256 };

/* ---- the part of the CUDA driver that this host uses itself ----------------------- */

/* XX(name, symbol, parameters) */
#define CUDA_FUNCTIONS(XX)                                                     \
  XX(init, "cuInit", (unsigned flags))                                         \
  XX(context_retain, "cuDevicePrimaryCtxRetain", (void** context, int device)) \
  XX(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))            \
  XX(context_set, "cuCtxSetCurrent", (void* context))                          \
  XX(stream_create, "cuStreamCreate", (void** stream, unsigned flags))         \
  XX(stream_destroy, "cuStreamDestroy_v2", (void* stream))                     \
  XX(stream_synchronize, "cuStreamSynchronize", (void* stream))                \
  XX(allocate, "cuMemAlloc_v2", (unsigned long long* pointer, size_t bytes))   \
  XX(free, "cuMemFree_v2", (unsigned long long pointer))                       \
  XX(upload, "cuMemcpyHtoDAsync_v2",                                           \
     (unsigned long long to, const void* from, size_t bytes, void* stream))    \
  XX(download, "cuMemcpyDtoHAsync_v2",                                         \
     (void* to, unsigned long long from, size_t bytes, void* stream))

typedef struct cuda_driver {
#define CUDA_MEMBER(name, symbol, parameters) int(*name) parameters;
  CUDA_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
} cuda_driver;

static bool cuda_load(cuda_driver* out_cuda) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return false;
#define CUDA_LOAD(name, symbol, parameters)          \
  *(void**)&out_cuda->name = dlsym(library, symbol); \
  if (!out_cuda->name) return false;
  CUDA_FUNCTIONS(CUDA_LOAD)
#undef CUDA_LOAD
  return true;
}

static void cuda_check(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "axpy_host: %s: CUDA error %d\n", what, result);
  exit(1);
}
#define CUDA_CHECK(call) cuda_check((call), #call)

/* ---- the launch, the same on every device ----------------------------------------- */

typedef struct vectors {
  float* x;
  float* y;
  float* out;
} vectors;

static DLTensor vector(float* data, int64_t* shape, DLDevice device) {
  DLTensor tensor = {0};
  tensor.data = data;
  tensor.device = device;
  tensor.ndim = 1;
  tensor.dtype = (DLDataType){kDLFloat, 32, 1};
  tensor.shape = shape;
  return tensor;
}

static ons_arg tensor_arg(const DLTensor* tensor, void* stream) {
  ons_arg arg = {0};
  arg.kind = ONS_ARG_TENSOR;
  arg.value.tensor = tensor;
  if (tensor->device.device_type != kDLCPU) {
    arg.flags = ONS_ARG_STREAM_KNOWN;
    arg.stream = stream;
  }
  return arg;
}

/* out = 2 x + y, enqueued on `stream` (complete on return on a CPU). */
static ons_status launch_axpy(ons_kernel* kernel, const vectors* v, DLDevice device,
                              void* stream, ons_error* error) {
  int64_t shape[1] = {COUNT};
  const DLTensor x = vector(v->x, shape, device);
  const DLTensor y = vector(v->y, shape, device);
  const DLTensor out = vector(v->out, shape, device);
  const ons_arg args[] = {
      {.kind = ONS_ARG_FLOAT, .value.f = 2.0},
      tensor_arg(&x, stream),
      tensor_arg(&y, stream),
      tensor_arg(&out, stream),
      {.kind = ONS_ARG_INT, .value.i = COUNT},
  };
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.grid[0] = (COUNT + BLOCK - 1) / BLOCK;
  launch.block[0] = BLOCK;
  return ons_kernel_launch(kernel, &launch, args, sizeof args / sizeof args[0], error);
}

/* ---- where the vectors live ------------------------------------------------------- */

static ons_status run_cpu(ons_kernel* kernel, const vectors* host, ons_error* error) {
  return launch_axpy(kernel, host, (DLDevice){kDLCPU, 0}, NULL, error);
}

static ons_status run_cuda(ons_kernel* kernel, const vectors* host, ons_error* error) {
  const size_t bytes = COUNT * sizeof(float);
  cuda_driver cuda = {0};
  void* context = NULL;
  void* stream = NULL;
  unsigned long long pointers[3] = {0};
  if (!cuda_load(&cuda)) {
    fprintf(stderr, "axpy_host: no CUDA driver here\n");
    exit(1);
  }
  CUDA_CHECK(cuda.init(0));
  CUDA_CHECK(cuda.context_retain(&context, 0));
  CUDA_CHECK(cuda.context_set(context));
  CUDA_CHECK(cuda.stream_create(&stream, 1 /* does not wait for the legacy stream */));
  for (int i = 0; i < 3; ++i) CUDA_CHECK(cuda.allocate(&pointers[i], bytes));
  CUDA_CHECK(cuda.upload(pointers[0], host->x, bytes, stream));
  CUDA_CHECK(cuda.upload(pointers[1], host->y, bytes, stream));

  const vectors device = {(float*)pointers[0], (float*)pointers[1], (float*)pointers[2]};
  const ons_status status =
      launch_axpy(kernel, &device, (DLDevice){kDLCUDA, 0}, stream, error);
  if (status == ONS_STATUS_OK) {
    CUDA_CHECK(cuda.download(host->out, pointers[2], bytes, stream));
  }
  CUDA_CHECK(cuda.stream_synchronize(stream));
  for (int i = 0; i < 3; ++i) CUDA_CHECK(cuda.free(pointers[i]));
  CUDA_CHECK(cuda.stream_destroy(stream));
  CUDA_CHECK(cuda.context_release(0));
  return status;
}

static int count_wrong(const vectors* v) {
  int wrong = 0;
  for (int i = 0; i < COUNT; ++i) wrong += v->out[i] != 2 * v->x[i] + v->y[i];
  return wrong;
}

int main(int argc, char** argv) {
  const bool use_cuda = argc > 1 && strcmp(argv[1], "--cuda") == 0;
  const DLDevice device = {use_cuda ? kDLCUDA : kDLCPU, 0};
  ons_error error = ONS_ERROR_INIT;
  ons_runtime* runtime = NULL;
  ons_module* module = NULL;
  ons_kernel* kernel = NULL;
  char name[128] = "";
  int wrong = -1;
  vectors host = {calloc(COUNT, sizeof(float)), calloc(COUNT, sizeof(float)),
                  calloc(COUNT, sizeof(float))};
  if (!host.x || !host.y || !host.out) {
    fprintf(stderr, "axpy_host: out of memory\n");
    goto done;
  }
  for (int i = 0; i < COUNT; ++i) {
    host.x[i] = (float)(i % 1000);
    host.y[i] = (float)(i % 7);
  }

  if (ons_runtime_create(NULL, &runtime, &error)) goto failed;
  if (ons_runtime_device_name(runtime, device, name, sizeof name, &error)) goto failed;
  if (ons_module_create(runtime, source, NULL, &module, &error)) goto failed;
  if (ons_module_kernel(module, "axpy", &kernel, &error)) goto failed;
  if (use_cuda ? run_cuda(kernel, &host, &error) : run_cpu(kernel, &host, &error))
    goto failed;
  wrong = count_wrong(&host);
  printf("%s: %s on %d floats, %d wrong\n", name, ons_kernel_signature(kernel), COUNT,
         wrong);
  goto done;

failed:
  fprintf(stderr, "axpy_host: %s: %s\n", ons_status_text(error.code), error.message);
done:
  ons_kernel_release(kernel);
  ons_module_release(module);
  ons_runtime_release(runtime);
  free(host.x);
  free(host.y);
  free(host.out);
  return wrong != 0;
}
