/* Marked bounds checks: where the marks go, and what marked kernels compute on the CPU.
 */
#include <stdio.h>

#include "cpu_fixture.h"
#include "jit/source_guard.h"

/* ---- the text --------------------------------------------------------------------- */

#define BODY(text) "__global__ void k(int* o, int n) {\n" text "}\n"
#define INDEX "int i = blockIdx.x * blockDim.x + threadIdx.x;\n"

static void expect_text(const char* source, const char* expected) {
  ons__string text;
  ons__string_init(&text, &fixture_allocator);
  size_t count = ons__source_guard_append(source, &text);
  cr_assert(ons__string_ok(&text));
  cr_expect(eq(str, (char*)ons__string_text(&text), (char*)expected));
  cr_expect(eq(int, count > 0, strcmp(source, expected) != 0));
  ons__string_clear(&text);
  cr_expect(eq(long, atomic_load(&fixture_live), 0));
}

Test(source_guard, marks_bounds_checks) {
  expect_text(BODY(INDEX "if (i < n) o[i] = 1;\n"),
              BODY(INDEX "if (::ons_cpu_guard(bool(i < n))) o[i] = 1;\n"));
  expect_text(
      BODY(INDEX "if (i >= n) return;\no[i] = 1;\n"),
      BODY(INDEX "if (::ons_cpu_guard_return(bool(i >= n))) return;\no[i] = 1;\n"));
  expect_text(BODY(INDEX "if (i >= n) { return; }\nif (i < n / 2) { o[i] = 1; }\n"),
              BODY(INDEX "if (::ons_cpu_guard_return(bool(i >= n))) { return; }\n"
                         "if (::ons_cpu_guard(bool(i < n / 2))) { o[i] = 1; }\n"));
  expect_text(
      BODY("int x = blockIdx.x, y = threadIdx.y;\n"
           "if (x < n && f(y, 1) <= v.shape[0]) for (;;) { o[x] = 1; }\n"),
      BODY("int x = blockIdx.x, y = threadIdx.y;\n"
           "if (::ons_cpu_guard(bool(x < n && f(y, 1) <= v.shape[0]))) for (;;) { "
           "o[x] = 1; }\n"));
  expect_text(
      "namespace a { template <class T> __global__ void\n__launch_bounds__(64) k(T n) "
      "{ if /* ( */ ( // (\n\"\"[0] < 1 && threadIdx.x < n\\\n) return; } }",
      "namespace a { template <class T> __global__ void\n__launch_bounds__(64) k(T n) "
      "{ if /* ( */ (::ons_cpu_guard_return(bool( // (\n\"\"[0] < 1 && threadIdx.x < "
      "n\\\n))) return; } }");
}

Test(source_guard, leaves_the_rest_alone) {
  static const char* const kSources[] = {
      "",
      "__global__",
      "__global__ void k(int n);\nvoid f() { if (threadIdx.x < n) return; }",
      "// __global__ void k() {\nif (threadIdx.x < n) return;",
      BODY(INDEX "if (i < n) o[i] = 1; else o[0] = 1;\n"),
      BODY(INDEX "if (i < n) return; else o[0] = 1;\n"),
      BODY(INDEX "if (i < n) o[i] = 1;\no[0] = 2;\n"),
      BODY(INDEX "if (i == 0) o[i] = 1;\n"),
      BODY(INDEX "if (o[i] < n) return;\n"),
      BODY(INDEX "int v = o[i];\nif (v < n) return;\n"),
      BODY(INDEX "if (i < (n = 2)) return;\n"),
      BODY(INDEX "if (i < (n <<= 2)) return;\n"),
      BODY(INDEX "if (i < (n += 2)) return;\n"),
      BODY(INDEX "if (n, i < n) return;\n"),
      BODY(INDEX "if (int j = i; j < n) return;\n"),
      BODY(INDEX "if (auto j = i < n) return;\n"),
      BODY(INDEX "if (bool j{i < n}) return;\n"),
      BODY(INDEX "if (i < n and not n) return;\n"),
      BODY(INDEX "if (i <\n#if 1\nn\n#endif\n) return;\n"),
      BODY(INDEX "if constexpr (i < n) return;\n"),
      BODY(INDEX "for (;;) if (i < n) return;\n"),
      BODY(INDEX "{ if (i < n) return; }\n"),
      BODY(INDEX "f(\"if (i < n) return;\"); /* ; if (i < n) return; */\n"),
      BODY(INDEX "#define M ; if (i < n) return;\n"),
      BODY(INDEX "if (i < n) o[i] = 1\n"),
      "__global__ void k() { if (threadIdx.x < n",
      "__global__ void k() { if (threadIdx.x < n]) return; }",
  };
  for (size_t i = 0; i < sizeof(kSources) / sizeof(*kSources); ++i) {
    expect_text(kSources[i], kSources[i]);
  }
}

/* ---- what comes out --------------------------------------------------------------- */

TestSuite(guarded, .init = fixture_open, .fini = fixture_close, .timeout = 120);

enum { kCount = 1000, kRoom = 2048 };

/* Runs the kernel k(int* o, int n) with several block sizes, of which most do not divide
 * n, and compares each element of o with what `expected` says for it. */
static void expect_results(const char* source, int (*expected)(int i)) {
  static const uint32_t kBlocks[] = {1, 7, 64, 256, 1000, 1024};
  fixture_kernel kernel = fixture_load(source, "k", NULL);
  ons__string text;
  ons__string_init(&text, &fixture_allocator);
  cr_expect(gt(sz, ons__source_guard_append(source, &text), 0), "nothing to test");
  ons__string_clear(&text);
  for (size_t b = 0; b < sizeof(kBlocks) / sizeof(*kBlocks); ++b) {
    static int out[kRoom];
    memset(out, 0, sizeof(out));
    int* pointer = out;
    int count = kCount;
    void* parameters[] = {&pointer, &count};
    uint32_t grid = (kCount + kBlocks[b] - 1) / kBlocks[b];
    fixture_launch(&kernel, grid, kBlocks[b], parameters, 2);
    for (int i = 0; i < kRoom; ++i) {
      int right = i < (int)(grid * kBlocks[b]) ? expected(i) : 0;
      cr_assert(eq(int, out[i], right), "element %d, blocks of %u\n%s", i, kBlocks[b],
                source);
    }
  }
  backend->ops->unload(kernel.binary);
}

static int below(int i) { return i < kCount; }
static int all_but_some(int i) { return i < kCount && (i < 100 || i > 120); }
static int every_other(int i) { return i < kCount && i % 2 == 0; }
static int two_paths(int i) { return i >= kCount ? 0 : i < 500 ? 3 : 1; }

Test(guarded, each_thread_runs_once) {
  expect_results(BODY(INDEX "if (i < n) o[i] += 1;\n"), below);
  expect_results(BODY(INDEX "if (i >= n) return;\no[i] += 1;\n"), below);
  expect_results(
      "struct truth { bool is; explicit operator bool() { return is; } };\n"
      "struct number { int is; truth operator<(int n) { return {is < n}; } };\n"
      "__global__ void k(int* o, int n) {\n" INDEX
      "number j = {i};\nif (j < n) o[i] += 1;\n}\n",
      below);
  expect_results("#define guard(i, n) 1\n" BODY(
                     "int ons_cpu = blockIdx.x * blockDim.x + threadIdx.x;\n"
                     "if (ons_cpu < n) o[ons_cpu] += 1;\n"),
                 below);
}

Test(guarded, threads_behind_one_that_is_out_still_run) {
  expect_results(BODY(INDEX "if (i < n && (i < 100 || i > 120)) o[i] += 1;\n"),
                 all_but_some);
  expect_results(BODY(INDEX "if (i >= n || i % 2 > 0) return;\no[i] += 1;\n"),
                 every_other);
  expect_results(BODY(INDEX "if (i >= n) return;\no[i] += 1;\nif (i >= 500) return;\n"
                            "if (i < 499 || i > 0) { o[i] += 2; }\n"),
                 two_paths);
  expect_results(BODY(INDEX "if (i < n) { o[i] += 1; if (i < 500) { o[i] += 2; } }\n"),
                 two_paths);
}

/* The condition counts how often it is looked at. */
static int once_each(int i) { return i < kRoom; }

Test(guarded, conditions_are_evaluated_once) {
  expect_results("__device__ int touch(int* o, int i) { o[i] += 1; return i; }\n" BODY(
                     INDEX "if (touch(o, i) >= n) return;\n"),
                 once_each);
  expect_results("__device__ int touch(int* o, int i) { o[i] += 1; return i; }\n" BODY(
                     INDEX "if (touch(o, i) % 2 < 1 && i < n) { (void)i; }\n"),
                 once_each);
}

Test(guarded, rows_of_two_dimensional_blocks) {
  static const char source[] =
      "__global__ void k(int* o, int w, int h) {\n"
      "  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = threadIdx.y;\n"
      "  if (x < w && y < h) o[y * w + x] += y + 1;\n}\n";
  enum { kWidth = 37, kHeight = 5 };
  fixture_kernel kernel = fixture_load(source, "k", NULL);
  int out[kWidth * (kHeight + 3)] = {0};
  int* pointer = out;
  int width = kWidth, height = kHeight;
  void* parameters[] = {&pointer, &width, &height};
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.grid[0] = 3;
  launch.block[0] = 16;
  launch.block[1] = kHeight + 3;
  cr_assert(eq(int,
               backend->ops->launch(device, &kernel.function, &launch, NULL, parameters,
                                    3, &error),
               0));
  for (int y = 0; y < kHeight + 3; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      cr_assert(eq(int, out[y * kWidth + x], y < kHeight ? y + 1 : 0), "%d, %d", x, y);
    }
  }
  backend->ops->unload(kernel.binary);
}

Test(guarded, diagnostics_stay_on_their_lines) {
  ons__image* image = NULL;
  char* log = NULL;
  const char* names[] = {"k", NULL};
  ons_status status = fixture_compile(BODY(INDEX "if (i < undeclared) o[i] = 1;\n"),
                                      names, NULL, NULL, &image, &log);
  cr_expect(eq(int, status, ONS_STATUS_COMPILE_FAILED));
  cr_expect(eq(int, strncmp(error.message, "user.cu:3: ", 11), 0), "%s", error.message);
  ons__free(&fixture_allocator, log);
}
