/* The modules of a runtime that further creations may share: those of the same text, as
 * long as nothing but that text can tell what they are. Some that nobody holds any more
 * stay for the next who asks. */
#ifndef ONS_RUNTIME_MODULE_TABLE_H_
#define ONS_RUNTIME_MODULE_TABLE_H_

#include <onstream/module.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/thread.h"

/* What a module is made of; borrowed. */
typedef struct ons__module_text {
  const char* source;
  const char* name;
  const char* folder; /* NULL: none */
  const ons_module_options* options;
  uint64_t hash; /* of it all, by ons__module_text_hash */
} ons__module_text;

enum { ONS__MODULES_UNUSED = 16 }; /* that stay */

typedef struct ons__module_table {
  ons__mutex mutex;
  ons_module** buckets; /* linked by ons_module.next_in_bucket; NULL while empty */
  size_t bucket_count, count;
  ons_module* unused[ONS__MODULES_UNUSED]; /* the one last used comes first */
  size_t unused_count;
} ons__module_table;

void ons__module_table_init(ons__module_table* table);
/* Destroys the modules that nobody holds; there are no others. */
void ons__module_table_destroy(ons_runtime* runtime);

uint64_t ons__module_text_hash(const ons__module_text* text);

/* What the module is made of, but for its folder and the hash; |out_options| is room for
 * what it points to. */
ons__module_text ons__module_text_of(const ons_module* module,
                                     ons_module_options* out_options);
bool ons__module_is_of(const ons_module* module, const ons__module_text* text);

/* The module of the text, retained; NULL where there is none. */
ons_module* ons__module_table_find(ons_runtime* runtime, const ons__module_text* text);

/* Puts a fresh module there, if it may be shared, and no other thread was faster: then
 * that one is returned, retained, and the fresh one is still the caller's. */
ons_module* ons__module_table_add(ons_module* module, const ons__module_text* text);

/* For the last reference to a module that is shared: it becomes unused. True: the caller
 * destroys |out_victim| where it is set, and releases the module's runtime. False: it was
 * not the last. */
bool ons__module_table_drop(ons_module* module, ons_module** out_victim);

#endif /* ONS_RUNTIME_MODULE_TABLE_H_ */
