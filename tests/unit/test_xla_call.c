/* The handlers' interface with XLA: the question for metadata, frames and tables of other
 * versions, attributes. No kernel runs. */
#include "runtime/base/interrupt.h"
#include "tests/unit/xla_fixture.h"

static const struct {
  xla_handler* handler;
  int stage;
  uint32_t traits;
} handlers[] = {
    {ons_xla_cpu_instantiate, ONS__XLA_INSTANTIATE, 0},
    {ons_xla_cpu_execute, ONS__XLA_EXECUTE, ONS__XLA_TRAIT_COMMAND_BUFFER},
    {ons_xla_cuda_instantiate, ONS__XLA_INSTANTIATE, 0},
    {ons_xla_cuda_initialize, ONS__XLA_INITIALIZE, 0},
    {ons_xla_cuda_execute, ONS__XLA_EXECUTE, ONS__XLA_TRAIT_COMMAND_BUFFER},
    {ons_xla_cuda_execute_nograph, ONS__XLA_EXECUTE, 0},
};

enum { HANDLER_COUNT = sizeof(handlers) / sizeof(*handlers) };

static xla_call* new_call(void) {
  return xla_call_create("__global__ void k() {}\n", "k", 1, 1);
}

/* On the CPU, whose compiler is not asked for what is refused. */
static ons__xla_error* instantiate(xla_call* call) {
  return xla_run(call, ons_xla_cpu_instantiate, ONS__XLA_INSTANTIATE);
}

static ons__xla_error* execute(xla_call* call) {
  return xla_run(call, ons_xla_cpu_execute, ONS__XLA_EXECUTE);
}

/* ---- metadata --------------------------------------------------------------------- */

/* XLA asks with a frame that has nothing else in it, and older versions without a table.
 */
Test(xla_call, tells_version_and_traits_before_all_else) {
  for (size_t i = 0; i < HANDLER_COUNT; ++i) {
    struct {
      ons__xla_metadata known;
      int64_t after; /* of newer versions */
    } metadata = {.known.struct_size = 36, .after = 7};
    ons__xla_metadata_query query = {
        .extension = {.struct_size = sizeof(query), .type = ONS__XLA_EXTENSION_METADATA},
        .metadata = &metadata.known};
    ons__xla_extension unknown = {
        .struct_size = sizeof(unknown), .type = 77, .next = &query.extension};
    metadata.known.version.major = metadata.known.version.minor = 99;
    metadata.known.traits = 99;
    ons__xla_frame frame = {.struct_size = ONS__XLA_FRAME_BYTES,
                            .extensions = &unknown,
                            .stage = ONS__XLA_EXECUTE};
    xla_expect_ok(handlers[i].handler((struct XLA_FFI_CallFrame*)&frame));
    cr_expect(eq(int, metadata.known.version.major, 0));
    cr_expect(eq(int, metadata.known.version.minor, 1));
    cr_expect(eq(u32, metadata.known.traits, handlers[i].traits));
    cr_expect(eq(i64, metadata.after, 7), "what XLA presets is left alone");
  }
}

/* ---- frames and tables ------------------------------------------------------------ */

Test(xla_call, unknown_extensions_are_passed_over) {
  ons__xla_extension second = {.struct_size = sizeof(second), .type = 3};
  ons__xla_extension first = {.struct_size = sizeof(first), .type = 2, .next = &second};
  for (size_t i = 0; i < HANDLER_COUNT; ++i) {
    xla_call* call = new_call();
    call->frame.extensions = &first;
    xla_drop(call, "grid");
    xla_expect_error(xla_run(call, handlers[i].handler, handlers[i].stage),
                     INVALID_ARGUMENT, "'grid'");
    xla_finish(call);
  }
}

Test(xla_call, other_stages_are_refused) {
  for (size_t i = 0; i < HANDLER_COUNT; ++i) {
    for (int stage = 0; stage <= 4; ++stage) {
      if (stage == handlers[i].stage) continue;
      xla_call* call = new_call();
      xla_expect_error(xla_run(call, handlers[i].handler, stage), INVALID_ARGUMENT,
                       "stage");
      xla_finish(call);
    }
  }
}

Test(xla_call, short_frames_short_tables_and_major_versions_are_refused) {
  for (size_t i = 0; i < HANDLER_COUNT; ++i) {
    xla_call* call = new_call();
    call->frame.struct_size = ONS__XLA_FRAME_BYTES - 8;
    xla_expect_error(xla_run(call, handlers[i].handler, handlers[i].stage), UNIMPLEMENTED,
                     "frame of 160 bytes");
    call->frame.struct_size = 0;
    call->api.struct_size = 80; /* no stream_get */
    xla_expect_error(xla_run(call, handlers[i].handler, handlers[i].stage), UNIMPLEMENTED,
                     "table of 80");
    call->api.struct_size = ONS__XLA_API_WHOLE_BYTES;
    call->api.version.major = 1;
    xla_expect_error(xla_run(call, handlers[i].handler, handlers[i].stage), UNIMPLEMENTED,
                     "version 1.3");
    xla_finish(call);
  }
}

static int yes(void* unused) {
  (void)unused;
  return 1;
}

Test(xla_call, the_thread_is_given_back) {
  for (size_t i = 0; i < HANDLER_COUNT; ++i) {
    xla_call* call = new_call();
    xla_drop(call, "grid");
    xla_drop_error(xla_run(call, handlers[i].handler, handlers[i].stage));
    cr_expect(ons__interrupt_ask(yes, NULL), "handler %zu", i);
    xla_finish(call);
  }
}

Test(xla_call, larger_frames_and_newer_minor_versions_are_taken) {
  xla_call* call = new_call();
  call->frame.struct_size = 512;
  call->api.version.minor = 40;
  call->api.struct_size = 4096;
  xla_expect_ok(instantiate(call));
  xla_expect_ok(execute(call));
  xla_finish(call);
}

/* ---- attributes ------------------------------------------------------------------- */

Test(xla_call, what_is_required_is_missed) {
  static const char* const names[] = {"version", "digest", "kernel", "grid", "block"};
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
    xla_call* call = new_call();
    xla_drop(call, names[i]);
    xla_expect_error(instantiate(call), INVALID_ARGUMENT, names[i]);
    xla_expect_error(execute(call), INVALID_ARGUMENT, "is missing");
    xla_finish(call);
  }
}

Test(xla_call, types_are_checked) {
  static const char* const texts[] = {"digest",  "source", "name",    "options",
                                      "headers", "kernel", "scalars", "bundle"};
  static const char* const numbers[] = {"flags", "shared_bytes", "version"};
  static const char* const arrays[] = {"aliases", "block", "grid", "plan"};
  xla_call* call = new_call();
  for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); ++i) {
    xla_finish(call);
    call = new_call();
    xla_number(call, texts[i], 1);
    xla_expect_error(execute(call), INVALID_ARGUMENT, "give it a string");
  }
  for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); ++i) {
    xla_finish(call);
    call = new_call();
    XLA_NUMBERS(call, numbers[i], 1);
    xla_expect_error(execute(call), INVALID_ARGUMENT, "give it an i64");
  }
  for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); ++i) {
    xla_finish(call);
    call = new_call();
    xla_text(call, arrays[i], "1");
    xla_expect_error(execute(call), INVALID_ARGUMENT, arrays[i]);
  }
  xla_finish(call);
}

Test(xla_call, element_types_are_checked) {
  xla_call* call = new_call();
  xla_attribute_at(call, "grid")->type = 0;
  xla_numbers(call, "grid", call->grid, 3);
  for (size_t i = 0; i < call->attribute_count; ++i) {
    if (call->attributes[i].type == ONS__XLA_ARRAY) {
      call->attributes[i].value.array.dtype = ONS__XLA_S32;
    }
  }
  xla_expect_error(execute(call), INVALID_ARGUMENT, "array of i64");
  xla_finish(call);

  call = new_call();
  xla_number(call, "version", 1);
  for (size_t i = 0; i < call->attribute_count; ++i) {
    if (call->attributes[i].type == ONS__XLA_SCALAR) {
      call->attributes[i].value.scalar.dtype = ONS__XLA_S32;
    }
  }
  xla_expect_error(execute(call), INVALID_ARGUMENT, "'version'");
  xla_finish(call);
}

Test(xla_call, attributes_of_others_are_passed_over) {
  xla_call* call = new_call();
  xla_text(call, "a", "first of all");
  xla_text(call, "gri", "short");
  xla_text(call, "gridx", "long");
  xla_text(call, "zz", "last");
  xla_expect_ok(instantiate(call));
  xla_expect_ok(execute(call));
  xla_finish(call);
}

Test(xla_call, another_version_of_the_attributes_is_refused) {
  xla_call* call = new_call();
  xla_number(call, "version", 2);
  xla_expect_error(instantiate(call), UNIMPLEMENTED, "version 2");
  xla_finish(call);
}

Test(xla_call, extents_are_three_numbers_in_range) {
  xla_call* call = new_call();
  call->grid[1] = -1;
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "'grid'");
  call->grid[1] = (int64_t)UINT32_MAX + 1;
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "'grid'");
  call->grid[1] = 1;
  xla_numbers(call, "block", call->block, 2);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "'block'");
  xla_numbers(call, "block", call->block, 3);
  xla_number(call, "shared_bytes", -1);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "'shared_bytes'");
  xla_number(call, "shared_bytes", 0);
  XLA_NUMBERS(call, "plan", 1, 2, 3);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "'plan'");
  xla_finish(call);
}

Test(xla_call, texts_have_their_lengths) {
  static const char* const malformed[] = {
      "3", "3abc", ":abc", "4:abc", "-1:a", "1:ab", "99999999999999999999999:a", " 1:a"};
  for (size_t i = 0; i < sizeof(malformed) / sizeof(*malformed); ++i) {
    xla_call* call = new_call();
    xla_text(call, "options", malformed[i]);
    xla_expect_error(instantiate(call), INVALID_ARGUMENT, "'options'");
    xla_drop(call, "options");
    xla_text(call, "headers", malformed[i]);
    xla_expect_error(instantiate(call), INVALID_ARGUMENT, "'headers'");
    xla_finish(call);
  }
  xla_call* call = new_call();
  xla_bytes(call, "options", "3:a\0b", 5);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "'options'");
  xla_drop(call, "options");
  xla_text(call, "headers", "1:a1:b1:c");
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "a name and a content");
  xla_drop(call, "headers");
  xla_number(call, "flags", (int64_t)1 << 32);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "'flags'");
  xla_number(call, "flags", 1 << 20);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "ONS_MODULE_*");
  xla_drop(call, "flags");
  xla_bytes(call, "source", "a\0b", 3);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "'source'");
  xla_finish(call);
}

/* Attributes are not terminated: what lies behind them is not read. */
Test(xla_call, attributes_end_where_they_say) {
  xla_call* call = new_call();
  xla_bytes(call, "kernel", "knot", 1);
  xla_bytes(call, "source", "__global__ void k() {}\nnot C++", 23);
  xla_expect_ok(instantiate(call));
  xla_bytes(call, "kernel", "", 0);
  xla_expect_error(instantiate(call), NOT_FOUND, "''");
  xla_bytes(call, "digest", "", 0);
  xla_expect_error(instantiate(call), INVALID_ARGUMENT, "digest");
  xla_finish(call);
}

/* ---- plans ------------------------------------------------------------------------ */

static void expect_plan_refused(const int64_t* plan, size_t count, const char* part) {
  xla_call* call = new_call();
  xla_bytes(call, "scalars",
            "\2\0\0\0\10\0\0\0"
            "1234567",
            15); /* a byte is missing */
  xla_numbers(call, "plan", plan, count);
  xla_expect_error(execute(call), INVALID_ARGUMENT, part);
  xla_finish(call);
}

#define REFUSED(part, ...)                                            \
  do {                                                                \
    static const int64_t plan_[] = {__VA_ARGS__};                     \
    expect_plan_refused(plan_, sizeof(plan_) / sizeof(*plan_), part); \
  } while (0)

Test(xla_call, malformed_plans_are_refused) {
  REFUSED("names operand 0, and the call has 0", ONS_XLA_OPERAND, 0);
  REFUSED("names operand -1", ONS_XLA_OPERAND, -1);
  REFUSED("names result 3", ONS_XLA_RESULT, 3);
  REFUSED("offset 0", ONS_XLA_SCALAR, 0);
  REFUSED("offset 8", ONS_XLA_SCALAR, 8);
  REFUSED("offset 16", ONS_XLA_SCALAR, 16);
  REFUSED("offset -1", ONS_XLA_SCALAR, -1);
  REFUSED("offset 9223372036854775807", ONS_XLA_SCALAR, INT64_MAX);
  REFUSED("kind 5", 5, 0);
  REFUSED("kind -1", -1, 0);
  REFUSED("a list of 1", ONS_XLA_LIST, 1);
  REFUSED("a list of -1", ONS_XLA_LIST, -1);
  REFUSED("no list in a list", ONS_XLA_LIST, 1, ONS_XLA_LIST, 0);
}

Test(xla_call, malformed_aliases_are_refused) {
  xla_call* call = new_call();
  XLA_NUMBERS(call, "aliases", 0);
  xla_expect_error(execute(call), INVALID_ARGUMENT, "pairs");
  XLA_NUMBERS(call, "aliases", 0, 0);
  xla_expect_error(execute(call), INVALID_ARGUMENT, "names operand 0");
  xla_finish(call);
}

Test(xla_call, a_plan_of_more_entries_than_any_kernel_has_is_refused) {
  static int64_t plan[2 * 513];
  xla_call* call = new_call();
  xla_numbers(call, "plan", plan, 2 * 513);
  xla_expect_error(execute(call), UNIMPLEMENTED, "513 entries");
  xla_finish(call);
}
