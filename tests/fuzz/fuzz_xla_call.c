/* Any plan, any scalars and any texts of an XLA call are read within their bounds, and
 * what is accepted points only at what was given. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <onstream/xla.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/xla_arguments.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

enum { ENTRIES_MAX = 24, PAIRS_MAX = 4, OPERANDS = 4, RESULTS = 3, N = 4 };

typedef struct reader {
  const uint8_t* data;
  size_t size;
} reader;

static int8_t next_byte(reader* from) {
  if (from->size == 0) return 0;
  --from->size;
  return (int8_t)*from->data++;
}

/* A count and so many pairs. */
static size_t read_pairs(reader* from, size_t most, int64_t* out_values) {
  const size_t count = (size_t)(uint8_t)next_byte(from) % (most + 1);
  for (size_t i = 0; i < 2 * count; ++i) out_values[i] = next_byte(from);
  return 2 * count;
}

/* As long as it says, so that a sanitizer sees the first byte past it; the caller frees.
 */
static char* read_text(reader* from, size_t size, ons__xla_text* out_text) {
  if (size > from->size) size = from->size;
  char* copy = malloc(size ? size : 1);
  if (copy && size) memcpy(copy, from->data, size);
  from->data += size;
  from->size -= size;
  *out_text = (ons__xla_text){copy, copy ? size : 0};
  return copy;
}

/* ---- arguments -------------------------------------------------------------------- */

static float memory[OPERANDS + RESULTS][N];
static int64_t dims[1] = {N};

static void fill_frame(ons__xla_frame* frame, ons__xla_buffer* buffers, void** pointers,
                       int* types) {
  for (int i = 0; i < OPERANDS + RESULTS; ++i) {
    types[i] = ONS__XLA_BUFFER;
    pointers[i] = &buffers[i];
    buffers[i] = (ons__xla_buffer){.struct_size = sizeof(*buffers),
                                   .dtype = ONS__XLA_F32,
                                   .data = memory[i],
                                   .rank = 1,
                                   .dims = dims};
  }
  buffers[1].dtype = ONS__XLA_TOKEN;
  buffers[2].dtype = ONS__XLA_S4;
  buffers[OPERANDS + 1].data = memory[0]; /* in place of operand 0 */
  buffers[OPERANDS + 2].dtype = ONS__XLA_TOKEN;
  frame->operands =
      (ons__xla_buffers){sizeof(frame->operands), NULL, OPERANDS, types, pointers};
  frame->results = (ons__xla_buffers){sizeof(frame->results), NULL, RESULTS, types,
                                      pointers + OPERANDS};
}

static void check_arg(const ons_arg* arg, const ons__xla_attributes* attributes,
                      const ons__xla_arguments* room) {
  const ons__xla_text* scalars = &attributes->scalars;
  switch (arg->kind) {
    case ONS_ARG_TENSOR:
      assert(arg->value.tensor->shape == dims && arg->value.tensor->dtype.bits == 32);
      break;
    case ONS_ARG_BYTES:
      assert((const char*)arg->value.bytes >= scalars->data);
      assert(arg->size_bytes <= scalars->size_bytes);
      assert((const char*)arg->value.bytes + arg->size_bytes <=
             scalars->data + scalars->size_bytes);
      break;
    case ONS_ARG_LIST:
      assert(arg->value.items >= room->args + room->arg_count);
      assert(arg->value.items + arg->item_count <= room->args + room->capacity);
      for (size_t i = 0; i < arg->item_count; ++i) {
        assert(arg->value.items[i].kind != ONS_ARG_LIST);
        check_arg(&arg->value.items[i], attributes, room);
      }
      break;
    default:
      assert(arg->kind <= ONS_ARG_BOOL);
  }
}

static void fill(reader* from) {
  int64_t plan[2 * ENTRIES_MAX], aliases[2 * PAIRS_MAX];
  ons__xla_frame frame = {.struct_size = ONS__XLA_FRAME_BYTES};
  ons__xla_buffer buffers[OPERANDS + RESULTS];
  void* pointers[OPERANDS + RESULTS];
  int types[OPERANDS + RESULTS];
  fill_frame(&frame, buffers, pointers, types);
  ons__xla_attributes attributes = {0};
  attributes.plan = (ons__xla_numbers){plan, read_pairs(from, ENTRIES_MAX, plan)};
  attributes.aliases = (ons__xla_numbers){aliases, read_pairs(from, PAIRS_MAX, aliases)};
  char* scalars = read_text(from, (size_t)(uint8_t)next_byte(from), &attributes.scalars);
  ons__xla_place places[ENTRIES_MAX];
  ons_arg args[ENTRIES_MAX];
  memset(args, 0xff, sizeof(args));
  ons__xla_arguments room = {ons__xla_plan_count(&attributes), places, args, 0, false};
  if (scalars && !ons__xla_arguments_fill(&frame, &attributes, (DLDevice){kDLCPU, 0},
                                          NULL, &room, NULL)) {
    assert(room.arg_count <= room.capacity);
    for (size_t i = 0; i < room.arg_count; ++i) check_arg(&args[i], &attributes, &room);
  }
  free(scalars);
}

/* ---- texts ------------------------------------------------------------------------ */

/* What was read takes up all that was given, length for length. */
static void read_texts(reader* from) {
  ons__xla_text given;
  char* copy = read_text(from, from->size, &given);
  ons__xla_texts texts = {0};
  if (copy && !ons__xla_texts_read(given, "options", &texts, NULL)) {
    size_t total = 0;
    for (size_t i = 0; i < texts.count; ++i) {
      const size_t length = strlen(texts.texts[i]);
      total += length + 2; /* a digit at least, and ':' */
      assert(length <= given.size_bytes);
    }
    assert(total <= given.size_bytes);
  }
  ons__xla_texts_clear(&texts);
  free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  reader from = {data, size};
  fill(&from);
  read_texts(&from);
  return 0;
}
