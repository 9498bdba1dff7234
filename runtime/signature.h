/* Kernel signatures, read from the compiler's mangled spelling of the function type. */
#ifndef ONS_RUNTIME_SIGNATURE_H_
#define ONS_RUNTIME_SIGNATURE_H_

#include <onstream/dlpack.h>
#include <onstream/launch.h>
#include <onstream/status.h>
#include <stddef.h>
#include <stdint.h>

enum { ONS__POINTERS_MAX = 512 }; /* in one ons::ptrs: all of a parameter block */

typedef struct ons__parameter {
  ons_parameter_kind kind;
  DLDataType dtype;       /* bits 0: no DLPack type (void, structs) */
  DLDataType alternative; /* a second dtype that a pointer takes as well (float2:
                             complex64 beside float32 with 2 lanes); bits 0: none */
  uint8_t is_const;       /* T const* */
  uint8_t is_raw; /* a pointer to a class or an enumeration that DLPack has no dtype for:
                     its `dtype` and `alternative` ask for raw bytes, uint8 or int8 */
  uint8_t ndim;   /* of a view */
  uint8_t index_bits;  /* of a view: 32 or 64 */
  uint16_t item_count; /* of ons::ptrs */
  uint32_t size_bytes; /* 0: unknown (a struct) until the driver tells */
  uint32_t align_bytes;
  char* type; /* C++ spelling, "const float*" */
} ons__parameter;

typedef struct ons__signature {
  const ons_allocator* allocator;
  size_t count;
  ons__parameter* parameters;
} ons__signature;

/* Parses an Itanium-mangled function type: either the bare type as typeid spells it
 * ("FvfPKfPflE"), or the whole symbol of a template instance whose first argument it is
 * ("_Z7ons_sigIFvfPKfPflEEvv"; what follows is ignored). Do not cut the type out of such
 * a symbol: its substitutions (S0_...) count from the symbol's start, so it would be read
 * wrongly. UNSUPPORTED for what it cannot read, with the text and position, and for
 * parameters that a kernel cannot have (references); never reads past the terminator. The
 * caller owns |out_signature|. */
ons_status ons__signature_parse(const ons_allocator* allocator, const char* mangled,
                                ons__signature** out_signature, ons_error* error);
void ons__signature_destroy(ons__signature* signature); /* NULL is accepted */

/* "float32", "bfloat16", "float8_e4m3fn", "bool", "float32x2"; writes at most capacity
 * bytes. */
void ons__dtype_text(DLDataType dtype, char* out_text, size_t capacity_bytes);

#endif /* ONS_RUNTIME_SIGNATURE_H_ */
