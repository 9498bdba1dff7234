#include "jit/variable_scan.h"

#include <string.h>

#include "jit/source_lexer.h"
#include "runtime/base/alloc.h"
#include "runtime/base/string.h"

/* Limits that keep the scan quick in hostile sources; what is beyond is not looked at. */
enum { kMaxDepth = 64, kMaxNameBytes = 1024, kMaxVariables = 4096 };

typedef struct scanner {
  ons__lexer lexer;
  ons__token token;                /* the current one */
  ons__string path;                /* "ns::inner::" of the namespaces around */
  size_t outer_lengths[kMaxDepth]; /* of `path`, for each open namespace */
  size_t depth;                    /* of namespaces */
  size_t inside;                   /* braces of functions, classes, ... */
  ons__variable_scan* scan;
  size_t capacity;
  bool no_memory;
} scanner;

/* A declaration as far as it has been read. */
typedef struct declaration {
  ons__token name; /* the last word that may be it; ONS__TOKEN_END: none */
  bool is_device;
  bool is_constant;
  bool is_other; /* a function, a template, extern: no definition of a variable */
} declaration;

static void advance(scanner* s) {
  do {
    s->token = ons__lexer_next(&s->lexer);
  } while (s->token.kind == ONS__TOKEN_DIRECTIVE);
  if (s->no_memory) s->token.kind = ONS__TOKEN_END;
}

static char punctuation(const scanner* s) { return ons__token_punctuation(&s->token); }

static bool at_end(const scanner* s) { return s->token.kind == ONS__TOKEN_END; }

static bool at_word(const scanner* s, const char* text) {
  return s->token.kind == ONS__TOKEN_IDENTIFIER && ons__token_is(&s->token, text);
}

/* Past the closing bracket of the one at hand. */
static void skip_brackets(scanner* s) {
  size_t depth = 0;
  do {
    int step = ons__bracket_step(punctuation(s));
    if (step < 0 && depth == 0) return;
    depth += (size_t)step;
    advance(s);
  } while (depth > 0 && !at_end(s));
}

/* Past the '>' of the '<' at hand. */
static void skip_angles(scanner* s) {
  size_t depth = 0;
  do {
    char c = punctuation(s);
    if (c == ';' || c == '{' || c == '}') return;
    if (c == '(' || c == '[') {
      skip_brackets(s);
      continue;
    }
    depth += c == '<';
    depth -= c == '>';
    advance(s);
  } while (depth > 0 && !at_end(s));
}

/* From the '=' or '{' at hand to the ',' or ';' behind it. */
static void skip_initializer(scanner* s) {
  while (!at_end(s) && punctuation(s) != ',' && punctuation(s) != ';') {
    if (ons__bracket_step(punctuation(s)) < 0) return;
    if (ons__bracket_step(punctuation(s)) > 0) {
      skip_brackets(s);
    } else {
      advance(s);
    }
  }
}

/* ---- what is found ---------------------------------------------------------------- */

static bool grow(scanner* s) {
  ons__variable_scan* scan = s->scan;
  if (scan->count < s->capacity) return true;
  size_t larger = s->capacity ? s->capacity * 2 : 8;
  ons__scanned_variable* copy = ons__alloc_array(scan->allocator, larger, sizeof(*copy));
  if (!copy) return false;
  if (scan->count) memcpy(copy, scan->variables, scan->count * sizeof(*copy));
  ons__free(scan->allocator, scan->variables);
  scan->variables = copy;
  s->capacity = larger;
  return true;
}

static void append_token(ons__string* text, const ons__token* token) {
  for (const char* at = token->begin; at != token->end; ++at) {
    if (*at != '\\' && *at != '\n' && *at != '\r') ons__string_append_bytes(text, at, 1);
  }
}

static void add(scanner* s, const declaration* d) {
  const bool is_variable = (d->is_device || d->is_constant) && !d->is_other;
  if (!is_variable || d->name.kind == ONS__TOKEN_END) return;
  const size_t length = s->path.length + (size_t)(d->name.end - d->name.begin);
  if (length > kMaxNameBytes || s->scan->count == kMaxVariables) return;
  ons__string name;
  ons__string_init(&name, s->scan->allocator);
  ons__string_append_bytes(&name, ons__string_text(&s->path), s->path.length);
  append_token(&name, &d->name);
  char* text = ons__string_take(&name);
  if (text && ons__variable_scan_find(s->scan, text)) {
    ons__free(s->scan->allocator, text);
    return;
  }
  if (!text || !grow(s)) {
    ons__free(s->scan->allocator, text);
    s->no_memory = true;
    return;
  }
  s->scan->variables[s->scan->count++] = (ons__scanned_variable){text, d->is_constant};
}

/* ---- scopes ----------------------------------------------------------------------- */

static void shorten_path(scanner* s, size_t length) {
  s->path.length = length;
  if (s->path.data) s->path.data[length] = '\0';
}

/* At the '{' of a namespace whose name, if it has one, is in the path already. */
static void enter_namespace(scanner* s, size_t outer_length) {
  if (s->depth < kMaxDepth) {
    s->outer_lengths[s->depth++] = outer_length;
  } else {
    shorten_path(s, outer_length);
    ++s->inside;
  }
  advance(s);
}

static void close_brace(scanner* s) {
  if (s->inside > 0) {
    --s->inside;
  } else if (s->depth > 0) {
    shorten_path(s, s->outer_lengths[--s->depth]);
  }
}

/* At the word; an alias opens nothing. Inline namespaces keep their name, which
 * expressions may have. */
static void read_namespace(scanner* s) {
  const size_t outer_length = s->path.length;
  advance(s);
  while (!at_end(s) && punctuation(s) != '{' && punctuation(s) != ';' &&
         punctuation(s) != '=') {
    if (punctuation(s) == '[' || punctuation(s) == '(') {
      skip_brackets(s);
      continue;
    }
    if (s->token.kind == ONS__TOKEN_IDENTIFIER && !at_word(s, "inline")) {
      append_token(&s->path, &s->token);
      ons__string_append(&s->path, "::");
    }
    advance(s);
  }
  if (punctuation(s) == '{') {
    enter_namespace(s, outer_length);
  } else {
    shorten_path(s, outer_length);
  }
}

/* ---- declarations ----------------------------------------------------------------- */

/* Words whose parentheses do not make a function. */
static bool at_attribute(const scanner* s) {
  static const char* const words[] = {"__attribute__", "__align__", "alignas", "decltype",
                                      "__declspec"};
  for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
    if (at_word(s, words[i])) return true;
  }
  return false;
}

/* At extern: `extern "C" {` is a scope, all else declares. */
static void read_extern(scanner* s, declaration* d) {
  advance(s);
  if (s->token.kind == ONS__TOKEN_LITERAL) advance(s);
  if (punctuation(s) == '{') {
    enter_namespace(s, s->path.length);
  } else {
    d->is_other = true;
  }
}

static void read_word(scanner* s, declaration* d) {
  if (at_word(s, "namespace") && !d->is_other) {
    read_namespace(s);
    *d = (declaration){0};
    return;
  }
  if (at_word(s, "extern")) {
    read_extern(s, d);
    return;
  }
  if (at_attribute(s)) {
    advance(s);
    if (punctuation(s) == '(') skip_brackets(s);
    return;
  }
  d->is_device = d->is_device || at_word(s, "__device__") || at_word(s, "__managed__");
  d->is_constant = d->is_constant || at_word(s, "__constant__");
  d->is_other = d->is_other || at_word(s, "template") || at_word(s, "using") ||
                at_word(s, "typedef") || at_word(s, "friend");
  d->name = s->token;
  advance(s);
}

static void read_punctuation(scanner* s, declaration* d) {
  const char c = punctuation(s);
  const bool is_variable = (d->is_device || d->is_constant) && !d->is_other;
  if (c == '(') {
    d->is_other = true;
    skip_brackets(s);
  } else if (c == '[') {
    skip_brackets(s);
  } else if (c == '<') {
    skip_angles(s);
  } else if (c == '=' || (c == '{' && is_variable)) {
    skip_initializer(s);
  } else if (c == ',' || c == ';') {
    add(s, d);
    d->name.kind = ONS__TOKEN_END;
    if (c == ';') *d = (declaration){0};
    advance(s);
  } else {
    if (c == '{') ++s->inside;
    if (c == '}') close_brace(s);
    if (c == '{' || c == '}') *d = (declaration){0};
    advance(s);
  }
}

/* Inside of a function or a class only its braces count. */
static void skip_inside(scanner* s) {
  if (punctuation(s) == '{') ++s->inside;
  if (punctuation(s) == '}') close_brace(s);
  advance(s);
}

bool ons__variable_scan_run(const ons_allocator* allocator, const char* source,
                            ons__variable_scan* out_scan) {
  *out_scan = (ons__variable_scan){.allocator = allocator};
  if (!strstr(source, "__device__") && !strstr(source, "__constant__") &&
      !strstr(source, "__managed__")) {
    return true;
  }
  scanner s = {.scan = out_scan};
  declaration d = {.is_device = false};
  ons__string_init(&s.path, allocator);
  ons__lexer_init(source, false, &s.lexer);
  advance(&s);
  while (!at_end(&s)) {
    if (s.inside > 0) {
      skip_inside(&s);
    } else if (s.token.kind == ONS__TOKEN_IDENTIFIER) {
      read_word(&s, &d);
    } else if (punctuation(&s)) {
      read_punctuation(&s, &d);
    } else {
      advance(&s);
    }
  }
  const bool ok = !s.no_memory && !s.path.failed;
  ons__string_clear(&s.path);
  if (!ok) ons__variable_scan_clear(out_scan);
  return ok;
}

void ons__variable_scan_clear(ons__variable_scan* scan) {
  for (size_t i = 0; i < scan->count; ++i) {
    ons__free(scan->allocator, scan->variables[i].name);
  }
  ons__free(scan->allocator, scan->variables);
  *scan = (ons__variable_scan){0};
}

const ons__scanned_variable* ons__variable_scan_find(const ons__variable_scan* scan,
                                                     const char* name) {
  for (size_t i = 0; i < scan->count; ++i) {
    if (strcmp(scan->variables[i].name, name) == 0) return &scan->variables[i];
  }
  return NULL;
}
