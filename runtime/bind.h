/* Arguments against a signature: the checks, and the parameter block.
 *
 * A plan is made once per kernel and device (plan.c); binding runs through its steps, one
 * per argument, without allocating and without looking anything up. Text is made only for
 * a refusal (bind_error.c). */
#ifndef ONS_RUNTIME_BIND_H_
#define ONS_RUNTIME_BIND_H_

#include <onstream/launch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/attributes.h"
#include "runtime/signature.h"

enum {
  ONS__PARAMETERS_MAX = 256,
  ONS__PARAMETER_BYTES_MAX = 4096, /* what every CUDA version takes */
  ONS__BLOCK_BYTES_MAX = ONS__PARAMETER_BYTES_MAX + 16 * ONS__PARAMETERS_MAX,
  /* Of most kernels: what a launch has room for without asking. */
  ONS__COMMON_COUNT = 16,
  ONS__COMMON_BYTES = 256
};

typedef enum ons__step_kind {
  ONS__STEP_POINTER,
  ONS__STEP_VIEW,
  ONS__STEP_INT, /* integers: `low` and `high` are the range */
  ONS__STEP_UINT64,
  ONS__STEP_BOOL,
  ONS__STEP_FLOAT64,
  ONS__STEP_FLOAT32,
  ONS__STEP_FLOAT16,
  ONS__STEP_BFLOAT16,
  ONS__STEP_FLOAT8_E4M3FN,
  ONS__STEP_FLOAT8_E4M3FNUZ,
  ONS__STEP_FLOAT8_E5M2,
  ONS__STEP_FLOAT8_E5M2FNUZ,
  ONS__STEP_BYTES,
  ONS__STEP_VECTOR, /* `lane_kind` and `more` are those of its `lane_count` numbers */
  ONS__STEP_POINTERS,
  ONS__STEP_TENSOR_MAP
} ons__step_kind;

/* Not an ons_arg_kind. */
enum { ONS__NOT_COMMON = 0xff };

/* Not a dtype that a tensor can have. */
#define ONS__DTYPE_ANY 0xffffffffu

/* One parameter. Half a cache line: a launch reads them all. */
typedef struct ons__step {
  uint8_t kind;     /* ons__step_kind */
  uint8_t is_const; /* pointers and views */
  union {
    uint8_t ndim;      /* views */
    uint8_t lane_kind; /* vectors */
  };
  uint8_t index_bits; /* views */
  uint8_t forbidden;  /* ons_arg_flags that refuse a tensor at once */
  uint8_t align_mask; /* of the data pointer */
  uint8_t lane_count; /* of a vector, by value or behind a pointer */
  uint8_t common;     /* the kind of argument bound in line; ONS__NOT_COMMON: none */
  uint16_t offset;    /* in the block */
  uint16_t size_bytes;
  uint32_t dtype; /* ons__dtype_word, or ONS__DTYPE_ANY */
  union {
    struct {
      uint32_t alternative; /* 0: none */
      uint32_t lane; /* of a vector pointer (float4*): a tensor of this dtype is taken
                        when the lanes divide its size; 0: none */
    } also;
    struct {
      int64_t low;
      int64_t high;
    } range; /* ONS__STEP_INT */
  } more;
} ons__step;

typedef struct ons__plan {
  size_t count;
  size_t block_bytes;  /* what the slots take */
  size_t common_count; /* `count` within the ONS__COMMON limits, else SIZE_MAX; the latter
                          also where more than binding has to be checked */
  const uint8_t* is_restrict; /* of each parameter; NULL: not checked. Borrowed */
  ons__step steps[];
} ons__plan;

/* Where the bound parameters of one launch go. Not initialised: only what the steps write
 * is used. */
typedef struct ons__block {
  void** parameters;    /* plan->count of them, pointing into `bytes` */
  unsigned char* bytes; /* plan->block_bytes of them, aligned to 16 */
  uint32_t notes;       /* what the tensors leave to be looked at: ons__bind_notes */
  uint32_t index;       /* of the argument that is refused */
} ons__block;

typedef enum ons__bind_notes {
  ONS__NOTE_MIXED = 1, /* a tensor's stream is spelt differently from the launch stream */
  ONS__NOTE_ORDERED = 2, /* a tensor is ordered by other means than its stream */
} ons__bind_notes;

/* Why an argument is refused: XX(NAME, status, what to add to the description of the
 * argument, advice). Advice NULL: it depends on the argument. */
#define ONS__REFUSALS(XX)                                                                \
  XX(NEEDS_TENSOR, ARGUMENT_TYPE, "", "pass a tensor (any DLPack producer)")             \
  XX(NEEDS_NUMBER, ARGUMENT_TYPE, "", "pass a number")                                   \
  XX(NEEDS_BYTES, ARGUMENT_TYPE, "",                                                     \
     "pass the value's bytes, as the compiler lays the type out")                        \
  XX(DTYPE, ARGUMENT_TYPE, "", NULL)                                                     \
  XX(DEVICE, ARGUMENT_VALUE, "", NULL)                                                   \
  XX(READ_ONLY, ARGUMENT_VALUE, ", which is read-only",                                  \
     "declare the parameter const, or pass a writable copy or an output")                \
  XX(GRAD, ARGUMENT_VALUE, " that requires grad",                                        \
     "autograd would not see the write: pass x.detach()")                                \
  XX(LAYOUT, ARGUMENT_VALUE, "",                                                         \
     "a raw pointer needs a dense row-major tensor: pass a contiguous copy, or "         \
     "declare the parameter ons::view<T, N>")                                            \
  XX(OVERLAP, ARGUMENT_VALUE, "",                                                        \
     "its elements share memory: pass a contiguous copy, or declare the view const")     \
  XX(OUTPUT, ARGUMENT_VALUE, ", an output that has no values yet",                       \
     "the kernel only reads this parameter: pass an array, or declare it without const") \
  XX(RANK, ARGUMENT_VALUE, "", "pass a tensor of the view's rank")                       \
  XX(INDEX, ARGUMENT_VALUE, "",                                                          \
     "its offsets do not fit 32 bits: declare the view with a 64-bit index")             \
  XX(ALIGNMENT, ARGUMENT_VALUE,                                                          \
     " at an address that is not a multiple of the element's alignment",                 \
     "pass an aligned copy")                                                             \
  XX(NO_DATA, ARGUMENT_VALUE, " without data",                                           \
     "a tensor that is not empty needs memory: pass one that has been allocated")        \
  XX(MALFORMED, ARGUMENT_VALUE, "",                                                      \
     "its producer handed over something malformed: a negative size, no dtype, no "      \
     "shape, or no bytes")                                                               \
  XX(RANGE, ARGUMENT_VALUE, "",                                                          \
     "it does not fit the declared type: pass a value that does, or declare a wider "    \
     "one")                                                                              \
  XX(FRACTION, ARGUMENT_TYPE, "", "convert it with int(...) where that is meant")        \
  XX(BOOL, ARGUMENT_TYPE, "", "pass True or False (0 or 1)")                             \
  XX(SIZE, ARGUMENT_VALUE, "", "the size must be exactly that of the declared type")     \
  XX(NEEDS_NUMBERS, ARGUMENT_TYPE, "",                                                   \
     "pass a list of its numbers, or its bytes as the compiler lays them out")           \
  XX(NEEDS_TENSORS, ARGUMENT_TYPE, "", "pass a list of tensors")                         \
  XX(NEEDS_MAP, ARGUMENT_TYPE, "", "pass a tensor with the layout of its tensor map")    \
  XX(COUNT, ARGUMENT_VALUE, "", NULL)                                                    \
  XX(MAP, ARGUMENT_VALUE, "", NULL)                                                      \
  /* nothing orders the launch after the tensor's producer */                            \
  XX(BEFORE, ORDER, " on an unknown stream",                                             \
     "neither its library nor the caller says which stream that is: pass an array "      \
     "whose library tells its stream, or that can be asked through __dlpack__")          \
  /* nothing orders the producer after the launch */                                     \
  XX(AFTER, ORDER, " on an unknown stream",                                              \
     "its library does not tell on which stream it works, so nothing could keep that "   \
     "work behind this write: declare the parameter const if it only reads, or pass an " \
     "array whose library tells its stream")

typedef enum ons__refusal {
  ONS__ACCEPTED = 0,
#define ONS__REFUSAL(name, status, suffix, advice) ONS__REFUSED_##name,
  ONS__REFUSALS(ONS__REFUSAL)
#undef ONS__REFUSAL
} ons__refusal;

/* What a number of this type is converted by: `kind` and `more`. False for what is no
 * number. */
bool ons__step_for_number(DLDataType dtype, ons__step* out_step);

/* |is_restrict|, one for each parameter, has overlaps looked for; NULL: none are. The
 * caller frees |out_plan| with ons__free. UNSUPPORTED for parameters that cannot be
 * passed. */
ons_status ons__plan_create(const ons_allocator* allocator, const char* kernel_name,
                            const ons__signature* signature, const uint8_t* is_restrict,
                            ons__plan** out_plan, ons_error* error);

struct ons__device;
struct ons__bound;

/* Checks `plan->count` arguments for a launch on `device` (which is `where`) and
 * `stream`, and fills `block`. On a refusal returns the reason with block->index set;
 * nothing else is then of use. */
ONS__HOT ons__refusal ons__bind(const ons__plan* plan, const ons_arg* args,
                                struct ons__device* device, DLDevice where,
                                const void* stream, ons__block* block);

/* For plans that check it: the first two arguments that share memory although one of them
 * is declared __restrict__ and one is written. Of strided tensors only what is certain is
 * found. */
bool ons__bind_find_overlap(const ons__plan* plan, const ons_arg* args, size_t* out_first,
                            size_t* out_second);

/* Of a refused list: the item that is to blame, or its count where none is. */
size_t ons__bind_refused_item(const ons__step* step, const ons_arg* list,
                              struct ons__device* device);

/* The same for those arguments that are not pending, before their producers are asked. */
ons__refusal ons__bind_try(const ons__plan* plan, const ons_arg* args,
                           struct ons__device* device, size_t* out_index);

/* The message and status for a refusal. */
ONS__COLD ons_status ons__bind_explain(const ons_kernel* kernel,
                                       const struct ons__bound* bound,
                                       ons__refusal refusal, const ons_arg* args,
                                       size_t index, ons_error* error);

/* Two arguments that ons__bind_find_overlap found. */
ONS__COLD ons_status ons__bind_explain_overlap(const ons_kernel* kernel,
                                               const struct ons__bound* bound,
                                               size_t first, size_t second,
                                               ons_error* error);

/* Too few or too many arguments. */
ONS__COLD ons_status ons__bind_explain_count(const ons_kernel* kernel,
                                             const struct ons__bound* bound,
                                             size_t arg_count, ons_error* error);

#endif /* ONS_RUNTIME_BIND_H_ */
