#include "jit/host_refusal.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static const char assembly_reason[] = "assembly for GPUs (PTX)";

/* The beginnings of names; the first that matches counts. */
static const struct {
  const char* front;
  const char* reason;
} refused[] = {
    {"<<<", "launches from within a kernel"},
    {"tex1D", "textures"},
    {"tex2D", "textures"},
    {"tex3D", "textures"},
    {"texCubemap", "textures"},
    {"cudaTextureObject_t", "textures"},
    {"surf1D", "surfaces"},
    {"surf2D", "surfaces"},
    {"surf3D", "surfaces"},
    {"surfCubemap", "surfaces"},
    {"cudaSurfaceObject_t", "surfaces"},
    {"nvcuda", "tensor cores"},
    {"wmma", "tensor cores"},
    {"cudaDevice", "CUDA runtime"},
    {"cudaEvent", "CUDA runtime"},
    {"cudaFree", "CUDA runtime"},
    {"cudaGet", "CUDA runtime"},
    {"cudaGraph", "CUDA runtime"},
    {"cudaLaunch", "CUDA runtime"},
    {"cudaMalloc", "CUDA runtime"},
    {"cudaMem", "CUDA runtime"},
    {"cudaStream", "CUDA runtime"},
    {"cudaTrigger", "CUDA runtime"},
};

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static size_t word_length(const char* text) {
  size_t length = 0;
  while (is_word(text[length])) ++length;
  return length;
}

/* Behind a literal in quotes, or behind a comment, that begins here. */
static const char* skip_quoted(const char* at) {
  if (at[0] == '/' && at[1] == '/') return at + strcspn(at, "\n");
  if (at[0] == '/' && at[1] == '*') {
    const char* end = strstr(at + 2, "*/");
    return end ? end + 2 : at + strlen(at);
  }
  if (*at != '"' && *at != '\'') return at;
  const char quote = *at++;
  while (*at && *at != quote && *at != '\n') at += at[0] == '\\' && at[1] ? 2 : 1;
  return *at == quote ? at + 1 : at;
}

static bool is_assembly(const char* word, size_t length) {
  static const char* const words[] = {"asm", "__asm", "__asm__"};
  for (size_t i = 0; i < sizeof(words) / sizeof(*words); ++i) {
    if (strlen(words[i]) == length && !memcmp(word, words[i], length)) return true;
  }
  return false;
}

static const char* reason_for(const char* word, size_t length) {
  for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); ++i) {
    const size_t front = strlen(refused[i].front);
    if (front <= length && !memcmp(word, refused[i].front, front))
      return refused[i].reason;
  }
  return NULL;
}

/* Walks over the source and notes what is refused: in the line, or by a statement of
 * assembly that reaches it; from line 0 on the first assembly. */
static ons__host_refusal find(const char* source, long line) {
  ons__host_refusal assembly = {0};
  long at_line = 1;
  for (const char* at = source; *at && (line == 0 || at_line <= line);) {
    const char* next = skip_quoted(at);
    if (next > at) {
      for (; at < next; ++at) at_line += *at == '\n';
      if (line > 0 && at_line > line && !assembly.name) break;
      continue;
    }
    size_t length = word_length(at);
    if (!length && !strncmp(at, "<<<", 3)) length = 3;
    if (length && is_assembly(at, length)) {
      assembly = (ons__host_refusal){at, length, assembly_reason, at_line};
      if (line == 0) return assembly;
    } else if (length && at_line == line && reason_for(at, length)) {
      return (ons__host_refusal){at, length, reason_for(at, length), at_line};
    } else if (*at == ';' && at_line < line) {
      assembly = (ons__host_refusal){0};
    }
    at_line += *at == '\n';
    at += length ? length : 1;
  }
  return assembly;
}

ons__host_refusal ons__host_refusal_find(const char* source, long line) {
  return line > 0 ? find(source, line) : (ons__host_refusal){0};
}

ons__host_refusal ons__host_refusal_find_assembly(const char* source) {
  return find(source, 0);
}
