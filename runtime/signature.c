#include "runtime/signature.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/mangling.h"

/* How a type lies in memory. */
typedef struct element {
  DLDataType dtype; /* bits 0: DLPack has none */
  DLDataType alternative;
  uint32_t size_bytes; /* 0: unknown */
  uint32_t align_bytes;
} element;

/* XX(spelling, code, bits, lanes): builtin types, and classes that vendors' headers
 * declare at global scope (those of HIP included). */
#define ELEMENT_MAP(XX)                               \
  XX("bool", kDLBool, 8, 1)                           \
  XX("char", kDLInt, 8, 1)                            \
  XX("signed char", kDLInt, 8, 1)                     \
  XX("unsigned char", kDLUInt, 8, 1)                  \
  XX("short", kDLInt, 16, 1)                          \
  XX("unsigned short", kDLUInt, 16, 1)                \
  XX("int", kDLInt, 32, 1)                            \
  XX("unsigned int", kDLUInt, 32, 1)                  \
  XX("long", kDLInt, 64, 1)                           \
  XX("unsigned long", kDLUInt, 64, 1)                 \
  XX("long long", kDLInt, 64, 1)                      \
  XX("unsigned long long", kDLUInt, 64, 1)            \
  XX("__int128", kDLInt, 128, 1)                      \
  XX("unsigned __int128", kDLUInt, 128, 1)            \
  XX("wchar_t", kWideChar, 32, 1)                     \
  XX("char8_t", kDLUInt, 8, 1)                        \
  XX("char16_t", kDLUInt, 16, 1)                      \
  XX("char32_t", kDLUInt, 32, 1)                      \
  XX("float", kDLFloat, 32, 1)                        \
  XX("double", kDLFloat, 64, 1)                       \
  XX("_Float16", kDLFloat, 16, 1)                     \
  XX("_Float32", kDLFloat, 32, 1)                     \
  XX("_Float64", kDLFloat, 64, 1)                     \
  XX("_Float128", kDLFloat, 128, 1)                   \
  XX("__float128", kDLFloat, 128, 1)                  \
  XX("__fp16", kDLFloat, 16, 1)                       \
  XX("__half", kDLFloat, 16, 1)                       \
  XX("__half2", kDLFloat, 16, 2)                      \
  XX("__bf16", kDLBfloat, 16, 1)                      \
  XX("__nv_bfloat16", kDLBfloat, 16, 1)               \
  XX("__nv_bfloat162", kDLBfloat, 16, 2)              \
  XX("hip_bfloat16", kDLBfloat, 16, 1)                \
  XX("__hip_bfloat16", kDLBfloat, 16, 1)              \
  XX("__hip_bfloat162", kDLBfloat, 16, 2)             \
  XX("__nv_fp8_e4m3", kDLFloat8_e4m3fn, 8, 1)         \
  XX("__nv_fp8_e5m2", kDLFloat8_e5m2, 8, 1)           \
  XX("__nv_fp8_e8m0", kDLFloat8_e8m0fnu, 8, 1)        \
  XX("__hip_fp8_e4m3", kDLFloat8_e4m3fn, 8, 1)        \
  XX("__hip_fp8_e5m2", kDLFloat8_e5m2, 8, 1)          \
  XX("__hip_fp8_e4m3_fnuz", kDLFloat8_e4m3fnuz, 8, 1) \
  XX("__hip_fp8_e5m2_fnuz", kDLFloat8_e5m2fnuz, 8, 1)

enum { kWideChar = (wchar_t)-1 < 0 ? kDLInt : kDLUInt };

static const struct {
  const char* spelling;
  DLDataType dtype;
} kElements[] = {
#define ELEMENT(spelling, code, bits, lanes) {spelling, {code, bits, lanes}},
    ELEMENT_MAP(ELEMENT)
#undef ELEMENT
};

/* The scalar types of CUDA's vector types: float4 is "float" and a digit. */
static const struct {
  const char* prefix;
  DLDataType dtype;
} kVectors[] = {
    {"char", {kDLInt, 8, 1}},      {"uchar", {kDLUInt, 8, 1}},
    {"short", {kDLInt, 16, 1}},    {"ushort", {kDLUInt, 16, 1}},
    {"int", {kDLInt, 32, 1}},      {"uint", {kDLUInt, 32, 1}},
    {"long", {kDLInt, 64, 1}},     {"ulong", {kDLUInt, 64, 1}},
    {"longlong", {kDLInt, 64, 1}}, {"ulonglong", {kDLUInt, 64, 1}},
    {"float", {kDLFloat, 32, 1}},  {"double", {kDLFloat, 64, 1}},
};

static const DLDataType kInt8 = {kDLInt, 8, 1};
static const DLDataType kUInt8 = {kDLUInt, 8, 1};
static const DLDataType kInt64 = {kDLInt, 64, 1};
static const DLDataType kUInt64 = {kDLUInt, 64, 1};

/* ---- what a type is --------------------------------------------------------------- */

static bool is_builtin(const ons__type* type, const char* text) {
  return type->kind == ONS__TYPE_BUILTIN && ons__type_text_is(type, text);
}

static bool is_global_name(const ons__type* type, const char* text) {
  return type->kind == ONS__TYPE_NAME && !type->first && ons__type_text_is(type, text);
}

/* Removes const, volatile and __restrict__; adds them to |out_qualifiers| (may be NULL).
 */
static const ons__type* unqualified(const ons__type* type, unsigned* out_qualifiers) {
  while (type->kind == ONS__TYPE_QUALIFIED) {
    if (out_qualifiers) *out_qualifiers |= type->qualifiers;
    type = type->first;
  }
  return type;
}

static const ons__type* argument(const ons__type* instance, size_t index) {
  const ons__type* cell = instance->second;
  while (cell && index-- > 0) cell = cell->second;
  return cell ? cell->first : NULL;
}

/* The value of an integer literal up to `limit`, or -1. */
static int small_literal(const ons__type* type, int limit) {
  if (!type || type->kind != ONS__TYPE_LITERAL || type->length == 0) return -1;
  int value = 0;
  for (size_t i = 0; i < type->length; ++i) {
    if (type->text[i] < '0' || type->text[i] > '9') return -1;
    value = value * 10 + (type->text[i] - '0');
    if (value > limit) return -1;
  }
  return value;
}

/* complex of std, cuda::std or thrust, whatever inline namespaces lie between. */
static bool is_complex_name(const ons__type* name) {
  if (!ons__type_text_is(name, "complex") || !name->first) return false;
  const ons__type* outer = name->first;
  const ons__type* below = NULL;
  for (; outer->kind == ONS__TYPE_NAME && outer->first; outer = outer->first)
    below = outer;
  if (is_global_name(outer, "std") || is_global_name(outer, "thrust")) return true;
  return is_global_name(outer, "cuda") && below && ons__type_text_is(below, "std");
}

static bool is_in_ons(const ons__type* name, const char* text) {
  return ons__type_text_is(name, text) && name->first &&
         is_global_name(name->first, "ons");
}

static bool is_instance_of(const ons__type* type, const char* text) {
  return type->kind == ONS__TYPE_TEMPLATE && is_in_ons(type->first, text);
}

/* Ours, or cuda.h's. */
static bool is_tensor_map(const ons__type* type) {
  return type->kind == ONS__TYPE_NAME &&
         (is_in_ons(type, "tensor_map") || is_global_name(type, "CUtensorMap") ||
          is_global_name(type, "CUtensorMap_st"));
}

/* ---- dtypes ----------------------------------------------------------------------- */

static element make_element(DLDataType dtype) {
  element made = {.dtype = dtype};
  made.size_bytes = dtype.bits / 8u * dtype.lanes;
  made.align_bytes = made.size_bytes;
  if (dtype.lanes == 3) made.align_bytes = dtype.bits / 8u;
  if (made.align_bytes > 16) made.align_bytes = 16;
  /* Two floats side by side are a complex number to many (cuFloatComplex is a float2). */
  if (dtype.code == kDLFloat && dtype.lanes == 2) {
    made.alternative = (DLDataType){kDLComplex, (uint8_t)(dtype.bits * 2), 1};
  }
  return made;
}

/* "float4", and "double4_32a" with its alignment. */
static bool vector_element(const ons__type* name, element* out_element) {
  for (size_t i = 0; i < sizeof(kVectors) / sizeof(kVectors[0]); ++i) {
    size_t length = strlen(kVectors[i].prefix);
    if (name->length <= length || memcmp(name->text, kVectors[i].prefix, length) != 0)
      continue;
    char lanes = name->text[length];
    if (lanes < '1' || lanes > '4') continue;
    const char* suffix = name->text + length + 1;
    size_t suffix_length = name->length - length - 1;
    bool is_aligned = lanes == '4' && suffix_length == 4 &&
                      (memcmp(suffix, "_16a", 4) == 0 || memcmp(suffix, "_32a", 4) == 0);
    if (suffix_length != 0 && !is_aligned) return false;
    DLDataType dtype = kVectors[i].dtype;
    dtype.lanes = (uint16_t)(lanes - '0');
    *out_element = make_element(dtype);
    if (is_aligned) out_element->align_bytes = suffix[1] == '3' ? 32 : 16;
    return true;
  }
  return false;
}

static bool named_element(const ons__type* name, element* out_element) {
  for (size_t i = 0; i < sizeof(kElements) / sizeof(kElements[0]); ++i) {
    if (!ons__type_text_is(name, kElements[i].spelling)) continue;
    *out_element = make_element(kElements[i].dtype);
    return true;
  }
  return name->kind == ONS__TYPE_NAME && vector_element(name, out_element);
}

static bool find_element(const ons__type* type, element* out_element);

static bool instance_element(const ons__type* type, element* out_element) {
  const ons__type* first = argument(type, 0);
  element part = {0};
  if (!first || !find_element(first, &part) || part.dtype.lanes != 1) return false;
  if (is_complex_name(type->first)) {
    if (part.dtype.code != kDLFloat || part.dtype.bits > 64) return false;
    DLDataType dtype = {kDLComplex, (uint8_t)(part.dtype.bits * 2), 1};
    *out_element = make_element(dtype);
    return true;
  }
  int lanes = small_literal(argument(type, 1), 4);
  if (!is_global_name(type->first, "HIP_vector_type") || lanes < 1) return false;
  part.dtype.lanes = (uint16_t)lanes;
  *out_element = make_element(part.dtype);
  return true;
}

/* False for types that DLPack has no name for: classes, enumerations, long double. */
static bool find_element(const ons__type* type, element* out_element) {
  switch (type->kind) {
    case ONS__TYPE_BUILTIN:
      return named_element(type, out_element);
    case ONS__TYPE_NAME:
      return !type->first && named_element(type, out_element);
    case ONS__TYPE_TEMPLATE:
      return instance_element(type, out_element);
    case ONS__TYPE_POINTER: /* a tensor of addresses */
      *out_element = make_element(kUInt64);
      out_element->alternative = kInt64;
      return true;
    default:
      return false;
  }
}

/* ---- parameters ------------------------------------------------------------------- */

static void set_pointer(const ons__type* pointer, ons__parameter* parameter) {
  unsigned qualifiers = 0;
  const ons__type* target = unqualified(pointer->first, &qualifiers);
  while (target->kind == ONS__TYPE_ARRAY)
    target = unqualified(target->first, &qualifiers);
  parameter->kind = ONS_PARAMETER_POINTER;
  parameter->size_bytes = parameter->align_bytes = 8;
  parameter->is_const = (qualifiers & ONS__QUALIFIER_CONST) != 0;
  if (target->kind == ONS__TYPE_FUNCTION) {
    parameter->kind = ONS_PARAMETER_STRUCT;
    return;
  }
  if (is_builtin(target, "void")) return;
  element found = {0};
  if (find_element(target, &found)) {
    parameter->dtype = found.dtype;
    parameter->alternative = found.alternative;
  } else {
    parameter->is_raw = 1;
    parameter->dtype = kUInt8;
    parameter->alternative = kInt8;
  }
}

static const char kDeclareAnother[] = "declare a value or a pointer";

/* These return NULL, or what is wrong with the type and what to do, for an error message.
 */

/* Lies as {T* data; Index shape[N]; Index strides[N];}. */
static const char* set_view(const ons__type* view, ons__parameter* parameter) {
  unsigned qualifiers = 0;
  const ons__type* target = argument(view, 0);
  const ons__type* index = argument(view, 2);
  int rank = small_literal(argument(view, 1), UINT8_MAX);
  element found = {0};
  element index_found = {0};
  if (!target || !index || rank < 0) {
    return "declare it as ons::view<T, N> with N from 1 to 255";
  }
  if (!find_element(index, &index_found) || index_found.dtype.code != kDLInt ||
      index_found.dtype.bits < 32 || index_found.dtype.bits > 64) {
    return "declare its index type as int or long long";
  }
  if (!find_element(unqualified(target, &qualifiers), &found)) {
    return "an ons::view takes elements of a type that tensors have; declare a pointer "
           "for "
           "raw bytes";
  }
  parameter->kind = ONS_PARAMETER_VIEW;
  parameter->dtype = found.dtype;
  parameter->alternative = found.alternative;
  parameter->is_const = (qualifiers & ONS__QUALIFIER_CONST) != 0;
  parameter->ndim = (uint8_t)rank;
  parameter->index_bits = index_found.dtype.bits;
  parameter->size_bytes = 8 + 2 * (uint32_t)rank * index_found.size_bytes;
  parameter->align_bytes = 8;
  return NULL;
}

/* {T* data[N];} */
static const char* set_pointers(const ons__type* table, ons__parameter* parameter) {
  unsigned qualifiers = 0;
  const ons__type* target = argument(table, 0);
  int count = small_literal(argument(table, 1), ONS__POINTERS_MAX);
  element found = {0};
  if (!target || count < 1) {
    return "declare it as ons::ptrs<T, N> with N from 1 to 512";
  }
  if (!find_element(unqualified(target, &qualifiers), &found)) {
    return "an ons::ptrs takes elements of a type that tensors have";
  }
  parameter->kind = ONS_PARAMETER_POINTERS;
  parameter->dtype = found.dtype;
  parameter->alternative = found.alternative;
  parameter->is_const = (qualifiers & ONS__QUALIFIER_CONST) != 0;
  parameter->item_count = (uint16_t)count;
  parameter->size_bytes = 8 * (uint32_t)count;
  parameter->align_bytes = 8;
  return NULL;
}

static const char* set_tensor_map(ons__parameter* parameter) {
  parameter->kind = ONS_PARAMETER_TENSOR_MAP;
  parameter->size_bytes = ONS_TENSOR_MAP_BYTES;
  parameter->align_bytes = 64;
  return NULL;
}

/* Numbers that a caller can give as such. */
static bool is_number(DLDataType dtype) {
  if (dtype.lanes != 1 || dtype.bits > 64) return false;
  switch (dtype.code) {
    case kDLBool:
    case kDLInt:
    case kDLUInt:
    case kDLFloat:
    case kDLBfloat:
    case kDLFloat8_e4m3fn:
    case kDLFloat8_e4m3fnuz:
    case kDLFloat8_e5m2:
    case kDLFloat8_e5m2fnuz:
      return true;
    default:
      return false;
  }
}

static bool is_vector(DLDataType dtype) {
  if (dtype.code == kDLComplex) return true;
  DLDataType lane = {dtype.code, dtype.bits, 1};
  return dtype.lanes > 1 && is_number(lane);
}

static ons_parameter_kind value_kind(const element* found) {
  if (found->size_bytes && is_number(found->dtype)) return ONS_PARAMETER_SCALAR;
  if (found->size_bytes && is_vector(found->dtype)) return ONS_PARAMETER_VECTOR;
  return ONS_PARAMETER_STRUCT;
}

static const char* set_value(const ons__type* type, ons__parameter* parameter) {
  element found = {0};
  if (is_builtin(type, "void")) return kDeclareAnother;
  if (is_builtin(type, "decltype(nullptr)")) found.size_bytes = found.align_bytes = 8;
  (void)find_element(type, &found);
  parameter->kind = value_kind(&found);
  if (parameter->kind != ONS_PARAMETER_STRUCT) parameter->dtype = found.dtype;
  parameter->size_bytes = found.size_bytes;
  parameter->align_bytes = found.align_bytes;
  return NULL;
}

static const char* set_parameter(const ons__type* type, ons__parameter* parameter) {
  const ons__type* plain = unqualified(type, NULL);
  switch (plain->kind) {
    case ONS__TYPE_POINTER:
      set_pointer(plain, parameter);
      return NULL;
    case ONS__TYPE_LVALUE_REFERENCE:
    case ONS__TYPE_RVALUE_REFERENCE:
      return "a reference would refer to host memory; declare a value or a pointer";
    case ONS__TYPE_MEMBER_POINTER:
      return "a pointer to a member; declare an index or an offset";
    case ONS__TYPE_BUILTIN:
    case ONS__TYPE_NAME:
    case ONS__TYPE_TEMPLATE:
      if (is_instance_of(plain, "view")) return set_view(plain, parameter);
      if (is_instance_of(plain, "ptrs")) return set_pointers(plain, parameter);
      if (is_tensor_map(plain)) return set_tensor_map(parameter);
      return set_value(plain, parameter);
    default:
      return kDeclareAnother;
  }
}

static ons_status fill_parameters(const ons__type* list, ons__signature* signature,
                                  ons_error* error) {
  for (size_t i = 0; i < signature->count; ++i, list = list->second) {
    ons__parameter* parameter = &signature->parameters[i];
    parameter->type = ons__type_spell(signature->allocator, list->first);
    if (!parameter->type) return ons__error_no_memory(error);
    const char* problem = set_parameter(list->first, parameter);
    if (problem) {
      return ons__error_set(error, ONS_STATUS_UNSUPPORTED, "parameter %zu (%s): %s",
                            i + 1, parameter->type, problem);
    }
  }
  return ONS_STATUS_OK;
}

ons_status ons__signature_parse(const ons_allocator* allocator, const char* mangled,
                                ons__signature** out_signature, ons_error* error) {
  assert(mangled && out_signature);
  ons__type_tree tree = {0};
  ons__signature* signature = NULL;
  ons_status status = ons__type_tree_parse(allocator, mangled, &tree, error);
  if (status != ONS_STATUS_OK) return status;

  if (!is_builtin(tree.function->first, "void")) {
    char* result = ons__type_spell(allocator, tree.function->first);
    if (!result) goto no_memory;
    status = ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                            "it returns %s; declare it void and write results through a "
                            "pointer",
                            result);
    ons__free(allocator, result);
    goto fail;
  }
  signature = ons__alloc(allocator, sizeof(*signature));
  if (!signature) goto no_memory;
  signature->allocator = allocator;
  size_t count = 0;
  for (const ons__type* cell = tree.function->second; cell; cell = cell->second) ++count;
  signature->parameters = ons__alloc_array(allocator, count, sizeof(ons__parameter));
  if (!signature->parameters) goto no_memory;
  signature->count = count;
  status = fill_parameters(tree.function->second, signature, error);
  if (status != ONS_STATUS_OK) goto fail;
  ons__type_tree_clear(&tree);
  *out_signature = signature;
  return ONS_STATUS_OK;

no_memory:
  status = ons__error_no_memory(error);
fail:
  ons__type_tree_clear(&tree);
  ons__signature_destroy(signature);
  return status;
}

void ons__signature_destroy(ons__signature* signature) {
  if (!signature) return;
  for (size_t i = 0; i < signature->count; ++i) {
    ons__free(signature->allocator, signature->parameters[i].type);
  }
  ons__free(signature->allocator, signature->parameters);
  ons__free(signature->allocator, signature);
}

/* ---- text ------------------------------------------------------------------------- */

/* NULL for codes whose name needs the width after it ("float32"). */
static const char* fixed_dtype_name(DLDataType dtype) {
  if (dtype.bits == 0) return "void";
  switch (dtype.code) {
    case kDLBool:
      return dtype.bits == 8 ? "bool" : NULL;
    case kDLFloat8_e3m4:
      return "float8_e3m4";
    case kDLFloat8_e4m3:
      return "float8_e4m3";
    case kDLFloat8_e4m3b11fnuz:
      return "float8_e4m3b11fnuz";
    case kDLFloat8_e4m3fn:
      return "float8_e4m3fn";
    case kDLFloat8_e4m3fnuz:
      return "float8_e4m3fnuz";
    case kDLFloat8_e5m2:
      return "float8_e5m2";
    case kDLFloat8_e5m2fnuz:
      return "float8_e5m2fnuz";
    case kDLFloat8_e8m0fnu:
      return "float8_e8m0fnu";
    case kDLFloat6_e2m3fn:
      return "float6_e2m3fn";
    case kDLFloat6_e3m2fn:
      return "float6_e3m2fn";
    case kDLFloat4_e2m1fn:
      return "float4_e2m1fn";
    default:
      return NULL;
  }
}

static const char* dtype_family(uint8_t code) {
  static const char* const kFamilies[] = {
      [kDLInt] = "int",       [kDLUInt] = "uint",       [kDLFloat] = "float",
      [kDLBfloat] = "bfloat", [kDLComplex] = "complex", [kDLOpaqueHandle] = "handle",
      [kDLBool] = "bool"};
  return code < sizeof(kFamilies) / sizeof(kFamilies[0]) ? kFamilies[code] : NULL;
}

void ons__dtype_text(DLDataType dtype, char* out_text, size_t capacity_bytes) {
  char scalar[48];
  const char* fixed = fixed_dtype_name(dtype);
  const char* family = dtype_family(dtype.code);
  if (fixed) {
    snprintf(scalar, sizeof(scalar), "%s", fixed);
  } else if (family) {
    snprintf(scalar, sizeof(scalar), "%s%u", family, dtype.bits);
  } else {
    snprintf(scalar, sizeof(scalar), "dtype(code %u, %u bits)", dtype.code, dtype.bits);
  }
  if (dtype.lanes > 1) {
    snprintf(out_text, capacity_bytes, "%sx%u", scalar, dtype.lanes);
  } else {
    snprintf(out_text, capacity_bytes, "%s", scalar);
  }
}
