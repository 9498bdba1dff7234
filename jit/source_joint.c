#include "jit/source_joint.h"

#include <stdbool.h>

#include "jit/source_lexer.h"

/* Reads a sum, token by token. */
typedef struct reader {
  ons__lexer lexer;
  ons__token token;     /* the next one */
  const char* marks[2]; /* where the two names begin, as they come */
  size_t mark_count;
} reader;

static bool is_word(const ons__token* token, const char* text) {
  return token->kind == ONS__TOKEN_IDENTIFIER && ons__token_is(token, text);
}

static bool is_index(const ons__token* token) {
  return is_word(token, "threadIdx") || is_word(token, "blockIdx");
}

static void advance(reader* self) { self->token = ons__lexer_next(&self->lexer); }

static bool accept(reader* self, char punctuation) {
  if (ons__token_punctuation(&self->token) != punctuation) return false;
  advance(self);
  return true;
}

static bool accept_word(reader* self, const char* text) {
  if (!is_word(&self->token, text)) return false;
  advance(self);
  return true;
}

/* The words of a type that holds every global index. */
static bool accept_type(reader* self) {
  static const char* const words[] = {"int",      "unsigned", "signed",
                                      "long",     "size_t",   "int32_t",
                                      "uint32_t", "int64_t",  "uint64_t"};
  bool accepted = false;
  for (size_t i = 0; i < sizeof(words) / sizeof(*words);) {
    if (accept_word(self, words[i])) {
      accepted = true;
      i = 0;
    } else {
      ++i;
    }
  }
  return accepted;
}

/* `(T)`, or `T(` or `static_cast<T>(`, which count as opened. */
static bool accept_cast(reader* self, size_t* opened) {
  const reader before = *self;
  if (accept(self, '(') && accept_type(self) && accept(self, ')')) return true;
  *self = before;
  ++*opened;
  if (accept_type(self) && accept(self, '(')) return true;
  *self = before;
  if (accept_word(self, "static_cast") && accept(self, '<') && accept_type(self) &&
      accept(self, '>') && accept(self, '(')) {
    return true;
  }
  *self = before;
  --*opened;
  return false;
}

static bool close(reader* self, size_t opened) {
  while (opened > 0 && accept(self, ')')) --opened;
  return opened == 0;
}

/* NAME.x, with casts. */
static bool read_factor(reader* self, const char* name) {
  size_t opened = 0;
  while (accept_cast(self, &opened)) continue;
  if (!is_word(&self->token, name)) return false;
  if (is_index(&self->token)) self->marks[self->mark_count++] = self->token.begin;
  advance(self);
  return accept(self, '.') && accept_word(self, "x") && close(self, opened);
}

static bool read_bare_product(reader* self) {
  const reader before = *self;
  if (read_factor(self, "blockIdx") && accept(self, '*') &&
      read_factor(self, "blockDim")) {
    return true;
  }
  *self = before;
  return read_factor(self, "blockDim") && accept(self, '*') &&
         read_factor(self, "blockIdx");
}

static bool read_product(reader* self) {
  const reader before = *self;
  size_t opened = 0;
  if (read_bare_product(self)) return true;
  *self = before;
  while (accept_cast(self, &opened)) continue;
  if (accept(self, '(')) ++opened;
  return opened > 0 && read_bare_product(self) && close(self, opened);
}

static bool read_sum(reader* self) {
  const reader before = *self;
  if (read_product(self) && accept(self, '+') && read_factor(self, "threadIdx")) {
    return true;
  }
  *self = before;
  return read_factor(self, "threadIdx") && accept(self, '+') && read_product(self);
}

static size_t count_names(const char* source, bool reads_directives) {
  size_t count = 0;
  ons__lexer lexer;
  ons__lexer_init(source, reads_directives, &lexer);
  for (;;) {
    ons__token token = ons__lexer_next(&lexer);
    if (token.kind == ONS__TOKEN_END) return count;
    count += is_index(&token) || is_word(&token, "blockDim");
  }
}

/* Is it the y or z of the index, which `lexer` is past? */
static bool is_of_row(ons__lexer lexer) {
  reader self = {.lexer = lexer};
  advance(&self);
  return accept(&self, '.') && (is_word(&self.token, "y") || is_word(&self.token, "z"));
}

static void append_mark(const char* at, const char** written, ons__string* text) {
  ons__string_append_bytes(text, *written, (size_t)(at - *written));
  ons__string_append(text, "ons_cpu_joint_");
  *written = at;
}

size_t ons__source_joint_append(const char* source, ons__string* text) {
  size_t count = 0;
  const char* written = source;
  ons__lexer lexer;
  ons__lexer_init(source, false, &lexer);
  bool is_plain = count_names(source, true) == count_names(source, false);
  while (is_plain) {
    ons__token token = ons__lexer_next(&lexer);
    if (token.kind == ONS__TOKEN_END) break;
    if (is_index(&token) && is_of_row(lexer)) append_mark(token.begin, &written, text);
    if (ons__token_punctuation(&token) != '=') continue;
    reader sum = {.lexer = lexer};
    advance(&sum);
    if (!read_sum(&sum)) continue;
    const char end = ons__token_punctuation(&sum.token);
    if (end != ';' && end != ',') continue;
    for (size_t i = 0; i < sum.mark_count; ++i) {
      append_mark(sum.marks[i], &written, text);
    }
    lexer = sum.lexer;
    ++count;
  }
  ons__string_append(text, written);
  return count;
}
