#include "jit/words.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/string.h"

void ons__words_init(ons__words* words, const ons_allocator* allocator) {
  *words = (ons__words){.allocator = allocator};
}

/* Takes `word`; NULL is a failed allocation. */
static void take(ons__words* words, char* word) {
  if (words->count + 2 > words->capacity && word) {
    size_t capacity = words->capacity ? words->capacity * 2 : 32;
    char** items = ons__alloc_array(words->allocator, capacity, sizeof(*items));
    if (items && words->count) memcpy(items, words->items, words->count * sizeof(*items));
    if (items) {
      ons__free(words->allocator, words->items);
      words->items = items;
      words->capacity = capacity;
    }
  }
  if (!word || words->count + 2 > words->capacity) {
    ons__free(words->allocator, word);
    words->failed = true;
    return;
  }
  words->items[words->count++] = word;
  words->items[words->count] = NULL;
}

void ons__words_append(ons__words* words, const char* word) {
  take(words, ons__strdup(words->allocator, word));
}

void ons__words_append_bytes(ons__words* words, const char* word, size_t length) {
  take(words, ons__strndup(words->allocator, word, length));
}

void ons__words_append_joined(ons__words* words, const char* front, const char* back) {
  ons__string word;
  ons__string_init(&word, words->allocator);
  ons__string_append(&word, front);
  ons__string_append(&word, back);
  take(words, ons__string_take(&word));
}

void ons__words_append_all(ons__words* words, const ons__words* more) {
  for (size_t i = 0; i < more->count; ++i) ons__words_append(words, more->items[i]);
}

void ons__words_append_split(ons__words* words, const char* text,
                             const char* separators) {
  while (*text) {
    size_t length = strcspn(text, separators);
    if (length) ons__words_append_bytes(words, text, length);
    text += length;
    text += strspn(text, separators);
  }
}

bool ons__words_ok(const ons__words* words) { return !words->failed; }

void ons__words_clear(ons__words* words) {
  for (size_t i = 0; i < words->count; ++i) ons__free(words->allocator, words->items[i]);
  ons__free(words->allocator, words->items);
  ons__words_init(words, words->allocator);
}
