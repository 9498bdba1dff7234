/* Which device headers a source gets. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "jit/cpu_headers.h"

static bool gets(const ons__compile_request* request, const char* name) {
  for (size_t i = 0; i < ons__cpu_prelude_count; ++i) {
    if (!strcmp(ons__cpu_prelude[i].header.name, name))
      return ons__cpu_part_is_needed(&ons__cpu_prelude[i], request);
  }
  cr_assert(false, "there is no %s", name);
  return false;
}

static bool source_gets(const char* source, const char* name) {
  const ons__compile_request request = {.source = source};
  return gets(&request, name);
}

Test(cpu_headers, a_plain_source_gets_no_more_than_the_core) {
  const char* source =
      "#include <cstdint>\n#include <math.h>\n#include <cuda_fp16.h>\n"
      "__global__ void k(float* x) { x[threadIdx.x] = __expf(x[0]); }";
  for (size_t i = 0; i < ons__cpu_prelude_count; ++i) {
    const ons__cpu_part* part = &ons__cpu_prelude[i];
    cr_expect(eq(int, source_gets(source, part->header.name), part->words == NULL), "%s",
              part->header.name);
  }
}

Test(cpu_headers, a_name_brings_its_own) {
  static const char* const cases[][2] = {
      {"atomicAdd_block(p, 1)", "onstream/cpu_atomics.h"},
      {"__popc(x)", "onstream/cpu_integers.h"},
      {"__float2int_rn(x)", "onstream/cpu_rounding.h"},
      {"__fsqrt_ru(x)", "onstream/cpu_rounding.h"},
      {"__vadd4(x, y)", "onstream/cpu_simd.h"},
      {"erfcinvf(x)", "onstream/cpu_special.h"},
      {"__shfl_sync(m, x, 0)", "onstream/cpu_warp.h"}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
    cr_expect(source_gets(cases[i][0], cases[i][1]), "%s", cases[i][0]);
    cr_expect(not(source_gets(cases[i][0], cases[(i + 4) % 7][1])), "%s", cases[i][0]);
  }
}

Test(cpu_headers, what_is_not_seen_may_need_all) {
  static const char* const sources[] = {
      "#include \"mine.cuh\"", "#include <mine.h>",       "#include MINE",
      "#  include\t<a/b>",     "#define NAME(x) __po##x", "# include <cuda/std/array>"};
  for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); ++i) {
    cr_expect(source_gets(sources[i], "onstream/cpu_simd.h"), "%s", sources[i]);
  }
}

Test(cpu_headers, headers_in_memory_and_options_are_seen) {
  const ons_header mine = {"mine.cuh", "#define COUNT(x) __popc(x)"};
  const char* option = "-DADD(x,y)=__vadd2(x,y)";
  ons__compile_request request = {.source = "#include \"mine.cuh\"\n",
                                  .headers = &mine,
                                  .header_count = 1,
                                  .options = &option,
                                  .option_count = 1};
  cr_expect(gets(&request, "onstream/cpu_integers.h"));
  cr_expect(gets(&request, "onstream/cpu_simd.h"));
  cr_expect(not(gets(&request, "onstream/cpu_atomics.h")));
  cr_expect(not(ons__cpu_source_reaches_out(&request)));
  request.header_count = 0;
  cr_expect(ons__cpu_source_reaches_out(&request));
}
