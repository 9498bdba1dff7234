#include "jit/source_guard.h"

#include <stdbool.h>
#include <string.h>

#include "jit/source_lexer.h"

enum { kMaxNames = 16 };

/* The kernel at hand. */
typedef struct body {
  size_t depth;        /* open brackets of any kind; 0: not in a body */
  bool at_statement;   /* does a statement begin? */
  bool mentions_index; /* the statement at hand does */
  bool has_subscript;  /* ditto */
  size_t index_count;  /* of `names`, variables computed from the thread's index */
  size_t name_count;   /* the others are assigned to in the statement at hand */
  ons__token names[kMaxNames];
} body;

/* ---- tokens ----------------------------------------------------------------------- */

static bool is_word(const ons__token* token, const char* text) {
  return token->kind == ONS__TOKEN_IDENTIFIER && ons__token_is(token, text);
}

/* Where no statement goes on. */
static bool is_end(const ons__token* token) {
  return token->kind == ONS__TOKEN_END || is_word(token, "__global__");
}

/* `token` is an opening bracket and becomes what follows its closing one. */
static bool skip_brackets(ons__lexer* lexer, ons__token* token) {
  size_t depth = 0;
  do {
    int step = ons__bracket_step(ons__token_punctuation(token));
    if (is_end(token)) return false;
    depth += step > 0;
    depth -= step < 0;
    *token = ons__lexer_next(lexer);
  } while (depth > 0);
  return true;
}

/* ---- conditions ------------------------------------------------------------------- */

static bool is_index(const body* self, const ons__token* word) {
  if (ons__token_is(word, "threadIdx") || ons__token_is(word, "blockIdx")) return true;
  size_t length = (size_t)(word->end - word->begin);
  for (size_t i = 0; i < self->index_count; ++i) {
    const ons__token* name = &self->names[i];
    bool is_same = (size_t)(name->end - name->begin) == length &&
                   memcmp(name->begin, word->begin, length) == 0;
    if (is_same) return true;
  }
  return false;
}

/* Is the '=' a part of "==", "!=", "<=" or ">="? Not when a line continuation splits
 * them. */
static bool is_comparison(const char* equals) {
  char before = equals[-1]; /* an open parenthesis precedes both */
  if (before == '<' || before == '>') return equals[-2] != before;
  return before == '!' || before == '=' || equals[1] == '=';
}

/* At the word `if`, past it. True where its parentheses hold one expression that compares
 * an index; `token` is then what follows them. Values from memory are no bounds: a loop
 * that ends at one is not vectorised. */
static bool read_condition(const body* self, ons__lexer* lexer, const char** out_begin,
                           const char** out_end, ons__token* token) {
  bool has_index = false;
  bool has_relation = false;
  size_t depth = 1;
  ons__token open = ons__lexer_next(lexer);
  ons__token previous = open;
  if (ons__token_punctuation(&open) != '(') return false;
  for (;; previous = *token) {
    *token = ons__lexer_next(lexer);
    char c = ons__token_punctuation(token);
    bool is_identifier = token->kind == ONS__TOKEN_IDENTIFIER;
    if (is_end(token) || token->kind == ONS__TOKEN_DIRECTIVE) return false;
    if (c == ';' || c == '{' || c == '}' || (c == ',' && depth == 1)) return false;
    if (c == '=' && !is_comparison(token->begin)) return false;
    if (is_identifier && previous.kind == ONS__TOKEN_IDENTIFIER) return false;
    if (ons__token_punctuation(&previous) == '[' && token->kind != ONS__TOKEN_LITERAL)
      return false;
    has_index = has_index || (is_identifier && is_index(self, token));
    has_relation = has_relation || c == '<' || c == '>';
    depth += ons__bracket_step(c) > 0;
    depth -= ons__bracket_step(c) < 0;
    if (depth == 0) break;
  }
  *out_begin = open.end;
  *out_end = token->begin;
  bool is_closed = ons__token_punctuation(token) == ')';
  *token = ons__lexer_next(lexer);
  return is_closed && has_index && has_relation;
}

/* ---- what they guard -------------------------------------------------------------- */

/* `return;` or `{ return; }`; `token` becomes what follows. */
static bool skip_return(ons__lexer* lexer, ons__token* token) {
  bool is_block = ons__token_punctuation(token) == '{';
  if (is_block) *token = ons__lexer_next(lexer);
  if (!is_word(token, "return")) return false;
  *token = ons__lexer_next(lexer);
  if (ons__token_punctuation(token) != ';') return false;
  *token = ons__lexer_next(lexer);
  if (!is_block) return true;
  if (ons__token_punctuation(token) != '}') return false;
  *token = ons__lexer_next(lexer);
  return true;
}

/* A block or one statement, behind loop heads or none; `token` becomes what follows. */
static bool skip_statement(ons__lexer* lexer, ons__token* token) {
  while (is_word(token, "for") || is_word(token, "while")) {
    *token = ons__lexer_next(lexer);
    if (ons__token_punctuation(token) != '(' || !skip_brackets(lexer, token))
      return false;
  }
  if (ons__token_punctuation(token) == '{') return skip_brackets(lexer, token);
  for (;;) {
    char c = ons__token_punctuation(token);
    if (is_end(token) || ons__bracket_step(c) < 0 || is_word(token, "if")) return false;
    if (ons__bracket_step(c) > 0) {
      if (!skip_brackets(lexer, token)) return false;
      continue;
    }
    *token = ons__lexer_next(lexer);
    if (c == ';') return true;
  }
}

/* The mark for an `if` whose condition is followed by `token`; NULL: none. */
static const char* choose_mark(ons__lexer lexer, ons__token token) {
  ons__lexer after_return = lexer;
  ons__token next = token;
  if (skip_return(&after_return, &next)) {
    return is_word(&next, "else") ? NULL : "::ons_cpu_guard_return(bool(";
  }
  bool is_last = skip_statement(&lexer, &token) && ons__token_punctuation(&token) == '}';
  return is_last ? "::ons_cpu_guard(bool(" : NULL;
}

/* ---- kernels ---------------------------------------------------------------------- */

/* From __global__ into the body; false where there is none. `token` becomes the last one
 * read. */
static bool enter(ons__lexer* lexer, ons__token* token) {
  *token = ons__lexer_next(lexer);
  for (;;) {
    char c = ons__token_punctuation(token);
    if (is_end(token) || c == ';' || c == '}') return false;
    if (c == '{') return true;
    if (c == '(' || c == '[') {
      if (!skip_brackets(lexer, token)) return false;
    } else {
      *token = ons__lexer_next(lexer);
    }
  }
}

static void end_statement(body* self) {
  if (self->mentions_index && !self->has_subscript) self->index_count = self->name_count;
  self->name_count = self->index_count;
  self->mentions_index = false;
  self->has_subscript = false;
}

/* Keeps track of brackets, and of what is assigned to whom at the top level. */
static void follow(body* self, const ons__token* previous, const ons__token* token) {
  char c = ons__token_punctuation(token);
  int step = ons__bracket_step(c);
  self->depth += step > 0;
  self->depth -= step < 0;
  self->has_subscript = self->has_subscript || c == '[';
  if (token->kind == ONS__TOKEN_IDENTIFIER && is_index(self, token)) {
    self->mentions_index = true;
  }
  bool is_top = self->depth == 1;
  if (is_top && c == '=' && previous->kind == ONS__TOKEN_IDENTIFIER &&
      self->name_count < kMaxNames) {
    self->names[self->name_count++] = *previous;
  }
  self->at_statement = is_top && (c == ';' || c == '{' || c == '}');
  if (self->at_statement) end_statement(self);
}

/* Behind an `if` where a statement begins; what is before `*written` has been appended.
 */
static bool mark(const body* self, ons__lexer lexer, const char** written,
                 ons__string* text) {
  ons__token token;
  const char* begin = NULL;
  const char* end = NULL;
  if (!read_condition(self, &lexer, &begin, &end, &token)) return false;
  const char* name = choose_mark(lexer, token);
  if (!name) return false;
  ons__string_append_bytes(text, *written, (size_t)(begin - *written));
  ons__string_append(text, name);
  ons__string_append_bytes(text, begin, (size_t)(end - begin));
  ons__string_append(text, "))");
  *written = end;
  return true;
}

size_t ons__source_guard_append(const char* source, ons__string* text) {
  size_t count = 0;
  const char* written = source;
  body kernel = {0};
  ons__lexer lexer;
  ons__lexer_init(source, false, &lexer);
  ons__token previous = {ONS__TOKEN_END, source, source};
  ons__token token = ons__lexer_next(&lexer);
  while (token.kind != ONS__TOKEN_END) {
    bool is_kernel =
        is_word(&token, "__global__"); /* inside a body, a macro ate a brace */
    if (is_kernel) {
      kernel = (body){0};
      if (!enter(&lexer, &token)) continue;
    }
    if ((is_kernel || kernel.depth > 0) && token.kind != ONS__TOKEN_DIRECTIVE) {
      bool is_if = kernel.at_statement && is_word(&token, "if");
      follow(&kernel, &previous, &token);
      if (is_if) count += mark(&kernel, lexer, &written, text);
    }
    previous = token;
    token = ons__lexer_next(&lexer);
  }
  ons__string_append(text, written);
  return count;
}
