#include "jit/nvrtc_inputs.h"

#include <dlfcn.h>
#include <string.h>

#include "jit/include_scan.h"
#include "jit/words.h"
#include "runtime/base/alloc.h"
#include "runtime/base/string.h"

typedef struct walk {
  const ons__nvrtc_input* input;
  const ons_allocator* allocator;
  ons__inputs* inputs;
  ons__words folders;
  ons__string directory; /* of the file that is being scanned */
} walk;

/* Does the option make NVRTC read or write other files than headers? */
static bool has_files_of_its_own(const char* option) {
  static const char* const names[] = {
      "pch",          "create-pch", "use-pch", "time", "fdevice-time-trace",
      "options-file", "optf",       "opt-info"};
  const char* name = option + strspn(option, "-");
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
    if (!strncmp(name, names[i], strlen(names[i]))) return true;
  }
  return *option == '@';
}

/* The folders that the options name, in order. Moves *index to the option's last word. */
static void read_folder(walk* self, size_t* index) {
  static const char* const names[] = {"--include-path",   "-include-path",   "-isystem",
                                      "--system-include", "-system-include", "-I"};
  const ons__nvrtc_input* input = self->input;
  const char* option = input->options[*index];
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
    const size_t length = strlen(names[i]);
    if (strncmp(option, names[i], length) != 0) continue;
    const char* value = option + length + (option[length] == '=');
    if (!option[length]) {
      value = *index + 1 < input->option_count ? input->options[++*index] : "";
    }
    if (*value) ons__words_append(&self->folders, value);
    return;
  }
}

static void find_folders(walk* self) {
  const ons__nvrtc_input* input = self->input;
  for (size_t i = 0; i < input->option_count; ++i) {
    if (has_files_of_its_own(input->options[i])) self->inputs->is_unknown = true;
    read_folder(self, &i);
  }
  self->inputs->is_unknown |= !ons__words_ok(&self->folders);
}

static bool is_in_memory(const ons__nvrtc_input* input, const char* name) {
  for (size_t i = 0; i < input->header_count; ++i) {
    if (strcmp(input->header_names[i], name) == 0) return true;
  }
  return false;
}

/* Is there such a file? Either way it is an input. */
static bool look(walk* self, const char* folder, const char* name) {
  ons__string path;
  ons__string_init(&path, self->allocator);
  ons__string_appendf(&path, "%s%s%s", folder, *folder ? "/" : "", name);
  const bool found = ons__string_ok(&path) && ons__inputs_add(self->inputs, path.data);
  self->inputs->is_unknown |= !ons__string_ok(&path);
  ons__string_clear(&path);
  return found;
}

static void follow(void* context, const ons__include* include) {
  walk* self = context;
  const char* name = include->name;
  if (!name) {
    self->inputs->is_unknown = true;
    return;
  }
  if (*name == '/') {
    look(self, "", name);
    return;
  }
  if (include->is_quoted && look(self, self->directory.data, name)) return;
  if (is_in_memory(self->input, name) && !include->is_next) return;
  for (size_t i = 0; i < self->folders.count; ++i) {
    if (look(self, self->folders.items[i], name) && !include->is_next) return;
  }
}

static void scan(walk* self, const char* path, const char* text) {
  const char* slash = strrchr(path, '/');
  ons__string_clear(&self->directory);
  ons__string_append_bytes(&self->directory, slash ? path : ".",
                           slash ? (size_t)(slash - path) : 1);
  if (!ons__string_ok(&self->directory) ||
      !ons__include_scan(self->allocator, text, follow, self)) {
    self->inputs->is_unknown = true;
  }
}

/* Each file that is read adds those it includes. */
static void scan_files(walk* self) {
  for (size_t i = 0; i < self->inputs->count && !self->inputs->is_unknown; ++i) {
    size_t bytes = 0;
    if (self->inputs->items[i].kind != ONS__INPUT_FILE) continue;
    char* text = ons__inputs_read(self->inputs, i, &bytes);
    char* path = ons__strdup(self->allocator, self->inputs->items[i].path);
    if (text && path) scan(self, path, text);
    self->inputs->is_unknown |= !text || !path;
    ons__free(self->allocator, path);
    ons__free(self->allocator, text);
  }
}

static void add_library(walk* self) {
  Dl_info info;
  void* symbol = NULL;
  memcpy(&symbol, &self->input->library->nvrtcVersion, sizeof(symbol));
  if (dladdr(symbol, &info) && info.dli_fname) {
    ons__inputs_add_tool(self->inputs, info.dli_fname);
  }
}

void ons__nvrtc_inputs_collect(const ons__nvrtc_input* input) {
  const ons__compile_request* request = input->request;
  walk self = {
      .input = input, .allocator = request->allocator, .inputs = request->inputs};
  ons__words_init(&self.folders, self.allocator);
  ons__string_init(&self.directory, self.allocator);
  find_folders(&self);
  scan(&self, request->name, input->text);
  for (size_t i = 0; i < input->header_count; ++i) {
    scan(&self, input->header_names[i], input->header_contents[i]);
  }
  scan_files(&self);
  add_library(&self);
  ons__string_clear(&self.directory);
  ons__words_clear(&self.folders);
}
