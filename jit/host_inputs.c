#include "jit/host_inputs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit/include_scan.h"
#include "runtime/base/alloc.h"
#include "runtime/base/path.h"
#include "runtime/base/string.h"

typedef struct collection {
  const ons__host_inputs* compile;
  const ons_allocator* allocator;
  ons__inputs* inputs;
  ons__words folders;    /* those of the user, which are searched first; absolute */
  ons__string directory; /* of the file that is being scanned; "": none on disk */
  bool is_foreign;       /* that file is in none of the folders */
} collection;

/* ---- options ---------------------------------------------------------------------- */

static const char* const folder_options[] = {"-I", "-isystem", "-iquote", "-idirafter"};

/* Does the option make the compiler read no other files than those that it lists? */
static bool is_plain(const char* word) {
  static const char* const plain[] = {"-D",    "-U",       "-O", "-W",
                                      "-g",    "-m",       "-f", "-std",
                                      "--std", "-pthread", "-w", "-include"};
  static const char* const reading[] = {"-fprofile", "-fplugin",   "-fpass-plugin",
                                        "-fmodule",  "-fsanitize", "-fauto-profile",
                                        "-gsplit",   "-Wl,",       "-Wa,",
                                        "-Wp,",      "-MF"};
  for (size_t i = 0; i < sizeof(reading) / sizeof(*reading); ++i) {
    if (!strncmp(word, reading[i], strlen(reading[i]))) return false;
  }
  for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); ++i) {
    if (!strncmp(word, plain[i], strlen(plain[i]))) return true;
  }
  return false;
}

/* The value of an option that names a folder; NULL for any other. Moves *index to the
 * option's last word. */
static const char* folder_value(const ons__words* words, size_t* index) {
  const char* word = words->items[*index];
  for (size_t i = 0; i < sizeof(folder_options) / sizeof(*folder_options); ++i) {
    const size_t length = strlen(folder_options[i]);
    if (strncmp(word, folder_options[i], length) != 0) continue;
    if (word[length]) return word + length;
    return *index + 1 < words->count ? words->items[++*index] : "";
  }
  return NULL;
}

static void add_folder(collection* self, const char* folder) {
  if (*folder == '/') {
    ons__words_append(&self->folders, folder);
    return;
  }
  char here[PATH_MAX];
  ons__string path;
  ons__string_init(&path, self->allocator);
  const bool is_known = getcwd(here, sizeof(here)) != NULL;
  if (is_known) ons__string_appendf(&path, "%s/%s", here, folder);
  if (is_known && ons__string_ok(&path)) {
    ons__words_append(&self->folders, path.data);
  } else {
    self->inputs->is_unknown = true;
  }
  ons__string_clear(&path);
}

static void read_options(collection* self) {
  const ons__words* words = self->compile->options;
  for (size_t i = 0; i < words->count; ++i) {
    const char* folder = folder_value(words, &i);
    if (folder) {
      add_folder(self, folder);
    } else if (!is_plain(words->items[i])) {
      self->inputs->is_unknown = true;
    }
  }
}

static void find_folders(collection* self) {
  const ons__compile_request* request = self->compile->request;
  if (request->folder) add_folder(self, *request->folder ? request->folder : ".");
  for (size_t i = 0; i < request->option_count; ++i) {
    if (!strstr(request->options[i], "include")) continue;
    add_folder(self, "."); /* for -include */
    break;
  }
  read_options(self);
  static const char* const variables[] = {"CPATH", "CPLUS_INCLUDE_PATH"};
  for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); ++i) {
    const char* list = getenv(variables[i]);
    if (list) ons__words_append_split(&self->folders, list, ":");
  }
  const char* system_folder = self->compile->system_folder;
  if (*system_folder) ons__words_append(&self->folders, system_folder);
  self->inputs->is_unknown |= !ons__words_ok(&self->folders);
}

/* ---- what was read ---------------------------------------------------------------- */

/* Takes the next name off a rule of make: blanks separate, a backslash keeps a blank or a
 * '#', and ends a line that goes on; a dollar is doubled. In place; NULL at the end. */
static char* take_name(char** at) {
  char* from = *at;
  for (;; ++from) {
    if (from[0] == '\\' && (from[1] == '\n' || from[1] == '\r')) continue;
    if (!*from || !strchr(" \t\r\n", *from)) break;
  }
  if (!*from) return NULL;
  char* name = from;
  char* to = from;
  while (*from && !strchr(" \t\r\n", *from)) {
    if (from[0] == '\\' && from[1] == '\n') break;
    if (from[0] == '\\' && (from[1] == ' ' || from[1] == '#')) ++from;
    if (from[0] == '$' && from[1] == '$') ++from;
    *to++ = *from++;
  }
  *at = *from ? from + 1 : from;
  *to = '\0';
  return name;
}

static void read_depends(collection* self) {
  char* text = NULL;
  size_t bytes = 0;
  const char* own = self->compile->own_folder;
  if (ons__file_read(self->allocator, self->compile->depends_path, &text, &bytes, NULL)) {
    self->inputs->is_unknown = true;
    return;
  }
  char* at = text;
  take_name(&at); /* the target */
  for (const char* name = take_name(&at); name; name = take_name(&at)) {
    if (strncmp(name, own, strlen(own)) != 0) ons__inputs_add(self->inputs, name);
  }
  ons__free(self->allocator, text);
}

/* ---- what would be read in its place ---------------------------------------------- */

static void look(collection* self, const char* folder, const char* name) {
  ons__string path;
  ons__string_init(&path, self->allocator);
  ons__string_appendf(&path, "%s%s%s", folder, *folder ? "/" : "", name);
  if (!ons__string_ok(&path)) {
    self->inputs->is_unknown = true;
  } else if (access(path.data, F_OK) != 0) {
    ons__inputs_add(self->inputs, path.data);
  }
  ons__string_clear(&path);
}

/* Files that are there and were not read are behind those that were. What a macro spells
 * in a header of the compiler's own is such a header as well. */
static void look_everywhere(void* context, const ons__include* include) {
  collection* self = context;
  if (!include->name) {
    self->inputs->is_unknown |= self->folders.count > 0 && !self->is_foreign;
    return;
  }
  if (*include->name == '/') {
    look(self, "", include->name);
    return;
  }
  if (include->is_quoted && self->directory.length) {
    look(self, self->directory.data, include->name);
  }
  for (size_t i = 0; i < self->folders.count; ++i) {
    look(self, self->folders.items[i], include->name);
  }
}

static void scan(collection* self, const char* text) {
  if (!ons__include_scan(self->allocator, text, look_everywhere, self)) {
    self->inputs->is_unknown = true;
  }
}

static bool is_below_any(const ons__words* folders, const char* path) {
  for (size_t i = 0; i < folders->count; ++i) {
    if (!strncmp(path, folders->items[i], strlen(folders->items[i]))) return true;
  }
  return false;
}

static void scan_files(collection* self) {
  const size_t count = self->inputs->count; /* what scans add is absent */
  for (size_t i = 0; i < count; ++i) {
    size_t bytes = 0;
    if (self->inputs->items[i].kind != ONS__INPUT_FILE) continue;
    char* text = ons__inputs_read(self->inputs, i, &bytes);
    if (!text) return;
    const char* path = self->inputs->items[i].path;
    ons__string_clear(&self->directory);
    ons__string_append_bytes(&self->directory, path, (size_t)(strrchr(path, '/') - path));
    self->is_foreign = !is_below_any(&self->folders, path);
    scan(self, text);
    ons__free(self->allocator, text);
  }
}

void ons__host_inputs_collect(const ons__host_inputs* compile) {
  const ons__compile_request* request = compile->request;
  collection self = {
      .compile = compile, .allocator = request->allocator, .inputs = request->inputs};
  ons__words_init(&self.folders, self.allocator);
  ons__string_init(&self.directory, self.allocator);
  find_folders(&self);
  read_depends(&self);
  if (!self.inputs->is_unknown) {
    scan(&self, request->source);
    for (size_t i = 0; i < request->header_count; ++i) {
      scan(&self, request->headers[i].content);
    }
    scan_files(&self);
  }
  ons__inputs_add_tool(self.inputs, compile->command->words.items[0]);
  ons__string_clear(&self.directory);
  ons__words_clear(&self.folders);
}
