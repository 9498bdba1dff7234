#include "jit/host_options.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#define NATIVE "-march=native"
#else
#define NATIVE "-mcpu=native"
#endif

/* What the kernels' speed and the log's readability hang on. Undefined symbols are an
 * error of the compile, not of a later load. */
static const char* const common_flags[] = {"-x",
                                           "c++",
                                           "-std=c++17",
                                           "-O3",
                                           NATIVE,
                                           "-fPIC",
                                           "-shared",
                                           "-fno-math-errno",
                                           "-fvisibility=hidden",
                                           "-Wl,-z,defs"};

static const char* const clang_flags[] = {
    "-fno-color-diagnostics", "-Wno-unknown-attributes", "-Wno-ignored-attributes",
    "-Wno-unused-command-line-argument"};

/* Macros are not tracked, so that a diagnostic is where the user wrote, not in our
 * headers. Without unique symbols an unloaded module really goes. */
static const char* const gcc_flags[] = {
    "-fdiagnostics-color=never", "-ftrack-macro-expansion=0", "-fno-gnu-unique",
    "-fno-trapping-math",        "-Wno-attributes",           "-pipe"};

#define APPEND_ALL(words, flags)                                  \
  for (size_t i = 0; i < sizeof(flags) / sizeof(*(flags)); ++i) { \
    ons__words_append(words, (flags)[i]);                         \
  }

void ons__host_options_append_defaults(ons__words* words, ons__host_family family) {
  APPEND_ALL(words, common_flags)
  if (family == ONS__HOST_CLANG) {
    APPEND_ALL(words, clang_flags)
  } else {
    APPEND_ALL(words, gcc_flags)
  }
}

/* Not -ffast-math: with it (and -Ofast) GCC links start-up code that sets flush-to-zero
 * for the thread that loads the module, and so changes everybody else's results. */
#define FAST_MATH "-fno-signed-zeros -fno-trapping-math -freciprocal-math"
#define FASTER_MATH FAST_MATH " -ffinite-math-only -fassociative-math"

/* What becomes of an option of NVRTC's. Names are given without leading dashes; one or
 * two match. */
typedef struct translation {
  const char* name;        /* ends in '=' where a value follows */
  const char* replacement; /* words; with `joined` the value is put behind it */
  bool joined;
} translation;

static const translation translations[] = {
    {"arch=", "", false},
    {"default-device", "", false},
    {"define-macro=", "-D", true},
    {"device-as-default-execution-space", "", false},
    {"device-debug", "-g", false},
    {"device-int128", "", false},
    {"diag-suppress=", "", false},
    {"disable-warnings", "-w", false},
    {"dlink-time-opt", "", false},
    {"dlto", "", false},
    {"dopt=", "", false},
    {"extra-device-vectorization", "", false},
    {"fast-math", FASTER_MATH, false},
    {"ffast-math", FASTER_MATH, false},
    {"fmad=false", "-ffp-contract=off", false},
    {"fmad=true", "", false},
    {"ftz=", "", false},
    {"funsafe-math-optimizations", FASTER_MATH, false},
    {"G", "-g", false},
    {"generate-line-info", "", false},
    {"gpu-architecture=", "", false},
    {"include-path=", "-I", true},
    {"lineinfo", "", false},
    {"maxrregcount=", "", false},
    {"minimal", "", false},
    {"Ofast", "-O3 " FASTER_MATH, false},
    {"optix-ir", "", false},
    {"pre-include=", "-include", true},
    {"prec-div=", "", false},
    {"prec-sqrt=", "", false},
    {"ptxas-options=", "", false},
    {"rdc=", "", false},
    {"relocatable-device-code=", "", false},
    {"restrict", "", false},
    {"split-compile=", "", false},
    {"std=", "-std=", true},
    {"undefine-macro=", "-U", true},
    {"use_fast_math", FAST_MATH, false},
    {"version-ident=", "", false},
};

/* Options of NVRTC's whose value is a word of its own. */
static const char* const dropped_pairs[] = {"-arch",         "--gpu-architecture",
                                            "-Xptxas",       "--ptxas-options",
                                            "-maxrregcount", "--maxrregcount"};

static const translation* find_translation(const char* option, const char** out_value) {
  if (*option != '-') return NULL;
  const char* name = option + (option[1] == '-' ? 2 : 1);
  for (size_t i = 0; i < sizeof(translations) / sizeof(*translations); ++i) {
    const translation* entry = &translations[i];
    size_t length = strlen(entry->name);
    bool takes_value = entry->name[length - 1] == '=';
    if (strncmp(name, entry->name, length) == 0 && (takes_value || !name[length])) {
      *out_value = name + length;
      return entry;
    }
  }
  return NULL;
}

static bool is_dropped_pair(const char* option) {
  for (size_t i = 0; i < sizeof(dropped_pairs) / sizeof(*dropped_pairs); ++i) {
    if (strcmp(option, dropped_pairs[i]) == 0) return true;
  }
  return false;
}

void ons__host_options_append_user(ons__words* words, const char* const* options,
                                   size_t option_count) {
  for (size_t i = 0; i < option_count; ++i) {
    const char* value = "";
    const translation* entry = find_translation(options[i], &value);
    if (is_dropped_pair(options[i])) {
      ++i;
    } else if (!entry) {
      ons__words_append(words, options[i]);
    } else if (entry->joined) {
      ons__words_append_joined(words, entry->replacement, value);
    } else {
      ons__words_append_split(words, entry->replacement, " ");
    }
  }
}
