/* Finding kernels in source text. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jit/source_scan.h"
#include "runtime/base/string.h"

/* "ns::f(a, b); g template(-)": names, then what is remarkable, then the parameters'
 * names. */
static void describe(const ons__scanned_kernel* kernel, ons__string* text) {
  if (text->length) ons__string_append(text, "; ");
  ons__string_append(text, kernel->name);
  if (kernel->is_template) ons__string_append(text, " template");
  if (kernel->is_overloaded) ons__string_append(text, " overloaded");
  ons__string_append(text, "(");
  for (size_t i = 0; i < kernel->parameter_count; ++i) {
    if (i) ons__string_append(text, ", ");
    ons__string_append(text,
                       kernel->parameter_names[i] ? kernel->parameter_names[i] : "-");
  }
  ons__string_append(text, ")");
}

static void expect(const char* source, const char* expected) {
  ons__source_scan scan;
  ons__string text;
  ons__string_init(&text, NULL);
  cr_assert(ons__source_scan_run(NULL, source, &scan));
  for (size_t i = 0; i < scan.kernel_count; ++i) describe(&scan.kernels[i], &text);
  cr_assert_str_eq(ons__string_text(&text), expected, "found '%s', not '%s', in:\n%s",
                   ons__string_text(&text), expected, source);
  ons__string_clear(&text);
  ons__source_scan_clear(&scan);
}

Test(source_scan, plain_kernels) {
  expect("", "");
  expect("void f(int a) {}", "");
  expect("__global__ void f() {}", "f()");
  expect("__global__ void f(void) {}", "f()");
  expect(
      "extern \"C\" __global__ void axpy(float a, const float* x, float* out, long long "
      "n) {\n"
      "  if (n) out[0] = a * x[0];\n}\n"
      "__global__ void g(int k) { { } }",
      "axpy(a, x, out, n); g(k)");
  expect("extern \"C\" { __global__ void f(int a) {} } __global__ void g(int b) {}",
         "f(a); g(b)");
}

Test(source_scan, specifiers_and_attributes) {
  expect("static __global__ void f(int a) {}", "f(a)");
  expect("__global__ static void f(int a) {}", "f(a)");
  expect("__global__ inline void __launch_bounds__(256, 2) f(int a) {}", "f(a)");
  expect("__global__ __launch_bounds__(256) void f(int a) {}", "f(a)");
  expect("__launch_bounds__(256) __global__ void f(int a) {}", "f(a)");
  expect("__global__ void __cluster_dims__(2, 1, 1) f(int a) {}", "f(a)");
  expect("__global__ void __launch_bounds__((int)(N * 2)) f(int a) {}", "f(a)");
  expect("[[maybe_unused]] __global__ void f(int a) {}", "f(a)");
  expect("__global__ [[gnu::used]] void f [[x(1)]] (int a) {}", "f(a)");
  expect("__attribute__((used)) __global__ __attribute__((noinline)) void f(int a) {}",
         "f(a)");
  expect("__global__ void f(int a) noexcept {}", "f(a)");
  expect("__global__ void f(int a) __attribute__((used)) {}", "f(a)");
  expect("__global__ auto f(int a) -> void {}", "f(a)");
  expect("__global__ void MY_BOUNDS(kThreads, 2) f(int a) {}", "f(a)");
  expect("EXPORT __global__ void BOUNDS f(int a) TRAILER {}", "f(a)");
}

Test(source_scan, parameter_names) {
  expect(
      "__global__ void f(float* __restrict__ x, const float *__restrict__ y, int n[4]) "
      "{}",
      "f(x, y, n)");
  expect(
      "__global__ void f(float*, int, unsigned long, const S, ns::T, Vec<int, 4>, int z) "
      "{}",
      "f(-, -, -, -, -, -, z)");
  expect("__global__ void f(const __grid_constant__ S s, struct T t, struct U) {}",
         "f(s, t, -)");
  expect("__global__ void f(Vec<float, 4> v, Vec<Vec<int, 2>, 3>* w, a::b<c, d>::e g) {}",
         "f(v, w, g)");
  expect("__global__ void f(Vec<(3 > 2), 4> v, int w) {}", "f(v, w)");
  expect("__global__ void f(void (*op)(int, float), float (&rows)[4], float (*m)[8]) {}",
         "f(op, rows, m)");
  expect(
      "__global__ void f(void (*(*op)(int))(float), int S::*p, void (S::*q)(int), int r) "
      "{}",
      "f(op, p, q, r)");
  expect(
      "__global__ void f(int a = 3, S s = {1, 2}, int b = g(1, 2), int c = T<1, 2>::x, "
      "char d = ',') {}",
      "f(a, s, b, c, d)");
  expect("__global__ void f(size_t n, uint i, float4 v, unsigned u, long long l) {}",
         "f(n, i, v, u, l)");
  expect("__global__ void f([[maybe_unused]] int a, alignas(8) int b) {}", "f(a, b)");
  expect("__global__ void f(int a, // the first, of two\n   int b /* (last) */) {}",
         "f(a, b)");
  expect("__global__ void f(float* RESTRICT x, MACRO Vec<int> v, MACRO a::B c) {}",
         "f(x, v, c)");
  expect("template <class... T> __global__ void f(int n, T... t, T&&... u) {}",
         "f template(n, t, u)");
}

Test(source_scan, namespaces) {
  expect(
      "namespace a { __global__ void f(int x) {} namespace b { __global__ void g() {} } "
      "}\n"
      "__global__ void h() {}",
      "a::f(x); a::b::g(); h()");
  expect("namespace a::b { __global__ void f() {} } __global__ void g() {}",
         "a::b::f(); g()");
  expect("namespace a { inline namespace v1 { __global__ void f() {} } }", "a::f()");
  expect("namespace a::inline v1 { __global__ void f() {} } __global__ void g() {}",
         "a::f(); g()");
  expect("inline namespace v1::b { __global__ void f() {} }", "b::f()");
  expect("namespace { __global__ void f() {} } __global__ void g() {}", "f(); g()");
  expect("namespace { namespace b { __global__ void f() {} } }", "b::f()");
  expect(
      "namespace [[deprecated]] a __attribute__((visibility(\"default\"))) { __global__ "
      "void "
      "f() {} }",
      "a::f()");
  expect("namespace b = a; using namespace c; __global__ void f() {}", "f()");
  expect("namespace a { __global__ void f(int); } __global__ void a::f(int x) {}",
         "a::f(x)");
  expect(
      "namespace a { struct S { void m() { } }; void g() { if (1) { } } } __global__ "
      "void "
      "f() {}",
      "f()");
  expect("extern \"C\" { namespace a { __global__ void f() {} } }", "a::f()");
}

Test(source_scan, templates) {
  expect("template <typename T, int N = (3 > 2)> __global__ void f(T* x) {}",
         "f template(x)");
  expect(
      "template <template <class, int> class TT, class = X<A<B>>> __global__ void f() {}",
      "f template()");
  expect(
      "template <class T> __device__ T g(T a) { return a; } __global__ void f(int a) {}",
      "f(a)");
  expect("template <class T> requires C<T> __global__ void f(T a) requires (D<T>) {}",
         "f template(a)");
  expect("template <class T> __global__ std::enable_if_t<(A<T> > 0), void> f(T a) {}",
         "f template(a)");
  expect(
      "template <class T> __global__ void f(T* x) {}\n"
      "template <> __global__ void f<int>(int* y) {}\n"
      "template __global__ void f<float>(float*);\n"
      "extern template __global__ void f<double>(double* z);\n"
      "template <> __global__ void f(char* y) {}",
      "f template(x)");
}

Test(source_scan, declarations) {
  expect("__global__ void f(int a);", "");
  expect(
      "__global__ void f(float*, int n = 3); __global__ void f(float* x, const int m) {}",
      "f(x, m)");
  expect("__global__ void f(int a) {} __global__ void f(int);", "f(a)");
  expect(
      "struct S { friend __global__ void f(int a); friend __global__ void g(int) {} };",
      "");
  expect("__global__ void f(int a) = delete;", "");
  expect("typedef int __global_t; int __global__x(int a) {}", "");
}

Test(source_scan, overloads) {
  expect("__global__ void f(int a) {} __global__ void f(float b) {}", "f overloaded(a)");
  expect("__global__ void f(int a) {} __global__ void f(int a, int b) {}",
         "f overloaded(a)");
  expect("__global__ void f(float* a) {} __global__ void f(float* b);", "f(a)");
  expect("__global__ void f(float* a) {} __global__ void f(float a) {}",
         "f overloaded(a)");
  expect("__global__ void f(M S a) {} __global__ void f(M T b) {}", "f overloaded(a)");
  expect("__global__ void f(void); __global__ void f() {}", "f()");
  expect("__global__ void f(float (*a)[3]) {} __global__ void f(float (*)[3]);", "f(a)");
  expect("__global__ void f(int*);  __global__ void f(float* a) {}", "f overloaded(a)");
  expect("namespace a { __global__ void f(int x) {} } __global__ void f(float y) {}",
         "a::f(x); f(y)");
  expect("template <class T> __global__ void f(T* x) {} __global__ void f(int* y) {}",
         "f template overloaded(x)");
}

Test(source_scan, comments_and_literals) {
  expect("// __global__ void f() {}\n/* __global__ void g() {} */ __global__ void h() {}",
         "h()");
  expect("// goes on \\\n __global__ void f() {}\n__global__ void g() {}", "g()");
  expect("const char* s = \"__global__ void f() { \\\" \\\\\"; __global__ void g() {}",
         "g()");
  expect(
      "const char* s = R\"x(__global__ void f() {} )\" \" \\)x\"; __global__ void g() {}",
      "g()");
  expect(
      "auto s = u8R\"(}\n\")\"; auto t = L\"}\"; auto u = u8'}'; __global__ void g() {}",
      "g()");
  expect("int n = 1'000; __global__ void g() {}", "g()");
  expect("char c = '{', d = '\\'', e = '\"'; int n = 1'000'000; __global__ void g() {}",
         "g()");
  expect("float x = 1.e-3f, y = 0x1p+2f, z = .5; __global__ void g() {}", "g()");
  expect("char bad = 'x; \" \n __global__ void g() {}", "g()");
  expect("/* never closed __global__ void g() {}", "");
  expect("R\"(never closed __global__ void g() {}", "");
}

Test(source_scan, line_continuations) {
  expect("__glo\\\nbal__ vo\\\r\nid k\\\r\n\\\nern(int le\\\nngth) {}", "kern(length)");
  expect("/\\\n/ __global__ void f() {}\n__global__ void g() {}", "g()");
  expect("/\\\n* __global__ void f() {} *\\\n/ __global__ void g() {}", "g()");
}

Test(source_scan, directives) {
  expect("#define K __global__ void f() {}\n__global__ void g() {}", "g()");
  expect("#define K(x) \\\n __global__ void x() {}\n__global__ void g() {}", "g()");
  expect(
      "#define A /* over\n two lines */ __global__ void f() {}\n__global__ void g() {}",
      "g()");
  expect("#error don't {\n__global__ void g() {}", "g()");
  expect("  # /* x */ define O {\n__global__ void g() {}", "g()");
  expect("#endif\nauto s = R\"( \" __global__ void f() {} )\"; __global__ void g() {}",
         "g()");
  expect("x # y __global__ void f() {}", "f()");
  expect("#include R\"(\n__global__ void g() {}", "g()");
  expect("int a; /* # */ # define\n__global__ void g() {}", "g()");
  expect("#define URL \"http://x\"  // {\n__global__ void g() {}", "g()");
}

Test(source_scan, both_branches) {
  expect(
      "#if A\n__global__ void f(int a) {}\n#else\n__global__ void g(int b) {}\n#endif\n",
      "f(a); g(b)");
  expect(
      "#ifdef A\nnamespace x {\n#else\nnamespace y {\n#endif\n__global__ void f() {}\n}\n"
      "__global__ void g() {}",
      "y::f(); g()");
  expect(
      "void h() {\n#if A\n if (x) {\n#elif B\n if (y) {\n#else\n if (z) {\n#endif\n } }\n"
      "namespace n { __global__ void f() {} }",
      "n::f()");
  expect(
      "__global__\n#if A\nvoid f(float* x)\n#else\nvoid f(float* x, int n)\n#endif\n{ }",
      "f(x, n)");
  expect(
      "#if A\n__global__ void f(float* x)\n#else\n__global__ void f(double* "
      "y)\n#endif\n{ }",
      "f overloaded(x)");
  expect("#if A\n}\n#endif\n#endif\n#else\n__global__ void g() {}", "g()");
}

Test(source_scan, braces_lost_to_macros) {
  expect("void h() { BEGIN { }\n__global__ void f() {}\n__global__ void g() {}",
         "f(); g()");
  expect("} } __global__ void f() {}", "f()");
  expect(
      "namespace n { void h() { BEGIN { }\n__global__ void f() {} }\n__global__ void g() "
      "{}",
      "n::f(); g()");
  expect("__global__ void f(int a, __global__ void g(int b) {}", "g(b)");
  expect("__global__ void f(int a; __global__ void g(int b) {}", "g(b)");
  expect("__global__ void f::(int a) {} __global__ void f::__global__ void g(int b) {}",
         "g(b)");
  expect("template <class T __global__ void g(int b) {}", "g template(b)");
}

Test(source_scan, limits) {
  ons__string source;
  ons__string_init(&source, NULL);
  for (int i = 0; i < 70; ++i) ons__string_append(&source, "namespace n { ");
  ons__string_append(&source, "__global__ void f() {}");
  for (int i = 0; i < 70; ++i) ons__string_append(&source, "}");
  ons__string_append(&source, "namespace { __global__ void g() {} } __global__ void ");
  for (int i = 0; i < 2000; ++i) ons__string_append(&source, "x");
  ons__string_append(&source, "() {} __global__ void h() {}");
  ons__source_scan scan;
  cr_assert(ons__source_scan_run(NULL, ons__string_text(&source), &scan));
  cr_assert_eq(scan.kernel_count, 3);
  cr_assert_eq(strlen(scan.kernels[0].name), 64 * strlen("n::") + 1);
  cr_assert_str_eq(scan.kernels[1].name, "g");
  cr_assert_str_eq(scan.kernels[2].name, "h");
  ons__source_scan_clear(&scan);
  ons__string_clear(&source);
}

/* Every text here makes some plausible scanner quadratic, which would take minutes. */
Test(source_scan, linear_time, .timeout = 60) {
  static const char* const kPieces[] = {"namespace n { ",
                                        "__global__ ",
                                        "__global__ void f(int a) {} ",
                                        "template <",
                                        "R\"a",
                                        "R\"x()\"",
                                        "(",
                                        "<",
                                        "#if A\n",
                                        "\\ ",
                                        "\\\n",
                                        "/* ",
                                        "'",
                                        "__global__ void f(",
                                        "__global__ void f(a<",
                                        "extern \"C\" { ",
                                        "a::",
                                        "template<template<",
                                        "friend ",
                                        "[",
                                        "#",
                                        "__global__ a ",
                                        "__global__ void f(a(*",
                                        "u8\"",
                                        "1'"};
  for (size_t i = 0; i < sizeof(kPieces) / sizeof(kPieces[0]); ++i) {
    size_t length = strlen(kPieces[i]), count = (1u << 18) / length;
    char* source = malloc(count * length + 1);
    for (size_t j = 0; j < count; ++j) memcpy(source + j * length, kPieces[i], length);
    source[count * length] = '\0';
    clock_t begin = clock();
    ons__source_scan scan;
    cr_assert(ons__source_scan_run(NULL, source, &scan));
    ons__source_scan_clear(&scan);
    cr_assert_not(ons__source_has_identifier(source, "nowhere", 7));
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    cr_assert_lt(seconds, 1.0, "'%s' took %.1f s", kPieces[i], seconds);
    free(source);
  }
}

Test(source_scan, has_identifier) {
  static const char kSource[] =
      "#define AXPY(x) \\\n  ax##py /* hidden */ \"quoted\"\n"
      "// comment\nint lon\\\nger = 'c'; u8R\"(raw)\";";
  static const char* const kPresent[] = {"AXPY",   "ax",  "py",    "x",
                                         "define", "int", "longer"};
  static const char* const kAbsent[] = {"hidden", "quoted",  "comment", "c",   "raw",
                                        "long",   "long_er", "AXP",     "u8R", ""};
  for (size_t i = 0; i < sizeof(kPresent) / sizeof(kPresent[0]); ++i) {
    const char* word = kPresent[i];
    cr_assert(ons__source_has_identifier(kSource, word, strlen(word)), "%s", word);
  }
  for (size_t i = 0; i < sizeof(kAbsent) / sizeof(kAbsent[0]); ++i) {
    const char* word = kAbsent[i];
    cr_assert_not(ons__source_has_identifier(kSource, word, strlen(word)), "%s", word);
  }
  cr_assert(ons__source_has_identifier("ns::f<int>", "f<int>", 1));
}

/* ---- memory ----------------------------------------------------------------------- */

typedef struct scarce {
  int left;
  int live;
} scarce;

static void* scarce_allocate(void* user_data, size_t size_bytes) {
  scarce* memory = user_data;
  if (memory->left == 0) return NULL;
  --memory->left;
  ++memory->live;
  return malloc(size_bytes);
}

static void scarce_free(void* user_data, void* pointer) {
  scarce* memory = user_data;
  memory->live -= pointer != NULL;
  free(pointer);
}

Test(source_scan, failing_allocations_leak_nothing) {
  static const char kSource[] =
      "#if A\nnamespace a { __global__ void f(int x, int y); template <class T> "
      "__global__ "
      "void\n#endif\ng(T* a, T) {} __global__ void f(int x, int z) {} }";
  scarce memory = {0};
  ons_allocator allocator = {&memory, scarce_allocate, scarce_free};
  ons__source_scan scan;
  int needed = 0;
  bool ok = false;
  for (; !ok; ++needed) {
    memory = (scarce){.left = needed};
    ok = ons__source_scan_run(&allocator, kSource, &scan);
    if (!ok) cr_assert_eq(memory.live, 0, "after %d allocations", needed);
  }
  cr_assert_gt(needed, 8);
  cr_assert_eq(scan.kernel_count, 2);
  ons__source_scan_clear(&scan);
  cr_assert_eq(memory.live, 0);
}

/* "T=0.dtype N=0.rank": what each argument tells. */
static void expect_deductions(const char* source, const char* expected) {
  static const char* const kKinds[] = {"", "dtype", "rank", "index", "count"};
  ons__source_scan scan;
  char text[256] = "";
  cr_assert(ons__source_scan_run(NULL, source, &scan));
  cr_assert_eq(scan.kernel_count, 1, "%s", source);
  const ons__scanned_kernel* kernel = &scan.kernels[0];
  for (size_t i = 0; i < kernel->deduction_count; ++i) {
    const ons__scanned_deduction* one = &kernel->deductions[i];
    cr_assert_lt(one->template_parameter, kernel->template_parameter_count);
    size_t used = strlen(text);
    snprintf(text + used, sizeof(text) - used, "%s%s=%u.%s", i ? " " : "",
             kernel->template_parameters[one->template_parameter].name, one->parameter,
             kKinds[one->kind]);
  }
  cr_expect_str_eq(text, expected, "%s", source);
  ons__source_scan_clear(&scan);
}

Test(source_scan, deductions) {
  expect_deductions("template <typename T> __global__ void f(const T* x, T* y, T z) {}",
                    "T=0.dtype T=1.dtype");
  expect_deductions(
      "template <class T, int N, class I = int> __global__ void f(int n,"
      " ons::view<const T, N, I> x, view<T, N> y) {}",
      "T=1.dtype N=1.rank I=1.index T=2.dtype N=2.rank");
  expect_deductions("template <class T, int N> __global__ void f(ons::ptrs<T, N> xs) {}",
                    "T=0.dtype N=0.count");
  expect_deductions(
      "template <class T> __global__ void f(T const* const __restrict__ x,"
      " T x2[], const T *) {}",
      "T=0.dtype T=1.dtype T=2.dtype");
  expect_deductions(
      "template <class T, int N> __global__ void f(ons::view<float, 3> x,"
      " my::view<T, N> y, T** z, vec<T, N>* v, int (&a)[N], T*& r) {}",
      "");
  expect_deductions(
      "template <class T, int N> __global__ void f(ons::view<vec<T>, N+1> x)"
      " {}",
      "");
  expect_deductions("__global__ void f(const T* x) {}", "");
  expect_deductions("template <class T> void g(T* x) {} __global__ void f(const T* x) {}",
                    "");
}

Test(source_scan, template_parameters) {
  ons__source_scan scan;
  cr_assert(ons__source_scan_run(
      NULL,
      "template <typename T, int N = (1 > 2), bool FLAG = false, class, typename... R,"
      " template <class> class C, unsigned long long BIG> __global__ void f(T* x) {}",
      &scan));
  cr_assert_eq(scan.kernel_count, 1);
  const ons__scanned_kernel* kernel = &scan.kernels[0];
  static const struct {
    const char* name;
    bool is_type, has_default;
  } expected[] = {{"T", true, false},   {"N", false, true},  {"FLAG", false, true},
                  {NULL, true, false},  {NULL, true, false}, {"C", false, false},
                  {"BIG", false, false}};
  cr_assert_eq(kernel->template_parameter_count, 7);
  for (size_t i = 0; i < 7; ++i) {
    const ons__scanned_template_parameter* one = &kernel->template_parameters[i];
    cr_expect((one->name == NULL) == (expected[i].name == NULL), "%zu", i);
    if (one->name && expected[i].name) cr_expect_str_eq(one->name, expected[i].name);
    cr_expect_eq(one->is_type, expected[i].is_type, "%zu", i);
    cr_expect_eq(one->has_default, expected[i].has_default, "%zu", i);
  }
  ons__source_scan_clear(&scan);
}

Test(source_scan, restrict_is_told) {
  ons__source_scan scan;
  cr_assert(ons__source_scan_run(
      NULL,
      "__global__ void f(const float* __restrict__ a, float* b, float *__restrict c,"
      " int n = sizeof(__restrict__)) {}",
      &scan));
  const uint8_t expected[] = {1, 0, 1, 0};
  cr_assert_eq(scan.kernels[0].parameter_count, 4);
  cr_expect_eq(memcmp(scan.kernels[0].parameter_is_restrict, expected, 4), 0);
  ons__source_scan_clear(&scan);
}
