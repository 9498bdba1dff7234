#include "jit/host_options.h"

#include <string.h>

#include "jit/source_options.h"
#include "runtime/base/error.h"

/* What the kernels' speed and the log's readability hang on. Integers wrap, as on a
 * device: threads are iterations of a loop here, and the overflow of one must not end the
 * others. Undefined symbols are an error of the compile, not of a later load. */
static const char* const common_flags[] = {"-x",
                                           "c++",
                                           "-std=c++17",
                                           "-O3",
                                           "-fPIC",
                                           "-shared",
                                           "-fno-math-errno",
                                           "-fwrapv",
                                           "-fvisibility=hidden",
                                           "-Wl,-z,defs"};

static const char* const clang_flags[] = {
    "-fno-color-diagnostics", "-Wno-unknown-attributes", "-Wno-ignored-attributes",
    "-Wno-unused-command-line-argument"};

/* Macros are not tracked, so that a diagnostic is where the user wrote, not in our
 * headers. Without unique symbols an unloaded module really goes. */
static const char* const gcc_flags[] = {
    "-fdiagnostics-color=never",
    "-ftrack-macro-expansion=0",
    "-fno-gnu-unique",
    "-fno-trapping-math",
    "-Wno-attributes",
    "-pipe",
    "-fno-aggressive-loop-optimizations"}; /* see -fwrapv */

#define APPEND_ALL(words, flags)                                  \
  for (size_t i = 0; i < sizeof(flags) / sizeof(*(flags)); ++i) { \
    ons__words_append(words, (flags)[i]);                         \
  }

static void append_march(ons__words* words, const char* march) {
#if !defined(__x86_64__) && !defined(__i386__)
  if (strcmp(march, "native") == 0) {
    ons__words_append(words, "-mcpu=native");
    return;
  }
#endif
  ons__words_append_joined(words, "-march=", march);
}

void ons__host_options_append_defaults(ons__words* words, ons__host_family family,
                                       const char* march) {
  APPEND_ALL(words, common_flags)
  append_march(words, march);
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

/* Threads can be told apart in a debugger: cpu.h. */
#define DEBUG "-g -O0 -DONS_CPU_DEBUG"

/* The names of options are given without leading dashes; one or two match. Where an
 * option takes a value, that follows an '=' or is the next word. */
typedef struct translation {
  const char* name;
  bool takes_value;
  const char* replacement; /* words, a value behind them; NULL: the value's own words */
} translation;

/* Of the first six only what source_options.h leaves comes here. */
static const translation translations[] = {
    {"D", true, "-D"},
    {"define-macro", true, "-D"},
    {"U", true, "-U"},
    {"undefine-macro", true, "-U"},
    {"include", true, "-include"},
    {"pre-include", true, "-include"},
    {"I", true, "-I"},
    {"include-path", true, "-I"},
    {"std", true, "-std="},
    {"disable-warnings", false, "-w"},
    {"G", false, DEBUG},
    {"device-debug", false, DEBUG},
    {"fmad=false", false, "-ffp-contract=off"},
    {"use_fast_math", false, FAST_MATH},
    {"fast-math", false, FASTER_MATH},
    {"ffast-math", false, FASTER_MATH},
    {"funsafe-math-optimizations", false, FASTER_MATH},
    {"Ofast", false, "-O3 " FASTER_MATH},
    {"Xcompiler", true, NULL},
    {"compiler-options", true, NULL},
};

/* What only means something to devices: NVRTC's, then nvcc's. */
static const char* const dropped_flags[] = {
    "dc",
    "default-device",
    "device-as-default-execution-space",
    "device-c",
    "device-float128",
    "device-int128",
    "device-w",
    "display-error-number",
    "dlink-time-opt",
    "dlto",
    "dopt",
    "dopt=off",
    "dopt=on",
    "dw",
    "err-no",
    "ewp",
    "extensible-whole-program",
    "extra-device-vectorization",
    "fdevice-syntax-only",
    "gen-opt-lto",
    "generate-line-info",
    "lineinfo",
    "minimal",
    "no-cache",
    "no-display-error-number",
    "no-err-no",
    "no-source-include",
    "optix-ir",
    "pch",
    "restrict",
    "expt-extended-lambda",
    "expt-relaxed-constexpr",
    "extended-lambda",
    "forward-unknown-to-host-compiler",
};
static const char* const dropped_with_value[] = {
    "arch",
    "brief-diag",
    "brief-diagnostics",
    "builtin-initializer-list",
    "builtin-move-forward",
    "create-pch",
    "device-stack-protector",
    "diag-error",
    "diag-suppress",
    "diag-warn",
    "fdevice-time-trace",
    "fmad",
    "frandom-seed",
    "ftz",
    "gpu-architecture",
    "instantiate-templates-in-pch",
    "jtd",
    "jump-table-density",
    "maxrregcount",
    "modify-stack-limit",
    "Ofast-compile",
    "Ofc",
    "opt-info",
    "optimization-info",
    "pch-dir",
    "pch-messages",
    "pch-verbose",
    "prec-div",
    "prec-sqrt",
    "ptxas-options",
    "rdc",
    "relocatable-device-code",
    "split-compile",
    "time",
    "use-pch",
    "version-ident",
    "Xptxas",
    "code",
    "gencode",
    "generate-code",
    "gpu-code",
    "threads",
    "Xcudafe",
};

/* Is the option (without its dashes) that of the name? `out_value` becomes what follows
 * the
 * '=', and NULL where the value is the next word. */
static bool matches(const char* option, const char* name, bool takes_value,
                    const char** out_value) {
  size_t length = strlen(name);
  if (strncmp(option, name, length) != 0) return false;
  if (takes_value && option[length] == '=') {
    *out_value = option + length + 1;
    return true;
  }
  *out_value = NULL;
  return !option[length];
}

static bool find_translation(const char* option, translation* out_entry,
                             const char** out_value) {
  for (size_t i = 0; i < sizeof(translations) / sizeof(*translations); ++i) {
    *out_entry = translations[i];
    if (matches(option, out_entry->name, out_entry->takes_value, out_value)) return true;
  }
  out_entry->replacement = "";
  out_entry->takes_value = false;
  for (size_t i = 0; i < sizeof(dropped_flags) / sizeof(*dropped_flags); ++i) {
    if (matches(option, dropped_flags[i], false, out_value)) return true;
  }
  out_entry->takes_value = true;
  for (size_t i = 0; i < sizeof(dropped_with_value) / sizeof(*dropped_with_value); ++i) {
    if (matches(option, dropped_with_value[i], true, out_value)) return true;
  }
  return false;
}

static void append_translated(ons__words* words, const translation* entry,
                              const char* value) {
  if (!entry->replacement) {
    ons__words_append_split(words, value, ",");
  } else if (entry->takes_value && *entry->replacement) {
    ons__words_append_joined(words, entry->replacement, value);
  } else {
    ons__words_append_split(words, entry->replacement, " ");
  }
}

/* With these the compiler stops early, or writes elsewhere. */
static bool keeps_from_module(const char* word) {
  static const char* const names[] = {"-c",
                                      "-E",
                                      "-S",
                                      "-M",
                                      "-MM",
                                      "-###",
                                      "-fsyntax-only",
                                      "--compile",
                                      "--preprocess",
                                      "--assemble",
                                      "--output",
                                      "--version",
                                      "--help",
                                      "-dumpversion",
                                      "-dumpmachine"};
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
    if (strcmp(word, names[i]) == 0) return true;
  }
  return strncmp(word, "-o", 2) == 0 || strncmp(word, "--output=", 9) == 0;
}

static ons_status check(const ons__words* words, size_t first, ons_error* error) {
  for (size_t i = first; i < words->count; ++i) {
    /* The value of -Xlinker, -Xclang... is not the driver's. */
    bool is_value = i > first && strncmp(words->items[i - 1], "-X", 2) == 0;
    if (is_value || !keeps_from_module(words->items[i])) continue;
    return ons__error_set(error, ONS_STATUS_COMPILE_FAILED,
                          "the option %s keeps the compiler from writing the module; "
                          "leave it out",
                          words->items[i]);
  }
  return ONS_STATUS_OK;
}

ons_status ons__host_options_append_user(ons__words* words, const char* const* options,
                                         size_t option_count, ons_error* error) {
  size_t first = words->count;
  for (size_t i = 0; i < option_count; ++i) {
    if (ons__source_options_skip(options, option_count, &i)) continue;
    const char* option = options[i];
    const char* name = option;
    const char* value = NULL;
    translation entry;
    name += *name == '-' ? 1 + (name[1] == '-') : 0;
    if (name == option || !find_translation(name, &entry, &value)) {
      ons__words_append(words, option);
      continue;
    }
    if (entry.takes_value && !value) value = ++i < option_count ? options[i] : "";
    bool is_empty = entry.takes_value && !*value;
    if (is_empty && entry.replacement && *entry.replacement) {
      return ons__error_set(error, ONS_STATUS_COMPILE_FAILED,
                            "the option %s has no value", option);
    }
    append_translated(words, &entry, value);
  }
  return ons__words_ok(words) ? check(words, first, error) : ons__error_no_memory(error);
}
