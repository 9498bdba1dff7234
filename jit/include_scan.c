#include "jit/include_scan.h"

#include <ctype.h>
#include <string.h>

#include "runtime/base/alloc.h"

static bool is_name_character(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Joins lines that end in a backslash; in place. */
static void splice(char* text) {
  char* to = text;
  while (*text) {
    if (text[0] == '\\' && text[1] == '\n') {
      text += 2;
    } else if (text[0] == '\\' && text[1] == '\r' && text[2] == '\n') {
      text += 3;
    } else {
      *to++ = *text++;
    }
  }
  *to = '\0';
}

static const char* skip_back(const char* begin, const char* at) {
  while (at > begin && (at[-1] == ' ' || at[-1] == '\t')) --at;
  return at;
}

static bool ends_comment(const char* begin, const char* at) {
  return at - begin >= 2 && at[-2] == '*' && at[-1] == '/';
}

/* Is the word at `at` that of a directive: behind a '#' (or "%:") which begins its line?
 */
static bool is_directive(const char* begin, const char* at) {
  at = skip_back(begin, at);
  if (ends_comment(begin, at)) return true;
  if (at > begin && at[-1] == '#') {
    --at;
  } else if (at - begin >= 2 && at[-2] == '%' && at[-1] == ':') {
    at -= 2;
  } else {
    return false;
  }
  at = skip_back(begin, at);
  return at == begin || at[-1] == '\n' || at[-1] == '\r' || ends_comment(begin, at);
}

static char* skip_blanks(char* at) {
  for (;;) {
    at += strspn(at, " \t");
    char* end = at[0] == '/' && at[1] == '*' ? strstr(at + 2, "*/") : NULL;
    if (!end) return at;
    at = end + 2;
  }
}

static bool begins_name(const char* at) { return *at == '<' || *at == '"'; }

/* Reads <name> or "name" and tells; returns what follows. */
static char* tell_name(char* at, bool is_next, ons__include_fn* found, void* context) {
  const char close = *at == '<' ? '>' : '"';
  ons__include include = {.is_quoted = *at == '"', .is_next = is_next};
  char* end = begins_name(at) ? at + 1 : NULL;
  while (end && *end && *end != close && *end != '\n') ++end;
  if (end && *end == close) {
    *end = '\0';
    include.name = at + 1;
    at = end + 1;
  }
  found(context, &include);
  return at;
}

static void scan(char* text, ons__include_fn* found, void* context) {
  static const char word[] = "include";
  static const char question[] = "__has_";
  char* at = text;
  while ((at = strstr(at, word)) != NULL) {
    const char* before = at;
    at += sizeof(word) - 1;
    const bool is_next = strncmp(at, "_next", 5) == 0;
    if (is_next) at += 5;
    if (is_name_character(*at)) continue;
    const size_t question_length = sizeof(question) - 1;
    if (before >= text + question_length &&
        !memcmp(before - question_length, question, question_length)) {
      char* open = skip_blanks(at);
      char* name = *open == '(' ? skip_blanks(open + 1) : at;
      if (begins_name(name)) at = tell_name(name, is_next, found, context);
    } else if (is_directive(text, before)) {
      at = tell_name(skip_blanks(at), is_next, found, context);
    }
  }
}

bool ons__include_scan(const ons_allocator* allocator, const char* text,
                       ons__include_fn* found, void* context) {
  char* copy = ons__strdup(allocator, text);
  if (!copy) return false;
  splice(copy);
  scan(copy, found, context);
  ons__free(allocator, copy);
  return true;
}
