/* The folder of the cache: one file for each entry, written by many processes at once.
 *
 * Nothing here is an error: what cannot be read is not there, what cannot be written is
 * left out. */
#ifndef ONS_JIT_CACHE_FOLDER_H_
#define ONS_JIT_CACHE_FOLDER_H_

#include "jit/cache_key.h"

/* Where it is: `option`, else ONSTREAM_CACHE_DIR, else onstream in the user's cache
 * folder (XDG_CACHE_HOME, else .cache in HOME). Of the first two an empty one or "off"
 * stands for none. The caller owns the path; NULL where there is to be no cache. Touches
 * no file. */
char* ons__cache_folder_find(const ons_allocator* allocator, const char* option);

/* A descriptor of the folder, made where it is missing and `make`; -1 where there is none
 * that nobody else can write to. */
int ons__cache_folder_open(const char* folder, bool make);

/* The name of a key's file: its digits and a suffix of four letters with the point before
 * them, or fewer. `out_name` has room for both and the end. */
void ons__cache_folder_name(const ons__cache_key* key, const char* suffix,
                            char* out_name);

/* What tells one content of the key's file from another; 0: there is none. */
uint64_t ons__cache_folder_stamp(int folder_fd, const ons__cache_key* key);

/* The content of the key's file. It becomes the latest used. The caller owns |out_bytes|.
 */
bool ons__cache_folder_read(const ons_allocator* allocator, const char* folder,
                            const ons__cache_key* key, char** out_data,
                            size_t* out_bytes);

/* Makes the folder where it is missing, and puts the file there as a whole or not at all.
 * It may be there already. */
bool ons__cache_folder_write(const char* folder, const ons__cache_key* key,
                             const void* data, size_t data_bytes);

/* Removes the entries that were used longest ago until those left fit into `limit_bytes`,
 * and what writers have left behind. Others may do the same meanwhile. */
void ons__cache_folder_trim(const ons_allocator* allocator, const char* folder,
                            uint64_t limit_bytes);

#endif /* ONS_JIT_CACHE_FOLDER_H_ */
