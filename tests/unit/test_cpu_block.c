/* Threads of a block that wait for each other. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu_fixture.h"

static void open_two_threads(void) {
  fixture_settings.cpu_thread_count = 2;
  fixture_open();
}

TestSuite(block, .init = open_two_threads, .fini = fixture_close, .timeout = 240);

static void unload(const fixture_kernel* kernel) { backend->ops->unload(kernel->binary); }

typedef struct shape {
  uint32_t grid[3], block[3], shared_bytes;
} shape;

static ons_launch launch_of(const shape* sizes) {
  ons_launch launch = ONS_LAUNCH_INIT;
  memcpy(launch.grid, sizes->grid, sizeof(launch.grid));
  memcpy(launch.block, sizes->block, sizeof(launch.block));
  launch.shared_bytes = sizes->shared_bytes;
  return launch;
}

/* Runs a kernel k(int* out). */
static ons_status try_int(const fixture_kernel* kernel, shape sizes, int* out) {
  const ons_launch launch = launch_of(&sizes);
  void* parameters[] = {&out};
  return fixture_try(kernel, &launch, parameters, 1);
}

static void run_int(const fixture_kernel* kernel, shape sizes, int* out) {
  cr_assert(eq(int, try_int(kernel, sizes, out), 0), "%s", error.message);
}

enum { kAll = 1024 };
static int out[kAll * 8];

static void expect_message(const char* text) {
  cr_expect(ne(ptr, strstr(error.message, text), NULL), "no '%s' in: %s", text,
            error.message);
}

/* ---- barriers --------------------------------------------------------------------- */

/* Every thread sees what its neighbour wrote before the barrier, in each of five rounds.
 */
static const char rotate[] =
    "__global__ void k(int* o) {\n"
    "  __shared__ int s[1024];\n"
    "  int n = blockDim.x * blockDim.y * blockDim.z;\n"
    "  int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);\n"
    "  int v = t + 1000 * blockIdx.x;\n"
    "  for (int i = 0; i < 5; ++i) {\n"
    "    s[t] = v;\n"
    "    __syncthreads();\n"
    "    v = s[(t + 1) % n] + 1;\n"
    "    __syncthreads();\n"
    "  }\n"
    "  o[blockIdx.x * n + t] = v;\n}\n";

static void expect_rotated(uint32_t blocks, uint32_t threads) {
  for (uint32_t i = 0; i < blocks * threads; ++i) {
    const uint32_t block = i / threads, thread = i % threads;
    const int expected = (int)((thread + 5) % threads + 1000 * block + 5);
    cr_assert(eq(int, out[i], expected), "%u of %u threads", i, threads);
  }
}

Test(block, any_number_of_threads) {
  fixture_kernel kernel = fixture_load(rotate, "k", NULL);
  for (uint32_t threads = 1; threads <= kAll; threads += threads < 70 ? 1 : 53) {
    run_int(&kernel, (shape){{3, 1, 1}, {threads, 1, 1}, 0}, out);
    expect_rotated(3, threads);
  }
  run_int(&kernel, (shape){{2, 1, 1}, {kAll, 1, 1}, 0}, out);
  expect_rotated(2, kAll);
  unload(&kernel);
}

Test(block, three_dimensions) {
  static const uint32_t blocks[][3] = {{4, 3, 2}, {1, 1, 64}, {1, 1024, 1}, {8, 8, 16}};
  fixture_kernel kernel = fixture_load(rotate, "k", NULL);
  for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); ++i) {
    const uint32_t* b = blocks[i];
    run_int(&kernel, (shape){{3, 1, 1}, {b[0], b[1], b[2]}, 0}, out);
    expect_rotated(3, b[0] * b[1] * b[2]);
  }
  unload(&kernel);
}

Test(block, gcc_too) {
  fixture_close();
  setenv("ONSTREAM_HOST_COMPILER", "g++", 1);
  open_two_threads();
  fixture_kernel kernel = fixture_load(rotate, "k", NULL);
  run_int(&kernel, (shape){{3, 1, 1}, {100, 1, 1}, 0}, out);
  expect_rotated(3, 100);
  unload(&kernel);
  unsetenv("ONSTREAM_HOST_COMPILER");
}

Test(block, counts_of_predicates) {
  fixture_kernel kernel = fixture_load(
      "__global__ void k(int* o) {\n"
      "  int t = threadIdx.x, n = blockDim.x;\n"
      "  int c = __syncthreads_count(t % 3 == 0);\n"
      "  int a = __syncthreads_and(t < n), b = __syncthreads_and(t != n / 2);\n"
      "  int d = __syncthreads_or(t == n - 1), e = __syncthreads_or(t == n);\n"
      "  int f = __syncthreads_count(2 * t);\n" /* any number but 0 counts once */
      "  o[t] = c + 10000 * (a != 0) + 20000 * (b != 0) + 40000 * (d != 0) +\n"
      "         80000 * (e != 0) + 1000000 * f;\n}\n",
      "k", NULL);
  for (uint32_t n = 1; n <= 300; n += 23) {
    run_int(&kernel, (shape){{1, 1, 1}, {n, 1, 1}, 0}, out);
    const int expected = (int)((n + 2) / 3 + 50000 + 1000000 * (n - 1));
    for (uint32_t i = 0; i < n; ++i) cr_assert(eq(int, out[i], expected), "%u/%u", i, n);
  }
  unload(&kernel);
}

/* Threads that have returned are not waited for, wherever they did. */
Test(block, threads_that_have_ended) {
  fixture_kernel kernel = fixture_load(
      "__global__ void k(int* o) {\n"
      "  __shared__ int s[256];\n"
      "  int t = threadIdx.x;\n"
      "  s[t] = t;\n"
      "  if (t % 4 == 3) return;\n"
      "  __syncthreads();\n"
      "  int v = s[(t / 4) * 4 + (t + 1) % 3];\n"
      "  if (t >= 128) { o[t] = v; return; }\n"
      "  int c = __syncthreads_count(1);\n"
      "  o[t] = v + 1000 * c;\n}\n",
      "k", NULL);
  memset(out, 0, sizeof(out));
  run_int(&kernel, (shape){{1, 1, 1}, {256, 1, 1}, 0}, out);
  for (int t = 0; t < 256; ++t) {
    int expected = t / 4 * 4 + (t + 1) % 3 + (t < 128 ? 96000 : 0);
    if (t % 4 == 3) expected = 0;
    cr_assert(eq(int, out[t], expected), "thread %d", t);
  }
  unload(&kernel);
}

/* The barrier is not in the kernel's own text. */
Test(block, barriers_by_any_way) {
  static const char* const sources[] = {
      "__device__ void meet() { __syncthreads(); }\n"
      "__device__ void deeper() { meet(); }\n"
      "#define MEET deeper()\n",
      "#define MEET __syncthreads()\n",
      "template <class T> struct meeting {\n"
      "  T n;\n  __device__ void meet() const { __syncthreads(); }\n};\n"
      "using other = meeting<int>;\n"
      "#define MEET other{1}.meet()\n",
      "struct at_end { __device__ ~at_end() { __syncthreads(); } };\n"
      "#define MEET { at_end a; }\n",
      "template <int N> __device__ void meet_n() { if constexpr (N > 0) {\n"
      "  __syncthreads(); meet_n<N - 1>(); } }\n"
      "namespace n { namespace m { __device__ auto f = [] { meet_n<2>(); }; } }\n"
      "#define MEET n::m::f()\n",
      "__device__ void meet() { __syncthreads(); }\n"
      "typedef void (*function)();\n"
      "__device__ function table[] = {nullptr, meet};\n"
      "#define MEET table[1]()\n",
      "#include \"meet.h\"\n#define MEET header_meets()\n",
  };
  static const ons_header headers[] = {
      {"meet.h", "#include \"deep.h\"\n__device__ void header_meets() { deep(); }\n"},
      {"deep.h", "#pragma once\n__device__ inline void deep() { __syncthreads(); }\n"},
      {NULL, NULL}};
  static const char body[] =
      "\n__global__ void k(int* o) {\n"
      "  __shared__ int s[1024];\n"
      "  int t = threadIdx.x;\n  s[t] = t;\n  MEET;\n"
      "  o[t] = s[blockDim.x - 1 - t];\n}\n";
  for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); ++i) {
    char source[2048];
    snprintf(source, sizeof(source), "%s%s", sources[i], body);
    ons__image* image = NULL;
    char* log = NULL;
    const char* names[] = {"k", NULL};
    const ons_status status = fixture_compile(source, names, NULL, headers, &image, &log);
    cr_assert(eq(int, status, 0), "%zu: %s\n%s", i, error.message, log ? log : "");
    ons__free(&fixture_allocator, log);
    fixture_kernel kernel = {0};
    cr_assert(eq(int, backend->ops->load(device, image, &kernel.binary, &error), 0));
    cr_assert(
        eq(int,
           backend->ops->function(kernel.binary, image->kernels[0].lowered,
                                  &kernel.function, kernel.parameter_bytes, 16, &error),
           0));
    ons__image_destroy(image);
    run_int(&kernel, (shape){{1, 1, 1}, {100, 1, 1}, 0}, out);
    for (int t = 0; t < 100; ++t) cr_assert(eq(int, out[t], 99 - t), "source %zu", i);
    unload(&kernel);
  }
}

/* Of one warp they would be divergent. */
Test(block, warps_may_meet_in_different_places) {
  fixture_kernel kernel = fixture_load(
      "__global__ void k(int* o) {\n"
      "  __shared__ int s[64];\n"
      "  int t = threadIdx.x;\n  s[t] = t;\n"
      "  if (t < 32) {\n    __syncthreads();\n  } else {\n    __syncthreads();\n  }\n"
      "  o[t] = s[63 - t];\n}\n",
      "k", NULL);
  run_int(&kernel, (shape){{1, 1, 1}, {64, 1, 1}, 0}, out);
  for (int t = 0; t < 64; ++t) cr_assert(eq(int, out[t], 63 - t));
  unload(&kernel);
}

/* ---- shared memory ---------------------------------------------------------------- */

Test(block, memory_of_several_kernels_and_functions) {
  static const char source[] =
      "__shared__ int all;\n"
      "template <class T> __device__ T* mine() { static __shared__ T s[256]; return s; "
      "}\n"
      "__global__ void a(int* o) {\n"
      "  __shared__ __align__(64) int s[256]; alignas(32) __shared__ char c[3];\n"
      "  __shared__ alignas(128) float f[2];\n"
      "  int t = threadIdx.x;\n"
      "  if (t == 0) { all = 5; c[0] = 1; f[0] = 2; }\n"
      "  s[t] = t; mine<int>()[t] = 2 * t; mine<float>()[t] = 3.0f * t;\n"
      "  __syncthreads();\n"
      "  int u = blockDim.x - 1 - t;\n"
      "  bool aligned = (size_t)s % 64 + (size_t)c % 32 + (size_t)f % 128 == 0;\n"
      "  o[t] = s[u] + mine<int>()[u] + (int)mine<float>()[u] + all + c[0] + (int)f[0]\n"
      "         + (aligned ? 0 : 100000);\n}\n"
      "__global__ void b(int* o) {\n"
      "  __shared__ int s[256], u; __shared__ struct { int x, y; } p;\n"
      "  int t = threadIdx.x;\n"
      "  if (t == 0) { u = 7; p.x = 1; p.y = 2; all = 6; }\n  s[t] = -t;\n"
      "  __syncthreads();\n"
      "  o[t] = s[blockDim.x - 1 - t] + u + p.x + p.y + all;\n}\n";
  fixture_kernel a = fixture_load(source, "a", NULL), b = fixture_load(source, "b", NULL);
  run_int(&a, (shape){{1, 1, 1}, {200, 1, 1}, 0}, out);
  for (int t = 0; t < 200; ++t) cr_assert(eq(int, out[t], 6 * (199 - t) + 8), "%d", t);
  run_int(&b, (shape){{1, 1, 1}, {200, 1, 1}, 0}, out);
  for (int t = 0; t < 200; ++t) cr_assert(eq(int, out[t], t - 199 + 16), "%d", t);
  unload(&a);
  unload(&b);
}

Test(block, dynamic_memory_in_every_form) {
  static const char* const declarations[] = {
      "  extern __shared__ int s[];\n",
      "  extern __shared__ __align__(16) unsigned char raw[];\n"
      "  int* s = reinterpret_cast<int*>(raw);\n",
      "  extern __shared__ alignas(16) char raw[];\n  int* s = (int*)raw;\n",
      "  extern __align__(8) __shared__ int s[];\n",
      "  alignas(16) extern __shared__ int s[];\n",
      "  __shared__ extern int s[];\n",
      "  extern volatile __shared__ int s[];\n",
      "  extern __shared__ int two[][2];\n  int* s = &two[0][0];\n",
      "  extern __shared__ int4 v[];\n  int* s = &v[0].x;\n",
      "  extern __shared__ int s[], u[];\n  u[0] = s[0];\n",
      "  int* s = get<int>();\n",
      "  int* s = memory<int>();\n",
      "  SHARED(int, s)\n",
      "  int* s = at_namespace_scope;\n",
      "  int* s = (int*)(inner::bytes + 0);\n",
      "  int* s = reinterpret_cast<int*>(in_c);\n",
      "  #if 1\n  extern __shared__ int s[];\n  #else\n  extern __shared__ float s[];\n"
      "  #endif\n",
      "  extern /* a */ __shared__ // b\n  int\n  s[\n  ];\n",
      "  extern __shared__ pair<int, pair<int, int>> p[];\n  int* s = &p[0].a;\n",
  };
  static const char front[] =
      "extern __shared__ int at_namespace_scope[];\n"
      "namespace inner { namespace { extern __shared__ unsigned char bytes[]; } }\n"
      "extern \"C\" { extern __shared__ char in_c[]; }\n"
      "template <class A, class B> struct pair { A a; B b; };\n"
      "#define SHARED(T, name) \\\n  extern __shared__ T name[];\n"
      "template <class T> __device__ T* get() { extern __shared__ T t[]; return t; }\n"
      "template <class T> struct memory {\n"
      "  __device__ operator T*() { extern __shared__ int m[]; return (T*)m; }\n};\n"
      "__global__ void other(float* o) { extern __shared__ float s[]; s[0] = o[0]; }\n"
      "__global__ void k(int* o) {\n";
  static const char back[] =
      "  int t = threadIdx.x;\n  s[t] = t + blockIdx.x;\n  __syncthreads();\n"
      "  o[blockIdx.x * blockDim.x + t] = s[blockDim.x - 1 - t] +\n"
      "    ((size_t)&s[0] % 128 ? 100000 : 0);\n}\n";
  for (size_t i = 0; i < sizeof(declarations) / sizeof(*declarations); ++i) {
    char source[4096];
    snprintf(source, sizeof(source), "%s%s%s", front, declarations[i], back);
    fixture_kernel kernel = fixture_load(source, "k", NULL);
    run_int(&kernel, (shape){{4, 1, 1}, {60, 1, 1}, 1024}, out);
    for (int j = 0; j < 240; ++j) {
      cr_assert(eq(int, out[j], 59 - j % 60 + j / 60), "%s", declarations[i]);
    }
    unload(&kernel);
  }
}

Test(block, the_most_dynamic_memory) {
  fixture_kernel kernel = fixture_load(
      "__global__ void k(int* o) {\n"
      "  extern __shared__ int s[];\n"
      "  for (int i = threadIdx.x; i < 227 * 256; i += blockDim.x) s[i] = i;\n"
      "  __syncthreads();\n"
      "  o[threadIdx.x] = s[227 * 256 - 1 - threadIdx.x];\n}\n",
      "k", NULL);
  run_int(&kernel, (shape){{1, 1, 1}, {64, 1, 1}, 227 * 1024}, out);
  for (int t = 0; t < 64; ++t) cr_assert(eq(int, out[t], 227 * 256 - 1 - t));
  unload(&kernel);
}

/* ---- faults ----------------------------------------------------------------------- */

static void expect_fault(const char* source, shape sizes, const char* const* texts) {
  fixture_kernel kernel = fixture_load(source, "k", NULL);
  for (int again = 0; again < 2; ++again) {
    cr_expect(eq(int, try_int(&kernel, sizes, out), ONS_STATUS_DEVICE), "%s", source);
    for (size_t i = 0; texts[i]; ++i) expect_message(texts[i]);
  }
  unload(&kernel);
  kernel = fixture_load(rotate, "k", NULL); /* all is well after it */
  run_int(&kernel, (shape){{3, 1, 1}, {100, 1, 1}, 0}, out);
  expect_rotated(3, 100);
  unload(&kernel);
}

Test(block, divergent_barriers) {
  expect_fault(
      "__global__ void k(int* o) {\n"
      "  if (threadIdx.x % 2) {\n    __syncthreads();\n  } else {\n"
      "    __syncthreads();\n  }\n}\n",
      (shape){{1, 1, 1}, {64, 1, 1}, 0},
      (const char*[]){"block (0, 0, 0), thread (1, 0, 0)", "divergent", "line 3",
                      "line 5", NULL});
}

Test(block, assertions) {
  const char* const texts[] = {"user.cu:4: block (2, 0, 0), thread (1, 3, 0)",
                               "assertion failed: o[0] != 7 || t != 7", NULL};
  expect_fault(
      "__global__ void k(int* o) {\n  int t = threadIdx.x + 2 * threadIdx.y;\n"
      "  o[0] = blockIdx.x == 2 ? 7 : 0;\n  assert(o[0] != 7 || t != 7);\n"
      "  __syncthreads();\n}\n",
      (shape){{3, 1, 1}, {2, 8, 1}, 0}, texts);
  expect_fault(/* the system's header may come again; alone in its block */
               "#include <assert.h>\n#include <cassert>\n"
               "__global__ void k(int* o) { __syncthreads();\n  assert(blockIdx.y != "
               "1);\n}\n",
               (shape){{1, 3, 1}, {1, 1, 1}, 0},
               (const char*[]){"user.cu:4: block (0, 1, 0)", NULL});
}

Test(block, traps) {
  static const char source[] =
      "__global__ void k(int* o) {\n  if (blockIdx.x == 1) {\n    %s;\n  }\n"
      "  o[blockIdx.x] = 1;\n}\n";
  static const char* const ways[][2] = {
      {"__trap()", "user.cu:3: block (1, 0, 0), thread (0, 0, 0): the kernel trapped"},
      {"ons::stop()", "block (1, 0, 0), thread (0, 0, 0): the kernel trapped"}};
  for (size_t i = 0; i < 2; ++i) {
    char text[256];
    snprintf(text, sizeof(text), source, ways[i][0]);
    fixture_kernel kernel = fixture_load(text, "k", NULL);
    cr_expect(eq(int, try_int(&kernel, (shape){{3, 1, 1}, {1, 1, 1}, 0}, out),
                 ONS_STATUS_DEVICE));
    expect_message(ways[i][1]);
    unload(&kernel);
  }
}

Test(block, plain_kernels_that_fail) {
  static const char source[] =
      "__global__ void k(int* o) {\n  int i = threadIdx.x + blockIdx.x * blockDim.x;\n"
      "  o[i] = i;\n  if (i == 33) {\n    assert(i != 33);\n  }\n}\n";
  fixture_kernel kernel = fixture_load(source, "k", NULL);
  cr_expect(eq(int, try_int(&kernel, (shape){{20, 1, 1}, {16, 1, 1}, 0}, out),
               ONS_STATUS_DEVICE));
  expect_message("user.cu:5: ");
  expect_message("block (2, 0, 0), thread (1, 0, 0): assertion failed: i != 33");
  run_int(&kernel, (shape){{2, 1, 1}, {16, 1, 1}, 0}, out);
  cr_expect(eq(int, out[31], 31));
  unload(&kernel);
}

Test(block, full_stacks) {
  expect_fault(
      "__device__ int deep(int n, int* o) {\n"
      "  volatile int local[64]; local[n % 64] = o[0];\n"
      "  return n == 0 ? 0 : deep(n - 1, o) + local[n % 64];\n}\n"
      "__global__ void k(int* o) {\n  __syncthreads();\n"
      "  if (threadIdx.x == 5) o[1] = deep(100000000, o);\n  __syncthreads();\n}\n",
      (shape){{1, 1, 1}, {8, 1, 1}, 0},
      (const char*[]){"block (0, 0, 0), thread (5, 0, 0)", "stack", NULL});
}

/* A fault that is none of ours goes to whoever had the signal. */
static void earlier_handler(int signal_number) {
  (void)signal_number;
  _exit(77);
}

Test(block, other_faults_are_passed_on) {
  fixture_kernel kernel = fixture_load(
      "__global__ void k(int* o) {\n  __syncthreads();\n  *(int*)(o[0] + 0ll) = 1;\n}\n",
      "k", NULL);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, earlier_handler);
    out[0] = 16;
    (void)try_int(&kernel, (shape){{1, 1, 1}, {2, 1, 1}, 0}, out);
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  cr_expect(eq(int, status, 77 << 8));
  unload(&kernel);
}

Test(block, grid_barriers_need_a_cooperative_launch) {
  fixture_kernel kernel =
      fixture_load("__global__ void k(int* o) { ons_cpu::wait_grid(12); }", "k",
                   (const char*[]){"-DUNUSED=__syncthreads()", NULL});
  cr_expect(eq(int, try_int(&kernel, (shape){{1, 1, 1}, {2, 1, 1}, 0}, out),
               ONS_STATUS_DEVICE));
  expect_message("not cooperative");
  unload(&kernel);
}

/* ---- many at a time --------------------------------------------------------------- */

static void* launch_often(void* kernel) {
  int* mine = calloc(kAll, sizeof(*mine));
  for (int i = 0; i < 50; ++i) {
    const ons_launch launch =
        launch_of(&(shape){{4, 1, 1}, {33u + (uint32_t)i, 1, 1}, 0});
    void* parameters[] = {&mine};
    ons_error own = ONS_ERROR_INIT;
    const fixture_kernel* self = kernel;
    ons_status status =
        backend->ops->launch(device, &self->function, &launch, NULL, parameters, 1, &own);
    cr_assert(eq(int, status, 0), "%s", own.message);
    const int n = 33 + i;
    for (int j = 0; j < 4 * n; ++j) {
      cr_assert(eq(int, mine[j], (j % n + 5) % n + 1000 * (j / n) + 5));
    }
  }
  free(mine);
  return NULL;
}

Test(block, many_launching_threads) {
  fixture_kernel kernel = fixture_load(rotate, "k", NULL);
  pthread_t threads[8];
  for (int i = 0; i < 8; ++i) pthread_create(&threads[i], NULL, launch_often, &kernel);
  for (int i = 0; i < 8; ++i) pthread_join(threads[i], NULL);
  unload(&kernel);
}

Test(block, the_child_of_a_fork) {
  fixture_kernel kernel = fixture_load(rotate, "k", NULL);
  run_int(&kernel, (shape){{8, 1, 1}, {64, 1, 1}, 0}, out);
  pid_t child = fork();
  if (child == 0) {
    memset(out, 0, sizeof(out));
    ons_status status = try_int(&kernel, (shape){{8, 1, 1}, {64, 1, 1}, 0}, out);
    _exit(status == 0 && out[0] == 10 && out[511] == 7009 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  cr_expect(eq(int, status, 0));
  unload(&kernel);
}

/* Each OS thread's memory goes with it. */
static void* launch_once(void* kernel) {
  int mine[64];
  int* pointer = mine;
  void* parameters[] = {&pointer};
  const ons_launch launch = launch_of(&(shape){{1, 1, 1}, {64, 1, 1}, 0});
  const fixture_kernel* self = kernel;
  (void)backend->ops->launch(device, &self->function, &launch, NULL, parameters, 1, NULL);
  return NULL;
}

static long mapped_pages(void) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  cr_assert(file && fscanf(file, "%ld", &pages) == 1);
  fclose(file);
  return pages;
}

Test(block, threads_that_end_give_their_stacks_back) {
  fixture_kernel kernel = fixture_load(rotate, "k", NULL);
  long before = 0;
  for (int i = 0; i < 40; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, launch_once, &kernel);
    pthread_join(thread, NULL);
    if (i == 4) before = mapped_pages();
  }
  /* 64 stacks of 256 KiB a thread, were they kept */
  cr_expect(lt(long, mapped_pages() - before, 64l * 64));
  unload(&kernel);
}

/* ---- cooperative launches --------------------------------------------------------- */

static const char grid_rounds[] =
    "__device__ void meet() { ons_cpu::wait_grid(__LINE__); }\n"
    "__global__ void k(int* o) {\n"
    "  __shared__ int s[64];\n"
    "  int n = gridDim.x, b = blockIdx.x, t = threadIdx.x;\n"
    "  for (int i = 0; i < 20; ++i) {\n"
    "    s[t] = o[(b + 1) % n];\n    __syncthreads();\n"
    "    int v = s[blockDim.x - 1 - t];\n    meet();\n"
    "    if (t == 0) o[b] = v + 1;\n    meet();\n  }\n}\n";

static ons_status try_grid(const fixture_kernel* kernel, shape sizes) {
  int* pointer = out;
  void* parameters[] = {&pointer};
  ons_launch_attributes attributes = ONS_LAUNCH_ATTRIBUTES_INIT;
  attributes.flags = ONS_ATTRIBUTES_COOPERATIVE;
  ons_launch launch = launch_of(&sizes);
  launch.attributes = &attributes;
  return fixture_try(kernel, &launch, parameters, 1);
}

Test(block, blocks_that_wait_for_each_other) {
  fixture_kernel kernel = fixture_load(grid_rounds, "k", NULL);
  static const uint32_t threads[] = {1, 2, 64};
  for (size_t i = 0; i < 3; ++i) {
    for (int b = 0; b < 24; ++b) out[b] = b;
    cr_assert(eq(int, try_grid(&kernel, (shape){{24, 1, 1}, {threads[i], 1, 1}, 0}), 0),
              "%s", error.message);
    for (int b = 0; b < 24; ++b) cr_assert(eq(int, out[b], (b + 20) % 24 + 20));
  }
  unload(&kernel);
}

Test(block, a_fault_ends_a_grid_that_waits) {
  fixture_kernel kernel = fixture_load(
      "__global__ void k(int* o) {\n"
      "  if (blockIdx.x == 3) assert(threadIdx.x != 1);\n  __syncthreads();\n"
      "  ons_cpu::wait_grid(3);\n}\n",
      "k", NULL);
  for (int again = 0; again < 3; ++again) {
    cr_expect(
        eq(int, try_grid(&kernel, (shape){{8, 1, 1}, {2, 1, 1}, 0}), ONS_STATUS_DEVICE));
    expect_message(
        "block (3, 0, 0), thread (1, 0, 0): assertion failed: threadIdx.x != 1");
  }
  unload(&kernel);
}

/* ---- executors and interrupts ----------------------------------------------------- */

static pthread_t executor_threads[64];
static int executor_count;
typedef struct task {
  void (*run)(void* data);
  void* data;
  bool is_late;
} task;
static task tasks[64];

static void* run_task(void* task_pointer) {
  const task* self = task_pointer;
  if (self->is_late) usleep(20000);
  self->run(self->data);
  return NULL;
}

/* Every third task begins when the launch is over. */
static void schedule(void* user_data, void (*run)(void* data), void* data) {
  cr_expect(eq(ptr, user_data, tasks));
  const int i = executor_count++;
  tasks[i] = (task){run, data, i % 3 == 0};
  pthread_create(&executor_threads[i], NULL, run_task, &tasks[i]);
}

Test(block, an_executor_of_the_callers) {
  fixture_kernel kernel = fixture_load(rotate, "k", NULL);
  const ons_executor executor = {
      .schedule = schedule, .user_data = tasks, .thread_count = 4};
  for (int i = 0; i < 5; ++i) {
    memset(out, 0, sizeof(out));
    ons_launch launch = launch_of(&(shape){{100, 1, 1}, {64, 1, 1}, 0});
    launch.executor = &executor;
    int* pointer = out;
    void* parameters[] = {&pointer};
    cr_assert(eq(int, fixture_try(&kernel, &launch, parameters, 1), 0));
    expect_rotated(100, 64);
  }
  cr_expect(gt(int, executor_count, 0));
  for (int i = 0; i < executor_count; ++i) pthread_join(executor_threads[i], NULL);
  unload(&kernel);
}

static int times_asked; /* less than 0: what is to be interrupted has not begun */
static int stop_at_second(void* user_data) {
  cr_expect(eq(ptr, user_data, &times_asked));
  return times_asked >= 0 && ++times_asked == 2;
}

Test(block, interrupted_between_blocks) {
  fixture_close();
  fixture_settings.interrupt = stop_at_second;
  fixture_settings.interrupt_user_data = &times_asked;
  for (uint32_t threads = 1; threads <= 2; ++threads) {
    fixture_settings.cpu_thread_count = threads;
    fixture_open();
    times_asked = -1;
    fixture_kernel kernel = fixture_load(
        "__global__ void k(int* o) {\n"
        "  for (int i = 0; i < 100000; ++i) atomicAdd(o, 1);\n}\n",
        "k", NULL);
    times_asked = 0;
    cr_expect(eq(int, try_int(&kernel, (shape){{1u << 30, 1, 1}, {1, 1, 1}, 0}, out),
                 ONS_STATUS_INTERRUPTED));
    cr_expect(eq(int, times_asked, 2));
    unload(&kernel);
    if (threads == 1) fixture_close();
  }
}
