/* Bundles: built, read, and launched where there is no compiler. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <onstream/onstream.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/bundle.h"
#include "runtime/base/alloc.h"
#include "runtime/base/path.h"
#include "tests/simgpu/sim_record.h"

#if defined(__aarch64__)
#define LEVEL "aarch64"
#else
#define LEVEL "x86-64"
#endif

static const char source[] =
    "__device__ int calls = 3;\n"
    "__global__ void add(const int* x, int* __restrict__ y, int n) {\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n) y[i] += x[i] + calls;\n"
    "}\n"
    "template <typename T> __global__ void twice(T* y) { y[threadIdx.x] *= 2; }\n";

static ons_error error = ONS_ERROR_INIT;
static ons_runtime *builder, *bare;

static ons_runtime* open_runtime(bool has_compilers) {
  ons_runtime* runtime = NULL;
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.cuda_driver_path = ONS_TEST_SIMGPU_PATH;
  options.cache_path = "off";
  if (!has_compilers) options.host_compiler_path = options.nvrtc_path = "/nowhere/at/all";
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, &error), 0));
  return runtime;
}

static void open_runtimes(void) {
  builder = open_runtime(true);
  bare = open_runtime(false);
}

static void close_runtimes(void) {
  ons_runtime_release(builder);
  ons_runtime_release(bare);
}

TestSuite(bundle, .init = open_runtimes, .fini = close_runtimes);

static ons_status build(const char* arch, const char* kernel, uint32_t flags,
                        ons_blob** out_bundle) {
  ons_module* module = NULL;
  cr_assert(eq(int, ons_module_create(builder, source, NULL, &module, &error), 0));
  ons_bundle_options options = ONS_BUNDLE_OPTIONS_INIT;
  options.architectures = &arch;
  options.architecture_count = 1;
  options.kernels = &kernel;
  options.kernel_count = kernel != NULL;
  options.flags = flags;
  const ons_status status = ons_module_bundle(module, &options, out_bundle, NULL, &error);
  ons_module_release(module);
  if (status == ONS_STATUS_UNAVAILABLE) cr_skip_test("%s", error.message);
  return status;
}

static ons_blob* built(const char* arch, const char* kernel, uint32_t flags) {
  ons_blob* bundle = NULL;
  cr_assert(eq(int, build(arch, kernel, flags, &bundle), 0), "%s", error.message);
  return bundle;
}

static ons_module* load(ons_runtime* runtime, const ons_blob* bundle) {
  ons_module* module = NULL;
  cr_assert(
      eq(int,
         ons_module_create_from_bundle(runtime, ons_blob_data(bundle),
                                       ons_blob_size_bytes(bundle), &module, &error),
         0),
      "%s", error.message);
  return module;
}

static int x[4] = {1, 2, 3, 4}, y[4];
static int64_t count = 4;

static ons_status launch(ons_module* module, const char* name, ons_arg* args,
                         size_t arg_count) {
  ons_kernel* kernel = NULL;
  ons_status status = ons_module_kernel(module, name, &kernel, &error);
  if (status) return status;
  ons_launch config = ONS_LAUNCH_INIT;
  config.block[0] = 4;
  status = ons_kernel_launch(kernel, &config, args, arg_count, &error);
  ons_kernel_release(kernel);
  return status;
}

static ons_status launch_add(ons_module* module) {
  static DLTensor tx, ty;
  tx = ty = (DLTensor){
      .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 32, 1}, .shape = &count};
  tx.data = x;
  ty.data = y;
  ons_arg args[] = {{.kind = ONS_ARG_TENSOR, .value.tensor = &tx},
                    {.kind = ONS_ARG_TENSOR, .value.tensor = &ty},
                    {.kind = ONS_ARG_INT, .value.i = 4}};
  return launch(module, "add", args, 3);
}

static ons_status launch_twice(ons_module* module, const char* instance) {
  static DLTensor ty;
  ty = (DLTensor){.data = y,
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = {kDLInt, 32, 1},
                  .shape = &count};
  ons_arg arg = {.kind = ONS_ARG_TENSOR, .value.tensor = &ty};
  return launch(module, instance, &arg, 1);
}

Test(bundle, runs_without_a_compiler) {
  ons_blob* bundle = built(LEVEL, "twice<int>", 0);
  ons_module* module = load(bare, bundle);
  ons_blob_release(bundle);
  cr_expect(eq(str, (char*)ons_module_source(module), ""));
  cr_expect(eq(str, (char*)ons_module_kernel_name(module, 0), "add"));
  cr_assert(eq(int, launch_add(module), 0), "%s", error.message);
  for (int i = 0; i < 4; ++i) cr_expect(eq(int, y[i], x[i] + 3));
  cr_assert(eq(int, launch_twice(module, "twice< int >"), 0), "%s", error.message);
  for (int i = 0; i < 4; ++i) cr_expect(eq(int, y[i], 2 * (x[i] + 3)));

  ons_kernel* add = NULL;
  cr_assert(eq(int, ons_module_kernel(module, "add", &add, &error), 0));
  cr_assert(eq(int, ons_kernel_prepare(add, (DLDevice){kDLCPU, 0}, NULL, &error), 0));
  cr_expect(
      eq(str, (char*)ons_kernel_signature(add), "add(const int* x, int* y, int n)"));
  ons_kernel_release(add);
  ons_tensor* calls = NULL;
  cr_assert(
      eq(int,
         ons_module_global(module, (DLDevice){kDLCPU, 0}, "calls", NULL, &calls, &error),
         0),
      "%s", error.message);
  ons_tensor_release(calls);
  ons_module_release(module);
}

Test(bundle, says_what_it_lacks) {
  ons_blob* bundle = built(LEVEL, NULL, 0);
  ons_module* module = load(bare, bundle);
  ons_blob_release(bundle);
  cr_expect(eq(int, launch_twice(module, "twice<int>"), ONS_STATUS_NOT_FOUND));
  cr_expect(strstr(error.message, "without its source, and 'twice<int>'") != NULL, "%s",
            error.message);
  cr_expect(eq(int, ons_module_prepare(module, (DLDevice){kDLCUDA, 0}, NULL, &error),
               ONS_STATUS_UNSUPPORTED));
  cr_expect(strstr(error.message, "it has " LEVEL) != NULL, "%s", error.message);
  cr_expect(eq(int, launch_twice(module, "thrice<int>"), ONS_STATUS_NOT_FOUND));
  ons_bundle_options options = ONS_BUNDLE_OPTIONS_INIT;
  const char* arch = LEVEL;
  options.architectures = &arch;
  options.architecture_count = 1;
  ons_blob* again = NULL;
  cr_expect(eq(int, ons_module_bundle(module, &options, &again, NULL, &error),
               ONS_STATUS_UNSUPPORTED));
  ons_module_release(module);
}

Test(bundle, with_its_source_is_compiled_for_the_rest) {
  ons_blob* bundle = built(LEVEL, NULL, ONS_BUNDLE_SOURCE);
  ons_module* module = load(builder, bundle);
  ons_blob_release(bundle);
  cr_expect(eq(str, (char*)ons_module_source(module), (char*)source));
  y[0] = 21;
  cr_expect(eq(int, launch_twice(module, "twice<int>"), 0), "%s", error.message);
  cr_expect(eq(int, y[0], 42));
  ons_module_release(module);
}

Test(bundle, for_gpus_loads_without_nvrtc) {
  ons_blob* bundle = NULL;
  const char* archs[] = {"sm_80", "compute_80", LEVEL};
  for (int i = 0; i < 3; ++i) {
    cr_assert(eq(int, build(archs[i], NULL, 0, &bundle), 0), "%s", error.message);
    ons_module* module = load(bare, bundle);
    ons_blob_release(bundle);
    const ons_status status =
        ons_module_prepare(module, (DLDevice){kDLCUDA, 0}, NULL, &error);
    /* The simulated GPU is an sm_90, which PTX of sm_80 runs on and its code does not. */
    cr_expect(eq(int, status, i == 1 ? 0 : ONS_STATUS_UNSUPPORTED), "%s: %s", archs[i],
              error.message);
    ons_module_release(module);
  }
}

Test(bundle, refuses_architectures_that_are_none) {
  static const char* const archs[] = {"",       "sm",       "sm_",     "sm_9",
                                      "sm_90x", "compute_", "native",  "x86-64-v5",
                                      "gfx90a", "sm_99999", "sm_90 a", "x86_64"};
  ons_blob* bundle = NULL;
  for (size_t i = 0; i < sizeof(archs) / sizeof(*archs); ++i) {
    cr_expect(eq(int, build(archs[i], NULL, 0, &bundle), ONS_STATUS_UNSUPPORTED), "%s",
              archs[i]);
    cr_expect(strstr(error.message, "x86-64-v2") != NULL, "%s", error.message);
    cr_expect(eq(ptr, bundle, NULL));
  }
  cr_expect(eq(int, build("sm_250", NULL, 0, &bundle), ONS_STATUS_UNSUPPORTED));
  cr_expect(eq(int, build(LEVEL, "thrice<int>", 0, &bundle), ONS_STATUS_NOT_FOUND));
  cr_expect(eq(int, build(LEVEL, "twice<nothing>", 0, &bundle), ONS_STATUS_NOT_FOUND));
}

Test(bundle, that_is_damaged_is_refused) {
  ons_blob* bundle = built(LEVEL, NULL, 0);
  const size_t size = ons_blob_size_bytes(bundle);
  char* bytes = malloc(size);
  ons_module* module = NULL;
  memcpy(bytes, ons_blob_data(bundle), size);
  for (size_t i = 0; i < size; i += i < 200 ? 1 : 997) {
    bytes[i] ^= 16;
    cr_expect(eq(int, ons_module_create_from_bundle(bare, bytes, size, &module, &error),
                 ONS_STATUS_INVALID_ARGUMENT),
              "byte %zu", i);
    bytes[i] ^= 16;
    cr_expect(eq(int, ons_module_create_from_bundle(bare, bytes, i, &module, &error),
                 ONS_STATUS_INVALID_ARGUMENT),
              "cut off at %zu", i);
  }
  cr_expect(eq(ptr, module, NULL));
  free(bytes);
  ons_blob_release(bundle);
}

Test(bundle, from_a_file) {
  char* folder = NULL;
  char path[600];
  cr_assert(eq(int, ons__temp_folder_create(NULL, &folder, NULL), 0));
  snprintf(path, sizeof(path), "%s/a k\xc3\xa9.onsb", folder);
  ons_blob* bundle = built(LEVEL, NULL, 0);
  cr_assert(eq(int,
               ons__file_write(NULL, path, strlen(path), ons_blob_data(bundle),
                               ons_blob_size_bytes(bundle), NULL),
               0));
  ons_blob_release(bundle);
  ons_module* module = NULL;
  cr_assert(eq(int, ons_module_create_from_bundle_file(bare, path, &module, &error), 0));
  cr_expect(eq(int, launch_add(module), 0), "%s", error.message);
  ons_module_release(module);
  cr_assert(eq(int, ons__file_write(NULL, path, strlen(path), "no bundle", 9, NULL), 0));
  cr_expect(eq(int, ons_module_create_from_bundle_file(bare, path, &module, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(strstr(error.message, path) != NULL, "%s", error.message);
  ons__temp_folder_remove(folder);
  cr_expect(ne(int, ons_module_create_from_bundle_file(bare, path, &module, &error), 0));
  ons__free(NULL, folder);
}

/* ---- which code runs where ----------------------------------------------------------
 */

static const char* best(const char* device, const char* const* archs) {
  static char found[32];
  ons__bundle_image images[8] = {{{0}, NULL}};
  ons__bundle bundle = {.images = images};
  for (; archs[bundle.image_count]; ++bundle.image_count) {
    strcpy(images[bundle.image_count].arch, archs[bundle.image_count]);
  }
  const ons__bundle_image* image = ons__bundle_find(&bundle, device);
  strcpy(found, image ? image->arch : "none");
  return found;
}

#define BEST(device, ...) best(device, (const char*[]){__VA_ARGS__, NULL})

Test(architecture, the_best_code_is_taken) {
  cr_expect_str_eq(BEST("sm_90", "sm_80", "sm_90", "compute_90"), "sm_90");
  cr_expect_str_eq(BEST("sm_90", "sm_80", "compute_80"), "compute_80");
  cr_expect_str_eq(BEST("sm_86", "compute_80", "sm_80"), "sm_80");
  cr_expect_str_eq(BEST("sm_89", "sm_80", "sm_86", "sm_90"), "sm_86");
  cr_expect_str_eq(BEST("sm_80", "sm_86", "compute_86"), "none");
  cr_expect_str_eq(BEST("sm_90", "sm_90", "sm_90a"), "sm_90a");
  cr_expect_str_eq(BEST("sm_90", "sm_90a"), "sm_90a");
  cr_expect_str_eq(BEST("sm_91", "sm_90a", "compute_90a"), "none");
  cr_expect_str_eq(BEST("sm_103", "sm_100f"), "sm_100f");
  cr_expect_str_eq(BEST("sm_120", "sm_100", "sm_100f", "compute_100"), "compute_100");
  cr_expect_str_eq(BEST("sm_120", "compute_80", "compute_90"), "compute_90");
  cr_expect_str_eq(BEST("native", "sm_90", "compute_50"), "none");
  cr_expect_str_eq(BEST("native", "sm_90", LEVEL), LEVEL);
  cr_expect_str_eq(BEST("sm_90", LEVEL), "none");
#if defined(__x86_64__)
  const bool has_v3 = __builtin_cpu_supports("avx2");
  cr_expect_str_eq(BEST("native", "x86-64", "x86-64-v3", "aarch64"),
                   has_v3 ? "x86-64-v3" : "x86-64");
#endif
}
