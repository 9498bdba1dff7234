/* Compiling for the CPU: search, names, diagnostics, options. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu_fixture.h"
#include "jit/host_compiler.h"
#include "jit/host_options.h"
#include "jit/source_options.h"

TestSuite(host_compiler, .init = fixture_open, .fini = fixture_close, .timeout = 120);

static bool contains(const char* text, const char* part) {
  return strstr(text, part) != NULL;
}

/* Compiles and expects the status, the message to begin with `front`, and frees
 * everything. */
static void expect_failure(const char* source, const char* const* names,
                           ons_status expected, const char* front, const char* in_log,
                           const char* not_in_log) {
  ons__image* image = NULL;
  char* log = NULL;
  ons_status status = fixture_compile(source, names, NULL, NULL, &image, &log);
  cr_expect(eq(int, status, expected), "%s", error.message);
  cr_expect(eq(int, strncmp(error.message, front, strlen(front)), 0), "%s",
            error.message);
  cr_expect(eq(ptr, image, NULL));
  if (in_log) cr_expect(log && contains(log, in_log), "%s", log ? log : "no log");
  if (not_in_log) cr_expect(not(contains(log, not_in_log)), "%s", log);
  ons__free(&fixture_allocator, log);
}

static const char* signature_of(const ons__image* image, const char* name) {
  const ons__image_kernel* kernel = ons__image_find(image, name);
  return kernel ? kernel->signature : "absent";
}

Test(host_compiler, names_and_signatures) {
  static const char source[] =
      "extern \"C\" __global__ void plain(float a, const float* x, float* y, long n) {}\n"
      "namespace ns { __global__ void inside(ons::view<const float, 2> v, int8_t* q) {} "
      "}\n"
      "template <class T, int N> __global__ void scale(T* x) { x[0] *= N; }\n"
      "static __global__ void hidden() {}\n"
      "namespace { __global__ void anonymous(unsigned long long u) {} }\n"
      "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n"
      "__global__ void small(__half* a, __nv_bfloat16 b, __nv_fp8_e4m3* c, __nv_fp8_e5m2 "
      "d) {}\n"
      "__global__ void vectors(float4* a, int2 b, dim3 c) {}";
  const char* names[] = {"plain",     "ns::inside", "scale<float, 4>", "hidden",
                         "anonymous", "small",      "vectors",         NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_assert(eq(int, fixture_compile(source, names, NULL, NULL, &image, &log), 0), "%s",
            error.message);
  cr_expect(eq(str, log, ""));
  cr_assert(eq(int, image->kind, ONS__IMAGE_SHARED_OBJECT));
  cr_expect(eq(str, (char*)signature_of(image, "plain"), "FvfPKfPflE"));
  cr_expect(
      eq(str, (char*)signature_of(image, "ns::inside"), "FvN3ons4viewIKfLi2ExEEPaE"));
  cr_expect(eq(str, (char*)signature_of(image, "scale<float, 4>"), "FvPfE"));
  cr_expect(eq(str, (char*)signature_of(image, "hidden"), "FvvE"));
  cr_expect(eq(str, (char*)signature_of(image, "anonymous"), "FvyE"));
  cr_expect(eq(str, (char*)signature_of(image, "small"),
               "FvP6__half13__nv_bfloat16P13__nv_fp8_e4m313__nv_fp8_e5m2E"));
  cr_expect(eq(str, (char*)signature_of(image, "vectors"), "FvP6float44int24dim3E"));
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
}

Test(host_compiler, bad_candidates_are_dropped) {
  static const char source[] =
      "__global__ void good(int* x) { *x = 1; }\n"
      "__global__ void twice(int* x) {}\n__global__ void twice(float* x) {}\n"
      "template <class T> __global__ void bare(T* x) {}\n"
      "#if 0\n__global__ void absent() {}\n#endif\n";
  const char* names[] = {"?twice", "?good", "?bare", "?absent", "?a;b", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_assert(eq(int, fixture_compile(source, names, NULL, NULL, &image, &log), 0), "%s",
            error.message);
  cr_expect(eq(sz, image->kernel_count, 1));
  cr_expect(eq(str, (char*)signature_of(image, "good"), "FvPiE"));
  cr_expect(eq(str, log, ""));
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
}

Test(host_compiler, a_required_name_must_be_known) {
  static const char source[] =
      "__global__ void good() {}\ntemplate <class T> __global__ void bare(T* x) {}\n";
  const char* absent[] = {"?good", "absent", NULL};
  expect_failure(source, absent, ONS_STATUS_NOT_FOUND,
                 "user.cu has no kernel \"absent\": ", "", "onstream-kernel");
  const char* bare[] = {"bare", NULL};
  expect_failure(source, bare, ONS_STATUS_NOT_FOUND,
                 "user.cu has no kernel \"bare\": ", NULL, NULL);
  const char* unnamed[] = {"good\n#error x", NULL};
  expect_failure(source, unnamed, ONS_STATUS_NOT_FOUND, "user.cu has no kernel", NULL,
                 NULL);
}

Test(host_compiler, the_users_errors_come_first) {
  const char* names[] = {"?a", "?b", "?c<int>", NULL};
  expect_failure("__global__ void a(int* x) {\n  *x = 1\n}\n__global__ void b() {}\n",
                 names, ONS_STATUS_COMPILE_FAILED, "user.cu:2: expected ';'",
                 "user.cu:2:", "onstream-kernel");
  expect_failure("__global__ void a() { wrong(); }\n__global__ void b() {}\n", names,
                 ONS_STATUS_COMPILE_FAILED, "user.cu:1: ", "wrong", "cpu.h");
  /* Errors that show at the end of the file only, or in a template when it is
   * instantiated. */
  expect_failure("__global__ void a() {}\nnamespace n {\n", names,
                 ONS_STATUS_COMPILE_FAILED, "user.cu:", NULL, "onstream-kernel");
  const char* required[] = {"a", NULL};
  expect_failure("__global__ void a() {}\nnamespace n {\n", required,
                 ONS_STATUS_COMPILE_FAILED, "user.cu:", NULL, "onstream-kernel");
  expect_failure("__global__ void a() {}\n/* open\n", names, ONS_STATUS_COMPILE_FAILED,
                 "user.cu:2: unterminated", NULL, "onstream-kernel");
  expect_failure("template <class T> __global__ void c(T x) {\n  x.none();\n}", names,
                 ONS_STATUS_COMPILE_FAILED, "user.cu:2: ", NULL, "onstream-kernel");
  expect_failure("#error stop here\n", names, ONS_STATUS_COMPILE_FAILED,
                 "user.cu:1: ", "stop here", "onstream-kernel");
  expect_failure("#include <no_such_header.h>\n", names, ONS_STATUS_COMPILE_FAILED,
                 "user.cu:1: ", "no_such_header.h", NULL);
  expect_failure("void undefined(); __global__ void a() { undefined(); }", names,
                 ONS_STATUS_COMPILE_FAILED, "user.cu: ", "undefined", NULL);
}

Test(host_compiler, what_the_dialect_refuses_is_named) {
  const char* names[] = {"?a", NULL};
  expect_failure("void f() = delete;\n__global__ void a() { f(); }\n", names,
                 ONS_STATUS_COMPILE_FAILED, "user.cu:2: ", NULL, NULL);
}

Test(host_compiler, the_dialect_keeps_its_own_names_to_itself) {
  static const char source[] =
      "struct position { int here; };\n"
      "template <class T> T saturate(T x) { return x; }\n"
      "struct runner {}; struct indices {}; struct same {}; struct coordinates {};\n"
      "static void set(position& p) { p.here = 1; }\n"
      "static int here, narrow, widen;\n"
      "#include <cuda_fp8.h>\n"
      "__global__ void a(int* x) {\n"
      "  position p; set(p); runner r; indices i; same s; coordinates c; (void)r; "
      "(void)i;\n"
      "  (void)s; (void)c; *x = saturate(p.here) + here + narrow + widen;\n"
      "}\n";
  const char* names[] = {"a", NULL};
  const char* options[] = {"-DN=4", "-DM=2", "-DE=1", "-DP=0", "-DF=1", "-DT2=1", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_expect(eq(int, fixture_compile(source, names, options, NULL, &image, &log), 0), "%s",
            error.message);
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
}

Test(host_compiler, headers_in_memory) {
  static const char source[] =
      "#include <deep/er/one.h>\n#include \"two.h\"\n"
      "__global__ void a(int* x) { *x = ONE + TWO; }\n";
  ons_header headers[] = {
      {"deep/er/one.h", "#define ONE 1\n"},
      {"two.h", "#include <deep/er/one.h>\n#define TWO (ONE + ONE)\n"},
      {NULL, NULL}};
  const char* names[] = {"a", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_expect(eq(int, fixture_compile(source, names, NULL, headers, &image, &log), 0), "%s",
            error.message);
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);

  headers[1].content = "#define TWO 2\nint x = ;\n";
  cr_expect(eq(int, fixture_compile(source, names, NULL, headers, &image, &log),
               ONS_STATUS_COMPILE_FAILED));
  cr_expect(eq(int, strncmp(error.message, "two.h:2: ", 9), 0), "%s", error.message);
  ons__free(&fixture_allocator, log);

  headers[1].name = "../two.h";
  cr_expect(eq(int, fixture_compile(source, names, NULL, headers, &image, &log),
               ONS_STATUS_INVALID_ARGUMENT));
  ons__free(&fixture_allocator, log);
}

/* Our own headers are written only where a source may include them. */
Test(host_compiler, own_headers_however_they_are_asked_for) {
  static const char* const sources[] = {
      "#include <cuda_fp16.h>\n__global__ void a(half* h) { *h = 1; }",
      "#inc\\\nlude <cuda_fp8.h>\n__global__ void a(__nv_fp8_e4m3* h) { (void)h; }",
      "#include <onstream/kernel.h>\n__global__ void a(ons::view<float, 1> v) { v(0) = "
      "1; }",
      "#ifdef __has_include\n#if !__has_include(<cuda_bf16.h>)\n#error none\n#endif\n"
      "#endif\n__global__ void a() {}",
      "__global__ void a(half* h) { *h = 1; }"};
  const char* names[] = {"a", NULL};
  const char* options[] = {"-include", "cuda_fp16.h", NULL};
  for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); ++i) {
    ons__image* image = NULL;
    char* log = NULL;
    cr_expect(eq(int,
                 fixture_compile(sources[i], names, i == 4 ? options : NULL, NULL, &image,
                                 &log),
                 0),
              "%zu: %s", i, error.message);
    ons__image_destroy(image);
    ons__free(&fixture_allocator, log);
  }
}

Test(host_compiler, options_spelt_for_nvrtc) {
  static const char source[] =
      "static_assert(A == 1 && B == 2 && C == 3, \"\");\n"
      "#if __cplusplus < 202000\n#error C++20 was asked for\n#endif\n"
      "__global__ void a() {}\n";
  const char* options[] = {"-DA=1",
                           "-D",
                           "B=2",
                           "--define-macro=C=3",
                           "-std=c++20",
                           "-arch=sm_90",
                           "-arch",
                           "sm_90",
                           "-lineinfo",
                           "--use_fast_math",
                           "-default-device",
                           "--gpu-architecture=compute_90",
                           "-rdc=true",
                           "--maxrregcount=32",
                           "-Xptxas",
                           "-v",
                           NULL};
  const char* names[] = {"a", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_expect(eq(int, fixture_compile(source, names, options, NULL, &image, &log), 0), "%s",
            error.message);
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);

  const char* unknown[] = {"--no-such-option", NULL};
  cr_expect(eq(
      int, fixture_compile("__global__ void a() {}", names, unknown, NULL, &image, &log),
      ONS_STATUS_COMPILE_FAILED));
  cr_expect(contains(error.message, "no-such-option"), "%s", error.message);
  ons__free(&fixture_allocator, log);
}

static void expect_options(const char* given, const char* expected) {
  ons__words options, words;
  ons__words_init(&options, NULL);
  ons__words_init(&words, NULL);
  ons__words_append_split(&options, given, " ");
  cr_expect(eq(int,
               ons__host_options_append_user(&words, (const char* const*)options.items,
                                             options.count, &error),
               0),
            "%s", given);
  char text[512] = "";
  for (size_t i = 0; i < words.count; ++i) {
    size_t length = strlen(text);
    snprintf(text + length, sizeof(text) - length, "%s%s", i ? " " : "", words.items[i]);
  }
  cr_expect(eq(str, text, (char*)expected), "%s", given);
  ons__words_clear(&options);
  ons__words_clear(&words);
}

Test(host_compiler, options_of_devices_alone_are_left_out) {
  /* All that NVRTC 13 documents, in both of its spellings, and what is nvcc's. */
  static const char* const dropped[] = {
      "--gpu-architecture=sm_90 --gpu-architecture sm_90 -arch=sm_90 -arch sm_90",
      "--device-c -dc --device-w -dw --extensible-whole-program -ewp",
      "--relocatable-device-code=true --relocatable-device-code true -rdc=true -rdc true",
      "--generate-line-info -lineinfo --dopt=on -dopt=on -dopt --minimal -minimal",
      "--Ofast-compile=max -Ofc=min --Ofast-compile max -Ofc min",
      "--ptxas-options=-v --ptxas-options -v -Xptxas=-O1 -Xptxas -O1",
      "--maxrregcount=32 -maxrregcount 32 --ftz=true -ftz=true --prec-sqrt=true",
      "-prec-sqrt=false --prec-div=true -prec-div false --fmad=true -fmad=true",
      "--extra-device-vectorization --modify-stack-limit=false -modify-stack-limit false",
      "--dlink-time-opt -dlto --gen-opt-lto -gen-opt-lto --optix-ir -optix-ir",
      "--jump-table-density=101 -jtd=5 -jtd 5 --no-cache -no-cache --frandom-seed=a",
      "--device-stack-protector=true -device-stack-protector false -frandom-seed=a",
      "--no-source-include -no-source-include --builtin-move-forward=true",
      "-builtin-move-forward false --builtin-initializer-list=true --pch -pch",
      "--create-pch=a -create-pch=a --use-pch=a -use-pch=a --pch-dir=/a -pch-dir=/a",
      "--pch-verbose=true -pch-messages=false --instantiate-templates-in-pch=true",
      "--restrict -restrict --device-as-default-execution-space -default-device",
      "--device-int128 -device-int128 --device-float128 --optimization-info=inline",
      "-opt-info=inline --display-error-number -err-no --no-display-error-number",
      "-no-err-no --diag-error=1,2 -diag-error 1 --diag-suppress=1 -diag-suppress 177",
      "--diag-warn=1 -diag-warn=1 --brief-diagnostics=true -brief-diag=true",
      "--time=a.csv -time=a.csv --split-compile=2 -split-compile=2 --version-ident=true",
      "--fdevice-syntax-only -fdevice-syntax-only --fdevice-time-trace=a",
      "--expt-relaxed-constexpr --extended-lambda -expt-extended-lambda --threads 4",
      "-gencode arch=compute_90,code=sm_90 --generate-code=arch=compute_90 -code=sm_90",
      "-Xcudafe --display_error_number -forward-unknown-to-host-compiler"};
  for (size_t i = 0; i < sizeof(dropped) / sizeof(*dropped); ++i) {
    expect_options(dropped[i], "");
  }
}

Test(host_compiler, options_of_both_are_translated) {
  expect_options("--define-macro=A=1 --define-macro B -DC=2 -D D -D=E=3", "");
  expect_options("--undefine-macro=A --undefine-macro B -UC -U D -U=E", "");
  expect_options("-U_FORTIFY_SOURCE -D=_FORTIFY_SOURCE=2 -D NDEBUG --define-macro=__A",
                 "-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -DNDEBUG -D__A");
  expect_options("--include-path=/a --include-path /b -I/c -I /d -I=/e",
                 "-I/a -I/b -I/c -I/d -I/e");
  expect_options("--pre-include=a.h --pre-include b.h -include c.h -include=d.h", "");
  expect_options("--std=c++20 -std=c++14", "-std=c++20 -std=c++14");
  expect_options("-G --device-debug -w --disable-warnings",
                 "-g -O0 -DONS_CPU_DEBUG -g -O0 -DONS_CPU_DEBUG -w -w");
  expect_options("--fmad=false -fmad=false", "-ffp-contract=off -ffp-contract=off");
  expect_options("-Xcompiler -Wall,-fwrapv --compiler-options=-O2", "-Wall -fwrapv -O2");
  expect_options("-Xptxas", ""); /* its value is missing */
}

static void expect_lines(const char* const* options, const char* expected) {
  size_t count = 0;
  while (options[count]) ++count;
  ons__string text;
  ons__string_init(&text, NULL);
  ons__source_options_append(options, count, &text);
  cr_expect(eq(str, (char*)ons__string_text(&text), (char*)expected));
  ons__string_clear(&text);
}

Test(host_compiler, macros_become_lines_of_the_source) {
  const char* const macros[] = {"-DA",      "--pre-include=a.h",
                                "-D",       "B=2=3",
                                "-UA",      "--define-macro=C=",
                                "-D=D",     "-DF(x)=(x)",
                                "-DG=\\",   "--undefine-macro",
                                "D",        "-DH=1\n#error",
                                "-include", "b.h",
                                "-DNDEBUG", "-O2",
                                "-D",       NULL};
  expect_lines(macros,
               "#line 1 \"<options>\"\n"
               "#define A 1 /**/\n#define B 2=3 /**/\n#undef A /**/\n#define C  /**/\n"
               "#define D 1 /**/\n#define F(x) (x) /**/\n#define G \\ /**/\n"
               "#undef D /**/\n#define H 1 /**/\n"
               "#include \"a.h\" /**/\n#include \"b.h\" /**/\n");
  const char* const none[] = {"-O2", "-device", "--include-path=x", "D", "-D__A=1", NULL};
  expect_lines(none, "");
}

static void expect_refused(const char* first, const char* second, const char* named) {
  const char* names[] = {"a", NULL};
  const char* options[] = {first, second, NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_expect(
      eq(int,
         fixture_compile("__global__ void a() {}", names, options, NULL, &image, &log),
         ONS_STATUS_COMPILE_FAILED),
      "%s", first);
  cr_expect(contains(error.message, named), "%s", error.message);
  cr_expect(not(contains(error.message, "No such file")), "%s", error.message);
  ons__free(&fixture_allocator, log);
  ons__image_destroy(image);
}

Test(host_compiler, options_that_keep_the_module_from_being_written) {
  static const char* const refused[] = {"-c",  "-E",        "-S",     "-fsyntax-only",
                                        "-MM", "--version", "-ofile", "--output=file",
                                        "-M",  "--help",    "-###"};
  for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); ++i) {
    expect_refused(refused[i], NULL, refused[i]);
  }
  expect_refused("-o", "file", "the option -o keeps the compiler");
  expect_refused("-Xcompiler", "-O1,-c", "the option -c keeps the compiler");
  expect_refused("-print-search-dirs", NULL, "wrote no module");
  expect_refused("-D", NULL, "the option -D has no value");
  expect_refused("-D", "", "the option -D has no value");
  expect_refused("-I", "", "the option -I has no value");
  expect_refused("-isystem", NULL, "isystem"); /* must not take our -o */
}

/* Names that our own headers use: members, parameters, locals, functions. */
static const char* const hostile[] = {"block",
                                      "thread",
                                      "here",
                                      "block_size",
                                      "grid_size",
                                      "is_out",
                                      "position",
                                      "data",
                                      "shape",
                                      "rank",
                                      "strides",
                                      "size",
                                      "index",
                                      "count",
                                      "offset",
                                      "at",
                                      "value",
                                      "bytes",
                                      "set",
                                      "run",
                                      "kernel",
                                      "signature",
                                      "describe",
                                      "runner",
                                      "parameter",
                                      "first",
                                      "last",
                                      "launch",
                                      "grid",
                                      "values",
                                      "from",
                                      "to",
                                      "old",
                                      "update",
                                      "word",
                                      "result",
                                      "saturate",
                                      "view",
                                      "coordinates",
                                      "flag",
                                      "type",
                                      "name",
                                      "always_inline",
                                      "noinline",
                                      "aligned",
                                      "visibility",
                                      "d",
                                      "i",
                                      "I",
                                      "T",
                                      "N",
                                      "P",
                                      "Index",
                                      "Dtype",
                                      "bits",
                                      "is_guarded"};
enum { HOSTILE_COUNT = sizeof(hostile) / sizeof(*hostile) };

Test(host_compiler, no_macro_of_the_user_reaches_our_headers) {
  static const char body[] =
      "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n"
      "__global__ void __launch_bounds__(64) k(float* out_, int n_) {\n"
      "  int t_ = blockIdx.x * blockDim.x + threadIdx.x + 0 * gridDim.x;\n"
      "  if (t_ < n_) out_[t_] = __expf(out_[t_]) + block;\n"
      "  if (threadIdx.y >= 7) return;\n"
      "}\n__forceinline__ void f_() {}\n__noinline__ void g_() {}\n";
  static char options_text[HOSTILE_COUNT][40];
  const char* options[HOSTILE_COUNT + 1] = {0};
  ons__string source;
  ons__string_init(&source, NULL);
  for (size_t i = 0; i < HOSTILE_COUNT; ++i) {
    snprintf(options_text[i], sizeof(options_text[i]), "-D%s=4", hostile[i]);
    options[i] = options_text[i];
    ons__string_appendf(&source, "#define %s 4\n", hostile[i]);
  }
  ons__string_append(&source, strstr(body, "__global__"));
  const char* names[] = {"k", NULL};
  const char* const sources[] = {body, source.data};
  for (int i = 0; i < 2; ++i) {
    ons__image* image = NULL;
    char* log = NULL;
    cr_expect(
        eq(int,
           fixture_compile(sources[i], names, i ? NULL : options, NULL, &image, &log), 0),
        "%s", error.message);
    cr_expect(eq(str, log, ""));
    ons__image_destroy(image);
    ons__free(&fixture_allocator, log);
  }
  ons__string_clear(&source);
}

Test(host_compiler, what_is_included_first_sees_the_macros) {
  const ons_header headers[] = {{"first.h", "#if A != 1\n#error\n#endif\n#define B A\n"},
                                {NULL, NULL}};
  const char* options[] = {"-include", "first.h", "-DA=1", NULL};
  const char* names[] = {"k", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_expect(eq(int,
               fixture_compile("static_assert(B == 1, \"\"); __global__ void k() {}",
                               names, options, headers, &image, &log),
               0),
            "%s", error.message);
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
  options[1] = "absent.h";
  cr_expect(eq(
      int, fixture_compile("__global__ void k() {}", names, options, NULL, &image, &log),
      ONS_STATUS_COMPILE_FAILED));
  cr_expect(contains(error.message, "<options>:2: "), "%s", error.message);
  cr_expect(contains(error.message, "absent.h"), "%s", error.message);
  ons__free(&fixture_allocator, log);
}

static void expect_only_declared(void) {
  static const char source[] =
      "__global__ void k(int); __global__ void g(int) {}\n"
      "namespace ns { template <class T> __global__ void t(T*); }\n";
  const char* g[] = {"g", "?k", "?ns::t<float>", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_assert(eq(int, fixture_compile(source, g, NULL, NULL, &image, &log), 0), "%s",
            error.message);
  cr_expect(eq(sz, image->kernel_count, 1));
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
  const char* k[] = {"k", "?g", NULL};
  expect_failure(source, k, ONS_STATUS_NOT_FOUND,
                 "user.cu has no kernel \"k\": is it only declared, and not defined?",
                 NULL, NULL);
  const char* t[] = {"ns::t<float>", NULL};
  expect_failure(source, t, ONS_STATUS_NOT_FOUND,
                 "user.cu has no kernel \"ns::t<float>\": is it only declared", NULL,
                 NULL);
}

Test(host_compiler, kernels_that_are_only_declared) {
  expect_only_declared();
  fixture_close();
  setenv("ONSTREAM_HOST_COMPILER", "g++", 1);
  fixture_open();
  expect_only_declared();
}

Test(host_compiler, a_kernel_of_many_parameters_is_no_trouble) {
  ons__string source;
  ons__string_init(&source, NULL);
  ons__string_append(&source, "__global__ void good() {}\n__global__ void wide(int a");
  for (int i = 0; i < 1500; ++i) ons__string_appendf(&source, ", char a%d", i);
  ons__string_append(&source, ") {}\n");
  const char* names[] = {"good", "wide", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_assert(eq(int, fixture_compile(source.data, names, NULL, NULL, &image, &log), 0),
            "%s", error.message);
  cr_expect(eq(sz, image->kernel_count, 2));
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
  ons__string_clear(&source);
}

Test(host_compiler, a_temporary_folder_that_is_not_there) {
  setenv("TMPDIR", "/nowhere", 1);
  const char* names[] = {"a", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_expect(
      eq(int, fixture_compile("__global__ void a() {}", names, NULL, NULL, &image, &log),
         0),
      "%s", error.message);
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
}

Test(host_compiler, all_other_options_are_the_compilers) {
  static const char others[] =
      "-Wall -Wno-unused -Wreorder -fwrapv -fno-inline -march=native -mavx2 -O1 -O3 -g "
      "-isystem /a -L/b -lm --no-such-option -arch64 -restricted -fmadness";
  expect_options(others, others);
}

Test(host_compiler, fast_math_never_reaches_the_linker) {
  /* With it GCC links code that changes the loading thread's floating-point mode. */
  const char* options[] = {"-ffast-math", "--use_fast_math", "-Ofast",
                           "-funsafe-math-optimizations"};
  ons__words words;
  ons__words_init(&words, NULL);
  cr_assert(eq(int, ons__host_options_append_user(&words, options, 4, &error), 0));
  cr_assert(ons__words_ok(&words) && words.count > 4);
  for (size_t i = 0; i < words.count; ++i) {
    for (size_t k = 0; k < 4; ++k) cr_expect(ne(str, words.items[i], (char*)options[k]));
  }
  ons__words_clear(&words);
}

Test(host_compiler, warnings_are_logged_on_success) {
  const char* names[] = {"a", NULL};
  const char* options[] = {"-Wunused-variable", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_assert(eq(int,
               fixture_compile("__global__ void a() {\n  int unused;\n}\n", names,
                               options, NULL, &image, &log),
               0));
  cr_expect(eq(int, strncmp(log, "user.cu", 7), 0), "%s", log);
  cr_expect(contains(log, "user.cu:2:7: warning: unused variable"), "%s", log);
  cr_expect(eq(str, image->log, log));
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
}

Test(host_compiler, no_folder_is_left_behind) {
  char parent[] = "/tmp/onstream-test-XXXXXX";
  cr_assert(ne(ptr, mkdtemp(parent), NULL));
  setenv("TMPDIR", parent, 1);
  const char* names[] = {"a", NULL};
  ons__image* image = NULL;
  char* log = NULL;
  cr_expect(eq(int,
               fixture_compile("__global__ void a() {}", names, NULL, NULL, &image, &log),
               0));
  ons__image_destroy(image);
  ons__free(&fixture_allocator, log);
  expect_failure("wrong", names, ONS_STATUS_COMPILE_FAILED, "user.cu:1: ", NULL, NULL);
  cr_expect(eq(int, rmdir(parent), 0), "files are left in %s", parent);
}

Test(host_compiler, odd_file_names) {
  ons__compile_request request = {.allocator = &fixture_allocator,
                                  .source = "int x = ;",
                                  .name = "a \"b\" \\c \xc3\xa4.cu",
                                  .arch = "native"};
  ons__image* image = NULL;
  char* log = NULL;
  error = (ons_error)ONS_ERROR_INIT;
  cr_expect(eq(int, backend->ops->compile(backend, &request, &image, &log, &error),
               ONS_STATUS_COMPILE_FAILED));
  cr_expect(contains(error.message, "\xc3\xa4.cu:1: "), "%s", error.message);
  ons__free(&fixture_allocator, log);
}

/* ---- the search ------------------------------------------------------------------- */

static int locate_gcc(void* user_data, ons_locate_what what, char* out_path,
                      size_t capacity) {
  ++*(int*)user_data;
  if (what != ONS_LOCATE_HOST_COMPILER) return 0;
  snprintf(out_path, capacity, "/usr/bin/env\nLOCATED=1\n/usr/bin/g++");
  return 1;
}

static ons_status search(const char* explicit_command, ons_locate_fn locate,
                         void* user_data, ons__host_command* out_command) {
  ons__host_search_options options = {.explicit_command = explicit_command,
                                      .locate = locate,
                                      .locate_user_data = user_data};
  error = (ons_error)ONS_ERROR_INIT;
  return ons__host_search(&options, out_command, &error);
}

Test(host_search, clang_comes_first) {
  unsetenv("CXX");
  unsetenv("ONSTREAM_HOST_COMPILER");
  ons__host_command command;
  cr_assert(eq(int, search(NULL, NULL, NULL, &command), 0), "%s", error.message);
  cr_expect(contains(command.words.items[0], "clang++"));
  cr_expect(eq(int, command.family, ONS__HOST_CLANG));
  ons__words_clear(&command.words);
}

Test(host_search, the_environment_chooses) {
  setenv("CXX", "env g++ -DFROM_CXX", 1);
  ons__host_command command;
  cr_assert(eq(int, search(NULL, NULL, NULL, &command), 0), "%s", error.message);
  cr_expect(eq(int, command.family, ONS__HOST_GCC));
  cr_expect(eq(sz, command.words.count, 3));
  cr_expect(eq(str, command.words.items[2], "-DFROM_CXX"));
  ons__words_clear(&command.words);

  setenv("ONSTREAM_HOST_COMPILER", "/nowhere/cc", 1); /* a wish, not a hint */
  cr_assert(eq(int, search(NULL, NULL, NULL, &command), ONS_STATUS_UNAVAILABLE));
  cr_expect(
      contains(error.message, "ONSTREAM_HOST_COMPILER /nowhere/cc: no such program"),
      "%s", error.message);
  cr_assert(eq(int, search("g++", NULL, NULL, &command), 0));
  ons__words_clear(&command.words);
}

Test(host_search, a_path_with_spaces_is_one_word) {
  char folder[] = "/tmp/onstream test XXXXXX", path[256], text[512];
  cr_assert(ne(ptr, mkdtemp(folder), NULL));
  snprintf(path, sizeof(path), "%s/my compiler", folder);
  int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
  snprintf(text, sizeof(text), "#!/bin/sh\nexec g++ \"$@\"\n");
  cr_assert(eq(int, (int)write(fd, text, strlen(text)), (int)strlen(text)));
  close(fd);
  ons__host_command command;
  cr_expect(eq(int, search(path, NULL, NULL, &command), 0), "%s", error.message);
  cr_expect(eq(sz, command.words.count, 1));
  ons__words_clear(&command.words);
  unlink(path);
  rmdir(folder);
}

Test(host_search, the_callback_is_last) {
  unsetenv("CXX");
  unsetenv("ONSTREAM_HOST_COMPILER");
  int asked = 0;
  ons__host_command command;
  cr_assert(eq(int, search(NULL, locate_gcc, &asked, &command), 0));
  cr_expect(eq(int, asked, 0));
  ons__words_clear(&command.words);

  setenv("PATH", "/nowhere", 1);
  cr_assert(eq(int, search(NULL, locate_gcc, &asked, &command), 0), "%s", error.message);
  cr_expect(eq(int, asked, 1));
  cr_expect(eq(sz, command.words.count, 3));
  cr_expect(eq(str, command.words.items[0], "/usr/bin/env"));
  ons__words_clear(&command.words);
}

Test(host_search, nothing_there_says_what_was_tried) {
  unsetenv("ONSTREAM_HOST_COMPILER");
  setenv("PATH", "/nowhere", 1);
  setenv("CXX", "/bin/false", 1);
  ons__host_command command;
  cr_assert(eq(int, search(NULL, NULL, NULL, &command), ONS_STATUS_UNAVAILABLE));
  cr_expect(contains(error.message, "CXX /bin/false: failed without a message"), "%s",
            error.message);
  cr_expect(contains(error.message, "\n  clang++: no such program"), "%s", error.message);
  cr_expect(contains(error.message, "\n  g++: no such program"), "%s", error.message);
  cr_expect(contains(error.message, "ONSTREAM_HOST_COMPILER"));
  setenv("CXX", "/bin/echo", 1);
  cr_assert(eq(int, search(NULL, NULL, NULL, &command), ONS_STATUS_UNAVAILABLE));
  cr_expect(contains(error.message, "CXX /bin/echo: is neither GCC nor clang"), "%s",
            error.message);
}
