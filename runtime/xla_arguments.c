#include "runtime/xla_arguments.h"

#include <assert.h>
#include <onstream/xla.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/tensor.h"

/* A call on its way to becoming arguments. */
typedef struct filling {
  const ons__xla_frame* frame;
  const ons__xla_attributes* attributes;
  DLDevice device;
  void* stream;
  uint32_t flags; /* of every tensor */
  ons__xla_arguments* arguments;
  size_t items_begin; /* in `args`: the first of those at its end */
  ons_error* error;
} filling;

static const int64_t* entry_at(const filling* self, size_t index) {
  return &self->attributes->plan.values[2 * index];
}

/* ---- buffers ---------------------------------------------------------------------- */

static const DLDataType kDtypes[] = {
#define DTYPE(name, value, code, bits) [value] = {code, bits, 1},
    ONS__XLA_DTYPES(DTYPE)
#undef DTYPE
};

static const char* const kDtypeNames[] = {
#define NAME(name, value, code, bits) [value] = #name,
    ONS__XLA_DTYPES(NAME)
#undef NAME
};

enum { DTYPE_COUNT = sizeof(kDtypes) / sizeof(*kDtypes) };

static ONS__COLD ons_status refuse_dtype(int dtype, const char* what, int64_t index,
                                         ons_error* error) {
  const unsigned long long at = (unsigned long long)index;
  if (dtype == ONS__XLA_TOKEN) {
    return ons__error_set(error, ONS_STATUS_ARGUMENT_TYPE,
                          "%s %llu is a token, which only orders calls: let the plan "
                          "leave it out",
                          what, at);
  }
  if (dtype > 0 && dtype < DTYPE_COUNT && kDtypeNames[dtype]) {
    return ons__error_set(
        error, ONS_STATUS_UNSUPPORTED,
        "%s %llu has elements of %d bits (%s), of which several share a "
        "byte: convert it to an 8-bit type, or pass the bytes",
        what, at, (int)kDtypes[dtype].bits, kDtypeNames[dtype]);
  }
  return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                        "%s %llu is of XLA's dtype number %d, which DLPack or this "
                        "onstream does not know: convert it to one that they do",
                        what, at, dtype);
}

static ONS__COLD ons_status refuse_index(const ons__xla_buffers* buffers,
                                         const char* what, int64_t index,
                                         ons_error* error) {
  return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                        "attribute 'plan' or 'aliases' names %s %lld, and the call has "
                        "%lld: count from 0, tokens too",
                        what, (long long)index, (long long)buffers->size);
}

static ONS__COLD ons_status refuse_buffer(const char* what, int64_t index,
                                          ons_error* error) {
  return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                        "%s %lld is no buffer that this onstream knows: update onstream",
                        what, (long long)index);
}

static ons_status find_buffer(const ons__xla_buffers* buffers, const char* what,
                              int64_t index, const ons__xla_buffer** out_buffer,
                              ons_error* error) {
  if (index < 0 || index >= buffers->size) {
    return refuse_index(buffers, what, index, error);
  }
  *out_buffer = buffers->values[index];
  if (buffers->types[index] != ONS__XLA_BUFFER ||
      (*out_buffer)->struct_size < sizeof(ons__xla_buffer) || (*out_buffer)->rank < 0 ||
      (*out_buffer)->rank > INT32_MAX) {
    return refuse_buffer(what, index, error);
  }
  return ONS_STATUS_OK;
}

static uint64_t size_of(const ons__xla_buffer* buffer, DLDataType dtype) {
  uint64_t size_bytes = dtype.bits / 8;
  for (int64_t i = 0; i < buffer->rank; ++i) size_bytes *= (uint64_t)buffer->dims[i];
  return size_bytes;
}

static ons_status fill_place(const filling* self, const ons__xla_buffers* buffers,
                             const char* what, int64_t index, ons__xla_place* out_place) {
  const ons__xla_buffer* buffer = NULL;
  ons_status status = find_buffer(buffers, what, index, &buffer, self->error);
  if (status) return status;
  const int dtype = buffer->dtype;
  if (dtype <= 0 || dtype >= DTYPE_COUNT || kDtypes[dtype].bits < 8) {
    return refuse_dtype(dtype, what, index, self->error);
  }
  /* Without strides: XLA's default layout is dense and row-major. */
  out_place->tensor = (DLTensor){.data = buffer->data,
                                 .device = self->device,
                                 .ndim = (int32_t)buffer->rank,
                                 .dtype = kDtypes[dtype],
                                 .shape = buffer->dims};
  out_place->end = (uintptr_t)buffer->data + size_of(buffer, kDtypes[dtype]);
  return ONS_STATUS_OK;
}

/* ---- aliases ---------------------------------------------------------------------- */

static bool is_in_place(const ons__xla_attributes* attributes, int64_t result) {
  const ons__xla_numbers* aliases = &attributes->aliases;
  for (size_t i = 1; i < aliases->count; i += 2) {
    if (aliases->values[i] == result) return true;
  }
  return false;
}

static bool is_alias(const ons__xla_attributes* attributes, int64_t operand,
                     int64_t result) {
  const ons__xla_numbers* aliases = &attributes->aliases;
  for (size_t i = 0; i + 1 < aliases->count; i += 2) {
    if (aliases->values[i] == operand && aliases->values[i + 1] == result) return true;
  }
  return false;
}

/* Has XLA done what it was asked for? */
static ons_status check_aliases(const filling* self) {
  const ons__xla_numbers* aliases = &self->attributes->aliases;
  if (aliases->count % 2 != 0) {
    return ons__error_set(self->error, ONS_STATUS_INVALID_ARGUMENT,
                          "attribute 'aliases' has %zu numbers: give it pairs of an "
                          "operand and a result",
                          aliases->count);
  }
  for (size_t i = 0; i < aliases->count; i += 2) {
    const ons__xla_buffer *operand = NULL, *result = NULL;
    ons_status status = find_buffer(&self->frame->operands, "operand", aliases->values[i],
                                    &operand, self->error);
    if (!status) {
      status = find_buffer(&self->frame->results, "result", aliases->values[i + 1],
                           &result, self->error);
    }
    if (status) return status;
    if (operand->data == result->data) continue;
    return ons__error_set(
        self->error, ONS_STATUS_ARGUMENT_VALUE,
        "result %lld is to be written in place of operand %lld, but XLA has given it "
        "memory of its own: declare the pair as an input-output alias of the call "
        "(input_output_aliases)",
        (long long)aliases->values[i + 1], (long long)aliases->values[i]);
  }
  return ONS_STATUS_OK;
}

static ONS__COLD ons_status refuse_shared(const filling* self, int64_t operand,
                                          int64_t result) {
  return ons__error_set(
      self->error, ONS_STATUS_ARGUMENT_VALUE,
      "operand %lld and result %lld share memory, which the call does not declare: give "
      "it the pair as an input-output alias, and in 'aliases'",
      (long long)operand, (long long)result);
}

/* Empty buffers are nowhere. */
static bool places_meet(const ons__xla_place* a, const ons__xla_place* b) {
  const uintptr_t a_begin = (uintptr_t)a->tensor.data;
  const uintptr_t b_begin = (uintptr_t)b->tensor.data;
  return a_begin < a->end && b_begin < b->end && a_begin < b->end && b_begin < a->end;
}

/* One result of the plan against all operands of it. */
static ons_status check_shared(const filling* self, size_t result_entry) {
  const ons__xla_place* result = &self->arguments->places[result_entry];
  const size_t count = ons__xla_plan_count(self->attributes);
  for (size_t i = 0; i < count; ++i) {
    if (entry_at(self, i)[0] != ONS_XLA_OPERAND) continue;
    const ons__xla_place* operand = &self->arguments->places[i];
    if (!places_meet(operand, result)) continue;
    const int64_t operand_index = entry_at(self, i)[1];
    const int64_t result_index = entry_at(self, result_entry)[1];
    if (!is_alias(self->attributes, operand_index, result_index)) {
      return refuse_shared(self, operand_index, result_index);
    }
  }
  return ONS_STATUS_OK;
}

/* ---- results ---------------------------------------------------------------------- */

static bool is_named(const filling* self, int64_t result) {
  const size_t count = ons__xla_plan_count(self->attributes);
  for (size_t i = 0; i < count; ++i) {
    const int64_t* entry = entry_at(self, i);
    if (entry[0] == ONS_XLA_RESULT && entry[1] == result) return true;
  }
  return is_in_place(self->attributes, result);
}

static ons_status check_results(const filling* self) {
  const ons__xla_buffers* results = &self->frame->results;
  for (int64_t i = 0; i < results->size; ++i) {
    const ons__xla_buffer* buffer = results->values[i];
    if (is_named(self, i) || buffer->dtype == ONS__XLA_TOKEN) continue;
    return ons__error_set(self->error, ONS_STATUS_INVALID_ARGUMENT,
                          "result %lld is for no parameter of the kernel, so that nobody "
                          "would write it: name it in 'plan', or drop it",
                          (long long)i);
  }
  const size_t count = ons__xla_plan_count(self->attributes);
  for (size_t i = 0; i < count; ++i) {
    if (entry_at(self, i)[0] != ONS_XLA_RESULT) continue;
    ons_status status = check_shared(self, i);
    if (status) return status;
  }
  return ONS_STATUS_OK;
}

/* ---- the plan --------------------------------------------------------------------- */

static ONS__COLD ons_status refuse_scalar(int64_t offset, ons_error* error) {
  return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                        "attribute 'scalars' has no well-formed record at offset %lld: "
                        "<onstream/xla.h> says how ONS_XLA_SCALAR values are written",
                        (long long)offset);
}

static ons_status fill_scalar(const filling* self, int64_t offset, ons_arg* out_arg) {
  const ons__xla_text scalars = self->attributes->scalars;
  uint32_t header[2]; /* kind, size */
  if (offset < 0 || (uint64_t)offset > scalars.size_bytes ||
      scalars.size_bytes - (size_t)offset < sizeof(header)) {
    return refuse_scalar(offset, self->error);
  }
  const char* record = scalars.data + offset;
  memcpy(header, record, sizeof(header));
  const char* value = record + sizeof(header);
  if (scalars.size_bytes - (size_t)offset - sizeof(header) < header[1]) {
    return refuse_scalar(offset, self->error);
  }
  *out_arg = (ons_arg){.kind = header[0]};
  switch (header[0]) {
    case ONS_ARG_INT:
    case ONS_ARG_UINT:
    case ONS_ARG_FLOAT:
    case ONS_ARG_BOOL:
      if (header[1] != sizeof(out_arg->value)) return refuse_scalar(offset, self->error);
      memcpy(&out_arg->value, value, sizeof(out_arg->value));
      return ONS_STATUS_OK;
    case ONS_ARG_BYTES:
      out_arg->value.bytes = value;
      out_arg->size_bytes = header[1];
      return ONS_STATUS_OK;
    default:
      return refuse_scalar(offset, self->error);
  }
}

static ons_status fill_tensor(const filling* self, size_t index,
                              const ons__xla_buffers* buffers, const char* what,
                              uint32_t flags, ons_arg* out_arg) {
  ons__xla_place* place = &self->arguments->places[index];
  self->arguments->has_tensor = true;
  *out_arg = (ons_arg){.kind = ONS_ARG_TENSOR,
                       .flags = flags | self->flags,
                       .value.tensor = &place->tensor,
                       .stream = self->stream};
  return fill_place(self, buffers, what, entry_at(self, index)[1], place);
}

/* An entry that is no list. */
static ons_status fill_one(const filling* self, size_t index, ons_arg* out_arg) {
  const int64_t value = entry_at(self, index)[1];
  switch (entry_at(self, index)[0]) {
    case ONS_XLA_OPERAND:
      return fill_tensor(self, index, &self->frame->operands, "operand",
                         ONS_ARG_READ_ONLY, out_arg);
    case ONS_XLA_RESULT:
      return fill_tensor(self, index, &self->frame->results, "result",
                         is_in_place(self->attributes, value) ? 0 : ONS_ARG_OUTPUT,
                         out_arg);
    case ONS_XLA_SCALAR:
      return fill_scalar(self, value, out_arg);
    case ONS_XLA_NULL:
      *out_arg = (ons_arg){.kind = ONS_ARG_NULL};
      return ONS_STATUS_OK;
    default:
      return ons__error_set(self->error, ONS_STATUS_INVALID_ARGUMENT,
                            "entry %zu of attribute 'plan' is of kind %lld, value %lld: "
                            "give it an ons_xla_plan, and no list in a list",
                            index, (long long)entry_at(self, index)[0], (long long)value);
  }
}

static ons_status fill_list(filling* self, size_t* index, ons_arg* out_arg) {
  const int64_t item_count = entry_at(self, *index)[1];
  const size_t left = ons__xla_plan_count(self->attributes) - *index - 1;
  if (item_count < 0 || (uint64_t)item_count > left) {
    return ons__error_set(self->error, ONS_STATUS_INVALID_ARGUMENT,
                          "entry %zu of attribute 'plan' is a list of %lld, and %zu "
                          "entries follow",
                          *index, (long long)item_count, left);
  }
  self->items_begin -= (size_t)item_count;
  ons_arg* items = &self->arguments->args[self->items_begin];
  *out_arg = (ons_arg){
      .kind = ONS_ARG_LIST, .value.items = items, .item_count = (size_t)item_count};
  ons_status status = ONS_STATUS_OK;
  for (int64_t i = 0; i < item_count && !status; ++i) {
    status = fill_one(self, ++*index, &items[i]);
  }
  return status;
}

ons_status ons__xla_arguments_fill(const ons__xla_frame* frame,
                                   const ons__xla_attributes* attributes, DLDevice device,
                                   void* stream, ons__xla_arguments* arguments,
                                   ons_error* error) {
  filling self = {.frame = frame,
                  .attributes = attributes,
                  .device = device,
                  .stream = stream,
                  .flags = device.device_type == kDLCPU ? 0 : ONS_ARG_STREAM_KNOWN,
                  .arguments = arguments,
                  .items_begin = arguments->capacity,
                  .error = error};
  const size_t count = ons__xla_plan_count(attributes);
  ons_status status = ONS_STATUS_OK;
  assert(count <= arguments->capacity);
  arguments->arg_count = 0;
  for (size_t i = 0; i < count && !status; ++i) {
    ons_arg* arg = &arguments->args[arguments->arg_count++];
    status = entry_at(&self, i)[0] == ONS_XLA_LIST ? fill_list(&self, &i, arg)
                                                   : fill_one(&self, i, arg);
  }
  if (!status) status = check_aliases(&self);
  return status ? status : check_results(&self);
}
