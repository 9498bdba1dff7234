/* XLA's calls on the CPU: what is launched, and what is refused before. */
#include <unistd.h>

#include "tests/unit/xla_fixture.h"

/* clang-format off */
static const char SOURCE[] =
    "__global__ void axpy(float a, const float* x, float* out, long long n) {\n"
    "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "  if (i < n) out[i] = a * x[i];\n"
    "}\n"
    "__global__ void twice(float* x) { x[blockIdx.x] *= 2; }\n"
    "__global__ void copy(const float* x, float* out) {\n"
    "  out[blockIdx.x] = x[blockIdx.x];\n"
    "}\n"
    "__global__ void slow(const float* x, float* out) {\n"
    "  volatile int i = 0;\n"
    "  while (i < 100000) i = i + 1;\n"
    "  out[blockIdx.x] = x[blockIdx.x];\n"
    "}\n"
    "__global__ void sum(const ons::ptrs<const float, 3> x, float* out) {\n"
    "  out[0] = x[0][0] + x[1][0] + x[2][0];\n"
    "}\n"
    "__global__ void many(const float* a, const float* b, const float* c,\n"
    "    const float* d, const float* e, const float* f, const float* g,\n"
    "    const float* h, const float* i, const float* j, const float* k,\n"
    "    const float* l, const float* m, const float* n, const float* o,\n"
    "    const float* p, const float* q, const float* r, float* out) {\n"
    "  *out = *a + *b + *c + *d + *e + *f + *g + *h + *i + *j + *k + *l + *m + *n +\n"
    "         *o + *p + *q + *r;\n"
    "}\n"
    "struct pair { float a, b; };\n"
    "__global__ void of_pair(pair p, const void* unused, float* out) {\n"
    "  out[0] = unused ? -1 : p.a + p.b;\n"
    "}\n";
/* clang-format on */

enum { N = 1000 };

static float x[N], y[N];
static int64_t n = N, none = 0, one = 1;

static const struct __attribute__((packed)) {
  uint32_t a_kind, a_bytes;
  double a;
  uint32_t n_kind, n_bytes;
  int64_t n;
} axpy_scalars = {ONS_ARG_FLOAT, 8, 2.0, ONS_ARG_INT, 8, N};

static xla_call* new_axpy(void) {
  xla_call* call = xla_call_create(SOURCE, "axpy", (N + 63) / 64, 64);
  XLA_NUMBERS(call, "plan", ONS_XLA_SCALAR, 0, ONS_XLA_OPERAND, 0, ONS_XLA_RESULT, 0,
              ONS_XLA_SCALAR, 16);
  xla_bytes(call, "scalars", &axpy_scalars, sizeof(axpy_scalars));
  xla_operand(call, ONS__XLA_F32, x, 1, &n);
  xla_result(call, ONS__XLA_F32, y, 1, &n);
  for (int i = 0; i < N; ++i) {
    x[i] = (float)i;
    y[i] = -1;
  }
  return call;
}

/* Of `kernel`, which copies as many elements as there are blocks. */
static xla_call* new_copy(const char* kernel, int64_t blocks) {
  xla_call* call = xla_call_create(SOURCE, kernel, blocks, 1);
  XLA_NUMBERS(call, "plan", ONS_XLA_OPERAND, 0, ONS_XLA_RESULT, 0);
  xla_operand(call, ONS__XLA_F32, x, 1, &n);
  xla_result(call, ONS__XLA_F32, y, 1, &n);
  return call;
}

static ons__xla_error* instantiate(xla_call* call) {
  return xla_run(call, ons_xla_cpu_instantiate, ONS__XLA_INSTANTIATE);
}

static ons__xla_error* execute(xla_call* call) {
  ons__xla_error* error = xla_run(call, ons_xla_cpu_execute, ONS__XLA_EXECUTE);
  xla_finish_tasks(&call->context);
  return error;
}

static void expect_axpy(void) {
  for (int i = 0; i < N; ++i) {
    cr_assert(eq(flt, y[i], 2 * x[i]), "%d", i);
    y[i] = -1;
  }
}

/* ---- what runs -------------------------------------------------------------------- */

Test(xla_cpu, runs_as_often_as_asked) {
  xla_call* call = new_axpy();
  xla_expect_ok(instantiate(call));
  xla_expect_ok(execute(call));
  expect_axpy();
  xla_text(call, "source", "no longer looked at");
  xla_expect_ok(execute(call));
  expect_axpy();
  cr_expect(eq(int, atomic_load(&xla_made_errors), 0), "no stream is asked for");
  xla_finish(call);
}

Test(xla_cpu, runs_without_an_instantiation) {
  xla_call* call = new_axpy();
  xla_expect_ok(execute(call));
  expect_axpy();
  xla_finish(call);
}

/* Long enough for more than one thread. */
static xla_call* new_slow(xla_pool_mode mode, int64_t thread_count) {
  enum { BLOCKS = 16 };
  xla_call* call = new_copy("slow", BLOCKS);
  for (int i = 0; i < BLOCKS; ++i) {
    x[i] = (float)i;
    y[i] = -1;
  }
  call->context.mode = mode;
  call->context.thread_count = thread_count;
  xla_expect_ok(xla_run(call, ons_xla_cpu_execute, ONS__XLA_EXECUTE));
  for (int i = 0; i < BLOCKS; ++i) cr_assert(eq(flt, y[i], x[i]));
  return call;
}

Test(xla_cpu, blocks_run_on_the_pool_whatever_it_is_like) {
  static const xla_pool_mode modes[] = {XLA_POOL_INLINE, XLA_POOL_THREADS, XLA_POOL_LATE};
  for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); ++i) {
    xla_call* call = new_slow(modes[i], 4);
    cr_expect(eq(sz, call->context.task_count, 3));
    xla_finish(call);
  }
  xla_finish(new_slow(XLA_POOL_REFUSES, 4));
  cr_expect(eq(int, atomic_load(&xla_made_errors), 3), "one for each task refused");
}

Test(xla_cpu, a_pool_of_one_thread_or_none_gets_no_task) {
  for (int64_t threads = 0; threads <= 1; ++threads) {
    xla_call* call = new_slow(XLA_POOL_INLINE, threads);
    cr_expect(eq(sz, call->context.task_count, 0));
    xla_finish(call);
  }
}

/* Whose slots past thread_schedule mean other things. */
Test(xla_cpu, a_table_of_version_0_1_is_not_asked_for_threads) {
  xla_call* call = new_axpy();
  call->api.struct_size = 88;
  call->api.version.minor = 1;
  call->api.thread_count = NULL;
  call->api.thread_schedule = NULL;
  xla_expect_ok(execute(call));
  expect_axpy();
  xla_finish(call);
}

Test(xla_cpu, many_operands) {
  enum { COUNT = 18 };
  static float terms[COUNT];
  static int64_t plan[2 * (COUNT + 1)];
  float total = 0;
  xla_call* call = xla_call_create(SOURCE, "many", 1, 1);
  for (int i = 0; i < COUNT; ++i) {
    terms[i] = (float)(1 << i);
    total += terms[i];
    plan[2 * i] = ONS_XLA_OPERAND;
    plan[2 * i + 1] = i;
    xla_operand(call, ONS__XLA_F32, &terms[i], 0, NULL);
  }
  plan[2 * COUNT] = ONS_XLA_RESULT;
  xla_numbers(call, "plan", plan, sizeof(plan) / sizeof(*plan));
  xla_result(call, ONS__XLA_F32, y, 0, NULL);
  xla_expect_ok(execute(call));
  cr_expect(eq(flt, y[0], total));
  xla_finish(call);
}

Test(xla_cpu, no_elements) {
  xla_call* call = new_axpy();
  call->operands[0].dims = call->results[0].dims = &none;
  call->operands[0].data = call->results[0].data = NULL;
  call->grid[0] = 0;
  xla_expect_ok(execute(call));
  cr_expect(eq(flt, y[0], -1));
  xla_finish(call);
}

Test(xla_cpu, lists_structs_and_null) {
  xla_call* call = xla_call_create(SOURCE, "sum", 1, 1);
  XLA_NUMBERS(call, "plan", ONS_XLA_LIST, 3, ONS_XLA_OPERAND, 0, ONS_XLA_OPERAND, 1,
              ONS_XLA_OPERAND, 0, ONS_XLA_RESULT, 0);
  float a = 3, b = 4;
  xla_operand(call, ONS__XLA_F32, &a, 0, NULL);
  xla_operand(call, ONS__XLA_F32, &b, 0, NULL);
  xla_result(call, ONS__XLA_F32, y, 1, &one);
  xla_expect_ok(execute(call));
  cr_expect(eq(flt, y[0], 10));
  xla_finish(call);

  static const struct {
    uint32_t kind, size_bytes;
    float a, b;
  } scalars = {ONS_ARG_BYTES, 8, 1, 2};
  call = xla_call_create(SOURCE, "of_pair", 1, 1);
  XLA_NUMBERS(call, "plan", ONS_XLA_SCALAR, 0, ONS_XLA_NULL, 0, ONS_XLA_RESULT, 0);
  xla_bytes(call, "scalars", &scalars, sizeof(scalars));
  xla_result(call, ONS__XLA_F32, y, 1, &one);
  xla_expect_ok(execute(call));
  cr_expect(eq(flt, y[0], 3));
  xla_finish(call);
}

Test(xla_cpu, tokens_are_left_out) {
  xla_call* call = xla_call_create(SOURCE, "copy", N, 1);
  XLA_NUMBERS(call, "plan", ONS_XLA_OPERAND, 1, ONS_XLA_RESULT, 1);
  xla_operand(call, ONS__XLA_TOKEN, NULL, 0, NULL);
  xla_operand(call, ONS__XLA_F32, x, 1, &n);
  xla_result(call, ONS__XLA_TOKEN, NULL, 0, NULL);
  xla_result(call, ONS__XLA_F32, y, 1, &n);
  x[N - 1] = 5;
  xla_expect_ok(execute(call));
  cr_expect(eq(flt, y[N - 1], 5));
  XLA_NUMBERS(call, "plan", ONS_XLA_OPERAND, 0, ONS_XLA_RESULT, 1);
  xla_expect_error(execute(call), INVALID_ARGUMENT, "operand 0 is a token");
  xla_finish(call);
}

/* ---- in place --------------------------------------------------------------------- */

Test(xla_cpu, declared_aliases_are_in_place) {
  xla_call* call = xla_call_create(SOURCE, "twice", N, 1);
  XLA_NUMBERS(call, "plan", ONS_XLA_RESULT, 0);
  XLA_NUMBERS(call, "aliases", 0, 0);
  xla_operand(call, ONS__XLA_F32, y, 1, &n);
  xla_result(call, ONS__XLA_F32, y, 1, &n);
  y[7] = 21;
  xla_expect_ok(execute(call));
  cr_expect(eq(flt, y[7], 42));
  call->operands[0].data = x;
  xla_expect_error(execute(call), INVALID_ARGUMENT, "has given it memory of its own");
  cr_expect(eq(flt, y[7], 42));
  xla_finish(call);
}

Test(xla_cpu, operand_and_result_in_one_place_are_refused_undeclared) {
  xla_call* call = new_copy("copy", N);
  y[0] = 1;
  call->operands[0].data = y;
  xla_expect_error(execute(call), INVALID_ARGUMENT,
                   "operand 0 and result 0 share memory");
  call->operands[0].data = y + N - 1; /* by one element */
  xla_expect_error(execute(call), INVALID_ARGUMENT, "share memory");
  call->operands[0].data = y + N;
  call->operands[0].dims = &one; /* behind it, but only 1 is read */
  call->operands[0].rank = 1;
  call->grid[0] = 0;
  xla_expect_ok(execute(call));
  call->grid[0] = N;
  call->operands[0].data = y;
  call->operands[0].dims = &n;
  XLA_NUMBERS(call, "aliases", 0, 0);
  xla_expect_ok(execute(call));
  xla_finish(call);
}

Test(xla_cpu, operands_are_only_read) {
  xla_call* call = xla_call_create(SOURCE, "twice", N, 1);
  XLA_NUMBERS(call, "plan", ONS_XLA_OPERAND, 0);
  xla_operand(call, ONS__XLA_F32, y, 1, &n);
  y[0] = 1;
  xla_expect_error(execute(call), INVALID_ARGUMENT, "read-only");
  cr_expect(eq(flt, y[0], 1));
  xla_finish(call);
}

Test(xla_cpu, results_are_written) {
  xla_call* call = new_copy("copy", N);
  XLA_NUMBERS(call, "plan", ONS_XLA_RESULT, 0, ONS_XLA_RESULT, 0);
  xla_expect_error(execute(call), INVALID_ARGUMENT, "only reads this parameter");
  XLA_NUMBERS(call, "plan", ONS_XLA_OPERAND, 0, ONS_XLA_RESULT, 0);
  xla_result(call, ONS__XLA_F32, x, 1, &n);
  xla_expect_error(execute(call), INVALID_ARGUMENT, "result 1 is for no parameter");
  xla_finish(call);
}

/* ---- what is refused -------------------------------------------------------------- */

Test(xla_cpu, arguments_are_checked_against_the_signature) {
  xla_call* call = new_axpy();
  call->operands[0].dtype = ONS__XLA_F16;
  xla_expect_error(execute(call), INVALID_ARGUMENT, "argument 2 ('x')");
  call->operands[0].dtype = ONS__XLA_F32;
  XLA_NUMBERS(call, "plan", ONS_XLA_SCALAR, 0, ONS_XLA_OPERAND, 0, ONS_XLA_RESULT, 0);
  xla_expect_error(execute(call), INVALID_ARGUMENT, "argument");
  XLA_NUMBERS(call, "plan", ONS_XLA_SCALAR, 0, ONS_XLA_OPERAND, 0, ONS_XLA_RESULT, 0,
              ONS_XLA_SCALAR, 0);
  xla_expect_error(execute(call), INVALID_ARGUMENT, "argument 4 ('n')");
  cr_expect(eq(flt, y[0], -1), "nothing has run");
  xla_finish(call);
}

Test(xla_cpu, elements_of_less_than_a_byte_are_refused) {
  static const int dtypes[] = {ONS__XLA_S4, ONS__XLA_U4, ONS__XLA_S2, ONS__XLA_U1,
                               ONS__XLA_F4E2M1FN};
  xla_call* call = new_copy("copy", N);
  for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); ++i) {
    call->operands[0].dtype = dtypes[i];
    xla_expect_error(execute(call), UNIMPLEMENTED, "share a byte");
  }
  static const int unknown[] = {0, 13, 34, 1000, -1};
  for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); ++i) {
    call->operands[0].dtype = unknown[i];
    xla_expect_error(execute(call), UNIMPLEMENTED, "dtype number");
  }
  xla_finish(call);
}

Test(xla_cpu, the_compilers_log_reaches_the_error) {
  xla_call* call =
      xla_call_create("__global__ void broken() {\n  undeclared();\n}\n", "broken", 1, 1);
  xla_text(call, "name", "mine.cu");
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "mine.cu:2");
  ons__xla_error* error = instantiate(call);
  cr_assert(ne(ptr, error, NULL), "compiled once more, and refused again");
  cr_expect(ne(ptr, strstr(error->message, "undeclared();"), NULL), "%s", error->message);
  xla_drop_error(error);
  xla_finish(call);
}

/* ---- modules ---------------------------------------------------------------------- */

Test(xla_cpu, options_and_headers_reach_the_compiler) {
  xla_call* call = xla_call_create(
      "#include \"value.h\"\n"
      "__global__ void set(int* out) { *out = VALUE + FROM_HEADER; }\n",
      "set", 1, 1);
  XLA_NUMBERS(call, "plan", ONS_XLA_RESULT, 0);
  xla_text(call, "options", "9:-DVALUE=410:-DUNUSED=1");
  xla_text(call, "headers", "7:value.h22:#define FROM_HEADER 3\n");
  int result = 0;
  xla_result(call, ONS__XLA_S32, &result, 0, NULL);
  xla_expect_ok(instantiate(call));
  xla_expect_ok(execute(call));
  cr_expect(eq(int, result, 7));
  xla_finish(call);
}

Test(xla_cpu, a_digest_alone_needs_its_module) {
  xla_call* call = new_axpy();
  xla_drop(call, "source");
  xla_expect_error(instantiate(call), FAILED_PRECONDITION, "embed=\"source\"");
  xla_expect_error(execute(call), FAILED_PRECONDITION, "0123456789abcdef");

  ons_error error = ONS_ERROR_INIT;
  ons_runtime* runtime = NULL;
  ons_module *module = NULL, *other = NULL;
  cr_assert(eq(int, ons_runtime_create(NULL, &runtime, &error), 0));
  cr_assert(eq(int, ons_module_create(runtime, SOURCE, NULL, &module, &error), 0));
  cr_assert(eq(int, ons_module_create(runtime, "other", NULL, &other, &error), 0));
  cr_expect(eq(int, ons_xla_module_register(module, "0123456789abcdef", &error), 0));
  cr_expect(eq(int, ons_xla_module_register(module, "0123456789abcdef", &error), 0));
  cr_expect(eq(int, ons_xla_module_register(other, "0123456789abcdef", &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(
      eq(int, ons_xla_module_register(other, "", &error), ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(
      eq(int, ons_xla_module_register(NULL, "a", &error), ONS_STATUS_INVALID_ARGUMENT));
  ons_module_release(module);
  ons_module_release(other);
  ons_runtime_release(runtime);

  xla_expect_ok(instantiate(call));
  xla_expect_ok(execute(call));
  expect_axpy();
  xla_finish(call);
}

Test(xla_cpu, one_digest_is_of_one_module) {
  xla_call* call = new_axpy();
  xla_expect_ok(instantiate(call));
  xla_expect_ok(instantiate(call));
  xla_text(call, "options", "5:-DN=1");
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "different");
  xla_drop(call, "options");
  xla_number(call, "flags", ONS_MODULE_CHECK);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "different");
  xla_drop(call, "flags");
  xla_text(call, "name", "other.cu");
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "different");
  xla_drop(call, "name");
  xla_text(call, "headers", "1:a1:b");
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "different");

  xla_text(call, "digest", "of another");
  xla_text(call, "options", "5:-DN=1");
  xla_expect_ok(instantiate(call));
  xla_text(call, "options", "5:-DN=2");
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "different");
  xla_text(call, "options", "5:-DN=1");
  xla_text(call, "headers", "1:a1:c");
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "different");
  xla_text(call, "headers", "1:c1:b");
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "different");
  xla_finish(call);
}

/* Modules that are never one, as they have variables or come from a file. */
Test(xla_cpu, a_module_of_a_file_is_that_of_its_text) {
  static const char text[] =
      "__device__ int counter;\n"
      "__global__ void count(int* out) { *out = ++counter; }\n";
  char path[] = "/tmp/onstream_xla_XXXXXX";
  int file = mkstemp(path);
  cr_assert(eq(sz, (size_t)write(file, text, sizeof(text) - 1), sizeof(text) - 1));
  close(file);
  ons_error error = ONS_ERROR_INIT;
  ons_runtime* runtime = NULL;
  ons_module* module = NULL;
  cr_assert(eq(int, ons_runtime_create(NULL, &runtime, &error), 0));
  cr_assert(
      eq(int, ons_module_create_from_file(runtime, path, NULL, &module, &error), 0));
  unlink(path);
  cr_assert(eq(int, ons_xla_module_register(module, "0123456789abcdef", &error), 0));

  int result = 0;
  xla_call* call = xla_call_create(text, "count", 1, 1);
  XLA_NUMBERS(call, "plan", ONS_XLA_RESULT, 0);
  xla_result(call, ONS__XLA_S32, &result, 0, NULL);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "different"); /* the name is */
  xla_text(call, "name", path);
  xla_expect_ok(instantiate(call));
  xla_expect_ok(execute(call));
  xla_expect_ok(instantiate(call));
  xla_expect_ok(execute(call));
  cr_expect(eq(int, result, 2));
  ons_module_release(module);
  ons_runtime_release(runtime);
  xla_finish(call);
}

/* ---- bundles ---------------------------------------------------------------------- */

#if defined(__aarch64__)
#define LEVEL "aarch64"
#else
#define LEVEL "x86-64"
#endif

static ons_blob* new_bundle(const char* source, uint32_t flags) {
  static const char* const levels[] = {LEVEL};
  ons_error error = ONS_ERROR_INIT;
  ons_runtime* runtime = NULL;
  ons_module* module = NULL;
  ons_blob* bundle = NULL;
  ons_bundle_options options = ONS_BUNDLE_OPTIONS_INIT;
  options.architectures = levels;
  options.architecture_count = 1;
  options.flags = flags;
  cr_assert(eq(int, ons_runtime_create(NULL, &runtime, &error), 0));
  cr_assert(eq(int, ons_module_create(runtime, source, NULL, &module, &error), 0));
  cr_assert(eq(int, ons_module_bundle(module, &options, &bundle, NULL, &error), 0), "%s",
            error.message);
  ons_module_release(module);
  ons_runtime_release(runtime);
  return bundle;
}

static void put_bundle(xla_call* call, const ons_blob* bundle) {
  xla_bytes(call, "bundle", ons_blob_data(bundle), ons_blob_size_bytes(bundle));
}

Test(xla_cpu, a_bundle_needs_no_compiler) {
  ons_runtime* runtime = NULL;
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.host_compiler_path = "/nowhere";
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, NULL), 0));
  cr_assert(eq(int, ons_xla_runtime_set(runtime, NULL), 0));
  ons_blob* bundle = new_bundle(SOURCE, 0);
  xla_call* call = new_axpy();
  xla_drop(call, "source");
  put_bundle(call, bundle);
  xla_expect_ok(instantiate(call));
  xla_expect_ok(instantiate(call));
  xla_expect_ok(execute(call));
  expect_axpy();

  ons_blob* other = new_bundle("__global__ void k() {}", 0);
  put_bundle(call, other);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "different");
  xla_bytes(call, "bundle", ons_blob_data(bundle), ons_blob_size_bytes(bundle) - 1);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "cut off");
  ons_blob_release(other);
  ons_blob_release(bundle);
  ons_runtime_release(runtime);
  xla_finish(call);
}

Test(xla_cpu, a_bundle_with_its_source_is_that_of_the_source) {
  ons_blob* bundle = new_bundle(SOURCE, ONS_BUNDLE_SOURCE);
  xla_call* call = new_axpy();
  xla_expect_ok(instantiate(call));
  put_bundle(call, bundle);
  xla_expect_ok(instantiate(call));
  ons_blob* bare = new_bundle(SOURCE, 0);
  put_bundle(call, bare);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "different");

  xla_text(call, "digest", "of the bundle");
  put_bundle(call, bundle);
  xla_expect_ok(instantiate(call));
  xla_drop(call, "bundle");
  xla_expect_ok(instantiate(call));
  xla_expect_ok(execute(call));
  expect_axpy();
  ons_blob_release(bare);
  ons_blob_release(bundle);
  xla_finish(call);
}

Test(xla_cpu, one_runtime_a_process) {
  ons_error error = ONS_ERROR_INIT;
  ons_runtime *first = NULL, *second = NULL;
  cr_assert(eq(int, ons_runtime_create(NULL, &first, &error), 0));
  cr_assert(eq(int, ons_runtime_create(NULL, &second, &error), 0));
  cr_expect(eq(int, ons_xla_runtime_set(first, &error), 0));
  cr_expect(eq(int, ons_xla_runtime_set(first, &error), 0));
  cr_expect(eq(int, ons_xla_runtime_set(second, &error), ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(eq(int, ons_xla_runtime_set(NULL, &error), ONS_STATUS_INVALID_ARGUMENT));
  ons_runtime_release(first);
  ons_runtime_release(second);
}

/* ---- interrupts ------------------------------------------------------------------- */

static int always(void* asked) {
  atomic_fetch_add((atomic_int*)asked, 1);
  return 1;
}

/* Neither the compile nor the run, though both take long enough to be asked. */
Test(xla_cpu, the_interrupt_hook_is_not_asked) {
  enum { BLOCKS = 1000 };
  ons_error error = ONS_ERROR_INIT;
  ons_runtime* runtime = NULL;
  atomic_int asked = 0;
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.interrupt = always;
  options.interrupt_user_data = &asked;
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, &error), 0));
  cr_assert(eq(int, ons_xla_runtime_set(runtime, &error), 0));
  xla_call* call = new_copy("slow", BLOCKS);
  call->context.thread_count = 1;
  xla_expect_ok(instantiate(call));
  xla_expect_ok(execute(call));
  cr_expect(eq(int, atomic_load(&asked), 0));

  ons_module* module = NULL;
  ons_kernel* kernel = NULL;
  ons_module_options other = ONS_MODULE_OPTIONS_INIT;
  other.name = "other.cu"; /* another module than XLA's */
  cr_assert(eq(int, ons_module_create(runtime, SOURCE, &other, &module, &error), 0));
  cr_assert(eq(int, ons_module_kernel(module, "slow", &kernel, &error), 0));
  cr_expect(eq(int, ons_kernel_prepare(kernel, (DLDevice){kDLCPU, 0}, NULL, &error),
               ONS_STATUS_INTERRUPTED));
  ons_kernel_release(kernel);
  ons_module_release(module);
  ons_runtime_release(runtime);
  xla_finish(call);
}
