/* The C API of templates, of lists as arguments, and of modules that check. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <onstream/onstream.h>
#include <string.h>

static const char kSource[] =
    "template <class T, int N = 2> __global__ void scale(ons::view<const T, N> x, T* y) "
    "{}"
    "__global__ void sum(ons::ptrs<const float, 2> xs, float2 add, float* __restrict__ "
    "out)"
    " { out[0] = xs[0][0] + xs[1][0] + add.x + add.y; }";

static ons_runtime* runtime;
static ons_module* module;
static ons_error error;

static void open_with(uint32_t flags) {
  ons_module_options options = ONS_MODULE_OPTIONS_INIT;
  options.flags = flags;
  error = (ons_error)ONS_ERROR_INIT;
  cr_assert(eq(int, ons_runtime_create(NULL, &runtime, &error), 0));
  cr_assert(eq(int, ons_module_create(runtime, kSource, &options, &module, &error), 0),
            "%s", error.message);
}

static void close_all(void) {
  ons_module_release(module);
  ons_runtime_release(runtime);
}

Test(parameters, templates_tell_what_calls_tell) {
  open_with(0);
  ons_template_parameter parameter = {.struct_size = sizeof(parameter)};
  cr_assert(ons_module_template_parameter(module, "scale", 0, &parameter));
  cr_expect(eq(str, (char*)parameter.name, "T"));
  cr_expect(parameter.is_type && !parameter.has_default);
  cr_assert(ons_module_template_parameter(module, "scale", 1, &parameter));
  cr_expect(eq(str, (char*)parameter.name, "N"));
  cr_expect(parameter.is_type == 0 && parameter.has_default);
  cr_expect(not(ons_module_template_parameter(module, "scale", 2, &parameter)));
  cr_expect(not(ons_module_template_parameter(module, "sum", 0, &parameter)));
  cr_expect(not(ons_module_template_parameter(module, "none", 0, &parameter)));

  static const ons_deduction expected[] = {
      {sizeof(ons_deduction), ONS_DEDUCTION_DTYPE, 0, 0},
      {sizeof(ons_deduction), ONS_DEDUCTION_RANK, 1, 0},
      {sizeof(ons_deduction), ONS_DEDUCTION_DTYPE, 0, 1}};
  ons_deduction deduction = {.struct_size = sizeof(deduction)};
  size_t count = 0;
  for (; ons_module_template_deduction(module, "scale", count, &deduction); ++count) {
    cr_assert(lt(sz, count, 3));
    cr_expect(eq(int, memcmp(&deduction, &expected[count], sizeof(deduction)), 0));
  }
  cr_expect(eq(sz, count, 3));
  cr_expect(eq(str, (char*)ons_module_parameter_name(module, "sum", 2), "out"));
  cr_expect(eq(ptr, (void*)ons_module_parameter_name(module, "sum", 3), NULL));
  cr_expect(eq(ptr, (void*)ons_module_parameter_name(module, "none", 0), NULL));
  close_all();
}

Test(parameters, unknown_flags_are_refused) {
  open_with(ONS_MODULE_CHECK);
  ons_module_options options = ONS_MODULE_OPTIONS_INIT;
  ons_module* other = NULL;
  options.flags = 1u << 31;
  cr_expect(eq(int, ons_module_create(runtime, kSource, &options, &other, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(strstr(error.message, "flags") != NULL);
  close_all();
}

static DLTensor floats(float* data) {
  static int64_t shape[] = {1};
  return (DLTensor){.data = data,
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = shape};
}

Test(parameters, lists_are_launched_with) {
  open_with(ONS_MODULE_CHECK);
  ons_kernel* kernel = NULL;
  cr_assert(eq(int, ons_module_kernel(module, "sum", &kernel, &error), 0));
  float memory[] = {1, 10, 0};
  DLTensor x = floats(&memory[0]), y = floats(&memory[1]), out = floats(&memory[2]);
  ons_arg tensors[] = {{.kind = ONS_ARG_TENSOR, .value.tensor = &x},
                       {.kind = ONS_ARG_TENSOR, .value.tensor = &y}};
  ons_arg numbers[] = {{.kind = ONS_ARG_INT, .value.i = 100},
                       {.kind = ONS_ARG_FLOAT, .value.f = 0.5}};
  ons_arg args[] = {
      {.kind = ONS_ARG_LIST, .value.items = tensors, .item_count = 2},
      {.kind = ONS_ARG_LIST, .value.items = numbers, .item_count = 2},
      {.kind = ONS_ARG_TENSOR, .value.tensor = &out},
  };
  ons_launch launch = ONS_LAUNCH_INIT;
  cr_assert(eq(int, ons_kernel_launch(kernel, &launch, args, 3, &error), 0), "%s",
            error.message);
  cr_expect(eq(flt, memory[2], 111.5f));

  ons_parameter parameter = {.struct_size = sizeof(parameter)};
  cr_assert(eq(int, ons_kernel_parameter(kernel, 0, &parameter, &error), 0));
  cr_expect(eq(int, (int)parameter.kind, ONS_PARAMETER_POINTERS));
  cr_expect(eq(u32, parameter.item_count, 2));

  out = floats(&memory[1]);
  cr_expect(eq(int, ons_kernel_launch(kernel, &launch, args, 3, &error),
               ONS_STATUS_ARGUMENT_VALUE));
  cr_expect(
      strstr(error.message, "arguments 1 ('xs') and 3 ('out') share memory") != NULL,
      "%s", error.message);
  cr_expect(eq(flt, memory[1], 10));
  ons_kernel_release(kernel);
  close_all();
}
