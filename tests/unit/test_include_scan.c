/* What a text may include. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "jit/include_scan.h"

static char found[500];

static void note(void* context, const ons__include* include) {
  (void)context;
  const size_t used = strlen(found);
  snprintf(found + used, sizeof(found) - used, "%s%s%s%s ",
           include->is_next ? "next:" : "", include->is_quoted ? "\"" : "",
           include->name ? include->name : "?", include->is_quoted ? "\"" : "");
}

static const char* scan(const char* text) {
  found[0] = '\0';
  cr_assert(ons__include_scan(NULL, text, note, NULL));
  return found;
}

Test(include_scan, finds_both_kinds_of_names) {
  cr_expect_str_eq(scan("#include <a.h>\nint x;\n  #  include\t\"b c.h\"\n"),
                   "a.h \"b c.h\" ");
  cr_expect_str_eq(scan("#include<a>"), "a ");
  cr_expect_str_eq(scan("%:include <a>\r\n#include <b>\r\n"), "a b ");
}

Test(include_scan, looks_into_every_branch) {
  cr_expect_str_eq(scan("#if 0\n#include <a>\n#else\n#include <b>\n#endif"), "a b ");
}

Test(include_scan, joins_lines_and_passes_over_comments) {
  cr_expect_str_eq(scan("#inc\\\nlude <a>\n#include \\\r\n <b>"), "a b ");
  cr_expect_str_eq(scan("/* x */ #include /* y */ <a>\n# /* z */ include <b>"), "a b ");
}

Test(include_scan, finds_what_is_asked_for_by_name) {
  cr_expect_str_eq(scan("#if __has_include(<a>) || __has_include ( \"b\" )"), "a \"b\" ");
  cr_expect_str_eq(scan("#include_next <a>\n__has_include_next(<b>)"), "next:a next:b ");
  cr_expect_str_eq(scan("#if defined(__has_include)"), "");
  cr_expect_str_eq(scan("#define HAS(x) __has_include(x)\n#include <a>"), "a ");
}

Test(include_scan, tells_what_it_cannot_read) {
  cr_expect_str_eq(scan("#include HEADER\n#include <a>"), "? a ");
  cr_expect_str_eq(scan("#include <a\n>"), "? ");
  cr_expect_str_eq(scan("#include"), "? ");
}

Test(include_scan, passes_over_prose) {
  cr_expect_str_eq(scan("// see #include above\nint include = includes; // include <a>"),
                   "");
  cr_expect_str_eq(scan("std::set_include(x); #included"), "");
}
