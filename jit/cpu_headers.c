#include "jit/cpu_headers.h"

#include <string.h>

#include "jit/embedded.h"

/* Every line here costs every compile that gets it: a trivial kernel some 50 ms for all
 * of the parts with words. */
const ons__cpu_part ons__cpu_prelude[] = {
    {{"onstream/cpu_abi.h", ons__text_cpu_abi_h}, NULL},
    {{"onstream/kernel.h", ons__text_kernel_h}, NULL},
    {{"onstream/cpu.h", ons__text_cpu_h}, NULL},
    {{"onstream/cpu_threads.h", ons__text_cpu_threads_h}, NULL},
    {{"onstream/cpu_functions.h", ons__text_cpu_functions_h}, NULL},
    {{"onstream/cpu_atomics.h", ons__text_cpu_atomics_h}, "atomic"},
    {{"onstream/cpu_integers.h", ons__text_cpu_integers_h},
     "__popc __clz __ffs __brev __fns __byte_perm __funnelshift __hadd __rhadd __uhadd "
     "__urhadd __dp __mul __umul __sad __usad"},
    {{"onstream/cpu_rounding.h", ons__text_cpu_rounding_h},
     "2int_ 2uint_ 2ll_ 2ull_ int2float int2double ll2float ll2double __double2float "
     "__fadd __fsub __fmul __fma __fdiv_ __dadd __dsub __dmul __ddiv __frcp __drcp "
     "__fsqrt __dsqrt __frsqrt"},
    {{"onstream/cpu_simd.h", ons__text_cpu_simd_h},
     "__vabs __vadd __vavg __vcmp __vhadd __vi __vmax __vmin __vneg __vsad __vset "
     "__vsub"},
    {{"onstream/cpu_special.h", ons__text_cpu_special_h},
     "erfcinv erfcx erfinv norm cyl_bessel j0 j1 jn y0 y1 yn"},
    {{"onstream/cpu_warp.h", ons__text_cpu_warp_h}, "_sync __syncwarp __activemask"},
};
const size_t ons__cpu_prelude_count =
    sizeof(ons__cpu_prelude) / sizeof(ons__cpu_prelude[0]);

/* Of what these have, that which a kernel may use is there without them. */
static const char nothing[] = "\n";

const ons_header ons__cpu_own_headers[] = {
    {"onstream/kernel.h", ons__text_kernel_h},
    {"onstream/cpu_small_float.h", ons__text_cpu_small_float_h},
    {"onstream/cpu_warp.h", ons__text_cpu_warp_h},
    {"cuda_fp16.h", ons__text_cuda_fp16_h},
    {"cuda_bf16.h", ons__text_cuda_bf16_h},
    {"cuda_fp8.h", ons__text_cuda_fp8_h},
    {"cuComplex.h", ons__text_cuComplex_h},
    {"math_constants.h", ons__text_math_constants_h},
    {"cuda_pipeline.h", ons__text_cuda_pipeline_h},
    {"cuda_pipeline_primitives.h", ons__text_cuda_pipeline_h},
    {"cooperative_groups.h", ons__text_cooperative_groups_h},
    {"cooperative_groups/memcpy_async.h", ons__text_memcpy_async_h},
    {"cooperative_groups/reduce.h", ons__text_reduce_h},
    {"cooperative_groups/scan.h", ons__text_scan_h},
    {"cuda_runtime.h", nothing},
    {"cuda_runtime_api.h", nothing},
    {"device_launch_parameters.h", nothing},
    {"vector_types.h", nothing},
    {"vector_functions.h", nothing},
};
const size_t ons__cpu_own_header_count =
    sizeof(ons__cpu_own_headers) / sizeof(ons__cpu_own_headers[0]);

/* ---- what a text needs ------------------------------------------------------------ */

static bool mentions(const char* text, const char* words) {
  while (*words) {
    const size_t length = strcspn(words, " ");
    if (memmem(text, strlen(text), words, length)) return true;
    words += length + strspn(words + length, " ");
  }
  return false;
}

static bool is_among(const char* name, size_t length, const ons_header* headers,
                     size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (strlen(headers[i].name) == length && !memcmp(headers[i].name, name, length))
      return true;
  }
  return false;
}

/* C++'s own headers, and those of C's that sources include by habit, name nothing of
 * CUDA's. */
static bool is_standard(const char* name, size_t length) {
  static const ons_header c_headers[] = {
      {"assert.h", ""}, {"float.h", ""},  {"limits.h", ""},
      {"math.h", ""},   {"stddef.h", ""}, {"stdint.h", ""},
      {"stdio.h", ""},  {"stdlib.h", ""}, {"string.h", ""}};
  return (!memchr(name, '.', length) && !memchr(name, '/', length)) ||
         is_among(name, length, c_headers, sizeof(c_headers) / sizeof(*c_headers));
}

/* Does the text include files that are neither in memory nor standard? */
static bool reaches_out(const char* text, const ons__compile_request* request) {
  for (const char* at = text; (at = strstr(at, "include"));) {
    at += strlen("include");
    at += strspn(at, " \t");
    if (*at != '<' && *at != '"') return true;
    const char* name = at + 1;
    const size_t length = strcspn(name, *at == '<' ? ">\n" : "\"\n");
    if (!(*at == '<' && is_standard(name, length)) &&
        !is_among(name, length, ons__cpu_own_headers, ons__cpu_own_header_count) &&
        !is_among(name, length, request->headers, request->header_count)) {
      return true;
    }
    at = name + length;
  }
  return false;
}

typedef bool (*test)(const char* text, const ons__compile_request* request,
                     const char* words);

static bool test_reach(const char* text, const ons__compile_request* request,
                       const char* words) {
  (void)words;
  return reaches_out(text, request);
}

static bool test_need(const char* text, const ons__compile_request* request,
                      const char* words) {
  return mentions(text, words) || strstr(text, "##") || reaches_out(text, request);
}

/* Is it so of any of the texts that the compiler gets? */
static bool any_text(const ons__compile_request* request, test is_so, const char* words) {
  if (is_so(request->source, request, words)) return true;
  for (size_t i = 0; i < request->header_count; ++i) {
    if (is_so(request->headers[i].content, request, words)) return true;
  }
  for (size_t i = 0; i < request->option_count; ++i) {
    if (is_so(request->options[i], request, words)) return true;
  }
  return false;
}

bool ons__cpu_part_is_needed(const ons__cpu_part* part,
                             const ons__compile_request* request) {
  return !part->words || any_text(request, test_need, part->words);
}

bool ons__cpu_source_reaches_out(const ons__compile_request* request) {
  return any_text(request, test_reach, NULL);
}
