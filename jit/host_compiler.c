#include "jit/host_compiler.h"
#include "jit/architecture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "jit/cccl.h"
#include "jit/cpu_headers.h"
#include "jit/host_inputs.h"
#include "jit/host_log.h"
#include "jit/host_options.h"
#include "jit/host_refusal.h"
#include "jit/shared_object.h"
#include "jit/source_guard.h"
#include "jit/source_joint.h"
#include "jit/source_options.h"
#include "jit/source_shared.h"
#include "jit/source_waits.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/path.h"
#include "runtime/base/process.h"
#include "runtime/base/string.h"
#include "runtime/base/thread.h"

struct ons__host_compiler {
  ons__host_search_options options;
  ons__mutex mutex; /* guards the two below until `found` */
  bool found;
  ons__host_command command;
};

/* One compile and its folder. */
typedef struct build {
  const ons_allocator* allocator;
  const ons__compile_request* request;
  const ons__host_command* command;
  ons__process_limits limits;
  char* folder;
  /* Paths in it; the folders end in a slash. */
  ons__string source_path, object_path, depends_path, user_folder, own_folder;
  ons__string cccl_folder;      /* empty: none, or the source has no use for it */
  ons__string option_lines;     /* of the source, for the user's macros */
  ons__words option_words;      /* the user's other options */
  ons__suspects* waiting;       /* kernels that may wait for other threads */
  ons__suspects* sharing;       /* kernels that use their block's memory */
  ons__suspects* apart;         /* kernels that tell blocks apart */
  ons__string marked;           /* the source as it is compiled */
  bool is_guarded;              /* it has marks at bounds checks */
  bool* dropped;                /* for each kernel of the request */
  ons__host_diagnostic* blamed; /* ditto, of the last run; points into `log` */
  char* log;                    /* of the last run, as the compiler printed it */
} build;

/* ---- the files -------------------------------------------------------------------- */

static ons_status write_header(build* self, const ons__string* folder,
                               const ons_header* header, ons_error* error) {
  if (!ons__path_is_inside(header->name)) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "the header name \"%s\" is not a relative path without \"..\"",
                          header->name);
  }
  ons__string path;
  ons__string_init(&path, self->allocator);
  ons__string_appendf(&path, "%s%s", folder->data, header->name);
  ons_status status =
      ons__string_ok(&path)
          ? ons__file_write(self->allocator, path.data, strlen(self->folder) + 1,
                            header->content, strlen(header->content), error)
          : ons__error_no_memory(error);
  ons__string_clear(&path);
  return status;
}

static ons_status write_user_header(build* self, const ons_header* header,
                                    ons_error* error) {
  ons__string text;
  ons__string_init(&text, self->allocator);
  ons__source_shared_append(header->content, &text);
  const ons_header rewritten = {header->name, ons__string_text(&text)};
  ons_status status = ons__string_ok(&text)
                          ? write_header(self, &self->user_folder, &rewritten, error)
                          : ons__error_no_memory(error);
  ons__string_clear(&text);
  return status;
}

/* Could the compiler look for a header? A backslash may split the directive's word, and
 * options are not understood here. */
static bool may_include(const build* self) {
  const char* source = self->request->source;
  return strstr(source, "include") || strstr(source, "import") || strchr(source, '\\') ||
         self->option_lines.length || self->option_words.count;
}

static ons_status write_headers(build* self, ons_error* error) {
  ons_status status = ONS_STATUS_OK;
  const size_t own_count = may_include(self) ? ons__cpu_own_header_count : 0;
  for (size_t i = 0; i < own_count && status == ONS_STATUS_OK; ++i) {
    status = write_header(self, &self->own_folder, &ons__cpu_own_headers[i], error);
  }
  for (size_t i = 0; i < self->request->header_count && status == ONS_STATUS_OK; ++i) {
    status = write_user_header(self, &self->request->headers[i], error);
  }
  return status;
}

/* What follows is told to be in this file. */
static void append_line_one(ons__string* text, const char* file) {
  ons__string_append(text, "#line 1 ");
  ons__string_append_quoted(text, file);
  ons__string_append(text, "\n");
}

/* In the source's file: a file of its own for each part would take longer than all else
 * here. */
static void append_prelude(const build* self, ons__string* text) {
  if (self->request->is_checked) ons__string_append(text, "#define ONS_CHECK\n");
  for (size_t i = 0; i < self->request->option_count; ++i) {
    /* The user's macros come later, but the warps are the prelude's. */
    if (!strstr(self->request->options[i], "ONS_WARP_SIZE=64")) continue;
    ons__string_append(text, "#define ONS_WARP_SIZE 64\n");
    break;
  }
  for (size_t i = 0; i < ons__cpu_prelude_count; ++i) {
    const ons__cpu_part* part = &ons__cpu_prelude[i];
    if (!ons__cpu_part_is_needed(part, self->request)) continue;
    ons__string path;
    ons__string_init(&path, self->allocator);
    ons__string_appendf(&path, "%s%s", self->own_folder.data, part->header.name);
    append_line_one(text, ons__string_text(&path));
    ons__string_append(text, part->header.content);
    ons__string_clear(&path);
  }
}

/* The lines of the options, behind those of our headers that the source includes. */
static void append_options(const build* self, ons__string* text) {
  if (!self->option_lines.length) return;
  for (size_t i = 0; i < ons__cpu_own_header_count; ++i) {
    const char* name = ons__cpu_own_headers[i].name;
    if (!strstr(self->request->source, name)) continue;
    ons__string_appendf(text, "#include <%s>\n", name);
  }
  ons__string_append(text, self->option_lines.data);
}

/* The user's source between our headers and one line for each kernel. The #line
 * directives make diagnostics name the user's file, and an error in a kernel's line names
 * the kernel. `place` is that of the line among those of kernels. */
static void append_kernel(const build* self, size_t index, size_t place,
                          ons__string* text) {
  const char* name = self->request->kernels[index].name;
  int found = self->is_guarded ? ONS_CPU_GUARDED : 0;
  if (!ons__suspects_has(self->apart, name)) found |= ONS_CPU_JOINT;
  if (ons__suspects_has(self->sharing, name)) found |= ONS_CPU_SHARES;
  if (ons__suspects_has(self->waiting, name)) found |= ONS_CPU_MAY_WAIT;
  ons__string_appendf(
      text,
      "extern \"C\" { extern ONS_CPU_EXPORT const ons_cpu_kernel "
      "ons_cpu_kernel_%zu; const ons_cpu_kernel ons_cpu_kernel_%zu = "
      "ons_cpu_describe<decltype(%s), %s, %d, ONS_CPU_IS_JOINT(%zu)>(); }\n",
      index, index, name, name, found, place);
}

static void append_variable(ons__string* text, const char* name, size_t index) {
  ons__string_appendf(text,
                      "extern \"C\" { extern ONS_CPU_EXPORT const ons_cpu_variable "
                      "ons_cpu_variable_%zu; const ons_cpu_variable ons_cpu_variable_%zu "
                      "= {ONS_CPU_ABI_VERSION, sizeof(%s), &%s, "
                      "ons_cpu::signature<void(decltype(%s)*)>}; }\n",
                      index, index, name, name, name);
}

static ons_status write_source(build* self, bool with_kernels, ons_error* error) {
  const ons__compile_request* request = self->request;
  ons__string text;
  ons__string_init(&text, self->allocator);
  append_prelude(self, &text);
  append_options(self, &text);
  append_line_one(&text, request->name);
  ons__string_append(&text, ons__string_text(&self->marked));
  ons__string_append(&text, "\n\n"); /* the source may end in a backslash */
  size_t kernel_count = 0;
  for (size_t i = 0; with_kernels && i < request->kernel_count; ++i) {
    if (self->dropped[i]) continue;
    ons__string_appendf(&text, "#line 1 \"" ONS__HOST_KERNEL_FILE "%zu\"\n", i);
    if (request->kernels[i].is_variable) {
      append_variable(&text, request->kernels[i].name, i);
    } else {
      append_kernel(self, i, kernel_count++, &text);
    }
  }
  ons_status status =
      ons__string_ok(&text)
          ? ons__file_write(self->allocator, self->source_path.data,
                            self->source_path.length, text.data, text.length, error)
          : ons__error_no_memory(error);
  ons__string_clear(&text);
  return status;
}

/* ---- running the compiler --------------------------------------------------------- */

static void append_command(build* self, ons__words* words) {
  const ons__compile_request* request = self->request;
  ons__words_append_all(words, &self->command->words);
  const char* march = ons__arch_march(request->arch);
  ons__host_options_append_defaults(words, self->command->family,
                                    march ? march : "native");
  ons__words_append_joined(words, "-I", self->user_folder.data);
  ons__words_append_joined(words, "-I", self->own_folder.data);
  if (self->cccl_folder.length) {
    ons__words_append(words, "-isystem");
    ons__words_append(words, self->cccl_folder.data);
  }
  if (request->folder) {
    /* Quoted names too are looked for in memory first. */
    ons__words_append(words, "-iquote");
    ons__words_append(words, self->user_folder.data);
    ons__words_append(words, "-iquote");
    ons__words_append(words, *request->folder ? request->folder : ".");
  }
  if (strstr(ons__string_text(&self->option_lines), "#include")) {
    ons__words_append(words, "-iquote"); /* where -include looks */
    ons__words_append(words, ".");
  }
  if (request->inputs) {
    ons__words_append(words, "-MD");
    ons__words_append(words, "-MF");
    ons__words_append(words, self->depends_path.data);
  }
  /* Ahead of the user's, the last of which may lack its value and take the next word. */
  ons__words_append(words, "-o");
  ons__words_append(words, self->object_path.data);
  ons__words_append(words, self->source_path.data);
  ons__words_append_all(words, &self->option_words);
}

/* The compiler's temporary files go where ours do, which may not be the TMPDIR given. Not
 * into our folder itself: a compiler cache's server, started by this compile, lives on.
 */
static char* temp_folder(const build* self) {
  const char* slash = strrchr(self->folder, '/');
  return ons__strndup(self->allocator, self->folder, (size_t)(slash - self->folder));
}

/* Runs the compiler over the source; OK whatever it thinks of it. */
static ons_status run(build* self, bool* out_accepted, ons_error* error) {
  ons__words words;
  ons__words_init(&words, self->allocator);
  append_command(self, &words);
  char* temp = temp_folder(self);
  ons__process_result result = {0};
  unlink(self->object_path.data); /* of an earlier run */
  ons_status status =
      ons__words_ok(&words) && temp
          ? ons__process_run(self->allocator, (const char* const*)words.items, NULL, temp,
                             &self->limits, &result, error)
          : ons__error_no_memory(error);
  if (result.interrupted) {
    status = ons__error_set(error, ONS_STATUS_INTERRUPTED,
                            "%s: the compile was interrupted", self->request->name);
  }
  if (result.timed_out) {
    status =
        ons__error_set(error, ONS_STATUS_COMPILE_FAILED,
                       "%s: the compile for %s did not end within %u ms (%s)",
                       self->request->name, self->request->arch,
                       (unsigned)self->limits.timeout_ms, self->command->words.items[0]);
  }
  ons__words_clear(&words);
  ons__free(self->allocator, temp);
  ons__free(self->allocator, self->log);
  self->log = result.output;
  /* Where the exit code is unknown, the module tells. */
  *out_accepted = result.exit_code <= 0 && access(self->object_path.data, R_OK) == 0;
  return status;
}

/* ---- what its answer means -------------------------------------------------------- */

static char* clean_log(const build* self) {
  return ons__host_log_clean(self->allocator, self->log ? self->log : "",
                             self->user_folder.data, self->own_folder.data);
}

/* The text that the diagnostic is about; NULL where it is not in memory. */
static const char* text_of(const build* self, const ons__host_diagnostic* where) {
  const ons__compile_request* request = self->request;
  if (!where->file) return NULL;
  if (!strncmp(request->name, where->file, where->file_length) &&
      !request->name[where->file_length]) {
    return request->source;
  }
  for (size_t i = 0; i < request->header_count; ++i) {
    const char* name = request->headers[i].name;
    if (!strncmp(name, where->file, where->file_length) && !name[where->file_length])
      return request->headers[i].content;
  }
  return NULL;
}

/* Reports what the log says of the user's own source. */
static ons_status report_source(const build* self, ons_error* error) {
  char* log = clean_log(self);
  if (!log) return ons__error_no_memory(error);
  ons__host_diagnostic first = {0};
  ons__host_refusal refusal = {0};
  ons_status status = ONS_STATUS_COMPILE_FAILED;
  const bool is_told = ons__host_log_first_error(log, &first);
  const char* text = text_of(self, &first);
  if (text) refusal = ons__host_refusal_find(text, first.line);
  if (ons__host_log_assembler_error(log, &first)) {
    first.file = self->request->name;
    first.file_length = strlen(first.file);
    refusal = ons__host_refusal_find_assembly(self->request->source);
  }
  if (refusal.name) {
    status = ONS_STATUS_UNSUPPORTED;
    ons__error_set(
        error, status,
        "%.*s:%ld: uses %.*s: the CPU backend has no %s: launch on a GPU (%.*s)",
        (int)first.file_length, first.file, refusal.line, (int)refusal.name_length,
        refusal.name, refusal.reason, (int)first.text_length, first.text);
  } else if (!is_told) {
    ons__error_set(error, status, "%s: %s wrote no module and gave no error message",
                   self->request->name, self->command->words.items[0]);
  } else if (first.file) {
    ons__error_set(error, status, "%.*s:%ld: %.*s%s", (int)first.file_length, first.file,
                   first.line, (int)first.text_length, first.text,
                   ons__host_log_header_advice(&first));
  } else {
    ons__error_set(error, status, "%s: %.*s", self->request->name, (int)first.text_length,
                   first.text);
  }
  ons__free(self->allocator, log);
  return status;
}

/* Names are put into the source as they are: they must stay on their line. */
static bool is_plausible_name(const char* name) {
  return *name && !strpbrk(name, "\n\r;{}#\"\\");
}

/* Drops the kernels that spoilt the compile. NOT_FOUND when one was required. */
static ons_status drop_blamed(build* self, ons_error* error) {
  for (size_t i = 0; i < self->request->kernel_count; ++i) {
    const ons__host_diagnostic* reason = &self->blamed[i];
    if (!reason->text) continue;
    if (self->request->kernels[i].required) {
      return ons__error_set(error, ONS_STATUS_NOT_FOUND, "%s has no kernel \"%s\": %.*s",
                            self->request->name, self->request->kernels[i].name,
                            (int)reason->text_length, reason->text);
    }
    self->dropped[i] = true;
  }
  return ONS_STATUS_OK;
}

static ons_status drop_implausible(build* self, ons_error* error) {
  static const char reason[] = "it is not a name";
  for (size_t i = 0; i < self->request->kernel_count; ++i) {
    bool plausible = is_plausible_name(self->request->kernels[i].name);
    self->blamed[i].text = plausible ? NULL : reason;
    self->blamed[i].text_length = sizeof(reason) - 1;
  }
  return drop_blamed(self, error);
}

/* Drops the kernels that are only declared; how many there are. */
static ons_status drop_undefined(build* self, size_t* out_count, ons_error* error) {
  static const char reason[] = "is it only declared, and not defined?";
  *out_count = 0;
  for (size_t i = 0; i < self->request->kernel_count; ++i) {
    bool is_missing =
        !self->dropped[i] && self->log &&
        ons__host_log_misses_definition(self->log, self->request->kernels[i].name);
    self->blamed[i] = (ons__host_diagnostic){0};
    if (!is_missing) continue;
    self->blamed[i].text = reason;
    self->blamed[i].text_length = sizeof(reason) - 1;
    ++*out_count;
  }
  return drop_blamed(self, error);
}

/* Is the source without our lines all right? An open brace at its end, say, only shows in
 * them. */
static ons_status check_source_alone(build* self, ons_error* error) {
  bool accepted = false;
  char* log = self->log; /* `blamed` points into it */
  self->log = NULL;
  ons_status status = write_source(self, false, error);
  if (status == ONS_STATUS_OK) status = run(self, &accepted, error);
  if (status == ONS_STATUS_OK && !accepted) status = report_source(self, error);
  if (status == ONS_STATUS_OK) {
    ons__free(self->allocator, self->log);
    self->log = log;
  } else {
    ons__free(self->allocator, log);
  }
  return status;
}

/* Compiles until the compiler accepts every kernel that is left. */
static ons_status compile(build* self, ons_error* error) {
  ons_status status = drop_implausible(self, error);
  bool checked_alone = false;
  while (status == ONS_STATUS_OK) {
    bool accepted = false;
    status = write_source(self, true, error);
    if (status == ONS_STATUS_OK) status = run(self, &accepted, error);
    if (status != ONS_STATUS_OK || accepted) return status;

    size_t blamed = 0;
    status = drop_undefined(self, &blamed, error);
    if (status != ONS_STATUS_OK) return status;
    if (blamed > 0) continue;
    blamed = ons__host_log_blame(self->log, self->blamed, self->request->kernel_count);
    ons__host_diagnostic first;
    if (blamed == 0 || ons__host_log_first_error(self->log, &first)) {
      return report_source(self, error);
    }
    if (!checked_alone) status = check_source_alone(self, error);
    checked_alone = true;
    if (status == ONS_STATUS_OK) status = drop_blamed(self, error);
  }
  return status;
}

/* ---- the image -------------------------------------------------------------------- */

static ons_status describe_kernel(const build* self, size_t index, ons__image* image,
                                  ons_error* error) {
  char symbol[40];
  const bool is_variable = self->request->kernels[index].is_variable;
  snprintf(symbol, sizeof(symbol), "ons_cpu_%s_%zu", is_variable ? "variable" : "kernel",
           index);
  const void* found = ons__shared_object_find(image->object, symbol);
  /* Both begin with it. */
  if (!found || *(const uint32_t*)found != ONS_CPU_ABI_VERSION) {
    return ons__error_set(error, ONS_STATUS_INTERNAL, "the compiled module has no %s",
                          symbol);
  }
  ons__image_kernel* entry = &image->kernels[image->kernel_count++];
  entry->name = ons__strdup(self->allocator, self->request->kernels[index].name);
  entry->lowered = ons__strdup(self->allocator, symbol);
  entry->signature = ons__strdup(
      self->allocator, is_variable ? ((const ons_cpu_variable*)found)->signature()
                                   : ((const ons_cpu_kernel*)found)->signature());
  if (!entry->name || !entry->lowered || !entry->signature)
    return ons__error_no_memory(error);
  return ONS_STATUS_OK;
}

/* Only the loaded object can say how its kernels' types are spelt. */
static ons_status describe_kernels(const build* self, ons__image* image,
                                   ons_error* error) {
  ons_status status = ons__shared_object_open(self->allocator, image->code,
                                              image->code_bytes, &image->object, error);
  for (size_t i = 0; i < self->request->kernel_count && status == ONS_STATUS_OK; ++i) {
    if (!self->dropped[i]) status = describe_kernel(self, i, image, error);
  }
  return status;
}

static ons_status make_image(const build* self, ons__image** out_image,
                             ons_error* error) {
  ons__image* image = ons__alloc(self->allocator, sizeof(*image));
  if (!image) return ons__error_no_memory(error);
  image->allocator = self->allocator;
  image->kind = ONS__IMAGE_SHARED_OBJECT;
  image->log = clean_log(self);
  image->kernels = ons__alloc_array(self->allocator, self->request->kernel_count,
                                    sizeof(*image->kernels));
  ons_status status =
      image->log && image->kernels ? ONS_STATUS_OK : ons__error_no_memory(error);
  if (status == ONS_STATUS_OK) {
    status = ons__file_read(self->allocator, self->object_path.data, &image->code,
                            &image->code_bytes, error);
  }
  if (status == ONS_STATUS_OK) status = describe_kernels(self, image, error);
  if (status == ONS_STATUS_OK) {
    *out_image = image;
  } else {
    ons__image_destroy(image);
  }
  return status;
}

static void collect_inputs(const build* self) {
  const ons__host_inputs compile = {
      .request = self->request,
      .command = self->command,
      .options = &self->option_words,
      .own_folder = self->folder,
      .depends_path = self->depends_path.data,
      .system_folder = ons__string_text(&self->cccl_folder)};
  ons__host_inputs_collect(&compile);
}

/* ---- the service ------------------------------------------------------------------ */

/* The user's source, rewritten, and with marks for the loops around its kernels. */
static bool mark(build* self) {
  ons__string shared, guarded;
  ons__string_init(&shared, self->allocator);
  ons__string_init(&guarded, self->allocator);
  ons__source_shared_append(self->request->source, &shared);
  self->is_guarded = ons__source_guard_append(ons__string_text(&shared), &guarded) > 0;
  ons__source_joint_append(ons__string_text(&guarded), &self->marked);
  const bool is_whole = ons__string_ok(&shared) && ons__string_ok(&guarded) &&
                        ons__string_ok(&self->marked);
  ons__string_clear(&shared);
  ons__string_clear(&guarded);
  return is_whole;
}

static ons__suspects* suspects(const build* self, ons__suspicion suspicion,
                               const char** texts, size_t count) {
  const bool is_all = ons__cpu_source_reaches_out(self->request);
  return ons__suspects_create(self->allocator, suspicion, texts, count, is_all);
}

/* Reads what there is of the source and of what it includes. */
static ons_status find_suspects(build* self, ons_error* error) {
  const ons__compile_request* request = self->request;
  const size_t count = request->header_count + 2;
  const char** texts = ons__alloc_array(self->allocator, count, sizeof(*texts));
  if (!texts || !mark(self)) {
    ons__free(self->allocator, texts);
    return ons__error_no_memory(error);
  }
  texts[0] = ons__string_text(&self->marked);
  texts[1] = ons__string_text(&self->option_lines);
  for (size_t i = 2; i < count; ++i) texts[i] = request->headers[i - 2].content;
  self->apart = suspects(self, ONS__SUSPECT_INDEX, texts, count);
  texts[0] = request->source;
  self->waiting = suspects(self, ONS__SUSPECT_WAITS, texts, count);
  self->sharing = suspects(self, ONS__SUSPECT_SHARED, texts, count);
  ons__free(self->allocator, texts);
  const bool is_complete = self->apart && self->waiting && self->sharing;
  return is_complete ? ONS_STATUS_OK : ons__error_no_memory(error);
}

static ons_status begin(build* self, ons_error* error) {
  ons__string_init(&self->source_path, self->allocator);
  ons__string_init(&self->object_path, self->allocator);
  ons__string_init(&self->depends_path, self->allocator);
  ons__string_init(&self->user_folder, self->allocator);
  ons__string_init(&self->own_folder, self->allocator);
  ons__string_init(&self->cccl_folder, self->allocator);
  ons__string_init(&self->option_lines, self->allocator);
  ons__string_init(&self->marked, self->allocator);
  ons__words_init(&self->option_words, self->allocator);
  ons_status status = ons__temp_folder_create(self->allocator, &self->folder, error);
  if (status != ONS_STATUS_OK) return status;
  ons__string_appendf(&self->source_path, "%s/module.cpp", self->folder);
  ons__string_appendf(&self->object_path, "%s/module.so", self->folder);
  ons__string_appendf(&self->depends_path, "%s/module.d", self->folder);
  ons__string_appendf(&self->user_folder, "%s/user/", self->folder);
  ons__string_appendf(&self->own_folder, "%s/own/", self->folder);
  const ons__compile_request* request = self->request;
  ons__source_options_append(request->options, request->option_count,
                             &self->option_lines);
  size_t count = request->kernel_count;
  self->dropped = ons__alloc_array(self->allocator, count, sizeof(*self->dropped));
  self->blamed = ons__alloc_array(self->allocator, count, sizeof(*self->blamed));
  bool complete =
      ons__string_ok(&self->source_path) && ons__string_ok(&self->object_path) &&
      ons__string_ok(&self->depends_path) && ons__string_ok(&self->user_folder) &&
      ons__string_ok(&self->own_folder) && ons__string_ok(&self->cccl_folder) &&
      ons__string_ok(&self->option_lines) && self->dropped && self->blamed;
  if (!complete) return ons__error_no_memory(error);
  status = find_suspects(self, error);
  if (status != ONS_STATUS_OK) return status;
  return ons__host_options_append_user(&self->option_words, request->options,
                                       request->option_count, error);
}

static void end(build* self) {
  ons__temp_folder_remove(self->folder);
  ons__free(self->allocator, self->folder);
  ons__string_clear(&self->source_path);
  ons__string_clear(&self->object_path);
  ons__string_clear(&self->depends_path);
  ons__string_clear(&self->user_folder);
  ons__string_clear(&self->own_folder);
  ons__string_clear(&self->cccl_folder);
  ons__string_clear(&self->option_lines);
  ons__words_clear(&self->option_words);
  ons__suspects_destroy(self->waiting);
  ons__suspects_destroy(self->sharing);
  ons__suspects_destroy(self->apart);
  ons__string_clear(&self->marked);
  ons__free(self->allocator, self->dropped);
  ons__free(self->allocator, self->blamed);
  ons__free(self->allocator, self->log);
}

ons_status ons__host_compiler_compile(ons__host_compiler* compiler,
                                      const ons__compile_request* request,
                                      ons__image** out_image, char** out_log,
                                      ons_error* error) {
  *out_image = NULL;
  *out_log = NULL;
  build self = {.allocator = request->allocator,
                .request = request,
                .limits = {.timeout_ms = request->timeout_ms,
                           .interrupt = compiler->options.interrupt,
                           .interrupt_user_data = compiler->options.interrupt_user_data}};
  ons_status status = ons__host_compiler_command(compiler, &self.command, error);
  if (status != ONS_STATUS_OK) return status;
  status = begin(&self, error);
  if (status == ONS_STATUS_OK && ons__cpu_source_reaches_out(request)) {
    ons__cccl_find(&compiler->options, &self.cccl_folder);
    if (!ons__string_ok(&self.cccl_folder)) status = ons__error_no_memory(error);
  }
  if (status == ONS_STATUS_OK) status = write_headers(&self, error);
  if (status == ONS_STATUS_OK) status = compile(&self, error);
  if (status == ONS_STATUS_OK) status = make_image(&self, out_image, error);
  if (status == ONS_STATUS_OK && request->inputs) collect_inputs(&self);
  if (self.log) *out_log = clean_log(&self);
  end(&self);
  return status;
}

ons_status ons__host_compiler_command(ons__host_compiler* compiler,
                                      const ons__host_command** out_command,
                                      ons_error* error) {
  ons__mutex_lock(&compiler->mutex);
  bool found = compiler->found;
  ons__mutex_unlock(&compiler->mutex);
  *out_command = &compiler->command;
  if (found) return ONS_STATUS_OK;

  /* Outside the lock: `locate` is the host's code. Two threads may search at once. */
  ons__host_command command = {0};
  ons_status status = ons__host_search(&compiler->options, &command, error);
  ons__mutex_lock(&compiler->mutex);
  if (compiler->found) {
    status = ONS_STATUS_OK;
  } else if (status == ONS_STATUS_OK) {
    compiler->command = command;
    compiler->found = true;
    command = (ons__host_command){0};
  }
  ons__mutex_unlock(&compiler->mutex);
  ons__words_clear(&command.words);
  return status;
}

ons_status ons__host_compiler_create(const ons__host_search_options* options,
                                     ons__host_compiler** out_compiler,
                                     ons_error* error) {
  ons__host_compiler* self = ons__alloc(options->allocator, sizeof(*self));
  *out_compiler = self;
  if (!self) return ons__error_no_memory(error);
  self->options = *options;
  ons__mutex_init(&self->mutex);
  return ONS_STATUS_OK;
}

void ons__host_compiler_destroy(ons__host_compiler* compiler) {
  if (!compiler) return;
  ons__words_clear(&compiler->command.words);
  ons__mutex_destroy(&compiler->mutex);
  ons__free(compiler->options.allocator, compiler);
}
