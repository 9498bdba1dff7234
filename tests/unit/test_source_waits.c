/* Who may wait. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/source_waits.h"

/* `names` are separated by blanks; each ends in '!' where it is to be suspected. */
static void expect_of(ons__suspicion suspicion, const char* source, const char* names) {
  const char* texts[] = {source, ""};
  ons__suspects* suspects = ons__suspects_create(NULL, suspicion, texts, 2, false);
  cr_assert(ne(ptr, suspects, NULL));
  char copy[256];
  strcpy(copy, names);
  for (char* name = strtok(copy, " "); name; name = strtok(NULL, " ")) {
    const size_t last = strlen(name) - 1;
    const bool expected = name[last] == '!';
    if (expected) name[last] = '\0';
    cr_expect(eq(int, ons__suspects_has(suspects, name), expected), "%s in\n%s", name,
              source);
  }
  ons__suspects_destroy(suspects);
}

static void expect(const char* source, const char* names) {
  expect_of(ONS__SUSPECT_WAITS, source, names);
}

#define K "__global__ void k(float* x) "

Test(source_waits, kernels_by_themselves) {
  expect(K "{ x[0] = 1; }", "k");
  expect(K
         "{ __syncthreads(); }"
         "__global__ void l(int n) { n = 0; }",
         "k! l");
  expect(K "{ x[0] = __shfl_down_sync(~0u, x[0], 1); }", "k!");
  expect(K "{ auto g = cooperative_groups::this_thread_block(); g.sync(); }", "k!");
  expect(
      "namespace n { template <class T, int N = (1 > 0)> __global__ "
      "void __launch_bounds__(256) k(T* x) { __syncwarp(); } void m(T* x) {} }",
      "n::k<float>! n::m<float> n");
  expect("// __syncthreads()\n" K "{ printf(\"__syncthreads\"); }", "k");
}

Test(source_waits, through_functions) {
  expect(
      "__device__ void f() { __syncthreads(); }\n__device__ void g(int i) { f(); }\n"
      "__device__ void h() {}\n" K "{ g(1); }\n__global__ void l(float* x) { h(); }",
      "k! l g! h");
  expect(K "{ f(); }\n__device__ void f();\n__device__ void f() { __syncthreads(); }",
         "k!");
  expect("struct s { int n; void f() const { __syncthreads(); } void g() {} };\n" K
         "{ s a; a.g(); } __global__ void l(int* x) { other o; o.g(); }",
         "k! l!"); /* whose g() it is, is not told apart */
  expect(
      "struct s { void f(); };\nvoid s::f() { __syncthreads(); }\n"
      "template <class O> __global__ void k(O o) { o(); }",
      "k<s>! k<t>");
  expect("using a = cooperative_groups::grid_group;\nusing b = c<a>;\ntypedef b d;\n" K
         "{ d e; }",
         "k!");
  expect("namespace cg = cooperative_groups;\n" K "{ cg::f(); }", "k!");
  expect("void (*table[])() = {f, g}; void f() { __syncthreads(); }\n" K
         "{ table[0](); }",
         "k!");
}

Test(source_waits, through_macros) {
  expect("#define A __syncthreads()\n#define B 1\n" K
         "{ A; }\n"
         "__global__ void l(int* x) { x[0] = B; }",
         "k! l");
  expect(
      "#define KERNEL(name, T) __global__ void name(T* x) { __syncthreads(); }\n"
      "KERNEL(a, float)\nKERNEL(b, int)\n__global__ void c(int* x) { x[0] = 1; }",
      "a! b!");
  expect("#define KERNEL(n) __global__ void k_##n() { __syncthreads(); }\nKERNEL(a)",
         "k_a!");
  expect("#define X \\\n  __syncthreads \\\n ()\n#define Y 2\n" K "{ X; }", "k!");
  expect("#define ONE 1\n#define TWO __syncthreads()\n" K "{ x[0] = ONE; }",
         "k ONE TWO!");
}

Test(source_waits, branches) {
  expect("#if A\n__device__ void f(int i) {\n#else\n__device__ void f() {\n#endif\n}\n" K
         "{ __syncthreads(); }\n__global__ void l(int* x) { f(); }",
         "k! l");
}

Test(source_waits, memory_and_indices) {
  expect_of(ONS__SUSPECT_SHARED, K "{ __shared__ int s[3]; }\nvoid l() {}", "k! l");
  expect_of(ONS__SUSPECT_INDEX,
            K "{ x[threadIdx.x] = 1; }\nvoid l() { i = ons_cpu_joint_threadIdx.x; }",
            "k! l");
  expect_of(ONS__SUSPECT_INDEX,
            "#define CAT(a, b) a##b\nvoid l() { CAT(thread, Idx).x; }", "l!");
}

Test(source_waits, what_is_not_there) {
  const char* texts[] = {K "{ x[0] = 1; }"};
  ons__suspects* suspects =
      ons__suspects_create(NULL, ONS__SUSPECT_WAITS, texts, 1, true);
  cr_expect(ons__suspects_has(suspects, "k"));
  ons__suspects_destroy(suspects);
  ons__suspects_destroy(NULL);
}

/* Chains longer than the passes over the text, more words than the table: all are
 * suspected, in time. */
Test(source_waits, hostile, .timeout = 20) {
  enum { kFunctions = 20000 };
  char* source = malloc(kFunctions * 64);
  char* at = source;
  for (int i = 0; i < kFunctions; ++i) {
    at += sprintf(at, "void f%d() { f%d(); }\n", i, i + 1);
  }
  sprintf(at, "void f%d() { __syncthreads(); }\nvoid g() {}", kFunctions);
  expect(source, "f0! g!");
  memset(source, '{', kFunctions * 32);
  strcpy(source + kFunctions * 32, "void k() { __syncthreads(); }");
  expect(source, "");
  free(source);
}

Test(source_waits, fragments) {
  static const char source[] =
      "#define A(x) x ## __sync \\\n ( \ntemplate <class T> struct s { ~s(); }; using b "
      "= "
      "s<int>; } ) ( __syncthreads(); R\"(";
  char text[sizeof(source)];
  for (size_t begin = 0; begin < sizeof(source); ++begin) {
    for (size_t length = 0; begin + length < sizeof(source); ++length) {
      memcpy(text, source + begin, length);
      text[length] = '\0';
      const char* texts[] = {text};
      ons__suspects_destroy(
          ons__suspects_create(NULL, ONS__SUSPECT_WAITS, texts, 1, false));
    }
  }
}
