/* A growing list of strings, NULL-terminated: the words of a command. A failed allocation
 * is remembered, so that callers can append without checking. */
#ifndef ONS_JIT_WORDS_H_
#define ONS_JIT_WORDS_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ons__words {
  const ons_allocator* allocator;
  char** items; /* NULL while empty */
  size_t count;
  size_t capacity;
  bool failed;
} ons__words;

void ons__words_init(ons__words* words, const ons_allocator* allocator);
void ons__words_append(ons__words* words, const char* word); /* copied */
void ons__words_append_bytes(ons__words* words, const char* word, size_t length);
void ons__words_append_joined(ons__words* words, const char* front, const char* back);
void ons__words_append_all(ons__words* words, const ons__words* more);
/* Appends what lies between any of `separators`; nothing for empty pieces. */
void ons__words_append_split(ons__words* words, const char* text, const char* separators);
bool ons__words_ok(const ons__words* words);
void ons__words_clear(ons__words* words);

#endif /* ONS_JIT_WORDS_H_ */
