#include "jit/host_search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/path.h"
#include "runtime/base/process.h"
#include "runtime/base/string.h"

enum { PROBE_TIMEOUT_MS = 60000 };

typedef struct search {
  const ons_allocator* allocator;
  bool is_glance;    /* what is there is not run */
  ons__string tried; /* "\n  NAME: reason" each */
  ons__host_command* command;
} search;

static void note(search* self, const char* origin, const char* text, const char* reason) {
  ons__string_appendf(&self->tried, "\n  %s%s%s: %.160s", origin,
                      *text && *origin ? " " : "", text, reason);
}

/* By the compiler's own macros; false where it is neither GCC nor clang. */
static bool identify(const char* macros, ons__host_command* command) {
  if (!strstr(macros, "#define __GNUC__ ")) return false;
  command->family =
      strstr(macros, "#define __clang__ ") ? ONS__HOST_CLANG : ONS__HOST_GCC;
  return true;
}

/* Compilers are found without their C++ library often enough (clang beside a gcc that has
 * none), so the question includes a header. */
static bool probe(search* self, const char* origin, const char* text) {
  ons__words words;
  ons__words_init(&words, self->allocator);
  ons__words_append_all(&words, &self->command->words);
  ons__words_append_split(&words, "-x c++ -E -dM -", " ");
  const ons__process_limits limits = {.timeout_ms = PROBE_TIMEOUT_MS};
  ons__process_result result = {0};
  ons_error error = ONS_ERROR_INIT;
  bool found = false;
  if (!ons__words_ok(&words)) {
    note(self, origin, text, "out of memory");
  } else if (ons__process_run(self->allocator, (const char* const*)words.items,
                              "#include <typeinfo>\n", NULL, &limits, &result,
                              &error) != ONS_STATUS_OK) {
    note(self, origin, text, error.message);
  } else if (result.timed_out) {
    note(self, origin, text, "did not answer");
  } else if (result.exit_code > 0) {
    result.output[strcspn(result.output, "\n")] = '\0';
    note(self, origin, text, *result.output ? result.output : "failed without a message");
  } else {
    found = identify(result.output, self->command);
    if (!found) note(self, origin, text, "is neither GCC nor clang");
  }
  ons__free(self->allocator, result.output);
  ons__words_clear(&words);
  return found;
}

/* Tries a command given as text: the words between any of `separators`, unless the whole
 * text names a program (a path with spaces). */
static bool try_command(search* self, const char* origin, const char* text,
                        const char* separators) {
  ons__words* words = &self->command->words;
  ons__words_clear(words);
  ons__words_init(words, self->allocator);
  char* program = ons__path_find_program(self->allocator, text);
  if (program) {
    ons__words_append(words, program);
  } else {
    ons__words_append_split(words, text, separators);
    if (words->count) program = ons__path_find_program(self->allocator, words->items[0]);
    if (program) {
      ons__free(self->allocator, words->items[0]);
      words->items[0] = ons__strdup(self->allocator, program);
      words->failed |= !words->items[0];
    }
  }
  bool exists = program != NULL && ons__words_ok(words);
  ons__free(self->allocator, program);
  if (!exists) note(self, origin, text, "no such program");
  bool found = exists && (self->is_glance || probe(self, origin, text));
  if (!found) ons__words_clear(words);
  return found;
}

static bool try_variable(search* self, const char* name) {
  const char* text = getenv(name);
  return text && *text && try_command(self, name, text, " \t\n");
}

/* clang++-18 and the like, newest first: distributions ship these alone. */
static bool try_versioned(search* self, const char* name) {
  for (int version = 30; version >= 9; --version) {
    char versioned[32];
    snprintf(versioned, sizeof(versioned), "%s-%d", name, version);
    char* program = ons__path_find_program(self->allocator, versioned);
    bool found = program && try_command(self, "", versioned, "");
    ons__free(self->allocator, program);
    if (found) return true;
  }
  return false;
}

static bool try_locate(search* self, const ons__host_search_options* options) {
  if (!options->locate) return false;
  char text[4096] = "";
  if (!options->locate(options->locate_user_data, ONS_LOCATE_HOST_COMPILER, text,
                       sizeof(text))) {
    note(self, "the host's locate callback", "", "knows none");
    return false;
  }
  text[sizeof(text) - 1] = '\0';
  return try_command(self, "located:", text, "\n");
}

static bool find(search* self, const ons__host_search_options* options) {
  if (options->explicit_command) {
    return try_command(self, "host_compiler_path", options->explicit_command, " \t\n");
  }
  const char* ours = getenv("ONSTREAM_HOST_COMPILER");
  if (ours && *ours) return try_variable(self, "ONSTREAM_HOST_COMPILER");
  return try_variable(self, "CXX") || try_command(self, "", "clang++", "") ||
         try_versioned(self, "clang++") || try_command(self, "", "g++", "") ||
         try_command(self, "", "c++", "") || try_versioned(self, "g++") ||
         try_locate(self, options);
}

ons_status ons__host_search(const ons__host_search_options* options,
                            ons__host_command* out_command, ons_error* error) {
  *out_command = (ons__host_command){0};
  search self = {.allocator = options->allocator, .command = out_command};
  ons__words_init(&out_command->words, options->allocator);
  ons__string_init(&self.tried, options->allocator);
  ons_status status = ONS_STATUS_OK;
  if (!find(&self, options)) {
    status = ons__error_set(
        error, ONS_STATUS_UNAVAILABLE,
        "no C++ compiler was found to compile kernels for the CPU; install "
        "clang or g++, or set ONSTREAM_HOST_COMPILER; tried:%s",
        ons__string_text(&self.tried));
  }
  ons__string_clear(&self.tried);
  return status;
}

bool ons__host_glance(const ons__host_search_options* options, ons__words* out_words) {
  ons__host_command command = {0};
  search self = {.allocator = options->allocator, .is_glance = true, .command = &command};
  ons__words_init(&command.words, options->allocator);
  ons__string_init(&self.tried, options->allocator);
  const bool found = find(&self, options);
  ons__string_clear(&self.tried);
  *out_words = command.words;
  return found;
}
