/* Arguments against signatures: what is accepted, what is refused and with which words.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdalign.h>
#include <string.h>

#include "runtime/backend.h"
#include "runtime/base/alloc.h"
#include "runtime/bind.h"
#include "runtime/kernel.h"
#include "runtime/module.h"
#include "runtime/tensor.h"

/* A device without a driver: binding asks it only for its identity and for pinned memory.
 */
static const void* pinned_pointer;

static bool host_pointer_usable(ons__device* device, const void* pointer) {
  (void)device;
  return pointer == pinned_pointer;
}

static const ons__backend_ops gpu_ops = {.name = "cuda",
                                         .host_pointer_usable = host_pointer_usable};
static ons__backend gpu_backend = {.ops = &gpu_ops};
static ons__device gpu = {.backend = &gpu_backend, .device = {kDLCUDA, 1}};
static const ons__backend_ops cpu_ops = {.name = "cpu"};
static ons__backend cpu_backend = {.ops = &cpu_ops};
static ons__device cpu = {.backend = &cpu_backend, .device = {kDLCPU, 0}};

static float storage[64];
static int64_t shape_2x3[] = {2, 3};
static int64_t dense_2x3[] = {3, 1};

static DLTensor float_tensor(ons__device* device) {
  return (DLTensor){.data = storage,
                    .device = device->device,
                    .ndim = 2,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = shape_2x3,
                    .strides = dense_2x3};
}

static ons_arg tensor_arg(const DLTensor* tensor, uint32_t flags) {
  return (ons_arg){.kind = ONS_ARG_TENSOR, .flags = flags, .value.tensor = tensor};
}

/* One parameter, bound on a device; the message of a refusal is kept. */
typedef struct attempt {
  ons__refusal refusal;
  ons_status status;
  ons_error error;
  unsigned char bytes[64];
} attempt;

static attempt bind_or_try(const char* mangled, const ons_arg* arg, ons__device* device,
                           bool only_try) {
  attempt result = {.error = ONS_ERROR_INIT};
  ons__bound bound = {.device = device};
  cr_assert(
      eq(int, ons__signature_parse(NULL, mangled, &bound.signature, &result.error), 0),
      "%s: %s", mangled, result.error.message);
  cr_assert(eq(sz, bound.signature->count, 1));
  cr_assert(
      eq(int,
         ons__plan_create(NULL, "k", bound.signature, NULL, &bound.plan, &result.error),
         0),
      "%s", result.error.message);
  ons_runtime runtime = {0};
  ons_module module = {.runtime = &runtime};
  ons_kernel kernel = {.module = &module, .name = "k"};
  static void* parameters[4];
  alignas(16) static unsigned char bytes[256];
  ons__block block = {.parameters = parameters, .bytes = bytes, .index = 99};
  size_t index = 0;
  result.refusal = only_try
                       ? ons__bind_try(bound.plan, arg, device, &index)
                       : ons__bind(bound.plan, arg, device, device->device, NULL, &block);
  if (result.refusal) {
    cr_assert(eq(sz, only_try ? index : block.index, 0));
    result.status =
        ons__bind_explain(&kernel, &bound, result.refusal, arg, 0, &result.error);
    bool is_item = arg->kind == ONS_ARG_LIST;
    cr_assert(strstr(result.error.message,
                     is_item ? "kernel 'k', argument 1"
                             : "kernel 'k', argument 1: declared ") != NULL,
              "%s", result.error.message);
    cr_assert(strstr(result.error.message, bound.signature->parameters[0].type) != NULL);
  } else if (!only_try) {
    uint32_t size = bound.plan->steps[0].size_bytes;
    memcpy(result.bytes, block.parameters[0], size < 64 ? size : 64);
  }
  ons__free(NULL, bound.plan);
  ons__signature_destroy(bound.signature);
  return result;
}

static attempt bind_one(const char* mangled, const ons_arg* arg, ons__device* device) {
  return bind_or_try(mangled, arg, device, false);
}

/* Before those who are pending are asked. */
static attempt try_one(const char* mangled, const ons_arg* arg, ons__device* device) {
  return bind_or_try(mangled, arg, device, true);
}

#define CHECK_REFUSED(result, expected_refusal, expected_status, text)                  \
  do {                                                                                  \
    attempt refused_ = (result);                                                        \
    cr_expect(eq(int, refused_.refusal, expected_refusal), "%s",                        \
              refused_.error.message);                                                  \
    cr_expect(eq(int, refused_.status, expected_status), "%s", refused_.error.message); \
    cr_expect(strstr(refused_.error.message, text) != NULL, "no '%s' in: %s", text,     \
              refused_.error.message);                                                  \
  } while (0)

/* ---- tensors ---------------------------------------------------------------------- */

Test(bind, pointer_is_element_zero) {
  DLTensor tensor = float_tensor(&cpu);
  tensor.byte_offset = 8 * sizeof(float);
  ons_arg arg = tensor_arg(&tensor, 0);
  attempt got = bind_one("FvPfE", &arg, &cpu);
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%s", got.error.message);
  float* pointer;
  memcpy(&pointer, got.bytes, sizeof(pointer));
  cr_assert(eq(ptr, pointer, storage + 8));
}

Test(bind, null_strides_are_row_major) {
  DLTensor tensor = float_tensor(&cpu);
  tensor.strides = NULL;
  ons_arg arg = tensor_arg(&tensor, 0);
  cr_assert(eq(int, bind_one("FvPfE", &arg, &cpu).refusal, ONS__ACCEPTED));
  attempt got = bind_one("FvN3ons4viewIfLi2ExEEE", &arg, &cpu);
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%s", got.error.message);
  int64_t sizes_and_strides[4];
  memcpy(sizes_and_strides, got.bytes + 8, sizeof(sizes_and_strides));
  int64_t expected[] = {2, 3, 3, 1};
  cr_assert(eq(int, memcmp(sizes_and_strides, expected, sizeof(expected)), 0));
}

Test(bind, zero_dimensional_shape_is_never_read) {
  DLTensor tensor = float_tensor(&cpu);
  tensor.ndim = 0;
  tensor.shape = (int64_t*)(uintptr_t)16; /* would crash */
  tensor.strides = (int64_t*)(uintptr_t)16;
  ons_arg arg = tensor_arg(&tensor, 0);
  cr_assert(eq(int, bind_one("FvPfE", &arg, &cpu).refusal, ONS__ACCEPTED));
}

Test(bind, empty_tensor_needs_no_data) {
  int64_t shape[] = {1, 8, 0, 128}, strides[] = {7, 5, 3, 1};
  DLTensor tensor = float_tensor(&cpu);
  tensor.data = NULL;
  tensor.ndim = 4;
  tensor.shape = shape;
  tensor.strides = strides;
  ons_arg arg = tensor_arg(&tensor, 0);
  cr_assert(eq(int, bind_one("FvPfE", &arg, &cpu).refusal, ONS__ACCEPTED));
  shape[2] = 1;
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_NO_DATA,
                ONS_STATUS_ARGUMENT_VALUE, "without data");
}

Test(bind, stride_of_a_size_one_dimension_is_free) {
  int64_t shape[] = {1, 77}, strides[] = {5, 1};
  DLTensor tensor = float_tensor(&cpu);
  tensor.shape = shape;
  tensor.strides = strides;
  ons_arg arg = tensor_arg(&tensor, 0);
  cr_assert(eq(int, bind_one("FvPfE", &arg, &cpu).refusal, ONS__ACCEPTED));
}

Test(bind, layouts_that_a_raw_pointer_cannot_take) {
  int64_t transposed[] = {1, 2}, broadcast[] = {0, 1}, negative[] = {-3, -1};
  DLTensor tensor = float_tensor(&cpu);
  ons_arg arg = tensor_arg(&tensor, 0);
  int64_t* const layouts[] = {transposed, broadcast, negative};
  for (int i = 0; i < 3; ++i) {
    tensor.strides = layouts[i];
    CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_LAYOUT,
                  ONS_STATUS_ARGUMENT_VALUE, "contiguous copy");
    attempt view = bind_one("FvN3ons4viewIKfLi2ExEEE", &arg, &cpu);
    cr_expect(eq(int, view.refusal, ONS__ACCEPTED), "%s", view.error.message);
  }
  tensor.strides = broadcast;
  CHECK_REFUSED(bind_one("FvN3ons4viewIfLi2ExEEE", &arg, &cpu), ONS__REFUSED_OVERLAP,
                ONS_STATUS_ARGUMENT_VALUE, "share memory");
}

Test(bind, elements_that_are_written_twice) {
  int64_t shape[] = {3, 3}, windows[] = {1, 1}, mirrored[] = {2, -2}, apart[] = {3, 2};
  DLTensor tensor = float_tensor(&cpu);
  tensor.data = storage + 32;
  tensor.shape = shape;
  ons_arg arg = tensor_arg(&tensor, 0);
  int64_t* const overlaps[] = {windows, mirrored};
  for (int i = 0; i < 2; ++i) {
    tensor.strides = overlaps[i];
    CHECK_REFUSED(bind_one("FvN3ons4viewIfLi2ExEEE", &arg, &cpu), ONS__REFUSED_OVERLAP,
                  ONS_STATUS_ARGUMENT_VALUE, "share memory");
    cr_expect(
        eq(int, bind_one("FvN3ons4viewIKfLi2ExEEE", &arg, &cpu).refusal, ONS__ACCEPTED));
  }
  tensor.strides = apart;
  cr_expect(
      eq(int, bind_one("FvN3ons4viewIfLi2ExEEE", &arg, &cpu).refusal, ONS__ACCEPTED));
}

/* A stride that is never used may have any size. */
Test(bind, narrow_view_of_a_size_one_dimension) {
  int64_t shape[] = {1, 3}, strides[] = {INT64_C(1) << 40, 1};
  DLTensor tensor = float_tensor(&cpu);
  tensor.shape = shape;
  tensor.strides = strides;
  ons_arg arg = tensor_arg(&tensor, 0);
  attempt got = bind_one("FvN3ons4viewIfLi2EiEEE", &arg, &cpu);
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%s", got.error.message);
  int32_t values[4], expected[] = {1, 3, 0, 1};
  memcpy(values, got.bytes + 8, sizeof(values));
  cr_expect(eq(int, memcmp(values, expected, sizeof(values)), 0));
}

Test(bind, dtypes_are_exact) {
  DLTensor tensor = float_tensor(&cpu);
  ons_arg arg = tensor_arg(&tensor, 0);
  tensor.dtype = (DLDataType){kDLFloat, 64, 1};
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_DTYPE,
                ONS_STATUS_ARGUMENT_TYPE, "float64");
  tensor.dtype = (DLDataType){kDLInt, 32, 1};
  CHECK_REFUSED(bind_one("FvPlE", &arg, &cpu), ONS__REFUSED_DTYPE,
                ONS_STATUS_ARGUMENT_TYPE, "int32");
  tensor.dtype = (DLDataType){kDLBool, 8, 1};
  CHECK_REFUSED(bind_one("FvPhE", &arg, &cpu), ONS__REFUSED_DTYPE,
                ONS_STATUS_ARGUMENT_TYPE, "declare the parameter bool*");
  cr_expect(eq(int, bind_one("FvPbE", &arg, &cpu).refusal, ONS__ACCEPTED));
  cr_expect(eq(int, bind_one("FvPvE", &arg, &cpu).refusal, ONS__ACCEPTED),
            "void* takes all");
  tensor.dtype = (DLDataType){kDLBfloat, 16, 1};
  cr_expect(eq(int, bind_one("FvP13__nv_bfloat16E", &arg, &cpu).refusal, ONS__ACCEPTED));
  tensor.dtype = (DLDataType){kDLFloat8_e4m3fn, 8, 1};
  cr_expect(eq(int, bind_one("FvP13__nv_fp8_e4m3E", &arg, &cpu).refusal, ONS__ACCEPTED));
  CHECK_REFUSED(bind_one("FvP13__nv_fp8_e5m2E", &arg, &cpu), ONS__REFUSED_DTYPE,
                ONS_STATUS_ARGUMENT_TYPE, "float8_e4m3fn");
}

Test(bind, vector_pointers) {
  alignas(16) static float aligned[16];
  DLTensor tensor = float_tensor(&cpu);
  int64_t shape[] = {2, 4};
  tensor.data = aligned;
  tensor.shape = shape;
  tensor.strides = NULL;
  ons_arg arg = tensor_arg(&tensor, 0);
  cr_expect(eq(int, bind_one("FvP6float4E", &arg, &cpu).refusal, ONS__ACCEPTED));
  tensor.byte_offset = 4;
  CHECK_REFUSED(bind_one("FvP6float4E", &arg, &cpu), ONS__REFUSED_ALIGNMENT,
                ONS_STATUS_ARGUMENT_VALUE, "aligned copy");
  tensor.byte_offset = 0;
  shape[1] = 3;
  CHECK_REFUSED(bind_one("FvP6float4E", &arg, &cpu), ONS__REFUSED_DTYPE,
                ONS_STATUS_ARGUMENT_TYPE, "multiple of the vector's");
  tensor.dtype = (DLDataType){kDLComplex, 64, 1};
  cr_expect(eq(int, bind_one("FvP6float2E", &arg, &cpu).refusal, ONS__ACCEPTED));
  CHECK_REFUSED(bind_one("FvP6float4E", &arg, &cpu), ONS__REFUSED_DTYPE,
                ONS_STATUS_ARGUMENT_TYPE, "complex64");
}

Test(bind, pointers_to_unknown_types_take_raw_bytes) {
  DLTensor tensor = float_tensor(&cpu);
  ons_arg arg = tensor_arg(&tensor, 0);
  CHECK_REFUSED(bind_one("FvP8ParticleE", &arg, &cpu), ONS__REFUSED_DTYPE,
                ONS_STATUS_ARGUMENT_TYPE, "its bytes as a uint8 tensor");
  tensor.dtype = (DLDataType){kDLUInt, 8, 1};
  cr_expect(eq(int, bind_one("FvP8ParticleE", &arg, &cpu).refusal, ONS__ACCEPTED));
}

Test(bind, constness) {
  DLTensor tensor = float_tensor(&cpu);
  ons_arg arg = tensor_arg(&tensor, ONS_ARG_READ_ONLY);
  cr_expect(eq(int, bind_one("FvPKfE", &arg, &cpu).refusal, ONS__ACCEPTED));
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_READ_ONLY,
                ONS_STATUS_ARGUMENT_VALUE, "read-only");
  arg.flags = ONS_ARG_READ_ONLY | ONS_ARG_OUTPUT;
  cr_expect(eq(int, bind_one("FvPfE", &arg, &cpu).refusal, ONS__ACCEPTED));
  CHECK_REFUSED(bind_one("FvPKfE", &arg, &cpu), ONS__REFUSED_OUTPUT,
                ONS_STATUS_ARGUMENT_VALUE, "only reads");
  arg.flags = ONS_ARG_REQUIRES_GRAD;
  cr_expect(eq(int, bind_one("FvPKfE", &arg, &cpu).refusal, ONS__ACCEPTED));
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_GRAD,
                ONS_STATUS_ARGUMENT_VALUE, "detach()");
}

Test(bind, alignment_of_the_data) {
  DLTensor tensor = float_tensor(&cpu);
  tensor.byte_offset = 2;
  ons_arg arg = tensor_arg(&tensor, 0);
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_ALIGNMENT,
                ONS_STATUS_ARGUMENT_VALUE, "aligned copy");
}

Test(bind, malformed_tensors) {
  DLTensor tensor = float_tensor(&cpu);
  ons_arg arg = tensor_arg(&tensor, 0);
  tensor.ndim = -1;
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_MALFORMED,
                ONS_STATUS_ARGUMENT_VALUE, "malformed");
  tensor.ndim = 2;
  int64_t negative[] = {-5, 3};
  tensor.shape = negative;
  CHECK_REFUSED(bind_one("FvN3ons4viewIfLi2ExEEE", &arg, &cpu), ONS__REFUSED_MALFORMED,
                ONS_STATUS_ARGUMENT_VALUE, "malformed");
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_MALFORMED,
                ONS_STATUS_ARGUMENT_VALUE, "malformed");
  int64_t huge[] = {INT64_C(1) << 40, INT64_C(1) << 40};
  tensor.shape = huge;
  tensor.strides = NULL;
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_MALFORMED,
                ONS_STATUS_ARGUMENT_VALUE, "malformed");
  tensor.strides = dense_2x3;
  tensor.shape = shape_2x3;
  tensor.dtype = (DLDataType){0, 0, 0}; /* zero means "none" inside */
  static const char* const takers[] = {"FvPfE", "FvP1SE", "FvPvE",
                                       "FvN3ons4viewI6float2Li2ExEEE"};
  for (int i = 0; i < 4; ++i) {
    CHECK_REFUSED(bind_one(takers[i], &arg, &cpu), ONS__REFUSED_MALFORMED,
                  ONS_STATUS_ARGUMENT_VALUE, "malformed");
  }
  tensor.dtype = (DLDataType){kDLFloat, 32, 1};
  tensor.shape = NULL;
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_MALFORMED,
                ONS_STATUS_ARGUMENT_VALUE, "malformed");
  arg.value.tensor = NULL;
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_MALFORMED,
                ONS_STATUS_ARGUMENT_VALUE, "without a DLTensor");
}

/* ---- devices and order ------------------------------------------------------------ */

Test(bind, devices) {
  DLTensor tensor = float_tensor(&gpu);
  ons_arg arg = tensor_arg(&tensor, ONS_ARG_STREAM_KNOWN);
  cr_expect(eq(int, bind_one("FvPfE", &arg, &gpu).refusal, ONS__ACCEPTED));
  tensor.device.device_id = 0;
  CHECK_REFUSED(bind_one("FvPfE", &arg, &gpu), ONS__REFUSED_DEVICE,
                ONS_STATUS_ARGUMENT_VALUE, "one device");
  tensor.device = (DLDevice){kDLCPU, 0};
  CHECK_REFUSED(bind_one("FvPfE", &arg, &gpu), ONS__REFUSED_DEVICE,
                ONS_STATUS_ARGUMENT_VALUE, "move it to the GPU");
  pinned_pointer = storage;
  cr_expect(eq(int, bind_one("FvPfE", &arg, &gpu).refusal, ONS__ACCEPTED), "pinned");
  pinned_pointer = NULL;
  tensor.device = (DLDevice){kDLCUDAHost, 0};
  cr_expect(eq(int, bind_one("FvPfE", &arg, &gpu).refusal, ONS__ACCEPTED));
  cr_expect(eq(int, bind_one("FvPfE", &arg, &cpu).refusal, ONS__ACCEPTED));
  tensor.device = (DLDevice){kDLCUDAManaged, 0};
  cr_expect(eq(int, bind_one("FvPfE", &arg, &gpu).refusal, ONS__ACCEPTED));
  tensor.device = (DLDevice){kDLCUDA, 1};
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_DEVICE,
                ONS_STATUS_ARGUMENT_VALUE, "CPU");
}

Test(bind, unknown_order) {
  DLTensor tensor = float_tensor(&gpu);
  ons_arg arg = tensor_arg(&tensor, 0);
  CHECK_REFUSED(bind_one("FvPKfE", &arg, &gpu), ONS__REFUSED_BEFORE, ONS_STATUS_ORDER,
                "unknown stream");
  arg.flags = ONS_ARG_ORDERED;
  cr_expect(eq(int, bind_one("FvPKfE", &arg, &gpu).refusal, ONS__ACCEPTED));
  CHECK_REFUSED(bind_one("FvPfE", &arg, &gpu), ONS__REFUSED_AFTER, ONS_STATUS_ORDER,
                "behind this write");
  arg.flags = ONS_ARG_OUTPUT;
  cr_expect(eq(int, bind_one("FvPfE", &arg, &gpu).refusal, ONS__ACCEPTED));
}

/* ---- views ------------------------------------------------------------------------ */

Test(bind, view_rank_and_narrow_index) {
  DLTensor tensor = float_tensor(&cpu);
  ons_arg arg = tensor_arg(&tensor, 0);
  CHECK_REFUSED(bind_one("FvN3ons4viewIfLi3ExEEE", &arg, &cpu), ONS__REFUSED_RANK,
                ONS_STATUS_ARGUMENT_VALUE, "rank");
  attempt got = bind_one("FvN3ons4viewIfLi2EiEEE", &arg, &cpu);
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%s", got.error.message);
  int32_t values[4], expected[] = {2, 3, 3, 1};
  memcpy(values, got.bytes + 8, sizeof(values));
  cr_expect(eq(int, memcmp(values, expected, sizeof(values)), 0));
  int64_t far_strides[] = {INT64_C(3000000000), 1};
  tensor.strides = far_strides;
  CHECK_REFUSED(bind_one("FvN3ons4viewIKfLi2EiEEE", &arg, &cpu), ONS__REFUSED_INDEX,
                ONS_STATUS_ARGUMENT_VALUE, "64-bit index");
  int64_t long_shape[] = {2, INT64_C(2000000000)},
          long_strides[] = {INT64_C(2000000000), 1};
  tensor.shape = long_shape;
  tensor.strides = long_strides;
  CHECK_REFUSED(bind_one("FvN3ons4viewIKfLi2EiEEE", &arg, &cpu), ONS__REFUSED_INDEX,
                ONS_STATUS_ARGUMENT_VALUE, "64-bit index");
}

/* ---- numbers ---------------------------------------------------------------------- */

static ons_arg int_arg(int64_t value) {
  return (ons_arg){.kind = ONS_ARG_INT, .value.i = value};
}

static ons_arg float_arg(double value) {
  return (ons_arg){.kind = ONS_ARG_FLOAT, .value.f = value};
}

static void check_int(const char* mangled, int64_t value, bool fits) {
  ons_arg arg = int_arg(value);
  attempt got = bind_one(mangled, &arg, &cpu);
  cr_expect(eq(int, got.refusal, fits ? ONS__ACCEPTED : ONS__REFUSED_RANGE),
            "%s %lld: %s", mangled, (long long)value, got.error.message);
  if (fits) {
    cr_expect(eq(int, memcmp(got.bytes, &value, mangled[2] == 'i' ? 4 : 1), 0));
  }
}

Test(bind, integers_must_fit) {
  static const struct {
    const char* mangled;
    int64_t low, high;
  } types[] = {
      {"FvaE", INT8_MIN, INT8_MAX},   {"FvhE", 0, UINT8_MAX},
      {"FvsE", INT16_MIN, INT16_MAX}, {"FvtE", 0, UINT16_MAX},
      {"FviE", INT32_MIN, INT32_MAX}, {"FvjE", 0, UINT32_MAX},
  };
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
    check_int(types[i].mangled, types[i].low, true);
    check_int(types[i].mangled, types[i].high, true);
    check_int(types[i].mangled, types[i].low - 1, false);
    check_int(types[i].mangled, types[i].high + 1, false);
  }
  check_int("FvxE", INT64_MIN, true);
  check_int("FvlE", INT64_MAX, true);
  check_int("FvmE", -1, false);
  ons_arg arg = {.kind = ONS_ARG_UINT, .value.u = UINT64_MAX};
  attempt got = bind_one("FvyE", &arg, &cpu);
  cr_expect(eq(int, memcmp(got.bytes, &arg.value.u, 8), 0));
  CHECK_REFUSED(bind_one("FvxE", &arg, &cpu), ONS__REFUSED_RANGE,
                ONS_STATUS_ARGUMENT_VALUE, "18446744073709551615");
}

Test(bind, no_silent_conversions) {
  ons_arg arg = float_arg(3.0);
  CHECK_REFUSED(bind_one("FviE", &arg, &cpu), ONS__REFUSED_FRACTION,
                ONS_STATUS_ARGUMENT_TYPE, "int(...)");
  arg = (ons_arg){.kind = ONS_ARG_BOOL, .value.i = 1};
  attempt got = bind_one("FviE", &arg, &cpu);
  cr_expect(eq(int, got.refusal, ONS__ACCEPTED));
  cr_expect(eq(int, got.bytes[0], 1));
  arg = int_arg(2);
  CHECK_REFUSED(bind_one("FvbE", &arg, &cpu), ONS__REFUSED_BOOL, ONS_STATUS_ARGUMENT_TYPE,
                "True or False");
  DLTensor tensor = float_tensor(&cpu);
  arg = tensor_arg(&tensor, 0);
  CHECK_REFUSED(bind_one("FviE", &arg, &cpu), ONS__REFUSED_NEEDS_NUMBER,
                ONS_STATUS_ARGUMENT_TYPE, "(2, 3)");
  arg = int_arg(7);
  CHECK_REFUSED(bind_one("FvPfE", &arg, &cpu), ONS__REFUSED_NEEDS_TENSOR,
                ONS_STATUS_ARGUMENT_TYPE, "the integer 7");
  arg = (ons_arg){.kind = ONS_ARG_NULL};
  cr_expect(eq(int, bind_one("FvPfE", &arg, &cpu).refusal, ONS__ACCEPTED));
  CHECK_REFUSED(bind_one("FviE", &arg, &cpu), ONS__REFUSED_NEEDS_NUMBER,
                ONS_STATUS_ARGUMENT_TYPE, "null");
}

Test(bind, a_float_is_four_bytes) {
  ons_arg arg = float_arg(0.1);
  attempt got = bind_one("FvfE", &arg, &cpu);
  float expected = 0.1f;
  cr_expect(eq(int, memcmp(got.bytes, &expected, 4), 0));
  arg = float_arg(1e300);
  CHECK_REFUSED(bind_one("FvfE", &arg, &cpu), ONS__REFUSED_RANGE,
                ONS_STATUS_ARGUMENT_VALUE, "does not fit");
  arg = float_arg(INFINITY);
  cr_expect(eq(int, bind_one("FvfE", &arg, &cpu).refusal, ONS__ACCEPTED));
}

static uint16_t bits16(const char* mangled, double value) {
  ons_arg arg = float_arg(value);
  attempt got = bind_one(mangled, &arg, &cpu);
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%g: %s", value, got.error.message);
  uint16_t bits;
  memcpy(&bits, got.bytes, sizeof(bits));
  return bits;
}

Test(bind, half_rounds_to_nearest_even) {
  static const struct {
    double value;
    uint16_t bits;
  } table[] = {
      {0.0, 0x0000},
      {-0.0, 0x8000},
      {1.0, 0x3c00},
      {-2.0, 0xc000},
      {65504.0, 0x7bff},
      {65519.999, 0x7bff},
      {0x1p-14, 0x0400},
      {0x1p-24, 0x0001},
      {0x1p-25, 0x0000},                 /* tie to even */
      {0x1.000001p-25, 0x0001},          /* just above it */
      {0x1.8p-24, 0x0002},               /* tie to even among subnormals */
      {0x1.ffcp-15, 0x0400},             /* rounds up into the normals (0x3ff.8 units) */
      {1.0 + 0x1p-11, 0x3c00},           /* tie to even */
      {1.0 + 0x1p-11 + 0x1p-40, 0x3c01}, /* only a single rounding gets this right */
      {1.0 + 3 * 0x1p-11, 0x3c02},
      {INFINITY, 0x7c00},
  };
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
    cr_expect(eq(u16, bits16("Fv6__halfE", table[i].value), table[i].bits), "%.17g",
              table[i].value);
  }
  ons_arg arg = float_arg(65520.0);
  CHECK_REFUSED(bind_one("Fv6__halfE", &arg, &cpu), ONS__REFUSED_RANGE,
                ONS_STATUS_ARGUMENT_VALUE, "does not fit");
  cr_expect(ne(int, bits16("Fv6__halfE", NAN) & 0x3ff, 0));
}

Test(bind, bfloat16_rounds_to_nearest_even) {
  cr_expect(eq(u16, bits16("Fv13__nv_bfloat16E", 1.0), 0x3f80));
  cr_expect(eq(u16, bits16("Fv13__nv_bfloat16E", 1.0 + 0x1p-8), 0x3f80));
  cr_expect(eq(u16, bits16("Fv13__nv_bfloat16E", 1.0 + 0x1p-8 + 0x1p-40), 0x3f81));
  cr_expect(eq(u16, bits16("Fv13__nv_bfloat16E", 1.0 + 3 * 0x1p-8), 0x3f82));
  cr_expect(eq(u16, bits16("Fv13__nv_bfloat16E", -INFINITY), 0xff80));
  cr_expect(ne(int, bits16("Fv13__nv_bfloat16E", NAN) & 0x7f, 0));
  ons_arg arg = float_arg(3.4e38);
  CHECK_REFUSED(bind_one("Fv13__nv_bfloat16E", &arg, &cpu), ONS__REFUSED_RANGE,
                ONS_STATUS_ARGUMENT_VALUE, "does not fit");
}

Test(bind, parameters_have_room) {
  ons_error error = ONS_ERROR_INIT;
  ons__parameter parameters[] = {
      {.kind = ONS_PARAMETER_SCALAR,
       .dtype = {kDLInt, 32, 1},
       .size_bytes = 4,
       .align_bytes = 4,
       .type = (char*)"int"},
      {.kind = ONS_PARAMETER_STRUCT, .size_bytes = 4092, .type = (char*)"S"},
  };
  ons__signature signature = {.count = 2, .parameters = parameters};
  ons__plan* plan = NULL;
  cr_assert(eq(int, ons__plan_create(NULL, "k", &signature, NULL, &plan, &error), 0));
  cr_expect(eq(int, plan->steps[1].offset, 16), "a struct may be aligned to 16");
  ons__free(NULL, plan);
  parameters[1].size_bytes = 4093;
  cr_expect(eq(int, ons__plan_create(NULL, "k", &signature, NULL, &plan, &error),
               ONS_STATUS_UNSUPPORTED));
  cr_expect(strstr(error.message, "parameter 2 (S)") != NULL, "%s", error.message);
}

Test(bind, bytes_must_have_the_declared_size) {
  int64_t value = 5;
  ons_arg arg = {.kind = ONS_ARG_BYTES, .value.bytes = &value, .size_bytes = 8};
  CHECK_REFUSED(bind_one("FviE", &arg, &cpu), ONS__REFUSED_SIZE,
                ONS_STATUS_ARGUMENT_VALUE, "8 bytes");
  cr_expect(eq(int, bind_one("FvxE", &arg, &cpu).refusal, ONS__ACCEPTED));
}

/* ---- small floats of 8 bits ---- */

static unsigned bits8(const char* mangled, double value) {
  ons_arg arg = float_arg(value);
  attempt got = bind_one(mangled, &arg, &cpu);
  return got.refusal ? 0x100u : got.bytes[0];
}

Test(bind, float8_rounds_and_refuses) {
  static const char* const e4m3 = "Fv13__nv_fp8_e4m3E";
  static const char* const e5m2 = "Fv13__nv_fp8_e5m2E";
  static const char* const fnuz = "Fv19__hip_fp8_e4m3_fnuzE";
  static const struct {
    const char* type;
    double value;
    unsigned bits; /* 0x100: refused */
  } table[] = {
      {e4m3, 0, 0},
      {e4m3, -0.0, 0x80},
      {e4m3, 1, 0x38},
      {e4m3, -448, 0xfe},
      {e4m3, 464.1, 0x100},
      {e4m3, 464, 0x7e},
      {e4m3, INFINITY, 0x100},
      {e4m3, 0x1p-9, 0x01},
      {e4m3, 0x1p-10, 0},
      {e4m3, 0x1.8p-9, 0x02},
      {e4m3, 1.0625, 0x38},
      {e4m3, 1.1875, 0x3a},
      {e5m2, 57344, 0x7b},
      {e5m2, 61440, 0x100},
      {e5m2, -INFINITY, 0xfc},
      {e5m2, 0x1p-16, 0x01},
      {e5m2, 0x1p-14, 0x04},
      {fnuz, -0.0, 0},
      {fnuz, 1, 0x40},
      {fnuz, 240, 0x7f},
      {fnuz, 248, 0x100},
  };
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
    cr_expect(eq(u32, bits8(table[i].type, table[i].value), table[i].bits), "%s %g",
              table[i].type, table[i].value);
  }
  cr_expect(eq(u32, bits8(e4m3, NAN) & 0x7f, 0x7f));
  cr_expect(eq(u32, bits8(fnuz, NAN), 0x80));
}

/* ---- lists ---- */

static ons_arg int_item(int64_t value) {
  return (ons_arg){.kind = ONS_ARG_INT, .value.i = value};
}

static ons_arg list_arg(const ons_arg* items, size_t count) {
  return (ons_arg){.kind = ONS_ARG_LIST, .value.items = items, .item_count = count};
}

Test(bind, vectors_take_a_list_of_numbers) {
  ons_arg items[] = {float_arg(1.5), int_item(2), float_arg(-3), float_arg(4)};
  ons_arg arg = list_arg(items, 4);
  attempt got = bind_one("Fv6float4E", &arg, &cpu);
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%s", got.error.message);
  float expected[] = {1.5f, 2, -3, 4};
  cr_expect(eq(int, memcmp(got.bytes, expected, sizeof(expected)), 0));

  ons_arg bytes[] = {int_item(0), int_item(255), int_item(7)};
  arg = list_arg(bytes, 3);
  got = bind_one("Fv6uchar3E", &arg, &cpu);
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%s", got.error.message);
  cr_expect(eq(int, memcmp(got.bytes, "\0\377\7", 3), 0));
  bytes[1] = int_item(256);
  CHECK_REFUSED(bind_one("Fv6uchar3E", &arg, &cpu), ONS__REFUSED_RANGE,
                ONS_STATUS_ARGUMENT_VALUE,
                "item 2 of 3: declared uchar3, got the integer 256");
  arg = list_arg(bytes, 2);
  CHECK_REFUSED(bind_one("Fv6uchar3E", &arg, &cpu), ONS__REFUSED_COUNT,
                ONS_STATUS_ARGUMENT_VALUE, "a list of 2");
  arg = list_arg(NULL, 3);
  CHECK_REFUSED(bind_one("Fv6uchar3E", &arg, &cpu), ONS__REFUSED_MALFORMED,
                ONS_STATUS_ARGUMENT_VALUE, "malformed");
  arg = int_item(1);
  CHECK_REFUSED(bind_one("Fv6uchar3E", &arg, &cpu), ONS__REFUSED_NEEDS_NUMBERS,
                ONS_STATUS_ARGUMENT_TYPE, "a list of its numbers");
  arg = (ons_arg){.kind = ONS_ARG_BYTES, .value.bytes = expected, .size_bytes = 16};
  cr_expect(eq(int, bind_one("Fv6float4E", &arg, &cpu).refusal, ONS__ACCEPTED));
  ons_arg nested = list_arg(items, 1);
  ons_arg outer[] = {nested, nested};
  arg = list_arg(outer, 2);
  CHECK_REFUSED(bind_one("Fv6float2E", &arg, &cpu), ONS__REFUSED_NEEDS_NUMBER,
                ONS_STATUS_ARGUMENT_TYPE, "item 1 of 2");
}

Test(bind, complex_numbers_are_two_parts_or_real) {
  ons_arg items[] = {float_arg(1.5), float_arg(-2)};
  ons_arg arg = list_arg(items, 2);
  attempt got = bind_one("FvSt7complexIfEE", &arg, &cpu);
  float expected[] = {1.5f, -2};
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%s", got.error.message);
  cr_expect(eq(int, memcmp(got.bytes, expected, sizeof(expected)), 0));
  arg = int_item(3);
  got = bind_one("FvSt7complexIdEE", &arg, &cpu);
  double real[] = {3, 0};
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%s", got.error.message);
  cr_expect(eq(int, memcmp(got.bytes, real, sizeof(real)), 0));
  CHECK_REFUSED(bind_one("Fv6float2E", &arg, &cpu), ONS__REFUSED_NEEDS_NUMBERS,
                ONS_STATUS_ARGUMENT_TYPE, "a list of its numbers");
  items[1] = float_arg(1e300);
  arg = list_arg(items, 2);
  CHECK_REFUSED(bind_one("FvSt7complexIfEE", &arg, &cpu), ONS__REFUSED_RANGE,
                ONS_STATUS_ARGUMENT_VALUE, "item 2 of 2");
}

Test(bind, tables_take_a_list_of_tensors) {
  DLTensor first = float_tensor(&cpu), second = first;
  second.byte_offset = 6 * sizeof(float);
  ons_arg items[] = {
      tensor_arg(&first, 0), tensor_arg(&second, 0), {.kind = ONS_ARG_NULL}};
  ons_arg arg = list_arg(items, 3);
  attempt got = bind_one("FvN3ons4ptrsIfLi3EEEE", &arg, &cpu);
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%s", got.error.message);
  float* pointers[3];
  memcpy(pointers, got.bytes, sizeof(pointers));
  cr_expect(eq(ptr, pointers[0], storage));
  cr_expect(eq(ptr, pointers[1], storage + 6));
  cr_expect(eq(ptr, pointers[2], NULL));

  CHECK_REFUSED(bind_one("FvN3ons4ptrsIdLi3EEEE", &arg, &cpu), ONS__REFUSED_DTYPE,
                ONS_STATUS_ARGUMENT_TYPE, "item 1 of 3");
  items[1].flags = ONS_ARG_READ_ONLY;
  CHECK_REFUSED(bind_one("FvN3ons4ptrsIfLi3EEEE", &arg, &cpu), ONS__REFUSED_READ_ONLY,
                ONS_STATUS_ARGUMENT_VALUE, "item 2 of 3");
  cr_expect(eq(int, bind_one("FvN3ons4ptrsIKfLi3EEEE", &arg, &cpu).refusal, 0));
  CHECK_REFUSED(bind_one("FvN3ons4ptrsIKfLi4EEEE", &arg, &cpu), ONS__REFUSED_COUNT,
                ONS_STATUS_ARGUMENT_VALUE, "a list of 3");
  CHECK_REFUSED(bind_one("FvN3ons4ptrsIKfLi1EEEE", &items[0], &cpu),
                ONS__REFUSED_NEEDS_TENSORS, ONS_STATUS_ARGUMENT_TYPE, "list of tensors");
  items[2].kind = ONS_ARG_PENDING; /* is not launched with */
  items[2].value.tensor = &second;
  cr_expect(eq(int, bind_one("FvN3ons4ptrsIKfLi3EEEE", &arg, &cpu).refusal,
               ONS__REFUSED_NEEDS_TENSOR));
}

/* ---- pending ---- */

Test(bind, what_is_pending_has_a_device) {
  static const char* const pointer = "FvPKfE";
  static const char* const two = "FvN3ons4ptrsIKfLi2EEEE";
  ons__device device = {.backend = &gpu_backend, .device = {kDLCUDA, 1}};
  DLTensor there = {.device = {kDLCUDA, 1}}, elsewhere = {.device = {kDLCUDA, 0}};
  DLTensor managed = {.device = {kDLCUDAManaged, 0}}, host = {.device = {kDLCPU, 0}};
  ons_arg items[2] = {{.kind = ONS_ARG_PENDING, .value.tensor = &there},
                      {.kind = ONS_ARG_PENDING, .value.tensor = &there}};
  ons_arg list = {.kind = ONS_ARG_LIST, .value.items = items, .item_count = 2};
  DLTensor* const accepted[] = {&there, &managed, &host, NULL};
  for (size_t i = 0; i < 4; ++i) {
    items[1].value.tensor = accepted[i];
    cr_expect(eq(int, try_one(pointer, &items[1], &device).refusal, 0));
    cr_expect(eq(int, try_one(two, &list, &device).refusal, 0));
  }
  items[1].value.tensor = &elsewhere;
  CHECK_REFUSED(try_one(pointer, &items[1], &device), ONS__REFUSED_DEVICE,
                ONS_STATUS_ARGUMENT_VALUE, "got an array on cuda:0; all tensors");
  CHECK_REFUSED(try_one(two, &list, &device), ONS__REFUSED_DEVICE,
                ONS_STATUS_ARGUMENT_VALUE, "item 2 of 2");
}

/* ---- tensor maps ---- */

static const char* encode_map(ons__device* device, const ons_tensor_map* map,
                              const DLTensor* tensor, const int64_t* strides,
                              unsigned char* out_bytes) {
  (void)device;
  (void)map;
  memset(out_bytes, 0x5a, ONS_TENSOR_MAP_BYTES);
  return tensor->shape[0] == 77 || strides[1] != 1 ? "the driver refuses" : NULL;
}

Test(bind, tensor_maps_are_checked_and_encoded) {
  static const char* const mangled = "FvN3ons10tensor_mapEE";
  ons__backend_ops ops = gpu_ops;
  ops.tensor_map = encode_map;
  ons__backend backend = {.ops = &ops};
  ons__device device = {.backend = &backend, .device = {kDLCUDA, 1}};
  alignas(128) static float memory[64];
  int64_t shape[] = {4, 8}, strides[] = {8, 1};
  DLTensor tensor = float_tensor(&device);
  tensor.data = memory;
  tensor.shape = shape;
  tensor.strides = strides;
  ons_tensor_map map = ONS_TENSOR_MAP_INIT;
  map.rank = 2;
  map.box[0] = 2;
  map.box[1] = 8;
  ons_arg arg = {.kind = ONS_ARG_TENSOR_MAP,
                 .flags = ONS_ARG_STREAM_KNOWN | ONS_ARG_READ_ONLY,
                 .value.tensor = &tensor,
                 .tensor_map = &map};
  attempt got = bind_one(mangled, &arg, &device);
  cr_assert(eq(int, got.refusal, ONS__ACCEPTED), "%s", got.error.message);
  cr_expect(eq(int, got.bytes[63], 0x5a));

#define REFUSED_MAP(text)                                           \
  CHECK_REFUSED(bind_one(mangled, &arg, &device), ONS__REFUSED_MAP, \
                ONS_STATUS_ARGUMENT_VALUE, text)
  map.flags = ONS_TENSOR_MAP_WRITE;
  cr_expect(eq(int, bind_one(mangled, &arg, &device).refusal, ONS__REFUSED_READ_ONLY));
  map.flags = 0;
  map.rank = 3;
  REFUSED_MAP("as many dimensions");
  map.rank = 2;
  map.box[0] = 257;
  REFUSED_MAP("1 to 256");
  map.box[0] = 2;
  map.box[1] = 2;
  REFUSED_MAP("multiple of 16 bytes");
  map.box[1] = 8;
  map.steps[0] = 9;
  REFUSED_MAP("step");
  map.steps[0] = 0;
  map.box[1] = 16;
  map.swizzle = ONS_SWIZZLE_32B;
  REFUSED_MAP("swizzle's span");
  map.box[1] = 8;
  map.swizzle = 0;
  strides[0] = 6;
  REFUSED_MAP("with strides (6, 1)");
  strides[0] = 16, strides[1] = 2;
  REFUSED_MAP("innermost dimension");
  strides[0] = 8, strides[1] = 1;
  tensor.byte_offset = 4;
  REFUSED_MAP("multiple of 16 bytes");
  tensor.byte_offset = 0;
  shape[0] = 77;
  REFUSED_MAP("the driver refuses");
  shape[0] = 0;
  REFUSED_MAP("some elements");
  shape[0] = 4;
  tensor.dtype = (DLDataType){kDLComplex, 64, 1};
  REFUSED_MAP("another dtype");
  tensor = float_tensor(&cpu);
  CHECK_REFUSED(bind_one(mangled, &arg, &cpu), ONS__REFUSED_MAP,
                ONS_STATUS_ARGUMENT_VALUE, "compute capability 9.0");
  arg = tensor_arg(&tensor, 0);
  CHECK_REFUSED(bind_one(mangled, &arg, &cpu), ONS__REFUSED_NEEDS_MAP,
                ONS_STATUS_ARGUMENT_TYPE, "layout of its tensor map");
}

/* ---- __restrict__ ---- */

static bool overlaps(const char* mangled, const uint8_t* is_restrict, const ons_arg* a,
                     const ons_arg* b) {
  ons_error error = ONS_ERROR_INIT;
  ons__signature* signature = NULL;
  ons__plan* plan = NULL;
  cr_assert(eq(int, ons__signature_parse(NULL, mangled, &signature, &error), 0));
  cr_assert(
      eq(int, ons__plan_create(NULL, "k", signature, is_restrict, &plan, &error), 0));
  cr_expect(eq(sz, plan->common_count, is_restrict ? SIZE_MAX : 2));
  ons_arg args[] = {*a, *b};
  size_t first = 9, second = 9;
  bool found = ons__bind_find_overlap(plan, args, &first, &second);
  if (found) cr_expect(first == 0 && second == 1);
  ons__free(NULL, plan);
  ons__signature_destroy(signature);
  return found;
}

Test(bind, overlaps_are_found_where_restrict_is_promised) {
  static const uint8_t one[] = {0, 1}, none[] = {0, 0};
  static const char* const written = "FvPKfPfE";
  DLTensor x = float_tensor(&cpu), y = x; /* 6 floats */
  ons_arg a = tensor_arg(&x, 0), b = tensor_arg(&y, 0);
  y.byte_offset = 5 * sizeof(float);
  cr_expect(overlaps(written, one, &a, &b));
  cr_expect(not(overlaps(written, none, &a, &b)));
  cr_expect(not(overlaps(written, NULL, &a, &b)));
  cr_expect(not(overlaps("FvPKfPKfE", one, &a, &b)), "both only read");
  y.byte_offset = 6 * sizeof(float);
  cr_expect(not(overlaps(written, one, &a, &b)));
  x.byte_offset = 5 * sizeof(float);
  x.shape = (int64_t[]){1, 2};
  cr_expect(overlaps(written, one, &a, &b));

  /* Columns of one matrix lie between each other. */
  int64_t shape[] = {3, 2}, strides[] = {4, 1}, back[] = {-4, 1};
  x = y = float_tensor(&cpu);
  x.shape = y.shape = shape;
  x.strides = y.strides = strides;
  y.byte_offset = 2 * sizeof(float);
  cr_expect(not(overlaps("FvN3ons4viewIKfLi2ExEENS0_IfLi2ExEEE", one, &a, &b)));
  y.byte_offset = 0;
  cr_expect(overlaps("FvN3ons4viewIKfLi2ExEENS0_IfLi2ExEEE", one, &a, &b));

  /* Backwards from its element 0. */
  y = float_tensor(&cpu);
  y.byte_offset = 2 * sizeof(float);
  x.strides = back;
  x.byte_offset = 10 * sizeof(float);
  cr_expect(not(overlaps("FvN3ons4viewIKfLi2ExEEPfE", one, &a, &b)), "not certain");
  x.byte_offset = 4 * sizeof(float);
  cr_expect(overlaps("FvN3ons4viewIKfLi2ExEEPfE", one, &a, &b));

  /* Lists, empty tensors, nulls. */
  x = y = float_tensor(&cpu);
  ons_arg items[] = {{.kind = ONS_ARG_NULL}, a};
  ons_arg list = list_arg(items, 2);
  cr_expect(overlaps("FvN3ons4ptrsIKfLi2EEEPfE", one, &list, &b));
  y.shape = (int64_t[]){0, 3};
  cr_expect(not(overlaps(written, one, &a, &b)));
}
