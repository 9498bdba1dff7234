/* Names of element types: DLPack's, NumPy's, the buffer protocol's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

/* XX(name, code, bits) */
#define DTYPES(XX)                                   \
  XX("bool", kDLBool, 8)                             \
  XX("int8", kDLInt, 8)                              \
  XX("int16", kDLInt, 16)                            \
  XX("int32", kDLInt, 32)                            \
  XX("int64", kDLInt, 64)                            \
  XX("uint8", kDLUInt, 8)                            \
  XX("uint16", kDLUInt, 16)                          \
  XX("uint32", kDLUInt, 32)                          \
  XX("uint64", kDLUInt, 64)                          \
  XX("float16", kDLFloat, 16)                        \
  XX("float32", kDLFloat, 32)                        \
  XX("float64", kDLFloat, 64)                        \
  XX("bfloat16", kDLBfloat, 16)                      \
  XX("complex64", kDLComplex, 64)                    \
  XX("complex128", kDLComplex, 128)                  \
  XX("float8_e3m4", kDLFloat8_e3m4, 8)               \
  XX("float8_e4m3", kDLFloat8_e4m3, 8)               \
  XX("float8_e4m3b11fnuz", kDLFloat8_e4m3b11fnuz, 8) \
  XX("float8_e4m3fn", kDLFloat8_e4m3fn, 8)           \
  XX("float8_e4m3fnuz", kDLFloat8_e4m3fnuz, 8)       \
  XX("float8_e5m2", kDLFloat8_e5m2, 8)               \
  XX("float8_e5m2fnuz", kDLFloat8_e5m2fnuz, 8)       \
  XX("float8_e8m0fnu", kDLFloat8_e8m0fnu, 8)

bool onspy_dtype_from_name(const char* name, DLDataType* out_dtype) {
#define COMPARE(text, dtype_code, dtype_bits)                          \
  if (strcmp(name, text) == 0) {                                       \
    *out_dtype = (DLDataType){(uint8_t)(dtype_code), (dtype_bits), 1}; \
    return true;                                                       \
  }
  DTYPES(COMPARE)
#undef COMPARE
  return false;
}

PyObject* onspy_dtype_text(DLDataType dtype) {
#define COMPARE(text, dtype_code, dtype_bits)                                       \
  if (dtype.code == (dtype_code) && dtype.bits == (dtype_bits) && dtype.lanes == 1) \
    return PyUnicode_FromString(text);
  DTYPES(COMPARE)
#undef COMPARE
  return PyUnicode_FromFormat("code %d, %d bits, %d lanes", dtype.code, dtype.bits,
                              dtype.lanes);
}

static bool is_big_endian(char mark) {
  const uint16_t one = 1;
  bool host_is_little = *(const unsigned char*)&one == 1;
  return mark == '!' || mark == (host_is_little ? '>' : '<');
}

/* From NumPy's letter for the kind and the size of an element. */
static bool from_kind(char kind, Py_ssize_t bytes, DLDataType* out_dtype) {
  uint8_t code;
  bool fits;
  switch (kind) {
    case 'b':
      code = kDLBool;
      fits = bytes == 1;
      break;
    case 'i':
    case 'u':
      code = kind == 'i' ? kDLInt : kDLUInt;
      fits = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
      break;
    case 'f':
      code = kDLFloat;
      fits = bytes == 2 || bytes == 4 || bytes == 8;
      break;
    case 'c':
      code = kDLComplex;
      fits = bytes == 8 || bytes == 16;
      break;
    default:
      return false;
  }
  if (fits) *out_dtype = (DLDataType){code, (uint8_t)(bytes * 8), 1};
  return fits;
}

bool onspy_dtype_from_typestr(const char* typestr, DLDataType* out_dtype) {
  if (typestr[0] == '\0' || typestr[1] == '\0') return false;
  char* end;
  long bytes = strtol(typestr + 2, &end, 10);
  if (*end != '\0' || (bytes > 1 && is_big_endian(typestr[0]))) return false;
  return from_kind(typestr[1], bytes, out_dtype);
}

bool onspy_dtype_from_format(const char* format, Py_ssize_t item_bytes,
                             DLDataType* out_dtype) {
  if (format == NULL) format = "B";
  if (strchr("@=<>!", *format) != NULL && *format != '\0') {
    if (item_bytes > 1 && is_big_endian(*format)) return false;
    ++format;
  }
  bool complex = *format == 'Z';
  if (complex) ++format;
  if (format[0] == '\0' || format[1] != '\0') return false;
  if (complex)
    return strchr("fd", *format) != NULL && from_kind('c', item_bytes, out_dtype);
  if (*format == '?') return from_kind('b', item_bytes, out_dtype);
  if (strchr("bhilqn", *format) != NULL) return from_kind('i', item_bytes, out_dtype);
  if (strchr("BHILQN", *format) != NULL) return from_kind('u', item_bytes, out_dtype);
  return strchr("efd", *format) != NULL && from_kind('f', item_bytes, out_dtype);
}

/* NumPy's letter for the kind, 0 where there is none. */
static char kind_of(DLDataType dtype) {
  static const char kinds[] = {[kDLInt] = 'i',
                               [kDLUInt] = 'u',
                               [kDLFloat] = 'f',
                               [kDLComplex] = 'c',
                               [kDLBool] = 'b'};
  DLDataType known;
  char kind = dtype.code < sizeof kinds ? kinds[dtype.code] : 0;
  bool valid = kind != 0 && dtype.lanes == 1 && dtype.bits % 8 == 0 &&
               from_kind(kind, dtype.bits / 8, &known);
  return valid ? kind : 0;
}

bool onspy_dtype_typestr(DLDataType dtype, char out_text[8]) {
  char kind = kind_of(dtype);
  char mark = dtype.bits == 8 ? '|' : is_big_endian('<') ? '>' : '<';
  if (kind != 0) snprintf(out_text, 8, "%c%c%d", mark, kind, dtype.bits / 8);
  return kind != 0;
}

const char* onspy_dtype_format(DLDataType dtype) {
  static const char* const signed_letters[] = {"b", "h", "i", "q"};
  static const char* const unsigned_letters[] = {"B", "H", "I", "Q"};
  static const char* const float_letters[] = {NULL, "e", "f", "d"};
  int power = dtype.bits == 8 ? 0 : dtype.bits == 16 ? 1 : dtype.bits == 32 ? 2 : 3;
  switch (kind_of(dtype)) {
    case 'b':
      return "?";
    case 'i':
      return signed_letters[power];
    case 'u':
      return unsigned_letters[power];
    case 'f':
      return float_letters[power];
    case 'c':
      return dtype.bits == 64 ? "Zf" : "Zd";
    default:
      return NULL;
  }
}

/* A str's text after its last dot: "torch.float32". */
static PyObject* last_part(PyObject* text) {
  const char* utf8 = onspy_text_of(text, "dtype");
  if (utf8 == NULL) return NULL;
  const char* dot = strrchr(utf8, '.');
  return PyUnicode_FromString(dot != NULL ? dot + 1 : utf8);
}

/* The name as an attribute: numpy.dtype has `name`, scalar types have `__name__`, JAX's
 * have `dtype`, torch's are only known by their str(). */
static PyObject* name_of(onspy_state* state, PyObject* dtype) {
  if (PyUnicode_Check(dtype)) return last_part(dtype);
  PyObject* name = PyType_Check(dtype) ? PyObject_GetAttrString(dtype, "__name__")
                                       : PyObject_GetAttr(dtype, state->str_name);
  if (name != NULL && PyUnicode_Check(name)) return name;
  Py_CLEAR(name);
  PyErr_Clear();
  PyObject* inner = PyObject_GetAttr(dtype, state->str_dtype);
  if (inner != NULL) name = PyObject_GetAttr(inner, state->str_name);
  Py_XDECREF(inner);
  if (name != NULL && PyUnicode_Check(name)) return name;
  Py_CLEAR(name);
  PyErr_Clear();
  PyObject* text = PyObject_Str(dtype);
  name = text != NULL ? last_part(text) : NULL;
  Py_XDECREF(text);
  return name;
}

PyObject* onspy_dtype_name(onspy_state* state, PyObject* dtype) {
  PyObject* name = name_of(state, dtype);
  const char* text = name != NULL ? PyUnicode_AsUTF8(name) : NULL;
  DLDataType known;
  if (text != NULL && onspy_dtype_from_name(text, &known)) {
    /* Python's own bool and NumPy's bool_ are one; its int and float are not any one
     * type. */
    return name;
  }
  if (text != NULL && strcmp(text, "bool_") == 0) {
    Py_DECREF(name);
    return PyUnicode_FromString("bool");
  }
  if (PyErr_Occurred() == NULL) {
    PyErr_Format(
        PyExc_TypeError,
        "%R is not a dtype: give a name such as 'float32', or a dtype of NumPy, torch or "
        "JAX",
        dtype);
  }
  Py_XDECREF(name);
  return NULL;
}
