/* The NVRTC service. Tests that compile are skipped where no NVRTC is found;
 * ONSTREAM_NVRTC and ONSTREAM_CUDA_INCLUDE say where it is, as for any program. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jit/nvrtc.h"
#include "jit/nvrtc_log.h"
#include "runtime/base/alloc.h"

typedef struct fixture {
  ons__nvrtc* nvrtc;
  ons__compile_request request;
  ons__image* image;
  char* log;
  ons_error error;
} fixture;

static fixture setup(const char* source) {
  fixture f = {
      .request = {.source = source, .name = "kernel.cu", .arch = "sm_90"},
      .error = ONS_ERROR_INIT,
  };
  const ons__nvrtc_config config = {0};
  cr_assert_eq(ons__nvrtc_create(&config, &f.nvrtc, NULL), ONS_STATUS_OK);
  return f;
}

static void teardown(fixture* f) {
  ons__image_destroy(f->image);
  ons__free(NULL, f->log);
  ons__nvrtc_destroy(f->nvrtc);
}

static ons_status compile(fixture* f) {
  ons__image_destroy(f->image);
  ons__free(NULL, f->log);
  f->error = (ons_error)ONS_ERROR_INIT;
  ons_status status =
      ons__nvrtc_compile(f->nvrtc, &f->request, &f->image, &f->log, &f->error);
  if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", f->error.message);
  cr_assert_eq(status, f->error.code);
  return status;
}

static void cr_expect_contains(const char* text, const char* part) {
  cr_expect(text && strstr(text, part), "\"%s\" is not in \"%s\"", part, text);
}

static void expect_kernel(const fixture* f, const char* name, const char* lowered,
                          const char* type) {
  char signature[256];
  snprintf(signature, sizeof(signature), "_Z7ons_sigI%sEvv", type);
  const ons__image_kernel* kernel = ons__image_find(f->image, name);
  cr_assert_not_null(kernel, "%s", name);
  cr_expect_str_eq(kernel->lowered, lowered);
  cr_expect_str_eq(kernel->signature, signature);
}

#define NEEDED(text) \
  { .name = (text), .required = true }
#define GUESSED(text) \
  { .name = (text) }
#define VARIABLE(text) \
  { .name = (text), .is_variable = true }
#define KERNELS(f, ...)                            \
  const ons__kernel_name names_[] = {__VA_ARGS__}; \
  (f).request.kernels = names_;                    \
  (f).request.kernel_count = sizeof(names_) / sizeof(names_[0])

static const char saxpy[] =
    "extern \"C\" __global__ void saxpy(float a, const float* x, float* y, long n) {\n"
    "  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;\n"
    "  if (i < n) y[i] += a * x[i];\n"
    "}\n"
    "namespace ns { __global__ void one(int* p) { *p = 1; } }\n"
    "template <typename T> __global__ void fill(T* p, T v) { *p = v; }\n"
    "__global__ void twice(int* p) { *p = 2; }\n"
    "__global__ void twice(float* p) { *p = 2; }\n"
    "__global__ void strided(ons::view<const float, 2> v) {}\n";

Test(nvrtc, no_macro_of_the_user_reaches_our_headers) {
  fixture f = setup(
      "__global__ void k(ons::view<float, 1> v_) {\n"
      "  static_assert(F(4) == 5 && data == 4, \"\");\n"
      "#ifdef GONE\n#error\n#endif\n"
      "  v_(threadIdx.x) = rank;\n}\n");
  const char* const options[] = {
      "-Ddata=4",    "-Drank=4",   "-Dshape=4", "-Dindex=4", "-Dcount=4",
      "-D",          "offset=4",   "-Dat=4",    "-Dd=4",     "-Dstrides=4",
      "-Dsize=4",    "-Dview_=4",  "-DN=4",     "-DT=float", "-DI=4",
      "-DIndex=int", "-DF(x)=x+1", "-DGONE",    "-UGONE",    "--define-macro=int32_t_=4"};
  f.request.options = options;
  f.request.option_count = sizeof(options) / sizeof(options[0]);
  KERNELS(f, NEEDED("k"));
  cr_assert_eq(compile(&f), ONS_STATUS_OK, "%s", f.error.message);
  cr_expect_str_empty(f.log);
  teardown(&f);
}

static bool has_assert(const char* source, const char* option) {
  fixture f = setup(source);
  const char* const options[] = {option, "-arch=compute_90"};
  f.request.options = options;
  f.request.option_count = 2;
  KERNELS(f, NEEDED("k"));
  cr_assert_eq(compile(&f), ONS_STATUS_OK, "%s", f.error.message);
  cr_assert_eq(f.image->kind, ONS__IMAGE_PTX);
  bool found = strstr(f.image->code, "assertfail") != NULL;
  teardown(&f);
  return found;
}

Test(nvrtc, asserts_end_with_ndebug) {
  static const char source[] = "__global__ void k(int x) { assert(x > 3); }";
  cr_expect(has_assert(source, "-DOTHER"));
  cr_expect(!(has_assert(source, "-DNDEBUG")));
}

Test(nvrtc, names_and_signatures) {
  fixture f = setup(saxpy);
  KERNELS(f, GUESSED("saxpy"), GUESSED("ns::one"), NEEDED("fill<double>"),
          GUESSED("strided"));
  cr_assert_eq(compile(&f), ONS_STATUS_OK, "%s", f.error.message);
  cr_expect_eq(f.image->kind, ONS__IMAGE_CUBIN);
  cr_expect_eq(memcmp(f.image->code, "\177ELF", 4), 0);
  cr_expect_eq(f.image->kernel_count, 4);
  cr_expect_not_null(f.log);
  cr_expect_not_null(f.image->log);
  expect_kernel(&f, "saxpy", "saxpy", "FvfPKfPflE");
  expect_kernel(&f, "ns::one", "_ZN2ns3oneEPi", "FvPiE");
  expect_kernel(&f, "fill<double>", "_Z4fillIdEvPT_S0_", "FvPddE");
  cr_expect_contains(ons__image_find(f.image, "strided")->signature,
                     "FvN3ons4viewIKfLi2E");
  teardown(&f);
}

Test(nvrtc, guessed_names_that_spoil_the_compile_are_dropped) {
  fixture f = setup(saxpy);
  KERNELS(f, NEEDED("saxpy"), GUESSED("fill"), GUESSED("twice"), GUESSED("nowhere"),
          GUESSED("no::where"), GUESSED("a b"), GUESSED("twice<"), GUESSED("new\nline"),
          GUESSED(""));
  cr_assert_eq(compile(&f), ONS_STATUS_OK, "%s", f.error.message);
  cr_expect_eq(f.image->kernel_count, 1);
  expect_kernel(&f, "saxpy", "saxpy", "FvfPKfPflE");
  teardown(&f);
}

Test(nvrtc, variables) {
  fixture f = setup(
      "__device__ float unused[2][3];\n"
      "namespace ns { __constant__ const double limits[4] = {1, 2, 3, 4}; }\n"
      "template <typename T> __device__ T generic;\n"
      "__global__ void k(int* p) { *p = 1; }\n");
  KERNELS(f, VARIABLE("nowhere"), GUESSED("k"), VARIABLE("unused"),
          VARIABLE("ns::limits"), VARIABLE("generic"), VARIABLE("k<"));
  cr_assert_eq(compile(&f), ONS_STATUS_OK, "%s", f.error.message);
  cr_expect_eq(f.image->kernel_count, 3);
  expect_kernel(&f, "k", "_Z1kPi", "FvPiE");
  expect_kernel(&f, "unused", "unused", "FvPA2_A3_fE");
  /* Its symbol has a part that is NVRTC's own: const variables are internal. */
  cr_expect_str_eq(ons__image_find(f.image, "ns::limits")->signature,
                   "_Z7ons_sigIFvPA4_KdEEvv");
  teardown(&f);
}

Test(nvrtc, required_name_that_is_not_there) {
  fixture f = setup(saxpy);
  KERNELS(f, GUESSED("saxpy"), NEEDED("nowhere"), GUESSED("fill"));
  cr_expect_eq(compile(&f), ONS_STATUS_NOT_FOUND);
  cr_expect_contains(f.error.message, "no kernel \"nowhere\" in kernel.cu");
  cr_expect_contains(f.error.message, "identifier \"nowhere\" is undefined");
  cr_expect_null(f.image);
  teardown(&f);
}

Test(nvrtc, user_error_is_not_hidden_by_names) {
  fixture f = setup(
      "\n__global__ void a(int* p, foo x) { *p = 1; }\n"
      "__global__ void b(int* p) { *p = q; }\n");
  KERNELS(f, NEEDED("a"), GUESSED("b"), GUESSED("nowhere"));
  cr_expect_eq(compile(&f), ONS_STATUS_COMPILE_FAILED);
  cr_expect_str_eq(f.error.message,
                   "kernel.cu:2: error: identifier \"foo\" is undefined");
  cr_expect_str_eq(f.error.native_call, "nvrtcCompileProgram");
  cr_expect_eq(f.error.native_code, 6);
  cr_expect_contains(f.log, "kernel.cu(3): error: identifier \"q\" is undefined");
  cr_expect_null(strstr(f.log, "__nv_name_map"));
  teardown(&f);
}

Test(nvrtc, error_inside_an_instance) {
  fixture f = setup(
      "template <typename T> __global__ void t(T* p) {\n"
      "  static_assert(sizeof(T) == 4, \"four bytes\");\n"
      "  *p = T::nothing();\n"
      "}\n");
  KERNELS(f, NEEDED("t<double>"));
  cr_expect_eq(compile(&f), ONS_STATUS_COMPILE_FAILED);
  cr_expect_contains(f.error.message, "kernel.cu:2: error:");
  cr_expect_contains(f.error.message, "four bytes");
  cr_expect_contains(f.log, "instantiation");
  teardown(&f);
}

Test(nvrtc, file_name_with_quotes_and_spaces) {
  fixture f = setup("__global__ void a(int* p) { *p = q; }\n");
  f.request.name = "my \"own\" (dir)\\\xc3\xa4.cu";
  KERNELS(f, GUESSED("a"));
  cr_expect_eq(compile(&f), ONS_STATUS_COMPILE_FAILED);
  cr_expect_contains(f.error.message,
                     "my \"own\" (dir)\\\xc3\xa4.cu:1: error: identifier");
  teardown(&f);
}

Test(nvrtc, log_of_a_success_has_the_warnings) {
  fixture f = setup("__global__ void a(int* p) {\n  int unused;\n  *p = 1;\n}\n");
  KERNELS(f, GUESSED("a"));
  cr_assert_eq(compile(&f), ONS_STATUS_OK);
  cr_expect_contains(f.log, "kernel.cu(2): warning");
  cr_expect_str_eq(f.log, f.image->log);
  teardown(&f);
}

Test(nvrtc, options_pass_through) {
  fixture f = setup(
      "__global__ void a(int* p) { *p = VALUE; }\n"
      "static_assert(__cplusplus > 201703L, \"\");\n");
  const char* const options[] = {"-DVALUE=3", "-std=c++20",
                                 "--gpu-architecture=compute_80"};
  f.request.options = options;
  f.request.option_count = 3;
  KERNELS(f, GUESSED("a"));
  cr_assert_eq(compile(&f), ONS_STATUS_OK, "%s", f.error.message);
  cr_expect_eq(f.image->kind, ONS__IMAGE_PTX);
  cr_expect_contains(f.image->code, ".target sm_80");
  cr_expect_str_empty(f.log, "%s", f.log);
  teardown(&f);
}

Test(nvrtc, rejected_option_is_named) {
  fixture f = setup("__global__ void a(int* p) {}\n");
  const char* const options[] = {"--no-such-thing"};
  f.request.options = options;
  f.request.option_count = 1;
  cr_expect_eq(compile(&f), ONS_STATUS_COMPILE_FAILED);
  cr_expect_contains(f.error.message, "--no-such-thing");
  teardown(&f);
}

Test(nvrtc, device_newer_than_the_compiler_gets_ptx) {
  fixture f = setup(saxpy);
  f.request.arch = "sm_990";
  KERNELS(f, GUESSED("saxpy"));
  cr_assert_eq(compile(&f), ONS_STATUS_OK, "%s", f.error.message);
  cr_expect_eq(f.image->kind, ONS__IMAGE_PTX);
  cr_expect_contains(f.image->code, ".visible .entry saxpy");
  teardown(&f);
}

Test(nvrtc, device_older_than_the_compiler) {
  fixture f = setup(saxpy);
  f.request.arch = "sm_10";
  cr_expect_eq(compile(&f), ONS_STATUS_UNSUPPORTED);
  cr_expect_contains(f.error.message, "does not compile for sm_10");
  cr_expect_contains(f.error.message, " 90");
  teardown(&f);
}

Test(nvrtc, headers_in_memory) {
  fixture f = setup(
      "#include \"value.h\"\n#include <deep/er.h>\n"
      "__global__ void a(int* p) { *p = VALUE + ER; }\n");
  const ons_header headers[] = {{"value.h", "#define VALUE 1\n"},
                                {"deep/er.h", "#define ER 2\n"}};
  f.request.headers = headers;
  f.request.header_count = 2;
  KERNELS(f, GUESSED("a"));
  cr_expect_eq(compile(&f), ONS_STATUS_OK, "%s", f.error.message);
  teardown(&f);
}

Test(nvrtc, missing_headers_say_what_brings_them) {
  static const struct {
    const char* include;
    const char* hint;
  } cases[] = {
      {"<cub/no_such.cuh>", "nvidia-cuda-cccl"},
      {"<cuda_no_such.h>", "nvidia-cuda-runtime"},
      {"<vector>", "no standard library"},
      {"\"mine.h\"", "kernel.cu:1: catastrophic error"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    char source[200];
    snprintf(source, sizeof(source), "#include %s\n__global__ void a() {}\n",
             cases[i].include);
    fixture f = setup(source);
    KERNELS(f, GUESSED("a"));
    cr_expect_eq(compile(&f), ONS_STATUS_COMPILE_FAILED);
    cr_expect_contains(f.error.message, cases[i].hint);
    teardown(&f);
  }
}

Test(nvrtc, quoted_include_from_the_folder) {
  char folder[] = "/tmp/ons nvrtc XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  char path[100];
  snprintf(path, sizeof(path), "%s/own.h", folder);
  FILE* file = fopen(path, "w");
  fputs("#define OWN 7\n", file);
  fclose(file);
  fixture f = setup("#include \"own.h\"\n__global__ void a(int* p) { *p = OWN; }\n");
  f.request.folder = folder;
  KERNELS(f, GUESSED("a"));
  cr_expect_eq(compile(&f), ONS_STATUS_OK, "%s", f.error.message);
  teardown(&f);
  remove(path);
  remove(folder);
}

static const char* const well_known[] = {
    "#include <cuda_fp16.h>\n__global__ void a(__half* p) { *p = __half(1); }\n",
    "#include <cuda_bf16.h>\n__global__ void a(__nv_bfloat16* p) { *p = "
    "__nv_bfloat16(1); }\n",
    "#include <cuda_fp8.h>\n__global__ void a(__nv_fp8_e4m3* p) { *p = "
    "__nv_fp8_e4m3(1.f); }\n",
    "#include <cstdint>\n#include <cstddef>\n"
    "__global__ void a(std::int64_t* p, std::size_t n) { *p = INT32_MAX + (uint8_t)n; "
    "}\n",
    "#include <stdint.h>\n#include <stddef.h>\n__global__ void a(uint32_t* p) { *p = 1; "
    "}\n",
    "#include <cstdint>\n#include <cuda/std/cstdint>\n#include <cuda/std/type_traits>\n"
    "__global__ void a(cuda::std::int64_t* p) { *p = INT64_MAX; }\n",
    "#include <cuda/std/cstdint>\n#include <cstdint>\n"
    "__global__ void a(std::int64_t* p) { *p = INT64_MAX; }\n",
    "#include <cooperative_groups.h>\n"
    "__global__ void a(int* p) { *p = cooperative_groups::this_thread_block().size(); "
    "}\n",
};

Test(nvrtc, well_known_headers, .timeout = 120) {
  for (size_t i = 0; i < sizeof(well_known) / sizeof(well_known[0]); ++i) {
    fixture f = setup(well_known[i]);
    KERNELS(f, NEEDED("a"));
    ons_status status = compile(&f);
    if (strstr(f.error.message, "it comes with")) cr_skip_test("%s", f.error.message);
    cr_expect_eq(status, ONS_STATUS_OK, "%s%s", f.error.message, well_known[i]);
    cr_expect_str_empty(f.log, "%s: %s", well_known[i], f.log);
    teardown(&f);
  }
}

static void* compile_on_a_thread(void* argument) {
  fixture* f = argument;
  ons__nvrtc_compile(f->nvrtc, &f->request, &f->image, &f->log, &f->error);
  return NULL;
}

Test(nvrtc, threads_share_a_service) {
  enum { THREADS = 4 };
  fixture f[THREADS];
  pthread_t threads[THREADS];
  static const char source[] =
      "#include <stdint.h>\n__global__ void a(int32_t* p) { *p = VALUE; }\n";
  static const char* const options[THREADS] = {"-DVALUE=1", "-DVALUE=2", "-DVALUE=oops",
                                               "-DVALUE=4"};
  const ons__kernel_name names[] = {NEEDED("a")};
  for (int i = 0; i < THREADS; ++i) {
    f[i] = setup(source);
    if (i) {
      ons__nvrtc_destroy(f[i].nvrtc);
      f[i].nvrtc = f[0].nvrtc;
    }
    f[i].request.options = &options[i];
    f[i].request.option_count = 1;
    f[i].request.kernels = names;
    f[i].request.kernel_count = 1;
    pthread_create(&threads[i], NULL, compile_on_a_thread, &f[i]);
  }
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  if (f[0].error.code == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", f[0].error.message);
  for (int i = THREADS; i-- > 0;) {
    cr_expect_eq(f[i].error.code, i == 2 ? ONS_STATUS_COMPILE_FAILED : ONS_STATUS_OK);
    cr_expect_eq(f[i].image == NULL, i == 2);
    if (i) f[i].nvrtc = NULL;
    teardown(&f[i]);
  }
}

/* An allocator that fails once, and counts what is live. */
typedef struct stingy {
  int until_failure;
  int live;
} stingy;

static void* stingy_allocate(void* user_data, size_t size_bytes) {
  stingy* state = user_data;
  if (--state->until_failure == 0) return NULL;
  ++state->live;
  return malloc(size_bytes);
}

static void stingy_free(void* user_data, void* pointer) {
  stingy* state = user_data;
  state->live -= pointer != NULL;
  free(pointer);
}

Test(nvrtc, out_of_memory_at_any_point, .timeout = 120) {
  stingy state = {0};
  const ons_allocator allocator = {&state, stingy_allocate, stingy_free};
  const ons__nvrtc_config config = {.allocator = &allocator};
  const ons__kernel_name names[] = {NEEDED("a"), GUESSED("nowhere")};
  const char* const options[] = {"-DX=1"};
  const ons__compile_request request = {
      .allocator = &allocator,
      .source = "#include <cstdint>\n__global__ void a(int* p) { *p = X; }\n",
      .name = "k.cu",
      .options = options,
      .option_count = 1,
      .kernels = names,
      .kernel_count = 2,
      .arch = "sm_90",
  };
  ons_status status = ONS_STATUS_OUT_OF_MEMORY;
  int failures = 0;
  for (int n = 1; status == ONS_STATUS_OUT_OF_MEMORY; ++n) {
    ons__nvrtc* nvrtc = NULL;
    ons__image* image = NULL;
    char* log = NULL;
    ons_error error = ONS_ERROR_INIT;
    state.until_failure = n;
    status = ons__nvrtc_create(&config, &nvrtc, &error);
    if (!status) status = ons__nvrtc_compile(nvrtc, &request, &image, &log, &error);
    if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
    cr_expect_eq(image == NULL, status != ONS_STATUS_OK);
    failures += status == ONS_STATUS_OUT_OF_MEMORY;
    ons__image_destroy(image);
    ons__free(&allocator, log);
    ons__nvrtc_destroy(nvrtc);
    cr_expect_eq(state.live, 0, "allocation %d", n);
    if (status == ONS_STATUS_OK && state.until_failure <= 0) {
      status = ONS_STATUS_OUT_OF_MEMORY; /* one that could be done without */
    }
  }
  cr_expect_eq(status, ONS_STATUS_OK);
  cr_expect_gt(failures, 20);
}

/* Headers that are installed after a first compile are found by the next. */
Test(nvrtc, a_search_without_result_is_repeated) {
  char folder[] = "/tmp/ons-nvrtc-XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  char include[64], path[80];
  snprintf(include, sizeof(include), "%s/include", folder);
  snprintf(path, sizeof(path), "%s/late.h", include);
  const ons__nvrtc_config config = {.include_path = include};
  fixture f = setup("#include <late.h>\n__global__ void a(int* p) { *p = LATE; }\n");
  ons__nvrtc_destroy(f.nvrtc);
  cr_assert_eq(ons__nvrtc_create(&config, &f.nvrtc, NULL), ONS_STATUS_OK);
  cr_expect_eq(compile(&f), ONS_STATUS_COMPILE_FAILED);
  cr_assert_eq(mkdir(include, 0700), 0);
  FILE* file = fopen(path, "w");
  fputs("#define LATE 7\n", file);
  fclose(file);
  cr_expect_eq(compile(&f), ONS_STATUS_OK, "%s", f.error.message);
  teardown(&f);
  remove(path);
  rmdir(include);
  rmdir(folder);
}

static int count_calls(void* user_data, ons_locate_what what, char* out_path,
                       size_t capacity) {
  int* counts = user_data;
  ++counts[what];
  if (what != ONS_LOCATE_CUDA_INCLUDE) return 0;
  snprintf(out_path, capacity, "/tmp");
  return 1;
}

Test(nvrtc, nothing_is_searched_for_a_source_without_includes) {
  int counts[4] = {0};
  const ons__nvrtc_config config = {.locate = count_calls, .locate_user_data = counts};
  fixture f = setup(saxpy);
  ons__nvrtc_destroy(f.nvrtc);
  cr_assert_eq(ons__nvrtc_create(&config, &f.nvrtc, NULL), ONS_STATUS_OK);
  unsetenv("ONSTREAM_CUDA_INCLUDE");
  cr_assert_eq(compile(&f), ONS_STATUS_OK);
  cr_expect_eq(counts[ONS_LOCATE_CUDA_INCLUDE], 0);
  f.request.source = "#include <cstdint>\n__global__ void a() {}\n";
  cr_assert_eq(compile(&f), ONS_STATUS_OK);
  cr_assert_eq(compile(&f), ONS_STATUS_OK);
  cr_expect_eq(counts[ONS_LOCATE_CUDA_INCLUDE], 1);
  teardown(&f);
}

static int locate_nonsense(void* user_data, ons_locate_what what, char* out_path,
                           size_t capacity) {
  (void)user_data;
  snprintf(out_path, capacity, "/nonexistent/located/%d", (int)what);
  return 1;
}

Test(nvrtc, unavailable_lists_what_was_tried) {
  const ons__nvrtc_config config = {.locate = locate_nonsense};
  ons__nvrtc* nvrtc = NULL;
  ons__image* image = NULL;
  char* log = NULL;
  ons_error error = ONS_ERROR_INIT;
  const ons__compile_request request = {.source = saxpy, .name = "k.cu", .arch = "sm_90"};
  unsetenv("ONSTREAM_NVRTC");
  unsetenv("LD_LIBRARY_PATH");
  setenv("CUDA_HOME", "/nonexistent/home", 1);
  cr_assert_eq(ons__nvrtc_create(&config, &nvrtc, NULL), ONS_STATUS_OK);
  ons_status status = ons__nvrtc_compile(nvrtc, &request, &image, &log, &error);
  ons__image_destroy(image);
  ons__free(NULL, log);
  ons__nvrtc_destroy(nvrtc);
  if (status == ONS_STATUS_OK) cr_skip_test("the loader or a toolkit finds NVRTC here");
  cr_expect_eq(status, ONS_STATUS_UNAVAILABLE);
  cr_expect_contains(error.message, "/nonexistent/located/1");
  cr_expect_contains(error.message, "/nonexistent/home");
  cr_expect_contains(error.message, "libnvrtc.so.13");
  cr_expect_contains(error.message, "libnvrtc.so.11.2");
}

Test(nvrtc, explicit_path_is_the_only_one) {
  const ons__nvrtc_config config = {.library_path = "/nonexistent/libnvrtc.so.13"};
  ons__nvrtc* nvrtc = NULL;
  ons__image* image = NULL;
  char* log = NULL;
  ons_error error = ONS_ERROR_INIT;
  const ons__compile_request request = {.source = saxpy, .name = "k.cu", .arch = "sm_90"};
  cr_assert_eq(ons__nvrtc_create(&config, &nvrtc, NULL), ONS_STATUS_OK);
  cr_expect_eq(ons__nvrtc_compile(nvrtc, &request, &image, &log, &error),
               ONS_STATUS_UNAVAILABLE);
  cr_expect_contains(error.message, "/nonexistent/libnvrtc.so.13: ");
  ons__nvrtc_destroy(nvrtc);
}

/* ---- the log, without a compiler --------------------------------------------------- */

Test(nvrtc_log, blame_is_for_whole_names) {
  static const char log[] =
      "__nv_name_map(2): error: other trouble\n"
      "__nv_name_map(3): error: identifier \"nope\" is undefined\n"
      "  #pragma nv_mangled_name ons_sig<decltype(nope<int, 3>)>\n"
      "                          ^\n"
      "__nv_name_map(3): error: Something. Input name expression was: "
      "\" ons_sig < decltype ( nope < int , 3 > ) >\"\n";
  char reason[100];
  cr_expect(ons__nvrtc_log_has_blame(log));
  cr_expect(ons__nvrtc_log_blames(log, "nope<int, 3>", reason, sizeof(reason)));
  cr_expect_str_eq(reason, "identifier \"nope\" is undefined");
  cr_expect_not(ons__nvrtc_log_blames(log, "nope", reason, sizeof(reason)));
  cr_expect_not(ons__nvrtc_log_blames(log, "ope<int, 3>", reason, sizeof(reason)));
  cr_expect_not(ons__nvrtc_log_blames(log, "nope<int, 3>)", reason, sizeof(reason)));
  cr_expect_not(ons__nvrtc_log_has_blame("k.cu(1): error: __nv_name_map(1)\n"));
}

Test(nvrtc_log, first_error) {
  static const struct {
    const char* log;
    const char* text;
    bool found;
  } cases[] = {
      {"k.cu(1): warning #1-D: odd\n\nk.cu(7): error: bad thing\n  x\n",
       "k.cu:7: error: bad thing", true},
      {"a (b)(c).cu(12): error #20-D: x): y\n", "a (b)(c).cu:12: error #20-D: x): y",
       true},
      {"At end of source: error: expected a \"}\"\nk.cu(1): note\n",
       "At end of source: error: expected a \"}\"", true},
      {"ptxas error   : Entry function 'a' uses too much shared data\n",
       "ptxas error   : Entry function 'a' uses too much shared data", true},
      {"__nv_name_map(3): error: x\nk.cu(2): error: y\n", "k.cu:2: error: y", true},
      {"nothing of the kind\nmore\n", "nothing of the kind", false},
      {"", "", false},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    char text[200];
    cr_expect_eq(ons__nvrtc_log_first_error(cases[i].log, text, sizeof(text)),
                 cases[i].found);
    cr_expect_str_eq(text, cases[i].text);
  }
}
