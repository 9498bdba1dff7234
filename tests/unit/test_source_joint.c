/* Marked global indices: where the marks go, and what kernels with and without them
 * compute when blocks run as one. */
#include <stdio.h>

#include "cpu_fixture.h"
#include "jit/device/onstream/cpu_abi.h"
#include "jit/shared_object.h"
#include "jit/source_joint.h"

/* ---- the text --------------------------------------------------------------------- */

/* `^` in `expected` stands for a mark. */
static void expect_text(const char* source, size_t count, const char* expected) {
  ons__string text, right;
  ons__string_init(&text, &fixture_allocator);
  ons__string_init(&right, &fixture_allocator);
  for (const char* at = expected; *at; ++at) {
    if (*at == '^') {
      ons__string_append(&right, "ons_cpu_joint_");
    } else {
      ons__string_append_bytes(&right, at, 1);
    }
  }
  cr_expect(eq(sz, ons__source_joint_append(source, &text), count), "%s", source);
  cr_expect(eq(str, (char*)ons__string_text(&text), (char*)ons__string_text(&right)));
  ons__string_clear(&text);
  ons__string_clear(&right);
}

Test(source_joint, marks_global_indices) {
  static const char* const cases[] = {
      "int i = ^blockIdx.x * blockDim.x + ^threadIdx.x;",
      "int i = blockDim.x * ^blockIdx.x + ^threadIdx.x;",
      "int i = ^blockIdx.x * blockDim.x + ^threadIdx.x, j;",
      "int i = ^threadIdx.x + ^blockIdx.x * blockDim.x;",
      "int i = ^threadIdx.x + (blockDim.x * ^blockIdx.x);",
      "auto i = ^blockIdx.x * (long long)blockDim.x + ^threadIdx.x;",
      "auto i = (long)^blockIdx.x * (unsigned long long)blockDim.x + (int)^threadIdx.x;",
      "size_t i = (size_t)(^blockIdx.x * blockDim.x) + ^threadIdx.x;",
      "size_t i = size_t(^blockIdx.x) * blockDim.x + int64_t(^threadIdx.x);",
      ("i = static_cast<long long>(^blockIdx.x) * static_cast<int>(blockDim.x) + "
       "^threadIdx.x;"),
      "for (int i = /* = */ ^block\\\nIdx.x * blockDim.x\n+ ^threadIdx . x; i < n; ) {}",
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
    char source[256];
    char* end = source;
    for (const char* at = cases[i]; *at; ++at) {
      if (*at != '^') *end++ = *at;
    }
    *end = '\0';
    expect_text(source, 1, cases[i]);
  }
  expect_text("int j = blockIdx.y * blockDim.y + threadIdx . z;", 0,
              "int j = ^blockIdx.y * blockDim.y + ^threadIdx . z;");
  expect_text("int i = blockIdx.x * blockDim.x + threadIdx.y;", 0,
              "int i = blockIdx.x * blockDim.x + ^threadIdx.y;");
  expect_text(
      "i = blockIdx.x * blockDim.x + threadIdx.x; j = threadIdx.x; #\n"
      "k = threadIdx.x + blockIdx.x * blockDim.x;",
      2,
      "i = ^blockIdx.x * blockDim.x + ^threadIdx.x; j = threadIdx.x; #\n"
      "k = ^threadIdx.x + ^blockIdx.x * blockDim.x;");
}

Test(source_joint, leaves_the_rest_alone) {
  static const char* const sources[] = {
      "",
      "=",
      "int i = threadIdx.x;",
      "int i = 4 * blockIdx.x * blockDim.x + threadIdx.x;",
      "int i = blockIdx.x * blockDim.x + threadIdx.x * 4;",
      "int i = blockIdx.x * blockDim.x + threadIdx.x + 1;",
      "int i = blockIdx.x * (blockDim.x + threadIdx.x);",
      "int i = blockIdx.x * blockDim.x - threadIdx.x;",
      "int i = blockIdx.x + blockDim.x * threadIdx.x;",
      "int i = blockIdx.x * gridDim.x + threadIdx.x;",
      "int i = (short)blockIdx.x * blockDim.x + threadIdx.x;",
      "int i = blockIdx.x * blockDim.x + (unsigned char)threadIdx.x;",
      "float f = (float)blockIdx.x * blockDim.x + threadIdx.x;",
      "f(blockIdx.x * blockDim.x + threadIdx.x);",
      "f(i = blockIdx.x * blockDim.x + threadIdx.x);",
      "int i = (blockIdx.x * blockDim.x + threadIdx.x;",
      "int i = int(int(blockIdx.x) * blockDim.x + threadIdx.x;",
      "\"i = blockIdx.x * blockDim.x + threadIdx.x;\"",
      "#define I int i = blockIdx.x * blockDim.x + threadIdx.x;\nI",
      "#define threadIdx other\nint i = blockIdx.x * blockDim.x + threadIdx.x;",
      "#define blockDim other\nint i = blockIdx.x * blockDim.x + threadIdx.x;",
  };
  for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); ++i) {
    expect_text(sources[i], 0, sources[i]);
  }
}

/* ---- the results ------------------------------------------------------------------ */

TestSuite(joint, .init = fixture_open, .fini = fixture_close, .timeout = 120);

#define INDEX "int i = blockIdx.x * blockDim.x + threadIdx.x;\n"

enum { kRoom = 4096 };

/* What `k(int* o, int n)` stores by thread and block: o[i] for the i-th thread. */
static void expect_results(const char* source, int (*expected)(int thread, int block)) {
  static const uint32_t grids[][2] = {{1, 1}, {3, 1}, {700, 1}, {5, 3}};
  static const uint32_t blocks[][2] = {{1, 1}, {7, 1}, {32, 1}, {5, 2}};
  fixture_kernel kernel = fixture_load(source, "k", NULL);
  for (size_t g = 0; g < 4; ++g) {
    for (size_t b = 0; b < 4; ++b) {
      int per_block = (int)blocks[b][0], per_row = (int)grids[g][0] * per_block;
      if (per_row > kRoom) continue;
      static int out[kRoom];
      memset(out, 0, sizeof(out));
      int* pointer = out;
      int count = per_row - per_row / 5, repeats = (int)(grids[g][1] * blocks[b][1]);
      void* parameters[] = {&pointer, &count};
      ons_launch launch = ONS_LAUNCH_INIT;
      memcpy(launch.grid, grids[g], sizeof(grids[g]));
      memcpy(launch.block, blocks[b], sizeof(blocks[b]));
      cr_assert(eq(int,
                   backend->ops->launch(device, &kernel.function, &launch, NULL,
                                        parameters, 2, &error),
                   0));
      for (int i = 0; i < kRoom; ++i) {
        int right = i < count ? repeats * expected(i % per_block, i / per_block) : 0;
        cr_assert(eq(int, out[i], right), "element %d, %u blocks of %u\n%s", i,
                  grids[g][0], blocks[b][0], source);
      }
    }
  }
  backend->ops->unload(kernel.binary);
}

static int one(int thread, int block) { return 1 + 0 * (thread + block); }
static int of_thread(int thread, int block) { return 1 + thread + 0 * block; }
static int of_block(int thread, int block) { return 1 + block + 0 * thread; }

#define ADD(what) "if (i < n) atomicAdd(&o[i], 1 + (int)(" what "));\n"
#define KERNEL(text) "__global__ void k(int* o, int n) {\n" INDEX text "}\n"

Test(joint, each_thread_runs_once) {
  expect_results(KERNEL(ADD("0")), one);
  expect_results(KERNEL("if (i >= n) return;\natomicAdd(o + i, 1);\n"), one);
  expect_results(KERNEL("for (; i < n; i += blockDim.x * gridDim.x) "
                        "atomicAdd(o + i, 1);\n"),
                 one);
}

Test(joint, whoever_tells_blocks_apart_still_can) {
  expect_results(KERNEL(ADD("threadIdx.x")), of_thread);
  expect_results(KERNEL(ADD("blockIdx.x")), of_block);
  expect_results("__device__ int t() { return threadIdx.x; }\n" KERNEL(ADD("t()")),
                 of_thread);
  expect_results("#define T threadIdx\n" KERNEL(ADD("T.x")), of_thread);
  expect_results("#define CAT(a, b) a##b\n" KERNEL(ADD("CAT(thread, Idx).x")), of_thread);
  expect_results("template <class T> __device__ int b(T) { return blockIdx.x; }\n" KERNEL(
                     ADD("b(0.5f)")),
                 of_block);
}

/* Nothing in the source itself says so. */
Test(joint, names_from_headers_and_options_count) {
  static const char source[] =
      "#include <where.h>\n__global__ void k(int* o) {\n" INDEX "o[i] = WHERE;\n}\n";
  const ons_header headers[] = {{"where.h",
                                 "#ifndef WHERE\n#define WHERE here()\n#endif\n"
                                 "inline int here() { return blockIdx.x; }\n"},
                                {NULL, NULL}};
  const char* const no_options[] = {NULL};
  const char* const macro[] = {"-DWHERE=threadIdx.x", NULL};
  for (int by_option = 0; by_option < 2; ++by_option) {
    const char* names[] = {"k", NULL};
    ons__image* image = NULL;
    char* log = NULL;
    ons__binary* binary = NULL;
    cr_assert(eq(int,
                 fixture_compile(source, names, by_option ? macro : no_options, headers,
                                 &image, &log),
                 0),
              "%s", error.message);
    cr_assert(eq(int, backend->ops->load(device, image, &binary, &error), 0));
    fixture_kernel kernel = {.binary = binary};
    cr_assert(eq(int,
                 backend->ops->function(binary, "ons_cpu_kernel_0", &kernel.function,
                                        NULL, 0, &error),
                 0));
    int out[12] = {0};
    int* pointer = out;
    void* parameters[] = {&pointer};
    fixture_launch(&kernel, 3, 4, parameters, 1);
    for (int i = 0; i < 12; ++i) {
      cr_expect(eq(int, out[i], by_option ? i % 4 : i / 4), "%d", i);
    }
    backend->ops->unload(binary);
    ons__image_destroy(image);
    ons__free(&fixture_allocator, log);
  }
}

/* The product wraps where it does on a device. Only the last blocks are run. */
Test(joint, indices_beyond_32_bits) {
  static const char source[] =
      "__global__ void k(unsigned long long* o) {\n"
      "  unsigned long long i = (size_t)(blockIdx.x * blockDim.x) + threadIdx.x;\n"
      "  long long j = (int)blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
      "  o[j - ((1ll << 32) - 2048)] = i;\n}\n";
  enum { kThreads = 1024, kBlocks = 4 };
  const char* names[] = {"k", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_assert(eq(int, fixture_compile(source, names, NULL, NULL, &image, &log), 0), "%s",
            error.message);
  const ons_cpu_kernel* kernel =
      ons__shared_object_find(image->object, image->kernels[0].lowered);
  static unsigned long long out[kBlocks * kThreads];
  unsigned long long* pointer = out;
  void* parameters[] = {&pointer};
  const uint32_t middle = 1u << 22;
  const ons_cpu_launch launch = {.grid = {middle + kBlocks, 1, 1},
                                 .block = {kThreads, 1, 1}};
  kernel->run(&launch, parameters, middle - 2, middle + 2);
  for (size_t i = 0; i < kBlocks * kThreads; ++i) {
    cr_assert(eq(u64, out[i], i < 2048 ? (1ull << 32) - 2048 + i : i - 2048), "%zu", i);
  }
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
}

/* Several kernels in a module: each asks once more. */
Test(joint, many_kernels) {
  static const char source[] = "__global__ void a(int* o) {\n" INDEX
                               "o[i] = i;\n}\n"
                               "__global__ void b(int* o) {\n" INDEX "o[i] = i + 1;\n}\n";
  static const char* const kNames[] = {"a", "b"};
  for (int which = 0; which < 2; ++which) {
    fixture_kernel kernel = fixture_load(source, kNames[which], NULL);
    int out[50] = {0};
    int* pointer = out;
    void* parameters[] = {&pointer};
    fixture_launch(&kernel, 10, 5, parameters, 1);
    for (int i = 0; i < 50; ++i) cr_expect(eq(int, out[i], i + which));
    backend->ops->unload(kernel.binary);
  }
}
