#include "jit/source_lexer.h"

#include <assert.h>
#include <string.h>

/* A position is always past the line continuations in front of it. */
static const char* skip_continuations(const char* at) {
  for (;;) {
    if (at[0] != '\\') return at;
    if (at[1] == '\n') {
      at += 2;
    } else if (at[1] == '\r' && at[2] == '\n') {
      at += 3;
    } else {
      return at;
    }
  }
}

static const char* next(const char* at) {
  assert(*at);
  return skip_continuations(at + 1);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Bytes of UTF-8 are letters. */
static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' ||
         c == '$' || (unsigned char)c >= 0x80;
}

/* ---- what is skipped -------------------------------------------------------------- */

/* `at` is behind the opening quote. Unterminated literals end with their line. */
static const char* skip_quoted(const char* at, char quote) {
  while (*at && *at != '\n') {
    if (*at == quote) return next(at);
    if (*at == '\\' && *next(at)) at = next(at);
    at = next(at);
  }
  return at;
}

/* `at` is behind R". Line continuations mean nothing in there. */
static const char* skip_raw_string(const char* at) {
  enum { kMaxDelimiter = 16 };
  size_t length = strcspn(at, "()\\ \t\v\f\r\n\"");
  if (length > kMaxDelimiter || at[length] != '(') return skip_quoted(at, '"');
  const char* delimiter = at;
  at += length + 1;
  while ((at = strchr(at, ')')) != NULL) {
    ++at;
    if (strncmp(at, delimiter, length) == 0 && at[length] == '"') {
      return skip_continuations(at + length + 1);
    }
  }
  return delimiter + strlen(delimiter);
}

/* NULL where no comment begins. */
static const char* skip_comment(const char* at) {
  if (*at != '/') return NULL;
  const char* second = next(at);
  if (*second == '/') {
    while (*at && *at != '\n') at = next(at);
    return at;
  }
  if (*second != '*') return NULL;
  at = next(second);
  while (*at) {
    bool is_star = *at == '*';
    at = next(at);
    if (is_star && *at == '/') return next(at);
  }
  return at;
}

static const char* skip_blanks(const char* at) {
  while (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\v' || *at == '\f')
    at = next(at);
  return at;
}

/* Comments and blanks, and the ends of lines if `over_lines`. */
static void skip_space(ons__lexer* lexer, bool over_lines) {
  for (;;) {
    const char* after = skip_comment(lexer->at);
    if (!after) after = skip_blanks(lexer->at);
    if (over_lines && *after == '\n' && after == lexer->at) {
      lexer->at_line_start = true;
      lexer->in_directive = false;
      after = next(after);
    }
    if (after == lexer->at) return;
    lexer->at = after;
  }
}

/* ---- tokens ----------------------------------------------------------------------- */

static const char* word_end(const char* at) {
  while (is_word(*at)) at = next(at);
  return at;
}

/* 1.5e-3f, 0x1p+2, 1'000'000 */
static const char* number_end(const char* at) {
  for (;;) {
    char c = *at;
    if (!is_word(c) && c != '.' && !(c == '\'' && is_word(*next(at)))) return at;
    at = next(at);
    bool has_exponent = c == 'e' || c == 'E' || c == 'p' || c == 'P';
    if (has_exponent && (*at == '+' || *at == '-')) at = next(at);
  }
}

/* Is the word the prefix of the literal that follows? |out_is_raw| tells whether of a raw
 * one. */
static bool is_literal_prefix(const ons__token* word, char quote, bool* out_is_raw) {
  static const char* const kRaw[] = {"R", "LR", "uR", "UR", "u8R"};
  static const char* const kPlain[] = {"L", "u", "U", "u8"};
  for (size_t i = 0; quote == '"' && i < sizeof(kRaw) / sizeof(kRaw[0]); ++i) {
    if (ons__token_is(word, kRaw[i])) return *out_is_raw = true;
  }
  for (size_t i = 0; i < sizeof(kPlain) / sizeof(kPlain[0]); ++i) {
    if (ons__token_is(word, kPlain[i])) return true;
  }
  return false;
}

static ons__token take(ons__lexer* lexer, ons__token_kind kind, const char* end) {
  ons__token token = {kind, lexer->at, end};
  lexer->at = end;
  return token;
}

static ons__token take_word(ons__lexer* lexer) {
  ons__token word = {ONS__TOKEN_IDENTIFIER, lexer->at, word_end(lexer->at)};
  lexer->at = word.end;
  char quote = *word.end;
  bool is_raw = false;
  if ((quote != '"' && quote != '\'') || !is_literal_prefix(&word, quote, &is_raw))
    return word;
  /* Raw strings cannot leave a directive. Elsewhere their text begins right behind the
   * quote, even with a backslash. */
  is_raw = is_raw && !lexer->in_directive;
  const char* end =
      is_raw ? skip_raw_string(word.end + 1) : skip_quoted(next(word.end), quote);
  return take(lexer, ONS__TOKEN_LITERAL, end);
}

/* At anything but space. */
static ons__token take_token(ons__lexer* lexer) {
  const char* at = lexer->at;
  char c = *at;
  if (!c) return take(lexer, ONS__TOKEN_END, at);
  const char* after = next(at);
  if (is_digit(c) || (c == '.' && is_digit(*after))) {
    return take(lexer, ONS__TOKEN_LITERAL, number_end(at));
  }
  if (is_word(c)) return take_word(lexer);
  if (c == '"' || c == '\'')
    return take(lexer, ONS__TOKEN_LITERAL, skip_quoted(after, c));
  if (c == ':' && *after == ':') return take(lexer, ONS__TOKEN_SCOPE, next(after));
  if (c == '-' && *after == '>') after = next(after);
  return take(lexer, ONS__TOKEN_OTHER, after);
}

/* At the '#'. Returns the directive's name and skips the rest of the line. */
static ons__token take_directive(ons__lexer* lexer) {
  lexer->at = next(lexer->at);
  skip_space(lexer, false);
  ons__token name = take(lexer, ONS__TOKEN_DIRECTIVE, word_end(lexer->at));
  for (;;) {
    skip_space(lexer, false);
    if (!*lexer->at || *lexer->at == '\n') return name;
    (void)take_token(lexer);
  }
}

void ons__lexer_init(const char* source, bool reads_directives, ons__lexer* out_lexer) {
  *out_lexer = (ons__lexer){
      .at = skip_continuations(source),
      .at_line_start = true,
      .reads_directives = reads_directives,
  };
}

ons__token ons__lexer_next(ons__lexer* lexer) {
  skip_space(lexer, true);
  bool begins_directive = lexer->at_line_start && *lexer->at == '#';
  lexer->at_line_start = false;
  lexer->in_directive = lexer->in_directive || begins_directive;
  lexer->directive_count += begins_directive;
  bool is_skipped = begins_directive && !lexer->reads_directives;
  return is_skipped ? take_directive(lexer) : take_token(lexer);
}

/* ---- spelling --------------------------------------------------------------------- */

bool ons__token_equals(const ons__token* token, const char* text, size_t length) {
  const char* at = token->begin;
  for (size_t i = 0; i < length; ++i, at = next(at)) {
    if (at == token->end || *at != text[i]) return false;
  }
  return at == token->end;
}

bool ons__token_is(const ons__token* token, const char* text) {
  return ons__token_equals(token, text, strlen(text));
}

char ons__token_punctuation(const ons__token* token) {
  bool is_one = token->kind == ONS__TOKEN_OTHER && *token->begin != '-';
  return is_one ? *token->begin : '\0';
}

int ons__bracket_step(char punctuation) {
  switch (punctuation) {
    case '(':
    case '[':
    case '{':
      return 1;
    case ')':
    case ']':
    case '}':
      return -1;
    default:
      return 0;
  }
}

size_t ons__token_copy(const ons__token* token, char* out_text) {
  size_t length = 0;
  for (const char* at = token->begin; at != token->end; at = next(at)) {
    out_text[length++] = *at;
  }
  return length;
}
