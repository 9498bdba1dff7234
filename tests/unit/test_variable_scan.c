/* Finding variables in source text. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "jit/variable_scan.h"
#include "runtime/base/string.h"

/* "ns::a; constant b" */
static void expect(const char* source, const char* expected) {
  ons__variable_scan scan;
  ons__string text;
  ons__string_init(&text, NULL);
  cr_assert(ons__variable_scan_run(NULL, source, &scan));
  for (size_t i = 0; i < scan.count; ++i) {
    ons__string_appendf(&text, "%s%s%s", i ? "; " : "",
                        scan.variables[i].is_constant ? "constant " : "",
                        scan.variables[i].name);
  }
  cr_expect_str_eq(ons__string_text(&text), expected, "found '%s', not '%s', in:\n%s",
                   ons__string_text(&text), expected, source);
  ons__string_clear(&text);
  ons__variable_scan_clear(&scan);
}

Test(variable_scan, plain_variables) {
  expect("", "");
  expect("int a; float b[3];", "");
  expect("__device__ int a;", "a");
  expect("__constant__ float a[4];", "constant a");
  expect("__device__ __managed__ int a; __managed__ int b;", "a; b");
  expect("int __device__ a; static float __constant__ b[2][3];", "a; constant b");
  expect("__device__ const unsigned long long a = 3, b[2] = {1, f(2, 3)}, c;", "a; b; c");
  expect("__device__ float4 a{1, 2, 3, 4}; __device__ int b;", "a; b");
  expect("__device__ std::pair<int, float> a; __device__ ns::type b;", "a; b");
  expect("__device__ float* a; __device__ const float* const b = nullptr;", "a; b");
  expect("__device__ alignas(16) float a[4]; __device__ __align__(8) int b;", "a; b");
  expect("__device__ int a __attribute__((used));", "a");
}

Test(variable_scan, what_is_none) {
  expect("__device__ float f(float x) { __device__ int inner = 1; return x; }", "");
  expect("__device__ __forceinline__ int f(); __device__ int a;", "a");
  expect("template <class T> __device__ T generic; __device__ int a;", "a");
  expect("extern __device__ int elsewhere; extern \"C\" __device__ int there;", "");
  expect("struct S { static __device__ int member; }; __device__ S a;", "a");
  expect("__global__ void k() { __shared__ float s[4]; } __device__ int a;", "a");
  expect(
      "// __device__ int a;\n/* __constant__ int b; */ const char* c = \"__device__ "
      "d;\";",
      "");
  expect("#define V __device__ int v;\n__device__ int a;", "a");
  expect("using namespace ns; __device__ int a;", "a");
}

Test(variable_scan, namespaces) {
  expect("namespace n { __device__ int a; } __device__ int b;", "n::a; b");
  expect("namespace n::m { __device__ int a; namespace k { __constant__ int b; } }",
         "n::m::a; constant n::m::k::b");
  expect("inline namespace v1 { __device__ int a; }", "v1::a");
  expect("namespace { __device__ int a; }", "a");
  expect("namespace alias = n::m; __device__ int a;", "a");
  expect("extern \"C\" { __device__ int a; } __device__ int b;", "a; b");
  expect("namespace n { void f() { if (1) { } } __device__ int a; }", "n::a");
}

Test(variable_scan, each_name_once) {
  expect("#if X\n__device__ int a;\n#else\n__device__ long a;\n#endif\n__device__ int b;",
         "a; b");
}

Test(variable_scan, broken_sources) {
  expect("__device__", "");
  expect("__device__ int a", "");
  expect("__device__ int a = {", "");
  expect("} } __device__ int a; ) ] > __device__ int b;", "a; b");
  expect("__device__ int a < b ;", "a");
  expect("namespace", "");
  expect("__device__ namespace extern", "");
}

/* As many as there may be, and deeper than is looked. */
Test(variable_scan, hostile_sources) {
  enum { COUNT = 100000 };
  ons__string text;
  ons__string_init(&text, NULL);
  ons__string_append(&text, "__device__ int a");
  for (int i = 0; i < COUNT; ++i) ons__string_appendf(&text, ",v%d", i);
  ons__string_append(&text, ";");
  ons__variable_scan scan;
  cr_assert(ons__variable_scan_run(NULL, ons__string_text(&text), &scan));
  cr_expect_lt(scan.count, COUNT);
  cr_expect_not_null(ons__variable_scan_find(&scan, "v0"));
  ons__variable_scan_clear(&scan);
  ons__string_clear(&text);

  for (int i = 0; i < 100; ++i) ons__string_append(&text, "namespace n { ");
  ons__string_append(&text, "__device__ int deep; ");
  for (int i = 0; i < 100; ++i) ons__string_append(&text, "} ");
  ons__string_append(&text, "__device__ int a;");
  expect(ons__string_text(&text), "a");
  ons__string_clear(&text);
}
