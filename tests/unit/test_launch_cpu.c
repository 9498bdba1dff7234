/* The public API from source to result, on the CPU. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <onstream/onstream.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char source[] =
    "extern \"C\" __global__ void axpy(float a, const float* x, const float* y, float* "
    "out,\n"
    "                                long long n) {\n"
    "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "  if (i < n) out[i] = a * x[i] + y[i];\n"
    "}\n"
    "namespace ns { __global__ void fill(int* out, int value) { out[threadIdx.x] = "
    "value; } }\n"
    "template <typename T, int N> __global__ void scale(T* x) { x[threadIdx.x] *= N; }\n"
    "__global__ void where(int* out) {\n"
    "  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;\n"
    "  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + "
    "threadIdx.x;\n"
    "  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = block * 1000 + "
    "thread;\n"
    "}\n"
    "#define MAKE(name) __global__ void name(int* out) { *out = 7; }\n"
    "MAKE(made_by_macro)\n";

static ons_runtime* runtime;
static ons_module* module;
static const DLDevice cpu = {kDLCPU, 0};

/* Counts what is allocated, so that every test also shows that nothing leaks. */
static atomic_long live;

static void* count_allocate(void* user_data, size_t size_bytes) {
  (void)user_data;
  void* pointer = malloc(size_bytes);
  if (pointer) atomic_fetch_add(&live, 1);
  return pointer;
}

static void count_free(void* user_data, void* pointer) {
  (void)user_data;
  if (pointer) atomic_fetch_sub(&live, 1);
  free(pointer);
}

static void setup(void) {
  static const ons_allocator allocator = {NULL, count_allocate, count_free};
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.allocator = &allocator;
  ons_error error = ONS_ERROR_INIT;
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, &error), 0), "%s",
            error.message);
  cr_assert(eq(int, ons_module_create(runtime, source, NULL, &module, &error), 0), "%s",
            error.message);
}

static void teardown(void) {
  ons_module_release(module);
  ons_runtime_release(runtime);
  cr_expect(eq(long, atomic_load(&live), 0), "the library leaks");
}

TestSuite(launch_cpu, .init = setup, .fini = teardown);

static ons_kernel* get(const char* name) {
  ons_kernel* kernel = NULL;
  ons_error error = ONS_ERROR_INIT;
  cr_assert(eq(int, ons_module_kernel(module, name, &kernel, &error), 0), "%s",
            error.message);
  return kernel;
}

static DLTensor vector(void* data, uint8_t code, int64_t* count) {
  return (DLTensor){
      .data = data, .device = cpu, .ndim = 1, .dtype = {code, 32, 1}, .shape = count};
}

static ons_arg tensor(const DLTensor* tensor) {
  return (ons_arg){.kind = ONS_ARG_TENSOR, .value.tensor = tensor};
}

Test(launch_cpu, axpy) {
  enum { COUNT = 1000 };
  static float x[COUNT], y[COUNT], out[COUNT];
  int64_t count = COUNT;
  for (int i = 0; i < COUNT; ++i) x[i] = (float)i, y[i] = (float)(2 * i);
  DLTensor tx = vector(x, kDLFloat, &count), ty = vector(y, kDLFloat, &count);
  DLTensor tout = vector(out, kDLFloat, &count);
  ons_arg args[] = {{.kind = ONS_ARG_FLOAT, .value.f = 2.5},
                    tensor(&tx),
                    tensor(&ty),
                    tensor(&tout),
                    {.kind = ONS_ARG_INT, .value.i = COUNT}};
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.grid[0] = 4;
  launch.block[0] = 256;
  ons_kernel* kernel = get("axpy");
  ons_error error = ONS_ERROR_INIT;
  launch.flags = ONS_LAUNCH_NO_COMPILE;
  cr_expect(
      eq(int, ons_kernel_launch(kernel, &launch, args, 5, &error), ONS_STATUS_NOT_READY));
  launch.flags = 0;
  cr_assert(eq(int, ons_kernel_launch(kernel, &launch, args, 5, &error), 0), "%s",
            error.message);
  for (int i = 0; i < COUNT; ++i) cr_assert(eq(flt, out[i], 4.5f * (float)i), "at %d", i);
  cr_expect(eq(str, (char*)ons_kernel_signature(kernel),
               "axpy(float a, const float* x, const float* y, float* out, long long n)"));

  /* A launch with too few arguments says what the kernel takes. */
  cr_expect(eq(int, ons_kernel_launch(kernel, &launch, args, 4, &error),
               ONS_STATUS_ARGUMENT_TYPE));
  cr_expect(strstr(error.message, "takes 5 arguments, got 4: axpy(float a") != NULL, "%s",
            error.message);
  cr_expect(eq(u32, error.launched, 0));
  /* The name of the parameter is in the message. */
  args[1] = args[0];
  cr_expect(eq(int, ons_kernel_launch(kernel, &launch, args, 5, &error),
               ONS_STATUS_ARGUMENT_TYPE));
  cr_expect(strstr(error.message, "argument 2 ('x'): declared const float*") != NULL,
            "%s", error.message);
  ons_kernel_release(kernel);
}

Test(launch_cpu, names_of_every_kind) {
  int32_t out[4] = {1, 2, 3, 4};
  int64_t count = 4;
  DLTensor tout = vector(out, kDLInt, &count);
  ons_error error = ONS_ERROR_INIT;
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.block[0] = 4;
  ons_arg args[] = {tensor(&tout), {.kind = ONS_ARG_INT, .value.i = 9}};
  static const struct {
    const char* name;
    size_t arg_count;
    int expected;
  } table[] = {{"scale<int, 3>", 1, 12}, {"ns::fill", 2, 9}, {"made_by_macro", 1, 9}};
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
    ons_kernel* kernel = get(table[i].name);
    cr_assert(
        eq(int, ons_kernel_launch(kernel, &launch, args, table[i].arg_count, &error), 0),
        "%s: %s", table[i].name, error.message);
    cr_expect(eq(int, out[3], table[i].expected), "%s", table[i].name);
    ons_kernel_release(kernel);
  }
  cr_expect(eq(int, out[0], 7));
}

Test(launch_cpu, kernels_are_listed_and_unknown_names_refused) {
  const char* expected[] = {"axpy", "ns::fill", "scale", "where"};
  for (size_t i = 0; i < 4; ++i) {
    cr_expect(eq(str, (char*)ons_module_kernel_name(module, i), (char*)expected[i]));
  }
  ons_kernel* kernel = NULL;
  ons_error error = ONS_ERROR_INIT;
  static const char* const unknown[] = {"nothing",    "scale", "",
                                        "axpy; evil", "a\nb",  "ns::"};
  for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); ++i) {
    cr_expect(eq(int, ons_module_kernel(module, unknown[i], &kernel, &error),
                 ONS_STATUS_NOT_FOUND),
              "%s", unknown[i]);
    cr_expect(eq(ptr, kernel, NULL));
  }
  cr_assert(ne(int, ons_module_kernel(module, "nothing", &kernel, &error), 0));
  cr_expect(strstr(error.message, "axpy, ns::fill, scale<...>, where") != NULL, "%s",
            error.message);
  /* Known to the text, unknown to the compiler. */
  kernel = get("threadIdx");
  cr_expect(eq(int, ons_kernel_prepare(kernel, cpu, NULL, &error), ONS_STATUS_NOT_FOUND),
            "%s", error.message);
  ons_kernel_release(kernel);
}

Test(launch_cpu, three_dimensions) {
  enum { BLOCKS = 2 * 3 * 4, THREADS = 3 * 2 * 5 };
  static int32_t out[BLOCKS * THREADS];
  int64_t count = BLOCKS * THREADS;
  DLTensor tout = vector(out, kDLInt, &count);
  ons_arg arg = tensor(&tout);
  ons_launch launch = ONS_LAUNCH_INIT;
  memcpy(launch.grid, (uint32_t[]){2, 3, 4}, sizeof(launch.grid));
  memcpy(launch.block, (uint32_t[]){3, 2, 5}, sizeof(launch.block));
  ons_error error = ONS_ERROR_INIT;
  ons_kernel* kernel = get("where");
  cr_assert(eq(int, ons_kernel_launch(kernel, &launch, &arg, 1, &error), 0), "%s",
            error.message);
  for (int i = 0; i < BLOCKS * THREADS; ++i) {
    cr_assert(eq(int, out[i], i / THREADS * 1000 + i % THREADS), "at %d", i);
  }
  ons_kernel_release(kernel);
}

Test(launch_cpu, sizes_beyond_the_limits_are_refused_with_the_numbers) {
  int32_t out = 0;
  int64_t count = 1;
  DLTensor tout = vector(&out, kDLInt, &count);
  ons_arg arg = tensor(&tout);
  ons_kernel* kernel = get("where");
  static const struct {
    uint32_t grid[3], block[3], shared_bytes;
    const char* text;
  } table[] = {
      {{1, 70000, 1}, {1, 1, 1}, 0, "grid.y is 70000, the device's limit is 65535"},
      {{0x80000000u, 1, 1}, {1, 1, 1}, 0, "grid.x is 2147483648"},
      {{1, 1, 1}, {1025, 1, 1}, 0, "block.x is 1025, the device's limit is 1024"},
      {{1, 1, 1}, {1, 1, 65}, 0, "block.z is 65"},
      {{1, 1, 1}, {64, 32, 1}, 0, "threads per block is 2048"},
      {{1, 1, 1}, {0, 1, 1}, 0, "block.x is 0"},
      {{1, 1, 1},
       {1, 1, 1},
       300000,
       "300000 bytes of dynamic shared memory per block asked for; beside the kernel's "
       "own 0 bytes the device has 232448"},
  };
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
    ons_launch launch = ONS_LAUNCH_INIT;
    memcpy(launch.grid, table[i].grid, sizeof(launch.grid));
    memcpy(launch.block, table[i].block, sizeof(launch.block));
    launch.shared_bytes = table[i].shared_bytes;
    ons_error error = ONS_ERROR_INIT;
    cr_expect(eq(int, ons_kernel_launch(kernel, &launch, &arg, 1, &error),
                 ONS_STATUS_ARGUMENT_VALUE));
    cr_expect(strstr(error.message, table[i].text) != NULL, "no '%s' in: %s",
              table[i].text, error.message);
  }
  cr_expect(eq(int, out, 0));
  ons_kernel_release(kernel);
}

static int released_count;
static void count_release(void* object) {
  (void)object;
  ++released_count;
}

Test(launch_cpu, retained_objects_and_empty_grids) {
  int32_t out = 0;
  int64_t count = 1;
  DLTensor tout = vector(&out, kDLInt, &count);
  ons_arg arg = tensor(&tout);
  ons_retained retained = {.release = count_release};
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.retained = &retained;
  launch.retained_count = 1;
  ons_error error = ONS_ERROR_INIT;
  ons_kernel* kernel = get("made_by_macro");
  launch.grid[1] = 0;
  cr_assert(eq(int, ons_kernel_launch(kernel, &launch, &arg, 1, &error), 0));
  cr_expect(eq(int, out, 0), "an empty grid runs nothing");
  cr_expect(eq(int, released_count, 1));
  launch.grid[1] = 1;
  cr_assert(eq(int, ons_kernel_launch(kernel, &launch, &arg, 1, &error), 0));
  cr_expect(eq(int, out, 7));
  cr_expect(eq(int, released_count, 2), "a CPU launch is over on return");
  cr_expect(ne(int, ons_kernel_launch(kernel, &launch, &arg, 0, &error), 0));
  cr_expect(eq(int, released_count, 2), "a refused launch takes nothing");
  ons_kernel_release(kernel);
}

Test(launch_cpu, one_name_has_one_spelling) {
  ons_kernel* kernel = get("scale < int,3 >");
  cr_expect(eq(str, (char*)ons_kernel_name(kernel), "scale<int,3>"));
  ons_kernel_release(kernel);
  kernel = get("scale<unsigned int, 3>");
  cr_expect(eq(str, (char*)ons_kernel_name(kernel), "scale<unsigned int,3>"));
  ons_kernel_release(kernel);
}

Test(launch_cpu, introspection) {
  ons_kernel* kernel = get("axpy");
  ons_error error = ONS_ERROR_INIT;
  size_t count = 99;
  cr_expect(
      eq(int, ons_kernel_parameter_count(kernel, &count, &error), ONS_STATUS_NOT_READY));
  cr_expect(eq(ptr, (void*)ons_kernel_signature(kernel), NULL));
  cr_assert(eq(int, ons_kernel_prepare(kernel, cpu, NULL, &error), 0), "%s",
            error.message);
  cr_assert(eq(int, ons_kernel_parameter_count(kernel, &count, &error), 0));
  cr_assert(eq(sz, count, 5));
  ons_parameter parameter = {.struct_size = sizeof(parameter)};
  cr_assert(eq(int, ons_kernel_parameter(kernel, 1, &parameter, &error), 0));
  cr_expect(eq(int, parameter.kind, ONS_PARAMETER_POINTER));
  cr_expect(eq(int, parameter.dtype.bits, 32));
  cr_expect(eq(u32, parameter.is_const, 1));
  cr_expect(eq(str, (char*)parameter.name, "x"));
  cr_expect(eq(str, (char*)parameter.type, "const float*"));
  cr_expect(eq(int, ons_kernel_parameter(kernel, 5, &parameter, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  ons_kernel_attributes attributes = {.struct_size = sizeof(attributes)};
  cr_assert(eq(int, ons_kernel_get_attributes(kernel, cpu, &attributes, &error), 0));
  cr_expect(eq(u32, attributes.max_threads_per_block, 1024));
  ons_kernel_release(kernel);
}

Test(launch_cpu, errors_of_the_compiler) {
  static const char broken[] = "__global__ void k(int* x) {\n  *x = 1;\n  return y;\n}\n";
  ons_module_options options = ONS_MODULE_OPTIONS_INIT;
  options.name = "broken kernel.cu";
  ons_module* other = NULL;
  ons_error error = ONS_ERROR_INIT;
  cr_assert(eq(int, ons_module_create(runtime, broken, &options, &other, &error), 0));
  ons_blob* log = NULL;
  cr_expect(
      eq(int, ons_module_prepare(other, cpu, &log, &error), ONS_STATUS_COMPILE_FAILED));
  cr_expect(strstr(error.message, "broken kernel.cu:3") != NULL, "%s", error.message);
  cr_assert(log != NULL);
  cr_expect(strstr(ons_blob_data(log), "broken kernel.cu:3") != NULL);
  ons_blob_release(log);
  ons_module_release(other);
}

Test(launch_cpu, headers_and_options) {
  static const char text[] =
      "#include \"mine.h\"\n__global__ void k(int* out) { *out = VALUE + FROM_OPTION; "
      "}\n";
  static const ons_header header = {"mine.h", "#define VALUE 40\n"};
  static const char* const option = "-DFROM_OPTION=2";
  ons_module_options options = ONS_MODULE_OPTIONS_INIT;
  options.headers = &header;
  options.header_count = 1;
  options.options = &option;
  options.option_count = 1;
  ons_module* other = NULL;
  ons_kernel* kernel = NULL;
  ons_error error = ONS_ERROR_INIT;
  cr_assert(eq(int, ons_module_create(runtime, text, &options, &other, &error), 0));
  cr_assert(eq(int, ons_module_kernel(other, "k", &kernel, &error), 0));
  int32_t out = 0;
  int64_t count = 1;
  DLTensor tout = vector(&out, kDLInt, &count);
  ons_arg arg = tensor(&tout);
  ons_launch launch = ONS_LAUNCH_INIT;
  cr_assert(eq(int, ons_kernel_launch(kernel, &launch, &arg, 1, &error), 0), "%s",
            error.message);
  cr_expect(eq(int, out, 42));
  ons_kernel_release(kernel);
  ons_module_release(other);
}

Test(launch_cpu, malformed_calls) {
  ons_error error = ONS_ERROR_INIT;
  ons_runtime* other = NULL;
  ons_runtime_options zero = {0};
  cr_expect(eq(int, ons_runtime_create(NULL, NULL, &error), ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(
      eq(int, ons_runtime_create(&zero, &other, &error), ONS_STATUS_INVALID_ARGUMENT));
  ons_module* none = module;
  cr_expect(eq(int, ons_module_create(runtime, NULL, NULL, &none, NULL),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(eq(ptr, none, NULL));
  ons_kernel* kernel = get("axpy");
  ons_launch launch = {0};
  cr_expect(eq(int, ons_kernel_launch(kernel, &launch, NULL, 0, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(
      eq(int, ons_kernel_launch(NULL, NULL, NULL, 0, NULL), ONS_STATUS_INVALID_ARGUMENT));
  launch = (ons_launch)ONS_LAUNCH_INIT;
  launch.flags = ONS_LAUNCH_STREAM;
  launch.stream = &launch;
  cr_expect(eq(int, ons_kernel_launch(kernel, &launch, NULL, 0, &error),
               ONS_STATUS_ARGUMENT_VALUE));
  cr_expect(strstr(error.message, "no argument is in GPU memory") != NULL, "%s",
            error.message);
  launch.flags = 1u << 20;
  ons_arg arg = {0};
  cr_expect(eq(int, ons_kernel_launch(kernel, &launch, &arg, 1, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(strstr(error.message, "flags") != NULL, "%s", error.message);
  cr_expect(eq(int, ons_kernel_prepare(kernel, (DLDevice){kDLVulkan, 0}, NULL, &error),
               ONS_STATUS_UNSUPPORTED));
  ons_kernel_release(kernel);
}

Test(launch_cpu, malformed_launches_name_the_kernel_and_the_remedy) {
  ons_kernel* kernel = get("axpy");
  ons_launch unset = {0}, flags = ONS_LAUNCH_INIT, plain = ONS_LAUNCH_INIT;
  flags.flags = 1u << 20;
  const struct {
    ons_kernel* kernel;
    const ons_launch* launch;
    const char* words[3];
  } cases[] = {
      {NULL, &plain, {"kernel is NULL", "ons_module_kernel"}},
      {kernel, NULL, {"kernel 'axpy'", "launch is NULL", "grid and block"}},
      {kernel, &unset, {"kernel 'axpy'", "struct_size", "ONS_LAUNCH_INIT"}},
      {kernel, &flags, {"kernel 'axpy'", "launch->flags", "set ONS_LAUNCH_*"}},
      {kernel, &plain, {"kernel 'axpy'", "args is NULL", "pass the arguments"}},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    ons_error error = ONS_ERROR_INIT;
    cr_expect(eq(int,
                 ons_kernel_launch(cases[i].kernel, cases[i].launch, NULL, 5, &error),
                 ONS_STATUS_INVALID_ARGUMENT));
    for (size_t j = 0; j < 3 && cases[i].words[j]; ++j) {
      cr_expect(strstr(error.message, cases[i].words[j]) != NULL, "%s", error.message);
    }
  }
  ons_kernel_release(kernel);
}
