#include "jit/source_options.h"

#include <string.h>

typedef enum kind { NONE, DEFINE, UNDEFINE, INCLUDE } kind;

typedef struct spelling {
  const char* name; /* without its dashes; one or two match */
  kind kind;
  bool is_joined; /* may the value follow at once? */
} spelling;

static const spelling spellings[] = {
    {"define-macro", DEFINE, false},
    {"undefine-macro", UNDEFINE, false},
    {"pre-include", INCLUDE, false},
    {"include", INCLUDE, false},
    {"D", DEFINE, true},
    {"U", UNDEFINE, true},
};

/* Reads the option at *index; its value is in it or the next word. */
static kind read_option(const char* const* options, size_t option_count, size_t* index,
                        const char** out_value) {
  const char* option = options[*index];
  if (*option != '-') return NONE;
  option += 1 + (option[1] == '-');
  for (size_t i = 0; i < sizeof(spellings) / sizeof(*spellings); ++i) {
    size_t length = strlen(spellings[i].name);
    if (strncmp(option, spellings[i].name, length) != 0) continue;
    const char* rest = option + length;
    if (*rest && *rest != '=' && !spellings[i].is_joined) continue;
    *out_value = rest + (*rest == '=');
    if (!*rest) *out_value = *index + 1 < option_count ? options[++*index] : "";
    return spellings[i].kind;
  }
  return NONE;
}

static bool is_reserved(const char* name) {
  if (name[0] == '_' && (name[1] == '_' || (name[1] >= 'A' && name[1] <= 'Z'))) {
    return true;
  }
  static const char* const ours[] = {"NDEBUG", "ONS_WARP_SIZE"};
  for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); ++i) {
    const size_t length = strlen(ours[i]);
    if (strncmp(name, ours[i], length) == 0 && (!name[length] || name[length] == '=')) {
      return true;
    }
  }
  return false;
}

bool ons__source_options_skip(const char* const* options, size_t option_count,
                              size_t* index) {
  size_t last = *index;
  const char* value = NULL;
  kind found = read_option(options, option_count, &last, &value);
  /* Without a value it is the compiler's to refuse. */
  if (found == NONE || !*value) return false;
  if (found != INCLUDE && is_reserved(value)) return false;
  *index = last;
  return true;
}

/* As on a command line: the first '=' ends the name, without one the macro is 1, and a
 * newline ends the value. */
static void append_define(const char* value, ons__string* text) {
  size_t length = strcspn(value, "\r\n");
  size_t name_length = strcspn(value, "=\r\n");
  ons__string_append(text, "#define ");
  ons__string_append_bytes(text, value, name_length);
  ons__string_append(text, " ");
  if (name_length == length) {
    ons__string_append(text, "1");
  } else {
    ons__string_append_bytes(text, value + name_length + 1, length - name_length - 1);
  }
}

static void append_line(kind found, const char* value, ons__string* text) {
  if (found == DEFINE) {
    append_define(value, text);
  } else if (found == UNDEFINE) {
    ons__string_append(text, "#undef ");
    ons__string_append_bytes(text, value, strcspn(value, "\r\n"));
  } else {
    ons__string_append(text, "#include \"");
    ons__string_append_bytes(text, value, strcspn(value, "\r\n"));
    ons__string_append(text, "\"");
  }
  /* Keeps a backslash or an open comment at the end of a value on its line. */
  ons__string_append(text, " /**/\n");
}

/* The macros come first, as on a command line: what is included sees all of them. */
void ons__source_options_append(const char* const* options, size_t option_count,
                                ons__string* text) {
  bool has_line = false;
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 0; i < option_count; ++i) {
      size_t last = i;
      if (!ons__source_options_skip(options, option_count, &last)) continue;
      const char* value = NULL;
      kind found = read_option(options, option_count, &i, &value);
      if ((found == INCLUDE) != (pass == 1)) continue;
      if (!has_line) ons__string_append(text, "#line 1 \"" ONS__OPTIONS_FILE "\"\n");
      has_line = true;
      append_line(found, value, text);
    }
  }
}
