#include "jit/host_log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/string.h"

typedef enum kind { OTHER, ERROR, WARNING, NOTE } kind;

typedef struct log_line {
  const char* start;
  size_t length; /* without the newline */
  ons__host_diagnostic where;
  kind kind;
} log_line;

static bool starts_with(const char* text, size_t length, const char* prefix) {
  size_t prefix_length = strlen(prefix);
  return length >= prefix_length && memcmp(text, prefix, prefix_length) == 0;
}

/* Skips "FILE:LINE:" or "FILE:LINE:COLUMN:"; returns what follows, or the start. */
static const char* read_location(const char* start, const char* end,
                                 ons__host_diagnostic* where) {
  for (const char* at = start; at < end; ++at) {
    if (*at != ':' || at + 1 >= end || !isdigit((unsigned char)at[1])) continue;
    const char* digits = at + 1;
    const char* after = digits;
    while (after < end && isdigit((unsigned char)*after)) ++after;
    if (after >= end || *after != ':') continue;
    where->file = start;
    where->file_length = (size_t)(at - start);
    where->line = strtol(digits, NULL, 10);
    const char* column = after + 1;
    while (column < end && isdigit((unsigned char)*column)) ++column;
    if (column > after + 1 && column < end && *column == ':') after = column;
    return after + 1;
  }
  return start;
}

static void read_kind(log_line* line, const char* rest) {
  static const struct {
    const char* word;
    kind kind;
  } words[] = {{"error: ", ERROR},
               {"fatal error: ", ERROR},
               {"sorry, unimplemented: ", ERROR},
               {"warning: ", WARNING},
               {"note: ", NOTE}};
  const char* end = line->start + line->length;
  while (rest < end && *rest == ' ') ++rest;
  for (size_t i = 0; i < sizeof(words) / sizeof(*words); ++i) {
    if (!starts_with(rest, (size_t)(end - rest), words[i].word)) continue;
    line->kind = words[i].kind;
    line->where.text = rest + strlen(words[i].word);
    line->where.text_length = (size_t)(end - line->where.text);
  }
}

/* Reads the line at `*cursor` and moves on; false at the end of the log. */
static bool next_line(const char** cursor, log_line* line) {
  if (!**cursor) return false;
  *line = (log_line){.start = *cursor, .length = strcspn(*cursor, "\n")};
  const char* end = line->start + line->length;
  *cursor = *end ? end + 1 : end;
  if (line->start[0] != ' ')
    read_kind(line, read_location(line->start, end, &line->where));
  return true;
}

static bool is_kernel_file(const log_line* line) {
  return starts_with(line->start, line->length, ONS__HOST_KERNEL_FILE);
}

/* Finds `needle` within text that is not terminated. */
static const char* find(const char* text, size_t length, const char* needle) {
  return memmem(text, length, needle, strlen(needle));
}

/* Linkers and drivers name no source: "ld: ... undefined reference to `f()'", "clang:
 * error: ". */
static bool is_tool_error(const log_line* line) {
  return line->start[0] != ' ' &&
         (find(line->start, line->length, "error: ") != NULL ||
          find(line->start, line->length, "undefined reference"));
}

bool ons__host_log_first_error(const char* log, ons__host_diagnostic* out_diagnostic) {
  log_line line, tool = {0};
  for (const char* cursor = log; next_line(&cursor, &line);) {
    if (is_kernel_file(&line)) continue;
    if (line.kind == ERROR && line.where.file) {
      *out_diagnostic = line.where;
      return true;
    }
    if (!tool.start && is_tool_error(&line)) tool = line;
  }
  *out_diagnostic =
      (ons__host_diagnostic){.text = tool.start, .text_length = tool.length};
  return tool.start != NULL;
}

bool ons__host_log_assembler_error(const char* log,
                                   ons__host_diagnostic* out_diagnostic) {
  static const char mark[] = ": Error: ";
  log_line line;
  for (const char* cursor = log; next_line(&cursor, &line);) {
    const char* at = find(line.start, line.length, mark);
    if (line.kind == ERROR) return false;
    if (!at) continue;
    const char* text = at + strlen(mark);
    *out_diagnostic = (ons__host_diagnostic){
        .text = text, .text_length = line.length - (size_t)(text - line.start)};
    return true;
  }
  return false;
}

const char* ons__host_log_header_advice(const ons__host_diagnostic* diagnostic) {
  static const char cccl[] =
      "; it comes with CCCL (pip package nvidia-cuda-cccl, or a CUDA toolkit): name its "
      "own include folder, the one with cuda/std in it, in an option -IFOLDER";
  static const char gpu_only[] =
      "; of CUDA's own headers the CPU backend has cuda_fp16.h, cuda_bf16.h, cuda_fp8.h, "
      "cuComplex.h, math_constants.h, cuda_pipeline.h, cooperative_groups.h and what is "
      "beside it, and vector types, math and atomics without any: leave the include out, "
      "or launch on a GPU";
  static const char tensor_cores[] =
      "; the CPU backend has no tensor cores: launch on a GPU";
  static const struct {
    const char* prefix;
    const char* advice;
  } headers[] = {
      {"cuda/", cccl},       {"nv/", cccl},           {"cub/", gpu_only},
      {"thrust/", gpu_only}, {"mma.h", tensor_cores}, {"cooperative_groups", gpu_only},
      {"cuda", gpu_only},    {"crt/", gpu_only},      {"curand", gpu_only}};
  static const char runtime[] =
      "; CUB and Thrust need the CUDA runtime, which the CPU backend has not: launch on "
      "a "
      "GPU";
  const char* text = diagnostic->text;
  size_t length = diagnostic->text_length;
  if (diagnostic->file && (find(diagnostic->file, diagnostic->file_length, "/cub/") ||
                           find(diagnostic->file, diagnostic->file_length, "/thrust/"))) {
    return runtime;
  }
  if (!text || (!find(text, length, "' file not found") &&
                !find(text, length, ": No such file or directory"))) {
    return "";
  }
  if (*text == '\'') ++text, --length; /* clang quotes the name */
  for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); ++i) {
    if (starts_with(text, length, headers[i].prefix)) return headers[i].advice;
  }
  return "";
}

size_t ons__host_log_blame(const char* log, ons__host_diagnostic* out_errors,
                           size_t kernel_count) {
  size_t count = 0;
  memset(out_errors, 0, kernel_count * sizeof(*out_errors));
  log_line line;
  for (const char* cursor = log; next_line(&cursor, &line);) {
    if (line.kind != ERROR || !line.where.file || !is_kernel_file(&line)) continue;
    size_t index = strtoul(line.start + strlen(ONS__HOST_KERNEL_FILE), NULL, 10);
    if (index >= kernel_count || out_errors[index].text) continue;
    out_errors[index] = line.where;
    ++count;
  }
  return count;
}

/* Where a function is named as missing: "k", "k(int)", "void k<int>(int)"; NULL: it is
 * not. */
static const char* find_missing(const log_line* line) {
  static const char* const fronts[] = {"undefined reference to `",
                                       "undefined symbol: ", "always_inline' '"};
  for (size_t i = 0; i < sizeof(fronts) / sizeof(*fronts); ++i) {
    const char* at = find(line->start, line->length, fronts[i]);
    if (!at) continue;
    at += strlen(fronts[i]);
    size_t left = line->length - (size_t)(at - line->start);
    return starts_with(at, left, "void ") ? at + strlen("void ") : at;
  }
  return NULL;
}

bool ons__host_log_misses_definition(const char* log, const char* name) {
  if (starts_with(name, strlen(name), "::")) name += 2;
  size_t length = strcspn(name, "< ");
  log_line line;
  for (const char* cursor = log; next_line(&cursor, &line);) {
    const char* end = line.start + line.length;
    const char* at = find_missing(&line);
    if (!at || (size_t)(end - at) < length || memcmp(at, name, length) != 0) continue;
    if (at + length == end || strchr("(<'", at[length])) return true;
  }
  return false;
}

static bool is_dropped(const log_line* line, const char* own_folder) {
  if (is_kernel_file(line)) return true;
  if (line->kind == NOTE && starts_with(line->start, line->length, own_folder))
    return true;
  /* "2 errors generated.": counts what was taken out as well. */
  return isdigit((unsigned char)line->start[0]) && line->length > 11 &&
         find(line->start, line->length, " generated.") != NULL && !line->where.file;
}

static void append_without(ons__string* text, const log_line* line,
                           const char* user_folder, const char* own_folder) {
  const char* at = line->start;
  const char* end = line->start + line->length;
  while (at < end) {
    size_t left = (size_t)(end - at);
    if (starts_with(at, left, user_folder)) {
      at += strlen(user_folder);
    } else if (starts_with(at, left, own_folder)) {
      at += strlen(own_folder);
    } else {
      ons__string_append_bytes(text, at++, 1);
    }
  }
  ons__string_append(text, "\n");
}

char* ons__host_log_clean(const ons_allocator* allocator, const char* log,
                          const char* user_folder, const char* own_folder) {
  ons__string text;
  ons__string_init(&text, allocator);
  bool dropping = false;
  log_line line;
  for (const char* cursor = log; next_line(&cursor, &line);) {
    /* Indented lines (source, carets) go with the diagnostic above them. */
    if (line.start[0] != ' ') dropping = is_dropped(&line, own_folder);
    if (!dropping) append_without(&text, &line, user_folder, own_folder);
  }
  return ons__string_take(&text);
}
