/* Finding a C++ compiler on this machine. */
#ifndef ONS_JIT_HOST_SEARCH_H_
#define ONS_JIT_HOST_SEARCH_H_

#include <onstream/runtime.h>
#include <stdbool.h>

#include "jit/words.h"

typedef enum ons__host_family { ONS__HOST_CLANG = 1, ONS__HOST_GCC = 2 } ons__host_family;

typedef struct ons__host_command {
  ons__words words; /* words.items[0] is the program's path */
  ons__host_family family;
} ons__host_command;

typedef struct ons__host_search_options {
  const ons_allocator* allocator;
  const char* explicit_command; /* borrowed; NULL: look around */
  ons_locate_fn locate;         /* NULL: none */
  void* locate_user_data;
  ons_interrupt_fn interrupt; /* of compiles; NULL: none */
  void* interrupt_user_data;
} ons__host_search_options;

/* The first that runs and finds its own headers: the explicit command and nothing else,
 * or ONSTREAM_HOST_COMPILER and nothing else, or CXX, clang++, g++, c++, versioned ones,
 * `locate`. The caller clears |out_command|'s words. Errors: UNAVAILABLE with all that
 * was tried, OUT_OF_MEMORY. */
ons_status ons__host_search(const ons__host_search_options* options,
                            ons__host_command* out_command, ons_error* error);

/* The command that the search above tries first. Runs nothing, but for `locate`. The
 * caller clears |out_words|. */
bool ons__host_glance(const ons__host_search_options* options, ons__words* out_words);

#endif /* ONS_JIT_HOST_SEARCH_H_ */
