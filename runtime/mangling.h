/* Reading C++ types from their mangled spelling (Itanium C++ ABI, chapter 5), as far as
 * kernel signatures need it. */
#ifndef ONS_RUNTIME_MANGLING_H_
#define ONS_RUNTIME_MANGLING_H_

#include <onstream/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/string.h"

typedef enum ons__type_kind {
  ONS__TYPE_BUILTIN = 1,      /* text */
  ONS__TYPE_NAME,             /* text, in the scope `first` (NULL: global) */
  ONS__TYPE_TEMPLATE,         /* the name `first` with the arguments `second` */
  ONS__TYPE_QUALIFIED,        /* `first` with `qualifiers` */
  ONS__TYPE_POINTER,          /* to `first` */
  ONS__TYPE_LVALUE_REFERENCE, /* to `first` */
  ONS__TYPE_RVALUE_REFERENCE, /* to `first` */
  ONS__TYPE_MEMBER_POINTER,   /* to `second` in the class `first` */
  ONS__TYPE_ARRAY,            /* of `first`; text: the bound */
  ONS__TYPE_FUNCTION,         /* returning `first`, with the parameters `second` */
  ONS__TYPE_LITERAL, /* a template argument of type `first`; text: its mangled value */
  ONS__TYPE_PACK,    /* the template arguments `second` */
  ONS__TYPE_LIST     /* the item `first` and the rest `second` */
} ons__type_kind;

enum {
  ONS__QUALIFIER_RESTRICT = 1u << 0,
  ONS__QUALIFIER_VOLATILE = 1u << 1,
  ONS__QUALIFIER_CONST = 1u << 2,
  ONS__QUALIFIER_NOEXCEPT = 1u << 3 /* of functions */
};

typedef struct ons__type {
  ons__type_kind kind;
  uint16_t height; /* of the tree below: bounds every walk */
  uint16_t qualifiers;
  const char* text; /* not NUL-terminated; in the mangled text or static */
  size_t length;
  const struct ons__type* first;
  const struct ons__type* second;
} ons__type;

/* The types of one mangled text, which must outlive it. Substitutions make it a graph: a
 * node may be reached in several ways. */
typedef struct ons__type_tree {
  const ons_allocator* allocator;
  ons__type* nodes;
  const ons__type* function; /* an ONS__TYPE_FUNCTION */
} ons__type_tree;

/* Reads a function type: a bare one ("FvPfE", as typeid spells it), or the first template
 * argument of a whole symbol ("_Z7ons_sigIFvPfEEvv"; what follows is ignored).
 * UNSUPPORTED with the position for anything else. Zero |out_tree| first; clear it on
 * success. */
ons_status ons__type_tree_parse(const ons_allocator* allocator, const char* mangled,
                                ons__type_tree* out_tree, ons_error* error);
void ons__type_tree_clear(ons__type_tree* tree);

/* The C++ spelling, "const float*", cut off with "..." past some kilobytes. NULL when out
 * of memory; the caller frees it. */
char* ons__type_spell(const ons_allocator* allocator, const ons__type* type);

/* Compares the node's own `text`, not its scope. */
bool ons__type_text_is(const ons__type* type, const char* text);

#endif /* ONS_RUNTIME_MANGLING_H_ */
