#include "jit/source_scan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jit/source_lexer.h"
#include "runtime/base/alloc.h"

/* Limits that keep the scan linear in hostile sources: deeper namespaces and longer names
 * are not looked at. */
enum { kMaxScopeDepth = 64, kMaxNameBytes = 1024 };
/* More parameters of a template, or a longer type, are not looked into. */
enum { kMaxTemplateParameters = 32, kMaxTypeTokens = 16 };

/* A namespace, or the braces of extern "C". Scopes are never removed, so that the one
 * before an #if is still there at its #else. */
typedef struct position {
  size_t scope;  /* index + 1; 0: the translation unit */
  size_t braces; /* open ones inside the scope that are no scopes: functions, classes */
} position;

typedef struct scope {
  ons__token name; /* ONS__TOKEN_END: has none, or one that names may leave out (unnamed,
                      inline) */
  size_t parent;   /* index + 1 */
  position outer;  /* where its closing brace leads back to */
  int depth;
} scope;

typedef enum template_state {
  NO_TEMPLATE = 0,
  TEMPLATE,
  SPECIALIZATION, /* template <> */
  INSTANTIATION   /* template without parameters */
} template_state;

/* A declaration of a kernel. */
typedef struct found {
  ons__scanned_kernel kernel;
  uint64_t types; /* a hash of the parameters' types */
  size_t order;
  bool is_defined;
} found;

typedef struct name_text {
  char text[kMaxNameBytes];
  size_t length;
  bool is_too_long;
} name_text;

typedef struct template_parameter {
  ons__token name; /* ONS__TOKEN_END: has none */
  bool is_type;
  bool has_default;
} template_parameter;

/* The parameters of the declaration at hand. */
typedef struct parameters {
  char** names;
  uint8_t* is_restrict;
  size_t count;
  size_t capacity, restrict_capacity;
  ons__scanned_deduction* deductions;
  size_t deduction_count, deduction_capacity;
  uint64_t types;
} parameters;

typedef struct scanner {
  const ons_allocator* allocator;
  ons__lexer lexer;
  ons__token token; /* the current one */
  bool no_memory;

  scope* scopes;
  size_t scope_count, scope_capacity;
  position position;
  position* conditions; /* where each open #if began */
  size_t condition_count, condition_capacity;

  template_state template_state; /* of the declaration at hand */
  template_parameter template_parameters[kMaxTemplateParameters]; /* ditto */
  size_t template_parameter_count;
  bool is_friend;
  found* found;
  size_t found_count, found_capacity;
} scanner;

/* ---- tools ------------------------------------------------------------------------ */

/* Makes room for one more element behind `count`; false when out of memory. */
static bool grow(scanner* s, void** elements, size_t element_bytes, size_t count,
                 size_t* capacity) {
  if (count < *capacity) return true;
  size_t larger = *capacity ? *capacity * 2 : 8;
  void* copy = ons__alloc_array(s->allocator, larger, element_bytes);
  if (!copy) {
    s->no_memory = true;
    return false;
  }
  if (count) memcpy(copy, *elements, count * element_bytes);
  ons__free(s->allocator, *elements);
  *elements = copy;
  *capacity = larger;
  return true;
}

static void free_texts(const ons_allocator* allocator, char** texts, size_t count) {
  for (size_t i = 0; i < count; ++i) ons__free(allocator, texts[i]);
  ons__free(allocator, texts);
}

static bool is_any(const ons__token* token, const char* const* texts, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (ons__token_is(token, texts[i])) return true;
  }
  return false;
}
#define IS_ANY(token, texts) is_any(token, texts, sizeof(texts) / sizeof((texts)[0]))

static bool at_word(const scanner* s, const char* text) {
  return s->token.kind == ONS__TOKEN_IDENTIFIER && ons__token_is(&s->token, text);
}

static bool at_kernel(const scanner* s) { return at_word(s, "__global__"); }

static char punctuation(const scanner* s) { return ons__token_punctuation(&s->token); }

static void append_name(name_text* name, const ons__token* token) {
  size_t room = sizeof(name->text) - name->length;
  if ((size_t)(token->end - token->begin) > room) {
    name->is_too_long = true;
  } else {
    name->length += ons__token_copy(token, name->text + name->length);
  }
}

static char* copy_token(scanner* s, const ons__token* token) {
  char* text = ons__alloc(s->allocator, (size_t)(token->end - token->begin) + 1);
  if (text) text[ons__token_copy(token, text)] = '\0';
  s->no_memory = s->no_memory || !text;
  return text;
}

/* ---- moving on -------------------------------------------------------------------- */

static void handle_directive(scanner* s) {
  static const char* const kBegin[] = {"if", "ifdef", "ifndef"};
  static const char* const kMiddle[] = {"else", "elif", "elifdef", "elifndef"};
  if (IS_ANY(&s->token, kBegin)) {
    if (grow(s, (void**)&s->conditions, sizeof(*s->conditions), s->condition_count,
             &s->condition_capacity)) {
      s->conditions[s->condition_count++] = s->position;
    }
  } else if (s->condition_count > 0 && IS_ANY(&s->token, kMiddle)) {
    /* Each branch opens and closes braces of its own. */
    s->position = s->conditions[s->condition_count - 1];
  } else if (s->condition_count > 0 && ons__token_is(&s->token, "endif")) {
    --s->condition_count;
  }
}

static void advance(scanner* s) {
  do {
    s->token = ons__lexer_next(&s->lexer);
    if (s->token.kind == ONS__TOKEN_DIRECTIVE) handle_directive(s);
  } while (s->token.kind == ONS__TOKEN_DIRECTIVE);
  if (s->no_memory) s->token.kind = ONS__TOKEN_END;
}

/* Past the closing bracket of the one at hand. Gives up where a kernel begins. */
static void skip_brackets(scanner* s) {
  size_t depth = 0;
  do {
    int step = ons__bracket_step(punctuation(s));
    depth += step > 0;
    depth -= step < 0;
    advance(s);
  } while (depth > 0 && s->token.kind != ONS__TOKEN_END && !at_kernel(s));
}

/* Past the '>' of the '<' at hand; true for "<>". Gives up where no such list goes on. */
static bool skip_angles(scanner* s) {
  size_t depth = 0;
  bool is_empty = true;
  do {
    char c = punctuation(s);
    if (c == '(' || c == '[') {
      skip_brackets(s);
      is_empty = false;
      continue;
    }
    if (c == ';' || c == '{' || c == '}') break;
    is_empty = is_empty && (c == '>' || (c == '<' && depth == 0));
    depth += c == '<';
    depth -= c == '>';
    advance(s);
  } while (depth > 0 && s->token.kind != ONS__TOKEN_END && !at_kernel(s));
  return is_empty;
}

/* An attribute (its arguments too), which may stand nearly anywhere; false where none is.
 */
static bool skip_attribute(scanner* s) {
  static const char* const kCalls[] = {
      "__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__",
      "__attribute__",     "__declspec",       "__align__",      "alignas",
      "noexcept",          "requires",         "decltype",       "throw"};
  if (punctuation(s) == '[') {
    skip_brackets(s);
    return true;
  }
  if (s->token.kind != ONS__TOKEN_IDENTIFIER || !IS_ANY(&s->token, kCalls)) return false;
  advance(s);
  if (punctuation(s) == '(') skip_brackets(s);
  return true;
}

/* ---- scopes ----------------------------------------------------------------------- */

static const scope* current_scope(const scanner* s) {
  return s->position.scope ? &s->scopes[s->position.scope - 1] : NULL;
}

/* Enters a scope that its closing brace leaves towards `outer`. False at the limits. */
static bool enter_scope(scanner* s, const ons__token* name, position outer) {
  const scope* parent = current_scope(s);
  scope entered = {.parent = s->position.scope, .outer = outer, .depth = 1};
  if (name) entered.name = *name;
  if (parent) entered.depth += parent->depth;
  if (entered.depth > kMaxScopeDepth) return false;
  if (!grow(s, (void**)&s->scopes, sizeof(*s->scopes), s->scope_count,
            &s->scope_capacity)) {
    return false;
  }
  s->scopes[s->scope_count++] = entered;
  s->position = (position){.scope = s->scope_count};
  return true;
}

static void close_brace(scanner* s) {
  const scope* current = current_scope(s);
  if (s->position.braces > 0) {
    --s->position.braces;
  } else if (current) {
    s->position = current->outer;
  }
}

/* At the word. Enters `namespace a::b {`; nothing for an alias. */
static void handle_namespace(scanner* s, bool is_inline) {
  position outer = s->position;
  bool is_named = false;
  bool ok = true;
  advance(s);
  while (ok) {
    if (skip_attribute(s)) continue;
    if (at_word(s, "inline")) {
      is_inline = true;
    } else if (s->token.kind == ONS__TOKEN_IDENTIFIER && !at_kernel(s)) {
      ok = enter_scope(s, is_inline ? NULL : &s->token, outer);
      is_named = true;
      is_inline = false;
    } else if (s->token.kind != ONS__TOKEN_SCOPE) {
      break;
    }
    advance(s);
  }
  if (ok && punctuation(s) == '{' && (is_named || enter_scope(s, NULL, outer))) {
    advance(s);
  } else {
    s->position = outer;
  }
}

/* "a::b::name"; NULL when out of memory, or when it is too long. */
static char* qualified_name(scanner* s, const name_text* name) {
  const ons__token* path[kMaxScopeDepth];
  size_t count = 0;
  size_t index = s->position.scope;
  while (index) {
    const scope* around = &s->scopes[index - 1];
    if (around->name.kind != ONS__TOKEN_END) path[count++] = &around->name;
    index = around->parent;
  }
  static const ons__token kSeparator = {ONS__TOKEN_SCOPE, "::", &"::"[2]};
  const ons__token last = {ONS__TOKEN_IDENTIFIER, name->text, name->text + name->length};
  name_text full = {.is_too_long = name->is_too_long};
  while (count > 0) {
    append_name(&full, path[--count]);
    append_name(&full, &kSeparator);
  }
  append_name(&full, &last);
  if (full.is_too_long) return NULL;
  char* copy = ons__strndup(s->allocator, full.text, full.length);
  s->no_memory = s->no_memory || !copy;
  return copy;
}

/* ---- parameters ------------------------------------------------------------------- */

/* One parameter while it is being read. */
typedef struct parameter {
  ons__token name; /* the last word that may be it; ONS__TOKEN_END: none */
  ons__token previous;
  size_t token_count;
  size_t depth;       /* of brackets */
  size_t angle_depth; /* of template arguments, outside brackets */
  bool has_type;
  bool in_default;    /* after the '=' */
  bool in_declarator; /* inside the parentheses of (*name) */
  bool is_void;
  bool is_restrict;
  ons__token type[kMaxTypeTokens]; /* without qualifiers, the name among them */
  size_t type_count;
} parameter;

static const char* const kQualifiers[] = {
    "const", "volatile", "__restrict__", "__restrict", "restrict",          "struct",
    "class", "enum",     "union",        "typename",   "__grid_constant__", "register"};
static const char* const kRestrict[] = {"__restrict__", "__restrict", "restrict"};
static const char* const kTypeWords[] = {"void",    "bool",     "char",     "short",
                                         "int",     "long",     "float",    "double",
                                         "auto",    "signed",   "unsigned", "wchar_t",
                                         "char8_t", "char16_t", "char32_t", "__int128"};

static void hash_token(parameters* all, const ons__token* token) {
  for (const char* at = token->begin; at != token->end; ++at) {
    all->types = (all->types ^ (unsigned char)*at) * UINT64_C(1099511628211);
  }
  all->types = (all->types ^ ' ') * UINT64_C(1099511628211);
}

/* The word that looked like the parameter's name is a part of its type. */
static void drop_name(parameter* one, parameters* all) {
  if (one->name.kind != ONS__TOKEN_END) hash_token(all, &one->name);
  one->name.kind = ONS__TOKEN_END;
}

static void read_word(const ons__token* word, parameter* one, parameters* all) {
  if (IS_ANY(word, kQualifiers)) {
    one->is_restrict = one->is_restrict || IS_ANY(word, kRestrict);
    return;
  }
  if (one->in_declarator && one->name.kind == ONS__TOKEN_END) {
    one->name = *word;
    return;
  }
  bool is_outside = one->depth == 0 && one->angle_depth == 0;
  bool is_type = IS_ANY(word, kTypeWords) || one->previous.kind == ONS__TOKEN_SCOPE;
  if (is_outside && one->has_type && !is_type) {
    drop_name(one, all);
    one->name = *word;
    return;
  }
  if (is_outside) {
    if (is_type) drop_name(one, all);
    one->has_type = true;
    one->is_void = one->token_count == 0 && ons__token_is(word, "void");
  }
  if (one->has_type) hash_token(all, word);
}

/* Brackets and template argument lists, in default values as well. */
static void track_nesting(char c, parameter* one) {
  int step = ons__bracket_step(c);
  if (step > 0) ++one->depth;
  if (step < 0 && one->depth > 0) --one->depth;
  if (one->depth > 0) return;
  one->in_declarator = false;
  if (c == '<' && one->previous.kind == ONS__TOKEN_IDENTIFIER) ++one->angle_depth;
  if (c == '>' && one->angle_depth > 0) --one->angle_depth;
}

/* Would a '*' here begin a declarator in parentheses, "(*name" or "(Class::*name"? */
static bool begins_declarator(const parameter* one) {
  if (!one->has_type || one->depth == 0) return false;
  bool after_open = one->previous.kind == ONS__TOKEN_OTHER && *one->previous.begin == '(';
  return after_open || one->previous.kind == ONS__TOKEN_SCOPE;
}

static void read_token(const scanner* s, parameter* one, parameters* all) {
  char c = punctuation(s);
  bool is_outside = one->depth == 0;
  bool is_indirection = c == '*' || c == '&';
  track_nesting(c, one);
  if (is_outside && one->angle_depth == 0 && c == '=') one->in_default = true;
  if (!one->in_default && s->token.kind == ONS__TOKEN_IDENTIFIER) {
    read_word(&s->token, one, all);
  } else if (!one->in_default) {
    bool is_type = is_indirection || c == '<' || s->token.kind == ONS__TOKEN_SCOPE;
    if (is_outside && is_type) drop_name(one, all);
    if (is_indirection && begins_declarator(one)) one->in_declarator = true;
    if (one->has_type) hash_token(all, &s->token);
  }
  if (!one->in_default && one->type_count < kMaxTypeTokens &&
      !(s->token.kind == ONS__TOKEN_IDENTIFIER && IS_ANY(&s->token, kQualifiers))) {
    one->type[one->type_count++] = s->token;
  }
  one->previous = s->token;
  ++one->token_count;
}

/* ---- what a call tells of a template's parameters --------------------------------- */

static void add_deduction(scanner* s, parameters* all, const ons__token* token,
                          ons_deduction_kind kind) {
  for (size_t i = 0; i < s->template_parameter_count; ++i) {
    const ons__token* name = &s->template_parameters[i].name;
    if (name->kind == ONS__TOKEN_END ||
        !ons__token_equals(token, name->begin, (size_t)(name->end - name->begin))) {
      continue;
    }
    if (!grow(s, (void**)&all->deductions, sizeof(*all->deductions), all->deduction_count,
              &all->deduction_capacity)) {
      return;
    }
    all->deductions[all->deduction_count++] =
        (ons__scanned_deduction){.kind = (uint8_t)kind,
                                 .template_parameter = (uint16_t)i,
                                 .parameter = (uint16_t)all->count};
  }
}

/* `view<A, B, C>` behind `name`: each argument that is one word. */
static void deduce_instance(scanner* s, parameters* all, const ons__token* type,
                            size_t count, const ons_deduction_kind* kinds,
                            size_t kind_count) {
  size_t place = 0;
  int depth = 1; /* behind the '<' */
  for (size_t i = 1; i + 1 < count && place < kind_count; ++i) {
    char c = ons__token_punctuation(&type[i]);
    depth += (c == '<') - (c == '>');
    if (depth != 1) continue;
    char before = ons__token_punctuation(&type[i - 1]);
    char after = ons__token_punctuation(&type[i + 1]);
    bool is_whole = (before == '<' || before == ',') && (after == ',' || after == '>');
    if (c == ',') {
      ++place;
    } else if (is_whole && type[i].kind == ONS__TOKEN_IDENTIFIER) {
      add_deduction(s, all, &type[i], kinds[place]);
    }
  }
}

/* `T*`, `T[]`, `ons::view<T, N, Index>`, `ons::ptrs<T, N>`, all without qualifiers. */
static void deduce(scanner* s, const parameter* one, parameters* all) {
  static const ons_deduction_kind kView[] = {ONS_DEDUCTION_DTYPE, ONS_DEDUCTION_RANK,
                                             ONS_DEDUCTION_INDEX};
  static const ons_deduction_kind kPointers[] = {ONS_DEDUCTION_DTYPE,
                                                 ONS_DEDUCTION_COUNT};
  ons__token type[kMaxTypeTokens];
  size_t count = 0;
  if (s->template_parameter_count == 0 || one->type_count == kMaxTypeTokens) return;
  for (size_t i = 0; i < one->type_count; ++i) {
    bool is_name = one->type[i].begin == one->name.begin;
    if (!is_name) type[count++] = one->type[i];
  }
  bool has_scope =
      count > 2 && ons__token_is(&type[0], "ons") && type[1].kind == ONS__TOKEN_SCOPE;
  const ons__token* at = has_scope ? &type[2] : type;
  size_t left = has_scope ? count - 2 : count;
  bool is_pointer = left == 2 && ons__token_punctuation(&at[1]) == '*';
  bool is_array = left == 3 && ons__token_punctuation(&at[1]) == '[';
  if (!has_scope && (is_pointer || is_array)) {
    add_deduction(s, all, &at[0], ONS_DEDUCTION_DTYPE);
  } else if (left > 2 && ons__token_is(&at[0], "view")) {
    deduce_instance(s, all, at + 1, left - 1, kView, 3);
  } else if (left > 2 && ons__token_is(&at[0], "ptrs")) {
    deduce_instance(s, all, at + 1, left - 1, kPointers, 2);
  }
}

static void finish_parameter(scanner* s, const parameter* one, bool is_last,
                             parameters* all) {
  bool is_nothing = one->token_count == 0 || (one->is_void && one->token_count == 1);
  if (is_last && all->count == 0 && is_nothing) {
    all->types = 0; /* (void) is () */
    return;
  }
  static const ons__token kComma = {ONS__TOKEN_OTHER, ",", &","[1]};
  hash_token(all, &kComma);
  if (!grow(s, (void**)&all->names, sizeof(*all->names), all->count, &all->capacity) ||
      !grow(s, (void**)&all->is_restrict, sizeof(*all->is_restrict), all->count,
            &all->restrict_capacity)) {
    return;
  }
  deduce(s, one, all);
  all->is_restrict[all->count] = one->is_restrict;
  all->names[all->count] = NULL;
  if (one->name.kind != ONS__TOKEN_END) {
    all->names[all->count] = copy_token(s, &one->name);
  }
  ++all->count;
}

/* From the '(' at hand past its ')'. False where this is no parameter list. */
static bool read_parameters(scanner* s, parameters* all) {
  parameter one = {0};
  advance(s);
  for (;;) {
    char c = punctuation(s);
    bool is_outside = one.depth == 0;
    if (s->token.kind == ONS__TOKEN_END || at_kernel(s)) return false;
    if (is_outside && (c == ';' || c == ']' || c == '{' || c == '}')) {
      if (c != '{' || !one.in_default) return false;
    }
    if (is_outside && (c == ')' || (c == ',' && one.angle_depth == 0))) {
      finish_parameter(s, &one, c == ')', all);
      one = (parameter){0};
      advance(s);
      if (c == ')') return !s->no_memory;
      continue;
    }
    read_token(s, &one, all);
    advance(s);
  }
}

/* ---- declarations ----------------------------------------------------------------- */

static void clear_parameters(const scanner* s, parameters* all) {
  free_texts(s->allocator, all->names, all->count);
  ons__free(s->allocator, all->is_restrict);
  ons__free(s->allocator, all->deductions);
  *all = (parameters){0};
}

/* What follows __global__, up to the body or the semicolon. */
typedef struct declaration {
  name_text name;
  parameters parameters;
  bool is_instance; /* name<arguments>(...) */
  bool is_defined;
  bool is_complete; /* has a name and parameters */
} declaration;

/* At a word, perhaps with qualifiers, that may be the kernel's name. */
static void read_declarator(scanner* s, declaration* d) {
  name_text name = {.length = 0};
  bool is_instance = false;
  for (;;) {
    append_name(&name, &s->token);
    advance(s);
    is_instance = punctuation(s) == '<';
    if (is_instance) (void)skip_angles(s);
    if (s->token.kind != ONS__TOKEN_SCOPE) break;
    append_name(&name, &s->token);
    advance(s);
    if (s->token.kind != ONS__TOKEN_IDENTIFIER || at_kernel(s)) return;
  }
  while (punctuation(s) == '[') skip_brackets(s);
  if (punctuation(s) != '(') return;
  parameters all = {0};
  if (!read_parameters(s, &all)) {
    clear_parameters(s, &all);
    return;
  }
  /* The last one is it: those before were macros. */
  clear_parameters(s, &d->parameters);
  d->parameters = all;
  d->name = name;
  d->is_instance = is_instance;
  d->is_complete = true;
}

static void read_declaration(scanner* s, declaration* d) {
  for (;;) {
    char c = punctuation(s);
    if (s->token.kind == ONS__TOKEN_END || c == ';' || c == '}') return;
    /* The same kernel once more, in another branch of an #if. */
    bool begins_again = at_kernel(s) && d->is_complete;
    d->is_defined = c == '{' || begins_again;
    if (d->is_defined) return;
    if (skip_attribute(s)) continue;
    if (s->token.kind == ONS__TOKEN_IDENTIFIER && !at_kernel(s)) {
      read_declarator(s, d);
    } else if (c == '(') {
      skip_brackets(s);
    } else {
      advance(s);
    }
  }
}

static void copy_template(scanner* s, ons__scanned_kernel* kernel) {
  if (s->template_parameter_count == 0) return;
  kernel->template_parameters = ons__alloc_array(
      s->allocator, s->template_parameter_count, sizeof(*kernel->template_parameters));
  s->no_memory = s->no_memory || !kernel->template_parameters;
  for (size_t i = 0; !s->no_memory && i < s->template_parameter_count; ++i) {
    const template_parameter* from = &s->template_parameters[i];
    bool has_name = from->name.kind != ONS__TOKEN_END;
    kernel->template_parameters[i] = (ons__scanned_template_parameter){
        .name = has_name ? copy_token(s, &from->name) : NULL,
        .is_type = from->is_type,
        .has_default = from->has_default};
    ++kernel->template_parameter_count;
  }
}

static void add_found(scanner* s, declaration* d) {
  char* name = qualified_name(s, &d->name);
  if (!name) return;
  if (!grow(s, (void**)&s->found, sizeof(*s->found), s->found_count,
            &s->found_capacity)) {
    ons__free(s->allocator, name);
    return;
  }
  s->found[s->found_count] = (found){
      .kernel = {.name = name,
                 .is_template = s->template_state == TEMPLATE,
                 .parameter_names = d->parameters.names,
                 .parameter_is_restrict = d->parameters.is_restrict,
                 .parameter_count = d->parameters.count,
                 .deductions = d->parameters.deductions,
                 .deduction_count = d->parameters.deduction_count},
      .types = d->parameters.types,
      .order = s->found_count,
      .is_defined = d->is_defined,
  };
  copy_template(s, &s->found[s->found_count].kernel);
  ++s->found_count;
  d->parameters = (parameters){0};
}

/* At __global__. */
static void handle_kernel(scanner* s) {
  declaration d = {.is_complete = false};
  advance(s);
  read_declaration(s, &d);
  bool is_primary = s->template_state == NO_TEMPLATE || s->template_state == TEMPLATE;
  if (d.is_complete && is_primary && !s->is_friend && !d.is_instance) {
    /* Kernels are never defined inside functions or classes: a brace was lost to a macro.
     */
    if (d.is_defined) s->position.braces = 0;
    add_found(s, &d);
  }
  clear_parameters(s, &d.parameters);
}

/* One parameter of a template, up to its ',' or '>'; a pack has no name here. */
static template_parameter read_template_parameter(scanner* s) {
  template_parameter one = {.is_type = at_word(s, "typename") || at_word(s, "class")};
  bool is_pack = false;
  size_t depth = 0;
  for (;;) {
    char c = punctuation(s);
    bool is_over = depth == 0 && (c == ',' || c == '>');
    if (is_over || c == ';' || c == '{' || c == '}') break;
    if (s->token.kind == ONS__TOKEN_END || at_kernel(s)) break;
    if (c == '(' || c == '[') {
      skip_brackets(s);
      continue;
    }
    depth += c == '<';
    depth -= c == '>';
    is_pack = is_pack || c == '.';
    one.has_default = one.has_default || (c == '=' && depth == 0);
    if (s->token.kind == ONS__TOKEN_IDENTIFIER && depth == 0 && !one.has_default) {
      one.name = s->token;
    }
    advance(s);
  }
  bool is_keyword = one.name.kind != ONS__TOKEN_END &&
                    (ons__token_is(&one.name, "typename") ||
                     ons__token_is(&one.name, "class") || IS_ANY(&one.name, kTypeWords));
  if (is_pack || is_keyword) one.name.kind = ONS__TOKEN_END;
  return one;
}

/* At the '<'. */
static void read_template_parameters(scanner* s) {
  advance(s);
  s->template_state = punctuation(s) == '>' ? SPECIALIZATION : TEMPLATE;
  while (punctuation(s) != '>') {
    template_parameter one = read_template_parameter(s);
    if (s->template_parameter_count < kMaxTemplateParameters) {
      s->template_parameters[s->template_parameter_count++] = one;
    }
    if (punctuation(s) != ',') break;
    advance(s);
  }
  if (punctuation(s) == '>') advance(s);
}

/* At the word. */
static void handle_template(scanner* s) {
  advance(s);
  s->template_parameter_count = 0;
  if (punctuation(s) == '<') {
    read_template_parameters(s);
  } else {
    s->template_state = INSTANTIATION;
  }
}

static void begin_declaration(scanner* s) {
  s->template_state = NO_TEMPLATE;
  s->template_parameter_count = 0;
  s->is_friend = false;
}

/* At extern, behind which `"C" {` opens a scope without a name. */
static void handle_extern(scanner* s) {
  advance(s);
  if (s->token.kind != ONS__TOKEN_LITERAL) return;
  advance(s);
  if (punctuation(s) == '{' && enter_scope(s, NULL, s->position)) advance(s);
}

static void handle_word(scanner* s, bool after_inline) {
  if (at_kernel(s)) {
    handle_kernel(s);
  } else if (at_word(s, "template")) {
    handle_template(s);
  } else if (at_word(s, "namespace")) {
    handle_namespace(s, after_inline);
  } else if (at_word(s, "extern")) {
    handle_extern(s);
  } else {
    s->is_friend = s->is_friend || at_word(s, "friend");
    advance(s);
  }
}

static void scan(scanner* s) {
  bool after_inline = false;
  advance(s);
  while (s->token.kind != ONS__TOKEN_END) {
    char c = punctuation(s);
    bool is_inline = at_word(s, "inline");
    if (s->token.kind == ONS__TOKEN_IDENTIFIER) {
      handle_word(s, after_inline);
    } else {
      if (c == '{') ++s->position.braces;
      if (c == '}') close_brace(s);
      if (c == '{' || c == '}' || c == ';') begin_declaration(s);
      advance(s);
    }
    after_inline = is_inline;
  }
}

/* ---- the result ------------------------------------------------------------------- */

static void free_kernel(const ons_allocator* allocator, ons__scanned_kernel* kernel) {
  ons__free(allocator, kernel->name);
  free_texts(allocator, kernel->parameter_names, kernel->parameter_count);
  ons__free(allocator, kernel->parameter_is_restrict);
  for (size_t i = 0; i < kernel->template_parameter_count; ++i) {
    ons__free(allocator, kernel->template_parameters[i].name);
  }
  ons__free(allocator, kernel->template_parameters);
  ons__free(allocator, kernel->deductions);
  *kernel = (ons__scanned_kernel){0};
}

static int by_name(const void* left, const void* right) {
  const found* a = left;
  const found* b = right;
  int names = strcmp(a->kernel.name, b->kernel.name);
  return names ? names : (a->order > b->order) - (a->order < b->order);
}

static int by_order(const void* left, const void* right) {
  const found* a = left;
  const found* b = right;
  return (a->order > b->order) - (a->order < b->order);
}

/* Leaves one of `count` declarations of one name: the first definition, if there is one.
 */
static void fold(const ons_allocator* allocator, found* same, size_t count) {
  size_t kept = 0;
  bool is_overloaded = false;
  while (kept < count && !same[kept].is_defined) ++kept;
  for (size_t i = 0; i < count; ++i) {
    is_overloaded = is_overloaded || same[i].types != same[0].types;
    if (i != kept) free_kernel(allocator, &same[i].kernel);
  }
  if (kept < count) same[kept].kernel.is_overloaded = is_overloaded;
}

static void fold_all(scanner* s) {
  if (s->found_count == 0) return;
  qsort(s->found, s->found_count, sizeof(*s->found), by_name);
  size_t begin = 0;
  while (begin < s->found_count) {
    size_t end = begin + 1;
    while (end < s->found_count &&
           strcmp(s->found[begin].kernel.name, s->found[end].kernel.name) == 0) {
      ++end;
    }
    fold(s->allocator, &s->found[begin], end - begin);
    begin = end;
  }
  qsort(s->found, s->found_count, sizeof(*s->found), by_order);
}

bool ons__source_scan_run(const ons_allocator* allocator, const char* source,
                          ons__source_scan* out_scan) {
  scanner s = {.allocator = allocator};
  *out_scan = (ons__source_scan){.allocator = allocator};
  ons__lexer_init(source, false, &s.lexer);
  scan(&s);
  if (!s.no_memory) fold_all(&s);
  if (!s.no_memory && s.found_count > 0) {
    out_scan->kernels =
        ons__alloc_array(allocator, s.found_count, sizeof(*out_scan->kernels));
    s.no_memory = !out_scan->kernels;
  }
  for (size_t i = 0; i < s.found_count; ++i) {
    if (s.no_memory) {
      free_kernel(allocator, &s.found[i].kernel);
    } else if (s.found[i].kernel.name) {
      out_scan->kernels[out_scan->kernel_count++] = s.found[i].kernel;
    }
  }
  ons__free(allocator, s.scopes);
  ons__free(allocator, s.conditions);
  ons__free(allocator, s.found);
  return !s.no_memory;
}

void ons__source_scan_clear(ons__source_scan* scan) {
  for (size_t i = 0; i < scan->kernel_count; ++i) {
    free_kernel(scan->allocator, &scan->kernels[i]);
  }
  ons__free(scan->allocator, scan->kernels);
  *scan = (ons__source_scan){0};
}

bool ons__source_has_identifier(const char* source, const char* identifier,
                                size_t length) {
  ons__lexer lexer;
  ons__lexer_init(source, true, &lexer);
  for (;;) {
    ons__token token = ons__lexer_next(&lexer);
    if (token.kind == ONS__TOKEN_END) return false;
    if (token.kind != ONS__TOKEN_IDENTIFIER) continue;
    if (ons__token_equals(&token, identifier, length)) return true;
  }
}
