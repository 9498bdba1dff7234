/* The CPU backend: what kernels compute there, and on how many threads. */
#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "cpu_fixture.h"

static bool is_pool_thread(const char* id) {
  char path[64], name[32] = "";
  snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", id);
  FILE* file = fopen(path, "r");
  if (!file) return false; /* ended meanwhile */
  bool read = fgets(name, sizeof(name), file) != NULL;
  fclose(file);
  return read && strcmp(name, "onstream-cpu\n") == 0;
}

/* The test framework's threads, which come and go, are not counted. Threads that have
 * been joined may be for a while, until the system has buried them. */
static int pool_threads(void) {
  DIR* tasks = opendir("/proc/self/task");
  cr_assert(ne(ptr, tasks, NULL));
  int count = 0;
  for (struct dirent* task; (task = readdir(tasks));)
    count += is_pool_thread(task->d_name);
  closedir(tasks);
  return count;
}

/* The clock that the backend asks whether a launch is long; in the tests' hands, as how
 * long one really takes depends on the machine's load. */
static atomic_bool clock_stands;

int clock_gettime(clockid_t id, struct timespec* out_time) {
  if (!atomic_load(&clock_stands)) return (int)syscall(SYS_clock_gettime, id, out_time);
  *out_time = (struct timespec){.tv_sec = 1};
  return 0;
}

static void open_four_threads(void) {
  fixture_settings.cpu_thread_count = 4;
  fixture_open();
}

TestSuite(cpu, .init = open_four_threads, .fini = fixture_close, .timeout = 120);

static void unload(const fixture_kernel* kernel) { backend->ops->unload(kernel->binary); }

/* Runs `source`'s kernel k(int* out) in one thread. */
static void run_int(const char* source, int* out) {
  fixture_kernel kernel = fixture_load(source, "k", NULL);
  void* parameters[] = {&out};
  fixture_launch(&kernel, 1, 1, parameters, 1);
  unload(&kernel);
}

/* ---- the device ------------------------------------------------------------------- */

Test(cpu, device) {
  int32_t count = 0;
  cr_assert(eq(int, backend->ops->device_count(backend, &count, &error), 0));
  cr_expect(eq(int, count, 1));
  cr_expect(eq(int, device->device.device_type, kDLCPU));
  cr_expect(eq(str, device->arch, "native"));
  cr_expect(ne(ptr, strstr(device->name, ", 4 threads"), NULL), "%s", device->name);
  cr_expect(eq(int, (int)device->limits.threads_per_block, 1024));
  cr_expect(eq(int, (int)device->limits.shared_bytes, 227 * 1024));
  ons__device* other = NULL;
  cr_expect(eq(int, backend->ops->device_open(backend, 1, &other, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(eq(int, pool_threads(), 0), "no thread before the first large launch");
}

Test(cpu, thread_count_from_the_environment) {
  fixture_settings.cpu_thread_count = 0;
  ons__device* other = NULL;
  setenv("ONSTREAM_CPU_THREADS", "3", 1);
  cr_assert(eq(int, backend->ops->device_open(backend, 0, &other, &error), 0));
  cr_expect(ne(ptr, strstr(other->name, ", 3 threads"), NULL), "%s", other->name);
  backend->ops->device_close(other);
  setenv("ONSTREAM_CPU_THREADS", "many", 1); /* as if it were not set */
  cr_assert(eq(int, backend->ops->device_open(backend, 0, &other, &error), 0));
  cr_expect(eq(ptr, strstr(other->name, ", 3 threads"), NULL), "%s", other->name);
  backend->ops->device_close(other);
}

static void expect_wrapping(void) {
  static int32_t out[1024];
  int32_t* pointer = out;
  void* parameters[] = {&pointer};
  fixture_kernel kernel = fixture_load(
      "__global__ void k(int* o) {\n"
      "  int i = threadIdx.x;\n  o[i] = i * 1103515245 + 12345;\n}\n",
      "k", NULL);
  fixture_launch(&kernel, 1, 1024, parameters, 1);
  for (uint32_t i = 0; i < 1024; ++i) {
    cr_assert(eq(i32, out[i], (int32_t)(i * 1103515245u + 12345u)), "thread %u", i);
  }
  unload(&kernel);
  kernel = fixture_load(
      "__global__ void k(int* o) {\n"
      "  int i = threadIdx.x, a = 2147483000 + i;\n  o[i] = a < 0 ? -1 : a % 7;\n}\n",
      "k", NULL);
  fixture_launch(&kernel, 1, 1024, parameters, 1);
  for (uint32_t i = 0; i < 1024; ++i) {
    int32_t a = (int32_t)(2147483000u + i);
    cr_assert(eq(i32, out[i], a < 0 ? -1 : a % 7), "thread %u", i);
  }
  unload(&kernel);
}

Test(cpu, the_overflow_of_one_thread_ends_no_other) {
  expect_wrapping();
  fixture_close();
  setenv("ONSTREAM_HOST_COMPILER", "g++", 1);
  open_four_threads();
  expect_wrapping();
}

Test(cpu, integer_intrinsics_of_averages_dots_and_shifts) {
  int32_t out[16] = {0};
  int32_t* pointer = out;
  run_int(
      "#include <cmath>\n"
      "__global__ void k(int* o) {\n"
      "  o[0] = __hadd(-3, 0); o[1] = __rhadd(-3, 0); o[2] = __hadd(2147483647, 1);\n"
      "  o[3] = __uhadd(4294967295u, 4294967295u) == 4294967295u;\n"
      "  o[4] = __dp4a(0x7f80ff01, 0x02030405, 10);\n"
      "  o[5] = __dp4a(0xff010203u, 0x02030405u, 1u);\n"
      "  o[6] = __funnelshift_lc(1, 2, 40); o[7] = __funnelshift_rc(1, 2, 32);\n"
      "  o[8] = __funnelshift_lc(0x80000000u, 2, 1); o[9] = __funnelshift_rc(4, 1, 1);\n"
      "  long long c = clock64(); clock(); __nanosleep(100); o[10] = clock64() >= c;\n"
      "  float nan = 0.0f / 0.0f; double inf = 1.0 / 0.0;\n"
      "  static_assert(sizeof(isnan(nan)) == sizeof(bool), \"\");\n"
      "  o[11] = isnan(nan) && isinf(-inf) && !isfinite(inf) && signbit(-0.0f);\n"
      "  o[12] = isnan(1.0) || isinf(1.0f) || !isfinite(1.0f) || signbit(1.0);\n"
      "}\n",
      pointer);
  const int32_t expected[] = {-2,
                              -1,
                              1 << 30,
                              1,
                              10 + 127 * 2 - 128 * 3 - 4 + 5,
                              1 + 255 * 2 + 3 + 8 + 15,
                              1,
                              2,
                              5,
                              (int32_t)0x80000002u,
                              1,
                              1,
                              0};
  for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); ++i) {
    cr_expect(eq(i32, out[i], expected[i]), "%zu", i);
  }
}

/* ---- where threads are ------------------------------------------------------------ */

Test(cpu, three_dimensions) {
  fixture_kernel kernel = fixture_load(
      "__global__ void k(int* out) {\n"
      "  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;\n"
      "  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + "
      "threadIdx.x;\n"
      "  const uint3 t = threadIdx; const dim3 b = blockDim;\n"
      "  atomicAdd(&out[block * (blockDim.x * blockDim.y * blockDim.z) + thread],\n"
      "            block * 1000 + thread + (t.x >= b.x || gridDim.z != 4));\n"
      "}\n",
      "k", NULL);
  static int out[2 * 3 * 4 * 5 * 6 * 7];
  int* pointer = out;
  void* parameters[] = {&pointer};
  ons_launch launch = ONS_LAUNCH_INIT;
  memcpy(launch.grid, (uint32_t[]){2, 3, 4}, sizeof(launch.grid));
  memcpy(launch.block, (uint32_t[]){5, 6, 7}, sizeof(launch.block));
  cr_assert(eq(int,
               backend->ops->launch(device, &kernel.function, &launch, NULL, parameters,
                                    1, &error),
               0));
  for (int i = 0; i < 24 * 210; ++i) {
    cr_assert(eq(int, out[i], i / 210 * 1000 + i % 210), "element %d", i);
  }
  unload(&kernel);
}

Test(cpu, parameters_are_copies_and_have_sizes) {
  fixture_kernel kernel = fixture_load(
      "struct big { char c[24]; };\n"
      "__global__ void k(int* out, int value, double d, ons::view<float, 2> v, big b, "
      "char c) {\n"
      "  out[threadIdx.x] = ++value;\n"
      "  v.shape[0] = 0;\n"
      "}\n",
      "k", NULL);
  const uint32_t sizes[] = {8, 4, 8, 40, 24, 1, 0};
  for (int i = 0; i < 7; ++i)
    cr_expect(eq(int, (int)kernel.parameter_bytes[i], (int)sizes[i]));
  int out[4] = {0}, value = 41;
  int* pointer = out;
  double d = 0;
  struct {
    float* data;
    long long shape[2], strides[2];
  } view = {NULL, {3, 4}, {4, 1}};
  char big[24] = {0}, c = 0;
  void* parameters[] = {&pointer, &value, &d, &view, big, &c};
  fixture_launch(&kernel, 1, 4, parameters, 6);
  for (int i = 0; i < 4; ++i) cr_expect(eq(int, out[i], 42));
  cr_expect(eq(int, value, 41));
  cr_expect(eq(int, (int)view.shape[0], 3));
  unload(&kernel);
}

/* Wherever a parameter's bytes lie. */
Test(cpu, parameters_of_any_alignment) {
  fixture_kernel kernel = fixture_load(
      "struct S { float4 a; };\n"
      "struct alignas(32) T { double d[4]; T() = delete; };\n"
      "struct alignas(64) U { char c; };\n"
      "struct results { U u; T t; S s; int aligned; };\n"
      "__global__ void k(results* out, S s, T t, U u) {\n"
      "  out->s = s; out->t = t; out->u = u;\n"
      "  out->aligned += (size_t)&s % 16 == 0 && (size_t)&t % 32 == 0 && "
      "(size_t)&u % 64 == 0;\n"
      "}\n",
      "k", NULL);
  struct {
    _Alignas(64) char u[64];
    _Alignas(32) double t[4];
    float s[4];
    int aligned;
  } out, *to = &out;
  const float s[4] = {1, 2, 3, 4};
  const double t[4] = {10, 20, 30, 40};
  const char u[64] = {100};
  const void* sources[] = {&to, s, t, u};
  _Alignas(64) char bytes[4][128];
  for (size_t offset = 0; offset < 16; ++offset) {
    void* parameters[4];
    for (int i = 0; i < 4; ++i) {
      parameters[i] = bytes[i] + offset;
      memcpy(parameters[i], sources[i], kernel.parameter_bytes[i]);
    }
    memset(&out, 0, sizeof(out));
    fixture_launch(&kernel, 1, 40, parameters, 4);
    cr_expect(eq(int, out.aligned, 40));
    cr_expect(eq(int, memcmp(out.s, s, sizeof(s)) | memcmp(out.t, t, sizeof(t)), 0));
    cr_expect(eq(int, out.u[0], 100));
  }
  unload(&kernel);
}

/* One kernel that cannot be called leaves the others alone; its signature is told. */
Test(cpu, kernels_that_no_bytes_can_call) {
  static const char source[] =
      "struct pinned { pinned(const pinned&) = delete; int x; };\n"
      "__global__ void reference(int& x) { ++x; }\n"
      "__global__ void moved(float* y, pinned&& x) { ++x.x; }\n"
      "__global__ void uncopied(pinned x, int* y) { *y = x.x; }\n"
      "__global__ int result(int* x) { return *x; }\n"
      "__global__ void many(int x, ...) {}\n"
      "__global__ void calm(int* x) noexcept { *x = 7; }\n"
      "__global__ void k(int* x) { *x = 5; }\n";
  static const struct {
    const char* name;
    const char* signature;
  } cases[] = {{"k", "FvPiE"},
               {"calm", "FvPiE"},
               {"reference", "FvRiE"},
               {"moved", "FvPfO6pinnedE"},
               {"result", "FiPiE"},
               {"many", "FvizE"},
               {"uncopied", "Fv6pinnedPiE"}};
  const char* names[] = {"?k",      "?calm", "?reference", "?moved",
                         "?result", "?many", "?uncopied",  NULL};
  static const char* const compilers[] = {"clang++", "g++"};
  for (int c = 0; c < 2; ++c) {
    setenv("CXX", compilers[c], 1);
    fixture_close();
    fixture_open();
    ons__image* image = NULL;
    char* log = NULL;
    cr_assert(eq(int, fixture_compile(source, names, NULL, NULL, &image, &log), 0), "%s",
              error.message);
    ons__binary* binary = NULL;
    cr_assert(eq(int, backend->ops->load(device, image, &binary, &error), 0));
    cr_assert(eq(sz, image->kernel_count, 7), "%s", log);
    for (int i = 0; i < 7; ++i) {
      const ons__image_kernel* entry = ons__image_find(image, cases[i].name);
      cr_assert(ne(ptr, (void*)entry, NULL), "%s", cases[i].name);
      cr_expect(eq(str, entry->signature, (char*)cases[i].signature));
      ons__function function;
      uint32_t sizes[3] = {0};
      ons_status status =
          backend->ops->function(binary, entry->lowered, &function, sizes, 2, &error);
      cr_expect(eq(int, status, i < 2 ? ONS_STATUS_OK : ONS_STATUS_UNSUPPORTED), "%s",
                cases[i].name);
      if (status) continue;
      int x = 0, *pointer = &x;
      void* parameters[] = {&pointer};
      ons_launch launch = ONS_LAUNCH_INIT;
      cr_assert(eq(
          int,
          backend->ops->launch(device, &function, &launch, NULL, parameters, 1, &error),
          0));
      cr_expect(eq(int, x, i ? 7 : 5));
    }
    cr_expect(ne(ptr, strstr(error.message, "cannot be copied"), NULL), "%s",
              error.message);
    backend->ops->unload(binary);
    ons__image_destroy(image);
    ons__free(&fixture_allocator, log);
  }
}

Test(cpu, a_kernel_asked_for_again_is_the_same) {
  fixture_kernel kernel =
      fixture_load("__global__ void k(int* out) { *out = 3; }", "k", NULL);
  long live = atomic_load(&fixture_live);
  for (int i = 0; i < 3; ++i) {
    ons__function again;
    uint32_t size = 0;
    cr_assert(eq(int,
                 backend->ops->function(kernel.binary, "ons_cpu_kernel_0", &again, &size,
                                        1, &error),
                 0));
    cr_expect(eq(ptr, again.handle, kernel.function.handle));
    cr_expect(eq(int, (int)size, 8));
  }
  cr_expect(eq(long, atomic_load(&fixture_live), live));
  unload(&kernel);
}

Test(cpu, views) {
  fixture_kernel kernel = fixture_load(
      "__global__ void k(ons::view<const int, 2> in, ons::view<int, 2, int> out) {\n"
      "  for (int i = 0; i < in.shape[0]; ++i)\n"
      "    for (int j = 0; j < in.shape[1]; ++j) out(j, i) = in(i, j) + (int)in.size() + "
      "in.rank;\n"
      "}\n",
      "k", (const char*[]){"-DT=float", "-DN=4", "-DI=1", NULL});
  int in[6] = {0, 1, 2, 3, 4, 5}, out[6] = {0};
  struct {
    const int* data;
    long long shape[2], strides[2];
  } from = {in, {2, 3}, {3, 1}};
  struct {
    int* data;
    int shape[2], strides[2];
  } to = {out, {3, 2}, {2, 1}};
  void* parameters[] = {&from, &to};
  fixture_launch(&kernel, 1, 1, parameters, 2);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) cr_expect(eq(int, out[j * 2 + i], in[i * 3 + j] + 8));
  }
  unload(&kernel);
}

/* A block that ends below a bound runs without the guard: it must end there to the
 * element. */
Test(cpu, guards_hold_at_every_edge) {
  static const char* const types[] = {"int",    "unsigned", "long long",
                                      "size_t", "int",      "size_t"};
#if defined(__x86_64__)
  /* Once more as on processors without it, which the mark is for. */
  const char* const narrow[] = {"-mno-avx512vl", NULL};
#else
  const char* const* narrow = NULL;
#endif
  for (int t = 0; t < 6; ++t) {
    char source[512];
    snprintf(source, sizeof(source),
             "__global__ void k(int* out, %s n, int last) {\n"
             "  %s i = blockIdx.x * (%s)blockDim.x + threadIdx.x;\n"
             "  if (i >= n) return;\n"
             "  out[i] += 1 + (last != 1000000);\n"
             "}\n",
             types[t], types[t], types[t]);
    fixture_kernel kernel = fixture_load(source, "k", t < 4 ? NULL : narrow);
    for (int size = t % 2 ? 0 : -1; size < 60; ++size) {
      int out[72] = {0}, last = 1000000;
      int* pointer = out;
      long long n = size; /* little endian: its front is the 32-bit value */
      void* parameters[] = {&pointer, &n, &last};
      fixture_launch(&kernel, 9, 8, parameters, 3);
      for (int i = 0; i < 72; ++i) {
        cr_assert(eq(int, out[i], i < size), "%s, n %d, element %d", types[t], size, i);
      }
    }
    unload(&kernel);
  }
}

/* ---- the dialect ------------------------------------------------------------------ */

Test(cpu, device_functions) {
  static const char source[] =
      "#define CHECK(condition) do { if (!(condition)) { *out = __LINE__; return; } } "
      "while (0)\n"
      "template <class A, class B> struct is { static constexpr bool same = false; };\n"
      "template <class A> struct is<A, A> { static constexpr bool same = true; };\n"
      "__constant__ int table[3] = {1, 2, 3};\n"
      "__device__ int counter;\n"
      "__device__ __forceinline__ int twice(int x) { return 2 * x; }\n"
      "__host__ __device__ __noinline__ int thrice(int x) { return 3 * x; }\n"
      "struct __align__(32) padded { int x; };\n"
      "__global__ __launch_bounds__(256, 2) void k(int* __restrict__ out) {\n"
      "  *out = 0;\n"
      "  CHECK(twice(2) + thrice(table[1]) + counter == 10 && sizeof(padded) == 32);\n"
      "  CHECK((is<decltype(sin(1.0f)), float>::same && is<decltype(sin(1.0)), "
      "double>::same));\n"
      "  CHECK((is<decltype(min(1, 2u)), unsigned>::same && is<decltype(max(1.0f, 2.0)), "
      "double>::same));\n"
      "  CHECK(min(-1, 2) == -1 && max(3ll, 2ll) == 3 && min(1.0f, NAN) == 1.0f && "
      "abs(-2.5f) == 2.5f);\n"
      "  CHECK(rsqrtf(4.0f) == 0.5f && fmaf(2.0f, 3.0f, 1.0f) == 7.0f && fminf(1.0f, "
      "2.0f) == 1.0f);\n"
      "  CHECK(fabsf(__expf(1.0f) - 2.7182818f) < 1e-5f && __fdividef(1.0f, 4.0f) == "
      "0.25f);\n"
      "  CHECK(sinpif(1.0f) == 0.0f && cospif(1.0f) == -1.0f && sinpif(-0.5f) == "
      "-1.0f);\n"
      "  CHECK(__saturatef(NAN) == 0.0f && __saturatef(7.0f) == 1.0f && "
      "__saturatef(0.5f) == 0.5f);\n"
      "  CHECK(__float2int_rn(2.5f) == 2 && __float2int_rz(-2.7f) == -2 && "
      "__float2int_ru(2.1f) == 3);\n"
      "  CHECK(__float2int_rd(-2.1f) == -3 && __float2int_rn(NAN) == 0 && "
      "__float2int_rn(1e20f) == 2147483647);\n"
      "  CHECK(__float2int_rn(-1e20f) == -2147483647 - 1 && __float2uint_rn(-1.0f) == "
      "0u);\n"
      "  CHECK(__float2uint_rn(1e20f) == 4294967295u && __double2ll_rn(1e30) == "
      "9223372036854775807ll);\n"
      "  CHECK(__double2ull_rz(1.8446744073709550e19) == 18446744073709549568ull);\n"
      "  CHECK(__int_as_float(0x3f800000) == 1.0f && __float_as_uint(-0.0f) == "
      "0x80000000u);\n"
      "  CHECK(__hiloint2double(0x3ff00000, 0) == 1.0 && __double2hiint(1.0) == "
      "0x3ff00000);\n"
      "  CHECK(__popc(0xF0F0u) == 8 && __clz(0) == 32 && __clz(1) == 31 && __ffs(8) == 4 "
      "&& __ffs(0) == 0);\n"
      "  CHECK(__brev(1u) == 0x80000000u && __brevll(2ull) == 1ull << 62 && __clzll(1) "
      "== 63);\n"
      "  CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x7410) == 0x77441100u && "
      "__byte_perm(0x80u, 0, 0x4448) == 0xFFu);\n"
      "  CHECK(__funnelshift_l(0x80000000u, 1u, 1) == 3u && __funnelshift_r(2u, 1u, 1) "
      "== 0x80000001u);\n"
      "  CHECK(__mulhi(1 << 30, -8) == -2 && __umulhi(1u << 31, 4u) == 2u && __mul24(-3, "
      "5) == -15);\n"
      "  CHECK(__umul64hi(1ull << 63, 4) == 2 && __mul64hi(-1, 1) == -1 && __usad(1u, "
      "3u, 1u) == 3u);\n"
      "  CHECK(__sad(-2, 3, 1u) == 6u && warpSize == 32 && __ldg(out) == 0);\n"
      "  CHECK(sizeof(float3) == 12 && alignof(float4) == 16 && alignof(double2) == 16 "
      "&& alignof(double4) == 16);\n"
      "  CHECK(alignof(char2) == 2 && alignof(int2) == 8 && sizeof(short3) == 6 && "
      "alignof(longlong3) == 8);\n"
      "  float4 v = make_float4(1, 2, 3, 4); CHECK(v.x + v.w == 5.0f); CHECK(dim3(7).y "
      "== 1);\n"
      "  float s, c; sincosf(0.0f, &s, &c); CHECK(s == 0.0f && c == 1.0f);\n"
      "  CHECK(pow(2.0f, 3.0f) == 8.0f && fabs(-1.0f) == 1.0f && floor(1.5) == 1.0 && "
      "isnan(NAN) && isfinite(1.0f));\n"
      "  if (blockDim.x > 1000) printf(\"%d\", 1);\n"
      "  assert(out != nullptr);\n"
      "  *out = -1;\n"
      "}\n";
  int out = 0;
  run_int(source, &out);
  cr_expect(eq(int, out, -1), "the check in line %d failed", out);
  /* With the standard library on top. */
  char* text = malloc(sizeof(source) + 200);
  sprintf(
      text,
      "#include <cmath>\n#include <cstdlib>\n#include <algorithm>\n#include <cstdint>\n"
      "using namespace std;\n#define is is_\n%s",
      source);
  run_int(text, &out);
  cr_expect(eq(int, out, -1), "the check in line %d failed", out);
  free(text);
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) static uint16_t half_of(float value) {
  return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}
__attribute__((target("f16c"))) static float float_of(uint16_t half) {
  return _cvtsh_ss(half);
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

Test(cpu, half_conversions_equal_the_processors) {
  if (!__builtin_cpu_supports("avx2")) cr_skip_test("the processor converts no halves");
  fixture_kernel widen = fixture_load(
      "#include <cuda_fp16.h>\n__global__ void k(const __half* x, float* y) {\n"
      "  int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i]; }",
      "k", NULL);
  static uint16_t halves[65536];
  static float floats[65536];
  for (int i = 0; i < 65536; ++i) halves[i] = (uint16_t)i;
  uint16_t* half_pointer = halves;
  float* float_pointer = floats;
  void* parameters[] = {&half_pointer, &float_pointer};
  fixture_launch(&widen, 256, 256, parameters, 2);
  for (int i = 0; i < 65536; ++i) {
    bool nan = isnan(float_of((uint16_t)i));
    cr_assert(
        nan ? isnan(floats[i]) : bits_of(floats[i]) == bits_of(float_of((uint16_t)i)),
        "half 0x%04x", i);
  }
  unload(&widen);

  fixture_kernel narrow = fixture_load(
      "#include <cuda_fp16.h>\n__global__ void k(const float* x, __half* y) {\n"
      "  int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = __float2half(x[i]); }",
      "k", NULL);
  void* back[] = {&float_pointer, &half_pointer};
  /* All upper halves of a float with the lower ones that make ties and near-ties. */
  for (uint32_t round = 0; round < 64; ++round) {
    for (uint32_t i = 0; i < 65536; ++i) {
      uint32_t bits = i << 16 | (round & 1 ? round << 7 : round / 2 * 0x1000u % 0x10000u);
      memcpy(&floats[i], &bits, sizeof(bits));
    }
    fixture_launch(&narrow, 256, 256, back, 2);
    for (int i = 0; i < 65536; ++i) {
      uint16_t expected = half_of(floats[i]);
      bool nan = isnan(floats[i]);
      cr_assert(nan ? (halves[i] & 0x7FFF) > 0x7C00 : halves[i] == expected,
                "float 0x%08x gives 0x%04x, not 0x%04x", bits_of(floats[i]), halves[i],
                expected);
    }
  }
  unload(&narrow);
}
#endif

Test(cpu, small_float_arithmetic) {
  static const char source[] =
      "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n"
      "#define CHECK(condition) do { if (!(condition)) { *out = __LINE__; return; } } "
      "while (0)\n"
      "__global__ void k(int* out) {\n"
      "  __half one = 1, tiny = __ushort_as_half(1), big = 65504.0f;\n"
      "  CHECK(float(tiny) == 0x1p-24f && __half_as_ushort(big) == 0x7BFF && float(big + "
      "big) > 1e30f);\n"
      "  CHECK(float(one + __half(0x1p-11f)) == 1.0f && float(one + __half(0x1.8p-10f)) "
      "== 1.0f + 0x1p-9f);\n"
      "  CHECK(one == __half(1.0) && one < big && __hgt(big, one) && __hisnan(big - big "
      "* big * __half(0)) == true);\n"
      "  CHECK(float(-one) == -1.0f && float(__hmax(one, big)) == 65504.0f && "
      "int(__half(-2.7f)) == -2);\n"
      "  CHECK(__half_as_ushort(__half(65519.0f)) == 0x7BFF && "
      "__half_as_ushort(__half(65520.0f)) == 0x7C00);\n"
      "  CHECK(__half_as_ushort(__half(1.0 + 0x1p-11 + 0x1p-40)) == 0x3C01);\n" /* once
                                                                                   rounded
                                                                                 */
      "  __half sum = one; sum += one; sum *= 3.0f; CHECK(float(sum) == 6.0f && "
      "float(__hfma(sum, sum, one)) == 37.0f);\n"
      "  CHECK(float(__hfma(__half(1.0f + 0x1p-10f), __half(1.0f + 0x1p-10f), "
      "__half(-1.0f - 0x1p-9f))) == 0x1p-20f);\n"
      "  __half2 pair = __floats2half2_rn(1.0f, 2.0f); pair = __hadd2(pair, pair); "
      "CHECK(__high2float(pair) == 4.0f);\n"
      "  __nv_bfloat16 b = __float2bfloat16(1.0f + 0x1p-8f); CHECK(float(b) == 1.0f);\n"
      "  b = __float2bfloat16(1.0f + 0x1.8p-7f); CHECK(float(b) == 1.0f + 0x1p-6f);\n"
      "  CHECK(float(__nv_bfloat16(0x1p-133f)) == 0x1p-133f && "
      "__bfloat16_as_ushort(__nv_bfloat16(3.4e38f)) == 0x7F80);\n"
      "  CHECK(float(__hfma(__nv_bfloat16(1.0f + 0x1p-7f), __nv_bfloat16(1.0f + "
      "0x1p-1f), __nv_bfloat16(0x1p-120f))) == 1.5f + 0x1p-6f);\n"
      "  CHECK(float(__nv_bfloat16(16842753ll << 36)) == 0x1.02p60f);\n"
      "  CHECK(__nv_fp8_e4m3(448.0f).__x == 0x7E && __nv_fp8_e4m3(1e9f).__x == 0x7E && "
      "__nv_fp8_e4m3(-INFINITY).__x == 0xFE);\n"
      "  CHECK(__nv_fp8_e4m3(NAN).__x == 0x7F && __nv_fp8_e4m3(0x1p-9f).__x == 1 && "
      "__nv_fp8_e4m3(0x1p-10f).__x == 0);\n"
      "  CHECK(__nv_fp8_e5m2(57344.0f).__x == 0x7B && __nv_fp8_e5m2(1e9f).__x == 0x7B && "
      "__nv_fp8_e5m2(0x1p-16f).__x == 1);\n"
      "  for (int i = 0; i < 256; ++i) {\n"
      "    __nv_fp8_e4m3 e; e.__x = i; if ((i & 0x7F) != 0x7F) "
      "CHECK(__nv_fp8_e4m3(float(e)).__x == i);\n"
      "    __nv_fp8_e5m2 f; f.__x = i; if ((i & 0x7F) < 0x7C) "
      "CHECK(__nv_fp8_e5m2(float(f)).__x == i);\n"
      "  }\n"
      "  __nv_fp8_e4m3 e; e.__x = 0x7E; CHECK(float(e) == 448.0f); e.__x = 0x08; "
      "CHECK(float(e) == 0x1p-6f);\n"
      "  *out = -1;\n"
      "}\n";
  int out = 0;
  run_int(source, &out);
  cr_expect(eq(int, out, -1), "the check in line %d failed", out);
}

Test(cpu, atomics_across_threads) {
  fixture_kernel kernel = fixture_load(
      "#include <cuda_fp16.h>\n"
      "struct sums { int i, low, high; unsigned u, wrapped, down; unsigned long long "
      "ull; float f;\n"
      "              double d; unsigned bits; int cas; };\n"
      "__global__ void k(sums* s) {\n"
      "  int t = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  atomicAdd(&s->i, 1); atomicSub(&s->i, -1); atomicMin(&s->low, -t); "
      "atomicMax(&s->high, t);\n"
      "  atomicAdd(&s->u, 2u); atomicInc(&s->wrapped, 6u); atomicDec(&s->down, 6u);\n"
      "  atomicAdd(&s->ull, 1ull << 33); atomicAdd(&s->f, 1); atomicAdd(&s->d, 0.5);\n"
      "  atomicXor(&s->bits, 1u << (t & 31)); atomicOr(&s->bits, 0u); "
      "atomicAnd(&s->bits, ~0u);\n"
      "  for (int old = s->cas, seen;; old = seen) { seen = atomicCAS(&s->cas, old, old "
      "+ 1); if (seen == old) break; }\n"
      "}\n",
      "k", NULL);
  struct {
    int i, low, high;
    unsigned u, wrapped, down;
    unsigned long long ull;
    float f;
    double d;
    unsigned bits;
    int cas;
  } sums = {0};
  void* pointer = &sums;
  void* parameters[] = {&pointer};
  enum { BLOCKS = 2000, THREADS = 128, ALL = BLOCKS * THREADS };
  fixture_launch(&kernel, BLOCKS, THREADS, parameters, 1);
  cr_expect(eq(int, pool_threads(), 3), "the launch was not shared");
  cr_expect(eq(int, sums.i, 2 * ALL));
  cr_expect(eq(int, sums.low, -(ALL - 1)));
  cr_expect(eq(int, sums.high, ALL - 1));
  cr_expect(eq(int, (int)sums.u, 2 * ALL));
  cr_expect(eq(int, (int)sums.wrapped, ALL % 7));
  cr_expect(eq(int, (int)sums.down, (7 - ALL % 7) % 7));
  cr_expect(sums.ull == (unsigned long long)ALL << 33);
  cr_expect(sums.f == (float)ALL);
  cr_expect(sums.d == ALL * 0.5);
  cr_expect(eq(int, (int)sums.bits, 0));
  cr_expect(eq(int, sums.cas, ALL));
  unload(&kernel);
}

/* ---- threads ---------------------------------------------------------------------- */

/* The asm statement keeps the loop from being optimised away. */
static const char busy_source[] =
    "__global__ void k(int* out, int work) {\n"
    "  unsigned x = blockIdx.x;\n"
    "  for (int i = 0; i < work; ++i) asm volatile(\"\" : \"+r\"(x));\n"
    "  out[blockIdx.x] += 1;\n"
    "}\n";

static fixture_kernel busy;

/* Every block runs once, whoever runs it. */
static bool launch_busy(int work) {
  enum { BLOCKS = 500 };
  int out[BLOCKS] = {0};
  int* pointer = out;
  void* parameters[] = {&pointer, &work};
  fixture_launch(&busy, BLOCKS, 1, parameters, 2);
  for (int i = 0; i < BLOCKS; ++i) {
    if (out[i] != 1) return false;
  }
  return true;
}

static void* launch_repeatedly(void* unused) {
  (void)unused;
  bool good = true;
  for (int i = 0; i < 200 && good; ++i) good = launch_busy(i % 3 * 2000);
  return good ? (void*)1 : NULL;
}

Test(cpu, small_launches_stay_on_the_calling_thread) {
  busy = fixture_load(busy_source, "k", NULL);
  atomic_store(&clock_stands, true); /* no launch takes any time */
  bool good = launch_busy(0) && launch_busy(20000);
  atomic_store(&clock_stands, false);
  cr_expect(good);
  cr_expect(eq(int, pool_threads(), 0));
  cr_expect(launch_busy(20000));
  cr_expect(eq(int, pool_threads(), 3));
  unload(&busy);
}

Test(cpu, launches_from_several_threads) {
  busy = fixture_load(busy_source, "k", NULL);
  pthread_t threads[8];
  for (int i = 0; i < 8; ++i) pthread_create(&threads[i], NULL, launch_repeatedly, NULL);
  for (int i = 0; i < 8; ++i) {
    void* good = NULL;
    pthread_join(threads[i], &good);
    cr_expect(ne(ptr, good, NULL), "a block ran twice or never");
  }
  unload(&busy);
}

Test(cpu, a_child_after_fork_has_its_own_pool) {
  busy = fixture_load(busy_source, "k", NULL);
  cr_expect(launch_busy(20000));
  cr_expect(eq(int, pool_threads(), 3));
  pid_t pid = fork();
  if (pid == 0) {
    bool good = pool_threads() == 0 && launch_busy(20000) && pool_threads() == 3;
    backend->ops->unload(busy.binary);
    backend->ops->device_close(device);
    backend->ops->destroy(backend);
    while (pool_threads() > 0) sched_yield(); /* for ever, where one was not joined */
    _exit(good && atomic_load(&fixture_live) == 1 ? 0 : 1); /* the parent's pool */
  }
  int status = -1;
  waitpid(pid, &status, 0);
  cr_expect(eq(int, status, 0));
  cr_expect(launch_busy(20000), "the parent's pool still works");
  unload(&busy);
}

static void* launch_once(void* unused) {
  (void)unused;
  return launch_busy(20000) ? (void*)1 : NULL;
}

/* The first launches of a child, at once: none may see the pool that another one ends. */
Test(cpu, a_child_that_launches_from_several_threads) {
  busy = fixture_load(busy_source, "k", NULL);
  cr_expect(launch_busy(20000));
  for (int i = 0; i < 20; ++i) {
    pid_t pid = fork();
    if (pid == 0) {
      pthread_t threads[4];
      bool good = true;
      for (int k = 0; k < 4; ++k) pthread_create(&threads[k], NULL, launch_once, NULL);
      for (int k = 0; k < 4; ++k) {
        void* done = NULL;
        pthread_join(threads[k], &done);
        good = good && done;
      }
      _exit(good && pool_threads() == 3 ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    cr_expect(eq(int, status, 0));
  }
  unload(&busy);
}

static bool pool_signals_blocked(int signal_number) {
  DIR* tasks = opendir("/proc/self/task");
  bool blocked = false;
  for (struct dirent* task; (task = readdir(tasks));) {
    char path[64], line[128];
    if (!is_pool_thread(task->d_name)) continue;
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", task->d_name);
    FILE* file = fopen(path, "r");
    if (!file) continue;
    while (fgets(line, sizeof(line), file)) {
      if (strncmp(line, "SigBlk:", 7) != 0) continue;
      blocked = strtoull(line + 7, NULL, 16) >> (signal_number - 1) & 1;
    }
    fclose(file);
  }
  closedir(tasks);
  return blocked;
}

/* A fault in a kernel reaches the host's handler, on whichever thread. */
Test(cpu, pool_threads_leave_faults_to_their_handlers) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
  static const int hosts[] = {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM, SIGPROF};
  busy = fixture_load(busy_source, "k", NULL);
  cr_expect(launch_busy(20000));
  cr_assert(eq(int, pool_threads(), 3));
  /* The system starts a thread with everything blocked. */
  for (int i = 0; i < 5000 && pool_signals_blocked(SIGSEGV); ++i) usleep(1000);
  for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); ++i) {
    cr_expect(not(pool_signals_blocked(faults[i])), "signal %d", faults[i]);
  }
  for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); ++i) {
    cr_expect(pool_signals_blocked(hosts[i]), "signal %d", hosts[i]);
  }
  unload(&busy);
}

Test(cpu, a_child_of_a_busy_parent) {
  busy = fixture_load(busy_source, "k", NULL);
  /* The pool is there before the first fork: AddressSanitizer's own locks do not survive
   * one during the start of a thread. */
  cr_expect(launch_busy(20000));
  pthread_t thread;
  pthread_create(&thread, NULL, launch_repeatedly, NULL);
  for (int i = 0; i < 20; ++i) {
    pid_t pid = fork();
    if (pid == 0) _exit(launch_busy(10000) ? 0 : 1);
    int status = -1;
    waitpid(pid, &status, 0);
    cr_expect(eq(int, status, 0));
  }
  pthread_join(thread, NULL);
  unload(&busy);
}

/* ---- loading ---------------------------------------------------------------------- */

Test(cpu, two_hundred_modules) {
  /* Each has thread-local indices; they must not use up what the loader reserves for
   * such. */
  ons__image* image = NULL;
  char* log = NULL;
  const char* names[] = {"k", NULL};
  cr_assert(eq(int,
               fixture_compile("__device__ int calls;\n__global__ void k(int* out) {\n"
                               "  *out = ++calls + threadIdx.x; }",
                               names, NULL, NULL, &image, &log),
               0),
            "%s", error.message);
  enum { MODULES = 200 };
  ons__binary* binaries[MODULES];
  for (int i = 0; i < MODULES; ++i) {
    cr_assert(eq(int, backend->ops->load(device, image, &binaries[i], &error), 0),
              "module %d: %s", i, error.message);
    ons__function function;
    cr_assert(eq(int,
                 backend->ops->function(binaries[i], "ons_cpu_kernel_0", &function, NULL,
                                        0, &error),
                 0));
    int out = 0;
    int* pointer = &out;
    void* parameters[] = {&pointer};
    ons_launch launch = ONS_LAUNCH_INIT;
    cr_assert(
        eq(int,
           backend->ops->launch(device, &function, &launch, NULL, parameters, 1, &error),
           0));
    cr_assert(eq(int, out, 1), "module %d shares its variables", i);
  }
  for (int i = 0; i < MODULES; ++i) backend->ops->unload(binaries[i]);
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
}

Test(cpu, constructors_run_once) {
  setenv("ONSTREAM_TEST_CONSTRUCTED", "", 1);
  fixture_kernel kernel = fixture_load(
      "#include <stdlib.h>\n#include <string>\n"
      "static const char name[] = \"ONSTREAM_TEST_CONSTRUCTED\";\n"
      "struct counter {\n"
      "  counter() { setenv(name, (getenv(name) + std::string(\"+\")).c_str(), 1); }\n"
      "  ~counter() { setenv(name, (getenv(name) + std::string(\"-\")).c_str(), 1); }\n"
      "};\n"
      "counter one;\n__global__ void k() {}\n",
      "k", NULL);
  fixture_launch(&kernel, 1, 1, NULL, 0);
  cr_expect(eq(str, getenv("ONSTREAM_TEST_CONSTRUCTED"), "+"));
  unload(&kernel);
  cr_expect(eq(str, getenv("ONSTREAM_TEST_CONSTRUCTED"), "+-"));
}

Test(cpu, an_image_that_is_none) {
  ons__image image = {.allocator = &fixture_allocator,
                      .kind = ONS__IMAGE_SHARED_OBJECT,
                      .code = (char*)"not an object",
                      .code_bytes = 13};
  ons__binary* binary = NULL;
  cr_expect(eq(int, backend->ops->load(device, &image, &binary, &error), ONS_STATUS_IO));
  cr_expect(eq(ptr, binary, NULL));
  image.kind = ONS__IMAGE_PTX;
  cr_expect(eq(int, backend->ops->load(device, &image, &binary, &error),
               ONS_STATUS_UNSUPPORTED));
}

#if defined(__x86_64__)
Test(cpu, fast_math_leaves_the_threads_rounding_alone) {
  unsigned before = _mm_getcsr();
  const char* options[] = {"--use_fast_math", "-ffast-math", "-Ofast", NULL};
  setenv("CXX", "g++", 1); /* the one that links such code */
  fixture_kernel kernel =
      fixture_load("__global__ void k(float* x) { *x /= 3; }", "k", options);
  cr_expect(eq(int, (int)_mm_getcsr(), (int)before));
  unload(&kernel);
}
#endif

Test(cpu, gcc_as_the_compiler) {
  setenv("CXX", "g++", 1);
  fixture_kernel kernel = fixture_load(
      "#include <cuda_bf16.h>\n"
      "__global__ void k(float a, const float* x, float* out, int n) {\n"
      "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = a * x[i]; }",
      "k", NULL);
  float a = 2, x[5] = {1, 2, 3, 4, 5}, out[6] = {0};
  const float* in = x;
  float* to = out;
  int n = 5;
  void* parameters[] = {&a, &in, &to, &n};
  fixture_launch(&kernel, 3, 2, parameters, 4);
  for (int i = 0; i < 6; ++i) cr_expect(eq(flt, out[i], i < 5 ? 2 * x[i] : 0));
  unload(&kernel);
}
