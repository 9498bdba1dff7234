/* The files that a compile read, or looked for in vain: what has to be unchanged for its
 * result to be used again. */
#ifndef ONS_JIT_INPUTS_H_
#define ONS_JIT_INPUTS_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/hash.h"

typedef enum ons__input_kind {
  ONS__INPUT_FILE = 1,   /* by its content */
  ONS__INPUT_ABSENT = 2, /* no file: one would have been read in another's place */
  ONS__INPUT_TOOL = 3    /* by size and time alone: a program or library */
} ons__input_kind;

typedef struct ons__input {
  ons__input_kind kind;
  char* path; /* absolute */
  uint64_t size_bytes;
  int64_t changed_ns;                    /* the time of the last modification */
  unsigned char digest[ONS__HASH_BYTES]; /* of a FILE, once it was read */
} ons__input;

typedef struct ons__inputs {
  const ons_allocator* allocator;
  bool is_unknown; /* there may be more: the result is for this once */
  int64_t begun_ns;
  ons__input* items;
  size_t count, capacity;
  uint32_t* slots; /* 1 + index by hash of the path; 0: free */
  size_t slot_count;
} ons__inputs;

/* Before the compile begins: a file that changes from here on makes the inputs unknown.
 */
void ons__inputs_init(ons__inputs* inputs, const ons_allocator* allocator);
void ons__inputs_clear(ons__inputs* inputs);

/* Adds what is at the path now, a FILE or ABSENT; once only, however often it is called.
 * True where there is a file. Running out of memory makes the inputs unknown. */
bool ons__inputs_add(ons__inputs* inputs, const char* path);
void ons__inputs_add_tool(ons__inputs* inputs, const char* path);
/* Adds an item as it was; takes over the path. */
bool ons__inputs_append(ons__inputs* inputs, const ons__input* item);
bool ons__inputs_has(const ons__inputs* inputs, const char* path);

/* Reads a FILE and sets its digest. The caller owns the NUL-terminated content; NULL
 * where it cannot be read, and then the inputs are unknown. */
char* ons__inputs_read(ons__inputs* inputs, size_t index, size_t* out_bytes);

/* Is everything as it was? Files of another time are read and compared. */
bool ons__inputs_hold(const ons__inputs* inputs);

#endif /* ONS_JIT_INPUTS_H_ */
