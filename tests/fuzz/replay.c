/* Runs a fuzz target over every file of a folder, without libFuzzer. Fails where there is
 * none. */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/* Returns the number of bytes, or -1; the caller frees |out_data|. */
static long read_file(const char* path, uint8_t** out_data) {
  FILE* file = fopen(path, "rb");
  long size = -1;
  uint8_t* data = NULL;
  if (!file) return -1;
  if (fseek(file, 0, SEEK_END) == 0) size = ftell(file);
  rewind(file);
  /* Exactly as long as the input, so that a sanitizer sees the first byte past it. */
  if (size >= 0) data = malloc(size > 0 ? (size_t)size : 1);
  if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) {
    free(data);
    data = NULL;
    size = -1;
  }
  fclose(file);
  *out_data = data;
  return size;
}

int main(int argc, char** argv) {
  int count = 0;
  DIR* folder = argc == 2 ? opendir(argv[1]) : NULL;
  const struct dirent* entry = NULL;
  if (!folder) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  while ((entry = readdir(folder))) {
    char path[PATH_MAX];
    uint8_t* data = NULL;
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
    const long size = read_file(path, &data);
    if (size < 0) {
      fprintf(stderr, "%s: cannot be read\n", path);
      count = -1;
      break;
    }
    (void)LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    ++count;
  }
  closedir(folder);
  printf("%d inputs\n", count);
  return count <= 0;
}
