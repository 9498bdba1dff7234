/* C++ source as tokens, as far as finding declarations needs it.
 *
 * Comments are skipped, literals are one token each, line continuations (backslash,
 * newline) may stand anywhere. Every byte string is accepted, in linear time. */
#ifndef ONS_JIT_SOURCE_LEXER_H_
#define ONS_JIT_SOURCE_LEXER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ons__token_kind {
  ONS__TOKEN_END = 0,
  ONS__TOKEN_IDENTIFIER,
  ONS__TOKEN_LITERAL,   /* a number, a string, a character */
  ONS__TOKEN_SCOPE,     /* :: */
  ONS__TOKEN_DIRECTIVE, /* the directive's name, "if"; the rest of the line has been
                           skipped */
  ONS__TOKEN_OTHER      /* one character of punctuation; "->" is one token, too */
} ons__token_kind;

typedef struct ons__token {
  ons__token_kind kind;
  const char* begin; /* with the line continuations that are in it */
  const char* end;
} ons__token;

typedef struct ons__lexer {
  const char* at;
  bool at_line_start;
  bool in_directive;
  size_t directive_count; /* that have begun */
  bool reads_directives; /* their text becomes tokens, ONS__TOKEN_DIRECTIVE does not occur
                          */
} ons__lexer;

/* `source` is NUL-terminated and outlives the lexer. */
void ons__lexer_init(const char* source, bool reads_directives, ons__lexer* out_lexer);

/* Returns ONS__TOKEN_END for ever once the text is over. */
ons__token ons__lexer_next(ons__lexer* lexer);

/* Compares the spelling, ignoring line continuations. */
bool ons__token_is(const ons__token* token, const char* text);
bool ons__token_equals(const ons__token* token, const char* text, size_t length);

/* The character of punctuation; 0 for other tokens, "->" among them. */
char ons__token_punctuation(const ons__token* token);

/* 1 for an opening bracket of any kind, -1 for a closing one, 0 for all else. */
int ons__bracket_step(char punctuation);

/* Writes the spelling without line continuations, at most end - begin bytes and no
 * terminator; returns the number of bytes. */
size_t ons__token_copy(const ons__token* token, char* out_text);

#endif /* ONS_JIT_SOURCE_LEXER_H_ */
