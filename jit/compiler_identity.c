#include "jit/compiler_identity.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit/build_id.h"
#include "runtime/base/alloc.h"
#include "runtime/base/path.h"

const char* const ons__identity_cuda_variables[] = {"ONSTREAM_CUDA_INCLUDE", "CUDA_HOME",
                                                    "CUDA_PATH", NULL};

void ons__identity_append_variables(const char* const* names, ons__string* out_text) {
  for (; *names; ++names) {
    const char* value = getenv(*names);
    if (value) ons__string_appendf(out_text, "%s=%s\n", *names, value);
  }
}

/* ---- the processor ----------------------------------------------------------------- */

/* The lines on the first processor that compilers go by. */
static void append_processor_lines(const char* text, ons__string* out_text) {
  static const char* const names[] = {"vendor_id", "cpu family", "model",    "stepping",
                                      "flags",     "Features",   "CPU impl", "CPU part",
                                      "CPU vari",  "CPU revi"};
  while (*text && *text != '\n') {
    const size_t length = strcspn(text, "\n");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
      if (strncmp(text, names[i], strlen(names[i])) != 0) continue;
      ons__string_append_bytes(out_text, text, length + (text[length] == '\n'));
      break;
    }
    text += length + (text[length] == '\n');
  }
}

static bool append_processor(ons__string* out_text) {
  char text[8192];
  int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t count = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (count <= 0) return false;
  text[count] = '\0';
  append_processor_lines(text, out_text);
  return true;
}

/* ---- the host compiler --------------------------------------------------------------
 */

/* A compiler may be started by another program (ccache). */
static void append_command(const ons__words* words, ons__string* out_text) {
  for (size_t i = 0; i < words->count; ++i) {
    const char* word = words->items[i];
    const char* slash = strrchr(word, '/');
    char* program = *word == '-' ? NULL : ons__path_find_program(words->allocator, word);
    /* Not where it is, but under which name: clang is not clang++. */
    if (program && slash) word = slash + 1;
    ons__string_appendf(out_text, "%zu:%s\n", strlen(word), word);
    if (program) ons__build_id_append(program, out_text);
    ons__free(words->allocator, program);
  }
}

bool ons__host_identify(const ons__host_search_options* options, const char* arch,
                        ons__string* out_text) {
  static const char* const variables[] = {
      "CPATH",        "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX",      "COMPILER_PATH",
      "LIBRARY_PATH", "LD_RUN_PATH",        "CCC_OVERRIDE_OPTIONS", NULL};
  ons__words words;
  const bool found = ons__host_glance(options, &words);
  if (found) append_command(&words, out_text);
  ons__words_clear(&words);
  if (!found) return false;
  ons__identity_append_variables(variables, out_text);
  ons__identity_append_variables(ons__identity_cuda_variables, out_text);
  return strcmp(arch, "native") != 0 || append_processor(out_text);
}
