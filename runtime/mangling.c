#include "runtime/mangling.h"

#include <assert.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

/* Deeper types than this are refused; parsing and spelling recurse no further. */
#define MAX_HEIGHT 200

/* A type whose spelling is longer is cut: shared nodes could make it exponentially long.
 */
#define MAX_SPELLING_BYTES 4096

typedef struct parser {
  const char* at;
  ons__type* nodes;
  size_t node_count;
  const ons__type** substitutions;
  size_t substitution_count;
  size_t capacity; /* of both arrays: every entry consumes a character of the text */
  int depth;
  const char* problem; /* the first one found, or NULL */
} parser;

static const ons__type* parse_type(parser* p);
static const ons__type* parse_template_arguments(parser* p);

/* ---- builtin types and the names of namespace std --------------------------------- */

#define NAMED(kind, text, scope) \
  { kind, 1, 0, text, sizeof(text) - 1, scope, NULL }
#define BUILTIN(text) NAMED(ONS__TYPE_BUILTIN, text, NULL)

static const ons__type kLetters['z' - 'a' + 1] = {
    ['a' - 'a'] = BUILTIN("signed char"), ['b' - 'a'] = BUILTIN("bool"),
    ['c' - 'a'] = BUILTIN("char"),        ['d' - 'a'] = BUILTIN("double"),
    ['e' - 'a'] = BUILTIN("long double"), ['f' - 'a'] = BUILTIN("float"),
    ['g' - 'a'] = BUILTIN("__float128"),  ['h' - 'a'] = BUILTIN("unsigned char"),
    ['i' - 'a'] = BUILTIN("int"),         ['j' - 'a'] = BUILTIN("unsigned int"),
    ['l' - 'a'] = BUILTIN("long"),        ['m' - 'a'] = BUILTIN("unsigned long"),
    ['n' - 'a'] = BUILTIN("__int128"),    ['o' - 'a'] = BUILTIN("unsigned __int128"),
    ['s' - 'a'] = BUILTIN("short"),       ['t' - 'a'] = BUILTIN("unsigned short"),
    ['v' - 'a'] = BUILTIN("void"),        ['w' - 'a'] = BUILTIN("wchar_t"),
    ['x' - 'a'] = BUILTIN("long long"),   ['y' - 'a'] = BUILTIN("unsigned long long"),
};

typedef struct coded_type {
  const char* code;
  ons__type type;
} coded_type;

static const coded_type kDTypes[] = {
    {"DF16_", BUILTIN("_Float16")},   {"DF16b", BUILTIN("__bf16")},
    {"DF32_", BUILTIN("_Float32")},   {"DF64_", BUILTIN("_Float64")},
    {"DF128_", BUILTIN("_Float128")}, {"Dh", BUILTIN("__fp16")},
    {"Di", BUILTIN("char32_t")},      {"Ds", BUILTIN("char16_t")},
    {"Du", BUILTIN("char8_t")},       {"Dn", BUILTIN("decltype(nullptr)")},
};

static const ons__type kStd = NAMED(ONS__TYPE_NAME, "std", NULL);

static const coded_type kStdNames[] = {
    {"Sa", NAMED(ONS__TYPE_NAME, "allocator", &kStd)},
    {"Sb", NAMED(ONS__TYPE_NAME, "basic_string", &kStd)},
    {"Sd", NAMED(ONS__TYPE_NAME, "iostream", &kStd)},
    {"Si", NAMED(ONS__TYPE_NAME, "istream", &kStd)},
    {"So", NAMED(ONS__TYPE_NAME, "ostream", &kStd)},
    {"Ss", NAMED(ONS__TYPE_NAME, "string", &kStd)},
};

/* ---- the parser's tools ----------------------------------------------------------- */

/* Every parse function returns NULL after this. */
static void* fail(parser* p, const char* problem) {
  if (!p->problem) p->problem = problem;
  return NULL;
}

static bool take(parser* p, char c) {
  if (*p->at != c) return false;
  ++p->at;
  return true;
}

static bool take_text(parser* p, const char* text) {
  size_t length = strlen(text);
  if (strncmp(p->at, text, length) != 0) return false;
  p->at += length;
  return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static const ons__type* take_coded(parser* p, const coded_type* types, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (take_text(p, types[i].code)) return &types[i].type;
  }
  return NULL;
}

static ons__type* new_node(parser* p, ons__type_kind kind, const ons__type* first,
                           const ons__type* second) {
  if (p->node_count == p->capacity) return fail(p, "too many types");
  unsigned height = first ? first->height : 0u;
  if (second && second->height > height) height = second->height;
  /* A list is walked, not recursed into. */
  if (kind != ONS__TYPE_LIST) ++height;
  if (height > MAX_HEIGHT) return fail(p, "types nested too deeply");
  ons__type* node = &p->nodes[p->node_count++];
  *node = (ons__type){
      .kind = kind, .height = (uint16_t)height, .first = first, .second = second};
  return node;
}

/* Makes the type available to later S_, S0_, S1_... Accepts NULL and returns its
 * argument. */
static const ons__type* add_substitution(parser* p, const ons__type* type) {
  if (!type) return NULL;
  if (p->substitution_count == p->capacity) return fail(p, "too many types");
  p->substitutions[p->substitution_count++] = type;
  return type;
}

/* A list under construction. Heights only grow towards the head, so they are kept apart.
 */
typedef struct list {
  ons__type* head;
  ons__type* tail;
} list;

static bool append(parser* p, list* items, const ons__type* item) {
  if (!item) return false;
  ons__type* cell = new_node(p, ONS__TYPE_LIST, item, NULL);
  if (!cell) return false;
  if (items->tail) {
    items->tail->second = cell;
    if (cell->height > items->head->height) items->head->height = cell->height;
  } else {
    items->head = cell;
  }
  items->tail = cell;
  return true;
}

/* ---- names ------------------------------------------------------------------------ */

static bool is_identifier_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' ||
         c == '$' || c == '.' || (unsigned char)c >= 0x80;
}

static bool parse_number(parser* p, size_t* out_number) {
  size_t number = 0;
  const char* start = p->at;
  while (is_digit(*p->at) && number <= p->capacity) {
    number = number * 10 + (size_t)(*p->at++ - '0');
  }
  if (p->at == start) fail(p, "a number is missing");
  *out_number = number;
  return !p->problem;
}

/* A length and as many bytes; |out_text| points into the mangled text. */
static bool parse_identifier(parser* p, const char** out_text, size_t* out_length) {
  size_t length = 0;
  if (!parse_number(p, &length)) return false;
  if (length == 0) fail(p, "an empty name");
  const char* start = p->at;
  for (size_t i = 0; i < length && !p->problem; ++i) {
    if (is_identifier_byte(*p->at)) {
      ++p->at;
    } else {
      fail(p, "a name is cut off");
    }
  }
  *out_text = start;
  *out_length = length;
  return !p->problem;
}

static ons__type* parse_source_name(parser* p, const ons__type* scope) {
  static const char kAnonymousPrefix[] = "_GLOBAL__N";
  static const char kAnonymous[] = "(anonymous namespace)";
  const char* text = NULL;
  size_t length = 0;
  (void)take(p, 'L'); /* internal linkage */
  if (*p->at == 'U') return fail(p, "an unnamed type (a lambda, say)");
  if (!parse_identifier(p, &text, &length)) return NULL;
  if (length >= sizeof(kAnonymousPrefix) - 1 &&
      memcmp(text, kAnonymousPrefix, sizeof(kAnonymousPrefix) - 1) == 0) {
    text = kAnonymous;
    length = sizeof(kAnonymous) - 1;
  }
  const char* tag = NULL;
  size_t tag_length = 0;
  while (take(p, 'B')) { /* ABI tags say nothing that a reader wants to know */
    if (!parse_identifier(p, &tag, &tag_length)) return NULL;
  }
  ons__type* name = new_node(p, ONS__TYPE_NAME, scope, NULL);
  if (!name) return NULL;
  name->text = text;
  name->length = length;
  return name;
}

/* S_, S0_ ... SZ_, S10_: after the S. */
static const ons__type* parse_back_reference(parser* p) {
  size_t index = 0;
  if (!take(p, '_')) {
    for (; *p->at != '_'; ++p->at) {
      bool is_upper = *p->at >= 'A' && *p->at <= 'Z';
      if (!is_upper && !is_digit(*p->at)) return fail(p, "an unknown substitution");
      index = index * 36 + (size_t)(is_upper ? *p->at - 'A' + 10 : *p->at - '0');
      if (index > p->capacity) break;
    }
    ++p->at;
    ++index;
  }
  if (index >= p->substitution_count) return fail(p, "a substitution of nothing");
  return p->substitutions[index];
}

/* What an S can stand for at the start of a name. */
static const ons__type* parse_substitution(parser* p) {
  const ons__type* known =
      take_coded(p, kStdNames, sizeof(kStdNames) / sizeof(kStdNames[0]));
  if (known) return known;
  if (take_text(p, "St")) return &kStd;
  ++p->at;
  return parse_back_reference(p);
}

static const ons__type* parse_instance(parser* p, const ons__type* name) {
  if (!name) return NULL;
  if (name->kind != ONS__TYPE_NAME)
    return fail(p, "template arguments of something unnamed");
  const ons__type* arguments = parse_template_arguments(p);
  if (p->problem) return NULL;
  return add_substitution(p, new_node(p, ONS__TYPE_TEMPLATE, name, arguments));
}

/* N (component)+ E; every component extends the one before and can be referred back to.
 */
static const ons__type* parse_nested_name(parser* p) {
  ++p->at;
  const ons__type* type = NULL;
  if (*p->at == 'S') type = parse_substitution(p);
  while (!p->problem && !take(p, 'E')) {
    if (*p->at == 'I') {
      if (!type) return fail(p, "template arguments without a name");
      type = parse_instance(p, type);
    } else {
      if (type && type->kind != ONS__TYPE_NAME && type->kind != ONS__TYPE_TEMPLATE) {
        return fail(p, "a member of something unnamed");
      }
      type = add_substitution(p, parse_source_name(p, type));
    }
  }
  if (!type || type == &kStd) return fail(p, "an empty name");
  return p->problem ? NULL : type;
}

/* A name that is not nested: x, std::x, a substitution, each perhaps with template
 * arguments. */
static const ons__type* parse_plain_name(parser* p) {
  const ons__type* type = NULL;
  if (*p->at == 'S') {
    type = parse_substitution(p);
    if (type == &kStd) type = add_substitution(p, parse_source_name(p, &kStd));
  } else {
    type = add_substitution(p, parse_source_name(p, NULL));
  }
  return type && *p->at == 'I' ? parse_instance(p, type) : type;
}

/* ---- template arguments ----------------------------------------------------------- */

/* L <type> <value> E. The value stays as it is mangled: 'n' is a minus, floats are
 * hexadecimal. */
static const ons__type* parse_literal(parser* p) {
  ++p->at;
  if (*p->at == '_')
    return fail(p, "a template argument that is the address of an object");
  const ons__type* type = parse_type(p);
  ons__type* literal = type ? new_node(p, ONS__TYPE_LITERAL, type, NULL) : NULL;
  if (!literal) return NULL;
  literal->text = p->at;
  (void)take(p, 'n');
  while (is_digit(*p->at) || (*p->at >= 'a' && *p->at <= 'f')) ++p->at;
  literal->length = (size_t)(p->at - literal->text);
  return take(p, 'E') ? literal : fail(p, "an unknown template argument");
}

static const ons__type* parse_template_argument(parser* p) {
  if (*p->at == 'L') return parse_literal(p);
  if (*p->at == 'X') return fail(p, "a template argument that is an expression");
  if (*p->at != 'J') return parse_type(p);
  const ons__type* arguments = parse_template_arguments(p);
  return p->problem ? NULL : new_node(p, ONS__TYPE_PACK, NULL, arguments);
}

/* I ... E, or J ... E for a pack. NULL for none: look at `problem`. */
static const ons__type* parse_template_arguments(parser* p) {
  if (++p->depth > MAX_HEIGHT) return fail(p, "types nested too deeply");
  ++p->at;
  list arguments = {0};
  while (!take(p, 'E')) {
    if (!append(p, &arguments, parse_template_argument(p))) return NULL;
  }
  --p->depth;
  return arguments.head;
}

/* ---- types ------------------------------------------------------------------------ */

/* [Do] F [Y] <return type> <parameter types> E */
static ons__type* parse_function(parser* p) {
  uint16_t qualifiers = take_text(p, "Do") ? ONS__QUALIFIER_NOEXCEPT : 0;
  if (!take(p, 'F')) return fail(p, "an exception specification");
  (void)take(p, 'Y'); /* extern "C" */
  const ons__type* result = parse_type(p);
  if (!result) return NULL;
  list parameters = {0};
  if (*p->at == 'v' && p->at[1] == 'E') ++p->at;
  while (!take(p, 'E')) {
    if (*p->at == 'z')
      return fail(p, "a variable number of parameters; declare each of them");
    if (!append(p, &parameters, parse_type(p))) return NULL;
  }
  ons__type* function = new_node(p, ONS__TYPE_FUNCTION, result, parameters.head);
  if (function) function->qualifiers = qualifiers;
  return function;
}

/* Qualifiers, the vendor's too, make one type together; those of a function belong to it.
 */
static const ons__type* parse_qualified(parser* p) {
  const char* ignored = NULL;
  size_t ignored_length = 0;
  unsigned qualifiers = 0;
  for (;;) {
    if (take(p, 'U')) {
      if (!parse_identifier(p, &ignored, &ignored_length)) return NULL;
      if (*p->at == 'I') (void)parse_template_arguments(p);
      if (p->problem) return NULL;
    } else if (take(p, 'r')) {
      qualifiers |= ONS__QUALIFIER_RESTRICT;
    } else if (take(p, 'V')) {
      qualifiers |= ONS__QUALIFIER_VOLATILE;
    } else if (take(p, 'K')) {
      qualifiers |= ONS__QUALIFIER_CONST;
    } else {
      break;
    }
  }
  ons__type* type = NULL;
  if (*p->at == 'F' || strncmp(p->at, "Do", 2) == 0) {
    type = parse_function(p);
  } else {
    const ons__type* target = parse_type(p);
    type = target ? new_node(p, ONS__TYPE_QUALIFIED, target, NULL) : NULL;
  }
  if (type) type->qualifiers |= (uint16_t)qualifiers;
  return type;
}

static const ons__type* parse_reference(parser* p, ons__type_kind kind) {
  ++p->at;
  const ons__type* target = parse_type(p);
  return target ? new_node(p, kind, target, NULL) : NULL;
}

/* M <class> <member type> */
static const ons__type* parse_member_pointer(parser* p) {
  ++p->at;
  const ons__type* owner = parse_type(p);
  const ons__type* member = owner ? parse_type(p) : NULL;
  return member ? new_node(p, ONS__TYPE_MEMBER_POINTER, owner, member) : NULL;
}

/* A [<bound>] _ <element type> */
static const ons__type* parse_array(parser* p) {
  const char* bound = ++p->at;
  while (is_digit(*p->at)) ++p->at;
  size_t length = (size_t)(p->at - bound);
  if (!take(p, '_')) return fail(p, "an array bound that is not a number");
  const ons__type* element = parse_type(p);
  ons__type* array = element ? new_node(p, ONS__TYPE_ARRAY, element, NULL) : NULL;
  if (array) {
    array->text = bound;
    array->length = length;
  }
  return array;
}

/* Types that no later substitution refers to (or that have taken care of it themselves).
 */
static const ons__type* parse_builtin_or_name(parser* p) {
  char c = *p->at;
  if (c == 'N') return parse_nested_name(p);
  if (c == 'S' || is_digit(c)) return parse_plain_name(p);
  if (c == 'D') {
    const ons__type* type = take_coded(p, kDTypes, sizeof(kDTypes) / sizeof(kDTypes[0]));
    return type ? type : fail(p, "an unknown type");
  }
  if (c < 'a' || c > 'z' || !kLetters[c - 'a'].text) {
    return fail(p, c ? "an unknown type" : "the text ends early");
  }
  ++p->at;
  return &kLetters[c - 'a'];
}

static const ons__type* parse_compound(parser* p) {
  switch (*p->at) {
    case 'U':
    case 'r':
    case 'V':
    case 'K':
      return parse_qualified(p);
    case 'P':
      return parse_reference(p, ONS__TYPE_POINTER);
    case 'R':
      return parse_reference(p, ONS__TYPE_LVALUE_REFERENCE);
    case 'O':
      return parse_reference(p, ONS__TYPE_RVALUE_REFERENCE);
    case 'F':
      return parse_function(p);
    case 'M':
      return parse_member_pointer(p);
    case 'A':
      return parse_array(p);
    case 'u': /* a vendor's builtin type */
      ++p->at;
      return parse_source_name(p, NULL);
    default:
      assert(strncmp(p->at, "Do", 2) == 0);
      return parse_function(p);
  }
}

static const ons__type* parse_type(parser* p) {
  if (++p->depth > MAX_HEIGHT) return fail(p, "types nested too deeply");
  bool is_compound =
      *p->at && (strchr("UrVKPROFMAu", *p->at) || strncmp(p->at, "Do", 2) == 0);
  const ons__type* type =
      is_compound ? add_substitution(p, parse_compound(p)) : parse_builtin_or_name(p);
  --p->depth;
  return p->problem ? NULL : type;
}

/* ---- the whole -------------------------------------------------------------------- */

static const ons__type* parse_signature(parser* p) {
  bool is_symbol = take_text(p, "_Z");
  if (is_symbol) (void)take(p, 'L'); /* internal linkage */
  const ons__type* type = parse_type(p);
  if (!type) return NULL;
  if (is_symbol) {
    bool is_instance = type->kind == ONS__TYPE_TEMPLATE && type->second;
    if (!is_instance) return fail(p, "not an instance of a template");
    type = type->second->first;
  } else if (*p->at) {
    return fail(p, "more text than a type");
  }
  return type->kind == ONS__TYPE_FUNCTION ? type : fail(p, "not a function type");
}

ons_status ons__type_tree_parse(const ons_allocator* allocator, const char* mangled,
                                ons__type_tree* out_tree, ons_error* error) {
  assert(mangled && out_tree);
  size_t capacity = strlen(mangled) + 1;
  parser p = {.at = mangled, .capacity = capacity};
  p.nodes = ons__alloc_array(allocator, capacity, sizeof(*p.nodes));
  p.substitutions = ons__alloc_array(allocator, capacity, sizeof(*p.substitutions));
  ons_status status = ONS_STATUS_OK;
  if (!p.nodes || !p.substitutions) {
    status = ons__error_no_memory(error);
    goto fail;
  }
  const ons__type* function = parse_signature(&p);
  if (!function) {
    assert(p.problem);
    status =
        ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                       "cannot read the kernel's signature at character %zu: %s, in '%s'",
                       (size_t)(p.at - mangled), p.problem, mangled);
    goto fail;
  }
  ons__free(allocator, (void*)p.substitutions);
  *out_tree = (ons__type_tree){allocator, p.nodes, function};
  return ONS_STATUS_OK;
fail:
  ons__free(allocator, (void*)p.substitutions);
  ons__free(allocator, p.nodes);
  return status;
}

void ons__type_tree_clear(ons__type_tree* tree) {
  ons__free(tree->allocator, tree->nodes);
  *tree = (ons__type_tree){0};
}

bool ons__type_text_is(const ons__type* type, const char* text) {
  return strlen(text) == type->length && memcmp(type->text, text, type->length) == 0;
}

/* ---- spelling --------------------------------------------------------------------- */

/* A declarator stands around its name: what comes before it is spelt by spell_before, the
 * rest by spell_after ("void (*" and ")(int)"). */
static void spell_before(const ons__type* type, ons__string* text);
static void spell_after(const ons__type* type, ons__string* text);

/* The versions of standard libraries (std::__1, cuda::std::__4) are not what people
 * write. */
static const ons__type* visible_scope(const ons__type* scope) {
  bool is_version = scope && scope->kind == ONS__TYPE_NAME && scope->length > 2 &&
                    memcmp(scope->text, "__", 2) == 0 && scope->first &&
                    scope->first->kind == ONS__TYPE_NAME &&
                    ons__type_text_is(scope->first, "std");
  return is_version ? scope->first : scope;
}

static void spell(const ons__type* type, ons__string* text) {
  spell_before(type, text);
  spell_after(type, text);
}

static void spell_list(const ons__type* items, ons__string* text) {
  const char* separator = "";
  for (; items && text->length <= MAX_SPELLING_BYTES; items = items->second) {
    const ons__type* item = items->first;
    if (item->kind == ONS__TYPE_PACK && !item->second) continue;
    ons__string_append(text, separator);
    separator = ", ";
    spell(item, text);
  }
}

static void spell_literal(const ons__type* literal, ons__string* text) {
  const ons__type* type = literal->first;
  bool is_builtin = type->kind == ONS__TYPE_BUILTIN;
  if (is_builtin && ons__type_text_is(type, "bool")) {
    ons__string_append(text, ons__type_text_is(literal, "0") ? "false" : "true");
    return;
  }
  if (is_builtin && ons__type_text_is(type, "decltype(nullptr)")) {
    ons__string_append(text, "nullptr");
    return;
  }
  static const char* const kIntegers[] = {
      "int",       "unsigned int",       "long",  "unsigned long",
      "long long", "unsigned long long", "short", "unsigned short"};
  bool is_plain = false;
  for (size_t i = 0; is_builtin && i < sizeof(kIntegers) / sizeof(kIntegers[0]); ++i) {
    is_plain = is_plain || ons__type_text_is(type, kIntegers[i]);
  }
  if (!is_plain) {
    ons__string_append(text, "(");
    spell(type, text);
    ons__string_append(text, ")");
  }
  bool is_negative = literal->length && literal->text[0] == 'n';
  if (is_negative) ons__string_append(text, "-");
  ons__string_append_bytes(text, literal->text + is_negative,
                           literal->length - is_negative);
}

static void spell_qualifiers(unsigned qualifiers, const char* before, const char* after,
                             ons__string* text) {
  static const struct {
    unsigned bit;
    const char* word;
  } kWords[] = {{ONS__QUALIFIER_CONST, "const"},
                {ONS__QUALIFIER_VOLATILE, "volatile"},
                {ONS__QUALIFIER_RESTRICT, "__restrict__"},
                {ONS__QUALIFIER_NOEXCEPT, "noexcept"}};
  for (size_t i = 0; i < sizeof(kWords) / sizeof(kWords[0]); ++i) {
    if (!(qualifiers & kWords[i].bit)) continue;
    ons__string_append(text, before);
    ons__string_append(text, kWords[i].word);
    ons__string_append(text, after);
  }
}

/* Would "*" after it bind to the wrong thing? */
static bool needs_parentheses(const ons__type* target) {
  while (target->kind == ONS__TYPE_QUALIFIED) target = target->first;
  return target->kind == ONS__TYPE_ARRAY || target->kind == ONS__TYPE_FUNCTION;
}

static bool is_pointer_like(const ons__type* type) {
  return type->kind == ONS__TYPE_POINTER || type->kind == ONS__TYPE_MEMBER_POINTER;
}

static void spell_pointer_before(const ons__type* target, const ons__type* owner,
                                 const char* sign, ons__string* text) {
  spell_before(target, text);
  if (needs_parentheses(target)) ons__string_append(text, " (");
  if (owner) {
    if (!needs_parentheses(target)) ons__string_append(text, " ");
    spell(owner, text);
    ons__string_append(text, "::");
  }
  ons__string_append(text, sign);
}

static void spell_name(const ons__type* name, ons__string* text) {
  const ons__type* scope = visible_scope(name->first);
  if (scope) {
    spell(scope, text);
    ons__string_append(text, "::");
  }
  ons__string_append_bytes(text, name->text, name->length);
}

static void spell_before(const ons__type* type, ons__string* text) {
  if (text->length > MAX_SPELLING_BYTES) return;
  switch (type->kind) {
    case ONS__TYPE_BUILTIN:
    case ONS__TYPE_NAME:
      spell_name(type, text);
      break;
    case ONS__TYPE_TEMPLATE:
      spell_name(type->first, text);
      ons__string_append(text, "<");
      spell_list(type->second, text);
      ons__string_append(text, ">");
      break;
    case ONS__TYPE_QUALIFIED:
      if (!is_pointer_like(type->first))
        spell_qualifiers(type->qualifiers, "", " ", text);
      spell_before(type->first, text);
      if (is_pointer_like(type->first)) spell_qualifiers(type->qualifiers, " ", "", text);
      break;
    case ONS__TYPE_POINTER:
      spell_pointer_before(type->first, NULL, "*", text);
      break;
    case ONS__TYPE_LVALUE_REFERENCE:
      spell_pointer_before(type->first, NULL, "&", text);
      break;
    case ONS__TYPE_RVALUE_REFERENCE:
      spell_pointer_before(type->first, NULL, "&&", text);
      break;
    case ONS__TYPE_MEMBER_POINTER:
      spell_pointer_before(type->second, type->first, "*", text);
      break;
    case ONS__TYPE_ARRAY:
    case ONS__TYPE_FUNCTION:
      spell_before(type->first, text);
      break;
    case ONS__TYPE_LITERAL:
      spell_literal(type, text);
      break;
    case ONS__TYPE_PACK:
      spell_list(type->second, text);
      break;
    case ONS__TYPE_LIST: /* walked by spell_list */
      break;
  }
}

static void spell_after(const ons__type* type, ons__string* text) {
  if (text->length > MAX_SPELLING_BYTES) return;
  switch (type->kind) {
    case ONS__TYPE_QUALIFIED:
      spell_after(type->first, text);
      break;
    case ONS__TYPE_POINTER:
    case ONS__TYPE_LVALUE_REFERENCE:
    case ONS__TYPE_RVALUE_REFERENCE:
    case ONS__TYPE_MEMBER_POINTER: {
      const ons__type* target =
          type->kind == ONS__TYPE_MEMBER_POINTER ? type->second : type->first;
      if (needs_parentheses(target)) ons__string_append(text, ")");
      spell_after(target, text);
      break;
    }
    case ONS__TYPE_ARRAY:
      ons__string_append(text, "[");
      ons__string_append_bytes(text, type->text, type->length);
      ons__string_append(text, "]");
      spell_after(type->first, text);
      break;
    case ONS__TYPE_FUNCTION:
      ons__string_append(text, "(");
      spell_list(type->second, text);
      ons__string_append(text, ")");
      spell_qualifiers(type->qualifiers, " ", "", text);
      spell_after(type->first, text);
      break;
    default:
      break;
  }
}

char* ons__type_spell(const ons_allocator* allocator, const ons__type* type) {
  ons__string text;
  ons__string_init(&text, allocator);
  spell(type, &text);
  if (text.length > MAX_SPELLING_BYTES) {
    memcpy(text.data + MAX_SPELLING_BYTES - 3, "...", 4);
  }
  return ons__string_take(&text);
}
