#include "jit/nvrtc_log.h"

#include <stdio.h>
#include <string.h>

/* Diagnostics about name expressions have the file name `__nv_name_map`; the last one for
 * an expression quotes it, with blanks between its tokens:
 *   __nv_name_map(3): error: identifier "nope" is undefined
 *   __nv_name_map(3): error: Error in parsing name expression [...] expression was: "
 * nope" Newer versions put lines of source between them. */
static const char map_file[] = "__nv_name_map(";
static const char map_quote[] = "expression was: \"";

static const char* next_line(const char* line) {
  const char* end = strchr(line, '\n');
  return end ? end + 1 : line + strlen(line);
}

static bool starts_with(const char* text, const char* prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* `text` up to the end of its line, or NULL when `needle` is not in it. */
static const char* find_in_line(const char* line, const char* needle) {
  const char* found = strstr(line, needle);
  return found && found < next_line(line) ? found : NULL;
}

bool ons__nvrtc_log_has_blame(const char* log) {
  for (const char* line = log; *line; line = next_line(line)) {
    if (starts_with(line, map_file)) return true;
  }
  return false;
}

/* Takes `part` off the front of `text`, blanks aside; NULL when it is not there. */
static const char* skip(const char* text, const char* part) {
  for (; *part; ++part) {
    if (*part == ' ') continue;
    while (*text == ' ') ++text;
    if (*text++ != *part) return NULL;
  }
  while (*text == ' ') ++text;
  return text;
}

/* Is the quoted text one of the expressions for the kernel or the variable `name`? */
static bool is_expression_of(const char* quoted, const char* name) {
  static const struct {
    const char* front;
    const char* back;
  } expressions[] = {{"ons_sig<decltype(", ")>"},
                     {"ons_sig<void(decltype(", ")*)>"},
                     {"&", ""},
                     {"", ""}};
  for (size_t i = 0; i < sizeof(expressions) / sizeof(expressions[0]); ++i) {
    const char* rest = skip(quoted, expressions[i].front);
    if (rest) rest = skip(rest, name);
    if (rest) rest = skip(rest, expressions[i].back);
    if (rest && *rest == '"') return true;
  }
  return false;
}

/* The first line about the expression that `line` is about: they have the number in
 * common. */
static const char* first_of_expression(const char* log, const char* line) {
  size_t length = strcspn(line, ")") + 1;
  while (strncmp(log, line, length)) log = next_line(log);
  return log;
}

bool ons__nvrtc_log_blames(const char* log, const char* name, char* out_diagnostic,
                           size_t capacity_bytes) {
  for (const char* line = log; *line; line = next_line(line)) {
    const char* quote =
        starts_with(line, map_file) ? find_in_line(line, map_quote) : NULL;
    if (!quote || !is_expression_of(quote + sizeof(map_quote) - 1, name)) continue;
    const char* first = first_of_expression(log, line);
    const char* text = find_in_line(first, "error: ");
    text = text ? text + strlen("error: ") : first;
    snprintf(out_diagnostic, capacity_bytes, "%.*s", (int)strcspn(text, "\n"), text);
    return true;
  }
  return false;
}

typedef struct header_home {
  const char* prefix;
  const char* home;
} header_home;

/* Matched in order against the name of a header that was not found. */
static const header_home header_homes[] = {
    {"cuda/", "CCCL: pip package nvidia-cuda-cccl, or a CUDA toolkit"},
    {"cub/", "CCCL: pip package nvidia-cuda-cccl, or a CUDA toolkit"},
    {"thrust/", "CCCL: pip package nvidia-cuda-cccl, or a CUDA toolkit"},
    {"nv/", "CCCL: pip package nvidia-cuda-cccl, or a CUDA toolkit"},
    {"curand", "pip package nvidia-curand, or a CUDA toolkit"},
    {"cublasdx", "pip package nvidia-mathdx"},
    {"cufftdx", "pip package nvidia-mathdx"},
    {"cutlass/", "pip package nvidia-cutlass, or CUTLASS's include folder as -I option"},
    {"cute/", "pip package nvidia-cutlass, or CUTLASS's include folder as -I option"},
    {"crt/", "pip packages nvidia-cuda-runtime and nvidia-cuda-crt, or a CUDA toolkit"},
    {"cuda", "pip package nvidia-cuda-runtime, or a CUDA toolkit"},
    {"cooperative_groups", "pip package nvidia-cuda-runtime, or a CUDA toolkit"},
    {"vector_", "pip package nvidia-cuda-runtime, or a CUDA toolkit"},
    {"math_constants.h", "pip package nvidia-cuda-runtime, or a CUDA toolkit"},
    {"device_", "pip package nvidia-cuda-runtime, or a CUDA toolkit"},
    {"cuComplex.h", "pip package nvidia-cuda-runtime, or a CUDA toolkit"},
    {"mma.h", "pip package nvidia-cuda-runtime, or a CUDA toolkit"},
};

/* The standard library's headers have no dot in their name, C's are those below. */
static bool is_standard_header(const char* name, size_t length) {
  static const char* const c_headers[] = {"assert.h", "float.h",  "math.h",
                                          "stdio.h",  "stdlib.h", "string.h"};
  for (size_t i = 0; i < sizeof(c_headers) / sizeof(c_headers[0]); ++i) {
    if (strlen(c_headers[i]) == length && !memcmp(name, c_headers[i], length))
      return true;
  }
  return length > 0 && strcspn(name, "./") >= length;
}

static void append_header_home(const char* line, char* text, size_t capacity_bytes) {
  static const char phrase[] = "source file \"";
  const char* name = find_in_line(line, phrase);
  if (!name) return;
  name += sizeof(phrase) - 1;
  size_t length = strcspn(name, "\"");
  size_t used = strlen(text);
  for (size_t i = 0; i < sizeof(header_homes) / sizeof(header_homes[0]); ++i) {
    if (!starts_with(name, header_homes[i].prefix)) continue;
    snprintf(text + used, capacity_bytes - used,
             "; it comes with %s (or name its folder in ONSTREAM_CUDA_INCLUDE)",
             header_homes[i].home);
    return;
  }
  if (is_standard_header(name, length)) {
    snprintf(text + used, capacity_bytes - used,
             "; NVRTC has no standard library: math and printf need no include, the rest "
             "is in "
             "<cuda/std/...> (pip package nvidia-cuda-cccl, or a CUDA toolkit)");
  }
}

static bool is_error(const char* line) {
  static const char* const marks[] = {": error", ": catastrophic error", "ptxas error",
                                      "ptxas fatal"};
  if (starts_with(line, map_file)) return false;
  for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); ++i) {
    if (find_in_line(line, marks[i])) return true;
  }
  return false;
}

bool ons__nvrtc_log_first_error(const char* log, char* out_text, size_t capacity_bytes) {
  const char* line = log;
  while (*line && !is_error(line)) line = next_line(line);
  if (!*line) {
    snprintf(out_text, capacity_bytes, "%.*s", (int)strcspn(log, "\n"), log);
    return false;
  }
  /* "file(line): error: text", where the file may hold parentheses too. */
  const char* close = find_in_line(line, "): ");
  const char* open = close;
  while (open && open > line && *open != '(') --open;
  if (open && open > line) {
    const char* rest = close + 3;
    snprintf(out_text, capacity_bytes, "%.*s:%.*s: %.*s", (int)(open - line), line,
             (int)(close - open - 1), open + 1, (int)strcspn(rest, "\n"), rest);
  } else {
    snprintf(out_text, capacity_bytes, "%.*s", (int)strcspn(line, "\n"), line);
  }
  append_header_home(line, out_text, capacity_bytes);
  return true;
}
