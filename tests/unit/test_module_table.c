/* Modules of the same text are one, where nothing else can tell what they are. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <onstream/onstream.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/module.h"

static ons_runtime* runtime;
static ons_error error = ONS_ERROR_INIT;
static atomic_int live;

static void* count_allocate(void* unused, size_t bytes) {
  (void)unused;
  atomic_fetch_add(&live, 1);
  return malloc(bytes);
}

static void count_free(void* unused, void* pointer) {
  (void)unused;
  if (pointer) atomic_fetch_sub(&live, 1);
  free(pointer);
}

static void open_runtime(void) {
  const ons_allocator allocator = {NULL, count_allocate, count_free};
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.allocator = &allocator;
  cr_assert(eq(int, ons_runtime_create(&options, &runtime, &error), 0));
}

static void close_runtime(void) {
  ons_runtime_release(runtime);
  cr_expect(eq(int, atomic_load(&live), 0));
}

TestSuite(module_table, .init = open_runtime, .fini = close_runtime);

#define K "__global__ void k(int* y) { y[0] = 1; }\n"

static ons_module* create(const char* source, const ons_module_options* options) {
  ons_module* module = NULL;
  cr_assert(eq(int, ons_module_create(runtime, source, options, &module, &error), 0),
            "%s", error.message);
  return module;
}

static bool are_one(const char* source, const ons_module_options* options,
                    const char* other_source, const ons_module_options* other_options) {
  ons_module* one = create(source, options);
  ons_module* other = create(other_source, other_options);
  const bool same = one == other;
  ons_module_release(one);
  ons_module_release(other);
  return same;
}

Test(module_table, has_one_module_of_a_text) {
  cr_expect(are_one(K, NULL, K, NULL));
  cr_expect(not(are_one(K, NULL, K " ", NULL)));
  ons_module_options named = ONS_MODULE_OPTIONS_INIT;
  named.name = "other.cu";
  cr_expect(are_one(K, &named, K, &named));
  cr_expect(not(are_one(K, NULL, K, &named)));
  ons_module_options checked = ONS_MODULE_OPTIONS_INIT;
  checked.flags = ONS_MODULE_CHECK;
  cr_expect(not(are_one(K, NULL, K, &checked)));
  const char* defines[] = {"-DA=1", "-DB"};
  ons_module_options one = ONS_MODULE_OPTIONS_INIT, two = one;
  one.options = two.options = defines;
  one.option_count = 1;
  two.option_count = 2;
  cr_expect(are_one(K, &one, K, &one));
  cr_expect(not(are_one(K, &one, K, &two)));
}

Test(module_table, has_no_module_with_state_of_its_own) {
  static const char* const sources[] = {
      "__device__ int n;\n" K, "__constant__ float t[4];\n" K,
      "__global__ void k(int* y) { static int n; y[0] = ++n; }",
      "__global__ void k(int* y) { __shared__ int n; y[0] = n; }\n__managed__ int m;"};
  for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); ++i) {
    cr_expect(not(are_one(sources[i], NULL, sources[i], NULL)), "%s", sources[i]);
  }
}

Test(module_table, has_no_module_that_reads_files_of_the_users) {
  static const char own[] = "#include \"a.h\"\n" K;
  static const char system[] = "#include <cuda_fp16.h>\n" K;
  static const char spelt[] = "#include NAME\n" K;
  cr_expect(not(are_one(own, NULL, own, NULL)));
  cr_expect(not(are_one(spelt, NULL, spelt, NULL)));
  cr_expect(are_one(system, NULL, system, NULL));
  const ons_header plain = {"a.h", "#define A 1\n"}, other = {"a.h", "#define A 2\n"},
                   state = {"a.h", "__device__ int n;\n"},
                   deep = {"a.h", "#include \"b.h\"\n"};
  ons_module_options with = ONS_MODULE_OPTIONS_INIT, unlike = with;
  with.headers = &plain;
  unlike.headers = &other;
  with.header_count = unlike.header_count = 1;
  cr_expect(are_one(own, &with, own, &with));
  cr_expect(not(are_one(own, &with, own, &unlike)), "case 36");
  with.headers = &state;
  cr_expect(not(are_one(own, &with, own, &with)));
  with.headers = &deep;
  cr_expect(not(are_one(own, &with, own, &with)));
  static const char* const folders[] = {"-I.", "-includea.h", "--pre-include=a.h", "@f"};
  for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); ++i) {
    ons_module_options options = ONS_MODULE_OPTIONS_INIT;
    options.options = &folders[i];
    options.option_count = 1;
    cr_expect(not(are_one(system, &options, system, &options)), "%s", folders[i]);
    cr_expect(eq(int, are_one(K, &options, K, &options), i == 0), "%s", folders[i]);
  }
}

static bool is_compiled(const ons_module* module) {
  return module->plain->images != NULL;
}

Test(module_table, keeps_what_was_compiled_for_the_next) {
  const DLDevice cpu = {kDLCPU, 0};
  ons_module* module = create(K, NULL);
  const ons_status status = ons_module_prepare(module, cpu, NULL, &error);
  if (status == ONS_STATUS_UNAVAILABLE) {
    ons_module_release(module);
    cr_skip_test("%s", error.message);
  }
  cr_assert(eq(int, status, 0), "%s", error.message);
  ons_module_release(module);
  module = create(K, NULL);
  cr_expect(is_compiled(module));
  ons_module_release(module);
}

static ons_module* create_numbered(int number) {
  char source[128];
  snprintf(source, sizeof(source), "#define N %d\n" K, number);
  return create(source, NULL);
}

Test(module_table, keeps_some_that_nobody_holds) {
  int lives[3];
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 40 * (round + 1); ++i) ons_module_release(create_numbered(i));
    lives[round] = atomic_load(&live);
  }
  cr_expect(eq(int, lives[1], lives[0]));
  cr_expect(eq(int, lives[2], lives[1]));
}

Test(module_table, grows_with_the_modules_that_are_held) {
  enum { COUNT = 300 };
  ons_module* modules[COUNT];
  for (int i = 0; i < COUNT; ++i) modules[i] = create_numbered(i);
  for (int i = 0; i < COUNT; ++i) {
    ons_module* same = create_numbered(i);
    cr_expect(eq(ptr, same, modules[i]));
    ons_module_release(same);
  }
  for (int i = 0; i < COUNT; ++i) ons_module_release(modules[i]);
}

static void* create_and_release(void* unused) {
  for (int i = 0; i < 3000; ++i) {
    ons_module* module = create_numbered(i % 20);
    const char* name = ons_module_kernel_name(module, 0);
    if (!name || *name != 'k') return (void*)1;
    ons_module_release(module);
  }
  return unused;
}

Test(module_table, is_for_many_threads) {
  pthread_t threads[8];
  for (int i = 0; i < 8; ++i) pthread_create(&threads[i], NULL, create_and_release, NULL);
  for (int i = 0; i < 8; ++i) {
    void* bad = NULL;
    pthread_join(threads[i], &bad);
    cr_expect(eq(ptr, bad, NULL));
  }
}

Test(module_table, a_module_outlives_the_callers_runtime) {
  ons_module* module = create(K, NULL);
  ons_runtime_release(runtime);
  cr_expect(eq(str, (char*)ons_module_kernel_name(module, 0), "k"));
  ons_module_release(module);
  cr_expect(eq(int, atomic_load(&live), 0));
  open_runtime();
}
