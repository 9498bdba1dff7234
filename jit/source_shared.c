#include "jit/source_shared.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "jit/source_lexer.h"

enum {
  kMaxTokens = 256, /* of a declaration */
  kMaxConditions = 32
};

/* Which braces are open. Beyond 64 all count as a function's. */
typedef struct scope {
  uint32_t depth;
  uint64_t namespaces; /* bit i: the i-th brace is that of a namespace */
} scope;

typedef struct rewriter {
  ons__lexer lexer;
  scope at;
  scope conditions[kMaxConditions]; /* at each open #if */
  size_t condition_count;
  bool opens_namespace; /* the statement at hand does, with its next brace */
  const char* written;  /* what is before has been appended */
  ons__string* text;
  size_t count;
} rewriter;

static bool is_word(const ons__token* token, const char* text) {
  return token->kind == ONS__TOKEN_IDENTIFIER && ons__token_is(token, text);
}

/* ---- output ----------------------------------------------------------------------- */

static void copy_up_to(rewriter* self, const char* end) {
  ons__string_append_bytes(self->text, self->written, (size_t)(end - self->written));
  self->written = end;
}

/* The token's place is taken by `text`; its line ends stay. */
static void replace(rewriter* self, const ons__token* token, const char* text) {
  copy_up_to(self, token->begin);
  ons__string_append(self->text, text);
  for (const char* at = token->begin; at != token->end; ++at) {
    if (*at == '\n') ons__string_append(self->text, "\\\n"); /* of a continuation */
  }
  self->written = token->end;
}

static void insert(rewriter* self, const char* at, const char* text) {
  copy_up_to(self, at);
  ons__string_append(self->text, text);
}

/* ---- scopes ----------------------------------------------------------------------- */

static bool in_namespace(const scope* at) {
  if (at->depth == 0) return true;
  return at->depth <= 64 && (at->namespaces >> (at->depth - 1) & 1);
}

static void open_brace(scope* at, bool is_namespace) {
  if (at->depth < 64) {
    at->namespaces &= ~((uint64_t)1 << at->depth);
    at->namespaces |= (uint64_t)is_namespace << at->depth;
  }
  ++at->depth;
}

/* All branches of an #if begin with the braces that are open there. */
static void follow_directive(rewriter* self, const ons__token* name) {
  static const char* const opening[] = {"if", "ifdef", "ifndef"};
  static const char* const other[] = {"else", "elif", "elifdef", "elifndef"};
  for (size_t i = 0; i < sizeof(opening) / sizeof(*opening); ++i) {
    if (!ons__token_is(name, opening[i])) continue;
    if (self->condition_count < kMaxConditions) {
      self->conditions[self->condition_count] = self->at;
    }
    ++self->condition_count;
  }
  const bool is_known =
      self->condition_count > 0 && self->condition_count <= kMaxConditions;
  for (size_t i = 0; i < sizeof(other) / sizeof(*other) && is_known; ++i) {
    if (ons__token_is(name, other[i]))
      self->at = self->conditions[self->condition_count - 1];
  }
  if (ons__token_is(name, "endif") && self->condition_count > 0) --self->condition_count;
}

static void follow(rewriter* self, const ons__token* previous, const ons__token* token) {
  const char c = ons__token_punctuation(token);
  if (is_word(token, "namespace")) self->opens_namespace = true;
  if (token->kind == ONS__TOKEN_LITERAL && is_word(previous, "extern")) {
    self->opens_namespace = true; /* extern "C" */
  }
  if (c == '(' || c == ';' || c == '=') self->opens_namespace = false;
  if (c == '{') {
    open_brace(&self->at, self->opens_namespace);
    self->opens_namespace = false;
  }
  if (c == '}' && self->at.depth > 0) --self->at.depth;
}

/* ---- declarations ----------------------------------------------------------------- */

typedef struct declaration {
  size_t count; /* without the end */
  bool has_extern, has_shared;
  ons__token tokens[kMaxTokens];
} declaration;

/* From the first of its two words up to the end; false where it is none, or is too long.
 * The lexer is then past it, or in front of its semicolon. */
static bool read_declaration(const ons__token* first, ons__lexer* lexer,
                             declaration* out_declaration) {
  const ons__lexer start = *lexer;
  ons__token token = *first;
  out_declaration->count = 0;
  out_declaration->has_extern = out_declaration->has_shared = false;
  for (;;) {
    out_declaration->has_extern |= is_word(&token, "extern");
    out_declaration->has_shared |= is_word(&token, "__shared__");
    out_declaration->tokens[out_declaration->count++] = token;
    if (out_declaration->count == kMaxTokens) return false;
    ons__lexer after = *lexer;
    token = ons__lexer_next(&after);
    const char c = ons__token_punctuation(&token);
    if (c == ';' || token.kind == ONS__TOKEN_END) break;
    if (after.in_directive != start.in_directive ||
        after.directive_count != start.directive_count) {
      break;
    }
    if (c == '{' || c == '}' || c == '=') return false;
    *lexer = after;
  }
  return out_declaration->has_extern && out_declaration->has_shared;
}

/* Past the brackets that may open at tokens[i]. */
static size_t skip_brackets(const declaration* self, size_t i) {
  size_t depth = 0;
  while (i < self->count) {
    const int step = ons__bracket_step(ons__token_punctuation(&self->tokens[i]));
    if (step == 0 && depth == 0) return i;
    depth += step > 0;
    if (step < 0 && depth > 0) --depth;
    ++i;
    if (step < 0 && depth == 0) return i;
  }
  return i;
}

static bool is_alignment(const ons__token* token) {
  return is_word(token, "alignas") || is_word(token, "__align__") ||
         is_word(token, "__attribute__");
}

/* A declarator's name at tokens[i], if it is one: behind it are its bounds, or nothing.
 */
static bool is_declared(const declaration* self, size_t i, size_t angles) {
  if (self->tokens[i].kind != ONS__TOKEN_IDENTIFIER || angles > 0) return false;
  if (i + 1 == self->count) return true;
  const char c = ons__token_punctuation(&self->tokens[i + 1]);
  return c == '[' || c == ',';
}

static void rewrite(rewriter* self, const declaration* found) {
  const char* storage =
      in_namespace(&self->at) && !self->lexer.in_directive ? "static thread_local" : "";
  size_t angles = 0;
  for (size_t i = 0; i < found->count;) {
    const ons__token* token = &found->tokens[i];
    const char c = ons__token_punctuation(token);
    angles += c == '<';
    angles -= c == '>' && angles > 0;
    if (is_word(token, "extern") || is_word(token, "__shared__")) {
      replace(self, token, storage);
      storage = "";
    } else if (is_alignment(token)) {
      const size_t end = skip_brackets(found, i + 1);
      for (; i < end; ++i) replace(self, &found->tokens[i], "");
      continue;
    } else if (is_declared(found, i, angles)) {
      insert(self, token->begin, "(&");
      insert(self, token->end, ")");
      size_t end = i + 1;
      while (end < found->count && ons__token_punctuation(&found->tokens[end]) == '[') {
        end = skip_brackets(found, end);
      }
      insert(self, found->tokens[end - 1].end, " = ons_cpu_dynamic_memory");
      i = end;
      continue;
    }
    ++i;
  }
  ++self->count;
}

/* At `extern` or __shared__. */
static void handle(rewriter* self, const ons__token* token) {
  declaration found;
  ons__lexer lexer = self->lexer;
  if (read_declaration(token, &lexer, &found)) {
    rewrite(self, &found);
    self->lexer = lexer;
    return;
  }
  if (!is_word(token, "__shared__")) return;
  lexer = self->lexer;
  const ons__token next = ons__lexer_next(&lexer);
  if (!is_word(&next, "alignas")) return;
  replace(self, &next, "ons_cpu_alignas");
  self->lexer = lexer;
  ++self->count;
}

size_t ons__source_shared_append(const char* source, ons__string* text) {
  rewriter self = {.written = source, .text = text};
  ons__lexer_init(source, true, &self.lexer);
  ons__token previous = {ONS__TOKEN_END, source, source};
  const bool may_have_some = strstr(source, "shared") || strchr(source, '\\');
  while (may_have_some) {
    const ons__token token = ons__lexer_next(&self.lexer);
    if (token.kind == ONS__TOKEN_END) break;
    const bool in_directive = self.lexer.in_directive;
    if (is_word(&token, "extern") || is_word(&token, "__shared__")) {
      handle(&self, &token);
    } else if (in_directive && ons__token_punctuation(&previous) == '#' &&
               token.kind == ONS__TOKEN_IDENTIFIER) {
      follow_directive(&self, &token);
    }
    if (!in_directive) follow(&self, &previous, &token);
    previous = token;
  }
  ons__string_append(text, self.written);
  return self.count;
}
