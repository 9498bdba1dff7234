/* What tests expect of a call of the stand-in for XLA. */
#ifndef ONS_TESTS_UNIT_XLA_FIXTURE_H_
#define ONS_TESTS_UNIT_XLA_FIXTURE_H_

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "tests/fake_xla/fake_xla.h"

static inline void xla_expect_ok(ons__xla_error* error) {
  cr_expect(eq(ptr, error, NULL), "%s", error ? error->message : "");
  xla_drop_error(error);
}

/* `part` of its message. */
static inline void xla_expect_error(ons__xla_error* error, int code, const char* part) {
  cr_assert(ne(ptr, error, NULL), "no error with '%s'", part);
  cr_expect(eq(int, error->code, code), "%s", error->message);
  cr_expect(ne(ptr, strstr(error->message, part), NULL), "'%s' is not in '%s'", part,
            error->message);
  xla_drop_error(error);
}

/* At the end of a test. */
static inline void xla_finish(xla_call* call) {
  xla_call_destroy(call);
  cr_expect(eq(int, atomic_load(&xla_live_errors), 0), "an error leaks");
}

#endif /* ONS_TESTS_UNIT_XLA_FIXTURE_H_ */
