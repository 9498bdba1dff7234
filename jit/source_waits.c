#include "jit/source_waits.h"

#include <stdint.h>
#include <string.h>

#include "jit/source_lexer.h"
#include "runtime/base/alloc.h"

enum {
  kTableSize = 1024, /* of words; a power of two */
  kMaxWords = 512,
  kMaxPasses = 24, /* over the texts; each adds at least a word */
  kMaxConditions = 32
};

typedef struct word {
  const char* begin; /* NULL: free */
  size_t length;
} word;

struct ons__suspects {
  const ons_allocator* allocator;
  ons__suspicion suspicion;
  bool is_all; /* there was too much to tell apart */
  size_t word_count;
  word words[kTableSize];
};

/* ---- words ------------------------------------------------------------------------ */

static bool starts(const word* text, const char* with) {
  const size_t length = strlen(with);
  return text->length >= length && memcmp(text->begin, with, length) == 0;
}

static bool is_one_of(const word* text, const char* const* names, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (text->length == strlen(names[i]) && starts(text, names[i])) return true;
  }
  return false;
}
#define IS_ONE_OF(text, names) is_one_of(text, names, sizeof(names) / sizeof(*(names)))

/* Of the dialect: __syncthreads and its like, and what <cooperative_groups.h> declares.
 */
static bool waits_itself(const word* text) {
  static const char* const prefixes[] = {
      "__sync",     "__shfl",        "__match_",     "__reduce_",  "__any_sync",
      "__all_sync", "__ballot_sync", "__activemask", "__uni_sync", "__barrier"};
  static const char* const groups[] = {
      "cooperative_groups", "this_thread_block", "thread_block",    "thread_block_tile",
      "tiled_partition",    "coalesced_threads", "coalesced_group", "this_grid",
      "grid_group",         "thread_group",      "this_cluster",    "cluster_group"};
  for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); ++i) {
    if (starts(text, prefixes[i])) return true;
  }
  return IS_ONE_OF(text, groups);
}

static bool is_suspect_itself(const ons__suspects* self, const word* text) {
  static const char* const shared[] = {"__shared__"};
  static const char* const indices[] = {"threadIdx", "blockIdx"};
  switch (self->suspicion) {
    case ONS__SUSPECT_WAITS:
      return waits_itself(text);
    case ONS__SUSPECT_SHARED:
      return IS_ONE_OF(text, shared);
    case ONS__SUSPECT_INDEX:
      return IS_ONE_OF(text, indices);
  }
  return true;
}

/* What every declaration may mention: suspected, it would suspect all. */
static bool is_innocent(const word* text) {
  static const char* const names[] = {"__align__",
                                      "__attribute__",
                                      "__constant__",
                                      "__cluster_dims__",
                                      "__device__",
                                      "__forceinline__",
                                      "__global__",
                                      "__grid_constant__",
                                      "__host__",
                                      "__inline__",
                                      "__launch_bounds__",
                                      "__managed__",
                                      "__maxnreg__",
                                      "__noinline__",
                                      "__restrict__",
                                      "__shared__",
                                      "alignas",
                                      "auto",
                                      "bool",
                                      "char",
                                      "class",
                                      "const",
                                      "constexpr",
                                      "decltype",
                                      "double",
                                      "enum",
                                      "explicit",
                                      "extern",
                                      "float",
                                      "for",
                                      "friend",
                                      "if",
                                      "inline",
                                      "int",
                                      "int16_t",
                                      "int32_t",
                                      "int64_t",
                                      "int8_t",
                                      "long",
                                      "mutable",
                                      "namespace",
                                      "noexcept",
                                      "ons",
                                      "private",
                                      "protected",
                                      "public",
                                      "register",
                                      "return",
                                      "short",
                                      "signed",
                                      "size_t",
                                      "sizeof",
                                      "static",
                                      "static_assert",
                                      "struct",
                                      "switch",
                                      "template",
                                      "this",
                                      "typedef",
                                      "typename",
                                      "uint16_t",
                                      "uint32_t",
                                      "uint64_t",
                                      "uint8_t",
                                      "union",
                                      "unsigned",
                                      "using",
                                      "virtual",
                                      "void",
                                      "volatile",
                                      "while"};
  return IS_ONE_OF(text, names);
}

static size_t hash(const word* text) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < text->length; ++i) {
    h = (h ^ (unsigned char)text->begin[i]) * 16777619u;
  }
  return h;
}

static word* find(const ons__suspects* self, const word* text) {
  for (size_t i = hash(text);; ++i) {
    const word* entry = &self->words[i % kTableSize];
    const bool is_it = entry->begin && entry->length == text->length &&
                       memcmp(entry->begin, text->begin, text->length) == 0;
    if (is_it || !entry->begin) return (word*)(uintptr_t)entry;
  }
}

/* Line continuations inside words are not looked through. */
static bool has_continuation(const ons__token* token) {
  return memchr(token->begin, '\\', (size_t)(token->end - token->begin)) != NULL;
}

static word word_of(const ons__token* token) {
  return (word){token->begin, (size_t)(token->end - token->begin)};
}

static bool is_suspect(const ons__suspects* self, const ons__token* token) {
  if (token->kind != ONS__TOKEN_IDENTIFIER) return false;
  const word text = word_of(token);
  return has_continuation(token) || is_suspect_itself(self, &text) ||
         find(self, &text)->begin;
}

static void suspect(ons__suspects* self, const ons__token* token, bool* changed) {
  const word text = word_of(token);
  if (token->kind != ONS__TOKEN_IDENTIFIER || is_innocent(&text)) return;
  word* entry = find(self, &text);
  if (entry->begin) return;
  if (self->word_count == kMaxWords) {
    self->is_all = true;
    return;
  }
  *entry = text;
  ++self->word_count;
  *changed = true;
}

/* ---- declarations ----------------------------------------------------------------- */

static bool is_word(const ons__token* token, const char* text) {
  return token->kind == ONS__TOKEN_IDENTIFIER && ons__token_is(token, text);
}

/* One of the texts, between two ends of declarations. */
typedef struct chunk {
  ons__lexer begin;
  const char* end;
} chunk;

static bool next_in(const chunk* part, ons__lexer* lexer, ons__token* out_token) {
  *out_token = ons__lexer_next(lexer);
  return out_token->kind != ONS__TOKEN_END && out_token->begin < part->end;
}

static bool mentions_suspect(const ons__suspects* self, const chunk* part) {
  ons__lexer lexer = part->begin;
  for (ons__token token; next_in(part, &lexer, &token);) {
    if (is_suspect(self, &token)) return true;
  }
  return false;
}

/* Reads the words of a chunk, and where they are. */
typedef struct reader {
  const chunk* part;
  ons__lexer lexer;
  ons__token before, token, next; /* END where there is none */
  size_t braces, parentheses;     /* open in front of `token` */
  size_t angles;                  /* ditto, of template<> */
  bool is_class;                  /* of the first braces */
  bool is_class_name;             /* `token` may be the class's */
  bool is_initialised;            /* there was a '=' */
} reader;

static ons__token read_next(reader* self) {
  ons__token token;
  return next_in(self->part, &self->lexer, &token) ? token
                                                   : (ons__token){ONS__TOKEN_END, 0, 0};
}

static bool at_top(const reader* self) {
  return self->braces + self->parentheses + self->angles == 0;
}

static void count_brackets(reader* self) {
  const char c = ons__token_punctuation(&self->token);
  const bool opens_angle = is_word(&self->before, "template") && c == '<';
  self->parentheses += c == '(';
  self->parentheses -= c == ')' && self->parentheses > 0;
  self->braces += c == '{';
  self->braces -= c == '}' && self->braces > 0;
  self->angles += opens_angle || (self->angles > 0 && c == '<');
  self->angles -= self->angles > 0 && c == '>';
}

/* To the next token; false behind the last. */
static bool advance(reader* self) {
  const bool is_key = is_word(&self->token, "struct") || is_word(&self->token, "class") ||
                      is_word(&self->token, "union");
  const char c = ons__token_punctuation(&self->token);
  if (at_top(self)) {
    self->is_class = self->is_class || is_key;
    self->is_class_name = is_key || (self->is_class_name && c != ':' && c != '{');
    self->is_initialised = self->is_initialised || c == '=';
  }
  count_brackets(self);
  self->before = self->token;
  self->token = self->next;
  self->next = read_next(self);
  return self->token.kind != ONS__TOKEN_END;
}

/* Is the word one that is called, or that qualifies one, or an argument by itself (of a
 * macro that declares), in the head or among a class's members? Or the class? */
static bool is_declared(const reader* self) {
  const char open = ons__token_punctuation(&self->before);
  const char after = ons__token_punctuation(&self->next);
  const bool in_head = self->braces == 0 || (self->is_class && self->braces == 1);
  if (!in_head || self->angles > 0) return false;
  if (self->parentheses == 0) {
    return after == '(' || self->next.kind == ONS__TOKEN_SCOPE ||
           (self->is_class_name && self->braces == 0);
  }
  return self->parentheses == 1 && (open == '(' || open == ',') &&
         (after == ')' || after == ',');
}

/* Suspects what the chunk declares; of all but functions and classes every word, up to
 * the '='. */
static void suspect_declared(ons__suspects* self, const chunk* part, bool* changed) {
  reader at = {.part = part, .lexer = part->begin};
  bool has_body = false;
  at.next = read_next(&at);
  while (advance(&at)) {
    has_body = has_body || (at.braces > 0 && !at.is_initialised);
    if (is_declared(&at)) suspect(self, &at.token, changed);
  }
  if (has_body) return;
  at = (reader){.part = part, .lexer = part->begin};
  at.next = read_next(&at);
  while (advance(&at) && !at.is_initialised) suspect(self, &at.token, changed);
}

/* The name of a #define whose text is suspect. At the '#'. */
static void suspect_macro(ons__suspects* self, const chunk* part, bool* changed) {
  ons__lexer lexer = part->begin;
  ons__token token;
  if (!next_in(part, &lexer, &token) || !is_word(&token, "define")) return;
  if (!next_in(part, &lexer, &token)) return;
  const ons__token name = token;
  bool is_pasted = false, has_suspect = false;
  while (next_in(part, &lexer, &token)) {
    is_pasted = is_pasted || ons__token_punctuation(&token) == '#';
    has_suspect = has_suspect || is_suspect(self, &token);
  }
  /* Pasted names are nowhere to be read. */
  const bool hides = is_pasted && (has_suspect || self->suspicion == ONS__SUSPECT_INDEX);
  self->is_all = self->is_all || hides;
  if (has_suspect) suspect(self, &name, changed);
}

/* ---- texts ------------------------------------------------------------------------ */

/* Goes through the declarations of namespaces, and the macros. */
typedef struct walk {
  ons__lexer lexer;
  ons__token previous;
  chunk part;   /* the declaration at hand; end NULL: none */
  size_t depth; /* of brackets in it */
  bool opens_namespace;
  size_t conditions[kMaxConditions]; /* the depth at each open #if */
  size_t condition_count;
} walk;

static void end_part(ons__suspects* self, walk* at, const char* end, bool* changed) {
  if (at->part.end) {
    at->part.end = end;
    if (mentions_suspect(self, &at->part)) suspect_declared(self, &at->part, changed);
  }
  at->part.end = NULL;
  at->depth = 0;
  at->opens_namespace = false;
}

/* All branches of an #if begin with the brackets that are open there. */
static void follow_condition(walk* at, const ons__token* name) {
  if (name->begin[0] == 'i' && name->begin[1] == 'f') {
    if (at->condition_count < kMaxConditions) {
      at->conditions[at->condition_count] = at->depth;
    }
    ++at->condition_count;
  }
  if (at->condition_count == 0) return;
  if (name->begin[0] == 'e' && name->begin[1] == 'l' &&
      at->condition_count <= kMaxConditions) {
    at->depth = at->conditions[at->condition_count - 1];
  }
  if (is_word(name, "endif")) --at->condition_count;
}

/* At the '#': its line. */
static void read_directive(ons__suspects* self, walk* at, bool* changed) {
  chunk line = {.begin = at->lexer};
  ons__lexer after = at->lexer;
  const ons__token name = ons__lexer_next(&after);
  if (!after.in_directive || name.kind != ONS__TOKEN_IDENTIFIER) return;
  follow_condition(at, &name);
  do {
    at->lexer = after;
    line.end = ons__lexer_next(&after).begin;
  } while (after.in_directive && after.directive_count == at->lexer.directive_count &&
           *line.end);
  suspect_macro(self, &line, changed);
}

static void read_token(ons__suspects* self, walk* at, const ons__lexer* before,
                       const ons__token* token, bool* changed) {
  const char c = ons__token_punctuation(token);
  if (!at->part.end) {
    at->part = (chunk){*before, token->end};
    at->part.begin.reads_directives = false; /* they are looked at by themselves */
  }
  if (at->depth == 0) {
    if (is_word(token, "namespace")) at->opens_namespace = true;
    if (token->kind == ONS__TOKEN_LITERAL && is_word(&at->previous, "extern")) {
      at->opens_namespace = true;
    }
    if (c == '{' && at->opens_namespace) { /* what is in there stands by itself */
      at->part.end = NULL;
      at->opens_namespace = false;
      return;
    }
  }
  at->depth += ons__bracket_step(c) > 0;
  if (ons__bracket_step(c) < 0 && at->depth > 0) --at->depth;
  if (at->depth == 0 && (c == ';' || c == '}')) end_part(self, at, token->end, changed);
}

static void read_text(ons__suspects* self, const char* text, bool* changed) {
  walk at = {.previous = {ONS__TOKEN_END, text, text}};
  ons__lexer_init(text, true, &at.lexer);
  for (;;) {
    const ons__lexer before = at.lexer;
    const ons__token token = ons__lexer_next(&at.lexer);
    if (token.kind == ONS__TOKEN_END) {
      end_part(self, &at, token.end, changed);
      return;
    }
    if (at.lexer.in_directive) {
      read_directive(self, &at, changed);
    } else {
      read_token(self, &at, &before, &token, changed);
    }
    at.previous = token;
  }
}

ons__suspects* ons__suspects_create(const ons_allocator* allocator,
                                    ons__suspicion suspicion, const char* const* texts,
                                    size_t text_count, bool is_all) {
  ons__suspects* self = ons__alloc(allocator, sizeof(*self));
  if (!self) return NULL;
  self->allocator = allocator;
  self->suspicion = suspicion;
  self->is_all = is_all;
  bool changed = true;
  for (int pass = 0; changed && !self->is_all; ++pass) {
    changed = false;
    for (size_t i = 0; i < text_count; ++i) read_text(self, texts[i], &changed);
    if (pass == kMaxPasses) self->is_all = true;
  }
  return self;
}

void ons__suspects_destroy(ons__suspects* suspects) {
  if (suspects) ons__free(suspects->allocator, suspects);
}

bool ons__suspects_has(const ons__suspects* suspects, const char* name) {
  if (suspects->is_all) return true;
  ons__lexer lexer;
  ons__lexer_init(name, true, &lexer);
  for (;;) {
    const ons__token token = ons__lexer_next(&lexer);
    if (token.kind == ONS__TOKEN_END) return false;
    if (is_suspect(suspects, &token)) return true;
  }
}
