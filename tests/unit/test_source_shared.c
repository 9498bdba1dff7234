/* Rewriting declarations of shared memory. That the results compile and run is in
 * test_cpu_block.c. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "jit/source_shared.h"

static void expect(const char* source, const char* expected, size_t count) {
  ons__string text;
  ons__string_init(&text, NULL);
  cr_expect(eq(sz, ons__source_shared_append(source, &text), count), "%s", source);
  cr_expect(
      eq(str, (char*)(uintptr_t)ons__string_text(&text), (char*)(uintptr_t)expected));
  ons__string_clear(&text);
}

static void expect_same(const char* source) { expect(source, source, 0); }

Test(source_shared, in_functions) {
  expect("void f() { extern __shared__ T s[]; }",
         "void f() {   T (&s)[] = ons_cpu_dynamic_memory; }", 1);
  expect("{ __shared__ extern volatile a::b<1, 2> s[][4], t[]; }",
         "{   volatile a::b<1, 2> (&s)[][4] = ons_cpu_dynamic_memory, (&t)[] = "
         "ons_cpu_dynamic_memory; }",
         1);
  expect("{ extern __shared__ __align__(16) char s[]; }",
         "{    char (&s)[] = ons_cpu_dynamic_memory; }", 1);
  expect("{ extern __shared__ float4 one; }",
         "{   float4 (&one) = ons_cpu_dynamic_memory; }", 1);
}

Test(source_shared, in_namespaces) {
  static const char* const fronts[] = {"",
                                       "namespace a::b { ",
                                       "inline namespace { ",
                                       "extern \"C\" { ",
                                       "struct s { int i; }; ",
                                       "void f() { } "};
  for (size_t i = 0; i < sizeof(fronts) / sizeof(*fronts); ++i) {
    char source[200], expected[200];
    snprintf(source, sizeof(source), "%sextern __shared__ int s[];", fronts[i]);
    snprintf(expected, sizeof(expected),
             "%sstatic thread_local  int (&s)[] = ons_cpu_dynamic_memory;", fronts[i]);
    expect(source, expected, 1);
  }
  expect("struct s { void f() { extern __shared__ int s[]; } };",
         "struct s { void f() {   int (&s)[] = ons_cpu_dynamic_memory; } };", 1);
}

Test(source_shared, branches_begin_alike) {
  expect("#if A\nvoid f(int) {\n#else\nvoid f() {\n#endif\n}\nextern __shared__ int s[];",
         "#if A\nvoid f(int) {\n#else\nvoid f() {\n#endif\n}\nstatic thread_local  int "
         "(&s)[] = ons_cpu_dynamic_memory;",
         1);
}

Test(source_shared, in_macros) {
  expect(
      "#define S(T, n) extern __shared__ T n[]\n#define E extern\nint i[2];",
      "#define S(T, n)   T (&n)[] = ons_cpu_dynamic_memory\n#define E extern\nint i[2];",
      1);
  expect("#define S \\\n extern \\\n __shared__ int s[];\n",
         "#define S \\\n  \\\n  int (&s)[] = ons_cpu_dynamic_memory;\n", 1);
}

Test(source_shared, alignas) {
  expect("__shared__ alignas(16) float s[4];",
         "__shared__ ons_cpu_alignas(16) float s[4];", 1);
  expect_same("alignas(16) __shared__ float s[4];");
}

Test(source_shared, all_else_stays) {
  expect_same("");
  expect_same("__shared__ float s[256]; extern float t[];");
  expect_same("// extern __shared__ float s[];\n\"extern __shared__ float s[];\"");
  expect_same("extern int x; void f() { __shared__ int y; }");
  expect_same("extern __shared__ int s[] = {1};"); /* the compiler's to refuse */
  expect_same("extern __shared__ {");
}

/* Whatever the bytes: nothing but what is inside of declarations is lost. */
Test(source_shared, fragments) {
  static const char source[] =
      "extern \\\n__shared__ /*;*/ __align__((16)) T<a[1]> s[sizeof(int[2])], t; } } {";
  char text[sizeof(source)];
  for (size_t begin = 0; begin < sizeof(source); ++begin) {
    for (size_t length = 0; begin + length < sizeof(source); ++length) {
      memcpy(text, source + begin, length);
      text[length] = '\0';
      ons__string out;
      ons__string_init(&out, NULL);
      const size_t count = ons__source_shared_append(text, &out);
      if (count == 0) cr_assert(zero(int, strcmp(ons__string_text(&out), text)));
      ons__string_clear(&out);
    }
  }
}
