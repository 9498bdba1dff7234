/* Every field of a request makes another key. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>
#include <unistd.h>

#include "jit/cache_key.h"

static const char* options[] = {"-lineinfo", "-O2"};
static ons_header headers[] = {{"a.h", "int a;"}, {"b.h", "int b;"}};
static ons__kernel_name kernels[] = {{.name = "scale"}, {.name = "axpy"}};

static ons__compile_request make_request(void) {
  return (ons__compile_request){.source = "#include \"a.h\"\n__global__ void scale() {}",
                                .name = "kernel.cu",
                                .folder = "/src",
                                .options = options,
                                .option_count = 2,
                                .headers = headers,
                                .header_count = 2,
                                .kernels = kernels,
                                .kernel_count = 2,
                                .arch = "sm_90"};
}

static ons__cache_key key_of(const ons__compile_request* request, const char* backend,
                             const char* identity) {
  ons__cache_key key;
  cr_assert(ons__cache_key_make(request, backend, identity, &key));
  return key;
}

static void expect_other(const ons__compile_request* request, const char* what) {
  const ons__compile_request plain = make_request();
  const ons__cache_key one = key_of(&plain, "cuda", "nvrtc");
  const ons__cache_key other = key_of(request, "cuda", "nvrtc");
  cr_expect(memcmp(&one, &other, sizeof(one)) != 0, "%s", what);
}

#define CHANGED(field, value)                    \
  do {                                           \
    ons__compile_request other = make_request(); \
    other.field = value;                         \
    expect_other(&other, #field);                \
  } while (0)

Test(cache_key, is_the_same_for_equal_requests) {
  const ons__compile_request one = make_request();
  ons__compile_request other = make_request();
  ons_header copies[] = {{"a.h", "int a;"}, {"b.h", "int b;"}};
  other.headers = copies;
  const ons__cache_key a = key_of(&one, "cuda", "nvrtc");
  const ons__cache_key b = key_of(&other, "cuda", "nvrtc");
  cr_expect_arr_eq(a.bytes, b.bytes, sizeof(a.bytes));
}

Test(cache_key, changes_with_each_field) {
  CHANGED(source, "#include \"a.h\"\n__global__ void scale() { }");
  CHANGED(name, "kernels.cu");
  CHANGED(folder, "/other");
  CHANGED(folder, NULL);
  CHANGED(option_count, 1);
  CHANGED(header_count, 1);
  CHANGED(kernel_count, 1);
  CHANGED(arch, "sm_90a");
  CHANGED(is_checked, true);
}

Test(cache_key, changes_with_what_is_in_each_list) {
  const char* swapped[] = {"-O2", "-lineinfo"};
  const char* joined[] = {"-lineinfo-O", "2"};
  CHANGED(options, swapped);
  CHANGED(options, joined);
  ons_header content[] = {{"a.h", "int a;"}, {"b.h", "int b2;"}};
  ons_header name[] = {{"a.h", "int a;"}, {"c.h", "int b;"}};
  CHANGED(headers, content);
  CHANGED(headers, name);
  ons__kernel_name order[] = {{.name = "axpy"}, {.name = "scale"}};
  ons__kernel_name required[] = {{.name = "scale", .required = true}, {.name = "axpy"}};
  ons__kernel_name variable[] = {{.name = "scale", .is_variable = true},
                                 {.name = "axpy"}};
  CHANGED(kernels, order);
  CHANGED(kernels, required);
  CHANGED(kernels, variable);
}

Test(cache_key, changes_with_the_backend_and_its_compiler) {
  const ons__compile_request request = make_request();
  const ons__cache_key one = key_of(&request, "cuda", "nvrtc");
  const ons__cache_key other = key_of(&request, "cuda", "nvrtc 2");
  const ons__cache_key third = key_of(&request, "cpu", "nvrtc");
  cr_expect(memcmp(&one, &other, sizeof(one)) != 0);
  cr_expect(memcmp(&one, &third, sizeof(one)) != 0);
}

/* Relative names of files mean others in another folder; without any they do not. */
Test(cache_key, depends_on_the_current_folder_where_files_may_be_included) {
  ons__compile_request request = make_request();
  const ons__cache_key here = key_of(&request, "cuda", "nvrtc");
  ons__compile_request alone = {
      .source = "__global__ void f() {}", .name = "kernel.cu", .arch = "sm_90"};
  const ons__cache_key alone_here = key_of(&alone, "cuda", "nvrtc");
  cr_assert(eq(int, chdir("/"), 0));
  const ons__cache_key there = key_of(&request, "cuda", "nvrtc");
  const ons__cache_key alone_there = key_of(&alone, "cuda", "nvrtc");
  cr_expect(memcmp(&here, &there, sizeof(here)) != 0);
  cr_expect_arr_eq(alone_here.bytes, alone_there.bytes, sizeof(alone_here.bytes));
}

Test(cache_key, is_refused_to_what_knows_the_time) {
  ons__compile_request request = make_request();
  ons__cache_key key;
  request.source = "const char* when = __TIME__;";
  cr_expect(not(ons__cache_key_make(&request, "cuda", "nvrtc", &key)));
  request = make_request();
  ons_header dated[] = {{"a.h", "__DATE__"}, {"b.h", ""}};
  request.headers = dated;
  cr_expect(not(ons__cache_key_make(&request, "cuda", "nvrtc", &key)));
}
