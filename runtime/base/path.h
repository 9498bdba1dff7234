/* Files and folders: small helpers over POSIX. Paths are bytes; nothing is assumed of
 * them. */
#ifndef ONS_RUNTIME_BASE_PATH_H_
#define ONS_RUNTIME_BASE_PATH_H_

#include <onstream/runtime.h>
#include <stdbool.h>
#include <stddef.h>

/* The path of an executable: `name` itself where it contains a slash, else the first on
 * PATH. The caller owns it (ons__free); NULL where there is none. */
char* ons__path_find_program(const ons_allocator* allocator, const char* name);

/* May `name` be put under a folder of ours: relative, not empty, without a ".."
 * component? */
bool ons__path_is_inside(const char* name);

/* A fresh folder, open to its owner only, in TMPDIR, /tmp, /var/tmp or /dev/shm, the
 * first that works. The caller owns |out_path| and removes the folder. Errors: IO,
 * OUT_OF_MEMORY. */
ons_status ons__temp_folder_create(const ons_allocator* allocator, char** out_path,
                                   ons_error* error);

/* Removes a folder of ours with all that is in it, without following links. NULL is
 * accepted; what cannot be removed is left. */
void ons__temp_folder_remove(const char* path);

/* The whole file, NUL-terminated; the caller owns |out_data|. Errors: NOT_FOUND, IO,
 * OUT_OF_MEMORY. */
ons_status ons__file_read(const ons_allocator* allocator, const char* path,
                          char** out_data, size_t* out_bytes, ons_error* error);

/* Creates or replaces the file; folders of `path` after its first `root_length` bytes are
 * made where they are missing. */
ons_status ons__file_write(const ons_allocator* allocator, const char* path,
                           size_t root_length, const void* data, size_t data_bytes,
                           ons_error* error);

/* A descriptor (close-on-exec, at offset 0) of a nameless file with this content, in
 * memory where the system can, else on disk. -1 with errno otherwise. */
int ons__memory_file(const void* data, size_t data_bytes);

#endif /* ONS_RUNTIME_BASE_PATH_H_ */
