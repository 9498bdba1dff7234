#include "jit/nvrtc_headers.h"

#include "jit/embedded.h"

/* CCCL's <cuda/std/cstdint> and <cuda/std/climits> define the same names, globally: types
 * and macros are spelt so that both may be included, in either order, without a
 * complaint. */
static const char limits_text[] =
    "#pragma once\n"
    "#ifndef INT_MAX\n"
    "#define CHAR_BIT 8\n"
    "#define SCHAR_MIN (-128)\n"
    "#define SCHAR_MAX 127\n"
    "#define UCHAR_MAX 255\n"
    "#define SHRT_MIN (-SHRT_MAX - 1)\n"
    "#define SHRT_MAX 0x7fff\n"
    "#define USHRT_MAX 0xffff\n"
    "#define INT_MIN (-INT_MAX - 1)\n"
    "#define INT_MAX 0x7fffffff\n"
    "#define UINT_MAX 0xffffffff\n"
    "#define LONG_MIN (-LONG_MAX - 1)\n"
    "#define LONG_MAX LLONG_MAX\n"
    "#define ULONG_MAX ULLONG_MAX\n"
    "#define LLONG_MIN (-LLONG_MAX - 1)\n"
    "#define LLONG_MAX 0x7fffffffffffffffLL\n"
    "#define ULLONG_MAX 0xffffffffffffffffUL\n"
    "#endif\n";

static const char stdint_text[] =
    "#pragma once\n"
    "#include <limits.h>\n"
    "#include <onstream/kernel.h>\n" /* the types of fixed width */
    "using intptr_t = int64_t;\n"
    "using uintptr_t = uint64_t;\n"
    "using intmax_t = int64_t;\n"
    "using uintmax_t = uint64_t;\n"
    "#ifndef INT32_MAX\n"
    "#define INT8_MIN SCHAR_MIN\n"
    "#define INT8_MAX SCHAR_MAX\n"
    "#define UINT8_MAX UCHAR_MAX\n"
    "#define INT16_MIN SHRT_MIN\n"
    "#define INT16_MAX SHRT_MAX\n"
    "#define UINT16_MAX USHRT_MAX\n"
    "#define INT32_MIN INT_MIN\n"
    "#define INT32_MAX INT_MAX\n"
    "#define UINT32_MAX UINT_MAX\n"
    "#define INT64_MIN LLONG_MIN\n"
    "#define INT64_MAX LLONG_MAX\n"
    "#define UINT64_MAX ULLONG_MAX\n"
    "#define SIZE_MAX UINT64_MAX\n"
    "#endif\n";

static const char cstdint_text[] =
    "#pragma once\n"
    "#include <stdint.h>\n"
    "namespace std {\n"
    "using ::int8_t;\n"
    "using ::int16_t;\n"
    "using ::int32_t;\n"
    "using ::int64_t;\n"
    "using ::uint8_t;\n"
    "using ::uint16_t;\n"
    "using ::uint32_t;\n"
    "using ::uint64_t;\n"
    "using ::intptr_t;\n"
    "using ::uintptr_t;\n"
    "using ::intmax_t;\n"
    "using ::uintmax_t;\n"
    "}\n";

/* size_t and ptrdiff_t are built into NVRTC. */
static const char stddef_text[] =
    "#pragma once\n"
    "#ifndef NULL\n"
    "#define NULL 0\n"
    "#endif\n";

static const char cstddef_text[] =
    "#pragma once\n"
    "#include <stddef.h>\n"
    "namespace std {\n"
    "using ::size_t;\n"
    "using ::ptrdiff_t;\n"
    "}\n";

const ons_header ons__nvrtc_headers[] = {
    {"onstream/kernel.h", ons__text_kernel_h},
    {"limits.h", limits_text},
    {"climits", limits_text},
    {"stdint.h", stdint_text},
    {"cstdint", cstdint_text},
    {"stddef.h", stddef_text},
    {"cstddef", cstddef_text},
};
const size_t ons__nvrtc_header_count =
    sizeof(ons__nvrtc_headers) / sizeof(ons__nvrtc_headers[0]);
