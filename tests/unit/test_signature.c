/* Kernel signatures. The mangled texts are those of real compilers: symbols from
 * NVRTC 13.0, bare types from typeid of g++ 12 and clang 14. That the spelt types are the
 * declared ones was checked with the compilers themselves (is_same). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/string.h"
#include "runtime/signature.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static ons__signature* parse(const char* mangled) {
  ons__signature* signature = NULL;
  ons_error error = ONS_ERROR_INIT;
  ons_status status = ons__signature_parse(NULL, mangled, &signature, &error);
  cr_assert_eq(status, ONS_STATUS_OK, "%s", error.message);
  return signature;
}

static void refuse(const char* mangled, const char* reason) {
  ons__signature* signature = NULL;
  ons_error error = ONS_ERROR_INIT;
  ons_status status = ons__signature_parse(NULL, mangled, &signature, &error);
  cr_assert_eq(status, ONS_STATUS_UNSUPPORTED, "%s", mangled);
  cr_assert_eq(signature, NULL);
  cr_assert(strstr(error.message, reason), "%s: %s", mangled, error.message);
}

/* The types of all parameters, ", " between them. */
static void expect_types(const char* mangled, const char* types) {
  ons__signature* signature = parse(mangled);
  char text[8192] = "";
  for (size_t i = 0; i < signature->count; ++i) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof(text) - used, "%s%s", i ? ", " : "",
             signature->parameters[i].type);
  }
  cr_assert_str_eq(text, types, "%s", mangled);
  ons__signature_destroy(signature);
}

/* "pointer const float32|complex64 8/8": kind, constness, dtypes, size and alignment. */
static void describe(const ons__parameter* parameter, char* text, size_t capacity_bytes) {
  static const char* const kKinds[] = {"",       "pointer", "view",     "scalar",
                                       "struct", "vector",  "pointers", "tensor map"};
  char dtype[32], alternative[32] = "", shape[32] = "";
  ons__dtype_text(parameter->dtype, dtype, sizeof(dtype));
  if (parameter->alternative.bits) {
    alternative[0] = '|';
    ons__dtype_text(parameter->alternative, alternative + 1, sizeof(alternative) - 1);
  }
  if (parameter->kind == ONS_PARAMETER_VIEW) {
    snprintf(shape, sizeof(shape), " rank %d index %d", parameter->ndim,
             parameter->index_bits);
  }
  snprintf(text, capacity_bytes, "%s%s%s %s%s%s %u/%u", kKinds[parameter->kind],
           parameter->is_const ? " const" : "", parameter->is_raw ? " raw" : "", dtype,
           alternative, shape, parameter->size_bytes, parameter->align_bytes);
}

static void expect_parameter(const char* mangled, size_t index, const char* expected) {
  ons__signature* signature = parse(mangled);
  char text[160];
  cr_assert_lt(index, signature->count, "%s", mangled);
  describe(&signature->parameters[index], text, sizeof(text));
  cr_assert_str_eq(text, expected, "%s parameter %zu", mangled, index);
  ons__signature_destroy(signature);
}

static void expect_parameters(const char* mangled, const char* const* expected,
                              size_t count) {
  ons__signature* signature = parse(mangled);
  cr_assert_eq(signature->count, count, "%s", mangled);
  ons__signature_destroy(signature);
  for (size_t i = 0; i < count; ++i) expect_parameter(mangled, i, expected[i]);
}

/* ---- spelling --------------------------------------------------------------------- */

Test(signature, types_as_nvrtc_mangles_them) {
  static const char* const kPairs[][2] = {
      {"_Z7ons_sigIFvvEEvv", ""},
      {"_Z7ons_sigIFvfPKfPfxEEvv", "float, const float*, float*, long long"},
      {"_Z7ons_sigIFvP6__halfPKS0_S0_P7__half2S4_PKS4_EEvv",
       "__half*, const __half*, __half, __half2*, __half2, const __half2*"},
      {"_Z7ons_sigIFvP13__nv_bfloat16PKS0_S0_P14__nv_bfloat162PKS4_EEvv",
       "__nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16, __nv_bfloat162*, const __"
       "nv_bfloat162*"},
      {"_Z7ons_sigIFvP13__nv_fp8_e4m3PKS0_P13__nv_fp8_e5m2P13__nv_fp8_e8m0S0_P15__nv_f"
       "p8x4_e4m3P15__nv_fp8x2_e5m2EEvv",
       "__nv_fp8_e4m3*, const __nv_fp8_e4m3*, __nv_fp8_e5m2*, __nv_fp8_e8m0*, __nv_fp8"
       "_e4m3, __nv_fp8x4_e4m3*, __nv_fp8x2_e5m2*"},
      {"_Z7ons_sigIFvP13__nv_fp4_e2m1P13__nv_fp6_e2m3P13__nv_fp6_e3m2P15__nv_fp4x2_e2m"
       "1EEvv",
       "__nv_fp4_e2m1*, __nv_fp6_e2m3*, __nv_fp6_e3m2*, __nv_fp4x2_e2m1*"},
      {"_Z7ons_sigIFv6float2PS0_PK6float4S2_P7double2P4int4P5uint3P6uchar4P9longlong2P"
       "6short1P10ulonglong4P5char2P6float3P7double44dim3P5long2P6ulong3P7ushort4EEvv",
       "float2, float2*, const float4*, float4, double2*, int4*, uint3*, uchar4*, long"
       "long2*, short1*, ulonglong4*, char2*, float3*, double4*, dim3, long2*, ulong3*"
       ", ushort4*"},
      {"_Z7ons_sigIFvP6float2PK7double2PN4cuda3std3__47complexIfEEPKNS8_IdEES9_PNS8_I6"
       "__halfEEEEvv",
       "float2*, const double2*, cuda::std::complex<float>*, const cuda::std::complex<"
       "double>*, cuda::std::complex<float>, cuda::std::complex<__half>*"},
      {"_Z7ons_sigIFvbachstijlmxyEEvv",
       "bool, signed char, char, unsigned char, short, unsigned short, int, unsigned i"
       "nt, long, unsigned long, long long, unsigned long long"},
      {"_Z7ons_sigIFvPbPaPcPhPsPtPiPjPlPmPxPyEEvv",
       "bool*, signed char*, char*, unsigned char*, short*, unsigned short*, int*, uns"
       "igned int*, long*, unsigned long*, long long*, unsigned long long*"},
      {"_Z7ons_sigIFvoPnPwPDsPDidPdEEvv",
       "unsigned __int128, __int128*, wchar_t*, char16_t*, char32_t*, double, double*"},
      {"_Z7ons_sigIFv1SPS0_PKS0_1EPS4_2E2PKS6_EEvv",
       "S, S*, const S*, E, E*, E2, const E2*"},
      {"_Z7ons_sigIFvN3ons4viewIKfLi2ElEENS1_IfLi2ExEENS1_I6__halfLi3EiEENS1_IK13__nv_"
       "bfloat16Li0ExEEPS3_EEvv",
       "ons::view<const float, 2, long>, ons::view<float, 2, long long>, ons::view<__h"
       "alf, 3, int>, ons::view<const __nv_bfloat16, 0, long long>, ons::view<const fl"
       "oat, 2, long>*"},
      {"_Z7ons_sigIFvPvPKvPS0_PKPKfPPPfPViPVKfS8_S5_EEvv",
       "void*, const void*, void**, const float* const*, float***, volatile int*, cons"
       "t volatile float*, float*, const float*"},
      {"_Z7ons_sigIFvPFvifEPFiRK1SOS2_EPA4_fPA3_A2_KfPFvvEEEvv",
       "void (*)(int, float), int (*)(const S&, S&&), float (*)[4], const float (*)[3]"
       "[2], void (*)()"},
      {"_Z7ons_sigIFv4PackIJEES0_IJifPiEES0_IJS0_IJiEES4_EE3LitILb1ELj3ELln5ELc120EE4L"
       "itEIL1E0EL2E20EE3TtpI3VecEEEvv",
       "Pack<>, Pack<int, float, int*>, Pack<Pack<int>, Pack<int>>, Lit<true, 3, -5, ("
       "char)120>, LitE<(E)0, (E2)0>, Ttp<Vec>"},
      {"_Z7ons_sigIFviPKf1SEEvv", "int, const float*, S"},
      {"_Z7ons_sigIFvP3VecIS0_IfLi2EELi3EEPS1_PKS2_S2_S1_PfS0_IS7_Li2EES0_IPKfLi2EEEEv"
       "v",
       "Vec<Vec<float, 2>, 3>*, Vec<float, 2>*, const Vec<Vec<float, 2>, 3>*, Vec<Vec<"
       "float, 2>, 3>, Vec<float, 2>, float*, Vec<float*, 2>, Vec<const float*, 2>"},
      {"_Z7ons_sigIFvPiPA8_KfEEvv", "int*, const float (*)[8]"},
      {"_Z7ons_sigIFvN4cuda3std3__45arrayIfLm4EEEPS4_PymlNS2_4spanIfLm1844674407370955"
       "1615EEEEEvv",
       "cuda::std::array<float, 4>, cuda::std::array<float, 4>*, unsigned long long*, "
       "unsigned long, long, cuda::std::span<float, 18446744073709551615>"},
      {"_Z7ons_sigIFvDniEEvv", "decltype(nullptr), int"},
      {"_Z7ons_sigIFv4PackIJFviEPFvfEEES0_IJA3_iEES0_IJRiOKiEEEEvv",
       "Pack<void(int), void (*)(float)>, Pack<int[3]>, Pack<int&, const int&&>"},
      {"_Z7ons_sigIFvPN1a1b1QES2_NS2_2InEPS4_EEvv",
       "a::b::Q*, a::b::Q, a::b::Q::In, a::b::Q::In*"},
      {"_Z7ons_sigIFvN1a2v11WEPKS2_EEvv", "a::v1::W, const a::v1::W*"},
      {"_Z7ons_sigIFvN36_GLOBAL__N__00000000_4_k_cu_2ee81ce02AnEPS1_iEEvv",
       "(anonymous namespace)::An, (anonymous namespace)::An*, int"},
      {"_Z7ons_sigIFvPf3VecIfLi3EEfEEvv", "float*, Vec<float, 3>, float"},
      {"_Z7ons_sigIFvP6__half3VecIS0_Li8EES0_EEvv", "__half*, Vec<__half, 8>, __half"},
      {"_Z7ons_sigIFvPPKd3VecIS1_Li2EES1_EEvv",
       "const double**, Vec<const double*, 2>, const double*"},
  };
  for (size_t i = 0; i < COUNT(kPairs); ++i) expect_types(kPairs[i][0], kPairs[i][1]);
}

Test(signature, types_as_host_compilers_mangle_them) {
  static const char* const kPairs[][2] = {
      {"FviE", "int"},
      {"FvfPKfPflE", "float, const float*, float*, long"},
      {"Fv1EPS_2E2PKS1_E", "E, E*, E2, const E2*"},
      {"FvN3ons4viewIKfLi2ElEENS0_IfLi2ExEENS0_I6__halfLi3EiEEPS2_E",
       "ons::view<const float, 2, long>, ons::view<float, 2, long long>, ons::view<__h"
       "alf, 3, int>, ons::view<const float, 2, long>*"},
      {"FvPSt7complexIfEPKS_IdES0_E",
       "std::complex<float>*, const std::complex<double>*, std::complex<float>"},
      {"FvSt5tupleIJifPiEES_IJS_IJiEEEEPSt8functionIFviPfEESt5arrayIfLm4EEPSt4pairIS5_"
       "S5_EE",
       "std::tuple<int, float, int*>, std::tuple<std::tuple<int>>, std::function<void("
       "int, float*)>*, std::array<float, 4>, std::pair<float*, float*>*"},
      {"FvPSt10unique_ptrIfSt14default_deleteIfEEPSt10shared_ptrIK1SESt4spanIfLm4EES9_"
       "IKiLm18446744073709551615EEE",
       "std::unique_ptr<float, std::default_delete<float>>*, std::shared_ptr<const S>*"
       ", std::span<float, 4>, std::span<const int, 18446744073709551615>"},
      {"FvN1a1XEPS0_NS_1YIS0_EENS3_1ZEPS4_NS3_1WIS0_EENS_1b1QENS8_1PIJS9_S0_EEENSA_IJE"
       "EENS8_2v11VEPSE_E",
       "a::X, a::X*, a::Y<a::X>, a::Y<a::X>::Z, a::Y<a::X>::Z*, a::Y<a::X>::W<a::X>, a"
       "::b::Q, a::b::P<a::b::Q, a::X>, a::b::P<>, a::b::v1::V, a::b::v1::V*"},
      {"Fv3VecIfLi3EES_IS0_Li3EEPS1_S_IPfLi3EEPKS4_S_IPKfLi3EEE",
       "Vec<float, 3>, Vec<Vec<float, 3>, 3>, Vec<Vec<float, 3>, 3>*, Vec<float*, 3>, "
       "const Vec<float*, 3>*, Vec<const float*, 3>"},
      {"Fv4PackIJEES_IJiEES_IJS0_S0_EES_IJS1_S1_EES_IJRiOiRKiEEE",
       "Pack<>, Pack<int>, Pack<Pack<>, Pack<>>, Pack<Pack<int>, Pack<int>>, Pack<int&"
       ", int&&, const int&>"},
      {"Fv4PackIJFviEEES_IJPS0_EES_IJA3_iEES_IJRS4_EES_IJA_iEES_IJPA2_S4_EES_IJPFPFvfE"
       "iEEEE",
       "Pack<void(int)>, Pack<void (*)(int)>, Pack<int[3]>, Pack<int (&)[3]>, Pack<int"
       "[]>, Pack<int (*)[2][3]>, Pack<void (* (*)(int))(float)>"},
      {"Fv4PackIJDoFvvEEES_IJPS0_EES_IJM1SiEES_IJMS4_KFifEEES_IJS8_MS4_FifEEES_IJMS4_D"
       "oFvvEEEE",
       "Pack<void() noexcept>, Pack<void (*)() noexcept>, Pack<int S::*>, Pack<int (S:"
       ":*)(float) const>, Pack<int (S::*)(float) const, int (S::*)(float)>, Pack<void"
       " (S::*)() noexcept>"},
      {"Fv4PackIJPFvvEPS1_PKS1_EES_IJKPA3_fEES_IJPVKPKfEEE",
       "Pack<void (*)(), void (**)(), void (* const*)()>, Pack<float (* const)[3]>, Pa"
       "ck<const float* const volatile*>"},
      {"Fv3LitILb1ELj3ELln5ELc120EE4LitEIL1E0EL2E2n3EES1_ILS2_1ELS3_n3EE3TtpI3VecE3Tpp"
       "IJSt6vector4PackEES9_IJEE4Lit2ILy18446744073709551615ELsn32768ELh255EE2NpILDnE"
       "E4IntsIiJLi1ELin2ELi3EEESI_IiJEEE",
       "Lit<true, 3, -5, (char)120>, LitE<(E)0, (E2)-3>, LitE<(E)1, (E2)-3>, Ttp<Vec>,"
       " Tpp<std::vector, Pack>, Tpp<>, Lit2<18446744073709551615, -32768, (unsigned c"
       "har)255>, Np<nullptr>, Ints<int, 1, -2, 3>, Ints<int>"},
      {"FvPvPKvPS_PKPKfPPPfPViPVKfS7_S4_E",
       "void*, const void*, void**, const float* const*, float***, volatile int*, cons"
       "t volatile float*, float*, const float*"},
      {"FvPrPfPKPiPKS4_PKPVS2_E",
       "float* __restrict__*, int* const*, int* const* const*, int* volatile* const*"},
      {"FvbcahstijlmxynofdewDsDiDuDnE",
       "bool, char, signed char, unsigned char, short, unsigned short, int, unsigned i"
       "nt, long, unsigned long, long long, unsigned long long, __int128, unsigned __i"
       "nt128, float, double, long double, wchar_t, char16_t, char32_t, char8_t, declt"
       "ype(nullptr)"},
      {"FvPbPcPaPhPwPDsPDiPDuPDnE",
       "bool*, char*, signed char*, unsigned char*, wchar_t*, char16_t*, char32_t*, ch"
       "ar8_t*, decltype(nullptr)*"},
      {"FvmlPmPaE", "unsigned long, long, unsigned long*, signed char*"},
      {"FvPiPA8_KfP3VecIiLi2EEE", "int*, const float (*)[8], Vec<int, 2>*"},
      {"Fvi1SPfPKS_E", "int, S, float*, const S*"},
      {"FvP1SPS0_PS1_S1_S0_PKS_PS4_PKS0_PKS4_E",
       "S*, S**, S***, S**, S*, const S*, const S**, S* const*, const S* const*"},
      {"FvN1a1YIiEENS0_IfEENS0_IS1_EENS3_1ZENS1_1WIfEENS5_IS2_EEE",
       "a::Y<int>, a::Y<float>, a::Y<a::Y<int>>, a::Y<a::Y<int>>::Z, a::Y<int>::W<floa"
       "t>, a::Y<int>::W<a::Y<float>>"},
      {"FvP4PackIJN1a1XENS0_1YIS1_EE1S1E2E2NS0_1b1QENS7_2v11VENSt7__cxx1112basic_strin"
       "gIcSt11char_traitsIcESaIcEEE6float26__halfEESA_S6_S5_S4_PSG_PSH_PSI_E",
       "Pack<a::X, a::Y<a::X>, S, E, E2, a::b::Q, a::b::v1::V, std::basic_string<char,"
       " std::char_traits<char>, std::allocator<char>>, float2, __half>*, a::b::v1::V,"
       " E2, E, S, std::basic_string<char, std::char_traits<char>, std::allocator<char"
       ">>*, float2*, __half*"},
      {"FvP6__halfPKS_S_P6float2S3_PKS3_E",
       "__half*, const __half*, __half, float2*, float2, const float2*"},
      {"FvPSt6vectorIS_IS_IiSaIiEESaIS1_EESaIS3_EEPS3_PS1_E",
       "std::vector<std::vector<std::vector<int, std::allocator<int>>, std::allocator<"
       "std::vector<int, std::allocator<int>>>>, std::allocator<std::vector<std::vecto"
       "r<int, std::allocator<int>>, std::allocator<std::vector<int, std::allocator<in"
       "t>>>>>>*, std::vector<std::vector<int, std::allocator<int>>, std::allocator<st"
       "d::vector<int, std::allocator<int>>>>*, std::vector<int, std::allocator<int>>*"},
      {"FvSt17integral_constantIiLi3EES_IbLb0EES_IbLb1EESt16integer_sequenceIiJLi0ELi1"
       "ELi2EEES3_ImJLm0ELm1EEEE",
       "std::integral_constant<int, 3>, std::integral_constant<bool, false>, std::inte"
       "gral_constant<bool, true>, std::integer_sequence<int, 0, 1, 2>, std::integer_s"
       "equence<unsigned long, 0, 1>"},
      {"FvPSt5ratioILl1ELl3EEPSt11char_traitsIcESt4hashIiEE",
       "std::ratio<1, 3>*, std::char_traits<char>*, std::hash<int>"},
      {"Fv3LitILb1ELj3ELln5ELc120EE4LitEIL1E0EL2E2n3EES1_ILS2_1ELS3_n3EE3TtpI3VecE3Tpp"
       "IJSt6vector4PackEES9_IJEE4Lit2ILy18446744073709551615ELsn32768ELh255EE2NpILDn0"
       "EE4IntsIiJLi1ELin2ELi3EEESI_IiJEEE",
       "Lit<true, 3, -5, (char)120>, LitE<(E)0, (E2)-3>, LitE<(E)1, (E2)-3>, Ttp<Vec>,"
       " Tpp<std::vector, Pack>, Tpp<>, Lit2<18446744073709551615, -32768, (unsigned c"
       "har)255>, Np<nullptr>, Ints<int, 1, -2, 3>, Ints<int>"},
  };
  for (size_t i = 0; i < COUNT(kPairs); ++i) expect_types(kPairs[i][0], kPairs[i][1]);
}

Test(signature, substitutions_count_from_the_start_of_the_symbol) {
  expect_types("_Z7ons_sigIFvP6__halfPKS0_EEvv", "__half*, const __half*");
  expect_types("FvP6__halfPKS_E", "__half*, const __half*");
  expect_types("_ZN3ons6detail7ons_sigIFvP6__halfPKS2_EEEvv", "__half*, const __half*");
  expect_types("_ZN12_GLOBAL__N_17ons_sigIFvP6__halfPKS1_EEEvv",
               "__half*, const __half*");
  expect_types("_ZL7ons_sigIFvfEEvv.kd", "float");

  /* Their numbers have base 36: S_, S0_ ... SZ_, S10_. */
  char mangled[256] = "Fv";
  for (char c = 'A'; c <= 'z'; ++c) {
    if (c > 'Z' && c < 'a') continue;
    size_t used = strlen(mangled);
    snprintf(mangled + used, sizeof(mangled) - used, "1%c", c);
  }
  strcat(mangled, "SZ_S10_SA_E");
  ons__signature* signature = parse(mangled);
  cr_assert_eq(signature->count, 55);
  cr_assert_str_eq(signature->parameters[52].type, "k");
  cr_assert_str_eq(signature->parameters[53].type, "l");
  cr_assert_str_eq(signature->parameters[54].type, "L");
  ons__signature_destroy(signature);
}

Test(signature, vendor_spellings) {
  expect_parameter("FvPKu6__bf16E", 0, "pointer const bfloat16 8/8");
  expect_parameter("FvPDF16bE", 0, "pointer bfloat16 8/8");
  expect_parameter("FvPDF16_E", 0, "pointer float16 8/8");
  expect_parameter("FvDhE", 0, "scalar float16 2/2");
  expect_parameter("FvPU3AS1KfE", 0, "pointer const float32 8/8");
  expect_types("FvPU3AS1KfS0_PfPS0_E",
               "const float*, const float*, float*, const float**");
  expect_parameter("FvP15HIP_vector_typeIfLj2EEE", 0, "pointer float32x2|complex64 8/8");
  expect_parameter("FvP12hip_bfloat16P14__hip_bfloat16E", 1, "pointer bfloat16 8/8");
  expect_parameter("FvP19__hip_fp8_e4m3_fnuzE", 0, "pointer float8_e4m3fnuz 8/8");
}

/* ---- what a parameter takes ------------------------------------------------------- */

Test(signature, plain_kernel) {
  static const char* const kExpected[] = {"scalar float32 4/4",
                                          "pointer const float32 8/8",
                                          "pointer float32 8/8", "scalar int64 8/8"};
  expect_parameters("_Z7ons_sigIFvfPKfPfxEEvv", kExpected, COUNT(kExpected));
}

Test(signature, no_parameters) { expect_parameters("FvvE", NULL, 0); }

Test(signature, integers) {
  static const char* const kExpected[] = {
      "scalar bool 1/1",   "scalar int8 1/1",   "scalar int8 1/1",  "scalar uint8 1/1",
      "scalar int16 2/2",  "scalar uint16 2/2", "scalar int32 4/4", "scalar uint32 4/4",
      "scalar int64 8/8",  "scalar uint64 8/8", "scalar int64 8/8", "scalar uint64 8/8",
      "struct void 16/16", "struct void 16/16", "scalar uint8 1/1", "scalar uint16 2/2",
      "scalar uint32 4/4"};
  expect_parameters("FvbachstijlmxynoDuDsDiE", kExpected, COUNT(kExpected));
  expect_parameter("FvPxE", 0, "pointer int64 8/8");
  expect_parameter("FvPmE", 0, "pointer uint64 8/8");
  expect_parameter("FvPcE", 0, "pointer int8 8/8");
  expect_parameter("FvPoE", 0, "pointer uint128 8/8");
}

Test(signature, small_floats) {
  static const char* const kHalf[] = {
      "pointer float16 8/8",  "pointer const float16 8/8",
      "scalar float16 2/2",   "pointer float16x2|complex32 8/8",
      "vector float16x2 4/4", "pointer const float16x2|complex32 8/8"};
  expect_parameters("_Z7ons_sigIFvP6__halfPKS0_S0_P7__half2S4_PKS4_EEvv", kHalf,
                    COUNT(kHalf));
  static const char* const kBfloat[] = {
      "pointer bfloat16 8/8", "pointer const bfloat16 8/8", "scalar bfloat16 2/2",
      "pointer bfloat16x2 8/8", "pointer const bfloat16x2 8/8"};
  expect_parameters("_Z7ons_sigIFvP13__nv_bfloat16PKS0_S0_P14__nv_bfloat162PKS4_EEvv",
                    kBfloat, COUNT(kBfloat));
  static const char* const kFp8[] = {
      "pointer float8_e4m3fn 8/8", "pointer const float8_e4m3fn 8/8",
      "pointer float8_e5m2 8/8",   "pointer float8_e8m0fnu 8/8",
      "scalar float8_e4m3fn 1/1",  "pointer raw uint8|int8 8/8"};
  expect_parameters(
      "_Z7ons_sigIFvP13__nv_fp8_e4m3PKS0_P13__nv_fp8_e5m2P13__nv_fp8_e8m0S0_P15__nv_"
      "fp8x4_"
      "e4m3EEvv",
      kFp8, COUNT(kFp8));
}

Test(signature, vectors) {
  static const char* const kExpected[] = {"vector float32x2 8/8",
                                          "pointer float32x2|complex64 8/8",
                                          "pointer const float32x4 8/8",
                                          "vector float32x4 16/16",
                                          "pointer float64x2|complex128 8/8",
                                          "pointer int32x4 8/8",
                                          "pointer uint32x3 8/8",
                                          "pointer uint8x4 8/8",
                                          "pointer int16 8/8",
                                          "vector float32x3 12/4",
                                          "vector float64x4 32/16",
                                          "vector float64x4 32/32"};
  expect_parameters(
      "Fv6float2PS_PK6float4S1_"
      "P7double2P4int4P5uint3P6uchar4P6short16float37double411double4_"
      "32aE",
      kExpected, COUNT(kExpected));
  expect_parameter("Fv6float0E", 0, "struct void 0/0");
  expect_parameter("Fv6float5E", 0, "struct void 0/0");
  expect_parameter("Fv7float22E", 0, "struct void 0/0");
  expect_parameter("Fv10float2_32aE", 0, "struct void 0/0");
  expect_parameter("FvN1a6float2EE", 0, "struct void 0/0");
}

Test(signature, complex) {
  static const char* const kExpected[] = {
      "pointer complex64 8/8", "pointer const complex128 8/8", "vector complex64 8/8",
      "pointer complex32 8/8"};
  expect_parameters(
      "_Z7ons_sigIFvPN4cuda3std3__47complexIfEEPKNS3_IdEES4_PNS3_I6__halfEEEEvv",
      kExpected, COUNT(kExpected));
  expect_parameter("FvPSt7complexIfEE", 0, "pointer complex64 8/8");
  expect_parameter("FvPNSt3__17complexIdEEE", 0, "pointer complex128 8/8");
  expect_parameter("FvPN6thrust7complexIfEEE", 0, "pointer complex64 8/8");
  expect_parameter("FvPN2my7complexIfEEE", 0, "pointer raw uint8|int8 8/8");
  expect_parameter("FvPN4cuda2my7complexIfEEE", 0, "pointer raw uint8|int8 8/8");
  expect_parameter("FvPSt7complexIiEE", 0, "pointer raw uint8|int8 8/8");
}

Test(signature, pointers_to_anything_else) {
  static const char* const kExpected[] = {
      "pointer void 8/8",          "pointer const void 8/8",
      "pointer uint64|int64 8/8",  "pointer const uint64|int64 8/8",
      "pointer uint64|int64 8/8",  "pointer int32 8/8",
      "pointer const float32 8/8", "pointer float32 8/8",
      "pointer const float32 8/8"};
  expect_parameters("_Z7ons_sigIFvPvPKvPS0_PKPKfPPPfPViPVKfS8_S5_EEvv", kExpected,
                    COUNT(kExpected));
  expect_parameter("FvP1SE", 0, "pointer raw uint8|int8 8/8");
  expect_parameter("FvPK1SE", 0, "pointer const raw uint8|int8 8/8");
  expect_parameter("FvPeE", 0, "pointer raw uint8|int8 8/8");
  expect_parameter("FvPA8_KfE", 0, "pointer const float32 8/8");
  expect_parameter("FvPA3_A2_fE", 0, "pointer float32 8/8");
  expect_parameter("FvPKA3_fE", 0, "pointer const float32 8/8");
  expect_types("FvPKA3_fE", "const float (*)[3]");
  expect_parameter("FvPFvvEE", 0, "struct void 8/8");
}

Test(signature, structs_have_the_size_that_the_driver_tells) {
  expect_parameter("Fv1SE", 0, "struct void 0/0");
  expect_parameter("Fv3VecIfLi3EEE", 0, "struct void 0/0");
  expect_parameter("FvDnE", 0, "struct void 8/8");
}

Test(signature, views) {
  static const char* const kExpected[] = {
      "view const float32 rank 2 index 64 40/8", "view float32 rank 2 index 64 40/8",
      "view float16 rank 3 index 32 32/8", "view const bfloat16 rank 0 index 64 8/8",
      "pointer raw uint8|int8 8/8"};
  expect_parameters(
      "_Z7ons_sigIFvN3ons4viewIKfLi2ElEENS1_IfLi2ExEENS1_I6__halfLi3EiEENS1_IK13__nv_"
      "bfloat16Li0ExEEPS3_EEvv",
      kExpected, COUNT(kExpected));
  expect_parameter("FvN3ons4viewI6float2Li1EiEEE", 0,
                   "view float32x2|complex64 rank 1 index 32 16/8");
  expect_parameter("FvN2my4viewIfLi1EiEEE", 0, "struct void 0/0");
  refuse("FvN3ons4viewI1SLi1EiEEE",
         "parameter 1 (ons::view<S, 1, int>): an ons::view takes elements of a type that "
         "tensors have; declare a pointer for raw bytes");
  refuse("FvN3ons4viewIfLi1EsEEE", "declare its index type as int or long long");
  refuse("FvN3ons4viewIfLi1EjEEE", "declare its index type as int or long long");
  refuse("FvfN3ons4viewIfLi256EiEEE",
         "parameter 2 (ons::view<float, 256, int>): declare it as ons::view<T, N> with N "
         "from "
         "1 to 255");
  refuse("FvN3ons4viewIfLin1EiEEE", "with N from 1 to 255");
  refuse("FvN3ons4viewIfLi1EEEE", "with N from 1 to 255");
}

/* ---- what is refused -------------------------------------------------------------- */

Test(signature, parameters_that_a_kernel_cannot_have) {
  refuse(
      "FvRKiE",
      "parameter 1 (const int&): a reference would refer to host memory; declare a value "
      "or a pointer");
  refuse("FvfOiE", "parameter 2 (int&&): a reference");
  refuse("FvM1SiE",
         "parameter 1 (int S::*): a pointer to a member; declare an index or an offset");
  refuse("FvvvE", "parameter 1 (void): declare a value or a pointer");
  refuse("FvfFvvEE", "parameter 2 (void()): declare a value or a pointer");
  refuse("FifE", "it returns int; declare it void and write results through a pointer");
  refuse("Fvfz", "a variable number of parameters; declare each of them");
}

Test(signature, texts_that_are_not_read) {
  refuse("", "character 0: the text ends early, in ''");
  refuse("F", "character 1: the text ends early");
  refuse("Fv", "the text ends early");
  refuse("FvPE", "character 3: an unknown type, in 'FvPE'");
  refuse("FvfEx", "more text than a type");
  refuse("Pf", "not a function type");
  refuse("_Z1fv", "not an instance of a template");
  refuse("_Z1fIfEvv", "not a function type");
  refuse("_Z1fIEvv", "not an instance of a template");
  refuse("FvS_E", "a substitution of nothing");
  refuse("FvSZ_E", "a substitution of nothing");
  refuse("FvS99999999999999999999_E", "a substitution of nothing");
  refuse("FvSxE", "an unknown substitution");
  refuse("Fv0E", "an empty name");
  refuse("Fv5abE", "a name is cut off");
  refuse("Fv99999999999999999999999aE", "a name is cut off");
  refuse("FvNE", "an empty name");
  refuse("FvN1a", "a number is missing");
  refuse("FvNEE", "an empty name");
  refuse("FvNStEE", "an empty name");
  refuse("FvNIfEEE", "template arguments without a name");
  refuse("FvPfNS_1aEE", "a member of something unnamed");
  refuse("FvPfS_IfEE", "template arguments of something unnamed");
  refuse("Fv1aIXsr1bE1cEEE", "a template argument that is an expression");
  refuse("Fv1aIL_Z1fvEEE", "the address of an object");
  refuse("Fv1aILi1", "an unknown template argument");
  refuse("FvUlvE_E", "a number is missing");
  refuse("FvN1aUlvE_EE", "an unnamed type");
  refuse("FvZ1fvE1sE", "an unknown type");
  refuse("FvDTfEE", "an unknown type");
  refuse("FvAfE", "an array bound");
  refuse("DoxE", "an exception specification");
}

Test(signature, every_cut_of_a_signature_is_refused) {
  static const char kWhole[] =
      "_Z7ons_sigIFvN3ons4viewIKfLi2ElEENS1_IfLi2ExEEPFvifEPA4_fNSt3__"
      "17complexIfEE4PackIJiS7_"
      "EEPU3AS1KfEEvv";
  size_t end = strlen(kWhole) - strlen("Evv");
  ons__signature_destroy(parse(kWhole));
  for (size_t length = 0; length <= end; ++length) {
    /* On the heap and tight, so that a sanitizer sees a read past the end. */
    char* cut = strndup(kWhole, length);
    refuse(cut, "");
    free(cut);
  }
}

Test(signature, deep_and_long_types_are_bounded) {
  enum { kDepth = 100000 };
  char* text = malloc(kDepth + 8);
  memset(text, 'P', kDepth);
  memcpy(text, "Fv", 2);
  strcpy(text + kDepth, "fE");
  refuse(text, "nested too deeply");
  free(text);

  /* The same by substitutions, which needs no deep recursion to read. */
  ons__string chain;
  ons__string_init(&chain, NULL);
  ons__string_append(&chain, "FvPfPS_");
  for (int i = 0; i < 300; ++i) {
    static const char kDigits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char high[2] = {kDigits[i / 36], '\0'};
    ons__string_appendf(&chain, "PS%s%c_", i < 36 ? "" : high, kDigits[i % 36]);
  }
  ons__string_append(&chain, "E");
  refuse(ons__string_text(&chain), "nested too deeply");
  ons__string_clear(&chain);

  /* Each argument is twice the one before: the spelling would have 2^34 parts. */
  ons__string doubling;
  ons__string_init(&doubling, NULL);
  ons__string_append(&doubling, "Fv1aIiiE");
  for (int i = 0; i < 34; ++i) {
    const char* digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    ons__string_appendf(&doubling, "S_IS%c_S%c_E", digits[i], digits[i]);
  }
  ons__string_append(&doubling, "E");
  ons__signature* signature = parse(ons__string_text(&doubling));
  cr_assert_eq(signature->count, 35);
  cr_assert_str_eq(signature->parameters[1].type, "a<a<int, int>, a<int, int>>");
  const char* longest = signature->parameters[34].type;
  cr_assert_eq(strlen(longest), 4096);
  cr_assert_str_eq(longest + 4093, "...");
  ons__signature_destroy(signature);
  ons__string_clear(&doubling);
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

Test(signature, failing_allocations_leak_nothing) {
  scarce memory = {0};
  ons_allocator allocator = {&memory, scarce_allocate, scarce_free};
  ons__signature* signature = NULL;
  int needed = 0;
  ons_status status = ONS_STATUS_OUT_OF_MEMORY;
  for (; status == ONS_STATUS_OUT_OF_MEMORY; ++needed) {
    memory = (scarce){.left = needed};
    status = ons__signature_parse(&allocator, "FvfPK3VecIfLi4EEE", &signature, NULL);
    if (status == ONS_STATUS_OUT_OF_MEMORY) cr_assert_eq(memory.live, 0);
  }
  cr_assert_eq(status, ONS_STATUS_OK);
  cr_assert_gt(needed, 4);
  ons__signature_destroy(signature);
  cr_assert_eq(memory.live, 0);
  ons__signature_destroy(NULL);
}

/* ---- dtype names ------------------------------------------------------------------ */

Test(signature, dtype_text) {
  static const struct {
    DLDataType dtype;
    const char* text;
  } kCases[] = {
      {{kDLInt, 8, 1}, "int8"},
      {{kDLUInt, 64, 1}, "uint64"},
      {{kDLFloat, 32, 1}, "float32"},
      {{kDLFloat, 32, 2}, "float32x2"},
      {{kDLBfloat, 16, 1}, "bfloat16"},
      {{kDLComplex, 128, 1}, "complex128"},
      {{kDLBool, 8, 1}, "bool"},
      {{kDLBool, 1, 1}, "bool1"},
      {{kDLOpaqueHandle, 64, 1}, "handle64"},
      {{kDLFloat8_e4m3fn, 8, 1}, "float8_e4m3fn"},
      {{kDLFloat8_e5m2, 8, 4}, "float8_e5m2x4"},
      {{kDLFloat4_e2m1fn, 4, 1}, "float4_e2m1fn"},
      {{0, 0, 0}, "void"},
      {{99, 8, 1}, "dtype(code 99, 8 bits)"},
  };
  for (size_t i = 0; i < COUNT(kCases); ++i) {
    char text[64];
    ons__dtype_text(kCases[i].dtype, text, sizeof(text));
    cr_assert_str_eq(text, kCases[i].text);
  }
  char tiny[4];
  ons__dtype_text((DLDataType){kDLFloat, 32, 1}, tiny, sizeof(tiny));
  cr_assert_str_eq(tiny, "flo");
}

Test(signature, tables_and_tensor_maps) {
  expect_parameter("FvN3ons4ptrsIKfLi3EEEE", 0, "pointers const float32 24/8");
  expect_parameter("FvN3ons4ptrsI6__halfLi512EEEE", 0, "pointers float16 4096/8");
  refuse("FvN3ons4ptrsIfLi513EEEE", "N from 1 to 512");
  refuse("FvN3ons4ptrsIfLi0EEEE", "N from 1 to 512");
  refuse("FvN3ons4ptrsI1SLi2EEEE", "elements of a type that tensors have");
  expect_parameter("FvN2my4ptrsIfLi3EEEE", 0, "struct void 0/0");
  expect_parameter("FvN3ons10tensor_mapEE", 0, "tensor map void 128/64");
  expect_parameter("Fv14CUtensorMap_stE", 0, "tensor map void 128/64");
  expect_parameter("FvN2my10tensor_mapEE", 0, "struct void 0/0");
  ons__signature* signature = parse("FvN3ons4ptrsIfLi7EEEE");
  cr_expect_eq(signature->parameters[0].item_count, 7);
  ons__signature_destroy(signature);
}
